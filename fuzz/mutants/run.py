"""All mutants, one after the other or several at a time, with what is done on disk.

Takes: mutants, a directory, and how long each may be hunted. Gives: one `Result` per mutant that is no equivalent. A run that was
ended goes on from its journal; a mutant whose text was changed since is hunted again. So is one that the machine kept from being
hunted: the journal is told nothing of it.
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
from uops.fuzz.generate.kinds import VERSION, number
from uops.fuzz.mutants.catalogue import Mutant
from uops.fuzz.mutants.hunt import Hunter, Kill, NotHunted, Stopped, absent
from uops.spec.untrusted import write_text

Json = dict[str, Any]
JOURNAL, PROGRAMS = "journal.jsonl", "programs"


class Result(NamedTuple):
    """Who saw a mutant with everything on, and who by answers alone; in cases of which version of the generator, None where the
    journal does not say; and the defences that could not be asked, with the reason."""

    mutant: Mutant
    everything: Kill | None
    differential: Kill | None
    generator: int | None
    absent: Mapping[str, str]


class Run:
    """`results` are those so far, `passed_over` the mutants that could not be hunted, with the reason. Raises OtherCampaign for the
    directory of a run with other settings, InUse, and OSError."""

    def __init__(self, mutants: Sequence[Mutant], directory: Path, *, seconds: float, jobs: int = 1, seed: int = 0) -> None:
        counted = [m for m in mutants if not m.equivalent]
        self.mutants = sorted(counted, key=lambda m: number(seed, m.id))  # so that what is done first is a fair sample
        self.directory, self.seconds, self.jobs, self.seed = directory, seconds, jobs, seed
        self.journal = Journal(directory / JOURNAL, {"mutants": {"uops": __version__, "seconds": seconds, "seed": seed}})
        self.complete = True
        self.passed_over: list[tuple[Mutant, str]] = []
        self._absent = absent()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._failure: BaseException | None = None

    @property
    def results(self) -> list[Result]:
        return self.of(self.mutants)

    def of(self, mutants: Iterable[Mutant]) -> list[Result]:
        """What the journal says of these mutants."""
        with self.journal.refuse_other_forms():
            known = {(line["id"], line["text"]): line for line in self.journal.of("hunted")}
            return [_result(m, known[m.id, _text(m)]) for m in mutants if (m.id, _text(m)) in known]

    def run(self, progress: Callable[[Run], None] = lambda run: None) -> list[Result]:
        """Run to the end, or to Ctrl-C."""
        done = {r.mutant.id for r in self.results}
        left = iter([m for m in self.mutants if m.id not in done])
        threads = [threading.Thread(target=self._work, args=(left,), daemon=True) for _ in range(self.jobs)]
        for t in threads:
            t.start()
        try:
            while any(t.is_alive() for t in threads):
                self._stop.wait(0.2)
                progress(self)
                if self._stop.is_set():
                    break
        except KeyboardInterrupt:
            self._stop.set()
            self.complete = False
        for t in threads:
            t.join()
        self.journal.close()
        if self._failure is not None:
            raise self._failure
        return self.results

    def _work(self, left: Iterator[Mutant]) -> None:
        with Hunter(self.seconds, self.seed, self._stop.is_set) as hunter:
            try:
                while not self._stop.is_set():
                    with self._lock:
                        m = next(left, None)
                    if m is None:
                        return
                    try:
                        self._note(m, *hunter.hunt(m))
                    except NotHunted as e:
                        self.passed_over.append((m, str(e)))
            except Stopped:
                pass
            except BaseException as e:
                self._failure = e
                self._stop.set()

    def _note(self, m: Mutant, *kills: Kill | None) -> None:
        """One line of the journal, and the program that shows the mutant."""
        line = {name: k and k._asdict() | {"text": ""} for name, k in zip(("everything", "differential"), kills, strict=True)}
        program = next((k.text for k in reversed(kills) if k is not None and k.text), "")
        if program:
            folder = self.directory / PROGRAMS
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / f"{m.id}.uops", program)
        self.journal.add({"hunted": {"id": m.id, "text": _text(m), "generator": VERSION, "absent": self._absent, **line}})


def _text(m: Mutant) -> str:
    """A digest of what decides a hunt."""
    return hashlib.sha256("\0".join((*m.edit, m.backend)).encode()).hexdigest()[:16]


def _result(m: Mutant, line: Json) -> Result:
    everything, differential = (line[name] and Kill(**line[name]) for name in ("everything", "differential"))
    return Result(m, everything, differential, line.get("generator"), line.get("absent", {}))


def median(values: Iterator[float | None]) -> float | None:
    """The median of what is known, to a thousandth."""
    known = [v for v in values if v is not None]
    return round(statistics.median(known), 3) if known else None
