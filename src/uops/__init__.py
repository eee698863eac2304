"""An executable UOp specification: an interpreter, a compiler that is verified against it, and a conformance suite for any backend.

Importing `uops` loads this file alone; each public name loads its module on first use. Raises ImportError on systems other than
POSIX: almost every part needs `fcntl`, `resource` or POSIX signals. Linux is what is tested.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if sys.platform in ("win32", "emscripten", "wasi"):
    raise ImportError(f"uops runs on Linux, not on {sys.platform}: it needs POSIX processes; on Windows, use WSL", name=__name__)

if TYPE_CHECKING:
    from uops.backends.api import compile
    from uops.backends.front import Tensor, function, grad, jit, use, value_and_grad, vjp
    from uops.interp.evaluation import run
    from uops.spec.errors import CompileError, Crash, SpecError, Trap, Unsound, Unsupported
    from uops.spec.ir.node import UOp
    from uops.spec.ir.ops import Op
    from uops.spec.ir.text import parse, show
    from uops.spec.result import Result
    from uops.spec.verify.dialects import Dialect
    from uops.spec.verify.verifier import verify

__version__ = "0.1.0"

__all__ = [
    "Op",
    "UOp",
    "Dialect",
    "Result",
    "parse",
    "show",
    "verify",
    "run",
    "compile",
    "Tensor",
    "function",
    "grad",
    "jit",
    "value_and_grad",
    "vjp",
    "use",
    "SpecError",
    "Trap",
    "CompileError",
    "Unsupported",
    "Unsound",
    "Crash",
    "__version__",
]

# fmt: off
#: Public name -> its module.
_HOME = {
    "Op":           "uops.spec.ir.ops",
    "UOp":          "uops.spec.ir.node",
    "Dialect":      "uops.spec.verify.dialects",
    "Result":       "uops.spec.result",
    "parse":        "uops.spec.ir.text",
    "show":         "uops.spec.ir.text",
    "verify":       "uops.spec.verify.verifier",
    "run":          "uops.interp",
    "compile":      "uops.backends.api",
    "Tensor":       "uops.backends.front",
    "function":     "uops.backends.front",
    "grad":         "uops.backends.front",
    "jit":          "uops.backends.front",
    "value_and_grad": "uops.backends.front",
    "vjp":          "uops.backends.front",
    "use":          "uops.backends.front",
    "SpecError":    "uops.spec.errors",
    "Trap":         "uops.spec.errors",
    "CompileError": "uops.spec.errors",
    "Unsupported":  "uops.spec.errors",
    "Unsound":      "uops.spec.errors",
    "Crash":        "uops.spec.errors",
}
# fmt: on

if not TYPE_CHECKING:  # a type checker reads the imports above; __getattr__ would make it accept every name

    def __getattr__(name):
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
