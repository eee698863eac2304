"""`Tensor`: a lazy value of the TENSOR dialect, with the methods of every layer below.

core (the node, realization, assignment), movement, elementwise, reduce, networks, indexing, create, exchange: one class per
module, each built on the one before, so that a method is found where its row of the specification is.
"""

from __future__ import annotations

import functools
from types import FunctionType

from uops.compiler.tensor.methods.exchange import Exchange


def _name_methods(cls: type) -> type:
    """Let Python's own errors name methods as users call them: `Tensor.clip() missing ...`, whichever class defines it under
    whichever name."""
    for base in cls.__mro__:
        if base.__module__.startswith(__name__.rpartition(".")[0]):
            for name, value in list(vars(base).items()):
                kind = type(value) if isinstance(value, (classmethod, staticmethod)) else None
                function = value.__func__ if kind else value
                if isinstance(function, FunctionType) and not (name.startswith("__") and name != function.__name__):
                    named = _named(function, name, cls)
                    setattr(base, name, kind(named) if kind else named)
    return cls


def _named(function: FunctionType, name: str, cls: type) -> FunctionType:
    """A function that is the same but for its name."""
    code = function.__code__.replace(co_name=name, co_qualname=f"{cls.__name__}.{name}")
    found = FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)
    functools.update_wrapper(found, function)
    del found.__wrapped__  # type: ignore[attr-defined]
    found.__kwdefaults__ = function.__kwdefaults__
    found.__name__, found.__qualname__ = name, code.co_qualname
    return found


@_name_methods
class Tensor(Exchange):
    """An n-dimensional array that is computed when it is asked for.

    Every method builds a node; `realize`, `numpy`, `tolist`, `item` and the exchange protocols compute it. A realized Tensor
    holds its array, and graphs built on it take that as an input: a graph of the same structure is compiled once, whatever the
    data. Mistakes of shape and dtype raise SpecError with the claim that the graph would break.
    """

    __slots__ = ()
