"""The OpenCL target: from a LINEAR kernel to a launch on PoCL.

A binary is the checked text: PoCL compiles it at the first launch and caches the code for the process. As on every target, a loaded
kernel takes host addresses, whose memory must be lent first (`Ability.LENDING`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from uops import __version__
from uops.backends import cache
from uops.backends.cstyle.language import NATIVE
from uops.backends.cstyle.launch import MAX_LANES, LaunchShape, can_lanes_meet_at_barriers, parse_launch_comment
from uops.backends.opencl import device, instructions
from uops.backends.opencl.render import ENTRY, OPENCL, OPS, render
from uops.compiler.target import Ability, MachineModel, Target
from uops.spec.errors import Unsupported
from uops.spec.ir.node import UOp

instructions.register_builtins()

#: Largest vector load of a work-item, in bytes, as on GPUs. PoCL forms a CPU's wider vectors of several work-items.
WIDEST = 16
#: The lent memory of this process, which the kernels of every target reach.
MEMORY = device.SharedMemory()


class OpenClKernel:
    """A loaded kernel with its launch."""

    __slots__ = ("_kernel", "shape")

    def __init__(self, kernel: Any, shape: LaunchShape) -> None:
        self._kernel = kernel
        self.shape = shape

    def __call__(self, buffers: Sequence[int], scalars: Sequence[int]) -> None:
        """Run the kernel once on lent addresses; the tables are those of every kernel (`uops.backends.calling`)."""
        sizes = self.shape.evaluate_global_local_sizes_unless_empty(scalars)
        if sizes is None:
            return
        arguments: list[Any] = []
        for k, kind in enumerate(self.shape.arguments):
            if kind == "buffer":
                arguments += MEMORY.find_buffer_and_offset(buffers[k])
            elif kind == "scalar":
                arguments.append(scalars[k])
        device.launch_kernel_and_wait(self._kernel, arguments, *sizes)


def describe_machine(opencl_device: device.Device) -> MachineModel:
    """Return the machine model for schedules: workgroups and their memory. Its cores are behind the workgroups."""
    return MachineModel(
        vector_bytes=min(max(16, opencl_device.vector_bytes), WIDEST),
        local_memory=opencl_device.local_memory,
        workgroup=min(opencl_device.lanes, MAX_LANES),
        fma=True,
    )


class OpenClTarget(Target):
    """The PoCL target. Raises Unsupported where PoCL is absent."""

    name = "opencl"
    dtypes = frozenset(NATIVE)
    ops = OPS
    abilities = frozenset({Ability.LENDING, Ability.WORKGROUPS})

    def __init__(self) -> None:
        if why := device.unavailable_reason():
            raise Unsupported(why, self.name)
        self.device = device.open_pocl_device()
        self.machine = describe_machine(self.device)
        self.key = cache.digest_key(self.name, __version__, self.device.name, self.device.version, *device.OPTIONS)

    def can_lanes_meet_at_barriers(self, linear: UOp) -> bool:
        """Return True if a launch numbers all lanes of a kernel that meet at its Barriers."""
        return can_lanes_meet_at_barriers(linear, OPENCL)

    def version(self) -> str:
        """Return everything but the source that decides a result, for reports."""
        return f"uops {__version__}, {self.device.version}, {self.device.name}"

    def render(self, linear: UOp) -> str:
        """Render one kernel as OpenCL C text."""
        return render(linear)

    def compile(self, source: str) -> bytes:
        """Check that PoCL accepts the text, and return it."""
        device.build_program(source)
        return source.encode()

    def load(self, binary: bytes) -> OpenClKernel:
        """Return a callable that launches the kernel."""
        source = binary.decode()
        return OpenClKernel(device.create_kernel(source, ENTRY), parse_launch_comment(source))

    def lend(self, arrays: Sequence[Any]) -> AbstractContextManager[None]:
        """Make the arrays' memory reachable for kernels within the context."""
        return MEMORY.lend_arrays(arrays)
