"""Cases of the Reduce row: one row of a matrix per edge class, so that each result is judged by its own set (R32)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from uops.backends.conformance.cases.common import Array, Inputs, add_param, make_single_cell_case
from uops.backends.conformance.model import ConformanceCase, ConformanceTier
from uops.backends.conformance.pools import edge_classes, make_seeded_generator, ordinary_bits, random_bits, to_array
from uops.backends.testing.values import encode_representable_value_unchecked
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.ops import REDUCTIONS, Op

#: The reduction ops.
OPS = tuple(op for op in Op if op in REDUCTIONS)


def generate_reduce_cases(tier: ConformanceTier) -> Iterator[ConformanceCase]:
    """Yield all cases of the Reduce row."""
    for d in dt.STORABLE:
        for op in OPS:
            yield from _generate_op_dtype_cases(op, d, tier)


def _generate_op_dtype_cases(op: Op, d: DType, tier: ConformanceTier) -> Iterator[ConformanceCase]:
    op_name = op.name.lower()
    yield _make_row_reduction_case(op, d, f"{op_name}-rows", _make_edge_class_and_cancelling_rows(d, 17))
    depth = 1 if d.itemsize == 1 and d.is_float else 2  # for longer sums of fp8, the error bound of R32 includes 0
    yield _make_paired_reductions_case(op, d, f"{op_name}-columns", (2 * depth, 5), (0,))
    yield _make_paired_reductions_case(op, d, f"{op_name}-all", (depth, 2, 2), (0, 1, 2))
    yield _make_paired_reductions_case(op, d, f"{op_name}-outer-axes", (2, 3, 2 * depth), (0, 2))
    yield _make_empty_axis_case(op, d, f"{op_name}-empty")
    if op is Op.ADD:
        yield from _generate_same_and_wide_dtype_matmul_cases(d, depth)
    if tier is ConformanceTier.FULL:
        yield _make_row_reduction_case(op, d, f"{op_name}-long", _make_mostly_neutral_rows(op, d, 4099))
        yield _make_row_reduction_case(op, d, f"{op_name}-random", _make_random_rows(op, d, 64, 9))


def _make_row_reduction_case(op: Op, d: DType, edge: str, values: Array) -> ConformanceCase:
    inputs: Inputs = {}
    x = add_param(d, values.shape, inputs, values=values)
    return make_single_cell_case(Op.REDUCE, d, edge, b.reduce(x, op, (1,)), inputs)


def _make_paired_reductions_case(op: Op, d: DType, edge: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> ConformanceCase:
    """Create a case of two reductions of different data side by side, so that no single value is right for both."""
    inputs: Inputs = {}
    sides = [
        b.reduce(add_param(d, shape, inputs, values=values), op, axes) for values in _make_two_different_operands(op, d, shape)
    ]
    return make_single_cell_case(Op.REDUCE, d, edge, b.stack(*sides), inputs)


def _make_two_different_operands(op: Op, d: DType, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Create two operands whose reductions differ in every element, by more than the error bound of R32.

    The numbers of the first are below those of the second, and negative where `d` has negative numbers.
    """
    n = int(np.prod(shape))
    if d.kind is DTypeKind.BOOL:
        mixed, even = ([k % 2 for k in range(n)], [int(op is Op.MUL)] * n)[:: -1 if op is Op.MUL else 1]
        return to_array(mixed, d).reshape(shape), to_array(even, d).reshape(shape)
    sign = -1 if d.min < 0 else 1
    lesser, greater = ((0.5, 0.75, 1.0), (1.25, 1.5, 1.75, 2.0)) if d.is_float else ((2, 3, 5), (6, 7, 9, 11))
    rng, dtype = make_seeded_generator("two", d.name, *shape), to_array([], d).dtype
    return (sign * rng.choice(lesser, shape)).astype(dtype), rng.choice(greater, shape).astype(dtype)


def _moderate_bits(d: DType) -> tuple[int, ...]:
    """Return values whose sums and products stay well inside the range of `d`."""
    if not d.is_float:
        return ordinary_bits(d)
    return tuple(encode_representable_value_unchecked(d, v) for v in (1.5, 1.0, 0.5, 2.0, 0.75, 1.25, 1.75, 1.0))


def _make_empty_axis_case(op: Op, d: DType, edge: str) -> ConformanceCase:
    """Create a case of an empty axis, whose result is the identity (R32), beside data, since an identity may be zero."""
    inputs: Inputs = {}
    nothing = b.reduce(add_param(d, (2, 0), inputs, values=to_array([], d).reshape(2, 0)), op, (1,))
    something = b.reduce(add_param(d, (2, 3), inputs, values=to_array(ordinary_bits(d)[:6], d).reshape(2, 3)), op, (1,))
    return make_single_cell_case(Op.REDUCE, d, edge, b.stack(nothing, something), inputs)


def _generate_same_and_wide_dtype_matmul_cases(d: DType, depth_factor: int) -> Iterator[ConformanceCase]:
    """Yield matrix products: in the dtype itself, and in a wider one with the sizes of tensor cores (R93)."""
    wide = dt.float32 if d.is_float else dt.int32
    wider = [("add-product-wide", wide, 16, 16, 8)] if wide.itemsize > d.itemsize else []
    for edge, out, m, k, n in (("add-product", d, 5, 3 * depth_factor, 7), *wider):
        inputs: Inputs = {}
        x, y = (
            add_param(d, s, inputs, values=_draw_matmul_operand_of_distinct_rows_and_columns(d, s)) for s in ((m, k, 1), (1, k, n))
        )
        yield make_single_cell_case(Op.REDUCE, d, edge, b.reduce(b.mul(b.cast(x, out), b.cast(y, out)), Op.ADD, (1,)), inputs)


def _draw_matmul_operand_of_distinct_rows_and_columns(d: DType, shape: tuple[int, ...]) -> Array:
    """Draw an operand until no two of its rows are equal, and no two of its columns."""
    rng, pool = make_seeded_generator("product", d.name, *shape), np.array(_moderate_bits(d), np.uint64)
    while True:
        bits = rng.choice(pool, shape)
        matrix = bits.squeeze()
        if all(np.unique(matrix, axis=k).shape == matrix.shape for k in (0, 1)):
            return to_array(bits, d)


def _make_edge_class_and_cancelling_rows(d: DType, n: int) -> Array:
    """Create two rows of `n` ordinary values, for bool two constant rows, and two rows per edge class.

    The first of these has the values of the class alone, the second its last value among ordinary ones. For floats, rows that
    cancel and random rows follow.
    """
    rows = [_cycle_pool(ordinary_bits(d), n), _cycle_pool(ordinary_bits(d)[2:], n)]
    if d.kind is DTypeKind.BOOL:
        rows += [[0] * n, [1] * n]
    for pool in edge_classes(d).values():
        rows.append(_cycle_pool(pool, n))
        rows.append([ordinary_bits(d)[k % 8] if k != 5 else pool[-1] for k in range(n)])
    values = to_array([v for r in rows for v in r], d).reshape(len(rows), n)
    return values if not d.is_float else np.concatenate([values, _make_cancelling_rows(d, n), _draw_normal_rows(d, 3, n)])


def _make_mostly_neutral_rows(op: Op, d: DType, n: int) -> Array:
    """Create rows of `n` mostly neutral values, so that the error bound of R32 stays narrow."""
    if op is Op.MUL and d.is_float:  # the error bound of a product grows with each factor
        n = min(n, max(3, (2 << d.man_bits) * 2 // 5))
    count = min(1 << (d.man_bits if d.is_float else 5), 32, n - 1)
    rows = np.full((4, n), int(op is Op.MUL))
    places = make_seeded_generator("long", op.name, d.name).permutation(n - 1)[:count] + 1
    rows[1, places[:1]], rows[2, places], rows[3, places] = 2, (2 if op is Op.MUL else 1), 1
    rows[2, places[4:]] = 1
    rows[3, places[0]] = 3
    if d.kind is DTypeKind.BOOL:
        rows = np.stack([rows[0], rows[0] == 0, rows[0], rows[0]]).astype(int)
        rows[2, places[0]] ^= 1
    return rows.astype(to_array([], d).dtype)


def _make_random_rows(op: Op, d: DType, rows: int, n: int) -> Array:
    if d.kind is DTypeKind.BOOL:
        return np.array([[(j * 7 + i) % n < i % (n + 1) for j in range(n)] for i in range(rows)])
    return to_array(random_bits(d, rows * n, "reduce", op.name.lower()), d).reshape(rows, n)


def _cycle_pool(pool: tuple[int, ...], n: int) -> list[int]:
    return [pool[k % len(pool)] for k in range(n)]


def _make_cancelling_rows(d: DType, n: int) -> Array:
    """Create rows of large terms that cancel beside a small one that must survive, and infinities of both signs."""
    big = min(d.max_finite / 8, 2.0**20)
    rows = [[big, -big] * (n // 2) + [0.5], [0.5, big, -big] * (n // 3) + [0.0] * (n - n // 3 * 3)]
    if d.has_inf:
        rows.append([np.inf, -np.inf] + [1.0] * (n - 2))
    return np.array(rows).astype(to_array([], d).dtype)


def _draw_normal_rows(d: DType, rows: int, n: int) -> Array:
    return make_seeded_generator("normals", d.name, n).standard_normal((rows, n)).astype(to_array([], d).dtype)
