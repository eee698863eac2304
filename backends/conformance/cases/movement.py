"""Cases of the movement rows: there is no arithmetic, so every bit must arrive at its place (R28: moves keep every bit)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from uops.backends.conformance.cases.common import (
    SAMPLE,
    Inputs,
    add_buffer,
    add_param,
    make_single_cell_case,
    put_nans_of_both_signs,
)
from uops.backends.conformance.model import ConformanceCase, ConformanceTier
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Builds a graph for a dtype, and adds its data to the inputs.
BuildGraph = Callable[[DType, Inputs], UOp]


def _index_vector(values: tuple[int, ...]) -> UOp:
    return b.stack(*(b.index(v) for v in values))


def _add_runtime_index(i: Inputs, d: DType, values: list[int]) -> UOp:
    slot = sum(k.startswith("p") for k in i)
    i[f"p{slot}"] = np.array(values, d.name)
    return b.cast(b.param(slot, (len(values),), d), dt.index)


def _add_variable(i: Inputs, value: int, lo: int, hi: int) -> UOp:
    name = f"n{sum(k.startswith('n') for k in i)}"
    i[name] = value
    return b.variable(name, lo, hi)


def _index_by_runtime_vector(d: DType, i: Inputs) -> UOp:
    return b.at(add_param(d, (7, 3), i), _add_runtime_index(i, dt.int32, [6, 0, 3, 3]))


def _index_by_runtime_scalar(d: DType, i: Inputs) -> UOp:
    return b.at(add_param(d, (7, 3), i), b.at(_add_runtime_index(i, dt.uint8, [5]), 0))


def _stack_reshaped_scalars(d: DType, i: Inputs) -> UOp:
    x = add_param(d, (9,), i)
    return b.stack(*(b.reshape(b.shrink(x, (k,), (1,)), ()) for k in (7, 2, 8, 0, 5, 3)))


def _stack_indexed_scalars(d: DType, i: Inputs) -> UOp:
    x = add_param(d, (4, 5), i)
    return b.stack(*(b.at(x, j, k) for j, k in ((3, 1), (0, 2), (2, 4), (1, 0), (0, 3), (3, 4))))


def _slice_of_bytes(d: DType, i: Inputs) -> UOp:
    buf = add_buffer(dt.uint8, 12 * d.itemsize, i)
    return b.slice_(buf, 4 * d.itemsize, 5, d)


def _slice_to_bytes(d: DType, i: Inputs) -> UOp:
    return b.slice_(add_buffer(d, 9, i), 3, 4 * d.itemsize, dt.uint8)


def _make_bitcast_to(short_dtype_name: str) -> BuildGraph:
    def make(d: DType, i: Inputs) -> UOp:
        return b.bitcast(add_param(d, (3, 8), i), dt.SHORT[short_dtype_name])

    return make


def _bitcast_from_unsigned(d: DType, i: Inputs) -> UOp:
    unsigned = dt.SHORT[f"u{d.bits}"]
    return b.bitcast(add_param(unsigned, (11,), i), d)


def _matrix_param(d: DType, i: Inputs) -> UOp:
    return add_param(d, (3, 4), i)


def _chain_views(d: DType, i: Inputs) -> UOp:
    x = add_param(d, (4, 6), i)
    return b.reshape(b.flip(b.permute(b.shrink(x, (1, 2), (3, 4)), (1, 0)), (True, False)), (2, 6))


# fmt: off
#: (op, edge class, builder of the graph) of each case.
TABLE: tuple[tuple[Op, str, BuildGraph], ...] = (
    (Op.PERMUTE, "transpose",   lambda d, i: b.permute(add_param(d, (5, 7), i), (1, 0))),
    (Op.PERMUTE, "rotate",      lambda d, i: b.permute(add_param(d, (2, 3, 4), i), (2, 0, 1))),
    (Op.PERMUTE, "chain",       _chain_views),
    (Op.FLIP, "one-axis",       lambda d, i: b.flip(_matrix_param(d, i), (False, True))),
    (Op.FLIP, "all-axes",       lambda d, i: b.flip(add_param(d, (2, 3, 3), i), (True, True, True))),
    (Op.RESHAPE, "split-merge", lambda d, i: b.reshape(add_param(d, (2, 6), i), (3, 2, 2))),
    (Op.RESHAPE, "of-permuted", lambda d, i: b.reshape(b.permute(add_param(d, (4, 6), i), (1, 0)), (3, 8))),
    (Op.RESHAPE, "rank-0",      _stack_reshaped_scalars),
    (Op.EXPAND, "leading",      lambda d, i: b.expand(add_param(d, (1, 5), i), (3, 5))),
    (Op.EXPAND, "inner",        lambda d, i: b.expand(add_param(d, (3, 1, 2), i), (3, 4, 2))),
    (Op.PAD, "both-sides",      lambda d, i: b.pad(_matrix_param(d, i), (1, 2), (5, 7))),
    (Op.PAD, "one-side",        lambda d, i: b.pad(add_param(d, (5,), i), (3,), (8,))),
    (Op.PAD, "symbolic",        lambda d, i: b.pad(add_param(d, (5,), i), (_add_variable(i, 2, 0, 4),), (9,))),
    (Op.PAD, "then-shrink",     lambda d, i: b.shrink(b.pad(_matrix_param(d, i), (2, 0), (7, 5)), (1, 1), (4, 4))),
    (Op.SHRINK, "middle",       lambda d, i: b.shrink(add_param(d, (6, 5), i), (2, 1), (3, 3))),
    (Op.SHRINK, "symbolic",     lambda d, i: b.shrink(add_param(d, (8,), i), (_add_variable(i, 3, 0, 4),), (4,))),
    (Op.INDEX, "scalar",        lambda d, i: b.at(add_param(d, (4, 5), i), 2)),
    (Op.INDEX, "all-scalars",   _stack_indexed_scalars),
    (Op.INDEX, "vector",        lambda d, i: b.at(add_param(d, (6, 2), i), _index_vector((4, 0, 0, 5)))),
    (Op.INDEX, "outer",         lambda d, i: b.at(add_param(d, (4, 5, 2), i), _index_vector((3, 1)), _index_vector((0, 4, 2)))),
    (Op.INDEX, "runtime",       _index_by_runtime_vector),
    (Op.INDEX, "runtime-scalar", _index_by_runtime_scalar),
    (Op.INDEX, "symbolic",      lambda d, i: b.at(add_param(d, (6, 2), i), _add_variable(i, 4, 0, 5))),
    (Op.STACK, "vectors",       lambda d, i: b.stack(add_param(d, (3,), i), add_param(d, (3,), i), add_param(d, (3,), i))),
    (Op.STACK, "matrices",      lambda d, i: b.stack(b.flip(add_param(d, (3, 5), i), (True, False)), add_param(d, (3, 5), i))),
    (Op.REPLICATED, "equal-copies", lambda d, i: b.replicated(b.expand(add_param(d, (1, 5), i), (3, 5)), 0)),
    (Op.SLICE, "same-dtype",    lambda d, i: b.slice_(add_buffer(d, 9, i), 2, 5)),
    (Op.SLICE, "to-bytes",      _slice_to_bytes),
    (Op.SLICE, "of-bytes",      _slice_of_bytes),
    (Op.BITCAST, "to-bytes",    _make_bitcast_to("u8")),
    (Op.BITCAST, "to-u16",      _make_bitcast_to("u16")),
    (Op.BITCAST, "to-u32",      _make_bitcast_to("u32")),
    (Op.BITCAST, "to-u64",      _make_bitcast_to("u64")),
    (Op.BITCAST, "to-i8",       _make_bitcast_to("i8")),
    (Op.BITCAST, "of-unsigned", _bitcast_from_unsigned),
)
# fmt: on

#: Cases without bool, which no Bitcast or Slice of other storage gives (R46: target dtypes).
_NOT_BOOL = {(Op.BITCAST, "of-unsigned"), (Op.SLICE, "of-bytes")}


def generate_movement_cases(tier: ConformanceTier) -> Iterator[ConformanceCase]:
    """Yield every movement row x dtype x shape class."""
    for op, edge, make in TABLE:
        for d in dt.STORABLE if tier is ConformanceTier.FULL else SAMPLE:
            if (d is dt.bool_ and (op, edge) in _NOT_BOOL) or (edge == f"to-{d.short}" and op is Op.BITCAST):
                continue
            inputs: Inputs = {}
            graph = make(d, inputs)
            put_nans_of_both_signs(inputs)
            yield make_single_cell_case(op, d, edge, graph, inputs)
