"""The removal of a BUFFERIZE: its value is computed where it is read (R179, `removable`)."""

from __future__ import annotations

from uops.spec.bestiary.lower import LegalizeState, load
from uops.spec.ir import build as b
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import ALU, CONVERSIONS, MARKERS, Op

#: Ops of which a value may consist to be computed again: they read no memory and close no loop (R88, closing ranges).
_PURE = ALU | CONVERSIONS | MARKERS | {Op.CONST, Op.B_RANGE, Op.SPECIAL, Op.DEFINE_VAR}


def load_or_recompute(u: UOp, state: LegalizeState) -> UOp:
    """Lower a LOAD; one of a BUFFERIZE that may be removed becomes the value itself."""
    value = None if u.alternative is not None else recompute_removable_element(u.index, state)
    return load(u, state) if value is None else value


def recompute_removable_element(address: UOp, state: LegalizeState) -> UOp | None:
    """Return the element of a BUFFERIZE at an address as its value, in terms of the positions.

    None if the address is of other memory, or if the BUFFERIZE is to stay: it says so, its value is no pure one, or an index
    is not provably inside.
    """
    if address.op is not Op.B_INDEX or address.arg.gated:
        return None
    buffer = address.buffer
    if buffer.op is not Op.BUFFERIZE or not buffer.arg.removable or len(address.positions) != len(buffer.ranges):
        return None
    pure = all(u.op in _PURE for u in toposort(buffer.operand))
    if not pure or not all(map(_is_provably_inside, address.positions, buffer.shape)):
        return None
    positions = {state[r]: _as_counter(state[p], r) for r, p in zip(buffer.ranges, address.positions)}
    return substitute(state[buffer.operand], positions)


def _is_provably_inside(position: UOp, extent: object) -> bool:
    bounds = position.min_max
    return position.shape == () and bounds is not None and isinstance(extent, int) and 0 <= bounds[0] and bounds[1] < extent


def _as_counter(position: UOp, r: UOp) -> UOp:
    """Return a position in the dtype of the range that it replaces."""
    return position if position.dtype is r.dtype else b.cast(position, r.dtype)
