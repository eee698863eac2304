"""Time limits for processes, in seconds of a clock that counts the time in which they could run.

A process gets its seconds. One that others keep from running gets as much processor time, up to `PATIENCE` times the seconds. A
stopped one (SIGSTOP) gets `STOPPED` seconds more. Time in which this process itself did not run, because the machine slept or a
shell stopped the whole job, counts as little more than one look.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from pathlib import Path

#: Factor by which a starved process may exceed its seconds.
PATIENCE = 30
#: Seconds that a stopped process gets beyond its own.
STOPPED = 60.0
#: Seconds between two looks, and the most that a late look counts.
LOOK, LATE = 1.0, 2.0


class Patience:
    """The seconds that processes have together, from now on; `why` says which limit was exceeded.

    Processes that others keep from running have at most `starved` times as many.
    """

    def __init__(self, pids: Sequence[int], seconds: float, starved: float = PATIENCE) -> None:
        self._pids, self._seconds, self._most = tuple(pids), seconds, seconds * starved
        self._used = self._total_usage()[0]
        self._waited = self._stopped = 0.0
        self.why = f"no answer within {seconds:g} s"

    def wait_until_ready_or_time_out(self, poll: select.poll) -> bool:
        """Wait for an event of `poll`. Return True if it came in time."""
        while self._waited < self._seconds:
            if self._poll_and_add_waited_time(poll, min(LOOK, self._seconds - self._waited)):
                return True
        while not self._poll_and_add_waited_time(poll, 0.0):
            used, states = self._total_usage()
            stopped = "T" in states
            if stopped and self._stopped >= STOPPED:
                self.why = f"stopped by a signal, and not continued within {STOPPED:g} s"
                return False
            starved = "R" in states and self._waited - self._stopped < self._most
            if used - self._used >= self._seconds or not (stopped or starved):
                return False
            before = self._waited
            if self._poll_and_add_waited_time(poll, LOOK):
                return True
            self._stopped += self._waited - before if stopped else 0.0
        return True

    def _poll_and_add_waited_time(self, poll: select.poll, seconds: float) -> bool:
        """Wait up to `seconds` for an event, and count the time. Return True if it came."""
        began = time.monotonic()
        is_ready = bool(poll.poll(seconds * 1000))
        self._waited += min(time.monotonic() - began, LATE)
        return is_ready

    def _total_usage(self) -> tuple[float, set[str]]:
        """Return the processor seconds and thread states of all processes together."""
        usages = [_read_cpu_seconds_and_states(pid) for pid in self._pids]
        return sum(used for used, _ in usages), set[str]().union(*(states for _, states in usages))


def _read_cpu_seconds_and_states(pid: int) -> tuple[float, set[str]]:
    """Return a process's seconds of processor time and the states of its threads, as in /proc; nothing without /proc."""
    try:
        fields_of_stat = _read_proc_stat(f"/proc/{pid}/stat")
        states = {_read_proc_stat(f"{task.path}/stat")[0] for task in os.scandir(f"/proc/{pid}/task")}
    except OSError:
        return 0.0, set()
    return (int(fields_of_stat[11]) + int(fields_of_stat[12])) / os.sysconf("SC_CLK_TCK"), states


def _read_proc_stat(path: str) -> list[str]:
    """Return the fields after the name, which may contain any character."""
    return Path(path).read_text().rpartition(")")[2].split()
