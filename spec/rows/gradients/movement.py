"""Gradients of movement ops: each moves the cotangent back.

The rules move elements of any dtype, so that `memory` can also move a mask back through a chain of views.
"""

from __future__ import annotations

from uops.spec.errors import SpecValueError
from uops.spec.ir import build as b
from uops.spec.ir.derive.shape import shape_operand_dims
from uops.spec.ir.node import Dim, UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.sizes import provably_at_most
from uops.spec.rows.compositions import arange, row_number_dtype
from uops.spec.rows.gradients.base import Gradient, make_gradient_summing_broadcasts, require_constant_extents, sum_axes


def _undo_permute(u: UOp, g: UOp) -> tuple[UOp]:
    order = u.arg.order
    return (b.permute(g, [order.index(k) for k in range(len(order))]),)


def _pad_back(u: UOp, g: UOp) -> tuple[UOp]:
    return (b.pad(g, shape_operand_dims(u.offsets), u.operand.shape),)


def _shrink_back(u: UOp, g: UOp) -> tuple[UOp]:
    return (b.shrink(g, shape_operand_dims(u.offsets), u.operand.shape),)


def _scatter_indexed_axes(u: UOp, g: UOp, combine: Op = Op.ADD) -> tuple[UOp]:
    """Add each element of `g` to the one that it was read from, one indexed axis after the other, the last one first."""
    axis = sum(len(position.shape) for position in u.positions)
    for k in reversed(range(len(u.positions))):
        position = u.positions[k]
        if position.shape:
            axis -= 1
        else:
            g = b.reshape(g, (*g.shape[:axis], 1, *g.shape[axis:]))
        g = _scatter_along_axis(g, axis, u.operand.shape[k], position, combine)
    return (g,)


def _scatter_along_axis(g: UOp, axis: int, extent: Dim, position: UOp, combine: Op) -> UOp:
    """Return zeros of `extent` on `axis` to which slice i of `g` is added at position i, as scatter_add does (R50).

    With Op.MAX, the greatest of the slices is taken instead. A position out of range adds nothing.
    Raises SpecValueError if an extent is symbolic and the position no constant in range.
    """
    before, after = g.shape[:axis], g.shape[axis + 1 :]
    if position.op is Op.CONST and 0 <= position.arg.value and provably_at_most(position.arg.value + 1, extent):
        return b.pad(g, [position.arg.value if k == axis else 0 for k in range(len(g.shape))], (*before, extent, *after))
    n, d = require_constant_extents((extent, g.shape[axis]), "Index")
    row = row_number_dtype(position.dtype)
    is_selected = b.eq(b.reshape(arange(n, row), (n, 1)), b.reshape(b.cast(position, row), (1, d)))
    is_selected = b.reshape(is_selected, (n, d, *[1] * len(after)))
    spread = b.reshape(g, (*before, 1, d, *after))
    selected = b.where(is_selected, spread, b.const(0, g.dtype))
    combined = sum_axes(selected, (axis + 1,)) if combine is Op.ADD else b.reduce(selected, combine, (axis + 1,))
    return b.reshape(combined, (*before, n, *after))


def _index_each_element(u: UOp, g: UOp) -> tuple[UOp, ...]:
    return tuple(b.at(g, k) for k in range(len(u.elements)))


def _give_to_first_replica(u: UOp, g: UOp) -> tuple[UOp]:
    """Give `g` to the first of the elements that are stated to be equal, so that a sum over them is g."""
    return (b.pad(g, [0] * len(g.shape), u.operand.shape),)


def _pad_slice_op_cotangent(u: UOp, g: UOp) -> tuple[UOp | None]:
    """Pad a Slice's cotangent. Raises SpecValueError if the Slice reads the bytes as another dtype."""
    if u.dtype is not u.operand.dtype:
        raise SpecValueError(f"a Slice of {u.operand.dtype} as {u.dtype} has no gradient: it reinterprets bits")
    return (b.pad(g, shape_operand_dims(UOp(Op.STACK, (u.offset,))), u.operand.shape),)


# fmt: off
GRADIENTS: dict[Op, Gradient] = {
    Op.PERMUTE:    make_gradient_summing_broadcasts("Permute by the inverse order", _undo_permute),
    Op.FLIP:       make_gradient_summing_broadcasts("the same Flip", lambda u, g: (b.flip(g, u.arg.flags),)),
    Op.RESHAPE:    make_gradient_summing_broadcasts("Reshape to the old shape", lambda u, g: (b.reshape(g, u.operand.shape),)),
    Op.EXPAND:     make_gradient_summing_broadcasts("the sum over the repeated axes", lambda u, g: (g,)),
    Op.PAD:        make_gradient_summing_broadcasts("Shrink at the same offset", _shrink_back),
    Op.SHRINK:     make_gradient_summing_broadcasts("Pad at the same offset", _pad_back),
    Op.INDEX:      make_gradient_summing_broadcasts("scatter_add at the same positions", _scatter_indexed_axes),
    Op.STACK:      make_gradient_summing_broadcasts("Index k for element k", _index_each_element),
    Op.REPLICATED: make_gradient_summing_broadcasts("g for the first of the equal elements, 0 for the others",
                                                       _give_to_first_replica),
    Op.SLICE:      make_gradient_summing_broadcasts("Pad at the same offset, if the dtype is the same", _pad_slice_op_cotangent),
}
# fmt: on


def scatter_back_through_one_view(view: UOp, elements: UOp, combine: Op = Op.ADD) -> UOp:
    """Return the elements of `elements`, a value of the shape of a view, at their places in the viewed operand, and 0 elsewhere.

    Elements of one place are added up; with Op.MAX the greatest is taken. Raises SpecValueError for a view that reads other bits.
    """
    if view.op is Op.INDEX:
        return _scatter_indexed_axes(view, elements, combine)[0]
    gradient = GRADIENTS.get(view.op)
    if gradient is None or gradient.rule is None:
        raise SpecValueError(f"memory that is written through {view.op.name} has no gradient: it is no view that moves elements")
    ((_, back),) = gradient.rule(view, elements, {view.src[0]})  # the viewed operand
    assert isinstance(back, UOp)
    return back
