"""Strides of a kernel's memory accesses per loop, and flattening of loop nests.

`collect_accesses` reads every Load and Store as memory with a stride per loop. A loop on which an address does not depend linearly
has no stride (None). `flatten_loop_nests` replaces two nested loops by one where every address walks through both as through a
single loop.
"""

from __future__ import annotations

from dataclasses import replace

from uops.compiler.ir.affine import extract_affine_sum, index_constant
from uops.compiler.ir.extents import constant_extent
from uops.compiler.passes.optimize.schedule.schedule import RangeReplacements, Schedule, replace_ranges
from uops.spec.ir.node import UOp, nodes_with_op, toposort
from uops.spec.ir.ops import ACCESSES, LOOP_CLOSERS, Op
from uops.spec.ir.record import dataclass
from uops.spec.ir.scope import open_ranges, ranges_closed_by


@dataclass(frozen=True, slots=True)
class StridedAccess:
    """One Load or Store with its stride, in elements per iteration, along each loop on which its address depends.

    A stride is None where the address does not depend on the loop linearly. `gate_loops` are the loops on which the gate depends.
    """

    node: UOp
    strides: dict[UOp, int | None]
    gate_loops: frozenset[UOp]

    def stride(self, r: UOp) -> int | None:
        """Return the stride along a loop, 0 if the address does not depend on it."""
        return self.strides.get(r, 0)


def collect_accesses(effect: UOp) -> list[StridedAccess]:
    """Return the accesses of a kernel in graph order, those to LOCAL memory included."""
    return [_analyze_access(u) for u in toposort(effect) if u.op in ACCESSES]


def _analyze_access(u: UOp) -> StridedAccess:
    """Read the strides of one access off the affine sum of its address."""
    total = extract_affine_sum(u.src[0].src[1])  # buffer; the one position
    strides: dict[UOp, int | None] = {r: None for t in total.terms if t.op is not Op.RANGE for r in _enclosing_loops(t)}
    strides.update({t: k for t, k in total.terms.items() if t.op is Op.RANGE and t not in strides})
    return StridedAccess(u, strides, _enclosing_loops(u.gate) if u.gate is not None else frozenset())


def _enclosing_loops(u: UOp) -> frozenset[UOp]:
    """Return the open Ranges on which a node depends."""
    return open_ranges(toposort(u))[u]


def flatten_loop_nests(s: Schedule, only_reduces: bool = False) -> Schedule:
    """Flatten adjacent loops: output loops with each other, and the loops of each Reduce with each other."""
    effect, outputs = s.effect, list(s.outputs)
    nests = [] if only_reduces else [outputs]
    nests += [list(ranges_closed_by(u)) for u in nodes_with_op(effect, Op.REDUCE)]
    for loops in nests:
        for k in reversed(range(len(loops) - 1)):
            flattened = _flatten_pair_to_loop_and_effect(effect, loops[k], loops[k + 1])
            if flattened is not None:
                new, effect = flattened
                loops[k : k + 2] = [new]
    return s if effect is s.effect else replace(s, effect=effect, outputs=tuple(outputs))


def _flatten_pair_to_loop_and_effect(effect: UOp, outer: UOp, inner: UOp) -> tuple[UOp, UOp] | None:
    """Return the loop that replaces `outer` around `inner`, and the effect with it.

    Returns None if some use of the two is no step of that loop.
    """
    if outer.bound.op is not Op.CONST or inner.bound.op is not Op.CONST or outer.arg.type is not inner.arg.type:
        return None
    n, m = constant_extent(outer), constant_extent(inner)
    if not _can_flatten_pair(effect, outer, inner, m):
        return None
    new = UOp(Op.RANGE, (index_constant(n * m),), outer.arg)
    replacement: RangeReplacements = {outer: (index_constant(0), (new,)), inner: (new, ())}
    return new, replace_ranges(effect, replacement)


def _can_flatten_pair(effect: UOp, outer: UOp, inner: UOp, inner_extent: int) -> bool:
    """Return True if `outer` and `inner` occur only in addresses, with strides m*k and k, and each Reduce closes both or neither.

    Other users of such an address see the same number in the flattened loop.
    """
    order, pair = toposort(effect), {outer, inner}
    needs = open_ranges(order)
    positions = [u.buffer.positions[0] for op in ACCESSES for u in nodes_with_op(effect, op)]
    addressed = {i for i in positions if not needs[i].isdisjoint(pair)}
    inside: set[UOp] = set()  # the nodes of these addresses
    for i in addressed:
        total = extract_affine_sum(i)
        if total.terms.get(outer, 0) != inner_extent * total.terms.get(inner, 0):
            return False
        if any(t not in pair and not needs[t].isdisjoint(pair) for t in total.terms):
            return False
        inside.update([u for u in toposort(i) if u.op is not Op.RANGE and not needs[u].isdisjoint(pair)])
    hidden, looped = inside - addressed, inside | pair
    for u in order:
        if looped.isdisjoint(u.src):
            continue
        closes = ranges_closed_by(u) if u.op in LOOP_CLOSERS else ()
        if (outer in closes) is not (inner in closes):
            return False
        direct = outer not in closes and not pair.isdisjoint(u.src)
        if u not in inside and (direct or not hidden.isdisjoint(u.src)):
            return False
    return True
