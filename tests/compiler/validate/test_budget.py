"""What validation costs: terms that share parts are looked at once, and a kernel has a budget that no clock decides."""

import itertools

import numpy as np
import pytest

from uops import Tensor
from uops.backends.registry import create_backend
from uops.compiler import Config, lower
from uops.compiler.pipeline import record_lowering_up_to_plan
from uops.compiler.tensor.realize import capture
from uops.compiler.validate import DecisionMethod, Invalid, ObligationKind, budget
from uops.compiler.validate import terms as T
from uops.compiler.validate.budget import (
    BUDGET,
    BudgetExhausted,
    BudgetUnit,
    charge_budget_if_limited,
    limit_kernel_budget,
    require_remaining_budget,
)
from uops.compiler.validate.decide import (
    decide_by_solver,
    decide_by_trying_every_point,
    encode_negated_claim_and_model_defaults,
    has_known_int64_values,
    is_proved_by_linear_arithmetic,
)
from uops.compiler.validate.digits import find_sufficient_touch_conditions
from uops.compiler.validate.kernel import find_wraps_without_memory_values, validate_kernel
from uops.compiler.validate.launch import validate
from uops.compiler.validate.model import ValidationClaim
from uops.compiler.validate.sites import AccessSite
from uops.compiler.validate.terms import Condition, LinearSum, Operation, Unknown
from uops.compiler.validate.writes import has_equal_site
from uops.fuzz.campaign.examine import CaseRunner, Setup
from uops.fuzz.generate.kinds import ProgramSample
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp

CHECKED = Config(validate=True, reuse=False)
X = Unknown("r0", 0, 6)
#: Each level holds the one below three times: written out, the last has 3^60 leaves.
LEVELS = 60


def towers(x: LinearSum, levels: int = LEVELS) -> LinearSum:
    """An index by an index by an index ..., as chains of gathers make it."""
    for k in range(levels):
        negative = T.is_nonnegative(T.scale(x, -1))
        x = T.as_sum(
            Operation(
                "where",
                (
                    negative,
                    T.add(x, LinearSum(k + 1)),
                    T.as_sum(Operation("mod", (T.as_sum(Operation("wrap-i64", (x,))), LinearSum(1 << 30)))),
                ),
            )
        )
    return x


def gathers(depth: int, columns: int = 9) -> UOp:
    """Rows chosen by indices that are chosen by indices ..., `depth` times."""
    rng = np.random.default_rng(0)
    x = Tensor(rng.standard_normal((4, columns)).astype(np.float32))
    for k in range(depth):
        x = x.gather(k % 2, Tensor(rng.integers(-3, 3, x.shape).astype(np.int32)))
    return capture(x).graph


def site(index: LinearSum, gate: Condition = T.TRUE) -> AccessSite:
    node = b.param(0, (1 << 20,), dt.int32)
    return AccessSite("load", node, node, index, gate, (), None, T.TRUE, 0, LinearSum(1 << 20))


def test_equal_terms_are_one_object():
    assert LinearSum(3, ((X, 2),)) is T.add(LinearSum(3), T.as_sum(Unknown("r0", 0, 6)), 2)
    assert (
        Operation("mod", (T.as_sum(X), LinearSum(4))) is Operation("mod", (T.as_sum(X), LinearSum(4)))
        and Condition("true") is T.TRUE
    )
    assert Unknown("r0", 0, 6) is not Unknown("r0", 0, 7)


def test_a_term_that_stands_in_another_many_times_is_looked_at_once():
    x, y = towers(T.as_sum(X)), towers(T.as_sum(Unknown("r1", 0, 6)))
    assert list(T.collect_unknowns(x)) == [X] and not T.has_memory_value(x)
    assert T.bounds(x)[0] == 0 and T.bounds(x, {X: (1, 2)})[1] < 1 << 31
    assert T.substitute(x, {X: T.as_sum(Unknown("r1", 0, 6))}) is y
    assert T.resolve_wheres_whose_condition_is_listed(x, [T.FALSE]) is x
    assert has_known_int64_values(x) and T.evaluate_at_points(x, {X: np.arange(7)}).shape == (7,)
    assert len(list(find_wraps_without_memory_values(T.is_nonnegative(x)))) > LEVELS // 2
    assert len(T.conjuncts(towered(LEVELS))) == 1
    assert (
        encode_negated_claim_and_model_defaults(
            ValidationClaim(ObligationKind.BOUNDS, "", T.is_nonnegative(x), T.is_nonnegative(T.add(x, T.ONE)))
        )[0].count("ite")
        <= 3 * LEVELS
    )
    assert list(find_sufficient_touch_conditions(site(x), y))


def towered(levels: int) -> Condition:
    found = T.is_nonnegative(T.as_sum(X))
    for _ in range(levels):
        found = Condition("and", (found, found))
    return found


@pytest.mark.parametrize("backend", ["llvm", "c"])
def test_gathers_of_gathers_are_validated(backend):
    with limit_kernel_budget():
        lower(gathers(7), create_backend(backend).target, config=CHECKED, upto="plan")


def test_a_gate_that_makes_the_choices_of_an_index_shows_that_it_is_inside():
    """The index is read where the gate holds, so without its choice; the solver takes millions of steps for it, and gives up."""
    given = T.is_nonnegative(LinearSum(5, ((X, -1),)))
    inner = T.as_sum(Operation("where", (given, T.as_sum(Operation("held-i32-1", (T.as_sum(X),))), T.ZERO)))
    index = T.as_sum(
        Operation(
            "where", (T.is_nonnegative(T.add(inner, LinearSum(-9))), T.as_sum(Operation("held-i32-2", (inner,))), LinearSum(-1))
        )
    )
    gate = T.conjoin(T.conjoin(T.is_nonnegative(index), T.is_nonnegative(T.add(LinearSum(99), index, -1))), given)
    chosen = T.resolve_wheres_whose_condition_is_listed(index, T.conjuncts(gate))
    assert chosen is not index
    inside = T.conjoin(T.is_nonnegative(chosen), T.is_nonnegative(T.add(LinearSum(99), chosen, -1)))
    assert is_proved_by_linear_arithmetic(ValidationClaim(ObligationKind.BOUNDS, "", gate, inside))
    assert not is_proved_by_linear_arithmetic(
        ValidationClaim(ObligationKind.BOUNDS, "", gate, T.is_nonnegative(T.add(chosen, T.ONE, -1)))
    )


def test_an_access_with_the_same_element_and_the_same_condition_touches_the_same():
    gate, index = T.is_nonnegative(LinearSum(3, ((X, -1),))), T.as_sum(Operation("held-i32-1", (T.as_sum(X),)))
    assert has_equal_site(site(index, gate), [site(T.ZERO), site(index, gate)])
    assert not has_equal_site(site(index, gate), [site(index), site(T.add(index, T.ONE), gate)])
    assert not has_equal_site(site(index, gate), [site(T.as_sum(Operation("held-i32-1", (T.as_sum(Unknown("r0", 0, 7)),))), gate)])
    loaded = T.as_sum(Unknown("v0", 0, 9, True))  # the v0 of another body is another value
    assert not has_equal_site(site(loaded), [site(loaded)])


# The budget


def test_a_budget_ends_in_the_thread_that_has_it(monkeypatch):
    monkeypatch.setattr(budget, "BUDGET", dict.fromkeys(BudgetUnit, 10))
    charge_budget_if_limited(BudgetUnit.POINTS, 1 << 60)
    with limit_kernel_budget():
        charge_budget_if_limited(BudgetUnit.POINTS, 10)
        assert require_remaining_budget(BudgetUnit.STEPS, 3) == 3 and require_remaining_budget(BudgetUnit.STEPS, 99) == 10
        with pytest.raises(BudgetExhausted, match="the budget of a kernel is spent: 10 operations on points"):
            charge_budget_if_limited(BudgetUnit.POINTS, 1)
        with pytest.raises(BudgetExhausted, match="10 operations on points"):
            require_remaining_budget(BudgetUnit.POINTS, 1)
        with limit_kernel_budget():
            charge_budget_if_limited(BudgetUnit.POINTS, 10)
    assert require_remaining_budget(BudgetUnit.STEPS, 99) == 99


def columns() -> UOp:
    """A kernel with obligations that are left to the solver, as its extent is a variable that has many values."""
    n = b.variable("n", 1, 1000)
    return b.neg(b.reshape(b.expand(b.reshape(b.param(0, (n,), dt.float32), (n, 1)), (n, 3)), (b.mul(n, b.index(3)),)))


@pytest.mark.parametrize("cost", [BudgetUnit.TERMS, BudgetUnit.STEPS])
def test_a_kernel_whose_budget_is_spent_is_not_decided(monkeypatch, worker, cost):
    passed, _, _ = record_lowering_up_to_plan(columns(), create_backend("llvm").target, Config(reuse=False))
    bodies = [passed[name].src[0].src[0] for name in ("join", "linearize")]
    whole = validate_kernel(*bodies, worker)
    assert all(v.is_proved for v in whole) and DecisionMethod.SOLVER in {v.by for v in whole}
    monkeypatch.setattr(budget, "BUDGET", {**BUDGET, cost: 5})
    bad = [v for v in validate_kernel(*bodies, worker) if not v.is_proved]
    assert bad and all(v.by is None and v.counterexample is None and "not decided" in str(v) for v in bad)
    assert cost is BudgetUnit.STEPS or "the rest of the kernel: not decided: the budget of a kernel is spent: 5 terms" in str(
        bad[-1]
    )


def test_points_are_paid_for(monkeypatch):
    claim = ValidationClaim(ObligationKind.BOUNDS, "", T.TRUE, T.is_zero(T.as_sum(Operation("idiv", (T.as_sum(X), LinearSum(7))))))
    monkeypatch.setattr(budget, "BUDGET", {**BUDGET, BudgetUnit.POINTS: 20})
    with limit_kernel_budget(), pytest.raises(BudgetExhausted):
        decide_by_trying_every_point(claim)
    found = decide_by_trying_every_point(claim)
    assert found is not None and found.is_proved


def test_what_is_not_decided_is_an_error_and_no_finding(monkeypatch):
    monkeypatch.setattr(budget, "BUDGET", {**BUDGET, BudgetUnit.TERMS: 5})
    graph = b.neg(b.param(0, (3, 5, 2), dt.int16))
    with pytest.raises(Invalid, match="in bounds: the rest of the kernel: not decided: the budget of a kernel is spent: 5 terms"):
        lower(graph, create_backend("c").target, config=CHECKED, upto="plan")
    bench = CaseRunner(Setup("c", oracles=("validated",)))
    context = bench._build_context_recording_steps_if_needed(ProgramSample("tensor", graph, {}), 0)
    (validated,) = bench.oracles
    assert validated.check(context) is None and context.counts["validated:not decided"] == 1


def test_steps_for_what_memory_holds_are_of_a_budget_of_their_own(monkeypatch):
    """Where they are not enough, the interpreter's check covers what is read, and all else is decided as ever."""
    graph, target = gathers(3, columns=12), create_backend("llvm").target

    def means() -> set[DecisionMethod | None]:
        passed, steps, log = record_lowering_up_to_plan(graph, target, Config(reuse=False))
        monkeypatch.setattr("uops.compiler.validate.launch._PROCESS.verdict_cache", {})
        report = validate(passed, steps, log)
        assert all(v.is_proved for v in report.verdicts)
        return {v.by for v in report.verdicts if v.kind is ObligationKind.READS}

    assert DecisionMethod.SOLVER in means()
    monkeypatch.setattr(budget, "BUDGET", {**BUDGET, BudgetUnit.HELD_STEPS: 0})
    assert DecisionMethod.SOLVER not in means()


def test_the_solver_is_asked_for_no_more_steps_than_are_left(monkeypatch, worker):
    square = Operation("mul", (T.as_sum(X), T.as_sum(Unknown("r1", 0, 1 << 40))))
    claim = ValidationClaim(ObligationKind.BOUNDS, "", T.TRUE, T.is_nonnegative(LinearSum(0, ((square, 1),))))
    monkeypatch.setattr(budget, "BUDGET", {**BUDGET, BudgetUnit.STEPS: 1})
    with limit_kernel_budget():
        assert not decide_by_solver(claim, worker).is_proved
        with pytest.raises(BudgetExhausted):
            decide_by_solver(claim, worker)
    assert decide_by_solver(claim, worker).is_proved


def test_no_cost_is_a_time():
    for one, other in itertools.combinations(BudgetUnit, 2):
        assert budget._WORDS[one] != budget._WORDS[other]
    assert set(BUDGET) == set(BudgetUnit) and not any("second" in w for w in budget._WORDS.values())
