"""The rules of fast-math: each fires and descends, is proved over the reals, and assumes what it has to and no more. False rules
and mutants are refuted, in fractions and in float64.
"""

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pytest
from rule_mutants import Mutant, real_mutants

from uops.compiler.prove.admission import is_rule_in_ledger
from uops.compiler.prove.counterexample import RuleCounterexample, instantiate_typed_pattern
from uops.compiler.prove.obligations import obligations
from uops.compiler.prove.solver.solver import SolverWorker
from uops.compiler.prove.typings import RuleTyping, TypedPattern, annotate_dtypes_if_well_typed, enumerate_rule_typings
from uops.compiler.prove.verdicts import ProofStatus, ProofVerdict, decide_obligation
from uops.compiler.rewrite.pattern import Pattern, as_pattern, maximum, ne, not_, operation, variables, where
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rule import Assumptions, Flaw, Rule
from uops.compiler.rewrite.rules import VALUES, further
from uops.compiler.rewrite.rules.fast_math import FAST_MATH, LAWS, THEMES, div, exp2, log2, recip, sqrt, x, y, z
from uops.fuzz.bisect.replay import replay_counterexample
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

RULES = [rule for rules in THEMES.values() for rule in rules]
Array = npt.NDArray[np.generic]


@pytest.fixture(scope="module")
def worker() -> Iterator[SolverWorker]:
    w = SolverWorker(seconds=30.0)
    yield w
    w.close()


def typing(rule: Rule) -> RuleTyping:
    """The typing of a rule in which all floats are float32."""
    return next(a for a in enumerate_rule_typings(rule) if all(d in (dt.float32, dt.bool_) for d in a.types.values()))


# The set


def test_every_rule_is_proved_and_none_is_a_default_rule() -> None:
    assert list(FAST_MATH) == RULES
    assert all(map(is_rule_in_ledger, (*FAST_MATH, *LAWS)))
    assert not {r.name for r in FAST_MATH} & {r.name for r in (*VALUES, *further.FURTHER)}
    assert all(r.assumes is not None for r in FAST_MATH)
    assert all(r.assumes is None for r in (*VALUES, *further.FURTHER))


def test_a_rule_says_what_it_assumes() -> None:
    assert str(next(r for r in RULES if r.name == "real-zero-div")).endswith("-> 0.0 assuming no NaN, no signed zero, (x != 0.0)")


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_a_rule_fires_and_lowers_the_cost(rule: Rule) -> None:
    env = {}
    for slot, (name, v) in enumerate(variables(rule.lhs).items()):
        d = dt.bool_ if v.dtypes == (dt.bool_,) else dt.float32
        env[name] = b.const(2.0 + slot, d) if v.constant else b.param(slot, (), d)
    left = instantiate_typed_pattern(typing(rule).lhs, env)
    assert Rewriter((rule,), check=True)(left) is not left


# What it assumes: enough for float32, and needed

EDGES = (0.0, -0.0, 1.0, 0.7, 2.3, -3.1, 120.0, 140.0, 1e-39, 1e-30, 3e38, -2e38, np.inf, -np.inf, np.nan)
#: Ops of which an answer may be another one than here: which zero is the greatest (R11), and how a power is rounded (R18).
FREE = {Op.MAX: Flaw.ZERO, Op.POW: Flaw.ROUNDING}
CONSTANTS = (0.7, -2.5, 3e38, 0.1)


@functools.cache
def sides(rule: Rule) -> tuple[Array, Array, dict[Flaw, npt.NDArray[np.bool_]], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Both sides on the edges, which flaws are met there, where the conditions hold, and where rounding could be far."""
    names = {n: v for p in (rule.lhs, rule.rhs) for n, v in variables(p).items() if n != "k" or rule.witness is None}
    pools = [(False, True) if v.dtypes == (dt.bool_,) else CONSTANTS if v.constant else EDGES for v in names.values()]
    points = list(itertools.product(*pools))
    env, inputs = {}, {}
    for slot, (name, v) in enumerate(names.items()):
        d = dt.bool_ if v.dtypes == (dt.bool_,) else dt.float32
        inputs[f"p{slot}"] = np.array([pt[slot] for pt in points], np.bool_ if d is dt.bool_ else np.float32)
        env[name] = b.param(slot, (len(points),), d)
    form = rule.evaluated_pattern
    typed = typing(rule)
    assert typed.rhs is not None
    if form is not None:
        promise = annotate_dtypes_if_well_typed(form, typed.types, dt.float32)
        assert promise is not None
        env["k"] = instantiate_typed_pattern(promise, env)
    left, right = instantiate_typed_pattern(typed.lhs, env), instantiate_typed_pattern(typed.rhs, env)
    holds = np.ones(len(points), bool)
    for p in typed.when:
        holds &= value(instantiate_typed_pattern(p, env), inputs).astype(bool)
    if form is not None and form.op not in (Op.ADD, Op.SUB):
        k = np.abs(value(env["k"], inputs).astype(float))
        holds &= (k >= 2.0**-126) & (k < np.inf)
    met = {f: np.zeros(len(points), bool) for f in Flaw}
    sizes = np.zeros(len(points))
    for u in toposort(left, right):
        if u.dtype is dt.float32:
            v = np.broadcast_to(value(u, inputs), len(points)).astype(float)
            met[Flaw.NAN] |= np.isnan(v)
            met[Flaw.INFINITY] |= np.isinf(v)
            met[Flaw.ZERO] |= v == 0
            sizes = np.fmax(sizes, np.where(np.isfinite(v), np.abs(v), 0))
    far = (sizes > 100) | met[Flaw.ZERO]
    return value(left, inputs), value(right, inputs), met, holds, far


def value(u: UOp, inputs: Mapping[str, Array]) -> Array:
    used = {f"p{p.arg.slot}" for p in toposort(u) if p.op is Op.PARAM}
    found: Array = np.asarray(run(u, {n: v for n, v in inputs.items() if n in used}).values[0])
    return found


def wrong(rule: Rule, flaws: tuple[Flaw, ...]) -> bool:
    """Whether there is a point without these flaws where the sides differ."""
    left, right, met, holds, far = sides(rule)
    left, right = np.broadcast_arrays(left, right, subok=True)
    a, c = left.astype(float), right.astype(float)
    same = (a == c) | (np.isnan(a) & np.isnan(c))
    if Flaw.ZERO not in flaws:
        same &= (np.signbit(a) == np.signbit(c)) | np.isnan(a)
    for f in flaws:
        if f is not Flaw.ROUNDING and f is not Flaw.ZERO:
            holds = holds & ~met[f]
    if Flaw.ROUNDING in flaws:
        with np.errstate(all="ignore"):
            near = np.abs(a - c) <= 1e-4 * np.maximum(1, np.maximum(np.abs(a), np.abs(c)))
        same |= (near | far) & np.isfinite(a) & np.isfinite(c)
    return bool((holds & ~same).any())


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_a_rule_assumes_what_it_needs_and_no_more(rule: Rule) -> None:
    assert rule.assumes is not None
    flaws = rule.assumes.flaws
    assert not wrong(rule, flaws), "more has to be assumed"
    free = {f for op, f in FREE.items() if op in ops(rule.lhs) | ops(rule.rhs)}
    for f in flaws:
        assert f in free or wrong(rule, tuple(g for g in flaws if g is not f)), f"{f.value} need not be assumed"


def ops(p: Pattern) -> set[Op | None]:
    return {p.op}.union(*map(ops, p.src))


# False rules

_ALL = (Flaw.NAN, Flaw.INFINITY, Flaw.ZERO, Flaw.ROUNDING)


def _false(name: str, lhs: Pattern, rhs: Pattern, values: Pattern | None = None) -> Rule:
    return Rule(name, lhs, rhs, assumes=Assumptions(_ALL, values))


FALSE = (
    _false("div-self-of-anything", div(x, x), as_pattern(1.0)),
    _false("mul-recip-of-anything", x * recip(x), as_pattern(1.0)),
    _false("zero-div-of-anything", div(0.0, x), as_pattern(0.0)),
    _false("div-then-mul-of-anything", div(x, y) * y, x),
    _false("div-is-associative", div(x, div(y, z)), div(div(x, y), z), ne(y, 0.0) & ne(z, 0.0)),
    _false("sub-is-associative", x - (y - z), (x - y) - z),
    _false("common-factor-twice", x * y + x * z, (x * x) * (y + z)),
    _false("common-dividend", div(x, y) + div(x, z), div(x, y + z), ne(y, 0.0) & ne(z, 0.0) & ne(y + z, 0.0)),
    _false("recip-of-a-sum", recip(x + y), recip(x) + recip(y), (x > 0.0) & (y > 0.0)),
    _false("sqrt-of-a-square-has-no-sign", sqrt(x * x), x),
    _false("sqrt-squared-of-anything", sqrt(x) * sqrt(x), x),
    _false("sqrt-of-a-sum", sqrt(x + y), sqrt(x) + sqrt(y), (x >= 0.0) & (y >= 0.0)),
    _false("sqrt-product-of-anything", sqrt(x) * sqrt(y), sqrt(x * y)),
    _false("sub-self-is-itself", x - x, x),
    _false("negated-sub-same", -(x - y), x - y),
    _false("max-is-the-first", maximum(x, y), x),
    _false("max-of-negated", maximum(-x, -y), -maximum(x, y)),
    _false("where-lt-min", where(x < y, x, y), maximum(x, y)),
    _false("not-lt-is-lt", not_(x < y), y < x),
    _false("mulacc-grouped", operation(Op.MULACC, x, y, z), x * (y + z)),
    _false("negated-quotient-keeps-sign", div(-x, y), div(x, y), ne(y, 0.0)),
)
#: Of these the solver knows too little to name values: the functions are some that obey their laws.
FUNCTIONS = (
    _false("exp2-of-a-product", exp2(x * y), exp2(x) * exp2(y)),
    _false("exp2-sum", exp2(x) + exp2(y), exp2(x + y)),
    _false("log2-of-a-sum", log2(x + y), log2(x) + log2(y), (x > 0.0) & (y > 0.0)),
    _false("log2-product", log2(x) * log2(y), log2(x * y), (x > 0.0) & (y > 0.0)),
    _false("exp2-log2-of-anything", exp2(log2(x)), x),
    _false("log2-quotient-turned", log2(x) - log2(y), log2(div(y, x)), (x > 0.0) & (y > 0.0)),
    _false("sin-is-odd-not-even", operation(Op.SIN, -x), operation(Op.SIN, x)),
)
#: Rules on which the solver runs into its time limit.
SLOW = {"sin-is-odd-not-even"}


def verdict(rule: Rule, worker: SolverWorker) -> ProofVerdict | None:
    """That of its first typing: the texts of all are the same."""
    return next((decide_obligation(worker, o) for o in obligations(rule)), None)


@pytest.mark.parametrize("rule", FALSE, ids=lambda r: r.name)
def test_a_false_rule_is_refuted_in_fractions_and_in_float64(rule: Rule, worker: SolverWorker) -> None:
    v = verdict(rule, worker)
    assert v is not None and v.status is ProofStatus.REFUTED, v
    seen = replay_counterexample(RuleCounterexample.from_refuted_verdict(rule, v))
    assert seen.confirmed, seen.words


@pytest.mark.parametrize(
    "rule", [pytest.param(r, marks=pytest.mark.slow) if r.name in SLOW else r for r in FUNCTIONS], ids=lambda r: r.name
)
def test_a_false_rule_of_functions_is_not_proved_and_float64_refutes_it(rule: Rule, worker: SolverWorker) -> None:
    v = verdict(rule, worker)
    assert v is not None and v.status in (ProofStatus.UNKNOWN, ProofStatus.REFUTED), v
    assert difference(rule) is not None


def test_a_rule_whose_assumption_never_holds_is_vacuous(worker: SolverWorker) -> None:
    v = verdict(_false("nowhere", x + 1.0, x, (x > 0.0) & (x < 0.0)), worker)
    assert v is not None and v.status is ProofStatus.VACUOUS


# Mutants

MUTANTS: Mapping[str, list[Mutant]] = defaultdict(list)
for _mutant in real_mutants():
    MUTANTS[_mutant.rule.name].append(_mutant)


#: Mutants of which the solver says nothing, and that are true of floats all the same: they assume less of a power or of exp2
#: (log2 x), which have values for 0 and for negative numbers too (R18), but none over the reals.
OPEN = tuple(f"real-{name}: assumes: " for name in ("exp2-log2", "power-half", "power-minus-one", "power-one"))


def test_there_are_enough_mutants() -> None:
    names_ = [m.name for ms in MUTANTS.values() for m in ms]
    assert len(names_) >= 400
    assert sum(n.startswith(OPEN) for n in names_) <= 0.04 * len(names_)


@pytest.mark.parametrize("rule", MUTANTS)
def test_every_mutant_is_refuted_or_is_true(rule: str, worker: SolverWorker) -> None:
    for m in MUTANTS[rule]:
        v = verdict(m.rule, worker)
        if v is None or v.obligation.refutation is not None:
            continue  # ill-typed
        if v.status is ProofStatus.REFUTED:
            seen = replay_counterexample(RuleCounterexample.from_refuted_verdict(m.rule, v))
            assert seen.confirmed, f"{m.name} at {dict(v.values)}: {seen.words}"
        elif v.status is ProofStatus.UNKNOWN:
            assert m.name.startswith(OPEN) or difference(m.rule) is not None, f"{m.name}: {v.by}"
        else:
            assert (found := difference(m.rule)) is None, f"{m.name} was proved, but {found}"


def difference(rule: Rule) -> str | None:
    """Values on which the sides of a rule differ by more than rounding in float64, or the left one is none, as it assumes."""
    a = next(iter(enumerate_rule_typings(rule)))
    rng = np.random.default_rng(len(rule.name))
    env, inputs = dict[str, UOp](), dict[str, Array]()
    form = rule.evaluated_pattern
    for slot, (name, d) in enumerate((n, d) for n, d in a.types.items() if isinstance(n, str) and n in names(rule)):
        if name == "k" and form is not None:
            continue
        whole = rng.integers(-3, 4, 400).astype(np.float64)
        inputs[f"p{slot}"] = whole > 0 if d is dt.bool_ else np.where(rng.random(400) < 0.5, whole, rng.uniform(-3, 3, 400))
        env[name] = b.param(slot, (400,), dt.bool_ if d is dt.bool_ else dt.float64)
    if form is not None:
        promise = annotate_dtypes_if_well_typed(form, a.types, a.types["k"])
        assert promise is not None
        env["k"] = instantiate_typed_pattern(wide(promise), env)
    assert a.rhs is not None
    holds = np.ones(400, bool)
    for c in a.when:
        holds &= value(instantiate_typed_pattern(wide(c), env), inputs).astype(bool)
    left, right = (
        np.broadcast_to(value(instantiate_typed_pattern(wide(t), env), inputs), 400).astype(float) for t in (a.lhs, a.rhs)
    )
    with np.errstate(all="ignore"):
        same = np.abs(left - right) <= 1e-6 * np.maximum(1, np.maximum(np.abs(left), np.abs(right)))
    bad = np.flatnonzero(holds & ~(same & np.isfinite(left)))
    return None if not len(bad) else str({k: v[bad[0]] for k, v in inputs.items()})


def names(rule: Rule) -> set[str]:
    return {n for p in (rule.lhs, rule.rhs, rule.when) if p is not None for n in variables(p)}


def wide(t: TypedPattern) -> TypedPattern:
    return TypedPattern(t.pattern, dt.float64 if t.dtype.is_float else t.dtype, tuple(map(wide, t.src)))


@pytest.mark.parametrize(("factor", "fires"), [(2.0**-60, True), (2.0**-70, False), (2.0**70, False)])
def test_a_product_of_constants_that_underflows_or_overflows_is_left_alone(factor: float, fires: bool) -> None:
    """Of 2^-60 and 2^-60 the product is a normal number of float32, of 2^-70 and 2^-70 it is none."""
    (rule,) = (r for r in FAST_MATH if r.name == "real-mul-constants")
    p = b.param(0, (), dt.float32)
    assert (rule.apply(b.mul(b.mul(p, factor), factor)) is not None) is fires
