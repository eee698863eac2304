"""The command `uops`: look up the specification, check, run and compile programs, and judge backends.

There is one module per command. A command imports its dependencies when it runs, inside its functions, so that `uops --help`
answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from uops import __version__
from uops.cli.commands.backends import backends
from uops.cli.commands.bisect import bisect, stages
from uops.cli.commands.certificate import check_certificate
from uops.cli.commands.check import check
from uops.cli.commands.compile import compile_
from uops.cli.commands.conform import conform
from uops.cli.commands.fuzz import fuzz
from uops.cli.commands.mutants import mutants
from uops.cli.commands.new_backend import new_backend
from uops.cli.commands.prove import prove
from uops.cli.commands.run import run
from uops.cli.commands.search import search
from uops.cli.commands.site import site
from uops.cli.commands.spec import spec
from uops.cli.commands.view import view
from uops.cli.common import (
    INTERRUPTED,
    USER_ERROR,
    echo,
    flush_output_and_ignore_broken_pipe,
    is_output_redirected,
    name_output_stream_in_errors,
    open_null_for_closed_streams,
)
from uops.spec.errors import Crash, SpecError, UopsError
from uops.spec.untrusted import escape_to_one_line, escape_unprintable

__all__ = ["main"]


class CliError(click.ClickException):
    """An error of the package as a message of the command line, without a traceback."""

    exit_code = USER_ERROR

    def __init__(self, error: Exception) -> None:
        super().__init__(escape_unprintable(error_message_with_claim_id(error)))


def error_message_with_claim_id(error: Exception) -> str:
    """Return the message of an error, with the id of the broken claim."""
    text = str(error)
    if isinstance(error, MemoryError):
        return f"not enough memory: {text}" if text else "not enough memory"
    if isinstance(error, Crash):
        return f"internal error, please report it: {text}"
    claim = error.claim if isinstance(error, SpecError) else None
    return f"{claim}: {text}" if claim and claim not in text else text


@contextmanager
def _escape_click_error_messages() -> Iterator[None]:
    """Escape characters of foreign names in errors that could control a terminal."""
    try:
        yield
    except click.ClickException as e:
        escape = (
            escape_to_one_line if isinstance(e, click.UsageError) else escape_unprintable
        )  # the first quotes names, the other may quote a backend
        vars(e)["message"] = escape(e.message)  # final to a type checker
        raise


class CommandGroup(click.Group):
    """The group of commands: it turns errors into messages, Ctrl-C into status 130, and a closed reader into a quiet end."""

    def main(self, *arguments: Any, **settings: Any) -> Any:
        """Run the command line, after opening missing standard streams."""
        open_null_for_closed_streams()
        return super().main(*arguments, **settings)

    def _main_shell_completion(self, *arguments: Any, **settings: Any) -> None:
        """Print completions for a shell; click does this outside any command."""
        try:
            with flush_output_and_ignore_broken_pipe(), name_output_stream_in_errors():
                super()._main_shell_completion(*arguments, **settings)
        except OSError as e:
            CliError(e).show()
            sys.exit(USER_ERROR)

    def make_context(self, *arguments: Any, **settings: Any) -> click.Context:
        """Parse the command line, and keep it for a process that runs it again; `--help` and `--version` print here."""
        command_line = list(arguments[1]) if len(arguments) > 1 else []
        try:
            with flush_output_and_ignore_broken_pipe(), name_output_stream_in_errors(), _escape_click_error_messages():
                return super().make_context(*arguments, obj=command_line, **settings)
        except OSError as e:
            raise CliError(e) from e
        raise click.exceptions.Exit(0)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and turn its errors into messages."""
        try:
            with flush_output_and_ignore_broken_pipe(), _escape_click_error_messages():
                return super().invoke(ctx)
            ctx.exit(0)
        except (UopsError, MemoryError, OSError) as e:
            raise CliError(e) from e
        except KeyboardInterrupt:
            if is_output_redirected():
                raise
            echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""Completion: put the output of `_UOPS_COMPLETE=bash_source uops` (or zsh_source, fish_source) where your shell reads
    it, for example `eval "$(_UOPS_COMPLETE=bash_source uops)"` in ~/.bashrc.

    Exit status: 0 all is well, 1 the answer is no (a broken claim, a failing cell, a regression, a crash of a backend), 2 the
    question was wrong, 130 interrupted.""",
)
@click.version_option(__version__, prog_name="uops")
def main() -> None:
    """An executable UOp specification: its rows, a reference interpreter, a compiler, and the judge of any backend."""


for _command in (
    spec,
    check,
    run,
    compile_,
    view,
    search,
    bisect,
    stages,
    prove,
    check_certificate,
    backends,
    new_backend,
    conform,
    site,
    fuzz,
    mutants,
):
    main.add_command(_command)
