"""The hunt for one mutant: what its package's own defences say, and campaigns on it until one finds something.

Takes: a mutant, and for how long. Gives: for each of two defences a `Kill`, or None where it sees nothing: everything there is, and
the oracles that compare answers alone. What compares answers is asked first, on a package in which every rule fires and no verifier
looks on: who is killed so is killed with everything on, where the proof of a changed rule may say so before. Only where that ends
with nothing, golden files are asked, and then campaigns with the verifier and the validator. Time is that of processors, of all
processes of a hunt, so that a busy machine changes nothing.

A finding counts where triage confirms it and the package without the mutant has no objection to the same program. A package that
does not start is a kill where the package without the mutant starts. Of what the machine keeps from being hunted nothing is said
but the reason.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from uops.backends.registry import BrokenBackend
from uops.backends.testing.journal import lines_so_far
from uops.fuzz.campaign.campaign import JOURNAL
from uops.fuzz.campaign.examine import Setup
from uops.fuzz.campaign.process import LIMITS, Examiner
from uops.fuzz.campaign.work import drawn, settled
from uops.fuzz.generate import kinds
from uops.fuzz.mutants.catalogue import PACKAGE, Edit, Mutant, changed
from uops.fuzz.mutants.overlay import overlay
from uops.fuzz.oracles.oracles import ORACLES
from uops.fuzz.reduce import reproducer
from uops.spec.errors import UopsError

Json = dict[str, Any]
#: What a campaign draws: all that a backend of one device runs.
KINDS = tuple(k for k in kinds.KINDS if k not in ("devices", "bestiary"))
#: Oracles that are no comparison of two answers.
NOT_DIFFERENTIAL = frozenset({"form", "validated"})
ANSWERS = tuple(o for o in ORACLES if o not in NOT_DIFFERENTIAL)
#: What the hunt by answers alone changes beside: rules need no proof, and no verifier runs between passes. Only a package that an
#: overlay made can be told so.
BLIND = (
    Edit("compiler/prove/admission.py", "return (_proved() or {}).get(rule.name) == digest(rule)", "return True"),
    Edit("compiler/pipeline.py", "    if not state.config.verify:\n", "    if True:\n"),
)
#: Hunts are measured in processor time, so that a start may take long.
PATIENT = replace(LIMITS, start=600.0)
#: Processor seconds for triage - a program that does not end is asked about twice - and questions and seconds to reduce a finding.
CONFIRMING, MOST, REDUCING = 2.5 * PATIENT.timeout, 100, 30.0
#: Tests that compare with golden files, where there is a checkout.
_GOLDENS = ("tests/compiler/test_stage_goldens.py", "tests/backends/test_llvm_render.py", "tests/backends/test_opencl_launch.py")
_LOOK = 0.5
#: Processor seconds that a package has at least to show that it starts.
_STARTING = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Kill(NamedTuple):
    """Who saw a mutant, after how many processor seconds and cases; `nodes` are those of the reduced program, `text` its file."""

    by: str
    kind: str
    seconds: float
    cases: int | None = None
    nodes: int | None = None
    text: str = ""


class Stopped(Exception):
    """The run is to end."""


class NotHunted(UopsError):
    """Nothing can be said of a mutant: the package without it does not start either, or no case was judged."""


class Hunter:
    """Hunts mutants, one at a time. `seconds` is the time of one hunt. Use as a context manager."""

    def __init__(self, seconds: float, seed: int, stopped: Callable[[], bool] = lambda: False) -> None:
        self.seconds, self.seed, self.stopped = seconds, seed, stopped
        self._clean: dict[str, Examiner] = {}
        self._well: dict[tuple[str, ...], bool] = {}

    def __enter__(self) -> Hunter:
        return self

    def __exit__(self, *exception: object) -> None:
        for examiner in self._clean.values():
            examiner.close()

    def hunt(self, m: Mutant) -> tuple[Kill | None, Kill | None]:
        """Who sees it with everything on, and who by answers alone. Raises Stale, Stopped and NotHunted."""
        proof = self._ledger(m)
        answers = self._campaigns(m, (m.edit, *BLIND), ANSWERS)
        if proof or answers:
            return proof or answers, answers
        return self._goldens(m) or self._campaigns(m, (m.edit,), tuple(ORACLES)), None

    # Campaigns

    def _campaigns(self, m: Mutant, edits: tuple[Edit, ...], oracles: tuple[str, ...]) -> Kill | None:
        """Campaigns of one seed after the other, until one finds something that is there or the time is over."""
        with tempfile.TemporaryDirectory(prefix="uops-mutant-") as folder:
            path = overlay(Path(folder) / "path", changed(edits))
            spent, cases, number = 0.0, 0, 0
            while spent < self.seconds:
                setup = Setup(m.backend, kinds.number(self.seed, m.id, number), KINDS, oracles)
                trial = _Trial(path, Path(folder) / str(number), setup)
                found = trial.run(self.seconds - spent, self.stopped)
                if found is not None and not found.cases:
                    self._start(setup, [e for e in edits if e != m.edit])
                    return found._replace(seconds=round(found.seconds + spent, 2), cases=cases)
                if found is not None and self._is_new(found, setup):
                    return found._replace(seconds=round(found.seconds + spent, 2), cases=(found.cases or 0) + cases)
                spent, cases, number = spent + max(0.5, trial.spent), cases + trial.cases, number + 1
        if not cases:
            raise NotHunted(f"no case was judged in {self.seconds:g} processor seconds")
        return None

    def _start(self, setup: Setup, edits: list[Edit]) -> None:
        """Raises NotHunted where the package without the mutant does not come to the end of a batch now, either. It is asked each
        time: a disk that was free a while ago may be full."""
        with tempfile.TemporaryDirectory(prefix="uops-mutant-") as folder:
            path = overlay(Path(folder) / "path", changed(edits))
            trial = _Trial(path, Path(folder) / "0", setup)
            broken = trial.run(max(self.seconds, _STARTING), self.stopped, once=True)
            if not trial.cases:
                why = broken.kind if broken is not None and broken.kind else "no case was judged"
                raise NotHunted(f"without the mutant, {setup.backend} does not start either: {why}")

    def _is_new(self, found: Kill, setup: Setup) -> bool:
        """Whether the package without the mutant has no objection to the program, reduced or as drawn. Raises NotHunted."""
        if setup.backend not in self._clean:
            self._clean[setup.backend] = Examiner(Setup(setup.backend), PATIENT)
        clean = self._clean[setup.backend]
        small = _reduced(found)
        try:
            if small is not None:
                return clean.triage(small.sample, small.about["seed"], small.about["oracle"]) is None
            k = (found.cases or 1) - 1
            return clean.triage(*settled(clean, *drawn(clean, setup, k), found.by)) is None
        except BrokenBackend as e:
            raise NotHunted(f"without the mutant, {setup.backend} does not start: {e}") from e

    # What the package says of itself

    def _ledger(self, m: Mutant) -> Kill | None:
        """The proofs of the theme whose file is changed."""
        if not m.edit.file.startswith("compiler/rewrite/rules/"):
            return None
        theme = Path(m.edit.file).stem
        return self._asked(m, "ledger", ["-m", "uops", "prove", "--no-write", "--jobs", "1", "--rules", theme])

    def _goldens(self, m: Mutant) -> Kill | None:
        """The golden files of the tests, in a checkout."""
        root = PACKAGE.parents[1]
        files = _golden_files()
        options = ["-q", "-x", "-p", "no:cacheprovider", "-c", str(root / "pyproject.toml"), "--rootdir", str(root)]
        return self._asked(m, "goldens", ["-m", "pytest", *options, *files]) if files else None

    def _asked(self, m: Mutant, by: str, command: list[str]) -> Kill | None:
        """Whether a command ends with status 1 on the mutant's package, and with 0 on one without a mutant."""
        status, spent = self._status(command, (m.edit,))
        if status == 1 and (by, *command) not in self._well:
            self._well[by, *command] = self._status(command, ())[0] == 0
        return Kill(by, "refuted", round(spent, 2)) if status == 1 and self._well[by, *command] else None

    def _status(self, command: list[str], edits: tuple[Edit, ...]) -> tuple[int | None, float]:
        """The exit status of a command, None where the time was over, and its processor seconds."""
        spent = 0.0
        with tempfile.TemporaryDirectory(prefix="uops-mutant-") as folder:
            process = _started([sys.executable, *command], overlay(Path(folder) / "path", changed(edits)), Path(folder))
            used = Processors(process.pid)
            try:
                while process.poll() is None and spent <= self.seconds:
                    if self.stopped():
                        raise Stopped
                    time.sleep(_LOOK)
                    spent = used.seconds()
                return process.poll(), spent
            finally:
                _end(process)


def _reduced(found: Kill) -> reproducer.Reproducer | None:
    """The program of a finding; None where it was not reduced, and where the text is none that this package reads, as what a mutant
    of the generator's own ground makes."""
    if not found.text:
        return None
    with tempfile.NamedTemporaryFile("w", suffix=".uops", encoding="utf-8") as f:
        f.write(found.text)
        f.flush()
        try:
            return reproducer.read(Path(f.name))
        except (UopsError, ValueError, LookupError):
            return None


def absent() -> dict[str, str]:
    """The defences that cannot be asked here, and why."""
    found = {}
    if find_spec("z3") is None:
        found["ledger"] = "z3-solver is not installed"
    if not _golden_files():
        found["goldens"] = "there is no checkout"
    elif find_spec("pytest") is None:
        found["goldens"] = "pytest is not installed"
    return found


def _golden_files() -> list[str]:
    root = PACKAGE.parents[1]
    return [str(root / f) for f in _GOLDENS if (root / f).is_file()]


class _Trial:
    """One campaign in a process of its own: `spent` are its processor seconds, `cases` those that it judged."""

    def __init__(self, path: Path, directory: Path, setup: Setup) -> None:
        self.path, self.directory, self.setup = path, directory, setup
        self.spent = 0.0
        self.cases = 0
        self._seen: float | None = None  # when a batch with a finding was done
        self._confirmed = 0.0  # when it was triaged

    def run(self, seconds: float, stopped: Callable[[], bool], once: bool = False) -> Kill | None:
        """Who found something; with `once`, no longer than to the end of the first batch."""
        self.directory.mkdir()
        setup = json.dumps(self.setup.to_json())
        command = [sys.executable, "-m", "uops.fuzz.mutants.trial", setup, str(self.directory / "campaign"), str(MOST)]
        process = _started(command, self.path, self.directory)
        used = Processors(process.pid)
        try:
            while process.poll() is None:
                time.sleep(_LOOK)
                self.spent = used.seconds()
                if stopped():
                    raise Stopped
                lines = self._lines()
                if "reduced" in lines or (once and self.cases) or self.spent > self._limit(lines, seconds):
                    break
        finally:
            _end(process)
        return self._kill(self._lines()) or self._broken(process)

    def _limit(self, lines: Mapping[str, list[Json]], seconds: float) -> float:
        """When to stop: with nothing found, with nothing confirmed, with what is not yet small."""
        if self._seen is None:
            return seconds
        if "triaged" not in lines:
            self._confirmed = self.spent
            return self._seen + CONFIRMING
        return self._confirmed + REDUCING

    def _lines(self) -> dict[str, list[Json]]:
        """What the journal says by now."""
        found: dict[str, list[Json]] = {}
        path = self.directory / "campaign" / JOURNAL
        for whole in lines_so_far(path):
            for about, line in whole.items():
                found.setdefault(about, []).append(line)
        self.cases = sum(b["cases"] for b in found.get("batch", ()))
        if self._seen is None and any(b["findings"] for b in found.get("batch", ())):
            self._seen = self.spent
        return found

    def _kill(self, lines: Mapping[str, list[Json]]) -> Kill | None:
        """The first finding that triage confirmed, and what it was reduced to."""
        confirmed = {t["k"]: t["triaged"] for t in lines.get("triaged", ()) if t["triaged"]}
        if not confirmed or self._seen is None:
            return None
        small = next(iter(lines.get("reduced", ())), None)
        k = min(confirmed) if small is None else small["k"]
        t = confirmed[k]
        place = t["place"]["pass_"] if t["place"] else ""
        nodes, text = (None, "") if small is None else (small["nodes"], small["text"])
        return Kill(t["oracle"], " ".join(filter(None, (t["fault"]["kind"], place))), self._seen, k + 1, nodes, text)

    def _broken(self, process: subprocess.Popen[bytes]) -> Kill | None:
        """A package that does not even start."""
        if process.returncode in (0, -signal.SIGKILL) or self.cases:
            return None
        said = (self.directory / "log").read_text(encoding="utf-8", errors="replace")
        if "no answer within" in said:  # a machine that is too busy
            return None
        return Kill("start", said.strip().splitlines()[-1][:120] if said.strip() else "", self.spent, 0)


def _started(command: list[str], path: Path, directory: Path) -> subprocess.Popen[bytes]:
    """A process, in a session of its own, that imports the package of an overlay."""
    rest = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and Path(p).absolute() != PACKAGE.parent]
    environment = {"PYTHONPATH": os.pathsep.join([str(path), *rest]), "UOPS_CACHE_DIR": str(directory / "cache")}
    with (directory / "log").open("wb") as log:
        return subprocess.Popen(
            command, env={**os.environ, **environment}, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started; they have not long to live anyway."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Processors:
    """What the processes of a session have used, those included that were killed before anybody waited for them."""

    def __init__(self, session: int) -> None:
        self.session = session
        self._used: dict[tuple[str, str], int] = {}

    def seconds(self) -> float:
        """Until now; of a process that has ended since, what was seen of it last."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:  # it has just ended
                    continue
                if int(fields[3]) == self.session:
                    self._used[entry.name, fields[19]] = int(fields[11]) + int(fields[12])
        return sum(self._used.values()) / _TICKS
