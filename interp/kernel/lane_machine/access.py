"""Access to one memory: bounds, elements never written, races, bool bytes (R24, R45, R55, R56, R61).

Every access is checked when it happens, element by element. The history of an element is short: its last write, and the reads
and atomic adds since then. An access that is unordered with one of those, one of the two a write, is a race. Of accesses of one
kind that follow each other only the last is kept, as what comes after it comes after all. A read and a write of one event are
in order: operands are read first (R161), and an opaque instruction does both in the order of its meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from uops.interp.kernel.lane_machine.memory import FlatMemory
from uops.interp.kernel.structure.order import EventOrder, Stamp
from uops.interp.ops.sums import sum_rounding_once
from uops.interp.tensor.storage import NUMPY, Array
from uops.spec.errors import Trap
from uops.spec.ir.dtypes import DType

_BOOL = np.dtype(np.bool_)
#: The bytes of the widest element.
_MAX_ITEM_SIZE = 8


class ElementHistory:
    """The last write of one element, and the reads and atomic adds since."""

    __slots__ = ("adds", "reads", "write")

    def __init__(self) -> None:
        self.write: Stamp | None = None
        self.reads: list[Stamp] = []
        self.adds: list[Stamp] = []


class CheckedMemory:
    """A `FlatMemory` in a run, with the history of its elements.

    `granularity` is the number of bytes that one entry of the history stands for. It divides the byte positions and sizes of all
    accesses. Without `may_be_written` no history is kept.
    """

    def __init__(self, flat: FlatMemory, order: EventOrder, granularity: int, may_be_written: bool) -> None:
        self.flat = flat
        self.order = order
        self.granularity = min(granularity, flat.data.itemsize)
        self.entries_per_element = flat.data.itemsize // self.granularity
        self.bytes: Array = flat.data.view(np.uint8)
        self.views: dict[Any, Array] = {flat.data.dtype: flat.data}
        repeats = self.entries_per_element
        self.ready = None if flat.ready is None else np.repeat(flat.ready, repeats) if repeats > 1 else flat.ready
        self.histories: dict[int, ElementHistory] | None = {} if may_be_written else None
        #: Dtypes and terms of float sums that are not rounded yet, by byte position; no two of them share bytes.
        self.sums: dict[int, tuple[DType, list[float]]] = {}

    def flush_sums_and_ready_marks(self) -> None:
        """Complete the contents and marks of the flat memory."""
        for position, (d, terms) in self.sums.items():
            self._round_sum(position, d, terms)
        self.sums.clear()
        if self.ready is not None and self.entries_per_element > 1 and self.flat.ready is not None:
            self.flat.ready[:] = self.ready.reshape(-1, self.entries_per_element).all(axis=1)

    # One element

    def load(self, byte_position: int, dtype: np.dtype[Any], stamp: Stamp) -> Array:
        """Return the element at a byte position.

        Raises Trap for a race (R55), an element never written (R61), or a bool byte other than 0 and 1 (R24).
        """
        size = dtype.itemsize
        if self.sums:
            self._round_sums_in_bytes(byte_position, size)
        first, last = byte_position // self.granularity, (byte_position + size) // self.granularity
        if self.ready is not None and not self.ready[first:last].all():
            raise self._unwritten_trap(stamp, "reads", first, last)
        if self.histories is not None:
            for k in range(first, last):
                self._check_race_and_record_read(k, stamp)
        self._mark_elements_in_byte_range(self.flat.read_mask, byte_position, size)
        if dtype is _BOOL and self.bytes[byte_position] > 1:
            raise self._trap_at(stamp, f"reads {self.flat.name}, which has a bool byte other than 0 and 1 (R24)")
        view, k = self._view_with_element(byte_position, dtype)
        return view[k, ...].copy()

    def store(self, byte_position: int, value: Array, stamp: Stamp) -> None:
        """Write the element at a byte position. Raises Trap for a race (R55)."""
        size = value.dtype.itemsize
        if self.sums:
            self._round_sums_in_bytes(byte_position, size)
        first, last = byte_position // self.granularity, (byte_position + size) // self.granularity
        for k in range(first, last):
            self._check_race_and_record_write(k, stamp)
        self._mark_written(byte_position, size, first, last)
        view, k = self._view_with_element(byte_position, value.dtype)
        view[k] = value

    def atomic_add(self, byte_position: int, value: Array, d: DType, add: Callable[[Array, Array], Any], stamp: Stamp) -> None:
        """Add to the element at a byte position, as if at once and in any order (R56).

        Float sums stay exact until something reads or writes their bytes, or adds to them in another dtype (R129).
        """
        dtype = value.dtype
        size = dtype.itemsize
        first, last = byte_position // self.granularity, (byte_position + size) // self.granularity
        if self.ready is not None and not self.ready[first:last].all():
            raise self._unwritten_trap(stamp, "adds to", first, last)
        for k in range(first, last):
            self._check_race_and_record_atomic_add(k, stamp)
        self._mark_written(byte_position, size, first, last)
        self._mark_elements_in_byte_range(self.flat.read_mask, byte_position, size)
        if self.sums:
            self._round_sums_in_bytes(byte_position, size, d)
        view, k = self._view_with_element(byte_position, dtype)
        if d.is_float:
            if byte_position not in self.sums:
                self.sums[byte_position] = d, [float(view[k])]
            self.sums[byte_position][1].append(float(value))
        else:
            view[k] = add(view[k, ...], value)

    def _mark_written(self, byte_position: int, size: int, first_entry: int, end_entry: int) -> None:
        """Mark an element as written."""
        if self.ready is not None:
            self.ready[first_entry:end_entry] = True
        self._mark_elements_in_byte_range(self.flat.written_mask, byte_position, size)

    def _round_sums_in_bytes(self, byte_position: int, size: int, added: DType | None = None) -> None:
        """Round the float sums that share bytes with an element into the memory, except its own sum in dtype `added`."""
        for position in range(byte_position + self.granularity - _MAX_ITEM_SIZE, byte_position + size, self.granularity):
            pending = self.sums.get(position)
            if pending is None or (position == byte_position and pending[0] is added):
                continue
            if position + pending[0].itemsize > byte_position:
                self._round_sum(position, *self.sums.pop(position))

    def _round_sum(self, byte_position: int, d: DType, terms: list[float]) -> None:
        """Write the sum of `terms` to the element at a byte position."""
        view, k = self._view_with_element(byte_position, NUMPY[d])
        view[k] = sum_rounding_once(terms, d)

    def _view_with_element(self, byte_position: int, dtype: np.dtype[Any]) -> tuple[Array, int]:
        """Return an array of `dtype` that is the memory or a part of it, and where it has the element at a byte position."""
        k, misalignment = divmod(byte_position, dtype.itemsize)
        if misalignment:
            return self.bytes[byte_position : byte_position + dtype.itemsize].view(dtype), 0
        view = self.views.get(dtype)
        if view is None:
            usable = self.bytes[: self.bytes.size // dtype.itemsize * dtype.itemsize]
            view = self.views[dtype] = usable.view(dtype)
        return view, k

    def _mark_elements_in_byte_range(self, marks: Array, byte_position: int, size: int) -> None:
        """Mark the elements that an access of `size` bytes touches."""
        itemsize = self.flat.data.itemsize
        if size == itemsize and not byte_position % itemsize:
            marks[byte_position // itemsize] = True
        else:
            marks[byte_position // itemsize : -(-(byte_position + size) // itemsize)] = True

    # Races

    def _history_of(self, entry: int) -> ElementHistory:
        """Return the history of an entry, made on first use."""
        assert self.histories is not None
        history = self.histories.get(entry)
        if history is None:
            history = self.histories[entry] = ElementHistory()
        return history

    def _check_race_and_record_read(self, entry: int, stamp: Stamp) -> None:
        """Log a read of an entry. Raises Trap for a race."""
        history, before = self._history_of(entry), self.order.happens_before
        if history.write is not None and history.write != stamp and not before(history.write, stamp):
            raise self._race_trap(entry, history.write, stamp)
        for add in history.adds:
            if not before(add, stamp):
                raise self._race_trap(entry, add, stamp)
        _append_or_replace_latest_event(history.reads, stamp, before)

    def _check_race_and_record_atomic_add(self, entry: int, stamp: Stamp) -> None:
        """Log an AtomicAdd to an entry. Raises Trap for a race."""
        history, before = self._history_of(entry), self.order.happens_before
        if history.write is not None and not before(history.write, stamp):
            raise self._race_trap(entry, history.write, stamp)
        for read in history.reads:
            if read != stamp and not before(read, stamp):
                raise self._race_trap(entry, read, stamp)
        _append_or_replace_latest_event(history.adds, stamp, before)

    def _check_race_and_record_write(self, entry: int, stamp: Stamp) -> None:
        """Log a write of an entry. Raises Trap for a race."""
        history, before = self._history_of(entry), self.order.happens_before
        if history.write is not None and not before(history.write, stamp):
            raise self._race_trap(entry, history.write, stamp)
        for earlier in (history.reads, history.adds):
            for event in earlier:
                if event != stamp and not before(event, stamp):
                    raise self._race_trap(entry, event, stamp)
            earlier.clear()
        history.write = stamp

    def _race_trap(self, entry: int, a: Stamp, b: Stamp) -> Trap:
        """Return the Trap for a race of events `a` and `b`."""
        where = f"element {self._element(entry)} of {self.flat.name}"
        if a == b:
            return LocatedTrap(f"{self.order.describe_event(a)} writes {where} twice (R51, R55)")
        return LocatedTrap(
            f"race on {where}: {self.order.describe_event(a)} and {self.order.describe_event(b)} are unordered (R55)"
        )

    def _unwritten_trap(self, stamp: Stamp, verb: str, first_entry: int, end_entry: int) -> Trap:
        """Return the Trap for an access to entries that hold no value."""
        assert self.ready is not None
        k = self._element(first_entry + int(np.argmin(self.ready[first_entry:end_entry])))
        why = self.flat.explain_missing(k) if self.flat.explain_missing is not None else ""
        return self._trap_at(stamp, f"{verb} element {k} of {self.flat.name}, which {why or 'was never written (R61)'}")

    def _element(self, entry: int) -> int:
        """Return the element that an entry belongs to."""
        return entry // self.entries_per_element

    def _trap_at(self, stamp: Stamp, problem: str) -> Trap:
        """Return a Trap that names the event and the problem."""
        return LocatedTrap(f"{self.order.describe_event(stamp)} {problem}")


def _append_or_replace_latest_event(earlier: list[Stamp], stamp: Stamp, happens_before: Callable[[Stamp, Stamp], bool]) -> None:
    """Add an event to the earlier ones of its kind, replacing the last of them if that happens before it."""
    if earlier and (earlier[-1] is stamp or happens_before(earlier[-1], stamp)):
        earlier[-1] = stamp
    else:
        earlier.append(stamp)


class LocatedTrap(Trap):
    """A Trap whose message names the place in the kernel."""
