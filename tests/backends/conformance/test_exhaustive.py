"""The exhaustive tier: its references notice wrong results, its runs resume, and a process that dies fails its chunk."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uops.backends.arrays import STORAGE
from uops.backends.conformance import exhaustive
from uops.backends.conformance.controls import Interp
from uops.backends.conformance.exhaustive import (
    ExhaustiveChunk,
    Tally,
    _tally_result_in_blocks,
    function_names,
    list_chunks,
    render_ulp_table,
    run_or_resume_exhaustive_tier,
)
from uops.backends.conformance.multiprecision import judge_rounding_and_ulp_errors
from uops.backends.conformance.references import F32_REFERENCES, F64_REFERENCES, draw_random_and_hard_operands_of_chunk
from uops.backends.testing.journal import BadJournal, Journal, JournalInUse, JournalMismatch, encode_journal
from uops.spec.ir import dtypes as dt
from uops.spec.result import Result

FUNCTIONS = {"exp2": np.exp2, "log2": np.log2, "sin": np.sin, "sqrt": np.sqrt, "recip": lambda x: 1 / x, "trunc": np.trunc}
BITS = np.random.default_rng(3).integers(0, 1 << 32, 1 << 15, np.uint64).astype(np.uint32)
EDGES = np.array([0, 1 << 31, 1, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF, 0x00800000, 0x3F800000], np.uint32)
X = np.concatenate([EDGES, BITS]).view(np.float32)


def _right(name: str) -> Any:
    """The right result of a float32 function on X."""
    reference = F32_REFERENCES[name]
    with np.errstate(all="ignore"):
        if not name.startswith("cast"):
            return FUNCTIONS[name.split("/")[0]](X.astype(np.float64)).astype(np.float32)
        d = reference.result
        if d.is_float and d.bits < 32:
            return X.astype(STORAGE[d])
        if d is dt.float64:
            return X.astype(np.float64)
        if d is dt.bool_:
            return X != 0
        exact = [0 if v != v else int(min(max(v, -(2.0**70)), 2.0**70)) for v in X.tolist()]
        return np.array([min(max(v, int(d.min)), int(d.max)) for v in exact], d.name)


def _tally(name: str, got: Any) -> Tally:
    tally = Tally(name, inputs=len(X))
    _tally_result_in_blocks(tally, F32_REFERENCES[name], (X,), got)
    return tally


@pytest.mark.parametrize("name", F32_REFERENCES)
def test_right_results_are_accepted(name: str) -> None:
    assert _tally(name, _right(name)).wrong == 0


@pytest.mark.parametrize("where", range(len(EDGES) + 2))
@pytest.mark.parametrize("name", F32_REFERENCES)
def test_one_wrong_element_is_counted(name: str, where: int) -> None:
    got = _right(name).copy()
    bits = got.view(f"u{got.dtype.itemsize}")
    is_nan = got.dtype != np.bool_ and bool(np.isnan(got[where].astype(np.float64)))
    bits[where] = 0 if is_nan else bits[where] ^ (1 if got.dtype == np.bool_ else 0b1000)
    assert _tally(name, got).wrong == 1


def test_two_ulp_are_accepted_and_three_are_not() -> None:
    for off, wrong in ((1, 0), (3, 1)):
        got = _right("exp2/float32").copy()
        k = int(np.flatnonzero(np.isfinite(X) & (np.abs(X) < 100) & (np.abs(X) > 1))[0])
        got.view(np.uint32)[k] += off
        assert _tally("exp2/float32", got).wrong == wrong


@pytest.mark.parametrize("name", F64_REFERENCES)
def test_points_are_judged_against_mpmath(name: str) -> None:
    reference = F64_REFERENCES[name]
    operands = tuple(draw_random_and_hard_operands_of_chunk(name, reference, 7, 300))
    with np.errstate(all="ignore"):
        f = np.power if name.startswith("pow") else FUNCTIONS[name.split("/")[0]]
        got = f(*(o.astype(np.float64) for o in operands)).astype(reference.result.name)
    assert (reference.judge(operands, got)[1] <= 1).all()
    worse = got.copy()
    k = int(np.flatnonzero(np.isfinite(got) & (got != 0))[5])
    worse.view(f"u{got.dtype.itemsize}")[k] += 4
    assert reference.judge(operands, worse)[1][k] > reference.ulp


def test_every_float32_input_is_in_one_chunk() -> None:
    chunks = [j.chunk for j in list_chunks(("exp2/float32",))]
    assert chunks == list(range(1 << (32 - exhaustive.CHUNK_BITS)))
    assert len(list_chunks(("pow/float64",))) * exhaustive.POINT_CHUNK == exhaustive.POINTS == 1_000_000
    assert len(function_names()) == 6 + 6 + len(dt.STORABLE) - 1


class Answers(Interp):
    """Gives the result of a function of the right one."""

    def __init__(self, change: Callable[[Any], tuple[Any, ...]]) -> None:
        self.change = change

    def run(self, graph: Any, inputs: Any) -> Result:
        return Result(self.change(super().run(graph, inputs).values[0]), {})


@pytest.mark.parametrize(
    ("change", "got"),
    [
        (lambda v: (v[:0],), r"float32 of shape \(0,\)"),
        (lambda v: (v[:128],), r"float32 of shape \(128,\)"),
        (lambda v: (v[0],), r"float32 of shape \(\)"),
        (lambda v: (v.astype(np.float64),), r"float64 of shape \(1024,\)"),
        (lambda v: (v.astype(np.int32),), r"int32 of shape \(1024,\)"),
        (lambda v: (v, v), "float32.*, float32"),
        (lambda v: (), "no value"),
    ],
)
@pytest.mark.parametrize("name", ["exp2/float32", "cast/float32/int8"])
def test_a_result_of_another_form_is_wrong_everywhere(
    name: str, change: Callable[[Any], tuple[Any, ...]], got: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exhaustive, "CHUNK_BITS", 10)
    monkeypatch.setattr(exhaustive, "_BLOCK", 128)
    assert exhaustive._run_and_judge_chunk(Interp(), ExhaustiveChunk(name, 254)).wrong == 0
    tally = exhaustive._run_and_judge_chunk(Answers(change), ExhaustiveChunk(name, 254))
    assert tally.wrong == tally.inputs == 1024
    assert re.search(got.replace("float32", STORAGE[F32_REFERENCES[name].result].name), tally.examples[0])


class Dying(Interp):
    """Ends its process."""

    def run(self, graph: Any, inputs: Any) -> Any:
        os._exit(3)


def test_a_run_resumes_after_a_line_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exhaustive, "POINTS", 2 * exhaustive.POINT_CHUNK)
    done = Tally("sqrt/float64", inputs=exhaustive.POINT_CHUNK, inexact=5)
    lines = [{"exhaustive": exhaustive._make_journal_header("interp")}, {"chunk": {"chunk": 0, **exhaustive.asdict(done)}}]
    (tmp_path / "progress.jsonl").write_bytes(encode_journal(lines) + b'{"chunk": 1, "na')
    seen: list[tuple[int, int]] = []
    found = run_or_resume_exhaustive_tier("interp", 1, lambda k, n: seen.append((k, n)), tmp_path, ("sqrt/float64",))
    assert seen == [(2, 2)]
    assert found["sqrt/float64"].inputs == 2 * exhaustive.POINT_CHUNK
    assert found["sqrt/float64"].wrong == 0
    assert "sqrt/float64 | 50,000 | 0 | 5 |" in render_ulp_table(found)


def test_a_run_does_not_take_over_another_backends_results(tmp_path: Path) -> None:
    header = exhaustive._make_journal_header("interp") | {"version": "another"}
    (tmp_path / "progress.jsonl").write_bytes(encode_journal([{"exhaustive": header}]))
    with pytest.raises(JournalMismatch, match=r"exhaustive\.version .*; use another --report"):
        run_or_resume_exhaustive_tier("interp", 1, None, tmp_path, ("sqrt/float64",))


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("settings", lambda m: m.setenv("UOPS_FAST_MATH", "1")),
        ("sources", lambda m: m.setattr(exhaustive, "digest_sources", lambda: "edited")),
    ],
)
def test_a_run_does_not_take_over_the_results_of_other_settings_or_sources(
    what: str, change: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exhaustive, "POINTS", 0)
    run_or_resume_exhaustive_tier("interp", 1, None, tmp_path, ("sqrt/float64",))
    change(monkeypatch)
    with pytest.raises(JournalMismatch, match=rf"exhaustive\.{what}"):
        run_or_resume_exhaustive_tier("interp", 1, None, tmp_path, ("sqrt/float64",))


def test_progress_counts_the_chunks_of_the_functions_that_are_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exhaustive, "POINTS", 2 * exhaustive.POINT_CHUNK)
    done = Tally("exp2/float64", inputs=exhaustive.POINT_CHUNK)
    lines = [
        {"exhaustive": exhaustive._make_journal_header("interp")},
        *({"chunk": {"chunk": k, **exhaustive.asdict(done)}} for k in (0, 1)),
    ]
    (tmp_path / "progress.jsonl").write_bytes(encode_journal(lines))
    seen: list[tuple[int, int]] = []
    tallies = run_or_resume_exhaustive_tier("interp", 1, lambda k, n: seen.append((k, n)), tmp_path, ("sqrt/float64",))
    assert [*tallies] == ["sqrt/float64"] and seen == [(1, 2), (2, 2)]
    assert run_or_resume_exhaustive_tier("interp", 1, None, tmp_path, ()) == {}


def test_two_runs_do_not_share_a_journal(tmp_path: Path) -> None:
    first = Journal(tmp_path / "progress.jsonl", {"exhaustive": exhaustive._make_journal_header("interp")})
    with pytest.raises(JournalInUse):
        run_or_resume_exhaustive_tier("interp", 1, None, tmp_path, ("sqrt/float64",))
    first.close()


def test_a_journal_with_lines_of_another_form_is_refused(tmp_path: Path) -> None:
    lines = [{"exhaustive": exhaustive._make_journal_header("interp")}, {"chunk": {"chunk": 0, "inputs": 3}}]
    (tmp_path / "progress.jsonl").write_bytes(encode_journal(lines))
    with pytest.raises(BadJournal, match=r"progress\.jsonl holds a malformed line"):
        run_or_resume_exhaustive_tier("interp", 1, None, tmp_path, ("sqrt/float64",))


def test_a_process_that_dies_fails_its_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    with exhaustive._ChunkJudges(f"{__name__}:Dying") as judges:
        _, tally = judges.judge_chunk_in_process(ExhaustiveChunk("sqrt/float64", 0))
    assert tally.wrong == tally.inputs
    assert "ended with status" in tally.examples[0]


def test_a_wrong_sign_of_a_tiny_result_is_wrong() -> None:
    """Both a zero and the least number of the other sign are near the exact result, and neither is allowed."""
    tiny = (np.array([-160.0], np.float32),)
    for got in (-0.0, -1e-45):
        assert F32_REFERENCES["exp2/float32"].judge(tiny, np.array([got], np.float32))[1] == np.inf
    for x in (-1500.0, -2500.0):
        is_correct, error = judge_rounding_and_ulp_errors("exp2", dt.float64, (np.array([x]),), np.array([-0.0]))
        assert not is_correct.any() and error == np.inf


def test_of_the_neighbours_of_a_tie_the_even_one_is_correctly_rounded() -> None:
    operands = (np.array([4097.0], np.float32), np.array([2.0], np.float32))
    for got, is_right in ((16785408.0, True), (16785410.0, False)):
        is_correct, error = judge_rounding_and_ulp_errors("pow", dt.float32, operands, np.array([got], np.float32))
        assert is_correct.all() == is_right and error == 0.5


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(
    ("function", "points", "results"),
    [
        ("exp2", [3.0, -1.0, 0.0, -149.0], [8.0, 0.5, 1.0, 2.0**-149]),
        ("log2", [8.0, 0.25, 1.0], [3.0, -2.0, 0.0]),
        ("sin", [0.0, -0.0], [0.0, -0.0]),
    ],
)
def test_r17_exact_points_are_exact(function: str, points: list[float], results: list[float], bits: int) -> None:
    d = np.dtype(f"f{bits // 8}")
    reference = {**F32_REFERENCES, **F64_REFERENCES}[f"{function}/float{bits}"]
    operands, right = (np.array(points, d),), np.array(results, d)
    assert (reference.judge(operands, right)[1] == 0).all()
    assert (reference.judge(operands, np.nextafter(right, d.type(np.inf)))[1] == np.inf).all()
