"""A run of the suite that was killed goes on from its journal, and its report is that of a run that was not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from uops.backends.conformance import runner
from uops.backends.conformance.model import CellStatus, ConformanceLevel, ConformanceTier, SchedulePolicy
from uops.backends.conformance.report.document import build_document
from uops.backends.conformance.runner import ConformanceRun, run_conformance
from uops.backends.testing.journal import PACKAGE, JournalMismatch, digest_sources
from uops.backends.worker.client import query_info_isolating_foreign_backend

#: Of its cases, some fail whole and some by class; the rest passes.
FUSSY, ROWS = "uops.backends.conformance.controls:RaisesOnNanInput", "*/Neg"
_KILLED = """
import os, signal, sys
from pathlib import Path
from uops.backends.worker.client import query_info_isolating_foreign_backend
from uops.backends.conformance import decided
from uops.backends.conformance.runner import run_conformance

decided.digest_sources = lambda: "these"

def progress(done, total):
    assert total > 15
    if done == 15:
        os.kill(os.getpid(), signal.SIGKILL)

name, rows, journal = sys.argv[1:]
run_conformance(name, query_info_isolating_foreign_backend(name), rows=rows, jobs=1, progress=progress, journal=Path(journal))
"""


@pytest.fixture(autouse=True)
def these_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout may be edited while its tests run."""
    monkeypatch.setattr("uops.backends.conformance.decided.digest_sources", lambda: "these")


def fussy(journal: Path | None, **how: Any) -> ConformanceRun:
    return run_conformance(
        FUSSY, **{"backend_info": query_info_isolating_foreign_backend(FUSSY), "rows": ROWS, "jobs": 1, "journal": journal} | how
    )


def told(run: ConformanceRun) -> dict[str, Any]:
    return {k: v for k, v in build_document(run).items() if k != "time"}


def test_the_report_after_a_kill_is_that_of_a_run_without_one(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    killed = subprocess.run([sys.executable, "-c", _KILLED, FUSSY, ROWS, str(journal)], env=_environment(), check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(journal.read_text().splitlines()) == 1 + 15
    with journal.open("a") as f:
        f.write('{"decided":{"case":"Elementwise/')  # a kill may come while a line is written
    known: list[int] = []
    whole, again = fussy(None), fussy(journal, progress=lambda done, total: known.append(done))
    assert told(again) == told(whole) and known == list(range(1, known[-1] + 1))
    assert {r.status for r in whole.cells[ConformanceLevel.STRICT].values()} == {CellStatus.PASS, CellStatus.FAIL}
    assert again.reproducers.keys() == whole.reproducers.keys()
    assert any("-nan" in case for case in again.reproducers)
    assert all(again.reproducers[k].graph is whole.reproducers[k].graph for k in whole.reproducers)


def test_what_a_journal_holds_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = tmp_path / "journal.jsonl"
    first = fussy(journal)
    lines = journal.read_bytes()
    monkeypatch.setattr("uops.backends.worker.client.BackendProcess", None)
    again = fussy(journal)
    assert told(again) == told(first) and journal.read_bytes() == lines
    assert again.seconds > sum(json.loads(line)["decided"]["seconds"] for line in lines.splitlines()[1:]) > 0
    assert told(fussy(journal, rows="Decomposed/Neg")) == told(first) | {"rows": "Decomposed/Neg"}


def test_ctrl_c_keeps_what_was_decided(tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        if done == 10:
            raise KeyboardInterrupt

    early = fussy(tmp_path / "journal.jsonl", progress=interrupt)
    assert not early.complete and CellStatus.NOT_RUN in {r.status for r in early.cells[ConformanceLevel.CORE].values()}
    assert told(fussy(tmp_path / "journal.jsonl")) == told(fussy(None))


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("tier", lambda m: {"tier": ConformanceTier.FULL}),
        ("schedules, settings", lambda m: {"schedules": SchedulePolicy("forced", 1)}),
        ("settings", lambda m: m.setenv("UOPS_THREADS", "1") or {}),
        ("sources", lambda m: m.setattr("uops.backends.conformance.decided.digest_sources", lambda: "edited") or {}),
        ("version", lambda m: {"backend_info": replace(query_info_isolating_foreign_backend(FUSSY), version="2.0")}),
    ],
)
def test_the_journal_of_another_run_is_refused(
    what: str, change: Callable[[pytest.MonkeyPatch], dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "generate_cases", lambda tier, rows: iter(()))
    fussy(tmp_path / "journal.jsonl")
    with pytest.raises(JournalMismatch, match=f"differs in {what}$"):
        fussy(tmp_path / "journal.jsonl", **change(monkeypatch))


def test_the_digest_of_the_sources_sees_every_file(tmp_path: Path) -> None:
    assert (PACKAGE / "backends" / "testing" / "journal.py").is_file() and (PACKAGE / "spec" / "ir" / "ops.py").is_file()
    found = {digest_sources()}
    folder = tmp_path / "package"
    (folder / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(folder, target_is_directory=True)
    for name in ("package/a.py", "package/inner/b.py", "package/ledger.jsonl"):
        for text in ("", "x = 1\n"):
            (tmp_path / name).write_text(text)
            found.add(digest_sources(tmp_path))
    assert len(found) == 1 + 2 * 3
    (folder / "notes.md").write_text("x")
    assert digest_sources(tmp_path) in found


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
