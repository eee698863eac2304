"""Cases of the front end: the gradient of each op with a rule. Spec: the gradient column; R183 to R187 (gradients).

A program around the op is differentiated. Its gradient must agree with difference quotients in float64, and with exact forward mode
where the program is rational. Where calculus leaves a choice, and where a rule may round or overflow, it must be the stated one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from uops.backends.arrays import STORAGE
from uops.backends.conformance.gradients.differences import find_gradient_far_from_differences
from uops.backends.conformance.gradients.duals import find_wrong_gradient_at_first_comparable_draw
from uops.backends.conformance.gradients.programs import EDGES, PROGRAMS
from uops.backends.conformance.subjects.model import SubjectCase, make_check_case
from uops.backends.testing.gradients import list_float_params
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import Op
from uops.spec.rows.gradients.reverse import differentiate
from uops.spec.rows.rows import ROWS

#: Directions and cotangents that are drawn for each program.
_DRAWS = 3


def _compare_with_differences(op: Op) -> Iterator[str | None]:
    graph, inputs, _ = PROGRAMS[op]
    yield from (find_gradient_far_from_differences(graph, inputs, seed) for seed in range(_DRAWS))


def _compare_with_duals(op: Op) -> Iterator[str | None]:
    graph, inputs, _ = PROGRAMS[op]
    yield from (find_wrong_gradient_at_first_comparable_draw(graph, inputs, seed) for seed in range(_DRAWS))


def _compare_at_edges(op: Op) -> Iterator[str | None]:
    for graph, x, expected in EDGES[op]:
        (p,) = list_float_params(graph)
        ones = b.expand(b.reshape(b.const(1, graph.dtype), (1,) * len(graph.shape)), graph.shape) if graph.shape else None
        found = differentiate({graph: b.const(1, graph.dtype) if ones is None else ones}, {p})
        got = np.asarray(run(found[p], {"p0": np.asarray(x, STORAGE[p.dtype])}).values[0], np.float64)
        is_right = np.isclose(got, np.asarray(expected, np.float64), rtol=1e-12, atol=0.0, equal_nan=True)
        yield None if is_right.all() else f"the gradient at {x} is {got.tolist()}, expected {list(expected)}"


def generate_float64_gradient_cases_per_op() -> Iterator[SubjectCase]:
    """Yield the cases of each op with a gradient rule."""
    for op, program in PROGRAMS.items():
        claim = f"GRADIENT.{ROWS[op].name.upper()}.C1"
        yield make_check_case(claim, "differences", dt.float64.name, functools.partial(_compare_with_differences, op))
        if op in EDGES:
            yield make_check_case(claim, "edges", dt.float64.name, functools.partial(_compare_at_edges, op))
        if program.is_rational:
            yield make_check_case(claim, "duals", dt.float64.name, functools.partial(_compare_with_duals, op))
