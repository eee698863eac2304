"""Elementwise ops of a SELECTED kernel as C expressions: one small function per op, and a table of them.

Takes: a node and its operands, as names or literals. Gives: an expression. Every expression is total (P2): the language defines it
for all operands. Signed integers are computed as unsigned ones unless bounds prove that nothing overflows. A guard is left out
only if `min_max` decides it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from uops.backends.cstyle.helpers import unsigned_word_type
from uops.backends.cstyle.language import ALIAS, HelperProvider, render_finite_float, render_integer
from uops.backends.facts import dtype_class_letter, is_within, may_differ_in_sign, never_equals, value_bounds
from uops.spec.errors import Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Takes a HelperProvider, the node and its operands; gives an expression.
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
#: Ops that wrap on integers -> the exact result, whose extremes are at the extremes of the operands.
_EXACT: dict[Op, Callable[[float, float], float]] = {Op.ADD: operator.add, Op.SUB: operator.sub, Op.MUL: operator.mul}
# fmt: on


def _lookup_operator(needs: HelperProvider, op: Op, d: DType) -> str:
    """Return the C operator of an op on dtype `d`. Raises Unsupported."""
    spelling = OPERATOR[op].get(dtype_class_letter(d))
    if spelling is None:
        raise Unsupported(f"{op.name} of {d}", needs.language.name)
    return spelling


def render_wrapping_arithmetic(needs: HelperProvider, op: Op, d: DType, x: str, y: str, *, cannot_overflow: bool = False) -> str:
    """Return `x op y` in dtype `d`, wrapping. `cannot_overflow` states that the exact result is a value of `d`."""
    o = _lookup_operator(needs, op, d)
    if op not in _EXACT or d.is_float or d is dt.bool_ or (not d.is_signed and d.bits >= 32):
        return f"{x} {o} {y}"
    if cannot_overflow and d.storage.bits >= 32:
        return f"{x} {o} {y}"
    return render_wrapped(needs, d, f"({unsigned_word_type(d)}){x} {o} ({unsigned_word_type(d)}){y}")


def render_wrapped(needs: HelperProvider, d: DType, expression: str) -> str:
    """Return the conversion of an integer to `d`, which wraps, as C's does; by a function where the toolchain's is wrong."""
    function = needs.language.wrapping_functions.get(d)
    return f"({ALIAS[d]})({expression})" if function is None else f"{needs.define_function(*function)}({expression})"


def render_binary(needs: HelperProvider, u: UOp, x: str, y: str) -> str:
    """Return a binary operator applied to its operands."""
    if _is_computed_in_float64(needs, u):
        return f"(f32)((f64){x} {_lookup_operator(needs, u.op, dt.float64)} (f64){y})"
    return render_wrapping_arithmetic(needs, u.op, u.dtype, x, y, cannot_overflow=_cannot_overflow(u))


def _cannot_overflow(u: UOp) -> bool:
    """Return True if bounds prove that an integer Add, Sub or Mul does not overflow."""
    if u.op not in _EXACT or u.dtype.is_float or u.dtype is dt.bool_:
        return False
    (a, A), (b, B) = value_bounds(u.lhs), value_bounds(u.rhs)
    if not all(map(math.isfinite, (a, A, b, B))):
        return False
    combined = _EXACT[u.op]
    corners = [combined(x, y) for x in (a, A) for y in (b, B)]
    top = 1 << (u.dtype.storage.bits - u.dtype.is_signed)
    return -top * u.dtype.is_signed <= min(corners) and max(corners) < top


def _is_computed_in_float64(needs: HelperProvider, u: UOp) -> bool:
    """Return True for an op of float32 that the toolchain does not round correctly.

    Rounding a quotient or square root of float32 to 53 bits and then to 24 gives what one rounding gives. Its distance from every
    middle of two float32, subnormal ones too, is more than the first rounding changes (Figueroa, 1995: 53 >= 2 * 24 + 2).
    """
    return u.dtype is dt.float32 and u.op in needs.language.float32_by_float64


def render_comparison(needs: HelperProvider, u: UOp, x: str, y: str) -> str:
    """Return a comparison."""
    return f"{x} {COMPARISON[u.op]} {y}"


def render_max(needs: HelperProvider, u: UOp, x: str, y: str) -> str:
    """Return the maximum; a float Max is NaN if either operand is (R11)."""
    if u.dtype is dt.bool_:
        return f"{x} | {y}"
    return f"{x} > {y} || {x} != {x} ? {x} : {y}" if u.dtype.is_float else f"{x} > {y} ? {x} : {y}"


def render_neg(needs: HelperProvider, u: UOp, x: str) -> str:
    """Return the negation; integers wrap, and floats flip the sign bit of NaNs too (R21).

    C's minus need not flip a NaN's sign, and TinyCC's is a subtraction, so the bit is flipped as an integer.
    """
    d = u.dtype
    if d.is_float:
        w = d.word
        sign = render_integer(1 << (d.bits - 1), w)
        return f"{needs.require_helper('reinterpret', w, d)}({needs.require_helper('reinterpret', d, w)}({x}) ^ {sign})"
    zero = render_integer(0, dt.uint64 if d.storage.bits == 64 else dt.uint32)
    return render_wrapped(needs, d, f"{zero} - ({unsigned_word_type(d)}){x}")


def render_not(needs: HelperProvider, u: UOp, x: str) -> str:
    """Return the negation of a bool."""
    return f"!{x}"


def render_recip(needs: HelperProvider, u: UOp, x: str) -> str:
    """Return the reciprocal."""
    if _is_computed_in_float64(needs, u):
        return f"(f32)({render_finite_float(1.0, dt.float64)} / (f64){x})"
    return f"{render_finite_float(1.0, u.dtype)} / {x}"


def render_call_of_correctly_rounding_function(needs: HelperProvider, u: UOp, *x: str) -> str:
    """Return a call of a function that the language rounds correctly. Raises Unsupported."""
    if _is_computed_in_float64(needs, u):
        wide = needs.language.functions[u.op, dt.float64]
        return f"{needs.require_helper('fma', dt.float32)}({', '.join(x)})" if len(x) == 3 else f"(f32){wide}((f64){x[0]})"
    name = needs.language.functions.get((u.op, u.dtype))
    if name is None:
        raise Unsupported(f"{u.op.name} of {u.dtype}", needs.language.name)
    return f"{name}({', '.join(x)})"


def render_trunc(needs: HelperProvider, u: UOp, x: str) -> str:
    """Return the truncation toward zero; the identity on integers (R10)."""
    if not u.dtype.is_float:
        return x
    has_function = (u.op, u.dtype) in needs.language.functions
    return (
        render_call_of_correctly_rounding_function(needs, u, x)
        if has_function
        else f"{needs.require_helper('trunc', u.dtype)}({x})"
    )


def render_mulacc(needs: HelperProvider, u: UOp, x: str, y: str, z: str) -> str:
    """Return x * y + z, rounded once on floats; on bools, (x and y) or z (R09)."""
    if u.dtype.is_float:
        return render_call_of_correctly_rounding_function(needs, u, x, y, z)
    return render_wrapping_arithmetic(needs, Op.ADD, u.dtype, f"({render_wrapping_arithmetic(needs, Op.MUL, u.dtype, x, y)})", z)


def render_where(needs: HelperProvider, u: UOp, p: str, x: str, y: str) -> str:
    """Return a conditional expression, which keeps every bit, a NaN's payload too (R28)."""
    return f"{p} ? {x} : {y}"


# Integer division (R01 to R04).


def render_idiv(needs: HelperProvider, u: UOp, x: str, y: str) -> str:
    """Return floor(x / y); 0 for y = 0 (R03)."""
    return _render_floor_division_by_operator_or_helper(needs, u, x, y, "/", "idiv", render_integer(0, u.dtype))


def render_mod(needs: HelperProvider, u: UOp, x: str, y: str) -> str:
    """Return x - y * floor(x / y); x for y = 0 (R03)."""
    return _render_floor_division_by_operator_or_helper(needs, u, x, y, "%", "mod", x)


def _render_floor_division_by_operator_or_helper(
    needs: HelperProvider, u: UOp, x: str, y: str, operator: str, helper_kind: str, unsigned_result_at_zero_divisor: str
) -> str:
    """Return the machine's division if it floors and cannot fault; otherwise a call of a helper."""
    nonzero = never_equals(u.rhs, 0)
    if not u.dtype.is_signed:
        return f"{x} {operator} {y}" if nonzero else f"{y} != 0 ? {x} {operator} {y} : {unsigned_result_at_zero_divisor}"
    if nonzero and never_equals(u.rhs, -1) and not may_differ_in_sign(u):
        return f"{x} {operator} {y}"
    return f"{needs.require_helper(helper_kind, u.dtype)}({x}, {y})"


# Shifts (R06, R07): the count has any integer dtype and is read as unsigned. A count of the width or more gives 0 or the sign fill.


def render_shift(needs: HelperProvider, u: UOp, x: str, n: str) -> str:
    """Return a shift."""
    d, width, count = u.dtype, u.dtype.storage.bits, u.rhs
    in_range = is_within(count, 0, width - 1)
    if not in_range and count.dtype.is_signed:
        n = f"(u{count.dtype.storage.bits}){n}"
    if u.op is Op.SHR and d.is_signed:
        return f"{x} >> {n}" if in_range else f"{x} >> ({n} < {width}u ? {n} : {width - 1}u)"
    shifted = f"{x} >> {n}" if u.op is Op.SHR else render_wrapped(needs, d, f"({unsigned_word_type(d)}){x} << {n}")
    return shifted if in_range else f"{n} < {width}u ? {shifted} : {render_integer(0, d)}"


# Casts (R15) and Bitcast (R46).


def render_cast(needs: HelperProvider, u: UOp, x: str) -> str:
    """Return a cast (R15)."""
    source, target = u.operand.dtype, u.dtype
    return x if source is target else CAST[dtype_class_letter(source) + dtype_class_letter(target)](needs, source, target, x)


def _render_to_bool(needs: HelperProvider, source: DType, target: DType, x: str) -> str:
    """Return x != 0, so NaN is true."""
    return f"{x} != {render_finite_float(0.0, source) if source.is_float else '0'}"


def _render_wrapping_or_rounding_conversion(needs: HelperProvider, source: DType, target: DType, x: str) -> str:
    """Return C's conversion: integers wrap, and floats are rounded once to nearest even."""
    if target is dt.float32 and source.is_integer and source.storage.bits == 64 and Op.CAST in needs.language.float32_by_float64:
        return f"{needs.require_helper('from_wide', dt.int64 if source.is_signed else dt.uint64)}({x})"
    return _convert(needs, target, x)


def _convert(needs: HelperProvider, target: DType, x: str) -> str:
    return render_wrapped(needs, target, x) if target in needs.language.wrapping_functions else f"({ALIAS[target]}){x}"


def _render_unsigned_to_float(needs: HelperProvider, source: DType, target: DType, x: str) -> str:
    """Return the conversion of an unsigned integer to a float, by a helper if the toolchain calls a library for u64."""
    if source is dt.uint64 and target.is_float and not needs.language.wide_unsigned:
        return f"{needs.require_helper('from_u64', target)}({x})"
    return _render_wrapping_or_rounding_conversion(needs, source, target, x)


def _render_float_to_int(needs: HelperProvider, source: DType, target: DType, x: str) -> str:
    """Return the saturating conversion of a float to an integer."""
    return f"{needs.require_helper('saturate', source, dt.int64 if target is dt.index else target)}({x})"


# fmt: off
CAST: dict[str, Callable[[HelperProvider, DType, DType, str], str]] = {
    "bs": _render_wrapping_or_rounding_conversion, "bu": _render_wrapping_or_rounding_conversion,
    "bf": _render_wrapping_or_rounding_conversion,
    "sb": _render_to_bool,                         "ss": _render_wrapping_or_rounding_conversion,
    "su": _render_wrapping_or_rounding_conversion, "sf": _render_wrapping_or_rounding_conversion,
    "ub": _render_to_bool,                         "us": _render_wrapping_or_rounding_conversion,
    "uu": _render_wrapping_or_rounding_conversion, "uf": _render_unsigned_to_float,
    "fb": _render_to_bool,                         "fs": _render_float_to_int,
    "fu": _render_float_to_int,                    "ff": _render_wrapping_or_rounding_conversion,
}
# fmt: on


def render_bitcast(needs: HelperProvider, u: UOp, x: str) -> str:
    """Return the same bits in a dtype of the same size; a bool is its byte."""
    source, target = u.operand.dtype, u.dtype
    if source is target:
        return x
    if target is dt.bool_:
        return f"{x} != 0"
    if not source.is_float and not target.is_float:
        return _convert(needs, target, x)
    return f"{needs.require_helper('reinterpret', source, target)}({x})"


EMIT: dict[Op, Emit] = {
    **dict.fromkeys(OPERATOR, render_binary),
    **dict.fromkeys(COMPARISON, render_comparison),
    Op.MAX: render_max,
    Op.NEG: render_neg,
    Op.NOT: render_not,
    Op.RECIP: render_recip,
    Op.SQRT: render_call_of_correctly_rounding_function,
    Op.TRUNC: render_trunc,
    Op.MULACC: render_mulacc,
    Op.WHERE: render_where,
    Op.IDIV: render_idiv,
    Op.MOD: render_mod,
    Op.SHL: render_shift,
    Op.SHR: render_shift,
    Op.CAST: render_cast,
    Op.BITCAST: render_bitcast,
}
