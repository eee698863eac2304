"""Small programs whose kernels are scheduled by the tests here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

F32 = dt.float32


def p(slot: int, *shape: int, dtype: dt.DType = F32) -> UOp:
    return b.param(slot, shape, dtype)


def matmul(x: UOp, y: UOp) -> UOp:
    (m, k), n = x.shape, y.shape[1]
    return b.reshape(b.reduce(b.mul(b.reshape(x, (m, k, 1)), b.reshape(y, (1, k, n))), Op.ADD, (1,)), (m, n))


def softmax(x: UOp, axis: int = 1) -> UOp:
    e = b.exp2(b.sub(x, b.reduce(x, Op.MAX, (axis,))))
    return b.div(e, b.reduce(e, Op.ADD, (axis,)))


def layernorm(x: UOp) -> UOp:
    n = 1.0 / int(x.shape[1])
    d = b.sub(x, b.mul(b.reduce(x, Op.ADD, (1,)), n))
    return b.div(d, b.sqrt(b.add(b.mul(b.reduce(b.mul(d, d), Op.ADD, (1,)), n), 1.0)))


def across(rows: int, columns: int) -> UOp:
    """Return the sums of 64 products for (rows, columns, 3). No operand is contiguous along the last axis, as the Store is."""
    operand = b.permute(p(1, 3, columns, 8, 8), (1, 0, 2, 3))
    products = b.mul(p(0, rows, 1, 1, 8, 8), b.reshape(operand, (1, columns, 3, 8, 8)))
    return b.reduce(products, Op.ADD, (3, 4))


PROGRAMS: dict[str, Callable[[], UOp]] = {
    "gemm": lambda: matmul(p(0, 6, 8), p(1, 8, 12)),
    "gemm in panels": lambda: matmul(p(0, 60, 5), p(1, 5, 64)),
    "gemm of a transposed panel": lambda: matmul(p(0, 60, 5), b.permute(p(1, 33, 5), (1, 0))),
    "gemm of a panel in squares": lambda: matmul(p(0, 60, 16), b.permute(p(1, 64, 16), (1, 0))),
    "gemm of rows a page apart": lambda: matmul(b.permute(p(0, 5, 1031), (1, 0)), p(1, 5, 64)),
    "gemm of primes": lambda: matmul(p(0, 13, 7), p(1, 7, 37)),
    "softmax": lambda: softmax(p(0, 6, 40)),
    "layernorm": lambda: layernorm(p(0, 4, 36)),
    "row sums": lambda: b.reduce(p(0, 6, 130), Op.ADD, (1,)),
    "column sums": lambda: b.reduce(p(0, 6, 50), Op.ADD, (0,)),
    "column sums, swept": lambda: b.reduce(p(0, 24, 530), Op.ADD, (0,)),
    "column softmax, swept": lambda: b.permute(softmax(b.permute(p(0, 19, 530), (1, 0))), (1, 0)),
    "vector times matrix": lambda: matmul(p(0, 1, 32), p(1, 32, 700)),
    "stored across the lanes": lambda: across(65, 64),
    "few columns": lambda: matmul(p(0, 30, 37), p(1, 37, 3)),
    "few rows": lambda: matmul(p(0, 3, 512), p(1, 512, 1031)),
    "small image": lambda: b.reduce(b.mul(p(0, 13, 5, 1, 1), p(1, 1, 5, 7, 6)), Op.ADD, (1,)),
    "sum of all": lambda: b.reduce(p(0, 6, 64), Op.ADD, (0, 1)),
    "product": lambda: b.reduce(p(0, 4, 6), Op.MUL, (0, 1)),
    "maximum, reversed": lambda: b.reduce(b.flip(p(0, 6, 33), (True, False)), Op.MAX, (1,)),
    "maximum of integers": lambda: b.reduce(p(0, 6, 33, dtype=dt.int8), Op.MAX, (1,)),
    "padded": lambda: b.pad(b.mul(p(0, 5, 6), 2.0), (1, 1), (8, 9)),
    "transposed": lambda: b.add(b.permute(p(0, 20, 36), (1, 0)), 1.0),
    "elementwise": lambda: b.add(p(0, 20, 36), p(1, 20, 36)),
    "one element": lambda: b.add(p(0, 1), 1.0),
}


def inputs(graph: UOp) -> dict[str, Any]:
    """Small integers: sums and products of them are exact in any order."""
    rng = np.random.default_rng(5)
    params = [u for u in toposort(graph) if u.op is Op.PARAM]
    return {f"p{u.arg.slot}": rng.integers(-2, 3, u.shape).astype(u.dtype.name) for u in params}
