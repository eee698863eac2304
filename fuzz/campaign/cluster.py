"""A campaign's jobs on a Dask cluster that is already there: its workers have this package, and processes of their own to judge in.

Takes: a set-up, and the address of a scheduler. Gives: a `Crew`. A job that was lost with its worker is given to another one: jobs
are functions of what they are asked. Workers have to agree on what the subject is, as results would else depend on who did what.
The only door to `distributed`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

from uops.backends.worker.client import Limits, Outcome
from uops.fuzz.campaign.examine import Json, Setup
from uops.fuzz.campaign.process import Examiner, Lost
from uops.fuzz.campaign.work import Hand, Job, Said, line, said
from uops.spec.errors import UopsError
from uops.spec.extras import how_to_install

#: Seconds to reach a scheduler.
_PATIENCE = 30
#: Seconds between two questions whether there are workers, and at most to an answer.
_PERIOD = 5.0


class NoCluster(UopsError):
    """A scheduler that cannot be reached, goes away or has no workers; workers that differ; or `distributed` is not installed."""


class Cluster:
    """A crew of all threads of all workers."""

    def __init__(self, setup: Setup, limits: Limits, address: str) -> None:
        """Raises NoCluster."""
        try:
            import distributed
            from distributed.comm import get_address_host_port
        except ImportError as e:
            raise NoCluster(f"a cluster needs the package distributed: {how_to_install('cluster')}") from e
        self.setup, self.limits, self.address = setup, limits, address
        self.restarts = 0
        self._waits, self._ask_again = "", 0.0
        try:
            get_address_host_port(address)  # a client of what is no address is closed for a minute
            self._client = distributed.Client(address, timeout=_PATIENCE, set_as_default=False)
        except (OSError, ValueError) as e:
            raise NoCluster(f"there is no scheduler at {address}: {e}") from e
        self.jobs = sum(self._client.nthreads().values())
        if not self.jobs:
            self.close()
            raise NoCluster(f"the scheduler at {address} has no workers")
        self._lock = threading.Lock()
        self._futures: set[Any] = set()
        self._stopped = False

    def subject(self) -> Said:
        """Of every worker. Raises NoCluster where they do not say the same."""
        asked = {
            w: self._client.submit(subject, self.setup, self.limits, workers=[w], pure=False, allow_other_workers=False)
            for w in self._client.nthreads()
        }
        every: dict[str, Said] = {w: f.result() for w, f in asked.items()}
        if len(set(every.values())) > 1:
            what = "version" if len({s.version for s in every.values()}) > 1 else "declared"
            raise NoCluster("workers differ: " + "; ".join(f"{w} has {getattr(s, what)}" for w, s in sorted(every.items())))
        return next(iter(every.values()))

    @contextmanager
    def hand(self) -> Iterator[Hand]:
        yield self

    def line(self, job: Job) -> Json | None:
        """Have a job done by whoever is free."""
        with self._lock:
            if self._stopped:
                raise _stopped()
            future = self._client.submit(do, job, self.limits, pure=False)
            self._futures.add(future)
        try:
            found: Json | None = future.result()
            return found
        except BaseException as e:
            if self._stopped:
                raise _stopped() from None
            if isinstance(e, CancelledError | OSError):  # nobody here has cancelled it
                raise NoCluster(f"the scheduler at {self.address} has gone; the same command goes on from the journal") from e
            raise
        finally:
            with self._lock:
                self._futures.discard(future)

    @property
    def waits(self) -> str:
        """Asked every few seconds."""
        if time.monotonic() >= self._ask_again:
            try:
                idle = not self._client.nthreads(callback_timeout=_PERIOD)
            except (OSError, TimeoutError):
                idle = False  # the jobs say so
            self._waits = f"{self.address} has no workers" if idle else ""
            self._ask_again = time.monotonic() + _PERIOD
        return self._waits

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            waiting = list(self._futures)
        for future in waiting:
            future.cancel()

    def close(self) -> None:
        self._client.close()


def _stopped() -> Lost:
    return Lost(Outcome("closed", message="the campaign ends"))


# On a worker

_mine = threading.local()


def do(job: Job, limits: Limits) -> Json | None:
    """A job, by the process that this thread of a worker has for its set-up."""
    return line(job, _examiner(job.setup, limits))


def subject(setup: Setup, limits: Limits) -> Said:
    """What the subject says of itself here."""
    return said(_examiner(setup, limits))


def _examiner(setup: Setup, limits: Limits) -> Examiner:
    found: Examiner | None = getattr(_mine, "examiner", None)
    if found is None or found.setup != setup or found.limits != limits:
        if found is not None:
            found.close()
        found = _mine.examiner = Examiner(setup, limits)
    return found
