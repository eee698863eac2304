"""Answers of NumPy: exact arrays, and estimates whose error is derived.

An `ExactAnswer` has one right result per element. An `Estimate` is a value in float64 and a bound of its error, both per
element. Its operations are those of one float dtype: each adds the error of one rounding, u * |x|, or the error that the row of
the operation allows. A sum of n terms adds (n - 1) * u * sum(|x|), as R32 (Reduce value) says. An element whose computation may
overflow on the way has an infinite error: any result is right. Arithmetic of float64 has its error twice, since the reference
itself rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from uops.backends.arrays import DTYPE_OF, STORAGE
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType

Array = npt.NDArray[Any]
Axes = tuple[int, ...]

#: Bits that a float64 represents exactly.
_EXACT_BITS = 53


def dtype_of(array: Array) -> DType:
    """Return the dtype of the language that an array stores."""
    return DTYPE_OF[array.dtype]


def to_float64(array: Array) -> Array:
    """Return an array as float64. Integers beyond 53 bits are rounded to odd, so that one more rounding to a dtype of at most 51
    bits gives the nearest value.
    """
    if array.dtype.kind not in "iu" or array.dtype.itemsize < 8:
        with np.errstate(invalid="ignore"):  # a signalling NaN
            return array.astype(np.float64)
    sign = np.where(array < 0, -1.0, 1.0) if array.dtype.kind == "i" else np.ones(array.shape)
    size = np.where(array < 0, np.uint64(0) - array.astype(np.uint64), array.astype(np.uint64))
    dropped = 64 - _EXACT_BITS
    rest = size & np.uint64((1 << dropped) - 1)
    odd = (size >> np.uint64(dropped) | (rest != 0).astype(np.uint64)) << np.uint64(dropped)
    return np.asarray(sign * np.where(size >> np.uint64(_EXACT_BITS) != 0, odd, size).astype(np.float64))


def round_to_dtype(x: Array, d: DType) -> Array:
    """Return float64 values rounded once to a float dtype, as float64. Overflow is infinite, also for fp8e4m3, which has no
    infinity.
    """
    if d is dt.float64:
        return x
    with np.errstate(all="ignore"):
        finite = np.isfinite(x)
        exponent = np.maximum(np.frexp(np.where(finite, x, 0.0))[1] - 1, d.min_exponent)
        unit = np.ldexp(1.0, exponent - d.man_bits)
        rounded = np.where(finite, np.rint(np.where(finite, x, 0.0) / unit) * unit, x)
        rounded = np.copysign(rounded, x)
        return np.asarray(np.where(np.abs(rounded) > d.max_finite, np.copysign(math.inf, rounded), rounded))


def spacing(x: Array, d: DType) -> Array:
    """Return the distance of neighbours of a float dtype at `x`: its unit of the last place."""
    exponent = np.frexp(np.where(np.isfinite(x), x, 0.0))[1] - 1
    return np.asarray(np.ldexp(1.0, np.clip(exponent, d.min_exponent, d.bias + d.finite_only) - d.man_bits))


def cast_array(array: Array, d: DType) -> Array:
    """Convert an array as Cast does (R15)."""
    source = dtype_of(array)
    with np.errstate(all="ignore"):
        if source is d:
            return array
        if d is dt.bool_:
            return np.asarray(array.astype(np.float64) != 0 if source.is_float else array != 0)
        if d.is_float:
            if d is dt.float64:
                return array.astype(np.float64)
            return store_floats(round_to_dtype(to_float64(array), d), d)
        if not source.is_float:
            return array.astype(STORAGE[d])
        x = np.trunc(array.astype(np.float64))
        inside = (x >= float(d.min)) & (x < float(d.max) + 1)
        whole = np.where(inside, x, 0).astype(STORAGE[d])
        return np.where(
            inside | np.isnan(x), whole, np.where(x < 0, STORAGE[d].type(d.min), STORAGE[d].type(d.max))
        ).astype(STORAGE[d])  # fmt: skip


def store_floats(x: Array, d: DType) -> Array:
    """Return float64 values that a float dtype represents as an array of it; fp8e4m3 has NaN for infinities."""
    with np.errstate(all="ignore"):
        return np.asarray(np.where(np.isinf(x), math.nan, x) if d.finite_only else x).astype(STORAGE[d])


class ExactAnswer(NamedTuple):
    """An array that is the only right result.

    All NaNs are one unless `by_bits`. With `either_zero`, zeros of both signs are one, too.
    """

    values: Array
    by_bits: bool = False
    either_zero: bool = False

    @property
    def dtype(self) -> DType:
        """The dtype of the result."""
        return dtype_of(self.values)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return self.values.shape

    def accept(self, result: Array) -> Array:
        """Return per element whether it is right."""
        if not self.dtype.is_float:
            return np.asarray(result == self.values)
        if self.by_bits:
            return np.asarray(_bits(result) == _bits(self.values))
        x, y = to_float64(result), to_float64(self.values)
        same_sign = True if self.either_zero else np.signbit(x) == np.signbit(y)
        return np.asarray((np.isnan(x) & np.isnan(y)) | ((x == y) & same_sign))

    def describe(self, k: int) -> str:
        """Describe the expected element `k` in row-major order."""
        return f"{self.values.reshape(-1)[k]}"


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(array.shape).view(f"u{array.dtype.itemsize}")


@dataclass(frozen=True, slots=True)
class Estimate:
    """Values computed by arithmetic of a float dtype: about `value`, by at most `error` away from it.

    A NaN or an infinity with a finite error is sure. `stored` is the dtype of the result, which is rounded once, if it is
    another one; with `is_floored` it is an integer dtype, and the result is the floor.
    """

    arithmetic: DType
    value: Array
    error: Array
    stored: DType | None = None

    @classmethod
    def of(cls, array: Array, d: DType) -> Estimate:
        """Return the exact values of an array that is cast to `d`."""
        value = np.asarray(to_float64(cast_array(array, d)))
        return cls(d, value, np.zeros(value.shape))

    @classmethod
    def within_ulps(cls, value: Any, d: DType, ulps: Any) -> Estimate:
        """Return a result of one operation that is allowed some units of the last place (R17, R18)."""
        x = np.asarray(value, np.float64)
        allowed = ulps + (1 if d is dt.float64 else 0)
        with np.errstate(all="ignore"):
            return cls(d, x, np.where(np.isfinite(x), allowed * spacing(round_to_dtype(x, d), d), 0.0))

    @classmethod
    def within_relative(cls, value: Any, d: DType, units: Any, absolute: Any = 0.0) -> Estimate:
        """Return a result with a relative error of `units` times 2u, beside an absolute one and one unit of a subnormal."""
        x = np.asarray(value, np.float64)
        allowed = np.asarray(units) + (1 if d is dt.float64 else 0)
        with np.errstate(all="ignore"):
            relative = np.where(x == 0, 0.0, allowed * 2 * d.unit_roundoff * np.abs(x))
            return cls(d, x, np.where(np.isfinite(x), relative + absolute + 2 * d.smallest_subnormal, 0.0))

    @property
    def dtype(self) -> DType:
        """The dtype of the result."""
        return self.stored or self.arithmetic

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return self.value.shape

    def store_as(self, d: DType) -> Estimate:
        """Return the answer that is rounded to `d` at the end."""
        return replace(self, stored=d)

    def convert(self, d: DType) -> Estimate:
        """Return the values rounded to `d`, for more arithmetic in that dtype."""
        if d is self.arithmetic or d.man_bits > self.arithmetic.man_bits:
            return replace(self, arithmetic=d)
        return replace(self, arithmetic=d).round_once(self.value, self.error, self)

    # Arithmetic

    def round_once(self, value: Array, error: Array, *operands: Estimate, is_exact: Any = False) -> Estimate:
        """Return a result with one rounding more, except where `is_exact` or where the dtype represents it.

        NaNs of operands are sure, results that may overflow are free.
        """
        d = self.arithmetic
        with np.errstate(all="ignore"):
            twice = 2 if d is dt.float64 else 1
            rounds = np.isfinite(value) & ~np.asarray(is_exact)
            if d is not dt.float64:
                rounds = rounds & ~((error == 0) & (round_to_dtype(value, d) == value))
            error = error + np.where(rounds, twice * (d.unit_roundoff * (np.abs(value) + error) + d.smallest_subnormal / 2), 0.0)
            is_free = np.isnan(error) | (np.isfinite(value) & (np.abs(value) + error > d.max_finite))
            if operands:
                overflowed = np.isinf(value)
                for o in operands:
                    overflowed = overflowed & np.isfinite(o.value)
                is_free = is_free | overflowed
            error = np.where(is_free, math.inf, error)
            for o in operands:
                error = np.where(np.isnan(o.value) & np.isfinite(o.error), 0.0, error)
        return Estimate(d, np.asarray(value), np.asarray(error))

    def __add__(self, other: Estimate) -> Estimate:
        with np.errstate(all="ignore"):
            value, error = self.value + other.value, self.error + other.error
            return self.round_once(value, error, self, other, is_exact=(value == 0) & (error == 0))

    def __sub__(self, other: Estimate) -> Estimate:
        return self + replace(other, value=-other.value)

    def __mul__(self, other: Estimate) -> Estimate:
        with np.errstate(all="ignore"):
            a, b = self, other
            error = _times(np.abs(a.value), b.error) + _times(np.abs(b.value), a.error) + _times(a.error, b.error)
            is_exact = (error == 0) & ((a.value == 0) | (b.value == 0))
            return self.round_once(a.value * b.value, error, a, b, is_exact=is_exact)

    def __truediv__(self, other: Estimate) -> Estimate:
        with np.errstate(all="ignore"):
            a, b = self, other
            size = np.abs(b.value) - b.error
            error = (a.error + _times(np.abs(a.value / b.value), b.error)) / size
            error = np.where((size <= 0) & (a.error + b.error > 0), math.inf, np.where(a.error + b.error == 0, 0.0, error))
            by_zero = (b.value == 0) & (b.error == 0)
            rounded = self.round_once(a.value / b.value, error, a, b, is_exact=(error == 0) & (np.abs(b.value) == 1))
            sure = by_zero & (a.error == 0)
            return replace(rounded, error=np.where(sure, 0.0, rounded.error))

    def sqrt(self) -> Estimate:
        """Return square roots, rounded once."""
        with np.errstate(all="ignore"):
            low = self.value - self.error
            error = np.where(self.error == 0, 0.0, np.where(low > 0, self.error / (2 * np.sqrt(np.maximum(low, 0))), math.inf))
            return self.round_once(np.sqrt(self.value), error)

    def exp(self) -> Estimate:
        """Return exponentials, whose relative error is at most |x| + 3 units."""
        with np.errstate(all="ignore"):
            value = np.exp(self.value)
            moved = _times(value, np.expm1(self.error))
            own = Estimate.within_relative(value, self.arithmetic, np.abs(np.where(value > 0, self.value, 0)) + 3)
            e = np.where(np.isfinite(value), moved + own.error, np.where(self.error == 0, 0.0, math.inf))
            return self._keep_sure_nans(value, np.where(value + e > self.arithmetic.max_finite, _free_unless(self.value), e))

    def log(self) -> Estimate:
        """Return log2(x) * ln(2): 2 ulp of the logarithm, the constant and the product make 3 units."""
        with np.errstate(all="ignore"):
            value = np.log(self.value)
            low = self.value - self.error
            moved = np.where(self.error == 0, 0.0, np.where(low > 0, self.error / low, math.inf))
            own = Estimate.within_relative(value, self.arithmetic, 3)
            return self._keep_sure_nans(value, own.error + moved)

    def _keep_sure_nans(self, value: Array, error: Array) -> Estimate:
        sure = np.isnan(self.value) & np.isfinite(self.error)
        return Estimate(self.arithmetic, value, np.where(sure, 0.0, np.where(np.isnan(error), math.inf, error)))

    # Reductions and movement

    def sum(self, axes: Axes, keepdim: bool = False) -> Estimate:
        """Return sums of n terms, whose error is at most (n - 1) * u * sum(|x|) (R32)."""
        n = math.prod(self.value.shape[k] for k in axes)
        with np.errstate(all="ignore"):
            value = self.value.sum(axes, keepdims=keepdim)
            finite = np.isfinite(self.value)
            size = (np.abs(np.where(finite, self.value, 0)) + self.error).sum(axes, keepdims=keepdim)
            error = self.error.sum(axes, keepdims=keepdim)
        nan = np.asarray((np.isnan(self.value) & np.isfinite(self.error)).any(axes, keepdims=keepdim))
        return self._bound_sum(value, error, size, nan, n)

    def _bound_sum(self, value: Array, error: Array, size: Array, nan: Array, n: int) -> Estimate:
        """Return sums of n terms whose magnitudes add up to `size`."""
        d = self.arithmetic
        with np.errstate(all="ignore"):
            units = max(0, n - 1) * d.unit_roundoff * (2 if d is dt.float64 else 1)
            error = error + units * (1 + units) * size
            free = ~(size * (1 + units) <= d.max_finite) | np.isnan(error)
            return Estimate(d, np.where(nan, math.nan, value), np.where(nan, 0.0, np.where(free, math.inf, error)))

    def cumsum(self, axis: int) -> Estimate:
        """Return prefix sums; the last has as many terms as the axis."""
        with np.errstate(all="ignore"):
            size = np.cumsum(np.abs(np.where(np.isfinite(self.value), self.value, 0)) + self.error, axis)
            nan = np.maximum.accumulate(np.isnan(self.value), axis)
            value, error = np.cumsum(self.value, axis), np.cumsum(self.error, axis)
        return self._bound_sum(value, error, size, nan, self.value.shape[axis])

    def max(self, axes: Axes) -> Estimate:
        """Return the greatest element over axes, which are kept."""
        return replace(
            self, value=self.value.max(axes, keepdims=True, initial=-math.inf), error=self.error.max(axes, keepdims=True, initial=0)
        )

    def matmul(self, other: Estimate, multiply: Callable[[Array, Array], Array] = np.matmul, terms: int | None = None) -> Estimate:
        """Return sums of n products of two operands: each product is rounded, and so is each sum."""
        n = self.value.shape[-1] if terms is None else terms
        d = self.arithmetic
        with np.errstate(all="ignore"):
            value = np.asarray(multiply(self.value, other.value), np.float64)
            nan_a, nan_b = np.isnan(self.value), np.isnan(other.value)
            a, b = (np.abs(np.where(np.isfinite(x.value), x.value, 0)) for x in (self, other))
            ea, eb = (np.where(np.isfinite(x.error), x.error, 0.0) for x in (self, other))
            free = multiply(np.isinf(self.error) * 1.0, np.ones(other.value.shape))
            free = (free + multiply(np.ones(self.value.shape), np.isinf(other.error) * 1.0)) > 0
            size = np.asarray(multiply(a + ea, b + eb), np.float64)
            error = multiply(a, eb) + multiply(ea, b + eb)
            nan = (multiply(nan_a * 1.0, np.ones(other.value.shape)) + multiply(np.ones(self.value.shape), nan_b * 1.0)) > 0
            error = np.where(free, math.inf, error) + n * (d.unit_roundoff * size + d.smallest_subnormal)
            inexact_infinity = ~np.isfinite(value) & ~nan & (error > 0) & (multiply(ea, np.ones(b.shape)) > 0)
            error = np.where(inexact_infinity, math.inf, error)
        return self._bound_sum(value, error, size, np.asarray(nan & ~free), n + 1)

    # Judgement

    def _bounds(self) -> tuple[Array, Array]:
        with np.errstate(all="ignore"):
            sure = np.where(np.isfinite(self.value), self.error, 0.0)
            low, high = self.value - sure, self.value + sure
            if self.dtype.is_float:
                low, high = round_to_dtype(low, self.dtype), round_to_dtype(high, self.dtype)
            else:
                low, high = np.floor(low), np.floor(high)
        return low, high

    def accept(self, result: Array) -> Array:
        """Return per element whether it is right."""
        low, high = self._bounds()
        x = to_float64(result)
        may_be_nan = np.isnan(self.value)
        if self.dtype.finite_only:
            may_be_nan = may_be_nan | np.isinf(low) | np.isinf(high)
        return np.asarray(np.isinf(self.error) | np.where(np.isnan(x), may_be_nan, (low <= x) & (x <= high)))

    def describe(self, k: int) -> str:
        """Describe the expected element `k` in row-major order."""
        low, high = (x.reshape(-1)[k] for x in self._bounds())
        return f"{low:.9g} to {high:.9g}" if low != high else f"{low:.9g}"


def _times(a: Array, b: Array) -> Array:
    """Return products in which an exact zero error stays zero beside infinities."""
    return np.where((a == 0) & np.isfinite(b) | (b == 0), 0.0, a * b)


def _free_unless(x: Array) -> Array:
    """Return an infinite error where an argument is finite, so that its result may overflow, else none."""
    return np.where(np.isfinite(x), math.inf, 0.0)


Answer = ExactAnswer | Estimate


def exact(values: Any, d: DType, either_zero: bool = False) -> ExactAnswer:
    """Return the exact answer of float64 values that are rounded once to a float dtype."""
    return ExactAnswer(store_floats(round_to_dtype(np.asarray(values, np.float64), d), d), either_zero=either_zero)


def scalar(value: float) -> Array:
    """Return a float64 array of shape ()."""
    return np.array(value, np.float64)


def cut(x: Array, slices: Iterable[Any]) -> Array:
    """Return an array that is indexed axis by axis, also if it has none."""
    key: tuple[Any, ...] = (*slices, ...)
    return np.asarray(x[key])


def cut_last(x: Array, slices: Iterable[Any]) -> Array:
    """Return an array whose last axes are indexed."""
    key: tuple[Any, ...] = (..., *slices)
    return np.asarray(x[key])


def expect_same_bits(values: Array) -> ExactAnswer:
    """Return the answer of a movement, which keeps every bit (R28)."""
    return ExactAnswer(values, by_bits=True)


def find_wrong_element(answer: Answer, result: Array) -> str | None:
    """Describe the first difference between an answer and a result, or return None."""
    if DTYPE_OF.get(result.dtype) is not answer.dtype:
        return f"dtype {result.dtype}, expected {answer.dtype}"
    if result.shape != answer.shape:
        return f"shape {result.shape}, expected {answer.shape}"
    wrong = ~answer.accept(result).reshape(-1)
    if not wrong.any():
        return None
    k = int(np.argmax(wrong))
    at = tuple(map(int, np.unravel_index(k, result.shape))) if result.shape else ()
    count = int(np.count_nonzero(wrong))
    return f"element {at} is {result.reshape(-1)[k]}, expected {answer.describe(k)} ({count} of {wrong.size} are wrong)"
