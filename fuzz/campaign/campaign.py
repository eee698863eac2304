"""A campaign: cases in batches, in several processes, with everything that was found on disk.

Takes: a `Setup`, a directory, and how many cases or for how long. Gives: a `Summary`, which is a function of the set-up and of the
batches that were done: a campaign that was killed at any moment goes on from its journal and ends with the findings and counters of
one that was not. The seconds of a campaign are those of all that it does, from when the subject has started. What is at work when
they are over is cut off: of a batch, the cases that were done count; a finding that is not triaged or reduced by then is said to be
so, and is when the campaign goes on.

A finding is a case and the oracle that objected. Some of each batch (`PER_BATCH` of each oracle and kind of fault) are *triaged*:
judged again and bisected. Of findings with one key the one of the least number is reduced and kept; where no rule, no step and no
place of an error tells them apart, the reduced programs are what is compared, of the first `MOST_REDUCED` of each oracle and pass
or kind of fault.
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
from uops.backends.worker.frames import printable_texts
from uops.fuzz.campaign.cluster import Cluster
from uops.fuzz.campaign.examine import Json, Setup, Triaged
from uops.fuzz.campaign.process import LIMITS, Lost
from uops.fuzz.campaign.work import BATCH, Crew, Hand, Job, Local
from uops.fuzz.generate import kinds
from uops.fuzz.oracles.oracles import GENERATOR
from uops.fuzz.reduce.reduce import MOST
from uops.spec.untrusted import write_text

MOST_REDUCED = 16
PER_BATCH = 4
#: Seconds beyond its own that a campaign waits for jobs to end.
GRACE = 3.0
JOURNAL, FINDINGS = "journal.jsonl", "findings"


@dataclass(frozen=True, slots=True)
class Found:
    """Findings of one key: the least number among them, how many there are, and the reproducer's file; `waits`: it is still to be
    reduced."""

    key: tuple[str, ...]
    k: int
    triaged: Triaged
    count: int
    nodes: int | None = None
    file: str | None = None
    waits: bool = False

    @property
    def unreduced(self) -> str | None:
        """Why there is no reduced program; None where there is one."""
        if self.nodes is not None:
            return None
        if self.triaged.oracle == GENERATOR:
            return "the generator made no program"
        return "not reduced: the campaign was over" if self.waits else f"not reduced: {MOST_REDUCED} others of its kind were"


@dataclass(slots=True)
class Summary:
    """What a campaign has done. `raw` counts the findings by oracle and kind of fault, merged or not; `waiting` are those that are
    still to be triaged."""

    setup: Setup
    version: str
    cases: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    raw: Counter[str] = field(default_factory=Counter)
    found: list[Found] = field(default_factory=list)
    vanished: list[int] = field(default_factory=list)
    seconds: float = 0.0
    complete: bool = True
    waiting: list[Json] = field(default_factory=list)

    began: int = 0
    jobs_done: int = 0

    @property
    def resumed(self) -> bool:
        """Whether a journal had cases before this run."""
        return self.began > 0

    @property
    def unfinished(self) -> str:
        """The work that is left on findings, in words; "" if there is none."""
        reduced = sum(f.waits for f in self.found)
        parts = [(len(self.waiting), "not looked into"), (reduced, "not reduced")]
        return ", ".join(f"{n} finding{'s' * (n != 1)} {words}" for n, words in parts if n)

    @property
    def idle(self) -> bool:
        """Whether all of this came from the journal, and nothing was left to do."""
        return self.resumed and self.complete and not self.jobs_done

    @property
    def rate(self) -> float:
        """Cases a second of this run, findings' triage and reduction included."""
        return (self.cases - self.began) / self.seconds if self.seconds else 0.0


Progress = Callable[["Campaign"], None]


class Campaign:
    """One run of a campaign; `run` gives its summary."""

    def __init__(
        self, setup: Setup, directory: Path, *, cases: int | None = None, seconds: float | None = None, jobs: int = 1,
        limits: Limits = LIMITS, most: int = MOST, until: int | None = None, cluster: str | None = None,
    ) -> None:  # fmt: skip
        """`seconds` are for everything, findings included. `most` questions are asked to reduce a finding; with `until`, no case is
        begun after so many findings. `cluster` is the address of a Dask scheduler, whose workers do it all; `jobs` says nothing
        then. Raises BrokenBackend, OtherCampaign, InUse, UnknownKind, NoCluster, OSError."""
        self.setup, self.directory, self.cases, self.seconds = setup, directory, cases, seconds
        self.most, self.until = most, until
        kinds.known(setup.kinds)
        self.crew: Crew = Local(setup, limits, jobs) if cluster is None else Cluster(setup, limits, cluster)
        try:
            self.version, self.declared = self.crew.subject()
            self.journal = Journal(directory / JOURNAL, self._heading())
        except BaseException:
            self.crew.close()
            raise
        self.state = _State(self.journal)
        self.started = time.monotonic()
        self.before = self.state.done_cases
        self._turn = threading.Condition()
        self._running = self._done = 0
        self._stop = False
        self._failure: BaseException | None = None

    @property
    def restarts(self) -> int:
        """Processes that were lost."""
        return self.crew.restarts

    def _heading(self) -> Json:
        head = self.setup.to_json()
        head |= {"subject": self.version, "uops": __version__, "generator": kinds.VERSION, "batch": BATCH}
        declared = self.declared.to_json()
        return {"campaign": head if declared is None else head | {"declared": declared}}

    def run(self, progress: Progress | None = None) -> Summary:
        """Run to the end, or to Ctrl-C. A thread that does not end in time is left alone: it gets no answer any more."""
        over = threading.Semaphore(0)  # Ctrl-C in Thread.join would make a thread that runs pass for one that has ended

        def work() -> None:
            self._work()
            over.release()

        threads = [threading.Thread(target=work, daemon=True) for _ in range(self.crew.jobs)]
        for t in threads:
            t.start()
        running = len(threads)
        try:
            while running:
                running -= over.acquire(timeout=0.1)
                if progress:
                    progress(self)
                if (left := self._left) is not None and left < -GRACE:
                    self.crew.stop()
                    break
        except KeyboardInterrupt:
            self.stop()
        end = time.monotonic() + GRACE
        for t in threads:
            t.join(None if self.seconds is None else max(0.0, end - time.monotonic()))
        self.crew.close()
        self.journal.close()
        if self._failure is not None:
            raise self._failure
        return self.summary()

    @property
    def rate(self) -> float:
        """Cases a second so far."""
        return (self.state.done_cases - self.before) / max(1e-9, time.monotonic() - self.started)

    @property
    def _left(self) -> float | None:
        """Seconds that are left; None where there is no end."""
        return None if self.seconds is None else self.started + self.seconds - time.monotonic()

    @property
    def _is_over(self) -> bool:
        return self._left is not None and self._left <= 0

    def stop(self) -> None:
        """End early: of batches in the making, what was done counts."""
        with self._turn:
            self._stop = True
            self._turn.notify_all()
        self.crew.stop()

    def summary(self) -> Summary:
        """What the journal says; writes the files of the findings."""
        found = Summary(self.setup, self.version, self.state.done_cases, self.state.counts, self.state.raw)
        found.found = self.state.merged()
        found.vanished = sorted(k for k, t in self.state.triaged.items() if t is None)
        found.waiting = [f for k, f in sorted(self.state.findings.items()) if k not in self.state.triaged]
        found.seconds = time.monotonic() - self.started
        found.complete, found.began, found.jobs_done = not self._stop, self.before, self._done
        self.state.write(self.directory / FINDINGS, found.found)
        return found

    # One thread per hand.

    def _work(self) -> None:
        try:
            with self.crew.hand() as hand:
                while (task := self._next()) is not None:
                    self._do(task, hand)
        except BaseException as e:
            if not ((self._stop or self._is_over) and isinstance(e, Lost | BrokenBackend)):
                self._failure = self._failure or e
                self.stop()

    def _next(self) -> _Task | None:
        """What to do next; waits while others may still find something to do."""
        with self._turn:
            while not (self._stop or self._is_over):
                task = self.state.follow_up() or self._batch()
                if task is not None:
                    self._running += 1
                    return task
                if not self._running:
                    return None
                self._turn.wait()
        return None

    def _batch(self) -> _Task | None:
        if self.until is not None and sum(self.state.raw.values()) >= self.until:
            return None
        number = self.state.next_batch(self.cases)
        if number is None:
            return None
        self.state.taken.add(("batch", number))
        return "batch", number

    def _do(self, task: _Task, hand: Hand) -> None:
        try:
            line = hand.line(self._job(*task))
            if line is not None:
                self.journal.add({task[0]: line})
                with self._turn:
                    self.state.learn(task[0], line)
                    self._done += 1
        finally:
            with self._turn:
                self._running -= 1
                self._turn.notify_all()

    def _job(self, about: str, number: int) -> Job:
        if about == "batch":
            first = number * BATCH
            start, stop = first + self.state.done.get(number, 0), first + _wanted(number, self.cases)
            return Job(about, number, self.setup, stop, start=start, seconds=self._left)
        triaged = self.state.triaged.get(number)
        known = triaged and triaged.to_json()
        return Job(about, number, self.setup, 0, self.state.oracle(number), known, self.most, seconds=self._left)


_Task = tuple[str, int]


def _wanted(number: int, cases: int | None) -> int:
    """How many cases of a batch a campaign of so many wants."""
    return BATCH if cases is None else max(0, min(BATCH, cases - number * BATCH))


class _State:
    """What the journal says, in memory, and what it leaves to do."""

    def __init__(self, journal: Journal) -> None:
        self.taken: set[_Task] = set()
        self.counts: Counter[str] = Counter()
        self.raw: Counter[str] = Counter()
        self.done_cases = 0
        self.done: dict[int, int] = {}  # cases of each batch, which are its first ones
        self._met: dict[int, Counter[tuple[str, str]]] = {}  # of batches that were cut: how many findings of each kind
        self.findings: dict[int, Json] = {}  # those that are triaged
        self.triaged: dict[int, Triaged | None] = {}
        self.reduced: dict[int, Json] = {}
        self._low = 0
        with journal.refuse_other_forms():
            for line in journal.lines():
                for about, found in line.items():
                    self.learn(about, found)

    def learn(self, about: str, line: Json) -> None:
        """One line of the journal; its texts may be older than what makes them safe."""
        if about == "batch":
            self._learn_batch(line | {"findings": printable_texts(line["findings"])})
            return
        line = printable_texts(line)
        if about == "triaged":
            self.triaged[line["k"]] = line["triaged"] and Triaged.of(line["triaged"])
            self.taken.add((about, line["k"]))
        else:
            self.reduced[line["k"]] = line
            self.taken.add((about, line["k"]))

    def _learn_batch(self, line: Json) -> None:
        number = line["number"]
        self.taken.discard(("batch", number))
        self.done_cases += line["cases"]
        self.done[number] = self.done.get(number, 0) + line["cases"]
        self.counts.update(line["counts"])
        kinds_ = self._met.pop(number, Counter())
        for f in line["findings"]:
            kind = f["oracle"], f["fault"]["kind"]
            self.raw[" ".join(kind)] += 1
            kinds_[kind] += 1
            if kinds_[kind] <= PER_BATCH:
                self.findings[f["k"]] = f
        if self.done[number] < BATCH:
            self._met[number] = kinds_

    def next_batch(self, cases: int | None) -> int | None:
        """The first one of which something is left to do."""
        while self.done.get(self._low, 0) >= BATCH:
            self._low += 1
        number = self._low
        while wanted := _wanted(number, cases):
            if ("batch", number) not in self.taken and self.done.get(number, 0) < wanted:
                return number
            number += 1
        return None

    def oracle(self, k: int) -> str:
        return str(self.findings[k]["oracle"])

    def follow_up(self) -> _Task | None:
        """A finding to triage, or one to reduce."""
        for task in self._to_do():
            if task not in self.taken:
                self.taken.add(task)
                return task
        return None

    def _to_do(self) -> Iterator[_Task]:
        yield from (("triaged", k) for k in self.findings if k not in self.triaged)
        yield from (("reduced", k) for k in self._kept() if k not in self.reduced)

    def _kept(self) -> list[int]:
        """The findings that are reduced: the first of each key, and the first ones of each kind that has to be told apart so."""
        least: dict[tuple[object, ...], int] = {}
        alike: dict[tuple[str, ...], list[int]] = {}
        for k, t in sorted(self.triaged.items()):
            if t is None or t.oracle == GENERATOR:
                continue
            if t.kind[2]:
                least.setdefault((t.place is None, t.key), k)
            else:
                alike.setdefault(t.kind, []).append(k)
        return sorted([*least.values(), *(k for ks in alike.values() for k in ks[:MOST_REDUCED])])

    def merged(self) -> list[Found]:
        """One entry per key, of what was reduced; the findings of a key that were not are in its count."""
        keys: dict[tuple[str, ...], list[int]] = {}
        kept = self._kept()
        small = {k: self.reduced[k] for k in kept if k in self.reduced}  # what else was depends on when batches were done
        for k, t in sorted(self.triaged.items()):
            if t is not None:
                known = t if t.kind[2] else Triaged.of(small[k]["triaged"]) if k in small else None
                keys.setdefault(t.kind if known is None else known.key, []).append(k)
        return [self._entry(key, ks, small.get(ks[0]), ks[0] in kept) for key, ks in keys.items()]

    def _entry(self, key: tuple[str, ...], ks: list[int], small: Json | None, kept: bool) -> Found:
        k = ks[0]
        triaged = self.triaged[k] if small is None else Triaged.of(small["triaged"])
        assert triaged is not None
        if small is None:
            return Found(key, k, triaged, len(ks), waits=kept)
        return Found(key, k, triaged, len(ks), small["nodes"], f"{name(k, triaged)}.uops")

    def write(self, folder: Path, found: list[Found]) -> None:
        """The files of the findings."""
        for f in found:
            if f.file is not None:
                folder.mkdir(parents=True, exist_ok=True)
                write_text(folder / f.file, self.reduced[f.k]["text"])


def name(k: int, t: Triaged) -> str:
    """What the file of a finding is called: the case, the oracle, the first bad pass and the rule."""
    place: tuple[Any, ...] = () if t.place is None else (t.place.pass_, t.place.rule or t.place.step)
    parts = [str(k), t.oracle, *(p for p in place if p)] if place else [str(k), t.oracle, t.fault.kind]
    return "-".join("".join(c if c.isalnum() else "_" for c in str(p)) for p in parts)
