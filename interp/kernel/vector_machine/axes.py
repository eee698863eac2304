"""Axes of loops: values made to broadcast with them, and sums, products and maxima over them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from uops.interp.kernel.vector_machine.limits import within
from uops.interp.kernel.vector_machine.memory import full
from uops.interp.ops.reduce import FOLDS
from uops.interp.tensor.storage import Array
from uops.spec.ir.node import UOp

#: Products are summed without being made where they are at least this many times larger than their factors.
_GROWTH = 4


def align_axes(a: Array, own: int, rank: int, depth: int) -> Array:
    """`a`, whose own shape has `own` axes, so that it broadcasts with values of rank `rank` inside of `depth` axes."""
    lead = a.ndim - own
    if not lead or (lead == depth and own == rank):
        return a
    return a.reshape(a.shape[:lead] + (1,) * (depth - lead + rank - own) + a.shape[lead:])


def fold_axes(u: UOp, x: Array, extents: Sequence[int], base: int) -> Array:
    """The Reduce `u` of x, which stands inside of axes of these extents, over those from `base` on."""
    own = len(u.shape)
    depth = len(extents)
    x = full(x, own, depth)
    axes = tuple(range(base, depth))
    if not axes:
        return x
    wanted = x.shape[:base] + tuple(extents[base:]) + x.shape[depth:]
    if x.shape != wanted:
        within(math.prod(wanted))
        x = np.broadcast_to(x, wanted)
    out = np.asarray(FOLDS[u.arg.op][u.dtype](x, axes))
    return out.reshape(x.shape[:base] + x.shape[depth:])


Matrix = tuple[tuple[int, ...], tuple[int, ...]]


def matrix(x: Array, order: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    return x.transpose(order).astype(np.float64, order="C").reshape(shape)


@lru_cache(maxsize=1024)
def recipe_of(
    a: tuple[int, ...], b: tuple[int, ...], extents: tuple[int, ...], base: int
) -> tuple[Matrix, Matrix, tuple[int, ...], tuple[int, ...] | None] | None:
    """How factors of these shapes become matrices, and their product the sum; None where the products are as well made."""
    sizes = tuple([max(p, q) for p, q in zip(a, b)])
    if a[base:] != b[base:] or a[base:] != extents[base:] or math.prod(sizes) < _GROWTH * (math.prod(a) + math.prod(b)):
        return None
    both = [k for k in range(base) if a[k] > 1 and b[k] > 1]
    rows = [k for k in range(base) if a[k] > 1 and b[k] == 1]
    columns = [k for k in range(base) if a[k] == 1]
    inner = list(range(base, len(a)))
    order = both + rows + columns
    count, terms = [sizes[k] for k in both], math.prod(extents[base:])
    left = (*order, *inner), (*count, math.prod(a[k] for k in rows), terms)
    right = (*both, *inner, *rows, *columns), (*count, terms, math.prod(b[k] for k in columns))
    back = None if order == sorted(order) else tuple([order.index(k) for k in range(base)])
    return left, right, tuple([sizes[k] for k in order]), back
