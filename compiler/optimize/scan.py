"""Prefix reductions as scans: n steps instead of n windows of n.

A kernel stores, for i in 0..N-1, a value made of R(i) = op over r in 0..n-1 of T(i, r). Where T depends on i + r alone, so that
T(i, r) = t(i + r), and t is the identity of op below n-1, the windows differ by their last term only: R(i) = op(R(i-1), t(i+n-1)),
and R(-1) is the identity. Both conditions are proved by the normal form of index arithmetic: t, put together again, is T; and t on
0..n-2 folds to the identity's constant. Spec: prefix_sum among the compositions; R32 (any order), R49.
"""

from __future__ import annotations

from uops.compiler.linear import number
from uops.compiler.optimize.schedule import Schedule, axis_of
from uops.compiler.passes.accumulate import combined, element, identity, opened
from uops.compiler.rewrite import Rewriter
from uops.compiler.rules import INDEXING
from uops.spec import build as B
from uops.spec.args import RangeArg, SinkArg
from uops.spec.axes import AxisType
from uops.spec.node import UOp, substitute, toposort
from uops.spec.ops import Op
from uops.spec.scope import closed_by, open_ranges

#: Fewer steps than this are not worth a loop that carries a value.
LEAST = 8


def scanned(s: Schedule, unique: int) -> UOp | None:
    """The SCHEDULED body of a kernel with one prefix reduction over its innermost output loop, or None for any other kernel."""
    if not s.outputs or not isinstance(axis_of(s.outputs[-1]).extent, int):
        return None
    i = s.outputs[-1]
    order = toposort(s.effect)
    if not any(u.op is Op.REDUCE for u in order):
        return None
    needs = open_ranges(order)
    simplify = Rewriter(INDEXING)
    for u in order:
        if u.op is Op.REDUCE and i in needs[u.src[0]] and len(closed_by(u)) == 1:
            term = _last_term(u, i, simplify)
            if term is not None:
                return _loop(s, u, term, unique)
    return None


def _last_term(u: UOp, i: UOp, simplify: Rewriter) -> UOp | None:
    """t(i + n-1), where the conditions hold."""
    (r,) = closed_by(u)
    n, steps = axis_of(r).extent, axis_of(i).extent
    if not isinstance(n, int) or not isinstance(steps, int) or min(n, steps) < LEAST:
        return None
    at = UOp(Op.RANGE, (number(steps + n - 1),), RangeArg(-1, AxisType.LOOP))
    term = simplify(substitute(u.src[0], {i: number(0), r: at}))
    if simplify(substitute(term, {at: UOp(Op.ADD, (i, r))})) is not simplify(u.src[0]):
        return None
    early = _without_dead_loads(simplify(substitute(term, {at: UOp(Op.RANGE, (number(n - 1),), at.arg)})), simplify)
    if early is not identity(u.arg.op, u.dtype):
        return None
    return simplify(substitute(term, {at: UOp(Op.ADD, (i, number(n - 1)))}))


def _without_dead_loads(u: UOp, simplify: Rewriter) -> UOp:
    """`u` with the alternative of every Load whose gate never holds (R52)."""
    loads = [x for x in toposort(u) if x.op is Op.LOAD and len(x.src) == 3]
    dead = {x: x.src[1] for x in loads if x.src[2].op is Op.CONST and not x.src[2].arg.value}
    return simplify(substitute(u, dead)) if dead else u


def _loop(s: Schedule, u: UOp, term: UOp, unique: int) -> UOp:
    """The body: a register that every step adds its term to, in order."""
    *outer, i = s.outputs
    register, cleared = opened(u, outer, unique)
    running = element(B.after(register, cleared, i))
    total = combined(u, running, term)
    body = B.group(B.store(running, total), substitute(s.effect, {u: B.cast(total, u.dtype)}))
    for r in (i, *reversed(outer)):
        body = UOp(Op.END, (body, r))
    return UOp(Op.SINK, (Rewriter(INDEXING)(body),), SinkArg(s.name))
