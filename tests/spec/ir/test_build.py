"""Builders: symbolic extents (R48, R49), numbers, promotion and refused operands."""

from collections.abc import Callable

import numpy as np
import pytest

from uops.interp import run
from uops.spec.errors import SpecError, SpecTypeError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import Op

N = B.variable("n", 0, 4)
X = B.param(0, (3,), dt.float32)


@pytest.mark.parametrize("pair", [(N, 1), (1, N), (N, N), (0, N)], ids=["before", "after", "both", "only after"])
def test_pad_by_takes_symbolic_amounts(pair: tuple[object, object]) -> None:
    x = np.arange(1, 4, dtype=np.float32)
    before, after = (2 if k is N else k for k in pair)
    assert run(B.pad_by(X, pair), {"p0": x, "n": 2}).values[0].tolist() == np.pad(x, (before, after)).tolist()


def test_pad_by_asks_for_one_pair_per_axis() -> None:
    with pytest.raises(SpecError, match=r"expected one pair per axis of .* for Pad, got 2"):
        B.pad_by(X, (1, 2), (3, 4))


def test_no_extent_is_inferred_beside_a_symbolic_one() -> None:
    for t, shape in ((X, (N, -1)), (B.param(0, (N,), dt.float32), (-1, 2))):
        with pytest.raises(SpecError, match="cannot infer -1"):
            B.reshape(t, shape)


def test_numbers_of_numpy_are_those_of_python() -> None:
    assert B.const(np.int64(3)) is B.const(3)
    assert B.const(np.float64(0.5)) is B.const(0.5)
    assert B.const(np.bool_(True)) is B.const(True)
    assert B.index(np.int64(3)) is B.index(np.array(3)) is B.index(3)
    assert B.variable("n", np.int64(0), np.uint8(4)) is N
    assert B.param(0, (np.int64(3),), dt.float32) is X


@pytest.mark.parametrize("dtype", [dt.int8, dt.int64, dt.float64, dt.index, dt.bool_])
@pytest.mark.parametrize("number", [np.int64(2**40), np.int64(3), np.uint8(3), np.bool_(True), np.float32(0.5)])
def test_an_operand_of_numpy_is_that_of_python(number: np.generic, dtype: dt.DType) -> None:
    x = B.param(0, (4,), dtype)
    assert B.as_node_in_preferred_dtype(number, dtype) is B.as_node_in_preferred_dtype(number.item(), dtype)  # type: ignore[arg-type]
    assert B.add(x, number) is B.add(x, number.item())  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [lambda: B.const("a"), lambda: B.add(X, None), lambda: B.const(1j), lambda: B.index(1.5)])
def test_what_is_no_number_is_no_constant(make: Callable[[], object]) -> None:
    with pytest.raises(SpecError, match=r"expected a bool, an int or a float as a constant, got|is no value of index"):
        make()


@pytest.mark.parametrize("collection", [[1], {}, np.array([1, 2])], ids=str)
@pytest.mark.parametrize("build", [B.const, B.index, lambda x: B.add(X, x), lambda x: B.param(0, (x,), dt.float32)])
def test_a_collection_is_no_number(build: Callable[[object], object], collection: object) -> None:
    with pytest.raises(SpecTypeError, match=r"expected a bool, an int or a float as a constant, got|is no value of index"):
        build(collection)


def test_a_condition_takes_no_part_in_promotion_R25() -> None:
    p = B.param(1, (3,), dt.bool_)
    assert [s.dtype for s in B.where(p, p, X).src] == [dt.bool_, dt.float32, dt.float32]
    assert [s.dtype for s in B.where(p, X, p).src] == [dt.bool_, dt.float32, dt.float32]


def test_an_extent_is_whole() -> None:
    with pytest.raises(SpecError, match=r"1.5 is no value of index"):
        B.param(0, (1.5,), dt.float32)


@pytest.mark.parametrize(("shape", "axis"), [((3, 4), 2), ((3, 4), -3), ((), 0)])
def test_an_axis_to_reduce_is_one_of_the_shape(shape: tuple[int, ...], axis: int) -> None:
    for build in (lambda t: B.reduce(t, Op.ADD, (axis,)), lambda t: B.sum_and_drop_axis(t, axis)):
        with pytest.raises(SpecError, match=r"REDUCE.C3"):
            build(B.param(0, shape, dt.float32))


@pytest.mark.parametrize("given", [{"alt": B.const(0.0)}, {"gate": B.const(True)}], ids=["alt", "gate"])
def test_a_load_takes_alt_and_gate_together_R52(given: dict[str, object]) -> None:
    with pytest.raises(TypeError, match=f"together or neither .*, got only {next(iter(given))}"):
        B.load(X, **given)  # type: ignore[arg-type]
