"""The opencl backend: the compiler on PoCL, strict on every row."""

from __future__ import annotations

from uops.backends.contract import Capabilities, CompilerBackend
from uops.backends.opencl.target import OpenClTarget


class OpenClBackend(CompilerBackend):
    """The backend of PoCL. Raises Unsupported where PoCL is absent. Its compiler may end the process, so run it in a worker."""

    name = "opencl"

    def __init__(self, guard: bool | str = False) -> None:
        self._opencl = OpenClTarget()
        super().__init__(self._opencl, guard=guard)

    def version(self) -> str:
        """Return the versions of this package, of PoCL and of its device."""
        return self._opencl.version()

    def capabilities(self) -> Capabilities:
        """Declare every dtype: narrow floats are computed with integers and float32."""
        return Capabilities.of_target(self.target, "opencl", self._opencl.device.units)
