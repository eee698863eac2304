"""The report of a run: `report.json`, and `mutants.md` for people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from uops.fuzz.mutants.catalogue import Mutant
from uops.fuzz.mutants.hunt import Kill
from uops.fuzz.mutants.run import Result, Run, median
from uops.fuzz.work import BATCH

Json = dict[str, Any]
SCHEMA = 1
JSON, TEXT = "report.json", "mutants.md"
_HEAD = """# Mutants

What `uops mutants --seconds {seconds:g} --seed {seed}` saw. A mutant is a known bug that is put into a copy of the package; a
campaign hunts it for at most {seconds:g} processor seconds and ends with the first finding that is confirmed and that the package
without the mutant does not show. *Answers* counts the oracles that compare answers alone, with every rule admitted and no verifier
between passes. *Everything* counts every defence: the proof of a changed rule, then the same, then golden files, then campaigns
with the verifier and all oracles. Time is processor time from the start of the first process to the end of the batch of {batch}
cases with the finding.
"""


def document(run: Run) -> Json:
    """The report as JSON."""
    results = sorted(run.results, key=lambda r: (r.mutant.class_, r.mutant.id))
    return {
        "schema": SCHEMA,
        "seconds": run.seconds,
        "seed": run.seed,
        "catalogue": len(run.mutants),
        "complete": run.complete,
        "score": {"everything": score([r.everything for r in results]), "answers": score([r.differential for r in results])},
        "mutants": [_row(r) for r in results],
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


def write(run: Run, equivalent: Sequence[Mutant]) -> Json:
    """Write both files and give the document."""
    doc = document(run)
    (run.directory / JSON).write_text(json.dumps(doc, indent=1) + "\n", encoding="utf-8")
    (run.directory / TEXT).write_text(markdown(doc, equivalent), encoding="utf-8")
    return doc


def markdown(doc: Json, equivalent: Sequence[Mutant]) -> str:
    """The document as text."""
    parts = [_HEAD.format(**doc, batch=BATCH), _scores(doc), _classes(doc["mutants"]), _all(doc["mutants"])]
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
    blind = sum(m["blind"] for m in doc["mutants"])
    many, whole = len(doc["mutants"]), doc["catalogue"]
    said = f"{many} of the {whole} mutants that change a meaning were hunted; {blind} of these were written before their author had"
    versions = Counter(m["generator"] for m in doc["mutants"] if m["generator"] is not None)
    drawn = ", ".join(f"{n} with version {v}" for v, n in sorted(versions.items()))
    by_whom = f"{said} read an oracle or a generator." + (f" Of the generator, {drawn}." if drawn else "")
    return f"{_table(heads, rows)}\n{by_whom}\n"


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
