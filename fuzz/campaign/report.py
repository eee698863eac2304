"""The report of a campaign: `report.json`, and `index.html` for people.

Takes: a `Summary`. Gives: the document: what was run, coverage - which rows met which dtypes, which rules fired and were refused,
which OptOps followed each other, how wide allowed sets were, what each oracle was asked - and the findings. Everything but `time`
is a function of the set-up and of the number of cases.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from uops.backends.conformance.report.page import HERE as STYLES
from uops.backends.conformance.report.page import number
from uops.compiler.rewrite.rules import INDEXING
from uops.fuzz.campaign.examine import WIDTHS
from uops.fuzz.oracles.oracles import DEFAULT, ORACLES, judges
from uops.spec.ir import dtypes as dt
from uops.spec.rows.rows import ROWS
from uops.spec.untrusted import read_text, write_text

if TYPE_CHECKING:
    from uops.fuzz.campaign.campaign import Found, Summary

Json = dict[str, Any]
#: Version of the document.
SCHEMA = 1
JSON, PAGE = "report.json", "index.html"
HERE = Path(__file__).parent


def document(s: Summary) -> Json:
    """The report as JSON."""
    return {
        "schema": SCHEMA,
        "setup": s.setup.to_json(),
        "subject": s.version,
        "complete": s.complete,
        "cases": s.cases,
        "findings": [_finding(f) for f in s.found],
        "raw": dict(sorted(s.raw.items())),
        "vanished": s.vanished,
        "judged": s.counts["judged"],
        "waiting": [{"case": f["k"], "oracle": f["oracle"], "fault": f["fault"]} for f in s.waiting],
        "refused": refused(s.counts),
        "unheard": unheard(s),
        "coverage": grouped(s.counts),
        "sets": sets(s.counts),
        "time": {"seconds": round(s.seconds, 3), "cases": s.cases - s.began, "rate": round(s.rate, 3)},
    }


def refused(counts: Counter[str]) -> int:
    """Cases that the subject said it cannot take. Of one that it took for an oracle before, what that saw counts."""
    return sum(n for k, n in counts.items() if k.startswith("refused:"))


def unheard(s: Summary) -> list[str]:
    """The oracles that judged no case although they were chosen by name, or although there was a case to judge; with the reasons
    that they gave."""
    why: dict[str, list[str]] = {o: [] for o in s.setup.oracles}
    for reason in sorted(k.removeprefix("not asked:") for k in s.counts if k.startswith("not asked:")):
        name, _, told = reason.partition(", ")
        why.setdefault(name, []).append(told)
    silent = [o for o in s.setup.oracles if not s.counts[f"oracle:{o}"] and (why[o] or s.setup.oracles != DEFAULT)]
    return [f"{o} ({'; '.join(why[o])})" if why[o] else o for o in silent]


def was_judged(s: Summary) -> bool:
    """Whether anything that the subject does was judged, and not programs and the interpreter alone."""
    return any(s.counts[f"oracle:{o}"] for o in s.setup.oracles if judges(o, s.setup.backend)) or bool(s.raw)


def describe_unjudged(s: Summary) -> str:
    """Describe a campaign in which nothing that the subject does was judged: who was asked, and of what."""
    asked = [f"{o} ({s.counts[f'oracle:{o}']:,})" for o in s.setup.oracles if s.counts[f"oracle:{o}"]]
    of = f": {', '.join(asked)} judged programs and the interpreter alone" if asked else ": no oracle judged a case"
    return f"nothing that {s.setup.backend} does was judged{of}"


def grouped(counts: Counter[str]) -> Json:
    """Counters `group:name` as group -> name -> count."""
    found: Json = {}
    for name, n in sorted(counts.items()):
        group, _, rest = name.partition(":")
        found.setdefault(group, {})[rest or group] = n
    return found


def sets(counts: Counter[str]) -> Json:
    """The share of elements that may be anything, and the median width of a float's allowed set, in ulp."""
    total = sum(n for k, n in counts.items() if k.startswith("set:"))
    widths = [(w, counts[f"width:{w}"]) for w in WIDTHS]
    half, median, seen = (sum(n for _, n in widths) + counts["width:more"]) / 2, None, 0
    for w, n in widths:
        seen += n
        if median is None and seen >= half and seen:
            median = w
    return {"elements": total, "any": round(counts["set:any"] / total, 6) if total else 0.0, "median_ulp": median}


def describe_counts(failing: int, looked_at: int, findings: int, vanished: int) -> str:
    """Describe the numbers of a campaign in which cases failed. `looked_at` counts the cases of findings, without those that
    vanished."""
    from uops.fuzz.campaign.campaign import PER_BATCH
    from uops.fuzz.campaign.work import BATCH

    seen = looked_at + vanished
    most = f" (at most {PER_BATCH} of a kind in {BATCH} cases)" if seen < failing else ""
    text = f"cases that failed: {failing:,}; looked at again: {seen:,}{most}; findings, one for each cause: {findings:,}"
    return f"{text}; not seen again: {vanished:,}" if vanished else text


def _finding(f: Found) -> Json:
    return {
        "case": f.k,
        "count": f.count,
        "nodes": f.nodes,
        "file": f.file,
        "unreduced": f.unreduced,
        "key": list(f.key),
        **f.triaged.to_json(),
    }


def write(s: Summary, directory: Path) -> Json:
    """Write both files and give the document. Reproducers are where the campaign has put them."""
    doc = document(s)
    write_text(directory / JSON, json.dumps(doc, indent=1, sort_keys=True) + "\n")
    write_text(directory / PAGE, page(doc, directory))
    return doc


# --------------------------------------------------------------------------------------------------------------------- page


def page(doc: Json, directory: Path) -> str:
    """The document as one page that needs nothing else."""
    return render(
        HERE / "report.html.j2", doc=doc, counted=_describe_counts(doc), matrix=matrix(doc), dtypes=[d.short for d in _DTYPES],
        rules=rules(doc), pairs=pairs(doc), oracles=ORACLES, texts=_texts(doc, directory),
    )  # fmt: skip


def render(template: Path, **values: object) -> str:
    """A template with these values, which are text and no markup, in the style of all reports."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["number"] = number
    style = (STYLES / "page.css").read_text(encoding="utf-8") + (HERE / "report.css").read_text(encoding="utf-8")
    return environment.from_string(template.read_text(encoding="utf-8")).render(style=style, **values)


def _describe_counts(doc: Json) -> str:
    found = doc["findings"]
    return describe_counts(sum(doc["raw"].values()), sum(f["count"] for f in found), len(found), len(doc["vanished"]))


def _texts(doc: Json, directory: Path) -> dict[str, str]:
    """The reproducers of the findings."""
    files = [f["file"] for f in doc["findings"] if f["file"]]
    return {name: read_text(directory / "findings" / name) for name in files}


#: What a node of a program may have.
_DTYPES = (*dt.STORABLE, dt.index, dt.void)


def matrix(doc: Json) -> list[tuple[str, list[int]]]:
    """Every row, and how many programs had it with each dtype: none, too."""
    seen = doc["coverage"].get("row", {})
    names = [d.name for d in _DTYPES]
    return [(r.id, [seen.get(f"{r.id}|{name}", 0) for name in names]) for r in ROWS.values()]


def rules(doc: Json) -> list[tuple[str, int, int]]:
    """Every rewrite rule, how often it fired, and how often its condition refused; none where no lowering was looked at."""
    seen = doc["coverage"].get("rule", {})
    if not seen:
        return []
    return [(r.name, seen.get(f"{r.name} fired", 0), seen.get(f"{r.name} refused", 0)) for r in INDEXING]


def pairs(doc: Json) -> tuple[list[str], list[tuple[str, list[int]]]]:
    """OptOps, and how often each was followed by each."""
    seen = doc["coverage"].get("optop", {})
    names = sorted(k for k in seen if " > " not in k)
    return names, [(a, [seen.get(f"{a} > {b}", 0) for b in names]) for a in names]
