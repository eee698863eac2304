"""A backend for `uops` to start from: float32 and int32 arithmetic and a few movement ops, evaluated by NumPy.

Replace `EVALUATE` by your own compiler or device. Declare what you lack in `capabilities`: a declared gap is *unsupported*, an
undeclared one is a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from uops.backends.contract import Backend, Capabilities, Inputs, Missing
from uops.spec import dtypes as dt
from uops.spec.errors import Unsupported
from uops.spec.node import UOp, toposort
from uops.spec.ops import Op
from uops.spec.result import Result

Array = Any


def shape(vector: UOp) -> tuple[int, ...]:
    """A shape operand is a Stack of index constants."""
    return tuple(s.const for s in vector.src)


def pad(u: UOp, x: Array) -> Array:
    offset, full = shape(u.src[1]), shape(u.src[2])
    return np.pad(x, [(o, n - o - k) for o, n, k in zip(offset, full, x.shape, strict=True)])


def shrink(u: UOp, x: Array) -> Array:
    return x[tuple(slice(o, o + n) for o, n in zip(shape(u.src[1]), shape(u.src[2]), strict=True))]


def wrapping(f: Callable[..., Array]) -> Callable[..., Array]:
    def op(u: UOp, *operands: Array) -> Array:
        with np.errstate(all="ignore"):
            return f(*operands)

    return op


EVALUATE: dict[Op, Callable[..., Array]] = {
    Op.ADD: wrapping(np.add),
    Op.SUB: wrapping(np.subtract),
    Op.MUL: wrapping(np.multiply),
    Op.NEG: wrapping(np.negative),
    Op.MAX: wrapping(np.maximum),
    Op.PERMUTE: lambda u, x: x.transpose(u.arg.order),
    Op.FLIP: lambda u, x: x[tuple(slice(None, None, -1 if f else 1) for f in u.arg.flags)],
    Op.RESHAPE: lambda u, x, s: x.reshape(shape(u.src[1])),
    Op.EXPAND: lambda u, x, s: np.broadcast_to(x, shape(u.src[1])),
    Op.PAD: lambda u, x, o, s: pad(u, x),
    Op.SHRINK: lambda u, x, o, s: shrink(u, x),
}
ROWS = {
    "Elementwise/Add", "Elementwise/Mul", "Elementwise/Max", "Decomposed/Neg", "Decomposed/Sub", "Source/Param",
    "Movement/Permute", "Movement/Flip", "Movement/Reshape", "Movement/Expand", "Movement/Pad", "Movement/Shrink",
}  # fmt: skip


class Template(Backend):
    """NumPy behind the contract."""

    name = "template"

    def version(self) -> str:
        return f"uops-template 0.1.0, NumPy {np.__version__}"

    def capabilities(self) -> Capabilities:
        from uops.spec.rows import ROWS as EVERY

        lacking = tuple(Missing(r.id, "*", "not written yet") for r in EVERY.values() if r.id not in ROWS)
        return Capabilities(dtypes=(dt.float32, dt.int32), unsupported=lacking)

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        values: dict[UOp, Array] = {}
        for u in toposort(graph):
            if u.dtype is dt.index:
                values[u] = None
            elif u.op is Op.PARAM:
                values[u] = inputs[f"p{u.arg.slot}"]
            elif u.op is Op.CONST:
                values[u] = np.array(u.const, u.dtype.name)
            elif u.op is Op.STACK:
                values[u] = np.stack([values[s] for s in u.src])
            elif u.op in EVALUATE:
                values[u] = EVALUATE[u.op](u, *(values[s] for s in u.src))
            else:
                raise Unsupported(u.op.name, self.name)
        return Result((np.ascontiguousarray(values[graph]).reshape(graph.shape),), {})
