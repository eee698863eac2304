"""Axes of loops: alignment of values for broadcasting, and sums, products and maxima over axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from uops.interp.kernel.vector_machine.limits import check_array_size
from uops.interp.kernel.vector_machine.memory import expand_loop_axes
from uops.interp.ops.reduce import FOLDS
from uops.interp.tensor.storage import Array
from uops.spec.ir.node import UOp

#: Where products have at least this many times as many elements as their factors, a matrix product sums them without making them.
_GROWTH = 4


def align_to_loop_depth_and_own_rank(a: Array, present_own_rank: int, target_own_rank: int, loop_depth: int) -> Array:
    """Return `a`, which has `present_own_rank` axes of its own, such that it broadcasts with values of rank `target_own_rank`
    inside of `loop_depth` axes."""
    lead = a.ndim - present_own_rank
    if not lead or (lead == loop_depth and present_own_rank == target_own_rank):
        return a
    return a.reshape(a.shape[:lead] + (1,) * (loop_depth - lead + target_own_rank - present_own_rank) + a.shape[lead:])


def fold_loop_axes(u: UOp, x: Array, extents: Sequence[int], first_axis: int) -> Array:
    """Return the Reduce `u` of `x` over the loop axes from `first_axis` on, given the extents of all loop axes."""
    own_rank = len(u.shape)
    depth = len(extents)
    x = expand_loop_axes(x, own_rank, depth)
    axes = tuple(range(first_axis, depth))
    if not axes:
        return x
    expanded_shape = x.shape[:first_axis] + tuple(extents[first_axis:]) + x.shape[depth:]
    if x.shape != expanded_shape:
        check_array_size(math.prod(expanded_shape))
        x = np.broadcast_to(x, expanded_shape)
    out = np.asarray(FOLDS[u.arg.op][u.dtype](x, axes))
    return out.reshape(x.shape[:first_axis] + x.shape[depth:])


#: The order of axes and the shape that make a factor a stack of matrices.
MatrixForm = tuple[tuple[int, ...], tuple[int, ...]]


class MatrixProduct(NamedTuple):
    """A sum of products as a product of matrices: the forms of both factors, the shape of the product, and how to transpose it."""

    lhs_form: MatrixForm
    rhs_form: MatrixForm
    product_shape: tuple[int, ...]
    transposed_axes: tuple[int, ...] | None


def to_matrix(x: Array, order: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """Return `x` in float64 with its axes in this order and this shape."""
    return x.transpose(order).astype(np.float64, order="C").reshape(shape)


@lru_cache(maxsize=1024)
def plan_matrix_product_if_worthwhile(
    lhs_shape: tuple[int, ...], rhs_shape: tuple[int, ...], extents: tuple[int, ...], first_sum_axis: int
) -> MatrixProduct | None:
    """Return how factors of these shapes become matrices, and their product the sum; None where the products are better made."""
    sizes = tuple([max(p, q) for p, q in zip(lhs_shape, rhs_shape)])
    if (
        lhs_shape[first_sum_axis:] != rhs_shape[first_sum_axis:]
        or lhs_shape[first_sum_axis:] != extents[first_sum_axis:]
        or math.prod(sizes) < _GROWTH * (math.prod(lhs_shape) + math.prod(rhs_shape))
    ):
        return None
    batch = [k for k in range(first_sum_axis) if lhs_shape[k] > 1 and rhs_shape[k] > 1]
    rows = [k for k in range(first_sum_axis) if lhs_shape[k] > 1 and rhs_shape[k] == 1]
    columns = [k for k in range(first_sum_axis) if lhs_shape[k] == 1]
    inner = list(range(first_sum_axis, len(lhs_shape)))
    order = batch + rows + columns
    count, terms = [sizes[k] for k in batch], math.prod(extents[first_sum_axis:])
    left = (*order, *inner), (*count, math.prod(lhs_shape[k] for k in rows), terms)
    right = (*batch, *inner, *rows, *columns), (*count, terms, math.prod(rhs_shape[k] for k in columns))
    back = None if order == sorted(order) else tuple([order.index(k) for k in range(first_sum_axis)])
    return MatrixProduct(left, right, tuple([sizes[k] for k in order]), back)
