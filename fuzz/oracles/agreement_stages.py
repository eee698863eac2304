"""Bisection of every program of the conformance suite, with its progress on disk: do all stages of the compiler agree?

Takes: a backend that is a target of the compiler, a tier, a glob of rows. Gives: a `BisectionAnswer` per program: `agree`, the
finding of `uops.fuzz.bisect.bisect`, or the reason of a refusal. With a journal, programs that have an answer in it are not run
again, so an interrupted run continues. A journal holds answers about one target and one state of the sources. Spec: Lowering
Pipeline.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from uops.backends.conformance.model import ConformanceCase
from uops.backends.testing.journal import Journal, digest_sources
from uops.compiler.config import Config
from uops.compiler.target import Target
from uops.fuzz.bisect.bisect import Execute, bisect
from uops.fuzz.generate.draw import SeededDraw
from uops.spec.errors import CompileError, Unsupported
from uops.spec.ir.node import UOp
from uops.spec.ir.text import show

#: Values of `BisectionAnswer.status`.
AGREE, FINDING, REFUSED = "agree", "finding", "refused"


class BisectionAnswer(NamedTuple):
    """The outcome of one program. `digest` identifies it among the programs of its case; `finding` is that of
    `Finding.to_json`; `message` is its text, or the reason of a refusal.
    """

    case: str
    digest: str
    status: str
    message: str = ""
    finding: dict[str, Any] | None = None


def sample_programs_per_family(candidates: Iterable[ConformanceCase], per_family: int, seed: int) -> list[ConformanceCase]:
    """Draw at most `per_family` programs of every family, which is a row and a kind of case."""
    families: dict[tuple[str, str], list[ConformanceCase]] = {}
    for c in candidates:
        families.setdefault((c.row, c.name.split("-")[0]), []).append(c)
    draw = SeededDraw(seed)
    return [c for family in families.values() for c in _draw_without_replacement(draw, family, per_family)]


def _draw_without_replacement(draw: SeededDraw, family: list[ConformanceCase], count: int) -> list[ConformanceCase]:
    pool = list(family)
    return [pool.pop(draw.integer(0, len(pool) - 1)) for _ in range(min(count, len(pool)))]


def bisect_programs_with_journal(
    candidates: Iterable[ConformanceCase],
    target: Target,
    journal: Path | None = None,
    make_execute: Callable[[UOp], Execute] | None = None,
) -> Iterator[BisectionAnswer]:
    """Yield the answers, in order; each one is in the journal before it is yielded.

    `make_execute` says how to run the machine code of a graph. Raises OtherCampaign if the journal is of another target or of
    other sources, and InUse.
    """
    with nullcontext() if journal is None else closing(Journal(journal, _make_journal_heading(target))) as answers:
        earlier = {} if answers is None else read_answers_by_case_and_digest(answers)
        for c in candidates:
            answer = earlier.get((c.id, digest(c))) or bisect_program(c, target, make_execute)
            if answers is not None and (c.id, answer.digest) not in earlier:
                answers.add({"answer": answer._asdict()})
            yield answer


def _make_journal_heading(target: Target) -> dict[str, Any]:
    return {
        "stages": target.name,
        "target": target.key,
        "sources": digest_sources(),
        "settings": asdict(Config.from_environment(os.environ)),
    }


def bisect_program(case: ConformanceCase, target: Target, make_execute: Callable[[UOp], Execute] | None = None) -> BisectionAnswer:
    """Bisect one program."""
    try:
        finding = bisect(case.graph, case.inputs, target, execute=make_execute(case.graph) if make_execute else None)
    except (CompileError, Unsupported) as e:
        return BisectionAnswer(case.id, digest(case), REFUSED, str(e))
    if finding is None:
        return BisectionAnswer(case.id, digest(case), AGREE)
    return BisectionAnswer(case.id, digest(case), FINDING, str(finding), finding.to_json())


def digest(case: ConformanceCase) -> str:
    """Return a digest of the program's text: two tiers may have different programs of one name."""
    return hashlib.sha256(show(case.graph).encode()).hexdigest()[:16]


def read_answers_by_case_and_digest(journal: Journal) -> dict[tuple[str, str], BisectionAnswer]:
    """Read the answers of a journal, by case and digest."""
    with journal.refuse_malformed_lines():
        answers = [BisectionAnswer(**line) for line in journal.entries_under("answer")]
    return {(a.case, a.digest): a for a in answers}
