"""The llvm backend: the compiler on the llvm target, strict on every row."""

from __future__ import annotations

from uops.backends.contract import Capabilities, CompilerBackend
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget


class LlvmBackend(CompilerBackend):
    """The llvm backend. `tier` is `full` (LLVM's O2, the default) or `fast` (no optimisation, for many small programs)."""

    name = "llvm"

    def __init__(self, tier: str = "full", guard: bool | str = False) -> None:
        self._llvm = LlvmTarget(LlvmTier.parse(tier))
        super().__init__(self._llvm, guard=guard)

    def version(self) -> str:
        """Return everything but the source that decides an object."""
        return self._llvm.version()

    def capabilities(self) -> Capabilities:
        """Declare every dtype: narrow floats are computed with integers and float32."""
        return Capabilities.of_target(self.target, "llvm")
