"""The generator of SCHEDULED kernels: loops of every type, LOCAL memory that lanes share, Barriers between its phases.

A kernel is a chain of phases. Each computes one element per iteration of its loops: from inputs, or from what other lanes left in
LOCAL memory in the phase before, on the other side of a Barrier. Without lanes, a row of LOCAL memory may be filled before it is
read. The last phase stores to GLOBAL memory, each element once; beside it something may be counted up, in some of the loops. All
arithmetic is exact, so that there is one result: integers of any size wrap, floats are small integers, and those of 16 bits or
fewer, whose sums are none, are only chosen among. Kernels that follow each other use what earlier ones wrote.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from uops.backends.testing.values import Draw, array
from uops.fuzz.generate.declared import Declared
from uops.fuzz.generate.graphs import Case
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, CallArg, ParamArg, ReduceArg, SinkArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Some twice, since there are many integers.
DTYPES = (*dt.INTS, *(dt.float32, dt.float64) * 2, *dt.FLOATS)
#: Floats whose sums are exact here.
_WIDE = (dt.float32, dt.float64)
#: Loops around a kernel, outermost first, and of these the ones that lanes are made of.
_OUTER = (AxisType.LOOP, AxisType.GLOBAL, AxisType.THREAD)
_INNER = (AxisType.UPCAST,)


@dataclass
class _Kernel:
    draw: Draw
    dtype: DType
    name: str
    ranges: list[UOp] = field(default_factory=list)
    lanes: list[UOp] = field(default_factory=list)
    arguments: list[UOp] = field(default_factory=list)
    params: list[UOp] = field(default_factory=list)
    uniques: int = 0
    axes: int = 0
    words: tuple[DType, ...] = dt.INTS  # integers that the backend has
    inputs: dict[str, Any] = field(default_factory=dict)

    def range(self, n: int | UOp, kind: AxisType) -> UOp:
        self.axes += 1
        return b.range_(n, self.axes - 1, kind)

    def variable(self) -> UOp:
        """A bound that may be none, or less: then its loop does not run (R57)."""
        name, (lo, hi) = f"{self.name}n", (-2, 4)
        if name not in self.inputs:
            self.inputs[name] = self.draw.integer(lo, hi)
            self.arguments.append(b.variable(name, lo, hi))
            self.params.append(self.arguments[-1].replace(arg=ParamArg(len(self.params), dt.index, name=name, bounds=(lo, hi))))
        return self.params[self.arguments.index(b.variable(name, lo, hi))]

    def param(self, argument: UOp) -> UOp:
        """The Param for a memory of the program."""
        if argument in self.arguments:
            return self.params[self.arguments.index(argument)]
        p = b.param(len(self.params), (argument.arg.size,), argument.dtype)
        self.arguments.append(argument)
        self.params.append(p)
        return p

    def local(self, size: int) -> UOp:
        self.uniques += 1
        return b.buffer(size, self.dtype, addrspace=AddrSpace.LOCAL, unique=self.uniques)


def generate(draw: Draw, declared: Declared) -> Case:
    """A launch of one or two kernels."""
    inputs: dict[str, Any] = {}
    d = draw.choice(declared.of(DTYPES))
    memories = []
    for unique in range(1, draw.integer(2, 3) + 1):
        size = draw.choice((4, 8, 12, 16, 24))
        memories.append(b.buffer(size, d, unique=unique))
        inputs[f"b{unique}"] = array(draw, d, (size,), draw.choice(("small", "mixed", "bits")) if not d.is_float else "small")
    calls = []
    for k in range(draw.integer(1, 2)):
        call, out = _call(_Kernel(draw, d, f"k{k}", words=declared.of(dt.INTS), inputs=inputs), memories, 100 + k)
        calls.append(call)
        memories.append(out)
    return Case(UOp(Op.LINEAR, tuple(calls)), inputs)


def _call(k: _Kernel, memories: list[UOp], unique: int) -> tuple[UOp, UOp]:
    """One kernel, and the memory that it fills."""
    draw = k.draw
    for kind in _OUTER:
        if draw.chance(40):
            k.ranges.append(k.range(draw.integer(1, 4), kind))
    if draw.chance(70):
        k.lanes.append(k.range(draw.choice((2, 3, 4, 8)), AxisType.LOCAL))
        if draw.chance(25):
            k.lanes.append(k.range(2, AxisType.LOCAL))
    if draw.chance(30):
        k.ranges.append(k.range(draw.choice((2, 4)), AxisType.UPCAST))
    around = [*k.ranges, *k.lanes] or [k.range(4, AxisType.LOOP)]
    k.ranges = [r for r in around if r not in k.lanes]
    total = math.prod(_extent(r) for r in around)
    out = b.buffer(total, k.dtype, unique=unique)
    target = k.param(out)
    value = _phases(k, [k.param(m) for m in memories if draw.chance(70)] or [k.param(memories[0])])
    done = b.store(b.at(target, _flat(around)), value)
    inner = sorted(around, key=lambda r: (r.arg.type.priority, r.arg.axis_id), reverse=True)
    depth = draw.integer(1, len(inner)) if not k.uniques and draw.chance(60) else None  # lanes that meet run the whole kernel (R60)
    for n, r in enumerate(inner):
        if n == depth:
            done = b.group(_counted(k, unique + 100, inner[n:]), done)
        done = b.end(done, r)
    effects = (done, _counted(k, unique + 100, [])) if depth == len(inner) else (done,)
    written = (0,) if depth is None else (0, len(k.params) - 1)
    return UOp(Op.CALL, (UOp(Op.SINK, effects, SinkArg(k.name)), *k.arguments), CallArg(written=written)), out


def _counted(k: _Kernel, unique: int, ranges: list[UOp]) -> UOp:
    """A Store, in some of the loops, of what is made of what is there, as one more."""
    memory = b.buffer(math.prod(_extent(r) for r in ranges), k.dtype, unique=unique)
    k.inputs[f"b{unique}"] = array(k.draw, k.dtype, tuple(memory.shape), "small")
    place = b.at(k.param(memory), _flat(ranges))
    return b.store(place, _joined(k, b.load(place), b.const(1, k.dtype)))


def _extent(r: UOp) -> int:
    return int(r.src[0].arg.value)


def _flat(ranges: list[UOp]) -> UOp:
    """The row-major position of the iteration; 0 without loops."""
    found = b.index(0)
    for r in ranges:
        found = b.add(b.mul(found, _extent(r)), r)
    return found


def _phases(k: _Kernel, sources: list[UOp]) -> UOp:
    """The value of an iteration, after as many exchanges between lanes as are drawn."""
    value = _element(k, sources)
    vector = any(r.arg.type in _INNER for r in k.ranges)
    for _ in range(k.draw.integer(0, 2) if k.lanes and not vector else 0):
        value = _exchanged(k, value, sources)
    alone = not k.lanes and all(r.arg.type in (AxisType.LOOP, AxisType.UPCAST) for r in k.ranges)
    return _joined(k, value, _kept(k, sources)) if alone and k.draw.chance(40) else value


def _kept(k: _Kernel, sources: list[UOp]) -> UOp:
    """What an element is of a row of LOCAL memory, or all of it, which a loop before has filled."""
    n = k.draw.choice((2, 3, 4, 8))
    row, lane = k.local(n), k.range(n, k.draw.choice((AxisType.LOOP, AxisType.UPCAST)))
    inner, k.ranges = k.ranges, [r for r in k.ranges if r.arg.type not in _INNER]  # of lanes side by side, none has its own row
    filled = b.end(b.store(b.at(row, lane), _load(k, k.draw.choice(sources), [lane])), lane)
    k.ranges = inner
    turn = k.range(n, AxisType.REDUCE) if k.draw.chance(50) else None
    place = b.mod(b.add(_flat(k.ranges), k.draw.integer(0, n - 1)), n) if turn is None else b.sub(n - 1, turn)
    value = b.load(b.at(b.after(row, filled), place) if k.draw.chance(50) else b.after(b.at(row, place), filled))
    return value if turn is None else _reduced(k, value, turn)


def _exchanged(k: _Kernel, value: UOp, sources: list[UOp]) -> UOp:
    """Each lane leaves its value in LOCAL memory; behind a Barrier it takes another lane's, or adds all of them."""
    size = math.prod(_extent(r) for r in k.lanes)
    tile, lane = k.local(size), _flat(k.lanes)
    ready = b.after(tile, UOp(Op.BARRIER, (b.store(b.at(tile, lane), value),)))
    if k.draw.chance(40):
        turn = k.range(size, AxisType.REDUCE)
        return _reduced(k, b.load(b.at(ready, turn)), turn)
    other = k.draw.choice((b.sub(size - 1, lane), b.mod(b.add(lane, 1), size), lane))
    return _joined(k, b.load(b.at(ready, other)), _element(k, sources))


def _element(k: _Kernel, sources: list[UOp]) -> UOp:
    """An expression of loads at positions that depend on the loops, brought into range; sometimes a reduction."""
    value = _load(k, k.draw.choice(sources), [])
    for _ in range(k.draw.integer(0, 2)):
        value = _joined(k, value, _load(k, k.draw.choice(sources), []))
    if k.draw.chance(35):
        bound, kind = k.draw.integer(1, 5), AxisType.UNROLL if k.draw.chance(25) else AxisType.REDUCE
        turn = k.range(k.variable(), AxisType.REDUCE) if k.draw.chance(25) else k.range(bound, kind)
        value = _joined(k, value, _reduced(k, _load(k, k.draw.choice(sources), [turn]), turn))
    return value


def _joined(k: _Kernel, x: UOp, y: UOp) -> UOp:
    """A value of two, exact."""
    return k.draw.choice(_ways(k.dtype))(k, x, y)


def _reduced(k: _Kernel, value: UOp, r: UOp) -> UOp:
    ops = (Op.ADD, Op.MAX, Op.MUL) if not k.dtype.is_float else (Op.ADD, Op.MAX) if k.dtype in _WIDE else (Op.MAX,)
    return UOp(Op.REDUCE, (value, r), ReduceArg(k.draw.choice(ops), ()))


def _ways(d: DType) -> tuple[_Way, ...]:
    return _OF_INTS if not d.is_float else _OF_SUMS if d in _WIDE else _CHOICES


def _shifted(op: Op) -> _Way:
    return lambda k, x, y: b.xor(UOp(op, (x, b.const(k.draw.integer(0, k.dtype.bits - 1), k.dtype))), y)


def _divided(op: Op) -> _Way:
    return lambda k, x, y: b.add(UOp(op, (x, b.const(k.draw.choice((2, 3, 7)), k.dtype))), y)


def _narrowed(k: _Kernel, x: UOp, y: UOp) -> UOp:
    """Through another integer dtype and back: it wraps on the way."""
    return b.add(b.cast(b.cast(x, k.draw.choice(k.words)), k.dtype), y)


_Way = Callable[[_Kernel, UOp, UOp], UOp]
_CHOICES: tuple[_Way, ...] = (
    lambda k, x, y: b.maximum(x, y),
    lambda k, x, y: b.where(b.lt(x, y), y, x),
    lambda k, x, y: b.where(b.ne(x, y), x, b.const(1, k.dtype)),
)
_OF_SUMS = (*_CHOICES, lambda k, x, y: b.add(x, y), lambda k, x, y: b.sub(x, y))
_OF_INTS = (
    *_OF_SUMS,
    lambda k, x, y: b.mul(x, y),
    *(lambda k, x, y, op=op: UOp(op, (x, y)) for op in (Op.AND, Op.OR, Op.XOR)),
    *map(_shifted, (Op.SHL, Op.SHR)),
    *map(_divided, (Op.IDIV, Op.MOD)),
    _narrowed,
)


def _load(k: _Kernel, source: UOp, inner: list[UOp]) -> UOp:
    n = int(source.shape[0])
    position = b.index(k.draw.integer(0, n - 1))
    for r in (*k.ranges, *k.lanes, *inner):
        if k.draw.chance(70):
            position = b.add(position, b.mul(r, k.draw.choice((1, 1, 2, 3))))
    value = b.load(b.at(source, b.mod(position, n)))
    if k.draw.chance(15) and k.ranges:
        r = k.draw.choice(k.ranges)
        inside = b.lt(r, k.draw.integer(0, _extent(r)))
        other = b.const(k.draw.integer(0, 3), source.dtype) if k.draw.chance(50) else value
        value = b.load(b.at(source, b.mod(b.add(position, 1), n)), other, inside)
    return value
