"""Optional rows: functions that the documents lack and that most libraries have, as Functions with a name.

The body of such a Function says what it means, in ops of the language (R188, optional rows). The interpreter and the compiler
execute the body. An adapter may know the name, and call the library's own function in its place. No conformance depends on these
rows; they have a score of their own.

A float row computes in float64, which holds its dtype. Remainders are exact: significands are divided as integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.rows.compositions import arange

#: Beginning of the name of the Function of an optional row.
PREFIX = "optional."
_F64_MANTISSA, _F64_BIAS = 52, 1075
#: Bits by which a remainder is shifted at once: it has 53, and a word 64.
_STEP = 10
#: Largest difference of exponents for which a quotient fits a word.
_LARGEST_QUOTIENT = 60
_FLOATS = (dt.float16, dt.bfloat16, dt.float32, dt.float64)
_SIGNED = (dt.int8, dt.int16, dt.int32, dt.int64)


@dataclass(frozen=True, slots=True)
class OptionalFunction:
    """A function of an optional row. `build_body` makes its value of operands of one dtype; `result` is its dtype if another.

    A function of a vector takes operands of rank 1 alone. For a partial one, the row does not say what every divisor gives.
    """

    name: str
    semantics: str
    claims: tuple[str, ...]
    ruling: str
    dtypes: tuple[DType, ...]
    arity: int
    build_body: Callable[..., UOp]
    result: DType | None = None
    is_of_vector: bool = False
    is_partial: bool = False

    @property
    def row(self) -> str:
        """The id of the row."""
        return f"Optional/{self.name}"

    @property
    def function_name(self) -> str:
        """The name of its Function nodes."""
        return PREFIX + self.name

    def build(self, *operands: UOp) -> UOp:
        """Build the value of the function for operands of equal dtype and shape."""
        params = [b.param(k, x.shape, x.dtype) for k, x in enumerate(operands)]
        return b.get(b.function(self.build_body(*params), *operands, name=self.function_name), 0)


def find_optional_function(function: UOp) -> OptionalFunction | None:
    """Return the optional row that a Function node is of, or None."""
    name = "" if function.arg is None else function.arg.name or ""
    return OPTIONAL.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None


def list_nodes_outside_optional_bodies(*roots: UOp) -> list[UOp]:
    """Return the nodes of graphs, sources first, without those that only bodies of optional rows have."""
    bodies = {u.body for u in toposort(*roots) if u.op is Op.FUNCTION and find_optional_function(u) is not None}
    return toposort(*roots, gate=lambda u: u not in bodies) if bodies else toposort(*roots)


# ---------------------------------------------------------------------------------------------------------------- rounding


def _floor(x: UOp) -> UOp:
    whole = b.trunc(x)
    return b.where(b.lt(x, whole), b.sub(whole, 1), whole)


def _ceil(x: UOp) -> UOp:
    whole = b.trunc(x)
    return b.where(b.lt(whole, x), b.add(whole, 1), whole)


def _round(x: UOp, is_away: Callable[[UOp, UOp], UOp]) -> UOp:
    """Build the truncated value, or the next one away from zero. `is_away` gets the former, and the size of what it lacks."""
    whole = b.trunc(x)
    lacking = b.sub(x, whole)
    size = b.where(b.lt(lacking, 0), b.neg(lacking), lacking)
    one = b.where(b.lt(x, 0), b.const(-1.0, x.dtype), b.const(1.0, x.dtype))
    return b.where(is_away(whole, size), b.add(whole, one), whole)


def _round_to_even(x: UOp) -> UOp:
    def is_away(whole: UOp, size: UOp) -> UOp:
        half = b.mul(whole, 0.5)
        is_odd = b.ne(b.trunc(half), half)
        return b.or_(b.lt(b.const(0.5, x.dtype), size), b.and_(b.eq(size, 0.5), is_odd))

    return _round(x, is_away)


def _round_away(x: UOp) -> UOp:
    return _round(x, lambda whole, size: b.ge(size, 0.5))


# --------------------------------------------------------------------------------------------------- remainders of floats


def _word(value: int) -> UOp:
    return b.const(value, dt.uint64)


def _split_exponent_and_significand(x: UOp) -> tuple[UOp, UOp]:
    """Build e and m of the float64 |x| = m * 2^(e - 1075), as integers."""
    bits = b.and_(b.bitcast(x, dt.uint64), _word((1 << 63) - 1))
    exponent, fraction = b.shr(bits, _word(_F64_MANTISSA)), b.and_(bits, _word((1 << _F64_MANTISSA) - 1))
    is_normal = b.ne(exponent, _word(0))
    significand = b.where(is_normal, b.or_(fraction, _word(1 << _F64_MANTISSA)), fraction)
    return b.cast(b.where(is_normal, exponent, _word(1)), dt.int64), significand


def _power_of_two(exponent: UOp) -> UOp:
    """Build the float64 2^exponent, a normal number, for an int64."""
    return b.bitcast(b.shl(b.add(exponent, 1023), b.const(_F64_MANTISSA, dt.int64)), dt.float64)


def _divide_magnitudes(x: UOp, y: UOp) -> tuple[UOp, UOp, UOp]:
    """Build |x| mod |y| and floor(|x| / |y|) of numbers, y not 0, and whether the quotient is exact: it fits a word."""
    wide_x, wide_y = b.cast(x, dt.float64), b.cast(y, dt.float64)
    (ex, mx), (ey, my) = _split_exponent_and_significand(wide_x), _split_exponent_and_significand(wide_y)
    my = b.maximum(my, _word(1))
    difference = b.sub(ex, ey)
    is_less = b.lt(difference, 0)
    rest, quotient = b.mod(mx, my), b.idiv(mx, my)
    d = x.dtype
    largest = math.ceil(math.log2(d.max_finite)) - math.floor(math.log2(d.smallest_normal)) + d.man_bits + 1
    for done in range(0, largest, _STEP):
        left = b.maximum(b.sub(difference, done), 0)
        shift = b.cast(b.where(b.lt(left, _STEP), left, _STEP), dt.uint64)
        shifted = b.shl(rest, shift)
        quotient = b.add(b.shl(quotient, shift), b.idiv(shifted, my))
        rest = b.mod(shifted, my)
    exponent = b.sub(ey, _F64_BIAS)
    half = b.shr(exponent, b.const(1, dt.int64))
    value = b.mul(b.mul(b.cast(rest, dt.float64), _power_of_two(half)), _power_of_two(b.sub(exponent, half)))
    remainder = b.where(is_less, _magnitude(x), b.cast(value, d))
    return remainder, b.where(is_less, _word(0), quotient), b.lt(difference, _LARGEST_QUOTIENT)


def _magnitude(x: UOp) -> UOp:
    return b.where(_is_negative(x), b.neg(x), x)


def _is_negative(x: UOp) -> UOp:
    """Build whether the sign bit is set, that of -0 too."""
    return b.lt(b.bitcast(b.cast(x, dt.float64), dt.int64), 0)


def _is_infinite(x: UOp) -> UOp:
    return b.eq(_magnitude(x), math.inf)


def _has_no_remainder(x: UOp, y: UOp) -> UOp:
    """Build whether IEEE 754 gives NaN: an operand is NaN, x is infinite, or y is zero."""
    is_nan = b.or_(b.ne(x, x), b.ne(y, y))
    return b.or_(is_nan, b.or_(_is_infinite(x), b.eq(y, 0)))


def _either_zero(d: DType) -> UOp:
    """Build a zero of either sign (R11: Max of both zeros)."""
    return b.maximum(b.const(0.0, d), b.const(-0.0, d))


def _fmod(x: UOp, y: UOp) -> UOp:
    size, _, _ = _divide_magnitudes(x, y)
    signed = b.where(_is_negative(x), b.neg(size), size)
    return b.where(_has_no_remainder(x, y), b.const(math.nan, x.dtype), b.where(_is_infinite(y), x, signed))


def _floor_mod(x: UOp, y: UOp) -> UOp:
    rest = _fmod(x, y)
    signs_differ = b.ne(b.lt(rest, 0), b.lt(y, 0))
    return b.where(b.eq(rest, 0), _either_zero(x.dtype), b.where(signs_differ, b.add(rest, y), rest))


def _floor_divide(x: UOp, y: UOp) -> UOp:
    d = x.dtype
    rest, quotient, is_exact = _divide_magnitudes(x, y)
    is_small = _is_infinite(y)
    rest, quotient = b.where(is_small, _magnitude(x), rest), b.where(is_small, _word(0), quotient)
    is_below_zero = b.ne(_is_negative(x), _is_negative(y))
    size = b.add(quotient, b.cast(b.and_(is_below_zero, b.ne(rest, 0)), dt.uint64))
    whole = b.cast(size, d)
    floored = b.where(b.eq(size, _word(0)), _either_zero(d), b.where(is_below_zero, b.neg(whole), whole))
    number = b.where(is_exact, floored, b.div(x, y))
    by_zero = b.div(x, y)
    return b.where(b.eq(y, 0), by_zero, b.where(_has_no_remainder(x, y), b.const(math.nan, d), number))


# ---------------------------------------------------------------------------------------------------------------- integers


def _has_inexact_negative_quotient(x: UOp, y: UOp) -> UOp:
    return b.and_(b.ne(b.mod(x, y), 0), b.ne(b.lt(x, 0), b.lt(y, 0)))


def _trunc_divide(x: UOp, y: UOp) -> UOp:
    return b.add(b.idiv(x, y), b.cast(_has_inexact_negative_quotient(x, y), x.dtype))


def _trunc_remainder(x: UOp, y: UOp) -> UOp:
    rest = b.mod(x, y)
    return b.where(_has_inexact_negative_quotient(x, y), b.sub(rest, y), rest)


def _cast_by_c(x: UOp) -> UOp:
    wide = b.cast(x, dt.float64)
    is_inside = b.and_(b.lt(b.const(-(2.0**31) - 1, dt.float64), wide), b.lt(wide, b.const(2.0**31, dt.float64)))
    return b.where(is_inside, b.cast(b.where(is_inside, wide, b.const(0.0, dt.float64)), dt.int32), dt.int32.min)


# ----------------------------------------------------------------------------------------------------------------- sorting


def _argsort(x: UOp) -> UOp:
    """Build the positions of a vector's elements in rising order; NaNs are last, and equal elements keep their order."""
    (n,) = x.shape
    place = arange(n, dt.int64)
    left, right = b.reshape(x, (n, 1)), b.reshape(x, (1, n))
    is_before = b.lt(right, left)
    is_after = b.lt(left, right)
    if x.dtype.is_float:
        nan_left, nan_right = b.ne(left, left), b.ne(right, right)
        is_before = b.or_(is_before, b.and_(nan_left, b.eq(right, right)))
        is_after = b.or_(is_after, b.and_(nan_right, b.eq(left, left)))
    stands_before = b.lt(b.reshape(place, (1, n)), b.reshape(place, (n, 1)))
    precedes = b.where(is_before, b.const(True), b.where(is_after, b.const(False), stands_before))
    rank = b.sum_and_drop_axis(b.cast(precedes, dt.int64), 1)
    is_at = b.eq(b.reshape(place, (n, 1)), b.reshape(rank, (1, n)))
    return b.sum_and_drop_axis(b.where(is_at, b.reshape(place, (1, n)), b.const(0, dt.int64)), 1)


def _sort(x: UOp) -> UOp:
    return b.at(x, _argsort(x))


_LARGE = "a value beyond the integers that the dtype can hold is an integer, and stays"
_NO_ZERO_DIVISOR = "a divisor of 0 gives what Idiv and Mod give (R03); no case has one"
_ZERO = "a zero has either sign"
_ORDER = ("NaNs are last", "equal elements keep their order")
_ORDERED = (*_FLOATS, *dt.INTS)
#: Name -> function.
# fmt: off
OPTIONAL: dict[str, OptionalFunction] = {f.name: f for f in (
    OptionalFunction("floor", "The greatest integer that is not above x.", (_LARGE, "floor of -0.0 is -0.0"), "R189",
                     _FLOATS, 1, _floor),
    OptionalFunction("ceil", "The least integer that is not below x.", (_LARGE, "ceil of -0.5 is -0.0"), "R189", _FLOATS, 1, _ceil),
    OptionalFunction("round_to_even", "The nearest integer to x; of two, the even one.",
                     (_LARGE, "a zero has the sign of x"), "R189", _FLOATS, 1, _round_to_even),
    OptionalFunction("round_away", "The nearest integer to x; of two, the one further from zero.",
                     (_LARGE, "a zero has the sign of x"), "R189", _FLOATS, 1, _round_away),
    OptionalFunction("fmod", "x - y * trunc(x / y), exactly, with the sign of x.",
                     ("NaN for a NaN, an infinite x and a y of 0", "x for an infinite y"), "R190", _FLOATS, 2, _fmod),
    OptionalFunction("floor_mod", "fmod(x, y), plus y where its sign is not that of y, rounded once.",
                     ("NaN where fmod gives NaN", _ZERO), "R190", _FLOATS, 2, _floor_mod),
    OptionalFunction("floor_divide", "floor(x / y) of the exact quotient, rounded once.",
                     ("x / y for a y of 0", "NaN for a NaN and an infinite x", _ZERO,
                      "no case has a quotient beyond the integers that the dtype can hold"), "R190", _FLOATS, 2, _floor_divide,
                     is_partial=True),
    OptionalFunction("trunc_divide", "The quotient of integers, rounded toward zero.",
                     ("the least integer by -1 wraps (R04)", _NO_ZERO_DIVISOR), "R191", _SIGNED, 2, _trunc_divide, is_partial=True),
    OptionalFunction("trunc_remainder", "x - y * trunc_divide(x, y), with the sign of x.", (_NO_ZERO_DIVISOR,), "R191",
                     _SIGNED, 2, _trunc_remainder, is_partial=True),
    OptionalFunction("cast_by_c", "The int32 that C's conversion gives on x86: x truncated, or the least integer.",
                     ("NaN and what is out of range give the least integer",), "R191", _FLOATS, 1, _cast_by_c, dt.int32),
    OptionalFunction("sort", "The elements of a vector in rising order.", _ORDER, "R192", _ORDERED, 1, _sort,
                     is_of_vector=True),
    OptionalFunction("argsort", "The positions of a vector's elements in rising order.", _ORDER, "R192",
                     _ORDERED, 1, _argsort, dt.int64, is_of_vector=True),
)}
# fmt: on
