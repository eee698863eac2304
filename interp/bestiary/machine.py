"""The evaluation of a graph of the bestiary: nodes in dependency order, each in its frame, with an explicit stack per frame.

Whatever may come to a barrier is a generator, a `BestiaryCoroutine`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from uops.interp.bestiary.frame import BestiaryCell, BestiaryFrame, BestiaryLane, BestiaryScope
from uops.interp.bestiary.lanes import BestiaryCoroutine, iteration_order, run_lanes_together_for_effects, run_workgroup
from uops.interp.bestiary.memory import BestiaryMemory, BestiaryRef, PointerVector, load_and_check_races, store_and_check_races
from uops.interp.bestiary.plan import ABSORBED, KINDS, BestiaryLoopKind, LoopLevel, ScopePlan
from uops.interp.tensor.checks import check_derived_properties, raise_unsound
from uops.interp.tensor.memory import describe
from uops.interp.tensor.storage import Array
from uops.spec.errors import Crash, SpecError, UopsError
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Callback per evaluation of a node: the node and its value, None for a void node.
Trace = Callable[[UOp, Any], None]
#: Function of the evaluation of a node that returns a value, a cell, or a generator of one.
Action = Callable[["EvalStep"], Any]
#: Function that returns the nodes that must have cells before a node is evaluated, each with its frame.
FindDependencies = Callable[["BestiaryMachine", BestiaryFrame, UOp], Iterable[tuple[BestiaryFrame, UOp]]]
#: SPECIALs whose names begin so number workgroups, all others lanes (R125).
GROUP_NAMES = ("gidx", "blockIdx", "tidx", "threadpool")
#: The Python errors of evaluating an ill-formed node.
_PYTHON_ERRORS = (KeyError, IndexError, TypeError, ValueError, AttributeError, ZeroDivisionError)


class BestiaryMachine:
    """One run of a graph of the bestiary.

    `memories` are those that outlive a workgroup, by key or node. `actions` evaluate ops, and `needs` name what they need first
    where that is not simply their sources. `bound_values` has the value of every bound variable.
    """

    def __init__(
        self,
        inputs: Mapping[str, Any],
        check: bool,
        schedule: int | None,
        trace: Trace | None,
        actions: Mapping[Op, Action],
        needs: Mapping[Op, FindDependencies],
    ) -> None:
        self.inputs = inputs
        self.check = check
        self.schedule = schedule
        self.trace = trace
        self.memories: dict[Any, BestiaryMemory] = {}
        self.plans: dict[UOp, ScopePlan] = {}
        self.bound_values: dict[UOp, UOp] = {}
        self.clock = 0
        self.actions = actions
        self.needs = needs

    def plan_of(self, root: UOp) -> ScopePlan:
        """Return the plan of the scope of `root`, made on first use."""
        plan = self.plans.get(root)
        if plan is None:
            plan = self.plans[root] = ScopePlan(root, self.bound_values)
        return plan

    def new_event(self) -> int:
        """Return a new access, as a set of one bit."""
        self.clock += 1
        return 1 << (self.clock - 1)

    # ---------------------------------------------------------------------------------------------------------- evaluation

    def evaluate(self, frame: BestiaryFrame, *nodes: UOp) -> BestiaryCoroutine:
        """Give each of `nodes` a cell."""
        stack = [(frame, u) for u in reversed(nodes)]
        while stack:
            at, u = stack[-1]
            if at.find_cell(u) is not None:
                stack.pop()
                continue
            home = at.frame_of_innermost_loop_around(u)
            missing = [(f, s) for f, s in self.sources_to_evaluate(home, u) if f.find_cell(s) is None]
            if missing:
                stack += reversed(missing)
                continue
            yield from self.evaluate_node_with_ready_sources(home, u)
            stack.pop()

    def sources_to_evaluate(self, frame: BestiaryFrame, u: UOp) -> Iterable[tuple[BestiaryFrame, UOp]]:
        """Return the nodes that must have cells before `u` is evaluated, each with its frame."""
        find = self.needs.get(u.op)
        if find is not None:
            return find(self, frame, u)
        return [(frame, s) for s in frame.scope.plan.sources_in_scope(u)]

    def evaluate_node_with_ready_sources(self, frame: BestiaryFrame, u: UOp) -> BestiaryCoroutine:
        """Evaluate `u`, whose sources have cells, and put its cell into the frame."""
        action = self.actions.get(u.op)
        if action is None:
            raise SpecError(f"{u.op.name} is not in the BESTIARY dialect")
        step = EvalStep(self, frame, u)
        try:
            value = action(step)
            if isinstance(value, Generator):
                value = yield from value
            if isinstance(value, BestiaryCell):
                cell = value
            else:
                cell = BestiaryCell(self._as_array_or_ref_if_sound(frame, u, value), step.before, frame)
        except _PYTHON_ERRORS as e:
            raise _find_property_error_or_make_crash(u, e) from e
        frame.cells[u] = cell
        frame.add_event_bits_to_this_and_outer_frames(cell.before)
        self.report_to_trace(u, cell.value)
        for data in u.src:
            if data.op in ABSORBED or data.op is Op.STACK:  # read by this node
                self.report_to_trace(data, None)

    def report_to_trace(self, u: UOp, value: Any) -> None:
        """Call the trace, if there is one."""
        if self.trace is not None:
            self.trace(u, value)

    def _as_array_or_ref_if_sound(self, frame: BestiaryFrame, u: UOp, value: Any) -> Any:
        """Return a value as an array or reference, once its derived properties are asserted."""
        if value is None:
            return None
        if isinstance(value, (BestiaryRef, PointerVector)):
            expected = self.shape(frame, u)
            if self.check and value.shape != expected:
                raise_unsound(u, "shape", expected, value.shape)
            return value
        array = np.asarray(value)
        if self.check:
            check_derived_properties(u, array, self, frame)
        return array

    def evaluate_without_barriers(self, frame: BestiaryFrame, u: UOp) -> BestiaryCell:
        """Return the cell of a node that cannot come to a barrier, such as a size."""
        for request in self.evaluate(frame, u):
            raise Crash(f"{describe(request.node)} below a size")
        cell = frame.find_cell(u)
        assert cell is not None
        return cell

    def shape(self, frame: BestiaryFrame, u: UOp) -> tuple[int, ...]:
        """Return the derived shape, its symbolic extents evaluated (R48)."""
        return tuple(
            int(self.load_if_reference(self.evaluate_without_barriers(frame, n), n)) if isinstance(n, UOp) else int(n)
            for n in u.shape
        )

    def load_if_reference(self, cell: BestiaryCell, u: UOp) -> Array:
        """Return the value of the cell of `u`; of a reference by its implicit Load, which happens once (R51)."""
        if isinstance(cell.value, np.ndarray):
            return cell.value
        if not isinstance(cell.value, BestiaryRef):
            raise SpecError(f"{describe(u)} is used as a value")
        if cell.loaded is None:
            cell.event = self.new_event()
            memory = self.memory_of(cell.frame, cell.value)
            cell.loaded = load_and_check_races(u, memory, cell.value, cell.value.gate, cell.event, cell.before)
            cell.frame.add_event_bits_to_this_and_outer_frames(cell.event)
            if self.check:
                check_derived_properties(u, cell.loaded, self, cell.frame)
        return cell.loaded

    def memory_of(self, frame: BestiaryFrame, ref: BestiaryRef) -> BestiaryMemory:
        """Return the memory of a reference, which may depend on the lane."""
        return ref.memory if isinstance(ref.memory, BestiaryMemory) else frame.get_or_make_private_memory(ref.memory)

    # --------------------------------------------------------------------------------------------------------------- loops

    def run_loops(
        self, frame: BestiaryFrame, levels: Sequence[LoopLevel], body_fn: Callable[[BestiaryFrame], BestiaryCoroutine]
    ) -> BestiaryCoroutine:
        """Run `body_fn` in the frame of every iteration of a nest of loops."""
        if not levels:
            yield from body_fn(frame)
            return
        level, inner = levels[0], levels[1:]
        r = level.range
        yield from self.evaluate(frame, r.bound, *level.invariant)
        bound = frame.find_cell(r.bound)
        assert bound is not None
        n = max(0, int(self.load_if_reference(bound, r.bound)))
        kind, base = KINDS[r.arg.type], frame.events_before
        if kind is BestiaryLoopKind.GROUPS and frame.is_in_lane_loop():
            raise SpecError(f"axis {r.arg.axis_id} numbers workgroups inside of a loop of lanes (R60)")
        turns = iteration_order(n, None if kind is BestiaryLoopKind.ORDERED else self.schedule, r.arg.axis_id)
        if kind is BestiaryLoopKind.LANES:
            lanes = [self.run_loops(frame.enter_iteration(r, k, base), inner, body_fn) for k in range(n)]
            yield from run_lanes_together_for_effects(lanes, r.arg.type is AxisType.WARP, turns)
            return
        for k in turns:
            iteration = frame.enter_iteration(r, k, base)
            if kind is BestiaryLoopKind.GROUPS:
                run_workgroup(self.run_loops(iteration, inner, body_fn))
            else:
                yield from self.run_loops(iteration, inner, body_fn)
            if kind is BestiaryLoopKind.ORDERED:
                base |= iteration.events

    # -------------------------------------------------------------------------------------------------------------- launch

    def run_launch(
        self,
        scope: BestiaryScope,
        happened_before: int,
        outer_lane: BestiaryLane,
        body_fn: Callable[[BestiaryFrame], BestiaryCoroutine],
    ) -> list[BestiaryFrame]:
        """Run `body_fn` in the outermost frame of every lane of the scope's launch, and return these frames."""
        dims = self._compute_nonnegative_extents_by_special_name(scope, happened_before)
        if not dims:
            frame = BestiaryFrame(scope, BestiaryLane(dict(outer_lane.position)), happened_before)
            run_workgroup(body_fn(frame))
            return [frame]
        groups, lanes = ([d for d in dims if is_workgroup_dimension(d) is is_group] for is_group in (True, False))
        all_frames: list[BestiaryFrame] = []
        group_positions = _enumerate_indices_lowest_name_fastest({d: dims[d] for d in groups})
        for g in iteration_order(len(group_positions), self.schedule, "groups"):
            shared: dict[Any, BestiaryMemory] = {}
            lane_positions = _enumerate_indices_lowest_name_fastest({d: dims[d] for d in lanes})
            frames = [
                BestiaryFrame(scope, BestiaryLane(outer_lane.position | group_positions[g] | p, shared), happened_before)
                for p in lane_positions
            ]
            turns = iteration_order(len(frames), self.schedule, "lanes")
            run_workgroup(run_lanes_together_for_effects([body_fn(f) for f in frames], False, turns))
            all_frames += frames
        return all_frames

    def _compute_nonnegative_extents_by_special_name(self, scope: BestiaryScope, happened_before: int) -> dict[str, int]:
        """Return the SPECIALs of the body and its Functions: name -> extent. Raises SpecError for two extents of one name (R62)."""
        dimensions: dict[str, int] = {}
        frame = BestiaryFrame(scope, BestiaryLane(), happened_before)
        for u in self._list_nodes_with_function_bodies(scope.plan.root):
            if u.op is Op.SPECIAL:
                extent = max(0, int(self.load_if_reference(self.evaluate_without_barriers(frame, u.bound), u.bound)))
                if dimensions.setdefault(u.arg.name, extent) != extent:
                    raise SpecError(f"Special {u.arg.name!r} has two extents: {dimensions[u.arg.name]} and {extent} (R62)")
        return dimensions

    def _list_nodes_with_function_bodies(self, root: UOp) -> list[UOp]:
        """Return the nodes of the scope of `root` and of the Functions in it, but not those of the bodies of Calls."""
        roots = {root: None}
        stack, nodes = [root], list[UOp]()
        while stack:
            scope_nodes = self.plan_of(stack.pop()).nodes
            nodes += scope_nodes
            bodies = [u.body for u in scope_nodes if u.op is Op.FUNCTION and u.body not in roots]
            roots.update(dict.fromkeys(bodies))
            stack += dict.fromkeys(bodies)
        return nodes


def is_workgroup_dimension(name: str) -> bool:
    """Return True if a dimension of the launch numbers workgroups (R125)."""
    return name.startswith(GROUP_NAMES)


def _enumerate_indices_lowest_name_fastest(dims: Mapping[str, int]) -> list[dict[str, int]]:
    """Return every combination of indices; the first name varies fastest."""
    positions: list[dict[str, int]] = [{}]
    for name in sorted(dims, key=_natural_sort_key):
        positions = [p | {name: k} for k in range(dims[name]) for p in positions]
    return positions


def _natural_sort_key(name: str) -> list[tuple[int, str]]:
    """Return a sort key that orders names by the numbers in them: lidx2 before lidx10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


class EvalStep:
    """The evaluation of one node; `before` collects the events that happen before its end."""

    __slots__ = ("before", "frame", "machine", "node")

    def __init__(self, machine: BestiaryMachine, frame: BestiaryFrame, node: UOp) -> None:
        self.machine = machine
        self.frame = frame
        self.node = node
        self.before = frame.events_before
        for f, s in machine.sources_to_evaluate(frame, node):
            cell = f.find_cell(s)
            assert cell is not None
            self.before |= cell.before

    def depend_on_cell_of(self, u: UOp, frame: BestiaryFrame | None = None) -> BestiaryCell:
        """Return the cell of a source, and let this node happen after it. Raises Crash if it was not evaluated."""
        cell = (frame or self.frame).find_cell(u)
        if cell is None:
            raise Crash(f"{describe(u)} was not evaluated before {describe(self.node)}")
        self.before |= cell.before
        return cell

    def value_of(self, u: UOp, frame: BestiaryFrame | None = None) -> Array:
        """Return the value of a source; reading a reference happens before this node's end."""
        cell = self.depend_on_cell_of(u, frame)
        array = self.machine.load_if_reference(cell, u)
        self.before |= cell.event
        return array

    def values_of(self, nodes: Iterable[UOp]) -> list[Array]:
        """Return the values of sources."""
        return [self.value_of(u) for u in nodes]

    def reference_of(self, u: UOp, frame: BestiaryFrame | None = None) -> BestiaryRef:
        """Return the reference that a source is. Raises SpecError if it is none (R51)."""
        value = self.depend_on_cell_of(u, frame).value
        if not isinstance(value, BestiaryRef):
            raise SpecError(f"{describe(u)} is no reference: a Buffer, a Param or an injective view (R51)")
        return value

    def load_and_log_event(self, ref: BestiaryRef, active_mask: Array | None) -> Array:
        """Return the live elements of a reference, and log the access."""
        event = self.machine.new_event()
        elements = load_and_check_races(self.node, self.machine.memory_of(self.frame, ref), ref, active_mask, event, self.before)
        self.frame.add_event_bits_to_this_and_outer_frames(event)
        self.before |= event
        return elements

    def store_and_return_event_bit(
        self, u: UOp, frame: BestiaryFrame, ref: BestiaryRef, value: Array, active_mask: Array | None, happened_before: int
    ) -> int:
        """Write the live elements as `u` in `frame`, log the access and return its event."""
        _reject_write_not_declared_by_call(ref)
        event = self.machine.new_event()
        store_and_check_races(u, self.machine.memory_of(frame, ref), ref, value, active_mask, event, happened_before)
        frame.add_event_bits_to_this_and_outer_frames(event)
        return event

    def run_loops(
        self, body: Sequence[UOp], ranges: Sequence[UOp], body_fn: Callable[[BestiaryFrame], BestiaryCoroutine]
    ) -> BestiaryCoroutine:
        """Run `body_fn` in every iteration of the loops of `ranges` around `body`."""
        levels = self.frame.scope.plan.loop_levels(body, ranges)
        yield from self.machine.run_loops(self.frame, levels, body_fn)


def _reject_write_not_declared_by_call(ref: BestiaryRef) -> None:
    """Raise SpecError if a Call that declares what it writes writes something else (R63)."""
    for scope, slot in ref.slots:
        declared = scope.call.arg.written if scope.call.arg is not None else None
        if declared is not None and slot not in declared:
            raise SpecError(f"the Call writes argument {slot}, but declares {declared} (R63)")


def _find_property_error_or_make_crash(u: UOp, e: Exception) -> Exception:
    """Return the error that a Python error stands for: an ill-formed node's if deriving its properties raises one."""
    try:
        _ = u.dtype, u.shape, u.min_max
    except UopsError as error:
        return error
    return Crash(f"{describe(u)} cannot be evaluated: {type(e).__name__}: {e}")
