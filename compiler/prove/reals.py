"""Semantics of ops over the real numbers, for rules that change values of floats (R156).

A float is a real number, and an op is its exact real function. Division by 0, and Sqrt and Log2 outside their domains, are
undefined: every op adds its domain to `SmtEncoder.definedness`. The claim of a rule is that its assumptions imply that both sides
are defined, and equal. A square root is defined by its law. Exp2 and Log2 are functions with these laws, stated for the arguments
at hand:

    exp2 a > 0        exp2 0 = 1        exp2 (a + b) = exp2 a * exp2 b
    log2 (exp2 a) = a                   exp2 (log2 b) = b for b > 0
    pow a b = exp2 (b * log2 a) for a > 0

Sin is an uninterpreted function.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from uops.compiler.prove.model import SmtEncoder
from uops.compiler.prove.solver import smt
from uops.compiler.prove.solver.smt import REAL, Term
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op

ZERO, ONE = smt.rational(Fraction(0)), smt.rational(Fraction(1))


def _apply(head: str, *args: Term) -> Term:
    return smt.app(head, *args, sort=REAL)


def _make_operator_row(head: str) -> Callable[..., Term]:
    return lambda m, d, *args: _apply(head, *args)


def _make_relation_row(head: str) -> Callable[..., Term]:
    return lambda m, d, a, b: smt.compare(head, a, b)


def _encode_div(m: SmtEncoder, d: DType, a: Term, b: Term) -> Term:
    m.definedness.append(smt.not_(smt.equals(b, ZERO)))
    return _apply("/", a, b)


def _encode_sqrt_and_state_laws(m: SmtEncoder, d: DType, a: Term) -> Term:
    """Return the s >= 0 with s s = a; defined for a >= 0."""
    inside = smt.compare(">=", a, ZERO)
    m.definedness.append(inside)
    if ("sqrt", a) not in m.applications:
        s = m.applications["sqrt", a] = m.fresh_constant("sqrt", REAL)
        m.facts.append(smt.implies(inside, smt.and_(smt.compare(">=", s, ZERO), smt.equals(_apply("*", s, s), a))))
    return m.applications["sqrt", a]


def _encode_exp2_and_state_laws(m: SmtEncoder, d: DType, a: Term) -> Term:
    """Return exp2 a, and state its laws for this argument and each one before."""

    def power(t: Term) -> Term:
        return m.apply_uninterpreted("exp2", t, sort=REAL)

    if ("exp2", a) not in m.applications:
        m.applications["exp2", a] = power(a)
        m.facts += [
            smt.compare(">", power(a), ZERO),
            smt.equals(m.apply_uninterpreted("log2", power(a), sort=REAL), a),
            smt.equals(power(ZERO), ONE),
        ]
        for name, b in list(m.applications):
            if name == "exp2":
                both = _apply("+", a, b)
                m.facts.append(smt.equals(power(both), _apply("*", power(a), power(b))))
                m.facts.append(smt.equals(m.apply_uninterpreted("log2", power(both), sort=REAL), both))
    return m.applications["exp2", a]


def _encode_log2_and_state_laws(m: SmtEncoder, d: DType, b: Term) -> Term:
    """Return log2 b, and state its laws; defined for b > 0."""
    inside = smt.compare(">", b, ZERO)
    m.definedness.append(inside)
    logarithm = m.apply_uninterpreted("log2", b, sort=REAL)
    if ("log2", b) not in m.applications:
        m.applications["log2", b] = logarithm
        m.facts.append(smt.implies(inside, smt.equals(_encode_exp2_and_state_laws(m, d, logarithm), b)))
    return logarithm


def _encode_pow(m: SmtEncoder, d: DType, a: Term, b: Term) -> Term:
    return _encode_exp2_and_state_laws(m, d, _apply("*", b, _encode_log2_and_state_laws(m, d, a)))


def _encode_max(m: SmtEncoder, d: DType, a: Term, b: Term) -> Term:
    return smt.ite(smt.compare("<", a, b), b, a)


ROWS: dict[Op, Callable[..., Term]] = {
    Op.ADD: _make_operator_row("+"),
    Op.SUB: _make_operator_row("-"),
    Op.MUL: _make_operator_row("*"),
    Op.NEG: _make_operator_row("-"),
    Op.DIV: _encode_div,
    Op.RECIP: lambda m, d, a: _encode_div(m, d, ONE, a),
    Op.MULACC: lambda m, d, a, b, c: _apply("+", _apply("*", a, b), c),
    Op.MAX: _encode_max,
    Op.SQRT: _encode_sqrt_and_state_laws,
    Op.EXP2: _encode_exp2_and_state_laws,
    Op.LOG2: _encode_log2_and_state_laws,
    Op.POW: _encode_pow,
    Op.SIN: lambda m, d, a: m.apply_uninterpreted("sin", a, sort=REAL),
    Op.CMPLT: _make_relation_row("<"),
    Op.CMPGT: _make_relation_row(">"),
    Op.CMPLE: _make_relation_row("<="),
    Op.CMPGE: _make_relation_row(">="),
    Op.CMPEQ: lambda m, d, a, b: smt.equals(a, b),
    Op.CMPNE: lambda m, d, a, b: smt.not_(smt.equals(a, b)),
}
#: Ops on floats without a row, as no rule of fast-math speaks of them.
UNMODELLED = frozenset({Op.TRUNC})
