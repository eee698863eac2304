"""`uops view`: show a lowering as one HTML page."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from uops.cli.common import allow_native_option, backend_option, echo, parse_program, program_argument
from uops.cli.foreign import isolate_foreign_backend, load_compiler_backend

if TYPE_CHECKING:
    from uops.cli.viewer.columns import TraceView
    from uops.compiler.target import Target
    from uops.spec.ir.node import UOp

#: Seconds between progress lines without a terminal.
EVERY = 5.0
#: Fraction of the free memory that a lowering may use.
SHARE = 0.8


@click.command(short_help="Show a lowering as one HTML page.")
@program_argument()
@backend_option(default="llvm", show_default=True, help="Backend whose target to compile for.")
@click.option(
    "--output",
    "-o",
    "out",
    type=click.Path(dir_okay=False, writable=True),
    metavar="OUT",
    help="The page.  [default: the name of FILE with suffix .html]",
)
@allow_native_option()
@isolate_foreign_backend
def view(file: str, backend_name: str, out: str | None, allow_native: bool) -> None:
    """Show a lowering as one HTML page, a column per stage.

    The page needs no network. Of a program of many kernels, it shows the first one; choose others, or all, in the page. A lowering
    that would use more memory than is free ends with an error.

    Choose a node to see its history in every stage, and the rules and passes behind it.
    """
    from uops.cli.commands.conform import show_progress
    from uops.cli.viewer.page import render_page
    from uops.spec.untrusted import describe_path, escape_to_one_line, write_text
    from uops.spec.verify.dialects import Dialect
    from uops.spec.verify.verifier import verify

    path = Path(out) if out else Path(Path(file).name).with_suffix(".html")
    if path.exists() and os.path.samefile(path, file):
        raise click.UsageError(f"the page would replace the program {describe_path(file)}: name another file with --output")
    backend = load_compiler_backend(backend_name)
    name = escape_to_one_line(Path(file).name)
    with _pause_garbage_collection():
        with show_progress(f"{name}: reading", line_interval=EVERY):
            root = parse_program(file, allow_native)
            verify(root, Dialect.TENSOR)
        with _limit_memory_to_free(name):
            shown = _lower_and_build_view(root, backend.target, name)
            write_text(path, render_page(shown, Path(file).name, backend.target.name))
    echo(describe_path(path))


def _lower_and_build_view(root: UOp, target: Target, program_name: str) -> TraceView:
    """Lower the program with progress on standard error, and build its view."""
    from uops.cli.commands.conform import show_progress
    from uops.cli.viewer.columns import build_view as columns_of
    from uops.compiler import STAGES
    from uops.compiler.trace import trace_lowering

    with show_progress(f"{program_name}: lowering", line_interval=EVERY) as advance:
        traced = trace_lowering(root, target, on_stage=lambda stage: advance(STAGES.index(stage) + 1, len(STAGES)))
    with show_progress(f"{program_name}: drawing kernels of all stages", line_interval=EVERY) as advance:
        return columns_of(traced, advance)


@contextmanager
def _limit_memory_to_free(program_name: str) -> Iterator[None]:
    """Limit memory to what is free now, within the context.

    Raises ClickException when that is exceeded, before the system kills processes without a message.
    """
    from uops.spec.resources import address_space_in_use, read_system_mem_available_bytes

    free, limits = read_system_mem_available_bytes(), resource.getrlimit(resource.RLIMIT_AS)
    if free is not None:
        most = address_space_in_use() + int(free * SHARE)
        soft_limit = most if limits[0] == resource.RLIM_INFINITY else min(most, limits[0])
        resource.setrlimit(resource.RLIMIT_AS, (soft_limit, limits[1]))
    try:
        yield
    except MemoryError:
        shortage = f"more than the {free / 2**30:.1f} GiB that are free" if free else "more memory than there is"
        raise click.ClickException(
            f"{program_name}: the lowering and its record take {shortage}; view a part of the program"
        ) from None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@contextmanager
def _pause_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector within the context: it would walk a large trace repeatedly, for half of the time, and free
    nothing."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
