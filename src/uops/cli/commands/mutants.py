"""`uops mutants`: what share of known bugs the defences of this package see."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uops.cli.commands.conform import unwritable
from uops.cli.common import a_time, console, json_option, print_json, to_reader
from uops.spec.untrusted import describe_path

if TYPE_CHECKING:
    from uops.fuzz.mutants.run import Run

REPORT = "mutants-report"
SECONDS = 300.0
JOBS = min(2, os.cpu_count() or 1)
#: Exit statuses beside 0 and 1.
NOT_HUNTED, INTERRUPTED = 2, 130


@click.command(short_help="Plant known bugs and see what finds them.")
@click.option(
    "--seconds", type=click.FloatRange(0, min_open=True), callback=a_time, default=SECONDS, show_default=True,
    help="Time for one hunt.",
)  # fmt: skip
@click.option("--jobs", "-j", type=click.IntRange(1), default=JOBS, show_default=True, help="Mutants hunted at a time.")
@click.option("--seed", type=int, default=0, show_default=True, help="Decides every case.")
@click.option("--only", default="*", metavar="GLOB", help="Only mutants whose id or class matches.")
@click.option("--report", type=click.Path(file_okay=False), default=REPORT, show_default=True, metavar="DIR", help="Where it goes.")
@click.option("--list", "listing", is_flag=True, help="Print the catalogue, and do nothing.")
@json_option()
@click.pass_context
def mutants(
    ctx: click.Context, seconds: float, jobs: int, seed: int, only: str, report: str, listing: bool, as_json: bool
) -> None:  # fmt: skip
    """Put known bugs into copies of this package, and see who finds them.

    One at a time. Seconds are processor time. A run goes on from what the report directory holds, if that has the same
    settings, and the report has all mutants that were hunted there. Exit status 1 if a mutant survives, 2 if one could not be
    hunted.
    """
    from uops.fuzz.mutants.catalogue import catalogue
    from uops.fuzz.mutants.report import write
    from uops.fuzz.mutants.run import Run

    found = catalogue(only)
    if not found:
        raise click.BadParameter(f"no mutant matches {only!r}", param_hint="--only")
    if listing:
        _list(found, as_json)
        ctx.exit(0)
    if why := unwritable(Path(report)):
        raise click.BadParameter(f"no report can be written to {describe_path(report)}: {why}", param_hint="--report")
    run = Run(found, Path(report), seconds=seconds, jobs=jobs, seed=seed)
    with _progress(run) as advance:
        run.run(advance)
    doc = write(run, catalogue())
    with to_reader():
        print_json(doc) if as_json else _show(doc, Path(report))
    survivors = any(r.everything is None for r in run.results)
    ctx.exit(INTERRUPTED if not run.complete else 1 if survivors else NOT_HUNTED if run.passed_over else 0)


@contextmanager
def _progress(run: Run) -> Iterator[Callable[[Run], None]]:
    """How far it is, on standard error, on a terminal only."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    out = console(stderr=True)
    columns = (TextColumn("mutants"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[survive]}"))
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task("", total=len(run.mutants), survive="")

        def advance(run: Run) -> None:
            done = run.results
            survive = sum(r.everything is None for r in done)
            bar.update(
                task, completed=len(done) + len(run.passed_over), survive=f"[bold red]{survive} survive[/]" if survive else ""
            )

        yield advance


def _show(doc: dict[str, Any], report: Path) -> None:
    from rich import box
    from rich.table import Table

    from uops.cli.texts import Text

    out = console()
    if not doc["complete"]:
        out.print(Text("interrupted: the same command goes on from here", "bold yellow"))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("Defence", "Killed", "Hunted", "Seconds", "Nodes", "By"):
        table.add_column(title, justify="left" if title in ("Defence", "By") else "right")
    for name, s in doc["score"].items():
        by = ", ".join(f"{who} {n}" for who, n in s["by"].items())
        table.add_row(name, *(str("" if s[k] is None else s[k]) for k in ("killed", "hunted", "seconds", "nodes")), by)
    out.print(table)
    for m in doc["mutants"]:
        if m["answers"] is None:
            seen = m["everything"]["by"] if m["everything"] else "nobody"
            out.print(Text.assemble((m["id"], "bold"), f"  {m['breaks']}: seen by {seen}"))
    for m in doc["not_hunted"]:
        out.print(Text.assemble((m["id"], "bold"), (f"  not hunted: {m['why']}", "yellow")), soft_wrap=True)
    for a in doc["absent"]:
        out.print(Text(f"no {a['defence']}: {a['why']} ({a['hunts']} hunted without it)", "yellow"))
    out.print(Text.assemble("report  ", (describe_path(report / "index.html"), "bold")), soft_wrap=True)


def _list(found: Any, as_json: bool) -> None:
    if as_json:
        print_json([{"id": m.id, "class": m.class_, "breaks": m.breaks, "source": m.source, "blind": m.blind} for m in found])
        return
    out = console()
    for m in found:
        out.print(f"{m.class_:14} {m.id:28} {m.breaks}", markup=False, soft_wrap=True)
