"""Reductions, prefix sums and products are NumPy's, in the dtypes of the published table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops import SpecError, Tensor
from uops.compiler.tensor import ACCUMULATE, capture
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DTYPES
from uops.spec.rows.compositions import gemm, prefix_sum

Fn = Callable[..., Any]
AXES: tuple[tuple[tuple[int, ...], Any], ...] = (
    ((), None),
    ((5,), None),
    ((5,), 0),
    ((2, 3, 4), 1),
    ((2, 3, 4), (0, -1)),
    ((2, 0, 3), 0),
    ((2, 3), ()),
)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint8", "int64", "bool"])
def test_sums_accumulate_by_the_table(dtype: str, keepdim: bool, agree: Any, data: Any) -> None:
    result = ACCUMULATE[DTYPES[dtype]][1].name
    arrays = [(data(*s, dtype=dtype), a) for s, a in AXES]
    wants = [np.asarray(x.astype("float64").sum(a, keepdims=keepdim)).astype(result) for x, a in arrays]
    agree(
        [Tensor(x).sum(a, keepdim) for x, a in arrays],
        wants,
        8,
        scale=64 if result.startswith("float") and result != "float16" else 4,
    )


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bool", "int8"])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extrema_are_numpys(name: str, dtype: str, agree: Any, data: Any) -> None:
    arrays = [(data(*s, dtype=dtype), a) for s, a in AXES if 0 not in s]
    agree([getattr(Tensor(x), name)(a) for x, a in arrays], [np.asarray(getattr(x, name)(a)) for x, a in arrays], 0)


def test_the_least_integer_is_found(agree: Any) -> None:
    x = np.array([-128, 127, 0], np.int8)
    agree([Tensor(x).min(), Tensor(x).max(), Tensor(x).minimum(5)], [x.min(), x.max(), np.minimum(x, np.int8(5))])


def test_extrema_of_nothing_are_the_identity() -> None:
    assert Tensor(np.zeros((0, 2), np.float32)).max(0).tolist() == [-np.inf, -np.inf]
    assert Tensor(np.zeros((0,), np.int8)).min().item() == 127


def test_extrema_keep_nan(agree: Any) -> None:
    x = np.array([1, np.nan, 3], np.float32)
    agree([Tensor(x).max(), Tensor(x).min()], [x.max(), x.min()])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
def test_statistics_are_numpys(dtype: str, agree: Any, data: Any) -> None:
    x = data(4, 6, dtype=dtype)
    w, out = x.astype("float64"), dtype if dtype.startswith("float") else "float32"
    agree(
        [Tensor(x).mean(), Tensor(x).mean(1, keepdim=True), Tensor(x).var(0), Tensor(x).std((0, 1), correction=0)],
        [v.astype(out) for v in (w.mean(), w.mean(1, keepdims=True), w.var(0, ddof=1), w.std())],
        4,
        scale=4,
    )


def test_products_any_and_all_are_numpys(agree: Any, data: Any) -> None:
    x, p = data(3, 4), np.array([[0, 1], [2, 3]], np.int32)
    agree(Tensor(x).prod(1), x.prod(1), 8)
    agree(
        [Tensor(p).any(0), Tensor(p).all(1), Tensor(p).all(), Tensor(p[:0]).any(), Tensor(p[:0]).all(), Tensor(p).prod()],
        [p.any(0), p.all(1), p.all(), np.False_, np.True_, np.int32(0)],
    )


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8", "bool"])
def test_argmax_is_the_first_of_the_greatest(dtype: str, agree: Any) -> None:
    x = np.array([[0, 3, 3, 1], [2, 2, 2, 2], [0, 0, 0, 1]]).astype(dtype)
    agree(
        [Tensor(x).argmax(1), Tensor(x).argmax(0, keepdim=True), Tensor(x).argmax(), Tensor(x).argmin(-1)],
        [x.argmax(1).astype("i4"), x.argmax(0, keepdims=True).astype("i4"), np.int32(x.argmax()), x.argmin(-1).astype("i4")],
    )


def test_argmax_of_nan_is_its_position() -> None:
    assert Tensor(np.array([1, np.nan, 5, np.nan], np.float32)).argmax().item() == 1


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_softmax_is_numpys_and_does_not_overflow(dtype: str, agree: Any, data: Any) -> None:
    x = (data(3, 5) * 300).astype(dtype)
    e = np.exp(x.astype("f8") - x.astype("f8").max(-1, keepdims=True))
    c = np.exp(x.astype("f8") - x.astype("f8").max(0, keepdims=True))
    agree([Tensor(x).softmax(), Tensor(x).softmax(0)], [e / e.sum(-1, keepdims=True), c / c.sum(0)], 4, scale=1)


def test_log_softmax_and_logsumexp_are_stable(agree: Any) -> None:
    x = np.array([[1000, 1001, 999], [-1000, -1000, -1000], [-np.inf, 0, 1]], np.float32)
    lse = np.array([1001 + np.log(1 + np.exp(-1) + np.exp(-2)), -1000 + np.log(3), np.log(1 + np.e)])
    agree([Tensor(x).log_softmax(), Tensor(x).logsumexp(1)], [x - lse[:, None], lse], 4, scale=4)
    assert Tensor(3.0).softmax().item() == 1.0
    assert Tensor([-np.inf, -np.inf]).logsumexp().item() == -np.inf


@pytest.mark.parametrize("dtype", ["float32", "int8", "float16", "bool"])
def test_cumsum_is_numpys_along_every_axis(dtype: str, agree: Any, data: Any) -> None:
    result = ACCUMULATE[DTYPES[dtype]][1].name
    x = data(2, 3, 5, dtype=dtype, low=-1, high=2)
    agree([Tensor(x).cumsum(a) for a in (0, 1, -1)], [x.astype("f8").cumsum(a).astype(result) for a in (0, 1, 2)], 8, scale=4)


def test_cumsum_of_a_vector_is_the_listings_graph_and_of_nothing_empty() -> None:
    t = Tensor(np.ones(6, np.float32))
    node = capture(t.cumsum()).graph.packed  # a Function, for the sake of its gradient
    assert node.body.values == (prefix_sum(b.param(0, (6,), dt.float32)),)
    assert capture(t.cast(dt.int32).cumsum()).graph is prefix_sum(b.cast(b.param(0, (6,), dt.float32), dt.int32))
    assert Tensor(np.zeros((0,), np.float32)).cumsum().numpy().shape == (0,)
    assert Tensor(np.zeros((2, 0), np.int8)).cumsum(1).dtype is dt.int32
    assert Tensor(True).cumsum().item() == 1


MATRICES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 1)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 3)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
)


@pytest.mark.parametrize("dtype", ["float32", "int32", "float16"])
def test_matmul_is_numpys_for_vectors_matrices_and_batches(dtype: str, agree: Any, data: Any) -> None:
    pairs = [(data(*m, dtype=dtype), data(*n, dtype=dtype)) for m, n in MATRICES]
    wants = [(x.astype("f8") @ y.astype("f8")).astype(dtype) for x, y in pairs]
    agree([Tensor(x) @ Tensor(y) for x, y in pairs], wants, 4, scale=64 if dtype == "float32" else 1)


def test_matmul_is_the_listings_gemm() -> None:
    x, y = Tensor(np.ones((3, 4), np.float32)) + 1, Tensor(np.ones((4, 5), np.float32)) + 1
    p = [b.add(b.reshape(b.param(k, (m * n,), dt.float32), (m, n)), 1.0) for k, (m, n) in enumerate([(3, 4), (4, 5)])]
    assert capture(x @ y).graph is gemm(*p)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bfloat16", "float16"])
def test_narrow_products_are_accumulated_wide(dtype: str, agree: Any) -> None:
    """100 * 100 * 3 overflows 8 bits; 1 + 256 * 2^-9 is lost one by one in bfloat16."""
    if dtype.endswith("int8"):
        x = np.full((1, 3), 100, dtype)
        agree([Tensor(x) @ Tensor(x.T)], [np.array([[30000]], "int32" if dtype == "int8" else "uint32")])
        return
    x = np.concatenate([np.ones((1, 1)), np.full((1, 256), 2.0**-9)], 1).astype(dtype)
    agree([Tensor(x) @ Tensor(np.ones((257, 1), dtype))], [np.array([[1.5]], dtype)], 0)
    assert Tensor(x).matmul(Tensor(np.ones((257, 1), dtype)), dtype="float32").dtype is dt.float32


def test_arrays_multiply_from_the_left() -> None:
    assert (np.ones((1, 2), np.float32) @ Tensor([[1.0], [2.0]])).tolist() == [[3.0]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t @ Tensor.ones(4, 5), r"Tensor.matmul: \(2, 3\) @ \(4, 5\): the inner extents differ \[MUL.C3"),
        (lambda t: t @ Tensor(1.0), r"\(2, 3\) @ \(\)"),
        (lambda t: t.sum().cumsum(1), r"Tensor.cumsum: axis 1 is out of range for shape \(\)"),
        (lambda t: t.sum().softmax(1), r"Tensor.softmax: axis 1 is out of range for shape \(\)"),
        (lambda t: t.sum().log_softmax(-2), r"Tensor.log_softmax: axis -2 is out of range for shape \(\)"),
        (lambda t: t.sum(2), r"Tensor.sum: axis 2 is out of range for shape \(2, 3\) \[REDUCE.C3: axes are distinct axes of T\]"),
        (lambda t: t.max((0, -2)), r"Tensor.max: expected distinct axes of shape \(2, 3\), got \(0, 0\) \[REDUCE.C3"),
        (lambda t: t[:, :0].argmax(1), "expected at least one element, got axis 1 of shape \\(2, 0\\)"),
        (lambda t: t.sum(dtype="complex64"), "complex64"),
    ],
)
def test_mistakes_name_the_claim_and_the_shapes(call: Fn, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        call(Tensor(np.ones((2, 3), np.float32)))
