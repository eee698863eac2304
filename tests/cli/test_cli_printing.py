"""Texts of others - names of files, what backends say - reach terminals, reports and pages without what acts on a terminal."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import uops.cli
from uops.backends.testing.journal import Journal
from uops.cli.common import echo, make_console_that_escapes_controls, print_json
from uops.fuzz.campaign.campaign import _CampaignState

Uops = Callable[..., Result]
CLI = Path(uops.cli.__file__).parent

LOUD = """
from uops.backends.contract import Backend, Capabilities
class Loud(Backend):
    name = "loud"
    def version(self): return "loud \\ud800"
    def capabilities(self): return Capabilities()
    def run(self, graph, inputs): raise ValueError("\\x1b[31mred\\ud800\\u202e")
"""


@pytest.fixture
def loud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "loud_backend.py").write_text(LOUD)
    monkeypatch.setenv("COLUMNS", "400")
    return "loud_backend:Loud"


def clean(text: str) -> bool:
    return not set("\x1b\u202e\ud800") & set(text)


def test_only_one_module_prints() -> None:
    """A print elsewhere would not be made safe."""
    for path in sorted(CLI.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and path.name != "common.py":
                called = ast.unparse(node.func)
                assert called not in ("print", "click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write", "Console"), (
                    f"{path.name}:{node.lineno} calls {called}: use echo or console of uops.cli.common"
                )


def test_only_one_module_takes_the_text_of_rich() -> None:
    """It drops BEL and others of its own accord; ours spells them."""
    for path in sorted(CLI.rglob("*.py")):
        assert path.name in ("common.py", "texts.py") or "rich.text" not in path.read_text(), path


def test_echo_json_and_console_print_no_escape(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.table import Table

    from uops.cli.texts import Text

    nasty = "a\x07\x08\x1b[31m\x9b\u202e\ud800\x7f"
    echo(nasty)
    print_json({nasty: [nasty]})
    table = Table()
    table.add_column(nasty, min_width=60)
    table.add_row(Text(nasty))
    make_console_that_escapes_controls().print(table)
    make_console_that_escapes_controls().print(nasty, markup=False)
    make_console_that_escapes_controls().print(Text.assemble(nasty))
    found = capsys.readouterr().out
    letters = "".join(c for c in found if c not in "│┃ \n")
    assert letters.count("a\\x07\\x08\\x1b[31m\\x9b\\u202e\\ud800\\x7f") == 5 and clean(found)
    assert json.loads(found[found.index("{") : found.index("}") + 1]) == {nasty: [nasty]}


@pytest.mark.parametrize("command", [("check",), ("run",), ("compile", "-b", "llvm"), ("fuzz",), ("view",)])
@pytest.mark.parametrize("there", [False, True])
def test_a_name_of_a_file_is_printed_without_escapes(uops: Uops, tmp_path: Path, command: tuple[str, ...], there: bool) -> None:
    name = "a\x1b[31m\u202e.uops"
    if there:
        (tmp_path / name).write_text("%0 = nonsense\n")
    result = uops(*command, name)
    assert result.exit_code in (1, 2) and clean(result.output) and "\\x1b[31m\\u202e" in result.output


def test_what_a_backend_says_reaches_report_and_page_and_again_from_the_journal(uops: Uops, loud: str, tmp_path: Path) -> None:
    for _ in range(2):
        result = uops("conform", "-b", loud, "--rows", "Movement/Flip", "--journal", "journal", "-j", "1")
        assert result.exit_code == 1 and clean(result.output) and "\\x1b[31mred\\ud800\\u202e" in result.output
        assert clean((tmp_path / "report/index.html").read_text())
        assert "\\\\x1b[31mred\\\\ud800\\\\u202e" in (tmp_path / "report/report.json").read_text()


def test_a_campaign_of_a_loud_backend_ends_in_a_report(uops: Uops, loud: str, tmp_path: Path) -> None:
    for _ in range(2):
        result = uops("fuzz", "-b", loud, "-n", "4", "-j", "1", "--oracles", "allowed")
        assert result.exit_code == 1 and clean(result.output) and "\\x1b[31mred\\ud800\\u202e" in result.output
        assert clean((tmp_path / "fuzz-report/index.html").read_text())


def test_a_journal_with_a_lone_surrogate_is_gone_on_from(tmp_path: Path) -> None:
    """As an earlier version wrote it."""
    fault = {"kind": "valueerror", "message": "\ud800\x1b"}
    triaged = {"oracle": "allowed", "fault": fault, "place": None, "made_of": ["\ud800"]}
    lines = [
        {"batch": {"number": 0, "cases": 1, "counts": {}, "findings": [{"k": 0, "oracle": "allowed", "fault": fault}]}},
        {"triaged": {"k": 0, "triaged": triaged}},
        {"reduced": {"k": 0, "nodes": 1, "triaged": triaged, "text": "\ud800"}},
    ]
    journal = Journal(tmp_path / "journal", {"campaign": {}})
    for line in lines:
        journal.add(line)
    (found,) = _CampaignState(journal).merge_findings_by_cause()
    assert found.triaged.fault.message == "\\ud800\\x1b" and found.triaged.op_dtypes == ("\\ud800",)


def test_a_name_with_a_newline_cannot_make_a_verdict(tmp_path: Path, uops: Uops) -> None:
    path = tmp_path / "bad\nfine.uops: no broken claim\x07"
    path.write_text("%0 = const 1 : i32\n")
    found = uops("check", str(path))
    assert found.stdout.count("\n") == 1 and "\\n" in found.stdout and "\\x07" in found.stdout


def test_a_name_cannot_forge_a_line_of_the_verdict(uops: Uops, tmp_path: Path) -> None:
    """PARAM.C6 tells the name of the Param, which may hold any text."""
    name = json.dumps("x\nPARAM.C9 (forged) broken at %0")
    (tmp_path / "forged.uops").write_text(f"%0 = param (), slot=none, name={name}, bounds=[5, 1] : i32\n")
    lines = uops("check", "forged.uops").output.splitlines()
    assert any("\\nPARAM.C9" in line for line in lines) and not any(line.startswith("PARAM.C9") for line in lines)


@pytest.mark.parametrize(("option", "word", "meant"), [("--kinds", "tensr", "tensor"), ("--oracles", "alowed", "allowed")])
def test_an_unknown_name_of_a_campaign_has_suggestions(uops: Uops, option: str, word: str, meant: str) -> None:
    result = uops("fuzz", "-b", "interp", option, word)
    assert result.exit_code == 2 and f"did you mean {meant}" in result.output


FORGED = "n\nfine.uops: no broken claim\x07"
SPELLED = "n\\nfine.uops: no broken claim\\x07"


@pytest.mark.parametrize("command", [("check",), ("fuzz", "-b", "interp"), ("bisect", "-b", "llvm")])
def test_a_name_of_a_file_with_a_newline_cannot_make_a_verdict(uops: Uops, tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / FORGED).write_text("%0 = const 1 : i32\n")
    result = uops(*command, FORGED)
    assert result.exit_code == 0 and result.stdout.count("\n") == 1 and result.stdout.startswith(f"{SPELLED}: ")


def test_a_name_in_a_usage_error_stays_on_one_line(uops: Uops, tmp_path: Path) -> None:
    (tmp_path / "a.uops").write_text("%0 = const 1 : i32\n")
    result = uops("check", "a.uops", FORGED)
    assert result.exit_code == 2 and f"Error: Got unexpected extra argument ({SPELLED})" in result.stderr.splitlines()


NAME = json.dumps(FORGED)
#: Texts that put somebody's name into the message of a claim, by the claim.
CLAIMS = {
    "PARAM.C6": f"%0 = param (), slot=none, name={NAME}, dtype=index",
    "PARAM.C6 of a shape": f"%0 = param (2), slot=none, name={NAME}, bounds=[0, 1], dtype=index",
    "PARAM.C7": f"%0 = param (), slot=0, device={NAME}, axis=0, dtype=i32",
    "SUB.C4": f"%0 = param (), slot=none, name={NAME}, bounds=[1, 4], dtype=index\n%1 = param (%0), slot=0, dtype=i32\n"
    "%2 = param (3), slot=1, dtype=i32\n%3 = sub %1, %2",
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_name_in_a_claim_cannot_make_a_verdict(uops: Uops, tmp_path: Path, claim: str) -> None:
    (tmp_path / "bad.uops").write_text(CLAIMS[claim] + "\n")
    result = uops("check", "bad.uops")
    assert result.exit_code == 1 and result.stdout.count("\n") == 1
    assert claim.partition(" ")[0] in result.stdout and SPELLED in result.stdout
