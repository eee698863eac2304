"""Call ops: bodies over Params, and how their results come back."""

from __future__ import annotations

from uops.spec.ir.derive.shape import bind_size
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.scope import Context, Scope, is_variable
from uops.spec.ir.sizes import same_shape, show_shape, total
from uops.spec.rows.claims import Draft, source_ops
from uops.spec.rows.table.base import EFFECT, Table

#: What a Call may run: an effect, never values.
CALL_BODIES = frozenset(
    {Op.SINK, Op.GROUP, Op.LINEAR, Op.PROGRAM, Op.CUSTOM_FUNCTION, Op.STORE, Op.END, Op.CUSTOM, Op.FUNCTION}
    | {Op.B_PROGRAM, Op.B_STORE}
)


def _body(u: UOp, ctx: Context) -> Scope:
    return ctx.scopes[u.src[0]]


def _no_buffer(u: UOp, ctx: Context) -> str | None:
    buffers = [n for n in _body(u, ctx).nodes if n.op in (Op.BUFFER, Op.B_BUFFER)]
    return f"{len(buffers)} in the body" if buffers else None


def _no_free_range(u: UOp, ctx: Context) -> str | None:
    free = _body(u, ctx).open_ranges
    return f"{len(free)} in the body" if free else None


def _slots_given(u: UOp, ctx: Context) -> str | None:
    missing = [slot for slot in _body(u, ctx).params if slot >= len(u.src) - 1]
    return f"slot {min(missing)} of {len(u.src) - 1} arguments" if missing else None


def _pairs(u: UOp, ctx: Context) -> list[tuple[int, UOp, UOp]]:
    """(slot, Param, argument), one Param per slot, where both are there."""
    params = _body(u, ctx).params
    return [(k, params[k][0], a) for k, a in enumerate(u.src[1:]) if k in params]


def _bound_shape(p: UOp, arguments: tuple[UOp, ...]) -> tuple[object, ...]:
    return tuple(bind_size(n, arguments) if isinstance(n, UOp) else n for n in p.shape)


def _arguments_equal(u: UOp, ctx: Context) -> str | None:
    if _slots_given(u, ctx) is not None:
        return None
    for k, p, a in _pairs(u, ctx):
        if a.dtype is not p.dtype:
            return f"argument {k} needs {p.dtype}, got {a.dtype}"
        needed = _bound_shape(p, u.src[1:])
        if not same_shape(needed, a.shape):
            return f"argument {k} needs {show_shape(needed)}, got {show_shape(a.shape)}"
    return None


def _arguments_placed(u: UOp, ctx: Context) -> str | None:
    for k, p, a in _pairs(u, ctx):
        if p.device is not None and a.device is not None and a.device != p.device:
            return f"argument {k} needs {p.device}, got {a.device}"
        if a.axis != p.axis:
            return f"argument {k} needs axis {p.axis}, got {a.axis}"
    return None


def _variables_in_bounds(u: UOp, ctx: Context) -> str | None:
    """Only what is certainly outside; the rest is a Trap at run time."""
    for k, p, a in _pairs(u, ctx):
        if is_variable(p) and p.arg.bounds and a.min_max is not None:
            (lo, hi), (least, most) = p.arg.bounds, a.min_max
            if most < lo or hi < least:
                return f"argument {k} in [{least}, {most}] for {p.arg.name} in [{lo}, {hi}]"
    return None


def _arguments_fit(u: UOp, ctx: Context) -> str | None:
    """A Call passes memory: the same number of elements of the same size."""
    for k, p, a in _pairs(u, ctx):
        if is_variable(p):
            if not a.dtype.is_integer or a.shape != ():
                return f"argument {k} for {p.arg.name} is {a.dtype} {show_shape(a.shape)}"
            continue
        needed = _bound_shape(p, u.src[1:]) if _slots_given(u, ctx) is None else p.shape
        if a.dtype.itemsize != p.dtype.itemsize or not (same_shape(needed, a.shape) or total(needed) == total(a.shape)):
            return f"argument {k} needs {p.dtype} {show_shape(needed)}, got {a.dtype} {show_shape(a.shape)}"
    return None


def _written(u: UOp, ctx: Context) -> str | None:
    w = u.arg.written if u.arg is not None else None
    if w is None:
        return None
    wrong = [k for k in w if not 0 <= k < len(u.src) - 1]
    if wrong:
        return f"position {wrong[0]} of {len(u.src) - 1} arguments"
    return "a position is named twice" if len(set(w)) != len(w) else None


def _packed(u: UOp, ctx: Context) -> str | None:
    t = u.src[0].src[0] if u.src[0].op is Op.FUNCTION and u.src[0].src else u.src[0]
    return None if t.op is Op.TUPLE else f"got {t.op.name.lower()}"


def _element(u: UOp, ctx: Context) -> str | None:
    t = u.src[0].src[0] if u.src[0].op is Op.FUNCTION else u.src[0]
    n = len(t.src)
    return None if 0 <= u.arg.index < n else f"element {u.arg.index} of {n}"


r = Table(Family.CALL)
# fmt: off
r(Op.FUNCTION, "Function", "FUNCTION", "body a...",
  "The body with argument k in place of Param k; its values come out through GetTuple.", [
    source_ops("body", 0, frozenset({Op.TUPLE, Op.SINK}), "R64"),
    Draft("the body is closed: no Buffer", _no_buffer, "R64"),
    Draft("the body is closed: no free Range", _no_free_range, "R64"),
    Draft("every Param of the body has an argument", _slots_given, "R64"),
    Draft("an argument has its Param's dtype and shape", _arguments_equal, "R64"),
    Draft("an argument is on its Param's device, if that names one, and sharded as the Param is", _arguments_placed, "R79"),
    Draft("an argument can lie in the bounds of its named Param", _variables_in_bounds, "R48"),
    Draft("written are distinct argument positions", _written, "R63"),
])
r(Op.CALL, "Call", "CALL", "body a...", "Runs an opaque body on the arguments' memory; what it wrote is read through After.", [
    source_ops("body", 0, CALL_BODIES, "R63"),
    Draft("every Param of the body has an argument", _slots_given, "R63"),
    Draft("an argument has its Param's number and size of elements", _arguments_fit, "R86"),
    Draft("an argument can lie in the bounds of its named Param", _variables_in_bounds, "R48"),
    Draft("written are distinct argument positions", _written, "R63"),
], gradient=EFFECT)
r(Op.TUPLE, "Tuple", "TUPLE", "v...", "Packs values; the body of a Function that returns some.")
r(Op.GETTUPLE, "GetTuple", "GET_TUPLE", "packed", "Element `index` of a Tuple, or of the Tuple that a Function returns.", [
    Draft("source is a Tuple, or a Function whose body is one", _packed, gate=True),
    Draft("index is in range", _element, gate=True),
])
# fmt: on
ROWS = tuple(r.rows)
