"""Every elementwise kernel against Python integers and fractions: exhaustive on 8 bits, edge values elsewhere."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from uops.interp import run
from uops.interp.ops.elementwise import KERNELS
from uops.interp.ops.mulacc import make_mulacc_via_float64
from uops.interp.ops.rounding import CASTS
from uops.interp.tensor.storage import BITS, NUMPY, to_index_array
from uops.spec.errors import Trap, Unsupported
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ALU, Op


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def every(d: dt.DType) -> np.ndarray:
    return np.arange(1 << d.bits, dtype=f"u{d.itemsize}").view(NUMPY[d])


INT_EDGES = [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 100, 2**62]


def integers(d: dt.DType) -> np.ndarray:
    if d.bits == 8:
        return every(d)
    points = {v for e in INT_EDGES for v in (e, -e, d.min + e, d.max - e)}
    return np.array(sorted(v for v in points if d.min <= v <= d.max), NUMPY[d])


FLOAT_EDGES = [
    0.0,
    5e-324,
    1e-45,
    2.0**-149,
    2.0**-133,
    2.0**-126,
    1.5 * 2.0**-130,
    2.0**-24,
    2.0**-16,
    0.3,
    0.75,
    1.0,
    1.0625,
    3.0,
    7.0,
]
FLOAT_EDGES += [
    448.0,
    57344.0,
    65504.0,
    3.3895314e38,
    3.4028235e38,
    1.7976931348623157e308,
    math.inf,
    math.nan,
    1.0 + 2.0**-10,
    1e200,
]


def floats(d: dt.DType) -> np.ndarray:
    if d.bits == 8:
        return every(d)
    x = np.array([s * v for v in FLOAT_EDGES for s in (1, -1)])
    x = np.concatenate([x, np.random.default_rng(7).normal(size=40) * 10.0 ** np.random.default_rng(8).integers(-40, 38, 40)])
    return CASTS[dt.float64, d](x)


def pairs(x: np.ndarray, limit: int = 256) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.meshgrid(x, x, indexing="ij")
    a, b = a.ravel(), b.ravel()
    if len(a) > limit * 64:
        keep = np.random.default_rng(len(a)).permutation(len(a))[: limit * 64]
        a, b = a[keep], b[keep]
    return a, b


def wrap(d: dt.DType, v: int) -> int:
    v &= (1 << d.bits) - 1
    return v - (1 << d.bits) if d.is_signed and v >> (d.bits - 1) else v


def shl(d, a, b):
    b %= 1 << d.bits
    return 0 if b >= d.bits else a << b


def shr(d, a, b):
    b %= 1 << d.bits
    return (-1 if a < 0 else 0) if b >= d.bits else a >> b


# fmt: off
INTEGER = {
    Op.ADD: ("R05", lambda d, a, b: a + b), Op.SUB: ("R05", lambda d, a, b: a - b), Op.MUL: ("R05", lambda d, a, b: a * b),
    Op.MAX: ("table", lambda d, a, b: max(a, b)),
    Op.IDIV: ("R01 R03 R04", lambda d, a, b: a // b if b else 0), Op.MOD: ("R02 R03 R04", lambda d, a, b: a % b if b else a),
    Op.XOR: ("table", lambda d, a, b: a ^ b), Op.OR: ("table", lambda d, a, b: a | b), Op.AND: ("table", lambda d, a, b: a & b),
    Op.SHL: ("R06", shl), Op.SHR: ("R06 R07", shr),
}
COMPARE = {
    Op.CMPLT: lambda a, b: a < b, Op.CMPNE: lambda a, b: a != b, Op.CMPGT: lambda a, b: a > b,
    Op.CMPGE: lambda a, b: a >= b, Op.CMPLE: lambda a, b: a <= b, Op.CMPEQ: lambda a, b: a == b,
}
# fmt: on


def check(op: Op, d: dt.DType, got: np.ndarray, want: list, a, b=None) -> None:
    assert got.dtype == NUMPY[d], f"{op} on {d} gives {got.dtype}"
    for k, (g, w) in enumerate(zip(got.tolist(), want, strict=True)):
        if d.is_float:
            g, w = float(g), float(w)
            same = (g == w and math.copysign(1, g) == math.copysign(1, w)) or (g != g and w != w)
        else:
            same = g == w
        assert same, f"{op} on {d}: {a[k]!r}, {b[k] if b is not None else ''!r} gives {g!r}, not {w!r}"


@pytest.mark.parametrize("op", INTEGER, ids=lambda op: f"{op.name} {INTEGER[op][0]}")
@pytest.mark.parametrize("d", dt.INTS, ids=str)
def test_integer_ops(op, d):
    a, b = pairs(integers(d), 1024)
    meaning = INTEGER[op][1]
    check(op, d, np.asarray(KERNELS[op][d](a, b)), [wrap(d, meaning(d, x, y)) for x, y in zip(a.tolist(), b.tolist())], a, b)


@pytest.mark.parametrize("op", [Op.SHL, Op.SHR])
@pytest.mark.parametrize("d", dt.INTS, ids=str)
def test_r06_r25_shift_counts_of_any_integer_dtype(op, d):
    values = np.array([wrap(d, v) for v in (1, -1, 77, 1 << (d.bits - 1))], NUMPY[d])
    for c in (*dt.INTS, dt.index):
        counts = np.array([v for v in (0, 1, 7, 8, 31, 63, 64, 127, -1, -128) if c.min <= v <= c.max], NUMPY[c])
        a, b = np.repeat(values, len(counts)), np.tile(counts, len(values))
        unsigned = [y % (1 << (c.bits or 200)) for y in b.tolist()]
        beyond = [0 if op is Op.SHL else -1 if x < 0 else 0 for x in a.tolist()]
        shifted = [x << y if op is Op.SHL else x >> y for x, y in zip(a.tolist(), [min(u, 70) for u in unsigned])]
        want = [wrap(d, s) if u < d.bits else z for s, u, z in zip(shifted, unsigned, beyond)]
        check(op, d, KERNELS[op][d](a, b), want, a, b)
    wide = to_index_array([2**70, -(2**70)])
    assert KERNELS[op][d](values[:2], wide).tolist() == [0, 0 if op is Op.SHL or values[1] > 0 else -1]


@pytest.mark.parametrize("d", dt.INTS, ids=str)
def test_r05_r21_integer_unary_and_mulacc(d):
    x = integers(d)
    check(Op.NEG, d, KERNELS[Op.NEG][d](x), [wrap(d, -v) for v in x.tolist()], x)
    check(Op.TRUNC, d, KERNELS[Op.TRUNC][d](x), x.tolist(), x)
    a, b = pairs(integers(d)[::5])
    c = a[::-1]
    want = [wrap(d, p * q + r) for p, q, r in zip(a.tolist(), b.tolist(), c.tolist())]
    check(Op.MULACC, d, KERNELS[Op.MULACC][d](a, b, c), want, a, b)


@pytest.mark.parametrize("op", COMPARE)
@pytest.mark.parametrize("d", dt.STORABLE, ids=str)
def test_r12_r13_comparisons(op, d):
    values = np.array([False, True]) if d is dt.bool_ else floats(d) if d.is_float else integers(d)
    a, b = pairs(values, 128)
    number = float if d.is_float else int
    want = [COMPARE[op](number(x), number(y)) for x, y in zip(a, b)]
    check(op, dt.bool_, np.asarray(KERNELS[op][d](a, b)), want, a, b)


def test_r09_bool_ops():
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    rows = {Op.ADD: a | b, Op.MUL: a & b, Op.MAX: a | b, Op.XOR: a ^ b, Op.AND: a & b, Op.OR: a | b}
    for op, want in rows.items():
        check(op, dt.bool_, KERNELS[op][dt.bool_](a, b), want.tolist(), a, b)
    check(Op.NOT, dt.bool_, KERNELS[Op.NOT][dt.bool_](a), (~a).tolist(), a)
    for op in (Op.NEG, Op.SHL, Op.SHR, Op.IDIV, Op.MOD, Op.RECIP, Op.SUB):
        assert dt.bool_ not in KERNELS[op]
    assert set(KERNELS[Op.NOT]) == {dt.bool_}


def test_r10_dtype_legality():
    for op in (Op.RECIP, Op.EXP2, Op.LOG2, Op.SIN, Op.SQRT, Op.DIV, Op.POW):
        assert set(KERNELS[op]) == set(dt.FLOATS), op
    for op in (Op.IDIV, Op.MOD, Op.SHL, Op.SHR):
        assert set(KERNELS[op]) == {*dt.INTS, dt.index}, op
    for op in (Op.XOR, Op.OR, Op.AND):
        assert set(KERNELS[op]) == {dt.bool_, *dt.INTS, dt.index}, op
    assert {*KERNELS, Op.CAST, Op.MIN} == ALU


# Floats


def exactly(op: Op, a: float, b: float):
    """The exact result as a Fraction, or a float where it is a zero, an infinity or NaN."""
    if op is Op.MAX:
        return math.nan if a != a or b != b else max(a, b)
    if not (math.isfinite(a) and math.isfinite(b)) or (op is Op.DIV and b == 0):
        if op is Op.DIV:
            if b == 0:
                return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1, b)
            return a / b
        return {Op.ADD: a + b, Op.SUB: a - b, Op.MUL: a * b}[op]
    x, y = Fraction(a), Fraction(b)
    exact = {Op.ADD: x + y, Op.SUB: x - y, Op.MUL: x * y, Op.DIV: x / y if y else None}[op]
    if exact == 0:
        return (
            {Op.ADD: a + b, Op.SUB: a - b}[op]
            if op in (Op.ADD, Op.SUB)
            else math.copysign(0.0, math.copysign(1, a) * math.copysign(1, b))
        )
    return exact


def rounded(d: dt.DType, exact) -> float:
    if isinstance(exact, float):
        return math.nan if math.isinf(exact) and not d.has_inf else exact
    size, sign = abs(exact), -1.0 if exact < 0 else 1.0
    e = max(size.numerator.bit_length() - size.denominator.bit_length(), 1 - d.bias)
    if size < Fraction(2) ** e:
        e = max(e - 1, 1 - d.bias)
    unit = Fraction(2) ** (e - d.man_bits)
    value = round(size / unit) * unit
    if value > Fraction(d.max_finite):
        return sign * math.inf if d.has_inf else math.nan
    return sign * float(value)


@pytest.mark.parametrize("op", [Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MAX])
@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
def test_r11_r15_r16_r19_float_ops_round_once(op, d):
    a, b = pairs(floats(d), 160)
    got = np.asarray(KERNELS[op][d](a, b))
    if op is Op.MAX:  # either zero (R11)
        got = np.where(got.astype(np.float64) == 0, NUMPY[d].type(0), got)
    want = [rounded(d, exactly(op, float(x), float(y))) for x, y in zip(a, b)]
    check(op, d, got, [0.0 if op is Op.MAX and w == 0 else w for w in want], a, b)


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
def test_r16_recip_sqrt_trunc_neg(d):
    x = every(d) if d.bits <= 16 and d is not dt.float16 else floats(d)
    if len(x) > 5000:
        x = x[::13]
    values = [float(v) for v in x]
    check(Op.RECIP, d, KERNELS[Op.RECIP][d](x), [rounded(d, exactly(Op.DIV, 1.0, v)) for v in values], x)
    whole = [float(math.trunc(v)) if math.isfinite(v) else v for v in values]
    check(Op.TRUNC, d, KERNELS[Op.TRUNC][d](x), [math.copysign(w, v) for w, v in zip(whole, values)], x)
    assert ((KERNELS[Op.NEG][d](x).view(BITS[d]) ^ x.view(BITS[d])) == 1 << (d.bits - 1)).all(), "R21: only the sign bit changes"
    root = KERNELS[Op.SQRT][d](x)
    for v, r in zip(values, [float(r) for r in root]):
        if v != v or v < 0:
            assert r != r
        elif v in (0.0, math.inf):
            assert r == v
            assert math.copysign(1, r) == math.copysign(1, v)
        else:
            half = (
                Fraction(float(np.spacing(NUMPY[d].type(r)))) / 2 if d in (dt.float32, dt.float64, dt.float16) else _half_ulp(d, r)
            )
            assert (Fraction(r) - half) ** 2 <= Fraction(v) <= (Fraction(r) + half) ** 2, (v, r)


def _half_ulp(d: dt.DType, r: float) -> Fraction:
    return Fraction(2) ** (max(math.frexp(r)[1] - 1, 1 - d.bias) - d.man_bits - 1)


@pytest.mark.parametrize("d", dt.FLOATS, ids=str)
def test_r16_mulacc_rounds_once(d):
    rng = np.random.default_rng(11)
    x = floats(d)
    a, b, c = (x[rng.integers(0, len(x), 6000)] for _ in range(3))
    near = CASTS[dt.float64, d](-(a.astype(np.float64) * b.astype(np.float64)))  # cancels the product but for its rounding
    c[:2000] = near[:2000]
    want = []
    for p, q, r in zip(a, b, c):
        p, q, r = float(p), float(q), float(r)
        if not (math.isfinite(p) and math.isfinite(q) and math.isfinite(r)):
            want.append(rounded(d, p * q + r if math.isfinite(r) or not (math.isfinite(p) and math.isfinite(q)) else r))
            continue
        exact = Fraction(p) * Fraction(q) + Fraction(r)
        zero = math.copysign(0.0, math.copysign(1, p) * math.copysign(1, q)) + r if p == 0 or q == 0 else 0.0
        want.append(rounded(d, exact if exact else zero))
    check(Op.MULACC, d, np.asarray(KERNELS[Op.MULACC][d](a, b, c)), want, a, b)


def test_r16_mulacc_midpoint_decided_far_below():
    """The product is a midpoint of the target and c only breaks the tie."""
    for d in dt.FLOATS:
        one = NUMPY[d].type(1 + 2.0**-d.man_bits)
        a, b = np.array([one]), CASTS[dt.float64, d](np.array([1 + 0.5]))
        for tiny in (2.0 ** (1 - d.bias - d.man_bits), -(2.0 ** (1 - d.bias - d.man_bits))):
            exact = Fraction(float(one)) * Fraction(1.5) + Fraction(tiny)
            got = KERNELS[Op.MULACC][d](a, b, np.array([tiny]).astype(NUMPY[d]))
            assert float(got[0]) == rounded(d, exact), d
    x = np.array([1 + 2.0**-52])
    assert KERNELS[Op.MULACC][dt.float64](x, x, np.array([-1 - 2.0**-51]))[0] == 2.0**-104
    assert KERNELS[Op.MULACC][dt.float64](np.array(1e200), np.array(1e200), np.array(-np.inf)) == -np.inf
    assert KERNELS[Op.MULACC][dt.float64](np.array(5e-324), np.array(0.5), np.array(5e-324)) == 1e-323


def test_r14_where_condition_of_any_dtype():
    a, b = np.array([1, 2, 3, 4], np.int8), np.array([5, 6, 7, 8], np.int8)
    for d in dt.STORABLE:
        p = np.array([0, 1, 0, 1]).astype(NUMPY[d])
        if d.is_float:
            p[1], p[2] = NUMPY[d].type(np.nan), NUMPY[d].type(-0.0)
        assert KERNELS[Op.WHERE][d](p, a, b).tolist() == [5, 2, 7, 4], d
    assert KERNELS[Op.WHERE][dt.index](to_index_array([0, 2**80, 0, -1]), a, b).tolist() == [5, 2, 7, 4]


def test_r28_where_keeps_nan_payloads():
    a = np.array([0x7F800001, 0xFFC12345], np.uint32).view(np.float32)
    got = KERNELS[Op.WHERE][dt.bool_](np.array([True, False]), a, a[::-1])
    assert got.view(np.uint32).tolist() == [0x7F800001, 0x7F800001]


def test_r22_threefry_vectors():
    """Random123's known answers for threefry2x32 with 20 rounds: (counter, key, result), words low first."""
    cases = [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ]
    join = [np.array([lo | hi << 32 for lo, hi in column], np.uint64) for column in zip(*cases)]
    assert KERNELS[Op.THREEFRY][dt.uint64](join[0], join[1]).tolist() == join[2].tolist()
    assert int(KERNELS[Op.THREEFRY][dt.uint64](join[0][1], join[1][1])) == int(join[2][1])


# Index


WIDE = [0, 1, -1, 7, -7, 2**31, 2**62, -(2**63), 2**63 - 1, 2**63, -(2**64), 2**100 + 3, -(2**100)]


@pytest.mark.parametrize("op", [*INTEGER, *COMPARE])
def test_r08_r29_index_is_unbounded(op):
    for values in (WIDE, WIDE[:9], WIDE[:6]):
        xs, ys = [x for x in values for _ in values], values * len(values)
        if op in (Op.SHL, Op.SHR):
            ys = [abs(y) % 130 for y in ys]
        a, b = to_index_array(xs), to_index_array(ys)
        if op in COMPARE:
            want = [COMPARE[op](x, y) for x, y in zip(xs, ys)]
        elif op in (Op.SHL, Op.SHR):
            want = [x << y if op is Op.SHL else x >> y for x, y in zip(xs, ys)]
        else:
            want = [INTEGER[op][1](None, x, y) for x, y in zip(xs, ys)]
        got = np.asarray(KERNELS[op][dt.index](a, b))
        assert got.tolist() == want
        if op not in COMPARE:
            assert got.dtype == (np.int64 if all(-(2**63) <= w < 2**63 for w in want) else object)


def test_r16_float64_mulacc_of_few_and_of_many_elements_has_the_same_bits():
    """Few elements go through Python's integers, many through exact pairs."""
    edges = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        np.inf,
        -np.inf,
        np.nan,
        5e-324,
        -5e-324,
        2.0**-1022,
        2.0**-537,
        2.0**-538,
        1 + 2.0**-52,
        1.7e308,
    ]
    a, b, c = (x.ravel() for x in np.meshgrid(edges, edges, edges))
    mulacc = KERNELS[Op.MULACC][dt.float64]
    many = mulacc(a, b, c)
    for k in range(0, a.size, 7):
        few = mulacc(a[k : k + 7], b[k : k + 7], c[k : k + 7])
        assert np.array_equal(few, many[k : k + 7], equal_nan=True), k
        numbers = ~np.isnan(few)
        assert np.array_equal(np.signbit(few[numbers]), np.signbit(many[k : k + 7][numbers])), k


@pytest.mark.parametrize("d", [dt.fp8e4m3, dt.fp8e5m2], ids=str)
def test_r16_fp8_mulacc_is_the_one_that_sums_exact_pairs(d):
    """Exhaustive in b and c, for factors a of every exponent."""
    exact = make_mulacc_via_float64(d)
    b, c = every(d)[:, None], every(d)[None, :]
    for a in every(d)[:: 1 << d.man_bits]:
        got, want = KERNELS[Op.MULACC][d](np.array(a), b, c), exact(np.array(a), b, c)
        nan = np.isnan(want.astype(np.float32))
        assert np.array_equal(np.isnan(got.astype(np.float32)), nan)
        assert np.array_equal(got.view(np.uint8)[~nan], want.view(np.uint8)[~nan]), a


def test_r08_index_unary_and_mulacc():
    a = to_index_array(WIDE)
    assert np.asarray(KERNELS[Op.NEG][dt.index](a)).tolist() == [-x for x in WIDE]
    assert np.asarray(KERNELS[Op.NEG][dt.index](np.array(-(2**63)))).tolist() == 2**63
    assert KERNELS[Op.TRUNC][dt.index](a) is a
    assert np.asarray(KERNELS[Op.MULACC][dt.index](a, a, a)).tolist() == [x * x + x for x in WIDE]


@pytest.mark.parametrize("op", [Op.SHL, Op.SHR])
@pytest.mark.parametrize("d", [dt.uint8, dt.int32, dt.int64], ids=str)
@pytest.mark.parametrize("lanes", [False, True])
def test_r81_negative_index_count_of_a_machine_shift_traps(op, d, lanes):
    x, out, i = B.param(0, (4,), d), B.buffer(4, d, unique=1), B.range_(4, 1)
    given = {"p0": np.full(4, 5, NUMPY[d])}
    good, bad = (UOp(op, (B.load(B.at(x, i)), B.sub(i, n))) for n in (0, 1))
    want = [5 << k if op is Op.SHL else 5 >> k for k in range(4)]
    assert run(B.after(out, B.end(B.store(B.at(out, i), good), i)), given, lanes=lanes).values[0].tolist() == want
    with pytest.raises(Trap, match="R81"):
        run(B.after(out, B.end(B.store(B.at(out, i), bad), i)), given, lanes=lanes)
    with pytest.raises(Trap, match="R81"):
        run(UOp(op, (B.at(x, 0), B.const(-1, dt.index))), given)


def test_r29_negative_shift_count_of_index_traps():
    for op in (Op.SHL, Op.SHR):
        with pytest.raises(Trap, match="R29"):
            KERNELS[op][dt.index](np.array([1]), np.array([-1]))
    assert int(KERNELS[Op.SHR][dt.index](np.array(-5), np.array(2**40))) == -1
    assert int(KERNELS[Op.SHL][dt.index](np.array(0), np.array(2**40))) == 0
    with pytest.raises(Unsupported):
        KERNELS[Op.SHL][dt.index](np.array(1), np.array(2**40))
