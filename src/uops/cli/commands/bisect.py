"""`uops bisect`: find the compiler pass that breaks a program. `uops stages`: find out if one breaks a program of the suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uops.cli.common import (
    allow_native_option,
    backend_option,
    json_option,
    make_console_that_escapes_controls,
    parse_program,
    print_json,
    program_argument,
    refuse_under_fast_math,
)
from uops.cli.foreign import isolate_foreign_backend, load_compiler_backend
from uops.spec.untrusted import describe_path

if TYPE_CHECKING:
    from uops.backends.conformance.stage_judge import Outputs
    from uops.fuzz.bisect.bisect import Execute, Finding
    from uops.spec.ir.node import UOp

#: Time limit for machine code, in seconds.
TIMEOUT = 600.0


@click.command(short_help="Name the pass that changed a result.")
@program_argument()
@backend_option(required=True, help="Backend whose target to compile for.")
@click.option(
    "--inputs", "-i", type=click.Path(exists=True, dir_okay=False), metavar="FILE.npz",
    help="Arrays named p<slot>, b<unique> and by variable. Without it they are random.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of random inputs.")
@click.option(
    "--schedules", type=click.IntRange(0), default=0, show_default=True, help="Number of further iteration orders per stage."
)
@click.option("--out", "-o", type=click.Path(file_okay=False), metavar="DIR", help="Directory for the texts before and after.")
@allow_native_option()
@json_option()
@isolate_foreign_backend
@click.pass_context
def bisect(
    ctx: click.Context, file: str, backend_name: str, inputs: str | None, seed: int, schedules: int, out: str | None,
    allow_native: bool, as_json: bool,
) -> None:  # fmt: skip
    """Name the pass whose result differs from the one before it.

    Compiles a .uops program and runs the interpreter on the output of every pass with the same inputs. Then it runs the machine
    code in a process of its own. Exit status 0 if all stages agree, 1 if one does not.
    """
    from uops.backends import npz
    from uops.cli.inputs import check_and_convert_inputs, random_inputs
    from uops.fuzz.bisect.bisect import bisect as search
    from uops.spec.verify.dialects import Dialect
    from uops.spec.verify.verifier import verify

    refuse_under_fast_math("bisect")
    root = parse_program(file, allow_native)
    verify(root, Dialect.TENSOR)
    backend = load_compiler_backend(backend_name)
    values = check_and_convert_inputs(root, npz.InputFile(inputs)) if inputs else random_inputs(root, seed)
    with open_runner_in_backend_worker(backend_name) as execute:
        finding = search(root, values, backend.target, execute=execute(root), extra_orders=schedules)
    written = finding.write_to_directory(Path(out), root, values) if finding is not None and out else []
    if as_json:
        head = {"file": file, "backend": backend_name, "seed": None if inputs else seed, "agree": finding is None}
        print_json(head | {"finding": finding and finding.to_json(), "files": [str(p) for p in written]})
    else:
        _print_finding(file, finding, written)
    ctx.exit(0 if finding is None else 1)


@contextmanager
def open_runner_in_backend_worker(backend_name: str) -> Iterator[Callable[[UOp], Execute]]:
    """Run graphs on a backend in a process of its own.

    An end that is neither a result nor a refusal raises Unsound.
    """
    import numpy as np

    from uops.backends.worker.client import BackendWorker, Limits, WorkerCase
    from uops.spec.errors import CompileError, Unsound

    with BackendWorker(backend_name, limits=Limits(timeout=TIMEOUT)) as worker:

        def compile_and_run_on_worker(root: UOp, inputs: Mapping[str, Any]) -> Outputs:
            outcome = worker.run(WorkerCase(root, inputs))
            if outcome.status == "unsupported":
                raise CompileError(outcome.message)
            if outcome.result is None:
                raise Unsound(f"{outcome.status}: {outcome.message}")
            values: Outputs = dict(enumerate(map(np.asarray, outcome.result.values)))
            return values | {k: np.asarray(v) for k, v in outcome.result.buffers.items()}

        yield lambda root: lambda program, inputs: compile_and_run_on_worker(root, inputs)


def _print_finding(file: str, finding: Finding | None, written_paths: list[Path]) -> None:
    from uops.cli.texts import Text

    out = make_console_that_escapes_controls()
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
    for path in written_paths:
        out.print(Text(describe_path(path), "dim"), soft_wrap=True)


@click.command(short_help="Bisect the programs of the conformance suite.")
@backend_option(default="llvm", show_default=True, help="Backend whose target to compile for.")
@click.option("--tier", type=click.Choice(("smoke", "full")), default="smoke", show_default=True, help="Extent of the suite.")
@click.option("--rows", default="*", metavar="GLOB", help="Only rows whose id matches, such as 'Elementwise/*'.")
@click.option("--journal", type=click.Path(dir_okay=False), metavar="FILE", help="Record the answers, and resume from it.")
@json_option()
@isolate_foreign_backend
@click.pass_context
def stages(ctx: click.Context, backend_name: str, tier: str, rows: str, journal: str | None, as_json: bool) -> None:
    """Bisect every program of the conformance suite.

    Exit status 1 if the stages of one do not agree. A program that the compiler refuses is counted, and is not a failure.
    """
    from uops.backends.conformance.cases.compiled import list_programs_every_target_compiles
    from uops.backends.conformance.model import ConformanceTier
    from uops.cli.commands.conform import show_progress
    from uops.fuzz.oracles.agreement_stages import FINDING, bisect_programs_with_journal

    refuse_under_fast_math("stages")
    backend = load_compiler_backend(backend_name)
    cases = list_programs_every_target_compiles(ConformanceTier(tier), rows)
    if not cases:
        raise click.UsageError(f"no case of the {tier} tier has a row that matches {rows!r}")
    answers = []
    with show_progress(f"{backend_name}, {tier}") as advance, open_runner_in_backend_worker(backend_name) as execute:
        for answer in bisect_programs_with_journal(cases, backend.target, Path(journal) if journal else None, execute):
            answers.append(answer)
            advance(len(answers), len(cases))
    wrong = [a for a in answers if a.status == FINDING]
    counts = {s: sum(a.status == s for a in answers) for s in dict.fromkeys(a.status for a in answers)}
    if as_json:
        print_json(
            {"backend": backend_name, "tier": tier, "rows": rows, "programs": counts, "findings": [a._asdict() for a in wrong]}
        )
    else:
        out = make_console_that_escapes_controls()
        for a in wrong:
            out.print(f"{a.case}: {a.message}", markup=False, soft_wrap=True)
        out.print(", ".join(f"{n:,} {s}" for s, n in counts.items()))
    ctx.exit(1 if wrong else 0)
