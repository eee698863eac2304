"""Integers that depend on loops and constants alone: numbers for the loops that are enumerated, sums over counters for the others.

An `Integer` has one number per iteration of the enumerated loops and per lane, and a factor for each counter of a loop that is not
enumerated: numbers + factor * counter + .... A condition on such a sum is decided by the bounds of the counters. Raises
NotEvaluable where that does not decide it.
Spec: R01 to R03 (division floors; by 0 it gives 0), R05 (integer overflow wraps), R08 (index).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.ops import Op

Numbers = npt.NDArray[np.int64]
Element = TypeVar("Element", bound=np.generic)
#: The greatest magnitude of a number or of the bounds of a sum, so that sums and products of a few do not leave int64.
_MAX = 1 << 61


def with_rank(x: npt.NDArray[Element], rank: int) -> npt.NDArray[Element]:
    """Return an array with axes of extent 1 at its end, `rank` axes in all."""
    return x.reshape((*x.shape, *(1,) * (rank - x.ndim)))


class NotEvaluable(Exception):
    """A text cannot be evaluated on fingerprints; the message is the reason."""


class UndecidedCondition(NotEvaluable):
    """A condition on `counters` of loops that are not enumerated holds in some iterations only.

    If their quotients by some numbers are sums, `radices` has these numbers.
    """

    def __init__(self, message: str, *sums: Integer, divisor: Numbers | None = None) -> None:
        super().__init__(message)
        self.counters = frozenset(c for x in sums for c, f in x.factors.items() if f.any())
        self.radices: dict[Counter, int] = {}
        for c, f in ((c, f) for x in sums for c, f in x.factors.items()) if divisor is not None else ():
            quotients = divisor // np.where(f == 0, 1, f)
            if quotients.min() == quotients.max() > 1 and (f * quotients == divisor).all():
                self.radices[c] = int(quotients.max())


class DependsOnCounter(NotEvaluable):
    """A position or condition must be a number and depends on `counters` of loops that are not enumerated."""

    def __init__(self, counters: frozenset[Counter]) -> None:
        super().__init__("a position depends on a loop that is not enumerated")
        self.counters = counters


class NeedsIterations(NotEvaluable):
    """Conditions and positions, `reasons`, need more iterations."""

    def __init__(self, reasons: Sequence[UndecidedCondition | DependsOnCounter]) -> None:
        super().__init__(str(reasons[0]))
        self.reasons = reasons


class Counter(NamedTuple):
    """The counter of a loop that is not enumerated, with its least and greatest value. Those of sums have negative numbers."""

    number: int
    low: int
    high: int


class Integer(NamedTuple):
    """A sum `numbers` + `factors[c]` * c + ... for each iteration and lane."""

    numbers: Numbers
    factors: Mapping[Counter, Numbers] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the numbers and factors together."""
        if not self.factors:
            return self.numbers.shape
        return np.broadcast_shapes(self.numbers.shape, *(f.shape for f in self.factors.values()))

    def map_arrays(self, change: Callable[[Numbers], Numbers]) -> Integer:
        """Return the sum with `change` applied to all arrays."""
        return Integer(change(self.numbers), {c: change(f) for c, f in self.factors.items()})

    def bounds(self) -> tuple[Numbers, Numbers]:
        """Return the least and greatest value at each iteration and lane."""
        low = high = self.numbers
        for c, f in self.factors.items():
            ends = f * np.int64(c.low), f * np.int64(c.high)
            low, high = low + np.minimum(*ends), high + np.maximum(*ends)
        if low.size and (low.min() < -_MAX or high.max() > _MAX):
            raise NotEvaluable("an integer of more than 61 bits")
        return low, high

    def require_numbers(self) -> Numbers:
        """Return the numbers of a sum without counters. Raises DependsOnCounter for others."""
        used = frozenset(c for c, f in self.factors.items() if f.any())
        if used:
            raise DependsOnCounter(used)
        return self.numbers


def without_zero_factors(x: Integer) -> Integer:
    """Drop the counters that have no effect."""
    return Integer(x.numbers, {c: f for c, f in x.factors.items() if f.any()}) if x.factors else x


def add(a: Integer, b: Integer, sign: int = 1) -> Integer:
    """Return a sum, or a difference if `sign` is -1."""
    factors = dict(a.factors)
    for c, f in b.factors.items():
        factors[c] = factors[c] + sign * f if c in factors else sign * f
    return without_zero_factors(Integer(a.numbers + sign * b.numbers, factors))


def multiply(a: Integer, b: Integer) -> Integer:
    """Return a product, of which one factor has no counters."""
    if a.factors and b.factors:
        raise NotEvaluable("a product of two counters")
    if b.factors:
        a, b = b, a
    return without_zero_factors(a.map_arrays(lambda x: x * b.numbers))


def divide(a: Integer, b: Integer) -> tuple[Integer, Integer]:
    """Return quotient and remainder by a number. Multiples of it are taken out of a sum; the rest must have one quotient."""
    if b.factors:
        raise NotEvaluable("a division by a counter")
    d = b.numbers
    if not a.factors:
        quotient = np.where(d == 0, 0, a.numbers // np.where(d == 0, 1, d)).astype(np.int64)
        return Integer(quotient), Integer(a.numbers - quotient * d)
    if not (d > 0).all():
        raise NotEvaluable("a division of a counter by no positive number")
    taken = {c: np.where(f % d == 0, f // d, 0).astype(np.int64) for c, f in a.factors.items()}
    rest = without_zero_factors(Integer(a.numbers, {c: f - taken[c] * d for c, f in a.factors.items()}))
    low, high = rest.bounds()
    first = low // d
    if not (first == high // d).all():
        raise UndecidedCondition("a quotient of counters is no sum", rest, divisor=d)
    return without_zero_factors(Integer(first, taken)), add(rest, Integer(first * d), -1)


def _compare(decide: Callable[[Any, Any, Any, Any], tuple[Any, Any]]) -> Callable[[Integer, Integer], Integer]:
    """Return a comparison, from a function of both bounds that gives where it surely holds and where it surely fails."""

    def compare(a: Integer, b: Integer) -> Integer:
        difference = add(a, b, -1) if a.factors and b.factors else None
        (a_low, a_high), (b_low, b_high) = a.bounds(), b.bounds()
        if difference is not None:
            (a_low, a_high), (b_low, b_high) = difference.bounds(), Integer(np.zeros(1, np.int64)).bounds()
        holds, fails = decide(a_low, a_high, b_low, b_high)
        if not (holds | fails).all():
            raise UndecidedCondition("a condition holds in some iterations only", a, b)
        return Integer(np.asarray(holds, np.int64))

    return compare


def _extreme(is_greatest: bool) -> Callable[[Integer, Integer], Integer]:
    def choose(a: Integer, b: Integer) -> Integer:
        if not a.factors and not b.factors:
            return Integer(np.maximum(a.numbers, b.numbers) if is_greatest else np.minimum(a.numbers, b.numbers))
        less = compare_integers(Op.CMPLT, a, b)
        return choose_integers(less.numbers != 0, b, a) if is_greatest else choose_integers(less.numbers != 0, a, b)

    return choose


def choose_integers(condition: npt.NDArray[np.bool_], a: Integer, b: Integer) -> Integer:
    """Return `a` where the condition holds, else `b`."""
    zero = np.int64(0)
    factors = {c: np.where(condition, a.factors.get(c, zero), b.factors.get(c, zero)) for c in {**a.factors, **b.factors}}
    return without_zero_factors(Integer(np.where(condition, a.numbers, b.numbers), factors))


def _on_numbers(compute: Callable[..., Any]) -> Callable[..., Integer]:
    return lambda *operands: Integer(np.asarray(compute(*(x.require_numbers() for x in operands)), np.int64))


def _shift(a: Integer, b: Integer, is_left: bool) -> Integer:
    counts = b.require_numbers()
    if not ((counts >= 0) & (counts < 61)).all():
        raise NotEvaluable("a shift by more bits than a number has")
    power = Integer(np.int64(1) << counts)
    return multiply(a, power) if is_left else divide(a, power)[0]


def _bitwise_and(a: Integer, b: Integer) -> Integer:
    if b.factors:
        a, b = b, a
    if a.factors and not b.factors and (b.numbers >= 0).all() and not (b.numbers & (b.numbers + 1)).any():
        return divide(a, Integer(b.numbers + 1))[1]
    return _on_numbers(np.bitwise_and)(a, b)


_COMPARISONS: Mapping[Op, Callable[[Integer, Integer], Integer]] = {
    Op.CMPLT: _compare(lambda a, b, c, d: (b < c, a >= d)),
    Op.CMPLE: _compare(lambda a, b, c, d: (b <= c, a > d)),
    Op.CMPGT: _compare(lambda a, b, c, d: (a > d, b <= c)),
    Op.CMPGE: _compare(lambda a, b, c, d: (a >= d, b < c)),
    Op.CMPEQ: _compare(lambda a, b, c, d: ((a == b) & (c == d) & (a == c), (b < c) | (a > d))),
    Op.CMPNE: _compare(lambda a, b, c, d: ((b < c) | (a > d), (a == b) & (c == d) & (a == c))),
}


def compare_integers(op: Op, a: Integer, b: Integer) -> Integer:
    """Return a comparison as numbers 0 and 1."""
    return _COMPARISONS[op](a, b)


RULES: Mapping[Op, Callable[..., Integer]] = {
    **_COMPARISONS,
    Op.ADD: add, Op.SUB: lambda a, b: add(a, b, -1), Op.MUL: multiply,
    Op.NEG: lambda a: a.map_arrays(operator.neg), Op.MAX: _extreme(True), Op.MIN: _extreme(False),
    Op.IDIV: lambda a, b: divide(a, b)[0], Op.MOD: lambda a, b: divide(a, b)[1],
    Op.AND: _bitwise_and, Op.OR: _on_numbers(np.bitwise_or), Op.XOR: _on_numbers(np.bitwise_xor),
    Op.SHL: lambda a, b: _shift(a, b, True), Op.SHR: lambda a, b: _shift(a, b, False),
    Op.NOT: _on_numbers(lambda a: a == 0), Op.MULACC: lambda a, b, c: add(multiply(a, b), c),
}  # fmt: skip


def apply_rule(op: Op, d: DType, operands: list[Integer]) -> Integer:
    """Return an operation on integers, wrapped to its dtype (R09: on bools Add is or, and Mul is and)."""
    if d.kind is DTypeKind.BOOL and op in (Op.ADD, Op.MUL):
        op = Op.MAX if op is Op.ADD else Op.MIN
    return wrap(RULES[op](*operands), d)


def wrap(x: Integer, d: DType) -> Integer:
    """Return an integer in the range of a dtype. Raises NotEvaluable for a sum over counters that may leave it."""
    if d is dt.index or d.kind is DTypeKind.BOOL:
        return x
    low, high = x.bounds()
    if not low.size or (low.min() >= d.min and high.max() <= d.max):
        return x
    if x.factors or d.bits == 64:
        raise NotEvaluable("an integer that its dtype may not hold")
    return Integer((x.numbers - int(d.min)) % (1 << d.bits) + int(d.min))
