"""The element of an array at an index, as an expression of scalars.

Takes: values of a callified body, and an index: one integer per axis. Gives: expressions of Loads, Reduces over loops, and
elementwise ops. Nothing is simplified. Raises NotEvaluable for values that have no such expression.
Spec: R41 (operand shapes, Permute), R43 (Pad), R44 (Shrink), R45 (Index), R47 (Replicated), R51 (references).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from uops.compiler.validate.fingerprints.integers import NotEvaluable
from uops.compiler.validate.postorder import compute_sources_first
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ReduceArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.derive.shape import dim_node
from uops.spec.ir.node import Dim, UOp, toposort
from uops.spec.ir.ops import ALU, CONVERSIONS, MARKERS, MEMORY_ROOTS, Op
from uops.spec.ir.scope import VIEWS, base_memory, is_variable

#: One integer per axis.
Index = tuple[UOp, ...]
#: A value, the index of one of its elements, and the condition under which that is in range.
Element = tuple[UOp, Index, UOp]
ZERO, TRUE = B.index(0), B.const(True)
#: Greatest number of elements of a Stack.
_MAX_STACKED = 64


class ElementExpressions:
    """Expressions of elements, each made once.

    `load` gives an element of memory, or of a value that is said to be in memory: (value, Stores before, index, gate) ->
    expression, or None for a value that is not in memory. The value `root` is computed even so. An Index out of range has no value
    (R45); with `zero_out_of_range` it is 0.
    """

    def __init__(
        self,
        load: Callable[[UOp, frozenset[UOp], Index, UOp], UOp | None],
        root: UOp | None = None,
        zero_out_of_range: bool = False,
    ) -> None:
        self.load, self.root, self.zero_out_of_range = load, root, zero_out_of_range
        self.known: dict[Element, UOp] = {}
        self.loops: dict[Element, Index] = {}
        self.axis_ids = itertools.count()

    def open_loop(self, extent: Dim, kind: AxisType) -> UOp:
        """Return the counter of a new loop, or 0 if it has one iteration."""
        return ZERO if extent == 1 else B.range_(extent, next(self.axis_ids), kind)

    def element(self, value: UOp, index: Index, gate: UOp = TRUE) -> UOp:
        """Return the element of a value at an index."""
        return compute_sources_first((value, index, gate), self.known, self._list_sources, self._compute)

    def element_of_operand(self, operand: UOp, index: Index) -> UOp:
        """Return the element of an operand that is broadcast to an index."""
        return self.element(operand, align_index(index, operand))

    def _list_sources(self, e: Element) -> Sequence[Element]:
        u, index, gate = e
        if u is not self.root and self.load(u, frozenset(), index, gate) is not None:
            return ()
        if u.op is Op.INDEX and (positions := [p for p in self._positions(u, index) if p not in self.known]):
            return positions  # of the operand, the element depends on them
        if u.op in _OPERAND_INDEX:
            inside = UOp(Op.AND, (gate, self._is_inside(u, index))) if u.op is Op.PAD else gate
            return ((u.src[0], _OPERAND_INDEX[u.op](self, u, index), inside),)  # operand
        if u.op is Op.REDUCE:
            return ((u.operand, self._open_reduce_loops(e), gate),)
        if u.op is Op.STACK:
            return [(s, index[1:], gate) for s in u.src]
        if u.op in ALU or u.op in CONVERSIONS or u.op is Op.LOAD:
            return [(s, align_index(index, s), gate) for s in u.src]
        return ()

    def _compute(self, e: Element) -> UOp:
        u, index, gate = e
        if u is not self.root and (loaded := self.load(u, frozenset(), index, gate)) is not None:
            return loaded
        sources = [self.known[s] for s in self._list_sources(e)]
        if u.op is Op.CONST or (u.op is Op.PARAM and is_variable(u)):
            return u
        if u.op is Op.AFTER:
            return self._load_after_stores(u, index, gate)
        if u.op is Op.PAD or (u.op is Op.INDEX and self.zero_out_of_range):
            inside, value = self._is_inside(u, index), sources[0]
            is_zero_outside = value.op is Op.LOAD and value.gate is UOp(Op.AND, (gate, inside))
            return value if is_zero_outside else B.where(inside, value, B.const(0, u.dtype))
        if u.op in _OPERAND_INDEX:
            return sources[0]
        if u.op is Op.REDUCE:
            loops = [r for k, r in enumerate(self.loops[e]) if k in u.arg.axes and r.op is Op.RANGE]
            return UOp(Op.REDUCE, (sources[0], *loops), ReduceArg(u.arg.op, ())) if loops else sources[0]
        if u.op is Op.STACK and 0 < len(sources) <= _MAX_STACKED:
            chosen = sources[-1]
            for k, s in reversed(list(enumerate(sources[:-1]))):
                chosen = B.where(UOp(Op.CMPEQ, (index[0], B.index(k))), s, chosen)
            return chosen
        if u.op is Op.LOAD:  # of a value: a copy to another device, or a choice
            return sources[0] if u.gate is None else B.where(sources[2], sources[0], sources[1])
        if u.op is Op.BITCAST and u.dtype.itemsize != u.operand.dtype.itemsize:
            raise NotEvaluable("a Bitcast to another size")
        if u.op is Op.WHERE and sources[0].dtype is not dt.bool_:  # a number is true unless it is 0
            sources[0] = UOp(Op.CMPNE, (sources[0], B.const(0, sources[0].dtype)))
        if u.op in ALU or u.op in CONVERSIONS:
            return u.replace(src=tuple(sources))
        raise NotEvaluable(f"{u.op.name} of an array has no element")

    # Memory

    def _load_after_stores(self, after: UOp, index: Index, gate: UOp) -> UOp:
        """Return the element of a version of memory: as the Stores leave it for which an After waits."""
        u = after
        while u.op in VIEWS:
            if u.op is Op.BITCAST:
                raise NotEvaluable("memory is used in two dtypes")
            index = _OPERAND_INDEX[u.op](self, u, index) if u.op in _OPERAND_INDEX else index
            u = u.src[0]  # operand, or buffer
        order = toposort(after)
        if u.op not in MEMORY_ROOTS:
            return self.element(u, index, gate)
        if any(x.op is Op.CALL for x in order):
            raise NotEvaluable("a program that calls a kernel")
        stores = frozenset(x for x in order if x.op is Op.STORE and base_memory(x.buffer) is u)
        loaded = self.load(u, stores, index, gate)
        assert loaded is not None
        return loaded

    def position_in(self, view: UOp, index: Index) -> UOp:
        """Return the position in its memory of the element of a view at an index."""
        while view.op is not Op.PARAM:
            if view.op not in _OPERAND_INDEX and view.op is not Op.AFTER:
                raise NotEvaluable(f"a Store to a {view.op.name}")
            if view.op is Op.INDEX:
                for position in self._positions(view, index):
                    self.element(*position)
            index = _OPERAND_INDEX[view.op](self, view, index) if view.op in _OPERAND_INDEX else index
            view = view.src[0]  # operand, or buffer
        return flatten_index(index, view.shape)

    # Movements: the index in the operand

    def same(self, u: UOp, index: Index) -> Index:
        """Return the index in an operand with the same elements."""
        return index

    def permute(self, u: UOp, index: Index) -> Index:
        """Return the index in the operand of a Permute."""
        operand = [ZERO] * len(index)
        for k, axis in enumerate(u.arg.order):
            operand[axis] = index[k]
        return tuple(operand)

    def flip(self, u: UOp, index: Index) -> Index:
        """Return the index in the operand of a Flip."""
        return flip_index(u, index)

    def reshape(self, u: UOp, index: Index) -> Index:
        """Return the index in the operand of a Reshape."""
        return unflatten_position(flatten_index(index, u.shape), u.operand.shape)

    def expand(self, u: UOp, index: Index) -> Index:
        """Return the index in the operand of an Expand."""
        return align_index(index, u.operand)

    def shrink(self, u: UOp, index: Index) -> Index:
        """Return the index in the operand of a Shrink."""
        return tuple(B.add(i, o) for i, o in zip(index, self._list_entries(u.offsets), strict=True))

    def pad(self, u: UOp, index: Index) -> Index:
        """Return the index in the operand of a Pad, where the element is inside of it."""
        return tuple(B.sub(i, o) for i, o in zip(index, self._list_entries(u.offsets), strict=True))

    def index(self, u: UOp, index: Index) -> Index:
        """Return the index in the operand of an Index, whose positions are known elements."""
        positions = [B.cast(self.known[p], dt.index) for p in self._positions(u, index)]
        return (*positions, *index[sum(bool(p.shape) for p in u.positions) :])

    def slice(self, u: UOp, index: Index) -> Index:
        """Return the index in the operand of a Slice of its dtype."""
        if u.dtype is not u.src[0].dtype:  # operand
            raise NotEvaluable("memory is used in two dtypes")
        return (B.add(index[0], u.offset),)

    def _positions(self, u: UOp, index: Index) -> Iterator[Element]:
        """Yield the positions of an Index: a scalar one removes its axis (R45)."""
        axes = iter(index)
        yield from ((p, (next(axes),) if p.shape else (), TRUE) for p in u.positions)

    def _is_inside(self, u: UOp, index: Index) -> UOp:
        """Return the condition under which an element of a Pad or Index is one of the operand."""
        return is_index_inside(_OPERAND_INDEX[u.op](self, u, index), u.operand.shape)

    def _list_entries(self, vector: UOp) -> list[UOp]:
        return [
            self.element(vector, (B.index(k),)) if vector.op is not Op.STACK else vector.src[k] for k in range(int(vector.shape[0]))
        ]

    def _open_reduce_loops(self, e: Element) -> Index:
        u, index, _ = e
        if u.ranges:
            raise NotEvaluable("a Reduce of an array over loops")
        if e not in self.loops:
            self.loops[e] = tuple(
                self.open_loop(n, AxisType.REDUCE) if k in u.arg.axes else i
                for k, (i, n) in enumerate(zip(index, u.operand.shape, strict=True))
            )
        return self.loops[e]


def align_index(index: Index, operand: UOp) -> Index:
    """Return the index of the element of an operand that is broadcast to an index (R41: operand shapes)."""
    aligned = index[len(index) - len(operand.shape) :]
    return tuple(ZERO if n == 1 else i for i, n in zip(aligned, operand.shape, strict=True))


def is_index_inside(index: Index, shape: Sequence[Dim]) -> UOp:
    """Return the condition under which an index is in the range of each axis."""
    inside = TRUE
    for i, n in zip(index, shape, strict=True):
        for part in (UOp(Op.CMPGE, (i, ZERO)), UOp(Op.CMPLT, (i, dim_node(n)))):
            inside = UOp(Op.AND, (inside, part))
    return inside


def flip_index(u: UOp, index: Index) -> Index:
    """Return the index in the operand of a Flip, or in the Flip of an index in the operand."""
    return tuple(B.sub(B.sub(dim_node(n), 1), i) if f else i for i, n, f in zip(index, u.shape, u.arg.flags, strict=True))


def flatten_index(index: Index, shape: Sequence[Dim]) -> UOp:
    """Return the row-major position of an index."""
    position = ZERO
    for i, n in zip(index, shape, strict=True):
        position = i if position is ZERO else B.add(B.mul(position, dim_node(n)), i)
    return position


def unflatten_position(position: UOp, shape: Sequence[Dim]) -> Index:
    """Return the index at a row-major position."""
    index = []
    for n in reversed(shape[1:]):
        index.append(ZERO if n == 1 else UOp(Op.MOD, (position, dim_node(n))))
        position = position if n == 1 else UOp(Op.IDIV, (position, dim_node(n)))
    return (*([position] if shape else ()), *reversed(index))


_Map = Callable[[ElementExpressions, UOp, Index], Index]
#: Op -> the index in its operand of the element at an index. All of these have the elements of their operand, and Pad has zeros.
_OPERAND_INDEX: Mapping[Op, _Map] = {
    Op.PERMUTE: ElementExpressions.permute,
    Op.FLIP: ElementExpressions.flip,
    Op.RESHAPE: ElementExpressions.reshape,
    Op.EXPAND: ElementExpressions.expand,
    Op.SHRINK: ElementExpressions.shrink,
    Op.PAD: ElementExpressions.pad,
    Op.INDEX: ElementExpressions.index,
    Op.SLICE: ElementExpressions.slice,
    **dict.fromkeys(MARKERS | {Op.REPLICATED}, ElementExpressions.same),  # the index on a collapsed axis is 0 (R47)
}
