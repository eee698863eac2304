"""Sequences of OptOps: each is legal after the ones before it, and a drawn one can be applied again from its text."""

from __future__ import annotations

from uops.backends.cache import ObjectCache
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.schedules import (
    OptOpDrawer,
    ScheduleTextFollower,
    draw_optop_sequence,
    list_some_legal_optops,
    pipeline_with_scheduler,
    run_passes_up_to,
)
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.ops import Op
from uops.spec.optops import Axis, Nolocals, Padto, Split, Swap, apply_legal_optop_to_axes, illegality_reason, sort_axes

LLVM = LlvmTarget(LlvmTier.FAST, ObjectCache(None))
AXES = [Axis(0, AxisType.GLOBAL, 6), Axis(1, AxisType.LOOP, 8), Axis(2, AxisType.LOOP, 4), Axis(3, AxisType.REDUCE, 9)]


def test_every_listed_optop_is_legal_and_the_simplest_is_first() -> None:
    listed = list_some_legal_optops(AXES)
    assert all(illegality_reason(o, AXES) is None for o in listed)
    assert {type(o) for o in listed} == {Split, Swap, Padto, Nolocals}
    assert {o.target for o in listed if isinstance(o, Split)} == {
        AxisType.LOOP, AxisType.GLOBAL, AxisType.THREAD, AxisType.LOCAL, AxisType.GROUP_REDUCE, AxisType.UPCAST, AxisType.UNROLL,
        AxisType.REDUCE,
    }  # fmt: skip
    assert isinstance(listed[0], Split)
    assert listed[0].factor == 2


def test_no_axes_have_only_nolocals() -> None:
    assert list_some_legal_optops([]) == [Nolocals()]


def test_an_optop_of_a_sequence_is_legal_after_the_ones_before_it() -> None:
    lengths = set()
    for seed in range(60):
        axes, done = sort_axes(AXES), []
        for o in draw_optop_sequence(SeededDraw(seed), AXES, 5):
            assert illegality_reason(o, axes, applied=done) is None
            axes, done = apply_legal_optop_to_axes(o, axes), [*done, o]
        lengths.add(len(done))
    assert lengths == set(range(6))


def test_a_drawn_schedule_is_applied_again_from_its_text() -> None:
    graph = b.reduce(b.add(b.param(0, (8, 12), dt.int32), 1), Op.ADD, (1,))
    texts = set()
    for seed in range(12):
        drawer = OptOpDrawer(SeededDraw(seed))
        scheduled = run_passes_up_to(graph, LLVM, pipeline_with_scheduler(drawer), "optimize")
        again = ScheduleTextFollower(drawer.applied_text)
        assert run_passes_up_to(graph, LLVM, pipeline_with_scheduler(again), "optimize") is scheduled
        texts.add(drawer.applied_text)
    assert len(texts) > 6
