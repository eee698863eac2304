"""What a kernel's accesses cost in each loop, and loops that are one.

`accesses` reads every Load and Store as (memory, stride per loop); a loop on which an address depends in another way has no stride
(None). `merged` joins two nested loops where every address walks through both as through one.
"""

from __future__ import annotations

from dataclasses import replace

from uops.compiler.ir.affine import linear, number
from uops.compiler.passes.optimize.schedule.schedule import CLOSERS, Replacement, Schedule, replace_ranges
from uops.spec.ir.node import UOp, nodes_of, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass
from uops.spec.ir.scope import closed_by, open_ranges


@dataclass(frozen=True, slots=True)
class Access:
    """One Load or Store: elements per step of each loop that its address, alone, depends on; None where they differ from step to
    step. `gates` are the loops on which its gate depends."""

    node: UOp
    strides: dict[UOp, int | None]
    gates: frozenset[UOp]

    def stride(self, r: UOp) -> int | None:
        return self.strides.get(r, 0)


def accesses(effect: UOp) -> list[Access]:
    """The accesses of a kernel in the order of its graph; those that fill or read LOCAL memory too."""
    return [_access(u) for u in toposort(effect) if u.op in _ACCESSES]


_ACCESSES = frozenset({Op.LOAD, Op.STORE})


def _access(u: UOp) -> Access:
    address = u.src[0]
    total = linear(address.src[1])
    strides: dict[UOp, int | None] = {r: None for t in total.terms if t.op is not Op.RANGE for r in _loops(t)}
    strides.update({t: k for t, k in total.terms.items() if t.op is Op.RANGE and t not in strides})
    return Access(u, strides, _loops(u.src[2]) if len(u.src) > 2 else frozenset())


def _loops(u: UOp) -> frozenset[UOp]:
    """The loops in which a node stands."""
    return open_ranges(toposort(u))[u]


def merged(s: Schedule, only_reduces: bool = False) -> Schedule:
    """The schedule with loops joined: outputs among themselves, and those of each Reduce."""
    effect, outputs = s.effect, list(s.outputs)
    pairs = [] if only_reduces else [outputs]
    pairs += [list(closed_by(u)) for u in nodes_of(effect, Op.REDUCE)]
    for loops in pairs:
        k = len(loops) - 2
        while k >= 0:
            found = _joined(effect, loops[k], loops[k + 1])
            if found is not None:
                new, effect = found
                loops[k : k + 2] = [new]
            k -= 1
    return s if effect is s.effect else replace(s, effect=effect, outputs=tuple(outputs))


def _joined(effect: UOp, a: UOp, b: UOp) -> tuple[UOp, UOp] | None:
    """(the loop that stands for `a` around `b`, the effect with it), if every use of the two is a step of that loop."""
    if a.src[0].op is not Op.CONST or b.src[0].op is not Op.CONST or a.arg.type is not b.arg.type:
        return None
    n, m = int(a.src[0].arg.value), int(b.src[0].arg.value)
    if not _one_walk(effect, a, b, m):
        return None
    new = UOp(Op.RANGE, (number(n * m),), a.arg)
    replacement: Replacement = {a: (number(0), (new,)), b: (new, ())}
    return new, replace_ranges(effect, replacement)


def _one_walk(effect: UOp, a: UOp, b: UOp, m: int) -> bool:
    """Whether `a` and `b` occur only in addresses, with strides m*k and k, and a Reduce closes both or neither. What else uses such
    an address has the same number of the one loop."""
    order, pair = toposort(effect), {a, b}
    needs = open_ranges(order)
    places = [u.src[0].src[1] for op in _ACCESSES for u in nodes_of(effect, op)]
    addressed = {i for i in places if not needs[i].isdisjoint(pair)}
    inside: set[UOp] = set()  # nodes that only spell such addresses
    for i in addressed:
        total = linear(i)
        if total.terms.get(a, 0) != m * total.terms.get(b, 0):
            return False
        if any(t not in pair and not needs[t].isdisjoint(pair) for t in total.terms):
            return False
        inside.update([u for u in toposort(i) if u.op is not Op.RANGE and not needs[u].isdisjoint(pair)])
    hidden, looped = inside - addressed, inside | pair
    for u in order:
        if looped.isdisjoint(u.src):
            continue
        closes = closed_by(u) if u.op in CLOSERS else ()
        if (a in closes) is not (b in closes):
            return False
        direct = a not in closes and not pair.isdisjoint(u.src)
        if u not in inside and (direct or not hidden.isdisjoint(u.src)):
            return False
    return True
