"""Allowed answers of one element: the canonical bits, and all other right results (R20, R30)."""

from __future__ import annotations

from typing import Literal, NamedTuple

from uops.interp.exact.numbers.formats import FORMATS, Dyadic, FloatFormat
from uops.spec.ir.dtypes import DType, DTypeKind

Level = Literal["strict", "core"]


class AnswerSet(NamedTuple):
    """The set of right results of one element.

    `best` is the canonical bit pattern, correctly rounded where that is defined, and always allowed. `points` are further single
    patterns. `span` is an inclusive interval of float keys (`FloatFormat.key`: numeric order), in which a zero means both zeros.
    `nan` allows every NaN, and `anything` every pattern of the dtype.
    """

    dtype: DType
    best: int
    points: tuple[int, ...] = ()
    span: tuple[int, int] | None = None
    nan: bool = False
    anything: bool = False

    def contains(self, bits: int) -> bool:
        """Return True if a bit pattern is a right result."""
        if bits == self.best or self.anything or bits in self.points:
            return True
        if self.dtype.kind is not DTypeKind.FLOAT:
            return False
        fmt = FORMATS[self.dtype]
        if fmt.is_nan(bits):
            return self.nan
        return self.span is not None and self.span[0] <= fmt.key(bits) <= self.span[1]

    @property
    def is_exact(self) -> bool:
        """True if one bit pattern alone is right."""
        return not (self.anything or self.nan) and (self.span is None or self.span[0] == self.span[1] != 0) and self._points_agree()

    def _points_agree(self) -> bool:
        return all(p == self.best for p in self.points)

    @property
    def value_count_nans_as_one(self) -> int | None:
        """The number of allowed values, all NaNs counted as one; None for *any* (R31)."""
        if self.anything:
            return None
        single = {self.best, *self.points}
        if self.dtype.kind is not DTypeKind.FLOAT:
            return len(single)
        fmt = FORMATS[self.dtype]
        numbers = {b for b in single if not fmt.is_nan(b)}
        some_nan = self.nan or len(numbers) < len(single)
        if self.span is None:
            return len(numbers) + some_nan
        low, high = self.span
        inside = high - low + 1 + (low <= 0 <= high)
        return inside + sum(not low <= fmt.key(b) <= high for b in numbers) + some_nan


def any_nan(fmt: FloatFormat) -> AnswerSet:
    """Return the set of all NaNs."""
    return AnswerSet(fmt.dtype, fmt.nan, nan=True)


def one_of(dtype: DType, first: int, *others: int) -> AnswerSet:
    """Return the set of a few bit patterns; a NaN among them stands for every NaN."""
    nan = dtype.kind is DTypeKind.FLOAT and any(FORMATS[dtype].is_nan(b) for b in (first, *others))
    return AnswerSet(dtype, first, tuple(b for b in others if b != first), nan=nan)


def anything(dtype: DType, best: int) -> AnswerSet:
    """Return the set of every bit pattern of the dtype."""
    return AnswerSet(dtype, best, anything=True)


def float_result(fmt: FloatFormat, bits: int) -> AnswerSet:
    """Return the set of these bits, or of every NaN if they are a NaN (R20: all NaNs are one class)."""
    return AnswerSet(fmt.dtype, bits, nan=fmt.is_nan(bits))


def unite_in_float_hull(set_with_best: AnswerSet, added: AnswerSet) -> AnswerSet:
    """Return the least interval with flags that holds both float sets, with the best value of `set_with_best`."""
    if set_with_best.anything or added.anything:
        return anything(set_with_best.dtype, set_with_best.best)
    fmt = FORMATS[set_with_best.dtype]
    patterns = (set_with_best.best, added.best, *set_with_best.points, *added.points)
    keys = [fmt.key(p) for p in patterns if not fmt.is_nan(p)]
    keys += [k for s in (set_with_best.span, added.span) if s for k in s]
    nan = set_with_best.nan or added.nan or any(fmt.is_nan(p) for p in patterns)
    return AnswerSet(set_with_best.dtype, set_with_best.best, span=(min(keys), max(keys)) if keys else None, nan=nan)


def floats_between(fmt: FloatFormat, best: int, low: Dyadic, high: Dyadic) -> AnswerSet:
    """Return the set of every float between the dyadic numbers `low` and `high` (m, e), and `best`.

    A bound at or above 2**(emax + 1) includes infinity. In fp8e4m3, which has none, a bound at or above 480 includes NaN instead.
    """
    lo, hi = fmt.key_ceil(*low), fmt.key_floor(*high)
    nan = fmt.is_nan(best)
    if not nan:
        lo, hi = min(lo, fmt.key(best)), max(hi, fmt.key(best))
    if not fmt.has_inf:
        nan = nan or hi > fmt.max_mag or lo < -fmt.max_mag
        lo, hi = max(lo, -fmt.max_mag), min(hi, fmt.max_mag)
    return AnswerSet(fmt.dtype, best, span=(lo, hi) if lo <= hi else None, nan=nan)


def floats_within_ulps(
    fmt: FloatFormat, sign: int, significand: int, exponent: int, ulps: int, extra_error_exponent: int | None = None
) -> AnswerSet:
    """Return the set of all floats within `ulps` units in the last place of a number (R17).

    The number is (-1)**sign * significand * 2**exponent, as `FloatFormat.round_without_overflow` gives it. The unit is the spacing
    there, in the last binade for a number beyond it. Infinity counts as 2**(emax + 1), and the NaN of fp8e4m3 as 480.
    `extra_error_exponent` k widens the set by 2**k more.
    """
    step = min(exponent, fmt.top)
    m = -(significand << (exponent - step)) if sign else significand << (exponent - step)
    reach = ulps
    if extra_error_exponent is not None:
        fine = min(step, extra_error_exponent)
        m, reach, step = m << (step - fine), (ulps << (step - fine)) + (1 << (extra_error_exponent - fine)), fine
    return floats_between(fmt, fmt.encode(sign, significand, exponent), (m - reach, step), (m + reach, step))
