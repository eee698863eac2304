"""The C targets: from a LINEAR kernel to a function of this process.

TinyCC compiles a text faster than a disk returns an object, so its binary is the text, compiled on load. Objects of gcc and clang
are cached on disk.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from uops import __version__
from uops.backends import cache
from uops.backends.c import driver, instructions, tinycc
from uops.backends.c.machine import describe_machine_by_compiler_macros, describe_scalar_machine
from uops.backends.c.render import OPS, find_functions, render
from uops.backends.cache import ObjectCache
from uops.backends.cached_target import CachedTarget
from uops.backends.calling import ENTRY, PART, HostKernel
from uops.backends.cstyle.language import NATIVE
from uops.backends.elf import defines_symbol, is_linkable_or_host_lacks_elf
from uops.backends.native_entry.sharing import has_loop_worth_sharing
from uops.compiler.runtime.frame import ProgramFrame
from uops.compiler.target import Ability, NativeEntry, Target
from uops.spec.errors import Unsupported
from uops.spec.ir.node import UOp

instructions.register_bswap_and_popcnt_if_host_is_x86()


@functools.cache
def _digest_driver_source() -> str:
    """Return a digest of the driver's source, part of each cache key, so that a changed driver never meets an old object."""
    return cache.digest_key(Path(driver.__file__).read_bytes())


class _CTarget(Target):
    """The part that the C targets share: the renderer, and threads for the loops of kernels. `store` has the objects on disk."""

    name = "c"
    abilities = frozenset({Ability.NATIVE_ENTRY})
    dtypes = frozenset(NATIVE)
    ops = OPS

    def __init__(self, store: ObjectCache | None) -> None:
        self.store = ObjectCache(cache.directory(os.environ)) if store is None else store

    def render(self, linear: UOp) -> str:
        """Render one kernel as C text."""
        return render(linear)

    def enter(self, frame: ProgramFrame, fallback: Callable[..., Any]) -> NativeEntry | None:
        """Build a builtin for a program with loops that threads share; a program without such loops has none."""
        if not has_loop_worth_sharing(frame):
            return None
        from uops.backends.native_entry.table import build_native_entry  # late: imports NumPy and LLVM

        return build_native_entry(frame, fallback, self.store)


class TinyTarget(_CTarget):
    """The TinyCC target. Raises Unsupported where TinyCC is not installed."""

    def __init__(self, store: ObjectCache | None = None) -> None:
        super().__init__(store)
        if why := tinycc.unavailable_reason():
            raise Unsupported(why, self.name)
        self.machine = describe_scalar_machine()
        self.key = cache.digest_key(self.name, __version__, tinycc.version())

    def version(self) -> str:
        """Return everything but the source that decides a result, for reports."""
        return f"uops {__version__}, {tinycc.version()}"

    def compile(self, source: str) -> bytes:
        """Return the text itself, which `load` compiles."""
        return source.encode()

    def load(self, binary: bytes) -> HostKernel:
        """Compile the text and return it as a function of this process."""
        source = binary.decode()
        code = tinycc.compile_in_memory(source, *find_functions(source))
        return _make_kernel(code.addresses, code)


class DriverTarget(_CTarget, CachedTarget):
    """The target of gcc or clang. Raises Unsupported where the compiler is not installed."""

    abilities = _CTarget.abilities | CachedTarget.abilities

    def __init__(self, compiler: str, store: ObjectCache | None = None) -> None:
        super().__init__(store)
        self.compiler = driver.find_compiler(compiler)
        self.machine = describe_machine_by_compiler_macros(self.compiler)
        compiler_key = (self.compiler.name, self.compiler.version, self.compiler.machine)
        self.key = cache.digest_key(self.name, __version__, _digest_driver_source(), *compiler_key)

    def version(self) -> str:
        """Return everything but the source that decides an object, for reports."""
        return f"uops {__version__}, {self.compiler.version}"

    def is_usable(self, binary: bytes) -> bool:
        """Return True if the shared object can be linked, as far as its headers say."""
        return is_linkable_or_host_lacks_elf(binary, ENTRY)

    def make_binary(self, source: str) -> bytes:
        """Compile a text to a shared object."""
        return driver.compile_shared_object(self.compiler, source)

    def load(self, binary: bytes) -> HostKernel:
        """Load a shared object and return its kernel as a function of this process. Raises Crash if it does not link."""
        shared = defines_symbol(binary, PART)
        library = driver.load_shared_object(binary, ENTRY, *((PART,) if shared else ()))
        return _make_kernel(library.addresses, library)


def _make_kernel(addresses: Sequence[int], owner: object) -> HostKernel:
    """Return the kernel at the addresses of its function and, if there is one, of its part."""
    address, *part = addresses
    return HostKernel(address, owner, *part)
