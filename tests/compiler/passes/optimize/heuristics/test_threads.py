"""The loop that threads share: which one it is, that it keeps results at every stage, and where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from scheduled_programs import PROGRAMS, inputs, p

from uops.backends.cache import ObjectCache
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.backends.native_entry import sharing, table
from uops.compiler import Config, compile, stages
from uops.compiler.ir.loops import estimate_executed_instruction_count, find_parallelizable_outer_thread_loop
from uops.compiler.passes.callify.callify import callify, outputs
from uops.compiler.passes.optimize.heuristics.cpu import schedule_for_cpu_vectors
from uops.compiler.passes.optimize.heuristics.threads import assign_thread_loop_if_worthwhile
from uops.compiler.passes.optimize.schedule.local_memory import stage_in_one_local_buffer
from uops.compiler.passes.optimize.schedule.schedule import close_output_loops_into_sink, create_initial_schedule
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.compiler.runtime.frame import KernelLaunch
from uops.compiler.target import MachineModel, Thresholds
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

TARGET = LlvmTarget(LlvmTier.FAST, ObjectCache(None))
FOUR, ONE = MachineModel(vector_bytes=32, cores=4), MachineModel(vector_bytes=32)


def thread_loops(graph: UOp, machine: MachineModel = FOUR) -> list[int]:
    """Extents of the THREAD loops of the kernels of a graph."""
    bodies = [c.src[0] for c in rangeify(callify(graph)).src]
    schedules = [s for body in bodies if (s := create_initial_schedule(body)) is not None]
    scheduled = [
        close_output_loops_into_sink(
            assign_thread_loop_if_worthwhile(schedule_for_cpu_vectors(s, machine, iter(range(900, 999))), machine)
        )
        for s in schedules
    ]
    return [int(u.src[0].arg.value) for body in scheduled for u in toposort(body) if u.op is Op.RANGE and is_thread(u)]


def is_thread(u: UOp) -> bool:
    return u.arg.type is AxisType.THREAD


#: Every kernel is worth threads, and every iteration of its loop a piece.
EAGER = Thresholds(threaded_operations=0, piece_instructions=1)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are three cores."""
    monkeypatch.setattr(sharing, "available_cores", lambda: 3)


def many_cores() -> LlvmTarget:
    """Return a target for which every kernel is worth threads."""
    target = LlvmTarget(LlvmTier.FAST, ObjectCache(None))
    target.machine = MachineModel(vector_bytes=32, registers=16, masks=True, cores=3, caches=(32768, 1 << 20), thresholds=EAGER)
    return target


#: Programs that have a loop for threads on any machine.
SHARED = frozenset({"gemm in panels", "softmax", "layernorm", "row sums", "transposed", "elementwise"})


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n == "few rows" else n for n in PROGRAMS])
def test_results_stay_at_every_stage_and_on_the_machine(name: str, eager: None) -> None:
    graph = PROGRAMS[name]()
    given, (out,) = inputs(graph), outputs(graph)
    config = Config(verify=True, reuse=False)
    expected = run(graph, given).values[0]
    found = stages(graph, many_cores(), config)
    assert name not in SHARED or any(is_thread(u) for c in found["linearize"].src for u in c.src[0].src if u.op is Op.RANGE)
    for stage in ("optimize", "select", "linearize"):
        got = run(found[stage], given).buffers[f"b{out.buffer.arg.unique}"].reshape(out.shape)
        np.testing.assert_allclose(got, expected, rtol=2e-6)
    program, alone = (compile(graph, many_cores(), Config(verify=True, reuse=False, threads=k)) for k in (0, 1))
    arguments = [given[k] for k in program.keys]
    for _ in range(3):
        assert program.function(*arguments).tobytes() == alone.function(*arguments).tobytes()
    assert name not in SHARED or any(launch.thread_extent for launch in program._launches)
    assert not any(launch.thread_extent for launch in alone._launches)


def test_a_kernel_that_is_worth_it_has_one_outermost_loop_of_threads() -> None:
    rows, columns = (b.reduce(p(0, 1000, 2000), Op.ADD, (axis,)) for axis in (1, 0))
    for graph in (b.add(p(0, 1024, 512), 1.0), b.add(p(0, 1024, 512), b.permute(p(1, 512, 1024), (1, 0))), rows, columns):
        (extent,) = thread_loops(graph)
        assert extent >= FOUR.cores
        assert thread_loops(graph, ONE) == []
    assert thread_loops(b.add(p(0, 16), 1.0)) == []


def test_a_short_outer_loop_gives_way_to_a_longer_one() -> None:
    """Three pieces do not divide among four cores."""
    for shape, wanted in (((3, 400, 2000), 400), ((3, 2, 200_000), 3), ((16, 400, 2000), 16)):
        s = create_initial_schedule(rangeify(callify(b.reduce(p(0, *shape), Op.ADD, (2,)))).src[0].src[0])
        assert s is not None
        (loop,) = [r for r in assign_thread_loop_if_worthwhile(s, FOUR).outputs if is_thread(r)]
        assert loop.src[0].arg.value == wanted


def test_loops_whose_iterations_may_meet_stay_in_order() -> None:
    i = b.range_(1_000_000, 0)
    out = b.param(0, (1_000_000,), dt.float32)
    for address, meets in ((i, False), (UOp(Op.MOD, (i, b.index(1000))), True)):
        s = create_initial_schedule(b.sink(b.end(b.store(b.at(out, address), b.const(1.0)), i)))
        assert s is not None
        assert any(map(is_thread, assign_thread_loop_if_worthwhile(s, FOUR).ranges)) is not meets


def test_a_filling_of_local_memory_lies_inside_of_the_threads() -> None:
    """Memory that is filled once for all rows would be another one in each iteration of THREAD (R128)."""
    row = b.expand(b.reshape(p(1, 1000), (1, 1000)), (400, 1000))
    s = create_initial_schedule(rangeify(callify(b.add(p(0, 400, 1000), row))).src[0].src[0])
    assert s is not None
    rows, columns = s.outputs
    assert any(map(is_thread, assign_thread_loop_if_worthwhile(s, FOUR).ranges))
    (value,) = [u for u in toposort(s.effect) if u.op is Op.LOAD and rows not in toposort(u)]
    kept = stage_in_one_local_buffer(s, [(value, (columns,))], 900)
    assert not any(map(is_thread, assign_thread_loop_if_worthwhile(kept, FOUR).ranges))


def linear(*roots: UOp) -> tuple[UOp, ...]:
    return tuple(toposort(*roots))


def filled(n: int, axis: int, kind: AxisType, value: UOp | None = None) -> UOp:
    i = b.range_(n, axis, kind)
    return b.end(b.store(b.at(b.param(0, (n,), dt.float32), i), value if value is not None else b.const(1.0)), i)


def test_the_shared_loop_is_the_one_that_holds_every_effect() -> None:
    body = linear(filled(8, 0, AxisType.THREAD))
    assert find_parallelizable_outer_thread_loop(body) is next(u for u in body if u.op is Op.RANGE)


NOT_SHARED = {
    "no loop of threads": lambda: linear(filled(8, 0, AxisType.GLOBAL)),
    "two": lambda: linear(filled(8, 0, AxisType.THREAD), filled(4, 1, AxisType.THREAD)),
    "a store outside": lambda: linear(filled(8, 0, AxisType.THREAD), b.store(b.at(b.param(1, (1,), dt.float32), 0), b.const(2.0))),
    "in a loop": lambda: _nested(AxisType.LOOP, AxisType.THREAD),
    "an atomic sum": lambda: _atomic(),
    "a bound that varies": lambda: linear(
        b.end(
            b.store(
                b.at(b.param(0, (8,), dt.float32), r := b.range_(b.variable("n", 0, 8, slot=1), 0, AxisType.THREAD)), b.const(1.0)
            ),
            r,
        )
    ),
}


def _nested(outer: AxisType, inner: AxisType) -> tuple[UOp, ...]:
    i, j = b.range_(4, 0, outer), b.range_(5, 1, inner)
    at = b.add(b.mul(i, b.index(5)), j)
    return linear(b.end(b.end(b.store(b.at(b.param(0, (20,), dt.float32), at), b.const(1.0)), j), i))


def _atomic() -> tuple[UOp, ...]:
    i = b.range_(8, 0, AxisType.THREAD)
    add = UOp(Op.ATOMICADD, (b.at(b.param(0, (8,), dt.float32), i), b.const(1.0)))
    return linear(b.end(add, i))


@pytest.mark.parametrize("name", NOT_SHARED)
def test_there_is_no_shared_loop(name: str) -> None:
    assert find_parallelizable_outer_thread_loop(NOT_SHARED[name]()) is None


def test_threads_outside_of_other_loops_are_shared() -> None:
    assert find_parallelizable_outer_thread_loop(_nested(AxisType.THREAD, AxisType.LOOP)) is not None


def test_instructions_count_as_often_as_their_loops_run() -> None:
    body = _nested(AxisType.LOOP, AxisType.LOOP)
    inside = [u for u in body if u.op is Op.STORE]
    assert len(inside) == 1
    assert 20 <= estimate_executed_instruction_count(body) < 20 * len(body)
    assert estimate_executed_instruction_count(()) == 0


def test_a_launch_says_what_is_shared() -> None:
    program = compile(b.add(p(0, 1024, 512), 1.0), many_cores(), Config(reuse=False))
    (launch,) = program._launches
    assert isinstance(launch, KernelLaunch)
    assert (launch.thread_extent > 1, launch.instruction_count > table.LONG_WORK) == (True, True)


def test_the_number_of_threads_is_a_setting() -> None:
    assert Config.from_environment({"UOPS_THREADS": "3"}).threads == 3
    assert Config.from_environment({}).threads == 0
