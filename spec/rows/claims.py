"""Claims, the constraints of the specification, each with an id, and factories for those that recur.

The check of a claim takes a node and a `VerifyContext`. It returns None, or what is wrong ("axis 1 needs 5, got 4"). Claim C1 of
every row comes from the row's schema: the number of sources, the type of the arg and which sources must be values. A *gate*
is a claim that the others of its row rely on. They are not checked where it is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.arg_types import arg_fault
from uops.spec.ir.args import ARG_OPTIONAL, ARG_TYPE
from uops.spec.ir.derive.shape import broadcast as broadcast_shapes
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, rank_limit_fault
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass
from uops.spec.ir.scope import VerifyContext
from uops.spec.ir.sizes import provably_nonnegative, same_shape, show_extent_as_number_name_or_op, show_shape

#: A check of a node: None, or what is wrong.
Check = Callable[[UOp, VerifyContext], str | None]


@dataclass(frozen=True, slots=True)
class ClaimDraft:
    """A claim without the id that its row will give it."""

    text: str
    check: Check
    ruling: str = ""
    gate: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """A constraint on a node. `id` is like PAD.C2, `spec` the id of its row, `ruling` the ruling it rests on, or empty."""

    id: str
    text: str
    spec: str
    ruling: str
    check: Check
    gate: bool = False


def number_claims(prefix: str, spec: str, drafts: Iterable[ClaimDraft], letter: str = "C") -> tuple[Claim, ...]:
    """Return the drafts as claims <prefix>.C1, .C2, ..., in order; those of a dialect have the letter D."""
    return tuple(Claim(f"{prefix}.{letter}{k}", d.text, spec, d.ruling, d.check, d.gate) for k, d in enumerate(drafts, 1))


# ------------------------------------------------------------------------------------------------------------- schemas

#: Names of sources that may be void (effects, bodies, identities); every other source is a value.
_NON_VALUES = frozenset(
    ["body", "deps", "u", "uops", "meta", "args", "if", "linear", "source", "sink", "unique", "device", "packed"]
)


@dataclass(frozen=True, slots=True)
class Schema:
    """The sources of a row: names in order. `?` marks an optional source, `...` any number, `+` one or more."""

    text: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names without their marks."""
        return tuple(n.rstrip("?+.") for n in self.text.split())

    @property
    def min_sources(self) -> int:
        """The least number of sources."""
        return sum(not n.endswith(("?", "...")) for n in self.text.split())

    @property
    def max_sources(self) -> int | None:
        """The greatest number of sources; None if the last name repeats."""
        return None if self.text.endswith(("...", "+")) else len(self.names)

    def name_of(self, position: int) -> str:
        """Return the name of the source at a position."""
        return self.names[min(position, len(self.names) - 1)]

    def is_value(self, position: int) -> bool:
        """Return True if the source at a position must be a value, not void."""
        return self.name_of(position) not in _NON_VALUES


def schema_claim(op: Op, schema: Schema) -> ClaimDraft:
    """Return claim C1 of a row: the number of sources, the type of the arg, which sources are values, and the limit of the rank."""
    kind = ARG_TYPE.get(op)
    arg = "no arg" if kind is None else f"{kind.__name__} or no arg" if op in ARG_OPTIONAL else kind.__name__
    least, most = schema.min_sources, schema.max_sources
    is_value = tuple(schema.is_value(k) for k in range(len(schema.names)))
    last_is_value = is_value[-1] if is_value else True
    all_values = all(is_value)

    def check_schema(u: UOp, ctx: VerifyContext) -> str | None:
        n = len(u.src)
        if n < least or (most is not None and n > most):
            return f"needs {_describe_count(least, most)}, got {n}"
        fault = arg_fault(op, u.arg)
        if fault is not None:
            return fault
        for k, s in enumerate(u.src):
            if s.dtype is dt.void and (all_values or (is_value[k] if k < len(is_value) else last_is_value)):
                return f"source {k} ({schema.name_of(k)}) is void"
        return rank_limit_fault(u)

    return ClaimDraft(f"sources ({schema.text}), {arg}", check_schema, gate=True)


def _describe_count(least: int, most: int | None) -> str:
    n = f"at least {least}" if most is None else str(least) if least == most else f"{least} to {most}"
    return f"{n} source{'s' * (n != '1')}"


# -------------------------------------------------------------------------------------------------------------- dtypes


def is_numeric(d: DType) -> bool:
    """Return True for integers, index and floats."""
    return d.is_integer or d.is_float


def is_integer(d: DType) -> bool:
    """Return True for integers and index."""
    return d.is_integer


def is_floating(d: DType) -> bool:
    """Return True for floats."""
    return d.is_float


def is_bitwise(d: DType) -> bool:
    """Return True for the dtypes of Xor, Or and And: bool, integers and index (R10, dtype legality)."""
    return d.is_integer or d is dt.bool_


def is_boolean(d: DType) -> bool:
    """Return True for bool."""
    return d is dt.bool_


def is_storable(d: DType) -> bool:
    """Return True for the dtypes of buffers: all but void and index (R29)."""
    return d is not dt.void and d is not dt.index


def dtype_claim(
    names: str, is_legal: Callable[[DType], bool], requirement: str, ruling: str, *positions: int, gate: bool = False
) -> ClaimDraft:
    """Return the claim that each source at `positions`, if present, has a legal dtype."""

    def check_dtypes(u: UOp, ctx: VerifyContext) -> str | None:
        for k in positions:
            if k < len(u.src) and not is_legal(u.src[k].dtype):
                return f"source {k} is {u.src[k].dtype}"
        return None

    return ClaimDraft(f"{names} {requirement}", check_dtypes, ruling, gate)


def arg_dtype_claim(is_legal: Callable[[DType], bool], requirement: str, ruling: str) -> ClaimDraft:
    """Return the claim that the arg states a legal dtype."""

    def check(u: UOp, ctx: VerifyContext) -> str | None:
        return None if is_legal(u.arg.dtype) else f"got {u.arg.dtype}"

    return ClaimDraft(f"dtype is {requirement}", check, ruling, gate=True)


def claim_sources_share_dtype(names: str, first: int = 0, stop: int | None = None) -> ClaimDraft:
    """Return the claim that the sources `first` to `stop`, exclusive, have one dtype (R25, operand dtypes)."""

    def check_same_dtype(u: UOp, ctx: VerifyContext) -> str | None:
        common = None
        for s in u.src[first:stop]:
            if common is None:
                common = s.dtype
            elif s.dtype is not common:
                return f"{common} and {s.dtype}"
        return None

    return ClaimDraft(f"{names} have one dtype", check_same_dtype, "R25")


# -------------------------------------------------------------------------------------------------------------- shapes


def _check_shapes_broadcast(u: UOp, ctx: VerifyContext) -> str | None:
    first = u.src[0].shape  # the operand or lhs
    for s in u.src:
        if s.shape != first:
            try:
                broadcast_shapes([s.shape for s in u.src])
            except SpecError:
                return f"got {', '.join(show_shape(s.shape) for s in u.src)}"
            return None
    return None


BROADCAST = ClaimDraft("shapes broadcast: right-aligned, each axis equal or 1", _check_shapes_broadcast, "R41")


def same_shape_claim(names: str, *positions: int, ruling: str = "") -> ClaimDraft:
    """Return the claim that the sources at `positions` have one shape."""

    def check_same_shape(u: UOp, ctx: VerifyContext) -> str | None:
        shapes = [u.src[k].shape for k in positions if k < len(u.src)]
        for s in shapes[1:]:
            if not same_shape(s, shapes[0]):
                return f"needs {show_shape(shapes[0])}, got {show_shape(s)}"
        return None

    return ClaimDraft(f"{names} have one shape", check_same_shape, ruling)


def check_all_same_shape(u: UOp, ctx: VerifyContext) -> str | None:
    """Check that all sources have one shape."""
    for k, s in enumerate(u.src):
        if k == 0:
            first = s.shape
        elif not same_shape(s.shape, first):
            return f"source {k} needs {show_shape(first)}, got {show_shape(s.shape)}"
    return None


def scalar_claim(name: str, position: int, ruling: str = "", gate: bool = False) -> ClaimDraft:
    """Return the claim that the source at `position`, if present, has shape ()."""

    def check(u: UOp, ctx: VerifyContext) -> str | None:
        if position < len(u.src) and u.src[position].shape != ():
            return f"got {show_shape(u.src[position].shape)}"
        return None

    return ClaimDraft(f"{name} has shape ()", check, ruling, gate)


def shape_operand_claim(names: str, *positions: int) -> ClaimDraft:
    """Return the claim that the sources at `positions` are shape operands (R40).

    A shape operand is a Stack of () index expressions over constants and named variables (R48, symbolic sizes).
    """

    def check_shape_operands(u: UOp, ctx: VerifyContext) -> str | None:
        for k in positions:
            vector = u.src[k]
            if vector.op is not Op.STACK:
                return f"source {k} is {vector.op.name.lower()}, not a Stack"
            for n, s in enumerate(vector.elements):
                if s.op is Op.CONST:
                    continue
                if s.dtype is not dt.index or s.shape != ():
                    return f"entry {n} of source {k} is no () index"
                if not ctx.is_size_expression(s):
                    return f"entry {n} of source {k} is no expression over constants and named variables"
            if vector.dtype is not dt.index:
                return f"source {k} is {vector.dtype}"
        return None

    return ClaimDraft(f"{names}: 1-D index vectors, Stacks of sizes", check_shape_operands, "R40", gate=True)


def one_entry_per_axis_claim(names: str, *positions: int) -> ClaimDraft:
    """Return the claim that the shape operands at `positions` have one entry per axis of the operand."""

    def check_entry_count(u: UOp, ctx: VerifyContext) -> str | None:
        rank = len(u.operand.shape)
        for k in positions:
            if len(u.src[k].src) != rank:
                return f"source {k} needs {rank} entries, got {len(u.src[k].src)}"
        return None

    return ClaimDraft(f"{names}: one entry per axis of T", check_entry_count, gate=True)


def nonnegative_entries_claim(name: str, position: int, ruling: str = "") -> ClaimDraft:
    """Return the claim that the entries of the shape operand at `position` are at least 0."""

    def check_entries(u: UOp, ctx: VerifyContext) -> str | None:
        for k, s in enumerate(u.src[position].src):
            extent = s.arg.value if s.op is Op.CONST else s
            if not provably_nonnegative(extent):
                return f"axis {k} needs at least 0, got {show_extent_as_number_name_or_op(extent)}"
        return None

    return ClaimDraft(f"{name} >= 0", check_entries, ruling)


def distinct_axes_claim(text: str, ruling: str) -> ClaimDraft:
    """Return the claim that the axes of the arg are distinct axes of the operand."""

    def check_axes(u: UOp, ctx: VerifyContext) -> str | None:
        axes, rank = u.arg.axes, len(u.operand.shape)
        if len(set(axes)) != len(axes):
            return f"axes {axes} repeat"
        wrong = [a for a in axes if not 0 <= a < rank]
        return f"axis {wrong[0]} of rank {rank}" if wrong else None

    return ClaimDraft(text, check_axes, ruling, gate=True)


# ----------------------------------------------------------------------------------------------------- devices and axes


def _check_same_device(u: UOp, ctx: VerifyContext) -> str | None:
    common = None
    for s in u.src:
        d = s.device
        if d is not None:
            if common is None:
                common = d
            elif d != common:
                return f"{common} and {d}"
    return None


SAME_DEVICE = ClaimDraft("source devices are equal or null", _check_same_device, "R72")


def has_sharded_source(u: UOp) -> bool:
    """Return True if a source is on several devices, as only such a value may have a sharded axis."""
    return any(type(s.device) is tuple for s in u.src)


def _check_same_sharded_axis(u: UOp, ctx: VerifyContext) -> str | None:
    if not has_sharded_source(u):
        return None
    axes = {s.axis - len(s.shape) for s in u.src if s.axis is not None}
    return f"axes {sorted(axes)} from the right" if len(axes) > 1 else None


SAME_AXIS = ClaimDraft("sharded axes, right-aligned, agree or are null", _check_same_sharded_axis, "R74")


def sharded_axis_untouched_claim(touches_axis: Callable[[UOp, int], bool], action: str) -> ClaimDraft:
    """Return the claim that a node does not change the sharded axis of its first source.

    `touches_axis(u, axis)` returns True if the node changes that axis; `action` names the change.
    """

    def check_sharded_axis(u: UOp, ctx: VerifyContext) -> str | None:
        t = u.src[0]  # the operand, or the buffer of a BUFFER_VIEW
        if type(t.device) is not tuple or t.axis is None:
            return None
        return f"axis {t.axis} is sharded over {len(t.device)} devices" if touches_axis(u, t.axis) else None

    return ClaimDraft(f"no {action} on the sharded axis", check_sharded_axis, "R74")


# ---------------------------------------------------------------------------------------------------------------- other


def source_op_claim(name: str, position: int, ops: frozenset[Op], ruling: str = "") -> ClaimDraft:
    """Return the claim that the source at `position`, if present, is one of `ops`."""
    words = " or ".join(sorted(o.name.lower() for o in ops))

    def check(u: UOp, ctx: VerifyContext) -> str | None:
        if position < len(u.src) and u.src[position].op not in ops:
            return f"got {u.src[position].op.name.lower()}"
        return None

    return ClaimDraft(f"{name} is {words}", check, ruling, gate=True)


def distinct_ranges_claim(first_position: int, ops: frozenset[Op] = frozenset({Op.RANGE})) -> ClaimDraft:
    """Return the claim that the sources from `first_position` on are distinct Ranges."""

    def check_ranges(u: UOp, ctx: VerifyContext) -> str | None:
        for k, s in enumerate(u.src[first_position:], first_position):
            if s.op not in ops:
                return f"source {k} is {s.op.name.lower()}"
        if len(set(u.src[first_position:])) != len(u.src) - first_position:
            return "a range is named twice"
        return None

    return ClaimDraft("the closed sources are distinct Ranges", check_ranges, "R58", gate=True)


def reference_claim(name: str, position: int) -> ClaimDraft:
    """Return the claim that the source at `position` is a Buffer, a Param or an injective view of one (R51)."""

    def check(u: UOp, ctx: VerifyContext) -> str | None:
        if ctx.underlying_buffer(u.src[position]) is None:
            return f"got {ctx.describe_end_of_view_chain(u.src[position])}"
        return None

    return ClaimDraft(f"{name} is a reference: a Buffer, a Param, or a view of one that is no Expand and no Pad", check, "R51")


def nonempty_field_claim(field: str) -> ClaimDraft:
    """Return the claim that a text field of the arg is not empty."""

    def check(u: UOp, ctx: VerifyContext) -> str | None:
        return None if getattr(u.arg, field) else f"{field} is empty"

    return ClaimDraft(f"{field} is not empty", check)
