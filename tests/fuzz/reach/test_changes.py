"""The lines of the package that differ from a revision, and campaigns that are directed at them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from uops.backends.testing.journal import PACKAGE
from uops.fuzz.reach import changes
from uops.fuzz.reach.changes import NoChanges, find_lines_changed_since

DIFF = """\
diff --git a/fuzz/x.py b/fuzz/x.py
--- a/fuzz/x.py
+++ b/fuzz/x.py
@@ -3,2 +3,3 @@ def f():
+a
+b
+c
@@ -9 +10,0 @@
@@ -12 +12 @@ def g():
+d
diff --git a/gone.py b/gone.py
+++ /dev/null
@@ -1,5 +0,0 @@
diff --git a/new.py b/new.py
--- /dev/null
+++ b/new.py
@@ -0,0 +1,2 @@
"""


def test_the_new_lines_of_a_diff() -> None:
    assert changes._parse_changed_lines(DIFF) == {"fuzz/x.py": [3, 4, 5, 10, 12], "new.py": [1, 2]}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of the package, in which only the compiler's folder is in the repository."""
    root = tmp_path / "checkout"
    shutil.copytree(PACKAGE, root / "uops", symlinks=False, ignore=shutil.ignore_patterns("__pycache__", "compiler"))
    shutil.copytree(PACKAGE / "compiler", root / "compiler", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "uops" / "compiler").symlink_to("../compiler")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-C", str(root)]
    for command in (["init", "-q"], ["add", "compiler"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    return root


def run_uops(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [
        sys.executable,
        "-m",
        "uops",
        "fuzz",
        "--backend",
        "llvm",
        "-j",
        "1",
        "--report",
        str(checkout / "report"),
        *arguments,
    ]
    return subprocess.run(command, env=environment, cwd=checkout, capture_output=True, text=True, check=False)


def change(path: Path, old: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, f"{old} "))


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_campaign_draws_the_kinds_that_run_what_has_changed(checkout: Path) -> None:
    change(checkout / "compiler" / "ir" / "zero_trip.py", "    runs = simplify(UOp(Op.CMPLT, (ZERO, zero_trip_loop.bound)))")
    done = run_uops(checkout, "--kinds", "ops,symbolic", "--changed-since", "HEAD", "-n", "32")
    assert done.returncode == 0, done.stderr
    assert "cases run changed lines" in done.stderr
    assert "--kinds symbolic" in done.stderr and "ops:" not in done.stderr
    assert "32 cases" in done.stdout
    none = run_uops(checkout, "--kinds", "ops", "--changed-since", "HEAD", "-n", "32")
    assert none.returncode not in (0, 1)
    assert "got none in" in none.stderr and "uops.compiler.ir.zero_trip" in none.stderr


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_what_has_not_changed_and_what_is_no_revision_are_errors(checkout: Path) -> None:
    for revision, why in (("HEAD", "no line of a module of the package differs"), ("no-such", "git cannot compare")):
        done = run_uops(checkout, "--changed-since", revision, "-n", "32")
        assert done.returncode not in (0, 1), done.stdout
        assert why in done.stderr


def test_without_git_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise FileNotFoundError("git")

    monkeypatch.setattr(changes.subprocess, "run", fail)
    with pytest.raises(NoChanges, match="expected git"):
        find_lines_changed_since("HEAD")
