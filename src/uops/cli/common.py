"""What several commands share: the one door to the terminal, options, and backends by name."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, TypeVar

import click

from uops.spec.untrusted import printable

if TYPE_CHECKING:
    from rich.console import Console

F = TypeVar("F", bound=Callable[..., Any])

#: The reference interpreter, as a backend.
INTERP = "interp"
#: Columns of output that goes to a file or a pipe.
WIDE = 150


def open_streams() -> None:
    """Open /dev/null in place of each standard stream that is closed (`>&-`): no file that a command opens is taken for it."""
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(handle, True)
    os.close(handle)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115 - as long as the process


class Streams(NamedTuple):
    """Where a command prints, where that is neither of the process's own streams."""

    out: TextIO
    err: TextIO


_instead: Streams | None = None


def print_to(streams: Streams) -> None:
    """Send what commands of this process print elsewhere, whatever others print meanwhile."""
    global _instead
    _instead = streams


def is_told() -> bool:
    """Return True if what this process prints is told to another one, whose command it runs."""
    return _instead is not None


def say_alive() -> None:
    """Tell a process that waits for this one's command that it goes on."""
    if _instead is not None:
        _instead.err.write("")


def _stream(stderr: bool) -> TextIO:
    out, err = _instead or (sys.stdout, sys.stderr)
    return err if stderr else out


def console(*, stderr: bool = False) -> Console:
    """Where a command prints: colours only on a terminal, and texts of others without what acts on it. A reader that went away
    raises BrokenPipeError."""
    from rich.console import Console as Base
    from rich.segment import Segment
    from rich.text import Text

    class Console(Base):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

        def print(self, *objects: Any, **settings: Any) -> None:
            with writing(stderr):
                super().print(*objects, **settings)

        def render_str(self, text: str, **settings: Any) -> Text:
            return super().render_str(printable(text), **settings)  # before rich strips control characters

        def render(self, renderable: Any, *arguments: Any, **settings: Any) -> Iterator[Segment]:
            if isinstance(renderable, Text) and (safe := printable(renderable.plain)) != renderable.plain:
                renderable = Text(safe, renderable.style, overflow=renderable.overflow, end=renderable.end)
            for s in super().render(renderable, *arguments, **settings):
                yield s if s.control else Segment(printable(s.text), s.style)

    stream = _stream(stderr)
    return Console(file=_instead and stream, stderr=stderr, highlight=False, width=None if stream.isatty() else WIDE)


def echo(text: str, *, err: bool = False, nl: bool = True, over: bool = False) -> None:
    """Print a text, without what could act on a terminal; with `over`, over the line that is there."""
    with writing(err):
        click.echo(("\r" if over else "") + printable(text), file=_instead and _stream(err), err=err, nl=nl)


@contextmanager
def to_reader() -> Iterator[None]:
    """Print to a reader who may leave early, as `head` does: the command drops what it does not take, and goes on.

    Raises OSError that names the standard output where that cannot be written, as on a full disk.
    """
    try:
        try:
            yield
        finally:
            _flush_output()
    except BrokenPipeError:
        pass


@contextmanager
def writing(stderr: bool = False) -> Iterator[None]:
    """Name the stream in an OSError of what is printed; the error of a reader who left is passed on as it is."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as e:
        raise OSError(e.errno, e.strerror, "standard error" if stderr else "standard output") from None


def _flush_output() -> None:
    """Write what is buffered for the standard output. Where that fails it is dropped, and OSError raised."""
    try:
        with writing():
            sys.stdout.flush()
    except OSError:
        _drop_output()
        raise


def _drop_output() -> None:
    """Send what is still buffered for the standard output, and all that follows, to /dev/null."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    if printable(text) != text:  # what is spelled otherwise there has a spelling in JSON, too
        text = "".join(c if printable(c) == c else f"\\u{ord(c):04x}" for c in text)
    echo(text)


def backend_names() -> tuple[str, ...]:
    """Every name that `--backend` knows."""
    from uops.backends import registry

    return registry.names()


def values_as_written(command: str) -> None:
    """Refuse a command that judges values by the program as it is written, where the compiler may change them (R156)."""
    from uops.compiler.config import default

    if default().fast_math:
        raise click.UsageError(f"{command} judges values by the program as it is written: unset UOPS_FAST_MATH")


def require_backend(name: str) -> None:
    """Raise UnknownBackend or BrokenBackend unless `name` may be a backend; nothing of it is imported."""
    from uops.backends import registry

    registry.locate(name)


def _complete_backend(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [printable(name) for name in backend_names() if name.startswith(incomplete)]


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


#: Names of `uops.spec.verify.dialects.Dialect`, written out so that help needs no import; a test compares them.
DIALECTS = ("tensor", "callified", "kernel", "scheduled", "expanded", "selected", "linear", "planned", "program", "bestiary")


def dialect_option(default: str | None, text: str) -> Callable[[F], F]:
    return click.option("--dialect", "-d", type=click.Choice(DIALECTS, case_sensitive=False), default=default, help=text)
