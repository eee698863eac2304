"""The command `uops`: look up the specification, check, run and compile programs, and judge backends.

One module per command. A command imports what it needs when it runs, so that `uops --help` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from uops import __version__
from uops.cli.commands.bisect import bisect, stages
from uops.cli.commands.certificate import check_certificate
from uops.cli.commands.check import check
from uops.cli.commands.compile import compile_
from uops.cli.commands.conform import conform
from uops.cli.commands.fuzz import fuzz
from uops.cli.commands.mutants import mutants
from uops.cli.commands.prove import prove
from uops.cli.commands.run import run
from uops.cli.commands.search import search
from uops.cli.commands.spec import spec
from uops.cli.commands.view import view
from uops.cli.common import echo, is_told, open_streams, to_reader, writing
from uops.spec.errors import Crash, SpecError, UopsError
from uops.spec.untrusted import printable, quote_name

__all__ = ["main"]

USER_ERROR = 2
INTERRUPTED = 130


class Problem(click.ClickException):
    """What went wrong, in words; a traceback would only say where we noticed."""

    exit_code = USER_ERROR

    def __init__(self, error: Exception) -> None:
        super().__init__(printable(words(error)))


def words(error: Exception) -> str:
    """The message of an error, with the id of the claim that was broken."""
    text = str(error)
    if isinstance(error, MemoryError):
        return f"not enough memory: {text}" if text else "not enough memory"
    if isinstance(error, Crash):
        return f"internal error, please report it: {text}"
    claim = error.claim if isinstance(error, SpecError) else None
    return f"{claim}: {text}" if claim and claim not in text else text


@contextmanager
def _printable_errors() -> Iterator[None]:
    """Take out of what an error says of somebody's names what could act on a terminal."""
    try:
        yield
    except click.ClickException as e:
        spell = quote_name if isinstance(e, click.UsageError) else printable  # one says names, the other also what a backend said
        vars(e)["message"] = spell(e.message)  # final to a type checker
        raise


class Group(click.Group):
    """Turns the errors of this package into messages, Ctrl-C into exit status 130, and a reader who leaves into a quiet end."""

    def main(self, *arguments: Any, **settings: Any) -> Any:
        open_streams()
        return super().main(*arguments, **settings)

    def _main_shell_completion(self, *arguments: Any, **settings: Any) -> None:
        """Print what a shell asks for; click does this outside of any command."""
        try:
            with to_reader(), writing():
                super()._main_shell_completion(*arguments, **settings)
        except OSError as e:
            Problem(e).show()
            sys.exit(USER_ERROR)

    def make_context(self, *arguments: Any, **settings: Any) -> click.Context:
        """Parse, and keep the command line for who runs it again; `--help` and `--version` print here."""
        given = list(arguments[1]) if len(arguments) > 1 else []
        try:
            with to_reader(), writing(), _printable_errors():
                return super().make_context(*arguments, obj=given, **settings)
        except OSError as e:
            raise Problem(e) from e
        raise click.exceptions.Exit(0)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with to_reader(), _printable_errors():
                return super().invoke(ctx)
            ctx.exit(0)
        except (UopsError, MemoryError, OSError) as e:
            raise Problem(e) from e
        except KeyboardInterrupt:
            if is_told():
                raise
            echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)


@click.group(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""Completion: put the output of `_UOPS_COMPLETE=bash_source uops` (or zsh_source, fish_source) where your shell reads
    it, for example `eval "$(_UOPS_COMPLETE=bash_source uops)"` in ~/.bashrc.

    Exit status: 0 all is well, 1 the answer is no (a broken claim, a failing cell, a regression, a crash of a backend), 2 the
    question was wrong, 130 interrupted.""",
)
@click.version_option(__version__, prog_name="uops")
def main() -> None:
    """An executable UOp specification: its rows, a reference interpreter, a compiler, and the judge of any backend."""


for _command in (spec, check, run, compile_, view, search, bisect, stages, prove, check_certificate, conform, fuzz, mutants):
    main.add_command(_command)
