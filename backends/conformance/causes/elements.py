"""Causes that are properties of elements: how the given value differs from the expected one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends.arrays import is_subnormal
from uops.backends.conformance.judge import bits_of, ulp_distance
from uops.spec.ir.dtypes import DType

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
#: Greatest distance, in units in the last place, at which a result counts as inaccurate and not as another value. For narrow floats
#: it is less: a quarter of the value.
INACCURATE_ULP = 1024


@dataclass(frozen=True, slots=True)
class ElementCause:
    """A cause: its id, a sentence about the backend, and whether wrong elements have it.

    `holds` takes the expected and the given elements, flat and of one dtype, and returns a mask. One that is `weak` may hold by
    chance, so it must hold for all elements that are left.
    """

    id: str
    text: str
    holds: Callable[[Array, Array, DType], Mask]
    weak: bool = False


def _is_nan(a: Array) -> Mask:
    return np.asarray(a != a)


def _never(a: Array) -> Mask:
    return np.zeros(a.shape, np.bool_)


def _floats_alone(test: Callable[[Array, Array, DType], Mask]) -> Callable[[Array, Array, DType], Mask]:
    return lambda want, got, d: np.asarray(test(want, got, d)) if d.is_float else _never(got)


def _integers_alone(test: Callable[[Array, Array, DType], Mask]) -> Callable[[Array, Array, DType], Mask]:
    return lambda want, got, d: np.asarray(test(want, got, d)) if d.is_integer and d.bits <= 64 else _never(got)


def _saturates_float(want: Array, got: Array, d: DType) -> Mask:
    expected, given = want.astype(np.float64), got.astype(np.float64)
    overflows = np.isnan(expected) if d.finite_only else np.isinf(expected) & (np.sign(expected) == np.sign(given))
    return np.asarray(overflows & (np.abs(given) == d.max_finite))


def _overflows_early(want: Array, got: Array, d: DType) -> Mask:
    finite, given = np.isfinite(want.astype(np.float64)), got.astype(np.float64)
    return np.asarray(finite & ~np.isfinite(given) & ~np.isnan(given))


def _is_extreme_integer(want: Array, got: Array, d: DType) -> Mask:
    return np.asarray((got == d.max) | ((got == d.min) if d.is_signed else False))


def _is_one_off(want: Array, got: Array, d: DType) -> Mask:
    distance = got.astype(object) - want.astype(object)
    return np.asarray((distance == 1) | (distance == -1), np.bool_)


def measure_inaccuracy_limit(d: DType) -> int:
    """Return the greatest distance, in units in the last place, at which a float counts as inaccurate."""
    return int(min(INACCURATE_ULP, 2 ** (d.man_bits - 2)))


def _is_near(want: Array, got: Array, d: DType) -> Mask:
    return np.asarray(ulp_distance(want, got, d.bits) <= measure_inaccuracy_limit(d))


def _has_other_payload(want: Array, got: Array, d: DType) -> Mask:
    return np.asarray(_is_nan(want) & _is_nan(got) & (bits_of(want) != bits_of(got)))


def _loses_nan(want: Array, got: Array, d: DType) -> Mask:
    return _is_nan(want) & ~_is_nan(got)


def _makes_nan(want: Array, got: Array, d: DType) -> Mask:
    return ~_is_nan(want) & _is_nan(got)


def _are_both_zero(want: Array, got: Array, d: DType) -> Mask:
    return np.asarray((want == 0) & (got == 0))


def _loses_subnormal(want: Array, got: Array, d: DType) -> Mask:
    return np.asarray((got == 0) & is_subnormal(want, d))


def _loses_smallest_normal(want: Array, got: Array, d: DType) -> Mask:
    return np.asarray((got == 0) & (np.abs(want.astype(np.float64)) == d.smallest_normal))


def _repeats_right_element_before(want: Array, got: Array, d: DType) -> Mask:
    expected, given = bits_of(want).reshape(-1), bits_of(got).reshape(-1)
    repeats = np.zeros(given.shape, np.bool_)
    for k in np.flatnonzero(expected != given):
        repeats[k] = k > 0 and given[k] == given[k - 1] and (given[k - 1] == expected[k - 1] or repeats[k - 1])
    return repeats


# fmt: off
#: All causes of this kind, in the order in which they are asked; the strong ones first.
ELEMENT_CAUSES = (
    ElementCause("saturated-float", "a result beyond the greatest number becomes that number", _floats_alone(_saturates_float)),
    ElementCause("nan-lost", "a number is given where the result is NaN", _floats_alone(_loses_nan)),
    ElementCause("nan-made", "NaN is given where the result is a number", _floats_alone(_makes_nan)),
    ElementCause("nan-payload", "a NaN has other bits than the expected one (R28)", _floats_alone(_has_other_payload)),
    ElementCause("zero-sign", "a zero has the other sign", _floats_alone(_are_both_zero)),
    ElementCause("subnormal-result", "a subnormal result becomes zero", _floats_alone(_loses_subnormal)),
    ElementCause("smallest-normal-result", "a result that is the smallest normal number becomes zero",
                 _floats_alone(_loses_smallest_normal)),
    ElementCause("early-infinity", "infinity is given where the result is finite", _floats_alone(_overflows_early)),
    ElementCause("repeated", "a right element stands at the places behind it, too, as if an update read what it has written",
                 _repeats_right_element_before, weak=True),
    ElementCause("inaccurate", f"a result is off by more than is allowed, by at most {INACCURATE_ULP} ulp",
                 _floats_alone(_is_near), weak=True),
    ElementCause("one-off", "an integer is greater or less by 1", _integers_alone(_is_one_off), weak=True),
    ElementCause("extreme-integer", "the least or the greatest integer is given, as where a conversion saturates or overflows",
                 _integers_alone(_is_extreme_integer), weak=True),
)
# fmt: on


#: Fewest distinct elements that may count as misplaced.
_LEAST_DISTINCT = 4


def are_elements_misplaced(want: Array, got: Array) -> bool:
    """Return True if the given elements are the expected ones, bit by bit, at other places, and there are several distinct ones."""
    expected, given = bits_of(want).reshape(-1), bits_of(got).reshape(-1)
    if len(np.unique(expected)) < _LEAST_DISTINCT or (expected == given).all():
        return False
    return bool((np.sort(expected) == np.sort(given)).all())
