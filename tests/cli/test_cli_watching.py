"""`uops conform --watch`: the rows are judged again when the backend's source changes, until Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import uops as package
from uops.cli.watching import list_source_files, replace_option, run_whenever_files_change

SOURCE = "from uops.backends.conformance.controls import {name} as Backend\n"
OPTIONS = ("conform", "-b", "mine:Backend", "--watch", "Movement/Flip", "-j", "1")


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "mine.py").write_text(SOURCE.format(name="Zeros"))
    environment = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, "-m", "uops", *OPTIONS],
        env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores Ctrl-C
    )  # fmt: skip
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def read_until(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    pytest.fail(f"the command ended before it printed {words!r}")


def test_a_changed_backend_is_judged_again(watching: subprocess.Popen[str], tmp_path: Path) -> None:
    report = tmp_path / "report" / "report.json"
    read_until(watching, "watching 1 file; Ctrl-C ends")
    failing = report.read_text()
    (tmp_path / "mine.py").write_text(SOURCE.format(name="Interp"))
    read_until(watching, "changed: mine.py")
    read_until(watching, "watching 1 file")
    assert report.read_text() != failing
    os.killpg(watching.pid, signal.SIGINT)
    assert watching.wait(60) == 0  # the last run passed


def test_the_status_is_that_of_the_last_run(watching: subprocess.Popen[str]) -> None:
    read_until(watching, "watching 1 file")
    os.killpg(watching.pid, signal.SIGINT)
    assert watching.wait(60) == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [(("--rows", "*"), "leave out --rows"), (("--subject", "compiler"), "leave out --subject"), ((), "")],
)
def test_options_that_contradict_are_refused(tmp_path: Path, more: tuple[str, ...], words: str) -> None:
    backend = ("-b", "interp") if more else ()
    environment = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-m", "uops", "conform", *backend, "--watch", "Movement/Flip", *more],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2 and words in done.stderr and "--watch" in done.stderr


def test_files_are_found_without_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "whole" / "parts").mkdir(parents=True)
    for name in ("alone.py", "beside.py", "whole/__init__.py", "whole/parts/part.py", "whole/parts/__init__.py"):
        (tmp_path / name).write_text("raise SystemExit('imported')\n")
    monkeypatch.chdir(tmp_path)

    def names(module: str) -> list[str]:
        return [str(p.relative_to(tmp_path)) for p in list_source_files(module)]

    assert names("alone") == ["alone.py", "beside.py"]
    assert names("whole") == ["whole/__init__.py", "whole/parts/__init__.py", "whole/parts/part.py"]
    assert names("whole.parts.part") == ["whole/parts/__init__.py", "whole/parts/part.py"]
    assert names("nowhere") == names("alone.nothing") == names("whole.nothing") == []


def test_each_change_runs_once(tmp_path: Path) -> None:
    said: list[str] = []
    kept, passing = tmp_path / "a.py", tmp_path / "b.py"
    kept.write_text("")

    def files() -> list[Path]:
        if len(said) == 1:
            passing.write_text("")  # a new file, during the watch
        elif len(said) == 3:
            passing.unlink()
        elif len(said) == 5:
            raise KeyboardInterrupt
        return [kept, passing]

    assert run_whenever_files_change([sys.executable, "-c", "raise SystemExit(3)"], files, said.append, poll=0.0) == 3
    assert said == ["watching 1 file; Ctrl-C ends", "changed: b.py", "watching 2 files; Ctrl-C ends", "changed: b.py",
                    "watching 1 file; Ctrl-C ends"]  # fmt: skip


def test_the_option_is_replaced_in_both_forms() -> None:
    assert replace_option(["conform", "--watch", "A/*"], "--watch", "--rows") == ["conform", "--rows", "A/*"]
    assert replace_option(["conform", "--watch=A/*", "-b", "x"], "--watch", "--rows") == ["conform", "--rows=A/*", "-b", "x"]
