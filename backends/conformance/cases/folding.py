"""Cases that a compiler decides at compile time: constant operands, and comparisons of values whose range it derives.

Edge class `constant`: every elementwise op on constants, so that a constant folder is judged like a kernel. Edge class
`wrapped-range`: a comparison of integers that wrapped, where interval analysis that ignores the wrap is wrong (R05, R70).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from uops.backends.conformance.cases.elementwise import OPS
from uops.backends.conformance.model import ConformanceCase, ConformanceTier, Segment
from uops.backends.conformance.pools import edge_classes, make_seeded_generator, ordinary_bits, to_array
from uops.backends.testing.signatures import is_tested_dtype
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import COMPARE, Op
from uops.spec.rows.compositions import arange
from uops.spec.rows.rows import ROWS
from uops.spec.rows.signatures import operand_dtypes

#: Number of random operand tuples per case.
_MANY = {ConformanceTier.SMOKE: 12, ConformanceTier.FULL: 40}
#: Dtypes of the smoke tier.
_SMOKE = (dt.bool_, dt.int8, dt.uint8, dt.int32, dt.uint64, dt.float32, dt.float16)


def generate_constant_and_wrapped_range_cases(tier: ConformanceTier) -> Iterator[ConformanceCase]:
    """Yield all cases of the edge classes `constant` and `wrapped-range`."""
    for op in OPS:
        for d in dt.STORABLE if tier is ConformanceTier.FULL else _SMOKE:
            if is_tested_dtype(op, d) and op is not Op.CAST:
                yield _make_constant_operands_case(op, d, _MANY[tier])
    for d in dt.STORABLE if tier is ConformanceTier.FULL else _SMOKE:
        yield from (_make_constant_cast_case(source, d) for source in dt.STORABLE if source is not d)
    for d in dt.INTS:
        for op in (op for op in OPS if op in COMPARE):
            yield _make_wrapped_range_case(op, d)


def const_from_bits(d: DType, bits: int) -> UOp:
    """Return the Const with this bit pattern."""
    value: Any = to_array([bits], d)[0]
    return b.const(float(value) if d.is_float else bool(value) if d.kind is DTypeKind.BOOL else int(value), d)


def _make_constant_operands_case(op: Op, d: DType, random_tuples: int) -> ConformanceCase:
    kinds = operand_dtypes(op, d)
    rng = make_seeded_generator("constant", op.name, d.name)
    pools = [(*ordinary_bits(k), *(v for p in edge_classes(k).values() for v in p)) for k in kinds]
    tuples = [[ordinary_bits(k)[(j + i) % 8] for i, k in enumerate(kinds)] for j in range(4)]
    tuples.append([ordinary_bits(k)[2] for k in kinds])
    tuples += [[int(p[rng.integers(0, len(p))]) for p in pools] for _ in range(random_tuples)]
    graph = b.stack(*(UOp(op, tuple(const_from_bits(k, v) for k, v in zip(kinds, t, strict=True))) for t in tuples))
    return ConformanceCase(ROWS[op].id, d, "constant", graph, {}, (Segment("constant", 0, 0, len(tuples)),))


def _make_constant_cast_case(source: DType, d: DType) -> ConformanceCase:
    bits = [*ordinary_bits(source)[:4], *(v for p in edge_classes(source).values() for v in p[:5])]
    graph = b.stack(*(b.cast(const_from_bits(source, v), d) for v in bits))
    return ConformanceCase(ROWS[Op.CAST].id, d, f"constant-{source.short}", graph, {}, (Segment("constant", 0, 0, len(bits)),))


def _make_wrapped_range_case(compare_op: Op, d: DType) -> ConformanceCase:
    """Create a case of ten integers moved beyond an end of `d` by Add, Mul, Sub, Neg, Shl and Cast, compared with constants.

    Each op leaves the range of `d` for some of them.
    """
    n = 10
    counter = b.cast(arange(n, dt.int32), d)
    low, top, bits = int(d.min), int(d.max), d.bits
    source = dt.uint64 if d is dt.int64 else dt.int64
    start = top - 4 if top + 5 <= source.max else low - 5
    wrapped = [
        b.add(counter, b.const(top - 4, d)),
        b.mul(counter, b.const(1 << (bits - 2), d)),
        b.sub(b.const(low + 4, d), counter),
        b.neg(b.add(counter, b.const(low, d))),
        b.shl(counter, b.const(bits - 3, d)),
        b.cast(b.add(b.cast(arange(n, dt.int32), source), b.const(start, source)), d),
    ]
    bounds = [b.const(v, d) for v in (5, 0, top, low)]
    graph = b.stack(*(UOp(compare_op, (way, bound)) for way in wrapped for bound in bounds))
    segment = Segment("wrapped-range", 0, 0, int(np.prod(graph.shape)))
    return ConformanceCase(ROWS[compare_op].id, d, "wrapped-range", graph, {}, (segment,))
