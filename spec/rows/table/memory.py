"""Load and Store."""

from __future__ import annotations

from uops.spec.ir.args import Device
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.scope import VerifyContext
from uops.spec.ir.sizes import divides, same_shape, show_shape
from uops.spec.rows.claims import (
    SAME_DEVICE,
    ClaimDraft,
    dtype_claim,
    has_sharded_source,
    is_boolean,
    is_storable,
    reference_claim,
    same_shape_claim,
)
from uops.spec.rows.table.base import RowTable


def _check_gate_with_alt(u: UOp, ctx: VerifyContext) -> str | None:
    return "one of the two is missing" if len(u.src) == 2 else None


def _check_gate_scalar_or_shaped_as_buffer(u: UOp, ctx: VerifyContext) -> str | None:
    if u.gate is None:
        return None
    gate, buffer = u.gate.shape, u.buffer.shape
    return None if gate == () or same_shape(gate, buffer) else f"needs () or {show_shape(buffer)}, got {show_shape(gate)}"


def _check_alt_type(u: UOp, ctx: VerifyContext) -> str | None:
    return None if u.gate is None else alternative_fault(u.buffer, u.alternative)


def alternative_fault(memory: UOp, alternative: UOp | None) -> str | None:
    """Return what is wrong if an alternative has not the dtype and shape of the memory that is loaded, else None."""
    if alternative is None or (alternative.dtype is memory.dtype and same_shape(alternative.shape, memory.shape)):
        return None
    return f"needs {memory.dtype} {show_shape(memory.shape)}, got {alternative.dtype} {show_shape(alternative.shape)}"


def _check_shards_divide(u: UOp, ctx: VerifyContext) -> str | None:
    return find_axis_0_divisibility_fault(u.buffer, u.arg.device)


def find_axis_0_divisibility_fault(t: UOp, device: Device | None) -> str | None:
    """Return what is wrong if an n-tuple device cannot shard `t` on axis 0, else None (R75, n-tuple sizes)."""
    if not isinstance(device, tuple) or (t.shape and divides(len(device), t.shape[0])):
        return None
    return f"{show_shape(t.shape)} over {len(device)} devices"


def _check_sources_sharded_as_buffer_or_whole(u: UOp, ctx: VerifyContext) -> str | None:
    """Check that each other source is sharded as the buffer is, or whole on every device (R76, null axis on D)."""
    if not has_sharded_source(u):
        return None
    buffer = u.buffer
    for k, s in enumerate(u.src):
        if s.axis is not None and (buffer.axis is None or s.axis - len(s.shape) != buffer.axis - len(buffer.shape)):
            return f"source {k} is sharded on axis {s.axis}, source 0 on {buffer.axis}"
    return None


def _check_stored_dtype(u: UOp, ctx: VerifyContext) -> str | None:
    return None if u.buffer.dtype is u.value.dtype else f"needs {u.buffer.dtype}, got {u.value.dtype}"


r = RowTable(Family.LOAD)
# fmt: off
r(Op.LOAD, "Load", None, "buf alt? gate?",
  "The contents of buf in a fresh buffer, on another device or in another space if arg says so; where the gate is false, alt.", [
    ClaimDraft("gate and alt come together", _check_gate_with_alt, "R52", gate=True),
    dtype_claim("gate", is_boolean, "is bool", "R52", 2),
    ClaimDraft("gate has shape () or buf's", _check_gate_scalar_or_shaped_as_buffer, "R52"),
    ClaimDraft("alt has buf's dtype and shape", _check_alt_type, "R52"),
    dtype_claim("buf", is_storable, "is storable", "R29", 0),
    ClaimDraft("an n-tuple device divides axis 0, which is there", _check_shards_divide, "R75"),
    SAME_DEVICE,
    ClaimDraft("alt and gate are sharded as buf is, or not at all", _check_sources_sharded_as_buffer_or_whole, "R74"),
])
r(Op.STORE, "Store", None, "buf val gate?", "Writes val into buf where the gate is true or missing.", [
    reference_claim("buf", 0),
    ClaimDraft("val has buf's dtype", _check_stored_dtype, "R25"),
    same_shape_claim("buf and val", 0, 1),
    dtype_claim("gate", is_boolean, "is bool", "R52", 2),
    ClaimDraft("gate has shape () or buf's", _check_gate_scalar_or_shaped_as_buffer, "R52"),
    SAME_DEVICE,
    ClaimDraft("val and gate are sharded as buf is, or not at all", _check_sources_sharded_as_buffer_or_whole, "R74"),
], family=Family.STORE)
# fmt: on
ROWS = tuple(r.rows)
