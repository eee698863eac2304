"""Whether something that is called again and again keeps memory.

Takes: a call, and how many bytes one call would keep if it kept its results. Gives: a `Fault` where the process has grown by half
of what that makes over many calls, twice in a row: a first growth may be somebody's cache.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

from uops.fuzz.stages import Fault

#: Growth that is worth looking for, and the most calls that are made for it.
BYTES, CALLS = 8 << 20, 4000
_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * _PAGE


def telling(each: int) -> bool:
    """Whether so many bytes a call would show in as many calls as are made at most."""
    return _calls(each) <= CALLS


def leak(call: Callable[[], object], each: int) -> Fault | None:
    """Call until the leak would show. Results are large enough for that (`telling`)."""
    calls = _calls(each)
    for _ in range(min(16, calls)):
        call()
    for _ in range(2):
        grown = _growth(call, calls)
        if grown < BYTES // 2:
            return None
    return Fault("leak", f"{calls} calls with results of {each} bytes: the process grew by more than half of these, twice")


def _calls(each: int) -> int:
    return -(-BYTES // max(1, each))


def _growth(call: Callable[[], object], calls: int) -> int:
    gc.collect()
    before = resident()
    for _ in range(calls):
        call()
    gc.collect()
    return resident() - before
