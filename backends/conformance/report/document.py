"""The report as data: `build_document` makes it from a run, `to_canonical_json` encodes it, `read_report` reads it back.

Two runs of the same suite on the same backend and machine give the same bytes, except for the object `time`. The published schema
is `schema.json` beside this file. Conformance (passed / required) and coverage (run / required) stay two separate numbers. A cell
that the backend cannot be asked counts in neither; the third number, `asked`, is the share of the others.
"""

from __future__ import annotations

import json
import platform
import re
import warnings
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from uops import __version__
from uops.backends.conformance.causes.blame import list_adapter_files
from uops.backends.conformance.model import CellResult, CellStatus, ConformanceCell, ConformanceLevel, Failure
from uops.backends.contract import SURFACES
from uops.compiler.prove import ledger
from uops.compiler.prove.admission import DamagedLedger
from uops.compiler.prove.verdicts import ProofStatus as Verified
from uops.spec.errors import UopsError
from uops.spec.rows.named.base import RowSubject
from uops.spec.rows.rows import hash_spec_without_executors, rows_of_subject
from uops.spec.untrusted import BadFile, Either, describe_path, find_misfit, read_json

if TYPE_CHECKING:  # a reader of reports does not load the interpreter
    from uops.backends.conformance.runner import ConformanceRun

Json = dict[str, Any]
SCHEMA_VERSION = 2
#: Versions of reports that can be read. One of version 1 has no surfaces: it asked every cell that it has.
READABLE_VERSIONS = (1, SCHEMA_VERSION)
#: What stands in place of a surface in the report of a subject that is no backend.
_OTHER_SUBJECTS = tuple(s.value for s in RowSubject if s is not RowSubject.BACKEND)
#: Name of the folder of reproducers in a report directory.
REPRODUCERS = "reproducers"
SCHEMA = Path(__file__).with_name("schema.json")


class BadReport(UopsError):
    """A file is not a report of a version that can be read."""


def build_document(
    run: ConformanceRun, exit_status_level: ConformanceLevel = ConformanceLevel.STRICT, *, started: datetime | None = None
) -> Json:
    """Build the report of `run`, whose exit status was decided at `exit_status_level`; reproducers are named, not included."""
    reproducer_paths = assign_reproducer_paths(run.reproducers)
    adapter = list_adapter_files(run.backend) if run.subject is RowSubject.BACKEND else []
    return {
        "schema_version": SCHEMA_VERSION,
        "specification": describe_specification(run.subject),
        "versions": package_versions(),
        "subject": run.subject.value,
        "backend": {"name": run.backend, "version": run.version, "surfaces": list(run.surfaces)}
        | ({"traits": list(run.traits)} if run.traits else {})
        | ({"adapter": adapter} if adapter else {}),
        "platform": describe_os_and_cpu(),
        "tier": run.tier.value,
        "rows": run.rows,
        "dialect": run.dialect.value if run.dialect else None,
        "sample": {"seed": run.sample.seed, "of": run.sample.cases} if run.sample else None,
        "schedules": describe_schedule_policy(run),
        "proofs": count_proved_rules_and_validated_kernels(run),
        "level": exit_status_level.value,
        "complete": run.complete,
        "cases": run.cases,
        "scores": {
            exit_status_level.value: compute_total_and_surface_scores(run.cells[exit_status_level].values())
            for exit_status_level in ConformanceLevel
        },
        "executed": sorted(
            {cell.row for exit_status_level in ConformanceLevel for cell, r in run.cells[exit_status_level].items() if r.run}
        ),
        "silent_rows": _list_rows_without_cells(run),
        "cells": _cells_to_json(run, reproducer_paths),
        "time": {"started": _format_utc(started), "seconds": round(run.seconds, 3)},
    }


def _list_rows_without_cells(run: ConformanceRun) -> list[str]:
    """Return the rows that judge the run's subject, match its glob, and have no cell in the suite."""
    with_cells = run.sample.rows if run.sample else {cell.row for cell in run.cells[ConformanceLevel.STRICT]}
    return [r.id for r in rows_of_subject(run.subject) if fnmatchcase(r.id, run.rows) and r.id not in with_cells]


def describe_schedule_policy(run: ConformanceRun) -> Json:
    """Describe the schedule policy, with the moves applied where a seed drew them."""
    policy = run.schedules
    details: dict[str, Json] = {
        "forced": {"seed": policy.seed, "applied": dict(sorted(run.applied.items()))},
        "search": {"beam": policy.beam},
    }
    return {"kind": policy.kind} | details.get(policy.kind, {})


def count_proved_rules_and_validated_kernels(run: ConformanceRun) -> Json:
    """Count the rules that the ledger proves, and the kernels of this run with their obligations by proof method.

    An unreadable ledger proves nothing, with a warning, since the run is not lost for it.
    """
    try:
        pages = list(ledger.read_ledger().values())
    except (UopsError, OSError) as e:
        warnings.warn(f"the report says nothing of proved rules: {e}", DamagedLedger, stacklevel=2)
        pages = []
    proved = [p for p in pages if p.status is Verified.PROVED]
    rules = {"proved": len(proved), "open": len(pages) - len(proved), "obligations": sum(len(p.entries) for p in proved)}
    counts = dict(sorted(run.validated.items()))
    return {"rules": rules, "kernels": counts.pop("kernels", 0), "obligations": counts}


def _format_utc(moment: datetime | None) -> str:
    return (moment or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="seconds")


def _cells_to_json(run: ConformanceRun, reproducer_paths: dict[str, str]) -> list[Json]:
    strict, core = run.cells[ConformanceLevel.STRICT], run.cells[ConformanceLevel.CORE]
    return [
        {
            "row": c.row,
            "dtype": c.dtype,
            "edge": c.edge,
            "surface": strict[c].surface,
            "strict": _cell_result_to_json(strict[c], reproducer_paths),
            "core": _cell_result_to_json(core[c], reproducer_paths),
        }
        for c in sorted(strict)
    ]


def _cell_result_to_json(r: CellResult, reproducer_paths: dict[str, str]) -> Json:
    return {
        "status": r.status.value,
        "elements": r.elements,
        "failed": r.failed,
        "max_ulp": r.max_ulp,
        "sets": dict(r.sets),
        "reason": r.reason,
        "failures": [_failure_to_json(f, reproducer_paths) for f in r.failures],
    } | ({"causes": dict(r.causes)} if r.causes else {})


def _failure_to_json(f: Failure, reproducer_paths: dict[str, str]) -> Json:
    return {
        "case": f.case,
        "message": f.message,
        "output": f.output,
        "element": f.element,
        "operands": list(f.operands),
        "got": f.got,
        "allowed": f.allowed,
        "reproducer": reproducer_paths.get(f.case),
    } | ({"cause": f.cause} if f.cause else {})


def assign_reproducer_paths(case_ids: Iterable[str]) -> dict[str, str]:
    """Map each case id to the path of its reproducer in the report directory, without suffix."""
    return {case: f"{REPRODUCERS}/{name}" for case, name in assign_file_names(case_ids).items()}


def assign_file_names(titles: Iterable[str]) -> dict[str, str]:
    """Map each title to a file name without suffix. The names are distinct, and safe on any file system."""
    names: dict[str, str] = {}
    used_names: set[str] = set()
    for title in sorted(titles):
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", title).strip("-.")[:120]
        name, k = stem, 1
        while name.lower() in used_names:
            k += 1
            name = f"{stem}-{k}"
        used_names.add(name.lower())
        names[title] = name
    return names


def compute_total_and_surface_scores(cells: Iterable[CellResult]) -> Json:
    """Compute the scores at one level with their counts; null where nothing was required.

    Conformance and coverage are shares of the cells that could be asked. `asked` is the share of those among all cells, and `rows`
    says of how many rows of the specification there was one. `surfaces` has the same for the cells of each surface.
    """
    results = list(cells)
    surfaces = sorted({r.surface for r in results}, key=(*SURFACES, *_OTHER_SUBJECTS).index)
    by_surface = {name: _count_and_score_cells([r for r in results if r.surface == name]) for name in surfaces}
    return _count_and_score_cells(results) | {"surfaces": by_surface}


def _count_and_score_cells(everything: list[CellResult]) -> Json:
    results = [r for r in everything if r.status is not CellStatus.NOT_ASKABLE]
    totals = Counter(r.status for r in results)
    totals[CellStatus.NOT_ASKABLE] = len(everything) - len(results)
    required, passed, ran = len(results), totals[CellStatus.PASS], sum(r.run for r in results)
    asked_rows = {r.cell.row for r in results}
    sets: Counter[str] = Counter()
    for r in results:
        sets.update(r.sets)
    return {
        "required": required,
        "passed": passed,
        "run": ran,
        "refused": sum(r.is_refusal for r in results),
        "conformance": passed / required if required else None,
        "coverage": ran / required if required else None,
        "with_traits": (passed + totals[CellStatus.BY_TRAIT]) / required if required else None,
        "asked": required / len(everything) if everything else None,
        "rows": {"asked": len(asked_rows), "not_asked": sorted({r.cell.row for r in everything} - asked_rows)},
        "totals": {s.value: totals[s] for s in CellStatus},
        "elements": sum(r.elements for r in results),
        "failed_elements": sum(r.failed for r in results),
        "sets": dict(sets),
    }


# ------------------------------------------------------------------------------------------------------------ identity


def describe_specification(subject: RowSubject = RowSubject.BACKEND) -> Json:
    """Identify the specification that cells were judged by: its rows that judge a subject, and how many judge others (R171)."""
    others = {s.value: len(rows_of_subject(s)) for s in RowSubject if s is not subject}
    return {"hash": f"sha256:{hash_spec_without_executors()}", "rows": len(rows_of_subject(subject)), "other_rows": others}


def package_versions() -> Json:
    """Return the versions of this package and its dependencies."""
    return {
        "uops": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "ml_dtypes": ml_dtypes.__version__,
    }


def describe_os_and_cpu() -> Json:
    """Describe the system and the processor, without anything that identifies the machine or its user."""
    libc = " ".join(platform.libc_ver()).strip()
    system = platform.system()
    return {"os": f"{system} ({libc})" if libc else system, "machine": platform.machine(), "cpu": _find_cpu_name()}


def _find_cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match.group(1).strip() if match else platform.processor() or platform.machine()


# ---------------------------------------------------------------------------------------------------------------- text


def to_canonical_json(doc: Json) -> str:
    """Encode a document canonically: sorted keys, a line per top-level key and per cell, no NaN."""
    lines = [f"{_dumps(key)}: {_cell_lines(doc[key]) if key == 'cells' else _dumps(doc[key])}" for key in sorted(doc)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _cell_lines(cells: list[Json]) -> str:
    return "[\n" + ",\n".join(map(_dumps, cells)) + "\n]" if cells else "[]"


def _dumps(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


#: The required form of a report: the parts that readers use; the rest may have any form.
_ANY: Json = {...: ...}  # type: ignore[dict-item]
_VERDICT = {"status": frozenset(s.value for s in CellStatus), **_ANY}
_SCORE = {"conformance": Either(float, None), "coverage": Either(float, None), **_ANY}
_BY_LEVEL = [level.value for level in ConformanceLevel]
_FORM = {
    "schema_version": int, "backend": {"name": str, "version": str, **_ANY}, "versions": {str: str}, "platform": {str: str},
    "specification": _ANY, "tier": str, "rows": str, "schedules?": _ANY, "level": frozenset(_BY_LEVEL),
    "scores": {**dict.fromkeys(_BY_LEVEL, _SCORE), **_ANY}, "subject?": frozenset(s.value for s in RowSubject),
    "dialect?": Either(str, None),
    "cells": [{"row": str, "dtype": str, "edge": str, **dict.fromkeys(_BY_LEVEL, _VERDICT), **_ANY}], **_ANY,
}  # fmt: skip


def read_report(path: str | Path) -> Json:
    """Read a report from a file, or from a directory with a `report.json`. Raises BadReport, with the file and the position."""
    file = Path(path) / "report.json" if Path(path).is_dir() else Path(path)
    name = describe_path(file)
    try:
        doc: Json = read_json(file)
    except BadFile as e:
        raise BadReport(f"{e}; it is not a report of `uops conform`") from e
    except OSError as e:
        raise BadReport(f"{name} is not a report: {e.strerror or e}") from e
    version = doc.get("schema_version") if isinstance(doc, dict) else None
    if version not in READABLE_VERSIONS or type(version) is not int:
        shown = version if isinstance(version, int) and abs(version) < 1 << 63 else type(version).__name__
        raise BadReport(f"{name} has schema version {shown}; this program reads {' and '.join(map(str, READABLE_VERSIONS))}")
    if error := find_misfit(doc, _FORM) or _describe_bad_score_or_duplicate_cell(doc):
        raise BadReport(f"{name} is not a report: {error}")
    return doc


def _describe_bad_score_or_duplicate_cell(doc: Json) -> str | None:
    """Describe the first invalid value in a document of the right form; None if there is none."""
    for level in _BY_LEVEL:
        for kind in ("conformance", "coverage"):
            if not 0 <= (doc["scores"][level][kind] or 0) <= 1:
                return f"scores.{level}.{kind}: expected a number from 0 to 1, got {doc['scores'][level][kind]}"
    seen: dict[ConformanceCell, int] = {}
    for k, entry in enumerate(doc["cells"]):
        if (first := seen.setdefault(cell_of(entry), k)) != k:
            return f"cells[{k}] is about the same as cells[{first}]"
    return None


def cell_of(entry: Json) -> ConformanceCell:
    """Return the cell of an entry of `cells`."""
    return ConformanceCell(entry["row"], entry["dtype"], entry["edge"])
