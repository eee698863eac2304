"""Load and Store."""

from __future__ import annotations

from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.scope import Context
from uops.spec.ir.sizes import divides, same_shape, show_shape
from uops.spec.rows.claims import SAME_DEVICE, Draft, boolean, dtype_is, reference, same_shape_as, sharded, storable
from uops.spec.rows.table.base import EFFECT, Table


def _together(u: UOp, ctx: Context) -> str | None:
    return "one of the two is missing" if len(u.src) == 2 else None


def _gate_shape(u: UOp, ctx: Context) -> str | None:
    if len(u.src) < 3:
        return None
    gate, buf = u.src[2].shape, u.src[0].shape
    return None if gate == () or same_shape(gate, buf) else f"needs () or {show_shape(buf)}, got {show_shape(gate)}"


def _alt(u: UOp, ctx: Context) -> str | None:
    if len(u.src) < 3:
        return None
    buf, alt = u.src[:2]
    if alt.dtype is buf.dtype and same_shape(alt.shape, buf.shape):
        return None
    return f"needs {buf.dtype} {show_shape(buf.shape)}, got {alt.dtype} {show_shape(alt.shape)}"


def _shards(u: UOp, ctx: Context) -> str | None:
    device, s = u.arg.device, u.src[0].shape
    if not isinstance(device, tuple):
        return None
    return None if s and divides(len(device), s[0]) else f"{show_shape(s)} over {len(device)} devices"


def _shards_agree(u: UOp, ctx: Context) -> str | None:
    """An operand is sharded as the buffer is, or every device holds all of it (R76)."""
    if not sharded(u):
        return None
    buf, rank = u.src[0].axis, len(u.src[0].shape)
    for k, s in enumerate(u.src[1:], 1):
        if s.axis is not None and (buf is None or s.axis - len(s.shape) != buf - rank):
            return f"source {k} is sharded on axis {s.axis}, source 0 on {buf}"
    return None


def _stored_dtype(u: UOp, ctx: Context) -> str | None:
    buf, val = u.src[:2]
    return None if buf.dtype is val.dtype else f"needs {buf.dtype}, got {val.dtype}"


r = Table(Family.LOAD)
# fmt: off
r(Op.LOAD, "Load", None, "buf alt? gate?",
  "The contents of buf in a fresh buffer, on another device or in another space if arg says so; where the gate is false, alt.", [
    Draft("gate and alt come together", _together, "R52", gate=True),
    dtype_is("gate", boolean, "is bool", "R52", 2),
    Draft("gate has shape () or buf's", _gate_shape, "R52"),
    Draft("alt has buf's dtype and shape", _alt, "R52"),
    dtype_is("buf", storable, "is storable", "R29", 0),
    Draft("an n-tuple device divides axis 0, which is there", _shards, "R75"),
    SAME_DEVICE,
    Draft("alt and gate are sharded as buf is, or not at all", _shards_agree, "R74"),
])
r(Op.STORE, "Store", None, "buf val gate?", "Writes val into buf where the gate is true or missing.", [
    reference("buf", 0),
    Draft("val has buf's dtype", _stored_dtype, "R25"),
    same_shape_as("buf and val", 0, 1),
    dtype_is("gate", boolean, "is bool", "R52", 2),
    Draft("gate has shape () or buf's", _gate_shape, "R52"),
    SAME_DEVICE,
    Draft("val and gate are sharded as buf is, or not at all", _shards_agree, "R74"),
], gradient=EFFECT, family=Family.STORE)
# fmt: on
ROWS = tuple(r.rows)
