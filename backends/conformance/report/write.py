"""The writer of a report directory: `report.json`, `junit.xml`, `index.html`, and program and inputs of each failing case in
`reproducers/`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uops.backends import npz
from uops.backends.conformance.model import ConformanceCase, ConformanceLevel
from uops.backends.conformance.report.diff import diff_reports
from uops.backends.conformance.report.document import REPRODUCERS, assign_reproducer_paths, build_document, to_canonical_json
from uops.backends.conformance.report.junit import render_junit
from uops.backends.conformance.report.page import render_page
from uops.backends.conformance.report.texts import collect_spec_texts
from uops.spec.ir.text import show
from uops.spec.untrusted import write_text

if TYPE_CHECKING:  # as in `document`
    from uops.backends.conformance.runner import ConformanceRun

Json = dict[str, Any]


def write_report(
    run: ConformanceRun,
    directory: str | Path,
    level: ConformanceLevel = ConformanceLevel.STRICT,
    *,
    started: datetime | None = None,
    newly_asked_baseline: Json | None = None,
) -> Json:
    """Write all files, each atomically, and return the document. The page also says what the baseline did not ask.

    Reproducers of an earlier report in the same directory are removed at the end. Raises OSError, which names the file.
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    doc = build_document(run, level, started=started)
    names = assign_reproducer_paths(run.reproducers)
    programs = _write_reproducers_and_get_texts(run, names, folder)
    write_text(folder / "report.json", to_canonical_json(doc))
    write_text(folder / "junit.xml", render_junit(doc))
    rows = {cell["row"] for cell in doc["cells"]}
    newly_asked = diff_reports(newly_asked_baseline, doc, level).newly_asked if newly_asked_baseline is not None else []
    write_text(folder / "index.html", render_page(doc, collect_spec_texts(rows), programs, newly_asked))
    for old in [f for kind in ("*.uops", "*.npz") for f in (folder / REPRODUCERS).glob(kind)]:
        if f"{REPRODUCERS}/{old.stem}" not in programs:
            old.unlink()
    return doc


def _write_reproducers_and_get_texts(run: ConformanceRun, names: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Write program and inputs of every failing case, and return the programs by name."""
    programs = {name: reproducer_text(run.reproducers[case], name, run.backend) for case, name in names.items()}
    if programs:
        (folder / REPRODUCERS).mkdir(exist_ok=True)
    for case, name in names.items():
        write_text(folder / f"{name}.uops", programs[name])
        npz.save(folder / f"{name}.npz", run.reproducers[case].inputs)
    return programs


def reproducer_command(name: str, backend: str) -> str:
    """Return the command that runs a reproducer, from inside the report directory."""
    return f"uops run {name}.uops --inputs {name}.npz --backend {backend}"


def reproducer_text(case: ConformanceCase, name: str, backend: str) -> str:
    """Return the text of a reproducer: its case, its command, its inputs in words, and its graph with types."""
    head = [f"; {case.id}: {', '.join(dict.fromkeys(s.edge for s in case.segments))}", f"; {reproducer_command(name, backend)}"]
    return "\n".join([*head, *render_input_types_as_comment_lines(case.inputs), show(case.graph, types=True)])


def render_input_types_as_comment_lines(inputs: Mapping[str, Any]) -> list[str]:
    """Return a comment line per input: dtype, shape, and the value of a number."""
    lines = []
    for key, value in sorted(inputs.items()):
        if hasattr(value, "dtype"):
            lines.append(f"; {key}: {value.dtype} {tuple(value.shape)}")
        else:
            lines.append(f"; {key}: {value}")
    return lines
