"""Actions of the ops of the bestiary, and what each needs first where that is not simply its sources."""

from __future__ import annotations

from collections.abc import Mapping

from uops.interp.bestiary import access, calls, devices, flow, linear, values
from uops.interp.bestiary.machine import Action, FindDependencies
from uops.spec.ir.ops import BINARY, MARKERS, TERNARY, UNARY, Op

# fmt: off
#: op -> action.
ACTIONS: Mapping[Op, Action] = {
    # values
    **dict.fromkeys(UNARY | BINARY | TERNARY, values.eval_elementwise),
    **dict.fromkeys(MARKERS | {Op.PRECAST, Op.MULTI, Op.COPY}, values.eval_identity), Op.BIND: values.eval_bind,
    **dict.fromkeys((Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.FLIP, Op.BITCAST), values.eval_movement),
    Op.CONST: values.eval_const, Op.CAST: values.eval_cast, Op.STACK: values.eval_stack, Op.SPECIAL: values.eval_special,
    Op.DEFINE_VAR: values.eval_define_var, Op.PROGRAM_BINARY: values.eval_program_binary,
    Op.B_PAD: values.eval_pad, Op.B_SHRINK: values.eval_shrink, Op.BUFFER_VIEW: values.eval_buffer_view_as_element_window,
    Op.VECTORIZE: values.eval_vectorize, Op.VCONST: values.eval_vconst, Op.GEP: values.eval_gep,
    Op.CAT: values.eval_cat, Op.PTRCAT: values.eval_ptrcat,
    Op.UNROLL: values.eval_unroll, Op.CONTRACT: values.eval_contract_by_reordering_lanes, Op.REDUCE_AXIS: values.eval_reduce_axis,
    Op.ALLREDUCE: devices.eval_allreduce, Op.MSTACK: devices.eval_mstack_by_concatenating_shards, Op.MSELECT: devices.eval_mselect,
    # memory
    Op.B_BUFFER: access.eval_buffer,
    Op.DEFINE_LOCAL: access.eval_define_local_or_reg, Op.DEFINE_REG: access.eval_define_local_or_reg,
    Op.BUFFERIZE: access.eval_bufferize, Op.B_INDEX: access.eval_index_as_reference, Op.POINTER_INDEX: access.eval_pointer_index,
    Op.AFTER: access.eval_after, Op.B_LOAD: access.eval_load, Op.B_STORE: flow.eval_store_in_loops_it_ends,
    # loops and effects
    Op.B_RANGE: flow.eval_range_inside_its_loop, Op.END: flow.eval_end, Op.B_REDUCE: flow.eval_reduce_over_ranges_and_vector_lanes,
    Op.B_IF: flow.eval_if, Op.B_BARRIER: flow.eval_barrier, Op.WMMA: flow.eval_wmma, Op.LINEAR: linear.eval_linear,
    **dict.fromkeys((Op.ENDIF, Op.GROUP, Op.SINK, Op.TUPLE), flow.eval_void),
    # bodies
    Op.B_PARAM: calls.eval_param, Op.FUNCTION: flow.eval_void, Op.GETTUPLE: calls.eval_gettuple,
    Op.CALL: calls.run_call_body_in_loops_it_closes,
    Op.B_PROGRAM: calls.eval_program,
    **dict.fromkeys((Op.CUSTOM, Op.CUSTOMI), calls.call_meaning_on_values_and_memories),
    Op.CUSTOM_FUNCTION: calls.eval_custom_function,
}
#: op -> function that names what it needs first. RANGE takes its value from the frame, LINEAR evaluates what it lists, and IF
#: evaluates its condition with the Stores, in their loops (R114).
NEEDS: Mapping[Op, FindDependencies] = {
    Op.UNROLL: values.find_sources_shared_by_unrolled_lanes,
    **dict.fromkeys((Op.B_RANGE, Op.LINEAR, Op.B_IF), flow.find_no_dependencies),
    **dict.fromkeys((Op.END, Op.B_STORE, Op.B_REDUCE, Op.BUFFERIZE, Op.CALL), flow.find_dependencies_outside_loops_it_ends),
    Op.WMMA: flow.find_wmma_dependencies, Op.B_PARAM: calls.find_param_dependencies, Op.FUNCTION: calls.find_function_dependencies,
    Op.GETTUPLE: calls.find_source_of_gettuple,
}
# fmt: on
