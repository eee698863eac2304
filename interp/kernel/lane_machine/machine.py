"""The lane machine: the definition of the meaning of a kernel.

It runs a kernel one node at a time, one iteration after the other. Iterations of GLOBAL and THREAD loops number workgroups.
Iterations of LOCAL, WARP and GROUP_REDUCE loops are lanes of one workgroup. A lane is a generator that pauses where lanes wait
for each other: at a Barrier (R60), at a Wmma, and for the lanes of an inner loop. LOOP and REDUCE run in order. All others run
in index order, or in an order drawn from the seed `schedule`, which also draws how lanes take turns (R57).

A node has one value per iteration of the loops around it. Takes a `KernelStructure` without Specials (`launch`), and per leaf
an array or a memory, which it changes. Raises Trap, with the places of both sides of a race; SpecError for an ill-formed
kernel; Unsound where a value contradicts the derived properties.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from uops.interp.kernel.call.effects import element_size, summarize_memory_effects
from uops.interp.kernel.lane_machine.access import CheckedMemory, LocatedTrap
from uops.interp.kernel.lane_machine.lane import LaneState, LaneStep
from uops.interp.kernel.lane_machine.memory import Address, FlatMemory, MemoryWindow, make_flat_memory
from uops.interp.kernel.lane_machine.workgroup import LaneArrival, LaneCoroutine, LaneFork, Workgroup
from uops.interp.kernel.structure.blocks import LANE_AXES, WORKGROUP_AXES, KernelStructure, Loop, ScheduledBlock
from uops.interp.kernel.structure.order import EventOrder, Stamp
from uops.interp.ops.elementwise import kernel_of
from uops.interp.ops.reduce import FOLDS
from uops.interp.ops.rounding import CASTS
from uops.interp.tensor.checks import check_derived_properties
from uops.interp.tensor.memory import describe
from uops.interp.tensor.storage import NUMPY, Array, const_to_array, to_index_array
from uops.spec.errors import Crash, SpecError, Trap, Unsupported, UopsError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import COLLECTIVE, Op
from uops.spec.untrusted import escape_to_one_line

_ndarray = np.ndarray
_PYTHON_ERRORS = (KeyError, IndexError, TypeError, ValueError, AttributeError, ZeroDivisionError)
#: Stands for the value of a node that an If kept from running.
SKIPPED: Any = object()
#: A leaf's value, its memory, or its part of a memory.
Operand = Array | FlatMemory | MemoryWindow


def _explain_unwritten_local(k: int) -> str:
    """Return why an element of LOCAL memory holds nothing: in another order of lanes the same fault is a race."""
    return "was never written (R61) before: what other lanes store can be read from a Barrier on (R60)"


def _alignment_of_window(operand: Operand) -> int:
    """Return the number of bytes, up to 8, that divides the positions of a window; those of a whole memory are aligned."""
    return int(np.gcd.reduce(operand.at.ravel(), initial=8)) if isinstance(operand, MemoryWindow) else 8


def _flat_memory_of(operand: Operand) -> FlatMemory:
    """Return the memory of an operand."""
    assert isinstance(operand, FlatMemory | MemoryWindow)
    return operand if isinstance(operand, FlatMemory) else operand.memory


@dataclass(slots=True)
class _CompiledItem:
    """An item ready to run: `slot` is where its value goes, `guards` are the slots of the Ifs around it."""

    node: UOp | Loop
    slot: int
    guards: tuple[int, ...]
    step: LaneStep | None
    loop: Loop | None
    synchronizes: bool


class LaneMachine:
    """One run of one kernel; `make_step(machine, node)` compiles the step that evaluates a node in a lane.

    `extents` has the numbers of workgroups and lanes, by Special.
    """

    def __init__(
        self,
        kernel: KernelStructure,
        operands: Mapping[UOp, Operand],
        make_step: MakeLaneStep,
        check: bool,
        schedule: int | None = None,
        extents: Mapping[UOp, int] = MappingProxyType({}),
    ) -> None:
        self.kernel = kernel
        self.extents = extents
        self.make_step = make_step
        self.check = check
        self.schedule = schedule
        self.order = EventOrder(kernel.block)
        self.slots: dict[UOp, int] = {}
        self.nodes: list[UOp] = []  # by slot
        self.start: list[Any] = []
        self.memories: dict[int, CheckedMemory] = {}
        self.private: dict[tuple[UOp, tuple[int, ...]], CheckedMemory] = {}  # LOCAL and REG
        self.rng = None if schedule is None else random.Random(schedule)
        self.code: dict[ScheduledBlock, list[_CompiledItem]] = {}
        self.effects = summarize_memory_effects(kernel)
        self._compile_blocks()
        self._bind_operands(operands)

    # Before the run

    def _compile_blocks(self) -> None:
        """Compile the items of every block."""
        blocks = [self.kernel.block]
        for block in blocks:
            blocks += [x.block for x in block.items if isinstance(x, Loop)]
            self.code[block] = [self._compile_item_with_if_guards(block, k) for k in range(len(block.items))]

    def _bind_operands(self, operands: Mapping[UOp, Operand]) -> None:
        """Set the values and memories of the leaves; sizes of memories may depend on values."""
        leaves_of: dict[int, list[UOp]] = {}
        for u, operand in operands.items():
            if isinstance(operand, FlatMemory | MemoryWindow):
                leaves_of.setdefault(id(_flat_memory_of(operand)), []).append(u)
            else:
                self._set_initial_value(u, operand)
        for number, leaves in leaves_of.items():
            granularity = min(math.gcd(self.effects.min_item_size.get(u, 8), _alignment_of_window(operands[u])) for u in leaves)
            may_be_written = any(u in self.effects.modified_bases for u in leaves)
            memory = self.memories[number] = CheckedMemory(
                _flat_memory_of(operands[leaves[0]]), self.order, granularity, may_be_written
            )
            for u in leaves:
                operand = operands[u]
                if isinstance(operand, MemoryWindow):
                    self._set_initial_value(u, self._window_address(u, memory, operand))
                else:
                    self._set_initial_value(u, self._whole_address(u, memory))

    def get_or_make_slot(self, u: UOp) -> int:
        """Return the slot of a node's value, made on first use."""
        slot = self.slots.get(u)
        if slot is None:
            slot = self.slots[u] = len(self.start)
            self.start.append(None)
            self.nodes.append(u)
            if u.op is Op.CONST:
                self.start[slot] = const_to_array(u.arg.value, u.arg.dtype)
        return slot

    def _set_initial_value(self, u: UOp, value: Any) -> None:
        self.start[self.get_or_make_slot(u)] = value

    def _compile_item_with_if_guards(self, block: ScheduledBlock, k: int) -> _CompiledItem:
        """Compile item `k` of a block."""
        item = block.items[k]
        guards = tuple(self.get_or_make_slot(g) for g in block.guards[k])
        if isinstance(item, Loop):
            self.get_or_make_slot(item.range)
            self.get_or_make_slot(item.range.bound)
            if item.closer.op is Op.REDUCE:
                self.get_or_make_slot(item.closer.operand)
            return _CompiledItem(item, self.get_or_make_slot(item.closer), guards, None, item, False)
        return _CompiledItem(item, self.get_or_make_slot(item), guards, self.make_step(self, item), None, item.op in COLLECTIVE)

    def _whole_address(self, u: UOp, memory: CheckedMemory) -> Address:
        """Return the address of all elements in the shape of `u`; a Param may have another shape than its argument (R86)."""
        size = element_size(u)
        return Address(memory, None, self.shape(LaneState(self.start), u), size)

    def _window_address(self, u: UOp, memory: CheckedMemory, window: MemoryWindow) -> Address:
        """Return the address of the elements of a window."""
        shape = self.shape(LaneState(self.start), u)
        return Address(memory, window.at.reshape(shape), shape, element_size(u))

    # The run

    def run(self) -> Array | None:
        """Run the kernel and return the value of the root, None where it has none."""
        lane = LaneState(self.start)
        try:
            for request in self.run_block(self.kernel.block, lane):
                raise Crash(f"{request} outside of all lanes")
        except RecursionError:
            raise Unsupported("loops nested deeper than Python's stack", "interp") from None
        finally:
            for memory in self.memories.values():
                memory.flush_sums_and_ready_marks()
        root = self.kernel.root
        if root.dtype is dt.void:
            return None
        items = self.kernel.block.items
        return self.read_or_load_value(lane, self.slots[root], (items.index(root) if root in items else 0,))

    def run_block(self, block: ScheduledBlock, lane: LaneState) -> LaneCoroutine:
        """Run the items of a block."""
        values, prefix = lane.values, lane.prefix
        for k, item in enumerate(self.code[block]):
            try:
                if item.guards and not all(values[g] is not SKIPPED and values[g] for g in item.guards):
                    values[item.slot] = SKIPPED
                elif item.loop is not None:
                    yield from self._run_loop(item, item.loop, lane, (*prefix, k))
                elif item.synchronizes:
                    yield from self._run_barrier_or_wmma(item, lane, (*prefix, k))
                else:
                    assert item.step is not None
                    values[item.slot] = item.step(lane, (*prefix, k))
            except _PYTHON_ERRORS as e:
                raise self._translate_to_ill_formed_error_or_crash(item, lane, e) from e
            except Trap as e:
                if isinstance(e, LocatedTrap):
                    raise
                raise self._locate_trap(e, (*prefix, k)) from e

    def _run_loop(self, item: _CompiledItem, loop: Loop, lane: LaneState, stamp: Stamp) -> LaneCoroutine:
        """Run a loop, and set the value of its closer after the outermost one."""
        values, closer = lane.values, loop.closer
        reduces = closer.op is Op.REDUCE
        if reduces and loop.outermost:
            values[item.slot] = []
        n = self.extents.get(loop.range)
        if n is None:
            n = int(self.read_or_load_value(lane, self.slots[loop.range.bound], stamp))
        if loop.type in LANE_AXES:
            yield from self._run_loop_as_lanes(loop, lane, stamp, n)
        else:
            yield from self._run_iterations_and_collect_terms(loop, lane, stamp, n)
        if loop.outermost:
            values[item.slot] = self._fold_collected_terms(closer, values[item.slot], lane) if reduces else None

    def _run_iterations_and_collect_terms(self, loop: Loop, lane: LaneState, stamp: Stamp, n: int) -> LaneCoroutine:
        """Run the iterations of a loop in one lane; workgroups each have memory of their own (R128)."""
        prefix, key, group = lane.prefix, lane.key, lane.group
        is_workgroup, counter_slot = loop.type in WORKGROUP_AXES, self.slots[loop.range]
        if is_workgroup and lane.workgroup is not None:
            raise SpecError(f"axis {loop.range.arg.axis_id} numbers workgroups inside of a loop of lanes (R128)")
        for i in self._iteration_order(loop, n):
            lane.prefix = (*stamp, i)
            lane.values[counter_slot] = self._make_checked_range_value(loop.range, i, lane)
            outside = self.private
            if is_workgroup:
                lane.key, lane.group = (*key, counter_slot, i), (*group, counter_slot, i)
                if self._is_workgroup_run_once(stamp):
                    self.private = {}  # dropped with the workgroup, which uses none of the memories outside of it (R128)
            yield from self.run_block(loop.block, lane)
            if loop.innermost and loop.closer.op is Op.REDUCE:
                self._collect_reduce_term(self.slots[loop.closer], loop.closer, lane)
            self.private = outside
        lane.prefix, lane.key, lane.group = prefix, key, group

    def _is_workgroup_run_once(self, stamp: Stamp) -> bool:
        """Return True if no loop of another kind is around a loop over workgroups, so that each of them runs once."""
        return all(isinstance(x, Loop) and x.type in WORKGROUP_AXES for x, _ in self.order.decode_stamp(stamp))

    def _iteration_order(self, loop: Loop, n: int) -> Sequence[int]:
        """Return the order of iterations, which is the same in every lane."""
        if self.schedule is None or loop.is_ordered or n < 2:
            return range(max(0, n))
        order = list(range(n))
        random.Random(self.schedule * 1_000_003 + self.slots[loop.range] * 8191 + n).shuffle(order)
        return order

    def _make_checked_range_value(self, r: UOp, i: int, lane: LaneState) -> Array:
        """Return the value of a Range in iteration `i`."""
        value = np.array(i, np.int64 if r.dtype is dt.index else NUMPY[r.dtype])
        if self.check:
            check_derived_properties(r, value, self, lane)
        return value

    def _collect_reduce_term(self, slot: int, closer: UOp, lane: LaneState) -> None:
        """Add this iteration's operand to the terms of a Reduce."""
        operand = self.read_or_load_value(lane, self.slots[closer.operand], lane.prefix)
        lane.values[slot].append((lane.prefix, operand))

    def _fold_collected_terms(self, u: UOp, collected: list[tuple[Stamp, Array]], lane: LaneState) -> Array:
        """Return the value of a Reduce.

        Its terms are a multiset, folded in index order, so that a schedule changes nothing (R32, R57).
        """
        terms = [v for _, v in sorted(collected, key=lambda pair: pair[0])]
        d = u.dtype
        if terms:
            stacked = to_index_array(np.array([v.tolist() for v in terms], object)) if d is dt.index else np.stack(terms)
        else:
            stacked = np.empty((0, *self.shape(lane, u)), NUMPY[d])
        return self.to_checked_array(u, FOLDS[u.arg.op][d](stacked, (0,))[0], lane)

    # Lanes

    def _run_loop_as_lanes(self, loop: Loop, lane: LaneState, stamp: Stamp, n: int) -> LaneCoroutine:
        """Run the iterations of a lane loop as threads of one workgroup, which the outermost such loop makes."""
        workgroup = lane.workgroup or Workgroup(self.order, self.rng)
        counter_slot, children = self.slots[loop.range], []
        for i in self._iteration_order(loop, n):
            child = LaneState(
                lane.values.copy(),
                (*stamp, i),
                (*lane.key, counter_slot, i),
                lane.group,
                workgroup,
                (*lane.dims, (loop.range, i, n)),
            )
            child.values[counter_slot] = self._make_checked_range_value(loop.range, i, child)
            children.append((child, self._run_lane_and_collect_reduce_term(loop, child)))
        if lane.workgroup is None:
            self.order.barriers.clear()
            workgroup.run_lanes(children)
        else:
            yield LaneFork(children)

    def _run_lane_and_collect_reduce_term(self, loop: Loop, lane: LaneState) -> LaneCoroutine:
        """Run one lane of a lane loop."""
        yield from self.run_block(loop.block, lane)
        if loop.closer.op is Op.REDUCE and loop.innermost:
            self._collect_reduce_term(self.slots[loop.closer], loop.closer, lane)

    def _run_barrier_or_wmma(self, item: _CompiledItem, lane: LaneState, stamp: Stamp) -> LaneCoroutine:
        """Wait for the other lanes at a Barrier, or at a Wmma for those of the warp."""
        assert isinstance(item.node, UOp)
        if item.node.op is Op.BARRIER:
            if lane.workgroup is not None:
                yield LaneArrival(item.node, stamp, lane, None)
            return
        assert item.step is not None
        fragments = item.step(lane, stamp)
        if lane.workgroup is None or item.node.arg.threads == 1:
            result = self.multiply_warp_fragments(item.node, [fragments], stamp)[0]
        else:
            result = yield LaneArrival(item.node, stamp, lane, fragments, self.multiply_warp_fragments)
        lane.values[item.slot] = self.to_checked_array(item.node, result, lane)

    def multiply_warp_fragments(self, u: UOp, fragments: Sequence[tuple[Array, Array, Array]], stamp: Stamp) -> list[Array]:
        """Return the results of a Wmma for all lanes of a warp."""
        from uops.interp.ops.wmma import multiply_tile_grid  # late: few kernels have a Wmma
        from uops.spec.wmma import find_descriptor  # late: it loads all descriptors

        descriptor = find_descriptor(u.arg)
        if descriptor is None:
            raise Trap(
                f"Opaque({escape_to_one_line(u.arg.name)}): a Wmma of {escape_to_one_line(u.arg.device)} "
                "that no descriptor explains (R93)"
            )
        if len(fragments) != u.arg.threads:
            raise LocatedTrap(f"{self.order.describe_event(stamp)} needs {u.arg.threads} lanes, got {len(fragments)} (R93)")
        a, b, c = (np.stack([p[k] for p in fragments]) for k in range(3))
        return list(multiply_tile_grid(descriptor, u.arg.tile_grid, a, b, c))

    # Values and memory

    def read_or_load_value(self, lane: LaneState, slot: int, stamp: Stamp) -> Array:
        """Return the value of a node; of a reference by an implicit Load, here and now (R51)."""
        v = lane.values[slot]
        if v.__class__ is _ndarray:
            value: Array = v
            return value
        return self._load_reference_or_reject(v, lane, slot, stamp)

    def _load_reference_or_reject(self, v: Any, lane: LaneState, slot: int, stamp: Stamp) -> Array:
        """Load the value of a reference. Raises SpecError for a node without a value."""
        u = self.nodes[slot]
        if v.__class__ is Address:
            return self.load_elements(v, NUMPY[u.dtype], lane, stamp)
        if v is SKIPPED:
            raise SpecError(f"{describe(u)} is used outside of the If that it stands in (R114)")
        raise SpecError(f"{describe(u)} has no value here")

    def get_or_make_memory(self, address: Address, lane: LaneState) -> CheckedMemory:
        """Return the memory of an address: a LOCAL Buffer has one per workgroup, a REG Buffer one per lane (R61)."""
        if address.home.__class__ is CheckedMemory:
            memory: CheckedMemory = address.home
            return memory
        u: UOp = address.home
        local = u.arg.addrspace is AddrSpace.LOCAL
        key = u, (lane.group if local else lane.key)
        private = self.private.get(key)
        if private is None:
            data = np.zeros(u.arg.size, NUMPY[u.dtype])
            flat = make_flat_memory(f"{u.arg.addrspace.value} buffer {u.arg.unique}", data, np.zeros(u.arg.size, bool))
            flat.explain_missing = _explain_unwritten_local if local else None
            private = self.private[key] = CheckedMemory(flat, self.order, self.effects.min_item_size.get(u, 8), True)
        return private

    def load_elements(self, address: Address, dtype: np.dtype[Any], lane: LaneState, stamp: Stamp) -> Array:
        """Return the elements of an address."""
        memory = self.get_or_make_memory(address, lane)
        if address.at.__class__ is int:
            self.trap_if_marked_outside(address, memory, address.at, stamp)
            return memory.load(address.at, dtype, stamp)
        positions = address.byte_positions()
        out = np.empty(positions.shape, dtype)
        flat = out.reshape(-1)
        for k, position in enumerate(positions.ravel().tolist()):
            self.trap_if_marked_outside(address, memory, position, stamp)
            flat[k] = memory.load(position, dtype, stamp)
        return out

    def trap_if_marked_outside(self, address: Address, memory: CheckedMemory, position: Any, stamp: Stamp) -> None:
        """Raise Trap for the position of an index out of bounds (R45)."""
        if position < 0:
            i, n = address.outside or (None, None)
            problem = f"index {i} is outside of {n} elements of" if i is not None else "an index is outside of"
            raise LocatedTrap(f"{self.order.describe_event(stamp)}: {problem} {memory.flat.name} (R45)")

    def shape(self, lane: Any, u: UOp) -> tuple[int, ...]:
        """Return the derived shape, its symbolic extents evaluated (R48)."""
        return tuple(int(n) if isinstance(n, int) else self.eval_integer(lane, n) for n in u.shape)

    def eval_integer(self, lane: LaneState, u: UOp) -> int:
        """Return the value of an index expression over nodes that have values here."""
        values: dict[UOp, Any] = {}

        def has_value(n: UOp) -> bool:
            slot = self.slots.get(n)
            return slot is not None and lane.values[slot].__class__ is _ndarray

        for n in toposort(u, gate=lambda n: not has_value(n)):
            if has_value(n):
                values[n] = lane.values[self.slots[n]]
            elif n.op is Op.CONST:
                values[n] = const_to_array(n.arg.value, n.arg.dtype)
            else:
                values[n] = _eval_elementwise(n, [values[s] for s in n.src])
        return int(values[u])

    def to_checked_array(self, u: UOp, v: Any, lane: LaneState) -> Array:
        """Return a computed value as an array, once its derived properties are asserted."""
        if v.__class__ is not _ndarray:
            v = np.asarray(v, None if u.dtype is dt.index else NUMPY[u.dtype])
        if self.check:
            check_derived_properties(u, v, self, lane)
        array: Array = v
        return array

    # Faults

    def _locate_trap(self, e: Trap, stamp: Stamp) -> Trap:
        """Return a Trap that adds the event to the message."""
        return LocatedTrap(f"{e}, at {self.order.describe_event(stamp)}")

    def _translate_to_ill_formed_error_or_crash(self, item: _CompiledItem, lane: LaneState, e: Exception) -> UopsError:
        """Return the error that a Python error stands for: an ill-formed node's if deriving its properties raises one."""
        u = item.node if isinstance(item.node, UOp) else item.node.closer
        try:
            sources = [(s.dtype, s.shape) for s in u.src]
            _ = u.dtype, u.shape, u.min_max
        except UopsError as error:
            return error
        if any(self.slots.get(s) is not None and lane.values[self.slots[s]] is SKIPPED for s in u.src):
            return SpecError(f"{describe(u)} uses a value of an If that did not run (R114)")
        return Crash(f"{describe(u)} cannot be evaluated on {sources}: {type(e).__name__}: {e}")


def _eval_elementwise(u: UOp, sources: Sequence[Array]) -> Array:
    """Return the value of an elementwise node, given the values of its sources."""
    if u.op is Op.CAST:
        return CASTS[u.operand.dtype, u.arg.dtype](sources[0])
    return np.asarray(kernel_of(u.op, u.src)(*sources))


#: A function that compiles the step of a node; `lane_machine.actions.compile_step` is the one.
MakeLaneStep = Callable[[LaneMachine, UOp], LaneStep]
