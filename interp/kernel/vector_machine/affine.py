"""Integer values that are affine in the loop counters: base + sum of coefficient * counter, without an array.

The counters are those of the vectorised axes around a node, counted from 0, each with its extent. Index values and machine
integers are affine while every value of theirs fits their dtype, so that no wrapping hides in the sum (R05, R08). An `Affine`
knows its exact extremes: they are taken at corners of the box of counters, which is not empty.

`RULES[op]` takes affine operands and gives an affine result, a decided bool, or None where the result is neither; the caller then
computes on arrays. Idiv and Mod round down (R02), and their divisors here are positive constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from uops.interp.kernel.vector_machine.limits import GiveUp
from uops.interp.tensor.storage import Array
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op

_INT64 = 1 << 63
_MACHINE = frozenset(dt.INTS)


class Affine:
    """`coefficients` has one entry per axis, outermost first; axes beyond its end have 0. `lo` and `hi` are attained."""

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

    def values(self, extents: Sequence[int]) -> Array:
        """Its values as int64: one axis per coefficient, of size 1 where it is 0; no axes for a constant."""
        if self.array is None:
            self.array = self._materialised(extents)
        return self.array

    def _materialised(self, extents: Sequence[int]) -> Array:
        if self.lo < -_INT64 or self.hi >= _INT64:
            raise GiveUp("an index value beyond 64 bits")
        found: Array = np.array(self.base, np.int64)
        depth = len(self.coefficients)
        for axis, c in enumerate(self.coefficients):
            if c and extents[axis] > 1:
                step = (np.arange(extents[axis], dtype=np.int64) * c).reshape((-1, *(1,) * (depth - axis - 1)))
                found = found + step
        return found.reshape((1,) * (depth - found.ndim) + found.shape) if found.ndim else found


def constant(value: int) -> Affine:
    return Affine(value, (), ())


def combined(a: Affine, b: Affine, sign: int, extents: Sequence[int]) -> Affine:
    """a + sign * b."""
    x, y = a.coefficients, b.coefficients
    short, long = len(x), len(y)
    if short < long:
        x = x + (0,) * (long - short)
    elif long < short:
        y = y + (0,) * (short - long)
    return Affine(a.base + sign * b.base, tuple([p + sign * q for p, q in zip(x, y)]), extents)


def scaled(a: Affine, factor: int, extents: Sequence[int]) -> Affine:
    return Affine(a.base * factor, tuple([c * factor for c in a.coefficients]), extents)


def fits(a: Affine, d: DType) -> bool:
    """Whether the dtype has all its values, without wrapping."""
    return d is dt.index or (d in _MACHINE and d.min <= a.lo and a.hi <= d.max)


def is_constant(a: Affine) -> bool:
    return a.lo == a.hi


# Rules

Operands = Sequence[Affine]
Rule = Callable[[Operands, Sequence[int]], "Affine | bool | None"]


def _mul(xs: Operands, extents: Sequence[int]) -> Affine | None:
    a, b = xs
    if is_constant(b):
        return scaled(a, b.lo, extents)
    return scaled(b, a.lo, extents) if is_constant(a) else None


def _mulacc(xs: Operands, extents: Sequence[int]) -> Affine | None:
    product = _mul(xs[:2], extents)
    return None if product is None else combined(product, xs[2], 1, extents)


def _shl(xs: Operands, extents: Sequence[int]) -> Affine | None:
    a, count = xs
    return scaled(a, 1 << count.lo, extents) if is_constant(count) and 0 <= count.lo < 64 else None


def _shr(xs: Operands, extents: Sequence[int]) -> Affine | None:
    a, count = xs
    return _divided(a, 1 << count.lo, extents, quotient=True) if is_constant(count) and 0 <= count.lo < 64 else None


def _by(quotient: bool) -> Rule:
    def rule(xs: Operands, extents: Sequence[int]) -> Affine | None:
        a, b = xs
        return _divided(a, b.lo, extents, quotient=quotient) if is_constant(b) and b.lo > 0 else None

    return rule


def _divided(a: Affine, c: int, extents: Sequence[int], *, quotient: bool) -> Affine | None:
    """a = c * whole + rest; where all of `rest` lies between two neighbouring multiples of c, both parts are affine."""
    rest = Affine(a.base % c, tuple([k if k % c else 0 for k in a.coefficients]), extents)
    carry = rest.lo // c
    if rest.hi // c != carry:
        return None
    if quotient:
        return Affine(a.base // c + carry, tuple([0 if k % c else k // c for k in a.coefficients]), extents)
    return Affine(rest.base - carry * c, rest.coefficients, extents)


def _decided(below: bool | None, equal: bool | None, above: bool | None) -> Rule:
    """A comparison of a with b whose outcome is known for a < b, a = b and a > b; decided where a - b has one sign."""

    def rule(xs: Operands, extents: Sequence[int]) -> bool | None:
        difference = combined(xs[0], xs[1], -1, extents)
        possible = set()
        if difference.lo < 0:
            possible.add(below)
        if difference.hi > 0:
            possible.add(above)
        if difference.lo <= 0 <= difference.hi:
            possible.add(equal)
        return possible.pop() if len(possible) == 1 else None

    return rule


# fmt: off
RULES: dict[Op, Rule] = {
    Op.ADD:    lambda xs, extents: combined(xs[0], xs[1], 1, extents),
    Op.SUB:    lambda xs, extents: combined(xs[0], xs[1], -1, extents),
    Op.NEG:    lambda xs, extents: scaled(xs[0], -1, extents),
    Op.MUL:    _mul,
    Op.MULACC: _mulacc,
    Op.SHL:    _shl,
    Op.SHR:    _shr,
    Op.IDIV:   _by(True),
    Op.MOD:    _by(False),
    Op.CMPLT:  _decided(True, False, False),
    Op.CMPLE:  _decided(True, True, False),
    Op.CMPGT:  _decided(False, False, True),
    Op.CMPGE:  _decided(False, True, True),
    Op.CMPEQ:  _decided(False, True, False),
    Op.CMPNE:  _decided(True, False, True),
}
# fmt: on
