"""Backends by name: the built-in ones, and those that installed packages register in the entry point group `uops.backends`.

A registered object is called without arguments (options aside) and gives a `Backend`; usually it is the class itself.
`module:attribute` names an object that is not registered, for a backend that is still being written.

`locate` says where a backend is and imports nothing. `factory` and `get` import it into this process: for a program that wants it
there, and for the worker processes in which the command line loads what is foreign. Whatever foreign code raises meanwhile is
BrokenBackend, SystemExit included.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple, TypeVar

from uops.backends.contract import Backend, Capabilities, CompilerBackend
from uops.backends.worker.frames import BadFrame, describe, one_line
from uops.spec.errors import UopsError
from uops.spec.suggest import suggest_names
from uops.spec.untrusted import quote_name

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
#: Built-in ones that load a package under test, which is as foreign as what is registered.
_SUBJECTS = frozenset({"tinygrad", "tinygrad-x86"})
_TARGET = re.compile(r"\s*([\w.]+)\s*:\s*([\w.]+)\s*(?:\[.*\])?\s*")
#: Characters of a version, at most.
MOST_VERSION = 1000


class UnknownBackend(UopsError, LookupError):
    """No backend has the name."""


class BrokenBackend(UopsError):
    """A registered backend cannot be loaded, or is none."""


class FactoryPath(NamedTuple):
    """The module and attribute of the object that makes a backend."""

    module: str
    attribute: str


@dataclass(frozen=True, slots=True)
class Introduction:
    """The name, version and capabilities that a backend gives; `compiles` if it is a target of `uops.compiler`."""

    name: str
    version: str
    capabilities: Capabilities
    compiles: bool

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "ready": self.version, "declared": self.capabilities.to_json(), "compiles": self.compiles}

    @classmethod
    def of_json(cls, found: dict[str, Any]) -> Introduction:
        """Read what `to_json` gave, whoever wrote it. Raises BadFrame."""
        name, version, compiles = found.get("name"), found.get("ready"), found.get("compiles")
        if not (isinstance(name, str) and isinstance(version, str) and isinstance(compiles, bool)):
            raise BadFrame("the process does not say which backend it has")
        try:
            return cls(name, version, Capabilities.of_json(found["declared"]), compiles)
        except (LookupError, TypeError, ValueError, AttributeError) as e:
            raise BadFrame(f"the process does not say what its backend can do: {describe(e)}") from None


def names() -> tuple[str, ...]:
    """Every registered name, built-in ones first."""
    return (*BUILT_IN, *sorted(set(_entries()) - set(BUILT_IN)))


def is_foreign(name: str) -> bool:
    """Return True if the backend, or what it loads, is somebody else's code."""
    return name not in BUILT_IN or name in _SUBJECTS


def locate(name: str) -> FactoryPath:
    """The place of the backend called `name`; nothing is imported. Raises UnknownBackend or BrokenBackend."""
    entry = None if name in BUILT_IN else _entries().get(name)
    target = BUILT_IN.get(name) or (entry.value if entry else name if ":" in name else None)
    if target is None:
        known = ", ".join(map(quote_name, names()))
        raise UnknownBackend(f"no backend is called {name!r}; known: {known} (or module:attribute){suggest_names(name, names())}")
    found = _TARGET.fullmatch(target)
    if found is None or not all(part.isidentifier() for word in found.groups() for part in word.split(".")):
        told = "" if target == name else f" ({target!r})"
        raise BrokenBackend(
            f"backend {name!r}{told} cannot be loaded: expected module:attribute, such as mine:Backend for the class Backend"
            f" of mine.py here{suggest_names(name, names())}"
        )
    return FactoryPath(*found.groups())


def get(name: str, **options: Any) -> Backend:
    """The backend called `name`. Raises UnknownBackend or BrokenBackend; `options` go to its factory."""
    make = factory(name)
    with _foreign_code(f"backend {name!r} cannot be made", unless=Exception if options else UopsError):
        backend = make(**options)
    if not isinstance(backend, Backend):
        raise BrokenBackend(f"backend {name!r} gave a {type(backend).__name__}, which is no uops.backends.contract.Backend")
    return backend


def introduce(name: str, backend: Backend) -> Introduction:
    """Ask the backend called `name` for its Introduction. Raises BrokenBackend."""
    own = getattr(backend, "name", name)
    known = quote_name(own) if isinstance(own, str) else name
    return Introduction(known, version(name, backend), declared(name, backend), isinstance(backend, CompilerBackend))


def declared(name: str, backend: Backend) -> Capabilities:
    """What the backend called `name` says that it can do. Raises BrokenBackend where it does not say so."""
    found = _told(name, "capabilities", backend.capabilities, Capabilities)
    with _foreign_code(f"backend {name!r}: capabilities() gave fields of wrong types"):
        Capabilities.of_json(found.to_json())
    return found


def version(name: str, backend: Backend) -> str:
    """What the backend called `name` says that it is, safe to print. Raises BrokenBackend."""
    found = quote_name(_told(name, "version", backend.version, str))
    if len(found) > MOST_VERSION:
        raise BrokenBackend(f"backend {name!r}: version() gave {len(found):,} characters, expected at most {MOST_VERSION:,}")
    return found


def _told(name: str, what: str, ask: Callable[[], object], kind: type[T]) -> T:
    with _foreign_code(f"backend {name!r}: {what}() raised"):
        found = ask()
    if not isinstance(found, kind):
        with _foreign_code(f"backend {name!r}: {what}() gave what cannot be shown"):
            told = one_line(repr(found))
        raise BrokenBackend(f"backend {name!r}: {what}() gave {told}, expected a {kind.__name__}")
    return found


def factory(name: str) -> Callable[..., object]:
    """What makes the backend called `name`; its module is imported. Raises UnknownBackend or BrokenBackend."""
    module, attribute = locate(name)
    told = "" if f"{module}:{attribute}" == name else f" ({module}:{attribute})"
    with _foreign_code(f"backend {name!r}{told} cannot be loaded", hint=suggest_names(name, names())):
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    if not callable(found):
        raise BrokenBackend(f"backend {name!r}{told} is not callable")
    make: Callable[..., object] = found
    return make


@contextmanager
def _foreign_code(what: str, unless: type[Exception] | tuple[()] = (), hint: str = "") -> Iterator[None]:
    """Turn whatever foreign code raises into BrokenBackend, but Ctrl-C and `unless`."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as e:
        if isinstance(e, unless):
            raise
        words = describe(e) + hint
        raise BrokenBackend(f"{what} {words}" if what.endswith("raised") else f"{what}: {words}") from e


def _entries() -> dict[str, EntryPoint]:
    return {e.name: e for e in entry_points(group=GROUP)}
