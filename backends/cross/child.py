"""A program that this process talks to through pipes, and that starts again after it has ended."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO, cast

#: Bytes that are shown of what a program printed as errors, and seconds that it gets to end by itself.
_SHOWN, _PATIENCE = 2000, 0.5
#: Starts a program. Takes the file descriptor of its errors.
Start = Callable[[int], "subprocess.Popen[bytes]"]


class ChildProcess:
    """A program with pipes for input and output. `start` is called by the first question, and after its end.

    A fork of this process starts a program of its own: both would take each other's answers from the same pipes.
    """

    def __init__(self, start: Start) -> None:
        self._start = start
        self._process: subprocess.Popen[bytes] | None = None
        self._errors, self._owner = -1, 0

    def start_if_stopped_then_ask_or_return_empty(self, exchange: Callable[[BinaryIO, BinaryIO], bytes]) -> bytes:
        """Call `exchange` with the input and the output; return its answer, empty if the program has ended.

        After any exception the program is ended, so that no answer belongs to an earlier question.
        """
        self._release_program_of_parent()
        try:
            if self._process is None:
                self._owner = os.getpid()
                self._errors = os.memfd_create("errors")
                try:
                    self._process = self._start(self._errors)
                except BaseException:
                    os.close(self._errors)
                    raise
            return exchange(cast(BinaryIO, self._process.stdin), cast(BinaryIO, self._process.stdout))
        except BrokenPipeError:
            return b""
        except BaseException:
            self.stop_and_describe_exit()
            raise

    def stop_and_describe_exit(self) -> str:
        """End the program; return its exit status and the end of what it printed as errors."""
        self._release_program_of_parent()
        process, self._process = self._process, None
        if process is None:
            return "it does not run"
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            status = process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        process.stdout.close()
        size = os.fstat(self._errors).st_size
        printed = os.pread(self._errors, _SHOWN, max(0, size - _SHOWN)).decode(errors="replace").strip()
        os.close(self._errors)
        return f"status {status}{': ' if printed else ''}{printed}"

    def _release_program_of_parent(self) -> None:
        """Close this fork's ends of the pipes of the program that the process before the fork had started."""
        process = self._process
        if process is None or self._owner == os.getpid():
            return
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        os.close(self._errors)
        process.returncode = 0  # the program is no child of this process, which must not wait for it
        self._process = None
