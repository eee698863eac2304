"""The state of one TENSOR graph under construction, and the type of a producer of values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from uops.backends.testing.values import Array, draw_array
from uops.fuzz.generate.declared import EVERYTHING, SupportedOpDtypes
from uops.spec.choices import ChoiceSource
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Extents of axes, around the widths of vectors.
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 33)
#: Shapes in which several axes are multiples of a vector width.
VECTORS = ((4, 4), (8, 8), (4, 16), (16, 8), (2, 4, 8), (8, 4, 4), (16, 16))
Shape = tuple[int, ...]
#: (maker, dtype, shape, budget) -> whether the producer can make such a value. The budget counts nodes; leaves are free.
Admits = Callable[["GraphMaker", DType, Shape, int], bool]
#: (maker, dtype, shape, budget) -> the value, which has exactly this dtype and shape.
Make = Callable[["GraphMaker", DType, Shape, int], UOp]


@dataclass(frozen=True, slots=True)
class Producer:
    """A way to make a value. `name` is the feature's name in coverage reports; `always` exempts it from the swarm's random
    subset.
    """

    name: str
    admits: Admits
    make: Make
    always: bool = False

    @property
    def required_ops(self) -> tuple[Op, ...]:
        """The ops that every value of this producer contains: the op of the producer's name, or those of `_REQUIRED_OPS`."""
        op = Op.__members__.get(self.name.upper())
        return _REQUIRED_OPS.get(self.name, ()) if op is None else (op,)


#: Required ops of producers that are not named after an op.
_REQUIRED_OPS: dict[str, tuple[Op, ...]] = {
    "choices": (Op.WHERE,), "selected": (Op.WHERE, Op.REDUCE), "crossed": (Op.REDUCE,), "indices": (Op.CAST,),
    "reduce_add": (Op.REDUCE,), "reduce_mul": (Op.REDUCE,), "reduce_max": (Op.REDUCE,), "sequence": (Op.REDUCE, Op.PAD, Op.CAST),
    "variable": (Op.PARAM,), "assign": (Op.STORE, Op.AFTER), "shards": (Op.COPY,), "everywhere": (Op.COPY,),
}  # fmt: skip


@dataclass
class GraphMaker:
    """The state of one graph under construction. Of `dtypes`, `producers` and `leaves` only those that `declared` supports
    are used.
    """

    draw: ChoiceSource
    max_elements: int
    dtypes: tuple[DType, ...]
    producers: tuple[Producer, ...]
    leaves: tuple[Producer, ...]
    inputs: dict[str, Array | int] = field(default_factory=dict)
    values_by_type: dict[tuple[DType, Shape], list[UOp]] = field(default_factory=dict)
    body_params: list[UOp] | None = None  # the Params of the body under construction, None outside of bodies
    next_slot: int = 0
    declared: SupportedOpDtypes = EVERYTHING

    def __post_init__(self) -> None:
        if not self.declared.supports_everything:
            self.dtypes = self.declared.filter_dtypes(self.dtypes)
            self.producers = self.declared.filter_producers(self.producers)
            leaves = self.declared.filter_producers(self.leaves)
            self.leaves = leaves if any(p.always for p in leaves) else self.leaves

    def make_value(self, d: DType, shape: Shape, budget: int) -> UOp:
        """Make a value of exactly this dtype and shape from about `budget` nodes."""
        pool = self.values_by_type.get((d, shape))
        if pool and self.draw.chance(15):
            return self.draw.choice(pool[-4:])
        if budget <= 1:
            return self.make_leaf_or_reuse_value(d, shape)
        fitting = [p for p in self.producers if p.admits(self, d, shape, budget)]
        if not fitting:
            return self.make_leaf_or_reuse_value(d, shape)
        u = self.draw.choice(fitting).make(self, d, shape, budget - 1)
        self.values_by_type.setdefault((d, shape), []).append(u)
        return u

    def make_leaf_or_reuse_value(self, d: DType, shape: Shape) -> UOp:
        """Make a Param, a broadcast constant or another leaf, or reuse a finished value."""
        pool = self.values_by_type.get((d, shape))
        if pool and self.draw.chance(40):
            return self.draw.choice(pool)
        return self.draw.choice([leaf for leaf in self.leaves if leaf.admits(self, d, shape, 0)]).make(self, d, shape, 0)

    def split_budget(self, budget: int, parts: int) -> list[int]:
        """Split `budget` into `parts` random shares."""
        cuts = sorted(self.draw.integer(0, budget) for _ in range(parts - 1))
        return [hi - lo for lo, hi in zip([0, *cuts], [*cuts, budget], strict=True)]

    def make_param_with_data_or_of_body(self, d: DType, shape: Shape) -> UOp:
        """Make a Param with data, or a Param of the body under construction."""
        if self.body_params is not None:
            p = b.param(len(self.body_params), shape, d)
            self.body_params.append(p)
            return p
        return self.make_param_with_data(d, draw_array(self.draw, d, shape))

    def make_param_with_data(self, d: DType, data: Array) -> UOp:
        """Make a Param outside of bodies with these data."""
        p = b.param(self.take_slot(), data.shape, d)
        self.inputs[f"p{p.arg.slot}"] = data
        return p

    def make_variable_with_value(self, lo: int, hi: int, d: DType = dt.index) -> UOp:
        """Make a variable with a value, outside of bodies. Arithmetic on one of an integer dtype wraps (R48: variables
        are Params with bounds).
        """
        name = f"v{self.take_slot()}"
        self.inputs[name] = self.draw.choice((lo, hi, self.draw.integer(lo, hi)))
        return b.variable(name, lo, hi, dtype=d)

    def take_slot(self) -> int:
        """Return a number that no Param, Buffer or variable has yet."""
        self.next_slot += 1
        return self.next_slot - 1

    def draw_extent(self, max_extent: int) -> int:
        """Draw one of `EXTENTS` that is at most `max_extent`, or 1."""
        fitting = [e for e in EXTENTS if e <= max_extent]
        return self.draw.choice(fitting) if fitting else 1

    def draw_shape(self, max_elements: int) -> Shape:
        """Draw a shape of rank 0 to 4 with at most `max_elements` elements; sometimes an empty one."""
        if self.draw.chance(10):
            return self.draw.choice([s for s in VECTORS if math.prod(s) <= max_elements] or [()])
        dims: list[int] = []
        for _ in range(self.draw.integer(0, 4)):
            dims.append(self.draw_extent(max_elements // max(1, math.prod(dims))))
        if dims and self.draw.chance(3):
            dims[self.draw.integer(0, len(dims) - 1)] = 0
        return tuple(dims)
