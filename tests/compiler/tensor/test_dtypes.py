"""Promotion, weak numbers and accumulation follow their published tables."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from uops import SpecError, Tensor
from uops.compiler.tensor import ACCUMULATE, choose_accumulation_dtypes, promote
from uops.compiler.tensor.dtypes import as_dtype
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import STORABLE, DType

# fmt: off
# tensor dtype, Python number, dtype of the sum
WEAK: list[tuple[DType, bool | int | float, DType]] = [
    (dt.bool_,    True,    dt.bool_),
    (dt.bool_,    1,       dt.int32),
    (dt.bool_,    1.0,     dt.float32),
    (dt.uint8,    True,    dt.uint8),
    (dt.uint8,    255,     dt.uint8),
    (dt.uint8,    256,     dt.int32),
    (dt.uint8,    -1,      dt.int32),
    (dt.int8,     -128,    dt.int8),
    (dt.int8,     1.5,     dt.float32),
    (dt.int32,    2**31,   dt.int64),
    (dt.int64,    2**63,   promote(dt.int64, dt.uint64)),
    (dt.int64,    0.5,     dt.float32),
    (dt.float16,  3,       dt.float16),
    (dt.bfloat16, 1e30,    dt.bfloat16),
    (dt.fp8e5m2,  1.0,     dt.fp8e5m2),
    (dt.float64,  1,       dt.float64),
]
# fmt: on


@pytest.mark.parametrize(("d", "value", "result"), WEAK)
def test_a_python_number_takes_the_tensors_dtype_where_that_holds_it(d: DType, value: float, result: DType) -> None:
    t = Tensor.zeros(2, dtype=d)
    assert (t + value).dtype is (value + t).dtype is result


def test_equal_numbers_of_other_kinds_and_signs_stay_apart() -> None:
    t = Tensor.zeros(1)
    assert (t.full_like(1).uop, (Tensor([True]) + 1).dtype, (Tensor([True]) & True).dtype) == (
        t.full_like(1).uop,
        dt.int32,
        dt.bool_,
    )
    assert str((Tensor([-0.0]) + 0.0).item()) == "0.0" and str((Tensor([-0.0]) + -0.0).item()) == "-0.0"


def test_a_numpy_scalar_is_not_weak() -> None:
    assert (Tensor.zeros(2) + np.float64(1)).dtype is dt.float64
    assert (Tensor.zeros(2, dtype="int8") + np.int16(1)).dtype is dt.int16


@pytest.mark.parametrize("a", STORABLE)
def test_operands_are_promoted_by_the_lattice(a: DType) -> None:
    for b in STORABLE:
        assert Tensor.zeros(1, dtype=a).maximum(Tensor.zeros(1, dtype=b)).dtype is promote(a, b)


def test_the_table_of_accumulation_covers_every_dtype_and_never_narrows() -> None:
    assert set(ACCUMULATE) == set(STORABLE)
    for d, (inner, outer) in ACCUMULATE.items():
        assert inner.bits >= max(d.bits, 32) and (inner.is_float, outer.is_float) == (d.is_float, d.is_float)
        assert promote(d, inner) is inner
        assert outer in (inner, d)


def test_a_dtype_asked_for_is_the_result_and_floats_accumulate_no_narrower() -> None:
    assert choose_accumulation_dtypes(dt.float32, "float16") == (dt.float32, dt.float16)
    assert choose_accumulation_dtypes(dt.int8, "int64") == (dt.int64, dt.int64)
    assert choose_accumulation_dtypes(dt.float16, "float64") == (dt.float64, dt.float64)
    assert choose_accumulation_dtypes(dt.int64, dt.float32) == (dt.float32, dt.float32)
    assert choose_accumulation_dtypes(dt.int32, "float16") == (dt.float32, dt.float16)
    assert choose_accumulation_dtypes(dt.bool_, "bfloat16") == (dt.float32, dt.bfloat16)


@pytest.mark.parametrize(("dtype", "high", "total"), [("bfloat16", 257, 1), ("float16", 2049, 2), ("float16", 70000, 1000)])
def test_integers_are_not_rounded_to_a_narrow_result_before_they_are_added(dtype: str, high: int, total: int) -> None:
    pair = Tensor([high, total - high])
    assert pair.sum(dtype=dtype).item() == total
    assert pair.reshape(1, 2).matmul(Tensor([[1], [1]]), dtype=dtype).item() == total


@pytest.mark.parametrize(
    ("spelt", "d"),
    [
        ("float32", dt.float32),
        (float, dt.float32),
        (int, dt.int32),
        (bool, dt.bool_),
        (np.float16, dt.float16),
        (np.dtype("uint64"), dt.uint64),
        (np.intc, dt.int32),
        (np.longlong, dt.int64),
        (np.ulonglong, dt.uint64),
        (ml_dtypes.bfloat16, dt.bfloat16),
        (np.dtype(ml_dtypes.float8_e4m3fn), dt.fp8e4m3),
        (dt.int8, dt.int8),
    ],
)
def test_dtypes_are_named_by_the_languages_names_pythons_and_numpys(spelt: object, d: DType) -> None:
    assert as_dtype(spelt) is d


@pytest.mark.parametrize("spelt", ["index", dt.index, "void", np.complex64, "float31", object])
def test_what_no_buffer_holds_is_no_dtype(spelt: object) -> None:
    with pytest.raises(SpecError, match="is not a dtype of a Tensor"):
        as_dtype(spelt)


def test_casts_by_name() -> None:
    t = Tensor([1.5])
    assert [x.dtype.name for x in (t.half(), t.bfloat16(), t.double(), t.int(), t.long(), t.bool(), t.int().float())] == [
        "float16", "bfloat16", "float64", "int32", "int64", "bool", "float32",
    ]  # fmt: skip


def test_an_integer_beyond_every_dtype_is_refused() -> None:
    with pytest.raises(SpecError, match=r"is no value of an integer dtype \[CONST.C2"):
        Tensor(2**64)


def test_promotion_is_the_join_of_a_lattice_R25() -> None:
    """Idempotent, commutative, above both operands, and associative: a sum of many has one dtype in every order."""
    every = (*STORABLE, dt.index)
    for a in every:
        assert promote(a, a) is a
        for b in every:
            both = promote(a, b)
            assert promote(b, a) is both
            assert promote(a, both) is promote(b, both) is both
            for c in every:
                assert promote(both, c) is promote(a, promote(b, c))


@pytest.mark.parametrize(
    ("a", "b", "both"),
    [
        ("bool", "uint8", "uint8"),
        ("uint8", "int8", "int16"),
        ("uint32", "int32", "int64"),
        ("int64", "float16", "float16"),
        ("float16", "bfloat16", "float32"),
        ("fp8e4m3", "fp8e5m2", "float16"),
        ("fp8e4m3", "bfloat16", "float32"),
        ("int64", "bfloat16", "bfloat16"),
        ("int64", "uint64", "uint64"),
        ("float32", "float64", "float64"),
    ],
)
def test_rows_of_the_promotion_table(a: str, b: str, both: str) -> None:
    assert promote(as_dtype(a), as_dtype(b)).name == both
