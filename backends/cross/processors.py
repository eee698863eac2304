"""The processors that kernels may be compiled for, as data: how LLVM is asked for code, what the code may use, and what runs it.

A processor of the table has a byte order and a pointer size of its own, so that schedules, code and memory differ by it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from uops.backends.cross.workarounds import hide_fpext_behind_inline_asm, scalarize_vector_fptoint_and_trunc
from uops.compiler.target import MachineModel

LITTLE, BIG = "<", ">"


class SystemCalls(NamedTuple):
    """The system calls of Linux on a processor.

    `code` is a function `word syscall(word number, word a, word b, word c, ...)` in machine code. With `packed`, mmap takes the
    address of its six arguments. Source: the calling conventions in syscall(2), and the system's tables of numbers.
    """

    code: bytes
    read: int
    write: int
    exit: int
    mmap: int
    packed: bool


class Processor(NamedTuple):
    """A processor. `attributes` are LLVM's for each function, `qemu` is the emulator's command, `unicorn` a name of Unicorn's."""

    name: str
    triple: str
    cpu: str
    features: str
    code_model: str
    pointer_bytes: int
    order: str
    machine: MachineModel
    engines: tuple[str, ...]
    qemu: tuple[str, ...] = ()
    system_calls: SystemCalls | None = None
    attributes: str = ""
    #: Changes the text of a kernel for the emulator's sake.
    workaround: Callable[[str], str] | None = None
    #: LLVM may make vectors of scalar code.
    vectorizes: bool = True

    @property
    def word(self) -> str:
        """LLVM's type of an integer that holds a pointer."""
        return f"i{8 * self.pointer_bytes}"


def _words(order: str, *instructions: int) -> bytes:
    """Return 32-bit instructions as bytes."""
    return b"".join(i.to_bytes(4, "little" if order == LITTLE else "big") for i in instructions)


def _machine(vector_bytes: int, registers: int, *, fma: bool = True, masks: bool = False) -> MachineModel:
    """Return a model with the caches of a small core; an emulator has none of its own."""
    return MachineModel(vector_bytes, registers, caches=(32 << 10, 512 << 10), fma=fma, masks=masks)


#: The register moves and the instruction that enter Linux; arguments follow the number.
_AARCH64 = SystemCalls(
    _words(LITTLE, 0xAA0003E8, *(0xAA0003E0 | (k + 1) << 16 | k for k in range(6)), 0xD4000001, 0xD65F03C0), 63, 64, 93, 222, False
)
_RISCV64 = SystemCalls(
    _words(LITTLE, 10 << 15 | 17 << 7 | 0x13, *((k + 1) << 15 | k << 7 | 0x13 for k in range(10, 16)), 0x73, 0x8067),
    63, 64, 93, 222, False,
)  # fmt: skip
_S390X = SystemCalls(bytes.fromhex("b9040012 b9040023 b9040034 b9040045 0a00 07fe"), 3, 4, 1, 90, True)
_I686 = SystemCalls(bytes.fromhex("53 8b442408 8b5c240c 8b4c2410 8b542414 cd80 5b c3"), 3, 4, 1, 90, True)

_NATIVE_ENGINES = ("qemu", "unicorn")
PROCESSORS: dict[str, Processor] = {
    p.name: p
    for p in (
        Processor(
            "aarch64", "aarch64-unknown-linux-gnu", "generic", "+neon", "small", 8, LITTLE, _machine(16, 32), _NATIVE_ENGINES,
            ("qemu-aarch64", "-cpu", "max"), _AARCH64,
        ),
        Processor(
            "aarch64:sve", "aarch64-unknown-linux-gnu", "generic", "+neon,+sve", "small", 8, LITTLE, _machine(64, 32, masks=True),
            ("qemu",), ("qemu-aarch64", "-cpu", "max,sve512=on"), _AARCH64, "vscale_range(4,4)",
        ),
        Processor(
            "riscv64", "riscv64-unknown-linux-gnu", "generic-rv64", "+m,+a,+f,+d,+c", "medium", 8, LITTLE, _machine(0, 32),
            _NATIVE_ENGINES, ("qemu-riscv64", "-cpu", "rv64"), _RISCV64,
        ),
        Processor(
            "riscv64:v", "riscv64-unknown-linux-gnu", "generic-rv64", "+m,+a,+f,+d,+c,+v,+zvl256b", "medium", 8, LITTLE,
            _machine(32, 32, masks=True), ("qemu",), ("qemu-riscv64", "-cpu", "rv64,v=true,vext_spec=v1.0,vlen=256,elen=64"),
            _RISCV64, "vscale_range(4,4)", scalarize_vector_fptoint_and_trunc, False,
        ),
        Processor(
            "s390x", "s390x-unknown-linux-gnu", "z14", "", "small", 8, BIG, _machine(16, 32), ("qemu",),
            ("qemu-s390x", "-cpu", "max"), _S390X, "", hide_fpext_behind_inline_asm,
        ),
        Processor(
            "i686", "i686-unknown-linux-gnu", "i686", "+sse4.2,+cx8,+cmov", "small", 4, LITTLE, _machine(16, 8, fma=False),
            _NATIVE_ENGINES, ("qemu-i386", "-R", "0xc0000000", "-cpu", "max"), _I686,
        ),
        Processor(
            "wasm", "wasm32-unknown-unknown", "generic", "+simd128,+sign-ext,+nontrapping-fptoint,+bulk-memory,+mutable-globals",
            "small", 4, LITTLE, _machine(16, 16, fma=False), ("wasmtime",),
        ),
    )
}  # fmt: skip
