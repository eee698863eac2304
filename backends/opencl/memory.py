"""Host memory that kernels of an OpenCL device reach by memory objects."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from uops.backends.lending import LentSpan, MemoryLender

#: Bytes of the least word that can be exchanged.
_WORD = 4


class BufferSpan(LentSpan):
    """A range of host addresses with the memory object over it."""

    __slots__ = ("buffer",)

    def __init__(self, start: int, stop: int, buffer: Any) -> None:
        super().__init__(start, stop)
        self.buffer = buffer


class SharedMemory(MemoryLender[BufferSpan]):
    """Host memory that kernels reach by memory objects over it. OpenCL leaves two objects over the same bytes undefined.

    A device with memory of its own has a copy in each object. Its size is a multiple of `_WORD`, since an atomic sum of 8 or 16
    bits exchanges the word around them.
    """

    def __init__(self, cl: Any, context: Any, queue: Any, *, is_unified: bool) -> None:
        super().__init__()
        self._cl, self._context, self._queue, self._is_unified = cl, context, queue, is_unified

    def open_span(self, start: int, stop: int) -> BufferSpan:
        """Create a memory object over host memory, or with a copy of it."""
        flags, size = self._cl.mem_flags, stop - start
        host = (ctypes.c_ubyte * size).from_address(start)
        if self._is_unified:
            buffer = self._cl.Buffer(self._context, flags.READ_WRITE | flags.USE_HOST_PTR, hostbuf=host)
        else:
            buffer = self._cl.Buffer(self._context, flags.READ_WRITE, -(-size // _WORD) * _WORD)
            self._cl.enqueue_copy(self._queue, buffer, np.ctypeslib.as_array(host), is_blocking=True)
        return BufferSpan(start, stop, buffer)

    def return_spans(self, spans: Sequence[BufferSpan]) -> None:
        """Make the host memory of objects current, by mapping or copying them."""
        for s in spans:
            size = s.stop - s.start
            if self._is_unified:
                mapped, _ = self._cl.enqueue_map_buffer(self._queue, s.buffer, self._cl.map_flags.READ, 0, (size,), np.uint8)
                mapped.base.release(self._queue)
            else:
                host = (ctypes.c_ubyte * size).from_address(s.start)
                self._cl.enqueue_copy(self._queue, np.ctypeslib.as_array(host), s.buffer, is_blocking=True)
        self._queue.finish()

    def close_span(self, span: BufferSpan) -> None:
        """Release a memory object."""
        span.buffer.release()

    def find_buffer_and_offset(self, address: int) -> tuple[Any, int]:
        """Return the memory object that holds an address, and the offset in it; no object for an empty array."""
        span = self.find_span(address)
        return (None, 0) if span is None else (span.buffer, address - span.start)
