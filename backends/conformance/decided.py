"""What became of the cases of a run, as lines of a journal: a run that was interrupted takes them from there.

`Decided` has all that a run's outcome takes from one case, so that it does not matter which part of a run decided it. A journal is
of one backend, tier, choice of schedules and state of the sources (`heading`); one of another raises OtherCampaign.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from uops.backends.conformance.judge import Verdict
from uops.backends.conformance.model import Case, Failure, Level, Schedules, Segment, Tier
from uops.backends.testing.journal import Journal, tree
from uops.backends.worker.frames import printable_texts
from uops.compiler.config import Config

Json = dict[str, Any]


@dataclass(slots=True)
class Decided:
    """`parts` has the verdicts of the case, or of its classes alone: the part's id, the level, the verdicts of its segments.
    `applied` and `validated` are what its outcomes counted, `seconds` how long the run was at it."""

    case: str
    parts: list[tuple[str, Level, list[Verdict]]] = field(default_factory=list)
    applied: Mapping[str, int] = field(default_factory=dict)
    validated: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def to_json(self) -> Json:
        parts = [(part, level.value, [asdict(v) for v in verdicts]) for part, level, verdicts in self.parts]
        return {
            "case": self.case, "parts": parts, "applied": dict(self.applied), "validated": dict(self.validated),
            "seconds": self.seconds,
        }  # fmt: skip

    @classmethod
    def of(cls, line: Json) -> Decided:
        """From `to_json`; its texts may be older than what makes them safe."""
        line = printable_texts(line)
        parts = [(part, Level(level), [_verdict(v) for v in verdicts]) for part, level, verdicts in line["parts"]]
        return cls(**line | {"parts": parts})


def _verdict(v: Json) -> Verdict:
    failures = [Failure(**f | {"operands": tuple(f["operands"])}) for f in v["failures"]]
    return Verdict(**v | {"segment": Segment(**v["segment"]), "failures": failures})


def heading(backend: str, version: str, tier: Tier, schedules: Schedules) -> Json:
    """What decides the verdicts of a run, beside its rows."""
    settings = Config.read({**os.environ, **schedules.environment})
    return {
        "conform": backend, "version": version, "tier": tier.value, "schedules": asdict(schedules), "settings": asdict(settings),
        "sources": tree(),
    }  # fmt: skip


def known(journal: Journal, wanted: Iterable[Case]) -> dict[str, Decided]:
    """What a journal has about the wanted cases, by their ids."""
    ids = {c.id for c in wanted}
    with journal.refuse_other_forms():
        found = [Decided.of(line) for line in journal.of("decided") if line["case"] in ids]
    return {d.case: d for d in found}
