"""Errors in ulp against exact references, as R17 counts them: the unit is the spacing at the correctly rounded result.

References are unevaluated sums high + low of two float64, with `high` the exact value rounded. They come from mpmath at 140 bits
or, for every float32, from NumPy's float64 functions (low = 0), whose error is far below a thousandth of a float32 ulp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath as mp
import numpy as np

Array = Any
#: Bits of the multiple-precision values.
PRECISION = 140


class DoubleDouble(NamedTuple):
    """Unevaluated sums high + low of two float64, element by element."""

    high: Array
    low: Array


def _log2(x: Any) -> Any:
    """Return log2 in multiple precision."""
    return mp.log(x) / mp.log(2)


#: The functions in multiple precision, for finite arguments in their domain only.
EXACT: dict[str, Callable[..., Any]] = {"exp2": lambda x: mp.mpf(2) ** x, "log2": _log2, "sin": mp.sin, "pow": mp.power}
NUMPY: dict[str, Callable[..., Array]] = {"exp2": np.exp2, "log2": np.log2, "sin": np.sin, "pow": np.power}


def evaluate_exactly(name: str, *arguments: Array) -> DoubleDouble:
    """Evaluate a function at each point with mpmath; high is NaN where it has no real value, as log2 of a negative number."""
    rows = [
        _evaluate_exact_row(EXACT[name], row) for row in zip(*(np.asarray(a, np.float64).tolist() for a in arguments), strict=True)
    ]
    return DoubleDouble(np.array([h for h, _ in rows]), np.array([low for _, low in rows]))


def _evaluate_exact_row(f: Callable[..., Any], row: tuple[float, ...]) -> tuple[float, float]:
    """Evaluate a function at one point as an unevaluated sum of two float64."""
    with mp.workprec(PRECISION):
        value = f(*map(mp.mpf, row))
        if not isinstance(value, mp.mpf):
            return float("nan"), 0.0
        high = to_double(value)
        return high, float(value - high) if np.isfinite(high) else 0.0


def to_double(value: Any) -> float:
    """Round an mpmath number once to float64, overflow to inf, subnormals included."""
    if value == 0 or not mp.isfinite(value):
        return float(value)
    exponent = max(int(mp.floor(mp.log(abs(value), 2))) - 52, -1074)
    units = int(mp.nint(mp.ldexp(value, -exponent)))
    try:
        return float(np.ldexp(np.float64(units), exponent)) if units.bit_length() <= 54 else float("inf")
    except OverflowError:
        return float("inf")


def evaluate_in_double(name: str, *arguments: Array) -> DoubleDouble:
    """Evaluate a function with NumPy in float64."""
    with np.errstate(all="ignore"):
        high = NUMPY[name](*(np.asarray(a, np.float64) for a in arguments))
    return DoubleDouble(high, np.zeros_like(high))


def ulp_error(got: Array, want: DoubleDouble) -> Array:
    """Return |got - want| in units of the spacing of got's dtype at `want` rounded to it.

    It is 0 where both are the same inf or NaN, and inf where only one is. A zero of the wrong sign counts as inf where the exact
    result is a zero.
    """
    with np.errstate(all="ignore"):
        rounded = want.high.astype(got.dtype)
        unit = np.spacing(np.abs(rounded)).astype(np.float64)
        error = np.abs((want.high - got.astype(np.float64)) / unit + want.low / unit)
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        wrong_zero = (want.high == 0) & (want.low == 0) & (np.signbit(got) != np.signbit(want.high))
    error = np.where(np.isfinite(rounded), error, np.where(same, 0.0, np.inf))
    return np.where(wrong_zero & ~np.isnan(rounded), np.inf, np.where(np.isnan(error), np.inf, error))
