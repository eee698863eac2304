"""Every rule applies to some graph: made from its left side, with constants that meet its condition."""

import itertools
from collections import Counter

import pytest
from digits import digits

from uops.compiler.prove.counterexample import instantiate_typed_pattern
from uops.compiler.prove.typings import RuleTyping, enumerate_rule_typings
from uops.compiler.rewrite.costs import WEIGHT
from uops.compiler.rewrite.pattern import Pattern, variables
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rule import Rule
from uops.compiler.rewrite.rules import THEMES, further
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

RULES = [rule for rules in (THEMES | further.THEMES).values() for rule in rules]
COMMUTES = frozenset({Op.ADD, Op.MUL, Op.MAX, Op.AND, Op.OR, Op.XOR, Op.CMPNE, Op.CMPEQ})
_NUMBERS = (2, 3, 4, 6, 12, 1, 5)


def leaves(v: Pattern, d: DType, slot: int) -> list[UOp]:
    """Nodes that a variable of this dtype may stand for: constants, or values with bounds."""
    if v.constant:
        return [b.const(n, d) for n in ((True, False) if d is dt.bool_ else _NUMBERS)]
    if d is not dt.index:
        return [b.param(slot, (), d)]
    r, s = b.range_(3, 10 + slot), b.range_(2, 20 + slot)
    return [
        b.variable(f"v{slot}", 0, 40),
        UOp(Op.ADD, (UOp(Op.MUL, (r, b.index(6))), s)),
        UOp(Op.ADD, (UOp(Op.MUL, (r, b.index(2))), UOp(Op.MUL, (r, b.index(3))))),
        s,
        b.variable(f"big{slot}", 50, 60),
        UOp(Op.ADD, (UOp(Op.MUL, (r, b.index(4))), UOp(Op.MUL, (s, b.index(6))))),
        *digits(),
    ]


def fires_on(rule: Rule) -> UOp | None:
    """A graph to which the rule applies."""
    for a in enumerate_rule_typings(rule):
        found = _fires(rule, a)
        if found is not None:
            return found
    return None


def _fires(rule: Rule, a: RuleTyping) -> UOp | None:
    names = list(variables(rule.lhs))
    pools = [leaves(variables(rule.lhs)[n], a.types[n], slot) for slot, n in enumerate(names)]
    for chosen in itertools.islice(itertools.product(*pools), 400):
        graph = instantiate_typed_pattern(a.lhs, dict(zip(names, chosen, strict=True)))
        if rule.apply(graph) is not None:
            return graph
    return None


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_a_rule_fires(rule: Rule) -> None:
    graph = fires_on(rule)
    assert graph is not None, f"{rule} applies to nothing"
    assert Rewriter((rule,), check=True)(graph) is not graph


# Termination: not only on these graphs does a rule lower the cost

Cost = Counter[str]


def least_and_most(p: Pattern) -> tuple[Cost, Cost]:
    """What a pattern costs, a sum over its variables (under "" the rest): at least, and at most, as a constant may stand left."""
    if p.name is not None:
        return (Counter({"": 1}),) * 2 if p.constant else (Counter({p.name: 1}),) * 2
    if p.op is None:
        return (Counter({"": 1}),) * 2
    low, high = Counter[str](), Counter[str]()
    for k, s in enumerate(p.src):
        below, above = least_and_most(s)
        for _ in range(2 if k == 0 and p.op in (Op.IDIV, Op.MOD) else 1):
            low, high = low + below, high + above
    weight = WEIGHT[p.op]
    may_be_misplaced = p.op in COMMUTES and (p.src[0].name is not None or p.src[0].op is None)
    is_misplaced = p.op in COMMUTES and _is_constant(p.src[0]) and p.src[1].op is not None
    return low + Counter({"": weight + is_misplaced}), high + Counter({"": weight + may_be_misplaced})


def _is_constant(p: Pattern) -> bool:
    return p.constant or (p.op is None and p.name is None)


@pytest.mark.parametrize("rule", [r for r in RULES if r.witness is None or r.evaluated_pattern is not None], ids=lambda r: r.name)
def test_a_rule_without_a_finder_lowers_the_cost_of_whatever_it_meets(rule: Rule) -> None:
    before, _ = least_and_most(rule.lhs)
    _, after = least_and_most(rule.rhs)
    assert all(after[n] <= before[n] for n in {*before, *after} - {""}), (before, after)
    assert sum(after.values()) < sum(before.values())  # every variable costs 1 at least
