"""Loops and effects: RANGE, END, REDUCE, STORE with ranges, IF, BARRIER, and the tensor-core instruction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from uops.interp.bestiary.access import store
from uops.interp.bestiary.frame import Frame
from uops.interp.bestiary.lanes import Request, Run
from uops.interp.bestiary.machine import Machine, Step
from uops.interp.bestiary.values import folded, joined
from uops.interp.tensor.storage import NUMPY, Array, settle
from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def loop_needs(m: Machine, frame: Frame, u: UOp) -> Iterable[tuple[Frame, UOp]]:
    """Of a node that ends loops: what stands right outside of them."""
    plan = frame.scope.plan
    ranges = plan.closes(u)
    if not ranges:
        return [(frame, s) for s in plan.operands(u)]
    outermost = plan.levels(plan.body(u), ranges)[0]
    return [(frame, s) for s in (outermost.range.src[0], *outermost.invariant)]


def no_needs(m: Machine, frame: Frame, u: UOp) -> Iterable[tuple[Frame, UOp]]:
    return ()


def range_(s: Step) -> Any:
    value = s.frame.at(s.node)
    if value is None:
        raise SpecError(f"axis {s.node.arg.axis_id} is open: nothing around its use closes it (R58)")
    return settle(value)


def void(s: Step) -> Any:
    return None


def end(s: Step) -> Run:
    m, body = s.machine, s.node.src[0]

    def leaf(frame: Frame) -> Run:
        yield from m.evaluate(frame, body)
        s.cell(body, frame)

    yield from s.loops((body,), s.node.src[1:], leaf)


def store_in_loops(s: Step) -> Run:
    """R105: the ranges end around the Store."""
    m, u = s.machine, s.node

    def leaf(frame: Frame) -> Run:
        yield from m.evaluate(frame, *u.src[:2])
        store(s, frame, u)

    yield from s.loops(u.src[:2], u.src[2:], leaf)


def reduce_ranges(s: Step) -> Run:
    """All iterations and all lanes of a vector combined, as one multiset (R32, R105)."""
    m, u, t = s.machine, s.node, s.node.src[0]
    found: dict[tuple[int, ...], Array] = {}
    ranges = [level.range for level in s.frame.scope.plan.levels((t,), u.src[1:])]

    def leaf(frame: Frame) -> Run:
        yield from m.evaluate(frame, t)
        found[tuple(frame.at(r) or 0 for r in ranges)] = s.value(t, frame)

    yield from s.loops((t,), u.src[1:], leaf)
    values = [found[k].reshape(-1) for k in sorted(found)]
    every = joined(u.dtype, values) if values else np.zeros((0, 1), NUMPY[u.dtype])
    return np.asarray(folded(u.arg.op, u.dtype, every, (0, 1))).reshape(())


# ----------------------------------------------------------------------------------------------------------------- conditions


def if_needs(m: Machine, frame: Frame, u: UOp) -> Iterable[tuple[Frame, UOp]]:
    """Nothing: the gate joins those of the Stores, in their loops (R114)."""
    return ()


def if_(s: Step) -> Run:
    for effect in s.node.src[1:]:
        yield from conditional(s, s.frame, effect, (s.node.src[0],))


def conditional(s: Step, frame: Frame, u: UOp, gates: tuple[UOp, ...]) -> Run:
    """Execute an effect in the body of an IF: every Store of it only where all of `gates` hold."""
    m = s.machine
    if u.op is Op.ENDIF:
        yield from conditional(s, frame, u.src[0], gates)
    elif u.op is Op.GROUP:
        for e in u.src:
            yield from conditional(s, frame, e, gates)
    elif u.op is Op.B_IF:
        for e in u.src[1:]:
            yield from conditional(s, frame, e, (*gates, u.src[0]))
    else:
        closed = u.src[2:] if u.op is Op.B_STORE else u.src[1:]
        body = u.src[:2] if u.op is Op.B_STORE else u.src[:1]

        def leaf(inner: Frame) -> Run:
            if u.op is Op.END:
                yield from conditional(s, inner, u.src[0], gates)
                return
            yield from m.evaluate(inner, *gates, *body)
            store(s, inner, u, gates)

        yield from m.loops(frame, frame.scope.plan.levels((*body, *gates), closed), leaf)


# ----------------------------------------------------------------------------------------------------------------- workgroup


def barrier(s: Step) -> Run:
    """Passes its first source on, once all lanes of the workgroup have come here (R60)."""
    answer = yield Request(s.node, s.before)
    s.before |= answer.before
    if s.node.dtype is dt.void:
        return None
    return s.cell(s.node.src[0]).value


def wmma(s: Step) -> Run:
    """The lanes of a warp together compute A times B plus acc; `()` marks this lane's own fragments."""
    a, b, acc = s.values(s.node.src)
    answer = yield Request(s.node, s.before, {(): (a, b, acc)})
    s.before |= answer.before
    return answer.fragments[()]
