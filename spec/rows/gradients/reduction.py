"""Gradients of Reduce over axes. A Reduce over Ranges stands in kernels only, and has none."""

from __future__ import annotations

from uops.spec.errors import SpecValueError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.rows.compositions import arange
from uops.spec.rows.gradients.base import Gradient, make_gradient_summing_broadcasts, require_constant_extents


def _differentiate_reduce(u: UOp, g: UOp) -> tuple[UOp]:
    if u.ranges:
        raise SpecValueError("a Reduce over Ranges has no gradient: differentiate the TENSOR graph")
    return (_BY_OP[u.arg.op](u, b.expand(g, u.operand.shape)),)


def _share_among_greatest(u: UOp, g: UOp) -> UOp:
    """Share `g` equally among the elements that equal the maximum (R78, gradients); nothing where that is NaN."""
    wide = g.dtype.wide
    is_greatest = b.eq(u.operand, u)
    count = b.reduce(b.cast(is_greatest, dt.int32), Op.ADD, u.arg.axes)
    share = b.cast(b.div(b.cast(g, wide), b.cast(count, wide)), g.dtype)
    return b.where(is_greatest, share, 0.0)


def _multiply_by_others(u: UOp, g: UOp) -> UOp:
    """Multiply `g` by the product of all other elements, without a division, which zeros and overflow would spoil."""
    axes = u.arg.axes
    shape = require_constant_extents(u.operand.shape, "a Reduce by Mul")
    kept = [k for k in range(len(shape)) if k not in axes]
    order = (*kept, *axes)
    rows = b.reshape(b.permute(b.cast(u.operand, u.dtype.wide), order), (*[shape[k] for k in kept], -1 if 0 not in shape else 0))
    backwards = [*[False] * len(kept), True]
    behind = b.flip(_multiply_elements_before(b.flip(rows, backwards)), backwards)
    others = b.reshape(b.mul(_multiply_elements_before(rows), behind), [shape[k] for k in order])
    others = b.permute(others, [order.index(k) for k in range(len(order))])
    return b.cast(b.mul(b.cast(g, u.dtype.wide), others), g.dtype)


def _multiply_elements_before(x: UOp) -> UOp:
    """Return at each position of the last axis the product of the elements before it, by steps that double the distance."""
    n, distance = x.shape[-1], 1
    assert isinstance(n, int)
    product = _shift_in_ones(x, 1)
    while distance < n:
        product, distance = b.mul(product, _shift_in_ones(product, distance)), 2 * distance
    return product


def _shift_in_ones(x: UOp, distance: int) -> UOp:
    """Shift the last axis by `distance`; ones come in."""
    *outer, n = x.shape
    zeros, k = [0] * len(outer), min(distance, n)
    shifted = b.pad(b.shrink(x, (*zeros, 0), (*outer, n - k)), (*zeros, k), x.shape)
    return b.where(b.lt(arange(n), k), 1.0, shifted)


_BY_OP = {Op.ADD: lambda u, g: g, Op.MAX: _share_among_greatest, Op.MUL: _multiply_by_others}

GRADIENTS: dict[Op, Gradient] = {
    Op.REDUCE: make_gradient_summing_broadcasts(
        "Add: g for each element; Max: g shared equally among the greatest (R78); Mul: g times the product of the others",
        _differentiate_reduce,
    )
}
