"""The table of Tensor methods with references in NumPy, and the judgement of a drawn call.

Takes: choices. Gives: a call of one public method (`draw_call`), and the program that the front end makes of it
(`generate_method_call`). `find_fault_of_call` says whether the interpreter's value of that program is what the reference gives. A
call is a pure function of its choices, so that a sample carries the choices alone: whoever judges it draws the call again.

`WITHOUT_REFERENCE` names the public attributes of Tensor that have no row, with reasons.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from uops.backends.conformance.stage_judge import Fault
from uops.compiler.tensor import Tensor, capture, use
from uops.fuzz.generate.declared import SupportedOpDtypes
from uops.fuzz.generate.draw import CheckedReplayDraw
from uops.fuzz.generate.graphs import FuzzCase
from uops.fuzz.generate.methods.calls import creation, elementwise, functions, indexing, movement, networks, reductions
from uops.fuzz.generate.methods.calls.answers import Array, find_wrong_element
from uops.fuzz.generate.methods.calls.drawing import FORMS, CallDraw, MethodCall
from uops.interp import run
from uops.spec.choices import ChoiceSource
from uops.spec.errors import SpecError
from uops.spec.ir import build as b
from uops.spec.ir.node import UOp

#: All rows. Draws depend on the order.
ROWS = (
    *movement.ROWS, *indexing.ROWS, *elementwise.ROWS, *functions.ROWS, *reductions.ROWS, *networks.ROWS, *creation.ROWS,
)  # fmt: skip
_WEIGHTED = tuple(row for row in ROWS for _ in range(row.weight))

#: Reason -> public attributes of Tensor without a row.
# fmt: off
WITHOUT_REFERENCE: dict[str, tuple[str, ...]] = {
    "a property or a number of the node, which every answer checks by its dtype and shape": (
        "device", "dtype", "is_realized", "ndim", "numel", "shape", "sharded_axis", "size", "uop", "__len__"),
    "an exchange with Python, NumPy or DLPack, which changes no value": (
        "from_dlpack", "from_numpy", "item", "numpy", "of", "realize", "tolist", "__array__", "__bool__", "__dlpack__",
        "__dlpack_device__", "__float__", "__index__", "__int__", "__iter__"),
    "a gradient, which the oracle `duals` judges": ("backward", "grad", "gradient", "requires_grad", "requires_grad_"),
    "a copy to devices, which the kind `devices` draws": ("shard", "to"),
    "a setting; the rows of random numbers call it": ("manual_seed",),
}
# fmt: on


class BuiltCall(NamedTuple):
    """A call, and what came of it: the graph and inputs of its results, or the error that it raised."""

    call: MethodCall
    graph: UOp
    inputs: dict[str, Any]
    error: Exception | None = None


def draw_call(draw: ChoiceSource) -> MethodCall:
    """Draw a call of one method, with its answer."""
    row = draw.choice(_WEIGHTED)
    call = row.draw(CallDraw(draw))._replace(form=draw.choice(FORMS))
    return call._replace(gives_arrays=row.takes_arrays and draw.chance(15))


def generate_method_call(draw: ChoiceSource, declared: SupportedOpDtypes) -> FuzzCase:
    """Generate the program of one call. A call that raises an error has the program of one constant.

    What a backend declares has no effect, so that the choices alone determine the call.
    """
    built = build_call(draw_call(draw))
    return FuzzCase(built.graph, built.inputs)


def build_call(call: MethodCall) -> BuiltCall:
    """Call the method and capture the program of its results."""
    try:
        tensors = _invoke(call)
        graph, inputs = capture(*tensors)
        if call.is_raised_on_realization:
            with use("interp"):
                tensors[0].realize(*tensors[1:])
    except Exception as e:  # judged by `find_fault_of_built_call`
        return BuiltCall(call, b.const(0), {}, e)
    return BuiltCall(call, graph, inputs)


def _invoke(call: MethodCall) -> list[Tensor]:
    """Return the Tensors that a call gives."""
    args = [a if k and call.gives_arrays else _to_tensors(a) for k, a in enumerate(call.args)]
    if args and isinstance(args[0], Tensor):
        args[0] = _make_in_form(call.args[0], call.form)
    kwargs = {k: _to_tensors(v) for k, v in call.kwargs.items()}
    if call.method == "__setitem__":
        args[0][args[1]] = args[2]
        return [args[0]]
    if call.method == "Tensor":
        return [Tensor(*args, **kwargs)]
    method = getattr(Tensor, call.method)
    if isinstance(method, property):
        return [getattr(args[0], call.method)]
    out = method(*args, **kwargs) if call.seed is None else _call_with_own_random_state(call.seed, method, args, kwargs)
    return [*out] if isinstance(out, tuple) else [out]


def _make_in_form(x: Array, form: str) -> Tensor:
    """Return a Tensor of these elements: data, or a view of other data."""
    if form == "transposed":
        return Tensor(np.array(x.T, order="C")).T
    if form == "flipped":
        return Tensor(np.array(np.flip(x), order="C")).flip()
    if form == "sliced" and x.ndim:
        return Tensor(np.concatenate([x, x, x]))[x.shape[0] : 2 * x.shape[0]]
    if form == "stepped" and x.ndim:
        return Tensor(np.repeat(x, 2, x.ndim - 1))[..., ::2]
    return Tensor(x)


def _to_tensors(value: Any) -> Any:
    """Return an argument with Tensors in place of arrays."""
    if isinstance(value, np.ndarray):
        return Tensor(value)
    if isinstance(value, (tuple, list)):
        return type(value)(_to_tensors(v) for v in value)
    return value


def _call_with_own_random_state(seed: tuple[int, int], method: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call a method that draws random numbers in a thread of its own, which has a state of its own."""
    results: list[Any] = []
    errors: list[Exception] = []

    def call_in_thread() -> None:
        try:
            Tensor.manual_seed(seed[0])
            if seed[1]:
                Tensor.rand(seed[1])
            results.append(method(*args, **kwargs))
        except Exception as e:
            errors.append(e)

    thread = threading.Thread(target=call_in_thread)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def rebuild_call(choices: Sequence[int]) -> BuiltCall:
    """Build the call of recorded choices. Raises ValueError for choices of another version of the generator."""
    return build_call(draw_call(CheckedReplayDraw(choices)))


def find_fault_of_built_call(built: BuiltCall) -> Fault | None:
    """Return the first difference between the interpreter's value of a call and its reference, or None.

    A wrong error, an error in place of a value and a value in place of an error are faults, too. The message ends with the method,
    as the place by which findings are told apart.
    """
    call, answer = built.call, built.call.answer
    if isinstance(answer, type):
        if built.error is None:
            return _fault(call, "accepted", f" gives a value, expected {answer.__name__}")
        if not (isinstance(built.error, answer) and isinstance(built.error, SpecError)):
            return _fault(call, "error", f" raises {_describe(built.error)}, expected {answer.__name__}")
        return None
    if built.error is not None:
        return _fault(call, "error", f" raises {_describe(built.error)}, expected a value")
    results = [np.asarray(v) for v in run(built.graph, built.inputs).values]
    if len(results) != len(answer):
        return _fault(call, "result", f" gives {len(results)} values, expected {len(answer)}")
    for k, (a, result) in enumerate(zip(answer, results)):
        if wrong := find_wrong_element(a, result):
            return _fault(call, "result", f"{f', value {k}' if len(answer) > 1 else ''}: {wrong}")
    return None


def _fault(call: MethodCall, kind: str, what: str) -> Fault:
    return Fault(kind, f"{call}{what} [Tensor.{call.method}]")


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
