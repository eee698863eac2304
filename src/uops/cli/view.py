"""`uops view`: a lowering as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from uops.cli.common import backend_option, echo, program_argument
from uops.cli.foreign import apart, target_of


@click.command()
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

    The page needs no network.

    Choose a node to see what it was and became in every stage, and the rules and passes that did it.
    """
    from uops.cli.viewer.columns import view as shown
    from uops.cli.viewer.page import page
    from uops.compiler.trace import trace
    from uops.spec.dialects import Dialect
    from uops.spec.text import parse_file
    from uops.spec.untrusted import write_text
    from uops.spec.verify import verify

    root = parse_file(file)
    verify(root, Dialect.TENSOR)
    found = target_of(backend_name)
    path = Path(out) if out else Path(Path(file).name).with_suffix(".html")
    write_text(path, page(shown(trace(root, found.target)), Path(file).name, found.target.name))
    echo(str(path))
