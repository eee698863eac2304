"""Prefix reductions as scans: n steps instead of n windows of n.

A kernel stores, for i in 0..N-1, a value made of R(i) = op over r in 0..n-1 of T(i, r). Where T depends on i + r alone, so that
T(i, r) = t(i + r), and t is the identity of op below n-1, the windows differ by their last term only: R(i) = op(R(i-1), t(i+n-1)),
and R(-1) is the identity. Both conditions are proved by the normal form of index arithmetic: t, put together again, is T; and t on
0..n-2 folds to the identity's constant.

Cores share the rows; of one long row each has a part, in front of which it reduces all that is before: reading costs less than the
chain of steps. Spec: prefix_sum among the compositions; R32 (any order), R49, R57, R133.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from uops.compiler.linear import number
from uops.compiler.optimize.schedule import Schedule, axis_of
from uops.compiler.passes.accumulate import combined, element, identity, opened, widened
from uops.compiler.rewrite import Rewriter
from uops.compiler.rules import INDEXING
from uops.compiler.target import PLAIN, Machine
from uops.spec import build as B
from uops.spec.args import RangeArg, SinkArg
from uops.spec.axes import AxisType
from uops.spec.node import UOp, nodes_of, substitute, toposort
from uops.spec.ops import Op
from uops.spec.scope import closed_by, open_ranges

#: Fewer steps than this are not worth a loop that carries a value.
LEAST = 8
#: Steps from which a scan is worth the cores: some 150 us of one.
SHARED = 1 << 17
#: The most parts of one row, of which the last reads all that is before it; and the elements that are read side by side there.
_MOST_PARTS = 4
LANES = 64


def scanned(s: Schedule, uniques: Iterator[int], machine: Machine = PLAIN) -> UOp | None:
    """The SCHEDULED body of a kernel with one prefix reduction over its innermost output loop, or None for any other kernel.
    `uniques` numbers its register."""
    if not s.outputs or not isinstance(axis_of(s.outputs[-1]).extent, int):
        return None
    i = s.outputs[-1]
    reduces = nodes_of(s.effect, Op.REDUCE)
    if not reduces:
        return None
    needs = open_ranges(toposort(s.effect))
    simplify = Rewriter(INDEXING)
    for u in reduces:
        alone = needs[u].issubset(s.outputs)  # in no loop of another reduction
        if alone and i in needs[u.src[0]] and len(closed_by(u)) == 1:
            term = _last_term(u, i, simplify)
            if term is not None:
                return _loop(s, u, term, next(uniques), machine)
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


class _Steps(NamedTuple):
    """The loops of a scan: those around, that of the steps; what stands for the loops that were, and what is before step 0."""

    outer: tuple[UOp, ...]
    i: UOp
    put: dict[UOp, UOp]
    start: UOp | None


def _loop(s: Schedule, u: UOp, term: UOp, unique: int, machine: Machine) -> UOp:
    """The body: a register that every step adds its term to, in order."""
    outer, i, put, start = _steps(s, u, term, machine)
    effect, term, u = (substitute(x, put) for x in (s.effect, term, u))
    register, cleared = opened(u, outer, unique)
    if start is not None:
        cleared = B.store(cleared.src[0], B.cast(start, register.dtype))
    running = element(B.after(register, cleared, i))
    total = combined(u, running, term)
    body = B.group(B.store(running, total), substitute(effect, {u: B.cast(total, u.dtype)}))
    return UOp(Op.SINK, (Rewriter(INDEXING)(B.nested(body, [*outer, i])),), SinkArg(s.name))


def _steps(s: Schedule, u: UOp, term: UOp, machine: Machine) -> _Steps:
    """The loops as they are, or with one for the cores."""
    *outer, i = s.outputs
    extents = [axis_of(r).extent for r in s.outputs]
    known = [n for n in extents if isinstance(n, int)]
    if machine.cores < 2 or s.fixed or len(known) < len(extents) or math.prod(known) < SHARED:
        return _Steps(tuple(outer), i, {}, None)
    if outer:
        rows = UOp(Op.RANGE, outer[0].src, RangeArg(outer[0].arg.axis_id, AxisType.THREAD))
        return _Steps((rows, *outer[1:]), i, {outer[0]: rows}, None)
    parts = min(machine.cores, _MOST_PARTS)
    size = -(-known[0] // parts // LANES) * LANES
    free = 1 + max(int(r.arg.axis_id) for r in toposort(s.effect) if r.op is Op.RANGE)
    part = UOp(Op.RANGE, (number(-(-known[0] // size)),), RangeArg(free, AxisType.THREAD))
    left = UOp(Op.SUB, (number(known[0]), UOp(Op.MUL, (part, number(size)))))
    steps = number(size) if known[0] % size == 0 else UOp(Op.WHERE, (UOp(Op.CMPLT, (left, number(size))), left, number(size)))
    step = UOp(Op.RANGE, (steps,), RangeArg(free + 1, AxisType.LOOP))
    whole, block, lane = (
        UOp(Op.RANGE, (n,), RangeArg(free + k, kind))
        for k, n, kind in (
            (2, part, AxisType.REDUCE),
            (3, number(size // LANES), AxisType.REDUCE),
            (4, number(LANES), AxisType.UNROLL),
        )
    )
    before = _at(_at(whole, size // LANES, block), LANES, lane)
    start = u.replace(src=(substitute(widened(term), {i: before}), whole, block, lane))
    return _Steps((part,), step, {i: _at(part, size, step)}, start)


def _at(outer: UOp, size: int, inner: UOp) -> UOp:
    return UOp(Op.ADD, (UOp(Op.MUL, (outer, number(size))), inner))
