"""`uops compile`: print a program at any stage of its lowering."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from uops.cli.common import (
    allow_native_option,
    backend_option,
    dialect_option,
    echo,
    program_argument,
    read_and_verify_program_wrapping_kernel,
)
from uops.cli.foreign import isolate_foreign_backend, load_compiler_backend

if TYPE_CHECKING:
    from uops.backends.contract import CompilerBackend
    from uops.compiler.config import Config
    from uops.spec.ir.node import UOp
    from uops.spec.verify.dialects import Dialect

#: Stages that are not graphs.
SOURCE, OBJECT = "source", "object"


@click.command("compile", short_help="Lower a .uops program and print it at any stage.")
@program_argument()
@backend_option(required=True, help="Backend whose target to compile for.")
@click.option("--stage", "-s", show_default=SOURCE, help="A stage, the dialect it returns, source or object.")
@click.option("--pass", "-p", "pass_", metavar="PASS", help="A pass, or a step of one, in place of a stage.")
@click.option(
    "--log", "log", is_flag=True, help="Print every application of a rewrite rule, as lines of JSON, in place of a stage."
)
@click.option(
    "--certificate",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Validate, and write what was proved. The program is printed only if --stage, --pass, --log or --output asks for it.",
)
@click.option("--fast-math", is_flag=True, help="Let float values change as the real numbers allow.")
@click.option(
    "--output",
    "-o",
    "out",
    type=click.Path(dir_okay=False, writable=True, allow_dash=True),
    metavar="OUT",
    help="Write to a file; - is standard output.",
)
@dialect_option("tensor", "What the program is written in: it enters at the stage that takes this.  [default: tensor]")
@allow_native_option()
@isolate_foreign_backend
def compile_(
    file: str,
    backend_name: str,
    dialect: str,
    stage: str | None,
    pass_: str | None,
    log: bool,
    certificate: str | None,
    fast_math: bool,
    out: str | None,
    allow_native: bool,
) -> None:
    """Lower a .uops program and print it at any stage.

    A stage is .uops text, the target's source, or object code, which goes into a file. The stages are tensor (as given), callify,
    rangeify, optimize, expand, select, linearize, plan, render, source and object. A pass is one of these stages, or a step of
    select: accumulate, widths, decompose, simplify.
    """
    from uops.compiler.config import default_config
    from uops.spec.verify.dialects import Dialect

    name = resolve_stage_or_dialect(stage or SOURCE)
    written = Dialect(dialect.lower())
    root = read_and_verify_program_wrapping_kernel(file, written, allow_native)
    if written is not Dialect.TENSOR and (log or pass_ or certificate is not None or fast_math):
        raise click.UsageError("--pass, --log, --certificate and --fast-math take programs of the tensor dialect alone")
    backend = load_compiler_backend(backend_name)
    config = replace(default_config(), fast_math=fast_math or default_config().fast_math)
    if certificate is not None:
        _certify_and_write_certificate(root, backend, config, certificate)
        if stage is pass_ is out is None and not log:
            return
    if log:
        text = "".join(trace_rewrites_as_json_lines(root, backend, config))
    elif pass_ is not None:
        text = lower_and_format_after_pass(root, backend, config, pass_)
    elif name == OBJECT:
        _write_object_files(compile_kernels(root, backend, config, written), out)
        return
    elif name == SOURCE:
        text = "\n".join(source(k) for k in compile_kernels(root, backend, config, written))
    else:
        text = lower_and_format_after_stage(root, backend, config, name, written)
    if out not in (None, "-"):
        from uops.spec.untrusted import write_text

        write_text(out, text)
    else:
        echo(text, nl=not text.endswith("\n"))


def resolve_stage_or_dialect(word: str) -> str:
    """Return the stage of this name, or the one that returns the dialect of this name; a usage error lists all."""
    from uops.compiler.pipeline import STAGE_OF_DIALECT, STAGES

    stage_of_dialect = {dialect.value: stage for dialect, stage in STAGE_OF_DIALECT.items()}
    stages = {s: s for s in ("tensor", *STAGES, SOURCE, OBJECT)}
    name = stages.get(word.lower()) or stage_of_dialect.get(word.lower())
    if name is None:
        raise click.BadParameter(f"no stage is called {word!r}; the stages are {', '.join(stages)}", param_hint="--stage")
    return name


def lower_and_format_after_stage(root: UOp, backend: CompilerBackend, config: Config, stage: str, dialect: Dialect) -> str:
    """Return the graph, which is written in `dialect`, after `stage` as text with types."""
    from uops.compiler import lower
    from uops.spec.ir.text import show

    return show(root if stage == "tensor" else lower(root, backend.target, stage, config, dialect=dialect), types=True)


def lower_and_format_after_pass(root: UOp, backend: CompilerBackend, config: Config, pass_or_step: str) -> str:
    """Return the graph after a pass, or after a step of one, as text with types; a usage error lists all."""
    from uops.compiler.pipeline import PIPELINE, LoweringState, run_pass_and_verify
    from uops.spec.ir.text import show

    state = LoweringState(backend.target, config, steps={})
    assert state.steps is not None
    for p in PIPELINE:
        root = run_pass_and_verify(p, root, state)
        if p.name == pass_or_step or pass_or_step in state.steps:
            return show(root if p.name == pass_or_step else state.steps[pass_or_step], types=True)
    names = [*(p.name for p in PIPELINE), *state.steps]
    raise click.BadParameter(f"no pass is called {pass_or_step!r}; the passes are {', '.join(names)}", param_hint="--pass")


def trace_rewrites_as_json_lines(root: UOp, backend: CompilerBackend, config: Config) -> Iterator[str]:
    """Yield a JSON line per application of a rule: the rule, the node before and after, and the bindings of its variables.

    A rule of fast-math adds its assumption.
    """
    from uops.compiler.trace import trace_lowering
    from uops.spec.ir.node import UOp as Node
    from uops.spec.ir.text import show

    traced = trace_lowering(root, backend.target, config)
    rules = traced.rules()
    for step in traced.steps():
        bindings = {k: show(v) if isinstance(v, Node) else str(v) for k, v in step.binding.items()}
        line = {"rule": step.rule, "before": show(step.before), "after": show(step.after), "where": bindings}
        assumed = rules[step.rule].assumes
        yield json.dumps(line if assumed is None else {**line, "assumes": str(assumed)}) + "\n"


def _certify_and_write_certificate(root: UOp, backend: CompilerBackend, config: Config, out: str) -> None:
    """Write the certificate of the program; a kernel that is not validated is an error, and nothing is written."""
    from uops.compiler.validate.certificate import certify, dump_certificate
    from uops.spec.untrusted import describe_path, write_text

    certificate = certify(root, backend.target, config)
    write_text(out, dump_certificate(certificate))
    echo(
        f"{describe_path(out)}: {len(certificate['claims'])} claims proved, {len(certificate['rules'])} rules used. It rests on:",
        err=True,
    )
    for line in certificate["trusted"]:
        echo(f"  - {line}", err=True)


def compile_kernels(root: UOp, backend: CompilerBackend, config: Config, dialect: Dialect) -> list[UOp]:
    """Return the distinct Program nodes of the compiled graph, which is written in `dialect`, in order of execution.

    A Call of a CustomFunction has none.
    """
    from uops.compiler import lower
    from uops.spec.ir.ops import Op

    program = lower(root, backend.target, config=config, dialect=dialect)
    return list(dict.fromkeys(call.body for call in program.instructions if call.body.op is Op.PROGRAM))


def source(kernel: UOp) -> str:
    """Return the source text of a Program."""
    assert kernel.source is not None, "a compiled Program has its source"
    return str(kernel.source.arg.code)


def _write_object_files(programs: list[UOp], out: str | None) -> None:
    """Write one kernel to OUT, or several to OUT with a number before the suffix."""
    from uops.spec.untrusted import describe_path, write_bytes

    if out in (None, "-"):
        raise click.UsageError("object code is binary: name a file with --output")
    if not programs:
        raise click.UsageError("the program has no kernel, so it has no object code")
    path = Path(out)
    for k, program in enumerate(programs):
        place = path if len(programs) == 1 else path.with_name(f"{path.stem}-{k}{path.suffix}")
        assert program.binary is not None, "a compiled Program has its object code"
        write_bytes(place, program.binary.arg.data)
        echo(describe_path(place))
