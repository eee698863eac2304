"""Calls of elementwise methods of one operand: signs, rounding, tests, activations and elementary functions.

The table `FUNCTIONS` has the bound of each elementary function in units of 2u, relative to the result, as its docstring and the
rows of its formula give it: 2 ulp of Exp2, Log2 and Sin are 2 units (R17), one rounding is half of a unit, and a constant that is
rounded is another half.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from uops.backends.arrays import STORAGE
from uops.fuzz.generate.methods.calls.answers import Answer, Array, Estimate, ExactAnswer, cast_array, dtype_of, exact, to_float64
from uops.fuzz.generate.methods.calls.drawing import (
    LARGE_PERCENT,
    CallDraw,
    MethodCall,
    MethodRow,
    call,
    number_array,
    to_float_dtype,
    weak_number,
)
from uops.fuzz.generate.methods.calls.elementwise import NUMERIC, WHOLE, round_product
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType

Function = Callable[[Array], Answer]


def _draw_unary(
    method: str, compute: Function, dtypes: tuple[DType, ...] = dt.STORABLE, refused: DType | None = None, has_halves: bool = False
) -> MethodRow:  # fmt: skip
    """Return the row of a method of one operand. With `has_halves`, most floats lie halfway between whole numbers."""

    def draw(m: CallDraw) -> MethodCall:
        if refused is not None and m.chance(3):
            return call(method, m.array(refused, m.shape(0, 2)), answer=TypeError)
        x = m.array(m.dtype(dtypes), m.shape(0, 3, large=LARGE_PERCENT))
        if has_halves and dtype_of(x).is_float and m.chance(60):
            x = exact(to_float64(m.array(dtype_of(x), x.shape, ("small",))) / 2, dtype_of(x)).values
        with np.errstate(all="ignore"):
            return call(method, x, answer=compute(x))

    return MethodRow(method, draw)


def _of_floats(f: Callable[[Array], Any]) -> Function:
    """Return a function with one right result, which is rounded once; integers are converted to float32 first."""

    def compute(x: Array) -> Answer:
        d = to_float_dtype(dtype_of(x))
        return exact(f(to_float64(cast_array(x, d))), d)

    return compute


def _within_row(f: Callable[[Array], Any]) -> Function:
    """Return a function within 2 ulp, and within 1 of a narrow float (R17)."""

    def compute(x: Array) -> Answer:
        d = to_float_dtype(dtype_of(x))
        return Estimate.within_ulps(f(to_float64(cast_array(x, d))), d, 2 if d.bits >= 32 else 1)

    return compute


def _elementary(f: Callable[[Array], Any], units: Callable[[Array, DType], Any], absolute: Any = None) -> Function:
    """Return a function in float32 at least, rounded once to the dtype, with a relative error in units of 2u."""

    def compute(x: Array) -> Answer:
        d = to_float_dtype(dtype_of(x))
        v = to_float64(cast_array(x, d))
        value = np.asarray(f(v), np.float64)
        far = 0.0 if absolute is None else np.where(np.isfinite(value), np.nan_to_num(absolute(v, d.wide)), 0.0)
        return Estimate.within_relative(value, d.wide, np.nan_to_num(units(v, d.wide), posinf=0), far).store_as(d)

    return compute


def _sigmoid(x: Array) -> Array:
    return np.asarray(np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x)))))


def _sigmoid_units(x: Array, d: DType) -> Array:
    """Return the error of 1 / (1 + exp(-x)): that of the exponential as far as it counts, an addition and a quotient."""
    return np.asarray(_sigmoid(-x) * (np.minimum(np.abs(x), 1e4) + 3) + 1)


def _sigmoid_underflow(x: Array, d: DType) -> Array:
    """Return the whole value where exp(-x) overflows, since the quotient is 0 then."""
    return np.where(np.abs(x) * (1 + 8 * d.unit_roundoff) + 1 > math.log(d.max_finite), _sigmoid(-np.abs(x)), 0.0)


def _tanh_units(x: Array, d: DType) -> Array:
    """Return the error of (1 - e) / (1 + e), e = exp(-2|x|), or below 1/2 that of a fraction of two polynomials.

    A polynomial of degree k in x^2 has 2k roundings and its coefficients one each; the terms after the first are at most x^2 / 3 of
    it. That leaves 4 units for both, the product and the quotient, and half a unit for the cut.
    """
    size = np.abs(x)
    e = np.exp(-2 * size)
    return np.where(size < 0.5, 5, (e / (1 - e) + e / (1 + e)) * (2 * size + 3) + 2)


def _gelu(x: Array) -> Array:
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return np.asarray(x * _sigmoid(2 * u))


def _gelu_units(x: Array, d: DType) -> Array:
    """Return the error of x * sigmoid(2u): 2u has 4 roundings and 2 constants, which the exponential multiplies by |2u|."""
    u = 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return np.asarray(_sigmoid(-u) * (np.minimum(np.abs(u), 1e4) * 4 + 3) + 2)


def _gelu_underflow(x: Array, d: DType) -> Array:
    u = 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return np.where(np.abs(u) * (1 + 16 * d.unit_roundoff) + 1 > math.log(d.max_finite), np.abs(_gelu(-np.abs(x))), 0.0)


def _silu(x: Array) -> Answer:
    """Return x * sigmoid(x), of which both factors are of the dtype."""
    d = to_float_dtype(dtype_of(x))
    s = _elementary(_sigmoid, _sigmoid_units, _sigmoid_underflow)(x)
    assert isinstance(s, Estimate)
    return Estimate.of(x, d) * s.convert(d)


def _tan(x: Array) -> Answer:
    """Return sin(x) / cos(x), of which both are of the dtype."""
    d = to_float_dtype(dtype_of(x))
    s, c = _within_row(np.sin)(x), _cos(x)
    assert isinstance(s, Estimate)
    assert isinstance(c, Estimate)
    return s / replace(c, stored=None).convert(d)


def _cos_error(x: Array, d: DType) -> Array:
    """Return the absolute error of 1 - 2 sin(x/2)^2: 2 ulp of the sine twice, a product, and the difference."""
    return np.asarray((np.sin(x / 2) ** 2 * 9 + 1) * 2 * d.unit_roundoff)


_cos = _elementary(np.cos, lambda x, d: 0.5, _cos_error)


def _rsqrt(x: Array) -> Answer:
    """Return 1 / sqrt(x), of which both steps are rounded to the dtype; the roots 0 and infinity are exact."""
    d = to_float_dtype(dtype_of(x))
    root = Estimate.of(x, d).sqrt()
    out = Estimate.of(np.ones(x.shape, STORAGE[d]), d) / root
    is_zero, is_infinite = root.value == 0, np.isinf(root.value)
    value = np.where(is_zero, np.copysign(math.inf, root.value), np.where(is_infinite, 0.0, out.value))
    return Estimate(d, value, np.where(is_zero | is_infinite, 0.0, out.error))


def _leaky_relu_row() -> MethodRow:
    def draw(m: CallDraw) -> MethodCall:
        x = m.array(m.dtype(dt.FLOATS), m.shape(0, 3))
        d, slope = dtype_of(x), m.choice((0.01, 0.5, 2, -1, 0))
        v = to_float64(x)
        with np.errstate(all="ignore"):
            product = exact(v * to_float64(weak_number(slope, d)), d).values
        kwargs = {} if slope == 0.01 and m.chance(50) else {"neg_slope": slope}
        return call("leaky_relu", x, answer=ExactAnswer(np.where(v > 0, x, product)), **kwargs)

    return MethodRow("leaky_relu", draw)


def _neg(x: Array) -> Answer:
    return ExactAnswer(-x if not dtype_of(x).is_float else _store_like(-to_float64(x), x))


def _store_like(values: Array, like: Array) -> Array:
    """Return float64 values in the dtype of another array, which represents them."""
    return exact(values, dtype_of(like)).values


def _abs(x: Array) -> Answer:
    return ExactAnswer(_store_like(np.abs(to_float64(x)), x) if dtype_of(x).is_float else x if x.dtype == bool else np.abs(x))


def _sign(x: Array) -> Answer:
    d = dtype_of(x)
    if d is dt.bool_:
        return ExactAnswer(x)
    if d.is_float:
        v = to_float64(x)
        return ExactAnswer(_store_like(np.where(v > 0, 1.0, np.where(v < 0, -1.0, v)), x))
    return ExactAnswer(np.sign(x))


def _square(x: Array) -> Answer:
    return round_product(x, x)


def _relu(x: Array) -> Answer:
    v = to_float64(x) if dtype_of(x).is_float else x
    return ExactAnswer(np.where(v <= 0, np.zeros((), x.dtype), x))


def _rounding(f: Callable[[Array], Any]) -> Function:
    """Return a rounding to whole numbers; integers and bools are their own."""
    return lambda x: ExactAnswer(_store_like(f(to_float64(x)), x) if dtype_of(x).is_float else x)


def _test(f: Callable[[Array], Any]) -> Function:
    return lambda x: ExactAnswer(np.asarray(f(to_float64(x) if dtype_of(x).is_float else x), np.bool_))


def _invert(x: Array) -> Answer:
    return ExactAnswer(~x)


def _like(method: str, value: int | None) -> MethodRow:
    """Return the row of a method that fills a shape like this one."""

    def draw(m: CallDraw) -> MethodCall:
        x = m.array(m.dtype(), m.shape(0, 3, large=LARGE_PERCENT))
        d = m.dtype() if m.chance(40) else dtype_of(x)
        kwargs = {"dtype": d.name} if d is not dtype_of(x) or m.chance(20) else {}
        if value is not None:
            return call(method, x, answer=ExactAnswer(np.full(x.shape, number_array(value, d))), **kwargs)
        filling = m.choice((0, 1, 7, -3, 2.5, True, 1000, -0.0, math.inf))
        if d.is_integer and not (math.isfinite(filling) and d.min <= math.trunc(filling) <= d.max):
            return call(method, x, filling, answer=ValueError, **kwargs)
        number = math.trunc(filling) if d.is_integer else filling
        return call(method, x, filling, answer=ExactAnswer(np.full(x.shape, number_array(number, d))), **kwargs)

    return MethodRow(method, draw)


#: Method -> its exact value in float64, and the bound of its error in units of 2u.
FUNCTIONS: dict[str, Function] = {
    "exp": _elementary(np.exp, lambda x, d: np.abs(x) + 3),
    "log": _elementary(np.log, lambda x, d: 3),
    "log1p": _elementary(np.log1p, lambda x, d: 5),
    "cos": _cos,
    "tanh": _elementary(np.tanh, _tanh_units),
    "sigmoid": _elementary(_sigmoid, _sigmoid_units, _sigmoid_underflow),
    "gelu": _elementary(_gelu, _gelu_units, _gelu_underflow),
    "softplus": _elementary(
        lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
        lambda x, d: 0.5,
        lambda x, d: np.log1p(np.exp(-np.abs(x))) * (np.minimum(np.abs(x), 1e4) + 8) * 2 * d.unit_roundoff,
    ),
    "silu": _silu,
    "swish": _silu,
    "tan": _tan,
    "exp2": _within_row(np.exp2),
    "log2": _within_row(np.log2),
    "sin": _within_row(np.sin),
    "sqrt": _of_floats(np.sqrt),
    "reciprocal": _of_floats(np.reciprocal),
    "rsqrt": _rsqrt,
}

ROWS = (
    _draw_unary("neg", _neg, NUMERIC, dt.bool_),
    _draw_unary("__neg__", _neg, NUMERIC, dt.bool_),
    _draw_unary("abs", _abs),
    _draw_unary("__abs__", _abs),
    _draw_unary("sign", _sign),
    _draw_unary("square", _square),
    _draw_unary("relu", _relu, NUMERIC),
    _draw_unary("trunc", _rounding(np.trunc), has_halves=True),
    _draw_unary("floor", _rounding(np.floor), has_halves=True),
    _draw_unary("ceil", _rounding(np.ceil), has_halves=True),
    _draw_unary("round", _rounding(np.rint), has_halves=True)._replace(weight=2),
    _draw_unary("isnan", _test(lambda x: x != x)),
    _draw_unary("isinf", _test(lambda x: np.isinf(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool))),
    _draw_unary("logical_not", _test(lambda x: x == 0)),
    _draw_unary("__invert__", _invert, WHOLE, dt.float32),
    _draw_unary("bitwise_not", _invert, WHOLE, dt.float32),
    _leaky_relu_row(),
    *(_draw_unary(name, f) for name, f in FUNCTIONS.items()),
    _like("full_like", None),
    _like("zeros_like", 0),
    _like("ones_like", 1),
)
