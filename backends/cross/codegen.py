"""LLVM for other processors, in a process of its own: LLVM aborts on some mistakes, and must not end this process.

`python -m uops.backends.cross.codegen` reads requests and writes answers. Each is a length of four bytes and that many bytes. A
request is the name of a processor, of a tier, and IR text, separated by newlines. An answer is `+` and an object, or `-` and a
message.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO

from uops.backends.cross.child import ChildProcess
from uops.backends.cross.processors import PROCESSORS
from uops.backends.cross.support import SUPPORT_SYMBOLS
from uops.spec.errors import Crash, UopsError

_LENGTH = struct.Struct("<I")
#: In place of a tier: the texts are several, compiled at the fast tier. What separates them.
_BATCH, _SEPARATOR = "BATCH", "\0"


class CodeGenerator:
    """The process that runs LLVM. It starts with the first request, and again if LLVM has ended it."""

    def __init__(self) -> None:
        self._child = ChildProcess(_start_generator)
        self._lock = threading.Lock()

    def compile_object(self, processor: str, tier: str, source: str) -> bytes:
        """Return the object of IR text. Raises Crash with LLVM's message if it rejects the text, or ends."""
        return self._ask(f"{processor}\n{tier}\n{source}")

    def compile_batch_at_fast_tier(self, processor: str, sources: Sequence[str]) -> bytes:
        """Return one object of several texts; the functions of text k end in k. Raises Crash as `compile_object` does."""
        return self._ask(f"{processor}\n{_BATCH}\n{_SEPARATOR.join(sources)}")

    def _ask(self, request: str) -> bytes:
        """Return the answer to a request. Raises Crash."""

        def exchange(requests: IO[bytes], answers: IO[bytes]) -> bytes:
            write_frame(requests, request.encode())
            return read_frame(answers)

        with self._lock:
            answer = self._child.ask(exchange)
            if not answer:
                raise Crash(f"LLVM ended while it compiled for {request.split(maxsplit=1)[0]}: {self._child.stop()}\n{request}")
        if answer[:1] == b"-":
            raise Crash(answer[1:].decode(errors="replace"))
        return answer[1:]


def _start_generator(errors: int) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", __name__]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment)


#: The generator that all targets of this process share.
GENERATOR = CodeGenerator()


def write_frame(stream: IO[bytes], payload: bytes) -> None:
    """Write one message."""
    stream.write(_LENGTH.pack(len(payload)) + payload)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes:
    """Read one message; empty at the end of the stream."""
    head = stream.read(_LENGTH.size)
    return stream.read(*_LENGTH.unpack(head)) if len(head) == _LENGTH.size else b""


def _compile(processor_name: str, tier_name: str, source: str) -> bytes:
    """Compile one request in this process."""
    from uops.backends.llvm import binding  # late: the process that asks compiles nothing

    binding.initialize_all_processors()
    processor = PROCESSORS[processor_name]
    host = binding.Host(processor.triple, processor.cpu, processor.features, binding.llvm_version(), "static", processor.code_model,
        processor.vectorizes,
    )  # fmt: skip
    callable_symbols = {*SUPPORT_SYMBOLS, "syscall"}
    if tier_name == _BATCH:
        return binding.compile_batch_at_fast_tier(source.split(_SEPARATOR), host, callable_symbols)
    return binding.compile_object(source, host, binding.LlvmTier[tier_name], callable_symbols)


def main() -> None:
    """Answer requests until the stream ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what else is printed is no answer
    while request := read_frame(sys.stdin.buffer):
        try:
            answer = b"+" + _compile(*request.decode().split("\n", 2))
        except UopsError as e:
            answer = b"-" + str(e).encode()
        write_frame(answers, answer)


if __name__ == "__main__":
    main()
