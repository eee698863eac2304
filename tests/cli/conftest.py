"""How tests call the command, and a suite that judges nothing: a made-up run in place of the real one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from uops.backends.conformance.model import (
    CellResult,
    CellStatus,
    ConformanceCase,
    ConformanceCell,
    ConformanceLevel,
    ConformanceTier,
    Failure,
    SampleOrigin,
    SchedulePolicy,
    Segment,
)
from uops.cli import main
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.rows.named.base import RowSubject
from uops.spec.verify.dialects import Dialect

Uops = Callable[..., Result]

PROGRAM = "%0 = param (2, 3), slot=0 : f32\n%1 = const 1.5 : f32\n%2 = add %0, %1\n%3 = reduce %2, op=add, axes=[1]\n"
BROKEN = "%0 = param (2, 3), slot=0 : f32\n%1 = pad %0, (0, 2), (4, 4)\n%2 = add %0, %1\n"


BROWSER = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)


@pytest.fixture
def dump(tmp_path: Path) -> Callable[[str], str]:
    """The document at an address, as a browser of 1800 by 1000 pixels leaves it after a few seconds."""
    if BROWSER is None:
        pytest.skip("no browser is installed: neither chromium nor google-chrome is on PATH")

    def call(address: str) -> str:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        options = [
            "--headless", "--disable-gpu", "--allow-file-access-from-files", "--virtual-time-budget=6000",
            "--window-size=1800,1000", f"--user-data-dir={tmp_path / 'profile'}",
        ]  # fmt: skip
        done = subprocess.run(
            [str(BROWSER), *sandbox, *options, "--dump-dom", address], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


@pytest.fixture
def uops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Uops:
    """`uops("run", "x.uops")` in an empty directory; what the command raised is raised again, unless it ended by itself."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Result:
        result = CliRunner().invoke(main, list(arguments), prog_name="uops")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call


@pytest.fixture
def program(tmp_path: Path) -> str:
    (tmp_path / "program.uops").write_text(PROGRAM)
    return "program.uops"


@pytest.fixture
def broken(tmp_path: Path) -> str:
    (tmp_path / "broken.uops").write_text(BROKEN)
    return "broken.uops"


class FakeRun:
    """The fields of `uops.backends.conformance.runner.ConformanceRun`."""

    def __init__(self, backend: str, tier: ConformanceTier, rows: str, statuses: dict[tuple[str, str, str], CellStatus]) -> None:
        self.backend, self.version, self.tier, self.rows = backend, "fake 1.0", tier, rows
        self.cases, self.seconds, self.complete = len(statuses), 0.5, True
        self.schedules, self.applied, self.validated = SchedulePolicy(), Counter[str](), Counter[str]()
        self.reproducers: dict[str, ConformanceCase] = {}
        self.surfaces, self.traits = ("tensor",), ()
        self.subject = RowSubject.BACKEND
        self.dialect: Dialect | None = None
        self.sample: SampleOrigin | None = None
        self.cells: dict[ConformanceLevel, dict[ConformanceCell, CellResult]] = {level: {} for level in ConformanceLevel}
        for key, status in statuses.items():
            for level in ConformanceLevel:
                found = CellResult(ConformanceCell(*key), status, 4, 1 if status is CellStatus.FAIL else 0)
                if status is CellStatus.FAIL:
                    case = f"{key[0]}/{key[1]}/edges"
                    found.failures.append(Failure(case, "element 1 is wrong", 0, 1, ("p0 = 3 (0x03)",), "9 (0x09)", "8 (0x08)"))
                    graph = b.add(b.param(0, (4,), dt.int8), 1)
                    self.reproducers[case] = ConformanceCase(key[0], dt.int8, "edges", graph, {}, (Segment("zero", 0, 0, 4),))
                self.cells[level][ConformanceCell(*key)] = found


class Suite:
    """What the fake suite decides, and how it was called."""

    def __init__(self) -> None:
        self.statuses: dict[tuple[str, str, str], CellStatus] = {
            ("Elementwise/Add", "int8", "zero"): CellStatus.PASS,
            ("Elementwise/Add", "int8", "limit"): CellStatus.PASS,
            ("Elementwise/Mul", "int8", "zero"): CellStatus.PASS,
        }
        self.complete = True
        self.applied: dict[str, int] = {}
        self.calls: list[dict[str, Any]] = []

    def conform(
        self, backend: str, instance: Any, *, tier: ConformanceTier, rows: str, jobs: int, progress: Callable[[int, int], None],
        schedules: SchedulePolicy, journal: Path | None, dialect: Dialect | None, sample: int | None, sample_seed: int,
    ) -> FakeRun:  # fmt: skip
        called = {"backend": backend, "name": instance.name, "tier": tier, "rows": rows, "jobs": jobs}
        called |= {"journal": journal} if journal else {}
        called |= {"dialect": dialect} if dialect else {}
        called |= {"sample": sample, "sample_seed": sample_seed} if sample else {}
        self.calls.append(called if schedules == SchedulePolicy() else called | {"schedules": schedules})
        progress(1, 2)
        run = FakeRun(backend, tier, rows, self.statuses)
        run.schedules, run.applied = schedules, Counter(self.applied)
        run.complete, run.dialect = self.complete, dialect
        run.sample = SampleOrigin(sample_seed, 9000, frozenset({"Elementwise/Add", "Elementwise/Mul"})) if sample else None
        return run


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch) -> Suite:
    fake = Suite()
    module = ModuleType("uops.backends.conformance.runner")
    module.run_conformance = fake.conform  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return fake
