"""Beam search: what is chosen is legal and the fastest that was timed; nothing that goes wrong around it costs more than time."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from scheduled_programs import PROGRAMS, inputs, matmul, p

from uops.backends.cache import ObjectCache
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.compiler import Config, compile
from uops.compiler.passes.callify.callify import callify
from uops.compiler.passes.optimize.heuristics.cpu import schedule_for_cpu_vectors
from uops.compiler.passes.optimize.schedule.optops import apply, find_rejection_reason
from uops.compiler.passes.optimize.schedule.schedule import Schedule, close_output_loops_into_sink, create_initial_schedule
from uops.compiler.passes.optimize.search.beam import Beam, Progress, SearchState, propose_optops, report_search_progress_to
from uops.compiler.passes.optimize.search.clock import TargetClock, make_timing_array_or_scalar
from uops.compiler.passes.optimize.search.store import ScheduleStore, StoredSchedule, decode_schedule, encode_schedule
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.compiler.target import PLAIN, MachineModel
from uops.interp import run
from uops.spec.errors import CompileError, Unsupported
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import WmmaArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.optops import TC, Nolocals, Padto, Split, Swap
from uops.spec.untrusted import seal
from uops.spec.wmma import DESCRIPTORS

WIDE = MachineModel(vector_bytes=64, registers=32)
GPU = MachineModel(workgroup=256, local_memory=1 << 15)


def first(graph: UOp) -> Schedule:
    found = create_initial_schedule(rangeify(callify(graph)).src[0].src[0])
    assert found is not None
    return found


class Fake:
    """A clock that runs nothing: `cost` of a body."""

    def __init__(self, cost: Callable[[UOp], float]) -> None:
        self.cost, self.calls = cost, 0

    def __call__(self, body: UOp, best: float) -> float:
        self.calls += 1
        return self.cost(body)

    def again(self, body: UOp) -> float:
        return self.cost(body)


def extents(body: UOp, kind: AxisType) -> int:
    found = 1
    for u in toposort(body):
        if u.op is Op.RANGE and u.arg.type is kind:
            found *= int(u.src[0].arg.value)
    return found


def upcast(body: UOp) -> float:
    """The more elements side by side, up to 8, the better."""
    return 1.0 / min(8, extents(body, AxisType.UPCAST))


def beam(clock: Fake, store: ScheduleStore, width: int = 2, **settings: object) -> Beam:
    return Beam(width, clock, store, lambda s, m, u: s, **settings)  # type: ignore[arg-type]


def store(root: Path | None = None) -> ScheduleStore:
    return ScheduleStore(root, "fake target", "1")


GEMM = matmul(p(0, 16, 8), p(1, 8, 24))


def test_the_fastest_state_wins() -> None:
    found = beam(Fake(upcast), store())(first(GEMM), PLAIN, count(100))
    assert extents(close_output_loops_into_sink(found), AxisType.UPCAST) >= 8


def test_of_equal_times_the_hand_written_choice_stays() -> None:
    s = first(GEMM)
    assert beam(Fake(lambda body: 1.0), store())(s, PLAIN, count(100)) is s


def test_the_same_times_give_the_same_schedule() -> None:
    found = {beam(Fake(upcast), store())(first(GEMM), PLAIN, count(100)).done for _ in range(3)}
    assert len(found) == 1


def test_a_winner_has_to_win_again() -> None:
    """Timed the first time the upcast body is fast, and never again."""

    class Noisy(Fake):
        def again(self, body: UOp) -> float:
            return 1.0

    s = first(GEMM)
    assert beam(Noisy(upcast), store())(s, PLAIN, count(100)) is s


@pytest.mark.parametrize("machine", [PLAIN, WIDE, GPU], ids=["plain", "vectors", "workgroups"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_move_is_legal(name: str, machine: MachineModel) -> None:
    s = first(PROGRAMS[name]())
    for opts in propose_optops(s, machine):
        if len(opts) == 1:
            assert find_rejection_reason(s, opts[0], machine) is None
        else:
            assert isinstance(opts[0], Padto) and isinstance(opts[1], Split)


def test_each_tensor_core_that_fits_is_tried_first() -> None:
    """8x8x8 of float32 divides all axes; of the others none multiplies float32."""
    cores = tuple(WmmaArg(d.name, d.dims, d.dtype_in, d.dtype_out, "GPU", d.threads) for d in DESCRIPTORS)
    on = replace(GPU, tensor_cores=cores)
    (tc,) = (k for k, d in enumerate(DESCRIPTORS) if d.dtype_in is d.dtype_out is dt.float32)
    s = first(GEMM)
    assert [o for opts in propose_optops(s, on) for o in opts if isinstance(o, TC)] == [TC(0, tc, 0)]
    assert not any(isinstance(o, TC) for opts in propose_optops(apply(s, Nolocals(), on), on) for o in opts)
    assert any(
        u.op is Op.WMMA for u in toposort(close_output_loops_into_sink(beam(Fake(without_wmma), store())(s, on, count(100))))
    )


def without_wmma(body: UOp) -> float:
    return 1.0 + all(u.op is not Op.WMMA for u in toposort(body))


def test_lanes_are_tried_only_where_there_are_workgroups() -> None:
    targets = [{o.target for opts in propose_optops(first(GEMM), m) for o in opts if isinstance(o, Split)} for m in (PLAIN, GPU)]
    lanes = {AxisType.LOCAL, AxisType.GROUP_REDUCE}
    assert not targets[0] & lanes and targets[1] >= lanes


def test_the_time_is_limited() -> None:
    ticks = count(0.0, 1.0)
    clock = Fake(upcast)
    beam(clock, store(), seconds=5.0, now=lambda: next(ticks))(first(GEMM), PLAIN, count(100))
    assert 1 <= clock.calls <= 6


def test_a_body_that_cannot_be_compiled_is_passed_over() -> None:
    def cost(body: UOp) -> float:
        if extents(body, AxisType.UPCAST) > 1:
            raise CompileError("too much")
        return 1.0 / extents(body, AxisType.UNROLL)

    found = close_output_loops_into_sink(beam(Fake(cost), store())(first(GEMM), PLAIN, count(100)))
    assert extents(found, AxisType.UPCAST) == 1 and extents(found, AxisType.UNROLL) > 1


def test_a_choice_of_the_heuristics_that_cannot_be_compiled_is_passed_over() -> None:
    def cost(body: UOp) -> float:
        if extents(body, AxisType.UPCAST) == 16:
            raise CompileError("too much stack")
        return 1.0

    search = Beam(2, Fake(cost), store(), lambda s, m, u: apply(s, Split(0, 16, AxisType.UPCAST), m))
    assert extents(close_output_loops_into_sink(search(first(GEMM), PLAIN, count(100))), AxisType.UPCAST) < 16


def test_ctrl_c_keeps_the_best_so_far_and_ends_later_searches(tmp_path: Path) -> None:
    calls = count()

    def cost(body: UOp) -> float:
        if next(calls) == 12:
            raise KeyboardInterrupt
        return upcast(body)

    searches = beam(Fake(cost), store(tmp_path))
    assert extents(close_output_loops_into_sink(searches(first(GEMM), PLAIN, count(100))), AxisType.UPCAST) > 1
    other = first(matmul(p(0, 6, 8), p(1, 8, 12)))
    assert searches(other, PLAIN, count(100)) is other and searches.stopped
    (file,) = tmp_path.iterdir()
    found = store(tmp_path).get(file.stem)
    assert found is not None and not found.complete


# ---------------------------------------------------------------------------------------------------------------- on disk


def test_a_complete_search_is_not_repeated(tmp_path: Path) -> None:
    clock = Fake(upcast)
    one = beam(clock, store(tmp_path))(first(GEMM), PLAIN, count(100))
    calls = clock.calls
    again = beam(clock, store(tmp_path))(first(GEMM), PLAIN, count(100))
    assert (
        clock.calls == calls and again.done == one.done and close_output_loops_into_sink(again) is close_output_loops_into_sink(one)
    )


def test_an_interrupted_search_goes_on_from_its_best(tmp_path: Path) -> None:
    s, kept = first(GEMM), store(tmp_path)
    split = Split(1, 8, AxisType.UPCAST)
    kept.put(kept.key(close_output_loops_into_sink(s), PLAIN, 2), StoredSchedule("plain", (split,), 0.125, complete=False))
    found = beam(Fake(lambda body: 1.0 if extents(body, AxisType.UPCAST) < 8 else 0.125), kept)(s, PLAIN, count(100))
    assert found.done == (split,)


@pytest.mark.parametrize("ends", ["ctrl_c", "deadline"])
def test_the_stored_best_stays_until_it_was_timed_again(tmp_path: Path, ends: str) -> None:
    s, kept = first(GEMM), store(tmp_path)
    key = kept.key(close_output_loops_into_sink(s), PLAIN, 2)
    best = StoredSchedule("plain", (Split(1, 8, AxisType.UPCAST),), 0.125, complete=False)
    kept.put(key, best)
    calls, now = count(), iter([0.0, 0.0, *[99.0] * 9])

    def cost(body: UOp) -> float:
        if ends == "ctrl_c" and next(calls) == 1:
            raise KeyboardInterrupt
        return 1.0

    more = {"now": lambda: next(now), "seconds": 2} if ends == "deadline" else {}
    found = beam(Fake(cost), kept, **more)(s, PLAIN, count(100))
    assert kept.get(key) == best
    assert found.done == best.opts  # the best that was ever timed


def test_a_search_that_does_not_begin_returns_the_stored_best(tmp_path: Path) -> None:
    s, kept = first(GEMM), store(tmp_path)
    split = Split(1, 8, AxisType.UPCAST)
    kept.put(kept.key(close_output_loops_into_sink(s), PLAIN, 2), StoredSchedule("plain", (split,), 0.125, complete=False))
    assert beam(Fake(upcast), kept, stopped=True)(s, PLAIN, count(100)).done == (split,)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"start": "plain"}', '{"start": "nowhere", "opts": [], "seconds": 1.0, "complete": true}', "\x00\xff",
     '{"start": "plain", "opts": [["Split", 0, 5, "UPCAST", false]], "seconds": 1.0, "complete": true}',
     '{"start": "plain", "opts": [["Padto", 0, 1000000000000000000000000000000]], "seconds": 1.0, "complete": true}',
     '{"start": "plain", "opts": [["Padto", 0, 10000000000]], "seconds": 1.0, "complete": true}',
     '{"start": "plain", "opts": [["Split", "LOOP", 2, "UPCAST", false]], "seconds": 1.0, "complete": true}',
     '{"start": "plain", "opts": [["TC", 0, "LOOP", 0, 1]], "seconds": 1.0, "complete": true}',
     '{"start": "plain", "opts": [["Path", "LOOP"]], "seconds": 1.0, "complete": true}',
     '{"start": "plain", "opts": [["Split"]], "seconds": 1.0, "complete": true}', "[" * 100000],
    ids=["empty", "cut", "list", "fields", "start", "bytes", "illegal", "overflow", "padding", "axis",
         "number", "type", "arguments", "deep"],
)  # fmt: skip
@pytest.mark.parametrize("sealed", [True, False])
def test_a_damaged_entry_is_ignored_with_a_warning(tmp_path: Path, text: str, sealed: bool) -> None:
    s, kept = first(GEMM), store(tmp_path)
    key = kept.key(close_output_loops_into_sink(s), PLAIN, 2)
    data = text.encode("latin-1")
    (tmp_path / f"{key}.schedule").write_bytes(seal("schedule", 2, key, data) if sealed else data)
    with pytest.warns(RuntimeWarning, match="is ignored"):
        found = beam(Fake(upcast), kept)(s, PLAIN, count(100))
    assert extents(close_output_loops_into_sink(found), AxisType.UPCAST) >= 8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        beam(Fake(upcast), kept)(s, PLAIN, count(100))


def test_a_schedule_under_the_name_of_another_kernel_is_ignored(tmp_path: Path) -> None:
    kept, (one, other) = store(tmp_path), "01"
    kept.put(other, StoredSchedule("plain", (Split(1, 8, AxisType.UPCAST),), 0.125, complete=True))
    (tmp_path / f"{other}.schedule").rename(tmp_path / f"{one}.schedule")
    with pytest.warns(RuntimeWarning, match=r"0\.schedule is not a schedule of this kernel and is ignored"):
        assert kept.get(one) is None


def test_a_folder_that_cannot_be_used_stores_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = beam(Fake(upcast), store(tmp_path / "file" / "below"))(first(GEMM), PLAIN, count(100))
    assert extents(close_output_loops_into_sink(found), AxisType.UPCAST) >= 8


def test_machine_target_version_and_width_are_part_of_the_key() -> None:
    body = close_output_loops_into_sink(first(GEMM))
    keys = {
        ScheduleStore(None, target, version).key(body, machine, width)
        for target in ("a", "b") for version in ("1", "2") for machine in (PLAIN, WIDE) for width in (1, 2)
    }  # fmt: skip
    assert len(keys) == 16


def test_findings_survive_the_way_through_json() -> None:
    opts = (Split(1, 8, AxisType.UPCAST, top=True), Padto(0, 3), Swap(0, 1), Nolocals(), TC(0, -1, 2, 1))
    found = StoredSchedule("plain", opts, 1.5e-5, complete=True)
    assert decode_schedule(encode_schedule(found)) == found


# ------------------------------------------------------------------------------------------------------------- on a target


@pytest.mark.parametrize("name", ["gemm", "softmax", "row sums", "padded", "maximum of integers"])
def test_searched_programs_keep_their_value(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UOPS_CACHE_DIR", str(tmp_path))
    graph, heard = PROGRAMS[name](), list[Progress]()
    target = LlvmTarget(LlvmTier.FAST, ObjectCache(None))
    with report_search_progress_to(heard.append):
        program = compile(graph, target, Config(verify=True, reuse=False, beam=2, beam_seconds=1))
    assert heard and heard[-1].done and heard[-1].timed > 1
    np.testing.assert_allclose(program(inputs(graph)).values[0], run(graph, inputs(graph)).values[0], rtol=2e-6)
    assert list((tmp_path / "schedules").iterdir())


def test_a_clock_times_what_the_target_runs() -> None:
    clock = TargetClock(LlvmTarget(LlvmTier.FAST, ObjectCache(None)))
    short, long = (
        close_output_loops_into_sink(schedule_for_cpu_vectors(first(b.add(p(0, n), 1.0)), PLAIN, count(100))) for n in (16, 1 << 20)
    )
    assert 0 < clock(short, 1.0) < clock(long, 1.0)
    assert clock.again(short) > 0


def test_a_kernel_whose_arguments_are_too_large_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    body = close_output_loops_into_sink(schedule_for_cpu_vectors(first(b.add(p(0, 16), 1.0)), PLAIN, count(100)))
    target = LlvmTarget(LlvmTier.FAST, ObjectCache(None))
    monkeypatch.setattr(f"{TargetClock.__module__}.MOST", 2 * 16 * 4)
    assert TargetClock(target)(body, 1.0) > 0
    monkeypatch.setattr(f"{TargetClock.__module__}.MOST", 2 * 16 * 4 - 1)
    with pytest.raises(Unsupported, match="more than 127 bytes of arguments, got 128"):
        TargetClock(target)(body, 1.0)


def test_memory_for_timing_is_aligned_and_holds_plain_numbers() -> None:
    for d in dt.STORABLE:
        found = make_timing_array_or_scalar(b.param(0, (100,), d))
        assert found.ctypes.data % 64 == 0 and found.shape == (100,) and found.itemsize == d.itemsize
        assert not np.isnan(found.astype(np.float64)).any() and found.any()
    assert make_timing_array_or_scalar(b.variable("n", 3, 9)) == 9


def test_states_are_compared_by_value() -> None:
    assert SearchState("plain", (Split(0, 2, AxisType.LOOP),)) == SearchState("plain", (Split(0, 2, AxisType.LOOP),))
