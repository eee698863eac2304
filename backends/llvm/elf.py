"""Which symbols an object file has, and which it needs from outside: enough of the ELF format to hold the emitted code to being
freestanding."""

from __future__ import annotations

import struct

_SYMTAB = 2
_UNDEFINED = 0


def undefined_symbols(image: bytes) -> tuple[str, ...]:
    """Names that a 64-bit little-endian ELF object refers to and does not define, sorted. Raises ValueError on another format."""
    return tuple(sorted(name for name, section in _symbols(image) if section == _UNDEFINED))


def defined_symbols(image: bytes) -> frozenset[str]:
    """Names that an object defines. Raises ValueError as `undefined_symbols` does."""
    return frozenset(name for name, section in _symbols(image) if section != _UNDEFINED)


def _symbols(image: bytes) -> set[tuple[str, int]]:
    """Every name with the number of its section."""
    if image[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF object")
    offset, entry_size, count = struct.unpack_from("<Q10xHH", image, 40)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, offset + k * entry_size) for k in range(count)]
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
