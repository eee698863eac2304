"""The report of a directory of hunts: `report.json`, and for people `index.html` and `mutants.md`.

It covers all runs in the directory, not only the last one.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from uops.fuzz.campaign.report import render_template
from uops.fuzz.campaign.work import BATCH
from uops.fuzz.mutants.catalogue import Mutant
from uops.fuzz.mutants.hunt import TRYING_A_KIND, Kill
from uops.fuzz.mutants.run import MutantResult, MutantRun, median_of_known
from uops.spec.untrusted import write_text

Json = dict[str, Any]
#: Version of the document.
SCHEMA = 1
#: Names of the files.
JSON, TEXT, PAGE = "report.json", "mutants.md", "index.html"
#: Head of the text; JSON keys stand in braces.
_HEAD = """# Mutants

This page shows the results of `uops mutants --seconds {time} --seed {seed}`. A mutant is a known bug, planted in a copy of the
package. A campaign hunts it for at most {time} processor seconds. The mutant is *killed* by the first confirmed finding that the
package without the mutant does not have. In the first half of its time, a campaign draws only the kinds of programs whose cases run
the changed lines; if that does not tell kinds apart, each has the same time. It has tried each kind before, for {trying:g} % of
its time.

- *Answers* counts only oracles that compare results. Every rule is admitted, and no verifier runs between passes.
- *Everything* counts every defence, in this order: the proof of a changed rule, the oracles of *answers*, golden files, and
  campaigns with the verifier and all oracles.

Seconds are processor time, from the start of the first process to the end of the batch of {batch} cases with the finding.
"""


def build_document(run: MutantRun, mutants: Sequence[Mutant]) -> Json:
    """Return the report as JSON, on those of the mutants that the run's journal knows. `seconds` is null if hunts have no
    limit.
    """
    counted = [m for m in mutants if not m.equivalent]
    results = sorted(run.read_results_from_journal(counted), key=lambda r: (r.mutant.class_, r.mutant.id))
    return {
        "schema": SCHEMA,
        "seconds": run.seconds if math.isfinite(run.seconds) else None,
        "seed": run.seed,
        "catalogue": len(counted),
        "complete": run.complete,
        "score": {
            "everything": summarize_kills([r.everything for r in results]),
            "answers": summarize_kills([r.differential for r in results]),
        },
        "mutants": [_result_to_json(r) for r in results],
        "not_hunted": [{"id": m.id, "class": m.class_, "breaks": m.breaks, "why": why} for m, why in run.passed_over],
        "absent": _unavailable_defences(results),
    }


def summarize_kills(kills: Sequence[Kill | None]) -> Json:
    """Return the share of mutants that is killed, by whom, how soon, and by how small a program."""
    killed = [k for k in kills if k is not None]
    return {
        "hunted": len(kills),
        "killed": len(killed),
        "share": round(len(killed) / len(kills), 4) if kills else None,
        "by": dict(Counter(k.by for k in killed).most_common()),
        "seconds": median_of_known(k.seconds for k in killed),
        "cases": median_of_known(k.cases for k in killed),
        "nodes": median_of_known(k.nodes for k in killed),
    }


def _unavailable_defences(results: Sequence[MutantResult]) -> list[Json]:
    """List the defences that were not available, the reasons, and the numbers of hunts."""
    counts = Counter((name, reason) for r in results for name, reason in r.absent.items())
    return [{"defence": name, "why": reason, "hunts": n} for (name, reason), n in sorted(counts.items())]


def _result_to_json(result: MutantResult) -> Json:
    m = result.mutant
    about = {
        "id": m.id,
        "class": m.class_,
        "file": m.edit.file,
        "breaks": m.breaks,
        "source": m.source,
        "blind": m.blind,
        "generator": result.generator,
    }
    kills = {"everything": result.everything, "answers": result.differential}
    return about | {name: k and {key: v for key, v in k._asdict().items() if key != "text"} for name, k in kills.items()}


def write_report(run: MutantRun, mutants: Sequence[Mutant]) -> Json:
    """Write the files on these mutants, and return the document."""
    doc = build_document(run, mutants)
    equivalent = [m for m in mutants if m.equivalent]
    write_text(run.directory / JSON, json.dumps(doc, indent=1) + "\n")
    write_text(run.directory / TEXT, render_markdown(doc, equivalent))
    write_text(run.directory / PAGE, render_html_page(doc, equivalent))
    return doc


def render_html_page(doc: Json, equivalent: Sequence[Mutant]) -> str:
    """Render the document as one self-contained page."""
    classes = {name: [m for m in doc["mutants"] if m["class"] == name] for name in sorted({m["class"] for m in doc["mutants"]})}
    sentences = [x.replace("`", "") for x in _describe_scope_of_scores(doc)]
    return render_template(
        Path(__file__).parent / "page.html.j2", doc=doc, classes=classes, equivalent=equivalent, said=sentences, batch=BATCH
    )


def render_markdown(doc: Json, equivalent: Sequence[Mutant]) -> str:
    """Render the document as text."""
    time = "inf" if doc["seconds"] is None else f"{doc['seconds']:g}"
    parts = [_HEAD.format(**doc, time=time, batch=BATCH, trying=100 * TRYING_A_KIND), _render_score_table_and_scope(doc)]
    if doc["not_hunted"]:
        rows = [(m["id"], m["breaks"], m["why"]) for m in doc["not_hunted"]]
        heads = ("Mutant", "What it breaks", "Why")
        parts.append("## Not hunted\n\nThe same command hunts these again. They count in no share.\n\n" + _table(heads, rows))
    parts += [_kills_per_class_table(doc["mutants"]), _kills_per_mutant_table(doc["mutants"])]
    if equivalent:
        rows = [(m.id, m.breaks, m.equivalent) for m in equivalent]
        parts.append(
            "## Not counted\n\nThese changes do not change the meaning of any program.\n\n"
            + _table(("Mutant", "What it does", "Why"), rows)
        )
    return "\n".join(parts)


def _render_score_table_and_scope(doc: Json) -> str:
    heads = ("Defence", "Killed", "Share", "Median seconds", "Median cases", "Median nodes", "Judged by")
    rows = []
    for name, s in doc["score"].items():
        by = ", ".join(f"{who} {n}" for who, n in s["by"].items())
        share = "" if s["share"] is None else f"{100 * s['share']:.1f}%"
        rows.append(
            (name, f"{s['killed']} of {s['hunted']}", share, *map(_format_number, (s["seconds"], s["cases"], s["nodes"])), by)
        )
    return f"{_table(heads, rows)}\n{' '.join(_describe_scope_of_scores(doc))}\n"


def _describe_scope_of_scores(doc: Json) -> Iterator[str]:
    """Yield sentences about what the scores cover."""
    hunted, total = len(doc["mutants"]), doc["catalogue"]
    of_them = f"{hunted or 'none'} of them {_was_or_were(hunted)} hunted"
    yield f"The catalogue has {total} mutants that change a meaning; {of_them}."
    if blind := sum(m["blind"] for m in doc["mutants"]):
        yield f"{blind} of these {_was_or_were(blind)} written before their author had read any oracle or program generator."
    versions = sorted(Counter(m["generator"] for m in doc["mutants"] if m["generator"] is not None).items())
    if versions:
        text = ", ".join(f"{v} for {_count_mutants(n)}" for v, n in versions)
        yield f"Version of the program generator: {text}."
    for defence in doc["absent"]:
        yield f"The defence `{defence['defence']}` was unavailable for {_count_mutants(defence['hunts'])}: {defence['why']}."


def _was_or_were(n: int) -> str:
    return "was" if n == 1 else "were"


def _count_mutants(n: int) -> str:
    return f"{n} mutant" if n == 1 else f"{n} mutants"


def _kills_per_class_table(mutants: Sequence[Json]) -> str:
    heads = ("Class", "Mutants", "Everything", "Answers", "Median seconds", "Median nodes", "Answers by")
    rows = []
    for name in sorted({m["class"] for m in mutants}):
        in_class = [m for m in mutants if m["class"] == name]
        kills = [m["answers"] for m in in_class if m["answers"]]
        killers = Counter(k["by"] for k in kills).most_common()
        everything = sum(m["everything"] is not None for m in in_class)
        medians = (_format_number(median_of_known(k[field] for k in kills)) for field in ("seconds", "nodes"))
        rows.append((name, len(in_class), everything, len(kills), *medians, ", ".join(f"{who} {n}" for who, n in killers)))
    return "## By class\n\n" + _table(heads, rows)


def _kills_per_mutant_table(mutants: Sequence[Json]) -> str:
    heads = ("Mutant", "What it breaks", "Everything", "Answers", "Seconds", "Cases", "Nodes")
    rows = [
        (m["id"], m["breaks"], _killer_name(m["everything"]), _killer_name(m["answers"]), *_kill_figures(m["answers"]))
        for m in mutants
    ]
    return "## All\n\n" + _table(heads, rows)


def _killer_name(kill: Json | None) -> str:
    return "**survives**" if kill is None else str(kill["by"])


def _kill_figures(kill: Json | None) -> tuple[str, ...]:
    return ("", "", "") if kill is None else tuple(_format_number(kill[field]) for field in ("seconds", "cases", "nodes"))


def _format_number(x: float | None) -> str:
    return "" if x is None else f"{x:g}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    lines += [f"| {' | '.join(str(x).replace('|', chr(92) + '|') for x in row)} |" for row in rows]
    return "\n".join(lines) + "\n"
