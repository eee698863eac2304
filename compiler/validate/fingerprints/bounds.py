"""Bounds of the integers of a kernel, for vectors as for scalars.

Takes: nodes. Gives: the least and greatest value that a node can have. A node's own `min_max` says nothing of vectors.
Spec: R05 (integer overflow wraps), R70 (min_max).
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping
from typing import Any

from uops.compiler.validate.postorder import compute_sources_first
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import EXTREMES, WHOLE_MEMORY, Op

Bounds = tuple[Any, Any]

#: Operations of the ring of integers. The extremes over a box are at its corners.
RING_RULES: Mapping[Op, Callable[..., Any]] = {
    Op.ADD: operator.add, Op.SUB: operator.sub, Op.MUL: operator.mul, Op.NEG: operator.neg,
}  # fmt: skip


class IntegerBounds:
    """The bounds of the integers of one kernel, each computed once."""

    def __init__(self) -> None:
        self._known: dict[UOp, Bounds] = {}

    def of(self, u: UOp) -> Bounds:
        """Return the bounds of an integer, and of what they depend on first."""
        return compute_sources_first(u, self._known, _bounding_sources, self._compute)

    def keeps_range(self, u: UOp) -> bool:
        """Return True if a sum or product surely does not wrap."""
        low, high = self._range_of_ring_op(u)
        return bool(u.dtype.min <= low and high <= u.dtype.max)

    def _range_of_ring_op(self, u: UOp) -> Bounds:
        ends = [RING_RULES[u.op](*corner) for corner in itertools.product(*map(self.of, u.src))]
        return min(ends), max(ends)

    def _compute(self, u: UOp) -> Bounds:
        all_values = u.dtype.min, u.dtype.max
        sources = [self._known[s] for s in _bounding_sources(u)]
        if not sources:
            own = u.min_max if u.shape == () else None
            return own or all_values
        if u.op in RING_RULES:
            low, high = self._range_of_ring_op(u)
        elif u.op in EXTREMES:
            pick = max if u.op is Op.MAX else min
            low, high = pick(s[0] for s in sources), pick(s[1] for s in sources)
        elif u.op is Op.MOD:
            low, high = 0, sources[1][1] - 1
        else:  # a choice of its sources
            low, high = min(s[0] for s in sources), max(s[1] for s in sources)
        return (low, high) if all_values[0] <= low and high <= all_values[1] else all_values


def _bounding_sources(u: UOp) -> tuple[UOp, ...]:
    """Return the integers whose bounds bound a node; none if only its dtype or its `min_max` does."""
    if not u.dtype.is_integer:
        return ()
    if u.op is Op.WHERE:
        return (u.if_true, u.if_false)
    if u.op is Op.MOD:
        return u.src if (u.rhs.op is Op.CONST and u.rhs.arg.value > 0) or _is_positive_vector(u.rhs) else ()
    if u.op in RING_RULES or u.op in EXTREMES:
        return u.src
    if u.op is Op.STACK and u.src:
        return u.src
    if u.op is Op.CAST and u.operand.dtype.is_integer:
        return (u.operand,)
    if u.op is Op.INDEX and u.operand.op not in WHOLE_MEMORY:
        return (u.operand,)
    return ()


def _is_positive_vector(u: UOp) -> bool:
    return u.op is Op.STACK and all(s.op is Op.CONST and s.arg.value > 0 for s in u.src)
