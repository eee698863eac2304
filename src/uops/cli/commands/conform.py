"""`uops conform`: judge a backend, or compare two reports."""

from __future__ import annotations

import fnmatch
import json
import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from uops import __version__
from uops.cli.blessing import bless_failing_cells_and_print, require_readable_or_new
from uops.cli.common import (
    INTERRUPTED,
    USER_ERROR,
    backend_option,
    dialect_option,
    echo,
    flush_output_and_ignore_broken_pipe,
    json_option,
    make_console_that_escapes_controls,
    print_json,
    refuse_under_fast_math,
)
from uops.cli.foreign import isolate_foreign_backend, load_compiler_backend
from uops.spec.untrusted import describe_path, escape_to_one_line

if TYPE_CHECKING:
    from uops.backends.conformance.exhaustive import Tally
    from uops.backends.conformance.model import ConformanceLevel
    from uops.backends.conformance.report.blessed import BlessedReport
    from uops.backends.conformance.report.diff import ReportDiff
    from uops.backends.conformance.runner import ConformanceRun
    from uops.spec.verify.dialects import Dialect

Json = dict[str, Any]
Progress = Callable[[int, int], None]
REPORT = "report"
#: Names of the files of a report.
WRITTEN = ("report.json", "junit.xml", "index.html", "exhaustive.json", "progress.jsonl")
TIERS, LEVELS = ("smoke", "full", "exhaustive"), ("strict", "core")
OPTS = ("heuristics", "none", "forced", "search")
#: Name on the command line -> the subject of rows (R171).
SUBJECTS = {
    "backend": "backend",
    "front-end": "front end",
    "compiler": "compiler",
    "specification": "specification",
    "optional": "optional rows",
}
#: The subjects whose cells judge a backend.
OF_BACKENDS = ("backend", "optional")
#: Target of --subject compiler without --backend.
TARGET = "llvm"
JOBS = min(2, os.cpu_count() or 1)
#: Seconds between progress lines without a terminal.
EVERY = 60.0
#: Seconds to the first progress line of `uops view`.
FIRST = 2.0


@click.command(short_help="Judge a backend and write a report.")
@backend_option(help="Backend to judge: a registered name, module:attribute, or interp.")
@click.option("--subject", type=click.Choice(tuple(SUBJECTS)), default="backend", show_default=True, help="What is judged.")
@click.option("--tier", type=click.Choice(TIERS), default="smoke", show_default=True, help="Extent of the suite.")
@click.option("--level", type=click.Choice(LEVELS), default="strict", show_default=True, help="Level that decides the exit status.")
@click.option("--opts", type=click.Choice(OPTS), default=OPTS[0], show_default=True, help="Policy that schedules kernels.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of --opts forced and of --sample.")
@click.option("--beam", type=click.IntRange(1), default=2, show_default=True, help="Number of states that --opts search keeps.")
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Only N programs of the tier, drawn by --seed.")
@click.option("--rows", default="*", metavar="GLOB", help="Only rows whose id matches, such as 'Elementwise/*'.")
@dialect_option(None, "Lower each program to this dialect before it is given to the backend.")
@click.option("--jobs", "-j", type=click.IntRange(1), default=JOBS, show_default=True, help="Number of worker processes.")
@click.option(
    "--report", type=click.Path(file_okay=False), default=REPORT, show_default=True, metavar="DIR", help="Directory of the report."
)
@click.option("--journal", type=click.Path(dir_okay=False), metavar="FILE", help="Record the verdicts, and resume from it.")
@click.option("--baseline", type=click.Path(exists=True), metavar="FILE", help="A report; fail if this run is worse.")
@click.option("--bless", type=click.Path(dir_okay=False), metavar="FILE", help="Cells that may fail; a new file is written.")
@click.option("--diff", nargs=2, type=click.Path(exists=True), metavar="A B", help="Only compare two reports: is B worse than A?")
@click.option("--against", metavar="NAME", help="Judge this backend, too, and list the cells that fail on one of the two.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Time limit of one program.  [default: 60]")
@click.option("--cluster", metavar="ADDRESS", help="With --tier exhaustive, a Dask scheduler, whose workers judge.")
@click.option("--watch", metavar="GLOB", help="Judge these rows again whenever a source file of the backend changes.")
@click.option("--probe", is_flag=True, help="Print the gaps to declare: what the backend refuses.")
@json_option()
@click.pass_context
def conform(
    ctx: click.Context, backend_name: str | None, subject: str, tier: str, level: str, opts: str, seed: int, beam: int,
    sample: int | None, rows: str, dialect: str | None, jobs: int, report: str, journal: str | None, baseline: str | None,
    bless: str | None, diff: tuple[str, str] | None, against: str | None, timeout: float | None, cluster: str | None,
    watch: str | None, probe: bool, as_json: bool,
) -> None:  # fmt: skip
    """Judge a backend against the specification and write a report.

    Rows that judge no backend are judged by --subject: the steps of @function (front-end), the stages of the lowering for the
    target of --backend (compiler), and the derived properties (specification). The optional rows (optional) judge a backend, apart
    from its conformance: functions such as floor and sort, that the language has no op for.

    With --dialect, the compiler lowers each program up to the stage that gives the dialect, and the backend takes it from there.
    Programs of later dialects, and native text, are left out.

    With --sample, the report is about those programs alone, and says of how many.

    With --probe, the refusals of the run are printed as a declaration of gaps, and do not count as failures. Wrong values, crashes
    and timeouts are never gaps.

    With --against, a second backend is judged first, with the same options, such as the eager mode of a compiler. Its report is in
    the folder `against` of the report, and has no part in the exit status.

    With --watch, the rows are judged now, and again whenever a Python file of the backend's package changes, or one beside its
    module. Ctrl-C ends it with the exit status of the last run.

    With --bless, failing cells that the file lists do not count for the exit status, though they stay failures in the report. Each
    entry of the file has a reason and a link. An entry whose cells pass ends the run with status 1. A file that does not exist is
    written, with the cells that fail.

    With --journal, an interrupted run resumes if backend, tier, schedules and sources are unchanged. Its report is that of an
    uninterrupted run. The exhaustive tier keeps its own journal in the report directory. With --cluster, workers of a Dask cluster
    share its chunks; the results and the journal are those of one machine.

    Exit status 1 if a required cell fails at the chosen level, or if something is worse than in the baseline. Cells declared
    unsupported, or declared to fail, do not count, nor do those of surfaces that the backend does not declare. Exit status 2 if
    nothing was run, or if the baseline has no cell in common with the run.
    """
    from uops.backends.conformance.model import ConformanceLevel, SchedulePolicy
    from uops.backends.worker.client import Limits
    from uops.spec.rows.named.base import RowSubject

    if diff:
        if backend_name or baseline:
            raise click.UsageError("--diff compares two reports and runs nothing: leave out --backend and --baseline")
        ctx.exit(_print_comparison_of_reports(*diff, ConformanceLevel(level), as_json))
    refuse_under_fast_math("conform")
    if watch is not None:
        ctx.exit(_watch_backend(ctx, backend_name, subject))
    if subject not in OF_BACKENDS:
        _refuse_options_without_meaning(ctx, subject, tier)
    elif not backend_name:
        raise click.UsageError("name the backend to judge with --backend NAME (or compare two reports with --diff A B)")
    if against and (tier == "exhaustive" or probe):
        raise click.UsageError("--against compares cells of the smoke and the full tier: leave out --tier exhaustive and --probe")
    if bless and (tier == "exhaustive" or probe):
        raise click.UsageError("--bless is about cells of the smoke and the full tier: leave out --tier exhaustive and --probe")
    blessings = Path(bless) if bless else None
    if blessings:
        require_readable_or_new(blessings)
    if tier == "exhaustive" and subject == "optional":
        raise click.UsageError("the optional rows have no exhaustive tier: leave out --tier exhaustive")
    if tier == "exhaustive" and baseline:
        raise click.UsageError("the exhaustive tier has no cells to compare with a baseline: leave out --baseline")
    if why := find_reason_unwritable(Path(report)):
        raise click.BadParameter(f"no report can be written to {describe_path(report)}: {why}", param_hint="--report")
    if tier == "exhaustive" and (opts != OPTS[0] or dialect):
        raise click.UsageError("the exhaustive tier has one schedule and one dialect: leave out --opts and --dialect")
    lowered_to = _require_dialect_of_a_stage(dialect) if dialect else None
    if tier == "exhaustive" and sample:
        raise click.UsageError("the exhaustive tier tries every input: leave out --sample")
    if tier == "exhaustive" and journal:
        raise click.UsageError("the exhaustive tier keeps its journal in the report directory: leave out --journal")
    if tier == "exhaustive" and (probe or timeout is not None):
        raise click.UsageError("the exhaustive tier has no gaps and a time limit of its own: leave out --probe and --timeout")
    if cluster and tier != "exhaustive":
        raise click.UsageError("--cluster shares out the chunks of the exhaustive tier: add --tier exhaustive, or leave it out")
    if probe and baseline:
        raise click.UsageError("--probe looks for gaps and compares nothing: leave out --baseline")
    if tier == "exhaustive":
        ctx.exit(_run_exhaustive_tier_and_print(backend_name or "", rows, jobs, Path(report), cluster, as_json))
    if timeout is not None and not 0 < timeout < math.inf:
        raise click.BadParameter(f"expected a positive number of seconds, got {timeout:g}", param_hint="--timeout")
    how = {"rows": rows, "schedules": SchedulePolicy(opts, seed, beam), "journal": journal and Path(journal), "jobs": jobs}
    wanted = _Wanted(
        tier, ConformanceLevel(level), Path(report), baseline, as_json, how, probe, against, Path(bless) if bless else None
    )
    if subject == "compiler":
        _judge_compiler_and_write_report(ctx, backend_name=backend_name or TARGET, wanted=wanted)
    elif subject in OF_BACKENDS:
        drawn: Json = {"sample": sample, "sample_seed": seed}
        if subject == "optional":
            drawn["subject"] = RowSubject.OPTIONAL
        if timeout is not None:
            drawn["limits"] = Limits(timeout=timeout)
        ctx.exit(_judge_backend_and_write_report(backend_name or "", wanted, dialect=lowered_to, **drawn))
    else:
        ctx.exit(_judge_subject_and_write_report(subject, wanted, subject, __version__))


def _watch_backend(ctx: click.Context, backend_name: str | None, subject: str) -> int:
    """Run this command, with --rows in place of --watch, whenever a source file changes, and return the last status."""
    from uops.backends.registry import locate_factory
    from uops.cli.watching import list_source_files, replace_option, run_whenever_files_change, this_command

    if subject not in OF_BACKENDS or not backend_name:
        raise click.UsageError("--watch looks at the files of a backend: name it with --backend, and leave out --subject")
    if ctx.get_parameter_source("rows") is not ParameterSource.DEFAULT:
        raise click.UsageError("--watch names the rows: leave out --rows")
    module = locate_factory(backend_name).module
    command = this_command(replace_option(sys.argv[1:], "--watch", "--rows"))
    return run_whenever_files_change(command, lambda: list_source_files(module), lambda text: echo(text, err=True))


def _require_dialect_of_a_stage(name: str) -> Dialect:
    """Return the dialect of this name. Raises BadParameter for one that no stage of the compiler gives."""
    from uops.compiler.pipeline import STAGE_OF_DIALECT
    from uops.spec.verify.dialects import Dialect

    dialect = Dialect(name.lower())
    if dialect not in STAGE_OF_DIALECT:
        raise click.BadParameter(f"no stage gives programs of {dialect.value}", param_hint="--dialect")
    return dialect


def _refuse_options_without_meaning(ctx: click.Context, subject: str, tier: str) -> None:
    """Raise UsageError for an option that says nothing about a subject which is no backend."""
    of_backends = {
        "dialect": "--dialect", "sample": "--sample", "timeout": "--timeout", "probe": "--probe", "against": "--against"
    }  # fmt: skip
    if subject != "compiler":
        of_backends |= {"backend_name": "--backend", "opts": "--opts", "seed": "--seed", "beam": "--beam"}
    given = [option for name, option in of_backends.items() if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        raise click.UsageError(f"{given[0]} says nothing about --subject {subject}: leave it out")
    if tier == "exhaustive":
        raise click.UsageError("the exhaustive tier judges backends: leave out --subject")


def find_reason_unwritable(report_directory: Path) -> str | None:
    """Return why a directory that may not exist yet cannot be written to, or None; leave nothing behind."""
    folder = next(p for p in (report_directory, *report_directory.absolute().parents) if p.exists() or p.is_symlink())
    if not folder.is_dir():
        return f"{describe_path(folder)} is not a directory"
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as e:
        return f"{describe_path(folder)}: {e.strerror or e}"
    blocked = [
        f
        for f in (folder / n for n in WRITTEN)
        if folder == report_directory and f.exists() and not (f.is_file() and os.access(f, os.W_OK))
    ]
    return f"{describe_path(blocked[0])} is not a writable file" if blocked else None


class _Wanted(NamedTuple):
    """The run that is asked for, and the place of its report; `suite_options` are passed to the run."""

    tier: str
    level: ConformanceLevel
    report: Path
    baseline: str | None
    as_json: bool
    suite_options: Json
    probe: bool = False
    against: str | None = None
    bless: Path | None = None


def _judge_backend_and_write_report(backend_name: str, wanted: _Wanted, **how: Any) -> int:
    """Judge a backend, write the report, and return the exit status; `how` is passed to the suite, as its options are."""
    from uops.backends.conformance.model import ConformanceTier
    from uops.backends.conformance.report.write import write_report
    from uops.backends.conformance.runner import run_conformance
    from uops.backends.worker.client import query_info_isolating_foreign_backend

    baseline = _read_baseline(wanted)
    opts = wanted.suite_options["schedules"].kind
    infos = {name: query_info_isolating_foreign_backend(name) for name in (backend_name, wanted.against) if name}
    for name, backend_info in infos.items():
        if opts != OPTS[0] and not backend_info.compiles:
            raise click.UsageError(
                f"--opts {opts} is for backends that are targets of this compiler; {escape_to_one_line(name)} is none"
            )

    def judge_one(name: str, **options: Any) -> ConformanceRun:
        with show_progress(f"{name}, {wanted.tier}") as advance:
            run = run_conformance(name, infos[name], tier=ConformanceTier(wanted.tier), progress=advance, **options, **how)
        run.backend = name
        return run

    other, started = None, datetime.now(UTC)
    if wanted.against:
        other_run = judge_one(wanted.against, **wanted.suite_options | {"journal": None})
        other = write_report(other_run, wanted.report / "against", wanted.level, started=started)
        if not other_run.complete:
            return INTERRUPTED
        started = datetime.now(UTC)
    return _write_report_and_get_status(judge_one(backend_name, **wanted.suite_options), wanted, started, baseline, other)


@isolate_foreign_backend
def _judge_compiler_and_write_report(ctx: click.Context, *, backend_name: str, wanted: _Wanted) -> None:
    """Judge the stages of the compiler for a target, write the report, and exit."""
    backend = load_compiler_backend(backend_name)
    ctx.exit(_judge_subject_and_write_report("compiler", wanted, backend_name, backend.version(), target=backend.target))


def _judge_subject_and_write_report(subject: str, wanted: _Wanted, name: str, version: str, **target: Any) -> int:
    """Judge a subject that is no backend, write the report, and return the exit status."""
    from uops.backends.conformance.model import ConformanceTier
    from uops.backends.conformance.subjects.run import run_subject
    from uops.spec.rows.named.base import RowSubject

    baseline, started = _read_baseline(wanted), datetime.now(UTC)
    with show_progress(f"{subject}, {wanted.tier}") as advance:
        run = run_subject(
            RowSubject(SUBJECTS[subject]),
            name=name,
            version=version,
            tier=ConformanceTier(wanted.tier),
            progress=advance,
            **target,
            **wanted.suite_options,
        )
    return _write_report_and_get_status(run, wanted, started, baseline)


def _read_baseline(wanted: _Wanted) -> Json | None:
    from uops.backends.conformance.report.document import read_report

    return read_report(wanted.baseline) if wanted.baseline else None


def _write_report_and_get_status(
    run: ConformanceRun, wanted: _Wanted, started: datetime, baseline: Json | None, other: Json | None = None
) -> int:
    """Write and print the report of a run, beside the report of another backend if given, and return the exit status."""
    from uops.backends.conformance.report.diff import diff_reports
    from uops.backends.conformance.report.write import write_report
    from uops.cli import summary

    if not run.cases:
        raise click.UsageError(f"no case of the {wanted.tier} tier has a row that matches {run.rows!r}")
    report, unwritten = wanted.report, False
    try:
        doc = write_report(run, report, wanted.level, started=started, newly_asked_baseline=baseline)
    except OSError as e:  # a full disk or a removed folder: keep the results elsewhere
        unwritable_report, report = report, Path(tempfile.mkdtemp(prefix="uops-report-"))
        echo(f"{unwritable_report} cannot be written ({e}); the report is in {report}", err=True)
        doc = write_report(run, report, wanted.level, started=started, newly_asked_baseline=baseline)
        unwritten = True
    change = diff_reports(baseline, doc, wanted.level) if baseline else None
    with flush_output_and_ignore_broken_pipe():
        if wanted.as_json:
            print_json(summary.summary_to_json(doc, report, change, other))
        else:
            summary.print_conformance_summary(make_console_that_escapes_controls(), doc, report, change, other)
    if wanted.probe:
        return _print_gaps_and_get_status(run, wanted) or (USER_ERROR if unwritten else 0)
    blessed = bless_failing_cells_and_print(doc, wanted.bless, err=wanted.as_json) if wanted.bless else None
    return warn_and_get_report_exit_status(doc, change, blessed) or (USER_ERROR if unwritten else 0)


def _print_gaps_and_get_status(run: ConformanceRun, wanted: _Wanted) -> int:
    """Print the gaps that the refusals of a run amount to; return 1 if anything else failed, or cannot be declared."""
    from uops.backends.conformance.probe import format_gaps_as_missing_declarations, split_refusals_into_full_gaps_and_partial

    cells = run.cells[wanted.level].values()
    gaps = split_refusals_into_full_gaps_and_partial(cells)
    with flush_output_and_ignore_broken_pipe():
        echo(format_gaps_as_missing_declarations(gaps), err=wanted.as_json, nl=False)
    if not run.complete:
        return INTERRUPTED
    return int(bool(gaps.partly_refused) or any(c.failed or not c.is_refusal for c in run.failing_cells(wanted.level)))


def warn_and_get_report_exit_status(doc: Json, change: ReportDiff | None, blessed: BlessedReport | None = None) -> int:
    """Return the exit status 0, 1, 2 or 130, as the command's help describes it."""
    if not doc["complete"]:
        return INTERRUPTED
    score = doc["scores"][doc["level"]]
    totals = score["totals"]
    failing = totals["fail"] if blessed is None else len(blessed.others) + len(blessed.stale)
    if failing + totals["not run"]:
        return 1
    compared = 0 if change is None else warn_if_disjoint_and_get_diff_status(change, "the baseline and this run")
    if not score["run"] and compared != 1:
        unsupported, mute = totals["unsupported"], totals["not askable"]
        why = f"the backend declares {unsupported:,} cells unsupported, and cannot be asked {mute:,}"
        echo(f"Warning: nothing was run at level {doc['level']}: {why}", err=True)
        return USER_ERROR
    return compared


def warn_if_disjoint_and_get_diff_status(change: ReportDiff, names_of_reports: str) -> int:
    """Return the exit status of a comparison: 1 if something is worse; 2, with a warning, if nothing was comparable."""
    if change.regressions:
        return 1
    if not change.shared_cell_count:
        echo(f"Warning: {names_of_reports} have no cell in common, so nothing was compared", err=True)
        return USER_ERROR
    return 0


def _print_comparison_of_reports(a: str, b: str, level: ConformanceLevel, as_json: bool) -> int:
    from uops.backends.conformance.report.diff import diff_reports
    from uops.backends.conformance.report.document import read_report
    from uops.cli import summary

    change = diff_reports(read_report(a), read_report(b), level)
    with flush_output_and_ignore_broken_pipe():
        if as_json:
            print_json(change.to_json())
        else:
            summary.print_report_difference(make_console_that_escapes_controls(), change)
    return warn_if_disjoint_and_get_diff_status(change, f"{describe_path(a)} and {describe_path(b)}")


def _run_exhaustive_tier_and_print(
    backend_name: str, rows: str, jobs: int, report: Path, cluster: str | None, as_json: bool
) -> int:
    """Run the exhaustive tier, or resume an earlier run into the same directory, and return the exit status."""
    from uops.backends.conformance import exhaustive
    from uops.backends.worker.client import query_info_isolating_foreign_backend
    from uops.cli import summary
    from uops.spec.rows.rows import row_of
    from uops.spec.untrusted import write_text

    version = query_info_isolating_foreign_backend(backend_name).version
    row_ids = {name: row_of(name.partition("/")[0]).id for name in exhaustive.function_names()}
    only = tuple(name for name, row_id in row_ids.items() if fnmatch.fnmatchcase(row_id.lower(), rows.lower()))
    if rows != "*" and not only:
        known = ", ".join(sorted(set(row_ids.values())))
        raise click.UsageError(f"no row of the exhaustive tier matches {rows!r}; there are {known}")
    with show_progress(f"{backend_name}, exhaustive") as advance:
        tallies = exhaustive.run_or_resume_exhaustive_tier(
            backend_name, jobs, advance, report, only if rows != "*" else None, cluster
        )
    outcome = _function_tallies_to_json(backend_name, version, tallies)
    write_text(report / "exhaustive.json", json.dumps(outcome, indent=1, sort_keys=True) + "\n")
    with flush_output_and_ignore_broken_pipe():
        if as_json:
            print_json(outcome)
        else:
            summary.print_exhaustive_tallies(make_console_that_escapes_controls(), outcome, report)
    return 1 if any(t["wrong"] for t in outcome["functions"]) else 0


def _function_tallies_to_json(backend_name: str, version: str, tallies_by_function: dict[str, Tally]) -> Json:
    from uops.backends.conformance.report.document import describe_os_and_cpu, package_versions

    functions = [asdict(tallies_by_function[k]) for k in sorted(tallies_by_function)]
    return {
        "backend": {"name": backend_name, "version": version},
        "versions": package_versions(),
        "platform": describe_os_and_cpu(),
        "functions": functions,
    }


@contextmanager
def show_progress(title: str, line_interval: float | None = None) -> Iterator[Progress]:
    """Show progress on standard error: a bar on a terminal, else a line at intervals; yields `advance(done, total)`."""
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    title, out = escape_to_one_line(title), make_console_that_escapes_controls(stderr=True)
    if not out.is_terminal:
        lines = _ProgressLines(title, EVERY, EVERY) if line_interval is None else _ProgressLines(title, line_interval, FIRST)
        try:
            yield lines.record_progress_and_print_if_due
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


class _ProgressLines:
    """Progress lines: one after `first` seconds, then one every `every` seconds, even without progress."""

    def __init__(self, title: str, every: float, first: float) -> None:
        self._title, self._every, self._first, self._state = title, every, first, ""
        self._start = self._told = time.monotonic()
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._print_lines_until_stopped, daemon=True)
        if first:
            self._thread.start()

    def record_progress_and_print_if_due(self, done: int, total: int) -> None:
        """Record the progress, and print a line if one is due."""
        with self._lock:
            self._state = f"{done:,} of {total:,} "
            if time.monotonic() - self._told >= self._every:
                self._print_line()

    def stop(self) -> None:
        """Print no more lines."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _print_lines_until_stopped(self) -> None:
        pause = self._first
        while not self._stopped.wait(pause):
            with self._lock:
                silent = time.monotonic() - self._told
                if silent >= pause:
                    self._print_line()
                    silent = 0.0
            pause = max(self._every - silent, 0.01)

    def _print_line(self) -> None:
        self._told = time.monotonic()
        echo(f"{self._title}: {self._state}after {_format_duration(self._told - self._start)}", err=True)


def _format_duration(seconds: float) -> str:
    """Format seconds as seconds or minutes."""
    return f"{seconds:.0f} s" if seconds < 60 else f"{seconds / 60:.0f} min"
