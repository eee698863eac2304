"""Kernels written by hand: every form is a kernel, gives the same in every order, and has what it is there for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from uops.backends.testing.values import draw_array
from uops.fuzz.generate.declared import EVERYTHING
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.kernels.written_by_hand import FORMS, LIST_FORM, SCHEDULED_FORM, build_kernel_call_on_placeholders
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.infer import is_kernel_or_custom_function_body
from uops.spec.verify.verifier import verify

EVERY = (*FORMS, SCHEDULED_FORM, LIST_FORM)


def calls(form: str, count: int = 30) -> list[UOp]:
    return [build_kernel_call_on_placeholders(SeededDraw(seed), form, "k", EVERYTHING) for seed in range(count)]


def program(call: UOp) -> UOp:
    """The contents of the memory that the placeholders are."""
    written = [call.arguments[k] for k in call.arg.written]
    return b.tuple_(*(b.after(a, call) for a in written))


def inputs(call: UOp) -> dict[str, Any]:
    draw = SeededDraw(7)
    named = {a.arg.name: draw.integer(*a.arg.bounds) for a in call.arguments if a.op is Op.PARAM}
    data = {f"b{a.arg.unique}": draw_array(draw, a.dtype, a.shape, "small") for a in call.arguments if a.op is Op.BUFFER}
    return {**named, **data}


def nodes(form: str) -> list[UOp]:
    return [u for call in calls(form) for u in toposort(call)]


@pytest.mark.parametrize("form", EVERY)
def test_a_form_is_a_kernel_that_gives_the_same_in_every_order(form: str) -> None:
    for call in calls(form):
        assert is_kernel_or_custom_function_body(call.body)
        graph = program(call)
        verify(graph, Dialect.TENSOR)
        first = run(graph, inputs(call)).values
        for seed in range(2):
            for x, y in zip(first, run(graph, inputs(call), schedule=seed, lanes=seed == 0).values, strict=True):
                np.testing.assert_array_equal(x, y)


def test_forms_have_what_only_kernels_have() -> None:
    found = {u.op for form in EVERY for u in nodes(form)}
    assert {Op.SPECIAL, Op.ATOMICADD, Op.IF, Op.ENDIF, Op.BARRIER, Op.LINEAR, Op.RANGE, Op.REDUCE} <= found
    stores = [u for form in FORMS for u in nodes(form) if u.op is Op.STORE]
    assert any(u.gate is not None for u in stores)
    spaces = {u.arg.addrspace for form in EVERY for u in nodes(form) if u.op is Op.BUFFER}
    assert {AddrSpace.LOCAL, AddrSpace.REG} <= spaces
    types = {u.arg.type for form in EVERY for u in nodes(form) if u.op is Op.RANGE}
    assert types == set(AxisType) - {AxisType.PLACEHOLDER}


def test_loops_have_bounds_of_every_sign_and_kind() -> None:
    bounds = [u.bound for u in nodes("bounds") if u.op is Op.RANGE]
    constants = {u.arg.value for u in bounds if u.op is Op.CONST}
    assert min(constants) < 0 in constants
    assert {Op.PARAM, Op.SUB} <= {u.op for u in bounds}


def test_lanes_write_the_memory_that_counts_them() -> None:
    orders = set()
    for call in calls("counted_lanes"):
        lane = next(u for u in toposort(call) if u.op is Op.SPECIAL)
        counts = {base_memory(u.buffer) for u in toposort(lane.bound) if u.op is Op.LOAD}
        stores = [u for u in toposort(call.body) if u.op is Op.STORE]
        assert counts < {base_memory(u.src[0]) for u in stores}  # target
        orders.add(any(u.op is Op.BARRIER for u in toposort(call.body)))
    assert orders == {False, True}


def test_gates_keep_loads_of_an_outer_loop_inside_of_memory() -> None:
    """The inner loop may run zero times, and the Load may be outside of memory where its gate is false."""
    loads = [u for u in nodes("bounds") if u.op is Op.LOAD and u.gate is not None]
    assert any(sum(x.op is Op.RANGE for x in toposort(u)) == 1 for u in loads)


def test_atomic_sums_are_exact_and_meet_in_one_element() -> None:
    adds = [u for u in nodes("atomic") if u.op is Op.ATOMICADD]
    assert {u.value.dtype for u in adds} <= {*dt.INTS, dt.float16, dt.bfloat16}
    assert any(u.index.operand.shape == (1,) for u in adds)
