"""A sample of the full tier on every compiled backend that is installed; `uops conform` runs all of it.

A backend that is named in UOPS_REQUIRED_TARGETS must be there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NoReturn

import pytest

from uops.backends.conformance import runner
from uops.backends.conformance.cases import generate_cases
from uops.backends.conformance.model import ConformanceCase, ConformanceLevel, ConformanceTier
from uops.backends.conformance.runner import draw_sample, run_conformance
from uops.backends.registry import BrokenBackend, create_backend, describe_backend
from uops.spec.errors import Unsupported

BACKENDS = (
    "c", "c:gcc", "c:clang", "opencl", "cuda:shim", "aarch64", "aarch64:sve", "riscv64", "riscv64:v", "s390x", "i686", "wasm"
)  # fmt: skip
SIZE, SEED = 200, 0


@functools.cache
def drawn_cases() -> list[ConformanceCase]:
    """The sample. All of these backends declare every row, so it is the same for each; to make the suite takes longest."""
    return draw_sample(list(generate_cases(ConformanceTier.FULL)), SIZE, SEED)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_sample_of_the_full_tier_passes_at_level_strict(
    name: str, monkeypatch: pytest.MonkeyPatch, skip_absent: Callable[[str, Exception], NoReturn]
) -> None:
    monkeypatch.setattr(runner, "generate_cases", lambda tier, rows: drawn_cases())
    try:
        backend = create_backend(name)
    except (Unsupported, BrokenBackend) as e:
        skip_absent(name, e)
    described = describe_backend(name, backend)
    backend.close()
    run = run_conformance(name, described, tier=ConformanceTier.FULL, jobs=1)
    assert run.cases == SIZE and run.complete
    failing = [f"{c.cell}: {c.failures[:1]}" for c in run.failing_cells(ConformanceLevel.STRICT)]
    assert not failing, "\n".join(failing)
