"""The generator of chains of Tensor methods, as users write them.

Takes: choices. Gives: the graph and inputs that `capture` makes of a Tensor after two to five steps, sometimes with an earlier
Tensor as a second output. A step calls a method of the front end with arguments that fit. Operands are often a reduction of the
Tensor itself, an earlier Tensor or new data. Extents lie around whole vectors, tails and tiles, so that chains of reductions,
movement and choices reach the schedules of kernels.

No value, and no set of windows of a product, has more than about `max_elements` elements. Never generated: a position out of
bounds, and a position computed from floats (R30: representation of allowed sets; R45).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from uops.backends.testing.values import draw_array
from uops.compiler.tensor import Tensor, capture
from uops.fuzz.generate.declared import SupportedOpDtypes
from uops.fuzz.generate.draw import draw_permutation
from uops.fuzz.generate.graphs import FuzzCase
from uops.fuzz.generate.methods.segments import sum_rows_into_segments
from uops.spec.choices import ChoiceSource
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import toposort

Shape = tuple[int, ...]

#: Extents of axes.
EXTENTS = (1, 2, 3, 7, 8, 16, 17, 31, 33, 64, 65, 130, 200, 300)
#: Maximum numbers of elements of one value; a chain draws one of them, small ones more often.
ELEMENTS = (200, 600, 2000, 2000, 6000, 6000, 20000, 90000)
#: A chain of at least LARGE elements has no axis of 2 to LONG - 1 elements, so that schedules with tiles of several axes apply.
LARGE, LONG = 20000, 16
#: Maximum extent n of an axis that is counted: `arange` and prefix sums compute n rows of n elements.
COUNTED = 200
#: Maximum number of elements in all windows of a prefix sum.
WINDOWS = 40_000
#: Dtypes; about half of the draws are the default dtypes of the front end.
DTYPES = (*dt.STORABLE, *(dt.float32, dt.int32) * 6)
#: Styles of data: mostly small numbers, so that sums of integers do not wrap.
STYLES = ("small",) * 7 + ("normal", "normal", "mixed", "special")
#: Python numbers as operands.
NUMBERS = (2, 1, 0, 3, -1, 0.5, 7)

#: Methods of Tensor, by what they take; repeated ones are more frequent.
REDUCTIONS = ("sum", "max", "min", "sum", "max", "mean", "prod", "any", "all", "var", "logsumexp")
POSITIONS = ("argmax", "argmin")
ROWS = ("softmax", "log_softmax", "layernorm")
UNARY = ("neg", "abs", "sign", "square", "relu", "exp", "sqrt", "sigmoid", "floor", "reciprocal", "log", "isnan", "sin")
ARITHMETIC = ("add", "mul", "sub", "maximum", "minimum", "idiv", "mod", "div")
COMPARISONS = ("__lt__", "__gt__", "__le__", "eq", "ne")
#: Methods for bools and integers alone.
BITS = ("__and__", "__or__", "__xor__")


@dataclass
class Chain:
    """A chain under construction; `tensors` are the Tensors so far."""

    draw: ChoiceSource
    max_elements: int
    dtypes: tuple[DType, ...] = DTYPES
    tensors: list[Tensor] = field(default_factory=list)

    def max_repeats(self, t: Tensor) -> int:
        """Return how often the elements of a Tensor may be repeated."""
        return max(1, self.max_elements // max(1, t.numel()))

    def draw_extent(self, most: int, least: int = 1) -> int:
        """Draw one of `EXTENTS` from `least` to `most`, or 1."""
        return self.draw.choice([n for n in EXTENTS if least <= n <= most] or [1])

    def draw_shape(self) -> Shape:
        """Draw a shape of rank 1 to 4. Any axis may be the large one."""
        dims: list[int] = []
        for _ in range(self.draw.choice((1, 2, 2, 3, 3, 3, 4))):
            n = self.draw_extent(self.max_elements // math.prod(dims), LONG if self.max_elements >= LARGE else 1)
            dims.insert(self.draw.integer(0, len(dims)), n)
        return tuple(dims)

    def make_data(self, d: DType, shape: Shape) -> Tensor:
        """Make a Tensor of random data."""
        return Tensor.from_numpy(draw_array(self.draw, d, shape, self.draw.choice(STYLES)))

    def make_random_index_tensor(self, extent: int, shape: Shape) -> Tensor:
        """Make positions on an axis of this extent, sometimes with some that count from its end."""
        d = self.draw.choice((dt.int32, dt.int32, dt.int64))
        positions = np.mod(draw_array(self.draw, d, shape, "bits"), extent)
        return Tensor.from_numpy(positions - extent * (positions % 2) if self.draw.chance(30) else positions)

    def draw_axis(self, t: Tensor) -> int:
        """Draw an axis of a Tensor."""
        return self.draw.integer(0, t.ndim - 1)

    def draw_operand(self, t: Tensor) -> Tensor | int | float:
        """Draw a number, an earlier Tensor, the flipped Tensor itself, or data of a shape that broadcasts."""
        earlier = [x for x in self.tensors if x.shape == t.shape and x is not t]
        if earlier and self.draw.chance(50):
            return self.draw.choice(earlier)
        if t.ndim and self.draw.chance(25):
            return t.flip(self.draw_axis(t))
        if self.draw.chance(35):
            return self.draw.choice(NUMBERS)
        d = t.dtype if self.draw.chance(80) else self.draw.choice(self.dtypes)
        first_axis = self.draw.integer(0, t.ndim) if self.draw.chance(30) else 0
        return self.make_data(d, tuple(1 if self.draw.chance(25) else n for n in t.shape[first_axis:]))

    def combine_by_random_operator_or_where(self, t: Tensor, other: Tensor | int | float) -> Tensor:
        """Combine two operands by one operation, or choose between them."""
        if self.draw.chance(20):
            return t.__gt__(other).where(t, other)
        if t.dtype is dt.bool_ or (t.dtype.is_integer and self.draw.chance(15)):
            return _call_method(t, self.draw.choice(BITS), self.to_int_or_bool_operand(other))
        return _call_method(t, self.draw.choice(ARITHMETIC if self.draw.chance(75) else COMPARISONS), other)

    def to_int_or_bool_operand(self, other: Tensor | int | float) -> Tensor | int:
        """Convert an operand of floats to bools or to an integer."""
        if isinstance(other, Tensor):
            return other.ne(0) if other.dtype.is_float else other
        return int(other)


def _call_method(t: Tensor, method: str, *arguments: object, **named: object) -> Tensor:
    result: Tensor = getattr(t, method)(*arguments, **named)
    return result


def _is_float_free(t: Tensor) -> bool:
    """Return True if a value is computed without floats."""
    return not any(u.dtype.is_float for u in toposort(t.uop))


# ------------------------------------------------------------------------------------------------------------ reductions


def _draw_reduction_axes(c: Chain, t: Tensor) -> int | Shape | None:
    """Draw an axis, several or all. Mostly it is one axis with others behind it, so that rows are reduced to a row."""
    if c.draw.chance(75):
        return c.draw.integer(0, t.ndim - 2) if t.ndim > 1 and c.draw.chance(60) else c.draw_axis(t)
    return None if c.draw.chance(30) else tuple(k for k in range(t.ndim) if c.draw.chance(60)) or c.draw_axis(t)


def _apply_reduction(c: Chain, t: Tensor) -> Tensor:
    return _call_method(t, c.draw.choice(REDUCTIONS), _draw_reduction_axes(c, t), keepdim=c.draw.chance(30))


def _combine_with_own_reduction(c: Chain, t: Tensor) -> Tensor:
    """Combine a Tensor with a reduction of itself."""
    if max(t.shape) <= COUNTED and c.draw.chance(15):
        return c.combine_by_random_operator_or_where(t, _call_method(t, c.draw.choice(POSITIONS), c.draw_axis(t), keepdim=True))
    return c.combine_by_random_operator_or_where(
        t, _call_method(t, c.draw.choice(REDUCTIONS), _draw_reduction_axes(c, t), keepdim=True)
    )


def _apply_argmax_argmin_or_reduce_if_axis_long(c: Chain, t: Tensor) -> Tensor:
    """Take the position of an extremum along an axis or in the whole Tensor; reduce a Tensor with a long axis."""
    if max(t.shape) > COUNTED:
        return _apply_reduction(c, t)
    axis = None if t.numel() <= COUNTED and c.draw.chance(20) else c.draw_axis(t)
    return _call_method(t, c.draw.choice(POSITIONS), axis, keepdim=c.draw.chance(30))


def _apply_cumsum(c: Chain, t: Tensor) -> Tensor:
    """Take prefix sums along an axis whose windows are not too many; else reduce."""
    axes = [k for k, n in enumerate(t.shape) if n * t.numel() <= WINDOWS]
    return t.cumsum(c.draw.choice(axes)) if axes else _apply_reduction(c, t)


# ------------------------------------------------------------------------------------------------------------ movement


def _apply_permute(c: Chain, t: Tensor) -> Tensor:
    order = draw_permutation(c.draw, t.ndim)
    return t.permute(*order) if c.draw.chance(60) else t.transpose(c.draw_axis(t), c.draw_axis(t))


def _pad_one_axis(c: Chain, t: Tensor) -> Tensor:
    k, room = c.draw_axis(t), c.max_repeats(t)
    max_padding = min(4, t.shape[k] * (room - 1)) if room > 1 else 0
    pairs = [(c.draw.integer(0, max_padding), c.draw.integer(0, max_padding)) if j == k else None for j in range(t.ndim)]
    return t.pad(pairs, value=c.draw.choice((0, 0, 1, -1)) if t.dtype is not dt.bool_ else 0)


def _apply_shrink(c: Chain, t: Tensor) -> Tensor:
    bounds: list[tuple[int, int]] = []
    for n in t.shape:
        lo = c.draw.integer(0, min(3, n - 1)) if c.draw.chance(50) else 0
        bounds.append((lo, n - c.draw.integer(0, min(3, n - lo - 1)) if c.draw.chance(50) else n))
    return t.shrink(bounds)


def _slice_all_axes_by_random_steps(c: Chain, t: Tensor) -> Tensor:
    """Slice with steps forward and backward, and sometimes index one axis."""
    slices = [slice(None, None, c.draw.choice((1, 1, 2, -1, 3, -2))) for _ in t.shape]
    sliced = t[tuple(slices)]
    return sliced[(*(slice(None) for _ in range(c.draw_axis(sliced))), c.draw.choice((0, -1)))] if c.draw.chance(20) else sliced


def _index_one_or_two_axes_by_random_positions(c: Chain, t: Tensor) -> Tensor:
    """Index one axis by positions from data, or two axes by positions each."""
    k = c.draw_axis(t)
    count = c.draw_extent(min(65, t.shape[k] * c.max_repeats(t)))
    before = (slice(None),) * k
    if k + 1 < t.ndim and c.draw.chance(25):
        return t[(*before, c.make_random_index_tensor(t.shape[k], (count,)), c.make_random_index_tensor(t.shape[k + 1], (count,)))]
    return t[(*before, c.make_random_index_tensor(t.shape[k], (count,)))]


def _gather_or_index_if_axis_long(c: Chain, t: Tensor) -> Tensor:
    """Gather elements at positions from data, or at the position of an extremum."""
    k = c.draw_axis(t)
    if max(t.shape) > COUNTED:
        return _index_one_or_two_axes_by_random_positions(c, t)
    if _is_float_free(t) and c.draw.chance(50):
        return t.gather(k, _call_method(t, c.draw.choice(POSITIONS), k, keepdim=True))
    count = c.draw_extent(min(33, t.shape[k] * c.max_repeats(t)))
    return t.gather(k, c.make_random_index_tensor(t.shape[k], (*t.shape[:k], count, *t.shape[k + 1 :])))


def _use_as_row_indices_else_gather(c: Chain, t: Tensor) -> Tensor:
    """Use integers as row numbers of a table."""
    if not _is_float_free(t) or t.dtype is dt.bool_ or c.max_repeats(t) < 2:
        return _gather_or_index_if_axis_long(c, t)
    n = c.draw_extent(33)
    return c.make_data(c.draw.choice(c.dtypes), (n, c.draw_extent(min(8, c.max_repeats(t)))))[t % n]


def _sum_rows_into_random_segments(c: Chain, t: Tensor) -> Tensor:
    """Add each row to one of several sums, which data select. A row that is selected out of range is added to none."""
    count = c.draw_extent(min(COUNTED, c.max_repeats(t)))
    return sum_rows_into_segments(c.draw, t, count)


def _merge_split_flatten_or_unsqueeze(c: Chain, t: Tensor) -> Tensor:
    k = c.draw_axis(t)
    form = c.draw.choice(("merge", "split", "flat", "new"))
    if form == "merge" and k + 1 < t.ndim:
        return t.flatten(k, k + 1)
    factors = [f for f in range(2, min(t.shape[k], 33)) if t.shape[k] % f == 0]
    if form == "split" and factors:
        return t.unflatten(k, (c.draw.choice(factors), -1))
    return t.flatten() if form == "flat" else t.unsqueeze(k)


def _expand_new_axis_or_repeat_axis(c: Chain, t: Tensor) -> Tensor:
    """Expand along a new leading axis, or repeat an axis."""
    n = c.draw_extent(min(17, c.max_repeats(t)))
    if c.draw.chance(50):
        return t.expand(n, *t.shape)
    return t.repeat_interleave(n, c.draw_axis(t)) if c.draw.chance(50) else t.repeat(*(n if k == 0 else 1 for k in range(t.ndim)))


def _concatenate_or_stack_else_roll(c: Chain, t: Tensor) -> Tensor:
    """Concatenate or stack a Tensor with another one of its shape."""
    if c.max_repeats(t) < 2:
        return t.roll(c.draw.integer(1, 3), c.draw_axis(t))
    other = c.draw.choice([x for x in c.tensors if x.shape == t.shape] or [t.flip(c.draw_axis(t))])
    return t.cat(other, dim=c.draw_axis(t)) if c.draw.chance(60) else t.stack(other, dim=c.draw.integer(0, t.ndim))


# ------------------------------------------------------------------------------------------------------------ products


def _matmul_by_data_or_own_transpose(c: Chain, t: Tensor) -> Tensor:
    """Multiply by a matrix on either side, or by the Tensor's own transpose."""
    if t.ndim > 1 and t.shape[-2] <= c.max_repeats(t) and c.draw.chance(25):
        return t @ t.transpose(-1, -2)
    n, d = c.draw_extent(c.max_repeats(t)), t.dtype if c.draw.chance(80) else c.draw.choice(c.dtypes)
    if t.ndim == 1 or c.draw.chance(70):
        return t @ c.make_data(d, (t.shape[-1], n) if c.draw.chance(85) else (t.shape[-1],))
    return c.make_data(d, (n, t.shape[-2])) @ t


def _convolve_last_one_or_two_axes(c: Chain, t: Tensor) -> Tensor:
    """Convolve over the last one or two axes, which become images of a batch."""
    spatial = min(2, max(1, t.ndim - 1))
    x = t.reshape((1,) * (2 + spatial - t.ndim) + t.shape) if t.ndim < 2 + spatial else t.flatten(0, t.ndim - 2 - spatial)
    kernel = tuple(c.draw.integer(1, min(3, n)) for n in x.shape[2:])
    channels = min(4, max(1, c.max_repeats(t) // math.prod(kernel)))
    weights = c.make_data(t.dtype, (c.draw.integer(1, channels), x.shape[1], *kernel))
    return x.conv2d(weights, stride=c.draw.choice((1, 1, 2)), padding=c.draw.choice((0, 0, 1)) if c.max_repeats(t) > 9 else 0)


def _apply_pooling(c: Chain, t: Tensor) -> Tensor:
    """Take the maximum or the mean of windows of the last one or two axes."""
    kernel = tuple(c.draw.integer(1, min(3, n)) for n in t.shape[-2:])
    if c.draw.chance(30):
        return t.avg_pool2d(kernel, stride=c.draw.choice((None, 1)))
    return t.max_pool2d(kernel, stride=c.draw.choice((None, 1, 2)))


# ------------------------------------------------------------------------------------------------------------ elementwise


def _apply_unary(c: Chain, t: Tensor) -> Tensor:
    return _call_method(t.cast(dt.int32) if t.dtype is dt.bool_ else t, c.draw.choice(UNARY))


def _apply_cast(c: Chain, t: Tensor) -> Tensor:
    return t.cast(c.draw.choice(c.dtypes))


def _apply_where_clamp_or_triangle(c: Chain, t: Tensor) -> Tensor:
    """Choose by a comparison or a mask, clamp, or keep one side of a diagonal."""
    form = c.draw.choice(("compare", "mask", "clamp", "triangle"))
    if form == "triangle" and t.ndim > 1 and max(t.shape[-2:]) <= COUNTED:
        return _call_method(t, c.draw.choice(("tril", "triu")), c.draw.integer(-1, 2))
    if form == "mask":
        return t.masked_fill(c.make_data(dt.bool_, t.shape), c.draw.choice(NUMBERS))
    if form == "clamp":
        return t.clamp(c.draw.integer(-2, 0), c.draw.integer(1, 3))
    return t.__gt__(c.draw.choice(NUMBERS)).where(t, c.draw_operand(t))


class ChainStep(NamedTuple):
    """A step of a chain. `weight` is its frequency; `axes` says whether it needs a Tensor with at least one axis."""

    name: str
    make: Callable[[Chain, Tensor], Tensor]
    weight: int = 1
    axes: bool = True


# fmt: off
#: All steps. Draws depend on the order.
STEPS = (
    ChainStep("reduction",  _apply_reduction, 12),
    ChainStep("beside",     _combine_with_own_reduction, 3),
    ChainStep("position",   _apply_argmax_argmin_or_reduce_if_axis_long, 2),
    ChainStep("prefix",     _apply_cumsum, 2),
    ChainStep("rows",       lambda c, t: _call_method(t, c.draw.choice(ROWS), c.draw_axis(t))),
    ChainStep("product",    _matmul_by_data_or_own_transpose, 2),
    ChainStep("convolved",  _convolve_last_one_or_two_axes),
    ChainStep("pooled",     _apply_pooling),
    ChainStep("flip",       lambda c, t: t.flip(c.draw_axis(t))),
    ChainStep("permute",    _apply_permute, 2),
    ChainStep("pad",        _pad_one_axis),
    ChainStep("shrink",     _apply_shrink),
    ChainStep("slice",      _slice_all_axes_by_random_steps),
    ChainStep("pick",       _index_one_or_two_axes_by_random_positions),
    ChainStep("gather",     _gather_or_index_if_axis_long),
    ChainStep("look-up",    _use_as_row_indices_else_gather),
    ChainStep("scatter",    _sum_rows_into_random_segments),
    ChainStep("reshape",    _merge_split_flatten_or_unsqueeze, 2),
    ChainStep("expand",     _expand_new_axis_or_repeat_axis),
    ChainStep("join",       _concatenate_or_stack_else_roll),
    ChainStep("unary",      _apply_unary, 2, axes=False),
    ChainStep("binary",     lambda c, t: c.combine_by_random_operator_or_where(t, c.draw_operand(t)), 3, axes=False),
    ChainStep("cast",       _apply_cast, 1, axes=False),
    ChainStep("where",      _apply_where_clamp_or_triangle, 2, axes=False),
    ChainStep("contiguous", lambda c, t: t.contiguous(), 1, axes=False),
)
# fmt: on
#: Steps, repeated by weight.
_WEIGHTED = tuple(s for s in STEPS for _ in range(s.weight))
#: Steps for a Tensor without axes.
_SCALARS = tuple(s for s in _WEIGHTED if not s.axes)


def generate_tensor_chain(draw: ChoiceSource, declared: SupportedOpDtypes) -> FuzzCase:
    """Generate a chain of two to five steps on one Tensor of data. The steps are drawn from one to four that the chain is
    limited to (swarm testing).
    """
    chain = Chain(draw, draw.choice(ELEMENTS), declared.filter_dtypes(DTYPES))
    t = chain.make_data(draw.choice(chain.dtypes), chain.draw_shape())
    steps = [draw.choice(_WEIGHTED) for _ in range(draw.integer(1, 4))]
    for _ in range(draw.choice((2, 3, 3, 4, 5))):
        chain.tensors.append(t)
        t = (draw.choice(steps) if t.ndim else draw.choice(_SCALARS)).make(chain, t)
    return FuzzCase(*capture(t, *([draw.choice(chain.tensors[1:])] if draw.chance(15) else [])))
