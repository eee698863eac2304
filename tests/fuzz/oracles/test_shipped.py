"""Backends that are wrong only about the ways in which users call them are found, and the others are not."""

from __future__ import annotations

import time

import numpy as np
import pytest

from uops.backends.conformance import call_controls
from uops.backends.conformance.controls import Interp
from uops.backends.conformance.judge import Expectation, outputs_of
from uops.backends.conformance.stage_judge import Fault, find_value_outside_allowed_set
from uops.backends.contract import Backend, Inputs
from uops.backends.llvm.target import LlvmTarget
from uops.backends.registry import create_backend
from uops.compiler.pipeline import lower
from uops.fuzz.generate import kinds
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.oracles.shipped import _check_other_values, find_first_fault_of_shipped_calls, reverse_copies
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.result import Result

X, Y = b.param(0, (3, 5), dt.int32), b.param(1, (3, 5), dt.int32)
GRAPH = b.sub(b.mul(X, 3), Y)
#: Numbers of draws until a control must have been found.
DRAWS = 40


def find_fault(backend: Backend, seed: int, threads: bool = False) -> Fault | None:
    inputs = {"p0": np.arange(15, dtype=np.int32).reshape(3, 5), "p1": np.arange(15, 30, dtype=np.int32).reshape(3, 5)}
    expected = Expectation.of_program(GRAPH, inputs)
    return find_first_fault_of_shipped_calls(GRAPH, inputs, backend.run, expected, SeededDraw(seed), threads)


@pytest.mark.parametrize(
    "control",
    ["RemembersFirstResult", "ChangesInputs", "ReusesResults", "IgnoresStrides", "TakesSharedMemoryForOne", "RefusesReadOnly"],
)
def test_a_backend_that_is_wrong_about_some_calls_is_found(control: str) -> None:
    def is_found(seed: int) -> bool:
        try:
            return find_fault(getattr(call_controls, control)(), seed) is not None
        except ValueError:  # of RefusesReadOnly
            return True

    assert any(map(is_found, range(DRAWS)))


@pytest.mark.parametrize("control", ["ReusesResults", "RemembersFirstResult"])
def test_a_call_with_other_values_changes_no_earlier_result_and_has_its_own(control: str) -> None:
    """The memory of an earlier result is looked at before the first values are computed again, which would restore it."""
    inputs = {"p0": np.arange(15, dtype=np.int32).reshape(3, 5), "p1": np.arange(15, 30, dtype=np.int32).reshape(3, 5)}
    backend = getattr(call_controls, control)()
    run = lambda x: backend.run(GRAPH, x)  # noqa: E731 - of this graph
    fault = _check_other_values(GRAPH, inputs, run, outputs_of(run(inputs)))
    assert fault is not None and fault.kind == "value"


class ComputesOneProgramAtATime(Interp):
    """A control that is wrong while another call is under way."""

    def __init__(self) -> None:
        self.calls = 0

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        self.calls += 1
        time.sleep(0.002)
        result = super().run(graph, inputs)
        wrong, self.calls = self.calls > 1, self.calls - 1
        return Result((result.values[0] + 1,), {}) if wrong else result


def test_a_backend_that_several_threads_may_not_call_is_found() -> None:
    assert any(find_fault(ComputesOneProgramAtATime(), seed, threads=True) for seed in range(DRAWS))


def test_long_programs_have_a_temporary() -> None:
    long = reverse_copies(GRAPH)
    assert long is not None and len(lower(long, LlvmTarget(), "rangeify").src) == 3  # value, copies, result
    assert reverse_copies(b.sink(b.store(X, Y))) is None


class SharesTemporaries(Interp):
    """A control that computes large programs in one memory, which another call overwrites."""

    def __init__(self) -> None:
        self.kept: Result | None = None

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        self.kept = super().run(graph, inputs)
        if graph.op is not Op.FLIP:
            return self.kept
        time.sleep(0.002)
        return self.kept


def test_threads_whose_temporaries_are_one_memory_are_found() -> None:
    """Each thread has values of its own, so that what another one computes is wrong."""
    faults = [find_fault(SharesTemporaries(), seed, threads=True) for seed in range(DRAWS)]
    assert {f.kind for f in faults if f is not None} == {"value"}


@pytest.mark.parametrize("name", ["interp", "llvm", "c"])
def test_nothing_is_wrong_with_calls_of_the_backends(name: str) -> None:
    backend = create_backend(name)
    assert not any(find_fault(backend, seed, name != "interp") for seed in range(DRAWS))


def test_programs_of_several_kinds_are_called_rightly() -> None:
    backend = create_backend("llvm", tier="fast")
    for k in range(20):
        s = kinds.sample(6, k, ("tensor", "programs", "workloads"))
        expected = Expectation.of_program(s.graph, s.inputs)
        assert find_first_fault_of_shipped_calls(s.graph, s.inputs, backend.run, expected, SeededDraw(k), True) is None, k


def test_index_values_beyond_int64_are_judged() -> None:
    graph = b.stack(b.const(2**70, dt.index), b.const(1, dt.index))
    expected = Expectation.of_program(graph, {})
    right = np.array([2**70, 1], object)
    assert find_value_outside_allowed_set(expected, 0, {0: right}) is None
    fault = find_value_outside_allowed_set(expected, 0, {0: right + np.array([0, 1], object)})
    assert fault is not None and (fault.element, fault.got, fault.allowed) == (1, "2", "1")
