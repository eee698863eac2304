"""Float arithmetic: special values, one rounding, and the core level (R11 to R13, R16, R19 to R21)."""

import math
import random
import struct
from fractions import Fraction

import numpy as np
import pytest

from uops.backends.arrays import STORAGE
from uops.interp.exact import FORMATS, bits_of, evaluate_canonical, evaluate_op, exact_fraction, python_number, round_to
from uops.interp.exact.numbers.formats import dyadic
from uops.spec.errors import SpecError
from uops.spec.ir.dtypes import FLOATS, bool_, float16, float32, float64, int8
from uops.spec.ir.ops import COMPARE, Op

INF, NAN = math.inf, math.nan

# fmt: off
KNOWN = [  # op, operands, result: for every dtype that can hold them
    (Op.ADD,    (1.0, 2.0),        3.0),
    (Op.ADD,    (-0.0, -0.0),      -0.0),
    (Op.ADD,    (-0.0, 0.0),       0.0),
    (Op.ADD,    (1.5, -1.5),       0.0),
    (Op.ADD,    (INF, -INF),       NAN),
    (Op.ADD,    (INF, 1.0),        INF),
    (Op.ADD,    (NAN, 1.0),        NAN),
    (Op.SUB,    (0.0, 0.0),        0.0),
    (Op.SUB,    (-0.0, 0.0),       -0.0),
    (Op.SUB,    (INF, INF),        NAN),
    (Op.SUB,    (1.0, 3.0),        -2.0),
    (Op.MUL,    (-1.5, 2.0),       -3.0),
    (Op.MUL,    (-0.0, 2.0),       -0.0),
    (Op.MUL,    (INF, 0.0),        NAN),
    (Op.MUL,    (-INF, 2.0),       -INF),
    (Op.DIV,    (3.0, -2.0),       -1.5),
    (Op.DIV,    (1.0, 0.0),        INF),
    (Op.DIV,    (1.0, -0.0),       -INF),
    (Op.DIV,    (0.0, 0.0),        NAN),
    (Op.DIV,    (INF, INF),        NAN),
    (Op.DIV,    (1.0, -INF),       -0.0),
    (Op.RECIP,  (-4.0,),           -0.25),
    (Op.RECIP,  (-0.0,),           -INF),
    (Op.RECIP,  (INF,),            0.0),
    (Op.SQRT,   (2.25,),           1.5),
    (Op.SQRT,   (-0.0,),           -0.0),
    (Op.SQRT,   (-1.0,),           NAN),
    (Op.SQRT,   (INF,),            INF),
    (Op.TRUNC,  (-0.5,),           -0.0),
    (Op.TRUNC,  (2.5,),            2.0),
    (Op.TRUNC,  (-INF,),           -INF),
    (Op.NEG,    (0.0,),            -0.0),
    (Op.NEG,    (-INF,),           INF),
    (Op.MAX,    (1.0, 2.0),        2.0),
    (Op.MAX,    (-INF, -3.0),      -3.0),
    (Op.MAX,    (NAN, 1.0),        NAN),
    (Op.MIN,    (1.0, -2.0),       -2.0),
    (Op.MIN,    (1.0, NAN),        NAN),
    (Op.MULACC, (2.0, 3.0, -4.0),  2.0),
    (Op.MULACC, (INF, 0.0, 1.0),   NAN),
    (Op.MULACC, (INF, 1.0, -INF),  NAN),
    (Op.MULACC, (0.0, -1.0, -0.0), -0.0),
    (Op.MULACC, (1.0, 1.0, -1.0),  0.0),
]
ORDER = [  # a, b, then CmpLt CmpNe CmpGt CmpGe CmpLe CmpEq
    (1.0,  2.0,  1, 1, 0, 0, 1, 0),
    (2.0,  2.0,  0, 0, 0, 1, 1, 1),
    (3.0,  2.0,  0, 1, 1, 1, 0, 0),
    (-0.0, 0.0,  0, 0, 0, 1, 1, 1),
    (-INF, INF,  1, 1, 0, 0, 1, 0),
    (NAN,  1.0,  0, 1, 0, 0, 0, 0),
    (1.0,  NAN,  0, 1, 0, 0, 0, 0),
    (NAN,  NAN,  0, 1, 0, 0, 0, 0),
]
# fmt: on


def held(dtype, *values):
    """R15: fp8e4m3 has no infinity."""
    return dtype.has_inf or not any(math.isinf(v) for v in values)


@pytest.mark.parametrize(("dtype", "op", "operands", "result"), [(d, *k) for d in FLOATS for k in KNOWN if held(d, *k[1])])
def test_known_answers(dtype, op, operands, result):
    bits = [bits_of(dtype, v) for v in operands]
    answer = evaluate_op(op, [dtype] * len(bits), dtype, bits)
    fmt = FORMATS[dtype]
    if math.isnan(result) or not held(dtype, result):
        assert fmt.is_nan(answer.best) and answer.value_count_nans_as_one == 1
        assert all(answer.contains(b) for b in (fmt.nan, fmt.nan | fmt.sign_bit)) and not answer.contains(0)
    else:
        assert answer.best == bits_of(dtype, result) and answer.is_exact
        assert not answer.contains(answer.best ^ fmt.sign_bit) and not answer.contains(fmt.nan)


@pytest.mark.parametrize(("dtype", "row"), [(d, row) for d in FLOATS for row in ORDER if held(d, *row[:2])])
def test_r12_r13_comparisons(dtype, row):
    bits = [bits_of(dtype, v) for v in row[:2]]
    unordered = any(math.isnan(v) for v in row[:2])
    for op, expected in zip((Op.CMPLT, Op.CMPNE, Op.CMPGT, Op.CMPGE, Op.CMPLE, Op.CMPEQ), row[2:], strict=True):
        strict = evaluate_op(op, [dtype] * 2, bool_, bits)
        assert strict.best == expected and strict.is_exact, op
        core = evaluate_op(op, [dtype] * 2, bool_, bits, "core")
        assert core.contains(1 - expected) == (unordered and op in (Op.CMPGE, Op.CMPLE)), op


def test_comparisons_are_all_tabulated():
    assert {Op.CMPLT, Op.CMPNE, Op.CMPGT, Op.CMPGE, Op.CMPLE, Op.CMPEQ} == COMPARE


def patterns(dtype, r, n):
    """Random patterns, half of them near special places."""
    fmt = FORMATS[dtype]
    edges = [0, 1, fmt.hidden - 1, fmt.hidden, fmt.one, fmt.one + 1, fmt.one - 1, fmt.max_mag, fmt.inf_mag, fmt.nan]
    return [r.getrandbits(dtype.bits) if r.random() < 0.5 else r.choice(edges) | r.choice((0, fmt.sign_bit)) for _ in range(n)]


def exact_reference(op, values):
    """The exact real result of finite operands, None where it is not a rational number."""
    if op is Op.ADD:
        return values[0] + values[1]
    if op is Op.SUB:
        return values[0] - values[1]
    if op is Op.MUL:
        return values[0] * values[1]
    if op is Op.DIV:
        return values[0] / values[1] if values[1] else None
    if op is Op.RECIP:
        return 1 / values[0] if values[0] else None
    if op is Op.TRUNC:
        return Fraction(math.trunc(values[0]))
    return values[0] * values[1] + values[2]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", [Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.RECIP, Op.TRUNC, Op.MULACC], ids=lambda o: o.name)
def test_r16_one_rounding_of_the_exact_result(dtype, op):
    arity = 1 if op in (Op.RECIP, Op.TRUNC) else 3 if op is Op.MULACC else 2
    r = random.Random(f"{op}{dtype}")
    judged = 0
    for _ in range(400):
        bits = patterns(dtype, r, arity)
        values = [exact_fraction(dtype, b) for b in bits]
        exact = None if None in values else exact_reference(op, values)
        if exact:
            judged += 1
            assert evaluate_canonical(op, [dtype] * arity, dtype, *bits) == round_to(dtype, exact), (bits, exact)
    assert judged > 100


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_r16_sqrt_brackets_the_root(dtype):
    """r is the nearest root: (r - half)^2 < x < (r + half)^2 with half the spacing on either side."""
    fmt = FORMATS[dtype]
    r = random.Random(2)
    for b in (p for p in patterns(dtype, r, 600) if 0 < p <= fmt.max_mag):
        root = evaluate_canonical(Op.SQRT, [dtype], dtype, b)
        x, at = exact_fraction(dtype, b), exact_fraction(dtype, root)
        below, above = exact_fraction(dtype, root - 1), exact_fraction(dtype, root + 1)
        assert ((at + below) / 2) ** 2 < x < ((at + above) / 2) ** 2 or at * at == x


def half_pack(x):
    try:
        return int.from_bytes(struct.pack("<e", x), "little")
    except OverflowError:
        return FORMATS[float16].infinity(int(x < 0))


def test_r16_f16_add_and_mul_against_double_arithmetic():
    """A double holds every f16 sum and product exactly or far beyond double rounding, so packing it is the right answer."""
    r = random.Random(1)
    fmt = FORMATS[float16]
    finite = [b for b in range(1 << 16) if not fmt.is_nan(b) and b & fmt.mag_mask != fmt.inf_mag]
    for _ in range(20000):
        a, b = r.choice(finite), r.choice(finite)
        x, y = python_number(float16, a), python_number(float16, b)
        assert evaluate_canonical(Op.ADD, [float16] * 2, float16, a, b) == half_pack(x + y), (a, b)
        assert evaluate_canonical(Op.MUL, [float16] * 2, float16, a, b) == half_pack(x * y), (a, b)


@pytest.mark.parametrize("dtype", [float16, float32, float64], ids=str)
def test_numpy_as_third_opinion(dtype):
    r = random.Random(4)
    n = 3000
    a, b = (np.array(patterns(dtype, r, n), dtype=f"u{dtype.itemsize}") for _ in range(2))
    x, y = a.view(STORAGE[dtype]), b.view(STORAGE[dtype])
    with np.errstate(all="ignore"):
        theirs = {Op.ADD: x + y, Op.SUB: x - y, Op.MUL: x * y, Op.DIV: x / y}
        single = {Op.SQRT: np.sqrt(x), Op.TRUNC: np.trunc(x), Op.NEG: -x}
    for op, out in theirs.items():
        for p, q, want in zip(a.tolist(), b.tolist(), out.view(a.dtype).tolist(), strict=True):
            assert evaluate_op(op, [dtype] * 2, dtype, (p, q)).contains(want), (op, p, q)
    for op, out in single.items():
        for p, want in zip(a.tolist(), out.view(a.dtype).tolist(), strict=True):
            assert evaluate_op(op, [dtype], dtype, (p,)).contains(want), (op, p)


def test_r16_mulacc_rounds_once_and_core_allows_twice():
    bits = [bits_of(float32, v) for v in (1.0 + 2**-12, 1.0 + 2**-12, -1.0)]
    fused, twice = bits_of(float32, 2**-11 + 2**-24), bits_of(float32, 2**-11)
    strict = evaluate_op(Op.MULACC, [float32] * 3, float32, bits)
    assert strict.best == fused and not strict.contains(twice)
    core = evaluate_op(Op.MULACC, [float32] * 3, float32, bits, "core")
    assert core.contains(fused) and core.contains(twice) and core.value_count_nans_as_one == 2


@pytest.mark.parametrize("op", [Op.MAX, Op.MIN], ids=lambda o: o.name)
def test_r11_either_zero_and_core_nan_handling(op):
    both = evaluate_op(op, [float32] * 2, float32, (0x80000000, 0))
    assert both.contains(0) and both.contains(0x80000000) and both.value_count_nans_as_one == 2
    same = evaluate_op(op, [float32] * 2, float32, (0x80000000, 0x80000000))
    assert same.is_exact and same.best == 0x80000000
    one, nan = bits_of(float32, 1.0), 0x7FC00001
    assert not evaluate_op(op, [float32] * 2, float32, (one, nan)).contains(one)
    core = evaluate_op(op, [float32] * 2, float32, (one, nan), "core")
    assert core.contains(one) and core.contains(0xFFC00000) and not core.contains(0)


def test_r21_neg_flips_the_sign_bit_of_a_nan_too():
    answer = evaluate_op(Op.NEG, [float16], float16, (0x7E01,))
    assert answer.best == 0xFE01 and answer.contains(0x7E00)


def test_r16_core_div_holds_its_decomposition():
    r = random.Random(8)
    differ = 0
    for dtype in FLOATS:
        fmt = FORMATS[dtype]
        for _ in range(300):
            a, b = patterns(dtype, r, 2)
            core = evaluate_op(Op.DIV, [dtype] * 2, dtype, (a, b), "core")
            strict = evaluate_canonical(Op.DIV, [dtype] * 2, dtype, a, b)
            listed = evaluate_canonical(Op.MUL, [dtype] * 2, dtype, a, evaluate_canonical(Op.RECIP, [dtype], dtype, b))
            assert core.best == strict and core.contains(listed), (dtype, a, b)
            differ += listed != strict and not fmt.is_nan(strict)
    assert differ > 50


def test_r16_core_sqrt_holds_its_decomposition():
    r = random.Random(9)
    for dtype in FLOATS:
        half = bits_of(dtype, 0.5)
        for a in patterns(dtype, r, 200):
            core = evaluate_op(Op.SQRT, [dtype], dtype, (a,), "core")
            scaled = evaluate_canonical(Op.MUL, [dtype] * 2, dtype, half, evaluate_canonical(Op.LOG2, [dtype], dtype, a))
            assert core.contains(evaluate_canonical(Op.EXP2, [dtype], dtype, scaled)), (dtype, a)
            assert core.contains(evaluate_canonical(Op.SQRT, [dtype], dtype, a))


def test_r16_core_sqrt_is_not_everything():
    core = evaluate_op(Op.SQRT, [float32], float32, (bits_of(float32, 2.0),), "core")
    low, high = (python_number(float32, FORMATS[float32].from_key(k)) for k in core.span)
    assert 1.41420 < low < 1.41422 and 1.41420 < high < 1.41422 and not core.nan


@pytest.mark.parametrize("op", [Op.XOR, Op.OR, Op.AND, Op.MOD, Op.IDIV], ids=lambda o: o.name)
def test_r10_not_on_floats(op):
    with pytest.raises(SpecError, match="R10"):
        evaluate_op(op, [float32] * 2, float32, (0, 0))


@pytest.mark.parametrize("op", [Op.RECIP, Op.EXP2, Op.LOG2, Op.SIN, Op.SQRT], ids=lambda o: o.name)
def test_r10_floats_only(op):
    with pytest.raises(SpecError, match="R10"):
        evaluate_op(op, [int8], int8, (1,))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_r19_subnormals_are_kept(dtype):
    fmt = FORMATS[dtype]
    assert evaluate_canonical(Op.ADD, [dtype] * 2, dtype, 1, 1) == 2
    assert evaluate_canonical(Op.SUB, [dtype] * 2, dtype, fmt.hidden, 1) == fmt.hidden - 1
    half = bits_of(dtype, 0.5)
    assert evaluate_canonical(Op.MUL, [dtype] * 2, dtype, fmt.hidden, half) == fmt.hidden >> 1
    assert evaluate_canonical(Op.MUL, [dtype] * 2, dtype, 1, half) == 0
    assert evaluate_canonical(Op.MUL, [dtype] * 2, dtype, 3, half) == 2
    assert exact_fraction(dtype, 1) == dyadic(1, fmt.unit)


def test_r28_where_keeps_every_bit_and_r14_any_condition():
    for condition, chosen in ((0, 1), (1, 0)):
        answer = evaluate_op(Op.WHERE, [bool_, float32, float32], float32, (condition, 0x7FA00001, 0xFFC12345))
        assert answer.is_exact and answer.best == (0x7FA00001, 0xFFC12345)[chosen]
    nan, minus_zero = 0x7E00, 0x8000
    assert evaluate_op(Op.WHERE, [float16, int8, int8], int8, (nan, 3, 4)).best == 3
    assert evaluate_op(Op.WHERE, [float16, int8, int8], int8, (minus_zero, 3, 4)).best == 4
