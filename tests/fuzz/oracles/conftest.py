"""What the tests of oracles share."""

import gc

import pytest


@pytest.fixture(scope="module")
def frozen_heap() -> None:
    """Leave what earlier tests made out of garbage collections, of which a measurement of leaks needs many."""
    gc.collect()
    gc.freeze()
