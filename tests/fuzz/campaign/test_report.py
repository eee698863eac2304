"""The report of a campaign: what it counts, and a page that shows all of it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from uops.backends.cache import ObjectCache
from uops.backends.conformance.stage_judge import Fault
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.fuzz.bisect import coverage
from uops.fuzz.campaign.campaign import MergedFinding, Summary
from uops.fuzz.campaign.examine import FaultLocation, Setup, TriagedFinding
from uops.fuzz.campaign.report import (
    build_document,
    count_refused,
    describe_finding_counts,
    group_counters_by_prefix,
    list_silent_oracles_chosen_or_with_reasons,
    summarize_any_share_and_median_width,
    tabulate_programs_per_row_and_dtype,
    was_subject_judged,
    write_campaign_report,
)
from uops.fuzz.generate import kinds
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import Op
from uops.spec.rows.rows import ROWS


def summary() -> Summary:
    triaged = TriagedFinding(
        "allowed", Fault("value", "output 0 <b>&"), FaultLocation("select", "select", None, "planted", None), ("add:f32",)
    )
    counts = Counter({
        "cases": 64, "kind:tensor": 64, "row:Elementwise/Add|float32": 7, "rule:add-zero fired": 2, "optop:padto": 3,
        "optop:swap": 1, "optop:padto > swap": 1, "oracle:allowed": 64, "set:exact": 90, "set:any": 10, "width:0": 10,
        "width:4": 30,
    })  # fmt: skip
    found = [MergedFinding(triaged.cause_key, 5, triaged, 3, 2, "5-allowed-select-planted.uops")]
    return Summary(Setup("planted"), "planted 1", 64, counts, Counter({"allowed value": 3}), found, [9], 10.0)


def test_the_document_is_canonical_but_for_its_time() -> None:
    doc = build_document(summary())
    assert doc["time"] == {"seconds": 10.0, "cases": 64, "rate": 6.4}
    assert doc["findings"][0]["key"] == ["allowed", "select", "planted"]
    assert doc["findings"][0]["place"]["rule"] == "planted"
    assert json.loads(json.dumps(doc)) == doc


def test_counters_are_grouped_and_sets_are_measured() -> None:
    counts = summary().counts
    assert group_counters_by_prefix(counts)["row"] == {"Elementwise/Add|float32": 7}
    assert group_counters_by_prefix(counts)["cases"] == {"cases": 64}
    assert summarize_any_share_and_median_width(counts) == {"elements": 100, "any": 0.1, "median_ulp": 4}
    assert summarize_any_share_and_median_width(Counter()) == {"elements": 0, "any": 0.0, "median_ulp": None}


def test_the_page_shows_findings_with_their_programs_and_coverage(tmp_path: Path) -> None:
    (tmp_path / "findings").mkdir()
    (tmp_path / "findings" / "5-allowed-select-planted.uops").write_text("%0 = const 1 : i32\n")
    write_campaign_report(summary(), tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert "output 0 &lt;b&gt;&amp;" in page
    assert "%0 = const 1 : i32" in page
    assert "<b>" not in page.partition("Findings")[2].partition("Oracles")[0].replace("<b>64", "")
    assert all(text in page for text in ("planted 1", "Elementwise/Add", "cases 9", "padto", "add-zero", "every element is in"))
    assert json.loads((tmp_path / "report.json").read_text()) == build_document(summary())


def test_what_was_refused_and_who_judged_nothing_is_said(tmp_path: Path) -> None:
    s = summary()
    s.findings, s.raw = [], Counter()
    s.setup = Setup("planted", oracles=("reference", "allowed", "second"))
    s.counts.update({"refused:no Sin": 5, "refused:no Log2": 2, "row:Call/Function|void": 3, "oracle:reference": 64, "judged": 57})
    assert (count_refused(s.counts), list_silent_oracles_chosen_or_with_reasons(s), was_subject_judged(s)) == (7, ["second"], True)
    write_campaign_report(s, tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert "<b>7</b><span>refused by the backend" in page and "<b>57</b><span>of them judged on the backend" in page
    assert "No case was judged by second." in page
    assert '<td class="some">3</td>' in page.partition("Call/Function")[2].partition("</tr>")[0]
    del s.counts["oracle:allowed"]
    assert not was_subject_judged(s)


def test_whoever_could_not_judge_says_why_though_all_were_asked() -> None:
    s = summary()
    assert list_silent_oracles_chosen_or_with_reasons(s) == []
    s.counts.update({"not asked:validated, no solver": 3, "not asked:stages, too large": 2, "oracle:stages": 1})
    assert list_silent_oracles_chosen_or_with_reasons(s) == ["validated (no solver)"]


def test_rows_that_were_never_drawn_are_on_the_page() -> None:
    shown = dict(tabulate_programs_per_row_and_dtype(build_document(summary())))
    assert sum(shown["Elementwise/Add"]) == 7
    assert len(shown) == len(ROWS)
    assert sum(map(sum, shown.values())) == 7


def test_a_lowering_is_covered_by_its_passes_and_rules() -> None:
    target = LlvmTarget(LlvmTier.FAST, ObjectCache(None))
    x = b.reduce(b.reshape(b.flip(b.mul(b.param(0, (4, 6), dt.int32), 3), (True, True)), (3, 8)), Op.ADD, (0,))
    found = coverage.count_changing_passes_and_rule_outcomes(x, target)
    assert {"stage:callify", "stage:rangeify", "stage:linearize"} <= found.keys()
    assert sum(n for k, n in found.items() if k.startswith("rule:") and k.endswith(" fired")) > 2


@pytest.mark.parametrize("k", range(6))
def test_rules_are_refused_where_their_condition_does_not_hold(k: int) -> None:
    target = LlvmTarget(LlvmTier.FAST, ObjectCache(None))
    total: Counter[str] = Counter()
    for j in range(10):
        total += coverage.count_changing_passes_and_rule_outcomes(kinds.sample(1, 10 * k + j).graph, target)
    assert any(name.endswith(" refused") for name in total)


def test_the_numbers_of_failing_cases_looked_at_and_findings_are_told_apart(tmp_path: Path) -> None:
    """64 failed in two batches, 4 of each were asked again: one finding with 8 cases."""
    one = describe_finding_counts(64, 8, 1, 0)
    assert one == "cases that failed: 64; looked at again: 8 (at most 4 of a kind in 32 cases); findings, one for each cause: 1"
    assert describe_finding_counts(3, 2, 1, 1).endswith("looked at again: 3; findings, one for each cause: 1; not seen again: 1")
    (tmp_path / "findings").mkdir()
    (tmp_path / "findings" / "5-allowed-select-planted.uops").write_text("%0 = const 1 : i32\n")
    s = summary()
    s.raw, s.findings = Counter({"allowed value": 64}), [replace(s.findings[0], count=8)]
    write_campaign_report(s, tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert "ases that failed: 64; looked at again: 9 (at most 4 of a kind" in page
    assert '<span class="tag">8 cases</span>' in page and "times" not in page.partition("Findings")[2].partition("Oracles")[0]
