"""Kernels under construction: places, and the closed form of a finished kernel.

A finished kernel is a Call of a Sink over its Store in its loops. Its Params are numbered: the memory it writes, the memory it
reads in order of first use, then named variables; memory is flat.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from uops.compiler.ir.affine import between
from uops.compiler.ir.bodies import canonical
from uops.compiler.ir.views import ZERO
from uops.compiler.ir.zero_trip import Held, gated
from uops.compiler.log import active, note
from uops.compiler.passes.callify.callify import extent
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.spec.errors import Crash
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CallArg, ParamArg, RangeArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.derive.shape import dim_node
from uops.spec.ir.node import Dim, UOp, nodes_of, substitute, toposort
from uops.spec.ir.ops import Op


class Kernel:
    """What computes one realised value, or one Store: `ranges` are its output loops, outermost first. Loops and placeholders are
    numbered per kernel, so that what two kernels do alike is the same nodes until memory is named."""

    def __init__(self, root: UOp) -> None:
        self.root = root
        self.coords: tuple[UOp, ...] = ()
        self.ranges: list[UOp] = []
        self.around: dict[UOp, frozenset[UOp]] = {}  # the loops around each loop
        self.holes: dict[Want, UOp] = {}  # placeholders of values that addresses and gates depend on
        self.wanted: dict[UOp, Want] = {}  # placeholder -> what it stands for
        self.store: UOp | None = None
        self.axes = 0
        self.has_product = False
        self.reduced: list[frozenset[UOp]] = []  # the output loops around each Reduce that is computed here

    @property
    def place(self) -> Place:
        """Where its root is wanted. It is not kept: of two objects that hold each other only the garbage collector gets rid."""
        return Place(self, self.coords)

    def loop(self, n: Dim, kind: AxisType) -> UOp:
        """A fresh Range; the index 0 for an axis of one element. A symbolic bound is in normal form from the start: simplification
        does not look into what closes a loop."""
        bound = Rewriter(INDEXING)(n) if isinstance(n, UOp) else dim_node(n)
        if bound.op is Op.CONST and bound.const == 1:
            return ZERO
        self.axes += 1
        return UOp(Op.RANGE, (bound,), RangeArg(self.axes - 1, kind))

    def nest(self, ranges: Iterable[UOp], inside: frozenset[UOp] = frozenset()) -> None:
        """Say that `ranges` nest in this order inside of the loops `inside`."""
        for r in ranges:
            if r.op is Op.RANGE:
                self.around[r] = inside
                inside = inside | {r}

    def keep(self, place: Place) -> None:
        """A Reduce is computed at `place`: the loops around it stay around it."""
        self.reduced.append(frozenset(place.loops() & set(self.ranges)))

    def renest(self, place: Place) -> bool:
        """Whether the output loops can nest so that a Reduce at `place` is computed once per element; they do then. What was kept
        around other Reduces stays, and so does the innermost loop, whose iterations are neighbours in memory."""
        own = frozenset(i for i in place.coords if i is not ZERO)
        if place.gate is not None or not own < set(self.ranges) or self.ranges[-1] in own or self.has_product:
            return False
        if not all(own <= other or other <= own for other in self.reduced):
            return False
        sets = [*self.reduced, own]
        self.ranges.sort(key=lambda r: sum(r not in s for s in sets))
        self.nest(self.ranges)
        return True

    def hole(self, u: UOp, place: Place) -> UOp:
        """A placeholder for the value of `u` at `place`."""
        wanted = u, place
        if wanted not in self.holes:
            bounds = u.min_max if not u.dtype.is_float else None
            known = None if bounds is None or bounds[0] <= u.dtype.min else (int(bounds[0]), int(bounds[1]))
            found = UOp(Op.PARAM, (B.SCALAR,), ParamArg(None, u.dtype, name=f"%{len(self.holes)}", bounds=known))
            self.holes[wanted], self.wanted[found] = found, wanted
        return self.holes[wanted]

    def takes_product(self, place: Place) -> bool:
        """Whether a sum of products may be computed here: the first one, in output loops only. It is, if the answer is yes."""
        if self.has_product or place.is_reduced():
            return False
        self.has_product = True
        return True


class Place(NamedTuple):
    """An element of a value, wanted by a kernel: index, and the gate under which there is such an element (None: always)."""

    kernel: Kernel
    coords: tuple[UOp, ...]
    gate: UOp | None = None

    def is_reduced(self) -> bool:
        """Whether a Reduce takes in what is made of a value here."""
        return any(r.arg.type is AxisType.REDUCE for r in self.loops())

    def loops(self) -> set[UOp]:
        """The loops in which a value here is computed: those that the index depends on, and all around them."""
        around, wanted = self.kernel.around, self.kernel.wanted
        found: set[UOp] = set()
        pending = [*self.coords] if self.gate is None else [*self.coords, self.gate]
        seen: set[UOp] = set()
        while pending:
            i = pending.pop()
            if i.op is Op.RANGE:
                found.add(i)
                found |= around[i]
            elif i.op is not Op.CONST:
                for u in toposort(i):
                    if u not in seen and (u.op is Op.RANGE or u in wanted):
                        seen.add(u)
                        pending += (u,) if u.op is Op.RANGE else wanted[u][1].coords
        return found

    def times(self) -> int:
        """How often a value here is computed."""
        return math.prod([max(1, extent(_bound(r))) for r in self.loops()])

    def exactly_once(self) -> bool:
        """Whether each element is wanted and computed once: distinct loops of the value's own, none around them, no gate."""
        ranges = [i for i in self.coords if i is not ZERO]
        own = frozenset(ranges)
        plain = all(i.op is Op.RANGE for i in ranges) and len(own) == len(ranges)
        return self.gate is None and plain and self.loops() <= own


#: A value at a place: a thing to compute, or an operand of one.
Want = tuple[UOp, Place]
Part = Want


def _bound(r: UOp) -> Dim:
    bound = r.src[0]
    return int(bound.arg.value) if bound.op is Op.CONST else bound


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


class Finished(NamedTuple):
    """The body of kernels that are alike, the places of its memory among that of the unfinished kernel, and its variables."""

    body: UOp
    memory: tuple[int, ...]
    named: tuple[UOp, ...]


class Finish:
    """Makes Calls of kernels whose expressions are complete. `values` are what placeholders stand for, `arguments` those of the
    callified program, `buffers` of realised values. Kernels that differ in their memory only are finished once."""

    def __init__(
        self, values: Mapping[Want, UOp], arguments: tuple[UOp, ...], buffers: Mapping[UOp, UOp], simplify: Callable[[UOp], UOp]
    ) -> None:
        self.values, self.arguments, self.simplify = values, arguments, simplify
        self.realised = {buffer: u for u, buffer in buffers.items()}
        self.known: dict[tuple[Any, ...], Finished] = {}

    def __call__(self, number: int, kernel: Kernel) -> UOp:
        """The Call of kernel `number`."""
        if kernel.store is None:
            raise Crash(f"the kernel of {kernel.root!r} stores nothing")
        holes = {hole: within(self.values[wanted], hole) for hole, wanted in kernel.wanted.items()}
        filled = _fill(kernel.store, holes) if holes else kernel.store
        note("values of addresses", kernel.store, filled, holes, kernel=number)
        memory = _memories(filled)
        own = {m: _own(m, k) for k, m in enumerate(memory)}
        bound = substitute(filled, own)
        note("arguments", filled, bound, own, kernel=number)
        held = {own[m]: self._count_held(m) for m in memory}
        key = bound, tuple(kernel.ranges), tuple(held.values())
        found = self.known.get(key)
        if found is None or active() is not None:
            found = self.known[key] = _finished(number, bound, kernel.ranges, self.simplify, held)
        passed = [self.arguments[m.arg.slot] if m.op is Op.PARAM else m for m in [memory[k] for k in found.memory]]
        return UOp(Op.CALL, (found.body, *passed, *[self.arguments[u.arg.slot] for u in found.named]), CallArg(written=(0,)))

    def _count_held(self, m: UOp) -> Dim:
        """Count the elements of memory that hold a value, from the first on. An input is whole, a realised value fills its Buffer
        as far as it goes, and of a Buffer of the caller nobody knows (R61)."""
        if m in self.realised:
            return total(self.realised[m].shape)
        return 0 if m.op is Op.PARAM and self.arguments[m.arg.slot].op is Op.BUFFER else total(m.shape)


def _finished(number: int, store: UOp, ranges: Sequence[UOp], simplify: Callable[[UOp], UOp], held: Held) -> Finished:
    body = simple = simplify(store)
    numbers = sorted(int(r.arg.axis_id) for r in ranges)  # loops nest by number, whichever order they were made in
    put: dict[UOp, UOp] = {r: r.replace(arg=RangeArg(k, r.arg.type)) for r, k in zip(ranges, numbers) if r.arg.axis_id != k}
    if put:
        nested = substitute(simple, put)
        note("order of loops", simple, nested, put, kernel=number)
        body = simple = simplify(nested)
    memory = _memories(simple)
    body = B.nested(body, [put.get(r, r) for r in ranges])
    note("loops", simple, body, kernel=number)
    body = gated(body, simplify, held)
    named = [u for u in nodes_of(body, Op.PARAM) if u.arg.name is not None]
    slots: dict[UOp, UOp] = {u: u.replace(arg=_variable(u.arg, k)) for k, u in enumerate(named, len(memory))}
    for k, m in enumerate(memory):
        slots[m] = m if m.arg.slot == k and not named else _own(m, k, substitute(m.src[0], slots))
    numbered = B.sink(substitute(body, slots), name=_name(body))
    note("numbers of arguments", body, numbered, slots, kernel=number)
    done, loops = canonical(numbered)
    note("numbers of loops", numbered, done, loops, kernel=number)
    return Finished(done, tuple([m.arg.slot for m in memory]), tuple(named))


def within(value: UOp, hole: UOp) -> UOp:
    """What stands for a placeholder: the value, as an expression that lies in the placeholder's bounds. Of what is read back from
    memory they hold, but nothing says so, and addresses were made by them."""
    d, bounds, known = value.dtype, hole.arg.bounds, value.min_max
    if bounds is None or d is dt.bool_ or (known is not None and bounds[0] <= known[0] and known[1] <= bounds[1]):
        return value
    signed = B.cast(value, dt.int64) if d.min == 0 else value
    return B.cast(between(signed, *(B.const(k, signed.dtype) for k in bounds)), d)


def _fill(root: UOp, holes: dict[UOp, UOp]) -> UOp:
    """`root` with the values that its placeholders stand for; these may hold placeholders in turn."""
    while any(u in holes for u in toposort(root)):
        root = substitute(root, holes)
    return root


def _memories(body: UOp) -> list[UOp]:
    """The memory that a kernel accesses: what it writes, then what it reads in order of first use."""
    return list(dict.fromkeys([_memory(u.src[0]) for op in (Op.STORE, Op.LOAD) for u in nodes_of(body, op)]))


def _own(m: UOp, slot: int, shape: UOp | None = None) -> UOp:
    """The kernel's own Param for memory; where that lies is said by the Call (R72, R86)."""
    if shape is None:
        shape = m.src[0] if m.op is Op.PARAM else B.shape_vector(m.shape)
    return UOp(Op.PARAM, (shape,), ParamArg(slot, m.dtype))


def _memory(address: UOp) -> UOp:
    """The memory below an Index, perhaps through an After."""
    found = address.src[0]
    return found.src[0] if found.op is Op.AFTER else found


def _variable(arg: ParamArg, slot: int) -> ParamArg:
    return ParamArg(slot, arg.dtype, name=arg.name, bounds=arg.bounds)


def _name(body: UOp) -> str:
    """`r` for a kernel that reduces, else `e`; then the extents of its loops, in order of opening. Equal kernels have one name."""
    kind = "r" if nodes_of(body, Op.REDUCE) else "e"
    ranges = sorted(nodes_of(body, Op.RANGE), key=lambda u: int(u.arg.axis_id))
    dims = [str(r.src[0].arg.value) if r.src[0].op is Op.CONST else "n" for r in ranges]
    return "_".join((kind, *dims))
