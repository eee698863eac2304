"""The printed summary of `uops conform`: the scores, what was not asked, the failing cells, and the path of the report."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from uops.backends.conformance.causes.summary import CauseSummary, count_explained_cells, summarize_causes
from uops.backends.conformance.model import ConformanceLevel
from uops.backends.conformance.report.diff import failures_in_first_second_or_both
from uops.backends.conformance.report.page import format_percent
from uops.backends.contract import FLUSHES_SUBNORMALS
from uops.cli.texts import Text
from uops.spec.untrusted import describe_path

if TYPE_CHECKING:
    from uops.backends.conformance.report.diff import CellChange, ReportDiff

Json = dict[str, Any]
#: Formats a count with commas between thousands.
number = "{:,}".format
#: Largest number of rows of a table on the terminal; the report has all.
MOST = 20
#: Largest number of rows that a line of text names.
MOST_NAMED = 6
#: Status -> its style.
_STYLE = {
    "pass": "green",
    "fail": "bold red",
    "by trait": "cyan",
    "expected failure": "yellow",
    "unsupported": "dim",
    "not askable": "magenta",
    "not run": "blue",
}


def print_conformance_summary(out: Console, doc: Json, report: Path, change: ReportDiff | None, other: Json | None = None) -> None:
    """Print the summary of one run, and what differs from the report of another backend."""
    backend = doc["backend"]
    what = "" if doc["subject"] == "backend" else f"  {doc['subject']}"
    out.print(Text.assemble((backend["name"], "bold"), f"  {backend['version']}{what}"))
    form = f" lowered to {doc['dialect']}" if doc["dialect"] else ""
    sample = doc.get("sample")
    programs = f"{number(doc['cases'])} programs"
    if sample:
        programs = f"a sample of {number(doc['cases'])} of {number(sample['of'])} programs (seed {sample['seed']})"
    extent = f"{doc['tier']} tier, rows {doc['rows']}, {programs}{form}, {doc['time']['seconds']:.0f} s"
    out.print(Text(extent, "dim"))
    if not doc["complete"]:
        out.print(Text("interrupted: what was not reached counts as not run", "bold yellow"))
    out.print(Text(format_pass_rate_and_rows_asked(doc), "bold"), soft_wrap=True)
    out.print(_make_table_of_scores_by_level(doc))
    if FLUSHES_SUBNORMALS in backend.get("traits", ()):
        out.print(Text("results of a flush of subnormals pass at level core, as the backend declares it (R19, subnormals)", "dim"))
    if count := doc["scores"][doc["level"]]["totals"].get("by trait", 0):
        share = format_percent(doc["scores"][doc["level"]]["with_traits"])
        out.print(Text(f"{share} % with the traits that the backend declares; cells by trait: {number(count)}", "cyan"))
    for line in describe_unasked_cells_and_rows(doc):
        out.print(Text(line, "magenta"), soft_wrap=True)
    if doc["schedules"]["kind"] == "forced":
        out.print(_make_schedule_move_table(doc["schedules"]))
    if count := doc["scores"][doc["level"]]["refused"]:
        out.print(Text(f"{number(count)} of the failing cells were refused by the backend, which declares them", "yellow"))
    failing = group_failing_cells_by_row(doc)
    if causes := summarize_causes(doc, doc["level"]):
        out.print(_make_cause_table(doc, causes))
    if failing:
        out.print(_make_failing_table(doc, failing))
    if change is not None:
        out.print(Text("against the baseline", "bold"))
        print_report_difference(out, change)
    if other is not None:
        _print_failures_beside(out, doc, other)
    out.print(Text.assemble("report  ", (describe_path(report / "index.html"), "bold")), soft_wrap=True)


def format_pass_rate_and_rows_asked(doc: Json) -> str:
    """Say what passed at the level that decides, over how many rows of how many."""
    score = doc["scores"][doc["level"]]
    share, rows = format_percent(score["conformance"]), f"{score['rows']['asked']} of {doc['specification']['rows']} rows"
    return f"{share} % at level {doc['level']}, over {rows}: {number(score['passed'])} of {number(score['required'])} cells passed"


def describe_unasked_cells_and_rows(doc: Json) -> list[str]:
    """Say which cells the backend could not be asked, by surface, which rows have no cell, and which judge other subjects."""
    score, lines = doc["scores"][doc["level"]], []
    for surface, part in score["surfaces"].items():
        if count := part["totals"]["not askable"]:
            lines.append(f"not asked, {number(count)}: cells of the surface {surface}, which the backend does not declare")
    if rows := score["rows"]["not_asked"]:
        lines.append(f"rows of which nothing was asked, {len(rows)}: {_shorten(rows)}")
    if silent := doc["silent_rows"]:
        lines.append(f"rows without a cell, {len(silent)}: {_shorten(silent)}")
    if others := doc["specification"].get("other_rows"):
        parts = ", ".join(f"{n} of {'backends' if s == 'backend' else f'the {s}'}" for s, n in others.items())
        lines.append(f"rows that judge other subjects (--subject), {sum(others.values())}: {parts}")
    return lines


def _shorten(rows: list[str]) -> str:
    """List a few rows, and say how many more there are."""
    return ", ".join(rows[:MOST_NAMED]) + (f" and {len(rows) - MOST_NAMED} more" if len(rows) > MOST_NAMED else "")


def _make_table_of_scores_by_level(doc: Json) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    table.add_column("level")
    some_by_trait = any(score["totals"].get("by trait") for score in doc["scores"].values())
    styles = {status: style for status, style in _STYLE.items() if some_by_trait or status != "by trait"}
    for name in ("conformance", "", "coverage", "", "asked", "rows", *styles):
        table.add_column(name, justify="right")
    for level, score in doc["scores"].items():
        decides = level == doc["level"]
        scores = [
            (f"{format_percent(score[kind])} %", f"{number(score[n])} / {number(score['required'])}")
            for kind, n in (("conformance", "passed"), ("coverage", "run"))
        ]
        cells = [Text(part, "bold" if decides and k == 0 else "dim" if k else "") for pair in scores for k, part in enumerate(pair)]
        counts = score["totals"]
        totals = [Text(number(n), style if n else "dim") for status, style in styles.items() for n in (counts.get(status, 0),)]
        rows = f"{score['rows']['asked']} / {doc['specification']['rows']}"
        asked = Text(f"{format_percent(score['asked'])} %"), Text(rows, "dim")
        table.add_row(Text(level, "bold" if decides else ""), *cells, *asked, *totals)
    return table


def _make_schedule_move_table(schedules: Json) -> Table:
    """Build the table of random schedule moves: how often each was applied, by its amount. A move that never was stands out."""
    from uops.compiler.passes.optimize.search.random_schedules import AMOUNTS, MOVES

    amounts = [str(a or "all") for a in AMOUNTS]
    table = Table(box=box.SIMPLE, pad_edge=False, title_justify="left", title_style="bold")
    table.title = f"moves of drawn schedules, seed {schedules['seed']}"
    table.add_column("move", no_wrap=True)
    for a in ("", *amounts):
        table.add_column(a, justify="right")
    for m in map(str, MOVES):
        counts = [schedules["applied"].get(name, 0) for name in (m, *(f"{m} by {a}" for a in amounts))]
        table.add_row(Text(m, "" if any(counts) else "yellow"), *(Text(number(n) if n else "", "") for n in counts))
    return table


def group_failing_cells_by_row(doc: Json) -> dict[str, list[Json]]:
    """Map each row to its failing cells at the level that decides, most first."""
    return group_cells_by_row(c for c in doc["cells"] if c[doc["level"]]["status"] == "fail")


def group_cells_by_row(cells: Iterable[Json]) -> dict[str, list[Json]]:
    """Map each row to its cells, most first."""
    rows: dict[str, list[Json]] = {}
    for c in cells:
        rows.setdefault(c["row"], []).append(c)
    return dict(sorted(rows.items(), key=lambda item: -len(item[1])))


def _make_cause_table(doc: Json, causes: list[CauseSummary]) -> Table:
    """Build the table of causes of failing cells, the most frequent first, each with an example."""
    explained, failing = count_explained_cells(doc, doc["level"])
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left", title_style="bold")
    table.title = f"causes at level {doc['level']}: {number(explained)} of {number(failing)} failing cells are explained"
    hidden = len(causes) - MOST
    more = f"and {hidden} more causes; " if hidden > 0 else ""
    table.caption, table.caption_justify = f"{more}a cell of several causes counts for each", "left"
    for name in ("Cells", "Share", "Blame", "Cause", "Example"):
        table.add_column(name, justify="left" if name in ("Blame", "Cause", "Example") else "right")
    for c in causes[:MOST]:
        words = _describe_failure(c.failure) if c.failure else ""
        example = f"{c.cell['row']} {c.cell['dtype']} {c.cell['edge']}: {words}"
        count, share = Text(number(c.cells), "red"), Text(f"{format_percent(c.share)} %")
        table.add_row(count, share, Text(c.blame.value), Text(c.text), Text(example[:160], "dim"))
    return table


def _make_failing_table(doc: Json, failing: dict[str, list[Json]], title: str | None = None) -> Table:
    hidden = len(failing) - MOST
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left", title_style="bold")
    table.title = title or f"failing at level {doc['level']}"
    table.caption, table.caption_justify = (f"and {hidden} more rows" if hidden > 0 else None), "left"
    for name in ("Row", "Cells", "dtypes", "Edge classes", "First failure"):
        table.add_column(name, justify="right" if name == "Cells" else "left", no_wrap=name == "Row")
    for row, cells in list(failing.items())[:MOST]:
        dtypes = " ".join(dict.fromkeys(c["dtype"] for c in cells))
        edges = " ".join(dict.fromkeys(c["edge"] for c in cells))
        table.add_row(
            Text(row, "bold"),
            Text(str(len(cells)), "red"),
            Text(dtypes),
            Text(edges),
            Text(_describe_first_failure(cells[0][doc["level"]])),
        )
    return table


def _describe_first_failure(verdict: Json) -> str:
    return _describe_failure(verdict["failures"][0]) if verdict["failures"] else ""


def _describe_failure(failure: Json) -> str:
    if failure["got"] is None:
        return str(failure["message"])[:200]
    operands = f"{', '.join(failure['operands'])}: " if failure["operands"] else ""
    return f"{operands}got {failure['got']}, allowed {failure['allowed']}"


def _print_failures_beside(out: Console, doc: Json, other: Json) -> None:
    """Print the cells that fail on one of two backends alone, by row."""
    level, names = doc["level"], (doc["backend"]["name"], other["backend"]["name"])
    here, there, both = failures_in_first_second_or_both(doc, other, ConformanceLevel(level))
    counts = (
        f"{number(len(here))} cells fail on {names[0]} alone, {number(len(there))} on {names[1]} alone, {number(len(both))} on both"
    )
    out.print(Text(counts, "bold"), soft_wrap=True)
    for name, cells in zip(names, (here, there)):
        if cells:
            out.print(_make_failing_table(doc, group_cells_by_row(cells), f"failing on {name} alone, level {level}"))


def summary_to_json(doc: Json, report: Path, baseline_diff: ReportDiff | None, second_report: Json | None = None) -> Json:
    """Return the summary as JSON; the report has the details. `second_report` is that of the backend of --against."""
    head = {
        k: doc[k]
        for k in ("subject", "backend", "tier", "rows", "dialect", "schedules", "level", "complete", "scores", "silent_rows")
    }
    failing = _name_cells(c for cells in group_failing_cells_by_row(doc).values() for c in cells)
    causes = [
        {"id": c.id, "text": c.text, "blame": c.blame.value, "cells": c.cells, "elements": c.elements, "rows": c.rows}
        for c in summarize_causes(doc, doc["level"])
    ]
    if second_report is not None:
        here, there, both = failures_in_first_second_or_both(doc, second_report, ConformanceLevel(doc["level"]))
        beside = {"only_here": _name_cells(here), "only_there": _name_cells(there), "both": len(both)}
        head["against"] = {"backend": second_report["backend"], **beside}
    return head | {
        "causes": causes,
        "failing": failing,
        "report": str(report),
        "baseline": None if baseline_diff is None else baseline_diff.to_json(),
    }


def _name_cells(cells: Iterable[Json]) -> list[Json]:
    return [{"row": c["row"], "dtype": c["dtype"], "edge": c["edge"]} for c in cells]


# --------------------------------------------------------------------------------------------------------- differences


def print_report_difference(out: Console, change: ReportDiff) -> None:
    """Print the changes between two reports, regressions first."""
    for kind, (before, after) in change.scores.items():
        out.print(Text.assemble(f"{kind:12} ", f"{format_percent(before)} % -> ", (f"{format_percent(after)} %", "bold")))
    for name, (before, after) in change.heads.items():
        out.print(Text(f"{name}: {_format_head_value(before)} -> {_format_head_value(after)}", "dim"), soft_wrap=True)
    changes = sorted(
        (*change.changed, *change.removed, *change.new),
        key=lambda c: (not c.has_worse_status_or_lost_nonfailing_result, not c.has_better_status, c.cell),
    )
    if changes:
        out.print(_make_change_table(changes))
    asked_before, asked_after = change.rows
    new = f"; not asked before: {_shorten(change.newly_asked)}" if change.newly_asked else ""
    out.print(Text(f"rows asked: {asked_before} -> {asked_after}{new}"), soft_wrap=True)
    n = len(change.regressions)
    out.print(Text(f"{n} regression{'s' * (n != 1)}, {len(change.changed)} changed, {len(change.new)} new, "
                   f"{len(change.removed)} removed, {change.same} as before", "bold red" if n else "green"))  # fmt: skip


def _format_head_value(value: Any) -> str:
    return ", ".join(map(str, value.values())) if isinstance(value, dict) else str(value)


def _make_change_table(changes: list[CellChange]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    hidden = len(changes) - 2 * MOST
    table.caption, table.caption_justify = (f"and {hidden} more" if hidden > 0 else None), "left"
    for name in ("", "Row", "dtype", "Edge class", "Before", "After"):
        table.add_column(name)
    for c in changes[: 2 * MOST]:
        word = (
            Text("worse", "bold red")
            if c.has_worse_status_or_lost_nonfailing_result
            else Text("better", "green")
            if c.has_better_status
            else Text("")
        )
        status = [Text(s.value, _STYLE[s.value]) if s else Text("-", "dim") for s in (c.before, c.after)]
        table.add_row(word, Text(c.cell.row), Text(c.cell.dtype), Text(c.cell.edge), *status)
    return table


# ---------------------------------------------------------------------------------------------------------- exhaustive


def print_exhaustive_tallies(out: Console, outcome: Json, report: Path) -> None:
    """Print the table of the exhaustive tier."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("Function", "Inputs", "Wrong", "Not correctly rounded", "Max ulp", "At"):
        table.add_column(name, justify="left" if name in ("Function", "At") else "right")
    for tally in outcome["functions"]:
        inputs, inexact = number(tally["inputs"]), number(tally["inexact"])
        wrong = Text(number(tally["wrong"]), "bold red" if tally["wrong"] else "dim")
        table.add_row(Text(tally["name"]), inputs, wrong, inexact, f"{tally['max_ulp']:.3f}", Text(tally["worst"]))
    out.print(table)
    for example in _collect_examples(outcome["functions"]):
        out.print(Text(example, "red"), soft_wrap=True)
    out.print(Text.assemble("report  ", (describe_path(report / "exhaustive.json"), "bold")), soft_wrap=True)


def _collect_examples(functions: Iterable[Json]) -> list[str]:
    return [f"{t['name']}: {e}" for t in functions for e in t["examples"]][:MOST]
