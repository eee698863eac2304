"""`uops compile`: a program at any stage of lowering."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from uops.cli.common import backend_option, echo, program_argument
from uops.cli.foreign import apart, target_of

if TYPE_CHECKING:
    from uops.backends.contract import CompilerBackend
    from uops.compiler.config import Config
    from uops.spec.ir.node import UOp

#: Stages that are no graphs.
SOURCE, OBJECT = "source", "object"


@click.command("compile", short_help="Lower a .uops program and print it at any stage.")
@program_argument()
@backend_option(required=True, help="Whose target to compile for.")
@click.option("--stage", "-s", show_default=SOURCE, help="A stage, the dialect that it gives, source or object.")
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
@apart
def compile_(
    file: str,
    backend_name: str,
    stage: str | None,
    pass_: str | None,
    log: bool,
    certificate: str | None,
    fast_math: bool,
    out: str | None,
) -> None:
    """Lower a .uops program and print it at any stage.

    A stage is .uops text, the target's source, or object code, which goes into a file. The stages are tensor (as given), callify,
    rangeify, optimize, expand, select, linearize, plan, render, source and object. A pass is one of these stages, or a step of
    select: accumulate, widths, decompose, simplify.
    """
    from uops.compiler.config import default
    from uops.spec.ir.text import parse_file
    from uops.spec.verify.dialects import Dialect
    from uops.spec.verify.verifier import verify

    name = stage_named(stage or SOURCE)
    root = parse_file(file)
    verify(root, Dialect.TENSOR)
    found = target_of(backend_name)
    config = replace(default(), fast_math=fast_math or default().fast_math)
    if certificate is not None:
        _certify(root, found, config, certificate)
        if stage is pass_ is out is None and not log:
            return
    if name == OBJECT:
        _write_objects(kernels(root, found, config), out)
        return
    if log:
        text = "".join(steps(root, found, config))
    elif pass_ is not None:
        text = passed(root, found, config, pass_)
    elif name == SOURCE:
        text = "\n".join(source(k) for k in kernels(root, found, config))
    else:
        text = lowered(root, found, config, name)
    if out not in (None, "-"):
        from uops.spec.untrusted import write_text

        write_text(out, text)
    else:
        echo(text, nl=not text.endswith("\n"))


def stage_named(word: str) -> str:
    """The stage with this name, or the one that gives the dialect of this name; a usage error lists all."""
    from uops.compiler import PIPELINE, STAGES

    given = {p.gives.value: p.stage for p in PIPELINE}
    known = {s: s for s in ("tensor", *STAGES, SOURCE, OBJECT)}
    name = known.get(word.lower()) or given.get(word.lower())
    if name is None:
        raise click.BadParameter(f"no stage is called {word!r}; the stages are {', '.join(known)}", param_hint="--stage")
    return name


def lowered(root: UOp, found: CompilerBackend, config: Config, stage: str) -> str:
    """The graph after `stage`, as text with types."""
    from uops.compiler import lower
    from uops.spec.ir.text import show

    return show(root if stage == "tensor" else lower(root, found.target, stage, config), types=True)


def passed(root: UOp, found: CompilerBackend, config: Config, name: str) -> str:
    """The graph after a pass, or after a step of one, as text with types; a usage error lists all."""
    from uops.compiler.pipeline import PIPELINE, Lowering, run_pass
    from uops.spec.ir.text import show

    state = Lowering(found.target, config, steps={})
    assert state.steps is not None
    for p in PIPELINE:
        root = run_pass(p, root, state)
        if p.name == name or name in state.steps:
            return show(root if p.name == name else state.steps[name], types=True)
    known = [*(p.name for p in PIPELINE), *state.steps]
    raise click.BadParameter(f"no pass is called {name!r}; the passes are {', '.join(known)}", param_hint="--pass")


def steps(root: UOp, found: CompilerBackend, config: Config) -> Iterator[str]:
    """A line per application of a rule: the rule, the node before and after, and what the rule's variables stood for; of a rule of
    fast-math also what it assumes."""
    from uops.compiler.trace import trace
    from uops.spec.ir.node import UOp as Node
    from uops.spec.ir.text import show

    seen = trace(root, found.target, config)
    rules = seen.rules()
    for s in seen.steps():
        where = {k: show(v) if isinstance(v, Node) else str(v) for k, v in s.binding.items()}
        line = {"rule": s.rule, "before": show(s.before), "after": show(s.after), "where": where}
        assumed = rules[s.rule].assumes
        yield json.dumps(line if assumed is None else {**line, "assumes": str(assumed)}) + "\n"


def _certify(root: UOp, found: CompilerBackend, config: Config, out: str) -> None:
    """Write the certificate of the program; nothing where a kernel is not validated, which is an error."""
    from uops.compiler.validate.certificate import certify, dump
    from uops.spec.untrusted import describe_path, write_text

    made = certify(root, found.target, config)
    write_text(out, dump(made))
    echo(f"{describe_path(out)}: {len(made['claims'])} claims proved, {len(made['rules'])} rules used. It rests on:", err=True)
    for line in made["trusted"]:
        echo(f"  - {line}", err=True)


def kernels(root: UOp, found: CompilerBackend, config: Config) -> list[UOp]:
    """The distinct Program nodes of the compiled graph, in order of execution."""
    from uops.compiler import lower

    program = lower(root, found.target, config=config)
    return list(dict.fromkeys(call.src[0] for call in program.src))


def source(kernel: UOp) -> str:
    return str(kernel.src[1].arg.code)


def _write_objects(programs: list[UOp], out: str | None) -> None:
    """One kernel into OUT, several into OUT with a number before the suffix."""
    from uops.spec.untrusted import describe_path, write_bytes

    if out in (None, "-"):
        raise click.UsageError("object code is no text: name a file with --output")
    path = Path(out)
    for k, program in enumerate(programs):
        place = path if len(programs) == 1 else path.with_name(f"{path.stem}-{k}{path.suffix}")
        write_bytes(place, program.src[2].arg.data)
        echo(describe_path(place))
