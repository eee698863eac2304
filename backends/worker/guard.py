"""Memory between guard pages: an access outside it crashes the process, or is found afterwards.

The page before and the page after the memory cannot be touched. The memory ends exactly at the second one (or begins exactly after
the first), and the slack on its other side is filled with a pattern that `check` compares. For use in worker processes.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np

from uops.compiler import Compiled, Config, Target
from uops.compiler.runtime.arguments import Kind, Place
from uops.spec.errors import Unsound
from uops.spec.ir.node import UOp
from uops.spec.result import Result

PAGE = mmap.PAGESIZE
_PATTERN = 0xA5
_NO_ACCESS = 0

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.mprotect.restype = ctypes.c_int

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Side(Enum):
    """Which end of the memory touches a guard page."""

    END = "end"
    START = "start"


class Guarded:
    """`size` bytes between guard pages. `data` is the memory as uint8; `address` is its first byte.

    Memory at the END is aligned only as far as its size is, which for an array is its item size: code that assumes more faults.
    """

    def __init__(self, size: int, side: Side = Side.END) -> None:
        inner = max(1, -(-size // PAGE)) * PAGE
        self.size = size
        self.side = side
        self._map = mmap.mmap(-1, inner + 2 * PAGE)
        whole = np.frombuffer(self._map, np.uint8)
        base = int(whole.ctypes.data)
        self._inner: Bytes = whole[PAGE : PAGE + inner]
        self._inner[:] = _PATTERN
        start = inner - size if side is Side.END else 0
        self.data: Bytes = self._inner[start : start + size]
        self.address = base + PAGE + start
        self._slack = self._inner[:start] if side is Side.END else self._inner[size:]
        for page in (base, base + PAGE + inner):
            if _libc.mprotect(page, PAGE, _NO_ACCESS):
                raise OSError(ctypes.get_errno(), "mprotect of a guard page")

    def check(self) -> None:
        """Raises Unsound where the slack was written."""
        touched = np.flatnonzero(self._slack != _PATTERN)
        if touched.size:
            first = (
                int(touched[0]) + (0 if self.side is Side.END else self.size) - (self._slack.size if self.side is Side.END else 0)
            )
            raise Unsound(f"{touched.size} bytes outside a buffer of {self.size} bytes were written, the first at byte {first}")


class GuardedProgram(Compiled):
    """A compiled program whose every buffer lies between guard pages: an access outside of one crashes the process, and a write
    into the slack beside one raises Unsound after the run. What nothing writes reads as the pattern, not as what another run left
    there. For one thread."""

    native = False

    def __init__(self, graph: UOp, target: Target, side: Side, config: Config | None = None) -> None:
        super().__init__(graph, target, config or Config())
        self.side = side
        self._guarded: list[Guarded] = []

    def __call__(self, inputs: Mapping[str, Any] | None = None, /) -> Result:
        """Run once; the results are copies, so that the memory can go."""
        try:
            found = super().__call__(inputs)
            for memory in self._guarded:
                memory.check()
            return Result(tuple(v.copy() for v in found.values), {k: v.copy() for k, v in found.buffers.items()})
        finally:
            self._guarded.clear()

    def _array(self, place: Place, inputs: Mapping[str, Any], variables: Mapping[str, int]) -> Any:
        """What the program would use, moved between guard pages."""
        array = np.ascontiguousarray(super()._array(place, inputs, variables))
        memory = Guarded(array.nbytes, self.side)
        self._guarded.append(memory)
        if place.kind is not Kind.FRESH:
            memory.data[:] = array.reshape(-1).view(np.uint8)
        return memory.data.view(array.dtype).reshape(array.shape)
