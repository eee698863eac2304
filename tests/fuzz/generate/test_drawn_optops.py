"""Every OptOp is drawn where it is legal and where it is not, and a kernel to which it is applied gives the same values."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from uops.backends.cache import ObjectCache
from uops.backends.conformance.stage_judge import Judge
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.schedules import ILLEGAL, ScheduleTextFollower, pipeline_with_scheduler, run_passes_up_to
from uops.fuzz.oracles.native import load_and_run_first_calls
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.ops import Op
from uops.spec.optops import OPTOPS, Axis, OptOp, illegality_reason, parse_optop, sort_axes

LLVM = LlvmTarget(LlvmTier.FAST, ObjectCache(None))
AXES = sort_axes([
    Axis(0, AxisType.GLOBAL, 6), Axis(1, AxisType.LOOP, 8), Axis(2, AxisType.LOOP, 4), Axis(3, AxisType.UPCAST, 4),
    Axis(4, AxisType.REDUCE, 9),
])  # fmt: skip
DRAWN = [o for o in OPTOPS if o.weight]


@pytest.mark.parametrize("optop", DRAWN, ids=lambda o: o.__name__)
def test_an_optop_is_drawn_legal_and_its_text_is_read(optop: type[OptOp]) -> None:
    every = [opt for seed in range(60) if (opt := optop.draw_candidate(AXES, SeededDraw(seed))) is not None]
    assert all(isinstance(opt, optop) and parse_optop(opt.spell()) == opt for opt in every)
    assert [opt for opt in every if illegality_reason(opt, AXES) is None], (
        f"spec/optops.py: {optop.__name__}.draw gives no legal one"
    )


def test_every_optop_with_arguments_is_drawn_illegal() -> None:
    every = [make(AXES, SeededDraw(seed)) for make in ILLEGAL for seed in range(40)]
    illegal = {type(opt) for opt in every if opt is not None and illegality_reason(opt, AXES) is not None}
    missing = [o.__name__ for o in OPTOPS if fields(o) and o not in illegal]
    assert not missing, f"fuzz/generate/schedules.py: ILLEGAL draws no {', '.join(missing)}"


@pytest.mark.parametrize("optop", DRAWN, ids=lambda o: o.__name__)
def test_a_kernel_with_an_optop_gives_what_the_interpreter_gives(optop: type[OptOp]) -> None:
    graph = b.reduce(b.mul(b.param(0, (8, 12), dt.int32), b.param(1, (8, 12), dt.int32)), Op.ADD, (1,))
    rng = np.random.default_rng(1)
    inputs = {f"p{k}": rng.integers(-99, 99, (8, 12), np.int32) for k in range(2)}
    judge, applied = Judge(graph, inputs), 0
    for seed in range(40):
        sequence = ScheduleTextFollower(f"draw {seed}")
        program = run_passes_up_to(graph, LLVM, pipeline_with_scheduler(sequence))
        if any(isinstance(parse_optop(text), optop) for text in read_optops(sequence.applied_text)):
            applied += 1
            outputs = judge.read_outputs_and_check_inputs_unchanged(load_and_run_first_calls(program, LLVM, judge.initial_memory))
            np.testing.assert_array_equal(outputs[0], run(graph, inputs).values[0], sequence.applied_text)
        if applied == 4:
            return
    pytest.fail(f"{optop.__name__} was drawn and applied {applied} times")


def read_optops(sequence: str) -> list[str]:
    """The OptOps of a sequence, without the kernels' numbers and the types of loops."""
    texts = [part.partition(":")[2] for part in sequence.split("; ") if part]
    return [text for text in texts if text != "global"]
