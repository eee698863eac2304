"""Memory that is kept from call to call is found, and nothing else is."""

from __future__ import annotations

from uops.fuzz.leaks import BYTES, CALLS, leak


def test_results_that_are_kept_are_a_leak() -> None:
    kept: list[bytearray] = []
    found = leak(lambda: kept.append(bytearray(b"x" * 16384)), 16384)
    assert found is not None
    assert found.kind == "leak"
    assert "512 calls with results of 16384 bytes" in found.message


def test_what_is_given_back_is_none() -> None:
    assert leak(lambda: bytearray(b"x" * 16384), 16384) is None


def test_a_cache_that_fills_once_is_none() -> None:
    kept: list[bytearray] = []

    def call() -> None:
        if len(kept) < 600:
            kept.append(bytearray(b"x" * 16384))

    assert leak(call, 16384) is None


def test_nothing_is_said_of_what_is_too_small() -> None:
    kept: list[bytearray] = []
    assert leak(lambda: kept.append(bytearray(8)), BYTES // CALLS - 1) is None
    assert not kept
