"""Movement: views of a Tensor's elements, and joins of Tensors.

No method computes. Each builds nodes of the specification's Movement table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self, TypeVar

import numpy as np

from uops.compiler.tensor import storage
from uops.compiler.tensor.core import LazyTensorBase, MovementStep, Shape
from uops.compiler.tensor.dtypes import DTypeLike, Number, as_dtype, make_constant_in_dtype_if_it_fits
from uops.compiler.tensor.faults import fault, format_for_error, require_axes, require_integer_of_at_most_64_bits, to_list_or_raise
from uops.compiler.tensor.numbers import require_python_number
from uops.spec.errors import SpecIndexError, SpecTypeError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import promote
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

Sizes = int | Sequence[int]
T = TypeVar("T", bound="MovementMethods")


def _unpack_varargs(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of `f(2, 3)` and of `f((2, 3))` alike."""
    return tuple(args[0]) if len(args) == 1 and isinstance(args[0], (tuple, list)) else args


def unpack_integers(args: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the integers of `f(2, 3)` and of `f((2, 3))`."""
    return tuple(map(require_integer_of_at_most_64_bits, _unpack_varargs(args)))


def unpack_shape(method_name: str, args: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the shape of `f(2, 3)` and of `f((2, 3))`. Raises SpecValueError for a negative extent."""
    shape = unpack_integers(args)
    if any(n < 0 for n in shape):
        raise fault(method_name, "EXPAND.C5", f"expected extents of at least 0, got {shape}")
    return shape


def _require_integer_pair(method_name: str, pair: Any) -> tuple[int, int]:
    """Return a pair of integers. Raises SpecTypeError for anything else."""
    try:
        first, last = pair
    except (TypeError, ValueError) as e:
        raise fault(method_name, None, f"expected a pair of integers, got {format_for_error(pair)}", SpecTypeError) from e
    return require_integer_of_at_most_64_bits(first), require_integer_of_at_most_64_bits(last)


def _fill_in_minus_one_extent(method_name: str, shape: Shape, old_shape: Shape) -> Shape:
    """Return the shape with the extent that -1 stands for, so that it has the elements of `old_shape`."""
    holes = shape.count(-1)
    if not holes:
        return shape
    product, elements = math.prod(n for n in shape if n != -1), math.prod(old_shape)
    if holes > 1 or product == 0 or elements % product:
        raise fault(method_name, "RESHAPE.C2", f"cannot infer -1 in {shape} for {old_shape} (R49)")
    return tuple(elements // product if n == -1 else n for n in shape)


def _part_sizes_with_smaller_last(extent: int, part_size: int) -> tuple[int, ...]:
    """Return the extents of parts of one size, the last perhaps smaller."""
    if part_size <= 0:
        raise fault("split", None, f"expected a positive size, got {part_size}")
    return tuple(min(part_size, extent - k) for k in range(0, max(extent, 1), part_size))


def _require_tensors_from_args_or_list(method_name: str, first_or_list: T, others: tuple[Any, ...]) -> tuple[T, ...]:
    """Return the Tensors of `a.f(b)` and of `Tensor.f((a, b))`."""
    tensors: tuple[Any, ...] = (*first_or_list, *others) if isinstance(first_or_list, (tuple, list)) else (first_or_list, *others)
    for t in tensors:
        if not isinstance(t, MovementMethods):
            raise fault(method_name, None, f"expected Tensors, got {type(t).__name__}", SpecTypeError)
    if not tensors:
        raise fault(method_name, None, "expected at least one Tensor")
    return tensors


def _cast_to_common_dtype(tensors: tuple[T, ...]) -> tuple[T, ...]:
    """Return Tensors in the dtype that all of them promote to, each cast once."""
    common = tensors[0].dtype
    for t in tensors:
        common = promote(common, t.dtype)
    return tuple(t if t.dtype is common else t.cast(common) for t in tensors)


class MovementMethods(LazyTensorBase):
    """Reshape, Permute, Expand, Pad, Shrink, Flip, Stack, Bitcast, and methods composed of them."""

    __slots__ = ()

    def reshape(self, *shape: Any) -> Self:
        """Return the same elements, row-major, in another shape, of which one extent may be -1 (R49: listing helpers)."""
        target = _fill_in_minus_one_extent("reshape", unpack_integers(shape), self.shape)
        require_axes("reshape", len(target))
        if any(n < 0 for n in target):
            raise fault("reshape", "RESHAPE.C4", f"expected extents of at least 0, got {target}")
        if math.prod(target) != self.numel():
            detail = f"{self.shape} has {self.numel()} elements, {target} has {math.prod(target)}"
            raise fault("reshape", "RESHAPE.C2", detail)
        if target == self.shape:
            return self._wrap_as_view_of_self(self.uop)
        return self._wrap_as_view_of_self(
            storage.reshape_node(self.uop, target), MovementStep(Op.RESHAPE, (B.shape_vector(target),), None)
        )

    view = reshape

    def permute(self, *order: Any) -> Self:
        """Permute the axes: axis k of the result is axis order[k]."""
        numbers = unpack_integers(order)
        axes = tuple(self._normalize_axis("permute", a, "PERMUTE.C2") for a in numbers)
        if sorted(axes) != list(range(self.ndim)):
            raise fault("permute", "PERMUTE.C2", f"expected each axis of shape {self.shape} once, got {numbers}")
        return (
            self._wrap_as_view_of_self(self.uop)
            if axes == tuple(range(self.ndim))
            else self._make_movement_view(B.permute(self.uop, axes))
        )

    def transpose(self, dim0: int = 1, dim1: int = 0) -> Self:
        """Exchange two axes."""
        order = list(range(self.ndim))
        a, b = self._normalize_axis("transpose", dim0, "PERMUTE.C2"), self._normalize_axis("transpose", dim1, "PERMUTE.C2")
        order[a], order[b] = order[b], order[a]
        return self.permute(*order)

    @property
    def T(self) -> Self:
        """All axes in reverse."""
        return self.permute(*range(self.ndim - 1, -1, -1))

    def expand(self, *shape: Any) -> Self:
        """Repeat axes of extent 1; -1 keeps an extent, and new axes may stand in front."""
        target = unpack_integers(shape)
        if len(target) < self.ndim:
            raise fault("expand", "EXPAND.C4", f"expected at least {self.ndim} axes, as shape {self.shape} has, got {target}")
        before = (1,) * (len(target) - self.ndim) + self.shape
        filled_in = tuple(b if n == -1 else n for n, b in zip(target, before))
        return self._broadcast("expand", "EXPAND.C2", unpack_shape("expand", (filled_in,)))

    broadcast_to = expand

    def pad(self, padding: Sequence[Any], value: Number = 0) -> Self:
        """Put `value` around the elements.

        `padding` is one (before, after) or None per axis, or a flat list of pairs from the last axis on. A negative amount removes
        elements. An integer 0 keeps this dtype, any other value is promoted with it. A value other than zero is a Where over the
        padded mask.
        """
        pairs, filling = (
            self._normalize_padding_to_axis_pairs(to_list_or_raise(padding, "amounts of padding")),
            require_python_number(value),
        )
        t = self.shrink([(max(0, -a), n - max(0, -b)) for (a, b), n in zip(pairs, self.shape)])
        filler = make_constant_in_dtype_if_it_fits(filling, self.dtype)
        common = promote(self.dtype, filler.dtype)
        if common is not self.dtype and (filling or isinstance(filling, float)):
            t = t.cast(common)
        grown = [(max(0, a), max(0, b)) for a, b in pairs]
        if not any(a or b for a, b in grown):
            return t
        padded = B.pad_by(t.uop, *grown)
        if filling == 0 and not (isinstance(filling, float) and math.copysign(1, filling) < 0):
            return self._wrap_as_view_of_self(padded, None)
        inside = B.pad_by(B.expand(storage.reshape_node(B.const(True), (1,) * t.ndim), t.shape), *grown)
        return self._wrap_as_view_of_self(B.where(inside, padded, B.cast(filler, common)), None)

    def _normalize_padding_to_axis_pairs(self, padding: Sequence[Any]) -> list[tuple[int, int]]:
        """Return (before, after) per axis."""
        if all(isinstance(p, (int, np.integer)) for p in padding):
            if len(padding) % 2 or len(padding) > 2 * self.ndim:
                raise fault(
                    "pad",
                    "PAD.C5",
                    f"expected an even number of at most {2 * self.ndim} amounts for shape {self.shape}, got {len(padding)}",
                )
            last = [(int(padding[k]), int(padding[k + 1])) for k in range(0, len(padding), 2)]
            return [(0, 0)] * (self.ndim - len(last)) + last[::-1]
        if len(padding) != self.ndim:
            raise fault("pad", "PAD.C5", f"expected {self.ndim} pairs for shape {self.shape}, got {len(padding)}")
        return [(0, 0) if p is None else _require_integer_pair("pad", p) for p in padding]

    def shrink(self, bounds: Sequence[tuple[int, int] | None]) -> Self:
        """Return elements lo to hi - 1 of each axis with bounds (lo, hi); None keeps the axis."""
        listed = bounds if isinstance(bounds, list) else to_list_or_raise(bounds, "bounds")
        if len(listed) != self.ndim:
            raise fault("shrink", "SHRINK.C5", f"expected {self.ndim} bounds for shape {self.shape}, got {len(listed)}")
        ranges = [(0, n) if b is None else _require_integer_pair("shrink", b) for b, n in zip(listed, self.shape)]
        if any(not 0 <= lo <= hi <= n for (lo, hi), n in zip(ranges, self.shape)):
            raise fault("shrink", "SHRINK.C2", f"expected bounds inside shape {self.shape}, got {ranges}")
        if all(hi - lo == n for (lo, hi), n in zip(ranges, self.shape)):
            return self._wrap_as_view_of_self(self.uop)
        return self._make_movement_view(B.shrink(self.uop, [lo for lo, _ in ranges], [hi - lo for lo, hi in ranges]))

    def shrink_to(self, *shape: Any) -> Self:
        """Return the first elements of each axis (R49: listing helpers)."""
        return self.shrink([None if n is None else (0, n) for n in _unpack_varargs(shape)])

    def flip(self, *axis: Any) -> Self:
        """Reverse the elements along axes, along all by default."""
        named = [self._normalize_axis("flip", a, "FLIP.C2") for a in unpack_integers(axis)] if axis else range(self.ndim)
        axes = set(named)
        if len(axes) < len(named):
            raise fault("flip", "FLIP.C2", f"expected distinct axes of shape {self.shape}, got {unpack_integers(axis)}")
        return (
            self._make_movement_view(B.flip(self.uop, [k in axes for k in range(self.ndim)]))
            if axes
            else self._wrap_as_view_of_self(self.uop)
        )

    # Shapes

    def unsqueeze(self, dim: int) -> Self:
        """Insert an axis of extent 1 at `dim`."""
        dim = require_integer_of_at_most_64_bits(dim)
        if not -self.ndim - 1 <= dim <= self.ndim:
            raise fault("unsqueeze", None, f"expected a dim from {-self.ndim - 1} to {self.ndim}, got {dim}", SpecIndexError)
        dim %= self.ndim + 1
        return self.reshape(self.shape[:dim] + (1,) + self.shape[dim:])

    def squeeze(self, dim: int | None = None) -> Self:
        """Drop axis `dim` if its extent is 1, or every axis of extent 1 by default."""
        gone = set(range(self.ndim)) if dim is None else {self._normalize_axis("squeeze", dim, "RESHAPE.C2")}
        return self.reshape(tuple(n for k, n in enumerate(self.shape) if n != 1 or k not in gone))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """Merge the axes from `start_dim` to `end_dim` into one."""
        first, last = (
            self._normalize_axis_unless_scalar("flatten", start_dim),
            self._normalize_axis_unless_scalar("flatten", end_dim),
        )
        if first is None or last is None:
            return self.reshape(1)
        lo, hi = first, last + 1
        if hi <= lo:
            raise fault("flatten", None, f"expected start_dim before end_dim, got {start_dim} and {end_dim} for shape {self.shape}")
        return self.reshape(self.shape[:lo] + (math.prod(self.shape[lo:hi]),) + self.shape[hi:])

    def unflatten(self, dim: int, sizes: Sequence[int]) -> Self:
        """Split one axis into several, of which one extent may be -1."""
        dim = self._normalize_axis("unflatten", dim, "RESHAPE.C2")
        extent = self.shape[dim]
        parts = _fill_in_minus_one_extent("unflatten", unpack_integers(tuple(to_list_or_raise(sizes, "sizes"))), (extent,))
        if math.prod(parts) != extent:
            raise fault(
                "unflatten", "RESHAPE.C2", f"expected sizes whose product is {extent}, the extent of axis {dim}, got {parts}"
            )
        return self.reshape(self.shape[:dim] + parts + self.shape[dim + 1 :])

    def split(self, sizes: Sizes, dim: int = 0) -> tuple[Self, ...]:
        """Return parts along `dim`: of one size, the last perhaps smaller, or of the sizes listed."""
        dim = self._normalize_axis("split", dim, "SHRINK.C5")
        n = self.shape[dim]
        parts = (
            unpack_integers(tuple(sizes))
            if isinstance(sizes, Sequence)
            else _part_sizes_with_smaller_last(n, require_integer_of_at_most_64_bits(sizes))
        )
        if sum(parts) != n:
            raise fault(
                "split", "SHRINK.C2", f"expected sizes that sum to {n}, the extent of axis {dim} of {self.shape}, got {parts}"
            )
        ends = [sum(parts[: k + 1]) for k in range(len(parts))]
        return tuple(self._shrink_axis(dim, e - m, e) for e, m in zip(ends, parts))

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """Return at most `chunks` equal parts along `dim`; the last may be smaller."""
        chunks = require_integer_of_at_most_64_bits(chunks)
        if chunks <= 0:
            raise fault("chunk", None, f"expected a positive number of chunks, got {chunks}")
        n = self.shape[self._normalize_axis("chunk", dim, "SHRINK.C5")]
        return self.split(max(1, -(-n // chunks)), dim)

    def _shrink_axis(self, dim: int, lo: int, hi: int) -> Self:
        """Return elements lo to hi - 1 of one axis."""
        return self.shrink([(lo, hi) if k == dim else None for k in range(self.ndim)])

    # Joins and repeats

    def cat(self, *others: MovementMethods, dim: int = 0) -> Self:
        """Concatenate Tensors, or those of a sequence, along `dim`, in the dtype that all of them promote to.

        Each is padded to the whole extent and selected where it lies.
        """
        first, *_ = tensors = _require_tensors_from_args_or_list("cat", self, others)
        dim = first._normalize_axis("cat", dim, "STACK.C3")
        rest = [t.shape[:dim] + t.shape[dim + 1 :] for t in tensors]
        if any(t.ndim != first.ndim or r != rest[0] for t, r in zip(tensors, rest)):
            raise fault(
                "cat", "STACK.C3", f"expected equal shapes except along axis {dim}, got {', '.join(str(t.shape) for t in tensors)}"
            )
        tensors = _cast_to_common_dtype(tensors)  # where casts pair by pair would round an element more than once
        total = sum(t.shape[dim] for t in tensors)
        out, end = tensors[0]._pad_to_position(dim, 0, total), tensors[0].shape[dim]
        for t in tensors[1:]:
            here = first.of(B.const(True)).reshape((1,) * first.ndim).expand(t.shape)._pad_to_position(dim, end, total)
            out = B.where(here, t._pad_to_position(dim, end, total), out)
            end += t.shape[dim]
        return first.of(out)

    def _pad_to_position(self, dim: int, at: int, total: int) -> UOp:
        """Return this Tensor at position `at` of an axis of extent `total`, in zeros."""
        n = self.shape[dim]
        return self.pad([(at, total - at - n) if k == dim else None for k in range(self.ndim)]).uop

    def stack(self, *others: MovementMethods, dim: int = 0) -> Self:
        """Stack Tensors, or those of a sequence, along a new axis: `a.stack(b)`, `Tensor.stack((a, b))`."""
        first, *_ = tensors = _require_tensors_from_args_or_list("stack", self, others)
        if any(t.shape != first.shape for t in tensors):
            raise fault("stack", "STACK.C3", f"expected equal shapes, got {', '.join(str(t.shape) for t in tensors)}")
        require_axes("stack", first.ndim + 1)
        joined = first.of(B.stack(*(t.uop for t in _cast_to_common_dtype(tensors))))
        dim = require_integer_of_at_most_64_bits(dim)
        if not -joined.ndim <= dim < joined.ndim:
            raise fault("stack", None, f"expected a dim from {-joined.ndim} to {joined.ndim - 1}, got {dim}", SpecIndexError)
        order = list(range(1, joined.ndim))
        order.insert(dim % joined.ndim, 0)
        return first.of(joined.permute(*order).uop)

    def repeat(self, *repeats: Any) -> Self:
        """Repeat each axis as a whole; new axes may stand in front."""
        counts = unpack_integers(repeats)
        require_axes("repeat", len(counts))
        if len(counts) < self.ndim or any(c < 0 for c in counts):
            raise fault(
                "repeat", "EXPAND.C4", f"expected a number of repeats of at least 0 per axis of shape {self.shape}, got {counts}"
            )
        shape = (1,) * (len(counts) - self.ndim) + self.shape
        t = self.reshape(tuple(m for c, n in zip(counts, shape) for m in ((n,) if c == 1 else (1, n))))
        t = t.expand(tuple(m for c, n in zip(counts, shape) for m in ((n,) if c == 1 else (c, n))))
        return t.reshape(tuple(c * n for c, n in zip(counts, shape)))

    def repeat_interleave(self, repeats: int, dim: int | None = None) -> Self:
        """Repeat each element `repeats` times in a row, along an axis or of the flattened Tensor."""
        t, count = self.flatten() if dim is None else self, require_integer_of_at_most_64_bits(repeats)
        if count < 0:
            raise fault("repeat_interleave", None, f"expected a number of repeats of at least 0, got {count}")
        k = t._normalize_axis("repeat_interleave", 0 if dim is None else dim, "EXPAND.C4")
        before, n, after = t.shape[:k], t.shape[k], t.shape[k + 1 :]
        return t.reshape(*before, n, 1, *after).expand(*before, n, count, *after).reshape(*before, n * count, *after)

    def roll(self, shifts: int, dim: int) -> Self:
        """Rotate the elements of an axis by `shifts`."""
        dim = self._normalize_axis("roll", dim, "SHRINK.C5")
        n = self.shape[dim]
        k = -require_integer_of_at_most_64_bits(shifts) % n if n else 0
        return self.of(self.uop) if k == 0 else self._shrink_axis(dim, k, n).cat(self._shrink_axis(dim, 0, k), dim=dim)

    # Storage and markers

    def bitcast(self, dtype: DTypeLike) -> Self:
        """Reinterpret the bits as another dtype; another item size scales the last axis (R46: Bitcast)."""
        d = as_dtype(dtype)
        old, new = self.dtype.itemsize, d.itemsize
        if d is dt.bool_ and self.dtype is not dt.bool_:
            raise fault("bitcast", "BITCAST.C2", f"cannot reinterpret {self.dtype} as bool; use cast", SpecTypeError)
        if old != new and (not self.ndim or self.shape[-1] * old % new):
            raise fault(
                "bitcast", "BITCAST.C4", f"the last axis of shape {self.shape} of {self.dtype} does not divide into elements of {d}"
            )
        return self._wrap_as_view_of_self(self.uop) if d is self.dtype else self._make_movement_view(B.bitcast(self.uop, d))

    def contiguous(self) -> Self:
        """Return a fresh row-major copy (R53: Copy, Contiguous)."""
        return self.of(B.contiguous(self.uop))

    def contiguous_backward(self) -> Self:
        """Mark the Tensor so that its gradient is contiguous."""
        return self.of(UOp(Op.CONTIGUOUS_BACKWARD, (self.uop,)))

    def detach(self) -> Self:
        """Return the same value, through which no gradient flows."""
        return self.of(B.detach(self.uop))

    def __len__(self) -> int:
        if not self.shape:
            raise fault("__len__", None, "expected at least one axis, got shape ()", SpecTypeError)
        return self.shape[0]
