"""The laws of index arithmetic are about what passes build; the wrong ones next to them are refuted."""

import pytest

from uops.compiler.ir.views import STEP, IndexArithmetic
from uops.compiler.prove import identities
from uops.compiler.prove.counterexample import RuleCounterexample
from uops.compiler.prove.identities import a, d, f, i, l, m, n, o, p, u, x, y
from uops.compiler.prove.obligations import obligations
from uops.compiler.prove.solver.solver import SolverWorker
from uops.compiler.prove.verdicts import ProofStatus, decide_obligation
from uops.compiler.rewrite.pattern import Pattern, as_pattern, instantiate
from uops.compiler.rewrite.rule import Rule
from uops.fuzz.bisect.replay import replay_counterexample
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp

LAWS = {law.name: law for law in identities.RULES}
PLAIN = IndexArithmetic(lambda node: node)
NODES = {name: b.variable(name, 1, 9) for name in "ailmnopxyf"}


def node(of: Pattern) -> UOp:
    return instantiate(of, NODES)


def test_positions_are_written_and_read_as_the_laws_of_reshape_say() -> None:
    flat = PLAIN.flatten([NODES["x"], NODES["l"]], [NODES["n"], NODES["p"]])
    assert flat is node(LAWS["reshape-leaves-the-left"].lhs.src[0]) is node(x * p + l)
    quotient, rest = PLAIN.unflatten(NODES["f"], (NODES["n"], NODES["p"]))
    assert node(LAWS["reshape-finds-all"].lhs) is b.add(b.mul(quotient, NODES["p"]), rest)
    assert (quotient, rest) == (node(f // p), node(f % p))


def test_movement_ops_index_as_the_laws_say() -> None:
    t, index = b.param(0, (NODES["n"],), dt.float32), (NODES["i"],)
    flipped, cut, padded = (
        b.flip(t, [True]),
        b.shrink(t, [NODES["o"]], [NODES["a"]]),
        b.pad(t, [NODES["a"]], [b.add(NODES["n"], 20)]),
    )
    assert STEP[flipped.op](PLAIN, flipped, index).coords == (node((n - i) - 1),)
    assert STEP[cut.op](PLAIN, cut, index).coords == (node(i + o),)
    step = STEP[padded.op](PLAIN, padded, index)
    assert step.coords == (node(i - a),)
    assert step.gate is node((i - a >= 0) & (i - a < n))


WRONG = (
    Rule("reshape-of-a-digit-too-great", (x * p + l) % p, l, when=(l >= 0) & (l <= p)),
    Rule("reshape-of-a-negative-digit", (x * p + l) // p, x, when=l < p),
    Rule("reshape-in-two-steps-of-any-sign", (f // p) // n, f // (n * p)),
    Rule("flip-off-by-one", n - (n - i), (n - 1) - i),
    Rule("pad-twice-cut", (i - a) - (n + a), i - n),
    Rule("selected-at-the-bound", (x >= 0) & (x < n + 1), (x >= 0) & (x < n), when=n >= 0),
    Rule("fast-division-unbounded", (n * m) // u, n // d, when=(d > 0) & (u > 0) & (n >= 0) & (m * d >= u)),
    Rule("quotient-of-any-multiple", (x * y) // y, x),
    Rule("within-of-nothing", (x >= 0) & (x < 1), as_pattern(False)),
)


@pytest.fixture(scope="module")
def worker():
    w = SolverWorker(seconds=30.0)
    yield w
    w.close()


@pytest.mark.parametrize("rule", WRONG, ids=lambda r: r.name)
def test_a_wrong_law_is_refuted(rule: Rule, worker: SolverWorker) -> None:
    (o,) = obligations(rule)
    found = decide_obligation(worker, o)
    assert found.status is ProofStatus.REFUTED, found
    assert replay_counterexample(RuleCounterexample.from_refuted_verdict(rule, found)).confirmed
