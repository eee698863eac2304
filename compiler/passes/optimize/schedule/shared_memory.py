"""Memory that the lanes of a workgroup fill together: a panel of operands that several of them read.

`shared(s, load, over, unique)` puts what a Load gives into a LOCAL Buffer. The loops in `over` are the Buffer's axes, the last one
fastest; among them are all lanes, and vector axes, on which the Load depends. Every other loop stays around: once per iteration of
those, the lanes meet (nobody reads the last filling any more), fill the Buffer element by element, each lane as many as the next,
and meet again. Where the lanes do not divide the panel, the last ones have nothing to do at the end.

`in_registers(s, unique)` gives the kernel's Reduce registers of its own, one per combination of the UPCAST loops around it, so that
its REDUCE loops stand outside of those loops: a filling inside of a REDUCE loop is then done once for all of them, and not once for
each, side by side. Spec: Lowering Pipeline/Optimize ("insert local buffers"); R16, R32, R55, R57, R60, R61, R127, R128.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from uops.compiler.ir.accumulators import opened, wide_of
from uops.compiler.ir.affine import number
from uops.compiler.ir.loops import in_order
from uops.compiler.log import note
from uops.compiler.passes.optimize.schedule.group import at, extent
from uops.compiler.passes.optimize.schedule.schedule import Schedule, gated_load, next_id
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.spec.ir import build as B
from uops.spec.ir.args import AddrSpace, BufferArg, LoadArg, RangeArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import closed_by, open_ranges
from uops.spec.optops import WORKGROUP

_IN_ORDER = frozenset({AxisType.LOOP, AxisType.REDUCE})


def shared(s: Schedule, load: UOp, over: Sequence[UOp], unique: int) -> Schedule:
    """The schedule with the Load's values read from a Buffer that all lanes fill."""
    lanes = [r for r in s.outputs if r.arg.type in WORKGROUP]
    size, team = math.prod(map(extent, over)), math.prod(map(extent, lanes))
    needs = open_ranges(toposort(load))[load]
    around = tuple(sorted((r for r in needs if r not in over and r.arg.type in _IN_ORDER), key=lambda r: int(r.arg.axis_id)))
    axis = next_id(s)
    turn = UOp(Op.RANGE, (number(-(-size // team)),), RangeArg(axis, AxisType.LOOP))
    element = _number(turn, lanes, team)
    buffer = UOp(Op.BUFFER, (), BufferArg(size, load.dtype, "CPU", AddrSpace.LOCAL, unique))
    free = B.after(buffer, UOp(Op.BARRIER, (*around, *lanes))) if around else buffer
    value = substitute(load, dict(zip(over, _coordinates(element, over), strict=True)))
    place = UOp(Op.INDEX, (free, element))
    if size % team:
        inside = UOp(Op.CMPLT, (element, number(size)))
        fill = UOp(Op.STORE, (place, gated_load(value, inside), inside))
    else:
        fill = B.store(place, value)
    ready = B.after(buffer, UOp(Op.BARRIER, (UOp(Op.END, (fill, turn)),)))
    read = UOp(Op.LOAD, (at(ready, over, over),), LoadArg())
    effect = substitute(s.effect, {load: read})
    note("shared memory", s.effect, effect, {load: read})
    return replace(s, effect=effect)


def in_registers(s: Schedule, unique: int) -> Schedule:
    """The schedule with its one Reduce as stores into registers: cleared, added to in every step, read at the end."""
    order = toposort(s.effect)
    needs = open_ranges(order)
    u = next(u for u in order if u.op is Op.REDUCE)
    d = wide_of(u.dtype)
    side = sorted((r for r in needs[u] if r.arg.type is AxisType.UPCAST), key=lambda r: int(r.arg.axis_id))
    steps = closed_by(u)
    within = tuple(r for r in steps if r.arg.type is AxisType.UNROLL)
    free = next_id(s)
    clearing, adding = (_again(side, free + k * len(side)) for k in range(2))
    register, cleared = opened(u, in_order(r for r in needs[u] if r not in side), unique, clearing)
    value = substitute(u.src[0], dict(zip(side, adding, strict=True)))
    loops = tuple(r for r in steps if r not in within)
    place = at(B.after(register, cleared, *loops), adding, side)
    total = _added(u, UOp(Op.LOAD, (place,), LoadArg()), value, within, d)
    added = B.nested(B.store(place, total), [*loops, *adding])
    result = B.cast(UOp(Op.LOAD, (at(B.after(register, added), side, side),), LoadArg()), u.dtype)
    effect = substitute(s.effect, {u: result})
    note("registers", s.effect, effect, {u: result})
    return replace(s, effect=effect)


def _again(loops: Sequence[UOp], axis: int) -> list[UOp]:
    return [UOp(Op.RANGE, r.src, RangeArg(axis + k, r.arg.type)) for k, r in enumerate(loops)]


def _added(u: UOp, running: UOp, value: UOp, within: Sequence[UOp], d: DType) -> UOp:
    """One step more, its unrolled part reduced first; a product that is summed alone is fused (R32)."""
    if within:
        return UOp(u.arg.op, (running, u.replace(src=(B.cast(value, d), *within))))
    if u.arg.op is Op.ADD and value.op is Op.MUL and u.dtype.is_float:
        return UOp(Op.MULACC, (*(B.cast(f, d) for f in value.src), running))
    return UOp(u.arg.op, (running, B.cast(value, d)))


def _number(turn: UOp, lanes: Sequence[UOp], team: int) -> UOp:
    """Which element a lane fills in a turn: neighbours fill neighbours; the last lane varies fastest."""
    flat: UOp = UOp(Op.MUL, (turn, number(team)))
    for k, r in enumerate(lanes):
        stride = math.prod(map(extent, lanes[k + 1 :]))
        flat = UOp(Op.ADD, (flat, UOp(Op.MUL, (r, number(stride)))))
    return Rewriter(INDEXING)(flat)


def _coordinates(element: UOp, over: Sequence[UOp]) -> list[UOp]:
    """The loops' values at an element of the panel."""
    found, below = list[UOp](), 1
    for r in reversed(over):
        whole = element if below == 1 else UOp(Op.IDIV, (element, number(below)))
        found.append(UOp(Op.MOD, (whole, number(extent(r)))))
        below *= extent(r)
    return found[::-1]
