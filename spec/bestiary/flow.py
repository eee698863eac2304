"""Loops, reductions and kernel structure of the bestiary."""

from __future__ import annotations

from uops.spec.bestiary.legalize import LEGALIZE
from uops.spec.bestiary.tables import REDUCE_OPS
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ReduceArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.scope import Context
from uops.spec.ir.sizes import at_most, show_shape
from uops.spec.rows.claims import Draft, axes_valid, boolean, dtype_is, integer, ranges_from, scalar, source_ops
from uops.spec.rows.table.base import EFFECT, NONE, Table
from uops.spec.rows.table.ordering import axis_identity, closed_once

DEVICE_SOURCE = source_ops("device", 1, frozenset({Op.DEVICE}))


def _reduce_op(u: UOp, ctx: Context) -> str | None:
    return None if u.arg.op in REDUCE_OPS.values() else f"got {u.arg.op.name.lower()}"


REDUCES = Draft("op is Add, Mul, Max or Min", _reduce_op, "R102")


def _no_axes(u: UOp, ctx: Context) -> str | None:
    assert isinstance(u.arg, ReduceArg)
    return f"axes {u.arg.axes}" if u.arg.axes else None


NO_AXES = Draft("arg names no axes", _no_axes)


def _index_identity(u: UOp, ctx: Context) -> str | None:
    if u.src[0].dtype is not dt.index or u.arg.op not in (Op.MAX, Op.MIN):
        return None
    bounds = [b.arg.value if b.op is Op.CONST else b for r in u.src[1:] if r.op in (Op.B_RANGE, Op.RANGE) for b in r.src[:1]]
    extents = [*(u.src[0].shape[a] for a in u.arg.axes), *bounds]
    return None if all(at_most(1, n) for n in extents) else "a reduced extent may be 0"


INDEX_IDENTITY = Draft("Max and Min of index reduce at least one element", _index_identity, "R85")


def _vector_at_most(u: UOp, ctx: Context) -> str | None:
    return None if len(u.src[0].shape) <= 1 else f"got {show_shape(u.src[0].shape)}"


def _sharded(u: UOp, ctx: Context) -> str | None:
    t = u.src[0]
    return None if isinstance(t.device, tuple) and t.axis is not None else f"device {t.device}, axis {t.axis}"


_STAGES = (Op.SINK, Op.DEVICE, Op.LINEAR, Op.SOURCE, Op.PROGRAM_BINARY)


def _stages(u: UOp, ctx: Context) -> str | None:
    wrong = next((k for k, s in enumerate(u.src) if s.op is not _STAGES[k]), None)
    return None if wrong is None else f"source {wrong} needs {_STAGES[wrong].name.lower()}, got {u.src[wrong].op.name.lower()}"


def _effects(u: UOp, ctx: Context) -> str | None:
    pending = list(u.src[1:])
    seen = set(pending)
    while pending:
        s = pending.pop()
        if s.op in (Op.END, Op.GROUP):
            below = [x for x in (s.src[:1] if s.op is Op.END else s.src) if x not in seen]
            seen.update(below)
            pending += below
        elif s.op not in (Op.B_STORE, Op.B_IF, Op.ENDIF):
            return f"got {s.op.name.lower()}"
    return None


r = Table(Family.BESTIARY)
# fmt: off
r(Op.B_RANGE, None, "RANGE", "bound deps...", "A loop variable from 0 to bound - 1, inside of the loops it depends on.", [
    scalar("bound", 0, "R57"),
    dtype_is("bound", integer, "is an integer", "R57", 0),
    Draft("closed at most once in its scope", closed_once, "R58"),
    Draft("axis_id and its state tell it from the other Ranges of its scope", axis_identity, "R62"),
    ranges_from(1, frozenset({Op.B_RANGE})),
], LEGALIZE[Op.B_RANGE], NONE)
r(Op.REDUCE_AXIS, None, "REDUCE_AXIS", "T", "Combines T along axes, which become 1.", [
    REDUCES,
    axes_valid("axes are distinct axes of T", "R101"),
    INDEX_IDENTITY,
], LEGALIZE[Op.REDUCE_AXIS])
r(Op.B_REDUCE, None, "REDUCE", "T r...",
  "Combines T over the iterations of ranges, which it closes, and over the lanes of a vector.", [
    REDUCES,
    ranges_from(1, frozenset({Op.B_RANGE})),
    NO_AXES,
    Draft("T is a scalar or a vector", _vector_at_most, "R105"),
    INDEX_IDENTITY,
], LEGALIZE[Op.B_REDUCE])
r(Op.ALLREDUCE, None, "ALLREDUCE", "T device", "Combines what the devices hold, for all of them.", [
    REDUCES,
    DEVICE_SOURCE,
    NO_AXES,
    Draft("T is sharded over an n-tuple device", _sharded, "R110"),
], LEGALIZE[Op.ALLREDUCE])
r(Op.B_PROGRAM, None, "PROGRAM", "sink device linear? source? binary?", "A kernel on its way to machine code, stage after stage.", [
    Draft("sources are Sink, Device, Linear, Source, ProgramBinary, as far as they go", _stages, "R115"),
], LEGALIZE[Op.B_PROGRAM], EFFECT)
r(Op.PROGRAM_BINARY, None, "PROGRAM_BINARY", "", "Compiled machine code.", [], LEGALIZE[Op.PROGRAM_BINARY], NONE)
r(Op.B_BARRIER, None, "BARRIER", "u deps...", "Passes u on once all lanes have come here.", [], LEGALIZE[Op.B_BARRIER])
r(Op.B_IF, None, "IF", "gate body...", "The effects of the body, only if the gate is true.", [
    dtype_is("gate", boolean, "is bool", "R114", 0),
    scalar("gate", 0, "R114"),
    Draft("the body is of Stores, and of End, Group and If of them", _effects, "R114"),
], LEGALIZE[Op.B_IF], EFFECT)
# fmt: on
ROWS = tuple(r.rows)
