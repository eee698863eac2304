"""`@function`: a Python function on Tensors as one Function node, by tracing. Spec: The @function Decorator; R64.

1. The inputs are the Tensors among the arguments, in lists, tuples and dicts too, each node once.
2. The function runs on stand-ins, lazily: nothing may be realized.
3. In the nodes of its result each stand-in becomes Param k, and each Buffer that is left, which a Tensor captured from outside has,
   becomes a further Param.
4. The results are packed in a Tuple, of which `Function(Tuple(results), inputs, captured)` is made.
5. Each Tensor returned is a GetTuple; the containers of the result are kept.

A function may call others: their bodies own their Params. IndexChecks in a body are attached to the Function, of what the
indices are with these arguments (`uops.compiler.tensor.checks`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from uops.compiler.tensor import storage
from uops.compiler.tensor.checks import UNCHECKED, IndexCheck, attach_hoisted, checks_of
from uops.compiler.tensor.realize import tracing
from uops.compiler.tensor.tensor import Tensor
from uops.spec.errors import SpecTypeError, SpecValueError
from uops.spec.ir import build as B
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import operands, scope_nodes

P = ParamSpec("P")
R = TypeVar("R")


def function(f: Callable[P, R]) -> Callable[P, R]:
    """Capture each call of `f` as a Function node (see the module). Raises SpecError where `f` realizes or assigns to an input, or
    returns no Tensor."""

    @functools.wraps(f)
    def captured(*args: P.args, **kwargs: P.kwargs) -> R:
        return _trace(f, args, kwargs)

    return captured


def _trace(f: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
    name = getattr(f, "__name__", "function")
    inputs: dict[UOp, Tensor] = {}
    args, kwargs = _map((args, kwargs), lambda t: inputs.setdefault(t.uop, Tensor.of(storage.stand_in(t.uop))))
    before = {u: t.uop for u, t in inputs.items()}
    with tracing(name):
        result = f(*args, **kwargs)
    if any(t.uop is not before[u] for u, t in inputs.items()):
        raise SpecValueError(f"@function {name} assigns to an input, which a Function cannot do (R63, R64)")
    values = list(dict.fromkeys(t.uop for t in _tensors(result)))
    if not values:
        raise SpecTypeError(f"@function {name} returns no Tensor")
    order = list(dict.fromkeys(u for v in values for u in scope_nodes(v)))
    bodies, captured = _closed(values, order, [before[u] for u in inputs])
    node = B.function(B.tuple_(*bodies), *inputs, *captured)
    if any(u.tag == UNCHECKED for u in order):
        node = node.replace(tag=UNCHECKED)
    node = attach_hoisted(node, _hoist_checks(order, {before[u]: u for u in inputs}))
    place = {v: k for k, v in enumerate(values)}
    out: R = _map(result, lambda t: Tensor.of(B.get(node, place[t.uop])))
    return out


def _map(value: Any, f: Callable[[Tensor], Tensor]) -> Any:
    """`value` with `f` applied to its Tensors; containers are rebuilt, everything else is kept."""
    if isinstance(value, Tensor):
        return f(value)
    if isinstance(value, dict):
        return {k: _map(v, f) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a NamedTuple
        return type(value)(*(_map(v, f) for v in value))
    return type(value)(_map(v, f) for v in value) if type(value) in (list, tuple) else value


def _tensors(value: Any) -> list[Tensor]:
    """The Tensors of a value, in order."""
    found: list[Tensor] = []

    def note(t: Tensor) -> Tensor:
        found.append(t)
        return t

    _map(value, note)
    return found


def _closed(values: list[UOp], order: list[UOp], inputs: list[UOp]) -> tuple[list[UOp], list[UOp]]:
    """The values in terms of Params, and the captured Buffers, which are arguments after the inputs. `order` has their nodes."""
    done = _map_stand_ins({u: B.param(slot, u.shape, u.dtype) for slot, u in enumerate(inputs)})
    captured = [u for u in order if u.op is Op.BUFFER and u not in done]
    done |= {u: B.param(len(inputs) + k, u.shape, u.dtype) for k, u in enumerate(captured)}
    _rebuild(order, done)
    return [done[v] for v in values], captured


def _hoist_checks(order: list[UOp], arguments: dict[UOp, UOp]) -> tuple[IndexCheck, ...]:
    """The IndexChecks in the body, with the arguments in place of their stand-ins: they hold of each call."""
    checks = [c for u in order for c in checks_of(u)]
    if not checks:
        return ()
    done = _map_stand_ins(arguments)
    for c in checks:
        try:
            _rebuild_below(c.node, done)
        except RecursionError:  # too deep for Python's stack
            _rebuild(scope_nodes(c.node), done)
    return tuple(dict.fromkeys(c._replace(node=done[c.node]) for c in checks))


def _map_stand_ins(values: dict[UOp, UOp]) -> dict[UOp, UOp]:
    """Map each stand-in, and the memory that it is a Reshape of, to its value."""
    done = dict(values)
    for u, value in values.items():
        if u.op is Op.RESHAPE:
            done[u.src[0]] = storage.shaped(value, u.src[0].shape)
    return done


def _rebuild_below(u: UOp, done: dict[UOp, UOp]) -> None:
    """Do for `u` and what is below it what `_rebuild` does for a scope; faster for the few nodes of an index."""
    if u not in done:
        for s in operands(u):
            _rebuild_below(s, done)
        done[u] = _rebuild_node(u, done)


def _rebuild(order: list[UOp], done: dict[UOp, UOp]) -> None:
    """Enter the nodes of a scope, sources first, on what `done` has in place of their sources."""
    for u in order:
        if u not in done:
            done[u] = _rebuild_node(u, done)


def _rebuild_node(u: UOp, done: dict[UOp, UOp]) -> UOp:
    """`u` on what `done` has in place of its operands; a body, which is no operand, stays."""
    free = operands(u)
    src = (*u.src[: len(u.src) - len(free)], *[done[s] for s in free])
    return u if src == u.src else UOp(u.op, src, u.arg, u.tag)
