"""Rangeify: the kernel split, and every kernel broken down to shape ().

Takes: CALLIFIED. Gives: KERNEL (a Linear of Calls in execution order; each body a Sink of a Store in its loops, on flat 1-D
Params). Spec: Lowering Pipeline/Rangeify; rows Movement/*, Reduce, Load, Store; R14, R27, R41 to R46, R51 to R54.

Ranges start at the elements of what is stored and are pushed to its sources, consumers first, through movement ops as functions on
index tuples (`views`). A value is realised - computed by a kernel of its own into a Buffer - when it is a copy by definition, or
when that is cheaper than computing it wherever it is wanted (`cost`); a float sum or product always, where it would be computed
more often than once (R27). Kernels run in the topological order of what they compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from uops.compiler.log import active, note
from uops.compiler.passes.callify import extents, highest_unique
from uops.compiler.passes.cost import Choices
from uops.compiler.passes.elements import closed_reduces
from uops.compiler.passes.hazards import COPIES, memories
from uops.compiler.passes.kernels import Finish, Kernel, Part, Place, Want, ranges_of
from uops.compiler.passes.layouts import BIJECTIVE, Layout, layouts
from uops.compiler.passes.parts import in_parts
from uops.compiler.passes.spread import READ, SPREAD, access
from uops.compiler.passes.targets import Target, locate
from uops.compiler.passes.views import STEP, VIEWS, Indexing
from uops.compiler.rewrite import Rewriter
from uops.compiler.rules import INDEXING
from uops.spec import build as B
from uops.spec import dtypes as dt
from uops.spec.args import AddrSpace, BufferArg
from uops.spec.axes import AxisType
from uops.spec.dtypes import DType
from uops.spec.errors import Crash
from uops.spec.node import Dim, UOp, toposort
from uops.spec.ops import ALU, Op

#: Ops that may be computed for several places at once: all they cost is an address.
_CHEAP = VIEWS | {Op.EXPAND, Op.PAD}
#: Ops that are computed in nothing but the address, where their value is wanted: what they move is realised, or not.
_MOVEMENT = STEP.keys() - {Op.AFTER, Op.REPLICATED}
#: Ops of which every element is made of one element of each source of that shape, or of elements of its own.
_ONCE = ALU | BIJECTIVE | {Op.REDUCE, Op.CONTIGUOUS}
_LEAVES = COPIES | {Op.PARAM, Op.CONST, Op.BINARY}


def rangeify(root: UOp, simplify: Callable[[UOp], UOp] | None = None) -> UOp:
    """The kernels of a callified program."""
    simplify = simplify or Rewriter(INDEXING)
    at = Indexing(simplify)
    body = in_parts(root.src[0], at)
    if body is not root.src[0]:
        root = root.replace(src=(body, *root.src[1:]))
    state = Rangeify(at, toposort(body), root.src[1:])
    state.spread()
    state.compute()
    if active() is not None:
        state.note(body, simplify if isinstance(simplify, Rewriter) else None)
    finish = Finish(state.values, state.arguments, state.buffers, simplify)
    launch = UOp(Op.LINEAR, tuple([finish(n, kernel) for n, kernel in enumerate(state.in_order())]))
    note("realise", root, launch, state.buffers)
    return launch


class Rangeify:
    """The state of one translation, shared by the tables `SPREAD` and `READ`."""

    def __init__(self, at: Indexing, order: Sequence[UOp], arguments: tuple[UOp, ...]) -> None:
        self.at, self.order, self.arguments = at, order, arguments
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
        self.targets[u] = locate(self, kernel, u.src[0])
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
        parts = self.parts[wanted] = SPREAD.get(u.op, _through)(self, u, place)
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
        return READ[u.op](self, u, place, [self.values[p] for p in self.parts[u, place]])

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
