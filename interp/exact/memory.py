"""Reads and writes of storage, with happens-before order and race detection (R51, R52, R54, R55, R59, R61)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from uops.interp.exact.answers import AnswerSet
from uops.interp.exact.values import Array, ExactAccess, ExactRef, ExactStorage, make_array
from uops.spec.errors import Trap

#: A mask with one bit set: that of the number of an access.
AccessBit = int


class LoadedArray(NamedTuple):
    """The elements that a Load read, and the bit of its access."""

    array: Array
    access_bit: AccessBit


class ExactMemory:
    """All storage of a run.

    Accesses are numbered. A `happened_before` mask has bit k set if access k happened before.
    """

    def __init__(self) -> None:
        self.storages: dict[str, ExactStorage] = {}
        self._count = 0

    def _check_race_and_record_access(
        self, storage: ExactStorage, addresses: Iterable[int], write: bool, happened_before: int
    ) -> AccessBit:
        """Record an access and return its bit. Raises Trap if it races with an access that did not happen before it (R55)."""
        access = ExactAccess(self._count, write, frozenset(addresses))
        for other in storage.accesses:
            ordered = happened_before >> other.number & 1
            if (write or other.write) and not ordered and not access.touched.isdisjoint(other.touched):
                kinds = f"{'write' if other.write else 'read'} and {'write' if write else 'read'}"
                raise Trap(f"R55: unordered {kinds} of one element of {storage.name}")
        storage.accesses.append(access)
        self._count += 1
        return 1 << access.number

    def implicit_load_once(self, ref: ExactRef) -> Array:
        """Return the value of a reference that is used as a value: it is read once per node (R27, R51)."""
        if ref.value is None:
            ref.value, ref.access = self.check_race_and_load(ref, ref.happened_before)
        return ref.value

    def check_race_and_load(
        self, ref: ExactRef, happened_before: int, gate: Sequence[bool] | None = None, alt: Sequence[AnswerSet] = ()
    ) -> LoadedArray:
        """Return the elements of `ref` where the gate is true (None: all) and `alt` elsewhere, and the bit of the access.

        Where the gate is false the address is not touched (R52).
        """
        is_open = [gate is None or gate[k] for k in range(len(ref.places))]
        places = [self._addresses_of_element_or_trap_outside(ref, k) if is_open[k] else () for k in range(len(ref.places))]
        bit = self._check_race_and_record_access(ref.storage, (address for p in places for address in p), False, happened_before)
        elements = [
            ref.storage.read_element_or_trap_if_unwritten(p, ref.dtype) if is_open[k] else alt[k] for k, p in enumerate(places)
        ]
        return LoadedArray(make_array(ref.dtype, ref.shape, elements), bit)

    def check_race_and_store(
        self, ref: ExactRef, value: Sequence[AnswerSet], happened_before: int, gate: Sequence[bool] | None = None
    ) -> AccessBit:
        """Write the elements whose gate is true, one after the other, and return the bit of the access.

        The last value that is written to an element stays (R164).
        """
        written = [k for k in range(len(ref.places)) if gate is None or gate[k]]
        places = [self._addresses_of_element_or_trap_outside(ref, k) for k in written]
        bit = self._check_race_and_record_access(ref.storage, (address for p in places for address in p), True, happened_before)
        for k, p in zip(written, places, strict=True):
            ref.storage.write_element(p, value[k])
        ref.storage.written = True
        return bit

    @staticmethod
    def _addresses_of_element_or_trap_outside(ref: ExactRef, element_index: int) -> tuple[int, ...]:
        """Return the byte addresses of an element of a reference. Raises Trap for an element out of bounds (R45)."""
        place = ref.places[element_index]
        if place is None:
            raise Trap(f"R45: access outside {ref.storage.name} (element {element_index} of a view of shape {ref.shape})")
        return place
