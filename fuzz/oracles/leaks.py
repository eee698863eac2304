"""The oracle of memory leaks in repeated calls.

Takes: a call. Gives: a `Fault` if many calls leave something behind for at least every second of them, several times in a row; a
first growth may be a cache. Measured are exact counts, so that the smallest possible leak per call shows: blocks of Python's
allocator, of which every object has one; bytes of the heap, if the C library is glibc; and mapped memory, such as that of
machine code.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple

from uops.backends.conformance.stage_judge import Fault

#: Number of calls before the first measurement, and between two measurements.
WARM, CALLS = 16, 512
#: Measurements of a call, at most, and those in a row that must show a leak.
_MEASUREMENTS, _AGREEING = 12, 4
#: Size of a page in bytes.
_PAGE = os.sysconf("SC_PAGE_SIZE")


class MemoryUsage(NamedTuple):
    """The memory that a process uses: blocks of Python's allocator, heap bytes, and mapped bytes."""

    blocks: int
    heap: int
    mapped: int


#: The smallest leak of one call (`malloc` allocates at least 32 bytes), and the unit of each number.
_LEAST = MemoryUsage(1, 32, _PAGE)
_NAMES = "blocks of Python's", "bytes of the heap", "bytes of mapped memory"


def measure_memory_usage() -> MemoryUsage:
    """Measure the memory that this process uses now."""
    return MemoryUsage(sys.getallocatedblocks(), _heap_bytes_in_use(), measure_mapped_bytes())


def measure_mapped_bytes() -> int:
    """Return the size of this process's address space, in bytes."""
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[0]) * _PAGE


def find_leak_in_repeated_calls(call: Callable[[], object]) -> Fault | None:
    """Call until two measurements in a row show no leak, or until `_AGREEING` in a row show one.

    They differ where something else takes memory or gives it back meanwhile: garbage, caches, the C library's own lists of freed
    memory, or threads of a library. If they still differ after `_MEASUREMENTS` ones, no leak is told.
    """
    for _ in range(WARM):
        call()
    growths: list[list[int]] = []
    for _ in range(_MEASUREMENTS):
        growths.append(_measure_metric_growths_over_call_batch(call))
        leaks = _describe_leaks(map(min, zip(*growths[-_AGREEING:], strict=True)))
        if leaks and len(growths) >= _AGREEING:
            return Fault("leak", f"{CALLS} calls keep {' and '.join(leaks)}, and as many again {_AGREEING - 1} times")
        if len(growths) > 1 and not _describe_leaks(map(max, *growths[-2:])):
            return None
    return None


def _describe_leaks(growth: Iterable[int]) -> list[str]:
    """Return the numbers that grew by at least the smallest leak in every second call."""
    return [f"{n:,} {name}" for n, least_leak, name in zip(growth, _LEAST, _NAMES, strict=True) if n >= least_leak * CALLS // 2]


def _measure_metric_growths_over_call_batch(call: Callable[[], object]) -> list[int]:
    """Measure how much memory `CALLS` calls leave behind."""
    gc.collect()
    before = measure_memory_usage()
    for _ in range(CALLS):
        call()
    gc.collect()
    return [now - then for now, then in zip(measure_memory_usage(), before, strict=True)]


class _Mallinfo(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    )]  # fmt: skip


def _heap_bytes_in_use() -> int:
    """Return the bytes that `malloc` has allocated and that are not freed, or 0 if the C library does not say."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        return 0
    mallinfo2.restype = _Mallinfo
    info = mallinfo2()
    return int(info.uordblks + info.hblkhd)
