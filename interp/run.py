"""`run`, `evaluate` and `executed`: the public ways to evaluate a graph.

The root decides the values of the result: of a Tuple or Function one per element, of a Sink or Group one per source that is not
void, of a Store or Call none, of anything else its own. `buffers` holds the final contents of every Buffer that was written, under
`b<unique>`, and of every free Param that was written, under `p<slot>`; elements never written are 0 there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Any

import numpy as np

from uops.interp.actions import Foreign, bridge
from uops.interp.machine import Machine
from uops.interp.memory import Ref
from uops.interp.scope import Scope
from uops.interp.storage import Array
from uops.spec import dtypes as dt
from uops.spec.errors import SpecError
from uops.spec.node import UOp
from uops.spec.ops import Op
from uops.spec.result import Result

#: Called with a node and its value (None for a void node) for every node evaluated, those of Function and Call bodies too.
Trace = Callable[[UOp, Any], None]
#: A context in which NumPy warns of nothing; a copy of it costs a tenth of `np.errstate`.
_QUIET = Context()
_QUIET.run(np.seterr, all="ignore")


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
    uninitialised), the name of a variable for its value.

    With `check`, every node's dtype, shape and min_max are asserted (Unsound). In kernels, what is unordered runs in an order that
    the seed `schedule` draws; with `lanes`, lane by lane. Raises Trap where the specification defines a failure and SpecError for
    an ill-formed graph or input.
    """
    try:
        found: Result = _attempt(root, inputs, (check, schedule, lanes), _run, trace)
        return found
    except SpecError:  # as every graph of the second document's dialect is to a machine of the first
        from uops.interp import bestiary

        if not bestiary.is_bestiary(root):
            raise
        return bestiary.run(root, inputs, check=check, schedule=schedule, trace=trace)


def _run(machine: Machine, root: UOp, whole: bool) -> Result:
    values = tuple([np.array(machine.read(c)) for c in _results(machine, root, whole)])
    return Result(values, {s.key: s.data for s in machine.storages.values() if s.writes})


def _attempt(
    root: UOp,
    inputs: Mapping[str, Any],
    options: tuple[bool, int | None, bool],
    outcome: Callable[[Machine, UOp, bool], Any],
    trace: Trace | None = None,
) -> Any:
    """`outcome` of a tensor graph; where the machine finds that the graph is none, of a kernel."""
    whole = root.op in _KERNEL_ROOTS or (root.op is Op.SINK and root.arg is not None)
    machine = _machine(inputs, options)
    try:
        return _QUIET.copy().run(outcome, machine, root, whole)
    except Foreign:
        if whole or not bridge().is_kernel(root):
            raise
        machine.close()
        machine = _machine(inputs, options)
        return _QUIET.copy().run(outcome, machine, root, True)
    finally:
        if trace is not None:
            _report(machine, trace)
        machine.close()


#: Roots that no tensor graph has; a named Sink is another.
_KERNEL_ROOTS = frozenset({Op.LINEAR, Op.PROGRAM})


def _machine(inputs: Mapping[str, Any], options: tuple[bool, int | None, bool]) -> Machine:
    machine = Machine(inputs, options[0])
    machine.schedule, machine.lanes = options[1:]
    return machine


def _results(m: Machine, root: UOp, whole: bool) -> list[Any]:
    """The cells of the root's values. `whole`: the root is a kernel, or a launch of some."""
    op = root.op
    if whole:
        found = bridge().run_root(m, root)
        return [] if found is None else [found]
    if op is Op.FUNCTION:
        m.evaluate(m.root, root)
        return [m.root.inner[root].cells[e] for e in root.src[0].src]
    m.evaluate(m.root, root)
    if op is Op.TUPLE:
        return [m.root.cells[s] for s in root.src]
    if op is Op.SINK or op is Op.GROUP:
        return [m.root.cells[s] for s in root.src if s.dtype is not dt.void]
    return [] if root.dtype is dt.void else [m.root.cells[root]]


def evaluate(root: UOp, inputs: Mapping[str, Any], *, check: bool = True) -> dict[UOp, Array]:
    """The value of every node of the root's scope that was evaluated; a reference counts when it was read."""
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
