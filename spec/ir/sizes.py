"""Comparisons of extents, constant or symbolic (R48, symbolic sizes).

A symbolic extent becomes a polynomial over *atoms*: named variables, and index expressions that are no sums or products. Extents
are equal if their polynomials are. `a <= b` holds if interval arithmetic over the atoms' min_max bounds b - a below by zero. What
this cannot prove counts as false. Polynomials have at most `LIMIT` terms, and those of sums and products at most `BITS` bits,
which bounds the cost of hostile sizes.

`match_axis_groups` says which axes of a reshape have the same elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from uops.spec.errors import Crash
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import Dim, MinMax, UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.untrusted import escape_to_one_line

LIMIT = 64
BITS = 1024

#: A polynomial: product of atoms -> coefficient; the empty product is the constant term.
Poly = dict[tuple[UOp, ...], int]
#: Ops of index expressions that `extent_polynomial` looks through.
_POLYNOMIAL_OPS = frozenset({Op.ADD, Op.SUB, Op.NEG, Op.MUL, Op.IDIV})
#: The bounds of a value of which nothing is known.
_UNBOUNDED: MinMax = (-math.inf, math.inf)


def _is_within_limits(p: Poly) -> bool:
    return len(p) <= LIMIT and all(c.bit_length() <= BITS and len(m) <= LIMIT for m, c in p.items())


def add_polynomials(a: Poly, b: Poly, sign: int = 1) -> Poly:
    """Return a + sign * b, without zero terms."""
    out = dict(a)
    for m, c in b.items():
        out[m] = out.get(m, 0) + sign * c
    return {m: c for m, c in out.items() if c}


def multiply_polynomials(a: Poly, b: Poly) -> Poly:
    """Return a * b, without zero terms."""
    out: Poly = {}
    for m, c in a.items():
        for n, d in b.items():
            key = tuple(sorted((*m, *n), key=id))
            out[key] = out.get(key, 0) + c * d
    return {m: c for m, c in out.items() if c}


def _combine_polynomials_unless_inexact_division(op: Op, operands: list[Poly]) -> Poly | None:
    """Return the polynomial of `op` applied to polynomials; None for a division that leaves a remainder in some coefficient."""
    if op is Op.NEG:
        (operand,) = operands
        return add_polynomials({}, operand, -1)
    lhs, rhs = operands
    if op is Op.MUL:
        return multiply_polynomials(lhs, rhs)
    if op is Op.IDIV:
        divisor = rhs.get((), 0) if set(rhs) == {()} else 0
        return {m: c // divisor for m, c in lhs.items()} if divisor and all(c % divisor == 0 for c in lhs.values()) else None
    return add_polynomials(lhs, rhs, -1 if op is Op.SUB else 1)


def extent_polynomial(extent: Dim) -> Poly:
    """Return the polynomial of an extent; a node whose polynomial would exceed the limits is an atom."""
    if not isinstance(extent, UOp):
        return {(): int(extent)} if extent else {}
    polynomials: dict[UOp, Poly] = {}
    for u in toposort(extent, gate=lambda n: n.op in _POLYNOMIAL_OPS and n.dtype is dt.index):
        if u.op is Op.CONST:
            polynomials[u] = extent_polynomial(u.arg.value)
            continue
        if u.op in _POLYNOMIAL_OPS and u.dtype is dt.index and math.prod(len(polynomials[s]) for s in u.src) <= LIMIT:
            combined = _combine_polynomials_unless_inexact_division(u.op, [polynomials[s] for s in u.src])
            if combined is not None and _is_within_limits(combined):
                polynomials[u] = combined
                continue
        polynomials[u] = {(u,): 1}
    return polynomials[extent]


def element_count_polynomial(dims: Iterable[Dim]) -> Poly:
    """Return the number of elements of a shape as a polynomial; sums are atoms if the product of all might exceed `LIMIT`."""
    extents = tuple(dims)
    factors = [extent_polynomial(d) for d in extents]
    if not all(factors):  # an extent is 0
        return {}
    if math.prod(map(len, factors)) > LIMIT:
        factors = [p if len(p) == 1 else {(d,): 1} for d, p in zip(extents, factors)]
    out: Poly = {(): 1}
    for p in factors:
        out = multiply_polynomials(out, p)
    return out


def _lower_bound(polynomial: Poly) -> float:
    """Return a lower bound of the polynomial's value, an int or -inf; exact but for the limits of interval arithmetic."""
    low = 0
    for monomial, c in polynomial.items():
        lo: float = 1
        hi: float = 1
        for atom in monomial:
            ends = [_multiply_bounds(x, y) for x in (lo, hi) for y in _integer_bounds(atom)]
            lo, hi = min(ends), max(ends)
        term = _multiply_bounds(c, lo if c > 0 else hi)
        if not isinstance(term, int):
            return -math.inf
        low += term
    return low


def _integer_bounds(atom: UOp) -> MinMax:
    """Return bounds of an atom's value, ints or infinities."""
    lo, hi = atom.min_max or _UNBOUNDED
    return (lo if lo in _UNBOUNDED else math.floor(lo)), (hi if hi in _UNBOUNDED else math.ceil(hi))


def _multiply_bounds(a: float, b: float) -> float:
    """Return the exact product of two bounds, ints or infinities; 0 times infinity is 0, since every value is finite."""
    if not a or not b:
        return 0
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return math.inf if (a > 0) is (b > 0) else -math.inf


def provably_equal(a: Dim, b: Dim) -> bool:
    """Return True if a = b for all values of the variables."""
    if a is b:
        return True
    if not isinstance(a, UOp) and not isinstance(b, UOp):
        return bool(a == b)
    return extent_polynomial(a) == extent_polynomial(b)


def same_shape(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> bool:
    """Return True if two shapes are provably equal."""
    return a == b or (len(a) == len(b) and all(map(provably_equal, a, b)))


def provably_at_most(a: Dim, b: Dim) -> bool:
    """Return True if a <= b is proved for all values of the variables."""
    if not isinstance(a, UOp) and not isinstance(b, UOp):
        return bool(a <= b)
    return _lower_bound(add_polynomials(extent_polynomial(b), extent_polynomial(a), -1)) >= 0


def sum_provably_at_most(a: Dim, b: Dim, c: Dim) -> bool:
    """Return True if a + b <= c is proved for all values of the variables."""
    if not isinstance(a, UOp) and not isinstance(b, UOp) and not isinstance(c, UOp):
        return bool(a + b <= c)
    return _lower_bound(add_polynomials(extent_polynomial(c), add_polynomials(extent_polynomial(a), extent_polynomial(b)), -1)) >= 0


def provably_nonnegative(d: Dim) -> bool:
    """Return True if d >= 0 is proved for all values of the variables."""
    return provably_at_most(0, d)


def divides(n: int, d: Dim) -> bool:
    """Return True if n provably divides d."""
    return n != 0 and all(c % n == 0 for c in extent_polynomial(d).values())


def show_extent_as_number_name_or_op(extent: Dim) -> str:
    """Return an extent as text for a message."""
    if not isinstance(extent, UOp):
        return str(extent)
    return escape_to_one_line(extent.arg.name) if extent.op is Op.PARAM and extent.arg.name else f"<{extent.op.name.lower()}>"


def show_shape(s: tuple[Dim, ...]) -> str:
    """Return a shape as text for a message."""
    return "(" + ",".join(map(show_extent_as_number_name_or_op, s)) + ")"


def match_axis_groups(old: Sequence[Dim], new: Sequence[Dim]) -> Iterator[tuple[slice, slice]]:
    """Yield the smallest groups of consecutive axes of both shapes that have as many elements.

    Axes of 1 go with the group before them. Of symbolic shapes, only leading axes that are the same are groups of their own.
    """
    i = j = 0
    if 0 in old or any(isinstance(n, UOp) for n in (*old, *new)):
        lead = 0
        while lead < min(len(old), len(new)) - 1 and old[lead] is new[lead] and 0 not in old:
            yield slice(lead, lead + 1), slice(lead, lead + 1)
            lead += 1
        yield slice(lead, None), slice(lead, None)
        return
    while i < len(old) or j < len(new):
        a, b, m, n = i, j, 1, 1
        while True:
            if i < len(old) and (m <= n or j == len(new)):
                m, i = m * int(old[i]), i + 1
            elif j < len(new):
                n, j = n * int(new[j]), j + 1
            elif m != n:
                raise Crash(f"a reshape of {tuple(old)} to {tuple(new)} changes the number of elements")
            if m == n and (j > b or j == len(new)) and (i > a or i == len(old)):
                break
        while i < len(old) and old[i] == 1:
            i += 1
        while j < len(new) and new[j] == 1:
            j += 1
        yield slice(a, i), slice(b, j)
