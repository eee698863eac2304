"""What the prover's values are: how each dtype is represented in a query, and what a query has to assume about it.

A `Model` chooses representations. Machine integers are BITS (bit vectors, wrapping by themselves) or WHOLE (unbounded integers,
wrapped by mod, R05); index values (R08) are WHOLE, or WIDE (a bit vector that no value of the query leaves), or SLICE (one bit of
the infinite two's complement of R29: laws of bitwise operations hold for a number where they hold for every bit). A float is a term
of the solver's float theory in its own format, float8 in that of float16, which holds every value of both kinds; where its bits are
known they are kept beside it (R28). For rules that change values it is a REAL number (`reals`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction

from uops.compiler.prove.solver import smt
from uops.compiler.prove.solver.smt import BOOL, INT, Sort, Term
from uops.spec.errors import UopsError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, Kind
from uops.spec.ir.record import dataclass as record


class Unmodelled(UopsError):
    """The prover has no meaning for an op on these dtypes."""


class Form(Enum):
    """A representation."""

    BOOL = "bool"
    FLOAT = "float"
    BITS = "bits"
    WHOLE = "whole"
    WIDE = "wide"
    SLICE = "slice"
    REAL = "real"


#: Bits of a WIDE index: casts of 64-bit integers, and doublings of them, stay inside.
WIDE_BITS = 72
#: (exponent, significand with the hidden bit) of the solver's formats.
FORMAT = {
    dt.float16: (5, 11), dt.bfloat16: (8, 8), dt.float32: (8, 24), dt.float64: (11, 53),
    dt.fp8e4m3: (5, 11), dt.fp8e5m2: (5, 11),
}  # fmt: skip
SMALL = (dt.fp8e4m3, dt.fp8e5m2)


@record(frozen=True, slots=True)
class Value:
    """One value: its term, and for a float the bits, where they are known."""

    dtype: DType
    term: Term
    bits: Term | None = None


@dataclass(slots=True)
class Model:
    """Representations, and what was assumed so far: `facts` define fresh constants, `defined` say that no op trapped (R26),
    `choices` are free decisions that a ruling leaves (which zero a Max gives, R11). `exact` makes casts that meet a float
    functions of the exact value (see `casts`); `reals` makes floats real numbers, `applied` being the functions of them met so
    far; `abstract` says that some function stands for more than is known of it, so that a model of the query may be no
    counterexample."""

    machine: Form = Form.BITS
    index: Form = Form.WHOLE
    exact: bool = False
    reals: bool = False
    facts: list[Term] = field(default_factory=list)
    defined: list[Term] = field(default_factory=list)
    choices: list[Term] = field(default_factory=list)
    applied: dict[tuple[str, Term], Term] = field(default_factory=dict)
    count: int = 0
    abstract: bool = False

    def some(self, name: str, *args: Term, sort: Sort) -> Term:
        """Some function of `args`: one of that name, of which nothing else is known."""
        self.abstract = True
        return smt.function(name, *args, sort=sort)

    def form(self, d: DType) -> Form:
        if d.kind is Kind.BOOL:
            return Form.BOOL
        if d.is_float:
            return Form.REAL if self.reals else Form.FLOAT
        return self.index if d.kind is Kind.INDEX else self.machine

    def sort(self, d: DType) -> Sort:
        form = self.form(d)
        if form is Form.FLOAT:
            return smt.fp(*FORMAT[d])
        if form in (Form.BOOL, Form.SLICE):
            return BOOL
        if form is Form.REAL:
            return smt.REAL
        return INT if form is Form.WHOLE else smt.bv(self.width(d))

    def width(self, d: DType) -> int:
        return WIDE_BITS if d.kind is Kind.INDEX else d.bits

    def fresh(self, prefix: str, sort: Sort) -> Term:
        self.count += 1
        return smt.var(f"{prefix}!{self.count}", sort)

    def variable(self, name: str, d: DType) -> Value:
        """A value of `d` that may be any."""
        form = self.form(d)
        if form is Form.FLOAT:
            bits = smt.var(name, smt.bv(d.bits))
            return Value(d, from_bits(bits, d), bits)
        term = smt.var(name, self.sort(d))
        if form is Form.WHOLE and d is not dt.index:
            self.facts.append(within(term, int(d.min), int(d.max)))
        return Value(d, term)

    def number(self, v: bool | int | float, d: DType) -> Value:
        """The constant `v` of `d`."""
        form = self.form(d)
        if form is Form.BOOL:
            return Value(d, smt.boolean(bool(v)))
        if form is Form.FLOAT:
            bits = smt.word(float_bits(float(v), d), d.bits)
            return Value(d, from_bits(bits, d), bits)
        if form is Form.REAL:
            return Value(d, smt.rational(Fraction(v)))
        if form is Form.SLICE:
            if v not in (0, -1):
                raise Unmodelled(f"the bits of {v} differ, a slice has one")
            return Value(d, smt.boolean(v == -1))
        return Value(d, smt.integer(int(v)) if form is Form.WHOLE else smt.word(int(v), self.width(d)))


def within(t: Term, low: int, high: int) -> Term:
    return smt.and_(smt.compare("<=", smt.integer(low), t), smt.compare("<=", t, smt.integer(high)))


def equal(a: Value, b: Value) -> Term:
    """That `b` is a value that may stand for `a`: of known bits, the same (R28), else all NaNs are one (R20)."""
    if a.bits is None:
        return smt.same(a.term, b.term)
    if b.bits is None:  # a NaN that arithmetic made has any bits
        return smt.and_(smt.not_(smt.app("fp.isNaN", a.term, sort=BOOL)), smt.same(a.term, b.term))
    return smt.same(a.bits, b.bits)


# Floats and their bits


def to_float(t: Term, sort: Sort) -> Term:
    """A float term in another format, rounded to nearest even; exact where the format has more of both parts."""
    return t if t.sort is sort or t.sort == sort else smt.app(_index("to_fp", sort), smt.RNE, t, sort=sort)


def _index(name: str, sort: Sort) -> str:
    return f"(_ {name} {sort.text.removeprefix('(_ FloatingPoint ').removesuffix(')')})"


def of_bits(bits: Term, sort: Sort) -> Term:
    """The float with these bits, in an IEEE interchange format."""
    return smt.app(_index("to_fp", sort), bits, sort=sort)


def of_integer(t: Term, sort: Sort, *, signed: bool) -> Term:
    """A bit vector rounded to a float."""
    return smt.app(_index("to_fp" if signed else "to_fp_unsigned", sort), smt.RNE, t, sort=sort)


def from_bits(bits: Term, d: DType) -> Term:
    """The float that `bits` are. An e5m2 is the upper byte of a float16; an e4m3 has no infinity, and one NaN per sign (R15)."""
    sort = smt.fp(*FORMAT[d])
    if d is dt.fp8e5m2:
        return of_bits(concat(bits, smt.word(0, 8)), sort)
    return of_bits(_half_bits(bits), sort) if d is dt.fp8e4m3 else of_bits(bits, sort)


def _half_bits(bits: Term) -> Term:
    """The float16 bits of an e4m3: the exponent's bias is 15 instead of 7, subnormals are normal there."""
    sign, exponent, mantissa = extract(bits, 7, 7), extract(bits, 6, 3), extract(bits, 2, 0)
    biased = smt.app("bvadd", zero_extend(exponent, 1), smt.word(8, 5), sort=smt.bv(5))
    normal = concat(biased, concat(mantissa, smt.word(0, 7)))
    small = smt.word(0, 15)
    for k in range(1, 8):  # k * 2^-9 = 1.f * 2^e
        e = k.bit_length() - 1
        small = smt.ite(smt.same(mantissa, smt.word(k, 3)), smt.word(((e - 9 + 15) << 10) | (k - (1 << e)) << (10 - e), 15), small)
    magnitude = smt.ite(smt.same(exponent, smt.word(0, 4)), small, normal)
    is_nan = smt.same(extract(bits, 6, 0), smt.word(0x7F, 7))
    return smt.ite(is_nan, smt.word(0x7E00, 16), concat(sign, magnitude))


def float_bits(v: float, d: DType) -> int:
    """The bits of the value `v` of `d`; of a NaN, those of the quiet one."""
    sign, top, m = math.copysign(1.0, v) < 0, (1 << d.exp_bits) - 1, d.man_bits
    if v != v:
        body = (top << m) | ((1 << m) - 1 if d is dt.fp8e4m3 else 1 << (m - 1))
    elif math.isinf(v):
        body = top << m
    else:
        least = 1 - d.bias
        e = max(least, math.frexp(v)[1] - 1) if v else least
        body = ((e - least) << m) + int(math.ldexp(abs(v), m - e))
    return sign << (d.bits - 1) | body


# Bit vectors


def extract(t: Term, high: int, low: int) -> Term:
    return smt.app(f"(_ extract {high} {low})", t, sort=smt.bv(high - low + 1))


def concat(a: Term, b: Term) -> Term:
    return smt.app("concat", a, b, sort=smt.bv(a.sort.bits + b.sort.bits))


def zero_extend(t: Term, by: int) -> Term:
    return smt.app(f"(_ zero_extend {by})", t, sort=smt.bv(t.sort.bits + by)) if by else t


def sign_extend(t: Term, by: int) -> Term:
    return smt.app(f"(_ sign_extend {by})", t, sort=smt.bv(t.sort.bits + by)) if by else t
