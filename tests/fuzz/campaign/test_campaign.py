"""Campaigns: every case can be made again alone, every way to fail is a finding, and nothing is lost to a kill."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uops
from uops.backends.registry import BrokenBackend
from uops.backends.testing.journal import Journal, JournalInUse, JournalMismatch
from uops.backends.worker.client import Limits
from uops.compiler import pipeline
from uops.fuzz.campaign import process
from uops.fuzz.campaign.campaign import BATCH, Campaign, Summary
from uops.fuzz.campaign.examine import CaseRunner, Setup
from uops.fuzz.campaign.process import Examiner
from uops.fuzz.generate import kinds
from uops.fuzz.generate.declared import SupportedOpDtypes
from uops.fuzz.reduce.reproducer import Reproducer, count_nodes, read_reproducer, write_reproducer
from uops.spec.errors import CompileError, SpecError
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.text import show

HERE = str(Path(__file__).parents[1] / "planted")
SRC = str(Path(uops.__file__).parents[1])


def setup(name: str, **more: Any) -> Setup:
    return Setup(f"planted_backends:{name}", path=(HERE,), **more)


def ran(name: str, place: Path, cases: int, jobs: int = 1, **more: Any) -> Summary:
    limits = more.pop("limits", Limits(timeout=60.0))
    return Campaign(setup(name, **more), place, cases=cases, jobs=jobs, limits=limits).run()


# Cases


def spelled(sample: kinds.ProgramSample) -> str:
    arrays = {k: np.asarray(v).tobytes().hex() for k, v in sorted(sample.inputs.items())}
    return json.dumps([sample.kind, show(sample.graph), sample.opts, arrays])


def test_a_case_is_a_function_of_seed_number_and_kinds() -> None:
    program = """
import sys; sys.path.insert(0, sys.argv[1])
from test_campaign import kinds, spelled
for k in map(int, sys.argv[2:]):
    print(spelled(kinds.sample(5, k, tuple(kinds.KINDS))))
"""
    numbers = [17, 3, 200, 4]
    command = [sys.executable, "-c", program, str(Path(__file__).parent), *map(str, numbers)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": SRC}, capture_output=True, text=True, check=True)
    here = {k: spelled(kinds.sample(5, k, tuple(kinds.KINDS))) for k in sorted(numbers)}
    assert done.stdout.splitlines() == [here[k] for k in numbers]
    assert spelled(kinds.sample(6, 17, tuple(kinds.KINDS))) != here[17]
    assert spelled(kinds.sample(5, 17)) != here[17]


def test_every_kind_is_drawn_and_unknown_ones_are_refused() -> None:
    names = tuple(kinds.KINDS)
    assert {kinds.sample(0, k, names).kind for k in range(200)} == set(names)
    with pytest.raises(kinds.UnknownKind, match="no kind is called 'tensors'; known: tensor"):
        kinds.sample(0, 0, ("tensors",))


# What a campaign finds


def test_nothing_is_found_where_nothing_is_wrong_and_two_processes_count_alike(tmp_path: Path) -> None:
    one, two = ran("Plain", tmp_path / "1", 3 * BATCH + 5), ran("Plain", tmp_path / "2", 3 * BATCH + 5, jobs=2)
    assert not one.raw
    assert one.cases == one.counts["cases"] == 3 * BATCH + 5
    assert one.counts == two.counts
    assert {"oracle:allowed", "oracle:reference", "kind:tensor", "set:exact", "width:0"} <= one.counts.keys()
    assert sum(k.startswith("row:") for k in one.counts) > 100


def test_crashes_errors_and_values_are_found_reduced_and_merged(tmp_path: Path) -> None:
    found = ran("Several", tmp_path, 3 * BATCH, jobs=2)
    kinds_found = Counter((f.triaged.oracle, f.triaged.fault.kind) for f in found.findings)
    assert {("allowed", "crash"), ("allowed", "valueerror"), ("allowed", "value")} <= kinds_found.keys()
    assert sum(found.raw.values()) > sum(kinds_found.values())
    assert all(f.nodes is not None and f.nodes <= 6 for f in found.findings)
    for f in found.findings:
        assert f.file is not None
        again = read_reproducer(tmp_path / "findings" / f.file)
        assert count_nodes(again.sample) == f.nodes
        with Examiner(setup("Several")) as examiner:
            shown = examiner.judge_and_locate_fault(again.sample, again.about["seed"], again.about["oracle"])
        assert shown is not None
        assert shown.cause_key == f.triaged.cause_key
        with Examiner(setup("Plain")) as examiner:
            assert examiner.judge_and_locate_fault(again.sample, again.about["seed"], again.about["oracle"]) is None


def test_findings_of_the_compiler_are_named_by_pass_and_rule(tmp_path: Path) -> None:
    found = ran("Compiled", tmp_path, 8 * BATCH, options={"rule": True}, oracles=("allowed",))
    assert [f.key for f in found.findings] == [("allowed", "select", "planted")]
    assert (found.findings[0].nodes or 99) <= 6
    assert found.findings[0].file == f"{found.findings[0].k}-allowed-select-planted.uops"


def test_findings_of_the_compiler_are_merged(tmp_path: Path) -> None:
    found = ran("Compiled", tmp_path, 4 * BATCH, options={"right": "fmul ", "wrong": "fadd "}, oracles=("allowed",), kinds=("ops",))
    assert {f.key[:3] for f in found.findings} == {("allowed", "backend", "")}
    assert sum(f.count for f in found.findings) > len(found.findings)
    assert all((f.nodes or 99) <= 6 for f in found.findings)


@pytest.mark.slow
def test_findings_of_one_pass_are_told_apart_by_what_is_left_of_them(tmp_path: Path) -> None:
    swaps = [["xor ", "or "], ["fmul ", "fadd "]]
    found = ran("Compiled", tmp_path, 4 * BATCH, options={"swaps": swaps}, oracles=("allowed",), kinds=("ops",))
    assert {("xor",), ("mul",)} <= {f.key[3:] for f in found.findings}
    assert len({f.key for f in found.findings}) == len(found.findings)


def test_a_toolchain_that_dies_is_the_finding_of_the_case_whose_text_it_had() -> None:
    alone = CaseRunner(Setup("llvm", oracles=("allowed",)))
    assert alone.subject.target is not None
    texts: list[str] = []
    alone.subject.target.compile = lambda source: (texts.append(source), source.encode())[1]
    wanted: list[int] = []
    stop = 0
    while len(wanted) < 2 and stop < 200:
        texts.clear()
        alone.generate_and_judge_case(stop)
        wanted += [stop] * any("double" in t for t in texts)
        stop += 1
    with Examiner(setup("Compiled", options={"dies": "double"}, oracles=("allowed",))) as examiner:
        found = examiner.run_batch_isolating_crashes(0, stop)
        assert examiner.restarts == 1 + 2 * len(wanted)  # together, then at work on each, and that alone
    assert len(wanted) == 2
    assert [(f["k"], f["oracle"], f["fault"]["kind"]) for f in found.findings] == [(k, "allowed", "crash") for k in wanted]


def test_a_hang_is_a_finding(tmp_path: Path) -> None:
    c = Campaign(setup("Hanging"), tmp_path, cases=12 * BATCH, limits=Limits(timeout=4.0), max_questions=3, max_findings=1)
    found = c.run()
    assert {f.triaged.fault.kind for f in found.findings} == {"timeout"}
    assert c.restarts >= 2


def test_a_backend_that_does_not_start_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(BrokenBackend, match="cannot be loaded"):
        Campaign(setup("NoSuch"), tmp_path, cases=1)


# What is not lost


class Interrupted(Examiner):
    """Somebody kills the child that serves, and in the second batch its parent too, in the middle of every batch, once."""

    def _run_batch_once(self, first: int, *more: Any) -> Any:
        process = self._ensure_process()
        if first not in self.__dict__.setdefault("killed", set()):
            self.__dict__["killed"].add(first)
            threading.Timer(0.02, self._kill, (process._popen.pid, first > 0)).start()
        return super()._run_batch_once(first, *more)

    @staticmethod
    def _kill(pid: int, parent: bool) -> None:
        child = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        for victim in (pid, child) if parent else (child,):
            os.kill(victim, signal.SIGKILL)


def test_a_killed_process_loses_nothing() -> None:
    with Examiner(setup("Plain")) as usual, Interrupted(setup("Plain")) as killed:
        for first in (0, BATCH):
            assert killed.run_batch_isolating_crashes(first, first + BATCH) == usual.run_batch_isolating_crashes(
                first, first + BATCH
            )
        assert usual.restarts == 0
        assert killed.restarts in (1, 2)  # the second one may come when its batch is done


def test_a_process_is_renewed_without_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_LIFE", 1)
    with Examiner(setup("Plain")) as renewed, Examiner(setup("Plain")) as usual:
        assert renewed.run_batch_isolating_crashes(0, 8) == usual.run_batch_isolating_crashes(0, 8)
        assert renewed.run_batch_isolating_crashes(8, 16) == usual.run_batch_isolating_crashes(8, 16)
        assert renewed.restarts == 0


def test_a_process_is_renewed_before_its_memory_is_short() -> None:
    """Without it, the last cases of a process that keeps memory per kernel were findings: a false alarm (PoCL, `calls`)."""
    limits, ran = Limits(memory=3 << 30), 0
    with Examiner(setup("Mapping", oracles=("allowed",)), limits) as examiner:
        for first in range(0, 64, 8):
            result = examiner.run_batch_isolating_crashes(first, first + 8)
            ran += result.counts["judged"]
            assert not result.findings
        assert examiner.restarts == 0
    assert ran * (100 << 20) > limits.memory  # what each run of `Mapping` maps: one process could not have run all


def command(report: Path, cases: int) -> list[str]:
    return [sys.executable, "-m", "uops", "fuzz", "--backend", "planted_backends:Several", "--cases", str(cases), "--jobs", "2",
            "--report", str(report), "--json"]  # fmt: skip


def started(report: Path, cases: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((SRC, HERE))}
    return subprocess.Popen(
        command(report, cases),
        cwd=HERE,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def timeless(report: Path) -> Any:
    found = json.loads((report / "report.json").read_text())
    del found["time"]
    return found


@pytest.mark.slow
def test_a_campaign_killed_ten_times_ends_as_one_that_was_not(tmp_path: Path) -> None:
    rng = random.Random(1)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert started(whole, 16 * BATCH).wait(600) == 1
    kills = 0
    while kills < 10:
        process = started(killed, 16 * BATCH)
        journal = killed / "journal.jsonl"
        lines = len(journal.read_bytes().splitlines()) if journal.exists() else 0
        wanted, deadline = lines + rng.choice((0, 0, 1, 2)), time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if journal.exists() and len(journal.read_bytes().splitlines()) >= wanted:
                break
            time.sleep(0.02)
        time.sleep(rng.random())
        if process.poll() is not None:
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    assert kills == 10, "the campaign was over before it could be killed"
    assert started(killed, 16 * BATCH).wait(600) == 1
    assert timeless(killed) == timeless(whole)
    assert {p.name: p.read_text() for p in (killed / "findings").iterdir()} == {
        p.name: p.read_text() for p in (whole / "findings").iterdir()
    }


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_in_a_report(tmp_path: Path) -> None:
    process = started(tmp_path, 100_000)
    journal = tmp_path / "journal.jsonl"
    deadline = time.monotonic() + 60
    while not (journal.exists() and len(journal.read_bytes().splitlines()) >= 2) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(60) == 130
    found = json.loads((tmp_path / "report.json").read_text())
    assert not found["complete"]
    assert found["cases"] >= BATCH


# The journal


def test_a_line_that_was_cut_off_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "j"
    j = Journal(path, {"campaign": 1})
    j.add({"batch": {"number": 0}})
    j.close()
    whole = path.read_bytes()
    for cut in (b'{"batch"', b'{"batch":{"number":1}}', b"\0\0\0\0\n"):
        path.write_bytes(whole + cut)
        again = Journal(path, {"campaign": 1})
        assert again.entries_under("batch") == [{"number": 0}]
        again.close()
        assert path.read_bytes() == whole


def test_a_journal_of_another_campaign_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path / "j", {"campaign": {"seed": 1}, "batch": 32}).close()
    with pytest.raises(JournalMismatch, match=r"differs in campaign$"):
        Journal(tmp_path / "j", {"campaign": {"seed": 2}, "batch": 32})


def test_a_journal_is_of_one_campaign_at_a_time(tmp_path: Path) -> None:
    first = Journal(tmp_path / "j", {"campaign": 1})
    first.add({"batch": {"number": 0}})
    with pytest.raises(JournalInUse, match="is in use by another run"):
        Journal(tmp_path / "j", {"campaign": 1})
    first.add({"batch": {"number": 1}})
    first.close()
    again = Journal(tmp_path / "j", {"campaign": 1})
    assert again.entries_under("batch") == [{"number": 0}, {"number": 1}]
    again.close()


def test_refusals_are_counted_by_their_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler refuses all copies between devices, and the backend declares nothing, so that it may."""

    def refuse(graph: UOp, target: Any) -> None:
        if any(isinstance(u.device, tuple) for u in toposort(graph)):
            raise CompileError("Lowering Pipeline/Callify at %0 = planted: on several devices")

    monkeypatch.setattr(pipeline, "_require_known_devices_and_verify_if_many", refuse)
    bench = CaseRunner(Setup("llvm", 8, ("devices",), ("allowed",)))
    bench.subject.declared = SupportedOpDtypes((), (("*", "*"),))
    counts = sum((bench.generate_and_judge_case(k).counts for k in range(64)), Counter[str]())
    refused = {name: n for name, n in counts.items() if name.startswith("refused:")}
    assert refused.keys() == {"refused:Lowering Pipeline/Callify"}
    assert refused["refused:Lowering Pipeline/Callify"] > 1


# Reproducers


@pytest.mark.parametrize("k", range(30))
def test_a_reproducer_is_read_as_it_was_written(tmp_path: Path, k: int) -> None:
    sample = kinds.sample(3, k)
    write_reproducer(tmp_path / "r.uops", Reproducer(sample, {"oracle": "allowed", "seed": 7, "setup": Setup("llvm").to_json()}))
    again = read_reproducer(tmp_path / "r.uops")
    assert spelled(again.sample) == spelled(sample)
    assert again.about == {"oracle": "allowed", "seed": 7, "setup": Setup("llvm").to_json()}
    assert Setup.from_json(again.about["setup"]) == Setup("llvm")


def test_a_file_that_is_no_reproducer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.uops").write_text("%0 = const 1 : i32\n")
    with pytest.raises(SpecError, match="it is no reproducer"):
        read_reproducer(tmp_path / "r.uops")
