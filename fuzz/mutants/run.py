"""A run over all mutants, one after the other or several at a time, with its results on disk.

Takes: mutants, a directory, and the seconds of one hunt. Gives: one `MutantResult` per mutant that is not equivalent. A run
that was ended continues from its journal. A mutant whose text has changed since is hunted again, and so is one that the machine
prevented from being hunted, which leaves nothing in the journal.
"""

from __future__ import annotations

import hashlib
import statistics
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from uops import __version__
from uops.backends.testing.cluster import Cluster, ClusterStopped, make_stop_check
from uops.backends.testing.journal import Journal, digest_sources
from uops.fuzz.generate.kinds import VERSION, stable_hash
from uops.fuzz.mutants.catalogue import Mutant, load_mutants_by_id_or_class
from uops.fuzz.mutants.hunt import Hunter, HuntImpossible, HuntKills, HuntStopped, Kill, list_unavailable_defences
from uops.spec.untrusted import write_text

Json = dict[str, Any]
#: Names of the journal and of the folder of programs, in the run's directory.
JOURNAL, PROGRAMS = "journal.jsonl", "programs"


class MutantResult(NamedTuple):
    """The kills of a mutant, with everything on and by answers alone. `generator` is the version of the generator, None if
    the journal does not say. `absent` holds the defences that could not be used, with the reasons.
    """

    mutant: Mutant
    everything: Kill | None
    differential: Kill | None
    generator: int | None
    absent: Mapping[str, str]


class MutantRun:
    """The hunts for several mutants.

    `results` are those so far; `passed_over` are the mutants that could not be hunted, with the reasons. With the address of a
    scheduler in `cluster`, workers hunt, and `jobs` is ignored. Raises OtherCampaign for the directory of a run with other
    settings, InUse, NoCluster, and OSError.
    """

    def __init__(
        self,
        mutants: Sequence[Mutant],
        directory: Path,
        *,
        seconds: float,
        jobs: int = 1,
        seed: int = 0,
        cluster: str | None = None,
    ) -> None:
        counted = [m for m in mutants if not m.equivalent]
        # In random order, so that the first results are a fair sample.
        self.mutants = sorted(counted, key=lambda m: stable_hash(seed, m.id))
        self.cluster = None if cluster is None else _connect_to_workers_with_these_mutants(cluster, self.mutants)
        self.directory, self.seconds, self.seed = directory, seconds, seed
        self.jobs = jobs if self.cluster is None else self.cluster.thread_count
        self.journal = Journal(directory / JOURNAL, {"mutants": {"uops": __version__, "seconds": seconds, "seed": seed}})
        self.complete = True
        self.passed_over: list[tuple[Mutant, str]] = []
        self._absent = list_unavailable_defences()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._failure: BaseException | None = None

    @property
    def results(self) -> list[MutantResult]:
        """The results so far."""
        return self.read_results_from_journal(self.mutants)

    def read_results_from_journal(self, mutants: Iterable[Mutant]) -> list[MutantResult]:
        """Return the results of these mutants that the journal holds."""
        with self.journal.refuse_malformed_lines():
            entries = {(line["id"], line["text"]): line for line in self.journal.entries_under("hunted")}
            return [_parse_result(m, entries[m.id, _hunt_digest(m)]) for m in mutants if (m.id, _hunt_digest(m)) in entries]

    def run(self, on_poll: Callable[[MutantRun], None] = lambda run: None) -> list[MutantResult]:
        """Run to the end, or to Ctrl-C, and return the results. Calls `on_poll` about five times a second."""
        finished = {r.mutant.id for r in self.results}
        pending = iter([m for m in self.mutants if m.id not in finished])
        threads = [
            threading.Thread(target=self._hunt_pending_until_stopped, args=(pending,), daemon=True) for _ in range(self.jobs)
        ]
        try:
            for t in threads:
                t.start()
            while any(t.is_alive() for t in threads):
                self._stop.wait(0.2)
                on_poll(self)
                if self._stop.is_set():
                    break
        except KeyboardInterrupt:
            self._stop.set()
            self.complete = False
        if self._stop.is_set() and self.cluster is not None:
            self.cluster.stop()
        for t in threads:
            if t.ident is not None:  # Ctrl-C may come before the last has started
                t.join()
        if self.cluster is not None:
            self.cluster.close()
        self.journal.close()
        if self._failure is not None:
            raise self._failure
        return self.results

    def _hunt_pending_until_stopped(self, pending: Iterator[Mutant]) -> None:
        with Hunter(self.seconds, self.seed, self._stop.is_set) as hunter:
            try:
                while not self._stop.is_set():
                    with self._lock:
                        m = next(pending, None)
                    if m is None:
                        return
                    try:
                        kills = hunter.hunt_by_all_defences_and_by_answers(m) if self.cluster is None else self._hunt_on_cluster(m)
                        self._journal_hunt_and_save_killing_program(m, *kills)
                    except HuntImpossible as e:
                        self.passed_over.append((m, str(e)))
            except (HuntStopped, ClusterStopped):
                pass
            except BaseException as e:
                self._failure = e
                self._stop.set()

    def _hunt_on_cluster(self, mutant: Mutant) -> HuntKills:
        """Hunt a mutant on any worker. Raises HuntImpossible, ClusterStopped, NoCluster."""
        assert self.cluster is not None
        answer = self.cluster.call(hunt_on_worker, mutant.id, self.seconds, self.seed, self.cluster.stop_name)
        if isinstance(answer, str):
            raise HuntImpossible(answer)
        return HuntKills(*(k and Kill(**k) for k in answer))

    def _journal_hunt_and_save_killing_program(self, mutant: Mutant, *kills: Kill | None) -> None:
        """Write one line of the journal, and the program that shows the mutant."""
        line = {name: k and k._asdict() | {"text": ""} for name, k in zip(("everything", "differential"), kills, strict=True)}
        program = next((k.text for k in reversed(kills) if k is not None and k.text), "")
        path = self.directory / PROGRAMS / f"{mutant.id}.uops"
        if program:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, program)
        else:
            path.unlink(missing_ok=True)  # of an earlier text of the mutant
        self.journal.add(
            {"hunted": {"id": mutant.id, "text": _hunt_digest(mutant), "generator": VERSION, "absent": self._absent, **line}}
        )


def _hunt_digest(m: Mutant) -> str:
    """Return a digest of everything that determines a hunt."""
    return hashlib.sha256("\0".join((*m.edit, m.backend)).encode()).hexdigest()[:16]


def _connect_to_workers_with_these_mutants(address: str, mutants: Sequence[Mutant]) -> Cluster:
    """Connect to a cluster. Raises NoCluster if a worker has other mutants, another generator or other defences."""
    cluster, ids = Cluster(address), [m.id for m in mutants]
    cluster.require_same_on_workers(describe_hunts, ids, here=describe_hunts(ids))
    return cluster


# On a worker


def describe_hunts(mutant_ids: Sequence[str]) -> dict[str, Any]:
    """Return what decides the hunts for some mutants on this machine, as far as it is known."""
    chosen = [_hunt_digest(m) for m in load_mutants_by_id_or_class() if m.id in frozenset(mutant_ids)]
    texts = hashlib.sha256(repr(chosen).encode()).hexdigest()[:16]
    return {
        "version": __version__,
        "sources": digest_sources(),
        "generator": VERSION,
        "mutants": texts,
        "defences missing": list_unavailable_defences(),
    }


def hunt_on_worker(mutant_id: str, seconds: float, seed: int, stop_name: str) -> list[Json | None] | str:
    """Hunt a mutant by its id; return the two kills as JSON, or the reason why nothing can be said. Raises StaleMutant."""
    (mutant,) = (m for m in load_mutants_by_id_or_class() if m.id == mutant_id)
    try:
        with Hunter(seconds, seed, make_stop_check(stop_name)) as hunter:
            return [k and k._asdict() for k in hunter.hunt_by_all_defences_and_by_answers(mutant)]
    except HuntStopped:  # nobody waits for the answer
        return "the run has ended"
    except HuntImpossible as e:
        return str(e)


def _parse_result(m: Mutant, line: Json) -> MutantResult:
    everything, differential = (line[name] and Kill(**line[name]) for name in ("everything", "differential"))
    return MutantResult(m, everything, differential, line.get("generator"), line.get("absent", {}))


def median_of_known(values: Iterator[float | None]) -> float | None:
    """Return the median of the known values to a thousandth; None if there are none."""
    numbers = [v for v in values if v is not None]
    return round(statistics.median(numbers), 3) if numbers else None
