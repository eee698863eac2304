"""Beam search for a kernel's schedule, by timing.

A *state* is where a schedule starts - the kernel's own loops (`plain`), its loops with walks through memory joined (`joined`), or
what the hand-written choice made of them (`chosen`) - and the OptOps done since. Each step times every state that one more OptOp,
or a Padto and one, makes of the best `width` states, and goes on with the best `width` of those; it ends when a step improves
nothing, at a depth, or when the time is over. States that give one body are timed once, and of equal times the earlier state
counts, so that with the same times the result is the same.

What a schedule costs is not known here: `clock` says so, by running it. A winner is timed once more beside what the hand-written
choice made, and has to win again: a busy machine spoils single timings. Whatever is chosen is legal, so a search decides how long a
kernel takes and never what it computes. The best state so far is stored as soon as it is found; Ctrl-C ends all searches of one
compilation and keeps what they found.
"""

from __future__ import annotations

import itertools
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

from uops.compiler.passes.optimize.schedule.accesses import merged
from uops.compiler.passes.optimize.schedule.group import grouped
from uops.compiler.passes.optimize.schedule.optops import apply, greatest, reason_against
from uops.compiler.passes.optimize.schedule.schedule import Rejected, Schedule, sink, typed
from uops.compiler.passes.optimize.search.store import Found, Store
from uops.compiler.target import Machine
from uops.spec.errors import CompileError, Unsupported
from uops.spec.ir.axes import AXIS_TABLE, AxisType, Direction
from uops.spec.ir.node import UOp
from uops.spec.optops import TC, TILED, WORKGROUP, Axis, OptOp, Padto, Split, Swap

Choose = Callable[[Schedule, Machine, Iterator[int]], Schedule]


class Clock(Protocol):
    """Times scheduled bodies. Raises CompileError or Unsupported where there is no such kernel."""

    def __call__(self, body: UOp, best: float) -> float:
        """Seconds of a run; of no interest beyond some times `best`."""
        ...

    def again(self, body: UOp) -> float:
        """Seconds of a run, timed anew."""
        ...


STARTS = ("chosen", "joined", "plain")
#: Steps of a search, at most; what a step must gain to go on.
DEPTH, GAIN = 8, 0.98
#: Timings of the winner, in turns with the hand-written choice.
ROUNDS = 3
#: Factors of Splits by the type that they make; others are not tried.
# fmt: off
FACTORS: dict[AxisType, tuple[int, ...]] = {
    AxisType.UPCAST:       (2, 3, 4, 6, 8, 12, 16, 32, 64),
    AxisType.UNROLL:       (2, 4, 8, 16, 32, 64),
    AxisType.LOCAL:        (4, 8, 16, 32, 64, 128, 256),
    AxisType.GROUP_REDUCE: (8, 16, 32, 64, 256),
    AxisType.LOOP:         (8, 32, 128),
    AxisType.GLOBAL:       (8, 32),
    AxisType.REDUCE:       (8, 32, 128, 512),
}
# fmt: on
#: Elements side by side in one kernel, at most, in registers of the machine (or in values, where it has no vectors).
_UNROLLED_REGISTERS, _UNROLLED_VALUES = 64, 64
_SIDE_BY_SIDE = frozenset({AxisType.UPCAST, AxisType.UNROLL})
#: Added iterations up to which an axis is padded.
_MOST_ADDED = 1.25


@dataclass(frozen=True, slots=True)
class State:
    """Where a schedule starts, and the OptOps since."""

    start: str
    opts: tuple[OptOp, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """What a search says while it runs: the kernel, states timed (0: an earlier search knew), seconds of the hand-written choice
    and of the best state. `stopped`: Ctrl-C ended it."""

    kernel: str
    timed: int
    first: float
    best: float
    state: State
    done: bool = False
    stopped: bool = False


_listener: ContextVar[Callable[[Progress], None] | None] = ContextVar("uops.compiler.passes.optimize.search.beam", default=None)


def listener() -> Callable[[Progress], None] | None:
    """Who hears the searches that are begun here."""
    return _listener.get()


@contextmanager
def listening(tell: Callable[[Progress], None]) -> Iterator[None]:
    """Hear the progress of searches inside."""
    token = _listener.set(tell)
    try:
        yield
    finally:
        _listener.reset(token)


@dataclass(slots=True)
class Beam:
    """The searches of one compilation. `seconds` is the time that one kernel may take; `tell` hears progress."""

    width: int
    clock: Clock
    store: Store
    choose: Choose
    seconds: float = 10.0
    tell: Callable[[Progress], None] | None = None
    now: Callable[[], float] = time.monotonic
    stopped: bool = field(default=False)

    def __call__(self, s: Schedule, machine: Machine, uniques: Iterator[int]) -> Schedule:
        """The best schedule found for a kernel, as `passes.optimize` asks for one."""
        return _Search(self, s, machine, uniques).run()


class _Search:
    """The search for one kernel."""

    def __init__(self, beam: Beam, s: Schedule, machine: Machine, uniques: Iterator[int]) -> None:
        self.beam, self.machine, self.kernel = beam, machine, s
        self.starts = {
            "chosen": beam.choose(s, machine, uniques),
            "joined": _parallel(merged(s), machine),
            "plain": _parallel(s, machine),
        }
        self.free = next(uniques)
        self.key = beam.store.key(sink(s), machine, beam.width)
        self.bodies: set[UOp] = set()
        self.timed = 0
        self.first = self.best = math.inf
        self.state = State("chosen")
        self.deadline = beam.now() + beam.seconds
        self.interrupt: Callable[[], None] = lambda: None

    def run(self) -> Schedule:
        known = self._known()
        if known is not None and known.complete:
            self.state, self.best = State(known.start, known.opts), known.seconds
            self._tell(done=True)
            return self.schedule(self.state)
        if self.beam.stopped:
            return self.starts["chosen"]
        complete = True
        try:
            with _waiting_for_ctrl_c() as self.interrupt:
                self._steps(known)
                self._confirm()
        except KeyboardInterrupt:
            self.beam.stopped, complete = True, False
        self._keep(complete)
        self._tell(done=True)
        return self.schedule(self.state)

    def _known(self) -> Found | None:
        """What the store has, if it still applies."""
        found = self.beam.store.get(self.key)
        if found is not None:
            try:
                self.schedule(State(found.start, found.opts))
            except (Rejected, KeyError) as e:
                self.beam.store.warn(self.key, str(e))
                return None
        return found

    def schedule(self, state: State) -> Schedule:
        s = self.starts[state.start]
        for opt in state.opts:
            s = apply(s, opt, self.machine)
        return s

    def body(self, state: State) -> UOp:
        """What is timed."""
        return sink(grouped(self.schedule(state), self.machine, itertools.count(self.free)))

    def _steps(self, known: Found | None) -> None:
        states = [State(start) for start in STARTS]
        if known is not None:
            states.insert(1, State(known.start, known.opts))
        front = self._timed(states)
        for _ in range(DEPTH):
            before = self.best
            front = self._timed(n for _, state in front[: self.beam.width] for n in self._next(state))
            if not front or self.best > GAIN * before:
                return

    def _confirm(self) -> None:
        """Go back to the hand-written choice unless the winner beats it once more, in turns."""
        chosen = State("chosen")
        if self.state == chosen or self.best == math.inf:
            return
        bodies = [self.body(state) for state in (chosen, self.state)]
        theirs, ours = (min(times) for times in zip(*([self.beam.clock.again(b) for b in bodies] for _ in range(ROUNDS))))
        self.first, self.best = theirs, ours
        if ours > GAIN * theirs:
            self.state, self.best = chosen, theirs

    def _timed(self, states: Iterator[State] | Sequence[State]) -> list[tuple[float, State]]:
        """The states that were timed, best first; of equal times the earlier."""
        found: list[tuple[float, int, State]] = []
        for state in states:
            self.interrupt()
            if self.beam.now() > self.deadline:
                break
            body = self.body(state)
            if body in self.bodies:
                continue
            self.bodies.add(body)
            seconds = self._clocked(body)
            found.append((seconds, len(found), state))
            self._note(seconds, state)
        return [(seconds, state) for seconds, _, state in sorted(found, key=lambda f: f[:2]) if seconds < math.inf]

    def _clocked(self, body: UOp) -> float:
        try:
            return self.beam.clock(body, self.best)
        except (CompileError, Unsupported):  # too much stack, or an axis that the target cannot run
            return math.inf

    def _note(self, seconds: float, state: State) -> None:
        self.timed += 1
        if self.timed == 1:
            self.first = seconds
        if seconds < self.best:
            self.best, self.state = seconds, state
            self._keep(complete=False)
        self._tell()

    def _keep(self, complete: bool) -> None:
        if self.best < math.inf:
            self.beam.store.put(self.key, Found(self.state.start, self.state.opts, self.best, complete))

    def _tell(self, done: bool = False) -> None:
        if self.beam.tell is not None:
            self.beam.tell(Progress(self.kernel.name, self.timed, self.first, self.best, self.state, done, self.beam.stopped))

    def _next(self, state: State) -> Iterator[State]:
        s = self.schedule(state)
        for opts in moves(s, self.machine):
            yield State(state.start, (*state.opts, *opts))


@contextmanager
def _waiting_for_ctrl_c() -> Iterator[Callable[[], None]]:
    """Gives what raises KeyboardInterrupt after Ctrl-C, between two timings: raised anywhere else it may be lost, as in a
    finaliser. A second Ctrl-C raises at once."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    before, asked = signal.getsignal(signal.SIGINT), list[int]()

    def handle(number: int, frame: object) -> None:
        asked.append(number)
        if len(asked) > 1:
            raise KeyboardInterrupt

    def check() -> None:
        if asked:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handle)
    try:
        yield check
        check()
    finally:
        signal.signal(signal.SIGINT, before)


def _parallel(s: Schedule, machine: Machine) -> Schedule:
    """The loops that a machine of workgroups runs side by side (R94)."""
    free = [r for r in s.outputs if r.arg.axis_id not in s.fixed]
    return typed(s, dict.fromkeys(free, AxisType.GLOBAL)) if machine.workgroup and free else s


# ----------------------------------------------------------------------------------------------------------------- moves


def moves(s: Schedule, machine: Machine) -> Iterator[tuple[OptOp, ...]]:
    """The OptOps worth trying next: each is legal, alone or after the Padto before it, and keeps the kernel within bounds."""
    axes = s.axes
    yield from _products(s, machine)
    splits = [(target, k, top) for k, a in enumerate(axes) for target, top in _splits(a, machine)]
    for target, factors in FACTORS.items():
        for factor in factors:
            for _, k, top in (x for x in splits if x[0] is target):
                yield from _split(s, axes, k, Split(k, factor, target, top), machine)
    for k, j in itertools.combinations(range(len(axes)), 2):
        if axes[k].type is axes[j].type and axes[k].type not in _SIDE_BY_SIDE:
            yield (Swap(k, j),)


def _products(s: Schedule, machine: Machine) -> Iterator[tuple[OptOp, ...]]:
    """Each tensor core that fits a Reduce, asking for as little padding as it can."""
    if s.done:
        return  # TC comes first (R93)
    reduces = sum(a.type is AxisType.REDUCE for a in s.axes)
    for k, tc in itertools.product(range(reduces), range(len(machine.tensor_cores))):
        found = (TC(k, tc, level) for level in range(3))
        yield from itertools.islice(((opt,) for opt in found if reason_against(s, opt, machine) is None), 1)


def _splits(a: Axis, machine: Machine) -> Iterator[tuple[AxisType, bool]]:
    """(type, top) of the Splits of an axis; lanes only where there are workgroups."""
    for target in FACTORS:
        row = AXIS_TABLE[target]
        if a.type in row.split_from and (machine.workgroup or target not in WORKGROUP):
            yield target, row.direction is Direction.OUTER
        elif a.type is target and target in TILED:
            yield target, False


def _split(s: Schedule, axes: Sequence[Axis], k: int, opt: Split, machine: Machine) -> Iterator[tuple[OptOp, ...]]:
    n = greatest(axes[k].extent)
    if opt.factor > n or not _bearable(s, opt, machine):
        return
    if reason_against(s, opt, machine) is None:
        yield (opt,)
        return
    pad = Padto(k, opt.factor)
    longer = -(-n // opt.factor) * opt.factor
    if n % opt.factor and longer <= _MOST_ADDED * n and reason_against(s, pad, machine) is None:
        padded = apply(s, pad, machine)
        at = next(i for i, a in enumerate(padded.axes) if a.id == axes[k].id)
        split = Split(at, opt.factor, opt.target, opt.top)
        if reason_against(padded, split, machine) is None:
            yield pad, split


def _bearable(s: Schedule, opt: Split, machine: Machine) -> bool:
    """Whether the elements side by side fit the machine's registers, about; how many lanes there may be is a matter of R140."""
    if opt.target not in _SIDE_BY_SIDE:
        return True
    side = opt.factor * math.prod(greatest(a.extent) for a in s.axes if a.type in _SIDE_BY_SIDE)
    return side <= max(_UNROLLED_VALUES, _UNROLLED_REGISTERS * machine.vector_bytes // 4)
