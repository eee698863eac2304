"""A linker for kernels, of this processor and of others: an ELF object, placed at an address, with its relocations applied.

Takes: an object, an address and the addresses of functions that it may call. Gives: the bytes at that address, and the addresses of
its functions. Raises Crash for what it does not know. Sources: the ELF supplements of the x86-64, AArch64, RISC-V, s390x and i386
ABIs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple

from uops.backends.elf import UNDEFINED, ElfFile, Relocation, parse_elf
from uops.spec.errors import Crash

#: The section number of a symbol that is a number.
_ABSOLUTE = 0xFFF1
#: Greatest alignment of a section in bytes; a damaged object may ask for any.
_MOST_ALIGNMENT = 1 << 16
#: Numbers of processors (`ElfFile.machine`).
X86_64 = 62
_AARCH64, _RISCV, _S390, _I386 = 183, 243, 22, 3


class LinkedImage(NamedTuple):
    """Linked code: its bytes, and the address of each symbol that it defines."""

    data: bytes
    symbols: dict[str, int]


class Place(NamedTuple):
    """A relocation's place: the image, the offset in it, and the addresses of the place (`p`) and of what it refers to (`s`).

    `upper_distances` has, on RISC-V, the distance to a symbol by the address of the instruction with its upper part.
    """

    image: bytearray
    at: int
    p: int
    s: int
    order: str
    upper_distances: dict[int, int]

    def patch(self, form: str, mask: int, bits: int) -> None:
        """Replace the bits under `mask` of the number at the place."""
        (old,) = struct.unpack_from(self.order + form, self.image, self.at)
        struct.pack_into(self.order + form, self.image, self.at, old & ~mask | bits & mask)

    def require_range(self, value: int, bits: int) -> int:
        """Return a signed value of that many bits. Raises Crash if it has more."""
        if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise Crash(f"linking: a distance of {value} needs more than {bits} bits")
        return value


Apply = Callable[[Place], None]


def _store(form: str, *, relative: bool = False) -> Apply:
    """Return a function that stores an address, or a distance, of the size of `form`."""
    size = 8 * struct.calcsize(form)

    def apply(x: Place) -> None:
        value = x.require_range(x.s - x.p, size) if relative else x.s
        x.patch(form, (1 << size) - 1, value)

    return apply


def _add(form: str, sign: int) -> Apply:
    """Return a function that adds an address to the number at the place, or subtracts it."""
    size = 8 * struct.calcsize(form)

    def apply(x: Place) -> None:
        (old,) = struct.unpack_from(x.order + form, x.image, x.at)
        x.patch(form, (1 << size) - 1, old + sign * x.s)

    return apply


# AArch64: instructions have 32 bits.


def _branch_aarch64(bits: int, shift: int) -> Apply:
    """Return a function that stores a distance in instructions, of `bits` bits at `shift`."""

    def apply(x: Place) -> None:
        x.patch("I", ((1 << bits) - 1) << shift, x.require_range((x.s - x.p) >> 2, bits) << shift)

    return apply


def _page_aarch64(x: Place) -> None:
    pages = x.require_range((x.s >> 12) - (x.p >> 12), 21)
    x.patch("I", 0x60FFFFE0, (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5)


def _low12_aarch64(scale: int) -> Apply:
    """Return a function that stores an address's lower 12 bits, divided by the size of an access."""
    return lambda x: x.patch("I", 0xFFF << 10, (x.s & 0xFFF) >> scale << 10)


# RISC-V: distances are split into an upper part of 20 bits and a signed lower one of 12.


def _upper(distance: int) -> int:
    return (distance + 0x800) & ~0xFFF


def _distance_in_two_parts(x: Place) -> int:
    """Return the distance of a symbol. Raises Crash if its upper part needs more bits, into which the lower one carries."""
    return x.require_range(x.s - x.p + 0x800, 32) - 0x800


def _call_riscv(x: Place) -> None:
    distance = _distance_in_two_parts(x)
    x.patch("I", 0xFFFFF000, _upper(distance))
    Place(x.image, x.at + 4, x.p, x.s, x.order, x.upper_distances).patch("I", 0xFFF00000, (distance & 0xFFF) << 20)


def _upper_relative_riscv(x: Place) -> None:
    distance = x.upper_distances[x.p] = _distance_in_two_parts(x)
    x.patch("I", 0xFFFFF000, _upper(distance))


def _low_load_riscv(relative: bool) -> Apply:
    """Return a function that stores the lower part in a load or an addition."""
    return lambda x: x.patch("I", 0xFFF00000, (x.upper_distances[x.s] if relative else x.s) << 20)


def _low_store_riscv(relative: bool) -> Apply:
    """Return a function that stores the lower part in a store, in two pieces."""

    def apply(x: Place) -> None:
        low = x.upper_distances[x.s] if relative else x.s
        x.patch("I", 0xFE000F80, (low >> 5 & 0x7F) << 25 | (low & 31) << 7)

    return apply


def _scatter_bits(value: int, *pieces: tuple[int, int, int]) -> int:
    """Return bits of a value at other places; a piece is its lowest bit, its size, and its place."""
    return sum((value >> low & (1 << size) - 1) << to for low, size, to in pieces)


def _branch_riscv(x: Place) -> None:
    d = x.require_range(x.s - x.p, 13)
    x.patch("I", 0xFE000F80, _scatter_bits(d, (12, 1, 31), (5, 6, 25), (1, 4, 8), (11, 1, 7)))


def _jump_riscv(x: Place) -> None:
    d = x.require_range(x.s - x.p, 21)
    x.patch("I", 0xFFFFF000, _scatter_bits(d, (20, 1, 31), (1, 10, 21), (11, 1, 20), (12, 8, 12)))


def _short_branch_riscv(x: Place) -> None:
    d = x.require_range(x.s - x.p, 9)
    x.patch("H", 0x1C7C, _scatter_bits(d, (8, 1, 12), (3, 2, 10), (6, 2, 5), (1, 2, 3), (5, 1, 2)))


def _short_jump_riscv(x: Place) -> None:
    d = x.require_range(x.s - x.p, 12)
    moves = (11, 1, 12), (4, 1, 11), (8, 2, 9), (10, 1, 8), (6, 1, 7), (7, 1, 6), (1, 3, 3), (5, 1, 2)
    x.patch("H", 0x1FFC, _scatter_bits(d, *moves))


def _half_distance(form: str) -> Apply:
    """Return a function that stores a distance in units of two bytes (s390x)."""
    size = 8 * struct.calcsize(form)
    return lambda x: x.patch(form, (1 << size) - 1, x.require_range((x.s - x.p) >> 1, size))


def _nothing(x: Place) -> None:
    """Do nothing: the relocation only permits the linker to shorten code."""


#: Machine -> kind of relocation -> what it does.
_KINDS: dict[int, dict[int, Apply]] = {
    _AARCH64: {
        257: _store("Q"), 258: _store("I"), 260: _store("Q", relative=True), 261: _store("I", relative=True),
        275: _page_aarch64, 277: _low12_aarch64(0), 278: _low12_aarch64(0), 284: _low12_aarch64(1), 285: _low12_aarch64(2),
        286: _low12_aarch64(3), 299: _low12_aarch64(4), 279: _branch_aarch64(14, 5), 280: _branch_aarch64(19, 5),
        282: _branch_aarch64(26, 0), 283: _branch_aarch64(26, 0),
    },
    _RISCV: {
        1: _store("I"), 2: _store("Q"), 16: _branch_riscv, 17: _jump_riscv, 18: _call_riscv, 19: _call_riscv,
        23: _upper_relative_riscv, 24: _low_load_riscv(True), 25: _low_store_riscv(True),
        26: lambda x: x.patch("I", 0xFFFFF000, _upper(x.s)), 27: _low_load_riscv(False), 28: _low_store_riscv(False),
        33: _add("B", 1), 34: _add("H", 1), 35: _add("I", 1), 36: _add("Q", 1),
        37: _add("B", -1), 38: _add("H", -1), 39: _add("I", -1), 40: _add("Q", -1),
        43: _nothing, 44: _short_branch_riscv, 45: _short_jump_riscv, 51: _nothing, 57: _store("I", relative=True),
    },
    _S390: {
        4: _store("I"), 5: _store("I", relative=True), 22: _store("Q"), 23: _store("Q", relative=True),
        17: _half_distance("H"), 18: _half_distance("H"), 19: _half_distance("I"), 20: _half_distance("I"),
    },
    X86_64: {1: _store("Q"), 2: _store("I", relative=True), 4: _store("I", relative=True), 24: _store("Q", relative=True)},
    _I386: {1: _store("I"), 2: _store("I", relative=True), 4: _store("I", relative=True)},
}  # fmt: skip
#: RISC-V's kinds whose symbol is the instruction with the upper part; they come after that one.
_LOW_PARTS = (24, 25)


def knows_relocations(elf: ElfFile) -> bool:
    """Return True if every kind of relocation of an object is known."""
    return {r.kind for r in elf.relocations} <= _KINDS.get(elf.machine, {}).keys()


def link_object(image: bytes, base: int | Callable[[int], int], functions: Mapping[str, int]) -> LinkedImage:
    """Place the sections of an object from the address `base` on, or from the one that the function `base` returns for their bytes.

    Raises Crash if a symbol or a kind of relocation is unknown, or if the object is damaged.
    """
    try:
        return _link_whole_object(parse_elf(image), base, functions)
    except (ValueError, IndexError, KeyError, OverflowError, struct.error) as e:  # a table points outside of the file
        raise Crash(f"linking: the object is damaged: {e}") from e


def _link_whole_object(elf: ElfFile, base: int | Callable[[int], int], functions: Mapping[str, int]) -> LinkedImage:
    starts, size = dict[int, int](), 0
    for k, section in enumerate(elf.sections):
        if section.has_memory:
            if section.alignment > _MOST_ALIGNMENT:
                raise ValueError(f"a section is aligned to {section.alignment} bytes")
            size = -(-size // max(1, section.alignment)) * max(1, section.alignment)
            starts[k] = size
            size += section.size
    contents = {k: elf.contents(elf.sections[k]) for k in starts}
    address = base if isinstance(base, int) else base(size)
    linked = bytearray(size)
    for k, start in starts.items():
        linked[start : start + elf.sections[k].size] = contents[k]
    values = [_address_of_symbol(elf, k, address, starts, functions) for k in range(len(elf.symbols))]
    _apply_relocations(elf, linked, address, starts, values)
    own = {s.name: v for s, v in zip(elf.symbols, values, strict=True) if s.section != UNDEFINED and s.name and v is not None}
    return LinkedImage(bytes(linked), own)


def _address_of_symbol(elf: ElfFile, k: int, base: int, starts: Mapping[int, int], functions: Mapping[str, int]) -> int | None:
    """Return the address of a symbol; None for one that is nowhere in memory."""
    symbol = elf.symbols[k]
    if symbol.section == UNDEFINED:
        return functions.get(symbol.name)
    if symbol.section == _ABSOLUTE:
        return symbol.value
    return base + starts[symbol.section] + symbol.value if symbol.section in starts else None


def _apply_relocations(elf: ElfFile, linked: bytearray, base: int, starts: Mapping[int, int], values: list[int | None]) -> None:
    """Fill in the places that depend on addresses."""
    kinds, upper_distances = _KINDS.get(elf.machine, {}), dict[int, int]()
    placed = [r for r in elf.relocations if r.section in starts]
    for r in sorted(placed, key=lambda r: elf.machine == _RISCV and r.kind in _LOW_PARTS):
        apply, value = kinds.get(r.kind), values[r.symbol]
        if apply is None:
            raise Crash(f"linking: relocation {r.kind} of ELF machine {elf.machine} is unknown")
        if value is None and r.symbol:
            raise Crash(f"linking: {elf.symbols[r.symbol].name or 'a section without memory'} has no address")
        at = starts[r.section] + r.offset
        apply(Place(linked, at, base + at, (value or 0) + _addend(r, linked, at, elf.order), elf.order, upper_distances))


def _addend(r: Relocation, linked: bytearray, at: int, order: str) -> int:
    """Return what a relocation adds to the address of its symbol."""
    return r.addend if r.addend is not None else struct.unpack_from(order + "i", linked, at)[0]
