"""A kernel of an OpenCL device, as a function of host addresses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from uops.backends.cstyle.launch import LaunchShape, parse_launch_comment
from uops.backends.opencl.device import Device
from uops.backends.opencl.render import ENTRY
from uops.spec.errors import CompileError

#: Most work-items of a launch: they are numbered with 32 bits.
MOST_ITEMS = (1 << 32) - 1


class OpenClKernel:
    """A loaded kernel with its launch."""

    __slots__ = ("_device", "_is_linear", "_kernel", "shape")

    def __init__(self, device: Device, source: str, *, is_linear: bool) -> None:
        """Load the kernel of a text. `is_linear` says that all loops of its launch share one dimension."""
        self._device = device
        self._is_linear = is_linear
        self._kernel: Any = device.create_kernel(source, ENTRY)
        self.shape: LaunchShape = parse_launch_comment(source)

    def __call__(self, buffers: Sequence[int], scalars: Sequence[int]) -> None:
        """Run the kernel once on lent addresses; the tables are those of every kernel (`uops.backends.calling`).

        Raises CompileError for more work-items than a launch has, and Crash for what the device reports.
        """
        sizes = self.shape.evaluate_global_local_sizes_unless_empty(scalars)
        if sizes is None:
            return
        if self._is_linear:
            sizes = (math.prod(sizes[0]),), (math.prod(sizes[1]),)
            if sizes[0][0] > MOST_ITEMS:
                raise CompileError(f"a launch has at most {MOST_ITEMS} work-items, and this one needs {sizes[0][0]}")
        arguments: list[Any] = []
        for k, kind in enumerate(self.shape.arguments):
            if kind == "buffer":
                arguments += self._device.memory.find_buffer_and_offset(buffers[k])
            elif kind == "scalar":
                arguments.append(scalars[k])
        self._device.launch_kernel_and_wait(self._kernel, arguments, *sizes)
