"""A worker of pytest-xdist that crashes leaves its words: stacks, exit status, and what was written to stderr."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"


@pytest.mark.parametrize(
    ("crash", "words"),
    [
        ("ctypes.CDLL(None).abort()", "in test_of_crash"),
        ("ctypes.pythonapi.Py_FatalError(b'no such state')", "Fatal Python error: no such state"),
        ("os.write(2, b'as it was told'), os.kill(os.getpid(), 9)", "as it was told"),
    ],
)
def test_a_worker_that_crashes_leaves_its_words(tmp_path: Path, crash: str, words: str) -> None:
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "test_crash.py").write_text(f"import ctypes, os\n\ndef test_of_crash() -> None:\n    {crash}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-c", "/dev/null", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert "exit status -" in done.stdout
    assert words in done.stdout
