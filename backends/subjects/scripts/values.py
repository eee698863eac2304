"""NumPy arrays and dtypes as Python expressions, for scripts of a library alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from uops.backends.subjects.host import Array


def write_array(x: Array) -> str:
    """Return an expression of an array. One of NaNs with bits, or of signed zeros, is written by its bits."""
    dtype = write_dtype(x.dtype)
    if not x.size:
        return f"np.zeros({x.shape}, {dtype})"
    if x.dtype.kind in "biu":
        return f"np.array({x.tolist()}, {dtype})"
    with np.errstate(all="ignore"):  # of signalling NaNs
        again = np.array(x.tolist(), x.dtype)
        is_finite = bool(np.isfinite(x.astype(np.float64)).all())
    if is_finite and again.tobytes() == x.tobytes():
        return f"np.array({x.tolist()}, {dtype})"
    word = f"u{x.itemsize}"
    bits = ", ".join(f"0x{int(v):0{2 * x.itemsize}x}" for v in x.reshape(-1).view(word))
    shape = "" if x.ndim == 1 else f".reshape({x.shape})"
    return f"np.array([{bits}], {word!r}).view({dtype}){shape}"


def write_dtype(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype, of NumPy or ml_dtypes."""
    name = {"bool": "bool_"}.get(dtype.name, dtype.name)
    return f"np.{name}" if hasattr(np, name) and dtype == np.dtype(getattr(np, name)) else f"ml_dtypes.{name}"
