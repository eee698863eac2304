"""The sources of a node by name: `load.gate`, `range.bound`, `select.condition` rather than `src[2]`.

`OPERANDS` has the names per op. They are those of the row's schema, spelt out: T is `operand`, A and B are `lhs` and `rhs`, s' is
`extents`. A test compares the table with the rows. `Operands` declares an attribute for each name. It raises AttributeError where
the op has no source of that name. Reading one costs four times as much as `src[2]`, so a hot loop may index and say the name
beside it.
"""

from __future__ import annotations

from typing import Any, Self

from uops.spec.ir.ops import BINARY, MARKERS, UNARY, Op

#: op -> names of its sources, in order, as the rows have them: `?` marks an optional one; `...` and `+` mean the rest.
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
    Op.WMMA: "lhs rhs accumulator",
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
    """Return the position of the source of this name in each op that has one, with one of these marks behind the name."""
    words = {op: text.split() for op, text in OPERANDS.items()}
    return {op: names.index(name + mark) for op, names in words.items() for mark in marks if name + mark in names}


def _refuse(u: Any, name: str) -> AttributeError:
    names = OPERANDS[u.op]
    if name in (word.rstrip("?+.") for word in names.split()):
        return AttributeError(f"{u.op.name} needs the sources {names}, got {len(u.src)}: {name} is missing")
    return AttributeError(f"{u.op.name} has no source named {name}; its sources are: {names or 'none'}")


def _required(name: str) -> Any:
    """A source that each op with this name has in every node."""
    positions = positions_of(name, "")

    def get(u: Any) -> Any:
        try:
            return u.src[positions[u.op]]
        except LookupError:
            raise _refuse(u, name) from None

    return property(get, doc=f"The source named `{name}`.")


def _optional(name: str) -> Any:
    """A source that a node may lack: then None."""
    positions = positions_of(name, "", "?")

    def get(u: Any) -> Any:
        try:
            k = positions[u.op]
        except KeyError:
            raise _refuse(u, name) from None
        return u.src[k] if k < len(u.src) else None

    return property(get, doc=f"The source named `{name}`, or None.")


def _variadic(name: str) -> Any:
    """Every source from one position on."""
    positions = positions_of(name, "...", "+")

    def get(u: Any) -> Any:
        try:
            k = positions[u.op]
        except KeyError:
            raise _refuse(u, name) from None
        return u.src[k:] if k else u.src

    return property(get, doc=f"The sources named `{name}`.")


class Operands:
    """What `UOp` inherits: an attribute per name in `OPERANDS`."""

    __slots__ = ()

    accumulator: Self = _required("accumulator")
    addend: Self = _required("addend")
    alternative: Self | None = _optional("alternative")
    arguments: tuple[Self, ...] = _variadic("arguments")
    binary: Self | None = _optional("binary")
    body: Self = _required("body")
    bound: Self = _required("bound")
    buffer: Self = _required("buffer")
    condition: Self = _required("condition")
    dependencies: tuple[Self, ...] = _variadic("dependencies")
    device_node: Self | None = _optional("device_node")
    effects: tuple[Self, ...] = _variadic("effects")
    elements: tuple[Self, ...] = _variadic("elements")
    extents: Self = _required("extents")
    gate: Self | None = _optional("gate")
    if_false: Self = _required("if_false")
    if_node: Self = _required("if_node")
    if_true: Self = _required("if_true")
    index: Self = _required("index")
    instructions: tuple[Self, ...] = _variadic("instructions")
    lhs: Self = _required("lhs")
    linear: Self | None = _optional("linear")
    metadata: tuple[Self, ...] = _variadic("metadata")
    offset: Self = _required("offset")
    offsets: Self = _required("offsets")
    operand: Self = _required("operand")
    packed: Self = _required("packed")
    pointer: Self = _required("pointer")
    positions: tuple[Self, ...] = _variadic("positions")
    ranges: tuple[Self, ...] = _variadic("ranges")
    rhs: Self = _required("rhs")
    sink: Self = _required("sink")
    source: Self | None = _optional("source")
    unique: Self = _required("unique")
    value: Self = _required("value")
    values: tuple[Self, ...] = _variadic("values")
    variable: Self = _required("variable")
