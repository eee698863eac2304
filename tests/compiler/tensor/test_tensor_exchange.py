"""Exchange: who owns the memory, what is copied, and what DLPack may share."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from uops import SpecError, Tensor
from uops.spec import dtypes as dt


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


@pytest.mark.parametrize("value", [np.array([1j]), np.array(["a"]), np.array([None]), object(), {1: 2}, [[1], [1, 2]], [2**70]])
def test_what_is_no_tensor_is_refused(value: Any) -> None:
    with pytest.raises(SpecError):
        Tensor(value)


def test_item_and_conversions_need_one_element() -> None:
    t = Tensor([[3]])
    assert (t.item(), int(t), float(t), bool(t), [0, 1, 2, 5][t]) == (3, 3, 3.0, True, 5)
    with pytest.raises(SpecError, match=r"Tensor.item: shape \(2,\) has 2 elements, not one"):
        bool(Tensor([1, 2]))
    with pytest.raises(TypeError, match="is no index"):
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
    with pytest.raises(SpecError, match=r"Tensor.from_numpy: list is no array"):
        Tensor.from_numpy([1, 2])
    with pytest.raises(SpecError, match=r"Tensor.from_dlpack: 'list' object has no attribute '__dlpack__'"):
        Tensor.from_dlpack([1, 2])
