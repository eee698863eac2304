"""Kernels under construction: places, and the closed form of a finished kernel.

A finished kernel is a Call of a Sink over its Store in its loops. Its Params are numbered: the memory it writes, the memory it
reads in order of first use, then named variables; memory is flat.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from uops.compiler.log import note
from uops.compiler.passes.bodies import canonical
from uops.spec import build as B
from uops.spec.args import CallArg, ParamArg
from uops.spec.axes import AxisType
from uops.spec.derive.shape import dim_node
from uops.spec.errors import Crash
from uops.spec.node import Dim, UOp, substitute, toposort
from uops.spec.ops import Op


class Kernel:
    """What computes one realised value, or one Store: `ranges` are its loops, outermost first."""

    def __init__(self, root: UOp) -> None:
        self.root = root
        self.place = Place(self, ())
        self.ranges: list[UOp] = []
        self.store: UOp | None = None
        self.holes: dict[UOp, UOp] = {}
        self.has_product = False

    def takes_product(self, place: Place) -> bool:
        """Whether a sum of products may be computed here: the first one, in output loops only. It is, if the answer is yes."""
        loops = (r for i in place.coords for r in (toposort(i) if i.op not in (Op.RANGE, Op.CONST) else (i,)))
        if self.has_product or any(r.op is Op.RANGE and r.arg.type is AxisType.REDUCE for r in loops):
            return False
        self.has_product = True
        return True


class Place(NamedTuple):
    """An element of a value, wanted by a kernel: index, and the gate under which there is such an element (None: always)."""

    kernel: Kernel
    coords: tuple[UOp, ...]
    gate: UOp | None = None


#: A value at a place: a thing to compute, or an operand of one.
Want = tuple[UOp, Place]
Part = Want


def ranges_of(index: Iterable[UOp]) -> list[UOp]:
    return [i for i in index if i.op is Op.RANGE]


def flat_param(p: UOp) -> UOp:
    """The 1-D form of a Param that is memory."""
    return p if len(p.shape) == 1 else p.replace(src=(B.shape_vector((total(p.shape),)),))


def total(shape: Iterable[Dim]) -> Dim:
    """The number of elements of a shape, an index expression where it is symbolic."""
    dims = list(shape)
    fixed = math.prod(d for d in dims if not isinstance(d, UOp))
    product: Dim = fixed
    for d in dims:
        if isinstance(d, UOp):
            product = d if product == 1 and not isinstance(product, UOp) else UOp(Op.MUL, (d, dim_node(product)))
    return product


def finish(number: int, kernel: Kernel, arguments: tuple[UOp, ...], simplify: Callable[[UOp], UOp]) -> UOp:
    """The Call of a kernel whose expressions are complete. `arguments` are those of the callified program."""
    if kernel.store is None:
        raise Crash(f"the kernel of {kernel.root!r} stores nothing")
    filled = _fill(kernel.store, kernel.holes)
    note("values of addresses", kernel.store, filled, kernel.holes, kernel=number)
    body = store = simplify(filled)
    for r in reversed(kernel.ranges):
        body = UOp(Op.END, (body, r))
    note("loops", store, body, kernel=number)
    params, call_arguments = _bind(body, store, arguments)
    bound = B.sink(substitute(body, params), name=_name(body))
    note("arguments", body, bound, params, kernel=number)
    done, put = canonical(bound)
    note("numbers of loops", bound, done, put, kernel=number)
    return UOp(Op.CALL, (done, *call_arguments), CallArg(written=(0,)))


def _fill(root: UOp, holes: dict[UOp, UOp]) -> UOp:
    """`root` with the values that its placeholders stand for; these may hold placeholders in turn."""
    while any(u in holes for u in toposort(root)):
        root = substitute(root, holes)
    return root


def _bind(body: UOp, store: UOp, arguments: tuple[UOp, ...]) -> tuple[dict[UOp, UOp], tuple[UOp, ...]]:
    """The kernel's own Params for the memory and variables it names, and what the Call passes for them."""
    order = toposort(body)
    memory = dict.fromkeys([_memory(store.src[0]), *(_memory(u.src[0]) for u in order if u.op is Op.LOAD)])
    named = [u for u in order if u.op is Op.PARAM and u.arg.name is not None]
    put: dict[UOp, UOp] = {u: u.replace(arg=_variable(u.arg, k)) for k, u in enumerate(named, len(memory))}
    passed = []
    for k, m in enumerate(memory):
        source = arguments[m.arg.slot] if m.op is Op.PARAM else m
        shape = substitute(m.src[0], put) if m.op is Op.PARAM else B.shape_vector(m.shape)
        put[m] = UOp(Op.PARAM, (shape,), ParamArg(k, m.dtype, m.device))
        passed.append(source)
    return put, (*passed, *(arguments[u.arg.slot] for u in named))


def _memory(address: UOp) -> UOp:
    """The memory below an Index, perhaps through an After."""
    found = address.src[0]
    return found.src[0] if found.op is Op.AFTER else found


def _variable(arg: ParamArg, slot: int) -> ParamArg:
    return ParamArg(slot, arg.dtype, name=arg.name, bounds=arg.bounds)


def _name(body: UOp) -> str:
    """`r` for a kernel that reduces, else `e`; then the extents of its loops, in order of opening. Equal kernels have one name."""
    order = toposort(body)
    kind = "r" if any(u.op is Op.REDUCE for u in order) else "e"
    ranges = sorted((u for u in order if u.op is Op.RANGE), key=lambda u: int(u.arg.axis_id))
    dims = [str(r.src[0].arg.value) if r.src[0].op is Op.CONST else "n" for r in ranges]
    return "_".join((kind, *dims))
