"""Machine widths of index values: the second step of instruction selection (R08).

Index values are mathematical integers. A kernel computes them in int32 if min_max proves that every one fits, else in int64, else
it cannot be compiled. What is left of dtype index are loop counters and named variables, which are cast where their value is
used, and the shapes of Params. Index vectors are Stacks of scalars and sums of them, converted in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable

from uops.compiler.log import note
from uops.compiler.place import untranslatable
from uops.spec import build as B
from uops.spec import dtypes as dt
from uops.spec.args import CastArg, ConstArg
from uops.spec.dtypes import DType
from uops.spec.node import UOp, toposort
from uops.spec.ops import Op


def machine_widths(kernel: UOp) -> UOp:
    """`kernel` with index arithmetic in int32 or int64."""
    order = toposort(kernel)
    sizes = set(toposort(*(u.src[0] for u in order if u.op is Op.PARAM and u.src)))
    values = [u for u in order if u.dtype is dt.index and u.op is not Op.STACK and _is_used(u, sizes)]
    width = _width(values, kernel)
    done: dict[UOp, UOp] = {}
    for u in order:
        done[u] = _convert(u, done, width)
    note("widths", kernel, done[kernel], done)
    return done[kernel]


def _is_used(u: UOp, sizes: set[UOp]) -> bool:
    """A constant or variable that only spells a shape needs no width, but then it is small as well."""
    return u not in sizes or u.op is not Op.CONST


def _width(values: Iterable[UOp], kernel: UOp) -> DType:
    chosen = dt.int32
    for u in values:
        lo, hi = u.min_max or (dt.index.min, dt.index.max)
        if not (dt.int64.min <= lo and hi <= dt.int64.max):
            raise untranslatable(
                "R08 (index dtype)", u, f"the value may be anything in [{lo}, {hi}], which int64 does not hold", kernel
            )
        if not (dt.int32.min <= lo and hi <= dt.int32.max):
            chosen = dt.int64
    return chosen


def _convert(u: UOp, done: dict[UOp, UOp], width: DType) -> UOp:
    """`u` on converted sources. Where a source is a counter (Range, variable, constant) the value of it is meant, in `width`."""
    if u.op in (Op.PARAM, Op.CONST):
        return u
    if u.op is Op.STACK:  # of lanes; the shape of a Param is the Param's, which stays
        lane = {s: _value(s, done, width) for s in u.src}
        return u.replace(src=tuple([lane[s] for s in u.src]))
    if u.op is Op.RANGE:
        bound = u.src[0]
        return u if bound.op in (Op.CONST, Op.PARAM) else u.replace(src=(B.cast(_value(bound, done, width), dt.int64),))
    if u.op in (Op.END, Op.AFTER):
        return u.replace(src=tuple(done[s] for s in u.src))
    src = tuple(_value(s, done, width) for s in u.src)
    if u.op is Op.CAST and u.dtype is dt.index:
        return UOp(Op.CAST, src, CastArg(width)) if not src[0].dtype.is_float else B.cast(B.cast(src[0], dt.int64), width)
    return u if src == u.src else u.replace(src=src)


def _value(s: UOp, done: dict[UOp, UOp], width: DType) -> UOp:
    """A source as a machine integer if it is an index value."""
    if s.dtype is not dt.index:
        return done[s]
    if s.op is Op.CONST:
        return UOp(Op.CONST, (), ConstArg(s.arg.value, width))
    if s.op in (Op.RANGE, Op.PARAM):
        return UOp(Op.CAST, (done[s],), CastArg(width))
    return done[s]
