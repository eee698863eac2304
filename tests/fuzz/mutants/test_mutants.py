"""The catalogue holds real changes, the working tree stays as it is, and what a run says is what was seen."""

from __future__ import annotations

import json
import math
import os
import py_compile
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import CodeType
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner

from uops.backends.testing.journal import Journal, JournalMismatch
from uops.backends.testing.journal import encode_journal as chained
from uops.cli import main
from uops.fuzz.campaign.examine import Setup
from uops.fuzz.campaign.process import Examiner
from uops.fuzz.generate import kinds
from uops.fuzz.mutants import hunt, report, run
from uops.fuzz.mutants.catalogue import PACKAGE, Edit, Mutant, StaleMutant, compute_texts_after_edits, load_mutants_by_id_or_class
from uops.fuzz.mutants.hunt import BLIND, Hunter, HuntImpossible, Kill, SessionCpuTime
from uops.fuzz.mutants.overlay import build_overlay
from uops.fuzz.mutants.run import MutantRun
from uops.fuzz.oracles.oracles import ORACLES
from uops.fuzz.reduce.reproducer import Reproducer, format_reproducer

MUTANTS = load_mutants_by_id_or_class()
#: Seen soon, by different oracles.
SAMPLE = ("max-from-zero", "register-not-cleared", "entry-no-initial")


# The catalogue


def test_the_catalogue_is_broad_enough() -> None:
    counted = [m for m in MUTANTS if not m.equivalent]
    assert len(counted) >= 80
    assert len({m.id for m in MUTANTS}) == len(MUTANTS)
    assert max(Counter(m.class_ for m in counted).values()) * 5 <= len(counted)
    assert sum(m.blind for m in counted) * 3 >= len(counted)
    assert any(m.source.startswith("peers: ") for m in counted)
    assert all(m.breaks and m.source for m in MUTANTS)


def essence(code: CodeType) -> tuple[Any, ...]:
    """What a code object does, without where it stands."""
    constants = tuple(essence(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts)
    return code.co_code, code.co_names, code.co_varnames, constants


@pytest.mark.parametrize("m", MUTANTS, ids=lambda m: m.id)
def test_a_mutant_changes_the_code_of_its_file(m: Mutant) -> None:
    ((name, new),) = compute_texts_after_edits((m.edit,)).items()
    old = (PACKAGE / name).read_text(encoding="utf-8")
    assert essence(compile(new, name, "exec", optimize=2)) != essence(compile(old, name, "exec", optimize=2))


def test_what_blinds_a_package_can_be_done() -> None:
    files = compute_texts_after_edits(BLIND)
    assert set(files) == {e.file for e in BLIND}
    for name, new in files.items():
        compile(new, name, "exec")


def test_a_text_that_is_not_there_once_is_said_so() -> None:
    with pytest.raises(StaleMutant, match=r"fold.py: expected the text of the mutant once, got it 0 times: no such text"):
        compute_texts_after_edits((Edit("compiler/rewrite/fold.py", "no such text", ""),))
    with pytest.raises(StaleMutant, match="expected the text of the mutant once"):
        compute_texts_after_edits((Edit("compiler/rewrite/fold.py", "return", ""),))


# The overlay


def test_an_overlay_has_the_changed_file_and_the_tree_does_not(tmp_path: Path) -> None:
    before = (PACKAGE / "compiler/rewrite/fold.py").read_text()
    path = build_overlay(tmp_path / "path", {"compiler/rewrite/fold.py": "HERE = 1\n"})
    modules = "import uops.compiler.rewrite.fold as f, uops.compiler.ir.affine as l"
    program = f"{modules}; print(f.HERE, f.__file__, l.index_constant(3).arg.value)"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(path)}, cwd=tmp_path, capture_output=True, text=True, check=True
    )  # fmt: skip
    assert done.stdout.split() == ["1", str(path / "uops/compiler/rewrite/fold.py"), "3"]
    assert (PACKAGE / "compiler/rewrite/fold.py").read_text() == before


def test_an_overlay_keeps_what_python_has_compiled_of_other_files(tmp_path: Path) -> None:
    for name in ("pattern", "fold"):
        py_compile.compile(str(hunt.PACKAGE / f"compiler/rewrite/{name}.py"), doraise=True)
    path = build_overlay(tmp_path / "path", {"compiler/rewrite/fold.py": "HERE = 1\n"}) / "uops/compiler/rewrite/__pycache__"
    linked = {p.name.partition(".")[0] for p in path.iterdir()}
    assert "pattern" in linked and "fold" not in linked


# Hunts


@pytest.mark.parametrize(
    ("proof", "campaign", "goldens"), [(True, True, True), (False, True, True), (False, False, True), (False,) * 3]
)
def test_other_defences_are_asked_where_answers_say_nothing(
    monkeypatch: pytest.MonkeyPatch, proof: bool, campaign: bool, goldens: bool
) -> None:
    asked = []
    kill = {name: Kill(name, "value", 1.0) for name in ("ledger", "answers", "goldens", "all")}

    def campaigns(self: Hunter, m: Mutant, edits: tuple[Edit, ...], oracles: tuple[str, ...]) -> Kill | None:
        asked.append("answers" if oracles == hunt.ANSWERS else "all")
        assert (edits == (m.edit, *BLIND)) == (asked[-1] == "answers")
        return kill[asked[-1]] if campaign or asked[-1] == "all" else None

    monkeypatch.setattr(Hunter, "_hunt_by_proofs_of_changed_theme", lambda self, m: kill["ledger"] if proof else None)
    monkeypatch.setattr(Hunter, "_hunt_by_golden_files", lambda self, m: kill["goldens"] if goldens else None)
    monkeypatch.setattr(Hunter, "_hunt_by_campaigns", campaigns)
    everything, answers = Hunter(1.0, seed=0).hunt_by_all_defences_and_by_answers(MUTANTS[0])
    assert everything is kill["ledger" if proof else "answers" if campaign else "goldens" if goldens else "all"]
    assert answers is (kill["answers"] if campaign else None)
    assert asked == (["answers"] if proof or campaign or goldens else ["answers", "all"])


class FakeTrial:
    """A campaign that finds nothing, in all the time that it has."""

    asked: ClassVar[list[tuple[tuple[str, ...], float]]] = []

    def __init__(self, path: Path, directory: Path, setup: Setup) -> None:
        self.setup, self.cases, self.spent = setup, 1, 0.0

    def run_campaign(self, seconds: float, should_stop: Any) -> None:
        self.asked.append((self.setup.kinds, seconds))
        self.spent = seconds


@pytest.mark.parametrize(
    ("directed", "asked"),
    [
        (("symbolic", "symbolic", "rules"), [(("symbolic", "symbolic", "rules"), 40.0), (hunt.KINDS, 50.0)]),
        ((), [(hunt.KINDS, 90.0)]),
    ],
)
def test_the_first_half_of_a_hunt_is_directed(
    monkeypatch: pytest.MonkeyPatch, directed: tuple[str, ...], asked: list[tuple[tuple[str, ...], float]]
) -> None:
    monkeypatch.setattr(hunt, "_Trial", FakeTrial)
    monkeypatch.setattr(FakeTrial, "asked", [])
    monkeypatch.setattr(Hunter, "_find_kinds_that_run_changed_lines", lambda *arguments: (directed, 10.0))
    (m,) = load_mutants_by_id_or_class(SAMPLE[0])
    assert Hunter(100.0, seed=0)._hunt_by_campaigns(m, (m.edit, *BLIND), hunt.ANSWERS) is None
    assert FakeTrial.asked == asked


def test_a_hunt_without_a_limit_is_directed_for_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    hunter = Hunter(math.inf, seed=0)
    commands: list[list[str]] = []

    def measure(self: Hunter, command: list[str], package_path: Path, directory: Path) -> tuple[int, float]:
        commands.append(command)
        (directory / "log").write_text("".join(json.dumps({"kind": k}) + "\n" for k in hunt.KINDS))
        return 0, 20.0

    monkeypatch.setattr(Hunter, "_measure_exit_status_and_cpu", measure)
    (m,) = load_mutants_by_id_or_class(SAMPLE[0])
    edits = (m.edit, *BLIND)
    assert hunter._find_kinds_that_run_changed_lines(m, edits, hunt.ANSWERS, Path()) == ((), 20.0)  # no case was tried
    assert 0 < float(commands[0][-1]) < 60


def test_a_mutant_of_symbolic_loops_is_hunted_where_there_are_some() -> None:
    (m,) = load_mutants_by_id_or_class("idle-ungated")
    edits = (m.edit, *BLIND)
    with tempfile.TemporaryDirectory() as folder:
        path = build_overlay(Path(folder), compute_texts_after_edits(edits))
        directed, seconds = Hunter(300.0, seed=0)._find_kinds_that_run_changed_lines(m, edits, hunt.ANSWERS, path)
    assert set(directed) == {"symbolic"}
    assert 0 < seconds < 100


@pytest.mark.parametrize("m", MUTANTS, ids=lambda m: m.id)
def test_the_changed_lines_of_a_mutant_are_those_of_its_text(m: Mutant) -> None:
    edits = (m.edit, *BLIND)
    lines = hunt._find_lines_that_mutant_changes(m, edits)
    if not m.edit.file.endswith(".py"):
        assert not lines
        return
    ((module, numbers),) = lines.items()
    assert PACKAGE.parent.joinpath(*module.split(".")).with_suffix(".py").is_file() or module.endswith("__init__")
    text = compute_texts_after_edits(BLIND).get(m.edit.file) or (PACKAGE / m.edit.file).read_text()
    first = text.count("\n", 0, text.index(m.edit.old)) + 1
    assert first <= numbers[0] <= numbers[-1] <= first + max(m.edit.old.count("\n"), m.edit.new.count("\n")) + 1


@pytest.mark.parametrize("name", SAMPLE)
def test_a_mutant_is_killed_by_answers_alone(name: str) -> None:
    (m,) = load_mutants_by_id_or_class(name)
    with Hunter(60.0, seed=0) as hunter:
        everything, differential = hunter.hunt_by_all_defences_and_by_answers(m)
    assert differential is not None
    assert differential.by in ORACLES
    assert everything == differential
    assert 0 < differential.seconds <= 70
    assert differential.nodes


def test_a_wrong_rule_is_killed_by_its_proof() -> None:
    (m,) = load_mutants_by_id_or_class("not-lt-strict")
    with Hunter(60.0, seed=0) as hunter:
        found = hunter._hunt_by_proofs_of_changed_theme(m)
        assert hunter._hunt_by_proofs_of_changed_theme(load_mutants_by_id_or_class("max-from-zero")[0]) is None
    assert found is not None
    assert found.by == "ledger"


def test_cells_of_gradients_find_a_wrong_rule() -> None:
    with Hunter(120, 0) as hunter:
        found = hunter._hunt_by_gradient_cells(load_mutants_by_id_or_class("gradient-sqrt-of-operand")[0])
        assert found is not None and found.by == "cells"
        assert hunter._hunt_by_gradient_cells(load_mutants_by_id_or_class("max-from-zero")[0]) is None


def test_what_the_package_itself_shows_is_no_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup("llvm")
    sample = kinds.sample(3, 0)
    found = Kill(
        "allowed",
        "value",
        1.0,
        1,
        2,
        format_reproducer(Reproducer(sample, {"oracle": "allowed", "seed": 0, "setup": setup.to_json()})),
    )
    with Hunter(10.0, seed=0) as hunter:
        monkeypatch.setattr(Examiner, "judge_and_locate_fault", lambda *a: None)
        assert hunter._is_caused_by_mutant(found, setup)
        monkeypatch.setattr(Examiner, "judge_and_locate_fault", lambda *a: "objects")
        assert not hunter._is_caused_by_mutant(found, setup)


@pytest.mark.parametrize("k", [0, 4])
def test_what_was_not_reduced_is_asked_as_it_was_drawn(monkeypatch: pytest.MonkeyPatch, k: int) -> None:
    setup, asked = Setup("llvm", 3, hunt.KINDS), []

    def triage(self: Examiner, *about: Any) -> None:
        asked.append(about)

    monkeypatch.setattr(Examiner, "judge_and_locate_fault", triage)
    with Hunter(10.0, seed=0) as hunter:
        assert hunter._is_caused_by_mutant(Kill("allowed", "refused", 1.0, k + 1), setup)
        ((sample, seed, oracle),) = asked
        assert (sample.graph, seed, oracle) == (kinds.sample(3, k, hunt.KINDS).graph, kinds.stable_hash(3, k), "allowed")
        monkeypatch.setattr(Examiner, "judge_and_locate_fault", lambda *a: "objects")
        assert not hunter._is_caused_by_mutant(Kill("allowed", "refused", 1.0, k + 1), setup)


def test_a_file_that_cannot_be_read_is_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is drawn is asked instead."""
    setup, asked = Setup("llvm", 3, hunt.KINDS), []

    def triage(self: Examiner, *about: Any) -> str:
        asked.append(about)
        return "objects"

    monkeypatch.setattr(Examiner, "judge_and_locate_fault", triage)
    with Hunter(10.0, seed=0) as hunter:
        for told in ("no program", "%0 = no_such_op", "; uops fuzz: {\n%0 = const 1 : i32"):
            assert not hunter._is_caused_by_mutant(Kill("allowed", "refused", 1.0, 5, 2, told), setup)
    assert [(about[0].graph, about[1:]) for about in asked] == [
        (kinds.sample(3, 4, hunt.KINDS).graph, (kinds.stable_hash(3, 4), "allowed"))
    ] * 3


#: Not even its compiler can be imported.
BROKEN = Mutant("broken", "none", Edit("compiler/rewrite/fold.py", "from __future__", "from __past__"), "", "made up", "llvm")


def test_a_package_that_does_not_start_is_killed() -> None:
    with Hunter(10.0, seed=0) as hunter:
        everything, answers = hunter.hunt_by_all_defences_and_by_answers(BROKEN)
    assert answers is not None
    assert answers == everything
    assert (answers.by, answers.cases) == ("start", 0)
    assert "__past__" in answers.kind


def test_what_does_not_start_without_a_mutant_either_is_not_hunted() -> None:
    (m,) = load_mutants_by_id_or_class("max-from-zero")
    with (
        Hunter(10.0, seed=0) as hunter,
        pytest.raises(HuntImpossible, match=r"without the mutant, nothing:Here does not start either"),
    ):
        hunter.hunt_by_all_defences_and_by_answers(replace(m, backend="nothing:Here"))


def test_a_finding_that_nobody_can_judge_now_is_no_kill() -> None:
    with Hunter(10.0, seed=0) as hunter, pytest.raises(HuntImpossible, match="without the mutant, nothing:Here does not start"):
        hunter._is_caused_by_mutant(Kill("allowed", "value", 1.0, 1), Setup("nothing:Here", 3, hunt.KINDS))


def test_a_mutant_of_which_no_case_was_judged_is_not_hunted() -> None:
    with Hunter(0.01, seed=0) as hunter, pytest.raises(HuntImpossible, match=r"no case was judged in 0.01 processor seconds"):
        hunter.hunt_by_all_defences_and_by_answers(load_mutants_by_id_or_class("max-from-zero")[0])


def test_a_defence_that_is_not_there_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hunt, "find_spec", lambda name: None if name == "z3" else name)
    monkeypatch.setattr(hunt, "_golden_files", lambda: ["tests/test_golden.py"])
    assert hunt.list_unavailable_defences() == {"ledger": "z3-solver is not installed"}
    monkeypatch.setattr(hunt, "_golden_files", list)
    assert hunt.list_unavailable_defences()["goldens"] == "there is no checkout"


def test_time_is_that_of_processors() -> None:
    busy, idle = _session("while True: pass"), _session("import time; time.sleep(60)")
    try:
        assert _spent(SessionCpuTime(busy.pid), 0.5) >= 0.5
        assert SessionCpuTime(idle.pid).measure_seconds() < 0.5
    finally:
        _end(busy, idle)


def test_the_time_of_a_process_counts_that_was_killed_after_its_parent() -> None:
    busy = _session("import os, time\nif os.fork(): os.wait(); time.sleep(60)\nelif os.fork(): time.sleep(60)\nwhile True: pass")
    try:
        used = SessionCpuTime(busy.pid)
        before = _spent(used, 0.5)
        parent, child = sorted(pid for pid in _members(busy.pid) if pid != busy.pid)
        for pid in (parent, child):
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while child in _members(busy.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert used.measure_seconds() >= before >= 0.5
    finally:
        _end(busy)


def test_the_time_of_a_process_counts_that_has_a_session_of_its_own() -> None:
    start = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {!r}], start_new_session=True); time.sleep(60)"
    outer = _session(start.format(start.format("while True: pass")))
    try:
        assert _spent(SessionCpuTime(outer.pid), 1.0) >= 1.0
    finally:
        for session in _list_descendant_sessions(outer.pid):
            os.killpg(session, signal.SIGKILL)
        _end(outer)


def _list_descendant_sessions(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [c for child in children for c in (child, *_list_descendant_sessions(child))]


def _session(program: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", program], start_new_session=True)


def _spent(used: SessionCpuTime, wanted: float) -> float:
    """Seconds of a session, once they are as many as wanted or a minute has gone by."""
    deadline = time.monotonic() + 60
    while (found := used.measure_seconds()) < wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _members(session: int) -> list[int]:
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in pids if _session_of(pid) == session]


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def _end(*processes: subprocess.Popen[bytes]) -> None:
    for p in processes:
        os.killpg(p.pid, signal.SIGKILL)
        p.wait()


# Runs


class Known:
    """Stands for a Hunter: every mutant is seen by its class, the first one by nobody; those in `troubled` cannot be hunted."""

    def __init__(self, hunted: list[str]) -> None:
        self.hunted = hunted
        self.troubled: set[str] = set()

    def __call__(self, *settings: object) -> Known:
        return self

    def __enter__(self) -> Known:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def hunt_by_all_defences_and_by_answers(self, m: Mutant) -> tuple[Kill | None, Kill | None]:
        if m.id in self.troubled:
            raise HuntImpossible("no disk")
        self.hunted.append(m.id)
        if m is MUTANTS[0]:
            return None, None
        return Kill("goldens", "refuted", 1.0), Kill(m.class_, "value", 2.0, 32, 3, "; program\n")


def test_a_run_goes_on_from_its_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hunted: list[str] = []
    monkeypatch.setattr(run, "Hunter", Known(hunted))
    MutantRun(MUTANTS[:2], tmp_path, seconds=5).run()
    assert sorted(hunted) == sorted(m.id for m in MUTANTS[:2])
    again = MutantRun(MUTANTS[:4], tmp_path, seconds=5)
    results = again.run()
    assert sorted(hunted) == sorted(m.id for m in MUTANTS[:4])
    assert {r.mutant.id for r in results if r.differential is None} == {MUTANTS[0].id}
    assert (tmp_path / "programs" / f"{MUTANTS[1].id}.uops").read_text() == "; program\n"
    with pytest.raises(JournalMismatch, match="mutants"):
        MutantRun(MUTANTS[:4], tmp_path, seconds=6)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_in_a_report_and_leaves_no_process(tmp_path: Path) -> None:
    place, scratch = tmp_path / "report", tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-m", "uops", "mutants", "--only", "sin-sign", "--seconds", "600", "--report", str(place)]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "TMPDIR": str(scratch)}
    process = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not list(scratch.glob("uops-mutant-*/0/log")) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(300) == 130
    doc = json.loads((place / "report.json").read_text())
    assert not doc["complete"]
    assert doc["mutants"] == []
    assert list(scratch.iterdir()) == []
    told = (p / "cmdline" for p in Path("/proc").iterdir() if p.name.isdigit())
    assert not [p for p in told if p.exists() and str(tmp_path).encode() in p.read_bytes()]


def test_a_median_has_no_digits_that_nobody_measured() -> None:
    assert run.median_of_known(iter([3.38, None, 3.4])) == 3.39  # the mean of the two is 3.3899999999999997


def test_a_report_has_two_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "Hunter", Known([]))
    r = MutantRun(MUTANTS[:4], tmp_path, seconds=5)
    r.run()
    doc = report.write_report(r, MUTANTS[:4])
    assert doc["score"]["everything"] == {
        "hunted": 4, "killed": 3, "share": 0.75, "by": {"goldens": 3}, "seconds": 1.0, "cases": None, "nodes": None,
    }  # fmt: skip
    assert doc["score"]["answers"]["nodes"] == 3
    assert json.loads((tmp_path / "report.json").read_text()) == doc
    page = (tmp_path / "mutants.md").read_text()
    assert f"| {MUTANTS[0].id} | {MUTANTS[0].breaks} | **survives** | **survives** |" in page
    assert "The catalogue has 4 mutants that change a meaning; 4 of them were hunted." in page
    assert f"Version of the program generator: {kinds.VERSION} for 4 mutants." in page
    page = (tmp_path / "index.html").read_text()
    assert "3 of 4 known bugs are found" in page
    survivors = page.partition("<h2>Survivors</h2>")[2].partition("</section>")[0]
    assert all((m.id in survivors) == (m is MUTANTS[0]) and f"<th>{m.id}</th>" in page for m in MUTANTS[:4])
    assert not re.search(r"https?://|<script", page)


def test_a_report_has_all_that_its_journal_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the last run was asked."""
    monkeypatch.setattr(run, "Hunter", Known([]))
    for m in MUTANTS[1:3]:
        done = CliRunner().invoke(main, ["mutants", "--only", m.id, "--seconds", "5", "--report", str(tmp_path), "--json"])
        assert done.exit_code == 0
    doc = json.loads(done.stdout)
    assert {m["id"] for m in doc["mutants"]} == {m.id for m in MUTANTS[1:3]}
    page = (tmp_path / "mutants.md").read_text()
    assert (
        f"The catalogue has {sum(not m.equivalent for m in MUTANTS)} mutants that change a meaning; 2 of them were hunted" in page
    )


def test_what_was_not_hunted_is_in_no_share_and_hunted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = MUTANTS[1:3]
    known = Known([])
    monkeypatch.setattr(run, "Hunter", known)
    monkeypatch.setattr(run, "list_unavailable_defences", lambda: {"ledger": "z3-solver is not installed"})
    known.troubled.add(second.id)
    r = MutantRun([first, second], tmp_path, seconds=5)
    r.run()
    doc = report.write_report(r, [first, second])
    assert doc["score"]["everything"]["hunted"] == 1
    assert [(m["id"], m["why"]) for m in doc["not_hunted"]] == [(second.id, "no disk")]
    assert doc["absent"] == [{"defence": "ledger", "why": "z3-solver is not installed", "hunts": 1}]
    known_page = (tmp_path / "index.html").read_text().partition("<h2>Not hunted</h2>")[2].partition("</section>")[0]
    assert second.id in known_page and "no disk" in known_page
    page = (tmp_path / "mutants.md").read_text()
    assert f"| {second.id} | {second.breaks} | no disk |" in page
    assert "The defence `ledger` was unavailable for 1 mutant: z3-solver is not installed." in page
    assert second.id not in (tmp_path / run.JOURNAL).read_text()
    known.troubled.clear()
    assert len(MutantRun([first, second], tmp_path, seconds=5).run()) == 2


def test_a_command_that_could_not_hunt_does_not_end_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Known([])
    known.troubled.add(MUTANTS[1].id)
    monkeypatch.setattr(run, "Hunter", known)
    done = CliRunner().invoke(main, ["mutants", "--only", MUTANTS[1].id, "--seconds", "5", "--report", str(tmp_path)])
    assert done.exit_code == 2
    assert "not hunted: no disk" in done.stdout and "index.html" in done.stdout


@pytest.mark.parametrize("seconds", ["nan", "0", "-1"])
def test_what_is_no_time_is_refused(tmp_path: Path, seconds: str) -> None:
    wrong = CliRunner().invoke(main, ["mutants", "--only", "sin-sign", "--seconds", seconds, "--report", str(tmp_path / "r")])
    assert wrong.exit_code == 2
    assert "--seconds" in wrong.output
    assert not (tmp_path / "r").exists()


def test_a_hunt_without_an_end_has_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "Hunter", Known([]))
    command = ["mutants", "--only", MUTANTS[1].id, "--seconds", "inf", "--report", str(tmp_path), "--json"]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0
    assert json.loads(done.stdout)["seconds"] is None
    assert "uops mutants --seconds inf" in (tmp_path / "mutants.md").read_text()


def test_a_report_says_which_generators_hunted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run may go on behind a change of the generator; a journal of before it was noted says nothing."""
    monkeypatch.setattr(run, "Hunter", Known([]))
    for m, version in zip(MUTANTS[:3], (7, 8, 8), strict=True):
        monkeypatch.setattr(run, "VERSION", version)
        MutantRun([m], tmp_path, seconds=5).run()
    journal = tmp_path / run.JOURNAL
    lines = [json.loads(line) for line in journal.read_bytes().splitlines()]
    for line in lines:
        del line["sum"]
        if line.get("hunted", {}).get("generator") == 7:
            del line["hunted"]["generator"]
    journal.write_bytes(chained(lines))
    page = report.render_markdown(report.build_document(MutantRun(MUTANTS[:3], tmp_path, seconds=5), MUTANTS[:3]), [])
    assert "Version of the program generator: 8 for 2 mutants." in page


def test_the_command_lists_the_catalogue_and_refuses_what_matches_nothing() -> None:
    listed = CliRunner().invoke(main, ["mutants", "--list", "--json"])
    assert [m["id"] for m in json.loads(listed.stdout)] == [m.id for m in MUTANTS]
    wrong = CliRunner().invoke(main, ["mutants", "--only", "nothing"])
    assert wrong.exit_code == 2
    assert "no mutant matches 'nothing'" in wrong.output


def test_hunts_draw_kinds_and_ask_oracles_that_there_are() -> None:
    assert set(hunt.KINDS) <= set(kinds.KINDS)
    assert hunt.NOT_DIFFERENTIAL <= set(ORACLES)


def test_the_time_to_reduce_begins_when_a_finding_is_seen_already_triaged(tmp_path: Path) -> None:
    (tmp_path / "campaign").mkdir()
    trial = hunt._Trial(tmp_path, tmp_path, None)
    with closing(Journal(tmp_path / "campaign" / hunt.JOURNAL, {"campaign": {}})) as journal:
        journal.add({"batch": {"cases": 5, "findings": [1]}})
        journal.add({"triaged": {"k": 3, "triaged": {"x": 1}}})
    trial.spent = 200.0
    lines = trial._reread_journal_and_note_cases_and_finding()
    assert trial._note_triage_end_and_compute_phase_deadline(lines, 600.0) == 200.0 + hunt.REDUCING


def test_a_mutant_that_survives_when_hunted_again_keeps_no_program(tmp_path: Path) -> None:
    mutant = load_mutants_by_id_or_class()[0]
    hunted = MutantRun([mutant], tmp_path, seconds=1)
    hunted._journal_hunt_and_save_killing_program(mutant, Kill("allowed", "value", 1.0, 1, 2, "a program"), None)
    program = tmp_path / "programs" / f"{mutant.id}.uops"
    assert program.read_text() == "a program"
    hunted._journal_hunt_and_save_killing_program(mutant, None, None)
    assert not program.exists()
