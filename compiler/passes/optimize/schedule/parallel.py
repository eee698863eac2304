"""Which loops of a kernel may run in any order: those whose iterations write different elements.

Takes the effect of a KERNEL body, a Store or a Group of them. A loop is *free* if two of its iterations, all ordered loops alike,
never meet in an element that one of them writes. LOOP iterates in order; every type that an OptOp makes of it does not (R57), and
two unordered accesses to one element, one of them a write, are a race (R55). What cannot be shown counts as not free.
"""

from __future__ import annotations

from collections.abc import Sequence

from uops.compiler.ir.affine import linear
from uops.spec.ir.node import UOp, nodes_of, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import VIEWS, open_ranges


def free_loops(effect: UOp) -> frozenset[UOp]:
    """The loops around an effect that are free in every Store of it."""
    stores = nodes_of(effect, Op.STORE)
    accesses = [*nodes_of(effect, Op.LOAD), *stores]
    found = [_free(u, accesses) for u in stores]
    return found[0].intersection(*found[1:]) if found else frozenset()


def memory_of(reference: UOp) -> UOp:
    """The Param or Buffer behind a reference."""
    while reference.op in VIEWS:
        reference = reference.src[0]
    return reference


def _free(store: UOp, accesses: Sequence[UOp]) -> frozenset[UOp]:
    memory, address = memory_of(store.src[0]), store.src[0].src[-1]
    for u in accesses:
        if u is not store and memory_of(u.src[0]) is memory and memory.op is Op.PARAM and u.src[0].src[-1] is not address:
            return frozenset()
    return _injective(address)


def _injective(address: UOp) -> frozenset[UOp]:
    """The loops by which the address counts like digits: each step is longer than all that shorter ones reach together."""
    terms = linear(address).terms
    others = [t for t in terms if t.op is not Op.RANGE]
    needs = open_ranges(toposort(*others)) if others else {}
    opaque = frozenset().union(*(needs[t] for t in others))
    found, reach = set(), 0
    for r, step in sorted(((t, abs(k)) for t, k in terms.items() if t.op is Op.RANGE), key=lambda pair: pair[1]):
        bounds = r.min_max
        if bounds is None:
            break
        if step > reach and r not in opaque:
            found.add(r)
        reach += step * int(bounds[1])
    return frozenset(found)
