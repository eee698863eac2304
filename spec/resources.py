"""The memory of this process: a limit of whoever runs a graph, not a rule of the language.

A value that does not fit is refused by name before it is made, as Unsupported, instead of by whatever fails first.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from pathlib import Path

from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import Dim

#: Where the system does not say: what an address can reach.
_ADDRESSES = 1 << 47


def memory() -> int:
    """Bytes that this process may use: the machine's memory, or its limit of address space where that is less."""
    try:
        here = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        here = _ADDRESSES
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return min(here if here > 0 else _ADDRESSES, limit if limit != resource.RLIM_INFINITY else _ADDRESSES)


def free_memory() -> int | None:
    """Bytes that processes may take before the system has to swap or to end some; None where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None


def address_space() -> int:
    """Bytes of addresses that this process has taken; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def nbytes(dtype: DType, shape: Sequence[Dim]) -> int:
    """Bytes of an array; an extent that only a run knows counts as 1. Index values take 8 bytes (R08)."""
    size = dtype.itemsize if dtype.bits else 8
    for n in shape:
        size *= n if isinstance(n, int) else 1
    return size


def excess(size: int) -> str | None:
    """What is wrong with needing `size` bytes, or None if there are as many."""
    most = memory()
    return f"it needs {size:,} bytes, more than the {most:,} bytes of memory" if size > most else None
