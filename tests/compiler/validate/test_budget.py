"""What validation costs: terms that share parts are looked at once, and a kernel has a budget that no clock decides."""

import itertools

import numpy as np
import pytest

from uops import Tensor
from uops.backends.registry import get
from uops.compiler import Config, lower
from uops.compiler.pipeline import record_lowering
from uops.compiler.tensor.realize import capture
from uops.compiler.validate import By, Invalid, Kind, budget
from uops.compiler.validate import terms as T
from uops.compiler.validate.budget import BUDGET, BudgetUnit, Spent, limit_cost, pay, remaining
from uops.compiler.validate.decide import by_points, by_solver, by_sums, exact, query
from uops.compiler.validate.digits import decoded
from uops.compiler.validate.kernel import kernel, wraps
from uops.compiler.validate.launch import validate
from uops.compiler.validate.model import Claim
from uops.compiler.validate.sites import Site
from uops.compiler.validate.terms import App, Cond, Lin, Var
from uops.compiler.validate.writes import is_same
from uops.fuzz.campaign.examine import Bench, Setup
from uops.fuzz.generate.kinds import Sample
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp

CHECKED = Config(validate=True, reuse=False)
X = Var("r0", 0, 6)
#: Each level holds the one below three times: written out, the last has 3^60 leaves.
LEVELS = 60


def towers(x: Lin, levels: int = LEVELS) -> Lin:
    """An index by an index by an index ..., as chains of gathers make it."""
    for k in range(levels):
        negative = T.at_least(T.scale(x, -1))
        x = T.of(App("where", (negative, T.add(x, Lin(k + 1)), T.of(App("mod", (T.of(App("wrap-i64", (x,))), Lin(1 << 30)))))))
    return x


def gathers(depth: int, columns: int = 9) -> UOp:
    """Rows chosen by indices that are chosen by indices ..., `depth` times."""
    rng = np.random.default_rng(0)
    x = Tensor(rng.standard_normal((4, columns)).astype(np.float32))
    for k in range(depth):
        x = x.gather(k % 2, Tensor(rng.integers(-3, 3, x.shape).astype(np.int32)))
    return capture(x).graph


def site(index: Lin, gate: Cond = T.TRUE) -> Site:
    node = b.param(0, (1 << 20,), dt.int32)
    return Site("load", node, node, index, gate, (), None, T.TRUE, 0, Lin(1 << 20))


def test_equal_terms_are_one_object():
    assert Lin(3, ((X, 2),)) is T.add(Lin(3), T.of(Var("r0", 0, 6)), 2)
    assert App("mod", (T.of(X), Lin(4))) is App("mod", (T.of(X), Lin(4))) and Cond("true") is T.TRUE
    assert Var("r0", 0, 6) is not Var("r0", 0, 7)


def test_a_term_that_stands_in_another_many_times_is_looked_at_once():
    x, y = towers(T.of(X)), towers(T.of(Var("r1", 0, 6)))
    assert list(T.unknowns(x)) == [X] and not T.has_held(x)
    assert T.bounds(x)[0] == 0 and T.bounds(x, {X: (1, 2)})[1] < 1 << 31
    assert T.substituted(x, {X: T.of(Var("r1", 0, 6))}) is y
    assert T.under(x, [T.FALSE]) is x
    assert exact(x) and T.values(x, {X: np.arange(7)}).shape == (7,)
    assert len(list(wraps(T.at_least(x)))) > LEVELS // 2
    assert len(T.conjuncts(towered(LEVELS))) == 1
    assert query(Claim(Kind.BOUNDS, "", T.at_least(x), T.at_least(T.add(x, T.ONE))))[0].count("ite") <= 3 * LEVELS
    assert decoded(site(x), y) is not None


def towered(levels: int) -> Cond:
    found = T.at_least(T.of(X))
    for _ in range(levels):
        found = Cond("and", (found, found))
    return found


@pytest.mark.parametrize("backend", ["llvm", "c"])
def test_gathers_of_gathers_are_validated(backend):
    with limit_cost():
        lower(gathers(7), get(backend).target, config=CHECKED, upto="plan")


def test_a_gate_that_makes_the_choices_of_an_index_shows_that_it_is_inside():
    """The index is read where the gate holds, so without its choice; the solver takes millions of steps for it, and gives up."""
    given = T.at_least(Lin(5, ((X, -1),)))
    inner = T.of(App("where", (given, T.of(App("held-i32-1", (T.of(X),))), T.ZERO)))
    index = T.of(App("where", (T.at_least(T.add(inner, Lin(-9))), T.of(App("held-i32-2", (inner,))), Lin(-1))))
    gate = T.both(T.both(T.at_least(index), T.at_least(T.add(Lin(99), index, -1))), given)
    chosen = T.under(index, T.conjuncts(gate))
    assert chosen is not index
    inside = T.both(T.at_least(chosen), T.at_least(T.add(Lin(99), chosen, -1)))
    assert by_sums(Claim(Kind.BOUNDS, "", gate, inside))
    assert not by_sums(Claim(Kind.BOUNDS, "", gate, T.at_least(T.add(chosen, T.ONE, -1))))


def test_an_access_with_the_same_element_and_the_same_condition_touches_the_same():
    gate, index = T.at_least(Lin(3, ((X, -1),))), T.of(App("held-i32-1", (T.of(X),)))
    assert is_same(site(index, gate), [site(T.ZERO), site(index, gate)])
    assert not is_same(site(index, gate), [site(index), site(T.add(index, T.ONE), gate)])
    assert not is_same(site(index, gate), [site(T.of(App("held-i32-1", (T.of(Var("r0", 0, 7)),))), gate)])
    loaded = T.of(Var("v0", 0, 9, True))  # the v0 of another body is another value
    assert not is_same(site(loaded), [site(loaded)])


# The budget


def test_a_budget_ends_in_the_thread_that_has_it(monkeypatch):
    monkeypatch.setattr(budget, "BUDGET", dict.fromkeys(BudgetUnit, 10))
    pay(BudgetUnit.POINTS, 1 << 60)
    with limit_cost():
        pay(BudgetUnit.POINTS, 10)
        assert remaining(BudgetUnit.STEPS, 3) == 3 and remaining(BudgetUnit.STEPS, 99) == 10
        with pytest.raises(Spent, match="the budget of a kernel is spent: 10 operations on points"):
            pay(BudgetUnit.POINTS, 1)
        with pytest.raises(Spent, match="10 operations on points"):
            remaining(BudgetUnit.POINTS, 1)
        with limit_cost():
            pay(BudgetUnit.POINTS, 10)
    assert remaining(BudgetUnit.STEPS, 99) == 99


def columns() -> UOp:
    """A kernel with obligations that are left to the solver, as its extent is a variable that has many values."""
    n = b.variable("n", 1, 1000)
    return b.neg(b.reshape(b.expand(b.reshape(b.param(0, (n,), dt.float32), (n, 1)), (n, 3)), (b.mul(n, b.index(3)),)))


@pytest.mark.parametrize("cost", [BudgetUnit.TERMS, BudgetUnit.STEPS])
def test_a_kernel_whose_budget_is_spent_is_not_decided(monkeypatch, worker, cost):
    passed, _, _ = record_lowering(columns(), get("llvm").target, Config(reuse=False))
    bodies = [passed[name].src[0].src[0] for name in ("join", "linearize")]
    whole = kernel(*bodies, worker)
    assert all(v.proved for v in whole) and By.SOLVER in {v.by for v in whole}
    monkeypatch.setattr(budget, "BUDGET", {**BUDGET, cost: 5})
    bad = [v for v in kernel(*bodies, worker) if not v.proved]
    assert bad and all(v.by is None and v.counterexample is None and "not decided" in str(v) for v in bad)
    assert cost is BudgetUnit.STEPS or "the rest of the kernel: not decided: the budget of a kernel is spent: 5 terms" in str(
        bad[-1]
    )


def test_points_are_paid_for(monkeypatch):
    claim = Claim(Kind.BOUNDS, "", T.TRUE, T.is_zero(T.of(App("idiv", (T.of(X), Lin(7))))))
    monkeypatch.setattr(budget, "BUDGET", {**BUDGET, BudgetUnit.POINTS: 20})
    with limit_cost(), pytest.raises(Spent):
        by_points(claim)
    found = by_points(claim)
    assert found is not None and found.proved


def test_what_is_not_decided_is_an_error_and_no_finding(monkeypatch):
    monkeypatch.setattr(budget, "BUDGET", {**BUDGET, BudgetUnit.TERMS: 5})
    graph = b.neg(b.param(0, (3, 5, 2), dt.int16))
    with pytest.raises(Invalid, match="in bounds: the rest of the kernel: not decided: the budget of a kernel is spent: 5 terms"):
        lower(graph, get("c").target, config=CHECKED, upto="plan")
    bench = Bench(Setup("c", oracles=("validated",)))
    context = bench._context(Sample("tensor", graph, {}), 0)
    (validated,) = bench.oracles
    assert validated.check(context) is None and context.counts["validated:not decided"] == 1


def test_steps_for_what_memory_holds_are_of_a_budget_of_their_own(monkeypatch):
    """Where they are not enough, the interpreter's check covers what is read, and all else is decided as ever."""
    graph, target = gathers(3, columns=12), get("llvm").target

    def means() -> set[By | None]:
        passed, steps, log = record_lowering(graph, target, Config(reuse=False))
        monkeypatch.setattr("uops.compiler.validate.launch._PROCESS.known", {})
        report = validate(passed, steps, log)
        assert all(v.proved for v in report.verdicts)
        return {v.by for v in report.verdicts if v.kind is Kind.READS}

    assert By.SOLVER in means()
    monkeypatch.setattr(budget, "BUDGET", {**BUDGET, BudgetUnit.HELD_STEPS: 0})
    assert By.SOLVER not in means()


def test_the_solver_is_asked_for_no_more_steps_than_are_left(monkeypatch, worker):
    square = App("mul", (T.of(X), T.of(Var("r1", 0, 1 << 40))))
    claim = Claim(Kind.BOUNDS, "", T.TRUE, T.at_least(Lin(0, ((square, 1),))))
    monkeypatch.setattr(budget, "BUDGET", {**BUDGET, BudgetUnit.STEPS: 1})
    with limit_cost():
        assert not by_solver(claim, worker).proved
        with pytest.raises(Spent):
            by_solver(claim, worker)
    assert by_solver(claim, worker).proved


def test_no_cost_is_a_time():
    for one, other in itertools.combinations(BudgetUnit, 2):
        assert budget._WORDS[one] != budget._WORDS[other]
    assert set(BUDGET) == set(BudgetUnit) and not any("second" in w for w in budget._WORDS.values())
