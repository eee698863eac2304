"""Indexing: integers, slices with steps, None, Ellipsis and Tensors of integers, read and assigned; gather.

Slices are Shrink, Flip and, with a step, Reshape into groups. A Tensor index is an Index of the first axis: negative values count
from the end, and one out of range raises IndexError when the value is realized (R163). Several Tensor indices are zipped, as in
NumPy: their axes become one, indexed by a linear position.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from uops.compiler.tensor.checks import IndexCheck, attach
from uops.compiler.tensor.core import Core, Shape, Step
from uops.compiler.tensor.faults import fault, spell, whole
from uops.compiler.tensor.methods.networks import Networks
from uops.spec.errors import SpecError, SpecIndexError, SpecTypeError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import PermuteArg
from uops.spec.ir.derive.shape import broadcast
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op
from uops.spec.rows.compositions import arange

Item = Any
_KEEP = slice(None)


class _Cut(NamedTuple):
    """Elements start, start + step, ... of one axis, `many` of them, perhaps in reverse order; `dropped` for an integer."""

    start: int
    many: int
    step: int = 1
    reverse: bool = False
    dropped: bool = False


class Indexing(Networks):
    """`t[...]`, `t[...] = v`, take, gather, one_hot."""

    __slots__ = ()

    def __getitem__(self, key: Item) -> Self:
        """The elements that `key` names; an index out of range raises IndexError when the value is realized, if it is data."""
        return self._at(key, "__getitem__")

    def _at(self, key: Item, method: str) -> Self:
        items = self._items(key)
        axes = [i for i in items if i is not None]
        t = self._cut([self._cut_of(k, i) for k, i in enumerate(axes)], [i is None for i in items])
        if not any(isinstance(i, Core) for i in items):
            return t
        return t._pick(items, method)

    def __setitem__(self, key: Item, value: Any) -> None:
        """Assign through the view `self[key]` (see `assign`). Of several values for one element the last stays (R164)."""
        self._at(key, "__setitem__").assign(value)

    def _items(self, key: Item) -> list[Item]:
        """One item per axis, and None for each new axis: Ellipsis filled in, arrays and lists as Tensors."""
        given = [self._item(i) for i in (key if isinstance(key, tuple) else (key,))]
        dots = [k for k, i in enumerate(given) if i is Ellipsis]
        used = sum(i is not None and i is not Ellipsis for i in given)
        if len(dots) > 1:
            raise fault("__getitem__", None, f"an index has at most one Ellipsis, got {len(dots)}", SpecIndexError)
        if used > self.ndim:
            raise fault("__getitem__", "INDEX.C2", f"{used} indices for shape {self.shape}", SpecIndexError)
        at = dots[0] if dots else len(given)
        return [*given[:at], *[_KEEP] * (self.ndim - used), *given[at + 1 :]]

    def _item(self, i: Item) -> Item:
        if isinstance(i, np.ndarray) and i.ndim == 0:
            i = i[()]
        if isinstance(i, (list, np.ndarray)):
            try:
                i = self.of(self._operand(np.array(i, np.int32 if len(i) == 0 else None)))
            except ValueError as e:
                raise fault("__getitem__", None, f"the rows of a list have one shape; {e}") from e
        if isinstance(i, Core):
            if not i.dtype.is_integer:
                why = "a bool mask selects a number of elements that depends on data; use where" if i.dtype is dt.bool_ else ""
                raise fault("__getitem__", "INDEX.C4", f"an index of {i.dtype}. {why}".rstrip(". "), SpecTypeError)
            return i
        if isinstance(i, (bool, np.bool_)) or not (i is None or i is Ellipsis or isinstance(i, (int, slice, np.integer))):
            raise fault("__getitem__", "INDEX.C4", f"an index of type {type(i).__name__}", SpecTypeError)
        return i

    # Slices

    def _cut_of(self, axis: int, item: Item) -> _Cut:
        n = self.shape[axis]
        if isinstance(item, slice):
            try:
                r = range(*item.indices(n))
            except (TypeError, ValueError) as e:
                raise fault("__getitem__", "SHRINK.C1", f"{spell(item)} of an axis of {n}: {e}") from e
            if r.step < 0:
                return _Cut(r[-1] if len(r) else 0, len(r), -r.step, reverse=True)
            return _Cut(r.start if len(r) else 0, len(r), r.step)
        if isinstance(item, Core):
            return _Cut(0, n)
        if not -n <= item < n:
            raise fault("__getitem__", "SHRINK.C2", f"index {spell(item)} of axis {axis} of shape {self.shape}", SpecIndexError)
        return _Cut(int(item) % n, 1, dropped=True)

    def _cut(self, cuts: Sequence[_Cut], new: Sequence[bool]) -> Self:
        """The elements of every cut, without the dropped axes and with the new ones."""
        if any(c.step > 1 and c.many > 1 for c in cuts):
            t = self._strided(cuts)
        else:
            t = self.shrink([(c.start, c.start + c.many) for c in cuts])
        flipped = [k for k, c in enumerate(cuts) if c.reverse and c.many > 1]
        t = t.flip(*flipped) if flipped else t
        left = iter(c for c in cuts)
        kept: list[int] = []
        for is_new in new:
            c = None if is_new else next(left)
            kept += [1] if c is None else [] if c.dropped else [c.many]
        return t.reshape(tuple(kept))

    def _strided(self, cuts: Sequence[_Cut]) -> Self:
        """Each axis in `many` groups of `step` elements, of which one is kept.

        The groups begin early enough to lie inside the axis; where it is too short for them, its end is padded. Padding is no
        memory, so an assignment names the elements by Index instead.
        """
        t: Self = self
        wide: list[int] = []
        one: list[tuple[int, int] | None] = []
        for k, c in enumerate(cuts):
            n, step = t.shape[k], c.step if c.many > 1 else 1
            need = c.many * step
            t = t._to_length(k, need) if n < need else t
            begin = max(0, min(c.start, n - need))
            t = t._along(k, begin, begin + need)
            wide += [c.many, step]
            one += [None, (c.start - begin, c.start - begin + 1)]
        t = t.reshape(tuple(wide)).shrink(one).reshape(tuple(c.many for c in cuts))
        near = self.shrink([(0, n) if c.step > 1 else (c.start, c.start + c.many) for c, n in zip(cuts, self.shape)])
        first = [] if near.uop is self.uop else [Step.of(near.uop)]
        return self._view(t.uop, *first, *itertools.chain(*(_indexed(k, self.ndim, c) for k, c in enumerate(cuts) if c.step > 1)))

    # Tensor indices

    def take(self, index: Any, axis: int | None = None, unchecked: bool = False) -> Self:
        """The elements that integers name: `self[index]` on `axis`, or of the flattened Tensor without one.

        An index out of range raises IndexError when the value is realized; with `unchecked` nobody looks (R163).
        """
        t, k = (self.flatten(), 0) if axis is None else (self, self._axis("take", axis, "INDEX.C2"))
        item = self._item(index)
        if not isinstance(item, (int, np.integer, Core)):
            raise fault("take", "INDEX.C4", f"an index of type {type(item).__name__}", SpecTypeError)
        key = (*[_KEEP] * k, item)
        if not isinstance(item, Core):
            return t[key]
        return t._pick(t._items(key), "take", flattened=axis is None, unchecked=unchecked)

    def _pick(self, items: Sequence[Item], method: str, flattened: bool = False, unchecked: bool = False) -> Self:
        """`self` holds the sliced axes; here the Tensor indices among `items` are applied."""
        indices = [i for i in items if isinstance(i, Core)]
        advanced = [k for k, i in enumerate(items) if i is not None and not isinstance(i, slice)]
        together = advanced == list(range(advanced[0], advanced[0] + len(advanced)))
        left = [i for i in items if i is None or isinstance(i, (slice, Core))]  # integers have dropped their axes
        axes = [k for k, i in enumerate(left) if isinstance(i, Core)]
        rest = [k for k in range(self.ndim) if k not in axes]
        front = self.permute(*axes, *rest)
        shape = self._common(indices)
        sizes = front.shape[: len(axes)]
        linear = self._linear(indices, sizes, shape)
        picked = front.flatten(0, len(axes) - 1) if len(axes) > 1 else front
        named = [k for k, i in enumerate(i for i in items if i is not None) if isinstance(i, Core)]
        checks = [IndexCheck(i.uop, n, method, None if flattened else k) for i, n, k in zip(indices, sizes, named)]
        node = attach(B.at(picked.uop, linear.reshape(-1).uop), tuple(checks), unchecked)
        out = picked._moved(node).reshape(shape + front.shape[len(axes) :])
        before = axes[0] if together else 0
        s, order = len(shape), list(range(len(shape), out.ndim))
        return out.permute(*order[:before], *range(s), *order[before:])

    def _common(self, indices: Sequence[Core]) -> Shape:
        shapes = [i.shape for i in indices]
        try:
            return broadcast(shapes)
        except SpecError as e:
            raise fault("__getitem__", "ADD.C3", f"indices of shapes {', '.join(map(str, shapes))} do not broadcast") from e

    def _linear(self, indices: Sequence[Core], sizes: Shape, shape: Shape) -> Self:
        """The row-major position that zipped indices name, of this shape; negative ones count from the end. Out of range where any
        of them is."""
        d = position_dtype(math.prod(sizes))
        if len(indices) == 1:
            return self.of(indices[0].uop)._from_end(sizes[0], d)
        total = inside = None
        for i, n in zip(indices, sizes):
            t = self.of(i.uop)._from_end(n, d)._broadcast("__getitem__", "ADD.C3", shape)
            total = t.cast(d) if total is None else total * n + t.cast(d)
            inside = t._within(n) if inside is None else inside & t._within(n)
        assert total is not None and inside is not None
        return inside.where(total, -1)

    def _from_end(self, n: int, d: DType) -> Self:
        """Index values in a dtype that holds them and n, negative ones plus n."""
        t = self if self.dtype.bits >= d.bits and self.dtype.bits >= 32 else self.cast(d)
        return (t < 0).where(t + n, t) if t.dtype.is_signed else t

    def _within(self, n: int) -> Self:
        """Where a position is one of `n`."""
        return (self >= 0) & (self < n) if self.dtype.is_signed else self < n

    def gather(self, dim: int, index: Self, unchecked: bool = False) -> Self:
        """out[i0, ..., ik] = self[i0, ..., index[i0, ..., ik], ..., ik], the index on axis `dim`.

        No other extent of `index` exceeds this Tensor's. An index out of range raises IndexError when the value is realized; with
        `unchecked` nobody looks (R163). Spec: Index of the flattened Tensor at the row-major position.
        """
        k, index = self._axis("gather", dim, "INDEX.C2"), self._require_tensor("index", index)
        if index.ndim != self.ndim or any(m > n for j, (m, n) in enumerate(zip(index.shape, self.shape)) if j != k):
            raise fault("gather", "INDEX.C2", f"index of shape {index.shape} for {self.shape}, axis {dim}")
        if not index.dtype.is_integer:
            raise fault("gather", "INDEX.C4", f"an index of {index.dtype}", SpecTypeError)
        d = position_dtype(self.numel())
        named = index._from_end(self.shape[k], d)
        total: Self | None = None
        for j, n in enumerate(self.shape):
            along = (1,) * j + (-1,) + (1,) * (self.ndim - j - 1)
            t = named.cast(d) if j == k else self.of(arange(index.shape[j], d)).reshape(along)
            total = t if total is None else total * n + t
        assert total is not None
        place = named if self.ndim == 1 else named._within(self.shape[k]).where(total, -1)
        checks = (IndexCheck(index.uop, self.shape[k], "gather", k),)
        return self.of(attach(B.at(self.flatten().uop, place.reshape(-1).uop), checks, unchecked)).reshape(index.shape)

    def one_hot(self, num_classes: int) -> Self:
        """int32 (..., num_classes): 1 at the position that each element names, nowhere for one out of range."""
        if not self.dtype.is_integer:
            raise fault("one_hot", "INDEX.C4", f"an index of {self.dtype}", SpecTypeError)
        d, n = self.dtype if self.dtype.bits >= 32 else dt.int32, whole(num_classes)
        if n < 0:
            raise fault("one_hot", None, f"{n} classes")
        return (self.cast(d).unsqueeze(-1).eq(self.of(arange(n, d)))).cast(dt.int32)


def _indexed(axis: int, rank: int, cut: _Cut) -> tuple[Step, ...]:
    """The elements of a cut, without its order: the axis brought to the front, indexed, and brought back."""
    order = (axis, *(k for k in range(rank) if k != axis))
    back = tuple(order.index(k) for k in range(rank))
    positions = B.add(B.mul(arange(cut.many), cut.step), cut.start)
    return Step(Op.PERMUTE, (), PermuteArg(order)), Step(Op.INDEX, (positions,), None), Step(Op.PERMUTE, (), PermuteArg(back))


def position_dtype(elements: int) -> DType:
    """What holds every position of so many elements."""
    return dt.int32 if elements <= dt.int32.max else dt.int64
