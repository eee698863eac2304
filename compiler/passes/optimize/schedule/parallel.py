"""Loops of a kernel whose iterations may run in any order, because they write different elements.

Takes: the effect of a KERNEL body, a Store or a Group of Stores. Gives: its parallel loops.

A loop is *parallel* if no two of its iterations access one element that either writes, all ordered loops being at the same
iteration. LOOP iterates in order, but no type that an OptOp turns it into does (R57: order of Ranges). Two unordered accesses to
one element, one of them a write, are a race (R55). A loop that cannot be shown to be parallel counts as ordered.
"""

from __future__ import annotations

from collections.abc import Sequence

from uops.compiler.ir.affine import extract_affine_sum
from uops.compiler.ir.extents import finite_bounds
from uops.spec.ir.node import UOp, nodes_with_op, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory, open_ranges


def find_race_free_loops_of_stores(effect: UOp) -> frozenset[UOp]:
    """Return the loops around an effect that are parallel in each of its Stores."""
    stores = nodes_with_op(effect, Op.STORE)
    accesses = [*nodes_with_op(effect, Op.LOAD), *stores]
    parallel = [_find_race_free_loops(u, accesses) for u in stores]
    return frozenset.intersection(*parallel) if parallel else frozenset()


def _find_race_free_loops(store: UOp, accesses: Sequence[UOp]) -> frozenset[UOp]:
    """Return the loops parallel in one Store: none if another access to a Param has another address."""
    buffer = store.src[0]  # buffer
    memory, address = base_memory(buffer), buffer.src[-1]  # the last position
    for u in accesses:
        if u is not store and base_memory(u.buffer) is memory and memory.op is Op.PARAM and u.buffer.positions[-1] is not address:
            return frozenset()
    return _find_injective_loops(address)


def _find_injective_loops(address: UOp) -> frozenset[UOp]:
    """Return the loops in which the address is injective: the stride of each exceeds the total reach of all loops of shorter
    stride."""
    terms = extract_affine_sum(address).terms
    nonlinear = [t for t in terms if t.op is not Op.RANGE]
    needs = open_ranges(toposort(*nonlinear)) if nonlinear else {}
    opaque = frozenset().union(*(needs[t] for t in nonlinear))
    injective, reach = set(), 0
    for r, step in sorted(((t, abs(k)) for t, k in terms.items() if t.op is Op.RANGE), key=lambda pair: pair[1]):
        bounds = finite_bounds(r)
        if bounds is None:
            break
        if step > reach and r not in opaque:
            injective.add(r)
        reach += step * bounds[1]
    return frozenset(injective)
