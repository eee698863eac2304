"""`uops prove`: prove the rewrite rules."""

from __future__ import annotations

import fnmatch
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uops.cli.common import echo, json_option, make_console_that_escapes_controls, print_json

if TYPE_CHECKING:
    from uops.compiler.prove.campaign import ProofReport
    from uops.compiler.prove.ledger import LedgerPage
    from uops.compiler.prove.verdicts import ProofVerdict
    from uops.compiler.rewrite.rule import Rule

#: Largest number of open obligations printed.
_LISTED = 20
#: The theme of the lemmas that proofs of rules rest on.
LEMMAS = "lemmas"


@click.command(short_help="Prove the rewrite rules and the laws of OptOps.")
@click.option(
    "--rules", "-r", "globs", multiple=True, metavar="GLOB", help="Only rules, or themes, whose name matches; lemmas is a theme."
)
@click.option("--jobs", "-j", type=click.IntRange(1), default=2, show_default=True, help="Number of solver processes.")
@click.option("--cold", is_flag=True, help="Prove everything again, ignoring the ledger.")
@click.option(
    "--seeds", type=click.IntRange(1), default=1, show_default=True, help="Number of solver seeds; their verdicts must agree."
)
@click.option("--ledger", "path", type=click.Path(dir_okay=False), help="Use this ledger instead of the package's.")
@click.option("--write/--no-write", default=True, help="Write proofs to the ledger, or check it.")
@json_option()
@click.pass_context
def prove(
    ctx: click.Context, globs: tuple[str, ...], jobs: int, cold: bool, seeds: int, path: str | None, write: bool, as_json: bool
) -> None:
    """Prove the rewrite rules for all dtypes, and OptOps for all sizes.

    What the ledger holds under the same queries is not asked again. Exit status 1 unless every rule is proved. With --no-write
    the ledger is checked: exit status 1, too, if it is stale. It is stale if it lacks a page, or has one of another rule, with
    other verdicts or with other queries. With --cold, all verdicts are new ones.
    """
    from uops.compiler.prove import ledger
    from uops.compiler.prove.campaign import find_rules_with_missing_or_stale_page, prove_rules

    chosen, lemmas = _select_rules_and_lemmas(globs)
    ledger_path = Path(path) if path else ledger.PATH
    pages = ledger.read_ledger(ledger_path)
    proved = {} if cold else ledger.index_proved_entries(pages)
    report = prove_rules(
        chosen,
        jobs=jobs,
        proved_entries_by_key=proved,
        seed_count=seeds,
        extra_cast_lemmas=lemmas,
        progress=_make_obligation_counter_for_terminal(as_json),
    )
    replayed = {v.obligation.name: _replay_counterexample(v, chosen) for v in report.verdicts if v.values}
    if write:
        old_pages = pages if globs else {}
        ledger.write_ledger({**old_pages, **report.pages}.values(), ledger_path)
    stale = [] if write else find_rules_with_missing_or_stale_page(pages, report, chosen)
    surplus = [] if write or globs else [name for name in pages if name not in report.pages]
    if as_json:
        print_json(_report_to_json(report, replayed) | ({} if write else {"not_as_in_ledger": stale + surplus}))
    else:
        _print_report(report, replayed)
        for name in stale:
            echo(f"{ledger_path}: the page of {name} is not what was proved; write it with `uops prove --rules {name}`")
        for name in surplus:
            echo(f"{ledger_path}: the page of {name} is of no rule; write the ledger anew with `uops prove`")
    ctx.exit(0 if report.ok and not stale and not surplus else 1)


def _select_rules_and_lemmas(globs_or_empty_for_all: tuple[str, ...]) -> tuple[list[Rule], tuple[str, ...]]:
    """Return the rules and lemmas that match the globs; a usage error where a glob matches nothing."""
    from uops.compiler.prove.campaign import collect_rules_to_prove_by_theme
    from uops.compiler.prove.verdicts import list_exact_cast_lemmas
    from uops.spec.suggest import format_did_you_mean

    if not globs_or_empty_for_all:
        return [rule for rules in collect_rules_to_prove_by_theme().values() for rule in rules], ()
    rules = {rule: (rule.name, theme) for theme, rules in collect_rules_to_prove_by_theme().items() for rule in rules}
    names = {name for rule_names in rules.values() for name in rule_names} | {LEMMAS}
    for g in globs_or_empty_for_all:
        if not fnmatch.filter(names, g):
            raise click.UsageError(f"no rule or theme matches {g!r}{format_did_you_mean(g.strip('*'), names)}")
    matching = {name for g in globs_or_empty_for_all for name in names if fnmatch.fnmatchcase(name, g)}
    return [
        rule for rule, rule_names in rules.items() if matching.intersection(rule_names)
    ], list_exact_cast_lemmas() if LEMMAS in matching else ()


def _make_obligation_counter_for_terminal(silent: bool) -> Any:
    import sys

    def ignore_progress(done: int, count: int, verdict: ProofVerdict) -> None:
        pass

    def print_progress(done: int, count: int, verdict: ProofVerdict) -> None:
        if done == count or done % 25 == 0:
            echo(f"{done}/{count} obligations", nl=done == count, err=True, over=True)

    return ignore_progress if silent or not sys.stderr.isatty() else print_progress


def _replay_counterexample(v: ProofVerdict, rules: list[Rule]) -> str:
    """Replay a counterexample in the interpreter, and describe the result."""
    from uops.compiler.prove.counterexample import RuleCounterexample
    from uops.fuzz.bisect.replay import replay_counterexample

    rule = next((r for r in rules if r.name == v.obligation.rule), None)
    if rule is None:
        return "not replayed: no rule has this name"
    return replay_counterexample(RuleCounterexample.from_refuted_verdict(rule, v)).words


# ---------------------------------------------------------------------------------------------------------------- output


def _report_to_json(report: ProofReport, replay_texts: dict[str, str]) -> dict[str, Any]:
    from uops.compiler.prove.solver.solver import solver_version

    return {
        "ok": report.ok,
        "solver": solver_version(),
        "rules": {p.rule: p.status.value for p in report.pages.values()},
        "obligations": {s.value: n for s, n in sorted(report.counts.items(), key=lambda item: item[0].value)},
        "from_ledger": report.ledger_hits,
        "unstable": [{"obligation": name, "seed": seed, "status": s.value} for name, seed, s in report.unstable_verdicts],
        "open": [
            {
                "rule": p.rule,
                "at": e.typing,
                "status": e.status.value,
                "why": e.by,
                "replayed": replay_texts.get(f"{p.rule}/{e.typing}"),
            }
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


def _print_report(report: ProofReport, replay_texts: dict[str, str]) -> None:
    from rich import box
    from rich.table import Table

    from uops.cli.texts import Text

    out = make_console_that_escapes_controls()
    themes = _group_pages_by_theme(report)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("Theme", "Rules", "Obligations", "Proved", "Open"):
        table.add_column(name, justify="left" if name == "Theme" else "right")
    for theme, pages in themes.items():
        count = sum(len(p.entries) for p in pages)
        good = sum(e.status.value == "proved" for p in pages for e in p.entries)
        table.add_row(theme, str(len(pages)), str(count), str(good), str(count - good), style="" if good == count else "red")
    out.print(table)
    counterexamples = {v.obligation.name: v.values for v in report.verdicts if v.values}
    open_entries = [(p, e) for p in report.pages.values() for e in p.entries if e.status.value != "proved"]
    for p, e in open_entries[:_LISTED]:
        name = f"{p.rule}/{e.typing}"
        values = ", ".join(f"{k} = {v}" for k, v in counterexamples.get(name, ()))
        out.print(Text(f"{e.status.value} {name}: {values or e.by}", style="red"), soft_wrap=True)
        if name in replay_texts:
            out.print(Text(f"    {replay_texts[name]}"), soft_wrap=True)
    if len(open_entries) > _LISTED:
        out.print(f"and {len(open_entries) - _LISTED} more")
    for name, seed, status in report.unstable_verdicts:
        out.print(Text(f"unstable {name}: {status.value} with seed {seed}", style="red"), soft_wrap=True)
    total = sum(report.counts.values())
    out.print(f"{len(report.pages)} rules, {total} obligations, {report.ledger_hits} of them from the ledger", style="dim")


def _group_pages_by_theme(report: ProofReport) -> dict[str, list[LedgerPage]]:
    from uops.compiler.prove.campaign import collect_rules_to_prove_by_theme

    theme_of = {rule.name: theme for theme, rules in collect_rules_to_prove_by_theme().items() for rule in rules}
    pages_by_theme: dict[str, list[LedgerPage]] = {}
    for p in report.pages.values():
        pages_by_theme.setdefault(theme_of.get(p.rule, LEMMAS), []).append(p)
    return pages_by_theme
