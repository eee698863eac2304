"""Reference functions of the exhaustive tier, computed by means that neither interpreter uses.

A `ReferenceFunction` judges a whole array. It returns per element whether the result is the correctly rounded one, and its
error in ulp: inf where a NaN, an infinity or the sign of a zero is wrong. `draw_random_and_hard_operands_of_chunk` draws the
inputs of functions whose inputs are too many to enumerate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends.arrays import STORAGE
from uops.backends.conformance.multiprecision import judge_rounding_and_ulp_errors
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.ops import Op

Array = npt.NDArray[Any]
CorrectAndUlpErrors = tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class ReferenceFunction:
    """The claim that `op` on `operands` returns `result` within `ulp`, and the function that judges it."""

    op: Op
    operands: tuple[DType, ...]
    result: DType
    ulp: float
    judge: Callable[[tuple[Array, ...], Array], CorrectAndUlpErrors]


# --------------------------------------------------------------------------------------------- float32 against float64


def _make_float32_judge_by_float64(
    exact_function: Callable[[Array], Array],
) -> Callable[[tuple[Array, ...], Array], CorrectAndUlpErrors]:
    def judge(operands: tuple[Array, ...], got: Array) -> CorrectAndUlpErrors:
        exact = exact_function(operands[0].astype(np.float64))
        want = exact.astype(np.float32)
        return compare_to_rounded_and_exact(want, got, exact)

    return judge


def compare_to_rounded_and_exact(correctly_rounded: Array, got: Array, exact: Array) -> CorrectAndUlpErrors:
    """Compare a result with the correctly rounded one, `correctly_rounded`, and a more precise one, `exact`.

    Only elements whose bits differ are measured.
    """
    unsigned = f"u{correctly_rounded.dtype.itemsize}"
    is_correct = correctly_rounded.view(unsigned) == got.view(unsigned)
    error = np.zeros(correctly_rounded.shape, np.float64)
    if not is_correct.all():
        is_correct |= np.isnan(correctly_rounded) & np.isnan(got)
    wrong = np.flatnonzero(~is_correct)
    if wrong.size:
        expected, actual, precise = correctly_rounded[wrong], got[wrong], exact[wrong]
        finite = np.isfinite(expected) & np.isfinite(actual)
        signs = np.signbit(expected) == np.signbit(actual)
        last = np.nextafter(
            np.finfo(expected.dtype).max, expected.dtype.type(0)
        )  # NumPy has no spacing for the largest value itself
        distance = np.abs(actual.astype(np.float64) - precise) / np.spacing(np.minimum(np.abs(expected), last)).astype(np.float64)
        edge = (
            np.isfinite(actual) & ~np.isfinite(expected) & ~np.isnan(expected)
        )  # rounded to infinity: the largest finite value may be close enough
        near_top = np.abs(np.abs(actual.astype(np.float64)) - np.abs(precise)) / np.spacing(last).astype(np.float64)
        error[wrong] = np.where(finite & signs, distance, np.where(edge & signs, near_top, np.inf))
    return is_correct, error


# ------------------------------------------------------------------------------------------------------ float32 casts


def _make_float32_to_integer_cast(d: DType) -> Callable[[Array], Array]:
    """Return the Cast of float32 to an integer dtype: truncate, saturate, NaN to 0 (R15).

    It computes in float64, which represents every bound of up to 32 bits; for 64 bits, it clamps first.
    """
    lo, hi = int(d.min), int(d.max)
    wide = np.int64 if d.kind is DTypeKind.INT else np.uint64
    exact_top = d.bits <= 32  # else float64 rounds `hi` up, beyond the range of the conversion

    def truncate_and_saturate(x: Array) -> Array:
        wide_values = x.astype(np.float64)
        wide_values[np.isnan(wide_values)] = 0.0
        if exact_top:
            return np.clip(wide_values, lo, hi).astype(wide).astype(d.name)
        high = wide_values >= float(hi)
        wide_values[high] = 0.0
        out = np.maximum(wide_values, lo).astype(wide)
        out[high] = hi
        return out

    return truncate_and_saturate


def _make_float32_to_small_float_cast(d: DType) -> Callable[[Array], Array]:
    """Return the Cast of float32 to a smaller float: round to nearest even in integers, dropping `drop` bits of the magnitude.

    Subnormals are rounded in units of the smallest one.
    """
    drop = 23 - d.man_bits
    bias = (127 - d.bias) << 23
    least = (128 - d.bias) << 23  # the float32 bits of the least normal value
    quantum = np.float64(d.smallest_subnormal)
    infinity, nan = _top_bits(d, d.max_finite) + 1, (1 << (d.bits - 1)) - 1

    def round_to_nearest_even(x: Array) -> Array:
        source_bits = x.view(np.uint32)
        magnitude = (source_bits & np.uint32(0x7FFFFFFF)).astype(np.int32)
        rounded = (magnitude + ((1 << (drop - 1)) - 1) + ((magnitude >> drop) & 1)) >> drop
        bits = rounded - (bias >> drop)
        tiny = magnitude < least
        if tiny.any():
            bits[tiny] = np.rint(np.abs(x[tiny]).astype(np.float64) / quantum)
        bits = np.minimum(bits, infinity)  # one past the largest finite value: the infinity, or a finite-only dtype's NaN
        bits[magnitude > 0x7F800000] = nan
        signed = bits.astype(np.uint32) | (source_bits >> np.uint32(31)) << np.uint32(d.bits - 1)
        return np.asarray(signed.astype(f"u{d.itemsize}"))

    return round_to_nearest_even


def _top_bits(d: DType, top: float) -> int:
    return int(np.array(top, STORAGE[d]).view(f"u{d.itemsize}"))


def _make_float32_cast_judge(d: DType) -> Callable[[tuple[Array, ...], Array], CorrectAndUlpErrors]:
    if d is dt.float64:
        return lambda operands, got: compare_to_rounded_and_exact(
            operands[0].astype(np.float64), got, operands[0].astype(np.float64)
        )
    if d.is_float:
        return _make_equal_bits_or_nan_judge(_make_float32_to_small_float_cast(d), d)
    if d is dt.bool_:
        return _make_equality_judge_with_infinite_error(lambda x: x != 0)
    return _make_equality_judge_with_infinite_error(_make_float32_to_integer_cast(d))


def _make_equality_judge_with_infinite_error(
    exact_function: Callable[[Array], Array],
) -> Callable[[tuple[Array, ...], Array], CorrectAndUlpErrors]:
    def judge(operands: tuple[Array, ...], got: Array) -> CorrectAndUlpErrors:
        right = exact_function(operands[0]) == got
        return right, np.where(right, 0.0, np.inf)

    return judge


def _make_equal_bits_or_nan_judge(
    expected_bits: Callable[[Array], Array], d: DType
) -> Callable[[tuple[Array, ...], Array], CorrectAndUlpErrors]:
    """Return a judge that accepts equal bits, or two NaNs."""
    limit = _top_bits(d, d.max_finite) + d.has_inf

    def judge_bits_or_nan(operands: tuple[Array, ...], got: Array) -> CorrectAndUlpErrors:
        want, g = expected_bits(operands[0]), np.ascontiguousarray(got).view(f"u{d.itemsize}")
        mask = want.dtype.type((1 << (d.bits - 1)) - 1)
        right = want == g
        if not right.all():
            right |= ((want & mask) > limit) & ((g & mask) > limit)
        return right, np.where(right, 0.0, np.inf)

    return judge_bits_or_nan


def _is_power_of_two_representable(x: Array) -> Array:
    info = np.finfo(x.dtype)
    return np.asarray((x == np.trunc(x)) & (x >= info.minexp - info.nmant) & (x < info.maxexp))


def _is_power_of_two(x: Array) -> Array:
    return np.asarray(np.isfinite(x) & (np.frexp(x)[0] == 0.5))


def _is_zero(x: Array) -> Array:
    return np.asarray(x == 0)


def _require_exactness(
    judge: Callable[[tuple[Array, ...], Array], CorrectAndUlpErrors], is_exact_point: Callable[[Array], Array]
) -> Callable[[tuple[Array, ...], Array], CorrectAndUlpErrors]:
    """Return a judge for which any error is infinite at points whose result is exact (R17, Exp2, Log2, Sin)."""

    def judge_with_exact_points(operands: tuple[Array, ...], got: Array) -> CorrectAndUlpErrors:
        right, error = judge(operands, got)
        return right, np.where(~right & is_exact_point(operands[0]), np.inf, error)

    return judge_with_exact_points


def _make_2_ulp_reference(
    op: Op, d: DType, judge: Callable[[tuple[Array, ...], Array], CorrectAndUlpErrors], is_exact_point: Callable[[Array], Array]
) -> ReferenceFunction:
    return ReferenceFunction(op, (d,), d, 2.0, _require_exactness(judge, is_exact_point))


_F32 = (dt.float32,)
F32_REFERENCES: dict[str, ReferenceFunction] = {
    "exp2/float32": _make_2_ulp_reference(
        Op.EXP2, dt.float32, _make_float32_judge_by_float64(np.exp2), _is_power_of_two_representable),
    "log2/float32": _make_2_ulp_reference(
        Op.LOG2, dt.float32, _make_float32_judge_by_float64(np.log2), _is_power_of_two),
    "sin/float32": _make_2_ulp_reference(
        Op.SIN, dt.float32, _make_float32_judge_by_float64(np.sin), _is_zero),
    "sqrt/float32": ReferenceFunction(Op.SQRT, _F32, dt.float32, 0.5, _make_float32_judge_by_float64(np.sqrt)),
    "recip/float32": ReferenceFunction(Op.RECIP, _F32, dt.float32, 0.5, _make_float32_judge_by_float64(lambda x: 1.0 / x)),
    "trunc/float32": ReferenceFunction(Op.TRUNC, _F32, dt.float32, 0.0, _make_float32_judge_by_float64(np.trunc)),
    **{
        f"cast/float32/{d.name}": ReferenceFunction(Op.CAST, _F32, d, 0.0, _make_float32_cast_judge(d))
        for d in dt.STORABLE
        if d is not dt.float32
    },
}  # fmt: skip


# ------------------------------------------------------------------------------------------------------- mpmath, points


def _make_mpmath_judge(function_name: str, d: DType) -> Callable[[tuple[Array, ...], Array], CorrectAndUlpErrors]:
    def judge(operands: tuple[Array, ...], got: Array) -> CorrectAndUlpErrors:
        return judge_rounding_and_ulp_errors(function_name, d, operands, got)

    return judge


F64_REFERENCES: dict[str, ReferenceFunction] = {
    "exp2/float64": ReferenceFunction(
        Op.EXP2,
        (dt.float64,),
        dt.float64,
        2.0,
        _require_exactness(_make_mpmath_judge("exp2", dt.float64), _is_power_of_two_representable),
    ),
    "log2/float64": ReferenceFunction(
        Op.LOG2, (dt.float64,), dt.float64, 2.0, _require_exactness(_make_mpmath_judge("log2", dt.float64), _is_power_of_two)
    ),
    "sin/float64": ReferenceFunction(
        Op.SIN, (dt.float64,), dt.float64, 2.0, _require_exactness(_make_mpmath_judge("sin", dt.float64), _is_zero)
    ),
    "sqrt/float64": ReferenceFunction(Op.SQRT, (dt.float64,), dt.float64, 0.5, _make_mpmath_judge("sqrt", dt.float64)),
    "pow/float64": ReferenceFunction(Op.POW, (dt.float64,) * 2, dt.float64, 2.0, _make_mpmath_judge("pow", dt.float64)),
    "pow/float32": ReferenceFunction(Op.POW, (dt.float32,) * 2, dt.float32, 2.0, _make_mpmath_judge("pow", dt.float32)),
}


def draw_random_and_hard_operands_of_chunk(
    function_name: str, reference: ReferenceFunction, chunk_index: int, points_per_chunk: int
) -> Iterator[Array]:
    """Yield the operands of one chunk: raw bits, moderate values, and values where the function is hard."""
    rng = np.random.Generator(np.random.PCG64([chunk_index, *function_name.encode()]))
    kind = np.dtype(reference.operands[0].name)
    bits = np.frombuffer(rng.bytes(kind.itemsize * points_per_chunk), kind)
    moderate = (rng.standard_normal(points_per_chunk) * rng.choice([1, 10, 700], points_per_chunk)).astype(kind)
    x = np.where(rng.integers(0, 3, points_per_chunk) == 0, bits, _HARD[reference.op](rng, points_per_chunk, moderate).astype(kind))
    yield x
    if reference.op is Op.POW:
        y = (rng.standard_normal(points_per_chunk) * 10.0 ** rng.integers(-3, 4, points_per_chunk)).astype(kind)
        with np.errstate(all="ignore"):
            near_one = np.abs(x - 1) < 1e-2
        y = np.where(near_one, y * kind.type(1000), y)
        whole = rng.integers(0, 3, points_per_chunk) == 0
        yield np.where(whole, np.rint(y), np.where(rng.integers(0, 9, points_per_chunk) == 0, bits[::-1], y)).astype(kind)


def _draw_hard_exp2_inputs(rng: np.random.Generator, n: int, moderate: Array) -> Array:
    near = np.rint(moderate) + rng.choice([0.0, 0.5, 1e-16, -1e-16, 1e-9], n)
    return np.where(rng.integers(0, 2, n) == 0, near, rng.uniform(-1080, 1030, n))


def _draw_hard_log2_inputs(rng: np.random.Generator, n: int, moderate: Array) -> Array:
    return np.where(rng.integers(0, 2, n) == 0, 1 + moderate * 10.0 ** -rng.integers(1, 16, n), np.abs(moderate))


def _draw_hard_sin_inputs(rng: np.random.Generator, n: int, moderate: Array) -> Array:
    multiples = rng.integers(1, 1 << 40, n) * (np.pi / 2)
    huge = np.ldexp(rng.uniform(1, 2, n), rng.integers(20, 1023, n))
    worst = np.float64(6381956970095103) * 2.0**797
    pick = rng.integers(0, 4, n)
    return np.select(
        [pick == 0, pick == 1, pick == 2], [multiples, huge, moderate], np.where(rng.integers(0, 100, n) == 0, worst, moderate)
    )


def _draw_hard_sqrt_inputs(rng: np.random.Generator, n: int, moderate: Array) -> Array:
    square = np.rint(moderate * 1e6) ** 2
    return np.abs(np.where(rng.integers(0, 2, n) == 0, np.nextafter(square, np.inf), square))


def _draw_hard_pow_bases(rng: np.random.Generator, n: int, moderate: Array) -> Array:
    return np.where(rng.integers(0, 2, n) == 0, 1 + moderate * 10.0 ** -rng.integers(2, 14, n), moderate)


_HARD: dict[Op, Callable[[np.random.Generator, int, Array], Array]] = {
    Op.EXP2: _draw_hard_exp2_inputs,
    Op.LOG2: _draw_hard_log2_inputs,
    Op.SIN: _draw_hard_sin_inputs,
    Op.SQRT: _draw_hard_sqrt_inputs,
    Op.POW: _draw_hard_pow_bases,
}
