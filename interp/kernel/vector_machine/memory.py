"""Memory of the vector machine: addresses with axes, the copies that a run works on, and the checks of its accesses.

A `VectorRef` names elements of a memory, one per iteration of the axes around it and per element of its own shape. While the
positions are affine they stay a formula (`StridedRef`), and an access is a view of the data. Otherwise they are an array
(`ScatteredRef`), and an access is a gather or scatter.

A `VectorMemory` never changes the flat memory that it stands for: the first write copies the data. Memory with a copy per
iteration of some axes is one long array, and `copy_offset` is the position at which an iteration's part begins. Every access is
in bounds and every element read was written, or the run gives up. When the run is over, `give_up_on_conflicts` does the checks of
the plan (`plan`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uops.interp.kernel.lane_machine.memory import FlatMemory
from uops.interp.kernel.vector_machine.affine import AffineValue, add_affine, scale_affine
from uops.interp.kernel.vector_machine.limits import GiveUp, check_array_size
from uops.interp.kernel.vector_machine.plan import ConflictCheck, MemoryPlan
from uops.interp.tensor.memory import OUTSIDE
from uops.interp.tensor.storage import Array
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


@dataclass(eq=False, slots=True)
class StridedRef:
    """A reference to elements at affine positions: element e of the own shape is at offset + sum of strides * e."""

    home: UOp
    offset: AffineValue
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def position_bounds(self) -> tuple[int, int]:
        """Return the least and the greatest position."""
        lo, hi = self.offset.lo, self.offset.hi
        for s, n in zip(self.strides, self.shape):
            lo, hi = (lo, hi + s * (n - 1)) if s > 0 else (lo + s * (n - 1), hi)
        return lo, hi

    def to_scattered(self, extents: Sequence[int]) -> ScatteredRef:
        """Return the same positions as an array, with all axes there are."""
        positions = self.offset.get_or_compute_broadcastable_values(extents)
        if self.shape:
            positions = positions.reshape(
                positions.shape + (1,) * (len(extents) - positions.ndim if positions.ndim else 0) + (1,) * len(self.shape)
            )
            for k, (s, n) in enumerate(zip(self.strides, self.shape)):
                positions = positions + (np.arange(n, dtype=np.int64) * s).reshape((-1, *(1,) * (len(self.shape) - k - 1)))
        elif positions.ndim:
            positions = positions.reshape(positions.shape + (1,) * (len(extents) - positions.ndim))
        return ScatteredRef(self.home, positions, self.shape)


@dataclass(eq=False, slots=True)
class ScatteredRef:
    """A reference to elements at any positions.

    `positions` has the axes around it where it was made, or none where it is the same everywhere, then the own shape. A
    position outside of the memory is negative.
    """

    home: UOp
    positions: Array
    shape: tuple[int, ...]


#: A reference to elements of a memory.
VectorRef = StridedRef | ScatteredRef


def expand_loop_axes(a: Array, own_rank: int, depth: int) -> Array:
    """Return `a`, which has `own_rank` axes of its own, with all `depth` axes of loops before them."""
    lead = a.ndim - own_rank
    return a if lead == depth else a.reshape(a.shape[:lead] + (1,) * (depth - lead) + a.shape[lead:])


def whole_memory_ref(home: UOp, shape: tuple[int, ...]) -> StridedRef:
    """Return every element of a memory, in order."""
    strides = [1] * len(shape)
    for k in range(len(shape) - 1, 0, -1):
        strides[k - 1] = strides[k] * shape[k]
    return StridedRef(home, AffineValue(0, (), ()), shape, tuple(strides))


def index_strided_if_affine_in_bounds(ref: StridedRef, indices: Sequence[Any], extents: Sequence[int]) -> StridedRef | None:
    """Return the elements that affine indices name, None where one is not affine or may leave its axis."""
    offset = ref.offset
    for i, n, stride in zip(indices, ref.shape, ref.strides):
        if i.__class__ is not AffineValue or i.lo < 0 or i.hi >= n:
            return None
        offset = add_affine(offset, i if stride == 1 else scale_affine(i, stride, extents), 1, extents)
    k = len(indices)
    return StridedRef(ref.home, offset, ref.shape[k:], ref.strides[k:])


def mark_outside(positions: Array, out_of_bounds: Array) -> Array:
    """Return the positions, with those out of bounds replaced by `OUTSIDE`."""
    return np.where(out_of_bounds, OUTSIDE, positions)


@dataclass(eq=False, slots=True)
class AccessEvent:
    """An access that a check may ask about.

    The node `site` accessed the positions of `span` or `positions`, where `mask` holds if it is not None. `when` has the
    iteration of each loop that runs in order, and the number of barriers passed. `extents` are those of the axes around it.
    """

    site: UOp
    span: StridedSpan | None
    positions: Array | None
    mask: Array | None
    when: tuple[dict[UOp, int], int]
    extents: tuple[int, ...]

    def positions_and_iteration_numbers(self, axes: Sequence[int]) -> tuple[Array, Array]:
        """Return the positions touched, and for each the number of its iteration of `axes`."""
        positions = self.positions if self.span is None else self.span.positions()
        assert positions is not None
        rank = positions.ndim - len(self.extents)
        owners: Array = np.zeros((1,) * (len(self.extents) + rank), np.int64)
        for axis in axes:
            counter = np.arange(self.extents[axis], dtype=np.int64)
            owners = owners * self.extents[axis] + counter.reshape((-1, *(1,) * (len(self.extents) - axis - 1 + rank)))
        shape = np.broadcast_shapes(positions.shape, owners.shape, () if self.mask is None else self.mask.shape)
        check_array_size(math.prod(shape))
        positions, owners = np.broadcast_to(positions, shape), np.broadcast_to(owners, shape)
        if self.mask is None:
            return positions.ravel(), owners.ravel()
        live = np.broadcast_to(self.mask, shape)
        return positions[live], owners[live]


class VectorMemory:
    """A memory in a run: `size` elements for each of the copies that `plan.axes` ask for.

    `read_mask` and `written_mask` mark the elements that were touched; True is all of them, False none.
    """

    __slots__ = ("copy_offset", "data", "is_owned", "name", "plan", "read_mask", "ready", "size", "written_mask")

    def __init__(
        self, plan: MemoryPlan, name: str, size: int, data: Array, ready: Array | None, copy_offset: AffineValue | None
    ) -> None:
        self.plan = plan
        self.name = name
        self.size = size
        self.data = data
        self.ready = ready
        self.copy_offset = copy_offset
        self.is_owned = False  # True if `data` and `ready` are this run's own arrays
        self.read_mask: Array | bool = False
        self.written_mask: Array | bool = False

    @staticmethod
    def from_flat_memory_viewed_as_dtype(plan: MemoryPlan, flat: FlatMemory, dtype: np.dtype[Any]) -> VectorMemory:
        """Return a memory with the contents of `flat`. Raises GiveUp where the lane machine must look."""
        data = flat.data
        if data.dtype is not dtype and data.dtype != dtype:  # a small float and the integer of its bits
            if data.itemsize != dtype.itemsize:
                raise GiveUp("a memory of another item size than its Param")
            data = data.view(dtype)
        if dtype.kind == "b" and data.size and int(data.view(np.uint8).max()) > 1:
            raise GiveUp("a bool byte other than 0 and 1")
        if data.ndim != 1 or not data.flags.c_contiguous:
            raise GiveUp("a memory that is not flat")
        return VectorMemory(plan, flat.name, data.size, data, flat.ready, None)

    @staticmethod
    def allocate(plan: MemoryPlan, dtype: np.dtype[Any], size: int, extents: Sequence[int]) -> VectorMemory:
        """Return uninitialised memory, with a copy for every iteration of the plan's axes."""
        copies = math.prod(extents[axis] for axis in plan.axes)
        check_array_size(copies * size)
        data, ready = np.zeros(copies * size, dtype), np.zeros(copies * size, bool)
        memory = VectorMemory(plan, plan.space.value, size, data, ready, copy_offset_per_iteration(plan, size, extents))
        memory.is_owned = True
        return memory

    def copy_unless_owned(self) -> None:
        """Copy `data` and `ready` unless they are the run's own."""
        if not self.is_owned:
            self.is_owned = True
            self.data = self.data.copy()
            self.ready = None if self.ready is None else self.ready.copy()

    def _materialize_touch_mask_if_global_and_partial(self, touch_mask: Array | bool) -> Array | None:
        """Return marks that can be set, None where all are set, or where they are not needed."""
        if touch_mask is True or self.plan.space is not AddrSpace.GLOBAL:
            return None
        return np.zeros(self.data.size, bool) if touch_mask is False else touch_mask

    # Strided accesses

    def load_span_or_give_up_if_unwritten(self, span: StridedSpan) -> Array:
        """Return the elements of a span. Raises GiveUp for one never written."""
        if self.ready is not None and not (self.ready if span.covers_memory else span.strided_view(self.ready)).all():
            raise GiveUp(f"{self.name} is read before it is written")
        if span.covers_memory:
            self.read_mask = True
        elif (marks := self._materialize_touch_mask_if_global_and_partial(self.read_mask)) is not None:
            span.strided_view(marks)[...] = True
            self.read_mask = marks
        view = span.strided_view(self.data)
        return view.copy() if self.plan.written else view

    def store_span_or_adopt_value(self, span: StridedSpan, value: Array) -> None:
        """Write the elements of a span."""
        if span.covers_memory:
            self.ready, self.written_mask = None, True
            if (
                span.is_contiguous
                and value.size > 1
                and value.shape == span.shape
                and value.flags.owndata
                and value.flags.c_contiguous
            ):
                # It was computed in this run and is never written: constants have one element, and inputs are views.
                self.data, self.is_owned = value.reshape(-1), False
                return
            if not self.is_owned:
                self.data, self.is_owned = np.empty_like(self.data), True
            span.strided_view(self.data)[...] = value
            return
        self.copy_unless_owned()
        span.strided_view(self.data)[...] = value
        if self.ready is not None:
            span.strided_view(self.ready)[...] = True
        if (marks := self._materialize_touch_mask_if_global_and_partial(self.written_mask)) is not None:
            span.strided_view(marks)[...] = True
            self.written_mask = marks

    # Scattered accesses

    def in_bounds_positions_or_give_up(self, ref: ScatteredRef, mask: Array | None, extents: Sequence[int]) -> Array:
        """Return positions in `data`, 0 where the mask does not hold.

        Raises GiveUp where one is out of bounds and the mask holds.
        """
        positions = expand_loop_axes(ref.positions, len(ref.shape), len(extents))
        if mask is None:
            if positions.size and (int(positions.min()) < 0 or int(positions.max()) >= self.size):
                raise GiveUp(f"{self.name} is accessed out of bounds")
        else:
            out_of_bounds = (positions < 0) | (positions >= self.size)
            if (out_of_bounds & mask).any() or not self.size:
                raise GiveUp(f"{self.name} is accessed out of bounds")
            positions = np.where(mask, positions, 0)
        if self.copy_offset is not None:
            offset = self.copy_offset.get_or_compute_broadcastable_values(extents)
            positions = positions + offset.reshape(offset.shape + (1,) * (len(extents) - offset.ndim + len(ref.shape)))
        check_array_size(positions.size)
        return positions

    def gather_or_give_up_if_unwritten(self, positions: Array, mask: Array | None) -> Array:
        """Return the elements at positions. Raises GiveUp for one never written where the mask holds."""
        touched = positions if mask is None else positions[np.broadcast_to(mask, positions.shape)]
        if self.ready is not None and not self.ready[touched].all():
            raise GiveUp(f"{self.name} is read before it is written")
        self._mark_touched(touched, reads=True)
        return np.asarray(self.data[positions])

    def scatter_distinct_or_give_up(self, positions: Array, mask: Array | None, value: Array, extents: Sequence[int]) -> None:
        """Write elements at positions.

        Raises GiveUp where two iterations, or two elements of one iteration, have the same position.
        """
        shape = np.broadcast_shapes(positions.shape, () if mask is None else mask.shape)
        if any(n > 1 for n in extents) and shape[: len(extents)] != tuple(extents):
            raise GiveUp("iterations that write to the same element")
        positions = np.broadcast_to(positions, shape)
        value = np.broadcast_to(value, shape)
        if mask is not None:
            live = np.broadcast_to(mask, shape)
            positions, value = positions[live], value[live]
        if not are_distinct(positions, self.data.size):
            raise GiveUp("two writes to one element")
        self.copy_unless_owned()
        self.data[positions] = value
        if self.ready is not None:
            self.ready[positions] = True
        self._mark_touched(positions, writes=True)

    def scatter_add_or_give_up_if_unwritten(
        self, positions: Array, mask: Array | None, value: Array, extents: Sequence[int]
    ) -> None:
        """Add to elements at positions; fixed-width integers wrap in any order (R05, R56)."""
        shape = np.broadcast_shapes(
            positions.shape, () if mask is None else mask.shape, tuple(extents) + (1,) * (positions.ndim - len(extents))
        )
        check_array_size(int(np.prod(shape)))
        positions, value = np.broadcast_to(positions, shape), np.broadcast_to(value, shape)
        if mask is not None:
            live = np.broadcast_to(mask, shape)
            positions, value = positions[live], value[live]
        if self.ready is not None and not self.ready[positions].all():
            raise GiveUp(f"{self.name} is added to before it is written")
        self.copy_unless_owned()
        np.add.at(self.data, positions, value)
        self._mark_touched(positions, reads=True, writes=True)

    def _mark_touched(self, positions: Array, *, reads: bool = False, writes: bool = False) -> None:
        """Mark the elements at positions as read or written."""
        if reads and (marks := self._materialize_touch_mask_if_global_and_partial(self.read_mask)) is not None:
            marks[positions] = True
            self.read_mask = marks
        if writes and (marks := self._materialize_touch_mask_if_global_and_partial(self.written_mask)) is not None:
            marks[positions] = True
            self.written_mask = marks


@dataclass(eq=False, slots=True)
class StridedSpan:
    """Elements start + sum of strides * e, for each e of the shape, all of them in bounds.

    `is_injective`: certainly no two iterations or elements have the same position. `covers_memory`: they are all that the
    memory has. `is_contiguous`: in its order.
    """

    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_injective: bool
    covers_memory: bool
    is_contiguous: bool

    def strided_view(self, array: Array) -> Array:
        """Return the elements of the span in `array`, as a view."""
        if self.is_contiguous:
            return array.reshape(self.shape)
        size = array.itemsize
        buffer = array if array.dtype.isbuiltin == 1 else array.view(f"u{size}")
        view: Array = np.ndarray(self.shape, buffer.dtype, buffer, self.start * size, [s * size for s in self.strides])
        return view if buffer is array else view.view(array.dtype)

    def positions(self) -> Array:
        """Return the positions as an array."""
        positions: Array = np.array(self.start, np.int64).reshape((1,) * len(self.shape))
        for k, (s, n) in enumerate(zip(self.strides, self.shape)):
            if n > 1:
                positions = positions + (np.arange(n, dtype=np.int64) * s).reshape((-1, *(1,) * (len(self.shape) - k - 1)))
        return positions


def compute_in_bounds_span_or_give_up(
    ref: StridedRef, size: int, copy_offset: AffineValue | None, extents: Sequence[int]
) -> StridedSpan:
    """Return what an access to all of `ref` touches in a memory of `size` elements. Raises GiveUp where it is out of bounds."""
    lo, hi = ref.position_bounds()
    if lo < 0 or hi >= size or 0 in ref.shape:
        raise GiveUp("an access that is out of bounds, or to nothing")
    offset = ref.offset if copy_offset is None else add_affine(ref.offset, copy_offset, 1, extents)
    coefficients = offset.coefficients
    missing = len(extents) - len(coefficients)
    shape = (*[n if c else 1 for c, n in zip(coefficients, extents)], *(1,) * missing, *ref.shape)
    strides = (*coefficients, *(0,) * missing, *ref.strides)
    is_injective = _are_strides_surely_injective(strides, (*extents, *ref.shape))
    covers_memory = (
        copy_offset is None and math.prod(shape) == size and (is_injective or _are_strides_surely_injective(strides, shape))
    )
    is_contiguous = covers_memory and all(s == math.prod(shape[k + 1 :]) for k, (s, n) in enumerate(zip(strides, shape)) if n > 1)
    return StridedSpan(offset.base, shape, strides, is_injective, covers_memory, is_contiguous)


def _are_strides_surely_injective(strides: Sequence[int], sizes: Sequence[int]) -> bool:
    """Return True if each stride steps over all that the smaller ones reach."""
    reach = 0
    for s, n in sorted([(abs(s), n) for s, n in zip(strides, sizes) if n > 1]):
        if s <= reach:
            return False
        reach += s * (n - 1)
    return True


def copy_offset_per_iteration(plan: MemoryPlan, size: int, extents: Sequence[int]) -> AffineValue | None:
    """Return the position at which the copy of each iteration of the plan's axes begins, None where all share one memory."""
    if not plan.axes:
        return None
    coefficients = [0] * (max(plan.axes) + 1)
    for axis in reversed(plan.axes):
        coefficients[axis] = size
        size *= extents[axis]
    return AffineValue(0, tuple(coefficients), extents)


def are_distinct(positions: Array, size: int) -> bool:
    """Return True if no position occurs twice."""
    if positions.size < 2:
        return True
    if positions.size > size:
        return False
    if size > 8 * positions.size:
        return bool(np.unique(positions).size == positions.size)
    seen = np.zeros(size, bool)
    seen[positions] = True
    return int(np.count_nonzero(seen)) == positions.size


# Conflict checks


def give_up_on_conflicts(memory_size: int, check: ConflictCheck, events: Sequence[AccessEvent]) -> None:
    """Raise GiveUp unless the events satisfy the check; `memory_size` counts all copies of the memory."""
    groups: dict[tuple[int, ...], list[AccessEvent]] = {}
    for event in events:
        if event.site in check.sites:
            iterations, phase = event.when
            key = (*[iterations[r] for r in check.loops], phase if check.splits_at_barriers else 0)
            groups.setdefault(key, []).append(event)
    for group in groups.values():
        if check.unordered_pairs:
            _give_up_unless_unordered_disjoint(memory_size, check, group)
        if check.axes and not _have_same_injective_span(group):
            _give_up_if_written_element_has_two_owners(memory_size, check, group)


def _have_same_injective_span(group: Sequence[AccessEvent]) -> bool:
    """Return True if each iteration certainly has elements of its own, and the same ones in every access."""
    first = group[0].span
    return (
        first is not None
        and first.is_injective
        and all(
            event.span is not None
            and (event.span.start, event.span.shape, event.span.strides) == (first.start, first.shape, first.strides)
            for event in group[1:]
        )
    )


def _give_up_if_written_element_has_two_owners(memory_size: int, check: ConflictCheck, group: Sequence[AccessEvent]) -> None:
    """Raise GiveUp unless an element that is written is touched by one iteration of the check's axes only."""
    owner = np.full(memory_size, -1, np.int64)
    accesses = [(event, *event.positions_and_iteration_numbers(check.axes)) for event in group]
    for event, positions, number in accesses:
        if event.site.op is not Op.LOAD:
            earlier = owner[positions]
            if ((earlier >= 0) & (earlier != number)).any():
                raise GiveUp("iterations that write to one element")
            owner[positions] = number
            if (owner[positions] != number).any():
                raise GiveUp("iterations that write to one element")
    for event, positions, number in accesses:
        if event.site.op is Op.LOAD:
            writer = owner[positions]
            if ((writer >= 0) & (writer != number)).any():
                raise GiveUp("an iteration that reads what another one writes")


def _give_up_unless_unordered_disjoint(memory_size: int, check: ConflictCheck, group: Sequence[AccessEvent]) -> None:
    """Raise GiveUp if nodes without an order touch a common element."""
    touched: dict[UOp, Array] = {}
    for event in group:
        positions, _ = event.positions_and_iteration_numbers(())
        touched.setdefault(event.site, np.zeros(memory_size, bool))[positions] = True
    for a, b in check.unordered_pairs:
        if a in touched and b in touched and (touched[a] & touched[b]).any():
            raise GiveUp("accesses without an order to one element")
