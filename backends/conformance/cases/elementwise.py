"""Cases of the elementwise and decomposed rows: every op x dtype x edge class of its operands.

One case per row and dtype holds all classes as segments of one vector, so that a backend compiles one kernel for them. Broadcasting
and empty shapes have a case of their own. In the full tier, 8-bit binary ops and 16-bit unary ops are exhaustive.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends.conformance.cases.operands import (
    RANDOM_TUPLES,
    generate_bits_by_edge_class,
    make_params,
    make_segmented_case,
)
from uops.backends.conformance.model import ConformanceCase, ConformanceTier, Segment
from uops.backends.conformance.pools import edge_classes, ordinary_bits, random_bits, to_array
from uops.backends.testing.signatures import is_tested_dtype
from uops.backends.testing.values import encode_representable_value_unchecked
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CastArg
from uops.spec.ir.derive.exact import round_nearest
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ALU, SHIFT, TERNARY, UNARY, Op
from uops.spec.rows.rows import ROWS
from uops.spec.rows.signatures import operand_dtypes

Array = npt.NDArray[Any]
OPS = tuple(op for op in Op if op in ALU and op is not Op.MIN)


def generate_elementwise_cases(tier: ConformanceTier) -> Iterator[ConformanceCase]:
    """Yield all elementwise cases of the tier."""
    for op in OPS:
        for d in dt.STORABLE:
            if not is_tested_dtype(op, d):
                continue
            if op is Op.CAST:
                yield from (_make_cast_case(source, d, tier) for source in dt.STORABLE if source is not d)
                continue
            yield _make_edge_class_case(op, d, operand_dtypes(op, d), tier, "edges")
            if op in SHIFT and tier is ConformanceTier.FULL:
                yield from (
                    _make_edge_class_case(op, d, (d, count), tier, f"count-{count.short}") for count in dt.INTS if count is not d
                )
            if op is Op.WHERE and tier is ConformanceTier.FULL:
                yield from (
                    _make_edge_class_case(op, d, (p, d, d), tier, f"condition-{p.short}") for p in dt.STORABLE if p is not dt.bool_
                )
            if op not in UNARY:
                yield _make_broadcast_case(op, d)
                yield _make_repeated_and_different_operands_case(op, d)
            if tier is ConformanceTier.FULL and _is_exhaustible(op, d):
                yield _make_exhaustive_case(op, d)


def _make_edge_class_case(op: Op, d: DType, dtypes: tuple[DType, ...], tier: ConformanceTier, name: str) -> ConformanceCase:
    blocks = dict(generate_bits_by_edge_class(op.name, dtypes, tier))
    return _make_segmented_op_case(op, d, dtypes, blocks, name)


def _make_segmented_op_case(
    op: Op, d: DType, dtypes: tuple[DType, ...], bits_by_edge: dict[str, Array], name: str
) -> ConformanceCase:
    return make_segmented_case(ROWS[op].id, d, dtypes, bits_by_edge, name, lambda *params: UOp(op, params))


def _is_exhaustible(op: Op, d: DType) -> bool:
    if d.kind is DTypeKind.BOOL or op in TERNARY:
        return False
    return d.bits <= 16 if op in UNARY else d.bits == 8


def _make_exhaustive_case(op: Op, d: DType) -> ConformanceCase:
    """Create a case of every input of a unary op of at most 16 bits, or every pair of an 8-bit binary op."""
    kinds = operand_dtypes(op, d)
    values = np.arange(1 << d.bits, dtype=np.uint64)
    block = values[None, :] if len(kinds) == 1 else np.stack([np.repeat(values, len(values)), np.tile(values, len(values))])
    return _make_segmented_op_case(op, d, kinds, {"exhaustive": block}, "exhaustive")


def _make_broadcast_case(op: Op, d: DType) -> ConformanceCase:
    """Create a case of broadcasting (R41: right-aligned): of (3, 1, 4), (5, 1) and (), or of (3, 1) and (2, 1, 4)."""
    kinds = operand_dtypes(op, d)
    shapes: list[tuple[int, ...]] = [(3, 1, 4), (5, 1), ()] if len(kinds) == 3 else [(3, 1), (2, 1, 4)]
    params = make_params(kinds, shapes)
    inputs = {
        f"p{k}": to_array(_cycle_ordinary_bits(kind, s, k), kind).reshape(s)
        for k, (kind, s) in enumerate(zip(kinds, shapes, strict=True))
    }
    graph = UOp(op, params)
    return ConformanceCase(ROWS[op].id, d, "broadcast", graph, inputs, (Segment("broadcast", 0, 0, int(np.prod(graph.shape))),))


def _make_repeated_and_different_operands_case(op: Op, d: DType) -> ConformanceCase:
    """Create a case with one node for all operands of a dtype, as in x - x and Where(c, x, x), which tempt optimizers to false
    identities.

    The result may be all zeros or x itself, so a second value with different operands fails a backend that does nothing. Both are
    halves of one graph that needs no other row: the op on x and itself, then on x and another operand of x's shape.
    """
    kinds = operand_dtypes(op, d)
    edge_values = [*ordinary_bits(d), *(v for pool in edge_classes(d).values() for v in pool)]
    n = len(edge_values) + 8
    columns = [_cycle_pool(ordinary_bits(k), n, 3 * j + (j > 1)) for j, k in enumerate(kinds)]
    params = make_params(kinds, [(n,)] * len(kinds))
    repeated = params[-1] if op is Op.WHERE else params[0]
    columns[params.index(repeated)][: len(edge_values)] = edge_values
    same = UOp(op, tuple(repeated if p.dtype is repeated.dtype else p for p in params))
    inputs = {f"p{k}": to_array(c, kind) for k, (kind, c) in enumerate(zip(kinds, columns, strict=True))}
    segments = tuple(Segment("same-operand", k, 0, n) for k in (0, 1))
    return ConformanceCase(ROWS[op].id, d, "same-operand", b.tuple_(same, UOp(op, params)), inputs, segments)


def _cycle_pool(pool: tuple[int, ...], n: int, shift: int) -> list[int]:
    return [pool[(k + shift) % len(pool)] for k in range(n)]


def _cycle_ordinary_bits(d: DType, shape: tuple[int, ...], shift: int) -> list[int]:
    pool = ordinary_bits(d)
    return [pool[(k * (shift + 1) + shift) % len(pool)] for k in range(int(np.prod(shape)))]


def _make_cast_case(source: DType, target: DType, tier: ConformanceTier) -> ConformanceCase:
    """Create a case of Cast from one dtype; the cell's edge class names the source."""
    pool = [v for p in edge_classes(source).values() for v in p]
    halfway = _list_bits_around_halfway(source, target) if source.is_float and target.is_float and source.bits > target.bits else []
    is_exhaustive = source.bits <= 16 and tier is ConformanceTier.FULL and source.kind is not DTypeKind.BOOL
    more_values = (
        np.arange(1 << source.bits, dtype=np.uint64)
        if is_exhaustive
        else random_bits(source, RANDOM_TUPLES[tier], "cast", target.name)
    )
    values = np.concatenate([np.array([*ordinary_bits(source), *pool, *halfway], np.uint64), more_values])
    x = b.param(0, (len(values),), source)
    graph = UOp(Op.CAST, (x,), CastArg(target))
    segment = Segment(f"from-{source.short}", 0, 0, len(values))
    return ConformanceCase(ROWS[Op.CAST].id, target, f"from-{source.short}", graph, {"p0": to_array(values, source)}, (segment,))


def _list_bits_around_halfway(source: DType, target: DType) -> list[int]:
    """Return the bits in `source` of values halfway between neighbours of `target`, and those beside them (R15: one rounding).

    0 and the least subnormal are neighbours. The value from which on `target` overflows is one more.
    """
    classes = edge_classes(target)
    largest = encode_representable_value_unchecked(target, target.max_finite)
    middles = [target.max_finite + (target.max_finite - _float_from_bits(target, largest - 1)) / 2]
    for v in (0, *classes["rounding"][:64], *classes.get("subnormal", ()), *classes["limit"][:32]):
        middles.append((_float_from_bits(target, v) + _float_from_bits(target, v + 1)) / 2)
    values = []
    for middle in middles:
        if np.isfinite(middle) and middle != 0:
            middle_bits = nearest_float_bits(source, middle)
            values += [middle_bits - 1, middle_bits, middle_bits + 1]
    return values


def _float_from_bits(d: DType, bits: int) -> float:
    return float(to_array([bits], d).astype(np.float64)[0])


def nearest_float_bits(d: DType, value: float) -> int:
    """Return the bits of the value of `d` nearest to `value`."""

    return encode_representable_value_unchecked(d, round_to_finite(d, value))


def round_to_finite(d: DType, value: float) -> float:
    """Round `value` to `d`; an overflow becomes the largest finite value."""

    rounded = round_nearest(d, value)
    return rounded if np.isfinite(rounded) else float(np.copysign(d.max_finite, value))
