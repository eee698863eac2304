"""A report as JUnit XML for CI servers: one test case per cell, at the level that decides the exit status."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any
from xml.etree import ElementTree as ET

from uops.backends.conformance.model import REFUSED, CellStatus

Json = dict[str, Any]
#: Statuses reported as skipped; none of them is a pass.
SKIPPED = frozenset(s.value for s in CellStatus if s not in (CellStatus.PASS, CellStatus.FAIL))
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(doc: Json) -> str:
    """Render the XML text: a suite per row, a case per (dtype, edge class)."""
    level = doc["level"]
    root = ET.Element("testsuites", name=replace_illegal_xml(f"uops conform {doc['backend']['name']} {doc['tier']} {level}"))
    root.attrib |= _count_outcomes([c[level] for c in doc["cells"]]) | {"time": str(doc["time"]["seconds"])}
    for row, cells in groupby(doc["cells"], key=lambda c: c["row"]):
        _add_testsuite(root, row, list(cells), level)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=False).join(['<?xml version="1.0" encoding="UTF-8"?>\n', "\n"])


def _add_testsuite(root: ET.Element, row: str, cells: list[Json], level: str) -> None:
    suite = ET.SubElement(root, "testsuite", {"name": replace_illegal_xml(row)} | _count_outcomes([c[level] for c in cells]))
    for c in cells:
        case = ET.SubElement(
            suite,
            "testcase",
            classname=replace_illegal_xml(row.replace("/", ".")),
            name=replace_illegal_xml(f"{c['dtype']} {c['edge']}"),
        )
        verdict = c[level]
        if verdict["status"] == CellStatus.FAIL.value:
            failure = ET.SubElement(case, "failure", message=replace_illegal_xml(summarize_failing_cell(verdict)))
            failure.text = replace_illegal_xml("\n".join(map(describe_failure, verdict["failures"])))
        elif verdict["status"] in SKIPPED:
            reason = f": {verdict['reason']}" if verdict["reason"] else ""
            ET.SubElement(case, "skipped", message=replace_illegal_xml(verdict["status"] + reason))


def _count_outcomes(verdicts: list[Json]) -> dict[str, str]:
    failures = sum(v["status"] == CellStatus.FAIL.value for v in verdicts)
    skipped = sum(v["status"] in SKIPPED for v in verdicts)
    return {"tests": str(len(verdicts)), "failures": str(failures), "errors": "0", "skipped": str(skipped)}


def summarize_failing_cell(verdict: Json) -> str:
    """Summarize a failing cell in one line."""
    message = f": {verdict['failures'][0]['message']}" if verdict["failures"] else ""
    prefix = f"{REFUSED}, " if verdict["reason"] == REFUSED else ""
    return f"{prefix}{verdict['failed']} of {verdict['elements']} elements{message}"


def describe_failure(failure: Json) -> str:
    """Describe one failure in a line."""
    parts = [f"{failure['case']}: {failure['message']}"]
    parts += [f"of {', '.join(failure['operands'])}"] if failure["operands"] else []
    parts += [f"got {failure['got']}"] if failure["got"] is not None else []
    parts += [f"allowed {failure['allowed']}"] if failure["allowed"] is not None else []
    parts += [f"see {failure['reproducer']}.uops"] if failure["reproducer"] else []
    return "; ".join(parts)


def replace_illegal_xml(text: str) -> str:
    """Replace the characters of `text` that XML cannot represent."""
    return _ILLEGAL.sub("\ufffd", text)
