"""The form of an answer: the buffers that a launch must give, and index values of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from uops.backends.answer import find_result_form_mismatch
from uops.backends.conformance.cases.launches import KernelBuilder, copy_element, make_launch
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.result import Result


def copy_in_loop(bound: int | str | None, gate: bool | None = None) -> tuple[UOp, dict[str, Any]]:
    """Return a launch that copies one element, or those of a loop, from b1 to b2; it declares that it writes b3, too."""
    inputs: dict[str, Any] = {}
    k = KernelBuilder(inputs)
    source, target, _ = k.add_source(dt.int32, 4), k.add_target(dt.int32, 4), k.add_target(dt.int32, 4)
    if bound is None:
        effect = copy_element(target, b.index(1), source, b.index(2))
        if gate is not None:
            condition = b.ne(b.load(b.at(source, b.index(0))), b.load(b.at(source, b.index(0 if not gate else 1))))
            effect = effect.replace(src=(*effect.src, condition))
    else:
        r = k.make_range(k.add_variable("n", 0, 4, 0) if isinstance(bound, str) else bound)
        effect = b.end(copy_element(target, r, source, r), r)
    return make_launch(k.call(effect)), inputs


@pytest.mark.parametrize("bound", [None, 1, 4])
def test_a_launch_must_give_what_its_kernels_write(bound: int | None) -> None:
    graph, inputs = copy_in_loop(bound)
    right = run(graph, inputs)
    assert find_result_form_mismatch(graph, inputs, right) is None
    assert find_result_form_mismatch(graph, inputs, Result((), {})) == "expected the contents of b2, got those of no buffer"


@pytest.mark.parametrize(("bound", "gate"), [(0, None), ("n", None), (None, False)])
def test_a_launch_need_not_give_what_its_kernels_leave_alone(bound: int | str | None, gate: bool | None) -> None:
    """The interpreter gives no Buffer in which nothing was written, though the Call declares it."""
    graph, inputs = copy_in_loop(bound, gate)
    right = run(graph, inputs)
    assert right.buffers == {}
    assert find_result_form_mismatch(graph, inputs, right) is None


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 2**63, 2**64 - 1, 2**64, -(2**63) - 1])
def test_an_index_value_may_be_any_python_int(value: int) -> None:
    assert find_result_form_mismatch(b.const(value, dt.index), {}, Result((value,), {})) is None


@pytest.mark.parametrize("value", ["x", 1.5, True])
def test_an_object_that_is_no_int_is_no_index_value(value: object) -> None:
    mismatch = find_result_form_mismatch(b.const(1, dt.index), {}, Result((np.array(value, object),), {}))
    assert mismatch == f"value 0: expected ints, got {value!r}"
