"""The hardware as the schedules for each C compiler see it: what pays, by measurement.

Times are those of the busier of two threads on an AMD EPYC (Zen 3), without a model and with the one chosen here.

| kernel | gcc | TinyCC |
|---|---|---|
| six elementwise ops on 2^20 floats | 4.86 -> 0.46 ms | 14.5 -> 7.1 ms |
| softmax | 7.5 -> 2.2 ms | 118 -> 64 ms |
| sum of rows | 16.6 -> 4.2 ms | 170 -> 85 ms |
| sum of columns | 132 -> 2.6 ms | 177 -> 89 ms |
| product of 512 x 512 matrices (TinyCC: 256 x 256) | 281 -> 3.3 ms | 177 -> 87 ms |
"""

from __future__ import annotations

from uops.backends.c.driver import Compiler
from uops.backends.host import available_cores, cache_line_bytes, read_data_cache_sizes
from uops.compiler.target import MachineModel

#: (macro, bytes of a vector, vector registers); the first macro that the compiler defines applies.
_VECTORS = (("__AVX512VL__", 64, 32), ("__AVX2__", 32, 16), ("__SSE2__", 16, 16), ("__ARM_NEON", 16, 32))
#: Macros of a machine whose fused multiply-add is one instruction.
_FMA = frozenset({"__FMA__", "__ARM_FEATURE_FMA"})


def describe_machine_by_compiler_macros(compiler: Compiler) -> MachineModel:
    """Return the machine that gcc or clang compiles for, by its macros.

    The compilers make vectors of the lanes that the renderer writes one by one. They make branches of lanes under gates, so there
    are no masks.
    """
    macros = {line.split()[1] for line in compiler.machine.splitlines() if line.startswith("#define ")}
    width, registers = next(((w, r) for name, w, r in _VECTORS if name in macros), (0, 16))
    return MachineModel(
        vector_bytes=width,
        registers=registers,
        caches=read_data_cache_sizes(),
        line=cache_line_bytes(),
        cores=available_cores(),
        fma=not _FMA.isdisjoint(macros),
    )


def describe_scalar_machine() -> MachineModel:
    """Return the machine of a compiler that makes no vectors, which is TinyCC: the cores alone.

    Kernels in the shape of vectors run in 1/2 to 1/5 of the time. But their texts are ten times as long, and a program is ready
    75% later. This tier is for programs that run few times.
    """
    return MachineModel(cores=available_cores())
