"""Kernels of workgroups: numbers of groups and lanes, LOCAL memory, Barriers."""

from __future__ import annotations

from kernel_claims import linear

from uops.spec.ir import args as A
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def special(name: str, bound: UOp) -> UOp:
    return UOp(Op.SPECIAL, (bound,), A.SpecialArg(name))


def local(size: int, d: dt.DType, unique: int) -> UOp:
    return B.buffer(size, d, addrspace=A.AddrSpace.LOCAL, unique=unique)


def nest(*axes: tuple[int, AxisType]) -> UOp:
    """p0[flat index] = 1 in ranges of the given extents and types, outermost first."""
    ranges = [B.range_(n, k, t) for k, (n, t) in enumerate(axes)]
    where: UOp = B.index(0)
    for r in ranges:
        where = B.add(B.mul(where, r.src[0]), r)
    root = B.store(B.at(B.param(0, (1 << 20,), dt.int32), where), B.const(1))
    for r in reversed(ranges):
        root = B.end(root, r)
    return linear(root)


def reversal(groups: int, lanes: int) -> UOp:
    """Each workgroup reverses its part of p1 into p0, through local memory."""
    out, x, tile = B.param(0, (groups * lanes,), dt.int32), B.param(1, (groups * lanes,), dt.int32), local(lanes, dt.int32, 77)
    g, i = B.range_(groups, 0, AxisType.GLOBAL), B.range_(lanes, 1, AxisType.LOCAL)
    at = B.add(B.mul(g, B.index(lanes)), i)
    put = B.store(B.at(tile, i), B.load(B.at(x, at)))
    met = UOp(Op.BARRIER, (put,))
    taken = B.load(B.at(B.after(tile, met), B.sub(B.index(lanes - 1), i)))
    return linear(B.end(B.end(B.store(B.at(out, at), taken), i), g))
