"""Backends by name: the built-in ones, and those that installed packages register in the entry point group `uops.backends`.

A registered object is called without arguments (options aside) and gives a `Backend`; usually it is the class itself.
`module:attribute` names an object that is not registered, for a backend that is still being written.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from uops.backends.contract import Backend
from uops.spec.errors import UopsError

GROUP = "uops.backends"
#: Loaded on use, so that a backend's dependencies are imported only by who asks for it.
BUILT_IN = {
    "llvm": "uops.backends.llvm.backend:LlvmBackend",
    "interp": "uops.backends.conformance.controls:Interp",
    "tinygrad": "uops.backends.tinygrad.adapter:Tinygrad",
    "tinygrad-x86": "uops.backends.tinygrad.adapter:TinygradX86",
}


class UnknownBackend(UopsError, LookupError):
    """No backend has the name."""


class BrokenBackend(UopsError):
    """A registered backend cannot be loaded, or is none."""


def names() -> tuple[str, ...]:
    """Every registered name, built-in ones first."""
    return (*BUILT_IN, *sorted(set(_entries()) - set(BUILT_IN)))


def get(name: str, **options: Any) -> Backend:
    """The backend called `name`. Raises UnknownBackend or BrokenBackend; `options` go to its factory."""
    backend = _load(name)(**options)
    if not isinstance(backend, Backend):
        raise BrokenBackend(f"backend {name!r} gave a {type(backend).__name__}, which is no uops.backends.contract.Backend")
    return backend


def _load(name: str) -> Callable[..., object]:
    entry = _entries().get(name)
    target = BUILT_IN.get(name) or (entry.value if entry else name if ":" in name else None)
    if target is None:
        raise UnknownBackend(f"no backend is called {name!r}; known: {', '.join(names())} (or module:attribute)")
    module, _, attribute = target.partition(":")
    try:
        found: Any = import_module(module.strip())
        for part in attribute.split("[")[0].strip().split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as e:
        raise BrokenBackend(f"backend {name!r} ({target}) cannot be loaded: {type(e).__name__}: {e}") from e
    if not callable(found):
        raise BrokenBackend(f"backend {name!r} ({target}) is not callable")
    factory: Callable[..., object] = found
    return factory


def _entries() -> dict[str, EntryPoint]:
    return {e.name: e for e in entry_points(group=GROUP)}
