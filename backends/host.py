"""The machine that this process runs on, as far as schedules ask: data caches, cache lines, and cores that it may use."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_GROUPS = Path("/sys/fs/cgroup")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def available_cores() -> int:
    """Return the number of threads that may run in parallel, by the process's affinity and its container's quota."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(affinity, read_cgroup_cpu_quota() or affinity)


@cache
def read_cgroup_cpu_quota(folder: Path = _GROUPS) -> int | None:
    """Return the processors that the control group grants, rounded up; None without a limit (cgroups 2, then 1)."""
    allowed = _read_or_empty(folder / "cpu.max").split() or [
        _read_or_empty(folder / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period")
    ]
    amount, period = (int(x) if x.isdecimal() else 0 for x in allowed)
    return -(-amount // period) if amount and period else None


def read_data_cache_sizes(folder: Path = _CACHES) -> tuple[int, ...]:
    """Return the sizes in bytes of the first core's data caches, L1 first; empty if the system does not tell."""
    sizes: dict[int, int] = {}
    for entry in sorted(folder.glob("index*")):
        kind, size = _read_or_empty(entry / "type"), _read_or_empty(entry / "size")
        if kind in ("Data", "Unified") and size:
            unit = _UNITS.get(size[-1], 1)
            sizes[int(_read_or_empty(entry / "level") or 0)] = int(size.rstrip("KMG")) * unit
    return tuple(sizes[level] for level in sorted(sizes))


def cache_line_bytes(folder: Path = _CACHES) -> int:
    """Return the size of a cache line; 64 if the system does not tell."""
    return int(_read_or_empty(folder / "index0" / "coherency_line_size") or 64)


def _read_or_empty(file: Path) -> str:
    """Return the stripped text of a file; empty if it cannot be read."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
