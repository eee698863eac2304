"""Definitions, identities and multi-device ops of the bestiary."""

from __future__ import annotations

from uops.spec.bestiary.legalize import LEGALIZE
from uops.spec.bestiary.memory import SIZE, STORABLE
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.scope import Context, well_argued
from uops.spec.ir.sizes import divides, show_shape
from uops.spec.rows.claims import Draft, all_same_shape, integer, named, same_dtype, source_ops
from uops.spec.rows.table.base import EFFECT, NONE, Table
from uops.spec.rows.table.source import OWN_NAME


def _not_negative_id(u: UOp, ctx: Context) -> str | None:
    return None if u.arg.id >= 0 else f"got {u.arg.id}"


ID = Draft("id >= 0", _not_negative_id)


def _one_definition(u: UOp, ctx: Context) -> str | None:
    same = [x for x in ctx.order if x.op is u.op and x is not u and well_argued(x) and x.arg.id == u.arg.id]
    return f"{len(same)} others have id {u.arg.id}" if same else None


ONE_DEFINITION = Draft("no other definition of its kind has the same id", _one_definition, "R62")


def _bounds(u: UOp, ctx: Context) -> str | None:
    return None if u.arg.min_val <= u.arg.max_val else f"got [{u.arg.min_val}, {u.arg.max_val}]"


def _one_variable(u: UOp, ctx: Context) -> str | None:
    same = [x for x in ctx.order if x.op is Op.DEFINE_VAR and x is not u and well_argued(x) and x.arg.name == u.arg.name]
    return f"{u.arg.name} also has bounds [{same[0].arg.min_val}, {same[0].arg.max_val}]" if same else None


def _value(u: UOp, ctx: Context) -> str | None:
    v = u.src[1]
    if not integer(v.dtype) or v.dtype is not u.src[0].dtype or v.shape != ():
        return f"got {v.dtype} {show_shape(v.shape)}"
    return "it contains the variable" if u.src[0] in toposort(v) else None


def _in_bounds(u: UOp, ctx: Context) -> str | None:
    found, a = u.src[1].min_max, u.src[0].arg
    if found is None or (a.min_val <= found[0] and found[1] <= a.max_val):
        return None
    return f"[{found[0]}, {found[1]}] for {a.name} in [{a.min_val}, {a.max_val}]"


def _one_value(u: UOp, ctx: Context) -> str | None:
    others = [x for x in ctx.users[u.src[0]] if x.op is Op.BIND and x is not u and x.src[0] is u.src[0]]
    return f"{len(others)} other values" if others else None


def _ranked(u: UOp, ctx: Context) -> str | None:
    return None if u.src[0].shape else "got scalars"


def _device_each(u: UOp, ctx: Context) -> str | None:
    found = [s.device for s in u.src]
    if not all(isinstance(d, str) for d in found):
        return f"got {found}"
    return None if len(set(found)) == len(found) else f"{found} repeat"


def _on_many(u: UOp, ctx: Context) -> str | None:
    return None if isinstance(u.src[0].device, tuple) else f"got {u.src[0].device}"


def _device_number(u: UOp, ctx: Context) -> str | None:
    n = len(u.src[0].device or ())
    return None if 0 <= u.arg.index < n else f"{u.arg.index} of {n}"


def _marked_axis(u: UOp, ctx: Context) -> str | None:
    t, a = u.src[0], u.arg.axis
    if not 0 <= a < len(t.shape) or not divides(len(t.device or ()), t.shape[a]):
        return f"axis {a} of {show_shape(t.shape)} over {len(t.device or ())} devices"
    return None


def _unmarked(u: UOp, ctx: Context) -> str | None:
    return None if u.src[0].axis in (None, u.arg.axis) else f"it is sharded on axis {u.src[0].axis}"


ON_MANY = Draft("T is on an n-tuple device", _on_many, "R116", gate=True)

r = Table(Family.BESTIARY)
# fmt: off
r(Op.DEFINE_LOCAL, None, "DEFINE_LOCAL", "",
  "Memory of the workgroup.", [SIZE, STORABLE, ONE_DEFINITION], LEGALIZE[Op.DEFINE_LOCAL])
r(Op.DEFINE_VAR, None, "DEFINE_VAR", "", "A named size, known at run time, within bounds.", [
    Draft("min_val <= max_val", _bounds, "R48"),
    named("name"),
    Draft("a variable has the same bounds everywhere", _one_variable, "R48"),
    OWN_NAME,
], LEGALIZE[Op.DEFINE_VAR], NONE)
r(Op.DEFINE_REG, None, "DEFINE_REG", "", "Memory of one lane.", [SIZE, STORABLE, ONE_DEFINITION], LEGALIZE[Op.DEFINE_REG])
r(Op.BIND, None, "BIND", "var value", "The variable, with this value.", [
    source_ops("var", 0, frozenset({Op.DEFINE_VAR}), "R112"),
    Draft("value is a () index that does not contain the variable", _value, "R112", gate=True),
    Draft("value lies in the bounds for certain", _in_bounds, "R112"),
    Draft("a variable has one value", _one_value, "R112"),
], LEGALIZE[Op.BIND], NONE)
r(Op.UNIQUE, None, "UNIQUE", "", "An identity in the whole program.", [ID], LEGALIZE[Op.UNIQUE], EFFECT)
r(Op.LUNIQUE, None, "LUNIQUE", "", "An identity in its own scope.", [ID], LEGALIZE[Op.LUNIQUE], EFFECT)
r(Op.DEVICE, None, "DEVICE", "", "Names a device, or several.", [], LEGALIZE[Op.DEVICE], EFFECT)
r(Op.MSTACK, None, "MStack", "T+", "Values of one device each, as the shards of one value on all of them.", [
    same_dtype("sources"),
    Draft("sources have one shape", all_same_shape),
    Draft("sources have rank at least 1", _ranked, "R75"),
    Draft("each source is on one device of its own", _device_each, "R116", gate=True),
], LEGALIZE[Op.MSTACK])
r(Op.MSELECT, None, "MSelect", "T", "What device number `index` holds.", [
    ON_MANY,
    Draft("index is the number of a device", _device_number, "R116", gate=True),
], LEGALIZE[Op.MSELECT])
r(Op.MULTI, None, "Multi", "T", "T, sharded along the axis.", [
    ON_MANY,
    Draft("axis lies in T's shape, and n divides it", _marked_axis, "R116", gate=True),
    Draft("T is not sharded otherwise", _unmarked, "R116"),
], LEGALIZE[Op.MULTI])
# fmt: on
ROWS = tuple(r.rows)
