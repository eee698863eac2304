"""Workgroups as loops, for targets without workgroups.

Takes: LINEAR, a kernel with Specials and Barriers. Gives: LINEAR without them. Spec: Special, Barrier, Linear; AxisType table; R57
(Range), R60 (Barrier), R61 (fresh buffers), R125 (Special), R128 (private memory).

Every Special becomes a Range: those that number workgroups GLOBAL loops, those that number lanes LOCAL loops inside of them. At a
Barrier the loops of lanes are distributed (loop fission): all lanes run the instructions before it, then all lanes those after it.

- A *section* is a run of instructions between Barriers, with its own loops of lanes.
- A *common block* is a loop or an If that holds a Barrier. All lanes enter it together, so it stands outside of the loops of lanes,
  and its bound or condition must be the same for all of them. A value that is loaded is taken from the first lane.
- Arithmetic is built anew for every section that needs it. It stands right behind the last of its sources, so arithmetic that no
  lane changes is computed once.
- Any other value that another section needs is kept in LOCAL memory with an element per lane, and so is a REG Buffer of several
  sections.

Private memory that iterations of a loop would share, though it belongs to each of them, is divided among them (`carried_memory`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from uops.compiler.ir.buffers import fresh_uniques
from uops.compiler.ir.extents import may_be_zero_trip
from uops.compiler.ir.instructions import InstructionList, group_instructions_by_op
from uops.compiler.ir.lane_positions import POSITION, cast_to, count_iterations, number_iteration, offset_position
from uops.compiler.ir.lanes import (
    find_values_that_lanes_may_differ_in,
    is_lane_loop,
    is_register,
    require_same_for_all_lanes,
    sort_specials_by_name,
)
from uops.compiler.passes.carried_memory import (
    give_carried_memory_per_iteration,
    may_share_private_memory_of_iterations,
    split_private_buffers_by_scope,
)
from uops.compiler.target import Target
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, BufferArg, RangeArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import ALU, BLOCK_CLOSERS, BLOCK_OPENERS, MEMORY_ROOTS, Op
from uops.spec.ir.scope import base_memory, numbers_workgroups

#: Ops of workgroups that this pass removes.
WORKGROUP_OPS = frozenset({Op.SPECIAL, Op.BARRIER})
#: Instructions that only name or order others: they tell a Load from the same Load at another time.
_ORDERING = frozenset({Op.GROUP, Op.AFTER})
#: Instructions without an effect that read no memory, so that every section may build them for itself.
_REBUILT = ALU | _ORDERING | {Op.CAST, Op.BITCAST, Op.STACK, Op.INDEX}


@dataclass(eq=False, slots=True)
class _Block:
    """A loop or an If with the instructions inside."""

    opening: UOp
    items: list[_Item] = field(default_factory=list)
    closing: UOp | None = None


@dataclass(eq=False, slots=True)
class _CommonBlock:
    """A loop or an If that all lanes enter together."""

    opening: UOp
    closing: UOp
    plan: list[_PlanPart]


@dataclass(eq=False, slots=True)
class _Section:
    """Instructions that all lanes execute before any lane goes on; `lanes` are its loops, outermost first.

    `values` maps each node to what stands for it in this section. `fetched` are the values of other sections that it needs.
    """

    lanes: _Lanes
    items: list[_Item]
    values: dict[UOp, UOp] = field(default_factory=dict)
    fetched: list[UOp] = field(default_factory=list)
    registers: set[UOp] = field(default_factory=set)


_Item = UOp | _Block
#: A part of a plan. An instruction is a Barrier or the End of a loop of lanes; the last effect before stands for it.
_PlanPart = _Section | _CommonBlock | UOp
#: Ranges and Specials that number lanes, outermost first.
_Lanes = tuple[UOp, ...]


class _LaneMemory(NamedTuple):
    """Memory with `size` elements for each lane of the loops `lanes`."""

    buffer: UOp
    size: int
    lanes: _Lanes


def lower_workgroups_to_loops_unless_supported(linear: UOp, target: Target) -> UOp:
    """Return an instruction list without Specials and Barriers, if the target lacks them, or its lanes cannot meet in this kernel.

    Raises CompileError for a Barrier in a block in whose bound or condition lanes may differ. Raises it for a number of lanes
    without an upper bound, too, if values of all lanes are kept.
    """
    may_share = may_share_private_memory_of_iterations(linear)
    if may_share:
        linear = split_private_buffers_by_scope(linear)
    used = WORKGROUP_OPS & group_instructions_by_op(linear).keys()
    if used and not (used <= target.ops and target.can_lanes_meet_at_barriers(linear)):
        linear = linear.replace(src=tuple(_WorkgroupLowering(linear).lower_kernel()))
        may_share = may_share_private_memory_of_iterations(linear)
    return give_carried_memory_per_iteration(linear) if may_share else linear


def _parse_blocks(instructions: Iterable[UOp]) -> list[_Item]:
    """Return the tree of blocks of an instruction list."""
    top: list[_Item] = []
    open_blocks: list[_Block] = []
    for u in instructions:
        items = open_blocks[-1].items if open_blocks else top
        if u.op in BLOCK_OPENERS:
            open_blocks.append(_Block(u))
            items.append(open_blocks[-1])
        elif u.op in BLOCK_CLOSERS:
            open_blocks.pop().closing = u
        else:
            items.append(u)
    return top


def _walk_instructions(items: Iterable[_Item]) -> Iterator[UOp]:
    """Yield the instructions of a tree in order."""
    for i in items:
        if isinstance(i, _Block):
            yield i.opening
            yield from _walk_instructions(i.items)
            if i.closing is not None:
                yield i.closing
        else:
            yield i


def _walk_parts(plan: Iterable[_PlanPart]) -> Iterator[_Section | _CommonBlock]:
    """Yield the sections and common blocks of a plan in order."""
    for part in plan:
        if not isinstance(part, UOp):
            yield part
        if isinstance(part, _CommonBlock):
            yield from _walk_parts(part.plan)


def _has_barrier(item: _Item) -> bool:
    return any(u.op is Op.BARRIER for u in _walk_instructions([item]))


def _collect_sources(instructions: Iterable[UOp]) -> list[UOp]:
    """Return what instructions are computed from, down to what only an instruction gives, sources first."""
    return toposort(*dict.fromkeys(s for u in instructions for s in u.src), gate=lambda u: u.op in _REBUILT)


class _WorkgroupLowering:
    """The distribution of one kernel. `common` maps nodes to what stands for them outside of the loops of lanes."""

    def __init__(self, linear: UOp) -> None:
        self.linear = linear
        self.out = InstructionList()
        self.uniques = fresh_uniques(linear)
        self.next_axis_id = 1 + max((int(u.arg.axis_id) for u in linear.src if u.op is Op.RANGE), default=-1)
        self.differing = find_values_that_lanes_may_differ_in(linear)
        self.common: dict[UOp, UOp] = {}
        self.section_of: dict[UOp, _Section] = {}
        self.kept_values: dict[UOp, _LaneMemory] = {}
        self.kept_registers: dict[tuple[UOp, _Lanes], _LaneMemory] = {}

    def lower_kernel(self) -> Iterator[UOp]:
        """Yield the new instruction list."""
        instructions = [u for u in self.linear.src if u.op not in _REBUILT]
        specials = sort_specials_by_name(u for u in instructions if u.op is Op.SPECIAL)
        first = {u for u in toposort(*[s.bound for s in specials]) if u.op is Op.LOAD}
        memory = [u for u in instructions if u.op in MEMORY_ROOTS]
        items = _parse_blocks(u for u in instructions if u.op not in MEMORY_ROOTS | {Op.SPECIAL} and u not in first)
        plan = self._plan_sections(items, tuple(u for u in specials if not numbers_workgroups(u)))
        self._keep_values_and_registers_across_sections(plan)
        self.common |= {m: m for m in memory}
        kept = (*self.kept_values.values(), *self.kept_registers.values())
        for m in (*[m for m in memory if not is_register(m)], *[k.buffer for k in kept]):  # a register stands where it is used
            self.out.prepend(m)
        for u in [u for u in self.linear.src if u in first]:
            self.common[u] = self.out.append(self._rebuild(u, self.common))
        loops = [self._open_loop(u, AxisType.GLOBAL, self.common) for u in specials if numbers_workgroups(u)]
        self._emit_plan(plan)
        self._close_loops(loops)
        return iter(self.out)

    # The plan: sections, and the blocks around them that all lanes enter together.

    def _plan_sections(self, items: Sequence[_Item], lanes: _Lanes) -> list[_PlanPart]:
        """Divide the items that the loops `lanes` execute into sections, at Barriers."""
        plan: list[_PlanPart] = []
        run: list[_Item] = []
        for i in items:
            if not _has_barrier(i):
                run.append(i)
                continue
            plan += self._make_section_and_record_its_instructions(run, lanes)
            run = []
            if isinstance(i, UOp):
                plan.append(i)
                continue
            assert i.closing is not None
            if is_lane_loop(i.opening):
                plan += [*self._plan_sections(i.items, (*lanes, i.opening)), i.closing]
            else:
                if lanes:
                    require_same_for_all_lanes(i.opening, self.differing, "a Barrier", "R60 (Barrier)", self.linear)
                plan.append(_CommonBlock(i.opening, i.closing, self._plan_sections(i.items, lanes)))
        return plan + self._make_section_and_record_its_instructions(run, lanes)

    def _make_section_and_record_its_instructions(self, run: list[_Item], lanes: _Lanes) -> list[_PlanPart]:
        """Return the section of a run of items; nothing for no items."""
        if not run:
            return []
        section = _Section(lanes, run)
        self.section_of.update(dict.fromkeys(_walk_instructions(run), section))
        return [section]

    # Values and registers that several sections use.

    def _keep_values_and_registers_across_sections(self, plan: Sequence[_PlanPart]) -> None:
        """Give memory to each value that is needed outside of its section, and to each REG Buffer of several sections."""
        sections_of_register: dict[tuple[UOp, _Lanes], set[_Section]] = {}
        for part in _walk_parts(plan):
            if isinstance(part, _CommonBlock):
                for u in _collect_sources([part.opening]):
                    self._keep_value_if_from_lane_section(u)
                continue
            for u in _collect_sources(_walk_instructions(part.items)):
                if is_register(u) and part.lanes:
                    sections_of_register.setdefault((u, part.lanes), set()).add(part)
                elif self.section_of.get(u) is not part and self._keep_value_if_from_lane_section(u):
                    part.fetched.append(u)
        for (register, lanes), sections in sections_of_register.items():
            if len(sections) > 1:
                self.kept_registers[register, lanes] = self._allocate(int(register.arg.size), register.dtype, lanes)
                for section in sections:
                    section.registers.add(register)

    def _keep_value_if_from_lane_section(self, u: UOp) -> bool:
        """Give memory to a value if it is one of the instructions of a section, and return if it is."""
        home = self.section_of.get(u)
        if home is None or not home.lanes or u.dtype is dt.void or u.op is Op.RANGE:
            return False
        if u not in self.kept_values:
            self.kept_values[u] = self._allocate(math.prod(u.shape), u.dtype, home.lanes)
        return True

    def _allocate(self, size: int, dtype: dt.DType, lanes: _Lanes) -> _LaneMemory:
        arg = BufferArg(max(1, size * count_iterations(lanes)), dtype, "CPU", AddrSpace.LOCAL, next(self.uniques))
        return _LaneMemory(UOp(Op.BUFFER, (), arg), size, lanes)

    # The new list.

    def _open_loop(self, u: UOp, kind: AxisType, values: dict[UOp, UOp]) -> UOp:
        """Open a new loop for a Special or a loop of lanes, and record its counter as the value of `u`."""
        bound = self._get_replacement_or_rebuild_arithmetic(u.bound, self.common)
        if bound.op is Op.CONST:
            bound = B.index(bound.const)
        elif bound.dtype not in (dt.index, dt.int64):
            bound = B.cast(bound, dt.int64)
        self.next_axis_id += 1
        loop = self.out.append(UOp(Op.RANGE, (bound,), RangeArg(self.next_axis_id - 1, kind)))
        values[u] = cast_to(loop, u.dtype)
        return loop

    def _close_loops(self, loops: Sequence[UOp]) -> None:
        for r in reversed(loops):
            self.out.close_block_or_remove_if_effectless(r)

    def _emit_plan(self, plan: Sequence[_PlanPart]) -> None:
        for part in plan:
            if isinstance(part, _Section):
                self._emit_section(part)
            elif isinstance(part, _CommonBlock):
                values = {u: self._load_from_first_lane(u) for u in _collect_sources([part.opening]) if u in self.kept_values}
                opening = self.common[part.opening] = self.out.append(self._rebuild(part.opening, values))
                self._emit_plan(part.plan)
                self.common[part.closing] = self.out.close_block_or_remove_if_effectless(opening) or _NOTHING
            else:
                self.common[part] = self.out.last_effect() or _NOTHING

    def _load_from_first_lane(self, u: UOp) -> UOp:
        """Return a kept value of the first lane, where all lanes have the same; without lanes, which keep nothing, zeros."""
        memory = self.kept_values[u]
        effect = self.out.last_effect()
        buffer = memory.buffer if effect is None else B.after(memory.buffer, effect)
        index = _index_lane(buffer, memory.size, B.const(0, POSITION), u.shape)
        gate = self._build_test_for_lanes(memory.lanes)
        if gate is None:
            return self.out.append(B.load(index))
        zero = B.const(0, u.dtype)
        return self.out.append(B.load(index, B.stack(*[zero] * memory.size) if u.shape else zero, gate))

    def _build_test_for_lanes(self, lanes: _Lanes) -> UOp | None:
        """Return the condition that loops of lanes have iterations; None if they certainly do."""
        bounds = [self._get_replacement_or_rebuild_arithmetic(u.bound, self.common) for u in lanes if may_be_zero_trip(u)]
        return functools.reduce(B.and_, [B.lt(B.const(0, bound.dtype), bound) for bound in bounds]) if bounds else None

    def _emit_section(self, section: _Section) -> None:
        """Emit the loops of lanes, what the section needs of others, and its items."""
        values = section.values
        loops = [self._open_loop(u, AxisType.LOCAL if u.op is Op.SPECIAL else u.arg.type, values) for u in section.lanes]
        values.update((r, self.kept_registers[r, section.lanes].buffer) for r in section.registers)
        for u in section.fetched:
            values[u] = self.out.append(B.load(self._locate_kept_value(u, section)))
        self._emit_items(section.items, section)
        self._close_loops(loops)
        if loops:
            effects = [u for u in _walk_instructions(section.items) if u.dtype is dt.void]
            self.common.update(dict.fromkeys(effects, self.out.last_effect() or _NOTHING))
        else:
            self.common.update(values)

    def _emit_items(self, items: Sequence[_Item], section: _Section) -> None:
        for i in items:
            u = i.opening if isinstance(i, _Block) else i
            new = section.values[u] = self.out.append(self._rebuild(u, section.values, section))
            if isinstance(i, _Block):
                self._emit_items(i.items, section)
                closing = self.out.close_block_or_remove_if_effectless(new) or _NOTHING
                effects = [x for x in _walk_instructions([i]) if x.dtype is dt.void]
                section.values.update(dict.fromkeys(effects, closing))
            elif u in self.kept_values:
                self.out.append(B.store(self._locate_kept_value(u, section), new))

    # What stands for a node.

    def _rebuild(self, u: UOp, values: dict[UOp, UOp], section: _Section | None = None) -> UOp:
        """Return an instruction on what stands for its sources."""
        src = [self._get_replacement_or_rebuild_arithmetic(s, values, section) for s in u.src]
        if u.op in _ORDERING:
            named = u.op is Op.AFTER  # the first source is what an After gives
            src = src[:named] + [s for s in src[named:] if s is not _NOTHING]
            if named and len(src) == 1:
                return src[0]
        if u.op is Op.INDEX and section is not None and base_memory(u) in section.registers:
            memory = self.kept_registers[base_memory(u), section.lanes]
            size = memory.size * memory.buffer.dtype.itemsize // src[0].dtype.itemsize
            return UOp(Op.INDEX, (src[0], offset_position(self._number_lane(memory.lanes, section), size, src[1])))
        return u if tuple(src) == u.src else u.replace(src=tuple(src))

    def _get_replacement_or_rebuild_arithmetic(self, source: UOp, values: dict[UOp, UOp], section: _Section | None = None) -> UOp:
        """Return what stands for a source, in `values` or `common`; arithmetic in neither is built and put into `values`."""
        if source not in values and source not in self.common:
            for u in toposort(source, gate=lambda u: u.op in _REBUILT and u not in values and u not in self.common):
                if u not in values and u not in self.common:
                    values[u] = self._rebuild(u, values, section) if u.op in _REBUILT else u
        return values[source] if source in values else self.common[source]

    def _locate_kept_value(self, u: UOp, section: _Section) -> UOp:
        memory = self.kept_values[u]
        return _index_lane(memory.buffer, memory.size, self._number_lane(memory.lanes, section), u.shape)

    def _number_lane(self, lanes: _Lanes, section: _Section) -> UOp:
        """Return the number of this lane among those of some of the section's loops."""
        return number_iteration((u, section.values[u]) for u in lanes)


#: What stands for an effect that is left out.
_NOTHING = UOp(Op.GROUP, ())


def _index_lane(buffer: UOp, size: int, lane: UOp, shape: Sequence[object]) -> UOp:
    """Return the Index of the `size` elements of a lane, or of its one element for the shape ()."""
    elements = B.stack(*[B.const(k, POSITION) for k in range(size)]) if shape else B.const(0, POSITION)
    return UOp(Op.INDEX, (buffer, offset_position(lane, size, elements)))
