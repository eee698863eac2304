"""What the choices of schedules rest on, and the few moves that they are made of."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable

from uops.compiler.passes.optimize.schedule.accesses import Access, accesses
from uops.compiler.passes.optimize.schedule.optops import apply, around_fills, padded_split, whole_split
from uops.compiler.passes.optimize.schedule.schedule import Schedule
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, nodes_of, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import closed_by, open_ranges
from uops.spec.optops import OptOp, Padto, Split

#: What a vector access costs per element, as against a contiguous one: one element per lane.
GATHER = 8
#: Loops shorter than this many vectors are not padded to a whole number of them.
_LEAST_PADDED = 2
#: Share of added iterations up to which an axis is padded for a register tile.
_MOST_ADDED = 0.25
#: Bytes of the caches of a machine that does not say.
CACHES = (32 << 10, 512 << 10)
#: What an access costs per element, by its stride; any other gathers.
COST: dict[int | None, int] = {0: 0, 1: 1}


class Facts:
    """What the choices rest on, computed once per kernel."""

    def __init__(self, s: Schedule) -> None:
        self.order = toposort(s.effect)
        self.accesses = accesses(s.effect)
        self.loads = [a for a in self.accesses if a.node.op is Op.LOAD]
        self.store = next(a for a in self.accesses if a.node is s.effect)
        self.ends = nodes_of(s.effect, Op.END)
        self.reduces = nodes_of(s.effect, Op.REDUCE)
        # No vectors of these: their iterations share LOCAL memory, or may meet in one element.
        self.held = around_fills(s.effect) | {r for r in s.outputs if r.arg.axis_id in s.fixed}
        dtypes = {u.dtype for u in self.order if u.op is not Op.CONST}
        self.itemsize = max([d.itemsize for d in dtypes if d in dt.STORABLE], default=4)

    @functools.cached_property
    def needs(self) -> dict[UOp, frozenset[UOp]]:
        """The loops in which each node stands."""
        return open_ranges(self.order)

    def gather_cost(self, r: UOp, loads: Iterable[Access]) -> int:
        """What the loads that are made in the loop of `r` cost per element of it, 0 where it does not change them."""
        return sum(COST.get(a.stride(r), GATHER) for a in loads)

    def walks(self, u: UOp) -> bool:
        """Whether what a Reduce loads, Reduces below it too, is contiguous along its last loop, or the same there."""
        r, nodes = closed_by(u)[-1], set(toposort(u.src[0]))
        loads = [a for a in self.loads if a.node in nodes]
        return r not in self.held and self.gather_cost(r, loads) <= len(loads)

    def below(self, u: UOp) -> list[Access]:
        """The loads of the operand of a Reduce, those of Reduces below it left out."""
        nodes = set(toposort(u.src[0], gate=lambda n: n.op is not Op.REDUCE or n is u))
        return [a for a in self.loads if a.node in nodes]


def extent(r: UOp) -> int:
    return int(r.src[0].arg.value)


def split_lanes(s: Schedule, r: UOp, lanes: int, vectors: int, target: AxisType) -> Schedule:
    """Up to `vectors` whole vectors of the loop; a short loop whole; a long one that no vector divides padded to one."""
    n = extent(r)
    width = next((lanes * k for k in range(vectors, 0, -1) if n % (lanes * k) == 0), 0)
    if not width and n >= _LEAST_PADDED * lanes:
        width = lanes * max(k for k in range(1, vectors + 1) if share(n, lanes * k) >= 1 - _MOST_ADDED or k == 1)
    factor = width or (n if n <= lanes * vectors else divisor(n, lanes))
    return whole_split(s, Split(number_of(s, r), n, target)) if factor == n > 1 else split_by(s, r, factor, target)


def divisor(n: int, most: int) -> int:
    """The largest divisor of `n` up to `most`."""
    pairs = [(k, n // k) for k in range(1, min(most, math.isqrt(n)) + 1) if n % k == 0]
    return max(k for pair in pairs for k in pair if k <= most)


def split_by(s: Schedule, r: UOp, factor: int, target: AxisType) -> Schedule:
    """Split `r`, padded first if need be."""
    if factor <= 1:
        return s
    k = number_of(s, r)
    opt = Split(k, factor, target)
    return padded_split(s, Padto(k, factor), opt) if extent(r) % factor else apply(s, opt)


def then(s: Schedule, r: UOp, opt: OptOp) -> tuple[Schedule, UOp]:
    """The schedule after an OptOp that changes `r` in place, and what `r` is there."""
    changed = apply(s, opt)
    return changed, next(x for x in changed.ranges if x.arg.axis_id == r.arg.axis_id)


def number_of(s: Schedule, r: UOp) -> int:
    """The number of a loop, which its id tells (R95)."""
    return next(k for k, x in enumerate(s.ranges) if x.arg.axis_id == r.arg.axis_id)


def newest(s: Schedule) -> UOp:
    return max(s.ranges, key=lambda r: int(r.arg.axis_id))


def share(n: int, k: int) -> float:
    """What share of the iterations is left when `n` is padded to a multiple of k."""
    return n / (-(-n // k) * k)
