"""Cases of the front end: the gradient of each op with a rule. Spec: the gradient column; R183 to R187 (gradients).

A program around the op is differentiated. Its gradient must agree with difference quotients in float64, and with exact forward mode
where the program is rational.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from uops.backends.conformance.gradients.differences import find_gradient_far_from_differences
from uops.backends.conformance.gradients.duals import find_wrong_gradient_at_comparable_point
from uops.backends.conformance.gradients.programs import PROGRAMS
from uops.backends.conformance.subjects.model import SubjectCase, make_check_case
from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import Op
from uops.spec.rows.rows import ROWS

#: Directions and cotangents that are drawn for each program.
_DRAWS = 3


def _compare_with_differences(op: Op) -> Iterator[str | None]:
    graph, inputs, _ = PROGRAMS[op]
    yield from (find_gradient_far_from_differences(graph, inputs, seed) for seed in range(_DRAWS))


def _compare_with_duals(op: Op) -> Iterator[str | None]:
    graph, inputs, _ = PROGRAMS[op]
    yield from (find_wrong_gradient_at_comparable_point(graph, inputs, seed) for seed in range(_DRAWS))


def generate_gradient_cases() -> Iterator[SubjectCase]:
    """Yield the cases of each op with a gradient rule."""
    for op, program in PROGRAMS.items():
        claim = f"GRADIENT.{ROWS[op].name.upper()}.C1"
        yield make_check_case(claim, "differences", dt.float64.name, functools.partial(_compare_with_differences, op))
        if program.is_rational:
            yield make_check_case(claim, "duals", dt.float64.name, functools.partial(_compare_with_duals, op))
