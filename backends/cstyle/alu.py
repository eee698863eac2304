"""The elementwise ops of a SELECTED kernel as C expressions: one small function per op, one table.

Every expression is total (P2): it is defined by the language for all operands. Signed integers are computed as unsigned ones
unless bounds prove that nothing overflows; a guard is left out only where `min_max` decides it. Operands are names or literals.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from uops.backends.cstyle.helpers import FROM_U64, word
from uops.backends.cstyle.language import ALIAS, WORD, Needs, bits, exact, integer
from uops.backends.facts import bounds, column, excludes, opposed, within
from uops.spec.errors import Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Takes where helpers are asked for, the node and its operands; gives an expression.
Emit = Callable[..., str]

# Operators: op -> spelling per class of the operands' dtype. A missing class is a form that the verifier rejects (R09, R10).
# fmt: off
OPERATOR: dict[Op, dict[str, str]] = {
    Op.ADD: {"b": "|", "s": "+", "u": "+", "f": "+"},
    Op.SUB: {          "s": "-", "u": "-", "f": "-"},
    Op.MUL: {"b": "&", "s": "*", "u": "*", "f": "*"},
    Op.DIV: {                              "f": "/"},
    Op.AND: {"b": "&", "s": "&", "u": "&"},
    Op.OR:  {"b": "|", "s": "|", "u": "|"},
    Op.XOR: {"b": "^", "s": "^", "u": "^"},
}
#: R12, R13: with a NaN every comparison of C is false but !=.
COMPARISON: dict[Op, str] = {
    Op.CMPLT: "<", Op.CMPGT: ">", Op.CMPLE: "<=", Op.CMPGE: ">=", Op.CMPEQ: "==", Op.CMPNE: "!=",
}
#: What wraps on integers, and the exact results, whose extremes are at the extremes of the operands.
_EXACT: dict[Op, Callable[[float, float], float]] = {Op.ADD: operator.add, Op.SUB: operator.sub, Op.MUL: operator.mul}
# fmt: on


def _operator(needs: Needs, op: Op, d: DType) -> str:
    found = OPERATOR[op].get(column(d))
    if found is None:
        raise Unsupported(f"{op.name} of {d}", needs.language.name)
    return found


def arithmetic(needs: Needs, op: Op, d: DType, x: str, y: str, *, fits: bool = False) -> str:
    """`x op y` in dtype `d`, wrapping; `fits` says that the exact result is known to be one of `d`."""
    o = _operator(needs, op, d)
    if op not in _EXACT or d.is_float or d is dt.bool_ or (not d.is_signed and d.bits >= 32):
        return f"{x} {o} {y}"
    if fits and bits(d) >= 32:
        return f"{x} {o} {y}"
    return f"({ALIAS[d]})(({word(d)}){x} {o} ({word(d)}){y})"


def binary(needs: Needs, u: UOp, x: str, y: str) -> str:
    return arithmetic(needs, u.op, u.dtype, x, y, fits=_fits(u))


def _fits(u: UOp) -> bool:
    """Whether an integer Add, Sub or Mul cannot overflow."""
    if u.op not in _EXACT or u.dtype.is_float or u.dtype is dt.bool_:
        return False
    (a, A), (b, B) = bounds(u.src[0]), bounds(u.src[1])
    if not all(map(math.isfinite, (a, A, b, B))):
        return False
    combined = _EXACT[u.op]
    corners = [combined(x, y) for x in (a, A) for y in (b, B)]
    top = 1 << (bits(u.dtype) - u.dtype.is_signed)
    return -top * u.dtype.is_signed <= min(corners) and max(corners) < top


def comparison(needs: Needs, u: UOp, x: str, y: str) -> str:
    return f"{x} {COMPARISON[u.op]} {y}"


def maximum(needs: Needs, u: UOp, x: str, y: str) -> str:
    """R11: a float Max is NaN if either operand is."""
    if u.dtype is dt.bool_:
        return f"{x} | {y}"
    return f"{x} > {y} || {x} != {x} ? {x} : {y}" if u.dtype.is_float else f"{x} > {y} ? {x} : {y}"


def negate(needs: Needs, u: UOp, x: str) -> str:
    """R21: the sign bit of a float flips, NaN or not (C's minus need not flip a NaN's, and TinyCC's is a subtraction); integers
    wrap."""
    d = u.dtype
    if d.is_float:
        w = WORD[d]
        sign = integer(1 << (d.bits - 1), w)
        return f"{needs.helper('reinterpret', w, d)}({needs.helper('reinterpret', d, w)}({x}) ^ {sign})"
    return f"({ALIAS[d]})({integer(0, dt.uint64 if bits(d) == 64 else dt.uint32)} - ({word(d)}){x})"


def invert(needs: Needs, u: UOp, x: str) -> str:
    return f"!{x}"


def reciprocal(needs: Needs, u: UOp, x: str) -> str:
    return f"{exact(1.0, u.dtype)} / {x}"


def function(needs: Needs, u: UOp, *x: str) -> str:
    """An operation that the language has as a function, correctly rounded."""
    found = needs.language.functions.get((u.op, u.dtype))
    if found is None:
        raise Unsupported(f"{u.op.name} of {u.dtype}", needs.language.name)
    return f"{found}({', '.join(x)})"


def truncate(needs: Needs, u: UOp, x: str) -> str:
    """R10: the identity on integers."""
    if not u.dtype.is_float:
        return x
    known = (u.op, u.dtype) in needs.language.functions
    return function(needs, u, x) if known else f"{needs.helper('trunc', u.dtype)}({x})"


def multiply_add(needs: Needs, u: UOp, x: str, y: str, z: str) -> str:
    """One rounding on floats; on bool (x and y) or z (R09)."""
    if u.dtype.is_float:
        return function(needs, u, x, y, z)
    return arithmetic(needs, Op.ADD, u.dtype, f"({arithmetic(needs, Op.MUL, u.dtype, x, y)})", z)


def select(needs: Needs, u: UOp, p: str, x: str, y: str) -> str:
    """R28: a conditional expression keeps every bit, a NaN's payload too."""
    return f"{p} ? {x} : {y}"


# Integer division (R01 to R04).


def idiv(needs: Needs, u: UOp, x: str, y: str) -> str:
    """floor(x / y); 0 for y = 0."""
    return _divide(needs, u, x, y, "/", "idiv", integer(0, u.dtype))


def mod(needs: Needs, u: UOp, x: str, y: str) -> str:
    """x - y * floor(x / y); x for y = 0."""
    return _divide(needs, u, x, y, "%", "mod", x)


def _divide(needs: Needs, u: UOp, x: str, y: str, operator: str, kind: str, at_zero: str) -> str:
    """The machine's division where it floors and cannot fault, else a helper."""
    nonzero = excludes(u.src[1], 0)
    if not u.dtype.is_signed:
        return f"{x} {operator} {y}" if nonzero else f"{y} != 0 ? {x} {operator} {y} : {at_zero}"
    if nonzero and excludes(u.src[1], -1) and not opposed(u):
        return f"{x} {operator} {y}"
    return f"{needs.helper(kind, u.dtype)}({x}, {y})"


# Shifts (R06, R07): the count, of any integer dtype, is read as unsigned; one that is too large gives 0 or the sign fill.


def shift(needs: Needs, u: UOp, x: str, n: str) -> str:
    d, width, count = u.dtype, bits(u.dtype), u.src[1]
    sure = within(count, 0, width - 1)
    if not sure and count.dtype.is_signed:
        n = f"(u{bits(count.dtype)}){n}"
    if u.op is Op.SHR and d.is_signed:
        return f"{x} >> {n}" if sure else f"{x} >> ({n} < {width}u ? {n} : {width - 1}u)"
    moved = f"{x} >> {n}" if u.op is Op.SHR else f"({ALIAS[d]})(({word(d)}){x} << {n})"
    return moved if sure else f"{n} < {width}u ? {moved} : {integer(0, d)}"


# Casts (R15) and Bitcast (R46).


def cast(needs: Needs, u: UOp, x: str) -> str:
    source, target = u.src[0].dtype, u.dtype
    return x if source is target else CAST[column(source) + column(target)](needs, source, target, x)


def _to_bool(needs: Needs, source: DType, target: DType, x: str) -> str:
    """x != 0, so a NaN is true."""
    return f"{x} != {exact(0.0, source) if source.is_float else '0'}"


def _convert(needs: Needs, source: DType, target: DType, x: str) -> str:
    """C's conversion: integers wrap, floats are rounded once to nearest even."""
    return f"({ALIAS[target]}){x}"


def _unsigned_to_float(needs: Needs, source: DType, target: DType, x: str) -> str:
    if source is dt.uint64 and target in FROM_U64 and not needs.language.wide_unsigned:
        return f"{needs.helper('from_u64', target)}({x})"
    return _convert(needs, source, target, x)


def _float_to_int(needs: Needs, source: DType, target: DType, x: str) -> str:
    return f"{needs.helper('saturate', source, dt.int64 if target is dt.index else target)}({x})"


# fmt: off
CAST: dict[str, Callable[[Needs, DType, DType, str], str]] = {
    "bs": _convert, "bu": _convert,      "bf": _convert,
    "sb": _to_bool, "ss": _convert,      "su": _convert,      "sf": _convert,
    "ub": _to_bool, "us": _convert,      "uu": _convert,      "uf": _unsigned_to_float,
    "fb": _to_bool, "fs": _float_to_int, "fu": _float_to_int, "ff": _convert,
}
# fmt: on


def bitcast(needs: Needs, u: UOp, x: str) -> str:
    """The same bits in a dtype of the same size; a bool is its byte."""
    source, target = u.src[0].dtype, u.dtype
    if source is target:
        return x
    if target is dt.bool_:
        return f"{x} != 0"
    if not source.is_float and not target.is_float:
        return f"({ALIAS[target]}){x}"
    return f"{needs.helper('reinterpret', source, target)}({x})"


EMIT: dict[Op, Emit] = {
    **dict.fromkeys(OPERATOR, binary),
    **dict.fromkeys(COMPARISON, comparison),
    Op.MAX: maximum,
    Op.NEG: negate,
    Op.NOT: invert,
    Op.RECIP: reciprocal,
    Op.SQRT: function,
    Op.TRUNC: truncate,
    Op.MULACC: multiply_add,
    Op.WHERE: select,
    Op.IDIV: idiv,
    Op.MOD: mod,
    Op.SHL: shift,
    Op.SHR: shift,
    Op.CAST: cast,
    Op.BITCAST: bitcast,
}
