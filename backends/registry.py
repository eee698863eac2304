"""Backends by name: the built-in ones, and those that installed packages register in the entry point group `uops.backends`.

A registered object is called with the options alone and returns a `Backend`; usually it is the class itself. `module:attribute`
names an object that is not registered, for a backend under development.

`locate_factory` finds a backend without importing it. `import_factory` and `create_backend` import it into this process: use them
in a program that wants it there, and in the worker processes where the command line loads foreign code. Any exception of foreign
code, SystemExit included, becomes BrokenBackend.
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
from uops.backends.worker.frames import BadFrame, describe_exception, one_line
from uops.spec.errors import UopsError
from uops.spec.suggest import format_did_you_mean
from uops.spec.untrusted import quote_name

T = TypeVar("T")
GROUP = "uops.backends"
#: Name -> factory, imported on use, so that a backend's dependencies load only with it.
BUILT_IN = {
    "llvm": "uops.backends.llvm.backend:LlvmBackend",
    "c": "uops.backends.c.backend:CBackend",
    "c:gcc": "uops.backends.c.backend:GccBackend",
    "c:clang": "uops.backends.c.backend:ClangBackend",
    "opencl": "uops.backends.opencl.backend:OpenClBackend",
    "cuda": "uops.backends.cuda.backend:CudaBackend",
    "cuda:shim": "uops.backends.cuda.backend:ShimBackend",
    "cuda:nvrtc": "uops.backends.cuda.backend:CheckedShimBackend",
    "aarch64": "uops.backends.cross.backend:Aarch64Backend",
    "aarch64:sve": "uops.backends.cross.backend:SveBackend",
    "riscv64": "uops.backends.cross.backend:Riscv64Backend",
    "riscv64:v": "uops.backends.cross.backend:RiscvVectorBackend",
    "s390x": "uops.backends.cross.backend:S390xBackend",
    "i686": "uops.backends.cross.backend:I686Backend",
    "wasm": "uops.backends.cross.backend:WasmBackend",
    "aarch64:unicorn": "uops.backends.cross.backend:Aarch64UnicornBackend",
    "riscv64:unicorn": "uops.backends.cross.backend:Riscv64UnicornBackend",
    "i686:unicorn": "uops.backends.cross.backend:I686UnicornBackend",
    "interp": "uops.backends.conformance.controls:Interp",
    "tinygrad": "uops.backends.tinygrad.adapter:Tinygrad",
    "tinygrad-x86": "uops.backends.tinygrad.adapter:TinygradX86",
    "numpy": "uops.backends.subjects.numpy_adapter:Numpy",
    "jax": "uops.backends.subjects.jax_adapter:Jax",
    "jax:jit": "uops.backends.subjects.jax_adapter:JaxJit",
    "torch": "uops.backends.subjects.torch_adapter:Torch",
    "torch:compile": "uops.backends.subjects.torch_adapter:TorchCompile",
    "onnxruntime": "uops.backends.subjects.onnxruntime_adapter:OnnxRuntime",
    "openvino": "uops.backends.subjects.openvino_adapter:OpenVino",
}
#: Built-in backends whose code an engine runs, as it is for another processor.
CROSS_BACKENDS = tuple(name for name, factory in BUILT_IN.items() if factory.startswith("uops.backends.cross."))
#: Built-in backends that load a package under test, which is foreign code like a registered backend.
_SUBJECTS = frozenset({"tinygrad", "tinygrad-x86", "numpy", "jax", "jax:jit", "torch", "torch:compile", "onnxruntime", "openvino"})
_TARGET = re.compile(r"\s*([\w.]+)\s*:\s*([\w.]+)\s*(?:\[.*\])?\s*")
#: Largest length of a version, in characters.
MOST_VERSION = 1000


class UnknownBackend(UopsError, LookupError):
    """No backend has the requested name."""


class BrokenBackend(UopsError):
    """A registered backend cannot be loaded, or is not a backend."""


class FactoryPath(NamedTuple):
    """The module and the attribute of a backend's factory."""

    module: str
    attribute: str


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """A backend's own name, version and capabilities; `compiles` is true for a target of `uops.compiler`."""

    name: str
    version: str
    capabilities: Capabilities
    compiles: bool

    def to_json(self) -> dict[str, Any]:
        """Return the greeting of a worker process as JSON."""
        return {"name": self.name, "ready": self.version, "declared": self.capabilities.to_json(), "compiles": self.compiles}

    @classmethod
    def of_json(cls, greeting: dict[str, Any]) -> BackendInfo:
        """Read the JSON of `to_json`, which other code may have written. Raises BadFrame."""
        name, version, compiles = greeting.get("name"), greeting.get("ready"), greeting.get("compiles")
        if not (isinstance(name, str) and isinstance(version, str) and isinstance(compiles, bool)):
            raise BadFrame("the process does not give its backend's name, version and kind")
        try:
            return cls(name, version, Capabilities.of_json(greeting["declared"]), compiles)
        except (LookupError, TypeError, ValueError, AttributeError) as e:
            raise BadFrame(f"the process does not give its backend's capabilities: {describe_exception(e)}") from None


def names() -> tuple[str, ...]:
    """Return every registered name, built-in ones first."""
    return (*BUILT_IN, *sorted(set(_list_entry_points()) - set(BUILT_IN)))


def is_foreign(name: str) -> bool:
    """Return True if the backend, or the package that it loads, is foreign code."""
    return name not in BUILT_IN or name in _SUBJECTS


def locate_factory(name: str) -> FactoryPath:
    """Return the module and attribute of a backend's factory, without importing it. Raises UnknownBackend or BrokenBackend."""
    entry = None if name in BUILT_IN else _list_entry_points().get(name)
    target = BUILT_IN.get(name) or (entry.value if entry else name if ":" in name else None)
    if target is None:
        known_names = ", ".join(map(quote_name, names()))
        raise UnknownBackend(
            f"no backend is called {name!r}; known: {known_names} (or module:attribute){format_did_you_mean(name, names())}"
        )
    match = _TARGET.fullmatch(target)
    if match is None or not all(part.isidentifier() for word in match.groups() for part in word.split(".")):
        shown_target = "" if target == name else f" ({target!r})"
        raise BrokenBackend(
            f"backend {name!r}{shown_target} cannot be loaded: expected module:attribute, such as mine:Backend for the class"
            f" Backend of mine.py here{format_did_you_mean(name, names())}"
        )
    return FactoryPath(*match.groups())


def create_backend(name: str, **options: Any) -> Backend:
    """Create a backend by name; `options` go to its factory. Raises UnknownBackend or BrokenBackend."""
    make = import_factory(name)
    with _wrap_foreign_errors(f"backend {name!r} cannot be made", pass_through=Exception if options else UopsError):
        backend = make(**options)
    if not isinstance(backend, Backend):
        raise BrokenBackend(f"backend {name!r} gave a {type(backend).__name__}, which is no uops.backends.contract.Backend")
    return backend


def describe_backend(name: str, backend: Backend) -> BackendInfo:
    """Ask a backend for its BackendInfo. Raises BrokenBackend."""
    own_name = getattr(backend, "name", name)
    printable_name = quote_name(own_name) if isinstance(own_name, str) else name
    version, capabilities = query_version(name, backend), query_capabilities(name, backend)
    return BackendInfo(printable_name, version, capabilities, isinstance(backend, CompilerBackend))


def query_capabilities(name: str, backend: Backend) -> Capabilities:
    """Return a backend's declared capabilities. Raises BrokenBackend where it declares none or malformed ones."""
    capabilities = _call_and_check_result_type(name, "capabilities", backend.capabilities, Capabilities)
    with _wrap_foreign_errors(f"backend {name!r}: capabilities() gave fields of wrong types"):
        Capabilities.of_json(capabilities.to_json())
    return capabilities


def query_version(name: str, backend: Backend) -> str:
    """Return a backend's version, safe to print. Raises BrokenBackend."""
    text = quote_name(_call_and_check_result_type(name, "version", backend.version, str))
    if len(text) > MOST_VERSION:
        raise BrokenBackend(f"backend {name!r}: version() gave {len(text):,} characters, expected at most {MOST_VERSION:,}")
    return text


def _call_and_check_result_type(name: str, method_name: str, method: Callable[[], object], result_type: type[T]) -> T:
    """Call a method of a backend and check the type of its result. Raises BrokenBackend."""
    with _wrap_foreign_errors(f"backend {name!r}: {method_name}() raised"):
        value = method()
    if not isinstance(value, result_type):
        with _wrap_foreign_errors(f"backend {name!r}: {method_name}() gave a value without a repr"):
            shown_value = one_line(repr(value))
        raise BrokenBackend(f"backend {name!r}: {method_name}() gave {shown_value}, expected a {result_type.__name__}")
    return value


def import_factory(name: str) -> Callable[..., object]:
    """Import a backend's module and return its factory. Raises UnknownBackend or BrokenBackend."""
    module, attribute = locate_factory(name)
    shown_path = "" if f"{module}:{attribute}" == name else f" ({module}:{attribute})"
    with _wrap_foreign_errors(f"backend {name!r}{shown_path} cannot be loaded", hint=format_did_you_mean(name, names())):
        attribute_value: Any = import_module(module)
        for part in attribute.split("."):
            attribute_value = getattr(attribute_value, part)
    if not callable(attribute_value):
        raise BrokenBackend(f"backend {name!r}{shown_path} is not callable")
    make: Callable[..., object] = attribute_value
    return make


@contextmanager
def _wrap_foreign_errors(message_prefix: str, pass_through: type[Exception] | tuple[()] = (), hint: str = "") -> Iterator[None]:
    """Turn any exception of foreign code into BrokenBackend, except Ctrl-C and `pass_through`."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as e:
        if isinstance(e, pass_through):
            raise
        reason = describe_exception(e) + hint
        raise BrokenBackend(
            f"{message_prefix} {reason}" if message_prefix.endswith("raised") else f"{message_prefix}: {reason}"
        ) from e


def _list_entry_points() -> dict[str, EntryPoint]:
    """Return the registered entry points by name."""
    return {e.name: e for e in entry_points(group=GROUP)}
