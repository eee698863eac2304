"""The seven collectives and the common compositions of the specification, as graphs, on real arrays (R47, R50, R73 to R76)."""

from __future__ import annotations

import numpy as np
import pytest

from uops.interp import run
from uops.spec.errors import Trap
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

D = ("d0", "d1", "d2")
N, S = len(D), 6


def on_one():
    return B.param(0, (S,), dt.float32, device="d0")


def on_all():
    return B.buffer(S, dt.float32, device=D, unique=1)


def replicate(t, n, s):
    return B.reshape(B.replicated(B.copy(B.expand(B.reshape(t, (1, s)), (n, s)), D), 0), (s,))


def reduce_scatter(t):
    cut = B.permute(B.reshape(t, (N, N, S // N)), (1, 0, 2))
    return B.reshape(B.sum_and_drop_axis(B.copy(cut, D), 1), (S,))


def total(x):
    return x.reshape(N, S).sum(0)


def same(x):
    return x


# fmt: off
COLLECTIVES = {
    "broadcast":      (on_one, lambda t: replicate(t, N, S),                            same,  D,    None),
    "scatter":        (on_one, lambda t: B.copy(t, D),                                  same,  D,    0),
    "gather":         (on_all, lambda t: B.copy(t, D[0]),                               same,  "d0", None),
    "reduce":         (on_all, lambda t: B.sum_and_drop_axis(B.reshape(B.copy(t, D[0]), (N, S)), 0), total, "d0", None),
    "allgather":      (on_all, lambda t: replicate(t, N, N * S),                        same,  D,    None),
    "reduce_scatter": (on_all, reduce_scatter,                                          total, D,    0),
    "allreduce":      (on_all, lambda t: replicate(reduce_scatter(t), N, S),            total, D,    None),
}
# fmt: on


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collective(name):
    source, make, meaning, device, axis = COLLECTIVES[name]
    t = source()
    root = make(t)
    x = np.random.default_rng(3).integers(-50, 50, t.shape).astype(np.float32)
    (got,) = run(root, {"p0" if t.op is Op.PARAM else "b1": x}).values
    assert np.array_equal(got, meaning(x))
    assert (root.device, root.axis) == (device, axis)


def test_r73_an_n_tuple_buffer_holds_every_shard():
    b = on_all()
    assert run(B.assign(b, B.neg(b)), {"b1": np.arange(N * S, dtype=np.float32)}).buffers["b1"].shape == (N * S,)


def test_r47_copies_that_differ_trap():
    t = B.reshape(on_all(), (N, S))
    with pytest.raises(Trap, match="R47"):
        run(B.replicated(t, 0), {"b1": np.arange(N * S, dtype=np.float32)})


# The common compositions


def sum_last(t: UOp) -> UOp:
    return B.sum_and_drop_axis(t, -1)


def prefix_sum(t: UOp) -> UOp:
    n = t.shape[0]
    x = B.expand(B.reshape(B.pad_by(t, (n - 1, 0)), (1, 2 * n - 1)), (n + 1, 2 * n - 1))
    x = B.shrink_to(B.reshape(x, ((n + 1) * (2 * n - 1),)), 2 * n * n)
    return sum_last(B.shrink_to(B.reshape(x, (n, 2 * n)), n, n))


def arange(n: int) -> UOp:
    return B.sub(prefix_sum(B.expand(B.reshape(B.const(1), (1,)), (n,))), 1)


def one_hot(rows: int, idx: UOp) -> UOp:
    return B.eq(B.reshape(arange(rows), (rows, 1)), B.reshape(idx, (1, -1)))


def test_gemm_prefix_sum_arange_gather_scatter_add():
    rng = np.random.default_rng(9)
    a, b = rng.integers(-9, 9, (4, 5)).astype(np.float32), rng.integers(-9, 9, (5, 3)).astype(np.float32)
    pa, pb = B.param(0, (4, 5), dt.float32), B.param(1, (5, 3), dt.float32)
    gemm = B.sum_and_drop_axis(B.mul(B.reshape(pa, (4, 5, 1)), B.reshape(pb, (1, 5, 3))), 1)
    assert np.array_equal(run(gemm, {"p0": a, "p1": b}).values[0], a @ b)
    assert run(arange(7), {}).values[0].tolist() == list(range(7))
    x = np.array([3, -1, 4, 1, -5], np.int32)
    px = B.param(0, (5,), dt.int32)
    assert run(prefix_sum(px), {"p0": x}).values[0].tolist() == np.cumsum(x).tolist()
    idx = np.array([4, 0, 9, -1, 0], np.int32)
    pi = B.param(1, (5,), dt.int32)
    table = np.array([np.nan, 1, 2, 3, np.inf], np.float32)  # R50: what is not selected never contributes
    gather = B.sum_and_drop_axis(B.where(one_hot(5, pi), B.reshape(B.param(0, (5,), dt.float32), (5, 1)), 0.0), 0)
    assert np.array_equal(run(gather, {"p0": table, "p1": idx}).values[0], [np.inf, np.nan, 0, 0, np.nan], equal_nan=True)
    scattered = B.add(px, sum_last(B.where(one_hot(5, pi), B.reshape(B.param(2, (5,), dt.int32), (1, 5)), 0)))
    want = x.copy()
    for i, v in zip(idx, [10, 20, 30, 40, 50]):
        if 0 <= i < 5:
            want[i] += v
    assert run(scattered, {"p0": x, "p1": idx, "p2": np.array([10, 20, 30, 40, 50], np.int32)}).values[0].tolist() == want.tolist()
