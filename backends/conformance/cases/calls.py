"""Cases of calls: other calls before this one, inputs of any form, edge values in every lane, and more elements than a tile.

Each belongs to the row of Param, as its value is what the caller gives at each run, or to that of the op whose lanes it asks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from uops.backends.conformance.cases.common import Array, Inputs, add_param, make_ordinary_then_random_data, make_single_cell_case
from uops.backends.conformance.model import ConformanceCase, ConformanceTier
from uops.backends.conformance.pools import edge_classes, ordinary_bits, to_array
from uops.backends.testing.calls import InvocationMode
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Dtypes of the smoke tier.
_SMOKE = (dt.float32, dt.uint8, dt.bool_)
#: Elements of a large case: more than a tile, a cache or the work of one thread, and no multiple of a vector.
_LARGE = (1 << 19) + 5
#: Lanes of a case of lanes: several vectors and a tail, of every width.
_LANES = 67
#: Values of each class that stand in every lane.
_VALUES_OF_CLASS = 2


def generate_invocation_edge_lane_and_large_cases(tier: ConformanceTier) -> Iterator[ConformanceCase]:
    """Yield the cases of calls, of lanes, and, but in the smoke tier, of large values."""
    is_smoke = tier is ConformanceTier.SMOKE
    for d in _SMOKE if is_smoke else dt.STORABLE:
        yield from (_make_two_param_invocation_case(d, mode) for mode in InvocationMode if mode is not InvocationMode.PLAIN)
        if not is_smoke:
            yield _make_large_case(d)
    for d in (dt.float32, dt.int32) if is_smoke else dt.STORABLE:
        for op in (Op.ADD, Op.MUL, Op.MAX) if d is not dt.bool_ else (Op.OR,):
            yield from _generate_edge_value_in_each_lane_cases(op, d)


def _combine(x: UOp, y: UOp) -> UOp:
    """Combine two values by an op that is exact in every dtype."""
    return UOp(Op.XOR if x.dtype is dt.bool_ else Op.MAX, (x, y))


def _make_two_param_invocation_case(d: DType, mode: InvocationMode) -> ConformanceCase:
    """Create a case of two inputs that are combined, and of one that is moved."""
    inputs: Inputs = {}
    if mode is InvocationMode.OVERLAPPING:
        data = make_ordinary_then_random_data(d, (38,), "overlapping")
        x, y = add_param(d, (37,), inputs, values=data[:-1]), add_param(d, (37,), inputs, values=data[1:])
        graph = b.stack(_combine(x, y), b.flip(y, (True,)))
    else:
        values = [_rows(d, k, mode is InvocationMode.BROADCAST) for k in range(2)]
        x, y = (add_param(d, v.shape, inputs, values=v) for v in values)
        graph = b.stack(_combine(x, y), b.flip(y, (False, True)))
    case = make_single_cell_case(Op.PARAM, d, f"call:{mode}", graph, inputs)
    return replace(case, call=mode)


def _rows(d: DType, key: int, are_equal: bool) -> Array:
    """Return five rows of values."""
    rows = make_ordinary_then_random_data(d, (5, 11), "rows", key)
    return np.ascontiguousarray(np.broadcast_to(rows[:1], rows.shape)) if are_equal else rows


def _make_large_case(d: DType) -> ConformanceCase:
    inputs: Inputs = {}
    x, y = add_param(d, (_LARGE,), inputs), add_param(d, (_LARGE,), inputs)
    return make_single_cell_case(Op.PARAM, d, "size:large", _combine(x, b.flip(y, (True,))), inputs)


def _generate_edge_value_in_each_lane_cases(op: Op, d: DType) -> Iterator[ConformanceCase]:
    """Yield a case per edge class: rows of ordinary values, each with an edge value in a lane of its own.

    Beside an edge value stands itself in a sum, and else a value that leaves a small or special one as it is: the least ordinary
    one, or the first one in a product.
    """
    ordinary = ordinary_bits(d)[:8]
    least = min(ordinary, key=lambda bits: float(to_array([bits], d)[0]))
    for name, bits in edge_classes(d).items():
        values = bits[-_VALUES_OF_CLASS:]
        x_bits, y_bits = [], []
        for value, lane in itertools.product(values, range(_LANES)):
            x_bits += [value if k == lane else ordinary[k % 8] for k in range(_LANES)]
            beside = value if op is Op.ADD else ordinary[0] if op is Op.MUL else least
            y_bits += [beside if k == lane else ordinary[(k + 3) % 8] for k in range(_LANES)]
        inputs: Inputs = {}
        x, y = (add_param(d, (len(v),), inputs, values=to_array(v, d)) for v in (x_bits, y_bits))
        if values:
            yield make_single_cell_case(op, d, f"lanes:{name}", UOp(op, (x, y)), inputs)
