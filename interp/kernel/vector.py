"""The vectorised machine: a kernel's loops as axes of NumPy arrays.

`attempt(kernel, operands, check)` gives the outcome of a kernel, or None where it does not apply or saw something that might be a
fault; it changes nothing, and raises nothing for a fault of the program. Its caller silences NumPy's warnings. The per-lane
machine is the definition: where there is an outcome, it gives the same one and no fault. Integers, maxima and everything that is
stored as it was computed agree bit for bit; float sums and products over ranges lie both within R32, whose order of terms is free.

A node inside of axes is one array over all their iterations, as large as what it depends on; loops that run in order
(`vector_plan`) run in Python around that. With `check`, every value's derived dtype, shape and min_max are asserted, of the whole
array. Limits: no array of more than `vector_limits.LARGEST` elements, one bound for all iterations of a loop, no Wmma, no opaque
instruction, no AtomicAdd of floats, no reference as a value, no Slice or Bitcast of a reference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from uops.interp.checks import check_bounds, unsound
from uops.interp.kernel.launch import launched
from uops.interp.kernel.memory import Space, Window
from uops.interp.kernel.structure import Block, Kernel, Loop, structure
from uops.interp.kernel.vector_affine import Affine, constant
from uops.interp.kernel.vector_limits import GiveUp, TooLarge, within
from uops.interp.kernel.vector_memory import Event, Memory, Ref, Scattered, Span, Strided, judge, spanned, whole
from uops.interp.kernel.vector_ops import ACTIONS, Action, Value, aligned, contracted, folded
from uops.interp.kernel.vector_plan import Level, MemoryPlan, Plan, plan
from uops.interp.kernel.vector_static import Static, fold
from uops.interp.reduce import FOLDS
from uops.interp.storage import NUMPY, Array
from uops.spec import dtypes as dt
from uops.spec.args import AddrSpace
from uops.spec.derive.minmax import WHOLE
from uops.spec.errors import UopsError
from uops.spec.node import UOp
from uops.spec.ops import Op

_ndarray = np.ndarray
_KNOWN = frozenset(ACTIONS)
#: What an ill-formed kernel, or a fault of one, makes the evaluation raise.
_FAULTS = (
    GiveUp, UopsError, KeyError, IndexError, TypeError, ValueError, AttributeError, ZeroDivisionError, OverflowError, MemoryError
)  # fmt: skip


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


def attempt(kernel: Kernel, operands: Operands, check: bool = True) -> Attempt | None:
    """The outcome of `kernel`, or None."""
    try:
        return evaluated(kernel, operands, check)
    except _FAULTS:
        return None


def evaluated(kernel: Kernel, operands: Operands, check: bool = True) -> Attempt:
    """The outcome of `kernel`; raises GiveUp, or what a fault raises, where `attempt` gives None."""
    eager = _planned(kernel.root, kernel.leaves, Level.EAGER)
    try:
        return Machine(eager, operands, check).run()
    except TooLarge:
        raise
    except _FAULTS:
        careful = _planned(kernel.root, kernel.leaves, Level.CAREFUL)
        if careful.plan.sequential == eager.plan.sequential:
            raise
        return Machine(careful, operands, check).run()


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
class _Program:
    """`straight`: all steps in one list, if nothing about the loops is left to a run. `lent`: of each leaf, its memory if it has
    one, NumPy's dtype, and the reference to all of it where its shape is known. `forms`: of the nodes that were asked for."""

    plan: Plan
    static: Static
    steps: dict[Block, list[Step]]
    straight: list[Placed] | None
    lent: list[tuple[UOp, MemoryPlan | None, np.dtype[Any], Strided | None]]
    forms: dict[UOp, Form] = field(default_factory=dict)


@lru_cache(maxsize=256)
def _planned(root: UOp, leaves: tuple[UOp, ...], level: Level) -> _Program:
    """What is known of a kernel before it runs, once per kernel."""
    kernel = structure(root, frozenset(leaves).__contains__)
    block = launched(kernel).block
    found = plan(kernel, block, _KNOWN, level)
    static = fold(found.layout, block, found.sequential, found.memories)
    steps: dict[Block, list[Step]] = {}
    for b in found.layout.blocks.values():
        steps[b] = [
            (None if isinstance(item, Loop) else ACTIONS[item.op], item, guards)
            for item, guards in zip(b.items, b.guards)
            if isinstance(item, Loop) or not (item in static.cells or item in found.skipped)
        ]
    lent = [(u, found.memories.get(u), NUMPY[u.dtype], static.cells.get(u)) for u in leaves if u.dtype is not dt.void]
    return _Program(found, static, steps, _straight(found, static, steps), lent)


def _straight(found: Plan, static: Static, steps: Mapping[Block, Sequence[Step]]) -> list[Placed] | None:
    """The steps of a kernel whose loops all become axes of known extents, without an If; None if there is another loop or an If."""
    bounds = static.bounds
    if found.layout.guards or found.sequential or any(bounds.get(r, 0) <= 0 for r in found.layout.loops):
        return None
    line: list[Placed] = []
    stack: list[tuple[list[int], Step]] = [([], step) for step in reversed(steps[found.block])]
    inside: dict[UOp, tuple[list[int], int]] = {}
    while stack:
        extents, (action, item, _) = stack.pop()
        if action is not None:
            line.append((extents, math.prod(extents), action, item))
            continue
        within_loop, closer = [*extents, bounds[item.range]], item.closer
        if closer.op is Op.REDUCE:
            base = inside[closer][1] if not item.outermost else len(extents)
            inside[closer] = within_loop, base
            if item.outermost:
                stack.append((extents, (_summed(found.fused.get(closer), inside, base), closer, ())))
        stack += [(within_loop, step) for step in reversed(steps[item.block])]
    return line


def _summed(product: UOp | None, inside: Mapping[UOp, tuple[list[int], int]], base: int) -> Action:
    """What gives a Reduce over axes its value, in the axes around it."""

    def action(m: Machine, closer: UOp, live: Array | None) -> Value:
        around = m.extents
        m.extents = inside[closer][0]
        part = m.part(closer, product, base)
        m.extents = around
        return part

    return action


class Machine:
    """One run. `cells` holds the value of every node that has one; `extents` are those of the axes around the present block."""

    def __init__(self, program: _Program, operands: Operands, check: bool) -> None:
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
            mask = aligned(self.cells[g], 0, 0, depth)
            live = mask if live is None else np.logical_and(aligned(live, 0, 0, depth), mask)
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
            self.cells[u] = ACTIONS[u.op](self, u, None)
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
            return contracted(self, closer, product, base)
        return folded(self, closer, self.value(closer.src[0], len(closer.shape)), base)

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
            return aligned(c, own, rank, depth)
        if c.__class__ is not Affine:
            raise GiveUp("a reference, or nothing, that is used as a value")
        if u.dtype is dt.index:
            a = c.values(self.extents)
        else:
            d = NUMPY[u.dtype]
            a = np.array(c.lo, d) if c.lo == c.hi else c.values(self.extents).astype(d)
        return aligned(a, 0, rank, depth)

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
