"""A device of OpenCL through pyopencl: programs and launches.

Only the modules of this package use pyopencl. A device's compiler can end the process, so use them in a worker.
"""

from __future__ import annotations

import functools
import re
import threading
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from uops.backends.opencl.memory import SharedMemory
from uops.backends.opencl.oclgrind import DiagnosticsLog
from uops.backends.opencl.platforms import find_traits
from uops.backends.opencl.render import describe_language
from uops.spec.errors import CompileError, Crash
from uops.spec.ir.ops import Op

#: Compiler options: no warnings, and the oldest language that has all that texts need.
OPTIONS = ("-w", "-cl-std=CL1.2")
#: Option of a device that rounds divisions and square roots of float32 correctly on request.
CORRECTLY_ROUNDED = "-cl-fp32-correctly-rounded-divide-sqrt"
#: The include guard of Clang's header of all functions of OpenCL C: this macro keeps the header out.
NO_HEADER = "-D_OPENCL_H_"
#: Declarations of the functions that rendered texts use, with the header's types: a PoCL that reads it anyway sees repetitions.
DECLARED = """#define BUILTIN __attribute__((overloadable))
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
#: Number of built programs kept between their check and their launch; PoCL finds an older one in its cache.
_AT_HAND = 32


class Device:
    """A device with its context and queue. `name`, `platform`, `version` and `driver` decide the code of a text.

    `lanes` is the largest number of work-items in a group.
    """

    def __init__(self, cl: Any, handle: Any) -> None:
        self.cl, self.handle = cl, handle
        self.platform: str = handle.platform.name.strip()
        self.version: str = re.sub(r"\s+", " ", handle.platform.version).strip()
        self.name: str = handle.name.strip()
        self.driver: str = handle.driver_version
        self.traits = find_traits(self.platform)
        self.local_memory, self.units, self.lanes = map(
            int, (handle.local_mem_size, handle.max_compute_units, handle.max_work_group_size)
        )
        by_float64 = self.traits.float32_by_float64 | _list_ops_computed_in_float64(cl, handle.single_fp_config)
        self.options = (*OPTIONS, *self.traits.options, *(() if Op.DIV in by_float64 else (CORRECTLY_ROUNDED,)))
        self.language = describe_language(self.traits, by_float64, self.lanes)
        self._log = DiagnosticsLog() if self.traits.judges_accesses else None
        self._context = cl.Context([handle])
        self._queue = cl.CommandQueue(self._context)
        self.memory = SharedMemory(cl, self._context, self._queue, is_unified=bool(handle.host_unified_memory))
        self._lock = threading.Lock()
        self.build_program = functools.lru_cache(_AT_HAND)(self._build_program)

    def _build_program(self, source: str) -> Any:
        """Build the program of a text; memoized as `build_program`. Raises Crash with the compiler's messages.

        PoCL's program has no machine code yet. PoCL compiles it at a kernel's first launch, for the size of its groups. Asking for
        a binary would also compile it for groups of any size, which takes longer than all the rest.
        """
        try:
            if self.traits.declares_builtins:
                try:
                    return self.compile_program_uncached_without_warnings(DECLARED + source, (*self.options, NO_HEADER))
                except self.cl.Error:  # the text calls more, or this release declares a function differently
                    pass
            return self.compile_program_uncached_without_warnings(source, self.options)
        except self.cl.Error as e:
            raise Crash(f"OpenCL rejects the rendered kernel: {e}\n{source}") from e

    def compile_program_uncached_without_warnings(self, source: str, options: Sequence[str]) -> Any:
        """Compile a text. Raises the `Error` of pyopencl. Its warning that a compiler had something to say is left out."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self.cl.CompilerWarning)
            return self.cl.Program(self._context, source).build(options=list(options), cache_dir=False)

    def create_kernel(self, source: str, entry: str) -> Any:
        """Return the kernel `entry` of a text. Raises CompileError if it needs more LOCAL memory than a workgroup has."""
        kernel = self.cl.Kernel(self.build_program(source), entry)
        needed = kernel.get_work_group_info(self.cl.kernel_work_group_info.LOCAL_MEM_SIZE, self.handle)
        if needed > self.local_memory:
            raise CompileError(f"local buffers take {needed} bytes, and a workgroup of {self.name} has {self.local_memory}")
        return kernel

    def launch_kernel_and_wait(
        self, kernel: Any, arguments: Sequence[Any], global_size: tuple[int, ...], local_size: tuple[int, ...]
    ) -> None:
        """Launch a kernel and wait. Launches exclude each other, since a kernel object holds its arguments.

        Raises Crash for what a device that judges accesses reports.
        """
        with self._lock:
            for k, a in enumerate(arguments):
                kernel.set_arg(k, np.int64(a) if isinstance(a, int) else a)
            event = self.cl.enqueue_nd_range_kernel(self._queue, kernel, global_size, local_size)
            if self._log is not None:
                event.wait()
                self._log.raise_for_new_diagnostics()
        event.wait()


def _list_ops_computed_in_float64(cl: Any, config: int) -> frozenset[Op]:
    """Return the ops of float32 that a device does not claim to round correctly, by its configuration."""
    flags = cl.device_fp_config
    ops: set[Op] = set()
    if not config & flags.FMA:
        ops.add(Op.MULACC)
    if not config & flags.CORRECTLY_ROUNDED_DIVIDE_SQRT:
        ops |= {Op.DIV, Op.RECIP, Op.SQRT}
    return frozenset(ops)
