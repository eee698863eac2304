"""A backend for `uops` to start from: float32 and int32 arithmetic and a few movement ops, evaluated by NumPy.

Replace `EVALUATE` by your own compiler or device. Declare what you lack in `capabilities`: a declared gap is *unsupported*, an
undeclared one is a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from uops.backends.contract import Backend, Capabilities, Inputs, Missing
from uops.spec.errors import Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.result import Result
from uops.spec.rows.rows import ROWS as EVERY

Array = Any


Sizes = Callable[[UOp], tuple[int, ...]]


def window(offset: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(o, o + n) for o, n in zip(offset, sizes, strict=True))


def pad(u: UOp, size: Sizes, x: Array) -> Array:
    out = np.zeros(size(u.src[2]), x.dtype)
    out[window(size(u.src[1]), x.shape)] = x
    return out


def ufunc(f: Callable[..., Array]) -> Callable[..., Array]:
    return lambda u, size, *operands: f(*operands)


EVALUATE: dict[Op, Callable[..., Array]] = {
    Op.ADD: ufunc(np.add),
    Op.SUB: ufunc(np.subtract),
    Op.MUL: ufunc(np.multiply),
    Op.NEG: ufunc(np.negative),
    Op.MAX: ufunc(np.maximum),
    Op.STACK: lambda u, size, *xs: np.stack(xs),
    Op.PERMUTE: lambda u, size, x: x.transpose(u.arg.order),
    Op.FLIP: lambda u, size, x: x[tuple(slice(None, None, -1 if f else 1) for f in u.arg.flags)],
    Op.RESHAPE: lambda u, size, x: x.reshape(size(u.src[1])),
    Op.EXPAND: lambda u, size, x: np.broadcast_to(x, size(u.src[1])),
    Op.PAD: pad,
    Op.SHRINK: lambda u, size, x: x[window(size(u.src[1]), size(u.src[2]))],
}
ROWS = {
    "Elementwise/Add", "Elementwise/Mul", "Elementwise/Max", "Decomposed/Neg", "Decomposed/Sub", "Source/Param", "Source/Const",
    "Movement/Permute", "Movement/Flip", "Movement/Reshape", "Movement/Expand", "Movement/Pad", "Movement/Shrink",
    "Movement/Stack",
}  # fmt: skip


class Template(Backend):
    """NumPy behind the contract."""

    name = "template"

    def version(self) -> str:
        return f"uops-template 0.1.0, NumPy {np.__version__}"

    def capabilities(self) -> Capabilities:
        lacking = tuple(Missing(r.id, "*", "not written yet") for r in EVERY.values() if r.id not in ROWS)
        lacking += (Missing("Composition/*", "*", "compositions reduce, which is not written yet"),)
        return Capabilities(dtypes=(dt.float32, dt.int32), unsupported=lacking, surfaces=("tensor",))

    def refuse(self, *roots: UOp) -> None:
        """Raises Unsupported for what is declared as missing anywhere in the graph, Function bodies included, and for more of
        `index` than the sizes of shapes: before anything is evaluated, as a body's Params have no inputs."""
        declared = self.capabilities()
        for u in toposort(*roots):
            if (lacking := declared.missing(EVERY[u.op].id, u.dtype)) is not None:
                raise Unsupported(f"{u.op.name} of {u.dtype.name}: {lacking.reason}", self.name)
            if u.dtype is dt.index and (u in roots or u.op not in (Op.CONST, Op.PARAM, Op.STACK)):
                raise Unsupported(f"{u.op.name} of index", self.name)

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        roots = graph.src if graph.op is Op.TUPLE else (graph,)  # a program of several values has a Tuple of them at its root
        self.refuse(*roots)
        values: dict[UOp, Array] = {}

        def size(vector: UOp) -> tuple[int, ...]:
            """A shape operand is a Stack of index constants and variables."""
            return tuple(s.const if s.op is Op.CONST else int(inputs[s.arg.name]) for s in vector.src)

        with np.errstate(all="ignore"):
            for u in toposort(*roots):
                if u.dtype is dt.index:
                    continue
                if u.op is Op.PARAM and u.arg.slot is None:  # a variable: a Python int, by its name
                    values[u] = np.array(inputs[u.arg.name], u.dtype.name)
                elif u.op is Op.PARAM:
                    values[u] = inputs[f"p{u.arg.slot}"]
                elif u.op is Op.CONST:
                    values[u] = np.array(u.const, u.dtype.name)
                else:
                    values[u] = EVALUATE[u.op](u, size, *(values[s] for s in u.src if s.dtype is not dt.index))
        return Result(tuple(np.array(values[r], order="C") for r in roots), {})
