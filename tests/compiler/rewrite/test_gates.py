"""Index expressions under gates have their values wherever the gate is true, and gates stay what they are."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uops.compiler.ir.affine import are_equal_sums
from uops.compiler.rewrite.gates import simplify_gate, simplify_under_gate, split_conjuncts
from uops.compiler.rewrite.rewriter import Rewriter, weighted_tree_cost
from uops.compiler.rewrite.rules import INDEXING
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import DIVISION, Op

SIMPLIFY = Rewriter(INDEXING)
EXTENTS = (6, 5, 4)
LOOPS = [b.range_(n, k) for k, n in enumerate(EXTENTS)]
POINTS = dict(zip(LOOPS, np.meshgrid(*map(np.arange, EXTENTS), indexing="ij")))
OUTER, MIDDLE, INNER = LOOPS
FUNCTIONS = {
    Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply, Op.NEG: np.negative, Op.IDIV: np.floor_divide, Op.MOD: np.mod,
    Op.MAX: np.maximum, Op.CMPLT: np.less, Op.CMPLE: np.less_equal, Op.CMPGT: np.greater, Op.CMPGE: np.greater_equal,
    Op.CMPEQ: np.equal, Op.CMPNE: np.not_equal, Op.AND: np.logical_and, Op.OR: np.logical_or, Op.NOT: np.logical_not,
    Op.WHERE: np.where,
}  # fmt: skip


def at_all_points(root: UOp) -> Any:
    """Return the values of an index expression of LOOPS at all of their iterations."""
    values: dict[UOp, Any] = dict(POINTS)
    for u in toposort(root):
        if u.op is Op.CONST:
            values[u] = np.array(u.arg.value)
        elif u not in values:
            values[u] = FUNCTIONS[u.op](*[values[s] for s in u.src])
    return np.broadcast_to(values[root], EXTENTS)


def divisions(*roots: UOp) -> int:
    return sum(u.op in DIVISION for u in toposort(*roots))


def both(*conjuncts: UOp) -> UOp:
    total, *rest = conjuncts
    for c in rest:
        total = b.and_(total, c)
    return total


def sum_of(factors: Sequence[int], constant: int = 0) -> UOp:
    total = b.index(constant)
    for r, k in zip(LOOPS, factors):
        total = b.add(total, b.mul(r, k))
    return total


FLAT = sum_of((20, 4, 1))


@pytest.mark.parametrize(
    ("index", "gate", "expected"),
    [
        # the sum is below the modulus
        (b.mod(sum_of((20, 4, 1)), 60), b.lt(sum_of((20, 4, 1)), 60), FLAT),
        # all of it is in one period
        (b.mod(FLAT, 60), both(b.ge(FLAT, 60), b.lt(FLAT, 100)), b.sub(FLAT, 60)),
        # a term of the bounded sum has bounds, too
        (b.idiv(OUTER, 3), b.lt(FLAT, 60), b.index(0)),
        # a multiple of the bounded sum is part of the dividend
        (b.mod(b.add(b.mul(sum_of((0, 4, 1)), 2), 1), 24), b.lt(sum_of((0, 4, 1)), 12), sum_of((0, 8, 2), 1)),
        # the bounds of the quotient decide the remainder around it
        (b.mod(b.idiv(FLAT, 6), 10), b.lt(FLAT, 60), b.idiv(FLAT, 6)),
        # a bound on a remainder
        (b.idiv(b.mod(FLAT, 7), 3), b.lt(b.mod(FLAT, 7), 3), b.index(0)),
        # an equality
        (b.mod(FLAT, 7), b.eq(FLAT, 17), b.index(3)),
        # a difference that the gate bounds is part of the dividend, and the rest of it are multiples of the divisor
        (b.idiv(sum_of((7, 1)), 8), b.ge(b.sub(MIDDLE, OUTER), 0), OUTER),
        (b.mod(sum_of((7, 1)), 8), b.ge(b.sub(MIDDLE, OUTER), 0), b.sub(MIDDLE, OUTER)),
        (b.idiv(sum_of((-7, -1)), 8), b.ge(b.sub(MIDDLE, OUTER), 3), sum_of((-1,), -1)),
        (b.idiv(sum_of((15, 0, 1), 3), 16), both(b.ge(b.sub(INNER, OUTER), 1), b.lt(INNER, 9)), OUTER),
    ],
)  # fmt: skip
def test_what_a_gate_decides_is_not_computed(index: UOp, gate: UOp, expected: UOp) -> None:
    shorter = simplify_under_gate(SIMPLIFY(index), SIMPLIFY(gate), SIMPLIFY)
    assert are_equal_sums(shorter, SIMPLIFY(expected))
    inside = at_all_points(gate)
    assert inside.any() and np.array_equal(at_all_points(shorter)[inside], at_all_points(index)[inside])


@pytest.mark.parametrize("d", range(1, 11))
@pytest.mark.parametrize("constant", [-3, 0, 2])
def test_a_remainder_that_is_compared_is_a_difference_where_that_is_small(d: int, constant: int) -> None:
    """A row of 11 that begins one later than the one before: 10x + y by 11 is y - x, or too large."""
    compared = b.lt(b.mod(sum_of((10, 1), constant), 11), d)
    shorter = SIMPLIFY(compared)
    np.testing.assert_array_equal(at_all_points(shorter), at_all_points(compared))
    assert (divisions(shorter) == 0) == (-5 + constant >= d - 11)


def test_a_gate_that_says_nothing_of_an_index_leaves_it() -> None:
    index = SIMPLIFY(b.mod(FLAT, 60))
    for gate in (b.ge(FLAT, 1), b.lt(FLAT, 61), b.lt(INNER, 3), b.ne(FLAT, 70)):
        assert simplify_under_gate(index, SIMPLIFY(gate), SIMPLIFY) is index


def test_a_gate_that_is_never_true_is_no_reason_to_fail() -> None:
    gate = both(b.lt(FLAT, 3), b.ge(FLAT, 5))
    simplify_under_gate(SIMPLIFY(b.mod(FLAT, 60)), gate, SIMPLIFY)
    assert not at_all_points(simplify_gate(gate, SIMPLIFY)).any()


def test_conjuncts_simplify_each_other() -> None:
    gate = SIMPLIFY(both(b.lt(FLAT, 60), b.lt(b.mod(b.idiv(FLAT, 6), 10), 8), b.lt(OUTER, 4)))
    shorter = simplify_gate(gate, SIMPLIFY)
    assert np.array_equal(at_all_points(shorter), at_all_points(gate))
    assert divisions(gate) == 2 and divisions(shorter) == 0
    assert len(list(split_conjuncts(shorter))) == 1  # FLAT < 48 implies the others


def test_a_gate_may_bound_a_term_without_bounds() -> None:
    number = b.cast(b.param(0, (), dt.float32), dt.index)
    gate = SIMPLIFY(both(b.ge(number, 0), b.lt(b.add(b.mul(number, 2), INNER), 10)))
    assert simplify_under_gate(b.idiv(number, 5), gate, SIMPLIFY) is b.index(0)


def test_a_users_variable_of_the_same_name_stays() -> None:
    variable = b.variable("fact 0", 0, 59)
    index = SIMPLIFY(b.add(b.mod(FLAT, 60), variable))
    shorter = simplify_under_gate(index, b.lt(FLAT, 60), SIMPLIFY)
    assert are_equal_sums(shorter, b.add(FLAT, variable))


def test_a_quotient_without_a_remainder_is_multiplied_out() -> None:
    """Taps of a stride: `OUTER - INNER` is even, so its half, doubled, is itself again."""
    distance = sum_of((1, 0, -1))
    gate = SIMPLIFY(b.eq(b.mod(distance, 2), 0))
    half = b.idiv(distance, 2)
    index = SIMPLIFY(b.add(b.mul(half, 6), b.mul(INNER, 3)))
    assert divisions(index) == 1
    assert are_equal_sums(simplify_under_gate(index, gate, SIMPLIFY), b.mul(OUTER, 3))
    assert simplify_under_gate(SIMPLIFY(b.mul(half, 3)), gate, SIMPLIFY) is SIMPLIFY(b.mul(half, 3))  # 3 halves are no whole
    below, third = SIMPLIFY(b.lt(b.mod(distance, 3), 2)), SIMPLIFY(b.mul(b.idiv(distance, 3), 3))
    assert simplify_under_gate(third, below, SIMPLIFY) is third


factors = st.tuples(*[st.integers(-6, 24)] * 3)


@st.composite
def sums(draw: st.DrawFn) -> UOp:
    return sum_of(draw(factors), draw(st.integers(-30, 30)))


@st.composite
def indices(draw: st.DrawFn, depth: int = 2) -> UOp:
    total = draw(sums())
    if depth:
        total = b.add(b.mul(draw(indices(depth=depth - 1)), draw(st.integers(-3, 6))), total) if draw(st.booleans()) else total
    for _ in range(draw(st.integers(0, 2))):
        total = draw(st.sampled_from((b.idiv, b.mod)))(total, draw(st.integers(1, 40)))
    return total


@st.composite
def gates(draw: st.DrawFn) -> UOp:
    compare = st.sampled_from((b.lt, b.le, b.gt, b.ge, b.eq))
    return both(*[draw(compare)(draw(indices()), draw(st.integers(-20, 100))) for _ in range(draw(st.integers(1, 4)))])


@given(indices(), gates())
def test_values_stay_where_the_gate_is_true(index: UOp, gate: UOp) -> None:
    before, inside = at_all_points(index), at_all_points(gate)
    index, gate = SIMPLIFY(index), SIMPLIFY(gate)
    shorter_gate = simplify_gate(gate, SIMPLIFY)
    assert np.array_equal(at_all_points(shorter_gate), inside)
    shorter = simplify_under_gate(index, shorter_gate, SIMPLIFY)
    assert np.array_equal(at_all_points(shorter)[inside], before[inside])
    assert weighted_tree_cost(shorter) <= weighted_tree_cost(index)


@given(sums(), st.integers(2, 5), st.integers(-3, 3), indices(), st.integers(1, 2))
def test_multiples_of_exact_quotients_keep_their_values(
    dividend: UOp, divisor: int, factor: int, rest: UOp, remainders: int
) -> None:
    gate = b.lt(b.mod(dividend, divisor), remainders)
    index = SIMPLIFY(b.mod(b.add(b.mul(b.idiv(dividend, divisor), factor * divisor), rest), 7))
    inside = at_all_points(gate)
    shorter = simplify_under_gate(index, SIMPLIFY(gate), SIMPLIFY)
    assert np.array_equal(at_all_points(shorter)[inside], at_all_points(index)[inside])


@st.composite
def pinned(draw: st.DrawFn) -> UOp:
    """Loops and sums that equal constants, which are often the same."""
    terms = st.one_of(st.sampled_from(LOOPS), sums())
    return both(*[b.eq(draw(terms), draw(st.integers(0, 3))) for _ in range(draw(st.integers(2, 4)))])


@given(indices(), pinned())
def test_values_stay_where_the_gate_pins_several_terms(index: UOp, gate: UOp) -> None:
    inside = at_all_points(gate)
    index, gate = SIMPLIFY(index), SIMPLIFY(gate)
    assert np.array_equal(at_all_points(simplify_gate(gate, SIMPLIFY)), inside)
    shorter = simplify_under_gate(index, gate, SIMPLIFY)
    assert np.array_equal(at_all_points(shorter)[inside], at_all_points(index)[inside])


@pytest.mark.parametrize("divide", [b.idiv, b.mod])
def test_two_terms_that_a_gate_pins_to_one_constant_both_count(divide: Callable[[UOp, int], UOp]) -> None:
    gate = both(b.eq(OUTER, 3), b.eq(INNER, 3))
    total = divide(b.add(OUTER, INNER), 4)
    assert simplify_under_gate(total, gate, SIMPLIFY) is b.index(1 if divide is b.idiv else 2)


@given(indices(), st.integers(0, 119), st.integers(0, 119))
def test_gates_of_one_sum_decide_what_its_values_decide(index: UOp, lo: int, hi: int) -> None:
    """A dividend that is the gate's own sum: the case of tiles with overhang."""
    gate = both(b.ge(FLAT, lo), b.lt(FLAT, hi))
    index = substitute(index, {OUTER: b.idiv(FLAT, 20)})
    inside = at_all_points(gate)
    shorter = simplify_under_gate(SIMPLIFY(index), SIMPLIFY(gate), SIMPLIFY)
    assert np.array_equal(at_all_points(shorter)[inside], at_all_points(index)[inside])
