"""Where the package does not run it says so at once, in one line; its metadata claims no more systems than are tested."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import uops

ROOT = Path(__file__).parents[2]


def import_on(platform: str, module: str = "uops") -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.platform = {platform!r}; import {module}; print('imported')"
    environment = {"PYTHONPATH": str(Path(uops.__file__).parents[1]), "PATH": ""}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("platform", ["win32", "emscripten", "wasi"])
@pytest.mark.parametrize("module", ["uops", "uops.cli", "uops.spec.ir.text"])
def test_a_system_that_is_no_posix_system_is_refused_at_once(platform: str, module: str) -> None:
    done = import_on(platform, module)
    assert done.returncode == 1 and done.stdout == ""
    said = f"ImportError: uops runs on Linux, not on {platform}: it needs POSIX processes; on Windows, use WSL"
    assert done.stderr.splitlines()[-1] == said


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_posix_system_is_not_refused(platform: str) -> None:
    assert import_on(platform).stdout == "imported\n"


def test_the_metadata_claims_the_system_that_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    systems = [c for c in project["classifiers"] if c.startswith("Operating System")]
    assert systems == ["Operating System :: POSIX :: Linux"]
