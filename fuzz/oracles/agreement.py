"""Do two texts of what the ops mean agree? The exact scalar interpreter judges any other, element by element.

A *meaning* takes (op, operand dtypes, result dtype, operand bit patterns as arrays) and gives result bit patterns, with -1 where it
declines to answer. `numpy_meaning` is the reference interpreter, `folder_meaning` the compiler's constant folder; a prover's
encoding joins by the same type. `operands` lists what to compare on: everything where the operands together have at most 16 bits,
else the product of edge values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends.arrays import STORAGE
from uops.backends.conformance.cases.elementwise import OPS, legal
from uops.backends.testing.values import edge_bits
from uops.compiler.rewrite.fold import fold
from uops.interp import run
from uops.interp.exact import evaluate_op
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CastArg, ConstArg
from uops.spec.ir.dtypes import DType, Kind
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import SHIFT, TERNARY, UNARY, Op

Array = npt.NDArray[Any]
Bits = npt.NDArray[np.uint64]
Meaning = Callable[[Op, tuple[DType, ...], DType, tuple[Bits, ...]], list[int]]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """`op` on these operand bits: what the meaning under test gave, and what the exact interpreter allows."""

    op: Op
    dtypes: tuple[DType, ...]
    operands: tuple[int, ...]
    got: int
    allowed: str

    def __str__(self) -> str:
        given = ", ".join(f"{d.short} 0x{v:x}" for d, v in zip(self.dtypes, self.operands, strict=True))
        return f"{self.op.name}({given}) gave 0x{self.got:x}, allowed {self.allowed}"


def signatures() -> Iterator[tuple[Op, tuple[DType, ...], DType]]:
    """Every (op, operand dtypes, result dtype) of R09 and R10 over the storable dtypes."""
    for op in OPS:
        if op is Op.CAST:
            yield from ((op, (s,), d) for s in dt.STORABLE for d in dt.STORABLE if s is not d)
            continue
        for d in dt.STORABLE:
            if legal(op, d):
                yield from ((op, kinds, _result(op, kinds)) for kinds in _operand_dtypes(op, d))


def _operand_dtypes(op: Op, d: DType) -> Iterator[tuple[DType, ...]]:
    if op in UNARY:
        yield (d,)
    elif op is Op.WHERE:
        yield (dt.bool_, d, d)
        if d is dt.uint8:
            yield from ((p, d, d) for p in dt.STORABLE if p is not dt.bool_)
    elif op in SHIFT:
        yield from ((d, count) for count in dict.fromkeys((d, dt.int8, dt.uint64)))
    else:
        yield (d, d, d) if op in TERNARY else (d, d)


def _result(op: Op, kinds: tuple[DType, ...]) -> DType:
    return UOp(op, tuple(b.param(k, (), d) for k, d in enumerate(kinds))).dtype


def operands(op: Op, kinds: tuple[DType, ...], most: int = 4096) -> tuple[Bits, ...]:
    """All operands, where they have at most 16 bits together; else the edge product, thinned evenly to `most` tuples."""
    if all(k.kind is not Kind.BOOL for k in kinds) and sum(k.bits for k in kinds) <= 16:
        sides = [np.arange(1 << k.bits, dtype=np.uint64) for k in kinds]
    else:
        sides = [np.array(_thin(edge_bits(k), round(most ** (1 / len(kinds)))), np.uint64) for k in kinds]
    grid = np.meshgrid(*sides, indexing="ij")
    return tuple(g.reshape(-1) for g in grid)


def _thin(pool: tuple[int, ...], most: int) -> list[int]:
    """At most `most` values of a pool: its first ones, which are special, and the rest evenly."""
    if len(pool) <= most:
        return list(pool)
    head = pool[: most // 2]
    rest = [v for v in pool if v not in set(head)]
    specials = rest[-4:]
    step = max(1, len(rest) // max(1, most - len(head) - 4))
    return list(dict.fromkeys([*head, *rest[::step], *specials]))


def numpy_meaning(op: Op, kinds: tuple[DType, ...], result: DType, values: tuple[Bits, ...]) -> list[int]:
    """The reference interpreter."""
    params = tuple(b.param(k, (len(v),), d) for k, (d, v) in enumerate(zip(kinds, values, strict=True)))
    graph = UOp(op, params, CastArg(result) if op is Op.CAST else None)
    inputs = {f"p{k}": _array(v, d) for k, (d, v) in enumerate(zip(kinds, values, strict=True))}
    (got,) = run(graph, inputs).values
    return [int(v) for v in np.ascontiguousarray(got).view(f"u{got.dtype.itemsize}").tolist()]


def _array(bits: Bits, d: DType) -> Array:
    if d.kind is Kind.BOOL:
        return bits.astype(np.bool_)
    return bits.astype(f"u{d.itemsize}").view(STORAGE[d])


def folder_meaning(op: Op, kinds: tuple[DType, ...], result: DType, values: tuple[Bits, ...]) -> list[int]:
    """The compiler's constant folder; it declines where a Const cannot hold an operand's bits (a NaN with a payload)."""
    arrays = [_array(v, d) for v, d in zip(values, kinds, strict=True)]
    found = []
    for element, bits in zip(zip(*arrays, strict=True), zip(*(v.tolist() for v in values), strict=True), strict=True):
        numbers = [_number(x, d) for x, d in zip(element, kinds, strict=True)]
        if any(_bits(x, d) != v for x, d, v in zip(numbers, kinds, bits, strict=True)):
            found.append(-1)
            continue
        src = tuple(UOp(Op.CONST, (), ConstArg(x, d)) for x, d in zip(numbers, kinds, strict=True))
        v = fold(UOp(op, src, CastArg(result) if op is Op.CAST else None))
        found.append(-1 if v is None else _bits(v, result))
    return found


def _number(x: Any, d: DType) -> bool | int | float:
    return float(x) if d.is_float else bool(x) if d.kind is Kind.BOOL else int(x)


def _bits(v: bool | int | float, d: DType) -> int:
    if not d.is_float:
        return int(v) & ((1 << d.bits) - 1)
    with np.errstate(all="ignore"):
        return int(np.array(v).astype(STORAGE[d]).view(f"u{d.itemsize}"))


def disagreements(
    meaning: Meaning, op: Op, kinds: tuple[DType, ...], result: DType, values: tuple[Bits, ...], most: int = 3
) -> list[Disagreement]:
    """The first `most` elements on which `meaning` gives what the exact interpreter does not allow (strict level)."""
    found: list[Disagreement] = []
    columns = [v.tolist() for v in values]
    for element, got in zip(zip(*columns, strict=True), meaning(op, kinds, result, values), strict=True):
        if got < 0:
            continue
        answer = evaluate_op(op, kinds, result, element)
        if not answer.contains(got):
            found.append(Disagreement(op, kinds, element, got, repr(answer)))
            if len(found) >= most:
                break
    return found
