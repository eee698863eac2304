"""The hunt for one mutant: by the package's own defences, and by campaigns until one finds something.

Takes: a mutant, and seconds. Gives: a `Kill` or None for each of two defences: for everything there is, and for the oracles
that compare answers alone. The latter are asked first, on a package in which every rule is admitted and no verifier runs. A
mutant that they kill is also killed with everything on, where the proof of a changed rule may detect it earlier. The conformance
cells of gradients compare answers, too, and are asked first of a mutant of the gradient rules. If all of these find nothing, golden
files are compared, and then campaigns run with the verifier and the validator. Time is processor time of all processes of a hunt,
so a busy machine changes nothing.

The first half of a hunt's time is directed: a short run tries each kind of programs, and campaigns draw the kinds whose cases ran
the changed lines (`uops.fuzz.reach.directed`). If all kinds do alike, each gets the same time. The second half draws all kinds by
their weights, so that a wrong direction costs half of the time.

A finding counts if triage confirms it and the package without the mutant has no objection to the same program. A package that
does not start is a kill if the package without the mutant starts. A hunt that the machine prevents gives no result but the
reason.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from uops.backends.registry import BrokenBackend
from uops.backends.testing.journal import read_lines_after_heading_so_far
from uops.fuzz.campaign.campaign import JOURNAL
from uops.fuzz.campaign.examine import Setup
from uops.fuzz.campaign.process import LIMITS, Examiner
from uops.fuzz.campaign.work import draw_case, freeze_oracle_draws_for_triage
from uops.fuzz.generate import kinds
from uops.fuzz.mutants.catalogue import PACKAGE, Edit, Mutant, compute_texts_after_edits
from uops.fuzz.mutants.overlay import build_overlay
from uops.fuzz.oracles.oracles import ORACLES
from uops.fuzz.reach.directed import direct_kinds, try_kinds
from uops.fuzz.reach.lines import find_changed_lines
from uops.fuzz.reduce import reproducer
from uops.spec.errors import UopsError

Json = dict[str, Any]
#: The kinds that a campaign draws: all that the passes from TENSOR on see.
KINDS = tuple(k for k in kinds.KINDS if k != "bestiary")
#: Oracles that compare no two answers.
NOT_DIFFERENTIAL = frozenset({"form", "validated"})
#: Oracles that compare answers.
ANSWERS = tuple(o for o in ORACLES if o not in NOT_DIFFERENTIAL)
#: Edits of the package for the hunt by answers alone: rules need no proof, and no verifier runs between passes. There is no
#: setting for that, so an overlay makes the edits.
BLIND = (
    Edit(
        "compiler/prove/admission.py",
        "return (_load_proved_digests_or_warn_if_damaged() or {}).get(rule.name) == digest_rule(rule)",
        "return True",
    ),
    Edit(
        "compiler/pipeline.py",
        "    try:\n        if dialect in _BEFORE_SELECT",
        "    try:\n        return\n        if dialect in _BEFORE_SELECT",
    ),
)
#: A script that proves the rules of a theme, and ends with status 1 unless all are true. `uops prove --no-write` would also object
#: to true rules that the ledger does not have.
PROVE_THEME = """
import sys
from uops.compiler.prove import campaign, ledger
rules = campaign.collect_rules_to_prove_by_theme().get(sys.argv[1], ())
report = campaign.prove_rules(rules, proved_entries_by_key=ledger.index_proved_entries(ledger.read_ledger()))
sys.exit(not report.ok)
"""
#: Shares of a hunt's time: campaigns are directed in the first, and each kind is tried before for the second.
_DIRECTED, TRYING_A_KIND = 0.5, 0.005
#: Seconds of which these are shares in a hunt without a limit.
_OF_UNLIMITED_HUNT = 1200.0
#: Limits of a trial. Hunts are measured in processor time, so a start may take long.
PATIENT = replace(LIMITS, start=600.0)
#: Processor seconds for triage, which asks twice about a program that does not end; questions and seconds for a reduction.
CONFIRMING, MOST, REDUCING = 2.5 * PATIENT.timeout, 100, 30.0
#: Tests that compare with golden files, in a checkout.
_GOLDENS = ("tests/compiler/test_stage_goldens.py", "tests/backends/llvm/test_render.py", "tests/backends/opencl/test_launch.py")
#: Seconds between two looks at a process.
_LOOK = 0.5
#: Minimum processor seconds in which a package must show that it starts.
_STARTING = 60.0
#: Clock ticks per second in `/proc`.
_TICKS = os.sysconf("SC_CLK_TCK")


class Kill(NamedTuple):
    """The defence `by` which a mutant was found, after processor seconds and cases. `nodes` and `text` are the reduced
    program.
    """

    by: str
    kind: str
    seconds: float
    cases: int | None = None
    nodes: int | None = None
    text: str = ""


class HuntKills(NamedTuple):
    """The kills of one mutant: with everything on, and by the oracles that compare answers alone."""

    everything: Kill | None
    answers: Kill | None


class _CommandOutcome(NamedTuple):
    """The exit status of a command, None if the time was over, and its processor seconds."""

    status: int | None
    cpu_seconds: float


class HuntStopped(Exception):
    """The end of a hunt because the run is to end."""


class HuntImpossible(UopsError):
    """A mutant about which nothing can be said: the package without it does not start either, or no case was judged."""


class Hunter:
    """A hunter of mutants, one at a time, each for `seconds`. Use as a context manager."""

    def __init__(self, seconds: float, seed: int, should_stop: Callable[[], bool] = lambda: False) -> None:
        self.seconds, self.seed, self.should_stop = seconds, seed, should_stop
        self._planned_seconds = min(seconds, _OF_UNLIMITED_HUNT)
        self._clean_examiners: dict[str, Examiner] = {}
        self._clean_passes: dict[tuple[str, ...], bool] = {}

    def __enter__(self) -> Hunter:
        return self

    def __exit__(self, *exception: object) -> None:
        for examiner in self._clean_examiners.values():
            examiner.close()

    def hunt_by_all_defences_and_by_answers(self, mutant: Mutant) -> HuntKills:
        """Return who finds the mutant with everything on, and who by answers alone. Raises StaleMutant, HuntStopped and
        HuntImpossible.
        """
        proof = self._hunt_by_proofs_of_changed_theme(mutant)
        answers = self._hunt_by_gradient_cells(mutant) or self._hunt_by_campaigns(mutant, (mutant.edit, *BLIND), ANSWERS)
        if proof or answers:
            return HuntKills(proof or answers, answers)
        rest = self._hunt_by_golden_files(mutant) or self._hunt_by_campaigns(mutant, (mutant.edit,), tuple(ORACLES))
        return HuntKills(rest, None)

    # Campaigns

    def _hunt_by_campaigns(self, mutant: Mutant, edits: tuple[Edit, ...], oracles: tuple[str, ...]) -> Kill | None:
        """Run campaigns of different seeds until one finds a new bug or the time is over. Raises HuntImpossible if no
        case was judged.
        """
        with tempfile.TemporaryDirectory(prefix="uops-mutant-") as folder:
            path = build_overlay(Path(folder) / "path", compute_texts_after_edits(edits))
            directed, spent = self._find_kinds_that_run_changed_lines(mutant, edits, oracles, path)
            cases, number = 0, 0
            while spent < self.seconds:
                is_directed = bool(directed) and spent < _DIRECTED * self._planned_seconds
                seed = kinds.stable_hash(self.seed, mutant.id, number)
                setup = Setup(mutant.backend, seed, directed if is_directed else KINDS, oracles)
                trial = _Trial(path, Path(folder) / str(number), setup)
                limit = _DIRECTED * self._planned_seconds if is_directed else self.seconds
                kill = trial.run_campaign(limit - spent, self.should_stop)
                if kill is not None and not kill.cases:
                    self._require_start_without_mutant(setup, [e for e in edits if e != mutant.edit])
                    return kill._replace(seconds=round(kill.seconds + spent, 2), cases=cases)
                if kill is not None and self._is_caused_by_mutant(kill, setup):
                    return kill._replace(seconds=round(kill.seconds + spent, 2), cases=(kill.cases or 0) + cases)
                spent, cases, number = spent + max(0.5, trial.spent), cases + trial.cases, number + 1
        if not cases:
            raise HuntImpossible(f"no case was judged in {self.seconds:g} processor seconds")
        return None

    def _find_kinds_that_run_changed_lines(
        self, mutant: Mutant, edits: tuple[Edit, ...], oracles: tuple[str, ...], path: Path
    ) -> tuple[tuple[str, ...], float]:
        """Return the kinds to draw in the directed part, empty for no direction, and the processor seconds spent."""
        lines = _find_lines_that_mutant_changes(mutant, edits)
        spent = 0.0

        def run_process(some_kinds: Sequence[str]) -> tuple[bool, list[str]]:
            nonlocal spent
            if not lines or spent >= _DIRECTED * self._planned_seconds:
                return True, []
            setup = json.dumps(Setup(mutant.backend, self.seed, tuple(some_kinds), oracles).to_json())
            command = ["-m", "uops.fuzz.reach.try_kinds", setup, json.dumps(lines), str(TRYING_A_KIND * self._planned_seconds)]
            with tempfile.TemporaryDirectory(prefix="uops-mutant-") as folder:
                status, seconds = self._measure_exit_status_and_cpu(command, path, Path(folder))
                printed = (Path(folder) / "log").read_text(encoding="utf-8", errors="replace").splitlines()
            spent += seconds
            return status == 0, printed

        return direct_kinds(try_kinds(KINDS, run_process), KINDS), spent

    def _require_start_without_mutant(self, setup: Setup, edits: list[Edit]) -> None:
        """Raise HuntImpossible if the package without the mutant does not finish a batch now, either. It is asked each
        time, since for instance a disk may have become full.
        """
        with tempfile.TemporaryDirectory(prefix="uops-mutant-") as folder:
            path = build_overlay(Path(folder) / "path", compute_texts_after_edits(edits))
            trial = _Trial(path, Path(folder) / "0", setup)
            kill = trial.run_campaign(max(self.seconds, _STARTING), self.should_stop, first_batch_only=True)
            if not trial.cases:
                reason = kill.kind if kill is not None and kill.kind else "no case was judged"
                raise HuntImpossible(f"without the mutant, {setup.backend} does not start either: {reason}")

    def _is_caused_by_mutant(self, kill: Kill, setup: Setup) -> bool:
        """Return True if the package without the mutant has no objection to the program, reduced or as drawn. Raises
        HuntImpossible.
        """
        if setup.backend not in self._clean_examiners:
            self._clean_examiners[setup.backend] = Examiner(Setup(setup.backend), PATIENT)
        clean = self._clean_examiners[setup.backend]
        reduced = _parse_reproducer_of_kill(kill)
        try:
            if reduced is not None:
                return clean.judge_and_locate_fault(reduced.sample, reduced.about["seed"], reduced.about["oracle"]) is None
            k = (kill.cases or 1) - 1
            return (
                clean.judge_and_locate_fault(*freeze_oracle_draws_for_triage(clean, *draw_case(clean, setup, k), kill.by)) is None
            )
        except BrokenBackend as e:
            raise HuntImpossible(f"without the mutant, {setup.backend} does not start: {e}") from e

    # The package's own defences

    def _hunt_by_proofs_of_changed_theme(self, mutant: Mutant) -> Kill | None:
        """Prove the rules of the theme whose file is changed."""
        if not mutant.edit.file.startswith("compiler/rewrite/rules/"):
            return None
        theme = Path(mutant.edit.file).stem
        return self._hunt_by_exit_status_against_clean_run(mutant, "ledger", ["-c", PROVE_THEME, theme])

    def _hunt_by_gradient_cells(self, mutant: Mutant) -> Kill | None:
        """Run the conformance cells of gradients, which compare answers, on a change of the gradient rules or of the front end."""
        if not mutant.edit.file.startswith(("spec/rows/gradients/", "compiler/tensor/")):
            return None
        command = ["-m", "uops", "conform", "--subject", "front-end", "--rows", "Gradient/*", "--report", "cells"]
        return self._hunt_by_exit_status_against_clean_run(mutant, "cells", command)

    def _hunt_by_golden_files(self, mutant: Mutant) -> Kill | None:
        """Run the tests that compare with golden files, in a checkout."""
        root = PACKAGE.parents[1]
        files = _golden_files()
        options = ["-q", "-x", "-p", "no:cacheprovider", "-c", str(root / "pyproject.toml"), "--rootdir", str(root)]
        return self._hunt_by_exit_status_against_clean_run(mutant, "goldens", ["-m", "pytest", *options, *files]) if files else None

    def _hunt_by_exit_status_against_clean_run(self, mutant: Mutant, defence: str, command: list[str]) -> Kill | None:
        """Return a Kill if a command ends with status 1 on the mutant's package, and with 0 on the package without a
        mutant.
        """
        status, spent = self._measure_exit_status_and_cpu_with_edits(command, (mutant.edit,))
        if status == 1 and (defence, *command) not in self._clean_passes:
            self._clean_passes[defence, *command] = self._measure_exit_status_and_cpu_with_edits(command, ()).status == 0
        return Kill(defence, "refuted", round(spent, 2)) if status == 1 and self._clean_passes[defence, *command] else None

    def _measure_exit_status_and_cpu_with_edits(self, command: list[str], edits: tuple[Edit, ...]) -> _CommandOutcome:
        """Run a command on a package with edits until it ends or the time is over."""
        with tempfile.TemporaryDirectory(prefix="uops-mutant-") as folder:
            path = build_overlay(Path(folder) / "path", compute_texts_after_edits(edits))
            return self._measure_exit_status_and_cpu(command, path, Path(folder))

    def _measure_exit_status_and_cpu(self, command: list[str], package_path: Path, directory: Path) -> _CommandOutcome:
        """Run a command on the package of an overlay until it ends or the time is over. Its output is `directory/log`."""
        spent = 0.0
        process = _start_session_with_package([sys.executable, *command], package_path, directory)
        cpu_time = SessionCpuTime(process.pid)
        try:
            while process.poll() is None and spent <= self.seconds:
                if self.should_stop():
                    raise HuntStopped
                time.sleep(_LOOK)
                spent = cpu_time.measure_seconds()
            return _CommandOutcome(process.poll(), spent)
        finally:
            _kill_group_if_running_and_wait(process)


def _find_lines_that_mutant_changes(mutant: Mutant, edits: tuple[Edit, ...]) -> dict[str, list[int]]:
    """Return {module: lines} of the Python file that a mutant changes, empty for another file."""
    file = mutant.edit.file
    if not file.endswith(".py"):
        return {}
    others = compute_texts_after_edits(e for e in edits if e != mutant.edit)
    before = others.get(file) or (PACKAGE / file).read_text(encoding="utf-8")
    lines = find_changed_lines(before, compute_texts_after_edits(edits)[file])
    module = ".".join((PACKAGE.name, *Path(file).with_suffix("").parts)).removesuffix(".__init__")
    return {module: sorted(lines)}


def _parse_reproducer_of_kill(kill: Kill) -> reproducer.Reproducer | None:
    """Return the reproducer of a kill. Returns None if the program was not reduced, or if this package cannot read its
    text, as after a mutant of the generator.
    """
    if not kill.text:
        return None
    with tempfile.NamedTemporaryFile("w", suffix=".uops", encoding="utf-8") as f:
        f.write(kill.text)
        f.flush()
        try:
            return reproducer.read_reproducer(Path(f.name))
        except (UopsError, ValueError, LookupError):
            return None


def list_unavailable_defences() -> dict[str, str]:
    """Return the defences that cannot be used here, with the reasons."""
    reasons = {}
    if find_spec("z3") is None:
        reasons["ledger"] = "z3-solver is not installed"
    if not _golden_files():
        reasons["goldens"] = "there is no checkout"
    elif find_spec("pytest") is None:
        reasons["goldens"] = "pytest is not installed"
    return reasons


def _golden_files() -> list[str]:
    root = PACKAGE.parents[1]
    return [str(root / f) for f in _GOLDENS if (root / f).is_file()]


class _Trial:
    """A campaign in a process of its own. `spent` are its processor seconds, `cases` the cases that it judged."""

    def __init__(self, path: Path, directory: Path, setup: Setup) -> None:
        self.path, self.directory, self.setup = path, directory, setup
        self.spent = 0.0
        self.cases = 0
        self._finding_seen_at: float | None = None  # when a batch with a finding was done
        self._confirmed_at = 0.0  # when it was triaged

    def run_campaign(self, hunt_cpu_seconds: float, should_stop: Callable[[], bool], first_batch_only: bool = False) -> Kill | None:
        """Run the campaign; return the kill, if any. With `first_batch_only`, end with the first batch."""
        self.directory.mkdir()
        setup = json.dumps(self.setup.to_json())
        command = [sys.executable, "-m", "uops.fuzz.mutants.trial", setup, str(self.directory / "campaign"), str(MOST)]
        process = _start_session_with_package(command, self.path, self.directory)
        cpu_time = SessionCpuTime(process.pid)
        try:
            while process.poll() is None:
                time.sleep(_LOOK)
                self.spent = cpu_time.measure_seconds()
                if should_stop():
                    raise HuntStopped
                lines = self._reread_journal_and_note_cases_and_finding()
                if (
                    "reduced" in lines
                    or (first_batch_only and self.cases)
                    or self.spent > self._note_triage_end_and_compute_phase_deadline(lines, hunt_cpu_seconds)
                ):
                    break
        finally:
            _kill_group_if_running_and_wait(process)
        return self._make_kill_from_confirmed_findings(
            self._reread_journal_and_note_cases_and_finding()
        ) or self._find_startup_kill(process)

    def _note_triage_end_and_compute_phase_deadline(
        self, journal_entries: Mapping[str, list[Json]], hunt_cpu_seconds: float
    ) -> float:
        """Return the processor seconds after which to stop: of the hunt, of triage, or of the reduction.

        Until a finding is triaged, the seconds so far are noted as those at which triage ended.
        """
        if self._finding_seen_at is None:
            return hunt_cpu_seconds
        if "triaged" not in journal_entries:
            self._confirmed_at = self.spent
            return self._finding_seen_at + CONFIRMING
        return max(self._confirmed_at, self._finding_seen_at) + REDUCING  # both lines may appear between two looks

    def _reread_journal_and_note_cases_and_finding(self) -> dict[str, list[Json]]:
        """Read the journal so far, by kind of entry.

        Notes the number of cases, and the processor seconds at which a finding was first seen.
        """
        entries: dict[str, list[Json]] = {}
        path = self.directory / "campaign" / JOURNAL
        for line in read_lines_after_heading_so_far(path):
            for kind, entry in line.items():
                entries.setdefault(kind, []).append(entry)
        self.cases = sum(b["cases"] for b in entries.get("batch", ()))
        if self._finding_seen_at is None and any(b["findings"] for b in entries.get("batch", ())):
            self._finding_seen_at = self.spent
        return entries

    def _make_kill_from_confirmed_findings(self, journal_entries: Mapping[str, list[Json]]) -> Kill | None:
        """Return the first finding that triage confirmed, with the program that it was reduced to."""
        confirmed = {triaged["k"]: triaged["triaged"] for triaged in journal_entries.get("triaged", ()) if triaged["triaged"]}
        if not confirmed or self._finding_seen_at is None:
            return None
        reduced = next(iter(journal_entries.get("reduced", ())), None)
        k = min(confirmed) if reduced is None else reduced["k"]
        triaged = confirmed[k]
        pass_name = triaged["place"]["pass_"] if triaged["place"] else ""
        nodes, text = (None, "") if reduced is None else (reduced["nodes"], reduced["text"])
        kind = " ".join(filter(None, (triaged["fault"]["kind"], pass_name)))
        return Kill(triaged["oracle"], kind, self._finding_seen_at, k + 1, nodes, text)

    def _find_startup_kill(self, process: subprocess.Popen[bytes]) -> Kill | None:
        """Return a Kill if the package did not start."""
        if process.returncode in (0, -signal.SIGKILL) or self.cases:
            return None
        log = (self.directory / "log").read_text(encoding="utf-8", errors="replace")
        if "no answer within" in log:  # the machine is too busy
            return None
        return Kill("start", log.strip().splitlines()[-1][:120] if log.strip() else "", self.spent, 0)


def _start_session_with_package(command: list[str], package_path: Path, directory: Path) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own that imports the package of an overlay."""
    other_paths = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and Path(p).absolute() != PACKAGE.parent]
    environment = {"PYTHONPATH": os.pathsep.join([str(package_path), *other_paths]), "UOPS_CACHE_DIR": str(directory / "cache")}
    with (directory / "log").open("wb") as log:
        return subprocess.Popen(
            command, env={**os.environ, **environment}, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip


def _kill_group_if_running_and_wait(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that still runs, with all processes of its group, and wait for its end."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class SessionCpuTime:
    """The processor time of all processes in a session and in those that they start, including processes that were killed before
    anybody waited for them.
    """

    def __init__(self, session: int) -> None:
        self._sessions = {session}
        self._used: dict[tuple[str, str], int] = {}

    def measure_seconds(self) -> float:
        """Return the processor seconds so far. Of a process that has ended, the last measurement counts."""
        fields_by_pid = dict(_generate_process_fields())
        sessions = {pid: int(fields[3]) for pid, fields in fields_by_pid.items()}
        while new := {
            sessions[pid] for pid, fields in fields_by_pid.items() if sessions.get(fields[1]) in self._sessions
        } - self._sessions:  # fmt: skip
            self._sessions |= new
        for pid, fields in fields_by_pid.items():
            if sessions[pid] in self._sessions:
                self._used[pid, fields[19]] = int(fields[11]) + int(fields[12])
        return sum(self._used.values()) / _TICKS


def _generate_process_fields() -> Iterator[tuple[str, list[str]]]:
    """Yield the number of each process, and its fields of `/proc/N/stat` from the state on."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield entry.name, (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # the process has just ended
                continue
