"""The sources of a node by name: `load.gate`, `range.bound`, `where.condition` rather than `src[2]`.

`OPERANDS` has the names per op. They are those of the row's schema, written out: T is `operand`, A and B are `lhs` and `rhs`, s' is
`extents`. A test compares the table with the rows. `Operands` declares an attribute for each name. The attribute raises
AttributeError if the op has no source of that name. Reading it costs four times as much as `src[2]`, so a hot loop may use the
index, with the name in a comment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from uops.spec.ir.ops import BINARY, MARKERS, UNARY, Op

#: Op -> the names of its sources, in order, as in the rows: `?` marks an optional source; `...` and `+` mean all the others.
OPERANDS: dict[Op, str] = {
    **dict.fromkeys(UNARY | MARKERS | {Op.CAST, Op.PRECAST}, "operand"),
    **dict.fromkeys(BINARY, "lhs rhs"),
    Op.PARAM: "extents",
    Op.BUFFER: "",
    Op.CONST: "",
    Op.BINARY: "",
    Op.PERMUTE: "operand",
    Op.FLIP: "operand",
    Op.RESHAPE: "operand extents",
    Op.EXPAND: "operand extents",
    Op.PAD: "operand offsets extents",
    Op.SHRINK: "operand offsets extents",
    Op.INDEX: "operand positions...",
    Op.STACK: "elements...",
    Op.REPLICATED: "operand",
    Op.SLICE: "operand offset",
    Op.BITCAST: "operand",
    Op.REDUCE: "operand ranges...",
    Op.FUNCTION: "body arguments...",
    Op.CALL: "body arguments...",
    Op.TUPLE: "values...",
    Op.GETTUPLE: "packed",
    Op.LOAD: "buffer alternative? gate?",
    Op.STORE: "buffer value gate?",
    Op.RANGE: "bound",
    Op.END: "body ranges+",
    Op.AFTER: "buffer dependencies...",
    Op.GROUP: "effects...",
    Op.SINK: "effects...",
    Op.LINEAR: "instructions...",
    Op.WHERE: "condition if_true if_false",
    Op.MULACC: "lhs rhs addend",
    Op.BARRIER: "dependencies...",
    Op.INS: "arguments...",
    Op.SPECIAL: "bound",
    Op.IF: "condition",
    Op.ENDIF: "if_node",
    Op.WMMA: "lhs rhs accumulator ranges...",
    Op.CUSTOM: "arguments...",
    Op.ATOMICADD: "index value",
    Op.CUSTOM_FUNCTION: "metadata...",
    Op.PROGRAM: "linear source binary",
    Op.SOURCE: "",
    Op.B_RANGE: "bound dependencies...",
    Op.REDUCE_AXIS: "operand",
    Op.B_REDUCE: "operand ranges...",
    Op.ALLREDUCE: "operand device_node",
    Op.B_PROGRAM: "sink device_node linear? source? binary?",
    Op.PROGRAM_BINARY: "",
    Op.B_BARRIER: "operand dependencies...",
    Op.B_IF: "condition effects...",
    Op.B_BUFFER: "unique device_node",
    Op.BUFFERIZE: "operand ranges...",
    Op.B_INDEX: "buffer positions...",
    Op.POINTER_INDEX: "pointer offset",
    Op.B_LOAD: "buffer index alternative?",
    Op.B_STORE: "index value ranges...",
    Op.B_PAD: "operand",
    Op.B_SHRINK: "operand",
    Op.COPY: "operand device_node",
    Op.BUFFER_VIEW: "buffer",
    Op.B_PARAM: "device_node?",
    Op.VECTORIZE: "elements+",
    Op.GEP: "operand",
    Op.VCONST: "",
    Op.CAT: "elements+",
    Op.PTRCAT: "elements+",
    Op.UNROLL: "operand",
    Op.CONTRACT: "operand",
    Op.CUSTOMI: "arguments...",
    Op.DEFINE_LOCAL: "",
    Op.DEFINE_VAR: "",
    Op.DEFINE_REG: "",
    Op.BIND: "variable value",
    Op.UNIQUE: "",
    Op.LUNIQUE: "",
    Op.DEVICE: "",
    Op.MSTACK: "elements+",
    Op.MSELECT: "operand",
    Op.MULTI: "operand",
}


def positions_of(name: str, *marks: str) -> dict[Op, int]:
    """Return op -> position for each op with a source of this name that has one of these marks ("", "?", "..." or "+")."""
    words = {op: text.split() for op, text in OPERANDS.items()}
    return {op: names.index(name + mark) for op, names in words.items() for mark in marks if name + mark in names}


def _missing_source_error(u: Any, name: str) -> AttributeError:
    names = OPERANDS[u.op]
    if name in (word.rstrip("?+.") for word in names.split()):
        return AttributeError(f"{u.op.name} needs the sources {names}, got {len(u.src)}: {name} is missing")
    return AttributeError(f"{u.op.name} has no source named {name}; its sources are: {names or 'none'}")


def _required_source_property(name: str) -> Any:
    """Return a property for a source that every node of the ops with this name has."""
    return _source_property(name, positions_of(name, ""))


def _variadic_sources_property(name: str) -> Any:
    """Return a property for all sources from one position on."""
    return _source_property(name, {op: slice(k, None) for op, k in positions_of(name, "...", "+").items()})


def _source_property(name: str, positions_by_op: Mapping[Op, int | slice]) -> Any:
    """Return a property that reads `src` at the index, or slice, of the node's op."""

    def get_source(u: Any) -> Any:
        try:
            return u.src[positions_by_op[u.op]]
        except LookupError:
            raise _missing_source_error(u, name) from None

    return property(get_source, doc=f"The source or sources named `{name}`.")


def _optional_source_property(name: str) -> Any:
    """Return a property for a source that a node may lack; the property is then None."""
    positions = positions_of(name, "", "?")

    def get_source_or_none(u: Any) -> Any:
        try:
            k = positions[u.op]
        except KeyError:
            raise _missing_source_error(u, name) from None
        return u.src[k] if k < len(u.src) else None

    return property(get_source_or_none, doc=f"The source named `{name}`, or None.")


class Operands:
    """The base class of `UOp` with a property per name in `OPERANDS`."""

    __slots__ = ()

    accumulator: Self = _required_source_property("accumulator")
    addend: Self = _required_source_property("addend")
    alternative: Self | None = _optional_source_property("alternative")
    arguments: tuple[Self, ...] = _variadic_sources_property("arguments")
    binary: Self | None = _optional_source_property("binary")
    body: Self = _required_source_property("body")
    bound: Self = _required_source_property("bound")
    buffer: Self = _required_source_property("buffer")
    condition: Self = _required_source_property("condition")
    dependencies: tuple[Self, ...] = _variadic_sources_property("dependencies")
    device_node: Self | None = _optional_source_property("device_node")
    effects: tuple[Self, ...] = _variadic_sources_property("effects")
    elements: tuple[Self, ...] = _variadic_sources_property("elements")
    extents: Self = _required_source_property("extents")
    gate: Self | None = _optional_source_property("gate")
    if_false: Self = _required_source_property("if_false")
    if_node: Self = _required_source_property("if_node")
    if_true: Self = _required_source_property("if_true")
    index: Self = _required_source_property("index")
    instructions: tuple[Self, ...] = _variadic_sources_property("instructions")
    lhs: Self = _required_source_property("lhs")
    linear: Self | None = _optional_source_property("linear")
    metadata: tuple[Self, ...] = _variadic_sources_property("metadata")
    offset: Self = _required_source_property("offset")
    offsets: Self = _required_source_property("offsets")
    operand: Self = _required_source_property("operand")
    packed: Self = _required_source_property("packed")
    pointer: Self = _required_source_property("pointer")
    positions: tuple[Self, ...] = _variadic_sources_property("positions")
    ranges: tuple[Self, ...] = _variadic_sources_property("ranges")
    rhs: Self = _required_source_property("rhs")
    sink: Self = _required_source_property("sink")
    source: Self | None = _optional_source_property("source")
    unique: Self = _required_source_property("unique")
    value: Self = _required_source_property("value")
    values: tuple[Self, ...] = _variadic_sources_property("values")
    variable: Self = _required_source_property("variable")
