"""Movement ops as pure functions on index tuples.

An element of a movement op's result is an element of its source, at an index that is a function of its own.
`STEP[op](arith, u, index)` gives the source's index. It also gives the gate under which there is such an element;
elsewhere the result is 0 (Pad). `IndexArithmetic` computes on index nodes, simplified by rules. Spec: rows Movement/*, R42 to
R49.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from uops.compiler.ir.affine import index_constant
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CastArg
from uops.spec.ir.derive.shape import dim_node
from uops.spec.ir.node import Dim, UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.sizes import match_axis_groups

#: An index node per axis.
Index = tuple[UOp, ...]
#: Views of a whole memory: the same elements, and the same elements in another shape.
AFTERS = frozenset({Op.AFTER})
WHOLE_VIEWS = AFTERS | {Op.RESHAPE}
#: The index constant 0.
ZERO = index_constant(0)
#: The gate that always holds.
TRUE = B.const(True, dt.bool_)


def strip_views_and_collect_dependencies(reference: UOp, views: frozenset[Op]) -> tuple[UOp, list[UOp]]:
    """Return a reference without its outermost views of the ops `views`, and the effects that the Afters among them wait for."""
    dependencies: list[UOp] = []
    while reference.op in views:
        if reference.op is Op.AFTER:
            dependencies += reference.dependencies
        reference = reference.src[0]  # operand, or buffer of an After
    return reference, dependencies


def fits_int32(value: UOp) -> bool:
    """Return True if min_max proves that an index value fits int32."""
    bounds = value.min_max
    return bounds is not None and dt.int32.min <= bounds[0] and bounds[1] <= dt.int32.max


class SourceElement(NamedTuple):
    """An element of a view's source, and the gate under which it exists (None: always)."""

    coords: Index
    gate: UOp | None = None


class IndexArithmetic:
    """Arithmetic on index expressions in normal form; `simplify` computes the normal form."""

    def __init__(self, simplify: Callable[[UOp], UOp]) -> None:
        self.simplify = simplify

    def alu(self, op: Op, *src: UOp) -> UOp:
        """Return an op on index nodes, in normal form."""
        return self.simplify(UOp(op, src))

    def conjoin_gates(self, a: UOp | None, b: UOp | None) -> UOp | None:
        """Return the conjunction of two gates; None always holds."""
        if a is None or b is None:
            return b if a is None else a
        return self.drop_true_gate(self.alu(Op.AND, a, b))

    def drop_true_gate(self, gate: UOp) -> UOp | None:
        """Return None for a gate that always holds, else the gate."""
        return None if gate is TRUE else gate

    def in_range_gate(self, i: UOp, lo: UOp, hi: UOp) -> UOp | None:
        """Return the gate lo <= i < hi."""
        return self.conjoin_gates(self.drop_true_gate(self.alu(Op.CMPGE, i, lo)), self.drop_true_gate(self.alu(Op.CMPLT, i, hi)))

    def index_on_axis_and_in_range_gate(self, position: UOp, n: Dim) -> tuple[UOp, UOp | None]:
        """Return the index on an axis of `n` elements that a scalar names, and the gate under which it is in range (R45, Index).

        The scalar has any dtype. An index that might not fit int32 is reduced modulo `n`: where the gate holds, it then does (R08).
        """
        extent = dim_node(n)
        if position.op is Op.CONST:
            constant = index_constant(int(position.arg.value))
            return constant, self.in_range_gate(constant, ZERO, extent)
        is_wide_cast = position.op is Op.CAST and position.dtype is dt.index
        if is_wide_cast and (position.operand.dtype is dt.uint64 or position.operand.dtype.is_float):
            position = position.operand
        if position.dtype is dt.uint64:  # compared and reduced before it becomes an index, which int64 might not hold
            size = UOp(Op.CAST, (extent,), CastArg(dt.uint64))
            index = self.simplify(B.cast(UOp(Op.MOD, (position, size)), dt.index))
            return index, self.drop_true_gate(self.alu(Op.CMPLT, position, size))
        if position.dtype.is_float:
            position = B.cast(position, dt.int64)
        index = B.cast(position, dt.index)
        inside = self.in_range_gate(index, ZERO, extent)
        return index if inside is None or fits_int32(index) else self.alu(Op.MOD, index, extent), inside

    def flatten(self, index: Sequence[UOp], shape: Sequence[Dim]) -> UOp:
        """Return the row-major position of an element."""
        flat = ZERO
        for i, n in zip(index, shape, strict=True):
            flat = UOp(Op.ADD, (UOp(Op.MUL, (flat, dim_node(n))), i)) if flat is not ZERO else i
        return self.simplify(flat)

    def unflatten(self, flat: UOp, shape: Sequence[Dim]) -> Index:
        """Return the index of the element at a row-major position."""
        coords: list[UOp] = []  # innermost first
        for n in reversed(shape[1:]):
            if not isinstance(n, UOp) and n == 1:
                coords.append(ZERO)
                continue
            size = dim_node(n)
            coords.append(self.alu(Op.MOD, flat, size))
            flat = self.alu(Op.IDIV, flat, size)
        if shape:
            coords.append(flat if shape[0] != 1 else ZERO)
        return tuple(reversed(coords))

    def align_broadcast_index(self, broadcast_index: Index, source_shape: Sequence[Dim]) -> Index:
        """Return the index in a value of `source_shape` of the element at `broadcast_index` of its broadcast (R41)."""
        trailing = broadcast_index[len(broadcast_index) - len(source_shape) :]
        if 1 not in source_shape:
            return trailing
        return tuple([ZERO if n == 1 else i for i, n in zip(trailing, source_shape, strict=True)])


def view_front_of_memory(memory: UOp, shape: Sequence[Dim]) -> UOp:
    """Return a view of the first elements of a one-dimensional memory, in row-major order of `shape`."""
    count: Dim = math.prod([n for n in shape if not isinstance(n, UOp)])
    for n in shape:
        count = count if not isinstance(n, UOp) else n if count == 1 else UOp(Op.MUL, (dim_node(count), n))
    front = memory if memory.shape == (count,) else B.shrink(memory, (0,), (count,))
    return front if front.shape == tuple(shape) else UOp(Op.RESHAPE, (front, B.shape_vector(shape)))


def _index_through_permute(arith: IndexArithmetic, u: UOp, index: Index) -> SourceElement:
    coords = [ZERO] * len(index)
    for k, axis in enumerate(u.arg.order):
        coords[axis] = index[k]
    return SourceElement(tuple(coords))


def _index_through_flip(arith: IndexArithmetic, u: UOp, index: Index) -> SourceElement:
    extents = (dim_node(n) for n in u.shape)
    coords = (
        arith.alu(Op.SUB, UOp(Op.SUB, (n, i)), index_constant(1)) if flag else i
        for i, n, flag in zip(index, extents, u.arg.flags, strict=True)
    )
    return SourceElement(tuple(coords))


def _index_through_reshape(arith: IndexArithmetic, u: UOp, index: Index) -> SourceElement:
    return SourceElement(reshape_index(arith, u.shape, u.operand.shape, index))


def reshape_index(arith: IndexArithmetic, from_shape: Sequence[Dim], to_shape: Sequence[Dim], index_in_from_shape: Index) -> Index:
    """Return the index in `to_shape` of the element at `index_in_from_shape` of `from_shape`.

    Row-major positions are equal in both shapes, hence in each group of axes with one number of elements.
    """
    coords: list[UOp] = []
    for from_axes, to_axes in match_axis_groups(from_shape, to_shape):
        group, old, new = index_in_from_shape[from_axes], from_shape[from_axes], to_shape[to_axes]
        if [n for n in old if n != 1] == [n for n in new if n != 1]:  # only axes of 1 are added or dropped
            remaining = iter([i for i, n in zip(group, old, strict=True) if n != 1])
            coords += [ZERO if n == 1 else next(remaining) for n in new]
        else:
            coords += arith.unflatten(arith.flatten(group, old), new)
    return tuple(coords)


def _index_through_expand(arith: IndexArithmetic, u: UOp, index: Index) -> SourceElement:
    return SourceElement(arith.align_broadcast_index(index, u.operand.shape))


def _index_through_pad(arith: IndexArithmetic, u: UOp, index: Index) -> SourceElement:
    gate: UOp | None = None
    coords = []
    for i, o, n in zip(index, u.offsets.elements, u.operand.shape, strict=True):
        coord = arith.alu(Op.SUB, i, o)
        gate = arith.conjoin_gates(gate, arith.in_range_gate(coord, ZERO, dim_node(n)))
        coords.append(coord)
    return SourceElement(tuple(coords), gate)


def _index_through_shrink(arith: IndexArithmetic, u: UOp, index: Index) -> SourceElement:
    return SourceElement(tuple(arith.alu(Op.ADD, i, o) for i, o in zip(index, u.offsets.elements, strict=True)))


def _index_through_replicated(arith: IndexArithmetic, u: UOp, index: Index) -> SourceElement:
    """Choose the first of the equal copies (R47)."""
    return SourceElement(tuple(ZERO if k in u.arg.axes else i for k, i in enumerate(index)))


def _index_through_after(arith: IndexArithmetic, u: UOp, index: Index) -> SourceElement:
    return SourceElement(index)


#: op -> the element of the first source that is the result's element at an index
STEP: dict[Op, Callable[[IndexArithmetic, UOp, Index], SourceElement]] = {
    Op.PERMUTE: _index_through_permute,
    Op.FLIP: _index_through_flip,
    Op.RESHAPE: _index_through_reshape,
    Op.EXPAND: _index_through_expand,
    Op.PAD: _index_through_pad,
    Op.SHRINK: _index_through_shrink,
    Op.REPLICATED: _index_through_replicated,
    Op.AFTER: _index_through_after,
}
