"""The comparison of a body with its instructions: every element that the instructions store is the body's term for that element.

Takes: the body of a kernel before scheduling, and a later form of it. Gives: a `Comparison`. A small kernel is evaluated in all
iterations. Of a large one, few iterations are evaluated (`representatives`), and the body at the elements that these store.
Spec: R32 (value of a Reduce), R48 (symbolic sizes).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from uops.compiler.validate.fingerprints.elements import BodyElements
from uops.compiler.validate.fingerprints.evaluate import Iterations, KernelEvaluation
from uops.compiler.validate.fingerprints.integers import (
    Counter,
    DependsOnCounter,
    Integer,
    NeedsIterations,
    NotEvaluable,
    UndecidedCondition,
    with_rank,
)
from uops.compiler.validate.fingerprints.memory import StoredValues
from uops.compiler.validate.fingerprints.mixing import Fingerprints
from uops.compiler.validate.fingerprints.representatives import Representatives, choose_representatives
from uops.compiler.validate.fingerprints.terms import SumLaws, holds_every_value, reduction_of
from uops.compiler.validate.fingerprints.text import KernelText
from uops.compiler.validate.sites import address_of
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, collect_users, toposort
from uops.spec.ir.ops import COUNTERS, Op
from uops.spec.ir.scope import base_memory

#: Number of iterations beyond which loops that no value crosses are not enumerated.
MAX_ENUMERATED = 1 << 12


class Comparison(NamedTuple):
    """The result of a comparison: True if both texts store the same terms, False if not, None with the reason if undecided."""

    is_equal: bool | None
    why: str = ""


def compare_values(before: UOp, after: UOp, variables: Mapping[str, int], with_laws: bool = True) -> Comparison:
    """Compare a body with a later form of it, for given values of its named variables.

    Laws of sums, which schedules need, are tried where they hold, unless `with_laws` is false.
    """
    try:
        old, new = KernelText(before, "before"), KernelText(after, "after")
        pairs, may_widen = _list_pairs_of_laws(old, new, with_laws)
        for representatives in [] if is_enumerated(after) else choose_representatives(old, new, variables):
            results = _try_laws(pairs, partial(_compare_by_representatives, old, new, representatives))
            if results[-1].is_equal or (not representatives.has_sums and representatives.has_any):
                break
        else:
            everything = Iterations(variables=variables)
            results = _try_laws(pairs, partial(_compare_all_iterations, old, new, everything))
    except NotEvaluable as e:
        return Comparison(None, str(e))
    if results[-1].is_equal:
        return results[-1]
    undecided = next((r for r in results if r.is_equal is None), None)
    if undecided is None and may_widen:
        return results[-1]
    return undecided or Comparison(None, f"{results[-1].why}, and some laws of sums may not hold")


def _try_laws(pairs: Sequence[tuple[SumLaws, SumLaws]], compare: Callable[[SumLaws, SumLaws], Comparison]) -> list[Comparison]:
    """Return the results of a comparison by each pair of laws, up to the first one that is equal."""
    results = []
    for old_laws, new_laws in pairs:
        try:
            results.append(compare(old_laws, new_laws))
        except NotEvaluable as e:
            results.append(Comparison(None, str(e)))
        if results[-1].is_equal:
            break
    return results


def _list_pairs_of_laws(old: KernelText, new: KernelText, with_laws: bool) -> tuple[list[tuple[SumLaws, SumLaws]], bool]:
    """Return laws of both texts, the most promising first, and whether all that a scheduled text may need are among them."""
    reductions = _list_reductions(old.root)
    if not with_laws or not reductions:
        return [(SumLaws(keeps_groups=True), SumLaws(keeps_groups=True))], True
    may_widen = _may_round_later(old.nodes, new.nodes, reductions)
    fuses_sums_alone = _has_products_in_sums_beside_reduces(old)
    pairs = [(a, b._replace(fuses_sums_alone=fuses_sums_alone)) for a, b in _list_laws(reductions, may_widen)]
    suggests_chains, suggests_groups = _suggests_unrolled_reduce(new, reductions), _suggests_grouped_sums(old)
    pairs.sort(key=lambda pair: (bool(pair[1].chains) != suggests_chains, pair[1].keeps_groups != suggests_groups))
    return pairs, may_widen


def _list_reductions(body: UOp) -> frozenset[tuple[Op, DType]]:
    return frozenset(reduction_of(u.arg.op, u.dtype) for u in toposort(body) if u.op is Op.REDUCE)


def _list_laws(reductions: frozenset[tuple[Op, DType]], may_round_later: bool) -> Iterator[tuple[SumLaws, SumLaws]]:
    """Yield the laws of sums to try for the two texts (R32: a Reduce has any order, and may be rounded less often)."""
    wide_reductions = reductions | {(op, w) for op, d in reductions for w in dt.FLOATS if holds_every_value(w, d)}
    for keeps_groups, has_chains, is_wide in itertools.product((False, True), repeat=3):
        if (is_wide and not may_round_later) or (keeps_groups and not has_chains):
            continue
        chains = reductions if has_chains else frozenset()
        old, new = SumLaws(chains, is_wide, keeps_groups=True), wide_reductions if has_chains and is_wide else chains
        yield old, SumLaws(new, is_wide, reductions if is_wide else frozenset(), keeps_groups)


def _has_products_in_sums_beside_reduces(body: KernelText) -> bool:
    """Return True if a product is added outside of a Reduce: a MULACC of instructions would round it less often."""
    return any(
        u.op is Op.ADD and u.dtype.is_float and u not in body.chains_of_sums and any(s.op is Op.MUL for s in u.src)
        for u in body.nodes
    )


def _suggests_grouped_sums(body: KernelText) -> bool:
    """Return True if sums of sums stand beside the Reduces, whose operands are no parts of one sum."""
    return any(
        u.op is Op.ADD and u.dtype.is_float and u not in body.chains_of_sums and all(s.op is Op.ADD for s in u.src)
        for u in body.nodes
    )


def _suggests_unrolled_reduce(after: KernelText, reductions: Collection[tuple[Op, DType]]) -> bool:
    """Return True if operations of a Reduce follow each other, as they do in an unrolled one."""
    ops = {d: {op, Op.MULACC} if op is Op.ADD else {op} for op, d in reductions}
    return any(u.op in ops.get(u.dtype, ()) and any(s.op in ops[u.dtype] for s in u.src) for u in after.nodes)


_PRODUCTS = frozenset({Op.MUL, Op.MULACC})


def _may_round_later(old: Sequence[UOp], new: Sequence[UOp], reductions: Collection[tuple[Op, DType]]) -> bool:
    """Return True if wider products and sums in the later form can only be those that a Reduce may round less often.

    Each kind of Reduce has one dtype of floats. No product is narrower later, and those that may be wider go into Reduces alone.
    """
    floats = [op for op, d in reductions if d.is_float]
    if len(set(floats)) < len(floats):
        return False
    narrow, wide = ({u.dtype for u in nodes if u.op in _PRODUCTS and u.dtype.is_float} for nodes in (old, new))
    if not all(holds_every_value(w, n) for w in wide for n in narrow):
        return False
    users = collect_users(old)
    widened = [u for u in old if u.op in _PRODUCTS and u.dtype in narrow - wide]
    return all(_goes_into_reduces_alone(u, users) for u in widened)


def _goes_into_reduces_alone(product: UOp, users: Mapping[UOp, Sequence[UOp]]) -> bool:
    stack = [product]
    while stack:
        for user in users[stack.pop()]:
            if user.op is Op.CAST:
                stack.append(user)
            elif user.op is not Op.REDUCE:
                return False
    return True


def _compare_all_iterations(
    before: KernelText, after: KernelText, everything: Iterations, old_laws: SumLaws, new_laws: SumLaws
) -> Comparison:
    old, new = KernelEvaluation(before, old_laws, everything), KernelEvaluation(after, new_laws, everything)
    old.run()
    new.run()
    expected, got = old.compute_final_contents(), new.compute_final_contents()
    if expected.keys() != got.keys():
        return Comparison(False, f"Params {sorted(got)} are written instead of {sorted(expected)}")
    for slot, x in expected.items():
        if (wrong := np.flatnonzero(x != got[slot])).size:
            is_refuted = False if old.may_be_refuted and new.may_be_refuted else None
            return Comparison(is_refuted, f"element {wrong[0]} of argument {slot} is another term")
    return Comparison(True)


def _compare_by_representatives(
    before: KernelText, after: KernelText, representatives: Representatives, old_laws: SumLaws, new_laws: SumLaws
) -> Comparison:
    """Compare a body and instructions by iterations that stand for others. The choice is refined, for later laws, too.

    Raises NotEvaluable if no loop is left whose iterations others stand for.
    """
    while representatives.has_any:
        try:
            old, new = representatives.describe_iterations()
            result = _compare_at_stored_elements(before, after, old_laws, new_laws, old, new)
        except (NeedsIterations, UndecidedCondition, DependsOnCounter) as e:
            if not representatives.refine(e.reasons if isinstance(e, NeedsIterations) else [e]):
                raise
            continue
        return Comparison(None, result.why) if new.sums and not result.is_equal else result  # equal sums may be of other terms
    raise NotEvaluable("all loops are enumerated")


# Loops


def is_enumerated(body: UOp) -> bool:
    """Return True if all iterations of a body are evaluated, so that the contents of its memory are compared whole."""
    return _count_iterations(body) <= MAX_ENUMERATED


def _count_iterations(root: UOp) -> int:
    return math.prod(int(r.bound.arg.value) for r in toposort(root) if r.op in COUNTERS and r.bound.op is Op.CONST)


# Elements


def _compare_at_stored_elements(
    before: KernelText, after: KernelText, old_laws: SumLaws, new_laws: SumLaws, old_iterations: Iterations, iterations: Iterations
) -> Comparison:
    new = KernelEvaluation(after, new_laws, iterations)
    new.run()
    stored_values = new.list_writes_by_param()
    stores: dict[int, list[UOp]] = {}
    for u in before.nodes:
        if u.op is Op.STORE and base_memory(address_of(u)).op is Op.PARAM:
            stores.setdefault(base_memory(address_of(u)).arg.slot, []).append(u)
    if stores.keys() != stored_values.keys():
        return Comparison(False, f"Params {sorted(stored_values)} are written instead of {sorted(stores)}")
    old = BodyElements(before, old_laws, old_iterations)
    for slot, outputs in stored_values.items():
        if len(stores[slot]) > 1:
            raise NotEvaluable("a body with several Stores to one argument")
        (store,) = stores[slot]
        flat = _concatenate_with_equal_counters([_flatten(stored) for stored in outputs])
        if not all(old.holds(store, *stored) for stored in flat):
            is_refuted = False if new.may_be_refuted and _are_written_once([positions for positions, _ in flat]) else None
            return Comparison(is_refuted, f"an element of argument {slot} is another term")
    return Comparison(True)


def _concatenate_with_equal_counters(flat: Sequence[tuple[Integer, Fingerprints]]) -> list[tuple[Integer, Fingerprints]]:
    """Join positions and values of Stores, so that the body is evaluated at few of them."""
    by_counters: dict[frozenset[Counter], list[tuple[Integer, Fingerprints]]] = {}
    for positions, values in flat:
        by_counters.setdefault(frozenset(positions.factors), []).append((positions, values))
    return [
        (
            Integer(
                np.concatenate([p.numbers for p, _ in alike]),
                {c: np.concatenate([p.factors[c] for p, _ in alike]) for c in counters},
            ),
            np.concatenate([values for _, values in alike]),
        )
        for counters, alike in by_counters.items()
    ]


def _are_written_once(positions: Sequence[Integer]) -> bool:
    """Return True if surely no two of these positions are one element, for any values of counters: no Store replaces a value.

    Each position is taken as digits whose units are the factors of the counters. Where a row has no counter, its digit is a number
    which must not be a value of that counter.
    """
    counters = {c for p in positions for c in p.factors}
    units = {c: max(int(p.factors[c].max()) for p in positions if c in p.factors) for c in counters}
    order = sorted(counters, key=lambda c: -units[c])
    for k, c in enumerate(order[:-1]):  # smaller digits must not reach the unit
        if units[c] <= sum(units[d] * d.high for d in order[k + 1 :]) + units[order[-1]] - 1:
            return False
    rows = []
    for p in positions:
        rest, columns = p.numbers, []
        for c in order:
            factor = p.factors.get(c, np.zeros((1,), np.int64))
            digit, rest = rest // units[c], rest % units[c]
            is_number = np.broadcast_to(factor == 0, digit.shape)
            fits = np.where(is_number, (digit < c.low) | (digit > c.high), (factor == units[c]) & (digit == 0))
            if not fits.all():
                return False
            columns += [digit, is_number.astype(np.int64)]
        rows.append(np.stack([*columns, rest], axis=1))
    table = np.concatenate(rows)
    return len(np.unique(table, axis=0)) == len(table)


def _flatten(stored: StoredValues) -> tuple[Integer, Fingerprints]:
    """Return the positions and values of a Store, along one axis, where it is executed."""
    arrays: list[Any] = [stored.positions.numbers, *stored.positions.factors.values(), stored.values]
    arrays += [] if stored.mask is None else [stored.mask]
    rank = max(a.ndim for a in arrays)
    shape = np.broadcast_shapes(*(with_rank(a, rank).shape for a in arrays))
    mask = None if stored.mask is None else np.broadcast_to(with_rank(stored.mask, rank), shape)

    def flatten(a: Any) -> Any:
        whole = np.broadcast_to(with_rank(a, rank), shape)
        return whole.reshape(-1) if mask is None else whole[mask]

    return stored.positions.map_arrays(flatten), flatten(stored.values)
