"""Compiled code against the allowed sets of the interpreter, on generated graphs; the long run is `tox -e fuzz`."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from uops.backends import registry
from uops.fuzz.generate.graphs import case
from uops.interp.allowed import AllowedSet, compute_allowed_sets
from uops.spec.errors import CompileError
from uops.spec.ir.node import toposort
from uops.spec.ir.text import show


def _wrong(want: AllowedSet, got: Any) -> bool:
    assert np.asarray(want.contains(want.best)).all(), "a set without its reference value"
    return not np.asarray(want.contains(got)).all()


def _is_for_one_device(graph: Any) -> bool:
    return not any(isinstance(u.device, tuple) for u in toposort(graph))


def _campaign(backend: Any, seeds: range) -> int:
    """How many cases ran; fails on the first difference."""
    ran = 0
    for seed in seeds:
        c = case(seed, max_elements=200)
        want = compute_allowed_sets(c.graph, c.inputs)
        try:
            got = backend.run(c.graph, c.inputs)
        except CompileError:
            assert not _is_for_one_device(c.graph), f"seed {seed} does not compile\n{show(c.graph)}"
            continue
        pairs = [*zip(want.values, got.values, strict=True), *((w, got.buffers[k]) for k, w in want.buffers.items())]
        assert not any(_wrong(w, g) for w, g in pairs), f"seed {seed}\n{show(c.graph)}"
        ran += 1
    return ran


@pytest.mark.parametrize("tier", ["fast", pytest.param("full", marks=pytest.mark.slow)])
def test_compiled_graphs_stay_within_the_allowed_sets(tier: str) -> None:
    assert _campaign(registry.create_backend("llvm", tier=tier), range(200)) > 150


@pytest.mark.campaign
def test_a_campaign_finds_nothing() -> None:
    """`UOPS_CAMPAIGN_CASES` cases (20,000) from `UOPS_CAMPAIGN_SEED` (1,000,000)."""
    first = int(os.environ.get("UOPS_CAMPAIGN_SEED", "1000000"))
    count = int(os.environ.get("UOPS_CAMPAIGN_CASES", "20000"))
    assert _campaign(registry.create_backend("llvm", tier="fast"), range(first, first + count)) > count // 2
