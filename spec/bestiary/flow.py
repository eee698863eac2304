"""Loops, reductions and kernel structure of the bestiary."""

from __future__ import annotations

from uops.spec.bestiary.legalize import LEGALIZE
from uops.spec.bestiary.tables import REDUCE_OPS
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ReduceArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import EFFECT_WRAPPERS, EXTREMES, Family, Op
from uops.spec.ir.scope import VerifyContext
from uops.spec.ir.sizes import show_shape
from uops.spec.rows.claims import (
    ClaimDraft,
    distinct_axes_claim,
    distinct_ranges_claim,
    dtype_claim,
    is_boolean,
    is_integer,
    scalar_claim,
    source_op_claim,
)
from uops.spec.rows.table.base import RowTable
from uops.spec.rows.table.ordering import check_axis_identity, check_closed_once
from uops.spec.rows.table.reduce import find_possibly_empty_reduction_fault

DEVICE_SOURCE = source_op_claim("device", 1, frozenset({Op.DEVICE}))


def _check_reduce_op(u: UOp, ctx: VerifyContext) -> str | None:
    return None if u.arg.op in REDUCE_OPS.values() else f"got {u.arg.op.name.lower()}"


REDUCES = ClaimDraft("op is Add, Mul, Max or Min", _check_reduce_op, "R102")


def _check_no_axes(u: UOp, ctx: VerifyContext) -> str | None:
    assert isinstance(u.arg, ReduceArg)
    return f"axes {u.arg.axes}" if u.arg.axes else None


NO_AXES = ClaimDraft("arg names no axes", _check_no_axes)


def _check_index_reduce_nonempty(u: UOp, ctx: VerifyContext) -> str | None:
    return find_possibly_empty_reduction_fault(u) if u.operand.dtype is dt.index and u.arg.op in EXTREMES else None


INDEX_IDENTITY = ClaimDraft("Max and Min of index reduce at least one element", _check_index_reduce_nonempty, "R85")


def _check_scalar_or_vector(u: UOp, ctx: VerifyContext) -> str | None:
    return None if len(u.operand.shape) <= 1 else f"got {show_shape(u.operand.shape)}"


def _check_sharded(u: UOp, ctx: VerifyContext) -> str | None:
    t = u.operand
    return None if isinstance(t.device, tuple) and t.axis is not None else f"device {t.device}, axis {t.axis}"


#: Ops of the sources of a PROGRAM, in order.
_STAGES = (Op.SINK, Op.DEVICE, Op.LINEAR, Op.SOURCE, Op.PROGRAM_BINARY)


def _check_program_sources_in_stage_order(u: UOp, ctx: VerifyContext) -> str | None:
    for k, (s, op) in enumerate(zip(u.src, _STAGES)):
        if s.op is not op:
            return f"source {k} needs {op.name.lower()}, got {s.op.name.lower()}"
    return None


def _check_leaf_effects_of_if_are_stores(u: UOp, ctx: VerifyContext) -> str | None:
    pending = list(u.effects)
    seen = set(pending)
    while pending:
        s = pending.pop()
        if s.op in EFFECT_WRAPPERS:
            below = [x for x in ((s.body,) if s.op is Op.END else s.effects) if x not in seen]
            seen.update(below)
            pending += below
        elif s.op not in (Op.B_STORE, Op.B_IF, Op.ENDIF):
            return f"got {s.op.name.lower()}"
    return None


r = RowTable(Family.BESTIARY)
# fmt: off
r(Op.B_RANGE, None, "RANGE", "bound deps...", "A loop variable from 0 to bound - 1, inside of the loops it depends on.", [
    scalar_claim("bound", 0, "R57"),
    dtype_claim("bound", is_integer, "is an integer", "R57", 0),
    ClaimDraft("closed at most once in its scope", check_closed_once, "R58"),
    ClaimDraft("axis_id and its state tell it from the other Ranges of its scope", check_axis_identity, "R62"),
    distinct_ranges_claim(1, frozenset({Op.B_RANGE})),
], LEGALIZE[Op.B_RANGE])
r(Op.REDUCE_AXIS, None, "REDUCE_AXIS", "T", "Combines T along axes, which become 1.", [
    REDUCES,
    distinct_axes_claim("axes are distinct axes of T", "R101"),
    INDEX_IDENTITY,
], LEGALIZE[Op.REDUCE_AXIS])
r(Op.B_REDUCE, None, "REDUCE", "T r...",
  "Combines T over the iterations of ranges, which it closes, and over the lanes of a vector.", [
    REDUCES,
    distinct_ranges_claim(1, frozenset({Op.B_RANGE})),
    NO_AXES,
    ClaimDraft("T is a scalar or a vector", _check_scalar_or_vector, "R105"),
    INDEX_IDENTITY,
], LEGALIZE[Op.B_REDUCE])
r(Op.ALLREDUCE, None, "ALLREDUCE", "T device", "Combines what the devices hold, for all of them.", [
    REDUCES,
    DEVICE_SOURCE,
    NO_AXES,
    ClaimDraft("T is sharded over an n-tuple device", _check_sharded, "R110"),
], LEGALIZE[Op.ALLREDUCE])
r(Op.B_PROGRAM, None, "PROGRAM", "sink device linear? source? binary?", "A kernel on its way to machine code, stage after stage.", [
    ClaimDraft(
        "sources are Sink, Device, Linear, Source, ProgramBinary, as far as they go", _check_program_sources_in_stage_order, "R115",
    ),
], LEGALIZE[Op.B_PROGRAM])
r(Op.PROGRAM_BINARY, None, "PROGRAM_BINARY", "", "Compiled machine code.", [], LEGALIZE[Op.PROGRAM_BINARY])
r(Op.B_BARRIER, None, "BARRIER", "u deps...", "Passes u on once all lanes have come here.", [], LEGALIZE[Op.B_BARRIER])
r(Op.B_IF, None, "IF", "gate body...", "The effects of the body, only if the gate is true.", [
    dtype_claim("gate", is_boolean, "is bool", "R114", 0),
    scalar_claim("gate", 0, "R114"),
    ClaimDraft("the body is of Stores, and of End, Group and If of them", _check_leaf_effects_of_if_are_stores, "R114"),
], LEGALIZE[Op.B_IF])
# fmt: on
ROWS = tuple(r.rows)
