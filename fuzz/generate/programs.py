"""Generators of programs of several statements, on memory that is written, read and written again, and of symbolic shapes.

`program` makes statements on Buffers: reads through views, Stores of a part or of the whole, of values that read the memory they
replace. Every Store comes after all reads of what it overwrites (R51, R55, R59), so that no order is left open. `symbolic` applies
ops, forward, to values whose extents are variables (R48).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from uops.backends.testing.values import Draw, array
from uops.fuzz.generate.declared import EVERYTHING, Declared
from uops.fuzz.generate.graphs import Case
from uops.fuzz.generate.maker import Maker
from uops.fuzz.generate.producers import FEATURES, LEAVES, PRODUCERS
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import Dim, UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.sizes import divides

#: What the values of statements are made of; memory and bodies are the statements' business.
_VALUES = FEATURES - {"assign", "call", "group", "shards", "everywhere", "sink", "buffer", "slice"}
_DTYPES = (dt.float32, dt.int32, dt.uint8, dt.float16, dt.int64, dt.bool_, dt.bfloat16, dt.float64)
#: What `view` makes of a part of a memory.
_VIEWS = frozenset({Op.RESHAPE, Op.PERMUTE, Op.FLIP})


@dataclass
class _Memory:
    """A Buffer: `now` is the reference after all Stores so far, `reads` are values that were read from it since."""

    now: UOp
    dtype: DType
    size: int
    reads: list[UOp] = field(default_factory=list)


class Program:
    """Statements one after the other; `root` is the program of those so far."""

    def __init__(self, draw: Draw, most: int, declared: Declared = EVERYTHING) -> None:
        producers = tuple(p for p in PRODUCERS if p.name in _VALUES and (p.always or draw.chance(60)))
        self.draw = draw
        self.m = Maker(draw, most, _DTYPES, producers, LEAVES, declared=declared)
        self.memories = [self._memory(most) for _ in range(draw.integer(1, 3))]
        self.values: list[UOp] = []
        self.crossed = declared.among(tuple(p for p in PRODUCERS if p.name == "crossed"))

    def _memory(self, most: int) -> _Memory:
        d, size = self.draw.choice(self.m.dtypes), self.m.extent(most) * self.draw.integer(1, 3)
        unique = 1000 + self.m.slot()
        self.m.inputs[f"b{unique}"] = array(self.draw, d, (size,), self.draw.choice(("small", "small", "edge")))
        return _Memory(b.buffer(size, d, unique=unique), d, size)

    def view(self, x: _Memory) -> UOp:
        """A reference to the memory or to a part of it, sometimes as of another dtype."""
        found = x.now
        fitting = (d for d in self.m.dtypes if d is not x.dtype and x.size * x.dtype.itemsize % d.itemsize == 0)
        others = [d for d in fitting if d is not dt.bool_]
        if others and x.dtype is not dt.bool_ and self.draw.chance(15):
            found = b.bitcast(found, self.draw.choice(others))
        size = found.shape[0]
        if size > 1 and self.draw.chance(40):
            lo = self.draw.integer(0, size - 1)
            found = b.shrink(found, [lo], [self.draw.integer(1, size - lo)])
        rows = [k for k in (2, 3, 4) if found.shape[0] % k == 0]
        if rows and self.draw.chance(50):
            found = _rows(found, self.draw.choice(rows))
            if self.draw.chance(40):
                found = b.permute(found, (1, 0))
        return b.flip(found, [self.draw.chance(50) for _ in found.shape]) if self.draw.chance(30) else found

    def read(self) -> None:
        """A value that was read now, and may be used at any later time."""
        x = self.draw.choice(self.memories)
        ref = self.view(x)
        forms: list[Callable[[UOp], UOp]] = [b.load, b.contiguous, self._with]
        self._keep(x, self.draw.choice(forms)(ref))

    def _keep(self, x: _Memory, value: UOp) -> None:
        x.reads.append(value)
        self.values.append(value)
        self.m.made.setdefault((value.dtype, tuple(value.shape)), []).append(value)

    def _with(self, u: UOp) -> UOp:
        return UOp(Op.WHERE, (self.m.value(dt.bool_, tuple(u.shape), 2), u, self.m.value(u.dtype, tuple(u.shape), 2)))

    def write(self) -> None:
        """A Store of a new value; sometimes of one that reads the memory in another order."""
        x = self.draw.choice(self.memories)
        ref = self.view(x)
        shape = tuple(ref.shape)
        own, value = None, self._new(ref.dtype, shape)
        if self.draw.chance(50):
            own = self.draw.choice((ref, ref, b.flip(ref, [True] * len(shape)), self._beside(ref)))
            value = own if self.draw.chance(15) else UOp(Op.WHERE, (self.m.value(dt.bool_, shape, 1), own, value))
        if x.reads:
            ordered = b.after(x.now, *x.reads)
            ref = _on(ref, x.now, ordered)
        gate = (self.m.value(dt.bool_, shape, 1),) if self.draw.chance(15) else ()
        if self.draw.chance(30) and value is not own:  # what was stored is used as it was; a view would be read as it is then (R55)
            self.values.append(value)
            self.m.made.setdefault((ref.dtype, shape), []).append(value)
        x.now, x.reads = b.after(x.now, b.store(ref, value, *gate)), []

    def _new(self, d: DType, shape: tuple[int, ...]) -> UOp:
        """A value to store; sometimes of rows that meet themselves, which a compiler may keep where it writes (R146)."""
        budget = self.draw.integer(1, 5)
        rows = [p for p in self.crossed if p.admits(self.m, d, shape, 3)]
        return rows[0].make(self.m, d, shape, budget) if rows and self.draw.chance(30) else self.m.value(d, shape, budget)

    def _beside(self, ref: UOp) -> UOp:
        """The same view of elements beside those of `ref`, which may overlap; `ref` itself where that is all of the memory."""
        if ref.op is Op.SHRINK:
            (size,), (many,) = ref.src[0].shape, ref.shape
            return b.shrink(ref.src[0], [self.draw.integer(0, size - many)], [many])
        return ref.replace(src=(self._beside(ref.src[0]), *ref.src[1:])) if ref.op in _VIEWS else ref

    def compute(self) -> None:
        """A value that several later ones may share."""
        d = self.draw.choice(self.m.dtypes)
        v = self.m.value(d, self.m.shape(self.m.max_elements), self.draw.integer(2, 6))
        self.values.append(b.contiguous(v) if self.draw.chance(40) else v)

    def root(self) -> UOp:
        finals = [b.reshape(x.now, (x.size,)) for x in self.memories]
        kept = [v for v in self.values if self.draw.chance(40)]
        found = [*kept[-2:], *finals] if self.draw.chance(40) else [*finals, *kept[-2:]]  # values of before, wanted late
        return found[0] if len(found) == 1 else b.tuple_(*found)


def _rows(u: UOp, rows: int) -> UOp:
    return b.reshape(u, (rows, u.shape[0] // rows))


def _on(view: UOp, old: UOp, new: UOp) -> UOp:
    """The same view of another reference to the same memory."""
    if view is old:
        return new
    return view.replace(src=(_on(view.src[0], old, new), *view.src[1:]))


def program(draw: Draw, declared: Declared) -> Case:
    """Two to eight statements on one to three Buffers."""
    p = Program(draw, draw.choice((4, 8, 16, 32)), declared)
    for _ in range(draw.integer(2, 8)):
        draw.choice((p.read, p.write, p.write, p.compute))()
    return Case(p.root(), p.m.inputs)


# ---------------------------------------------------------------------------------------------------------------- symbolic

_UNARY = (b.neg, b.exp2, b.sqrt, b.recip)
_BINARY = (b.add, b.mul, b.maximum, b.sub)
_SYMBOLIC = (dt.float32, dt.int32, dt.float32, dt.int16, dt.float16, dt.float64, dt.uint8, dt.int64)


class _Symbolic:
    """Values whose extents are variables, which may be 0, constants, or their sums and products."""

    def __init__(self, draw: Draw, declared: Declared) -> None:
        self.draw, self.declared = draw, declared
        self.inputs: dict[str, Any] = {}
        self.slots = 0
        names = ("n", "m")[: draw.integer(1, 2)]
        self.variables = []
        for name in names:
            lo = draw.integer(0, 2)
            hi = draw.choice((max(lo, 1), 2, draw.integer(3, 12), draw.integer(3, 12)))
            self.variables.append(b.variable(name, lo, hi))
            self.inputs[name] = draw.choice((lo, draw.integer(lo, hi), hi))
        self.value = self.param([self.variables[0], *(self.draw.choice(self.dims()) for _ in range(draw.integer(0, 1)))])

    def dims(self) -> list[Dim]:
        return [*self.variables, *self.variables, 2, 3, 4]

    def extent(self, d: Dim) -> int:
        if not isinstance(d, UOp):
            return int(d)
        if d.op is Op.PARAM:
            return int(self.inputs[d.arg.name])
        if d.op is Op.CONST:
            return int(d.arg.value)
        x, y = (self.extent(s) for s in d.src)
        return x + y if d.op is Op.ADD else x * y if d.op is Op.MUL else x // y

    def param(self, shape: list[Dim], d: DType | None = None) -> UOp:
        dtype = d or self.draw.choice(self.declared.of(_SYMBOLIC))
        p = b.param(self.slots, shape, dtype)
        self.inputs[f"p{self.slots}"] = array(self.draw, dtype, tuple(self.extent(n) for n in shape), "small")
        self.slots += 1
        return p

    def number(self, d: DType) -> UOp:
        """A variable of an integer dtype as a value."""
        name, lo, hi = f"k{self.slots}", int(self.draw.choice((d.min, 0, d.max - 9))), int(d.max)
        self.inputs[name] = self.draw.choice((lo, hi, self.draw.integer(lo, hi)))
        self.slots += 1
        return b.variable(name, lo, hi, dtype=d)

    def step(self) -> None:
        """One op on top."""
        options = (
            self.unary, self.binary, self.cast, self.bits, self.choose, self.permute, self.flip, self.pad, self.shrink, self.merge,
            self.expand, self.repeat, self.reduce,
        )  # fmt: skip
        found = self.draw.choice(options)(self.value)
        if math.prod(self.extent(n) for n in found.shape) <= 512:
            self.value = found

    def unary(self, x: UOp) -> UOp:
        return self.draw.choice(_UNARY)(x) if x.dtype.is_float else b.neg(x)

    def binary(self, x: UOp) -> UOp:
        shape = [1 if self.draw.chance(20) else n for n in x.shape]
        if x.dtype.is_integer and self.draw.chance(20):
            return self.draw.choice(_BINARY)(x, self.number(x.dtype))
        other = x if self.draw.chance(20) else self.param(shape, x.dtype)
        return self.draw.choice(_BINARY)(x, other)

    def cast(self, x: UOp) -> UOp:
        return b.cast(x, self.draw.choice(self.declared.of(_SYMBOLIC)))

    def bits(self, x: UOp) -> UOp:
        """The same bytes as another dtype; an axis of more or of fewer elements. Those of an inexact float are anything (R30)."""
        if x.dtype.is_float:
            x = self.param(list(x.shape), x.dtype)
        size = x.dtype.itemsize
        fit = [d for d in self.declared.of(_SYMBOLIC) if d.itemsize <= size or divides(d.itemsize // size, x.shape[-1])]
        return b.bitcast(x, self.draw.choice(fit))

    def choose(self, x: UOp) -> UOp:
        other = self.param([1 if self.draw.chance(40) else n for n in x.shape], x.dtype)
        return b.where(
            self.draw.choice((b.lt, b.ne))(x, other), x, other if self.draw.chance(50) else b.flip(x, [True] * len(x.shape))
        )

    def permute(self, x: UOp) -> UOp:
        return b.permute(x, tuple(range(len(x.shape)))[::-1])

    def flip(self, x: UOp) -> UOp:
        return b.flip(x, [self.draw.chance(60) for _ in x.shape])

    def pad(self, x: UOp) -> UOp:
        before = [self.draw.choice([0, 0, 1, *self.variables]) for _ in x.shape]
        return b.pad(x, before, [_plus(n, lo) for n, lo in zip(x.shape, before, strict=True)])

    def shrink(self, x: UOp) -> UOp:
        """A part of a longer, padded value, so that it fits for all values of the variables."""
        k = self.draw.integer(0, 2)
        longer = b.pad(x, [0] * len(x.shape), [_plus(n, k) for n in x.shape])
        return b.shrink(longer, [self.draw.integer(0, k) for _ in x.shape], x.shape)

    def merge(self, x: UOp) -> UOp:
        if len(x.shape) < 2:
            return b.reshape(x, (1, *x.shape))
        n, k, *rest = x.shape
        return b.reshape(x, (_times(n, k), *rest))

    def expand(self, x: UOp) -> UOp:
        return b.expand(b.reshape(x, (1, *x.shape)), (self.draw.choice(self.dims()), *x.shape))

    def repeat(self, x: UOp) -> UOp:
        """Each element of an axis several times: a place that is a quotient."""
        if not x.shape:
            return self.expand(x)
        k = self.draw.integer(0, len(x.shape) - 1)
        before, n, behind = x.shape[:k], x.shape[k], x.shape[k + 1 :]
        times = self.draw.choice((2, 3, 4, *self.variables))
        wide = b.expand(b.reshape(x, (*before, n, 1, *behind)), (*before, n, times, *behind))
        return b.reshape(wide, (*before, _times(n, times), *behind))

    def reduce(self, x: UOp) -> UOp:
        axes = [k for k in range(len(x.shape)) if self.draw.chance(50)]
        return b.reduce(x, self.draw.choice((Op.ADD, Op.MAX, Op.ADD)), axes) if axes else b.contiguous(x)


def _plus(n: Dim, k: Dim) -> Dim:
    return b.add(n, k) if isinstance(n, UOp) or isinstance(k, UOp) else n + k


def _times(n: Dim, k: Dim) -> Dim:
    return b.mul(n, k) if isinstance(n, UOp) or isinstance(k, UOp) else n * k


def symbolic(draw: Draw, declared: Declared) -> Case:
    """One to eight ops on values of symbolic shape."""
    s = _Symbolic(draw, declared)
    for _ in range(draw.integer(1, 8)):
        s.step()
    return Case(s.value, s.inputs)
