"""The opencl target: from a LINEAR kernel to a launch on PoCL.

An object is the checked text: PoCL compiles at the first launch, and keeps that for the process. A loaded kernel takes host
addresses, as everywhere, and they must be lent (`uops.compiler.target.Lends`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from uops import __version__
from uops.backends import cache
from uops.backends.cstyle.language import NATIVE
from uops.backends.opencl import device
from uops.backends.opencl.launch import MAX_LANES, Shape, read
from uops.backends.opencl.render import ENTRY, OPS, render
from uops.compiler.target import Machine
from uops.spec.errors import Unsupported
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Bytes of a vector that a work-item loads at once: what GPUs have; a CPU's own are made of several work-items.
WIDEST = 16
#: One per process: what one target lends, the kernels of every one can reach.
MEMORY = device.SharedMemory()


class Kernel:
    """A loaded kernel."""

    __slots__ = ("_kernel", "shape")

    def __init__(self, kernel: Any, shape: Shape) -> None:
        self._kernel = kernel
        self.shape = shape

    def __call__(self, buffers: Sequence[int], scalars: Sequence[int]) -> None:
        """Run once, on addresses that are lent; the tables are those of every kernel."""
        sizes = self.shape.sizes(scalars)
        if sizes is None:
            return
        arguments: list[Any] = []
        for k, kind in enumerate(self.shape.arguments):
            if kind == "buffer":
                arguments += MEMORY.find(buffers[k])
            elif kind == "scalar":
                arguments.append(scalars[k])
        device.run(self._kernel, arguments, *sizes)


def machine(found: device.Device) -> Machine:
    """What schedules ask: workgroups and their memory. Its cores are behind the workgroups."""
    return Machine(
        vector_bytes=min(max(16, found.vector_bytes), WIDEST),
        local_memory=found.local_memory,
        workgroup=min(found.lanes, MAX_LANES),
        fma=True,
    )


class OpenClTarget:
    """Render, compile and load for PoCL. Raises Unsupported where there is none."""

    name = "opencl"
    dtypes: frozenset[DType] = frozenset(NATIVE)
    ops: frozenset[Op] = OPS

    def __init__(self) -> None:
        if why := device.missing():
            raise Unsupported(why, self.name)
        self.device = device.device()
        self.machine = machine(self.device)
        self.key = cache.key(self.name, __version__, self.device.name, self.device.version, *device.OPTIONS)

    def version(self) -> str:
        """Everything but the source that decides a result, for reports."""
        return f"uops {__version__}, {self.device.version}, {self.device.name}"

    def render(self, linear: UOp) -> str:
        """OpenCL C text of one kernel."""
        return render(linear)

    def compile(self, source: str) -> bytes:
        """The text, if PoCL takes it; its first line says how to launch it."""
        device.program(source)
        return source.encode()

    def load(self, binary: bytes) -> Kernel:
        """A launch of this process."""
        source = binary.decode()
        return Kernel(device.kernel(source, ENTRY), read(source))

    def lend(self, arrays: Sequence[Any]) -> AbstractContextManager[None]:
        """Let kernels reach the arrays' memory."""
        return MEMORY.lend(arrays)
