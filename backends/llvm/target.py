"""The llvm target: from a LINEAR kernel to a function of this process."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from pathlib import Path

from uops import __version__
from uops.backends import cache
from uops.backends.cache import ObjectCache
from uops.backends.llvm import binding
from uops.backends.llvm.binding import Tier
from uops.backends.llvm.render import ENTRY, OPS, render
from uops.backends.llvm.types import NATIVE
from uops.spec.dtypes import DType
from uops.spec.node import UOp
from uops.spec.ops import Op

_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


@functools.cache
def _pipeline() -> str:
    """A digest of the module that decides what LLVM does with a text, so that a change there never meets an old object."""
    return cache.key(Path(binding.__file__).read_bytes())


class Kernel:
    """A loaded kernel. It lives as long as this object; calls release the interpreter lock."""

    __slots__ = ("_call", "_loaded", "address")

    def __init__(self, loaded: binding.Loaded) -> None:
        self._loaded = loaded
        self.address = loaded.address
        self._call = _SIGNATURE(loaded.address)

    def __call__(self, buffers: Sequence[int], scalars: Sequence[int]) -> None:
        """Run once. Argument k's address is buffers[k], or its value scalars[k] for a named Param; the other entry is not read."""
        table = (ctypes.c_uint64 * (len(buffers) or 1))(*buffers)
        numbers = (ctypes.c_int64 * (len(scalars) or 1))(*scalars)
        self._call(ctypes.addressof(table), ctypes.addressof(numbers))


class LlvmTarget:
    """Render, compile (through the cache on disk) and load for this machine."""

    name = "llvm"
    dtypes: frozenset[DType] = frozenset(NATIVE)
    ops: frozenset[Op] = OPS

    def __init__(self, tier: Tier = Tier.FULL, store: ObjectCache | None = None) -> None:
        self.tier = tier
        self.host = binding.host()
        self.store = ObjectCache(cache.directory(os.environ)) if store is None else store
        host = self.host
        self.key = cache.key(self.name, __version__, _pipeline(), host.llvm, host.triple, host.cpu, host.features, tier.name)

    def version(self) -> str:
        """Everything but the source that decides an object, for reports."""
        return f"uops {__version__}, LLVM {self.host.llvm}, {self.host.cpu}, {self.tier.name.lower()} tier"

    def render(self, linear: UOp) -> str:
        """LLVM IR text of one kernel."""
        return render(linear)

    def compile(self, source: str) -> bytes:
        """Object code, from the cache where it is there."""
        name = cache.key(self.key, source)
        found = self.store.get(name)
        if found is None:
            found = binding.compile_object(source, self.host, self.tier)
            self.store.put(name, found)
        return found

    def load(self, binary: bytes) -> Kernel:
        """A function of this process."""
        return Kernel(binding.load_object(binary, ENTRY))
