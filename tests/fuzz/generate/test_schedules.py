"""Schedules of campaigns: drawn sequences are legal and can be replayed as text, illegal OptOps are rejected with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from uops.backends.cache import ObjectCache
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.compiler import pipeline
from uops.compiler.passes.optimize.schedule.schedule import Schedule
from uops.compiler.target import MachineModel
from uops.fuzz.generate import kinds, schedules
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.schedules import (
    ILLEGAL,
    ScheduleTextFollower,
    find_illegal_optop_not_rejected_citing_ruling,
    list_part_kinds_and_neighbour_pairs,
    pipeline_with_scheduler,
    run_passes_up_to,
)
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.optops import TC, Axis, Nolocals, OptOp, Padto, Split, Swap, illegality_reason, parse_optop, sort_axes

LLVM = LlvmTarget(LlvmTier.FAST, ObjectCache(None))
LLVM.machine = MachineModel(vector_bytes=64, registers=32, masks=True)  # on every host, so that all draw the same
OPTS: list[OptOp] = [
    Split(1, 4, AxisType.UPCAST),
    Split(0, 8, AxisType.LOOP, True),
    Padto(2, 5),
    Swap(0, 1),
    Nolocals(),
    TC(0, -1, 2, 1),
]


def sums() -> UOp:
    return b.reduce(b.add(b.param(0, (8, 12), dt.int32), 1), Op.ADD, (1,))


@pytest.mark.parametrize("opt", OPTS, ids=OptOp.spell)
def test_an_optop_is_read_as_it_is_spelt(opt: OptOp) -> None:
    assert parse_optop(opt.spell()) == opt


@pytest.mark.parametrize("source", ["draw", "beam"])
def test_a_drawn_sequence_replays_as_text(source: str) -> None:
    texts = set()
    for seed in range(12):
        drawn = ScheduleTextFollower(f"{source} {seed}")
        graph = run_passes_up_to(sums(), LLVM, pipeline_with_scheduler(drawn), "optimize")
        again = ScheduleTextFollower(drawn.applied_text)
        assert run_passes_up_to(sums(), LLVM, pipeline_with_scheduler(again), "optimize") is graph
        assert again.applied_text == drawn.applied_text
        texts.add(drawn.applied_text)
    assert len(texts) > 6


def test_schedules_of_a_search_have_its_starts_and_its_moves() -> None:
    walk = b.add(b.param(0, (4, 6), dt.int32), 1)  # through memory as by one loop
    done = " ".join(_done(f"beam {seed}", walk) for seed in range(12))
    assert all(f":{start}" in done for start in ("chosen", "joined"))
    assert "UPCAST" in done
    assert "split" in done


def _done(opts: str, graph: UOp) -> str:
    sequence = ScheduleTextFollower(opts)
    run_passes_up_to(graph, LLVM, pipeline_with_scheduler(sequence), "optimize")
    return sequence.applied_text


def test_what_is_not_legal_any_more_is_left_out() -> None:
    sequence = ScheduleTextFollower("0:split 0 4 UPCAST; 0:split 0 5 UPCAST; 3:nolocals; 0:swap 0 9")
    run_passes_up_to(sums(), LLVM, pipeline_with_scheduler(sequence), "optimize")
    assert sequence.applied_text == "0:split 0 4 UPCAST"


def test_sequences_reach_every_split_of_the_table() -> None:
    found: set[str] = set()
    for k in range(150):
        drawn = ScheduleTextFollower(f"draw {k}")
        run_passes_up_to(sums(), LLVM, pipeline_with_scheduler(drawn), "optimize")
        found.update(list_part_kinds_and_neighbour_pairs(drawn.applied_text))
    wanted = {"global", "nolocals", "padto", "swap", "split UPCAST", "split UNROLL", "split LOCAL", "split THREAD top"}
    assert wanted | {"split GROUP_REDUCE", "split GROUP_REDUCE top", "split LOOP", "split REDUCE top"} <= found
    assert any(" > " in f for f in found)


AXES = sort_axes([Axis(0, AxisType.GLOBAL, 6), Axis(1, AxisType.LOOP, 8), Axis(2, AxisType.UPCAST, 4), Axis(3, AxisType.REDUCE, 9)])


@pytest.mark.parametrize("make", ILLEGAL, ids=lambda f: f.__name__)
def test_what_is_drawn_as_illegal_is_illegal(make: Any) -> None:
    drawn = [make(AXES, SeededDraw(seed)) for seed in range(40)]
    assert all(opt is not None and illegality_reason(opt, AXES) is not None for opt in drawn)
    assert len({opt.spell() for opt in drawn}) > 3


def test_illegal_optops_are_rejected() -> None:
    for k in range(25):
        assert find_illegal_optop_not_rejected_citing_ruling(kinds.sample(2, k).graph, LLVM, SeededDraw(k)) is None


def test_an_illegal_optop_that_is_applied_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "apply", lambda s, opt, machine: s)
    found = find_illegal_optop_not_rejected_citing_ruling(sums(), LLVM, SeededDraw(1))
    assert found is not None
    assert found.kind == "accepted"
    assert "is not legal, and was applied" in found.message


def test_a_rejection_without_a_ruling_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(s: Schedule, opt: OptOp, machine: Any) -> Schedule:
        raise schedules.RejectedOptOp("no")

    monkeypatch.setattr(schedules, "apply", refuse)
    found = find_illegal_optop_not_rejected_citing_ruling(sums(), LLVM, SeededDraw(1))
    assert found is not None
    assert found.kind == "reason"


def test_the_pipeline_is_the_compilers_own_but_for_the_choice() -> None:
    own = [p.name for p in pipeline.PIPELINE]
    assert [p.name for p in pipeline_with_scheduler(ScheduleTextFollower(""))] == own
    assert [p is q for p, q in zip(pipeline_with_scheduler(ScheduleTextFollower("")), pipeline.PIPELINE)] == [
        name != "optimize" for name in own
    ]
