"""The generator of well-typed TENSOR graphs, which works with any `ChoiceSource`.

It works from outputs to inputs and rejects nothing. To make a value of a wanted dtype and shape, `GraphMaker.make_value` picks
one of the producers whose typing rule admits it (`uops.fuzz.generate.producers`). That producer asks for its sources in turn,
until the budget of nodes is spent and leaves are made. A finished value of the same type may be used again. The root is a
value, a Tuple of two, or a Sink or Group that stores them. Each graph enables a random subset of the producers (swarm testing),
so that features also meet in isolation. Extents come from a pool around vector widths; no value has more than `max_elements`
elements.

Never generated: a node that would Trap (index out of bounds, conversion of a non-finite value to an index), and an index
computed from an inexact value.
"""

from __future__ import annotations

from typing import NamedTuple

from uops.backends.testing.values import Array
from uops.fuzz.generate.declared import EVERYTHING, SupportedOpDtypes
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.effects import make_store_root
from uops.fuzz.generate.maker import GraphMaker
from uops.fuzz.generate.producers import FEATURES, LEAVES, PRODUCERS
from uops.spec.choices import ChoiceSource
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


class FuzzCase(NamedTuple):
    """A graph, and arrays for its free Params, Buffers and variables, as every runner takes them."""

    graph: UOp
    inputs: dict[str, Array | int]


def generate_tensor_graph(
    draw: ChoiceSource, *, nodes: int = 12, max_elements: int = 1000, dtypes: tuple[DType, ...] = dt.STORABLE, swarm: bool = True,
    features: frozenset[str] = FEATURES, root_producers: frozenset[str] = frozenset(), declared: SupportedOpDtypes = EVERYTHING,
) -> FuzzCase:  # fmt: skip
    """Generate one case of about `nodes` nodes.

    The case is a pure function of the choices of `draw` and of the other arguments. Only the producers named in `features`
    and supported by `declared` are used. If `root_producers` is given, one of these makes the root, where one of them fits.
    """
    allowed = [p for p in PRODUCERS if p.name in features]
    producers = tuple(p for p in allowed if not swarm or p.always or draw.chance(60))
    m = GraphMaker(draw, max_elements, dtypes, producers, LEAVES, declared=declared)
    d, shape = draw.choice(m.dtypes), m.draw_shape(max_elements)
    candidates = [p for p in declared.filter_producers(PRODUCERS) if p.name in root_producers and p.admits(m, d, shape, nodes)]
    root = draw.choice(candidates).make(m, d, shape, nodes - 1) if candidates else m.make_value(d, shape, nodes)
    if draw.chance(5):
        other = m.make_value(draw.choice(m.dtypes), m.draw_shape(max_elements), 2)
        root = b.tuple_(root, other)
    if "sink" in features and draw.chance(5):
        root = make_store_root(m, list(root.src) if root.op is Op.TUPLE else [root])
    return FuzzCase(root, m.inputs)


def case(seed: int, nodes: int = 12, max_elements: int = 1000) -> FuzzCase:
    """Generate the case of `seed` with the seeded driver."""
    return generate_tensor_graph(SeededDraw(seed), nodes=nodes, max_elements=max_elements)
