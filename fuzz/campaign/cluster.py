"""A pool of workers on an existing Dask cluster, whose workers have this package and judge in processes of their own.

Takes: a set-up, and the address of a scheduler. Gives: a `WorkerPool`. A job that was lost with its worker is given to another
one: jobs are pure functions. All workers must report the same subject, as the results would otherwise depend on who did a job.
Only this module uses `distributed`.
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
from uops.fuzz.campaign.process import Examiner, ProcessLost
from uops.fuzz.campaign.work import CampaignJob, JobRunner, SubjectInfo, perform_job, query_subject
from uops.spec.errors import UopsError
from uops.spec.extras import install_command

#: Seconds in which a scheduler must be reached.
_PATIENCE = 30
#: Seconds between two questions whether there are workers, and maximum seconds until an answer.
_PERIOD = 5.0


class NoCluster(UopsError):
    """A cluster that cannot be used: its scheduler cannot be reached or goes away, it has no workers, its workers differ,
    or `distributed` is not installed.
    """


class ClusterPool:
    """A pool of all threads of all workers of a cluster."""

    def __init__(self, setup: Setup, limits: Limits, address: str) -> None:
        """Connect to the scheduler. Raises NoCluster."""
        try:
            import distributed  # late: it is optional
            from distributed.comm import get_address_host_port
        except ImportError as e:
            raise NoCluster(f"a cluster needs the package distributed: {install_command('cluster')}") from e
        self.setup, self.limits, self.address = setup, limits, address
        self.restarts = 0
        self._waits, self._ask_again = "", 0.0
        try:
            get_address_host_port(address)  # checked first: a client with an invalid address takes a minute to close
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

    def query_common_subject_info(self) -> SubjectInfo:
        """Ask every worker for the subject's description. Raises NoCluster if the answers differ."""
        futures = {
            w: self._client.submit(
                subject_info_on_worker, self.setup, self.limits, workers=[w], pure=False, allow_other_workers=False
            )
            for w in self._client.nthreads()
        }
        answers: dict[str, SubjectInfo] = {w: f.result() for w, f in futures.items()}
        if len(set(answers.values())) > 1:
            difference = "version" if len({answer.version for answer in answers.values()}) > 1 else "declared"
            texts = (f"{w} has {getattr(answer, difference)}" for w, answer in sorted(answers.items()))
            raise NoCluster(f"workers differ: {'; '.join(texts)}")
        return next(iter(answers.values()))

    @contextmanager
    def acquire_runner(self) -> Iterator[JobRunner]:
        """Give the pool itself as a runner."""
        yield self

    def run_job(self, job: CampaignJob) -> Json | None:
        """Run a job on any free worker. Raises ProcessLost if the pool was stopped, and NoCluster if the scheduler is
        gone.
        """
        with self._lock:
            if self._stopped:
                raise _campaign_ended_error()
            future = self._client.submit(run_job_on_worker, job, self.limits, pure=False)
            self._futures.add(future)
        try:
            line: Json | None = future.result()
            return line
        except BaseException as e:
            if self._stopped:
                raise _campaign_ended_error() from None
            if isinstance(e, CancelledError | OSError):  # cancelled, but not by `stop`
                raise NoCluster(f"the scheduler at {self.address} has gone; the same command goes on from the journal") from e
            raise
        finally:
            with self._lock:
                self._futures.discard(future)

    @property
    def missing_workers_message(self) -> str:
        """A text if the cluster has no workers, else "". The scheduler is asked every few seconds."""
        if time.monotonic() >= self._ask_again:
            try:
                idle = not self._client.nthreads(callback_timeout=_PERIOD)
            except (OSError, TimeoutError):
                idle = False  # a lost scheduler shows at the jobs
            self._waits = f"{self.address} has no workers" if idle else ""
            self._ask_again = time.monotonic() + _PERIOD
        return self._waits

    def stop(self) -> None:
        """Cancel all running jobs, from any thread."""
        with self._lock:
            self._stopped = True
            waiting = list(self._futures)
        for future in waiting:
            future.cancel()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def _campaign_ended_error() -> ProcessLost:
    return ProcessLost(Outcome("closed", message="the campaign ends"))


# On a worker

#: The examiner of each thread of a worker.
_local = threading.local()


def run_job_on_worker(job: CampaignJob, limits: Limits) -> Json | None:
    """Do a job in the process that belongs to this thread of a worker."""
    return perform_job(job, _reuse_or_replace_thread_examiner(job.setup, limits))


def subject_info_on_worker(setup: Setup, limits: Limits) -> SubjectInfo:
    """Return the subject's description on this worker."""
    return query_subject(_reuse_or_replace_thread_examiner(setup, limits))


def _reuse_or_replace_thread_examiner(setup: Setup, limits: Limits) -> Examiner:
    examiner: Examiner | None = getattr(_local, "examiner", None)
    if examiner is None or examiner.setup != setup or examiner.limits != limits:
        if examiner is not None:
            examiner.close()
        examiner = _local.examiner = Examiner(setup, limits)
    return examiner
