"""Rules of constants: an op of constants is folded, and constants stand on the right.

The folded constant is a witness that `uops.compiler.rewrite.fold` computes. For floats the folder rounds once (R16, rounding).
"""

from __future__ import annotations

from uops.compiler.rewrite.fold import FOLD
from uops.compiler.rewrite.pattern import (
    BOOL,
    COMMUTATIVE,
    VALUES,
    Binding,
    Pattern,
    TypeVar,
    bitcast,
    cast,
    cst,
    operation,
    var,
)
from uops.compiler.rewrite.rule import Rule, Witness
from uops.compiler.rewrite.witness import EvaluationWitness
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ConstArg
from uops.spec.ir.node import UOp
from uops.spec.ir.operands import OPERANDS
from uops.spec.ir.ops import BITWISE, COMPARE, Op

_a, _b, _c, _k = (cst(n) for n in "abck")
#: Ops with a rule that folds them: those of the folder but Cast and Bitcast, in the order of the rules.
_FOLDED = (
    *(Op.NEG, Op.NOT, Op.TRUNC, Op.RECIP, Op.SQRT),
    *(Op.ADD, Op.SUB, Op.MUL, Op.MAX, Op.IDIV, Op.MOD, Op.SHL, Op.SHR, Op.DIV),
    *sorted(BITWISE | COMPARE, key=lambda o: o.value),
    *(Op.WHERE, Op.MULACC),
)
assert {*_FOLDED, Op.CAST, Op.BITCAST} == FOLD.keys(), f"compiler/rewrite/rules/folding.py: add {FOLD.keys() - {*_FOLDED}}"


def _op_fold_rule(op: Op) -> Rule:
    lhs = operation(op, *(_a, _b, _c)[: len(OPERANDS[op].split())])
    return _fold_rule(f"fold-{op.name.lower()}", lhs)


def _fold_rule(name: str, lhs: Pattern) -> Rule:
    return Rule(name, lhs, _k, witness=EvaluationWitness(lhs))


# op(constants) -> constant
FOLDS = (
    *map(_op_fold_rule, _FOLDED),
    _fold_rule("fold-cast", cast(_a, TypeVar("T"))),
    _fold_rule("fold-bitcast", bitcast(_a, TypeVar("T"))),
)

_x = var("x")


def _make_witness_requiring_nonconstant(name: str) -> Witness:
    """Propose nothing further if the variable is no constant. Two constants are folded; swapping them would not terminate."""

    def propose(binding: Binding) -> dict[str, UOp] | None:
        node = binding[name]
        return {} if isinstance(node, UOp) and node.op is not Op.CONST else None

    return propose


# a op x -> x op a for commutative ops, so that all other rules need to match constants on the right only
SWAPS = tuple(
    Rule(
        f"constant-right-{op.name.lower()}",
        operation(op, _a, _x),
        operation(op, _x, _a),
        witness=_make_witness_requiring_nonconstant("x"),
    )
    for op in COMMUTATIVE
)


def _make_decided_comparison_witness(op: Op) -> Witness:
    """Propose the value of a comparison that min_max decides."""

    def propose(binding: Binding) -> dict[str, UOp] | None:
        i, j = binding["i"], binding["j"]
        assert isinstance(i, UOp) and isinstance(j, UOp)
        bounds = UOp(op, (i, j)).min_max
        if bounds is None or bounds[0] != bounds[1]:
            return None
        return {"k": UOp(Op.CONST, (), ConstArg(bool(bounds[0]), dt.bool_))}

    return propose


def _make_decided_comparison_rule(op: Op) -> Rule:
    """Return the rule that replaces a comparison by its value where min_max decides it."""
    i, j = var("i", VALUES), var("j", VALUES)
    k = cst("k", BOOL)
    return Rule(
        f"decide-{op.name.lower()}",
        operation(op, i, j),
        k,
        witness=_make_decided_comparison_witness(op),
        when=operation(Op.CMPEQ, operation(op, i, j), k),
    )


# i < j -> true or false where min_max decides it. For floats min_max claims only what R71 (min_max of floats) allows.
DECIDED = tuple(_make_decided_comparison_rule(op) for op in (Op.CMPLT, Op.CMPNE, Op.CMPGT, Op.CMPGE, Op.CMPLE, Op.CMPEQ))

RULES = (*FOLDS, *SWAPS, *DECIDED)
