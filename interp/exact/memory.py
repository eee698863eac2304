"""Reads and writes of storage, with happens-before order and race detection (R51, R52, R54, R55, R59, R61)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from uops.interp.exact.answers import Answer
from uops.interp.exact.values import Access, Array, Ref, Storage, array
from uops.spec.errors import Trap


class Memory:
    """All storage of a run. Accesses are numbered; an access mask has bit k set where access k happened before."""

    def __init__(self) -> None:
        self.storages: dict[str, Storage] = {}
        self._count = 0

    def _access(self, storage: Storage, touched: Iterable[int], write: bool, mask: int) -> int:
        """Record an access; Trap if it races with one that is not ordered before it (R55). Gives its bit."""
        here = Access(self._count, write, frozenset(touched))
        for other in storage.accesses:
            ordered = mask >> other.number & 1
            if (write or other.write) and not ordered and not here.touched.isdisjoint(other.touched):
                kinds = f"{'write' if other.write else 'read'} and {'write' if write else 'read'}"
                raise Trap(f"R55: unordered {kinds} of one element of {storage.name}")
        storage.accesses.append(here)
        self._count += 1
        return 1 << here.number

    def implicit_load(self, ref: Ref) -> Array:
        """The value of a reference used as a value: read once per node (R27, R51)."""
        if ref.value is None:
            ref.value, ref.access = self.load(ref, ref.mask)
        return ref.value

    def load(self, ref: Ref, mask: int, gate: Sequence[bool] | None = None, alt: Sequence[Answer] = ()) -> tuple[Array, int]:
        """Elements where the gate holds (no gate: all), `alt` elsewhere; a closed gate leaves the address alone (R52)."""
        live = [gate is None or gate[k] for k in range(len(ref.places))]
        places = [self._place(ref, k) if on else () for k, on in enumerate(live)]
        bit = self._access(ref.storage, (b for p in places for b in p), False, mask)
        out = [ref.storage.get(p, ref.dtype) if on else alt[k] for k, (p, on) in enumerate(zip(places, live, strict=True))]
        return array(ref.dtype, ref.shape, out), bit

    def store(self, ref: Ref, value: Sequence[Answer], mask: int, gate: Sequence[bool] | None = None) -> int:
        """Write the elements whose gate holds, one after the other: the last value of an element stays (R164)."""
        live = [k for k in range(len(ref.places)) if gate is None or gate[k]]
        places = [self._place(ref, k) for k in live]
        touched = [b for p in places for b in p]
        bit = self._access(ref.storage, touched, True, mask)
        for k, p in zip(live, places, strict=True):
            ref.storage.put(p, value[k])
        ref.storage.written = True
        return bit

    @staticmethod
    def _place(ref: Ref, k: int) -> tuple[int, ...]:
        place = ref.places[k]
        if place is None:
            raise Trap(f"R45: access outside {ref.storage.name} (element {k} of a view of shape {ref.shape})")
        return place
