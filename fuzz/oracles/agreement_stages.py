"""Do all stages of the compiler agree? Every program of the conformance suite, bisected, with its progress on disk.

Takes: a backend that is a target of the compiler, a tier, a glob of rows. Gives: an `Answer` per program: `agree`, the finding of
`uops.fuzz.bisect.bisect`, or why the compiler refuses it. With a journal, what it holds already is not run again, so that a run
that was interrupted goes on; it holds answers about one target and one state of the sources. Spec: Lowering Pipeline.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from uops.backends.conformance.cases import cases
from uops.backends.conformance.model import Case, Tier
from uops.backends.testing.journal import Journal, tree
from uops.compiler.config import Config
from uops.compiler.target import Target
from uops.fuzz.bisect.bisect import Execute, bisect
from uops.fuzz.generate.draw import SeededDraw
from uops.spec.errors import CompileError, Unsupported
from uops.spec.ir.node import UOp
from uops.spec.ir.text import show

AGREE, FINDING, REFUSED = "agree", "finding", "refused"


class Answer(NamedTuple):
    """What became of one program, which `digest` tells from others of its case; `finding` is that of `Finding.to_json`, `message`
    its text or the reason of a refusal."""

    case: str
    digest: str
    status: str
    message: str = ""
    finding: dict[str, Any] | None = None


def programs(tier: Tier, rows: str = "*") -> list[Case]:
    """The programs of a tier; those of `full` are those of both."""
    tiers = (Tier.SMOKE, Tier.FULL) if tier is Tier.FULL else (tier,)
    found = {(c.id, c.graph): c for t in tiers for c in cases(t, rows)}
    return list(found.values())


def sample(every: Iterable[Case], each: int, seed: int) -> list[Case]:
    """At most `each` programs of every family - a row, and a kind of case - drawn by a seed."""
    families: dict[tuple[str, str], list[Case]] = {}
    for c in every:
        families.setdefault((c.row, c.name.split("-")[0]), []).append(c)
    draw = SeededDraw(seed)
    return [c for found in families.values() for c in _drawn(draw, found, each)]


def _drawn(draw: SeededDraw, found: list[Case], each: int) -> list[Case]:
    left = list(found)
    return [left.pop(draw.integer(0, len(left) - 1)) for _ in range(min(each, len(left)))]


def agreement(
    every: Iterable[Case], target: Target, journal: Path | None = None, execute: Callable[[UOp], Execute] | None = None
) -> Iterator[Answer]:
    """The answers, in order; each is in the journal before it is given. `execute` says how to run the machine code of a graph.
    Raises OtherCampaign where the journal is of another target or of other sources, and InUse."""
    with nullcontext() if journal is None else closing(Journal(journal, _heading(target))) as kept:
        known = {} if kept is None else answers(kept)
        for c in every:
            answer = known.get((c.id, digest(c))) or answer_of(c, target, execute)
            if kept is not None and (c.id, answer.digest) not in known:
                kept.add({"answer": answer._asdict()})
            yield answer


def _heading(target: Target) -> dict[str, Any]:
    return {"stages": target.name, "target": target.key, "sources": tree(), "settings": asdict(Config.read(os.environ))}


def answer_of(case: Case, target: Target, execute: Callable[[UOp], Execute] | None = None) -> Answer:
    """Bisect one program."""
    try:
        found = bisect(case.graph, case.inputs, target, execute=execute(case.graph) if execute else None)
    except (CompileError, Unsupported) as e:
        return Answer(case.id, digest(case), REFUSED, str(e))
    if found is None:
        return Answer(case.id, digest(case), AGREE)
    return Answer(case.id, digest(case), FINDING, str(found), found.to_json())


def digest(case: Case) -> str:
    """The program by its text: two tiers may have different ones under one name."""
    return hashlib.sha256(show(case.graph).encode()).hexdigest()[:16]


def answers(journal: Journal) -> dict[tuple[str, str], Answer]:
    """The answers of a journal by case and digest."""
    with journal.refuse_other_forms():
        found = [Answer(**line) for line in journal.of("answer")]
    return {(a.case, a.digest): a for a in found}
