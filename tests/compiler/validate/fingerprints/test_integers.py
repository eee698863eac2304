"""Integers over counters: each rule against the same rule on every value of the counter."""

import itertools
import operator

import numpy as np
import pytest

from uops.compiler.validate.fingerprints.integers import (
    RULES,
    Counter,
    DependsOnCounter,
    Integer,
    NotEvaluable,
    UndecidedCondition,
    apply_rule,
    choose_integers,
    wrap,
)
from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import Op

C, D = Counter(0, 0, 6), Counter(1, 2, 5)
FACTORS = (-7, -2, 0, 1, 3, 4, 8, 12)
NUMBERS = np.array([-9, -1, 0, 1, 5, 8, 23])


def over(c, d, numbers=NUMBERS):
    """The sum numbers + c * C + d * D."""
    return Integer(numbers, {C: np.array([c]), D: np.array([d])})


def at(x, c, d):
    """The numbers of a sum where the counters have these values."""
    return x.numbers + sum((f * {C: c, D: d}[k] for k, f in x.factors.items()), np.int64(0))


def values():
    return itertools.product(range(C.low, C.high + 1), range(D.low, D.high + 1))


PYTHON = {
    Op.ADD: operator.add, Op.SUB: operator.sub, Op.MUL: operator.mul, Op.IDIV: operator.floordiv, Op.MOD: operator.mod,
    Op.MAX: np.maximum, Op.MIN: np.minimum, Op.CMPLT: operator.lt, Op.CMPLE: operator.le, Op.CMPGT: operator.gt,
    Op.CMPGE: operator.ge, Op.CMPEQ: operator.eq, Op.CMPNE: operator.ne, Op.AND: operator.and_, Op.SHL: operator.lshift,
    Op.SHR: operator.rshift,
}  # fmt: skip


@pytest.mark.parametrize("op", PYTHON, ids=lambda op: op.name)
def test_a_rule_on_a_sum_is_the_rule_on_every_value_or_is_undecided(op):
    decided = 0
    seconds = [Integer(np.array([k])) for k in (1, 2, 3, 4, 7, 8, 15, 64, 100)]
    if op in (Op.ADD, Op.SUB, Op.CMPLT, Op.CMPEQ, Op.CMPNE, Op.MAX):
        seconds += [over(c, 1, NUMBERS[::-1]) for c in FACTORS]
    for (c, d), second in itertools.product(itertools.product(FACTORS, FACTORS), seconds):
        first = over(c, d)
        try:
            result = RULES[op](first, second)
        except NotEvaluable:
            continue
        decided += 1
        for x, y in values():
            assert (at(result, x, y) == PYTHON[op](at(first, x, y), at(second, x, y))).all(), (c, d, second)
    assert decided >= (3 if op is Op.CMPEQ else 20)


def test_division_by_zero_is_the_one_of_the_specification():
    x, zero = Integer(NUMBERS), Integer(np.array([0]))
    assert (RULES[Op.IDIV](x, zero).numbers == 0).all() and (RULES[Op.MOD](x, zero).numbers == NUMBERS).all()


def test_a_condition_that_holds_in_some_iterations_is_undecided():
    with pytest.raises(UndecidedCondition):
        RULES[Op.CMPLT](over(1, 0), Integer(np.array([3])))
    assert not RULES[Op.CMPLT](over(1, 0), over(1, 0)).numbers.any()


def test_a_sum_is_no_number():
    with pytest.raises(DependsOnCounter) as e:
        over(1, 0).require_numbers()
    assert e.value.counters == {C}
    assert (over(0, 0).require_numbers() == NUMBERS).all()


def test_integers_wrap_in_their_dtype_and_sums_may_not():
    assert (wrap(Integer(np.array([127, 128, 300, -129])), dt.int8).numbers == [127, -128, 44, 127]).all()
    assert (wrap(Integer(np.array([-1, 256])), dt.uint8).numbers == [255, 0]).all()
    assert (apply_rule(Op.ADD, dt.bool_, [Integer(np.array([1])), Integer(np.array([1]))]).numbers == 1).all()
    with pytest.raises(NotEvaluable):
        wrap(over(100, 0), dt.int8)
    assert wrap(over(1, 1), dt.int8).factors


def test_a_choice_takes_numbers_and_factors_of_the_chosen_side():
    condition = NUMBERS > 0
    chosen = choose_integers(condition, over(2, 0), over(0, 3))
    for x, y in values():
        assert (at(chosen, x, y) == np.where(condition, at(over(2, 0), x, y), at(over(0, 3), x, y))).all()


def test_more_than_61_bits_are_refused():
    with pytest.raises(NotEvaluable):
        RULES[Op.CMPLT](over(1, 0, np.array([1 << 62])), Integer(np.array([0])))
