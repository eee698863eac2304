"""`uops mutants`: plant known bugs in copies of this package, and report which defences detect them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uops.cli.commands.conform import find_reason_unwritable
from uops.cli.common import (
    INTERRUPTED,
    flush_output_and_ignore_broken_pipe,
    json_option,
    make_console_that_escapes_controls,
    print_json,
    reject_nan_seconds,
)
from uops.spec.untrusted import describe_path

if TYPE_CHECKING:
    from uops.fuzz.mutants.run import MutantRun

REPORT = "mutants-report"
SECONDS = 300.0
JOBS = min(2, os.cpu_count() or 1)
#: Exit status of a run in which a mutant could not be tested.
NOT_HUNTED = 2


@click.command(short_help="Plant known bugs and see what finds them.")
@click.option(
    "--seconds", type=click.FloatRange(0, min_open=True), callback=reject_nan_seconds, default=SECONDS, show_default=True,
    help="Time limit for one mutant.",
)  # fmt: skip
@click.option("--jobs", "-j", type=click.IntRange(1), default=JOBS, show_default=True, help="Number of mutants tested at a time.")
@click.option("--cluster", metavar="ADDRESS", help="A Dask scheduler, whose workers test the mutants; --jobs is ignored.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of all cases.")
@click.option("--only", default="*", metavar="GLOB", help="Only mutants whose id or class matches.")
@click.option(
    "--report", type=click.Path(file_okay=False), default=REPORT, show_default=True, metavar="DIR", help="Directory of the report."
)
@click.option("--list", "listing", is_flag=True, help="Print the catalogue, and do nothing.")
@json_option()
@click.pass_context
def mutants(
    ctx: click.Context, seconds: float, jobs: int, cluster: str | None, seed: int, only: str, report: str, listing: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Plant known bugs in copies of this package, and see who finds them.

    Bugs are planted one at a time. Seconds are processor time. A run resumes from the report directory, if that has the same
    settings; the report has all mutants that were tested there. Exit status 1 if a mutant survives, 2 if one could not be tested.
    """
    from uops.fuzz.mutants.catalogue import load_mutants_by_id_or_class
    from uops.fuzz.mutants.report import write_report
    from uops.fuzz.mutants.run import MutantRun

    chosen = load_mutants_by_id_or_class(only)
    if not chosen:
        raise click.BadParameter(f"no mutant matches {only!r}", param_hint="--only")
    if listing:
        _print_catalogue(chosen, as_json)
        ctx.exit(0)
    if why := find_reason_unwritable(Path(report)):
        raise click.BadParameter(f"no report can be written to {describe_path(report)}: {why}", param_hint="--report")
    run = MutantRun(chosen, Path(report), seconds=seconds, jobs=jobs, seed=seed, cluster=cluster)
    with _show_progress(run) as advance:
        run.run(advance)
    doc = write_report(run, load_mutants_by_id_or_class())
    with flush_output_and_ignore_broken_pipe():
        print_json(doc) if as_json else _print_score(doc, Path(report))
    survivors = any(r.everything is None for r in run.results)
    ctx.exit(INTERRUPTED if not run.complete else 1 if survivors else NOT_HUNTED if run.passed_over else 0)


@contextmanager
def _show_progress(run: MutantRun) -> Iterator[Callable[[MutantRun], None]]:
    """Show the progress on standard error, if that is a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    out = make_console_that_escapes_controls(stderr=True)
    columns = (TextColumn("mutants"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[survive]}"))
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task("", total=len(run.mutants), survive="")

        def update_bar(run: MutantRun) -> None:
            done = run.results
            survive = sum(r.everything is None for r in done)
            bar.update(
                task, completed=len(done) + len(run.passed_over), survive=f"[bold red]{survive} survive[/]" if survive else ""
            )

        yield update_bar


def _print_score(doc: dict[str, Any], report: Path) -> None:
    from rich import box
    from rich.table import Table

    from uops.cli.texts import Text

    out = make_console_that_escapes_controls()
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
            detectors = m["everything"]["by"] if m["everything"] else "nobody"
            out.print(Text.assemble((m["id"], "bold"), f"  {m['breaks']}: seen by {detectors}"))
    for m in doc["not_hunted"]:
        out.print(Text.assemble((m["id"], "bold"), (f"  not hunted: {m['why']}", "yellow")), soft_wrap=True)
    for a in doc["absent"]:
        out.print(Text(f"no {a['defence']}: {a['why']} ({a['hunts']} hunted without it)", "yellow"))
    out.print(Text.assemble("report  ", (describe_path(report / "index.html"), "bold")), soft_wrap=True)


def _print_catalogue(chosen: Any, as_json: bool) -> None:
    if as_json:
        print_json([{"id": m.id, "class": m.class_, "breaks": m.breaks, "source": m.source, "blind": m.blind} for m in chosen])
        return
    out = make_console_that_escapes_controls()
    for m in chosen:
        out.print(f"{m.class_:14} {m.id:28} {m.breaks}", markup=False, soft_wrap=True)
