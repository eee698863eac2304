"""The report of a campaign: `report.json`, and `index.html` for people.

Takes: a `Summary`. Gives: the document: what was run, the findings, and coverage. Coverage counts the dtypes of each row, the
rules that fired and were refused, neighbouring OptOps, the widths of allowed sets, and the cases that each oracle judged.
Everything but `time` is a function of the set-up and of the number of cases.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import jinja2

from uops.backends.conformance.report.page import HERE as STYLES
from uops.backends.conformance.report.page import format_count
from uops.compiler.rewrite.rules import INDEXING
from uops.fuzz.campaign.campaign import PER_BATCH, MergedFinding, Summary
from uops.fuzz.campaign.examine import WIDTHS
from uops.fuzz.campaign.work import BATCH
from uops.fuzz.oracles.oracles import DEFAULT, ORACLES, judges_backend
from uops.spec.ir import dtypes as dt
from uops.spec.rows.rows import ROWS
from uops.spec.untrusted import read_text, write_text

Json = dict[str, Any]
#: Version of the document.
SCHEMA = 1
#: Names of the files.
JSON, PAGE = "report.json", "index.html"
#: The folder of the template and its style.
HERE = Path(__file__).parent


def build_document(summary: Summary) -> Json:
    """Return the report as JSON."""
    return {
        "schema": SCHEMA,
        "setup": summary.setup.to_json(),
        "subject": summary.version,
        "complete": summary.complete,
        "cases": summary.cases,
        "findings": [_finding_to_json(f) for f in summary.findings],
        "raw": dict(sorted(summary.raw.items())),
        "vanished": summary.vanished,
        "judged": summary.counts["judged"],
        "waiting": [{"case": f["k"], "oracle": f["oracle"], "fault": f["fault"]} for f in summary.untriaged],
        "refused": count_refused(summary.counts),
        "unheard": list_silent_oracles_chosen_or_with_reasons(summary),
        "coverage": group_counters_by_prefix(summary.counts),
        "sets": summarize_any_share_and_median_width(summary.counts),
        "time": {
            "seconds": round(summary.seconds, 3),
            "cases": summary.cases - summary.cases_before,
            "rate": round(summary.rate, 3),
        },
    }


def count_refused(counts: Counter[str]) -> int:
    """Count the cases that the subject refused. Oracles that were asked before the refusal count their judgement."""
    return sum(n for k, n in counts.items() if k.startswith("refused:"))


def list_silent_oracles_chosen_or_with_reasons(summary: Summary) -> list[str]:
    """List the oracles that judged no case, with their reasons, if they were chosen by name or had a case that they could
    not judge.
    """
    reasons: dict[str, list[str]] = {o: [] for o in summary.setup.oracles}
    for counter in sorted(k.removeprefix("not asked:") for k in summary.counts if k.startswith("not asked:")):
        name, _, reason = counter.partition(", ")
        reasons.setdefault(name, []).append(reason)
    silent = [
        o for o in summary.setup.oracles if not summary.counts[f"oracle:{o}"] and (reasons[o] or summary.setup.oracles != DEFAULT)
    ]
    return [f"{o} ({'; '.join(reasons[o])})" if reasons[o] else o for o in silent]


def was_subject_judged(s: Summary) -> bool:
    """Return True if anything that the subject does was judged, not only programs and the interpreter."""
    return any(s.counts[f"oracle:{o}"] for o in s.setup.oracles if judges_backend(o, s.setup.backend)) or bool(s.raw)


def format_subject_not_judged_message(summary: Summary) -> str:
    """Describe a campaign in which nothing that the subject does was judged: the oracles asked, and the numbers of cases."""
    judged = [f"{o} ({summary.counts[f'oracle:{o}']:,})" for o in summary.setup.oracles if summary.counts[f"oracle:{o}"]]
    detail = f": {', '.join(judged)} judged programs and the interpreter alone" if judged else ": no oracle judged a case"
    return f"nothing that {summary.setup.backend} does was judged{detail}"


def group_counters_by_prefix(counts: Counter[str]) -> Json:
    """Group counters `group:name` as group -> name -> count."""
    groups: Json = {}
    for name, n in sorted(counts.items()):
        group, _, subname = name.partition(":")
        groups.setdefault(group, {})[subname or group] = n
    return groups


def summarize_any_share_and_median_width(counts: Counter[str]) -> Json:
    """Return the share of elements that may be anything, and the median width of a float's allowed set in ulp."""
    total = sum(n for k, n in counts.items() if k.startswith("set:"))
    widths = [(w, counts[f"width:{w}"]) for w in WIDTHS]
    half, median, count = (sum(n for _, n in widths) + counts["width:more"]) / 2, None, 0
    for w, n in widths:
        count += n
        if median is None and count >= half and count:
            median = w
    return {"elements": total, "any": round(counts["set:any"] / total, 6) if total else 0.0, "median_ulp": median}


def describe_finding_counts(failing: int, cases_of_findings: int, findings: int, vanished: int) -> str:
    """Describe the numbers of a campaign in which cases failed.

    `cases_of_findings` counts the cases of findings, without those that vanished.
    """
    triaged = cases_of_findings + vanished
    limit = f" (at most {PER_BATCH} of a kind in {BATCH} cases)" if triaged < failing else ""
    text = f"cases that failed: {failing:,}; looked at again: {triaged:,}{limit}; findings, one for each cause: {findings:,}"
    return f"{text}; not seen again: {vanished:,}" if vanished else text


def _finding_to_json(merged: MergedFinding) -> Json:
    return {
        "case": merged.k,
        "count": merged.count,
        "nodes": merged.nodes,
        "file": merged.file,
        "unreduced": merged.unreduced_reason,
        "key": list(merged.key),
        **merged.triaged.to_json(),
    }


def write_campaign_report(summary: Summary, directory: Path) -> Json:
    """Write both files and return the document. The campaign has already written the reproducers."""
    doc = build_document(summary)
    write_text(directory / JSON, json.dumps(doc, indent=1, sort_keys=True) + "\n")
    write_text(directory / PAGE, render_self_contained_html_page(doc, directory))
    return doc


# --------------------------------------------------------------------------------------------------------------------- page


def render_self_contained_html_page(doc: Json, campaign_directory: Path) -> str:
    """Render the document as one self-contained page."""
    return render_template(
        HERE / "report.html.j2", doc=doc, counted=_describe_counts(doc), matrix=tabulate_programs_per_row_and_dtype(doc),
        dtypes=[d.short for d in _DTYPES], rules=tabulate_firings_and_refusals_of_all_rules(doc),
        pairs=tabulate_optop_successions(doc),
        oracles=ORACLES,
        texts=_read_reproducers(doc, campaign_directory),
    )  # fmt: skip


def render_template(template: Path, **values: object) -> str:
    """Render a template with these values, which are escaped, in the style of all reports."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["number"] = format_count
    style = (STYLES / "page.css").read_text(encoding="utf-8") + (HERE / "report.css").read_text(encoding="utf-8")
    return environment.from_string(template.read_text(encoding="utf-8")).render(style=style, **values)


def _describe_counts(doc: Json) -> str:
    findings = doc["findings"]
    return describe_finding_counts(sum(doc["raw"].values()), sum(f["count"] for f in findings), len(findings), len(doc["vanished"]))


def _read_reproducers(doc: Json, directory: Path) -> dict[str, str]:
    """Read the reproducers of the findings, by file name."""
    files = [f["file"] for f in doc["findings"] if f["file"]]
    return {name: read_text(directory / "findings" / name) for name in files}


#: The dtypes that a node of a program may have.
_DTYPES = (*dt.STORABLE, dt.index, dt.void)


def tabulate_programs_per_row_and_dtype(doc: Json) -> list[tuple[str, list[int]]]:
    """Return every row with the number of programs per dtype."""
    counts = doc["coverage"].get("row", {})
    names = [d.name for d in _DTYPES]
    return [(r.id, [counts.get(f"{r.id}|{name}", 0) for name in names]) for r in ROWS.values()]


def tabulate_firings_and_refusals_of_all_rules(doc: Json) -> list[tuple[str, int, int]]:
    """Return every rewrite rule with how often it fired and was refused; nothing if no lowering was recorded."""
    counts = doc["coverage"].get("rule", {})
    if not counts:
        return []
    return [(r.name, counts.get(f"{r.name} fired", 0), counts.get(f"{r.name} refused", 0)) for r in INDEXING]


def tabulate_optop_successions(doc: Json) -> tuple[list[str], list[tuple[str, list[int]]]]:
    """Return the OptOps, and per OptOp how often each one followed it."""
    counts = doc["coverage"].get("optop", {})
    names = sorted(k for k in counts if " > " not in k)
    return names, [(first, [counts.get(f"{first} > {second}", 0) for second in names]) for first in names]
