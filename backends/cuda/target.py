"""The CUDA targets: from a LINEAR kernel to launches on a GPU, or to the shim's on the processor.

Both render the same text. On a GPU a binary is the text with its cubin behind it, because the text's first line describes the
launch; objects are cached on disk. The shim's binary is the text. As on every target, a loaded kernel takes host addresses. A
GPU's must be lent first (`Ability.LENDING`).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from uops import __version__
from uops.backends import cache
from uops.backends.c import tinycc
from uops.backends.cache import ObjectCache
from uops.backends.cached_target import CachedTarget
from uops.backends.cstyle.language import MAX_LANES, NATIVE
from uops.backends.cstyle.launch import LaunchShape, can_lanes_meet_at_barriers, parse_launch_comment
from uops.backends.cuda import driver, instructions, mma, nvrtc, shim
from uops.backends.cuda.driver import DeviceLaunch
from uops.backends.cuda.memory import DeviceMemory
from uops.backends.cuda.render import ALIGNED, CUDA, ENTRY, OPS, SCALAR, WRITTEN, render
from uops.backends.cuda.submission import ProgramSubmission
from uops.compiler.runtime.frame import ProgramFrame
from uops.compiler.target import Ability, MachineModel, NativeEntry, Target
from uops.spec.errors import CompileError, Crash, Unsupported
from uops.spec.ir.args import WmmaArg
from uops.spec.ir.node import UOp

instructions.register_popcnt_and_bswap()

#: Largest vector load of a thread, in bytes.
WIDEST = 16
#: Shared memory that schedules may use: more would leave too few blocks on a multiprocessor.
LOCAL_MEMORY = 48 << 10
#: The same on sm_80 and newer, whose multiprocessors have at least twice as much.
LOCAL_MEMORY_OF_SM_80 = 96 << 10
#: Most blocks of a launch.
MOST_GROUPS = (1 << 31) - 1
#: The lent memory of this process.
MEMORY = DeviceMemory()
#: What schedules know of the machine.
MACHINE = MachineModel(
    vector_bytes=WIDEST, local_memory=LOCAL_MEMORY, workgroup=MAX_LANES, access_bytes=WIDEST, registers=255, fma=True
)


@functools.cache
def describe_machine(architecture: str) -> MachineModel:
    """Return the machine model of an architecture, such as `sm_90`."""
    local_memory = LOCAL_MEMORY_OF_SM_80 if mma.architecture_number(architecture) >= 80 else LOCAL_MEMORY
    return replace(MACHINE, tensor_cores=mma.choose_largest_accurate_tensor_cores(architecture), local_memory=local_memory)


class CudaKernel:
    """A loaded kernel with its launch."""

    __slots__ = ("_kernel", "shape")

    def __init__(self, kernel: driver.LoadedKernel, shape: LaunchShape) -> None:
        self._kernel = kernel
        self.shape = shape

    def __call__(self, buffers: Sequence[int], scalars: Sequence[int]) -> None:
        """Start the kernel once on lent addresses. Raises CompileError for more blocks than a launch has."""
        copies = list[int]()
        if (launch := self._prepare_launch_copying_misaligned(buffers, scalars, copies)) is not None:
            launch.start()
        for address in copies:
            driver.free(address)

    def prepare(self, buffers: Sequence[int], scalars: Sequence[int]) -> DeviceLaunch | None:
        """Return the launch on lent addresses; None if it is empty, or if an argument must be copied for it.

        Raises CompileError as a call does.
        """
        return self._prepare_launch_copying_misaligned(buffers, scalars, None)

    def _prepare_launch_copying_misaligned(
        self, buffers: Sequence[int], scalars: Sequence[int], copies_to_free: list[int] | None
    ) -> DeviceLaunch | None:
        """Return the launch, for which arguments that are not aligned are copied; None if it is empty or has no list of copies."""
        groups, lanes = self.shape.count_groups_and_lanes(scalars)
        if not groups * lanes:
            return None
        if groups > MOST_GROUPS:
            raise CompileError(f"a launch has at most {MOST_GROUPS} blocks, and this one needs {groups}")
        arguments = list[int]()
        for k, kind in enumerate(self.shape.arguments):
            if kind == SCALAR:
                arguments.append(scalars[k])
            elif kind:
                arguments.append(MEMORY.device_address(buffers[k], kind == WRITTEN))
            if kind == ALIGNED and arguments[-1] % WIDEST:
                if copies_to_free is None:
                    return None
                arguments[-1] = MEMORY.duplicate_rest_of_span_on_device(buffers[k])
                copies_to_free.append(arguments[-1])
        return DeviceLaunch(self._kernel, groups, lanes, tuple(arguments))


class _CudaText(Target):
    """The part that both targets share: the rendered text and what it may contain."""

    name = "cuda"
    dtypes = frozenset(NATIVE)
    ops = OPS
    abilities = frozenset({Ability.WORKGROUPS, Ability.TENSOR_CORES})

    def __init__(self, architecture: str) -> None:
        """Render for an architecture, such as `sm_90`."""
        self.architecture = architecture
        self.machine = describe_machine(architecture)

    def has_tensor_core(self, arg: WmmaArg) -> bool:
        """Return True if the architecture has `mma.sync` of this configuration."""
        return mma.has_instruction(arg, self.architecture)

    def can_lanes_meet_at_barriers(self, linear: UOp) -> bool:
        """Return True if a launch numbers all lanes of a kernel that meet at its Barriers."""
        return can_lanes_meet_at_barriers(linear, CUDA)

    def render(self, linear: UOp) -> str:
        """Render one kernel as CUDA C text."""
        return render(linear)


class CudaTarget(CachedTarget, _CudaText):
    """The first GPU of this machine. Raises Unsupported where there is no GPU, no driver or no nvrtc."""

    abilities = _CudaText.abilities | CachedTarget.abilities | {Ability.LENDING, Ability.WAITING, Ability.NATIVE_ENTRY}

    def __init__(self, store: ObjectCache | None = None) -> None:
        if why := driver.unavailable_reason() or nvrtc.unavailable_reason():
            raise Unsupported(why, self.name)
        self.device = driver.open_device()
        super().__init__(self.device.architecture)
        self.store = ObjectCache(cache.directory(os.environ)) if store is None else store
        self.key = cache.digest_key(self.name, __version__, nvrtc.version(), self.device.architecture, *nvrtc.OPTIONS)

    def version(self) -> str:
        """Return everything but the source that decides a result, for reports."""
        return f"uops {__version__}, {nvrtc.version()}, {self.device.driver}, {self.device.name}"

    def compile(self, source: str) -> bytes:
        """Compile the text to a cubin, or return the cached one, behind the text's first line.

        Raises CompileError for more LOCAL memory than a block has.
        """
        needed = parse_launch_comment(source).local_bytes
        if needed > self.device.local_memory:
            raise CompileError(f"local buffers take {needed} bytes of shared memory, and a block has {self.device.local_memory}")
        return super().compile(source)

    def make_binary(self, source: str) -> bytes:
        """Compile the text to a cubin behind its first line."""
        return _first_line(source).encode() + nvrtc.compile_to_cubin(source, self.device.architecture)

    def load(self, binary: bytes) -> CudaKernel:
        """Load a cubin and return a callable that launches its kernel. Raises Crash if it cannot be loaded."""
        head, _, cubin = binary.partition(b"\n")
        try:
            shape = parse_launch_comment(head.decode())
        except ValueError as e:
            raise Crash(f"a compiled CUDA kernel begins with its launch, and this one does not: {e}") from e
        return CudaKernel(driver.load_kernel_and_raise_shared_memory_limit(cubin, ENTRY, shape.local_bytes), shape)

    def lend(self, arrays: Sequence[Any]) -> AbstractContextManager[None]:
        """Make the arrays' memory reachable for kernels within the context."""
        return MEMORY.lend_arrays(arrays)

    def wait(self) -> None:
        """Wait until all launches have ended."""
        driver.synchronize()

    def enter(self, frame: ProgramFrame, fallback: Callable[..., Any]) -> NativeEntry:
        """Return a way to queue the program's launches at once, within `lend`."""
        return NativeEntry(None, ProgramSubmission(frame, MEMORY).execute)


class ShimTarget(_CudaText):
    """The shim. With `checked`, nvrtc must take each text for an architecture first.

    Raises Unsupported where TinyCC or, for that, nvrtc is absent.
    """

    def __init__(self, checked: bool = False) -> None:
        if why := shim.unavailable_reason() or (nvrtc.unavailable_reason() if checked else None):
            raise Unsupported(why, self.name)
        super().__init__(nvrtc.DEFAULT_ARCHITECTURE)
        self.checked = checked
        self.store = ObjectCache(cache.directory(os.environ)) if checked else ObjectCache(None)
        compilers = (tinycc.version(), *((nvrtc.version(), nvrtc.DEFAULT_ARCHITECTURE, *nvrtc.OPTIONS) if checked else ()))
        self.key = cache.digest_key("cuda:shim", __version__, *compilers)

    def version(self) -> str:
        """Return everything but the source that decides a result, for reports."""
        compilers = [tinycc.version(), *([f"{nvrtc.version()} for {nvrtc.DEFAULT_ARCHITECTURE}"] if self.checked else [])]
        return f"uops {__version__}, CUDA C by {', checked by '.join(compilers)}"

    def compile(self, source: str) -> bytes:
        """Return the text, which `load` compiles, once nvrtc has taken it if that is asked."""
        if self.checked:
            self.store.get_or_make(lambda: nvrtc.compile_to_cubin(source, nvrtc.DEFAULT_ARCHITECTURE), self.key, source)
        return source.encode()

    def load(self, binary: bytes) -> shim.ShimKernel:
        """Compile the text and return it as a function of this process."""
        source = binary.decode()
        return shim.ShimKernel(source, parse_launch_comment(source))


def _first_line(source: str) -> str:
    return source.partition("\n")[0] + "\n"
