"""Kernels as WebAssembly modules in wasmtime, in this process. All modules share one memory and one stack."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from uops.backends.cross.processors import Processor
from uops.backends.cross.support import SUPPORT_SYMBOLS
from uops.backends.cross.wasm import export_functions
from uops.spec.errors import Crash

_PAGE = 1 << 16
#: The stack grows down from here; an overflow reaches address 0, and faults.
_STACK = 8 << 20
#: The end of the memory: addresses are 31 bits.
_STOP = 1 << 31
#: Functions that are kept; afterwards all are forgotten, as wasmtime frees modules with their store alone.
_MOST_FUNCTIONS = 2000


def is_wasmtime_installed() -> bool:
    """Return True if the package is installed."""
    return find_spec("wasmtime") is not None


class WasmtimeEngine:
    """A store of wasmtime, with the modules of kernels. It is its own code: a function is a number in a list."""

    name = "wasmtime"
    data = range(_STACK, _STOP)

    def __init__(self, processor: Processor, support: Callable[[], bytes]) -> None:
        import wasmtime  # late: an extra

        self._api: Any = wasmtime
        self.processor, self._support = processor, support
        self.generation = 0
        config = wasmtime.Config()
        # By default a memory reserves 4 GB of addresses, which the limit of a worker process does not permit.
        config.memory_reservation = 0
        config.memory_guard_size = 0
        config.memory_reservation_for_growth = _STACK
        self._engine: Any = wasmtime.Engine(config)
        self._open_empty_store()

    @property
    def code(self) -> WasmtimeEngine:
        """The modules."""
        return self

    def _open_empty_store(self) -> None:
        """Create a store with memory and a stack, and without modules."""
        w = self._api
        self._store = w.Store(self._engine)
        self._linker = w.Linker(self._engine)
        self._memory = w.Memory(self._store, w.MemoryType(w.Limits(2 * _STACK // _PAGE, _STOP // _PAGE)))
        stack = w.Global(self._store, w.GlobalType(w.ValType.i32(), True), w.Val.i32(_STACK))
        self._linker.define(self._store, "env", "__linear_memory", self._memory)
        self._linker.define(self._store, "env", "__stack_pointer", stack)
        self._functions: list[Any] = []

    def version(self) -> str:
        """Return the package's version."""
        return f"wasmtime {version('wasmtime')}"

    def load_entries_evicting_all_when_full(self, image: bytes, entries: Sequence[str]) -> list[int]:
        """Compile and link an object; return the numbers of its functions `entries`. Raises Crash if wasmtime rejects it."""
        if len(self._functions) >= _MOST_FUNCTIONS:
            self.generation += 1
            self._open_empty_store()
        if not self._functions:
            support = self._instantiate_and_get_exports(export_functions(self._support(), SUPPORT_SYMBOLS))
            for name in SUPPORT_SYMBOLS:
                self._linker.define(self._store, "env", name, support[name])
            self._functions.append(None)  # number 0 is no kernel's: it says that the support functions are defined
        exports, first = self._instantiate_and_get_exports(export_functions(image, entries)), len(self._functions)
        self._functions += [exports[entry] for entry in entries]
        return list(range(first, len(self._functions)))

    def _instantiate_and_get_exports(self, module: bytes) -> Any:
        """Return the exports of a module."""
        try:
            return self._linker.instantiate(self._store, self._api.Module(self._engine, module)).exports(self._store)
        except self._api.WasmtimeError as e:
            raise Crash(f"wasmtime rejects a kernel: {e}") from e

    def _grow(self, stop: int) -> None:
        missing = stop - self._memory.data_len(self._store)
        if missing > 0:
            self._memory.grow(self._store, -(-missing // _PAGE))

    def write(self, address: int, data: bytes | memoryview) -> None:
        """Write memory."""
        self._grow(address + len(data))
        source = (ctypes.c_char * len(data)).from_buffer_copy(data) if isinstance(data, memoryview) else data
        ctypes.memmove(self._address(address), source, len(data))

    def read_into(self, address: int, data: memoryview) -> None:
        """Read memory."""
        ctypes.memmove((ctypes.c_char * len(data)).from_buffer(data), self._address(address), len(data))

    def _address(self, address: int) -> int:
        """Return the host's address of one of the memory."""
        return int(ctypes.addressof(self._memory.data_ptr(self._store).contents)) + address

    def call(self, function: int, buffers: int, scalars: int) -> None:
        """Run a kernel. Raises Crash if it traps."""
        try:
            self._functions[function](self._store, buffers, scalars)
        except (self._api.Trap, self._api.WasmtimeError) as e:
            raise Crash(f"a kernel traps in wasmtime: {e}") from e

    def close(self) -> None:
        """Release the modules and the memory."""
        self._functions, self._linker, self._memory, self._store = [], None, None, None
