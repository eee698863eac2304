"""Sets in memory: those that Stores leave in a storage, and those that Loads read there."""

from __future__ import annotations

import numpy as np

from uops.interp.allowed.elementwise.branch import apply_bitcast_regrouping_last_axis
from uops.interp.allowed.layout import LAYOUT, LAYOUT_BY_NUMPY, Array
from uops.interp.allowed.value import ArrayOrSets, SetArray, allow_anything, as_set_array, scatter_elements_into, writable_copy
from uops.interp.tensor.memory import StorageRef, TensorStorage, byte_positions_of


class StorageSets:
    """The sets in one storage.

    `sets` has those of the elements where `inexact`; elsewhere the storage's own data is the only value. `inexact_bytes` says per
    byte whether it belongs to a set. It is None until an element is written in parts.
    """

    def __init__(self, storage: TensorStorage) -> None:
        self.layout = LAYOUT_BY_NUMPY[storage.data.dtype]
        n = storage.data.size
        self.sets = writable_copy(as_set_array(self.layout, np.zeros(n, self.layout.np)))
        self.inexact = np.zeros(n, np.bool_)
        self.inexact_bytes: Array | None = None

    def copy(self) -> StorageSets:
        """Return an independent copy: a Load may still read the sets from before the next Store."""
        twin = object.__new__(StorageSets)
        twin.layout, twin.sets, twin.inexact = self.layout, writable_copy(self.sets), self.inexact.copy()
        twin.inexact_bytes = None if self.inexact_bytes is None else self.inexact_bytes.copy()
        return twin

    def sets_of_whole_storage(self, data: Array) -> SetArray:
        """Return the sets of all elements; `data` is the contents of the storage."""
        out = writable_copy(as_set_array(self.layout, data))
        positions = np.flatnonzero(self.inexact)
        scatter_elements_into(out, positions, self.sets.map_components(lambda x, lead: x[..., positions]))
        return out

    def _element_indices(self, ref: StorageRef) -> Array:
        """Return the index of the storage's element that holds the first byte of each element of `ref`."""
        return np.asarray(byte_positions_of(ref) // self.layout.np.itemsize)

    def read_sets(self, ref: StorageRef, best: Array) -> SetArray | None:
        """Return the sets of the elements of `ref`, or None if all are exact; `best` are their best values."""
        f, r = self.layout, LAYOUT[ref.node.dtype]
        if r.np.itemsize != f.np.itemsize:
            touched = self._touches_inexact_bytes(ref)
            return allow_anything(r, best, touched) if touched.any() else None
        indices = self._element_indices(ref)
        inexact = self.inexact[indices]
        if not inexact.any():
            return None
        positions = np.flatnonzero(inexact)
        part = self.sets.map_components(lambda x, lead: x[..., indices.reshape(-1)[positions]])
        out = writable_copy(as_set_array(r, best))
        scatter_elements_into(out, positions, part if r is f else apply_bitcast_regrouping_last_axis(f, r, part))
        return out

    def has_nan_with_free_bits(self, ref: StorageRef, best: Array) -> bool:
        """Return True if a float element of `ref` is a NaN made by arithmetic, whose bits are free (R20).

        A reference of another item size counts if it touches any byte of a set.
        """
        value = self.read_sets(ref, best)
        if value is None or LAYOUT[ref.node.dtype].np.itemsize != self.layout.np.itemsize:
            return value is not None
        return bool((np.isnan(value.best) & self.inexact[self._element_indices(ref)]).any())

    def _touches_inexact_bytes(self, ref: StorageRef) -> Array:
        """Return which elements of `ref` have a byte of a set."""
        return np.asarray(self._inexact_byte_mask()[_byte_positions(ref, byte_positions_of(ref))].any(-1))

    def _inexact_byte_mask(self) -> Array:
        return np.repeat(self.inexact, self.layout.np.itemsize) if self.inexact_bytes is None else self.inexact_bytes

    def record_store_or_any_if_gate_inexact(self, ref: StorageRef, value: ArrayOrSets, write_gate: ArrayOrSets | None) -> None:
        """Record a Store of `value`; an element may hold anything if it is not known whether the gate lets it be written."""
        f, r = self.layout, LAYOUT[ref.node.dtype]
        starts = byte_positions_of(ref)
        written = np.ones(starts.shape, np.bool_)
        unsure = np.zeros(starts.shape, np.bool_)
        if write_gate is not None:
            if isinstance(write_gate, SetArray):
                unsure = np.broadcast_to(~write_gate.exact_mask(), starts.shape)
                written = np.broadcast_to(write_gate.best, starts.shape) & ~unsure
            else:
                written = np.broadcast_to(write_gate, starts.shape)
        if not ref.is_injective:
            written, unsure = _clear_masks_where_later_element_overwrites(starts, written, unsure)
        if r.np.itemsize != f.np.itemsize:
            self._record_store_of_other_item_size(ref, value, written, unsure)
            return
        indices = self._element_indices(ref).reshape(-1)
        positions = np.flatnonzero(written)
        self._mark_elements(indices[positions], False)
        if isinstance(value, SetArray):
            part = value.map_components(lambda x, lead: x.reshape(*x.shape[:lead], -1)[..., positions])
            part = part if r is f else apply_bitcast_regrouping_last_axis(r, f, part)
            varied = np.flatnonzero(_has_many_bit_patterns(part))
            scatter_elements_into(self.sets, indices[positions[varied]], part.map_components(lambda x, lead: x[..., varied]))
            self._mark_elements(indices[positions[varied]], True)
        unsure_indices = indices[np.flatnonzero(unsure)]
        self._mark_elements(unsure_indices, True)
        self._set_to_anything(unsure_indices)

    def _mark_elements(self, indices: Array, inexact: bool) -> None:
        """Mark whole elements, and all their bytes, as inexact or exact."""
        self.inexact[indices] = inexact
        if self.inexact_bytes is not None:
            self.inexact_bytes.reshape(len(self.inexact), -1)[indices] = inexact

    def _set_to_anything(self, indices: Array) -> None:
        """Let elements, which are marked as inexact, hold anything."""
        if indices.size:
            scatter_elements_into(self.sets, indices, allow_anything(self.layout, np.zeros(indices.size, self.layout.np)))

    def set_all_to_anything(self) -> None:
        """Let every element hold anything."""
        self._mark_elements(np.arange(self.inexact.size), True)
        self._set_to_anything(np.arange(self.inexact.size))

    def _record_store_of_other_item_size(self, ref: StorageRef, value: ArrayOrSets, written: Array, unsure: Array) -> None:
        """Record a Store through another item size: an element with a byte of a set in it may hold anything."""
        itemsize, starts = self.layout.np.itemsize, byte_positions_of(ref)
        inexact = unsure | (written & _has_many_bit_patterns(value) if isinstance(value, SetArray) else False)
        exact_bytes, inexact_bytes = (_byte_positions(ref, starts[m]).reshape(-1) for m in (written & ~inexact, inexact))
        self.inexact_bytes = self._inexact_byte_mask()
        self.inexact_bytes[exact_bytes], self.inexact_bytes[inexact_bytes] = False, True
        indices = np.unique(np.concatenate([exact_bytes, inexact_bytes]) // itemsize)
        self.inexact[indices] = self.inexact_bytes.reshape(-1, itemsize)[indices].any(1)
        self._set_to_anything(indices[self.inexact[indices]])


def _clear_masks_where_later_element_overwrites(starts: Array, written: Array, unsure: Array) -> tuple[Array, Array]:
    """Clear the masks where a later element of the same Store surely overwrites the element (R164: the last one stays)."""
    _, element = np.unique(starts, return_inverse=True)
    element, order = element.reshape(-1), np.arange(starts.size)
    last = np.full(starts.size, -1)
    writes = np.flatnonzero(written)
    last[element[writes]] = writes
    stays = (order >= last[element]).reshape(starts.shape)
    return written & stays, unsure & stays


def _byte_positions(ref: StorageRef, starts: Array) -> Array:
    """Return the positions of all bytes of elements of `ref` that begin at `starts`."""
    return np.asarray(starts[..., None] + np.arange(ref.node.dtype.itemsize))


def _has_many_bit_patterns(v: SetArray) -> Array:
    """Return where a set has more than one bit pattern; NaN is a class of many (R20)."""
    return np.asarray(~v.exact_mask() | (np.isnan(v.best) if v.layout.is_float else False))
