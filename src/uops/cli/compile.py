"""`uops compile`: a program at any stage of lowering."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from uops.cli.common import backend, backend_option, program_argument

if TYPE_CHECKING:
    from uops.backends.contract import CompilerBackend
    from uops.spec.node import UOp

#: Stages that are no graphs.
SOURCE, OBJECT = "source", "object"


@click.command("compile")
@program_argument()
@backend_option(required=True, help="Whose target to compile for.")
@click.option("--stage", "-s", default=SOURCE, show_default=True, help="A stage, the dialect that it gives, source or object.")
@click.option("--output", "-o", "out", type=click.Path(dir_okay=False, writable=True), metavar="OUT", help="Write to a file.")
def compile_(file: str, backend_name: str, stage: str, out: str | None) -> None:
    """Lower a .uops program and print it at any stage.

    A stage is .uops text, the target's source, or object code, which goes into a file. The stages are tensor (as given), callify,
    rangeify, optimize, expand, select, linearize, plan, render, source and object.
    """
    from uops.backends.contract import CompilerBackend
    from uops.spec.dialects import Dialect
    from uops.spec.errors import UopsError
    from uops.spec.text import parse_file
    from uops.spec.verify import verify

    name = stage_named(stage)
    root = parse_file(file)
    verify(root, Dialect.TENSOR)
    found = backend(backend_name)
    if not isinstance(found, CompilerBackend):
        raise UopsError(f"{backend_name} evaluates graphs by itself: it is no target of the compiler")
    if name == OBJECT:
        _write_objects(kernels(root, found), out)
        return
    text = "\n".join(source(k) for k in kernels(root, found)) if name == SOURCE else lowered(root, found, name)
    if out:
        Path(out).write_text(text, encoding="utf-8")
    else:
        click.echo(text, nl=not text.endswith("\n"))


def stage_named(word: str) -> str:
    """The stage with this name, or the one that gives the dialect of this name; a usage error lists all."""
    from uops.compiler import PIPELINE, STAGES

    given = {p.gives.value: p.stage for p in PIPELINE}
    known = {s: s for s in ("tensor", *STAGES, SOURCE, OBJECT)}
    name = known.get(word.lower()) or given.get(word.lower())
    if name is None:
        raise click.BadParameter(f"no stage is called {word!r}; the stages are {', '.join(known)}", param_hint="--stage")
    return name


def lowered(root: UOp, found: CompilerBackend, stage: str) -> str:
    """The graph after `stage`, as text with types."""
    from uops.compiler import lower
    from uops.spec.text import show

    return show(root if stage == "tensor" else lower(root, found.target, upto=stage), types=True)


def kernels(root: UOp, found: CompilerBackend) -> list[UOp]:
    """The distinct Program nodes of the compiled graph, in order of execution."""
    from uops.compiler import lower

    program = lower(root, found.target)
    return list(dict.fromkeys(call.src[0] for call in program.src))


def source(kernel: UOp) -> str:
    return str(kernel.src[1].arg.code)


def _write_objects(programs: list[UOp], out: str | None) -> None:
    """One kernel into OUT, several into OUT with a number before the suffix."""
    if out is None:
        raise click.UsageError("object code is no text: name a file with --output")
    path = Path(out)
    for k, program in enumerate(programs):
        place = path if len(programs) == 1 else path.with_name(f"{path.stem}-{k}{path.suffix}")
        place.write_bytes(program.src[2].arg.data)
        click.echo(str(place))
