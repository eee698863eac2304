"""The report as data: `document` makes it from a run, `canonical` spells it, `read` takes it back.

Two runs of the same suite on the same backend and machine give the same bytes, but for the object `time`. `schema.json` beside this
file is the published schema. Conformance (passed / required) and coverage (run / required) are two numbers and stay two.
"""

from __future__ import annotations

import json
import platform
import re
import warnings
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uops.backends.conformance.model import Cell, CellResult, Failure, Level, Status
from uops.compiler.prove import ledger
from uops.compiler.prove.admission import DamagedLedger
from uops.compiler.prove.verdicts import Status as Verified
from uops.spec.errors import UopsError
from uops.spec.untrusted import BadFile, Either, describe_path, misfit, read_json

if TYPE_CHECKING:
    from uops.backends.conformance.runner import Run

Json = dict[str, Any]
SCHEMA_VERSION = 1
#: Where reproducers are, in the directory of a report.
REPRODUCERS = "reproducers"
SCHEMA = Path(__file__).with_name("schema.json")


class BadReport(UopsError):
    """A file is no report of this schema version."""


def document(run: Run, level: Level = Level.STRICT, *, started: datetime | None = None) -> Json:
    """The report of `run`, whose exit status was decided at `level`; reproducers are named, not included."""
    names = reproducer_names(run.reproducers)
    return {
        "schema_version": SCHEMA_VERSION,
        "specification": specification(),
        "versions": versions(),
        "backend": {"name": run.backend, "version": run.version},
        "platform": describe_platform(),
        "tier": run.tier.value,
        "rows": run.rows,
        "schedules": schedules(run),
        "proofs": proofs(run),
        "level": level.value,
        "complete": run.complete,
        "cases": run.cases,
        "scores": {level.value: score(run.cells[level].values()) for level in Level},
        "executed": sorted({cell.row for level in Level for cell, r in run.cells[level].items() if r.run}),
        "cells": _cells(run, names),
        "time": {"started": _utc(started), "seconds": round(run.seconds, 3)},
    }


def schedules(run: Run) -> Json:
    """Who chose the schedules, and what was applied where a seed drew them."""
    s = run.schedules
    own: dict[str, Json] = {"forced": {"seed": s.seed, "applied": dict(sorted(run.applied.items()))}, "search": {"beam": s.beam}}
    return {"kind": s.kind} | own.get(s.kind, {})


def proofs(run: Run) -> Json:
    """What the ledger proves of the compiler's rules, and what was proved of the kernels of this run: how many there are, and the
    obligations by what decided them. A ledger that cannot be read proves nothing, with a warning: the run is not lost for it."""
    try:
        pages = list(ledger.read().values())
    except (UopsError, OSError) as e:
        warnings.warn(f"the report says nothing of proved rules: {e}", DamagedLedger, stacklevel=2)
        pages = []
    proved = [p for p in pages if p.status is Verified.PROVED]
    rules = {"proved": len(proved), "open": len(pages) - len(proved), "obligations": sum(len(p.entries) for p in proved)}
    counts = dict(sorted(run.validated.items()))
    return {"rules": rules, "kernels": counts.pop("kernels", 0), "obligations": counts}


def _utc(moment: datetime | None) -> str:
    return (moment or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="seconds")


def _cells(run: Run, names: dict[str, str]) -> list[Json]:
    strict, core = run.cells[Level.STRICT], run.cells[Level.CORE]
    return [
        {"row": c.row, "dtype": c.dtype, "edge": c.edge, "strict": _verdict(strict[c], names), "core": _verdict(core[c], names)}
        for c in sorted(strict)
    ]


def _verdict(r: CellResult, names: dict[str, str]) -> Json:
    return {
        "status": r.status.value,
        "elements": r.elements,
        "failed": r.failed,
        "max_ulp": r.max_ulp,
        "sets": dict(r.sets),
        "reason": r.reason,
        "failures": [_failure(f, names) for f in r.failures],
    }


def _failure(f: Failure, names: dict[str, str]) -> Json:
    return {
        "case": f.case,
        "message": f.message,
        "output": f.output,
        "element": f.element,
        "operands": list(f.operands),
        "got": f.got,
        "allowed": f.allowed,
        "reproducer": names.get(f.case),
    }


def reproducer_names(cases: Iterable[str]) -> dict[str, str]:
    """Case id -> the path of its reproducer inside the report directory, without suffix; distinct and safe on any file system."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for case in sorted(cases):
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", case).strip("-.")[:120]
        name, k = stem, 1
        while name.lower() in taken:
            k += 1
            name = f"{stem}-{k}"
        taken.add(name.lower())
        found[case] = f"{REPRODUCERS}/{name}"
    return found


def score(cells: Iterable[CellResult]) -> Json:
    """The two scores at one level, and what they are made of; null where nothing was required."""
    results = list(cells)
    totals = Counter(r.status for r in results)
    required, passed, ran = len(results), totals[Status.PASS], sum(r.run for r in results)
    sets: Counter[str] = Counter()
    for r in results:
        sets.update(r.sets)
    return {
        "required": required,
        "passed": passed,
        "run": ran,
        "refused": sum(r.refused for r in results),
        "conformance": passed / required if required else None,
        "coverage": ran / required if required else None,
        "totals": {s.value: totals[s] for s in Status},
        "elements": sum(r.elements for r in results),
        "failed_elements": sum(r.failed for r in results),
        "sets": dict(sets),
    }


# ------------------------------------------------------------------------------------------------------------ identity


def specification() -> Json:
    """Which specification was judged against."""
    from uops.spec.rows.rows import ROWS, spec_hash

    return {"hash": f"sha256:{spec_hash()}", "rows": len(ROWS)}


def versions() -> Json:
    import ml_dtypes
    import numpy as np

    from uops import __version__

    return {
        "uops": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "ml_dtypes": ml_dtypes.__version__,
    }


def describe_platform() -> Json:
    """System and processor; nothing that names the machine or its user."""
    libc = " ".join(platform.libc_ver()).strip()
    system = platform.system()
    return {"os": f"{system} ({libc})" if libc else system, "machine": platform.machine(), "cpu": _cpu()}


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or platform.machine()


# ---------------------------------------------------------------------------------------------------------------- text


def canonical(doc: Json) -> str:
    """The one spelling of a document: sorted keys, a line per top-level key and per cell, no NaN."""
    lines = [f"{_dumps(key)}: {_cell_lines(doc[key]) if key == 'cells' else _dumps(doc[key])}" for key in sorted(doc)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _cell_lines(cells: list[Json]) -> str:
    return "[\n" + ",\n".join(map(_dumps, cells)) + "\n]" if cells else "[]"


def _dumps(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


#: What a reader of cells and scores takes from a report; the rest may be of any form.
_ANY: Json = {...: ...}  # type: ignore[dict-item]
_VERDICT = {"status": frozenset(s.value for s in Status), **_ANY}
_SCORE = {"conformance": Either(float, None), "coverage": Either(float, None), **_ANY}
_BY_LEVEL = [level.value for level in Level]
_FORM = {
    "schema_version": int, "backend": {"name": str, "version": str, **_ANY}, "versions": {str: str}, "platform": {str: str},
    "specification": _ANY, "tier": str, "rows": str, "schedules?": _ANY, "level": frozenset(_BY_LEVEL),
    "scores": {**dict.fromkeys(_BY_LEVEL, _SCORE), **_ANY},
    "cells": [{"row": str, "dtype": str, "edge": str, **dict.fromkeys(_BY_LEVEL, _VERDICT), **_ANY}], **_ANY,
}  # fmt: skip


def read(path: str | Path) -> Json:
    """A report from a file, or from the directory that holds `report.json`. Raises BadReport, with the file and the place."""
    file = Path(path) / "report.json" if Path(path).is_dir() else Path(path)
    name = describe_path(file)
    try:
        doc: Json = read_json(file)
    except BadFile as e:
        raise BadReport(f"{e}; it is no report of `uops conform`") from e
    except OSError as e:
        raise BadReport(f"{name} is no report: {e.strerror or e}") from e
    version = doc.get("schema_version") if isinstance(doc, dict) else None
    if version != SCHEMA_VERSION or isinstance(version, bool):
        shown = version if isinstance(version, int) and abs(version) < 1 << 63 else type(version).__name__
        raise BadReport(f"{name} has schema version {shown}; this program reads {SCHEMA_VERSION}")
    if wrong := misfit(doc, _FORM) or _fault(doc):
        raise BadReport(f"{name} is no report: {wrong}")
    return doc


def _fault(doc: Json) -> str | None:
    """What is wrong with values of the right form."""
    for level in _BY_LEVEL:
        for kind in ("conformance", "coverage"):
            if not 0 <= (doc["scores"][level][kind] or 0) <= 1:
                return f"scores.{level}.{kind}: expected a number from 0 to 1, got {doc['scores'][level][kind]}"
    seen: dict[Cell, int] = {}
    for k, entry in enumerate(doc["cells"]):
        if (first := seen.setdefault(cell_of(entry), k)) != k:
            return f"cells[{k}] is about the same as cells[{first}]"
    return None


def cell_of(entry: Json) -> Cell:
    """The cell that an entry of `cells` is about."""
    return Cell(entry["row"], entry["dtype"], entry["edge"])
