"""The gradient column: which rows have a rule, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import uops
from uops.spec.errors import SpecValueError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CallArg
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.rows.gradients.base import register_gradient
from uops.spec.rows.gradients.reverse import differentiate
from uops.spec.rows.rows import ROWS

#: The rows that have a rule.
WITH_RULE = frozenset({
    Op.ADD, Op.SUB, Op.NEG, Op.MUL, Op.MULACC, Op.DIV, Op.RECIP, Op.MAX, Op.WHERE, Op.EXP2, Op.LOG2, Op.SIN, Op.SQRT, Op.POW,
    Op.CAST, Op.PERMUTE, Op.FLIP, Op.RESHAPE, Op.EXPAND, Op.PAD, Op.SHRINK, Op.INDEX, Op.STACK, Op.REPLICATED, Op.SLICE, Op.REDUCE,
    Op.LOAD, Op.AFTER, Op.FUNCTION, Op.TUPLE, Op.GETTUPLE, Op.CONTIGUOUS, Op.CONTIGUOUS_BACKWARD,
})  # fmt: skip
X = b.param(0, (4,), dt.float32)
G = b.param(9, (4,), dt.float32)


def test_these_rows_have_a_rule() -> None:
    assert {op for op, row in ROWS.items() if row.gradient.rule is not None} == WITH_RULE


def test_every_other_row_says_why_it_has_none() -> None:
    for row in ROWS.values():
        if row.gradient.rule is None:
            assert row.gradient.formula.startswith(("none: ", "by the rule that is registered", "that of its core form")), row.id


@pytest.mark.parametrize("stop", [lambda x: b.detach(x), lambda x: b.trunc(x), lambda x: b.cast(b.cast(x, dt.int32), dt.float32)])
def test_nothing_flows_through_what_stops(stop: object) -> None:
    assert callable(stop)
    assert differentiate({stop(X): G}, {X}) == {}
    assert differentiate({b.add(stop(X), X): G}, {X}) == {X: G}


def test_each_target_gets_its_total_derivative() -> None:
    middle = b.mul(X, 2.0)
    found = differentiate({b.mul(middle, 3.0): G}, {X, middle})
    assert found == {middle: b.mul(G, 3.0), X: b.mul(b.mul(G, 3.0), 2.0)}


def test_a_position_keeps_its_dtype_unless_it_is_narrower_than_int32() -> None:
    far = b.stack(b.index(2**32 + 1), b.index(2))
    (found,) = differentiate({b.at(X, far): b.param(8, (2,), dt.float32)}, {X}).values()
    assert uops.run(found, {"p8": np.float32([10, 20])}).values[0].tolist() == [0, 0, 20, 0]


def test_contiguous_backward_lays_its_gradient_out() -> None:
    found = differentiate({UOp(Op.CONTIGUOUS_BACKWARD, (b.mul(X, 2.0),)): G}, {X})
    assert any(u.op is Op.CONTIGUOUS and u.operand is G for u in toposort(found[X]))
    plain = differentiate({b.contiguous(b.mul(X, 2.0)): G}, {X})
    assert not any(u.op is Op.CONTIGUOUS for u in toposort(plain[X]))


def test_a_function_has_a_backward_function_without_the_params_it_does_not_use() -> None:
    other = b.param(1, (4,), dt.float32)
    body = b.tuple_(b.mul(b.param(0, (4,), dt.float32), 2.0), b.sin(b.param(1, (4,), dt.float32)))
    f = b.function(body, X, other).replace(arg=CallArg(precompile_backward=True))
    (g,) = differentiate({b.get(f, 0): G}, {X}).values()
    assert g.op is Op.GETTUPLE and g.packed.op is Op.FUNCTION
    assert g.packed.arguments == (G,)
    assert g.packed.arg == CallArg(precompile=True)


def _call(tag: str | None) -> UOp:
    memory = b.buffer(4, dt.float32, unique=3)
    kernel = b.sink(b.store(b.param(0, (4,), dt.float32), b.param(1, (4,), dt.float32)), name="copy")
    call = b.call(kernel, memory, X, written=(0,))
    return b.after(memory, call.replace(arg=CallArg(written=(0,), grad_tag=tag)))


@pytest.mark.parametrize(("tag", "why"), [(None, "it has no grad_tag"), ("unknown", "nothing is registered")])
def test_a_call_without_a_rule_is_refused(tag: str | None, why: str) -> None:
    with pytest.raises(SpecValueError, match=why):
        differentiate({_call(tag): G}, {X})


def test_a_call_has_the_gradient_that_is_registered() -> None:
    register_gradient("copies its argument", lambda call, g: {1: g[0]})
    assert differentiate({_call("copies its argument"): G}, {X}) == {X: G}


def test_a_call_that_only_reads_a_memory_keeps_its_contents() -> None:
    memory, other = b.buffer(4, dt.float32, unique=3), b.buffer(4, dt.float32, unique=4)
    kernel = b.sink(b.store(b.param(0, (4,), dt.float32), b.param(1, (4,), dt.float32)), name="copy")
    filled = b.after(memory, b.store(memory, X))
    read = b.after(filled, b.call(kernel, other, filled, written=(0,)))
    (g,) = differentiate({read: G}, {X}).values()
    assert g is G


def test_a_function_has_the_gradient_that_is_registered() -> None:
    register_gradient("twice by hand", lambda u, g: {0: b.mul(g[0], 2.0)})
    f = b.function(b.tuple_(b.detach(b.mul(b.param(0, (4,), dt.float32), 2.0))), X).replace(arg=CallArg(grad_tag="twice by hand"))
    assert differentiate({b.get(f, 0): G}, {X}) == {X: b.mul(G, 2.0)}


def test_kernels_are_refused() -> None:
    r = b.range_(4, 0)
    total = UOp(Op.REDUCE, (b.mul(b.load(b.at(X, r)), 2.0), r), b.reduce(X, Op.ADD, (0,)).arg.__class__(Op.ADD, ()))
    with pytest.raises(SpecValueError, match="over Ranges"):
        differentiate({total: b.param(8, (), dt.float32)}, {X})


def test_a_slice_that_reads_other_bits_is_refused() -> None:
    with pytest.raises(SpecValueError, match="reinterprets bits"):
        differentiate({b.slice_(X, 0, 2, dt.float16): b.param(8, (2,), dt.float16)}, {X})


def test_symbolic_extents_are_kept() -> None:
    n = b.variable("n", 1, 8)
    x = b.param(0, (n, 3), dt.float32)
    g = b.param(1, (n, 1), dt.float32)
    found = differentiate({b.reduce(b.mul(x, x), Op.ADD, (1,)): g}, {x})
    assert found[x].shape == x.shape
    with pytest.raises(SpecValueError, match="constant extents"):
        differentiate({b.reduce(x, Op.MUL, (0,)): b.param(1, (1, 3), dt.float32)}, {x})
