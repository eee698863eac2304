"""The per-lane machine: the definition of what a kernel means.

It runs a kernel one node at a time, one iteration after the other. Iterations of GLOBAL and THREAD loops number workgroups;
iterations of LOCAL, WARP and GROUP_REDUCE loops are lanes of one workgroup, each a generator that pauses where lanes meet: at a
Barrier (R60), at a Wmma, and where it waits for lanes of a loop inside of its own. LOOP and REDUCE run in order; all others in
index order, or, with a schedule, in an order drawn from that seed, which also says how lanes take turns (R57).

A node has one value per iteration of the loops around it. Takes a Kernel without Specials (`launch`), and per leaf an array or a
Space, which it changes. Raises Trap, with the places of both sides of a race; SpecError for an ill-formed kernel; Unsound where a
value contradicts what the specification derives.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uops.interp.kernel.call.effects import item_size, survey
from uops.interp.kernel.lane_machine.access import Memory, Placed
from uops.interp.kernel.lane_machine.lane import Lane, Step
from uops.interp.kernel.lane_machine.memory import Address, Space, Window, space
from uops.interp.kernel.lane_machine.workgroup import Arrival, Fork, Team
from uops.interp.kernel.structure.blocks import GROUPS, LANES, Block, Kernel, Loop
from uops.interp.kernel.structure.order import Order, Stamp
from uops.interp.ops.elementwise import kernel_of
from uops.interp.ops.reduce import FOLDS
from uops.interp.ops.rounding import CASTS
from uops.interp.tensor.checks import check_value
from uops.interp.tensor.memory import describe
from uops.interp.tensor.storage import NUMPY, Array, constant, settle
from uops.spec.errors import Crash, SpecError, Trap, Unsupported, UopsError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.untrusted import quote_name

_ndarray = np.ndarray
_PYTHON_ERRORS = (KeyError, IndexError, TypeError, ValueError, AttributeError, ZeroDivisionError)
#: In place of the value of a node that an If kept from running.
SKIPPED: Any = object()
Run = Generator[Any, Any, None]
#: A leaf's value, its memory, or its part of a memory.
Operand = Array | Space | Window


def _not_yet(k: int) -> str:
    """Why an element of LOCAL memory holds nothing: in another order of lanes the same fault is a race."""
    return "was never written (R61) before: what other lanes store can be read from a Barrier on (R60)"


def _space(given: Operand) -> Space:
    assert isinstance(given, Space | Window)
    return given if isinstance(given, Space) else given.space


@dataclass(slots=True)
class _Item:
    """An item made ready to run: `slot` is where its value goes, `guards` are the slots of the Ifs around it."""

    node: UOp | Loop
    slot: int
    guards: tuple[int, ...]
    step: Step | None
    loop: Loop | None
    meets: bool


class Machine:
    """One run of one kernel; `make_step(machine, node)` says how to evaluate a node in a lane."""

    def __init__(
        self, kernel: Kernel, operands: Mapping[UOp, Operand], make_step: MakeStep, check: bool, schedule: int | None
    ) -> None:
        self.kernel = kernel
        self.make_step = make_step
        self.check = check
        self.schedule = schedule
        self.order = Order(kernel.block)
        self.slots: dict[UOp, int] = {}
        self.nodes: list[UOp] = []  # by slot
        self.start: list[Any] = []
        self.memories: dict[int, Memory] = {}
        self.private: dict[tuple[UOp, tuple[int, ...]], Memory] = {}  # LOCAL and REG
        self.rng = None if schedule is None else random.Random(schedule)
        self.code: dict[Block, list[_Item]] = {}
        self.survey = survey(kernel)
        self._compile()
        self._supply(operands)

    # Before the run

    def _compile(self) -> None:
        blocks = [self.kernel.block]
        for block in blocks:
            blocks += [x.block for x in block.items if isinstance(x, Loop)]
            self.code[block] = [self._item(block, k) for k in range(len(block.items))]

    def _supply(self, operands: Mapping[UOp, Operand]) -> None:
        """The values and memories of the leaves; sizes of memories may depend on values."""
        spaces: dict[int, list[UOp]] = {}
        for u, given in operands.items():
            if isinstance(given, Space | Window):
                spaces.setdefault(id(_space(given)), []).append(u)
            else:
                self._put(u, given)
        for number, leaves in spaces.items():
            grain = min(self.survey.grain.get(u, 8) for u in leaves)
            changes = any(u in self.survey.changed for u in leaves)
            memory = self.memories[number] = Memory(_space(operands[leaves[0]]), self.order, grain, changes)
            for u in leaves:
                given = operands[u]
                self._put(u, self._part(u, memory, given) if isinstance(given, Window) else self._whole(u, memory))

    def slot(self, u: UOp) -> int:
        found = self.slots.get(u)
        if found is None:
            found = self.slots[u] = len(self.start)
            self.start.append(None)
            self.nodes.append(u)
            if u.op is Op.CONST:
                self.start[found] = constant(u.arg.value, u.arg.dtype)
        return found

    def _put(self, u: UOp, value: Any) -> None:
        self.start[self.slot(u)] = value

    def _item(self, block: Block, k: int) -> _Item:
        x = block.items[k]
        guards = tuple(self.slot(g) for g in block.guards[k])
        if isinstance(x, Loop):
            self.slot(x.range)
            self.slot(x.range.src[0])
            if x.closer.op is Op.REDUCE:
                self.slot(x.closer.src[0])
            return _Item(x, self.slot(x.closer), guards, None, x, False)
        return _Item(x, self.slot(x), guards, self.make_step(self, x), None, x.op in (Op.BARRIER, Op.WMMA))

    def _whole(self, u: UOp, memory: Memory) -> Address:
        """All elements in the shape of `u`; a Param of a kernel may have one that its argument has not (R86)."""
        size = item_size(u)
        return Address(memory, None, self.shape(Lane(self.start), u), size)

    def _part(self, u: UOp, memory: Memory, given: Window) -> Address:
        shape = self.shape(Lane(self.start), u)
        return Address(memory, given.at.reshape(shape), shape, item_size(u))

    # The run

    def run(self) -> Array | None:
        """Run everything; gives the value of the root, None where it has none."""
        lane = Lane(self.start)
        try:
            for request in self.block(self.kernel.block, lane):
                raise Crash(f"{request} outside of all lanes")
        except RecursionError:
            raise Unsupported("loops nested as deep as these", "interp") from None
        finally:
            for memory in self.memories.values():
                memory.close()
        root = self.kernel.root
        return None if root.dtype is dt.void else self.value(lane, self.slots[root], (0,))

    def block(self, block: Block, lane: Lane) -> Run:
        """Run the items of a block."""
        values, prefix = lane.values, lane.prefix
        for k, item in enumerate(self.code[block]):
            try:
                if item.guards and not all(values[g] is not SKIPPED and values[g] for g in item.guards):
                    values[item.slot] = SKIPPED
                elif item.loop is not None:
                    yield from self._loop(item, item.loop, lane, (*prefix, k))
                elif item.meets:
                    yield from self._meet(item, lane, (*prefix, k))
                else:
                    assert item.step is not None
                    values[item.slot] = item.step(lane, (*prefix, k))
            except _PYTHON_ERRORS as e:
                raise self._explained(item, lane, e) from e
            except Trap as e:
                if isinstance(e, Placed):
                    raise
                raise self._placed(e, lane, (*prefix, k)) from e

    def _loop(self, item: _Item, loop: Loop, lane: Lane, stamp: Stamp) -> Run:
        values, closer = lane.values, loop.closer
        reduces = closer.op is Op.REDUCE
        if reduces and loop.outermost:
            values[item.slot] = []
        n = self._bound(loop.range, lane, stamp)
        if loop.type in LANES:
            yield from self._fork(loop, lane, stamp, n)
        else:
            yield from self._repeat(loop, lane, stamp, n)
        if loop.outermost:
            values[item.slot] = self._folded(closer, values[item.slot], lane) if reduces else None

    def _repeat(self, loop: Loop, lane: Lane, stamp: Stamp, n: int) -> Run:
        """The iterations of a loop in one lane; those of workgroups each have memory of their own (R128)."""
        prefix, key, group = lane.prefix, lane.key, lane.group
        numbers, into = loop.type in GROUPS, self.slots[loop.range]
        if numbers and lane.team is not None:
            raise SpecError(f"axis {loop.range.arg.axis_id} numbers workgroups inside of a loop of lanes (R128)")
        for i in self._iterations(loop, n):
            lane.prefix = (*stamp, i)
            lane.values[into] = self._counter(loop.range, i, lane)
            if numbers:
                lane.key, lane.group = (*key, into, i), (*group, into, i)
            yield from self.block(loop.block, lane)
            if loop.innermost and loop.closer.op is Op.REDUCE:
                self._collect(self.slots[loop.closer], loop.closer, lane)
            if numbers and self._over(stamp):
                self.private.clear()
        lane.prefix, lane.key, lane.group = prefix, key, group

    def _over(self, stamp: Stamp) -> bool:
        """Whether a workgroup that ended does not come again: no loop of another kind is around it."""
        return not self.private or all(isinstance(x, Loop) and x.type in GROUPS for x, _ in self.order.steps(stamp))

    def _bound(self, r: UOp, lane: Lane, stamp: Stamp) -> int:
        """A Special's bound stands outside of all lanes, whose loops are around everything."""
        bound = r.src[0]
        return self.integer(lane, bound) if r.op is Op.SPECIAL else int(self.value(lane, self.slots[bound], stamp))

    def _iterations(self, loop: Loop, n: int) -> Sequence[int]:
        """Every lane takes the iterations of a loop in the same order."""
        if self.schedule is None or loop.ordered or n < 2:
            return range(max(0, n))
        order = list(range(n))
        random.Random(self.schedule * 1_000_003 + self.slots[loop.range] * 8191 + n).shuffle(order)
        return order

    def _counter(self, r: UOp, i: int, lane: Lane) -> Array:
        value = np.array(i, np.int64 if r.dtype is dt.index else NUMPY[r.dtype])
        if self.check:
            check_value(r, value, self, lane)
        return value

    def _collect(self, slot: int, closer: UOp, lane: Lane) -> None:
        operand = self.value(lane, self.slots[closer.src[0]], lane.prefix)
        lane.values[slot].append((lane.prefix, operand))

    def _folded(self, u: UOp, collected: list[tuple[Stamp, Array]], lane: Lane) -> Array:
        """A multiset, folded in index order, so that a schedule changes nothing (R32, R57)."""
        terms = [v for _, v in sorted(collected, key=lambda pair: pair[0])]
        d = u.dtype
        if terms:
            together = settle(np.array([v.tolist() for v in terms], object)) if d is dt.index else np.stack(terms)
        else:
            together = np.empty((0, *self.shape(lane, u)), NUMPY[d])
        return self.finished(u, FOLDS[u.arg.op][d](together, (0,))[0], lane)

    # Lanes

    def _fork(self, loop: Loop, lane: Lane, stamp: Stamp, n: int) -> Run:
        """The iterations of a lane loop: threads of one team, which is made by the outermost such loop."""
        team = lane.team or Team(self.order, self.rng)
        into, children = self.slots[loop.range], []
        for i in self._iterations(loop, n):
            child = Lane(lane.values.copy(), (*stamp, i), (*lane.key, into, i), lane.group, team, (*lane.dims, (loop.range, i, n)))
            child.values[into] = self._counter(loop.range, i, child)
            children.append((child, self._thread(loop, child)))
        if lane.team is None:
            self.order.barriers.clear()
            team.run(children)
        else:
            yield Fork(children)

    def _thread(self, loop: Loop, lane: Lane) -> Run:
        yield from self.block(loop.block, lane)
        if loop.closer.op is Op.REDUCE and loop.innermost:
            self._collect(self.slots[loop.closer], loop.closer, lane)

    def _meet(self, item: _Item, lane: Lane, stamp: Stamp) -> Run:
        assert isinstance(item.node, UOp)
        if item.node.op is Op.BARRIER:
            if lane.team is not None:
                yield Arrival(item.node, stamp, lane, None)
            return
        assert item.step is not None
        part = item.step(lane, stamp)
        if lane.team is None or item.node.arg.threads == 1:
            found = self.wmma(item.node, [part], stamp)[0]
        else:
            found = yield Arrival(item.node, stamp, lane, part, self.wmma)
        lane.values[item.slot] = self.finished(item.node, found, lane)

    def wmma(self, u: UOp, parts: Sequence[tuple[Array, Array, Array]], stamp: Stamp) -> list[Array]:
        """The lanes of a warp multiply together."""
        from uops.interp.ops.wmma import multiply
        from uops.spec.wmma import find

        descriptor = find(u.arg)
        if descriptor is None:
            raise Trap(f"Opaque({quote_name(u.arg.name)}): a Wmma that no descriptor explains (R93)")
        if len(parts) != u.arg.threads:
            raise Placed(f"{self.order.describe(stamp)} needs {u.arg.threads} lanes, got {len(parts)} (R93)")
        a, b, c = (np.stack([p[k] for p in parts]) for k in range(3))
        return list(multiply(descriptor, a, b, c))

    # Values and memory

    def value(self, lane: Lane, slot: int, stamp: Stamp) -> Array:
        """The value of a node; of a reference by an implicit Load, here and now (R51)."""
        v = lane.values[slot]
        if v.__class__ is _ndarray:
            found: Array = v
            return found
        return self._implicit(v, lane, slot, stamp)

    def _implicit(self, v: Any, lane: Lane, slot: int, stamp: Stamp) -> Array:
        u = self.nodes[slot]
        if v.__class__ is Address:
            return self.load(v, NUMPY[u.dtype], lane, stamp)
        if v is SKIPPED:
            raise SpecError(f"{describe(u)} is used outside of the If that it stands in (R114)")
        raise SpecError(f"{describe(u)} has no value here")

    def memory(self, a: Address, lane: Lane) -> Memory:
        """The memory of an address: of a LOCAL Buffer the workgroup's, of a REG Buffer the lane's (R61)."""
        if a.home.__class__ is Memory:
            given: Memory = a.home
            return given
        u: UOp = a.home
        local = u.arg.addrspace is AddrSpace.LOCAL
        key = u, (lane.group if local else lane.key)
        found = self.private.get(key)
        if found is None:
            data = np.zeros(u.arg.size, NUMPY[u.dtype])
            made = space(f"{u.arg.addrspace.value} buffer {u.arg.unique}", data, np.zeros(u.arg.size, bool))
            made.lost = _not_yet if local else None
            found = self.private[key] = Memory(made, self.order, self.survey.grain.get(u, 8), True)
        return found

    def load(self, a: Address, kind: np.dtype[Any], lane: Lane, stamp: Stamp) -> Array:
        memory = self.memory(a, lane)
        if a.at.__class__ is int:
            self.inside(a, memory, a.at, stamp)
            return memory.load(a.at, kind, stamp)
        at = a.positions()
        out = np.empty(at.shape, kind)
        flat = out.reshape(-1)
        for k, p in enumerate(at.ravel().tolist()):
            self.inside(a, memory, p, stamp)
            flat[k] = memory.load(p, kind, stamp)
        return out

    def inside(self, a: Address, memory: Memory, at: Any, stamp: Stamp) -> None:
        if at < 0:
            i, n = a.outside or (None, None)
            what = f"index {i} is outside of {n} elements of" if i is not None else "an index is outside of"
            raise Placed(f"{self.order.describe(stamp)}: {what} {memory.space.name} (R45)")

    def shape(self, lane: Any, u: UOp) -> tuple[int, ...]:
        """The derived shape, its symbolic extents evaluated (R48)."""
        return tuple(int(n) if isinstance(n, int) else self.integer(lane, n) for n in u.shape)

    def integer(self, lane: Lane, u: UOp) -> int:
        """An index expression over what has a value here."""
        known: dict[UOp, Any] = {}

        def has(n: UOp) -> bool:
            slot = self.slots.get(n)
            return slot is not None and lane.values[slot].__class__ is _ndarray

        for n in toposort(u, gate=lambda n: not has(n)):
            if has(n):
                known[n] = lane.values[self.slots[n]]
            elif n.op is Op.CONST:
                known[n] = constant(n.arg.value, n.arg.dtype)
            else:
                known[n] = _evaluate_pure(n, [known[s] for s in n.src])
        return int(known[u])

    def finished(self, u: UOp, v: Any, lane: Lane) -> Array:
        """A computed value as an array, checked."""
        if v.__class__ is not _ndarray:
            v = np.asarray(v, None if u.dtype is dt.index else NUMPY[u.dtype])
        if self.check:
            check_value(u, v, self, lane)
        found: Array = v
        return found

    # Faults

    def _placed(self, e: Trap, lane: Lane, stamp: Stamp) -> Trap:
        return Placed(f"{e}, at {self.order.describe(stamp)}")

    def _explained(self, item: _Item, lane: Lane, e: Exception) -> UopsError:
        """What a Python error means: an ill-formed node where deriving its properties says so."""
        u = item.node if isinstance(item.node, UOp) else item.node.closer
        try:
            sources = [(s.dtype, s.shape) for s in u.src]
            _ = u.dtype, u.shape, u.min_max
        except UopsError as found:
            return found
        if any(self.slots.get(s) is not None and lane.values[self.slots[s]] is SKIPPED for s in u.src):
            return SpecError(f"{describe(u)} uses a value of an If that did not run (R114)")
        return Crash(f"{describe(u)} cannot be evaluated on {sources}: {type(e).__name__}: {e}")


def _evaluate_pure(u: UOp, sources: Sequence[Array]) -> Array:
    """The value of an elementwise node on values."""
    if u.op is Op.CAST:
        return CASTS[u.src[0].dtype, u.arg.dtype](sources[0])
    return np.asarray(kernel_of(u.op, u.src)(*sources))


#: How to evaluate a node in a lane; `uops.interp.kernel.lane_machine.actions` is the table.
MakeStep = Callable[[Machine, UOp], Step]
