"""Divisions and remainders in sums: a quotient and a remainder that belong together are what was divided, and what a period of a
remainder takes away need not be computed. Over the integers (R08), with floor division (R01, R02) and x // 0 = 0, x % 0 = x (R03).

As in `index`, a witness proposes the parts of a sum, and the condition says that they add up to it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from uops.compiler.ir.affine import Sum, build, linear, number
from uops.compiler.rewrite.pattern import INDEX, Binding, Pattern, cst, eq, ne, var
from uops.compiler.rewrite.rule import Rule
from uops.compiler.rewrite.rules.index import cheaper, node
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

x, y, s, t, q, r, w = (var(n, INDEX) for n in "xystqrw")
c, d, e, g, j, k, m = (cst(n, INDEX) for n in "cdegjkm")

Parts = dict[str, UOp]
_DIVISIONS = (Op.IDIV, Op.MOD)


def _positive(u: UOp) -> int:
    """The value of a constant greater than 0, else 0."""
    return max(0, int(u.arg.value)) if u.op is Op.CONST else 0


def _without(total: Sum, *terms: UOp) -> Sum:
    return Sum({u: n for u, n in total.terms.items() if u not in terms}, total.constant)


def _plus(total: Sum, term: UOp, times: int) -> UOp:
    """The canonical form of total + term * times."""
    terms, constant = dict(total.terms), total.constant
    more = linear(term)
    for u, n in more.terms.items():
        terms[u] = terms.get(u, 0) + n * times
    return build(Sum({u: n for u, n in terms.items() if n}, constant + more.constant * times))


# A remainder and its quotient


def _has_division(u: UOp) -> bool:
    """Whether the last term of a sum divides: the terms before it have met."""
    while u.op in (Op.ADD, Op.MUL, Op.NEG):
        if u.op is Op.ADD and _has_division(u.src[1]):
            return True
        u = u.src[0]
    return u.op in _DIVISIONS


def _pairs(found: Binding) -> Iterator[tuple[Sum, UOp, int, int, int]]:
    """(the sum, the remainder t % c in it, c, its coefficient k, that of the quotient, c k)."""
    x, y = node(found, "x"), node(found, "y")
    if not (_has_division(y) and _has_division(x)):
        return
    total = linear(UOp(Op.ADD, (x, y)))
    for rest, k in total.terms.items():
        if rest.op is Op.MOD and (by := _positive(rest.src[1])):
            yield total, rest, by, k, by * k


def _recombined(found: Binding) -> Parts | None:
    """t // c beside t % c."""
    for total, rest, by, k, times in _pairs(found):
        whole = rest.src[0]
        other = UOp(Op.IDIV, (whole, number(by)))
        if total.terms.get(other) == times:
            left = _without(total, rest, other)
            return {"t": whole, "c": number(by), "k": number(k), "m": number(times), "q": build(left), "w": _plus(left, whole, k)}
    return None


def _recombined_nested(found: Binding) -> Parts | None:
    """t // (g c) beside (t // g) % c."""
    for total, rest, by, k, times in _pairs(found):
        whole = rest.src[0]
        if whole.op is Op.IDIV and (inner := _positive(whole.src[1])):
            other = UOp(Op.IDIV, (whole.src[0], number(inner * by)))
            if total.terms.get(other) == times:
                left = _without(total, rest, other)
                parts = {"t": whole.src[0], "c": number(by), "g": number(inner), "e": number(inner * by), "k": number(k)}
                return {**parts, "m": number(times), "q": build(left), "w": _plus(left, whole, k)}
    return None


def _widened(found: Binding) -> Parts | None:
    """(t // c) % d beside t % c."""
    for total, rest, by, k, times in _pairs(found):
        whole = rest.src[0]
        quotient = UOp(Op.IDIV, (whole, number(by)))
        for other, n in total.terms.items():
            if n == times and other.op is Op.MOD and other.src[0] is quotient and (outer := _positive(other.src[1])):
                left, e = _without(total, rest, other), number(by * outer)
                parts = {"t": whole, "c": number(by), "d": number(outer), "e": e, "k": number(k), "m": number(times)}
                return {**parts, "q": build(left), "w": _plus(left, UOp(Op.MOD, (whole, e)), k)}
    return None


def _widened_nested(found: Binding) -> Parts | None:
    """(t // (g c)) % d beside (t // g) % c."""
    for total, rest, by, k, times in _pairs(found):
        whole = rest.src[0]
        if whole.op is not Op.IDIV or not (inner := _positive(whole.src[1])):
            continue
        quotient = UOp(Op.IDIV, (whole.src[0], number(inner * by)))
        for other, n in total.terms.items():
            if n == times and other.op is Op.MOD and other.src[0] is quotient and (outer := _positive(other.src[1])):
                left, wide = _without(total, rest, other), number(by * outer)
                parts = {"t": whole.src[0], "c": number(by), "d": number(outer), "e": number(inner * by), "g": number(inner)}
                parts |= {"j": wide, "k": number(k), "m": number(times)}
                return {**parts, "q": build(left), "w": _plus(left, UOp(Op.MOD, (whole, wide)), k)}
    return None


# Remainders in a dividend


def _period(found: Binding) -> Parts | None:
    """s = t % e + q with e a multiple of c."""
    by, total = int(node(found, "c").arg.value), linear(node(found, "s"))
    for rest, times in total.terms.items():
        if rest.op is Op.MOD and times == 1 and by > 0 and (period := _positive(rest.src[1])) and period % by == 0:
            left = _without(total, rest)
            return {"t": rest.src[0], "e": rest.src[1], "q": build(left), "w": _plus(left, rest.src[0], 1)}
    return None


_MOST_CHOICES = 6


def _within(found: Binding) -> Parts | None:
    """s = q c + r with 0 <= r < c, each coefficient of r being the least one that is congruent, of either sign."""
    by, total = int(node(found, "c").arg.value), linear(node(found, "s"))
    if by <= 0 or len(total.terms) > _MOST_CHOICES:
        return None
    for rest in itertools.product(*(_residues(n, by, len(total.terms)) for n in total.terms.values())):
        left = {u: n for u, n in zip(total.terms, rest, strict=True) if n}
        bounds = build(Sum(left, total.constant % by)).min_max
        if bounds is not None and bounds[0] // by == bounds[1] // by:
            shift = int(bounds[0] // by)
            whole = {u: (n - m) // by for (u, n), m in zip(total.terms.items(), rest, strict=True) if n != m}
            quotient = build(Sum(whole, total.constant // by + shift))
            return {"q": quotient, "r": build(Sum(left, total.constant % by - shift * by))}
    return None


def _residues(n: int, by: int, count: int) -> tuple[int, ...]:
    up = n % by
    if count == 1 or up * 2 == by:
        return (up, up - by) if up else (0,)
    return (min(up, up - by, key=abs),)


def _moved_in(found: Binding) -> Parts | None:
    """s = t // g + k."""
    total = linear(node(found, "s"))
    if len(total.terms) != 1 or not total.constant:
        return None
    (term, times), by = next(iter(total.terms.items())), _positive(node(found, "c"))
    if times != 1 or term.op is not Op.IDIV or not by or not (inner := _positive(term.src[1])):
        return None
    whole = _plus(linear(term.src[0]), number(total.constant), inner)
    return {"t": term.src[0], "g": term.src[1], "k": number(total.constant), "w": whole, "e": number(inner * by)}


def _factors(found: Binding) -> Parts | None:
    """e = k c."""
    by, period = int(node(found, "c").arg.value), int(node(found, "e").arg.value)
    return {"k": number(period // by)} if by > 0 and period > 0 and period % by == 0 else None


def _multiples_of(found: Binding) -> Parts | None:
    """s = (t y) k + r."""
    by, total = node(found, "y"), linear(node(found, "s"))
    for term, times in total.terms.items():
        if term.op is Op.MUL and term.src[1] is by:
            whole = term.src[0]
            return {"t": whole, "k": number(times), "q": _plus(Sum({}, 0), whole, times), "r": build(_without(total, term))}
    return None


def _product(found: Binding) -> Parts:
    return {"k": number(int(node(found, "c").arg.value) * int(node(found, "d").arg.value))}


# Comparisons of sums


def _bound(found: Binding) -> Parts | None:
    """s = q g + r, where the multiples of g next to c decide whatever r is."""
    limit, total = int(node(found, "c").arg.value), linear(node(found, "s"))
    sizes = {abs(n) for n in total.terms.values()}
    if not sizes:
        return None
    for size in sorted({math.gcd(*sizes), *sizes}, reverse=True):
        if size == 1 and not total.constant:  # s itself
            return None
        parts = _whole_and_rest(total, size)
        bounds = parts[1].min_max
        if bounds is None:
            return None
        least = int(-((bounds[0] - limit) // size))  # the least k with k g + r >= c for all r
        if (least - 1) * size + bounds[1] < limit:
            return {"q": parts[0], "r": parts[1], "g": number(size), "k": number(least)}
    return None


def _whole_and_rest(total: Sum, size: int) -> tuple[UOp, UOp]:
    whole = {u: n // size for u, n in total.terms.items() if n % size == 0}
    rest = {u: n for u, n in total.terms.items() if n % size}
    return build(Sum(whole, 0)), build(Sum(rest, total.constant))


_PAIR = eq(m, c * k)
_BOUND = (g > 0) & eq(s, q * g + r) & (k * g + r >= c) & ((k - 1) * g + r < c)
_IN_RANGE = (c > 0) & eq(s, q * c + r) & (r >= 0) & (r < c)


def _less(name: str, lhs: Pattern, rhs: Pattern) -> Rule:
    return Rule(name, lhs, rhs, when=_BOUND, witness=cheaper(lhs, rhs, _bound))


RULES = (
    # (t // c) c + t % c = t, and so for multiples of both; t // g // c is t // (g c).
    Rule("recombine", x + y, w, _PAIR & eq(w, q + t * k) & eq(x + y, q + (t // c) * m + (t % c) * k), _recombined),
    Rule(
        "recombine-nested",
        x + y,
        w,
        (c > 0) & (g > 0) & eq(e, g * c) & _PAIR & eq(w, q + (t // g) * k) & eq(x + y, q + (t // e) * m + ((t // g) % c) * k),
        _recombined_nested,
    ),
    # With (t // c) % d in place of t // c it is t % (c d).
    Rule(
        "widen",
        x + y,
        w,
        (c > 0) & (d > 0) & eq(e, c * d) & _PAIR & eq(w, q + (t % e) * k) & eq(x + y, q + ((t // c) % d) * m + (t % c) * k),
        _widened,
    ),
    Rule(
        "widen-nested",
        x + y,
        w,
        (c > 0)
        & (d > 0)
        & (g > 0)
        & eq(e, g * c)
        & eq(j, c * d)
        & _PAIR
        & eq(w, q + ((t // g) % j) * k)
        & eq(x + y, q + ((t // e) % d) * m + ((t // g) % c) * k),
        _widened_nested,
    ),
    # What differs by a multiple of c has the same remainder.
    Rule("mod-period", s % c, w % c, (c > 0) & (e > 0) & eq(e % c, 0) & eq(w, q + t) & eq(s, q + t % e), _period),
    # floor((q c + r) / c) = q for 0 <= r < c.
    Rule("div-in-range", s // c, q, _IN_RANGE, _within),
    Rule("mod-in-range", s % c, r, _IN_RANGE, _within),
    # floor((floor(t / g) + k) / c) = floor((t + k g) / (g c)).
    Rule("div-sum-div", s // c, w // e, (c > 0) & (g > 0) & eq(e, g * c) & eq(w, t + k * g) & eq(s, t // g + k), _moved_in),
    # The quotient of a remainder is a remainder of the quotient.
    Rule("div-mod", (t % e) // c, (t // c) % k, (c > 0) & (k > 0) & eq(e, k * c), _factors),
    # q g + r < c where whole multiples of g decide.
    _less("lt-multiples", s < c, q < k),
    _less("ge-multiples", s >= c, q >= k),
    # floor(t / c) < d is t < c d.
    Rule("lt-quotient", (t // c) < d, t < k, (c > 0) & eq(k, c * d), _product),
    Rule("ge-quotient", (t // c) >= d, t >= k, (c > 0) & eq(k, c * d), _product),
    # A divisor that is no constant, as extents of loops may be: floor((t y + r) / y) = t + floor(r / y).
    Rule("div-multiples-of", s // y, q + r // y, ne(y, 0) & eq(q, t * k) & eq(s, (t * y) * k + r), _multiples_of),
    Rule("mod-multiples-of", s % y, r % y, ne(y, 0) & eq(s, (t * y) * k + r), _multiples_of),
)
