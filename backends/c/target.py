"""The C targets: from a LINEAR kernel to a function of this process.

TinyCC compiles a text in less time than a disk needs to give an object back, so its binary is the text itself, compiled when it is
loaded. What gcc and clang make is kept in the cache on disk.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from uops import __version__
from uops.backends import cache
from uops.backends.c import driver, tinycc
from uops.backends.c.render import ENTRY, OPS, render
from uops.backends.cache import ObjectCache
from uops.backends.calling import HostKernel
from uops.backends.cstyle.language import NATIVE
from uops.backends.elf import is_linkable
from uops.spec.errors import Unsupported
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


@functools.cache
def _pipeline() -> str:
    """A digest of the module that decides what a compiler does with a text, so that a change there never meets an old object."""
    return cache.key(Path(driver.__file__).read_bytes())


class TinyTarget:
    """Through TinyCC. Raises Unsupported where it is not installed."""

    name = "c"
    dtypes: frozenset[DType] = frozenset(NATIVE)
    ops: frozenset[Op] = OPS

    def __init__(self) -> None:
        if why := tinycc.missing():
            raise Unsupported(why, self.name)
        self.key = cache.key(self.name, __version__, tinycc.version())

    def version(self) -> str:
        """Everything but the source that decides a result, for reports."""
        return f"uops {__version__}, {tinycc.version()}"

    def render(self, linear: UOp) -> str:
        """C text of one kernel."""
        return render(linear)

    def compile(self, source: str) -> bytes:
        return source.encode()

    def load(self, binary: bytes) -> HostKernel:
        """A function of this process."""
        loaded = tinycc.load(binary.decode(), ENTRY)
        return HostKernel(loaded.address, loaded)


class DriverTarget:
    """Through gcc or clang. Raises Unsupported where it is not installed."""

    name = "c"
    dtypes: frozenset[DType] = frozenset(NATIVE)
    ops: frozenset[Op] = OPS

    def __init__(self, compiler: str, store: ObjectCache | None = None) -> None:
        self.compiler = driver.find(compiler)
        self.store = ObjectCache(cache.directory(os.environ)) if store is None else store
        found = self.compiler
        self.key = cache.key(self.name, __version__, _pipeline(), found.name, found.version, found.machine)

    def version(self) -> str:
        """Everything but the source that decides an object, for reports."""
        return f"uops {__version__}, {self.compiler.version}"

    def render(self, linear: UOp) -> str:
        """C text of one kernel."""
        return render(linear)

    def compile(self, source: str) -> bytes:
        """A shared object, from the cache where it is there."""
        return self.store.made(lambda: self._compile(source), self.key, source, usable=lambda binary: is_linkable(binary, ENTRY))

    def remake(self, source: str) -> bytes:
        """Make a shared object anew, in place of what the cache has."""
        return self.store.remake(lambda: self._compile(source), self.key, source)

    def _compile(self, source: str) -> bytes:
        return driver.compile_object(self.compiler, source)

    def load(self, binary: bytes) -> HostKernel:
        """A function of this process. Raises Crash where the binary does not link."""
        loaded = driver.load_object(binary, ENTRY)
        return HostKernel(loaded.address, loaded)
