"""report.json: its schema, its scores, and that equal runs give equal bytes."""

from __future__ import annotations

import getpass
import json
import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from uops.backends.conformance.model import CellStatus, ConformanceLevel, ConformanceTier
from uops.backends.conformance.report import document as d
from uops.backends.conformance.runner import ConformanceRun
from uops.compiler.prove.admission import DamagedLedger, UnreadableLedger
from uops.spec.rows.named.base import RowSubject
from uops.spec.rows.rows import rows_of_subject

MakeRun = Callable[..., ConformanceRun]
SCHEMA = json.loads(d.SCHEMA.read_text())
IDIV_ZERO = ("Elementwise/Idiv", "int32", "zero")


def valid(doc: dict[str, Any]) -> bool:
    return bool(jsonschema.Draft202012Validator(SCHEMA).is_valid(doc))


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_a_report_follows_the_published_schema(make_run: MakeRun) -> None:
    for run in (make_run(), make_run(complete=False)):
        jsonschema.validate(d.build_document(run), SCHEMA, jsonschema.Draft202012Validator)


def test_the_schema_rejects_what_is_no_report(make_run: MakeRun) -> None:
    doc = d.build_document(make_run())
    for key in doc:
        assert not valid({k: v for k, v in doc.items() if k != key}), key
    assert not valid(doc | {"extra": 1})
    assert not valid(doc | {"cells": [doc["cells"][0] | {"strict": doc["cells"][0]["strict"] | {"status": "fine"}}]})


def test_the_schema_knows_every_status_and_tier() -> None:
    assert SCHEMA["$defs"]["status"]["enum"] == [s.value for s in CellStatus]
    totals = SCHEMA["$defs"]["score"]["properties"]["totals"]
    assert set(totals["properties"]) == {s.value for s in CellStatus}
    assert {*totals["properties"]} - {*totals["required"]} == {"by trait"}, "an older report has no traits"
    assert SCHEMA["properties"]["tier"]["enum"] == [*(t.value for t in ConformanceTier), "exhaustive"]


def test_a_damaged_ledger_does_not_lose_the_run(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged() -> None:
        raise UnreadableLedger("ledger.jsonl is damaged")

    monkeypatch.setattr(d.ledger, "read_ledger", damaged)
    with pytest.warns(DamagedLedger, match=r"the report says nothing of proved rules: ledger\.jsonl"):
        doc = d.build_document(make_run())
    assert doc["proofs"]["rules"] == {"proved": 0, "open": 0, "obligations": 0} and valid(doc)


def test_equal_runs_give_equal_bytes_but_for_time(make_run: MakeRun) -> None:
    first = d.build_document(make_run(seconds=1.0), started=datetime(2020, 1, 1, tzinfo=UTC))
    second = d.build_document(make_run(seconds=2.0), started=datetime(2021, 1, 1, tzinfo=UTC))
    assert d.to_canonical_json(first) != d.to_canonical_json(second)
    assert first.pop("time") != second.pop("time")
    assert d.to_canonical_json(first) == d.to_canonical_json(second)


def test_the_spelling_does_not_depend_on_the_order_in_which_cells_were_decided(make_run: MakeRun) -> None:
    run, other = make_run(), make_run()
    for level in ConformanceLevel:
        other.cells[level] = dict(reversed(other.cells[level].items()))
        for r in other.cells[level].values():
            r.sets = dict(reversed(r.sets.items()))
    other.reproducers = dict(reversed(other.reproducers.items()))
    when = datetime(2020, 1, 1, tzinfo=UTC)
    assert d.to_canonical_json(d.build_document(run, started=when)) == d.to_canonical_json(d.build_document(other, started=when))


def test_canonical_text_is_json_with_a_line_per_cell(make_run: MakeRun) -> None:
    doc = d.build_document(make_run())
    text = d.to_canonical_json(doc)
    assert json.loads(text) == doc
    assert sum(line.startswith('{"core"') for line in text.splitlines()) == len(doc["cells"])


def test_canonical_refuses_nan(make_run: MakeRun) -> None:
    doc = d.build_document(make_run())
    doc["time"]["seconds"] = float("nan")
    with pytest.raises(ValueError, match="Out of range"):
        d.to_canonical_json(doc)


def test_the_two_scores_are_passed_and_run_of_all_required_cells(make_run: MakeRun) -> None:
    scores = d.build_document(make_run())["scores"]
    strict, core = scores["strict"], scores["core"]
    assert (strict["required"], strict["passed"], strict["run"]) == (8, 3, 6)
    assert (core["required"], core["passed"], core["run"]) == (8, 4, 6)
    assert (strict["conformance"], strict["coverage"]) == (3 / 8, 6 / 8)
    assert core["conformance"] == 4 / 8
    assert sum(strict["totals"].values()) == strict["required"]
    assert strict["totals"]["fail"] == 2 and core["totals"]["fail"] == 1
    assert strict["sets"] == {"exact": 40 * 3 + 24 * 2 + 8 - 6, "interval": 6}


def test_what_is_not_askable_is_in_no_score_but_its_own(make_run: MakeRun) -> None:
    change = {("Call/Function", "float32", "nested"): CellStatus.NOT_ASKABLE}
    strict = d.build_document(make_run(change))["scores"]["strict"]
    assert (strict["required"], strict["passed"], strict["run"], strict["asked"]) == (7, 3, 6, 7 / 8)
    assert (strict["conformance"], strict["coverage"], strict["totals"]["not askable"]) == (3 / 7, 6 / 7, 1)
    assert strict["rows"] == {"asked": 3, "not_asked": ["Call/Function"]}
    assert sum(strict["totals"].values()) == strict["required"] + 1


def test_each_surface_has_its_scores(make_run: MakeRun) -> None:
    run = make_run()
    for level in ConformanceLevel:
        for cell, r in run.cells[level].items():
            if cell.row == "Elementwise/Idiv":
                r.surface = "kernel"
    parts = d.build_document(run)["scores"]["strict"]["surfaces"]
    assert list(parts) == ["tensor", "kernel"]
    assert [(p["passed"], p["required"], p["rows"]["asked"]) for p in parts.values()] == [(1, 5, 3), (2, 3, 1)]


def test_rows_without_a_cell_are_named(make_run: MakeRun) -> None:
    run = make_run()
    assert len(d.build_document(run)["silent_rows"]) == len(rows_of_subject(RowSubject.BACKEND)) - 4
    run.rows = "Elementwise/I*"
    assert d.build_document(run)["silent_rows"] == []


def test_nothing_required_is_no_score() -> None:
    score = d.compute_total_and_surface_scores([])
    assert (score["conformance"], score["coverage"], score["required"]) == (None, None, 0)


def test_executed_rows_are_those_of_cells_that_were_run(make_run: MakeRun) -> None:
    assert d.build_document(make_run())["executed"] == ["Decomposed/Sin", "Elementwise/Idiv", "Elementwise/Max"]


def test_a_report_names_neither_the_machine_nor_its_user_nor_a_place(make_run: MakeRun) -> None:
    doc = d.build_document(make_run())
    head = d.to_canonical_json({k: v for k, v in doc.items() if k != "cells"})
    assert str(Path.home()) not in head
    assert str(Path(d.__file__).parents[4]) not in head
    hostname = socket.gethostname()
    assert len(hostname) < 4 or hostname not in head
    assert len(getpass.getuser()) < 5 or getpass.getuser() not in head


def test_reproducer_names_are_safe_and_distinct() -> None:
    cases = ["A/b c", "A/b-c", "a/B-c", "../../etc/passwd", "x" * 300, "x" * 301]
    names = d.assign_reproducer_paths(cases)
    assert len({n.lower() for n in names.values()}) == len(cases)
    for name in names.values():
        folder, _, stem = name.partition("/")
        assert folder == "reproducers" and "/" not in stem and not stem.startswith(".") and len(stem) < 130


def test_a_report_can_be_read_back_from_file_or_directory(make_run: MakeRun, tmp_path: Path) -> None:
    doc = d.build_document(make_run())
    (tmp_path / "report.json").write_text(d.to_canonical_json(doc))
    assert d.read_report(tmp_path) == d.read_report(tmp_path / "report.json") == doc


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda doc: "[1", "report.json:1:3 is no JSON.*; it is not a report"),
        (lambda doc: "[" * 50_000, "nests too deep; it is not a report"),
        (lambda doc: "\ud800", "report.json:1 is not UTF-8"),
        (lambda doc: "[]", "schema version NoneType"),
        (lambda doc: json.dumps(doc | {"schema_version": True}), "schema version True"),
        (lambda doc: json.dumps(doc | {"schema_version": "9" * 10_000}), "schema version str"),
        (lambda doc: json.dumps(doc | {"schema_version": 99}), "schema version 99"),
        (lambda doc: json.dumps({k: v for k, v in doc.items() if k != "cells"}), "cells is missing"),
        (lambda doc: json.dumps(doc | {"scores": {"strict": {}}}), "scores.strict.conformance is missing"),
        (lambda doc: json.dumps(doc | {"scores": doc["scores"] | {"core": doc["scores"]["core"] | {"coverage": 1e300}}}), "0 to 1"),
        (lambda doc: json.dumps(doc | {"cells": [{"row": "A"}]}), r"cells\[0\].dtype is missing"),
        (lambda doc: json.dumps(doc | {"cells": [doc["cells"][0] | {"row": [1]}]}), r"cells\[0\].row: expected a string"),
        (
            lambda doc: json.dumps(doc | {"cells": [doc["cells"][0] | {"strict": {"status": "fine"}}]}),
            r"cells\[0\].strict.status: expected one of .*, got 'fine'",
        ),
        (lambda doc: json.dumps(doc | {"cells": [doc["cells"][0]] * 2}), r"cells\[1\] is about the same as cells\[0\]"),
        (lambda doc: json.dumps(doc | {"rows": 7}), "rows: expected a string, got 7"),
        (lambda doc: json.dumps(doc | {"level": {}}), "level: expected one of core, strict, got an object"),
    ],
)
def test_what_is_no_report_is_refused_with_the_reason(
    spoil: Callable[[dict[str, Any]], str], message: str, make_run: MakeRun, tmp_path: Path
) -> None:
    file = tmp_path / "report.json"
    file.write_text(spoil(d.build_document(make_run())), errors="surrogatepass")
    with pytest.raises(d.BadReport, match=message) as caught:
        d.read_report(file)
    assert "report.json" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["pipe", "device", "directory", "missing", "large"])
def test_what_is_no_file_is_no_report_and_is_not_waited_for(kind: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "directory").mkdir()
    with open(tmp_path / "large", "wb") as f:
        f.truncate(1 << 30)
    with pytest.raises(d.BadReport, match=f"{kind}.* is not a report"):
        d.read_report(tmp_path / kind)


def test_a_byte_order_mark_does_no_harm(make_run: MakeRun, tmp_path: Path) -> None:
    doc = d.build_document(make_run())
    (tmp_path / "report.json").write_bytes(b"\xef\xbb\xbf" + d.to_canonical_json(doc).encode())
    assert d.read_report(tmp_path) == doc


def test_a_cell_keeps_what_was_got_and_allowed(make_run: MakeRun) -> None:
    cells = {tuple(c[k] for k in ("row", "dtype", "edge")): c for c in d.build_document(make_run())["cells"]}
    (failure,) = cells[IDIV_ZERO]["strict"]["failures"]
    assert failure["got"] == "-1 (0xffffffff)" and failure["operands"] == ["p0 = 3 (0x00000003)"] and failure["allowed"] == "0"
    assert failure["reproducer"] == "reproducers/Elementwise-Idiv-int32-edges"
    assert cells[IDIV_ZERO]["core"]["status"] == "pass"
