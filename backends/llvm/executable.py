"""Executable memory of this process, for code that calls nothing outside of itself.

Takes: an ELF object for x86-64 that `is_self_contained`. Gives: a `CodeBlock` with the addresses of its functions. LLVM's linker
takes four times as long for such an object.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import struct
from typing import Any

from uops.backends.elf import parse_elf, undefined_symbols
from uops.backends.link import X86_64, knows_relocations, link_object
from uops.spec.errors import Crash


def is_self_contained(image: bytes) -> bool:
    """Return True if an object is one for x86-64 that refers to no symbol of others, and whose relocations are known.

    Raises Crash if it is damaged.
    """
    if not image.startswith(b"\x7fELF"):
        return False
    try:
        elf = parse_elf(image)
        return elf.machine == X86_64 and elf.is_64_bit and not undefined_symbols(image) and knows_relocations(elf)
    except (ValueError, IndexError, OverflowError, struct.error) as e:  # a table points outside of the file
        raise Crash(f"linking: the object is damaged: {e}") from e


class CodeBlock:
    """An object's code and tables in one block of memory, valid as long as this lives. Raises Crash if it does not link."""

    __slots__ = ("_address", "_memory", "symbols")

    def __init__(self, image: bytes) -> None:
        try:
            linked = link_object(image, self._reserve, {})
            self._memory[: len(linked.data)] = linked.data
        except (OSError, MemoryError) as e:
            raise Crash(f"linking: there is no memory for the code: {e}") from e
        _make_executable(ctypes.addressof(self._address), len(linked.data))
        self.symbols = linked.symbols

    def _reserve(self, size: int) -> int:
        self._memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._address = ctypes.c_char.from_buffer(self._memory)
        return ctypes.addressof(self._address)


def _make_executable(address: int, size: int) -> None:
    """Let memory be read and executed, and no longer written."""
    if _load_mprotect()(address, size, mmap.PROT_READ | mmap.PROT_EXEC):
        raise Crash(f"linking: memory cannot be made executable: {os.strerror(ctypes.get_errno())}")


@functools.cache
def _load_mprotect() -> Any:
    mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return mprotect
