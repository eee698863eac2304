"""`Tensor`: a lazy value of the TENSOR dialect, with the methods of every layer below.

core (the node, realization, assignment), movement, elementwise, reduce, networks, indexing, create, exchange: one class per
module, each built on the one before, so that a method is found where its row of the specification is.
"""

from __future__ import annotations

from uops.compiler.tensor.methods.exchange import Exchange


class Tensor(Exchange):
    """An n-dimensional array that is computed when it is asked for.

    Every method builds a node; `realize`, `numpy`, `tolist`, `item` and the exchange protocols compute it. A realized Tensor
    holds its array, and graphs built on it take that as an input: a graph of the same structure is compiled once, whatever the
    data. Mistakes of shape and dtype raise SpecError with the claim that the graph would break.
    """

    __slots__ = ()
