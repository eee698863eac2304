"""The comparison of a body with its instructions: every element that the instructions store is the body's term for that element.

Takes: the body of a kernel before scheduling, and a later form of it. Gives: a `Comparison`. A small kernel is evaluated in all
iterations. Of a large one, the loops that no value crosses are not enumerated: a counter stands for all of their iterations but the
last, or for all but the first and the last, if conditions tell these apart. The body is evaluated at the elements that are stored.
Spec: R30 (order of a Reduce), R48 (symbolic sizes).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from uops.compiler.validate.fingerprints.evaluate import Iterations, KernelEvaluation, SummedIterations
from uops.compiler.validate.fingerprints.integers import (
    Counter,
    DependsOnCounter,
    Integer,
    NotEvaluable,
    Numbers,
    UndecidedCondition,
    divide,
    with_rank,
)
from uops.compiler.validate.fingerprints.memory import StoredValues
from uops.compiler.validate.fingerprints.mixing import Fingerprints
from uops.compiler.validate.fingerprints.representatives import Representatives, choose_representatives
from uops.compiler.validate.fingerprints.slices import IndependentLoops
from uops.compiler.validate.fingerprints.terms import SumLaws, fingerprint_in_own_dtype, holds_every_value, reduction_of
from uops.compiler.validate.fingerprints.text import KernelText
from uops.compiler.validate.sites import address_of
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, collect_users, toposort
from uops.spec.ir.ops import COUNTERS, Op
from uops.spec.ir.scope import base_memory, is_variable, open_ranges

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
    laws = [(SumLaws(), SumLaws())]
    are_all_tried = True
    if with_laws and (reductions := _list_reductions(before)):
        are_all_tried = _may_round_later(toposort(before), toposort(after), reductions)
        laws = list(_list_laws(reductions, are_all_tried))
        laws.sort(key=lambda pair: bool(pair[1].chains) != _has_chain(after, reductions))
    result: Comparison | None = None
    try:
        old, new = KernelText(before), KernelText(after)
        for representatives in [] if is_enumerated(after) else choose_representatives(old, new, variables):
            for old_laws, new_laws in laws:
                result = _compare_by_representatives(old, new, old_laws, new_laws, representatives)
                if result is not None and result.is_equal:
                    return result
        if result is None:
            for old_laws, new_laws in laws:
                result = _compare_all_iterations(old, new, old_laws, new_laws, Iterations(variables=variables))
                if result.is_equal:
                    return result
    except NotEvaluable as e:
        return Comparison(None, str(e))
    assert result is not None
    return result if are_all_tried else Comparison(None, f"{result.why}, and some laws of sums may not hold")


def _list_reductions(body: UOp) -> frozenset[tuple[Op, DType]]:
    return frozenset(reduction_of(u.arg.op, u.dtype) for u in toposort(body) if u.op is Op.REDUCE)


def _list_laws(reductions: frozenset[tuple[Op, DType]], may_round_later: bool) -> Iterator[tuple[SumLaws, SumLaws]]:
    """Yield the laws of sums to try for the two texts (R30: a Reduce has any order, and may be rounded less often)."""
    wide_reductions = reductions | {(op, w) for op, d in reductions for w in dt.FLOATS if holds_every_value(w, d)}
    for has_chains, is_wide in itertools.product((False, True), (False, True) if may_round_later else (False,)):
        chains = reductions if has_chains else frozenset()
        old = SumLaws(chains, is_wide, keeps_groups=True)
        yield old, SumLaws(wide_reductions if has_chains and is_wide else chains, is_wide, reductions if is_wide else frozenset())


def _has_chain(after: UOp, reductions: Collection[tuple[Op, DType]]) -> bool:
    """Return True if operations of a Reduce follow each other, as they do in an unrolled one."""
    ops = {d: {op, Op.MULACC} if op is Op.ADD else {op} for op, d in reductions}
    return any(u.op in ops.get(u.dtype, ()) and any(s.op in ops[u.dtype] for s in u.src) for u in toposort(after))


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
    before: KernelText, after: KernelText, old_laws: SumLaws, new_laws: SumLaws, everything: Iterations
) -> Comparison:
    old, new = KernelEvaluation(before, old_laws, everything), KernelEvaluation(after, new_laws, everything)
    old.run()
    new.run()
    expected, got = old.contents_of_params(), new.contents_of_params()
    if expected.keys() != got.keys():
        return Comparison(False, f"Params {sorted(got)} are written instead of {sorted(expected)}")
    for slot, x in expected.items():
        if (wrong := np.flatnonzero(x != got[slot])).size:
            return Comparison(False, f"element {wrong[0]} of argument {slot} is another term")
    return Comparison(True)


def _compare_by_representatives(
    before: KernelText, after: KernelText, old_laws: SumLaws, new_laws: SumLaws, representatives: Representatives
) -> Comparison | None:
    """Compare a body and instructions by iterations that stand for others; None if that decides nothing."""
    while representatives.has_any:
        try:
            new, old = representatives.describe_iterations()
            result = _compare_at_stored_elements(before, after, old_laws, new_laws, new, old)
            return result if result.is_equal or not new.sums else None
        except UndecidedCondition as e:
            if not representatives.refine(e.counters):
                raise
        except DependsOnCounter as e:
            if not representatives.enumerate_loops(e.counters):
                raise
        except NotEvaluable:
            if representatives.has_sums:
                return None
            raise
    return None


# Loops


def is_enumerated(body: UOp) -> bool:
    """Return True if all iterations of a body are evaluated, so that the contents of its memory are compared whole."""
    return _count_iterations(body) <= MAX_ENUMERATED


def count_elements_if_all_are_stored(body: UOp) -> int | None:
    """Return how many elements, the first ones of its memory, a body with one Store writes, each once; None if that is not sure."""
    nodes = toposort(body)
    stores = [u for u in nodes if u.op is Op.STORE]
    if len(stores) != 1 or stores[0].gate is not None or any(u.op is Op.PARAM and is_variable(u) for u in nodes):
        return None
    try:
        store = _StoreOfBody(KernelText(body), stores[0], SumLaws(), Iterations())
    except NotEvaluable:
        return None
    strides = sorted(
        (int(store.written.factors[c].item()), store.extents[r]) for r, c in store.symbols.items() if c in store.written.factors
    )
    count = 1
    for stride, extent in strides:
        if stride != count:
            return None
        count *= extent
    are_all_used = len(strides) == sum(n != 1 for n in store.extents.values())
    return count if are_all_used and store.written.numbers.item() == 0 else None


def _count_iterations(root: UOp) -> int:
    return math.prod(int(r.bound.arg.value) for r in toposort(root) if r.op in COUNTERS and r.bound.op is Op.CONST)


#: Number of the first counter of a body's loops; those of the instructions have smaller numbers.
_FIRST_SYMBOL = 1000


# Elements


def _compare_at_stored_elements(
    before: KernelText, after: KernelText, old_laws: SumLaws, new_laws: SumLaws, iterations: Iterations, old_iterations: Iterations
) -> Comparison:
    new = KernelEvaluation(after, new_laws, iterations)
    new.run()
    stored_values = new.stored_values_of_params()
    stores: dict[int, list[UOp]] = {}
    for u in before.nodes:
        if u.op is Op.STORE and base_memory(address_of(u)).op is Op.PARAM:
            stores.setdefault(base_memory(address_of(u)).arg.slot, []).append(u)
    reduced = _count_iterations_of_reduces_per_element(before, old_iterations.sums)
    if stores.keys() != stored_values.keys():
        return Comparison(False, f"Params {sorted(stored_values)} are written instead of {sorted(stores)}")
    for slot, outputs in stored_values.items():
        if len(stores[slot]) > 1:
            raise NotEvaluable("a body with several Stores to one argument")
        (store,) = stores[slot]
        old = _StoreOfBody(before, store, old_laws, old_iterations)
        for stored in outputs:
            for part in _split(_flatten(stored), max(1, _ELEMENTS_AT_ONCE // reduced)):
                if not old.holds(*part):
                    return Comparison(False, f"an element of argument {slot} is another term")
    return Comparison(True)


def _count_iterations_of_reduces_per_element(body: KernelText, sums: Mapping[UOp, SummedIterations]) -> int:
    """Return the greatest number of iterations of Reduces in which one node is evaluated for one element."""
    ranges = open_ranges(body.nodes)
    reduces = [u for u in body.nodes if u.op is Op.REDUCE]
    reduced = {r: sums[r].counter.numbers.size if r in sums else int(r.bound.arg.value) for u in reduces for r in u.ranges}
    return max((math.prod(reduced[r] for r in ranges[u.operand] if r in reduced) for u in reduces), default=1)


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


def _split(flat: tuple[Integer, Fingerprints], size: int) -> Iterator[tuple[Integer, Fingerprints]]:
    """Yield parts of `size` points."""
    positions, values = flat
    for k in range(0, len(values), size):
        part = slice(k, k + size)
        yield positions.map_arrays(lambda x, part=part: x[part]), values[part]  # type: ignore[misc]


#: Number of elements of an array that caches hold.
_ELEMENTS_AT_ONCE = 1 << 18


class _StoreOfBody:
    """A Store of a body that writes each element once, evaluated at given elements."""

    def __init__(self, body: KernelText, store: UOp, laws: SumLaws, iterations: Iterations) -> None:
        self.body, self.store, self.laws, self.iterations = body, store, laws, iterations
        probe = KernelEvaluation(body, laws, iterations)
        loops, ifs = next((p.loops, p.ifs) for p in body.placed if p.node is store)
        if ifs:
            raise NotEvaluable("a body stores under a condition")
        self.extents = {r: probe.counters[r].numbers.size for r in loops}
        self.symbols = {r: Counter(_FIRST_SYMBOL + k, 0, self.extents[r] - 1) for k, r in enumerate(loops)}
        one = np.ones(1, np.int64)
        spread = [(IndependentLoops((r,), self.extents[r]), Integer(one - 1, {c: one})) for r, c in self.symbols.items()]
        _, written = KernelEvaluation(body, laws, replace(iterations, spread=spread)).find_positions(store, None)
        if not isinstance(written, Integer):
            raise NotEvaluable("the position of a Store is a value of memory")
        self.written = written

    def holds(self, positions: Integer, values: Fingerprints) -> bool:
        """Return True if the body stores these values at these positions."""
        counters = _solve_positions(self.written, self.symbols, self.extents, positions)
        old = KernelEvaluation(self.body, self.laws, replace(self.iterations, at=counters))
        if self.body.updated:
            raise NotEvaluable("a body that reads what it writes")
        if self.store.gate is not None:
            gate = old.evaluate(self.store.gate).integer
            if gate is None or not (gate.require_numbers() != 0).all():
                raise NotEvaluable("a body stores under a condition")
        expected = fingerprint_in_own_dtype(old.evaluate(self.store.value))
        return bool((expected.reshape(-1) == values).all())  # one value, or one per position


def _solve_positions(
    written: Integer, symbols: Mapping[UOp, Counter], extents: Mapping[UOp, int], positions: Integer
) -> dict[UOp, Integer]:
    """Return the counters of the loops of a Store at which it writes these positions.

    Raises NotEvaluable unless its position is a sum of strides, each a multiple of the next.
    """
    rest = Integer(positions.numbers - written.numbers.item(), positions.factors)
    strides = {r: int(written.factors[c].item()) if c in written.factors else 0 for r, c in symbols.items()}
    counters = {}
    for r in sorted(symbols, key=lambda r: -strides[r]):
        if extents[r] == 1:
            counters[r] = Integer(np.zeros_like(rest.numbers))
            continue
        if strides[r] <= 0:
            raise NotEvaluable("a Store does not move with each of its loops")
        counters[r], rest = divide(rest, Integer(np.array(strides[r], np.int64)))
        low, high = counters[r].bounds()
        if not ((low >= 0) & (high < extents[r])).all():
            raise NotEvaluable("a position does not tell the iteration that writes it")
    if rest.factors or rest.numbers.any():
        raise NotEvaluable("a position does not tell the iteration that writes it")
    return {r: x.map_arrays(_take_one_if_all_are_equal) for r, x in counters.items()}


def _take_one_if_all_are_equal(x: Numbers) -> Numbers:
    """Return a one-dimensional array, or its first number if it has no other, so that values at it are computed once."""
    return x[:1] if x.size and (x == x[0]).all() else x
