"""Indexing by integers, slices with steps, None, Ellipsis and Tensors of integers, read and assigned; gather.

Slices are Shrink, Flip and, with a step, Reshape into groups. A Tensor index is an Index of the first axis. Negative indices count
from the end, and one out of range raises IndexError when the value is realized (R163: indices of Tensors). Several Tensor indices
are zipped, as in NumPy: their axes become one, indexed by a linear position.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from uops.compiler.tensor.checks import IndexCheck, attach_unproved_checks_or_tag
from uops.compiler.tensor.core import LazyTensorBase, MovementStep, Shape
from uops.compiler.tensor.faults import fault, format_for_error, require_integer_of_at_most_64_bits
from uops.compiler.tensor.methods.networks import NetworkMethods
from uops.spec.errors import SpecError, SpecIndexError, SpecTypeError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import PermuteArg
from uops.spec.ir.derive.shape import broadcast
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op
from uops.spec.rows.compositions import arange

#: One item of an index key, such as a slice, and a whole key: an item, or a tuple of them.
IndexItem = Any
IndexKey = Any
_KEEP = slice(None)


class _AxisSlice(NamedTuple):
    """Elements start, start + step, ... of one axis, `length` of them, in reverse order if `reverse`.

    `drops_axis` marks an integer index.
    """

    start: int
    length: int
    step: int = 1
    reverse: bool = False
    drops_axis: bool = False


class IndexingMethods(NetworkMethods):
    """`t[...]`, `t[...] = v`, take, gather, one_hot."""

    __slots__ = ()

    def __getitem__(self, key: IndexKey) -> Self:
        """Return the elements that `key` names; data out of range raises IndexError when the value is realized."""
        return self._apply_index_key(key, "__getitem__")

    def _apply_index_key(self, key: IndexKey, method: str) -> Self:
        """Apply the slices and integers of `key`, then its Tensor indices."""
        items = self._expand_index_key(key)
        axes = [i for i in items if i is not None]
        t = self._apply_axis_slices([self._parse_axis_slice(k, i) for k, i in enumerate(axes)], [i is None for i in items])
        if not any(isinstance(i, LazyTensorBase) for i in items):
            return t
        return t._apply_tensor_indices(items, method, are_adjacent=_are_advanced_indices_adjacent(key))

    def __setitem__(self, key: IndexKey, value: Any) -> None:
        """Assign through the view `self[key]` (see `assign`). Of several values for one element, the last stays (R164)."""
        self._apply_index_key(key, "__setitem__").assign(value)

    def _expand_index_key(self, key: IndexKey) -> list[IndexItem]:
        """Return one item per axis, and None for each new axis: Ellipsis expanded, arrays and lists as Tensors."""
        items = [self._require_integer_index_and_wrap_arrays(i) for i in (key if isinstance(key, tuple) else (key,))]
        dots = [k for k, i in enumerate(items) if i is Ellipsis]
        used = sum(i is not None and i is not Ellipsis for i in items)
        if len(dots) > 1:
            raise fault("__getitem__", None, f"expected at most one Ellipsis, got {len(dots)}", SpecIndexError)
        if used > self.ndim:
            raise fault(
                "__getitem__",
                "INDEX.C2",
                f"expected at most one index per axis of shape {self.shape}, got {used}",
                SpecIndexError,
            )
        at = dots[0] if dots else len(items)
        return [*items[:at], *[_KEEP] * (self.ndim - used), *items[at + 1 :]]

    def _require_integer_index_and_wrap_arrays(self, i: IndexItem) -> IndexItem:
        """Return an index item with arrays and lists as Tensors. Raises SpecTypeError for what is no index."""
        if isinstance(i, np.ndarray) and i.ndim == 0:
            i = i[()]
        if isinstance(i, (list, np.ndarray)):
            try:
                i = self.of(self._convert_operand(np.array(i, np.int32 if isinstance(i, list) and not i else None)))
            except ValueError as e:
                raise fault("__getitem__", None, f"expected rows of equal shape: {e}") from e
        if isinstance(i, LazyTensorBase):
            if not i.dtype.is_integer:
                why = "; a bool mask selects a number of elements that depends on data, use where" if i.dtype is dt.bool_ else ""
                raise fault("__getitem__", "INDEX.C4", f"expected an index of an integer dtype, got {i.dtype}{why}", SpecTypeError)
            return i
        if isinstance(i, (bool, np.bool_)) or not (i is None or i is Ellipsis or isinstance(i, (int, slice, np.integer))):
            raise fault(
                "__getitem__",
                "INDEX.C4",
                f"expected an integer, a slice, None, ... or an array, got {type(i).__name__}",
                SpecTypeError,
            )
        return i

    # Slices

    def _parse_axis_slice(self, axis: int, item: IndexItem) -> _AxisSlice:
        """Return the elements that an item names on an axis; a Tensor index names all of them for now."""
        n = self.shape[axis]
        if isinstance(item, slice):
            try:
                r = range(*item.indices(n))
            except (TypeError, ValueError) as e:
                raise fault("__getitem__", "SHRINK.C1", f"{format_for_error(item)} does not fit an axis of extent {n}: {e}") from e
            if r.step < 0:
                return _AxisSlice(r[-1] if len(r) else 0, len(r), -r.step, reverse=True)
            return _AxisSlice(r.start if len(r) else 0, len(r), r.step)
        if isinstance(item, LazyTensorBase):
            return _AxisSlice(0, n)
        if not -n <= item < n:
            raise fault(
                "__getitem__",
                "SHRINK.C2",
                f"index {format_for_error(item)} is out of range for axis {axis} of shape {self.shape}",
                SpecIndexError,
            )
        return _AxisSlice(int(item) % n, 1, drops_axis=True)

    def _apply_axis_slices(self, axis_slices: Sequence[_AxisSlice], is_new_axis: Sequence[bool]) -> Self:
        """Return the elements of every slice, without the dropped axes and with the new ones."""
        if any(c.step > 1 and c.length > 1 for c in axis_slices):
            t = self._take_strided_elements_in_forward_order(axis_slices)
        else:
            t = self.shrink([(c.start, c.start + c.length) for c in axis_slices])
        flipped = [k for k, c in enumerate(axis_slices) if c.reverse and c.length > 1]
        t = t.flip(*flipped) if flipped else t
        left = iter(c for c in axis_slices)
        shape: list[int] = []
        for is_new in is_new_axis:
            c = None if is_new else next(left)
            shape += [1] if c is None else [] if c.drops_axis else [c.length]
        return t.reshape(tuple(shape))

    def _take_strided_elements_in_forward_order(self, axis_slices: Sequence[_AxisSlice]) -> Self:
        """Cut each axis with a step into `length` groups of `step` elements, and keep one element of each.

        The groups begin early enough to lie inside the axis; if it is too short for them, its end is padded. Padding is no memory,
        so an assignment names the elements by Index instead.
        """
        t: Self = self
        wide: list[int] = []
        one: list[tuple[int, int] | None] = []
        for k, c in enumerate(axis_slices):
            n, step = t.shape[k], c.step if c.length > 1 else 1
            need = c.length * step
            t = t._crop_or_pad_axis_at_end(k, need) if n < need else t
            begin = max(0, min(c.start, n - need))
            t = t._shrink_axis(k, begin, begin + need)
            wide += [c.length, step] if step > 1 else [c.length]
            one += [None, (c.start - begin, c.start - begin + 1)] if step > 1 else [None]
        t = t.reshape(tuple(wide)).shrink(one).reshape(tuple(c.length for c in axis_slices))
        near = self.shrink([(0, n) if c.step > 1 else (c.start, c.start + c.length) for c, n in zip(axis_slices, self.shape)])
        first = [] if near.uop is self.uop else [MovementStep.of(near.uop)]
        return self._wrap_as_view_of_self(
            t.uop,
            *first,
            *itertools.chain(
                *(_build_steps_indexing_axis_moved_to_front(k, self.ndim, c) for k, c in enumerate(axis_slices) if c.step > 1)
            ),
        )

    # Tensor indices

    def take(self, index: Any, axis: int | None = None, unchecked: bool = False) -> Self:
        """Return the elements that integers name: `self[index]` on `axis`, or of the flattened Tensor without one.

        An index out of range raises IndexError when the value is realized, unless `unchecked` (R163: indices of Tensors).
        """
        t, k = (self.flatten(), 0) if axis is None else (self, self._normalize_axis("take", axis, "INDEX.C2"))
        item = self._require_integer_index_and_wrap_arrays(index)
        if not isinstance(item, (int, np.integer, LazyTensorBase)):
            raise fault(
                "take", "INDEX.C4", f"expected an integer or an array of integers, got {type(item).__name__}", SpecTypeError
            )
        key = (*[_KEEP] * k, item)
        if not isinstance(item, LazyTensorBase):
            return t[key]
        return t._apply_tensor_indices(t._expand_index_key(key), "take", is_already_flattened=axis is None, unchecked=unchecked)

    def _apply_tensor_indices(
        self,
        items: Sequence[IndexItem],
        method: str,
        is_already_flattened: bool = False,
        unchecked: bool = False,
        are_adjacent: bool = True,
    ) -> Self:
        """Apply the Tensor indices among `items` to this Tensor, whose axes are sliced already.

        The axes of the indices stand where the indices do if these `are_adjacent`, else in front.
        """
        indices = [i for i in items if isinstance(i, LazyTensorBase)]
        left = [i for i in items if i is None or isinstance(i, (slice, LazyTensorBase))]  # integers dropped their axes
        axes = [k for k, i in enumerate(left) if isinstance(i, LazyTensorBase)]
        rest = [k for k in range(self.ndim) if k not in axes]
        front = self.permute(*axes, *rest)
        shape = self._broadcast_index_shapes(indices)
        sizes = front.shape[: len(axes)]
        linear = self._linearize_or_out_of_range(indices, sizes, shape)
        picked = front.flatten(0, len(axes) - 1) if len(axes) > 1 else front
        named = [k for k, i in enumerate(i for i in items if i is not None) if isinstance(i, LazyTensorBase)]
        checks = [IndexCheck(i.uop, n, method, None if is_already_flattened else k) for i, n, k in zip(indices, sizes, named)]
        node = attach_unproved_checks_or_tag(B.at(picked.uop, linear.reshape(-1).uop), tuple(checks), unchecked)
        out = picked._make_movement_view(node).reshape(shape + front.shape[len(axes) :])
        before = axes[0] if are_adjacent else 0
        s, order = len(shape), list(range(len(shape), out.ndim))
        return out.permute(*order[:before], *range(s), *order[before:])

    def _broadcast_index_shapes(self, indices: Sequence[LazyTensorBase]) -> Shape:
        """Return the shape that the indices broadcast to."""
        shapes = [i.shape for i in indices]
        try:
            return broadcast(shapes)
        except SpecError as e:
            raise fault("__getitem__", "ADD.C3", f"indices of shapes {', '.join(map(str, shapes))} do not broadcast") from e

    def _linearize_or_out_of_range(self, indices: Sequence[LazyTensorBase], axis_extents: Shape, shape: Shape) -> Self:
        """Return the row-major position, of this shape, that zipped indices name; negative ones count from the end.

        It is out of range where any index is.
        """
        d = position_dtype(math.prod(axis_extents))
        if len(indices) == 1:
            return self.of(indices[0].uop)._wrap_negative_indices(axis_extents[0], d)
        total = inside = None
        for i, n in zip(indices, axis_extents):
            t = self.of(i.uop)._wrap_negative_indices(n, d)._broadcast("__getitem__", "ADD.C3", shape)
            total = t.cast(d) if total is None else total * n + t.cast(d)
            inside = t._within(n) if inside is None else inside & t._within(n)
        assert total is not None and inside is not None
        return inside.where(total, -1)

    def _wrap_negative_indices(self, n: int, d: DType) -> Self:
        """Return the indices in a dtype that holds them and n, with n added to negative ones."""
        t = self if self.dtype.bits >= d.bits and self.dtype.bits >= 32 else self.cast(d)
        return (t < 0).where(t + n, t) if t.dtype.is_signed else t

    def _within(self, n: int) -> Self:
        """Return True where a position is in 0 to n - 1."""
        return (self >= 0) & (self < n) if self.dtype.is_signed else self < n

    def gather(self, dim: int, index: Self, unchecked: bool = False) -> Self:
        """Return out[i0, ..., ik] = self[i0, ..., index[i0, ..., ik], ..., ik], with the index on axis `dim`.

        No other extent of `index` exceeds this Tensor's. An index out of range raises IndexError when the value is realized,
        unless `unchecked` (R163: indices of Tensors). Spec: Index of the flattened Tensor at the row-major position.
        """
        k, index = self._normalize_axis("gather", dim, "INDEX.C2"), self._require_tensor("index", index)
        if index.ndim != self.ndim or any(m > n for j, (m, n) in enumerate(zip(index.shape, self.shape)) if j != k):
            raise fault(
                "gather",
                "INDEX.C2",
                f"expected an index with the axes of shape {self.shape}, none longer except axis {dim}, got {index.shape}",
            )
        if not index.dtype.is_integer:
            raise fault("gather", "INDEX.C4", f"expected an index of an integer dtype, got {index.dtype}", SpecTypeError)
        d = position_dtype(self.numel())
        named = index._wrap_negative_indices(self.shape[k], d)
        total: Self | None = None
        for j, n in enumerate(self.shape):
            along = (1,) * j + (-1,) + (1,) * (self.ndim - j - 1)
            t = named.cast(d) if j == k else self.of(arange(index.shape[j], d)).reshape(along)
            total = t if total is None else total * n + t
        assert total is not None
        place = named if self.ndim == 1 else named._within(self.shape[k]).where(total, -1)
        checks = (IndexCheck(index.uop, self.shape[k], "gather", k),)
        return self.of(attach_unproved_checks_or_tag(B.at(self.flatten().uop, place.reshape(-1).uop), checks, unchecked)).reshape(
            index.shape
        )

    def one_hot(self, num_classes: int) -> Self:
        """Return int32 (..., num_classes): 1 at the position that each element names, nowhere for one out of range."""
        if not self.dtype.is_integer:
            raise fault("one_hot", "INDEX.C4", f"expected an integer dtype, got {self.dtype}", SpecTypeError)
        d, n = self.dtype if self.dtype.bits >= 32 else dt.int32, require_integer_of_at_most_64_bits(num_classes)
        if n < 0:
            raise fault("one_hot", None, f"expected a number of classes of at least 0, got {n}")
        return (self.cast(d).unsqueeze(-1).eq(self.of(arange(n, d)))).cast(dt.int32)


def _build_steps_indexing_axis_moved_to_front(axis: int, rank: int, axis_slice: _AxisSlice) -> tuple[MovementStep, ...]:
    """Return the steps that take a slice's elements, ignoring its order: move the axis to the front, index it, move it back."""
    order = (axis, *(k for k in range(rank) if k != axis))
    back = tuple(order.index(k) for k in range(rank))
    positions = B.add(B.mul(arange(axis_slice.length), axis_slice.step), axis_slice.start)
    return (
        MovementStep(Op.PERMUTE, (), PermuteArg(order)),
        MovementStep(Op.INDEX, (positions,), None),
        MovementStep(Op.PERMUTE, (), PermuteArg(back)),
    )


def _are_advanced_indices_adjacent(key: IndexKey) -> bool:
    """Return True if no slice, None or Ellipsis stands between the arrays and integers of a key, as an empty Ellipsis does too."""
    items = key if isinstance(key, tuple) else (key,)
    advanced = [k for k, i in enumerate(items) if not (i is None or i is Ellipsis or isinstance(i, slice))]
    return advanced[-1] - advanced[0] < len(advanced)


def position_dtype(elements: int) -> DType:
    """Return the dtype that holds every position of so many elements."""
    return dt.int32 if elements <= dt.int32.max else dt.int64
