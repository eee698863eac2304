"""Kernels in a run of the tensor machine: Calls of kernels, loops inside of a tensor graph, and graphs that are a kernel.

A loop in a tensor graph is what depends on an open Range: the nodes without one below it are its leaves, which the tensor machine
evaluates; a leaf that is a reference is passed as memory (R127).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from uops.interp.kernel.call.bindings import Accesses, Loan, Loans, Owners, launches
from uops.interp.kernel.call.bodies import arenas, bound, is_kernel, is_launch, region, whole
from uops.interp.opaque import call
from uops.interp.tensor.machine import Machine
from uops.interp.tensor.memory import Ref
from uops.interp.tensor.scope import VOID, Cell, Scope
from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

__all__ = ["is_kernel", "is_launch", "region_leaves", "run_call", "run_launch", "run_region", "run_root", "run_whole"]


def region_leaves(u: UOp) -> tuple[UOp, ...]:
    """What the tensor machine evaluates before the loops: their leaves, and the variables in their sizes."""
    return region(u).needed


# Running one


def run_region(m: Machine, scope: Scope, u: UOp, sources: Sequence[UOp]) -> Cell:
    """An End or Reduce over ranges, in the midst of a tensor graph."""
    return Loans(m, scope, region(u), {s: scope.cells[s] for s in sources}, {}).run(u)


def run_root(m: Machine, root: UOp) -> Cell:
    """A graph whose root is a kernel or a Linear of Calls; gives the value of the root, None where it has none."""
    return run_launch(m, root) if is_launch(root) else run_whole(m, root)


def run_whole(m: Machine, root: UOp) -> Cell:
    """A graph that is one kernel; free Params and Buffers are its memory."""
    value = next((s for s in root.src if s.dtype is not dt.void), None) if root.op in (Op.SINK, Op.GROUP) else None
    if value is not None:
        raise SpecError(f"{value.op.name.lower()} is a value in the Sink of a kernel, which has none (R58)")
    body = whole(root)
    m.evaluate(m.root, *body.needed)
    found = Loans(m, m.root, body, {s: m.root.cells[s] for s in body.needed}, {}).run(root, alone=True)
    m.root.cells.update(body.ran)
    return found


def run_launch(m: Machine, root: UOp) -> Cell:
    """A Linear of Calls: each comes after all that the ones before it did, and runs as often as it is listed (R151)."""
    launches(m).arenas = {m.storage(b): Owners(b) for b in arenas(root)}
    for c in root.src:
        m.root.base = (1 << m.clock) - 1
        m.root.cells.pop(c, None)
        m.evaluate(m.root, c)
    m.root.cells[root] = VOID
    return VOID


def run_call(m: Machine, scope: Scope, u: UOp) -> Cell:
    """A Call of a kernel, or of a CustomFunction."""
    if u.src[0].op is Op.CUSTOM_FUNCTION:
        return _function(m, scope, u)
    found = bound(u)
    inner = scope.inner[u] = Scope(scope, u.src[1:], u, scope.base)
    m.scopes.append(inner)
    cells = {p: scope.cells[a] for p, a in found.arguments.items()}
    if found.others:
        m.evaluate(m.root, *found.others)
        cells.update({s: m.root.cells[s] for s in found.others})
    Loans(m, scope, found.body, cells, found.arguments).run(u)
    inner.cells.update(found.ran)
    return VOID


# Functions of the device


def _function(m: Machine, scope: Scope, u: UOp) -> Cell:
    """A CustomFunction gets the contents of its arguments and gives those that the Call writes."""
    arguments = u.src[1:]
    declared = u.arg.written if u.arg is not None else None
    owners = launches(m).arenas
    loans: dict[int, Loan] = {}
    contents = []
    for k, a in enumerate(arguments):
        cell = scope.cells[a]
        if cell.__class__ is Ref:
            loans[k] = Loan(cell, owners.get(cell.storage), a)
            contents.append(loans[k].contents(u, declared is None or k in declared))
        else:
            contents.append(m.read(cell))
    written = [k for k in loans if declared is None or k in declared]
    for k, value in zip(written, call(u.src[0].arg.name, contents, len(written))):
        loans[k].replace(value)
    _settle(m, scope, u, loans)
    return VOID


def _settle(m: Machine, scope: Scope, u: UOp, loans: Mapping[int, Loan]) -> None:
    accesses = Accesses(m, scope, u)
    for loan in loans.values():
        loan.log(accesses)
    for loan in loans.values():
        loan.pay_back()
