"""What goes wrong around the cases of a campaign: pipes, generators, cut batches, damaged journals, starved processes."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from uops.backends.conformance.stage_judge import Fault
from uops.backends.registry import BrokenBackend
from uops.backends.testing.journal import BadJournal, Journal, JournalMismatch, encode_journal, read_lines_after_heading_so_far
from uops.backends.worker.client import Limits, Outcome
from uops.backends.worker.frames import pack_frame, read_frame_or_none_at_end_or_cut
from uops.fuzz.campaign import campaign
from uops.fuzz.campaign.campaign import BATCH, Campaign, MergedFinding, Summary, _CampaignState
from uops.fuzz.campaign.examine import MACHINE_CODE, CaseRunner, Setup, TriagedFinding
from uops.fuzz.campaign.process import BatchResult, Examiner, ProcessLost, _parse_location
from uops.fuzz.campaign.work import draw_case
from uops.fuzz.generate import kinds

HERE = str(Path(__file__).parents[1] / "planted")


def setup(name: str, **more: Any) -> Setup:
    return Setup(f"planted_backends:{name}", path=(HERE,), **more)


def planted(name: str, **more: Any) -> Setup:
    return Setup(f"planted_machinery:{name}", path=(HERE,), **more)


def ran(made: Setup, place: Path, cases: int) -> Summary:
    return Campaign(made, place, cases=cases).run()


class Trickle(io.RawIOBase):
    """Gives a few bytes at a time."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, size: int = -1) -> bytes:
        found, self.data = self.data[: min(size, 5)], self.data[min(size, 5) :]
        return found


def test_a_frame_that_comes_in_pieces_is_read_whole() -> None:
    frame = pack_frame({"a": 1}, bytes(range(100)))
    stream: Any = Trickle(frame + frame[:-1])
    assert read_frame_or_none_at_end_or_cut(stream) == ({"a": 1}, bytes(range(100)))
    assert read_frame_or_none_at_end_or_cut(stream) is None


def test_a_backend_that_ends_its_process_as_if_all_were_well_is_a_finding() -> None:
    with Examiner(planted("Leaving", oracles=("allowed",))) as examiner:
        found = examiner.run_batch_isolating_crashes(0, 2).findings
    assert [(f["k"], f["fault"]["message"]) for f in found] == [(0, "exited with status 0"), (1, "exited with status 0")]


def test_a_case_that_cannot_be_made_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sample(*asked: Any) -> kinds.ProgramSample:
        raise ZeroDivisionError("here too")

    monkeypatch.setattr(kinds, "sample", sample)
    for _ in range(2):  # and it goes on from its journal
        found = ran(planted("Undrawn", oracles=("reference",)), tmp_path, BATCH)
        assert found.raw == {"generator zerodivisionerror": BATCH // 8}
        assert [(f.k, f.key[:2], f.count, f.file) for f in found.findings] == [(3, ("generator", "zerodivisionerror"), 4, None)]
        assert found.findings[0].unreduced_reason == "the generator made no program"
        assert not found.vanished


def test_a_batch_that_was_cut_is_done_by_a_longer_campaign(tmp_path: Path) -> None:
    whole = ran(setup("WrongMax", oracles=("allowed",)), tmp_path / "whole", 2 * BATCH + 3)
    assert whole.raw
    for cases in (10, 10, BATCH + 7):
        part = ran(setup("WrongMax", oracles=("allowed",)), tmp_path / "cut", cases)
        assert part.cases == part.counts["cases"] == cases
    assert not part.had_nothing_to_do
    _without_starts(tmp_path / "cut" / campaign.JOURNAL)
    for idle in (False, True):
        cut = ran(setup("WrongMax", oracles=("allowed",)), tmp_path / "cut", 2 * BATCH + 3)
        assert (cut.cases, cut.counts, cut.raw, cut.findings) == (whole.cases, whole.counts, whole.raw, whole.findings)
        assert cut.was_resumed
        assert cut.had_nothing_to_do == idle


def _without_starts(path: Path) -> None:
    """A journal as it was before parts of batches said where they start."""
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    for line in lines:
        line.get("batch", {}).pop("start", None)
        del line["sum"]
    path.write_bytes(encode_journal(lines))


def test_ctrl_c_does_not_reach_the_processes_of_a_campaign() -> None:
    with Examiner(setup("Plain")) as examiner:
        examiner.version()
        assert examiner._process is not None
        status = Path(f"/proc/{examiner._process._popen.pid}/status").read_text()
        blocked = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigBlk")), 16)
        assert blocked >> signal.SIGINT - 1 & 1
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_what_breaks_while_a_campaign_stops_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    c = Campaign(setup("Plain"), tmp_path, cases=BATCH)

    def do(*task: Any) -> None:
        c.stop()
        raise BrokenBackend("ended by Ctrl-C")

    monkeypatch.setattr(c, "_run_task_and_journal_result", do)
    assert not c.run().complete


HEAD, ONE, TWO, THREE = encode_journal([{"campaign": 1}, {"batch": 1}, {"batch": 2}, {"batch": 3}]).splitlines(keepends=True)
OTHER = encode_journal([{"campaign": 2}, {"batch": 1}]).splitlines(keepends=True)[1]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"my notes\nof years\n", "not a journal"),
        (b"my notes", "not a journal"),
        (b"[1]\n", "not a journal"),
        (HEAD + ONE + b"rubbish\n" + TWO, "line 3 is not as it was written"),
        (HEAD + b"rubbish\n", "line 2 is not as it was written"),
        (HEAD + b"\0\0\n" + TWO, "line 2 is not as it was written"),
        (HEAD + ONE.replace(b"1", b"3", 1) + TWO, "line 2 is not as it was written"),
        (HEAD + b'{"batch":1}\n', "line 2 is not as it was written"),
        (HEAD + OTHER + b"\n", "line 2 is not as it was written"),
        (HEAD + TWO + ONE + THREE, "line 2 is not as it was written"),
        (HEAD + TWO + THREE, "line 2 is not as it was written"),
        (HEAD + ONE + ONE + TWO, "line 3 is not as it was written"),
        (HEAD + HEAD + ONE, "line 2 is not as it was written"),
    ],
)
def test_a_file_that_is_no_whole_journal_is_refused_and_left_alone(data: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(data)
    with pytest.raises(BadJournal, match=says):
        Journal(path, {"campaign": 1})
    assert path.read_bytes() == data


def test_what_is_no_file_is_no_journal_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(BadJournal, match="not a regular file"):
            Journal(path, {"campaign": 1})
    with pytest.raises(IsADirectoryError):
        Journal(tmp_path, {"campaign": 1})


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_line_that_cannot_be_written_leaves_the_journal_as_it_was(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a full disk the first bytes may have been written."""
    j = Journal(tmp_path / "j", {"campaign": 1})
    j.add({"batch": 1})
    whole, write = (tmp_path / "j").read_bytes(), os.write

    def fail(handle: int, data: bytes = b"") -> int:
        write(handle, data[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space left") as caught:
            j.add({"batch": 2})
    assert caught.value.filename == str(tmp_path / "j")
    assert (tmp_path / "j").read_bytes() == whole
    j.add({"batch": 2})
    assert (tmp_path / "j").read_bytes() == HEAD + ONE + TWO


def test_a_journal_that_is_being_written_is_read_to_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "j"
    assert list(read_lines_after_heading_so_far(path)) == []
    path.write_bytes(HEAD + ONE + TWO[:9])
    assert list(read_lines_after_heading_so_far(path)) == [{"batch": 1}]


def test_a_journal_changed_behind_its_back_is_refused(tmp_path: Path) -> None:
    j = Journal(tmp_path / "j", {"campaign": 1})
    j.add({"batch": 1})
    (tmp_path / "j").write_bytes(HEAD + OTHER)
    with pytest.raises(BadJournal, match="line 2"):
        j.entries_under("batch")


def test_a_heading_that_was_cut_off_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(HEAD[:7])
    Journal(path, {"campaign": 1}).close()
    assert path.read_bytes() == HEAD


def test_another_campaign_is_told_by_its_settings(tmp_path: Path) -> None:
    path = tmp_path / "j"
    Journal(path, {"campaign": {"seed": 1, "kinds": ["a"]}}).close()
    path.write_bytes(before := path.read_bytes() + b'{"cut')
    with pytest.raises(JournalMismatch, match=r"differs in campaign\.seed \(1 there, 2 here\); use another --report"):
        Journal(path, {"campaign": {"seed": 2, "kinds": ["a"]}})
    assert path.read_bytes() == before


def state(place: Path, faults: list[tuple[int, Fault]]) -> _CampaignState:
    """What a campaign leaves to do that found these."""
    journal = Journal(place / "j", {"campaign": 1})
    for k, fault in faults:
        journal.add({"triaged": {"k": k, "triaged": TriagedFinding("allowed", fault, None, (f"op{k}",)).to_json()}})
    return _CampaignState(journal)


def test_many_findings_of_a_kind_leave_room_for_others(tmp_path: Path) -> None:
    crashes = [(k, Fault("crash", "ended by SIGSEGV")) for k in range(100)]
    errors = [(200 + k, Fault("keyerror", "'x' [a.py:1 f]")) for k in range(20)]
    found = state(tmp_path, [*reversed(crashes), *errors, (300, Fault("value", "1 for 2"))])
    assert found._select_cases_to_reduce_or_reduced() == [*range(campaign.MOST_REDUCED), 200, 300]


def test_what_was_not_reduced_says_so(tmp_path: Path) -> None:
    found = state(tmp_path, [(1, Fault("value", "1 for 2"))]).merge_findings_by_cause()
    assert [(f.key, f.nodes) for f in found] == [(("allowed", "value", ""), None)]
    assert "not reduced" in str(found[0].unreduced_reason)
    assert MergedFinding(found[0].key, 1, found[0].triaged, 1, 3, "f").unreduced_reason is None


def test_what_was_reduced_too_soon_is_not_shown(tmp_path: Path) -> None:
    """FOUND 081: a late batch may have the findings before it, in whose place another one was reduced."""
    most = campaign.MOST_REDUCED
    found = state(tmp_path, [(k, Fault("value", "1 for 2")) for k in range(most + 2)])
    small = TriagedFinding("allowed", Fault("value", "3 for 4"), None, ("small",)).to_json()
    for k in range(most + 1):
        found.apply_journal_line("reduced", {"k": k, "triaged": small, "nodes": 1, "text": ""})
        together = min(k + 1, most)
        assert [(f.k, f.count, f.nodes) for f in found.merge_findings_by_cause()] == [
            (0, together, 1),
            (together, most + 2 - together, None),
        ]


@pytest.mark.parametrize(("outcome", "blamed"), [
    (Outcome("crash", None, "exited with status 1"), False), (Outcome("crash", None, "ended by SIGSEGV", "SIGSEGV"), True),
])  # fmt: skip
def test_machine_code_is_blamed_for_signals_alone(outcome: Outcome, blamed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Compiler:
        compiler = True

    def lost(*asked: Any) -> None:
        raise ProcessLost(outcome, alive=True)

    with Examiner(setup("Plain")) as examiner:
        monkeypatch.setattr(examiner, "_ensure_process", Compiler)
        monkeypatch.setattr(examiner, "_ask_and_parse", lost)
        assert examiner._query_location_else_machine_code_on_crash(kinds.sample(0, 0), 0, "allowed") == (
            MACHINE_CODE if blamed else None
        )


class KilledOnce(Examiner):
    """A process that ends at cases 3 and 7, also where they are alone, and that somebody kills once at case 9."""

    killed = False

    def _run_batch_once(self, first: int, stop: int, skipped_cases: list[int], current_case: list[int], together: bool) -> Any:
        for k in sorted({3, 7, 9} - set(skipped_cases) - ({9} if self.killed else set())):
            self.killed, current_case[0] = k == 9, k
            raise ProcessLost(Outcome("crash", None, "ended by SIGSEGV", "SIGSEGV"), alive=True)
        return BatchResult(Counter(cases=stop - first - len(skipped_cases)), [], stop)

    def _rerun_alone(self, case_number: int) -> Any:
        return None if case_number == 9 else {"k": case_number, "oracle": "allowed", "fault": {}}


def test_deaths_that_cases_repeat_alone_do_not_make_a_killed_process_a_finding() -> None:
    with KilledOnce(setup("Plain")) as examiner:
        assert [f["k"] for f in examiner.run_batch_isolating_crashes(0, 12).findings] == [3, 7]


class EndlessProcess:
    """A process that lives until it is ended."""

    ended = False

    def kill(self) -> None:
        self.ended = True

    def end(self, patience: float = 2.0) -> None:
        self.ended = True


@pytest.mark.parametrize("ask", [Examiner.restart_child, lambda e: e.judge_and_locate_fault(kinds.sample(0, 0), 0, "allowed")])
def test_a_question_after_the_time_forgets_no_process(ask: Any) -> None:
    with Examiner(setup("Plain")) as examiner:
        with examiner.limit_time_by_killing_process(60.0):
            examiner._process = process = EndlessProcess()  # type: ignore[assignment]
            assert examiner._time_over is not None
            examiner._time_over.set()
            with contextlib.suppress(ProcessLost):
                ask(examiner)
        assert process.ended and not examiner.restarts


@pytest.mark.parametrize("message", ["abcde", {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}, ["a", "b"], [None, "b", None, None, None]])
def test_a_location_is_a_list_of_five_words(message: Any) -> None:
    with pytest.raises(TypeError):
        _parse_location(message)
    assert _parse_location(["a", "b", None, "d", None]) == ("a", "b", None, "d", None)


def test_the_oracle_of_a_frozen_sample_is_asked_where_the_campaign_did_not_choose_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE)
    runner = CaseRunner(setup("WrongMax", oracles=("related",)))
    found = (runner.generate_and_judge_case(k) for k in range(200))
    k = next(c.k for c in found if c.oracle == "related" and c.fault is not None and c.fault.kind == "value")
    frozen, judge = runner.freeze_oracle_choices(runner.draw_sample(k), runner.case_seed(k), "related")
    assert judge == "allowed" and runner.judge_sample(frozen, runner.case_seed(k), judge) is not None
    assert runner.judge_sample(frozen, runner.case_seed(k), "generator") is None


def test_a_process_that_ends_again_is_the_fault_of_a_finding_of_processes() -> None:
    """No oracle is named, so all that are due are asked. A fault that one of them finds is no end of the process."""
    with Examiner(planted("Leaving", oracles=("allowed",))) as examiner:
        lost = examiner.run_batch_isolating_crashes(0, 2).findings[0]
        again = examiner.judge_and_locate_fault(*draw_case(examiner, examiner.setup, lost["k"]), "process")
        assert again is not None and again.oracle == "process" and again.fault.kind == "crash"
    with Examiner(setup("WrongMax", oracles=("allowed",))) as examiner:
        wrong = examiner.run_batch_isolating_crashes(0, 40).findings[0]
        assert examiner.judge_and_locate_fault(*draw_case(examiner, examiner.setup, wrong["k"]), "process") is None


def test_a_child_that_is_kept_from_running_is_waited_for() -> None:
    with Examiner(setup("Plain", oracles=("allowed",)), Limits(timeout=1.0)) as examiner:
        examiner.version()
        assert examiner._process is not None
        child = examiner._process._pids[-1]
        os.kill(child, signal.SIGSTOP)
        threading.Timer(2.5, os.kill, (child, signal.SIGCONT)).start()
        began = time.monotonic()
        assert examiner.run_batch_isolating_crashes(0, 2).counts["cases"] == 2
        assert time.monotonic() - began > 2
        assert examiner.restarts == 0


def test_the_counts_of_parts_are_those_of_the_whole() -> None:
    with Examiner(setup("Plain")) as examiner:
        whole = examiner.run_batch_isolating_crashes(0, 12).counts
        assert sum((examiner.run_batch_isolating_crashes(a, b).counts for a, b in ((0, 5), (5, 12))), Counter[str]()) == whole


def test_a_new_journal_that_cannot_be_begun_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "journal.jsonl"
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match=r"No space left on device.*journal\.jsonl"):
        Journal(path, {"run": 1})
    assert not path.exists()
    path.touch()  # somebody's own
    with pytest.raises(OSError, match="No space left on device"):
        Journal(path, {"run": 1})
    assert path.exists()
