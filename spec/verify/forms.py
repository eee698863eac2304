"""The forms that dialects ask for: constraints on an op's use rather than on its row.

A `Form` is a claim's draft with the nodes it applies to: where (the root, outside of Call bodies, inside of one, or anywhere) and
which ops. `uops.spec.verify.dialects` gives each dialect its forms.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ALU, Op
from uops.spec.ir.record import dataclass
from uops.spec.ir.scope import BASES, Context, closed_by, is_variable
from uops.spec.ir.sizes import same_shape, show_shape
from uops.spec.rows.claims import Check, Draft, all_same_shape


class Where(Enum):
    ROOT = "root"
    OUTER = "outer"
    BODY = "body"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Form:
    """`ops` is None for every op."""

    where: Where
    ops: frozenset[Op] | None
    draft: Draft


def _form(where: Where, ops: Op | frozenset[Op] | None, text: str, check: Check, ruling: str = "", *, gate: bool = False) -> Form:
    return Form(where, frozenset({ops}) if isinstance(ops, Op) else ops, Draft(text, check, ruling, gate))


def _names(ops: frozenset[Op]) -> str:
    return ", ".join(sorted(o.name.lower() for o in ops))


# ----------------------------------------------------------------------------------------------------------- every node


def legal_op(dialect: str, outer: frozenset[Op], body: frozenset[Op] | None) -> Form:
    """D1: a foreign op is reported at the node, once. The arithmetic of an extent belongs everywhere (R131)."""

    def check(u: UOp, ctx: Context) -> str | None:
        if u.op in ALU and u.dtype is dt.index and u in ctx.sizes:
            return None
        if u.op not in outer and u in ctx.outer:
            return f"{u.op.name.lower()} does not belong to {dialect}" + (" outside of a kernel" if body and u.op in body else "")
        if body is not None and u.op not in body and u in ctx.inner:
            return f"{u.op.name.lower()} does not belong to a body of {dialect}"
        return None

    return _form(Where.ANY, None, "the op belongs to the dialect", check, gate=True)


def _tag(u: UOp, ctx: Context) -> str | None:
    return None if u.tag is None else f"tag {u.tag!r}"


NO_TAG = _form(Where.ANY, None, "no node carries a tag", _tag, "R62")


def in_spaces(spaces: frozenset[AddrSpace]) -> Form:
    """Buffers, Params and Loads are in one of the address spaces, as far as they name one."""

    def check(u: UOp, ctx: Context) -> str | None:
        s = u.arg.addrspace
        return None if s is None or s in spaces else f"got {s.name}"

    words = " or ".join(sorted(s.name for s in spaces))
    ops = frozenset({Op.BUFFER, Op.PARAM, Op.LOAD, Op.BUFFERIZE})
    return _form(Where.OUTER, ops, f"address spaces are {words}", check, "R52")


# ------------------------------------------------------------------------------------------------------ around the calls


def _root_is_call(u: UOp, ctx: Context) -> str | None:
    return None if u.op is Op.CALL else f"got {u.op.name.lower()}"


ROOT_IS_CALL = _form(Where.ROOT, None, "the root is one Call", _root_is_call)


def root_is_linear() -> Form:
    def check(u: UOp, ctx: Context) -> str | None:
        if u.op is not Op.LINEAR:
            return f"got {u.op.name.lower()}"
        wrong = next((s for s in u.src if s.op is not Op.CALL), None)
        return None if wrong is None else f"one of them is {wrong.op.name.lower()}"

    return _form(Where.ROOT, None, "the root is a Linear of Calls", check)


def call_arguments(ops: frozenset[Op]) -> Form:
    def check(u: UOp, ctx: Context) -> str | None:
        wrong = next((k for k, a in enumerate(u.src[1:]) if a.op not in ops), None)
        return None if wrong is None else f"argument {wrong} is {u.src[1 + wrong].op.name.lower()}"

    return _form(Where.OUTER, Op.CALL, f"arguments are {_names(ops)}", check)


def call_body(op: Op, *, kernel: bool = True) -> Form:
    """The op of a Call's body; the Sink of a kernel has a name."""
    named = kernel and op is Op.SINK

    def check(u: UOp, ctx: Context) -> str | None:
        if u.src[0].op is not op:
            return f"got {u.src[0].op.name.lower()}"
        return "the Sink has no name" if named and u.src[0].arg is None else None

    return _form(Where.OUTER, Op.CALL, f"the body is a {op.name.capitalize()}" + (" with a name" if named else ""), check)


def _arguments(u: UOp, ctx: Context) -> list[tuple[int, UOp, UOp]]:
    params = ctx.scopes[u.src[0]].params
    return [(k, params[k][0], a) for k, a in enumerate(u.src[1:]) if k in params]


def _same_arguments(u: UOp, ctx: Context) -> str | None:
    for k, p, a in _arguments(u, ctx):
        if a.dtype is not p.dtype or (all(isinstance(n, int) for n in p.shape) and not same_shape(a.shape, p.shape)):
            return f"argument {k} needs {p.dtype} {show_shape(p.shape)}, got {a.dtype} {show_shape(a.shape)}"
    return None


SAME_ARGUMENTS = _form(Where.OUTER, Op.CALL, "an argument has its Param's dtype and shape", _same_arguments, "R64")


def _argument_dtypes(u: UOp, ctx: Context) -> str | None:
    for k, p, a in _arguments(u, ctx):
        if a.dtype is not p.dtype:
            return f"argument {k} needs {p.dtype}, got {a.dtype}"
    return None


ARGUMENT_DTYPES = _form(Where.OUTER, Op.CALL, "an argument has its Param's dtype", _argument_dtypes, "R64")


def _no_open_range(u: UOp, ctx: Context) -> str | None:
    left = ctx.scopes[u.src[0]].open_ranges
    return f"{len(left)} left open (axis {min(r.arg.axis_id for r in left)})" if left else None


NO_OPEN_RANGE = _form(Where.OUTER, Op.CALL, "every Range of the body is closed", _no_open_range, "R58")

# ------------------------------------------------------------------------------------------------------- inside a kernel


def sink_of(effects: frozenset[Op]) -> Form:
    def check(u: UOp, ctx: Context) -> str | None:
        wrong = next((s for s in u.src if s.op not in effects), None)
        return None if wrong is None else f"got {wrong.op.name.lower()}"

    return _form(Where.BODY, frozenset({Op.SINK, Op.GROUP}), f"sources of Sink and Group are {_names(effects)}", check)


def _bound_param(u: UOp, ctx: Context) -> str | None:
    return None if u.arg.slot is not None else f"{u.arg.name} has no slot"


BOUND_PARAM = _form(Where.BODY, Op.PARAM, "every Param has a slot", _bound_param, "R64")


def _kernel_param(u: UOp, ctx: Context) -> str | None:
    if u.arg.slot is None:
        return f"{u.arg.name} has no slot"
    return None if is_variable(u) or len(u.shape) == 1 else f"got {show_shape(u.shape)}"


KERNEL_PARAM = _form(Where.BODY, Op.PARAM, "a Param has a slot, and rank 1 unless it is named", _kernel_param)


def _address(u: UOp, ctx: Context) -> str | None:
    view = u.src[0]
    while view.op is Op.AFTER:
        view = view.src[0]
    return None if view.op is Op.INDEX and ctx.base(view) is not None else f"got {view.op.name.lower()}"


ADDRESS = _form(
    Where.BODY,
    frozenset({Op.LOAD, Op.STORE, Op.ATOMICADD}),
    "memory is accessed through an Index of a Buffer or Param",
    _address,
    "R51",
)

#: Position 0 of these takes a reference; After, Group and the like pass anything on.
_TAKES_REFERENCE = frozenset({Op.INDEX, Op.LOAD, Op.STORE, Op.ATOMICADD, Op.AFTER})
_VALUE_OPS = ALU | {Op.REDUCE, Op.STORE, Op.LOAD, Op.INDEX, Op.ATOMICADD, Op.STACK, Op.WMMA, Op.IF, Op.EXPAND, Op.PAD}


def _loaded(u: UOp, ctx: Context) -> str | None:
    for k, s in enumerate(u.src):
        if ctx.base(s) is not None and not (k == 0 and u.op in _TAKES_REFERENCE):
            return f"source {k} is a reference ({s.op.name.lower()})"
    return None


LOADED = _form(Where.BODY, _VALUE_OPS, "values are read from memory by Load only", _loaded, "R51")


def _written_once(u: UOp, ctx: Context) -> str | None:
    """Index vectors of constants on the way to the buffer name each position once (R55)."""
    view = u.src[0]
    while view.src:
        if view.op is Op.INDEX:
            for i in view.src[1:]:
                if i.op is Op.STACK and all(s.op is Op.CONST for s in i.src) and len(set(i.src)) != len(i.src):
                    return "an index vector names an element twice"
        view = view.src[0]
    return None


WRITTEN_ONCE = _form(Where.BODY, Op.STORE, "no element is written twice", _written_once, "R55")


def _bool_condition(u: UOp, ctx: Context) -> str | None:
    return None if u.src[0].dtype is dt.bool_ else f"got {u.src[0].dtype}"


BOOL_CONDITION = _form(Where.BODY, Op.WHERE, "the condition is bool", _bool_condition, "R14")


def axis_types(types: frozenset[AxisType]) -> Form:
    def check(u: UOp, ctx: Context) -> str | None:
        return None if u.arg.type in types else f"got {u.arg.type.name}"

    return _form(Where.BODY, Op.RANGE, f"the axis type is {', '.join(t.name for t in AxisType if t in types)}", check)


def _scalar_value(u: UOp, ctx: Context) -> str | None:
    view = u
    while view.op is Op.AFTER:
        view = view.src[0]
    return None if u.shape == () or view.op in BASES else f"got {show_shape(u.shape)}"


SCALAR_VALUES = _form(
    Where.BODY,
    frozenset(Op) - {Op.STACK},
    "everything but a Param, a Buffer and a shape has shape ()",
    _scalar_value,
)


def _holds_fragment(u: UOp, ctx: Context) -> bool:
    """Whether a node is a Wmma, gives it a fragment, or is the place of one in a register."""
    if u.op is Op.WMMA or any(x.op is Op.WMMA for x in ctx.users[u]):
        return True
    memory = ctx.base(u) if u.op is Op.INDEX else None
    return memory is not None and memory.op is Op.BUFFER and memory.arg.addrspace is AddrSpace.REG


def _scalar_or_fragment(u: UOp, ctx: Context) -> str | None:
    return None if _holds_fragment(u, ctx) else _scalar_value(u, ctx)


SCALARS_AND_FRAGMENTS = _form(
    Where.BODY,
    frozenset(Op) - {Op.STACK},
    "everything but a Param, a Buffer, a shape and the fragments of a Wmma has shape ()",
    _scalar_or_fragment,
    "R142",
)


def _only_as_shape(holders: frozenset[Op]) -> Callable[[UOp, Context], str | None]:
    def check(u: UOp, ctx: Context) -> str | None:
        wrong = next((x for x in ctx.users[u] if not (x.op in holders and u in x.src[x.op is not Op.PARAM :])), None)
        return None if wrong is None else f"used by {wrong.op.name.lower()}"

    return check


_stack_is_shape = _only_as_shape(frozenset({Op.PARAM}))
STACK_IS_SHAPE = _form(Where.BODY, Op.STACK, "a Stack is the shape of a Param", _stack_is_shape)


def _shape_or_fragment(u: UOp, ctx: Context) -> str | None:
    return None if all(_holds_fragment(x, ctx) for x in ctx.users[u]) else _stack_is_shape(u, ctx)


STACK_IS_SHAPE_OR_FRAGMENT = _form(
    Where.BODY,
    Op.STACK,
    "a Stack is the shape of a Param, a fragment of a Wmma or its place",
    _shape_or_fragment,
    "R142",
)
STACK_SPELLS_SHAPE = _form(
    Where.ANY, Op.STACK, "a Stack is a shape operand", _only_as_shape(frozenset({Op.RESHAPE, Op.EXPAND, Op.PARAM})), "R100"
)


def _closes_its_kind(u: UOp, ctx: Context) -> str | None:
    other = AxisType.REDUCE if u.op is Op.END else AxisType.LOOP
    wrong = next((r for r in closed_by(u) if r.arg.type is other), None)
    return None if wrong is None else f"axis {wrong.arg.axis_id} is {wrong.arg.type.name}"


CLOSES_ITS_KIND = _form(Where.BODY, frozenset({Op.END, Op.REDUCE}), "End closes no REDUCE, Reduce no LOOP", _closes_its_kind)


def _kernel_buffer(u: UOp, ctx: Context) -> str | None:
    return "a GLOBAL Buffer inside of a kernel" if u.arg.addrspace is AddrSpace.GLOBAL else None


KERNEL_BUFFER = _form(Where.BODY, Op.BUFFER, "a Buffer of a kernel is LOCAL or REG", _kernel_buffer)

EQUAL_SHAPES = _form(Where.BODY, ALU, "operands have equal shapes", all_same_shape, "R41")


def _one_shape(u: UOp, ctx: Context) -> str | None:
    shaped = [s.shape for s in u.src if s.shape != ()]
    for shape in shaped[1:]:
        if not same_shape(shape, shaped[0]):
            return f"needs {show_shape(shaped[0])} or (), got {show_shape(shape)}"
    return None


ONE_SHAPE = _form(Where.BODY, ALU, "operands have one shape, or ()", _one_shape, "R162")

#: Nodes of dtype index that outlive the choice of machine widths.
_COUNTERS = frozenset({Op.CONST, Op.STACK, Op.RANGE, Op.SPECIAL, Op.PARAM})


def _index_arithmetic(u: UOp, ctx: Context) -> str | None:
    if u.dtype is dt.index and u.op not in _COUNTERS and u not in ctx.sizes:
        return "dtype index after the choice of widths"
    return None


NO_INDEX_ARITHMETIC = _form(
    Where.BODY,
    ALU | {Op.INDEX, Op.LOAD},
    "dtype index is left for counters, their bounds and shapes only",
    _index_arithmetic,
    "R08",
)


INDEX_BOUNDS = _form(
    Where.BODY,
    Op.RANGE,
    "the bound is an index",
    lambda u, ctx: None if u.src[0].dtype is dt.index else f"got {u.src[0].dtype}",
    "R87",
)

#: No instructions: what holds the others together.
_STRUCTURE = frozenset({Op.LINEAR, Op.PROGRAM, Op.SOURCE, Op.BINARY, Op.SINK, Op.GROUP, Op.AFTER, Op.STACK})


def _target(u: UOp, ctx: Context) -> str | None:
    if ctx.target is None or u.op in _STRUCTURE or u in ctx.sizes:
        return None
    if u.op not in ctx.target.ops:
        return f"{ctx.target.name} has no {u.op.name.lower()}"
    d = u.dtype
    if d is not dt.void and d is not dt.index and d not in ctx.target.dtypes:
        return f"{ctx.target.name} has no {d}"
    return None


TARGET = _form(Where.BODY, None, "the target, where one is given, has the op and the dtype", _target)

# ----------------------------------------------------------------------------------------------------------- instructions

#: May be used without being listed: they are no instructions.
_UNLISTED = frozenset({Op.CONST, Op.STACK, Op.PARAM, Op.BUFFER})


def _in_order(u: UOp, ctx: Context) -> str | None:
    at: dict[UOp, int] = {}
    for k, s in enumerate(u.src):
        if s in at:
            return f"instruction {k} repeats {at[s]}"
        missing = next((p for p in s.src if p not in at and p not in ctx.sizes and p.op not in _UNLISTED), None)
        if missing is not None:
            return f"instruction {k} ({s.op.name.lower()}) uses {missing.op.name.lower()} before it"
        at[s] = k
    late = next((k for s, k in at.items() for p in s.src if at.get(p, -1) > k), None)
    return None if late is None else f"instruction {late} uses a later one"


IN_ORDER = _form(Where.BODY, Op.LINEAR, "every instruction stands once, after its sources", _in_order)


def _nested(u: UOp, ctx: Context) -> str | None:
    opened: list[UOp] = []
    for k, s in enumerate(u.src):
        if s.op in (Op.RANGE, Op.IF):
            opened.append(s)
        closed = s.src[1:] if s.op is Op.END else s.src if s.op is Op.ENDIF else ()
        for c in closed:
            if not opened or opened[-1] is not c:
                return f"instruction {k} ({s.op.name.lower()}) does not close the innermost block"
            opened.pop()
    return f"{len(opened)} blocks are left open" if opened else None


NESTED = _form(Where.BODY, Op.LINEAR, "blocks of Range and End, If and Endif nest", _nested, "R58")


def _single_end(u: UOp, ctx: Context) -> str | None:
    return None if len(u.src) == 2 else f"closes {len(u.src) - 1}"


SINGLE_END = _form(Where.BODY, Op.END, "an End closes one Range", _single_end, "R58")
