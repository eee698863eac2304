"""Every elementwise op of a SELECTED kernel, on edge values, against plain Python arithmetic: claims about any machine.

A test module of a backend imports the claims and says with the fixture `tier` on which machines they are tested.
"""

import itertools
import math
import operator
from fractions import Fraction

import numpy as np
import pytest

from uops.compiler.target import PLAIN_DTYPES
from uops.spec.ir import args as A
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

NATIVE = [d for d in dt.STORABLE if d in PLAIN_DTYPES]
NAN, INF = math.nan, math.inf
FLOATS = (dt.float32, dt.float64)
LAYOUT = {
    dt.float32: (24, -149, 128),
    dt.float64: (53, -1074, 1024),
}  # significant bits, exponent of the least subnormal, of overflow


def fits(x: Fraction, d: DType) -> float:
    """The exact `x` rounded once to `d`, ties to even."""
    bits, least, top = LAYOUT[d]
    if x == 0:
        return 0.0
    exponent = x.numerator.bit_length() - x.denominator.bit_length()  # of the leading bit, or one more
    exponent -= abs(x) < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - bits + 1, least)
    rounded = round(x / unit) * unit  # Python rounds a Fraction half to even
    if abs(rounded) >= Fraction(2) ** top:
        return INF if x > 0 else -INF
    return float(rounded) if rounded else (0.0 if x > 0 else -0.0)


def single(x: float) -> float:
    """A double rounded to float32; innocuous after one operation on float32 operands but fma."""
    return x if math.isnan(x) or math.isinf(x) or x == 0 else fits(Fraction(x), dt.float32)


def wrap(x: int, d: DType) -> int:
    x &= (1 << d.bits) - 1
    return x - (1 << d.bits) if d.is_signed and x >> (d.bits - 1) else x


def integers(d: DType) -> list[int]:
    lo, hi = int(d.min), int(d.max)
    middle = (1 << (d.bits // 2)) + 1
    found = {lo, lo + 1, hi, hi - 1, 0, 1, 2, 3, 7, middle, hi // 3, d.bits - 1, d.bits, d.bits + 1}
    return sorted(found | ({-1, -2, -3, -7, -middle} if lo < 0 else set()))


FINITE = [
    0.0,
    1.0,
    0.5,
    1.5,
    2.5,
    3.0,
    7.0,
    0.1,
    1e-3,
    1e3,
    8388609.0,
    16777217.0,
    1e10,
    3.4028234663852886e38,
    2.0**-126,
    2.0**-149,
    2.0**-140,
]
WIDE = [4503599627370497.5, 9007199254740993.0, 1.7976931348623157e308, 2.2250738585072014e-308, 5e-324, 1e-310]


def reals(d: DType) -> list[float]:
    finite = [single(x) for x in FINITE] if d is dt.float32 else FINITE + WIDE
    return [*finite, *(-x for x in finite), INF, -INF, NAN]


def values(d: DType) -> list[object]:
    return [False, True] if d is dt.bool_ else list(reals(d) if d.is_float else integers(d))


def pairs(d: DType) -> list[tuple[object, ...]]:
    return list(itertools.product(values(d), repeat=2))


def same(a: object, b: object, *, zero_sign: bool = True) -> bool:
    """Equal, where all NaNs are one (R20)."""
    if isinstance(a, float) and isinstance(b, float):
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        return a == b and (not zero_sign or a != 0 or math.copysign(1, a) == math.copysign(1, b))
    return a == b


def check(got, expected, rows, *, zero_sign: bool = True) -> None:
    wrong = [(r, e, g) for r, e, g in zip(rows, expected, got.tolist(), strict=True) if not same(e, g, zero_sign=zero_sign)]
    assert not wrong, f"{len(wrong)} of {len(rows)} wrong; (operands, expected, got): {wrong[:5]}"


# What the rulings say, in Python.


def floor_div(a: int, b: int) -> int:
    return a // b if b else 0


def floor_mod(a: int, b: int) -> int:
    return a - b * floor_div(a, b)


def ieee_div(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b) or (a == 0 and b == 0) or (math.isinf(a) and math.isinf(b)):
        return NAN
    sign = math.copysign(1, a) * math.copysign(1, b)
    return math.copysign(INF, sign) if b == 0 or math.isinf(a) else math.copysign(a / b, sign)


def ieee_sqrt(a: float) -> float:
    return NAN if a < 0 else a if math.isinf(a) or a == 0 else math.sqrt(a)


def ieee_max(a: float, b: float) -> float:
    return NAN if math.isnan(a) or math.isnan(b) else max(a, b)


def ieee_trunc(a: float) -> float:
    return a if math.isnan(a) or math.isinf(a) else math.copysign(float(math.trunc(a)), a)


def ieee_fma(a: float, b: float, c: float, d: DType) -> float:
    if not all(map(math.isfinite, (a, b, c))):
        return a * b + c if not (math.isfinite(a) and math.isfinite(b)) else c  # a finite product cannot overflow before c is added
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return math.copysign(0.0, a) * math.copysign(1.0, b) + c if a == 0 or b == 0 else 0.0
    return fits(exact, d)


INTEGER = {Op.ADD: operator.add, Op.SUB: operator.sub, Op.MUL: operator.mul, Op.MAX: max, Op.IDIV: floor_div, Op.MOD: floor_mod,
           Op.AND: operator.and_, Op.OR: operator.or_, Op.XOR: operator.xor}  # fmt: skip
BOOLEAN = {Op.ADD: operator.or_, Op.MUL: operator.and_, Op.MAX: operator.or_,
           Op.AND: operator.and_, Op.OR: operator.or_, Op.XOR: operator.xor}  # fmt: skip
REAL = {Op.ADD: operator.add, Op.SUB: operator.sub, Op.MUL: operator.mul, Op.DIV: ieee_div, Op.MAX: ieee_max}
COMPARE = {
    Op.CMPLT: operator.lt,
    Op.CMPGT: operator.gt,
    Op.CMPLE: operator.le,
    Op.CMPGE: operator.ge,
    Op.CMPEQ: operator.eq,
    Op.CMPNE: operator.ne,
}
UNARY_REAL = {Op.NEG: operator.neg, Op.RECIP: lambda a: ieee_div(1.0, a), Op.SQRT: ieee_sqrt, Op.TRUNC: ieee_trunc}


def ids(x: object) -> str | None:
    return x.name if isinstance(x, (Op, DType)) else None


def alu(op: Op, arg: object = None):
    return lambda *x: UOp(op, x, arg)


@pytest.mark.parametrize("d", dt.INTS, ids=ids)
@pytest.mark.parametrize("op", INTEGER, ids=ids)
def test_integer_binary_R01_R02_R03_R04_R05(kernels, tier, op: Op, d: DType) -> None:
    rows = pairs(d)
    got = kernels.apply(alu(op), d, (d, d), list(zip(*rows)), tier)
    check(got, [wrap(INTEGER[op](a, b), d) for a, b in rows], rows)


@pytest.mark.parametrize("op", BOOLEAN, ids=ids)
def test_bool_binary_R09(kernels, tier, op: Op) -> None:
    rows = pairs(dt.bool_)
    got = kernels.apply(alu(op), dt.bool_, (dt.bool_, dt.bool_), list(zip(*rows)), tier)
    check(got, [BOOLEAN[op](a, b) for a, b in rows], rows)


@pytest.mark.parametrize("d", FLOATS, ids=ids)
@pytest.mark.parametrize("op", REAL, ids=ids)
def test_float_binary_R11_R16_R19(kernels, tier, op: Op, d: DType) -> None:
    rows = pairs(d)
    got = kernels.apply(alu(op), d, (d, d), list(zip(*rows)), tier)
    expected = [REAL[op](a, b) for a, b in rows]
    check(got, [single(x) for x in expected] if d is dt.float32 else expected, rows, zero_sign=op is not Op.MAX)


@pytest.mark.parametrize("d", NATIVE, ids=ids)
@pytest.mark.parametrize("op", COMPARE, ids=ids)
def test_compare_R12_R13(kernels, tier, op: Op, d: DType) -> None:
    rows = pairs(d)
    got = kernels.apply(alu(op), dt.bool_, (d, d), list(zip(*rows)), tier)
    check(got, [COMPARE[op](a, b) for a, b in rows], rows)


@pytest.mark.parametrize("d", FLOATS, ids=ids)
@pytest.mark.parametrize("op", UNARY_REAL, ids=ids)
def test_float_unary_R16_R21(kernels, tier, op: Op, d: DType) -> None:
    rows = values(d)
    got = kernels.apply(alu(op), d, (d,), [rows], tier)
    expected = [UNARY_REAL[op](a) for a in rows]
    check(got, [single(x) for x in expected] if d is dt.float32 else expected, rows)


@pytest.mark.parametrize("d", dt.INTS, ids=ids)
def test_integer_unary_R10_R21(kernels, tier, d: DType) -> None:
    rows = values(d)
    check(kernels.apply(alu(Op.NEG), d, (d,), [rows], tier), [wrap(-a, d) for a in rows], rows)
    check(kernels.apply(alu(Op.TRUNC), d, (d,), [rows], tier), rows, rows)


def test_not_R09(kernels, tier) -> None:
    rows = [False, True]
    check(kernels.apply(alu(Op.NOT), dt.bool_, (dt.bool_,), [rows], tier), [True, False], rows)


@pytest.mark.parametrize("d", FLOATS, ids=ids)
def test_float_neg_flips_the_sign_of_a_nan_and_keeps_its_payload_R21(kernels, tier, d: DType) -> None:
    unsigned = dt.uint32 if d is dt.float32 else dt.uint64
    top = 1 << (d.bits - 1)
    words = [int(np.array(NAN, d.name).view(unsigned.name)) | 0x2A, int(np.array(INF, d.name).view(unsigned.name)) + 1, 0, top]
    through = lambda x: B.bitcast(UOp(Op.NEG, (B.bitcast(x, d),)), unsigned)  # noqa: E731
    got = kernels.apply(through, unsigned, (unsigned,), [words], tier)
    check(got, [w ^ top for w in words], words)


@pytest.mark.parametrize("d", FLOATS, ids=ids)
def test_mulacc_rounds_once_R16(kernels, tier, d: DType) -> None:
    few = [0.0, -0.0, 1.0, -1.5, 0.1, 3.0, 1e10, 2.0**-126, 2.0**-149, 1 + 2.0**-23, 1 - 2.0**-24, INF, -INF, NAN]
    few += [2.0**127] if d is dt.float32 else [1 + 2.0**-52, 1e308, 5e-324, 1e-310]
    few = [single(x) for x in few] if d is dt.float32 else few
    rows = list(itertools.product(few, repeat=3))
    got = kernels.apply(alu(Op.MULACC), d, (d, d, d), list(zip(*rows)), tier)
    check(got, [ieee_fma(a, b, c, d) for a, b, c in rows], rows)


@pytest.mark.parametrize("d", [dt.bool_, *dt.INTS], ids=ids)
def test_mulacc_of_integers_and_bool_R05_R09(kernels, tier, d: DType) -> None:
    rows = (
        list(itertools.product(values(d)[::3] or [0], repeat=3))
        if d is not dt.bool_
        else list(itertools.product([False, True], repeat=3))
    )
    got = kernels.apply(alu(Op.MULACC), d, (d, d, d), list(zip(*rows)), tier)
    check(got, [(a and b) or c if d is dt.bool_ else wrap(a * b + c, d) for a, b, c in rows], rows)


@pytest.mark.parametrize("d", NATIVE, ids=ids)
def test_where_R14(kernels, tier, d: DType) -> None:
    rows = list(itertools.product([False, True], values(d), values(d)[::-1][:3]))
    got = kernels.apply(alu(Op.WHERE), d, (dt.bool_, d, d), list(zip(*rows)), tier)
    check(got, [a if p else b for p, a, b in rows], rows)


def shifted(op: Op, a: int, n: int, d: DType, count: DType) -> int:
    n &= (1 << count.bits) - 1
    if op is Op.SHL:
        return wrap(a << n, d) if n < d.bits else 0
    return a >> min(n, d.bits)  # Python fills with the sign


@pytest.mark.parametrize("count", dt.INTS, ids=ids)
@pytest.mark.parametrize("d", dt.INTS, ids=ids)
@pytest.mark.parametrize("op", [Op.SHL, Op.SHR], ids=ids)
def test_shift_R06_R07(kernels, tier, op: Op, d: DType, count: DType) -> None:
    counts = sorted({wrap(n, count) for n in (*integers(count), 8, 16, 31, 32, 33, 63, 64, 65, 255)})
    rows = list(itertools.product(integers(d), counts))
    got = kernels.apply(alu(op), d, (d, count), list(zip(*rows)), tier)
    check(got, [shifted(op, a, n, d, count) for a, n in rows], rows)


@pytest.mark.parametrize("d", [dt.int8, dt.uint8, dt.int32, dt.int64, dt.uint64], ids=ids)
@pytest.mark.parametrize("op", [Op.IDIV, Op.MOD, Op.SHL, Op.SHR], ids=ids)
def test_a_constant_second_operand_whose_guard_is_left_out(kernels, tier, op: Op, d: DType) -> None:
    rows = integers(d)
    for c in integers(d):
        got = kernels.apply(lambda x, c=c: UOp(op, (x, B.const(c, d))), d, (d,), [rows], tier)
        exact = (lambda a, c=c: shifted(op, a, c, d, d)) if op in (Op.SHL, Op.SHR) else (lambda a, c=c: wrap(INTEGER[op](a, c), d))
        check(got, [exact(a) for a in rows], [(a, c) for a in rows])


@pytest.mark.parametrize("op", [Op.IDIV, Op.MOD], ids=ids)
@pytest.mark.parametrize("signs", [(-1, -1), (-1, 1), (1, -1), (1, 1)], ids=str)
def test_division_of_operands_whose_signs_are_known(kernels, tier, op: Op, signs: tuple[int, int]) -> None:
    d, rows = dt.int16, [(a, b) for a in (0, 1, 5, 100, 127) for b in (1, 2, 7, 127)]

    def make(x: UOp, y: UOp) -> UOp:  # bounds from an int8 Cast, then moved to one side of zero
        a, b = (UOp(Op.CAST, (v,), A.CastArg(dt.int16)) for v in (x, y))
        a, b = (B.mul(v, B.const(s, d)) for v, s in zip((B.and_(a, B.const(127, d)), B.maximum(b, B.const(1, d))), signs))
        assert (a.min_max or (0, 0))[signs[0] > 0] == (127 if signs[0] > 0 else -127)
        return UOp(op, (a, b))

    got = kernels.apply(make, d, (dt.int8, dt.int8), list(zip(*rows)), tier)
    check(got, [INTEGER[op](a * signs[0], b * signs[1]) for a, b in rows], rows)


def cast_value(x, source: DType, target: DType):
    if target is dt.bool_:
        return x != 0
    if target.is_float:
        if source.is_float:
            return x if not math.isfinite(x) or x == 0 else fits(Fraction(x), target)
        return fits(Fraction(int(x)), target)
    if not source.is_float:
        return wrap(int(x), target)
    if math.isnan(x):
        return 0
    return int(target.max if x > 0 else target.min) if math.isinf(x) else min(max(math.trunc(x), int(target.min)), int(target.max))


def cast_rows(source: DType) -> list[object]:
    if source is dt.bool_:
        return [False, True]
    powers = [s * (1 << k) for k in (7, 8, 15, 16, 24, 25, 31, 32, 53, 54, 62, 63, 64) for s in (1, -1)]
    if source.is_float:
        step = lambda x: (math.nextafter(x, INF), x, math.nextafter(x, -INF))  # noqa: E731
        near = (
            [y for p in powers for y in step(float(p))]
            if source is dt.float64
            else [float(np.nextafter(np.float32(p), np.float32(t))) for p in powers for t in (INF, p, -INF)]
        )
        halves = [p + h for p in (0, 1, 2, 126, 127, 254, 255, 32767) for h in (0.25, 0.5, 0.75)]
        ties = [1 + 2.0**-24, 1 + 2.0**-24 + 2.0**-52, 1 + 3 * 2.0**-24, 2.0**-150, 2.0**-150 * (1 + 2.0**-52), 3 * 2.0**-150,
                2.0**-151, 3.4028235677973366e38, 3.4028235677973362e38, 1e300, 2.0**-127 + 2.0**-150]  # fmt: skip
        found = [*reals(source), *near, *halves, *(-h for h in halves)]
        return [single(x) for x in found] if source is dt.float32 else [*found, *ties, *(-t for t in ties)]
    lo, hi = int(source.min), int(source.max)
    ties = [
        (1 << top) + low
        for top in range(24, 64)
        for low in ((1 << top - 24) - 1, 1 << top - 24, (1 << top - 24) + 1, 3 << top - 24)
    ]
    candidates = [*integers(source), *powers, *(p + 1 for p in powers), *(p - 1 for p in powers), *ties, *(-t for t in ties)]
    candidates += [t + (1 << 63) for t in ties]
    return sorted({x for x in candidates if lo <= x <= hi})


@pytest.mark.parametrize("target", NATIVE, ids=ids)
@pytest.mark.parametrize("source", NATIVE, ids=ids)
def test_cast_R15(kernels, tier, source: DType, target: DType) -> None:
    rows = cast_rows(source)
    got = kernels.apply(alu(Op.CAST, A.CastArg(target)), target, (source,), [rows], tier)
    check(got, [cast_value(x, source, target) for x in rows], rows)


@pytest.mark.parametrize(
    ("source", "target"), [(s, t) for s in NATIVE for t in NATIVE if s.bits == t.bits and t is not dt.bool_], ids=ids
)
def test_bitcast_keeps_every_bit_R28_R46(kernels, tier, source: DType, target: DType) -> None:
    words = [
        0,
        1,
        (1 << (source.bits - 1)) + 1,
        (1 << source.bits) - 1,
        0x7F800001 & ((1 << source.bits) - 1),
        0x7FF0000000000001 & ((1 << source.bits) - 1),
    ]
    raw = np.array([w & 1 if source is dt.bool_ else w for w in words], dtype=f"u{source.itemsize}")
    result = np.zeros(len(raw), dtype=target.name)
    kernels.execute(
        kernels.elementwise(len(raw), target, (source,), alu(Op.BITCAST, A.BitcastArg(target))), [result, raw], tier=tier
    )
    assert result.view(raw.dtype).tolist() == raw.tolist()


@pytest.mark.parametrize("d", FLOATS, ids=ids)
@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, 0.1, INF, -INF, NAN, 2.0**-149, -(2.0**-126)], ids=str)
def test_a_float_constant_has_exactly_its_bits_R23(kernels, tier, d: DType, value: float) -> None:
    got = kernels.apply(lambda x: UOp(Op.WHERE, (B.ne(x, x), x, B.const(value, d))), d, (d,), [[1.0]], tier)
    expected = np.array([B.const(value, d).const], dtype=d.name)
    assert got.tobytes() == expected.tobytes() or (math.isnan(value) and math.isnan(got[0]))


#: What a toolchain might compute by itself where the operands are constants, in plain Python: op -> (dtype, a, b) -> value.
CONSTANT = {
    Op.TRUNC: lambda d, a, b: ieee_trunc(a),
    Op.SQRT: lambda d, a, b: ieee_sqrt(a),
    Op.RECIP: lambda d, a, b: ieee_div(1.0, a),
    Op.DIV: lambda d, a, b: ieee_div(a, b),
    Op.MUL: lambda d, a, b: a * b,
    Op.MAX: lambda d, a, b: ieee_max(a, b),
    Op.MULACC: lambda d, a, b: ieee_fma(a, b, 1.0, d),
    Op.CAST: lambda d, a, b: cast_value(a, d, dt.int32),
}
ARITY = {Op.DIV: 2, Op.MUL: 2, Op.MAX: 2, Op.MULACC: 3}


@pytest.mark.parametrize("d", FLOATS, ids=ids)
@pytest.mark.parametrize("op", CONSTANT, ids=ids)
def test_an_op_on_constants_is_no_less_defined_R16(kernels, tier, op: Op, d: DType) -> None:
    """p0[k] = op(constant k, constant k + 1): a toolchain that folds must fold right, a NaN and an overflow too."""
    found = reals(d)
    rows = list(zip(found, found[1:] + found[:1]))
    out, arg = (dt.int32, A.CastArg(dt.int32)) if op is Op.CAST else (d, None)
    stores = []
    for k, (a, b) in enumerate(rows):
        operands = [B.const(x, d) for x in (a, b, 1.0)][: ARITY.get(op, 1)]
        stores.append(B.store(B.at(B.param(0, (len(rows),), out), k), UOp(op, tuple(operands), arg)))
    got = np.zeros(len(rows), out.name)
    kernels.execute(kernels.linear(UOp(Op.GROUP, tuple(stores))), [got], tier=tier)
    expected = [CONSTANT[op](d, a, b) for a, b in rows]
    check(got, [single(x) for x in expected] if d is dt.float32 and out is d else expected, rows, zero_sign=op is not Op.MAX)
