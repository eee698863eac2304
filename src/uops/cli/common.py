"""Helpers of the commands: all output to the terminal, common options, and backends by name."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, TypeVar

import click

from uops.spec.untrusted import escape_unprintable

if TYPE_CHECKING:
    from rich.console import Console

    from uops.spec.ir.node import UOp
    from uops.spec.verify.dialects import Dialect

F = TypeVar("F", bound=Callable[..., Any])

#: The name of the reference interpreter as a backend.
INTERP = "interp"
#: Exit statuses of a usage error and of an interrupted command.
USER_ERROR, INTERRUPTED = 2, 130
#: What a refusal of native text tells the user to do.
HOW_TO_ALLOW_NATIVE = "give --allow-native if you trust the file"
#: Width of output to a file or a pipe, in columns.
WIDE = 150


def open_null_for_closed_streams() -> None:
    """Open /dev/null in place of each closed standard stream (`>&-`), so that no file of a command takes its number."""
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(handle, True)
    os.close(handle)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115 - as long as the process


class Streams(NamedTuple):
    """The streams that a command prints to, instead of the process's own."""

    out: TextIO
    err: TextIO


_instead: Streams | None = None


def redirect_output(streams: Streams) -> None:
    """Print the output of this process's commands to other streams, without affecting others who print."""
    global _instead
    _instead = streams


def is_output_redirected() -> bool:
    """Return True if output is sent to another process, whose command this one runs."""
    return _instead is not None


def send_heartbeat() -> None:
    """Tell a process that waits for this one's command that it is still running."""
    if _instead is not None:
        _instead.err.write("")


def _output_stream(stderr: bool) -> TextIO:
    out, err = _instead or (sys.stdout, sys.stderr)
    return err if stderr else out


def make_console_that_escapes_controls(*, stderr: bool = False) -> Console:
    """Create a console: colours on a terminal alone, and foreign texts without control characters.

    A reader that left raises BrokenPipeError.
    """
    from rich.console import Console as Base
    from rich.segment import Segment
    from rich.text import Text

    class Console(Base):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

        def print(self, *objects: Any, **settings: Any) -> None:
            with name_output_stream_in_errors(stderr):
                super().print(*objects, **settings)

        def render_str(self, text: str, **settings: Any) -> Text:
            return super().render_str(escape_unprintable(text), **settings)  # before rich drops control characters without a trace

        def render(self, renderable: Any, *arguments: Any, **settings: Any) -> Iterator[Segment]:
            if isinstance(renderable, Text) and (safe := escape_unprintable(renderable.plain)) != renderable.plain:
                renderable = Text(safe, renderable.style, overflow=renderable.overflow, end=renderable.end)
            for s in super().render(renderable, *arguments, **settings):
                yield s if s.control else Segment(escape_unprintable(s.text), s.style)

    stream = _output_stream(stderr)
    return Console(file=_instead and stream, stderr=stderr, highlight=False, width=None if stream.isatty() else WIDE)


def echo(text: str, *, err: bool = False, nl: bool = True, over: bool = False) -> None:
    """Print a text with control characters escaped; with `over`, overwrite the current line."""
    with name_output_stream_in_errors(err):
        click.echo(("\r" if over else "") + escape_unprintable(text), file=_instead and _output_stream(err), err=err, nl=nl)


@contextmanager
def flush_output_and_ignore_broken_pipe() -> Iterator[None]:
    """Let a reader leave early, as `head` does: the rest of the output is dropped, and the command goes on.

    Raises OSError that names standard output if that cannot be written, as on a full disk.
    """
    try:
        try:
            yield
        finally:
            _flush_output_or_discard_and_raise()
    except BrokenPipeError:
        pass


@contextmanager
def name_output_stream_in_errors(stderr: bool = False) -> Iterator[None]:
    """Name the stream in an OSError of printing; BrokenPipeError is passed on unchanged."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as e:
        raise OSError(e.errno, e.strerror, "standard error" if stderr else "standard output") from None


def _flush_output_or_discard_and_raise() -> None:
    """Flush standard output. On failure, drop its buffer and raise OSError."""
    try:
        with name_output_stream_in_errors():
            sys.stdout.flush()
    except OSError:
        _redirect_stdout_to_null()
        raise


def _redirect_stdout_to_null() -> None:
    """Redirect standard output, with what it has buffered, to /dev/null."""
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, sys.stdout.fileno())
    os.close(null_device)


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    if escape_unprintable(text) != text:  # escape these as JSON does
        text = "".join(c if escape_unprintable(c) == c else f"\\u{ord(c):04x}" for c in text)
    echo(text)


def backend_names() -> tuple[str, ...]:
    """Return every name that `--backend` accepts."""
    from uops.backends import registry

    return registry.names()


def refuse_under_fast_math(command: str) -> None:
    """Refuse a command that compares values with the program as written while fast-math is on (R156: another program may be
    compiled)."""
    from uops.compiler.config import default_config

    if default_config().fast_math:
        raise click.UsageError(f"{command} judges values by the program as it is written: unset UOPS_FAST_MATH")


def require_locatable_backend(backend_name: str) -> None:
    """Raise UnknownBackend or BrokenBackend unless `backend_name` may be a backend, without importing it."""
    from uops.backends import registry

    registry.locate_factory(backend_name)


def _complete_backend(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [escape_unprintable(name) for name in backend_names() if name.startswith(incomplete)]


def backend_option(**settings: Any) -> Callable[[F], F]:
    """Return the option `--backend NAME`, with completion."""
    return click.option("--backend", "-b", "backend_name", metavar="NAME", shell_complete=_complete_backend, **settings)


def json_option() -> Callable[[F], F]:
    """Return the option `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")


def reject_nan_seconds(ctx: click.Context, option: click.Parameter, value: float | None) -> float | None:
    """Reject NaN seconds, which no comparison with a limit would end."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("must be a number of seconds, got nan")
    return value


def program_argument() -> Callable[[F], F]:
    """Return the argument FILE, a `.uops` program."""
    return click.argument("file", type=click.Path(exists=True, dir_okay=False, readable=True))


def allow_native_option() -> Callable[[F], F]:
    """Return the option `--allow-native`, of every command that reads a program."""
    text = "Take a file with native text (Custom, CustomI, Ins, CustomFunction, Program), which runs with all your rights."
    return click.option("--allow-native", is_flag=True, help=text)


def parse_program(file: str, allow_native: bool) -> UOp:
    """Read a `.uops` program, which is not verified yet. Raises SpecError, also for native text unless it is allowed (R167)."""
    from uops.spec.ir.native import refuse_native_text
    from uops.spec.ir.text import parse_file_and_locate_nodes
    from uops.spec.untrusted import describe_path

    graph = parse_file_and_locate_nodes(file)
    if not allow_native:
        refuse_native_text(graph, f"{describe_path(file)}: ", HOW_TO_ALLOW_NATIVE)
    return graph.root


def read_and_verify_program_wrapping_kernel(file: str, dialect: Dialect, allow_native: bool) -> UOp:
    """Read a `.uops` program and verify it in its dialect; a graph that is one kernel becomes a launch of it (R166).

    A graph of a kernel dialect that gives values, or has kernels as loops alone, stays as it is (R127, loops of a node).

    Raises SpecError, also for native text unless it is allowed (R167).
    """
    from uops.spec.errors import SpecError
    from uops.spec.verify.dialects import LAUNCH_DIALECTS, Dialect
    from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect
    from uops.spec.verify.verifier import verify

    root = parse_program(file, allow_native)
    if dialect in LAUNCH_DIALECTS and infer_tensor_kernel_or_bestiary_dialect(root) is Dialect.KERNEL:
        from uops.compiler.entry import convert_to_launch_or_tensor_graph, is_launch  # late: only kernels need it

        entering = convert_to_launch_or_tensor_graph(root, dialect)
        if entering.dialect is Dialect.TENSOR:
            verify(entering.graph, Dialect.TENSOR)
            return root
        root = root if is_launch(root) else entering.graph
    try:
        verify(root, dialect)
    except SpecError as e:
        written = infer_tensor_kernel_or_bestiary_dialect(root)
        if dialect is not Dialect.TENSOR or written is Dialect.TENSOR:
            raise
        hint = f"the program looks like one of the {written.value} dialect: name it, as in --dialect {written.value}"
        raise SpecError(f"{e}\n{hint}", claim=e.claim) from None
    return root


#: Names of `uops.spec.verify.dialects.Dialect`, copied so that help needs no import; a test compares them.
DIALECTS = ("tensor", "callified", "kernel", "scheduled", "expanded", "selected", "linear", "planned", "program", "bestiary")


def dialect_option(default: str | None, text: str) -> Callable[[F], F]:
    """Return the option `--dialect NAME`."""
    return click.option("--dialect", "-d", type=click.Choice(DIALECTS, case_sensitive=False), default=default, help=text)
