"""`@function`: a Python function on Tensors, traced as one Function node. Spec: The @function Decorator; R64 (Function).

1. The inputs are the Tensors among the arguments, in lists, tuples and dicts too, each node once.
2. The function runs lazily on stand-ins: nothing may be realized.
3. In the nodes of its result, each stand-in becomes Param k. Each remaining Buffer, of a Tensor captured from outside, becomes a
   further Param.
4. The results are packed in a Tuple, and the node is `Function(Tuple(results), inputs, captured)`.
5. Each Tensor returned is a GetTuple; the containers of the result are kept.

A function may call others: their bodies own their Params. IndexChecks in a body are attached to the Function, in terms of these
arguments (`uops.compiler.tensor.checks`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar, overload

from uops.compiler.tensor import history, storage
from uops.compiler.tensor.checks import UNCHECKED, IndexCheck, attach_body_checks_not_proved_by_data, checks_of
from uops.compiler.tensor.realize import forbid_realization
from uops.compiler.tensor.tensor import Tensor
from uops.spec.errors import SpecTypeError, SpecValueError
from uops.spec.ir import build as B
from uops.spec.ir.args import CallArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import scope_nodes, scope_sources

P = ParamSpec("P")
R = TypeVar("R")


class ClosedValues(NamedTuple):
    """The results of a function in terms of Params, and the captured Buffers, which are arguments after the inputs."""

    bodies: list[UOp]
    captured: list[UOp]


@overload
def function(f: Callable[P, R], *, precompile: bool = False) -> Callable[P, R]:
    """Capture each call of `f`."""


@overload
def function(f: None = None, *, precompile: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return the decorator."""


def function(f: Callable[P, R] | None = None, *, precompile: bool = False) -> Any:
    """Capture each call of `f` as a Function node (see the module).

    With `precompile`, the kernels of a call are its own: no value outside of `f` is computed in them, so that all calls on
    arguments of equal shapes and dtypes share compiled kernels. Raises SpecError if `f` realizes, assigns to an input, or
    returns no Tensor.
    """
    if f is None:
        return functools.partial(function, precompile=precompile)
    traced = f

    @functools.wraps(traced)
    def call_as_function_node(*args: P.args, **kwargs: P.kwargs) -> R:
        return _trace_to_function_node(traced, args, kwargs, CallArg(precompile=True) if precompile else None)

    return call_as_function_node


def _trace_to_function_node(f: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any], arg: CallArg | None) -> R:
    """Return the result of `f`, its Tensors replaced by the results of a Function node with the annotations `arg`."""
    name = getattr(f, "__name__", "function")
    inputs: dict[UOp, Tensor] = {}
    args, kwargs = map_tensors(
        (args, kwargs), lambda t: inputs.setdefault(t.uop, Tensor.of(storage.make_stand_in_for_function_input(t.uop)))
    )
    before = {u: t.uop for u, t in inputs.items()}
    with forbid_realization(name):
        result = f(*args, **kwargs)
    if any(t.uop is not before[u] for u, t in inputs.items()):
        raise SpecValueError(f"@function {name} assigns to an input, which a Function cannot do (R63, R64)")
    values = list(dict.fromkeys(t.uop for t in collect_tensors_with_repeats(result)))
    if not values:
        raise SpecTypeError(f"@function {name} must return a Tensor or several, got none")
    order = list(dict.fromkeys(u for v in values for u in scope_nodes(v)))
    bodies, captured = _replace_inputs_and_captures_by_params(values, order, [before[u] for u in inputs])
    node = B.function(B.tuple_(*bodies), *inputs, *captured).replace(arg=arg)
    if any(u.tag == UNCHECKED for u in order):
        node = node.replace(tag=UNCHECKED)
    node = attach_body_checks_not_proved_by_data(node, _express_checks_in_call_arguments(order, {before[u]: u for u in inputs}))
    place = {v: k for k, v in enumerate(values)}
    out: R = map_tensors(result, lambda t: Tensor.of(B.get(node, place[t.uop])))
    return out


def map_tensors(value: Any, f: Callable[[Tensor], Any], other: Callable[[Any], Any] = lambda v: v) -> Any:
    """Apply `f` to the Tensors in a value, and `other` to what is neither a Tensor nor a container; containers are rebuilt."""
    if isinstance(value, Tensor):
        return f(value)
    container = open_container(value)
    if container is None:
        return other(value)
    return container.rebuild([map_tensors(v, f, other) for v in container.parts])


class OpenedContainer(NamedTuple):
    """The parts of a container in order, its keys or fields (none for a sequence), and a function that makes one of other parts."""

    keys: tuple[Any, ...]
    parts: list[Any]
    rebuild: Callable[[list[Any]], Any]


def open_container(value: Any) -> OpenedContainer | None:
    """Open a dict, a list, a tuple, a NamedTuple or a dataclass; return None for any other value, which is passed as it is.

    Raises SpecTypeError for a dataclass with a Tensor in an attribute that is no field: it would not be passed on.
    """
    kind = type(value)
    if isinstance(value, dict):
        return OpenedContainer(tuple(value), list(value.values()), lambda parts: dict(zip(value, parts, strict=True)))
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a NamedTuple
        return OpenedContainer((), list(value), lambda parts: kind(*parts))
    if kind in (list, tuple):
        return OpenedContainer((), list(value), kind)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for name in list_undeclared_attributes(value):
            if _holds_tensor(getattr(value, name)):
                message = f"expected the Tensors of a {kind.__name__} in its fields, got one in its attribute {name}"
                raise SpecTypeError(f"{message}: declare it as a field")
        fields = [x for x in dataclasses.fields(value) if x.init or hasattr(value, x.name)]
        parts = [getattr(value, x.name) for x in fields]
        return OpenedContainer(tuple([x.name for x in fields]), parts, lambda parts: _replace_all_fields(value, fields, parts))
    return None


@functools.lru_cache(256)
def declared_attributes(dataclass: type) -> frozenset[str]:
    """Return the names of the fields of a dataclass and of its cached properties, which derive from them."""
    cached = [name for c in dataclass.__mro__ for name, v in vars(c).items() if isinstance(v, functools.cached_property)]
    return frozenset([*[x.name for x in dataclasses.fields(dataclass)], *cached])


def list_undeclared_attributes(instance: Any) -> list[str]:
    """Return the attributes of a dataclass instance that are not declared, in order."""
    kind: type = type(instance)
    declared = declared_attributes(kind)
    return [name for name in getattr(instance, "__dict__", ()) if name not in declared]


def _holds_tensor(value: Any) -> bool:
    """Return True for a Tensor, and for a container of one."""
    pending, seen = [value], set[int]()  # an attribute may lead back to its object
    while pending:
        v = pending.pop()
        if isinstance(v, Tensor):
            return True
        if id(v) not in seen:
            seen.add(id(v))
            if isinstance(v, dict):
                pending += v.values()
            elif isinstance(v, list | tuple):
                pending += v
            elif dataclasses.is_dataclass(v) and not isinstance(v, type):
                pending += [getattr(v, x.name) for x in dataclasses.fields(v) if hasattr(v, x.name)]
    return False


def _replace_all_fields(value: Any, fields: list[dataclasses.Field[Any]], parts: list[Any]) -> Any:
    """Return a dataclass instance like `value` with other parts, also in the fields that its class initializes itself."""
    replaced = dataclasses.replace(value, **{x.name: part for x, part in zip(fields, parts, strict=True) if x.init})
    for x, part in zip(fields, parts):
        if not x.init:
            object.__setattr__(replaced, x.name, part)  # the class may be frozen
    return replaced


def collect_tensors_with_repeats(value: Any) -> list[Tensor]:
    """Return the Tensors in a value, in order."""
    tensors: list[Tensor] = []

    def collect(t: Tensor) -> Tensor:
        tensors.append(t)
        return t

    map_tensors(value, collect)
    return tensors


def _replace_inputs_and_captures_by_params(values: list[UOp], nodes_sources_first: list[UOp], inputs: list[UOp]) -> ClosedValues:
    """Return the values in terms of Params, and the captured Buffers, which are arguments after the inputs.

    `nodes_sources_first` is the toposort of the values.
    """
    done = _map_stand_ins_and_buffers_to_values({u: storage.make_param_like(slot, u) for slot, u in enumerate(inputs)})
    captured = _list_captured_buffers_and_tracked_nodes(values, nodes_sources_first, done)
    done |= {u: storage.make_param_like(len(inputs) + k, u) for k, u in enumerate(captured)}
    _rebuild_nodes_in_order(nodes_sources_first, done)
    return ClosedValues([done[v] for v in values], captured)


def _list_captured_buffers_and_tracked_nodes(
    values: list[UOp], nodes_sources_first: list[UOp], inputs: dict[UOp, UOp]
) -> list[UOp]:
    """Return the nodes that are arguments beside the inputs: Buffers, and values by which the caller may differentiate."""
    if not history.may_differentiate():
        return [u for u in nodes_sources_first if u.op is Op.BUFFER and u not in inputs]
    tracked = history.collect_tracked_nodes()
    captured, seen, pending = set[UOp](), set(inputs), list(values)
    while pending:
        u = pending.pop()
        if u not in seen:
            seen.add(u)
            if u.op is Op.BUFFER or u in tracked or history.is_stand_in(u):
                captured.add(u)
            else:
                pending.extend(scope_sources(u))
    return [u for u in nodes_sources_first if u in captured]


def _express_checks_in_call_arguments(body_nodes: list[UOp], arguments_by_stand_in: dict[UOp, UOp]) -> tuple[IndexCheck, ...]:
    """Return the IndexChecks of the body, with the arguments in place of their stand-ins."""
    checks = [c for u in body_nodes for c in checks_of(u)]
    if not checks:
        return ()
    done = _map_stand_ins_and_buffers_to_values(arguments_by_stand_in)
    for c in checks:
        try:
            _rebuild_recursively(c.node, done)
        except RecursionError:  # too deep for Python's stack
            _rebuild_nodes_in_order(scope_nodes(c.node), done)
    return tuple(dict.fromkeys(c._replace(node=done[c.node]) for c in checks))


def _map_stand_ins_and_buffers_to_values(values_by_stand_in: dict[UOp, UOp]) -> dict[UOp, UOp]:
    """Map each stand-in, and the Buffer that it is a Reshape of, to its value."""
    done = dict(values_by_stand_in)
    for u, value in values_by_stand_in.items():
        if u.op is Op.RESHAPE:
            done[u.operand] = storage.reshape_node(value, u.operand.shape)
    return done


def _rebuild_recursively(u: UOp, replacements: dict[UOp, UOp]) -> None:
    """Rebuild `u` and its operands recursively: faster than `_rebuild_nodes_in_order` for the few nodes of an index."""
    if u not in replacements:
        for s in scope_sources(u):
            _rebuild_recursively(s, replacements)
        replacements[u] = _rebuild_on_replaced_operands(u, replacements)


def _rebuild_nodes_in_order(nodes_sources_first: list[UOp], replacements: dict[UOp, UOp]) -> None:
    """Rebuild the nodes of a scope, sources first, on the replacements that `replacements` has."""
    for u in nodes_sources_first:
        if u not in replacements:
            replacements[u] = _rebuild_on_replaced_operands(u, replacements)


def _rebuild_on_replaced_operands(u: UOp, replacements: dict[UOp, UOp]) -> UOp:
    """Return `u` on the replacements of its operands; a body, which is no operand, stays."""
    free = scope_sources(u)
    src = (*u.src[: len(u.src) - len(free)], *[replacements[s] for s in free])
    return u if src == u.src else UOp(u.op, src, u.arg, u.tag)
