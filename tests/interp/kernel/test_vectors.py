"""Vector values inside of kernels: movement, vector Loads and Stores, views that change the item size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops.interp import run
from uops.interp.tensor.storage import NUMPY
from uops.spec.errors import SpecError, Trap
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.result import Result

I32 = dt.int32
Agree = Callable[..., Result]
DATA = np.arange(24, dtype=np.int32)


def p(slot: int, n: int, d: dt.DType = I32) -> UOp:
    return b.param(slot, (n,), d)


def kernel(*effects: UOp) -> UOp:
    return b.sink(*effects, name="k")


def vector(base: UOp | int, n: int, step: int = 1) -> UOp:
    first = b.index(base) if isinstance(base, int) else base
    return b.stack(*(b.add(first, k * step) for k in range(n)))


def out(value: UOp, i: UOp, n: int) -> UOp:
    """Store the flat elements of a vector behind each other, those of iteration i from i * n."""
    flat = b.reshape(value, (n,)) if value.shape != (n,) else value
    return b.store(b.at(p(1, 4 * n, value.dtype), vector(b.mul(i, n), n)), flat)


I = b.range_(4, 1, AxisType.GLOBAL)  # noqa: E741 - the loop variable of this file
FOUR = b.load(b.at(p(0, 24), vector(b.mul(I, 4), 4)))

# fmt: off
MOVES: dict[str, tuple[Callable[[UOp], UOp], Callable[[Any], Any], int]] = {
    "nothing": (lambda x: x, lambda a: a, 4),
    "sum": (lambda x: b.add(x, b.mul(x, x)), lambda a: a + a * a, 4),
    "expand": (lambda x: b.expand(b.reshape(x, (4, 1)), (4, 3)), lambda a: np.repeat(a, 3), 12),
    "permute": (lambda x: b.permute(b.reshape(x, (2, 2)), (1, 0)), lambda a: a.reshape(2, 2).T, 4),
    "flip": (lambda x: b.flip(x, (True,)), lambda a: a[::-1], 4),
    "pad": (lambda x: b.pad(x, (1,), (6,)), lambda a: np.pad(a, 1), 6),
    "shrink": (lambda x: b.shrink(x, (1,), (2,)), lambda a: a[1:3], 2),
    "reduce": (lambda x: b.reduce(x, Op.ADD, (0,)), lambda a: a.sum(keepdims=True, dtype=np.int32), 1),
    "index": (lambda x: b.at(x, b.stack(b.index(3), b.index(0))), lambda a: a[[3, 0]], 2),
    "stack": (lambda x: b.stack(x, b.neg(x)), lambda a: np.stack([a, -a]), 8),
    "bitcast": (lambda x: b.bitcast(x, dt.int16), lambda a: a.view(np.int16), 8),
    "cast": (lambda x: b.cast(x, dt.int64), lambda a: a.astype(np.int64), 4),
    "where": (lambda x: b.where(b.lt(x, 6), x, b.const(-1, I32)), lambda a: np.where(a < 6, a, -1), 4),
}
# fmt: on


@pytest.mark.parametrize("name", MOVES)
def test_vectors_move_and_compute_as_tensors_do(name: str, agree: Agree) -> None:
    make, numpy, n = MOVES[name]
    value = make(FOUR)
    expected = np.concatenate([np.ravel(numpy(DATA[4 * k : 4 * k + 4])) for k in range(4)])
    found = agree(kernel(b.end(out(value, I, n), I)), {"p0": DATA, "p1": np.zeros(4 * n, expected.dtype)})
    assert np.array_equal(found.buffers["p1"], expected)


VIEWS: dict[str, tuple[Callable[[UOp], UOp], Callable[[Any], Any]]] = {
    "reshape": (lambda x: b.at(b.reshape(x, (6, 4)), I), lambda a, k: a.reshape(6, 4)[k]),
    "permute": (lambda x: b.at(b.permute(b.reshape(x, (6, 4)), (1, 0)), I), lambda a, k: a.reshape(6, 4).T[k]),
    "flip": (lambda x: b.at(b.reshape(b.flip(x, (True,)), (6, 4)), I), lambda a, k: a[::-1].reshape(6, 4)[k]),
    "shrink": (lambda x: b.at(b.reshape(b.shrink(x, (4,), (16,)), (4, 4)), I), lambda a, k: a[4:20].reshape(4, 4)[k]),
    "outer": (
        lambda x: b.at(b.reshape(x, (6, 4)), vector(I, 2), vector(0, 3)),
        lambda a, k: a.reshape(6, 4)[k : k + 2, :3],
    ),
    "slice": (lambda x: b.at(b.reshape(b.slice_(x, 8, 16), (4, 4)), I), lambda a, k: a[8:].reshape(4, 4)[k]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_memory_are_addresses(name: str, agree: Agree) -> None:
    make, numpy = VIEWS[name]
    place = make(p(0, 24))
    n = int(np.prod(place.shape))
    found = agree(kernel(b.end(out(b.load(place), I, n), I)), {"p0": DATA, "p1": np.zeros(4 * n, np.int32)})
    assert np.array_equal(found.buffers["p1"], np.concatenate([np.ravel(numpy(DATA, k)) for k in range(4)]))


@pytest.mark.parametrize("name", [n for n in VIEWS if n != "outer"])
def test_a_store_through_a_view_is_where_a_load_looks(name: str, agree: Agree) -> None:
    place = VIEWS[name][0](p(0, 24))
    value = b.reshape(b.expand(b.reshape(b.cast(I, I32), (1,)), (int(np.prod(place.shape)),)), place.shape)
    found = agree(kernel(b.end(b.store(place, value), I)), {"p0": np.full(24, -1, np.int32)}).buffers["p0"]
    for k in range(4):
        assert (VIEWS[name][1](found, k) == k).all()


@pytest.mark.parametrize("whole", [dt.uint8, dt.float32], ids=str)
def test_elements_of_memory_may_begin_at_any_byte(whole: dt.DType, agree: Agree, fault: Callable[..., str]) -> None:
    """R45, R46, R61: a Bitcast of part of a memory's bytes reads and writes these bytes, and no others are touched."""
    raw = b.buffer(12 // whole.itemsize, whole, unique=1)
    data = raw if whole is dt.uint8 else b.bitcast(raw, dt.uint8)
    middle = lambda m: b.bitcast(b.shrink(m, (1,), (4,)), I32)  # noqa: E731
    i = b.range_(1, 1)
    stored = b.end(b.store(b.at(middle(data), i), b.const(0x04030201, I32)), i)
    given = {"b1": np.zeros(12, np.uint8).view(NUMPY[whole]), "p0": np.zeros(1, np.int32)}
    found = agree(kernel(stored), given)
    assert found.buffers["b1"].view(np.uint8).tolist() == [0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0]
    read = lambda m: b.store(b.at(p(0, 1), 0), b.load(b.at(m, 0)))  # noqa: E731
    after = b.after(data, stored)
    del given["b1"]
    assert agree(kernel(read(middle(after))), given).buffers["p0"].tolist() == [0x04030201]
    for at in (0, 2, 4):
        part = b.bitcast(b.shrink(after, (at,), (4,)), I32)
        assert "which was never written (R61)" in fault(kernel(read(part)), given)
    apart = b.store(b.at(b.bitcast(b.shrink(data, (5,), (4,)), I32), 0), b.const(7, I32))
    assert agree(kernel(stored, apart), given)
    near = b.store(b.at(b.bitcast(b.shrink(data, (4,), (4,)), I32), 0), b.const(7, I32))
    assert "race on element" in fault(kernel(stored, near), given)


def test_a_bitcast_of_memory_splits_and_joins_elements(agree: Agree) -> None:
    i = b.range_(8, 1, AxisType.UPCAST)
    halves = b.bitcast(p(0, 4), dt.int16)
    effect = b.end(b.store(b.at(halves, i), b.cast(i, dt.int16)), i)
    found = agree(kernel(effect), {"p0": np.full(4, -1, np.int32)}).buffers["p0"]
    assert found.view(np.int16).tolist() == list(range(8))
    whole = b.bitcast(p(0, 4), dt.int64)
    j = b.range_(2, 2, AxisType.UPCAST)
    read = b.end(b.store(b.at(p(1, 2, dt.int64), j), b.load(b.at(whole, j))), j)
    found = agree(kernel(read), {"p0": np.array([1, 2, 3, 4], np.int32), "p1": np.zeros(2, np.int64)})
    assert found.buffers["p1"].tolist() == [1 + (2 << 32), 3 + (4 << 32)]


def test_parts_of_one_element_race_only_with_themselves() -> None:
    i = b.range_(4, 1, AxisType.UPCAST)
    halves = b.bitcast(p(0, 4), dt.int16)
    clash = b.end(b.store(b.at(halves, b.idiv(i, 2)), b.cast(i, dt.int16)), i)
    with pytest.raises(Trap, match="race on element 0 of p0"):
        run(kernel(clash), {"p0": np.zeros(4, np.int32)})


def test_gates_of_a_vector_are_per_element(agree: Agree) -> None:
    gate = b.lt(vector(b.mul(I, 4), 4), 10)
    far = b.at(p(0, 10), vector(b.mul(I, 4), 4))
    minus = b.expand(b.reshape(b.const(-1, I32), (1,)), (4,))
    found = agree(kernel(b.end(out(b.load(far, minus, gate), I, 4), I)), {"p0": DATA[:10], "p1": np.zeros(16, np.int32)})
    assert found.buffers["p1"].tolist() == [*range(10), *[-1] * 6]
    target = b.at(p(1, 10), vector(b.mul(I, 4), 4))
    found = agree(kernel(b.end(b.store(target, FOUR, gate), I)), {"p0": DATA, "p1": np.zeros(10, np.int32)})
    assert found.buffers["p1"].tolist() == list(range(10))


def test_one_gate_for_a_vector(agree: Agree) -> None:
    gate = b.lt(I, 2)
    far = b.at(p(0, 8), vector(b.mul(I, 4), 4))
    zero = b.expand(b.reshape(b.const(0, I32), (1,)), (4,))
    found = agree(kernel(b.end(out(b.load(far, zero, gate), I, 4), I)), {"p0": DATA[:8], "p1": np.ones(16, np.int32)})
    assert found.buffers["p1"].tolist() == [*range(8), *[0] * 8]


def test_a_vector_out_of_bounds_names_an_index() -> None:
    far = b.at(p(0, 10), vector(b.mul(I, 4), 4))
    root = kernel(b.end(out(b.load(far), I, 4), I))
    with pytest.raises(Trap, match=r"LOAD of group \(axis 1=2\): index 10 is outside of 10 elements of p0 \(R45\)"):
        run(root, {"p0": DATA[:10], "p1": np.zeros(16, np.int32)})


def test_a_reduce_over_ranges_of_vectors(agree: Agree) -> None:
    r = b.range_(4, 2, AxisType.REDUCE)
    row = b.load(b.at(p(0, 24), vector(b.mul(r, 6), 6)))
    total = UOp(Op.REDUCE, (row, r), b.reduce(row, Op.ADD, (0,)).arg.__class__(Op.ADD))
    found = agree(kernel(b.store(b.at(p(1, 6), vector(0, 6)), total)), {"p0": DATA, "p1": np.zeros(6, np.int32)})
    assert np.array_equal(found.buffers["p1"], DATA.reshape(4, 6).sum(0))


def test_index_values_are_unbounded_in_vectors(agree: Agree) -> None:
    huge = b.stack(b.index(1 << 70), b.index(3))
    value = b.cast(b.mod(b.mul(huge, huge), 1000), I32)
    found = agree(kernel(b.store(b.at(p(0, 2), vector(0, 2)), value)), {"p0": np.zeros(2, np.int32)})
    assert found.buffers["p0"].tolist() == [(1 << 140) % 1000, 9]


def test_a_store_of_another_shape_is_refused() -> None:
    root = kernel(UOp(Op.STORE, (b.at(p(0, 4), vector(0, 2)), b.const(1, I32))))
    with pytest.raises(SpecError) as broken:
        run(root, {"p0": np.zeros(4, np.int32)})
    assert broken.value.claim == "STORE.C4"
    with pytest.raises(SpecError, match="Store of int32"):
        run(root, {"p0": np.zeros(4, np.int32)}, check=False)


@pytest.mark.parametrize("d", list(dt.STORABLE))
def test_every_storable_dtype_is_loaded_and_stored(d: dt.DType, agree: Agree) -> None:
    from uops.interp.tensor.storage import NUMPY

    values = np.array([0, 1, 1, 0], np.uint8).astype(NUMPY[d])
    i = b.range_(4, 1)
    root = kernel(b.end(b.store(b.at(p(1, 4, d), i), b.load(b.at(p(0, 4, d), i))), i))
    found = agree(root, {"p0": values, "p1": np.zeros(4, NUMPY[d])}).buffers["p1"]
    assert found.dtype == NUMPY[d]
    assert found.tobytes() == values.tobytes()
