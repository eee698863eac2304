"""Elements differ as values of the specification do: one NaN equals another, zeros have a sign. Overflow decides nothing."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from uops.compiler.prove.counterexample import RuleCounterexample
from uops.compiler.prove.typings import enumerate_rule_typings
from uops.compiler.rewrite.rules.fast_math import FAST_MATH
from uops.fuzz.bisect.replay import ReplayOutcome, mask_differing_elements, replay_counterexample

FLOATS = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("left", "right", "differs"),
    [
        (np.nan, np.nan, False),
        (np.nan, 1, True),
        (1, np.nan, True),
        (np.nan, np.inf, True),
        (0.0, -0.0, True),
        (-0.0, 0.0, True),
        (-0.0, -0.0, False),
        (np.inf, np.inf, False),
        (np.inf, -np.inf, True),
        (1, 1, False),
        (1, 1.25, True),
    ],
)
def test_floats(dtype: Any, left: float, right: float, differs: bool) -> None:
    result = mask_differing_elements(np.array([left, 0], dtype), np.array([right, 0], dtype))
    assert result.tolist() == [differs, False]


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.bool_, object])
def test_integers_and_bools(dtype: Any) -> None:
    result = mask_differing_elements(np.array([0, 1, 1], dtype), np.array([0, 1, 0], dtype))
    assert np.asarray(result).tolist() == [False, False, True]


def test_integers_beyond_float64() -> None:
    big = np.uint64(2**63)
    assert mask_differing_elements(np.array([big]), np.array([big + np.uint64(1)])).tolist() == [True]


def replay_over_the_reals(name: str, **values: int) -> ReplayOutcome:
    """Replay a rule over the real numbers on values of its variables."""
    rule = next(r for r in FAST_MATH if r.name == name)
    typing = next(iter(enumerate_rule_typings(rule)))
    return replay_counterexample(RuleCounterexample(rule, typing, {k: Fraction(v) for k, v in values.items()}))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("real-exp2-product", {"x": 2000, "y": 2000}),
        ("real-exp2-product", {"x": -2000, "y": 3000}),
        ("real-exp2-recip", {"x": -2000}),
        ("real-log2-exp2", {"x": 5000}),
    ],
)
def test_an_overflow_of_float64_confirms_nothing(name: str, values: dict[str, int]) -> None:
    outcome = replay_over_the_reals(name, **values)
    assert not outcome.confirmed and outcome.words.startswith("not confirmed: float64 overflows")
