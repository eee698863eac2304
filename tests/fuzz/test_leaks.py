"""Memory that is kept from call to call is found, and nothing else is."""

from __future__ import annotations

import mmap

from uops.fuzz.leaks import BYTES, CALLS, leak, telling


def result() -> mmap.mmap:
    """16 KiB that the process had not before, wherever its heap has room."""
    made = mmap.mmap(-1, 16384)
    made.write(b"x" * 16384)
    return made


def test_results_that_are_kept_are_a_leak() -> None:
    kept: list[mmap.mmap] = []
    found = leak(lambda: kept.append(result()), 16384)
    assert found is not None
    assert found.kind == "leak"
    assert "512 calls with results of 16384 bytes" in found.message


def test_what_is_given_back_is_none() -> None:
    assert leak(result, 16384) is None


def test_a_cache_that_fills_once_is_none() -> None:
    kept: list[mmap.mmap] = []

    def call() -> None:
        if len(kept) < 600:
            kept.append(result())

    assert leak(call, 16384) is None


def test_what_is_too_small_does_not_tell() -> None:
    assert not telling(BYTES // CALLS - 1)
    assert telling(BYTES // CALLS + 1)
