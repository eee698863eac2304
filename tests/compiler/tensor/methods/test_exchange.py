"""Exchange: who owns the memory, what is copied, and what DLPack may share."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from uops import SpecError, Tensor
from uops.spec.errors import SpecTypeError, SpecValueError
from uops.spec.ir import dtypes as dt


def test_a_tensor_of_an_array_is_a_copy() -> None:
    x = np.array([1.0, 2.0], np.float32)
    t = Tensor(x)
    x[0] = 9
    assert t.tolist() == [1.0, 2.0]


def test_from_numpy_shares_memory_where_it_is_contiguous() -> None:
    x = np.arange(6, dtype=np.int64).reshape(2, 3)
    t = Tensor.from_numpy(x)
    assert np.shares_memory(t.numpy(), x) and t.tolist() == x.tolist()
    assert x.flags.writeable
    turned = Tensor.from_numpy(x.T)
    assert not np.shares_memory(turned.numpy(), x) and turned.tolist() == x.T.tolist()


def test_numpy_is_a_read_only_view_of_the_tensors_memory() -> None:
    t = Tensor([1, 2]) + 1
    first, second = t.numpy(), t.numpy()
    assert np.shares_memory(first, second) and not first.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 5


def test_array_protocol_copies_when_asked_and_converts() -> None:
    t = Tensor([1, 2])
    copied = np.array(t)
    copied[0] = 7
    assert t.tolist() == [1, 2]
    assert np.asarray(t).dtype == np.int32 and not np.asarray(t).flags.writeable
    assert np.asarray(t, dtype=np.float64).tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="needs a copy"):
        t.__array__(np.float64, copy=False)


def test_lists_and_numbers_have_the_dtypes_they_have_alone() -> None:
    assert [Tensor(v).dtype for v in (True, 1, 1.0, 2**40)] == [dt.bool_, dt.int32, dt.float32, dt.int64]
    assert [Tensor(v).dtype for v in ([True], [1], [1.0], [1, 2.5], [2**40], [])] == [
        dt.bool_, dt.int32, dt.float32, dt.float32, dt.int64, dt.float32,
    ]  # fmt: skip
    assert Tensor([np.float64(1)]).dtype is dt.float64
    assert Tensor([1, 2], dtype="float16").dtype is dt.float16
    assert Tensor([Tensor([1, 2]), Tensor([3, 4])]).tolist() == [[1, 2], [3, 4]]
    assert Tensor().shape == (0,)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint64", "float16", "float64", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
)
def test_every_dtype_goes_in_and_out(dtype: Any) -> None:
    x = np.array([[0, 1], [2, 3]]).astype(dtype)
    assert Tensor(x).numpy().dtype == x.dtype
    assert (Tensor(x).T.contiguous()).numpy().tolist() == x.T.tolist()


def test_other_byte_orders_are_converted() -> None:
    assert Tensor(np.array([1, 258], ">i4")).tolist() == [1, 258]


LISTS: list[tuple[Any, str]] = [
    ([0.1, 1e300], "float64"),
    ([[16777217.0, -1.9], [2147483647.0, 0]], "int32"),
    ([2**53 + 1, 0.5], "int64"),
    ([2**64 - 1, 3], "uint64"),
    ([2**63, -1], "float64"),
    ([2**64, 10**30], "float32"),
    ([2**60 + 2**36 + 1, 0.5], "float32"),
    ([0.1, 65520, 2049], "float16"),
    ([0.1, 0.0, float("nan"), -2], "bool"),
    ([True, False], "uint8"),
    ([], "int8"),
    ([[1, 2.5], [True, 3]], "float64"),
]


@pytest.mark.parametrize(("listed", "dtype"), LISTS, ids=str)
def test_python_numbers_are_converted_to_the_dtype_asked_for_at_once(listed: Any, dtype: str) -> None:
    with np.errstate(over="ignore"):
        wanted = np.array(listed, dtype)
    if listed == [2**60 + 2**36 + 1, 0.5]:  # NumPy goes by way of float64
        wanted[0] = np.float32(2**60 + 2**37)
    np.testing.assert_array_equal(Tensor(listed, dtype=dtype).numpy(), wanted)
    assert Tensor(listed, dtype=dtype).numpy().dtype == wanted.dtype
    flat = np.array(listed, object).reshape(-1)
    for value, one in zip(flat, wanted.reshape(-1), strict=True):
        np.testing.assert_array_equal(Tensor(value, dtype=dtype).numpy(), one)
        np.testing.assert_array_equal(Tensor.full((2,), value, dtype=dtype).numpy(), np.full(2, one))


@pytest.mark.parametrize("dtype", ["bfloat16", "fp8e4m3", "fp8e5m2"])
def test_narrow_floats_are_rounded_once_from_python_numbers(dtype: str) -> None:
    d = dt.DTYPES[dtype]
    tie = 1 + 2.0 ** -(d.man_bits + 1)
    above = tie + 2.0**-40  # in float32 the tie, which is rounded to even
    one = 1 + 2.0**-d.man_bits
    assert Tensor([above, tie], dtype=dtype).tolist() == [one, 1.0]


def test_an_integer_beyond_float64_is_rounded_once() -> None:
    assert Tensor([2**60 * 257 + 1, 0], dtype="bfloat16").tolist() == [2.0**60 * 258, 0]
    assert Tensor([2**60 * 257 + 1, 0.5], dtype="bfloat16").tolist() == [2.0**60 * 258, 0.5]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (300, "int8"),
        (-1, "uint8"),
        (2**64, "uint64"),
        (1e10, "int32"),
        (-1.5, "uint8"),
        (float("inf"), "int64"),
        (float("nan"), "int8"),
    ],
)
def test_numbers_that_an_integer_dtype_lacks_are_errors_as_in_numpy(value: Any, dtype: str) -> None:
    for made in (
        lambda: Tensor(value, dtype=dtype),
        lambda: Tensor([0, value], dtype=dtype),
        lambda: Tensor([[value]], dtype=dtype),
    ):
        with pytest.raises(SpecValueError, match=f"Tensor: expected a value of {dtype}, from"):
            made()
        with pytest.raises((OverflowError, ValueError)):
            np.array([value], dtype)


def test_numbers_of_a_list_that_no_dtype_holds_together_are_an_error() -> None:
    with pytest.raises(SpecValueError, match=r"Tensor: no integer dtype holds -1 to 9223372036854775808 \[CONST.C2"):
        Tensor([2**63, -1])
    with pytest.raises(SpecValueError, match="Tensor: 18446744073709551616 is no value of an integer dtype"):
        Tensor([2**64])


def test_a_list_of_something_else_is_a_type_error() -> None:
    for value in (["1"], [None], [1, "a"], [1j], [{}], object(), "12", {1, 2}, None):
        with pytest.raises(SpecTypeError, match=r"^Tensor: "):
            Tensor(value)
        with pytest.raises(SpecTypeError, match=r"^Tensor: "):
            Tensor(value, dtype="float32")


@pytest.mark.parametrize("value", [np.array([1j]), np.array(["a"]), np.array([None]), object(), {1: 2}, [[1], [1, 2]], [2**70]])
def test_what_is_no_tensor_is_refused(value: Any) -> None:
    with pytest.raises(SpecError):
        Tensor(value)


def test_item_and_conversions_need_one_element() -> None:
    t = Tensor([[3]])
    assert (t.item(), int(t), float(t), bool(t), [0, 1, 2, 5][t]) == (3, 3, 3.0, True, 5)
    with pytest.raises(SpecError, match=r"Tensor.__bool__: expected one element, got 2 of shape \(2,\)"):
        bool(Tensor([1, 2]))
    with pytest.raises(TypeError, match="expected a Tensor of an integer dtype"):
        range(Tensor(1.0))  # type: ignore[arg-type]


def test_a_consumer_of_dlpack_that_knows_read_only_shares_memory() -> None:
    t = Tensor([1.0, 2.0])
    seen = np.from_dlpack(t)
    assert np.shares_memory(seen, t.numpy()) and not seen.flags.writeable
    assert t.__dlpack_device__() == (1, 0)


class Old:
    """A consumer of the first DLPack: it names no version."""

    def __init__(self, t: Tensor) -> None:
        self.t = t

    def __dlpack__(self, **ignored: Any) -> Any:
        return self.t.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.t.__dlpack_device__()


def test_an_older_consumer_of_dlpack_gets_a_copy_of_its_own() -> None:
    t = Tensor([1.0, 2.0])
    seen = np.from_dlpack(Old(t))
    assert not np.shares_memory(seen, t.numpy()) and seen.tolist() == [1.0, 2.0]
    with pytest.raises(BufferError, match="read-only"):
        t.__dlpack__(copy=False)


def test_from_dlpack_shares_the_producers_memory() -> None:
    x = np.arange(4, dtype=np.float32)
    t = Tensor.from_dlpack(x)
    assert np.shares_memory(t.numpy(), x)
    again = Tensor.from_dlpack(t * 1)
    assert again.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_dtype_that_dlpack_lacks_is_a_buffer_error() -> None:
    with pytest.raises(BufferError):
        np.from_dlpack(Tensor([1.0]).bfloat16())


def test_repr_says_what_is_known() -> None:
    t = Tensor([1.0]) + 1
    assert repr(t) == "<Tensor (1,) float32 lazy>"
    t.realize()
    assert repr(t) == "<Tensor (1,) float32>"


def test_what_is_no_array_is_named() -> None:
    with pytest.raises(SpecError, match=r"Tensor.from_numpy: expected an array, got list"):
        Tensor.from_numpy([1, 2])
    with pytest.raises(SpecError, match=r"Tensor.from_dlpack: 'list' object has no attribute '__dlpack__'"):
        Tensor.from_dlpack([1, 2])
