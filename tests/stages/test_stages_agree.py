"""All stages of the compiler agree on the programs of the conformance suite: a sample of every family here, all of them with
`tox -e stages`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uops.backends import registry
from uops.backends.conformance.cases import compiled
from uops.backends.conformance.cases.compiled import list_programs_every_target_compiles
from uops.backends.conformance.model import ConformanceCase, ConformanceTier
from uops.backends.contract import CompilerBackend
from uops.cli.commands.bisect import open_runner_in_backend_worker
from uops.compiler.target import Target
from uops.fuzz.bisect.bisect import bisect
from uops.fuzz.oracles import agreement_stages
from uops.fuzz.oracles.agreement_stages import (
    AGREE,
    FINDING,
    REFUSED,
    BisectionAnswer,
    bisect_programs_with_journal,
    digest,
    sample_programs_per_family,
)
from uops.spec.errors import CompileError
from uops.spec.ir import build as b
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

#: Which sample; another number draws other dtypes.
SEED = int(os.environ.get("UOPS_STAGES_SEED", "1"))
SUITE = list_programs_every_target_compiles(ConformanceTier.SMOKE)
SAMPLE = sample_programs_per_family(SUITE, 1, SEED)
PARTS = 8


def target(name: str = "llvm") -> Target:
    backend = registry.create_backend(name)
    assert isinstance(backend, CompilerBackend)
    return backend.target


def small(case: ConformanceCase) -> bool:
    return all(np.size(v) <= 24 for v in case.inputs.values()) and all(s.stop - s.start <= 24 for s in case.segments)


@pytest.mark.parametrize("part", range(PARTS))
def test_the_stages_of_a_program_of_every_family_agree(part: int) -> None:
    with open_runner_in_backend_worker("llvm") as execute:  # a crash of machine code is then a finding that names the program
        answers = list(bisect_programs_with_journal(SAMPLE[part::PARTS], target(), make_execute=execute))
    assert [a.message for a in answers if a.status == FINDING] == []
    assert [a.case for a in answers if a.status == REFUSED] == []


def test_they_agree_for_a_target_without_vectors() -> None:
    answers = list(bisect_programs_with_journal(SAMPLE[::12], target("c")))
    assert [a for a in answers if a.status != AGREE] == []


def test_every_schedule_of_every_stage_gives_the_same() -> None:
    chosen = [c for c in SAMPLE if small(c)][::9]
    assert len(chosen) >= 5
    for c in chosen:
        assert bisect(c.graph, c.inputs, target(), extra_orders=20) is None, c.id


def test_the_sample_has_every_family() -> None:
    family = lambda c: (c.row, c.name.split("-")[0])  # noqa: E731
    assert {family(c) for c in SAMPLE} == {family(c) for c in SUITE}
    assert {c.row for c in SAMPLE} == {c.row for c in SUITE}
    assert sample_programs_per_family(SUITE, 1, SEED) == SAMPLE != sample_programs_per_family(SUITE, 1, SEED + 1)


def test_the_full_tier_has_the_programs_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where they have one name."""
    small, other = SUITE[0], replace(SUITE[0], graph=b.contiguous(SUITE[0].graph))
    found = {ConformanceTier.SMOKE: [small, SUITE[1]], ConformanceTier.FULL: [other, SUITE[1], SUITE[2]]}
    monkeypatch.setattr(compiled, "generate_cases", lambda tier, rows: found[tier])
    assert list_programs_every_target_compiles(ConformanceTier.FULL) == [small, SUITE[1], other, SUITE[2]]
    assert digest(small) != digest(other)


# What is told


Wrong = Callable[[Callable[..., Any]], None]


@pytest.fixture
def answers_with(monkeypatch: pytest.MonkeyPatch) -> Wrong:
    def put(f: Callable[..., Any]) -> None:
        monkeypatch.setattr(agreement_stages, "bisect", f)

    return put


def refuse(*a: object, **k: object) -> None:
    raise CompileError("no")


def test_a_wrong_program_and_a_refused_one_are_told(answers_with: Wrong, tmp_path: Path) -> None:
    case = next(c for c in SUITE if c.row == "Elementwise/Add" and c.dtype.name == "int32")
    answers_with(refuse)
    assert list(bisect_programs_with_journal([case], target())) == [BisectionAnswer(case.id, digest(case), REFUSED, "no")]

    def wrong(graph: UOp, inputs: Any, t: Target, **options: Any) -> Any:
        return bisect(graph, inputs, t, execute=lambda p, i: {0: np.zeros(1, np.int32)})

    answers_with(wrong)
    (answer,) = bisect_programs_with_journal([case], target(), tmp_path / "journal")
    assert (answer.status, answer.finding and answer.finding["pass"]) == (FINDING, "backend")
    answers_with(refuse)
    assert list(bisect_programs_with_journal([case], target(), tmp_path / "journal")) == [answer]


def test_a_sample_reaches_what_the_compiler_does() -> None:
    """A guard: reductions, several kernels' worth of stores, and small floats are in it."""
    ops = {u.op for c in SAMPLE for u in toposort(c.graph)}
    assert {Op.REDUCE, Op.STORE, Op.CALL, Op.FUNCTION, Op.CAST, Op.EXP2} <= ops
    assert {c.dtype.name for c in SAMPLE} >= {"float32", "int64", "bool", "bfloat16"}
