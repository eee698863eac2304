"""Cases of the movement rows: no arithmetic, so every bit must arrive where the row says (R28)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from uops.backends.conformance.cases.common import SAMPLE, Inputs, buffer, param, single
from uops.backends.conformance.model import Case, Tier
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

Make = Callable[[DType, Inputs], UOp]


def _vector(values: tuple[int, ...]) -> UOp:
    return b.stack(*(b.index(v) for v in values))


def _runtime_index(i: Inputs, d: DType, values: list[int]) -> UOp:
    slot = sum(k.startswith("p") for k in i)
    i[f"p{slot}"] = np.array(values, d.name)
    return b.cast(b.param(slot, (len(values),), d), dt.index)


def _variable(i: Inputs, value: int, lo: int, hi: int) -> UOp:
    name = f"n{sum(k.startswith('n') for k in i)}"
    i[name] = value
    return b.variable(name, lo, hi)


def _index_runtime(d: DType, i: Inputs) -> UOp:
    return b.at(param(d, (7, 3), i), _runtime_index(i, dt.int32, [6, 0, 3, 3]))


def _index_runtime_scalar(d: DType, i: Inputs) -> UOp:
    return b.at(param(d, (7, 3), i), b.at(_runtime_index(i, dt.uint8, [5]), 0))


def _scalars(d: DType, i: Inputs) -> UOp:
    x = param(d, (9,), i)
    return b.stack(*(b.reshape(b.shrink(x, (k,), (1,)), ()) for k in (7, 2, 8, 0, 5, 3)))


def _all_scalars(d: DType, i: Inputs) -> UOp:
    x = param(d, (4, 5), i)
    return b.stack(*(b.at(x, j, k) for j, k in ((3, 1), (0, 2), (2, 4), (1, 0), (0, 3), (3, 4))))


def _slice_of_bytes(d: DType, i: Inputs) -> UOp:
    buf = buffer(dt.uint8, 12 * d.itemsize, i)
    return b.slice_(buf, 4 * d.itemsize, 5, d)


def _slice_to_bytes(d: DType, i: Inputs) -> UOp:
    return b.slice_(buffer(d, 9, i), 3, 4 * d.itemsize, dt.uint8)


def _bitcast(to: str) -> Make:
    def make(d: DType, i: Inputs) -> UOp:
        return b.bitcast(param(d, (3, 8), i), dt.SHORT[to])

    return make


def _bitcast_back(d: DType, i: Inputs) -> UOp:
    unsigned = dt.SHORT[f"u{d.bits}"]
    return b.bitcast(param(unsigned, (11,), i), d)


def _two_dims(d: DType, i: Inputs) -> UOp:
    return param(d, (3, 4), i)


def _sum_of_views(d: DType, i: Inputs) -> UOp:
    x = param(d, (4, 6), i)
    return b.reshape(b.flip(b.permute(b.shrink(x, (1, 2), (3, 4)), (1, 0)), (True, False)), (2, 6))


# fmt: off
TABLE: tuple[tuple[Op, str, Make], ...] = (
    (Op.PERMUTE, "transpose",   lambda d, i: b.permute(param(d, (5, 7), i), (1, 0))),
    (Op.PERMUTE, "rotate",      lambda d, i: b.permute(param(d, (2, 3, 4), i), (2, 0, 1))),
    (Op.PERMUTE, "chain",       _sum_of_views),
    (Op.FLIP, "one-axis",       lambda d, i: b.flip(_two_dims(d, i), (False, True))),
    (Op.FLIP, "all-axes",       lambda d, i: b.flip(param(d, (2, 3, 3), i), (True, True, True))),
    (Op.RESHAPE, "split-merge", lambda d, i: b.reshape(param(d, (2, 6), i), (3, 2, 2))),
    (Op.RESHAPE, "of-permuted", lambda d, i: b.reshape(b.permute(param(d, (4, 6), i), (1, 0)), (3, 8))),
    (Op.RESHAPE, "rank-0",      _scalars),
    (Op.EXPAND, "leading",      lambda d, i: b.expand(param(d, (1, 5), i), (3, 5))),
    (Op.EXPAND, "inner",        lambda d, i: b.expand(param(d, (3, 1, 2), i), (3, 4, 2))),
    (Op.PAD, "both-sides",      lambda d, i: b.pad(_two_dims(d, i), (1, 2), (5, 7))),
    (Op.PAD, "one-side",        lambda d, i: b.pad(param(d, (5,), i), (3,), (8,))),
    (Op.PAD, "symbolic",        lambda d, i: b.pad(param(d, (5,), i), (_variable(i, 2, 0, 4),), (9,))),
    (Op.PAD, "then-shrink",     lambda d, i: b.shrink(b.pad(_two_dims(d, i), (2, 0), (7, 5)), (1, 1), (4, 4))),
    (Op.SHRINK, "middle",       lambda d, i: b.shrink(param(d, (6, 5), i), (2, 1), (3, 3))),
    (Op.SHRINK, "symbolic",     lambda d, i: b.shrink(param(d, (8,), i), (_variable(i, 3, 0, 4),), (4,))),
    (Op.INDEX, "scalar",        lambda d, i: b.at(param(d, (4, 5), i), 2)),
    (Op.INDEX, "all-scalars",   _all_scalars),
    (Op.INDEX, "vector",        lambda d, i: b.at(param(d, (6, 2), i), _vector((4, 0, 0, 5)))),
    (Op.INDEX, "outer",         lambda d, i: b.at(param(d, (4, 5, 2), i), _vector((3, 1)), _vector((0, 4, 2)))),
    (Op.INDEX, "runtime",       _index_runtime),
    (Op.INDEX, "runtime-scalar", _index_runtime_scalar),
    (Op.INDEX, "symbolic",      lambda d, i: b.at(param(d, (6, 2), i), _variable(i, 4, 0, 5))),
    (Op.STACK, "vectors",       lambda d, i: b.stack(param(d, (3,), i), param(d, (3,), i), param(d, (3,), i))),
    (Op.STACK, "matrices",      lambda d, i: b.stack(b.flip(param(d, (3, 5), i), (True, False)), param(d, (3, 5), i))),
    (Op.REPLICATED, "equal-copies", lambda d, i: b.replicated(b.expand(param(d, (1, 5), i), (3, 5)), 0)),
    (Op.SLICE, "same-dtype",    lambda d, i: b.slice_(buffer(d, 9, i), 2, 5)),
    (Op.SLICE, "to-bytes",      _slice_to_bytes),
    (Op.SLICE, "of-bytes",      _slice_of_bytes),
    (Op.BITCAST, "to-bytes",    _bitcast("u8")),
    (Op.BITCAST, "to-u16",      _bitcast("u16")),
    (Op.BITCAST, "to-u32",      _bitcast("u32")),
    (Op.BITCAST, "to-u64",      _bitcast("u64")),
    (Op.BITCAST, "to-i8",       _bitcast("i8")),
    (Op.BITCAST, "of-unsigned", _bitcast_back),
)
# fmt: on

#: R46: the target of a Bitcast, and of a Slice from other storage, is never bool.
_NOT_BOOL = {(Op.BITCAST, "of-unsigned"), (Op.SLICE, "of-bytes")}


def cases(tier: Tier) -> Iterator[Case]:
    """Every movement row x dtype x shape class."""
    for op, edge, make in TABLE:
        for d in dt.STORABLE if tier is Tier.FULL else SAMPLE:
            if (d is dt.bool_ and (op, edge) in _NOT_BOOL) or (edge == f"to-{d.short}" and op is Op.BITCAST):
                continue
            inputs: Inputs = {}
            yield single(op, d, edge, make(d, inputs), inputs)
