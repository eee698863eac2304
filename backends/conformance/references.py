"""References of the exhaustive tier: what each function should give, by means that neither interpreter uses.

A `Reference` judges a whole array: it says per element whether the result is the correctly rounded one, and its error in ulp (inf
where a NaN, an infinity or the sign of a zero is wrong). `points` draws the inputs of the functions that cannot be listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, Kind
from uops.spec.ir.ops import Op

Array = npt.NDArray[Any]
Judged = tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Reference:
    """`op` on `operands` gives `result` within `ulp`."""

    op: Op
    operands: tuple[DType, ...]
    result: DType
    ulp: float
    judge: Callable[[tuple[Array, ...], Array], Judged]


# --------------------------------------------------------------------------------------------- float32 against float64


def _against_f64(f: Callable[[Array], Array]) -> Callable[[tuple[Array, ...], Array], Judged]:
    def judge(operands: tuple[Array, ...], got: Array) -> Judged:
        exact = f(operands[0].astype(np.float64))
        want = exact.astype(np.float32)
        return compare(want, got, exact)

    return judge


def compare(want: Array, got: Array, exact: Array) -> Judged:
    """`want` is the correctly rounded result, `exact` a more precise one; only elements that differ in bits are measured."""
    unsigned = f"u{want.dtype.itemsize}"
    right = want.view(unsigned) == got.view(unsigned)
    error = np.zeros(want.shape, np.float64)
    if not right.all():
        right |= np.isnan(want) & np.isnan(got)
    off = np.flatnonzero(~right)
    if off.size:
        w, g, e = want[off], got[off], exact[off]
        finite = np.isfinite(w) & np.isfinite(g)
        signs = np.signbit(w) == np.signbit(g)
        last = np.nextafter(np.finfo(w.dtype).max, w.dtype.type(0))  # of the largest value itself NumPy gives no spacing
        distance = np.abs(g.astype(np.float64) - e) / np.spacing(np.minimum(np.abs(w), last)).astype(np.float64)
        edge = np.isfinite(g) & ~np.isfinite(w) & ~np.isnan(w)  # rounded to infinity: the last finite value may be near enough
        near_top = np.abs(np.abs(g.astype(np.float64)) - np.abs(e)) / np.spacing(last).astype(np.float64)
        error[off] = np.where(finite & (signs | (g != 0)), distance, np.where(edge & signs, near_top, np.inf))
    return right, error


# ------------------------------------------------------------------------------------------------------ float32 casts


def _to_integer(d: DType) -> Callable[[Array], Array]:
    """Truncate, saturate, NaN to 0 (R15), in float64, where every bound of up to 32 bits is exact; 64 bits clamp first."""
    lo, hi = int(d.min), int(d.max)
    wide = np.int64 if d.kind is Kind.INT else np.uint64
    exact_top = d.bits <= 32  # else float64 rounds `hi` up, out of the range of the conversion

    def f(x: Array) -> Array:
        t = x.astype(np.float64)
        t[np.isnan(t)] = 0.0
        if exact_top:
            return np.clip(t, lo, hi).astype(wide).astype(d.name)
        high = t >= float(hi)
        t[high] = 0.0
        out = np.maximum(t, lo).astype(wide)
        out[high] = hi
        return out

    return f


def _to_small(d: DType) -> Callable[[Array], Array]:
    """Round to nearest even in integers: keep `drop` fewer bits of the magnitude, subnormals through a power-of-two addition."""
    drop = 23 - d.man_bits
    bias = (127 - d.bias) << 23
    least = (128 - d.bias) << 23  # the float32 bits of the least normal value
    quantum = np.float64(2.0) ** (1 - d.bias - d.man_bits)
    infinity, nan = _top_bits(d, d.max_finite) + 1, (1 << (d.bits - 1)) - 1

    def f(x: Array) -> Array:
        u = x.view(np.uint32)
        m = (u & np.uint32(0x7FFFFFFF)).astype(np.int32)
        rounded = (m + ((1 << (drop - 1)) - 1) + ((m >> drop) & 1)) >> drop
        bits = rounded - (bias >> drop)
        tiny = m < least
        if tiny.any():
            bits[tiny] = np.rint(np.abs(x[tiny]).astype(np.float64) / quantum)
        bits = np.minimum(bits, infinity)  # one past the top is the infinity, and fp8e4m3's NaN
        bits[m > 0x7F800000] = nan
        signed = bits.astype(np.uint32) | (u >> np.uint32(31)) << np.uint32(d.bits - 1)
        return np.asarray(signed.astype(f"u{d.itemsize}"))

    return f


def _top_bits(d: DType, top: float) -> int:
    return int(np.array(top, _STORAGE[d]).view(f"u{d.itemsize}"))


_STORAGE = {
    dt.float16: np.dtype(np.float16),
    dt.bfloat16: np.dtype(ml_dtypes.bfloat16),
    dt.fp8e4m3: np.dtype(ml_dtypes.float8_e4m3fn),
    dt.fp8e5m2: np.dtype(ml_dtypes.float8_e5m2),
}


def _cast_judge(d: DType) -> Callable[[tuple[Array, ...], Array], Judged]:
    if d is dt.float64:
        return lambda operands, got: compare(operands[0].astype(np.float64), got, operands[0].astype(np.float64))
    if d.is_float:
        return _bits_judge(_to_small(d), d)
    if d is dt.bool_:
        return _equal_judge(lambda x: x != 0)
    return _equal_judge(_to_integer(d))


def _equal_judge(f: Callable[[Array], Array]) -> Callable[[tuple[Array, ...], Array], Judged]:
    def judge(operands: tuple[Array, ...], got: Array) -> Judged:
        right = f(operands[0]) == got
        return right, np.where(right, 0.0, np.inf)

    return judge


def _bits_judge(f: Callable[[Array], Array], d: DType) -> Callable[[tuple[Array, ...], Array], Judged]:
    """Equal bits, or both NaN."""
    limit = _top_bits(d, d.max_finite) + d.has_inf

    def judge(operands: tuple[Array, ...], got: Array) -> Judged:
        want, g = f(operands[0]), np.ascontiguousarray(got).view(f"u{d.itemsize}")
        mask = want.dtype.type((1 << (d.bits - 1)) - 1)
        right = want == g
        if not right.all():
            right |= ((want & mask) > limit) & ((g & mask) > limit)
        return right, np.where(right, 0.0, np.inf)

    return judge


_F32 = (dt.float32,)
F32_REFERENCES: dict[str, Reference] = {
    "exp2/float32": Reference(Op.EXP2, _F32, dt.float32, 2.0, _against_f64(np.exp2)),
    "log2/float32": Reference(Op.LOG2, _F32, dt.float32, 2.0, _against_f64(np.log2)),
    "sin/float32": Reference(Op.SIN, _F32, dt.float32, 2.0, _against_f64(np.sin)),
    "sqrt/float32": Reference(Op.SQRT, _F32, dt.float32, 0.5, _against_f64(np.sqrt)),
    "recip/float32": Reference(Op.RECIP, _F32, dt.float32, 0.5, _against_f64(lambda x: 1.0 / x)),
    "trunc/float32": Reference(Op.TRUNC, _F32, dt.float32, 0.0, _against_f64(np.trunc)),
    **{
        f"cast/float32/{d.name}": Reference(Op.CAST, _F32, d, 0.0, _cast_judge(d))
        for d in dt.STORABLE
        if d is not dt.float32
    },
}  # fmt: skip


# ------------------------------------------------------------------------------------------------------- mpmath, points


def _against_mpmath(name: str, d: DType) -> Callable[[tuple[Array, ...], Array], Judged]:
    def judge(operands: tuple[Array, ...], got: Array) -> Judged:
        from uops.backends.conformance.multiprecision import errors

        return errors(name, d, operands, got)

    return judge


F64_REFERENCES: dict[str, Reference] = {
    "exp2/float64": Reference(Op.EXP2, (dt.float64,), dt.float64, 2.0, _against_mpmath("exp2", dt.float64)),
    "log2/float64": Reference(Op.LOG2, (dt.float64,), dt.float64, 2.0, _against_mpmath("log2", dt.float64)),
    "sin/float64": Reference(Op.SIN, (dt.float64,), dt.float64, 2.0, _against_mpmath("sin", dt.float64)),
    "sqrt/float64": Reference(Op.SQRT, (dt.float64,), dt.float64, 0.5, _against_mpmath("sqrt", dt.float64)),
    "pow/float64": Reference(Op.POW, (dt.float64,) * 2, dt.float64, 2.0, _against_mpmath("pow", dt.float64)),
    "pow/float32": Reference(Op.POW, (dt.float32,) * 2, dt.float32, 2.0, _against_mpmath("pow", dt.float32)),
}


def points(name: str, reference: Reference, chunk: int, n: int) -> Iterator[Array]:
    """`n` inputs per chunk: raw bits, moderate values, and those where the function is hard."""
    rng = np.random.Generator(np.random.PCG64([chunk, *name.encode()]))
    kind = np.dtype(reference.operands[0].name)
    bits = np.frombuffer(rng.bytes(kind.itemsize * n), kind)
    moderate = (rng.standard_normal(n) * rng.choice([1, 10, 700], n)).astype(kind)
    x = np.where(rng.integers(0, 3, n) == 0, bits, _HARD[reference.op](rng, n, moderate).astype(kind))
    yield x
    if reference.op is Op.POW:
        y = (rng.standard_normal(n) * 10.0 ** rng.integers(-3, 4, n)).astype(kind)
        with np.errstate(all="ignore"):
            near_one = np.abs(x - 1) < 1e-2
        y = np.where(near_one, y * kind.type(1000), y)
        whole = rng.integers(0, 3, n) == 0
        yield np.where(whole, np.rint(y), np.where(rng.integers(0, 9, n) == 0, bits[::-1], y)).astype(kind)


def _hard_exp2(rng: np.random.Generator, n: int, moderate: Array) -> Array:
    near = np.rint(moderate) + rng.choice([0.0, 0.5, 1e-16, -1e-16, 1e-9], n)
    return np.where(rng.integers(0, 2, n) == 0, near, rng.uniform(-1080, 1030, n))


def _hard_log2(rng: np.random.Generator, n: int, moderate: Array) -> Array:
    return np.where(rng.integers(0, 2, n) == 0, 1 + moderate * 10.0 ** -rng.integers(1, 16, n), np.abs(moderate))


def _hard_sin(rng: np.random.Generator, n: int, moderate: Array) -> Array:
    multiples = rng.integers(1, 1 << 40, n) * (np.pi / 2)
    huge = np.ldexp(rng.uniform(1, 2, n), rng.integers(20, 1023, n))
    worst = np.float64(6381956970095103) * 2.0**797
    pick = rng.integers(0, 4, n)
    return np.select(
        [pick == 0, pick == 1, pick == 2], [multiples, huge, moderate], np.where(rng.integers(0, 100, n) == 0, worst, moderate)
    )


def _hard_sqrt(rng: np.random.Generator, n: int, moderate: Array) -> Array:
    square = np.rint(moderate * 1e6) ** 2
    return np.abs(np.where(rng.integers(0, 2, n) == 0, np.nextafter(square, np.inf), square))


def _hard_pow(rng: np.random.Generator, n: int, moderate: Array) -> Array:
    return np.where(rng.integers(0, 2, n) == 0, 1 + moderate * 10.0 ** -rng.integers(2, 14, n), moderate)


_HARD: dict[Op, Callable[[np.random.Generator, int, Array], Array]] = {
    Op.EXP2: _hard_exp2,
    Op.LOG2: _hard_log2,
    Op.SIN: _hard_sin,
    Op.SQRT: _hard_sqrt,
    Op.POW: _hard_pow,
}
