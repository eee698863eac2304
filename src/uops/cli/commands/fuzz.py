"""`uops fuzz`: run a campaign of random programs on a backend, or one finding of it again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uops.cli.commands.conform import find_reason_unwritable
from uops.cli.common import (
    HOW_TO_ALLOW_NATIVE,
    INTERRUPTED,
    allow_native_option,
    backend_option,
    flush_output_and_ignore_broken_pipe,
    json_option,
    make_console_that_escapes_controls,
    print_json,
    refuse_under_fast_math,
    reject_nan_seconds,
    require_locatable_backend,
)
from uops.spec.untrusted import describe_path

if TYPE_CHECKING:
    from rich.console import Console

    from uops.fuzz.campaign.campaign import Campaign, Progress, Summary
    from uops.fuzz.campaign.examine import Setup

REPORT = "fuzz-report"
JOBS = min(2, os.cpu_count() or 1)
CASES = 10_000
TIMEOUT = 60.0
#: Exit status of a campaign in which nothing of the backend was judged.
NOTHING_JUDGED = 2


@click.command(short_help="Run random programs on a backend and judge them.")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, readable=True))
@backend_option(help="Backend to test: a registered name, module:attribute, or interp.")
@click.option("--cases", "-n", type=click.IntRange(1), help=f"Number of cases.  [default: {CASES:,}, unless --seconds is given]")
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    callback=reject_nan_seconds,
    help="Time limit of the run, including work on findings.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of all cases.")
@click.option("--jobs", "-j", type=click.IntRange(1), default=JOBS, show_default=True, help="Number of worker processes.")
@click.option(
    "--kinds", default="tensor", show_default=True, metavar="NAMES", help="Kinds of programs, separated by commas, or all."
)
@click.option(
    "--changed-since",
    metavar="REVISION",
    help="Draw those of the kinds whose cases run lines that differ from a git revision. The package must be a checkout.",
)
@click.option("--oracles", default="all", show_default=True, metavar="NAMES", help="Oracles, separated by commas.")
@click.option("--against", metavar="NAME", help="A second backend to compare results with.")
@click.option("--cluster", metavar="ADDRESS", help="A Dask scheduler, whose workers run all cases; --jobs is ignored.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    callback=reject_nan_seconds,
    default=TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for one case; a slower case is a finding.",
)
@click.option(
    "--report", type=click.Path(file_okay=False), default=REPORT, show_default=True, metavar="DIR", help="Directory of the report."
)
@click.option("--reach", "records_reach", is_flag=True, help="Count the functions of the compiler that judged cases ran.")
@allow_native_option()
@click.option("--list", "listing", is_flag=True, help="Print the kinds and the oracles, and do nothing.")
@json_option()
@click.pass_context
def fuzz(
    ctx: click.Context, file: str | None, backend_name: str | None, cases: int | None, seconds: float | None, seed: int, jobs: int,
    kinds: str, changed_since: str | None, oracles: str, against: str | None, cluster: str | None, timeout: float, report: str,
    records_reach: bool, allow_native: bool, listing: bool, as_json: bool,
) -> None:  # fmt: skip
    """Run random programs on a backend, judged by the interpreter.

    Failures are bisected, and reduced to small programs.

    With FILE, a reproducer of such a run, ask the oracle that found it again, on the same backend or another. For any other program
    with inputs, check that the backend's result is allowed. A campaign resumes from the report directory, if that is of the same
    campaign. Exit status 1 if something was found, 2 if nothing of the backend was judged.
    """
    refuse_under_fast_math("fuzz")
    if listing:
        _print_kinds_and_oracles(as_json)
        ctx.exit(0)
    if file:
        ctx.exit(_rejudge_reproducer_or_program_and_print(Path(file), backend_name, timeout, allow_native, as_json))
    if not backend_name:
        raise click.UsageError("name the backend to test with --backend NAME")
    if why := find_reason_unwritable(Path(report)):
        raise click.BadParameter(f"no report can be written to {describe_path(report)}: {why}", param_hint="--report")
    setup = replace(_make_checked_setup(backend_name, seed, kinds, oracles, against), records_reach=records_reach)
    if changed_since:
        setup = _direct_at_changed_lines(setup, changed_since)
    cases = cases if cases or seconds else CASES
    ctx.exit(
        _run_campaign_and_print_report(
            setup, Path(report), as_json, cases=cases, seconds=seconds, jobs=jobs, cluster=cluster, timeout=timeout
        )
    )


def _make_checked_setup(backend_name: str, seed: int, kinds: str, oracles: str, against: str | None) -> Setup:
    from uops.fuzz.campaign.examine import Setup
    from uops.fuzz.generate.kinds import KINDS, look_up_kinds
    from uops.fuzz.oracles.oracles import AGAINST, ORACLES, select_oracles_in_table_order

    for n in filter(None, (backend_name, against)):
        require_locatable_backend(n)
    kind_names = tuple(KINDS) if kinds == "all" else tuple(k.name for k in look_up_kinds(_split_names(kinds)))
    oracle_names = (
        tuple(ORACLES) if oracles == "all" else tuple(o.name for o in select_oracles_in_table_order(_split_names(oracles)))
    )
    if not kind_names or not oracle_names:
        raise click.UsageError(f"--{'oracles' if kind_names else 'kinds'} must name at least one of those that --list prints")
    unpaired = [o for o in oracle_names if AGAINST in ORACLES[o].needs]
    if unpaired and oracles != "all" and not against:
        raise click.UsageError(f"the oracle {unpaired[0]} needs a second backend: --against NAME")
    return Setup(backend_name, seed, kind_names, oracle_names, against, path=(os.getcwd(),))


class _NothingReached(click.ClickException):
    """A campaign that would judge nothing of a change."""

    exit_code = NOTHING_JUDGED


def _direct_at_changed_lines(setup: Setup, revision: str) -> Setup:
    """Return the set-up with the kinds whose cases run changed lines, and say which. Raises _NothingReached if none does."""
    from uops.fuzz.reach.changes import find_lines_changed_since
    from uops.fuzz.reach.directed import direct_kinds, try_kinds_in_processes

    lines = find_lines_changed_since(revision)
    trials = try_kinds_in_processes(setup, lines)
    out = make_console_that_escapes_controls(stderr=True)
    for kind, t in trials.items():
        if t.reached:
            out.print(f"{kind}: {t.reached} of {t.cases} cases run changed lines", markup=False, highlight=False)
    if not any(t.reached for t in trials.values()):
        total = sum(t.cases for t in trials.values())
        raise _NothingReached(
            f"expected cases that run lines which differ from {revision!r}, got none in {total} of the kinds "
            f"{', '.join(setup.kinds)}; changed: {', '.join(lines)}"
        )
    kinds = direct_kinds(trials, setup.kinds)
    if kinds:
        out.print(f"the same campaign, without a trial: --kinds {','.join(kinds)}", markup=False, highlight=False, soft_wrap=True)
    return replace(setup, kinds=kinds or setup.kinds)


def _split_names(names: str) -> list[str]:
    return [n.strip() for n in names.split(",") if n.strip()]


def _run_campaign_and_print_report(setup: Setup, report: Path, as_json: bool, timeout: float, **options: Any) -> int:
    from uops.fuzz.campaign.campaign import Campaign
    from uops.fuzz.campaign.process import LIMITS
    from uops.fuzz.campaign.report import was_subject_judged, write_campaign_report

    campaign = Campaign(setup, report, limits=replace(LIMITS, timeout=timeout), **options)
    with _show_progress(campaign) as advance:
        outcome = campaign.run(advance)
    doc = write_campaign_report(outcome, report)
    with flush_output_and_ignore_broken_pipe():
        if as_json:
            print_json(doc)
        else:
            _print_summary(make_console_that_escapes_controls(), outcome, report)
    if not outcome.complete:
        return INTERRUPTED
    return 1 if outcome.raw else 0 if was_subject_judged(outcome) else NOTHING_JUDGED


@contextmanager
def _show_progress(campaign: Campaign) -> Iterator[Progress]:
    """Show the progress of a campaign on standard error, if that is a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    out = make_console_that_escapes_controls(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[rate]}"),
        TextColumn("{task.fields[found]}"),
    )
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task(f"{campaign.setup.backend}, seed {campaign.setup.seed}", total=campaign.cases, rate="", found="")
        waits = ""

        def update_bar(c: Campaign) -> None:
            nonlocal waits
            if c.pool.missing_workers_message != waits:
                waits = c.pool.missing_workers_message
                out.print(f"waiting: {waits}" if waits else "goes on", markup=False)
            failed = sum(c.state.raw.values())
            findings = f"[bold red]{failed:,} failed[/]" if failed else "nothing found"
            bar.update(task, completed=c.state.done_cases, rate=f"{c.rate:,.0f} cases/s", found=findings)

        yield update_bar


def _print_summary(out: Console, s: Summary, report: Path) -> None:
    from rich import box
    from rich.table import Table

    from uops.cli.texts import Text
    from uops.fuzz.campaign.campaign import FINDINGS
    from uops.fuzz.campaign.report import (
        count_refused,
        describe_finding_counts,
        format_subject_not_judged_message,
        list_silent_oracles_chosen_or_with_reasons,
        was_subject_judged,
    )

    out.print(Text.assemble((s.setup.backend, "bold"), f"  {s.version}"))
    settings = f"seed {s.setup.seed}, {', '.join(s.setup.kinds)}"
    speed = "all from the journal: nothing was left to do" if s.had_nothing_to_do else f"{s.rate:,.1f} a second"
    out.print(Text(f"{s.cases:,} cases, {speed}; {settings}", "dim"))
    if s.had_nothing_to_do:
        out.print(Text("to run them again, remove the report directory or name another one with --report", "dim"))
    if not s.complete:
        out.print(Text("interrupted: the same command goes on from here", "bold yellow"))
    if (count := s.counts["judged"]) != s.cases:
        out.print(Text(f"{count:,} of these cases were judged on the backend", "yellow"))
    if count := count_refused(s.counts):
        out.print(Text(f"{count:,} of these cases were refused by the backend", "yellow"))
    if silent := list_silent_oracles_chosen_or_with_reasons(s):
        out.print(Text(f"no case was judged by {', '.join(silent)}", "yellow"))
    if not was_subject_judged(s):
        out.print(Text(format_subject_not_judged_message(s), "bold red"), soft_wrap=True)
    elif not s.raw:
        out.print(Text("nothing was found", "green"))
    else:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for title in ("Oracle", "Pass", "Rule or step", "Cases", "Nodes", "First", "What"):
            table.add_column(title, justify="right" if title in ("Cases", "Nodes", "First") else "left")
        for f in s.findings:
            p = f.triaged.location
            place = (p.pass_, p.rule or p.step or "") if p else ("", "")
            description = f"{f.triaged.fault.kind}: {f.triaged.fault.message}"
            cell = (
                Text(description[:160])
                if f.unreduced_reason is None
                else Text.assemble(description[:160], (f" ({f.unreduced_reason})", "dim"))
            )
            table.add_row(f.triaged.oracle, *place, str(f.count), str(f.nodes or ""), str(f.k), cell)
        out.print(table)
        total, looked_at = sum(s.raw.values()), sum(f.count for f in s.findings)
        out.print(Text(describe_finding_counts(total, looked_at, len(s.findings), len(s.vanished)), "bold red"), soft_wrap=True)
        if s.unfinished_findings_text:
            out.print(
                Text(f"{s.unfinished_findings_text}: the campaign was over; the same command goes on from here", "bold yellow")
            )
        if any(f.file for f in s.findings):
            again = ("  each again with ", "dim"), "uops fuzz FILE"
            out.print(Text.assemble("files   ", (describe_path(report / FINDINGS / "*.uops"), "bold"), *again), soft_wrap=True)
    out.print(Text.assemble("report  ", (describe_path(report / "index.html"), "bold")), soft_wrap=True)


def _rejudge_reproducer_or_program_and_print(
    file: Path, backend_name: str | None, timeout: float, allow_native: bool, as_json: bool
) -> int:  # fmt: skip
    from dataclasses import replace

    from uops.fuzz.campaign.examine import Setup
    from uops.fuzz.campaign.process import LIMITS, Examiner
    from uops.fuzz.oracles.oracles import AGAINST, COMPILER, ORACLES
    from uops.fuzz.reduce.corpus import refuse_file_with_native_text
    from uops.fuzz.reduce.reproducer import read_program_unless_headed, read_reproducer

    file_name = describe_path(file)
    if not allow_native:
        refuse_file_with_native_text(file, HOW_TO_ALLOW_NATIVE)
    sample, record = (read_program_unless_headed(file, backend_name) if backend_name else None) or read_reproducer(file)
    setup = Setup.from_json(record["setup"])
    needs = ORACLES[record["oracle"]].needs if record["oracle"] in ORACLES else frozenset()
    if AGAINST in needs and not setup.against:
        raise click.UsageError(f"{file_name}: the oracle {record['oracle']} needs {AGAINST}, and the file names none")
    if backend_name:
        setup = replace(setup, backend=backend_name, options=None)
    setup = replace(setup, path=(*setup.path, os.getcwd()))
    with Examiner(setup, replace(LIMITS, timeout=timeout)) as examiner:
        if COMPILER in needs and not examiner.is_compiler_target():
            raise click.UsageError(f"{file_name}: the oracle {record['oracle']} needs {COMPILER}, which {setup.backend} is not")
        finding = examiner.judge_and_locate_fault(sample, record["seed"], record["oracle"])
        version = examiner.version()
    if as_json:
        print_json({"file": str(file), "backend": setup.backend, "version": version, "found": finding and finding.to_json()})
    elif finding is None:
        make_console_that_escapes_controls().print(
            f"{file_name}: {record['oracle']} has no objection to {version}", markup=False, soft_wrap=True
        )
    else:
        place = finding.location
        suffix = "" if place is None else f", pass {place.pass_}" + (f", rule {place.rule}" if place.rule else "")
        make_console_that_escapes_controls().print(
            f"{file_name}: {finding.oracle}{suffix}: {finding.fault.kind}: {finding.fault.message}", markup=False, soft_wrap=True
        )
    return 0 if finding is None else 1


def _print_kinds_and_oracles(as_json: bool) -> None:
    from uops.cli.texts import Text
    from uops.fuzz.generate.kinds import KINDS
    from uops.fuzz.oracles.oracles import ORACLES

    if as_json:
        listed: dict[str, Any] = {"kinds": {k.name: k.description for k in KINDS.values()}}
        print_json(listed | {"oracles": {o.name: {"what": o.what, "every": o.every} for o in ORACLES.values()}})
        return
    out = make_console_that_escapes_controls()
    for k in KINDS.values():
        out.print(Text.assemble(("kind    ", "dim"), (f"{k.name:12}", "bold"), k.description))
    for o in ORACLES.values():
        often = "" if o.every == 1 else f" (one case in {o.every})"
        out.print(Text.assemble(("oracle  ", "dim"), (f"{o.name:12}", "bold"), o.what, (often, "dim")))
