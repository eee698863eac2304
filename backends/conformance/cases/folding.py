"""Cases that a compiler decides at compile time: constant operands, and comparisons of values whose range it knows.

Edge class `constant`: every elementwise op on constants, so that a folder is judged like a kernel. Edge class `wrapped-range`: a
comparison of integers that wrapped, where an interval that ignores the wrap gives the wrong answer (R05, R70).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from uops.backends.conformance.cases.elementwise import OPS, legal, operand_dtypes
from uops.backends.conformance.model import Case, Segment, Tier
from uops.backends.conformance.pools import classes, ordinary, seeded, to_array
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, Kind
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.rows.compositions import arange
from uops.spec.rows.rows import ROWS

_MANY = {Tier.SMOKE: 12, Tier.FULL: 40}
_SMOKE = (dt.bool_, dt.int8, dt.uint8, dt.int32, dt.uint64, dt.float32, dt.float16)


def cases(tier: Tier) -> Iterator[Case]:
    for op in OPS:
        for d in dt.STORABLE if tier is Tier.FULL else _SMOKE:
            if legal(op, d) and op is not Op.CAST:
                yield _constants(op, d, _MANY[tier])
    for d in dt.STORABLE if tier is Tier.FULL else _SMOKE:
        yield from (_constant_casts(source, d) for source in dt.STORABLE if source is not d)
    for d in dt.INTS:
        for op in (Op.CMPLT, Op.CMPNE, Op.CMPGT, Op.CMPGE, Op.CMPLE, Op.CMPEQ):
            yield _wrapped(op, d)


def constant(d: DType, bits: int) -> UOp:
    """The Const with this bit pattern."""
    v: Any = to_array([bits], d)[0]
    return b.const(float(v) if d.is_float else bool(v) if d.kind is Kind.BOOL else int(v), d)


def _constants(op: Op, d: DType, n: int) -> Case:
    kinds = operand_dtypes(op, d)
    rng = seeded("constant", op.name, d.name)
    pools = [(*ordinary(k), *(v for p in classes(k).values() for v in p)) for k in kinds]
    tuples = [[ordinary(k)[(j + i) % 8] for i, k in enumerate(kinds)] for j in range(4)]
    tuples.append([ordinary(k)[2] for k in kinds])
    tuples += [[int(p[rng.integers(0, len(p))]) for p in pools] for _ in range(n)]
    graph = b.stack(*(UOp(op, tuple(constant(k, v) for k, v in zip(kinds, t, strict=True))) for t in tuples))
    return Case(ROWS[op].id, d, "constant", graph, {}, (Segment("constant", 0, 0, len(tuples)),))


def _constant_casts(source: DType, d: DType) -> Case:
    bits = [*ordinary(source)[:4], *(v for p in classes(source).values() for v in p[:5])]
    graph = b.stack(*(b.cast(constant(source, v), d) for v in bits))
    return Case(ROWS[Op.CAST].id, d, f"constant-{source.short}", graph, {}, (Segment("constant", 0, 0, len(bits)),))


def _wrapped(op: Op, d: DType) -> Case:
    """Ten consecutive integers pushed over the end of `d` by Add, Mul, Sub, Neg and Cast, then compared with constants."""
    n = 10
    r = b.cast(arange(n, dt.int32), d)
    top, bits = int(d.max), d.bits
    ways = [
        b.add(r, b.const(top - 4, d)),
        b.mul(r, b.const(1 << (bits - 2), d)),
        b.sub(r, b.const(5, d)),
        b.neg(r),
        b.shl(r, b.const(bits - 3, d)),
        b.cast(b.add(arange(n, dt.int64), b.const((top - 4) % (1 << 62), dt.int64)), d),
    ]
    bounds = [b.const(v, d) for v in (5, 0, top, int(d.min))]
    graph = b.stack(*(UOp(op, (way, bound)) for way in ways for bound in bounds))
    segment = Segment("wrapped-range", 0, 0, int(np.prod(graph.shape)))
    return Case(ROWS[op].id, d, "wrapped-range", graph, {}, (segment,))
