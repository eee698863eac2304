"""Vectors, lanes and elementwise extras of the bestiary."""

from __future__ import annotations

import math

from uops.spec.bestiary.legalize import LEGALIZE
from uops.spec.bestiary.lower import find_axes_of_unroll_whose_lanes_reach
from uops.spec.bestiary.memory import ADDRESSES, ONLY_ACCESSED
from uops.spec.ir.args import ConstArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.scope import VerifyContext
from uops.spec.ir.sizes import show_shape
from uops.spec.rows.claims import SAME_DEVICE, ClaimDraft, claim_sources_share_dtype
from uops.spec.rows.table.base import RowTable
from uops.spec.rows.table.codegen import check_template_placeholders_name_sources
from uops.spec.rows.table.elementwise import binary_claims
from uops.spec.rows.table.source import is_representable_in_same_kind

SAME = claim_sources_share_dtype("sources")
#: The maximum lanes of a vector; each lane becomes a node of its own.
MOST_LANES = 1 << 16


def _check_elements_are_scalars(u: UOp, ctx: VerifyContext) -> str | None:
    for k, s in enumerate(u.elements):
        if s.shape != ():
            return f"source {k} has shape {show_shape(s.shape)}"
    return None


def _check_elements_scalars_or_vectors(u: UOp, ctx: VerifyContext) -> str | None:
    for k, s in enumerate(u.elements):
        if s.shape != () and not _is_vector(s):
            return f"source {k} has shape {show_shape(s.shape)}"
    return None


def _is_vector(t: UOp) -> bool:
    return len(t.shape) == 1 and isinstance(t.shape[0], int)


VECTORS = ClaimDraft("sources are scalars or vectors", _check_elements_scalars_or_vectors, gate=True)


def _check_vector(u: UOp, ctx: VerifyContext) -> str | None:
    return None if _is_vector(u.operand) else f"got {show_shape(u.operand.shape)}"


def _check_gep_indices_in_bounds(u: UOp, ctx: VerifyContext) -> str | None:
    n = u.operand.shape[0]
    wrong = next((i for i in u.arg.indices if not 0 <= i < n), None)
    if not u.arg.indices:
        return "there is none"
    return None if wrong is None else f"{wrong} of {n} lanes"


def _check_constants_representable_in_arg_dtype(u: UOp, ctx: VerifyContext) -> str | None:
    for c in u.arg.values:
        if not isinstance(c, ConstArg) or c.dtype is not u.arg.dtype or not is_representable_in_same_kind(c.value, c.dtype):
            return f"{getattr(c, 'value', c)!r} is no {u.arg.dtype}"
    return None


def _check_sources_are_addresses(u: UOp, ctx: VerifyContext) -> str | None:
    for k, s in enumerate(u.elements):
        if s.op not in ADDRESSES:
            return f"source {k} is {s.op.name.lower()}"
    return None


def _check_lane_axes_distinct_within_lane_limit(u: UOp, ctx: VerifyContext) -> str | None:
    ids = [a for a, _ in u.arg.axes]
    if len(set(ids)) != len(ids):
        return f"axes {tuple(ids)} repeat"
    wrong = next((n for _, n in u.arg.axes if n < 1), None)
    if wrong is not None:
        return f"factor {wrong}"
    n = math.prod(n for _, n in u.arg.axes)
    return None if n <= MOST_LANES else f"{n} lanes"


LANE_AXES = ClaimDraft(
    f"axis ids are distinct, factors at least 1, lanes at most {MOST_LANES}",
    _check_lane_axes_distinct_within_lane_limit,
    "R111",
    gate=True,
)


def _check_lane_count(u: UOp, ctx: VerifyContext) -> str | None:
    n = math.prod(n for _, n in u.arg.axes)
    return None if u.operand.shape in ((), (n,)) else f"needs () or ({n}), got {show_shape(u.operand.shape)}"


LANE_COUNT = ClaimDraft("T is a scalar, or has one element per lane", _check_lane_count, "R111")


def _check_axes_match_unroll_below(u: UOp, ctx: VerifyContext) -> str | None:
    unrolled = find_axes_of_unroll_whose_lanes_reach(u.operand)
    if unrolled is None or u.operand.shape == () or sorted(unrolled) == sorted(u.arg.axes):
        return None
    return f"axes {u.arg.axes} of an UNROLL of {unrolled}"


r = RowTable(Family.BESTIARY)
# fmt: off
r(Op.VECTORIZE, None, "VECTORIZE", "T+", "A vector of scalars.", [
    SAME,
    ClaimDraft("sources are scalars", _check_elements_are_scalars),
    SAME_DEVICE,
], LEGALIZE[Op.VECTORIZE])
r(Op.GEP, None, "GEP", "T", "Lanes of a vector, by position: one is a scalar, several a vector.", [
    ClaimDraft("T is a vector", _check_vector, gate=True),
    ClaimDraft("positions are there and lie inside", _check_gep_indices_in_bounds),
], LEGALIZE[Op.GEP])
r(Op.VCONST, None, "VConst", "", "A vector of constants.", [
    ClaimDraft("there is a value", lambda u, ctx: None if u.arg.values else "got none", gate=True),
    ClaimDraft("values are representable in dtype", _check_constants_representable_in_arg_dtype, "R23", gate=True),
], LEGALIZE[Op.VCONST])
r(Op.CAT, None, "CAT", "T+", "The lanes of several vectors, one after the other.", [
    SAME,
    VECTORS,
    SAME_DEVICE,
], LEGALIZE[Op.CAT])
r(Op.PTRCAT, None, "PtrCat", "T+", "Several addresses, accessed as one vector.", [
    ClaimDraft("sources are addresses", _check_sources_are_addresses, "R117", gate=True),
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
    ClaimDraft("the axes are those of the UNROLL below", _check_axes_match_unroll_below, "R111"),
], LEGALIZE[Op.CONTRACT])
r(Op.PRECAST, None, "Precast", "T", "T itself, marked before a conversion.", [], LEGALIZE[Op.PRECAST])
r(Op.CUSTOMI, None, "CustomI", "args...", "An expression of target code with {k} for source k.", [
    ClaimDraft("each placeholder names a source", check_template_placeholders_name_sources),
], LEGALIZE[Op.CUSTOMI])
r(Op.MIN, None, "Min", "A B", "The lesser of a and b; NaN if either is.", binary_claims(), LEGALIZE[Op.MIN])
# fmt: on
ROWS = tuple(r.rows)
