"""Sums of coefficient times term: the canonical form of index arithmetic.

Index values are mathematical integers (R08), so that Add, Sub, Neg and Mul by a constant are linear algebra without a condition.
"""

from __future__ import annotations

from typing import NamedTuple

from uops.spec.errors import CompileError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op


class Sum(NamedTuple):
    """constant + sum of coefficient * term; terms in order of first use, no coefficient is 0."""

    terms: dict[UOp, int]
    constant: int


def linear(root: UOp) -> Sum:
    """The sum that an index node spells; whatever is neither Add, Sub, Neg, Mul by a constant nor Const is one term."""
    if root.op not in _LINEAR:
        return Sum({root: 1}, 0)
    terms: dict[UOp, int] = {}
    constant = 0
    stack = [(root, 1)]
    while stack:
        u, k = stack.pop()
        op = u.op
        if op not in _LINEAR:
            terms[u] = terms.get(u, 0) + k
        elif op is _CONST:
            constant += k * u.arg.value
        elif op is _ADD:
            a, b = u.src
            stack += ((b, k), (a, k))
        elif op is Op.SUB:
            a, b = u.src
            stack += ((b, -k), (a, k))
        elif op is Op.NEG:
            stack.append((u.src[0], -k))
        else:
            a, b = u.src
            if b.op is _CONST:
                stack.append((a, k * b.arg.value))
            elif a.op is _CONST:
                stack.append((b, k * a.arg.value))
            else:
                terms[u] = terms.get(u, 0) + k
    return Sum(terms if 0 not in terms.values() else {t: k for t, k in terms.items() if k}, constant)


_CONST, _ADD = Op.CONST, Op.ADD
_LINEAR = frozenset({Op.CONST, Op.ADD, Op.SUB, Op.NEG, Op.MUL})


def constants_out(root: UOp) -> UOp:
    """A sum with products of sums left as they are, but for their constants: (x + y + 2) * 3 + z is (x + y) * 3 + z + 6. That is
    shorter than the canonical form where such a product would be multiplied out."""
    found: dict[UOp, tuple[UOp | None, int]] = {}  # what is left of a node, and its constant
    for u in toposort(root, gate=lambda u: u.op in (Op.ADD, Op.MUL)):
        if u.op is Op.CONST:
            found[u] = None, u.arg.value
        elif u.op is Op.ADD:
            (a, m), (b, n) = found[u.src[0]], found[u.src[1]]
            found[u] = UOp(Op.ADD, (a, b)) if a is not None and b is not None else a or b, m + n
        elif u.op is Op.MUL and u.src[1].op is Op.CONST:
            (a, m), k = found[u.src[0]], u.src[1].arg.value
            found[u] = None if a is None else _times(a, k), m * k
        else:
            found[u] = u, 0
    rest, constant = found[root]
    return number(constant) if rest is None else rest if not constant else UOp(Op.ADD, (rest, number(constant)))


def _times(u: UOp, k: int) -> UOp:
    if u.op is Op.MUL and u.src[1].op is Op.CONST:
        u, k = u.src[0], k * u.src[1].arg.value
    return UOp(Op.MUL, (u, number(k)))


def same_sum(a: UOp, b: UOp) -> bool:
    """Whether two index nodes are the same sum, hence equal."""
    x, y = linear(a), linear(b)
    return x.constant == y.constant and x.terms == y.terms


def build(s: Sum) -> UOp:
    """A node for a sum: terms left to right, the constant last."""
    parts = [t if k == 1 else UOp(Op.MUL, (t, number(k))) for t, k in s.terms.items()]
    if s.constant or not parts:
        parts.append(number(s.constant))
    total = parts[0]
    for p in parts[1:]:
        total = UOp(Op.ADD, (total, p))
    return total


def between(x: UOp, low: UOp, high: UOp) -> UOp:
    """`x`, but at least `low` and then at most `high`, so that min_max sees both bounds: of integers that can be negated."""
    above = UOp(Op.NEG, (UOp(Op.MAX, (x, low)),))
    return UOp(Op.NEG, (UOp(Op.MAX, (above, UOp(Op.NEG, (high,)))),))


def number(k: int) -> UOp:
    """An index constant. Raises CompileError for one that is too wide (R08)."""
    if k.bit_length() > dt.INDEX_BITS:
        raise CompileError(f"R08 (index dtype): index arithmetic makes a constant of more than {dt.INDEX_BITS} bits")
    return B.index(k)
