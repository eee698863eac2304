"""The site of reports: series and their order, badges, trends, and rows side by side."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from uops.backends.conformance.model import CellStatus, ConformanceLevel
from uops.backends.conformance.report import site as s
from uops.backends.conformance.report.document import BadReport, build_document, to_canonical_json
from uops.backends.conformance.report.write import write_report
from uops.backends.conformance.runner import ConformanceRun

MakeRun = Callable[..., ConformanceRun]
STRICT, CORE = ConformanceLevel.STRICT, ConformanceLevel.CORE
ZERO = ("Elementwise/Idiv", "int32", "zero")


def write(path: Path, run: ConformanceRun, started: str = "2026-01-01T00:00:00+00:00", **changes: Any) -> Path:
    """Write a report alone, without a page, whose head has `changes`."""
    doc = build_document(run) | changes
    doc["time"]["started"] = started
    path.mkdir(parents=True)
    (path / "report.json").write_text(to_canonical_json(doc))
    return path


def backend(name: str, version: str = "1") -> dict[str, Any]:
    return {"name": name, "version": version, "surfaces": ["tensor"]}


def test_reports_of_one_question_are_a_series_in_the_order_of_their_start(make_run: MakeRun, tmp_path: Path) -> None:
    write(tmp_path / "a", make_run(), "2026-03-01T00:00:00+00:00", backend=backend("x", "2"))
    write(tmp_path / "b", make_run(), "2026-02-01T00:00:00+00:00", backend=backend("x", "1"))
    write(tmp_path / "c", make_run(), backend=backend("x"), rows="Elementwise/*")
    write(tmp_path / "d", make_run(), backend=backend("y"))
    series = s.read_series([tmp_path, tmp_path / "d"])  # the last is given twice, and counts once
    assert [(x.title, [r.doc["backend"]["version"] for r in x.reports]) for x in series] == [
        ("x, smoke", ["1", "2"]),
        ("x, smoke, rows Elementwise/*", ["1"]),
        ("y, smoke", ["1"]),
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"tier": "full"}, {"rows": "A*"}, {"dialect": "kernel"}, {"sample": {"seed": 1, "of": 9}}, {"subject": "compiler"},
        {"schedules": {"kind": "none"}}, {"schedules": {"kind": "forced", "seed": 3}},
    ],
    ids=lambda c: next(iter(c)),
)  # fmt: skip
def test_another_question_is_another_series(make_run: MakeRun, tmp_path: Path, change: dict[str, Any]) -> None:
    write(tmp_path / "a", make_run(), **({"schedules": {"kind": "forced", "seed": 2}} if "seed" in str(change) else {}))
    write(tmp_path / "b", make_run(), **change)
    assert len(s.read_series([tmp_path])) == 2


def test_the_site_has_every_report_a_badge_per_series_and_the_latest_scores(make_run: MakeRun, tmp_path: Path) -> None:
    write(tmp_path / "in/old", make_run({ZERO: CellStatus.PASS}), "2025-01-01T00:00:00+00:00", backend=backend("x"))
    write_report(make_run(), tmp_path / "in/new")
    write(tmp_path / "in/late", make_run(), "2026-05-01T00:00:00+00:00", backend=backend("x"))
    index = s.write_site(s.read_series([tmp_path / "in"]), tmp_path / "out", title="Ours & theirs")
    text = index.read_text()
    assert "Ours &amp; theirs" in text and "2 subjects" in text
    links = {"reports/fake-smoke/1/index.html", "reports/x-smoke/1/report.json", "reports/x-smoke/2/report.json"}
    assert all(f'"{link}"' in text and (tmp_path / "out" / link).is_file() for link in links)
    assert (tmp_path / "out/reports/fake-smoke/1/index.html").read_bytes() == (tmp_path / "in/new/index.html").read_bytes()
    assert text.count('src="badges/') == 2 == len(list((tmp_path / "out/badges").iterdir()))
    assert "37.50 %" in text and "50.00 %" in text  # 3 of 8 strict, 4 of 8 core, of the latest
    assert "2025-01-01 00:00: 50.00 %" in text and "2026-05-01 00:00: 37.50 %" in text  # the trend


def test_rows_stand_side_by_side_and_those_that_differ_are_marked(make_run: MakeRun, tmp_path: Path) -> None:
    write(tmp_path / "a", make_run(), backend=backend("a"))
    write(tmp_path / "b", make_run({ZERO: CellStatus.PASS, ("Decomposed/Sin", "float32", "limit"): None}), backend=backend("b"))
    rows = {r.id: r for r in s.compare_rows(s.read_series([tmp_path]), STRICT)}
    a, b = rows["Elementwise/Idiv"].squares
    assert a == (2, 3, "fail", "1 fail, 2 pass") and b == (3, 3, "pass", "3 pass")
    assert [r.id for r in rows.values() if r.differs] == ["Decomposed/Sin", "Elementwise/Idiv"]
    rows = {r.id: r for r in s.compare_rows(s.read_series([tmp_path]), CORE)}
    assert not rows["Elementwise/Idiv"].differs
    assert rows["Call/Function"].squares[0] == (0, 1, "none", "1 unsupported")


def test_a_cell_that_was_not_askable_is_in_no_square(make_run: MakeRun, tmp_path: Path) -> None:
    write(tmp_path / "a", make_run({ZERO: CellStatus.NOT_ASKABLE}), backend=backend("a"))
    (idiv,) = [r for r in s.compare_rows(s.read_series([tmp_path]), STRICT) if r.id == "Elementwise/Idiv"]
    assert idiv.squares == [(2, 2, "pass", "2 pass")]


@pytest.mark.parametrize(
    ("conformance", "words", "colour"),
    [
        (1.0, "100 %", "#2a7d46"),
        (0.99999, "99.99 %", "#6b8e23"),
        (0.8, "80.00 %", "#b7791f"),
        (0.1, "10.00 %", "#c0392b"),
        (None, "nothing was run", s.NO_SCORE_COLOUR),
    ],
)
def test_a_badge_says_the_score_and_of_how_many_rows(
    make_run: MakeRun, tmp_path: Path, conformance: float | None, words: str, colour: str
) -> None:
    doc = build_document(make_run())
    doc["scores"]["strict"]["conformance"] = conformance
    svg = s.render_badge(s.SiteReport(doc, "", None), STRICT)
    texts = [t.text for t in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    rows = f", 4 of {doc['specification']['rows']} rows" if conformance is not None else ""
    assert texts == ["fake conformance, strict", words + rows]
    assert f'fill="{colour}"' in svg


def test_a_trend_goes_from_the_least_score_to_100_percent(make_run: MakeRun, tmp_path: Path) -> None:
    docs = [build_document(make_run()) for _ in range(4)]
    for doc, score in zip(docs, (0.5, 1.0, None, 0.75)):
        doc["scores"]["strict"]["conformance"] = score
    reports = [s.SiteReport(doc, "", None) for doc in docs]
    points = s.compute_trend_points_in_pixels(reports, STRICT)
    assert [y for _, y, _ in points] == [32, 4, 18] and [x for x, _, _ in points] == [4, 80, 156]
    assert s.compute_trend_points_in_pixels(reports[:1], STRICT) == []
    assert [y for _, y, _ in s.compute_trend_points_in_pixels([reports[1], reports[1]], STRICT)] == [4, 4]


def test_a_hostile_report_is_text_and_stays_in_the_directory(make_run: MakeRun, tmp_path: Path) -> None:
    hostile = backend("../../<script>alert(1)</script>", "<b>")
    scores = build_document(make_run())["scores"]
    for level in scores.values():
        level["rows"] = {"asked": "<i>"}
    write(tmp_path / "in/a", make_run(), backend=hostile, scores=scores, specification={"hash": "<i>"}, rows="<img src=x>")
    s.write_site(s.read_series([tmp_path / "in"]), tmp_path / "out/site")
    files = {f.relative_to(tmp_path) for f in tmp_path.rglob("*") if f.is_file()}
    assert all(f.parts[0] == "in" or f.parts[:2] == ("out", "site") for f in files)
    pages = [f for f in (tmp_path / "out").rglob("*") if f.suffix in (".html", ".svg")]
    assert len(pages) == 3
    assert not any(tag in f.read_text() for f in pages for tag in ("<script>alert", "<b>", "<i>", "<img src=x>"))


def test_what_is_no_report_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadReport, match=r"empty has no report\.json"):
        s.read_series([tmp_path / "empty"])
    (tmp_path / "report.json").write_text(json.dumps({"schema_version": 2}))
    with pytest.raises(BadReport, match=r"report\.json is not a report"):
        s.read_series([tmp_path])
