"""SMT-LIB terms: sorts, interned nodes and the text of a query, for any solver.

`app`, `var`, `function` and literals build terms. Equal terms are one object, so a shared subterm is printed once, as a
definition. `render_query` gives the text of a query: declarations, definitions, assertions. Integer division is an operator of
this module (`floor-div`, `floor-mod`: the quotient rounded down and its remainder, for a divisor other than 0). `Encoding`
expands it: NATIVE by the solver's div and mod; SKOLEM by fresh quotients and remainders with ground lemmas, which decides
queries with symbolic divisors that NATIVE does not.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from fractions import Fraction
from typing import Any, NamedTuple


class Sort(NamedTuple):
    """A sort by its SMT-LIB text; `bits` is the width of a bit vector or of a float, else 0."""

    text: str
    bits: int = 0

    def __str__(self) -> str:
        return self.text


BOOL, INT, REAL, ROUNDING, EXACT = Sort("Bool"), Sort("Int"), Sort("Real"), Sort("RoundingMode"), Sort("Exact")


def bv(width: int) -> Sort:
    """Return the sort of bit vectors of a width."""
    return Sort(f"(_ BitVec {width})", width)


def fp(exponent: int, significand: int) -> Sort:
    """Return a float sort; the significand counts its hidden bit."""
    return Sort(f"(_ FloatingPoint {exponent} {significand})", exponent + significand)


class TermKind(Enum):
    """The kind of a term's head: a symbol of the theory, a symbol that the query declares, or a literal."""

    THEORY = "theory"
    DECLARED = "declared"
    LITERAL = "literal"

    __hash__ = object.__hash__  # members are unique


class Term:
    """An interned node, immutable by convention and compared by identity."""

    __slots__ = ("args", "head", "kind", "sort")

    def __init__(self, head: str, args: tuple[Term, ...], sort: Sort, kind: TermKind) -> None:
        self.head, self.args, self.sort, self.kind = head, args, sort, kind

    def __repr__(self) -> str:
        return inline(self)


class _TermTable(threading.local):
    """The interned terms of one thread."""

    def __init__(self) -> None:
        self.terms: dict[tuple[object, ...], Term] = {}


_table = _TermTable()


def clear_interned_terms() -> None:
    """Drop this thread's terms between queries. Terms made before and after differ, except for the constants of this module."""
    _table.terms.clear()


def _intern_term(head: str, args: tuple[Term, ...], sort: Sort, kind: TermKind) -> Term:
    key = (head, args, sort, kind)
    term = _table.terms.get(key)
    if term is None:
        term = _table.terms[key] = Term(head, args, sort, kind)
    return term


def rebuild(t: Term, args: tuple[Term, ...]) -> Term:
    """Return `t` with other arguments."""
    return t if args == t.args else _intern_term(t.head, args, t.sort, t.kind)


def app(head: str, *args: Term, sort: Sort) -> Term:
    """Apply a symbol of a theory."""
    return _intern_term(head, args, sort, TermKind.THEORY)


def var(name: str, sort: Sort) -> Term:
    """Return a declared constant."""
    return _intern_term(name, (), sort, TermKind.DECLARED)


def function(name: str, *args: Term, sort: Sort) -> Term:
    """Apply an uninterpreted function."""
    return _intern_term(name, args, sort, TermKind.DECLARED)


def literal(text: str, sort: Sort) -> Term:
    """Return a literal, given by its text."""
    return _intern_term(text, (), sort, TermKind.LITERAL)


TRUE, FALSE = literal("true", BOOL), literal("false", BOOL)
RNE, RTZ = literal("RNE", ROUNDING), literal("RTZ", ROUNDING)


def integer(n: int) -> Term:
    """Return an integer constant."""
    return literal(str(n) if n >= 0 else f"(- {-n})", INT)


def rational(n: Fraction) -> Term:
    """Return a constant of sort REAL."""
    size = f"(/ {abs(n.numerator)}.0 {n.denominator}.0)"
    return literal(size if n >= 0 else f"(- {size})", REAL)


def word(n: int, width: int) -> Term:
    """Return the bit vector constant `n` modulo 2^width."""
    return literal(f"(_ bv{n % (1 << width)} {width})", bv(width))


def boolean(b: bool) -> Term:
    """Return TRUE or FALSE."""
    return TRUE if b else FALSE


# Logic


def not_(a: Term) -> Term:
    """Return the negation."""
    return app("not", a, sort=BOOL)


def and_(*terms: Term) -> Term:
    """Return the conjunction, without TRUE terms."""
    operands = tuple(t for t in terms if t is not TRUE)
    return operands[0] if len(operands) == 1 else app("and", *operands, sort=BOOL) if operands else TRUE


def or_(*terms: Term) -> Term:
    """Return the disjunction, without FALSE terms."""
    operands = tuple(t for t in terms if t is not FALSE)
    return operands[0] if len(operands) == 1 else app("or", *operands, sort=BOOL) if operands else FALSE


def implies(a: Term, b: Term) -> Term:
    """Return the implication."""
    return app("=>", a, b, sort=BOOL)


def equals(a: Term, b: Term) -> Term:
    """Return the identity of two terms: of floats, NaN is NaN, and -0 is not +0."""
    return TRUE if a is b else app("=", a, b, sort=BOOL)


def ite(c: Term, a: Term, b: Term) -> Term:
    """Return `c ? a : b`, folded if decided."""
    return a if c is TRUE or a is b else b if c is FALSE else app("ite", c, a, b, sort=a.sort)


def compare(head: str, a: Term, b: Term) -> Term:
    """Return a relation of two terms."""
    return app(head, a, b, sort=BOOL)


# Integers


def plus(a: Term, b: Term) -> Term:
    """Return a + b of integers."""
    return app("+", a, b, sort=INT)


def minus(*args: Term) -> Term:
    """Return the negation of one integer, or the difference of several."""
    return app("-", *args, sort=INT)


def times(a: Term, b: Term) -> Term:
    """Return a * b of integers."""
    return app("*", a, b, sort=INT)


def floor_div(a: Term, b: Term) -> Term:
    """Return floor(a / b), meant for b other than 0."""
    return app("floor-div", a, b, sort=INT)


def floor_mod(a: Term, b: Term) -> Term:
    """Return a - b floor(a / b), meant for b other than 0."""
    return app("floor-mod", a, b, sort=INT)


def modulo(a: Term, n: int) -> Term:
    """Return `a` modulo the positive constant `n`."""
    return app("mod", a, integer(n), sort=INT)


def simplify_under_facts(t: Term, truth_by_term: Mapping[Term, Term]) -> Term:
    """Simplify `t`; `truth_by_term` maps some Boolean terms to TRUE or FALSE."""
    done: dict[Term, Term] = {}
    for s in subterms([t]):
        args = tuple(done[a] for a in s.args)
        done[s] = truth_by_term.get(s) or _SIMPLER.get(s.head, rebuild)(s, args)
    return done[t]


def _simplify_ite(t: Term, args: tuple[Term, ...]) -> Term:
    return ite(*args)


def _simplify_and(t: Term, args: tuple[Term, ...]) -> Term:
    return FALSE if FALSE in args else and_(*args)


def _simplify_or(t: Term, args: tuple[Term, ...]) -> Term:
    return TRUE if TRUE in args else or_(*args)


def _simplify_implies(t: Term, args: tuple[Term, ...]) -> Term:
    a, b = args
    return TRUE if a is FALSE or b is TRUE else b if a is TRUE else rebuild(t, args)


def _simplify_not(t: Term, args: tuple[Term, ...]) -> Term:
    return FALSE if args[0] is TRUE else TRUE if args[0] is FALSE else rebuild(t, args)


def _simplify_equals(t: Term, args: tuple[Term, ...]) -> Term:
    return TRUE if args[0] is args[1] else rebuild(t, args)


_SIMPLER = {
    "ite": _simplify_ite, "and": _simplify_and, "or": _simplify_or,
    "=>": _simplify_implies, "not": _simplify_not, "=": _simplify_equals,
}  # fmt: skip


def substitute(t: Term, old: Term, new: Term) -> Term:
    """Replace `old` by `new` in `t`."""
    done: dict[Term, Term] = {}
    for s in subterms([t]):
        done[s] = new if s is old else rebuild(s, tuple(done[a] for a in s.args))
    return done[t]


def inline_constants_defined_by_equations(assumptions: Sequence[Term], *others: Term) -> tuple[list[Term], list[Term]]:
    """Replace every constant that an assumption defines by its definition; the definitions stay as assumptions."""
    facts, rest, definitions = list(assumptions), list(others), list[Term]()
    while (match := next(filter(None, map(_match_equation_that_defines_constant, facts)), None)) is not None:
        equation, name, value = match
        facts = [substitute(f, name, value) for f in facts if f is not equation]
        definitions = [*(substitute(f, name, value) for f in definitions), equation]
        rest = [substitute(t, name, value) for t in rest]
    return [*facts, *definitions], rest


class _ConstantDefinition(NamedTuple):
    """An equation of a declared constant with its value."""

    equation: Term
    constant: Term
    value: Term


def _match_equation_that_defines_constant(t: Term) -> _ConstantDefinition | None:
    """Return the definition if `t` equates a declared constant with a value in which it does not occur."""
    if t.head == "=":
        for a, b in (t.args, t.args[::-1]):
            if a.kind is TermKind.DECLARED and not a.args and a not in subterms([b]):
                return _ConstantDefinition(t, a, b)
    return None


# Text


class Encoding(Enum):
    """An expansion of floor division."""

    NATIVE = "native"
    SKOLEM = "skolem"


_DIVISIONS = frozenset({"floor-div", "floor-mod"})


def subterms(roots: Iterable[Term]) -> list[Term]:
    """Return every subterm once, arguments first; iterative."""
    seen: set[Term] = set()
    order: list[Term] = []
    stack: list[Any] = list(roots)[::-1]  # a None marks that the next term's arguments are done
    while stack:
        t = stack.pop()
        if t is None:
            order.append(stack.pop())
        elif t not in seen:
            seen.add(t)
            if t.args:
                stack += (t, None, *t.args[::-1])
            else:
                order.append(t)
    return order


def inline(t: Term) -> str:
    """Return the text of a term, without definitions."""
    return t.head if not t.args else f"({t.head} {' '.join(map(inline, t.args))})"


def render_query(
    assertions: Iterable[Term], encoding: Encoding = Encoding.NATIVE, known_facts: Mapping[Term, Term] | None = None
) -> str:
    """Return the text of a query: is the conjunction of `assertions` satisfiable? Every term of `known_facts` must be among
    them."""
    stated = expand_divisions_with_axioms(list(assertions), encoding)
    if known_facts:
        facts = {literal_of(t, v) for t, v in known_facts.items()}
        stated = [t for t in (s if s in facts else simplify_under_facts(s, known_facts) for s in stated) if t is not TRUE]
    order = subterms(stated)
    uses: dict[Term, int] = {}
    for t in order:
        for a in t.args:
            uses[a] = uses.get(a, 0) + 1
    lines = list(_declare_symbols(order))
    names: dict[Term, str] = {}
    for t in order:
        if t.args and uses.get(t, 0) > 1:
            name = f"t!{len(names)}"
            lines.append(f"(define-fun {name} () {t.sort} {_render_term(t, names)})")
            names[t] = name
    lines += [f"(assert {names.get(t) or _render_term(t, names)})" for t in stated]
    return "\n".join(lines) + "\n"


def _render_term(t: Term, names: dict[Term, str]) -> str:
    if not t.args:
        return t.head
    return f"({t.head} {' '.join(names.get(a) or _render_term(a, names) for a in t.args)})"


def _declare_symbols(order: list[Term]) -> Iterator[str]:
    if any(t.sort is EXACT for t in order):
        yield f"(declare-sort {EXACT} 0)"
    seen: set[str] = set()
    for t in order:
        if t.kind is TermKind.DECLARED and t.head not in seen:
            seen.add(t.head)
            yield f"(declare-fun {t.head} ({' '.join(a.sort.text for a in t.args)}) {t.sort})"


# Floor division


def literal_of(t: Term, truth: Term) -> Term:
    """Return the assertion that `t` has this truth value."""
    return t if truth is TRUE else not_(t)


def symbolic_divisors(terms: Iterable[Term]) -> list[Term]:
    """Return each divisor that is not a literal, once."""
    all_divisors = (t.args[1] for t in subterms(terms) if t.head in _DIVISIONS)
    return list(dict.fromkeys(b for b in all_divisors if b.kind is not TermKind.LITERAL))


def decide_comparisons_with_zero_per_sign(b: Term) -> list[dict[Term, Term]]:
    """Return the three cases of an integer's sign, each with the facts that follow."""
    zero = integer(0)
    tests = (compare(">", b, zero), compare("<", b, zero), equals(b, zero))
    return [{t: boolean(t is mine) for t in tests} for mine in tests]


def expand_divisions_with_axioms(assertions: list[Term], encoding: Encoding) -> list[Term]:
    """Expand floor divisions to the solver's operators, and add the axioms of the encoding."""
    if not any(t.head in _DIVISIONS for t in subterms(assertions)):
        return assertions
    division = _SkolemDivision() if encoding is Encoding.SKOLEM else _NativeDivision()
    expanded: dict[Term, Term] = {}
    for t in subterms(assertions):
        args = tuple(expanded[a] for a in t.args)
        if t.head in _DIVISIONS:
            q, r = division.floor_quotient_and_remainder(*args)
            expanded[t] = q if t.head == "floor-div" else r
        else:
            expanded[t] = rebuild(t, args)
    return [*division.axioms(), *(expanded[t] for t in assertions)]


def _bound_remainder(divisor: Term, remainder: Term) -> list[Term]:
    """State that r is a remainder by b: between 0 and b."""
    zero = integer(0)
    above, below = (
        and_(compare("<=", zero, remainder), compare("<", remainder, divisor)),
        and_(compare("<", divisor, remainder), compare("<=", remainder, zero)),
    )
    return [implies(compare(">", divisor, zero), above), implies(compare("<", divisor, zero), below)]


class _NativeDivision:
    """Expansion by the solver's Euclidean div and mod, which round down for a positive divisor."""

    def floor_quotient_and_remainder(self, a: Term, b: Term) -> tuple[Term, Term]:
        positive = self._quotient(a, b)
        if b.kind is TermKind.LITERAL and b.head.isdigit():
            return positive, app("mod", a, b, sort=INT)
        q = ite(compare(">", b, integer(0)), positive, self._quotient(minus(a), minus(b)))
        return q, minus(a, times(b, q))

    @staticmethod
    def _quotient(a: Term, b: Term) -> Term:
        return app("div", a, b, sort=INT)

    def axioms(self) -> list[Term]:
        return []


class _SkolemDivision:
    """Expansion by a fresh q and r with a = b q + r and r between 0 and b.

    The solver does not know that a product with a positive number is at least as great: b > 0 and t >= 1 imply b t >= b.
    Likewise b < 0 implies b t <= b. This is stated for these t:

        - the difference of any two quotients by one divisor,
        - the quotient of a by b minus m p + p': p is the quotient of a by m b, and p' that of its remainder by b,
        - a quotient by m b minus a quotient by m, which is a quotient by b if both dividends are equal.
    """

    def __init__(self) -> None:
        self.divisions: dict[tuple[Term, Term], tuple[Term, Term]] = {}

    def floor_quotient_and_remainder(self, a: Term, b: Term) -> tuple[Term, Term]:
        if (a, b) not in self.divisions:
            k = len(self.divisions)
            self.divisions[a, b] = var(f"q!{k}", INT), var(f"r!{k}", INT)
        return self.divisions[a, b]

    def axioms(self) -> list[Term]:
        zero, facts = integer(0), []
        for (a, b), (q, r) in self.divisions.items():
            divides = or_(compare(">", b, zero), compare("<", b, zero))
            facts += [implies(divides, equals(a, plus(times(b, q), r))), *_bound_remainder(b, r)]
        for ((_, b), (q, _)), ((_, d), (p, _)) in itertools.permutations(self.divisions.items(), 2):
            if b is d:
                facts.append(_bound_magnitude_of_positive_multiple(b, minus(q, p)))
        for (a, b), (q, _) in self.divisions.items():
            for m, p, rest in self._find_divisions_by_products_with_factor(a, b):
                if (rest, b) in self.divisions:
                    more = minus(q, plus(times(m, p), self.divisions[rest, b][0]))
                    facts += [
                        _bound_magnitude_of_positive_multiple(b, more),
                        _bound_magnitude_of_positive_multiple(b, minus(more)),
                    ]
        for product, more in self._enumerate_products_and_quotient_differences():
            facts += [
                _bound_magnitude_of_positive_multiple(product, more),
                _bound_magnitude_of_positive_multiple(product, minus(more)),
            ]
        return facts

    def _enumerate_products_and_quotient_differences(self) -> Iterator[tuple[Term, Term]]:
        """Yield (m b, quotient by m b minus a quotient of another dividend by m)."""
        for (a, product), (p, _) in self.divisions.items():
            for (other, m), (q, _) in self.divisions.items():
                if product.head == "*" and m in product.args and other is not a:
                    yield product, minus(p, q)

    def _find_divisions_by_products_with_factor(self, dividend: Term, factor: Term) -> Iterator[tuple[Term, Term, Term]]:
        """Yield (m, quotient, remainder) for each division of `dividend` by a product m `factor`."""
        for (a, product), (p, rest) in self.divisions.items():
            if a is dividend and product.head == "*" and factor in product.args and len(product.args) == 2:
                m, n = product.args
                yield (m if n is factor else n), p, rest


def _bound_magnitude_of_positive_multiple(factor: Term, multiplier: Term) -> Term:
    """State that b > 0 and t >= 1 imply b t >= b, and that b < 0 and t >= 1 imply b t <= b."""
    is_positive = compare(">=", multiplier, integer(1))
    above = implies(and_(compare(">", factor, integer(0)), is_positive), compare(">=", times(factor, multiplier), factor))
    below = implies(and_(compare("<", factor, integer(0)), is_positive), compare("<=", times(factor, multiplier), factor))
    return and_(above, below)
