"""The lanes of one workgroup: they take turns, and wait for each other at barriers and at Wmmas (R60, R93).

A lane runs until it arrives somewhere, or forks into the lanes of a loop inside of its own. When nobody can go on, either all are
at one barrier and pass it together, or the warps that are complete at a Wmma do; else the lanes have diverged, which is a Trap.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from uops.interp.kernel.lane_machine.access import Placed
from uops.interp.kernel.structure.order import Order, Stamp
from uops.spec.errors import Crash
from uops.spec.ir.node import UOp

Run = Generator[Any, Any, None]


@dataclass(slots=True)
class Arrival:
    """A lane waits at `node`; `part` is what it brings to a Wmma, and `step` what the warp computes."""

    node: UOp
    stamp: Stamp
    lane: Any
    part: Any
    step: Callable[..., Sequence[Any]] | None = None


@dataclass(slots=True)
class Fork:
    """A lane waits for the lanes of an inner loop."""

    children: Sequence[tuple[Any, Run]]


@dataclass(slots=True, eq=False)
class Thread:
    lane: Any
    run: Run
    parent: Thread | None = None
    children: list[Thread] = field(default_factory=list)
    at: Arrival | None = None
    done: bool = False


class Team:
    """One workgroup's lanes under the outermost loop of lanes."""

    def __init__(self, order: Order, rng: random.Random | None) -> None:
        self.order = order
        self.rng = rng

    def run(self, lanes: Sequence[tuple[Any, Run]]) -> None:
        everyone = [Thread(lane, run) for lane, run in lanes]
        ready: list[tuple[Thread, Any]] = [(t, None) for t in everyone]
        while True:
            while ready:
                at = 0 if self.rng is None else self.rng.randrange(len(ready))
                thread, reply = ready.pop(at)
                self._advance(thread, reply, everyone, ready)
            if all(t.done for t in everyone):
                return
            ready = self._released(everyone)

    def _advance(self, thread: Thread, reply: Any, everyone: list[Thread], ready: list[tuple[Thread, Any]]) -> None:
        try:
            request = thread.run.send(reply)
        except StopIteration:
            thread.done = True
            parent = thread.parent
            if parent is not None and all(c.done for c in parent.children):
                gone = set(map(id, parent.children))
                everyone[:] = [t for t in everyone if id(t) not in gone]
                parent.children = []
                ready.append((parent, None))
            return
        if isinstance(request, Fork):
            thread.children = [Thread(lane, run, thread) for lane, run in request.children]
            everyone += thread.children
            ready += [(t, None) for t in thread.children] or [(thread, None)]
        else:
            thread.at = request

    def _released(self, everyone: list[Thread]) -> list[tuple[Thread, Any]]:
        waiting = [t for t in everyone if t.at is not None]
        if not waiting:
            raise Crash("lanes that wait for nobody")
        warps = self._warps(waiting)
        if warps:
            return warps
        barrier = next((t for t in waiting if t.at is not None and t.at.step is None), None)
        if barrier is None:
            raise self._diverged(waiting[0], everyone)
        assert barrier.at is not None
        event = self.order.common(barrier.at.stamp)
        for t in everyone:
            left = t.done or (t.at is not None and (t.at.step is not None or self.order.common(t.at.stamp) != event))
            if left:
                raise self._diverged(barrier, everyone, t)
        self.order.barriers.append(event)
        for t in waiting:
            t.at = None
        return [(t, None) for t in waiting]

    def _warps(self, waiting: Sequence[Thread]) -> list[tuple[Thread, Any]]:
        """The lanes of every warp that is complete at a Wmma, each with its part of the product."""
        meetings: dict[Stamp, list[Thread]] = {}
        for t in waiting:
            if t.at is not None and t.at.step is not None:
                meetings.setdefault(self.order.common(t.at.stamp), []).append(t)
        released: list[tuple[Thread, Any]] = []
        for threads in meetings.values():
            first = threads[0].at
            assert first is not None and first.step is not None
            size = first.node.arg.threads
            warps: dict[int, list[Thread]] = {}
            for t in threads:
                assert t.at is not None
                warps.setdefault(t.lane.number() // size, []).append(t)
            for warp in warps.values():
                if len(warp) == size:
                    warp.sort(key=lambda t: int(t.lane.number()))
                    parts = first.step(first.node, [t.at.part for t in warp if t.at is not None], first.stamp)
                    for t, part in zip(warp, parts):
                        t.at = None
                        released.append((t, part))
        return released

    def _diverged(self, waits: Thread, everyone: Sequence[Thread], other: Thread | None = None) -> Exception:
        """Names who waits, and one who does not come."""
        assert waits.at is not None
        if other is None:
            other = next((t for t in everyone if t.done), None) or next((t for t in everyone if t is not waits), None)
        here = self.order.describe(waits.at.stamp)
        if other is None:
            return Placed(f"{here} waits for lanes that the workgroup does not have (R60, R93)")
        if other.at is not None:
            return Placed(f"divergence: {here} waits, but {self.order.describe(other.at.stamp)} waits elsewhere (R60)")
        return Placed(f"divergence: {here} waits, but {self.order.place(other.lane.prefix)} has left (R60)")
