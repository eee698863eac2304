"""Which symbols an object file has, and which it needs from outside: enough of the ELF format to hold the emitted code to being
freestanding, and to tell an object of this machine from what a linker had better not see."""

from __future__ import annotations

import functools
import struct
import sys

_MAGIC = b"\x7fELF"
_SYMTAB, _NOBITS, _LOADED = 2, 8, 1
_UNDEFINED = 0


def undefined_symbols(image: bytes) -> tuple[str, ...]:
    """Names that a 64-bit little-endian ELF object refers to and does not define, sorted. Raises ValueError on another format."""
    return tuple(sorted(name for name, section in _symbols(image) if section == _UNDEFINED))


def defined_symbols(image: bytes) -> frozenset[str]:
    """Names that an object defines. Raises ValueError as `undefined_symbols` does."""
    return frozenset(name for name, section in _symbols(image) if section != _UNDEFINED)


def is_linkable(image: bytes, *symbols: str) -> bool:
    """Return True if the tables of an object are whole, of this machine, and define `symbols`; of a system without ELF, always."""
    own = _own_header()
    if own[:4] != _MAGIC:
        return True
    try:
        same = image[:6] == own[:6] and image[18:20] == own[18:20]  # class, byte order and processor
        return same and _fits(image) and defined_symbols(image).issuperset(symbols)
    except (ValueError, IndexError, OverflowError, struct.error):  # a table that points outside, a name that is no text
        return False


@functools.cache
def _own_header() -> bytes:
    """The first bytes of the program that runs this."""
    try:
        with open(sys.executable, "rb") as f:
            return f.read(20)
    except OSError:
        return b""


def _fits(image: bytes) -> bool:
    """Return True if all that is loaded or linked lies in the file. One that was cut off lost its last table, of sections."""
    offset, entry_size, count = struct.unpack_from("<Q14xHH", image, 32)
    segments = [struct.unpack_from("<I4xQ16xQ", image, offset + k * entry_size) for k in range(count)]
    parts = [(start, size) for kind, start, size in segments if kind == _LOADED]
    parts += [(start, size) for _, kind, _, _, start, size, *_ in _sections(image) if kind != _NOBITS]
    return all(start + size <= len(image) for start, size in parts)


def _sections(image: bytes) -> list[tuple[int, ...]]:
    """The headers of the sections."""
    offset, entry_size, count = struct.unpack_from("<Q10xHH", image, 40)
    return [struct.unpack_from("<IIQQQQIIQQ", image, offset + k * entry_size) for k in range(count)]


def _symbols(image: bytes) -> set[tuple[str, int]]:
    """Every name with the number of its section."""
    if image[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF object")
    headers = _sections(image)
    found: set[tuple[str, int]] = set()
    for _, kind, _, _, start, size, link, *_ in headers:
        if kind == _SYMTAB:
            found |= _names(image, start, size, headers[link][4])
    return found


def _names(image: bytes, start: int, size: int, strings: int) -> set[tuple[str, int]]:
    found = set()
    for place in range(start, start + size, 24):
        name, _, _, section = struct.unpack_from("<IBBH", image, place)
        if name:
            end = image.index(b"\0", strings + name)
            found.add((image[strings + name : end].decode(), section))
    return found
