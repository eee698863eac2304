"""A pool of workers on an existing Dask cluster, whose workers judge in processes of their own.

Takes: a set-up, and the address of a scheduler. Gives: a `WorkerPool`. All workers must report the same subject, as the results
would otherwise depend on who did a job.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from uops.backends.testing.cluster import Cluster, ClusterStopped, NoCluster
from uops.backends.worker.client import Limits, Outcome
from uops.fuzz.campaign.examine import Json, Setup
from uops.fuzz.campaign.process import Examiner, ProcessLost
from uops.fuzz.campaign.work import CampaignJob, JobRunner, SubjectInfo, perform_job, query_subject


class ClusterPool:
    """A pool of all threads of all workers of a cluster."""

    def __init__(self, setup: Setup, limits: Limits, address: str) -> None:
        """Connect to the scheduler. Raises NoCluster."""
        self.setup, self.limits = setup, limits
        self.cluster = Cluster(address)
        self.jobs = self.cluster.thread_count
        self.restarts = 0

    def query_common_subject_info(self) -> SubjectInfo:
        """Ask every worker for the subject's description. Raises NoCluster if the answers differ."""
        answers: dict[str, SubjectInfo] = self.cluster.call_on_every_worker(subject_info_on_worker, self.setup, self.limits)
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
        try:
            line: Json | None = self.cluster.call(run_job_on_worker, job, self.limits)
            return line
        except ClusterStopped:
            raise ProcessLost(Outcome("closed", message="the campaign ends")) from None

    @property
    def missing_workers_message(self) -> str:
        """A text if the cluster has no workers, else "". The scheduler is asked every few seconds."""
        return self.cluster.missing_workers_message

    def stop(self) -> None:
        """Cancel all running jobs, from any thread."""
        self.cluster.stop()

    def close(self) -> None:
        """Close the connection."""
        self.cluster.close()


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
