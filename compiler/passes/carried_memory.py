"""Private memory that a loop carries around loops whose iterations each have memory of their own.

Takes: LINEAR. Gives: LINEAR, in which a loop that stays a loop may keep one memory for all of its iterations. Spec: Buffer, Range;
R61 (fresh buffers), R128 (private memory).

The *scope* of an access to a private Buffer is the loops around it whose iterations have memory of their own. Of a LOCAL Buffer
these are loops of workgroups, of a REG Buffer those and loops of lanes. But a backend declares a Buffer once, so all iterations of
a loop share its elements. That is right while no iteration uses them again after another one did. Two things break it:

- A Buffer has accesses of several scopes. Each scope gets a Buffer of its own.
- A loop of the scope stands inside of one that is not, so that its iterations come again: their memory is *carried*. The Buffer
  gets elements for each of them, unless an iteration writes all that it reads, before it reads it. No launch numbers such a loop,
  so one work-item runs all of its iterations, and may hold the elements of them all.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from uops.compiler.ir.buffers import fresh_uniques
from uops.compiler.ir.instructions import InstructionList, find_uses_of_private_memory, group_instructions_by_op
from uops.compiler.ir.lane_positions import count_iterations, number_iteration, offset_position
from uops.compiler.passes.private_contents import may_read_before_writing
from uops.spec.ir.axes import GRID, WORKGROUP
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import ALU, BLOCK_CLOSERS, BLOCK_OPENERS, KERNEL_VIEWS, MEMORY_ROOTS, Op
from uops.spec.ir.scope import base_memory, has_memory_per_iteration, is_private_buffer

#: Instructions without an effect that read no memory: the new list puts them behind their sources.
_REBUILT = ALU | KERNEL_VIEWS | {Op.GROUP, Op.CAST, Op.STACK}
#: Types of loops whose iterations may have memory of their own.
_PARALLEL = GRID | WORKGROUP
#: Loops, outermost first.
_Loops = tuple[UOp, ...]


@dataclass(eq=False, slots=True)
class _Use:
    """An instruction that accesses a private Buffer, and the blocks around it, outermost first."""

    instruction: UOp
    blocks: _Loops


@dataclass(eq=False, slots=True)
class _ScopeMemory:
    """The Buffer that stands for another one in one scope: `size` elements for each iteration of the loops `carried`."""

    buffer: UOp
    size: int
    carried: _Loops = ()


def split_private_buffers_by_scope(linear: UOp) -> UOp:
    """Return an instruction list in which all accesses to a private Buffer have one scope."""
    uniques, memories = fresh_uniques(linear), dict[tuple[UOp, _Loops], _ScopeMemory]()
    for buffer, uses_by_scope in _collect_uses_by_scope(linear).items():
        _, *others = uses_by_scope
        for scope in others:
            new = buffer.replace(arg=replace(buffer.arg, unique=next(uniques)))
            memories[buffer, scope] = _ScopeMemory(new, int(buffer.arg.size))
    return _MemoryReplacement(linear, memories).rewrite() if memories else linear


def give_carried_memory_per_iteration(linear: UOp) -> UOp:
    """Return an instruction list in which no loop carries private memory around a loop whose iterations each have their own.

    Raises CompileError for a number of iterations without an upper bound.
    """
    uniques, memories = fresh_uniques(linear), dict[tuple[UOp, _Loops], _ScopeMemory]()
    for buffer, uses_by_scope in _collect_uses_by_scope(linear).items():
        for scope, inside in uses_by_scope.items():
            carried = _find_carried_loops(scope, inside)
            if carried and may_read_before_writing(buffer, _list_with_blocks_inside(scope[-1], inside)):
                size = int(buffer.arg.size)
                arg = replace(buffer.arg, size=max(1, size * count_iterations(carried)), unique=next(uniques))
                memories[buffer, scope] = _ScopeMemory(buffer.replace(arg=arg), size, carried)
    return _MemoryReplacement(linear, memories).rewrite() if memories else linear


def may_share_private_memory_of_iterations(linear: UOp) -> bool:
    """Return False if iterations that each have private memory may use that of one another, one after the other.

    That is so without such loops, and where they stand around all other loops and all uses of the memory.
    """
    grouped = group_instructions_by_op(linear)
    buffers = list(filter(is_private_buffer, grouped.get(Op.BUFFER, ())))
    parallel = [u for u in grouped.get(Op.RANGE, ()) if u.arg.type in _PARALLEL] if buffers else []
    return bool(parallel) and not (
        _are_around_all_uses(parallel, linear)
        and all(_have_memory_per_iteration_outside(parallel, b) for b in {b.arg.addrspace: b for b in buffers}.values())
    )


def _are_around_all_uses(loops: Sequence[UOp], linear: UOp) -> bool:
    """Return True if a list opens these loops first and closes them last, and names private memory only in between."""
    events = [u for _, u in find_uses_of_private_memory(linear).events]
    unclosed = set(loops)
    while events and events[-1].op is Op.END and unclosed.issuperset(events[-1].ranges):
        unclosed.difference_update(events.pop().ranges)
    return not unclosed and events[: len(loops)] == loops


def _have_memory_per_iteration_outside(loops: Sequence[UOp], buffer: UOp) -> bool:
    """Return True if no loop whose iterations have memory of their own stands inside of one whose iterations share it."""
    outermost_first = [has_memory_per_iteration(buffer, r) for r in loops]
    return outermost_first == sorted(outermost_first, reverse=True)


def _scope(buffer: UOp, blocks: _Loops) -> _Loops:
    return tuple(r for r in blocks if r.op is Op.RANGE and has_memory_per_iteration(buffer, r))


def _walk_with_blocks(linear: UOp) -> Iterator[tuple[UOp, _Loops]]:
    """Yield the instructions of a list with the blocks around them, outermost first."""
    blocks: _Loops = ()
    for u in linear.src:
        if u.op in BLOCK_CLOSERS:
            blocks = _leave_blocks(blocks, u)
        yield u, blocks
        if u.op in BLOCK_OPENERS:
            blocks = (*blocks, u)


def _leave_blocks(blocks: _Loops, closing: UOp) -> _Loops:
    return blocks[: -len(closing.ranges) if closing.op is Op.END else -1]


@functools.lru_cache(maxsize=1)  # both functions of this module ask of one list
def _collect_uses_by_scope(linear: UOp) -> dict[UOp, dict[_Loops, list[_Use]]]:
    """Return each private Buffer that an instruction accesses, with these instructions in order, by their scopes."""
    buffer_of, events = find_uses_of_private_memory(linear)
    uses: dict[UOp, dict[_Loops, list[_Use]]] = {}
    scopes: dict[tuple[UOp, _Loops], _Loops] = {}
    blocks: _Loops = ()
    for _, u in events:
        if u.op in BLOCK_CLOSERS:
            blocks = _leave_blocks(blocks, u)
        if u.op not in KERNEL_VIEWS:
            for buffer in dict.fromkeys([buffer_of[s] for s in u.src if s in buffer_of]):
                scope = scopes.get((buffer, blocks))
                if scope is None:
                    scope = scopes[buffer, blocks] = _scope(buffer, blocks)
                uses.setdefault(buffer, {}).setdefault(scope, []).append(_Use(u, blocks))
        if u.op in BLOCK_OPENERS:
            blocks = (*blocks, u)
    return uses


def _find_carried_loops(scope: _Loops, uses: Sequence[_Use]) -> _Loops:
    """Return the loops of a scope that stand inside of a loop that is not of the scope, for uses that have this scope."""
    ranges = [r for r in uses[0].blocks if r.op is Op.RANGE]
    outside = next((k for k, r in enumerate(ranges) if r not in scope), len(ranges))
    return scope[outside:]


def _list_with_blocks_inside(loop: UOp, uses: Iterable[_Use]) -> list[tuple[UOp, _Loops]]:
    """Return the instructions of uses inside of a loop, each with the blocks around it inside of the loop."""
    return [(use.instruction, use.blocks[use.blocks.index(loop) + 1 :]) for use in uses]


class _MemoryReplacement:
    """The rewriting of one kernel, with other memory for some Buffers in some scopes."""

    def __init__(self, linear: UOp, memories: dict[tuple[UOp, _Loops], _ScopeMemory]) -> None:
        self.linear = linear
        self.memories = memories
        self.buffers = {buffer for buffer, _ in memories}
        self.out = InstructionList()
        self.values: dict[UOp, UOp] = {}
        self.views: dict[tuple[UOp, _Loops], UOp] = {}  # view of a replaced Buffer, and scope -> what stands for it

    def rewrite(self) -> UOp:
        """Return the new instruction list."""
        for u in self.linear.src:
            if u.op in MEMORY_ROOTS and u not in self.buffers:
                self.out.prepend(u)
        for u, blocks in _walk_with_blocks(self.linear):
            if u.op not in _REBUILT and u.op not in MEMORY_ROOTS:
                self.values[u] = self.out.append(self._rebuild(u, blocks))
        return self.linear.replace(src=tuple(self.out))

    def _rebuild(self, u: UOp, blocks: _Loops) -> UOp:
        """Return an instruction on what stands for its sources."""
        src = tuple(self._get_or_rebuild_arithmetic(s, blocks) for s in u.src)
        return u if src == u.src else u.replace(src=src)

    def _get_or_rebuild_arithmetic(self, source: UOp, blocks: _Loops) -> UOp:
        """Return what stands for a source inside of some blocks."""

        def get(u: UOp) -> UOp | None:
            if u in self.values or (u.op in MEMORY_ROOTS and u not in self.buffers):
                return self.values.get(u, u)
            return self.views.get((u, _scope(base_memory(u), blocks))) if self._is_of_replaced_buffer(u) else None

        for u in toposort(source, gate=lambda u: u.op in _REBUILT and get(u) is None):
            if get(u) is None:
                if self._is_of_replaced_buffer(u):
                    self.views[u, _scope(base_memory(u), blocks)] = self._rebuild_view(u, blocks)
                else:
                    self.values[u] = self._rebuild(u, blocks)
        value = get(source)
        assert value is not None
        return value

    def _is_of_replaced_buffer(self, u: UOp) -> bool:
        """Return True for a Buffer that is replaced in some scope, and for a view of it."""
        return u in self.buffers or (u.op in KERNEL_VIEWS and base_memory(u) in self.buffers)

    def _rebuild_view(self, u: UOp, blocks: _Loops) -> UOp:
        """Return what stands for a replaced Buffer, or for a view of it, inside of some blocks."""
        buffer = base_memory(u)
        memory = self.memories.get((buffer, _scope(buffer, blocks)))
        if u is buffer:
            return self._prepend_once(u if memory is None else memory.buffer)
        new = self._rebuild(u, blocks)
        if u.op is not Op.INDEX or memory is None or not memory.carried:
            return new
        viewed, (position,) = new.operand, new.positions
        size = memory.size * buffer.dtype.itemsize // viewed.dtype.itemsize  # a view may have elements of another size
        number = number_iteration((r, self.values[r]) for r in memory.carried)
        return UOp(Op.INDEX, (viewed, offset_position(number, size, position)))

    def _prepend_once(self, buffer: UOp) -> UOp:
        """Put a Buffer before all other instructions unless it is listed, and return it."""
        return buffer if buffer in self.out.group_of else self.out.prepend(buffer)
