"""How long processes are waited for: seconds of a clock that counts what they could use.

A process has its seconds. One that others keep from running gets as much processor time, unless that takes `PATIENCE` times as
long; one that is stopped (SIGSTOP) is waited for `STOPPED` seconds more. Time in which this process did not run itself - the
machine slept, a shell stopped them all - counts as little more than one look.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from pathlib import Path

#: How many times its seconds a process is waited for that others keep from running.
PATIENCE = 30
#: Seconds that a stopped process is waited for beyond its own.
STOPPED = 60.0
#: Seconds between two looks, and what one counts for at most if it came late.
LOOK, LATE = 1.0, 2.0


class Patience:
    """The seconds that processes have together, from now on; `why` says what they were not enough for. Those that others keep from
    running have at most `starved` times as many."""

    def __init__(self, pids: Sequence[int], seconds: float, starved: float = PATIENCE) -> None:
        self._pids, self._seconds, self._most = tuple(pids), seconds, seconds * starved
        self._used = self._total_usage()[0]
        self._waited = self._stopped = 0.0
        self.why = f"no answer within {seconds:g} s"

    def is_ready_in_time(self, poll: select.poll) -> bool:
        """Wait, and return True if `poll` reports an event in time."""
        while self._waited < self._seconds:
            if self._look(poll, min(LOOK, self._seconds - self._waited)):
                return True
        while not self._look(poll, 0.0):
            used, states = self._total_usage()
            stopped = "T" in states
            if stopped and self._stopped >= STOPPED:
                self.why = f"stopped by a signal, and not continued within {STOPPED:g} s"
                return False
            starved = "R" in states and self._waited - self._stopped < self._most
            if used - self._used >= self._seconds or not (stopped or starved):
                return False
            before = self._waited
            if self._look(poll, LOOK):
                return True
            self._stopped += self._waited - before if stopped else 0.0
        return True

    def _look(self, poll: select.poll, seconds: float) -> bool:
        """Wait for an event for so many seconds, and count them."""
        began = time.monotonic()
        found = bool(poll.poll(seconds * 1000))
        self._waited += min(time.monotonic() - began, LATE)
        return found

    def _total_usage(self) -> tuple[float, set[str]]:
        """The seconds and states that `_usage` gives, of all processes together."""
        told = [_usage(pid) for pid in self._pids]
        return sum(used for used, _ in told), set[str]().union(*(states for _, states in told))


def _usage(pid: int) -> tuple[float, set[str]]:
    """Seconds of processor time of a process, and the states of its threads as in /proc; nothing where that does not tell."""
    try:
        told = _stat(f"/proc/{pid}/stat")
        states = {_stat(f"{task.path}/stat")[0] for task in os.scandir(f"/proc/{pid}/task")}
    except OSError:
        return 0.0, set()
    return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK"), states


def _stat(path: str) -> list[str]:
    """The fields after the name, which may have any character."""
    return Path(path).read_text().rpartition(")")[2].split()
