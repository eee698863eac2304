"""The names of what executes each op: tables of the interpreter and of the compiler, keyed by op, and functions.

They are text, because the specification imports neither side. `tests/spec/rows/test_executed_by.py` resolves each, and compares the
sets of ops with the keys of the interpreter's tables.
"""

from __future__ import annotations

from uops.spec.ir.ops import MARKERS, Op
from uops.spec.rows.named.base import ExecutedBy
from uops.spec.verify.dialects import BESTIARY_ONLY_OPS, BESTIARY_OPS, TENSOR_OPS

_KERNEL = "uops.interp.kernel"
_PASSES = "uops.compiler.passes"
_WORKGROUPS = f"{_PASSES}.workgroups:lower_workgroups_to_loops_unless_supported"
_INLINED = f"{_PASSES}.callify.callify:inline_calls_and_drop_gradient_markers"
_OPAQUE = "uops.interp.opaque:require_meaning"
_NATIVE_TEXT = "text for one target: no target has a meaning for it"
#: Operations of TENSOR that are resolved before kernels are made.
_CALLIFIED = frozenset({Op.BUFFER, Op.FUNCTION, Op.CALL, Op.TUPLE, Op.GETTUPLE}) | (MARKERS - {Op.CONTIGUOUS})

# fmt: off
#: A table of the interpreter -> the ops whose entries it has, that is, its keys.
INTERPRETER_TABLES: dict[str, frozenset[Op]] = {
    "uops.interp.tensor.actions:MEANING": TENSOR_OPS | {Op.END},
    f"{_KERNEL}.lane_machine.actions:_COMPILERS": frozenset(
        {Op.BARRIER, Op.INS, Op.IF, Op.WMMA, Op.CUSTOM, Op.ATOMICADD, Op.CUSTOMI}
    ),
    "uops.interp.bestiary.actions:ACTIONS": BESTIARY_OPS - {Op.SOURCE, Op.UNIQUE, Op.LUNIQUE, Op.DEVICE},
}
#: Operations without an entry, or with functions beside it, that give their meaning in the interpreter.
_INTERPRETER: dict[Op, tuple[str, ...]] = {
    Op.RANGE:           (f"{_KERNEL}.structure.blocks:Loop",),
    Op.SPECIAL:         (f"{_KERNEL}.structure.launch:wrap_specials_as_loops",),
    Op.ENDIF:           (f"{_KERNEL}.structure.blocks:build_kernel_structure",),
    Op.LINEAR:          (f"{_KERNEL}.structure.blocks:build_kernel_structure", f"{_KERNEL}.call.bridge:run_linear_of_calls"),
    Op.PROGRAM:         (f"{_KERNEL}.structure.blocks:build_kernel_structure",),
    Op.SOURCE:          ("uops.interp.bestiary.plan:program_stage_to_run",),
    Op.CUSTOM_FUNCTION: (f"{_KERNEL}.call.bridge:run_kernel_or_custom_call", _OPAQUE),
    Op.INS:             (_OPAQUE,),
    Op.CUSTOM:          (_OPAQUE,),
    Op.CUSTOMI:         (_OPAQUE,),
    Op.UNIQUE:          ("uops.interp.bestiary.access:eval_buffer",),
    Op.LUNIQUE:         ("uops.interp.bestiary.access:eval_buffer",),
    Op.DEVICE:          ("uops.interp.bestiary.devices:eval_allreduce",),
}

#: A table of the compiler -> the ops that have an entry in it.
COMPILER_TABLES: dict[str, frozenset[Op]] = {
    f"{_PASSES}.rangeify.elementwise:EXPRESSIONS": TENSOR_OPS - _CALLIFIED - {Op.STORE, Op.GROUP, Op.SINK},
    "uops.compiler.decompose.elementary:WIDE_RULES": frozenset({Op.EXP2, Op.LOG2, Op.SIN, Op.POW}),
    "uops.spec.bestiary.legalize:LEGALIZE": BESTIARY_ONLY_OPS,
    "uops.backends.llvm.render:STATEMENT": frozenset({Op.STORE, Op.RANGE, Op.END, Op.IF, Op.ENDIF, Op.ATOMICADD}),
    "uops.backends.cstyle.render:STATEMENT": frozenset(
        {Op.STORE, Op.RANGE, Op.END, Op.IF, Op.ENDIF, Op.ATOMICADD, Op.BARRIER, Op.SPECIAL}
    ),
}
#: Operations without an entry, or with functions beside it, that the compiler lowers.
_COMPILER: dict[Op, tuple[str, ...]] = {
    Op.BUFFER:          (f"{_PASSES}.callify.callify:convert_graph_to_call",
                         f"{_PASSES}.memory_plan:place_intermediates_in_arenas_per_device"),
    Op.CALL:            (_INLINED, f"{_PASSES}.callify.kernel_calls:convert_kernel_calls_to_launch_form"),
    **dict.fromkeys((Op.FUNCTION, Op.TUPLE, Op.GETTUPLE, Op.CONTIGUOUS_BACKWARD, Op.DETACH), (_INLINED,)),
    Op.STORE: (f"{_PASSES}.callify.hazards:insert_hazard_copies", f"{_PASSES}.rangeify.store_targets:locate_store_target"),
    Op.GROUP:           (f"{_PASSES}.rangeify.rangeify:rangeify",),
    Op.SINK:            (f"{_PASSES}.rangeify.rangeify:rangeify",),
    Op.THREEFRY:        ("uops.compiler.decompose.threefry:decompose_threefry",),
    Op.LINEAR:          (f"{_PASSES}.linearize:linearize_kernel",),
    Op.BARRIER:         (_WORKGROUPS,),
    Op.SPECIAL:         (_WORKGROUPS,),
    Op.WMMA:            (f"{_PASSES}.optimize.schedule.tensor_core:tile_for_wmma_or_unrolled_reduce",),
    Op.PROGRAM:         (f"{_PASSES}.render:render_and_compile",),
    Op.SOURCE:          (f"{_PASSES}.render:render_and_compile",),
}
#: Why the compiler executes an op nowhere.
_MISSING: dict[Op, str] = dict.fromkeys((Op.INS, Op.CUSTOM, Op.CUSTOM_FUNCTION), _NATIVE_TEXT)
# fmt: on


def name_functions_that_execute_op(op: Op) -> ExecutedBy:
    """Return the names of what executes an op."""
    return ExecutedBy(
        (*_find_entries(op, INTERPRETER_TABLES), *_INTERPRETER.get(op, ())),
        (*_find_entries(op, COMPILER_TABLES), *_COMPILER.get(op, ())),
        _MISSING.get(op, ""),
    )


def _find_entries(op: Op, tables: dict[str, frozenset[Op]]) -> list[str]:
    return [f"{table}[{op.name}]" for table, ops in tables.items() if op in ops]
