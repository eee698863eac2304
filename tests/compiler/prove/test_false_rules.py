"""Every false rule is refuted, and the interpreter sees it on the values that the prover found."""

from collections.abc import Iterator

import pytest
from false_rules import FALSE, NEAR, PEERS

from uops.compiler.prove.counterexample import RuleCounterexample
from uops.compiler.prove.obligations import obligations
from uops.compiler.prove.solver.solver import SolverWorker
from uops.compiler.prove.verdicts import ProofStatus, ProofVerdict, decide_obligation
from uops.compiler.rewrite.pattern import BOOL, INDEX, cast, cst, var
from uops.compiler.rewrite.rule import Rule
from uops.fuzz.bisect.replay import replay_counterexample
from uops.spec.ir import dtypes as dt


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
            seen = replay_counterexample(RuleCounterexample.from_verdict(FALSE[name], found))
            assert seen.confirmed, f"{o.name} at {dict(found.values)}: {seen.words}"
            return
        said.append(f"{o.name}: {found.status.value} {found.by}")
    pytest.fail("\n".join(said))


@pytest.mark.parametrize(("by", "word"), [("bits", 2**72 - 1), ("whole native", -1), ("slice", True)])
def test_a_negative_index_is_negative_in_every_theory(by: str, word: int | bool) -> None:
    rule = Rule("false", cast(var("p", BOOL), dt.index), cst("k", INDEX))
    (o,) = obligations(rule)
    refuted = ProofVerdict(o, ProofStatus.REFUTED, by, (("k", word), ("p", False)))
    found = RuleCounterexample.from_verdict(rule, refuted)
    assert found.values == {"k": -1, "p": 0}
    assert replay_counterexample(found).confirmed


def test_a_large_index_of_whole_numbers_stays() -> None:
    rule = Rule("false", cast(var("p", BOOL), dt.index), cst("k", INDEX))
    (o,) = obligations(rule)
    refuted = ProofVerdict(o, ProofStatus.REFUTED, "whole", (("k", 2**72 - 1), ("p", False)))
    assert RuleCounterexample.from_verdict(rule, refuted).values["k"] == 2**72 - 1
