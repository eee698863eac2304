"""The generator of well-typed TENSOR graphs, independent of where its choices come from.

Output first, no rejection: to make a value of a wanted dtype and shape, `Maker.value` picks among the producers whose typing rule
admits it (`uops.fuzz.producers`), which ask for their sources in turn, until the budget of nodes is spent and leaves are made.
A finished value of the same type may be used again (sharing). The root is a value, a Tuple of two, or a Sink or Group of the Stores
of them. Each graph enables a random subset of the producers (swarm), so that
features also meet in isolation. Extents come from a pool around vector widths; no value has more than `max_elements`.

Never generated: a value that a Trap would meet (index out of bounds, non-finite to index), and an index computed from an inexact
value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from uops.fuzz.declared import EVERYTHING, Declared
from uops.fuzz.draw import SeededDraw
from uops.fuzz.effects import sink_root
from uops.fuzz.producers import FEATURES, LEAVES, PRODUCERS, Producer
from uops.fuzz.values import Array, Draw, array
from uops.spec import build as b
from uops.spec import dtypes as dt
from uops.spec.dtypes import DType
from uops.spec.node import UOp
from uops.spec.ops import Op

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 33)
#: Shapes of which several axes are whole vectors.
VECTORS = ((4, 4), (8, 8), (4, 16), (16, 8), (2, 4, 8), (8, 4, 4), (16, 16))
#: Leaves beyond the budget are free; a value costs one.
Shape = tuple[int, ...]


class Case(NamedTuple):
    """A graph and arrays for its free Params, Buffers and variables, as every runner takes them."""

    graph: UOp
    inputs: dict[str, Array | int]


@dataclass
class Maker:
    """The state of one graph's making. Of `dtypes`, `producers` and `leaves` those are used that are `declared`."""

    draw: Draw
    max_elements: int
    dtypes: tuple[DType, ...]
    producers: tuple[Producer, ...]
    inputs: dict[str, Array | int] = field(default_factory=dict)
    made: dict[tuple[DType, Shape], list[UOp]] = field(default_factory=dict)
    inside: list[UOp] | None = None  # the Params of the Function body being made, None at the top
    fresh: int = 0
    leaves: tuple[Producer, ...] = field(default_factory=lambda: LEAVES)
    declared: Declared = EVERYTHING

    def __post_init__(self) -> None:
        if not self.declared.everything:
            self.dtypes = self.declared.of(self.dtypes)
            self.producers = self.declared.among(self.producers)
            leaves = self.declared.among(self.leaves)
            self.leaves = leaves if any(p.always for p in leaves) else self.leaves

    def value(self, d: DType, shape: Shape, budget: int) -> UOp:
        """A value of exactly this dtype and shape from about `budget` nodes."""
        pool = self.made.get((d, shape))
        if pool and self.draw.chance(15):
            return self.draw.choice(pool[-4:])
        if budget <= 1:
            return self.leaf(d, shape)
        fitting = [p for p in self.producers if p.admits(self, d, shape, budget)]
        if not fitting:
            return self.leaf(d, shape)
        u = self.draw.choice(fitting).make(self, d, shape, budget - 1)
        self.made.setdefault((d, shape), []).append(u)
        return u

    def leaf(self, d: DType, shape: Shape) -> UOp:
        """A Param, a broadcast constant, or a value made before."""
        pool = self.made.get((d, shape))
        if pool and self.draw.chance(40):
            return self.draw.choice(pool)
        return self.draw.choice([leaf for leaf in self.leaves if leaf.admits(self, d, shape, 0)]).make(self, d, shape, 0)

    def split(self, budget: int, parts: int) -> list[int]:
        """`budget` shared among `parts` sources at random."""
        cuts = sorted(self.draw.integer(0, budget) for _ in range(parts - 1))
        return [hi - lo for lo, hi in zip([0, *cuts], [*cuts, budget], strict=True)]

    def param(self, d: DType, shape: Shape) -> UOp:
        """A fresh Param with data, at the top or of the body being made."""
        if self.inside is not None:
            p = b.param(len(self.inside), shape, d)
            self.inside.append(p)
            return p
        return self.given(d, array(self.draw, d, shape))

    def given(self, d: DType, data: Array) -> UOp:
        """A fresh Param with these data, at the top."""
        p = b.param(self.slot(), data.shape, d)
        self.inputs[f"p{p.arg.slot}"] = data
        return p

    def variable(self, lo: int, hi: int, d: DType = dt.index) -> UOp:
        """A fresh variable with a value, at the top; of an integer dtype, its arithmetic wraps (R48)."""
        name = f"v{self.slot()}"
        self.inputs[name] = self.draw.choice((lo, hi, self.draw.integer(lo, hi)))
        return b.variable(name, lo, hi, dtype=d)

    def slot(self) -> int:
        self.fresh += 1
        return self.fresh - 1

    def extent(self, most: int) -> int:
        """An extent of the pool, at most `most` (at least 1)."""
        fitting = [e for e in EXTENTS if e <= most]
        return self.draw.choice(fitting) if fitting else 1

    def shape(self, most: int) -> Shape:
        """A shape of rank 0 to 4 with at most `most` elements; sometimes empty."""
        if self.draw.chance(10):
            return self.draw.choice([s for s in VECTORS if math.prod(s) <= most] or [()])
        dims: list[int] = []
        for _ in range(self.draw.integer(0, 4)):
            dims.append(self.extent(most // max(1, math.prod(dims))))
        if dims and self.draw.chance(3):
            dims[self.draw.integer(0, len(dims) - 1)] = 0
        return tuple(dims)


def generate(
    draw: Draw, *, nodes: int = 12, max_elements: int = 1000, dtypes: tuple[DType, ...] = dt.STORABLE, swarm: bool = True,
    features: frozenset[str] = FEATURES, first: frozenset[str] = frozenset(), declared: Declared = EVERYTHING,
) -> Case:  # fmt: skip
    """One case of about `nodes` nodes; a pure function of `draw`'s choices, of `features`, the producers that may be used, and of
    what is `declared`. With `first`, one of these makes the root."""
    allowed = [p for p in PRODUCERS if p.name in features]
    producers = tuple(p for p in allowed if not swarm or p.always or draw.chance(60))
    m = Maker(draw, max_elements, dtypes, producers, declared=declared)
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
