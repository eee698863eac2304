"""Addresses of gated accesses, simplified under their gates, and conditions of Wheres, simplified under those around them.

Takes: the body of a kernel. Gives: the same body, in which an address may have another value where the gate of its access is false,
as nothing is accessed there. A Where may have another value where no Where around it chooses its branch. Spec: Load and Store (R52,
R54: gates); R14 (Where condition).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from uops.compiler.ir.views import TRUE
from uops.compiler.log import log_transform
from uops.compiler.rewrite.gates import Simplify, simplify_gate, simplify_under_gate, split_conjuncts
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, ops_below, toposort
from uops.spec.ir.ops import ACCESSES, ALU, DIVISION, Op
from uops.spec.ir.scope import ranges_closed_by

#: Ops of addresses and gates that read no memory; a Stack is the shape of a variable.
_ARITHMETIC = ALU | {Op.CONST, Op.RANGE, Op.PARAM, Op.STACK}

#: Ops whose operands matter only where their result does. A division of integers is none: a divisor must not be 0 anywhere.
_PASSING = (ALU - DIVISION) | {Op.BITCAST, Op.REDUCE}
_FALSE = B.const(False, dt.bool_)


def simplify_divisions_in_gated_accesses(body: UOp, simplify: Simplify) -> UOp:
    """Simplify the gates and addresses of the Loads and Stores that divide to compute them."""
    if DIVISION.isdisjoint(ops_below(body)):
        return body
    order = toposort(body)
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


def simplify_nested_conditions(body: UOp, simplify: Simplify) -> UOp:
    """Simplify each condition of a Where that is computed by a division, under those that hold wherever its value matters."""
    below = ops_below(body)
    if Op.WHERE not in below or DIVISION.isdisjoint(below):
        return body
    order = toposort(body)
    known, place = _find_conditions_under_which_values_matter(order), {u: k for k, u in enumerate(order)}
    done: dict[UOp, UOp] = {}
    for u in order:
        new = u if done.keys().isdisjoint(u.src) else u.replace(src=tuple([done.get(s, s) for s in u.src]))
        if new.op is Op.WHERE and known[u]:
            new = _simplify_condition(new, sorted(known[u], key=place.__getitem__), simplify)
        if new is not u:
            done[u] = new
    result = done.get(body, body)
    log_transform("nested conditions", body, result, done)
    return result


def _simplify_condition(where: UOp, known: Sequence[UOp], simplify: Simplify) -> UOp:
    """Return a Where with a condition that is the same where all that are known are true, or the branch that it chooses there."""
    condition, if_true, if_false = where.src
    if DIVISION.isdisjoint(ops_below(condition)) or not _is_arithmetic(condition):
        return where
    around = functools.reduce(lambda a, b: UOp(Op.AND, (a, b)), known)
    condition = simplify_under_gate(condition, simplify_gate(around, simplify), simplify)
    return if_true if condition is TRUE else if_false if condition is _FALSE else where.replace(src=(condition, if_true, if_false))


def _find_conditions_under_which_values_matter(order: Sequence[UOp]) -> dict[UOp, frozenset[UOp]]:
    """Return, for each node of a body in sources-first order, conditions that are true wherever its value decides a result.

    An access happens whatever the Wheres around it choose, so nothing is known of its address. Nor is a condition known inside of a
    Reduce that has a loop of the condition.
    """
    known: dict[UOp, frozenset[UOp]] = {}
    nothing = frozenset[UOp]()
    for u in reversed(order):
        around = known.setdefault(u, nothing)
        if u.op is Op.REDUCE and around:
            closed = ranges_closed_by(u)
            around = frozenset(c for c in around if not any(r in closed for r in toposort(c)))
        here = around if u.op in _PASSING else nothing
        states = [here] * len(u.src)
        if u.op is Op.WHERE:
            condition, _, _ = u.src
            conjuncts = split_conjuncts(condition) if condition.dtype is dt.bool_ else ()
            states[1] = here | {c for c in conjuncts if _is_arithmetic(c)}
        for s, state in zip(u.src, states):
            known[s] = known[s] & state if s in known else state
    return known


def _is_arithmetic(u: UOp) -> bool:
    """Return True if a node is computed from loops, variables and constants alone, and no loop has a computed extent."""
    nodes = toposort(u)
    return all(v.op in _ARITHMETIC and not (v.op is Op.RANGE and v.bound.op is not Op.CONST) for v in nodes)


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
