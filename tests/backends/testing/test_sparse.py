"""Sparse arrays: only what is written takes memory, what is outside of them faults, and their runs make them again."""

import ctypes
import os
import resource
import signal

import numpy as np
import pytest

from uops.backends.testing.sparse import allocate_sparse_zeros, fill_runs, is_sparse, list_nonzero_runs

COUNT = (1 << 31) + 5


def test_only_written_pages_take_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    a = allocate_sparse_zeros(COUNT, np.float32)
    a[[0, COUNT // 2, COUNT - 1]] = 1, 2, 3
    assert (a.size, a.dtype, a[:2].tolist(), a[COUNT // 2], a[-1]) == (COUNT, np.float32, [1, 0], 2, 3)
    assert is_sparse(a)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + (64 << 10)  # KiB


@pytest.mark.parametrize("position", [COUNT, COUNT - (1 << 32), COUNT + (1 << 33)])
def test_an_access_outside_faults(position: int) -> None:
    a = allocate_sparse_zeros(COUNT, np.uint8)
    address = int(a.ctypes.data)
    child = os.fork()
    if not child:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        ctypes.string_at(address + position, 1)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGSEGV


@pytest.mark.parametrize(("shape", "dtype"), [((COUNT,), np.int8), ((1, COUNT), np.float16), ((50,), np.int64), ((0,), np.int8)])
def test_runs_make_the_array_again(shape: tuple[int, ...], dtype: type[np.generic]) -> None:
    a = allocate_sparse_zeros(int(np.prod(shape, dtype=object)), dtype)
    for first in (0, 7, (1 << 20) - 2, (1 << 31) - 1, 1 << 31, COUNT - 3):
        a[first : first + 3] = ([1, -0.0, 2] if dtype is np.float16 else [1, 0, 2])[: a[first : first + 3].size]
    again = fill_runs(shape, a.dtype, list_nonzero_runs(a))
    assert again.shape == shape
    assert [(k, r.tobytes()) for k, r in list_nonzero_runs(again)] == [(k, r.tobytes()) for k, r in list_nonzero_runs(a)]
    assert a.size < 10 or sum(r.size for _, r in list_nonzero_runs(again)) >= 4


@pytest.mark.parametrize("first", [-1, 9, 11])
def test_runs_out_of_bounds_are_refused(first: int) -> None:
    with pytest.raises(ValueError, match="lie outside of 10 elements"):
        fill_runs((10,), np.dtype(np.int8), [(first, np.ones(2, np.int8))])


def test_an_array_that_cannot_be_mapped_is_refused() -> None:
    with pytest.raises(ValueError, match="elements of float32 cannot be mapped"):
        fill_runs((1 << 60,), np.dtype(np.float32), [])
