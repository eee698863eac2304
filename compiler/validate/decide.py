"""Claims decided: by sums and intervals, by trying every point, and by the solver, in this order.

Takes: a `Claim`. Gives: a `Verdict`; an answer of none of the three is no proof. `query` is the text of a claim for the solver:
it is unsatisfiable where the claim holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from uops.compiler.prove.casts import wrap
from uops.compiler.prove.model import Form, Model, Value
from uops.compiler.prove.semantics import mean
from uops.compiler.prove.solver import smt
from uops.compiler.prove.solver.smt import Term
from uops.compiler.prove.solver.solver import Worker
from uops.compiler.validate import terms as T
from uops.compiler.validate.budget import BudgetUnit, pay, remaining
from uops.compiler.validate.model import By, Claim, Counterexample, Verdict
from uops.compiler.validate.terms import App, Atom, Cond, Interval, Lin, Numbers, Var
from uops.spec.ir import dtypes as dt
from uops.spec.ir.ops import Op

#: Points that are tried one by one, per claim.
POINTS = 1 << 21
#: Steps of the solver for one claim, and for one about what memory holds: such a proof takes few steps, or is not found.
STEPS = 20_000_000
HELD_STEPS = 1_000_000
_INT64 = (1 << 62) - 1


def decide(c: Claim, worker: Worker) -> Verdict:
    """What is true of a claim."""
    return Verdict(c.kind, c.place, By.SUMS) if by_sums(c) else by_points(c) or by_solver(c, worker)


# Sums


def by_sums(c: Claim) -> bool:
    """Whether intervals, and differences with what is given, show the claim. An index is without the choices that its gate makes
    (`terms.under`), so that the gate is looked at without them, too."""
    facts = facts_of(c.given)
    if _is_shown(c.goal, facts):
        return True
    given = T.conjuncts(c.given)
    chosen = [f for f, x in ((T.under(x, given), x) for x in facts) if f is not x]
    return bool(chosen) and _is_shown(c.goal, [*facts, *chosen])


def _is_shown(goal: Cond, facts: Sequence[Lin]) -> bool:
    known = tightened(facts)
    return known is None or all(_follows(g, facts, known) for g in T.conjuncts(goal))


def facts_of(given: Cond) -> list[Lin]:
    """Sums that are at least 0 where a condition holds."""
    found = []
    for x in T.conjuncts(given):
        if x.op == ">=0":
            found.append(x.args[0])
        elif x.op == "==0":
            found += [x.args[0], T.scale(x.args[0], -1)]  # type: ignore[arg-type]
        elif x == T.FALSE:
            found.append(Lin(-1))
        elif x.op == "not" and x.args[0].op == ">=0":  # type: ignore[union-attr]
            found.append(T.add(Lin(-1), x.args[0].args[0], -1))  # type: ignore[union-attr,arg-type]
    return found  # type: ignore[return-value]


def tightened(facts: Sequence[Lin]) -> dict[Atom, Interval] | None:
    """The bounds that single atoms have where the facts hold; None where they cannot."""
    known: dict[Atom, Interval] = {}
    for _ in range(2):
        for f in facts:
            spans = [(t, c, T.bounds(T.of(t), known)) for t, c in f.terms]
            top = f.const + sum(c * high if c > 0 else c * low for _, c, (low, high) in spans)
            if top < 0:
                return None
            for t, c, (low, high) in spans:
                rest = top - (c * high if c > 0 else c * low)  # the most that the others give
                now = (max(low, -(rest // c)), high) if c > 0 else (low, min(high, rest // -c))
                if now[0] > now[1]:
                    return None
                if now != (low, high):
                    known[t] = now
    return known


def _follows(goal: Cond, facts: Sequence[Lin], known: Mapping[Atom, Interval]) -> bool:
    if goal.op == "or":
        return any(all(_follows(x, facts, known) for x in T.conjuncts(g)) for g in goal.args)  # type: ignore[arg-type]
    if goal.op != ">=0":
        return False
    (sum_,) = goal.args
    assert isinstance(sum_, Lin)
    return _at_least_zero(sum_, facts, known, 2)


def _at_least_zero(a: Lin, facts: Sequence[Lin], known: Mapping[Atom, Interval], depth: int) -> bool:
    """a >= 0, by its interval or as a fact times k plus something at least 0."""
    if T.bounds(a, known)[0] >= 0:
        return True
    if not depth:
        return False
    mine = dict(a.terms)
    for f in facts:
        for k in {mine[t] // c for t, c in f.terms if t in mine and mine[t] % c == 0}:
            if k > 0 and _at_least_zero(T.add(a, f, -k), facts, known, depth - 1):
                return True
    return False


# Points


def grid(unknowns: Sequence[Var], limit: int = POINTS) -> dict[Var, Numbers] | None:
    """Every value of each unknown along an axis of its own, so that NumPy pairs them all; None where there are too many."""
    if math.prod(v.high - v.low + 1 for v in unknowns) > limit or any(v.loaded for v in unknowns):
        return None
    n = len(unknowns)
    return {
        v: np.arange(v.low, v.high + 1, dtype=np.int64).reshape([-1 if j == k else 1 for j in range(n)])
        for k, v in enumerate(unknowns)
    }


def exact(*found: Lin | Cond) -> bool:
    """Whether no step of these leaves int64, and each is known."""
    if any(map(T.has_held, found)):
        return False
    for x in T.subterms(*found):
        if isinstance(x, Lin):
            if max(map(abs, T.bounds(x))) > _INT64 or any(abs(c) > _INT64 for _, c in x.terms):
                return False
        elif isinstance(x, App) and x.op in ("shl", "shr"):
            return False
    return True


def by_points(c: Claim) -> Verdict | None:
    """The claim at every point; None where there are too many, or a value is not known."""
    unknowns = list(T.unknowns(c.goal, T.unknowns(c.given)))
    at = grid(unknowns) if exact(c.given, c.goal) else None
    if at is None:
        return None
    wrong = np.logical_and(T.values(c.given, at), np.logical_not(T.values(c.goal, at)))
    if not wrong.any():
        return Verdict(c.kind, c.place, By.POINTS)
    where = np.unravel_index(int(np.argmax(wrong)), wrong.shape) if wrong.ndim else ()
    return refuted(c, By.POINTS, {v.name: int(at[v].reshape(-1)[_digit(where, wrong.shape, k)]) for k, v in enumerate(unknowns)})


def _digit(where: Sequence[np.intp], shape: Sequence[int], k: int) -> int:
    return int(where[k]) if k < len(where) and shape[k] > 1 else 0


def refuted(c: Claim, by: By, values: Mapping[str, int]) -> Verdict:
    words = ", ".join(f"{k} = {v}" for k, v in values.items()) or "always"
    return Verdict(c.kind, c.place, by, Counterexample(dict(values), f"not for {words}" if values else words))


# The solver


def by_solver(c: Claim, worker: Worker, cost: BudgetUnit = BudgetUnit.STEPS) -> Verdict:
    """What the solver says of a claim. Raises Spent."""
    steps = remaining(cost, HELD_STEPS if cost is BudgetUnit.HELD_STEPS else STEPS)
    text, names, whole = query(c)
    answer = worker.ask(text, steps, list(names))
    pay(cost, min(steps, answer.steps))
    if answer.result == "unsat":
        return Verdict(c.kind, c.place, By.SOLVER)
    if answer.result == "sat" and whole:
        return refuted(c, By.SOLVER, {n: int(answer.model.get(n, names[n])) for n in names})
    why = answer.reason or "the solver's model is of a query that says less than the claim"
    return Verdict(c.kind, c.place, None, why=why)


def query(c: Claim) -> tuple[str, dict[str, int], bool]:
    """(text, unknowns by name with a value of each, whether a model of the text refutes the claim)."""
    m = Model(Form.WHOLE, Form.WHOLE)
    unknowns = T.unknowns(c.goal, T.unknowns(c.given))
    terms = {v: smt.var(v.name, smt.INT) for v in unknowns}
    limits = [_within(terms[v], v) for v in unknowns]
    known: dict[object, Term] = {}
    given, goal = _condition(m, c.given, terms, known), _condition(m, c.goal, terms, known)
    text = smt.script([*limits, given, *m.facts, smt.not_(goal)])
    return text, {v.name: v.low for v in unknowns}, not m.abstract and not any(v.stored for v in unknowns)


def _within(t: Term, v: Var) -> Term:
    return smt.and_(smt.compare("<=", smt.integer(v.low), t), smt.compare("<=", t, smt.integer(v.high)))


def _condition(m: Model, c: Cond, at: Mapping[Var, Term], known: dict[object, Term]) -> Term:
    if c not in known:
        known[c] = _encode_condition(m, c, at, known)
    return known[c]


def _encode_condition(m: Model, c: Cond, at: Mapping[Var, Term], known: dict[object, Term]) -> Term:
    if c.op == "held":
        slot, element = c.args
        assert isinstance(element, Lin)
        return m.some(f"held-{slot}", _sum(m, element, at, known), sort=smt.BOOL)
    if c.op in _RELATION:
        (a,) = c.args
        assert isinstance(a, Lin)
        return smt.compare(_RELATION[c.op], _sum(m, a, at, known), smt.integer(0))
    return _LOGIC[c.op](*(_condition(m, a, at, known) for a in c.args if isinstance(a, Cond)))


def _sum(m: Model, a: Lin, at: Mapping[Var, Term], known: dict[object, Term]) -> Term:
    if a not in known:
        parts = []
        for t, k in a.terms:
            one = at[t] if isinstance(t, Var) else _app(m, t, at, known)
            parts.append(one if k == 1 else smt.times(smt.integer(k), one))
        if a.const or not parts:
            parts.append(smt.integer(a.const))
        known[a] = parts[0] if len(parts) == 1 else smt.app("+", *parts, sort=smt.INT)
    return known[a]


def _app(m: Model, t: App, at: Mapping[Var, Term], known: dict[object, Term]) -> Term:
    if t not in known:
        args = [_condition(m, a, at, known) if isinstance(a, Cond) else _sum(m, a, at, known) for a in t.args]
        if t.op == "where":
            known[t] = smt.ite(*args)
        elif t.op.startswith("held-"):
            known[t] = m.some(t.op, args[0], sort=smt.INT)
            low, high = T.storage(t.op)
            m.facts.append(smt.and_(smt.compare("<=", smt.integer(low), known[t]), smt.compare("<=", known[t], smt.integer(high))))
        elif t.op == "table":
            known[t] = args[-1]
            for k, value in enumerate(args[1:-1]):
                known[t] = smt.ite(smt.same(args[0], smt.integer(k)), value, known[t])
        elif t.op.startswith("wrap-"):
            known[t] = wrap(_DTYPES[t.op[5:]], args[0])
        else:
            known[t] = mean(m, _OPS[t.op], [Value(dt.index, a) for a in args]).term
    return known[t]


_DTYPES = {d.short: d for d in dt.INTS}
_RELATION = {">=0": ">=", "==0": "="}
_LOGIC: dict[str, Callable[..., Term]] = {"true": lambda: smt.TRUE, "and": smt.and_, "or": smt.or_, "not": smt.not_}
_OPS = {
    "idiv": Op.IDIV, "mod": Op.MOD, "mul": Op.MUL, "max": Op.MAX, "and": Op.AND, "or": Op.OR, "xor": Op.XOR, "shl": Op.SHL,
    "shr": Op.SHR,
}  # fmt: skip


def renamed(v: Var, mark: str) -> Var:
    """The same unknown in another copy of the claim's world."""
    return Var(f"{v.name}{mark}", v.low, v.high, v.loaded, v.stored)
