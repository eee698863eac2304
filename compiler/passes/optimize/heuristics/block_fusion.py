"""Joined kernels: a chain of kernels done block by block, so that what one leaves for the next stays in the cache.

Takes: KERNEL. Gives: SCHEDULED. Spec: Lowering Pipeline/Optimize ("insert local buffers"); R59, R61, R91, R128.

Of kernels that follow each other, each writes memory that only the next one reads. They have their first output loops in common
as far as all accesses to that memory count through these alike. The last common loop is cut into blocks, and the memory of a
block is LOCAL:

    for r: for j: m[r, j] = f            for b: {  for r', j: local[r', j] = f
    for r: for k: y[r, k] = g(m[r, .])   ->        for r', k: y[b, r', k] = g(local[r', .])  }

That pays where the second cache does not hold the memory between two kernels, but holds that of a block beside the operands that
all blocks read again. Each part of a joined kernel is scheduled by itself (`optimize.parts`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from uops.compiler.ir.affine import Sum, build, linear, number
from uops.compiler.log import note, note_part
from uops.compiler.passes.optimize.heuristics.scan import scanned
from uops.compiler.passes.optimize.schedule.schedule import begin, replace_ranges
from uops.compiler.target import Machine
from uops.spec.ir import build as B
from uops.spec.ir.args import AddrSpace, BufferArg, RangeArg, SinkArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import open_ranges

#: Rows of a block from which it is worth its loops.
LEAST_ROWS = 32
#: Bytes of LOCAL memory that a chain may take: it lies on the stack of a thread.
_MOST_BYTES = 1 << 19


class Part(NamedTuple):
    """One kernel of a chain: its call, its Store, and its output loops, outermost first."""

    call: UOp
    effect: UOp
    loops: tuple[UOp, ...]

    def argument(self, slot: int) -> UOp:
        return self.call.src[1 + slot]

    def loads(self, memory: UOp) -> list[UOp]:
        """The Loads of what the call passes as `memory`."""
        return [u for u in toposort(self.effect) if u.op is Op.LOAD and self.argument(u.src[0].src[0].arg.slot) is memory]


def joined(root: UOp, external: Collection[UOp], machine: Machine) -> UOp:
    """The launch with chains of kernels as one kernel each, on a machine with vectors and caches."""
    if not machine.vector_bytes or machine.workgroup or len(machine.caches) < 2 or len(root.src) < 2:
        return root
    chains = _Chains(root.src, external, machine)
    calls, put, k = list[UOp](), dict[UOp, UOp](), 0
    while k < len(root.src):
        chain, common = chains.find_longest(k)
        rows = _block(chain, common, machine) if common > 1 else 0
        calls.append(_join(chain, common, rows) if rows else root.src[k])
        if rows:
            put.update({p.call: calls[-1] for p in chain})
        k += len(chain) if rows else 1
    done = root.replace(src=tuple(calls))
    note("join", root, done, put)
    return done


# ------------------------------------------------------------------------------------------------------------------ chains


class _Chains:
    """The chains in a launch. What two neighbours have in common is found once, however many chains they are looked at for."""

    def __init__(self, calls: Sequence[UOp], external: Collection[UOp], machine: Machine) -> None:
        self.calls, self.external, self.machine = calls, external, machine
        self.uses = Counter(a for c in calls for a in dict.fromkeys(c.src[1:]))
        self._parts: dict[int, Part | None] = {}
        self._common_loops: dict[int, int] = {}

    def find_longest(self, k: int) -> tuple[list[Part], int]:
        """Find the longest chain that begins with call `k`, and how many loops its parts share: 0 where joining cannot pay."""
        first = self.part(k)
        if first is None:
            return [], 0
        chain, passed, common, row = [first], {*first.call.src[1:]}, len(first.loops), 0
        while found := self.count_common_loops(k + len(chain) - 1):
            part = self.part(k + len(chain))
            if part is None or part.argument(0) in passed:
                break
            chain.append(part)
            passed.update(part.call.src[1:])
            row = row + _row_bytes(chain[-2], common) if found >= common else sum(_row_bytes(p, found) for p in chain[:-1])
            common = min(common, found)
            if self.is_hopeless(first, common, row):
                return chain, 0
        return chain, common if len(chain) > 1 else 0

    def part(self, k: int) -> Part | None:
        if k not in self._parts:
            self._parts[k] = _part(self.calls[k])
        return self._parts[k]

    def count_common_loops(self, k: int) -> int:
        """Count the loops that call `k` and the next one have in common, if that is its only reader; else 0."""
        if k not in self._common_loops:
            self._common_loops[k] = self._count_common_loops(k)
        return self._common_loops[k]

    def _count_common_loops(self, k: int) -> int:
        writer = self.part(k)
        if writer is None or k + 1 == len(self.calls):
            return 0
        memory = writer.argument(0)
        if memory.op is not Op.BUFFER or memory in self.external or self.uses[memory] != 2:
            return 0
        reader = self.part(k + 1) if memory in self.calls[k + 1].src[2:] else None
        return _common(writer, reader, memory) if reader else 0

    def is_hopeless(self, first: Part, common: int, row: int) -> bool:
        """Return True if no chain that begins so pays: in a longer one rows have more bytes, and no more loops are common."""
        extents = [_extent(r) for r in first.loops[:common]]
        return (
            common < 2
            or max(extents) < LEAST_ROWS
            or max(extents[:-1]) < self.machine.cores
            or row * LEAST_ROWS > _most_bytes(self.machine)
        )


def _part(call: UOp) -> Part | None:
    """A kernel that stores one element per iteration of loops that are free, all of known extents."""
    s = begin(call.src[0])
    if s is None or call.arg.written != (0,) or s.fixed or len(s.effect.src) != 2 or len(s.outputs) < 2:
        return None
    order = toposort(s.effect, *s.outputs)
    known = all(u.src[0].op is Op.CONST for u in order if u.op is Op.RANGE)
    plain = all(u.src[0].op is Op.PARAM and u.src[0].arg.name is None for u in order if u.op is Op.INDEX)
    return Part(call, s.effect, s.outputs) if known and plain and scanned(s, iter((0,))) is None else None


def _common(writer: Part, reader: Part, memory: UOp) -> int:
    """How many of the first loops count through `memory` alike, in the Store of one and in all Loads of the other."""
    strides = _strides(writer.loops)
    if linear(writer.effect.src[0].src[1]) != Sum(dict(zip(writer.loops, strides, strict=True)), 0):
        return 0
    loads = [linear(u.src[0].src[1]) for u in reader.loads(memory)]
    found = 0
    for a, b, stride in zip(writer.loops, reader.loops, strides):
        if a.src[0] is not b.src[0] or any(t.terms.get(b) != stride for t in loads):
            break
        found += 1
    while found and not all(_within(t, reader.loops[:found], strides[found - 1]) for t in loads):
        found -= 1
    return found


def _strides(loops: Sequence[UOp]) -> list[int]:
    return [math.prod(map(_extent, loops[k + 1 :])) for k in range(len(loops))]


def _within(t: Sum, common: Sequence[UOp], size: int) -> bool:
    """Whether an address, but for the common loops, lies in one block of `size` elements."""
    low = high = t.constant
    for u, k in t.terms.items():
        if u not in common:
            if u.min_max is None:
                return False
            ends = sorted(int(x) * k for x in u.min_max)
            low, high = low + ends[0], high + ends[1]
    return 0 <= low and high < size


def _extent(r: UOp) -> int:
    return int(r.src[0].arg.value)


# --------------------------------------------------------------------------------------------------------------- cost model


def _block(chain: Sequence[Part], common: int, machine: Machine) -> int:
    """Rows of a block; 0 where joining does not pay."""
    cache, row = machine.caches[1], sum(_row_bytes(p, common) for p in chain[:-1])
    rows = math.prod(_extent(r) for r in chain[0].loops[:common])
    n = _extent(chain[0].loops[common - 1])
    most = _most_bytes(machine) // row
    block = next((k for k in range(min(n, most), LEAST_ROWS - 1, -1) if n % k == 0), 0)
    again = sum(_again(p, common) for p in chain)
    outer = max(_extent(r) for r in chain[0].loops[: common - 1])
    return block if rows * row > cache and again <= cache // 2 and outer >= machine.cores else 0


def _row_bytes(part: Part, common: int) -> int:
    """The bytes of one row of what a part leaves."""
    return _strides(part.loops)[common - 1] * part.effect.src[1].dtype.itemsize


def _most_bytes(machine: Machine) -> int:
    """The bytes that a block may have."""
    return min(machine.caches[1] // 2, _MOST_BYTES)


def _again(part: Part, common: int) -> int:
    """Bytes that a part reads once per block."""
    loads = [u for u in toposort(part.effect) if u.op is Op.LOAD]
    needs = open_ranges(toposort(part.effect))
    block, outer = part.loops[common - 1], part.loops[:common]
    sizes = [(u, math.prod(_extent(r) for r in needs[u] if r not in outer)) for u in loads if block not in needs[u]]
    return sum(n * u.dtype.itemsize for u, n in sizes)


# ------------------------------------------------------------------------------------------------------------- construction


class _Join:
    """One chain in the making: the loops around, numbers for loops and Params."""

    def __init__(self, chain: Sequence[Part], common: int, rows: int) -> None:
        self.common, self.rows = common, rows
        extents = [_extent(r) for r in chain[0].loops[:common]]
        extents[-1] //= rows
        self.around = [UOp(Op.RANGE, (number(n),), RangeArg(k, AxisType.LOOP)) for k, n in enumerate(extents)]
        self.axis = common
        self.arguments = [chain[-1].argument(0)]
        self.local: dict[UOp, UOp] = {}  # memory between two parts -> that of a block

    def range(self, like: UOp, extent: UOp) -> UOp:
        self.axis += 1
        return UOp(Op.RANGE, (extent,), RangeArg(self.axis - 1, like.arg.type))

    def param(self, u: UOp, argument: UOp) -> UOp:
        """The Param of an argument of the joined call."""
        if argument not in self.arguments:
            self.arguments.append(argument)
        return u.replace(arg=replace(u.arg, slot=self.arguments.index(argument)))

    def add(self, part: Part, number_: int) -> tuple[UOp, list[UOp]]:
        """The effect of a part in the loops around, and the loops of its own."""
        row = self.range(part.loops[self.common - 1], number(self.rows))
        memory = part.argument(0)
        last = memory is self.arguments[0]
        if not last:
            size = self.rows * _strides(part.loops)[self.common - 1]
            self.local[memory] = UOp(Op.BUFFER, (), BufferArg(size, part.effect.src[1].dtype, "CPU", AddrSpace.LOCAL, number_))
        places = self._memory(part, row)
        effect = substitute(part.effect, places)
        note("join", part.call.src[0], effect, places)
        block = UOp(Op.ADD, (UOp(Op.MUL, (self.around[-1], number(self.rows))), row))
        put: dict[UOp, tuple[UOp, tuple[UOp, ...]]] = {r: (a, (a,)) for r, a in zip(part.loops, self.around[:-1])}
        put[part.loops[self.common - 1]] = (block, (row,))
        own = sorted({u for u in toposort(part.effect) if u.op is Op.RANGE} - put.keys(), key=lambda r: int(r.arg.axis_id))
        put.update({r: (n, (n,)) for r in own if (n := self.range(r, r.src[0]))})
        return replace_ranges(effect, put), [row, *(put[r][0] for r in part.loops[self.common :])]

    def _memory(self, part: Part, row: UOp) -> dict[UOp, UOp]:
        """What becomes of the places that a part accesses."""
        found: dict[UOp, UOp] = {}
        for u in toposort(part.effect):
            if u.op is not Op.INDEX:
                continue
            argument = part.argument(u.src[0].arg.slot)
            if argument not in self.local:
                found[u.src[0]] = self.param(u.src[0], argument)
                continue
            t, outer = linear(u.src[1]), part.loops[: self.common]
            terms = {row: t.terms[outer[-1]], **{x: k for x, k in t.terms.items() if x not in outer}}
            found[u] = UOp(Op.INDEX, (self.local[argument], build(Sum(terms, t.constant))))
        return found


def _join(chain: Sequence[Part], common: int, rows: int) -> UOp:
    """The call of one kernel for all parts."""
    join, ready, parts = _Join(chain, common, rows), dict[UOp, UOp](), list[tuple[UOp, dict[UOp, UOp], UOp, UOp]]()
    call = chain[-1].call
    for k, part in enumerate(chain):
        effect, loops = join.add(part, 1 + k)
        inner, local = substitute(effect, ready), join.local.get(part.argument(0))
        if local is None:
            name = f"joined_{call.src[0].arg.name}" if call.src[0].arg else "joined"
            outer = UOp(Op.SINK, (B.nested(inner, [*join.around, *loops]),), SinkArg(name))
        else:
            outer = B.after(local, B.nested(inner, loops))
        parts.append((effect, dict(ready), inner, outer))
        if local is not None:
            ready[local] = outer
    body = parts[-1][-1]
    for effect, put, inner, outer in parts:
        note_part("join", effect, body, put, inner, outer)
    return call.replace(src=(body, *join.arguments))
