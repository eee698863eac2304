"""Movement ops on arrays: no arithmetic, every bit kept (R28).

In `MOVES[op](u, x, operands)`, x is the first source and `operands` are the other sources that had to be evaluated. For an
Index these are the positions, and for a Stack the elements after the first. For a shape operand they are its entries that are
not constants (R40, R48: shape operands and symbolic sizes). The same functions move the byte positions of a reference
(`tensor.memory`), so an op is defined once for values and for views.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from uops.interp.tensor.storage import BITS, NUMPY, Array, check_bool
from uops.spec.errors import SpecError, Trap, Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UNSET, UOp
from uops.spec.ir.ops import Op
from uops.spec.resources import describe_memory_excess

#: (node, value of the first source, values of the other evaluated sources) -> value.
Move = Callable[[UOp, Array, Sequence[Array]], Array]

# Local names: a member is slower to reach through its class or module.
_STACK, _CONST = Op.STACK, Op.CONST
_prod, _empty = math.prod, np.empty
_IN_BOUNDS, _OUT_OF_BOUNDS = np.array(False), np.array(True)
_ALL, _REVERSED = slice(None), slice(None, None, -1)
#: An Expand to more elements than this stays a view of its source.
_LARGE = 1 << 16


def data_and_symbolic_sources(u: UOp) -> tuple[UOp, ...]:
    """Return the sources that are evaluated before an op with shape operands.

    These are its first source and the symbolic entries of its shape operands.
    """
    src = u.src
    if len(src) == 2 and src[1]._spelt.__class__ is tuple:  # constant extents: the commonest case, at a third of the cost
        return src[:1]  # operand
    operand, *vectors = src
    return (operand, *[s for v in vectors if v.constants_of_stack is None for s in v.src if s.op is not _CONST])


def resolve_extents(vector: UOp, nonconstant_entries: Iterable[Array] = ()) -> tuple[int, ...]:
    """Return the integers that a shape operand holds; entries that are not constants come from `nonconstant_entries`, in order.

    Raises Trap for a negative extent, and SpecError if the operand is no Stack (R40).
    """
    sizes = vector._spelt
    if sizes is UNSET:
        sizes = vector.constants_of_stack
    if sizes is not None and (not sizes or min(sizes) >= 0):
        return sizes  # type: ignore[no-any-return]
    nonconstant_entries = iter(nonconstant_entries)
    if vector.op is not _STACK:
        raise SpecError(f"a shape operand is a Stack of index values, got {vector.op.name} (R40)")
    sizes = tuple([s.arg.value if s.op is _CONST else int(next(nonconstant_entries)) for s in vector.src])
    if sizes and min(sizes) < 0:
        raise Trap(f"negative extent in {sizes} (R48)")
    return sizes


def _claim_error(u: UOp, claim: str, problem: str) -> Exception:
    """Return the error for a broken claim: SpecError for wrong constants, Trap where symbolic values of this run are wrong."""
    text = f"{u.op.name} {claim}: {problem}"
    return Trap(text) if len(data_and_symbolic_sources(u)) > 1 else SpecError(text, claim=claim)


def permute(u: UOp, x: Array, operands: Sequence[Array] = ()) -> Array:
    """Transpose the axes."""
    return x.transpose(u.arg.order)


def flip(u: UOp, x: Array, operands: Sequence[Array] = ()) -> Array:
    """Reverse the flagged axes."""
    return x[tuple([_REVERSED if f else _ALL for f in u.arg.flags])]


def reshape(u: UOp, x: Array, operands: Sequence[Array] = ()) -> Array:
    """Reshape to the node's extents, in row-major order."""
    vector = u.src[1]  # extents
    sizes = vector._spelt
    if sizes.__class__ is not tuple:
        sizes = resolve_extents(vector, operands)
    if -1 not in sizes:  # to NumPy -1 means an extent to infer
        try:
            return x.reshape(sizes)
        except ValueError:
            pass
    sizes = resolve_extents(vector, operands)
    _ = u.shape  # raises where there are too many axes (R65: a value has at most 64), whatever their extents
    raise _claim_error(u, "RESHAPE.C1", f"{x.shape} and {sizes} have different numbers of elements")


def expand(u: UOp, x: Array, operands: Sequence[Array] = ()) -> Array:
    """Repeat axes of extent 1 up to the node's extents."""
    vector = u.src[1]  # extents
    sizes = vector._spelt
    if sizes.__class__ is not tuple:
        sizes = resolve_extents(vector, operands)
    try:
        if len(sizes) == x.ndim:
            if _prod(sizes) > _LARGE:
                return _broadcast_view_or_reject_if_too_large(x, sizes)
            out: Array = _empty(sizes, x.dtype)
            out[...] = x  # NumPy broadcasts by the rule of Expand: each axis equal, or 1
            return out
    except ValueError:
        pass
    sizes = resolve_extents(vector, operands)
    raise _claim_error(u, "EXPAND.C1", f"{x.shape} does not expand to {sizes}")


def _broadcast_view_or_reject_if_too_large(x: Array, sizes: tuple[int, ...]) -> Array:
    """Return `x` broadcast to `sizes` as a read-only view. Raises Unsupported if the elements would not fit in memory."""
    if why := describe_memory_excess(_prod(sizes) * x.dtype.itemsize):
        raise Unsupported(f"an EXPAND to {sizes}: {why}", "interp")
    return np.broadcast_to(x, sizes)


def pad(u: UOp, x: Array, operands: Sequence[Array] = ()) -> Array:
    """Place `x` at the node's offsets in an array of zeros (R43)."""
    rest = iter(operands)
    offsets, sizes = resolve_extents(u.offsets, rest), resolve_extents(u.extents, rest)
    if any(o + n > s for o, n, s in zip(offsets, x.shape, sizes)):
        raise _claim_error(u, "PAD.C2", f"{x.shape} at {offsets} does not fit in {sizes} (R43)")
    out: Array = np.zeros(sizes, x.dtype)
    out[tuple([slice(o, o + n) for o, n in zip(offsets, x.shape)])] = x
    return out


def shrink(u: UOp, x: Array, operands: Sequence[Array] = ()) -> Array:
    """Return the window of `x` at the node's offsets (R44: it lies inside)."""
    rest = iter(operands)
    offsets, sizes = resolve_extents(u.offsets, rest), resolve_extents(u.extents, rest)
    if any(o + n > s for o, n, s in zip(offsets, sizes, x.shape)):
        raise _claim_error(u, "SHRINK.C2", f"{sizes} at {offsets} is not inside {x.shape} (R44)")
    return x[tuple([slice(o, o + n) for o, n in zip(offsets, sizes)])]


def out_of_bounds_mask(indices: Array, extent: int) -> Array:
    """Return a mask of the positions that an axis of `extent` elements does not have; negative ones are out of bounds (R45)."""
    if not indices.ndim:
        return _IN_BOUNDS if 0 <= indices.item() < extent else _OUT_OF_BOUNDS
    mask: Array = np.asarray((indices < 0) | (indices >= extent), bool)
    return mask


def are_all_within_bounds(indices: Array, extent: int) -> bool:
    """Return True if an axis of `extent` elements has every one of these positions."""
    if not indices.ndim:
        return bool(0 <= indices.item() < extent)
    return not indices.size or bool(indices.item(indices.argmin()) >= 0 and indices.item(indices.argmax()) < extent)


def make_outer_index(indices: Sequence[Array]) -> tuple[Any, ...]:
    """Shape index vectors of rank 0 and 1 so that NumPy combines them as an outer product (R45)."""
    rank = sum([i.ndim for i in indices])
    if not rank:
        return tuple([int(i) for i in indices])
    shaped, axis = [], 0
    for i in indices:
        if i.ndim:
            axis += 1
            i = i.reshape((-1, *(1,) * (rank - axis)))
        shaped.append(i.astype(np.int64, copy=False))
    return tuple(shaped)


def index(u: UOp, x: Array, operands: Sequence[Array] = ()) -> Array:
    """Return the elements of a value at these positions; out of bounds is a Trap at once (R45)."""
    for axis, i in enumerate(operands):
        if not are_all_within_bounds(i, x.shape[axis]):
            raise Trap(f"Index {_first_out_of_bounds(i, x.shape[axis])} is out of bounds for axis {axis} of {x.shape} (R45)")
    return np.asarray(x[make_outer_index(operands)], x.dtype)  # of one wide int, NumPy would make an unsigned word


def _first_out_of_bounds(indices: Array, extent: int) -> int:
    """Return the first position that is out of bounds."""
    return int(indices[out_of_bounds_mask(indices, extent)].ravel()[0])


def stack(u: UOp, x: Array, operands: Sequence[Array] = ()) -> Array:
    """Stack arrays of one shape along a new first axis."""
    dtype = x.dtype if x.dtype != np.int64 or u.dtype is dt.int64 else np.result_type(x, *operands)  # index may need objects
    out: Array = np.empty((1 + len(operands), *x.shape), dtype)
    out[0, ...] = x
    for k, y in enumerate(operands, 1):
        if y.shape != x.shape:
            raise SpecError(f"STACK.C2: shapes {x.shape} and {y.shape} differ", claim="STACK.C2")
        out[k, ...] = y
    return out


def collapse_axes_or_trap_if_copies_differ(u: UOp, x: Array, operands: Sequence[Array] = ()) -> Array:
    """Collapse axes to one copy. Raises Trap unless all copies hold the same bits (R47, R76: Replicated, null axes)."""
    pattern = x.view(BITS[u.dtype]) if u.dtype.is_float else x
    keep = tuple([slice(0, 1) if k in u.arg.axes else _ALL for k in range(x.ndim)])
    if any(x.shape[k] == 0 for k in u.arg.axes):
        raise Trap(f"Replicated has no copy to take from {x.shape} (R47)")
    if not (pattern == pattern[keep]).all():
        raise Trap(f"Replicated along {u.arg.axes}: the copies differ (R47)")
    return x[keep]


def check_slice_and_return_byte_range(u: UOp, element_offset: int, itemsize: int, source_bytes: int) -> tuple[int, int]:
    """Return the byte range of a Slice that begins at element `element_offset`: its first byte, and the end, which is exclusive.

    Raises Trap unless it lies inside `source_bytes` bytes and is aligned to the new dtype (R46).
    """
    d = u.arg.dtype
    first = element_offset * itemsize
    end = first + u.arg.size * d.itemsize
    if first < 0 or end > source_bytes or first % d.itemsize:
        raise Trap(f"Slice of {u.arg.size} {d} at byte {first} is not inside {source_bytes} bytes, or not aligned (R46)")
    return first, end


def slice_(u: UOp, x: Array, operands: Sequence[Array] = ()) -> Array:
    """Take `size` elements of the node's dtype from an offset, counted in elements of 1-D `x` (R46)."""
    first, end = check_slice_and_return_byte_range(u, int(operands[0]), x.dtype.itemsize, x.nbytes)
    out: Array = np.ascontiguousarray(x).view(np.uint8)[first:end].view(NUMPY[u.arg.dtype])
    if u.arg.dtype is dt.bool_:
        check_bool(out, "Slice")
    return out


def bitcast(u: UOp, x: Array, operands: Sequence[Array] = ()) -> Array:
    """Reinterpret the bytes, little-endian; another item size scales the last axis (R46)."""
    target = NUMPY[u.arg.dtype]
    if x.dtype.itemsize == target.itemsize:
        return x.view(target)
    sizes = (*x.shape[:-1], x.shape[-1] * x.dtype.itemsize // target.itemsize)
    return np.ascontiguousarray(x).view(target).reshape(sizes) if x.size else np.empty(sizes, target)


# fmt: off
#: Movement op -> its function.
MOVES: dict[Op, Move] = {
    Op.PERMUTE:    permute,
    Op.FLIP:       flip,
    Op.RESHAPE:    reshape,
    Op.EXPAND:     expand,
    Op.PAD:        pad,
    Op.SHRINK:     shrink,
    Op.INDEX:      index,
    Op.STACK:      stack,
    Op.REPLICATED: collapse_axes_or_trap_if_copies_differ,
    Op.SLICE:      slice_,
    Op.BITCAST:    bitcast,
}
#: The movement ops whose later sources are shape operands.
SHAPED = (Op.RESHAPE, Op.EXPAND, Op.PAD, Op.SHRINK)
# fmt: on
