"""Calls of kernels that are machine code of this process: `void kernel(const uint64_t *buffers, const int64_t *scalars)`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

#: Name of the function of a kernel.
ENTRY = "kernel"
#: Name of the function that runs some iterations of a kernel's THREAD loop.
PART = "part"
_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class HostKernel:
    """A native function by address, which keeps `owner`, the owner of its code, alive. Calls release the interpreter lock.

    `part`, if not 0, is the address of `void part(buffers, scalars, int64_t begin, int64_t end)`, which runs iterations [begin,
    end) of the kernel's THREAD loop. The kernel itself runs all of them.
    """

    __slots__ = ("_call", "_owner", "address", "part")

    def __init__(self, address: int, owner: object, part: int = 0) -> None:
        self.address, self.part = address, part
        self._owner = owner
        self._call = _SIGNATURE(address)

    def __call__(self, buffers: Sequence[int], scalars: Sequence[int]) -> None:
        """Run the kernel once.

        Argument k is the address buffers[k], or the value scalars[k] of a named Param; the other entry is ignored.
        """
        table = (ctypes.c_uint64 * (len(buffers) or 1))(*buffers)
        values = (ctypes.c_int64 * (len(scalars) or 1))(*scalars)
        self._call(ctypes.addressof(table), ctypes.addressof(values))
