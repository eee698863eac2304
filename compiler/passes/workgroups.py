"""Workgroups as loops, for targets without workgroups.

Takes: LINEAR, a kernel with Specials and Barriers. Gives: LINEAR without them. Spec: Special, Barrier, Linear; AxisType table; R57
(Range), R60 (Barrier), R61 (fresh buffers), R125 (Special), R128 (private memory).

Every Special becomes a Range: those that number workgroups GLOBAL loops, those that number lanes LOCAL loops inside of them. At a
Barrier the loops of lanes are distributed (loop fission): all lanes run the instructions before it, then all lanes those after it.
A loop that holds a Barrier is entered by all lanes together, so its bound must be the same for all of them.

A *section* is a run of instructions between Barriers, with its own loops of lanes. Arithmetic that another section needs is
computed again there. Any other value is kept in LOCAL memory with one element per lane. So is a REG Buffer of several sections.
Arithmetic that no lane changes stands outside of the loops of lanes, once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from uops.compiler.ir.buffers import fresh_uniques
from uops.compiler.place import untranslatable_error
from uops.compiler.target import SupportsWorkgroups, Target
from uops.spec.errors import CompileError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, BufferArg, RangeArg
from uops.spec.ir.axes import WORKGROUP, AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import ALU, Op
from uops.spec.ir.scope import base_memory, strip_afters

#: Ops of workgroups that this pass removes.
WORKGROUP_OPS = frozenset({Op.SPECIAL, Op.BARRIER})
#: Names of Specials that number workgroups; all others number lanes (R125).
_GROUP_NAMES = ("gidx", "blockIdx", "tidx", "threadpool")
#: Instructions that read no memory, so that every section may compute them for itself.
_RECOMPUTED = ALU | {Op.CAST, Op.BITCAST, Op.STACK, Op.INDEX}
#: Instructions that order others: they tell a Load from the same Load at another time.
_ORDERING = frozenset({Op.GROUP, Op.AFTER})
#: Dtype of the positions in the memory of all lanes.
_POSITION = dt.int32


@dataclass(eq=False, slots=True)
class _Block:
    """A loop or an If with the instructions inside.

    A block that all lanes enter together has a plan, and `hoisted`, the arithmetic in it that is the same for all lanes.
    """

    opening: UOp
    items: list[_Item] = field(default_factory=list)
    closing: UOp | None = None
    hoisted: list[UOp] = field(default_factory=list)
    plan: list[_PlanPart] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class _Section:
    """Instructions that all lanes execute before any lane goes on; `lanes` are its loops, outermost first.

    `values` maps each instruction to what stands for it in this section. `last_effect` is what others wait for.
    """

    lanes: tuple[UOp, ...]
    items: list[_Item]
    values: dict[UOp, UOp] = field(default_factory=dict)
    last_effect: UOp | None = None
    first_elements: dict[_LaneMemory, UOp] = field(default_factory=dict)  # positions of this lane's first elements
    register_positions: dict[UOp, dict[UOp, None]] = field(
        default_factory=dict
    )  # position -> the registers that are accessed there
    elements: dict[tuple[UOp, UOp], UOp] = field(default_factory=dict)  # (register, position) -> position in the lanes' memory


_Item = UOp | _Block
#: A part of the plan of a block; a Barrier stands where the lanes meet.
_PlanPart = _Section | _Block | UOp


class _LaneMemory(NamedTuple):
    """Memory with `size` elements for each lane of the loops `lanes`."""

    buffer: UOp
    size: int
    lanes: tuple[UOp, ...]


def lower_workgroups_to_loops(linear: UOp, target: Target) -> UOp:
    """Return an instruction list without Specials and Barriers, if the target lacks them, or its lanes cannot meet in this kernel.

    Raises CompileError for a Barrier in a loop or an If of which lanes compute the bound or the condition, and for a number of
    lanes that is not constant.
    """
    used = {u.op for u in linear.src} & WORKGROUP_OPS
    if not used:
        return linear
    if used <= target.ops and (not isinstance(target, SupportsWorkgroups) or target.lanes_meet(linear)):
        return linear
    return linear.replace(src=tuple(_WorkgroupLowering(linear).lower_kernel()))


def _parse_blocks(instructions: Iterable[UOp]) -> list[_Item]:
    """Return the tree of blocks of an instruction list."""
    top: list[_Item] = []
    open_blocks: list[_Block] = []
    for u in instructions:
        items = open_blocks[-1].items if open_blocks else top
        if u.op in (Op.RANGE, Op.IF):
            open_blocks.append(_Block(u))
            items.append(open_blocks[-1])
        elif u.op in (Op.END, Op.ENDIF):
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
            yield i.closing or i.opening
        else:
            yield i


def _walk_sections(plan: Iterable[_PlanPart]) -> Iterator[_Section]:
    for part in plan:
        if isinstance(part, _Section):
            yield part
        elif isinstance(part, _Block):
            yield from _walk_sections(part.plan)


def _has_barrier(item: _Item) -> bool:
    return any(u.op is Op.BARRIER for u in _walk_instructions([item]))


def _is_register_reference(u: UOp) -> bool:
    """Return True for a reference to REG memory, of which each lane has its own (R128, private memory)."""
    memory = base_memory(u)
    return memory.op is Op.BUFFER and memory.arg.addrspace is AddrSpace.REG


def _is_lane_loop(u: UOp) -> bool:
    return u.op is Op.RANGE and u.arg.type in WORKGROUP


def _natural_sort_key(name: str) -> list[tuple[int, str]]:
    """Return a sort key that orders names by the numbers in them: lidx2 before lidx10 (R125)."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


class _WorkgroupLowering:
    """The distribution of one kernel; `out` is the new instruction list."""

    def __init__(self, linear: UOp) -> None:
        self.linear = linear
        self.out: list[UOp] = []
        self.emitted: set[UOp] = set()
        self.uniques = fresh_uniques(linear)
        self.next_axis_id = 1 + max((int(u.arg.axis_id) for u in linear.src if u.op is Op.RANGE), default=-1)
        self.kernel = _Block(linear)
        self.blocks = [self.kernel]  # the blocks of the plan around what is planned, outermost first
        self.uniform: dict[UOp, UOp] = {}  # instruction that is the same for all lanes -> what stands for it
        self.home_depth: dict[UOp, int] = {}  # of such an instruction: the number of plan blocks around it, without the kernel
        self.section_of: dict[UOp, _Section] = {}
        self.lane_memory: dict[UOp, _LaneMemory] = {}  # by value, or by REG Buffer
        self.register_references: set[UOp] = set()  # places in REG memory that no lane changes

    def lower_kernel(self) -> list[UOp]:
        """Return the new instruction list."""
        specials = sorted((u for u in self.linear.src if u.op is Op.SPECIAL), key=lambda u: _natural_sort_key(str(u.arg.name)))
        groups = [u for u in specials if str(u.arg.name).startswith(_GROUP_NAMES)]
        memory = [u for u in self.linear.src if u.op in (Op.PARAM, Op.BUFFER)]
        for u in (*memory, *groups):
            self.uniform[u], self.home_depth[u] = u, 0
        items = _parse_blocks(u for u in self.linear.src if u.op not in (Op.PARAM, Op.BUFFER, Op.SPECIAL))
        self.kernel.plan = self._plan_sections(items, tuple([u for u in specials if u not in groups]))
        self._keep_values_that_cross_sections()
        for m in memory:
            if m in self.lane_memory:
                del self.uniform[m]
        self.out += [m for m in memory if m not in self.lane_memory] + [m.buffer for m in self.lane_memory.values()]
        loops = [self._open_loop_of_special(u, AxisType.GLOBAL, self.uniform) for u in groups]
        self._emit_plan(self.kernel)
        self._close_loops(loops)
        return self.out

    def _error(self, u: UOp, detail: str) -> CompileError:
        return untranslatable_error("R60 (Barrier)", u, detail, self.linear)

    # The plan: sections, and the blocks around them that all lanes enter together.

    def _plan_sections(self, items: Sequence[_Item], lanes: tuple[UOp, ...]) -> list[_PlanPart]:
        """Divide the items that the loops `lanes` execute into sections, at Barriers."""
        plan: list[_PlanPart] = []
        run: list[_Item] = []
        for i in (*items, None):
            if i is None or _has_barrier(i):
                plan += self._make_section(lanes, run)
                run = []
                plan += [i] if isinstance(i, UOp) else []
                if isinstance(i, _Block) and _is_lane_loop(i.opening):
                    plan += self._plan_sections(i.items, (*lanes, i.opening))
                elif isinstance(i, _Block):
                    plan.append(self._plan_common_block(i, lanes))
            elif isinstance(i, _Block) or not self._hoist_if_uniform(i):
                run.append(i)
        return plan

    def _make_section(self, lanes: tuple[UOp, ...], run: list[_Item]) -> list[_PlanPart]:
        """Return the section of a run of items; nothing for no items."""
        if not run:
            return []
        section = _Section(lanes, run)
        self.section_of.update(dict.fromkeys(_walk_instructions(run), section))
        return [section]

    def _plan_common_block(self, block: _Block, lanes: tuple[UOp, ...]) -> _Block:
        """Return a block that all lanes enter together. Raises CompileError if lanes may differ in its bound or condition."""
        opening = block.opening
        differing = next((s for s in opening.src if s.op is not Op.CONST and s not in self.uniform), None)
        if differing is not None:
            detail = f"a Barrier stands in this block, but lanes may differ in its {differing.op.name.lower()}"
            raise self._error(opening, detail)
        common = _Block(opening, closing=block.closing)
        self.uniform[opening], self.home_depth[opening] = opening, len(self.blocks)
        self.blocks.append(common)
        common.plan = self._plan_sections(block.items, lanes)
        self.blocks.pop()
        return common

    def _hoist_if_uniform(self, u: UOp) -> bool:
        """Hoist arithmetic that no lane changes to the beginning of the innermost block that it depends on; return if it is.

        The place of an element of REG memory is not hoisted, but left to the sections that use it.
        """
        sources = [s for s in u.src if s.op is not Op.CONST and s.constant_elements is None]
        if u.op not in _RECOMPUTED or any(s not in self.uniform for s in sources):
            return False
        if _is_register_reference(u):  # each lane has its own (R128): every section that uses it computes it
            self.register_references.add(u)
            return True
        depth = max([self.home_depth[s] for s in sources], default=0)
        self.uniform[u], self.home_depth[u] = u, depth
        self.blocks[depth].hoisted.append(u)
        return True

    # Values and registers that several sections use.

    def _keep_values_that_cross_sections(self) -> None:
        """Give memory to each value that a section needs of another one, and to each REG Buffer of several sections."""
        sections_of_register: dict[UOp, list[_Section]] = {}
        for section in _walk_sections(self.kernel.plan):
            for s in (s for u in _walk_instructions(section.items) for s in u.src):
                self._keep_if_from_another_section(s, section)
                if _is_register_reference(s):
                    memory = base_memory(s)
                    sections = sections_of_register.setdefault(memory, [])
                    sections += [] if section in sections else [section]
        for memory, sections in sections_of_register.items():
            if len(sections) > 1 and all(s.lanes for s in sections):
                self._keep(memory, int(memory.arg.size), min((s.lanes for s in sections), key=len))

    def _keep_if_from_another_section(self, s: UOp, section: _Section) -> None:
        pending = [s]
        while pending:
            u = pending.pop()
            home = self.section_of.get(u)
            if home is None or home is section or not home.lanes or u in self.lane_memory or u.dtype is dt.void:
                continue
            if u.op in _RECOMPUTED | _ORDERING:
                pending += u.src
            elif u.op is not Op.RANGE:
                self._keep(u, math.prod(u.shape), home.lanes)

    def _keep(self, value: UOp, size: int, lanes: tuple[UOp, ...]) -> None:
        arg = BufferArg(size * math.prod(map(self._extent, lanes)), value.dtype, "CPU", AddrSpace.LOCAL, next(self.uniques))
        self.lane_memory[value] = _LaneMemory(UOp(Op.BUFFER, (), arg), size, lanes)

    def _extent(self, lane: UOp) -> int:
        if lane.bound.op is not Op.CONST:
            raise self._error(lane, f"the number of lanes is computed by {lane.bound.op.name.lower()}, expected a constant")
        return max(0, int(lane.bound.const))

    # The new list.

    def _append(self, u: UOp) -> UOp:
        self.out.append(u)
        self.emitted.add(u)
        return u

    def _open_loop(self, lane: UOp, kind: AxisType) -> UOp:
        """Open a loop of as many iterations as a Range or Special has; what computes a symbolic bound is the same for all lanes."""
        bound = lane.bound
        if bound.op is Op.CONST:
            bound = B.index(self._extent(lane))
        for u in toposort(bound):
            if u.op in _RECOMPUTED and u.constant_elements is None:
                self._emit_once(u)
        self.next_axis_id += 1
        return self._append(UOp(Op.RANGE, (bound,), RangeArg(self.next_axis_id - 1, kind)))

    def _open_loop_of_special(self, special: UOp, kind: AxisType, values: dict[UOp, UOp]) -> UOp:
        loop = self._open_loop(special, kind)
        values[special] = loop if special.dtype is loop.dtype else self._append(B.cast(loop, special.dtype))
        return loop

    def _close_block(self, opening: UOp) -> UOp | None:
        """Close a loop or an If, and return what does; one without an effect is left out."""
        start = len(self.out) - 1 - self.out[::-1].index(opening)
        self.emitted.difference_update(self.out[start:])
        effects = [u for u in self.out[start + 1 :] if u.dtype is dt.void]
        if not effects:
            del self.out[start:]
            return None
        return self._append(UOp(Op.END, (effects[-1], opening)) if opening.op is Op.RANGE else UOp(Op.ENDIF, (opening,)))

    def _close_loops(self, loops: Sequence[UOp]) -> None:
        for r in reversed(loops):
            self._close_block(r)

    def _last_effect(self) -> UOp | None:
        """Return the last effect, if there is one."""
        return next((u for u in reversed(self.out) if u.dtype is dt.void), None)

    def _emit_plan(self, block: _Block) -> None:
        """Emit the arithmetic that is hoisted to a block, and its parts."""
        for u in block.hoisted:
            self.uniform[u] = self._emit_once(self._rebuild(u))
        for part in block.plan:
            if isinstance(part, _Section):
                self._emit_section(part)
            elif isinstance(part, _Block):
                opening = self.uniform[part.opening] = self._append(self._rebuild(part.opening))
                self._emit_plan(part)
                self._note_effect(part.closing, self._close_block(opening), self.uniform)
            else:
                self._note_effect(part, self._last_effect(), self.uniform)

    def _note_effect(self, old: UOp | None, new: UOp | None, values: dict[UOp, UOp]) -> None:
        """Record what stands for an effect; for none, what waits for it waits for nothing."""
        if old is not None:
            values[old] = UOp(Op.GROUP, ()) if new is None else new

    def _emit_section(self, section: _Section) -> None:
        """Emit the loops of lanes, what the section needs of others, and its items."""
        loops = []
        for lane in section.lanes:
            if lane.op is Op.SPECIAL:
                loops.append(self._open_loop_of_special(lane, AxisType.LOCAL, section.values))
            else:
                loops.append(self._open_loop(lane, lane.arg.type))
                section.values[lane] = loops[-1]
        self._emit_positions_of_kept(section)
        for s in (s for u in _walk_instructions(section.items) for s in u.src):
            self._fetch(s, section)
        self._emit_items(section.items, section)
        self._close_loops(loops)
        section.last_effect = self._last_effect()

    def _emit_positions_of_kept(self, section: _Section) -> None:
        """Emit the positions of this lane's elements in the memory of what is kept, as far as they are known from the beginning."""
        instructions = list(_walk_instructions(section.items))
        kept = dict.fromkeys(x for u in instructions for x in (u, *map(strip_afters, u.src)) if x in self.lane_memory)
        for value in kept:
            self._emit_first_element(self.lane_memory[value], section)
        for u in instructions:
            register = strip_afters(u.src[0]) if u.src else None
            if u.op is Op.INDEX and register is not None and register in self.lane_memory:
                section.register_positions.setdefault(u.positions[0], {})[register] = None
        for position in section.register_positions:
            if self.section_of.get(position) is not section:
                self._fetch(position, section)
                self._emit_register_positions(position, section)

    def _emit_first_element(self, memory: _LaneMemory, section: _Section) -> None:
        if memory in section.first_elements:
            return
        total: UOp = B.const(0, _POSITION)
        for r in memory.lanes:
            loop = section.values[r]
            counter = loop if loop.dtype is _POSITION else self._emit_once(B.cast(loop, _POSITION))
            if total.op is Op.CONST:
                total = counter
            else:
                scaled = self._emit_once(UOp(Op.MUL, (total, B.const(self._extent(r), _POSITION))))
                total = self._emit_once(UOp(Op.ADD, (scaled, counter)))
        if memory.size != 1 and total.op is not Op.CONST:
            total = self._emit_once(UOp(Op.MUL, (total, B.const(memory.size, _POSITION))))
        section.first_elements[memory] = total

    def _emit_register_positions(self, position: UOp, section: _Section) -> None:
        """Emit where the elements of registers at a position are, once the position is known."""
        new = self._value(position, section)
        for register in section.register_positions.get(position, ()):
            first = section.first_elements[self.lane_memory[register]]
            parts = new.elements if new.op is Op.STACK else (new,)
            moved = [self._add_positions(first, x) for x in parts]
            section.elements[register, position] = moved[0] if new.op is not Op.STACK else self._emit_once(B.stack(*moved))

    def _add_positions(self, first: UOp, x: UOp) -> UOp:
        if x.op is Op.CONST and first.op is Op.CONST:
            return B.const(int(first.const) + int(x.const), _POSITION)
        x = (
            B.const(int(x.const), _POSITION)
            if x.op is Op.CONST
            else x
            if x.dtype is _POSITION
            else self._emit_once(B.cast(x, _POSITION))
        )
        return first if x.op is Op.CONST and x.const == 0 else self._emit_once(UOp(Op.ADD, (first, x)))

    def _emit_once(self, u: UOp) -> UOp:
        """Emit arithmetic, unless the open blocks have it already."""
        return u if u in self.emitted else self._append(u)

    def _fetch(self, s: UOp, section: _Section) -> None:
        """Compute or load what is an instruction of another section, or a place in REG memory that no lane changes."""
        if s in self.register_references and s not in section.values:
            self._emit_register_reference(s, section)
            return
        home = self.section_of.get(s)
        if home is None or home is section or not home.lanes or s in section.values or s.dtype is dt.void:
            return
        if s in self.lane_memory:
            self._emit_first_element(self.lane_memory[s], section)
            section.values[s] = self._append(B.load(self._address_of_lane(s, section)))
        elif s.op in _RECOMPUTED | _ORDERING:
            for x in s.src:
                self._fetch(x, section)
            self._emit_instruction(s, section)

    def _emit_register_reference(self, u: UOp, section: _Section) -> None:
        register, position = strip_afters(u.src[0]), u.positions[0]
        if register in self.lane_memory:
            self._emit_first_element(self.lane_memory[register], section)
            section.register_positions.setdefault(position, {})[register] = None
            self._emit_register_positions(position, section)
        self._emit_instruction(u, section)

    def _emit_items(self, items: Sequence[_Item], section: _Section) -> None:
        for i in items:
            if isinstance(i, _Block):
                opening = self._emit_instruction(i.opening, section)
                self._emit_items(i.items, section)
                self._note_effect(i.closing, self._close_block(opening), section.values)
            else:
                new = self._emit_instruction(i, section)
                if i in self.lane_memory:
                    self._append(B.store(self._address_of_lane(i, section), new))

    def _emit_instruction(self, u: UOp, section: _Section) -> UOp:
        """Emit what stands for an instruction in a section; an access to a kept register becomes one to its memory."""
        register = strip_afters(u.src[0]) if u.src else None
        if u.op is not Op.AFTER and register in self.lane_memory and register is not None and register.op is Op.BUFFER:
            buffer, *others = [self._value(s, section) for s in u.src]
            if u.op is Op.INDEX:
                new = self._append(UOp(Op.INDEX, (buffer, section.elements[register, u.positions[0]])))
            else:
                new = self._append(u.replace(src=(self._address_of_lane(register, section, buffer), *others)))
        else:
            new = self._rebuild(u, section)
            if u.op is not Op.AFTER or new.op is Op.AFTER:  # one that waits for nothing is no instruction
                self._emit_once(new)
        section.values[u] = new
        self._emit_register_positions(u, section)
        return new

    def _address_of_lane(self, value: UOp, section: _Section, buffer: UOp | None = None) -> UOp:
        """Emit the address of this lane's elements of a kept value or register; `buffer` is the memory, or an After of it."""
        memory = self.lane_memory[value]
        first = section.first_elements[memory]
        if memory.size != 1:
            first = self._emit_once(B.stack(*[self._add_positions(first, B.const(k, _POSITION)) for k in range(memory.size)]))
        return self._append(UOp(Op.INDEX, (memory.buffer if buffer is None else buffer, first)))

    def _rebuild(self, u: UOp, section: _Section | None = None) -> UOp:
        """Return what stands for an instruction in a section, or outside of all; its source for an After that waits for nothing."""
        src = [self._value(s, section) for s in u.src]
        if u.op in _ORDERING:
            src = src[: u.op is Op.AFTER] + [s for s in src[u.op is Op.AFTER :] if s.op is not Op.GROUP or s.src]
        if u.op is Op.AFTER and len(src) == 1:
            return src[0]
        return u if tuple(src) == u.src else u.replace(src=tuple(src))

    def _value(self, s: UOp, section: _Section | None) -> UOp:
        """Return what stands for a source."""
        if section is not None and s in section.values:
            return section.values[s]
        if s in self.uniform:
            return self.uniform[s]
        if s in self.lane_memory and s.op is Op.BUFFER:
            return self.lane_memory[s].buffer
        home = self.section_of.get(s)
        if home is None or home is section:
            return s
        if not home.lanes:
            return home.values[s]
        return s if s.dtype is not dt.void else home.last_effect or UOp(Op.GROUP, ())
