"""`run`, `evaluate` and `executed`: the public ways to evaluate a graph.

The root decides the values of the result: of a Tuple or Function one per element, of a Sink or Group one per source that is not
void, of a Store or Call none, of anything else its own. `buffers` holds the final contents of every Buffer that was written, under
`b<unique>`, and of every free Param that was written, under `p<slot>`; elements never written are 0 there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from uops.interp.machine import Machine
from uops.interp.memory import Ref
from uops.interp.scope import Scope
from uops.interp.storage import Array
from uops.spec import dtypes as dt
from uops.spec.node import UOp
from uops.spec.ops import Op
from uops.spec.result import Result

#: Called with a node and its value (None for a void node) for every node evaluated, those of Function and Call bodies too.
Trace = Callable[[UOp, Any], None]


def run(root: UOp, inputs: Mapping[str, Any], *, check: bool = True, trace: Trace | None = None) -> Result:
    """Evaluate `root` on `inputs`: `p<slot>` for a free Param, `b<unique>` for a Buffer's first contents (without it the Buffer is
    uninitialised), the name of a variable for its value.

    With `check`, every node's dtype, shape and min_max are asserted (Unsound). Raises Trap where the specification defines a
    failure and SpecError for an ill-formed graph or input.
    """
    machine = Machine(inputs, check)
    try:
        return _run(machine, root)
    finally:
        if trace is not None:
            _report(machine, trace)
        machine.close()


@np.errstate(all="ignore")
def _run(machine: Machine, root: UOp) -> Result:
    values = tuple([np.array(machine.read(c)) for c in _results(machine, root)])
    return Result(values, {s.key: s.data for s in machine.storages.values() if s.writes})


def _results(m: Machine, root: UOp) -> list[Any]:
    """The cells of the root's values."""
    op = root.op
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
    machine = Machine(inputs, check)
    with np.errstate(all="ignore"):
        for cell in _results(machine, root):
            machine.read(cell)
    found = {u: v for u, v in _values(machine.root) if v is not None}
    machine.close()
    return found


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
