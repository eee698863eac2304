"""Movement: views of a Tensor's elements, and joins. No method computes; each builds nodes of the specification's Movement
table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self, TypeVar

import numpy as np

from uops.compiler.tensor import storage
from uops.compiler.tensor.core import Core, Shape, Step
from uops.compiler.tensor.dtypes import DTypeLike, Number, as_dtype, weak
from uops.compiler.tensor.faults import fault, require_axes, spell, to_list, whole
from uops.compiler.tensor.numbers import number
from uops.spec.errors import SpecIndexError, SpecTypeError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import promote
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

Sizes = int | Sequence[int]
T = TypeVar("T", bound="Movement")


def _listed(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """`f(2, 3)` and `f((2, 3))` alike."""
    return tuple(args[0]) if len(args) == 1 and isinstance(args[0], (tuple, list)) else args


def flat(args: tuple[Any, ...]) -> tuple[int, ...]:
    """The integers of `f(2, 3)` and of `f((2, 3))`."""
    return tuple(map(whole, _listed(args)))


def extents(method: str, args: tuple[Any, ...]) -> tuple[int, ...]:
    """The shape of `f(2, 3)` and of `f((2, 3))`. Raises SpecValueError for a negative extent."""
    shape = flat(args)
    if any(n < 0 for n in shape):
        raise fault(method, "EXPAND.C5", f"shape {shape}")
    return shape


def _pair(method: str, given: Any) -> tuple[int, int]:
    try:
        first, last = given
    except (TypeError, ValueError) as e:
        raise fault(method, None, f"{spell(given)} is no pair of integers", SpecTypeError) from e
    return whole(first), whole(last)


def _equal_parts(n: int, size: int) -> tuple[int, ...]:
    if size <= 0:
        raise fault("split", None, f"size {size}")
    return tuple(min(size, n - k) for k in range(0, max(n, 1), size))


def _beside(method: str, first: T, others: tuple[Any, ...]) -> tuple[T, ...]:
    """The Tensors of `a.f(b)` and of `Tensor.f((a, b))`."""
    tensors: tuple[Any, ...] = (*first, *others) if isinstance(first, (tuple, list)) else (first, *others)
    for t in tensors:
        if not isinstance(t, Movement):
            raise fault(method, None, f"expected Tensors, got {type(t).__name__}", SpecTypeError)
    if not tensors:
        raise fault(method, None, "expected at least one Tensor")
    return tensors


class Movement(Core):
    """Reshape, Permute, Expand, Pad, Shrink, Flip, Stack, Bitcast and what is made of them."""

    __slots__ = ()

    def reshape(self, *shape: Any) -> Self:
        """The same elements, row-major, in another shape; one extent may be -1 (R49)."""
        wanted = self._inferred(flat(shape))
        require_axes("reshape", len(wanted))
        if any(n < 0 for n in wanted):
            raise fault("reshape", "RESHAPE.C4", f"shape {wanted} has a negative extent")
        if math.prod(wanted) != self.numel():
            detail = f"{self.shape} has {self.numel()} elements, {wanted} has {math.prod(wanted)}"
            raise fault("reshape", "RESHAPE.C2", detail)
        if wanted == self.shape:
            return self._view(self.uop)
        return self._view(storage.shaped(self.uop, wanted), Step(Op.RESHAPE, (B.shape_vector(wanted),), None))

    def _inferred(self, shape: tuple[Any, ...]) -> Shape:
        holes = shape.count(-1)
        if not holes:
            return shape
        known = math.prod(n for n in shape if n != -1)
        if holes > 1 or known == 0 or self.numel() % known:
            raise fault("reshape", "RESHAPE.C2", f"cannot infer -1 in {shape} for {self.shape} (R49)")
        return tuple(self.numel() // known if n == -1 else n for n in shape)

    view = reshape

    def permute(self, *order: Any) -> Self:
        """Axis k of the result is axis order[k]."""
        given = flat(order)
        axes = tuple(self._axis("permute", a, "PERMUTE.C2") for a in given)
        if sorted(axes) != list(range(self.ndim)):
            raise fault("permute", "PERMUTE.C2", f"order {given} for shape {self.shape}")
        return self._view(self.uop) if axes == tuple(range(self.ndim)) else self._moved(B.permute(self.uop, axes))

    def transpose(self, dim0: int = 1, dim1: int = 0) -> Self:
        """Two axes exchanged."""
        order = list(range(self.ndim))
        a, b = self._axis("transpose", dim0, "PERMUTE.C2"), self._axis("transpose", dim1, "PERMUTE.C2")
        order[a], order[b] = order[b], order[a]
        return self.permute(*order)

    @property
    def T(self) -> Self:
        """All axes in reverse."""
        return self.permute(*range(self.ndim - 1, -1, -1))

    def expand(self, *shape: Any) -> Self:
        """Axes of 1 repeated; -1 keeps an extent, and new axes may stand in front."""
        wanted = flat(shape)
        if len(wanted) < self.ndim:
            raise fault("expand", "EXPAND.C4", f"shape {self.shape} to {wanted}")
        before = (1,) * (len(wanted) - self.ndim) + self.shape
        return self._broadcast("expand", "EXPAND.C2", tuple(b if n == -1 else n for n, b in zip(wanted, before)))

    broadcast_to = expand

    def pad(self, padding: Sequence[Any], value: Number = 0) -> Self:
        """`value` around the elements: one (before, after) or None per axis, or a flat list of pairs from the last axis on.

        A negative amount takes elements away. A value other than zero is a Where over the padded mask.
        """
        pairs, filling = self._pairs(to_list(padding, "amounts of padding")), number(value)
        t = self.shrink([(max(0, -a), n - max(0, -b)) for (a, b), n in zip(pairs, self.shape)])
        grown = [(max(0, a), max(0, b)) for a, b in pairs]
        if not any(a or b for a, b in grown):
            return t
        padded = B.pad_by(t.uop, *grown)
        if filling == 0 and not (isinstance(filling, float) and math.copysign(1, filling) < 0):
            return self._view(padded, None)
        inside = B.pad_by(B.expand(storage.shaped(B.const(True), (1,) * t.ndim), t.shape), *grown)
        filler = weak(filling, self.dtype)
        common = promote(self.dtype, filler.dtype)
        return self._view(B.where(inside, B.cast(padded, common), B.cast(filler, common)), None)

    def _pairs(self, padding: Sequence[Any]) -> list[tuple[int, int]]:
        if all(isinstance(p, (int, np.integer)) for p in padding):
            if len(padding) % 2 or len(padding) > 2 * self.ndim:
                raise fault("pad", "PAD.C5", f"{len(padding)} amounts for shape {self.shape}")
            last = [(int(padding[k]), int(padding[k + 1])) for k in range(0, len(padding), 2)]
            return [(0, 0)] * (self.ndim - len(last)) + last[::-1]
        if len(padding) != self.ndim:
            raise fault("pad", "PAD.C5", f"{len(padding)} pairs for shape {self.shape}")
        return [(0, 0) if p is None else _pair("pad", p) for p in padding]

    def shrink(self, bounds: Sequence[tuple[int, int] | None]) -> Self:
        """Elements first to last - 1 of each axis; None keeps the axis."""
        given = bounds if isinstance(bounds, list) else to_list(bounds, "bounds")
        if len(given) != self.ndim:
            raise fault("shrink", "SHRINK.C5", f"{len(given)} bounds for shape {self.shape}")
        kept = [(0, n) if b is None else _pair("shrink", b) for b, n in zip(given, self.shape)]
        if any(not 0 <= lo <= hi <= n for (lo, hi), n in zip(kept, self.shape)):
            raise fault("shrink", "SHRINK.C2", f"bounds {kept} for shape {self.shape}")
        if all(hi - lo == n for (lo, hi), n in zip(kept, self.shape)):
            return self._view(self.uop)
        return self._moved(B.shrink(self.uop, [lo for lo, _ in kept], [hi - lo for lo, hi in kept]))

    def shrink_to(self, *shape: Any) -> Self:
        """The first elements of each axis (R49)."""
        return self.shrink([None if n is None else (0, n) for n in _listed(shape)])

    def flip(self, *axis: Any) -> Self:
        """The elements of these axes, all if none is named, in reverse."""
        named = [self._axis("flip", a, "FLIP.C2") for a in flat(axis)] if axis else range(self.ndim)
        axes = set(named)
        if len(axes) < len(named):
            raise fault("flip", "FLIP.C2", f"axes {flat(axis)} of shape {self.shape} repeat")
        return self._moved(B.flip(self.uop, [k in axes for k in range(self.ndim)])) if axes else self._view(self.uop)

    # Shapes

    def unsqueeze(self, dim: int) -> Self:
        """A new axis of 1 at `dim`."""
        dim = whole(dim)
        if not -self.ndim - 1 <= dim <= self.ndim:
            raise fault("unsqueeze", None, f"dim {dim} for shape {self.shape}", SpecIndexError)
        dim %= self.ndim + 1
        return self.reshape(self.shape[:dim] + (1,) + self.shape[dim:])

    def squeeze(self, dim: int | None = None) -> Self:
        """Without the axis `dim` if its extent is 1; without every axis of 1 if none is named."""
        gone = set(range(self.ndim)) if dim is None else {self._axis("squeeze", dim, "RESHAPE.C2")}
        return self.reshape(tuple(n for k, n in enumerate(self.shape) if n != 1 or k not in gone))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """The axes from `start_dim` to `end_dim` as one."""
        first, last = self._vector_axis("flatten", start_dim), self._vector_axis("flatten", end_dim)
        if first is None or last is None:
            return self.reshape(1)
        lo, hi = first, last + 1
        if hi <= lo:
            raise fault("flatten", None, f"axis {start_dim} comes after axis {end_dim} of shape {self.shape}")
        return self.reshape(self.shape[:lo] + (math.prod(self.shape[lo:hi]),) + self.shape[hi:])

    def unflatten(self, dim: int, sizes: Sequence[int]) -> Self:
        """One axis as several, one of which may be -1."""
        dim = self._axis("unflatten", dim, "RESHAPE.C2")
        return self.reshape(self.shape[:dim] + tuple(to_list(sizes, "sizes")) + self.shape[dim + 1 :])

    def split(self, sizes: Sizes, dim: int = 0) -> tuple[Self, ...]:
        """Parts along `dim`: of one size, the last perhaps smaller, or of the sizes listed."""
        dim = self._axis("split", dim, "SHRINK.C5")
        n = self.shape[dim]
        parts = flat(tuple(sizes)) if isinstance(sizes, Sequence) else _equal_parts(n, whole(sizes))
        if sum(parts) != n:
            raise fault("split", "SHRINK.C2", f"sizes {parts} do not sum to {n}, the extent of axis {dim} of {self.shape}")
        ends = [sum(parts[: k + 1]) for k in range(len(parts))]
        return tuple(self._along(dim, e - m, e) for e, m in zip(ends, parts))

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """At most `chunks` equal parts along `dim`; the last may be smaller."""
        chunks = whole(chunks)
        if chunks <= 0:
            raise fault("chunk", None, f"{chunks} chunks")
        n = self.shape[self._axis("chunk", dim, "SHRINK.C5")]
        return self.split(max(1, -(-n // chunks)), dim)

    def _along(self, dim: int, lo: int, hi: int) -> Self:
        return self.shrink([(lo, hi) if k == dim else None for k in range(self.ndim)])

    # Joins and repeats

    def cat(self, *others: Movement, dim: int = 0) -> Self:
        """The Tensors, or those of a sequence, one after the other: each padded to the whole along `dim`, chosen where it lies."""
        first, *_ = tensors = _beside("cat", self, others)
        dim = first._axis("cat", dim, "STACK.C3")
        rest = [t.shape[:dim] + t.shape[dim + 1 :] for t in tensors]
        if any(t.ndim != first.ndim or r != rest[0] for t, r in zip(tensors, rest)):
            raise fault("cat", "STACK.C3", f"shapes {', '.join(str(t.shape) for t in tensors)} along axis {dim}")
        total = sum(t.shape[dim] for t in tensors)
        out, end = tensors[0]._placed(dim, 0, total), tensors[0].shape[dim]
        for t in tensors[1:]:
            here = first.of(B.const(True)).reshape((1,) * first.ndim).expand(t.shape)._placed(dim, end, total)
            out = B.where(here, t._placed(dim, end, total), out)
            end += t.shape[dim]
        return first.of(out)

    def _placed(self, dim: int, at: int, total: int) -> UOp:
        n = self.shape[dim]
        return self.pad([(at, total - at - n) if k == dim else None for k in range(self.ndim)]).uop

    def stack(self, *others: Movement, dim: int = 0) -> Self:
        """The Tensors, or those of a sequence, along a new axis: `a.stack(b)`, `Tensor.stack((a, b))`."""
        first, *_ = tensors = _beside("stack", self, others)
        if any(t.shape != first.shape for t in tensors):
            raise fault("stack", "STACK.C3", f"shapes {', '.join(str(t.shape) for t in tensors)}")
        require_axes("stack", first.ndim + 1)
        common = first.dtype
        for t in tensors:
            common = promote(common, t.dtype)
        joined = first.of(B.stack(*(B.cast(t.uop, common) for t in tensors)))
        dim = whole(dim)
        if not -joined.ndim <= dim < joined.ndim:
            raise fault("stack", None, f"dim {dim} for a result of {joined.ndim} axes", SpecIndexError)
        order = list(range(1, joined.ndim))
        order.insert(dim % joined.ndim, 0)
        return first.of(joined.permute(*order).uop)

    def repeat(self, *repeats: Any) -> Self:
        """Each axis repeated as a whole; new axes may stand in front."""
        counts = flat(repeats)
        require_axes("repeat", len(counts))
        if len(counts) < self.ndim or any(c < 0 for c in counts):
            raise fault("repeat", "EXPAND.C4", f"repeats {counts} for shape {self.shape}")
        shape = (1,) * (len(counts) - self.ndim) + self.shape
        t = self.reshape(tuple(m for n in shape for m in (1, n)))
        t = t.expand(tuple(m for c, n in zip(counts, shape) for m in (c, n)))
        return t.reshape(tuple(c * n for c, n in zip(counts, shape)))

    def repeat_interleave(self, repeats: int, dim: int | None = None) -> Self:
        """Each element of an axis `repeats` times in a row; of the flattened Tensor without an axis."""
        t, count = self.flatten() if dim is None else self, whole(repeats)
        if count < 0:
            raise fault("repeat_interleave", None, f"{count} repeats")
        k = t._axis("repeat_interleave", 0 if dim is None else dim, "EXPAND.C4")
        before, n, after = t.shape[:k], t.shape[k], t.shape[k + 1 :]
        return t.reshape(*before, n, 1, *after).expand(*before, n, count, *after).reshape(*before, n * count, *after)

    def roll(self, shifts: int, dim: int) -> Self:
        """The elements of an axis moved by `shifts`, around its end."""
        dim = self._axis("roll", dim, "SHRINK.C5")
        n = self.shape[dim]
        k = -whole(shifts) % n if n else 0
        return self.of(self.uop) if k == 0 else self._along(dim, k, n).cat(self._along(dim, 0, k), dim=dim)

    # Storage and markers

    def bitcast(self, dtype: DTypeLike) -> Self:
        """The same bits as another dtype; another item size scales the last axis (R46)."""
        wanted = as_dtype(dtype)
        old, new = self.dtype.itemsize, wanted.itemsize
        if wanted is dt.bool_ and self.dtype is not dt.bool_:
            raise fault("bitcast", "BITCAST.C2", f"{self.dtype} to bool", SpecTypeError)
        if old != new and (not self.ndim or self.shape[-1] * old % new):
            raise fault("bitcast", "BITCAST.C4", f"shape {self.shape} of {self.dtype} to {wanted}")
        return self._view(self.uop) if wanted is self.dtype else self._moved(B.bitcast(self.uop, wanted))

    def contiguous(self) -> Self:
        """A fresh row-major copy (R53)."""
        return self.of(B.contiguous(self.uop))

    def contiguous_backward(self) -> Self:
        """A marker for gradients: contiguous in the backward pass."""
        return self.of(UOp(Op.CONTIGUOUS_BACKWARD, (self.uop,)))

    def detach(self) -> Self:
        """The same value, through which no gradient flows."""
        return self.of(B.detach(self.uop))

    def __len__(self) -> int:
        if not self.shape:
            raise fault("__len__", None, "a Tensor of shape () has no first axis", SpecTypeError)
        return self.shape[0]
