"""The report of a campaign: `report.json`, and `index.html` for people.

Takes: a `Summary`. Gives: the document: what was run, coverage - which rows met which dtypes, how wide allowed sets were, what each
oracle was asked - and the findings. Everything but `time` is a function of the set-up and of the number of cases.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uops.fuzz.examine import WIDTHS

if TYPE_CHECKING:
    from uops.fuzz.campaign import Found, Summary

Json = dict[str, Any]
#: Version of the document.
SCHEMA = 1


def document(s: Summary) -> Json:
    """The report as JSON."""
    groups = grouped(s.counts)
    return {
        "schema": SCHEMA,
        "setup": s.setup.to_json(),
        "subject": s.version,
        "complete": s.complete,
        "cases": s.cases,
        "findings": [_finding(f) for f in s.found],
        "raw": dict(sorted(s.raw.items())),
        "vanished": s.vanished,
        "coverage": groups,
        "sets": sets(s.counts),
        "time": {"seconds": round(s.seconds, 3), "cases": s.cases - s.began, "rate": round(s.rate, 3)},
    }


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


def _finding(f: Found) -> Json:
    return {"case": f.k, "count": f.count, "nodes": f.nodes, "file": f.file, "key": list(f.key), **f.triaged.to_json()}


def write(s: Summary, directory: Path) -> Json:
    """Write both files and give the document."""
    doc = document(s)
    (directory / "report.json").write_text(json.dumps(doc, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return doc
