"""Prefix reductions as scans: n steps instead of n windows of n.

A kernel stores, for i in 0..N-1, a value made of R(i) = op over r in 0..n-1 of T(i, r). Where T depends on i + r alone, so that
T(i, r) = t(i + r), and t is the identity of op below n-1, the windows differ by their last term only: R(i) = op(R(i-1), t(i+n-1)),
and R(-1) is the identity. Both conditions are proved by the normal form of index arithmetic: t, put together again, is T; and t on
0..n-2 folds to the identity's constant.

A kernel may have several of them over one i. Loops inside of i that they depend on, columns, take a step together: REG memory holds
a running value for each, so that memory is read row after row. Many columns are cut in tiles of as many as there is memory for.

Cores share the rows, or the columns where there is one row of them; of one long row each has a part, in front of which it reduces
all that is before: reading costs less than the chain of steps. Spec: prefix_sum among the compositions; R32 (any order), R49, R57,
R91, R133.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from uops.compiler.ir.accumulators import combined, identity, opened, position, wide_of, widened
from uops.compiler.ir.affine import build, linear, number
from uops.compiler.passes.optimize.schedule.local_memory import extent_of
from uops.compiler.passes.optimize.schedule.moves import divisor
from uops.compiler.passes.optimize.schedule.schedule import Schedule, axis_of, next_id
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.compiler.target import PLAIN, Machine
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import RangeArg, SinkArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, nodes_of, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import closed_by, open_ranges

#: Fewer steps than this are not worth a loop that carries a value.
LEAST = 8
#: Steps from which a scan is worth the cores: some 150 us of one.
SHARED = 1 << 17
#: The most running values of the columns of a tile: what L1 holds beside rows.
_MOST_COLUMNS = 2048
#: The most parts of one row, of which the last reads all that is before it; and the elements that are read side by side there.
_MOST_PARTS = 4
LANES = 64
_SUMS = frozenset({Op.ADD, Op.SUB, Op.NEG, Op.MUL})


def scanned(s: Schedule, uniques: Iterator[int], machine: Machine = PLAIN) -> UOp | None:
    """The SCHEDULED body of a kernel with prefix reductions over an output loop, or None for any other kernel. `uniques` numbers
    their registers. Loops that keep their order are left where they are: then only the innermost one has steps."""
    reduces = nodes_of(s.effect, Op.REDUCE)
    if not reduces:
        return None
    needs = open_ranges(toposort(s.effect))
    reduces = [u for u in reduces if needs[u].issubset(s.outputs) and len(closed_by(u)) == 1]  # in no loop of another one
    simplify = Rewriter(INDEXING)
    for i in reversed(s.outputs[-1:] if s.fixed else s.outputs):
        terms = {u: _last_term(u, i, simplify) for u in reduces if i in needs[u]}
        inner = s.outputs[s.outputs.index(i) + 1 :]
        scans = [(u, term) for u, term in terms.items() if term is not None]
        columns = bool(scans) and not needs[scans[0][0]].isdisjoint(inner)
        scans = [(u, term) for u, term in scans if needs[u].isdisjoint(inner) is not columns]
        if scans:
            return _loop(s, scans, i, _steps(s, i, columns, machine, wide_of(scans[0][0].dtype)), uniques)
    return None


def _last_term(u: UOp, i: UOp, simplify: Rewriter) -> UOp | None:
    """t(i + n-1), where the conditions hold."""
    (r,) = closed_by(u)
    n, steps = axis_of(r).extent, axis_of(i).extent
    if not isinstance(n, int) or not isinstance(steps, int) or min(n, steps) < LEAST:
        return None
    for x in nodes_of(u.src[0], Op.INDEX):  # soon says no of products and of sums of rows
        strides = linear(x.src[1]).terms
        if strides.get(i, 0) != strides.get(r, 0):
            return None
    at = UOp(Op.RANGE, (number(steps + n - 1),), RangeArg(-1, AxisType.LOOP))
    term = simplify(substitute(u.src[0], {i: number(0), r: at}))
    if _spelled(simplify(substitute(term, {at: UOp(Op.ADD, (i, r))}))) is not _spelled(simplify(u.src[0])):
        return None
    early = _without_dead_loads(simplify(substitute(term, {at: UOp(Op.RANGE, (number(n - 1),), at.arg)})), simplify)
    if early is not identity(u.arg.op, u.dtype):
        return None
    return simplify(substitute(term, {at: UOp(Op.ADD, (i, number(n - 1)))}))


def _spelled(u: UOp) -> UOp:
    """`u` with every sum of loops multiplied out: one node for (i + r) * -1 and i * -1 + r * -1."""
    done: dict[UOp, UOp] = {}
    for x in toposort(u):
        y = x.replace(src=tuple(done[s] for s in x.src))
        done[x] = build(linear(y)) if y.dtype is dt.index and y.op in _SUMS else y
    return done[u]


def _without_dead_loads(u: UOp, simplify: Rewriter) -> UOp:
    """`u` with the alternative of every Load whose gate never holds (R52)."""
    loads = [x for x in toposort(u) if x.op is Op.LOAD and len(x.src) == 3]
    dead = {x: x.src[1] for x in loads if x.src[2].op is Op.CONST and not x.src[2].arg.value}
    return simplify(substitute(u, dead)) if dead else u


class _Steps(NamedTuple):
    """The loops of a scan: those around, that of the steps, those in each step, and, where these have running values of their own,
    loops that clear them; what stands for the loops that were; an iteration before step 0, with the loops through all of them."""

    outer: tuple[UOp, ...]
    i: UOp
    inner: tuple[UOp, ...] = ()
    first: tuple[UOp, ...] = ()
    put: dict[UOp, UOp] = {}  # noqa: RUF012
    before: tuple[UOp, ...] = ()


def _loop(s: Schedule, scans: Sequence[tuple[UOp, UOp]], i: UOp, steps: _Steps, uniques: Iterator[int]) -> UOp:
    """The body: registers that every step adds the terms of its Reduce to, in order."""
    columns = steps.inner if steps.first else ()
    sizes = [extent_of(r) for r in columns]
    put = steps.put
    effect, stores = substitute(s.effect, put), list[UOp]()
    for k, (u, term) in enumerate(scans):
        register, cleared = opened(u, steps.outer, next(uniques), _own(steps.first, k))
        if steps.before:
            at, *loops = steps.before
            own = _own(loops, k)
            at = substitute(at, dict(zip(loops, own, strict=True)))
            start = u.replace(src=(substitute(widened(term), {i: at}), *own))
            cleared = B.store(cleared.src[0], B.cast(start, register.dtype))
        running = position(B.after(register, cleared, steps.i), columns, sizes)
        total = combined(u, running, substitute(term, put))
        stores.append(B.store(running, total))
        effect = substitute(effect, {substitute(u, put): B.cast(total, u.dtype)})
    body = B.group(*stores, effect if columns else B.nested(effect, steps.inner))
    return UOp(Op.SINK, (Rewriter(INDEXING)(B.nested(body, [*steps.outer, steps.i, *columns])),), SinkArg(s.name))


def _own(loops: Sequence[UOp], k: int) -> list[UOp]:
    """Loops like these, which have the highest numbers, for the k-th Reduce, which needs loops of its own."""
    return [r.replace(arg=RangeArg(int(r.arg.axis_id) + k * len(loops), r.arg.type)) for r in loops]


def _steps(s: Schedule, i: UOp, columns: bool, machine: Machine, wide: DType) -> _Steps:
    """The loops as they are, or tiles of them, or with one for the cores."""
    k = s.outputs.index(i)
    outer, inner, put = s.outputs[:k], s.outputs[k + 1 :], dict[UOp, UOp]()
    known = [n for n in (axis_of(r).extent for r in s.outputs) if isinstance(n, int)]
    cores = 1 if s.fixed or len(known) < len(s.outputs) or math.prod(known) < SHARED else machine.cores
    if cores > 1 and outer:
        put[outer[0]] = outer[0].replace(arg=RangeArg(outer[0].arg.axis_id, AxisType.THREAD))
        outer, cores = (put[outer[0]], *outer[1:]), 1
    if columns and len(known) == len(s.outputs):
        return _tiled(_Steps(outer, i, inner, put=put), machine.lanes(wide), cores, next_id(s))
    if columns:  # of unknown extents: column after column
        return _Steps((*outer, *inner), i)
    return _Steps(outer, i, inner, put=put) if cores == 1 or inner else _in_parts(i, cores, next_id(s))


def _tiled(s: _Steps, lanes: int, cores: int, free: int) -> _Steps:
    """All inner loops take the step together, but for what is more than there is memory for, or more than a core's share."""
    ids, put = itertools.count(free), dict(s.put)
    around: list[UOp] = []
    columns: list[UOp] = []
    room = _MOST_COLUMNS
    for k, r in reversed([*enumerate(s.inner)]):
        n = extent_of(r)
        shared = k == 0 and cores > 1 and n % (cores * lanes) == 0
        size = divisor(n, max(1, min(room, n // cores if shared else n)))
        width = lanes if r is s.inner[-1] and size % lanes == 0 else 1
        far = _new_loop(n // size, next(ids), AxisType.THREAD if shared else AxisType.LOOP)
        near, lane = _new_loop(size // width, next(ids)), _new_loop(width, next(ids), AxisType.UPCAST)
        put[r] = _at(far, size, _at(near, width, lane))
        around, columns, room = [far, *around], [near, lane, *columns], room // size
    around, columns = ([r for r in loops if r.op is Op.RANGE] for loops in (around, columns))
    first = tuple(_new_loop(extent_of(r), next(ids), r.arg.type) for r in columns)
    return _Steps((*s.outer, *around), s.i, tuple(columns), first, put)


def _new_loop(extent: int, axis_id: int, kind: AxisType = AxisType.LOOP) -> UOp:
    """A loop; where it would have one iteration, its number."""
    return UOp(Op.RANGE, (number(extent),), RangeArg(axis_id, kind)) if extent > 1 else number(0)


def _in_parts(i: UOp, cores: int, free: int) -> _Steps:
    """The steps of one row in parts, each of which starts with all that is before it."""
    n = extent_of(i)
    parts = min(cores, _MOST_PARTS)
    size = -(-n // parts // LANES) * LANES
    part = UOp(Op.RANGE, (number(-(-n // size)),), RangeArg(free, AxisType.THREAD))
    left = UOp(Op.SUB, (number(n), UOp(Op.MUL, (part, number(size)))))
    steps = number(size) if n % size == 0 else UOp(Op.WHERE, (UOp(Op.CMPLT, (left, number(size))), left, number(size)))
    step = UOp(Op.RANGE, (steps,), RangeArg(free + 1, AxisType.LOOP))
    whole, block, lane = (
        UOp(Op.RANGE, (n,), RangeArg(free + k, kind))
        for k, n, kind in (
            (2, part, AxisType.REDUCE),
            (3, number(size // LANES), AxisType.REDUCE),
            (4, number(LANES), AxisType.UNROLL),
        )
    )
    before = _at(_at(whole, size // LANES, block), LANES, lane)
    return _Steps((part,), step, put={i: _at(part, size, step)}, before=(before, whole, block, lane))


def _at(outer: UOp, size: int, inner: UOp) -> UOp:
    return UOp(Op.ADD, (UOp(Op.MUL, (outer, number(size))), inner))
