"""The backends of other processors, strict on every row: the compiler, LLVM, and an engine that runs the code."""

from __future__ import annotations

from typing import ClassVar

from uops.backends.contract import Capabilities, CompilerBackend
from uops.backends.cross.processors import PROCESSORS
from uops.backends.cross.target import CrossTarget
from uops.backends.llvm.binding import LlvmTier


class CrossBackend(CompilerBackend):
    """The backend of one processor. `tier` is that of the llvm backend; `engine` is `qemu`, `unicorn` or `wasmtime`."""

    name: ClassVar[str]
    #: The processor, and the engine that is the default; None for the first that is installed.
    processor: ClassVar[str]
    engine: ClassVar[str | None] = None

    def __init__(self, tier: str = "full", engine: str | None = None) -> None:
        self._cross = CrossTarget(PROCESSORS[self.processor], LlvmTier.parse(tier), engine or self.engine)
        super().__init__(self._cross)

    def version(self) -> str:
        """Return everything but the source that decides a result."""
        return self._cross.version()

    def capabilities(self) -> Capabilities:
        """Declare every row and dtype, on one thread."""
        return Capabilities.of_target(self.target, "llvm")

    def close(self) -> None:
        """End the engine."""
        self._cross.engine.close()


class Aarch64Backend(CrossBackend):
    """AArch64 with NEON."""

    name = processor = "aarch64"


class SveBackend(CrossBackend):
    """AArch64 with SVE registers of 512 bits."""

    name = processor = "aarch64:sve"


class Riscv64Backend(CrossBackend):
    """RISC-V with 64 bits, without vectors."""

    name = processor = "riscv64"


class RiscvVectorBackend(CrossBackend):
    """RISC-V with 64 bits and V 1.0, with registers of 256 bits."""

    name = processor = "riscv64:v"


class S390xBackend(CrossBackend):
    """s390x, which has the most significant byte first."""

    name = processor = "s390x"


class I686Backend(CrossBackend):
    """x86 with 32 bits, and SSE 4.2."""

    name = processor = "i686"


class WasmBackend(CrossBackend):
    """WebAssembly with 32 bits and SIMD128."""

    name = processor = "wasm"


class Aarch64UnicornBackend(CrossBackend):
    """AArch64 with NEON, in Unicorn."""

    name, processor, engine = "aarch64:unicorn", "aarch64", "unicorn"


class Riscv64UnicornBackend(CrossBackend):
    """RISC-V with 64 bits, in Unicorn."""

    name, processor, engine = "riscv64:unicorn", "riscv64", "unicorn"


class I686UnicornBackend(CrossBackend):
    """x86 with 32 bits, in Unicorn."""

    name, processor, engine = "i686:unicorn", "i686", "unicorn"
