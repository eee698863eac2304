"""Smaller launches: shrinks, as in `uops.fuzz.reduce.shrinks`, of a LINEAR of Calls of SCHEDULED kernels.

What a candidate does not write any more, the interpreter and machine code must find alike: all memory is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from uops.backends.arrays import STORAGE
from uops.fuzz.generate.kinds import Sample
from uops.spec.errors import UopsError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op

#: Values in the place of one another that are tried, for each.
_NEAR = 6
_LOOPS = frozenset({Op.END, Op.REDUCE})


def _is_launch(s: Sample) -> bool:
    return s.graph.op is Op.LINEAR and all(c.op is Op.CALL for c in s.graph.src)


def _with(s: Sample, graph: UOp) -> Sample:
    """The sample with another launch, whose memory holds zeros where nothing was given."""
    inputs = {}
    for m in {a for c in graph.src for a in c.src[1:]}:
        if m.op is Op.BUFFER:
            key = f"b{m.arg.unique}"
            inputs[key] = s.inputs.get(key, np.zeros(m.arg.size, STORAGE[m.dtype]))
        else:
            inputs[m.arg.name] = s.inputs[m.arg.name]
    return s._replace(graph=graph, inputs=inputs)


def fewer_calls(s: Sample) -> Iterator[Sample]:
    """One kernel less."""
    if _is_launch(s) and len(s.graph.src) > 1:
        for c in s.graph.src:
            yield _with(s, s.graph.replace(src=tuple(x for x in s.graph.src if x is not c)))


def fewer_effects(s: Sample) -> Iterator[Sample]:
    """One effect less of a kernel that has several."""
    for c in s.graph.src if _is_launch(s) else ():
        sink = c.src[0]
        for e in sink.src if len(sink.src) > 1 else ():
            yield from _tried(s, {sink: sink.replace(src=tuple(x for x in sink.src if x is not e))})


def fewer_loops(s: Sample) -> Iterator[Sample]:
    """The first iteration of a loop in its place, or two of its iterations, however many they are."""
    for r in (u for u in toposort(s.graph) if u.op is Op.RANGE) if _is_launch(s) else ():
        try:
            yield _with(s, _unrolled(s.graph, r))
        except UopsError:
            continue
        if r.src[0].op is not Op.CONST or r.src[0].arg.value > 2:
            yield from _tried(s, {r: r.replace(src=(b.index(2), *r.src[1:]))})


def _unrolled(root: UOp, r: UOp) -> UOp:
    """Without a loop: its number is 0."""
    done: dict[UOp, UOp] = {r: b.index(0)}
    for u in toposort(root):
        if u is r:
            continue
        src = tuple(done[x] for x in u.src)
        if u.op in _LOOPS and r in u.src[1:]:
            rest = tuple(done[x] for x in u.src[1:] if x is not r)
            done[u] = u.replace(src=(src[0], *rest)) if rest else src[0]
        else:
            done[u] = u if src == u.src else u.replace(src=src)
    return done[root]


def nearer(s: Sample) -> Iterator[Sample]:
    """What a value or an index is made of in its place, or a constant."""
    order = toposort(s.graph) if _is_launch(s) else ()
    for u in reversed(order):
        if u.dtype is dt.void or u.shape != () or u.op in (Op.CONST, Op.RANGE, Op.PARAM, Op.INDEX):
            continue
        below = [x for x in reversed(toposort(u)[:-1]) if x.dtype is u.dtype and x.shape == () and x.op is not Op.INDEX]
        for x in (b.const(0, u.dtype), *below[:_NEAR], b.const(1, u.dtype)):
            yield from _tried(s, {u: x})


def fewer_arguments(s: Sample) -> Iterator[Sample]:
    """A kernel without the Params that it does not use."""
    for c in s.graph.src if _is_launch(s) else ():
        used = {u.arg.slot: u for u in toposort(c.src[0]) if u.op is Op.PARAM}
        kept = sorted(used)
        if len(kept) < len(c.src) - 1:
            slots = {used[old]: used[old].replace(arg=replace(used[old].arg, slot=new)) for new, old in enumerate(kept)}
            arg = replace(c.arg, written=tuple(kept.index(k) for k in c.arg.written if k in kept))
            call = UOp(Op.CALL, (substitute(c.src[0], slots), *(c.src[1 + k] for k in kept)), arg)
            yield _with(s, s.graph.replace(src=tuple(call if x is c else x for x in s.graph.src)))


def _tried(s: Sample, put: Mapping[UOp, UOp]) -> Iterator[Sample]:
    """The launch with other nodes; nothing where they do not fit."""
    try:
        yield _with(s, substitute(s.graph, dict(put)))
    except UopsError:
        return


LAUNCH_SHRINKS = (fewer_calls, fewer_effects, fewer_loops, nearer, fewer_arguments)
