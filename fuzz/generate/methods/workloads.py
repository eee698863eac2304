"""The generator of workloads in miniature: what users run at full size, on hundreds to thousands of elements.

Takes: choices. Gives: the graph and inputs of a product, convolution, attention, scan, window, argmax, scatter, normalization or
a chain of these, as the Tensor methods make them. On a machine scaled down (`uops.fuzz.generate.machines`), the heuristics block,
pack, sweep, fuse and distribute it as they do the large one. The data are small integers, so most sums are exact in any order and
are judged bit for bit. In some cases one element in a tail or at a vector's edge is infinite, NaN or extreme.

Another generator makes wide programs: hundreds of operands or kernels, and many values that live at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from uops.backends.testing.values import Array, draw_array
from uops.compiler.tensor import Tensor, capture
from uops.fuzz.generate.declared import SupportedOpDtypes
from uops.fuzz.generate.draw import draw_permutation
from uops.fuzz.generate.graphs import FuzzCase
from uops.fuzz.generate.methods.segments import sum_rows_into_segments
from uops.spec.choices import ChoiceSource
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op

#: Extents of axes: around vectors, tails and register tiles.
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 64, 65, 96)
#: Lengths of long rows: several vectors, of which each lane sees several elements.
LONG_ROWS = (64, 96, 120, 128, 192, 256, 384)
#: Maximum numbers of multiplications or elements of a case; it draws one of them.
WORK = (500, 2000, 4000, 8000, 16000, 40000)
#: Dtypes of data; about two thirds are the default dtypes of the front end.
DTYPES = (dt.float64, dt.float16, dt.bfloat16, dt.int8, dt.int16, dt.int64, dt.uint8, *(dt.float32,) * 9, *(dt.int32,) * 5)
#: Numbers of operands, live values and kernels of a wide program.
WIDTHS = (8, 20, 48, 64, 100, 130, 200)
#: Ways in which a wide program combines two values.
COMBINATIONS = ("add", "add", "sub", "maximum", "where")
#: Functions of rows. An argmax has data of its own in most cases.
FUNCTIONS_OF_ROWS = ("argmax", "argmax", "argmin", "softmax", "layernorm", "nested", "centred", "columns")
#: Functions of rows that read the value before them, and its rows twice.
FUNCTIONS_OF_COMPUTED_ROWS = ("softmax", "layernorm", "nested", "centred", "centred")
#: Number of elements of a large temporary of a wide program.
LARGE = 1 << 18


@dataclass
class WorkloadMaker:
    """A workload under construction. `work` bounds the multiplications of a product and the elements of a value."""

    draw: ChoiceSource
    work: int
    dtypes: tuple[DType, ...]
    #: Ways in which a wide program combines two values.
    combinations: tuple[str, ...] = ()
    #: Whether a wide program realizes its values.
    is_realized: bool = True
    #: Whether the backend declares that it has Reduce.
    may_reduce: bool = True

    def draw_extent(self, most: int, least: int = 1) -> int:
        """Draw one of `EXTENTS` from `least` to `most`, or the nearest that there is."""
        return self.draw.choice([n for n in EXTENTS if least <= n <= most] or [max(1, min(least, most))])

    def draw_extents(self, count: int, least: int = 1) -> list[int]:
        """Draw extents whose product is at most `work`, in any order."""
        extents: list[int] = []
        for k in range(count):
            room = self.work // math.prod(extents) // least ** (count - k - 1)
            extents.insert(self.draw.integer(0, len(extents)), self.draw_extent(max(1, room), least))
        return extents

    def draw_axis(self, rank: int) -> int:
        """Draw an axis; the last one in most cases."""
        return rank - 1 if self.draw.chance(60) else self.draw.integer(0, rank - 1)

    def draw_dtype(self) -> DType:
        """Draw a dtype of data."""
        return self.draw.choice(self.dtypes)

    def make_data(self, d: DType, *shape: int) -> Tensor:
        """Make a Tensor of small integers, sometimes with one extreme element at an end of a row."""
        x = draw_array(self.draw, d, shape, "small")
        if x.ndim and x.size and self.draw.chance(8):
            self._put_special_element(x, d)
        return Tensor.from_numpy(x)

    def make_data_with_ties(self, d: DType, *shape: int) -> Tensor:
        """Make a Tensor of three values, so that the greatest one occurs several times in a row."""
        x = draw_array(self.draw, d, shape, "small")
        return Tensor.from_numpy(np.minimum(np.maximum(x, 0), 2).astype(x.dtype))

    def _put_special_element(self, x: Array, d: DType) -> None:
        """Put a special value into one of the last elements of a row, or into the first."""
        n = x.shape[-1]
        row = self.draw.integer(0, x.size // n - 1)
        x.reshape(-1, n)[row, self.draw.choice((0, n - 1, max(0, n - 2), self.draw.integer(0, n - 1)))] = draw_array(
            self.draw, d, (1,), "special"
        )[0]

    def make_operand(self, d: DType, *shape: int) -> Tensor:
        """Make data of a shape, in order, or as a view of other data: transposed, reversed, cut, padded or repeated."""
        form = self.draw.choice(("data",) * 6 + ("permute", "flip", "shrink", "pad", "expand", "slice"))
        k = self.draw.integer(0, len(shape) - 1) if shape else 0
        if form == "permute" and len(shape) > 1:
            order = draw_permutation(self.draw, len(shape))
            return self.make_data(d, *(shape[j] for j in order)).permute(*np.argsort(order).tolist())
        if form == "flip" and shape:
            return self.make_data(d, *shape).flip(k)
        if form == "shrink" and shape:
            first, last = self.draw.integer(0, 3), self.draw.integer(0, 3)
            larger = [n + (first + last if j == k else 0) for j, n in enumerate(shape)]
            return self.make_data(d, *larger).shrink([(first, first + n) if j == k else None for j, n in enumerate(shape)])
        if form == "pad" and shape and shape[k] > 2:
            first = self.draw.integer(0, shape[k] - 2)
            last = self.draw.integer(0, shape[k] - 1 - first)
            smaller = [n - (first + last if j == k else 0) for j, n in enumerate(shape)]
            return self.make_data(d, *smaller).pad([(first, last) if j == k else None for j in range(len(shape))])
        if form == "expand" and shape:
            return self.make_data(d, *(1 if j == k else n for j, n in enumerate(shape))).expand(*shape)
        if form == "slice" and shape:
            data = self.make_data(d, *(2 * n if j == k else n for j, n in enumerate(shape)))
            return data[(*(slice(None) for _ in range(k)), slice(self.draw.integer(0, 1), None, 2))]
        return self.make_data(d, *shape)

    def apply_view(self, t: Tensor) -> Tensor:
        """Cut, reverse, permute, pad or thin out a computed value, as its reader sees it."""
        form = self.draw.choice(("shrink", "shrink", "shrink", "flip", "permute", "pad", "slice", "unflatten"))
        if not t.ndim:
            return t
        k = self.draw_axis(t.ndim)
        n = t.shape[k]
        if form == "shrink":
            return self._cut(t, k)
        if form == "flip":
            return t.flip(k)
        if form == "permute":
            return t.permute(*draw_permutation(self.draw, t.ndim))
        if form == "pad":
            return t.pad([(self.draw.integer(0, 3), self.draw.integer(0, 3)) if j == k else None for j in range(t.ndim)])
        if form == "slice":
            return t[(*(slice(None) for _ in range(k)), slice(self.draw.integer(0, 1) if n > 1 else 0, None, 2))]
        factors = [f for f in range(2, 9) if n % f == 0]
        return t.unflatten(k, (self.draw.choice(factors), -1)) if factors else t

    def cut_columns(self, t: Tensor) -> Tensor:
        """Cut up to three elements off each end of the rows of a computed value."""
        return self._cut(t, t.ndim - 1) if t.ndim else t

    def _cut(self, t: Tensor, k: int) -> Tensor:
        n = t.shape[k]
        first = self.draw.integer(0, min(3, n - 1))
        last = self.draw.integer(max(first + 1, n - 3), n)
        return t.shrink([(first, last) if j == k else None for j in range(t.ndim)])

    def apply_epilogue(self, t: Tensor) -> Tensor:
        """Apply up to three elementwise steps, as they follow a layer."""
        for _ in range(self.draw.choice((0, 0, 1, 1, 2, 3))):
            step = self.draw.choice(("bias", "relu", "scale", "residual", "cast", "clamp", "mask", "contiguous"))
            if step == "bias" and t.ndim:
                t = t + self.make_data(t.dtype, t.shape[-1])
            elif step == "relu":
                t = t.relu()
            elif step == "scale":
                t = t * self.draw.choice((2, 3, -1))
            elif step == "residual":
                t = t + self.make_operand(t.dtype, *t.shape)
            elif step == "cast":
                t = t.cast(self.draw_dtype()) if not t.dtype.is_float else t.cast(self.draw.choice((dt.float32, dt.float64)))
            elif step == "clamp":
                t = t.clamp(-20, 20)
            elif step == "mask":
                t = (t > self.draw.choice((0, 1))).where(t, self.draw.choice((0, -1)))
            elif step == "contiguous":
                t = t.contiguous()
        return t


def _make_product(w: WorkloadMaker) -> Tensor:
    """Make a product of matrices, of batches of them, or two after one another."""
    m, k, n = w.draw_extents(3)
    batch = (w.draw_extent(min(4, max(1, w.work // (m * k * n)))),) if w.draw.chance(25) else ()
    d = w.draw_dtype()
    x, y = w.make_operand(d, *batch, m, k), w.make_operand(d, *(batch if w.draw.chance(60) else ()), k, n)
    if w.draw.chance(15):
        y = w.make_operand(w.draw_dtype(), *y.shape)
    t = w.apply_epilogue(x @ y)
    if w.draw.chance(20):
        t = w.apply_epilogue(t.cast(d) @ w.make_operand(d, n, w.draw_extent(max(1, w.work // (m * n)))))
    return t


def _make_outer_or_inner_product(w: WorkloadMaker) -> Tensor:
    """Make a matrix times a vector, or a sum of products over any axes of two operands that broadcast."""
    shape = w.draw_extents(w.draw.choice((2, 3, 3, 4)))
    d = w.draw_dtype()
    x = w.make_operand(d, *shape)
    y = w.make_operand(d, *(1 if w.draw.chance(40) else n for n in shape))
    axes = tuple(k for k in range(len(shape)) if w.draw.chance(50)) or (w.draw.integer(0, len(shape) - 1),)
    return w.apply_epilogue((x * y).sum(axes))


def _make_convolution(w: WorkloadMaker) -> Tensor:
    """Make a convolution of one or two dimensions, or a pooling, over padded or plain images."""
    spatial = [w.draw_extent(24, 2) for _ in range(w.draw.choice((1, 2, 2)))]
    kernel = [w.draw.integer(1, min(4, n)) for n in spatial]
    room = max(1, w.work // math.prod(spatial) // math.prod(kernel))
    channels = w.draw_extent(min(16, room))
    outputs = w.draw_extent(min(33, max(1, room // channels)))
    d = w.draw_dtype()
    x = w.make_operand(d, w.draw.choice((1, 1, 2)), channels, *spatial)
    if w.draw.chance(20) and len(spatial) == 2:
        pool = x.max_pool2d if w.draw.chance(60) else x.avg_pool2d
        return w.apply_epilogue(pool(tuple(kernel), stride=w.draw.choice((None, 1, 2))))
    weights = w.make_operand(d, outputs, channels, *kernel)
    return w.apply_epilogue(x.conv2d(weights, stride=w.draw.choice((1, 1, 2)), padding=w.draw.choice((0, 1, 2))))


def _make_attention(w: WorkloadMaker) -> Tensor:
    """Make attention by softmax; or a chain of products with an exact function of the scores in its place."""
    rows = w.draw_extent(33, 2)
    heads, width = w.draw.choice((1, 2, 3)), w.draw_extent(max(1, min(16, w.work // (rows * rows))))
    d = dt.float32 if w.draw.chance(80) else w.draw_dtype()
    q, k, v = (w.make_operand(d, heads, rows, width) for _ in range(3))
    if d.is_float and w.draw.chance(50):
        return q.scaled_dot_product_attention(k, v)
    scores = q @ k.transpose(-1, -2)
    form = w.draw.choice(("relu", "max", "mask"))
    if form == "relu":
        scores = scores.relu()
    elif form == "max":
        scores = scores - scores.max(-1, keepdim=True)
    elif form == "mask":
        scores = scores.tril()
    return w.apply_epilogue(scores.cast(d) @ v)


def _make_scan(w: WorkloadMaker) -> Tensor:
    """Make prefix sums along an axis, forward or backward, of data or of a value; of two sums in one kernel sometimes."""
    shape = w.draw_extents(w.draw.choice((1, 2, 2, 3)), 2)
    axis = w.draw.integer(0, len(shape) - 1)
    if shape[axis] * math.prod(shape) > w.work:  # the interpreter computes as many windows as rows are long
        shape[axis] = max(2, w.work // math.prod(shape))
    t = w.apply_epilogue(w.make_operand(w.draw_dtype(), *shape))
    scanned = t.flip(axis).cumsum(axis).flip(axis) if w.draw.chance(25) else t.cumsum(axis)
    if w.draw.chance(25):
        scanned = scanned + t.flip(axis).cumsum(axis)
    if w.draw.chance(20):
        scanned = scanned.permute(*draw_permutation(w.draw, len(shape)))
    return w.apply_epilogue(scanned)


def _make_windows(w: WorkloadMaker) -> Tensor:
    """Make sums, maxima or products over sliding windows that lie partly in the padding, before or after."""
    n, rows = w.draw_extent(64, 2), w.draw_extent(8)
    size = w.draw.integer(1, n)
    before, after = w.draw.choice(((size - 1, 0), (0, size - 1), (w.draw.integer(0, size), w.draw.integer(0, size)), (0, 0)))
    if n + before + after < size or rows * (n + before + after) * size > w.work * 2:
        size, before, after = 1, 0, 0
    step = w.draw.choice((1, 1, 1, 2, 3))
    x = w.make_operand(w.draw_dtype(), rows, n).pad([None, (before, after)])
    count = (x.shape[1] - size) // step + 1
    positions = (Tensor.arange(count) * step).reshape(count, 1) + Tensor.arange(size).reshape(1, size)
    if w.draw.chance(50):
        taken = x[:, positions]
    else:  # the same by movement alone: rows of n + 1 elements, cut to n, slide by one
        taken = x.repeat(1, size + 1)[:, : size * (x.shape[1] + 1)].reshape(rows, size, x.shape[1] + 1)
        taken = taken[:, :, : x.shape[1] - size + 1].permute(0, 2, 1)[:, ::step]
    reduce = w.draw.choice(("sum", "sum", "sum", "max", "min"))
    return w.apply_epilogue(getattr(taken, reduce)(2))


def _make_rows(w: WorkloadMaker) -> Tensor:
    """Make a function of whole rows of data, of which half are long."""
    shape = w.draw_extents(w.draw.choice((1, 2, 2, 3)), 2)
    if w.draw.chance(50):
        shape = [*w.draw_extents(w.draw.choice((0, 1, 1)))[-1:], w.draw.choice(LONG_ROWS)]
        shape = [min(n, max(1, w.work // shape[-1])) for n in shape[:-1]] + shape[-1:]
    return _apply_function_of_rows(w, w.apply_epilogue(w.make_operand(w.draw_dtype(), *shape)))


def _apply_function_of_rows(w: WorkloadMaker, t: Tensor, forms: tuple[str, ...] = FUNCTIONS_OF_ROWS) -> Tensor:
    """Apply a norm, a softmax, an argmax, or reductions of reductions to a value. `forms` are those to draw from."""
    if not t.numel() or not t.ndim:
        return t
    axis = w.draw_axis(t.ndim)
    form = w.draw.choice(forms)
    if form in ("argmax", "argmin"):
        if w.draw.chance(50):
            t = w.make_data_with_ties(t.dtype, *t.shape)
        elif t.dtype.is_float:  # what arithmetic rounds may have its greatest element elsewhere
            t = w.make_operand(t.dtype, *t.shape) if w.draw.chance(60) else t.clamp(-999, 999).cast(dt.int32)
        return t.argmax(axis) if form == "argmax" else t.argmin(axis)
    if form in ("softmax", "layernorm") and t.dtype.is_float:
        return t.softmax(axis) if form == "softmax" else t.layernorm(axis)
    if form == "nested":
        inner = t.sum(axis, keepdim=True)
        return w.apply_epilogue((t * w.draw.choice((1, 2)) - inner).sum(w.draw.integer(0, t.ndim - 1)))
    if form == "centred":
        return w.apply_epilogue((t - t.max(axis, keepdim=True)).sum(axis))
    return w.apply_epilogue(t.sum(0))


def _make_chain(w: WorkloadMaker) -> Tensor:
    """Make a product of batches of many short rows, and functions of the rows of a part of it."""
    k, n = w.draw_extent(9), w.draw_extent(17, 2)
    batch = w.draw_extent(8, 2)
    m = w.draw_extent(max(2, w.work // (k * n * batch)), 4)
    d = dt.float32 if w.draw.chance(60) else w.draw_dtype()
    t = w.apply_epilogue(w.make_operand(d, batch, m, k) @ w.make_operand(d, k, n))
    for _ in range(w.draw.choice((1, 1, 2))):
        t = w.cut_columns(t) if w.draw.chance(40) else w.apply_view(t) if w.draw.chance(50) else t
        t = _apply_function_of_rows(w, t, FUNCTIONS_OF_COMPUTED_ROWS if w.draw.chance(80) else FUNCTIONS_OF_ROWS)
    return t


def _make_scatter(w: WorkloadMaker) -> Tensor:
    """Make sums of rows into segments that data select, or a look-up of rows with its transpose."""
    rows, columns, segments = w.draw_extent(48, 2), w.draw_extent(16), w.draw_extent(96, 2)
    while rows * columns * segments > 4 * w.work:
        rows, segments = max(2, rows // 2), max(2, segments // 2)
    x = w.make_operand(w.draw_dtype(), rows, columns)
    if x.dtype.is_float and x.dtype.itemsize < dt.float32.itemsize and w.draw.chance(60):
        x = x * w.draw.choice((21, 37))  # sums that are exact in float32, and not in the dtype
    if w.draw.chance(25):
        selected = Tensor.from_numpy(np.mod(draw_array(w.draw, dt.int32, (rows,), "bits"), segments + 1))
        table = w.make_operand(x.dtype, segments + 1, columns)
        return w.apply_epilogue(table[selected] + x)
    t = sum_rows_into_segments(w.draw, x, segments)
    if w.draw.chance(20):  # add the sums to memory
        memory = w.make_data(t.dtype, *t.shape)
        return memory.assign(memory + t if w.draw.chance(70) else t + memory)
    return w.apply_epilogue(t)


def _make_gated_views(w: WorkloadMaker) -> Tensor:
    """Make a pile of cuts, paddings, permutations and reshapes, in which gates leave few or single iterations of a loop."""
    t = w.make_data(w.draw_dtype(), *w.draw_extents(w.draw.choice((2, 2, 3)), 2))
    for _ in range(w.draw.integer(3, 7)):
        k = w.draw.integer(0, t.ndim - 1)
        n = t.shape[k]
        form = w.draw.choice(("permute", "reshape", "cut", "pad", "one", "flip", "merge"))
        if form == "permute":
            t = t.permute(*draw_permutation(w.draw, t.ndim))
        elif form == "reshape" and (factors := [f for f in range(2, 9) if n % f == 0]) and t.ndim < 5:
            t = t.unflatten(k, (w.draw.choice(factors), -1))
        elif form == "merge" and k + 1 < t.ndim:
            t = t.flatten(k, k + 1)
        elif form in ("cut", "one"):
            first = w.draw.integer(0, n - 1)
            last = first + 1 if form == "one" else w.draw.integer(first + 1, n)
            t = t.shrink([(first, last) if j == k else None for j in range(t.ndim)])
        elif form == "pad" and t.numel() // n * (n + 6) <= w.work:
            t = t.pad([(w.draw.integer(0, 3), w.draw.integer(0, 3)) if j == k else None for j in range(t.ndim)])
        elif form == "flip":
            t = t.flip(k)
    return t.sum(w.draw.integer(0, t.ndim - 1)) if w.may_reduce and w.draw.chance(40) else t


class WorkloadFamily(NamedTuple):
    """A family of workloads. `weight` is its frequency, and `required_ops` are in every workload of it."""

    name: str
    make: Callable[[WorkloadMaker], Tensor]
    weight: int = 1
    required_ops: tuple[Op, ...] = (Op.REDUCE,)


#: All families. Draws depend on the order.
FAMILIES = (
    WorkloadFamily("product", _make_product, 4),
    WorkloadFamily("contraction", _make_outer_or_inner_product, 2),
    WorkloadFamily("convolution", _make_convolution, 2),
    WorkloadFamily("attention", _make_attention, 2),
    WorkloadFamily("scan", _make_scan, 4),
    WorkloadFamily("windows", _make_windows, 2),
    WorkloadFamily("rows", _make_rows, 3),
    WorkloadFamily("chain", _make_chain, 5),
    WorkloadFamily("scatter", _make_scatter, 4),
    WorkloadFamily("gated views", _make_gated_views, 2, required_ops=()),
)


def generate_workload(draw: ChoiceSource, declared: SupportedOpDtypes) -> FuzzCase:
    """Generate one workload, whose result another function of rows reads in some cases, often through a view."""
    may_reduce = declared.supports_ops((Op.REDUCE,))
    w = WorkloadMaker(draw, draw.choice(WORK), declared.filter_dtypes(DTYPES), may_reduce=may_reduce)
    families = declared.filter_producers(FAMILIES)
    t = draw.choice([f for f in families for _ in range(f.weight)]).make(w)
    if may_reduce and t.numel() <= w.work and draw.chance(30):  # a reader that sees a part of it, or another order
        t = _apply_function_of_rows(w, w.apply_view(t))
    return FuzzCase(*capture(t))


# ------------------------------------------------------------------------------------------------------------ wide programs


def generate_wide_program(draw: ChoiceSource, declared: SupportedOpDtypes) -> FuzzCase:
    """Generate a program of many operands, of many kernels, or of many values that live at once."""
    forms = draw.choice((COMBINATIONS, COMBINATIONS, ("add",), ("add", "mul"), ("maximum", "add")))
    w = WorkloadMaker(draw, 4000, declared.filter_dtypes(DTYPES), forms, draw.chance(75))
    return FuzzCase(
        *capture(draw.choice((_combine_many_operands, _chain_many_kernels, _keep_many_values, _use_large_temporaries))(w))
    )


def _realize(w: WorkloadMaker, x: Tensor) -> Tensor:
    """Return the value in bounds, and in memory of its own where the program realizes its values."""
    return x.clamp(-50, 50).contiguous() if w.is_realized else x


def _combine(w: WorkloadMaker, x: Tensor, y: Tensor) -> Tensor:
    """Combine two values so that both matter."""
    form = w.draw.choice(w.combinations)
    return (x > y).where(x, y + 1) if form == "where" else getattr(x, form)(y)


def _combine_many_operands(w: WorkloadMaker) -> Tensor:
    """Combine many inputs in one expression, as a tree or as a chain."""
    d, shape = w.draw_dtype(), (w.draw_extent(17),)
    values = [w.make_data(d, *shape) for _ in range(w.draw.choice(WIDTHS))]
    is_tree = w.draw.chance(50)
    while len(values) > 1:
        x, y = values.pop(0), values.pop(0 if is_tree else -1)
        values.append(_combine(w, x, y)) if is_tree else values.insert(0, _combine(w, x, y))
    return values[0]


def _chain_many_kernels(w: WorkloadMaker) -> Tensor:
    """Compute many kernels one after the other, each from the one before and from an earlier one."""
    d, n = w.draw_dtype(), w.draw_extent(33, 2)
    values = [w.make_data(d, n) for _ in range(2)]
    for _ in range(w.draw.choice(WIDTHS)):
        earlier = values[w.draw.integer(max(0, len(values) - 12), len(values) - 1)]
        values.append(_realize(w, _combine(w, values[-1].flip(0), earlier)))
    return values[-1] + values[w.draw.integer(0, len(values) - 2)]


def _keep_many_values(w: WorkloadMaker) -> Tensor:
    """Compute many values of several sizes from few inputs, and then use all of them in another order."""
    d = w.draw_dtype()
    x = w.make_data(d, 33)
    count = w.draw.choice(WIDTHS[:-2])
    values = []
    for k in range(count):
        n = w.draw.choice((1, 7, 16, 33))
        values.append(_realize(w, x[:n] * (k % 7 + 1) + k % 5))
    total = w.make_data(d, 33)
    for k in draw_permutation(w.draw, count):
        n = values[k].shape[0]
        total = _realize(w, _combine(w, total, values[k].pad([(0, 33 - n)])))
    return total


def _use_large_temporaries(w: WorkloadMaker) -> Tensor:
    """Compute values of a quarter of a million elements that lie between kernels, and reduce them."""
    rows, repeats = w.draw.choice((1, 3, 8, 64)), 64
    columns = LARGE // rows // repeats * repeats
    x = w.make_data(dt.int32, rows, 1).expand(rows, columns)
    steps = w.make_data(dt.int32, columns // repeats).repeat(repeats).reshape(1, columns)
    t = _realize(w, x * steps)
    u = _realize(w, t.flip(1) + steps)
    return (t - u).sum(w.draw.integer(0, 1)) if w.draw.chance(70) else (t + u)[:, :: w.draw.choice((4096, 8192))]
