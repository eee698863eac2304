"""The elementwise ops of a SELECTED kernel as LLVM instructions: one small function per op, one table.

Every emitter is total (P2): no instruction here has poison, undefined behaviour or a trap for any operand, and none carries a
flag that would license one (`nsw`, `nuw`, `exact`, `fast`, `contract`, ...). A guard is left out only where `min_max` decides it.
"""

from __future__ import annotations

from collections.abc import Callable

from uops.backends.llvm.builder import Builder
from uops.backends.llvm.types import bits, literal, value_type
from uops.spec import dtypes as dt
from uops.spec.dtypes import DType, Kind
from uops.spec.errors import Unsupported
from uops.spec.node import UOp
from uops.spec.ops import Op

#: Takes the builder, the node and its operands; gives the name of the result.
Emit = Callable[..., str]


def _class(d: DType) -> str:
    """The column of the tables: b(ool), s(igned), u(nsigned) or f(loat)."""
    return {Kind.BOOL: "b", Kind.INT: "s", Kind.INDEX: "s", Kind.UINT: "u", Kind.FLOAT: "f"}[d.kind]


def _bounds(u: UOp) -> tuple[float, float]:
    return u.min_max or (u.dtype.min, u.dtype.max)


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


def _lookup(table: dict[Op, dict[str, str]], u: UOp) -> str:
    d = u.src[0].dtype
    found = table[u.op].get(_class(d))
    if found is None:
        raise Unsupported(f"{u.op.name} of {d}", "llvm")
    return found


def instruction(b: Builder, u: UOp, x: str, y: str) -> str:
    return b.emit(f"{_lookup(INSTRUCTION, u)} {value_type(u.dtype)} {x}, {y}")


def comparison(b: Builder, u: UOp, x: str, y: str) -> str:
    return b.emit(f"{_lookup(COMPARISON, u)} {value_type(u.src[0].dtype)} {x}, {y}")


def maximum(b: Builder, u: UOp, x: str, y: str) -> str:
    """R11: a float Max is NaN if either operand is; `llvm.maximum` says so and never becomes a libm call on x86."""
    name = {"b": "umax", "s": "smax", "u": "umax", "f": "maximum"}[_class(u.dtype)]
    return b.emit(f"or i1 {x}, {y}") if u.dtype is dt.bool_ else b.intrinsic(name, value_type(u.dtype), x, y)


def negate(b: Builder, u: UOp, x: str) -> str:
    """R21: the sign bit of a float flips, NaN or not; integers wrap."""
    t = value_type(u.dtype)
    return b.emit(f"fneg {t} {x}" if u.dtype.is_float else f"sub {t} 0, {x}")


def invert(b: Builder, u: UOp, x: str) -> str:
    return b.emit(f"xor i1 {x}, true")


def reciprocal(b: Builder, u: UOp, x: str) -> str:
    return b.emit(f"fdiv {value_type(u.dtype)} {literal(1.0, u.dtype)}, {x}")


def square_root(b: Builder, u: UOp, x: str) -> str:
    return b.intrinsic("sqrt", value_type(u.dtype), x)


def truncate(b: Builder, u: UOp, x: str) -> str:
    """R10: the identity on integers."""
    return b.intrinsic("trunc", value_type(u.dtype), x) if u.dtype.is_float else x


def multiply_add(b: Builder, u: UOp, x: str, y: str, z: str) -> str:
    """One rounding on floats; on bool (x and y) or z (R09)."""
    t = value_type(u.dtype)
    if u.dtype.is_float:
        return b.intrinsic("fma", t, x, y, z)
    times, plus = ("and", "or") if u.dtype is dt.bool_ else ("mul", "add")
    return b.emit(f"{plus} {t} {b.emit(f'{times} {t} {x}, {y}')}, {z}")


def select(b: Builder, u: UOp, p: str, x: str, y: str) -> str:
    """R28: a select keeps every bit, a NaN's payload too."""
    return b.select(p, value_type(u.dtype), x, y)


# Integer division (R01 to R04). A divisor that would fault, 0 or (signed) -1, is replaced by 1 before the machine divides.


def _safe_divisor(b: Builder, y_node: UOp, t: str, y: str) -> tuple[str, str | None, str | None]:
    """(a divisor that cannot fault, `y is 0`, `y is -1`); a flag is None where min_max excludes the value."""
    lo, hi = _bounds(y_node)
    zero = b.emit(f"icmp eq {t} {y}, 0") if lo <= 0 <= hi else None
    minus = b.emit(f"icmp eq {t} {y}, -1") if lo <= -1 <= hi else None
    fault = b.emit(f"or i1 {zero}, {minus}") if zero and minus else zero or minus
    return (b.select(fault, t, "1", y) if fault else y), zero, minus


def _opposed(u: UOp) -> bool:
    """Whether the operands' signs may differ, so that floor differs from truncation."""
    (a, A), (c, C) = _bounds(u.src[0]), _bounds(u.src[1])
    return not ((a >= 0 and c >= 0) or (A <= 0 and C <= 0))


def idiv(b: Builder, u: UOp, x: str, y: str) -> str:
    """floor(x / y); 0 for y = 0 (R03); x / -1 is the wrapped negation (R04)."""
    t, signed = value_type(u.dtype), u.dtype.is_signed
    d, zero, minus = _safe_divisor(b, u.src[1], t, y)
    q = b.emit(f"{'sdiv' if signed else 'udiv'} {t} {x}, {d}")
    if signed and _opposed(u):
        r = b.emit(f"srem {t} {x}, {d}")
        one = b.emit(f"zext i1 {_inexact(b, t, r, d)} to {t}")
        q = b.emit(f"sub {t} {q}, {one}")
    if minus:
        q = b.select(minus, t, b.emit(f"sub {t} 0, {x}"), q)
    return b.select(zero, t, "0", q) if zero else q


def mod(b: Builder, u: UOp, x: str, y: str) -> str:
    """x - y * floor(x / y), so its sign is y's (R02); x for y = 0 (R03)."""
    t, signed = value_type(u.dtype), u.dtype.is_signed
    d, zero, _ = _safe_divisor(b, u.src[1], t, y)
    r = b.emit(f"{'srem' if signed else 'urem'} {t} {x}, {d}")
    if signed and _opposed(u):
        r = b.select(_inexact(b, t, r, d), t, b.emit(f"add {t} {r}, {d}"), r)
    return b.select(zero, t, x, r) if zero else r


def _inexact(b: Builder, t: str, r: str, d: str) -> str:
    """Whether floor lies below the truncated quotient: a remainder that is not zero and has not the divisor's sign."""
    some = b.emit(f"icmp ne {t} {r}, 0")
    opposed = b.emit(f"icmp slt {t} {b.emit(f'xor {t} {r}, {d}')}, 0")
    return b.emit(f"and i1 {some}, {opposed}")


# Shifts (R06, R07): the count, of any integer dtype, is read as unsigned; one that is too large gives 0 or the sign fill.


def shift(b: Builder, u: UOp, x: str, n: str) -> str:
    t, width = value_type(u.dtype), bits(u.dtype)
    arithmetic = u.op is Op.SHR and u.dtype.is_signed
    mnemonic = "ashr" if arithmetic else "lshr" if u.op is Op.SHR else "shl"
    count, fits = _count(b, u.src[1], n, width, t)
    if fits is None:
        return b.emit(f"{mnemonic} {t} {x}, {count}")
    count = b.select(fits, t, count, str(width - 1) if arithmetic else "0")
    shifted = b.emit(f"{mnemonic} {t} {x}, {count}")
    return shifted if arithmetic else b.select(fits, t, shifted, "0")


def _count(b: Builder, node: UOp, n: str, width: int, t: str) -> tuple[str, str | None]:
    """The count in the value's type, and the condition under which it is below `width` (None: always)."""
    tn, wide = value_type(node.dtype), bits(node.dtype)
    lo, hi = _bounds(node)
    fits = None if 0 <= lo and hi < width else b.emit(f"icmp ult {tn} {n}, {width}")
    if wide == width:
        return n, fits
    return b.emit(f"{'zext' if wide < width else 'trunc'} {tn} {n} to {t}"), fits


# Casts (R15) and Bitcast (R46).


def cast(b: Builder, u: UOp, x: str) -> str:
    source, target = u.src[0].dtype, u.dtype
    return x if source is target else CAST[_class(source) + _class(target)](b, source, target, x)


def _to_bool(b: Builder, source: DType, target: DType, x: str) -> str:
    """x != 0, so a NaN is true."""
    zero = literal(0.0, source) if source.is_float else "0"
    return b.emit(f"{'fcmp une' if source.is_float else 'icmp ne'} {value_type(source)} {x}, {zero}")


def _int_to_int(b: Builder, source: DType, target: DType, x: str) -> str:
    """Wraps: the low bits, extended by the source's sign."""
    if bits(source) == bits(target):
        return x
    extend = "sext" if source.is_signed else "zext"
    return b.emit(f"{'trunc' if bits(source) > bits(target) else extend} {value_type(source)} {x} to {value_type(target)}")


def _int_to_float(b: Builder, source: DType, target: DType, x: str) -> str:
    """One rounding to nearest even from the exact integer."""
    return b.emit(f"{'sitofp' if source.is_signed else 'uitofp'} {value_type(source)} {x} to {value_type(target)}")


def _float_to_int(b: Builder, source: DType, target: DType, x: str) -> str:
    """Toward zero, saturating, NaN gives 0: what LLVM's saturating conversions are defined to do."""
    name, t, f = "fptosi.sat" if target.is_signed else "fptoui.sat", value_type(target), value_type(source)
    return b.call(f"llvm.{name}.{t}.{_suffix(f)}", t, (f,), x)


def _float_to_float(b: Builder, source: DType, target: DType, x: str) -> str:
    return b.emit(f"{'fpext' if source.bits < target.bits else 'fptrunc'} {value_type(source)} {x} to {value_type(target)}")


def _suffix(t: str) -> str:
    return {"float": "f32", "double": "f64"}.get(t, t)


# fmt: off
CAST: dict[str, Callable[[Builder, DType, DType, str], str]] = {
    "bs": _int_to_int, "bu": _int_to_int, "bf": _int_to_float,
    "sb": _to_bool, "ss": _int_to_int,   "su": _int_to_int,   "sf": _int_to_float,
    "ub": _to_bool, "us": _int_to_int,   "uu": _int_to_int,   "uf": _int_to_float,
    "fb": _to_bool, "fs": _float_to_int, "fu": _float_to_int, "ff": _float_to_float,
}
# fmt: on


def bitcast(b: Builder, u: UOp, x: str) -> str:
    """The same bits in a dtype of the same size; a bool is its byte."""
    source, target = value_type(u.src[0].dtype), value_type(u.dtype)
    if source == target:
        return x
    if "i1" in (source, target):
        return b.emit(f"zext i1 {x} to i8") if target == "i8" else b.emit(f"icmp ne i8 {x}, 0")
    return b.emit(f"bitcast {source} {x} to {target}")


EMIT: dict[Op, Emit] = {
    **dict.fromkeys(INSTRUCTION, instruction),
    **dict.fromkeys(COMPARISON, comparison),
    Op.MAX: maximum,
    Op.NEG: negate,
    Op.NOT: invert,
    Op.RECIP: reciprocal,
    Op.SQRT: square_root,
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
