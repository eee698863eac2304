"""What Cast and Bitcast mean to the prover (R15, R28, R29, R46): a text of its own.

In a model of bits a cast is the solver's conversion. In a model with `exact`, a cast that meets a float is a function of the exact
value: `of.D` takes a float of dtype D, and `of.int` an integer, to the number that it is (one more for -0, for each infinity and
for NaN), and R15's "one rounding from the exact source" is an uninterpreted function `to.D` of that number. What is known of these
functions is stated where it is used: an integer in the range of an integer dtype is itself there, and a cast that loses nothing
keeps the number (`kept`), which is a lemma with a proof of its own for each pair of dtypes.
"""

from __future__ import annotations

from collections.abc import Callable

from uops.compiler.prove.model import (
    FORMAT,
    SMALL,
    Form,
    Model,
    Unmodelled,
    Value,
    extract,
    from_bits,
    of_integer,
    sign_extend,
    to_float,
    zero_extend,
)
from uops.compiler.prove.solver import smt
from uops.compiler.prove.solver.smt import EXACT, RNE, RTZ, Term
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, Kind


def cast(m: Model, d: DType, a: Value) -> Value:
    """`a` converted to `d` by R15."""
    if d is a.dtype:
        return a
    to, source = m.form(d), m.form(a.dtype)
    if Form.SLICE in (to, source):
        raise Unmodelled("a slice has no casts")
    if d.kind is Kind.BOOL:
        return Value(d, _truth(m, a))
    if source is Form.BOOL:
        return Value(d, smt.ite(a.term, m.number(1, d).term, m.number(0, d).term))
    if Form.REAL in (to, source):
        raise Unmodelled(f"a cast of {a.dtype} to {d} over the reals")
    if Form.FLOAT in (to, source) and m.exact:
        return _exact(m, d, a)
    return Value(d, _CONCRETE[source, to](m, d, a))


def _truth(m: Model, a: Value) -> Term:
    """x != 0; NaN is true."""
    form = m.form(a.dtype)
    if form is Form.FLOAT:
        return smt.not_(smt.app("fp.isZero", a.term, sort=smt.BOOL))
    return smt.not_(smt.same(a.term, m.number(0, a.dtype).term))


# Integers


def wrap(d: DType, t: Term) -> Term:
    """An integer modulo 2^bits, in the range of `d` (R05); index is unbounded (R08)."""
    if d.kind is Kind.INDEX:
        return t
    if not d.is_signed:
        return smt.modulo(t, 1 << d.bits)
    half = smt.integer(1 << (d.bits - 1))
    return smt.minus(smt.modulo(smt.plus(t, half), 1 << d.bits), half)


def _whole(m: Model, d: DType, a: Value) -> Term:
    keeps = d.kind is Kind.INDEX or (a.dtype.kind is not Kind.INDEX and d.min <= a.dtype.min and a.dtype.max <= d.max)
    return a.term if keeps else wrap(d, a.term)


def _resize(m: Model, d: DType, a: Value) -> Term:
    old, new = m.width(a.dtype), m.width(d)
    if new <= old:
        return extract(a.term, new - 1, 0) if new < old else a.term
    return (sign_extend if a.dtype.is_signed else zero_extend)(a.term, new - old)


# Floats, concretely


def _round_integer(m: Model, d: DType, a: Value) -> Term:
    """One rounding to nearest even; e4m3 overflows to NaN, e5m2 to infinity."""
    signed = a.dtype.is_signed
    if d in SMALL:
        narrow = of_integer(a.term, _narrow(d), signed=signed)
        return _unless_too_great(d, to_float(narrow, smt.fp(*FORMAT[d])))
    return of_integer(a.term, smt.fp(*FORMAT[d]), signed=signed)


def _narrow(d: DType) -> smt.Sort:
    """The solver's format with the significand of a float8; its exponents suffice for values of 2^-6 and more."""
    return smt.fp(5, d.man_bits + 1)


def round_float(m: Model, d: DType, t: Term) -> Term:
    """A float term of any format, rounded once to `d`."""
    if d is dt.fp8e4m3:
        return _round_e4m3(m, t)
    if d is dt.fp8e5m2:
        return to_float(to_float(t, _narrow(d)), smt.fp(*FORMAT[d]))
    return to_float(t, smt.fp(*FORMAT[d]))


def _round_e4m3(m: Model, t: Term) -> Term:
    """Below 2^-6 to a multiple of 2^-9, else to 4 significant bits."""
    half = smt.fp(*FORMAT[dt.float16])
    normal = _unless_too_great(dt.fp8e4m3, to_float(to_float(t, _narrow(dt.fp8e4m3)), half))
    scaled = smt.app("fp.mul", RNE, t, _power(9, t.sort), sort=t.sort)
    whole = smt.app("fp.roundToIntegral", RNE, scaled, sort=t.sort)
    small = to_float(smt.app("fp.mul", RNE, whole, _power(-9, t.sort), sort=t.sort), half)
    tiny = smt.compare("fp.lt", smt.app("fp.abs", t, sort=t.sort), _power(-6, t.sort))
    return smt.ite(tiny, small, normal)


def _unless_too_great(d: DType, t: Term) -> Term:
    """e4m3 has no infinity: what exceeds 448 is NaN."""
    if d is not dt.fp8e4m3:
        return t
    top = to_float(_power(0, t.sort, 448.0), t.sort)
    over = smt.compare("fp.gt", smt.app("fp.abs", t, sort=t.sort), top)
    return smt.ite(over, smt.literal(f"(_ NaN {_sizes(t.sort)})", t.sort), t)


def _sizes(sort: smt.Sort) -> str:
    return sort.text.removeprefix("(_ FloatingPoint ").removesuffix(")")


def _power(e: int, sort: smt.Sort, times: float = 1.0) -> Term:
    """times * 2^e as a constant of a float sort, which must hold it."""
    return smt.literal(f"((_ to_fp {_sizes(sort)}) RNE {_decimal(times * 2.0**e)})", sort)


def _decimal(x: float) -> str:
    n, d = x.as_integer_ratio()
    return f"(/ {n}.0 {d}.0)"


def _saturate(m: Model, d: DType, a: Value) -> Term:
    """Toward zero, saturating, NaN 0."""
    sort, width = a.term.sort, d.bits
    low, high = int(d.min), int(d.max)
    convert = f"(_ {'fp.to_sbv' if d.is_signed else 'fp.to_ubv'} {width})"
    inside = smt.app(convert, RTZ, a.term, sort=smt.bv(width))
    above = smt.compare("fp.geq", a.term, _bound(high + 1, sort))
    below = smt.compare("fp.leq", a.term, _bound(low, sort))  # to convert an infinity means nothing to the solver
    is_nan = smt.app("fp.isNaN", a.term, sort=smt.BOOL)
    clamped = smt.ite(above, smt.word(high, width), smt.ite(below, smt.word(low, width), inside))
    return smt.ite(is_nan, smt.word(0, width), clamped)


def _bound(n: int, sort: smt.Sort) -> Term:
    """An integer bound (a power of 2, or 0) in a float sort; infinite where that is too small for it, as its values then are."""
    return smt.literal(f"((_ to_fp {_sizes(sort)}) RNE {'' if n >= 0 else '(- '}{abs(n)}.0{'' if n >= 0 else ')'})", sort)


def _truncate(m: Model, d: DType, a: Value) -> Term:
    """To index: what is not finite traps (R29). A value that the bit vector does not hold is some function of the float."""
    finite = smt.not_(smt.or_(*(smt.app(p, a.term, sort=smt.BOOL) for p in ("fp.isNaN", "fp.isInfinite"))))
    m.defined.append(finite)
    wide = to_float(a.term, smt.fp(*FORMAT[dt.float64]))
    limit = _power(62, wide.sort)
    small = smt.compare("fp.lt", smt.app("fp.abs", wide, sort=wide.sort), limit)
    inside = smt.app(f"(_ fp.to_sbv {m.width(d)})", RTZ, wide, sort=m.sort(d))
    return smt.ite(small, inside, m.some("truncated", wide, sort=m.sort(d)))


def _round(m: Model, d: DType, a: Value) -> Term:
    return round_float(m, d, a.term)


def _no_floats(m: Model, d: DType, a: Value) -> Term:
    raise Unmodelled(f"casts between {a.dtype} and {d} need bit vectors, or exact casts")


_CONCRETE: dict[tuple[Form, Form], Callable[[Model, DType, Value], Term]] = {
    (Form.BITS, Form.BITS): _resize,
    (Form.BITS, Form.WIDE): _resize,
    (Form.WIDE, Form.BITS): _resize,
    (Form.WHOLE, Form.WHOLE): _whole,
    (Form.BITS, Form.FLOAT): _round_integer,
    (Form.WIDE, Form.FLOAT): _round_integer,
    (Form.FLOAT, Form.FLOAT): _round,
    (Form.FLOAT, Form.BITS): _saturate,
    (Form.FLOAT, Form.WIDE): _truncate,
    (Form.FLOAT, Form.WHOLE): _no_floats,
    (Form.WHOLE, Form.FLOAT): _no_floats,
    (Form.BITS, Form.WHOLE): _no_floats,
    (Form.WHOLE, Form.BITS): _no_floats,
}


# Floats, as functions of the exact value


def _exact(m: Model, d: DType, a: Value) -> Value:
    number = exact_number(m, a)
    result = m.some(f"to.{d.short}", number, sort=m.sort(d))
    if not a.dtype.is_float:
        return Value(d, result)
    if d.kind is Kind.INDEX:  # non-finite traps: a property of the number
        m.defined.append(smt.function("finite", number, sort=smt.BOOL))
    return Value(d, result)


def exact_number(m: Model, a: Value) -> Term:
    """The number that a float or integer is."""
    name = f"of.{a.dtype.short}" if a.dtype.is_float else "of.int"
    return smt.function(name, a.term, sort=EXACT)


def kept(m: Model, before: Value, after: Value) -> list[Term]:
    """That a cast between `before` and `after` kept the number (the lemma of the pair), with what is known of an integer."""
    known = [smt.same(exact_number(m, after), exact_number(m, before))]
    if before.dtype.is_float:
        return known
    number, n = exact_number(m, before), before.term
    known.append(smt.function("finite", number, sort=smt.BOOL))
    known.append(smt.same(smt.function(f"to.{dt.index.short}", number, sort=smt.INT), n))
    known.append(smt.same(smt.app("fp.isZero", after.term, sort=smt.BOOL), smt.same(n, smt.integer(0))))
    for d in dt.INTS:
        low, high = smt.integer(int(d.min)), smt.integer(int(d.max))
        clamped = smt.ite(smt.compare("<", n, low), low, smt.ite(smt.compare(">", n, high), high, n))
        known.append(smt.same(smt.function(f"to.{d.short}", number, sort=smt.INT), clamped))
    return known


def lemma(source: DType, target: DType) -> Term:
    """For a model of bits: the cast of any value of `source` to `target` keeps the number."""
    m = Model()
    x = m.variable("x", source)
    y = cast(m, target, x)
    if source.is_float:
        wide = smt.fp(*FORMAT[dt.float64])
        return smt.same(to_float(y.term, wide), to_float(x.term, wide))
    # an integer that the float is: it is integral, and converts back without being clamped
    integral = smt.same(smt.app("fp.roundToIntegral", RTZ, y.term, sort=y.term.sort), y.term)
    finite = smt.not_(smt.app("fp.isInfinite", y.term, sort=smt.BOOL))
    back = smt.app("(_ fp.to_sbv 72)", RTZ, to_float(y.term, smt.fp(*FORMAT[dt.float64])), sort=smt.bv(72))
    zero = smt.app("fp.isNegative", y.term, sort=smt.BOOL)
    return smt.and_(
        finite, integral, smt.same(back, _signed72(x)), smt.implies(smt.same(x.term, smt.word(0, source.bits)), smt.not_(zero))
    )


def _signed72(x: Value) -> Term:
    return (sign_extend if x.dtype.is_signed else zero_extend)(x.term, 72 - x.dtype.bits)


def bitcast(m: Model, d: DType, a: Value) -> Value:
    """The same bits in another dtype of the same size (R46)."""
    if m.form(a.dtype) is Form.BOOL:
        bits = smt.ite(a.term, smt.word(1, 8), smt.word(0, 8))
    elif a.dtype.is_float:
        bits = a.bits if a.bits is not None else _some_bits(m, a)
    elif m.form(a.dtype) is Form.BITS:
        bits = a.term
    else:
        raise Unmodelled(f"bits of {a.dtype} in a model of whole numbers")
    if d.is_float:
        return Value(d, from_bits(bits, d), bits)
    if m.form(d) is not Form.BITS:
        raise Unmodelled(f"bits of {d} in a model of whole numbers")
    return Value(d, bits)


def _some_bits(m: Model, a: Value) -> Term:
    """Bits of a float that arithmetic made: any that mean it, as the payload of a NaN is free (R20)."""
    bits = m.fresh("bits", smt.bv(a.dtype.bits))
    m.facts.append(smt.same(from_bits(bits, a.dtype), a.term))
    return bits
