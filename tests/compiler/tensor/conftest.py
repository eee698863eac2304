"""What the tests of the front end share: every Tensor is judged twice, compiled and interpreted, against NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes  # noqa: F401 - registers the narrow floats with NumPy
import numpy as np
import pytest

from uops import Dialect, Tensor, verify
from uops.compiler.runtime.program import numpy_dtype
from uops.compiler.tensor import capture
from uops.interp import run

Agree = Callable[..., None]
Data = Callable[..., Any]


def eps(dtype: Any) -> float:
    """The unit of the last place at 1."""
    return float(2.0**-dtype.man_bits)


def judge(got: Any, want: Any, t: Tensor, units: float, scale: Any) -> None:
    """Equal where exact; floats within `units` units of the last place of the larger of |want| and `scale`."""
    assert got.dtype == numpy_dtype(t.dtype) and got.shape == t.shape == np.shape(want)
    if not t.dtype.is_float or units == 0:
        np.testing.assert_array_equal(got, want)
        return
    g, w = np.asarray(got, np.float64), np.asarray(want, np.float64)
    np.testing.assert_array_equal(np.isnan(g), np.isnan(w))
    with np.errstate(invalid="ignore"):
        off = np.where((g == w) | np.isnan(w), 0, np.abs(g - w))
    allowed = units * eps(t.dtype) * np.maximum(np.where(np.isfinite(w), np.abs(w), 0), scale)
    assert np.all(off <= allowed), (
        f"off by {off.max()} where {allowed[np.unravel_index(off.argmax(), off.shape)]} is allowed\n{g}\n{w}"
    )


@pytest.fixture(scope="session")
def agree() -> Agree:
    """`agree(tensors, wanted, units=4, scale=0)`: the values on the llvm backend and in the interpreter are NumPy's."""

    def compare(tensors: Sequence[Tensor] | Tensor, wanted: Any, units: float = 4, scale: Any = 0.0) -> None:
        several = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        wants = [wanted] if isinstance(tensors, Tensor) else list(wanted)
        captured = capture(*several)
        verify(captured.graph, Dialect.TENSOR)
        interpreted = run(captured.graph, captured.inputs).values
        Tensor.realize(*several)
        for t, want, other in zip(several, wants, interpreted, strict=True):
            judge(t.numpy(), want, t, units, scale)
            judge(other, want, t, units, scale)

    return compare


@pytest.fixture
def data() -> Data:
    """`data(*shape, dtype="float32", low=-4, high=4)`: seeded values, whole for integer dtypes."""
    rng = np.random.default_rng(7)

    def make(*shape: int, dtype: str = "float32", low: float = -4, high: float = 4) -> Any:
        if np.dtype(dtype).kind in "iub":
            return rng.integers(max(0, int(low)) if np.dtype(dtype).kind != "i" else int(low), int(high), shape).astype(dtype)
        return rng.uniform(low, high, shape).astype(dtype)

    return make
