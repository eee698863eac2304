"""The Tensor front end: graphs of the TENSOR dialect, written as array programs.

`Tensor` wraps one node lazily. `function` captures a Python function as a Function node. `capture` returns the graph and the
arrays that a realization would run, and `use` names the backend. Programs run through the runner that `install` was given;
`uops.Tensor` comes with one. Importing this package loads none of it: each name loads its module on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uops.compiler.tensor.compiled_calls import jit
    from uops.compiler.tensor.dtypes import ACCUMULATE, choose_accumulation_dtypes, promote
    from uops.compiler.tensor.realize import CapturedGraph, capture, install, use
    from uops.compiler.tensor.tensor import Tensor
    from uops.compiler.tensor.trace import function
    from uops.compiler.tensor.transforms import grad, value_and_grad, vjp

__all__ = [
    "Tensor",
    "function",
    "grad",
    "jit",
    "value_and_grad",
    "vjp",
    "capture",
    "CapturedGraph",
    "use",
    "install",
    "ACCUMULATE",
    "choose_accumulation_dtypes",
    "promote",
]

# fmt: off
_HOME = {
    "Tensor":      "tensor",
    "function":    "trace",
    "grad":        "transforms",
    "jit":         "compiled_calls",
    "value_and_grad": "transforms",
    "vjp":         "transforms",
    "capture":     "realize",
    "CapturedGraph":    "realize",
    "use":         "realize",
    "install":     "realize",
    "ACCUMULATE":  "dtypes",
    "choose_accumulation_dtypes": "dtypes",
    "promote":     "dtypes",
}
# fmt: on

if not TYPE_CHECKING:  # a type checker reads the imports above; __getattr__ would make it accept every name

    def __getattr__(name):
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
