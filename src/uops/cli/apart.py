"""The process of a command that needs foreign code; `uops.cli.foreign` is its client.

It is started as `python -m uops.cli.apart READ WRITE LIFE`, like `uops.backends.worker.serve`, and uses the same frames. The first
frame is {backend, options, memory, path, arguments}. The process greets with the backend's BackendInfo, or {broken: reason}, and
runs the command line `arguments`. It sends {out: text} and {err: text} for printed text. It ends with {status: exit status},
{interrupted: true}, or {raised: description} for an exception of foreign code. Output of foreign code itself goes to the log.
"""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Callable
from typing import IO, Any, TextIO, cast

import click

from uops.backends.worker.frames import describe_exception, pack_frame, read_frame_or_none_at_end_or_cut
from uops.backends.worker.serve import explain_load_failure, load_backend_under_memory_limit, tie_to_parent_and_raise_oom_score
from uops.cli import main as command_line
from uops.cli.common import Streams, redirect_output
from uops.cli.foreign import set_loaded_backend

#: Sends one message to the client.
Send = Callable[[dict[str, Any]], None]


class _FrameStream(io.TextIOBase):
    """A text stream that sends its texts in frames."""

    def __init__(self, name: str, send: Send) -> None:
        self._name, self._send = name, send

    def write(self, text: str) -> int:
        self._send({self._name: text})
        return len(text)

    def isatty(self) -> bool:
        return False


def run_one_command_for_parent(request_answer_and_life_fds: list[str]) -> None:
    """Run one command, and end."""
    with (
        open(int(request_answer_and_life_fds[0]), "rb") as requests,
        open(int(request_answer_and_life_fds[1]), "wb", buffering=0) as answers,
    ):
        tie_to_parent_and_raise_oom_score(int(request_answer_and_life_fds[2]))
        frame = read_frame_or_none_at_end_or_cut(requests)
        if frame is not None:
            load_backend_and_serve_command(frame[0], answers)


def load_backend_and_serve_command(settings: dict[str, Any], answers: IO[bytes]) -> None:
    """Load the backend, and run the command."""

    def send(header: dict[str, Any]) -> None:
        answers.write(pack_frame(header))

    try:
        backend = load_backend_under_memory_limit(settings)
        send(backend.backend_info.to_json())
    except BaseException as e:  # including SystemExit and KeyboardInterrupt of foreign code
        send({"broken": explain_load_failure(settings, e)})
        return
    set_loaded_backend(backend.backend)
    redirect_output(Streams(*(cast(TextIO, _FrameStream(name, send)) for name in ("out", "err"))))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        send({"status": run_command_and_send_usage_error(settings["arguments"], send)})
    except (KeyboardInterrupt, click.Abort):
        send({"interrupted": True})
    except BaseException as e:
        send({"raised": describe_exception(e)})


def run_command_and_send_usage_error(arguments: list[str], send: Send) -> int:
    """Run a command line, and return its exit status."""
    try:
        return int(command_line.main(arguments, prog_name="uops", standalone_mode=False) or 0)
    except click.ClickException as e:
        message = io.StringIO()
        e.show(message)
        send({"err": message.getvalue()})
        return e.exit_code


if __name__ == "__main__":
    run_one_command_for_parent(sys.argv[1:])
