"""Reuse of LOCAL and REG memory inside of a kernel.

Takes: LINEAR. Gives: LINEAR, in which private Buffers whose lifetimes do not overlap are one Buffer. Spec: Lowering
Pipeline/Register-Memory Plan; Buffer, After, Barrier; R61 (fresh buffers), R128 (private memory), R176 (plan of LOCAL and REG).

A Buffer lives from its first access in the list to its last. A loop that holds some of its accesses belongs to its lifetime as a
whole. So does a loop that holds all of them, unless each iteration has memory of its own (R128) or writes every element that it
reads before it reads it. Buffers share memory if they have one address space, dtype, device and scope. Those in registers also have
one size, so that a vector stays a vector. Where lanes of a workgroup run side by side, a Barrier must stand between two lifetimes
in LOCAL memory.

The later Buffer becomes After(earlier Buffer, the end of its lifetime), so that the graph states the order, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from uops.compiler.ir.instructions import find_uses_of_private_memory, group_instructions_by_op
from uops.compiler.log import log_transform
from uops.compiler.passes.private_contents import may_read_before_writing
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import GRID, WORKGROUP
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import BLOCK_CLOSERS, BLOCK_OPENERS, KERNEL_ACCESSES, Op
from uops.spec.ir.scope import VIEWS, has_memory_per_iteration, is_private_buffer, numbers_workgroups

#: What may end a lifetime: an access, a loop or a Barrier.
_ENDS = KERNEL_ACCESSES | {Op.END, Op.BARRIER}
#: Ops whose first source is the memory that they view or access.
_OF_MEMORY = KERNEL_ACCESSES | VIEWS


@dataclass(eq=False, slots=True)
class _Lifetime:
    """A private Buffer, the positions of the first and last instruction of its lifetime, and its scope of R128."""

    buffer: UOp
    first: int
    last: int
    scope: tuple[int, ...]

    @property
    def kind(self) -> tuple[object, ...]:
        """The properties that Buffers have in common if they share memory."""
        a = self.buffer.arg
        return a.addrspace, a.dtype, a.device, self.scope, a.size if a.addrspace is AddrSpace.REG else None


class _ListWithBlocks:
    """An instruction list with its blocks: the positions of the Ranges and Ifs around each instruction, outermost first."""

    def __init__(self, linear: UOp) -> None:
        self.instructions = linear.src
        self.around: list[tuple[int, ...]] = []
        self.closing: dict[int, int] = {}
        self.memory, self.events = find_uses_of_private_memory(linear)
        self.accesses: dict[UOp, list[int]] = {}
        self.has_lane_specials = False

    def record_accesses_of_nonescaping_buffers(self) -> None:
        """Find the accesses of the private Buffers that nothing else uses."""
        memory, escaped = self.memory, set[UOp]()
        for k, u in self.events:
            used = u.src
            if u.op in _OF_MEMORY:
                viewed, used = used[0], used[1:]  # the viewed or accessed memory, and everything else
                if u.op not in VIEWS and viewed in memory:
                    self.accesses.setdefault(memory[viewed], []).append(k)
            escaped.update([memory[s] for s in used if s in memory])
        for u in escaped:  # something else than an access may read or write it
            self.accesses.pop(u, None)

    def all_accesses_overlap(self) -> bool:
        """Return True if all Buffers that could share memory are accessed between the first and last access of each other."""
        spans: dict[tuple[object, ...], tuple[int, int]] = {}  # the last beginning and the first end
        for buffer, accesses in self.accesses.items():
            kind = buffer.arg.addrspace, buffer.arg.dtype
            start, end = spans.get(kind, (-1, len(self.instructions)))
            spans[kind] = max(start, accesses[0]), min(end, accesses[-1])
        return all(start <= end for start, end in spans.values())

    def record_blocks_and_lane_specials(self) -> None:
        """Find the blocks around each instruction, and whether Specials number lanes."""
        opened: tuple[int, ...] = ()
        for k, u in enumerate(self.instructions):
            if u.op in BLOCK_CLOSERS:
                for _ in range(len(u.ranges) if u.op is Op.END else 1):
                    self.closing[opened[-1]] = k
                    opened = opened[:-1]
            self.around.append(opened)
            if u.op in BLOCK_OPENERS:
                opened = (*opened, k)
            elif u.op is Op.SPECIAL:
                self.has_lane_specials |= not numbers_workgroups(u)

    def find_lifetimes_of_single_scope_buffers(self) -> list[_Lifetime]:
        """Return the lifetimes of the private Buffers that have one scope, in order of their beginnings."""
        found = []
        for buffer, accesses in self.accesses.items():
            scopes = {self._scope(buffer, around) for around in {self.around[k] for k in accesses}}
            if len(scopes) == 1:
                found.append(_Lifetime(buffer, *self._extend_lifetime_over_blocks(buffer, accesses), scopes.pop()))
        return sorted(found, key=lambda life: life.first)

    def _scope(self, buffer: UOp, around: Iterable[int]) -> tuple[int, ...]:
        return tuple(k for k in around if self._has_memory_per_iteration(buffer, k))

    def _has_memory_per_iteration(self, buffer: UOp, opening: int) -> bool:
        r = self.instructions[opening]
        return r.op is Op.RANGE and has_memory_per_iteration(buffer, r)

    def _extend_lifetime_over_blocks(self, buffer: UOp, accesses: Sequence[int]) -> tuple[int, int]:
        """Return the first and last position of a lifetime, the blocks included that belong to it as a whole."""
        first, last = accesses[0], accesses[-1]
        common = self.common_blocks(accesses)
        for around in {self.around[k] for k in accesses}:
            if len(around) > len(common):
                block = around[len(common)]
                first, last = min(first, block), max(last, self.closing[block])
        for block in reversed(common):
            is_loop = self.instructions[block].op is Op.RANGE
            if is_loop and not self._has_memory_per_iteration(buffer, block) and self._may_read_earlier_contents(buffer, block):
                first, last = block, self.closing[block]
        return first, last

    def common_blocks(self, positions: Sequence[int]) -> tuple[int, ...]:
        """Return the blocks around all of some instructions."""
        shared, *others = {self.around[k] for k in positions}
        for here in others:
            shared = shared[: next((n for n, (a, b) in enumerate(zip(shared, here)) if a != b), min(len(shared), len(here)))]
        return shared

    def _may_read_earlier_contents(self, buffer: UOp, loop: int) -> bool:
        """Return True unless each iteration of a loop, which holds all accesses of a Buffer, writes what it reads of it first."""
        depth = len(self.around[loop]) + 1
        blocks = {k: [self.instructions[j] for j in self.around[k][depth:]] for k in self.accesses[buffer]}
        return may_read_before_writing(buffer, [(self.instructions[k], inside) for k, inside in blocks.items()])

    def end_before(self, life: _Lifetime, later: _Lifetime) -> UOp | None:
        """Return the instruction after which the memory of `life` may be that of `later`; None if there is none."""
        if life.last >= later.first:
            return None
        common = self.common_blocks((life.last, later.first))
        if life.buffer.arg.addrspace is AddrSpace.LOCAL and self._lanes_run_inside(common):
            return self._find_barrier(life, later, common)
        inner = self.around[life.last][len(common) :]
        end = self.instructions[self.closing[inner[0]] if inner else life.last]
        return end if end.op in _ENDS else None

    def _lanes_run_inside(self, blocks: Iterable[int]) -> bool:
        """Return True if lanes of a workgroup run side by side inside of the blocks."""
        types = {r.arg.type for r in map(self.instructions.__getitem__, blocks) if r.op is Op.RANGE}
        return self.has_lane_specials or not types.isdisjoint(WORKGROUP)

    def _find_barrier(self, life: _Lifetime, later: _Lifetime, common: tuple[int, ...]) -> UOp | None:
        """Return a Barrier between two lifetimes that all lanes reach.

        None in a loop that repeats both: its next iteration would begin without one.
        """
        if any(self.instructions[k].op is Op.IF or not self._is_of_grid_or_lanes(k) for k in common):
            return None
        between = (k for k in range(life.last + 1, later.first) if self.around[k] == common)
        return next((u for u in map(self.instructions.__getitem__, between) if u.op is Op.BARRIER), None)

    def _is_of_grid_or_lanes(self, loop: int) -> bool:
        return self.instructions[loop].arg.type in GRID | WORKGROUP


@dataclass(eq=False, slots=True)
class _Reuse:
    """A Buffer that takes the memory of another, `root`, after the instruction `end`."""

    life: _Lifetime
    root: UOp
    end: UOp


def reuse_private_memory(linear: UOp) -> UOp:
    """Return an instruction list in which private Buffers with disjoint lifetimes share memory."""
    buffers = filter(is_private_buffer, group_instructions_by_op(linear).get(Op.BUFFER, ()))
    kinds = [(u.arg.addrspace, u.arg.dtype) for u in buffers]
    if len(kinds) == len(set(kinds)):  # no two Buffers can share memory
        return linear
    kernel = _ListWithBlocks(linear)
    kernel.record_accesses_of_nonescaping_buffers()
    if kernel.all_accesses_overlap():
        return linear
    kernel.record_blocks_and_lane_specials()
    chains: list[list[_Lifetime]] = []
    reuses: list[_Reuse] = []
    for life in kernel.find_lifetimes_of_single_scope_buffers():
        for chain in chains:
            end = kernel.end_before(chain[-1], life) if chain[0].kind == life.kind else None
            if end is not None:
                reuses.append(_Reuse(life, chain[0].buffer, end))
                chain.append(life)
                break
        else:
            chains.append([life])
    if not reuses:
        return linear
    sizes = {chain[0].buffer: max(life.buffer.arg.size for life in chain) for chain in chains}
    planned = linear.replace(src=tuple(_rewrite_list(kernel, reuses, sizes)))
    log_transform("private memory", linear, planned, {linear: planned})
    return planned


def _rewrite_list(kernel: _ListWithBlocks, reuses: Sequence[_Reuse], sizes: dict[UOp, int]) -> list[UOp]:
    """Return the instructions on shared memory. Views of a Buffer that is replaced begin with its lifetime."""
    by_position: dict[int, list[_Reuse]] = {}
    starts = {reuse.life.buffer: reuse.life.first for reuse in reuses}
    for reuse in reuses:
        by_position.setdefault(reuse.life.first, []).append(reuse)
    done = {u: u.replace(arg=replace(u.arg, size=n)) for u, n in sizes.items() if u not in starts and u.arg.size != n}
    views = {u: k for k, u in enumerate(kernel.instructions) if kernel.memory.get(u) in starts}
    listed: list[UOp] = []

    def emit(u: UOp) -> None:
        if u in done:  # a Buffer of another size
            listed.append(done[u])
        elif done.keys().isdisjoint(u.src):
            listed.append(u)
        else:
            done[u] = u.replace(src=tuple([done.get(s, s) for s in u.src]))
            listed.append(done[u])

    for k, u in enumerate(kernel.instructions):
        if k in by_position:
            for reuse in by_position[k]:
                after = UOp(Op.AFTER, (done.get(reuse.root, reuse.root), done.get(reuse.end, reuse.end)))
                done[reuse.life.buffer] = after
                listed.append(after)
                for view, position in views.items():
                    if kernel.memory[view] is reuse.life.buffer and view is not reuse.life.buffer and position < k:
                        emit(view)
        if u not in views or (u not in starts and k >= starts[kernel.memory[u]]):
            emit(u)
    return listed
