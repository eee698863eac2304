"""The state of one translation from a callified body to kernels: what is wanted of each value, and its expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from uops.compiler.ir.views import STEP, VIEWS, Indexing
from uops.compiler.log import note
from uops.compiler.passes.callify.callify import extents, highest_unique
from uops.compiler.passes.callify.hazards import COPIES, memories
from uops.compiler.passes.rangeify.cost import Choices
from uops.compiler.passes.rangeify.elements import closed_reduces
from uops.compiler.passes.rangeify.kernels import Kernel, Part, Place, Want, ranges_of
from uops.compiler.passes.rangeify.layouts import BIJECTIVE, Layout, layouts
from uops.compiler.passes.rangeify.storage import Target, access
from uops.compiler.rewrite.rewriter import Rewriter
from uops.spec.errors import Crash
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, BufferArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import Dim, UOp
from uops.spec.ir.ops import ALU, Op

#: Ops that may be computed for several places at once: all they cost is an address.
_CHEAP = VIEWS | {Op.EXPAND, Op.PAD}


#: Ops that are computed in nothing but the address, where their value is wanted: what they move is realised, or not.
_MOVEMENT = STEP.keys() - {Op.AFTER, Op.REPLICATED}


#: Ops of which every element is made of one element of each source of that shape, or of elements of its own.
_ONCE = ALU | BIJECTIVE | {Op.REDUCE, Op.CONTIGUOUS}


_LEAVES = COPIES | {Op.PARAM, Op.CONST, Op.BINARY}


class Rangeify:
    """The state of one translation, shared by the functions of its `tables`."""

    def __init__(self, at: Indexing, order: Sequence[UOp], arguments: tuple[UOp, ...], tables: Tables) -> None:
        self.at, self.order, self.arguments, self.tables = at, order, arguments, tables
        self.memory = memories(order)
        self.cheap = _cheap(order)
        self.places: dict[UOp, dict[Place, None]] = {}  # what is wanted of each value
        self.parts: dict[Want, list[Part]] = {}  # the source elements of which it is made
        self.kernels: dict[UOp, Kernel] = {}  # by what they compute: a realised value or a Store
        self.buffers: dict[UOp, UOp] = {}  # of realised values
        self.targets: dict[UOp, Target] = {}  # of Stores
        self.values: dict[Want, UOp] = {}  # expressions
        self.closed = closed_reduces(order, at)
        self.put: dict[Want, dict[UOp, UOp]] = {}  # in closed forms: what stands for the general index and the loops left
        self.choices = Choices(order, self.closed)
        viewed = not BIJECTIVE.isdisjoint({u.op for u in order})
        self.layouts = layouts(order, self.choices.uses, self.cheap) if viewed else {}
        self.once: set[Want] = set()  # places that are every element once
        self.unique = highest_unique(arguments)

    # Consumers first: which elements of each value are wanted.

    def spread(self) -> None:
        for u in reversed(self.order):
            if u.op is Op.STORE:
                self._visit_store(u)
            elif u in self.places:
                self._visit(u)

    def _visit(self, u: UOp) -> None:
        if not self._is_realised(u):
            for place in self.places[u]:
                self._push((u, place))
            return
        self.buffers[u] = self._buffer(u)
        if 0 in u.shape:
            return
        layout = self.layouts.get(u)
        if layout is None:
            self._push((u, self._open(u, u.shape).place))
        else:
            self._open_layout(u, layout)

    def _open_layout(self, u: UOp, layout: Layout) -> None:
        """The kernel of a value that is stored in the order of its view `u`."""
        kernel = self._open(u, layout.loops.shape)
        loops = kernel.coords
        kernel.coords = layout.above(self.at, loops)
        inner = Place(kernel, layout.below(self.at, loops))
        self.parts[u, kernel.place] = [self.want(layout.value, inner)]
        self.once.add((layout.value, inner))

    def _visit_store(self, u: UOp) -> None:
        """A kernel over the elements of the target; nothing where it has none."""
        shape = u.src[0].shape
        if 0 in shape:
            return
        kernel = self._open(u, shape)
        self.targets[u] = self.tables.locate(self, kernel, u.src[0])
        self.parts[u, kernel.place] = [self.want(s, self.aligned(kernel.place, s)) for s in u.src[1:]]

    def _is_realised(self, u: UOp) -> bool:
        if u.op in COPIES:
            return True
        if u in self.cheap:
            return False
        value = self.layouts[u].value if u in self.layouts else u
        if value.op in _MOVEMENT:
            return False
        places = list(self.places[u])
        looped, first = self.choices.is_looped(value), places[0]
        once = len(places) == 1 and ((u, first) in self.once or first.exactly_once())
        if once:
            self.once.add((u, first))
        if not once and len(places) == 1 and value in self.choices.carriers:
            once = first.kernel.renest(first)
        if self.choices.realise(value, places, once):
            return True
        if looped:
            first.kernel.keep(first)
        return False

    def _push(self, wanted: Want) -> None:
        u, place = wanted
        parts = self.parts[wanted] = self.tables.spread.get(u.op, _through)(self, u, place)
        for s, at in parts:
            self.places.setdefault(s, {})[at] = None
        if u.op in _ONCE and wanted in self.once and u not in self.closed:
            shape, whole = u.shape, u.op is Op.REDUCE or u.op in BIJECTIVE
            self.once.update(parts if whole else [p for p in parts if p[0].shape == shape])

    def want(self, u: UOp, place: Place) -> Part:
        self.places.setdefault(u, {})[place] = None
        return u, place

    def aligned(self, place: Place, s: UOp) -> Place:
        """The place in an operand that broadcasts to where `place` is (R41)."""
        coords = self.at.align(place.coords, s.shape)
        return place if coords is place.coords else Place(place.kernel, coords, place.gate)

    def hole(self, u: UOp, place: Place) -> UOp:
        """A stand-in for the value of `u` at `place`, which an address or a gate needs before it is computed."""
        self.want(u, place)
        return place.kernel.hole(u, place)

    # Kernels and their loops.

    def _open(self, u: UOp, shape: Sequence[Dim]) -> Kernel:
        kernel = self.kernels[u] = Kernel(u)
        kernel.coords = tuple([kernel.loop(n, AxisType.LOOP) for n in shape])
        kernel.ranges = ranges_of(kernel.coords)
        kernel.nest(kernel.ranges)
        self.once.add((u, kernel.place))
        return kernel

    def _buffer(self, u: UOp) -> UOp:
        self.unique += 1
        device = u.device if isinstance(u.device, str) else "CPU"
        return UOp(Op.BUFFER, (), BufferArg(extents(u.shape), stored_as(u), device, AddrSpace.GLOBAL, self.unique))

    # Sources first: the expression of every wanted element.

    def compute(self) -> None:
        for u in self.order:
            if u in self.kernels:
                self._compute_kernel(u, self.kernels[u])
            elif u in self.buffers:
                pass
            else:
                for place in self.places.get(u, ()):
                    self.values[u, place] = self._expression(u, place)
            if u in self.buffers:
                for place in self.places[u]:
                    flat = self.at.flatten(place.coords, u.shape)
                    self.values[u, place] = B.cast(access(self.buffers[u], flat, place.gate), u.dtype)

    def _expression(self, u: UOp, place: Place) -> UOp:
        if place.gate is not None and place.gate.op is Op.CONST:  # never true
            return B.const(0, u.dtype)
        return self.tables.read[u.op](self, u, place, [self.values[p] for p in self.parts[u, place]])

    def _compute_kernel(self, u: UOp, kernel: Kernel) -> None:
        if u.op is Op.STORE:
            kernel.store = self.targets[u].store([self.values[p] for p in self.parts[u, kernel.place]])
            kernel.ranges = [*kernel.ranges, *self.targets[u].ranges]
            return
        value = self._expression(u, kernel.place) if u not in self.layouts else self.values[self.parts[u, kernel.place][0]]
        target = UOp(Op.INDEX, (self.buffers[u], self.at.flatten(kernel.coords, u.shape)))
        kernel.store = UOp(Op.STORE, (target, B.cast(value, stored_as(u))))

    def in_order(self) -> Iterator[Kernel]:
        return (self.kernels[u] for u in self.order if u in self.kernels)

    def note(self, body: UOp, terms: Rewriter | None) -> None:
        """Log what each kernel computes of each value."""
        values: dict[int, dict[UOp, tuple[UOp, ...]]] = {}
        for (u, place), node in self.values.items():
            own = values.setdefault(id(place.kernel), {})
            own[u] = (*own.get(u, ()), node)
        for n, kernel in enumerate(self.in_order()):
            made = values.get(id(kernel), {})
            if kernel.store is not None:
                made[kernel.root] = (kernel.store if kernel.root.op is Op.STORE else kernel.store.src[1],)
                beside = {kernel.root: (kernel.store, *kernel.ranges)}
                note("ranges", body, kernel.store, made, kernel=n, terms=terms, made=beside)


def _cheap(order: Sequence[UOp]) -> set[UOp]:
    found: set[UOp] = set()
    for u in order:
        if u.op in _LEAVES or (u.op in _CHEAP and u.src[0] in found):
            found.add(u)
    return found


def _through(state: Rangeify, u: UOp, place: Place) -> list[Part]:
    """A movement op: one element of its source, perhaps gated."""
    if u.op not in STEP:
        raise Crash(f"rangeify knows no element of {u!r}")
    index, gate = STEP[u.op](state.at, u, place.coords)
    return [(u.src[0], Place(place.kernel, index, state.at.both(place.gate, gate)))]


def stored_as(u: UOp) -> DType:
    """The dtype of a realised value's Buffer; an index is stored in int32 if its bounds allow it, else in int64 (R08, R29)."""
    if u.dtype is not dt.index:
        return u.dtype
    lo, hi = u.min_max or (dt.index.min, dt.index.max)
    return dt.int32 if dt.int32.min <= lo and hi <= dt.int32.max else dt.int64


class Tables(NamedTuple):
    """What each op does: `spread` says which elements of its sources an element needs, `read` gives its expression of them;
    `locate` follows the target of a Store to its memory."""

    spread: Mapping[Op, Callable[[Rangeify, UOp, Place], list[Part]]]
    read: Mapping[Op, Callable[[Rangeify, UOp, Place, Sequence[UOp]], UOp]]
    locate: Callable[[Rangeify, Kernel, UOp], Target]
