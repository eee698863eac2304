"""Sums of coefficient times term: the canonical form of index arithmetic.

Index values are mathematical integers (R08), so Add, Sub, Neg and Mul by a constant are linear algebra without a condition.
"""

from __future__ import annotations

from typing import NamedTuple

from uops.spec.errors import CompileError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op


class AffineSum(NamedTuple):
    """constant + sum of coefficient * term; the terms are in order of first use, and no coefficient is 0."""

    terms: dict[UOp, int]
    constant: int


def extract_affine_sum(root: UOp) -> AffineSum:
    """Return the sum that an index node spells; any other op than Add, Sub, Neg, Mul by a constant and Const is one term."""
    if root.op not in _LINEAR:
        return AffineSum({root: 1}, 0)
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
            (a,) = u.src
            stack.append((a, -k))
        else:
            a, b = u.src
            if b.op is _CONST:
                stack.append((a, k * b.arg.value))
            elif a.op is _CONST:
                stack.append((b, k * a.arg.value))
            else:
                terms[u] = terms.get(u, 0) + k
    return AffineSum(terms if 0 not in terms.values() else {t: k for t, k in terms.items() if k}, constant)


_CONST, _ADD = Op.CONST, Op.ADD
#: Ops that may be part of a sum.
_LINEAR = frozenset({Op.CONST, Op.ADD, Op.SUB, Op.NEG, Op.MUL})


def hoist_constant_terms(root: UOp) -> UOp:
    """Move the constants of a sum outward, through products of sums: (x + y + 2) * 3 + z is (x + y) * 3 + z + 6.

    The products stay, so the result is shorter than the canonical form, which would multiply them out.
    """
    split: dict[UOp, tuple[UOp | None, int]] = {}  # node -> its rest and its constant
    for u in toposort(root, gate=lambda u: u.op in (Op.ADD, Op.MUL)):
        if u.op is Op.CONST:
            split[u] = None, u.arg.value
        elif u.op is Op.ADD:
            (a, m), (b, n) = split[u.lhs], split[u.rhs]
            split[u] = UOp(Op.ADD, (a, b)) if a is not None and b is not None else a or b, m + n
        elif u.op is Op.MUL and u.rhs.op is Op.CONST:
            (a, m), k = split[u.lhs], u.rhs.arg.value
            split[u] = None if a is None else _multiply_by_constant(a, k), m * k
        else:
            split[u] = u, 0
    rest, constant = split[root]
    return index_constant(constant) if rest is None else rest if not constant else UOp(Op.ADD, (rest, index_constant(constant)))


def _multiply_by_constant(u: UOp, k: int) -> UOp:
    if u.op is Op.MUL and u.rhs.op is Op.CONST:
        u, k = u.lhs, k * u.rhs.arg.value
    return UOp(Op.MUL, (u, index_constant(k)))


def are_equal_sums(a: UOp, b: UOp) -> bool:
    """Return True if two index nodes are the same sum, hence equal."""
    x, y = extract_affine_sum(a), extract_affine_sum(b)
    return x.constant == y.constant and x.terms == y.terms


def build_affine_sum(s: AffineSum) -> UOp:
    """Build a node for a sum: terms left to right, the constant last."""
    parts = [t if k == 1 else UOp(Op.MUL, (t, index_constant(k))) for t, k in s.terms.items()]
    if s.constant or not parts:
        parts.append(index_constant(s.constant))
    total = parts[0]
    for p in parts[1:]:
        total = UOp(Op.ADD, (total, p))
    return total


def clamp_index(x: UOp, low: UOp, high: UOp) -> UOp:
    """Return `x` raised to `low` and then lowered to `high`, of integers above the least of a signed dtype.

    min_max of the result has both bounds.
    """
    mirrored = _mirror(UOp(Op.MAX, (x, low)))
    return _mirror(UOp(Op.MAX, (mirrored, _mirror(high))))


def _mirror(x: UOp) -> UOp:
    """Return -x, or the greatest unsigned integer less x. Both reverse the order and do not wrap."""
    return UOp(Op.NEG, (x,)) if x.dtype.is_signed else UOp(Op.SUB, (B.const(x.dtype.max, x.dtype), x))


def index_constant(k: int) -> UOp:
    """Return an index constant. Raises CompileError for one that is too wide (R08)."""
    if k.bit_length() > dt.INDEX_BITS:
        bits = k.bit_length()
        raise CompileError(f"R08 (index dtype): index arithmetic needs constants of at most {dt.INDEX_BITS} bits, got {bits}")
    return B.index_of_int(k)
