"""Costs of each elementwise op to the compiler: the one table, for the cost order of rewriting and for realisation."""

from __future__ import annotations

from typing import NamedTuple

from uops.spec.ir.ops import ALU, Op


class OpCost(NamedTuple):
    """The costs of one op.

    - `weight`: in the order of rewriting, where a leaf weighs 1. A rule must lower the weight of what it rewrites.
    - `work`: machine work for one element, in units of one simple vector operation.
    """

    weight: int
    work: int


# A division is expensive in the order, and the more so the more it divides, so that terms leave it. A remainder is more
# expensive, so that it is taken last. A float quotient costs more than a product with a reciprocal.
# fmt: off
#: Elementwise op -> its costs.
COSTS: dict[Op, OpCost] = {
    Op.ADD:   OpCost(4, 1),    Op.SUB:   OpCost(6, 1),    Op.NEG:    OpCost(4, 1),   Op.MUL:    OpCost(4, 1),
    Op.MAX:   OpCost(4, 1),    Op.MIN:   OpCost(4, 1),    Op.MULACC: OpCost(4, 1),   Op.TRUNC:  OpCost(4, 1),
    Op.IDIV:  OpCost(40, 12),  Op.MOD:   OpCost(41, 12),  Op.DIV:    OpCost(10, 5),  Op.RECIP:  OpCost(5, 5),
    Op.AND:   OpCost(4, 1),    Op.OR:    OpCost(4, 1),    Op.XOR:    OpCost(4, 1),   Op.NOT:    OpCost(4, 1),
    Op.SHL:   OpCost(4, 1),    Op.SHR:   OpCost(4, 1),    Op.WHERE:  OpCost(6, 1),   Op.CAST:   OpCost(4, 1),
    Op.CMPLT: OpCost(4, 1),    Op.CMPNE: OpCost(4, 1),    Op.CMPEQ:  OpCost(4, 1),
    Op.CMPGT: OpCost(5, 1),    Op.CMPGE: OpCost(5, 1),    Op.CMPLE:  OpCost(5, 1),
    Op.SQRT:  OpCost(8, 6),    Op.EXP2:  OpCost(12, 15),  Op.LOG2:   OpCost(12, 20), Op.SIN:    OpCost(12, 30),
    Op.POW:   OpCost(40, 60),  Op.THREEFRY: OpCost(4, 80),
}
# fmt: on

#: Weight of every other op with sources.
STRUCTURE_WEIGHT = 4
#: Op with sources -> its weight in the order of rewriting.
WEIGHT: dict[Op, int] = {**dict.fromkeys(Op, STRUCTURE_WEIGHT), **{op: cost.weight for op, cost in COSTS.items()}}

assert COSTS.keys() == ALU, f"compiler/rewrite/costs.py: add the costs of {ALU - COSTS.keys()}"
