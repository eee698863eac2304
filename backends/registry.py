"""Backends by name: the built-in ones, and those that installed packages register in the entry point group `uops.backends`.

A registered object is called without arguments (options aside) and gives a `Backend`; usually it is the class itself.
`module:attribute` names an object that is not registered, for a backend that is still being written.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from uops.backends.contract import Backend, Capabilities
from uops.spec.errors import UopsError

T = TypeVar("T")
GROUP = "uops.backends"
#: Loaded on use, so that a backend's dependencies are imported only by who asks for it.
BUILT_IN = {
    "llvm": "uops.backends.llvm.backend:LlvmBackend",
    "c": "uops.backends.c.backend:CBackend",
    "c:gcc": "uops.backends.c.backend:GccBackend",
    "c:clang": "uops.backends.c.backend:ClangBackend",
    "opencl": "uops.backends.opencl.backend:OpenClBackend",
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
    make = factory(name)
    try:
        backend = make(**options)
    except Exception as e:
        if options or isinstance(e, UopsError):
            raise
        raise BrokenBackend(f"backend {name!r} cannot be made: {type(e).__name__}: {e}") from e
    if not isinstance(backend, Backend):
        raise BrokenBackend(f"backend {name!r} gave a {type(backend).__name__}, which is no uops.backends.contract.Backend")
    return backend


def declared(name: str, backend: Backend) -> Capabilities:
    """What the backend called `name` says that it can do. Raises BrokenBackend where it does not say so."""
    return _told(name, "capabilities", backend.capabilities, Capabilities)


def version(name: str, backend: Backend) -> str:
    """What the backend called `name` says that it is. Raises BrokenBackend."""
    return _told(name, "version", backend.version, str)


def _told(name: str, what: str, ask: Callable[[], object], kind: type[T]) -> T:
    try:
        found = ask()
    except Exception as e:
        raise BrokenBackend(f"backend {name!r}: {what}() raised {type(e).__name__}: {e}") from e
    if not isinstance(found, kind):
        raise BrokenBackend(f"backend {name!r}: {what}() gave {found!r}, expected a {kind.__name__}")
    return found


def factory(name: str) -> Callable[..., object]:
    """What makes the backend called `name`; its module is imported. Raises UnknownBackend or BrokenBackend."""
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
    make: Callable[..., object] = found
    return make


def _entries() -> dict[str, EntryPoint]:
    return {e.name: e for e in entry_points(group=GROUP)}
