"""Constant folding: ops on Python numbers.

Takes: a node whose sources are all Consts. Gives: the number that it evaluates to. The result is None for a Trap, and for an
approximated op, whose bits the kernel decides (R27, one node, one value). Raises CompileError for an index wider than a Const may
be (R08, index dtype). Spec: rulings R01 to R29 at level strict.

The folder shares no arithmetic with the interpreters or the prover, so that one wrong idea cannot hide in all three.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from uops.compiler.place import untranslatable_error
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ALU, Op

Number = bool | int | float


def fold_constant(u: UOp) -> Number | None:
    """Return the value of an ALU op, Cast or equal-size Bitcast of constants; None if it has no single value."""
    rule = FOLD.get(u.op)
    if rule is None or any(s.op is not Op.CONST for s in u.src):
        return None
    value = rule(u, *(s.arg.value for s in u.src))
    if u.dtype is dt.index and isinstance(value, int) and value.bit_length() > dt.INDEX_BITS:
        raise untranslatable_error("R08 (index dtype)", u, f"the value has more than {dt.INDEX_BITS} bits")
    return value


# Integers


def wrap_to_width(d: DType, n: int) -> int:
    """Wrap `n` to the width of `d` (R05, integer overflow); index is unbounded."""
    if d is dt.index:
        return n
    n %= 2**d.bits
    return n - 2**d.bits if d.is_signed and n >= 2 ** (d.bits - 1) else n


def _idiv(d: DType, a: int, b: int) -> int:
    return wrap_to_width(d, a // b) if b else 0


def _mod(d: DType, a: int, b: int) -> int:
    return wrap_to_width(d, a % b) if b else a


def _fold_shl_unless_trap(u: UOp, a: int, n: int) -> int | None:
    d = u.dtype
    count = _read_shift_count_unsigned_unless_trap(u, n)
    if count is None:
        return None
    if d is dt.index:
        return a << min(count, dt.INDEX_BITS)
    return wrap_to_width(d, a << count) if count < d.bits else 0


def _shr(u: UOp, a: int, n: int) -> int | None:
    count = _read_shift_count_unsigned_unless_trap(u, n)
    return None if count is None else a >> min(count, 4096 if u.dtype is dt.index and abs(a) < 2**4096 else u.dtype.bits or count)


def _read_shift_count_unsigned_unless_trap(u: UOp, n: int) -> int | None:
    """Return a shift count, read as unsigned (R06, shifts); None for a negative one of index arithmetic, a Trap (R29, R81)."""
    if n >= 0:
        return n
    return None if dt.index in (u.dtype, u.rhs.dtype) else n + 2**u.rhs.dtype.bits


# Floats: exact fractions, one rounding


def round_to_nearest(d: DType, x: Fraction, result_if_exact_zero: float = 0.0) -> float:
    """Round `x` to the nearest value of `d`, ties to even. Overflow gives infinity, or NaN in a dtype that has none (R15).

    `result_if_exact_zero` is the result for an exact 0, which has no sign.
    """
    if x == 0:
        return result_if_exact_zero
    sign, m = (-1 if x < 0 else 1), abs(x)
    exponent = _floor_log2(m)
    step = Fraction(2) ** (max(exponent, d.min_exponent) - d.man_bits)
    units, rest = divmod(m, step)
    if rest * 2 > step or (rest * 2 == step and units % 2):
        units += 1
    value = units * step
    if value > Fraction(d.max_finite):
        return sign * math.inf if d.has_inf else math.nan
    return sign * float(value)


def _floor_log2(m: Fraction) -> int:
    """Return the e with 2^e <= m < 2^(e + 1), for m > 0."""
    e = m.numerator.bit_length() - m.denominator.bit_length()
    return e - 1 if Fraction(2) ** e > m else e


def round_to_float_dtype(d: DType, x: Number) -> float:
    """Convert a number to a float dtype, with one rounding (R15, Cast)."""
    if isinstance(x, float):
        if x != x:
            return math.nan
        if math.isinf(x):
            return x if d.has_inf else math.nan
        return round_to_nearest(d, Fraction(x), x)
    return round_to_nearest(d, Fraction(int(x)))


def _finite(*xs: float) -> bool:
    return all(math.isfinite(x) for x in xs)


def _add_rounded_once(d: DType, a: float, b: float) -> float:
    if not _finite(a, b):
        return round_to_float_dtype(d, a + b)
    if a == 0 and b == 0:
        return a + b  # -0.0 only if both are
    return round_to_nearest(d, Fraction(a) + Fraction(b))


def _mul_float(d: DType, a: float, b: float) -> float:
    if not _finite(a, b):
        return round_to_float_dtype(d, a * b)
    return round_to_nearest(d, Fraction(a) * Fraction(b), math.copysign(0.0, a) * math.copysign(1.0, b)) or _signed_zero(a, b)


def _signed_zero(a: float, b: float) -> float:
    """Return the zero of a product or quotient that is zero or underflows to zero; it keeps the sign."""
    return math.copysign(0.0, math.copysign(1.0, a) * math.copysign(1.0, b))


def _divide_rounded_once(d: DType, a: float, b: float) -> float:
    if a != a or b != b or (math.isinf(a) and math.isinf(b)) or (a == 0 and b == 0):
        return math.nan
    if b == 0 or math.isinf(a):
        return round_to_float_dtype(d, math.copysign(math.inf, _signed_zero(a, b)))
    if math.isinf(b):
        return _signed_zero(a, b)
    return round_to_nearest(d, Fraction(a) / Fraction(b)) or _signed_zero(a, b)


def _sqrt_rounded_once(d: DType, x: float) -> float:
    if x != x or x < 0:
        return math.nan
    if x == 0 or math.isinf(x):
        return round_to_float_dtype(d, x)
    f = Fraction(x)
    # The integer square root has far more bits than `d`. It is made odd if it is inexact, so that it never looks like a tie.
    shift = 2 * max(0, 160 - f.numerator.bit_length() // 2) + 2 * f.denominator.bit_length()
    n = (f.numerator << shift) // f.denominator
    r = math.isqrt(n)
    inexact = r * r != n or n * f.denominator != f.numerator << shift
    return round_to_nearest(d, Fraction(2 * r + inexact, 2 << (shift // 2)))


def _mulacc_rounded_once(d: DType, a: float, b: float, c: float) -> float:
    if not _finite(a, b, c):
        if not _finite(a, b):
            return round_to_float_dtype(d, a * b + c)
        return round_to_float_dtype(d, c)
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        product_zero = _signed_zero(a, b) if Fraction(a) * Fraction(b) == 0 else None
        return 0.0 if product_zero is None else product_zero + c
    return round_to_nearest(d, exact) or math.copysign(0.0, exact)


def _max_float(a: float, b: float) -> float:
    return math.nan if a != a or b != b else a if a > b else b


# Ops: each takes the node and the numbers of its sources


def _add(u: UOp, a: Number, b: Number) -> Number:
    d = u.dtype
    return a or b if d is dt.bool_ else _add_rounded_once(d, a, b) if d.is_float else wrap_to_width(d, int(a) + int(b))


def _sub(u: UOp, a: Number, b: Number) -> Number:
    d = u.dtype
    return _add_rounded_once(d, a, -b) if d.is_float else wrap_to_width(d, int(a) - int(b))


def _mul(u: UOp, a: Number, b: Number) -> Number:
    d = u.dtype
    return bool(a and b) if d is dt.bool_ else _mul_float(d, a, b) if d.is_float else wrap_to_width(d, int(a) * int(b))


def _neg(u: UOp, a: Number) -> Number:
    return -a if u.dtype.is_float else wrap_to_width(u.dtype, -int(a))


def _max(u: UOp, a: Number, b: Number) -> Number:
    return _max_float(a, b) if u.dtype.is_float else max(a, b)


def _fold_mulacc(u: UOp, a: Number, b: Number, c: Number) -> Number:
    d = u.dtype
    if d is dt.bool_:
        return bool((a and b) or c)
    return _mulacc_rounded_once(d, a, b, c) if d.is_float else wrap_to_width(d, int(a) * int(b) + int(c))


def _trunc(u: UOp, a: Number) -> Number:
    if not isinstance(a, float) or not math.isfinite(a):
        return a
    return math.copysign(float(math.trunc(a)), a)


def _fold_cast(u: UOp, a: Number) -> Number | None:
    d = u.dtype
    if d is dt.bool_:
        return a != 0
    if d.is_float:
        return round_to_float_dtype(d, a)
    if not isinstance(a, float):
        return wrap_to_width(d, int(a))
    if d is dt.index:
        return math.trunc(a) if math.isfinite(a) else None
    if a != a:
        return 0
    return int(d.min) if a <= d.min else int(d.max) if a >= d.max else math.trunc(a)


def _where(u: UOp, p: Number, a: Number, b: Number) -> Number:
    return a if p != 0 else b


def _bitwise(f: Callable[[int, int], int]) -> Callable[..., Number]:
    return lambda u, a, b: bool(f(int(a), int(b))) if u.dtype is dt.bool_ else wrap_to_width(u.dtype, f(int(a), int(b)))


def _bitcast(u: UOp, a: Number) -> Number | None:
    old, new = u.operand.dtype, u.dtype
    return decode_bits(encode_bits(a, old), new) if old.bits == new.bits and new is not dt.bool_ else None


FOLD: dict[Op, Callable[..., Number | None]] = {
    Op.ADD: _add,
    Op.SUB: _sub,
    Op.MUL: _mul,
    Op.NEG: _neg,
    Op.MAX: _max,
    Op.MULACC: _fold_mulacc,
    Op.IDIV: lambda u, a, b: _idiv(u.dtype, a, b),
    Op.MOD: lambda u, a, b: _mod(u.dtype, a, b),
    Op.SHL: _fold_shl_unless_trap,
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
    Op.CAST: _fold_cast,
    Op.BITCAST: _bitcast,
    Op.TRUNC: _trunc,
    Op.RECIP: lambda u, a: _divide_rounded_once(u.dtype, 1.0, a),
    Op.DIV: lambda u, a, b: _divide_rounded_once(u.dtype, a, b),
    Op.SQRT: lambda u, a: _sqrt_rounded_once(u.dtype, a),
}
#: Elementwise ops that are never folded: the kernel decides the bits of an approximation (R27, one node, one value), Threefry of
#: constants is not worth a rule, and Min is an op of the bestiary only.
UNFOLDED = frozenset({Op.EXP2, Op.LOG2, Op.SIN, Op.POW, Op.THREEFRY, Op.MIN})
assert FOLD.keys() | UNFOLDED == ALU | {Op.BITCAST}, (
    f"compiler/rewrite/fold.py: fold {ALU - FOLD.keys() - UNFOLDED}, or say why not"
)


# Bits of constants


def encode_bits(x: Number, d: DType) -> int:
    """Return the bits of a value of `d` as an unsigned integer; a NaN becomes the quiet one."""
    if not d.is_float:
        return int(x) & ((1 << d.bits) - 1)
    top, mantissa = (1 << d.exp_bits) - 1, d.man_bits
    sign = int(math.copysign(1.0, x) < 0) << (d.bits - 1)
    if x != x:
        return sign | (top << mantissa) | ((1 << mantissa) - 1 if not d.has_inf else 1 << (mantissa - 1))
    if math.isinf(x):
        return sign | (top << mantissa)
    m, least = Fraction(abs(x)), d.min_exponent
    exponent = max(least, _floor_log2(m)) if m else least
    units = int(m / Fraction(2) ** (exponent - mantissa))
    bits: int = sign | ((exponent - least) << mantissa) + units
    return bits


def decode_bits(bits: int, d: DType) -> Number:
    """Return the value of `d` with these bits."""
    if not d.is_float:
        return bool(bits) if d is dt.bool_ else wrap_to_width(d, bits)
    mantissa = bits % 2**d.man_bits
    field = (bits >> d.man_bits) % 2**d.exp_bits
    sign = -1.0 if bits >> (d.bits - 1) else 1.0
    if field == 2**d.exp_bits - 1 and d.has_inf:
        return sign * math.inf if mantissa == 0 else math.nan
    if not d.has_inf and field == 2**d.exp_bits - 1 and mantissa == 2**d.man_bits - 1:
        return math.nan
    least = d.min_exponent
    units, exponent = (mantissa, least) if field == 0 else (mantissa + 2**d.man_bits, field - 1 + least)
    return sign * float(units * Fraction(2) ** (exponent - d.man_bits))
