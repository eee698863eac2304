"""A reader of ELF objects: the symbols that an object defines and needs, and whether its tables are whole.

It reads only as much of the format as is needed to check that emitted code is freestanding, and that an object may be linked here.
"""

from __future__ import annotations

import functools
import struct
import sys

_MAGIC = b"\x7fELF"
_SYMTAB, _NOBITS, _LOADED = 2, 8, 1
_UNDEFINED = 0


def undefined_symbols(image: bytes) -> tuple[str, ...]:
    """Return the names, sorted, that a 64-bit little-endian ELF object refers to and does not define. Raises ValueError on another
    format."""
    return tuple(sorted(name for name, section in _read_symbols_with_sections(image) if section == _UNDEFINED))


def defined_symbols(image: bytes) -> frozenset[str]:
    """Return the names that an object defines. Raises ValueError as `undefined_symbols` does."""
    return frozenset(name for name, section in _read_symbols_with_sections(image) if section != _UNDEFINED)


def is_linkable_or_host_lacks_elf(image: bytes, *symbols: str) -> bool:
    """Return True if an object's tables are whole, it is built for this machine, and it defines `symbols`. Without ELF, always."""
    host_header = _read_python_executable_header()
    if host_header[:4] != _MAGIC:
        return True
    try:
        same_machine = image[:6] == host_header[:6] and image[18:20] == host_header[18:20]  # class, byte order and processor
        return same_machine and _segments_and_sections_lie_within_file(image) and defined_symbols(image).issuperset(symbols)
    except (ValueError, IndexError, OverflowError, struct.error):  # a table that points outside the file, a name that is not text
        return False


@functools.cache
def _read_python_executable_header() -> bytes:
    """Return the first bytes of the running Python executable."""
    try:
        with open(sys.executable, "rb") as f:
            return f.read(20)
    except OSError:
        return b""


def _segments_and_sections_lie_within_file(image: bytes) -> bool:
    """Return True if every loaded segment and section lies within the file; a truncated file lost its section table."""
    offset, entry_size, count = struct.unpack_from("<Q14xHH", image, 32)
    segments = [struct.unpack_from("<I4xQ16xQ", image, offset + k * entry_size) for k in range(count)]
    parts = [(start, size) for kind, start, size in segments if kind == _LOADED]
    parts += [(start, size) for _, kind, _, _, start, size, *_ in _read_section_headers(image) if kind != _NOBITS]
    return all(start + size <= len(image) for start, size in parts)


def _read_section_headers(image: bytes) -> list[tuple[int, ...]]:
    """Return the section headers."""
    offset, entry_size, count = struct.unpack_from("<Q10xHH", image, 40)
    return [struct.unpack_from("<IIQQQQIIQQ", image, offset + k * entry_size) for k in range(count)]


def _read_symbols_with_sections(image: bytes) -> set[tuple[str, int]]:
    """Return every symbol's name with its section number."""
    if image[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF object")
    headers = _read_section_headers(image)
    symbols: set[tuple[str, int]] = set()
    for _, kind, _, _, start, size, link, *_ in headers:
        if kind == _SYMTAB:
            symbols |= _read_symbol_table(image, start, size, headers[link][4])
    return symbols


def _read_symbol_table(image: bytes, start: int, size: int, string_table_start: int) -> set[tuple[str, int]]:
    names = set()
    for entry in range(start, start + size, 24):
        name, _, _, section = struct.unpack_from("<IBBH", image, entry)
        if name:
            end = image.index(b"\0", string_table_start + name)
            names.add((image[string_table_start + name : end].decode(), section))
    return names
