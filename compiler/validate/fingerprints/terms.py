"""The value of a node at all iterations: integers that are known, fingerprints of terms, or sums under construction.

The arrays of a kernel's values have one axis per loop, and then the axes of the node's shape. The extent of a loop's axis is 1
where the value does not depend on the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from uops.compiler.validate.fingerprints.integers import Counter, Integer, NotEvaluable, Numbers, with_rank
from uops.compiler.validate.fingerprints.mixing import Fingerprints, combine, fingerprint_of_words, of_integers, to_integers
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import BITWISE, BOOL_CONJUNCTIONS, EXTREMES, REDUCTIONS, Op


class SumLaws(NamedTuple):
    """Laws of sums beyond those of a Reduce and of accumulators (R32: a Reduce may be rounded less often).

    - `chains`: a chain of one of these ops on its dtype is one multiset, too, as an unrolled Reduce is.
    - `wide_products`: a product of floats is the same in every dtype that holds its factors, until it is rounded.
    - `rounded_late`: a sum of one of these kinds may be made in a wider dtype, with its own identity, and rounded once.

    With `fuses_sums_alone`, a MULACC is a sum of its product only where a Reduce or an accumulator sums it.
    With `keeps_groups`, a chain that no Reduce sums, and that no accumulator takes, is no multiset: (x + y) + z is of x + y and z.
    """

    chains: frozenset[tuple[Op, DType]] = frozenset()
    wide_products: bool = False
    rounded_late: frozenset[tuple[Op, DType]] = frozenset()
    keeps_groups: bool = False
    fuses_sums_alone: bool = False


@dataclass(frozen=True, slots=True)
class AccumulatorRead:
    """The origin of a value that an accumulator holds: the memory, the positions of its elements, and the Loads.

    Where `is_cleared`, the value is `cleared` instead.
    """

    memory: Any
    positions: Numbers
    loads: frozenset[UOp] = frozenset()
    is_cleared: npt.NDArray[np.bool_] | None = None
    cleared: TermValue | None = None


@dataclass(frozen=True, slots=True)
class TermValue:
    """A value: an `integer` if it depends on loops and constants alone, else `fingerprints`.

    A sum has a `reduction`, its op and dtype, and `fingerprints` of its multiset of addends. With `added_to`, the sum is that of an
    accumulator in this iteration, without what the accumulator held before; a bare Load of it has no reduction yet. A sum that is
    `grouped` is of two values that no Reduce sums.

    Sums and products of integers are polynomials. One that may wrap has the dtype `wraps`: all other uses of it are of that dtype.
    """

    integer: Integer | None = None
    fingerprints: Fingerprints | None = None
    reduction: tuple[Op, DType] | None = None
    added_to: AccumulatorRead | None = None
    wraps: DType | None = None
    grouped: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the arrays; () for a bare Load of an accumulator."""
        if self.integer is not None:
            return self.integer.shape
        return () if self.fingerprints is None else self.fingerprints.shape

    def with_trailing_axes(self, count: int) -> TermValue:
        """Return the value with `count` axes of extent 1 at the end."""
        return self.map_arrays(lambda x: with_rank(x, x.ndim + count))

    def map_arrays(self, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> TermValue:
        """Return the value with `change` applied to all arrays."""
        integer, prints = self.integer, self.fingerprints
        return replace(
            self,
            integer=None if integer is None else integer.map_arrays(change),
            fingerprints=None if prints is None else change(prints),
        )


def fingerprint(t: TermValue) -> Fingerprints:
    """Return the fingerprints of a value; a sum counts as finished. Raises NotEvaluable for what an accumulator holds."""
    if t.added_to is not None:
        raise NotEvaluable("an iteration uses what an earlier one computed, other than in a sum")
    if t.integer is not None:
        return of_integers(ring_of_integer(t.integer))
    assert t.fingerprints is not None
    if t.reduction is None:
        return t.fingerprints if t.wraps is None else combine(fingerprint_of_words("wrapped", t.wraps.name), t.fingerprints)
    op, d = t.reduction
    if op is Op.ADD and d.is_integer:
        total = of_integers(t.fingerprints)
        return total if d is dt.index else combine(fingerprint_of_words("wrapped", d.name), total)
    total = combine(fingerprint_of_words("reduction", op.name, d.name), t.fingerprints)
    return np.where(t.fingerprints == 0, fingerprint(constant_term(_identity(op, d), d)), total)


def finish_group(t: TermValue) -> TermValue:
    """Return a sum of floats that is grouped as one value, so that it is no part of another sum."""
    is_open = t.grouped and t.added_to is None and t.reduction is not None and t.reduction[1].is_float
    return TermValue(None, fingerprint(t)) if is_open else t


def wraps_of(t: TermValue) -> DType | None:
    """Return the dtype in which a value may wrap, of sums and products of integers; else None."""
    if t.reduction is not None and t.reduction[0] is Op.ADD and t.reduction[1].is_integer and t.reduction[1] is not dt.index:
        return t.reduction[1]
    return t.wraps


def fingerprint_in_own_dtype(t: TermValue) -> Fingerprints:
    """Return the fingerprints of a value that is used in its own dtype alone, where wrapping changes nothing."""
    if t.reduction is not None and t.added_to is None and t.reduction[0] is Op.ADD and t.reduction[1].is_integer:
        assert t.fingerprints is not None
        return of_integers(t.fingerprints)
    return fingerprint(t if t.wraps is None else replace(t, wraps=None))


def ring_of_integer(x: Integer) -> Fingerprints:
    """Return integers modulo 2^64. Each counter that is not enumerated is a random number."""
    total = x.numbers.view(np.uint64)
    with np.errstate(over="ignore"):
        for c, f in x.factors.items():
            total = total + f.view(np.uint64) * _random_number(c)
    return total


def _random_number(c: Counter) -> np.uint64:
    return fingerprint_of_words("counter", c.number)


def as_addends(t: TermValue, reduction: tuple[Op, DType], laws: SumLaws) -> Fingerprints:
    """Return a value as a multiset of addends: a sum of the same kind as its own, an identity as none, any other as itself.

    Integers are added as the polynomials that they are.
    """
    if t.reduction == reduction and t.added_to is None:
        assert t.fingerprints is not None
        return t.fingerprints
    op, d = reduction
    if op is Op.ADD and d.is_integer:
        return to_integers(fingerprint_in_own_dtype(t))
    x = fingerprint(t)
    for narrow in {d, *(n for o, n in laws.rounded_late if o is op and holds_every_value(d, n))}:
        x = np.where(x == fingerprint(constant_term(_identity(op, narrow), d)), np.uint64(0), x)
    return x


def constant_term(value: bool | int | float, d: DType) -> TermValue:
    """Return a constant as a value without axes. Floats of equal spelling are equal in every dtype."""
    if not d.is_float and -(1 << 61) <= value <= 1 << 61:
        return TermValue(Integer(np.array(int(value), np.int64)))
    return TermValue(None, np.array(fingerprint_of_words("constant", "float" if d.is_float else d.name, repr(value))))


def _identity(op: Op, d: DType) -> bool | int | float:
    """Return the identity of Add, Mul or Max (R32: a Reduce begins with it)."""
    if d.kind is DTypeKind.BOOL:
        return op is Op.MUL
    if op is Op.MAX:
        return d.min
    return float(op is Op.MUL) if d.is_float else int(op is Op.MUL)


def is_reduction_op(op: Op, d: DType) -> bool:
    """Return True for an op whose chains on accumulators are multisets."""
    return op in REDUCTIONS or (d.kind is DTypeKind.BOOL and op in (Op.AND, Op.OR))


def reduction_of(op: Op, d: DType) -> tuple[Op, DType]:
    """Return the kind of a sum by an op. On bools Add and Or are Max, and And is Mul (R09)."""
    if d.kind is DTypeKind.BOOL:
        return Op.MUL if op in BOOL_CONJUNCTIONS else Op.MAX, d
    return op, d


#: Ops whose operands have no order.
COMMUTATIVE = BITWISE | EXTREMES | {Op.ADD, Op.MUL, Op.CMPEQ, Op.CMPNE}


def holds_every_value(d: DType, source: DType) -> bool:
    """Return True if a dtype has every value of another one of its kind."""
    if d.is_float and source.is_float:
        return d.man_bits >= source.man_bits and d.exp_bits >= source.exp_bits and not d.finite_only
    if not d.is_integer or not source.is_integer:
        return False
    return d is dt.index or (source is not dt.index and d.min <= source.min and source.max <= d.max)
