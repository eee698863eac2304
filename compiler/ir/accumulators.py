"""Reductions as accumulators: the first step of instruction selection.

A Reduce over ranges becomes a REG Buffer of one element: the identity is stored before the loops, every iteration combines into
it, and the result is loaded after the last End. Small floats accumulate in float32 and are rounded once at the end, which R32
allows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from uops.compiler.ir.affine import number
from uops.compiler.ir.loops import in_order
from uops.compiler.log import note
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, BufferArg, LoadArg
from uops.spec.ir.dtypes import DType, Kind
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import open_ranges

_SMALL = frozenset({dt.fp8e4m3, dt.fp8e5m2, dt.float16, dt.bfloat16})


def identity(op: Op, d: DType) -> UOp:
    """What an empty reduction gives (R32)."""
    if op is Op.MAX:
        return B.const(d.min, d)
    return B.const(1 if op is Op.MUL else 0, d)


def accumulate(kernel: UOp, uniques: Iterator[int] | None = None) -> UOp:
    """`kernel` without Reduce."""
    uniques = itertools.count(1) if uniques is None else uniques
    order = toposort(kernel)
    inside = open_ranges(order)
    done: dict[UOp, UOp] = {}
    for u in order:
        src = tuple(done[s] for s in u.src)
        if u.op is Op.REDUCE:
            outer = sorted(inside[u], key=lambda r: int(r.arg.axis_id))
            done[u] = _loops(u, src, [done[r] for r in outer], next(uniques))
        else:
            done[u] = u if src == u.src else u.replace(src=src)
    note("accumulate", kernel, done[kernel], done)
    return done[kernel]


def _loops(u: UOp, src: tuple[UOp, ...], outer: list[UOp], unique: int) -> UOp:
    value, ranges = src[0], src[1:]
    register, cleared = opened(u, outer, unique)
    running = position(B.after(register, cleared, *ranges))
    step = B.store(running, combined(u, running, value))
    return B.cast(_load(position(B.after(register, B.nested(step, ranges)))), u.dtype)


def wide_of(d: DType) -> DType:
    """The dtype of an accumulator for values of `d`."""
    return dt.float32 if d in _SMALL else d


def widened(value: UOp) -> UOp:
    """What an accumulator takes in: of a product the exact one."""
    wide = wide_of(value.dtype)
    if value.op is Op.MUL and wide is not value.dtype:
        return UOp(Op.MUL, tuple(B.cast(x, wide) for x in value.src))
    return B.cast(value, wide)


def opened(u: UOp, outer: Sequence[UOp], unique: int, loops: Sequence[UOp] = ()) -> tuple[UOp, UOp]:
    """The register of Reduce `u`, an element per iteration of `loops`, whose extents are constants, and what stores the identity
    there in every iteration of the loops `outer`."""
    sizes, wide = [int(r.src[0].arg.value) for r in loops], wide_of(u.dtype)
    register = UOp(Op.BUFFER, (), BufferArg(math.prod(sizes), wide, device_of(u), AddrSpace.REG, unique))
    before = position(B.after(register, *outer) if outer else register, loops, sizes)
    return register, B.nested(B.store(before, identity_in(u.arg.op, u.dtype, wide)), in_order(loops))


def combined(u: UOp, running: UOp, value: UOp) -> UOp:
    """What the register holds after one more value."""
    return UOp(u.arg.op, (_load(running), B.cast(value, running.dtype)))


def identity_in(op: Op, d: DType, wide: DType) -> UOp:
    """The identity of the value's own dtype, in the accumulator's: e4m3 has no -inf."""
    return identity(op, wide) if d.kind is not Kind.FLOAT else B.const(identity(op, d).const, wide)


def device_of(value: UOp) -> str:
    """Where a value's Buffer lies."""
    return value.device if isinstance(value.device, str) else "CPU"


def position(memory: UOp, index: Sequence[UOp] = (), sizes: Sequence[int] = ()) -> UOp:
    """The element of memory of these sizes, row-major."""
    flat: UOp = number(0)
    for i, n in zip(index, sizes, strict=True):
        flat = i if flat is number(0) else UOp(Op.ADD, (UOp(Op.MUL, (flat, number(n))), i))
    return UOp(Op.INDEX, (memory, flat))


def _load(place: UOp) -> UOp:
    return UOp(Op.LOAD, (place,), LoadArg())
