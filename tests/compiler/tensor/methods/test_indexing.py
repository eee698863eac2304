"""Indexing is NumPy's: integers, slices, None, Ellipsis, zipped Tensor indices; gather and one_hot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops import Op, SpecError, Tensor, Trap
from uops.compiler.tensor import capture
from uops.interp import run
from uops.spec.ir.node import toposort

X = np.arange(2 * 5 * 7, dtype=np.int32).reshape(2, 5, 7)
Fn = Callable[..., Any]

#: Keys of NumPy and of a Tensor alike.
BASIC: dict[str, Any] = {
    "integer": 1,
    "negative": -1,
    "all_integers": (1, 2, 3),
    "slice": slice(1, 2),
    "middle": (slice(None), slice(1, 4)),
    "step": (..., slice(None, None, 2)),
    "step_from": (..., slice(1, None, 3)),
    "step_to": (..., slice(0, 6, 4)),
    "step_past_the_end": (0, slice(2, None, 2), slice(6, None, 5)),
    "two_steps": (slice(None), slice(None, None, 3), slice(3, None, 2)),
    "reverse": (..., slice(None, None, -1)),
    "reverse_step": (slice(None), slice(4, 0, -2), slice(None, None, -3)),
    "negative_bounds": (slice(None), slice(-3, -1)),
    "out_of_bounds": (slice(None), slice(3, 99)),
    "empty": (slice(None), slice(3, 1)),
    "one_element": (slice(None), slice(2, 3)),
    "new_axis": (None, 1, None, slice(2), None),
    "ellipsis": (1, ..., 2),
    "ellipsis_of_nothing": (1, 2, ..., 3),
    "nothing": (),
}
ROWS, PICKS = np.array([4, 0, -1]), np.array([[1], [0]])
ADVANCED: dict[str, Any] = {
    "list": [1, 0, 1],
    "axis_1": (slice(None), ROWS),
    "last_axis": (..., ROWS),
    "matrix": (slice(None), np.array([[0, 1], [4, 4]])),
    "zipped": (slice(None), ROWS, np.array([6, 5, -7])),
    "broadcast": (PICKS, ROWS),
    "with_slice": (slice(None, None, -1), ROWS, slice(1, 5, 2)),
    "apart": (PICKS, slice(None), np.array([1, 2])),
    "integer_apart": (0, slice(None), ROWS),
    "integer_beside": (slice(None), 2, ROWS),
    "new_axis_between": (PICKS, None, ROWS),
    "new_axis_first": (None, slice(None), ROWS),
    "empty_ellipsis_between": (slice(None), ROWS, ..., np.array([6, 5, -7])),
    "empty_ellipsis_beside": (slice(None), ROWS, np.array([6, 5, -7]), ...),
    "all_axes": (np.array([0, 1]), np.array([2, -5]), np.array([3, 3])),
    "empty": (slice(None), np.zeros(0, np.int64)),
    "scalar_tensor": (slice(None), np.array(3)),
}


@pytest.mark.parametrize("name", BASIC)
def test_basic_indexing_is_numpys(name: str, agree: Any) -> None:
    agree(Tensor(X)[BASIC[name]], X[BASIC[name]], 0)


@pytest.mark.parametrize("name", ADVANCED)
def test_tensor_indices_are_numpys(name: str, agree: Any) -> None:
    key = ADVANCED[name]
    mine = tuple(Tensor(k) if isinstance(k, np.ndarray) else k for k in key) if isinstance(key, tuple) else key
    agree(Tensor(X)[mine], X[key], 0)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64"])
def test_every_integer_dtype_indexes_more_than_it_counts(dtype: str, agree: Any) -> None:
    """-1 of 300 elements is 299, which 8 bits do not hold."""
    x = np.arange(300, dtype=np.int32)
    i = np.array([0, 100, 127] if dtype.startswith("u") else [0, -1, 127, -128], dtype)
    agree(Tensor(x)[Tensor(i)], x[i])


def test_a_tensor_index_is_one_index_node() -> None:
    t = Tensor(np.ones((50, 4), np.float32))[Tensor([1, 2])]
    ops = [u.op for u in toposort(t.uop)]
    assert ops.count(Op.INDEX) == 1 and Op.REDUCE not in ops


def _at(dtype: str, *rows: int) -> Tensor:
    return Tensor(np.array(rows, dtype))


def _assigned() -> Tensor:
    t = Tensor(np.zeros((3, 4), np.int32))
    t[_at("int32", 0), _at("int32", 5)] = Tensor(np.array([9], np.int32))
    return t


ROWS = np.arange(12).reshape(3, 4)
OUTSIDE: dict[str, Callable[[], Tensor]] = {
    "one": lambda: Tensor(ROWS)[_at("int32", 3)],
    "one_negative": lambda: Tensor(ROWS)[_at("int32", -4)],
    "wide": lambda: Tensor(ROWS)[_at("int64", 2**32)],
    "column_of_a_pair": lambda: Tensor(ROWS)[_at("int32", 0), _at("int32", 5)],
    "negative_of_a_pair": lambda: Tensor(ROWS)[_at("int32", 1), _at("int32", -5)],
    "pair_that_wraps": lambda: Tensor(ROWS)[_at("int32", 2**30), _at("int32", 1)],
    "wide_of_a_pair": lambda: Tensor(ROWS)[_at("uint64", 0), _at("uint64", 2**32)],
    "gather": lambda: Tensor(ROWS).gather(1, _at("int32", 4).reshape(1, 1)),
    "gather_negative": lambda: Tensor(ROWS).gather(1, _at("int8", -5).reshape(1, 1)),
    "gather_wide": lambda: Tensor(ROWS).gather(0, _at("int64", 2**32).reshape(1, 1)),
    "gather_of_one_axis": lambda: Tensor(ROWS[0]).gather(0, _at("int64", 2**32)),
    "assigned": _assigned,
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_index_out_of_range_traps(name: str) -> None:
    captured = capture(OUTSIDE[name]())
    with pytest.raises(Trap, match="R45"):
        run(captured.graph, captured.inputs)


def test_an_assignment_out_of_range_leaves_the_rest_as_it_was() -> None:
    """Where nobody looks (R163): elsewhere it is an IndexError."""
    t = _assigned()
    assert not t.realize(unchecked=True).numpy().any()


def test_an_array_of_no_axes_is_an_integer() -> None:
    assert Tensor(ROWS)[np.array(2)].tolist() == ROWS[2].tolist()
    with pytest.raises(SpecError, match=r"INDEX\.C4"):
        Tensor(ROWS)[np.array(2.0)]


def test_iteration_gives_the_parts_of_the_first_axis() -> None:
    assert [t.tolist() for t in Tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gather_is_take_along_axis(dim: int, agree: Any) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3, 4, 5)).astype(np.float32)
    shape = [3, 4, 5]
    shape[dim] = 6
    index = rng.integers(-x.shape[dim], x.shape[dim], shape)
    agree(Tensor(x).gather(dim, Tensor(index)), np.take_along_axis(x, index, dim), 0)
    agree(Tensor(x).gather(dim, Tensor(index[:1, :2, :3])), np.take_along_axis(x, index, dim)[:1, :2, :3], 0)


def test_one_hot_has_a_one_where_the_index_is(agree: Any) -> None:
    i = np.array([[0, 2], [3, 9]], np.int64)
    agree(
        [Tensor(i).one_hot(4), Tensor([1], dtype="uint8").one_hot(300)[:, :2]],
        [(i[..., None] == np.arange(4)).astype("i4"), np.array([[0, 1]], "i4")],
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t[2], r"Tensor.__getitem__: index 2 is out of range for axis 0 of shape \(2, 5, 7\) \[SHRINK.C2"),
        (lambda t: t[0, 0, 0, 0], r"one index per axis of shape \(2, 5, 7\), got 4 \[INDEX.C2"),
        (lambda t: t[..., ...], "at most one Ellipsis, got 2"),
        (
            lambda t: t[Tensor([True, False])],
            r"an index of an integer dtype, got bool; a bool mask selects .* use where \[INDEX.C4",
        ),
        (lambda t: t[:0][np.zeros(0, np.bool_)], r"an index of an integer dtype, got bool"),
        (lambda t: t[np.zeros(0, np.float32)], r"an index of an integer dtype, got float32"),
        (lambda t: t[Tensor([1.0])], r"expected an index of an integer dtype, got float32 \[INDEX.C4"),
        (lambda t: t[True], "expected an integer, a slice, None, ... or an array, got bool"),
        (lambda t: t[1.0], "expected an integer, a slice, None, ... or an array, got float"),
        (lambda t: t[::0], "slice step cannot be zero"),
        (lambda t: t[Tensor([0, 1]), Tensor([0, 1, 2])], r"indices of shapes \(2,\), \(3,\) do not broadcast \[ADD.C3"),
        (
            lambda t: t.gather(0, Tensor([[1]])),
            r"Tensor.gather: expected an index with the axes of shape \(2, 5, 7\), .* got \(1, 1\) \[INDEX.C2",
        ),
        (lambda t: t.gather(0, Tensor([[[1.0]]])), r"\[INDEX.C4"),
    ],
)
def test_mistakes_name_the_claim_and_the_shapes(call: Fn, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        call(Tensor(X))


def test_a_step_splits_no_other_axis() -> None:
    many = Tensor(np.arange(4).reshape((4,) + (1,) * 39))
    assert many[::2].flatten().tolist() == [0, 2]
    many[::2] = 7
    assert many.flatten().tolist() == [7, 1, 7, 3]
