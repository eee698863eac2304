"""SMT-LIB terms: sorts, interned nodes and the text of a query. It knows no solver.

A term is made by `app`, `var`, `function` or a literal; equal terms are one object, so a subterm that occurs twice is printed once,
as a definition. `script` gives the text of a query: declarations, definitions, assertions. Integer division is an operator of its
own here (`floor-div`, `floor-mod`: the quotient rounded down and its remainder, for a divisor other than 0), which `Encoding`
expands: NATIVE by the solver's div and mod, SKOLEM by fresh quotients and remainders with ground lemmas, which answers for symbolic
divisors where native does not.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple


class Sort(NamedTuple):
    """A sort by its SMT-LIB text; `bits` is the width of a bit vector or of a float, else 0."""

    text: str
    bits: int = 0

    def __str__(self) -> str:
        return self.text


BOOL, INT, ROUNDING, EXACT = Sort("Bool"), Sort("Int"), Sort("RoundingMode"), Sort("Exact")


def bv(width: int) -> Sort:
    return Sort(f"(_ BitVec {width})", width)


def fp(exponent: int, significand: int) -> Sort:
    return Sort(f"(_ FloatingPoint {exponent} {significand})", exponent + significand)


class Kind(Enum):
    """What the head of a term is: a symbol of the theory, one that the query declares, or a literal."""

    THEORY = "theory"
    DECLARED = "declared"
    LITERAL = "literal"


class Term:
    """One node; immutable by convention, interned, compared by identity."""

    __slots__ = ("__weakref__", "args", "head", "kind", "sort")

    def __init__(self, head: str, args: tuple[Term, ...], sort: Sort, kind: Kind) -> None:
        self.head, self.args, self.sort, self.kind = head, args, sort, kind

    def __repr__(self) -> str:
        return inline(self)


_interned: weakref.WeakValueDictionary[tuple[object, ...], Term] = weakref.WeakValueDictionary()


def _make(head: str, args: tuple[Term, ...], sort: Sort, kind: Kind) -> Term:
    key = (head, args, sort, kind)
    found = _interned.get(key)
    if found is None:
        found = _interned[key] = Term(head, args, sort, kind)
    return found


def app(head: str, *args: Term, sort: Sort) -> Term:
    """An application of a theory's symbol."""
    return _make(head, args, sort, Kind.THEORY)


def var(name: str, sort: Sort) -> Term:
    return _make(name, (), sort, Kind.DECLARED)


def function(name: str, *args: Term, sort: Sort) -> Term:
    """An application of an uninterpreted function."""
    return _make(name, args, sort, Kind.DECLARED)


def literal(text: str, sort: Sort) -> Term:
    return _make(text, (), sort, Kind.LITERAL)


TRUE, FALSE = literal("true", BOOL), literal("false", BOOL)
RNE, RTZ = literal("RNE", ROUNDING), literal("RTZ", ROUNDING)


def integer(n: int) -> Term:
    return literal(str(n) if n >= 0 else f"(- {-n})", INT)


def word(n: int, width: int) -> Term:
    """A bit vector constant, of `n` modulo 2^width."""
    return literal(f"(_ bv{n % (1 << width)} {width})", bv(width))


def boolean(b: bool) -> Term:
    return TRUE if b else FALSE


# Logic


def not_(a: Term) -> Term:
    return app("not", a, sort=BOOL)


def and_(*terms: Term) -> Term:
    kept = tuple(t for t in terms if t is not TRUE)
    return kept[0] if len(kept) == 1 else app("and", *kept, sort=BOOL) if kept else TRUE


def or_(*terms: Term) -> Term:
    kept = tuple(t for t in terms if t is not FALSE)
    return kept[0] if len(kept) == 1 else app("or", *kept, sort=BOOL) if kept else FALSE


def implies(a: Term, b: Term) -> Term:
    return app("=>", a, b, sort=BOOL)


def same(a: Term, b: Term) -> Term:
    """Identity: of floats, NaN is NaN, and -0 is not +0."""
    return TRUE if a is b else app("=", a, b, sort=BOOL)


def ite(c: Term, a: Term, b: Term) -> Term:
    return a if c is TRUE or a is b else b if c is FALSE else app("ite", c, a, b, sort=a.sort)


def compare(head: str, a: Term, b: Term) -> Term:
    return app(head, a, b, sort=BOOL)


# Integers


def plus(a: Term, b: Term) -> Term:
    return app("+", a, b, sort=INT)


def minus(*args: Term) -> Term:
    return app("-", *args, sort=INT)


def times(a: Term, b: Term) -> Term:
    return app("*", a, b, sort=INT)


def floor_div(a: Term, b: Term) -> Term:
    """floor(a / b), meant for b other than 0."""
    return app("floor-div", a, b, sort=INT)


def floor_mod(a: Term, b: Term) -> Term:
    return app("floor-mod", a, b, sort=INT)


def modulo(a: Term, n: int) -> Term:
    """a modulo the positive constant n."""
    return app("mod", a, integer(n), sort=INT)


# Text


class Encoding(Enum):
    """How floor division is expanded."""

    NATIVE = "native"
    SKOLEM = "skolem"


_DIVISIONS = frozenset({"floor-div", "floor-mod"})


def subterms(roots: Iterable[Term]) -> list[Term]:
    """Every subterm once, arguments first; iterative."""
    seen: set[Term] = set()
    order: list[Term] = []
    stack = [(t, False) for t in reversed(list(roots))]
    while stack:
        t, done = stack.pop()
        if done:
            order.append(t)
        elif t not in seen:
            seen.add(t)
            stack.append((t, True))
            stack.extend((a, False) for a in reversed(t.args) if a not in seen)
    return order


def inline(t: Term) -> str:
    """A term as text without definitions."""
    return t.head if not t.args else f"({t.head} {' '.join(map(inline, t.args))})"


def script(assertions: Iterable[Term], encoding: Encoding = Encoding.NATIVE) -> str:
    """The text of a query: is the conjunction of `assertions` satisfiable?"""
    stated = expand(list(assertions), encoding)
    order = subterms(stated)
    uses: dict[Term, int] = {}
    for t in order:
        for a in t.args:
            uses[a] = uses.get(a, 0) + 1
    lines = list(_declarations(order))
    names: dict[Term, str] = {}
    for t in order:
        if t.args and uses.get(t, 0) > 1:
            names_t = f"t!{len(names)}"
            lines.append(f"(define-fun {names_t} () {t.sort} {_text(t, names)})")
            names[t] = names_t
    lines += [f"(assert {names.get(t) or _text(t, names)})" for t in stated]
    return "\n".join(lines) + "\n"


def _text(t: Term, names: dict[Term, str]) -> str:
    if not t.args:
        return t.head
    return f"({t.head} {' '.join(names.get(a) or _text(a, names) for a in t.args)})"


def _declarations(order: list[Term]) -> Iterator[str]:
    if any(t.sort is EXACT for t in order):
        yield f"(declare-sort {EXACT} 0)"
    seen: set[str] = set()
    for t in order:
        if t.kind is Kind.DECLARED and t.head not in seen:
            seen.add(t.head)
            yield f"(declare-fun {t.head} ({' '.join(a.sort.text for a in t.args)}) {t.sort})"


# Floor division


def expand(assertions: list[Term], encoding: Encoding) -> list[Term]:
    """`assertions` in the solver's own operators, with what an encoding has to assume about its fresh constants."""
    if not any(t.head in _DIVISIONS for t in subterms(assertions)):
        return assertions
    how = _Native() if encoding is Encoding.NATIVE else _Skolem()
    done: dict[Term, Term] = {}
    for t in subterms(assertions):
        args = tuple(done[a] for a in t.args)
        if t.head in _DIVISIONS:
            q, r = how.divide(*args)
            done[t] = q if t.head == "floor-div" else r
        else:
            done[t] = t if args == t.args else _make(t.head, args, t.sort, t.kind)
    return [*how.facts(), *(done[t] for t in assertions)]


class _Native:
    """By the solver's Euclidean div and mod, which round down where the divisor is positive."""

    def divide(self, a: Term, b: Term) -> tuple[Term, Term]:
        positive = self._quotient(a, b)
        if b.kind is Kind.LITERAL and b.head.isdigit():
            return positive, app("mod", a, b, sort=INT)
        q = ite(compare(">", b, integer(0)), positive, self._quotient(minus(a), minus(b)))
        return q, minus(a, times(b, q))

    @staticmethod
    def _quotient(a: Term, b: Term) -> Term:
        return app("div", a, b, sort=INT)

    def facts(self) -> list[Term]:
        return []


class _Skolem:
    """By a fresh q and r with a = b q + r and r between 0 and b, and per pair of quotients by one divisor the ground lemma that
    products with a positive number grow."""

    def __init__(self) -> None:
        self.found: dict[tuple[Term, Term], tuple[Term, Term]] = {}

    def divide(self, a: Term, b: Term) -> tuple[Term, Term]:
        if (a, b) not in self.found:
            k = len(self.found)
            self.found[a, b] = var(f"q!{k}", INT), var(f"r!{k}", INT)
        return self.found[a, b]

    def facts(self) -> list[Term]:
        zero, found = integer(0), []
        for (a, b), (q, r) in self.found.items():
            above = and_(compare("<=", zero, r), compare("<", r, b))
            below = and_(compare("<", b, r), compare("<=", r, zero))
            positive, negative = compare(">", b, zero), compare("<", b, zero)
            found.append(implies(or_(positive, negative), same(a, plus(times(b, q), r))))
            found += [implies(positive, above), implies(negative, below)]
        for ((_, b), (q, _)), ((_, d), (p, _)) in itertools.permutations(self.found.items(), 2):
            if b is d:
                apart = and_(compare(">", b, zero), compare(">=", minus(q, p), integer(1)))
                found.append(implies(apart, compare(">=", times(b, minus(q, p)), b)))
        return found


def rebuild(t: Term, args: tuple[Term, ...]) -> Term:
    """`t` on other arguments."""
    return t if args == t.args else _make(t.head, args, t.sort, t.kind)
