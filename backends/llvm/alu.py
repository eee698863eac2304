"""Elementwise ops of a SELECTED kernel as LLVM instructions: one small function per op, and a table of them.

Takes: an IRBuilder, a node and its operands. Gives: the name of the result. Every emitter is total (P2): no instruction has poison,
undefined behaviour or a trap for any operand, and none has a flag that would permit one (`nsw`, `nuw`, `exact`, `fast`,
`contract`, ...). A guard is left out only if `min_max` decides it. A value of shape (w,) is a vector, and every op is one or a few
instructions on all its lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from uops.backends.facts import dtype_class_letter, may_differ_in_sign, value_bounds
from uops.backends.llvm.builder import IRBuilder
from uops.backends.llvm.exponential import emit_avx512_exp2
from uops.backends.llvm.types import (
    bits,
    intrinsic_suffix,
    lanes_of,
    llvm_type_of_value,
    render_literal,
    splat,
    split_vector_type,
    value_type,
    vector_type,
    with_element,
)
from uops.spec.errors import Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Takes an IRBuilder, the node and its operands; gives the name of the result.
Emit = Callable[..., str]


# Plain instructions: op -> mnemonic per class. A missing class is a form that the verifier rejects (R09, R10).
# fmt: off
INSTRUCTION: dict[Op, dict[str, str]] = {
    Op.ADD: {"b": "or",  "s": "add", "u": "add", "f": "fadd"},
    Op.SUB: {            "s": "sub", "u": "sub", "f": "fsub"},
    Op.MUL: {"b": "and", "s": "mul", "u": "mul", "f": "fmul"},
    Op.DIV: {                                    "f": "fdiv"},
    Op.AND: {"b": "and", "s": "and", "u": "and"},
    Op.OR:  {"b": "or",  "s": "or",  "u": "or"},
    Op.XOR: {"b": "xor", "s": "xor", "u": "xor"},
}
#: R12, R13: with a NaN every comparison is false but CmpNe.
COMPARISON: dict[Op, dict[str, str]] = {
    Op.CMPLT: {"b": "icmp ult", "s": "icmp slt", "u": "icmp ult", "f": "fcmp olt"},
    Op.CMPGT: {"b": "icmp ugt", "s": "icmp sgt", "u": "icmp ugt", "f": "fcmp ogt"},
    Op.CMPLE: {"b": "icmp ule", "s": "icmp sle", "u": "icmp ule", "f": "fcmp ole"},
    Op.CMPGE: {"b": "icmp uge", "s": "icmp sge", "u": "icmp uge", "f": "fcmp oge"},
    Op.CMPEQ: {"b": "icmp eq",  "s": "icmp eq",  "u": "icmp eq",  "f": "fcmp oeq"},
    Op.CMPNE: {"b": "icmp ne",  "s": "icmp ne",  "u": "icmp ne",  "f": "fcmp une"},
}
# fmt: on


def _lookup_mnemonic_for_operand_dtype(table: dict[Op, dict[str, str]], u: UOp) -> str:
    """Return the mnemonic of an op for the dtype of its operands. Raises Unsupported."""
    d = u.src[0].dtype  # lhs
    mnemonic = table[u.op].get(dtype_class_letter(d))
    if mnemonic is None:
        raise Unsupported(f"{u.op.name} of {d}", "llvm")
    return mnemonic


def emit_binary(b: IRBuilder, u: UOp, x: str, y: str) -> str:
    """Emit a binary instruction."""
    return b.emit(f"{_lookup_mnemonic_for_operand_dtype(INSTRUCTION, u)} {llvm_type_of_value(u)} {x}, {y}")


def emit_comparison(b: IRBuilder, u: UOp, x: str, y: str) -> str:
    """Emit a comparison."""
    return b.emit(f"{_lookup_mnemonic_for_operand_dtype(COMPARISON, u)} {llvm_type_of_value(u.lhs)} {x}, {y}")


def emit_max(b: IRBuilder, u: UOp, x: str, y: str) -> str:
    """Emit the maximum."""
    t = llvm_type_of_value(u)
    if u.dtype.is_float:
        return _emit_nan_propagating_max_unordered_zeros(b, u, t, x, y)
    name = {"b": "umax", "s": "smax", "u": "umax"}[dtype_class_letter(u.dtype)]
    return b.emit(f"or {t} {x}, {y}") if u.dtype is dt.bool_ else b.intrinsic(name, t, x, y)


def _emit_nan_propagating_max_unordered_zeros(b: IRBuilder, u: UOp, t: str, x: str, y: str) -> str:
    """Emit a maximum that is NaN if either operand is (R11). Of two zeros it is the same one in every evaluation (R27: one value
    per node).

    x86's maximum is y > x ? y : x, which keeps a NaN of x. A select inserts a NaN of y, as another NaN, so that LLVM does not
    merge the two. A constant is no NaN. `llvm.maximum` also orders the zeros, at twice the cost.
    """
    if _is_constant(u.lhs):
        x, y = y, x
    greater = b.select(b.emit(f"fcmp ogt {t} {y}, {x}"), t, y, x)
    if any(map(_is_constant, u.src)):
        return greater
    return b.select(b.emit(f"fcmp uno {t} {y}, {y}"), t, splat(t, render_literal(math.nan, u.dtype)), greater)


def _is_constant(u: UOp) -> bool:
    """Return True if a value is one number in all lanes."""
    first = u.src[0] if u.op is Op.STACK else u  # the first element
    return first.op is Op.CONST and first.arg.value == first.arg.value and u.src.count(first) == len(u.src)


def emit_neg(b: IRBuilder, u: UOp, x: str) -> str:
    """Emit the negation: floats flip the sign bit, also of NaNs (R21); integers wrap."""
    t = llvm_type_of_value(u)
    return b.emit(f"fneg {t} {x}" if u.dtype.is_float else f"sub {t} {splat(t, '0')}, {x}")


def emit_not(b: IRBuilder, u: UOp, x: str) -> str:
    """Emit the negation of a bool."""
    t = llvm_type_of_value(u)
    return b.emit(f"xor {t} {x}, {splat(t, 'true')}")


def emit_recip(b: IRBuilder, u: UOp, x: str) -> str:
    """Emit the reciprocal."""
    t = llvm_type_of_value(u)
    return b.emit(f"fdiv {t} {splat(t, render_literal(1.0, u.dtype))}, {x}")


def emit_sqrt(b: IRBuilder, u: UOp, x: str) -> str:
    """Emit the square root."""
    return b.intrinsic("sqrt", llvm_type_of_value(u), x)


def emit_trunc(b: IRBuilder, u: UOp, x: str) -> str:
    """Emit the truncation toward zero; the identity on integers (R10)."""
    return b.intrinsic("trunc", llvm_type_of_value(u), x) if u.dtype.is_float else x


def emit_mulacc_rounded_once(b: IRBuilder, u: UOp, x: str, y: str, z: str) -> str:
    """Emit x * y + z, rounded once on floats; on bools, (x and y) or z (R09)."""
    t = llvm_type_of_value(u)
    if u.dtype.is_float:
        return b.intrinsic("fma", t, x, y, z)
    times, plus = ("and", "or") if u.dtype is dt.bool_ else ("mul", "add")
    return b.emit(f"{plus} {t} {b.emit(f'{times} {t} {x}, {y}')}, {z}")


def emit_where(b: IRBuilder, u: UOp, p: str, x: str, y: str) -> str:
    """Emit a select, which keeps every bit, a NaN's payload too (R28)."""
    return b.select(p, llvm_type_of_value(u), x, y)


# Integer division (R01 to R04). A divisor that would fault, 0 or (signed) -1, is replaced by 1 before the machine divides.


class _SafeDivisor(NamedTuple):
    """A divisor that cannot fault, and conditions on the one that it replaces; None if min_max excludes their value."""

    divisor: str
    was_zero: str | None
    was_minus_one: str | None


def _emit_divisor_without_zero_or_minus_one(b: IRBuilder, divisor_node: UOp, t: str, y: str) -> _SafeDivisor:
    lo, hi = value_bounds(divisor_node)
    zero = b.emit(f"icmp eq {t} {y}, {splat(t, '0')}") if lo <= 0 <= hi else None
    minus = b.emit(f"icmp eq {t} {y}, {splat(t, '-1')}") if lo <= -1 <= hi else None
    fault = b.emit(f"or {with_element(t, 'i1')} {zero}, {minus}") if zero and minus else zero or minus
    return _SafeDivisor(b.select(fault, t, splat(t, "1"), y) if fault else y, zero, minus)


def emit_floor_division(b: IRBuilder, u: UOp, x: str, y: str) -> str:
    """Emit floor(x / y); 0 for y = 0 (R03); x / -1 is the wrapped negation (R04)."""
    t, signed = llvm_type_of_value(u), u.dtype.is_signed
    d, zero, minus = _emit_divisor_without_zero_or_minus_one(b, u.rhs, t, y)
    q = _emit_quotient(b, u, x, d)
    if signed and may_differ_in_sign(u):
        r = _emit_remainder(b, u, x, d, q)
        one = b.emit(f"zext {with_element(t, 'i1')} {_emit_needs_floor_fix(b, t, r, d)} to {t}")
        q = b.emit(f"sub {t} {q}, {one}")
    if minus:
        q = b.select(minus, t, b.emit(f"sub {t} {splat(t, '0')}, {x}"), q)
    return b.select(zero, t, splat(t, "0"), q) if zero else q


def emit_floor_modulo(b: IRBuilder, u: UOp, x: str, y: str) -> str:
    """Emit x - y * floor(x / y), which has the sign of y (R02); x for y = 0 (R03)."""
    t, signed = llvm_type_of_value(u), u.dtype.is_signed
    d, zero, _ = _emit_divisor_without_zero_or_minus_one(b, u.rhs, t, y)
    r = _emit_remainder(b, u, x, d)
    if signed and may_differ_in_sign(u):
        r = b.select(_emit_needs_floor_fix(b, t, r, d), t, b.emit(f"add {t} {r}, {d}"), r)
    return b.select(zero, t, x, r) if zero else r


def _divides_lanes_as_floats(u: UOp) -> bool:
    """Return True if lanes are divided as floats, as integers have no vector instruction; by constants, LLVM multiplies.

    Below an integer k, a quotient x / d is at most k - 1/d: relatively at least 1 / (k*d) away, and k*d is at most |x| + |d|. A
    float with more bits than that sum, correctly rounded, is below k too, and truncates to the same.
    """
    return u.shape != () and bits(u.dtype) <= 32 and not all(s.op is Op.CONST for s in u.rhs.src)


def _emit_quotient(b: IRBuilder, u: UOp, x: str, divisor: str) -> str:
    """Emit x / divisor, truncated."""
    t, signed = llvm_type_of_value(u), u.dtype.is_signed
    if not _divides_lanes_as_floats(u):
        return b.emit(f"{'sdiv' if signed else 'udiv'} {t} {x}, {divisor}")
    f = with_element(t, "float" if bits(u.dtype) <= 16 else "double")
    widen, narrow = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    over, under = (b.emit(f"{widen} {t} {z} to {f}") for z in (x, divisor))
    return b.emit(f"{narrow} {f} {b.emit(f'fdiv {f} {over}, {under}')} to {t}")


def _emit_remainder(b: IRBuilder, u: UOp, x: str, divisor: str, reusable_float_quotient: str | None = None) -> str:
    """Emit x - divisor * (x / divisor); `reusable_float_quotient` is given if it is known."""
    t = llvm_type_of_value(u)
    if not _divides_lanes_as_floats(u):
        return b.emit(f"{'srem' if u.dtype.is_signed else 'urem'} {t} {x}, {divisor}")
    q = _emit_quotient(b, u, x, divisor) if reusable_float_quotient is None else reusable_float_quotient
    return b.emit(f"sub {t} {x}, {b.emit(f'mul {t} {q}, {divisor}')}")


def _emit_needs_floor_fix(b: IRBuilder, t: str, remainder: str, divisor: str) -> str:
    """Emit whether floor is below the truncated quotient: the remainder is nonzero and differs in sign from the divisor."""
    some = b.emit(f"icmp ne {t} {remainder}, {splat(t, '0')}")
    opposed = b.emit(f"icmp slt {t} {b.emit(f'xor {t} {remainder}, {divisor}')}, {splat(t, '0')}")
    return b.emit(f"and {with_element(t, 'i1')} {some}, {opposed}")


# Shifts (R06, R07): the count has any integer dtype and is read as unsigned. A count of the width or more gives 0 or the sign fill.


def emit_shift(b: IRBuilder, u: UOp, x: str, n: str) -> str:
    """Emit a shift."""
    t, width = llvm_type_of_value(u), bits(u.dtype)
    arithmetic = u.op is Op.SHR and u.dtype.is_signed
    mnemonic = "ashr" if arithmetic else "lshr" if u.op is Op.SHR else "shl"
    count, fits = _resize_shift_count_and_emit_range_flag(b, u.rhs, n, width, t)
    if fits is None:
        return b.emit(f"{mnemonic} {t} {x}, {count}")
    count = b.select(fits, t, count, splat(t, str(width - 1) if arithmetic else "0"))
    shifted = b.emit(f"{mnemonic} {t} {x}, {count}")
    return shifted if arithmetic else b.select(fits, t, shifted, splat(t, "0"))


def _resize_shift_count_and_emit_range_flag(b: IRBuilder, count_node: UOp, n: str, width: int, t: str) -> tuple[str, str | None]:
    """Return the count in the value's type, and the condition that it is below `width` (None: always)."""
    tn, count_width = llvm_type_of_value(count_node), bits(count_node.dtype)
    lo, hi = value_bounds(count_node)
    fits = None if 0 <= lo and hi < width else b.emit(f"icmp ult {tn} {n}, {splat(tn, str(width))}")
    if count_width == width:
        return n, fits
    return b.emit(f"{'zext' if count_width < width else 'trunc'} {tn} {n} to {t}"), fits


# Casts (R15) and Bitcast (R46).


def emit_cast(b: IRBuilder, u: UOp, x: str) -> str:
    """Emit a cast (R15)."""
    source, target = u.operand.dtype, u.dtype
    return (
        x if source is target else CAST[dtype_class_letter(source) + dtype_class_letter(target)](b, source, target, x, lanes_of(u))
    )


def _emit_to_bool(b: IRBuilder, source: DType, target: DType, x: str, lanes: int) -> str:
    """Emit x != 0, so NaN is true."""
    t = vector_type(value_type(source), lanes)
    zero = splat(t, render_literal(0.0, source) if source.is_float else "0")
    return b.emit(f"{'fcmp une' if source.is_float else 'icmp ne'} {t} {x}, {zero}")


def _emit_conversion(b: IRBuilder, name: str, source: DType, target: DType, x: str, lanes: int) -> str:
    return b.emit(f"{name} {vector_type(value_type(source), lanes)} {x} to {vector_type(value_type(target), lanes)}")


def _emit_int_to_int(b: IRBuilder, source: DType, target: DType, x: str, lanes: int) -> str:
    """Emit a wrapping conversion: the low bits, extended by the source's sign."""
    if bits(source) == bits(target):
        return x
    extend = "sext" if source.is_signed else "zext"
    return _emit_conversion(b, "trunc" if bits(source) > bits(target) else extend, source, target, x, lanes)


def _emit_int_to_float(b: IRBuilder, source: DType, target: DType, x: str, lanes: int) -> str:
    """Emit a conversion from the exact integer, rounded once to nearest even."""
    return _emit_conversion(b, "sitofp" if source.is_signed else "uitofp", source, target, x, lanes)


def _emit_saturating_float_to_int(b: IRBuilder, source: DType, target: DType, x: str, lanes: int) -> str:
    """Emit a saturating conversion toward zero, NaN to 0, by LLVM's saturating conversions.

    LLVM splits those of vectors into lanes, so vectors have code of their own.
    """
    t, f = vector_type(value_type(target), lanes), vector_type(value_type(source), lanes)
    if lanes > 1:
        return _emit_saturating_vector_float_to_int(b, source, target, x, t, f)
    name = "fptosi.sat" if target.is_signed else "fptoui.sat"
    return b.call(f"llvm.{name}.{intrinsic_suffix(t)}.{intrinsic_suffix(f)}", t, (f,), x)


def _emit_saturating_vector_float_to_int(b: IRBuilder, source: DType, target: DType, x: str, t: str, f: str) -> str:
    """Emit a saturating conversion of a vector: freeze the plain conversion, and replace the lanes out of range."""
    lo, hi = int(target.min), int(target.max)
    result = b.emit(f"{'fptosi' if target.is_signed else 'fptoui'} {f} {x} to {t}")
    result = b.emit(f"freeze {t} {result}")
    over = b.emit(f"fcmp oge {f} {x}, {splat(f, render_literal(float(hi + 1), source))}")
    under = b.emit(f"fcmp ult {f} {x}, {splat(f, render_literal(float(lo), source))}")
    result = b.select(over, t, splat(t, str(hi)), b.select(under, t, splat(t, str(lo)), result))
    return result if lo == 0 else b.select(b.emit(f"fcmp uno {f} {x}, {x}"), t, splat(t, "0"), result)


def _emit_float_to_float(b: IRBuilder, source: DType, target: DType, x: str, lanes: int) -> str:
    return _emit_conversion(b, "fpext" if source.bits < target.bits else "fptrunc", source, target, x, lanes)


# fmt: off
CAST: dict[str, Callable[[IRBuilder, DType, DType, str, int], str]] = {
    "bs": _emit_int_to_int, "bu": _emit_int_to_int, "bf": _emit_int_to_float,
    "sb": _emit_to_bool, "ss": _emit_int_to_int,   "su": _emit_int_to_int,   "sf": _emit_int_to_float,
    "ub": _emit_to_bool, "us": _emit_int_to_int,   "uu": _emit_int_to_int,   "uf": _emit_int_to_float,
    "fb": _emit_to_bool, "fs": _emit_saturating_float_to_int, "fu": _emit_saturating_float_to_int, "ff": _emit_float_to_float,
}
# fmt: on


def emit_bitcast(b: IRBuilder, u: UOp, x: str) -> str:
    """Emit the same bits in a dtype of the same size; a bool is its byte."""
    source, target = llvm_type_of_value(u.operand), llvm_type_of_value(u)
    if source == target:
        return x
    if split_vector_type(source)[1] == "i1":
        return b.emit(f"zext {source} {x} to {target}")
    if split_vector_type(target)[1] == "i1":
        return b.emit(f"icmp ne {source} {x}, {splat(source, '0')}")
    return b.emit(f"bitcast {source} {x} to {target}")


EMIT: dict[Op, Emit] = {
    **dict.fromkeys(INSTRUCTION, emit_binary),
    **dict.fromkeys(COMPARISON, emit_comparison),
    Op.MAX: emit_max,
    Op.NEG: emit_neg,
    Op.NOT: emit_not,
    Op.RECIP: emit_recip,
    Op.SQRT: emit_sqrt,
    Op.TRUNC: emit_trunc,
    Op.EXP2: emit_avx512_exp2,
    Op.MULACC: emit_mulacc_rounded_once,
    Op.WHERE: emit_where,
    Op.IDIV: emit_floor_division,
    Op.MOD: emit_floor_modulo,
    Op.SHL: emit_shift,
    Op.SHR: emit_shift,
    Op.CAST: emit_cast,
    Op.BITCAST: emit_bitcast,
}
