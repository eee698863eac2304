"""Integer values that are affine in the loop counters: base + sum of coefficient * counter, without an array.

The counters are those of the axes around a node, counted from 0, each with its extent. Index values and fixed-width integers
are affine while every value fits their dtype, so that no wrapping hides in the sum (R05, R08). An `AffineValue` knows its exact
extremes, which are taken at corners of the box of counters; the box is not empty.

`RULES[op]` takes affine operands and gives an affine result, a decided bool, or None where the result is neither. The caller
then computes on arrays. Idiv and Mod round down (R02), and their divisors here are positive constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from uops.interp.kernel.vector_machine.limits import GiveUp
from uops.interp.tensor.storage import Array
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op

#: The first magnitude that int64 does not hold.
_INT64 = 1 << 63
_FIXED_WIDTH = frozenset(dt.INTS)
#: The dtypes of integers, which may be affine.
INTEGERS = _FIXED_WIDTH | {dt.index}


class AffineValue:
    """An integer that is affine in the loop counters.

    `coefficients` has one entry per axis, outermost first; axes beyond its end have 0. `lo` and `hi` are attained.
    """

    __slots__ = ("array", "base", "coefficients", "hi", "lo")

    def __init__(self, base: int, coefficients: tuple[int, ...], extents: Sequence[int]) -> None:
        lo = hi = base
        for c, n in zip(coefficients, extents):
            if c > 0:
                hi += c * (n - 1)
            elif c < 0:
                lo += c * (n - 1)
        self.base = base
        self.coefficients = coefficients
        self.lo = lo
        self.hi = hi
        self.array: Array | None = None

    def get_or_compute_broadcastable_values(self, extents: Sequence[int]) -> Array:
        """Return the values as int64: one axis per coefficient, of size 1 where it is 0; no axes for a constant."""
        if self.array is None:
            self.array = self._compute_broadcastable_values(extents)
        return self.array

    def _compute_broadcastable_values(self, extents: Sequence[int]) -> Array:
        """Compute the values as int64. Raises GiveUp beyond 64 bits."""
        if self.lo < -_INT64 or self.hi >= _INT64:
            raise GiveUp("an index value beyond 64 bits")
        values: Array = np.array(self.base, np.int64)
        depth = len(self.coefficients)
        for axis, c in enumerate(self.coefficients):
            if c and extents[axis] > 1:
                step = (np.arange(extents[axis], dtype=np.int64) * c).reshape((-1, *(1,) * (depth - axis - 1)))
                values = values + step
        return values.reshape((1,) * (depth - values.ndim) + values.shape) if values.ndim else values


def affine_constant(value: int) -> AffineValue:
    """Return a constant."""
    return AffineValue(value, (), ())


def add_affine(a: AffineValue, b: AffineValue, sign: int, extents: Sequence[int]) -> AffineValue:
    """Return a + sign * b."""
    x, y = a.coefficients, b.coefficients
    short, long = len(x), len(y)
    if short < long:
        x = x + (0,) * (long - short)
    elif long < short:
        y = y + (0,) * (short - long)
    return AffineValue(a.base + sign * b.base, tuple([p + sign * q for p, q in zip(x, y)]), extents)


def scale_affine(a: AffineValue, factor: int, extents: Sequence[int]) -> AffineValue:
    """Return a * factor."""
    return AffineValue(a.base * factor, tuple([c * factor for c in a.coefficients]), extents)


def fits_dtype(a: AffineValue, d: DType) -> bool:
    """Return True if the dtype has all values of `a`, without wrapping."""
    return d is dt.index or (d in _FIXED_WIDTH and d.min <= a.lo and a.hi <= d.max)


def is_constant(a: AffineValue) -> bool:
    """Return True if `a` has one value."""
    return a.lo == a.hi


# Rules

Operands = Sequence[AffineValue]
#: (operands, extents of the axes) -> the result, None where it is not affine.
Rule = Callable[[Operands, Sequence[int]], "AffineValue | bool | None"]


def _mul(operands: Operands, extents: Sequence[int]) -> AffineValue | None:
    a, b = operands
    if is_constant(b):
        return scale_affine(a, b.lo, extents)
    return scale_affine(b, a.lo, extents) if is_constant(a) else None


def _mulacc(operands: Operands, extents: Sequence[int]) -> AffineValue | None:
    product = _mul(operands[:2], extents)
    return None if product is None else add_affine(product, operands[2], 1, extents)


def _shl(operands: Operands, extents: Sequence[int]) -> AffineValue | None:
    a, count = operands
    return scale_affine(a, 1 << count.lo, extents) if is_constant(count) and 0 <= count.lo < 64 else None


def _shr(operands: Operands, extents: Sequence[int]) -> AffineValue | None:
    a, count = operands
    return (
        _quotient_or_remainder_by_constant(a, 1 << count.lo, extents, quotient=True)
        if is_constant(count) and 0 <= count.lo < 64
        else None
    )


def _make_division_rule(is_quotient: bool) -> Rule:
    """Return the rule of Idiv (`is_quotient`) or Mod."""

    def divide(operands: Operands, extents: Sequence[int]) -> AffineValue | None:
        a, b = operands
        return _quotient_or_remainder_by_constant(a, b.lo, extents, quotient=is_quotient) if is_constant(b) and b.lo > 0 else None

    return divide


def _quotient_or_remainder_by_constant(
    a: AffineValue, divisor: int, extents: Sequence[int], *, quotient: bool
) -> AffineValue | None:
    """Return a Idiv c or a Mod c.

    a = c * whole + remainder. Where all of the remainder lies between two neighbouring multiples of c, both parts are affine.
    """
    remainder = AffineValue(a.base % divisor, tuple([k if k % divisor else 0 for k in a.coefficients]), extents)
    carry = remainder.lo // divisor
    if remainder.hi // divisor != carry:
        return None
    if quotient:
        return AffineValue(a.base // divisor + carry, tuple([0 if k % divisor else k // divisor for k in a.coefficients]), extents)
    return AffineValue(remainder.base - carry * divisor, remainder.coefficients, extents)


def _make_comparison_rule(below: bool | None, equal: bool | None, above: bool | None) -> Rule:
    """Return the rule of a comparison with these results for a < b, a = b and a > b; decided where a - b has one sign."""

    def decide_comparison(operands: Operands, extents: Sequence[int]) -> bool | None:
        difference = add_affine(operands[0], operands[1], -1, extents)
        possible = set()
        if difference.lo < 0:
            possible.add(below)
        if difference.hi > 0:
            possible.add(above)
        if difference.lo <= 0 <= difference.hi:
            possible.add(equal)
        return possible.pop() if len(possible) == 1 else None

    return decide_comparison


# fmt: off
#: op -> rule.
RULES: dict[Op, Rule] = {
    Op.ADD:    lambda xs, extents: add_affine(xs[0], xs[1], 1, extents),
    Op.SUB:    lambda xs, extents: add_affine(xs[0], xs[1], -1, extents),
    Op.NEG:    lambda xs, extents: scale_affine(xs[0], -1, extents),
    Op.MUL:    _mul,
    Op.MULACC: _mulacc,
    Op.SHL:    _shl,
    Op.SHR:    _shr,
    Op.IDIV:   _make_division_rule(True),
    Op.MOD:    _make_division_rule(False),
    Op.CMPLT:  _make_comparison_rule(True, False, False),
    Op.CMPLE:  _make_comparison_rule(True, True, False),
    Op.CMPGT:  _make_comparison_rule(False, False, True),
    Op.CMPGE:  _make_comparison_rule(False, True, True),
    Op.CMPEQ:  _make_comparison_rule(False, True, False),
    Op.CMPNE:  _make_comparison_rule(True, False, True),
}
# fmt: on
