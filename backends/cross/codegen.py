"""LLVM for other processors, in a process of its own: LLVM aborts on some mistakes, and must not end this process.

`python -m uops.backends.cross.codegen` reads requests and writes answers, as frames (`uops.backends.worker.frames`). A request
names a processor. It has an IR text and its tier, or a batch of texts for the fast tier. The answer has an object, or an error.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any, BinaryIO

from uops.backends.cross.child import ChildProcess
from uops.backends.cross.processors import PROCESSORS
from uops.backends.cross.support import SUPPORT_SYMBOLS
from uops.backends.llvm import binding
from uops.backends.worker.frames import pack_frame, read_frame_or_none_at_end_or_cut
from uops.spec.errors import Crash, UopsError

#: The functions that an object may call: those of `support`, and that of a program's system calls.
_CALLABLE = {*SUPPORT_SYMBOLS, "syscall"}


class CodeGenerator:
    """The process that runs LLVM. It starts with the first request, and again if LLVM has ended it."""

    def __init__(self) -> None:
        self._child = ChildProcess(_start_generator)
        self._lock = threading.Lock()

    def compile_object(self, processor: str, tier: str, source: str) -> bytes:
        """Return the object of IR text. Raises Crash with LLVM's message if it rejects the text, or ends."""
        return self._ask({"processor": processor, "tier": tier, "source": source})

    def compile_batch_at_fast_tier(self, processor: str, sources: Sequence[str]) -> bytes:
        """Return one object of several texts; the functions of text k end in k. Raises Crash as `compile_object` does."""
        return self._ask({"processor": processor, "batch": list(sources)})

    def _ask(self, request: dict[str, Any]) -> bytes:
        """Return the object of a request. Raises Crash."""
        answer: dict[str, Any] = {}

        def exchange(requests: BinaryIO, answers: BinaryIO) -> bytes:
            requests.write(pack_frame(request))
            requests.flush()
            frame = read_frame_or_none_at_end_or_cut(answers)
            if frame is None:
                return b""
            answer.update(frame[0])
            return frame[1]

        with self._lock:
            image = self._child.start_if_stopped_then_ask_or_return_empty(exchange)
            if not image and not answer:
                texts = request.get("batch") or [request["source"]]
                raise Crash(
                    "\n".join(
                        [f"LLVM ended while it compiled for {request['processor']}: {self._child.stop_and_describe_exit()}", *texts]
                    )
                )
        if "error" in answer:
            raise Crash(answer["error"])
        return image


def _start_generator(errors: int) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", __name__]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment)


#: The generator that all targets of this process share.
GENERATOR = CodeGenerator()


def _compile(request: dict[str, Any]) -> bytes:
    """Compile one request in this process."""
    p = PROCESSORS[request["processor"]]
    host = binding.Host(p.triple, p.cpu, p.features, binding.llvm_version(), "static", p.code_model, p.vectorizes)
    if "batch" in request:
        return binding.compile_batch_at_fast_tier(request["batch"], host, _CALLABLE)
    return binding.compile_object(request["source"], host, binding.LlvmTier[request["tier"]], _CALLABLE)


def main() -> None:
    """Answer requests until the stream ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what else is printed is no answer
    binding.initialize_all_processors()
    while frame := read_frame_or_none_at_end_or_cut(sys.stdin.buffer):
        try:
            answer = pack_frame({"done": True}, _compile(frame[0]))
        except UopsError as e:
            answer = pack_frame({"error": str(e)})
        answers.write(answer)
        answers.flush()


if __name__ == "__main__":
    main()
