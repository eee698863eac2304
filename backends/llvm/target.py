"""The llvm target: from a LINEAR kernel to a function of this process."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from uops import __version__
from uops.backends import cache
from uops.backends.cache import ObjectCache
from uops.backends.calling import HostKernel
from uops.backends.elf import defined_symbols, is_linkable
from uops.backends.llvm import binding
from uops.backends.llvm.binding import Tier
from uops.backends.llvm.exponential import is_native
from uops.backends.llvm.host import describe
from uops.backends.llvm.render import ENTRY, OPS, PART, render
from uops.backends.llvm.types import NATIVE
from uops.compiler.runtime.frame import Frame
from uops.compiler.target import Entered, Kernel, load
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


@functools.cache
def _pipeline() -> str:
    """A digest of the module that decides what LLVM does with a text, so that a change there never meets an old object."""
    return cache.key(Path(binding.__file__).read_bytes())


class LlvmTarget:
    """Render, compile (through the cache on disk) and load for this machine."""

    name = "llvm"
    beside = True  # LLVM runs outside of Python's lock
    dtypes: frozenset[DType] = frozenset(NATIVE)

    def __init__(self, tier: Tier = Tier.FULL, store: ObjectCache | None = None) -> None:
        self.tier = tier
        self.host = binding.host()
        self.store = ObjectCache(cache.directory(os.environ)) if store is None else store
        host = self.host
        self.machine = describe(host)
        self.ops: frozenset[Op] = OPS if is_native(host) else OPS - {Op.EXP2}
        self.key = cache.key(self.name, __version__, _pipeline(), host.llvm, host.triple, host.cpu, host.features, tier.name)

    def version(self) -> str:
        """Everything but the source that decides an object, for reports."""
        return f"uops {__version__}, LLVM {self.host.llvm}, {self.host.cpu}, {self.tier.name.lower()} tier"

    def render(self, linear: UOp) -> str:
        """LLVM IR text of one kernel."""
        return render(linear)

    def compile(self, source: str) -> bytes:
        """Object code, from the cache where it is there."""
        return self.store.made(lambda: self._compile(source), self.key, source, usable=lambda binary: is_linkable(binary, ENTRY))

    def remake(self, source: str) -> bytes:
        """Make object code anew, in place of what the cache has."""
        return self.store.remake(lambda: self._compile(source), self.key, source)

    def _compile(self, source: str) -> bytes:
        return binding.compile_object(source, self.host, self.tier)

    def load(self, binary: bytes) -> HostKernel:
        """A function of this process. Raises Crash where the binary does not link."""
        shared = binary[:4] == b"\x7fELF" and PART in defined_symbols(binary)
        loaded = binding.load_object(binary, ENTRY, *((PART,) if shared else ()))
        return HostKernel(loaded.address, loaded, loaded.addresses[-1] if shared else 0)

    def together(self, sources: Sequence[str]) -> list[Kernel]:
        """What `compile` and `load` give of each of several texts; at the fast tier by one object, which no cache holds."""
        if self.tier is not Tier.FAST:
            return [load(self, source, self.compile(source)) for source in sources]
        image = binding.compile_together(sources, self.host)
        names = [f"{ENTRY}{k}" for k in range(len(sources))]
        names += [f"{PART}{k}" for k, source in enumerate(sources) if f"@{PART}(" in source]
        loaded = binding.load_object(image, *names)
        at = dict(zip(names, loaded.addresses, strict=True))
        return [HostKernel(at[f"{ENTRY}{k}"], loaded, at.get(f"{PART}{k}", 0)) for k in range(len(sources))]

    def enter(self, frame: Frame, fallback: Callable[..., Any]) -> Entered | None:
        """A builtin for the whole program."""
        from uops.backends.llvm.table import enter  # NumPy, which naming a target does not need

        return enter(frame, fallback, self.store)
