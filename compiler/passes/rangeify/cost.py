"""Whether a value is realised - computed once into memory - or computed where it is used.

A value without a buffer is computed in the innermost loop that its index depends on: once per iteration of those loops,
however many lie inside of them. A Kernel knows the loops around each of its loops, hence how often a place is computed. The
model counts, per element, arithmetic, reads and writes, in units of one simple vector operation; it compares computing the
value at every place that wants it with computing it once, writing it, and reading it back.

A float sum or product is never computed at two places: schedules may differ there, and one node has one value (R27). A kernel takes
one sum of products whose operands are used again, outside of the loops of other Reduces: its loops are those that pay. Nor does
another Reduce take in prefix sums, which are scans in kernels of their own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from uops.compiler.ir.views import VIEWS
from uops.compiler.passes.callify.callify import extent
from uops.compiler.passes.callify.hazards import COPIES
from uops.compiler.passes.rangeify.elements import Closed
from uops.compiler.passes.rangeify.kernels import Place
from uops.compiler.passes.rangeify.layouts import BIJECTIVE
from uops.spec.ir.node import Dim, UOp, nodes_of, users
from uops.spec.ir.ops import ALU, Op

READ_COST = 4
WRITE_COST = 4
#: What a kernel costs beside its work: the launch, and the loss of reuse in caches.
KERNEL_COST = 4000
#: Work per element up to which a value may be computed twice in one kernel, whose schedule may still keep it in LOCAL memory.
STAGED_COST = 48
#: Elements of a result per element of an operand from which the operand counts as computed outside of the innermost loop.
_REPEATED = 4
#: Work above which a value with several uses is taken to be read from memory by each.
_SHARED_COST = 8
#: Places of one value above which it is no longer computed at each of them.
_MOST_PLACES = 8
#: Elements of a window from which sums of overlapping ones are better done step by step.
_WINDOW = 64
#: How often a sum of products must use its operands again to be a kernel of its own.
_REUSE = 4
#: Nodes among which the end of a sum's arithmetic is looked for.
_MOST_EPILOGUE = 64
_MOST = 1 << 40
# fmt: off
_WEIGHT: dict[Op, int] = {
    Op.EXP2: 15, Op.LOG2: 20, Op.SIN: 30, Op.POW: 60, Op.THREEFRY: 80,
    Op.DIV: 5, Op.RECIP: 5, Op.SQRT: 6, Op.IDIV: 12, Op.MOD: 12,
}
# fmt: on
_REPEATING = ALU | {Op.EXPAND}
_MEMORY = COPIES | {Op.PARAM, Op.BINARY, Op.REDUCE}


def work(
    order: Sequence[UOp], closed: Mapping[UOp, Closed] = MappingProxyType({}), uses: Mapping[UOp, int] = MappingProxyType({})
) -> dict[UOp, int]:
    """What computing one element of each value costs, down to memory. `closed` are the Reduces that are done without their loops;
    a dear value of which `uses` counts several is taken as one that will be read from memory."""
    found: dict[UOp, int] = {}
    sizes: dict[UOp, int] = {}
    for u in order:
        sizes[u] = size(u)
        if u.op in _MEMORY and u.op is not Op.REDUCE:
            found[u] = READ_COST
            continue
        own, below, most = 0, 0, 0
        if u.op in _REPEATING:
            own, most = _WEIGHT.get(u.op, 1) if u.op is not Op.EXPAND else 0, sizes[u] // _REPEATED
        for s in u.src:
            if sizes[s] <= most:  # the same for many elements
                below += min(found[s], 1)
            else:
                below += _operand(s, found[s], closed, uses)
        if u.op is Op.REDUCE:
            form = closed.get(u)
            inner = found[u.src[0]] if form is None else sum(found[leaf.node] for leaf in form.leaves.values())
            axes = u.arg.axes if form is None else form.left
            below = (inner + 1) * math.prod(max(1, extent(u.src[0].shape[a])) for a in axes)
        found[u] = min(_MOST, own + below)
    return found


def _operand(s: UOp, cost: int, closed: Mapping[UOp, Closed], uses: Mapping[UOp, int]) -> int:
    """What an operand adds to the work of its user."""
    summed = s.op is Op.REDUCE and s not in closed
    return READ_COST if summed or (cost > _SHARED_COST and uses.get(s, 0) > 1) else cost


class Choices:
    """What is known about the values of one body before their places are; most of it when somebody asks."""

    def __init__(self, order: Sequence[UOp], closed: Mapping[UOp, Closed]) -> None:
        self.order, self.closed = order, closed
        self.carriers = self._carriers(order)

    @functools.cached_property
    def users(self) -> dict[UOp, list[UOp]]:
        return users(self.order)

    @functools.cached_property
    def uses(self) -> dict[UOp, int]:
        """How many users each value has, one per use."""
        return {u: len(found) for u, found in self.users.items()}

    @functools.cached_property
    def work(self) -> dict[UOp, int]:
        """What one element of each value costs; a body in which nothing is wanted twice never asks."""
        return work(self.order, self.closed, self.uses)

    def is_looped(self, u: UOp) -> bool:
        """Whether `u` is a Reduce in loops of its own."""
        return u.op is Op.REDUCE and not (u in self.closed and not self.closed[u].left)

    def _carriers(self, order: Sequence[UOp]) -> set[UOp]:
        """The Reduces that are no products, and what arithmetic by elements makes of one."""
        found: set[UOp] = set()
        for u in order if nodes_of(order[-1], Op.REDUCE) else ():
            if u.op is Op.REDUCE:
                if self.is_looped(u) and not self.is_product(u):
                    found.add(u)
            elif (u.op in ALU or u.op in BIJECTIVE) and any(s in found and size(s) == size(u) for s in u.src):
                found.add(u)
        return found

    def is_duplicable(self, u: UOp) -> bool:
        """Whether every kernel that computes `u` gets the same bits."""
        return not self.is_looped(u) or u.arg.op is Op.MAX or not u.dtype.is_float

    def is_product(self, u: UOp) -> bool:
        """Whether `u` sums products whose operands are used again for many of its elements: a matrix product, a convolution."""
        if u.op is not Op.REDUCE or u.arg.op is not Op.ADD or not self.is_looped(u):
            return False
        product = u.src[0]
        while product.op is Op.CAST:
            product = product.src[0]
        return product.op is Op.MUL and size(product) >= _REUSE * max(size(_origin(s)) for s in product.src)

    def is_prefix(self, u: UOp) -> bool:
        """Whether `u` reduces windows about as wide as what they go over, at about as many places: in a kernel of its own, that is
        a scan, and inside of another Reduce it is not (`optimize.scan`)."""
        windows, cut = u.src[0], False
        while windows.op in VIEWS or windows.op in (Op.CAST, Op.PAD):
            cut |= windows.op is Op.SHRINK
            windows = windows.src[0]
        wide = size(u.src[0]) >= _WINDOW * size(u)
        return wide and cut and windows.op is Op.EXPAND and 2 * size(u) >= size(_origin(windows))

    def realise(self, u: UOp, places: Sequence[Place], once: bool) -> bool:
        """Whether one kernel for `u` and reads of its result are cheaper than computing it at each of `places`; `once` says that
        it would be computed at one place, once per element."""
        if self.is_looped(u):
            if not once or (self.is_product(u) and not places[0].kernel.takes_product(places[0])):
                return True
            if self.is_prefix(u) and places[0].is_reduced():
                return True
        elif once:  # no other kernel would compute it less often
            return False
        elif len(places) > 1 and self.finishes_sum(u, any(p.kernel is not places[0].kernel for p in places)):
            return True
        cost, elements = self.work[u], size(u)
        if len(places) > _MOST_PLACES and cost > READ_COST:
            return True
        times = sum([p.times() for p in places])
        one_kernel = all(p.kernel is places[0].kernel for p in places)
        if one_kernel and times <= 2 * elements and cost <= STAGED_COST:
            return False
        return times * cost > elements * (cost + WRITE_COST) + times * READ_COST + KERNEL_COST

    def finishes_sum(self, u: UOp, several: bool) -> bool:
        """Whether `u` is what element-by-element arithmetic makes of a sum that nothing else uses. If `u` is not realised, the sum
        is, as it must not be computed twice: at the same price, without the arithmetic. Where `several` kernels want `u`, that
        holds of sums that are the same for many elements, too: each would be a kernel, the arithmetic be done in all readers."""
        cone, pending, sums, elements = {u}, [u], list[UOp](), size(u)
        while pending and len(cone) <= _MOST_EPILOGUE:
            for s in pending.pop().src:
                if s in cone or s.op is Op.CONST or not (size(s) == elements or (several and size(s) < elements)):
                    continue
                if not self.is_duplicable(s):
                    sums.append(s)
                elif s.op in ALU or s.op in BIJECTIVE or s.op is Op.EXPAND:
                    pending.append(s)
                cone.add(s)
        return any(self._leads_to(s, u, cone) for s in sums)

    def _leads_to(self, s: UOp, u: UOp, cone: set[UOp]) -> bool:
        """Whether all uses of `s`, and of what is made of it before `u`, are in the cone of `u`."""
        pending, seen = [s], {s}
        while pending:
            for user in self.users[pending.pop()]:
                if user not in cone:
                    return False
                if user is not u and user not in seen:
                    seen.add(user)
                    pending.append(user)
        return True


def size(u: UOp) -> int:
    """The elements of a value, the most that there can be, as a factor: at least 1."""
    return _product(u.shape)


@functools.lru_cache(maxsize=1024)
def _product(shape: tuple[Dim, ...]) -> int:
    return math.prod([n if n.__class__ is int else extent(n) for n in shape]) or 1


def _origin(u: UOp) -> UOp:
    """The value whose elements movement ops and casts repeat or pad."""
    while u.op in VIEWS or u.op in (Op.CAST, Op.EXPAND, Op.PAD):
        u = u.src[0]
    return u
