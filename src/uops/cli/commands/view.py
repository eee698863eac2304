"""`uops view`: a lowering as one HTML page."""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from uops.cli.common import backend_option, echo, program_argument
from uops.cli.foreign import apart, target_of

if TYPE_CHECKING:
    from uops.cli.viewer.columns import View
    from uops.compiler.target import Target
    from uops.spec.ir.node import UOp

#: Seconds between lines about the progress, where there is no terminal.
EVERY = 5.0
#: The part of the free memory that a lowering may take.
SHARE = 0.8


@click.command(short_help="Show a lowering as one HTML page.")
@program_argument()
@backend_option(default="llvm", show_default=True, help="Whose target to compile for.")
@click.option(
    "--output",
    "-o",
    "out",
    type=click.Path(dir_okay=False, writable=True),
    metavar="OUT",
    help="The page; FILE with .html if left out.",
)
@apart
def view(file: str, backend_name: str, out: str | None) -> None:
    """Show a lowering as one HTML page, a column per stage.

    The page needs no network. Of a program of many kernels it shows the first one; choose others, or all, in the page. A lowering
    that would take more memory than is free ends with an error.

    Choose a node to see what it was and became in every stage, and the rules and passes that did it.
    """
    from uops.cli.commands.conform import progress
    from uops.cli.viewer.page import page
    from uops.spec.ir.text import parse_file
    from uops.spec.untrusted import describe_path, quote_name, write_text
    from uops.spec.verify.dialects import Dialect
    from uops.spec.verify.verifier import verify

    found = target_of(backend_name)
    path = Path(out) if out else Path(Path(file).name).with_suffix(".html")
    name = quote_name(Path(file).name)
    with _pause_collection():
        with progress(f"{name}: reading", every=EVERY):
            root = parse_file(file)
            verify(root, Dialect.TENSOR)
        with _limit_memory(name):
            shown = _look(root, found.target, name)
            write_text(path, page(shown, Path(file).name, found.target.name))
    echo(describe_path(path))


def _look(root: UOp, target: Target, name: str) -> View:
    """Lower the program and say on standard error how far it is."""
    from uops.cli.commands.conform import progress
    from uops.cli.viewer.columns import view as columns_of
    from uops.compiler import STAGES
    from uops.compiler.trace import trace

    with progress(f"{name}: lowering", every=EVERY) as advance:
        traced = trace(root, target, reached=lambda stage: advance(STAGES.index(stage) + 1, len(STAGES)))
    with progress(f"{name}: drawing kernels of all stages", every=EVERY) as advance:
        return columns_of(traced, advance)


@contextmanager
def _limit_memory(name: str) -> Iterator[None]:
    """Let what is inside take the memory that is free now, and no more. Raises ClickException where that is not enough, before the
    system ends processes, which it does without a word."""
    from uops.spec.resources import address_space, free_memory

    free, limits = free_memory(), resource.getrlimit(resource.RLIMIT_AS)
    if free is not None:
        most = address_space() + int(free * SHARE)
        ours = most if limits[0] == resource.RLIM_INFINITY else min(most, limits[0])
        resource.setrlimit(resource.RLIMIT_AS, (ours, limits[1]))
    try:
        yield
    except MemoryError:
        told = f"more than the {free / 2**30:.1f} GiB that are free" if free else "more memory than there is"
        raise click.ClickException(
            f"{name}: its lowering, with all that is recorded of it, takes {told}; view a part of it"
        ) from None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@contextmanager
def _pause_collection() -> Iterator[None]:
    """Leave out the garbage collector, which would walk a large trace again and again and find nothing: half of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
