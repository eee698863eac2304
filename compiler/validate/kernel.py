"""The obligations of one kernel: its instructions against its body before scheduling.

Takes: the KERNEL body, and the LINEAR (or PROGRAM) that the passes made of it. Gives: a verdict per obligation.
Spec: Lowering Pipeline; R08 (index), R45 (Index), R52 (Load), R55 (races), R60 (Barrier), R61 (fresh buffers), R146 (values kept in
memory).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from uops.compiler.prove.solver import smt
from uops.compiler.prove.solver.solver import SolverWorker
from uops.compiler.validate import terms as T
from uops.compiler.validate.budget import BudgetExhausted, limit_kernel_budget
from uops.compiler.validate.decide import decide_claim
from uops.compiler.validate.model import ClaimCounterexample, ObligationKind, ValidationClaim, ValidationVerdict
from uops.compiler.validate.races import decide_races
from uops.compiler.validate.reader import read_accesses
from uops.compiler.validate.sites import AccessSite, KernelAccesses, address_of, loop_counter, named_variable
from uops.compiler.validate.sums import decide_writes_of_memory_with_atomics
from uops.compiler.validate.terms import Condition, LinearSum, Operation, Unknown
from uops.compiler.validate.writes import (
    decide_reads_within_old_reads_or_own_writes,
    decide_written_once_and_same_elements,
    group_sites_by_param,
    is_known_to_write_element_twice,
)
from uops.spec.ir import build as B
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import COUNTERS, MEMORY_ROOTS, Op
from uops.spec.ir.scope import is_variable

#: Greatest number of combinations of named variables that are decided one by one.
MAX_VARIABLE_VALUES = 128


def validate_kernel(before: UOp, after: UOp, worker: SolverWorker) -> list[ValidationVerdict]:
    """Decide every obligation of a kernel, those of the same form once.

    If the budget runs out, one undecided verdict stands for the rest.
    """
    verdicts: list[ValidationVerdict] = []
    try:
        with limit_kernel_budget():
            _decide_obligations_and_append_verdicts(before, after, worker, verdicts)
    except BudgetExhausted as e:
        verdicts.append(
            ValidationVerdict(verdicts[-1].kind if verdicts else ObligationKind.BOUNDS, "the rest of the kernel", None, why=str(e))
        )
    finally:
        smt.clear_interned_terms()
    return verdicts


def _decide_obligations_and_append_verdicts(
    before: UOp, after: UOp, worker: SolverWorker, verdicts: list[ValidationVerdict]
) -> None:
    """Append the verdicts of a kernel to `verdicts`. Raises BudgetExhausted.

    A list of instructions that no pass has changed has no obligations (R166, kernels written by hand).
    """
    if before.op is Op.LINEAR and tuple(u for u in after.src if u.op not in MEMORY_ROOTS or u in before.src) == before.src:
        return
    old, new = read_accesses(before), read_accesses(after)
    done: set[object] = set()
    verdicts += [decide_claim(c, worker) for c in dict.fromkeys(generate_position_claims(new))]
    for s in new.sites:
        for c in (make_bounds_claim(s), *generate_no_wrap_claims(s)):
            key = c.given, c.goal
            if key not in done:
                done.add(key)
                verdicts.append(_attach_counterexample_index_to_refutation(decide_claim(c, worker), s))
    if all(v.is_proved for v in verdicts if v.kind is ObligationKind.BOUNDS):
        verdicts += _decide_agreement_and_new_races_per_variable_value(old, new, worker)


def _decide_agreement_and_new_races_per_variable_value(
    old: KernelAccesses, new: KernelAccesses, worker: SolverWorker
) -> Sequence[ValidationVerdict]:
    """Decide the obligations between accesses, for each value of the named variables if there are few.

    Raises BudgetExhausted.
    """
    all_verdicts: dict[tuple[ObligationKind, str], ValidationVerdict] = {}
    for values in enumerate_few_assignments_or_one_empty(old, new):
        replacements = {v: LinearSum(n) for v, n in values.items()}
        a, b = old.substitute(replacements), new.substitute(replacements)
        verdicts = [*_decide_write_and_read_agreement(a, b, worker), *decide_races(b, worker)]
        if not values:
            return verdicts
        for v in verdicts:
            all_verdicts.setdefault((v.kind, v.place), v)
            if not v.is_proved:
                return [*(w for w in all_verdicts.values() if w.is_proved), _attach_variable_values(v, values)]
    return list(all_verdicts.values())


def enumerate_few_assignments_or_one_empty(*bodies: KernelAccesses) -> list[dict[Unknown, int]]:
    """Return all values of the named variables; one empty assignment if there are none or too many."""
    names = list(dict.fromkeys(v for b in bodies for s in b.sites for v in s.named_argument_variables))
    if not names or math.prod(v.high - v.low + 1 for v in names) > MAX_VARIABLE_VALUES:
        return [{}]
    return [dict(zip(names, values)) for values in itertools.product(*(range(v.low, v.high + 1) for v in names))]


def _attach_variable_values(verdict: ValidationVerdict, values: Mapping[Unknown, int]) -> ValidationVerdict:
    """Add values of the named variables to a verdict that holds for them."""
    named = {n.name: x for n, x in values.items()}
    words = ", ".join(f"{k} = {x}" for k, x in named.items())
    if verdict.counterexample is None:
        return replace(verdict, why=f"{verdict.why}, where {words}")
    counterexample = verdict.counterexample
    return replace(
        verdict,
        counterexample=replace(
            counterexample, values={**named, **counterexample.values}, words=f"{counterexample.words}, where {words}"
        ),
    )


def _decide_write_and_read_agreement(old: KernelAccesses, new: KernelAccesses, worker: SolverWorker) -> Iterator[ValidationVerdict]:
    """Decide that writes and reads of each argument agree with the body."""
    before = {m.arg.slot: s for m, s in group_sites_by_param(s for s in old.sites if s.writes).items()}
    after = group_sites_by_param(s for s in new.sites if s.writes)
    loaded = [{m.arg.slot for m in group_sites_by_param(s for s in b.sites if s.kind == "load")} for b in (old, new)]
    for m, sites in after.items():
        earlier = before.pop(m.arg.slot, [])
        is_loaded = [m.arg.slot in slots for slots in loaded]
        may_rewrite = is_loaded == [False, True] or is_known_to_write_element_twice(earlier, worker)
        yield from decide_written_once_and_same_elements(m, earlier, sites, may_rewrite, worker)
        yield from decide_writes_of_memory_with_atomics(m, earlier, sites, worker)
    for slot, sites in before.items():
        yield ValidationVerdict(ObligationKind.COVER, f"argument {slot}", None, None, f"{sites[0]} has no Store after")
    for m in group_sites_by_param(s for s in new.sites if not s.writes):
        yield from decide_reads_within_old_reads_or_own_writes(m.arg.slot, old, new, worker)


def make_bounds_claim(s: AccessSite) -> ValidationClaim:
    """Claim that an access is inside its memory if its gate holds (R45: Index)."""
    goal = T.conjoin(T.is_nonnegative(s.index), T.is_nonnegative(T.add(T.add(s.size, T.ONE, -1), s.index, -1)))
    return ValidationClaim(ObligationKind.BOUNDS, str(s), s.condition, goal)


def generate_position_claims(body: KernelAccesses) -> Iterator[ValidationClaim]:
    """Yield the claims that each position in a value is in range. A gate of an access does not guard it (R45: Index)."""
    for p in body.positions:
        goal = T.conjoin(T.is_nonnegative(p.position), T.is_nonnegative(T.add(LinearSum(p.extent - 1), p.position, -1)))
        yield ValidationClaim(ObligationKind.BOUNDS, f"a position in a value of {p.extent} elements", p.condition, goal)


def generate_no_wrap_claims(s: AccessSite) -> Iterator[ValidationClaim]:
    """Claim that index arithmetic does not wrap where the access happens (R08: index values are mathematical integers).

    Arithmetic on values of memory may wrap (R05: integer overflow).
    """
    parts = T.conjuncts(s.gate)
    for w in find_wraps_without_memory_values(s.index):
        yield _make_no_wrap_claim(w, s.condition, s)
    for k, g in enumerate(parts):
        for w in find_wraps_without_memory_values(g):
            given = s.loop_condition
            for earlier in parts[:k]:
                given = T.conjoin(given, earlier)
            yield _make_no_wrap_claim(w, given, s)


def _make_no_wrap_claim(wrapping: Operation, given: Condition, s: AccessSite) -> ValidationClaim:
    low, high = T.dtype_range_of_wrap_or_held_op(wrapping.op)
    (a,) = wrapping.args
    assert isinstance(a, LinearSum)
    goal = T.conjoin(T.is_nonnegative(T.add(a, LinearSum(low), -1)), T.is_nonnegative(T.add(LinearSum(high), a, -1)))
    return ValidationClaim(ObligationKind.WIDTH, f"{wrapping.op[5:]} in the index of {s}", given, goal)


def find_wraps_without_memory_values(x: LinearSum | Condition) -> Iterator[Operation]:
    """Yield the terms, over loops and variables alone, that a dtype may not hold."""
    for t in T.list_subterms_arguments_first(x):
        if (
            isinstance(t, Operation)
            and t.op.startswith("wrap-")
            and not T.has_memory_value(t)
            and not any(v.loaded for v in T.collect_unknowns(t))
        ):
            yield t


def _attach_counterexample_index_to_refutation(verdict: ValidationVerdict, s: AccessSite) -> ValidationVerdict:
    """Add to a refutation the graphs of the indices that show it."""
    counterexample = verdict.counterexample
    if counterexample is None:
        return verdict
    return replace(
        verdict,
        counterexample=replace(counterexample, graphs=tuple(build_counterexample_index_unless_loaded(s, counterexample))),
    )


def build_counterexample_index_unless_loaded(
    site: AccessSite, counterexample: ClaimCounterexample
) -> Iterator[tuple[str, UOp, int]]:
    """Yield the index of an access at the iteration of a counterexample, and its value, if both are known."""
    replacements: dict[UOp, UOp] = {}
    values = {
        v: LinearSum(counterexample.values.get(v.name, v.low))
        for v in T.collect_unknowns(site.condition, T.collect_unknowns(site.index))
    }
    if any(v.loaded for v in values) or T.has_memory_value(site.condition) or T.has_memory_value(site.index):
        return
    for u in toposort(site.node):
        if u.op in COUNTERS:
            replacements[u] = B.index(counterexample.values.get(loop_counter(u).name, 0))
        elif is_variable(u):
            v = named_variable(u)
            replacements[u] = B.index(counterexample.values.get(v.name, v.low))
    address = address_of(site.node)
    index = address.positions[0] if address.op is Op.INDEX else None
    lane = counterexample.values.get(site.lane.name, 0) if site.lane is not None else 0
    if index is not None and index.shape in ((), (1,)):
        yield "index", _substitute_nodes(index, replacements), _evaluate_constant(T.substitute(site.index, values))
    elif index is not None and index.op is Op.STACK:
        yield "index", _substitute_nodes(index.elements[lane], replacements), _evaluate_constant(T.substitute(site.index, values))


def _substitute_nodes(u: UOp, replacements: dict[UOp, UOp]) -> UOp:
    """Rebuild `u` with nodes replaced."""
    rebuilt: dict[UOp, UOp] = {}
    for x in toposort(u):
        src = tuple(rebuilt[s] for s in x.src)
        rebuilt[x] = replacements[x] if x in replacements else x if src == x.src else x.replace(src=src)
    return rebuilt[u]


def _evaluate_constant(a: LinearSum) -> int:
    return int(T.evaluate_at_points(a, {}))
