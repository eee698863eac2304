"""The opencl backend: the compiler on a device of OpenCL, strict on every row."""

from __future__ import annotations

from uops.backends.contract import Capabilities, CompilerBackend
from uops.backends.opencl.target import OpenClTarget


class OpenClBackend(CompilerBackend):
    """The backend of an OpenCL device. Its compiler may end the process, so run it in a worker.

    `device` names one, as `platform[:device]`; the default is that of `UOPS_OPENCL`, or else the first one that conforms. Raises
    Unsupported where there is none.
    """

    name = "opencl"

    def __init__(self, guard: bool | str = False, device: str | None = None) -> None:
        self._opencl = OpenClTarget(device)
        super().__init__(self._opencl, guard=guard)

    def version(self) -> str:
        """Return the versions of this package, of the platform and of the driver, and the device."""
        return self._opencl.version()

    def capabilities(self) -> Capabilities:
        """Declare every dtype: narrow floats are computed with integers and float32."""
        return Capabilities.of_target(self.target, "opencl", self._opencl.device.units)
