"""A rewrite step that changes a value is wrong, and what the rulings leave open is not."""

from __future__ import annotations

import pytest

from uops.compiler.log import record_transforms
from uops.compiler.rewrite.rule import RewriteStep
from uops.fuzz.bisect.wrong_rule import find_wrong_step, record_rewrite_steps
from uops.fuzz.generate import kinds
from uops.fuzz.oracles.subject import Subject
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

X, Y = b.load(b.at(b.param(0, (9,), dt.float32), 0)), b.load(b.at(b.param(1, (9,), dt.float32), 0))
N = b.load(b.at(b.param(2, (9,), dt.int32), 0))


def is_wrong(before: UOp, after: UOp) -> bool:
    return find_wrong_step([RewriteStep("r", before, after, {})]) is not None


def test_a_step_to_another_value_is_wrong() -> None:
    assert is_wrong(b.sub(N, N), b.const(1, dt.int32))
    assert is_wrong(b.mul(X, b.const(0.0, dt.float32)), b.const(0.0, dt.float32))
    assert not is_wrong(b.sub(N, N), b.const(0, dt.int32))


def test_the_steps_that_are_taken_are_those_that_a_recording_hears() -> None:
    subject, count = Subject("llvm"), 0
    for k in range(12):
        graph = kinds.sample(5, k).graph
        with record_transforms() as log:
            subject.compile_to_function(graph)
        with record_rewrite_steps() as steps:
            subject.compile_to_function(graph)
        heard = {(s.rule, s.before, s.after) for m in log.transforms for s in m.steps}
        assert {(s.rule, s.before, s.after) for s in steps} == heard
        count += len(heard)
        before = len(steps)
        subject.compile_to_function(graph)
        assert len(steps) == before
    assert count > 50


def test_operands_of_a_float_max_may_change_places_R11() -> None:
    assert not is_wrong(b.maximum(X, Y), b.maximum(Y, X))
    assert is_wrong(b.maximum(X, Y), X)


@pytest.mark.parametrize(("lo", "hi"), [(1 << 21, 1 << 22), (-(1 << 40), -(1 << 39)), (1 << 80, (1 << 80) + 4)])
def test_values_far_from_0_are_tried(lo: int, hi: int) -> None:
    n = b.variable("n", lo, hi)
    assert is_wrong(b.mul(n, b.index(2)), n)
    assert is_wrong(b.mod(n, b.index(2)), b.index(0))
    assert not is_wrong(b.sub(b.mul(n, b.index(2)), n), n)
    assert not is_wrong(b.lt(n, b.index(lo)), b.const(False))


@pytest.mark.parametrize("d", dt.FLOATS, ids=lambda d: d.name)
def test_a_float_leaf_has_values_between_its_bounds_and_is_NaN_R71(d: DType) -> None:
    byte = b.load(b.at(b.param(0, (9,), dt.uint8), 0))
    few = b.mod(byte, b.const(3, dt.uint8))
    x = UOp(Op.INDEX, (b.stack(b.cast(few, d), b.const(1.0, d)), b.index(0)))
    assert x.min_max == (0.0, 2.0)
    assert not is_wrong(b.eq(x, b.const(3.0, d)), b.const(False))
    assert not is_wrong(b.lt(x, b.const(0.0, d)), b.const(False))
    assert is_wrong(b.lt(x, b.const(2.0, d)), b.const(True))
    assert is_wrong(b.lt(b.const(0.0, d), x), b.const(True))
    assert is_wrong(b.ge(x, b.const(0.0, d)), b.const(True))  # not where it is NaN
    assert is_wrong(b.eq(b.trunc(x), x), b.const(True))


def test_a_bool_leaf_has_values_between_its_bounds() -> None:
    x = UOp(Op.INDEX, (b.stack(b.const(True), b.lt(N, N)), b.index(0)))
    always = UOp(Op.INDEX, (b.stack(b.const(True), b.const(True)), b.index(0)))
    assert is_wrong(x, b.const(True))
    assert not is_wrong(always, b.const(True))


def test_nothing_is_said_of_a_range_up_to_a_variable() -> None:
    n = b.variable("n", 1, 9)
    r = UOp(Op.RANGE, (n,), b.range_(4, 0, AxisType.LOOP).arg)
    assert not is_wrong(b.mod(r, n), r)
    assert not is_wrong(b.mod(r, n), b.add(r, 1))
