"""`uops prove`: proofs of the rewrite rules."""

from __future__ import annotations

import fnmatch
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uops.cli.common import console, echo, json_option, print_json

if TYPE_CHECKING:
    from uops.compiler.prove.campaign import Report
    from uops.compiler.prove.ledger import Page
    from uops.compiler.prove.verdicts import Verdict
    from uops.compiler.rewrite.rule import Rule

_LISTED = 20
#: The theme of what the proofs of rules rest on.
LEMMAS = "lemmas"


@click.command(short_help="Prove the rewrite rules and the laws of OptOps.")
@click.option(
    "--rules", "-r", "globs", multiple=True, metavar="GLOB", help="Only rules, or themes, whose name matches; lemmas is a theme."
)
@click.option("--jobs", "-j", type=click.IntRange(1), default=2, show_default=True, help="Solver processes side by side.")
@click.option("--cold", is_flag=True, help="Prove everything anew, whatever the ledger holds.")
@click.option(
    "--seeds", type=click.IntRange(1), default=1, show_default=True, help="Ask with this many solver seeds; verdicts must agree."
)
@click.option("--ledger", "path", type=click.Path(dir_okay=False), help="Another ledger than the package's own.")
@click.option("--write/--no-write", default=True, help="Whether to write what was proved into the ledger.")
@json_option()
@click.pass_context
def prove(
    ctx: click.Context, globs: tuple[str, ...], jobs: int, cold: bool, seeds: int, path: str | None, write: bool, as_json: bool
) -> None:
    """Prove the rewrite rules for all dtypes, and OptOps for all sizes.

    What the ledger holds under the same queries is not asked again. Exit status 1 unless every rule is proved.
    """
    from uops.compiler.prove import ledger
    from uops.compiler.prove.campaign import campaign

    chosen, lemmas = _chosen(globs)
    where = Path(path) if path else ledger.PATH
    pages = ledger.read(where)
    known = {} if cold else ledger.proved(pages)
    report = campaign(chosen, jobs=jobs, known=known, seeds=seeds, lemmas=lemmas, progress=_progress(as_json))
    replayed = {v.obligation.name: _replayed(v, chosen) for v in report.verdicts if v.values}
    if write:
        kept = pages if globs else {}
        ledger.write({**kept, **report.pages}.values(), where)
    if as_json:
        print_json(_json(report, replayed))
    else:
        _print(report, replayed)
    ctx.exit(0 if report.ok else 1)


def _chosen(globs: tuple[str, ...]) -> tuple[list[Rule], tuple[str, ...]]:
    """The rules and the lemmas that match; a usage error where a glob matches nothing."""
    from uops.compiler.prove.campaign import themes
    from uops.compiler.prove.verdicts import lemmas
    from uops.spec.suggest import suggest_names

    if not globs:
        return [rule for rules in themes().values() for rule in rules], ()
    rules = {rule: (rule.name, theme) for theme, rules in themes().items() for rule in rules}
    names = {name for found in rules.values() for name in found} | {LEMMAS}
    for g in globs:
        if not fnmatch.filter(names, g):
            raise click.UsageError(f"no rule or theme matches {g!r}{suggest_names(g.strip('*'), names)}")
    matching = {name for g in globs for name in names if fnmatch.fnmatchcase(name, g)}
    return [rule for rule, found in rules.items() if matching.intersection(found)], lemmas() if LEMMAS in matching else ()


def _progress(silent: bool) -> Any:
    import sys

    def nothing(done: int, count: int, verdict: Verdict) -> None:
        pass

    def line(done: int, count: int, verdict: Verdict) -> None:
        if done == count or done % 25 == 0:
            echo(f"{done}/{count} obligations", nl=done == count, err=True, over=True)

    return nothing if silent or not sys.stderr.isatty() else line


def _replayed(v: Verdict, rules: list[Rule]) -> str:
    """What the interpreter says of a counterexample."""
    from uops.compiler.prove.counterexample import Counterexample
    from uops.fuzz.bisect.replay import replay

    rule = next((r for r in rules if r.name == v.obligation.rule), None)
    if rule is None:
        return "not replayed: no rule has this name"
    return replay(Counterexample.of(rule, v)).words


# ---------------------------------------------------------------------------------------------------------------- output


def _json(report: Report, replayed: dict[str, str]) -> dict[str, Any]:
    from uops.compiler.prove.solver.solver import version

    return {
        "ok": report.ok,
        "solver": version(),
        "rules": {p.rule: p.status.value for p in report.pages.values()},
        "obligations": {s.value: n for s, n in sorted(report.counts.items(), key=lambda item: item[0].value)},
        "from_ledger": report.taken,
        "unstable": [{"obligation": name, "seed": seed, "status": s.value} for name, seed, s in report.unstable],
        "open": [
            {"rule": p.rule, "at": e.at, "status": e.status.value, "why": e.by, "replayed": replayed.get(f"{p.rule}/{e.at}")}
            for p in report.pages.values()
            for e in p.entries
            if e.status.value != "proved"
        ],
        "counterexamples": {
            v.obligation.name: {name: str(x) if isinstance(x, Fraction) else x for name, x in v.values}
            for v in report.verdicts
            if v.values
        },
    }


def _print(report: Report, replayed: dict[str, str]) -> None:
    from rich import box
    from rich.table import Table

    from uops.cli.texts import Text

    out = console()
    themes = _by_theme(report)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("Theme", "Rules", "Obligations", "Proved", "Open"):
        table.add_column(name, justify="left" if name == "Theme" else "right")
    for theme, pages in themes.items():
        count = sum(len(p.entries) for p in pages)
        good = sum(e.status.value == "proved" for p in pages for e in p.entries)
        table.add_row(theme, str(len(pages)), str(count), str(good), str(count - good), style="" if good == count else "red")
    out.print(table)
    counterexamples = {v.obligation.name: v.values for v in report.verdicts if v.values}
    shown = [(p, e) for p in report.pages.values() for e in p.entries if e.status.value != "proved"]
    for p, e in shown[:_LISTED]:
        name = f"{p.rule}/{e.at}"
        values = ", ".join(f"{k} = {v}" for k, v in counterexamples.get(name, ()))
        out.print(Text(f"{e.status.value} {name}: {values or e.by}", style="red"), soft_wrap=True)
        if name in replayed:
            out.print(Text(f"    {replayed[name]}"), soft_wrap=True)
    if len(shown) > _LISTED:
        out.print(f"and {len(shown) - _LISTED} more")
    for name, seed, status in report.unstable:
        out.print(Text(f"unstable {name}: {status.value} with seed {seed}", style="red"), soft_wrap=True)
    total = sum(report.counts.values())
    out.print(f"{len(report.pages)} rules, {total} obligations, {report.taken} of them from the ledger", style="dim")


def _by_theme(report: Report) -> dict[str, list[Page]]:
    from uops.compiler.prove.campaign import themes

    theme_of = {rule.name: theme for theme, rules in themes().items() for rule in rules}
    found: dict[str, list[Page]] = {}
    for p in report.pages.values():
        found.setdefault(theme_of.get(p.rule, LEMMAS), []).append(p)
    return found
