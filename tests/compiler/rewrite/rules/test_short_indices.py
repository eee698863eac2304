"""Index expressions become short: what each law of divisions is for, as the node that is left."""

import pytest

from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

T, R = b.variable("t", -50, 900), b.range_(6, 0)
N = b.variable("n", 1, 40)
LOOP = b.range_(N, 1)


def alu(op: Op, *src: UOp | int) -> UOp:
    return UOp(op, tuple(b.index(s) if isinstance(s, int) else s for s in src))


def add(x: UOp, y: UOp | int) -> UOp:
    return alu(Op.ADD, x, y)


def mul(x: UOp, y: UOp | int) -> UOp:
    return alu(Op.MUL, x, y)


def div(x: UOp, y: UOp | int) -> UOp:
    return alu(Op.IDIV, x, y)


def mod(x: UOp, y: UOp | int) -> UOp:
    return alu(Op.MOD, x, y)


CASES: dict[str, tuple[UOp, UOp]] = {
    "a quotient and its remainder": (add(mul(div(T, 7), 7), mod(T, 7)), T),
    "multiples of both": (add(add(mul(div(T, 7), 21), R), mul(mod(T, 7), 3)), add(R, mul(T, 3))),
    "a quotient of a quotient": (add(mul(div(T, 21), 7), mod(div(T, 3), 7)), div(T, 3)),
    "two digits": (add(mul(mod(div(T, 7), 3), 7), mod(T, 7)), mod(T, 21)),
    "two digits of a quotient": (add(mul(mod(div(T, 10), 3), 2), mod(div(T, 5), 2)), mod(div(T, 5), 6)),
    "a remainder below a remainder": (mod(add(mod(T, 12), R), 4), mod(add(R, T), 4)),
    "the digit of a remainder": (div(mod(T, 12), 4), mod(div(T, 4), 3)),
    "a wrapped loop that does not wrap": (mod(add(R, 12), 6), R),
    "a loop counted down": (div(add(mul(R, -1), 5), 6), b.index(0)),
    "a quotient plus one": (div(add(div(T, 3), 1), 4), div(add(T, 3), 12)),
    "a padded row": (alu(Op.CMPGE, add(R, -2), 0), alu(Op.CMPGE, R, 2)),
    "whole rows": (alu(Op.CMPLT, add(mul(T, 6), R), 18), alu(Op.CMPLT, T, 3)),
    "a quotient compared": (alu(Op.CMPLT, div(T, 7), 3), alu(Op.CMPLT, T, 21)),
    "a row of variable length": (div(add(mul(T, N), LOOP), N), T),
    "a column of variable length": (mod(add(mul(T, N), LOOP), N), LOOP),
}


def test_a_comparison_with_a_term_without_bounds_is_no_reason_to_fail() -> None:
    number = b.cast(b.param(0, (), dt.float32), dt.index)
    compared = alu(Op.CMPLT, add(mul(number, 2), mul(R, 3)), 10)
    assert Rewriter(INDEXING, check=True)(compared).op is Op.CMPLT


@pytest.mark.parametrize("name", CASES)
def test_what_is_left_is_known(name: str) -> None:
    before, after = CASES[name]
    assert Rewriter(INDEXING, check=True)(before) is after


def test_a_loop_is_below_no_other_bound() -> None:
    other = b.variable("m", 1, 40)
    kept = mod(LOOP, other)
    assert Rewriter(INDEXING)(kept) is kept


def test_a_digit_of_another_number_stays() -> None:
    other = b.variable("other", -50, 900)
    for kept in (add(mul(div(other, 7), 7), mod(T, 7)), add(mul(div(T, 7), 6), mod(T, 7)), add(mul(div(T, 8), 7), mod(T, 7))):
        assert sum(u.op in (Op.IDIV, Op.MOD) for u in toposort(Rewriter(INDEXING)(kept))) == 2
