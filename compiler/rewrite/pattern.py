"""Patterns, in which both sides of a rewrite rule and its condition are written.

A pattern is data. It is matched against a node, instantiated to a node, printed, and enumerated when a rule is checked or proved.
Variables and constants combine by Python's operators: `x // c`, `(x + y) % c`, `(x >= 0) & (x < c)`. A Python number in a pattern
stands for the Const of that value in the dtype of its neighbour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from uops.spec.errors import Crash
from uops.spec.ir import args as A
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass

#: The node of each variable of a pattern, and the dtype of each type variable.
Binding = dict[str, "UOp | DType"]

INDEX = (dt.index,)
MACHINE_INTS = dt.INTS
ALL_INTS = (*dt.INTS, dt.index)
BOOL = (dt.bool_,)
VALUES = (*dt.STORABLE, dt.index)
#: Ops whose operands may be swapped.
COMMUTATIVE = (Op.ADD, Op.MUL, Op.MAX, Op.AND, Op.OR, Op.XOR, Op.CMPNE, Op.CMPEQ)


@dataclass(frozen=True, slots=True)
class TypeVar:
    """A variable for a dtype, one of `among`."""

    name: str
    among: tuple[DType, ...] = VALUES


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """A variable (`name`), a literal (`value`) or an operation (`op`, `src`; `to` is the dtype of a Cast or Bitcast)."""

    op: Op | None = None
    src: tuple[Pattern, ...] = ()
    name: str | None = None
    constant: bool = False
    dtypes: tuple[DType, ...] = VALUES
    value: bool | int | float | None = None
    to: DType | TypeVar | None = None

    def __add__(self, other: object) -> Pattern:
        return operation(Op.ADD, self, other)

    def __radd__(self, other: object) -> Pattern:
        return operation(Op.ADD, other, self)

    def __sub__(self, other: object) -> Pattern:
        return operation(Op.SUB, self, other)

    def __mul__(self, other: object) -> Pattern:
        return operation(Op.MUL, self, other)

    def __rmul__(self, other: object) -> Pattern:
        return operation(Op.MUL, other, self)

    def __floordiv__(self, other: object) -> Pattern:
        return operation(Op.IDIV, self, other)

    def __mod__(self, other: object) -> Pattern:
        return operation(Op.MOD, self, other)

    def __neg__(self) -> Pattern:
        return operation(Op.NEG, self)

    def __lt__(self, other: object) -> Pattern:
        return operation(Op.CMPLT, self, other)

    def __le__(self, other: object) -> Pattern:
        return operation(Op.CMPLE, self, other)

    def __gt__(self, other: object) -> Pattern:
        return operation(Op.CMPGT, self, other)

    def __ge__(self, other: object) -> Pattern:
        return operation(Op.CMPGE, self, other)

    def __and__(self, other: object) -> Pattern:
        return operation(Op.AND, self, other)

    def __or__(self, other: object) -> Pattern:
        return operation(Op.OR, self, other)

    def __xor__(self, other: object) -> Pattern:
        return operation(Op.XOR, self, other)

    def __lshift__(self, other: object) -> Pattern:
        return operation(Op.SHL, self, other)

    def __rshift__(self, other: object) -> Pattern:
        return operation(Op.SHR, self, other)

    def __str__(self) -> str:
        return format_pattern(self)


def operation(op: Op, *operands: object, to: DType | TypeVar | None = None) -> Pattern:
    """Return an ALU pattern over patterns and Python numbers; `to` is the dtype of a Cast or Bitcast."""
    return Pattern(op, tuple(map(as_pattern, operands)), to=to)


def as_pattern(v: object) -> Pattern:
    """Return a pattern as it is, and a Python number as a literal. Raises TypeError for anything else."""
    if isinstance(v, Pattern):
        return v
    if isinstance(v, (bool, int, float)):
        return Pattern(value=v)
    raise TypeError(f"expected a pattern or a number, got {v!r}")


def var(name: str, dtypes: Iterable[DType] = VALUES) -> Pattern:
    """Return a variable for any node of one of `dtypes`; all uses of one name match the same node."""
    return Pattern(name=name, dtypes=tuple(dtypes))


def cst(name: str, dtypes: Iterable[DType] = VALUES) -> Pattern:
    """Return a variable for a Const of one of `dtypes`."""
    return Pattern(name=name, constant=True, dtypes=tuple(dtypes))


def where(p: object, a: object, b: object) -> Pattern:
    """Return the pattern of a Where."""
    return operation(Op.WHERE, p, a, b)


def eq(a: object, b: object) -> Pattern:
    """Return the pattern of a CmpEq."""
    return operation(Op.CMPEQ, a, b)


def ne(a: object, b: object) -> Pattern:
    """Return the pattern of a CmpNe."""
    return operation(Op.CMPNE, a, b)


def cast(x: Pattern, to: DType | TypeVar) -> Pattern:
    """Return the pattern of a Cast to a dtype."""
    return operation(Op.CAST, x, to=to)


def bitcast(x: Pattern, to: DType | TypeVar) -> Pattern:
    """Return the pattern of a Bitcast to a dtype."""
    return operation(Op.BITCAST, x, to=to)


def not_(x: Pattern) -> Pattern:
    """Return the pattern of a Not."""
    return operation(Op.NOT, x)


def maximum(a: object, b: object) -> Pattern:
    """Return the pattern of a Max."""
    return operation(Op.MAX, a, b)


# Matching


def match_pattern_and_bind(p: Pattern, u: UOp, binding: Binding) -> bool:
    """Return True if `u` has the form of `p`, and add its variables to `binding`, which is invalid after False."""
    if p.op is not None:
        if u.op is not p.op or len(u.src) != len(p.src) or not _match_cast_type_and_bind(p, u, binding):
            return False
        return all(match_pattern_and_bind(q, s, binding) for q, s in zip(p.src, u.src))
    if p.name is None:
        return u.op is Op.CONST and is_const_matched_by_literal(u.arg, p.value)
    if p.constant and u.op is not Op.CONST:
        return False
    seen = binding.get(p.name)
    if seen is not None:
        return seen is u
    if u.dtype not in p.dtypes:
        return False
    binding[p.name] = u
    return True


def _match_cast_type_and_bind(p: Pattern, u: UOp, binding: Binding) -> bool:
    if p.to is None:
        return True
    if isinstance(p.to, DType):
        return u.arg.dtype is p.to
    seen = binding.setdefault(p.to.name, u.arg.dtype)
    return seen is u.arg.dtype and u.arg.dtype in p.to.among


def is_const_matched_by_literal(arg: A.ConstArg, value: object) -> bool:
    """Return True if a Const has this value, by bits for floats (R23, Const).

    A bool stands for a Const of bool alone, a float for one of a float dtype, and an int for one of any dtype.
    """
    assert isinstance(value, (bool, int, float))
    if isinstance(value, bool) and arg.dtype is not dt.bool_:
        return False
    if isinstance(value, float) and not arg.dtype.is_float:
        return False
    may_be_equal = arg.value == value or value != value  # of a NaN, the bits decide
    return may_be_equal and arg == A.ConstArg(coerce_literal(value, arg.dtype), arg.dtype)


def coerce_literal(value: bool | int | float, d: DType) -> bool | int | float:
    """Convert a number to the Python type of constants of `d`."""
    return bool(value) if d is dt.bool_ else float(value) if d.is_float else int(value)


# Instantiating


def instantiate(p: Pattern, binding: Mapping[str, UOp | DType], root_literal_dtype: DType | None = None) -> UOp:
    """Return the node that `p` spells under a binding; `root_literal_dtype` is the dtype of a literal at the root."""
    if p.name is not None:
        node = binding[p.name]
        assert isinstance(node, UOp)
        return node
    if p.op is None:
        if root_literal_dtype is None:
            raise Crash(f"literal {p.value!r} has no neighbour to take its dtype from")
        assert p.value is not None
        return UOp(Op.CONST, (), A.ConstArg(coerce_literal(p.value, root_literal_dtype), root_literal_dtype))
    built = [None if q.op is None and q.name is None else instantiate(q, binding) for q in p.src]
    sibling = _make_literal_dtype_lookup(p, built, root_literal_dtype)
    src = tuple(b if b is not None else instantiate(q, binding, sibling(k)) for k, (q, b) in enumerate(zip(p.src, built)))
    return UOp(p.op, src, _cast_arg(p, binding))


def _make_literal_dtype_lookup(
    p: Pattern, built_sources: list[UOp | None], literal_dtype: DType | None
) -> Callable[[int], DType | None]:
    """Return the dtype of a literal operand by position: that of its neighbours. A Where's condition is bool and no neighbour."""
    first = 1 if p.op is Op.WHERE else 0
    sibling = next((b.dtype for b in built_sources[first:] if b is not None), literal_dtype)
    return lambda k: dt.bool_ if k < first else sibling


def _cast_arg(p: Pattern, binding: Mapping[str, UOp | DType]) -> A.CastArg | A.BitcastArg | None:
    if p.to is None:
        return None
    d = binding[p.to.name] if isinstance(p.to, TypeVar) else p.to
    assert isinstance(d, DType)
    return A.BitcastArg(d) if p.op is Op.BITCAST else A.CastArg(d)


# Looking at a pattern


def variables(p: Pattern) -> dict[str, Pattern]:
    """Return the variables of a pattern by name, in order of first use."""
    by_name: dict[str, Pattern] = {}
    pending = [p]
    while pending:
        q = pending.pop()
        if q.name is not None:
            by_name.setdefault(q.name, q)
        pending.extend(reversed(q.src))
    return by_name


_SIGN = {
    Op.ADD: "+", Op.SUB: "-", Op.MUL: "*", Op.IDIV: "//", Op.MOD: "%",
    Op.AND: "&", Op.OR: "|", Op.XOR: "^", Op.SHL: "<<", Op.SHR: ">>",
    Op.CMPLT: "<", Op.CMPLE: "<=", Op.CMPGT: ">", Op.CMPGE: ">=", Op.CMPEQ: "==", Op.CMPNE: "!=",
}  # fmt: skip


def format_pattern(p: Pattern) -> str:
    """Return the text of a pattern, with Python's operators."""
    if p.name is not None:
        return p.name
    if p.op is None:
        return repr(p.value)
    parts = [format_pattern(q) for q in p.src]
    if p.op in _SIGN:
        lhs, rhs = parts
        return f"({lhs} {_SIGN[p.op]} {rhs})"
    to = "" if p.to is None else f", {p.to.name}"
    return f"{p.op.name.lower()}({', '.join(parts)}{to})"
