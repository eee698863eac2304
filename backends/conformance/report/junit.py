"""A report as JUnit XML, which every CI server shows: one test case per cell, at the level that decides the exit status."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any
from xml.etree import ElementTree as ET

from uops.backends.conformance.model import REFUSED, Status

Json = dict[str, Any]
#: Statuses that JUnit knows as skipped; none of them is a pass.
SKIPPED = frozenset({Status.UNSUPPORTED.value, Status.NOT_RUN.value, Status.XFAIL.value})
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(doc: Json) -> str:
    """The XML text: a suite per row, a case per (dtype, edge class)."""
    level = doc["level"]
    root = ET.Element("testsuites", name=f"uops conform {doc['backend']['name']} {doc['tier']} {level}")
    root.attrib |= _counts([c[level] for c in doc["cells"]]) | {"time": str(doc["time"]["seconds"])}
    for row, cells in groupby(doc["cells"], key=lambda c: c["row"]):
        _suite(root, row, list(cells), level)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=False).join(['<?xml version="1.0" encoding="UTF-8"?>\n', "\n"])


def _suite(root: ET.Element, row: str, cells: list[Json], level: str) -> None:
    suite = ET.SubElement(root, "testsuite", {"name": clean(row)} | _counts([c[level] for c in cells]))
    for c in cells:
        case = ET.SubElement(suite, "testcase", classname=clean(row.replace("/", ".")), name=clean(f"{c['dtype']} {c['edge']}"))
        verdict = c[level]
        if verdict["status"] == Status.FAIL.value:
            failure = ET.SubElement(case, "failure", message=clean(headline(verdict)))
            failure.text = clean("\n".join(map(describe, verdict["failures"])))
        elif verdict["status"] in SKIPPED:
            reason = f": {verdict['reason']}" if verdict["reason"] else ""
            ET.SubElement(case, "skipped", message=clean(verdict["status"] + reason))


def _counts(verdicts: list[Json]) -> dict[str, str]:
    failures = sum(v["status"] == Status.FAIL.value for v in verdicts)
    skipped = sum(v["status"] in SKIPPED for v in verdicts)
    return {"tests": str(len(verdicts)), "failures": str(failures), "errors": "0", "skipped": str(skipped)}


def headline(verdict: Json) -> str:
    """One line about a failing cell."""
    first = f": {verdict['failures'][0]['message']}" if verdict["failures"] else ""
    refused = f"{REFUSED}, " if verdict["reason"] == REFUSED else ""
    return f"{refused}{verdict['failed']} of {verdict['elements']} elements{first}"


def describe(failure: Json) -> str:
    """One failure in a line."""
    parts = [f"{failure['case']}: {failure['message']}"]
    parts += [f"of {', '.join(failure['operands'])}"] if failure["operands"] else []
    parts += [f"got {failure['got']}"] if failure["got"] is not None else []
    parts += [f"allowed {failure['allowed']}"] if failure["allowed"] is not None else []
    parts += [f"see {failure['reproducer']}.uops"] if failure["reproducer"] else []
    return "; ".join(parts)


def clean(text: str) -> str:
    """`text` without the characters that XML cannot hold."""
    return _ILLEGAL.sub("\ufffd", text)
