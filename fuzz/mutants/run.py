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
from uops.backends.testing.journal import Journal
from uops.fuzz.generate.kinds import VERSION, stable_hash
from uops.fuzz.mutants.catalogue import Mutant
from uops.fuzz.mutants.hunt import Hunter, HuntImpossible, HuntStopped, Kill, list_unavailable_defences
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

    `results` are those so far; `passed_over` are the mutants that could not be hunted, with the reasons. Raises
    OtherCampaign for the directory of a run with other settings, InUse, and OSError.
    """

    def __init__(self, mutants: Sequence[Mutant], directory: Path, *, seconds: float, jobs: int = 1, seed: int = 0) -> None:
        counted = [m for m in mutants if not m.equivalent]
        # In random order, so that the first results are a fair sample.
        self.mutants = sorted(counted, key=lambda m: stable_hash(seed, m.id))
        self.directory, self.seconds, self.jobs, self.seed = directory, seconds, jobs, seed
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
        for t in threads:
            if t.ident is not None:  # Ctrl-C may come before the last has started
                t.join()
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
                        self._journal_hunt_and_save_killing_program(m, *hunter.hunt_by_all_defences_and_by_answers(m))
                    except HuntImpossible as e:
                        self.passed_over.append((m, str(e)))
            except HuntStopped:
                pass
            except BaseException as e:
                self._failure = e
                self._stop.set()

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


def _parse_result(m: Mutant, line: Json) -> MutantResult:
    everything, differential = (line[name] and Kill(**line[name]) for name in ("everything", "differential"))
    return MutantResult(m, everything, differential, line.get("generator"), line.get("absent", {}))


def median_of_known(values: Iterator[float | None]) -> float | None:
    """Return the median of the known values to a thousandth; None if there are none."""
    numbers = [v for v in values if v is not None]
    return round(statistics.median(numbers), 3) if numbers else None
