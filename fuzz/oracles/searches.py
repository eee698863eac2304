"""A beam search for schedules: what it chooses, and what it stored, is right.

Takes: a program and a target. Gives: a Fault or None. The search runs its candidates as always, but its clock is drawn: by the
text of a kernel, so that a campaign is the same on every machine.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from uops.backends.conformance.stage_judge import Fault
from uops.compiler.passes.optimize.optimize import choose_by_heuristics
from uops.compiler.passes.optimize.schedule.schedule import Scheduler
from uops.compiler.passes.optimize.search.beam import Beam, Progress
from uops.compiler.passes.optimize.search.clock import TargetClock
from uops.compiler.passes.optimize.search.store import ScheduleStore
from uops.compiler.target import Target
from uops.fuzz.generate.kinds import stable_hash
from uops.spec.ir.node import UOp
from uops.spec.ir.text import show

#: Width of a search, and the most states that it times per kernel.
WIDTH, STATES = 1, 6


class _DrawnClock:
    """A clock that runs kernels, and gives seconds that are drawn by their texts."""

    def __init__(self, target: Target, seed: int) -> None:
        self._clock = TargetClock(target)
        self._seed = seed

    def _draw(self, body: UOp) -> float:
        return 1e-6 * (1 + stable_hash(self._seed, show(body)) % 1000)

    def __call__(self, body: UOp, best: float) -> float:
        """Run a kernel, and return the seconds that are drawn for it."""
        self._clock(body, 0.0)
        return self._draw(body)

    def again(self, body: UOp) -> float:
        """Run a kernel again, and return the same seconds."""
        self._clock.again(body)
        return self._draw(body)


def find_fault_of_searched_schedules(target: Target, seed: int, run_and_judge: Callable[[Scheduler], Fault | None]) -> Fault | None:
    """Search for the schedules of a program's kernels, and read them from the store in a second compilation.

    `run_and_judge` compiles and runs the program with a scheduler. It is a fault, too, if a kernel is searched again whose
    schedule was stored.
    """
    reports: list[Progress] = []
    with tempfile.TemporaryDirectory(prefix="uops-") as folder:
        store = ScheduleStore(Path(folder), target.key, "fuzz")
        for _ in range(2):
            reports.clear()
            states: Iterator[int] = itertools.count()
            beam = Beam(WIDTH, _DrawnClock(target, seed), store, choose_by_heuristics, STATES, reports.append, now=states.__next__)
            if (fault := run_and_judge(beam)) is not None:
                return fault
    again = sum(1 for r in reports if r.done and r.timed and r.best < float("inf"))
    return Fault("searched", f"{again} kernels were searched again, though their schedules were stored") if again else None
