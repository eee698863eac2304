"""Accesses of a kernel written by hand, bound to the loops in which they run.

Takes: a SCHEDULED kernel whose loops are final. Gives: the same kernel. An access of memory that the kernel writes comes after
each Range that it runs in, also where its position and value do not depend on the Range, or no longer do once a pass has
simplified them. So does an access in a loop that may run no iteration, of any memory. Spec: Range, End, After; R57 (Range), R125
(Special), R127 (loops of a node), R166 (kernels written by hand).

An effect in the body of an End runs once per iteration, and not at all if there is none. An AtomicAdd or an opaque instruction
is not the same if it is done once for several lanes or iterations. So the vector axes of a kernel with one become loops, and so
do those whose extent is no positive constant, or is the bound of another loop.
"""

from __future__ import annotations

from uops.compiler.ir.extents import may_be_zero_trip
from uops.compiler.ir.loops import map_nodes_of_ops_to_enclosing_loops, retype_ranges_as_sequential
from uops.compiler.log import log_transform
from uops.spec.ir.axes import UNROLLED
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import COUNTERS, KERNEL_ACCESSES, OPAQUE_INSTRUCTIONS, WRITES, Op
from uops.spec.ir.scope import base_memory, open_ranges

#: Effects that every lane and iteration has of its own.
_REPEATED_EFFECTS = OPAQUE_INSTRUCTIONS | {Op.ATOMICADD}


def make_accesses_depend_on_loops_and_retype_unrolled_ranges(body: UOp) -> UOp:
    """Return a kernel whose accesses of memory that it writes depend on the loops that they run in, and AtomicAdds on the lanes."""
    body = retype_ranges_as_sequential(body, _find_unrolled_ranges_to_loop_over(toposort(body)))
    order = toposort(*(u for u in toposort(body) if u.op in COUNTERS), body)  # an access depends on its loops
    written = {base_memory(_accessed_reference(u)) for u in order if u.op in WRITES}
    specials = [u for u in order if u.op is Op.SPECIAL]
    loops = map_nodes_of_ops_to_enclosing_loops(order, KERNEL_ACCESSES)
    done: dict[UOp, UOp] = {}
    for u in order:
        src = tuple([done[s] for s in u.src])
        if u in loops and (base_memory(_accessed_reference(u)) in written or any(map(may_be_zero_trip, loops[u]))):
            around = [r for r in order if r in loops[u] and r.arg.type not in UNROLLED]
            around += specials if u.op is Op.ATOMICADD else []
            reference, *operands = src
            src = (UOp(Op.AFTER, (reference, *[done[r] for r in around])), *operands) if around else src
        done[u] = u if src == u.src else u.replace(src=src)
    log_transform("bind", body, done[body], done)
    return done[body]


def _accessed_reference(access: UOp) -> UOp:
    reference: UOp = access.index if access.op is Op.ATOMICADD else access.buffer
    return reference


def _find_unrolled_ranges_to_loop_over(order: list[UOp]) -> frozenset[UOp]:
    """Return the UPCAST and UNROLL ranges that must be loops."""
    vectors = [u for u in order if u.op is Op.RANGE and u.arg.type in UNROLLED]
    if not vectors or any(u.op in _REPEATED_EFFECTS for u in order):
        return frozenset(vectors)
    depended = open_ranges(order)
    bounds = frozenset[UOp]().union(*(depended[u.bound] for u in order if u.op is Op.RANGE))
    return frozenset(r for r in vectors if r in bounds or r.bound.op is not Op.CONST or r.bound.arg.value < 1)
