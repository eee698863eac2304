"""Is every failing cell of a report explained by a confirmed finding?

    python check.py REPORT/report.json [FINDINGS.json]

A cell is explained when a rule of the findings file covers its row, dtype and edge class, and each failure that the report records
for it looks like one of the rule's findings: `evidence` is a regular expression over "operands | got G | allowed A", or over the
message of a failure without a value. A cell counts for the first finding of its rule that is seen in it.
Prints the number of cells per finding and level, then what is not explained; the exit status is 1 if there is any.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

FINDINGS = Path(__file__).with_name("tinygrad-0.14.json")
LEVELS = ("strict", "core")


def line(failure: dict[str, Any]) -> str:
    """A recorded failure as the text that evidence is searched in; a failure without a value is its message."""
    if failure["got"] is None:
        return str(failure["message"])
    return f"{'; '.join(failure['operands'])} | got {failure['got']} | allowed {failure['allowed']}"


def rule_for(rules: list[dict[str, Any]], cell: dict[str, Any]) -> dict[str, Any] | None:
    """The first rule that covers the cell."""
    return next((r for r in rules if all(fnmatchcase(cell[k], glob) for k in ("row", "dtype", "edge") for glob in [r[k]])), None)


def explain(findings: dict[str, Any], rules: list[dict[str, Any]], cell: dict[str, Any], level: str) -> tuple[list[str], list[str]]:
    """The findings seen in a failing cell, in the rule's order, and the failures that none of them explains."""
    rule = rule_for(rules, cell)
    failures = [line(f) for f in cell[level]["failures"]]
    if rule is None:
        return [], failures or ["no rule, and no failure was recorded"]
    seen = [name for name in rule["findings"] if any(re.search(findings[name]["evidence"], text) for text in failures)]
    return seen, [text for text in failures if not any(re.search(findings[name]["evidence"], text) for name in seen)]


def check(report: dict[str, Any], document: dict[str, Any]) -> tuple[dict[str, Counter[str]], list[str]]:
    """Cells per level and finding (the first of its rule that is seen in the cell), and the unexplained failures."""
    counts: dict[str, Counter[str]] = {level: Counter() for level in LEVELS}
    unexplained = []
    rules = document["rules"][report["backend"]["name"]]
    for cell in report["cells"]:
        for level in LEVELS:
            if cell[level]["status"] != "fail":
                continue
            seen, left = explain(document["findings"], rules, cell, level)
            name = f"{cell['row']} x {cell['dtype']} x {cell['edge']} ({level})"
            unexplained += [f"{name}: {text}" for text in left]
            if seen:
                counts[level][seen[0]] += 1
    return counts, unexplained


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Hold the failing cells of a report against the findings.")
    parser.add_argument("report", type=Path, help="report.json of uops conform")
    parser.add_argument("findings", type=Path, nargs="?", default=FINDINGS, help=f"by default {FINDINGS.name}")
    given = parser.parse_args(arguments)
    report, document = (json.loads(path.read_text(encoding="utf-8")) for path in (given.report, given.findings))
    counts, unexplained = check(report, document)
    for name, finding in document["findings"].items():
        if any(counts[level][name] for level in LEVELS):
            print(f"{name}  strict {counts['strict'][name]:4}  core {counts['core'][name]:4}  {finding['title']}")
    print(f"sum  strict {counts['strict'].total():4}  core {counts['core'].total():4}")
    for text in unexplained:
        print(f"not explained: {text}")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
