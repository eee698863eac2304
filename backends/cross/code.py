"""The contract of an engine, and the memory that holds the code of native ones.

An engine runs code of another processor, on memory at its own addresses. `data` is the range of them that holds arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from uops.backends.cross.processors import Processor
from uops.backends.cross.support import SUPPORT_SYMBOLS
from uops.backends.link import link_object

#: The address of a native engine's memory, which lies behind the stack that qemu gives 32-bit programs; its bytes; and the bytes at
#: its beginning that hold code.
BASE, SIZE, CODE_SIZE = 0x5000_0000, 0x6000_0000, 64 << 20
#: Native engines have arguments behind the code.
DATA = range(BASE + CODE_SIZE, BASE + SIZE)
_ALIGNMENT = 64


class Code(Protocol):
    """The code in an engine. If `generation` differs from when a function was placed, the function is gone."""

    generation: int

    def load_entries_evicting_all_when_full(self, image: bytes, entries: Sequence[str]) -> list[int]:
        """Link an object, and return its functions `entries` for `Engine.call`. Raises Crash if it does not link."""
        ...


class Engine(Protocol):
    """An engine. `name` is that of the option `engine=`."""

    name: str
    processor: Processor
    data: range

    @property
    def code(self) -> Code:
        """The code in the engine."""
        ...

    def version(self) -> str:
        """Return the version of the engine."""
        ...

    def write(self, address: int, data: bytes | memoryview) -> None:
        """Write memory."""
        ...

    def read_into(self, address: int, data: memoryview) -> None:
        """Read memory."""
        ...

    def call(self, function: int, buffers: int, scalars: int) -> None:
        """Run a kernel with the tables at these addresses. Raises Crash if it faults."""
        ...

    def close(self) -> None:
        """Release the engine."""
        ...


class NativeCode:
    """The first bytes of a native engine's memory. If they are full, all code is forgotten, and kernels are placed again.

    `support` gives the object of the functions that kernels may call. `forget` comes before code is replaced.
    """

    def __init__(self, write: Callable[[int, bytes], None], forget: Callable[[], None], support: Callable[[], bytes]) -> None:
        self._write, self._forget, self._support = write, forget, support
        self.generation, self._cursor = 0, BASE
        self._functions: dict[str, int] = {}

    def load_entries_evicting_all_when_full(self, image: bytes, entries: Sequence[str]) -> list[int]:
        """Link an object, and return the addresses of its functions `entries`. Raises Crash if it does not link."""
        if self._cursor + len(image) > BASE + CODE_SIZE:
            self.evict_all()
        if not self._functions:
            self._functions = {n: a for n, a in self._link_and_write_at_cursor(self._support(), {}).items() if n in SUPPORT_SYMBOLS}
        symbols = self._link_and_write_at_cursor(image, self._functions)
        return [symbols[entry] for entry in entries]

    def evict_all(self) -> None:
        """Forget all code; kernels are placed again in the next generation."""
        self._forget()
        self.generation, self._cursor, self._functions = self.generation + 1, BASE, {}

    def _link_and_write_at_cursor(self, image: bytes, functions: dict[str, int]) -> dict[str, int]:
        """Write an object at the first free address; return the addresses of its symbols."""
        linked = link_object(image, self._cursor, functions)
        self._write(self._cursor, linked.data)
        self._cursor += -(-len(linked.data) // _ALIGNMENT) * _ALIGNMENT
        return linked.symbols
