"""Lanes of group reductions: which ones Reduces share, and how many a workgroup has."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np
import pytest

from uops.compiler.passes.callify.callify import callify, outputs
from uops.compiler.passes.optimize.optimize import optimize
from uops.compiler.passes.optimize.schedule.group import lower_or_serialize_group_reduces
from uops.compiler.passes.optimize.schedule.optops import apply, count_max_lanes_per_workgroup, find_rejection_reason
from uops.compiler.passes.optimize.schedule.schedule import (
    Schedule,
    create_initial_schedule,
    set_output_loop_types_before_optops,
)
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.compiler.target import MachineModel
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ReduceArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.optops import Split

GPU = MachineModel(workgroup=256)


def on_groups(s: Schedule) -> Schedule:
    return set_output_loop_types_before_optops(s, dict.fromkeys(s.outputs, AxisType.GLOBAL))


@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("lanes", [(2, 2), (4, 4), (8, 8), (4, 2), (2, 4)])
def test_a_reduce_in_the_lanes_of_another_has_lanes_of_its_own(lanes: tuple[int, int], first: int) -> None:
    x = np.arange(4 * 8 * 8, dtype=np.int32).reshape(4, 8, 8) % 17
    squares = b.reduce(b.param(0, (4, 8, 8), dt.int32), Op.ADD, (2,))
    graph = b.reduce(b.mul(squares, squares), Op.ADD, (1,))
    scheduled: list[Schedule] = []

    def schedule(s: Schedule, machine: MachineModel, uniques: Iterator[int]) -> Schedule:
        s = on_groups(s)
        for axis_id, n in zip((first, 3 - first), lanes, strict=True):
            k = next(k for k, r in enumerate(s.ranges) if r.arg.axis_id == axis_id)
            s = apply(s, Split(k, n, AxisType.GROUP_REDUCE), machine)
        scheduled.append(s)
        return s

    launch = optimize(rangeify(callify(graph)), GPU, schedule)
    (out,) = outputs(graph)
    got = run(launch, {"p0": x}).buffers[f"b{out.buffer.arg.unique}"]
    assert got.ravel().tolist() == (x.sum(2) ** 2).sum(1).tolist()
    lowered = lower_or_serialize_group_reduces(scheduled[0], GPU, count(10**6))
    groups = [a.extent for a in lowered.axes if a.type is AxisType.GROUP_REDUCE]
    assert int(np.prod(groups)) == count_max_lanes_per_workgroup(scheduled[0]) == lanes[0] * lanes[1]


def test_lanes_over_an_operand_that_no_loop_changes_are_counted() -> None:
    x = b.reshape(b.param(0, (4,), dt.float32), (4, 1))
    graph: UOp = b.reduce(b.expand(x, (4, 64)), Op.MAX, (1,))
    s = create_initial_schedule(rangeify(callify(graph)).src[-1].src[0])
    assert s is not None
    s, lanes = on_groups(s), Split(1, 32, AxisType.GROUP_REDUCE)
    assert "a workgroup of 32 lanes" in (find_rejection_reason(s, lanes, MachineModel(workgroup=8)) or "")
    assert count_max_lanes_per_workgroup(apply(s, lanes, GPU)) == 32


def test_only_the_lane_that_stores_a_sum_in_place_loads_the_element() -> None:
    memory, x = b.param(0, (4,), dt.int32), b.param(1, (32,), dt.int32)
    i, j = b.range_(4, 0), b.range_(8, 1, AxisType.REDUCE)
    summed = UOp(Op.REDUCE, (b.load(b.at(x, b.add(b.mul(i, 8), j))), j), ReduceArg(Op.ADD, ()))
    body = b.sink(b.end(b.store(b.at(memory, i), b.add(b.load(b.at(memory, i)), summed)), i), name="k")
    launch = UOp(Op.LINEAR, (b.call(body, b.buffer(4, dt.int32, unique=1), b.buffer(32, dt.int32, unique=2), written=(0,)),))

    def schedule(s: Schedule, machine: MachineModel, uniques: Iterator[int]) -> Schedule:
        s = apply(on_groups(s), Split(1, 4, AxisType.GROUP_REDUCE), machine)
        return apply(s, Split(0, 2, AxisType.UPCAST), machine)  # the elements of a vector are loaded in each lane

    values = np.arange(32, dtype=np.int32)
    inputs = {"b1": np.arange(4, dtype=np.int32), "b2": values}
    got = run(optimize(launch, GPU, schedule), inputs).buffers["b1"]  # run refuses lanes that race (R55)
    assert got.tolist() == (values.reshape(4, 8).sum(1) + np.arange(4)).tolist()
