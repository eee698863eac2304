"""Constants: an op of constants is the constant it evaluates to, and constants stand on the right.

The evaluation is the witness, found by `uops.compiler.rewrite.fold`; the condition says what it must be. For floats the folder
rounds once (R16).
"""

from __future__ import annotations

import math

from uops.compiler.rewrite.fold import fold
from uops.compiler.rewrite.pattern import (
    BOOL,
    VALUES,
    Binding,
    Pattern,
    TypeVar,
    bitcast,
    cast,
    cst,
    instantiate,
    operation,
    var,
)
from uops.compiler.rewrite.rule import Rule, Witness
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ConstArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import BITWISE, COMPARE, Op

_a, _b, _c, _k = (cst(n) for n in "abck")
_ARITY = {
    **dict.fromkeys((Op.NEG, Op.NOT, Op.TRUNC, Op.RECIP, Op.SQRT), 1),
    **dict.fromkeys(
        (
            Op.ADD,
            Op.SUB,
            Op.MUL,
            Op.MAX,
            Op.IDIV,
            Op.MOD,
            Op.SHL,
            Op.SHR,
            Op.DIV,
            *sorted(BITWISE | COMPARE, key=lambda o: o.value),
        ),
        2,
    ),
    **dict.fromkeys((Op.WHERE, Op.MULACC), 3),
}


class Evaluation:
    """Proposes `k`, the value of the pattern `evaluates` under a binding of its constants. That it is the value is the folder's
    word, and what a proof of the rule assumes."""

    __slots__ = ("evaluates",)

    def __init__(self, evaluates: Pattern) -> None:
        self.evaluates = evaluates

    def __call__(self, found: Binding) -> dict[str, UOp] | None:
        node = instantiate(self.evaluates, found)
        return constant(fold(node), node.dtype)


def constant(value: bool | int | float | None, d: DType) -> dict[str, UOp] | None:
    """The witness `k` for a folded value; none for a NaN, whose class is one but whose bits a constant would fix."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return {"k": UOp(Op.CONST, (), ConstArg(value, d))}


def _fold(op: Op, arity: int) -> Rule:
    lhs = operation(op, *(_a, _b, _c)[:arity])
    return _fold_to(f"fold-{op.name.lower()}", lhs)


def _fold_to(name: str, lhs: Pattern) -> Rule:
    return Rule(name, lhs, _k, witness=Evaluation(lhs))


# op(constants) -> constant
FOLDS = (
    *(_fold(op, arity) for op, arity in _ARITY.items()),
    _fold_to("fold-cast", cast(_a, TypeVar("T"))),
    _fold_to("fold-bitcast", bitcast(_a, TypeVar("T"))),
)

_x = var("x")
_COMMUTATIVE = (Op.ADD, Op.MUL, Op.MAX, Op.AND, Op.OR, Op.XOR, Op.CMPNE, Op.CMPEQ)


def _no_constant(name: str) -> Witness:
    """The other operand is no constant (else `fold` is the rule, and swapping would not end)."""

    def propose(found: Binding) -> dict[str, UOp] | None:
        node = found[name]
        return {} if isinstance(node, UOp) and node.op is not Op.CONST else None

    return propose


# a op x -> x op a, for commutative ops: every other rule may look for constants on the right only
SWAPS = tuple(
    Rule(f"constant-right-{op.name.lower()}", operation(op, _a, _x), operation(op, _x, _a), witness=_no_constant("x"))
    for op in _COMMUTATIVE
)


def _one_value(op: Op) -> Witness:
    def propose(found: Binding) -> dict[str, UOp] | None:
        i, j = found["i"], found["j"]
        assert isinstance(i, UOp) and isinstance(j, UOp)
        bounds = UOp(op, (i, j)).min_max
        if bounds is None or bounds[0] != bounds[1]:
            return None
        return {"k": UOp(Op.CONST, (), ConstArg(bool(bounds[0]), dt.bool_))}

    return propose


def _decide(op: Op) -> Rule:
    i, j = var("i", VALUES), var("j", VALUES)
    k = cst("k", BOOL)
    return Rule(
        f"decide-{op.name.lower()}",
        operation(op, i, j),
        k,
        witness=_one_value(op),
        when=operation(Op.CMPEQ, operation(op, i, j), k),
    )


# i < j -> true or false where min_max decides it (floats only as R71 allows, which is min_max's own duty)
DECIDED = tuple(_decide(op) for op in (Op.CMPLT, Op.CMPNE, Op.CMPGT, Op.CMPGE, Op.CMPLE, Op.CMPEQ))

RULES = (*FOLDS, *SWAPS, *DECIDED)
