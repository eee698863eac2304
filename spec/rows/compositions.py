"""The specification's common compositions, as graphs.

Each follows its listing. Where the comment above a listing and its code differ, the comment is normative (R49, listing helpers;
R50, gather and scatter_add). A value that is not selected never contributes: a `Where` selects values, no `Mul` by a mask.
"""

from __future__ import annotations

from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp


def gemm(x: UOp, y: UOp) -> UOp:
    """Build the matrix product C[M, N] = A[M, K] @ B[K, N]."""
    (m, k), (_, n) = x.shape, y.shape
    return b.sum_and_drop_axis(b.mul(b.reshape(x, (m, k, 1)), b.reshape(y, (1, k, n))), 1)


def prefix_sum(t: UOp) -> UOp:
    """Build the inclusive prefix sum of a vector by a sliding window; that of an empty vector is empty (R49)."""
    (n,) = t.shape
    if n == 0:
        return t
    x = b.pad_by(t, (n - 1, 0))
    x = b.expand(b.reshape(x, (1, 2 * n - 1)), (n + 1, 2 * n - 1))
    x = b.shrink_to(b.reshape(x, ((n + 1) * (2 * n - 1),)), 2 * n * n)
    x = b.shrink_to(b.reshape(x, (n, 2 * n)), n, n)
    return b.sum_and_drop_axis(x, -1)


def arange(n: int, dtype: DType = dt.int32) -> UOp:
    """Build [0, 1, ..., n - 1], as the prefix sum of ones, minus one."""
    ones = b.expand(b.reshape(b.const(1, dtype), (1,)), (n,))
    return b.sub(prefix_sum(ones), 1)


def row_number_dtype(position: DType) -> DType:
    """Return the dtype in which row numbers are compared with positions: theirs, which loses none of them, or int32 if narrower."""
    return position if position is dt.index or position.bits >= dt.int32.bits else dt.int32


def _one_hot(k: int, idx: UOp) -> UOp:
    """Build a (k, D) mask that is true where idx[d] is the number of the row."""
    (d,) = idx.shape
    row = b.reshape(arange(k, row_number_dtype(idx.dtype)), (k, 1))
    return b.eq(row, b.reshape(idx, (1, d)))


def gather(t: UOp, idx: UOp) -> UOp:
    """Build out[i] = T[idx[i]] for a vector T; an index out of range gives 0 (R50, gather)."""
    (k,) = t.shape
    (d,) = idx.shape
    selected = b.where(_one_hot(k, idx), b.expand(b.reshape(t, (k, 1)), (k, d)), b.const(0, t.dtype))
    return b.sum_and_drop_axis(selected, 0)


def scatter_add(t: UOp, idx: UOp, val: UOp) -> UOp:
    """Build T[idx[i]] += val[i] for a vector T; an index out of range adds nothing (R50, scatter_add)."""
    (k,), (d,) = t.shape, idx.shape
    selected = b.where(_one_hot(k, idx), b.expand(b.reshape(val, (1, d)), (k, d)), b.const(0, t.dtype))
    return b.add(t, b.sum_and_drop_axis(selected, 1))


#: Name -> builder.
COMPOSITIONS = {f.__name__: f for f in (gemm, prefix_sum, arange, gather, scatter_add)}
