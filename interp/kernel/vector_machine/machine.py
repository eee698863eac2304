"""The vectorised machine: a kernel's loops as axes of NumPy arrays, with one step of Python per node.

A node inside of axes is one array over all their iterations, as large as what it depends on; loops that run in order
(`plan`) run in Python around that. It raises GiveUp where order might matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from uops.interp.kernel.lane_machine.memory import Space, Window
from uops.interp.kernel.structure.blocks import Block, Loop
from uops.interp.kernel.vector_machine.affine import Affine, constant
from uops.interp.kernel.vector_machine.axes import align_axes, fold_axes, matrix, recipe_of
from uops.interp.kernel.vector_machine.limits import GiveUp, within
from uops.interp.kernel.vector_machine.memory import Event, Memory, Ref, Scattered, Span, Strided, full, judge, spanned, whole
from uops.interp.kernel.vector_machine.plan import MemoryPlan, Plan
from uops.interp.kernel.vector_machine.static import Static
from uops.interp.ops.elementwise import KERNELS
from uops.interp.ops.reduce import FOLDS
from uops.interp.ops.rounding import NARROW
from uops.interp.tensor.checks import check_bounds, unsound
from uops.interp.tensor.storage import NUMPY, Array
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.derive.minmax import WHOLE
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

_ndarray = np.ndarray


Value = Any
Operands = Mapping[UOp, Array | Space | Window]


@dataclass(eq=False, slots=True)
class Attempt:
    """An outcome: the value of the kernel's root, None where it has none, and what becomes of each Space."""

    value: Array | None
    changes: tuple[tuple[Space, Memory], ...]

    def commit(self) -> Array | None:
        """Make the Spaces hold the outcome; gives the value."""
        taken: set[int] = set()
        for space, memory in self.changes:
            _mark(space.read, memory.read)
            if memory.written is not False:
                _mark(space.written, memory.written)
                _replace(space, memory, taken)
        return self.value


def _replace(space: Space, memory: Memory, taken: set[int]) -> None:
    """Give `space` the contents of `memory`, in the arrays it has unless they are others' too. An array that was computed becomes
    that of one Space: `taken` are those that did."""
    data, new, written = space.data, memory.data, memory.written
    if not space.borrowed:
        np.copyto(data if data.dtype is new.dtype else data.view(new.dtype), new)
        if space.ready is not None:
            _mark(space.ready, written)
        return
    if not memory.owned and id(new.base) in taken:
        new = new.copy()
    taken.add(id(new.base))
    space.data = new if data.dtype is new.dtype else new.view(data.dtype)
    space.ready = None if space.ready is None or written is True else space.ready | written
    space.borrowed = False


def _mark(marks: Array, more: Array | bool) -> None:
    if more is True:
        marks.fill(True)
    elif more is not False:
        marks |= more


#: What a node does: the machine, the node and the mask of the Ifs around it give its value.
Action = Callable[["Machine", UOp, "Array | None"], Value]
#: What a run does in a block: an action on a node, or None and a loop; and the Ifs around it.
Step = tuple[Action | None, Any, tuple[UOp, ...]]


#: A step where it stands: the extents of the axes around it, their product, the action, and the node.
Placed = tuple[list[int], int, Action, UOp]
#: NumPy's dtype, the shape, and bounds that say more than the dtype does, else None.
Form = tuple[np.dtype[Any], tuple[Any, ...], tuple[Any, Any] | None]


def _form(u: UOp) -> Form:
    d, bounds, unknown = u.dtype, u.min_max, WHOLE[u.dtype]
    if bounds is None:
        unsound(u, "min_max", "bounds", None)
    return NUMPY[d], u.shape, None if bounds is unknown or bounds == unknown else bounds


@dataclass(eq=False, slots=True)
class Program:
    """`straight`: all steps in one list, if nothing about the loops is left to a run. `lent`: of each leaf, its memory if it has
    one, NumPy's dtype, and the reference to all of it where its shape is known. `forms`: of the nodes that were asked for."""

    plan: Plan
    static: Static
    actions: Mapping[Op, Action]
    steps: dict[Block, list[Step]]
    straight: list[Placed] | None
    lent: list[tuple[UOp, MemoryPlan | None, np.dtype[Any], Strided | None]]
    forms: dict[UOp, Form] = field(default_factory=dict)


class Machine:
    """One run. `cells` holds the value of every node that has one; `extents` are those of the axes around the present block."""

    def __init__(self, program: Program, operands: Operands, check: bool) -> None:
        self.program = program
        self.plan = program.plan
        self.steps = program.steps
        self.spans = program.static.spans
        self.bounds = program.static.bounds
        self.forms = program.forms
        self.check = check
        self.cells: dict[UOp, Value] = dict(program.static.cells)
        self.extents: list[int] = []
        self.volume = 1
        self.iterations: dict[UOp, int] = {}
        self.phase = 0
        self.memories: dict[UOp, Memory] = {}
        self.events: dict[UOp, list[Event]] = {}
        self.collected: dict[UOp, list[Array]] = {}
        self.bases: dict[UOp, int] = {}
        self.spaces: list[tuple[Space, Memory]] = []
        self.values: set[UOp] = set()
        self._bind(operands)

    def _bind(self, operands: Operands) -> None:
        cells, spaces, written = self.cells, self.spaces, []
        for u, planned, dtype, ref in self.program.lent:
            given = operands[u]
            if given.__class__ is not Space:
                self._bind_value(u, given)
                continue
            if ref is None:
                ref = whole(u, u.shape if all(n.__class__ is int for n in u.shape) else given.data.shape)
                cells[u] = ref
            if math.prod(ref.shape) != given.data.size:
                raise GiveUp("a memory of another size than its Param")
            if planned is not None:
                memory = self.memories[u] = Memory.of_space(planned, given, dtype)
                spaces.append((given, memory))
                if planned.written:
                    written.append(given)
        for w in written:
            for s, _ in spaces:
                if s is not w and not w.borrowed and np.may_share_memory(w.data, s.data):
                    raise GiveUp("arguments that share memory")
        if written and len({id(s) for s, _ in spaces}) < len(spaces):
            raise GiveUp("arguments that share memory")

    def _bind_value(self, u: UOp, given: Array | Space | Window) -> None:
        """A leaf that is no memory; elements of it are read like those of one that nobody writes."""
        if not isinstance(given, _ndarray) or given.dtype.kind == "O":
            raise GiveUp("a part of a memory that others see too, or an index value beyond 64 bits")
        planned = self.plan.memories.get(u)
        if planned is None:
            self.cells[u] = constant(int(given)) if given.ndim == 0 and given.dtype.kind in "iu" else given.view()
            return
        if planned.written or given.shape != u.shape or given.dtype != NUMPY[u.dtype]:
            raise GiveUp("a value where a memory is used")
        self.cells[u] = whole(u, given.shape)
        self.memories[u] = Memory(planned, "a value", given.size, np.ascontiguousarray(given).reshape(-1), None, None)
        self.values.add(u)

    def is_value(self, u: UOp) -> bool:
        """Whether what a Ref leads to is a leaf that is no memory."""
        return u in self.values

    def run(self) -> Attempt:
        if self.program.straight is None:
            self._block(self.plan.block, None)
        else:
            self._line(self.program.straight)
        self._judge()
        root = self.plan.kernel.root
        value = None if root.dtype is dt.void else np.array(self.value(root, len(root.shape)))
        return Attempt(value, tuple(self.spaces))

    def _judge(self) -> None:
        for m, events in self.events.items():
            for check in self.plan.memories[m].checks:
                judge(self.memories[m].data.size, check, events)

    # Blocks

    def _block(self, block: Block, live: Array | None) -> None:
        cells = self.cells
        for action, item, guards in self.steps[block]:
            inside = self._inside(guards, live) if guards else live
            if action is None:
                self._loop(item, inside)
            else:
                found = action(self, item, inside)
                if found is not None:
                    cells[item] = self.checked(item, found)

    def _line(self, steps: Sequence[Placed]) -> None:
        cells = self.cells
        for extents, volume, action, item in steps:
            self.extents, self.volume = extents, volume
            found = action(self, item, None)
            if found is not None:
                cells[item] = self.checked(item, found)
        self.extents, self.volume = [], 1

    def _inside(self, guards: Sequence[UOp], live: Array | None) -> Array | None:
        depth = len(self.extents)
        for g in guards:
            mask = align_axes(self.cells[g], 0, 0, depth)
            live = mask if live is None else np.logical_and(align_axes(live, 0, 0, depth), mask)
        return live

    def _loop(self, loop: Loop, live: Array | None) -> None:
        r, closer = loop.range, loop.closer
        n = self.bounds.get(r)
        if n is None:
            n = self._bound(r.src[0])
        reduces = closer.op is Op.REDUCE
        if reduces and loop.outermost:
            self.collected[closer] = []
            self.bases[closer] = len(self.extents)
        if n > 0:
            if r in self.plan.sequential:
                for i in range(n):
                    self.iterations[r] = i
                    self.cells[r] = self.checked(r, constant(i))
                    self._iterate(loop, live)
            else:
                self.extents.append(n)
                self.volume *= n
                if r not in self.bounds:
                    self.cells[r] = self.checked(r, Affine(0, (0,) * (len(self.extents) - 1) + (1,), self.extents))
                self._iterate(loop, live)
                self.extents.pop()
                self.volume //= n
        if reduces and loop.outermost:
            self.cells[closer] = self.checked(closer, self._folded(closer))

    def _iterate(self, loop: Loop, live: Array | None) -> None:
        for m in self.plan.resets.get(loop.range, ()):
            self.memories.pop(m.node, None)
        self._block(loop.block, live)
        if loop.innermost and loop.closer.op is Op.REDUCE:
            self._collect(loop.closer)

    def _bound(self, u: UOp) -> int:
        if u not in self.cells:  # of a Special, whose loop is around everything
            for s in u.src:
                self._bound(s)
            self.cells[u] = self.program.actions[u.op](self, u, None)
        c = self.cells[u]
        if c.__class__ is Affine and c.lo == c.hi:
            return int(c.lo)
        if c.__class__ is _ndarray and c.size == 1 and not c.ndim:
            return int(c)
        raise GiveUp("a bound that varies")

    def _collect(self, closer: UOp) -> None:
        self.collected[closer].append(self.part(closer, self.plan.fused.get(closer), self.bases[closer]))

    def part(self, closer: UOp, product: UOp | None, base: int) -> Array:
        """A Reduce over the axes from `base` on."""
        if product is not None:
            return self._contract(closer, product, base)
        return fold_axes(closer, self.value(closer.src[0], len(closer.shape)), self.extents, base)

    def _contract(self, u: UOp, product: UOp, base: int) -> Array:
        """The sum `u` of a product over the axes from `base` on, in float64 and rounded once (R32).

        Where the factors vary along different axes this is a matrix product, and the products are not made.
        """
        depth = len(self.extents)
        left_source, right_source = product.src
        a, b = full(self.value(left_source, 0), 0, depth), full(self.value(right_source, 0), 0, depth)
        recipe = recipe_of(a.shape, b.shape, tuple(self.extents), base)
        if recipe is None:
            within(math.prod([max(p, q) for p, q in zip(a.shape, b.shape)]))
            x = np.asarray(KERNELS[Op.MUL][product.dtype](a, b))
            self.checked(product, x)
            return fold_axes(u, x, self.extents, base)
        left, right, shape, back = recipe
        out = NARROW[product.dtype](np.matmul(matrix(a, *left), matrix(b, *right))).reshape(shape)
        return out if back is None else out.transpose(back)

    def _folded(self, closer: UOp) -> Array:
        """Of a loop that ran in order, the partial results together (R32)."""
        parts = self.collected.pop(closer)
        if len(parts) == 1:
            return parts[0]
        fold = FOLDS[closer.arg.op][closer.dtype]
        if not parts:
            return np.asarray(fold(np.empty((0, *closer.shape), NUMPY[closer.dtype]), (0,))[0])
        return np.asarray(fold(np.stack(np.broadcast_arrays(*parts)), (0,))[0])

    # Values

    def value(self, u: UOp, rank: int) -> Array:
        """The value of `u` as an array that broadcasts with those of `rank` own axes here."""
        c, depth = self.cells[u], len(self.extents)
        if c.__class__ is _ndarray:
            own = len(u.shape)
            lead = c.ndim - own
            if not lead or (lead == depth and own == rank):
                return c
            return align_axes(c, own, rank, depth)
        if c.__class__ is not Affine:
            raise GiveUp("a reference, or nothing, that is used as a value")
        if u.dtype is dt.index:
            a = c.values(self.extents)
        else:
            d = NUMPY[u.dtype]
            a = np.array(c.lo, d) if c.lo == c.hi else c.values(self.extents).astype(d)
        return align_axes(a, 0, rank, depth)

    def affordable(self, sources: Sequence[UOp]) -> None:
        """GiveUp where an elementwise op on these would make too large an array."""
        rank = max(len(s.shape) for s in sources)
        within(math.prod(np.broadcast_shapes(*[self.value(s, rank).shape for s in sources])))

    def checked(self, u: UOp, v: Value) -> Value:
        """`v`, once what the specification derives is asserted of it."""
        kind = v.__class__
        if kind is Strided or kind is Scattered:
            return v
        if kind is Affine:
            if self.check:
                bounds = u.min_max
                if bounds is None or v.lo < bounds[0] or v.hi > bounds[1]:
                    unsound(u, "min_max", bounds, (v.lo, v.hi))
            return v
        if kind is not _ndarray:
            v = np.asarray(v, NUMPY[u.dtype])
        if self.check and u.op is not Op.IF:
            form = self.forms.get(u)
            if form is None:
                form = self.forms[u] = _form(u)
            self._check(u, v, form)
        return v

    def _check(self, u: UOp, v: Array, form: Form) -> None:
        wanted, shape, bounds = form
        given, found = v.dtype, v.shape
        if given is not wanted and given != wanted:
            unsound(u, "dtype", wanted, given)
        lead = len(found) - len(shape)
        if found[lead:] != shape or (lead and lead != len(self.extents)):
            unsound(u, "shape", shape, found)
        if bounds is not None:
            check_bounds(u, v)

    # Memory

    def _memory(self, ref: Ref) -> Memory:
        found = self.memories.get(ref.home)
        if found is None:
            u = ref.home
            planned = self.plan.memories[u]
            if u.op is not Op.BUFFER or planned.space is AddrSpace.GLOBAL:
                raise GiveUp("memory that nobody supplies")
            found = self.memories[u] = Memory.fresh(planned, NUMPY[u.dtype], u.arg.size, self.extents)
        return found

    def load(self, u: UOp, ref: Ref, mask: Array | None) -> Array:
        """The elements of `ref` where the mask holds, anything elsewhere."""
        memory = self.memories.get(ref.home) or self._memory(ref)
        if mask is None and ref.__class__ is Strided:
            span = self.spans.get(u) or spanned(ref, memory.size, memory.lane, self.extents)
            if memory.plan.checks:
                self._log(memory, u, span, None, None)
            return memory.load_span(span)
        at, mask = memory.places(self._scattered(ref), mask, self.extents)
        self._log(memory, u, None, at, mask)
        return memory.load_places(at, mask)

    def store(self, u: UOp, ref: Ref, value: Array, mask: Array | None) -> None:
        memory = self.memories.get(ref.home) or self._memory(ref)
        if mask is None and ref.__class__ is Strided:
            span = self.spans.get(u) or spanned(ref, memory.size, memory.lane, self.extents)
            if span.once:
                self._log(memory, u, span, None, None)
                memory.store_span(span, value)
                return
        at, mask = memory.places(self._scattered(ref), mask, self.extents)
        self._log(memory, u, None, at, mask)
        memory.store_places(at, mask, value, self.extents)

    def add(self, u: UOp, ref: Ref, value: Array, mask: Array | None) -> None:
        memory = self._memory(ref)
        at, mask = memory.places(self._scattered(ref), mask, self.extents)
        self._log(memory, u, None, at, mask)
        memory.add_places(at, mask, value, self.extents)

    def _scattered(self, ref: Ref) -> Scattered:
        return ref.scattered(self.extents) if isinstance(ref, Strided) else ref

    def _log(self, memory: Memory, u: UOp, span: Span | None, at: Array | None, mask: Array | None) -> None:
        planned = memory.plan
        if planned.checks and not planned.alone:
            event = Event(u, span, at, mask, (dict(self.iterations), self.phase), tuple(self.extents))
            self.events.setdefault(planned.node, []).append(event)
