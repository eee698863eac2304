"""Definitions, identities and multi-device ops of the bestiary."""

from __future__ import annotations

from uops.spec.bestiary.legalize import LEGALIZE
from uops.spec.bestiary.memory import SIZE, STORABLE
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.scope import VerifyContext, has_valid_arg
from uops.spec.ir.sizes import divides, show_shape
from uops.spec.rows.claims import (
    ClaimDraft,
    check_all_same_shape,
    claim_sources_share_dtype,
    is_integer,
    nonempty_field_claim,
    source_op_claim,
)
from uops.spec.rows.table.base import RowTable
from uops.spec.rows.table.source import OWN_NAME


def _check_id_nonnegative(u: UOp, ctx: VerifyContext) -> str | None:
    return None if u.arg.id >= 0 else f"got {u.arg.id}"


ID = ClaimDraft("id >= 0", _check_id_nonnegative)


def _check_unique_definition(u: UOp, ctx: VerifyContext) -> str | None:
    same = [x for x in ctx.order if x.op is u.op and x is not u and has_valid_arg(x) and x.arg.id == u.arg.id]
    return f"{len(same)} others have id {u.arg.id}" if same else None


ONE_DEFINITION = ClaimDraft("no other definition of its kind has the same id", _check_unique_definition, "R62")


def _check_variable_bounds(u: UOp, ctx: VerifyContext) -> str | None:
    return None if u.arg.min_val <= u.arg.max_val else f"got [{u.arg.min_val}, {u.arg.max_val}]"


def _check_variable_agreement(u: UOp, ctx: VerifyContext) -> str | None:
    same = [x for x in ctx.order if x.op is Op.DEFINE_VAR and x is not u and has_valid_arg(x) and x.arg.name == u.arg.name]
    return f"{u.arg.name} also has bounds [{same[0].arg.min_val}, {same[0].arg.max_val}]" if same else None


def _check_bind_value_type_and_no_cycle(u: UOp, ctx: VerifyContext) -> str | None:
    value, variable = u.value, u.variable
    if not is_integer(value.dtype) or value.dtype is not variable.dtype or value.shape != ():
        return f"got {value.dtype} {show_shape(value.shape)}"
    return "it contains the variable" if variable in _nodes_that_a_value_depends_on(value, ctx) else None


def _nodes_that_a_value_depends_on(value: UOp, ctx: VerifyContext) -> set[UOp]:
    """Return the nodes at and below `value`, and those that the values of its variables depend on."""
    nodes: set[UOp] = set()
    pending = [value]
    while pending:
        n = pending.pop()
        if n not in nodes:
            nodes.add(n)
            pending += n.src
            if n.op is Op.DEFINE_VAR:
                pending += [s for x in ctx.users[n] if x.op is Op.BIND and x.variable is n for s in x.src]
    return nodes


def _check_bind_in_bounds(u: UOp, ctx: VerifyContext) -> str | None:
    bounds, arg = u.value.min_max, u.variable.arg
    if bounds is None or (arg.min_val <= bounds[0] and bounds[1] <= arg.max_val):
        return None
    return f"[{bounds[0]}, {bounds[1]}] for {arg.name} in [{arg.min_val}, {arg.max_val}]"


def _check_single_bind(u: UOp, ctx: VerifyContext) -> str | None:
    others = [x for x in ctx.users[u.variable] if x.op is Op.BIND and x is not u and x.variable is u.variable]
    return f"{len(others)} other values" if others else None


def _check_rank_at_least_one(u: UOp, ctx: VerifyContext) -> str | None:
    return None if u.elements[0].shape else "got scalars"


def _check_sources_on_distinct_single_devices(u: UOp, ctx: VerifyContext) -> str | None:
    devices = [s.device for s in u.elements]
    if not all(isinstance(d, str) for d in devices):
        return f"got {devices}"
    return None if len(set(devices)) == len(devices) else f"{devices} repeat"


def _check_on_many_devices(u: UOp, ctx: VerifyContext) -> str | None:
    return None if isinstance(u.operand.device, tuple) else f"got {u.operand.device}"


def _check_device_number(u: UOp, ctx: VerifyContext) -> str | None:
    n = len(u.operand.device or ())
    return None if 0 <= u.arg.index < n else f"{u.arg.index} of {n}"


def _check_device_count_divides_multi_axis(u: UOp, ctx: VerifyContext) -> str | None:
    t, a = u.operand, u.arg.axis
    if not 0 <= a < len(t.shape) or not divides(len(t.device or ()), t.shape[a]):
        return f"axis {a} of {show_shape(t.shape)} over {len(t.device or ())} devices"
    return None


def _check_not_sharded_otherwise(u: UOp, ctx: VerifyContext) -> str | None:
    return None if u.operand.axis in (None, u.arg.axis) else f"it is sharded on axis {u.operand.axis}"


ON_MANY = ClaimDraft("T is on an n-tuple device", _check_on_many_devices, "R116", gate=True)

r = RowTable(Family.BESTIARY)
# fmt: off
r(Op.DEFINE_LOCAL, None, "DEFINE_LOCAL", "",
  "Memory of the workgroup.", [SIZE, STORABLE, ONE_DEFINITION], LEGALIZE[Op.DEFINE_LOCAL])
r(Op.DEFINE_VAR, None, "DEFINE_VAR", "", "A named size, known at run time, within bounds.", [
    ClaimDraft("min_val <= max_val", _check_variable_bounds, "R48"),
    nonempty_field_claim("name"),
    ClaimDraft("a variable has the same bounds everywhere", _check_variable_agreement, "R48"),
    OWN_NAME,
], LEGALIZE[Op.DEFINE_VAR])
r(Op.DEFINE_REG, None, "DEFINE_REG", "", "Memory of one lane.", [SIZE, STORABLE, ONE_DEFINITION], LEGALIZE[Op.DEFINE_REG])
r(Op.BIND, None, "BIND", "var value", "The variable, with this value.", [
    source_op_claim("var", 0, frozenset({Op.DEFINE_VAR}), "R112"),
    ClaimDraft(
        "value is a () index that does not contain the variable", _check_bind_value_type_and_no_cycle, "R112", gate=True,
    ),
    ClaimDraft("value lies in the bounds for certain", _check_bind_in_bounds, "R112"),
    ClaimDraft("a variable has one value", _check_single_bind, "R112"),
], LEGALIZE[Op.BIND])
r(Op.UNIQUE, None, "UNIQUE", "", "An identity in the whole program.", [ID], LEGALIZE[Op.UNIQUE])
r(Op.LUNIQUE, None, "LUNIQUE", "", "An identity in its own scope.", [ID], LEGALIZE[Op.LUNIQUE])
r(Op.DEVICE, None, "DEVICE", "", "Names a device, or several.", [], LEGALIZE[Op.DEVICE])
r(Op.MSTACK, None, "MStack", "T+", "Values of one device each, as the shards of one value on all of them.", [
    claim_sources_share_dtype("sources"),
    ClaimDraft("sources have one shape", check_all_same_shape),
    ClaimDraft("sources have rank at least 1", _check_rank_at_least_one, "R75"),
    ClaimDraft("each source is on one device of its own", _check_sources_on_distinct_single_devices, "R116", gate=True),
], LEGALIZE[Op.MSTACK])
r(Op.MSELECT, None, "MSelect", "T", "What device number `index` holds.", [
    ON_MANY,
    ClaimDraft("index is the number of a device", _check_device_number, "R116", gate=True),
], LEGALIZE[Op.MSELECT])
r(Op.MULTI, None, "Multi", "T", "T, sharded along the axis.", [
    ON_MANY,
    ClaimDraft("axis lies in T's shape, and n divides it", _check_device_count_divides_multi_axis, "R116", gate=True),
    ClaimDraft("T is not sharded otherwise", _check_not_sharded_otherwise, "R116"),
], LEGALIZE[Op.MULTI])
# fmt: on
ROWS = tuple(r.rows)
