"""`uops search` finds, keeps and reports schedules, and Ctrl-C loses nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import uops.cli
from uops.cli.commands.search import format_microseconds

Uops = Callable[..., Result]
GEMM = """%0 = param (48, 40), slot=0 : f32
%1 = param (40, 56), slot=1 : f32
%2 = reshape %0, (48, 40, 1)
%3 = reshape %1, (1, 40, 56)
%4 = mul %2, %3
%5 = reduce %4, op=add, axes=[1]
"""


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("UOPS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "schedules"


def test_a_search_reports_every_kernel_and_the_next_one_knows(uops: Uops, program: str, own_cache: Path) -> None:
    (first,) = json.loads(uops("search", program, "-b", "llvm", "--seconds", "1", "--json").stdout)
    assert first["timed"] > 1 and first["best"] > 0 and first["chosen"] >= first["best"] * 0.99 and not first["stopped"]
    assert len(list(own_cache.iterdir())) == 1
    (again,) = json.loads(uops("search", program, "-b", "llvm", "--seconds", "1", "--json").stdout)
    assert again["timed"] == 0 and again["best"] == first["best"] and again["opts"] == first["opts"]
    table = uops("search", program, "-b", "llvm")
    assert table.exit_code == 0 and "known" in table.stdout and first["kernel"] in table.stdout


def test_a_backend_that_is_no_target_has_nothing_to_search(uops: Uops, program: str) -> None:
    result = uops("search", program, "-b", "interp")
    assert result.exit_code == 2 and "is not a target of the compiler" in result.stderr


def test_times_are_told_in_microseconds() -> None:
    assert (format_microseconds(0.0012345), format_microseconds(None), format_microseconds(float("inf"))) == ("1,234.5", "-", "-")


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_keeps_the_best_so_far(own_cache: Path, tmp_path: Path) -> None:
    (tmp_path / "gemm.uops").write_text(GEMM)
    paths = os.pathsep.join([str(Path(uops.cli.__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    command = [sys.executable, "-m", "uops", "search", "gemm.uops", "-b", "llvm", "--beam", "4", "--seconds", "100", "--json"]
    child = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths})
    end = time.monotonic() + 60
    while not (own_cache.is_dir() and any(f.suffix == ".schedule" for f in own_cache.iterdir())):
        assert time.monotonic() < end and child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    text, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    (found,) = json.loads(text)
    assert found["stopped"] and found["best"] > 0
    (file,) = own_cache.glob("*.schedule")
    assert json.loads(file.read_bytes().partition(b"\n")[2])["complete"] is False
