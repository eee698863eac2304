"""Kernels in qemu-user: one Linux program of the other processor, which runs kernels as long as this process lives.

The program maps a file that has no name, and that this process writes and reads: the engine's memory. It reads three addresses at a
time from a pipe (a function's and its tables'), calls the function, and answers with a byte. It is a static ELF file made here.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable
from typing import BinaryIO

from uops.backends.cross.child import ChildProcess
from uops.backends.cross.code import BASE, DATA, SIZE, NativeCode
from uops.backends.cross.codegen import GENERATOR
from uops.backends.cross.processors import Processor
from uops.backends.elf import ElfFile
from uops.backends.link import link_object
from uops.spec.errors import Crash

#: Address of the program that waits for calls.
_PROGRAM = 0x1000_0000
#: Arguments of mmap: all permissions; shared, at the given address.
_PERMISSIONS, _FLAGS = 7, 0x11
#: A call: the addresses of a function and of its tables.
_CALL = struct.Struct("QQQ")
_WIDE_HEADER, _WIDE_SEGMENT = "16sHHIQQQIHHHHHH", "IIQQQQQQ"
_NARROW_HEADER, _NARROW_SEGMENT = "16sHHIIIIIHHHHHH", "IIIIIIII"


def find_emulator(processor: Processor) -> str | None:
    """Return the path of a processor's emulator; None if it is not installed."""
    return shutil.which(processor.qemu[0]) if processor.qemu else None


class QemuEngine:
    """The memory and the program of one target. The program starts with the first call, and again after it has ended.

    A fork of this process has a memory and a program of its own, from the first use of `code` on.
    """

    name = "qemu"

    def __init__(self, processor: Processor, support: Callable[[], bytes]) -> None:
        path = find_emulator(processor)
        assert path is not None, processor.name  # open_engine looks for it
        self.processor, self.data = processor, DATA
        self._command = [path, *processor.qemu[1:]]
        self._memory, self._owner = _create_memory(), os.getpid()
        self._program = ChildProcess(self._start_program)
        self._code = NativeCode(self.write, self._forget_code, support)

    @property
    def code(self) -> NativeCode:
        """The code in the memory. In a new fork, there is none."""
        if self._owner != os.getpid():
            self.close()
            self._memory, self._owner = _create_memory(), os.getpid()
            self._code.evict_all()
        return self._code

    def version(self) -> str:
        """Return the emulator's version and settings."""
        printed = subprocess.run([self._command[0], "--version"], capture_output=True, text=True, check=True).stdout
        return " ".join([printed.splitlines()[0].split(" (")[0], *self._command[1:]])

    def write(self, address: int, data: bytes | memoryview) -> None:
        """Write memory."""
        os.pwrite(self._memory, data, address - BASE)

    def read_into(self, address: int, data: memoryview) -> None:
        """Read memory."""
        os.preadv(self._memory, [data], address - BASE)

    def call(self, function: int, buffers: int, scalars: int) -> None:
        """Run a kernel. Raises Crash if it ends the program."""
        request = struct.pack(self.processor.order + _CALL.format, function, buffers, scalars)

        def exchange(requests: BinaryIO, answers: BinaryIO) -> bytes:
            requests.write(request)
            requests.flush()
            return answers.read(1)

        if not self._program.start_if_stopped_then_ask_or_return_empty(exchange):
            raise Crash(f"a kernel ended {self.processor.qemu[0]}: {self._program.stop_and_describe_exit()}")

    def close(self) -> None:
        """End the program and free the memory."""
        self._program.stop_and_describe_exit()
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1

    def _forget_code(self) -> None:
        """End the program, which keeps translations of code."""
        self._program.stop_and_describe_exit()

    def _start_program(self, errors: int) -> subprocess.Popen[bytes]:
        """Start the program, which is a file until then, and wait for its first answer. Raises Crash if it ends instead."""
        with tempfile.NamedTemporaryFile(prefix="uops", suffix=".elf") as file:
            file.write(build_program(self.processor, self._memory))
            file.flush()
            os.chmod(file.name, 0o700)
            process = subprocess.Popen(
                [*self._command, file.name],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, pass_fds=(self._memory,), env={},
            )  # fmt: skip
            assert process.stdout is not None
            if not process.stdout.read(1):
                printed = os.pread(errors, 1000, 0).decode(errors="replace").strip()
                raise Crash(f"{self.processor.qemu[0]} does not start: status {process.wait()} {printed}")
        return process


def _create_memory() -> int:
    """Return the descriptor of a new memory, which no other process has."""
    memory = os.memfd_create("uops")
    os.ftruncate(memory, SIZE)
    return memory


def build_program(processor: Processor, descriptor: int) -> bytes:
    """Return the ELF file of the program that maps the file `descriptor` at BASE and runs kernels."""
    calls = processor.system_calls
    assert calls is not None, processor.name
    machine_code = -(-len(calls.code) // 64) * 64
    image = GENERATOR.compile_object(processor.name, "FAST", _render_program(processor, descriptor))
    elf = ElfFile(image)
    header, segment = (_WIDE_HEADER, _WIDE_SEGMENT) if elf.is_64_bit else (_NARROW_HEADER, _NARROW_SEGMENT)
    h, s = struct.calcsize("=" + header), struct.calcsize("=" + segment)
    head = h + s
    start = _PROGRAM + -(-head // 64) * 64
    linked = link_object(image, start + machine_code, {"syscall": start})
    body = bytes(start - _PROGRAM - head) + calls.code.ljust(machine_code, b"\0") + linked.data
    total, entry = head + len(body), linked.symbols["_start"]
    flags = int.from_bytes(image[48:52] if elf.is_64_bit else image[36:40], "little" if elf.order == "<" else "big")
    whole = struct.pack(elf.order + header, image[:16], 2, elf.machine, 1, entry, h, 0, flags, h, s, 1, 0, 0, 0)
    loaded = (
        (1, 7, 0, _PROGRAM, _PROGRAM, total, total, 4096) if elf.is_64_bit else (1, 0, _PROGRAM, _PROGRAM, total, total, 7, 4096)
    )
    return whole + struct.pack(elf.order + segment, *loaded) + body


def _render_program(processor: Processor, descriptor: int) -> str:
    """Return LLVM IR of the program. It leaves with status 3 without its memory, and with 0 when the pipe closes."""
    calls, word, step = processor.system_calls, processor.word, processor.pointer_bytes
    assert calls is not None
    arguments = (BASE, SIZE, _PERMISSIONS, _FLAGS, descriptor, 0)
    stores = [
        f"  %b{k} = getelementptr i8, ptr %block, i64 {k * step}\n  store {word} {x}, ptr %b{k}, align {step}"
        for k, x in enumerate(arguments)
    ]
    passed = [f"{word} %block.word"] if calls.packed else [f"{word} {x}" for x in arguments]

    def call(number: int, *operands: str) -> str:
        padded = [*operands, *[f"{word} 0"] * (6 - len(operands))]
        return f"call {word} @syscall({word} {number}, {', '.join(padded)})"

    lines = [
        f"declare {word} @syscall({', '.join([word] * 7)})",
        "define void @_start() #0 {",
        "entry:",
        f"  %block = alloca [6 x {word}], align 16",
        "  %request = alloca [3 x i64], align 16",
        *stores,
        f"  %block.word = ptrtoint ptr %block to {word}",
        f"  %request.word = ptrtoint ptr %request to {word}",
        f"  %mapped = {call(calls.mmap, *passed)}",
        f"  %there = icmp eq {word} %mapped, {BASE}",
        "  br i1 %there, label %answer, label %fail",
        "wait:",
        f"  %count = {call(calls.read, f'{word} 0', f'{word} %request.word', f'{word} {_CALL.size}')}",
        f"  %whole = icmp eq {word} %count, {_CALL.size}",
        "  br i1 %whole, label %run, label %leave",
        "run:",
        *(f"  %at{k} = getelementptr i64, ptr %request, i64 {k}\n  %w{k} = load i64, ptr %at{k}, align 8" for k in range(3)),
        *(f"  %p{k} = inttoptr i64 %w{k} to ptr" for k in range(3)),
        "  call void %p0(ptr %p1, ptr %p2)",
        "  br label %answer",
        "answer:",
        f"  %told = {call(calls.write, f'{word} 1', f'{word} %request.word', f'{word} 1')}",
        "  br label %wait",
        "fail:",
        f"  %e3 = {call(calls.exit, f'{word} 3')}",
        "  unreachable",
        "leave:",
        f"  %e0 = {call(calls.exit, f'{word} 0')}",
        "  unreachable",
        "}",
        'attributes #0 = { nounwind "stackrealign" }',
    ]  # fmt: skip
    return "\n".join(lines) + "\n"
