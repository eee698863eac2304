"""`uops fuzz`: a campaign of random programs against a backend, or one finding of it once more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uops.cli.commands.conform import unwritable
from uops.cli.common import a_time, backend_option, console, json_option, print_json, to_reader, values_as_written
from uops.spec.untrusted import describe_path

if TYPE_CHECKING:
    from rich.console import Console

    from uops.fuzz.campaign.campaign import Campaign, Progress, Summary
    from uops.fuzz.campaign.examine import Setup

REPORT = "fuzz-report"
JOBS = min(2, os.cpu_count() or 1)
CASES = 10_000
TIMEOUT = 60.0
#: Exit statuses beside 0 and 1.
NOTHING_JUDGED, INTERRUPTED = 2, 130


@click.command(short_help="Run random programs on a backend and judge them.")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, readable=True))
@backend_option(help="Who is tested: a registered name, module:attribute, or interp.")
@click.option("--cases", "-n", type=click.IntRange(1), help=f"How many cases.  [default: {CASES:,}, unless --seconds is given]")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), callback=a_time, help="For how long, findings included.")
@click.option("--seed", type=int, default=0, show_default=True, help="Decides every case.")
@click.option("--jobs", "-j", type=click.IntRange(1), default=JOBS, show_default=True, help="Worker processes.")
@click.option("--kinds", default="tensor", show_default=True, metavar="NAMES", help="Kinds of programs, with commas; or all.")
@click.option("--oracles", default="all", show_default=True, metavar="NAMES", help="Who judges, with commas.")
@click.option("--against", metavar="NAME", help="A second backend, whose results are compared with the first one's.")
@click.option("--cluster", metavar="ADDRESS", help="A Dask scheduler, whose workers do it all; --jobs says nothing then.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    callback=a_time,
    default=TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="For one case; one that takes longer is a finding.",
)
@click.option("--report", type=click.Path(file_okay=False), default=REPORT, show_default=True, metavar="DIR", help="Where it goes.")
@click.option("--list", "listing", is_flag=True, help="Print the kinds and the oracles, and do nothing.")
@json_option()
@click.pass_context
def fuzz(
    ctx: click.Context, file: str | None, backend_name: str | None, cases: int | None, seconds: float | None, seed: int, jobs: int,
    kinds: str, oracles: str, against: str | None, cluster: str | None, timeout: float, report: str, listing: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Run random programs on a backend, judged by the interpreter.

    What fails is bisected, and reduced to a small program.

    With FILE, a reproducer from such a run, ask the oracle that found it once more, on the same backend or on another; of any
    other program with its inputs, ask whether what the backend gives is allowed. A campaign goes on from what the report directory
    holds, if that is of the same campaign. Exit status 1 if something was found, 2 if nothing that the backend does was judged.
    """
    values_as_written("fuzz")
    if listing:
        _list(as_json)
        ctx.exit(0)
    if file:
        ctx.exit(_replay(Path(file), backend_name, timeout, as_json))
    if not backend_name:
        raise click.UsageError("say who is tested with --backend NAME")
    if why := unwritable(Path(report)):
        raise click.BadParameter(f"no report can be written to {describe_path(report)}: {why}", param_hint="--report")
    setup = _setup(backend_name, seed, kinds, oracles, against)
    cases = cases if cases or seconds else CASES
    ctx.exit(_campaign(setup, Path(report), as_json, cases=cases, seconds=seconds, jobs=jobs, cluster=cluster, timeout=timeout))


def _setup(name: str, seed: int, kinds: str, oracles: str, against: str | None) -> Setup:
    from uops.cli.common import require_backend
    from uops.fuzz.campaign.examine import Setup
    from uops.fuzz.generate.kinds import KINDS, known
    from uops.fuzz.oracles.oracles import AGAINST, ORACLES, named

    for n in filter(None, (name, against)):
        require_backend(n)
    wanted = tuple(KINDS) if kinds == "all" else tuple(k.name for k in known(_words(kinds)))
    judges = tuple(ORACLES) if oracles == "all" else tuple(o.name for o in named(_words(oracles)))
    if not wanted or not judges:
        raise click.UsageError(f"--{'oracles' if wanted else 'kinds'} names nothing: see --list")
    lonely = [o for o in judges if AGAINST in ORACLES[o].needs]
    if lonely and oracles != "all" and not against:
        raise click.UsageError(f"the oracle {lonely[0]} needs a second backend: --against NAME")
    return Setup(name, seed, wanted, judges, against, path=(os.getcwd(),))


def _words(names: str) -> list[str]:
    return [n.strip() for n in names.split(",") if n.strip()]


def _campaign(setup: Setup, report: Path, as_json: bool, timeout: float, **how: Any) -> int:
    from dataclasses import replace

    from uops.fuzz.campaign.campaign import Campaign
    from uops.fuzz.campaign.process import LIMITS
    from uops.fuzz.campaign.report import was_judged, write

    campaign = Campaign(setup, report, limits=replace(LIMITS, timeout=timeout), **how)
    with _progress(campaign) as advance:
        found = campaign.run(advance)
    doc = write(found, report)
    with to_reader():
        if as_json:
            print_json(doc)
        else:
            _show(console(), found, report)
    if not found.complete:
        return INTERRUPTED
    return 1 if found.raw else 0 if was_judged(found) else NOTHING_JUDGED


@contextmanager
def _progress(campaign: Campaign) -> Iterator[Progress]:
    """What a campaign is doing, on standard error, on a terminal only."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    out = console(stderr=True)
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

        def advance(c: Campaign) -> None:
            nonlocal waits
            if c.crew.waits != waits:
                waits = c.crew.waits
                out.print(f"waiting: {waits}" if waits else "goes on", markup=False)
            failed = sum(c.state.raw.values())
            found = f"[bold red]{failed:,} failed[/]" if failed else "nothing found"
            bar.update(task, completed=c.state.done_cases, rate=f"{c.rate:,.0f} cases/s", found=found)

        yield advance


def _show(out: Console, s: Summary, report: Path) -> None:
    from rich import box
    from rich.table import Table

    from uops.cli.texts import Text
    from uops.fuzz.campaign.campaign import FINDINGS
    from uops.fuzz.campaign.report import describe_counts, describe_unjudged, refused, unheard, was_judged

    out.print(Text.assemble((s.setup.backend, "bold"), f"  {s.version}"))
    where = f"seed {s.setup.seed}, {', '.join(s.setup.kinds)}"
    speed = "all from the journal: nothing was left to do" if s.idle else f"{s.rate:,.1f} a second"
    out.print(Text(f"{s.cases:,} cases, {speed}; {where}", "dim"))
    if s.idle:
        out.print(Text("to run them again, remove the report directory or name another one with --report", "dim"))
    if not s.complete:
        out.print(Text("interrupted: the same command goes on from here", "bold yellow"))
    if (count := s.counts["judged"]) != s.cases:
        out.print(Text(f"{count:,} of these cases were judged on the backend", "yellow"))
    if count := refused(s.counts):
        out.print(Text(f"{count:,} of these cases were refused by the backend", "yellow"))
    if silent := unheard(s):
        out.print(Text(f"no case was judged by {', '.join(silent)}", "yellow"))
    if not was_judged(s):
        out.print(Text(describe_unjudged(s), "bold red"), soft_wrap=True)
    elif not s.raw:
        out.print(Text("nothing was found", "green"))
    else:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for title in ("Oracle", "Pass", "Rule or step", "Cases", "Nodes", "First", "What"):
            table.add_column(title, justify="right" if title in ("Cases", "Nodes", "First") else "left")
        for f in s.found:
            p = f.triaged.place
            place = (p.pass_, p.rule or p.step or "") if p else ("", "")
            what = f"{f.triaged.fault.kind}: {f.triaged.fault.message}"
            told = Text(what[:160]) if f.unreduced is None else Text.assemble(what[:160], (f" ({f.unreduced})", "dim"))
            table.add_row(f.triaged.oracle, *place, str(f.count), str(f.nodes or ""), str(f.k), told)
        out.print(table)
        total, looked_at = sum(s.raw.values()), sum(f.count for f in s.found)
        out.print(Text(describe_counts(total, looked_at, len(s.found), len(s.vanished)), "bold red"), soft_wrap=True)
        if s.unfinished:
            out.print(Text(f"{s.unfinished}: the campaign was over; the same command goes on from here", "bold yellow"))
        if any(f.file for f in s.found):
            again = ("  each again with ", "dim"), "uops fuzz FILE"
            out.print(Text.assemble("files   ", (describe_path(report / FINDINGS / "*.uops"), "bold"), *again), soft_wrap=True)
    out.print(Text.assemble("report  ", (describe_path(report / "index.html"), "bold")), soft_wrap=True)


def _replay(file: Path, name: str | None, timeout: float, as_json: bool) -> int:
    from dataclasses import replace

    from uops.fuzz.campaign.examine import Setup
    from uops.fuzz.campaign.process import LIMITS, Examiner
    from uops.fuzz.oracles.oracles import AGAINST, COMPILER, ORACLES
    from uops.fuzz.reduce.reproducer import of_plain, read

    called = describe_path(file)
    sample, about = (of_plain(file, name) if name else None) or read(file)
    setup = Setup.of(about["setup"])
    needs = ORACLES[about["oracle"]].needs if about["oracle"] in ORACLES else frozenset()
    if AGAINST in needs and not setup.against:
        raise click.UsageError(f"{called}: the oracle {about['oracle']} needs {AGAINST}, and the file names none")
    if name:
        setup = replace(setup, backend=name, options=None)
    setup = replace(setup, path=(*setup.path, os.getcwd()))
    with Examiner(setup, replace(LIMITS, timeout=timeout)) as examiner:
        if COMPILER in needs and not examiner.compiles():
            raise click.UsageError(f"{called}: the oracle {about['oracle']} needs {COMPILER}, which {setup.backend} is not")
        found = examiner.triage(sample, about["seed"], about["oracle"])
        version = examiner.version()
    if as_json:
        print_json({"file": str(file), "backend": setup.backend, "version": version, "found": found and found.to_json()})
    elif found is None:
        console().print(f"{called}: {about['oracle']} has no objection to {version}", markup=False, soft_wrap=True)
    else:
        p = found.place
        place = "" if p is None else f", pass {p.pass_}" + (f", rule {p.rule}" if p.rule else "")
        console().print(f"{called}: {found.oracle}{place}: {found.fault.kind}: {found.fault.message}", markup=False, soft_wrap=True)
    return 0 if found is None else 1


def _list(as_json: bool) -> None:
    from uops.cli.texts import Text
    from uops.fuzz.generate.kinds import KINDS
    from uops.fuzz.oracles.oracles import ORACLES

    if as_json:
        listed: dict[str, Any] = {"kinds": {k.name: k.what for k in KINDS.values()}}
        print_json(listed | {"oracles": {o.name: {"what": o.what, "every": o.every} for o in ORACLES.values()}})
        return
    out = console()
    for k in KINDS.values():
        out.print(Text.assemble(("kind    ", "dim"), (f"{k.name:12}", "bold"), k.what))
    for o in ORACLES.values():
        often = "" if o.every == 1 else f" (one case in {o.every})"
        out.print(Text.assemble(("oracle  ", "dim"), (f"{o.name:12}", "bold"), o.what, (often, "dim")))
