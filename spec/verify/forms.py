"""The forms of dialects: constraints on the use of an op, in addition to those of its row.

A `DialectForm` is the draft of a claim with the ops and the position of the nodes it applies to. A position is the root, outside of
Call bodies, inside of one, or any. `uops.spec.verify.dialects` lists the forms of each dialect.
"""

from __future__ import annotations

from enum import Enum

from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ADDRESSING, ALU, BLOCK_OPENERS, EFFECT_GROUPS, KERNEL_ACCESSES, LOOP_CLOSERS, Op
from uops.spec.ir.record import dataclass
from uops.spec.ir.scope import BASES, VerifyContext, is_instruction, is_variable, ranges_closed_by, strip_afters
from uops.spec.ir.sizes import same_shape, show_shape
from uops.spec.rows.claims import Check, ClaimDraft, check_all_same_shape


class NodePosition(Enum):
    """The position of a node in relation to Call bodies."""

    ROOT = "root"
    OUTER = "outer"
    BODY = "body"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class DialectForm:
    """The draft of a claim with the nodes it applies to; `ops` is None for every op."""

    where: NodePosition
    ops: frozenset[Op] | None
    draft: ClaimDraft


def _make_form(
    where: NodePosition, ops: Op | frozenset[Op] | None, text: str, check: Check, ruling: str = "", *, gate: bool = False
) -> DialectForm:
    return DialectForm(where, frozenset({ops}) if isinstance(ops, Op) else ops, ClaimDraft(text, check, ruling, gate))


def _join_op_names(ops: frozenset[Op]) -> str:
    return ", ".join(sorted(o.name.lower() for o in ops))


# ----------------------------------------------------------------------------------------------------------- every node


def op_in_dialect_form(dialect: str, outer_ops: frozenset[Op], body_ops: frozenset[Op] | None) -> DialectForm:
    """Return form D1: the op is legal in the dialect at its position.

    The arithmetic of extents is legal everywhere (R131, extents of Params).
    """

    def check_op_in_dialect(u: UOp, ctx: VerifyContext) -> str | None:
        if u.op in ALU and u.dtype is dt.index and u in ctx.size_nodes:
            return None
        if u.op not in outer_ops and u in ctx.outer:
            return f"{u.op.name.lower()} does not belong to {dialect}" + (
                " outside of a kernel" if body_ops and u.op in body_ops else ""
            )
        if body_ops is not None and u.op not in body_ops and u in ctx.later_body_nodes_by_dialect.get(dialect, ctx.inner):
            return f"{u.op.name.lower()} does not belong to a body of {dialect}"
        return None

    return _make_form(NodePosition.ANY, None, "the op belongs to the dialect", check_op_in_dialect, gate=True)


def _check_no_tag(u: UOp, ctx: VerifyContext) -> str | None:
    return None if u.tag is None else f"tag {u.tag!r}"


NO_TAG = _make_form(NodePosition.ANY, None, "no node carries a tag", _check_no_tag, "R62")


def outer_address_space_form(spaces: frozenset[AddrSpace]) -> DialectForm:
    """Return the form that Buffers, Params and Loads name no address space but the given ones."""

    def check(u: UOp, ctx: VerifyContext) -> str | None:
        s = u.arg.addrspace
        return None if s is None or s in spaces else f"got {s.name}"

    words = " or ".join(sorted(s.name for s in spaces))
    ops = frozenset({Op.BUFFER, Op.PARAM, Op.LOAD, Op.BUFFERIZE})
    return _make_form(NodePosition.OUTER, ops, f"address spaces are {words}", check, "R52")


def _check_load_to_registers(u: UOp, ctx: VerifyContext) -> str | None:
    space = u.arg.addrspace
    return None if space is None or space is AddrSpace.REG else f"got {space.name}"


LOAD_TO_REGISTERS = _make_form(NodePosition.BODY, Op.LOAD, "a Load is to registers", _check_load_to_registers, "R179")

# ------------------------------------------------------------------------------------------------------ around the calls


def _check_root_is_call(u: UOp, ctx: VerifyContext) -> str | None:
    return None if u.op is Op.CALL else f"got {u.op.name.lower()}"


ROOT_IS_CALL = _make_form(NodePosition.ROOT, None, "the root is one Call", _check_root_is_call)


def root_is_linear_of_calls_form() -> DialectForm:
    """Return the form that the root is a Linear of Calls."""

    def check_root_is_linear(u: UOp, ctx: VerifyContext) -> str | None:
        if u.op is not Op.LINEAR:
            return f"got {u.op.name.lower()}"
        wrong = next((s for s in u.instructions if s.op is not Op.CALL), None)
        return None if wrong is None else f"one of them is {wrong.op.name.lower()}"

    return _make_form(NodePosition.ROOT, None, "the root is a Linear of Calls", check_root_is_linear)


def call_argument_ops_form(ops: frozenset[Op]) -> DialectForm:
    """Return the form that the arguments of Calls are of the given ops."""

    def check(u: UOp, ctx: VerifyContext) -> str | None:
        wrong = next((k for k, a in enumerate(u.arguments) if a.op not in ops), None)
        return None if wrong is None else f"argument {wrong} is {u.arguments[wrong].op.name.lower()}"

    return _make_form(NodePosition.OUTER, Op.CALL, f"arguments are {_join_op_names(ops)}", check)


#: Roots of the bodies of Calls, in the order of the stages that make them; a CustomFunction is a body of any stage.
_BODY_ROOTS = (Op.SINK, Op.LINEAR, Op.PROGRAM, Op.CUSTOM_FUNCTION)


def call_body_form(earliest_root_op: Op, *, needs_sink_name_and_allows_later: bool = True) -> DialectForm:
    """Return the form that the bodies of Calls are of the given op, or of a later stage; a Sink then has a name.

    Without `needs_sink_name_and_allows_later` a Sink needs none, and later stages are refused.
    """
    named = needs_sink_name_and_allows_later and earliest_root_op is Op.SINK
    later = _BODY_ROOTS[_BODY_ROOTS.index(earliest_root_op) + 1 :] if named or earliest_root_op is not Op.SINK else ()

    def check(u: UOp, ctx: VerifyContext) -> str | None:
        if u.body.op is not earliest_root_op and u.body.op not in later:
            return f"got {u.body.op.name.lower()}"
        return "the Sink has no name" if named and u.body.op is earliest_root_op and u.body.arg is None else None

    text = f"the body is a {earliest_root_op.name.capitalize()}" + (" with a name" if named else "")
    text += f", or is written in a later stage ({_join_op_names(frozenset(later))})" if later else ""
    return _make_form(NodePosition.OUTER, Op.CALL, text, check, "R166" if later else "")


def _check_argument_dtypes_and_shapes_if_constant(u: UOp, ctx: VerifyContext) -> str | None:
    for k, p, a in ctx.pair_params_with_arguments(u):
        if a.dtype is not p.dtype or (all(isinstance(n, int) for n in p.shape) and not same_shape(a.shape, p.shape)):
            return f"argument {k} needs {p.dtype} {show_shape(p.shape)}, got {a.dtype} {show_shape(a.shape)}"
    return None


SAME_ARGUMENTS = _make_form(
    NodePosition.OUTER, Op.CALL, "an argument has its Param's dtype and shape", _check_argument_dtypes_and_shapes_if_constant, "R64"
)


def _check_argument_dtypes(u: UOp, ctx: VerifyContext) -> str | None:
    for k, p, a in ctx.pair_params_with_arguments(u):
        if a.dtype is not p.dtype:
            return f"argument {k} needs {p.dtype}, got {a.dtype}"
    return None


ARGUMENT_DTYPES = _make_form(NodePosition.OUTER, Op.CALL, "an argument has its Param's dtype", _check_argument_dtypes, "R64")


def _check_no_open_range(u: UOp, ctx: VerifyContext) -> str | None:
    open_ranges = ctx.scopes[u.body].open_ranges
    return f"{len(open_ranges)} left open (axis {min(r.arg.axis_id for r in open_ranges)})" if open_ranges else None


NO_OPEN_RANGE = _make_form(NodePosition.OUTER, Op.CALL, "every Range of the body is closed", _check_no_open_range, "R58")

# ------------------------------------------------------------------------------------------------------- inside a kernel


def sink_and_group_source_ops_form(effects: frozenset[Op]) -> DialectForm:
    """Return the form that the sources of Sinks and Groups are of the given ops."""

    def check(u: UOp, ctx: VerifyContext) -> str | None:
        wrong = next((s for s in u.effects if s.op not in effects), None)
        return None if wrong is None else f"got {wrong.op.name.lower()}"

    return _make_form(NodePosition.BODY, EFFECT_GROUPS, f"sources of Sink and Group are {_join_op_names(effects)}", check)


def _check_param_has_slot(u: UOp, ctx: VerifyContext) -> str | None:
    return None if u.arg.slot is not None else f"{u.arg.name} has no slot"


BOUND_PARAM = _make_form(NodePosition.BODY, Op.PARAM, "every Param has a slot", _check_param_has_slot, "R64")


def _check_kernel_param(u: UOp, ctx: VerifyContext) -> str | None:
    if u.arg.slot is None:
        return f"{u.arg.name} has no slot"
    return None if is_variable(u) or len(u.shape) == 1 else f"got {show_shape(u.shape)}"


KERNEL_PARAM = _make_form(NodePosition.BODY, Op.PARAM, "a Param has a slot, and rank 1 unless it is named", _check_kernel_param)


def _check_access_through_index(u: UOp, ctx: VerifyContext) -> str | None:
    view = strip_afters(u.src[0])  # the buffer of a Load or Store, the index of an AtomicAdd
    return None if view.op is Op.INDEX and ctx.underlying_buffer(view) is not None else f"got {view.op.name.lower()}"


ADDRESS = _make_form(
    NodePosition.BODY,
    KERNEL_ACCESSES,
    "memory is accessed through an Index of a Buffer or Param",
    _check_access_through_index,
    "R51",
)

#: Ops whose first source may be a reference; After, Group and the like pass anything on.
_TAKES_REFERENCE = KERNEL_ACCESSES | ADDRESSING
#: Ops whose other sources are values.
_VALUE_OPS = ALU | {Op.REDUCE, Op.STORE, Op.LOAD, Op.INDEX, Op.ATOMICADD, Op.STACK, Op.WMMA, Op.IF, Op.EXPAND, Op.PAD}


def _check_no_reference_as_value(u: UOp, ctx: VerifyContext) -> str | None:
    for k, s in enumerate(u.src):
        if ctx.underlying_buffer(s) is not None and not (k == 0 and u.op in _TAKES_REFERENCE):
            return f"source {k} is a reference ({s.op.name.lower()})"
    return None


LOADED = _make_form(NodePosition.BODY, _VALUE_OPS, "values are read from memory by Load only", _check_no_reference_as_value, "R51")


def _check_constant_store_indices_distinct(u: UOp, ctx: VerifyContext) -> str | None:
    """Check that each constant index vector between a Store and its buffer has distinct elements (R55, races)."""
    view = u.buffer
    while view.src:
        if view.op is Op.INDEX:
            for i in view.positions:
                if i.op is Op.STACK and i.constants_of_stack is not None and len(set(i.elements)) != len(i.elements):
                    return "an index vector names an element twice"
        view = view.src[0]  # the viewed memory
    return None


WRITTEN_ONCE = _make_form(NodePosition.BODY, Op.STORE, "no element is written twice", _check_constant_store_indices_distinct, "R55")


def _check_bool_condition(u: UOp, ctx: VerifyContext) -> str | None:
    return None if u.condition.dtype is dt.bool_ else f"got {u.condition.dtype}"


BOOL_CONDITION = _make_form(NodePosition.BODY, Op.WHERE, "the condition is bool", _check_bool_condition, "R14")


def axis_type_form(types: frozenset[AxisType]) -> DialectForm:
    """Return the form that Ranges have one of the given axis types."""

    def check(u: UOp, ctx: VerifyContext) -> str | None:
        return None if u.arg.type in types else f"got {u.arg.type.name}"

    return _make_form(NodePosition.BODY, Op.RANGE, f"the axis type is {', '.join(t.name for t in AxisType if t in types)}", check)


def _check_scalar_value(u: UOp, ctx: VerifyContext) -> str | None:
    return None if u.shape == () or strip_afters(u).op in BASES else f"got {show_shape(u.shape)}"


SCALAR_VALUES = _make_form(
    NodePosition.BODY,
    frozenset(Op) - {Op.STACK},
    "everything but a Param, a Buffer and a shape has shape ()",
    _check_scalar_value,
)


def _is_fragment_or_indexes_registers(u: UOp, ctx: VerifyContext) -> bool:
    """Return True if `u` is a Wmma, a source of one, or an Index of the register memory that holds its fragments."""
    if u.op is Op.WMMA or any(x.op is Op.WMMA for x in ctx.users[u]):
        return True
    memory = ctx.underlying_buffer(u) if u.op is Op.INDEX else None
    return memory is not None and memory.op is Op.BUFFER and memory.arg.addrspace is AddrSpace.REG


def _check_scalar_or_fragment(u: UOp, ctx: VerifyContext) -> str | None:
    return None if _is_fragment_or_indexes_registers(u, ctx) else _check_scalar_value(u, ctx)


SCALARS_AND_FRAGMENTS = _make_form(
    NodePosition.BODY,
    frozenset(Op) - {Op.STACK},
    "everything but a Param, a Buffer, a shape and the fragments of a Wmma has shape ()",
    _check_scalar_or_fragment,
    "R142",
)


def _make_stack_used_as_extents_check(holders: frozenset[Op]) -> Check:
    """Return a check that a Stack is used only as the extents of the given ops."""

    def check(u: UOp, ctx: VerifyContext) -> str | None:
        # a user may be ill-formed and lack its extents, so they are compared as a slice
        users = ctx.users_in_kernels(u)
        wrong = next((x for x in users if not (x.op in holders and u in x.src[x.op is not Op.PARAM :])), None)
        return None if wrong is None else f"used by {wrong.op.name.lower()}"

    return check


_stack_is_shape = _make_stack_used_as_extents_check(frozenset({Op.PARAM}))
STACK_IS_SHAPE = _make_form(NodePosition.BODY, Op.STACK, "a Stack is the shape of a Param", _stack_is_shape)


def _check_shape_or_fragment(u: UOp, ctx: VerifyContext) -> str | None:
    return None if all(_is_fragment_or_indexes_registers(x, ctx) for x in ctx.users[u]) else _stack_is_shape(u, ctx)


STACK_IS_SHAPE_OR_FRAGMENT = _make_form(
    NodePosition.BODY,
    Op.STACK,
    "a Stack is the shape of a Param, a fragment of a Wmma or its place",
    _check_shape_or_fragment,
    "R142",
)
STACK_SPELLS_SHAPE = _make_form(
    NodePosition.ANY,
    Op.STACK,
    "a Stack is a shape operand",
    _make_stack_used_as_extents_check(frozenset({Op.RESHAPE, Op.EXPAND, Op.PARAM})),
    "R100",
)


def _check_one_tile(u: UOp, ctx: VerifyContext) -> str | None:
    grid = u.arg.tile_grid
    return None if grid == (1, 1) else f"a grid of {grid[0]} x {grid[1]}; `legalize` makes a Wmma of each tile"


ONE_TILE = _make_form(NodePosition.BODY, Op.WMMA, "a Wmma computes one tile", _check_one_tile, "R178")


def _check_closed_axis_type(u: UOp, ctx: VerifyContext) -> str | None:
    other = AxisType.REDUCE if u.op is Op.END else AxisType.LOOP
    wrong = next((r for r in ranges_closed_by(u) if r.arg.type is other), None)
    return None if wrong is None else f"axis {wrong.arg.axis_id} is {wrong.arg.type.name}"


CLOSES_ITS_KIND = _make_form(NodePosition.BODY, LOOP_CLOSERS, "End closes no REDUCE, Reduce no LOOP", _check_closed_axis_type)


def _check_kernel_buffer(u: UOp, ctx: VerifyContext) -> str | None:
    return "a GLOBAL Buffer inside of a kernel" if u.arg.addrspace is AddrSpace.GLOBAL else None


KERNEL_BUFFER = _make_form(NodePosition.BODY, Op.BUFFER, "a Buffer of a kernel is LOCAL or REG", _check_kernel_buffer)

EQUAL_SHAPES = _make_form(NodePosition.BODY, ALU, "operands have equal shapes", check_all_same_shape, "R41")


def _check_vector_sources_share_shape(u: UOp, ctx: VerifyContext) -> str | None:
    shaped = [s.shape for s in u.src if s.shape != ()]
    for shape in shaped[1:]:
        if not same_shape(shape, shaped[0]):
            return f"needs {show_shape(shaped[0])} or (), got {show_shape(shape)}"
    return None


ONE_SHAPE = _make_form(NodePosition.BODY, ALU, "operands have one shape, or ()", _check_vector_sources_share_shape, "R162")

#: Ops that may have dtype index after index arithmetic got machine widths.
_COUNTERS = frozenset({Op.CONST, Op.STACK, Op.RANGE, Op.SPECIAL, Op.PARAM})


def _check_no_index_arithmetic(u: UOp, ctx: VerifyContext) -> str | None:
    if u.dtype is dt.index and u.op not in _COUNTERS and u not in ctx.size_nodes:
        return "dtype index after the choice of widths"
    return None


NO_INDEX_ARITHMETIC = _make_form(
    NodePosition.BODY,
    ALU | {Op.INDEX, Op.LOAD},
    "dtype index is left for counters, their bounds and shapes only",
    _check_no_index_arithmetic,
    "R08",
)


def _check_bound_is_index(u: UOp, ctx: VerifyContext) -> str | None:
    return None if u.bound.dtype is dt.index else f"got {u.bound.dtype}"


INDEX_BOUNDS = _make_form(NodePosition.BODY, Op.RANGE, "the bound is an index", _check_bound_is_index, "R87")

#: Ops that are no instructions but hold others together; the target need not have them.
_STRUCTURE = frozenset({Op.LINEAR, Op.PROGRAM, Op.SOURCE, Op.BINARY, Op.SINK, Op.GROUP, Op.AFTER, Op.STACK})


def _check_target_has_op_and_dtype(u: UOp, ctx: VerifyContext) -> str | None:
    if ctx.target is None or u.op in _STRUCTURE or u in ctx.size_nodes:
        return None
    if u.op not in ctx.target.ops:
        return f"{ctx.target.name} has no {u.op.name.lower()}"
    d = u.dtype
    if d is not dt.void and d is not dt.index and d not in ctx.target.dtypes:
        return f"{ctx.target.name} has no {d}"
    return None


TARGET = _make_form(
    NodePosition.BODY, None, "the target, where one is given, has the op and the dtype", _check_target_has_op_and_dtype
)

# ----------------------------------------------------------------------------------------------------------- instructions


def _check_instructions_unique_after_sources(u: UOp, ctx: VerifyContext) -> str | None:
    position: dict[UOp, int] = {}
    for k, s in enumerate(u.instructions):
        if s in position:
            return f"instruction {k} repeats {position[s]}"
        unlisted = (p for p in s.src if p not in position and p not in ctx.size_nodes and is_instruction(p))
        missing = next(unlisted, None)
        if missing is not None:
            return f"instruction {k} ({s.op.name.lower()}) uses {missing.op.name.lower()} before it"
        position[s] = k
    late = next((k for s, k in position.items() for p in s.src if position.get(p, -1) > k), None)
    return None if late is None else f"instruction {late} uses a later one"


IN_ORDER = _make_form(
    NodePosition.BODY, Op.LINEAR, "every instruction stands once, after its sources", _check_instructions_unique_after_sources
)


def _check_blocks_nest(u: UOp, ctx: VerifyContext) -> str | None:
    open_blocks: list[UOp] = []
    for k, s in enumerate(u.instructions):
        if s.op in BLOCK_OPENERS:
            open_blocks.append(s)
        closed = s.ranges if s.op is Op.END else (s.if_node,) if s.op is Op.ENDIF else ()
        for c in closed:
            if not open_blocks or open_blocks[-1] is not c:
                return f"instruction {k} ({s.op.name.lower()}) does not close the innermost block"
            open_blocks.pop()
    return f"{len(open_blocks)} blocks are left open" if open_blocks else None


NESTED = _make_form(NodePosition.BODY, Op.LINEAR, "blocks of Range and End, If and Endif nest", _check_blocks_nest, "R58")


def _check_single_end(u: UOp, ctx: VerifyContext) -> str | None:
    return None if len(u.ranges) == 1 else f"closes {len(u.ranges)}"


SINGLE_END = _make_form(NodePosition.BODY, Op.END, "an End closes one Range", _check_single_end, "R58")
