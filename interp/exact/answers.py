"""Allowed answers of one element (R20, R30): the canonical bits, and what else is right."""

from __future__ import annotations

from typing import Literal, NamedTuple

from uops.interp.exact.numbers.formats import FORMATS, Format
from uops.spec.ir.dtypes import DType, Kind

Level = Literal["strict", "core"]


class Answer(NamedTuple):
    """The set of right results of one element.

    `best` is the canonical bit pattern (correctly rounded where that is defined) and always allowed. `points` are further single
    patterns, `span` an inclusive interval of float keys (`Format.key`: numeric order, a zero in it means both zeros), `nan` allows
    every NaN, `anything` every pattern of the dtype.
    """

    dtype: DType
    best: int
    points: tuple[int, ...] = ()
    span: tuple[int, int] | None = None
    nan: bool = False
    anything: bool = False

    def contains(self, bits: int) -> bool:
        """Whether a bit pattern is a right result."""
        if bits == self.best or self.anything or bits in self.points:
            return True
        if self.dtype.kind is not Kind.FLOAT:
            return False
        fmt = FORMATS[self.dtype]
        if fmt.is_nan(bits):
            return self.nan
        return self.span is not None and self.span[0] <= fmt.key(bits) <= self.span[1]

    @property
    def exact(self) -> bool:
        """Whether one bit pattern alone is right."""
        return not (self.anything or self.nan) and (self.span is None or self.span[0] == self.span[1] != 0) and self._points_agree()

    def _points_agree(self) -> bool:
        return all(p == self.best for p in self.points)

    @property
    def width(self) -> int | None:
        """How many values are allowed, all NaNs counted as one; None for *any* (R31)."""
        if self.anything:
            return None
        single = {self.best, *self.points}
        if self.dtype.kind is not Kind.FLOAT:
            return len(single)
        fmt = FORMATS[self.dtype]
        numbers = {b for b in single if not fmt.is_nan(b)}
        some_nan = self.nan or len(numbers) < len(single)
        if self.span is None:
            return len(numbers) + some_nan
        low, high = self.span
        inside = high - low + 1 + (low <= 0 <= high)
        return inside + sum(not low <= fmt.key(b) <= high for b in numbers) + some_nan


def any_nan(fmt: Format) -> Answer:
    return Answer(fmt.dtype, fmt.nan, nan=True)


def either(dtype: DType, first: int, *others: int) -> Answer:
    """One of a few bit patterns; a NaN among them stands for every NaN."""
    nan = dtype.kind is Kind.FLOAT and any(FORMATS[dtype].is_nan(b) for b in (first, *others))
    return Answer(dtype, first, tuple(b for b in others if b != first), nan=nan)


def anything(dtype: DType, best: int) -> Answer:
    return Answer(dtype, best, anything=True)


def settled(fmt: Format, bits: int) -> Answer:
    """The result of float arithmetic: these bits, or any NaN if it is one (R20)."""
    return Answer(fmt.dtype, bits, nan=fmt.is_nan(bits))


def hull(a: Answer, b: Answer) -> Answer:
    """The least interval-with-flags that holds both float answers; `best` is a's."""
    if a.anything or b.anything:
        return anything(a.dtype, a.best)
    fmt = FORMATS[a.dtype]
    patterns = (a.best, b.best, *a.points, *b.points)
    keys = [fmt.key(p) for p in patterns if not fmt.is_nan(p)]
    keys += [k for s in (a.span, b.span) if s for k in s]
    nan = a.nan or b.nan or any(fmt.is_nan(p) for p in patterns)
    return Answer(a.dtype, a.best, span=(min(keys), max(keys)) if keys else None, nan=nan)


def bounded(fmt: Format, best: int, low: tuple[int, int], high: tuple[int, int]) -> Answer:
    """Every float between the dyadic numbers `low` and `high` (m, e), and `best`.

    A bound at or above 2**(emax + 1) includes infinity; in fp8e4m3, which has none, it includes NaN instead.
    """
    lo, hi = fmt.key_ceil(*low), fmt.key_floor(*high)
    nan = fmt.is_nan(best)
    if not nan:
        lo, hi = min(lo, fmt.key(best)), max(hi, fmt.key(best))
    if not fmt.has_inf:
        nan = nan or hi > fmt.max_mag or lo < -fmt.max_mag
        lo, hi = max(lo, -fmt.max_mag), min(hi, fmt.max_mag)
    return Answer(fmt.dtype, best, span=(lo, hi) if lo <= hi else None, nan=nan)


def near(fmt: Format, sign: int, r: int, q: int, ulps: int, absolute: int | None = None) -> Answer:
    """(-1)**sign * r * 2**q, as `Format.grid` gives it, and all floats within `ulps` units in the last place of it (R17).

    The unit is the spacing at that value, in the last binade for a value beyond it; infinity counts as 2**(emax + 1).
    `absolute` = k widens by 2**k more.
    """
    step = min(q, fmt.top)
    m = -(r << (q - step)) if sign else r << (q - step)
    reach = ulps
    if absolute is not None:
        fine = min(step, absolute)
        m, reach, step = m << (step - fine), (ulps << (step - fine)) + (1 << (absolute - fine)), fine
    return bounded(fmt, fmt.encode(sign, r, q), (m - reach, step), (m + reach, step))
