"""Source ops, the leaves of a graph."""

from __future__ import annotations

from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.derive.exact import round_nearest
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.scope import VerifyContext
from uops.spec.ir.sizes import divides, same_shape, show_shape
from uops.spec.rows.claims import ClaimDraft, arg_dtype_claim, is_storable, nonnegative_entries_claim, shape_operand_claim
from uops.spec.rows.table.base import RowTable


def is_not_void(d: DType) -> bool:
    """Return True for every dtype but void."""
    return d is not dt.void


def is_representable_in_same_kind(value: object, d: DType) -> bool:
    """Return True if a Python number is a value of `d` and has the type of its kind: bool, int or float (R23, Const)."""
    if d is dt.bool_:
        return type(value) is bool
    if d.is_float:
        return type(value) is float and (value != value or round_nearest(d, value) == value)
    return d.is_integer and type(value) is int and d.min <= value <= d.max and value.bit_length() <= max(d.bits, dt.INDEX_BITS)


def _check_const_is_representable(u: UOp, ctx: VerifyContext) -> str | None:
    value, d = u.arg.value, u.arg.dtype
    if is_representable_in_same_kind(value, d):
        return None
    wide = type(value) is int and value.bit_length() > dt.INDEX_BITS
    return f"an integer of {value.bit_length()} bits is wider than {dt.INDEX_BITS} (R08)" if wide else f"{value!r} is no {d}"


def _check_has_nonnegative_slot_or_name(u: UOp, ctx: VerifyContext) -> str | None:
    slot = u.arg.slot
    if slot is None:
        return None if u.arg.name else "got neither"
    return None if slot >= 0 else f"got slot {slot}"


def _check_variable_type_and_bounds(u: UOp, ctx: VerifyContext) -> str | None:
    name, dtype, bounds = u.arg.name, u.arg.dtype, u.arg.bounds
    if name is None:
        return None if bounds is None else "bounds without a name"
    if not dtype.is_integer or u.shape != ():
        return f"{name} is {dtype} of shape {show_shape(u.shape)}"
    if bounds is None:
        return f"{name} has no bounds"
    lo, hi = bounds
    return None if dtype.min <= lo <= hi <= dtype.max else f"{name} has bounds [{lo}, {hi}]"


def _check_name_unreserved(u: UOp, ctx: VerifyContext) -> str | None:
    kind, number = {"p": "Param", "b": "Buffer"}.get((u.arg.name or "")[:1]), (u.arg.name or "")[1:]
    return f"{u.arg.name} is {kind} {number}" if kind and number.isascii() and number.isdigit() else None


OWN_NAME = ClaimDraft(
    "a variable has no key of a Param (p0, p1, ...) or a Buffer (b0, b1, ...) for a name", _check_name_unreserved, "R48"
)


def _check_param_axis_shardable_by_devices(u: UOp, ctx: VerifyContext) -> str | None:
    axis, device = u.arg.axis, u.arg.device
    if axis is None:
        return None
    if not isinstance(device, tuple):
        return f"axis {axis} on the device {device}"
    if not 0 <= axis < len(u.shape):
        return f"axis {axis} of rank {len(u.shape)}"
    fits = divides(len(device), u.shape[axis])
    return None if fits else f"{len(device)} devices do not divide axis {axis} of {show_shape(u.shape)}"


def _check_params_of_slot_agree(u: UOp, ctx: VerifyContext) -> str | None:
    other = ctx.param_slot_clashes.get(u)
    if other is None or (other.arg == u.arg and same_shape(other.shape, u.shape)):
        return None
    return f"slot {u.arg.slot} is also {other.arg.dtype} {show_shape(other.shape)}"


def _check_variable_agreement(u: UOp, ctx: VerifyContext) -> str | None:
    other = ctx.variable_bounds_clashes.get(u)
    return None if other is None else f"{u.arg.name} also has bounds {list(other.arg.bounds or ())}"


def _check_buffer_size(u: UOp, ctx: VerifyContext) -> str | None:
    return None if u.arg.size >= 0 else f"got {u.arg.size}"


def _check_local_device(u: UOp, ctx: VerifyContext) -> str | None:
    if u.arg.addrspace is AddrSpace.GLOBAL or isinstance(u.arg.device, str):
        return None
    return f"{u.arg.addrspace.name} on {len(u.arg.device)} devices"


def _check_buffer_identity(u: UOp, ctx: VerifyContext) -> str | None:
    return f"another Buffer is also {u.arg.unique}" if u in ctx.buffer_id_clashes else None


r = RowTable(Family.SOURCE)
# fmt: off
r(Op.PARAM, "Param", None, "s",
  "Stands for argument `slot` of the enclosing Function, Call or kernel, or for a named size; its shape is s.", [
    arg_dtype_claim(is_not_void, "not void", ""),
    shape_operand_claim("s", 0),
    nonnegative_entries_claim("s", 0),
    ClaimDraft("slot >= 0, or a named variable", _check_has_nonnegative_slot_or_name, "R48"),
    ClaimDraft(
        "a named Param is a () integer with bounds lo <= hi in its dtype; any other has no bounds",
        _check_variable_type_and_bounds, "R48",
    ),
    ClaimDraft(
        "a sharded axis needs an n-tuple device, lies in the shape, and n divides it",
        _check_param_axis_shardable_by_devices, "R79",
    ),
    ClaimDraft("the Params of one slot in a scope agree", _check_params_of_slot_agree, "R64"),
    ClaimDraft("a variable has the same bounds everywhere", _check_variable_agreement, "R48"),
    OWN_NAME,
])
r(Op.BUFFER, "Buffer", None, "", "Memory of `size` elements on each of its devices, told apart from others by `unique`.", [
    ClaimDraft("size >= 0", _check_buffer_size),
    arg_dtype_claim(is_storable, "not void and not index", "R29"),
    ClaimDraft("a LOCAL or REG Buffer is on one device", _check_local_device, "R61"),
    ClaimDraft("no other Buffer has the same identity", _check_buffer_identity, "R62"),
])
r(Op.CONST, "Const", "CONST", "", "One constant of shape ().", [
    ClaimDraft("value is representable in dtype", _check_const_is_representable, "R23"),
])
r(Op.BINARY, "Binary", None, "", "A vector of uint8: raw bytes, be they data or compiled machine code.")
# fmt: on
ROWS = tuple(r.rows)
