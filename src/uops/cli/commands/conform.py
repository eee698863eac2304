"""`uops conform`: judge a backend, or compare two reports."""

from __future__ import annotations

import fnmatch
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uops.cli.common import backend_option, console, echo, json_option, print_json, to_reader, values_as_written
from uops.spec.untrusted import describe_path, quote_name

if TYPE_CHECKING:
    from uops.backends.conformance.exhaustive import Tally
    from uops.backends.conformance.model import Level
    from uops.backends.conformance.report.diff import Difference

Json = dict[str, Any]
Progress = Callable[[int, int], None]
REPORT = "report"
#: Files of a report.
WRITTEN = ("report.json", "junit.xml", "index.html", "exhaustive.json", "progress.jsonl")
TIERS, LEVELS = ("smoke", "full", "exhaustive"), ("strict", "core")
OPTS = ("heuristics", "none", "forced", "search")
JOBS = min(2, os.cpu_count() or 1)
#: Seconds between lines about the progress, where there is no terminal.
EVERY = 60.0
#: Seconds to the first line, where somebody waits for a page.
FIRST = 2.0
USER_ERROR, INTERRUPTED = 2, 130


@click.command(short_help="Judge a backend and write a report.")
@backend_option(help="Who is judged: a registered name, module:attribute, or interp.")
@click.option("--tier", type=click.Choice(TIERS), default="smoke", show_default=True, help="How much is asked.")
@click.option("--level", type=click.Choice(LEVELS), default="strict", show_default=True, help="The level that decides.")
@click.option("--opts", type=click.Choice(OPTS), default=OPTS[0], show_default=True, help="Who chooses schedules of kernels.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="What --opts forced draws from.")
@click.option("--beam", type=click.IntRange(1), default=2, show_default=True, help="How many --opts search keeps.")
@click.option("--rows", default="*", metavar="GLOB", help="Only rows whose id matches, such as 'Elementwise/*'.")
@click.option("--jobs", "-j", type=click.IntRange(1), default=JOBS, show_default=True, help="Worker processes.")
@click.option("--report", type=click.Path(file_okay=False), default=REPORT, show_default=True, metavar="DIR", help="Where it goes.")
@click.option(
    "--journal", type=click.Path(dir_okay=False), metavar="FILE", help="Keeps the verdicts; a second run goes on from it."
)
@click.option("--baseline", type=click.Path(exists=True), metavar="FILE", help="A report that this run must not be worse than.")
@click.option("--diff", nargs=2, type=click.Path(exists=True), metavar="A B", help="Only compare two reports: is B worse than A?")
@json_option()
@click.pass_context
def conform(
    ctx: click.Context, backend_name: str | None, tier: str, level: str, opts: str, seed: int, beam: int, rows: str, jobs: int,
    report: str, journal: str | None, baseline: str | None, diff: tuple[str, str] | None, as_json: bool,
) -> None:  # fmt: skip
    """Judge a backend against the specification and write a report.

    With --journal, a run that was interrupted or killed goes on where it was, if backend, tier, schedules and sources are those of
    before, and ends with the report of one that was not. The exhaustive tier keeps its own journal in the report directory.

    Exit status 1 if a required cell fails at the chosen level (one that was declared unsupported, or to fail, does not count), or
    if something is worse than in the baseline; 2 if the baseline has no cell in common with the run, since it then guards nothing.
    """
    from uops.backends.conformance.model import Level, Schedules

    if diff:
        if backend_name or baseline:
            raise click.UsageError("--diff compares two reports and runs nothing: leave out --backend and --baseline")
        ctx.exit(_diff(*diff, Level(level), as_json))
    if not backend_name:
        raise click.UsageError("say who is judged with --backend NAME (or compare two reports with --diff A B)")
    values_as_written("conform")
    if tier == "exhaustive" and baseline:
        raise click.UsageError("the exhaustive tier has no cells to compare with a baseline")
    if why := unwritable(Path(report)):
        raise click.BadParameter(f"no report can be written to {describe_path(report)}: {why}", param_hint="--report")
    if tier == "exhaustive" and opts != OPTS[0]:
        raise click.UsageError("the exhaustive tier has one schedule")
    if tier == "exhaustive" and journal:
        raise click.UsageError("the exhaustive tier keeps its journal in the report directory")
    if tier == "exhaustive":
        ctx.exit(_exhaustive(backend_name, rows, jobs, Path(report), as_json))
    how = {"rows": rows, "jobs": jobs, "schedules": Schedules(opts, seed, beam), "journal": journal and Path(journal)}
    ctx.exit(_judge(backend_name, tier, Level(level), Path(report), baseline, as_json, how))


def unwritable(report: Path) -> str | None:
    """Why nothing could be written to a directory that may not exist yet, or None; leaves nothing behind."""
    place = next(p for p in (report, *report.absolute().parents) if p.exists() or p.is_symlink())
    if not place.is_dir():
        return f"{describe_path(place)} is no directory"
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as e:
        return f"{describe_path(place)}: {e.strerror or e}"
    taken = [
        f for f in (place / n for n in WRITTEN) if place == report and f.exists() and not (f.is_file() and os.access(f, os.W_OK))
    ]
    return f"{describe_path(taken[0])} is no file that can be written" if taken else None


def _judge(name: str, tier: str, level: Level, report: Path, baseline: str | None, as_json: bool, how: Json) -> int:
    """`how` goes to the suite."""
    from uops.backends.conformance.model import Tier
    from uops.backends.conformance.report.diff import difference
    from uops.backends.conformance.report.document import read
    from uops.backends.conformance.report.write import write
    from uops.backends.conformance.runner import conform as conform_
    from uops.backends.worker.client import introduction
    from uops.cli import summary

    before = read(baseline) if baseline else None
    subject = introduction(name)
    opts = how["schedules"].kind
    if opts != OPTS[0] and not subject.compiles:
        raise click.UsageError(f"--opts {opts} is for backends that are targets of this compiler; {quote_name(name)} is none")
    started = datetime.now(UTC)
    with progress(f"{name}, {tier}") as advance:
        run = conform_(name, subject, tier=Tier(tier), progress=advance, **how)
    if not run.cases:
        raise click.UsageError(f"no case of the {tier} tier has a row that matches {how['rows']!r}")
    run.backend = name
    unwritten = False
    try:
        doc = write(run, report, level, started=started)
    except OSError as e:  # the disk is full, or the place was taken away: what was found is not lost
        lost, report = report, Path(tempfile.mkdtemp(prefix="uops-report-"))
        echo(f"{lost} cannot be written ({e}); the report is in {report}", err=True)
        doc = write(run, report, level, started=started)
        unwritten = True
    change = difference(before, doc, level) if before else None
    with to_reader():
        if as_json:
            print_json(summary.as_json(doc, report, change))
        else:
            summary.show(console(), doc, report, change)
    return exit_status(doc, change) or (USER_ERROR if unwritten else 0)


def exit_status(doc: Json, change: Difference | None) -> int:
    """0, 1, 2 or 130, as the command's help says."""
    if not doc["complete"]:
        return INTERRUPTED
    totals = doc["scores"][doc["level"]]["totals"]
    failed = totals["fail"] + totals["not run"]
    return 1 if failed else 0 if change is None else compared(change, "the baseline and this run")


def compared(change: Difference, what: str) -> int:
    """The status of a comparison: 1 if something is worse, 2, with a warning, if there was nothing to compare."""
    if change.regressions:
        return 1
    if not change.compared:
        echo(f"Warning: {what} have no cell in common, so nothing was compared", err=True)
        return USER_ERROR
    return 0


def _diff(a: str, b: str, level: Level, as_json: bool) -> int:
    from uops.backends.conformance.report.diff import difference
    from uops.backends.conformance.report.document import read
    from uops.cli import summary

    change = difference(read(a), read(b), level)
    with to_reader():
        if as_json:
            print_json(change.to_json())
        else:
            summary.show_difference(console(), change)
    return compared(change, f"{describe_path(a)} and {describe_path(b)}")


def _exhaustive(name: str, rows: str, jobs: int, report: Path, as_json: bool) -> int:
    """Every input; resumes what an earlier run into the same directory had finished."""
    from uops.backends.conformance import exhaustive
    from uops.backends.worker.client import introduction
    from uops.cli import summary
    from uops.spec.untrusted import write_text

    version = introduction(name).version
    only = tuple(n for n in exhaustive.names() if fnmatch.fnmatch(n, rows.lower().rpartition("/")[2] + "*"))
    if rows != "*" and not only:
        raise click.UsageError(f"no function of the exhaustive tier matches {rows!r}; there are {', '.join(exhaustive.names())}")
    with progress(f"{name}, exhaustive") as advance:
        tallies = exhaustive.run(name, jobs, advance, report, only if rows != "*" else None)
    found = _tallied(name, version, tallies)
    write_text(report / "exhaustive.json", json.dumps(found, indent=1, sort_keys=True) + "\n")
    with to_reader():
        if as_json:
            print_json(found)
        else:
            summary.show_tallies(console(), found, report)
    return 1 if any(t["wrong"] for t in found["functions"]) else 0


def _tallied(name: str, version: str, tallies: dict[str, Tally]) -> Json:
    from uops.backends.conformance.report.document import describe_platform, versions

    functions = [asdict(tallies[k]) for k in sorted(tallies)]
    return {
        "backend": {"name": name, "version": version},
        "versions": versions(),
        "platform": describe_platform(),
        "functions": functions,
    }


@contextmanager
def progress(title: str, every: float | None = None) -> Iterator[Progress]:
    """How far it is, on standard error: a bar on a terminal, elsewhere a line at times; gives `advance(done, total)`."""
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    title, out = quote_name(title), console(stderr=True)
    if not out.is_terminal:
        lines = _Lines(title, EVERY, EVERY) if every is None else _Lines(title, every, FIRST)
        try:
            yield lines.advance
        finally:
            lines.stop()
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task(escape(title), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _Lines:
    """A line after `first` seconds, and then every so many seconds, whether or not anything is told meanwhile."""

    def __init__(self, title: str, every: float, first: float) -> None:
        self._title, self._every, self._first, self._state = title, every, first, ""
        self._start = self._told = time.monotonic()
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        if first:
            self._thread.start()

    def advance(self, done: int, total: int) -> None:
        with self._lock:
            self._state = f"{done:,} of {total:,} "
            if time.monotonic() - self._told >= self._every:
                self._tell()

    def stop(self) -> None:
        """Tell no more."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        pause = self._first
        while not self._stopped.wait(pause):
            with self._lock:
                silent = time.monotonic() - self._told
                if silent >= pause:
                    self._tell()
                    silent = 0.0
            pause = max(self._every - silent, 0.01)

    def _tell(self) -> None:
        self._told = time.monotonic()
        echo(f"{self._title}: {self._state}after {_spell(self._told - self._start)}", err=True)


def _spell(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else f"{seconds / 60:.0f} min"
