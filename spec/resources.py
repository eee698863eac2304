"""The memory available to this process.

It limits whoever runs a graph and is no rule of the language. A value that does not fit raises Unsupported, with its name, before
it is allocated.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from pathlib import Path

from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import Dim

#: Bytes of the address space of x86-64, used where the system states no limit.
_ADDRESSES = 1 << 47


def compute_min_of_ram_and_rlimits() -> int:
    """Return the bytes that this process may use: physical memory, or RLIMIT_AS or RLIMIT_DATA where one is less."""
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        physical = _ADDRESSES
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return min(physical if physical > 0 else _ADDRESSES, *(n if n != resource.RLIM_INFINITY else _ADDRESSES for n in limits))


def limit_data_instead_of_addresses() -> None:
    """Make a limit of this process's address space one of its data. A library may reserve far more addresses than it ever uses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    data, most = resource.getrlimit(resource.RLIMIT_DATA)
    if data == resource.RLIM_INFINITY or data > soft:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, most))


def read_system_mem_available_bytes() -> int | None:
    """Return the bytes that can be allocated without swapping; None where the system does not report them."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None


def address_space_in_use() -> int:
    """Return the bytes of address space that this process has mapped; 0 where the system does not report them."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def array_bytes_with_symbolic_dims_as_one(dtype: DType, shape: Sequence[Dim]) -> int:
    """Return the size of an array in bytes. A symbolic extent counts as 1, an index value as 8 bytes (R08, index dtype)."""
    size = dtype.itemsize if dtype.bits else 8
    for n in shape:
        size *= n if isinstance(n, int) else 1
    return size


def describe_memory_excess(size: int) -> str | None:
    """Return why `size` bytes are more than this process may use, or None if they are not."""
    limit = compute_min_of_ram_and_rlimits()
    return f"it needs {size:,} bytes, more than the {limit:,} bytes of memory" if size > limit else None
