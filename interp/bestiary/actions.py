"""What each op of the dialect does, and what it needs first where that is not simply its sources."""

from __future__ import annotations

from collections.abc import Mapping

from uops.interp.bestiary import access, calls, devices, flow, linear, values
from uops.interp.bestiary.machine import Action, Needs
from uops.spec.ir.ops import BINARY, MARKERS, TERNARY, UNARY, Op

# fmt: off
ACTIONS: Mapping[Op, Action] = {
    # values
    **dict.fromkeys(UNARY | BINARY | TERNARY, values.elementwise),
    **dict.fromkeys(MARKERS | {Op.PRECAST, Op.MULTI, Op.COPY, Op.BIND}, values.first),
    **dict.fromkeys((Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.FLIP, Op.BITCAST), values.move),
    Op.CONST: values.const, Op.CAST: values.cast, Op.STACK: values.stack, Op.SPECIAL: values.special,
    Op.DEFINE_VAR: values.define_var, Op.PROGRAM_BINARY: values.program_binary,
    Op.B_PAD: values.pad, Op.B_SHRINK: values.shrink, Op.BUFFER_VIEW: values.buffer_view,
    Op.VECTORIZE: values.vectorize, Op.VCONST: values.vconst, Op.GEP: values.gep, Op.CAT: values.cat, Op.PTRCAT: values.ptrcat,
    Op.UNROLL: values.unroll, Op.CONTRACT: values.contract, Op.REDUCE_AXIS: values.reduce_axis,
    Op.ALLREDUCE: devices.allreduce, Op.MSTACK: devices.mstack, Op.MSELECT: devices.mselect,
    # memory
    Op.B_BUFFER: access.buffer, Op.DEFINE_LOCAL: access.define, Op.DEFINE_REG: access.define,
    Op.BUFFERIZE: access.bufferize, Op.B_INDEX: access.index, Op.POINTER_INDEX: access.pointer_index, Op.AFTER: access.after,
    Op.B_LOAD: access.load, Op.B_STORE: flow.store_in_loops,
    # loops and effects
    Op.B_RANGE: flow.range_, Op.END: flow.end, Op.B_REDUCE: flow.reduce_ranges, Op.B_IF: flow.if_, Op.B_BARRIER: flow.barrier,
    Op.WMMA: flow.wmma, Op.LINEAR: linear.linear,
    **dict.fromkeys((Op.ENDIF, Op.GROUP, Op.SINK, Op.TUPLE), flow.void),
    # bodies
    Op.B_PARAM: calls.param, Op.FUNCTION: flow.void, Op.GETTUPLE: calls.element, Op.CALL: calls.call, Op.B_PROGRAM: calls.program,
    Op.CUSTOM: calls.custom, Op.CUSTOMI: calls.custom, Op.CUSTOM_FUNCTION: calls.custom_function,
}
NEEDS: Mapping[Op, Needs] = {
    Op.UNROLL: values.unroll_needs, Op.B_RANGE: flow.no_needs, Op.LINEAR: linear.linear_needs, Op.B_IF: flow.if_needs,
    **dict.fromkeys((Op.END, Op.B_STORE, Op.B_REDUCE, Op.BUFFERIZE), flow.loop_needs),
    Op.B_PARAM: calls.param_needs, Op.FUNCTION: calls.function_needs, Op.GETTUPLE: calls.element_needs, Op.CALL: calls.call_needs,
}
# fmt: on
