"""Addresses of gated accesses, simplified under their gates.

Takes: the body of a kernel. Gives: the same body, in which an address may have another value where the gate of its access is false,
as nothing is accessed there. Spec: Load and Store (R52, R54: gates).
"""

from __future__ import annotations

from uops.compiler.ir.views import TRUE
from uops.compiler.log import log_transform
from uops.compiler.rewrite.gates import Simplify, simplify_gate, simplify_under_gate
from uops.spec.ir.node import UOp, ops_below, toposort
from uops.spec.ir.ops import ACCESSES, ALU, DIVISION, Op

#: Ops of addresses and gates that read no memory; a Stack is the shape of a variable.
_ARITHMETIC = ALU | {Op.CONST, Op.RANGE, Op.PARAM, Op.STACK}


def simplify_divisions_in_gated_accesses(body: UOp, simplify: Simplify) -> UOp:
    """Simplify the gates and addresses of the Loads and Stores that divide to compute them."""
    order = toposort(body)
    if DIVISION.isdisjoint(ops_below(body)):
        return body
    done: dict[UOp, UOp] = {}
    for u in order:
        new = u if done.keys().isdisjoint(u.src) else u.replace(src=tuple([done.get(s, s) for s in u.src]))
        if u.op in ACCESSES and new.gate is not None and new.buffer.op is Op.INDEX:
            new = _simplify_gate_and_positions(new, new.gate, simplify)
        if new is not u:
            done[u] = new
    result = done.get(body, body)
    log_transform("gated addresses", body, result, done)
    return result


def _simplify_gate_and_positions(access: UOp, gate: UOp, simplify: Simplify) -> UOp:
    """Return an access with a shorter gate, and with addresses that are right where it is true.

    An address that depends on another Load stays: that Load runs where this gate is false, too. So does one in a loop of a computed
    extent, which the gate must not change.
    """
    address = access.buffer
    nodes = toposort(gate, *address.positions)
    ops = {u.op for u in nodes}
    if ops.isdisjoint(DIVISION) or not ops <= _ARITHMETIC or any(u.op is Op.RANGE and u.bound.op is not Op.CONST for u in nodes):
        return access
    gate = simplify_gate(gate, simplify)
    positions = [simplify_under_gate(p, gate, simplify) for p in address.positions]
    memory = address.operand
    _, value, _ = access.src  # a Load's alternative, or what a Store writes
    target = address.replace(src=(memory, *positions))
    if gate is TRUE:
        return access.replace(src=(target,) if access.op is Op.LOAD else (target, value))
    return access.replace(src=(target, value, gate))
