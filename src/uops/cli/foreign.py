"""Commands that compile for a backend's target: in this process for a built-in backend, in a process of its own for a foreign one.

Takes: a command line. `isolate_foreign_backend` decorates such a command. Where the backend is foreign, the whole command runs
again in `uops.cli.apart`, which loads the backend under a time limit and returns its output and exit status in frames. Thus foreign
code that ends its process, hangs or prints cannot be taken for an answer.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import click

from uops.cli.common import INTERRUPTED, echo, require_locatable_backend
from uops.spec.errors import Crash, UopsError
from uops.spec.untrusted import escape_to_one_line

if TYPE_CHECKING:
    from uops.backends.contract import CompilerBackend
    from uops.backends.worker.client import BackendProcess
    from uops.backends.worker.frames import Frame

#: Time limits in seconds: between two messages of such a command, and for its end after Ctrl-C.
TIMEOUT, GRACE = 600.0, 5.0
Arguments = list[str]

#: The backend of this process's command, if this is the process of a foreign one.
_loaded: CompilerBackend | None = None


def load_compiler_backend(backend_name: str) -> CompilerBackend:
    """Load a backend that is a target of the compiler. Raises UopsError for any other one.

    A foreign backend is available in its own process alone.
    """
    from uops.backends import registry
    from uops.backends.contract import CompilerBackend

    if registry.is_foreign(backend_name) and _loaded is None:
        raise Crash(f"{escape_to_one_line(backend_name)} would be loaded into the process of the command line")
    backend = registry.create_backend(backend_name) if _loaded is None else _loaded
    if not isinstance(backend, CompilerBackend):
        raise UopsError(f"{escape_to_one_line(backend_name)} evaluates graphs by itself: it is not a target of the compiler")
    return backend


def set_loaded_backend(backend: Any) -> None:
    """Make a loaded backend the one that this process's command gets."""
    global _loaded
    _loaded = backend


def isolate_foreign_backend(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command so that it runs in a process of its own if it names a foreign backend."""

    @functools.wraps(command)
    def run_or_isolate(*arguments: Any, **settings: Any) -> None:
        from uops.backends import registry

        name = settings["backend_name"]
        require_locatable_backend(name)
        if _loaded is not None or not registry.is_foreign(name):
            command(*arguments, **settings)
            return
        ctx = click.get_current_context()
        ctx.exit(_run_command_in_new_process(name, ctx.find_object(list) or []))

    return run_or_isolate


def _run_command_in_new_process(backend_name: str, arguments: Arguments) -> int:
    """Run a command line in a process that loads the backend, and return its exit status.

    Raises BrokenBackend, and ClickException if the process ended without a status.
    """
    from uops.backends.worker.client import BackendProcess, Limits

    class ForeignCommandProcess(BackendProcess):
        module: ClassVar[str] = "uops.cli.apart"

    search_path = [os.getcwd()] if ":" in backend_name else []
    settings = {"backend": backend_name, "options": {}, "memory": 0, "path": search_path, "arguments": arguments}
    process = ForeignCommandProcess(settings, Limits(timeout=TIMEOUT), {})
    try:
        return _relay_until_exit(backend_name, process)
    finally:
        process.end(patience=0.0)


def _relay_until_exit(backend_name: str, process: BackendProcess) -> int:
    """Print the output of the command until it ends, and return its exit status."""
    interrupted = False
    while True:
        try:
            answer = process.receive(GRACE if interrupted else TIMEOUT)
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = True
            process.signal(signal.SIGINT)
            continue
        if answer is None and interrupted:
            raise KeyboardInterrupt
        if answer is None:
            raise _backend_error(backend_name, process.end_and_explain_no_answer(TIMEOUT).message)
        status = _print_message_and_get_status_or_raise(backend_name, answer, interrupted)
        if status is not None:
            return status


def _print_message_and_get_status_or_raise(backend_name: str, answer: Frame, interrupted: bool) -> int | None:
    """Print one message of the command; return the exit status if the message has it."""
    from uops.backends.worker.frames import INTERRUPT

    header = answer[0]
    for stream in ("out", "err"):
        if isinstance(text := header.get(stream), str):
            echo(text, err=stream == "err", nl=False)
    if "raised" in header:
        raise _backend_error(backend_name, str(header["raised"]))
    status = header.get("status")
    if "interrupted" in header or status == INTERRUPTED:
        if not interrupted:
            raise _backend_error(backend_name, INTERRUPT)
        if status is None:
            raise KeyboardInterrupt
    return status if type(status) is int and 0 <= status < 256 else None


def _backend_error(backend_name: str, reason: str) -> click.ClickException:
    return click.ClickException(f"{escape_to_one_line(backend_name)}: {reason}")
