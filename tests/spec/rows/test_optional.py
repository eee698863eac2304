"""The bodies of the optional rows mean what C, IEEE 754 and NumPy mean: on random bits, at all edges, and on pairs of these."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from uops.backends.arrays import STORAGE
from uops.backends.testing.values import edge_bits, from_bits, special_bits_for_operand_pairs
from uops.interp import run
from uops.interp.allowed import compute_allowed_sets
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.rows.optional import OPTIONAL, find_optional_function, list_nodes_outside_optional_bodies

Array = np.ndarray[Any, Any]
NATIVE = (dt.float16, dt.float32, dt.float64)
ROUNDING: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_to_even": np.rint,
    "round_away": lambda x: np.copysign(np.trunc(np.abs(x)) + (np.abs(x) % 1 >= 0.5), x),
}


def random_values(d: DType, n: int, seed: int) -> Array:
    return from_bits(np.random.default_rng(seed).integers(0, 1 << d.bits, n, np.uint64, endpoint=False), d)


def unary_operands(d: DType) -> Array:
    halves = (np.arange(-40, 41) / 2).astype(STORAGE[d])
    return np.concatenate([from_bits(np.array(edge_bits(d), np.uint64), d), random_values(d, 2000, 1), halves])


def operand_pairs(d: DType) -> tuple[Array, Array]:
    pairs = np.array([*itertools.product(special_bits_for_operand_pairs(d), repeat=2)], np.uint64).T
    small = [np.random.default_rng(k).integers(-40, 40, 500).astype(STORAGE[d]) for k in (2, 3)]
    x, y = (
        np.concatenate([from_bits(p, d), random_values(d, 2000, k), s]) for k, (p, s) in enumerate(zip(pairs, small, strict=True))
    )
    return x, y


def value_of(name: str, *operands: Array, d: DType) -> Array:
    graph = OPTIONAL[name].build(*(b.param(k, x.shape, d) for k, x in enumerate(operands)))
    return np.asarray(run(graph, {f"p{k}": x for k, x in enumerate(operands)}).values[0])


def assert_equal_but_for_nans(got: Array, expected: Array, signs: bool = True) -> None:
    same = got == expected
    if signs:
        same &= np.signbit(got) == np.signbit(expected)
    assert (same | (np.isnan(got) & np.isnan(expected))).all()


@pytest.mark.parametrize("d", NATIVE, ids=str)
@pytest.mark.parametrize("name", ROUNDING)
def test_rounding_is_that_of_numpy(name: str, d: DType) -> None:
    x = unary_operands(d)
    with np.errstate(all="ignore"):
        assert_equal_but_for_nans(value_of(name, x, d=d), ROUNDING[name](x).astype(x.dtype))


@pytest.mark.parametrize("d", NATIVE, ids=str)
@pytest.mark.parametrize(("name", "function", "signs"), [("fmod", np.fmod, True), ("floor_mod", np.remainder, False)])
def test_remainders_are_exact(name: str, function: Callable[..., Array], signs: bool, d: DType) -> None:
    """C's fmod, which NumPy calls, is exact."""
    x, y = operand_pairs(d)
    with np.errstate(all="ignore"):
        assert_equal_but_for_nans(value_of(name, x, y, d=d), function(x, y), signs)


@pytest.mark.parametrize("name", ["fmod", "floor_mod", "floor_divide"])
def test_bfloat16_is_computed_as_a_float32_is(name: str) -> None:
    x, y = operand_pairs(dt.bfloat16)
    wide = value_of(name, x.astype(np.float32), y.astype(np.float32), d=dt.float32)
    with np.errstate(all="ignore"):
        assert_equal_but_for_nans(
            value_of(name, x, y, d=dt.bfloat16).astype(np.float32), wide.astype(x.dtype).astype(np.float32), signs=False
        )


@pytest.mark.parametrize("d", NATIVE, ids=str)
def test_floor_division_is_exact(d: DType) -> None:
    """NumPy's is not: it gives 6065002 for the quotient 6065003.3 of -70421.23 by -0.011611078 in float32."""
    x, y = operand_pairs(d)
    got = value_of("floor_divide", x, y, d=d).tolist()
    compared = 0
    for p, q, found in zip(x.tolist(), y.tolist(), got, strict=True):
        if math.isfinite(p) and math.isfinite(q) and q and abs(quotient := Fraction(p) / Fraction(q)) < 2**d.man_bits:
            assert found == math.floor(quotient)
            compared += 1
    assert compared > 500


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [(math.inf, 1.0, math.nan), (1.0, math.nan, math.nan), (1.0, math.inf, 0.0), (-1.0, math.inf, -1.0), (-1.0, 0.0, -math.inf),
     (0.0, 0.0, math.nan), (0.0, -math.inf, 0.0)],
)  # fmt: skip
def test_floor_division_of_what_is_no_number(x: float, y: float, expected: float) -> None:
    """As NumPy has it."""
    operands = [np.array([v], np.float32) for v in (x, y)]
    with np.errstate(all="ignore"):
        assert_equal_but_for_nans(np.floor_divide(*operands), np.array([expected], np.float32), signs=False)
    assert_equal_but_for_nans(value_of("floor_divide", *operands, d=dt.float32), np.array([expected], np.float32), signs=False)


@pytest.mark.parametrize("name", ["floor_mod", "floor_divide"])
def test_a_zero_has_either_sign(name: str) -> None:
    graph = OPTIONAL[name].build(b.param(0, (1,), dt.float32), b.param(1, (1,), dt.float32))
    inputs = {"p0": np.array([0.0], np.float32), "p1": np.array([3.0], np.float32)}
    (allowed,) = compute_allowed_sets(graph, inputs).values
    for zero, other in ((0.0, False), (-0.0, False), (1e-45, True)):
        assert allowed.contains(np.array([zero], np.float32)).all() != other


@pytest.mark.parametrize("d", [dt.int8, dt.int16, dt.int32, dt.int64], ids=str)
def test_integers_are_divided_as_in_c(d: DType) -> None:
    pairs = [(x, y) for x, y in itertools.product((d.min, d.min + 1, -7, -1, 0, 1, 6, d.max), repeat=2) if y]
    x, y = (np.array(values, STORAGE[d]) for values in zip(*pairs, strict=True))
    quotients = [abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1) for p, q in pairs]
    wrapped = [(q - d.min) % (1 << d.bits) + d.min for q in quotients]
    assert value_of("trunc_divide", x, y, d=d).tolist() == wrapped
    assert value_of("trunc_remainder", x, y, d=d).tolist() == [p - q * r for (p, q), r in zip(pairs, quotients, strict=True)]


@pytest.mark.parametrize("d", NATIVE, ids=str)
def test_conversion_gives_the_least_integer_out_of_range(d: DType) -> None:
    x = unary_operands(d)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        expected = [int(v) if -(2.0**31) - 1 < v < 2.0**31 else -(2**31) for v in wide]
    assert value_of("cast_by_c", x, d=d).tolist() == expected


@pytest.mark.parametrize("d", [*NATIVE, dt.int8, dt.uint64], ids=str)
def test_sorting_is_stable_with_nans_last(d: DType) -> None:
    x = np.concatenate([random_values(d, 30, 5), random_values(d, 7, 5), from_bits(np.array(edge_bits(d)[:9], np.uint64), d)])
    order = np.argsort(x, kind="stable")
    assert value_of("argsort", x, d=d).tolist() == order.tolist()
    assert value_of("sort", x, d=d).tobytes() == x[order].tobytes()


def test_a_function_is_found_by_its_name_alone() -> None:
    x = b.param(0, (3,), dt.float32)
    call = OPTIONAL["floor"].build(x).packed
    assert find_optional_function(call) is OPTIONAL["floor"]
    for name in (None, "floor", "optional.", "optional.nothing"):
        assert find_optional_function(b.function(b.neg(b.param(0, (3,), dt.float32)), x, name=name)) is None


def test_bodies_of_optional_functions_are_left_out_and_others_are_not() -> None:
    x = b.param(0, (3,), dt.float32)

    def is_inside(graph: UOp) -> bool:
        return any(u.op is Op.TRUNC for u in list_nodes_outside_optional_bodies(graph))

    plain = b.get(b.function(b.trunc(b.param(0, (3,), dt.float32)), OPTIONAL["floor"].build(x)), 0)
    assert [is_inside(OPTIONAL["floor"].build(x)), is_inside(plain)] == [False, True]
    assert is_inside(OPTIONAL["floor"].build(b.trunc(x)))
