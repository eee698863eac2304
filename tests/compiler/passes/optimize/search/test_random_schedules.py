"""Drawn schedules are legal, keep results, come back with their seed, and are of every kind."""

from __future__ import annotations

from collections import Counter
from itertools import count

import numpy as np
import pytest
from scheduled_programs import PROGRAMS, inputs

from uops.compiler import Config, lower
from uops.compiler.passes.callify.callify import callify, outputs
from uops.compiler.passes.optimize.optimize import optimize
from uops.compiler.passes.optimize.schedule.schedule import Schedule, close_output_loops_into_sink, create_initial_schedule
from uops.compiler.passes.optimize.search.random_schedules import (
    AMOUNTS,
    MOVES,
    make_random_scheduler,
    schedule_randomly,
    take_and_reset_optop_counts,
)
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.compiler.target import PLAIN, MachineModel
from uops.interp import run
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import WmmaArg
from uops.spec.ir.axes import AXIS_TABLE, WORKGROUP, AxisType, Direction
from uops.spec.ir.node import UOp
from uops.spec.optops import TC, Split
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify
from uops.spec.wmma import DESCRIPTORS

SMALL = MachineModel(workgroup=8)


def first(graph: UOp) -> Schedule:
    found = create_initial_schedule(rangeify(callify(graph)).src[0].src[0])
    assert found is not None
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_drawn_schedules_keep_the_result(name: str) -> None:
    graph = PROGRAMS[name]()
    expected = run(graph, inputs(graph)).values[0]
    (out,) = outputs(graph)
    for seed in range(6):
        launch = optimize(rangeify(callify(graph)), PLAIN, make_random_scheduler(seed))
        verify(launch, Dialect.SCHEDULED)
        got = run(launch, inputs(graph)).buffers[f"b{out.buffer.arg.unique}"].reshape(out.shape)
        np.testing.assert_allclose(got, expected, rtol=2e-6, err_msg=str(seed))


def test_a_seed_gives_the_same_schedule_and_another_seed_another() -> None:
    s = first(PROGRAMS["gemm"]())
    assert close_output_loops_into_sink(schedule_randomly(s, PLAIN, 3)) is close_output_loops_into_sink(
        schedule_randomly(s, PLAIN, 3)
    )
    assert len({schedule_randomly(s, PLAIN, seed).done for seed in range(20)}) > 10


def test_every_move_is_drawn() -> None:
    take_and_reset_optop_counts()
    for graph in (make() for make in PROGRAMS.values()):
        s = first(graph)
        for seed in range(60):
            schedule_randomly(s, PLAIN, seed)
    found = Counter(take_and_reset_optop_counts())
    kinds = {name.split(" by ")[0] for name in found}
    assert kinds == {str(m) for m in MOVES}
    amounts = {name.split(" by ")[1] for name in found if " by " in name}
    assert amounts == {str(a or "all") for a in AMOUNTS}


def test_the_moves_are_those_of_the_table() -> None:
    splits = {(m.source, m.target, m.top) for m in MOVES if m.optop is Split and m.source is not m.target}
    halves = {Direction.INNER: [False], Direction.OUTER: [True], Direction.EITHER: [False, True]}
    wanted = {
        (source, target, top)
        for target, row in AXIS_TABLE.items()
        for source in row.split_from
        for top in halves[row.direction or Direction.EITHER]
    }
    assert splits == wanted


def test_a_tensor_core_is_drawn_first_and_without_its_instruction_where_the_machine_has_none() -> None:
    s = first(PROGRAMS["gemm"]())
    every = [schedule_randomly(s, PLAIN, seed).done for seed in range(40)]
    found = [done for done in every if any(isinstance(o, TC) for o in done)]
    assert found
    assert all(isinstance(done[0], TC) and done[0].mode == 2 for done in found)


def test_a_machine_s_own_tensor_core_is_drawn_with_its_instruction_too() -> None:
    d = next(d for d in DESCRIPTORS if d.dtype_in is d.dtype_out is dt.float32)
    own = MachineModel(tensor_cores=(WmmaArg(d.name, d.dims, d.dtype_in, d.dtype_out, "GPU", d.threads),))
    s = first(PROGRAMS["gemm"]())
    opts = [o for seed in range(40) for o in schedule_randomly(s, own, seed).done if isinstance(o, TC)]
    assert {o.tc for o in opts} == {0}
    assert {o.mode for o in opts} == {1, 2}


def test_a_workgroup_has_no_more_lanes_than_the_machine() -> None:
    for seed in range(40):
        lanes = 1
        for a in schedule_randomly(first(PROGRAMS["gemm"]()), SMALL, seed).axes:
            lanes *= int(a.extent) if a.type in WORKGROUP else 1
        assert lanes <= 8


def test_the_setting_draws(pyref: object) -> None:
    graph = PROGRAMS["gemm"]()
    drawn_, plain = (lower(graph, pyref, "optimize", Config(forced=f, reuse=False)) for f in (2, None))  # type: ignore[arg-type]
    assert drawn_ is not plain
    assert make_random_scheduler(2)(first(graph), PLAIN, count(1)).done == schedule_randomly(first(graph), PLAIN, 2).done


def test_axes_that_begin_as_global_are_drawn_too() -> None:
    types = {a.type for seed in range(30) for a in schedule_randomly(first(PROGRAMS["elementwise"]()), PLAIN, seed).axes}
    assert {AxisType.LOOP, AxisType.GLOBAL, AxisType.THREAD, AxisType.LOCAL, AxisType.UPCAST} <= types
