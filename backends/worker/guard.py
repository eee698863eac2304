"""Memory between guard pages: an access out of bounds ends the process, or `check_slack_unwritten` finds it afterwards.

The pages before and after the memory are inaccessible. The memory ends exactly at the second one, or begins exactly after the
first. A pattern fills the slack on its other side. For use in worker processes.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np

from uops.backends.testing.sparse import forbid_access, is_sparse
from uops.compiler import Compiled, Config, Target
from uops.compiler.runtime.arguments import BufferOrigin, BufferSlot
from uops.spec.errors import Unsound
from uops.spec.ir.node import UOp
from uops.spec.result import Result
from uops.spec.verify.dialects import Dialect

PAGE = mmap.PAGESIZE
#: The byte that fills slack and uninitialized memory.
_PATTERN = 0xA5

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class GuardSide(Enum):
    """The end of the memory that touches a guard page."""

    END = "end"
    START = "start"


class GuardedMemory:
    """`size` bytes between guard pages. `data` is the memory as uint8; `address` is that of its first byte.

    Memory at the END is aligned only as far as its size is, for an array its item size. Code that assumes more alignment faults.
    """

    def __init__(self, size: int, side: GuardSide = GuardSide.END) -> None:
        inner_size = max(1, -(-size // PAGE)) * PAGE
        self.size = size
        self.side = side
        self._map = mmap.mmap(-1, inner_size + 2 * PAGE)
        mapped = np.frombuffer(self._map, np.uint8)
        base = int(mapped.ctypes.data)
        self._inner: Bytes = mapped[PAGE : PAGE + inner_size]
        self._inner[:] = _PATTERN
        start = inner_size - size if side is GuardSide.END else 0
        self.data: Bytes = self._inner[start : start + size]
        self.address = base + PAGE + start
        self._slack = self._inner[:start] if side is GuardSide.END else self._inner[size:]
        for page in (base, base + PAGE + inner_size):
            forbid_access(page, PAGE)

    def check_slack_unwritten(self) -> None:
        """Raise Unsound if the slack was written."""
        touched = np.flatnonzero(self._slack != _PATTERN)
        if touched.size:
            first = (
                int(touched[0])
                + (0 if self.side is GuardSide.END else self.size)
                - (self._slack.size if self.side is GuardSide.END else 0)
            )
            raise Unsound(f"{touched.size} bytes outside a buffer of {self.size} bytes were written, the first at byte {first}")


class GuardedProgram(Compiled):
    """A compiled program whose every buffer lies between guard pages. Not thread-safe.

    An access out of bounds ends the process; a write into the slack raises Unsound after the run. Memory that nothing writes holds
    the pattern rather than the data of an earlier run.
    """

    allows_native_entry = False

    def __init__(
        self, graph: UOp, target: Target, side: GuardSide, config: Config | None = None, dialect: Dialect = Dialect.TENSOR
    ) -> None:
        super().__init__(graph, target, config or Config(), dialect)
        self.side = side
        self._guarded: list[GuardedMemory] = []

    def __call__(self, inputs: Mapping[str, Any] | None = None, /) -> Result:
        """Run the program once, and return copies, so that the guarded memory can be released."""
        try:
            result = super().__call__(inputs)
            for memory in self._guarded:
                memory.check_slack_unwritten()
            return Result(tuple(v.copy() for v in result.values), {k: v.copy() for k, v in result.buffers.items()})
        finally:
            self._guarded.clear()

    def _take_arenas(self, inputs: Mapping[str, Any], variables: Mapping[str, int]) -> dict[int, Any]:
        """Return nothing: each run has guarded memory of its own."""
        return {}

    def _prepare_array(self, slot: BufferSlot, inputs: Mapping[str, Any], variables: Mapping[str, int]) -> Any:
        """Return the array that the program would use, moved between guard pages. A sparse array stays where it is."""
        array = np.ascontiguousarray(super()._prepare_array(slot, inputs, variables))
        if is_sparse(array):
            return array
        memory = GuardedMemory(array.nbytes, self.side)
        self._guarded.append(memory)
        if slot.origin is not BufferOrigin.FRESH:
            memory.data[:] = array.reshape(-1).view(np.uint8)
        return memory.data.view(array.dtype).reshape(array.shape)
