"""Kernels in a run of the tensor machine: Calls of kernels, loops inside of a tensor graph, and graphs that are a kernel.

A loop in a tensor graph is what depends on an open Range: the nodes without one below it are its leaves, which the tensor machine
evaluates; a leaf that is a reference is passed as memory (R127).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from uops.interp.kernel.loans import Loan, Loans, Owners, launches
from uops.interp.kernel.memory import VIEWS
from uops.interp.kernel.structure import Kernel, structure
from uops.interp.kernel.survey import is_private, survey
from uops.interp.memory import Ref
from uops.interp.opaque import call
from uops.interp.scope import VOID, Cell, Scope
from uops.spec import dtypes as dt
from uops.spec.errors import SpecError
from uops.spec.node import UOp, toposort
from uops.spec.ops import Op
from uops.spec.scope import open_ranges, scope_nodes

if TYPE_CHECKING:
    from uops.interp.machine import Machine

#: No tensor graph has these: a scope with one of them is a kernel as a whole.
KERNEL_OPS = frozenset(
    {Op.SPECIAL, Op.BARRIER, Op.IF, Op.ENDIF, Op.WMMA, Op.ATOMICADD, Op.INS, Op.CUSTOM, Op.CUSTOMI, Op.LINEAR, Op.PROGRAM}
)
_LISTS = frozenset({Op.LINEAR, Op.PROGRAM})
#: Kernels whose structure is kept.
_KEPT = 256


# Which graphs are kernels


@lru_cache(_KEPT)
def is_kernel(body: UOp) -> bool:
    """Whether the body of a Call, or a whole graph, is run as a kernel: it is a list of instructions, a Sink with a name, or has
    loops, or ops or Buffers that only kernels have."""
    if body.op in _LISTS or (body.op is Op.SINK and body.arg is not None):
        return True
    return any(u.op in KERNEL_OPS or u.op is Op.RANGE or is_private(u) for u in scope_nodes(body))


def is_launch(root: UOp) -> bool:
    """A Linear of Calls."""
    return root.op is Op.LINEAR and all(s.op is Op.CALL for s in root.src)


@lru_cache(_KEPT)
def body_kernel(body: UOp) -> Kernel:
    """The kernel that is a whole graph or body: memory and variables are its leaves."""
    return structure(body, lambda u: u.op in (Op.PARAM, Op.BINARY) or (u.op is Op.BUFFER and not is_private(u)))


@lru_cache(_KEPT)
def region(u: UOp) -> Kernel:
    """The loops that an End or Reduce closes, in a tensor graph."""
    nodes = scope_nodes(u)
    opened, inside = open_ranges(nodes), _views(nodes)
    return structure(u, lambda n: n is not u and not opened[n] and n not in inside and not is_private(n))


def region_leaves(u: UOp) -> tuple[UOp, ...]:
    """What the tensor machine evaluates before the loops: their leaves, and the variables in their sizes."""
    kernel = region(u)
    return (*kernel.leaves, *_sizes(kernel))


def _views(nodes: Iterable[UOp]) -> frozenset[UOp]:
    """The movements of a Buffer or Param among `nodes` (sources first): as leaves they would be parts of one memory."""
    found: set[UOp] = set()
    for u in nodes:
        if u.op in VIEWS and (u.src[0] in found or u.src[0].op in (Op.BUFFER, Op.PARAM, Op.AFTER)):
            found.add(u)
    return frozenset(found)


# Running one


def run_region(m: Machine, scope: Scope, u: UOp, sources: Sequence[UOp]) -> Cell:
    """An End or Reduce over ranges, in the midst of a tensor graph."""
    return Loans(m, scope, region(u), {s: scope.cells[s] for s in sources}).run(u)


def run_root(m: Machine, root: UOp) -> Cell:
    """A graph whose root is a kernel or a Linear of Calls; gives the value of the root, None where it has none."""
    return run_launch(m, root) if is_launch(root) else run_whole(m, root)


def run_whole(m: Machine, root: UOp) -> Cell:
    """A graph that is one kernel; free Params and Buffers are its memory."""
    value = next((s for s in root.src if s.dtype is not dt.void), None) if root.op in (Op.SINK, Op.GROUP) else None
    if value is not None:
        raise SpecError(f"{value.op.name.lower()} is a value in the Sink of a kernel, which has none (R58)")
    kernel = body_kernel(root)
    leaves = (*kernel.leaves, *_sizes(kernel))
    m.evaluate(m.root, *leaves)
    found = Loans(m, m.root, kernel, {s: m.root.cells[s] for s in leaves}).run(root, alone=True)
    m.root.cells.update(dict.fromkeys(_ran(kernel), VOID))
    return found


def run_launch(m: Machine, root: UOp) -> Cell:
    """A Linear of Calls: each comes after all that the ones before it did."""
    slices = (a for c in root.src for a in c.src[1:] if a.op is Op.SLICE and a.src[0].op is Op.BUFFER)
    launches(m).arenas = {m.storage(a.src[0]): Owners(a.src[0]) for a in slices}
    for c in root.src:
        m.root.base = (1 << m.clock) - 1
        m.evaluate(m.root, c)
    m.root.cells[root] = VOID
    return VOID


def run_call(m: Machine, scope: Scope, u: UOp) -> Cell:
    """A Call of a kernel, or of a CustomFunction."""
    body = u.src[0]
    if body.op is Op.CUSTOM_FUNCTION:
        return _function(m, scope, u)
    kernel = body_kernel(body)
    _check_declared(u, kernel)
    inner = scope.inner[u] = Scope(scope, u.src[1:], u, scope.base)
    m.scopes.append(inner)
    arguments = {p: _argument(u, p) for p in (*kernel.leaves, *_sizes(kernel)) if p.op is Op.PARAM and p.arg.slot is not None}
    others = [s for s in (*kernel.leaves, *_sizes(kernel)) if s not in arguments]
    m.evaluate(m.root, *others)
    cells = {p: scope.cells[a] for p, a in arguments.items()} | {s: m.root.cells[s] for s in others}
    Loans(m, scope, kernel, cells, arguments).run(u)
    inner.cells.update(dict.fromkeys((*cells, *_ran(kernel)), VOID))
    return VOID


def _argument(u: UOp, p: UOp) -> UOp:
    if p.arg.slot >= len(u.src) - 1:
        raise SpecError(f"Param {p.arg.slot} has no argument: {len(u.src) - 1} were given (R64)")
    argument: UOp = u.src[1 + p.arg.slot]
    return argument


def _check_declared(u: UOp, kernel: Kernel) -> None:
    """R63: a Call that declares what it writes writes nothing else."""
    declared = u.arg.written if u.arg is not None else None
    if declared is None:
        return
    for p in survey(kernel).stored:
        if p.op is Op.PARAM and p.arg.slot not in declared:
            raise SpecError(f"the Call writes argument {p.arg.slot}, but declares {declared} (R63)")


def _sizes(kernel: Kernel) -> list[UOp]:
    """The variables in the shapes of the leaves, as far as they are no leaves themselves (R48)."""
    symbolic = [n for u in kernel.leaves for n in u.shape if isinstance(n, UOp)]
    return [u for u in toposort(*symbolic) if u.op is Op.PARAM and u not in kernel.leaves] if symbolic else []


def _ran(kernel: Kernel) -> list[UOp]:
    leaves = frozenset(kernel.leaves)
    return [u for u in toposort(kernel.root, gate=lambda u: u not in leaves) if u not in leaves]


# Functions of the device


def _function(m: Machine, scope: Scope, u: UOp) -> Cell:
    """A CustomFunction gets the contents of its arguments and gives those that the Call writes."""
    arguments = u.src[1:]
    declared = u.arg.written if u.arg is not None else None
    arenas = launches(m).arenas
    loans: dict[int, Loan] = {}
    contents = []
    for k, a in enumerate(arguments):
        cell = scope.cells[a]
        if cell.__class__ is Ref:
            loans[k] = Loan(cell, arenas.get(cell.storage), a)
            contents.append(loans[k].contents(u, declared is None or k in declared))
        else:
            contents.append(m.read(cell))
    written = [k for k in loans if declared is None or k in declared]
    for k, value in zip(written, call(u.src[0].arg.name, contents, len(written))):
        loans[k].replace(value)
    _settle(m, scope, u, loans)
    return VOID


def _settle(m: Machine, scope: Scope, u: UOp, loans: Mapping[int, Loan]) -> None:
    for loan in loans.values():
        loan.log(m, scope, u)
    for loan in loans.values():
        loan.pay_back()
