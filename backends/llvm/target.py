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
from uops.backends.cached_target import CachedTarget
from uops.backends.calling import ENTRY, PART, HostKernel
from uops.backends.elf import defines_symbol, is_linkable_or_host_lacks_elf
from uops.backends.llvm import binding, instructions
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.exponential import has_native_exp2
from uops.backends.llvm.host import describe_machine
from uops.backends.llvm.render import OPS, render
from uops.backends.llvm.types import NATIVE
from uops.compiler.runtime.frame import ProgramFrame
from uops.compiler.target import Ability, Kernel, NativeEntry
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

instructions.register_intrinsics()


@functools.cache
def _pipeline_digest() -> str:
    """Return a digest of the module that runs LLVM, so that changes to it never reuse old objects."""
    return cache.digest_key(Path(binding.__file__).read_bytes())


class LlvmTarget(CachedTarget):
    """A target that renders, compiles (through the cache on disk) and loads for this machine."""

    name = "llvm"
    abilities = CachedTarget.abilities | {Ability.NATIVE_ENTRY, Ability.BATCHES}
    compiles_outside_lock = True
    dtypes = frozenset(NATIVE)

    def __init__(self, tier: LlvmTier = LlvmTier.FULL, store: ObjectCache | None = None, host: binding.Host | None = None) -> None:
        self.tier = tier
        self.host = host or binding.detect_host_without_gfni()
        self.store = ObjectCache(cache.directory(os.environ)) if store is None else store
        host = self.host
        self.machine = describe_machine(host)
        self.ops = OPS if has_native_exp2(host) else OPS - {Op.EXP2}
        self.key = cache.digest_key(
            self.name, __version__, _pipeline_digest(), host.llvm, host.triple, host.cpu, host.features, tier.name
        )

    def list_variants(self, store: ObjectCache) -> list[CachedTarget]:
        """Return targets of each tier, for this machine and for it without its widest vectors, which runs the same code."""
        hosts = dict.fromkeys((self.host, binding.without_features(self.host, "avx512")))
        return [
            LlvmTarget(tier, store, host) for host in hosts for tier in (self.tier, *(t for t in LlvmTier if t is not self.tier))
        ]

    def version(self) -> str:
        """Return everything but the source that decides an object, for reports."""
        return f"uops {__version__}, LLVM {self.host.llvm}, {self.host.cpu}, {self.tier.name.lower()} tier"

    def render(self, linear: UOp) -> str:
        """Return the LLVM IR text of one kernel."""
        return render(linear)

    def is_usable(self, binary: bytes) -> bool:
        """Return True if the object can be linked, as far as its headers say."""
        return is_linkable_or_host_lacks_elf(binary, ENTRY)

    def make_binary(self, source: str) -> bytes:
        """Compile a text to an object."""
        return binding.compile_object(source, self.host, self.tier)

    def load(self, binary: bytes) -> HostKernel:
        """Link a function into this process. Raises Crash if the binary does not link."""
        shared = defines_symbol(binary, PART)
        linked = binding.load_object(binary, ENTRY, *((PART,) if shared else ()))
        return HostKernel(linked.address, linked, linked.addresses[-1] if shared else 0)

    def compile_and_load_batch(self, sources: Sequence[str]) -> list[Kernel]:
        """Compile and load several texts. At the fast tier they are one object, which the cache does not hold."""
        if self.tier is not LlvmTier.FAST:
            return super().compile_and_load_batch(sources)
        image = binding.compile_batch_at_fast_tier(sources, self.host)
        names = [f"{ENTRY}{k}" for k in range(len(sources))]
        names += [f"{PART}{k}" for k, source in enumerate(sources) if f"@{PART}(" in source]
        loaded = binding.load_object(image, *names)
        at = dict(zip(names, loaded.addresses, strict=True))
        return [HostKernel(at[f"{ENTRY}{k}"], loaded, at.get(f"{PART}{k}", 0)) for k in range(len(sources))]

    def enter(self, frame: ProgramFrame, fallback: Callable[..., Any]) -> NativeEntry | None:
        """Build a builtin for the whole program."""
        from uops.backends.native_entry.table import build_native_entry  # late: imports NumPy

        return build_native_entry(frame, fallback, self.store)
