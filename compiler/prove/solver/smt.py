"""SMT-LIB terms: sorts, interned nodes and the text of a query. It knows no solver.

A term is made by `app`, `var`, `function` or a literal; equal terms are one object, so a subterm that occurs twice is printed once,
as a definition. `script` gives the text of a query: declarations, definitions, assertions. Integer division is an operator of its
own here (`floor-div`, `floor-mod`: the quotient rounded down and its remainder, for a divisor other than 0), which `Encoding`
expands: NATIVE by the solver's div and mod, SKOLEM by fresh quotients and remainders with ground lemmas, which answers for symbolic
divisors where native does not.
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
    return Sort(f"(_ BitVec {width})", width)


def fp(exponent: int, significand: int) -> Sort:
    return Sort(f"(_ FloatingPoint {exponent} {significand})", exponent + significand)


class Kind(Enum):
    """What the head of a term is: a symbol of the theory, one that the query declares, or a literal."""

    THEORY = "theory"
    DECLARED = "declared"
    LITERAL = "literal"

    __hash__ = object.__hash__  # members are unique


class Term:
    """One node; immutable by convention, interned, compared by identity."""

    __slots__ = ("args", "head", "kind", "sort")

    def __init__(self, head: str, args: tuple[Term, ...], sort: Sort, kind: Kind) -> None:
        self.head, self.args, self.sort, self.kind = head, args, sort, kind

    def __repr__(self) -> str:
        return inline(self)


class _Table(threading.local):
    """The interned terms of one thread."""

    def __init__(self) -> None:
        self.terms: dict[tuple[object, ...], Term] = {}


_table = _Table()


def forget() -> None:
    """Drop this thread's terms, between queries: a term made before is not one made after, but for the constants below."""
    _table.terms.clear()


def _make(head: str, args: tuple[Term, ...], sort: Sort, kind: Kind) -> Term:
    key = (head, args, sort, kind)
    found = _table.terms.get(key)
    if found is None:
        found = _table.terms[key] = Term(head, args, sort, kind)
    return found


def rebuild(t: Term, args: tuple[Term, ...]) -> Term:
    """`t` on other arguments."""
    return t if args == t.args else _make(t.head, args, t.sort, t.kind)


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


def rational(n: Fraction) -> Term:
    size = f"(/ {abs(n.numerator)}.0 {n.denominator}.0)"
    return literal(size if n >= 0 else f"(- {size})", REAL)


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


def simplified(t: Term, known: Mapping[Term, Term]) -> Term:
    """`t` where some Boolean terms are known to be TRUE or FALSE."""
    done: dict[Term, Term] = {}
    for s in subterms([t]):
        args = tuple(done[a] for a in s.args)
        done[s] = known.get(s) or _SIMPLER.get(s.head, rebuild)(s, args)
    return done[t]


def _simpler_ite(t: Term, args: tuple[Term, ...]) -> Term:
    return ite(*args)


def _simpler_and(t: Term, args: tuple[Term, ...]) -> Term:
    return FALSE if FALSE in args else and_(*args)


def _simpler_or(t: Term, args: tuple[Term, ...]) -> Term:
    return TRUE if TRUE in args else or_(*args)


def _simpler_implies(t: Term, args: tuple[Term, ...]) -> Term:
    a, b = args
    return TRUE if a is FALSE or b is TRUE else b if a is TRUE else rebuild(t, args)


def _simpler_not(t: Term, args: tuple[Term, ...]) -> Term:
    return FALSE if args[0] is TRUE else TRUE if args[0] is FALSE else rebuild(t, args)


def _simpler_same(t: Term, args: tuple[Term, ...]) -> Term:
    return TRUE if args[0] is args[1] else rebuild(t, args)


_SIMPLER = {
    "ite": _simpler_ite, "and": _simpler_and, "or": _simpler_or, "=>": _simpler_implies, "not": _simpler_not, "=": _simpler_same,
}  # fmt: skip


def substitute(t: Term, old: Term, new: Term) -> Term:
    """`t` with `new` for `old`."""
    done: dict[Term, Term] = {}
    for s in subterms([t]):
        done[s] = new if s is old else rebuild(s, tuple(done[a] for a in s.args))
    return done[t]


def solved(assumed: Sequence[Term], *others: Term) -> tuple[list[Term], list[Term]]:
    """`assumed` and `others` with every constant that an assumption defines replaced by what it is; the definitions stay."""
    facts, rest, kept = list(assumed), list(others), list[Term]()
    while (found := next(filter(None, map(_definition, facts)), None)) is not None:
        equation, name, value = found
        facts = [substitute(f, name, value) for f in facts if f is not equation]
        kept = [*(substitute(f, name, value) for f in kept), equation]
        rest = [substitute(t, name, value) for t in rest]
    return [*facts, *kept], rest


def _definition(t: Term) -> tuple[Term, Term, Term] | None:
    """(t, constant, value) where `t` says that a declared constant is a value in which it does not occur."""
    if t.head == "=":
        for a, b in (t.args, t.args[::-1]):
            if a.kind is Kind.DECLARED and not a.args and a not in subterms([b]):
                return t, a, b
    return None


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
    stack: list[Any] = list(roots)[::-1]  # a None lies on a term whose arguments come before it
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
    """A term as text without definitions."""
    return t.head if not t.args else f"({t.head} {' '.join(map(inline, t.args))})"


def script(assertions: Iterable[Term], encoding: Encoding = Encoding.NATIVE, known: Mapping[Term, Term] | None = None) -> str:
    """The text of a query: is the conjunction of `assertions` satisfiable? What is `known` must be among them."""
    stated = expand(list(assertions), encoding)
    if known:
        told = {literal_of(t, v) for t, v in known.items()}
        stated = [t for t in (s if s in told else simplified(s, known) for s in stated) if t is not TRUE]
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


def literal_of(t: Term, truth: Term) -> Term:
    """The assertion that `t` is `truth`."""
    return t if truth is TRUE else not_(t)


def divisors(terms: Iterable[Term]) -> list[Term]:
    """The divisors that are no literals, each once."""
    found = (t.args[1] for t in subterms(terms) if t.head in _DIVISIONS)
    return list(dict.fromkeys(b for b in found if b.kind is not Kind.LITERAL))


def signs(b: Term) -> list[dict[Term, Term]]:
    """The three cases of an integer's sign: what is then known of it."""
    zero = integer(0)
    tests = (compare(">", b, zero), compare("<", b, zero), same(b, zero))
    return [{t: boolean(t is mine) for t in tests} for mine in tests]


def expand(assertions: list[Term], encoding: Encoding) -> list[Term]:
    """`assertions` in the solver's own operators, with what an encoding has to assume about its fresh constants."""
    if not any(t.head in _DIVISIONS for t in subterms(assertions)):
        return assertions
    how = _Skolem() if encoding is Encoding.SKOLEM else _Native()
    done: dict[Term, Term] = {}
    for t in subterms(assertions):
        args = tuple(done[a] for a in t.args)
        if t.head in _DIVISIONS:
            q, r = how.divide(*args)
            done[t] = q if t.head == "floor-div" else r
        else:
            done[t] = t if args == t.args else _make(t.head, args, t.sort, t.kind)
    return [*how.facts(), *(done[t] for t in assertions)]


def _remainder(b: Term, r: Term) -> list[Term]:
    """That r is a remainder by b: between 0 and b."""
    zero = integer(0)
    above, below = and_(compare("<=", zero, r), compare("<", r, b)), and_(compare("<", b, r), compare("<=", r, zero))
    return [implies(compare(">", b, zero), above), implies(compare("<", b, zero), below)]


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
    """By a fresh q and r with a = b q + r and r between 0 and b. The solver lacks that a product with a positive number is at
    least as great: b > 0 and t >= 1 give b t >= b (and b < 0 gives b t <= b), which is stated for t the difference of any two
    quotients by one divisor; for the quotient of a by b less what the digits of a say that it is, m p + p', where p is the
    quotient by m b and p' that of its remainder by b; and for a quotient by m b less one by m, which is that of a quotient by b
    where they are the same."""

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
            divides = or_(compare(">", b, zero), compare("<", b, zero))
            found += [implies(divides, same(a, plus(times(b, q), r))), *_remainder(b, r)]
        for ((_, b), (q, _)), ((_, d), (p, _)) in itertools.permutations(self.found.items(), 2):
            if b is d:
                found.append(_grows(b, minus(q, p)))
        for (a, b), (q, _) in self.found.items():
            for m, p, rest in self._multiples(a, b):
                if (rest, b) in self.found:
                    more = minus(q, plus(times(m, p), self.found[rest, b][0]))
                    found += [_grows(b, more), _grows(b, minus(more))]
        for product, more in self._nested():
            found += [_grows(product, more), _grows(product, minus(more))]
        return found

    def _nested(self) -> Iterator[tuple[Term, Term]]:
        """(m b, quotient by m b less a quotient of something else by m)."""
        for (a, product), (p, _) in self.found.items():
            for (other, m), (q, _) in self.found.items():
                if product.head == "*" and m in product.args and other is not a:
                    yield product, minus(p, q)

    def _multiples(self, a: Term, b: Term) -> Iterator[tuple[Term, Term, Term]]:
        """(m, quotient, remainder) for each division of `a` by a product m b."""
        for (dividend, product), (p, rest) in self.found.items():
            if dividend is a and product.head == "*" and b in product.args and len(product.args) == 2:
                m, n = product.args
                yield (m if n is b else n), p, rest


def _grows(b: Term, t: Term) -> Term:
    some = compare(">=", t, integer(1))
    above = implies(and_(compare(">", b, integer(0)), some), compare(">=", times(b, t), b))
    below = implies(and_(compare("<", b, integer(0)), some), compare("<=", times(b, t), b))
    return and_(above, below)
