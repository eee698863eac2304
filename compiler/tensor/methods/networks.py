"""What networks are made of: windows, convolution, pooling, normalisation, attention. All are graphs of the methods below them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

from uops.compiler.tensor.dtypes import DTypeLike, accumulator, floating, promote
from uops.compiler.tensor.faults import fault, whole
from uops.compiler.tensor.methods.reduce import Reduction
from uops.spec.ir import dtypes as dt
from uops.spec.rows.compositions import arange

Sizes = int | Sequence[int]


def _each(value: Sizes, n: int, method: str, what: str) -> tuple[int, ...]:
    """One number per spatial axis."""
    sizes = tuple(map(whole, value)) if isinstance(value, Sequence) else (whole(value),) * n
    if len(sizes) != n:
        raise fault(method, None, f"{what} {sizes} for {n} spatial axes")
    return sizes


class Networks(Reduction):
    """Layers as functions; weights are arguments."""

    __slots__ = ()

    # Windows

    def _pool(self, method: str, kernel: Sequence[int], stride: Sizes, dilation: Sizes) -> Self:
        """(..., o1, ..., on, k1, ..., kn): the windows of the last n axes, o = (i - d * (k - 1) - 1) // s + 1."""
        n = len(kernel)
        strides, dilations = _each(stride, n, method, "stride"), _each(dilation, n, method, "dilation")
        if any(k < 1 or s < 1 or d < 1 for k, s, d in zip(kernel, strides, dilations)):
            raise fault(method, None, f"kernel {tuple(kernel)}, stride {strides} and dilation {dilations} are at least 1")
        first = self.ndim - n
        spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations)]
        if first < 0 or any(i < span for i, span in zip(self.shape[first:], spans)):
            raise fault(method, "SHRINK.C2", f"a window over {tuple(spans)} elements is larger than the input {self.shape}")
        t = self
        for j in range(n):
            t = t._slide(first + 2 * j, kernel[j], strides[j], dilations[j])
        order = [*range(first), *(first + 2 * j for j in range(n)), *(first + 2 * j + 1 for j in range(n))]
        return t.permute(*order)

    def _slide(self, axis: int, k: int, s: int, d: int) -> Self:
        """One axis of i elements as (o, k): element (o, k) is that at o * s + k * d.

        Where windows do not overlap the axis is cut into o groups of s. Else it is repeated, so that position p lies at p mod i,
        and cut into k rows of i + d: row k then begins d later, and its first o * s elements are grouped by s.
        """
        before, i, after = self.shape[:axis], self.shape[axis], self.shape[axis + 1 :]
        o = (i - d * (k - 1) - 1) // s + 1
        around = [None] * len(before), [None] * len(after)
        if d == 1 and s >= k:
            t = self._to_length(axis, o * s).reshape(*before, o, s, *after)
            return t.shrink([*around[0], None, (0, k), *around[1]])
        t = self._to_length(axis, max(i, o * s - d))
        i = t.shape[axis]
        repeats = -(-k * (i + d) // i)
        t = t.reshape(*before, 1, i, *after).expand(*before, repeats, i, *after).reshape(*before, repeats * i, *after)
        t = t._to_length(axis, k * (i + d)).reshape(*before, k, i + d, *after)
        t = t._to_length(axis + 1, o * s).reshape(*before, k, o, s, *after)
        t = t._to_length(axis + 2, 1).reshape(*before, k, o, *after)
        return t.transpose(axis, axis + 1)

    def _to_length(self, axis: int, n: int) -> Self:
        """The axis cut or padded at its end."""
        have = self.shape[axis]
        if n <= have:
            return self._along(axis, 0, n)
        return self.pad([(0, n - have) if k == axis else None for k in range(self.ndim)])

    def _padding(self, method: str, padding: Sizes, n: int) -> list[tuple[int, int]]:
        """(before, after) per spatial axis: from one number, one per axis, or two per axis from the last axis on."""
        if isinstance(padding, Sequence) and len(padding) == 2 * n and n > 0:
            pairs = [(padding[2 * k], padding[2 * k + 1]) for k in range(n)][::-1]
        else:
            pairs = [(p, p) for p in _each(padding, n, method, "padding")]
        return pairs

    def _padded(self, method: str, padding: Sizes, n: int, value: float = 0) -> Self:
        pairs = self._padding(method, padding, n)
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
        """Cross-correlation of (N, C, *spatial) with (out, C / groups, *kernel), for any number of spatial axes.

        out[n, o, y] = bias[o] + sum over c, k of x[n, group(o), c, y * stride + k * dilation - padding] * weight[o, c, k].
        """
        weight, groups = self._require_tensor("weight", weight), whole(groups)
        n = weight.ndim - 2
        if n < 1 or groups < 1 or self.ndim != weight.ndim or self.shape[1] != groups * weight.shape[1] or weight.shape[0] % groups:
            raise fault("conv2d", "MUL.C3", f"input {self.shape}, weight {weight.shape}, {groups} groups")
        inner, outer = accumulator(promote(self.dtype, weight.dtype), dtype)
        out_channels, channels, *kernel = weight.shape
        t = self._padded("conv2d", padding, n)._pool("conv2d", kernel, stride, dilation)
        batch, spatial, each = t.shape[0], t.shape[2 : 2 + n], out_channels // groups
        t = t.reshape(batch, groups, 1, channels, *spatial, *kernel).expand(batch, groups, each, channels, *spatial, *kernel)
        order = [0, 1, 2, *range(4, 4 + n), 3, *range(4 + n, 4 + 2 * n)]
        t = t.permute(*order).cast(inner)
        w = weight.cast(inner).reshape(1, groups, each, *(1,) * n, channels, *kernel)
        last = tuple(range(t.ndim - n - 1, t.ndim))
        out = (t * w).sum(last, dtype=inner).reshape(batch, out_channels, *spatial)
        return (out if bias is None else out + self._require_tensor("bias", bias).reshape(1, -1, *(1,) * n)).cast(outer)

    def max_pool2d(self, kernel_size: Sizes = 2, stride: Sizes | None = None, dilation: Sizes = 1, padding: Sizes = 0) -> Self:
        """The greatest element of each window of the last axes; padding is below every value. The stride defaults to the kernel."""
        kernel = _each(kernel_size, len(kernel_size) if isinstance(kernel_size, Sequence) else 2, "max_pool2d", "kernel")
        n = len(kernel)
        least = self.dtype.min if self.dtype is not dt.bool_ else False
        t = self._padded("max_pool2d", padding, n, least)
        return t._pool("max_pool2d", kernel, kernel if stride is None else stride, dilation).max(tuple(range(-n, 0)))

    def avg_pool2d(
        self,
        kernel_size: Sizes = 2,
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        count_include_pad: bool = True,
    ) -> Self:
        """The mean of each window of the last axes; without `count_include_pad` over the elements that are no padding."""
        kernel = _each(kernel_size, len(kernel_size) if isinstance(kernel_size, Sequence) else 2, "avg_pool2d", "kernel")
        n, stride = len(kernel), kernel if stride is None else stride

        def windows(t: Self) -> Self:
            return t._padded("avg_pool2d", padding, n)._pool("avg_pool2d", kernel, stride, dilation)

        axes = tuple(range(-n, 0))
        if count_include_pad:
            return windows(self).mean(axes)
        return windows(self).sum(axes) / windows(self.ones_like()).sum(axes)

    # Layers

    def linear(self, weight: Self, bias: Self | None = None) -> Self:
        """x @ weight + bias, weight of shape (in, out)."""
        out = self.matmul(weight)
        return out if bias is None else out + bias

    def layernorm(self, axis: int | tuple[int, ...] = -1, eps: float = 1e-5) -> Self:
        """(x - mean) / sqrt(var + eps) over these axes, var without correction; narrow floats in float32, rounded once."""
        own = floating(self.dtype)
        t = self.cast(accumulator(own, None)[0])
        centred = t - t.mean(axis, keepdim=True)
        return (centred * (centred.square().mean(axis, keepdim=True) + eps).rsqrt()).cast(own)

    def batchnorm(self, weight: Self | None, bias: Self | None, mean: Self, invstd: Self, axis: int = 1) -> Self:
        """(x - mean) * (weight * invstd) + bias, each a vector along `axis`: the form used at inference."""
        k = self._axis("batchnorm", axis)
        shape = tuple(n if j == k else 1 for j, n in enumerate(self.shape))
        scale = self._require_tensor("invstd", invstd)
        scale = scale if weight is None else self._require_tensor("weight", weight) * scale
        out = (self - self._require_tensor("mean", mean).reshape(shape)) * scale.reshape(shape)
        return out if bias is None else out + self._require_tensor("bias", bias).reshape(shape)

    def scaled_dot_product_attention(
        self, key: Self, value: Self, attn_mask: Self | None = None, is_causal: bool = False, scale: float | None = None
    ) -> Self:
        """softmax(q @ k^T * scale + mask) @ v; scale defaults to 1 / sqrt(the last extent of q).

        A bool mask hides where it is false, any other is added; `is_causal` hides what lies after the query's position. Scores
        are kept in the accumulation dtype.
        """
        key, value = self._require_tensor("key", key), self._require_tensor("value", value)
        if self.ndim < 2 or key.ndim < 2 or value.ndim < 2 or key.shape[-1] != self.shape[-1] or key.shape[-2] != value.shape[-2]:
            raise fault("scaled_dot_product_attention", "MUL.C3", f"query {self.shape}, key {key.shape}, value {value.shape}")
        inner, _ = accumulator(promote(self.dtype, key.dtype), None)
        scores = self.matmul(key.transpose(-2, -1), dtype=inner) * (1 / math.sqrt(self.shape[-1]) if scale is None else scale)
        if is_causal:
            if attn_mask is not None:
                raise fault("scaled_dot_product_attention", None, "is_causal and a mask exclude each other")
            attn_mask = scores._below("scaled_dot_product_attention", 0)
        if attn_mask is not None:
            attn_mask = self._require_tensor("attn_mask", attn_mask)
            scores = attn_mask.where(scores, -math.inf) if attn_mask.dtype is dt.bool_ else scores + attn_mask
        return scores.softmax(-1).cast(promote(self.dtype, value.dtype)).matmul(value)

    # Triangles

    def tril(self, diagonal: int = 0) -> Self:
        """The elements of the last two axes with column - row <= diagonal; zero elsewhere."""
        return self._below("tril", diagonal).where(self, self.zeros_like())

    def triu(self, diagonal: int = 0) -> Self:
        """The elements of the last two axes with column - row >= diagonal; zero elsewhere."""
        return self._below("triu", whole(diagonal) - 1).where(self.zeros_like(), self)

    def _below(self, method: str, diagonal: int) -> Self:
        """(rows, columns), true where column <= row + diagonal."""
        if self.ndim < 2:
            raise fault(method, None, f"shape {self.shape} has no rows and columns")
        below = whole(diagonal)
        rows, columns = (self.of(arange(n)) for n in self.shape[-2:])
        return columns <= rows.unsqueeze(1) + below
