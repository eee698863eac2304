"""The engine: matching, fixpoints, memory, termination, the log; and linear forms."""

import pytest

from uops.compiler.ir.affine import are_equal_sums, build_affine_sum, extract_affine_sum
from uops.compiler.rewrite.pattern import cst, match_pattern_and_bind, operation, var
from uops.compiler.rewrite.rewriter import Rewriter, weighted_tree_cost
from uops.compiler.rewrite.rule import Rule, is_condition_proved
from uops.compiler.rewrite.rules import VALUES
from uops.spec.errors import Crash
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

x, y = var("x"), var("y")
I32 = b.param(0, (), dt.int32)
J32 = b.param(1, (), dt.int32)


def test_a_variable_that_stands_twice_matches_one_node_only() -> None:
    assert match_pattern_and_bind(x - x, b.sub(I32, I32), {})
    assert not match_pattern_and_bind(x - x, b.sub(I32, J32), {})


def test_a_literal_matches_by_bits_and_bool_is_no_integer() -> None:
    zero = UOp(Op.ADD, (b.param(0, (), dt.float32), b.const(-0.0)))
    assert match_pattern_and_bind(x + -0.0, zero, {})
    assert not match_pattern_and_bind(x + 0.0, zero, {})
    assert not match_pattern_and_bind(x & True, b.and_(I32, b.const(1)), {})


def test_a_constant_variable_matches_constants_only() -> None:
    assert match_pattern_and_bind(x + cst("c"), b.add(I32, 3), {})
    assert not match_pattern_and_bind(x + cst("c"), b.add(I32, J32), {})


def test_rewriting_goes_on_until_no_rule_fits() -> None:
    e = b.add(b.mul(b.add(I32, 0), 1), b.sub(J32, J32))
    assert Rewriter(VALUES)(e) is I32


def test_a_node_is_rewritten_once_for_the_life_of_a_rewriter() -> None:
    calls = []

    def note(found: object) -> dict[str, UOp]:
        calls.append(found)
        return {}

    rewriter = Rewriter((Rule("add-zero", x + 0, x, witness=note),))
    inner = b.add(I32, 0)
    rewriter(b.mul(inner, inner))
    rewriter(b.mul(inner, J32))
    assert len(calls) == 1


def test_depth_is_not_limited_by_the_stack() -> None:
    e = I32
    for _ in range(20_000):
        e = UOp(Op.NEG, (UOp(Op.ADD, (e, b.const(0))),))
    assert Rewriter(VALUES)(e) is I32


def test_a_rule_that_does_not_descend_is_found_by_the_check() -> None:
    grows = Rule("grow", -x, operation(Op.NEG, operation(Op.NEG, -x)))
    with pytest.raises(Crash, match="does not descend"):
        Rewriter((grows,), check=True)(b.neg(I32))


def test_a_pattern_that_is_a_variable_is_no_left_side() -> None:
    with pytest.raises(Crash, match="matches every node"):
        Rewriter((Rule("anything", x, x),))


def test_the_log_names_rule_binding_before_and_after() -> None:
    log: list[object] = []
    rewriter = Rewriter(VALUES, log=log)  # type: ignore[arg-type]
    before = b.add(I32, 0)
    assert rewriter(before) is I32
    (step,) = log
    assert (step.rule, step.before, step.after, step.binding["x"]) == ("add-zero", before, I32, I32)  # type: ignore[attr-defined]


def test_a_condition_holds_only_where_min_max_proves_it() -> None:
    i, n = b.range_(4, 0), b.variable("n", 0, 9)
    v = var("i", (dt.index,))
    assert is_condition_proved((v >= 0) & (v < 4), {"i": i})
    assert not is_condition_proved(v < 4, {"i": n})


def test_cost_counts_a_dividend_twice_and_a_constant_on_the_left() -> None:
    i = b.range_(4, 0)
    assert weighted_tree_cost(UOp(Op.ADD, (b.index(1), i))) == weighted_tree_cost(UOp(Op.ADD, (i, b.index(1)))) + 1
    outside = UOp(Op.ADD, (UOp(Op.IDIV, (i, b.index(2))), i))
    inside = UOp(Op.IDIV, (UOp(Op.ADD, (i, i)), b.index(2)))
    assert weighted_tree_cost(outside) < weighted_tree_cost(inside)


def test_sums_with_the_same_terms_are_the_same() -> None:
    i, j = b.range_(4, 0), b.range_(4, 1)
    a = b.add(b.mul(i, 2), b.sub(j, b.neg(i)))
    assert are_equal_sums(a, b.add(j, b.mul(i, 3)))
    assert not are_equal_sums(a, b.add(j, b.mul(i, 4)))
    assert extract_affine_sum(b.sub(a, a)).terms == {}
    assert extract_affine_sum(build_affine_sum(extract_affine_sum(a))) == extract_affine_sum(a)
