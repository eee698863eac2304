"""A static site of conformance reports: an index with badges and trends, and the rows of all subjects side by side.

`read_series` groups reports into series, and `write_site` writes the site:

    index.html                the series, with their scores, badges and trends
    compare.html              rows by series, at one level
    badges/NAME.svg           the latest score of a series, for a README
    reports/NAME/N/           report.json of each report, and its page and reproducers where the report directory has them

A series is about one subject, asked the same question: the tier, rows, dialect, sample and schedules of its reports are equal. The
versions of the subject, of the judge and the machine may differ. Reports are in the order of their start.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from uops.backends.conformance.model import CellStatus, ConformanceLevel
from uops.backends.conformance.report.document import REPRODUCERS, BadReport, assign_file_names, read_report, to_canonical_json
from uops.backends.conformance.report.page import KEY, WORST, family_of, format_percent, load_template, read_style
from uops.spec.rows.named.base import RowSubject
from uops.spec.untrusted import describe_path, write_text

Json = dict[str, Any]
#: Pixels of a trend.
TREND_WIDTH, TREND_HEIGHT = 160, 36
#: Least conformance of each colour of a badge, and the colour; the last is of everything below.
BADGE_COLOURS = ((1.0, "#2a7d46"), (0.95, "#6b8e23"), (0.8, "#b7791f"), (0.0, "#c0392b"))
#: Colour of a badge where nothing was required.
NO_SCORE_COLOUR = "#8f8c84"
#: Pixels per character of a badge's text, about those of the font.
_CHARACTER = 6.6
_STATUS_RANK = {s.value: k for k, s in enumerate(WORST)}


@dataclass(frozen=True, slots=True)
class SiteReport:
    """One report: its document and its text, and its page, None where the directory has none."""

    doc: Json
    text: str
    page: Path | None

    @property
    def start_time(self) -> str:
        """The time at which the run began, in ISO format; empty if the report does not say."""
        time = self.doc.get("time")
        return str(time.get("started", "")) if isinstance(time, dict) else ""

    def count_asked_and_all_rows(self, level: ConformanceLevel) -> tuple[int, int] | None:
        """Return of how many rows a cell was asked, and of how many there are; None if the report does not say."""
        rows, of = self.doc["scores"][level.value].get("rows"), self.doc["specification"].get("rows")
        asked = rows.get("asked") if isinstance(rows, dict) else None
        return (asked, of) if isinstance(asked, int) and isinstance(of, int) else None


@dataclass(frozen=True, slots=True)
class ReportSeries:
    """The reports of one subject and one question, in the order of their start."""

    title: str
    name: str
    reports: tuple[SiteReport, ...]

    @property
    def latest(self) -> SiteReport:
        """The report of the last run."""
        return self.reports[-1]


class RowComparison(NamedTuple):
    """The squares of one row, by series; None where a report has no cell of it. `differs` is True if the pass rates differ."""

    id: str
    squares: list[RowSquare | None]
    differs: bool


class RowSquare(NamedTuple):
    """The cells of one row in one report: how many passed of how many asked, and the worst status, as a CSS class."""

    passed: int
    asked: int
    key: str
    hint: str


def read_series(paths: Iterable[str | Path]) -> list[ReportSeries]:
    """Read reports, and group them into series, sorted by title.

    A path is a report, or a directory that has reports in it or below it. A report that is given twice counts once. Raises
    BadReport for a file that is no report, and for a directory without one.
    """
    reports: dict[str, SiteReport] = {}
    for file in dict.fromkeys(f for path in paths for f in _find_report_files(Path(path))):
        doc, page = read_report(file), file.with_name("index.html")
        text = to_canonical_json(doc)
        reports.setdefault(text, SiteReport(doc, text, page if page.is_file() else None))
    by_title: dict[str, list[SiteReport]] = {}
    for report in sorted(reports.values(), key=lambda r: r.start_time):
        by_title.setdefault(describe_series_key(report.doc), []).append(report)
    names = assign_file_names(by_title)
    return [ReportSeries(title, names[title], tuple(by_title[title])) for title in sorted(by_title)]


def _find_report_files(path: Path) -> list[Path]:
    """Return the reports at or below a path."""
    if not path.is_dir():
        return [path]
    files = sorted(path.rglob("report.json"))
    if not files:
        raise BadReport(f"{describe_path(path)} has no report.json in it or below it; `uops conform --report` writes one")
    return files


def describe_series_key(doc: Json) -> str:
    """Describe what a report is about: the subject, and the tier, rows, dialect, sample and schedules of its cells."""
    sample, schedules, subject = doc.get("sample"), doc.get("schedules"), doc.get("subject", RowSubject.BACKEND.value)
    policy = schedules if isinstance(schedules, dict) else {}
    kind, details = policy.get("kind", "heuristics"), [f"{k} {policy[k]}" for k in ("seed", "beam") if k in policy]
    parts = [
        "" if subject == RowSubject.BACKEND.value else str(subject),
        str(doc["tier"]),
        "" if doc["rows"] == "*" else f"rows {doc['rows']}",
        f"dialect {doc['dialect']}" if doc.get("dialect") else "",
        f"sample of {doc.get('cases')}, seed {sample.get('seed')}" if isinstance(sample, dict) else "",
        "" if kind == "heuristics" else " ".join(["schedules", str(kind), *details]),
    ]
    return ", ".join([doc["backend"]["name"], *filter(None, parts)])


def write_site(
    series: Sequence[ReportSeries],
    directory: str | Path,
    level: ConformanceLevel = ConformanceLevel.STRICT,
    title: str = "Conformance",
) -> Path:
    """Write the site, the index last, and return the path of the index. Raises OSError, which names the file.

    Badges, trends and the comparison are at `level`; the index shows the scores of both levels.
    """
    folder = Path(directory)
    lines = []
    for s in series:
        links = [_copy_report(report, folder, f"reports/{s.name}/{k}") for k, report in enumerate(s.reports, 1)]
        badge = folder / "badges" / f"{s.name}.svg"
        badge.parent.mkdir(parents=True, exist_ok=True)
        write_text(badge, render_badge(s.latest, level))
        rows = s.latest.count_asked_and_all_rows(level)
        lines.append({"series": s, "links": links, "rows": rows, "trend": compute_trend_points_in_pixels(s.reports, level)})
    common = {"title": title, "level": level.value, "style": read_style()}
    compared = compare_rows(series, level)
    write_text(
        folder / "compare.html",
        load_template("compare.html.j2").render(
            **common, series=series, families=_group_rows_by_family(compared), differing=sum(r.differs for r in compared)
        ),
    )
    index = folder / "index.html"
    size = {"width": TREND_WIDTH, "height": TREND_HEIGHT}
    write_text(index, load_template("site.html.j2").render(**common, **size, lines=lines))
    return index


def _copy_report(report: SiteReport, folder: Path, name: str) -> str:
    """Copy a report and its page to a folder of the site, and return the link to the page, or else to the report."""
    target = folder / name
    target.mkdir(parents=True, exist_ok=True)
    write_text(target / "report.json", report.text)
    if report.page is None:
        return f"{name}/report.json"
    if report.page.resolve() != (target / "index.html").resolve():
        shutil.copyfile(report.page, target / "index.html")
        if (report.page.parent / REPRODUCERS).is_dir():
            shutil.copytree(report.page.parent / REPRODUCERS, target / REPRODUCERS, dirs_exist_ok=True)
    return f"{name}/index.html"


def compute_trend_points_in_pixels(reports: Sequence[SiteReport], level: ConformanceLevel) -> list[tuple[float, float, str]]:
    """Return the points of a trend in pixels, each with its words. Reports without a score are left out.

    The least score is at the bottom, 100 % at the top.
    """
    scored = [(r, c) for r in reports if (c := r.doc["scores"][level.value]["conformance"]) is not None]
    if len(scored) < 2:
        return []
    least, margin = min(c for _, c in scored), 4
    step, height = (TREND_WIDTH - 2 * margin) / (len(scored) - 1), TREND_HEIGHT - 2 * margin
    return [
        (
            round(margin + k * step, 1),
            round(margin + (height * (1 - c) / (1 - least) if least < 1 else 0), 1),
            f"{r.doc['backend'].get('version', '')}, {r.start_time[:16].replace('T', ' ')}: {format_percent(c)} %",
        )
        for k, (r, c) in enumerate(scored)
    ]


def render_badge(report: SiteReport, level: ConformanceLevel) -> str:
    """Render the badge of a report: its conformance at a level, and of how many rows, as SVG."""
    conformance = report.doc["scores"][level.value]["conformance"]
    rows = report.count_asked_and_all_rows(level)
    left = f"{report.doc['backend']['name']} conformance, {level.value}"
    right = "nothing was run" if conformance is None else f"{format_percent(conformance)} %"
    if conformance is not None and rows is not None:
        right += f", {rows[0]} of {rows[1]} rows"
    colour = NO_SCORE_COLOUR if conformance is None else next(c for least, c in BADGE_COLOURS if conformance >= least)
    widths = [round(_CHARACTER * len(text)) + 12 for text in (left, right)]
    return load_template("badge.svg.j2").render(left=left, right=right, colour=colour, widths=widths)


def compare_rows(series: Sequence[ReportSeries], level: ConformanceLevel) -> list[RowComparison]:
    """Compare the latest reports row by row at a level; rows are sorted by id. Cells that were not askable are left out."""
    by_series = [_summarize_rows(s.latest.doc, level) for s in series]
    comparisons = []
    for row in sorted({row for squares in by_series for row in squares}):
        squares = [s.get(row) for s in by_series]
        differs = len({q.passed / q.asked for q in squares if q is not None}) > 1
        comparisons.append(RowComparison(row, squares, differs))
    return comparisons


def _summarize_rows(doc: Json, level: ConformanceLevel) -> dict[str, RowSquare]:
    statuses: dict[str, Counter[str]] = {}
    for cell in doc["cells"]:
        if cell[level.value]["status"] != CellStatus.NOT_ASKABLE.value:
            statuses.setdefault(cell["row"], Counter())[cell[level.value]["status"]] += 1
    return {
        row: RowSquare(
            counts[CellStatus.PASS.value],
            counts.total(),
            KEY[CellStatus(min(counts, key=_STATUS_RANK.__getitem__))],
            ", ".join(f"{n} {status}" for status, n in sorted(counts.items())),
        )
        for row, counts in statuses.items()
    }


def _group_rows_by_family(rows: Iterable[RowComparison]) -> dict[str, list[RowComparison]]:
    families: dict[str, list[RowComparison]] = {}
    for row in rows:
        families.setdefault(family_of(row.id), []).append(row)
    return families
