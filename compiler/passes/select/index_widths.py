"""Machine widths of index values: the second step of instruction selection (R08).

Index values are mathematical integers. A kernel computes them in int32 if min_max proves that every one fits, else in int64, else
it cannot be compiled. What is left of dtype index are loop counters and named variables, which are cast where their value is
used, and the shapes of Params. `machine_widths` does that to a kernel of scalars; vectors are made in their width (`vectors`).
"""

from __future__ import annotations

from collections.abc import Iterable

from uops.compiler.log import note
from uops.compiler.place import untranslatable
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CastArg, ConstArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UNSET, UOp, toposort
from uops.spec.ir.ops import Op


def machine_widths(kernel: UOp) -> UOp:
    """`kernel` with index arithmetic in int32 or int64."""
    order = toposort(kernel)
    width = index_width(order, kernel)
    done: dict[UOp, UOp] = {}
    values: dict[UOp, UOp] = {}  # what a source is as a machine integer, if it is an index value
    for u in order:
        made = done[u] = _convert(u, done, values, width)
        if u.dtype is not _INDEX or u.op not in _COUNTERS:
            values[u] = made
    note("widths", kernel, done[kernel], done)
    return done[kernel]


_INDEX = dt.index
_COUNTERS = frozenset({Op.CONST, Op.RANGE, Op.PARAM})
_NARROW, _WIDE = (dt.int32.min, dt.int32.max), (dt.int64.min, dt.int64.max)


def index_width(order: Iterable[UOp], kernel: UOp) -> DType:
    """The narrower width that holds every index value. A constant that only spells a shape needs none."""
    chosen, (least, most) = dt.int32, _NARROW
    sizes: set[UOp] | None = None
    for u in order:
        if u.dtype is not _INDEX or u.op is Op.STACK:
            continue
        known = u._min_max
        lo, hi = (u.min_max if known is UNSET else known) or (_INDEX.min, _INDEX.max)
        if least <= lo and hi <= most:
            continue
        if sizes is None:
            sizes = set(toposort(*(p.src[0] for p in order if p.op is Op.PARAM and p.src)))
        if u.op is Op.CONST and u in sizes:
            continue
        if not (_WIDE[0] <= lo and hi <= _WIDE[1]):
            raise untranslatable(
                "R08 (index dtype)", u, f"the value may be anything in [{lo}, {hi}], which int64 does not hold", kernel
            )
        chosen = dt.int64
    return chosen


def as_integer(x: UOp, width: DType) -> UOp:
    """A number that is cast to index."""
    return UOp(Op.CAST, (x,), CastArg(width)) if not x.dtype.is_float else B.cast(B.cast(x, dt.int64), width)


def _convert(u: UOp, done: dict[UOp, UOp], values: dict[UOp, UOp], width: DType) -> UOp:
    """`u` on converted sources. Where a source is a counter (Range, variable, constant) the value of it is meant, in `width`."""
    op = u.op
    if op is Op.PARAM or op is Op.CONST:  # the shape of a Param is the Param's, which stays
        return u
    if op is Op.RANGE:
        bound = u.src[0]
        return u if bound.op in (Op.CONST, Op.PARAM) else u.replace(src=(B.cast(_value(bound, done, values, width), dt.int64),))
    if op is Op.END or op is Op.AFTER:
        src = tuple([done[s] for s in u.src])
    else:
        src = tuple([values.get(s) or _value(s, done, values, width) for s in u.src])
    if op is Op.CAST and u.dtype is _INDEX:
        return as_integer(src[0], width)
    return u if src == u.src else UOp(op, src, u.arg, u.tag)


def _value(s: UOp, done: dict[UOp, UOp], values: dict[UOp, UOp], width: DType) -> UOp:
    """A source as a machine integer if it is an index value."""
    found = values.get(s)
    if found is None:
        constant = s.op is Op.CONST
        found = UOp(Op.CONST, (), ConstArg(s.arg.value, width)) if constant else UOp(Op.CAST, (done[s],), CastArg(width))
        values[s] = found
    return found
