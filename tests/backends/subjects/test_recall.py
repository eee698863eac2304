"""The list of known public bugs: complete, distinct, and its halves fixed by hash."""

import hashlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from uops.backends.registry import names
from uops.fuzz.reduce.corpus import load_file_test
from uops.interp import run

RECALL = Path(__file__).parents[3] / "docs/findings/recall"
BUGS: list[dict[str, Any]] = tomllib.loads((RECALL / "list.toml").read_text(encoding="utf-8"))["bug"]
FIELDS = {"id", "subject", "version", "url", "date", "labels", "what", "file"}


def half_of(bug: dict[str, Any]) -> str:
    """Half `b` is never tuned on."""
    return "ab"[hashlib.sha256(bug["id"].encode()).digest()[-1] % 2]


def test_there_are_enough_distinct_bugs() -> None:
    assert len(BUGS) >= 30
    for field in ("id", "file"):
        assert len({b[field] for b in BUGS}) == len(BUGS)
    assert {b["file"] for b in BUGS} == {p.name for p in RECALL.glob("*.uops")}


@pytest.mark.parametrize("bug", BUGS, ids=lambda b: b["id"])
def test_an_entry_is_complete_and_its_program_has_a_value(bug: dict[str, Any]) -> None:
    assert bug.keys() == FIELDS
    assert bug["subject"] in names()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", bug["date"])
    assert bug["url"].startswith("https://github.com/")
    test = load_file_test(RECALL / bug["file"])
    assert test.inputs
    assert run(test.graph, test.inputs).values


def test_the_page_shows_each_bug_in_its_half() -> None:
    rows = [line.split(" | ") for line in (RECALL / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("| [")]
    shown = {re.sub(r"^\| \[(.*)\].*", r"\1", r[0]): r[1] for r in rows}
    assert shown == {b["id"]: half_of(b) for b in BUGS}
