"""The lanes of one workgroup: they take turns, and wait for each other at Barriers and Wmmas (R60, R93).

A lane runs until it arrives at such a node, or forks into the lanes of an inner loop. When no lane can go on, either all are at
one Barrier and pass it together, or the warps that are complete at a Wmma do. Otherwise the lanes have diverged, which is a
Trap.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from uops.interp.kernel.lane_machine.access import LocatedTrap
from uops.interp.kernel.structure.order import EventOrder, Stamp
from uops.spec.errors import Crash
from uops.spec.ir.node import UOp

#: A running lane: a generator that yields a `LaneArrival` or `LaneFork` where it waits.
LaneCoroutine = Generator[Any, Any, None]


class WorkgroupLane(Protocol):
    """A lane as its workgroup sees it."""

    prefix: Stamp

    def index_in_workgroup(self) -> int:
        """Return the number of the lane in the workgroup."""


@dataclass(slots=True)
class LaneArrival:
    """A lane that waits at `node`; at a Wmma with its fragments, and with the step that computes the results of a warp."""

    node: UOp
    stamp: Stamp
    lane: WorkgroupLane
    fragments: Any
    step: Callable[..., Sequence[Any]] | None = None


@dataclass(slots=True)
class LaneFork:
    """A lane that waits for the lanes of an inner loop."""

    children: Sequence[tuple[WorkgroupLane, LaneCoroutine]]


@dataclass(slots=True, eq=False)
class LaneThread:
    """A lane with its generator. `arrival` is set while it waits at a node, `children` while it waits for inner lanes."""

    lane: WorkgroupLane
    run: LaneCoroutine
    parent: LaneThread | None = None
    children: list[LaneThread] = field(default_factory=list)
    arrival: LaneArrival | None = None
    done: bool = False


class Workgroup:
    """The lanes of one workgroup under the outermost loop of lanes."""

    def __init__(self, order: EventOrder, rng: random.Random | None) -> None:
        self.order = order
        self.rng = rng

    def run_lanes(self, lanes: Sequence[tuple[WorkgroupLane, LaneCoroutine]]) -> None:
        """Run all lanes to their end, one at a time; `rng` draws which one goes on."""
        threads = [LaneThread(lane, run) for lane, run in lanes]
        ready: list[tuple[LaneThread, Any]] = [(t, None) for t in threads]
        while True:
            while ready:
                turn = 0 if self.rng is None else self.rng.randrange(len(ready))
                thread, reply = ready.pop(turn)
                self._run_until_wait_and_update_threads(thread, reply, threads, ready)
            if all(t.done for t in threads):
                return
            ready = self._release_at_barrier_or_wmma(threads)

    def _run_until_wait_and_update_threads(
        self, thread: LaneThread, reply: Any, all_threads: list[LaneThread], ready_with_replies: list[tuple[LaneThread, Any]]
    ) -> None:
        """Run a lane until it waits or ends, and update the threads and those that are ready."""
        try:
            request = thread.run.send(reply)
        except StopIteration:
            thread.done = True
            parent = thread.parent
            if parent is not None and all(c.done for c in parent.children):
                finished = set(map(id, parent.children))
                all_threads[:] = [t for t in all_threads if id(t) not in finished]
                parent.children = []
                ready_with_replies.append((parent, None))
            return
        if isinstance(request, LaneFork):
            thread.children = [LaneThread(lane, run, thread) for lane, run in request.children]
            all_threads += thread.children
            ready_with_replies += [(t, None) for t in thread.children] or [(thread, None)]
        else:
            thread.arrival = request

    def _release_at_barrier_or_wmma(self, threads: list[LaneThread]) -> list[tuple[LaneThread, Any]]:
        """Return the threads that can go on, each with the value to send. Raises Trap if the lanes have diverged."""
        waiting = [t for t in threads if t.arrival is not None]
        if not waiting:
            raise Crash("no lane can go on, and none waits at a node")
        warps = self._release_any_complete_wmma_warps(waiting)
        if warps:
            return warps
        barrier = next((t for t in waiting if t.arrival is not None and t.arrival.step is None), None)
        if barrier is None:
            raise self._divergence_trap(waiting[0], threads)
        assert barrier.arrival is not None
        event = self.order.widen_to_all_lanes(barrier.arrival.stamp)
        for t in threads:
            other = t.arrival
            elsewhere = other is not None and (other.step is not None or self.order.widen_to_all_lanes(other.stamp) != event)
            if t.done or elsewhere:
                raise self._divergence_trap(barrier, threads, t)
        self.order.barriers.append(event)
        for t in waiting:
            t.arrival = None
        return [(t, None) for t in waiting]

    def _release_any_complete_wmma_warps(self, waiting: Sequence[LaneThread]) -> list[tuple[LaneThread, Any]]:
        """Return the lanes of every warp that is complete at a Wmma, each with its part of the result."""
        meetings: dict[Stamp, list[LaneThread]] = {}
        for t in waiting:
            if t.arrival is not None and t.arrival.step is not None:
                meetings.setdefault(self.order.widen_to_all_lanes(t.arrival.stamp), []).append(t)
        released: list[tuple[LaneThread, Any]] = []
        for threads in meetings.values():
            first = threads[0].arrival
            assert first is not None and first.step is not None
            size = first.node.arg.threads
            warps: dict[int, list[LaneThread]] = {}
            for t in threads:
                assert t.arrival is not None
                warps.setdefault(t.lane.index_in_workgroup() // size, []).append(t)
            for warp in warps.values():
                if len(warp) == size:
                    warp.sort(key=lambda t: int(t.lane.index_in_workgroup()))
                    results = first.step(first.node, [t.arrival.fragments for t in warp if t.arrival is not None], first.stamp)
                    for t, result in zip(warp, results):
                        t.arrival = None
                        released.append((t, result))
        return released

    def _divergence_trap(self, waiting: LaneThread, threads: Sequence[LaneThread], absent: LaneThread | None = None) -> Exception:
        """Return the Trap that names who waits, and one lane that does not come."""
        assert waiting.arrival is not None
        if absent is None:
            absent = next((t for t in threads if t.done), None) or next((t for t in threads if t is not waiting), None)
        here = self.order.describe_event(waiting.arrival.stamp)
        if absent is None:
            return LocatedTrap(f"{here} waits for lanes that the workgroup does not have (R60, R93)")
        if absent.arrival is not None:
            return LocatedTrap(
                f"divergence: {here} waits, but {self.order.describe_event(absent.arrival.stamp)} waits elsewhere (R60)"
            )
        return LocatedTrap(f"divergence: {here} waits, but {self.order.describe_location(absent.lane.prefix)} has left (R60)")
