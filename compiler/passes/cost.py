"""Whether a value is realised - computed once into memory - or computed where it is used.

A value without a buffer is computed in the innermost loop that its index depends on: once per iteration of those loops,
however many lie inside of them. `Loops` knows the loops around each loop, hence how often a place is computed. The model counts,
per element, arithmetic, reads and writes, in units of one simple vector operation; it compares computing the value at every place
that wants it with computing it once, writing it, and reading it back.

A float sum or product is never computed at two places: schedules may differ there, and one node has one value (R27).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from uops.compiler.passes.callify import extent
from uops.compiler.passes.hazards import COPIES
from uops.compiler.passes.kernels import Place
from uops.compiler.passes.views import ZERO
from uops.spec.node import UOp, toposort
from uops.spec.ops import ALU, Op

READ_COST = 4
WRITE_COST = 4
#: What a kernel costs beside its work: the launch, and the loss of reuse in caches.
KERNEL_COST = 4000
#: Work per element up to which a value may be computed twice in one kernel, whose schedule may still keep it in LOCAL memory.
STAGED_COST = 48
_MOST = 1 << 40
# fmt: off
_WEIGHT: dict[Op, int] = {
    Op.EXP2: 15, Op.LOG2: 20, Op.SIN: 30, Op.POW: 60, Op.THREEFRY: 80,
    Op.DIV: 5, Op.RECIP: 5, Op.SQRT: 6, Op.IDIV: 12, Op.MOD: 12,
}
# fmt: on
_MEMORY = COPIES | {Op.PARAM, Op.BINARY, Op.REDUCE}


class Loops:
    """The loops around each loop. `holes` gives for each placeholder the index at which its value is wanted."""

    def __init__(self, holes: Mapping[UOp, Place]) -> None:
        self.around: dict[UOp, frozenset[UOp]] = {}
        self.holes = holes

    def nest(self, ranges: Iterable[UOp], inside: frozenset[UOp] = frozenset()) -> None:
        """Say that `ranges` nest in this order inside of the loops `inside`."""
        for r in ranges:
            if r.op is Op.RANGE:
                self.around[r] = inside
                inside = inside | {r}

    def of(self, place: Place) -> frozenset[UOp]:
        """The loops in which a value at `place` is computed."""
        found: set[UOp] = set()
        pending = [*place.coords, *(() if place.gate is None else (place.gate,))]
        seen: set[UOp] = set()
        while pending:
            i = pending.pop()
            if i.op is Op.RANGE:
                found.add(i)
                found |= self.around[i]
            elif i.op is not Op.CONST:
                for u in toposort(i):
                    if u not in seen and (u.op is Op.RANGE or u in self.holes):
                        seen.add(u)
                        pending += (u,) if u.op is Op.RANGE else self.holes[u].coords
        return frozenset(found)

    def times(self, place: Place) -> int:
        """How often a value at `place` is computed."""
        return math.prod(max(1, extent(_bound(r))) for r in self.of(place))

    def exactly_once(self, place: Place) -> bool:
        """Whether each element is wanted and computed once: distinct loops of the value's own, none around them, no gate."""
        ranges = [i for i in place.coords if i is not ZERO]
        own = frozenset(ranges)
        plain = all(i.op is Op.RANGE for i in ranges) and len(own) == len(ranges)
        return place.gate is None and plain and self.of(place) <= own


def _bound(r: UOp) -> UOp | int:
    bound = r.src[0]
    return int(bound.arg.value) if bound.op is Op.CONST else bound


def work(order: Sequence[UOp]) -> dict[UOp, int]:
    """What computing one element of each value costs, down to memory, as if nothing in between were shared."""
    found: dict[UOp, int] = {}
    for u in order:
        if u.op in _MEMORY and u.op is not Op.REDUCE:
            found[u] = READ_COST
            continue
        own = _WEIGHT.get(u.op, 1) if u.op in ALU else 0
        below = sum(READ_COST if s.op is Op.REDUCE else found[s] for s in u.src)
        if u.op is Op.REDUCE:
            below = (found[u.src[0]] + 1) * math.prod(max(1, extent(u.src[0].shape[a])) for a in u.arg.axes)
        found[u] = min(_MOST, own + below)
    return found


def is_duplicable(u: UOp) -> bool:
    """Whether every kernel that computes `u` gets the same bits."""
    return u.op is not Op.REDUCE or u.arg.op is Op.MAX or not u.dtype.is_float


def realise(u: UOp, places: Iterable[Place], loops: Loops, cost: int) -> bool:
    """Whether one kernel for `u` and reads of its result are cheaper than computing it at each of `places`."""
    wanted = list(places)
    if u.op is Op.REDUCE and not (len(wanted) == 1 and loops.exactly_once(wanted[0])):
        return True
    if not is_duplicable(u) and len(wanted) > 1:
        return True
    elements = math.prod(max(1, extent(n)) for n in u.shape)
    times = sum(map(loops.times, wanted))
    one_kernel = all(p.kernel is wanted[0].kernel for p in wanted)
    if one_kernel and times <= 2 * elements and cost <= STAGED_COST:
        return False
    return times * cost > elements * (cost + WRITE_COST) + times * READ_COST + KERNEL_COST
