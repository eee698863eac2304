"""Vectors, lanes and elementwise extras of the bestiary."""

from __future__ import annotations

import math

from uops.spec.bestiary.legalize import LEGALIZE
from uops.spec.bestiary.lower import unrolled_axes
from uops.spec.bestiary.memory import ONLY_ACCESSED
from uops.spec.ir.args import ConstArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.scope import Context
from uops.spec.ir.sizes import show_shape
from uops.spec.rows.claims import SAME_DEVICE, Draft, same_dtype
from uops.spec.rows.table.base import EFFECT, NONE, Table
from uops.spec.rows.table.codegen import custom_template
from uops.spec.rows.table.elementwise import binary
from uops.spec.rows.table.source import representable

SAME = same_dtype("sources")
#: Lanes of one vector: more are certainly a mistake, and would be written out one by one.
MOST_LANES = 1 << 16


def _scalars(u: UOp, ctx: Context) -> str | None:
    wrong = next((k for k, s in enumerate(u.src) if s.shape != ()), None)
    return None if wrong is None else f"source {wrong} has shape {show_shape(u.src[wrong].shape)}"


def _vectors(u: UOp, ctx: Context) -> str | None:
    wrong = next((k for k, s in enumerate(u.src) if not _vector_or_scalar(s)), None)
    return None if wrong is None else f"source {wrong} has shape {show_shape(u.src[wrong].shape)}"


def _vector_or_scalar(s: UOp) -> bool:
    return s.shape == () or (len(s.shape) == 1 and isinstance(s.shape[0], int))


VECTORS = Draft("sources are scalars or vectors", _vectors, gate=True)


def _vector(u: UOp, ctx: Context) -> str | None:
    s = u.src[0]
    return None if len(s.shape) == 1 and isinstance(s.shape[0], int) else f"got {show_shape(s.shape)}"


def _picked(u: UOp, ctx: Context) -> str | None:
    n = u.src[0].shape[0]
    wrong = next((i for i in u.arg.indices if not 0 <= i < n), None)
    if not u.arg.indices:
        return "there is none"
    return None if wrong is None else f"{wrong} of {n} lanes"


def _lane_values(u: UOp, ctx: Context) -> str | None:
    for c in u.arg.values:
        if not isinstance(c, ConstArg) or c.dtype is not u.arg.dtype or not representable(c.value, c.dtype):
            return f"{getattr(c, 'value', c)!r} is no {u.arg.dtype}"
    return None


def _addresses(u: UOp, ctx: Context) -> str | None:
    wrong = next((k for k, s in enumerate(u.src) if s.op not in (Op.B_INDEX, Op.POINTER_INDEX, Op.PTRCAT)), None)
    return None if wrong is None else f"source {wrong} is {u.src[wrong].op.name.lower()}"


def _lane_axes(u: UOp, ctx: Context) -> str | None:
    ids = [a for a, _ in u.arg.axes]
    if len(set(ids)) != len(ids):
        return f"axes {tuple(ids)} repeat"
    wrong = next((n for _, n in u.arg.axes if n < 1), None)
    if wrong is not None:
        return f"factor {wrong}"
    n = math.prod(n for _, n in u.arg.axes)
    return None if n <= MOST_LANES else f"{n} lanes"


LANE_AXES = Draft(f"axis ids are distinct, factors at least 1, lanes at most {MOST_LANES}", _lane_axes, "R111", gate=True)


def _lane_count(u: UOp, ctx: Context) -> str | None:
    n = math.prod(n for _, n in u.arg.axes)
    return None if u.src[0].shape in ((), (n,)) else f"needs () or ({n}), got {show_shape(u.src[0].shape)}"


LANE_COUNT = Draft("T is a scalar, or has one element per lane", _lane_count, "R111")


def _same_lanes(u: UOp, ctx: Context) -> str | None:
    below = unrolled_axes(u.src[0])
    if below is None or u.src[0].shape == () or sorted(below) == sorted(u.arg.axes):
        return None
    return f"axes {u.arg.axes} of an UNROLL of {below}"


r = Table(Family.BESTIARY)
# fmt: off
r(Op.VECTORIZE, None, "VECTORIZE", "T+", "A vector of scalars.", [
    SAME,
    Draft("sources are scalars", _scalars),
    SAME_DEVICE,
], LEGALIZE[Op.VECTORIZE])
r(Op.GEP, None, "GEP", "T", "Lanes of a vector, by position: one is a scalar, several a vector.", [
    Draft("T is a vector", _vector, gate=True),
    Draft("positions are there and lie inside", _picked),
], LEGALIZE[Op.GEP])
r(Op.VCONST, None, "VConst", "", "A vector of constants.", [
    Draft("there is a value", lambda u, ctx: None if u.arg.values else "got none", gate=True),
    Draft("values are representable in dtype", _lane_values, "R23", gate=True),
], LEGALIZE[Op.VCONST], NONE)
r(Op.CAT, None, "CAT", "T+", "The lanes of several vectors, one after the other.", [
    SAME,
    VECTORS,
    SAME_DEVICE,
], LEGALIZE[Op.CAT])
r(Op.PTRCAT, None, "PtrCat", "T+", "Several addresses, accessed as one vector.", [
    Draft("sources are addresses", _addresses, "R117", gate=True),
    SAME,
    VECTORS,
    ONLY_ACCESSED,
], LEGALIZE[Op.PTRCAT])
r(Op.UNROLL, None, "UNROLL", "T", "T for each combination of values of the axes, as lanes.", [
    LANE_AXES,
    LANE_COUNT,
], LEGALIZE[Op.UNROLL])
r(Op.CONTRACT, None, "CONTRACT", "T", "The lanes of unrolled axes as one vector.", [
    LANE_AXES,
    LANE_COUNT,
    Draft("the axes are those of the UNROLL below", _same_lanes, "R111"),
], LEGALIZE[Op.CONTRACT])
r(Op.PRECAST, None, "Precast", "T", "T itself, marked before a conversion.", [], LEGALIZE[Op.PRECAST])
r(Op.CUSTOMI, None, "CustomI", "args...", "An expression of target code with {k} for source k.", [
    Draft("each placeholder names a source", custom_template),
], LEGALIZE[Op.CUSTOMI], EFFECT)
r(Op.MIN, None, "Min", "A B", "The lesser of a and b; NaN if either is.", binary(), LEGALIZE[Op.MIN])
# fmt: on
ROWS = tuple(r.rows)
