"""What several commands share: consoles, options, and backends by name."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

    from uops.backends.contract import Backend

F = TypeVar("F", bound=Callable[..., Any])

#: The interpreter is the judge's, so the registry of backends does not know it; this is where a worker process finds it.
INTERP = "interp"
_INTERP_AT = "uops.backends.conformance.controls:Interp"
#: Columns of output that goes to a file or a pipe.
WIDE = 150


def console(*, stderr: bool = False) -> Console:
    """Where a command prints: colours only on a terminal. A reader that went away raises BrokenPipeError."""
    from rich.console import Console as Base

    class Console(Base):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else WIDE)


@contextmanager
def to_reader() -> Iterator[None]:
    """Printing to a reader who may leave early, as `head` does: what it does not take is dropped, and nothing else changes."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # what is still in the buffer goes there
        os.close(nowhere)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def backend_names() -> tuple[str, ...]:
    """Every name that `--backend` knows."""
    from uops.backends import registry

    return (INTERP, *registry.names())


def worker_name(backend: str) -> str:
    """What a worker process calls the backend."""
    return _INTERP_AT if backend == INTERP else backend


def values_as_written(command: str) -> None:
    """Refuse a command that judges values by the program as it is written, where the compiler may change them (R156)."""
    from uops.compiler.config import default

    if default().fast_math:
        raise click.UsageError(f"{command} judges values by the program as it is written: unset UOPS_FAST_MATH")


def backend(name: str) -> Backend:
    """The backend. Raises UnknownBackend, whose message lists the known ones, or BrokenBackend."""
    from uops.backends import registry

    if name == INTERP:
        return registry.get(_INTERP_AT)
    if ":" not in name and name not in registry.names():
        raise registry.UnknownBackend(
            f"no backend is called {name!r}; known: {', '.join(dict.fromkeys(backend_names()))} (or module:attribute)"
        )
    if ":" in name and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # where worker processes look for it, too
    return registry.get(name)


def _complete_backend(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in backend_names() if name.startswith(incomplete)]


def backend_option(**settings: Any) -> Callable[[F], F]:
    """`--backend NAME`, with completion."""
    return click.option("--backend", "-b", "backend_name", metavar="NAME", shell_complete=_complete_backend, **settings)


def json_option() -> Callable[[F], F]:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")


def a_time(ctx: click.Context, option: click.Parameter, value: float | None) -> float | None:
    """What is no number is no time: nothing would be longer."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is no time")
    return value


def program_argument() -> Callable[[F], F]:
    """FILE, a `.uops` program."""
    return click.argument("file", type=click.Path(exists=True, dir_okay=False, readable=True))


#: Names of `uops.spec.dialects.Dialect`, written out so that help needs no import; a test compares them.
DIALECTS = ("tensor", "callified", "kernel", "scheduled", "expanded", "selected", "linear", "planned", "program", "bestiary")


def dialect_option(default: str | None, text: str) -> Callable[[F], F]:
    return click.option("--dialect", "-d", type=click.Choice(DIALECTS, case_sensitive=False), default=default, help=text)
