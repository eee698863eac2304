"""A PoCL device through pyopencl: programs, launches, and memory shared by host and device.

No other module uses pyopencl. PoCL comes from PyPI (`pocl-binary-distribution`) or from the system; the newest of several platforms
is taken. Its compiler can end the process, so use this module in a worker.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from uops.backends.lending import LentSpan, MemoryLender
from uops.spec.errors import Crash, Unsupported
from uops.spec.extras import install_command
from uops.spec.untrusted import quote_name

PLATFORM = "Portable Computing Language"
#: Compiler options: divisions and square roots of float32 are correctly rounded, and nothing is relaxed.
OPTIONS = ("-w", "-cl-std=CL1.2", "-cl-fp32-correctly-rounded-divide-sqrt")
#: Clang's header of all functions of OpenCL C takes nine tenths of a build. This macro, its include guard, keeps it out.
_NO_HEADER = "-D_OPENCL_H_"
#: Declarations of the functions that rendered texts use, with the header's types: a PoCL that reads it anyway sees repetitions.
_DECLARED = """#define BUILTIN __attribute__((overloadable))
#ifndef CLK_LOCAL_MEM_FENCE
#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2
#endif
unsigned long BUILTIN __attribute__((const)) get_group_id(unsigned);
unsigned long BUILTIN __attribute__((const)) get_local_id(unsigned);
void BUILTIN __attribute__((convergent)) barrier(unsigned);
float BUILTIN __attribute__((const)) fma(float, float, float);
double BUILTIN __attribute__((const)) fma(double, double, double);
float BUILTIN __attribute__((const)) sqrt(float);
double BUILTIN __attribute__((const)) sqrt(double);
unsigned BUILTIN atomic_cmpxchg(volatile __global unsigned *, unsigned, unsigned);
unsigned BUILTIN atomic_cmpxchg(volatile __local unsigned *, unsigned, unsigned);
unsigned long BUILTIN atom_cmpxchg(volatile __global unsigned long *, unsigned long, unsigned long);
unsigned long BUILTIN atom_cmpxchg(volatile __local unsigned long *, unsigned long, unsigned long);
"""


def unavailable_reason() -> str | None:
    """Return why there is no device to run on, or None."""
    try:
        open_pocl_device()
    except Unsupported as e:
        return e.what
    return None


@dataclass(frozen=True, slots=True)
class Device:
    """A device with its context and queue. `name` and `version` decide the code of a text.

    `lanes` is the largest number of work-items in a group. `vector_bytes` is the size of the device's native float32 vector.
    """

    cl: Any
    context: Any
    queue: Any
    name: str
    version: str
    local_memory: int
    units: int
    lanes: int
    vector_bytes: int


@functools.cache
def open_pocl_device() -> Device:
    """Open the CPU device of PoCL; memoized. Raises Unsupported with the reason where there is none."""
    _use_temporary_pocl_cache_unless_set()
    try:
        import pyopencl
    except ImportError as e:
        raise Unsupported(f"OpenCL: the package pyopencl is not installed ({install_command('opencl')})", "opencl") from e
    cl: Any = pyopencl
    try:
        platforms = [p for p in cl.get_platforms() if p.name == PLATFORM and p.get_devices()]
    except cl.Error as e:
        raise Unsupported(f"OpenCL: no platform ({e})", "opencl") from e
    if not platforms:
        raise Unsupported(f"OpenCL: no platform is called {PLATFORM!r} ({install_command('opencl')})", "opencl")
    platform = max(platforms, key=lambda p: _version_sort_key(p.version))
    processor = platform.get_devices()[0]
    missing = [f.name for f in _list_required_features(cl, processor) if f.device_config & f.required_bits != f.required_bits]
    if missing:
        raise Unsupported(f"OpenCL: {quote_name(processor.name)} lacks {', '.join(missing)}", "opencl")
    context = cl.Context([processor])
    if why := find_generic_device_build_fault(cl, context, processor):
        raise Unsupported(f"OpenCL: {quote_name(processor.name)} builds no program: {why}", "opencl")
    release = re.sub(r"\s+", " ", platform.version)
    sizes = (
        processor.local_mem_size,
        processor.max_compute_units,
        processor.max_work_group_size,
        4 * processor.native_vector_width_float,
    )
    return Device(cl, context, cl.CommandQueue(context), processor.name, release, *map(int, sizes))


def find_generic_device_build_fault(cl: Any, context: Any, device: Any) -> str | None:
    """Return why a device cannot build any program, or None if it can.

    PoCL's LLVM calls a processor newer than itself `generic`, a name that PoCL's own compiler may then refuse. Only such a device
    is asked to build an empty kernel.
    """
    if not device.version.rstrip().endswith("generic"):
        return None
    try:
        cl.Program(context, "__kernel void nothing(void) {}").build(options=[_NO_HEADER], cache_dir=False)
    except cl.Error as e:
        messages = [line.strip() for line in str(e).splitlines()]
        return next((line for line in messages if line.startswith("error:")), messages[0] if messages else "no reason is given")
    return None


def _use_temporary_pocl_cache_unless_set() -> None:
    """Set PoCL's cache, which it never cleans, to a folder that is removed with this process, unless the environment names one."""
    if "POCL_CACHE_DIR" not in os.environ:
        folder = os.environ["POCL_CACHE_DIR"] = tempfile.mkdtemp(prefix="uops-pocl-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


def _version_sort_key(version: str) -> tuple[int, ...]:
    """Return the release numbers in a version, for comparison."""
    return tuple(map(int, re.findall(r"\d+", version)))


class _RequiredFeature(NamedTuple):
    """A feature that strict results need of a device, by bits that the device's configuration must have."""

    name: str
    required_bits: int
    device_config: int


def _list_required_features(cl: Any, device: Any) -> Iterator[_RequiredFeature]:
    """Yield the features that strict results need of a device, whether it has them or not."""
    f = cl.device_fp_config
    for kind, config in (("float32", device.single_fp_config), ("float64", device.double_fp_config)):
        yield _RequiredFeature(
            f"{kind} with subnormals, infinities, rounding to nearest and fma",
            f.DENORM | f.INF_NAN | f.ROUND_TO_NEAREST | f.FMA,
            config,
        )
    yield _RequiredFeature("correctly rounded float32 division", f.CORRECTLY_ROUNDED_DIVIDE_SQRT, device.single_fp_config)


#: Number of built programs kept between their check and their launch; PoCL finds an older one in its cache.
_AT_HAND = 32


@functools.lru_cache(_AT_HAND)
def build_program(source: str) -> Any:
    """Build the program of a text; memoized. Raises Crash with the compiler's messages: rendered text must compile.

    The program has no machine code yet. PoCL compiles it at a kernel's first launch, for the size of its groups. Asking for a
    binary would also compile it for groups of any size, which takes longer than all the rest.
    """
    d = open_pocl_device()
    try:
        try:
            return _compile_program(_DECLARED + source, (*OPTIONS, _NO_HEADER))
        except d.cl.Error:  # this PoCL may declare a function differently
            return _compile_program(source, OPTIONS)
    except d.cl.Error as e:
        raise Crash(f"OpenCL rejects the rendered kernel: {e}\n{source}") from e


def _compile_program(source: str, options: Sequence[str]) -> Any:
    d = open_pocl_device()
    return d.cl.Program(d.context, source).build(options=list(options), cache_dir=False)


def create_kernel(source: str, entry: str) -> Any:
    """Return the kernel `entry` of a text."""
    return open_pocl_device().cl.Kernel(build_program(source), entry)


class BufferSpan(LentSpan):
    """A range of host addresses with the memory object over it."""

    __slots__ = ("buffer",)

    def __init__(self, start: int, stop: int, buffer: Any) -> None:
        super().__init__(start, stop)
        self.buffer = buffer


class SharedMemory(MemoryLender[BufferSpan]):
    """Host memory that kernels reach by memory objects over it. OpenCL leaves two objects over the same bytes undefined."""

    def open_span(self, start: int, stop: int) -> BufferSpan:
        """Create a memory object over host memory."""
        d = open_pocl_device()
        flags = d.cl.mem_flags.READ_WRITE | d.cl.mem_flags.USE_HOST_PTR
        host = (ctypes.c_ubyte * (stop - start)).from_address(start)
        return BufferSpan(start, stop, d.cl.Buffer(d.context, flags, hostbuf=host))

    def return_spans(self, spans: Sequence[BufferSpan]) -> None:
        """Make the host memory of objects current by mapping them."""
        d = open_pocl_device()
        for s in spans:
            mapped, _ = d.cl.enqueue_map_buffer(d.queue, s.buffer, d.cl.map_flags.READ, 0, (s.stop - s.start,), np.uint8)
            mapped.base.release(d.queue)
        d.queue.finish()

    def close_span(self, span: BufferSpan) -> None:
        """Release a memory object."""
        span.buffer.release()

    def find_buffer_and_offset(self, address: int) -> tuple[Any, int]:
        """Return the memory object that holds an address, and the offset in it; no object for an empty array."""
        span = self.find_span(address)
        return (None, 0) if span is None else (span.buffer, address - span.start)


_lock = threading.Lock()


def launch_kernel_and_wait(
    kernel: Any, arguments: Sequence[Any], global_size: tuple[int, ...], local_size: tuple[int, ...]
) -> None:
    """Launch a kernel and wait. Launches exclude each other, since a kernel object holds its arguments."""
    d = open_pocl_device()
    with _lock:
        for k, a in enumerate(arguments):
            kernel.set_arg(k, np.int64(a) if isinstance(a, int) else a)
        event = d.cl.enqueue_nd_range_kernel(d.queue, kernel, global_size, local_size)
    event.wait()
