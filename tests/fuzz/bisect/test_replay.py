"""Elements differ as values of the specification do: one NaN equals another, and the zeros have a sign."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from uops.fuzz.bisect.replay import mask_differing_elements

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
