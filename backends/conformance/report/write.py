"""A report directory: `report.json`, `junit.xml`, `index.html`, and in `reproducers/` program and inputs of every failing case."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uops.backends import npz
from uops.backends.conformance.model import Case, Level
from uops.backends.conformance.report.document import REPRODUCERS, canonical, document, reproducer_names
from uops.backends.conformance.report.junit import junit
from uops.backends.conformance.report.page import page
from uops.backends.conformance.report.texts import texts
from uops.spec.ir.text import show
from uops.spec.untrusted import write_text

if TYPE_CHECKING:
    from uops.backends.conformance.runner import Run

Json = dict[str, Any]


def write(run: Run, directory: str | Path, level: Level = Level.STRICT, *, started: datetime | None = None) -> Json:
    """Write all files and give the document; each is replaced whole. Reproducers of an earlier report in the same place are taken
    away at the end. Raises OSError, which names the file."""
    place = Path(directory)
    place.mkdir(parents=True, exist_ok=True)
    doc = document(run, level, started=started)
    names = reproducer_names(run.reproducers)
    programs = _reproducers(run, names, place)
    write_text(place / "report.json", canonical(doc))
    write_text(place / "junit.xml", junit(doc))
    rows = {cell["row"] for cell in doc["cells"]}
    write_text(place / "index.html", page(doc, texts(rows), programs))
    for old in [f for kind in ("*.uops", "*.npz") for f in (place / REPRODUCERS).glob(kind)]:
        if f"{REPRODUCERS}/{old.stem}" not in programs:
            old.unlink()
    return doc


def _reproducers(run: Run, names: Mapping[str, str], place: Path) -> dict[str, str]:
    """Write program and inputs of every failing case; the programs by name."""
    programs = {name: program(run.reproducers[case], name, run.backend) for case, name in names.items()}
    if programs:
        (place / REPRODUCERS).mkdir(exist_ok=True)
    for case, name in names.items():
        write_text(place / f"{name}.uops", programs[name])
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
