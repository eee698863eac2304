"""The state of one graph's making, and what a producer of values is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from uops.backends.testing.values import Array, Draw, array
from uops.fuzz.generate.declared import EVERYTHING, Declared
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 33)
#: Shapes of which several axes are whole vectors.
VECTORS = ((4, 4), (8, 8), (4, 16), (16, 8), (2, 4, 8), (8, 4, 4), (16, 16))
#: Leaves beyond the budget are free; a value costs one.
Shape = tuple[int, ...]
Admits = Callable[["Maker", DType, Shape, int], bool]
Make = Callable[["Maker", DType, Shape, int], UOp]


@dataclass(frozen=True, slots=True)
class Producer:
    """`name` is the feature's name in coverage reports."""

    name: str
    admits: Admits
    make: Make
    always: bool = False

    @property
    def needs(self) -> tuple[Op, ...]:
        """The ops that it always uses: the one of its name, or those of `_NEEDS`."""
        op = Op.__members__.get(self.name.upper())
        return _NEEDS.get(self.name, ()) if op is None else (op,)


#: Of producers that have not the name of an op.
_NEEDS: dict[str, tuple[Op, ...]] = {
    "choices": (Op.WHERE,), "selected": (Op.WHERE, Op.REDUCE), "crossed": (Op.REDUCE,), "indices": (Op.CAST,),
    "reduce_add": (Op.REDUCE,), "reduce_mul": (Op.REDUCE,), "reduce_max": (Op.REDUCE,), "sequence": (Op.REDUCE, Op.PAD, Op.CAST),
    "variable": (Op.PARAM,), "assign": (Op.STORE, Op.AFTER), "shards": (Op.COPY,), "everywhere": (Op.COPY,),
}  # fmt: skip


@dataclass
class Maker:
    """The state of one graph's making. Of `dtypes`, `producers` and `leaves` those are used that are `declared`."""

    draw: Draw
    max_elements: int
    dtypes: tuple[DType, ...]
    producers: tuple[Producer, ...]
    leaves: tuple[Producer, ...]
    inputs: dict[str, Array | int] = field(default_factory=dict)
    made: dict[tuple[DType, Shape], list[UOp]] = field(default_factory=dict)
    inside: list[UOp] | None = None  # the Params of the Function body being made, None at the top
    fresh: int = 0
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
