"""Gradients against exact forward mode: <g, J v> = <J' g, v> for a drawn cotangent g and direction v, over fractions.

J v is what `uops.interp.duals` gives for the graph, J' g the value of the graph that the gradient rules make. The two texts share
nothing. Floats of the inputs are replaced by small multiples of 1/4, of which ties and zeros are frequent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from uops.backends.testing.gradients import (
    list_float_params,
    list_float_values,
    make_cotangent_params,
)
from uops.compiler.runtime.arguments import input_key
from uops.compiler.tensor.methods.own_gradients import MOD
from uops.interp.duals.elementwise import NotRational
from uops.interp.duals.evaluate import evaluate_duals
from uops.spec.errors import SpecValueError, Trap
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import MEMORY_ROOTS, Op
from uops.spec.ir.scope import scope_nodes
from uops.spec.rows.gradients.reverse import add_cotangents_by_node, differentiate

#: Most points that are drawn until one is comparable.
_MOST_POINTS = 50
#: Most elements of a value of a gradient, each of which is a fraction.
_MOST_ELEMENTS = 1 << 22
#: What weights and directions are drawn from. A derivative of weight 0 is never seen to be wrong.
_NONZERO = (-5, -4, -3, -2, -1, 1, 2, 3, 4, 5)


class NotComparable(Exception):
    """A graph whose gradient has no exact value, or that has no gradient."""


def find_wrong_gradient_at_random_point(graph: UOp, inputs: Mapping[str, Any], seed: int) -> str | None:
    """Return what is wrong with the gradients of a TENSOR graph with respect to its Params of floats, or None.

    A Param on which no value depends must have derivative 0. Raises NotComparable with the reason.
    """
    values, params = list_float_values(graph), list_float_params(graph)
    if not values or not params:
        raise NotComparable("no float depends on a float")
    if not all(isinstance(n, int) for u in (*values, *params) for n in u.shape):
        raise NotComparable("symbolic extents")
    rng = np.random.default_rng(seed)
    rational = _replace_floats(graph, inputs, rng)
    cotangents = make_cotangent_params(graph, values)
    weights = {f"p{g.arg.slot}": rng.choice(_NONZERO, g.shape) / 2.0 for g in cotangents}
    directions = {f"p{u.arg.slot}": _draw_nonzero_fractions(rng, u.shape) for u in params}
    try:
        _require_no_jumping_remainder(graph, rational)
        found = differentiate(add_cotangents_by_node(zip(values, cotangents, strict=True)), set(params))
        _require_values_that_fit_memory(found.values())
        forward = evaluate_duals(b.tuple_(*values), rational, directions)
        backward = evaluate_duals(b.tuple_(*found.values()), rational | weights) if found else ()
    except (NotRational, Trap) as e:
        raise NotComparable(str(e)) from e
    except SpecValueError as e:
        raise NotComparable(f"no gradient: {e}") from e
    by_forward = sum((_dot(weights[f"p{g.arg.slot}"], d.tangent) for g, d in zip(cotangents, forward, strict=True)), Fraction(0))
    by_reverse = sum((_dot(directions[f"p{u.arg.slot}"], d.value) for u, d in zip(found, backward, strict=True)), Fraction(0))
    if by_forward == by_reverse:
        return None
    return f"the derivative in a direction is {by_forward} by forward mode, {by_reverse} by the gradient rules (seed {seed})"


def find_wrong_gradient_at_first_comparable_draw(graph: UOp, inputs: Mapping[str, Any], seed: int) -> str | None:
    """Judge as `find_wrong_gradient_at_random_point` does, at the first point drawn at which nothing is divided by zero.

    Raises NotComparable.
    """
    for k in range(_MOST_POINTS):
        try:
            return find_wrong_gradient_at_random_point(graph, inputs, _MOST_POINTS * seed + k)
        except NotComparable as e:
            reason = e
    raise reason


def _require_no_jumping_remainder(graph: UOp, inputs: Mapping[str, Any]) -> None:
    """Raise NotComparable if a remainder of floats is 0 at this point, or lies in the body of another Function.

    There the remainder jumps. Its steps select a zero, whose derivative is 0, and its own gradient rule has derivative 1.
    """
    top = set(scope_nodes(graph))
    calls = [u for u in toposort(graph) if u.op is Op.FUNCTION and u.arg is not None and u.arg.grad_tag == MOD]
    if any(u not in top for u in calls):
        raise NotComparable("a remainder of floats in the body of a Function")
    remainders = [b.get(u, 0) for u in calls]
    if remainders and any((r.value == 0).any() for r in evaluate_duals(b.tuple_(*remainders), inputs)):
        raise NotComparable("a remainder of floats jumps at a multiple of its divisor")


def _require_values_that_fit_memory(roots: Iterable[UOp]) -> None:
    """Raise NotComparable if a value of a gradient has more than _MOST_ELEMENTS elements, without those of symbolic extents."""
    shapes = (u.shape for u in toposort(*roots) if u.dtype is not dt.void)
    size = max((math.prod(n for n in shape if isinstance(n, int)) for shape in shapes), default=0)
    if size > _MOST_ELEMENTS:
        raise NotComparable(f"a value of {size:,} fractions in the gradient")


def _replace_floats(graph: UOp, inputs: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Return the inputs with small multiples of 1/4 in place of floats."""
    is_float = {input_key(u): u.dtype.is_float for u in scope_nodes(graph) if u.op in MEMORY_ROOTS}
    return {k: rng.integers(-12, 13, np.shape(v)) / 4.0 if is_float.get(k) else v for k, v in inputs.items()}


def _draw_nonzero_fractions(rng: np.random.Generator, shape: tuple[Any, ...]) -> Any:
    out = np.empty(shape, object)
    out.reshape(-1)[:] = [Fraction(int(x)) for x in rng.choice(_NONZERO, out.size)]
    return out


def _dot(weights: Any, elements: Any) -> Fraction:
    return sum((Fraction(w) * x for w, x in zip(np.ravel(weights), np.ravel(elements), strict=True)), Fraction(0))
