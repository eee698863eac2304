"""The report of a directory: `report.json`, and for people `index.html` and the same as text, `mutants.md`.

It has what all runs in the directory saw, whatever the last one was asked.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from uops.fuzz.campaign.report import render
from uops.fuzz.campaign.work import BATCH
from uops.fuzz.mutants.catalogue import Mutant
from uops.fuzz.mutants.hunt import Kill
from uops.fuzz.mutants.run import Result, Run, median
from uops.spec.untrusted import write_text

Json = dict[str, Any]
SCHEMA = 1
JSON, TEXT, PAGE = "report.json", "mutants.md", "index.html"
_HEAD = """# Mutants

What `uops mutants --seconds {time} --seed {seed}` saw. A mutant is a known bug that is put into a copy of the package; a
campaign hunts it for at most {time} processor seconds and ends with the first finding that is confirmed and that the package
without the mutant does not show. *Answers* counts the oracles that compare answers alone, with every rule admitted and no verifier
between passes. *Everything* counts every defence: the proof of a changed rule, then the same, then golden files, then campaigns
with the verifier and all oracles. Time is processor time from the start of the first process to the end of the batch of {batch}
cases with the finding.
"""


def document(run: Run, mutants: Sequence[Mutant]) -> Json:
    """The report as JSON, on those of the mutants that the run's journal knows. `seconds` is null where a hunt has no end."""
    counted = [m for m in mutants if not m.equivalent]
    results = sorted(run.of(counted), key=lambda r: (r.mutant.class_, r.mutant.id))
    return {
        "schema": SCHEMA,
        "seconds": run.seconds if math.isfinite(run.seconds) else None,
        "seed": run.seed,
        "catalogue": len(counted),
        "complete": run.complete,
        "score": {"everything": score([r.everything for r in results]), "answers": score([r.differential for r in results])},
        "mutants": [_row(r) for r in results],
        "not_hunted": [{"id": m.id, "class": m.class_, "breaks": m.breaks, "why": why} for m, why in run.passed_over],
        "absent": _absent(results),
    }


def score(kills: Sequence[Kill | None]) -> Json:
    """What share is killed, by whom, how soon, and by how small a program."""
    seen = [k for k in kills if k is not None]
    return {
        "hunted": len(kills),
        "killed": len(seen),
        "share": round(len(seen) / len(kills), 4) if kills else None,
        "by": dict(Counter(k.by for k in seen).most_common()),
        "seconds": median(k.seconds for k in seen),
        "cases": median(k.cases for k in seen),
        "nodes": median(k.nodes for k in seen),
    }


def _absent(results: Sequence[Result]) -> list[Json]:
    """Defences that were not there, why, and in how many hunts."""
    found = Counter((name, why) for r in results for name, why in r.absent.items())
    return [{"defence": name, "why": why, "hunts": n} for (name, why), n in sorted(found.items())]


def _row(r: Result) -> Json:
    m = r.mutant
    about = {
        "id": m.id,
        "class": m.class_,
        "file": m.edit.file,
        "breaks": m.breaks,
        "source": m.source,
        "blind": m.blind,
        "generator": r.generator,
    }
    kills = {"everything": r.everything, "answers": r.differential}
    return about | {name: k and {key: v for key, v in k._asdict().items() if key != "text"} for name, k in kills.items()}


def write(run: Run, mutants: Sequence[Mutant]) -> Json:
    """Write the files, on these mutants, and give the document."""
    doc = document(run, mutants)
    equivalent = [m for m in mutants if m.equivalent]
    write_text(run.directory / JSON, json.dumps(doc, indent=1) + "\n")
    write_text(run.directory / TEXT, markdown(doc, equivalent))
    write_text(run.directory / PAGE, page(doc, equivalent))
    return doc


def page(doc: Json, equivalent: Sequence[Mutant]) -> str:
    """The document as one page that needs nothing else."""
    classes = {name: [m for m in doc["mutants"] if m["class"] == name] for name in sorted({m["class"] for m in doc["mutants"]})}
    said = [x.replace("`", "") for x in _said(doc)]
    return render(Path(__file__).parent / "page.html.j2", doc=doc, classes=classes, equivalent=equivalent, said=said, batch=BATCH)


def markdown(doc: Json, equivalent: Sequence[Mutant]) -> str:
    """The document as text."""
    time = "inf" if doc["seconds"] is None else f"{doc['seconds']:g}"
    parts = [_HEAD.format(**doc, time=time, batch=BATCH), _scores(doc)]
    if doc["not_hunted"]:
        rows = [(m["id"], m["breaks"], m["why"]) for m in doc["not_hunted"]]
        heads = ("Mutant", "What it breaks", "Why")
        parts.append("## Not hunted\n\nThe same command hunts these again. They are in no share.\n\n" + _table(heads, rows))
    parts += [_classes(doc["mutants"]), _all(doc["mutants"])]
    if equivalent:
        rows = [(m.id, m.breaks, m.equivalent) for m in equivalent]
        parts.append("## Not counted\n\nThese change no meaning.\n\n" + _table(("Mutant", "What it does", "Why"), rows))
    return "\n".join(parts)


def _scores(doc: Json) -> str:
    heads = ("Defence", "Killed", "Share", "Median seconds", "Median cases", "Median nodes", "By")
    rows = []
    for name, s in doc["score"].items():
        by = ", ".join(f"{who} {n}" for who, n in s["by"].items())
        share = "" if s["share"] is None else f"{100 * s['share']:.1f}%"
        rows.append((name, f"{s['killed']} of {s['hunted']}", share, *map(_number, (s["seconds"], s["cases"], s["nodes"])), by))
    return f"{_table(heads, rows)}\n{' '.join(_said(doc))}\n"


def _said(doc: Json) -> Iterator[str]:
    """What the scores are of, in sentences."""
    many, whole = len(doc["mutants"]), doc["catalogue"]
    yield f"The catalogue has {whole} mutants that change a meaning; {many or 'none'} of them {_were(many)} hunted so far."
    if blind := sum(m["blind"] for m in doc["mutants"]):
        yield f"{blind} of these {_were(blind)} written before their author had read an oracle or a generator of programs."
    versions = sorted(Counter(m["generator"] for m in doc["mutants"] if m["generator"] is not None).items())
    if versions:
        drawn = ", ".join(f"version {v} for {_mutants(n)}" for v, n in versions)
        yield f"The generator of the programs was {drawn}."
    for a in doc["absent"]:
        yield f"The defence `{a['defence']}` was not there for {_mutants(a['hunts'])}: {a['why']}."


def _were(n: int) -> str:
    return "was" if n == 1 else "were"


def _mutants(n: int) -> str:
    return f"{n} mutant" if n == 1 else f"{n} mutants"


def _classes(mutants: Sequence[Json]) -> str:
    heads = ("Class", "Mutants", "Everything", "Answers", "Median seconds", "Median nodes", "Answers by")
    rows = []
    for name in sorted({m["class"] for m in mutants}):
        mine = [m for m in mutants if m["class"] == name]
        seen = [m["answers"] for m in mine if m["answers"]]
        by = Counter(k["by"] for k in seen).most_common()
        everything = sum(m["everything"] is not None for m in mine)
        medians = (_number(median(k[what] for k in seen)) for what in ("seconds", "nodes"))
        rows.append((name, len(mine), everything, len(seen), *medians, ", ".join(f"{who} {n}" for who, n in by)))
    return "## By class\n\n" + _table(heads, rows)


def _all(mutants: Sequence[Json]) -> str:
    heads = ("Mutant", "What it breaks", "Everything", "Answers", "Seconds", "Cases", "Nodes")
    rows = [(m["id"], m["breaks"], _by(m["everything"]), _by(m["answers"]), *_figures(m["answers"])) for m in mutants]
    return "## All\n\n" + _table(heads, rows)


def _by(kill: Json | None) -> str:
    return "**survives**" if kill is None else str(kill["by"])


def _figures(kill: Json | None) -> tuple[str, ...]:
    return ("", "", "") if kill is None else tuple(_number(kill[what]) for what in ("seconds", "cases", "nodes"))


def _number(x: float | None) -> str:
    return "" if x is None else f"{x:g}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    lines += [f"| {' | '.join(str(x).replace('|', chr(92) + '|') for x in row)} |" for row in rows]
    return "\n".join(lines) + "\n"
