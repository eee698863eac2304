"""Vectors: shaped values as native vectors and scalars; the first step of instruction selection for kernels that have shape.

Takes: a body of EXPANDED. Gives: the same with values of shape () or (w,) only, without Reduce and movement ops, and with index
values in the width of machine integers that holds them all (`widths`).
Spec: Lowering Pipeline/Instruction Selection; R08, R27, R32, R45, R52, R61.

Consumers first, every value is told which of its elements are wanted together, as *pieces* (`positions`): a Store is cut into
pieces that are consecutive in memory, and pieces go through movement ops as tables of positions. Sources first, each wanted piece
is then built once. What all lanes share stays a scalar and is spread by a Stack where a vector meets it; index arithmetic is summed
as scalar + constants per lane. The forms that leave here, with w a power of two:

    splat                 Stack(x, ..., x)
    lane numbers          Stack(0, 1, ..., w-1)
    contiguous access     Index(buf, Add(Stack(b, ..., b), Stack(0, 1, ..., w-1))), b a scalar
    other access          Index(buf, any other (w,) index): one access per lane
    lanes of a vector     Index(v, Const) or Index(v, Stack(Consts))
    lanes of two vectors  Where(Stack(Consts), a, b)
    vector of lanes       Stack(Index(v, Const), ...), or of any scalars
    accumulator           a REG Buffer of w elements, accessed whole
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from uops.compiler.decompose import SMALL
from uops.compiler.decompose.build import constant
from uops.compiler.passes.select.cuts import cut
from uops.compiler.passes.select.index_widths import as_integer, index_width
from uops.compiler.passes.select.positions import (
    MOVEMENT,
    NOTHING,
    SCALAR,
    Lanes,
    Piece,
    Sums,
    Term,
    constants,
    index_of,
    size,
    unordered,
)
from uops.compiler.passes.select.vector_transpose import LEAST, Crossing, crossings, every_second, halves, transposed
from uops.compiler.place import untranslatable
from uops.compiler.target import Machine
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CastArg, LoadArg
from uops.spec.ir.node import UOp, toposort, users
from uops.spec.ir.ops import ALU, Op
from uops.spec.ir.scope import open_ranges

#: A lane of a built vector, or a built scalar (lane 0).
Lane = tuple[UOp, int]


def has_shape(order: Iterable[UOp]) -> bool:
    """Whether a kernel has values that are not scalars."""
    return any(u.op in _SHAPED or (u.op in _ACCESSES and u.src[0].shape != ()) for u in order)


_ACCESSES = frozenset({Op.LOAD, Op.STORE})
_SHAPED = frozenset({Op.EXPAND, Op.RESHAPE, Op.PERMUTE, Op.SHRINK, Op.FLIP, Op.PAD})


class Group(NamedTuple):
    """One result piece and the terms that are combined into it, by `accumulators` of them side by side."""

    piece: Piece
    terms: list[Piece]
    accumulators: int


class Fold(NamedTuple):
    """`value` is what is reduced, `lanes` how many lanes of a term are folded: 0 where lanes go across."""

    value: UOp
    ranges: tuple[UOp, ...]
    groups: list[Group]
    lanes: int


class Vectors:
    """The state of one kernel: `wanted` are the pieces of each value, `values` what was built for them. `plan_fold` asks for the
    terms of a Reduce, `build_fold` builds it (`vector_reduce`)."""

    def __init__(self, kernel: UOp, machine: Machine, uniques: Iterator[int], plan_fold: PlanFold, build_fold: BuildFold) -> None:
        self.order = toposort(kernel)
        self.root, self.machine, self.uniques = kernel, machine, uniques
        self.plan_fold, self.build_fold = plan_fold, build_fold
        self.sums = Sums()
        self.memory = _references(self.order)
        self.width = max(1, machine.vector_bytes // _widest(self.order))
        self.integer = index_width(self.order, kernel)
        self.wanted: dict[UOp, dict[Piece, None]] = {}
        self.pieces: dict[UOp, list[Piece]] = {}  # of Stores
        self.crossed: dict[UOp, list[Crossing]] = {}  # of Loads
        self.folds: dict[UOp, Fold] = {}
        self.folded: set[UOp] = set()  # nodes that a fold replaces
        self.values: dict[tuple[UOp, Piece], UOp] = {}
        self.lanes: dict[UOp, dict[int, Lane]] = {}  # where else an element is found, of folds
        self.done: dict[UOp, UOp] = {}

    @functools.cached_property
    def users(self) -> dict[UOp, list[UOp]]:
        """Of each node, for folds."""
        return users(self.order)

    @functools.cached_property
    def live(self) -> dict[UOp, frozenset[UOp]]:
        """The loops around each node, for folds."""
        return open_ranges(self.order)

    # Consumers first: which elements are wanted together.

    def spread(self) -> None:
        wanted, memory, folded = self.wanted, self.memory, self.folded
        for u in reversed(self.order):
            op = u.op
            if op is Op.STORE:
                self._cut(u)
            elif op not in _GIVEN and u not in memory and u not in folded:
                if not u.shape:
                    wanted.setdefault(u, {})[SCALAR] = None
                if u in wanted:
                    self._visit(u, wanted[u])

    def want(self, u: UOp, piece: Piece) -> None:
        """Ask for a piece of a value, of one of shape () for the value (R162); a movement op is looked through."""
        if not u.shape:
            piece = SCALAR
        while u.op in _MOVES:
            if u.op is not Op.RESHAPE:
                piece = self.sums.moved(u, piece)
            u = u.src[0]
            if NOTHING in piece:
                for p in set(piece) - {NOTHING}:
                    self.want(u, (p,))
                return
        self.wanted.setdefault(u, {})[piece] = None

    def want_index(self, u: UOp, piece: Piece) -> None:
        """Ask for what an index vector is made of."""
        found = self.sums.of(u, piece)
        if found is None:
            self.want(u, piece)
            return
        for t, p in found.terms:
            if t.shape != ():
                self.wanted.setdefault(t, {})[(p,)] = None

    def _visit(self, u: UOp, pieces: dict[Piece, None]) -> None:
        if u.op is Op.REDUCE:
            self.folds[u] = self.plan_fold(self, u, pieces)
            return
        for piece in self._cross(u, pieces) if u.op is Op.LOAD else pieces:
            if u.dtype is dt.index and self._is_sum(u, piece):
                self.want_index(u, piece)
            elif u.op is Op.LOAD:
                self._want_access(u, piece)
            elif u.op is Op.STACK:
                inner = size(u.src[0]) if u.src else 1
                for p in piece:
                    self.want(u.src[p // inner], (p % inner,))
            elif u.op in ALU or u.op is Op.BITCAST:
                for s in u.src:
                    self.want(s, piece)
            elif u.op is Op.AFTER:
                self.want(u.src[0], piece)
            elif u.op is Op.WMMA:  # whole fragments, whatever is wanted of the product
                for s in u.src:
                    self.want(s, tuple(range(size(s))))
            elif u.op in MOVEMENT or u.op is Op.RESHAPE:
                self.want(u, piece)
            elif u.op not in _SCALARS:
                raise untranslatable("Lowering Pipeline/Instruction Selection", u, f"no vectors of {u.op.name}", self.root)

    def _cross(self, u: UOp, pieces: dict[Piece, None]) -> Iterable[Piece]:
        """The pieces of a Load that are accesses: those wanted, rows in the place of columns."""
        found = crossings(self.sums, u, pieces)
        if not found:
            return pieces
        self.crossed[u] = found
        columns = {p for c in found for p in c.columns}
        return (*(p for p in pieces if p not in columns), *(p for c in found for p in c.rows))

    def _is_sum(self, u: UOp, piece: Piece) -> bool:
        """Whether an index value is summed rather than computed; the terms of sums are computed."""
        found = self.sums.of(u, piece)
        return found is not None and (u, piece[0]) not in found.terms

    def _want_access(self, u: UOp, piece: Piece) -> None:
        self.want_index(index_of(u), piece)
        for k, s in enumerate(u.src[1:], 1):
            if s.shape != ():
                self.want(s, piece)
            elif k == 1:
                self.want(s, SCALAR)

    def _cut(self, u: UOp) -> None:
        self.pieces[u] = cut(self.sums, u, self.width)
        for piece in self.pieces[u]:
            self._want_access(u, piece)

    # Sources first: the nodes.

    def build(self) -> UOp:
        for u in self.order:
            op = u.op
            if op is Op.CONST or op in _MOVES or u in self.folded:  # a constant is there where it is wanted
                continue
            if op in _BASES:
                self.done[u] = u
                self.values[u, SCALAR] = self._counter(u) if u.dtype is dt.index else u
            elif op is Op.STORE:
                stores = [self._store(u, piece) for piece in self.pieces[u]]
                self.done[u] = stores[0] if len(stores) == 1 else UOp(Op.GROUP, tuple(stores))
            elif op in _EFFECTS or u in self.memory:
                if unordered(u).op is not Op.INDEX:  # an element is built with its access
                    self._same(u)
            elif u in self.folds:
                self.build_fold(self, u, self.folds[u])
            elif op is Op.RANGE:
                bound = u.src[0]
                given = bound.op is Op.CONST or bound.op is Op.PARAM
                self.done[u] = u if given else u.replace(src=(B.cast(self.value(bound, SCALAR), dt.int64),))
                self.values[u, SCALAR] = self._counter(self.done[u])
            else:
                for crossing in self.crossed.get(u, ()):
                    rows = [self.values.setdefault((u, p), self._load(u, p)) for p in crossing.rows]
                    self.values.update({(u, p): x for p, x in zip(crossing.columns, transposed(rows), strict=True)})
                for piece in self.wanted.get(u, ()):
                    if (u, piece) not in self.values:
                        self.values[u, piece] = self._build(u, piece)
                if not u.shape:
                    self.done[u] = self.values[u, SCALAR]
        return self.done[self.root]

    def made(self) -> dict[UOp, tuple[UOp, ...]]:
        """Every node that was built of a value, an effect or a view."""
        found: dict[UOp, tuple[UOp, ...]] = {u: (node,) for u, node in self.done.items()}
        for (u, _), node in self.values.items():
            found[u] = (*found.get(u, ()), node)
        return found

    def _counter(self, u: UOp) -> UOp:
        """The value of a constant, a variable or a loop counter of dtype index."""
        return constants((u.arg.value,), self.integer) if u.op is Op.CONST else UOp(Op.CAST, (u,), CastArg(self.integer))

    def _same(self, u: UOp) -> None:
        src = tuple([self.done[s] if s in self.done else self.value(s, SCALAR) for s in u.src])
        self.done[u] = u if src == u.src else u.replace(src=src)

    def value(self, u: UOp, piece: Piece) -> UOp:
        """The node of a piece: () for one lane, and for all lanes of a value of shape (), else (w,)."""
        if not u.shape:
            piece = SCALAR
        while u.op in _MOVES:
            if u.op is not Op.RESHAPE:
                piece = self.sums.moved(u, piece)
            u = u.src[0]
            if NOTHING in piece:
                zero = (constant(0, self.integer if u.dtype is dt.index else u.dtype), 0)
                return compose([zero if p == NOTHING else (self.value(u, (p,)), 0) for p in piece])
        found = self.values.get((u, piece))
        if found is None:
            found = self.values[u, piece] = self._compose(u, piece)
        return found

    def vector(self, u: UOp, piece: Piece, w: int) -> UOp:
        """The piece with `w` lanes."""
        return splat(self.value(u, piece), w)

    def _compose(self, u: UOp, piece: Piece) -> UOp:
        """A piece from lanes that were built otherwise."""
        if u.op is Op.CONST:
            return self._counter(u) if u.dtype is dt.index else u
        if u.dtype is dt.index and (lanes := self.sums.of(u, piece)) is not None and (u, piece[0]) not in lanes.terms:
            return self.index(lanes, len(piece))
        where = self.lanes.get(u)
        if where is None:
            where = self.lanes[u] = {}
            for (v, held), node in self.values.items():
                if v is u:
                    where.update({p: (node, k) for k, p in enumerate(held)})
        return compose([where[p] for p in piece])

    def _build(self, u: UOp, piece: Piece) -> UOp:
        if u.dtype is dt.index and self._is_sum(u, piece):
            lanes = self.sums.of(u, piece)
            assert lanes is not None
            return self.index(lanes, len(piece))
        if u.op in ALU and u.op is not Op.CAST:
            return self._elementwise(u, piece)
        if u.op is Op.LOAD:
            return self._load(u, piece)
        if u.op is Op.STACK:
            inner = size(u.src[0]) if u.src else 1
            return compose([(self.value(u.src[p // inner], (p % inner,)), 0) for p in piece])
        if u.op in MOVEMENT or u.op is Op.RESHAPE:
            return self.value(u, piece)
        if u.op is Op.WMMA:
            fragments = [self.value(s, tuple(range(size(s)))) for s in u.src]
            node = u.replace(src=tuple([f if f.shape != () else UOp(Op.STACK, (f,)) for f in fragments]))
            return compose([(node, p) for p in piece]) if len(piece) > 1 else UOp(Op.INDEX, (node, constants(piece)))
        if u.op is Op.AFTER:
            return u.replace(src=(self.value(u.src[0], piece), *(self.done[d] for d in u.src[1:])))
        if u.op is Op.CAST and u.dtype is dt.index:
            return as_integer(self.value(u.src[0], piece), self.integer)
        return self._elementwise(u, piece)

    def _elementwise(self, u: UOp, piece: Piece) -> UOp:
        """What all lanes share stays a scalar."""
        src = [self.value(s, piece) for s in u.src]
        for s in src:
            if s.shape:
                w = len(piece)
                return UOp(u.op, tuple([s if s.shape else UOp(Op.STACK, (s,) * w) for s in src]), u.arg, u.tag)
        return UOp(u.op, tuple(src), u.arg, u.tag)

    # Index vectors.

    def index(self, lanes: Lanes, w: int) -> UOp:
        """The node of an index value of `w` lanes."""
        steps = lanes.steps
        if steps is None:
            return UOp(Op.STACK, tuple([self._sum(lanes, k) for k in range(w)]))
        if w == 1:
            return self._sum(lanes, 0)
        if len(steps) == 1 or not any(steps):
            return splat(self._sum(lanes, 0), w)
        if not lanes.terms:
            return constants(lanes.constant, self.integer)
        return UOp(Op.ADD, (splat(self._sum(lanes, 0), w), constants(steps, self.integer)))

    def _sum(self, lanes: Lanes, k: int) -> UOp:
        """Lane k as a scalar; the constant comes last, so that lanes and neighbouring pieces share the rest."""
        total: UOp | None = None
        for term, factor in lanes.terms.items():
            by = factor if isinstance(factor, int) else factor[k if len(factor) > 1 else 0]
            if by:
                node = self._term(term)
                node = node if by == 1 else UOp(Op.MUL, (node, constants((by,), self.integer)))
                total = node if total is None else UOp(Op.ADD, (total, node))
        c = lanes.constant[k if len(lanes.constant) > 1 else 0]
        if total is None:
            return constants((c,), self.integer)
        return total if c == 0 else UOp(Op.ADD, (total, constants((c,), self.integer)))

    def _term(self, term: Term) -> UOp:
        return self.value(term[0], (term[1],))

    # Memory.

    def _place(self, u: UOp, index: UOp) -> UOp:
        """The Index of an access; what orders it stands at the memory."""
        view, orders = u.src[0], list[UOp]()
        while view.op is Op.AFTER:
            orders += [self.done[d] for d in view.src[1:]]
            view = view.src[0]
        base = self.done[view.src[0]]
        return UOp(Op.INDEX, (UOp(Op.AFTER, (base, *orders)) if orders else base, index))

    def _address(self, u: UOp, piece: Piece) -> UOp:
        """The positions that an access of this piece touches, in the contiguous form where they are contiguous."""
        at, w = index_of(u), len(piece)
        lanes = self.sums.of(at, piece)
        if lanes is None:
            return self.value(at, piece)
        steps = lanes.steps
        if w > 1 and steps == tuple(range(w)):
            return UOp(Op.ADD, (splat(self._sum(lanes, 0), w), constants(steps, self.integer)))
        return self.index(lanes, w)

    def _load(self, u: UOp, piece: Piece) -> UOp:
        w = len(piece)
        operands = self._gated(u, piece)
        if self.machine.masks and w >= LEAST and (lanes := self.sums.of(index_of(u), piece)) and lanes.steps == every_second(w):
            return self._load_halves(u, lanes, operands, w)
        address = self._address(u, piece)
        if w > 1 and _is_splat(address) and all(o.shape == () for o in operands):
            address, w = address.src[0], 1
        extra = (splat(operands[0], w), *operands[1:]) if operands else ()
        return UOp(Op.LOAD, (self._place(u, address), *extra), LoadArg())

    def _load_halves(self, u: UOp, lanes: Lanes, operands: Sequence[UOp], w: int) -> UOp:
        """Every second element, of two contiguous Loads."""
        alt, gate = operands or (constant(0, u.dtype), constant(True, dt.bool_))
        firsts = [self._sum(lanes, k) for k in (0, w // 2)]
        places = [self._place(u, UOp(Op.ADD, (splat(b, w), constants(tuple(range(w)), self.integer)))) for b in firsts]
        return halves(places, splat(alt, w), splat(gate, w), u.arg)

    def _gated(self, u: UOp, piece: Piece) -> list[UOp]:
        """Alt or value, and gate, as they are built."""
        return [self.value(s, piece if s.shape != () else SCALAR) for s in u.src[1:]]

    def _store(self, u: UOp, piece: Piece) -> UOp:
        operands = self._gated(u, piece)
        address = self._address(u, piece)
        return UOp(Op.STORE, (self._place(u, address), splat(operands[0], len(piece)), *operands[1:]))


def splat(x: UOp, w: int) -> UOp:
    """A scalar in `w` lanes; a vector as it is."""
    return x if w == 1 or x.shape != () else UOp(Op.STACK, (x,) * w)


def compose(lanes: Sequence[Lane]) -> UOp:
    """The vector of these lanes; of one lane the scalar."""
    node = lanes[0][0]
    if node.shape != () and all(v is node for v, _ in lanes):
        if len(lanes) == node.shape[0] and all(k == at for k, (_, at) in enumerate(lanes)):
            return node
        if len(lanes) > 1:
            return UOp(Op.INDEX, (node, constants(tuple([k for _, k in lanes]))))
    scalars = [v if v.shape == () else UOp(Op.INDEX, (v, constants((k,)))) for v, k in lanes]
    return scalars[0] if len(scalars) == 1 else UOp(Op.STACK, tuple(scalars))


def _is_splat(u: UOp) -> bool:
    return u.op is Op.STACK and u.src.count(u.src[0]) == len(u.src)


_EFFECTS = frozenset({Op.SINK, Op.GROUP, Op.END, Op.BARRIER})
_BASES = frozenset({Op.PARAM, Op.BUFFER})
_VIEWS = frozenset({Op.INDEX, Op.AFTER, Op.BITCAST})
_SCALARS = frozenset({Op.CONST, Op.RANGE, Op.PARAM})
_GIVEN = _EFFECTS | _BASES | {Op.CONST, Op.RANGE}
_MOVES = MOVEMENT | {Op.RESHAPE}


def _references(order: Iterable[UOp]) -> set[UOp]:
    """Memory and views of it."""
    found: set[UOp] = set()
    for u in [u for u in order if u.op in _REFERRING]:
        op = u.op
        if op in _VIEWS:
            if u.src[0] in found or (op is Op.AFTER and u.src[0].dtype is dt.void):
                found.add(u)
        elif op is Op.BUFFER or u.arg.name is None:
            found.add(u)
    return found


def _widest(order: Iterable[UOp]) -> int:
    """Bytes of the widest element that a kernel computes with in lanes."""
    found = {(u.dtype, u.op in _WIDENED) for u in order if u.op in _COMPUTED and u.shape}
    return max([1, *(4 if widened and d in SMALL else d.itemsize for d, widened in found if d is not dt.index)])


_COMPUTED = ALU | {Op.LOAD, Op.REDUCE, Op.BITCAST}
_WIDENED = ALU - {Op.WHERE}
_REFERRING = _VIEWS | _BASES
PlanFold = Callable[[Vectors, UOp, dict[Piece, None]], Fold]
BuildFold = Callable[[Vectors, UOp, Fold], None]
