"""Calls of reductions, prefix sums, exponentials of rows, and products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from uops.backends.arrays import STORAGE
from uops.fuzz.generate.methods.calls.answers import (
    Answer,
    Array,
    Estimate,
    ExactAnswer,
    cast_array,
    dtype_of,
    exact,
    scalar,
    to_float64,
)
from uops.fuzz.generate.methods.calls.drawing import (
    LARGE_PERCENT,
    CallDraw,
    MethodCall,
    MethodRow,
    axes_of,
    call,
    to_float_dtype,
)
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, DTypeKind, promote


class SumDtypes(NamedTuple):
    """The dtype in which a sum is computed, and that of the result."""

    accumulation: DType
    result: DType


def sum_dtypes(d: DType, wanted: DType | None = None) -> SumDtypes:
    """Return the dtypes of a sum over elements of `d`, as the table ACCUMULATE and its docstrings say.

    No sum has fewer than 32 bits; a sum of floats is rounded to their dtype. A wanted integer dtype is both. A wanted float is
    accumulated in no narrower dtype than it and the elements have by default.
    """
    if d.is_float:
        default = SumDtypes(d if d.bits >= 32 else dt.float32, d)
    elif d.bits >= 32:
        default = SumDtypes(d, d)
    else:
        default = SumDtypes(*[dt.uint32 if d.kind is DTypeKind.UINT else dt.int32] * 2)
    if wanted is None:
        return default
    if not wanted.is_float:
        return SumDtypes(wanted, wanted)
    return SumDtypes(promote(default.accumulation, wanted if wanted.bits >= 32 else dt.float32), wanted)


def in_accumulator(x: Array) -> Estimate:
    """Return a Tensor's values in the dtype in which sums of its float dtype are computed; integers count as float32."""
    d = to_float_dtype(dtype_of(x))
    return Estimate.of(cast_array(x, d), sum_dtypes(d).accumulation)


def _operand(m: CallDraw) -> Array:
    return m.tame(m.summed_dtype(), m.shape(0, 4, large=LARGE_PERCENT))


def _draw_reduction(method: str, compute: Callable[[Array, Any, bool], Answer]) -> Callable[[CallDraw], MethodCall]:
    """Return how reductions with axes and `keepdim` are drawn."""

    def draw(m: CallDraw) -> MethodCall:
        x = _operand(m)
        if m.is_wrong():
            return call(method, x, m.wrong_axis(x.ndim), answer=IndexError)
        if x.ndim and m.chance(2):
            return call(method, x, (0, -x.ndim), answer=ValueError)
        if m.chance(2):
            return call(method, x, m.choice((0.0, "0", (0.5,))), answer=TypeError)
        axis, keepdim = m.axes(x.ndim), m.chance(40)
        kwargs = {"keepdim": True} if keepdim else {}
        args = () if axis is None and m.chance(50) else (axis,)
        return call(method, x, *args, answer=compute(x, axes_of(axis, x.ndim), keepdim), **kwargs)

    return draw


def _draw_sum(method: str, of_estimate: Callable[..., Estimate], of_integers: Any) -> Callable[[CallDraw], MethodCall]:
    """Return how sums and products are drawn, which take a dtype of the result."""

    def draw(m: CallDraw) -> MethodCall:
        x = _operand(m)
        if m.is_wrong():
            return call(method, x, m.wrong_axis(x.ndim), answer=IndexError)
        axis, keepdim = m.axes(x.ndim), m.chance(40)
        wanted = m.dtype(tuple(d for d in dt.STORABLE if d is not dt.bool_)) if m.chance(20) else None
        axes, (inner, outer) = axes_of(axis, x.ndim), sum_dtypes(dtype_of(x), wanted)
        if inner.is_float:
            answer: Answer = of_estimate(Estimate.of(x, inner), axes, keepdim).store_as(outer)
        else:
            whole = cast_array(x, inner)
            with np.errstate(all="ignore"):
                answer = ExactAnswer(np.asarray(of_integers.reduce(whole, axes, keepdims=keepdim), whole.dtype))
        kwargs = ({"keepdim": True} if keepdim else {}) | ({"dtype": wanted.name} if wanted else {})
        return call(method, x, axis, answer=answer, **kwargs)

    return draw


def _product(e: Estimate, axes: tuple[int, ...], keepdim: bool) -> Estimate:
    """Return products: n - 1 roundings, if no partial product in any order leaves the normal range (R32)."""
    d = e.arithmetic
    n = int(np.prod([e.value.shape[k] for k in axes]))
    with np.errstate(all="ignore"):
        size = np.abs(e.value)
        value = e.value.prod(axes, keepdims=keepdim)
        most = np.where(size > 1, size, 1).prod(axes, keepdims=keepdim)
        least = np.where((size < 1) & (size > 0), size, 1).prod(axes, keepdims=keepdim)
        is_zero = (size == 0).any(axes, keepdims=keepdim)
        units = max(0, n - 1) * (2 if d is dt.float64 else 1)
        error = np.abs(value) * ((1 + d.unit_roundoff) ** units - 1)
        fits = np.isfinite(most) & (most * (1 + units * d.unit_roundoff) <= d.max_finite)
        is_normal = (least * (1 - units * d.unit_roundoff) >= d.smallest_normal) | is_zero
        error = np.where(fits & is_normal, error, np.inf)
        nan = np.isnan(e.value).any(axes, keepdims=keepdim)
        return Estimate(d, value, np.where(nan, 0.0, error))


def _extremum(is_max: bool) -> Callable[[Array, Any, bool], Answer]:
    """Return the greatest or least element, of none the least or greatest value (R32); either zero may stand for both."""

    def compute(x: Array, axes: tuple[int, ...], keepdim: bool) -> Answer:
        d = dtype_of(x)
        f: Any = np.maximum if is_max else np.minimum
        if d is dt.bool_:
            return ExactAnswer(np.asarray(x.any(axes, keepdims=keepdim) if is_max else x.all(axes, keepdims=keepdim)))
        end = d.min if is_max else d.max
        if d.is_float:
            return exact(f.reduce(to_float64(x), axes, keepdims=keepdim, initial=end), d, either_zero=True)
        return ExactAnswer(np.asarray(f.reduce(x, axes, keepdims=keepdim, initial=end), x.dtype))

    return compute


def _any(x: Array, axes: tuple[int, ...], keepdim: bool) -> Answer:
    return ExactAnswer(np.asarray(cast_array(x, dt.bool_).any(axes, keepdims=keepdim)))


def _all(x: Array, axes: tuple[int, ...], keepdim: bool) -> Answer:
    return ExactAnswer(np.asarray(cast_array(x, dt.bool_).all(axes, keepdims=keepdim)))


def _constant(value: float, like: Estimate) -> Estimate:
    """Return a Python number in the arithmetic of an estimate."""
    return Estimate.of(scalar(value), like.arithmetic)


def mean_of(e: Estimate, axes: tuple[int, ...], keepdim: bool) -> Estimate:
    """Return means: sums over the number of elements."""
    n = int(np.prod([e.value.shape[k] for k in axes]))
    return e.sum(axes, keepdim) / _constant(float(n), e)


def _mean(x: Array, axes: tuple[int, ...], keepdim: bool) -> Answer:
    return mean_of(in_accumulator(x), axes, keepdim).store_as(to_float_dtype(dtype_of(x)))


def _variance(x: Array, axes: tuple[int, ...], keepdim: bool, correction: int) -> Estimate:
    """Return the sum of squares of x - mean(x) over the number of elements less the correction."""
    e = in_accumulator(x)
    n = int(np.prod([x.shape[k] for k in axes]))
    centred = e - mean_of(e, axes, True)
    return (centred * centred).sum(axes, keepdim) / _constant(float(max(0, n - correction)), e)


def _draw_variance(method: str) -> Callable[[CallDraw], MethodCall]:
    def draw(m: CallDraw) -> MethodCall:
        x = _operand(m)
        if m.is_wrong():
            return call(method, x, m.wrong_axis(x.ndim), answer=IndexError)
        axis, keepdim, correction = m.axes(x.ndim), m.chance(40), m.choice((1, 1, 0, 2))
        d = to_float_dtype(dtype_of(x))
        out = _variance(x, axes_of(axis, x.ndim), keepdim, correction)
        if method == "std":
            out = _root_of_positive(out.convert(d) if d is not out.arithmetic else out)
        kwargs = ({"keepdim": True} if keepdim else {}) | ({"correction": correction} if correction != 1 else {})
        return call(method, x, axis, answer=out.store_as(d), **kwargs)

    return draw


def _root_of_positive(e: Estimate) -> Estimate:
    """Return square roots of values that are at least 0, though their estimates may lie below."""
    with np.errstate(all="ignore"):
        low, high = np.sqrt(np.maximum(e.value - e.error, 0)), np.sqrt(e.value + e.error)
        known = np.isfinite(e.value)
        spread = Estimate(
            e.arithmetic, np.where(known, (low + high) / 2, np.sqrt(e.value)), np.where(known, (high - low) / 2, e.error)
        )
    return spread.round_once(spread.value, spread.error)


def _draw_position(method: str) -> Callable[[CallDraw], MethodCall]:
    """Return how positions of extrema are drawn: the first of several, and the first NaN before all others."""

    def draw(m: CallDraw) -> MethodCall:
        d = m.dtype()
        x = m.array(d, m.shape(0, 4, 1) if m.chance(95) else (2, 500), ("small", "small", "special", "mixed", "normal", "edge"))
        if m.is_wrong():
            return call(method, x, m.wrong_axis(x.ndim), answer=IndexError)
        if m.chance(2):
            return call(method, m.array(d, (2, 0)), 1, answer=ValueError)
        axis = None if not x.ndim or m.chance(25) else m.axis(x.ndim)
        keepdim = m.chance(40)
        v = to_float64(x) if d.is_float else x
        out = getattr(np, method)(v, axis, keepdims=keepdim)
        args = () if axis is None and m.chance(50) else (axis,)
        kwargs = {"keepdim": True} if keepdim else {}
        return call(method, x, *args, answer=ExactAnswer(np.asarray(out, np.int32)), **kwargs)

    return draw


# ------------------------------------------------------------------------------------------------------------ exponentials


def _shift_by_max(e: Estimate, axes: tuple[int, ...]) -> Estimate:
    return e - e.max(axes) if e.value.ndim else e - e


def softmax_of(e: Estimate, axes: tuple[int, ...]) -> Estimate:
    """Return e * (1 / sum(e)), e = exp(x - max(x))."""
    powers = _shift_by_max(e, axes).exp()
    return powers * (_constant(1.0, e) / powers.sum(axes, True))


def _draw_rows(method: str) -> Callable[[CallDraw], MethodCall]:
    """Return how softmax and log_softmax are drawn."""

    def draw(m: CallDraw) -> MethodCall:
        x = _operand(m)
        if m.is_wrong():
            return call(method, x, m.wrong_axis(x.ndim), answer=IndexError)
        axis = m.axis(x.ndim) if x.ndim else m.choice((0, -1))
        e, axes = in_accumulator(x), (axis % x.ndim,) if x.ndim else ()
        if method == "softmax":
            out = softmax_of(e, axes)
        else:
            s = _shift_by_max(e, axes)
            out = s - s.exp().sum(axes, True).log()
        args = () if axis == -1 and m.chance(50) else (axis,)
        return call(method, x, *args, answer=out.store_as(to_float_dtype(dtype_of(x))))

    return draw


def _logsumexp(x: Array, axes: tuple[int, ...], keepdim: bool) -> Answer:
    """Return m + log(sum(exp(x - m))), m = max(x), or 0 where that is infinite."""
    e = in_accumulator(x)
    m = e.max(axes)
    m = replace(m, value=np.where(np.isinf(m.value), 0.0, m.value))
    out = m + (e - m).exp().sum(axes, True).log()
    if not keepdim:
        shape = tuple(n for k, n in enumerate(x.shape) if k not in axes)
        out = replace(out, value=out.value.reshape(shape), error=out.error.reshape(shape))
    return out.store_as(to_float_dtype(dtype_of(x)))


# ------------------------------------------------------------------------------------------------------------ prefix sums


def _draw_cumsum(m: CallDraw) -> MethodCall:
    x = m.tame(m.summed_dtype(), m.shape(0, 3))
    if m.is_wrong():
        return call("cumsum", x, m.wrong_axis(x.ndim), answer=IndexError)
    axis = m.axis(x.ndim) if x.ndim else m.choice((0, -1))
    inner, outer = sum_dtypes(dtype_of(x))
    if inner.is_float:
        e = Estimate.of(x, inner)
        answer: Answer = (e.cumsum(axis) if x.ndim else e).store_as(outer)
    else:
        with np.errstate(all="ignore"):
            whole = cast_array(x, inner)
            answer = ExactAnswer(np.cumsum(whole, axis, dtype=whole.dtype) if x.ndim else whole)
    return call("cumsum", x, *(() if axis == 0 and m.chance(50) else (axis,)), answer=answer)


# ------------------------------------------------------------------------------------------------------------ matrices


def multiply_matrices(a: Array, b: Array, wanted: DType | None = None) -> Answer:
    """Return the matrix product, accumulated in the dtype of the promoted operands' sums."""
    inner, outer = sum_dtypes(promote(dtype_of(a), dtype_of(b)), wanted)
    if inner.is_float:
        return Estimate.of(a, inner).matmul(Estimate.of(b, inner)).store_as(outer)
    with np.errstate(all="ignore"):
        return ExactAnswer(np.asarray(np.matmul(cast_array(a, inner), cast_array(b, inner)), STORAGE[inner]))


def draw_matrices(m: CallDraw) -> tuple[Array, Array]:
    """Draw two operands of a product: vectors, matrices, or batches that broadcast."""
    k = m.extent(17)
    d = m.dtype()
    e = d if m.chance(80) else m.dtype()
    form = m.choice(("matrix", "matrix", "batch", "batch", "vector", "vectors", "column"))
    batch = tuple(m.extent(3) for _ in range(m.integer(1, 2))) if form == "batch" else ()
    other = tuple(1 if m.chance(30) else n for n in batch[m.integer(0, len(batch)) :])
    left = (k,) if form in ("vector", "vectors") else (*batch, m.extent(9), k)
    right = (k,) if form in ("vectors", "column") else (*other, k, m.extent(9))
    return m.tame(d, left), m.tame(e, right)


def _draw_matmul(method: str, reflected: bool) -> Callable[[CallDraw], MethodCall]:
    def draw(m: CallDraw) -> MethodCall:
        a, b = draw_matrices(m)
        if m.is_wrong():
            wrong = m.array(dtype_of(b), (a.shape[-1] + 1, 2))
            return call(method, wrong if reflected else a, a if reflected else wrong, answer=ValueError)
        swapped = not reflected and not method.startswith("__") and m.chance(20)
        wanted = (
            m.dtype(tuple(d for d in dt.STORABLE if d is not dt.bool_)) if not method.startswith("__") and m.chance(15) else None
        )
        kwargs = ({"reverse": True} if swapped else {}) | ({"dtype": wanted.name} if wanted else {})
        pair = (b, a) if reflected or swapped else (a, b)
        return call(method, *pair, answer=multiply_matrices(a, b, wanted), **kwargs)

    return draw


ROWS = (
    MethodRow("sum", _draw_sum("sum", lambda e, axes, keepdim: e.sum(axes, keepdim), np.add), 4),
    MethodRow("prod", _draw_sum("prod", _product, np.multiply)),
    MethodRow("max", _draw_reduction("max", _extremum(True))),
    MethodRow("min", _draw_reduction("min", _extremum(False))),
    MethodRow("any", _draw_reduction("any", _any)),
    MethodRow("all", _draw_reduction("all", _all)),
    MethodRow("mean", _draw_reduction("mean", _mean), 4),
    MethodRow("var", _draw_variance("var"), 4),
    MethodRow("std", _draw_variance("std")),
    MethodRow("argmax", _draw_position("argmax"), 3),
    MethodRow("argmin", _draw_position("argmin"), 2),
    MethodRow("softmax", _draw_rows("softmax")),
    MethodRow("log_softmax", _draw_rows("log_softmax")),
    MethodRow("logsumexp", _draw_reduction("logsumexp", _logsumexp)),
    MethodRow("cumsum", _draw_cumsum, 3),
    MethodRow("matmul", _draw_matmul("matmul", False), 2, takes_arrays=True),
    MethodRow("dot", _draw_matmul("dot", False), takes_arrays=True),
    MethodRow("__matmul__", _draw_matmul("__matmul__", False), takes_arrays=True),
    MethodRow("__rmatmul__", _draw_matmul("__rmatmul__", True), takes_arrays=True),
)
