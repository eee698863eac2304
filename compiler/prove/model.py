"""Values of the prover: representations of dtypes in a query, and the assumptions that come with them.

An `SmtEncoder` chooses representations. Machine integers are BITS (bit vectors, which wrap) or WHOLE (unbounded integers, wrapped
by mod; R05: integer overflow wraps). Index values (R08: mathematical integers) are WHOLE, or WIDE (a bit vector that no value of
the query leaves), or SLICE. A SLICE is one bit of the infinite two's complement (R29): a law of bitwise operations holds for
numbers if it holds for every bit. A float is a term of the solver's float theory in its own format. A float8 uses the format of
float16, which holds every value of both kinds. If the bits of a float are known, the `EncodedValue` keeps them (R28: movement
keeps every bit). For rules that change values, a float is a REAL number (`reals`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction

from uops.compiler.prove.solver import smt
from uops.compiler.prove.solver.smt import BOOL, INT, Sort, Term
from uops.spec.errors import UopsError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.record import dataclass as record


class Unmodelled(UopsError):
    """The prover has no semantics for an op on these dtypes."""


class Representation(Enum):
    """A representation of a dtype in a query."""

    BOOL = "bool"
    FLOAT = "float"
    BITS = "bits"
    WHOLE = "whole"
    WIDE = "wide"
    SLICE = "slice"
    REAL = "real"


#: Bits of a WIDE index: casts of 64-bit integers, and their doubles, fit.
WIDE_BITS = 72
#: (exponent, significand with the hidden bit) of the solver's formats.
FORMAT = {d: (f.exp_bits, f.man_bits + 1) for d in dt.FLOATS for f in (dt.float16 if d.bits == 8 else d,)}
#: The float8 dtypes, whose values are among those of float16.
SMALL = tuple(d for d in dt.FLOATS if d.bits == 8)


@record(frozen=True, slots=True)
class EncodedValue:
    """A value: its term, and the bits of a float if they are known."""

    dtype: DType
    term: Term
    bits: Term | None = None


@record(frozen=True, slots=True)
class ZeroChoice:
    """The choice of one Max between the zeros `a` and `b` (R11): `first` is a free bool, true for `a`."""

    dtype: DType
    a: Term
    b: Term
    first: Term


@dataclass(slots=True)
class SmtEncoder:
    """Representations, and the assumptions made so far.

    `facts` define fresh constants. `definedness` says that no op trapped (R26). `choices` are free decisions that a ruling
    leaves: of each Max, the sign of a zero (R11). `values` are those of the nodes encoded so far, as equal nodes are one (R27).
    `exact` makes casts from and to floats functions of the exact value (see `casts`). `reals` represents floats as real numbers;
    `applications` are the functions applied to them. `abstract` is set once a function stands for more than the query states of
    it: then a model of the query need not be a counterexample.
    """

    machine: Representation = Representation.BITS
    index: Representation = Representation.WHOLE
    exact: bool = False
    reals: bool = False
    facts: list[Term] = field(default_factory=list)
    definedness: list[Term] = field(default_factory=list)
    choices: list[ZeroChoice] = field(default_factory=list)
    values: dict[Hashable, EncodedValue] = field(default_factory=dict)
    applications: dict[tuple[str, Term], Term] = field(default_factory=dict)
    count: int = 0
    abstract: bool = False

    def forget_nodes(self) -> None:
        """Forget the nodes encoded so far, with their definedness and choices; the facts stay."""
        self.definedness.clear()
        self.choices.clear()
        self.values.clear()

    def apply_uninterpreted(self, name: str, *args: Term, sort: Sort) -> Term:
        """Apply an uninterpreted function of this name, which makes the model abstract."""
        self.abstract = True
        return smt.function(name, *args, sort=sort)

    def representation(self, d: DType) -> Representation:
        """Return the representation of a dtype."""
        if d.kind is DTypeKind.BOOL:
            return Representation.BOOL
        if d.is_float:
            return Representation.REAL if self.reals else Representation.FLOAT
        return self.index if d.kind is DTypeKind.INDEX else self.machine

    def sort(self, d: DType) -> Sort:
        """Return the solver's sort of a dtype."""
        representation = self.representation(d)
        if representation is Representation.FLOAT:
            return smt.fp(*FORMAT[d])
        if representation in (Representation.BOOL, Representation.SLICE):
            return BOOL
        if representation is Representation.REAL:
            return smt.REAL
        return INT if representation is Representation.WHOLE else smt.bv(self.width(d))

    def width(self, d: DType) -> int:
        """Return the bits of an integer dtype; of index, those of its WIDE representation."""
        return WIDE_BITS if d.kind is DTypeKind.INDEX else d.bits

    def fresh_constant(self, prefix: str, sort: Sort) -> Term:
        """Declare a constant with a new name."""
        self.count += 1
        return smt.var(f"{prefix}!{self.count}", sort)

    def make_variable(self, name: str, d: DType) -> EncodedValue:
        """Return an unconstrained value of `d`."""
        representation = self.representation(d)
        if representation is Representation.FLOAT:
            bits = smt.var(name, smt.bv(d.bits))
            return EncodedValue(d, float_from_bits(bits, d), bits)
        term = smt.var(name, self.sort(d))
        if representation is Representation.WHOLE and d is not dt.index:
            self.facts.append(within(term, int(d.min), int(d.max)))
        return EncodedValue(d, term)

    def make_constant(self, v: bool | int | float, d: DType) -> EncodedValue:
        """Return the constant `v` of `d`. Raises Unmodelled for a SLICE whose bits differ."""
        representation = self.representation(d)
        if representation is Representation.BOOL:
            return EncodedValue(d, smt.boolean(bool(v)))
        if representation is Representation.FLOAT:
            bits = smt.word(encode_bits_of_representable_float(float(v), d), d.bits)
            return EncodedValue(d, float_from_bits(bits, d), bits)
        if representation is Representation.REAL:
            return EncodedValue(d, smt.rational(Fraction(v)))
        if representation is Representation.SLICE:
            if v not in (0, -1):
                raise Unmodelled(f"the bits of {v} differ, a slice has one")
            return EncodedValue(d, smt.boolean(v == -1))
        return EncodedValue(d, smt.integer(int(v)) if representation is Representation.WHOLE else smt.word(int(v), self.width(d)))


def within(t: Term, low: int, high: int) -> Term:
    """Return the condition low <= t <= high."""
    return smt.and_(smt.compare("<=", smt.integer(low), t), smt.compare("<=", t, smt.integer(high)))


def encode_replacement_keeps_known_bits(original: EncodedValue, replacement: EncodedValue) -> Term:
    """Return the condition that `replacement` may replace `original`: the same bits if they are known (R28), else equal up to
    NaNs (R20). A NaN of known bits cannot become one of free bits."""
    if original.bits is None:
        return smt.equals(original.term, replacement.term)
    if replacement.bits is None:  # the bits of a computed NaN are free
        return smt.and_(smt.not_(smt.app("fp.isNaN", original.term, sort=BOOL)), smt.equals(original.term, replacement.term))
    return smt.equals(original.bits, replacement.bits)


# Floats and their bits


def to_float(t: Term, sort: Sort) -> Term:
    """Convert a float term to another format, rounded to nearest even; exact if the format has more of both parts."""
    return t if t.sort is sort or t.sort == sort else smt.app(_indexed_operator("to_fp", sort), smt.RNE, t, sort=sort)


def format_widths(sort: Sort) -> str:
    """Return the exponent and significand widths of a float sort, as text."""
    return sort.text.removeprefix("(_ FloatingPoint ").removesuffix(")")


def _indexed_operator(name: str, sort: Sort) -> str:
    """Return an SMT-LIB operator indexed by the widths of a float sort."""
    return f"(_ {name} {format_widths(sort)})"


def float_from_ieee_bits(bits: Term, sort: Sort) -> Term:
    """Return the float with these bits, in an IEEE interchange format."""
    return smt.app(_indexed_operator("to_fp", sort), bits, sort=sort)


def float_from_integer(t: Term, sort: Sort, *, signed: bool) -> Term:
    """Round a bit vector to a float, to nearest even."""
    return smt.app(_indexed_operator("to_fp" if signed else "to_fp_unsigned", sort), smt.RNE, t, sort=sort)


def float_from_bits(bits: Term, d: DType) -> Term:
    """Return the float with these bits. A float8 with the exponents of float16, as e5m2, is the upper byte of a float16."""
    sort = smt.fp(*FORMAT[d])
    if d not in SMALL:
        return float_from_ieee_bits(bits, sort)
    if d.exp_bits == dt.float16.exp_bits:
        return float_from_ieee_bits(concat(bits, smt.word(0, 8)), sort)
    return float_from_ieee_bits(_float8_to_float16_bits(bits, d), sort)


def _float8_to_float16_bits(float8_bits: Term, d: DType) -> Term:
    """Convert the bits of a float8 to those of a float16: the exponent has another bias, and subnormals become normal."""
    m, unit, half = d.man_bits, d.min_exponent - d.man_bits, dt.float16
    sign, exponent, mantissa = extract(float8_bits, 7, 7), extract(float8_bits, 6, m), extract(float8_bits, m - 1, 0)
    biased = smt.app("bvadd", zero_extend(exponent, 5 - d.exp_bits), smt.word(half.bias - d.bias, 5), sort=smt.bv(5))
    normal = concat(biased, concat(mantissa, smt.word(0, 10 - m)))
    small = smt.word(0, 15)
    for k in range(1, 1 << m):  # k units = 1.f * 2^(e + unit)
        e = k.bit_length() - 1
        code = (e + unit + half.bias) << 10 | (k - (1 << e)) << (10 - e)
        small = smt.ite(smt.equals(mantissa, smt.word(k, m)), smt.word(code, 15), small)
    magnitude = smt.ite(smt.equals(exponent, smt.word(0, d.exp_bits)), small, normal)
    return _replace_float8_specials(float8_bits, d, concat(sign, magnitude))


def _replace_float8_specials(float8_bits: Term, d: DType, finite_float16_bits: Term) -> Term:
    """Replace `finite_float16_bits` where the bits of a float8 are an infinity or NaN: all ones if it is finite-only."""
    body, infinity = extract(float8_bits, 6, 0), ((1 << d.exp_bits) - 1) << d.man_bits
    if d.finite_only:
        return smt.ite(smt.equals(body, smt.word(0x7F, 7)), smt.word(0x7E00, 16), finite_float16_bits)
    infinite = concat(extract(float8_bits, 7, 7), smt.word(0x7C00, 15))
    finite = smt.app("bvult", body, smt.word(infinity, 7), sort=smt.BOOL)
    return smt.ite(finite, finite_float16_bits, smt.ite(smt.equals(body, smt.word(infinity, 7)), infinite, smt.word(0x7E00, 16)))


def encode_bits_of_representable_float(v: float, d: DType) -> int:
    """Return the bits of `v`, a value of `d`; of a NaN, those of the quiet one."""
    sign, top, m = math.copysign(1.0, v) < 0, (1 << d.exp_bits) - 1, d.man_bits
    if v != v:
        body = (top << m) | ((1 << m) - 1 if d.finite_only else 1 << (m - 1))
    elif math.isinf(v):
        body = top << m
    else:
        least = d.min_exponent
        e = max(least, math.frexp(v)[1] - 1) if v else least
        body = ((e - least) << m) + int(math.ldexp(abs(v), m - e))
    return sign << (d.bits - 1) | body


# Bit vectors


def extract(t: Term, high: int, low: int) -> Term:
    """Return bits `high` to `low` of a bit vector."""
    return smt.app(f"(_ extract {high} {low})", t, sort=smt.bv(high - low + 1))


def concat(a: Term, b: Term) -> Term:
    """Return the bit vector with the bits of `a` above those of `b`."""
    return smt.app("concat", a, b, sort=smt.bv(a.sort.bits + b.sort.bits))


def zero_extend(t: Term, by: int) -> Term:
    """Add `by` zero bits on top."""
    return smt.app(f"(_ zero_extend {by})", t, sort=smt.bv(t.sort.bits + by)) if by else t


def sign_extend(t: Term, by: int) -> Term:
    """Add `by` copies of the sign bit on top."""
    return smt.app(f"(_ sign_extend {by})", t, sort=smt.bv(t.sort.bits + by)) if by else t
