"""The constant folder: what an op gives on Python numbers.

Takes: a node whose sources are all Consts. Gives: the number it evaluates to, or None where the folder does not know one answer
(an approximated op, whose bits the kernel decides, R27; a Trap). Raises CompileError for an index wider than a Const may be
(R08). Spec: rulings R01 to R29 at level strict.
This is a text of its own: it shares no arithmetic with the interpreters nor with the prover, so that one wrong idea cannot hide
in all three.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from uops.compiler.place import untranslatable
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

Number = bool | int | float


def fold(u: UOp) -> Number | None:
    """The value of an ALU, Cast or equal-size Bitcast of constants."""
    rule = FOLD.get(u.op)
    if rule is None or any(s.op is not Op.CONST for s in u.src):
        return None
    value = rule(u, *(s.arg.value for s in u.src))
    if u.dtype is dt.index and isinstance(value, int) and value.bit_length() > dt.INDEX_BITS:
        raise untranslatable("R08 (index dtype)", u, f"the value has more than {dt.INDEX_BITS} bits")
    return value


# Integers


def to_width(d: DType, n: int) -> int:
    """`n` reduced to the width of `d` (R05); index is unbounded."""
    if d is dt.index:
        return n
    n %= 2**d.bits
    return n - 2**d.bits if d.is_signed and n >= 2 ** (d.bits - 1) else n


def _idiv(d: DType, a: int, b: int) -> int:
    return to_width(d, a // b) if b else 0


def _mod(d: DType, a: int, b: int) -> int:
    return to_width(d, a % b) if b else a


def _shl(u: UOp, a: int, n: int) -> int | None:
    d = u.dtype
    count = _count(u.src[1].dtype, n)
    if count is None:
        return None
    if d is dt.index:
        return a << min(count, dt.INDEX_BITS)
    return to_width(d, a << count) if count < d.bits else 0


def _shr(u: UOp, a: int, n: int) -> int | None:
    count = _count(u.src[1].dtype, n)
    return None if count is None else a >> min(count, 4096 if u.dtype is dt.index and abs(a) < 2**4096 else u.dtype.bits or count)


def _count(d: DType, n: int) -> int | None:
    """A shift count, read as unsigned (R06); a negative index count is a Trap (R29)."""
    if n >= 0:
        return n
    return None if d is dt.index else n + 2**d.bits


# Floats: exact fractions, one rounding


def nearest(d: DType, x: Fraction, zero: float = 0.0) -> float:
    """`x` to the nearest value of `d`, ties to even; `zero` stands for an exact 0; overflow is infinite, in fp8e4m3 NaN (R15)."""
    if x == 0:
        return zero
    sign, m = (-1 if x < 0 else 1), abs(x)
    exponent = _exponent(m)
    step = Fraction(2) ** (max(exponent, 2 - 2 ** (d.exp_bits - 1)) - d.man_bits)
    units, rest = divmod(m, step)
    if rest * 2 > step or (rest * 2 == step and units % 2):
        units += 1
    value = units * step
    if value > Fraction(d.max_finite):
        return sign * math.inf if d is not dt.fp8e4m3 else math.nan
    return sign * float(value)


def _exponent(m: Fraction) -> int:
    """The e with 2^e <= m < 2^(e + 1), for m > 0."""
    e = m.numerator.bit_length() - m.denominator.bit_length()
    return e - 1 if Fraction(2) ** e > m else e


def to_float(d: DType, x: Number) -> float:
    """A number converted to a float dtype (R15)."""
    if isinstance(x, float):
        if x != x:
            return math.nan
        if math.isinf(x):
            return math.nan if d is dt.fp8e4m3 else x
        return nearest(d, Fraction(x), x)
    return nearest(d, Fraction(int(x)))


def _finite(*xs: float) -> bool:
    return all(math.isfinite(x) for x in xs)


def _add_float(d: DType, a: float, b: float) -> float:
    if not _finite(a, b):
        return to_float(d, a + b)
    if a == 0 and b == 0:
        return a + b  # -0 only for two of them
    return nearest(d, Fraction(a) + Fraction(b))


def _mul_float(d: DType, a: float, b: float) -> float:
    if not _finite(a, b):
        return to_float(d, a * b)
    return nearest(d, Fraction(a) * Fraction(b), math.copysign(0.0, a) * math.copysign(1.0, b)) or _signed_zero(a, b)


def _signed_zero(a: float, b: float) -> float:
    """A product or quotient that is, or underflowed to, zero keeps its sign."""
    return math.copysign(0.0, math.copysign(1.0, a) * math.copysign(1.0, b))


def _div_float(d: DType, a: float, b: float) -> float:
    if a != a or b != b or (math.isinf(a) and math.isinf(b)) or (a == 0 and b == 0):
        return math.nan
    if b == 0 or math.isinf(a):
        return to_float(d, math.copysign(math.inf, _signed_zero(a, b)))
    if math.isinf(b):
        return _signed_zero(a, b)
    return nearest(d, Fraction(a) / Fraction(b)) or _signed_zero(a, b)


def _sqrt(d: DType, x: float) -> float:
    if x != x or x < 0:
        return math.nan
    if x == 0 or math.isinf(x):
        return to_float(d, x)
    f = Fraction(x)
    # An integer square root with far more bits than `d` has, made odd where it is not exact: never a false tie.
    shift = 2 * max(0, 160 - f.numerator.bit_length() // 2) + 2 * f.denominator.bit_length()
    n = (f.numerator << shift) // f.denominator
    r = math.isqrt(n)
    inexact = r * r != n or n * f.denominator != f.numerator << shift
    return nearest(d, Fraction(2 * r + inexact, 2 << (shift // 2)))


def _mulacc_float(d: DType, a: float, b: float, c: float) -> float:
    if not _finite(a, b, c):
        if not _finite(a, b):
            return to_float(d, a * b + c)
        return to_float(d, c)
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        product_zero = _signed_zero(a, b) if Fraction(a) * Fraction(b) == 0 else None
        return 0.0 if product_zero is None else product_zero + c
    return nearest(d, exact) or math.copysign(0.0, exact)


def _max_float(a: float, b: float) -> float:
    return math.nan if a != a or b != b else a if a > b else b


# One row per op


def _add(u: UOp, a: Number, b: Number) -> Number:
    d = u.dtype
    return a or b if d is dt.bool_ else _add_float(d, a, b) if d.is_float else to_width(d, int(a) + int(b))


def _sub(u: UOp, a: Number, b: Number) -> Number:
    d = u.dtype
    return _add_float(d, a, -b) if d.is_float else to_width(d, int(a) - int(b))


def _mul(u: UOp, a: Number, b: Number) -> Number:
    d = u.dtype
    return bool(a and b) if d is dt.bool_ else _mul_float(d, a, b) if d.is_float else to_width(d, int(a) * int(b))


def _neg(u: UOp, a: Number) -> Number:
    return -a if u.dtype.is_float else to_width(u.dtype, -int(a))


def _max(u: UOp, a: Number, b: Number) -> Number:
    return _max_float(a, b) if u.dtype.is_float else max(a, b)


def _mulacc(u: UOp, a: Number, b: Number, c: Number) -> Number:
    d = u.dtype
    if d is dt.bool_:
        return bool((a and b) or c)
    return _mulacc_float(d, a, b, c) if d.is_float else to_width(d, int(a) * int(b) + int(c))


def _trunc(u: UOp, a: Number) -> Number:
    if not isinstance(a, float) or not math.isfinite(a):
        return a
    return math.copysign(float(math.trunc(a)), a)


def _cast(u: UOp, a: Number) -> Number | None:
    d = u.dtype
    if d is dt.bool_:
        return a != 0
    if d.is_float:
        return to_float(d, a)
    if not isinstance(a, float):
        return to_width(d, int(a))
    if d is dt.index:
        return math.trunc(a) if math.isfinite(a) else None
    if a != a:
        return 0
    return int(d.min) if a <= d.min else int(d.max) if a >= d.max else math.trunc(a)


def _where(u: UOp, p: Number, a: Number, b: Number) -> Number:
    return a if p != 0 else b


def _bitwise(f: Callable[[int, int], int]) -> Callable[..., Number]:
    return lambda u, a, b: bool(f(int(a), int(b))) if u.dtype is dt.bool_ else to_width(u.dtype, f(int(a), int(b)))


def _bitcast(u: UOp, a: Number) -> Number | None:
    old, new = u.src[0].dtype, u.dtype
    return decode(encode(a, old), new) if old.bits == new.bits and new is not dt.bool_ else None


FOLD: dict[Op, Callable[..., Number | None]] = {
    Op.ADD: _add,
    Op.SUB: _sub,
    Op.MUL: _mul,
    Op.NEG: _neg,
    Op.MAX: _max,
    Op.MULACC: _mulacc,
    Op.IDIV: lambda u, a, b: _idiv(u.dtype, a, b),
    Op.MOD: lambda u, a, b: _mod(u.dtype, a, b),
    Op.SHL: _shl,
    Op.SHR: _shr,
    Op.AND: _bitwise(lambda a, b: a & b),
    Op.OR: _bitwise(lambda a, b: a | b),
    Op.XOR: _bitwise(lambda a, b: a ^ b),
    Op.NOT: lambda u, a: not a,
    Op.CMPLT: lambda u, a, b: a < b,
    Op.CMPGT: lambda u, a, b: a > b,
    Op.CMPLE: lambda u, a, b: a <= b,
    Op.CMPGE: lambda u, a, b: a >= b,
    Op.CMPEQ: lambda u, a, b: a == b,
    Op.CMPNE: lambda u, a, b: a != b,
    Op.WHERE: _where,
    Op.CAST: _cast,
    Op.BITCAST: _bitcast,
    Op.TRUNC: _trunc,
    Op.RECIP: lambda u, a: _div_float(u.dtype, 1.0, a),
    Op.DIV: lambda u, a, b: _div_float(u.dtype, a, b),
    Op.SQRT: lambda u, a: _sqrt(u.dtype, a),
}


# Bits of constants


def encode(x: Number, d: DType) -> int:
    """The bits of a value of `d`, as an unsigned integer; a NaN is the quiet one."""
    if not d.is_float:
        return int(x) & ((1 << d.bits) - 1)
    top, mantissa = (1 << d.exp_bits) - 1, d.man_bits
    sign = int(math.copysign(1.0, x) < 0) << (d.bits - 1)
    if x != x:
        return sign | (top << mantissa) | ((1 << mantissa) - 1 if not d.has_inf else 1 << (mantissa - 1))
    if math.isinf(x):
        return sign | (top << mantissa)
    m, least = Fraction(abs(x)), 1 - (2 ** (d.exp_bits - 1) - 1)
    exponent = max(least, _exponent(m)) if m else least
    units = int(m / Fraction(2) ** (exponent - mantissa))
    bits: int = sign | ((exponent - least) << mantissa) + units
    return bits


def decode(bits: int, d: DType) -> Number:
    """The value of `d` with these bits."""
    if not d.is_float:
        return bool(bits) if d is dt.bool_ else to_width(d, bits)
    mantissa = bits % 2**d.man_bits
    field = (bits >> d.man_bits) % 2**d.exp_bits
    sign = -1.0 if bits >> (d.bits - 1) else 1.0
    if field == 2**d.exp_bits - 1 and d.has_inf:
        return sign * math.inf if mantissa == 0 else math.nan
    if not d.has_inf and field == 2**d.exp_bits - 1 and mantissa == 2**d.man_bits - 1:
        return math.nan
    least = 1 - (2 ** (d.exp_bits - 1) - 1)
    units, exponent = (mantissa, least) if field == 0 else (mantissa + 2**d.man_bits, field - 1 + least)
    return sign * float(units * Fraction(2) ** (exponent - d.man_bits))
