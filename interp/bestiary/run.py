"""`run`: a graph of the bestiary on arrays; `is_bestiary`: whether a graph is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from uops.interp.bestiary.actions import ACTIONS, NEEDS
from uops.interp.bestiary.calls import body_of
from uops.interp.bestiary.frame import Frame, Lane, Scope
from uops.interp.bestiary.lanes import Run
from uops.interp.bestiary.machine import Machine, Trace
from uops.interp.bestiary.plan import ABSORBED, stage
from uops.interp.tensor.memory import describe
from uops.interp.tensor.storage import Array
from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.result import Result

_FIRST = Op.B_RANGE.value
_COLLECTIONS = frozenset({Op.SINK, Op.GROUP})


def is_bestiary(root: UOp) -> bool:
    """Whether an op or form of the second document is in the graph."""
    seen, pending = {root}, [root]
    while pending:
        u = pending.pop()
        if u.op.value >= _FIRST:
            return True
        for s in u.src:
            if s not in seen:
                seen.add(s)
                pending.append(s)
    return False


def run(
    root: UOp, inputs: Mapping[str, Any], *, check: bool = True, schedule: int | None = None, trace: Trace | None = None
) -> Result:
    """Evaluate `root` on `inputs`, by the keys of `uops.interp.run`: `p<slot>`, `b<unique>`, names of variables.

    `values` and `buffers` are those of `uops.interp.run` too. Memory that only the graph can name (LUNIQUE, DEFINE_LOCAL,
    DEFINE_REG, BUFFERIZE) is uninitialised and in no result (R120). `schedule` picks an order of everything that is unordered:
    lanes, workgroups and the iterations of unordered Ranges. With `check`, every node's dtype, shape and min_max are asserted
    (Unsound). Raises Trap where the specification defines a failure and SpecError for an ill-formed graph or input.
    """
    machine = Machine(inputs, check, schedule, trace, ACTIONS, NEEDS)
    with np.errstate(all="ignore"):
        values = _run(machine, root)
    return Result(values, {m.key: m.contents() for m in machine.memories.values() if m.key is not None and m.written})


def _run(m: Machine, root: UOp) -> tuple[Array, ...]:
    while root.op is Op.B_PROGRAM:
        for u in (*root.src[1:], root):
            m.met(u, None)
        root = stage(root)
    if root.op in ABSORBED:
        raise SpecError(f"{root.op.name} has no meaning of its own here")
    m.bound.update((u.src[0], u.src[1]) for u in toposort(root) if u.op is Op.BIND)
    if root.op is Op.TUPLE:
        m.met(root, None)
    found: list[list[tuple[UOp, Array]]] = []

    def leaf(frame: Frame) -> Run:
        yield from m.evaluate(frame, *(root.src if root.op is Op.TUPLE else (root,)))
        found.append([(u, np.array(m.read(m.force(f, u), u))) for f, u in _results(m, frame, root)])

    m.launch(Scope(m.plan(root)), 0, Lane(), leaf)
    for lane in found[1:]:
        for (u, x), (_, y) in zip(found[0], lane):
            if _bits(u, x) != _bits(u, y):
                raise SpecError(f"{describe(u)} has another value in each lane: a launch gives its results through memory (R123)")
    return tuple(x for _, x in found[0]) if found else ()


def _results(m: Machine, frame: Frame, root: UOp) -> list[tuple[Frame, UOp]]:
    """The nodes whose values are the root's, and where they are."""
    if root.op is Op.FUNCTION:
        body = root.src[0]
        return [(body_of(m, frame, root), e) for e in body.src if e.dtype is not dt.void]
    if root.op is Op.TUPLE:
        return [(frame, e) for e in root.src]
    if root.op in _COLLECTIONS:
        return [(frame, e) for e in root.src if e.dtype is not dt.void]
    return [] if root.dtype is dt.void else [(frame, root)]


def _bits(u: UOp, x: Array) -> bytes:
    return repr(x.tolist()).encode() if u.dtype is dt.index else x.tobytes()
