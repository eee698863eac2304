"""The cuda backends: the compiler on a GPU, or on the shim, strict on every row."""

from __future__ import annotations

from uops.backends.contract import Capabilities, CompilerBackend
from uops.backends.cuda.target import CudaTarget, ShimTarget


class CudaBackend(CompilerBackend):
    """The backend of the first GPU. Raises Unsupported where there is none. A fault of a kernel ends its use of the device, so run
    it in a worker."""

    name = "cuda"

    def __init__(self) -> None:
        self._cuda = CudaTarget()
        super().__init__(self._cuda)

    def version(self) -> str:
        """Return the versions of this package, of nvrtc and of the driver, and the GPU."""
        return self._cuda.version()

    def capabilities(self) -> Capabilities:
        """Declare every row; the units are multiprocessors."""
        return Capabilities.of_target(self.target, "cuda", self._cuda.device.units)


class ShimBackend(CompilerBackend):
    """The backend of CUDA C on the processor. With `checked`, nvrtc must take every text."""

    name = "cuda:shim"

    def __init__(self, guard: bool | str = False, checked: bool = False) -> None:
        self._shim = ShimTarget(checked)
        super().__init__(self._shim, guard=guard)

    def version(self) -> str:
        """Return the versions of this package and of the compilers."""
        return self._shim.version()

    def capabilities(self) -> Capabilities:
        """Declare every row, on one thread."""
        return Capabilities.of_target(self.target, "cuda")


class CheckedShimBackend(ShimBackend):
    """The shim with nvrtc's judgement of each text, under a name of its own for the command line."""

    name = "cuda:nvrtc"

    def __init__(self, guard: bool | str = False) -> None:
        super().__init__(guard, checked=True)
