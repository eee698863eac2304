"""The C targets: from a LINEAR kernel to a function of this process.

TinyCC compiles a text faster than a disk returns an object, so its binary is the text, compiled on load. Objects of gcc and clang
are cached on disk.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from uops import __version__
from uops.backends import cache
from uops.backends.c import driver, instructions, tinycc
from uops.backends.c.render import ENTRY, OPS, render
from uops.backends.cache import ObjectCache
from uops.backends.cached_target import CachedTarget
from uops.backends.calling import HostKernel
from uops.backends.cstyle.language import NATIVE
from uops.backends.elf import is_linkable_or_host_lacks_elf
from uops.compiler.target import Target
from uops.spec.errors import Unsupported
from uops.spec.ir.node import UOp

instructions.register_instructions_of_host()


@functools.cache
def _digest_driver_source() -> str:
    """Return a digest of the driver's source, part of each cache key, so that a changed driver never meets an old object."""
    return cache.digest_key(Path(driver.__file__).read_bytes())


class TinyTarget(Target):
    """The TinyCC target. Raises Unsupported where TinyCC is not installed."""

    name = "c"
    dtypes = frozenset(NATIVE)
    ops = OPS

    def __init__(self) -> None:
        if why := tinycc.unavailable_reason():
            raise Unsupported(why, self.name)
        self.key = cache.digest_key(self.name, __version__, tinycc.version())

    def version(self) -> str:
        """Return everything but the source that decides a result, for reports."""
        return f"uops {__version__}, {tinycc.version()}"

    def render(self, linear: UOp) -> str:
        """Render one kernel as C text."""
        return render(linear)

    def compile(self, source: str) -> bytes:
        """Return the text itself, which `load` compiles."""
        return source.encode()

    def load(self, binary: bytes) -> HostKernel:
        """Compile the text and return it as a function of this process."""
        code = tinycc.compile_in_memory(binary.decode(), ENTRY)
        return HostKernel(code.address, code)


class DriverTarget(CachedTarget):
    """The target of gcc or clang. Raises Unsupported where the compiler is not installed."""

    name = "c"
    dtypes = frozenset(NATIVE)
    ops = OPS

    def __init__(self, compiler: str, store: ObjectCache | None = None) -> None:
        self.compiler = driver.find_compiler(compiler)
        self.store = ObjectCache(cache.directory(os.environ)) if store is None else store
        compiler_key = (self.compiler.name, self.compiler.version, self.compiler.machine)
        self.key = cache.digest_key(self.name, __version__, _digest_driver_source(), *compiler_key)

    def version(self) -> str:
        """Return everything but the source that decides an object, for reports."""
        return f"uops {__version__}, {self.compiler.version}"

    def render(self, linear: UOp) -> str:
        """Render one kernel as C text."""
        return render(linear)

    def is_usable(self, binary: bytes) -> bool:
        """Return True if the shared object can be linked, as far as its headers say."""
        return is_linkable_or_host_lacks_elf(binary, ENTRY)

    def make_binary(self, source: str) -> bytes:
        """Compile a text to a shared object."""
        return driver.compile_shared_object(self.compiler, source)

    def load(self, binary: bytes) -> HostKernel:
        """Load a shared object and return its kernel as a function of this process. Raises Crash if it does not link."""
        library = driver.load_shared_object(binary, ENTRY)
        return HostKernel(library.address, library)
