"""Cells of calls: each kind of wrong call fails some, and what is right about all of them passes."""

from __future__ import annotations

import numpy as np
import pytest

from uops.backends import registry
from uops.backends.conformance import call_controls as controls
from uops.backends.conformance.cases.calls import generate_invocation_edge_lane_and_large_cases
from uops.backends.conformance.model import CellStatus, ConformanceLevel, ConformanceTier
from uops.backends.conformance.runner import run_conformance
from uops.backends.testing.calls import ChangedMemory, InvocationMode, arrange_inputs, run_in_mode_and_check_memory
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.result import Result

MODULE = "uops.backends.conformance.call_controls"
SMOKE, FULL = ConformanceTier.SMOKE, ConformanceTier.FULL


def failing_edges(control: type, tier: ConformanceTier = SMOKE, rows: str = "Source/Param") -> set[str]:
    name = f"{MODULE}:{control.__name__}"
    run = run_conformance(name, registry.describe_backend(name, control()), tier=tier, rows=rows, jobs=1)
    cells = run.cells[ConformanceLevel.STRICT].values()
    return {
        c.cell.edge for c in cells if c.status is CellStatus.FAIL and c.cell.edge.partition(":")[0] in ("call", "size", "lanes")
    }


@pytest.mark.parametrize(("control", "edges"), [
    (controls.RemembersFirstResult, {"call:second"}),
    (controls.ReusesResults, {"call:again"}),
    (controls.IgnoresStrides, {"call:strided", "call:reversed", "call:transposed"}),
    (controls.TakesSharedMemoryForOne, {"call:overlapping"}),
    (controls.RefusesReadOnly, {"call:read-only"}),
], ids=lambda x: getattr(x, "name", ""))  # fmt: skip
def test_a_backend_that_is_wrong_about_calls_fails_their_cells(control: type, edges: set[str]) -> None:
    assert edges <= failing_edges(control)


def test_a_backend_that_changes_its_inputs_fails_everything_that_it_can_change() -> None:
    unchanged = {"call:read-only", "call:broadcast"}
    assert (
        failing_edges(controls.ChangesInputs) >= {f"call:{m}" for m in InvocationMode if m is not InvocationMode.PLAIN} - unchanged
    )


def test_subnormals_that_are_lost_in_the_last_lanes_fail() -> None:
    assert "lanes:subnormal" in failing_edges(controls.FlushesTail, rows="Elementwise/Max")


def test_a_control_that_flushes_subnormals_keeps_zeros() -> None:
    x = np.array([-0.0] * 8 + [-0.0, 0.0, -1e-40, 1e-40, -1.0], np.float32)
    got = controls._flush_subnormals_in_tail(x)
    assert np.array_equal(got.view(np.uint32), np.array([-0.0] * 8 + [-0.0, 0.0, -0.0, 0.0, -1.0], np.float32).view(np.uint32))


def test_a_control_that_reuses_results_is_right_at_the_first_call() -> None:
    p, q = b.param(0, (3,), dt.int32), b.param(1, (3,), dt.int32)
    inputs = {"p0": np.array([1, 2, 3], np.int32), "p1": np.array([7, 8, 9], np.int32)}
    first, second = controls.ReusesResults().run(b.tuple_(p, q), inputs).values
    assert (first.tolist(), second.tolist()) == ([1, 2, 3], [7, 8, 9])


def test_elements_that_are_lost_in_large_values_fail() -> None:
    large = [c for c in generate_invocation_edge_lane_and_large_cases(FULL) if c.segments[0].edge == "size:large"]
    assert large and not [c for c in generate_invocation_edge_lane_and_large_cases(SMOKE) if c.segments[0].edge == "size:large"]
    case = next(c for c in large if c.dtype.name == "int32")
    got, right = controls.WrongWhereLarge().run(case.graph, case.inputs), controls.Interp().run(case.graph, case.inputs)
    assert not np.array_equal(got.values[0], right.values[0])


@pytest.mark.parametrize("mode", InvocationMode)
def test_a_mode_leaves_the_values_of_inputs(mode: InvocationMode) -> None:
    case = next(c for c in generate_invocation_edge_lane_and_large_cases(SMOKE) if c.call is mode or mode is InvocationMode.PLAIN)
    arranged = arrange_inputs(case.inputs, mode)
    assert {k: v.tobytes() for k, v in arranged.items()} == {k: v.tobytes() for k, v in case.inputs.items()}
    forms = {"strided", "reversed", "transposed", "unaligned", "read-only", "broadcast", "overlapping"}
    if mode.value in forms:
        x = arranged["p0"]
        assert not x.flags.carray or np.may_share_memory(x, arranged["p1"])


def test_a_later_call_that_changes_an_earlier_result_is_reported() -> None:
    memory = np.zeros(3)

    def run(inputs: object) -> Result:
        memory[:] = inputs["x"]  # type: ignore[index]
        return Result((memory,), {})

    with pytest.raises(ChangedMemory, match="earlier one"):
        run_in_mode_and_check_memory(run, {"x": np.array([1.0, 2.0, 3.0])}, InvocationMode.AGAIN)
    run_in_mode_and_check_memory(run, {"x": np.array([1.0, 2.0, 3.0])}, InvocationMode.SECOND)
