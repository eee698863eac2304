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
from uops.spec.untrusted import escape_to_one_line

T = TypeVar("T")
GROUP = "uops.backends"


class BuiltIn(NamedTuple):
    """A backend that comes with this package. `factory` is imported on use, so that its dependencies load only with it.

    `description` says what it is and `needs` what it takes, both in Markdown. A subject loads a package under test, which is
    foreign code like a registered backend.
    """

    factory: str
    description: str
    needs: str
    is_subject: bool = False


def _describe_processor(factory: str, description: str, engine: str = "`qemu-user` (a Debian package)") -> BuiltIn:
    """Describe a backend of another processor."""
    return BuiltIn(f"uops.backends.cross.backend:{factory}", f"LLVM for {description}", engine)


_NOTHING = "nothing beyond `pip install .`"
_CROSS = "`pip install '.[cross]'`"
_EITHER_ENGINE = f"`qemu-user` (a Debian package), or {_CROSS} for `:unicorn`"
_PEERS = "`pip install '.[peers]'`"
_SUBJECTS_PAGE = "see [subjects.md](subjects.md)"
#: The built-in backends by name.
BUILT_IN: dict[str, BuiltIn] = {
    "llvm": BuiltIn("uops.backends.llvm.backend:LlvmBackend", "LLVM in this process; `tier=full` (default) or `fast`", _NOTHING),
    "c": BuiltIn("uops.backends.c.backend:CBackend", "C by TinyCC in this process", "`pip install '.[c]'` (2 MB, LGPL, a library)"),
    "c:gcc": BuiltIn("uops.backends.c.backend:GccBackend", "the same C by the system's gcc", "`gcc` on `PATH`"),
    "c:clang": BuiltIn("uops.backends.c.backend:ClangBackend", "the same C by the system's clang", "`clang` on `PATH`"),
    "opencl": BuiltIn(
        "uops.backends.opencl.backend:OpenClBackend", "OpenCL C on the first device that conforms",
        "`pip install '.[opencl]'` (170 MB, with PoCL), or a platform of the system",
    ),
    "cuda": BuiltIn(
        "uops.backends.cuda.backend:CudaBackend", "CUDA C by nvrtc, on the first GPU",
        "a driver, and `pip install '.[cuda]'` (60 MB) or a CUDA toolkit",
    ),
    "cuda:shim": BuiltIn(
        "uops.backends.cuda.backend:ShimBackend", "the same CUDA C by TinyCC, on an x86-64 processor", "`pip install '.[cuda]'`"
    ),
    "cuda:nvrtc": BuiltIn(
        "uops.backends.cuda.backend:CheckedShimBackend", "as `cuda:shim`; nvrtc must take each text for sm_90 first",
        "`pip install '.[cuda]'`",
    ),
    "aarch64": _describe_processor("Aarch64Backend", "AArch64 with NEON, in an emulator", _EITHER_ENGINE),
    "aarch64:sve": _describe_processor("SveBackend", "AArch64 with SVE of 512 bits, in an emulator"),
    "riscv64": _describe_processor("Riscv64Backend", "RISC-V of 64 bits without vectors, in an emulator", _EITHER_ENGINE),
    "riscv64:v": _describe_processor("RiscvVectorBackend", "RISC-V of 64 bits with V 1.0 of 256 bits, in an emulator"),
    "s390x": _describe_processor("S390xBackend", "s390x, which has the most significant byte first, in an emulator"),
    "i686": _describe_processor("I686Backend", "x86 of 32 bits with SSE 4.2, in an emulator", _EITHER_ENGINE),
    "wasm": _describe_processor("WasmBackend", "WebAssembly of 32 bits with SIMD128, in wasmtime", _CROSS),
    "aarch64:unicorn": _describe_processor("Aarch64UnicornBackend", "AArch64 with NEON, in Unicorn", _CROSS),
    "riscv64:unicorn": _describe_processor("Riscv64UnicornBackend", "RISC-V of 64 bits, in Unicorn", _CROSS),
    "i686:unicorn": _describe_processor("I686UnicornBackend", "x86 of 32 bits, in Unicorn", _CROSS),
    "interp": BuiltIn("uops.backends.conformance.controls:Interp", "the reference interpreter", _NOTHING),
    "tinygrad": BuiltIn("uops.backends.tinygrad.adapter:Tinygrad", "tinygrad 0.14 with clang", _PEERS, is_subject=True),
    "tinygrad-x86": BuiltIn(
        "uops.backends.tinygrad.adapter:TinygradX86", "tinygrad 0.14 with its own x86 assembler", _PEERS, is_subject=True
    ),
    "numpy": BuiltIn("uops.backends.subjects.numpy_adapter:Numpy", "NumPy's functions", _NOTHING, is_subject=True),
    "jax": BuiltIn("uops.backends.subjects.jax_adapter:Jax", "JAX, op by op", _SUBJECTS_PAGE, is_subject=True),
    "jax:jit": BuiltIn("uops.backends.subjects.jax_adapter:JaxJit", "JAX, compiled by XLA", _SUBJECTS_PAGE, is_subject=True),
    "torch": BuiltIn("uops.backends.subjects.torch_adapter:Torch", "PyTorch, op by op", _SUBJECTS_PAGE, is_subject=True),
    "torch:compile": BuiltIn(
        "uops.backends.subjects.torch_adapter:TorchCompile", "PyTorch, compiled by Inductor", _SUBJECTS_PAGE, is_subject=True
    ),
    "mlx": BuiltIn("uops.backends.subjects.mlx_adapter:Mlx", "MLX on the processor, op by op", _SUBJECTS_PAGE, is_subject=True),
    "mlx:compile": BuiltIn(
        "uops.backends.subjects.mlx_adapter:MlxCompile", "MLX, compiled by `mx.compile`", _SUBJECTS_PAGE, is_subject=True
    ),
    "onnxruntime": BuiltIn(
        "uops.backends.subjects.onnxruntime_adapter:OnnxRuntime", "ONNX Runtime", _SUBJECTS_PAGE, is_subject=True
    ),
    "openvino": BuiltIn("uops.backends.subjects.openvino_adapter:OpenVino", "OpenVINO", _SUBJECTS_PAGE, is_subject=True),
    "numba": BuiltIn("uops.backends.subjects.numba_adapter:Numba", "Numba, of one function", _SUBJECTS_PAGE, is_subject=True),
    "tvm": BuiltIn("uops.backends.subjects.tvm_adapter:Tvm", "Apache TVM, of one Relax function", _SUBJECTS_PAGE, is_subject=True),
    "xla": BuiltIn("uops.backends.subjects.stablehlo.xla_adapter:Xla", "XLA, from StableHLO", _SUBJECTS_PAGE, is_subject=True),
    "iree": BuiltIn("uops.backends.subjects.stablehlo.iree_adapter:Iree", "IREE, from StableHLO", _SUBJECTS_PAGE, is_subject=True),
}  # fmt: skip
#: Built-in backends whose code an engine runs, as it is for another processor.
CROSS_BACKENDS = tuple(name for name, b in BUILT_IN.items() if b.factory.startswith("uops.backends.cross."))
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
    return name not in BUILT_IN or BUILT_IN[name].is_subject


def locate_factory(name: str) -> FactoryPath:
    """Return the module and attribute of a backend's factory, without importing it. Raises UnknownBackend or BrokenBackend."""
    entry = None if name in BUILT_IN else _list_entry_points().get(name)
    target = BUILT_IN[name].factory if name in BUILT_IN else entry.value if entry else name if ":" in name else None
    if target is None:
        known_names = ", ".join(map(escape_to_one_line, names()))
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
    printable_name = escape_to_one_line(own_name) if isinstance(own_name, str) else name
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
    text = escape_to_one_line(_call_and_check_result_type(name, "version", backend.version, str))
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
