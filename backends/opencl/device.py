"""The only door to pyopencl: a device of PoCL, programs of texts, launches, and memory that host and device share.

PoCL comes from PyPI (`pocl-binary-distribution`) or from the system; of several platforms of that name the newest is taken. Its
compiler can end the process, so this belongs into a worker.
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
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from uops.spec.errors import Crash, Unsupported
from uops.spec.extras import how_to_install
from uops.spec.untrusted import quote_name

PLATFORM = "Portable Computing Language"
#: Divisions and square roots of float32 are rounded correctly; nothing else is relaxed either.
OPTIONS = ("-w", "-cl-std=CL1.2", "-cl-fp32-correctly-rounded-divide-sqrt")
#: Nine tenths of a build are Clang's header of all functions of OpenCL C. Its guard keeps it out, and these are what our texts use;
#: the types are those of the header, so that a PoCL which reads it all the same sees each declared twice.
_NO_HEADER = "-D_OPENCL_H_"
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


def missing() -> str | None:
    """Why there is no device to run on, or None."""
    try:
        device()
    except Unsupported as e:
        return e.what
    return None


@dataclass(frozen=True, slots=True)
class Device:
    """The device, its context and queue. `name` and `version` decide what is made of a source. `lanes`: most work-items of a
    group; `vector_bytes`: of what the device calls its vectors of float32."""

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
def device() -> Device:
    """The processor of this machine under PoCL. Raises Unsupported with the reason where there is none."""
    _private_folder()
    try:
        import pyopencl
    except ImportError as e:
        raise Unsupported(f"OpenCL: the package pyopencl is not installed ({how_to_install('opencl')})", "opencl") from e
    cl: Any = pyopencl
    try:
        platforms = [p for p in cl.get_platforms() if p.name == PLATFORM and p.get_devices()]
    except cl.Error as e:
        raise Unsupported(f"OpenCL: no platform ({e})", "opencl") from e
    if not platforms:
        raise Unsupported(f"OpenCL: no platform is called {PLATFORM!r} ({how_to_install('opencl')})", "opencl")
    platform = max(platforms, key=lambda p: _order(p.version))
    found = platform.get_devices()[0]
    lacking = [what for what, mask, config in _needs(cl, found) if config & mask != mask]
    if lacking:
        raise Unsupported(f"OpenCL: {quote_name(found.name)} lacks {', '.join(lacking)}", "opencl")
    context = cl.Context([found])
    if why := find_compiler_fault(cl, context, found):
        raise Unsupported(f"OpenCL: {quote_name(found.name)} builds no program: {why}", "opencl")
    release = re.sub(r"\s+", " ", platform.version)
    sizes = (found.local_mem_size, found.max_compute_units, found.max_work_group_size, 4 * found.native_vector_width_float)
    return Device(cl, context, cl.CommandQueue(context), found.name, release, *map(int, sizes))


def find_compiler_fault(cl: Any, context: Any, found: Any) -> str | None:
    """Return why a device cannot build any program, or None if it can.

    The LLVM in PoCL calls a processor that is newer than itself `generic`, a name that its own compiler may then refuse. Only such
    a device is asked to build an empty kernel.
    """
    if not found.version.rstrip().endswith("generic"):
        return None
    try:
        cl.Program(context, "__kernel void nothing(void) {}").build(options=[_NO_HEADER], cache_dir=False)
    except cl.Error as e:
        told = [line.strip() for line in str(e).splitlines()]
        return next((line for line in told if line.startswith("error:")), told[0] if told else "no reason is given")
    return None


def _private_folder() -> None:
    """PoCL keeps what it compiles for ever: it works in a folder that goes with this process, unless the environment names one."""
    if "POCL_CACHE_DIR" not in os.environ:
        folder = os.environ["POCL_CACHE_DIR"] = tempfile.mkdtemp(prefix="uops-pocl-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


def _order(version: str) -> tuple[int, ...]:
    """Release numbers in the text of a version, for comparison."""
    return tuple(map(int, re.findall(r"\d+", version)))


def _needs(cl: Any, found: Any) -> Iterator[tuple[str, int, int]]:
    """What strict results need of a device: (what, bits of its configuration, the configuration)."""
    f = cl.device_fp_config
    for kind, config in (("float32", found.single_fp_config), ("float64", found.double_fp_config)):
        yield (
            f"{kind} with subnormals, infinities, rounding to nearest and fma",
            f.DENORM | f.INF_NAN | f.ROUND_TO_NEAREST | f.FMA,
            config,
        )
    yield "correctly rounded float32 division", f.CORRECTLY_ROUNDED_DIVIDE_SQRT, found.single_fp_config


#: Programs at hand between their check and their use; PoCL finds an older one in its folder.
_AT_HAND = 32


@functools.lru_cache(_AT_HAND)
def program(source: str) -> Any:
    """The program of a text. Raises Crash with the compiler's messages, for rendered text is ours.

    It has no machine code yet: PoCL makes that at a kernel's first launch, for the size of its groups. A binary would have
    more of it, for groups of any size, which takes longer to make than all the rest, so that nobody asks for it.
    """
    d = device()
    try:
        try:
            return _built(_DECLARED + source, (*OPTIONS, _NO_HEADER))
        except d.cl.Error:  # another PoCL may declare something in another way
            return _built(source, OPTIONS)
    except d.cl.Error as e:
        raise Crash(f"OpenCL rejects the rendered kernel: {e}\n{source}") from e


def _built(source: str, options: Sequence[str]) -> Any:
    d = device()
    return d.cl.Program(d.context, source).build(options=list(options), cache_dir=False)


def kernel(source: str, entry: str) -> Any:
    """The kernel `entry` of a text."""
    return device().cl.Kernel(program(source), entry)


@dataclass(frozen=True, slots=True)
class _Span:
    """Host memory, and the memory object over it."""

    start: int
    stop: int
    buffer: Any


class SharedMemory:
    """Host memory that kernels can reach: `lend` for the duration of some launches, by address in between. One table per thread."""

    def __init__(self) -> None:
        self._lent = threading.local()

    @contextmanager
    def lend(self, arrays: Sequence[Any]) -> Iterator[None]:
        """Memory objects over the arrays; afterwards the arrays hold what kernels wrote.

        Arrays that overlap share an object: OpenCL leaves undefined what two of them over the same bytes do.
        """
        before = self._spans()
        self._lent.spans = spans = [_over(start, stop) for start, stop in _merged(arrays)]
        try:
            yield
            _synchronize(spans)
        finally:
            self._lent.spans = before
            for s in spans:
                s.buffer.release()

    def find(self, address: int) -> tuple[Any, int]:
        """The memory object that has an address, and the offset in it. An empty array may be anywhere: it has no object."""
        for s in self._spans():
            if s.start <= address < s.stop:
                return s.buffer, address - s.start
        return None, 0

    def _spans(self) -> list[_Span]:
        found: list[_Span] = getattr(self._lent, "spans", [])
        return found


def _merged(arrays: Sequence[Any]) -> list[tuple[int, int]]:
    """The bytes of the arrays as disjoint intervals."""
    places = sorted((int(a.__array_interface__["data"][0]), a.nbytes) for a in arrays if a.nbytes)
    merged: list[tuple[int, int]] = []
    for start, size in places:
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], start + size)
        else:
            merged.append((start, start + size))
    return merged


def _over(start: int, stop: int) -> _Span:
    d = device()
    flags = d.cl.mem_flags.READ_WRITE | d.cl.mem_flags.USE_HOST_PTR
    return _Span(start, stop, d.cl.Buffer(d.context, flags, hostbuf=(ctypes.c_ubyte * (stop - start)).from_address(start)))


def _synchronize(spans: Sequence[_Span]) -> None:
    """Mapping an object is what makes its host memory current."""
    d = device()
    for s in spans:
        mapped, _ = d.cl.enqueue_map_buffer(d.queue, s.buffer, d.cl.map_flags.READ, 0, (s.stop - s.start,), np.uint8)
        mapped.base.release(d.queue)
    d.queue.finish()


_lock = threading.Lock()


def run(kernel: Any, arguments: Sequence[Any], size: tuple[int, ...], local: tuple[int, ...]) -> None:
    """Launch and wait. A kernel object holds its arguments, so that launches of it exclude each other."""
    d = device()
    with _lock:
        for k, a in enumerate(arguments):
            kernel.set_arg(k, np.int64(a) if isinstance(a, int) else a)
        event = d.cl.enqueue_nd_range_kernel(d.queue, kernel, size, local)
    event.wait()
