"""`bench/random_expressions.py` finds what a wrong rule does, and its chunks are functions of seed and number."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import random_expressions as bench

from uops.compiler.rewrite.pattern import ALL_INTS, var
from uops.compiler.rewrite.rule import Rule

x, y = var("x", ALL_INTS), var("y", ALL_INTS)


def test_a_chunk_is_a_function_of_its_seed_and_finds_nothing_wrong() -> None:
    found = bench.check_chunk(3, 2, 40)
    assert not found["wrong"]
    assert found == bench.check_chunk(3, 2, 40)
    assert found["changed"] >= 28
    assert all(bench.count_ops(bench.generate_expression(3, k)[0]) >= bench.LEAST_OPS for k in range(2000, 2040))


def test_a_wrong_rule_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "LEFTS", [bench.LeftSideGenerator(Rule("sub-swapped", x - y, y - x))])
    assert bench.check_chunk(0, 0, 20)["wrong"]


def test_a_run_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "CHUNK", 5)
    journal = tmp_path / "journal"
    first = list(bench.run_chunks(10, 0, 1, journal))
    journal.write_text(journal.read_text().splitlines()[0] + "\n")  # stopped after one chunk
    again = list(bench.run_chunks(10, 0, 1, journal))
    assert [{k: f[k] for k in first[0]} for f in again] == first
