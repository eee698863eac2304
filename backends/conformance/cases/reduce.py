"""Cases of the Reduce row: one row of a matrix per situation, so that each result is judged by its own set (R32)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from uops.backends.conformance.cases.common import Array, Inputs, param, single
from uops.backends.conformance.model import Case, Tier
from uops.backends.conformance.pools import classes, ordinary, random_bits, seeded, to_array
from uops.backends.testing.values import float_bits
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, Kind
from uops.spec.ir.ops import Op

OPS = (Op.ADD, Op.MUL, Op.MAX)


def cases(tier: Tier) -> Iterator[Case]:
    for d in dt.STORABLE:
        for op in OPS:
            yield from _of(op, d, tier)


def _of(op: Op, d: DType, tier: Tier) -> Iterator[Case]:
    word = op.name.lower()
    yield _matrix(op, d, f"{word}-rows", _situations(d, 17))
    deep = 1 if d.itemsize == 1 and d.is_float else 2  # the bound of R32 admits 0 for longer sums of fp8
    yield _shaped(op, d, f"{word}-columns", (2 * deep, 5), (0,))
    yield _shaped(op, d, f"{word}-all", (deep, 2, 2), (0, 1, 2))
    yield _shaped(op, d, f"{word}-outer-axes", (2, 3, 2 * deep), (0, 2))
    yield _empty(op, d, f"{word}-empty")
    if op is Op.ADD:
        yield from _products(d, deep)
    if tier is Tier.FULL:
        yield _matrix(op, d, f"{word}-long", _long(op, d, 4099))
        yield _matrix(op, d, f"{word}-random", _random(op, d, 64, 9))


def _matrix(op: Op, d: DType, edge: str, values: Array) -> Case:
    inputs: Inputs = {}
    x = param(d, values.shape, inputs, values=values)
    return single(Op.REDUCE, d, edge, b.reduce(x, op, (1,)), inputs)


def _shaped(op: Op, d: DType, edge: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> Case:
    """Two reductions of different data side by side, so that no one value is the right answer to both."""
    inputs: Inputs = {}
    sides = [b.reduce(param(d, shape, inputs, values=values), op, axes) for values in _pair(op, d, shape)]
    return single(Op.REDUCE, d, edge, b.stack(*sides), inputs)


def _pair(op: Op, d: DType, shape: tuple[int, ...]) -> tuple[Array, Array]:
    n = int(np.prod(shape))
    if d.kind is Kind.BOOL:
        mixed, even = ([k % 2 for k in range(n)], [int(op is Op.MUL)] * n)[:: -1 if op is Op.MUL else 1]
        return to_array(mixed, d).reshape(shape), to_array(even, d).reshape(shape)
    pool = _moderate(d)
    one, two = ([pool[(k * k + 1 + j) % 7] for k in range(n)] for j in (0, 2))
    return to_array(one, d).reshape(shape), to_array(two, d).reshape(shape)


def _moderate(d: DType) -> tuple[int, ...]:
    """Values whose sums and products stay well inside the range of `d`."""
    if not d.is_float:
        return ordinary(d)
    return tuple(float_bits(d, v) for v in (1.5, 1.0, 0.5, 2.0, 0.75, 1.25, 1.75, 1.0))


def _empty(op: Op, d: DType, edge: str) -> Case:
    """The identity (R32), beside data, since an identity may be zero."""
    inputs: Inputs = {}
    nothing = b.reduce(param(d, (2, 0), inputs, values=to_array([], d).reshape(2, 0)), op, (1,))
    something = b.reduce(param(d, (2, 3), inputs, values=to_array(ordinary(d)[:6], d).reshape(2, 3)), op, (1,))
    return single(Op.REDUCE, d, edge, b.stack(nothing, something), inputs)


def _products(d: DType, deep: int) -> Iterator[Case]:
    """Products of matrices: in the dtype itself, and in a wider one, of the sizes of tensor cores (R93)."""
    wide = dt.float32 if d.is_float else dt.int32
    wider = [("add-product-wide", wide, 16, 16, 8)] if wide.itemsize > d.itemsize else []
    for edge, out, m, k, n in (("add-product", d, 5, 3 * deep, 7), *wider):
        inputs: Inputs = {}
        x, y = (param(d, s, inputs, values=_factor(d, s)) for s in ((m, k, 1), (1, k, n)))
        yield single(Op.REDUCE, d, edge, b.reduce(b.mul(b.cast(x, out), b.cast(y, out)), Op.ADD, (1,)), inputs)


def _factor(d: DType, shape: tuple[int, ...]) -> Array:
    """Rows and columns that differ."""
    n = math.prod(shape)
    if d.kind is Kind.BOOL:
        return to_array([int(j * 7 % 5 < 2) for j in range(n)], d).reshape(shape)
    pool = _moderate(d)
    return to_array([pool[(j * j + j // 3) % 7] for j in range(n)], d).reshape(shape)


def _situations(d: DType, n: int) -> Array:
    """One row of `n` values per edge class (its values among ordinary ones), after two ordinary rows."""
    rows = [_ring(ordinary(d), n, 1), _ring(ordinary(d)[2:], n, 1)]
    if d.kind is Kind.BOOL:
        rows += [[0] * n, [1] * n]
    for pool in classes(d).values():
        rows.append(_ring(pool, n, 1))
        rows.append([ordinary(d)[k % 8] if k != 5 else pool[-1] for k in range(n)])
    values = to_array([v for r in rows for v in r], d).reshape(len(rows), n)
    return values if not d.is_float else np.concatenate([values, _cancelling(d, n), _normals(d, 3, n)])


def _long(op: Op, d: DType, n: int) -> Array:
    """Rows of `n` in which few elements matter, so that the bound of R32 stays narrow: neutral values, and some that are not."""
    if op is Op.MUL and d.is_float:  # the bound of a product grows with every factor
        n = min(n, max(3, (2 << d.man_bits) * 2 // 5))
    few = min(1 << (d.man_bits if d.is_float else 5), 32, n - 1)
    rows = np.full((4, n), int(op is Op.MUL))
    at = seeded("long", op.name, d.name).permutation(n - 1)[:few] + 1
    rows[1, at[:1]], rows[2, at], rows[3, at] = 2, (2 if op is Op.MUL else 1), 1
    rows[2, at[4:]] = 1
    rows[3, at[0]] = 3
    if d.kind is Kind.BOOL:
        rows = np.stack([rows[0], rows[0] == 0, rows[0], rows[0]]).astype(int)
        rows[2, at[0]] ^= 1
    return rows.astype(to_array([], d).dtype)


def _random(op: Op, d: DType, rows: int, n: int) -> Array:
    if d.kind is Kind.BOOL:
        return np.array([[(j * 7 + i) % n < i % (n + 1) for j in range(n)] for i in range(rows)])
    return to_array(random_bits(d, rows * n, "reduce", op.name.lower()), d).reshape(rows, n)


def _ring(pool: tuple[int, ...], n: int, step: int) -> list[int]:
    return [pool[k * step % len(pool)] for k in range(n)]


def _cancelling(d: DType, n: int) -> Array:
    """Large terms that cancel and a small one that must survive, and infinities of both signs."""
    big = min(d.max_finite / 8, 2.0**20)
    rows = [[big, -big] * (n // 2) + [0.5], [0.5, big, -big] * (n // 3) + [0.0] * (n - n // 3 * 3)]
    if d.has_inf:
        rows.append([np.inf, -np.inf] + [1.0] * (n - 2))
    return np.array(rows).astype(to_array([], d).dtype)


def _normals(d: DType, rows: int, n: int) -> Array:
    if d.is_float:
        return seeded("normals", d.name, n).standard_normal((rows, n)).astype(to_array([], d).dtype)
    if d.kind is Kind.BOOL:
        return np.asarray(seeded("bools", n).integers(0, 50, (rows, n)) == 0)
    return to_array(random_bits(d, rows * n, "long", n), d).reshape(rows, n)
