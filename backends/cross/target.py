"""The cross targets: from a LINEAR kernel to a function that an engine runs."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from uops import __version__
from uops.backends import cache
from uops.backends.cache import ObjectCache
from uops.backends.cached_target import CachedTarget
from uops.backends.calling import ENTRY
from uops.backends.cross import codegen, processors
from uops.backends.cross.arguments import ArrayArgument, HostMemory, describe_array_arguments, run_with_copies
from uops.backends.cross.code import Engine
from uops.backends.cross.codegen import GENERATOR
from uops.backends.cross.engines import open_engine
from uops.backends.cross.processors import Processor
from uops.backends.cross.support import render_support_functions
from uops.backends.llvm import binding, instructions
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.render import OPS, render
from uops.backends.llvm.types import NATIVE
from uops.compiler.target import Ability, Kernel
from uops.spec.errors import Crash
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

instructions.register_intrinsics()


@functools.cache
def _sources_digest() -> str:
    """Return a digest of the table and of the modules that run LLVM, so that changes to them never reuse old objects."""
    return cache.digest_key(*(Path(str(m.__file__)).read_bytes() for m in (binding, codegen, processors)))


class CrossObject:
    """An object with kernels, and their functions as long as the engine has its code."""

    def __init__(self, engine: Engine, image: bytes, entries: Sequence[str]) -> None:
        self._engine, self._image, self._entries = engine, image, tuple(entries)
        self._functions, self._generation = list[int](), -1

    def find_function(self, k: int) -> int:
        """Return a kernel's function in the engine, and place the code if it is not there. Raises Crash if it does not link."""
        code = self._engine.code
        if self._generation != code.generation:
            self._functions = code.load_entries_evicting_all_when_full(self._image, self._entries)
            self._generation = code.generation
        return self._functions[k]


class CrossKernel:
    """A loaded kernel: number `k` of an object."""

    def __init__(self, target: CrossTarget, loaded: CrossObject, arguments: Sequence[ArrayArgument], k: int = 0) -> None:
        self._target, self._object, self._arguments, self._k = target, loaded, arguments, k

    def __call__(self, buffers: Sequence[int], scalars: Sequence[int]) -> None:
        """Run the kernel once, on lent addresses; the tables are those of every kernel (`uops.backends.calling`)."""
        t = self._target
        with t.lock:
            run_with_copies(t.engine, t.memory, self.find_function(), self._arguments, buffers, scalars)

    def find_function(self) -> int:
        """Return the kernel's function in the engine. Raises Crash if it does not link."""
        return self._object.find_function(self._k)


class CrossTarget(CachedTarget):
    """A target that compiles for another processor. Raises Unsupported where no engine for it is installed.

    `engine` names one; the default is the processor's first that is installed.
    """

    dtypes = frozenset(NATIVE)
    ops = OPS - {Op.EXP2}
    abilities = CachedTarget.abilities | {Ability.LENDING, Ability.BATCHES}

    def __init__(
        self, processor: Processor, tier: LlvmTier = LlvmTier.FULL, engine: str | None = None, store: ObjectCache | None = None
    ) -> None:
        self.processor, self.tier, self.name = processor, tier, processor.name
        self.machine = processor.machine
        self.lock = threading.Lock()
        self.memory = HostMemory()
        self.store = ObjectCache(cache.directory(os.environ)) if store is None else store
        self.key = cache.digest_key(processor.name, __version__, _sources_digest(), binding.llvm_version(), tier.name)
        self.engine: Engine = open_engine(processor, engine, lambda: compile_support_functions(self.name))

    def version(self) -> str:
        """Return everything but the source that decides a result, for reports."""
        p = self.processor
        code = f"uops {__version__}, LLVM {binding.llvm_version()}, {p.triple} {p.features}".rstrip()
        return f"{code}, {self.tier.name.lower()} tier, {self.engine.version()}"

    def render(self, linear: UOp) -> str:
        """Return the LLVM IR text of one kernel. Its first line lists the arguments that are arrays."""
        text = render(linear)
        if self.processor.workaround:
            text = self.processor.workaround(text)
        if self.processor.attributes:
            text = text.replace("attributes #0 = {", f"attributes #0 = {{ {self.processor.attributes}", 1)
        return "; " + " ".join(map(str, describe_array_arguments(linear))) + "\n" + text

    def make_binary(self, source: str) -> bytes:
        """Compile a text to an object behind the text's first line."""
        return source.split("\n", 1)[0].encode() + b"\n" + GENERATOR.compile_object(self.name, self.tier.name, source)

    def load(self, binary: bytes) -> CrossKernel:
        """Link a kernel into the engine's memory. Raises Crash if it does not link."""
        first, _, image = binary.partition(b"\n")
        return self._load_objects(image, (ENTRY,), (first.decode(errors="replace"),))[0]

    def compile_and_load_batch(self, sources: Sequence[str]) -> list[Kernel]:
        """Compile and load several texts. At the fast tier they are one object, which the cache does not hold."""
        if self.tier is not LlvmTier.FAST or not sources:
            return super().compile_and_load_batch(sources)
        lists, texts = zip(*(source.split("\n", 1) for source in sources), strict=True)
        entries = [f"{ENTRY}{k}" for k in range(len(sources))]
        return list(self._load_objects(GENERATOR.compile_batch_at_fast_tier(self.name, texts), entries, lists))

    def _load_objects(self, image: bytes, entries: Sequence[str], lists: Sequence[str]) -> list[CrossKernel]:
        """Return the kernels of an object; `lists` are the first lines of their texts. Raises Crash if it does not link."""
        try:
            arguments = [[ArrayArgument.parse(word) for word in line.split()[1:]] for line in lists]
        except ValueError as e:
            raise Crash(f"{self.name}: the binary has no list of arguments: {e}") from e
        loaded = CrossObject(self.engine, image, entries)
        with self.lock:
            loaded.find_function(0)
        return [CrossKernel(self, loaded, a, k) for k, a in enumerate(arguments)]

    def lend(self, arrays: Sequence[Any]) -> AbstractContextManager[None]:
        """Let kernels reach the arrays within the context."""
        return self.memory.lend_arrays(arrays)


@functools.cache
def compile_support_functions(processor_name: str) -> bytes:
    """Return the object of support functions. With optimizations, a function could become a call of itself."""
    return GENERATOR.compile_object(processor_name, LlvmTier.FAST.name, render_support_functions())
