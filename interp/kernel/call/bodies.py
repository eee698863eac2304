"""What is known of a kernel in a tensor graph before it runs: its structure, what it needs and what it does to each memory.

Takes the body of a Call, a whole graph, the End or Reduce that closes loops in a tensor graph, or a Call. All of it depends on
nodes alone and is kept for the nodes last asked about. Raises SpecError as `structure` does, and for a Call whose arguments do not
fit its body (R63, R64).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn

from uops.interp.kernel.call.effects import Survey, is_private, survey
from uops.interp.kernel.lane_machine.memory import VIEWS
from uops.interp.kernel.structure.blocks import Kernel, structure
from uops.interp.tensor.scope import VOID
from uops.spec.errors import SpecError, Unsupported
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import BODIED, open_ranges, scope_nodes

#: No tensor graph has these: a scope with one of them is a kernel as a whole.
KERNEL_OPS = frozenset(
    {Op.SPECIAL, Op.BARRIER, Op.IF, Op.ENDIF, Op.WMMA, Op.ATOMICADD, Op.INS, Op.CUSTOM, Op.CUSTOMI, Op.LINEAR, Op.PROGRAM}
)
_LISTS = frozenset({Op.LINEAR, Op.PROGRAM})
#: Nodes of each kind of which this is kept.
_KEPT = 256


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


@dataclass(eq=False, slots=True)
class Body:
    """`needed`: the leaves, and the variables in their shapes (R48). `sizes`: of each of them, how many elements it has, None where
    that is no number, and their item size. `ran`: the nodes of which a run leaves no value, with a cell for each."""

    kernel: Kernel
    survey: Survey
    needed: tuple[UOp, ...]
    sizes: dict[UOp, tuple[int | None, int]]
    ran: dict[UOp, None]


def _body(kernel: Kernel) -> Body:
    leaves = frozenset(kernel.leaves)
    needed = (*kernel.leaves, *_sizes(kernel.leaves))
    known = {u: math.prod(u.shape) if all(isinstance(n, int) for n in u.shape) else None for u in needed}
    sizes = {u: (n, u.dtype.itemsize) for u, n in known.items()}
    inside = [u for u in toposort(kernel.root, gate=lambda u: u not in leaves) if u not in leaves]
    return Body(kernel, survey(kernel), needed, sizes, dict.fromkeys(inside, VOID))


def _sizes(leaves: tuple[UOp, ...]) -> list[UOp]:
    """The variables in the shapes of the leaves, as far as they are no leaves themselves."""
    symbolic = [n for u in leaves for n in u.shape if isinstance(n, UOp)]
    return [u for u in toposort(*symbolic) if u.op is Op.PARAM and u not in leaves] if symbolic else []


@lru_cache(_KEPT)
def whole(root: UOp) -> Body:
    """The kernel that is a whole graph or body: memory and variables are its leaves."""
    return _body(structure(root, lambda u: u.op in (Op.PARAM, Op.BINARY) or (u.op is Op.BUFFER and not is_private(u))))


@lru_cache(_KEPT)
def region(u: UOp) -> Body:
    """The loops that an End or Reduce closes, in a tensor graph: their leaves are the nodes without an open Range below them."""
    nodes = scope_nodes(u)
    opened, inside = open_ranges(nodes), _views(nodes)
    for n in nodes:
        if n.op in BODIED and opened[n]:
            _refuse(n)
    return _body(structure(u, lambda n: n is not u and not opened[n] and n not in inside and not is_private(n)))


def _refuse(u: UOp) -> NoReturn:
    """A body in loops."""
    if u.op is Op.CALL:
        raise SpecError("a Call in a loop of a tensor graph: the loops are a kernel, which has no Call (R127)")
    raise Unsupported("a Function of what varies in a loop of a tensor graph (R64, R127)", "interp")


def _views(nodes: Iterable[UOp]) -> frozenset[UOp]:
    """The movements of a Buffer or Param among `nodes` (sources first): as leaves they would be parts of one memory."""
    found: set[UOp] = set()
    for u in nodes:
        if u.op in VIEWS and (u.src[0] in found or u.src[0].op in (Op.BUFFER, Op.PARAM, Op.AFTER)):
            found.add(u)
    return frozenset(found)


@dataclass(eq=False, slots=True)
class Bound:
    """A Call of a kernel. `arguments`: the argument of each Param. `others`: what else the body needs. `ran`: the nodes of the
    body's scope."""

    body: Body
    arguments: dict[UOp, UOp]
    others: tuple[UOp, ...]
    ran: dict[UOp, None]


@lru_cache(_KEPT)
def bound(u: UOp) -> Bound:
    """A Call and its body."""
    body = whole(u.src[0])
    _check_declared(u, body.survey)
    arguments = {p: _argument(u, p) for p in body.needed if p.op is Op.PARAM and p.arg.slot is not None}
    others = tuple(s for s in body.needed if s not in arguments)
    return Bound(body, arguments, others, dict.fromkeys(body.needed, VOID) | body.ran)


def _argument(u: UOp, p: UOp) -> UOp:
    if p.arg.slot >= len(u.src) - 1:
        raise SpecError(f"Param {p.arg.slot} has no argument: {len(u.src) - 1} were given (R64)")
    argument: UOp = u.src[1 + p.arg.slot]
    return argument


def _check_declared(u: UOp, found: Survey) -> None:
    """R63: a Call that declares what it writes writes nothing else."""
    declared = u.arg.written if u.arg is not None else None
    if declared is None:
        return
    for p in found.stored:
        if p.op is Op.PARAM and p.arg.slot not in declared:
            raise SpecError(f"the Call writes argument {p.arg.slot}, but declares {declared} (R63)")


@lru_cache(_KEPT)
def arenas(root: UOp) -> tuple[UOp, ...]:
    """The Buffers whose Slices a Linear of Calls passes as arguments (R126)."""
    slices = (a for c in root.src for a in c.src[1:] if a.op is Op.SLICE and a.src[0].op is Op.BUFFER)
    return tuple(dict.fromkeys(a.src[0] for a in slices))
