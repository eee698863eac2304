"""The dialects, as data: which ops may stand outside and inside of a Call's body, and which forms.

A dialect's claims are numbered D1, D2, ... and are judged beside the claims of the rows. `outer` nodes are those of the graph
itself and of its Functions, `body` nodes those inside a Call's body. D1 is always "the op belongs to the dialect", D2 "no tag".
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.ops import ALU, BITWISE, COMPARE, MARKERS, SHIFT, Op
from uops.spec.ir.record import dataclass
from uops.spec.rows.claims import Claim, number
from uops.spec.verify import forms as f
from uops.spec.verify.forms import Form


class Dialect(Enum):
    """A stage of the one language; the pipeline's in its order, then the second document's."""

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
    """`body` is None where a Call's body is opaque. `claims` pairs each claim with the form that says to which nodes it applies."""

    dialect: Dialect
    outer: frozenset[Op]
    body: frozenset[Op] | None
    claims: tuple[tuple[Claim, Form], ...]

    @property
    def ops(self) -> frozenset[Op]:
        return self.outer | (self.body or frozenset())


_ORDER = {op: k for k, op in enumerate(Op)}


def _between(first: Op, last: Op) -> frozenset[Op]:
    """The ops of tinyspec's tables from one to another."""
    return frozenset(op for op in Op if _ORDER[first] <= _ORDER[op] <= _ORDER[last])


SOURCES = _between(Op.PARAM, Op.BINARY)
MOVEMENT = _between(Op.PERMUTE, Op.BITCAST)
ELEMENTWISE = (ALU - {Op.MIN}) | {Op.CAST}
ORDER = frozenset({Op.AFTER, Op.GROUP, Op.SINK})
MEMORY = frozenset({Op.LOAD, Op.STORE})

TENSOR_OPS = SOURCES | MOVEMENT | {Op.REDUCE, Op.FUNCTION, Op.CALL, Op.TUPLE, Op.GETTUPLE} | MEMORY | ORDER | ELEMENTWISE | MARKERS
CALLIFIED_OPS = (SOURCES - {Op.BUFFER}) | MOVEMENT | {Op.REDUCE, Op.CONTIGUOUS} | MEMORY | ORDER | ELEMENTWISE
KERNEL_OPS = (
    frozenset({Op.PARAM, Op.CONST, Op.RANGE, Op.END, Op.INDEX, Op.BITCAST, Op.REDUCE, Op.STACK}) | MEMORY | ORDER | ELEMENTWISE
)
SCHEDULED_OPS = KERNEL_OPS | {Op.BUFFER, Op.BARRIER, Op.WMMA}
EXPANDED_OPS = SCHEDULED_OPS | {Op.EXPAND, Op.PERMUTE, Op.RESHAPE, Op.SHRINK, Op.PAD, Op.FLIP}
SELECTED_OPS = (
    frozenset({Op.PARAM, Op.CONST, Op.BUFFER, Op.RANGE, Op.END, Op.INDEX, Op.STACK})
    | {Op.CAST, Op.BITCAST, Op.TRUNC, Op.NOT, Op.WHERE}
    | {Op.ADD, Op.MUL, Op.MAX, Op.SUB, Op.NEG, Op.DIV, Op.RECIP, Op.SQRT, Op.EXP2, Op.MULACC, Op.IDIV, Op.MOD}
    | SHIFT | BITWISE | COMPARE | MEMORY | ORDER
    | {Op.SPECIAL, Op.BARRIER, Op.IF, Op.ENDIF, Op.WMMA, Op.ATOMICADD, Op.CUSTOM, Op.INS}
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
BESTIARY_OPS = SHARED_OPS | frozenset(op for op in Op if _ORDER[op] >= _ORDER[Op.B_RANGE])

_LAUNCH_ARGS = frozenset({Op.BUFFER, Op.PARAM, Op.BINARY})
_EFFECTS = frozenset({Op.STORE, Op.END, Op.GROUP})
_LATE_EFFECTS = _EFFECTS | {Op.ATOMICADD, Op.CUSTOM, Op.INS, Op.IF, Op.ENDIF, Op.BARRIER}
_ALL_TYPES = frozenset(AxisType) - {AxisType.PLACEHOLDER}
_UNEXPANDED = frozenset({AxisType.UPCAST, AxisType.UNROLL})


def _spec(dialect: Dialect, outer: frozenset[Op], body: frozenset[Op] | None, *forms: Form) -> DialectSpec:
    every = (f.legal_op(dialect.name, outer, body), f.NO_TAG, *forms)
    claims = number(dialect.name, f"Dialect/{dialect.name}", (form.draft for form in every), "D")
    return DialectSpec(dialect, outer, body, tuple(zip(claims, every, strict=True)))


def _launch(arguments: frozenset[Op], body: Op) -> Iterable[Form]:
    """The graph around the kernels."""
    yield f.root_is_linear()
    yield f.call_arguments(arguments)
    yield f.call_body(body)


def _kernel(effects: frozenset[Op], types: frozenset[AxisType]) -> Iterable[Form]:
    """What holds inside of every kernel."""
    yield f.sink_of(effects)
    yield f.KERNEL_PARAM
    yield f.ADDRESS
    yield f.LOADED
    yield f.BOOL_CONDITION
    yield f.axis_types(types)


_LINEAR_FORMS = (f.IN_ORDER, f.NESTED, f.SINGLE_END)

# fmt: off
DIALECTS: dict[Dialect, DialectSpec] = {s.dialect: s for s in (
    _spec(Dialect.TENSOR, TENSOR_OPS, None, f.in_spaces(frozenset({AddrSpace.GLOBAL}))),
    _spec(Dialect.CALLIFIED, frozenset({Op.CALL, Op.BUFFER, Op.PARAM, Op.CONST, Op.STACK}), CALLIFIED_OPS,
          f.ROOT_IS_CALL, f.call_arguments(frozenset({Op.BUFFER, Op.PARAM})),
          f.call_body(Op.SINK, kernel=False), f.sink_of(frozenset({Op.STORE, Op.GROUP})),
          f.SAME_ARGUMENTS, f.BOUND_PARAM),
    _spec(Dialect.KERNEL, LAUNCH_OPS, KERNEL_OPS,
          *_launch(_LAUNCH_ARGS, Op.SINK), *_kernel(_EFFECTS, frozenset({AxisType.LOOP, AxisType.REDUCE})),
          f.NO_OPEN_RANGE, f.INDEX_BOUNDS, f.ARGUMENT_DTYPES, f.SCALAR_VALUES, f.STACK_IS_SHAPE, f.CLOSES_ITS_KIND),
    _spec(Dialect.SCHEDULED, LAUNCH_OPS, SCHEDULED_OPS,
          *_launch(_LAUNCH_ARGS, Op.SINK), *_kernel(_EFFECTS, _ALL_TYPES),
          f.NO_OPEN_RANGE, f.INDEX_BOUNDS, f.ARGUMENT_DTYPES, f.SCALARS_AND_FRAGMENTS, f.STACK_IS_SHAPE_OR_FRAGMENT,
          f.KERNEL_BUFFER, f.WRITTEN_ONCE),
    _spec(Dialect.EXPANDED, LAUNCH_OPS, EXPANDED_OPS,
          *_launch(_LAUNCH_ARGS, Op.SINK), *_kernel(_EFFECTS, _ALL_TYPES - _UNEXPANDED),
          f.NO_OPEN_RANGE, f.INDEX_BOUNDS, f.ARGUMENT_DTYPES, f.ONE_SHAPE, f.KERNEL_BUFFER, f.WRITTEN_ONCE),
    _spec(Dialect.SELECTED, LAUNCH_OPS, SELECTED_OPS,
          *_launch(_LAUNCH_ARGS, Op.SINK), *_kernel(_LATE_EFFECTS, _ALL_TYPES - _UNEXPANDED),
          f.NO_OPEN_RANGE, f.EQUAL_SHAPES, f.KERNEL_BUFFER, f.NO_INDEX_ARITHMETIC, f.TARGET, f.WRITTEN_ONCE),
    _spec(Dialect.LINEAR, LAUNCH_OPS, LINEAR_OPS,
          *_launch(_LAUNCH_ARGS, Op.LINEAR), *_kernel(_LATE_EFFECTS, _ALL_TYPES - _UNEXPANDED),
          f.EQUAL_SHAPES, f.KERNEL_BUFFER, f.NO_INDEX_ARITHMETIC, f.TARGET, *_LINEAR_FORMS, f.WRITTEN_ONCE),
    _spec(Dialect.PLANNED, LAUNCH_OPS | {Op.SLICE}, LINEAR_OPS,
          *_launch(_LAUNCH_ARGS | {Op.SLICE}, Op.LINEAR), *_kernel(_LATE_EFFECTS, _ALL_TYPES - _UNEXPANDED),
          f.EQUAL_SHAPES, f.KERNEL_BUFFER, f.NO_INDEX_ARITHMETIC, f.TARGET, *_LINEAR_FORMS, f.WRITTEN_ONCE),
    _spec(Dialect.PROGRAM, LAUNCH_OPS | {Op.SLICE}, PROGRAM_OPS,
          *_launch(_LAUNCH_ARGS | {Op.SLICE}, Op.PROGRAM), *_kernel(_LATE_EFFECTS, _ALL_TYPES - _UNEXPANDED),
          f.EQUAL_SHAPES, f.KERNEL_BUFFER, f.NO_INDEX_ARITHMETIC, f.TARGET, *_LINEAR_FORMS, f.WRITTEN_ONCE),
    _spec(Dialect.BESTIARY, BESTIARY_OPS, BESTIARY_OPS,
          f.in_spaces(frozenset({AddrSpace.GLOBAL, AddrSpace.LOCAL})), f.STACK_SPELLS_SHAPE),
)}
# fmt: on


def dialects_of(op: Op) -> tuple[Dialect, ...]:
    """The dialects in which an op may appear."""
    return tuple(d for d, s in DIALECTS.items() if op in s.ops)
