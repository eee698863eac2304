"""Comparing extents, constant or symbolic (R48).

A symbolic extent is read as a polynomial over *atoms*: named variables and whatever index expression is no sum or product. Two
extents are equal when their polynomials are; `a <= b` holds when interval arithmetic over the atoms' min_max bounds b - a below by
zero. What this cannot prove counts as false. Polynomials are cut at `LIMIT` terms and `BITS` bits, so hostile sizes stay cheap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import Dim, UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.untrusted import quote_name

LIMIT = 64
BITS = 1024

#: Product of atoms -> coefficient; the empty product is the constant term.
Poly = dict[tuple[UOp, ...], int]
_SUMS = frozenset({Op.ADD, Op.SUB, Op.NEG, Op.MUL, Op.IDIV})


def _small(p: Poly) -> bool:
    return len(p) <= LIMIT and all(c.bit_length() <= BITS and len(m) <= LIMIT for m, c in p.items())


def plus(a: Poly, b: Poly, sign: int = 1) -> Poly:
    out = dict(a)
    for m, c in b.items():
        out[m] = out.get(m, 0) + sign * c
    return {m: c for m, c in out.items() if c}


def times(a: Poly, b: Poly) -> Poly:
    out: Poly = {}
    for m, c in a.items():
        for n, d in b.items():
            key = tuple(sorted((*m, *n), key=id))
            out[key] = out.get(key, 0) + c * d
    return {m: c for m, c in out.items() if c}


def _combine(u: UOp, src: list[Poly]) -> Poly | None:
    """None where the result is no polynomial: a division that is not exact by its form."""
    if u.op is Op.MUL:
        return times(*src)
    if u.op is Op.IDIV:
        by = src[1].get((), 0) if set(src[1]) == {()} else 0
        return {m: c // by for m, c in src[0].items()} if by and all(c % by == 0 for c in src[0].values()) else None
    if u.op is Op.NEG:
        return plus({}, src[0], -1)
    return plus(src[0], src[1], -1 if u.op is Op.SUB else 1)


def poly(d: Dim) -> Poly:
    """The polynomial of an extent; a node that would exceed the limits is an atom."""
    if not isinstance(d, UOp):
        return {(): int(d)} if d else {}
    done: dict[UOp, Poly] = {}
    for u in toposort(d, gate=lambda n: n.op in _SUMS and n.dtype is dt.index):
        if u.op is Op.CONST:
            done[u] = poly(u.arg.value)
            continue
        if u.op in _SUMS and u.dtype is dt.index and math.prod(len(done[s]) for s in u.src) <= LIMIT:
            combined = _combine(u, [done[s] for s in u.src])
            if combined is not None and _small(combined):
                done[u] = combined
                continue
        done[u] = {(u,): 1}
    return done[d]


def total(dims: Iterable[Dim]) -> Poly:
    """The number of elements of a shape."""
    out: Poly = {(): 1}
    for d in dims:
        out = times(out, poly(d))
    return out


def _least(p: Poly) -> float:
    """A lower bound of the polynomial's value."""
    low: float = 0
    for monomial, c in p.items():
        lo, hi = 1.0, 1.0
        for atom in monomial:
            a = atom.min_max or (-math.inf, math.inf)
            ends = [0 if x == 0 or y == 0 else x * y for x in (lo, hi) for y in a]
            lo, hi = min(ends), max(ends)
        low += c * lo if c > 0 else c * hi
    return low


def equal(a: Dim, b: Dim) -> bool:
    """Whether a = b is certain."""
    if a is b:
        return True
    if not isinstance(a, UOp) and not isinstance(b, UOp):
        return bool(a == b)
    return poly(a) == poly(b)


def same_shape(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> bool:
    return a == b or (len(a) == len(b) and all(map(equal, a, b)))


def at_most(a: Dim, b: Dim) -> bool:
    """Whether a <= b is certain."""
    if not isinstance(a, UOp) and not isinstance(b, UOp):
        return bool(a <= b)
    return _least(plus(poly(b), poly(a), -1)) >= 0


def sum_at_most(a: Dim, b: Dim, c: Dim) -> bool:
    """Whether a + b <= c is certain."""
    if not isinstance(a, UOp) and not isinstance(b, UOp) and not isinstance(c, UOp):
        return bool(a + b <= c)
    return _least(plus(poly(c), plus(poly(a), poly(b)), -1)) >= 0


def not_negative(d: Dim) -> bool:
    return at_most(0, d)


def divides(n: int, d: Dim) -> bool:
    """Whether n divides d for certain."""
    return n != 0 and all(c % n == 0 for c in poly(d).values())


def show(d: Dim) -> str:
    """An extent in a message."""
    if not isinstance(d, UOp):
        return str(d)
    return quote_name(d.arg.name) if d.op is Op.PARAM and d.arg.name else f"<{d.op.name.lower()}>"


def show_shape(s: tuple[Dim, ...]) -> str:
    return "(" + ",".join(map(show, s)) + ")"
