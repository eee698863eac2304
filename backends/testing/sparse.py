"""Sparse arrays: memory of billions of zeros, of which only the pages that are written exist.

`allocate_sparse_zeros` makes one. `list_nonzero_runs` and `fill_runs` take it to pieces and put it together again, for files and
for other processes.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from uops.backends.testing.values import Array

#: Arrays of more bytes than this are sparse: they are neither copied nor written out in full.
DENSE_BYTES = 1 << 28
#: Inaccessible bytes on each side of a sparse array, so that positions which wrapped in 32 bits fault.
_MARGIN = 1 << 34
#: Memory that the system promises without having it (`MAP_NORESERVE` of Linux).
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
#: Bytes that are searched for nonzero elements at once.
_CHUNK = 1 << 20
_NO_ACCESS = 0

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.mprotect.restype = ctypes.c_int


def forbid_access(address: int, size: int) -> None:
    """Make whole pages inaccessible. Raises OSError."""
    if _libc.mprotect(address, size, _NO_ACCESS):
        raise OSError(ctypes.get_errno(), "mprotect of guard pages")


def is_sparse(value: Any) -> bool:
    """Return True for an array that is so large that it must not be copied."""
    return isinstance(value, np.ndarray) and value.nbytes > DENSE_BYTES


def allocate_sparse_zeros(count: int, dtype: np.dtype[Any] | type[np.generic]) -> Array:
    """Allocate `count` zeros. A large array takes no memory until it is written, and ends at inaccessible pages."""
    size = count * np.dtype(dtype).itemsize
    if size <= DENSE_BYTES:
        return np.zeros(count, dtype)
    inner_size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    mapped = np.frombuffer(mmap.mmap(-1, inner_size + 2 * _MARGIN, flags=flags), np.uint8)
    base = int(mapped.ctypes.data)
    forbid_access(base, _MARGIN)
    forbid_access(base + _MARGIN + inner_size, _MARGIN)
    end = _MARGIN + inner_size
    return mapped[end - size : end].view(dtype)


def list_nonzero_runs(array: Array) -> Iterator[tuple[int, Array]]:
    """Yield the runs of elements that hold what is not zero: the position of the first one in row-major order, and the run."""
    flat = array.reshape(-1)
    step = _CHUNK // flat.itemsize
    for first in range(0, flat.size, step):
        chunk = flat[first : first + step]
        bits = chunk.view(f"u{chunk.itemsize}")  # -0.0 is not zero
        if bits.any():
            at = np.flatnonzero(bits)
            for run in np.split(at, np.flatnonzero(np.diff(at) > 1) + 1):
                yield first + int(run[0]), chunk[run[0] : run[-1] + 1]


def fill_runs(shape: tuple[int, ...], dtype: np.dtype[Any], runs: Iterable[tuple[int, Array]]) -> Array:
    """Return an array of zeros in which these runs stand at these positions.

    Raises ValueError if a run is out of bounds, or if the array is larger than what can be mapped.
    """
    try:
        flat = allocate_sparse_zeros(math.prod(shape), dtype)
    except OSError as e:
        raise ValueError(f"{math.prod(shape)} elements of {dtype} cannot be mapped: {e.strerror}") from e
    for first, run in runs:
        if not 0 <= first <= first + run.size <= flat.size:
            raise ValueError(f"elements {first} to {first + run.size} lie outside of {flat.size} elements")
        flat[first : first + run.size] = run
    return flat.reshape(shape)
