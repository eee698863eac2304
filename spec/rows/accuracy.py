"""The accuracy of each elementwise op on floats at the strict level: one right result, or several.

The table restates R11 (Max), R15 and R16 (rounding), R17 and R18 (approximations) for the tools that need it, so the
specification's hash, which covers these rulings, leaves it out.
"""

from __future__ import annotations

from enum import Enum

from uops.spec.ir.ops import ALU, BITWISE, COMPARE, DIVISION, SHIFT, Op


class Accuracy(Enum):
    """The right results of an op on floats whose operands are known."""

    EXACT = "one result, which needs no rounding"
    ROUNDED = "one result: the exact one, rounded once"
    CHOICE = "one of several results, as either of two zeros"
    APPROXIMATED = "any result within a bound in ulps"


#: Elementwise op -> its accuracy; integers and bools have one result for every op.
ACCURACY: dict[Op, Accuracy] = {
    **dict.fromkeys(COMPARE | BITWISE | SHIFT | DIVISION, Accuracy.EXACT),
    **dict.fromkeys((Op.TRUNC, Op.NEG, Op.NOT, Op.WHERE, Op.THREEFRY), Accuracy.EXACT),
    **dict.fromkeys((Op.CAST, Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.RECIP, Op.SQRT, Op.MULACC), Accuracy.ROUNDED),
    **dict.fromkeys((Op.MAX, Op.MIN), Accuracy.CHOICE),
    **dict.fromkeys((Op.EXP2, Op.LOG2, Op.SIN, Op.POW), Accuracy.APPROXIMATED),
}

#: Ops on floats with several right results, even of operands that are known.
SEVERAL_RESULTS = frozenset(op for op, a in ACCURACY.items() if a in (Accuracy.CHOICE, Accuracy.APPROXIMATED))

assert ACCURACY.keys() == ALU, f"spec/rows/accuracy.py: say how exact {ALU ^ ACCURACY.keys()} is"
