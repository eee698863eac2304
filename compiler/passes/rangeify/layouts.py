"""Storage layouts: the order in which the elements of a realised value lie in memory.

A value whose only use is a chain of movement ops is stored in the order of the chain's last view, so that its readers read
along memory. The heads of an attention, for example, become rows. `map_stored_views_to_layouts` finds these chains. A layout
names the last view, in whose row-major order the value is stored, and the view whose axes are the loops of its kernel. That is
the view with the most axes, since every other index is a sum of those. The views keep every element: Reshape, Permute and Flip.
The last axis must stay last, because a kernel's lanes lie along it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from uops.compiler.ir.views import STEP, Index, IndexArithmetic, reshape_index
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ALU, Op

#: Movement ops whose result has every element of the operand exactly once.
BIJECTIVE = frozenset({Op.RESHAPE, Op.PERMUTE, Op.FLIP})


class StorageLayout(NamedTuple):
    """The layout of `value`, which is stored in the order of the elements of the last view.

    Each node of `chain` is a view of the one before, the first one of `value`. `loops` is the node of (value, *chain) whose axes
    are the loops of the kernel.
    """

    value: UOp
    chain: tuple[UOp, ...]
    loops: UOp

    def map_loop_index_to_value(self, indexing: IndexArithmetic, loop_index: Index) -> Index:
        """Return the index in `value` of the element `loop_index` of `loops`."""
        if self.loops is not self.value:
            for v in reversed(self.chain[: self.chain.index(self.loops) + 1]):
                loop_index = STEP[v.op](indexing, v, loop_index).coords
        return loop_index

    def map_loop_index_to_stored_view(self, indexing: IndexArithmetic, loop_index: Index) -> Index:
        """Return the index in the last view of the element `loop_index` of `loops`."""
        start = 0 if self.loops is self.value else self.chain.index(self.loops) + 1
        for v in self.chain[start:]:
            loop_index = _map_operand_index_to_view(indexing, v, loop_index)
        return loop_index


def _map_operand_index_to_view(indexing: IndexArithmetic, view: UOp, index: Index) -> Index:
    """Return the index in a view of the element `index` of its operand."""
    if view.op is Op.PERMUTE:
        return tuple(index[k] for k in view.arg.order)
    if view.op is Op.FLIP:
        return STEP[Op.FLIP](indexing, view, index).coords
    return reshape_index(indexing, view.operand.shape, view.shape, index)


def map_stored_views_to_layouts(order: Sequence[UOp], use_counts: Mapping[UOp, int], cheap: set[UOp]) -> dict[UOp, StorageLayout]:
    """Return the layouts of values of fixed extents that a single view uses, by the view that is stored."""
    chains: dict[UOp, tuple[UOp, tuple[UOp, ...]]] = {}
    layouts: dict[UOp, StorageLayout] = {}
    for v in order:
        if v.op not in BIJECTIVE or use_counts.get(v.operand, 0) != 1 or any(isinstance(n, UOp) for n in v.shape):
            continue
        s = v.operand
        value, before = chains.get(s, (s, ()))
        if not before and (s in cheap or (s.op not in ALU and s.op is not Op.REDUCE)):
            continue
        chain = (*before, v)
        if not walks_along_rows_of_value(value, chain):
            continue
        chains[v] = value, chain
        if before:
            layouts.pop(before[-1], None)
        if any(x.op is not Op.RESHAPE for x in chain):
            layouts[v] = StorageLayout(value, chain, max((value, *chain), key=lambda x: sum(n != 1 for n in x.shape)))
    return layouts


class MarkedAxis(NamedTuple):
    """An axis of more than one element; marked if it walks along the value's last axis."""

    extent: int
    is_marked: bool


def walks_along_rows_of_value(value: UOp, chain: Sequence[UOp]) -> bool:
    """Return True if the last axis of the last view of `chain` walks forward along rows of `value`, or parts of them.

    A row lies along the last axis of `value`. Its parts may be apart in the view, and in another order.
    """
    shape: list[int] = [n for n in value.shape if n != 1]
    if not shape:
        return False
    *outer, last = shape
    axes = [*(MarkedAxis(n, False) for n in outer), MarkedAxis(last, True)]
    for v in chain:
        tracked = _track_marked_axes_through_view(axes, v)
        if tracked is None:
            return False
        axes = tracked
    return bool(axes) and axes[-1].is_marked


def _track_marked_axes_through_view(axes: list[MarkedAxis], view: UOp) -> list[MarkedAxis] | None:
    """Follow marked axes through a view; None if it flips a marked one.

    `axes` are the axes of more than one element of the operand.
    """
    operand_shape = view.operand.shape
    if view.op is Op.RESHAPE:
        return _track_marked_axes_through_reshape(axes, [n for n in view.shape if n != 1])
    remaining = iter(axes)
    all_axes = [MarkedAxis(1, False) if n == 1 else next(remaining) for n in operand_shape]
    if view.op is Op.FLIP:
        return None if any(f and all_axes[k].is_marked for k, f in enumerate(view.arg.flags)) else axes
    return [all_axes[k] for k in view.arg.order if operand_shape[k] != 1]


def _track_marked_axes_through_reshape(axes: list[MarkedAxis], shape: Sequence[int]) -> list[MarkedAxis]:
    """Mark each axis of the result that has the stride of a marked axis of the operand."""
    mark_of_stride: dict[int, bool] = {}
    stride = 1
    for n, mark in reversed(axes):
        mark_of_stride[stride] = mark
        stride *= n
    tracked: list[MarkedAxis] = []
    stride = 1
    for n in reversed(shape):
        tracked.append(MarkedAxis(n, mark_of_stride.get(stride, False)))
        stride *= n
    return tracked[::-1]
