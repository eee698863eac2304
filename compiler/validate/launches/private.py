"""Claims about the plan of private memory: an instruction list on shared LOCAL and REG memory is the list on memory of its own.

Takes: an instruction list before and after the pass. Gives: claims `plan`. Spec: Lowering Pipeline/Register-Memory Plan; R60
(Barrier), R128 (private memory), R176 (plan of LOCAL and REG).

The claims follow the flow of control, not the pass's lifetimes. The lists have the same instructions, on the memory that was
merged. A Store must not write memory in which another Buffer has contents that some path still reads. Where lanes run side by side,
every path from an access of one Buffer in LOCAL memory to an access of another passes a Barrier.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence

from uops.compiler.ir.lanes import is_lane_loop
from uops.compiler.validate import terms as T
from uops.compiler.validate.model import ObligationKind, ValidationClaim
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import WORKGROUP
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import KERNEL_ACCESSES, Op
from uops.spec.ir.scope import VIEWS, has_memory_per_iteration, is_private_buffer, numbers_workgroups, strip_afters


def generate_private_plan_claims(place: str, before: UOp, after: UOp) -> Iterator[ValidationClaim]:
    """Claim that two instruction lists, the second on merged private memory, compute the same. `place` names the kernel."""
    merged = _match_lists_and_map_merged_buffers(before.src, after.src)
    yield _claim(f"{place} keeps its kernel", merged is not None)
    if merged is None:
        return
    flow = _ControlFlow(before.src)
    for memory in dict.fromkeys(merged.values()):
        sharing = [b for b, m in merged.items() if m is memory]
        if len(sharing) < 2:
            continue
        names = " and ".join(str(b.arg.unique) for b in sharing)
        yield _claim(f"{place}: buffers {names} hold no contents at one time", not _overwrites_live_contents(flow, sharing))
        if memory.arg.addrspace is AddrSpace.LOCAL:
            yield _claim(
                f"{place}: a Barrier is between buffers {names}", not _has_barrier_free_path_between_buffers(flow, sharing)
            )


def _match_lists_and_map_merged_buffers(before: Sequence[UOp], after: Sequence[UOp]) -> dict[UOp, UOp] | None:
    """Return each private Buffer of the first list with the one of the second that has its place; None if the lists differ.

    A view that begins with the lifetime of its Buffer may stand later in the second list, and a new After states the order.
    """
    stands_for = _map_new_buffers_to_old_by_access(before, after)
    if stands_for is None:
        return None
    same: dict[UOp, UOp] = {}  # node of the second list -> node of the first
    merged: dict[UOp, UOp] = {}
    owner: dict[UOp, UOp] = {}  # view of the second list -> the Buffer of the second list
    pending = [u for u in before if not is_private_buffer(u)]
    originals = {u for u in before if is_private_buffer(u)}
    stands_for = {u: u for u in after if u in originals} | stands_for
    for u in after:
        if is_private_buffer(u):
            owner[u] = u
            continue
        match = next((old for old in pending if _corresponds(old, u, same, stands_for)), None)
        viewed = u.src[0] if u.op in VIEWS else None  # the viewed memory
        if match is not None:
            merged.update({x: owner[y] for x, y in zip(match.src, u.src) if x in originals})
            same[u] = match
            pending.remove(match)
        elif u.op is Op.AFTER and viewed in same:  # it orders a reference once more
            same[u] = same[u.buffer]
        if viewed in owner:
            owner[u] = owner[viewed]
        elif match is None:
            return None
    kept = [u for u in before if u.op in KERNEL_ACCESSES or u.op in (Op.RANGE, Op.END, Op.IF, Op.ENDIF, Op.BARRIER)]
    now = [same[u] for u in after if u in same and same[u] in set(kept)]
    return merged if not pending and now == kept and all(_fits(b, m) for b, m in merged.items()) else None


def _fits(buffer: UOp, memory: UOp) -> bool:
    """Return True if memory can hold a Buffer: of its address space and dtype, and large enough."""
    a, m = buffer.arg, memory.arg
    return bool(a.addrspace is m.addrspace and a.dtype is m.dtype and a.device == m.device and a.size <= m.size)


def _map_new_buffers_to_old_by_access(before: Sequence[UOp], after: Sequence[UOp]) -> dict[UOp, UOp] | None:
    """Return node of the second list -> the private Buffer that it stands for, as access k is that of the first list."""
    accesses = [[u for u in listed if u.op in KERNEL_ACCESSES] for listed in (before, after)]
    stands_for: dict[UOp, UOp] = {}
    for old, new in zip(*accesses):
        a, b = old.src[0], new.src[0]  # the memory of the accesses
        while a.op in VIEWS and a.op is b.op:
            a, b = a.src[0], b.src[0]  # the viewed memory
        if is_private_buffer(a) and stands_for.setdefault(b, a) is not a:
            return None
    return stands_for


def _corresponds(old: UOp, new: UOp, same: Mapping[UOp, UOp], stands_for: Mapping[UOp, UOp]) -> bool:
    """Return True if `new` is `old` on merged memory."""
    if old.op is not new.op or old.arg != new.arg or len(old.src) != len(new.src):
        return False
    return all(stands_for.get(b) is a if is_private_buffer(a) else same.get(b, b) is a for a, b in zip(old.src, new.src))


def _certainly_runs(opening: UOp) -> bool:
    """Return True for a loop of at least one iteration, whatever its bound is computed from (R57: Range)."""
    least = opening.bound.min_max if opening.op is Op.RANGE else None
    return least is not None and least[0] >= 1


class _ControlFlow:
    """The flow of control of an instruction list, and the private Buffer that each access is to."""

    def __init__(self, instructions: Sequence[UOp]) -> None:
        self.instructions = instructions
        self.successors: list[list[int]] = [[k + 1] for k in range(len(instructions))]
        self.lanes: list[bool] = []
        self.loops_around: list[tuple[int, ...]] = []  # the positions of the Ranges around each instruction, outermost first
        self.loops: dict[int, int] = {}  # position of a Range -> that of its End
        self.buffer: dict[int, UOp] = {}
        memory: dict[UOp, UOp] = {}
        opened: list[int] = []
        lanes = any(u.op is Op.SPECIAL and not numbers_workgroups(u) for u in instructions)
        for k, u in enumerate(instructions):
            if u.op is Op.END or u.op is Op.ENDIF:
                start = opened.pop()
                if not _certainly_runs(instructions[start]):
                    self.successors[start].append(k + 1)
                if u.op is Op.END:
                    self.loops[start] = k
                    self.successors[k].append(start + 1)
            self.loops_around.append(tuple(j for j in opened if instructions[j].op is Op.RANGE))
            self.lanes.append(lanes or any(is_lane_loop(instructions[j]) for j in opened))
            if u.op is Op.RANGE or u.op is Op.IF:
                opened.append(k)
            named = u.src[0] if u.op in VIEWS or u.op in KERNEL_ACCESSES else None  # the viewed or accessed memory
            if is_private_buffer(u):
                memory[u] = u
            elif named in memory and u.op in VIEWS:
                memory[u] = memory[named]
            elif named in memory:
                self.buffer[k] = memory[named]

    def find_lifetime_boundaries(self, buffers: Sequence[UOp]) -> set[int]:
        """Return the positions of the Ranges and Ends at which the contents of Buffers end.

        They open and close loops around all accesses, whose iterations have memory of their own (R128). Inside any other loop there
        are none: its next iteration finds the contents.
        """
        first, *others = [set(self.loops_around[k]) for k, b in self.buffer.items() if b in buffers] or [set[int]()]
        common = sorted(first.intersection(*others))
        own = itertools.takewhile(lambda k: all(has_memory_per_iteration(b, self.instructions[k]) for b in buffers), common)
        return {k for start in own for k in (start, self.loops[start])}


def _overwrites_live_contents(flow: _ControlFlow, sharing: Sequence[UOp]) -> bool:
    """Return True if some Store to one Buffer stands where another one has contents that are still read."""
    for b in sharing:
        written, read = _may_be_written(flow, b), _find_elements_that_may_be_read(flow, b)
        writes = (k for k, other in flow.buffer.items() if other is not b and other in sharing)
        if any(flow.instructions[k].op is not Op.LOAD and written[k] and read[k + 1] for k in writes):
            return True
    return False


def _may_be_written(flow: _ControlFlow, buffer: UOp) -> list[bool]:
    """Return, per position, whether the Buffer may have contents before it."""
    before = [False] * (len(flow.instructions) + 1)
    boundaries = flow.find_lifetime_boundaries((buffer,))
    pending = list(range(len(flow.instructions)))
    while pending:
        k = pending.pop()
        u = flow.instructions[k]
        holds = before[k] or (flow.buffer.get(k) is buffer and u.op is not Op.LOAD)
        if k in boundaries:
            holds = False
        for s in flow.successors[k]:
            if holds and not before[s]:
                before[s] = True
                if s < len(flow.instructions):
                    pending.append(s)
    return before


def _find_elements_that_may_be_read(flow: _ControlFlow, buffer: UOp) -> list[int]:
    """Return, per position, the set of elements whose contents before it may be read from there on, as a bit mask.

    A Store ends the contents of the elements that it certainly writes. A loop that stores to every element ends them all.
    """
    live = [0] * (len(flow.instructions) + 1)
    boundaries = flow.find_lifetime_boundaries((buffer,))
    changed = True
    while changed:
        changed = False
        for k in reversed(range(len(flow.instructions))):
            u = flow.instructions[k]
            now = functools.reduce(operator.or_, (live[s] for s in flow.successors[k]))
            if flow.buffer.get(k) is buffer:
                now = now & ~_find_written_elements(u, buffer) if u.op is Op.STORE else (1 << buffer.arg.size) - 1
            elif k in boundaries or (k in flow.loops and _is_loop_storing_each_element_once(flow, k, buffer)):
                now = 0
            if now != live[k]:
                live[k], changed = now, True
    return live


def _find_ungated_store_position(store: UOp, buffer: UOp) -> UOp | None:
    """Return the position that a Store without a gate writes of a Buffer; None if it has no single one."""
    target = strip_afters(store.buffer)
    if store.gate is not None or target.op is not Op.INDEX or len(target.positions) != 1:
        return None
    return target.positions[0] if strip_afters(target.operand) is buffer else None


def _find_written_elements(store: UOp, buffer: UOp) -> int:
    """Return the set of elements of a Buffer that a Store certainly writes, as a bit mask."""
    position = _find_ungated_store_position(store, buffer)
    if position is None:
        return 0
    elements = (position.arg.value,) if position.op is Op.CONST else position.constants_of_stack or ()
    inside = range(buffer.arg.size)  # a Store that is never executed may name others
    return functools.reduce(operator.or_, (1 << int(k) for k in elements if k in inside), 0)


def _is_loop_storing_each_element_once(flow: _ControlFlow, start: int, buffer: UOp) -> bool:
    """Return True if a loop stores to every element of a Buffer, each once, and reads none."""
    r, inside = flow.instructions[start], range(start + 1, flow.loops[start])
    if r.bound.op is not Op.CONST or r.bound.arg.value != buffer.arg.size or has_memory_per_iteration(buffer, r):
        return False
    blocks = (Op.RANGE, Op.IF)
    accesses = [flow.instructions[k] for k in inside if flow.buffer.get(k) is buffer]
    if any(flow.instructions[k].op in blocks for k in inside) or len(accesses) != 1 or accesses[0].op is not Op.STORE:
        return False
    return _find_ungated_store_position(accesses[0], buffer) is r


def _has_barrier_free_path_between_buffers(flow: _ControlFlow, sharing: Sequence[UOp]) -> bool:
    """Return True if some path leads from an access of one Buffer to one of another without a Barrier, among lanes."""
    since: list[frozenset[UOp]] = [frozenset()] * (len(flow.instructions) + 1)
    boundaries = flow.find_lifetime_boundaries(sharing)
    pending = list(range(len(flow.instructions)))
    while pending:
        k = pending.pop()
        u, here = flow.instructions[k], flow.buffer.get(k)
        accessed = since[k] | {here} if here in sharing and here is not None and flow.lanes[k] else since[k]
        if u.op is Op.BARRIER or (u.op in (Op.END, Op.RANGE) and (_meets_at(flow, k) or k in boundaries)):
            accessed = frozenset()
        for s in flow.successors[k]:
            if not accessed <= since[s]:
                since[s] |= accessed
                if s < len(flow.instructions):
                    pending.append(s)
    return any(b in sharing and flow.lanes[k] and since[k] - {b} for k, b in flow.buffer.items())


def _meets_at(flow: _ControlFlow, end: int) -> bool:
    """Return True if the outermost loop of lanes ends here: all lanes have run."""
    u = flow.instructions[end]
    return u.op is Op.END and u.ranges[0].arg.type in WORKGROUP and not flow.lanes[end]


def _claim(place: str, holds: bool) -> ValidationClaim:
    return ValidationClaim(ObligationKind.PLAN, place, T.TRUE, T.TRUE if holds else T.FALSE)
