"""Whether something that is called again and again keeps memory.

Takes: a call. Gives: a `Fault` where many calls leave something behind for every second of them, twice in a row: a first growth may
be somebody's cache. What is looked at is counted exactly, so that the least that a call can keep shows: blocks of Python's own
allocator, of which every object has one; bytes of the heap, where the C library is glibc; and mapped memory, as machine code's.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Callable
from typing import NamedTuple

from uops.fuzz.oracles.stages import Fault

#: Calls before anything is counted, and between two counts.
WARM, CALLS = 16, 512
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Held(NamedTuple):
    """What a process holds."""

    blocks: int
    heap: int
    mapped: int


#: What one call can keep at least (`malloc` gives no less than 32 bytes), and how it is called.
_LEAST = Held(1, 32, _PAGE)
_NAMES = "blocks of Python's", "bytes of the heap", "bytes of mapped memory"


def held() -> Held:
    """What this process holds now."""
    with open("/proc/self/statm", encoding="ascii") as f:
        mapped = int(f.read().split()[0]) * _PAGE
    return Held(sys.getallocatedblocks(), _heap(), mapped)


def leak(call: Callable[[], object]) -> Fault | None:
    """Call until a leak shows, if there is one."""
    for _ in range(WARM):
        call()
    least = [0] * len(_LEAST)
    for again in (False, True):
        grown = _growth(call)
        least = [min(both) for both in zip(least, grown, strict=True)] if again else grown
        told = [f"{n:,} {name}" for n, one, name in zip(least, _LEAST, _NAMES, strict=True) if n >= one * CALLS // 2]
        if not told:
            return None
    return Fault("leak", f"{CALLS} calls keep {' and '.join(told)}, and as many again")


def _growth(call: Callable[[], object]) -> list[int]:
    gc.collect()
    before = held()
    for _ in range(CALLS):
        call()
    gc.collect()
    return [now - then for now, then in zip(held(), before, strict=True)]


class _Mallinfo(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    )]  # fmt: skip


def _heap() -> int:
    """Bytes that `malloc` has given and nobody has given back; 0 where the C library does not say."""
    info = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if info is None:
        return 0
    info.restype = _Mallinfo
    found = info()
    return int(found.uordblks + found.hblkhd)
