"""Call ops: bodies over Params, and the ops that return their results."""

from __future__ import annotations

from uops.spec.ir.args import AddrSpace
from uops.spec.ir.derive.shape import substitute_size_params
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import MEMORY_ROOTS, Family, Op
from uops.spec.ir.scope import BUFFERS, GraphScope, VerifyContext, is_variable
from uops.spec.ir.sizes import element_count_polynomial, same_shape, show_shape
from uops.spec.rows.claims import ClaimDraft, source_op_claim
from uops.spec.rows.table.base import RowTable

#: Ops that the body of a Call may be: effects, never values.
CALL_BODIES = frozenset(
    {Op.SINK, Op.GROUP, Op.LINEAR, Op.PROGRAM, Op.CUSTOM_FUNCTION, Op.STORE, Op.END, Op.CUSTOM, Op.FUNCTION}
    | {Op.B_PROGRAM, Op.B_STORE}
)


def _body_scope(u: UOp, ctx: VerifyContext) -> GraphScope:
    return ctx.scopes[u.body]


def _check_no_buffer(u: UOp, ctx: VerifyContext) -> str | None:
    buffers = [n for n in _body_scope(u, ctx).nodes if n.op in BUFFERS]
    return f"{len(buffers)} in the body" if buffers else None


def _check_no_free_range(u: UOp, ctx: VerifyContext) -> str | None:
    free = _body_scope(u, ctx).open_ranges
    return f"{len(free)} in the body" if free else None


def _check_slots_have_arguments(u: UOp, ctx: VerifyContext) -> str | None:
    missing = [slot for slot in _body_scope(u, ctx).params_by_slot if slot >= len(u.arguments)]
    return f"slot {min(missing)} of {len(u.arguments)} arguments" if missing else None


def _substitute_shape_params(p: UOp, arguments: tuple[UOp, ...]) -> tuple[object, ...]:
    return tuple(substitute_size_params(n, arguments) if isinstance(n, UOp) else n for n in p.shape)


def _check_argument_dtypes_and_shapes(u: UOp, ctx: VerifyContext) -> str | None:
    if _check_slots_have_arguments(u, ctx) is not None:
        return None
    for k, p, a in ctx.pair_params_with_arguments(u):
        if a.dtype is not p.dtype:
            return f"argument {k} needs {p.dtype}, got {a.dtype}"
        needed = _substitute_shape_params(p, u.arguments)
        if not same_shape(needed, a.shape):
            return f"argument {k} needs {show_shape(needed)}, got {show_shape(a.shape)}"
    return None


def _check_argument_devices_and_sharded_axes(u: UOp, ctx: VerifyContext) -> str | None:
    for k, p, a in ctx.pair_params_with_arguments(u):
        if p.device is not None and a.device is not None and a.device != p.device:
            return f"argument {k} needs {p.device}, got {a.device}"
        if a.axis != p.axis:
            return f"argument {k} needs axis {p.axis}, got {a.axis}"
    return None


def _check_argument_address_spaces(u: UOp, ctx: VerifyContext) -> str | None:
    """Check that each argument is in its Param's address space; what is no Buffer is GLOBAL (R179)."""
    for k, p, a in ctx.pair_params_with_arguments(u):
        memory = ctx.underlying_buffer(a)
        space = memory.arg.addrspace if memory is not None and memory.op in MEMORY_ROOTS else None
        if p.op is Op.PARAM and p.arg.addrspace is not None and p.arg.addrspace is not (space or AddrSpace.GLOBAL):
            return f"argument {k} needs {p.arg.addrspace.name}, got {(space or AddrSpace.GLOBAL).name}"
    return None


def _check_no_argument_surely_out_of_bounds(u: UOp, ctx: VerifyContext) -> str | None:
    """Check that no argument is certainly outside of its variable's bounds; other values outside are Traps at run time."""
    for k, p, a in ctx.pair_params_with_arguments(u):
        if is_variable(p) and p.arg.bounds and a.min_max is not None:
            (lo, hi), (least, most) = p.arg.bounds, a.min_max
            if most < lo or hi < least:
                return f"argument {k} in [{least}, {most}] for {p.arg.name} in [{lo}, {hi}]"
    return None


def _check_argument_sizes_or_integer_for_variable(u: UOp, ctx: VerifyContext) -> str | None:
    """Check that arguments have the number and size of elements of their Params, as a Call passes memory (R86)."""
    for k, p, a in ctx.pair_params_with_arguments(u):
        if is_variable(p):
            if not a.dtype.is_integer or a.shape != ():
                return f"argument {k} for {p.arg.name} is {a.dtype} {show_shape(a.shape)}"
            continue
        needed = _substitute_shape_params(p, u.arguments) if _check_slots_have_arguments(u, ctx) is None else p.shape
        if a.dtype.itemsize != p.dtype.itemsize or not (
            same_shape(needed, a.shape) or element_count_polynomial(needed) == element_count_polynomial(a.shape)
        ):
            return f"argument {k} needs {p.dtype} {show_shape(needed)}, got {a.dtype} {show_shape(a.shape)}"
    return None


def _check_written_args_distinct_and_in_range(u: UOp, ctx: VerifyContext) -> str | None:
    written = u.arg.written if u.arg is not None else None
    if written is None:
        return None
    wrong = [k for k in written if not 0 <= k < len(u.arguments)]
    if wrong:
        return f"position {wrong[0]} of {len(u.arguments)} arguments"
    return "a position is named twice" if len(set(written)) != len(written) else None


def _packed_tuple(u: UOp) -> UOp:
    """Return the source of a GetTuple, or the body of a Function that is the source."""
    return u.packed.body if u.packed.op is Op.FUNCTION and u.packed.src else u.packed


def _check_source_is_tuple(u: UOp, ctx: VerifyContext) -> str | None:
    t = _packed_tuple(u)
    return None if t.op is Op.TUPLE else f"got {t.op.name.lower()}"


def _check_element_index(u: UOp, ctx: VerifyContext) -> str | None:
    n = len(_packed_tuple(u).src)
    return None if 0 <= u.arg.index < n else f"element {u.arg.index} of {n}"


SAME_SPACE = ClaimDraft("an argument is in its Param's address space, if that names one", _check_argument_address_spaces, "R179")

r = RowTable(Family.CALL)
# fmt: off
r(Op.FUNCTION, "Function", "FUNCTION", "body a...",
  "The body with argument k in place of Param k; its values come out through GetTuple.", [
    source_op_claim("body", 0, frozenset({Op.TUPLE, Op.SINK}), "R64"),
    ClaimDraft("the body is closed: no Buffer", _check_no_buffer, "R64"),
    ClaimDraft("the body is closed: no free Range", _check_no_free_range, "R64"),
    ClaimDraft("every Param of the body has an argument", _check_slots_have_arguments, "R64"),
    ClaimDraft("an argument has its Param's dtype and shape", _check_argument_dtypes_and_shapes, "R64"),
    ClaimDraft(
        "an argument is on its Param's device, if that names one, and sharded as the Param is",
        _check_argument_devices_and_sharded_axes, "R79",
    ),
    ClaimDraft("an argument can lie in the bounds of its named Param", _check_no_argument_surely_out_of_bounds, "R48"),
    ClaimDraft("written are distinct argument positions", _check_written_args_distinct_and_in_range, "R63"),
    SAME_SPACE,
])
r(Op.CALL, "Call", "CALL", "body a...", "Runs an opaque body on the arguments' memory; what it wrote is read through After.", [
    source_op_claim("body", 0, CALL_BODIES, "R63"),
    ClaimDraft("every Param of the body has an argument", _check_slots_have_arguments, "R63"),
    ClaimDraft("an argument has its Param's number and size of elements", _check_argument_sizes_or_integer_for_variable, "R86"),
    ClaimDraft("an argument can lie in the bounds of its named Param", _check_no_argument_surely_out_of_bounds, "R48"),
    ClaimDraft("written are distinct argument positions", _check_written_args_distinct_and_in_range, "R63"),
    SAME_SPACE,
])
r(Op.TUPLE, "Tuple", "TUPLE", "v...", "Packs values; the body of a Function that returns some.")
r(Op.GETTUPLE, "GetTuple", "GET_TUPLE", "packed", "Element `index` of a Tuple, or of the Tuple that a Function returns.", [
    ClaimDraft("source is a Tuple, or a Function whose body is one", _check_source_is_tuple, gate=True),
    ClaimDraft("index is in range", _check_element_index, gate=True),
])
# fmt: on
ROWS = tuple(r.rows)
