"""The seconds of a campaign are those of all that it does: it ends on time, says what is unfinished, and goes on from there."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from uops.backends.worker.client import Limits
from uops.cli.commands.fuzz import _print_summary
from uops.fuzz.campaign import campaign, work
from uops.fuzz.campaign.campaign import BATCH, Campaign, Summary
from uops.fuzz.campaign.examine import Setup
from uops.fuzz.campaign.process import BatchResult, Examiner, ProcessLost
from uops.fuzz.campaign.report import build_document, render_self_contained_html_page, write_campaign_report
from uops.fuzz.campaign.work import CampaignJob, perform_job
from uops.fuzz.generate.kinds import sample
from uops.spec.ir.node import toposort
from uops.spec.ir.ops import Op

HERE = str(Path(__file__).parents[1] / "planted")
#: Seconds that ending it all may take on a busy machine.
SLACK = 10.0
PATIENT = Limits(timeout=60.0)


def setup(name: str, module: str = "planted_machinery", **more: Any) -> Setup:
    return Setup(f"{module}:{name}", path=(HERE,), oracles=("allowed",), **more)


def first_sin(seed: int) -> int:
    """The first case of a seed of which a backend does not come back."""
    return next(k for k in itertools.count() if any(u.op is Op.SIN for u in toposort(sample(seed, k).graph)))


def timed(c: Campaign) -> tuple[Summary, float]:
    began = time.monotonic()
    return c.run(), time.monotonic() - began


def test_a_batch_of_slow_cases_ends_on_time_and_goes_on(tmp_path: Path) -> None:
    first, took = timed(Campaign(setup("Slow"), tmp_path, seconds=1.0))
    assert took < 1.0 + SLACK
    assert 0 < first.cases < BATCH and first.complete and not first.raw and not first.unfinished_findings_text
    whole = Campaign(setup("Slow"), tmp_path, cases=BATCH).run()
    assert whole.cases_before == first.cases and whole.cases == BATCH
    assert whole.counts == Campaign(setup("Plain", "planted_backends"), tmp_path / "whole", cases=BATCH).run().counts


@pytest.mark.parametrize(("name", "module"), [("Hanging", "planted_backends"), ("Seized", "planted_machinery")])
def test_a_case_that_is_cut_off_is_no_finding(name: str, module: str, tmp_path: Path) -> None:
    """It hangs, but nobody has waited for so long as it may take."""
    seed = next(s for s in itertools.count() if BATCH <= first_sin(s) < 4 * BATCH)  # a batch is judged before it
    found, took = timed(Campaign(setup(name, module, seed=seed), tmp_path, seconds=3.0, limits=PATIENT))
    assert took < 3.0 + SLACK
    assert not found.raw and found.counts["cases"] == found.cases > 0
    assert found.cases <= first_sin(seed)


def test_a_finding_that_nobody_could_look_into_is_said_and_has_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLS", "1")
    found, took = timed(Campaign(setup("Stalling"), tmp_path, cases=BATCH, seconds=4.0, limits=PATIENT))
    assert took < 4.0 + SLACK
    assert found.raw["allowed value"] == len(found.untriaged) > 0 and not found.findings
    assert found.unfinished_findings_text == f"{len(found.untriaged)} findings not looked into"
    doc = write_campaign_report(found, tmp_path)
    assert [f["case"] for f in doc["waiting"]] == [f["k"] for f in found.untriaged]
    text = render_self_contained_html_page(doc, tmp_path)
    assert "not looked into: the campaign was over" in text and "Nothing was found" not in text
    monkeypatch.delenv("STALLS")
    later = Campaign(setup("Stalling"), tmp_path, cases=BATCH, max_questions=4).run()
    assert later.raw == found.raw and later.findings and not later.untriaged and not later.unfinished_findings_text


def endless(*asked: Any) -> Any:
    """A reduction that goes on as long as it may."""
    before_each = asked[-1]
    while True:
        before_each()
        time.sleep(0.01)


def deaf(*asked: Any) -> Any:
    """A reduction that asks nobody."""
    time.sleep(60)


@pytest.mark.parametrize("reduction", [endless, deaf])
def test_a_finding_that_is_not_reduced_in_time_is_said_and_has_its_turn(
    reduction: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reduce = work.reduce_sample
    monkeypatch.setattr(work, "reduce_sample", reduction)
    monkeypatch.setattr(campaign, "GRACE", 0.5)
    found, took = timed(Campaign(setup("WrongMax", "planted_backends"), tmp_path, cases=BATCH, seconds=4.0))
    assert took < 4.0 + SLACK
    assert found.findings and all(
        f.awaits_reduction and f.unreduced_reason == "not reduced: the campaign was over" for f in found.findings
    )
    assert "not reduced" in found.unfinished_findings_text
    from rich.console import Console

    _print_summary(Console(width=200), found, tmp_path)
    assert f"{found.unfinished_findings_text}: the campaign was over; the same command goes on from here" in capsys.readouterr().out
    if reduction is deaf:
        return
    monkeypatch.setattr(work, "reduce_sample", reduce)
    later = Campaign(setup("WrongMax", "planted_backends"), tmp_path, cases=BATCH, max_questions=4).run()
    assert later.raw == found.raw and not later.unfinished_findings_text and any(f.file for f in later.findings)


@pytest.mark.slow
def test_a_campaign_that_is_cut_off_many_times_ends_as_one_that_was_not(tmp_path: Path) -> None:
    whole = Campaign(setup("Lasting"), tmp_path / "whole", cases=BATCH, max_questions=6).run()
    assert {"allowed crash", "allowed value", "allowed valueerror"} & whole.raw.keys()
    cuts = 0
    while True:
        part = Campaign(
            setup("Lasting"), tmp_path / "parts", cases=BATCH, max_questions=6, seconds=whole.seconds / 8 * 1.5**cuts
        ).run()
        if part.cases == BATCH and not part.unfinished_findings_text and len(part.findings) == len(whole.findings):
            break
        cuts += 1
        assert cuts < 20
    assert cuts >= 2  # an eighth and three sixteenths of the time are not all of it
    one, other = ({k: v for k, v in build_document(s).items() if k != "time"} for s in (part, whole))
    assert one == other


# The parts of it


def test_what_was_done_of_a_batch_holds_those_that_ended_their_process() -> None:
    ended = {k: {"k": k} for k in (1, 4, 5, 9)}
    found = BatchResult(Counter(cases=3), [{"k": 2}], 4).include_lost_cases_up_to_gap(ended)
    assert found == (Counter(cases=6), [{"k": 1}, {"k": 2}, {"k": 4}, {"k": 5}], 6)


def test_an_examiner_is_asked_again_after_its_time() -> None:
    with Examiner(setup("Slow")) as examiner:
        examiner.version()
        with examiner.limit_time_by_killing_process(0.0), pytest.raises(ProcessLost):
            examiner.run_batch_isolating_crashes(0, 4)
        examiner.version()
        with examiner.limit_time_by_killing_process(1.0):
            part = examiner.run_batch_isolating_crashes(0, 4000)
        assert 0 < part.stop < 40 and part.counts["cases"] == part.stop
        assert examiner.run_batch_isolating_crashes(0, 2).counts["cases"] == 2 and not examiner.restarts


def test_a_campaign_may_be_given_all_the_time_there_is(tmp_path: Path) -> None:
    found = Campaign(setup("Plain", "planted_backends"), tmp_path, cases=2, seconds=math.inf).run()
    assert found.cases == 2 and not found.unfinished_findings_text


@pytest.mark.parametrize(("timeout", "seconds"), [(60.0, 3.0), (1.0, None)], ids=["its time", "the time of a case"])
def test_a_child_that_cannot_end_itself_is_ended(timeout: float, seconds: float | None) -> None:
    with Examiner(setup("Seized"), Limits(timeout=timeout)) as examiner:
        examiner.version()
        assert examiner._process is not None
        child = Path(f"/proc/{examiner._process._pids[-1]}/cmdline")
        with examiner.limit_time_by_killing_process(seconds), suppress(ProcessLost):
            examiner.run_batch_isolating_crashes(0, first_sin(0) + 1)
        end = time.monotonic() + SLACK
        while child.exists() and child.read_bytes():
            assert time.monotonic() < end, "it runs for nobody"
            time.sleep(0.05)


@pytest.mark.parametrize("about", ["batch", "triaged", "reduced"])
def test_a_job_without_time_gives_no_line(about: str) -> None:
    with Examiner(setup("Slow")) as examiner:
        first = {"oracle": "allowed", "fault": {"kind": "value", "message": ""}, "place": None, "made_of": []}
        assert perform_job(CampaignJob(about, 0, setup("Slow"), BATCH, "allowed", first, seconds=0.0), examiner) is None
