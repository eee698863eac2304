"""Movement ops, which move elements and compute nothing."""

from __future__ import annotations

from typing import NamedTuple

from uops.spec.ir import dtypes as dt
from uops.spec.ir.derive.shape import shape_operand_dims
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import Dim, UOp
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.scope import VerifyContext
from uops.spec.ir.sizes import (
    Poly,
    add_polynomials,
    divides,
    element_count_polynomial,
    extent_polynomial,
    multiply_polynomials,
    provably_equal,
    provably_nonnegative,
    show_extent_as_number_name_or_op,
    show_shape,
    sum_provably_at_most,
)
from uops.spec.rows.claims import (
    SAME_AXIS,
    SAME_DEVICE,
    ClaimDraft,
    arg_dtype_claim,
    check_all_same_shape,
    claim_sources_share_dtype,
    distinct_axes_claim,
    dtype_claim,
    has_sharded_source,
    is_integer,
    is_storable,
    nonnegative_entries_claim,
    one_entry_per_axis_claim,
    scalar_claim,
    shape_operand_claim,
    sharded_axis_untouched_claim,
)  # fmt: skip
from uops.spec.rows.table.base import RowTable


def _check_permutation(u: UOp, ctx: VerifyContext) -> str | None:
    rank = len(u.operand.shape)
    return None if sorted(u.arg.order) == list(range(rank)) else f"{u.arg.order} is no order of {rank} axes"


def _check_flag_count(u: UOp, ctx: VerifyContext) -> str | None:
    rank = len(u.operand.shape)
    return None if len(u.arg.flags) == rank else f"needs {rank} flags, got {len(u.arg.flags)}"


def _check_reshape_keeps_element_count(u: UOp, ctx: VerifyContext) -> str | None:
    old, new = u.operand.shape, u.shape
    return (
        None
        if old == new or element_count_polynomial(old) == element_count_polynomial(new)
        else f"needs the elements of {show_shape(old)}, got {show_shape(new)}"
    )


def _check_reshape_keeps_shard_boundary(u: UOp, ctx: VerifyContext) -> str | None:
    """Check that a Reshape keeps the boundaries of the shards (R74), without which its axis cannot be derived."""
    t = u.operand
    if type(t.device) is not tuple or t.axis is None:
        return None
    n, before = len(t.device), element_count_polynomial(t.shape[: t.axis])
    for k, extent in enumerate(u.shape):
        if divides(n, extent) and element_count_polynomial(u.shape[:k]) == before:
            return None
    return f"no axis of {show_shape(u.shape)} starts where axis {t.axis} of {show_shape(t.shape)} does and is a multiple of {n}"


def _check_only_extent_1_axes_expand(u: UOp, ctx: VerifyContext) -> str | None:
    for k, (s, n) in enumerate(zip(u.operand.shape, u.shape)):
        if s != 1 and not provably_equal(s, n):
            return f"axis {k} needs {show_extent_as_number_name_or_op(s)}, got {show_extent_as_number_name_or_op(n)}"
    return None


def _check_window_fits(u: UOp, inner: tuple[Dim, ...], outer: tuple[Dim, ...]) -> str | None:
    """Check that offset + inner <= outer on every axis of a Pad or Shrink."""
    for k, (o, s, n) in enumerate(zip(shape_operand_dims(u.offsets), inner, outer)):
        if not sum_provably_at_most(o, s, n):
            return f"axis {k} needs {_format_sum(o, s)}, got {show_extent_as_number_name_or_op(n)}"
    return None


def _format_sum(a: Dim, b: Dim) -> str:
    return (
        f"{show_extent_as_number_name_or_op(a)} + {show_extent_as_number_name_or_op(b)}"
        if isinstance(a, UOp) or isinstance(b, UOp)
        else str(a + b)
    )


def _check_pad_fits(u: UOp, ctx: VerifyContext) -> str | None:
    return _check_window_fits(u, u.operand.shape, shape_operand_dims(u.extents))


def _check_shrink_fits(u: UOp, ctx: VerifyContext) -> str | None:
    return _check_window_fits(u, shape_operand_dims(u.extents), u.operand.shape)


def _resizes_axis(u: UOp, axis: int) -> bool:
    """Return True if a Pad or Shrink changes an axis."""
    same_extent = provably_equal(u.operand.shape[axis], u.shape[axis])
    return not (same_extent and provably_equal(shape_operand_dims(u.offsets)[axis], 0))


def _check_index_count(u: UOp, ctx: VerifyContext) -> str | None:
    rank = len(u.operand.shape)
    return None if len(u.positions) <= rank else f"{len(u.positions)} indices into rank {rank}"


def _check_index_ranks_at_most_one(u: UOp, ctx: VerifyContext) -> str | None:
    for k, i in enumerate(u.positions):
        if len(i.shape) > 1:
            return f"index {k} has shape {show_shape(i.shape)}"
    return None


def _check_indices_are_integers(u: UOp, ctx: VerifyContext) -> str | None:
    for k, i in enumerate(u.positions):
        if not i.dtype.is_integer:
            return f"index {k} is {i.dtype}"
    return None


def _check_indices_unsharded(u: UOp, ctx: VerifyContext) -> str | None:
    if not has_sharded_source(u):
        return None
    wrong = next((k for k, i in enumerate(u.positions) if i.axis is not None), None)
    return None if wrong is None else f"index {wrong} is sharded"


def _check_slice_rank(u: UOp, ctx: VerifyContext) -> str | None:
    return None if len(u.operand.shape) == 1 else f"got {show_shape(u.operand.shape)}"


def _slice_offset(u: UOp) -> Dim:
    return u.offset.arg.value if u.offset.op is Op.CONST else u.offset


class _SliceByteRange(NamedTuple):
    """The start and length in bytes of what a Slice takes, and the bytes of its operand."""

    start: Poly
    length: Poly
    operand_size: Poly


def _slice_byte_range(u: UOp) -> _SliceByteRange:
    itemsize: Poly = {(): u.operand.dtype.itemsize}
    start, limit = (multiply_polynomials(extent_polynomial(d), itemsize) for d in (_slice_offset(u), u.operand.shape[0]))
    return _SliceByteRange(start, extent_polynomial(u.arg.size * u.arg.dtype.itemsize), limit)


def _check_slice_in_bounds(u: UOp, ctx: VerifyContext) -> str | None:
    start, length, limit = _slice_byte_range(u)
    if u.arg.size < 0:
        return f"size {u.arg.size}"
    if not provably_nonnegative(_slice_offset(u)):
        return f"offset {show_extent_as_number_name_or_op(_slice_offset(u))}"
    end = add_polynomials(start, length)
    needed, size = _constant_value(end), _constant_value(limit)
    if needed is not None and size is not None:
        return None if needed <= size else f"needs {needed} bytes, got {size}"
    elements = -(-u.arg.size * u.arg.dtype.itemsize // u.operand.dtype.itemsize)  # of the operand, rounded up
    if sum_provably_at_most(_slice_offset(u), elements, u.operand.shape[0]):
        return None
    return f"offset {show_extent_as_number_name_or_op(_slice_offset(u))} may lead outside"


def _constant_value(p: Poly) -> int | None:
    """Return the value of a constant polynomial, else None."""
    return 0 if not p else p[()] if set(p) == {()} else None


def _check_slice_alignment(u: UOp, ctx: VerifyContext) -> str | None:
    start, _, _ = _slice_byte_range(u)
    item = u.arg.dtype.itemsize
    return None if all(c % item == 0 for c in start.values()) else f"byte offset is no multiple of {item}"


def _check_slice_dtype_storable_and_no_new_bool(u: UOp, ctx: VerifyContext) -> str | None:
    new = u.arg.dtype
    if is_storable(new) and (new is not dt.bool_ or u.operand.dtype is dt.bool_):
        return None
    return f"{u.operand.dtype} to {new}"


def _touches_any_axis(u: UOp, axis: int) -> bool:
    return True


def _is_bitcast_target(d: DType) -> bool:
    return is_storable(d) and d is not dt.bool_


def _check_bitcast_last_extent_divisible(u: UOp, ctx: VerifyContext) -> str | None:
    t, new = u.operand, u.arg.dtype.itemsize
    old = t.dtype.itemsize
    if old == new:
        return None
    if not t.shape:
        return f"a scalar of {old} bytes to {new}"
    if new > old and not divides(new // old, t.shape[-1]):
        return f"{show_extent_as_number_name_or_op(t.shape[-1])} * {old} bytes are no multiple of {new}"
    return None


def _splits_sharded_elements(u: UOp, axis: int) -> bool:
    """Return True if a Bitcast scales the sharded axis so that a device holds a part of an element (R89)."""
    t = u.operand
    return axis == len(t.shape) - 1 and isinstance(t.device, tuple) and not divides(len(t.device), u.shape[axis])


r = RowTable(Family.MOVEMENT)
# fmt: off
r(Op.PERMUTE, "Permute", "PERMUTE", "T", "Axis k of the result is axis order[k] of T.", [
    ClaimDraft("order is a permutation of T's axes", _check_permutation, gate=True),
])
r(Op.FLIP, "Flip", "FLIP", "T", "Each flagged axis runs backwards.", [
    ClaimDraft("one flag per axis of T", _check_flag_count, gate=True),
    sharded_axis_untouched_claim(lambda u, a: bool(u.arg.flags[a]), "Flip"),
])
r(Op.RESHAPE, "Reshape", "RESHAPE", "T s'", "The same elements, read in row-major order, in shape s'.", [
    ClaimDraft("prod(s) = prod(s')", _check_reshape_keeps_element_count),
    shape_operand_claim("s'", 1),
    nonnegative_entries_claim("s'", 1),
    ClaimDraft(
        "the shard boundary is kept: prod(s'[:k]) = prod(s[:axis]) and n divides s'_k for one k",
        _check_reshape_keeps_shard_boundary, "R74",
    ),
])
r(Op.EXPAND, "Expand", "EXPAND", "T s'", "Axes of size 1 are repeated to the size that s' gives.", [
    ClaimDraft("s_k is 1 or s'_k", _check_only_extent_1_axes_expand),
    shape_operand_claim("s'", 1),
    one_entry_per_axis_claim("s'", 1),
    nonnegative_entries_claim("s'", 1),
])
r(Op.PAD, "Pad", None, "T o s'", "T stands at offset o in an output of shape s' that is zero elsewhere.", [
    ClaimDraft("o + s <= s'", _check_pad_fits, "R43"),
    nonnegative_entries_claim("o", 1, "R43"),
    shape_operand_claim("o, s'", 1, 2),
    one_entry_per_axis_claim("o, s'", 1, 2),
    sharded_axis_untouched_claim(_resizes_axis, "Pad"),
])
r(Op.SHRINK, "Shrink", None, "T o s'", "Of each axis, the s' elements from offset o on.", [
    ClaimDraft("o + s' <= s", _check_shrink_fits, "R44"),
    nonnegative_entries_claim("o", 1, "R44"),
    shape_operand_claim("o, s'", 1, 2),
    one_entry_per_axis_claim("o, s'", 1, 2),
    sharded_axis_untouched_claim(_resizes_axis, "Shrink"),
    nonnegative_entries_claim("s'", 2),
])
r(Op.INDEX, "Index", None, "T i...",
  "Index the leading axes, one source each: a scalar removes its axis, a vector makes it as long as itself; outer, not zipped.", [
    ClaimDraft("at most one index per axis of T", _check_index_count, gate=True),
    ClaimDraft("rank(i) <= 1", _check_index_ranks_at_most_one, "R45"),
    ClaimDraft("i is an integer", _check_indices_are_integers),
    sharded_axis_untouched_claim(lambda u, a: a < len(u.positions), "Index"),
    SAME_DEVICE,
    ClaimDraft("no index is sharded", _check_indices_unsharded, "R83"),
])
r(Op.STACK, "Stack", None, "T...", "The sources, one after the other along a new first axis; of nothing, the shape ().", [
    claim_sources_share_dtype("sources"),
    ClaimDraft("sources have one shape", check_all_same_shape),
    SAME_DEVICE,
    SAME_AXIS,
])
r(Op.REPLICATED, "Replicated", None, "T", "States that T is the same along the axes, which become 1.", [
    distinct_axes_claim("axes are distinct axes of T", "R47"),
])
r(Op.SLICE, "Slice", None, "T offset", "`size` elements of `dtype` that begin at element `offset` of T, without a copy.", [
    ClaimDraft("T has rank 1", _check_slice_rank, "R46", gate=True),
    scalar_claim("offset", 1, "R46", gate=True),
    dtype_claim("offset", is_integer, "is an integer", "R46", 1, gate=True),
    ClaimDraft("the byte range lies inside T", _check_slice_in_bounds, "R46"),
    ClaimDraft("the byte range is aligned to dtype", _check_slice_alignment, "R46"),
    ClaimDraft("dtype is storable, and bool only if T is", _check_slice_dtype_storable_and_no_new_bool, "R84", gate=True),
    dtype_claim("T", is_storable, "is storable", "R29", 0, gate=True),
    sharded_axis_untouched_claim(_touches_any_axis, "Slice"),
])
r(Op.BITCAST, "Bitcast", "BitCast", "T", "T's storage, little-endian, read as dtype.", [
    arg_dtype_claim(_is_bitcast_target, "storable and not bool", "R46"),
    dtype_claim("T", is_storable, "is storable", "R29", 0, gate=True),
    ClaimDraft(
        "total bytes are equal: the last axis scales by whole elements, a scalar keeps its item size",
        _check_bitcast_last_extent_divisible, "R46",
    ),
    sharded_axis_untouched_claim(_splits_sharded_elements, "change of item size that splits an element"),
])
# fmt: on
ROWS = tuple(r.rows)
