"""`Tensor`: a lazy value of the TENSOR dialect, with the methods of every layer below.

The layers are core (the node, realization, assignment), movement, elementwise, reduce, networks, indexing, create, exchange,
devices and gradients. Each is one class per module, derived from the one before, so that a method is where its row of the
specification is.
"""

from __future__ import annotations

import functools
from types import FunctionType

from uops.compiler.tensor.methods.gradients import GradientMethods


def _name_inherited_methods_after_class_and_attribute(cls: type) -> type:
    """Rename methods after their attributes, so that Python's own errors name what users call: `Tensor.clip() missing ...`."""
    for base in cls.__mro__:
        if base.__module__.startswith(__name__.rpartition(".")[0]):
            for name, value in list(vars(base).items()):
                kind = type(value) if isinstance(value, (classmethod, staticmethod)) else None
                function = value.__func__ if kind else value
                if isinstance(function, FunctionType) and not (name.startswith("__") and name != function.__name__):
                    renamed = _clone_with_name(function, name, cls)
                    setattr(base, name, kind(renamed) if kind else renamed)
    return cls


def _clone_with_name(function: FunctionType, name: str, cls: type) -> FunctionType:
    """Return a copy of a method with another name and the class's qualified name."""
    code = function.__code__.replace(co_name=name, co_qualname=f"{cls.__name__}.{name}")
    clone = FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)
    functools.update_wrapper(clone, function)
    del clone.__wrapped__  # type: ignore[attr-defined]
    clone.__kwdefaults__ = function.__kwdefaults__
    clone.__name__, clone.__qualname__ = name, code.co_qualname
    return clone


@_name_inherited_methods_after_class_and_attribute
class Tensor(GradientMethods):
    """An n-dimensional array that is computed on demand.

    Every method builds a node; `realize`, `numpy`, `tolist`, `item` and the exchange protocols compute it. A realized Tensor holds
    its array, and graphs built on it take that as an input: a graph of the same structure is compiled once, whatever the data.
    Errors of shape and dtype raise SpecError with the claim that the graph would break.
    """

    __slots__ = ()
