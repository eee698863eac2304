"""The OpenCL target: from a LINEAR kernel to a launch on a device.

A binary is the checked text. PoCL compiles it at the first launch and caches the code for the process. As on every target, a loaded
kernel takes host addresses, whose memory must be lent first (`Ability.LENDING`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from uops import __version__
from uops.backends import cache
from uops.backends.cstyle.language import MAX_LANES, NATIVE, Language
from uops.backends.cstyle.launch import can_lanes_meet_at_barriers
from uops.backends.opencl import instructions
from uops.backends.opencl.choice import open_device
from uops.backends.opencl.device import Device
from uops.backends.opencl.kernel import OpenClKernel
from uops.backends.opencl.render import OPS, fingerprint_device_dependent_parts, is_linear, render
from uops.compiler.target import Ability, MachineModel, Target
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

instructions.register_popcnt_and_bswap()

#: Largest vector load of a work-item, in bytes, as on GPUs. PoCL forms a CPU's wider vectors of several work-items.
WIDEST = 16


def describe_machine(device: Device) -> MachineModel:
    """Return the machine model for schedules: workgroups and their memory. Its cores are behind the workgroups."""
    return MachineModel(
        vector_bytes=WIDEST,
        local_memory=device.local_memory,
        workgroup=min(device.lanes, MAX_LANES),
        fma=Op.MULACC not in device.language.float32_by_float64,
    )


class OpenClTarget(Target):
    """The target of one device: that of a choice, `platform[:device]`, or the first one that conforms. Raises Unsupported.

    `language` may replace the one that the device's platform asks for.
    """

    name = "opencl"
    dtypes = frozenset(NATIVE)
    ops = OPS
    abilities = frozenset({Ability.LENDING, Ability.WORKGROUPS})

    def __init__(self, device: str | None = None, language: Language | None = None) -> None:
        self.device = d = open_device(device)
        self.language = language or d.language
        self.machine = describe_machine(d)
        self.key = cache.digest_key(
            self.name,
            __version__,
            d.platform,
            d.name,
            d.version,
            d.driver,
            *d.options,
            fingerprint_device_dependent_parts(self.language),
        )

    def can_lanes_meet_at_barriers(self, linear: UOp) -> bool:
        """Return True if a launch numbers all lanes of a kernel that meet at its Barriers."""
        return can_lanes_meet_at_barriers(linear, self.language)

    def version(self) -> str:
        """Return everything but the source that decides a result, for reports."""
        d = self.device
        return f"uops {__version__}, {d.platform}, {d.version}, {d.name}, driver {d.driver}"

    def render(self, linear: UOp) -> str:
        """Render one kernel as OpenCL C text."""
        return render(linear, self.language)

    def compile(self, source: str) -> bytes:
        """Check that the device's compiler accepts the text, and return it."""
        self.device.build_program(source)
        return source.encode()

    def load(self, binary: bytes) -> OpenClKernel:
        """Return a callable that launches the kernel."""
        return OpenClKernel(self.device, binary.decode(), is_linear=is_linear(self.language))

    def lend(self, arrays: Sequence[Any]) -> AbstractContextManager[None]:
        """Make the arrays' memory reachable for kernels within the context."""
        return self.device.memory.lend_arrays(arrays)
