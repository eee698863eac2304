"""Exact sums of floats, rounded once (R119, R129: Wmma's value, AtomicAdd)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from uops.interp.ops.rounding import NARROW
from uops.interp.tensor.storage import Array
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType


def sum_rounding_once(terms: Sequence[float], d: DType) -> Array:
    """Return the exact sum of values of the float dtype `d`, rounded once; where some are not finite, the sum of those."""
    special = [x for x in terms if not math.isfinite(x)]
    if special:
        total = sum(special)
    elif d is dt.float64:
        total = round_fraction_to_float64(sum(map(Fraction, terms), Fraction(0)))
    else:
        total = round_sum_to_odd(terms)
    return NARROW[d](np.asarray(total, np.float64))


def round_fraction_to_float64(x: Fraction) -> float:
    """Round `x` to float64, to infinity where it is beyond."""
    try:
        return float(x)
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def round_sum_to_odd(terms: Sequence[float]) -> float:
    """Return the exact sum of finite terms rounded to odd, if no partial sum is beyond float64.

    Where the sum is no float64, the result is the neighbour with an odd last bit. So a second rounding to fewer bits sees on
    which side of a midpoint the sum lies.
    """
    near = math.fsum(terms)
    rest = math.fsum([*terms, -near])
    if rest == 0.0 or int(np.float64(near).view(np.int64)) & 1:
        return near
    return math.nextafter(near, math.inf if rest > 0 else -math.inf)
