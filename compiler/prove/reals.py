"""What ops mean over the real numbers, for rules that change values of floats (R156).

A float is a real number, an op its real function, exact. Division by 0, the root and the logarithm outside of their domains have
no value: every op adds to `Model.defined` what it needs, and the claim of a rule is that what it assumes makes both sides defined,
and equal. A root is the number that its law says; Exp2 and Log2 are functions of which these laws are stated, for the arguments at
hand:

    exp2 a > 0        exp2 0 = 1        exp2 (a + b) = exp2 a * exp2 b
    log2 (exp2 a) = a                   exp2 (log2 b) = b for b > 0
    pow a b = exp2 (b * log2 a) for a > 0

Sin is some function.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from uops.compiler.prove.model import Model
from uops.compiler.prove.solver import smt
from uops.compiler.prove.solver.smt import REAL, Term
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op

ZERO, ONE = smt.rational(Fraction(0)), smt.rational(Fraction(1))


def _app(head: str, *args: Term) -> Term:
    return smt.app(head, *args, sort=REAL)


def _row(head: str) -> Callable[..., Term]:
    return lambda m, d, *args: _app(head, *args)


def _relation(head: str) -> Callable[..., Term]:
    return lambda m, d, a, b: smt.compare(head, a, b)


def _div(m: Model, d: DType, a: Term, b: Term) -> Term:
    m.defined.append(smt.not_(smt.same(b, ZERO)))
    return _app("/", a, b)


def _sqrt(m: Model, d: DType, a: Term) -> Term:
    """The s >= 0 with s s = a."""
    inside = smt.compare(">=", a, ZERO)
    m.defined.append(inside)
    if ("sqrt", a) not in m.applied:
        s = m.applied["sqrt", a] = m.fresh("sqrt", REAL)
        m.facts.append(smt.implies(inside, smt.and_(smt.compare(">=", s, ZERO), smt.same(_app("*", s, s), a))))
    return m.applied["sqrt", a]


def _exp2(m: Model, d: DType, a: Term) -> Term:
    def power(t: Term) -> Term:
        return m.some("exp2", t, sort=REAL)

    if ("exp2", a) not in m.applied:
        m.applied["exp2", a] = power(a)
        m.facts += [smt.compare(">", power(a), ZERO), smt.same(m.some("log2", power(a), sort=REAL), a), smt.same(power(ZERO), ONE)]
        for name, b in list(m.applied):
            if name == "exp2":
                both = _app("+", a, b)
                m.facts.append(smt.same(power(both), _app("*", power(a), power(b))))
                m.facts.append(smt.same(m.some("log2", power(both), sort=REAL), both))
    return m.applied["exp2", a]


def _log2(m: Model, d: DType, b: Term) -> Term:
    inside = smt.compare(">", b, ZERO)
    m.defined.append(inside)
    found = m.some("log2", b, sort=REAL)
    if ("log2", b) not in m.applied:
        m.applied["log2", b] = found
        m.facts.append(smt.implies(inside, smt.same(_exp2(m, d, found), b)))
    return found


def _pow(m: Model, d: DType, a: Term, b: Term) -> Term:
    return _exp2(m, d, _app("*", b, _log2(m, d, a)))


def _max(m: Model, d: DType, a: Term, b: Term) -> Term:
    return smt.ite(smt.compare("<", a, b), b, a)


ROWS: dict[Op, Callable[..., Term]] = {
    Op.ADD: _row("+"),
    Op.SUB: _row("-"),
    Op.MUL: _row("*"),
    Op.NEG: _row("-"),
    Op.DIV: _div,
    Op.RECIP: lambda m, d, a: _div(m, d, ONE, a),
    Op.MULACC: lambda m, d, a, b, c: _app("+", _app("*", a, b), c),
    Op.MAX: _max,
    Op.SQRT: _sqrt,
    Op.EXP2: _exp2,
    Op.LOG2: _log2,
    Op.POW: _pow,
    Op.SIN: lambda m, d, a: m.some("sin", a, sort=REAL),
    Op.CMPLT: _relation("<"),
    Op.CMPGT: _relation(">"),
    Op.CMPLE: _relation("<="),
    Op.CMPGE: _relation(">="),
    Op.CMPEQ: lambda m, d, a, b: smt.same(a, b),
    Op.CMPNE: lambda m, d, a, b: smt.not_(smt.same(a, b)),
}
