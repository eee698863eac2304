"""What the compiler asks of a target: a description, a renderer, a toolchain and a loader.

Calling convention of a loaded kernel: `kernel(addresses, scalars)`, both with one entry per argument of its Call, in slot order.
The entry of a buffer is its address (the other table's is ignored), the entry of a named variable its value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from uops.spec import dtypes as dt
from uops.spec.dtypes import DType
from uops.spec.node import UOp
from uops.spec.ops import BITWISE, COMPARE, SHIFT, Op

#: A loaded kernel.
Kernel = Callable[[Sequence[int], Sequence[int]], None]

#: What instruction selection leaves on a target that computes in bool, the machine integers, float32 and float64.
PLAIN_DTYPES: frozenset[DType] = frozenset({dt.bool_, *dt.INTS, dt.float32, dt.float64})
PLAIN_OPS: frozenset[Op] = (
    frozenset({Op.PARAM, Op.CONST, Op.BUFFER, Op.RANGE, Op.END, Op.INDEX, Op.STACK, Op.LOAD, Op.STORE, Op.AFTER, Op.GROUP, Op.SINK})
    | {
        Op.CAST,
        Op.BITCAST,
        Op.TRUNC,
        Op.NOT,
        Op.WHERE,
        Op.ADD,
        Op.MUL,
        Op.MAX,
        Op.SUB,
        Op.NEG,
        Op.DIV,
        Op.RECIP,
        Op.SQRT,
        Op.MULACC,
    }
    | {Op.IDIV, Op.MOD, Op.LINEAR}
    | SHIFT
    | BITWISE
    | COMPARE
)


class Target(Protocol):
    """One machine. `key` names everything but the source that decides a binary."""

    @property
    def name(self) -> str: ...

    @property
    def dtypes(self) -> frozenset[DType]: ...

    @property
    def ops(self) -> frozenset[Op]: ...

    @property
    def key(self) -> str: ...

    def render(self, linear: UOp) -> str:
        """The source of one LINEAR kernel."""
        ...

    def compile(self, source: str) -> bytes: ...

    def load(self, binary: bytes) -> Kernel: ...
