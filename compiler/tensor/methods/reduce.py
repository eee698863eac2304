"""Reductions, prefix sums and matrix products.

`sum`, `prod`, `cumsum` and `matmul` accumulate in the dtype that the table `ACCUMULATE` gives (R42: dtype of a Reduce). Reduced
axes are dropped unless `keepdim`. A Reduce over no elements is its identity (R32).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

from uops.compiler.tensor.dtypes import DTypeLike, choose_accumulation_dtypes, promote, to_float_dtype
from uops.compiler.tensor.faults import fault, require_integer_of_at_most_64_bits
from uops.compiler.tensor.methods.elementwise import ElementwiseMethods
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.rows.compositions import arange
from uops.spec.rows.gradients.base import register_gradient

#: Tag of the gradient of prefix sums.
_PREFIX_SUMS = "prefix sums"
Axis = int | tuple[int, ...] | list[int] | None


class ReductionMethods(ElementwiseMethods):
    """Sums, extrema, statistics, softmax, prefix sums, matrix products."""

    __slots__ = ()

    def _reduce(self, op: Op, axes: tuple[int, ...], keepdim: bool) -> Self:
        """Reduce axes by an op in this dtype."""
        if not axes:
            return self.of(self.uop)
        out = self.of(B.reduce(self.uop, op, axes))
        return out if keepdim else out.reshape(tuple(n for k, n in enumerate(self.shape) if k not in axes))

    def sum(self, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Self:
        """Return the sum over axes, all of them by default."""
        inner, outer = choose_accumulation_dtypes(self.dtype, dtype)
        return self.cast(inner)._reduce(Op.ADD, self._normalize_axes("sum", axis), keepdim).cast(outer)

    def prod(self, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Self:
        """Return the product over axes, all of them by default."""
        inner, outer = choose_accumulation_dtypes(self.dtype, dtype)
        return self.cast(inner)._reduce(Op.MUL, self._normalize_axes("prod", axis), keepdim).cast(outer)

    def max(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Return the greatest element over axes, NaN if an element is NaN (R11: Max on floats)."""
        return self._reduce(Op.MAX, self._normalize_axes("max", axis), keepdim)

    def min(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Return the least element over axes, NaN if an element is NaN."""
        return self._reverse_order()._reduce(Op.MAX, self._normalize_axes("min", axis), keepdim)._reverse_order()

    def any(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Return True where an element over the axes is not zero."""
        return self.cast(dt.bool_).max(axis, keepdim)

    def all(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Return True where no element over the axes is zero."""
        return self.cast(dt.bool_).min(axis, keepdim)

    def mean(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Return the mean over axes, divided before it is rounded to this dtype; of integers as float32."""
        result_dtype = to_float_dtype(self.dtype)
        inner, _ = choose_accumulation_dtypes(result_dtype, None)
        axes = self._normalize_axes("mean", axis)
        return (self.cast(inner)._reduce(Op.ADD, axes, keepdim) / float(self._count(axes))).cast(result_dtype)

    def _count(self, axes: tuple[int, ...]) -> int:
        """Return the number of elements over axes."""
        return math.prod(self.shape[k] for k in axes)

    def var(self, axis: Axis = None, keepdim: bool = False, correction: int = 1) -> Self:
        """Return the sum of the squares of x - mean(x) over the number of elements less `correction`."""
        result_dtype = to_float_dtype(self.dtype)
        inner, _ = choose_accumulation_dtypes(result_dtype, None)
        axes, correction = self._normalize_axes("var", axis), require_integer_of_at_most_64_bits(correction)
        t = self.cast(inner)
        squares = (t - t.mean(axes, keepdim=True)).square()
        return (squares._reduce(Op.ADD, axes, keepdim) / float(max(0, self._count(axes) - correction))).cast(result_dtype)

    def std(self, axis: Axis = None, keepdim: bool = False, correction: int = 1) -> Self:
        """Return the square root of `var`."""
        return self.var(axis, keepdim, correction).sqrt()

    def argmax(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """Return the int32 position of the first greatest element, or of the first NaN if there is one.

        It is n - max(n - i where x_i is greatest).
        """
        if axis is None:
            out = self.flatten().argmax(0)
            return out.reshape((1,) * self.ndim) if keepdim else out
        k = self._normalize_axis("argmax", axis)
        n = self.shape[k]
        if n == 0:
            raise fault("argmax", None, f"expected at least one element, got axis {axis} of shape {self.shape}")
        greatest = self.eq(self.max(k, keepdim=True))
        if self.dtype.is_float:
            greatest = greatest | self.isnan()
        left = self.of(B.sub(n, arange(n))).reshape((n,) + (1,) * (self.ndim - k - 1))
        return n - greatest.where(left, 0).max(k, keepdim)

    def argmin(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """Return the int32 position of the first least element, or of the first NaN if there is one."""
        return self._reverse_order().argmax(axis, keepdim)

    # Exponentials

    def _subtract_max_in_accumulator_dtype(self, method: str, axis: int) -> Self:
        """Return x - max(x) in the accumulation dtype, so that no exponential overflows."""
        t = self.cast(choose_accumulation_dtypes(to_float_dtype(self.dtype), None).accumulation)
        k = self._normalize_axis_unless_scalar(method, axis)
        return t - t if k is None else t - t.max(k, keepdim=True).detach()

    def softmax(self, axis: int = -1) -> Self:
        """Return e * (1 / sum(e)), e = exp(x - max(x)).

        Narrow floats are computed in float32 and rounded once. There is one division per sum, since a division costs as much as
        the exponential.
        """
        e = self._subtract_max_in_accumulator_dtype("softmax", axis).exp()
        return (e * e.sum(axis if self.ndim else None, keepdim=True).reciprocal()).cast(to_float_dtype(self.dtype))

    def log_softmax(self, axis: int = -1) -> Self:
        """Return s - log(sum(exp(s))), s = x - max(x)."""
        s = self._subtract_max_in_accumulator_dtype("log_softmax", axis)
        return (s - s.exp().sum(axis if self.ndim else None, keepdim=True).log()).cast(to_float_dtype(self.dtype))

    def logsumexp(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Return m + log(sum(exp(x - m))), m = max(x), or 0 where that is infinite."""
        result_dtype = to_float_dtype(self.dtype)
        t = self.cast(choose_accumulation_dtypes(result_dtype, None).accumulation)
        m = t.max(axis, keepdim=True)
        m = m.isinf().where(0, m).detach()  # derivatives through both of its uses cancel
        out = m + (t - m).exp().sum(axis, keepdim=True).log()
        return (out if keepdim else out.reshape(self.max(axis).shape)).cast(result_dtype)

    # Prefix sums

    def cumsum(self, axis: int = 0) -> Self:
        """Return inclusive prefix sums along an axis: the specification's prefix_sum over each row."""
        inner, outer = choose_accumulation_dtypes(self.dtype, None)
        t = self.cast(inner)
        k = self._normalize_axis_unless_scalar("cumsum", axis)
        if k is not None and self.numel():
            t = t.transpose(k, -1)._sum_prefixes_along_last_axis().transpose(k, -1)
        return self.of(t.uop).cast(outer)

    def _sum_prefixes_along_last_axis(self) -> Self:
        """Return the prefix sums of the last axis. Their gradient is the sums from each element on, in one pass as well."""
        if not self.dtype.is_float:
            return self._build_prefix_windows().sum(-1)
        return self._call_with_gradient(_PREFIX_SUMS, lambda t: t._build_prefix_windows().sum(-1))

    def _build_prefix_windows(self) -> Self:
        """Return (..., n, n), in which row i holds the elements up to i behind zeros.

        It pads, repeats and trims, as the listing of prefix_sum does.
        """
        *outer, n = self.shape
        unchanged = [None] * len(outer)
        t = self.pad([*unchanged, (n - 1, 0)]).reshape(*outer, 1, 2 * n - 1).expand(*outer, n + 1, 2 * n - 1)
        t = t.reshape(*outer, (n + 1) * (2 * n - 1)).shrink([*unchanged, (0, 2 * n * n)])
        return t.reshape(*outer, n, 2 * n).shrink([*unchanged, None, (0, n)])

    # Matrices

    def matmul(self, other: Any, reverse: bool = False, dtype: DTypeLike | None = None) -> Self:
        """Return the matrix product: sum over k of a[..., i, k] * b[..., k, j].

        Batches are broadcast; a vector is a row or a column. Products and sums are in the accumulation dtype of the promoted
        operands. Spec: gemm.
        """
        a, b = self, self.of(self._convert_operand(other))
        if reverse:
            a, b = b, a
        if not a.ndim or not b.ndim or a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
            raise fault("matmul", "MUL.C3", f"{a.shape} @ {b.shape}: the inner extents differ")
        inner, outer = choose_accumulation_dtypes(promote(a.dtype, b.dtype), dtype)
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
        """Return (..., m, k, 1) * (..., 1, k, n), summed over k."""
        product = self.cast(inner).unsqueeze(-1).mul(other.cast(inner).unsqueeze(-3))
        return product._reduce(Op.ADD, (product.ndim - 2,), keepdim=False)

    dot = matmul

    def __matmul__(self, other: Any) -> Self:
        return self.matmul(other)

    def __rmatmul__(self, other: Any) -> Self:
        return self.matmul(other, reverse=True)


def _sum_suffixes(u: UOp, g: Mapping[int, UOp]) -> Mapping[int, UOp]:
    """Differentiate prefix sums: the sums of the cotangent from each element on."""
    backwards = [*[False] * (len(g[0].shape) - 1), True]
    return {0: B.flip(ReductionMethods.of(B.flip(g[0], backwards))._sum_prefixes_along_last_axis().uop, backwards)}


register_gradient(_PREFIX_SUMS, _sum_suffixes)
