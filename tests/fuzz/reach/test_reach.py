"""The functions that judged cases reach: read off the sources, recorded by an import hook, counted by campaigns."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from uops.fuzz.campaign.campaign import Campaign
from uops.fuzz.campaign.examine import Setup
from uops.fuzz.campaign.report import write_campaign_report
from uops.fuzz.reach import recorder
from uops.fuzz.reach.__main__ import UNREADABLE, main
from uops.fuzz.reach.functions import OPTIMIZER, list_counted_modules, list_functions, walk_functions

SOURCE = '''
class A(Protocol):
    def declared(self): ...
    def described(self):
        """Only words."""
    def method(self):
        def inner(): return 1
        return inner

if True:
    async def top(): pass
'''


def test_functions_have_qualified_names_and_declarations_are_none() -> None:
    assert [name for name, _ in walk_functions(ast.parse(SOURCE))] == ["A.method", "A.method.<locals>.inner", "top"]


@pytest.mark.parametrize(("backend", "module"), [("llvm", "llvm.render"), ("c", "cstyle.render"), ("opencl", "opencl.render")])
def test_a_renderer_is_what_its_module_imports_of_its_package(backend: str, module: str) -> None:
    modules = list_counted_modules(backend)
    assert f"uops.backends.{module}" in modules
    assert f"{OPTIMIZER}.schedule.moves" in modules
    assert not [m for m in modules if ".worker" in m or ".conformance" in m or m.endswith(".binding")]


def test_a_backend_elsewhere_has_the_functions_of_the_optimizer_alone() -> None:
    assert {f.rpartition(":")[0] for f in list_functions("mine.target:Backend")} <= list_counted_modules("none").keys()


def test_the_recorder_comes_before_the_modules() -> None:
    """This process has imported them."""
    code = "import uops.backends.llvm.render, uops.fuzz.reach.recorder as r; r.install_recorder('llvm')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "must be installed before uops.backends.llvm" in result.stderr


def test_a_case_has_only_the_functions_that_run_for_it() -> None:
    """Those of a case that was refused are not the next one's, and those of a part are also the whole's."""
    recorder.record("outside of all blocks")
    first, second, part = set[str](), {"compiled with others"}, set[str]()
    with suppress(ValueError), recorder.collect_reached_functions(first):
        recorder.record("before it is refused")
        raise ValueError
    with recorder.collect_reached_functions(second):
        with recorder.collect_reached_functions(part):
            recorder.record("of a part")
        recorder.record("of the next case")
    assert first == {"before it is refused"}
    assert part == {"of a part"}
    assert second == {"compiled with others", "of a part", "of the next case"}


def test_a_campaign_counts_the_functions_of_judged_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setup = Setup("llvm", 3, ("tensor", "reduces"), records_reach=True)
    summary = Campaign(setup, tmp_path, cases=32, jobs=1).run()
    report = write_campaign_report(summary, tmp_path)
    reached, judged = report["coverage"]["reached"], report["judged"]
    assert reached.keys() <= list_functions("llvm").keys()
    assert max(reached.values()) <= judged
    assert 0 < reached[f"{OPTIMIZER}.schedule.schedule:create_initial_schedule"] <= judged
    assert main([str(tmp_path)]) == 1  # 32 cases do not reach everything
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == f"{len(reached)} of {len(list_functions('llvm'))} functions were reached"
    assert len(out) - 1 == len(list_functions("llvm")) - len(reached)


def test_reports_are_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    functions = sorted(list_functions("llvm"))
    for name, part in (("one", functions[::2]), ("two", functions[1::2])):
        (tmp_path / name).mkdir()
        document = {"setup": {"backend": "llvm"}, "coverage": {"reached": dict.fromkeys(part, 1)}}
        (tmp_path / name / "report.json").write_text(json.dumps(document))
    assert main([str(tmp_path / "one"), str(tmp_path / "two")]) == 0
    assert main([str(tmp_path / "one")]) == 1
    assert capsys.readouterr().out.splitlines()[0] == f"{len(functions)} of {len(functions)} functions were reached"


@pytest.mark.parametrize(
    ("text", "why"),
    [(None, "no report can be read"), ("{", "no report can be read"), ('{"setup": {}}', "run the campaign with --reach")],
)
def test_a_report_without_counts_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, why: str) -> None:
    if text is not None:
        (tmp_path / "report.json").write_text(text)
    assert main([str(tmp_path)]) == UNREADABLE
    assert why in capsys.readouterr().err
