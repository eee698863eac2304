"""The opencl backend: the compiler on PoCL, strict on every row."""

from __future__ import annotations

from uops.backends.contract import Capabilities, CompilerBackend
from uops.backends.opencl.target import OpenClTarget


class OpenClBackend(CompilerBackend):
    """Raises Unsupported where there is no PoCL. Its compiler may end the process: for use in a worker."""

    name = "opencl"

    def __init__(self, guard: bool | str = False) -> None:
        self._opencl = OpenClTarget()
        super().__init__(self._opencl, guard=guard)

    def version(self) -> str:
        return self._opencl.version()

    def capabilities(self) -> Capabilities:
        """Every dtype: the narrow floats are computed by integers and float32."""
        found = self._opencl.device
        return Capabilities(local_memory=found.local_memory, threads=found.units)
