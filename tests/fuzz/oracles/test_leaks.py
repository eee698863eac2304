"""What calls keep is found, whatever it is and however little, and nothing else is."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable

import numpy as np
import pytest

from uops.fuzz.oracles.leaks import CALLS, find_leak_in_repeated_calls

pytestmark = pytest.mark.usefixtures("frozen_heap")

C = ctypes.CDLL(None)
C.malloc.restype, C.malloc.argtypes, C.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]


def page() -> mmap.mmap:
    return mmap.mmap(-1, mmap.PAGESIZE)


def of_heap() -> None:
    C.malloc(8)


def of_machine_code() -> None:
    """Memory of which no object tells."""
    kept = ctypes.pythonapi.Py_IncRef
    made = page()
    kept(ctypes.py_object(made))


@pytest.mark.parametrize(("make", "what"), [
    (object, "blocks"), (lambda: np.zeros(1, np.int8), "blocks"), (lambda: np.zeros(1000), "bytes of the heap"), (page, "mapped"),
])  # fmt: skip
def test_results_that_are_kept_are_a_leak(make: Callable[[], object], what: str) -> None:
    kept: list[object] = []
    found = find_leak_in_repeated_calls(lambda: kept.append(make()))
    assert found is not None
    assert found.kind == "leak"
    assert what in found.message


class LeavesGarbage:
    """Part of a cycle; its finalizer leaves a cycle of many blocks."""

    def __init__(self, generations: int) -> None:
        self.itself, self.generations = self, generations

    def __del__(self) -> None:
        if self.generations:
            cycle: list[object] = [[[object()] for _ in range(500)], LeavesGarbage(self.generations - 1)]
            cycle.append(cycle)


def test_garbage_of_finalizers_hides_no_leak() -> None:
    LeavesGarbage(3)
    kept: list[object] = []
    found = find_leak_in_repeated_calls(lambda: kept.append(object()))
    assert found is not None and "blocks" in found.message


def test_memory_that_others_give_back_meanwhile_hides_no_leak() -> None:
    """As where a thread of a library ends beside the first measurement."""
    of_others, kept = [object() for _ in range(600)], list[object]()

    def call() -> None:
        kept.append(object())
        del of_others[-1:]

    found = find_leak_in_repeated_calls(call)
    assert found is not None and "blocks" in found.message


@pytest.mark.parametrize("call", [of_heap, of_machine_code])
def test_what_no_object_holds_is_a_leak(call: Callable[[], None]) -> None:
    assert find_leak_in_repeated_calls(call) is not None


@pytest.mark.parametrize("make", [object, lambda: np.zeros(1000), page, lambda: C.free(C.malloc(8))])
def test_what_is_given_back_is_none(make: Callable[[], object]) -> None:
    assert find_leak_in_repeated_calls(make) is None


@pytest.mark.parametrize("make", [object, page])
def test_a_cache_that_fills_once_is_none(make: Callable[[], object]) -> None:
    kept: list[object] = []

    def call() -> None:
        if len(kept) < CALLS + 100:
            kept.append(make())

    assert find_leak_in_repeated_calls(call) is None


def test_growth_of_two_measurements_that_ends_is_none() -> None:
    """As where the C library fills its lists of freed memory."""
    kept: list[object] = []

    def call() -> None:
        if len(kept) < 2 * CALLS + 100:
            kept.append(object())

    assert find_leak_in_repeated_calls(call) is None
