"""The elementwise ops of a SELECTED kernel as LLVM instructions: one small function per op, one table.

Every emitter is total (P2): no instruction here has poison, undefined behaviour or a trap for any operand, and none carries a
flag that would license one (`nsw`, `nuw`, `exact`, `fast`, `contract`, ...). A guard is left out only where `min_max` decides it.
A value of shape (w,) is a vector, and every op is one instruction, or a few, on all its lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from uops.backends.facts import bounds, column, opposed
from uops.backends.llvm.builder import Builder
from uops.backends.llvm.exponential import exp2
from uops.backends.llvm.types import bits, each, lanes_of, like, literal, parts, suffix, type_of, value_type, wide
from uops.spec.errors import Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Takes the builder, the node and its operands; gives the name of the result.
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


def _lookup(table: dict[Op, dict[str, str]], u: UOp) -> str:
    d = u.src[0].dtype
    found = table[u.op].get(column(d))
    if found is None:
        raise Unsupported(f"{u.op.name} of {d}", "llvm")
    return found


def instruction(b: Builder, u: UOp, x: str, y: str) -> str:
    return b.emit(f"{_lookup(INSTRUCTION, u)} {type_of(u)} {x}, {y}")


def comparison(b: Builder, u: UOp, x: str, y: str) -> str:
    return b.emit(f"{_lookup(COMPARISON, u)} {type_of(u.src[0])} {x}, {y}")


def maximum(b: Builder, u: UOp, x: str, y: str) -> str:
    t = type_of(u)
    if u.dtype.is_float:
        return _float_maximum(b, u, t, x, y)
    name = {"b": "umax", "s": "smax", "u": "umax"}[column(u.dtype)]
    return b.emit(f"or {t} {x}, {y}") if u.dtype is dt.bool_ else b.intrinsic(name, t, x, y)


def _float_maximum(b: Builder, u: UOp, t: str, x: str, y: str) -> str:
    """R11: NaN if either operand is, and of two zeros one of them, the same in every evaluation (R27).

    x86's maximum is y > x ? y : x, which keeps a NaN of x; that of y is put in by a select, as another NaN, so that LLVM does not
    merge the two. A constant is no NaN. `llvm.maximum` also orders the zeros, at twice the price.
    """
    if _is_constant(u.src[0]):
        x, y = y, x
    greater = b.select(b.emit(f"fcmp ogt {t} {y}, {x}"), t, y, x)
    if any(map(_is_constant, u.src)):
        return greater
    return b.select(b.emit(f"fcmp uno {t} {y}, {y}"), t, each(t, literal(math.nan, u.dtype)), greater)


def _is_constant(u: UOp) -> bool:
    """Whether a value is a number, the same in all lanes."""
    first = u.src[0] if u.op is Op.STACK else u
    return first.op is Op.CONST and first.arg.value == first.arg.value and u.src.count(first) == len(u.src)


def negate(b: Builder, u: UOp, x: str) -> str:
    """R21: the sign bit of a float flips, NaN or not; integers wrap."""
    t = type_of(u)
    return b.emit(f"fneg {t} {x}" if u.dtype.is_float else f"sub {t} {each(t, '0')}, {x}")


def invert(b: Builder, u: UOp, x: str) -> str:
    t = type_of(u)
    return b.emit(f"xor {t} {x}, {each(t, 'true')}")


def reciprocal(b: Builder, u: UOp, x: str) -> str:
    t = type_of(u)
    return b.emit(f"fdiv {t} {each(t, literal(1.0, u.dtype))}, {x}")


def square_root(b: Builder, u: UOp, x: str) -> str:
    return b.intrinsic("sqrt", type_of(u), x)


def truncate(b: Builder, u: UOp, x: str) -> str:
    """R10: the identity on integers."""
    return b.intrinsic("trunc", type_of(u), x) if u.dtype.is_float else x


def multiply_add(b: Builder, u: UOp, x: str, y: str, z: str) -> str:
    """One rounding on floats; on bool (x and y) or z (R09)."""
    t = type_of(u)
    if u.dtype.is_float:
        return b.intrinsic("fma", t, x, y, z)
    times, plus = ("and", "or") if u.dtype is dt.bool_ else ("mul", "add")
    return b.emit(f"{plus} {t} {b.emit(f'{times} {t} {x}, {y}')}, {z}")


def select(b: Builder, u: UOp, p: str, x: str, y: str) -> str:
    """R28: a select keeps every bit, a NaN's payload too."""
    return b.select(p, type_of(u), x, y)


# Integer division (R01 to R04). A divisor that would fault, 0 or (signed) -1, is replaced by 1 before the machine divides.


def _safe_divisor(b: Builder, y_node: UOp, t: str, y: str) -> tuple[str, str | None, str | None]:
    """(a divisor that cannot fault, `y is 0`, `y is -1`); a flag is None where min_max excludes the value."""
    lo, hi = bounds(y_node)
    zero = b.emit(f"icmp eq {t} {y}, {each(t, '0')}") if lo <= 0 <= hi else None
    minus = b.emit(f"icmp eq {t} {y}, {each(t, '-1')}") if lo <= -1 <= hi else None
    fault = b.emit(f"or {like(t, 'i1')} {zero}, {minus}") if zero and minus else zero or minus
    return (b.select(fault, t, each(t, "1"), y) if fault else y), zero, minus


def idiv(b: Builder, u: UOp, x: str, y: str) -> str:
    """floor(x / y); 0 for y = 0 (R03); x / -1 is the wrapped negation (R04)."""
    t, signed = type_of(u), u.dtype.is_signed
    d, zero, minus = _safe_divisor(b, u.src[1], t, y)
    q = _quotient(b, u, x, d)
    if signed and opposed(u):
        r = _remainder(b, u, x, d, q)
        one = b.emit(f"zext {like(t, 'i1')} {_inexact(b, t, r, d)} to {t}")
        q = b.emit(f"sub {t} {q}, {one}")
    if minus:
        q = b.select(minus, t, b.emit(f"sub {t} {each(t, '0')}, {x}"), q)
    return b.select(zero, t, each(t, "0"), q) if zero else q


def mod(b: Builder, u: UOp, x: str, y: str) -> str:
    """x - y * floor(x / y), so its sign is y's (R02); x for y = 0 (R03)."""
    t, signed = type_of(u), u.dtype.is_signed
    d, zero, _ = _safe_divisor(b, u.src[1], t, y)
    r = _remainder(b, u, x, d)
    if signed and opposed(u):
        r = b.select(_inexact(b, t, r, d), t, b.emit(f"add {t} {r}, {d}"), r)
    return b.select(zero, t, x, r) if zero else r


def _by_floats(u: UOp) -> bool:
    """Whether lanes are divided as floats, as there is no instruction for integers; by constants LLVM multiplies.

    Below an integer k, a quotient x / d is at most k - 1/d: relatively at least 1 / (k*d) away, and k*d is at most |x| + |d|. A
    float with more bits than that sum, correctly rounded, is below k too, and truncates to the same.
    """
    return u.shape != () and bits(u.dtype) <= 32 and not all(s.op is Op.CONST for s in u.src[1].src)


def _quotient(b: Builder, u: UOp, x: str, d: str) -> str:
    """x / d, truncated."""
    t, signed = type_of(u), u.dtype.is_signed
    if not _by_floats(u):
        return b.emit(f"{'sdiv' if signed else 'udiv'} {t} {x}, {d}")
    f = like(t, "float" if bits(u.dtype) <= 16 else "double")
    widen, narrow = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    over, under = (b.emit(f"{widen} {t} {z} to {f}") for z in (x, d))
    return b.emit(f"{narrow} {f} {b.emit(f'fdiv {f} {over}, {under}')} to {t}")


def _remainder(b: Builder, u: UOp, x: str, d: str, q: str | None = None) -> str:
    """x - d * (x / d); `q` is the quotient, where it is known."""
    t = type_of(u)
    if not _by_floats(u):
        return b.emit(f"{'srem' if u.dtype.is_signed else 'urem'} {t} {x}, {d}")
    q = _quotient(b, u, x, d) if q is None else q
    return b.emit(f"sub {t} {x}, {b.emit(f'mul {t} {q}, {d}')}")


def _inexact(b: Builder, t: str, r: str, d: str) -> str:
    """Whether floor lies below the truncated quotient: a remainder that is not zero and has not the divisor's sign."""
    some = b.emit(f"icmp ne {t} {r}, {each(t, '0')}")
    opposed = b.emit(f"icmp slt {t} {b.emit(f'xor {t} {r}, {d}')}, {each(t, '0')}")
    return b.emit(f"and {like(t, 'i1')} {some}, {opposed}")


# Shifts (R06, R07): the count, of any integer dtype, is read as unsigned; one that is too large gives 0 or the sign fill.


def shift(b: Builder, u: UOp, x: str, n: str) -> str:
    t, width = type_of(u), bits(u.dtype)
    arithmetic = u.op is Op.SHR and u.dtype.is_signed
    mnemonic = "ashr" if arithmetic else "lshr" if u.op is Op.SHR else "shl"
    count, fits = _count(b, u.src[1], n, width, t)
    if fits is None:
        return b.emit(f"{mnemonic} {t} {x}, {count}")
    count = b.select(fits, t, count, each(t, str(width - 1) if arithmetic else "0"))
    shifted = b.emit(f"{mnemonic} {t} {x}, {count}")
    return shifted if arithmetic else b.select(fits, t, shifted, each(t, "0"))


def _count(b: Builder, node: UOp, n: str, width: int, t: str) -> tuple[str, str | None]:
    """The count in the value's type, and the condition under which it is below `width` (None: always)."""
    tn, own = type_of(node), bits(node.dtype)
    lo, hi = bounds(node)
    fits = None if 0 <= lo and hi < width else b.emit(f"icmp ult {tn} {n}, {each(tn, str(width))}")
    if own == width:
        return n, fits
    return b.emit(f"{'zext' if own < width else 'trunc'} {tn} {n} to {t}"), fits


# Casts (R15) and Bitcast (R46).


def cast(b: Builder, u: UOp, x: str) -> str:
    source, target = u.src[0].dtype, u.dtype
    return x if source is target else CAST[column(source) + column(target)](b, source, target, x, lanes_of(u))


def _to_bool(b: Builder, source: DType, target: DType, x: str, w: int) -> str:
    """x != 0, so a NaN is true."""
    t = wide(value_type(source), w)
    zero = each(t, literal(0.0, source) if source.is_float else "0")
    return b.emit(f"{'fcmp une' if source.is_float else 'icmp ne'} {t} {x}, {zero}")


def _converted(b: Builder, name: str, source: DType, target: DType, x: str, w: int) -> str:
    return b.emit(f"{name} {wide(value_type(source), w)} {x} to {wide(value_type(target), w)}")


def _int_to_int(b: Builder, source: DType, target: DType, x: str, w: int) -> str:
    """Wraps: the low bits, extended by the source's sign."""
    if bits(source) == bits(target):
        return x
    extend = "sext" if source.is_signed else "zext"
    return _converted(b, "trunc" if bits(source) > bits(target) else extend, source, target, x, w)


def _int_to_float(b: Builder, source: DType, target: DType, x: str, w: int) -> str:
    """One rounding to nearest even from the exact integer."""
    return _converted(b, "sitofp" if source.is_signed else "uitofp", source, target, x, w)


def _float_to_int(b: Builder, source: DType, target: DType, x: str, w: int) -> str:
    """Toward zero, saturating, NaN gives 0: as LLVM's saturating conversions are defined; those of vectors it takes apart."""
    t, f = wide(value_type(target), w), wide(value_type(source), w)
    if w > 1:
        return _float_lanes_to_int(b, source, target, x, t, f)
    name = "fptosi.sat" if target.is_signed else "fptoui.sat"
    return b.call(f"llvm.{name}.{suffix(t)}.{suffix(f)}", t, (f,), x)


def _float_lanes_to_int(b: Builder, source: DType, target: DType, x: str, t: str, f: str) -> str:
    """The plain conversion is frozen, so that a lane out of range holds some integer, and then replaced there."""
    lo, hi = int(target.min), int(target.max)
    found = b.emit(f"{'fptosi' if target.is_signed else 'fptoui'} {f} {x} to {t}")
    found = b.emit(f"freeze {t} {found}")
    over = b.emit(f"fcmp oge {f} {x}, {each(f, literal(float(hi + 1), source))}")
    under = b.emit(f"fcmp ult {f} {x}, {each(f, literal(float(lo), source))}")
    found = b.select(over, t, each(t, str(hi)), b.select(under, t, each(t, str(lo)), found))
    return found if lo == 0 else b.select(b.emit(f"fcmp uno {f} {x}, {x}"), t, each(t, "0"), found)


def _float_to_float(b: Builder, source: DType, target: DType, x: str, w: int) -> str:
    return _converted(b, "fpext" if source.bits < target.bits else "fptrunc", source, target, x, w)


# fmt: off
CAST: dict[str, Callable[[Builder, DType, DType, str, int], str]] = {
    "bs": _int_to_int, "bu": _int_to_int, "bf": _int_to_float,
    "sb": _to_bool, "ss": _int_to_int,   "su": _int_to_int,   "sf": _int_to_float,
    "ub": _to_bool, "us": _int_to_int,   "uu": _int_to_int,   "uf": _int_to_float,
    "fb": _to_bool, "fs": _float_to_int, "fu": _float_to_int, "ff": _float_to_float,
}
# fmt: on


def bitcast(b: Builder, u: UOp, x: str) -> str:
    """The same bits in a dtype of the same size; a bool is its byte."""
    source, target = type_of(u.src[0]), type_of(u)
    if source == target:
        return x
    if parts(source)[1] == "i1":
        return b.emit(f"zext {source} {x} to {target}")
    if parts(target)[1] == "i1":
        return b.emit(f"icmp ne {source} {x}, {each(source, '0')}")
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
    Op.EXP2: exp2,
    Op.MULACC: multiply_add,
    Op.WHERE: select,
    Op.IDIV: idiv,
    Op.MOD: mod,
    Op.SHL: shift,
    Op.SHR: shift,
    Op.CAST: cast,
    Op.BITCAST: bitcast,
}
