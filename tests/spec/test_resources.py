"""The memory of a process: what it is, what an array needs, and what is refused."""

from __future__ import annotations

import resource

import pytest

from uops.spec import resources
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt


def test_memory_is_what_the_machine_has_and_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr("os.sysconf", pages.__getitem__)
    monkeypatch.setattr("resource.getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert resources.compute_min_of_ram_and_rlimits() == 4096_000
    monkeypatch.setattr("resource.getrlimit", lambda which: (4096, resource.RLIM_INFINITY))
    assert resources.compute_min_of_ram_and_rlimits() == 4096


def test_an_array_needs_its_elements_times_its_item_size() -> None:
    assert resources.array_bytes_with_symbolic_dims_as_one(dt.bfloat16, (3, 5)) == 30
    assert resources.array_bytes_with_symbolic_dims_as_one(dt.index, (3,)) == 24
    assert resources.array_bytes_with_symbolic_dims_as_one(dt.float64, ()) == 8
    assert resources.array_bytes_with_symbolic_dims_as_one(dt.int8, (0, 10**30)) == 0
    assert resources.array_bytes_with_symbolic_dims_as_one(dt.int8, (7, b.variable("n", 1, 9))) == 7


def test_only_more_than_there_is_is_an_excess(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "compute_min_of_ram_and_rlimits", lambda: 1000)
    assert resources.describe_memory_excess(1000) is None
    assert resources.describe_memory_excess(1001) == "it needs 1,001 bytes, more than the 1,000 bytes of memory"
