"""The evaluation of a graph of the bestiary: nodes in dependency order, each in its frame, with an explicit stack per frame.

Everything that may meet a barrier on its way is a generator of `lanes.Run`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from uops.interp.bestiary.frame import Cell, Frame, Lane, Scope
from uops.interp.bestiary.lanes import Run, order, together, workgroup
from uops.interp.bestiary.memory import Memory, Pointers, Ref, read, write
from uops.interp.bestiary.plan import ABSORBED, KINDS, Kind, Level, Plan
from uops.interp.tensor.checks import check_value, unsound
from uops.interp.tensor.memory import describe
from uops.interp.tensor.storage import Array
from uops.spec.errors import Crash, SpecError, UopsError
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

#: Called with a node and its value (None for a void node) for every evaluation of a node.
Trace = Callable[[UOp, Any], None]
#: (the evaluation under way) -> a value, a cell, or a generator of one.
Action = Callable[["Step"], Any]
#: What must have cells before a node is evaluated, and where.
Needs = Callable[["Machine", Frame, UOp], Iterable[tuple[Frame, UOp]]]
#: Names of SPECIALs that number workgroups begin so; all others number lanes (R125).
GROUP_NAMES = ("gidx", "blockIdx", "tidx", "threadpool")
#: What an ill-formed node makes Python raise.
_PYTHON_ERRORS = (KeyError, IndexError, TypeError, ValueError, AttributeError, ZeroDivisionError)


class Machine:
    """One run. `memories` are those that outlive a workgroup, by key or node; `actions` and `needs` say what each op does."""

    def __init__(
        self,
        inputs: Mapping[str, Any],
        check: bool,
        schedule: int | None,
        trace: Trace | None,
        actions: Mapping[Op, Action],
        needs: Mapping[Op, Needs],
    ) -> None:
        self.inputs = inputs
        self.check = check
        self.schedule = schedule
        self.trace = trace
        self.memories: dict[Any, Memory] = {}
        self.plans: dict[UOp, Plan] = {}
        self.bound: dict[UOp, UOp] = {}
        self.clock = 0
        self.actions = actions
        self.needs = needs

    def plan(self, root: UOp) -> Plan:
        found = self.plans.get(root)
        if found is None:
            found = self.plans[root] = Plan(root, self.bound)
        return found

    def event(self) -> int:
        """A new access, as the set of it alone."""
        self.clock += 1
        return 1 << (self.clock - 1)

    # ---------------------------------------------------------------------------------------------------------- evaluation

    def evaluate(self, frame: Frame, *nodes: UOp) -> Run:
        """Give each of `nodes` a cell."""
        stack = [(frame, u) for u in reversed(nodes)]
        while stack:
            at, u = stack[-1]
            if at.find(u) is not None:
                stack.pop()
                continue
            home = at.home(u)
            missing = [(f, s) for f, s in self.sources(home, u) if f.find(s) is None]
            if missing:
                stack += reversed(missing)
                continue
            yield from self.compute(home, u)
            stack.pop()

    def sources(self, frame: Frame, u: UOp) -> Iterable[tuple[Frame, UOp]]:
        find = self.needs.get(u.op)
        if find is not None:
            return find(self, frame, u)
        return [(frame, s) for s in frame.scope.plan.operands(u)]

    def compute(self, frame: Frame, u: UOp) -> Run:
        """Evaluate `u`, whose sources have cells, and put its cell into the frame."""
        action = self.actions.get(u.op)
        if action is None:
            raise SpecError(f"{u.op.name} is not in the BESTIARY dialect")
        step = Step(self, frame, u)
        try:
            value = action(step)
            if isinstance(value, Generator):
                value = yield from value
            cell = value if isinstance(value, Cell) else Cell(self._checked(frame, u, value), step.before, frame)
        except _PYTHON_ERRORS as e:
            raise _explained(u, e) from e
        frame.cells[u] = cell
        frame.note(cell.before)
        self.met(u, cell.value)
        for data in u.src:
            if data.op in ABSORBED or data.op is Op.STACK:  # read by this node
                self.met(data, None)

    def met(self, u: UOp, value: Any) -> None:
        if self.trace is not None:
            self.trace(u, value)

    def _checked(self, frame: Frame, u: UOp, value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, (Ref, Pointers)):
            wanted = self.shape(frame, u)
            if self.check and value.shape != wanted:
                unsound(u, "shape", wanted, value.shape)
            return value
        array = np.asarray(value)
        if self.check:
            check_value(u, array, self, frame)
        return array

    def force(self, frame: Frame, u: UOp) -> Cell:
        """The cell of a node that no lane waits for."""
        for request in self.evaluate(frame, u):
            raise Crash(f"{describe(request.node)} below a size")
        cell = frame.find(u)
        assert cell is not None
        return cell

    def shape(self, frame: Frame, u: UOp) -> tuple[int, ...]:
        """The derived shape, its symbolic extents evaluated (R48)."""
        return tuple(int(self.read(self.force(frame, n), n)) if isinstance(n, UOp) else int(n) for n in u.shape)

    def read(self, cell: Cell, u: UOp) -> Array:
        """The value of the cell of `u`; of a reference by its implicit Load, which happens once (R51)."""
        if isinstance(cell.value, np.ndarray):
            return cell.value
        if not isinstance(cell.value, Ref):
            raise SpecError(f"{describe(u)} is used as a value")
        if cell.loaded is None:
            cell.event = self.event()
            memory = self.memory(cell.frame, cell.value)
            cell.loaded = read(u, memory, cell.value, cell.value.gate, cell.event, cell.before)
            cell.frame.note(cell.event)
            if self.check:
                check_value(u, cell.loaded, self, cell.frame)
        return cell.loaded

    def memory(self, frame: Frame, ref: Ref) -> Memory:
        return ref.memory if isinstance(ref.memory, Memory) else frame.memory(ref.memory)

    # --------------------------------------------------------------------------------------------------------------- loops

    def loops(self, frame: Frame, levels: Sequence[Level], leaf: Callable[[Frame], Run]) -> Run:
        """Run `leaf` in the frame of every iteration of a nest of loops."""
        if not levels:
            yield from leaf(frame)
            return
        level, inner = levels[0], levels[1:]
        r = level.range
        yield from self.evaluate(frame, r.src[0], *level.invariant)
        bound = frame.find(r.src[0])
        assert bound is not None
        n = max(0, int(self.read(bound, r.src[0])))
        kind, base = KINDS[r.arg.type], frame.base
        if kind is Kind.GROUPS and frame.is_lane():
            raise SpecError(f"axis {r.arg.axis_id} numbers workgroups inside of a loop of lanes (R60)")
        turns = order(n, None if kind is Kind.ORDERED else self.schedule, r.arg.axis_id)
        if kind is Kind.LANES:
            lanes = [self.loops(frame.inside(r, k, base), inner, leaf) for k in range(n)]
            yield from together(lanes, r.arg.type is AxisType.WARP, turns)
            return
        for k in turns:
            iteration = frame.inside(r, k, base)
            if kind is Kind.GROUPS:
                workgroup(self.loops(iteration, inner, leaf))
            else:
                yield from self.loops(iteration, inner, leaf)
            if kind is Kind.ORDERED:
                base |= iteration.events

    # -------------------------------------------------------------------------------------------------------------- launch

    def launch(self, scope: Scope, base: int, around: Lane, leaf: Callable[[Frame], Run]) -> list[Frame]:
        """Run `leaf` in the outermost frame of every lane of the scope's launch; gives these frames."""
        dims = self._dimensions(scope, base)
        if not dims:
            frame = Frame(scope, Lane(dict(around.position)), base)
            workgroup(leaf(frame))
            return [frame]
        groups, lanes = ([d for d in dims if is_group(d) is wanted] for wanted in (True, False))
        found: list[Frame] = []
        every = _positions({d: dims[d] for d in groups})
        for g in order(len(every), self.schedule, "groups"):
            shared: dict[Any, Memory] = {}
            within = _positions({d: dims[d] for d in lanes})
            frames = [Frame(scope, Lane(around.position | every[g] | p, shared), base) for p in within]
            turns = order(len(frames), self.schedule, "lanes")
            workgroup(together([leaf(f) for f in frames], False, turns))
            found += frames
        return found

    def _dimensions(self, scope: Scope, base: int) -> dict[str, int]:
        """The SPECIALs of the body and its Functions: name -> extent."""
        found: dict[str, int] = {}
        frame = Frame(scope, Lane(), base)
        for u in toposort(scope.plan.root, gate=lambda n: n.op is not Op.CALL):
            if u.op is Op.SPECIAL:
                extent = max(0, int(self.read(self.force(frame, u.src[0]), u.src[0])))
                if found.setdefault(u.arg.name, extent) != extent:
                    raise SpecError(f"Special {u.arg.name!r} has two extents: {found[u.arg.name]} and {extent} (R62)")
        return found


def is_group(name: str) -> bool:
    """Whether a dimension of the launch numbers workgroups (R125)."""
    return name.startswith(GROUP_NAMES)


def _positions(dims: Mapping[str, int]) -> list[dict[str, int]]:
    """Every combination of indices; the first name runs fastest."""
    found: list[dict[str, int]] = [{}]
    for name in sorted(dims, key=_natural):
        found = [p | {name: k} for k in range(dims[name]) for p in found]
    return found


def _natural(name: str) -> list[tuple[int, str]]:
    """A key that puts lidx2 before lidx10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


class Step:
    """The evaluation of one node: `before` collects the events that happen before its end."""

    __slots__ = ("before", "frame", "machine", "node")

    def __init__(self, machine: Machine, frame: Frame, node: UOp) -> None:
        self.machine = machine
        self.frame = frame
        self.node = node
        self.before = frame.base
        for f, s in machine.sources(frame, node):
            cell = f.find(s)
            assert cell is not None
            self.before |= cell.before

    def cell(self, u: UOp, frame: Frame | None = None) -> Cell:
        """The cell of a source, after which this node happens."""
        found = (frame or self.frame).find(u)
        if found is None:
            raise Crash(f"{describe(u)} was not evaluated before {describe(self.node)}")
        self.before |= found.before
        return found

    def value(self, u: UOp, frame: Frame | None = None) -> Array:
        """The value of a source; reading a reference happens before this node's end."""
        cell = self.cell(u, frame)
        array = self.machine.read(cell, u)
        self.before |= cell.event
        return array

    def values(self, nodes: Iterable[UOp]) -> list[Array]:
        return [self.value(u) for u in nodes]

    def reference(self, u: UOp, frame: Frame | None = None) -> Ref:
        found = self.cell(u, frame).value
        if not isinstance(found, Ref):
            raise SpecError(f"{describe(u)} is no reference: a Buffer, a Param or an injective view (R51)")
        return found

    def load(self, ref: Ref, live: Array | None) -> Array:
        event = self.machine.event()
        found = read(self.node, self.machine.memory(self.frame, ref), ref, live, event, self.before)
        self.frame.note(event)
        self.before |= event
        return found

    def store(self, u: UOp, frame: Frame, ref: Ref, value: Array, live: Array | None, before: int) -> int:
        """One write by `u` in `frame`; gives its event."""
        _check_written(ref)
        event = self.machine.event()
        write(u, self.machine.memory(frame, ref), ref, value, live, event, before)
        frame.note(event)
        return event

    def loops(self, body: Sequence[UOp], ranges: Sequence[UOp], leaf: Callable[[Frame], Run]) -> Run:
        """Run `leaf` in every iteration of the loops of `ranges` around `body`."""
        levels = self.frame.scope.plan.levels(body, ranges)
        yield from self.machine.loops(self.frame, levels, leaf)


def _check_written(ref: Ref) -> None:
    """R63: a Call that declares what it writes writes nothing else."""
    for scope, slot in ref.slots:
        declared = scope.call.arg.written if scope.call.arg is not None else None
        if declared is not None and slot not in declared:
            raise SpecError(f"the Call writes argument {slot}, but declares {declared} (R63)")


def _explained(u: UOp, e: Exception) -> Exception:
    """What a Python error while evaluating `u` means: an ill-formed node where deriving its properties says so."""
    try:
        _ = u.dtype, u.shape, u.min_max
    except UopsError as found:
        return found
    return Crash(f"{describe(u)} cannot be evaluated: {type(e).__name__}: {e}")
