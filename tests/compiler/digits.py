"""Nodes in which quotients and remainders of one index belong together, for rules that look for both in a sum."""

from uops.spec.ir import build as b
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

T, N, LOOP = b.variable("t", -20, 90), b.variable("n", 1, 30), b.range_(3, 9)


def _times(u: UOp, k: int) -> UOp:
    return UOp(Op.MUL, (u, b.index(k)))


def digits() -> list[UOp]:
    """Parts of T in base 2 and 3, of T // 5 too, products with N, and sums of such a part with something else."""
    found: list[UOp] = []
    for t in (T, b.idiv(T, 5)):
        quotient = b.idiv(T, 2 if t is T else 10)
        found += [b.mod(t, 2), _times(quotient, 2), _times(b.mod(quotient, 3), 2)]
    product = UOp(Op.MUL, (T, N))
    sums = [UOp(Op.ADD, pair) for pair in ((b.mod(T, 12), LOOP), (b.idiv(T, 3), b.index(1)), (product, LOOP))]
    return [*found, *sums, N, b.mod(T, 12)]
