"""`run` and `evaluate`: evaluate a graph of the bestiary on arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from uops.interp.bestiary.actions import ACTIONS, NEEDS
from uops.interp.bestiary.calls import find_or_make_function_body_frame
from uops.interp.bestiary.frame import BestiaryFrame, BestiaryLane, BestiaryScope
from uops.interp.bestiary.lanes import BestiaryCoroutine
from uops.interp.bestiary.machine import BestiaryMachine, Trace
from uops.interp.bestiary.plan import ABSORBED, program_stage_to_run
from uops.interp.tensor.memory import describe
from uops.interp.tensor.storage import Array
from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import EFFECT_GROUPS, Op
from uops.spec.result import Result


def run(
    root: UOp, inputs: Mapping[str, Any], *, check: bool = True, schedule: int | None = None, trace: Trace | None = None
) -> Result:
    """Evaluate `root` on `inputs`, by the keys of `uops.interp.evaluation`: `p<slot>`, `b<unique>`, names of variables.

    `values` and `buffers` are those of `uops.interp.evaluation` too. Memory that only the graph can name (LUNIQUE, DEFINE_LOCAL,
    DEFINE_REG, BUFFERIZE) is uninitialised and in no result (R120). `schedule` picks an order of everything that is unordered:
    lanes, workgroups and the iterations of unordered Ranges. With `check`, every node's dtype, shape and min_max are asserted
    (Unsound). Raises Trap where the specification defines a failure and SpecError for an ill-formed graph or input.
    """
    machine = BestiaryMachine(inputs, check, schedule, trace, ACTIONS, NEEDS)
    with np.errstate(all="ignore"):
        values = _run_root_and_check_lanes_agree(machine, root, [])
    return Result(values, {m.key: m.contents() for m in machine.memories.values() if m.key is not None and m.written})


def evaluate(root: UOp, inputs: Mapping[str, Any], *, check: bool = True) -> dict[UOp, Array]:
    """Return the value of every node of the root's scope that has one value: it is in no loop, and the same in every lane.

    A reference is included if its value was read. Raises what `run` raises.
    """
    machine = BestiaryMachine(inputs, check, None, None, ACTIONS, NEEDS)
    frames: list[BestiaryFrame] = []
    with np.errstate(all="ignore"):
        _run_root_and_check_lanes_agree(machine, root, frames)
    values = _values_of_frame(frames[0]) if frames else {}
    for frame in frames[1:]:
        others = _values_of_frame(frame)
        values = {u: x for u, x in values.items() if u in others and _comparable_bytes(u, x) == _comparable_bytes(u, others[u])}
    return values


def _values_of_frame(frame: BestiaryFrame) -> dict[UOp, Array]:
    """Return the arrays in the cells of a frame, and those that were read of its references."""
    values = {u: c.value if isinstance(c.value, np.ndarray) else c.loaded for u, c in frame.cells.items() if isinstance(u, UOp)}
    return {u: x for u, x in values.items() if x is not None}


def _run_root_and_check_lanes_agree(m: BestiaryMachine, root: UOp, frames: list[BestiaryFrame]) -> tuple[Array, ...]:
    """Run a graph and return the values of the root; the outermost frame of each lane is added to `frames`.

    Raises SpecError if they differ between the lanes of a launch (R123).
    """
    while root.op is Op.B_PROGRAM:
        for u in root.src:
            if u is not root.sink:
                m.report_to_trace(u, None)
        m.report_to_trace(root, None)
        root = program_stage_to_run(root)
    if root.op in ABSORBED:
        raise SpecError(f"{root.op.name} has no meaning of its own here")
    m.bound_values.update((u.variable, u.value) for u in toposort(root) if u.op is Op.BIND)
    if root.op is Op.TUPLE:
        m.report_to_trace(root, None)
    lane_results: list[list[tuple[UOp, Array]]] = []

    def collect_lane_results(frame: BestiaryFrame) -> BestiaryCoroutine:
        frames.append(frame)
        yield from m.evaluate(frame, *(root.values if root.op is Op.TUPLE else (root,)))
        lane_results.append(
            [(u, np.array(m.load_if_reference(m.evaluate_without_barriers(f, u), u))) for f, u in _result_nodes(m, frame, root)]
        )

    m.run_launch(BestiaryScope(m.plan_of(root)), 0, BestiaryLane(), collect_lane_results)
    for lane in lane_results[1:]:
        for (u, x), (_, y) in zip(lane_results[0], lane):
            if _comparable_bytes(u, x) != _comparable_bytes(u, y):
                raise SpecError(f"{describe(u)} has another value in each lane: a launch gives its results through memory (R123)")
    return tuple(x for _, x in lane_results[0]) if lane_results else ()


def _result_nodes(m: BestiaryMachine, frame: BestiaryFrame, root: UOp) -> list[tuple[BestiaryFrame, UOp]]:
    """Return the nodes whose values are the root's, each with its frame."""
    if root.op is Op.FUNCTION:
        return [(find_or_make_function_body_frame(m, frame, root), e) for e in root.body.src if e.dtype is not dt.void]
    if root.op is Op.TUPLE:
        return [(frame, e) for e in root.values]
    if root.op in EFFECT_GROUPS:
        return [(frame, e) for e in root.effects if e.dtype is not dt.void]
    return [] if root.dtype is dt.void else [(frame, root)]


def _comparable_bytes(u: UOp, x: Array) -> bytes:
    """Return bytes that are equal if and only if two values are the same, bit by bit."""
    return repr(x.tolist()).encode() if u.dtype is dt.index else x.tobytes()
