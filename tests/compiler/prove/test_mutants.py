"""Mutants of our rules: refuted with values that the interpreter confirms, or proved, and then the interpreter finds nothing.

A mutant that is proved is a rule too: the change made a condition stronger, or weaker than need be, or gave another law.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from rule_mutants import Mutant, mutants

from uops.compiler.prove.counterexample import RuleCounterexample, instantiate_typed_pattern
from uops.compiler.prove.obligations import obligations
from uops.compiler.prove.solver.solver import SolverWorker
from uops.compiler.prove.typings import RuleTyping, TypedPattern, enumerate_rule_typings
from uops.compiler.prove.verdicts import ProofStatus, ProofVerdict, decide_obligation
from uops.compiler.rewrite.pattern import operation, variables
from uops.compiler.rewrite.rule import Rule
from uops.fuzz.bisect.replay import replay_counterexample
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import SHIFT, Op

MUTANTS: Mapping[str, list[Mutant]] = defaultdict(list)
for _mutant in mutants():
    MUTANTS[_mutant.rule.name].append(_mutant)
SAMPLES = 400
#: Rules with mutants on which the solver runs into its time limit.
SLOW = {"widen-nested", "recombine", "div-mod"}
#: Mutants of which neither the solver nor random values say anything in the time they have, with the reason.
OPEN = {
    "recombine: int8 for index": "true, as a quotient and its remainder belong together modulo 2^n too; it has six variables",
}


@pytest.fixture(scope="module")
def worker() -> Iterator[SolverWorker]:
    w = SolverWorker(seconds=60.0)
    yield w
    w.close()


def verdict(m: Mutant, worker: SolverWorker) -> ProofVerdict | None:
    """The worst: refuted if one obligation is; None where no dtypes fit the mutant."""
    found = None
    for o in obligations(m.rule):
        v = decide_obligation(worker, o)
        if v.status is ProofStatus.REFUTED:
            return v
        found = v if found is None or found.status in (ProofStatus.PROVED, ProofStatus.VACUOUS) else found
    return found


def test_few_mutants_are_open() -> None:
    names = {m.name for ms in MUTANTS.values() for m in ms}
    assert set(OPEN) <= names
    assert len(OPEN) <= 0.01 * len(names)


def test_there_are_enough() -> None:
    assert sum(map(len, MUTANTS.values())) >= 200
    assert len({m.name for ms in MUTANTS.values() for m in ms}) == sum(map(len, MUTANTS.values()))


@pytest.mark.parametrize("rule", [pytest.param(r, marks=pytest.mark.slow) if r in SLOW else r for r in MUTANTS])
def test_every_mutant_is_refuted_or_is_true(rule: str, worker: SolverWorker) -> None:
    statuses: Counter[str] = Counter()
    for m in MUTANTS[rule]:
        v = verdict(m, worker)
        if v is None:
            statuses["ill-typed"] += 1
            continue
        statuses[v.status.value] += 1
        if v.status is ProofStatus.REFUTED:
            seen = replay_counterexample(RuleCounterexample.from_refuted_verdict(m.rule, v))
            assert seen.confirmed, f"{m.name} at {dict(v.values)}: {seen.words}"
        elif v.status is ProofStatus.UNKNOWN and (m.name in OPEN or difference(m.rule) is not None):
            continue  # the interpreter refutes what the solver does not
        else:
            assert v.status in (ProofStatus.PROVED, ProofStatus.VACUOUS), f"{m.name}: {v.status.value} {v.by}"
            assert (found := difference(m.rule)) is None, f"{m.name} was proved, but {found}"
    assert statuses[ProofStatus.REFUTED.value] > 0 or len(MUTANTS[rule]) < 4, statuses


# The other judge: a rule on values drawn at random, in the interpreter


def difference(rule: Rule) -> str | None:
    """Values of small integers, and of edges, on which the sides of a rule differ under its condition."""
    for a in enumerate_rule_typings(rule):
        found = _difference(rule, a)
        if found is not None:
            return found
    return None


def _difference(rule: Rule, a: RuleTyping) -> str | None:
    rng = np.random.default_rng(len(rule.name))
    env, inputs = dict[str, UOp](), dict[str, np.ndarray]()
    solved = _solved(a)
    names = [n for n in a.types if isinstance(n, str) and _is_variable(rule, n)]
    for slot, name in enumerate(n for n in names if n not in solved):
        d = a.types[name]
        stored = dt.int64 if d is dt.index else d
        counts = not stored.is_signed or _shifts(a.lhs) or _shifts(a.rhs)  # a negative count of an index traps
        low, high = (0, 2) if d is dt.bool_ else (0, 25) if counts else (-12, 13)
        values = rng.integers(low, high, SAMPLES)
        inputs[f"p{slot}"] = values.astype(stored.name) if stored.name != "bool" else values.astype(np.bool_)
        env[name] = b.cast(b.param(slot, (SAMPLES,), stored), d)
    for name, definition in solved.items():
        env[name] = instantiate_typed_pattern(definition, env)
    assert a.rhs is not None
    holds = np.ones(SAMPLES, bool)
    for c in a.when:
        holds &= _run(instantiate_typed_pattern(c, env), inputs).astype(bool)
    left, right = (np.broadcast_to(_run(instantiate_typed_pattern(t, env), inputs), SAMPLES) for t in (a.lhs, a.rhs))
    wrong = np.flatnonzero(holds & (left != right) & ~((left != left) & (right != right)))
    return None if not len(wrong) else str({k: v[wrong[0]] for k, v in inputs.items()})


def _shifts(t: TypedPattern | None) -> bool:
    return t is not None and (t.pattern.op in SHIFT or any(map(_shifts, t.src)))


def _is_variable(rule: Rule, name: str) -> bool:
    return any(name in variables(p) for p in (rule.lhs, rule.rhs, rule.when) if p is not None)


def _solved(a: RuleTyping) -> dict[str, TypedPattern]:
    """Variables that an equation of the condition defines, each by free ones and by those before it."""
    found: dict[str, TypedPattern] = {}
    for c in a.when:
        if c.pattern.op is not Op.CMPEQ:
            continue
        for one, other in (c.src, c.src[::-1]):
            name, definition = _definition(one, other)
            earlier = {n for t in found.values() for n in variables(t.pattern)}
            if name is not None and name not in found and name not in variables(definition.pattern) and name not in earlier:
                found[name] = definition
                break
    return found


def _definition(one: TypedPattern, other: TypedPattern) -> tuple[str | None, TypedPattern]:
    """What `one == other` says of a variable: x is `other`, or of x + y that x is `other` - y."""
    if one.pattern.op is Op.ADD and one.src[0].pattern.name is not None:
        rest = operation(Op.SUB, other.pattern, one.src[1].pattern)
        return one.src[0].pattern.name, TypedPattern(rest, other.dtype, (other, one.src[1]))
    return one.pattern.name, other


def _run(u: UOp, inputs: dict[str, np.ndarray]) -> np.ndarray:
    used = {f"p{p.arg.slot}" for p in toposort(u) if p.op is Op.PARAM}
    return np.asarray(run(u, {k: v for k, v in inputs.items() if k in used}).values[0])
