"""Every false rule is refuted, and the interpreter sees it on the values that the prover found."""

from collections.abc import Iterator

import pytest
from false_rules import FALSE, NEAR, PEERS

from uops.compiler.prove.counterexample import RuleCounterexample
from uops.compiler.prove.obligations import obligations
from uops.compiler.prove.solver.solver import SolverWorker
from uops.compiler.prove.verdicts import ProofStatus, ProofVerdict, decide_obligation
from uops.compiler.rewrite.pattern import BOOL, INDEX, Binding, Pattern, cast, cst, eq, maximum, operation, var, where
from uops.compiler.rewrite.rule import Rule
from uops.compiler.rewrite.witness import EvaluationWitness
from uops.fuzz.bisect.replay import replay_counterexample
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


@pytest.fixture(scope="module")
def worker() -> Iterator[SolverWorker]:
    w = SolverWorker(seconds=30.0)
    yield w
    w.close()


def test_there_are_enough_and_each_has_a_name() -> None:
    assert len(FALSE) == len(PEERS) + len(NEAR) >= 60


@pytest.mark.parametrize("name", FALSE)
def test_a_false_rule_is_refuted_and_the_interpreter_agrees(name: str, worker: SolverWorker) -> None:
    said = []
    for o in obligations(FALSE[name]):
        found = decide_obligation(worker, o)
        if found.status is ProofStatus.REFUTED:
            seen = replay_counterexample(RuleCounterexample.from_refuted_verdict(FALSE[name], found))
            assert seen.confirmed, f"{o.name} at {dict(found.values)}: {seen.words}"
            return
        said.append(f"{o.name}: {found.status.value} {found.by}")
    pytest.fail("\n".join(said))


class Liar:
    """A witness that says which pattern its constant is the value of, and proposes another."""

    evaluates = cst("c", INDEX) + cst("d", INDEX)

    def __call__(self, binding: Binding) -> dict[str, UOp]:
        return {"k": b.index(7)}


def test_what_a_witness_says_of_its_value_is_not_believed(worker: SolverWorker) -> None:
    """The same rule with a witness whose value the folder computes is proved."""
    c, d, k = cst("c", INDEX), cst("d", INDEX), cst("k", INDEX)
    verdicts = [
        {decide_obligation(worker, o).status for o in obligations(Rule("sum", c + d, k, witness=w))}
        for w in (EvaluationWitness(c + d), Liar(), EvaluationWitness(c + c))
    ]
    assert verdicts == [{ProofStatus.PROVED}, {ProofStatus.REFUTED}, {ProofStatus.REFUTED}]


@pytest.mark.parametrize(("by", "word"), [("bits", 2**72 - 1), ("whole native", -1), ("slice", True)])
def test_a_negative_index_is_negative_in_every_theory(by: str, word: int | bool) -> None:
    rule = Rule("false", cast(var("p", BOOL), dt.index), cst("k", INDEX))
    (o,) = obligations(rule)
    refuted = ProofVerdict(o, ProofStatus.REFUTED, by, (("k", word), ("p", False)))
    found = RuleCounterexample.from_refuted_verdict(rule, refuted)
    assert found.values == {"k": -1, "p": 0}
    assert replay_counterexample(found).confirmed


def test_a_large_index_of_whole_numbers_stays() -> None:
    rule = Rule("false", cast(var("p", BOOL), dt.index), cst("k", INDEX))
    (o,) = obligations(rule)
    refuted = ProofVerdict(o, ProofStatus.REFUTED, "whole", (("k", 2**72 - 1), ("p", False)))
    assert RuleCounterexample.from_refuted_verdict(rule, refuted).values["k"] == 2**72 - 1


X, Y, P = var("x", (dt.float16,)), var("y", (dt.float16,)), var("p", BOOL)
X8, Y8 = cast(var("x", (dt.fp8e4m3,)), dt.float16), cast(var("y", (dt.fp8e4m3,)), dt.float16)
MAX8 = cast(maximum(var("x", (dt.fp8e4m3,)), var("y", (dt.fp8e4m3,))), dt.float16)


def recip(a: Pattern) -> Pattern:
    return operation(Op.RECIP, a)


@pytest.mark.parametrize(
    ("x", "y", "again", "expected"),
    [
        (X, Y, maximum(X, Y), ProofStatus.PROVED),  # one node, one value (R27)
        (X, Y, maximum(where(P, X, X), Y), ProofStatus.REFUTED),  # +0 beside -0: infinities of both signs, whose sum is NaN
        (X8, Y8, MAX8, ProofStatus.REFUTED),
    ],
    ids=["equal", "other operands", "other dtype"],
)
def test_each_node_of_a_right_side_chooses_between_zeros(
    x: Pattern, y: Pattern, again: Pattern, expected: ProofStatus, worker: SolverWorker
) -> None:
    kept = recip(maximum(x, y))
    left_side = where(P, kept, kept)
    (o,) = obligations(Rule("recip-twice", left_side, kept + recip(again), when=eq(x, 0.0) & eq(y, 0.0)))
    assert decide_obligation(worker, o).status is expected
