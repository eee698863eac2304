"""Gradients against central differences, in float64, by the interpreter.

The difference quotient of the sum <g, f> in a drawn direction is computed with two steps. Their difference bounds the truncation
error (it falls with the square of the step), and the size of the values bounds the rounding error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from uops.backends.testing.gradients import (
    list_float_params,
    list_float_values,
    make_cotangent_params,
)
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir.node import UOp
from uops.spec.rows.gradients.reverse import add_cotangents_by_node, differentiate

#: The smaller step: inputs that are small multiples of 1/4 stay exact, in float32 too.
STEP = 2.0**-10
#: What weights and directions are drawn from. A derivative of weight 0 is never seen to be wrong.
_HALVES = (-2.0, -1.5, -1.0, -0.5, 0.5, 1.0, 1.5, 2.0)
#: Roundings of float64 that one summand of the weighted sum may have undergone.
_ROUNDINGS = 256


def find_gradient_far_from_differences(graph: UOp, inputs: Mapping[str, Any], seed: int) -> str | None:
    """Return how the gradient of a graph differs from central differences by more than their error, or None.

    The graph must be smooth at and near `inputs`, and evaluated in float64.
    """
    rng = np.random.default_rng(seed)
    values, params = list_float_values(graph), list_float_params(graph)
    cotangents = make_cotangent_params(graph, values)
    weights = {f"p{g.arg.slot}": rng.choice(_HALVES, g.shape) for g in cotangents}
    directions = {f"p{u.arg.slot}": rng.choice(_HALVES, u.shape) for u in params}

    def weighted_sum(step: float) -> tuple[float, float]:
        """Return the sum <g, f> at a step in the direction, and the sum of the absolute values of its terms."""
        moved = {k: v + (step * directions[k]).astype(v.dtype) if k in directions else v for k, v in inputs.items()}
        results = run(b.tuple_(*values), moved).values
        terms = [np.asarray(r, np.float64) * weights[f"p{g.arg.slot}"] for r, g in zip(results, cotangents, strict=True)]
        return sum(float(t.sum()) for t in terms), sum(float(np.abs(t).sum()) for t in terms)

    def quotient(step: float) -> float:
        return (weighted_sum(step)[0] - weighted_sum(-step)[0]) / (2 * step)

    found = differentiate(add_cotangents_by_node(zip(values, cotangents, strict=True)), set(params))
    gradients = run(b.tuple_(*found.values()), {**inputs, **weights}).values if found else ()
    got = sum(
        float((np.asarray(r, np.float64) * directions[f"p{u.arg.slot}"]).sum()) for u, r in zip(found, gradients, strict=True)
    )
    near, far = quotient(STEP), quotient(2 * STEP)
    bound = 2 * abs(near - far) + _ROUNDINGS * float(np.finfo(np.float64).eps) * weighted_sum(0.0)[1] / STEP
    if abs(got - near) <= bound:
        return None
    return f"the derivative in a direction is {near} within {bound:.1e} by differences, {got} by the gradient rules (seed {seed})"
