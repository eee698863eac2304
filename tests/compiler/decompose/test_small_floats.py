"""Arithmetic on float16, bfloat16 and fp8 in lowered form: one rounding of the exact result (R16), 1 ulp for the elementary
functions (R17)."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from uops.backends.arrays import STORAGE
from uops.compiler.decompose import SMALL, encode_representable_small_float
from uops.compiler.decompose.build import BITS
from uops.spec.ir import dtypes as dt
from uops.spec.ir.derive.exact import round_nearest
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op

OnBits = Callable[..., Callable[..., Any]]
#: Exact in float64, or with so many bits to spare that no quotient of small floats reaches a midpoint.
ARITHMETIC: dict[Op, Callable[[Any, Any], Any]] = {
    Op.ADD: operator.add,
    Op.SUB: operator.sub,
    Op.MUL: operator.mul,
    Op.DIV: operator.truediv,
    Op.MAX: np.maximum,
}
COMPARISONS = {Op.CMPLT: operator.lt, Op.CMPNE: operator.ne, Op.CMPEQ: operator.eq}


def values(bits: Any, d: DType) -> Any:
    return bits.view(STORAGE[d]).astype(np.float64)


def every(d: DType) -> Any:
    return np.arange(1 << d.bits, dtype=np.uint32).astype(BITS[d].name)


def nearest(x: Any, d: DType) -> Any:
    """float64 rounded to nearest even among the values of `d`, found by bisection of its midpoints."""
    grid = values(every(d)[: 1 << (d.bits - 1)], d)
    grid = grid[np.isfinite(grid)]
    top = 2 * grid[-1] - grid[-2]
    edges = (grid + np.append(grid[1:], top)) / 2
    size = np.abs(x)
    code = np.searchsorted(edges, size)
    tie = (code < edges.size) & (edges[np.minimum(code, edges.size - 1)] == size)
    code = code + (tie & (code % 2 == 1))
    padded = np.append(grid, np.inf if d.has_inf else np.nan)
    rounded = np.copysign(padded[np.minimum(code, grid.size)], x)
    return np.where(np.isnan(x), np.nan, rounded)


def same(got: Any, want: Any) -> Any:
    return (np.isnan(got) & np.isnan(want)) | ((got == want) & (np.signbit(got) == np.signbit(want)))


def check(got: Any, want: Any, what: object, *operands: Any) -> None:
    wrong = np.flatnonzero(~same(got, want))
    if wrong.size:
        k = wrong[0]
        raise AssertionError(
            f"{what} of {[float(o[k]) for o in operands]} is {got[k]!r}, not {want[k]!r}: {wrong.size} wrong (R16)"
        )


def edge_bits(d: DType) -> Any:
    """Zeros, subnormals, one, the largest, infinities, NaN and their neighbours, both signs."""
    inf = ((1 << d.exp_bits) - 1) << d.man_bits
    near = [
        0,
        1,
        2,
        3,
        (1 << d.man_bits) - 1,
        1 << d.man_bits,
        (1 << d.man_bits) + 1,
        d.bias << d.man_bits,
        (d.bias << d.man_bits) + 1,
        inf - 1,
        inf,
        inf + 1,
    ]
    return np.array([s | c for s in (0, 1 << (d.bits - 1)) for c in near], BITS[d].name)


def pairs(d: DType) -> tuple[Any, Any]:
    """Every pair for fp8; for 16 bits edges with everything strided, close exponents, and random bits."""
    if d.bits == 8:
        a, c = np.meshgrid(every(d), every(d))
        return a.ravel(), c.ravel()
    random = np.random.default_rng(16)
    x, y = np.meshgrid(edge_bits(d), every(d)[::29])
    a = random.integers(0, 1 << 16, 200_000).astype(np.uint16)
    c = np.concatenate(
        [
            random.integers(0, 1 << 16, 100_000).astype(np.uint16),
            a[:100_000] ^ random.integers(0, 1 << 12, 100_000).astype(np.uint16),
        ]
    )
    return np.concatenate([x.ravel(), y.ravel(), a]), np.concatenate([y.ravel(), x.ravel(), c])


@pytest.mark.parametrize("d", SMALL, ids=str)
@pytest.mark.parametrize("op", ARITHMETIC, ids=lambda op: op.name)
def test_r16_binary_is_rounded_once(op: Op, d: DType, on_bits: OnBits) -> None:
    a, c = pairs(d)
    x, y = values(a, d), values(c, d)
    got, want = values(on_bits(op, d, d)(a, c), d), nearest(ARITHMETIC[op](x, y), d)
    if op is Op.MAX:  # either zero, of zeros (R11)
        got, want = got + 0.0, want + 0.0
    check(got, want, op, x, y)


@pytest.mark.parametrize("d", SMALL, ids=str)
def test_r16_quotients_near_the_subnormals_are_rounded_once(d: DType, on_bits: OnBits) -> None:
    """Exact rational arithmetic where the docstring's argument is tight: quotients between zero and the least normal number."""
    random = np.random.default_rng(5)
    b0 = random.integers(1 << d.man_bits, ((1 << d.exp_bits) - 2) << d.man_bits, 4000)
    y = values(b0.astype(BITS[d].name), d)
    target = random.integers(0, 2 << d.man_bits, 4000) + random.choice([0.5, 0.25, 0.75, 0.499, 0.501], 4000)
    a = every(d)[: 1 << (d.bits - 1)]
    grid = values(a, d)
    index = np.searchsorted(grid[np.isfinite(grid)], target * 2.0 ** (1 - d.bias - d.man_bits) * y)
    a = a[np.minimum(index, np.count_nonzero(np.isfinite(grid)) - 1)]
    x = values(a, d)
    got = values(on_bits(Op.DIV, d, d)(a, b0.astype(BITS[d].name)), d)
    want = np.array([convert_fraction(Fraction(p) / Fraction(q), d) for p, q in zip(x.tolist(), y.tolist(), strict=True)])
    check(got, want, Op.DIV, x, y)


def convert_fraction(value: Fraction, d: DType) -> float:
    """An exact rational rounded once."""
    return round_nearest(d, value)


@pytest.mark.parametrize("d", SMALL, ids=str)
def test_r12_comparisons(d: DType, on_bits: OnBits) -> None:
    a, c = pairs(d)
    for op, f in COMPARISONS.items():
        assert np.array_equal(on_bits(op, d, d)(a, c), f(values(a, d), values(c, d))), op


@pytest.mark.parametrize("d", SMALL, ids=str)
def test_r16_unary_every_value(d: DType, on_bits: OnBits) -> None:
    x = values(every(d), d)
    for op, f in {Op.SQRT: np.sqrt, Op.RECIP: np.reciprocal, Op.TRUNC: np.trunc}.items():
        check(values(on_bits(op, d)(every(d)), d), nearest(f(x), d), op, x)


@pytest.mark.parametrize("d", SMALL, ids=str)
def test_r21_neg_flips_the_sign_bit_of_every_value(d: DType, on_bits: OnBits) -> None:
    assert np.array_equal(on_bits(Op.NEG, d)(every(d)), every(d) ^ (1 << (d.bits - 1)))


@pytest.mark.parametrize("d", SMALL, ids=str)
@pytest.mark.parametrize("name", ["exp2", "log2", "sin"])
def test_r17_elementary_every_value(name: str, d: DType, on_bits: OnBits, accuracy: ModuleType) -> None:
    x = values(every(d), d)
    exact = accuracy.evaluate_in_double(name, x).high
    got = values(on_bits({"exp2": Op.EXP2, "log2": Op.LOG2, "sin": Op.SIN}[name], d)(every(d)), d)
    want = nearest(exact, d)
    unit = 2.0 ** np.maximum(np.floor(np.log2(np.maximum(np.abs(want), 1e-300))), 1 - d.bias) * 2.0**-d.man_bits
    number = np.isfinite(want)
    assert np.all(same(got, want)[~number])
    assert np.max(np.abs(got - exact)[number] / unit[number]) <= 0.51, "one rounding of a result good to 2 ulp of float32"


@pytest.mark.parametrize("d", SMALL, ids=str)
def test_r18_pow(d: DType, on_bits: OnBits) -> None:
    a, c = pairs(d)
    x, y = values(a, d), values(c, d)
    got, want = values(on_bits(Op.POW, d, d)(a, c), d), np.power(x, y)
    want = np.where((y == 0) | (x == 1), 1.0, want)
    rounded = nearest(want, d)
    check(np.where(np.isfinite(rounded), 0.0, got), np.where(np.isfinite(rounded), 0.0, rounded), Op.POW, x, y)
    unit = 2.0 ** np.maximum(np.floor(np.log2(np.maximum(np.abs(rounded), 1e-300))), 1 - d.bias) * 2.0**-d.man_bits
    finite = np.isfinite(rounded)
    assert np.max(np.abs(got - want)[finite] / unit[finite]) <= 0.51


def exact_mulacc(x: float, y: float, z: float, d: DType) -> float:
    """x*y + z by rationals, rounded once."""
    if not all(map(np.isfinite, (x, y, z))):
        return float(nearest(np.array([x * y + z]), d)[0])
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    return convert_fraction(exact, d) if exact else x * y + z


def mulacc_triples(d: DType) -> list[Any]:
    """Random triples, the third near the product or a midpoint's tie-breaker, and every triple of the edges."""
    random = np.random.default_rng(8)
    word = BITS[d].name
    a, c = (random.integers(0, 1 << d.bits, 3000).astype(word) for _ in range(2))
    product = nearest(values(a, d) * values(c, d), d).astype(STORAGE[d]).view(word)
    third = np.where(random.random(3000) < 0.5, product ^ (1 << (d.bits - 1)), random.integers(0, 1 << d.bits, 3000)).astype(word)
    edges = edge_bits(d)
    triples = np.array(list(itertools.product(edges[::2], edges[1::2], edges)), word).T
    return [np.concatenate([p, q]) for p, q in zip((a, c, third), triples, strict=True)]


@pytest.mark.parametrize("d", SMALL, ids=str)
def test_r16_mulacc_is_rounded_once(d: DType, on_bits: OnBits) -> None:
    bits = mulacc_triples(d)
    x, y, z = (values(t, d) for t in bits)
    got = values(on_bits(Op.MULACC, d, d, d)(*bits), d)
    want = np.array([exact_mulacc(*t, d) for t in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)])
    check(got, want, Op.MULACC, x, y, z)


def test_r16_mulacc_where_two_roundings_go_wrong(on_bits: OnBits) -> None:
    """In float16 a product of 2049 is halfway between neighbours, and a third operand far below float64's last place breaks the
    tie."""
    run = on_bits(Op.MULACC, dt.float16, dt.float16, dt.float16)
    x, y = 683.0, 3.0  # 2049
    for tiny, want in ((2.0**-24, 2050.0), (0.0, 2048.0), (-(2.0**-24), 2048.0)):
        assert (
            run(*np.array([[x], [y], [tiny]], np.float16).view(np.uint16)).view(np.float16)[0]
            == want
            == convert_fraction(2049 + Fraction(tiny), dt.float16)
        )


@pytest.mark.parametrize("d", SMALL, ids=str)
def test_r16_the_premises_of_small_floats_hold(d: DType) -> None:
    """What small.py, narrow.py and the prover's float8 rest on, and what `interp/ops/elementwise.py` says of float32."""
    premise = f"compiler/decompose/small.py: {d}"
    assert dt.float32.man_bits + 1 >= 2 * (d.man_bits + 1) + 2, f"{premise} has too many bits to be rounded by way of float32"
    assert d.exp_bits <= dt.float32.exp_bits, f"{premise} has more exponents than float32"
    if d.bits == 8:
        assert d.exp_bits <= dt.float16.exp_bits, f"compiler/prove/model.py: {d} has more exponents than float16"
    if d.finite_only:  # the greatest value is even, so that the midpoint above it is still rounded to it
        assert encode_representable_small_float(d.max_finite, d) % 2 == 0, f"compiler/decompose/narrow.py: the greatest {d} is odd"
