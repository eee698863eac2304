"""The report directory: JUnit, the page, reproducers, and the file format of inputs."""

from __future__ import annotations

import io
import json
import re
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import ml_dtypes
import numpy as np
import pytest

from uops.backends import npz
from uops.backends.conformance.model import CellStatus, ConformanceLevel
from uops.backends.conformance.report import page as p
from uops.backends.conformance.report.document import build_document
from uops.backends.conformance.report.junit import render_junit
from uops.backends.conformance.report.texts import MEANING, collect_spec_texts
from uops.backends.conformance.report.write import write_report
from uops.backends.conformance.runner import ConformanceRun
from uops.spec.ir.text import parse_file
from uops.spec.rows.named.base import RowSubject
from uops.spec.rows.rows import ROWS, rows_of_subject
from uops.spec.rulings import RULINGS

MakeRun = Callable[..., ConformanceRun]

#: Number of the rows that judge backends.
ROW_COUNT = len(rows_of_subject(RowSubject.BACKEND))


@pytest.fixture
def report(make_run: MakeRun, tmp_path: Path) -> Path:
    write_report(make_run(), tmp_path / "report")
    return tmp_path / "report"


# --------------------------------------------------------------------------------------------------------------- junit


def test_junit_has_a_case_per_cell_and_fails_exactly_the_failing_ones(make_run: MakeRun) -> None:
    doc = build_document(make_run())
    root = ET.fromstring(render_junit(doc))
    cases = {(c.get("classname"), c.get("name")): c for c in root.iter("testcase")}
    assert len(cases) == len(doc["cells"]) == int(root.get("tests", ""))
    for c in doc["cells"]:
        case = cases[c["row"].replace("/", "."), f"{c['dtype']} {c['edge']}"]
        status = c["strict"]["status"]
        assert (case.find("failure") is not None) == (status == "fail")
        assert (case.find("skipped") is not None) == (status in ("unsupported", "not askable", "not run", "expected failure"))
    assert (root.get("failures"), root.get("skipped")) == ("2", "3")


def test_junit_says_what_failed(make_run: MakeRun) -> None:
    root = ET.fromstring(render_junit(build_document(make_run())))
    failure = next(f for f in root.iter("failure") if "3 of 24" in f.get("message", ""))
    assert "got -1 (0xffffffff); allowed 0; see reproducers/Elementwise-Idiv-int32-edges.uops" in (failure.text or "")
    assert "unsupported: one kernel only" in {s.get("message") for s in root.iter("skipped")}


def test_junit_cleans_the_name_of_a_backend(make_run: MakeRun) -> None:
    doc = build_document(make_run())
    doc["backend"]["name"] = "a\x1bb"
    assert "a\ufffdb" in ET.fromstring(render_junit(doc)).get("name", "")


def test_junit_follows_the_level_of_the_report(make_run: MakeRun) -> None:
    assert ET.fromstring(render_junit(build_document(make_run(), ConformanceLevel.CORE))).get("failures") == "1"


# ---------------------------------------------------------------------------------------------------------------- page


class Reader(HTMLParser):
    """Attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.data = ""
        self.row: str | None = None
        self.squares: dict[str, list[dict[str, str | None]]] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        a = dict(attrs)
        self.tags.append((tag, a))
        if tag == "tr":
            self.row = a.get("data-row")
        if tag == "td" and self.row and a.get("class") != "ulp":
            self.squares.setdefault(self.row, []).append(a)

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == ("script", {"type": "application/json", "id": "data"}):
            self.data += data


@pytest.fixture
def reader(report: Path) -> Reader:
    return Reader((report / "index.html").read_text(encoding="utf-8"))


def test_the_page_loads_nothing_from_elsewhere(report: Path, reader: Reader) -> None:
    text = (report / "index.html").read_text(encoding="utf-8")
    for tag, a in reader.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base"), tag
        assert not {"src", "href", "srcset", "action", "poster"} & a.keys(), (tag, a)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(", text)


def test_the_page_has_a_square_per_row_and_dtype(reader: Reader) -> None:
    dtypes = [
        a["title"]
        for tag, a in reader.tags
        if tag == "th" and a.get("title") in ("int8", "int32", "bfloat16", "float32", "float64")
    ]
    assert dtypes == ["int8", "int32", "bfloat16", "float32", "float64"]
    found = {row: [(s.get("data-s"), s.get("data-c")) for s in squares] for row, squares in reader.squares.items()}
    none = (None, None)
    assert found == {
        "Elementwise/Idiv": [("pass", "pass"), ("fail", "pass"), none, none, none],
        "Elementwise/Max": [none, none, ("fail", "fail"), none, ("wait", "wait")],
        "Decomposed/Sin": [none, none, none, ("xfail", "xfail"), none],
        "Call/Function": [none, none, none, ("none", "none"), none],
    }


def test_rows_stand_in_the_order_of_the_specification(reader: Reader) -> None:
    order = {spec.id: k for k, spec in enumerate(ROWS.values())}
    assert list(reader.squares) == sorted(reader.squares, key=order.__getitem__)


def test_the_data_block_holds_what_a_square_shows(reader: Reader) -> None:
    data = json.loads(reader.data)
    entries = {data["strings"][e[0]]: e for e in data["cells"]["Elementwise/Idiv"]["int32"]}
    status, elements, failed, _, sets, _, failures = entries["zero"][1]
    assert (data["strings"][status], elements, failed, data["strings"][sets]) == ("fail", 24, 3, "exact 23 · interval 1")
    assert failures[0]["got"] == "-1 (0xffffffff)"
    assert data["strings"][entries["zero"][2][0]] == "pass"  # at core
    assert entries["ordinary"][2] == 0  # the same at core
    spec = data["rows"]["Elementwise/Idiv"]
    assert spec["claims"][0][0] == "IDIV.C1" and spec["rulings"][:3] == ["R01", "R03", "R04"]
    assert data["rulings"]["R03"].startswith("division by zero")
    assert "= idiv %0, %1" in data["programs"]["reproducers/Elementwise-Idiv-int32-edges"]


def test_hostile_text_stays_text(report: Path, reader: Reader) -> None:
    """A backend's message ends neither the data block nor the markup."""
    assert sum(tag == "script" for tag, _ in reader.tags) == 2
    failures = json.loads(reader.data)["cells"]["Elementwise/Max"]["bfloat16"][0][1][6]
    assert failures[0]["message"].startswith("crash: </script><script>alert('x')")
    assert "<script>alert" not in (report / "index.html").read_text(encoding="utf-8")


def test_the_page_keeps_two_scores_apart_and_explains_them(report: Path) -> None:
    text = (report / "index.html").read_text(encoding="utf-8")
    assert text.count("37.50<small>%") == 1 and text.count("75.00<small>%") == 2  # coverage is the same at both levels
    assert "passed of" in text and "run of" in text and "stay in the denominator" in text


def test_cells_by_trait_have_a_score_of_their_own(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run()
    for cells in run.cells.values():
        (cell,) = [r for r in cells.values() if r.status is CellStatus.XFAIL]
        cell.status, cell.reason = CellStatus.BY_TRAIT, "flushes-subnormals"
    write_report(run, tmp_path)
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert text.count("</b> % with the traits that the backend declares") == 2 and "<b>50.00</b> % with" in text
    (status,) = {
        c["strict"]["status"]
        for c in json.loads((tmp_path / "report.json").read_text())["cells"]
        if c["strict"]["reason"] == "flushes-subnormals"
    }
    assert status == "by trait"


def test_an_interrupted_run_says_so(make_run: MakeRun, tmp_path: Path) -> None:
    write_report(make_run(complete=False), tmp_path)
    assert "This run was interrupted" in (tmp_path / "index.html").read_text(encoding="utf-8")
    write_report(make_run(), tmp_path)
    assert "This run was interrupted" not in (tmp_path / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [(1.0, "100"), (0.99999, "99.99"), (0.0, "0.00"), (0.98734, "98.73"), (None, "–"), (0.29, "29.00"), (0.57, "57.00")],
)
def test_a_score_is_100_only_when_it_is_whole(ratio: float | None, shown: str) -> None:
    assert p.format_percent(ratio) == shown


@pytest.mark.parametrize(("x", "shown"), [(0.0, ""), (1.0, "1"), (1.5, "1.5"), (2048.0, "2048"), (3e8, "3e8")])
def test_distances_are_short(x: float, shown: str) -> None:
    assert p.format_ulp(x) == shown


def test_a_square_shows_the_worst_of_its_edge_classes() -> None:
    verdicts = [{"status": s.value, "max_ulp": 0.5 * k} for k, s in enumerate(CellStatus)]
    assert set(p.WORST) == set(CellStatus)
    assert p.CellBadge.from_verdicts(verdicts) == p.CellBadge("fail", "1/7", 3.0)
    assert p.CellBadge.from_verdicts(verdicts[:1] * 3) == p.CellBadge("pass", "3", 0.0)
    assert p.CellBadge.from_verdicts([verdicts[0], verdicts[3]]) == p.CellBadge("xfail", "1/2", 1.5)
    mute = {"status": "not askable", "max_ulp": 0.0}
    assert p.CellBadge.from_verdicts([verdicts[0], mute]) == p.CellBadge("pass", "1/2", 0.0)


def test_the_page_never_shows_a_score_without_its_rows(make_run: MakeRun, tmp_path: Path) -> None:
    """What was not asked stands beside it: rows of undeclared surfaces, rows without a cell, and rows that a baseline lacked."""
    mute = {("Decomposed/Sin", "float32", edge): CellStatus.NOT_ASKABLE for edge in ("limit", "ordinary")}
    before = write_report(make_run(mute), tmp_path / "before")
    text = (tmp_path / "before/index.html").read_text()
    assert f"in <b>3</b> of {ROW_COUNT} rows" in text and f"of 3 of {ROW_COUNT} rows (strict)</title>" in text
    assert "Rows that were not asked, 1,</b> as the backend does not declare their surface: Decomposed/Sin." in text
    assert f"Rows without a cell, {ROW_COUNT - 4}:</b>" in text
    write_report(make_run(), tmp_path / "after", newly_asked_baseline=before)
    assert "Rows that the baseline did not ask, 1:</b> Decomposed/Sin." in (tmp_path / "after/index.html").read_text()


def test_every_ruling_named_beside_a_row_exists_and_every_row_has_its_texts() -> None:
    assert {r for ids in MEANING.values() for r in ids} <= set(RULINGS)
    found = collect_spec_texts([spec.id for spec in ROWS.values()])
    assert list(found.rows) == [spec.id for spec in ROWS.values()]
    assert all(r in found.rulings for row in found.rows.values() for r in row.rulings)
    assert collect_spec_texts([]).rows == {}


# --------------------------------------------------------------------------------------------------------- reproducers


def test_each_failing_case_has_a_program_and_its_inputs(report: Path, make_run: MakeRun) -> None:
    cases = make_run().reproducers
    doc = json.loads((report / "report.json").read_text())
    named = {f["case"]: f["reproducer"] for c in doc["cells"] for level in ("strict", "core") for f in c[level]["failures"]}
    assert named.keys() == cases.keys() and len(cases) == 3
    for case, name in named.items():
        assert parse_file(report / f"{name}.uops") is cases[case].graph
        inputs = npz.load(report / f"{name}.npz")
        assert inputs.keys() == cases[case].inputs.keys()
        for key, a in inputs.items():
            assert a.dtype == cases[case].inputs[key].dtype and a.tobytes() == cases[case].inputs[key].tobytes()


def test_a_reproducer_says_how_to_run_it(report: Path) -> None:
    text = (report / "reproducers/Elementwise-Idiv-int32-edges.uops").read_text()
    name = "reproducers/Elementwise-Idiv-int32-edges"
    assert f"; uops run {name}.uops --inputs {name}.npz --backend fake\n" in text
    assert "; p0: int32 (3,)\n" in text


def test_a_second_report_leaves_no_reproducer_of_the_first(report: Path, make_run: MakeRun) -> None:
    write_report(make_run({("Elementwise/Idiv", "int32", "zero"): CellStatus.PASS}), report)
    assert not (report / "reproducers/Elementwise-Idiv-int32-edges.uops").exists()
    assert not (report / "reproducers/Elementwise-Idiv-int32-edges.npz").exists()
    assert (report / "reproducers/Elementwise-Max-bfloat16-edges.npz").exists()


# -------------------------------------------------------------------------------------------------------------- inputs


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint64", "float16", "float32", "float64", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_inputs_keep_every_bit(dtype: str, shape: tuple[int, ...]) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    raw = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 256, (*shape, kind.itemsize), np.uint8)
    a = raw.reshape(-1).view(kind).reshape(shape)
    file = io.BytesIO()
    npz.save(file, {"p0": a})
    file.seek(0)
    back = npz.load(file)["p0"]
    assert back.dtype == kind and back.shape == shape and back.tobytes() == a.tobytes()


def test_inputs_keep_ints_of_any_size() -> None:
    big = np.array([[1, -(1 << 80)], [1 << 70, 0]], object)
    file = io.BytesIO()
    npz.save(file, {"n": 5, "m": -(1 << 65), "p0": big})
    file.seek(0)
    back = npz.load(file)
    assert back["n"] == 5 and type(back["n"]) is int and back["m"] == -(1 << 65)
    assert back["p0"].dtype == object and back["p0"].tolist() == big.tolist()


def test_a_plain_savez_is_an_input_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", p0=np.arange(3.0), b1=np.array([7]), n=7)
    back = npz.load(tmp_path / "x.npz")
    assert back["p0"].tolist() == [0, 1, 2] and isinstance(back["b1"], np.ndarray) and back["n"] == 7 and type(back["n"]) is int


def test_a_variable_may_have_the_name_of_a_parameter_of_savez() -> None:
    file = io.BytesIO()
    npz.save(file, {"file": 3, "allow_pickle": 4, "p0": np.arange(3)})
    file.seek(0)
    back = npz.load(file)
    assert (back["file"], back["allow_pickle"], back["p0"].tolist()) == (3, 4, [0, 1, 2])


def test_inputs_of_the_dtypes_of_numpy_have_the_bytes_of_savez() -> None:
    arrays, file = {"b1": np.array(7.0), "p0": np.asfortranarray(np.arange(6).reshape(2, 3))}, io.BytesIO()
    npz.save(file, arrays)
    assert file.getvalue() == _bytes(**arrays)


def test_equal_inputs_give_equal_files(tmp_path: Path) -> None:
    for k in (0, 1):
        npz.save(tmp_path / f"{k}.npz", {"p1": np.arange(3), "p0": np.arange(2)} if k else {"p0": np.arange(2), "p1": np.arange(3)})
    assert (tmp_path / "0.npz").read_bytes() == (tmp_path / "1.npz").read_bytes()


def _bytes(**members: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **members)
    return file.getvalue()


def _array() -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(3))
    return file.getvalue()


def _member(header: bytes, data: bytes = b"", name: str = "p0.npy") -> bytes:
    """A file with one array of this header; both are as the format says only where the caller's bytes are."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr(name, b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data if header else data)
    return file.getvalue()


def _spoiled(at: int, value: int) -> bytes:
    """An input file with a field of its two headers (local, central) changed."""
    data = bytearray(_bytes(p0=np.arange(3)))
    central = data.index(b"PK\x01\x02")
    data[at] = data[central + at + 2] = value
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (_member(b"{'descr': '<f4', 'fortran_order': False, 'shape': (3,"), "member p0 cannot be read"),
        (_member(b"{'descr': '<f4', 'fortran_order': False, 'shape': (10**99,), }"), "member p0 cannot be read"),
        (_member(b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }" % 10**30), "member p0 cannot be read"),
        (_member(b"{'descr': f(1), 'fortran_order': False, 'shape': (3,), }"), "cannot be read: expected a literal, got code"),
        (_member(b"{'descr': '<f4', 'fortran_order': False, 'shape': x.y, }"), "cannot be read: expected a literal, got code"),
        (_member(b"", b"text", "p0.npy"), "member p0 is not an array"),
        (_member(b"", b"text", "p0.txt"), "member p0.txt is not an array"),
        (_spoiled(6, 1), "is encrypted"),
        (_spoiled(8, 93), "member p0 cannot be read"),
        (_spoiled(8, 8), "member p0 cannot be read"),
        (b"not a zip", "is not an input file"),
        (b"", "is not an input file"),
        (_array(), "is one array"),
        (_bytes(p0=np.array([object()], object)), "member p0 holds Python objects"),
        (_bytes(p0=np.arange(3), **{"p0.dtype": np.array("float128")}), "p0.dtype is 'float128'; known: bfloat16"),
        (_bytes(p0=np.arange(3), **{"p0.dtype": np.array("bfloat16")}), "bits must be uint16, got int64"),
        (_bytes(p0=np.array(["x"]), **{"p0.dtype": np.array("index")}), "cannot be read as index"),
        (_bytes(n=np.array([], str), **{"n.dtype": np.array("int")}), "cannot be read as int"),
    ],
)
def test_what_is_no_input_file_is_refused_with_the_reason(data: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "x.npz"
    file.write_bytes(data)
    with pytest.raises(npz.BadInputs, match=re.escape(message)) as caught:
        npz.load(file)
    assert " at 0x" not in str(caught.value)


def _bomb(shape: tuple[int, ...], data: bytes, name: str = "p0.npy", dtype: str = "<f4") -> bytes:
    return _member(b"{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n" % (dtype.encode(), str(shape).encode()), data, name)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (_bomb((1 << 40,), b""), "bytes, and float32 of shape (1099511627776,) has"),
        (_bomb((3,), bytes(8)), "bytes, and float32 of shape (3,) has"),
        (_bomb((3,), bytes(1 << 20)), "and float32 of shape (3,) has"),
        (_bomb((3,), bytes(12), "../p0.npy"), "member ../p0.npy is not an array"),
        (_bomb((-1, -3), bytes(12)), "member p0 cannot be read"),
        (_bomb((3,), bytes(12), "p\x1b\n.npy"), "member p\\x1b\\n.npy is not an array"),
    ],
)
def test_what_a_member_declares_is_what_it_has(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(npz.BadInputs, match=re.escape(message)) as caught:
        npz.load(tmp_path / "x.npz")
    assert "x.npz" in str(caught.value) and "\n" not in str(caught.value)


def test_a_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as z, warnings.catch_warnings(action="ignore"):
        for value in (1, 2):
            z.writestr("n.npy", zipfile.ZipFile(io.BytesIO(_bytes(n=value))).read("n.npy"))
    with pytest.raises(npz.BadInputs, match="member n occurs twice"):
        npz.load(tmp_path / "x.npz")


def test_a_large_array_is_declared_before_it_is_inflated(tmp_path: Path) -> None:
    """64 MiB of zeros in 64 KiB: who wants three numbers does not make room for more."""
    (tmp_path / "x.npz").write_bytes(_bomb((1 << 24,), bytes(1 << 26)))
    tracemalloc.start()
    inputs = npz.InputFile(tmp_path / "x.npz")
    assert inputs.decoded_header("p0") == (np.dtype(np.float32), (1 << 24,))
    assert tracemalloc.get_traced_memory()[1] < 1 << 21
    tracemalloc.stop()


def test_the_arrays_of_a_file_have_so_many_bytes_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npz, "MOST_BYTES", 100)
    np.savez(tmp_path / "x.npz", p0=np.zeros(10), p1=np.zeros(3))
    with pytest.raises(npz.BadInputs, match="its arrays have 104 bytes, at most 100 are read"):
        npz.load(tmp_path / "x.npz")


def test_columns_first_and_a_word_of_many_numbers(tmp_path: Path) -> None:
    a = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    np.savez(tmp_path / "x.npz", p0=a)
    assert np.array_equal(npz.load(tmp_path / "x.npz")["p0"], a)
    np.savez(tmp_path / "x.npz", n=np.array("9" * 5000), **{"n.dtype": np.array("int")})
    with pytest.raises(npz.BadInputs, match="its numbers have 20,000 bytes each"):
        npz.load(tmp_path / "x.npz")
