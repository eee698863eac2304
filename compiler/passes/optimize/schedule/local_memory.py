"""Memory for values that a kernel uses again: filled once per iteration of the loops kept outside, then read.

`staged` puts a value of a Schedule into a LOCAL Buffer. Of the loops that the value depends on, those in `over` become the Buffer's
axes, filled by loops of their own; the others stay around the filling. The filling happens before every use (After), so that loops
nest by what they need: the kept loops around both. Spec: Lowering Pipeline/Optimize ("insert local buffers"); R59 to R61.

`repeated` finds values that a kernel computes in several loops alike: the same expression but for the loop that runs through it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from uops.compiler.ir.accumulators import device_of, position
from uops.compiler.ir.affine import linear, number
from uops.compiler.ir.loops import in_order
from uops.compiler.log import note
from uops.compiler.passes.optimize.schedule.parallel import memory_of
from uops.compiler.passes.optimize.schedule.schedule import Schedule, axis_of, next_id
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, BufferArg, LoadArg, RangeArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, nodes_of, substitute, toposort
from uops.spec.ir.ops import ALU, Op
from uops.spec.ir.scope import closed_by, open_ranges

_LANES = frozenset({AxisType.UPCAST, AxisType.UNROLL})


def staged(s: Schedule, uses: Sequence[tuple[UOp, tuple[UOp, ...]]], unique: int, lanes: int = 1) -> Schedule:
    """The schedule with the values of `uses` read from one LOCAL Buffer.

    Each use is a node and the loops that run through it, in the order of the Buffer's axes; but for these loops, the nodes are the
    same. Extents are constants. `unique` is the Buffer's identity. With `lanes` of a vector, what lies across the lanes in memory
    is read in squares.
    """
    value, over = uses[0]
    free = next_id(s)
    filling = {r: _filling(r, free + k, r is over[-1]) for k, r in enumerate(over)}
    loops, along = list(filling.values()), _along(value, over, lanes)
    index = dict(filling)
    if along is not None:
        rows = UOp(Op.RANGE, (number(extent_of(along) // lanes),), filling[along].arg)
        lane = UOp(Op.RANGE, (number(lanes),), RangeArg(free + len(over), AxisType.UPCAST))
        index[along] = UOp(Op.ADD, (UOp(Op.MUL, (rows, number(lanes))), lane))
        loops = [*(r for r in loops if r is not filling[along]), rows, lane]
    sizes = [extent_of(r) for r in over]
    buffer = UOp(Op.BUFFER, (), BufferArg(math.prod(sizes), value.dtype, device_of(value), AddrSpace.LOCAL, unique))
    fill = B.store(position(buffer, [index[r] for r in over], sizes), substitute(value, index))
    ready = B.after(buffer, B.nested(fill, in_order(loops)))
    reads = {u: UOp(Op.LOAD, (position(ready, loops, sizes),), LoadArg()) for u, loops in uses}
    effect = substitute(s.effect, reads)
    note("local memory", s.effect, effect, reads)
    return replace(s, effect=effect)


def _along(value: UOp, over: Sequence[UOp], lanes: int) -> UOp | None:
    """The loop along which a Load without a gate reads memory in order, if the last loop, of lanes, is not one: lanes of both make
    squares, whose rows are read and whose columns are wanted (`passes.crossings`)."""
    plain = value.op is Op.LOAD and len(value.src) == 1
    if lanes == 1 or not plain or over[-1].arg.type not in _LANES or extent_of(over[-1]) % lanes:
        return None
    strides = linear(value.src[0].src[1]).terms
    if strides.get(over[-1], 0) in (0, 1):
        return None
    return next((r for r in over[:-1] if strides.get(r) == 1 and r.arg.type not in _LANES and extent_of(r) % lanes == 0), None)


def staged_in_output(s: Schedule, uses: Sequence[tuple[UOp, tuple[UOp, ...]]]) -> Schedule | None:
    """The schedule with the values of `uses` read from the memory that the kernel writes: a row of it holds them until its elements
    are stored. None where that memory is read otherwise, has other rows, or is written before the last use.

    Each use has one loop, of the extent of the innermost output loop. Memory that is written anyway costs nothing to fill (R146).
    """
    value, (loop,) = uses[0]
    if not s.outputs:  # a row of one element
        return None
    store, (*outer, lane) = s.effect, s.outputs
    order = toposort(store)
    needs = open_ranges(order)
    place = store.src[0]
    memory, at = place.src
    row = extent_of(loop) == extent_of(lane) and needs[value] - {loop} == frozenset(outer) and value.dtype is memory.dtype
    late = any(u.op is Op.REDUCE and lane in needs[u] for u in order)
    own = memory.op is Op.PARAM and len(store.src) == 2 and only_stored(store, order)
    if not row or late or not own or not linear(at).terms.get(lane):
        return None
    filling = _filling(loop, next_id(s))
    fill = B.store(UOp(Op.INDEX, (memory, substitute(at, {lane: filling}))), substitute(value, {loop: filling}))
    ready = B.after(memory, UOp(Op.END, (fill, filling)))
    reads = {u: UOp(Op.LOAD, (UOp(Op.INDEX, (ready, substitute(at, {lane: r}))),), LoadArg()) for u, (r,) in uses}
    effect = substitute(store, reads)
    note("output memory", store, effect, reads)
    return replace(s, effect=effect)


def only_stored(store: UOp, order: Sequence[UOp]) -> bool:
    """Whether a kernel's Store alone refers to the memory that it writes: nothing reads there, not even the element that is stored
    next (R146). `order` is what the Store needs, and itself."""
    place = store.src[0]
    memory = memory_of(place)
    if any(place in u.src for u in order if u is not store):
        return False
    return not any(u.op is Op.INDEX and u is not place and memory_of(u) is memory for u in order)


def _filling(r: UOp, axis_id: int, last: bool = True) -> UOp:
    """The loop that fills where `r` reads: of the lanes, those of the last axis stay lanes."""
    kind = AxisType.UPCAST if last and r.arg.type in _LANES else AxisType.LOOP
    return UOp(Op.RANGE, r.src, RangeArg(axis_id, kind))


def extent_of(r: UOp) -> int:
    """The constant extent of a loop."""
    extent = axis_of(r).extent
    assert isinstance(extent, int)
    return extent


def repeated(s: Schedule, least_work: int, costs: Callable[[Sequence[UOp]], dict[UOp, int]]) -> list[tuple[UOp, tuple[UOp, ...]]]:
    """The largest value that costs at least `least_work`, as `costs` says of the nodes of a kernel, and is computed in two or more
    innermost loops alike: its uses."""
    order = toposort(s.effect)
    inner = _inner_loops(s)
    if len(inner) < 2:
        return []
    needs, work, bounded = open_ranges(order), costs(order), _bounded(order)
    marked = {r: _marked(order, r) for r in inner}
    found: dict[tuple[UOp, UOp], list[tuple[UOp, tuple[UOp, ...]]]] = {}
    for u in reversed(order):
        own = [r for r in needs[u] if r in inner]
        if u.op not in ALU or u.dtype not in dt.STORABLE or len(own) != 1 or work[u] < least_work or u in bounded:
            continue
        r = own[0]
        key = marked[r][u], r.src[0]
        found.setdefault(key, []).append((u, (r,)))
    alike = [uses for uses in found.values() if len({loops for _, loops in uses}) > 1]
    return max(alike, key=lambda uses: work[uses[0][0]], default=[])


def _bounded(order: Sequence[UOp]) -> set[UOp]:
    """The numbers of which addresses and gates are made and of which more is known than their dtype says. In memory they would lose
    their bounds, which say that an address fits a word and lies inside (R08, R45)."""
    reached = toposort(*(i for u in order for i in _deciding(u)))
    return {u for u in reached if u.dtype in dt.INTS and u.min_max not in (None, (u.dtype.min, u.dtype.max))}


def _deciding(u: UOp) -> tuple[UOp, ...]:
    """What says where memory is, or whether it is accessed."""
    if u.op is Op.INDEX:
        return u.src[1:]
    return u.src[2:] if u.op in (Op.LOAD, Op.STORE) else ()


_MARK = UOp(Op.RANGE, (number(1),), RangeArg(-1, AxisType.LOOP))


def _marked(order: Sequence[UOp], r: UOp) -> dict[UOp, UOp]:
    """Every node with a mark in the place of `r`."""
    done = {r: _MARK.replace(src=r.src)}
    for u in order:
        if u not in done:
            src = tuple([done[x] for x in u.src])
            done[u] = u if src == u.src else u.replace(src=src)
    return done


def _inner_loops(s: Schedule) -> set[UOp]:
    """The innermost output loop, and the loops of Reduces over one."""
    found = {closed_by(u)[0] for u in nodes_of(s.effect, Op.REDUCE) if len(closed_by(u)) == 1}
    return found | set(s.outputs[-1:])
