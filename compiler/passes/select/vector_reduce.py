"""Folds: reductions of shaped values, by accumulators over loops and by folding lanes.

A Reduce over ranges of a Reduce over axes is one fold: for each wanted piece of the result it combines *terms*, pieces of the value
that is reduced. Lanes either go across, along the result - then a term is one element of each result - or along the reduced axes
of one result, whose lanes are folded after the loop. R32 allows any order; it is fixed here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from uops.compiler.decompose import SMALL
from uops.compiler.decompose.build import constant
from uops.compiler.ir.accumulators import identity
from uops.compiler.passes.select.cuts import cost
from uops.compiler.passes.select.positions import SCALAR, Piece, constants, narrow, rows, whole
from uops.compiler.passes.select.vectors import Fold, Group, Vectors
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, BufferArg, LoadArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Accumulators that are needed to keep the arithmetic units busy: latency times units.
IN_FLIGHT = 8


def plan_fold(state: Vectors, u: UOp, pieces: dict[Piece, None]) -> Fold:
    """Choose the terms of a Reduce of which `pieces` are wanted, and ask for them."""
    value, reduced = _inner(state, u)
    outs = _cover(pieces)
    if len(u.src) > 1 and reduced is None:
        outs = _joined(state, value, outs)
    lanes = 0
    if reduced is None:
        terms = [[piece] for piece in outs]
    else:
        n = len(reduced[0])
        lanes = math.gcd(n, state.width) if _prefers_along(state, value, reduced, outs) else 0
        if lanes:
            outs = [(p,) for p in dict.fromkeys(p for piece in outs for p in piece)]
            terms = [[narrow(tuple(reduced[p][j : j + lanes])) for j in range(0, n, lanes)] for (p,) in outs]
        else:
            terms = [[narrow(tuple([reduced[p][j] for p in piece])) for j in range(n)] for piece in outs]
    side = max(1, min(state.machine.registers // 2, IN_FLIGHT) // len(outs)) if len(u.src) > 1 else 1
    fold = Fold(value, u.src[1:], [Group(p, ts, min(side, len(ts))) for p, ts in zip(outs, terms, strict=True)], lanes)
    for node in _factors(state, u, value) or (value,):
        for ts in terms:
            for piece in ts:
                state.want(node, piece)
    return fold


def _inner(state: Vectors, u: UOp) -> tuple[UOp, list[list[int]] | None]:
    """The value below a Reduce, and for each position of the result the positions that axes reduce."""
    if u.arg.axes:
        return u.src[0], rows(u)
    below, passed = u.src[0], list[UOp]()
    while below.op is Op.RESHAPE:
        passed.append(below)
        below = below.src[0]
    mine = below.op is Op.REDUCE and len(below.src) == 1 and below.arg.op is u.arg.op and below.arg.axes
    if not mine or len(u.src) == 1 or any(len(state.users[x]) > 1 for x in (*passed, below)):
        return u.src[0], None
    state.folded.update((*passed, below))
    return below.src[0], rows(below)


def _cover(pieces: dict[Piece, None]) -> list[Piece]:
    """Pieces that hold every wanted element once: the longest first."""
    found: list[Piece] = []
    held: set[int] = set()
    for piece in sorted(pieces, key=lambda p: -len(p)):
        left = [p for p in dict.fromkeys(piece) if p not in held]
        if len(left) == len(piece):
            found.append(piece)
        else:
            found += [(p,) for p in left]
        held.update(left)
    return found


def _joined(state: Vectors, value: UOp, outs: Sequence[Piece]) -> list[Piece]:
    """Pieces shorter than a vector, two and two in one accumulator where that costs less: short rows of an output, whose operands
    follow each other in a panel."""
    short = sorted((p for p in outs if 1 < len(p) < state.width), key=lambda p: p[0])
    found: list[Piece] = []
    for piece in short:
        while found and len(found[-1]) == len(piece) < state.width and _is_cheaper(state, value, found[-1], piece):
            piece = found.pop() + piece
        found.append(piece)
    place = {q: k for k, p in enumerate(outs) for q in p}
    return sorted((*(p for p in outs if p not in short), *found), key=lambda p: place[p[0]])


def _is_cheaper(state: Vectors, value: UOp, a: Piece, b: Piece) -> bool:
    """Whether two pieces cost less as one."""
    return cost(state.sums, value, a + b) < cost(state.sums, value, a) + cost(state.sums, value, b)


def _prefers_along(state: Vectors, value: UOp, reduced: list[list[int]], outs: Sequence[Piece]) -> bool:
    """Whether lanes along the reduced axes cost less than lanes along the result."""
    n = len(reduced[0])
    lanes = math.gcd(n, state.width)
    if lanes == 1:
        return False
    across = sum(n * cost(state.sums, value, narrow(tuple([reduced[p][0] for p in piece]))) for piece in outs)
    results = dict.fromkeys(p for piece in outs for p in piece)
    along = sum(n // lanes * cost(state.sums, value, narrow(tuple(reduced[p][:lanes]))) for p in results)
    return along < across


def _factors(state: Vectors, u: UOp, value: UOp) -> tuple[UOp, UOp] | None:
    """The operands of a product whose rounding a sum may leave out (R32)."""
    if u.arg.op is Op.ADD and value.op is Op.MUL and u.dtype.is_float and state.machine.fma:
        return value.src[0], value.src[1]
    return None


class _Builder:
    """One fold: dtype and op of the accumulators."""

    def __init__(self, state: Vectors, u: UOp, fold: Fold) -> None:
        self.state, self.u, self.fold = state, u, fold
        self.op: Op = u.arg.op
        self.wide: DType = dt.float32 if u.dtype in SMALL else u.dtype
        self.factors = _factors(state, u, fold.value)
        self.identities: dict[int, UOp] = {}

    def combine(self, running: UOp, piece: Piece, w: int) -> UOp:
        """`running` with one more term."""
        if self.factors is not None:
            a, b = (B.cast(self.state.vector(f, piece, w), self.wide) for f in self.factors)
            return UOp(Op.MULACC, (a, b, running))
        return UOp(self.op, (running, self.term(piece, w)))

    def term(self, piece: Piece, w: int) -> UOp:
        if self.factors is not None:
            a, b = (B.cast(self.state.vector(f, piece, w), self.wide) for f in self.factors)
            return UOp(Op.MUL, (a, b))
        return B.cast(self.state.vector(self.fold.value, piece, w), self.wide)

    def identity(self, w: int) -> UOp:
        """The identity of the value's own dtype, in the accumulator's: e4m3 has no -inf."""
        if w not in self.identities:
            own = B.const(identity(self.op, self.u.dtype).const, self.wide)
            self.identities[w] = constant(own.const, self.wide, (w,) if w > 1 else ())
        return self.identities[w]

    def tree(self, parts: list[UOp]) -> UOp:
        """All parts combined, by halves."""
        while len(parts) > 1:
            parts = [UOp(self.op, tuple(parts[k : k + 2])) if k + 1 < len(parts) else parts[k] for k in range(0, len(parts), 2)]
        return parts[0]

    def lanes(self, x: UOp) -> UOp:
        """All lanes of a vector combined, by halves."""
        while x.shape != ():
            w = int(x.shape[0])
            low, high = (UOp(Op.INDEX, (x, constants(tuple(range(k, k + w // 2))))) for k in (0, w // 2))
            x = UOp(self.op, (low, high))
        return x


def build_fold(state: Vectors, u: UOp, fold: Fold) -> None:
    """Build the wanted pieces of a Reduce."""
    make = _Builder(state, u, fold)
    parts = _looped(make) if fold.ranges else [[_straight(make, g)] for g in fold.groups]
    for group, found in zip(fold.groups, parts, strict=True):
        state.values[u, group.piece] = B.cast(make.lanes(make.tree(found)) if fold.lanes else make.tree(found), u.dtype)
    if u.shape == ():
        state.done[u] = state.values[u, SCALAR]


def _straight(make: _Builder, group: Group) -> UOp:
    """Without a loop: all terms in one expression."""
    w = make.fold.lanes or len(group.piece)
    if make.factors is None:
        return make.tree([make.term(t, w) for t in group.terms])
    running = make.term(group.terms[0], w)
    for t in group.terms[1:]:
        running = make.combine(running, t, w)
    return running


def _looped(make: _Builder) -> list[list[UOp]]:
    """Accumulators around the loop; gives those of each group, read after it."""
    state, fold = make.state, make.fold
    ranges = tuple([state.done[r] for r in fold.ranges])
    outer = tuple([state.done[r] for r in sorted(state.live[make.u], key=lambda r: int(r.arg.axis_id))])
    steps, registers = list[UOp](), list[list[UOp]]()
    for group in fold.groups:
        registers.append([])
        w = fold.lanes or len(group.piece)
        for k in range(group.accumulators):
            register = UOp(Op.BUFFER, (), BufferArg(w, make.wide, "CPU", AddrSpace.REG, next(state.uniques)))
            before = UOp(Op.AFTER, (register, *outer)) if outer else register
            cleared = UOp(Op.STORE, (UOp(Op.INDEX, (before, whole(w))), make.identity(w)))
            running = UOp(Op.INDEX, (UOp(Op.AFTER, (register, cleared, *ranges)), whole(w)))
            value = UOp(Op.LOAD, (running,), LoadArg())
            for t in group.terms[k :: group.accumulators]:
                value = make.combine(value, t, w)
            steps.append(UOp(Op.STORE, (running, value)))
            registers[-1].append(register)
    body = B.nested(steps[0] if len(steps) == 1 else UOp(Op.GROUP, tuple(steps)), ranges)
    return [[_read(register, body) for register in group] for group in registers]


def _read(register: UOp, done: UOp) -> UOp:
    return UOp(Op.LOAD, (UOp(Op.INDEX, (UOp(Op.AFTER, (register, done)), whole(register.arg.size))),), LoadArg())
