"""The choice of an engine for a processor, among those that are installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from uops.backends.cross.code import Engine
from uops.backends.cross.processors import Processor
from uops.backends.cross.qemu import QemuEngine, find_emulator
from uops.backends.cross.unicorn import UnicornEngine, is_unicorn_installed
from uops.backends.cross.wasmtime import WasmtimeEngine, is_wasmtime_installed
from uops.spec.errors import Unsupported
from uops.spec.extras import install_command


class _EngineKind(NamedTuple):
    """A kind of engine: how one is made, whether it is installed, and how to install it."""

    make: Callable[[Processor, Callable[[], bytes]], Engine]
    is_installed: Callable[[Processor], bool]
    explain: Callable[[Processor], str]


_ENGINES = {
    "qemu": _EngineKind(
        QemuEngine, lambda p: find_emulator(p) is not None, lambda p: f"the program {p.qemu[0]} (Debian's package qemu-user)"
    ),
    "unicorn": _EngineKind(
        UnicornEngine, lambda p: is_unicorn_installed(), lambda p: f"the package unicorn ({install_command('cross')})"
    ),
    "wasmtime": _EngineKind(
        WasmtimeEngine, lambda p: is_wasmtime_installed(), lambda p: f"the package wasmtime ({install_command('cross')})"
    ),
}


def open_engine(processor: Processor, name: str | None, support: Callable[[], bytes]) -> Engine:
    """Return a new engine: `name`, or the processor's first that is installed. `support` gives the object of support functions.

    Raises ValueError for a name that the processor does not have, and Unsupported where no such engine is installed.
    """
    if name is not None and name not in processor.engines:
        raise ValueError(f"no engine of {processor.name} is called {name!r}; known: {', '.join(processor.engines)}")
    candidates = processor.engines if name is None else (name,)
    for candidate in candidates:
        if _ENGINES[candidate].is_installed(processor):
            return _ENGINES[candidate].make(processor, support)
    ways = " or ".join(_ENGINES[e].explain(processor) for e in candidates)
    raise Unsupported(f"no engine is installed; expected {ways}", processor.name)
