"""The generator of SCHEDULED kernels: loops of every type, LOCAL memory that lanes share, Barriers between its phases.

A kernel is a chain of phases. Each computes one element per iteration of its loops: from inputs, or from what other lanes left in
LOCAL memory in the phase before, on the other side of a Barrier. Without lanes, a row of LOCAL memory may be filled before it is
read. The last phase stores to GLOBAL memory, each element once; beside it something may be counted up, in some of the loops. All
arithmetic is exact - integers, or floats of small integers - so that there is one result. Kernels that follow each other use what
earlier ones wrote.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from uops.fuzz.declared import Declared
from uops.fuzz.generate import Case
from uops.fuzz.values import Draw, array
from uops.spec import build as b
from uops.spec import dtypes as dt
from uops.spec.args import AddrSpace, CallArg, ParamArg, ReduceArg, SinkArg
from uops.spec.axes import AxisType
from uops.spec.dtypes import DType
from uops.spec.node import UOp
from uops.spec.ops import Op

DTYPES = (dt.int32, dt.float32, dt.uint8, dt.int64, dt.float64)
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
        inputs[f"b{unique}"] = array(draw, d, (size,), "small")
    calls = []
    for k in range(draw.integer(1, 2)):
        call, out = _call(draw, d, memories, f"k{k}", 100 + k, inputs)
        calls.append(call)
        memories.append(out)
    return Case(UOp(Op.LINEAR, tuple(calls)), inputs)


def _call(draw: Draw, d: DType, memories: list[UOp], name: str, unique: int, inputs: dict[str, Any]) -> tuple[UOp, UOp]:
    """One kernel, and the memory that it fills."""
    k = _Kernel(draw, d, name, inputs=inputs)
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
    out = b.buffer(total, d, unique=unique)
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
    return UOp(Op.CALL, (UOp(Op.SINK, effects, SinkArg(name)), *k.arguments), CallArg(written=written)), out


def _counted(k: _Kernel, unique: int, ranges: list[UOp]) -> UOp:
    """A Store, in some of the loops, of what is there and one more."""
    memory = b.buffer(math.prod(_extent(r) for r in ranges), k.dtype, unique=unique)
    k.inputs[f"b{unique}"] = array(k.draw, k.dtype, tuple(memory.shape), "small")
    place = b.at(k.param(memory), _flat(ranges))
    return b.store(place, b.add(b.load(place), 1))


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
    return b.add(value, _kept(k, sources)) if alone and k.draw.chance(40) else value


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
    return value if turn is None else _reduce(value, k.draw.choice((Op.ADD, Op.MAX)), turn)


def _exchanged(k: _Kernel, value: UOp, sources: list[UOp]) -> UOp:
    """Each lane leaves its value in LOCAL memory; behind a Barrier it takes another lane's, or adds all of them."""
    size = math.prod(_extent(r) for r in k.lanes)
    tile, lane = k.local(size), _flat(k.lanes)
    ready = b.after(tile, UOp(Op.BARRIER, (b.store(b.at(tile, lane), value),)))
    if k.draw.chance(40):
        turn = k.range(size, AxisType.REDUCE)
        return _reduce(b.load(b.at(ready, turn)), k.draw.choice((Op.ADD, Op.MAX)), turn)
    other = k.draw.choice((b.sub(size - 1, lane), b.mod(b.add(lane, 1), size), lane))
    return b.add(b.load(b.at(ready, other)), _element(k, sources))


def _element(k: _Kernel, sources: list[UOp]) -> UOp:
    """An expression of loads at positions that depend on the loops, brought into range; sometimes a reduction."""
    value = _load(k, k.draw.choice(sources), [])
    for _ in range(k.draw.integer(0, 2)):
        value = k.draw.choice((b.add, b.sub, b.maximum))(value, _load(k, k.draw.choice(sources), []))
    if k.draw.chance(35):
        turn = k.range(k.variable() if k.draw.chance(25) else k.draw.integer(1, 5), AxisType.REDUCE)
        op = k.draw.choice((Op.ADD, Op.MAX))
        value = b.add(value, _reduce(_load(k, k.draw.choice(sources), [turn]), op, turn))
    return value


def _reduce(value: UOp, op: Op, r: UOp) -> UOp:
    return UOp(Op.REDUCE, (value, r), ReduceArg(op, ()))


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
