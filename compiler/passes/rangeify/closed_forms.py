"""Closed forms: a reduction over a range without its loop.

`close(op, e, r)` gives what `op` over all r in 0 <= r < n makes of the expression e, as an expression without r, or None. In each
form below v is an expression that r does not occur in, c a condition, and z the identity of op (for Add, either zero):

    constant    op over r of v                  = v times n (Add), v (Max, for n > 0)
    selected    op over r of (c ? v(r) : z)     where c makes r equal to s: (0 <= s < n and c(s)) ? v(s) : z
    counted     op over r of (c ? v : z)        where c bounds r from both sides, lo <= r < hi: v times max(0, hi - lo) (Add),
                                                lo < hi ? v : z (Max)

Conditions on c: a conjunction of comparisons of integers, each a sum of r, k times, and of terms that r does not occur in; casts of
index to a machine integer count as nothing where min_max proves that they do not wrap. Values are not moved out of the choice
unless they are selected by it, so that what is not selected - NaN, infinity - never contributes (R50); a product with a mask is a
choice for integers only. For floats the results are among the allowed ones of R32: a sum of one term and zeros is that term, up to
the sign of zero, and n equal terms lie within (n - 1)u of n * v, which is computed in float32 at least and guarded for n = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from uops.compiler.decompose import SMALL
from uops.compiler.ir.accumulators import identity
from uops.compiler.ir.affine import between, build, linear, number
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, substitute
from uops.spec.ir.ops import Op

ZERO, ONE = number(0), number(1)
Simplify = Callable[[UOp], UOp]
#: Whether an expression depends on a range, perhaps through the index at which a placeholder stands for a value.
Depends = Callable[[UOp, UOp], bool]
#: Comparisons as (whether the left side is the greater one, whether equality is excluded).
_BOUNDS = {Op.CMPLT: (False, True), Op.CMPLE: (False, False), Op.CMPGE: (True, False), Op.CMPGT: (True, True)}
_NEGATED = {Op.CMPLT: Op.CMPGE, Op.CMPGE: Op.CMPLT, Op.CMPLE: Op.CMPGT, Op.CMPGT: Op.CMPLE, Op.CMPNE: Op.CMPEQ}


class Found(NamedTuple):
    """A closed form: `value`; where the range took one value only, that value (`at`), else None."""

    value: UOp
    at: UOp | None = None


class Choice(NamedTuple):
    """`value` where all of `conditions` hold, else the identity."""

    conditions: tuple[UOp, ...]
    value: UOp


def close(op: Op, e: UOp, r: UOp, simplify: Simplify, depends: Depends) -> Found | None:
    """`op` over all r of e without r. A placeholder whose index depends on r is to be put at `at` by the caller."""
    if op not in (Op.ADD, Op.MAX) or e.dtype is dt.bool_:
        return None
    chosen = _choice(op, e)
    within = tuple(c for c in chosen.conditions if depends(c, r))
    rest = tuple(c for c in chosen.conditions if not depends(c, r))
    found = _selected(op, chosen.value, within, r, simplify, depends)
    if found is None and not depends(chosen.value, r):
        found = _counted(op, chosen.value, within, r, simplify, depends)
    if found is None:
        return None
    return Found(simplify(_gated(op, rest, found.value)), found.at)


def _gated(op: Op, conditions: tuple[UOp, ...], value: UOp) -> UOp:
    for c in conditions:
        value = UOp(Op.WHERE, (c, value, identity(op, value.dtype)))
    return value


# What a term is


def _choice(op: Op, e: UOp) -> Choice:
    """`e` as a value under conditions, as far as it spells one."""
    conditions: list[UOp] = []
    while (step := _chosen(op, e)) is not None:
        c, e = step
        conditions += _conjuncts(c)
    return Choice(tuple(conditions), e)


def _chosen(op: Op, e: UOp) -> tuple[UOp, UOp] | None:
    """(condition, value) where `e` is the identity unless the condition holds."""
    if e.op is Op.WHERE:
        c, a, b = e.src
        if _neutral(op, b):
            return c, a
        other = negated(c)
        return (other, b) if _neutral(op, a) and other is not None else None
    if op is not Op.ADD:
        return None
    if e.op is Op.CAST and e.src[0].dtype is dt.bool_:
        return e.src[0], B.const(1, e.dtype)
    if e.op is Op.MUL and not e.dtype.is_float:
        for mask, value in (e.src, e.src[::-1]):
            if mask.op is Op.CAST and mask.src[0].dtype is dt.bool_:
                return mask.src[0], value
            if mask.op is Op.WHERE and _neutral(op, mask.src[2]):
                return mask.src[0], UOp(Op.MUL, (mask.src[1], value))
    return None


def _neutral(op: Op, u: UOp) -> bool:
    if u.op is not Op.CONST:
        return False
    return u.arg.value == 0 if op is Op.ADD else u is identity(op, u.dtype)


def negated(c: UOp) -> UOp | None:
    """The comparison of integers that holds where `c` does not."""
    if c.op is Op.NOT:
        return c.src[0]
    return UOp(_NEGATED[c.op], c.src) if c.op in _NEGATED and not c.src[0].dtype.is_float else None


def _conjuncts(c: UOp) -> Iterator[UOp]:
    pending = [c]
    while pending:
        u = pending.pop()
        if u.op in (Op.AND, Op.MUL) and u.dtype is dt.bool_:
            pending += reversed(u.src)
        elif u.op is Op.NOT and (other := negated(u.src[0])) is not None:
            pending.append(other)
        else:
            yield u


# Comparisons, solved for r


class Solved(NamedTuple):
    """A comparison of `factor` * r with `other`, an index expression that r does not occur in."""

    factor: int
    other: UOp
    flipped: bool


def _solve(c: UOp, r: UOp, depends: Depends) -> Solved | None:
    if len(c.src) != 2 or c.src[0].dtype.is_float or c.src[0].dtype is dt.bool_:
        return None
    for flipped, (mine, other) in enumerate((c.src, c.src[::-1])):
        if depends(other, r) or (inner := exact_index(mine)) is None:
            continue
        total = linear(inner)
        factor = total.terms.pop(r, 0)
        left = build(total)
        rest = UOp(Op.SUB, (_as_index(other), left))
        if factor and not depends(left, r) and _is_narrow(rest):
            return Solved(factor, rest, bool(flipped))
    return None


def _is_narrow(u: UOp, room: int = 0) -> bool:
    """Whether an index expression fits a machine integer, as all that a kernel computes must (R08); also `room` more and less."""
    bounds = u.min_max
    return bounds is not None and dt.int64.min + room <= bounds[0] and bounds[1] <= dt.int64.max - room


def _as_index(u: UOp) -> UOp:
    found = exact_index(u)
    return B.cast(u, dt.index) if found is None else found


def exact_index(u: UOp) -> UOp | None:
    """The index expression of which integer `u` is the cast, where no step to it wraps."""
    if u.dtype is dt.index:
        return u
    found = _index_modulo(u)
    if found is None or found.min_max is None:
        return None
    lo, hi = found.min_max
    return found if u.dtype.min <= lo and hi <= u.dtype.max else None


def _index_modulo(u: UOp) -> UOp | None:
    """An index expression whose cast to the dtype of `u` is `u`: sums and products commute with it (R05)."""
    if u.op is Op.CONST:
        return number(int(u.arg.value))
    if u.op is Op.CAST:
        return u.src[0] if u.src[0].dtype is dt.index else exact_index(u.src[0]) if u.src[0].dtype in dt.INTS else None
    if u.op in (Op.ADD, Op.SUB, Op.MUL, Op.NEG):
        parts = [_index_modulo(s) for s in u.src]
        return UOp(u.op, tuple(p for p in parts if p is not None)) if None not in parts else None
    return None


# Forms


def _selected(op: Op, value: UOp, conditions: tuple[UOp, ...], r: UOp, simplify: Simplify, depends: Depends) -> Found | None:
    """r is what one of the conditions makes it; the others are asked there."""
    for k, c in enumerate(conditions):
        solved = _solve(c, r, depends) if c.op is Op.CMPEQ else None
        if solved is None:
            continue
        s = simplify(solved.other if solved.factor == 1 else UOp(Op.IDIV, (solved.other, number(solved.factor))))
        if not _is_narrow(s):
            continue
        gates = [UOp(Op.CMPGE, (s, ZERO)), UOp(Op.CMPLT, (s, r.src[0]))]
        if abs(solved.factor) != 1:
            gates.append(UOp(Op.CMPEQ, (UOp(Op.MOD, (solved.other, number(solved.factor))), ZERO)))
        others = (*conditions[:k], *conditions[k + 1 :])
        at = {r: s}
        chosen = _gated(op, tuple(substitute(o, at) for o in others), substitute(value, at))
        return Found(_gated(op, tuple(gates), chosen), s)
    return None


def _counted(op: Op, value: UOp, conditions: tuple[UOp, ...], r: UOp, simplify: Simplify, depends: Depends) -> Found | None:
    """The value, as often as r is within bounds."""
    lo, hi = ZERO, r.src[0]
    for c in conditions:
        bound = _bound(c, r, depends)
        if bound is None:
            return None
        below, at = bound
        if below:
            lo = simplify(UOp(Op.MAX, (lo, at)))
        else:
            hi = simplify(_least(hi, at, simplify))
    many = simplify(UOp(Op.SUB, (hi, lo)))
    if not _is_narrow(many):
        return None
    if op is Op.MAX:
        return Found(_gated(op, (UOp(Op.CMPGE, (many, ONE)),), value))
    return Found(_times(value, simplify(UOp(Op.MAX, (many, ZERO)))))


def _least(a: UOp, b: UOp, simplify: Simplify) -> UOp:
    decided = simplify(UOp(Op.CMPLT, (a, b)))
    if decided.op is Op.CONST:
        return a if decided.arg.value else b
    return UOp(Op.WHERE, (decided, a, b))


def _bound(c: UOp, r: UOp, depends: Depends) -> tuple[bool, UOp] | None:
    """(True, lo) for a condition r >= lo, (False, hi) for r < hi."""
    solved = _solve(c, r, depends) if c.op in _BOUNDS else None
    if solved is None:
        return None
    greater, strict = _BOUNDS[c.op]
    k, other = solved.factor, solved.other
    if not _is_narrow(other, abs(k)):
        other = _cut(other, k, r)
    greater ^= solved.flipped
    if k < 0:
        k, other, greater = -k, UOp(Op.NEG, (other,)), not greater
    # k r >= x is r >= ceil(x / k), k r > x is r >= floor(x / k) + 1; of the other two, the negation
    if greater != strict:
        ceiling = other if k == 1 else UOp(Op.IDIV, (UOp(Op.ADD, (other, number(k - 1))), number(k)))
        return greater, ceiling
    floor = other if k == 1 else UOp(Op.IDIV, (other, number(k)))
    return greater, UOp(Op.ADD, (floor, ONE))


def _cut(x: UOp, k: int, r: UOp) -> UOp:
    """What compares with k r, for every value of `r`, as `x` does, and is hardly greater."""
    end = UOp(Op.MUL, (r.src[0], number(k)))
    return between(x, *((number(-1), end) if k > 0 else (end, ONE)))


def _times(value: UOp, many: UOp) -> UOp:
    """The sum of `many` equal values."""
    d = value.dtype
    if not d.is_float:
        return UOp(Op.MUL, (value, B.cast(many, d)))
    wide: DType = dt.float32 if d in SMALL else d
    product = B.cast(UOp(Op.MUL, (B.cast(value, wide), B.cast(many, wide))), d)
    return UOp(Op.WHERE, (UOp(Op.CMPGE, (many, ONE)), product, B.const(0, d)))
