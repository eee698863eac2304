"""The bestiary's tables that are no op rows: AxisType and ReduceOp names, range-ending and expandable operations (R109)."""

from __future__ import annotations

from uops.spec.ir.axes import AxisType
from uops.spec.ir.ops import BINARY, TERNARY, UNARY, Op

#: Printed name -> axis type; priorities are a column of `uops.spec.ir.axes.AXIS_TABLE` too.
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
#: Printed name of a ReduceOp -> its identity, which a reduction of nothing gives.
REDUCE_IDENTITIES: dict[str, str] = {
    "Add": "0",
    "Mul": "1",
    "Max": "-inf, or the least value of a dtype without it",
    "Min": "+inf, or the greatest value of a dtype without it",
}

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

#: Printed name -> the operations of that name through which the lanes of an UNROLL propagate.
EXPANDABLE_BY_NAME: dict[str, frozenset[Op]] = {
    "Unary": UNARY, "Binary": BINARY, "Ternary": TERNARY,
    "Cast": frozenset({Op.CAST}), "BitCast": frozenset({Op.BITCAST}),
    "Gep": frozenset({Op.GEP}), "Vectorize": frozenset({Op.VECTORIZE}),
    "Load": frozenset({Op.B_LOAD}), "Store": frozenset({Op.B_STORE}),
    "Index": frozenset({Op.B_INDEX}), "PointerIndex": frozenset({Op.POINTER_INDEX}),
    "Reduce": frozenset({Op.B_REDUCE}), "End": frozenset({Op.END}), "After": frozenset({Op.AFTER}),
    "Bufferize": frozenset({Op.BUFFERIZE}),
    "Wmma": frozenset({Op.WMMA}),
}  # fmt: skip
#: Operations through which the lanes of an UNROLL propagate.
EXPANDABLE: frozenset[Op] = frozenset().union(*EXPANDABLE_BY_NAME.values())

#: The kinds of CustomFunctions. The fields of CallInfo and BufferizeOpts are those of `CallArg` and `BufferizeArg`.
CUSTOM_FUNCTION_KINDS = ("EncDec", "Graph")
