"""`run`, `evaluate` and `find_executed_ops`: the public ways to evaluate a graph.

The root decides the values of the result. A Tuple or Function has one per element, a Sink or Group one per source that is not
void. A Store or Call has none, and any other root its own. `buffers` holds the final contents of every Buffer that was written,
under `b<unique>`, and of every free Param that was written, under `p<slot>`. Elements that were never written are 0 there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from typing import Any

import numpy as np

from uops.interp.tensor.actions import import_kernel_bridge
from uops.interp.tensor.machine import TensorMachine
from uops.interp.tensor.memory import StorageRef
from uops.interp.tensor.placement import check_derived_devices_and_axes
from uops.interp.tensor.scope import VOID, TensorScope
from uops.interp.tensor.storage import Array
from uops.spec.errors import SpecTypeError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import EFFECT_GROUPS, Op
from uops.spec.result import Result
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect
from uops.spec.verify.verifier import verify

#: Callback per evaluated node, those of Function and Call bodies included: the node and its value, None for a void node.
Trace = Callable[[UOp, Any], None]
#: A context in which NumPy warns of nothing. Copying it costs a tenth of `np.errstate`.
_QUIET = Context()
_QUIET.run(np.seterr, all="ignore")
# Local names: an attribute of a class or module is slower to reach.
_SINK, _VOID, _array, _BESTIARY = Op.SINK, dt.void, np.array, Dialect.BESTIARY
_make_result = tuple.__new__  # what a NamedTuple's own `__new__` calls


def run(
    root: UOp,
    inputs: Mapping[str, Any],
    *,
    check: bool = True,
    trace: Trace | None = None,
    schedule: int | None = None,
    lanes: bool = False,
    dialect: Dialect | None = None,
) -> Result:
    """Evaluate `root` on `inputs` and return its values and the contents of written memory.

    The keys of `inputs` are `p<slot>` for a free Param, `b<unique>` for a Buffer's first contents, and the name of a variable
    for its value. A Buffer without an input is uninitialised. Keys that the graph does not use are ignored, so that all stages
    of a program take the inputs of the first one.

    With `check`, a graph that breaks a claim of its rows raises SpecError with that claim. Every node's dtype, shape, min_max,
    device and axis are asserted (Unsound). Without it, the caller vouches for the graph. `schedule` is a seed that draws an
    order for everything unordered in kernels. `lanes` runs kernels lane by lane. `dialect` is what the graph is written in;
    None: the one that `infer_tensor_kernel_or_bestiary_dialect` finds. Raises Trap where the specification defines a failure, and
    SpecError for an ill-formed graph or input.
    """
    if not isinstance(root, UOp):
        raise SpecTypeError(f"run takes a graph, a UOp, got {type(root).__name__}; build one with uops.spec.ir.build or parse one")
    if not isinstance(inputs, Mapping):
        raise SpecTypeError(f"expected a mapping of inputs by key, got {type(inputs).__name__}")
    if check:
        verify(root)
    if dialect is None:
        dialect = infer_tensor_kernel_or_bestiary_dialect(root)
    if dialect is _BESTIARY:
        from uops.interp import bestiary  # late: few graphs need it, and a test guards what `run` loads

        return bestiary.run(root, inputs, check=check, schedule=schedule, trace=trace)
    result: Result = _decide_if_kernel_and_run(
        root, inputs, dialect, (check, schedule, lanes), _evaluate_to_values_and_written_buffers, trace
    )
    return result


def _evaluate_to_values_and_written_buffers(machine: TensorMachine, root: UOp, is_kernel: bool) -> Result:
    values = []
    for cell in _evaluate_root_cells(machine, root, is_kernel):
        values.append(_array(machine.load_if_reference(cell)))
    if machine.check:
        check_derived_devices_and_axes(machine)
    buffers = {}
    for s in machine.storages.values():
        if s.writes:
            buffers[s.key] = _array(s.data, order="C")  # a copy: what was stored may be an input
    return _make_result(Result, (tuple(values), buffers))


def _decide_if_kernel_and_run(
    root: UOp,
    inputs: Mapping[str, Any],
    dialect: Dialect,
    machine_options: tuple[bool, int | None, bool],
    evaluate_and_collect: Callable[[TensorMachine, UOp, bool], Any],
    trace: Trace | None = None,
) -> Any:
    """Return `evaluate_and_collect(machine, root, is_kernel)` of a run of `root`.

    The root runs as a kernel if its op says so, or if it has forms of kernels outside of the loops that an End or Reduce closes.
    Otherwise it runs as a tensor graph.
    """
    op = root.op
    is_kernel = op in _KERNEL_ROOTS or (op is _SINK and root.arg is not None)
    if not is_kernel and dialect not in _TENSOR_DIALECTS:
        is_kernel = import_kernel_bridge().has_kernel_forms_outside_loop_regions(root)
    machine = TensorMachine(inputs, *machine_options)
    try:
        return _QUIET.copy().run(evaluate_and_collect, machine, root, is_kernel)
    finally:
        if trace is not None:
            _report_all_cells_to_trace(machine, trace)
        machine.clear_cells_to_break_reference_cycles()


#: The dialects of graphs without loops outside of Calls.
_TENSOR_DIALECTS = frozenset({Dialect.TENSOR, Dialect.CALLIFIED})
#: Roots that only kernels and launches have. A Sink with a name is another.
_KERNEL_ROOTS = frozenset({Op.LINEAR, Op.PROGRAM})


def _evaluate_root_cells(m: TensorMachine, root: UOp, is_kernel: bool) -> Sequence[Any]:
    """Evaluate `root` and return the cells of its values.

    With `is_kernel`, the root is a kernel or a launch of kernels.
    """
    if is_kernel:
        value = import_kernel_bridge().run_kernel_or_linear_of_calls(m, root)
        return [] if value is None else [value]
    m.evaluate(m.root, root)
    find_cells = _CELLS_OF_ROOT.get(root.op)
    if find_cells is not None:
        return find_cells(m.root, root)
    cell = m.root.cells[root]
    return (cell,) if cell is not VOID or root.dtype is not _VOID else ()


#: Roots that may have several values: op -> their cells.
_CELLS_OF_ROOT: dict[Op, Callable[[TensorScope, UOp], list[Any]]] = {
    Op.FUNCTION: lambda scope, u: [scope.inner[u].cells[e] for e in u.body.src],
    Op.TUPLE: lambda scope, u: [scope.cells[e] for e in u.values],
    **dict.fromkeys(EFFECT_GROUPS, lambda scope, u: [scope.cells[s] for s in u.effects if s.dtype is not _VOID]),
}


def evaluate(root: UOp, inputs: Mapping[str, Any], *, check: bool = True) -> dict[UOp, Array]:
    """Return the value of every evaluated node of the root's scope; see `run`.

    A reference (a Buffer, Param or view) is included if its value was read. In a graph of the bestiary, a node in a loop has no
    value.
    """
    if check:
        verify(root)
    dialect = infer_tensor_kernel_or_bestiary_dialect(root)
    if dialect is _BESTIARY:
        from uops.interp import bestiary  # late, as in `run`

        return bestiary.evaluate(root, inputs, check=check)
    options = check, None, False
    values: dict[UOp, Array] = _decide_if_kernel_and_run(root, inputs, dialect, options, _evaluate_and_collect_node_values)
    return values


def _evaluate_and_collect_node_values(machine: TensorMachine, root: UOp, is_kernel: bool) -> dict[UOp, Array]:
    for cell in _evaluate_root_cells(machine, root, is_kernel):
        machine.load_if_reference(cell)
    return {u: v for u, v in _scope_values(machine.root) if v is not None}


def find_executed_ops(root: UOp, inputs: Mapping[str, Any], *, check: bool = True) -> frozenset[Op]:
    """Return the ops that a run of `root` evaluates."""
    ops: set[Op] = set()
    run(root, inputs, check=check, trace=lambda u, v: ops.add(u.op))
    return frozenset(ops)


def _scope_values(scope: TensorScope) -> list[tuple[UOp, Any]]:
    return [(u, c.value if c.__class__ is StorageRef else c) for u, c in scope.cells.items()]


def _report_all_cells_to_trace(machine: TensorMachine, trace: Trace) -> None:
    for scope in machine.scopes:
        for u, value in _scope_values(scope):
            trace(u, value)
        for caller in scope.inner:
            if caller not in scope.cells:  # a Function has no cell of its own
                trace(caller, None)
