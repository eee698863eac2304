"""Beam search for a kernel's schedule, by timing.

A *state* is a start and the OptOps applied since. The starts are the kernel's own loops (`plain`), these loops flattened
(`joined`), and the heuristics' schedule (`chosen`). Each step extends the best `width` states by one OptOp, or by a Padto and one,
and times all results. The search goes on with the best `width` of them. It ends when a step improves nothing, at a depth, or when
the time is over. States of equal bodies are timed once, and of equal times the earlier state wins, so equal times give equal
results.

`clock` runs a schedule to learn its cost. A winner is timed again beside the heuristics' schedule and has to win once more,
because a busy machine spoils single timings. Every candidate is legal: a search decides how long a kernel takes, never what it
computes. The best state so far is stored as soon as it is found. Ctrl-C ends all searches of one compilation and keeps their
results.
"""

from __future__ import annotations

import itertools
import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

from uops.compiler.passes.optimize.schedule.accesses import flatten_loop_nests
from uops.compiler.passes.optimize.schedule.group import lower_or_serialize_group_reduces
from uops.compiler.passes.optimize.schedule.optops import apply, find_rejection_reason, max_trip_count
from uops.compiler.passes.optimize.schedule.schedule import (
    RejectedOptOp,
    Schedule,
    Scheduler,
    close_output_loops_into_sink,
    set_output_loop_types_before_optops,
)
from uops.compiler.passes.optimize.search.store import ScheduleStore, StoredSchedule
from uops.compiler.target import MachineModel
from uops.spec.errors import CompileError, Unsupported
from uops.spec.ir.axes import UNROLLED, WORKGROUP, AxisType
from uops.spec.ir.node import UOp
from uops.spec.optops import TC, Axis, Nolocals, OptOp, Padto, Split, Swap, require_every_optop, split_directions


class Clock(Protocol):
    """A timer of scheduled bodies. Raises CompileError or Unsupported if the target has no such kernel."""

    def __call__(self, body: UOp, best: float) -> float:
        """Return the seconds of one run, perhaps remembered. Timing may stop early once a run takes much longer than `best`."""
        ...

    def again(self, body: UOp) -> float:
        """Return the seconds of one run, timed anew."""
        ...


#: Names of the starts, as states store them.
STARTS = ("chosen", "joined", "plain")
#: Most steps of a search, and the share of the best time that a step must reach to go on.
DEPTH, GAIN = 8, 0.98
#: Timings of the winner, alternating with the heuristics' schedule.
ROUNDS = 3
#: Factors of the Splits that are tried, by the type that they make.
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
#: Most vector registers' worth of 4-byte elements side by side in one kernel, and most elements on a machine without vectors.
_UNROLLED_REGISTERS, _UNROLLED_VALUES = 64, 64

#: Largest ratio of padded to original extent of an axis.
_MOST_ADDED = 1.25


@dataclass(frozen=True, slots=True)
class SearchState:
    """A start, and the OptOps applied since."""

    start: str
    opts: tuple[OptOp, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """A report of a running search.

    `timed` counts the states timed, 0 if an earlier search had the result. `first` and `best` are the seconds of the heuristics'
    schedule and of the best state. `stopped` says that Ctrl-C ended the search.
    """

    kernel: str
    timed: int
    first: float
    best: float
    state: SearchState
    done: bool = False
    stopped: bool = False


_listener: ContextVar[Callable[[Progress], None] | None] = ContextVar("uops.compiler.passes.optimize.search.beam", default=None)


def listener() -> Callable[[Progress], None] | None:
    """Return the callback that hears searches begun in this context, or None."""
    return _listener.get()


@contextmanager
def report_search_progress_to(on_progress: Callable[[Progress], None]) -> Iterator[None]:
    """Report the progress of searches inside the block to a callback."""
    token = _listener.set(on_progress)
    try:
        yield
    finally:
        _listener.reset(token)


@dataclass(slots=True)
class Beam:
    """The searches of one compilation: a scheduler.

    `seconds` is the time that one kernel may take; `tell` receives the progress.
    """

    width: int
    clock: Clock
    store: ScheduleStore
    choose: Scheduler
    seconds: float = 10.0
    tell: Callable[[Progress], None] | None = None
    now: Callable[[], float] = time.monotonic
    stopped: bool = field(default=False)

    def __call__(self, s: Schedule, machine: MachineModel, uniques: Iterator[int]) -> Schedule:
        """Search for the best schedule of a kernel and return it."""
        return _KernelSearch(self, s, machine, uniques).find_best_schedule()


class _KernelSearch:
    """The search for one kernel."""

    def __init__(self, beam: Beam, s: Schedule, machine: MachineModel, uniques: Iterator[int]) -> None:
        self.beam, self.machine, self.kernel = beam, machine, s
        self.starts = {
            "chosen": beam.choose(s, machine, uniques),
            "joined": _make_outputs_global(flatten_loop_nests(s), machine),
            "plain": _make_outputs_global(s, machine),
        }
        self.free = next(uniques)
        self.key = beam.store.key(close_output_loops_into_sink(s), machine, beam.width)
        self.bodies: set[UOp] = set()
        self.timed = 0
        self.first = self.best = math.inf
        self.untimed_stored: StoredSchedule | None = None  # the stored state while it has not been timed again
        self.state = SearchState("chosen")
        self.deadline = beam.now() + beam.seconds
        self.interrupt: Callable[[], None] = lambda: None

    def find_best_schedule(self) -> Schedule:
        """Search within the time limit, or return what an earlier complete search has stored.

        The stored state of an earlier incomplete search is returned if the time is over before it is timed again, unless a state
        that was timed now is faster.
        """
        self.untimed_stored = stored = self._load_replayable_schedule()
        if stored is not None and stored.complete:
            self.state, self.best = SearchState(stored.start, stored.opts), stored.seconds
            self._report_progress(done=True)
            return self.replay_schedule(self.state)
        if self.beam.stopped:
            self._return_to_untimed_stored_unless_beaten()
            return self.replay_schedule(self.state)
        complete = True
        try:
            with _defer_ctrl_c_to_yielded_check() as self.interrupt:
                self._time_starts_then_extend_best(stored)
                self._retime_winner_or_revert_to_heuristics()
        except KeyboardInterrupt:
            self.beam.stopped, complete = True, False
        self._store_best(complete)
        self._return_to_untimed_stored_unless_beaten()
        self._report_progress(done=True)
        return self.replay_schedule(self.state)

    def _load_replayable_schedule(self) -> StoredSchedule | None:
        """Return the stored schedule, if there is one whose OptOps still apply and are such as a search proposes."""
        stored = self.beam.store.get(self.key)
        if stored is not None:
            try:
                self._require_state_as_searches_make(SearchState(stored.start, stored.opts))
            except (RejectedOptOp, KeyError) as e:
                self.beam.store.warn(self.key, str(e))
                return None
        return stored

    def replay_schedule(self, state: SearchState) -> Schedule:
        """Return the schedule of a state: its OptOps, applied to its start."""
        s = self.starts[state.start]
        for opt in state.opts:
            s = apply(s, opt, self.machine)
        return s

    def _require_state_as_searches_make(self, state: SearchState) -> None:
        """Raise RejectedOptOp for an OptOp of a state that does not apply, or for a Padto that adds more than a search would."""
        s = self.starts[state.start]
        for opt in state.opts:
            padded = apply(s, opt, self.machine)
            if isinstance(opt, Padto) and not _adds_little(max_trip_count(s.axes[opt.axis].extent), opt.multiple):
                raise RejectedOptOp(f"{opt}: it makes axis {opt.axis} more than {_MOST_ADDED} times as long")
            s = padded

    def build_timed_body(self, state: SearchState) -> UOp:
        """Return the body that is timed for a state."""
        return close_output_loops_into_sink(
            lower_or_serialize_group_reduces(self.replay_schedule(state), self.machine, itertools.count(self.free))
        )

    def _time_starts_then_extend_best(self, stored: StoredSchedule | None) -> None:
        """Time the starts, then extend the best states step by step."""
        states = [SearchState(start) for start in STARTS]
        if stored is not None:
            states.insert(1, SearchState(stored.start, stored.opts))
        front = self._time_new_states_by_deadline_fastest_first(states)
        for _ in range(DEPTH):
            before = self.best
            front = self._time_new_states_by_deadline_fastest_first(
                n for _, state in front[: self.beam.width] for n in self._propose_successors(state)
            )
            if not front or self.best > GAIN * before:
                return

    def _retime_winner_or_revert_to_heuristics(self) -> None:
        """Return to the heuristics' schedule, if it runs, unless the winner beats it again, in alternating timings."""
        chosen = SearchState("chosen")
        if self.state == chosen or math.inf in (self.best, self.first):
            return
        bodies = [self.build_timed_body(state) for state in (chosen, self.state)]
        theirs, ours = (min(times) for times in zip(*([self.beam.clock.again(b) for b in bodies] for _ in range(ROUNDS))))
        self.first, self.best = theirs, ours
        if ours > GAIN * theirs:
            self.state, self.best = chosen, theirs

    def _time_new_states_by_deadline_fastest_first(self, states: Iterable[SearchState]) -> list[tuple[float, SearchState]]:
        """Time states until the deadline, and return those that ran, fastest first, ties in order of timing."""
        timings: list[tuple[float, int, SearchState]] = []
        for state in states:
            self.interrupt()
            if self.beam.now() > self.deadline:
                break
            body = self.build_timed_body(state)
            if body in self.bodies:
                continue
            self.bodies.add(body)
            seconds = self._time_body_or_infinity(body)
            timings.append((seconds, len(timings), state))
            self._record_timing_and_store_best(seconds, state)
        return [(seconds, state) for seconds, _, state in sorted(timings, key=lambda t: t[:2]) if seconds < math.inf]

    def _time_body_or_infinity(self, body: UOp) -> float:
        """Return the seconds of a run, infinity for a body that the target cannot run."""
        try:
            return self.beam.clock(body, self.best)
        except (CompileError, Unsupported):  # as too much stack, or an axis that the target lacks
            return math.inf

    def _record_timing_and_store_best(self, seconds: float, state: SearchState) -> None:
        """Count a timing, and store the state if it is the best so far."""
        self.timed += 1
        if self.timed == 1:
            self.first = seconds
        else:  # the stored state is the second
            self.untimed_stored = None
        if seconds < self.best:
            self.best, self.state = seconds, state
            self._store_best(complete=False)
        self._report_progress()

    def _return_to_untimed_stored_unless_beaten(self) -> None:
        """Return to the stored state, if it was not timed again and none that was timed is faster."""
        stored = self.untimed_stored
        if stored is not None and not self.best < stored.seconds:
            self.state, self.best = SearchState(stored.start, stored.opts), stored.seconds

    def _store_best(self, complete: bool) -> None:
        if self.best < (math.inf if self.untimed_stored is None else self.untimed_stored.seconds):
            self.beam.store.put(self.key, StoredSchedule(self.state.start, self.state.opts, self.best, complete))

    def _report_progress(self, done: bool = False) -> None:
        if self.beam.tell is not None:
            self.beam.tell(Progress(self.kernel.name, self.timed, self.first, self.best, self.state, done, self.beam.stopped))

    def _propose_successors(self, state: SearchState) -> Iterator[SearchState]:
        """Yield the states that one more step makes."""
        s = self.replay_schedule(state)
        for opts in propose_optops(s, self.machine):
            yield SearchState(state.start, (*state.opts, *opts))


@contextmanager
def _defer_ctrl_c_to_yielded_check() -> Iterator[Callable[[], None]]:
    """Yield a function that raises KeyboardInterrupt if Ctrl-C was pressed, to be called between two timings.

    Raised elsewhere, as in a finalizer, the exception may be lost. A second Ctrl-C raises at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    before, interrupts = signal.getsignal(signal.SIGINT), list[int]()

    def handle(number: int, frame: object) -> None:
        interrupts.append(number)
        if len(interrupts) > 1:
            raise KeyboardInterrupt

    def check() -> None:
        if interrupts:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handle)
    try:
        yield check
        check()
    finally:
        signal.signal(signal.SIGINT, before)


def _make_outputs_global(s: Schedule, machine: MachineModel) -> Schedule:
    """Make the parallel output loops GLOBAL on a machine with workgroups (R94: first types)."""
    parallel = [r for r in s.outputs if r.arg.axis_id not in s.ordered_ids]
    return set_output_loop_types_before_optops(s, dict.fromkeys(parallel, AxisType.GLOBAL)) if machine.workgroup and parallel else s


# ----------------------------------------------------------------------------------------------------------------- candidates


def propose_optops(s: Schedule, machine: MachineModel) -> Iterator[tuple[OptOp, ...]]:
    """Yield the OptOps worth trying next, each alone or with a Padto before it.

    All are legal and keep the kernel within bounds.
    """
    for propose in _PROPOSALS.values():
        yield from propose(s, machine)


def _propose_nothing(s: Schedule, machine: MachineModel) -> Iterator[tuple[OptOp, ...]]:
    yield from ()


def _propose_splits(s: Schedule, machine: MachineModel) -> Iterator[tuple[OptOp, ...]]:
    axes = s.axes
    splits = [(target, k, top) for k, a in enumerate(axes) for target, top in _list_split_targets_with_top(a, machine)]
    for target, factors in FACTORS.items():
        for factor in factors:
            for _, k, top in (x for x in splits if x[0] is target):
                yield from _propose_split_or_padded_split(s, axes, k, Split(k, factor, target, top), machine)


def _propose_swaps(s: Schedule, machine: MachineModel) -> Iterator[tuple[OptOp, ...]]:
    axes = s.axes
    for k, j in itertools.combinations(range(len(axes)), 2):
        swap = Swap(k, j)
        if axes[k].type is axes[j].type and axes[k].type not in UNROLLED and find_rejection_reason(s, swap, machine) is None:
            yield (swap,)


def _propose_tensor_cores_with_least_padding(s: Schedule, machine: MachineModel) -> Iterator[tuple[OptOp, ...]]:
    """Yield a TC for each tensor core that fits a Reduce, with as little padding as possible."""
    if s.done:
        return  # TC must be the first OptOp (R93)
    reduces = sum(a.type is AxisType.REDUCE for a in s.axes)
    for k, tc in itertools.product(range(reduces), range(len(machine.tensor_cores))):
        levels = (TC(k, tc, level) for level in range(3))
        yield from itertools.islice(((opt,) for opt in levels if find_rejection_reason(s, opt, machine) is None), 1)


def _list_split_targets_with_top(a: Axis, machine: MachineModel) -> Iterator[tuple[AxisType, bool]]:
    """Yield (type, top) of the Splits of an axis; lanes only on a machine with workgroups."""
    for target in FACTORS:
        directions = split_directions(a.type, target)
        if directions and (machine.workgroup or target not in WORKGROUP):
            yield target, directions[0]


def _propose_split_or_padded_split(
    s: Schedule, axes: Sequence[Axis], axis_number: int, opt: Split, machine: MachineModel
) -> Iterator[tuple[OptOp, ...]]:
    """Yield a Split of axis `axis_number` if it is legal, or else a Padto and the Split if that adds little."""
    n = max_trip_count(axes[axis_number].extent)
    if opt.factor > n or not _keeps_unrolled_elements_within_limit(s, opt, machine):
        return
    if find_rejection_reason(s, opt, machine) is None:
        yield (opt,)
        return
    pad = Padto(axis_number, opt.factor)
    if n % opt.factor and _adds_little(n, opt.factor) and find_rejection_reason(s, pad, machine) is None:
        padded = apply(s, pad, machine)
        at = next(i for i, a in enumerate(padded.axes) if a.id == axes[axis_number].id)
        split = Split(at, opt.factor, opt.target, opt.top)
        if find_rejection_reason(padded, split, machine) is None:
            yield pad, split


def _adds_little(extent: int, multiple: int) -> bool:
    """Return True if a Padto to a multiple keeps an axis of this extent within `_MOST_ADDED` of its length."""
    return -(-extent // multiple) * multiple <= _MOST_ADDED * extent


def _keeps_unrolled_elements_within_limit(s: Schedule, opt: Split, machine: MachineModel) -> bool:
    """Return True if the elements side by side roughly fit the machine's registers. R140 (sizes of a workgroup) limits lanes."""
    if opt.target not in UNROLLED:
        return True
    elements = opt.factor * math.prod(max_trip_count(a.extent) for a in s.axes if a.type in UNROLLED)
    return elements <= max(_UNROLLED_VALUES, _UNROLLED_REGISTERS * machine.vector_bytes // 4)


#: OptOp -> its proposals, in the order in which they are tried.
_PROPOSALS: dict[type[OptOp], Callable[[Schedule, MachineModel], Iterator[tuple[OptOp, ...]]]] = {
    TC: _propose_tensor_cores_with_least_padding,
    Split: _propose_splits,
    Padto: _propose_nothing,  # alone it saves no time; Splits that need it propose both
    Swap: _propose_swaps,
    Nolocals: _propose_nothing,  # it changes no kernel
}
require_every_optop(_PROPOSALS, "compiler/passes/optimize/search/beam.py")
