"""Cases of the Reduce row: a backend that takes one operand, or one row, for another fails every cell that asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops.backends.conformance.cases.reduce import generate_reduce_cases
from uops.backends.conformance.judge import Expectation, interpret, judge
from uops.backends.conformance.model import ConformanceCase, ConformanceLevel, ConformanceTier
from uops.spec.result import Result

PAIRED = ("columns", "all", "outer-axes")
CASES = list(generate_reduce_cases(ConformanceTier.SMOKE))
PAIRS = [c for c in CASES if c.name.partition("-")[2] in PAIRED]
PRODUCTS = [c for c in CASES if c.name in ("add-product", "add-product-wide")]


def count_failed(case: ConformanceCase, value: Any, level: ConformanceLevel) -> int:
    """Return the number of elements of a value that the case does not accept."""
    return sum(v.failed for v in judge(Expectation(case), Result((value,), {}), level))


@pytest.mark.parametrize("level", ConformanceLevel, ids=lambda x: x.value)
@pytest.mark.parametrize("case", PAIRS, ids=lambda c: c.id)
def test_no_element_is_right_about_both_operands(case: ConformanceCase, level: ConformanceLevel) -> None:
    (right,) = interpret(case.graph, case.inputs).values
    assert count_failed(case, right, level) == 0
    assert count_failed(case, np.ascontiguousarray(right[::-1]), level) == right.size


def wrap_index(key: str, axis: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a change of inputs after which the last index of an axis reads what another one does."""

    def change(inputs: dict[str, Any]) -> dict[str, Any]:
        x = inputs[key]
        half = -(-x.shape[axis] // 2)
        return {**inputs, key: np.take(x, np.arange(x.shape[axis]) % half, axis)}

    return change


@pytest.mark.parametrize("case", PRODUCTS, ids=lambda c: c.id)
def test_the_rows_and_columns_of_a_product_are_distinct(case: ConformanceCase) -> None:
    for matrix in (x.squeeze().astype(np.float64) for x in case.inputs.values()):
        assert all(np.unique(matrix, axis=k).shape == matrix.shape for k in (0, 1))


@pytest.mark.parametrize(("key", "axis"), [("p0", 1), ("p1", 1), ("p0", 0), ("p1", 2)])
@pytest.mark.parametrize("case", PRODUCTS, ids=lambda c: c.id)
def test_a_product_that_wraps_a_loop_fails(case: ConformanceCase, key: str, axis: int) -> None:
    (wrong,) = interpret(case.graph, wrap_index(key, axis)(case.inputs)).values
    assert count_failed(case, wrong, ConformanceLevel.STRICT)
