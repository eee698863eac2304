"""Movement ops: no arithmetic, only which element goes where."""

from __future__ import annotations

from uops.spec.ir import dtypes as dt
from uops.spec.ir.derive.shape import dims_of
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import Dim, UOp
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.scope import Context
from uops.spec.ir.sizes import Poly, at_most, divides, equal, not_negative, plus, poly, show, show_shape, sum_at_most, total
from uops.spec.ir.sizes import times as poly_times
from uops.spec.rows.claims import (
    SAME_AXIS,
    SAME_DEVICE,
    Draft,
    all_same_shape,
    arg_dtype_is,
    axes_valid,
    dtype_is,
    entries_not_negative,
    integer,
    off_the_axis,
    rank_of_source,
    same_dtype,
    scalar,
    shape_operands,
    sharded,
    storable,
)  # fmt: skip
from uops.spec.rows.table.base import Table


def _permutation(u: UOp, ctx: Context) -> str | None:
    rank = len(u.src[0].shape)
    return None if sorted(u.arg.order) == list(range(rank)) else f"{u.arg.order} is no order of {rank} axes"


def _flags(u: UOp, ctx: Context) -> str | None:
    rank = len(u.src[0].shape)
    return None if len(u.arg.flags) == rank else f"needs {rank} flags, got {len(u.arg.flags)}"


def _same_count(u: UOp, ctx: Context) -> str | None:
    old, new = u.src[0].shape, u.shape
    return None if old == new or total(old) == total(new) else f"needs the elements of {show_shape(old)}, got {show_shape(new)}"


def _shard_boundary(u: UOp, ctx: Context) -> str | None:
    """The rule of R74, as in the derived axis, which has no answer where this fails."""
    t = u.src[0]
    if type(t.device) is not tuple or t.axis is None:
        return None
    n, before = len(t.device), total(t.shape[: t.axis])
    for k, extent in enumerate(u.shape):
        if extent != 1 and divides(n, extent) and total(u.shape[:k]) == before:
            return None
    return f"no axis of {show_shape(u.shape)} starts where axis {t.axis} of {show_shape(t.shape)} does and is a multiple of {n}"


def _expands(u: UOp, ctx: Context) -> str | None:
    for k, (s, n) in enumerate(zip(u.src[0].shape, u.shape)):
        if s != 1 and not equal(s, n):
            return f"axis {k} needs {show(s)}, got {show(n)}"
    return None


def _window(u: UOp, t: tuple[Dim, ...], outer: tuple[Dim, ...]) -> str | None:
    """o + t <= outer on every axis."""
    for k, (o, s, n) in enumerate(zip(dims_of(u.src[1]), t, outer)):
        if not sum_at_most(o, s, n):
            return f"axis {k} needs {_sum(o, s)}, got {show(n)}"
    return None


def _sum(a: Dim, b: Dim) -> str:
    return f"{show(a)} + {show(b)}" if isinstance(a, UOp) or isinstance(b, UOp) else str(a + b)


def _pad_fits(u: UOp, ctx: Context) -> str | None:
    return _window(u, u.src[0].shape, dims_of(u.src[2]))


def _shrink_fits(u: UOp, ctx: Context) -> str | None:
    return _window(u, dims_of(u.src[2]), u.src[0].shape)


def _resizes(u: UOp, axis: int) -> bool:
    """Pad or Shrink changes this axis."""
    return not (equal(u.src[0].shape[axis], u.shape[axis]) and equal(dims_of(u.src[1])[axis], 0))


def _index_count(u: UOp, ctx: Context) -> str | None:
    rank = len(u.src[0].shape)
    return None if len(u.src) - 1 <= rank else f"{len(u.src) - 1} indices into rank {rank}"


def _index_ranks(u: UOp, ctx: Context) -> str | None:
    wrong = next((k for k, i in enumerate(u.src[1:]) if len(i.shape) > 1), None)
    return None if wrong is None else f"index {wrong} has shape {show_shape(u.src[1 + wrong].shape)}"


def _index_dtypes(u: UOp, ctx: Context) -> str | None:
    wrong = next((k for k, i in enumerate(u.src[1:]) if not i.dtype.is_integer), None)
    return None if wrong is None else f"index {wrong} is {u.src[1 + wrong].dtype}"


def _indices_whole(u: UOp, ctx: Context) -> str | None:
    if not sharded(u):
        return None
    wrong = next((k for k, i in enumerate(u.src[1:]) if i.axis is not None), None)
    return None if wrong is None else f"index {wrong} is sharded"


def _slice_rank(u: UOp, ctx: Context) -> str | None:
    return None if len(u.src[0].shape) == 1 else f"got {show_shape(u.src[0].shape)}"


def _offset(u: UOp) -> Dim:
    o = u.src[1]
    return o.arg.value if o.op is Op.CONST else o


def _slice_bytes(u: UOp) -> tuple[Poly, Poly, Poly]:
    """Start, length and limit of the byte range."""
    item = u.src[0].dtype.itemsize
    scale: Poly = {(): item}
    start, limit = (poly_times(poly(d), scale) for d in (_offset(u), u.src[0].shape[0]))
    return start, poly(u.arg.size * u.arg.dtype.itemsize), limit


def _slice_inside(u: UOp, ctx: Context) -> str | None:
    start, length, limit = _slice_bytes(u)
    if u.arg.size < 0:
        return f"size {u.arg.size}"
    if not not_negative(_offset(u)):
        return f"offset {show(_offset(u))}"
    end = plus(start, length)
    if _constant(end) is not None and _constant(limit) is not None:
        return None if at_most(_constant(end), _constant(limit)) else f"needs {_constant(end)} bytes, got {_constant(limit)}"
    item = u.src[0].dtype.itemsize
    whole = -(-u.arg.size * u.arg.dtype.itemsize // item)
    return None if sum_at_most(_offset(u), whole, u.src[0].shape[0]) else f"offset {show(_offset(u))} may lead outside"


def _constant(p: Poly) -> int | None:
    return 0 if not p else p[()] if set(p) == {()} else None


def _slice_aligned(u: UOp, ctx: Context) -> str | None:
    start, _, _ = _slice_bytes(u)
    item = u.arg.dtype.itemsize
    return None if all(c % item == 0 for c in start.values()) else f"byte offset is no multiple of {item}"


def _slice_dtype(u: UOp, ctx: Context) -> str | None:
    new = u.arg.dtype
    if storable(new) and (new is not dt.bool_ or u.src[0].dtype is dt.bool_):
        return None
    return f"{u.src[0].dtype} to {new}"


def _always(u: UOp, axis: int) -> bool:
    return True


def _bitcast_target(d: DType) -> bool:
    return storable(d) and d is not dt.bool_


def _bitcast_extent(u: UOp, ctx: Context) -> str | None:
    t, new = u.src[0], u.arg.dtype.itemsize
    old = t.dtype.itemsize
    if old == new:
        return None
    if not t.shape:
        return f"a scalar of {old} bytes to {new}"
    if new > old and not divides(new // old, t.shape[-1]):
        return f"{show(t.shape[-1])} * {old} bytes are no multiple of {new}"
    return None


def _bitcast_shards(u: UOp, axis: int) -> bool:
    """A change of item size on the sharded last axis must leave whole elements on every device."""
    devices = u.src[0].device
    return axis == len(u.src[0].shape) - 1 and isinstance(devices, tuple) and not divides(len(devices), u.shape[axis])


r = Table(Family.MOVEMENT)
# fmt: off
r(Op.PERMUTE, "Permute", "PERMUTE", "T", "Axis k of the result is axis order[k] of T.", [
    Draft("order is a permutation of T's axes", _permutation, gate=True),
])
r(Op.FLIP, "Flip", "FLIP", "T", "Each flagged axis runs backwards.", [
    Draft("one flag per axis of T", _flags, gate=True),
    off_the_axis(lambda u, a: bool(u.arg.flags[a]), "Flip"),
])
r(Op.RESHAPE, "Reshape", "RESHAPE", "T s'", "The same elements, read in row-major order, in shape s'.", [
    Draft("prod(s) = prod(s')", _same_count),
    shape_operands("s'", 1),
    entries_not_negative("s'", 1),
    Draft("the shard boundary is kept: prod(s'[:k]) = prod(s[:axis]) and n divides s'_k for one k", _shard_boundary, "R74"),
])
r(Op.EXPAND, "Expand", "EXPAND", "T s'", "Axes of size 1 are repeated to the size that s' gives.", [
    Draft("s_k is 1 or s'_k", _expands),
    shape_operands("s'", 1),
    rank_of_source("s'", 1),
    entries_not_negative("s'", 1),
])
r(Op.PAD, "Pad", None, "T o s'", "T stands at offset o in an output of shape s' that is zero elsewhere.", [
    Draft("o + s <= s'", _pad_fits, "R43"),
    entries_not_negative("o", 1, "R43"),
    shape_operands("o, s'", 1, 2),
    rank_of_source("o, s'", 1, 2),
    off_the_axis(_resizes, "Pad"),
])
r(Op.SHRINK, "Shrink", None, "T o s'", "Of each axis, the s' elements from offset o on.", [
    Draft("o + s' <= s", _shrink_fits, "R44"),
    entries_not_negative("o", 1, "R44"),
    shape_operands("o, s'", 1, 2),
    rank_of_source("o, s'", 1, 2),
    off_the_axis(_resizes, "Shrink"),
    entries_not_negative("s'", 2),
])
r(Op.INDEX, "Index", None, "T i...",
  "Index the leading axes, one source each: a scalar removes its axis, a vector makes it as long as itself; outer, not zipped.", [
    Draft("at most one index per axis of T", _index_count, gate=True),
    Draft("rank(i) <= 1", _index_ranks, "R45"),
    Draft("i is an integer", _index_dtypes),
    off_the_axis(lambda u, a: a < len(u.src) - 1, "Index"),
    SAME_DEVICE,
    Draft("no index is sharded", _indices_whole, "R83"),
])
r(Op.STACK, "Stack", None, "T...", "The sources, one after the other along a new first axis; of nothing, the shape ().", [
    same_dtype("sources"),
    Draft("sources have one shape", all_same_shape),
    SAME_DEVICE,
    SAME_AXIS,
])
r(Op.REPLICATED, "Replicated", None, "T", "States that T is the same along the axes, which become 1.", [
    axes_valid("axes are distinct axes of T", "R47"),
])
r(Op.SLICE, "Slice", None, "T offset", "`size` elements of `dtype` that begin at element `offset` of T, without a copy.", [
    Draft("T has rank 1", _slice_rank, "R46", gate=True),
    scalar("offset", 1, "R46", gate=True),
    dtype_is("offset", integer, "is an integer", "R46", 1, gate=True),
    Draft("the byte range lies inside T", _slice_inside, "R46"),
    Draft("the byte range is aligned to dtype", _slice_aligned, "R46"),
    Draft("dtype is storable, and bool only if T is", _slice_dtype, "R84", gate=True),
    dtype_is("T", storable, "is storable", "R29", 0, gate=True),
    off_the_axis(_always, "Slice"),
])
r(Op.BITCAST, "Bitcast", "BitCast", "T", "T's storage, little-endian, read as dtype.", [
    arg_dtype_is(_bitcast_target, "storable and not bool", "R46"),
    dtype_is("T", storable, "is storable", "R29", 0, gate=True),
    Draft("total bytes are equal: the last axis scales by whole elements, a scalar keeps its item size", _bitcast_extent, "R46"),
    off_the_axis(_bitcast_shards, "change of item size that splits an element"),
])
# fmt: on
ROWS = tuple(r.rows)
