"""A report directory: `report.json`, `junit.xml`, `index.html`, and in `reproducers/` program and inputs of every failing case."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uops.backends import npz
from uops.backends.conformance.model import Case, Level
from uops.backends.conformance.report.document import canonical, document, reproducer_names
from uops.backends.conformance.report.junit import junit
from uops.backends.conformance.report.page import page
from uops.backends.conformance.report.texts import texts
from uops.spec.text import show

if TYPE_CHECKING:
    from uops.backends.conformance.runner import Run

Json = dict[str, Any]


def write(run: Run, directory: str | Path, level: Level = Level.STRICT, *, started: datetime | None = None) -> Json:
    """Write all files and give the document. Reproducers of an earlier report in the same place are taken away."""
    place = Path(directory)
    place.mkdir(parents=True, exist_ok=True)
    doc = document(run, level, started=started)
    programs = _reproducers(run, place)
    (place / "report.json").write_text(canonical(doc), encoding="utf-8")
    (place / "junit.xml").write_text(junit(doc), encoding="utf-8")
    rows = {cell["row"] for cell in doc["cells"]}
    (place / "index.html").write_text(page(doc, texts(rows), programs), encoding="utf-8")
    return doc


def _reproducers(run: Run, place: Path) -> dict[str, str]:
    """Write program and inputs of every failing case; the programs by name."""
    folder = place / "reproducers"
    for old in [*folder.glob("*.uops"), *folder.glob("*.npz")]:
        old.unlink()
    programs = {name: program(run.reproducers[case], name, run.backend) for case, name in reproducer_names(run.reproducers).items()}
    if programs:
        folder.mkdir(exist_ok=True)
    for case, name in reproducer_names(run.reproducers).items():
        (place / f"{name}.uops").write_text(programs[name], encoding="utf-8")
        npz.save(place / f"{name}.npz", run.reproducers[case].inputs)
    return programs


def command(name: str, backend: str) -> str:
    """What runs a reproducer, from inside the report directory."""
    return f"uops run {name}.uops --inputs {name}.npz --backend {backend}"


def program(case: Case, name: str, backend: str) -> str:
    """The text of a reproducer: what it is, how to run it, the graph with its types, and its inputs in words."""
    head = [f"; {case.id}: {', '.join(dict.fromkeys(s.edge for s in case.segments))}", f"; {command(name, backend)}"]
    return "\n".join([*head, *inputs_in_words(case.inputs), show(case.graph, types=True)])


def inputs_in_words(inputs: Mapping[str, Any]) -> list[str]:
    """A comment line per input: dtype, shape, and its value where it is one number."""
    found = []
    for key, value in sorted(inputs.items()):
        if hasattr(value, "dtype"):
            found.append(f"; {key}: {value.dtype} {tuple(value.shape)}")
        else:
            found.append(f"; {key}: {value}")
    return found
