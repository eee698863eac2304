"""`uops fuzz`: what it says and how it ends; campaigns themselves are tested in tests/fuzz."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from uops.fuzz.campaign.process import LIMITS
from uops.fuzz.campaign.work import LocalPool
from uops.fuzz.generate.kinds import KINDS
from uops.fuzz.oracles.oracles import ORACLES

PLANTED = """
from uops.backends.conformance.controls import Interp
from uops.interp import run
from uops.spec.ir.node import toposort
from uops.spec.ir.ops import Op

class NoMax(Interp):
    def run(self, graph, inputs):
        if any(u.op is Op.MAX for u in toposort(graph)):
            raise ValueError("no Max")
        return run(graph, inputs)
"""

SLOW = """
import time
from uops.backends.conformance.controls import Interp
from uops.interp import run

class Slow(Interp):
    def run(self, graph, inputs):
        time.sleep(3)
        return run(graph, inputs)
"""

REFUSING = """
from uops.backends.conformance.controls import Interp
from uops.spec.errors import Unsupported

class Nothing(Interp):
    def run(self, graph, inputs):
        raise Unsupported(graph.op.name, "nothing")
"""


def test_a_campaign_without_findings_ends_with_0(uops: Any, tmp_path: Path) -> None:
    done = uops("fuzz", "--backend", "interp", "-n", "40", "-j", "1")
    assert done.exit_code == 0
    assert "40 cases" in done.output
    assert "nothing was found" in done.output
    assert {"report.json", "index.html", "journal.jsonl"} <= {p.name for p in (tmp_path / "fuzz-report").iterdir()}


def test_findings_end_with_1_and_their_files_can_be_asked_again(uops: Any, tmp_path: Path) -> None:
    (tmp_path / "nomax.py").write_text(PLANTED)
    done = uops("fuzz", "--backend", "nomax:NoMax", "-n", "64", "-j", "1", "--report", "out", "--json")
    assert done.exit_code == 1
    found = json.loads(done.output)
    assert [f["fault"]["kind"] for f in found["findings"]] == ["valueerror"]
    file = f"out/findings/{found['findings'][0]['file']}"
    told = " ".join(uops("fuzz", "--backend", "nomax:NoMax", "-n", "64", "-j", "1", "--report", "out").output.split())
    (looked_at,) = {f["count"] for f in found["findings"]}
    assert f"cases that failed: {sum(found['raw'].values())}; looked at again: {looked_at}" in told
    assert "findings, one for each cause: 1" in told and " Cases " in told
    again = uops("fuzz", file)
    assert again.exit_code == 1
    assert "allowed: valueerror: no Max" in again.output
    assert uops("fuzz", file, "--backend", "interp").exit_code == 0
    text = (tmp_path / file).read_text()
    for oracle, says in (
        ("scheduled", "needs a target of the compiler, which nomax:NoMax is not"),
        ("second", "the file names none"),
    ):
        (tmp_path / "other.uops").write_text(text.replace('"oracle": "allowed"', f'"oracle": "{oracle}"'))
        other = uops("fuzz", "other.uops")
        assert other.exit_code == 2
        assert says in " ".join(other.output.split())
    plain = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("; uops fuzz:"))
    (tmp_path / "plain.uops").write_text(plain)
    assert "it is no reproducer" in uops("fuzz", "plain.uops").output
    asked = uops("fuzz", "plain.uops", "--backend", "nomax:NoMax")
    assert (asked.exit_code, "allowed: valueerror: no Max" in asked.output) == (1, True)
    assert uops("fuzz", "plain.uops", "--backend", "interp").exit_code == 0
    assert "no Max" in uops("run", file, "--backend", "nomax:NoMax").output
    ran = uops("run", file, "--json")
    assert ran.exit_code == 0
    assert json.loads(ran.output)["seed"] is None


def test_a_case_has_the_seconds_that_it_is_given(uops: Any, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    head = {"oracle": "allowed", "kind": "tensor", "seed": 1, "setup": {"backend": "slow:Slow"}}
    (tmp_path / "slow.uops").write_text(f"; uops fuzz: {json.dumps(head)}\n; input p0: 1 2\n%0 = param (2), slot=0 : i32\n")
    given = uops("fuzz", "slow.uops", "--timeout", "40")
    assert (given.exit_code, "has no objection" in given.output) == (0, True)
    short = uops("fuzz", "slow.uops", "--timeout", "0.5")
    assert (short.exit_code, "allowed: timeout:" in short.output) == (1, True)


def test_so_has_a_case_of_a_campaign(uops: Any, monkeypatch: Any) -> None:
    given: list[float] = []
    began = LocalPool.__init__

    def spied(self: LocalPool, setup: Any, limits: Any, jobs: int) -> None:
        given.append(limits.timeout)
        began(self, setup, limits, jobs)

    monkeypatch.setattr(LocalPool, "__init__", spied)
    assert uops("fuzz", "-b", "interp", "-n", "8", "--timeout", "7.5").exit_code == 0
    assert uops("fuzz", "-b", "interp", "-n", "8").exit_code == 0
    assert given == [7.5, LIMITS.timeout]
    assert uops("fuzz", "-b", "interp", "-n", "8", "--timeout", "0").exit_code == 2


def test_a_campaign_that_judges_nothing_ends_with_2(uops: Any, tmp_path: Path) -> None:
    (tmp_path / "nothing.py").write_text(REFUSING)
    done = uops("fuzz", "--backend", "nothing:Nothing", "-n", "40", "-j", "1")
    assert done.exit_code == 2
    assert "40 of these cases were refused by the backend" in done.output
    assert "nothing that nothing:Nothing does was judged" in done.output
    assert "nothing was found" not in done.output
    idle = uops("fuzz", "--backend", "interp", "-n", "40", "-j", "1", "--oracles", "reference,scheduled", "--report", "idle")
    assert idle.exit_code == 2
    assert "no case was judged by scheduled" in idle.output


def test_graphs_of_the_second_document_judge_the_interpreter_which_evaluates_them(uops: Any) -> None:
    done = uops("fuzz", "--backend", "interp", "-n", "8", "-j", "1", "--kinds", "bestiary")
    assert done.exit_code == 0
    assert "nothing was found" in done.output and "judged on the backend" not in done.output
    found = json.loads(uops("fuzz", "-b", "interp", "-n", "8", "--kinds", "bestiary", "--json", "--report", "again").output)
    assert (found["judged"], found["coverage"]["oracle"]["legalized"]) == (8, 8)
    form = uops("fuzz", "-b", "interp", "-n", "64", "--kinds", "bestiary", "--oracles", "form", "--report", "form")
    assert form.exit_code == 2 and "nothing that interp does was judged: form (" in form.output


def test_graphs_of_the_second_document_judge_a_compiled_backend_by_their_legal_form(uops: Any) -> None:
    done = json.loads(uops("fuzz", "-b", "llvm", "-n", "8", "-j", "1", "--kinds", "bestiary", "--json").output)
    assert 0 < done["judged"] <= 8 and done["coverage"]["oracle"]["compiled"] > 0


@pytest.mark.parametrize("backend", ["nothing:Nothing"])
def test_graphs_of_the_second_document_alone_judge_no_backend(uops: Any, tmp_path: Path, backend: str) -> None:
    """They are evaluated by the interpreter, whoever is named."""
    (tmp_path / "nothing.py").write_text(REFUSING)
    done = uops("fuzz", "--backend", backend, "-n", "8", "-j", "1", "--kinds", "bestiary")
    assert done.exit_code == 2
    assert "0 of these cases were judged on the backend" in done.output
    assert f"nothing that {backend} does was judged: legalized (8) judged programs and the interpreter alone" in done.output
    assert "nothing was found" not in done.output
    assert "Nothing was found" not in (tmp_path / "fuzz-report/index.html").read_text()


def test_what_was_refused_counts_as_judged_nowhere(uops: Any, tmp_path: Path) -> None:
    (tmp_path / "nothing.py").write_text(REFUSING)
    done = uops("fuzz", "--backend", "nothing:Nothing", "-n", "40", "-j", "1", "--kinds", "tensor,bestiary", "--json")
    assert done.exit_code == 2
    found = json.loads(done.output)
    drawn = found["coverage"]["kind"]
    assert (found["judged"], found["refused"], found["cases"]) == (0, drawn["tensor"], 40)
    alone = uops("fuzz", "--backend", "nothing:Nothing", "-n", "40", "-j", "1", "--json", "--report", "alone")
    assert "row" not in json.loads(alone.output)["coverage"] and json.loads(alone.output)["sets"]["elements"] == 0


def test_the_same_command_goes_on_and_another_one_is_refused(uops: Any) -> None:
    first = uops("fuzz", "--backend", "interp", "-n", "32", "-j", "1", "--json")
    more = uops("fuzz", "--backend", "interp", "-n", "64", "-j", "1", "--json")
    assert (json.loads(first.output)["cases"], json.loads(more.output)["cases"]) == (32, 64)
    assert json.loads(more.output)["time"]["cases"] == 32
    idle = uops("fuzz", "--backend", "interp", "-n", "64", "-j", "1")
    assert "64 cases, all from the journal: nothing was left to do" in idle.output
    other = uops("fuzz", "--backend", "interp", "-n", "64", "-j", "1", "--seed", "1")
    assert other.exit_code == 2
    assert "is of another campaign" in other.output


def test_wrong_questions_are_said_so(uops: Any) -> None:
    for arguments, says in (
        ((), "name the backend to test"),
        (("--backend", "nobody"), "no backend is called 'nobody'"),
        (("--backend", "interp", "--kinds", "tensors"), "no kind is called 'tensors'"),
        (("--backend", "interp", "--kinds", "ops,tensr"), "did you mean tensor?"),
        (("--backend", "interp", "--oracles", "me"), "no oracle is called 'me'"),
        (("--backend", "interp", "--oracles", "refrence"), "did you mean reference?"),
        (("--backend", "interp", "--oracles", ","), "--oracles must name at least one"),
        (("--backend", "interp", "--seconds", "nan"), "must be a number of seconds, got nan"),
        (("--backend", "interp", "--timeout", "nan"), "must be a number of seconds, got nan"),
        (("--backend", "interp", "--kinds", ","), "--kinds must name at least one"),
        (("--backend", "interp", "--oracles", "allowed,second"), "the oracle second needs a second backend: --against"),
    ):
        done = uops("fuzz", *arguments)
        assert done.exit_code == 2
        assert says in done.output


def test_kinds_and_oracles_are_listed(uops: Any) -> None:
    done = uops("fuzz", "--list")
    assert done.exit_code == 0
    assert all(name in done.output for name in (*KINDS, *ORACLES))
    assert json.loads(uops("fuzz", "--list", "--json").output).keys() == {"kinds", "oracles"}
