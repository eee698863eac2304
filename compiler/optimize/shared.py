"""Memory that the lanes of a workgroup fill together: a panel of operands that several of them read.

`shared(s, load, over, unique)` puts what a Load gives into a LOCAL Buffer. The loops in `over` are the Buffer's axes, the last one
fastest; among them are all lanes, and vector axes, on which the Load depends. Every other loop stays around: once per iteration of
those, the lanes meet (nobody reads the last filling any more), fill the Buffer element by element, each lane as many as the next,
and meet again. Where the lanes do not divide the panel, the last ones have nothing to do at the end.
Spec: Lowering Pipeline/Optimize ("insert local buffers"); R55, R60, R61, R127, R128.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from uops.compiler.linear import number
from uops.compiler.log import note
from uops.compiler.optimize.group import at, extent
from uops.compiler.optimize.schedule import Schedule, gated_load
from uops.compiler.rewrite import Rewriter
from uops.compiler.rules import INDEXING
from uops.spec import build as B
from uops.spec.args import AddrSpace, BufferArg, LoadArg, RangeArg
from uops.spec.axes import AxisType
from uops.spec.node import UOp, substitute, toposort
from uops.spec.ops import Op
from uops.spec.optops import WORKGROUP
from uops.spec.scope import open_ranges

_IN_ORDER = frozenset({AxisType.LOOP, AxisType.REDUCE})


def shared(s: Schedule, load: UOp, over: Sequence[UOp], unique: int) -> Schedule:
    """The schedule with the Load's values read from a Buffer that all lanes fill."""
    lanes = [r for r in s.outputs if r.arg.type in WORKGROUP]
    size, team = math.prod(map(extent, over)), math.prod(map(extent, lanes))
    needs = open_ranges(toposort(load))[load]
    around = tuple(sorted((r for r in needs if r not in over and r.arg.type in _IN_ORDER), key=lambda r: int(r.arg.axis_id)))
    axis = 1 + max(int(u.arg.axis_id) for u in toposort(s.effect, *s.outputs) if u.op is Op.RANGE)
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
