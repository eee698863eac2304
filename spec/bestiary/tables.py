"""The bestiary's tables that are no op rows: AxisType and ReduceOp names, range-ending and expandable operations (R109)."""

from __future__ import annotations

from uops.spec.ir.axes import AxisType
from uops.spec.ir.ops import BINARY, CONVERSIONS, TERNARY, UNARY, Op

#: Printed name -> axis type; priorities and mapping are columns of `uops.spec.ir.axes.AXIS_TABLE`.
AXIS_NAMES: dict[str, AxisType] = {
    "Placeholder": AxisType.PLACEHOLDER,
    "Loop": AxisType.LOOP,
    "Global": AxisType.GLOBAL,
    "Thread": AxisType.THREAD,
    "Warp": AxisType.WARP,
    "Local": AxisType.LOCAL,
    "GroupReduce": AxisType.GROUP_REDUCE,
    "Upcast": AxisType.UPCAST,
    "Reduce": AxisType.REDUCE,
    "Unroll": AxisType.UNROLL,
}

#: Printed name -> priority; loops of lower priority are further out.
PRIORITY: dict[str, int] = {
    "Placeholder": -3, "Loop": -1, "Global": 0, "Thread": 0, "Warp": 1,
    "Local": 2, "GroupReduce": 2, "Upcast": 3, "Reduce": 4, "Unroll": 5,
}  # fmt: skip

#: The ReduceOp variants.
REDUCE_OPS: dict[str, Op] = {"Add": Op.ADD, "Mul": Op.MUL, "Max": Op.MAX, "Min": Op.MIN}

#: Operations that close ranges -> position of the first range among the sources.
RANGE_ENDING: dict[Op, int] = {
    Op.BUFFERIZE: 1,
    Op.B_REDUCE: 1,
    Op.B_STORE: 2,
    Op.WMMA: 3,
    Op.END: 1,
    Op.CALL: 1,
    Op.FUNCTION: 1,
}

#: Operations through which the lanes of an UNROLL propagate.
EXPANDABLE: frozenset[Op] = (
    UNARY | BINARY | TERNARY
    | CONVERSIONS
    | {Op.GEP, Op.VECTORIZE}
    | {Op.B_LOAD, Op.B_STORE, Op.B_INDEX, Op.POINTER_INDEX}
    | {Op.B_REDUCE, Op.END, Op.AFTER}
    | {Op.BUFFERIZE}
    | {Op.WMMA}
)  # fmt: skip

#: The kinds of CustomFunctions. The fields of CallInfo and BufferizeOpts are those of `CallArg` and `BufferizeArg`.
CUSTOM_FUNCTION_KINDS = ("EncDec", "Graph")
