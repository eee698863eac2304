"""Derivatives of Python functions of Tensors: `grad`, `value_and_grad` and `vjp`.

The function is called once, with stand-ins for its arguments: a Tensor that it captures is a constant, even if it is the same
value as an argument. Arguments and results may be containers (lists, tuples, NamedTuples, dicts, dataclasses) of Tensors and other
values. Tensors that are no floats, and all other values, are constants: a gradient has None in their place. All results are lazy.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from uops.compiler.tensor.checks import substitute_and_transfer_checks
from uops.compiler.tensor.faults import format_for_error
from uops.compiler.tensor.history import differentiate_function
from uops.compiler.tensor.methods.gradients import find_cotangents
from uops.compiler.tensor.tensor import Tensor
from uops.compiler.tensor.trace import collect_tensors_with_repeats, map_tensors
from uops.spec.errors import SpecTypeError, SpecValueError
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Tags of stand-ins: a nested function that is differentiated must not take another one's for its own.
_numbers = itertools.count(1)


def grad(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return the function that computes the gradient of `f` with respect to the arguments `argnums`.

    `f` returns a Tensor of floats with one element; with `has_aux`, that and any other value, which the returned function gives
    beside the gradient. The gradient has the containers of the argument; of several arguments it is a tuple.
    """
    both = _differentiate("grad", f, argnums, has_aux)

    @functools.wraps(f)
    def compute_gradient(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return compute_gradient


def value_and_grad(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return the function that computes the value of `f` and its gradient, as a pair. See `grad`."""
    return _differentiate("value_and_grad", f, argnums, has_aux)


def _differentiate(name: str, f: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool) -> Callable[..., Any]:
    """Return the function that computes the value of `f` and its gradient; errors say `name`."""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    if not callable(f) or not all(isinstance(k, int) for k in numbers):
        got = format_for_error(argnums if callable(f) else f)
        raise SpecTypeError(f"uops.{name}: expected a function and argument numbers, got {got}")

    @functools.wraps(f)
    def compute_value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        outside = [k for k in numbers if not -len(args) <= k < len(args)]
        if outside:
            raise SpecValueError(f"uops.{name}: expected argnums of the {len(args)} positional arguments, got {outside[0]}")
        positions = [k % len(args) for k in numbers]
        if len(set(positions)) < len(positions):
            raise SpecValueError(f"uops.{name}: expected each argument once in argnums, got {format_for_error(argnums)}")

        def call(*primals: Any) -> Any:
            given = list(args)
            for k, p in zip(positions, primals):
                given[k] = p
            return f(*given, **kwargs)

        value, aux, pull_back = _trace(name, call, [args[k] for k in positions], has_aux)
        if not isinstance(value, Tensor) or value.numel() != 1:
            got = f"shape {value.shape}" if isinstance(value, Tensor) else format_for_error(value)
            raise SpecTypeError(f"uops.{name}: expected a function that returns one element, got {got}")
        gradients = pull_back(Tensor.ones(value.shape, dtype=value.dtype))
        result = gradients[0] if isinstance(argnums, int) else gradients
        return ((value, aux), result) if has_aux else (value, result)

    return compute_value_and_gradient


def vjp(f: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return the value of `f(*primals)` and the function that maps a cotangent of the value to a tuple of those of `primals`.

    A cotangent has the containers, shapes and dtypes of the value. With `has_aux`, `f` returns a pair; its second part is returned
    as a third result.
    """
    value, aux, pull_back = _trace("vjp", f, primals, has_aux)
    return (value, pull_back, aux) if has_aux else (value, pull_back)


def _trace(
    name: str, f: Callable[..., Any], primals: Sequence[Any], has_aux: bool
) -> tuple[Any, Any, Callable[[Any], tuple[Any, ...]]]:
    """Call `f` with stand-ins; return its value, the rest of what it returns, and the function from cotangents to gradients."""
    stand_ins: list[tuple[UOp, UOp]] = []

    def make_and_record_stand_in_if_float(t: Tensor) -> Tensor:
        if not t.dtype.is_float:
            return t
        node = UOp(Op.DETACH, (t.uop,), None, next(_numbers))
        stand_ins.append((node, t.uop))
        return Tensor.of(node)

    given = [map_tensors(p, make_and_record_stand_in_if_float) for p in primals]
    if not stand_ins:
        wrong = ", ".join(str(t.dtype) for t in collect_tensors_with_repeats(primals)) or format_for_error(
            primals[0] if primals else None
        )
        raise SpecTypeError(f"uops.{name}: expected an argument with Tensors of floats, got {wrong}")
    with differentiate_function():
        result = f(*given)
    if has_aux and not (isinstance(result, tuple) and len(result) == 2):
        raise SpecTypeError(f"uops.{name}: expected a function that returns a pair, got {format_for_error(result)}")
    value, aux = result if has_aux else (result, None)
    outputs = collect_tensors_with_repeats(value)
    not_float = next((t for t in outputs if not t.dtype.is_float), None)
    if not outputs or not_float is not None:
        got = "no Tensor" if not_float is None else f"one of {not_float.dtype}, which has no derivative (R78)"
        raise SpecTypeError(f"uops.{name}: expected a function that returns Tensors of floats, got {got}")

    def replace_stand_ins(u: UOp) -> UOp:
        return substitute_and_transfer_checks(u, dict(stand_ins))

    def pull_back(cotangent: Any) -> tuple[Any, ...]:
        given_cotangents = collect_tensors_with_repeats(cotangent)
        if [(t.shape, t.dtype) for t in given_cotangents] != [(t.shape, t.dtype) for t in outputs]:
            wanted = ", ".join(f"{t.dtype} {t.shape}" for t in outputs)
            got = ", ".join(f"{t.dtype} {t.shape}" for t in given_cotangents)
            raise SpecTypeError(f"uops.{name}: expected cotangents {wanted}, got {got or 'no Tensor'}")
        pairs = [(t.uop, g.uop) for t, g in zip(outputs, given_cotangents)]
        found = find_cotangents(pairs, [node for node, _ in stand_ins])
        gradients = iter(
            Tensor.of(Tensor.zeros(u.shape, dtype=u.dtype).uop if g is None else replace_stand_ins(g))
            for g, (_, u) in zip(found, stand_ins)
        )
        return tuple(map_tensors(p, lambda t: next(gradients) if t.dtype.is_float else None, lambda v: None) for p in primals)

    value = map_tensors(value, lambda t: Tensor.of(replace_stand_ins(t.uop)))
    return value, map_tensors(aux, lambda t: Tensor.of(replace_stand_ins(t.uop))), pull_back
