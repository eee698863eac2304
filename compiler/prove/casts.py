"""The prover's semantics of Cast and Bitcast, written independently of the interpreters.

Takes: an `SmtEncoder`, a target dtype and an `EncodedValue`. Gives: the converted `EncodedValue`. Spec: R15 (casts round once,
wrap or saturate), R28 (movement keeps every bit), R29 (index arithmetic), R46 (Bitcast).

In a model of bits, a cast is the solver's conversion. In a model with `exact`, a cast from or to a float is a function of the
exact value. `of.D` maps a float of dtype D to its number, and `of.int` maps an integer; -0, each infinity and NaN are numbers of
their own. The uninterpreted function `to.D` is R15's "one rounding from the exact source". Facts about these functions are stated
at each use: an integer within the range of an integer dtype stays itself, and a lossless cast keeps the number
(`derive_facts_of_lossless_cast`). The latter is a lemma, proved separately for each pair of dtypes.
"""

from __future__ import annotations

from collections.abc import Callable

from uops.compiler.prove.model import (
    FORMAT,
    SMALL,
    EncodedValue,
    Representation,
    SmtEncoder,
    Unmodelled,
    extract,
    float_from_bits,
    float_from_integer,
    format_widths,
    sign_extend,
    to_float,
    zero_extend,
)
from uops.compiler.prove.solver import smt
from uops.compiler.prove.solver.smt import EXACT, RNE, RTZ, Term
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, DTypeKind


def encode_cast(m: SmtEncoder, target_dtype: DType, operand: EncodedValue) -> EncodedValue:
    """Convert `operand` to dtype `target_dtype` by R15 (casts round once, wrap or saturate). Raises Unmodelled."""
    if target_dtype is operand.dtype:
        return operand
    to, source = m.representation(target_dtype), m.representation(operand.dtype)
    if Representation.SLICE in (to, source):
        raise Unmodelled("a slice has no casts")
    if target_dtype.kind is DTypeKind.BOOL:
        return EncodedValue(target_dtype, _cast_to_bool(m, operand))
    if source is Representation.BOOL:
        return EncodedValue(
            target_dtype, smt.ite(operand.term, m.make_constant(1, target_dtype).term, m.make_constant(0, target_dtype).term)
        )
    if Representation.REAL in (to, source):
        raise Unmodelled(f"a cast of {operand.dtype} to {target_dtype} over the reals")
    if Representation.FLOAT in (to, source) and m.exact:
        return _cast_exact_number_by_uninterpreted_function(m, target_dtype, operand)
    return EncodedValue(target_dtype, _CONCRETE[source, to](m, target_dtype, operand))


def _cast_to_bool(m: SmtEncoder, a: EncodedValue) -> Term:
    """Return x != 0; NaN is true."""
    representation = m.representation(a.dtype)
    if representation is Representation.FLOAT:
        return smt.not_(smt.app("fp.isZero", a.term, sort=smt.BOOL))
    return smt.not_(smt.equals(a.term, m.make_constant(0, a.dtype).term))


# Integers


def wrap_to_dtype(d: DType, integer: Term) -> Term:
    """Reduce an integer modulo 2^bits into the range of `d` (R05: integer overflow wraps); index is unbounded (R08)."""
    if d.kind is DTypeKind.INDEX:
        return integer
    if not d.is_signed:
        return smt.modulo(integer, 1 << d.bits)
    half = smt.integer(1 << (d.bits - 1))
    return smt.minus(smt.modulo(smt.plus(integer, half), 1 << d.bits), half)


def _cast_whole_number(m: SmtEncoder, d: DType, a: EncodedValue) -> Term:
    """Wrap an unbounded integer to `d`, unless the range of its dtype shows that it fits."""
    fits = d.kind is DTypeKind.INDEX or (a.dtype.kind is not DTypeKind.INDEX and d.min <= a.dtype.min and a.dtype.max <= d.max)
    return a.term if fits else wrap_to_dtype(d, a.term)


def _resize_bit_vector(m: SmtEncoder, target_dtype: DType, a: EncodedValue) -> Term:
    """Truncate a bit vector to the width of `target_dtype`, or extend it by the sign of its own dtype."""
    old, new = m.width(a.dtype), m.width(target_dtype)
    if new <= old:
        return extract(a.term, new - 1, 0) if new < old else a.term
    return (sign_extend if a.dtype.is_signed else zero_extend)(a.term, new - old)


# Floats, concretely


def _round_integer_once_to_float(m: SmtEncoder, d: DType, a: EncodedValue) -> Term:
    """Round an integer once to nearest even; a finite-only dtype overflows to NaN, others to infinity."""
    signed = a.dtype.is_signed
    if d in SMALL:
        narrow = float_from_integer(a.term, _narrow_format(d), signed=signed)
        return _replace_overflow_by_infinity_or_nan(d, to_float(narrow, smt.fp(*FORMAT[d])))
    return float_from_integer(a.term, smt.fp(*FORMAT[d]), signed=signed)


def _narrow_format(d: DType) -> smt.Sort:
    """Return the solver's format with the significand of a float8; its exponents suffice for the normal values."""
    return smt.fp(5, d.man_bits + 1)


def round_float_term_to_dtype(target_dtype: DType, float_term: Term) -> Term:
    """Round a float term of any format once to `target_dtype`."""
    if target_dtype not in SMALL:
        return to_float(float_term, smt.fp(*FORMAT[target_dtype]))
    if target_dtype.exp_bits == dt.float16.exp_bits:
        return to_float(to_float(float_term, _narrow_format(target_dtype)), smt.fp(*FORMAT[target_dtype]))
    return _round_to_float8_with_subnormals(target_dtype, float_term)


def _round_to_float8_with_subnormals(d: DType, t: Term) -> Term:
    """Round to a float8: below the least normal value to a multiple of the least value, else to its significant bits."""
    half, unit = smt.fp(*FORMAT[d]), d.man_bits - d.min_exponent
    normal = _replace_overflow_by_infinity_or_nan(d, to_float(to_float(t, _narrow_format(d)), half))
    scaled = smt.app("fp.mul", RNE, t, _power_of_two_constant(unit, t.sort), sort=t.sort)
    whole = smt.app("fp.roundToIntegral", RNE, scaled, sort=t.sort)
    small = to_float(smt.app("fp.mul", RNE, whole, _power_of_two_constant(-unit, t.sort), sort=t.sort), half)
    tiny = smt.compare("fp.lt", smt.app("fp.abs", t, sort=t.sort), _power_of_two_constant(d.min_exponent, t.sort))
    return smt.ite(tiny, small, normal)


def _replace_overflow_by_infinity_or_nan(d: DType, t: Term) -> Term:
    """Replace values of float16 beyond the greatest of `d`, by NaN if it is finite-only and else by an infinity."""
    if d.exp_bits == dt.float16.exp_bits:  # has the infinities of float16
        return t
    top = to_float(_power_of_two_constant(0, t.sort, d.max_finite), t.sort)
    over = smt.compare("fp.gt", smt.app("fp.abs", t, sort=t.sort), top)
    nan, plus, minus = (smt.literal(f"(_ {name} {format_widths(t.sort)})", t.sort) for name in ("NaN", "+oo", "-oo"))
    special = nan if d.finite_only else smt.ite(smt.app("fp.isNegative", t, sort=smt.BOOL), minus, plus)
    return smt.ite(over, special, t)


def _power_of_two_constant(e: int, sort: smt.Sort, factor: float = 1.0) -> Term:
    """Return factor * 2^e as a constant of a float sort, which must represent it."""
    return smt.literal(f"((_ to_fp {format_widths(sort)}) RNE {_fraction_text(factor * 2.0**e)})", sort)


def _fraction_text(x: float) -> str:
    """Return a float as an exact SMT-LIB fraction."""
    n, d = x.as_integer_ratio()
    return f"(/ {n}.0 {d}.0)"


def _float_to_integer_saturating(m: SmtEncoder, d: DType, a: EncodedValue) -> Term:
    """Convert a float to an integer toward zero, saturating; NaN becomes 0."""
    sort, width = a.term.sort, d.bits
    low, high = int(d.min), int(d.max)
    convert = f"(_ {'fp.to_sbv' if d.is_signed else 'fp.to_ubv'} {width})"
    inside = smt.app(convert, RTZ, a.term, sort=smt.bv(width))
    above = smt.compare("fp.geq", a.term, _float_bound_constant(high + 1, sort))
    below = smt.compare("fp.leq", a.term, _float_bound_constant(low, sort))  # the solver leaves conversions of infinities undefined
    is_nan = smt.app("fp.isNaN", a.term, sort=smt.BOOL)
    clamped = smt.ite(above, smt.word(high, width), smt.ite(below, smt.word(low, width), inside))
    return smt.ite(is_nan, smt.word(0, width), clamped)


def _float_bound_constant(n: int, sort: smt.Sort) -> Term:
    """Return an integer bound (a power of 2, or 0) in a float sort; infinity if the sort's values do not reach it."""
    return smt.literal(f"((_ to_fp {format_widths(sort)}) RNE {'' if n >= 0 else '(- '}{abs(n)}.0{'' if n >= 0 else ')'})", sort)


def _encode_float_to_index_and_require_finite(m: SmtEncoder, d: DType, a: EncodedValue) -> Term:
    """Convert a float to index, toward zero; a non-finite float traps (R29: index arithmetic).

    A number beyond the bit vector's range is an uninterpreted function of the float.
    """
    finite = smt.not_(smt.or_(*(smt.app(p, a.term, sort=smt.BOOL) for p in ("fp.isNaN", "fp.isInfinite"))))
    m.definedness.append(finite)
    wide = to_float(a.term, smt.fp(*FORMAT[dt.float64]))
    limit = _power_of_two_constant(62, wide.sort)
    small = smt.compare("fp.lt", smt.app("fp.abs", wide, sort=wide.sort), limit)
    inside = smt.app(f"(_ fp.to_sbv {m.width(d)})", RTZ, wide, sort=m.sort(d))
    return smt.ite(small, inside, m.apply_uninterpreted("truncated", wide, sort=m.sort(d)))


def _cast_float_to_float(m: SmtEncoder, d: DType, a: EncodedValue) -> Term:
    return round_float_term_to_dtype(d, a.term)


def _reject_cast(m: SmtEncoder, d: DType, a: EncodedValue) -> Term:
    """Raise Unmodelled for casts between floats and unbounded integers."""
    raise Unmodelled(f"casts between {a.dtype} and {d} need bit vectors, or exact casts")


_CONCRETE: dict[tuple[Representation, Representation], Callable[[SmtEncoder, DType, EncodedValue], Term]] = {
    (Representation.BITS, Representation.BITS): _resize_bit_vector,
    (Representation.BITS, Representation.WIDE): _resize_bit_vector,
    (Representation.WIDE, Representation.BITS): _resize_bit_vector,
    (Representation.WHOLE, Representation.WHOLE): _cast_whole_number,
    (Representation.BITS, Representation.FLOAT): _round_integer_once_to_float,
    (Representation.WIDE, Representation.FLOAT): _round_integer_once_to_float,
    (Representation.FLOAT, Representation.FLOAT): _cast_float_to_float,
    (Representation.FLOAT, Representation.BITS): _float_to_integer_saturating,
    (Representation.FLOAT, Representation.WIDE): _encode_float_to_index_and_require_finite,
    (Representation.FLOAT, Representation.WHOLE): _reject_cast,
    (Representation.WHOLE, Representation.FLOAT): _reject_cast,
    (Representation.BITS, Representation.WHOLE): _reject_cast,
    (Representation.WHOLE, Representation.BITS): _reject_cast,
}


# Floats, as functions of the exact value


def _cast_exact_number_by_uninterpreted_function(m: SmtEncoder, target_dtype: DType, a: EncodedValue) -> EncodedValue:
    """Convert between a float and another dtype by an uninterpreted function of the exact value."""
    number = exact_number(m, a)
    result = m.apply_uninterpreted(f"to.{target_dtype.short}", number, sort=m.sort(target_dtype))
    if not a.dtype.is_float:
        return EncodedValue(target_dtype, result)
    if target_dtype.kind is DTypeKind.INDEX:  # a non-finite number traps
        m.definedness.append(smt.function("finite", number, sort=smt.BOOL))
    return EncodedValue(target_dtype, result)


def exact_number(m: SmtEncoder, a: EncodedValue) -> Term:
    """Return the exact number of a float or integer, as a term of sort EXACT."""
    name = f"of.{a.dtype.short}" if a.dtype.is_float else "of.int"
    return smt.function(name, a.term, sort=EXACT)


def derive_facts_of_lossless_cast(m: SmtEncoder, cast_operand: EncodedValue, cast_result: EncodedValue) -> list[Term]:
    """State that a cast from `cast_operand` to `cast_result` kept the number (the lemma of the pair), with the consequences for
    an integer."""
    facts = [smt.equals(exact_number(m, cast_result), exact_number(m, cast_operand))]
    if cast_operand.dtype.is_float:
        return facts
    number, n = exact_number(m, cast_operand), cast_operand.term
    facts.append(smt.function("finite", number, sort=smt.BOOL))
    facts.append(smt.equals(smt.function(f"to.{dt.index.short}", number, sort=smt.INT), n))
    facts.append(smt.equals(smt.app("fp.isZero", cast_result.term, sort=smt.BOOL), smt.equals(n, smt.integer(0))))
    for d in dt.INTS:
        low, high = smt.integer(int(d.min)), smt.integer(int(d.max))
        clamped = smt.ite(smt.compare("<", n, low), low, smt.ite(smt.compare(">", n, high), high, n))
        facts.append(smt.equals(smt.function(f"to.{d.short}", number, sort=smt.INT), clamped))
    return facts


def build_lemma_that_cast_keeps_number(source: DType, target: DType) -> Term:
    """Build the lemma that the cast of every value of `source` to `target` keeps the number, in a model of bits."""
    m = SmtEncoder()
    x = m.make_variable("x", source)
    y = encode_cast(m, target, x)
    if source.is_float:
        wide = smt.fp(*FORMAT[dt.float64])
        return smt.equals(to_float(y.term, wide), to_float(x.term, wide))
    # the float is integral, and converts back to the integer without saturation
    integral = smt.equals(smt.app("fp.roundToIntegral", RTZ, y.term, sort=y.term.sort), y.term)
    finite = smt.not_(smt.app("fp.isInfinite", y.term, sort=smt.BOOL))
    back = smt.app("(_ fp.to_sbv 72)", RTZ, to_float(y.term, smt.fp(*FORMAT[dt.float64])), sort=smt.bv(72))
    zero = smt.app("fp.isNegative", y.term, sort=smt.BOOL)
    return smt.and_(
        finite,
        integral,
        smt.equals(back, _extend_to_72_bits(x)),
        smt.implies(smt.equals(x.term, smt.word(0, source.bits)), smt.not_(zero)),
    )


def _extend_to_72_bits(x: EncodedValue) -> Term:
    """Extend an integer to 72 bits by its sign."""
    return (sign_extend if x.dtype.is_signed else zero_extend)(x.term, 72 - x.dtype.bits)


def encode_bitcast(m: SmtEncoder, target_dtype: DType, operand: EncodedValue) -> EncodedValue:
    """Reinterpret the bits of `operand` in a dtype of the same size (R46: Bitcast). Raises Unmodelled."""
    if m.representation(operand.dtype) is Representation.BOOL:
        bits = smt.ite(operand.term, smt.word(1, 8), smt.word(0, 8))
    elif operand.dtype.is_float:
        bits = operand.bits if operand.bits is not None else _introduce_and_constrain_float_bits(m, operand)
    elif m.representation(operand.dtype) is Representation.BITS:
        bits = operand.term
    else:
        raise Unmodelled(f"bits of {operand.dtype} in a model of whole numbers")
    if target_dtype.is_float:
        return EncodedValue(target_dtype, float_from_bits(bits, target_dtype), bits)
    if m.representation(target_dtype) is not Representation.BITS:
        raise Unmodelled(f"bits of {target_dtype} in a model of whole numbers")
    return EncodedValue(target_dtype, bits)


def _introduce_and_constrain_float_bits(m: SmtEncoder, a: EncodedValue) -> Term:
    """Introduce bits for a computed float: any that represent it, as a NaN's payload is free (R20: NaNs are one class)."""
    bits = m.fresh_constant("bits", smt.bv(a.dtype.bits))
    m.facts.append(smt.equals(float_from_bits(bits, a.dtype), a.term))
    return bits
