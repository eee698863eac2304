"""Tiny programs, one per row, by which an adapter learns what its library refuses.

Each comes with the rows that it stands for. A program that runs says nothing of its values: the suite judges those.
"""

from __future__ import annotations

from collections.abc import Iterator

from uops.backends.subjects.library import FUNCTION_OPS
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.rows.optional import OPTIONAL
from uops.spec.rows.rows import ROWS
from uops.spec.rows.signatures import accepts_dtypes, operand_dtypes


def list_probes(d: DType) -> Iterator[tuple[tuple[str, ...], UOp]]:
    """Yield (rows, program) for each row that has cells of a dtype."""
    x, y = b.param(0, (2, 3), d), b.param(1, (2, 3), d)
    for op in FUNCTION_OPS:
        kinds = operand_dtypes(op, d)
        if accepts_dtypes(op, kinds):
            yield (ROWS[op].id,), b.build_alu_with_promotion(op, *(b.param(k, (2, 3), kind) for k, kind in enumerate(kinds)))
    for f in OPTIONAL.values():
        if d in f.dtypes:
            yield (f.row,), f.build(*(b.param(k, (3,), d) for k in range(f.arity)))
    sums = ("Reduce/Reduce", "Bestiary/REDUCE_AXIS", "Composition/*")
    yield sums, b.tuple_(*(b.reduce(x, op, (1,)) for op in (Op.ADD, Op.MUL, Op.MAX)))
    yield (
        ("Composition/*",),
        b.where(
            b.build_alu_with_promotion(Op.CMPEQ, x, y),
            b.build_alu_with_promotion(Op.ADD, x, y),
            b.build_alu_with_promotion(Op.MUL, x, y),
        ),
    )
    yield ("Movement/Permute",), b.permute(x, (1, 0))
    yield ("Movement/Flip",), b.flip(x, (True, False))
    yield ("Movement/Reshape",), b.reshape(x, (3, 2))
    yield ("Movement/Expand",), b.expand(b.reshape(x, (2, 1, 3)), (2, 4, 3))
    yield ("Movement/Pad", "Bestiary/PAD"), b.pad(x, (1, 0), (4, 3))
    yield ("Movement/Shrink", "Bestiary/SHRINK"), b.shrink(x, (0, 1), (2, 1))
    yield ("Movement/Index",), UOp(Op.INDEX, (x, b.shape_vector((1, 0))))
    yield ("Movement/Stack",), b.stack(x, y)
    yield ("Movement/Bitcast",), b.bitcast(x, dt.uint8 if d is dt.bool_ else d.word)
    gate = b.param(2, (2, 3), dt.bool_)
    yield ("Load/Load",), b.load(x, y, gate)
    memory = b.buffer(6, d, unique=1)
    yield ("Store/Store",), b.sink(b.store(b.reshape(memory, (2, 3)), x, gate))
    yield ("Store/Store",), b.sink(b.store(b.shrink(memory, (1,), (3,)), b.param(0, (3,), d)))
