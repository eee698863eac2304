"""Cast: every pair of kinds, one rounding, saturation, traps (R15, R29)."""

import math
import random

import numpy as np
import pytest

from uops.interp.exact import FORMATS, bits_of, evaluate_op, exact_fraction, python_number, round_to
from uops.interp.exact.numbers.casts import CASTS, cast
from uops.interp.exact.numbers.formats import wrap_integer
from uops.spec.errors import SpecError, Trap
from uops.spec.ir.dtypes import (
    FLOATS,
    INTS,
    STORABLE,
    DTypeKind,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    fp8e4m3,
    fp8e5m2,
    index,
    int8,
    int32,
    int64,
    uint8,
    uint64,
    void,
)  # fmt: skip
from uops.spec.ir.ops import Op

INF, NAN = math.inf, math.nan

# fmt: off
TABLE = [  # source, value, target, value
    (int32,   300,        int8,     44),
    (int32,   -1,         uint64,   (1 << 64) - 1),
    (uint8,   200,        int8,     -56),
    (int8,    -1,         index,    -1),
    (uint64,  1 << 63,    index,    1 << 63),
    (index,   -(1 << 70) - 1, int8, -1),
    (index,   1 << 70,    bool_,    True),
    (int32,   256,        bool_,    True),
    (float32, 0.25,       bool_,    True),
    (float32, -0.0,       bool_,    False),
    (float32, NAN,        bool_,    True),
    (bool_,   True,       float16,  1.0),
    (bool_,   True,       int8,     1),
    (bool_,   True,       index,    1),
    (float32, 2.9,        int8,     2),
    (float32, -2.9,       int8,     -2),
    (float32, 300.0,      int8,     127),
    (float32, -300.0,     int8,     -128),
    (float32, -1.0,       uint8,    0),
    (float32, -0.9,       uint8,    0),
    (float32, INF,        int64,    (1 << 63) - 1),
    (float32, -INF,       int64,    -(1 << 63)),
    (float32, NAN,        int32,    0),
    (float64, 2.0**64,    uint64,   (1 << 64) - 1),
    (float64, 1e300,      index,    int(1e300)),
    (float64, -1.5,       index,    -1),
    (int32,   2**30 + 2**22 + 1, bfloat16, float(2**30 + 2**23)),  # double rounding would give 2^30
    (int64,   2**53 + 1,  float64,  float(2**53)),
    (uint64,  2**64 - 1,  float32,  float(2**64)),
    (index,   2**200,     float64,  float(2**200)),
    (index,   2**2000,    float64,  INF),
    (int32,   65520,      float16,  INF),
    (int32,   65519,      float16,  65504.0),
    (int32,   464,        fp8e4m3,  448.0),
    (int32,   465,        fp8e4m3,  NAN),
    (float32, -INF,       fp8e4m3,  NAN),
    (float32, 2.0**-130,  bfloat16, 2.0**-130),                    # a subnormal is kept
    (float64, 1 + 2.0**-11 + 2.0**-50, float16, 1 + 2.0**-10),
    (float64, 1 + 2.0**-8 + 2.0**-40, bfloat16, 1 + 2.0**-7),
    (float64, 2.0**-1074, float32,  0.0),
    (float32, -1e-10,     float16,  -0.0),
    (fp8e5m2, -INF,       float64,  -INF),
    (float16, 61440.0,    fp8e5m2,  INF),
]
# fmt: on


@pytest.mark.parametrize(("source", "value", "target", "result"), TABLE)
def test_r15_known_casts(source, value, target, result):
    answer = cast(source, target, bits_of(source, value))
    if target.is_float and math.isnan(result):
        assert FORMATS[target].is_nan(answer.best) and answer.value_count_nans_as_one == 1
    else:
        assert answer.best == bits_of(target, result) and answer.is_exact
    assert evaluate_op(Op.CAST, (source,), target, (bits_of(source, value),)) == answer


def test_every_pair_of_kinds_has_a_rule():
    kinds = set(DTypeKind) - {DTypeKind.VOID}
    assert set(CASTS) == {(a, b) for a in kinds for b in kinds}
    with pytest.raises(SpecError):
        cast(int8, void, 1)


@pytest.mark.parametrize("value", [INF, -INF, NAN])
def test_r29_a_non_finite_float_to_index_traps(value):
    with pytest.raises(Trap, match="R29"):
        cast(float32, index, bits_of(float32, value))


@pytest.mark.parametrize("target", FLOATS, ids=str)
@pytest.mark.parametrize("source", [*FLOATS, int64, uint64, int8], ids=str)
def test_r15_one_rounding_from_the_exact_source(source, target):
    r = random.Random(f"{source}{target}")
    fmt = FORMATS[target]
    for _ in range(300):
        bits = r.getrandbits(source.bits)
        exact = exact_fraction(source, bits)
        answer = cast(source, target, bits)
        if exact is None:
            assert fmt.is_nan(answer.best) == (math.isnan(python_number(source, bits)) or not fmt.has_inf)
        else:
            assert answer.best == round_to(target, exact, bits >> (source.bits - 1) if source.is_float else 0)


@pytest.mark.parametrize("target", INTS, ids=str)
@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_r15_float_to_int_truncates_then_saturates(source, target):
    r = random.Random(f"{source}{target}")
    for _ in range(300):
        bits = r.getrandbits(source.bits)
        x = python_number(source, bits)
        if math.isnan(x):
            expected = 0
        elif math.isinf(x):
            expected = target.max if x > 0 else target.min
        else:
            expected = min(max(math.trunc(x), target.min), target.max)
        assert cast(source, target, bits).best == wrap_integer(target, int(expected))
        inside = math.isfinite(x) and math.trunc(x) == expected
        assert cast(source, target, bits, core=True).anything == (not inside)


def test_r15_core_lets_fp8_saturate():
    for target in (fp8e4m3, fp8e5m2):
        fmt = FORMATS[target]
        for value in (1e6, -1e6, INF, -INF):
            bits = bits_of(float32, value)
            top = fmt.max_mag | (fmt.sign_bit if value < 0 else 0)
            assert not cast(float32, target, bits).contains(top)
            core = cast(float32, target, bits, core=True)
            assert core.contains(top) and core.contains(core.best) and not core.contains(top ^ fmt.sign_bit)
        assert cast(float32, target, bits_of(float32, 1.0), core=True).is_exact
    assert not cast(float32, float16, bits_of(float32, 1e6), core=True).contains(FORMATS[float16].max_mag)


@pytest.mark.parametrize("dtype", STORABLE, ids=str)
def test_cast_to_its_own_dtype_keeps_every_bit(dtype):
    r = random.Random(dtype.name)
    for _ in range(100):
        bits = r.getrandbits(dtype.bits) if dtype is not bool_ else r.getrandbits(1)
        assert cast(dtype, dtype, bits).best == bits


def test_numpy_as_third_opinion_on_float_to_float():
    r = random.Random(6)
    a = np.array([r.getrandbits(64) for _ in range(3000)], dtype=np.uint64)
    with np.errstate(all="ignore"):
        for target, kind in ((float32, np.float32), (float16, np.float16)):
            theirs = a.view(np.float64).astype(kind).view(f"u{target.itemsize}")
            for bits, want in zip(a.tolist(), theirs.tolist(), strict=True):
                assert cast(float64, target, bits).contains(want)
