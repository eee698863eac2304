"""The hardware of this process as LLVM describes it, for the compiler: vectors, registers, caches, cores."""

from __future__ import annotations

from uops.backends.host import available_cores, cache_line_bytes, read_data_cache_sizes
from uops.backends.llvm.binding import Host
from uops.compiler.target import MachineModel

#: (feature, bytes of a vector, vector registers, has masks); the first feature of the host applies.
_VECTORS = (
    ("avx512vl", 64, 32, True),
    ("avx2", 32, 16, False),
    ("sse2", 16, 16, False),
    ("neon", 16, 32, False),
)


def describe_machine(host: Host) -> MachineModel:
    """Return the machine that LLVM compiles for, which is the one that this process runs on."""
    width, registers, masks = next((v for f, *v in _VECTORS if host.has(f)), (0, 16, False))
    return MachineModel(
        vector_bytes=int(width),
        registers=int(registers),
        caches=read_data_cache_sizes(),
        line=cache_line_bytes(),
        cores=available_cores(),
        fma=host.has("fma") or host.triple.startswith("aarch64"),
        masks=bool(masks),
    )
