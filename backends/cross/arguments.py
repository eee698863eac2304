"""Arguments of a kernel as copies in an engine's memory, in the engine's byte order.

Takes: host addresses of lent arrays, and what a kernel does with its arguments. Gives: the two tables of a call
(`uops.backends.calling`), and afterwards what the kernel wrote. Host memory is current before and after each launch. So memory that
programs use at several item sizes needs no order of its own. Arguments that overlap share one copy.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from uops.backends.cross.code import Engine
from uops.backends.cross.processors import BIG
from uops.backends.facts import find_written_slots, value_bounds
from uops.backends.lending import LentSpan, MemoryLender
from uops.compiler.runtime.arguments import is_variable
from uops.spec.errors import Crash, Unsupported
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Alignment of an argument's copy, to which the host address's rest is added.
_ALIGNMENT = 64
#: Bytes behind each copy that no kernel may write, and what they hold.
_GAP = 64
_FILLING = b"\xa5" * _GAP


class ArrayArgument(NamedTuple):
    """An array argument of a kernel: the slot, the bytes of an element and of all elements, and whether some are written.

    Text: `slot:item:bytes:r` or `...:w`.
    """

    slot: int
    item: int
    size: int
    is_written: bool

    def __str__(self) -> str:
        return f"{self.slot}:{self.item}:{self.size}:{'w' if self.is_written else 'r'}"

    @classmethod
    def parse(cls, text: str) -> ArrayArgument:
        """Read what `str` gives. Raises ValueError."""
        slot, item, size, access = text.split(":")
        return cls(int(slot), int(item), int(size), access == "w")


def describe_array_arguments(linear: UOp) -> list[ArrayArgument]:
    """Return the arguments of a kernel that are arrays, by slot. Raises Unsupported for one of elements of two sizes."""
    written = find_written_slots(linear.instructions)
    kinds: dict[int, ArrayArgument] = {}
    for u in linear.instructions:
        if u.op is Op.PARAM and not is_variable(u):
            slot, item, size = u.arg.slot, u.dtype.itemsize, u.dtype.itemsize * _max_elements(u)
            before = kinds.get(slot)
            if before is not None and before.item != item:
                raise Unsupported(f"an argument with elements of {before.item} and of {item} bytes", "cross")
            kinds[slot] = ArrayArgument(slot, item, max(size, before.size if before else 0), slot in written)
    return [kinds[slot] for slot in sorted(kinds)]


def _max_elements(param: UOp) -> int:
    """Return the most elements that an array can have."""
    return math.prod(n if isinstance(n, int) else int(value_bounds(n)[1]) for n in param.shape)


class HostMemory(MemoryLender[LentSpan]):
    """The arrays that are lent at present, which tell how far an argument reaches."""

    def open_span(self, start: int, stop: int) -> LentSpan:
        """Remember a range of host memory."""
        return LentSpan(start, stop)

    def return_spans(self, spans: Sequence[LentSpan]) -> None:
        """Do nothing: host memory is current after each launch."""

    def close_span(self, span: LentSpan) -> None:
        """Do nothing: the engine has no copy."""


class _Region(NamedTuple):
    """Host addresses [start, stop) that arguments cover, and whether they are written.

    `item` is the number of bytes whose order is reversed: 1, or an element's on a processor with another order.
    """

    item: int
    start: int
    stop: int
    is_written: bool


def run_with_copies(
    engine: Engine, memory: HostMemory, function: int, kinds: Sequence[ArrayArgument], buffers: Sequence[int],
    scalars: Sequence[int],
) -> None:  # fmt: skip
    """Run a kernel on copies of its arguments; copy back what it may have written.

    Raises Crash if the engine has too little memory, or if the kernel writes behind an argument. Raises Unsupported if the kernel
    writes memory that it also reads with elements of another size, and the processor has another order of bytes.
    """
    reverse = engine.processor.order == BIG
    parts = [
        _Region(k.item if reverse else 1, buffers[k.slot], buffers[k.slot] + _extent(memory, buffers[k.slot], k.size), k.is_written)
        for k in kinds
    ]
    regions = _merge_overlaps_per_item_size_or_refuse(p for p in parts if p.start < p.stop)
    copies, cursor = dict[_Region, int](), engine.data.start
    for region in regions:
        cursor = -(-cursor // _ALIGNMENT) * _ALIGNMENT + region.start % _ALIGNMENT
        copies[region] = cursor
        cursor += region.stop - region.start + _GAP
    tables = -(-cursor // _ALIGNMENT) * _ALIGNMENT
    scalar_table = tables + 8 * (len(buffers) + 1)
    size = scalar_table + 8 * max(1, len(scalars)) - engine.data.start
    if size > len(engine.data):
        raise Crash(f"the arguments of a kernel take {size:,} bytes; the memory of {engine.name} has {len(engine.data):,}")
    for region, copy in copies.items():
        engine.write(copy, _read_region_in_engine_byte_order(region))
        engine.write(copy + region.stop - region.start, _FILLING)
    addresses = [0] * len(buffers)
    for kind, part in zip(kinds, parts, strict=True):
        addresses[kind.slot] = _address_of_part(part, copies)
    _write_tables(engine, tables, addresses, scalar_table, scalars)
    engine.call(function, tables, scalar_table)
    for region, copy in copies.items():
        _require_gap_unwritten(engine, copy + region.stop - region.start)
        if region.is_written:
            _copy_back_in_host_byte_order(engine, region, copy)


def _require_gap_unwritten(engine: Engine, address: int) -> None:
    """Raise Crash if a kernel has written behind an argument."""
    gap = bytearray(_GAP)
    engine.read_into(address, memoryview(gap))
    if gap != _FILLING:
        raise Crash(f"{engine.processor.name}: a kernel writes behind the end of an argument")


def _extent(memory: HostMemory, address: int, size: int) -> int:
    """Return the bytes of an argument: no more than the kernel accesses, and no more than are lent."""
    span = memory.find_span(address) if size else None
    return min(size, span.stop - address) if span else 0


def _merge_overlaps_per_item_size_or_refuse(parts: Iterable[_Region]) -> list[_Region]:
    """Return regions of which those of one element size are disjoint.

    Raises Unsupported where memory that is written has elements of two sizes.
    """
    merged: list[_Region] = []
    for part in sorted(parts):
        last = merged[-1] if merged else None
        if last is None or part.item != last.item or part.start >= last.stop:
            merged.append(part)
        elif (part.start - last.start) % part.item:
            raise Unsupported(f"memory of one kernel in which elements of {part.item} bytes overlap in part", "cross")
        else:
            merged[-1] = _Region(last.item, last.start, max(last.stop, part.stop), last.is_written or part.is_written)
    for x, y in combinations(merged, 2):
        if x.item != y.item and x.start < y.stop and y.start < x.stop and (x.is_written or y.is_written):
            raise Unsupported(f"memory that one kernel writes, with elements of {x.item} and of {y.item} bytes", "cross")
    return merged


def _address_of_part(part: _Region, copies: Mapping[_Region, int]) -> int:
    """Return the engine's address of an argument; 0 for one without elements."""
    return next((c + part.start - r.start for r, c in copies.items() if r.item == part.item and r.start <= part.start < r.stop), 0)


def _view_host_memory_as_bytes(region: _Region) -> Any:
    """Return a region of host memory as bytes."""
    size = region.stop - region.start
    memory: Any = (ctypes.c_uint8 * size).from_address(region.start)
    return np.frombuffer(memory, np.uint8)


def _read_region_in_engine_byte_order(region: _Region) -> memoryview:
    """Return a region's bytes in the engine's order."""
    array = _view_host_memory_as_bytes(region)
    if region.item > 1:
        array = np.ascontiguousarray(array.reshape(-1, region.item)[:, ::-1])
    return memoryview(array).cast("B")


def _copy_back_in_host_byte_order(engine: Engine, region: _Region, address: int) -> None:
    """Copy what a kernel wrote to host memory."""
    array = _view_host_memory_as_bytes(region)
    engine.read_into(address, memoryview(array))
    if region.item > 1:
        elements = array.reshape(-1, region.item)
        elements[:] = elements[:, ::-1].copy()


def _write_tables(engine: Engine, table: int, buffers: Sequence[int], scalar_table: int, scalars: Sequence[int]) -> None:
    """Write the table of addresses, in pointers of the processor, and that of scalars, in 64 bits."""
    order, width = engine.processor.order, engine.processor.pointer_bytes
    engine.write(table, np.array(buffers or [0], f"{order}u{width}").tobytes())
    values = np.array([s & (1 << 64) - 1 for s in scalars] or [0], np.uint64)
    engine.write(scalar_table, values.astype(f"{order}u8").tobytes())
