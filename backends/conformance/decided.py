"""Case records: the lines of a conformance journal, from which an interrupted run resumes.

A `CaseRecord` has everything that a run takes from one case, so it does not matter which part of a run judged it. A journal belongs
to one backend, tier, schedule policy and state of the sources (`journal_heading`); any other raises JournalMismatch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from uops.backends.conformance.judge import SegmentVerdict
from uops.backends.conformance.model import ConformanceCase, ConformanceLevel, ConformanceTier, Failure, SchedulePolicy, Segment
from uops.backends.testing.journal import Journal, digest_sources
from uops.backends.worker.frames import make_texts_printable
from uops.compiler.config import Config

Json = dict[str, Any]


@dataclass(slots=True)
class CaseRecord:
    """The judgement of a case. `parts` has the verdicts of the case, or of each of its segments alone: the part's id, the level,
    the verdicts.

    `applied` and `validated` are the counts of its outcomes; `seconds` is the time that the run spent on it.
    """

    case: str
    parts: list[tuple[str, ConformanceLevel, list[SegmentVerdict]]] = field(default_factory=list)
    applied: Mapping[str, int] = field(default_factory=dict)
    validated: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def to_json(self) -> Json:
        """Return the record as JSON."""
        parts = [(part, level.value, [asdict(v) for v in verdicts]) for part, level, verdicts in self.parts]
        return {
            "case": self.case, "parts": parts, "applied": dict(self.applied), "validated": dict(self.validated),
            "seconds": self.seconds,
        }  # fmt: skip

    @classmethod
    def from_json(cls, line: Json) -> CaseRecord:
        """Read the JSON of `to_json`; its texts are made printable again, since they may be older than that rule."""
        line = make_texts_printable(line)
        parts = [
            (part, ConformanceLevel(level), [_verdict_from_json(v) for v in verdicts]) for part, level, verdicts in line["parts"]
        ]
        return cls(**line | {"parts": parts})


def _verdict_from_json(v: Json) -> SegmentVerdict:
    failures = [Failure(**f | {"operands": tuple(f["operands"])}) for f in v["failures"]]
    return SegmentVerdict(**v | {"segment": Segment(**v["segment"]), "failures": failures})


def journal_heading(backend: str, version: str, tier: ConformanceTier, schedules: SchedulePolicy) -> Json:
    """Return everything but the rows that decides the verdicts of a run."""
    settings = Config.from_environment({**os.environ, **schedules.environment})
    return {
        "conform": backend, "version": version, "tier": tier.value, "schedules": asdict(schedules), "settings": asdict(settings),
        "sources": digest_sources(),
    }  # fmt: skip


def read_case_records(journal: Journal, wanted: Iterable[ConformanceCase]) -> dict[str, CaseRecord]:
    """Return a journal's records of the wanted cases, by case id."""
    ids = {c.id for c in wanted}
    with journal.refuse_malformed_lines():
        records = [CaseRecord.from_json(line) for line in journal.entries_under("decided") if line["case"] in ids]
    return {d.case: d for d in records}
