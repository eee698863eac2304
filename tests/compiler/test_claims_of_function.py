"""Each claim of the steps of `@function`, on what the decorator makes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from uops import Op, SpecError, Tensor, function
from uops.compiler.tensor import capture
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.rows.rows import NAMED_ROWS

X, Y, Z = (Tensor(np.array(v, np.float32)) for v in ([1, 2, 3], [10, 20, 30], [5, 6, 7]))


def function_node(result: Tensor) -> UOp:
    node: UOp = result.uop.packed
    assert node.op is Op.FUNCTION
    return node


@function
def add_all(pair: tuple[Tensor, list[Tensor]], *, more: dict[str, Tensor]) -> Tensor:
    return pair[0] + pair[1][0] + more["x"]


@function
def scale(x: Tensor) -> Tensor:
    return x * Y


@function
def several(x: Tensor) -> dict[str, list[Tensor]]:
    twice = x * 2
    return {"first": [twice, x + 1], "again": [twice]}


def _finds_tensors_in_containers() -> None:
    assert function_node(add_all((X, [Y]), more={"x": Z})).arguments == (X.uop, Y.uop, Z.uop)


def _gives_a_tensor_one_param() -> None:
    assert function_node(add_all((X, [Y]), more={"x": X})).arguments == (X.uop, Y.uop)


def _runs_nothing() -> None:
    x = Tensor(np.float32([1, 2]))
    lazy = x + 1
    function_node(function(lambda t: t * 2)(lazy))
    assert lazy.uop.op is Op.ADD
    with pytest.raises(SpecError, match="runs lazily"):
        function(lambda t: t if t.sum().item() > 0 else t * 2)(x)


def _numbers_params_like_inputs() -> None:
    x = Tensor(np.int32([[1, 2]]))
    node = function_node(function(lambda a, c: a.cast(dt.float32).sum() + c)(x, X))
    assert {u for u in toposort(node.body) if u.op is Op.PARAM} == {b.param(0, (1, 2), dt.int32), b.param(1, (3,), dt.float32)}


def _appends_captured_tensors() -> None:
    node = function_node(scale(X))
    first, captured = node.arguments
    assert first is X.uop and captured.op is Op.BUFFER and captured in toposort(Y.uop)


def _closes_the_body() -> None:
    assert Op.BUFFER not in {u.op for u in toposort(function_node(scale(X)).body)}


def _packs_one_value_too() -> None:
    body = function_node(scale(X)).body
    assert body.op is Op.TUPLE and len(body.values) == 1


def _makes_the_node_of_body_and_inputs() -> None:
    p, q = (b.param(k, (3,), dt.float32) for k in range(2))
    made = function(lambda x, y: x + y)(X, Y)
    assert function_node(made) is b.function(b.tuple_(b.add(p, q)), X.uop, Y.uop)


def _returns_get_tuples() -> None:
    made = several(X)
    first, second = made["first"]
    assert made["again"][0].uop is first.uop
    node = function_node(first)
    assert (first.uop, second.uop) == (b.get(node, 0), b.get(node, 1))
    assert len(node.body.values) == 2


def _keeps_containers() -> None:
    made = several(X)
    assert {key: [type(t) for t in tensors] for key, tensors in made.items()} == {"first": [Tensor, Tensor], "again": [Tensor]}


def _computes_the_substituted_body() -> None:
    made = scale(X)
    node = function_node(made)
    params = {u: node.arguments[u.arg.slot] for u in toposort(node.body) if u.op is Op.PARAM}
    flat = {u: b.reshape(a, u.shape) for u, a in params.items()}
    captured = capture(made)
    inlined = run(capture(Tensor.of(substitute(node.body.values[0], flat))).graph, captured.inputs).values[0]
    assert run(captured.graph, captured.inputs).values[0].tolist() == inlined.tolist() == [10, 40, 90]


HOLDS: dict[str, Callable[[], None]] = {
    "FUNCTION.EXTRACTINPUTS.C1": _finds_tensors_in_containers,
    "FUNCTION.EXTRACTINPUTS.C2": _gives_a_tensor_one_param,
    "FUNCTION.RUN.C1": _runs_nothing,
    "FUNCTION.PARAMETERIZE.C1": _numbers_params_like_inputs,
    "FUNCTION.PARAMETERIZE.C2": _appends_captured_tensors,
    "FUNCTION.PARAMETERIZE.C3": _closes_the_body,
    "FUNCTION.WRAPBODY.C1": _packs_one_value_too,
    "FUNCTION.WRAPBODY.C2": _makes_the_node_of_body_and_inputs,
    "FUNCTION.RETURN.C1": _returns_get_tuples,
    "FUNCTION.RETURN.C2": _keeps_containers,
    "FUNCTION.RESOLVE.C1": _computes_the_substituted_body,
}


def test_every_claim_of_a_step_has_a_test() -> None:
    assert set(HOLDS) == {claim.id for row in NAMED_ROWS.values() if row.family == "Function" for claim in row.claims}


@pytest.mark.parametrize("id", HOLDS)
def test_claim_holds(id: str) -> None:
    HOLDS[id]()
