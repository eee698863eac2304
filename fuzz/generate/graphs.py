"""The generator of well-typed TENSOR graphs, independent of where its choices come from.

Output first, no rejection: to make a value of a wanted dtype and shape, `Maker.value` picks among the producers whose typing rule
admits it (`uops.fuzz.generate.producers`), which ask for their sources in turn, until the budget of nodes is spent and leaves are
made. A finished value of the same type may be used again (sharing). The root is a value, a Tuple of two, or a Sink or Group of the
Stores of them. Each graph enables a random subset of the producers (swarm), so that features also meet in isolation. Extents come
from a pool around vector widths; no value has more than `max_elements`.

Never generated: a value that a Trap would meet (index out of bounds, non-finite to index), and an index computed from an inexact
value.
"""

from __future__ import annotations

from typing import NamedTuple

from uops.backends.testing.values import Array, Draw
from uops.fuzz.generate.declared import EVERYTHING, Declared
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.effects import sink_root
from uops.fuzz.generate.maker import Maker
from uops.fuzz.generate.producers import FEATURES, LEAVES, PRODUCERS
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


class Case(NamedTuple):
    """A graph and arrays for its free Params, Buffers and variables, as every runner takes them."""

    graph: UOp
    inputs: dict[str, Array | int]


def generate(
    draw: Draw, *, nodes: int = 12, max_elements: int = 1000, dtypes: tuple[DType, ...] = dt.STORABLE, swarm: bool = True,
    features: frozenset[str] = FEATURES, first: frozenset[str] = frozenset(), declared: Declared = EVERYTHING,
) -> Case:  # fmt: skip
    """One case of about `nodes` nodes; a pure function of `draw`'s choices, of `features`, the producers that may be used, and of
    what is `declared`. With `first`, one of these makes the root."""
    allowed = [p for p in PRODUCERS if p.name in features]
    producers = tuple(p for p in allowed if not swarm or p.always or draw.chance(60))
    m = Maker(draw, max_elements, dtypes, producers, LEAVES, declared=declared)
    d, shape = draw.choice(m.dtypes), m.shape(max_elements)
    tops = [p for p in declared.among(PRODUCERS) if p.name in first and p.admits(m, d, shape, nodes)]
    root = draw.choice(tops).make(m, d, shape, nodes - 1) if tops else m.value(d, shape, nodes)
    if draw.chance(5):
        other = m.value(draw.choice(m.dtypes), m.shape(max_elements), 2)
        root = b.tuple_(root, other)
    if "sink" in features and draw.chance(5):
        root = sink_root(m, list(root.src) if root.op is Op.TUPLE else [root])
    return Case(root, m.inputs)


def case(seed: int, nodes: int = 12, max_elements: int = 1000) -> Case:
    """The fast driver's case of `seed`."""
    return generate(SeededDraw(seed), nodes=nodes, max_elements=max_elements)
