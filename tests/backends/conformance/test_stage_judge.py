"""The judge of stages: what a stage leaves unwritten is wrong, whatever is expected there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from uops.backends.conformance.judge import Expectation
from uops.backends.conformance.model import ConformanceLevel
from uops.backends.conformance.stage_judge import Judge
from uops.backends.testing.values import edge_bits, from_bits
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp

PROGRAMS: dict[str, Callable[[UOp], UOp]] = {
    "moved": b.contiguous,
    "computed": lambda x: b.lt(x, x) if x.dtype is dt.bool_ else b.mul(x, 1),
    "compared": lambda x: b.ne(x, x),
}


@pytest.mark.parametrize("d", dt.STORABLE, ids=lambda d: d.short)
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_element_of_an_output_is_right_before_a_stage_writes_it(program: str, d: dt.DType) -> None:
    """The edge values have zeros of both signs, NaNs and infinities."""
    values = from_bits(np.array(edge_bits(d), np.uint64), d)
    graph, inputs = PROGRAMS[program](b.param(0, values.shape, d)), {"p0": values}
    expected = Expectation.of_program(graph, inputs)
    judge = Judge(graph, inputs, expected=expected)
    unwritten = judge.read_outputs_and_check_inputs_unchanged(judge.initial_memory)
    assert expected.accepts(0, judge.reference_value(0), ConformanceLevel.STRICT).all()
    assert not expected.accepts(0, unwritten[0], ConformanceLevel.STRICT).any()


@pytest.mark.parametrize(("program", "is_free"), [(b.maximum(b.const(0.0), b.const(-0.0)), True), (b.trunc(b.const(-0.0)), False)])
def test_a_zero_may_change_its_sign_only_where_both_are_allowed(program: UOp, is_free: bool) -> None:
    judge = Judge(program, {})
    zeros = [{0: np.array(z, np.float32)} for z in (0.0, -0.0)]
    faults = [judge.find_disallowed_or_changed_value("rangeify", program, x, y) for x, y in (zeros, zeros[::-1])]
    assert (faults == [None, None]) is is_free
