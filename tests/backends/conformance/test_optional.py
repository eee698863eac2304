"""The suite of the optional rows: apart from conformance, complete, and failed by a function that is wrong."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from uops.backends.conformance.cases import generate_cases, generate_optional_cases
from uops.backends.conformance.causes.find import judge_and_explain
from uops.backends.conformance.judge import Expectation
from uops.backends.conformance.model import ConformanceLevel, ConformanceTier
from uops.backends.subjects.numpy_adapter import Numpy
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.result import Result
from uops.spec.rows.named.base import RowSubject
from uops.spec.rows.optional import OPTIONAL
from uops.spec.rows.rows import rows_of_subject

CASES = list(generate_optional_cases(ConformanceTier.SMOKE))


def test_each_row_has_cases_of_its_own_and_none_in_the_suite() -> None:
    rows = {r.id for r in rows_of_subject(RowSubject.OPTIONAL)}
    assert rows == {c.row for c in CASES} == {f.row for f in OPTIONAL.values()}
    assert not any(c.row in rows for c in generate_cases(ConformanceTier.SMOKE, "Optional/*"))
    assert {(c.row, c.dtype) for c in generate_optional_cases(ConformanceTier.FULL)} == {
        (f.row, d) for f in OPTIONAL.values() for d in f.dtypes
    }


class Wrong(Numpy):
    """NumPy with one function that is wrong for few operands."""

    wrong: ClassVar[dict[str, Callable[..., Any]]] = {
        "floor": lambda x: np.floor(x * (1 / 3) * 3 if x.dtype == np.float64 else x),
        "ceil": lambda x: np.where(x == 0, np.abs(x), np.ceil(x)).astype(x.dtype),
        "round_to_even": lambda x: np.floor(x + x.dtype.type(0.5)),
        "fmod": lambda x, y: x - y * np.trunc(x / y),
        "floor_mod": np.fmod,
        "floor_divide": lambda x, y: np.trunc(x / y),
        "trunc_remainder": np.remainder,
        "sort": lambda x: np.sort(x)[::-1][::-1] if not np.isnan(x).any() else x,
        "argsort": lambda x: np.argsort(x[::-1], kind="stable"),
    }

    def __init__(self, name: str) -> None:
        super().__init__()
        self.optional_functions = {**self.optional_functions, name: self.wrong[name]}


def find_wrong_rows(backend: Numpy) -> set[str]:
    """Return the rows of which some element is wrong."""
    rows = set()
    for case in CASES:
        if backend.capabilities().missing(case.row, case.dtype) is None and case.dtype.name != "bfloat16":
            expected = Expectation.of_program(case.graph, case.inputs)
            got = np.asarray(backend.run(case.graph, case.inputs).values[0])
            if not expected.strict[0].contains(got).all():
                rows.add(case.row)
    return rows


def test_numpy_is_right() -> None:
    assert find_wrong_rows(Numpy()) == set()


@pytest.mark.parametrize("name", Wrong.wrong)
def test_a_wrong_function_fails_its_row_alone(name: str) -> None:
    assert find_wrong_rows(Wrong(name)) == {OPTIONAL[name].row}


def test_a_library_without_a_function_declares_it() -> None:
    missing = {m.row for m in Numpy().capabilities().unsupported}
    assert {"Optional/trunc_divide", "Optional/round_away"} == {row for row in missing if row.startswith("Optional/")}


def test_causes_do_not_look_into_bodies_of_optional_rows() -> None:
    """A library that has the function evaluates none of their ops. Here the body shifts by words, and the quotient is infinite."""
    graph = OPTIONAL["floor_divide"].build(b.param(0, (2,), dt.float32), b.param(1, (2,), dt.float32))
    inputs = {"p0": np.array([np.inf, 7], np.float32), "p1": np.array([1, 2], np.float32)}
    expected = Expectation.of_program(graph, inputs)
    (verdict,) = judge_and_explain(expected, Result((np.array([np.inf, 3], np.float32),), {}), ConformanceLevel.STRICT)
    assert verdict.failed == 1
    assert list(verdict.causes) == ["nan-lost"]
