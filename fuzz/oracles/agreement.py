"""Comparison of implementations of ops with the exact scalar interpreter, element by element.

An *evaluator* takes (op, operand dtypes, result dtype, operand bit patterns as arrays) and gives result bit patterns, with -1
for those it declines to give. `evaluate_by_interpreter` is the reference interpreter and `fold_each_or_minus_one_if_declined` the
compiler's constant folder; a prover's encoding has the same type. `enumerate_narrow_or_thin_edge_operand_bits` lists the operands:
all of them if they have at most 16 bits together, else products of edge values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends.arrays import STORAGE
from uops.backends.conformance.cases.elementwise import OPS
from uops.backends.testing.signatures import is_tested_dtype
from uops.backends.testing.values import edge_bits
from uops.compiler.rewrite.fold import fold_constant
from uops.interp import run
from uops.interp.exact import evaluate_op
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CastArg, ConstArg
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import SHIFT, Op
from uops.spec.rows.signatures import operand_dtypes

Array = npt.NDArray[Any]
#: Bit patterns of elements, as unsigned words.
Bits = npt.NDArray[np.uint64]
#: (op, operand dtypes, result dtype, operand bits) -> result bits per element, -1 for those that are declined.
Evaluator = Callable[[Op, tuple[DType, ...], DType, tuple[Bits, ...]], list[int]]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """An element on which an evaluator gives `got`, which the exact interpreter does not allow."""

    op: Op
    dtypes: tuple[DType, ...]
    operands: tuple[int, ...]
    got: int
    allowed: str

    def __str__(self) -> str:
        operands = ", ".join(f"{d.short} 0x{v:x}" for d, v in zip(self.dtypes, self.operands, strict=True))
        return f"{self.op.name}({operands}) gave 0x{self.got:x}, allowed {self.allowed}"


def list_op_signatures() -> Iterator[tuple[Op, tuple[DType, ...], DType]]:
    """Yield each (op, operand dtypes, result dtype) over the storable dtypes that is tested (R09 and R10: dtypes of operands).

    A shift has counts of three dtypes, and a Where conditions other than bool for uint8 alone.
    """
    for op in OPS:
        if op is Op.CAST:
            yield from ((op, (s,), d) for s in dt.STORABLE for d in dt.STORABLE if s is not d)
            continue
        for d in dt.STORABLE:
            if is_tested_dtype(op, d):
                yield from ((op, kinds, _result_dtype(op, kinds)) for kinds in _enumerate_operand_dtypes(op, d))


def _enumerate_operand_dtypes(op: Op, d: DType) -> Iterator[tuple[DType, ...]]:
    if op is Op.WHERE:
        yield operand_dtypes(op, d)
        if d is dt.uint8:
            yield from ((p, d, d) for p in dt.STORABLE if p is not dt.bool_)
    elif op in SHIFT:
        yield from ((d, count) for count in dict.fromkeys((d, dt.int8, dt.uint64)))
    else:
        yield operand_dtypes(op, d)


def _result_dtype(op: Op, kinds: tuple[DType, ...]) -> DType:
    return UOp(op, tuple(b.param(k, (), d) for k, d in enumerate(kinds))).dtype


def enumerate_narrow_or_thin_edge_operand_bits(op: Op, dtypes: tuple[DType, ...], max_edge_tuples: int = 4096) -> tuple[Bits, ...]:
    """Return all operands if they have at most 16 bits together; else the product of edge values, thinned evenly to
    `max_edge_tuples`.
    """
    if all(k.kind is not DTypeKind.BOOL for k in dtypes) and sum(k.bits for k in dtypes) <= 16:
        sides = [np.arange(1 << k.bits, dtype=np.uint64) for k in dtypes]
    else:
        max_values = int(max_edge_tuples ** (1 / len(dtypes)) + 1e-9)
        sides = [np.array(_keep_ends_and_thin_middle(edge_bits(k), max_values), np.uint64) for k in dtypes]
    grid = np.meshgrid(*sides, indexing="ij")
    return tuple(g.reshape(-1) for g in grid)


def _keep_ends_and_thin_middle(pool: tuple[int, ...], max_values: int) -> list[int]:
    """Return at most `max_values` values of a pool: half of them its first, four its last, which are special, and others evenly."""
    values = list(dict.fromkeys(pool))
    if len(values) <= max_values:
        return values
    first, last = max_values // 2, min(4, max_values - max_values // 2)
    middle = values[first : len(values) - last]
    wanted = max_values - first - last
    step = -(-len(middle) // wanted) if wanted else len(middle)
    return [*values[:first], *middle[::step][:wanted], *values[len(values) - last :]]


def evaluate_by_interpreter(op: Op, dtypes: tuple[DType, ...], result_dtype: DType, operand_bits: tuple[Bits, ...]) -> list[int]:
    """Evaluate an op on bit patterns by the reference interpreter."""
    params = tuple(b.param(k, (len(v),), d) for k, (d, v) in enumerate(zip(dtypes, operand_bits, strict=True)))
    graph = UOp(op, params, CastArg(result_dtype) if op is Op.CAST else None)
    inputs = {f"p{k}": _bits_to_array(v, d) for k, (d, v) in enumerate(zip(dtypes, operand_bits, strict=True))}
    (values_of_op,) = run(graph, inputs).values
    return [int(v) for v in np.ascontiguousarray(values_of_op).view(f"u{values_of_op.dtype.itemsize}").tolist()]


def _bits_to_array(bits: Bits, d: DType) -> Array:
    if d.kind is DTypeKind.BOOL:
        return bits.astype(np.bool_)
    return bits.astype(f"u{d.itemsize}").view(STORAGE[d])


def fold_each_or_minus_one_if_declined(
    op: Op, dtypes: tuple[DType, ...], result_dtype: DType, operand_bits: tuple[Bits, ...]
) -> list[int]:
    """Evaluate an op on bit patterns by the compiler's constant folder. It declines if a Const cannot hold an operand's
    bits, as of a NaN with a payload.
    """
    arrays = [_bits_to_array(v, d) for v, d in zip(operand_bits, dtypes, strict=True)]
    results = []
    for element, bits in zip(zip(*arrays, strict=True), zip(*(v.tolist() for v in operand_bits), strict=True), strict=True):
        numbers = [_element_to_number(x, d) for x, d in zip(element, dtypes, strict=True)]
        if any(_number_to_bits(x, d) != v for x, d, v in zip(numbers, dtypes, bits, strict=True)):
            results.append(-1)
            continue
        src = tuple(UOp(Op.CONST, (), ConstArg(x, d)) for x, d in zip(numbers, dtypes, strict=True))
        folded = fold_constant(UOp(op, src, CastArg(result_dtype) if op is Op.CAST else None))
        results.append(-1 if folded is None else _number_to_bits(folded, result_dtype))
    return results


def _element_to_number(x: Any, d: DType) -> bool | int | float:
    return float(x) if d.is_float else bool(x) if d.kind is DTypeKind.BOOL else int(x)


def _number_to_bits(v: bool | int | float, d: DType) -> int:
    if not d.is_float:
        return int(v) & ((1 << d.bits) - 1)
    with np.errstate(all="ignore"):
        return int(np.array(v).astype(STORAGE[d]).view(f"u{d.itemsize}"))


def find_disagreements_with_exact(
    evaluate: Evaluator,
    op: Op,
    dtypes: tuple[DType, ...],
    result_dtype: DType,
    operand_bits: tuple[Bits, ...],
    max_disagreements: int = 3,
) -> list[Disagreement]:
    """Return the first `max_disagreements` elements on which the evaluator gives a result that the exact interpreter does
    not allow at the strict level.
    """
    disagreements: list[Disagreement] = []
    columns = [v.tolist() for v in operand_bits]
    for element, got in zip(zip(*columns, strict=True), evaluate(op, dtypes, result_dtype, operand_bits), strict=True):
        if got < 0:
            continue
        allowed = evaluate_op(op, dtypes, result_dtype, element)
        if not allowed.contains(got):
            disagreements.append(Disagreement(op, dtypes, element, got, repr(allowed)))
            if len(disagreements) >= max_disagreements:
                break
    return disagreements
