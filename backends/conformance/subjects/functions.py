"""Cases of the front end: the steps of `@function` on Tensors. Spec: The @function Decorator; R64 (Function).

Each case traces a Python function and looks at the Function node, or at its values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from uops.backends.conformance.subjects.model import SubjectCase, expect, make_check_case
from uops.backends.front import Tensor, function
from uops.interp import run as interpret
from uops.spec.errors import SpecTypeError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, nodes_with_op
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import scope_nodes

#: Checks Tensors of a dtype: yields what is wrong, None where nothing is.
_Check = Callable[[DType], Iterator[str | None]]
#: Dtypes of the Tensors: one of each kind, and one whose storage is not its own.
DTYPES = (dt.float32, dt.int32, dt.bool_, dt.uint8, dt.bfloat16)


class _Pair(NamedTuple):
    first: Tensor
    second: Tensor


def _make_tensor(d: DType, n: int = 3, first: int = 0) -> Tensor:
    """Return a Tensor of `n` elements with memory of its own: 0 and 1 in turn."""
    return Tensor(np.arange(first, first + n) % 2, dtype=d)


def _node_of(result: Tensor) -> UOp:
    """Return the Function node of a result. Raises SpecError if it is none."""
    return result.uop.packed


def _is_input(node: UOp, k: int, t: Tensor) -> str | None:
    arguments = node.arguments
    same = k < len(arguments) and arguments[k] is t.uop
    return None if same else f"argument {k} of the Function is not the Tensor given, out of {len(arguments)} arguments"


# ------------------------------------------------------------------------------------------------------------- extract inputs


def _find_inputs_in_containers(d: DType) -> Iterator[str | None]:
    containers: tuple[tuple[str, Callable[[Tensor, Tensor], Any]], ...] = (
        ("a list", lambda x, y: [x, y]),
        ("a tuple", lambda x, y: (x, y)),
        ("a dict", lambda x, y: {"first": x, "second": y}),
        ("a NamedTuple", _Pair),
        ("a list in a dict in a tuple", lambda x, y: ({"deep": [x]}, y)),
    )
    for name, pack in containers:
        x, y = _make_tensor(d), _make_tensor(d, first=1)
        node = _node_of(function(_unpack_and_compare)(pack(x, y)))
        yield expect(f"arguments of a function of two Tensors in {name}", 2, len(node.arguments))
        yield _is_input(node, 0, x)
        yield _is_input(node, 1, y)
    x, y = _make_tensor(d), _make_tensor(d, first=1)
    node = _node_of(function(lambda a, *, b: a != b)(x, b=y))
    yield _is_input(node, 0, x)
    yield _is_input(node, 1, y)


def _unpack_and_compare(container: Any) -> Tensor:
    match container:
        case {"first": x, "second": y} | ({"deep": [x]}, y):
            return x != y  # type: ignore[no-any-return]
        case x, y:
            return x != y  # type: ignore[no-any-return]
    raise TypeError(f"expected a container of Tensors, got {type(container).__name__}")


def _share_input(d: DType) -> Iterator[str | None]:
    x, y = _make_tensor(d), _make_tensor(d, first=1)
    node = _node_of(function(lambda a, b, c: a.where(b, c) if d is dt.bool_ else (a != b).where(b, c))(x, y, x))
    yield expect("arguments of a function that is given one Tensor twice, and another", 2, len(node.arguments))
    yield _is_input(node, 0, x)
    yield _is_input(node, 1, y)


# ------------------------------------------------------------------------------------------------------------------------ run


def _refuse_realization(d: DType) -> Iterator[str | None]:
    realizing: tuple[tuple[str, Callable[[Tensor], Any]], ...] = (
        ("numpy()", lambda t: t.numpy()),
        ("tolist()", lambda t: t.tolist()),
        ("realize()", lambda t: t.realize()),
    )
    for name, realize in realizing:

        def realize_then_return(t: Tensor, realize: Callable[[Tensor], Any] = realize) -> Tensor:
            realize(t)
            return t

        try:
            function(realize_then_return)(_make_tensor(d))
        except SpecTypeError:
            yield None
        else:
            yield f"{name} inside of a @function: expected an error, got a result"


def _run_once_per_call_and_stay_lazy(d: DType) -> Iterator[str | None]:
    calls = []

    @function
    def count(t: Tensor) -> Tensor:
        calls.append(t)
        return t.flip(0)

    result = count(_make_tensor(d))
    yield expect("runs of the Python function in one call", 1, len(calls))
    yield expect("op of the result, which is not computed yet", Op.GETTUPLE, result.uop.op)


# --------------------------------------------------------------------------------------------------------------- parameterize


def _make_params_of_inputs(d: DType) -> Iterator[str | None]:
    x, y = _make_tensor(d, 3), _make_tensor(d, 6)
    node = _node_of(function(lambda a, b: a.reshape(3, 1) != b.reshape(1, 6))(x, y))
    params = {p.arg.slot: p for p in scope_nodes(node.body) if p.op is Op.PARAM}
    yield expect("slots of the Params", [0, 1], sorted(params))
    for k, t in enumerate((x, y)):
        yield expect(f"shape of Param {k}", t.shape, params[k].shape if k in params else None)
        yield expect(f"dtype of Param {k}", d, params[k].dtype if k in params else None)


def _pass_captures_as_arguments(d: DType) -> Iterator[str | None]:
    captured, x = _make_tensor(d, 4, first=1), _make_tensor(d, 4)
    node = _node_of(function(lambda t: captured != t)(x))
    yield expect("arguments of a function of one input that captures a Tensor", 2, len(node.arguments))
    yield _is_input(node, 0, x)
    is_captured = len(node.arguments) > 1 and captured.uop in (node.arguments[1], *scope_nodes(node.arguments[1]))
    holds = len(node.arguments) > 1 and node.arguments[1] in scope_nodes(captured.uop)
    yield None if is_captured or holds else "the last argument is not the memory of the captured Tensor"


def _close_body(d: DType) -> Iterator[str | None]:
    captured = _make_tensor(d, 4)
    node = _node_of(function(lambda t: (captured != t).flip(0))(_make_tensor(d, 4)))
    yield expect("Buffers in the body", [], nodes_with_op(node.body, Op.BUFFER))


# ------------------------------------------------------------------------------------------------------------------ wrap body


def _pack_results(d: DType) -> Iterator[str | None]:
    for count in (1, 2, 3):
        results = function(lambda t, count=count: [t.flip(0).reshape(1, 3)] + [t.reshape(3, 1)] * (count > 1) + [t] * (count > 2))(
            _make_tensor(d)
        )
        body = _node_of(results[0]).body
        yield expect(f"op of the body of {count} results", Op.TUPLE, body.op)
        yield expect(f"elements of the Tuple of {count} results", count, len(body.src))


def _build_function_node_with_arguments(d: DType) -> Iterator[str | None]:
    captured, x, y = _make_tensor(d, 4, first=1), _make_tensor(d, 4), _make_tensor(d, 4)
    node = _node_of(function(lambda a, b: ((a != captured), (b != captured))[1])(x, y))
    yield expect("op of the node", Op.FUNCTION, node.op)
    yield expect("arguments: two inputs and the captured Tensor", 3, len(node.arguments))
    yield _is_input(node, 0, x)
    yield _is_input(node, 1, y)


# --------------------------------------------------------------------------------------------------------------------- return


def _return_each_distinct_element_once(d: DType) -> Iterator[str | None]:
    def flip_and_repeat(t: Tensor) -> list[Tensor]:
        flipped = t.flip(0)
        return [flipped, t.reshape(1, 3), flipped]

    first, second, third = function(flip_and_repeat)(_make_tensor(d))
    yield expect("op of each result", [Op.GETTUPLE] * 3, [t.uop.op for t in (first, second, third)])
    yield expect("elements that they take", [0, 1, 0], [t.uop.arg.index for t in (first, second, third)])
    yield expect("results of the body, of which one is returned twice", 2, len(_node_of(first).body.src))
    yield expect("shape of the second result", (1, 3), second.shape)


def _keep_containers(d: DType) -> Iterator[str | None]:
    def pack(t: Tensor) -> tuple[Any, ...]:
        return [t.flip(0)], {"key": t}, _Pair(t, t.flip(0)), "text"

    result = function(pack)(_make_tensor(d))
    yield expect("types of the containers", [list, dict, _Pair, str], [type(r) for r in result])
    yield expect("keys of the dict", ["key"], list(result[1]))
    yield expect("text, which is no Tensor", "text", result[3])


# -------------------------------------------------------------------------------------------------------------------- resolve


def _compute_body(d: DType) -> Iterator[str | None]:
    """A function's values are those of the same Python function without the decorator, also called twice and nested."""
    x, y = Tensor(np.array([0, 1, 1, 0, 1]), dtype=d), Tensor(np.array([1, 1, 0, 0, 1]), dtype=d)

    def choose(a: Tensor, b: Tensor) -> Tensor:
        return (a != b).where(a.flip(0), b)

    plain, traced = choose(choose(x, y), x), function(lambda a, b: function(choose)(function(choose)(a, b), a))(x, y)
    for opaque in (traced, function(choose, precompile=True)(function(choose, precompile=True)(x, y), x)):
        expected, got = (_interpret(t) for t in (plain, opaque))
        same = expected.dtype == got.dtype and expected.tobytes() == got.tobytes()
        yield None if same else f"values: expected {expected.tolist()}, as without @function; got {got.tolist()}"
        compiled = opaque.numpy()
        same = np.asarray(plain.numpy()).tobytes() == np.asarray(compiled).tobytes()
        yield None if same else f"compiled: expected {plain.numpy().tolist()}, as without @function; got {compiled.tolist()}"


def _interpret(t: Tensor) -> Any:
    buffers = nodes_with_op(t.uop, Op.BUFFER)
    inputs = {f"b{u.arg.unique}": Tensor.of(u).numpy() for u in buffers}
    return np.asarray(interpret(t.uop, inputs).values[0])


#: (claim, what is asked, the check).
_CHECKS: tuple[tuple[str, str, _Check], ...] = (
    ("FUNCTION.EXTRACTINPUTS.C1", "containers", _find_inputs_in_containers),
    ("FUNCTION.EXTRACTINPUTS.C2", "shared-input", _share_input),
    ("FUNCTION.RUN.C1", "realization", _refuse_realization),
    ("FUNCTION.RUN.C1", "lazy", _run_once_per_call_and_stay_lazy),
    ("FUNCTION.PARAMETERIZE.C1", "inputs", _make_params_of_inputs),
    ("FUNCTION.PARAMETERIZE.C2", "captured", _pass_captures_as_arguments),
    ("FUNCTION.PARAMETERIZE.C3", "closed-body", _close_body),
    ("FUNCTION.WRAPBODY.C1", "tuple", _pack_results),
    ("FUNCTION.WRAPBODY.C2", "node", _build_function_node_with_arguments),
    ("FUNCTION.RETURN.C1", "elements", _return_each_distinct_element_once),
    ("FUNCTION.RETURN.C2", "containers", _keep_containers),
    ("FUNCTION.RESOLVE.C1", "values", _compute_body),
)


def generate_function_cases(dtypes: tuple[DType, ...] = DTYPES) -> Iterator[SubjectCase]:
    """Yield the cases of the front end on Tensors of each dtype."""
    for claim, what, check in _CHECKS:
        for d in dtypes:
            yield make_check_case(claim, what, d.name, functools.partial(check, d))
