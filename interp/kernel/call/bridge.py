"""Kernels in a run of the tensor machine: Calls of kernels, loops inside of a tensor graph, and graphs that are a kernel.

A loop in a tensor graph is all that depends on an open Range. The nodes without one below them are its leaves, which the tensor
machine evaluates. A leaf that is a reference is passed as memory (R127).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from uops.interp.kernel.call.bindings import (
    AccessRecorder,
    ArenaOwners,
    KernelBindings,
    MemoryBinding,
    check_races_and_write_back,
    get_or_make_kernel_state,
    trap_if_written_slice_overlaps,
)
from uops.interp.kernel.call.bodies import (
    analyze_kernel_call_or_reject_undeclared_writes,
    analyze_loop_region,
    analyze_whole_kernel,
    find_sliced_arenas,
    has_kernel_forms_outside_loop_regions,
    is_linear_of_calls,
)
from uops.interp.opaque import call_custom_function
from uops.interp.tensor.checks import note_call
from uops.interp.tensor.machine import TensorMachine
from uops.interp.tensor.memory import StorageRef, TensorStorage, reject_undeclared_write
from uops.interp.tensor.placement import check_derived_devices_and_axes_of_kernel
from uops.interp.tensor.scope import VOID, Cell, TensorScope
from uops.spec.errors import SpecError, UopsError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import EFFECT_GROUPS, Op
from uops.spec.ir.scope import is_variable

__all__ = [
    "has_kernel_forms_outside_loop_regions", "is_linear_of_calls", "region_leaves", "run_kernel_or_custom_call",
    "run_kernel_or_linear_of_calls", "run_linear_of_calls", "run_loop_region",
]  # fmt: skip


def region_leaves(u: UOp) -> tuple[UOp, ...]:
    """Return what the tensor machine evaluates before the loops that `u` closes: their leaves, and the variables in their sizes."""
    return analyze_loop_region(u).required_leaves


def run_loop_region(m: TensorMachine, scope: TensorScope, closer: UOp, leaves: Sequence[UOp]) -> Cell:
    """Run an End or Reduce over ranges inside of a tensor graph."""
    return KernelBindings(m, scope, analyze_loop_region(closer), {s: scope.cells[s] for s in leaves}, {}).run_kernel_and_write_back(
        closer
    )


def run_kernel_or_linear_of_calls(m: TensorMachine, root: UOp) -> Cell:
    """Run a graph whose root is a kernel or a Linear of Calls; return the value of the root, None where it has none."""
    if is_linear_of_calls(root):
        run_linear_of_calls(m, root)
        return VOID
    return _run_whole_graph_kernel(m, root)


def _run_whole_graph_kernel(m: TensorMachine, root: UOp) -> Cell:
    """Run a graph that is one kernel; free Params and Buffers are its memory."""
    effects = root.effects if root.op in EFFECT_GROUPS else ()
    not_void = next((s for s in effects if s.dtype is not dt.void), None)
    if not_void is not None:
        raise SpecError(f"{not_void.op.name.lower()} is a value in the Sink of a kernel, which has none (R58)")
    if m.check:
        check_derived_devices_and_axes_of_kernel(root, ())
    body = analyze_whole_kernel(root)
    m.evaluate(m.root, *body.required_leaves)
    bindings = KernelBindings(m, m.root, body, {s: m.root.cells[s] for s in body.required_leaves}, {})
    value = bindings.run_kernel_and_write_back(root, is_after_all_accesses=True)
    m.root.cells.update(body.void_cells)
    return value


def run_linear_of_calls(m: TensorMachine, root: UOp) -> None:
    """Run a Linear of Calls, each after all that the ones before it did, and as often as it is listed (R151)."""
    get_or_make_kernel_state(m).arenas = {m.get_or_bind_input_storage(b): ArenaOwners(b) for b in find_sliced_arenas(root)}
    for call in root.instructions:
        m.root.base_accesses = (1 << m.clock) - 1
        m.root.cells.pop(call, None)
        m.evaluate(m.root, call)
    m.root.cells[root] = VOID


def run_kernel_or_custom_call(m: TensorMachine, scope: TensorScope, u: UOp) -> None:
    """Run a Call of a kernel, or of a CustomFunction."""
    if u.body.op is Op.CUSTOM_FUNCTION:
        _run_custom_function(m, scope, u)
        return
    call = analyze_kernel_call_or_reject_undeclared_writes(u)
    if m.check:
        check_derived_devices_and_axes_of_kernel(u.body, tuple(a.device for a in u.arguments))
    inner = scope.inner[u] = TensorScope(scope, u.arguments, u, scope.base_accesses)
    m.scopes.append(inner)
    cells = {p: scope.cells[a] for p, a in call.arguments.items()}
    if call.unbound_leaves:
        m.evaluate(m.root, *call.unbound_leaves)
        cells.update({s: m.root.cells[s] for s in call.unbound_leaves})
    try:
        KernelBindings(m, scope, call.body, cells, call.arguments).run_kernel_and_write_back(u)
    except UopsError as e:
        note_call(e, u)
        raise
    inner.cells.update(call.void_cells)


# Functions of the device


def _run_custom_function(m: TensorMachine, scope: TensorScope, u: UOp) -> None:
    """Run a Call of a CustomFunction: it gets the contents of all arguments and gives those that the Call writes."""
    declared = u.arg.written if u.arg is not None else None
    written_arguments = range(len(u.arguments)) if declared is None else declared
    arenas = get_or_make_kernel_state(m).arenas
    _trap_if_written_slice_overlaps_in_arena(u, scope, written_arguments, arenas)
    bindings: dict[int, MemoryBinding] = {}
    contents: list[Any] = []
    for k, a in enumerate(u.arguments):
        cell = scope.cells[a]
        if cell.__class__ is StorageRef:
            if k in written_arguments:
                reject_undeclared_write(scope, cell)
            bindings[k] = MemoryBinding(cell, arenas.get(cell.storage), a)
            contents.append(bindings[k].copy_and_mark_read_or_trap_if_unwritten(u, k in written_arguments))
        else:
            value = m.load_if_reference(cell)
            contents.append(int(value) if is_variable(a) else value.reshape(-1))
    written = [k for k in bindings if k in written_arguments]
    for k, value in zip(written, call_custom_function(u.body.arg.name, contents, len(written))):
        bindings[k].replace_contents_by_custom_function_result(value)
    check_races_and_write_back(AccessRecorder(m, scope, u), bindings.values())


def _trap_if_written_slice_overlaps_in_arena(
    u: UOp, scope: TensorScope, written: Collection[int], arenas: Collection[TensorStorage]
) -> None:
    """Raise Trap if a Call of a CustomFunction takes two Slices that share bytes, and writes one of them (R126)."""
    cells = {k: scope.cells[a] for k, a in enumerate(u.arguments)}
    for storage in arenas:
        refs = {k: cell for k, cell in cells.items() if cell.__class__ is StorageRef and cell.storage is storage}
        trap_if_written_slice_overlaps(refs, dict(enumerate(u.arguments)), written)
