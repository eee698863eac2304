"""The process in which a command runs that needs foreign code; `uops.cli.foreign` is the other side.

Started as `python -m uops.cli.apart READ WRITE LIFE`, as `uops.backends.worker.serve` is; frames are those of
`uops.backends.worker.frames`. The first one is {backend, options, memory, path, arguments}: it greets with what the backend says of
itself, or {broken: why}, and runs the command line `arguments`. It says {out: text} and {err: text} for what that prints, and at
last {status: its exit status}, {interrupted: true}, or {raised: what} where foreign code raised what no command does. What foreign
code itself prints goes to the log.
"""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Callable
from typing import IO, Any, TextIO, cast

import click

from uops.backends.worker.frames import describe, pack, read_frame
from uops.backends.worker.serve import begin, explain, load
from uops.cli import main as command_line
from uops.cli.common import Streams, print_to
from uops.cli.foreign import hold

Tell = Callable[[dict[str, Any]], None]


class _Told(io.TextIOBase):
    """A stream whose texts are told in frames."""

    def __init__(self, name: str, tell: Tell) -> None:
        self._name, self._tell = name, tell

    def write(self, text: str) -> int:
        self._tell({self._name: text})
        return len(text)

    def isatty(self) -> bool:
        return False


def main(arguments: list[str]) -> None:
    """Run one command, and end."""
    with open(int(arguments[0]), "rb") as requests, open(int(arguments[1]), "wb", buffering=0) as answers:
        begin(int(arguments[2]))
        first = read_frame(requests)
        if first is not None:
            serve(first[0], answers)


def serve(settings: dict[str, Any], answers: IO[bytes]) -> None:
    """Load the backend, and run the command."""

    def tell(header: dict[str, Any]) -> None:
        answers.write(pack(header))

    try:
        backend = load(settings)
        tell(backend.introduction.to_json())
    except BaseException as e:  # also what foreign code raises to end a process
        tell({"broken": explain(settings, e)})
        return
    hold(backend.backend)
    print_to(Streams(*(cast(TextIO, _Told(name, tell)) for name in ("out", "err"))))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        tell({"status": run(settings["arguments"], tell)})
    except (KeyboardInterrupt, click.Abort):
        tell({"interrupted": True})
    except BaseException as e:
        tell({"raised": describe(e)})


def run(arguments: list[str], tell: Tell) -> int:
    """The exit status of a command line."""
    try:
        return int(command_line.main(arguments, prog_name="uops", standalone_mode=False) or 0)
    except click.ClickException as e:
        words = io.StringIO()
        e.show(words)
        tell({"err": words.getvalue()})
        return e.exit_code


if __name__ == "__main__":
    main(sys.argv[1:])
