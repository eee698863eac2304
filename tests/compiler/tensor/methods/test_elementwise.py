"""Elementwise methods are NumPy's, on every dtype they have, over empty, scalar and broadcast shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops import SpecError, Tensor
from uops.compiler.tensor.methods.elementwise import build_lambert_tanh_polynomials
from uops.spec.errors import SpecValueError
from uops.spec.ir.dtypes import DTYPES
from uops.spec.ir.node import toposort
from uops.spec.ir.ops import Op

SHAPES = ((), (0,), (5,), (2, 1, 3))
PAIRS = (((), ()), ((4,), ()), ((2, 1, 3), (4, 1)), ((0, 3), (1, 3)), ((1,), (0,)))
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTS = ("int8", "int32", "uint8", "int64", "uint64")

Fn = Callable[..., Any]


def gelu(x: Any) -> Any:
    """The tanh form without its cancellation, in float64."""
    with np.errstate(over="ignore"):
        return x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


# name -> method, NumPy on float64, low, high, units of the last place; exp grows with |x| as its docstring says
# fmt: off
UNARY: dict[str, tuple[Fn, Fn, float, float, float]] = {
    "neg":        (lambda t: -t,                np.negative,                       -4, 4, 0),
    "abs":        (abs,                         np.abs,                            -4, 4, 0),
    "sign":       (Tensor.sign,                 np.sign,                           -4, 4, 0),
    "square":     (Tensor.square,               np.square,                         -4, 4, 1),
    "reciprocal": (Tensor.reciprocal,           lambda x: 1 / x,                   1, 4, 1),
    "sqrt":       (Tensor.sqrt,                 np.sqrt,                           0, 4, 1),
    "rsqrt":      (Tensor.rsqrt,                lambda x: 1 / np.sqrt(x),          1, 4, 2),
    "exp2":       (Tensor.exp2,                 np.exp2,                           -4, 4, 2),
    "log2":       (Tensor.log2,                 np.log2,                           1, 9, 2),
    "exp":        (Tensor.exp,                  np.exp,                            -8, 8, 12),
    "log":        (Tensor.log,                  np.log,                            1, 9, 4),
    "log1p":      (Tensor.log1p,                np.log1p,                      -1e-3, 9, 8),
    "sin":        (Tensor.sin,                  np.sin,                            -4, 4, 2),
    "tanh":       (Tensor.tanh,                 np.tanh,                           -3, 3, 6),
    "sigmoid":    (Tensor.sigmoid,              lambda x: 1 / (1 + np.exp(-x)),    -6, 6, 12),
    "silu":       (Tensor.silu,                 lambda x: x / (1 + np.exp(-x)),    -6, 6, 14),
    "gelu":       (Tensor.gelu,                 gelu,                              -3, 3, 16),
    "softplus":   (Tensor.softplus,             lambda x: np.log1p(np.exp(x)),     -6, 6, 16),
    "relu":       (Tensor.relu,                 lambda x: np.maximum(x, 0),        -4, 4, 0),
    "leaky_relu": (Tensor.leaky_relu,           lambda x: np.where(x > 0, x, .01 * x), -4, 4, 2),
    "trunc":      (Tensor.trunc,                np.trunc,                          -4, 4, 0),
    "floor":      (Tensor.floor,                np.floor,                          -4, 4, 0),
    "ceil":       (Tensor.ceil,                 np.ceil,                           -4, 4, 0),
    "round":      (Tensor.round,                np.round,                          -4, 4, 0),
    "clamp":      (lambda t: t.clamp(-1, 2),    lambda x: np.clip(x, -1, 2),       -4, 4, 0),
}
#: Those with an absolute error: units of the last place of 1.
ABSOLUTE: dict[str, tuple[Fn, Fn, float]] = {
    "cos":      (Tensor.cos,      np.cos,                                              4),
}
BINARY: dict[str, tuple[Fn, Fn]] = {
    "add":      (lambda a, b: a + b,           np.add),
    "sub":      (lambda a, b: a - b,           np.subtract),
    "mul":      (lambda a, b: a * b,           np.multiply),
    "maximum":  (Tensor.maximum,               np.maximum),
    "minimum":  (Tensor.minimum,               np.minimum),
    "lt":       (lambda a, b: a < b,           np.less),
    "le":       (lambda a, b: a <= b,          np.less_equal),
    "gt":       (lambda a, b: a > b,           np.greater),
    "ge":       (lambda a, b: a >= b,          np.greater_equal),
    "eq":       (lambda a, b: a == b,          np.equal),
    "ne":       (lambda a, b: a != b,          np.not_equal),
}
WHOLE: dict[str, tuple[Fn, Fn]] = {
    "idiv":     (lambda a, b: a // b,          np.floor_divide),
    "and":      (lambda a, b: a & b,           np.bitwise_and),
    "or":       (lambda a, b: a | b,           np.bitwise_or),
    "xor":      (lambda a, b: a ^ b,           np.bitwise_xor),
}
# fmt: on


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_floats_are_numpys(name: str, dtype: str, agree: Any, data: Any) -> None:
    method, reference, low, high, units = UNARY[name]
    arrays = [data(*s, dtype=dtype, low=low, high=high) for s in SHAPES]
    agree([method(Tensor(x)) for x in arrays], [reference(x.astype(np.float64)).astype(dtype) for x in arrays], units)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ABSOLUTE)
def test_functions_with_an_absolute_error_stay_within_it(name: str, dtype: str, agree: Any, data: Any) -> None:
    method, reference, units = ABSOLUTE[name]
    x = data(40, dtype=dtype, low=-7, high=7)
    agree(method(Tensor(x)), reference(x.astype(np.float64)), units, scale=1)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
@pytest.mark.parametrize("name", BINARY)
def test_operators_broadcast_and_are_numpys(name: str, dtype: str, agree: Any, data: Any) -> None:
    method, reference = BINARY[name]
    pairs = [(data(*s, dtype=dtype), data(*r, dtype=dtype)) for s, r in PAIRS]
    agree([method(Tensor(x), Tensor(y)) for x, y in pairs], [reference(x, y) for x, y in pairs], 0)


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("name", WHOLE)
def test_integer_operators_are_numpys(name: str, dtype: str, agree: Any, data: Any) -> None:
    method, reference = WHOLE[name]
    x, y = data(4, 1, dtype=dtype, low=-9, high=9), data(5, dtype=dtype, low=1, high=9)
    agree(method(Tensor(x), Tensor(y)), reference(x, y))


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_mod_and_floor_division_have_the_sign_of_the_divisor(dtype: str, agree: Any) -> None:
    x, y = np.arange(-7, 8).astype(dtype), np.array([[3], [-3], [4]], dtype)
    agree([Tensor(x) % Tensor(y), Tensor(x) // Tensor(y)], [np.mod(x, y), np.floor_divide(x, y)], 2)


def test_integer_division_by_zero_is_zero_and_mod_the_dividend(agree: Any) -> None:
    x = np.array([-3, 0, 5], np.int32)
    agree([Tensor(x) // 0, Tensor(x) % 0], [np.zeros(3, np.int32), x])


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool", "float16", "float64"])
def test_division_gives_a_float(dtype: str, agree: Any, data: Any) -> None:
    x, y = data(3, dtype=dtype, low=0, high=2), np.array([1, 2, 4], np.float16 if dtype == "float16" else dtype)
    out = Tensor(x) / Tensor(y)
    assert out.dtype is DTYPES[dtype if dtype.startswith("float") else "float32"]
    agree(out, x.astype(np.float64) / y.astype(np.float64), 1)


def test_shifts_and_inversion_are_numpys(agree: Any) -> None:
    x = np.array([-8, -1, 0, 5, 127], np.int8)
    u = np.array([0, 1, 200], np.uint8)
    b = np.array([True, False])
    agree(
        [Tensor(x) << 1, Tensor(x) >> 2, ~Tensor(x), ~Tensor(u), ~Tensor(b), Tensor(x).logical_not()],
        [x << 1, x >> 2, ~x, ~u, ~b, np.logical_not(x)],
    )


def test_powers_by_products_and_by_pow(agree: Any) -> None:
    x = np.array([0.5, 1, 2, 3], np.float32)
    i = np.array([-2, 0, 3], np.int32)
    agree(
        [
            Tensor(x) ** 0,
            Tensor(x) ** 3,
            Tensor(x) ** -1,
            Tensor(x) ** 0.5,
            2.0 ** Tensor(x),
            Tensor(i) ** 5,
            Tensor(x).pow(Tensor(x)),
        ],
        [x**0, x**3, 1 / x, np.sqrt(x), 2.0**x, i**5, x**x],
    )


POWERS: dict[str, tuple[str, str]] = {  # dtype of the base -> of the exponent; NumPy's common dtype is that of R25
    "int8": ("int8", "int8"),
    "uint8": ("uint8", "uint8"),
    "int16": ("uint8", "int16"),
    "int32": ("int32", "int32"),
    "int64": ("int32", "int64"),
    "uint64": ("uint64", "uint32"),
}


@pytest.mark.parametrize("dtype", POWERS)
def test_powers_of_integers_multiply_in_their_dtype(dtype: str, agree: Any) -> None:
    first, second = POWERS[dtype]
    rng = np.random.default_rng(3)
    x = rng.integers(np.iinfo(first).min, np.iinfo(first).max, (40, 1), first, endpoint=True)
    y = np.array([0, 1, 2, 3, 5, 31, 64, 127, *rng.integers(0, np.iinfo(second).max, 8, second)], second)
    assert (x**y).dtype == dtype == (Tensor(x) ** Tensor(y)).dtype.name
    agree([Tensor(x) ** Tensor(y), 3 ** Tensor(y), Tensor(x) ** 65], [x**y, second_power(y), x ** np.array(65, first)])


def second_power(y: Any) -> Any:
    return np.array(3, y.dtype) ** y


def test_powers_of_integers_and_numbers_have_the_dtypes_of_every_operator(agree: Any) -> None:
    b, i = np.array([True, False]), np.array([3, -2], "i1")
    cases = [
        (Tensor(b) ** 2, b.astype("i4")),
        (Tensor(i) ** 200, np.array([3**200 % 2**32, 0], "u4").view("i4")),
        (Tensor(i) ** 0, i**0),
        (Tensor(i) ** True, i),
        (Tensor(b) ** Tensor(b), b | ~b),
        (Tensor(7) ** Tensor(3), np.array(343, "i4")),
        (Tensor(i) ** 2.0, i.astype("f4") ** 2),
    ]
    assert [t.dtype.name for t, _ in cases] == [want.dtype.name for _, want in cases]
    agree([t for t, _ in cases], [want for _, want in cases])


NEGATIVE = (
    lambda: Tensor([2]) ** -1,
    lambda: Tensor([2]) ** Tensor(-1),
    lambda: Tensor([1, 2]) ** Tensor([3, -1]),
    lambda: 2 ** Tensor([-1]),
    lambda: Tensor([2]) ** (Tensor([-1]) + 0).realize(),
)


@pytest.mark.parametrize("k", range(len(NEGATIVE)))
def test_a_negative_power_of_integers_is_a_value_error(k: int) -> None:
    with pytest.raises(SpecValueError, match=r"Tensor.pow: expected an exponent of at least 0 for integers, got -1"):
        NEGATIVE[k]()


def test_a_negative_power_that_is_computed_is_the_whole_part_R165(agree: Any) -> None:
    x, y = np.array([[1], [-1], [2], [-3], [0]], "i4"), np.array([-1, -2, 3], "i4")
    want = np.array([[1, 1, 1], [-1, 1, -1], [0, 0, 8], [0, 0, -27], [0, 0, 0]], "i4")
    agree([Tensor(x) ** (Tensor(y) + 0), Tensor(x).cast("int8") ** (Tensor(y) + 0).cast("int8")], [want, want.astype("i1")])


def test_where_takes_scalars_and_any_condition(agree: Any) -> None:
    p, x = np.array([0, 2, 0, -1], np.int32), np.array([1.5, 2.5, 3.5, 4.5], np.float32)
    agree(
        [Tensor(p).where(x, 0), Tensor(p).where(1.0, 0.0), Tensor(p).where(1, 2), Tensor(x).masked_fill(Tensor(p), -1)],
        [np.where(p, x, 0), np.where(p, np.float32(1), np.float32(0)), np.where(p, 1, 2).astype(np.int32), np.where(p, -1, x)],
    )


@pytest.mark.parametrize(("a", "b"), [(2**40, 0), (0, 2**40), (-(2**40), 2**40), (2**63, 0), (2.5, 1), (True, 2)])
def test_where_takes_two_numbers_as_they_are(a: Any, b: Any, agree: Any) -> None:
    dtype = "f4" if isinstance(a, float) else "i4" if abs(a) < 2**31 > b else "u8" if a == 2**63 else "i8"
    agree(Tensor([1, 0]).where(a, b), np.array([a, b], dtype))


def test_predicates_of_floats(agree: Any) -> None:
    x = np.array([1, np.nan, np.inf, -np.inf], np.float32)
    agree([Tensor(x).isnan(), Tensor(x).isinf(), Tensor([1, 2]).isinf()], [np.isnan(x), np.isinf(x), np.zeros(2, bool)])


EXTREMES = np.array([0.0, -0.0, 1e-30, -1e-30, 88, -88, 200, -200, 1e20, -1e20, 3e38, -3e38], np.float32)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("tanh", np.tanh),
        ("sigmoid", lambda x: np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-np.abs(x)))),
        ("gelu", gelu),
        ("silu", lambda x: np.where(x < 0, x * np.exp(np.minimum(x, 0)), x) / (1 + np.exp(-np.abs(x)))),
        ("softplus", lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))),
        ("exp", np.exp),
    ],
)
def test_finite_arguments_never_give_nan(name: str, wanted: Fn, agree: Any) -> None:
    """Far from 0 the activations reach their limits; exp overflows to infinity."""
    with np.errstate(over="ignore"):
        agree(getattr(Tensor(EXTREMES), name)(), wanted(EXTREMES.astype(np.float64)).astype(np.float32), 100, scale=1e-36)


def test_infinite_arguments_of_bounded_functions() -> None:
    x = Tensor([math.inf, -math.inf])
    assert x.tanh().tolist() == [1.0, -1.0]
    assert x.sigmoid().tolist() == [1.0, 0.0]
    assert x.exp().tolist() == [math.inf, 0.0]


def test_tanh_keeps_its_relative_error_near_zero(agree: Any) -> None:
    x = np.geomspace(1e-30, 0.6, 60).astype(np.float32)
    agree(Tensor(x).tanh(), np.tanh(x.astype(np.float64)), 4)


def test_lamberts_fraction_is_exact_to_its_order() -> None:
    p, q = build_lambert_tanh_polynomials(3)
    assert (p, q) == ([15, 1], [15, 6])  # x (15 + x^2) / (15 + 6 x^2)


@pytest.mark.parametrize("name", ["round", "floor", "ceil", "trunc"])
def test_rounding_keeps_the_signs_of_zeros_as_numpy_does(name: str) -> None:
    x = np.array([-0.0, 0.0, 0.2, -0.2, 0.5, -0.5, -0.6, 1.5, -2.5, np.inf, -np.inf, 1e30, 0.49999997, -8388609], "f4")
    for backend in ("interp", "llvm", "c"):
        got = getattr(Tensor(x), name)().realize(backend=backend).numpy()
        np.testing.assert_array_equal(got.view("u4"), getattr(np, name)(x).view("u4"))


def test_relu_is_a_choice_so_that_no_gradient_flows_at_zero() -> None:
    """A maximum of equal numbers shares its gradient (R78)."""
    t = Tensor([1.0]).relu()
    assert t.uop.op is Op.WHERE and Op.MAX not in {u.op for u in toposort(t.uop)}
    assert Op.MAX not in {u.op for u in toposort(Tensor([1.0]).softplus().uop)}


def test_relu_keeps_nan_and_gives_zeros(agree: Any) -> None:
    x = np.array([np.nan, -0.0, 0.0, -np.inf, np.inf, -1, 1, 1e-45], "f4")
    agree(Tensor(x).relu(), np.array([np.nan, 0, 0, 0, np.inf, 0, 1, 1e-45], "f4"), 0)
    agree([Tensor([-2, 3]).relu(), Tensor([True]).relu()], [np.array([0, 3], "i4"), np.array([1], "i4")])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Tensor([True]) - Tensor([True]), r"Tensor.sub: does not take operands of bool and bool \[SUB.C3"),
        (lambda: -Tensor([True]), r"Tensor.neg: expected a numeric dtype, got bool; use logical_not \[NEG.C2"),
        (lambda: Tensor([1.0]) & Tensor([1.0]), r"Tensor.__and__: does not take operands of float32 and float32 \[AND.C3"),
        (lambda: Tensor([1.0]) << 1, r"\[SHL.C2"),
        (lambda: Tensor([True]) // Tensor([True]), r"\[IDIV.C3"),
        (lambda: Tensor([1, 2]) + Tensor([1, 2, 3]), r"Tensor.add: shapes \(2,\), \(3,\) do not broadcast \(R41\) \[ADD.C3"),
        (lambda: Tensor([1]).clip(None, None), "Tensor.clip: expected a least or a greatest value, got neither"),
        (lambda: Tensor([1]) + "x", "an array or a number, got str"),
    ],
)
def test_mistakes_name_the_claim_and_what_was_given(call: Fn, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        call()


@pytest.mark.parametrize("d", ["f32", "i32", "bool"])
@pytest.mark.parametrize(
    "name", ["__add__", "__mul__", "__truediv__", "__lt__", "__lshift__", "__and__", "__floordiv__", "__mod__"]
)
def test_a_second_use_of_an_op_builds_and_refuses_what_the_first_did(name: str, d: str) -> None:
    """What is known of an op and a dtype skips checks that cannot fail again, and no others."""
    x, y, other = (Tensor([1, 0, 1][:n]).cast(d) for n in (3, 3, 2))
    apply = getattr(Tensor, name)

    def outcome(a: Tensor, b: Any) -> Any:
        try:
            return apply(a, b).uop
        except Exception as e:
            return type(e), str(e)

    first = [outcome(x, y), outcome(x, other), outcome(x, x.reshape(3, 1)), outcome(x, y.cast("f64")), outcome(x, 1)]
    assert first == [outcome(x, y), outcome(x, other), outcome(x, x.reshape(3, 1)), outcome(x, y.cast("f64")), outcome(x, 1)]
