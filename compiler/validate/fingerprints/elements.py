"""A body at given elements: the values that its Stores write there.

Takes: a body whose Stores write each element once, and positions of elements. Gives: terms. An element of the body's memory is the
value that its Store writes there, at the iteration that the position tells.
Spec: R45 (Index), R52 (Load), R128 (private memory).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from uops.compiler.validate.fingerprints.evaluate import Iterations, KernelEvaluation
from uops.compiler.validate.fingerprints.integers import Integer, NotEvaluable, Numbers, add, divide, multiply, with_rank
from uops.compiler.validate.fingerprints.mixing import Fingerprints
from uops.compiler.validate.fingerprints.operations import require_few_points
from uops.compiler.validate.fingerprints.slices import spread_as_counters
from uops.compiler.validate.fingerprints.terms import SumLaws, TermValue, fingerprint_in_own_dtype, wraps_of
from uops.compiler.validate.fingerprints.text import KernelText
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import is_variable, open_ranges

#: Number of the first counter of a body's loops; those of the instructions have smaller numbers.
_FIRST_SYMBOL = 1000
#: Number of elements of an array that caches hold.
_ELEMENTS_AT_ONCE = 1 << 18


def count_elements_if_all_are_stored(body: UOp) -> int | None:
    """Return n if the one Store of a body writes exactly elements 0 to n - 1, each once; None if that is not sure."""
    nodes = toposort(body)
    stores = [u for u in nodes if u.op is Op.STORE]
    if len(stores) != 1 or stores[0].gate is not None or any(u.op is Op.PARAM and is_variable(u) for u in nodes):
        return None
    try:
        store = _SolvedStore(KernelText(body), stores[0], SumLaws(), Iterations())
    except NotEvaluable:
        return None
    strides = sorted(
        (int(store.position.factors[c].item()), store.extents[r]) for r, c in store.symbols.items() if c in store.position.factors
    )
    count = 1
    for stride, extent in strides:
        if stride != count:
            return None
        count *= extent
    are_all_used = len(strides) == sum(n != 1 for n in store.extents.values())
    return count if are_all_used and store.position.numbers.item() == 0 else None


class BodyElements:
    """The elements that a body stores, in iterations of its Reduces that `iterations` gives."""

    def __init__(self, body: KernelText, laws: SumLaws, iterations: Iterations) -> None:
        self.body, self.laws, self.iterations = body, laws, iterations
        self.stores: dict[UOp, _SolvedStore] = {}
        self.ranges = open_ranges(body.nodes)
        #: The values that Stores to the body's own memory write, and where they are.
        self.contents: dict[tuple[UOp, bytes], tuple[TermValue, Numbers]] = {}

    def holds(self, store: UOp, positions: Integer, values: Fingerprints) -> bool:
        """Return True if a Store writes these values at these positions, which have one axis."""
        if any(c.number < 0 for c in positions.factors):
            raise NotEvaluable("a position depends on the counter of a sum")
        size = max(1, _ELEMENTS_AT_ONCE // self._count_iterations_of_reduces_per_element())
        for k in range(0, len(values), size):
            part = slice(k, k + size)
            at = self._solve(store).find_iterations(positions.map_arrays(lambda x, part=part: x[part]), {})  # type: ignore[misc]
            expected = fingerprint_in_own_dtype(self._evaluate(store, at))
            if not (expected.reshape(-1) == values[part]).all():  # one value, or one per position
                return False
        return True

    def _count_iterations_of_reduces_per_element(self) -> int:
        """Return the greatest number of iterations of Reduces in which one node is evaluated for one element."""
        sums = self.iterations.sums
        reduces = [u for u in self.body.nodes if u.op is Op.REDUCE]
        reduced = {r: sums[r].counter.numbers.size if r in sums else int(r.bound.arg.value) for u in reduces for r in u.ranges}
        return max((math.prod(reduced[r] for r in self.ranges[u.operand] if r in reduced) for u in reduces), default=1)

    def _solve(self, store: UOp) -> _SolvedStore:
        if store not in self.stores:
            self.stores[store] = _SolvedStore(self.body, store, self.laws, self.iterations)
        return self.stores[store]

    def _evaluate(self, store: UOp, at: Mapping[UOp, Integer]) -> TermValue:
        """Return the values that a Store writes at given iterations of its loops."""
        return self._begin_evaluation(store, at).evaluate(store.value)

    def _begin_evaluation(self, store: UOp, at: Mapping[UOp, Integer]) -> KernelEvaluation:
        """Return the evaluation of a body at given iterations. Raises NotEvaluable unless the Store's gate holds there."""
        evaluation = KernelEvaluation(self.body, self.laws, replace(self.iterations, at=at), self._load_own_memory)
        if store.gate is not None:
            gate = evaluation.evaluate(store.gate).integer
            if gate is None or not (gate.require_numbers() != 0).all():
                raise NotEvaluable("a body stores under a condition")
        return evaluation

    def _load_own_memory(self, evaluation: KernelEvaluation, load: UOp, m: UOp, positions: Integer) -> TermValue:
        """Return what a Load of memory that the body stores gives.

        The memory has a copy for each iteration of some loops. If the Load takes as many elements as all copies have, all are
        evaluated.
        """
        store = self._find_store_before(load, m)
        copies = _DistinctPoints({r: evaluation.counters[r] for r in self.body.list_private_loops(m) if r in evaluation.counters})
        solved = self._solve(store)
        size = math.prod(n for r, n in solved.extents.items() if r not in copies.integers)
        rank = max(positions.numbers.ndim, copies.number.ndim)
        at, copy = np.broadcast_arrays(with_rank(positions.numbers, rank), with_rank(copies.number, rank))
        if not positions.factors and size * copies.count <= at.size:
            key = store, copies.key()
            if key not in self.contents:
                self.contents[key] = self._evaluate_whole(store, copies)
            value, where = self.contents[key]
            element = where[copy, np.clip(at, 0, where.shape[1] - 1)]
            if (at < 0).any() or (at >= where.shape[1]).any() or (element < 0).any():
                raise NotEvaluable("a body reads what it does not write")
            return value.map_arrays(lambda x: x[element])
        points = _DistinctPoints({"position": positions, **copies.integers})
        given = {r: points.take(r) for r in copies.integers}
        value = _as_loaded(self._evaluate(store, solved.find_iterations(points.take("position"), given)))
        return value.map_arrays(lambda x: np.broadcast_to(x.reshape(-1), points.count)[points.number])

    def _evaluate_whole(self, store: UOp, copies: _DistinctPoints) -> tuple[TermValue, Numbers]:
        """Return all values that a Store writes, and by copy and position which of them is there, -1 for none."""
        evaluation = self._begin_evaluation(store, {r: copies.take(r) for r in copies.integers})
        m, positions = evaluation.find_positions(store, None)
        value = _as_loaded(evaluation.evaluate(store.value))
        if not isinstance(positions, Integer):
            raise NotEvaluable("the position of a Store is a value of memory")
        shape = list(np.broadcast_shapes(positions.numbers.shape, value.shape))
        shape[0] = copies.count
        numbers = np.broadcast_to(positions.require_numbers(), shape).reshape(copies.count, -1)
        where = np.full((copies.count, int(m.arg.size)), -1, np.int64)
        order = np.arange(numbers.size).reshape(numbers.shape)
        where[np.arange(copies.count)[:, None], numbers] = order
        if not (where[np.arange(copies.count)[:, None], numbers] == order).all():
            raise NotEvaluable("iterations of a body store one element")
        return value.map_arrays(lambda x: np.broadcast_to(x, shape).reshape(-1)), where

    def _find_store_before(self, load: UOp, m: UOp) -> UOp:
        """Return the only Store of a memory. Raises NotEvaluable unless it precedes the Load, in loops that share no memory."""
        stores = self.body.list_stores(m)
        loads = [p for p in self.body.accesses[m] if p.node is load]
        private = self.body.list_private_loops(m)
        if m.op is not Op.BUFFER or len(stores) != 1 or stores[0].node not in toposort(load):
            raise NotEvaluable("a body that reads what it writes")
        if any(r in stores[0].loops and r not in private for p in loads for r in p.loops):
            raise NotEvaluable("a body that reads what other iterations write")
        return stores[0].node


def _as_loaded(value: TermValue) -> TermValue:
    """Return a value as a Load of it gives it: a sum stays one, unless it is of two values that no Reduce sums."""
    if value.reduction is not None and not value.grouped:
        return TermValue(None, value.fingerprints, value.reduction)
    return TermValue(None, fingerprint_in_own_dtype(value), wraps=wraps_of(value))


class _DistinctPoints:
    """The distinct combinations of several integers, by name, and the `number` of the combination at each point."""

    def __init__(self, integers: Mapping[Any, Integer]) -> None:
        self.integers = integers
        self.columns = {(name, c): x for name, n in integers.items() for c, x in ((None, n.numbers), *n.factors.items())}
        rank = max((x.ndim for x in self.columns.values()), default=1)
        arrays = [with_rank(x, rank) for x in self.columns.values()]
        require_few_points(*arrays)
        shape = np.broadcast_shapes((1,) * rank, *(x.shape for x in arrays))
        rows = np.zeros((math.prod(shape), len(arrays) + 1), np.int64)  # the last column makes one row of none
        for k, x in enumerate(arrays):
            rows[:, k] = np.broadcast_to(x, shape).reshape(-1)
        self.rows, number = np.unique(rows, axis=0, return_inverse=True)
        self.number = number.reshape(shape)
        self.count = len(self.rows)

    def take(self, name: Any) -> Integer:
        """Return an integer at each combination."""
        column = dict(zip(self.columns, self.rows.T, strict=False))
        return Integer(column[name, None], {c: column[name, c] for c in self.integers[name].factors})

    def key(self) -> bytes:
        """Return what tells these combinations from others."""
        return repr(list(self.columns)).encode() + self.rows.tobytes()


class _SolvedStore:
    """A Store that writes each element once: a position gives the iteration that writes it."""

    def __init__(self, body: KernelText, store: UOp, laws: SumLaws, iterations: Iterations) -> None:
        probe = KernelEvaluation(body, laws, iterations)
        loops, ifs = next((p.loops, p.ifs) for p in body.placed if p.node is store)
        if ifs:
            raise NotEvaluable("a body stores under a condition")
        self.extents = {r: probe.counters[r].numbers.size for r in loops}
        self.symbols, spread = spread_as_counters(self.extents, _FIRST_SYMBOL)
        _, written = KernelEvaluation(body, laws, replace(iterations, spread=spread)).find_positions(store, None)
        if not isinstance(written, Integer):
            raise NotEvaluable("the position of a Store is a value of memory")
        self.position = written

    def find_iterations(self, positions: Integer, given: Mapping[UOp, Integer]) -> dict[UOp, Integer]:
        """Return the counters of the loops at which these positions are written; some are given.

        Raises NotEvaluable unless the position is a sum of strides of the other loops, each beyond the reach of the smaller ones.
        """
        rest = Integer(positions.numbers - self.position.numbers.item(), positions.factors)
        strides = {r: int(self.position.factors[c].item()) if c in self.position.factors else 0 for r, c in self.symbols.items()}
        for r in given.keys() & strides.keys():
            rest = add(rest, multiply(given[r], Integer(np.array(strides[r], np.int64))), -1)
        counters = {r: given[r] for r in self.symbols if r in given}
        ascending = sorted(self.symbols.keys() - counters.keys(), key=lambda r: strides[r])
        reach = 0
        for r in ascending:
            if self.extents[r] > 1 and strides[r] <= reach:
                raise NotEvaluable("a position does not tell the iteration that writes it")
            reach += strides[r] * (self.extents[r] - 1)
        for r in reversed(ascending):
            if self.extents[r] == 1:
                counters[r] = Integer(np.zeros_like(rest.numbers))
                continue
            counters[r], rest = divide(rest, Integer(np.array(strides[r], np.int64)))
            low, high = counters[r].bounds()
            if not ((low >= 0) & (high < self.extents[r])).all():
                raise NotEvaluable("a position does not tell the iteration that writes it")
        if rest.factors or rest.numbers.any():
            raise NotEvaluable("a position does not tell the iteration that writes it")
        return {r: x.map_arrays(_take_one_if_all_are_equal) for r, x in counters.items()}


def _take_one_if_all_are_equal(x: Numbers) -> Numbers:
    """Return a one-dimensional array, or its first number if it has no other, so that values at it are computed once."""
    return x[:1] if x.size and (x == x[0]).all() else x
