"""Source ops: leaf nodes."""

from __future__ import annotations

from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.derive.exact import round_nearest
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.scope import Context
from uops.spec.ir.sizes import divides, same_shape, show_shape
from uops.spec.rows.claims import Draft, arg_dtype_is, entries_not_negative, shape_operands, storable
from uops.spec.rows.table.base import NONE, Table


def not_void(d: DType) -> bool:
    return d is not dt.void


def representable(value: object, d: DType) -> bool:
    """Whether a Python number is a value of `d`, in the kind that holds it: bool, int or float (R23)."""
    if d is dt.bool_:
        return type(value) is bool
    if d.is_float:
        return type(value) is float and (value != value or round_nearest(d, value) == value)
    return d.is_integer and type(value) is int and d.min <= value <= d.max and value.bit_length() <= max(d.bits, dt.INDEX_BITS)


def _const_value(u: UOp, ctx: Context) -> str | None:
    value, d = u.arg.value, u.arg.dtype
    if representable(value, d):
        return None
    wide = type(value) is int and value.bit_length() > dt.INDEX_BITS
    return f"an integer of {value.bit_length()} bits is wider than {dt.INDEX_BITS} (R08)" if wide else f"{value!r} is no {d}"


def _slot_or_name(u: UOp, ctx: Context) -> str | None:
    slot = u.arg.slot
    if slot is None:
        return None if u.arg.name else "got neither"
    return None if slot >= 0 else f"got slot {slot}"


def _named_bounds(u: UOp, ctx: Context) -> str | None:
    a = u.arg
    if a.name is None:
        return None if a.bounds is None else "bounds without a name"
    if not a.dtype.is_integer or u.shape != ():
        return f"{a.name} is {a.dtype} of shape {show_shape(u.shape)}"
    if a.bounds is None:
        return f"{a.name} has no bounds"
    lo, hi = a.bounds
    return None if a.dtype.min <= lo <= hi <= a.dtype.max else f"{a.name} has bounds [{lo}, {hi}]"


def _own_name(u: UOp, ctx: Context) -> str | None:
    kind, number = {"p": "Param", "b": "Buffer"}.get((u.arg.name or "")[:1]), (u.arg.name or "")[1:]
    return f"{u.arg.name} is {kind} {number}" if kind and number.isascii() and number.isdigit() else None


OWN_NAME = Draft("a variable has no key of a Param (p0, p1, ...) or a Buffer (b0, b1, ...) for a name", _own_name, "R48")


def _param_axis(u: UOp, ctx: Context) -> str | None:
    axis, device = u.arg.axis, u.arg.device
    if axis is None:
        return None
    if not isinstance(device, tuple):
        return f"axis {axis} on the device {device}"
    if not 0 <= axis < len(u.shape):
        return f"axis {axis} of rank {len(u.shape)}"
    fits = divides(len(device), u.shape[axis])
    return None if fits else f"{len(device)} devices do not divide axis {axis} of {show_shape(u.shape)}"


def _one_slot(u: UOp, ctx: Context) -> str | None:
    other = ctx.slots.get(u)
    if other is None or (other.arg == u.arg and same_shape(other.shape, u.shape)):
        return None
    return f"slot {u.arg.slot} is also {other.arg.dtype} {show_shape(other.shape)}"


def _one_variable(u: UOp, ctx: Context) -> str | None:
    other = ctx.variables.get(u)
    return None if other is None else f"{u.arg.name} also has bounds {list(other.arg.bounds or ())}"


def _buffer_size(u: UOp, ctx: Context) -> str | None:
    return None if u.arg.size >= 0 else f"got {u.arg.size}"


def _local_device(u: UOp, ctx: Context) -> str | None:
    if u.arg.addrspace is AddrSpace.GLOBAL or isinstance(u.arg.device, str):
        return None
    return f"{u.arg.addrspace.name} on {len(u.arg.device)} devices"


def _buffer_identity(u: UOp, ctx: Context) -> str | None:
    return f"another Buffer is also {u.arg.unique}" if u in ctx.buffer_ids else None


r = Table(Family.SOURCE)
# fmt: off
r(Op.PARAM, "Param", None, "s",
  "Stands for argument `slot` of the enclosing Function, Call or kernel, or for a named size; its shape is s.", [
    arg_dtype_is(not_void, "not void", ""),
    shape_operands("s", 0),
    entries_not_negative("s", 0),
    Draft("slot >= 0, or a named variable", _slot_or_name, "R48"),
    Draft("a named Param is a () integer with bounds lo <= hi in its dtype; any other has no bounds", _named_bounds, "R48"),
    Draft("a sharded axis needs an n-tuple device, lies in the shape, and n divides it", _param_axis, "R79"),
    Draft("the Params of one slot in a scope agree", _one_slot, "R64"),
    Draft("a variable has the same bounds everywhere", _one_variable, "R48"),
    OWN_NAME,
])
r(Op.BUFFER, "Buffer", None, "", "Memory of `size` elements on each of its devices, told apart from others by `unique`.", [
    Draft("size >= 0", _buffer_size),
    arg_dtype_is(storable, "not void and not index", "R29"),
    Draft("a LOCAL or REG Buffer is on one device", _local_device, "R61"),
    Draft("no other Buffer has the same identity", _buffer_identity, "R62"),
])
r(Op.CONST, "Const", "CONST", "", "One constant of shape ().", [
    Draft("value is representable in dtype", _const_value, "R23"),
], gradient=NONE)
r(Op.BINARY, "Binary", None, "", "A vector of uint8: raw bytes, be they data or compiled machine code.", gradient=NONE)
# fmt: on
ROWS = tuple(r.rows)
