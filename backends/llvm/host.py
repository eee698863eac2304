"""What the hardware of this process is, for the compiler: vectors, registers, caches, cores."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from uops.backends.llvm.binding import Host
from uops.compiler.target import Machine

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_GROUPS = Path("/sys/fs/cgroup")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
#: A feature, the bytes of its vectors, their number, and whether they have masks; the first that the host has counts.
_VECTORS = (
    ("avx512vl", 64, 32, True),
    ("avx2", 32, 16, False),
    ("sse2", 16, 16, False),
    ("neon", 16, 32, False),
)


def describe(host: Host) -> Machine:
    """The machine that LLVM compiles for, which is the one this runs on."""
    width, registers, masks = next((v for f, *v in _VECTORS if host.has(f)), (0, 16, False))
    return Machine(
        vector_bytes=int(width),
        registers=int(registers),
        caches=data_caches(),
        line=_line(),
        cores=cores(),
        fma=host.has("fma") or host.triple.startswith("aarch64"),
        masks=bool(masks),
    )


def cores() -> int:
    """Threads that may run at the same time, by the process's own cores and what its container grants."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(own, quota() or own)


@cache
def quota(folder: Path = _GROUPS) -> int | None:
    """The processors' worth of time that the control group grants, rounded up; None without a limit (cgroups 2, then 1)."""
    allowed = _read(folder / "cpu.max").split() or [_read(folder / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    amount, period = (int(x) if x.isdecimal() else 0 for x in allowed)
    return -(-amount // period) if amount and period else None


def data_caches(folder: Path = _CACHES) -> tuple[int, ...]:
    """Bytes of the data caches of the first core, L1 first; empty where the system does not say."""
    found: dict[int, int] = {}
    for entry in sorted(folder.glob("index*")):
        kind, size = _read(entry / "type"), _read(entry / "size")
        if kind in ("Data", "Unified") and size:
            unit = _UNITS.get(size[-1], 1)
            found[int(_read(entry / "level") or 0)] = int(size.rstrip("KMG")) * unit
    return tuple(found[level] for level in sorted(found))


def _line(folder: Path = _CACHES) -> int:
    return int(_read(folder / "index0" / "coherency_line_size") or 64)


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
