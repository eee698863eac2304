"""Vectors of positions that are neighbours, so that a load or store of them can be one access.

Takes: the position of an Index, a vector. Gives: the first of its positions, if the others follow it one by one; with or without a
proof that it is a multiple of their number.
"""

from __future__ import annotations

import math

from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def is_multiple_of(u: UOp, n: int) -> bool:
    """Return True if an integer expression is known to be a multiple of `n`, a power of two that divides its wrapping."""
    if n == 1:
        return True
    match u.op:
        case Op.CONST:
            return int(u.arg.value) % n == 0
        case Op.CAST:
            return u.operand.dtype.is_integer and is_multiple_of(u.operand, n)
        case Op.ADD | Op.SUB:
            return is_multiple_of(u.lhs, n) and is_multiple_of(u.rhs, n)
        case Op.MUL:
            factors = [math.gcd(int(s.arg.value), n) if s.op is Op.CONST else 1 for s in u.src]
            known = math.prod(factors)
            return known % n == 0 or any(is_multiple_of(s, n // math.gcd(known, n)) for s in u.src if s.op is not Op.CONST)
        case _:
            return False


def first_of_run(position: UOp, count: int) -> UOp | None:
    """Return the first of `count` neighbouring positions, or None if they are no neighbours."""
    if position.op is Op.ADD:
        for base, steps in (position.src, position.src[::-1]):
            offsets = steps.constants_of_stack
            if base.op is Op.STACK and offsets is not None and [int(k) for k in offsets] == list(range(count)):
                first, *others = base.elements
                if all(x is first for x in others):
                    return first
    return None


def first_of_aligned_run(position: UOp, count: int) -> UOp | None:
    """Return the first of `count` neighbouring positions if it is a multiple of their number, else None."""
    first = first_of_run(position, count)
    return first if first is not None and is_multiple_of(first, count) else None
