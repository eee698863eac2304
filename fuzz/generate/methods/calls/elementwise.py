"""Calls of elementwise methods of two operands: arithmetic, comparisons, bits, powers and choices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

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
    to_float64,
)
from uops.fuzz.generate.methods.calls.drawing import (
    LARGE_PERCENT,
    NUMBERS,
    CallDraw,
    MethodCall,
    MethodRow,
    call,
    default_number_dtype,
    number_array,
    promote_all,
    to_float_dtype,
    weak_number,
)
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, promote

NUMERIC = tuple(d for d in dt.STORABLE if d is not dt.bool_)
WHOLE = tuple(d for d in dt.STORABLE if not d.is_float)


# ------------------------------------------------------------------------------------------------------------- two operands


def _operand(m: CallDraw, x: Array, dtypes: tuple[DType, ...], numbers: tuple[Any, ...] = NUMBERS) -> tuple[Any, Array]:
    """Draw a second operand; return it and its array, in the dtype that it has beside the first."""
    d = dtype_of(x)
    if m.chance(25):
        fitting = tuple(v for v in numbers if dtype_of(weak_number(v, d)) in dtypes)
        if fitting:
            value = m.choice(fitting)
            return value, weak_number(value, d)
    e = d if m.chance(70) and d in dtypes else m.dtype(dtypes)
    y = m.array(e, m.broadcastable(x.shape))
    return y, y


def _first(m: CallDraw, dtypes: tuple[DType, ...]) -> Array:
    return m.array(m.dtype(dtypes), m.shape(0, 3, large=LARGE_PERCENT))


def _draw_binary(
    method: str, compute: Callable[[Array, Array], Answer], dtypes: tuple[DType, ...] = dt.STORABLE, refused: DType | None = None,
    reversed_by: str = "",
) -> Callable[[CallDraw], MethodCall]:  # fmt: skip
    """Return how calls of a binary method are drawn. `compute` takes promoted arrays; `refused` is a dtype that it lacks.

    `reversed_by` is how the operands are swapped: "operator" for a reflected operator, "argument" for a method that can.
    """

    def draw(m: CallDraw) -> MethodCall:
        if refused is not None and m.chance(3):
            x = m.array(refused, m.shape(0, 2))
            return call(method, x, m.array(refused, x.shape), answer=TypeError)
        x = _first(m, dtypes)
        clash = m.clashing(x.shape)
        if clash and m.is_wrong():
            return call(method, x, m.array(dtype_of(x), clash), answer=ValueError)
        given, y = _operand(m, x, dtypes)
        a, b = (x, y) if compute is _divide else promote_all(x, y)
        if promote(dtype_of(x), dtype_of(y)) not in dtypes:
            return call(method, x, x, answer=compute(x, x))
        swapped = reversed_by == "operator" or (reversed_by == "argument" and m.chance(20))
        kwargs = {"reverse": True} if swapped and reversed_by == "argument" else {}
        with np.errstate(all="ignore"):
            return call(method, x, given, answer=compute(b, a) if swapped else compute(a, b), **kwargs)

    return draw


def _arithmetic(f: Callable[..., Any], of_bools: Callable[..., Any] | None = None) -> Callable[[Array, Array], Answer]:
    """Return addition, subtraction or multiplication: floats are rounded once, integers wrap, bools are Or or And (R05, R09)."""

    def compute(a: Array, b: Array) -> Answer:
        d = dtype_of(a)
        if d.is_float:
            return exact(f(to_float64(a), to_float64(b)), d)
        return ExactAnswer(np.asarray(of_bools(a, b) if d is dt.bool_ and of_bools else f(a, b)))

    return compute


def _divide(a: Array, b: Array) -> Answer:
    """Return the quotient of operands that are converted to a float dtype directly; of integers it is float32."""
    d = to_float_dtype(promote(dtype_of(a), dtype_of(b)))
    x, y = (to_float64(cast_array(v, d)) for v in (a, b))
    return exact(x / y, d)


def _floor_divide(a: Array, b: Array) -> Answer:
    """Divide and round down; an integer divided by 0 is 0 (R03). Narrow floats are NumPy's of float32, rounded."""
    d = dtype_of(a)
    if d.is_float:
        wide = np.float64 if d is dt.float64 else np.float32
        return exact(np.floor_divide(a.astype(wide), b.astype(wide)).astype(np.float64), d)
    safe = np.where(b == 0, b.dtype.type(1), b)
    return ExactAnswer(np.where(b == 0, b.dtype.type(0), np.floor_divide(a, safe)))


def _remainder(a: Array, b: Array) -> Answer:
    """Return the remainder with the divisor's sign; an integer modulo 0 is itself (R02, R03)."""
    d = dtype_of(a)
    if d.is_float:
        return exact(np.remainder(to_float64(a), to_float64(b)), d)
    safe = np.where(b == 0, b.dtype.type(1), b)
    return ExactAnswer(np.where(b == 0, a, np.remainder(a, safe)))


def _extremum(f: Callable[..., Any]) -> Callable[[Array, Array], ExactAnswer]:
    """Return the greater or lesser of two elements; either zero may stand for both, and NaN wins (R11)."""

    def compute(a: Array, b: Array) -> ExactAnswer:
        d = dtype_of(a)
        if d.is_float:
            return exact(f(to_float64(a), to_float64(b)), d, either_zero=True)
        return ExactAnswer(np.asarray(f(a, b)))

    return compute


def _comparison(f: Callable[..., Any]) -> Callable[[Array, Array], Answer]:
    def compute(a: Array, b: Array) -> Answer:
        if dtype_of(a).is_float:
            a, b = to_float64(a), to_float64(b)
        return ExactAnswer(np.asarray(f(a, b)))

    return compute


def _bits(f: Callable[..., Any]) -> Callable[[Array, Array], Answer]:
    return lambda a, b: ExactAnswer(np.asarray(f(a, b)))


def _draw_shift(method: str, is_left: bool, reflected: bool) -> Callable[[CallDraw], MethodCall]:
    """Draw shifts, whose count is read as unsigned and may exceed the width (R06, R07)."""

    def draw(m: CallDraw) -> MethodCall:
        x = _first(m, dt.INTS)
        if m.is_wrong():
            return call(method, x, m.array(dt.float32, x.shape), answer=TypeError)
        d = dtype_of(x)
        if reflected:
            value = m.choice((1, 3, -1 if d.is_signed else 7, 5))
            base: Array = weak_number(value, d)
            return call(method, x, value, answer=ExactAnswer(_shift(base, x, is_left)))
        if m.chance(30):
            count = m.choice((0, 1, 2, d.bits - 1, d.bits, d.bits + 1, 5))
            return call(method, x, count, answer=ExactAnswer(_shift(x, number_array(count, dt.int64), is_left)))
        y = m.array(m.dtype(dt.INTS), m.broadcastable(x.shape), ("small", "small", "edge"))
        return call(method, x, y, answer=ExactAnswer(_shift(x, y, is_left)))

    return draw


def _shift(x: Array, count: Array, is_left: bool) -> Array:
    d = dtype_of(x)
    x, count = np.broadcast_arrays(x, count)
    out = []
    for v, c in zip(x.reshape(-1).tolist(), count.reshape(-1).tolist()):
        far = c < 0 or c >= d.bits
        if is_left:
            out.append(0 if far else v << c & (1 << d.bits) - 1)
        else:
            out.append((-1 if v < 0 else 0) & (1 << d.bits) - 1 if far else (v >> c) & (1 << d.bits) - 1)
    return np.array(out, np.uint64).astype(f"u{d.itemsize}").view(STORAGE[d]).reshape(x.shape)


def _draw_power(method: str, reflected: bool) -> Callable[[CallDraw], MethodCall]:
    """Draw powers: of floats within 2 ulp (R18), or products for the exponents 1 to 4; of integers, products that wrap (R165)."""

    def draw(m: CallDraw) -> MethodCall:
        x = m.array(m.dtype(), m.shape(0, 3, elements=60), ("small", "normal", "special", "spread", "small"))
        d = dtype_of(x)
        swapped = reflected or (method == "pow" and m.chance(15))
        kwargs = {"reverse": True} if swapped and not reflected else {}
        if d.is_float:
            given, y = _operand(m, x, dt.STORABLE)
            if dtype_of(y).is_float or isinstance(given, np.ndarray) or swapped or type(given) is not int or not 1 <= given <= 4:
                return call(method, x, given, answer=compute_float_power(y, x) if swapped else compute_float_power(x, y), **kwargs)
        given = m.choice((0, 1, 2, 3, 4, 5, 7)) if d is not dt.bool_ else m.choice((True, False))
        if d.is_float:
            return call(method, x, given, answer=_product_power(x, given))
        if swapped:
            exponent = np.abs(x) if d.is_signed else x
            exponent = np.where(exponent < 0, exponent.dtype.type(1), exponent) if d.is_signed else exponent
            base = weak_number(given, d)
            common = promote(d, dtype_of(base))
            return call(method, exponent, given, answer=_integer_power(cast_array(base, common), exponent), **kwargs)
        if d is not dt.bool_ and m.chance(5):
            return call(method, x, -1, answer=ValueError)
        if m.chance(40):
            return call(method, x, given, answer=_integer_power(x, weak_number(given, d)))
        e = d if m.chance(70) else m.dtype(WHOLE)
        y = m.array(e, m.broadcastable(x.shape), ("small", "small", "special"))
        if e.is_signed and y.size and y.min() < 0:
            return call(method, x, y, answer=ValueError)
        return call(method, x, y, answer=_integer_power(cast_array(x, promote(d, e)), y))

    return draw


def compute_float_power(a: Array, b: Array) -> Answer:
    """Return powers within 2 ulp. NumPy takes square roots where all exponents are one 0.5, so that another exponent is added."""
    a, b = promote_all(a, b)
    x, y = np.broadcast_arrays(to_float64(a), to_float64(b))
    with np.errstate(all="ignore"):
        out = np.power(np.append(x, 1.0), np.append(y, 2.0))[:-1].reshape(x.shape)
    return Estimate.within_ulps(out, dtype_of(a), 2)


def _product_power(x: Array, n: int) -> Answer:
    e = Estimate.of(x, dtype_of(x))
    if n == 0:
        return exact(np.ones(x.shape), dtype_of(x))
    out = e
    for _ in range(n - 1):
        out = out * e
    return out


def _integer_power(base: Array, exponent: Array) -> Answer:
    d = dtype_of(base)
    a, b = np.broadcast_arrays(base, exponent)
    words = [pow(int(x), int(y), 1 << (1 if d is dt.bool_ else d.bits)) for x, y in zip(a.reshape(-1), b.reshape(-1))]
    stored = np.array(words, np.uint64).astype(f"u{d.itemsize}")
    return ExactAnswer((stored.astype(np.bool_) if d is dt.bool_ else stored.view(STORAGE[d])).reshape(a.shape))


# ------------------------------------------------------------------------------------------------------------ choices


def _draw_where(m: CallDraw) -> MethodCall:
    condition = _first(m, dt.STORABLE)
    truth = cast_array(condition, dt.bool_)
    clash = m.clashing(condition.shape)
    if clash and m.is_wrong():
        return call("where", condition, m.array(dt.int32, clash), 0, answer=ValueError)
    given: list[Any] = []
    for _ in range(2):
        is_number = m.chance(30)
        d = dtype_of(given[0]) if given and isinstance(given[0], np.ndarray) and m.chance(70) else m.dtype()
        given.append(m.number(d) if is_number else m.array(d, m.broadcastable(condition.shape)))
    if all(isinstance(v, np.ndarray) for v in given) and not _broadcasts(condition, *given):
        given[1] = 0
    likes = [dtype_of(v) for v in given if isinstance(v, np.ndarray)]
    if likes:
        pair = [v if isinstance(v, np.ndarray) else weak_number(v, likes[0]) for v in given]
    else:
        pair = [number_array(v, default_number_dtype(v)) for v in given]
    same = pair[0].dtype == pair[1].dtype
    a, b = promote_all(*pair)
    return call("where", condition, *given, answer=ExactAnswer(np.where(truth, a, b), by_bits=same and len(likes) == 2))


def _broadcasts(*arrays: Array) -> bool:
    try:
        np.broadcast_shapes(*(a.shape for a in arrays))
    except ValueError:
        return False
    return True


def _draw_masked_fill(m: CallDraw) -> MethodCall:
    x = _first(m, dt.STORABLE)
    mask = m.array(m.choice((dt.bool_, dt.bool_, dt.int32, dt.float32)), m.broadcastable(x.shape))
    value = m.number(dtype_of(x))
    a, b = promote_all(weak_number(value, dtype_of(x)), x)
    return call("masked_fill", x, mask, value, answer=ExactAnswer(np.where(cast_array(mask, dt.bool_), a, b)))


def _draw_clamp(method: str) -> Callable[[CallDraw], MethodCall]:
    def draw(m: CallDraw) -> MethodCall:
        x = _first(m, NUMERIC)
        d = dtype_of(x)
        if m.is_wrong():
            return call(method, x, answer=ValueError)
        numbers = (-1, 0, 2, 3, 1.5, -0.5, math.inf) if d.is_float else (0, 2, 3, 1.5, 300, *((-1, -200) if d.is_signed else ()))
        low, high = (m.choice((None, *numbers)) for _ in range(2))
        if low is None and high is None:
            low = 1
        out = ExactAnswer(x)
        values = x
        if m.chance(30) and low is not None:
            low = m.array(d if m.chance(70) else m.dtype(NUMERIC), m.broadcastable(x.shape))
        for bound, f in ((low, np.maximum), (high, np.minimum)):
            if bound is not None:
                given = bound if isinstance(bound, np.ndarray) else weak_number(bound, dtype_of(values))
                a, b = promote_all(values, given)
                out = _extremum(f)(a, b)
                values = out.values
        return call(method, x, low, high, answer=out._replace(either_zero=True))

    return draw


_AND, _OR, _XOR = (_bits(f) for f in (np.bitwise_and, np.bitwise_or, np.bitwise_xor))
_ADD, round_product = _arithmetic(np.add, np.logical_or), _arithmetic(np.multiply, np.logical_and)
_SUB = _arithmetic(np.subtract)

ROWS = (
    MethodRow("add", _draw_binary("add", _ADD, reversed_by="argument"), takes_arrays=True),
    MethodRow("sub", _draw_binary("sub", _SUB, NUMERIC, reversed_by="argument"), takes_arrays=True),
    MethodRow("mul", _draw_binary("mul", round_product, reversed_by="argument"), takes_arrays=True),
    MethodRow("div", _draw_binary("div", _divide, reversed_by="argument"), takes_arrays=True),
    MethodRow("idiv", _draw_binary("idiv", _floor_divide, NUMERIC, dt.bool_, reversed_by="argument"), takes_arrays=True),
    MethodRow("mod", _draw_binary("mod", _remainder, NUMERIC, dt.bool_, reversed_by="argument"), 2, takes_arrays=True),
    MethodRow("pow", _draw_power("pow", False), takes_arrays=True),
    MethodRow("maximum", _draw_binary("maximum", _extremum(np.maximum)), takes_arrays=True),
    MethodRow("minimum", _draw_binary("minimum", _extremum(np.minimum)), takes_arrays=True),
    MethodRow("__add__", _draw_binary("__add__", _ADD), takes_arrays=True),
    MethodRow("__radd__", _draw_binary("__radd__", _ADD, reversed_by="operator"), takes_arrays=True),
    MethodRow("__sub__", _draw_binary("__sub__", _SUB, NUMERIC), takes_arrays=True),
    MethodRow("__rsub__", _draw_binary("__rsub__", _SUB, NUMERIC, reversed_by="operator"), takes_arrays=True),
    MethodRow("__mul__", _draw_binary("__mul__", round_product), takes_arrays=True),
    MethodRow("__rmul__", _draw_binary("__rmul__", round_product, reversed_by="operator"), takes_arrays=True),
    MethodRow("__truediv__", _draw_binary("__truediv__", _divide), takes_arrays=True),
    MethodRow("__rtruediv__", _draw_binary("__rtruediv__", _divide, reversed_by="operator"), takes_arrays=True),
    MethodRow("__floordiv__", _draw_binary("__floordiv__", _floor_divide, NUMERIC, dt.bool_), takes_arrays=True),
    MethodRow("__rfloordiv__", _draw_binary("__rfloordiv__", _floor_divide, NUMERIC, dt.bool_, "operator"), takes_arrays=True),
    MethodRow("__mod__", _draw_binary("__mod__", _remainder, NUMERIC, dt.bool_), takes_arrays=True),
    MethodRow("__rmod__", _draw_binary("__rmod__", _remainder, NUMERIC, dt.bool_, "operator"), takes_arrays=True),
    MethodRow("__pow__", _draw_power("__pow__", False), takes_arrays=True),
    MethodRow("__rpow__", _draw_power("__rpow__", True), takes_arrays=True),
    MethodRow("__and__", _draw_binary("__and__", _AND, WHOLE, dt.float32), takes_arrays=True),
    MethodRow("__rand__", _draw_binary("__rand__", _AND, WHOLE, dt.float32, "operator"), takes_arrays=True),
    MethodRow("__or__", _draw_binary("__or__", _OR, WHOLE, dt.float32), takes_arrays=True),
    MethodRow("__ror__", _draw_binary("__ror__", _OR, WHOLE, dt.float32, "operator"), takes_arrays=True),
    MethodRow("__xor__", _draw_binary("__xor__", _XOR, WHOLE, dt.float32), takes_arrays=True),
    MethodRow("__rxor__", _draw_binary("__rxor__", _XOR, WHOLE, dt.float32, "operator"), takes_arrays=True),
    MethodRow("__lshift__", _draw_shift("__lshift__", True, False), takes_arrays=True),
    MethodRow("__rlshift__", _draw_shift("__rlshift__", True, True), takes_arrays=True),
    MethodRow("__rshift__", _draw_shift("__rshift__", False, False), takes_arrays=True),
    MethodRow("__rrshift__", _draw_shift("__rrshift__", False, True), takes_arrays=True),
    *(
        MethodRow(name, _draw_binary(name, _comparison(f)), takes_arrays=True)
        for name, f in (
            ("__lt__", np.less),
            ("__gt__", np.greater),
            ("__le__", np.less_equal),
            ("__ge__", np.greater_equal),
            ("__eq__", np.equal),
            ("__ne__", np.not_equal),
            ("eq", np.equal),
            ("ne", np.not_equal),
        )
    ),
    MethodRow("where", _draw_where, takes_arrays=True),
    MethodRow("masked_fill", _draw_masked_fill, takes_arrays=True),
    MethodRow("clamp", _draw_clamp("clamp"), takes_arrays=True),
    MethodRow("clip", _draw_clamp("clip"), takes_arrays=True),
)
