"""`run`, `evaluate` and `executed`: the public ways to evaluate a graph.

The root decides the values of the result: of a Tuple or Function one per element, of a Sink or Group one per source that is not
void, of a Store or Call none, of anything else its own. `buffers` holds the final contents of every Buffer that was written, under
`b<unique>`, and of every free Param that was written, under `p<slot>`; elements never written are 0 there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from typing import Any

import numpy as np

from uops.interp.tensor.actions import bridge
from uops.interp.tensor.machine import Foreign, Machine
from uops.interp.tensor.memory import Ref
from uops.interp.tensor.scope import VOID, Scope
from uops.interp.tensor.storage import Array
from uops.spec.errors import SpecError, SpecTypeError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.result import Result
from uops.spec.verify.verifier import verify

#: Called with a node and its value (None for a void node) for every node evaluated, those of Function and Call bodies too.
Trace = Callable[[UOp, Any], None]
#: A context in which NumPy warns of nothing; a copy of it costs a tenth of `np.errstate`.
_QUIET = Context()
_QUIET.run(np.seterr, all="ignore")
# What is slow to reach through its class or module.
_SINK, _VOID, _array = Op.SINK, dt.void, np.array
_result = tuple.__new__  # a NamedTuple's own does no more


def run(
    root: UOp,
    inputs: Mapping[str, Any],
    *,
    check: bool = True,
    trace: Trace | None = None,
    schedule: int | None = None,
    lanes: bool = False,
) -> Result:
    """Evaluate `root` on `inputs`: `p<slot>` for a free Param, `b<unique>` for a Buffer's first contents (without it the Buffer is
    uninitialised), the name of a variable for its value. What the graph does not name is left out: all stages of a program take
    the inputs of the first one.

    With `check`, a graph that breaks a claim of its rows is refused with that claim (SpecError), and every node's dtype, shape and
    min_max are asserted (Unsound); without it, the caller vouches for the graph. In kernels, what is unordered runs in an order
    that the seed `schedule` draws; with `lanes`, lane by lane. Raises Trap where the specification defines a failure and SpecError
    for an ill-formed graph or input.
    """
    if not isinstance(root, UOp):
        raise SpecTypeError(f"run takes a graph, a UOp, got {type(root).__name__}")
    if not isinstance(inputs, Mapping):
        raise SpecTypeError(f"inputs are a mapping by key, got {type(inputs).__name__}")
    if check:
        verify(root)
    try:
        found: Result = _attempt(root, inputs, (check, schedule, lanes), _run, trace)
        return found
    except SpecError:  # as every graph of the second document's dialect is to a machine of the first
        from uops.interp import bestiary

        if not bestiary.is_bestiary(root):
            raise
        return bestiary.run(root, inputs, check=check, schedule=schedule, trace=trace)


def _run(machine: Machine, root: UOp, whole: bool) -> Result:
    values = []
    for cell in _results(machine, root, whole):
        values.append(_array(machine.read(cell)))
    buffers = {}
    for s in machine.storages.values():
        if s.writes:
            buffers[s.key] = s.data
    return _result(Result, (tuple(values), buffers))


def _attempt(
    root: UOp,
    inputs: Mapping[str, Any],
    options: tuple[bool, int | None, bool],
    outcome: Callable[[Machine, UOp, bool], Any],
    trace: Trace | None = None,
) -> Any:
    """`outcome` of a tensor graph; where the machine finds that the graph is none, of a kernel."""
    op = root.op
    whole = op in _KERNEL_ROOTS or (op is _SINK and root.arg is not None)
    machine = Machine(inputs, *options)
    try:
        return _QUIET.copy().run(outcome, machine, root, whole)
    except Foreign:
        if whole or not bridge().is_kernel(root):
            raise
        machine.close()
        machine = Machine(inputs, *options)
        return _QUIET.copy().run(outcome, machine, root, True)
    finally:
        if trace is not None:
            _report(machine, trace)
        machine.close()


#: Roots that no tensor graph has; a named Sink is another.
_KERNEL_ROOTS = frozenset({Op.LINEAR, Op.PROGRAM})


def _results(m: Machine, root: UOp, whole: bool) -> Sequence[Any]:
    """The cells of the root's values. `whole`: the root is a kernel, or a launch of some."""
    if whole:
        found = bridge().run_root(m, root)
        return [] if found is None else [found]
    m.evaluate(m.root, root)
    several = _SEVERAL.get(root.op)
    if several is not None:
        return several(m.root, root)
    cell = m.root.cells[root]
    return (cell,) if cell is not VOID or root.dtype is not _VOID else ()


#: Roots with another number of values than one.
_SEVERAL: dict[Op, Callable[[Scope, UOp], list[Any]]] = {
    Op.FUNCTION: lambda scope, u: [scope.inner[u].cells[e] for e in u.src[0].src],
    Op.TUPLE: lambda scope, u: [scope.cells[s] for s in u.src],
    **dict.fromkeys((Op.SINK, Op.GROUP), lambda scope, u: [scope.cells[s] for s in u.src if s.dtype is not _VOID]),
}


def evaluate(root: UOp, inputs: Mapping[str, Any], *, check: bool = True) -> dict[UOp, Array]:
    """The value of every node of the root's scope that was evaluated; a reference counts when it was read. See `run`."""
    if check:
        verify(root)
    found: dict[UOp, Array] = _attempt(root, inputs, (check, None, False), _evaluated)
    return found


def _evaluated(machine: Machine, root: UOp, whole: bool) -> dict[UOp, Array]:
    for cell in _results(machine, root, whole):
        machine.read(cell)
    return {u: v for u, v in _values(machine.root) if v is not None}


def executed(root: UOp, inputs: Mapping[str, Any], *, check: bool = True) -> frozenset[Op]:
    """The ops that a run evaluates."""
    found: set[Op] = set()
    run(root, inputs, check=check, trace=lambda u, v: found.add(u.op))
    return frozenset(found)


def _values(scope: Scope) -> list[tuple[UOp, Any]]:
    return [(u, c.value if c.__class__ is Ref else c) for u, c in scope.cells.items()]


def _report(machine: Machine, trace: Trace) -> None:
    for scope in machine.scopes:
        for u, value in _values(scope):
            trace(u, value)
        for caller in scope.inner:
            if caller not in scope.cells:  # a Function has no cell of its own
                trace(caller, None)
