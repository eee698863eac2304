"""A campaign: cases in batches, in several processes, with all findings on disk.

Takes: a `Setup`, a directory, and a number of cases or of seconds. Gives: a `Summary`, a pure function of the set-up and of the
batches that were done. A campaign that was killed at any moment continues from its journal, and ends with the findings and
counters of one that was not. The seconds of a campaign cover all that it does after the subject has started. When they are
over, running jobs are interrupted. Of a batch, the cases that were done count. A finding that is not triaged or reduced by then
is reported so, and is looked into when the campaign continues.

A finding is a case and the oracle that objected. Some of each batch, `PER_BATCH` of each oracle and kind of fault, are
*triaged*: judged again and bisected. Of findings with one key, the one of the least number is reduced and kept. Sometimes no
rule, step or place of an error tells findings apart. Then the first `MOST_REDUCED` of each oracle and pass, or kind of fault,
are reduced, and their reduced programs are compared.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uops import __version__
from uops.backends.registry import BrokenBackend
from uops.backends.testing.journal import Journal
from uops.backends.worker.client import Limits
from uops.backends.worker.frames import make_texts_printable
from uops.fuzz.campaign.cluster import ClusterPool
from uops.fuzz.campaign.examine import Json, Setup, TriagedFinding
from uops.fuzz.campaign.process import LIMITS, ProcessLost
from uops.fuzz.campaign.work import BATCH, CampaignJob, JobRunner, LocalPool, WorkerPool
from uops.fuzz.generate import kinds
from uops.fuzz.oracles.oracles import GENERATOR
from uops.fuzz.reduce.reduce import MOST
from uops.spec.untrusted import write_text

#: Maximum number of findings of one kind that are reduced to tell them apart.
MOST_REDUCED = 16
#: Maximum number of findings of each oracle and kind of fault that are triaged per batch.
PER_BATCH = 4
#: Seconds beyond its own for which a campaign waits for jobs to end.
GRACE = 3.0
#: Names of the journal and of the folder of reproducers, in the campaign's directory.
JOURNAL, FINDINGS = "journal.jsonl", "findings"


@dataclass(frozen=True, slots=True)
class MergedFinding:
    """The findings of one key: the least case number `k`, the `count` of findings, and the reproducer's `file`."""

    key: tuple[str, ...]
    k: int
    triaged: TriagedFinding
    count: int
    nodes: int | None = None
    file: str | None = None
    awaits_reduction: bool = False

    @property
    def unreduced_reason(self) -> str | None:
        """The reason why there is no reduced program; None if there is one."""
        if self.nodes is not None:
            return None
        if self.triaged.oracle == GENERATOR:
            return "the generator made no program"
        if self.awaits_reduction:
            return "not reduced: the campaign was over"
        return f"not reduced: {MOST_REDUCED} others of its kind were"


@dataclass(slots=True)
class Summary:
    """The results of a campaign. `raw` counts all findings by oracle and kind of fault; `untriaged` are those that are
    still to be triaged.
    """

    setup: Setup
    version: str
    cases: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    raw: Counter[str] = field(default_factory=Counter)
    findings: list[MergedFinding] = field(default_factory=list)
    vanished: list[int] = field(default_factory=list)
    seconds: float = 0.0
    complete: bool = True
    untriaged: list[Json] = field(default_factory=list)

    cases_before: int = 0
    jobs_done: int = 0

    @property
    def was_resumed(self) -> bool:
        """True if the journal had cases before this run."""
        return self.cases_before > 0

    @property
    def unfinished_findings_text(self) -> str:
        """A description of the work that is left on findings; "" if there is none."""
        unreduced = sum(f.awaits_reduction for f in self.findings)
        parts = [(len(self.untriaged), "not looked into"), (unreduced, "not reduced")]
        return ", ".join(f"{n} finding{'s' * (n != 1)} {words}" for n, words in parts if n)

    @property
    def had_nothing_to_do(self) -> bool:
        """True if all results came from the journal, and nothing was left to do."""
        return self.was_resumed and self.complete and not self.jobs_done

    @property
    def rate(self) -> float:
        """Cases per second of this run, including triage and reduction of findings."""
        return (self.cases - self.cases_before) / self.seconds if self.seconds else 0.0


#: Called with the campaign about ten times a second while it runs.
Progress = Callable[["Campaign"], None]


class Campaign:
    """The execution of a campaign; `run` returns its summary."""

    def __init__(
        self, setup: Setup, directory: Path, *, cases: int | None = None, seconds: float | None = None, jobs: int = 1,
        limits: Limits = LIMITS, max_questions: int = MOST, max_findings: int | None = None, cluster: str | None = None,
    ) -> None:  # fmt: skip
        """Start the subject and open the journal.

        `seconds` limits everything, findings included. A reduction asks at most `max_questions`. No case is begun after
        `max_findings` findings. `cluster` is the address of a Dask scheduler whose workers do all jobs; `jobs` is then
        ignored. Raises BrokenBackend, OtherCampaign, InUse, UnknownKind, NoCluster, OSError.
        """
        self.setup, self.directory, self.cases, self.seconds = setup, directory, cases, seconds
        self.max_questions, self.max_findings = max_questions, max_findings
        kinds.look_up_kinds(setup.kinds)
        self.pool: WorkerPool = LocalPool(setup, limits, jobs) if cluster is None else ClusterPool(setup, limits, cluster)
        try:
            self.version, self.declared = self.pool.query_common_subject_info()
            self.journal = Journal(directory / JOURNAL, self._journal_heading())
        except BaseException:
            self.pool.close()
            raise
        self.state = _CampaignState(self.journal)
        self.started = time.monotonic()
        self.cases_before = self.state.done_cases
        self._turn = threading.Condition()
        self._running = self._done = 0
        self._stop = False
        self._failure: BaseException | None = None

    @property
    def restarts(self) -> int:
        """The number of processes that were lost."""
        return self.pool.restarts

    def _journal_heading(self) -> Json:
        heading = self.setup.to_json()
        heading |= {"subject": self.version, "uops": __version__, "generator": kinds.VERSION, "batch": BATCH}
        declared = self.declared.to_json()
        return {"campaign": heading if declared is None else heading | {"declared": declared}}

    def run(self, progress: Progress | None = None) -> Summary:
        """Run to the end, or to Ctrl-C. A thread that does not end in time is abandoned: none of its questions is
        answered any more.
        """
        over = threading.Semaphore(0)  # after Ctrl-C in Thread.join, a running thread would count as ended

        def work() -> None:
            self._run_tasks_in_worker_thread()
            over.release()

        threads = [threading.Thread(target=work, daemon=True) for _ in range(self.pool.jobs)]
        for t in threads:
            t.start()
        running = len(threads)
        try:
            while running:
                running -= over.acquire(timeout=0.1)
                if progress:
                    progress(self)
                if (seconds_left := self._seconds_left) is not None and seconds_left < -GRACE:
                    self.pool.stop()
                    break
        except KeyboardInterrupt:
            self.stop()
        end = time.monotonic() + GRACE
        for t in threads:
            t.join(None if self.seconds is None else max(0.0, end - time.monotonic()))
        self.pool.close()
        self.journal.close()
        if self._failure is not None:
            raise self._failure
        return self.summarize_and_write_findings()

    @property
    def rate(self) -> float:
        """Cases per second so far."""
        return (self.state.done_cases - self.cases_before) / max(1e-9, time.monotonic() - self.started)

    @property
    def _seconds_left(self) -> float | None:
        """The seconds left; None without a limit."""
        return None if self.seconds is None else self.started + self.seconds - time.monotonic()

    @property
    def _is_over(self) -> bool:
        return self._seconds_left is not None and self._seconds_left <= 0

    def stop(self) -> None:
        """End early; the cases of interrupted batches that are done count."""
        with self._turn:
            self._stop = True
            self._turn.notify_all()
        self.pool.stop()

    def summarize_and_write_findings(self) -> Summary:
        """Return what the journal says, and write the files of the findings."""
        summary = Summary(self.setup, self.version, self.state.done_cases, self.state.counts, self.state.raw)
        summary.findings = self.state.merge_findings_by_cause()
        summary.vanished = sorted(k for k, t in self.state.triaged.items() if t is None)
        summary.untriaged = [f for k, f in sorted(self.state.findings.items()) if k not in self.state.triaged]
        summary.seconds = time.monotonic() - self.started
        summary.complete, summary.cases_before, summary.jobs_done = not self._stop, self.cases_before, self._done
        self.state.write_reduced_programs(self.directory / FINDINGS, summary.findings)
        return summary

    # Threads, one per runner

    def _run_tasks_in_worker_thread(self) -> None:
        try:
            with self.pool.acquire_runner() as runner:
                while (task := self._take_next_task_or_wait_for_running_ones()) is not None:
                    self._run_task_and_journal_result(task, runner)
        except BaseException as e:
            if not ((self._stop or self._is_over) and isinstance(e, ProcessLost | BrokenBackend)):
                self._failure = self._failure or e
                self.stop()

    def _take_next_task_or_wait_for_running_ones(self) -> _Task | None:
        """Return the next task, or None at the end. Waits while running tasks may still lead to others."""
        with self._turn:
            while not (self._stop or self._is_over):
                task = self.state.take_triage_or_reduction_task() or self._take_next_batch_unless_enough_findings()
                if task is not None:
                    self._running += 1
                    return task
                if not self._running:
                    return None
                self._turn.wait()
        return None

    def _take_next_batch_unless_enough_findings(self) -> _Task | None:
        if self.max_findings is not None and sum(self.state.raw.values()) >= self.max_findings:
            return None
        number = self.state.find_first_unfinished_untaken_batch(self.cases)
        if number is None:
            return None
        self.state.taken_tasks.add(("batch", number))
        return "batch", number

    def _run_task_and_journal_result(self, task: _Task, runner: JobRunner) -> None:
        try:
            line = runner.run_job(self._build_job(*task))
            if line is not None:
                self.journal.add({task[0]: line})
                with self._turn:
                    self.state.apply_journal_line(task[0], line)
                    self._done += 1
        finally:
            with self._turn:
                self._running -= 1
                self._turn.notify_all()

    def _build_job(self, task_kind: str, batch_or_case_number: int) -> CampaignJob:
        if task_kind == "batch":
            first = batch_or_case_number * BATCH
            start, stop = (
                first + self.state.done.get(batch_or_case_number, 0),
                first + _batch_case_count(batch_or_case_number, self.cases),
            )
            return CampaignJob(task_kind, batch_or_case_number, self.setup, stop, start=start, seconds=self._seconds_left)
        finding = self.state.triaged.get(batch_or_case_number)
        triaged, oracle = finding and finding.to_json(), self.state.oracle_of_finding(batch_or_case_number)
        return CampaignJob(
            task_kind, batch_or_case_number, self.setup, oracle=oracle, triaged=triaged, max_questions=self.max_questions,
            seconds=self._seconds_left,
        )  # fmt: skip


#: (kind of a job, number of a batch or case).
_Task = tuple[str, int]


def _batch_case_count(number: int, cases: int | None) -> int:
    """Return how many cases of a batch belong to a campaign of so many cases."""
    return BATCH if cases is None else max(0, min(BATCH, cases - number * BATCH))


class _CampaignState:
    """The contents of the journal in memory, and the tasks that they leave to do."""

    def __init__(self, journal: Journal) -> None:
        self.taken_tasks: set[_Task] = set()
        self.counts: Counter[str] = Counter()
        self.raw: Counter[str] = Counter()
        self.done_cases = 0
        self.done: dict[int, int] = {}  # number of cases done of each batch; they are its first ones
        self._partial: dict[int, Counter[tuple[str, str]]] = {}  # findings by kind of interrupted batches
        self.findings: dict[int, Json] = {}  # the findings to triage
        self.triaged: dict[int, TriagedFinding | None] = {}
        self.reduced: dict[int, Json] = {}
        self._first_open = 0  # all batches before it are done
        with journal.refuse_malformed_lines():
            for line in journal.lines_after_heading():
                for task_kind, entry in line.items():
                    self.apply_journal_line(task_kind, entry)

    def apply_journal_line(self, task_kind: str, line: Json) -> None:
        """Apply one line of the journal. An older version may have written it, so its texts are made printable."""
        if task_kind == "batch":
            self._apply_batch_progress_line(line | {"findings": make_texts_printable(line["findings"])})
            return
        line = make_texts_printable(line)
        if task_kind == "triaged":
            self.triaged[line["k"]] = line["triaged"] and TriagedFinding.from_json(line["triaged"])
            self.taken_tasks.add((task_kind, line["k"]))
        else:
            self.reduced[line["k"]] = line
            self.taken_tasks.add((task_kind, line["k"]))

    def _apply_batch_progress_line(self, line: Json) -> None:
        number = line["number"]
        self.taken_tasks.discard(("batch", number))
        self.done_cases += line["cases"]
        self.done[number] = self.done.get(number, 0) + line["cases"]
        self.counts.update(line["counts"])
        counts = self._partial.pop(number, Counter())
        for f in line["findings"]:
            kind = f["oracle"], f["fault"]["kind"]
            self.raw[" ".join(kind)] += 1
            counts[kind] += 1
            if counts[kind] <= PER_BATCH:
                self.findings[f["k"]] = f
        if self.done[number] < BATCH:
            self._partial[number] = counts

    def find_first_unfinished_untaken_batch(self, cases: int | None) -> int | None:
        """Return the first batch with cases left to do that no thread works on, or None."""
        while self.done.get(self._first_open, 0) >= BATCH:
            self._first_open += 1
        number = self._first_open
        while case_count := _batch_case_count(number, cases):
            if ("batch", number) not in self.taken_tasks and self.done.get(number, 0) < case_count:
                return number
            number += 1
        return None

    def oracle_of_finding(self, k: int) -> str:
        """Return the name of the oracle that objected to case `k`."""
        return str(self.findings[k]["oracle"])

    def take_triage_or_reduction_task(self) -> _Task | None:
        """Take a finding to triage, or one to reduce; return None if there is none."""
        for task in self._triage_and_reduction_tasks():
            if task not in self.taken_tasks:
                self.taken_tasks.add(task)
                return task
        return None

    def _triage_and_reduction_tasks(self) -> Iterator[_Task]:
        yield from (("triaged", k) for k in self.findings if k not in self.triaged)
        yield from (("reduced", k) for k in self._select_cases_to_reduce_or_reduced() if k not in self.reduced)

    def _select_cases_to_reduce_or_reduced(self) -> list[int]:
        """List the findings to reduce: the first of each key, and the first ones of each kind that is told apart by
        reduced programs.
        """
        first_of_key: dict[tuple[object, ...], int] = {}
        of_kind: dict[tuple[str, ...], list[int]] = {}
        for k, t in sorted(self.triaged.items()):
            if t is None or t.oracle == GENERATOR:
                continue
            if t.cause_key_without_ops[2]:
                first_of_key.setdefault((t.location is None, t.cause_key), k)
            else:
                of_kind.setdefault(t.cause_key_without_ops, []).append(k)
        return sorted([*first_of_key.values(), *(k for ks in of_kind.values() for k in ks[:MOST_REDUCED])])

    def merge_findings_by_cause(self) -> list[MergedFinding]:
        """Merge the findings of each key, using keys of reduced programs where these tell findings apart."""
        keys: dict[tuple[str, ...], list[int]] = {}
        to_reduce = self._select_cases_to_reduce_or_reduced()
        # Other findings may be reduced, too, depending on the order in which batches were done.
        reduced = {k: self.reduced[k] for k in to_reduce if k in self.reduced}
        for k, t in sorted(self.triaged.items()):
            if t is not None:
                identified = (
                    t if t.cause_key_without_ops[2] else TriagedFinding.from_json(reduced[k]["triaged"]) if k in reduced else None
                )
                keys.setdefault(t.cause_key_without_ops if identified is None else identified.cause_key, []).append(k)
        return [self._merged_finding(key, ks, reduced.get(ks[0]), ks[0] in to_reduce) for key, ks in keys.items()]

    def _merged_finding(
        self, key: tuple[str, ...], cases: list[int], reduced_line: Json | None, awaits_reduction: bool
    ) -> MergedFinding:
        k = cases[0]
        triaged = self.triaged[k] if reduced_line is None else TriagedFinding.from_json(reduced_line["triaged"])
        assert triaged is not None
        if reduced_line is None:
            return MergedFinding(key, k, triaged, len(cases), awaits_reduction=awaits_reduction)
        return MergedFinding(key, k, triaged, len(cases), reduced_line["nodes"], f"{finding_file_stem(k, triaged)}.uops")

    def write_reduced_programs(self, folder: Path, findings: list[MergedFinding]) -> None:
        """Write the files of the findings."""
        for f in findings:
            if f.file is not None:
                folder.mkdir(parents=True, exist_ok=True)
                write_text(folder / f.file, self.reduced[f.k]["text"])


def finding_file_stem(case_number: int, triaged: TriagedFinding) -> str:
    """Return the file name of a finding, without suffix: the case, the oracle, the first wrong pass and the rule."""
    location = triaged.location
    names: tuple[Any, ...] = (triaged.fault.kind,) if location is None else (location.pass_, location.rule or location.step)
    parts = [str(case_number), triaged.oracle, *(n for n in names if n)]
    return "-".join("".join(c if c.isalnum() else "_" for c in str(p)) for p in parts)
