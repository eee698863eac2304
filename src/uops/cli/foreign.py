"""Commands that compile for the target of a backend: for one of ours here, for a foreign one in a process of its own.

Takes: a command line. `apart` is put on such a command; where the backend is foreign, the whole command runs again in
`uops.cli.apart`, which loads the backend under a time limit, and what it prints and its exit status come back in frames. So foreign
code that ends its process, hangs or prints cannot be taken for an answer.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import click

from uops.cli.common import echo, require_backend
from uops.spec.errors import Crash, UopsError
from uops.spec.untrusted import quote_name

if TYPE_CHECKING:
    from uops.backends.contract import CompilerBackend
    from uops.backends.worker.client import Process
    from uops.backends.worker.frames import Frame

#: Seconds in which such a command has to say or to do something, and to end after Ctrl-C.
TIMEOUT, GRACE = 600.0, 5.0
INTERRUPTED = 130
Arguments = list[str]

_loaded: CompilerBackend | None = None


def target_of(name: str) -> CompilerBackend:
    """The backend, if it is a target of the compiler; else UopsError. A foreign one is there in its process alone."""
    from uops.backends import registry
    from uops.backends.contract import CompilerBackend

    if registry.is_foreign(name) and _loaded is None:
        raise Crash(f"{quote_name(name)} would be loaded into the process of the command line")
    found = registry.get(name) if _loaded is None else _loaded
    if not isinstance(found, CompilerBackend):
        raise UopsError(f"{quote_name(name)} evaluates graphs by itself: it is no target of the compiler")
    return found


def hold(backend: Any) -> None:
    """Make a backend that this process has loaded the one that its command gets."""
    global _loaded
    _loaded = backend


def apart(command: Callable[..., None]) -> Callable[..., None]:
    """Run a command that names a foreign backend in a process of its own."""

    @functools.wraps(command)
    def run(*arguments: Any, **settings: Any) -> None:
        from uops.backends import registry

        name = settings["backend_name"]
        require_backend(name)
        if _loaded is not None or not registry.is_foreign(name):
            command(*arguments, **settings)
            return
        ctx = click.get_current_context()
        ctx.exit(_run_in_process(name, ctx.find_object(list) or []))

    return run


def _run_in_process(name: str, arguments: Arguments) -> int:
    """Run a command line in a process that has loaded the backend; its exit status. Raises BrokenBackend, and ClickException where
    the process ended without one."""
    from uops.backends.worker.client import Limits, Process

    class Apart(Process):
        module: ClassVar[str] = "uops.cli.apart"

    where = [os.getcwd()] if ":" in name else []
    settings = {"backend": name, "options": {}, "memory": 0, "path": where, "arguments": arguments}
    process = Apart(settings, Limits(timeout=TIMEOUT), {})
    try:
        return _attend(name, process)
    finally:
        process.end(patience=0.0)


def _attend(name: str, process: Process) -> int:
    """Print what the command prints, until it ends."""
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
            raise _broken_off(name, process.post_mortem(TIMEOUT).message)
        status = _hear(name, answer, interrupted)
        if status is not None:
            return status


def _hear(name: str, answer: Frame, interrupted: bool) -> int | None:
    """Take one message of the command; its exit status, if the message has it."""
    from uops.backends.worker.frames import INTERRUPT

    header = answer[0]
    for stream in ("out", "err"):
        if isinstance(text := header.get(stream), str):
            echo(text, err=stream == "err", nl=False)
    if "raised" in header:
        raise _broken_off(name, str(header["raised"]))
    status = header.get("status")
    if "interrupted" in header or status == INTERRUPTED:
        if not interrupted:
            raise _broken_off(name, INTERRUPT)
        if status is None:
            raise KeyboardInterrupt
    return status if type(status) is int and 0 <= status < 256 else None


def _broken_off(name: str, why: str) -> click.ClickException:
    return click.ClickException(f"{quote_name(name)}: {why}")
