"""Private memory of loops that stop being lanes or workgroups.

Takes: SCHEDULED. Gives: SCHEDULED, in which these loops may become sequential. Spec: Buffer, Range; R61 (fresh buffers), R128
(private memory).

The *scope* of an access to a private Buffer is the loops around it whose iterations have memory of their own. A sequential loop is
of no scope, so its iterations share what each had before. As in `carried_memory`, which reads the scopes of the list, two things
would go wrong:

- A Buffer has accesses of several scopes. Each scope that loses a loop gets a Buffer of its own.
- A loop that the scope loses stands inside of a loop that is not of the scope, so that its iterations come again. The Buffer gets
  elements for each of them, unless an iteration writes all that it reads, before it reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from uops.compiler.ir.buffers import fresh_uniques
from uops.compiler.ir.lane_positions import count_iterations, number_iteration, offset_position
from uops.compiler.ir.loops import find_ifs_around, find_loops_around, map_nodes_of_ops_to_enclosing_loops, sort_by_nesting
from uops.compiler.log import log_transform
from uops.compiler.passes.private_contents import find_accessed_elements
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import KERNEL_ACCESSES, KERNEL_VIEWS, OPAQUE_INSTRUCTIONS, Op
from uops.spec.ir.scope import base_memory, has_memory_per_iteration, is_private_buffer

#: Instructions that access memory: an opaque one that of any of its sources.
_USES = KERNEL_ACCESSES | OPAQUE_INSTRUCTIONS
_Loops = frozenset[UOp]


@dataclass(eq=False, slots=True)
class _MemoryOfIterations:
    """The Buffer that stands for another one in one scope: `size` elements for each iteration of the loops `carried`."""

    buffer: UOp
    size: int
    carried: tuple[UOp, ...]


def give_memory_per_iteration_of_serialized_loops(body: UOp, serialized: set[UOp]) -> tuple[UOp, set[UOp]]:
    """Return a kernel whose private memory stays the same if the loops `serialized` become sequential, with these loops in it.

    Raises CompileError for a number of iterations without an upper bound.
    """
    order = toposort(*[r for r in toposort(body) if r in serialized], body)  # a loop stands before the accesses in it
    if not any(map(is_private_buffer, order)):
        return body, serialized
    loops = map_nodes_of_ops_to_enclosing_loops(order, _USES)
    memories = _find_memories_that_change(order, loops, serialized)
    if not memories:
        return body, serialized
    done: dict[UOp, UOp] = {}
    for u in order:
        src = tuple([done[s] for s in u.src])
        if u in loops:
            buffers = [base_memory(s) for s in u.src]
            here = [memories.get((x, _scope(x, loops[u]))) if is_private_buffer(x) else None for x in buffers]
            src = tuple([done[s] if m is None else _rebuild_reference(s, m, done) for s, m in zip(u.src, here, strict=True)])
        done[u] = u if src == u.src else u.replace(src=src)
    log_transform("expand", body, done[body], done)
    return done[body], {done[r] for r in serialized}


def _scope(buffer: UOp, loops: Iterable[UOp]) -> _Loops:
    return frozenset(r for r in loops if has_memory_per_iteration(buffer, r))


def _find_memories_that_change(
    order: list[UOp], loops: Mapping[UOp, _Loops], serialized: set[UOp]
) -> dict[tuple[UOp, _Loops], _MemoryOfIterations]:
    """Return the memory of each Buffer and scope that needs another one."""
    uses: dict[UOp, dict[_Loops, list[UOp]]] = {}
    for u, around in loops.items():
        for buffer in dict.fromkeys(base_memory(s) for s in u.src):
            if is_private_buffer(buffer):
                uses.setdefault(buffer, {}).setdefault(_scope(buffer, around), []).append(u)
    outer = find_loops_around(order)
    uniques = fresh_uniques(order[-1])
    memories = {}
    for buffer, by_scope in uses.items():
        for scope, accesses in by_scope.items():
            carried = tuple(r for r in sort_by_nesting(scope & serialized) if not outer[r] <= scope)
            if carried and _writes_all_it_reads_first(order, buffer, scope, {u: loops[u] for u in accesses}):
                carried = ()
            if carried or (len(by_scope) > 1 and not scope.isdisjoint(serialized)):
                size = int(buffer.arg.size)
                arg = replace(buffer.arg, size=max(1, size * count_iterations(carried)), unique=next(uniques))
                memories[buffer, scope] = _MemoryOfIterations(buffer.replace(arg=arg), size, carried)
    return memories


def _writes_all_it_reads_first(order: list[UOp], buffer: UOp, scope: _Loops, accesses: Mapping[UOp, _Loops]) -> bool:
    """Return True if an iteration of the loops of a scope certainly writes each element of a Buffer before it reads it."""
    ifs = find_ifs_around(order)
    no_ifs = frozenset[UOp]()
    writes = [u for u in accesses if u.op is Op.STORE and u.gate is None and scope <= accesses[u]]
    for u, around in accesses.items():
        if u.op is Op.STORE:
            continue
        read, before = find_accessed_elements(u, buffer), set(toposort(u))
        earlier = [w for w in writes if w in before and accesses[w] <= around and ifs.get(w, no_ifs) <= ifs.get(u, no_ifs)]
        if read is None or not read <= frozenset[int]().union(*[find_accessed_elements(w, buffer) or () for w in earlier]):
            return False
    return True


def _rebuild_reference(reference: UOp, memory: _MemoryOfIterations, done: Mapping[UOp, UOp]) -> UOp:
    """Return what stands for a view of a private Buffer, or for the Buffer itself, in the scope of `memory`."""
    if reference.op not in KERNEL_VIEWS:
        return memory.buffer
    viewed = _rebuild_reference(reference.src[0], memory, done)  # the viewed operand, index or buffer
    src = [done[s] for s in reference.src[1:]]  # positions or dependencies
    if reference.op is Op.INDEX and memory.carried:
        number = number_iteration([(r, done[r]) for r in memory.carried], dt.index)
        src = [offset_position(number, memory.size, position) for position in src]
    return reference.replace(src=(viewed, *src))
