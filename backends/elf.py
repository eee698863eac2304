"""A reader of ELF files: sections, symbols and relocations, of 32 or 64 bits and either byte order.

It reads only as much of the format as is needed to check that emitted code is freestanding, that an object may be linked here, and
to link an object for another processor. Source: System V ABI, chapters 4 and 5.
"""

from __future__ import annotations

import functools
import struct
import sys
from typing import NamedTuple

_MAGIC = b"\x7fELF"
_SYMTAB, _RELA, _NOBITS, _REL, _LOADED = 2, 4, 8, 9, 1
#: The section number of a symbol that an object needs and does not define.
UNDEFINED = 0
#: The flag of a section that has memory at run time.
_ALLOCATED = 2


class ElfSection(NamedTuple):
    """A section. `start` and `size` are its bytes in the file, unless it has none (`is_zeros`)."""

    kind: int
    flags: int
    start: int
    size: int
    link: int
    info: int
    alignment: int

    @property
    def is_zeros(self) -> bool:
        """True if the section starts as zeros, without bytes in the file."""
        return self.kind == _NOBITS

    @property
    def has_memory(self) -> bool:
        """True if the section has memory at run time."""
        return bool(self.flags & _ALLOCATED)


class Symbol(NamedTuple):
    """A symbol: its section's number, and its offset in the section (of an object)."""

    name: str
    section: int
    value: int


class Relocation(NamedTuple):
    """A place to fill in: section and offset, the kind, the number of the symbol, and what to add (None: what stands there)."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int | None


class ElfFile:
    """An ELF file. Raises ValueError on another format, and struct.error or IndexError where a table leaves the file."""

    def __init__(self, image: bytes) -> None:
        if image[:4] != _MAGIC or image[4:5] not in (b"\x01", b"\x02") or image[5:6] not in (b"\x01", b"\x02"):
            raise ValueError("not an ELF object")
        self.image = image
        self.is_64_bit = image[4] == 2
        self.order = "<" if image[5] == 1 else ">"
        (self.machine,) = self._unpack("H", 18)
        self.sections = [
            ElfSection(kind, flags, start, size, link, info, alignment)
            for _, kind, flags, _, start, size, link, info, alignment, _ in self._read_table("IIQQQQIIQQ", "10I", 40, 58, 32, 46)
        ]

    def _unpack(self, form: str, offset: int) -> tuple[int, ...]:
        return struct.unpack_from(self.order + form, self.image, offset)

    def _read_table(
        self, wide: str, narrow: str, at_wide: int, sizes_wide: int, at_narrow: int, sizes_narrow: int
    ) -> list[tuple[int, ...]]:
        """Return a table's entries; the header holds its offset, and elsewhere the size and number of its entries."""
        (start,) = self._unpack("Q", at_wide) if self.is_64_bit else self._unpack("I", at_narrow)
        size, count = self._unpack("HH", sizes_wide if self.is_64_bit else sizes_narrow)
        return [self._unpack(wide if self.is_64_bit else narrow, start + k * size) for k in range(count)]

    def contents(self, section: ElfSection) -> bytes:
        """Return the bytes of a section. Raises ValueError if they are not in the file."""
        if section.is_zeros:
            return bytes(section.size)
        if section.start + section.size > len(self.image):
            raise ValueError("a section leaves the file")
        return self.image[section.start : section.start + section.size]

    @functools.cached_property
    def symbols(self) -> list[Symbol]:
        """The entries of the symbol tables, in order."""
        found: list[Symbol] = []
        for s in self.sections:
            if s.kind == _SYMTAB:
                strings = self.sections[s.link].start
                found += [self._read_symbol(s.start + k, strings) for k in range(0, s.size, 24 if self.is_64_bit else 16)]
        return found

    def _read_symbol(self, entry: int, strings: int) -> Symbol:
        if self.is_64_bit:
            name, _, _, section, value, _ = self._unpack("IBBHQQ", entry)
        else:
            name, value, _, _, _, section = self._unpack("IIIBBH", entry)
        at = strings + name
        return Symbol(self.image[at : self.image.index(b"\0", at)].decode() if name else "", section, value)

    @functools.cached_property
    def relocations(self) -> list[Relocation]:
        """The relocations of all sections."""
        return [r for s in self.sections if s.kind in (_REL, _RELA) for r in self._read_relocations(s)]

    def _read_relocations(self, table: ElfSection) -> list[Relocation]:
        word, shift, mask = ("Q", 32, 0xFFFFFFFF) if self.is_64_bit else ("I", 8, 0xFF)
        form = word * 2 + (word.lower() if table.kind == _RELA else "")
        entries = [self._unpack(form, table.start + k) for k in range(0, table.size, struct.calcsize("=" + form))]
        return [
            Relocation(table.info, offset, info & mask, info >> shift, *(addend or (None,))) for offset, info, *addend in entries
        ]

    def lies_within_file(self) -> bool:
        """Return True if every loaded segment and section lies within the file; a truncated file lost its section table."""
        segments = self._read_table("I4xQ16xQ", "II8xI", 32, 54, 28, 42)
        parts = [(start, size) for kind, start, size in segments if kind == _LOADED]
        parts += [(s.start, s.size) for s in self.sections if not s.is_zeros]
        return all(start + size <= len(self.image) for start, size in parts)


#: An ELF file of these bytes. The last few are kept: an object is checked, and then linked.
parse_elf = functools.lru_cache(maxsize=8)(ElfFile)


def undefined_symbols(image: bytes) -> tuple[str, ...]:
    """Return the names, sorted, that an object refers to and does not define. Raises ValueError on another format than ELF."""
    return tuple(sorted({s.name for s in parse_elf(image).symbols if s.name and s.section == UNDEFINED}))


def defined_symbols(image: bytes) -> frozenset[str]:
    """Return the names that an object defines. Raises ValueError as `undefined_symbols` does."""
    return frozenset(s.name for s in parse_elf(image).symbols if s.name and s.section != UNDEFINED)


def defines_symbol(image: bytes, symbol: str) -> bool:
    """Return True if an image is an ELF file that defines a symbol."""
    return image.startswith(_MAGIC) and symbol in defined_symbols(image)


def is_linkable_or_host_lacks_elf(image: bytes, *symbols: str) -> bool:
    """Return True if an object's tables are whole, it is built for this machine, and it defines `symbols`. Without ELF, always."""
    host_header = _read_python_executable_header()
    if host_header[:4] != _MAGIC:
        return True
    try:
        same_machine = image[:6] == host_header[:6] and image[18:20] == host_header[18:20]  # class, byte order and processor
        return same_machine and parse_elf(image).lies_within_file() and defined_symbols(image).issuperset(symbols)
    except (ValueError, IndexError, OverflowError, struct.error):  # a table that points outside the file, a name that is not text
        return False


@functools.cache
def _read_python_executable_header() -> bytes:
    """Return the first bytes of the running Python executable, or none if it is unknown."""
    try:
        with open(sys.executable or "", "rb") as f:
            return f.read(20)
    except OSError:
        return b""
