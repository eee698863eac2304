"""Reductions, prefix sums and products of matrices.

`sum`, `prod`, `cumsum` and `matmul` accumulate in the dtype of the table `ACCUMULATE` (R42); the reduced axes are dropped unless
`keepdim`. A Reduce over no elements gives its identity (R32).
"""

from __future__ import annotations

import math
from typing import Any, Self

from uops.compiler.tensor.dtypes import DTypeLike, accumulator, floating, promote
from uops.compiler.tensor.faults import fault, whole
from uops.compiler.tensor.methods.elementwise import Elementwise
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import Op
from uops.spec.rows.compositions import arange

Axis = int | tuple[int, ...] | list[int] | None


class Reduction(Elementwise):
    """Sums, extrema, statistics, softmax, prefix sums, gemm."""

    __slots__ = ()

    def _reduce(self, op: Op, axes: tuple[int, ...], keepdim: bool) -> Self:
        if not axes:
            return self.of(self.uop)
        out = self.of(B.reduce(self.uop, op, axes))
        return out if keepdim else out.reshape(tuple(n for k, n in enumerate(self.shape) if k not in axes))

    def sum(self, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Self:
        inner, outer = accumulator(self.dtype, dtype)
        return self.cast(inner)._reduce(Op.ADD, self._axes("sum", axis), keepdim).cast(outer)

    def prod(self, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Self:
        inner, outer = accumulator(self.dtype, dtype)
        return self.cast(inner)._reduce(Op.MUL, self._axes("prod", axis), keepdim).cast(outer)

    def max(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """NaN where an element is (R11)."""
        return self._reduce(Op.MAX, self._axes("max", axis), keepdim)

    def min(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """As `minimum`."""
        return self._reversed()._reduce(Op.MAX, self._axes("min", axis), keepdim)._reversed()

    def any(self, axis: Axis = None, keepdim: bool = False) -> Self:
        return self.cast(dt.bool_).max(axis, keepdim)

    def all(self, axis: Axis = None, keepdim: bool = False) -> Self:
        return self.cast(dt.bool_).min(axis, keepdim)

    def mean(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """The sum over the number of elements, divided before the result is rounded to its dtype; of integers float32."""
        own = floating(self.dtype)
        inner, _ = accumulator(own, None)
        axes = self._axes("mean", axis)
        return (self.cast(inner)._reduce(Op.ADD, axes, keepdim) / float(self._count(axes))).cast(own)

    def _count(self, axes: tuple[int, ...]) -> int:
        return math.prod(self.shape[k] for k in axes)

    def var(self, axis: Axis = None, keepdim: bool = False, correction: int = 1) -> Self:
        """Sum of the squares of x - mean(x), over the number of elements less `correction`."""
        own = floating(self.dtype)
        inner, _ = accumulator(own, None)
        axes, correction = self._axes("var", axis), whole(correction)
        t = self.cast(inner)
        squares = (t - t.mean(axes, keepdim=True)).square()
        return (squares._reduce(Op.ADD, axes, keepdim) / float(max(0, self._count(axes) - correction))).cast(own)

    def std(self, axis: Axis = None, keepdim: bool = False, correction: int = 1) -> Self:
        """The square root of `var`."""
        return self.var(axis, keepdim, correction).sqrt()

    def argmax(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """int32 position of the first greatest element; of the first NaN, if there is one. n - max(n - i where x_i is greatest)."""
        if axis is None:
            out = self.flatten().argmax(0)
            return out.reshape((1,) * self.ndim) if keepdim else out
        k = self._axis("argmax", axis)
        n = self.shape[k]
        if n == 0:
            raise fault("argmax", None, f"axis {axis} of shape {self.shape} is empty")
        greatest = self.eq(self.max(k, keepdim=True))
        if self.dtype.is_float:
            greatest = greatest | self.isnan()
        left = self.of(B.sub(n, arange(n))).reshape((n,) + (1,) * (self.ndim - k - 1))
        return n - greatest.where(left, 0).max(k, keepdim)

    def argmin(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """int32 position of the first least element; of the first NaN, if there is one."""
        return self._reversed().argmax(axis, keepdim)

    # Exponentials

    def _shifted(self, method: str, axis: int) -> Self:
        """x - max(x) in the accumulation dtype, so that no exponential overflows."""
        t = self.cast(accumulator(floating(self.dtype), None)[0])
        k = self._vector_axis(method, axis)
        return t - t if k is None else t - t.max(k, keepdim=True)

    def softmax(self, axis: int = -1) -> Self:
        """e * (1 / sum(e)), e = exp(x - max(x)); narrow floats in float32, rounded once at the end. One division per sum: it costs
        as much as the exponential."""
        e = self._shifted("softmax", axis).exp()
        return (e * e.sum(axis if self.ndim else None, keepdim=True).reciprocal()).cast(floating(self.dtype))

    def log_softmax(self, axis: int = -1) -> Self:
        """s - log(sum(exp(s))), s = x - max(x)."""
        s = self._shifted("log_softmax", axis)
        return (s - s.exp().sum(axis if self.ndim else None, keepdim=True).log()).cast(floating(self.dtype))

    def logsumexp(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """m + log(sum(exp(x - m))), m = max(x), or 0 where that is infinite."""
        own = floating(self.dtype)
        t = self.cast(accumulator(own, None)[0])
        m = t.max(axis, keepdim=True)
        m = m.isinf().where(0, m)
        out = m + (t - m).exp().sum(axis, keepdim=True).log()
        return (out if keepdim else out.reshape(self.max(axis).shape)).cast(own)

    # Prefix sums

    def cumsum(self, axis: int = 0) -> Self:
        """Inclusive prefix sums along an axis: the specification's prefix_sum over each row, or its identity on an empty one."""
        inner, outer = accumulator(self.dtype, None)
        t = self.cast(inner)
        k = self._vector_axis("cumsum", axis)
        if k is not None and self.numel():
            t = t.transpose(k, -1)._windows().sum(-1).transpose(k, -1)
        return self.of(t.uop).cast(outer)

    def _windows(self) -> Self:
        """(..., n, n): row i holds the elements up to i, behind zeros. Pad, repeat and trim, as in the listing of prefix_sum."""
        *outer, n = self.shape
        kept = [None] * len(outer)
        t = self.pad([*kept, (n - 1, 0)]).reshape(*outer, 1, 2 * n - 1).expand(*outer, n + 1, 2 * n - 1)
        t = t.reshape(*outer, (n + 1) * (2 * n - 1)).shrink([*kept, (0, 2 * n * n)])
        return t.reshape(*outer, n, 2 * n).shrink([*kept, None, (0, n)])

    # Matrices

    def matmul(self, other: Any, reverse: bool = False, dtype: DTypeLike | None = None) -> Self:
        """The product of matrices: sum over k of a[..., i, k] * b[..., k, j], with batches broadcast; vectors as a row or a column.

        Products and sums are in the accumulation dtype of the promoted operands. Spec: gemm.
        """
        a, b = self, self.of(self._operand(other))
        if reverse:
            a, b = b, a
        if not a.ndim or not b.ndim or a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
            raise fault("matmul", "MUL.C3", f"{a.shape} @ {b.shape}: the inner extents differ")
        inner, outer = accumulator(promote(a.dtype, b.dtype), dtype)
        x = a if a.ndim > 1 else a.unsqueeze(0)
        y = b if b.ndim > 1 else b.unsqueeze(1)
        rows, columns = x.shape[:-1], y.shape[-1]
        if y.ndim == 2 and x.ndim > 2:
            out = x.flatten(0, -2)._gemm(y, inner).reshape(*rows, columns)
        else:
            out = x._gemm(y, inner)
        out = out if a.ndim > 1 else out.squeeze(-2)
        return (out if b.ndim > 1 else out.squeeze(-1)).cast(outer)

    def _gemm(self, other: Self, inner: dt.DType) -> Self:
        """(..., m, k, 1) * (..., 1, k, n), summed over k."""
        product = self.cast(inner).unsqueeze(-1).mul(other.cast(inner).unsqueeze(-3))
        return product._reduce(Op.ADD, (product.ndim - 2,), keepdim=False)

    dot = matmul

    def __matmul__(self, other: Any) -> Self:
        return self.matmul(other)

    def __rmatmul__(self, other: Any) -> Self:
        return self.matmul(other, reverse=True)
