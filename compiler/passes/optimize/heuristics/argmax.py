"""Positions of extremes in one pass: the greatest element so far and where it was, side by side in every lane.

A kernel that asks where a row is greatest reads it twice: M = max of x(r), then max of (x(r) = M ? v(r) : z), where v falls as r
grows, so that the first place wins. Paired, each of the lanes that share the row keeps its own greatest element and its v,

    for r: for l: if x[r, l] > m[l]: m[l], k[l] = x[r, l], v(r, l)

and what two passes over the row asked for is asked of the lanes. A lane starts at -inf and at the v of its first element, which is
right for a lane of nothing else, too. A NaN is greater than all numbers and stays (R11).

Spec: Reduce; Lowering Pipeline/Optimize; R11, R32 (any order), R61.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from uops.compiler.ir.accumulators import device_of, identity, position
from uops.compiler.ir.affine import linear, number
from uops.compiler.log import note
from uops.compiler.passes.optimize.schedule.accesses import accesses
from uops.compiler.passes.optimize.schedule.moves import extent
from uops.compiler.passes.optimize.schedule.schedule import Schedule, next_id
from uops.compiler.target import Machine
from uops.spec.ir import build as B
from uops.spec.ir.args import AddrSpace, BufferArg, LoadArg, RangeArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, nodes_of, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import closed_by, open_ranges

#: Vectors of a row side by side: enough to hide the latency of comparing and choosing.
VECTORS = 4


class _Search(NamedTuple):
    """A Reduce that looks for the place of the greatest `x`: the largest `v` of those, else `missing`, over `r`."""

    node: UOp
    x: UOp
    v: UOp
    missing: UOp
    r: UOp


def paired(s: Schedule, machine: Machine, uniques: Iterator[int]) -> Schedule | None:
    """The schedule with its search in one pass; None for a kernel without one, or of rows that no vector divides or memory has not
    in order."""
    found = next((f for f in map(_search, nodes_of(s.effect, Op.REDUCE)) if f is not None), None)
    if found is None or not _is_walk(found):
        return None
    lanes = machine.vector_bytes // max(found.x.dtype.itemsize, found.v.dtype.itemsize)
    vectors = next((k for k in range(VECTORS, 0, -1) if extent(found.r) % (lanes * k) == 0), 0)
    return _paired(s, found, lanes, vectors, uniques) if vectors and extent(found.r) > lanes * vectors else None


def _is_walk(f: _Search) -> bool:
    """Whether a row is read along memory."""
    strides = {a.stride(f.r) for a in accesses(f.x)}
    return 1 in strides and strides <= {0, 1}


def _search(u: UOp) -> _Search | None:
    if u.arg.op is not Op.MAX or len(u.src) != 2 or u.src[0].op is not Op.WHERE:
        return None
    (r,), (condition, v, missing) = closed_by(u), u.src[0].src
    if r.src[0].op is not Op.CONST or missing.op is not Op.CONST or not _falls(v, r) or not _at_least(v, missing):
        return None
    terms = condition.src if condition.op is Op.OR else (condition,)
    x = next((x for t in terms if (x := _greatest(t, r)) is not None), None)
    if x is None or len(terms) != (2 if x.dtype.is_float else 1):
        return None
    nan = not x.dtype.is_float or any(t.op is Op.CMPNE and t.src == (x, x) for t in terms)
    return _Search(u, x, v, missing, r) if nan else None


def _greatest(t: UOp, r: UOp) -> UOp | None:
    """x of a comparison x(r) = max of all x."""
    for x, m in (t.src, t.src[::-1]) if t.op is Op.CMPEQ else ():
        same = m.op is Op.REDUCE and m.arg.op is Op.MAX and len(m.src) == 2 and m.src[1].src[0] is r.src[0]
        if same and substitute(m.src[0], {m.src[1]: r}) is x and not any(u.op is Op.REDUCE for u in toposort(x)):
            return x
    return None


def _falls(v: UOp, r: UOp) -> bool:
    """Whether v is a number minus an index that grows with r."""
    if v.op is not Op.SUB or v.src[0].op is not Op.CONST or v.src[1].op is not Op.CAST or not v.dtype.is_integer:
        return False
    at = v.src[1].src[0]
    bounds = at.min_max
    fits = bounds is not None and v.dtype.min <= bounds[0] and bounds[1] <= v.dtype.max
    return fits and linear(at).terms.keys() == {r} and linear(at).terms[r] > 0


def _at_least(v: UOp, least: UOp) -> bool:
    return v.min_max is not None and bool(v.min_max[0] >= least.arg.value)


def _paired(s: Schedule, f: _Search, lanes: int, vectors: int, uniques: Iterator[int]) -> Schedule:
    """The search in `vectors` vectors of lanes, each of which has registers of its own."""
    order = toposort(s.effect)
    outside = sorted(open_ranges(order)[f.node], key=lambda r: int(r.arg.axis_id))
    free = next_id(s)
    first, second, last, again = (
        UOp(Op.RANGE, (number(lanes),), RangeArg(free + k, AxisType.UPCAST if k < 2 else AxisType.UNROLL)) for k in range(4)
    )
    step = UOp(Op.RANGE, (number(extent(f.r) // (lanes * vectors)),), RangeArg(free + 4, AxisType.REDUCE))
    registers = [[_register(u, lanes, next(uniques)) for u in (f.x, f.v)] for _ in range(vectors)]

    def at(memory: UOp, lane: UOp, *after: UOp) -> UOp:
        return position(B.after(memory, *after) if after else memory, [lane], [lanes])

    starts = list[UOp]()
    for k, (greatest, place) in enumerate(registers):
        v = substitute(f.v, {f.r: _sum(number(k * lanes), first)})
        starts += B.store(at(greatest, first, *outside), identity(Op.MAX, f.x.dtype)), B.store(at(place, first, *outside), v)
    begun = B.end(B.group(*starts), first)
    stores = list[UOp]()
    for k, pair in enumerate(registers):
        begin = UOp(Op.MUL, (_sum(UOp(Op.MUL, (step, number(vectors))), number(k)), number(lanes)))
        new = [substitute(u, {f.r: _sum(begin, second)}) for u in (f.x, f.v)]
        places = [at(memory, second, begun, step) for memory in pair]
        old = [_read(p) for p in places]
        better = _better(new[0], old[0])
        stores += [B.store(p, UOp(Op.WHERE, (better, x, y))) for p, x, y in zip(places, new, old, strict=True)]
    done = B.end(B.end(B.group(*stores), second), step)
    total = UOp(Op.REDUCE, (_maximum([_read(at(greatest, last, done)) for greatest, _ in registers]), last), f.node.arg)
    found = [[_read(at(memory, again, done)) for memory in pair] for pair in registers]
    places = [UOp(Op.WHERE, (_is(x, total), v, f.missing)) for x, v in found]
    result = UOp(Op.REDUCE, (_maximum(places), again), f.node.arg)
    effect = substitute(s.effect, {f.node: result})
    note("pair", s.effect, effect, {f.node: result})
    return replace(s, effect=effect)


def _register(u: UOp, lanes: int, unique: int) -> UOp:
    return UOp(Op.BUFFER, (), BufferArg(lanes, u.dtype, device_of(u), AddrSpace.REG, unique))


def _read(place: UOp) -> UOp:
    return UOp(Op.LOAD, (place,), LoadArg())


def _sum(a: UOp, b: UOp) -> UOp:
    return UOp(Op.ADD, (a, b))


def _maximum(values: Sequence[UOp]) -> UOp:
    return functools.reduce(lambda a, b: UOp(Op.MAX, (a, b)), values)


def _is(x: UOp, greatest: UOp) -> UOp:
    """Whether x is the greatest element, or a NaN."""
    equal = UOp(Op.CMPEQ, (x, greatest))
    return UOp(Op.OR, (equal, UOp(Op.CMPNE, (x, x)))) if x.dtype.is_float else equal


def _better(x: UOp, than: UOp) -> UOp:
    """Whether x takes the place of what is the greatest so far: it is greater, or the first NaN."""
    if not x.dtype.is_float:
        return UOp(Op.CMPLT, (than, x))
    return UOp(Op.AND, (UOp(Op.NOT, (UOp(Op.CMPLE, (x, than)),)), UOp(Op.CMPEQ, (than, than))))
