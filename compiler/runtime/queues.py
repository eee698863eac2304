"""Queues of devices: a program on several devices runs a thread per device.

A launch runs on the device of the memory that it writes, so a copy is a launch of the device that receives. The launches of a
device run in their order. A launch waits for earlier ones of other devices that access the same bytes, if one of the two writes
them. Spec: Linear; R59 (After), R72 (device), R151 (entries of a launch).

`schedule_launches` gives the schedule as data, once per program. `QueueRunner` runs it, each time with events of its own. The
first error ends the run on all devices, after the launches that have begun.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import NamedTuple

from uops.compiler.ir.bodies import list_possibly_written_slots
from uops.compiler.ir.buffers import byte_offset
from uops.compiler.ir.devices import HOST
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory, is_variable


class MemoryRange(NamedTuple):
    """Bytes from `first` to before `end` of a memory: a Buffer, a Param, or any other name of one."""

    base: object
    first: int
    end: int

    def overlaps(self, other: MemoryRange) -> bool:
        """Return True if both share a byte."""
        return self.base == other.base and self.first < other.end and other.first < self.end


class LaunchAccess(NamedTuple):
    """The device of a launch, and the memory that it may read and write."""

    device: str
    reads: tuple[MemoryRange, ...]
    writes: tuple[MemoryRange, ...]

    def conflicts_with(self, other: LaunchAccess) -> bool:
        """Return True if two launches must not run at the same time."""
        return any(
            a.overlaps(b)
            for mine, theirs in ((self.writes, other.writes), (self.writes, other.reads), (self.reads, other.writes))
            for a in mine
            for b in theirs
        )


class QueueStep(NamedTuple):
    """Launches of one device, one after the other, that begin when the steps `waits` of other devices have ended."""

    launches: tuple[int, ...]
    waits: tuple[int, ...]


class QueueSchedule(NamedTuple):
    """The steps of a program, in an order that keeps all waits, and the steps of each device."""

    steps: tuple[QueueStep, ...]
    steps_by_device: dict[str, tuple[int, ...]]


def describe_launch_access(call: UOp) -> LaunchAccess:
    """Return the memory that a launch reads and writes. What it writes, it may read. Without a device it is the host's."""
    written = list_possibly_written_slots(call)
    memory = {k: a for k, a in enumerate(call.arguments) if not is_variable(base_memory(a))}
    ranges = {k: _describe_range(a) for k, a in memory.items()}
    devices = [base_memory(memory[k]).device for k in written if k in memory]
    device = next((str(d) for d in devices if d is not None), HOST)
    return LaunchAccess(device, tuple(ranges.values()), tuple([r for k, r in ranges.items() if k in written]))


def _describe_range(argument: UOp) -> MemoryRange:
    """Return the bytes of an argument; those of memory of unknown size have no end."""
    first = byte_offset(argument)
    size = argument.arg.size * argument.dtype.itemsize if argument.op in (Op.BUFFER, Op.SLICE) else sys.maxsize
    return MemoryRange(base_memory(argument), first, first + size)


def schedule_launches(accesses: Sequence[LaunchAccess]) -> QueueSchedule:
    """Return the schedule of launches that are given in the order of the program."""
    waits = [_find_last_conflict_per_other_device(accesses, k) for k in range(len(accesses))]
    awaited = {earlier for w in waits for earlier in w}
    steps: list[tuple[list[int], tuple[int, ...]]] = []
    step_of_launch: dict[int, int] = {}
    open_step: dict[str, int] = {}
    by_device: dict[str, list[int]] = {}
    for k, access in enumerate(accesses):
        step = open_step.get(access.device)
        if step is None or waits[k]:
            step = open_step[access.device] = len(steps)
            steps.append(([], tuple(sorted({step_of_launch[earlier] for earlier in waits[k]}))))
            by_device.setdefault(access.device, []).append(step)
        steps[step][0].append(k)
        step_of_launch[k] = step
        if k in awaited:
            del open_step[access.device]
    found = [QueueStep(tuple(of), w) for of, w in steps]
    return QueueSchedule(_drop_implied_waits(found, by_device), {d: tuple(s) for d, s in by_device.items()})


def _drop_implied_waits(steps: Sequence[QueueStep], steps_by_device: Mapping[str, Sequence[int]]) -> tuple[QueueStep, ...]:
    """Return the steps without waits for what has ended anyway when the others that they wait for have."""
    previous = {later: earlier for of in steps_by_device.values() for earlier, later in itertools.pairwise(of)}
    ended_before: list[set[int]] = []
    kept = []
    for number, step in enumerate(steps):
        direct = {*step.waits, *([previous[number]] if number in previous else [])}
        implied = set[int]().union(*[ended_before[earlier] for earlier in direct])
        kept.append(step._replace(waits=tuple(w for w in step.waits if w not in implied)))
        ended_before.append(direct | implied)
    return tuple(kept)


def _find_last_conflict_per_other_device(accesses: Sequence[LaunchAccess], launch: int) -> tuple[int, ...]:
    """Return, for each other device, the last earlier launch that a launch conflicts with."""
    last: dict[str, int] = {}
    for earlier in range(launch - 1, -1, -1):
        device = accesses[earlier].device
        if device != accesses[launch].device and device not in last and accesses[launch].conflicts_with(accesses[earlier]):
            last[device] = earlier
    return tuple(last.values())


#: Runs one step of a program: (addresses of the bases, values of the variables) -> None.
ExecuteStep = Callable[[Sequence[int], Sequence[int]], None]


class QueueRunner:
    """A program that runs a thread per device; `execute` has a function per step of the schedule. May run in several threads."""

    def __init__(self, schedule: QueueSchedule, execute: Sequence[ExecuteStep]) -> None:
        self.schedule, self.execute = schedule, execute

    def run(self, addresses: Sequence[int], variable_values: Sequence[int]) -> None:
        """Run the program once. Raises the first error of a device, when all devices have stopped."""
        first, *others = self.schedule.steps_by_device.values()
        run = _Run(self, addresses, variable_values)
        threads = [_take_thread() for _ in others]
        for thread, steps in zip(threads, others, strict=True):
            thread.submit(lambda steps=steps: run.run_queue(steps))  # type: ignore[misc]
        try:
            run.run_queue(first)
        finally:
            run.stop_unless_queue_ended(first)
            for thread in threads:
                thread.wait_and_give_back()
        if run.error is not None:
            raise run.error


class _Run:
    """One run of a program: an event per step, and the first error."""

    def __init__(self, runner: QueueRunner, addresses: Sequence[int], variable_values: Sequence[int]) -> None:
        self.runner, self.arguments = runner, (addresses, variable_values)
        self.ended = [threading.Event() for _ in runner.schedule.steps]
        self.error: BaseException | None = None
        self.is_stopped = False

    def run_queue(self, steps: Sequence[int]) -> None:
        """Run the steps of one device."""
        try:
            for number in steps:
                for earlier in self.runner.schedule.steps[number].waits:
                    self.ended[earlier].wait()
                if self.is_stopped:
                    return
                self.runner.execute[number](*self.arguments)
                self.ended[number].set()
        except BaseException as e:
            self.error = self.error or e
            self.stop()

    def stop(self) -> None:
        """Let no further step begin."""
        self.is_stopped = True
        for event in self.ended:
            event.set()

    def stop_unless_queue_ended(self, steps: Sequence[int]) -> None:
        """Stop the other devices if the steps of this one did not all end: an interrupt may come outside of `run_queue`, too."""
        if not all(self.ended[number].is_set() for number in steps):
            self.stop()


class _QueueThread:
    """A thread that runs one function at a time; it outlives the runs that use it."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._idle = threading.Event()
        threading.Thread(target=self._serve, name="uops queue", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._work.get()()
            self._idle.set()

    def submit(self, work: Callable[[], None]) -> None:
        """Run a function that raises nothing."""
        self._idle.clear()
        self._work.put(work)

    def wait_and_give_back(self) -> None:
        """Wait until the function has ended, and let another run take the thread."""
        self._idle.wait()
        _idle_threads.append(self)


_idle_threads: list[_QueueThread] = []


def _take_thread() -> _QueueThread:
    """Return an idle thread, or a new one."""
    try:
        return _idle_threads.pop()
    except IndexError:
        return _QueueThread()


os.register_at_fork(after_in_child=_idle_threads.clear)  # threads do not survive a fork
