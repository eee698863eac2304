"""Claims: the constraints of the specification, each with an id, and the factories for those that recur.

A claim's check takes a node and the `Context` of the verification and gives None, or what is wrong ("axis 1 needs 5, got 4").
The first claim of every row, C1, is made from the row's schema: number of sources, type of arg, and which sources must be values.
A *gate* is a claim that the others of its row rely on: they are not judged where it is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.arg_types import arg_fault
from uops.spec.ir.args import ARG_OPTIONAL, ARG_TYPE
from uops.spec.ir.derive.shape import broadcast as broadcast_shapes
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, too_many_axes
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass
from uops.spec.ir.scope import Context
from uops.spec.ir.sizes import not_negative, same_shape, show, show_shape

Check = Callable[[UOp, Context], str | None]


@dataclass(frozen=True, slots=True)
class Draft:
    """A claim before its row gives it an id."""

    text: str
    check: Check
    ruling: str = ""
    gate: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """One constraint: `id` like PAD.C2, `spec` the row's id, `ruling` the ruling it rests on, or empty."""

    id: str
    text: str
    spec: str
    ruling: str
    check: Check
    gate: bool = False


def number(prefix: str, spec: str, drafts: Iterable[Draft], letter: str = "C") -> tuple[Claim, ...]:
    """Drafts in order become <prefix>.C1, .C2, ... (of a dialect .D1, .D2, ...)."""
    return tuple(Claim(f"{prefix}.{letter}{k}", d.text, spec, d.ruling, d.check, d.gate) for k, d in enumerate(drafts, 1))


# ------------------------------------------------------------------------------------------------------------- schemas

#: Sources that may be void (effects, bodies, identities); every other source is a value.
_ANY = frozenset(["body", "deps", "u", "uops", "meta", "args", "if", "linear", "source", "sink", "unique", "device", "packed"])


@dataclass(frozen=True, slots=True)
class Schema:
    """A row's sources: names in order; `?` marks an optional one, `...` any number, `+` one or more of them."""

    text: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(n.rstrip("?+.") for n in self.text.split())

    @property
    def least(self) -> int:
        return sum(not n.endswith(("?", "...")) for n in self.text.split())

    @property
    def most(self) -> int | None:
        """None where the last name repeats."""
        return None if self.text.endswith(("...", "+")) else len(self.names)

    def name_of(self, position: int) -> str:
        return self.names[min(position, len(self.names) - 1)]

    def is_value(self, position: int) -> bool:
        return self.name_of(position) not in _ANY


def schema_claim(op: Op, schema: Schema) -> Draft:
    """C1 of a row."""
    kind = ARG_TYPE.get(op)
    arg = "no arg" if kind is None else f"{kind.__name__} or no arg" if op in ARG_OPTIONAL else kind.__name__
    least, most = schema.least, schema.most
    fixed = tuple(schema.is_value(k) for k in range(len(schema.names)))
    last = fixed[-1] if fixed else True
    all_values = all(fixed)

    def check(u: UOp, ctx: Context) -> str | None:
        n = len(u.src)
        if n < least or (most is not None and n > most):
            return f"needs {_count(least, most)}, got {n}"
        fault = arg_fault(op, u.arg)
        if fault is not None:
            return fault
        for k, s in enumerate(u.src):
            if s.dtype is dt.void and (all_values or (fixed[k] if k < len(fixed) else last)):
                return f"source {k} ({schema.name_of(k)}) is void"
        return too_many_axes(u)

    return Draft(f"sources ({schema.text}), {arg}", check, gate=True)


def _count(least: int, most: int | None) -> str:
    n = f"at least {least}" if most is None else str(least) if least == most else f"{least} to {most}"
    return f"{n} source{'s' * (n != '1')}"


# -------------------------------------------------------------------------------------------------------------- dtypes


def numeric(d: DType) -> bool:
    """An integer, index or float."""
    return d.is_integer or d.is_float


def integer(d: DType) -> bool:
    return d.is_integer


def floating(d: DType) -> bool:
    return d.is_float


def bits(d: DType) -> bool:
    """What Xor, Or and And take: bool, integers and index."""
    return d.is_integer or d is dt.bool_


def boolean(d: DType) -> bool:
    return d is dt.bool_


def storable(d: DType) -> bool:
    """What a buffer can hold."""
    return d is not dt.void and d is not dt.index


def dtype_is(names: str, legal: Callable[[DType], bool], words: str, ruling: str, *positions: int, gate: bool = False) -> Draft:
    """The dtype of each source at `positions`, where present, is legal."""

    def check(u: UOp, ctx: Context) -> str | None:
        for k in positions:
            if k < len(u.src) and not legal(u.src[k].dtype):
                return f"source {k} is {u.src[k].dtype}"
        return None

    return Draft(f"{names} {words}", check, ruling, gate)


def arg_dtype_is(legal: Callable[[DType], bool], words: str, ruling: str) -> Draft:
    def check(u: UOp, ctx: Context) -> str | None:
        return None if legal(u.arg.dtype) else f"got {u.arg.dtype}"

    return Draft(f"dtype is {words}", check, ruling, gate=True)


def same_dtype(names: str, first: int = 0, last: int | None = None) -> Draft:
    """Sources first..last have one dtype (R25)."""

    def check(u: UOp, ctx: Context) -> str | None:
        src = u.src[first:last]
        for s in src:
            if s.dtype is not src[0].dtype:
                return f"{src[0].dtype} and {s.dtype}"
        return None

    return Draft(f"{names} have one dtype", check, "R25")


# -------------------------------------------------------------------------------------------------------------- shapes


def _broadcasts(u: UOp, ctx: Context) -> str | None:
    first = u.src[0].shape
    for s in u.src:
        if s.shape != first:
            try:
                broadcast_shapes([s.shape for s in u.src])
            except SpecError:
                return f"got {', '.join(show_shape(s.shape) for s in u.src)}"
            return None
    return None


BROADCAST = Draft("shapes broadcast: right-aligned, each axis equal or 1", _broadcasts, "R41")


def same_shape_as(names: str, *positions: int, ruling: str = "") -> Draft:
    """Sources at `positions` have one shape."""

    def check(u: UOp, ctx: Context) -> str | None:
        found = [u.src[k].shape for k in positions if k < len(u.src)]
        for s in found[1:]:
            if not same_shape(s, found[0]):
                return f"needs {show_shape(found[0])}, got {show_shape(s)}"
        return None

    return Draft(f"{names} have one shape", check, ruling)


def all_same_shape(u: UOp, ctx: Context) -> str | None:
    for k, s in enumerate(u.src):
        if not same_shape(s.shape, u.src[0].shape):
            return f"source {k} needs {show_shape(u.src[0].shape)}, got {show_shape(s.shape)}"
    return None


def scalar(name: str, position: int, ruling: str = "", gate: bool = False) -> Draft:
    """The source at `position`, where present, has shape ()."""

    def check(u: UOp, ctx: Context) -> str | None:
        if position < len(u.src) and u.src[position].shape != ():
            return f"got {show_shape(u.src[position].shape)}"
        return None

    return Draft(f"{name} has shape ()", check, ruling, gate)


def shape_operands(names: str, *positions: int) -> Draft:
    """The sources at `positions` are Stacks of () index expressions over constants and named variables (R40, R48)."""

    def check(u: UOp, ctx: Context) -> str | None:
        for k in positions:
            v = u.src[k]
            if v.op is not Op.STACK:
                return f"source {k} is {v.op.name.lower()}, not a Stack"
            for n, s in enumerate(v.src):
                if s.op is Op.CONST:
                    continue
                if s.dtype is not dt.index or s.shape != ():
                    return f"entry {n} of source {k} is no () index"
                if not ctx.is_size(s):
                    return f"entry {n} of source {k} is no expression over constants and named variables"
            if v.dtype is not dt.index:
                return f"source {k} is {v.dtype}"
        return None

    return Draft(f"{names}: 1-D index vectors, Stacks of sizes", check, "R40", gate=True)


def rank_of_source(names: str, *positions: int) -> Draft:
    """The shape operands at `positions` have one entry per axis of source 0."""

    def check(u: UOp, ctx: Context) -> str | None:
        rank = len(u.src[0].shape)
        for k in positions:
            if len(u.src[k].src) != rank:
                return f"source {k} needs {rank} entries, got {len(u.src[k].src)}"
        return None

    return Draft(f"{names}: one entry per axis of T", check, gate=True)


def entries_not_negative(name: str, position: int, ruling: str = "") -> Draft:
    def check(u: UOp, ctx: Context) -> str | None:
        for k, s in enumerate(u.src[position].src):
            d = s.arg.value if s.op is Op.CONST else s
            if not not_negative(d):
                return f"axis {k} needs at least 0, got {show(d)}"
        return None

    return Draft(f"{name} >= 0", check, ruling)


def axes_valid(text: str, ruling: str) -> Draft:
    """arg.axes are distinct axes of source 0."""

    def check(u: UOp, ctx: Context) -> str | None:
        axes, rank = u.arg.axes, len(u.src[0].shape)
        if len(set(axes)) != len(axes):
            return f"axes {axes} repeat"
        wrong = [a for a in axes if not 0 <= a < rank]
        return f"axis {wrong[0]} of rank {rank}" if wrong else None

    return Draft(text, check, ruling, gate=True)


# ----------------------------------------------------------------------------------------------------- devices and axes


def _one_device(u: UOp, ctx: Context) -> str | None:
    found = None
    for s in u.src:
        d = s.device
        if d is not None:
            if found is None:
                found = d
            elif d != found:
                return f"{found} and {d}"
    return None


SAME_DEVICE = Draft("source devices are equal or null", _one_device, "R72")


def sharded(u: UOp) -> bool:
    """Whether any source may have a sharded axis: only an n-tuple device has one."""
    return any(type(s.device) is tuple for s in u.src)


def _one_axis(u: UOp, ctx: Context) -> str | None:
    if not sharded(u):
        return None
    found = {s.axis - len(s.shape): k for k, s in enumerate(u.src) if s.axis is not None}
    return f"axes {sorted(found)} from the right" if len(found) > 1 else None


SAME_AXIS = Draft("sharded axes, right-aligned, agree or are null", _one_axis, "R74")


def off_the_axis(changes: Callable[[UOp, int], bool], what: str) -> Draft:
    """`changes(u, axis)`: whether the node acts on the sharded axis of its first source."""

    def check(u: UOp, ctx: Context) -> str | None:
        if type(u.src[0].device) is not tuple or u.src[0].axis is None:
            return None
        a = u.src[0].axis
        return f"axis {a} is sharded over {len(u.src[0].device)} devices" if changes(u, a) else None

    return Draft(f"no {what} on the sharded axis", check, "R74")


# ---------------------------------------------------------------------------------------------------------------- other


def source_ops(name: str, position: int, ops: frozenset[Op], ruling: str = "") -> Draft:
    """The op of the source at `position`, where present."""
    words = " or ".join(sorted(o.name.lower() for o in ops))

    def check(u: UOp, ctx: Context) -> str | None:
        if position < len(u.src) and u.src[position].op not in ops:
            return f"got {u.src[position].op.name.lower()}"
        return None

    return Draft(f"{name} is {words}", check, ruling, gate=True)


def ranges_from(position: int, ops: frozenset[Op] = frozenset({Op.RANGE})) -> Draft:
    """Every source from `position` on is a Range."""

    def check(u: UOp, ctx: Context) -> str | None:
        for k, s in enumerate(u.src[position:], position):
            if s.op not in ops:
                return f"source {k} is {s.op.name.lower()}"
        if len(set(u.src[position:])) != len(u.src) - position:
            return "a range is named twice"
        return None

    return Draft("the closed sources are distinct Ranges", check, "R58", gate=True)


def reference(name: str, position: int) -> Draft:
    """The source is a Buffer, a Param or an injective view of one (R51)."""

    def check(u: UOp, ctx: Context) -> str | None:
        if ctx.base(u.src[position]) is None:
            return f"got {ctx.not_a_reference(u.src[position])}"
        return None

    return Draft(f"{name} is a reference: a Buffer, a Param, or a view of one that is no Expand and no Pad", check, "R51")


def named(field: str) -> Draft:
    """A text field of arg is not empty."""

    def check(u: UOp, ctx: Context) -> str | None:
        return None if getattr(u.arg, field) else f"{field} is empty"

    return Draft(f"{field} is not empty", check)
