"""`uops bisect`: which pass of the compiler breaks a program; `uops stages`: whether any breaks a program of the suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uops.cli.common import backend_option, console, json_option, print_json, program_argument, values_as_written
from uops.cli.foreign import apart, target_of
from uops.spec.untrusted import describe_path

if TYPE_CHECKING:
    from uops.fuzz.bisect.bisect import Execute, Finding
    from uops.fuzz.oracles.stages import Outputs
    from uops.spec.ir.node import UOp

#: Seconds that machine code may take.
TIMEOUT = 600.0


@click.command(short_help="Name the pass that changed a result.")
@program_argument()
@backend_option(required=True, help="Whose target to compile for.")
@click.option(
    "--inputs", "-i", type=click.Path(exists=True, dir_okay=False), metavar="FILE.npz",
    help="Arrays named p<slot>, b<unique> and by variable. Without it they are random.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of random inputs.")
@click.option("--schedules", type=click.IntRange(0), default=0, show_default=True, help="More orders to run each stage under.")
@click.option("--out", "-o", type=click.Path(file_okay=False), metavar="DIR", help="Where the texts before and after go.")
@json_option()
@apart
@click.pass_context
def bisect(
    ctx: click.Context, file: str, backend_name: str, inputs: str | None, seed: int, schedules: int, out: str | None, as_json: bool
) -> None:  # fmt: skip
    """Name the pass whose result differs from the one before it.

    Compiles a .uops program, runs the interpreter on the output of every pass with the same inputs, and last the machine code, in a
    process of its own. Exit status 0 if all stages agree, 1 if one does not.
    """
    from uops.backends import npz
    from uops.cli.inputs import checked, random_inputs
    from uops.fuzz.bisect.bisect import bisect as search
    from uops.spec.ir.text import parse_file
    from uops.spec.verify.dialects import Dialect
    from uops.spec.verify.verifier import verify

    values_as_written("bisect")
    root = parse_file(file)
    verify(root, Dialect.TENSOR)
    found = target_of(backend_name)
    given = checked(root, npz.Inputs(inputs)) if inputs else random_inputs(root, seed)
    with machine_code(backend_name) as execute:
        finding = search(root, given, found.target, execute=execute(root), schedules=schedules)
    written = finding.write(Path(out), root, given) if finding is not None and out else []
    if as_json:
        head = {"file": file, "backend": backend_name, "seed": None if inputs else seed, "agree": finding is None}
        print_json(head | {"finding": finding and finding.to_json(), "files": [str(p) for p in written]})
    else:
        _print(file, finding, written)
    ctx.exit(0 if finding is None else 1)


@contextmanager
def machine_code(name: str) -> Iterator[Callable[[UOp], Execute]]:
    """Run graphs on a backend in a process of its own; an end that is neither a result nor a refusal is Unsound."""
    import numpy as np

    from uops.backends.worker.client import Case, Limits, Worker
    from uops.spec.errors import CompileError, Unsound

    with Worker(name, limits=Limits(timeout=TIMEOUT)) as worker:

        def run(root: UOp, inputs: Mapping[str, Any]) -> Outputs:
            outcome = worker.run(Case(root, inputs))
            if outcome.status == "unsupported":
                raise CompileError(outcome.message)
            if outcome.result is None:
                raise Unsound(f"{outcome.status}: {outcome.message}")
            values: Outputs = dict(enumerate(map(np.asarray, outcome.result.values)))
            return values | {k: np.asarray(v) for k, v in outcome.result.buffers.items()}

        yield lambda root: lambda program, inputs: run(root, inputs)


def _print(file: str, finding: Finding | None, written: list[Path]) -> None:
    from uops.cli.texts import Text

    out = console()
    if finding is None:
        out.print(Text(f"{describe_path(file)}: all stages agree"))
        return
    rows = {
        "stage": finding.stage, "pass": finding.pass_, "step": finding.step, "rule": finding.rule, "kernel": finding.kernel,
        "output": finding.fault.output, "element": finding.fault.element, "got": finding.fault.got,
        "allowed": finding.fault.allowed,
    }  # fmt: skip
    for name, value in rows.items():
        if value is not None:
            out.print(Text.assemble((f"{name:8}", "dim"), (str(value), "bold red" if name == "pass" else "")), soft_wrap=True)
    if finding.fault.got is None:
        out.print(Text(f"{finding.fault.kind}: {finding.fault.message}"), soft_wrap=True)
    for path in written:
        out.print(Text(describe_path(path), "dim"), soft_wrap=True)


@click.command(short_help="Bisect the programs of the conformance suite.")
@backend_option(default="llvm", show_default=True, help="Whose target to compile for.")
@click.option("--tier", type=click.Choice(("smoke", "full")), default="smoke", show_default=True, help="How many programs.")
@click.option("--rows", default="*", metavar="GLOB", help="Only rows whose id matches, such as 'Elementwise/*'.")
@click.option("--journal", type=click.Path(dir_okay=False), metavar="FILE", help="Keeps the answers; a second run goes on from it.")
@json_option()
@apart
@click.pass_context
def stages(ctx: click.Context, backend_name: str, tier: str, rows: str, journal: str | None, as_json: bool) -> None:
    """Bisect every program of the conformance suite.

    Exit status 1 if the stages of one do not agree. A program that the compiler refuses is counted, and is no failure.
    """
    from uops.backends.conformance.model import Tier
    from uops.cli.commands.conform import progress
    from uops.fuzz.oracles.agreement_stages import FINDING, agreement, programs

    values_as_written("stages")
    found = target_of(backend_name)
    every = programs(Tier(tier), rows)
    if not every:
        raise click.UsageError(f"no case of the {tier} tier has a row that matches {rows!r}")
    answers = []
    with progress(f"{backend_name}, {tier}") as advance, machine_code(backend_name) as execute:
        for answer in agreement(every, found.target, Path(journal) if journal else None, execute):
            answers.append(answer)
            advance(len(answers), len(every))
    wrong = [a for a in answers if a.status == FINDING]
    counts = {s: sum(a.status == s for a in answers) for s in dict.fromkeys(a.status for a in answers)}
    if as_json:
        print_json(
            {"backend": backend_name, "tier": tier, "rows": rows, "programs": counts, "findings": [a._asdict() for a in wrong]}
        )
    else:
        out = console()
        for a in wrong:
            out.print(f"{a.case}: {a.message}", markup=False, soft_wrap=True)
        out.print(", ".join(f"{n:,} {s}" for s, n in counts.items()))
    ctx.exit(1 if wrong else 0)
