"""The dialects, as data: the ops that are legal outside and inside of Call bodies, and the forms of their use.

The claims of a dialect are numbered D1, D2, ... and are checked with the claims of the rows. `outer` nodes are those of the graph
itself and of its Functions, `body` nodes those inside a Call's body. D1 is always "the op belongs to the dialect", D2 "no tag".
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import SEQUENTIAL, UNROLLED, AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ACCESSES, ALU, BITWISE, COMPARE, EFFECT_GROUPS, MARKERS, MEMORY_ROOTS, RESHAPING, SHIFT, Op
from uops.spec.ir.record import dataclass
from uops.spec.ir.scope import VerifyContext
from uops.spec.rows.claims import Claim, number_claims
from uops.spec.verify import forms as f
from uops.spec.verify.forms import DialectForm


class Dialect(Enum):
    """A stage of the language: those of the pipeline in its order, then that of the second document."""

    TENSOR = "tensor"
    CALLIFIED = "callified"
    KERNEL = "kernel"
    SCHEDULED = "scheduled"
    EXPANDED = "expanded"
    SELECTED = "selected"
    LINEAR = "linear"
    PLANNED = "planned"
    PROGRAM = "program"
    BESTIARY = "bestiary"


@dataclass(frozen=True, slots=True)
class DialectSpec:
    """The legal ops and the claims of a dialect.

    `outer` and `body` are the ops outside and inside of Call bodies; `body` is None where Call bodies are opaque. `claims` pairs
    each claim with the form that states to which nodes it applies.
    """

    dialect: Dialect
    outer: frozenset[Op]
    body: frozenset[Op] | None
    claims: tuple[tuple[Claim, DialectForm], ...]

    @property
    def ops(self) -> frozenset[Op]:
        """The ops that are legal somewhere."""
        return self.outer | (self.body or frozenset())


_ORDER = {op: k for k, op in enumerate(Op)}


def _ops_between(first: Op, last: Op) -> frozenset[Op]:
    """Return the ops from one to another, both included, in the order of tinyspec's tables."""
    return frozenset(op for op in Op if _ORDER[first] <= _ORDER[op] <= _ORDER[last])


SOURCES = _ops_between(Op.PARAM, Op.BINARY)
MOVEMENT = _ops_between(Op.PERMUTE, Op.BITCAST)
ELEMENTWISE = (ALU - {Op.MIN}) | {Op.CAST}
#: Ops that order effects, or combine them.
ORDER = EFFECT_GROUPS | {Op.AFTER}


TENSOR_OPS = (
    SOURCES | MOVEMENT | {Op.REDUCE, Op.FUNCTION, Op.CALL, Op.TUPLE, Op.GETTUPLE} | ACCESSES | ORDER | ELEMENTWISE | MARKERS
)
CALLIFIED_OPS = (SOURCES - {Op.BUFFER}) | MOVEMENT | {Op.REDUCE, Op.CONTIGUOUS, Op.CALL} | ACCESSES | ORDER | ELEMENTWISE
KERNEL_OPS = (
    frozenset({Op.PARAM, Op.CONST, Op.RANGE, Op.END, Op.INDEX, Op.BITCAST, Op.REDUCE, Op.STACK}) | ACCESSES | ORDER | ELEMENTWISE
)
#: Ops that only kernels written by hand have, until a pass makes them too: launches, atomics and opaque instructions.
WRITTEN_OPS = frozenset({Op.SPECIAL, Op.ATOMICADD, Op.CUSTOM, Op.CUSTOMI, Op.INS})
SCHEDULED_OPS = KERNEL_OPS | {Op.BUFFER, Op.BARRIER, Op.WMMA} | WRITTEN_OPS
EXPANDED_OPS = SCHEDULED_OPS | RESHAPING
SELECTED_OPS = (
    frozenset({Op.PARAM, Op.CONST, Op.BUFFER, Op.RANGE, Op.END, Op.INDEX, Op.STACK})
    | {Op.CAST, Op.BITCAST, Op.TRUNC, Op.NOT, Op.WHERE}
    | {Op.ADD, Op.MUL, Op.MAX, Op.SUB, Op.NEG, Op.DIV, Op.RECIP, Op.SQRT, Op.EXP2, Op.MULACC, Op.IDIV, Op.MOD}
    | SHIFT | BITWISE | COMPARE | ACCESSES | ORDER
    | {Op.BARRIER, Op.IF, Op.ENDIF, Op.WMMA} | WRITTEN_OPS
)  # fmt: skip
LINEAR_OPS = SELECTED_OPS | {Op.LINEAR}
PROGRAM_OPS = LINEAR_OPS | {Op.PROGRAM, Op.SOURCE, Op.BINARY}
LAUNCH_OPS = frozenset({Op.LINEAR, Op.CALL, Op.BUFFER, Op.PARAM, Op.CONST, Op.STACK, Op.BINARY})

#: Core ops that the second document has in the same form; `Stack` spells shapes there.
SHARED_OPS = (
    frozenset({Op.CONST, Op.END, Op.TUPLE, Op.GETTUPLE, Op.CALL, Op.FUNCTION, Op.LINEAR, Op.SOURCE, Op.SINK, Op.AFTER, Op.GROUP})
    | {Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.FLIP, Op.STACK, Op.WMMA, Op.SPECIAL, Op.ENDIF, Op.CUSTOM, Op.CUSTOM_FUNCTION}
    | {Op.BITCAST}
    | ALU | MARKERS
)  # fmt: skip
#: Ops that only the second document has.
BESTIARY_ONLY_OPS = frozenset(op for op in Op if _ORDER[op] >= _ORDER[Op.B_RANGE])
BESTIARY_OPS = SHARED_OPS | BESTIARY_ONLY_OPS

_LAUNCH_ARGS = frozenset({Op.BUFFER, Op.PARAM, Op.BINARY})
_EFFECTS = frozenset({Op.STORE, Op.END, Op.GROUP})
_SCHEDULED_EFFECTS = _EFFECTS | {Op.ATOMICADD, Op.CUSTOM, Op.INS, Op.BARRIER}
_LATE_EFFECTS = _SCHEDULED_EFFECTS | {Op.IF, Op.ENDIF}
_ALL_TYPES = frozenset(AxisType) - {AxisType.PLACEHOLDER}


def _make_dialect(dialect: Dialect, outer: frozenset[Op], body: frozenset[Op] | None, *forms: DialectForm) -> DialectSpec:
    every = (f.op_in_dialect_form(dialect.name, outer, body), f.NO_TAG, *forms)
    claims = number_claims(dialect.name, f"Dialect/{dialect.name}", (form.draft for form in every), "D")
    return DialectSpec(dialect, outer, body, tuple(zip(claims, every, strict=True)))


def _generate_linear_of_calls_forms(call_argument_ops: frozenset[Op], call_body_op: Op) -> Iterable[DialectForm]:
    """Yield the forms of the graph around the kernels."""
    yield f.root_is_linear_of_calls_form()
    yield f.call_argument_ops_form(call_argument_ops)
    yield f.call_body_form(call_body_op)


def _generate_kernel_body_forms(effect_ops: frozenset[Op], axis_types: frozenset[AxisType]) -> Iterable[DialectForm]:
    """Yield the forms that hold inside of every kernel."""
    yield f.sink_and_group_source_ops_form(effect_ops)
    yield f.KERNEL_PARAM
    yield f.ADDRESS
    yield f.LOADED
    yield f.BOOL_CONDITION
    yield f.axis_type_form(axis_types)


_LINEAR_FORMS = (f.IN_ORDER, f.NESTED, f.SINGLE_END)

# fmt: off
DIALECTS: dict[Dialect, DialectSpec] = {s.dialect: s for s in (
    _make_dialect(Dialect.TENSOR, TENSOR_OPS, None, f.outer_address_space_form(frozenset({AddrSpace.GLOBAL}))),
    _make_dialect(Dialect.CALLIFIED, frozenset({Op.CALL, Op.BUFFER, Op.PARAM, Op.CONST, Op.STACK}), CALLIFIED_OPS,
          f.ROOT_IS_CALL, f.call_argument_ops_form(MEMORY_ROOTS),
          f.call_body_form(Op.SINK, needs_sink_name_and_allows_later=False),
          f.sink_and_group_source_ops_form(frozenset({Op.STORE, Op.GROUP, Op.CALL})),
          f.SAME_ARGUMENTS, f.BOUND_PARAM),
    _make_dialect(Dialect.KERNEL, LAUNCH_OPS, KERNEL_OPS,
          *_generate_linear_of_calls_forms(_LAUNCH_ARGS, Op.SINK), *_generate_kernel_body_forms(_EFFECTS, SEQUENTIAL),
          f.NO_OPEN_RANGE, f.INDEX_BOUNDS, f.ARGUMENT_DTYPES, f.SCALAR_VALUES, f.STACK_IS_SHAPE, f.CLOSES_ITS_KIND,
          f.LOAD_TO_REGISTERS),
    _make_dialect(Dialect.SCHEDULED, LAUNCH_OPS, SCHEDULED_OPS,
          *_generate_linear_of_calls_forms(_LAUNCH_ARGS, Op.SINK), *_generate_kernel_body_forms(_SCHEDULED_EFFECTS, _ALL_TYPES),
          f.NO_OPEN_RANGE, f.INDEX_BOUNDS, f.ARGUMENT_DTYPES, f.SCALARS_AND_FRAGMENTS, f.STACK_IS_SHAPE_OR_FRAGMENT,
          f.KERNEL_BUFFER, f.WRITTEN_ONCE, f.ONE_TILE, f.LOAD_TO_REGISTERS),
    _make_dialect(Dialect.EXPANDED, LAUNCH_OPS, EXPANDED_OPS,
          *_generate_linear_of_calls_forms(_LAUNCH_ARGS, Op.SINK),
          *_generate_kernel_body_forms(_SCHEDULED_EFFECTS, _ALL_TYPES - UNROLLED),
          f.NO_OPEN_RANGE, f.INDEX_BOUNDS, f.ARGUMENT_DTYPES, f.ONE_SHAPE, f.KERNEL_BUFFER, f.WRITTEN_ONCE,
          f.ONE_TILE, f.LOAD_TO_REGISTERS),
    _make_dialect(Dialect.SELECTED, LAUNCH_OPS, SELECTED_OPS,
          *_generate_linear_of_calls_forms(_LAUNCH_ARGS, Op.SINK),
          *_generate_kernel_body_forms(_LATE_EFFECTS, _ALL_TYPES - UNROLLED),
          f.NO_OPEN_RANGE, f.EQUAL_SHAPES, f.KERNEL_BUFFER, f.NO_INDEX_ARITHMETIC, f.TARGET, f.WRITTEN_ONCE,
          f.ONE_TILE, f.LOAD_TO_REGISTERS),
    _make_dialect(Dialect.LINEAR, LAUNCH_OPS, LINEAR_OPS,
          *_generate_linear_of_calls_forms(_LAUNCH_ARGS, Op.LINEAR),
          *_generate_kernel_body_forms(_LATE_EFFECTS, _ALL_TYPES - UNROLLED),
          f.EQUAL_SHAPES, f.KERNEL_BUFFER, f.NO_INDEX_ARITHMETIC, f.TARGET, *_LINEAR_FORMS, f.WRITTEN_ONCE,
          f.ONE_TILE, f.LOAD_TO_REGISTERS),
    _make_dialect(Dialect.PLANNED, LAUNCH_OPS | {Op.SLICE}, LINEAR_OPS,
          *_generate_linear_of_calls_forms(_LAUNCH_ARGS | {Op.SLICE}, Op.LINEAR),
          *_generate_kernel_body_forms(_LATE_EFFECTS, _ALL_TYPES - UNROLLED),
          f.EQUAL_SHAPES, f.KERNEL_BUFFER, f.NO_INDEX_ARITHMETIC, f.TARGET, *_LINEAR_FORMS, f.WRITTEN_ONCE,
          f.ONE_TILE, f.LOAD_TO_REGISTERS),
    _make_dialect(Dialect.PROGRAM, LAUNCH_OPS | {Op.SLICE}, PROGRAM_OPS,
          *_generate_linear_of_calls_forms(_LAUNCH_ARGS | {Op.SLICE}, Op.PROGRAM),
          *_generate_kernel_body_forms(_LATE_EFFECTS, _ALL_TYPES - UNROLLED),
          f.EQUAL_SHAPES, f.KERNEL_BUFFER, f.NO_INDEX_ARITHMETIC, f.TARGET, *_LINEAR_FORMS, f.WRITTEN_ONCE,
          f.ONE_TILE, f.LOAD_TO_REGISTERS),
    _make_dialect(Dialect.BESTIARY, BESTIARY_OPS, BESTIARY_OPS,
          f.outer_address_space_form(frozenset({AddrSpace.GLOBAL, AddrSpace.LOCAL})), f.STACK_SPELLS_SHAPE),
)}
# fmt: on


#: The dialects of launches, that is, of a Linear of Calls of kernels, in the order of the pipeline.
LAUNCH_DIALECTS = tuple(d for d in Dialect if d not in (Dialect.TENSOR, Dialect.CALLIFIED, Dialect.BESTIARY))
_WITH_BODIES = (Dialect.CALLIFIED, *LAUNCH_DIALECTS)
#: Root of a body -> the dialect in which such a body is written, whatever the dialect of the graph around it.
_DIALECT_OF_BODY_ROOT = {Op.LINEAR: Dialect.LINEAR, Op.PROGRAM: Dialect.PROGRAM}


def find_later_bodies(ctx: VerifyContext, dialect: Dialect) -> dict[UOp, str]:
    """Return the bodies of Calls that are written in a later dialect than `dialect`, that of the graph, and in which (R166).

    They are lists of instructions, programs, and kernels whose loops are final. A kernel inside of a CALLIFIED body is one, too.
    A CustomFunction is written in none, which is the empty text.
    """
    later: dict[UOp, str] = {}
    if dialect not in _WITH_BODIES:  # the second document writes bodies as it writes the graph around them
        return later
    bodies = {body for body, scope in ctx.scopes.items() if scope.inner}
    for body in bodies:
        owners = ctx.scopes[body].owners
        nested = dialect is Dialect.CALLIFIED and not any(u in ctx.outer for u in owners)
        final = body.op is Op.SINK and body.arg is not None and getattr(body.arg, "scheduled", False)
        written = _DIALECT_OF_BODY_ROOT.get(body.op, Dialect.SCHEDULED if final or nested else dialect)
        if body.op is Op.CUSTOM_FUNCTION:
            later[body] = ""
        elif _WITH_BODIES.index(written) > _WITH_BODIES.index(dialect):
            later[body] = written.name
    return later


def dialects_of(op: Op) -> tuple[Dialect, ...]:
    """Return the dialects in which an op is legal."""
    return tuple(d for d, s in DIALECTS.items() if op in s.ops)
