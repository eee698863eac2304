"""Loops that may run no iteration: what is loaded in one is not touched where it does not run.

Takes and gives: a KERNEL or SCHEDULED body whose addresses are in normal form. Spec: rows Range, Reduce, End, Load; R52, R57, R70.

An address that no longer depends on the loop it was made in - r // 3 is 0 where r < 3 * n and n <= 1 - leaves its Load free to be
made outside of that loop, even where the loop runs no iteration and the memory has no such element, or none that was ever written
(R61). Such a Load is gated by the loop's bound, unless the element is there whatever the bound is. An extent of a Tensor is never
seen here as the constant 0: what has no elements has no kernel, and a Reduce over none is its identity.

`held` says of a kernel's Params how many of their elements, from the first on, hold a value: memory has room for the greatest
extents, and a value of symbolic shape fills a part of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from uops.compiler.ir.affine import Sum, build, linear, number
from uops.compiler.ir.views import TRUE, ZERO, base
from uops.compiler.log import note
from uops.spec.ir import build as B
from uops.spec.ir.axes import AxisType
from uops.spec.ir.derive.shape import dim_node
from uops.spec.ir.node import Dim, UOp, nodes_of, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import closed_by, open_ranges

_LANES = frozenset({AxisType.UPCAST, AxisType.UNROLL})


#: Params with the number of their elements that hold a value.
Held = Mapping[UOp, Dim]


def gated(body: UOp, simplify: Callable[[UOp], UOp], held: Held) -> UOp:
    """`body` with a gate on each Load that a loop which does not run would not have made."""
    if not any(_may_idle(r) for r in nodes_of(body, Op.RANGE)):
        return body
    done: dict[UOp, UOp] = {}
    for u in toposort(body):
        src = tuple([done.get(s, s) for s in u.src])
        new = u if src == u.src else UOp(u.op, src, u.arg, u.tag)
        for r in [r for r in closed_by(new) if _may_idle(r)]:
            inside = _gated_in(new.src[0], r, simplify, held)
            new = new if inside is new.src[0] else UOp(new.op, (inside, *new.src[1:]), new.arg, new.tag)
        if new is not u:
            done[u] = new
    note("loops that do not run", body, done.get(body, body), done)
    return done.get(body, body)


def _may_idle(r: UOp) -> bool:
    """Whether a Range may have no values. Lanes are always there."""
    bounds = r.src[0].min_max
    return r.src[0].op is not Op.CONST and (bounds is None or bounds[0] <= 0)


def find_held(body: UOp) -> Held:
    """Find the elements of memory that are there in a body that `gated` gave. An input of symbolic size is whole. An element that
    is read without a gate, although some loop may not run, is there."""
    found: dict[UOp, Dim] = {m: m.shape[0] for m in nodes_of(body, Op.PARAM) if m.shape and not isinstance(m.shape[0], int)}
    ranges = [r for r in nodes_of(body, Op.RANGE) if _may_idle(r)]
    if not ranges:
        return found
    order = toposort(body)
    opened = open_ranges(order)
    for r in ranges:
        inside = {u for c in order if r in closed_by(c) for u in toposort(c.src[0])}
        for u in inside:
            if u.op is Op.LOAD and len(u.src) == 1 and r not in opened[u]:
                index = _index(u.src[0])
                memory, least = base(index), _least(_at_end(index.src[1], 1))
                known = found.get(memory, 0)
                if isinstance(known, int) and known <= least < math.inf:
                    found[memory] = int(least) + 1
    return found


def _gated_in(value: UOp, r: UOp, simplify: Callable[[UOp], UOp], held: Held) -> UOp:
    """What the loop of `r` computes, with its free Loads gated."""
    runs = simplify(UOp(Op.CMPLT, (ZERO, r.src[0])))
    opened = open_ranges(toposort(value))
    done: dict[UOp, UOp] = {}
    for u in toposort(value):
        src = tuple([done.get(s, s) for s in u.src])
        if u.op is Op.LOAD and _is_free(u, r, opened[u], simplify) and not _exists(u.src[0], held):
            _, alt, gate = src if len(src) == 3 else (src[0], B.const(0, u.dtype), TRUE)
            src = (src[0], alt, simplify(UOp(Op.AND, (gate, runs))))
        if src != u.src:
            done[u] = UOp(u.op, src, u.arg, u.tag)
    return done.get(value, value)


def _is_free(load: UOp, r: UOp, opened: frozenset[UOp], simplify: Callable[[UOp], UOp]) -> bool:
    """Whether a Load depends on the loop neither by its address nor by its gate, in one of its lanes at least."""
    if r not in opened:
        return True
    used = (*_index(load.src[0]).src[1:], *load.src[2:])
    lanes = [x for x in opened if x.arg.type in _LANES]
    return any(r not in toposort(*[simplify(substitute(s, put)) for s in used]) for put in _combinations(lanes))


def _combinations(lanes: Sequence[UOp]) -> Iterator[dict[UOp, UOp]]:
    """Every combination of values of lanes; none where there are no lanes."""
    extents = [range(int(x.src[0].arg.value)) for x in lanes]
    for ks in itertools.product(*extents) if lanes else ():
        yield {x: number(k) for x, k in zip(lanes, ks, strict=True)}


def _index(address: UOp) -> UOp:
    """The Index that an address is, perhaps in an After."""
    while address.op is Op.AFTER:
        address = address.src[0]
    return address


def _exists(address: UOp, held: Held) -> bool:
    """Whether the element of an address holds a value in every loop that does run: in memory of the kernel's own it does."""
    index = _index(address)
    memory = base(index)
    if memory.op is not Op.PARAM:
        return True
    size, position = held.get(memory, 0), index.src[1]
    return _least(_at_end(position, -1)) >= 0 and _least(UOp(Op.SUB, (dim_node(size), _at_end(position, 1)))) > 0


def _at_end(position: UOp, sign: int) -> UOp:
    """The greatest place in the loops of a sum (sign 1), or the least (-1): each at one of its ends. Of another place, that."""
    terms, constant = linear(position)
    ends = {r: UOp(Op.SUB, (r.src[0], number(1))) if k * sign > 0 else ZERO for r, k in terms.items() if r.op is Op.RANGE}
    return substitute(build(Sum(terms, constant)), ends) if ends.keys() == set(nodes_of(position, Op.RANGE)) else position


def _least(u: UOp) -> float:
    """A lower bound of a sum."""
    terms, constant = linear(u)
    bounds = [(t.min_max or (-math.inf, math.inf), k) for t, k in terms.items()]
    return constant + sum(k * (lo if k > 0 else hi) for (lo, hi), k in bounds)
