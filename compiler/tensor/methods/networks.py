"""Building blocks of networks: windows, convolution, pooling, normalization, attention. All are graphs of other methods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

from uops.compiler.tensor.dtypes import (
    DTypeLike,
    choose_accumulation_dtypes,
    pick_first_integer_dtype_holding,
    promote,
    to_float_dtype,
)
from uops.compiler.tensor.faults import fault, require_integer_of_at_most_64_bits
from uops.compiler.tensor.methods.reduce import ReductionMethods
from uops.spec.ir import dtypes as dt
from uops.spec.rows.compositions import arange

Sizes = int | Sequence[int]


def _normalize_spatial_sizes(value: Sizes, axis_count: int, method: str, argument_name: str) -> tuple[int, ...]:
    """Return one number per spatial axis."""
    sizes = (
        tuple(map(require_integer_of_at_most_64_bits, value))
        if isinstance(value, Sequence)
        else (require_integer_of_at_most_64_bits(value),) * axis_count
    )
    if len(sizes) != axis_count:
        raise fault(method, None, f"expected {axis_count} numbers, one per spatial axis, got {argument_name} {sizes}")
    return sizes


class NetworkMethods(ReductionMethods):
    """Layers as functions, with weights as arguments."""

    __slots__ = ()

    # Windows

    def _extract_windows(self, method: str, kernel: Sequence[int], stride: Sizes, dilation: Sizes) -> Self:
        """Return the windows of the last n axes as (..., o1, ..., on, k1, ..., kn).

        Each output extent is o = (i - d * (k - 1) - 1) // s + 1.
        """
        n = len(kernel)
        strides, dilations = (
            _normalize_spatial_sizes(stride, n, method, "stride"),
            _normalize_spatial_sizes(dilation, n, method, "dilation"),
        )
        if any(k < 1 or s < 1 or d < 1 for k, s, d in zip(kernel, strides, dilations)):
            raise fault(
                method,
                None,
                f"expected numbers of at least 1, got kernel {tuple(kernel)}, stride {strides} and dilation {dilations}",
            )
        first = self.ndim - n
        spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations)]
        if first < 0 or any(i < span for i, span in zip(self.shape[first:], spans)):
            raise fault(
                method, "SHRINK.C2", f"expected an input at least as large as a window of {tuple(spans)} elements, got {self.shape}"
            )
        t = self
        for j in range(n):
            t = t._slide_window_over_axis(first + 2 * j, kernel[j], strides[j], dilations[j])
        order = [*range(first), *(first + 2 * j for j in range(n)), *(first + 2 * j + 1 for j in range(n))]
        return t.permute(*order)

    def _slide_window_over_axis(self, axis: int, kernel: int, stride: int, dilation: int) -> Self:
        """Turn one axis of i elements into (o, k), where element (o, k) is that at o * s + k * d.

        If windows do not overlap, the axis is cut into o groups of s. Otherwise it is repeated k times, so that position p holds
        element p mod i, and cut into k rows of i + d. Row k then begins d later, and its first o * s elements are grouped by s. No
        window reads the zeros at the end, which complete the last row.
        """
        before, i, after = self.shape[:axis], self.shape[axis], self.shape[axis + 1 :]
        o = (i - dilation * (kernel - 1) - 1) // stride + 1
        unchanged = [None] * len(before), [None] * len(after)
        if dilation == 1 and stride >= kernel:
            t = self._crop_or_pad_axis_at_end(axis, o * stride).reshape(*before, o, stride, *after)
            return t.shrink([*unchanged[0], None, (0, kernel), *unchanged[1]])
        t = self._crop_or_pad_axis_at_end(axis, max(i, o * stride - dilation))
        i = t.shape[axis]
        t = t.reshape(*before, 1, i, *after).expand(*before, kernel, i, *after).reshape(*before, kernel * i, *after)
        t = t._crop_or_pad_axis_at_end(axis, kernel * (i + dilation)).reshape(*before, kernel, i + dilation, *after)
        t = t._crop_or_pad_axis_at_end(axis + 1, o * stride).reshape(*before, kernel, o, stride, *after)
        t = t._crop_or_pad_axis_at_end(axis + 2, 1).reshape(*before, kernel, o, *after)
        return t.transpose(axis, axis + 1)

    def _crop_or_pad_axis_at_end(self, axis: int, extent: int) -> Self:
        """Cut or pad the axis at its end."""
        have = self.shape[axis]
        if extent <= have:
            return self._shrink_axis(axis, 0, extent)
        return self.pad([(0, extent - have) if k == axis else None for k in range(self.ndim)])

    def _normalize_spatial_padding_to_pairs(self, method: str, padding: Sizes, n: int) -> list[tuple[int, int]]:
        """Return (before, after) per spatial axis.

        `padding` is one number, one per axis, or two per axis from the last axis on.
        """
        if isinstance(padding, Sequence) and len(padding) == 2 * n and n > 0:
            pairs = [(padding[2 * k], padding[2 * k + 1]) for k in range(n)][::-1]
        else:
            pairs = [(p, p) for p in _normalize_spatial_sizes(padding, n, method, "padding")]
        return pairs

    def _pad_spatial_axes(self, method: str, padding: Sizes, n: int, value: float = 0) -> Self:
        """Pad the last n axes."""
        pairs = self._normalize_spatial_padding_to_pairs(method, padding, n)
        return self.pad([*[None] * (self.ndim - n), *pairs], value=value) if any(a or b for a, b in pairs) else self

    # Convolution and pooling

    def conv2d(
        self,
        weight: Self,
        bias: Self | None = None,
        groups: int = 1,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        dtype: DTypeLike | None = None,
    ) -> Self:
        """Return the cross-correlation of (N, C, *spatial) with (out, C / groups, *kernel), for any number of spatial axes.

        `out[n, o, y]` is `bias[o]` plus the sum over c and k of
        `x[n, group(o), c, y * stride + k * dilation - padding] * weight[o, c, k]`. Without a dtype, the bias promotes the result.
        """
        weight, groups = self._require_tensor("weight", weight), require_integer_of_at_most_64_bits(groups)
        n = weight.ndim - 2
        if n < 1 or groups < 1 or self.ndim != weight.ndim or self.shape[1] != groups * weight.shape[1] or weight.shape[0] % groups:
            raise fault(
                "conv2d",
                "MUL.C3",
                f"expected input (N, C, ...), weight (out, C / groups, ...), got {self.shape}, {weight.shape}, {groups} groups",
            )
        inner, outer = choose_accumulation_dtypes(promote(self.dtype, weight.dtype), dtype)
        out_channels, channels, *kernel = weight.shape
        t = self._pad_spatial_axes("conv2d", padding, n)._extract_windows("conv2d", kernel, stride, dilation)
        batch, spatial, each = t.shape[0], t.shape[2 : 2 + n], out_channels // groups
        t = t.reshape(batch, groups, 1, channels, *spatial, *kernel).expand(batch, groups, each, channels, *spatial, *kernel)
        order = [0, 1, 2, *range(4, 4 + n), 3, *range(4 + n, 4 + 2 * n)]
        t = t.permute(*order).cast(inner)
        w = weight.cast(inner).reshape(1, groups, each, *(1,) * n, channels, *kernel)
        last = tuple(range(t.ndim - n - 1, t.ndim))
        out = (t * w).sum(last, dtype=inner).reshape(batch, out_channels, *spatial)
        if bias is None:
            return out.cast(outer)
        if self._require_tensor("bias", bias).shape != (out_channels,):
            raise fault("conv2d", None, f"expected a bias of shape {(out_channels,)}, got {bias.shape}")
        return (out + bias.reshape(1, -1, *(1,) * n)).cast(outer if dtype is not None else promote(outer, bias.dtype))

    def max_pool2d(self, kernel_size: Sizes = 2, stride: Sizes | None = None, dilation: Sizes = 1, padding: Sizes = 0) -> Self:
        """Return the greatest element of each window of the last axes.

        Padding is below every value. The stride defaults to the kernel size.
        """
        kernel = _normalize_spatial_sizes(
            kernel_size, len(kernel_size) if isinstance(kernel_size, Sequence) else 2, "max_pool2d", "kernel"
        )
        n = len(kernel)
        least = self.dtype.min if self.dtype is not dt.bool_ else False
        t = self._pad_spatial_axes("max_pool2d", padding, n, least)
        return t._extract_windows("max_pool2d", kernel, kernel if stride is None else stride, dilation).max(tuple(range(-n, 0)))

    def avg_pool2d(
        self,
        kernel_size: Sizes = 2,
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        count_include_pad: bool = True,
    ) -> Self:
        """Return the mean of each window of the last axes; without `count_include_pad`, of its elements that are no padding.

        Sums are divided before they are rounded to this dtype; the mean of integers is float32.
        """
        kernel = _normalize_spatial_sizes(
            kernel_size, len(kernel_size) if isinstance(kernel_size, Sequence) else 2, "avg_pool2d", "kernel"
        )
        n, stride = len(kernel), kernel if stride is None else stride

        def windows(t: Self) -> Self:
            return t._pad_spatial_axes("avg_pool2d", padding, n)._extract_windows("avg_pool2d", kernel, stride, dilation)

        axes = tuple(range(-n, 0))
        if count_include_pad:
            return windows(self).mean(axes)
        result_dtype = to_float_dtype(self.dtype)
        t = self.cast(choose_accumulation_dtypes(result_dtype, None).accumulation)
        return (windows(t).sum(axes) / windows(t.ones_like()).sum(axes)).cast(result_dtype)

    # Layers

    def linear(self, weight: Self, bias: Self | None = None) -> Self:
        """Return x @ weight + bias, with weight of shape (in, out)."""
        out = self.matmul(weight)
        return out if bias is None else out + bias

    def layernorm(self, axis: int | tuple[int, ...] = -1, eps: float = 1e-5) -> Self:
        """Return (x - mean) / sqrt(var + eps) over axes, with var without correction.

        Narrow floats are computed in float32 and rounded once.
        """
        result_dtype = to_float_dtype(self.dtype)
        t = self.cast(choose_accumulation_dtypes(result_dtype, None).accumulation)
        centred = t - t.mean(axis, keepdim=True)
        return (centred * (centred.square().mean(axis, keepdim=True) + eps).rsqrt()).cast(result_dtype)

    def batchnorm(self, weight: Self | None, bias: Self | None, mean: Self, invstd: Self, axis: int = 1) -> Self:
        """Return (x - mean) * (weight * invstd) + bias, each a vector along `axis`: the form used at inference."""
        k = self._normalize_axis("batchnorm", axis)
        shape = tuple(n if j == k else 1 for j, n in enumerate(self.shape))
        scale = self._require_tensor("invstd", invstd)
        scale = scale if weight is None else self._require_tensor("weight", weight) * scale
        out = (self - self._require_tensor("mean", mean).reshape(shape)) * scale.reshape(shape)
        return out if bias is None else out + self._require_tensor("bias", bias).reshape(shape)

    def scaled_dot_product_attention(
        self, key: Self, value: Self, attn_mask: Self | None = None, is_causal: bool = False, scale: float | None = None
    ) -> Self:
        """Return softmax(q @ k^T * scale + mask) @ v; scale defaults to 1 / sqrt(the last extent of q).

        A bool mask hides where it is false, any other mask is added. `is_causal` hides everything after the query's position.
        Scores are in the accumulation dtype. Integers count as float32.
        """
        key, value = self._require_tensor("key", key), self._require_tensor("value", value)
        if self.ndim < 2 or key.ndim < 2 or value.ndim < 2 or key.shape[-1] != self.shape[-1] or key.shape[-2] != value.shape[-2]:
            raise fault(
                "scaled_dot_product_attention",
                "MUL.C3",
                f"expected query (..., n, d), key (..., m, d), value (..., m, e), got {self.shape}, {key.shape}, {value.shape}",
            )
        if scale is None and not self.shape[-1]:
            raise fault(
                "scaled_dot_product_attention", None, f"expected a scale or queries of at least one element, got shape {self.shape}"
            )
        inner, _ = choose_accumulation_dtypes(to_float_dtype(promote(self.dtype, key.dtype)), None)
        scores = self.matmul(key.transpose(-2, -1), dtype=inner) * (1 / math.sqrt(self.shape[-1]) if scale is None else scale)
        if is_causal:
            if attn_mask is not None:
                raise fault("scaled_dot_product_attention", None, "expected is_causal or attn_mask, got both")
            attn_mask = scores._build_lower_triangle_mask("scaled_dot_product_attention", 0)
        if attn_mask is not None:
            attn_mask = self._require_tensor("attn_mask", attn_mask)
            scores = attn_mask.where(scores, -math.inf) if attn_mask.dtype is dt.bool_ else scores + attn_mask
        return scores.softmax(-1).cast(to_float_dtype(promote(self.dtype, value.dtype))).matmul(value)

    # Triangles

    def tril(self, diagonal: int = 0) -> Self:
        """Return the elements of the last two axes with column - row <= diagonal, zero elsewhere."""
        below = require_integer_of_at_most_64_bits(diagonal)
        return self._build_lower_triangle_mask("tril", below).where(self, self.zeros_like())

    def triu(self, diagonal: int = 0) -> Self:
        """Return the elements of the last two axes with column - row >= diagonal, zero elsewhere."""
        below = require_integer_of_at_most_64_bits(diagonal) - 1
        return self._build_lower_triangle_mask("triu", below).where(self.zeros_like(), self)

    def _build_lower_triangle_mask(self, method: str, below: int) -> Self:
        """Return (rows, columns), true where column <= row + below."""
        if self.ndim < 2:
            raise fault(method, None, f"expected at least two axes, got shape {self.shape}")
        row_count, column_count = self.shape[-2:]
        d = pick_first_integer_dtype_holding(row_count + column_count)
        rows, columns = self.of(arange(row_count, d)), self.of(arange(column_count, d))
        return columns <= rows.unsqueeze(1) + max(-row_count, min(below, column_count))  # no farther: the sum must not wrap
