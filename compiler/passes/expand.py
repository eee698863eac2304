"""Expand: UPCAST and UNROLL ranges become axes of shape.

Takes: SCHEDULED. Gives: EXPANDED (no UPCAST or UNROLL range left). Spec: Lowering Pipeline/Expand; AxisType table; R41, R42, R95.

The expanded ranges of a kernel are ordered by (priority of the type, axis id). A value has one axis per expanded range that it
depends on, in that order, and no other axis; a Range becomes the Stack of its values. Where operands meet they are brought to the
axes of all of them by Reshape and Expand, but for one of shape () that an elementwise op takes as it is (R162). Memory is
one-dimensional: the positions of an access of several axes are reshaped flat, and what is loaded is reshaped back. A Reduce over an
expanded range is one over its axis; with other ranges beside it, those are reduced outside of that. An End closes one loop, the
last of its ranges innermost (R58).

What a schedule may contain: any number of UPCAST and UNROLL ranges of constant, positive extent, closed by an End or a Reduce like
other ranges, and used in values, positions, gates and in the positions of LOCAL and REG Buffers, but not in the bound of a loop.
All combinations of their values are computed side by side, in the loops of all other ranges: a Store before a Load that is ordered
after it, in every combination. What is a lane of a vector is decided by instruction selection, from addresses: a Store is cut into
vectors along whatever axis is contiguous in memory, all other axes are separate instructions. So a register tile has
prod(UPCAST extents) / lanes accumulators, which should fit `Machine.registers`; a Reduce over an UNROLL range and loops has one
set of accumulators, of lanes along the UNROLL range where its loads are contiguous and those of the output are not. Gates that
depend on lanes mask accesses; gates that do not stay branches.
"""

from __future__ import annotations

from collections.abc import Callable

from uops.compiler.ir.bodies import each
from uops.compiler.ir.loops import in_order
from uops.compiler.log import note
from uops.compiler.place import untranslatable
from uops.spec.ir import build as B
from uops.spec.ir.args import ReduceArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, nodes_of, toposort
from uops.spec.ir.ops import ALU, Op

_EXPANDED = frozenset({AxisType.UPCAST, AxisType.UNROLL})


def expand(root: UOp) -> UOp:
    """`root` with shape in the place of vector axes; raises CompileError for one that cannot be a shape."""
    return each(root, expanded)


def expanded(body: UOp) -> UOp:
    """One body with shape in the place of vector axes."""
    ranges = [u for u in nodes_of(body, Op.RANGE) if u.arg.type in _EXPANDED]
    plain = not ranges and not any(len(u.src) > 2 for u in nodes_of(body, Op.END))
    return body if plain else _Expansion(toposort(body), ranges).run()


class _Expansion:
    """One kernel. A set of axes is a bit mask over `axes`, the expanded ranges in order."""

    def __init__(self, order: list[UOp], ranges: list[UOp]) -> None:
        self.order = order
        self.axes = in_order(ranges)
        self.extents = [_extent(r, order[-1]) for r in self.axes]
        self.bit = {r: 1 << k for k, r in enumerate(self.axes)}
        self.depends: dict[UOp, int] = {}  # the axes of a value; of a reference those of its positions
        self.done: dict[UOp, UOp] = {}
        self.shaped: dict[tuple[UOp, int], UOp] = {}
        self.vectors: dict[tuple[int, ...], UOp] = {}

    def run(self) -> UOp:
        for u in self.order:
            _RULES.get(u.op, _Expansion.elementwise if u.op in ALU else _Expansion.same)(self, u)
        note("expand", self.order[-1], self.done[self.order[-1]], self.done)
        return self.done[self.order[-1]]

    # Shapes.

    def shape(self, mask: int) -> tuple[int, ...]:
        return tuple(n for k, n in enumerate(self.extents) if mask >> k & 1)

    def vector(self, shape: tuple[int, ...]) -> UOp:
        """A shape operand."""
        if shape not in self.vectors:
            self.vectors[shape] = B.shape_vector(shape)
        return self.vectors[shape]

    def reshape(self, u: UOp, shape: tuple[int, ...]) -> UOp:
        return u if u.shape == shape else UOp(Op.RESHAPE, (u, self.vector(shape)))

    def at(self, u: UOp, mask: int) -> UOp:
        """The value of `u`, which has some of the axes `mask`, with all of them."""
        own = self.depends[u]
        if own == mask:
            return self.done[u]
        found = self.shaped.get((u, mask))
        if found is None:
            ones = tuple(n if own >> k & 1 else 1 for k, n in enumerate(self.extents) if mask >> k & 1)
            found = UOp(Op.EXPAND, (self.reshape(self.done[u], ones), self.vector(self.shape(mask))))
            self.shaped[u, mask] = found
        return found

    def flat(self, u: UOp, mask: int) -> UOp:
        """The same as a vector; as it is where there are no axes."""
        value = self.at(u, mask)
        return self.reshape(value, (_product(self.shape(mask)),)) if mask & (mask - 1) else value

    # Nodes.

    def same(self, u: UOp) -> None:
        """Memory, effects and loops: no shape of their own. An expanded range needs no loop to close."""
        src = tuple(self.done[s] for s in u.src if s not in self.bit)
        self.depends[u] = 0
        self.done[u] = u if src == u.src else UOp(u.op, src, u.arg, u.tag)

    def end(self, u: UOp) -> None:
        """One End per loop, the last range innermost; an expanded range needs no loop."""
        self.depends[u] = 0
        body = self.done[u.src[0]]
        for r in reversed(u.src[1:]):
            body = body if r in self.bit else UOp(Op.END, (body, self.done[r]))
        self.done[u] = body

    def elementwise(self, u: UOp) -> None:
        mask = self._union(u.src)
        self.depends[u] = mask
        src = tuple([self.at(s, mask) if self.depends[s] else self.done[s] for s in u.src])
        self.done[u] = u if src == u.src else UOp(u.op, src, u.arg, u.tag)

    def _union(self, src: tuple[UOp, ...]) -> int:
        mask = 0
        for s in src:
            mask |= self.depends[s]
        return mask

    def range(self, u: UOp) -> None:
        if u in self.bit:
            self.depends[u] = self.bit[u]
            self.done[u] = UOp(Op.STACK, tuple(B.index(k) for k in range(_extent(u, self.order[-1]))))
        elif self.depends[u.src[0]]:
            raise untranslatable("Lowering Pipeline/Expand", u, "its bound depends on a vector axis", self.order[-1])
        else:
            self.same(u)

    def after(self, u: UOp) -> None:
        """The axes are those of what is passed on."""
        self.same(u)
        self.depends[u] = self.depends[u.src[0]]

    def index(self, u: UOp) -> None:
        """A reference; it is made where it is used, for the axes of the access."""
        self.depends[u] = self._union(u.src)
        self.done[u] = u

    def reference(self, u: UOp, mask: int) -> UOp:
        """The places of an access with the axes `mask`."""
        if u.op is Op.AFTER and u.src[0].op in (Op.INDEX, Op.AFTER):
            return UOp(Op.AFTER, (self.reference(u.src[0], mask), *(self.done[s] for s in u.src[1:] if s not in self.bit)))
        if u.op is not Op.INDEX:
            return self.done[u]
        return u.replace(src=(self.reference(u.src[0], mask), *(self.flat(s, mask) for s in u.src[1:])))

    def load(self, u: UOp) -> None:
        mask = self._union(u.src)
        self.depends[u] = mask
        loaded = u.replace(src=(self.reference(u.src[0], mask), *self._operands(u, mask)))
        self.done[u] = self.reshape(loaded, self.shape(mask)) if mask & (mask - 1) else loaded

    def store(self, u: UOp) -> None:
        mask = self._union(u.src)
        self.depends[u] = 0
        self.done[u] = u.replace(src=(self.reference(u.src[0], mask), *self._operands(u, mask)))

    def _operands(self, u: UOp, mask: int) -> list[UOp]:
        """Value or alt, and the gate, which stays () where it has no axis."""
        return [self.done[s] if k == 2 and not self.depends[s] else self.flat(s, mask) for k, s in enumerate(u.src) if k]

    def reduce(self, u: UOp) -> None:
        closed = 0
        for r in u.src[1:]:
            closed |= self.bit.get(r, 0)
        ranges = tuple(self.done[r] for r in u.src[1:] if r not in self.bit)
        mask = self.depends[u.src[0]] | closed
        value = self.at(u.src[0], mask)
        if closed:
            within = [k for k in range(len(self.axes)) if mask >> k & 1]
            axes = tuple(i for i, k in enumerate(within) if closed >> k & 1)
            mask &= ~closed
            value = self.reshape(UOp(Op.REDUCE, (value,), ReduceArg(u.arg.op, axes)), self.shape(mask))
        self.depends[u] = mask
        self.done[u] = u.replace(src=(value, *ranges)) if ranges or not closed else value


_RULES: dict[Op, Callable[[_Expansion, UOp], None]] = {
    Op.RANGE: _Expansion.range,
    Op.END: _Expansion.end,
    Op.INDEX: _Expansion.index,
    Op.AFTER: _Expansion.after,
    Op.LOAD: _Expansion.load,
    Op.STORE: _Expansion.store,
    Op.REDUCE: _Expansion.reduce,
    Op.BITCAST: _Expansion.elementwise,
    Op.CAST: _Expansion.elementwise,
}


def _extent(r: UOp, root: UOp) -> int:
    bound = r.src[0]
    if bound.op is not Op.CONST or bound.arg.value < 1:
        raise untranslatable("Lowering Pipeline/Expand", r, "the extent of a vector axis is a positive constant", root)
    return int(bound.arg.value)


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total
