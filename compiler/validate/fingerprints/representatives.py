"""The iterations of a body and of its instructions that stand for others.

Takes: a body, and a later form of it. Gives: `Iterations` of both, as far as their loops need not be enumerated.

- Of independent loops, a counter stands for all iterations but one or two of the first and of the last, if conditions tell these
  apart. The body is evaluated at the elements that they store.
- Of loops that only add to sums, a counter stands for all. A loop of a Reduce uses it, too, if it has the same extent, or if the
  instructions split it into such a loop and others. Counters of sums are bound variables, named by the extent of the loop and by
  how many of that extent enclose it, in both texts. Equal sums of terms with these counters are equal sums of all iterations.

Spec: R32 (value of a Reduce), R57 (Range).
"""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from uops.compiler.validate.fingerprints.evaluate import Iterations, KernelEvaluation, SummedIterations
from uops.compiler.validate.fingerprints.integers import Counter, DependsOnCounter, Integer, NotEvaluable, UndecidedCondition
from uops.compiler.validate.fingerprints.mixing import fingerprint_of_words
from uops.compiler.validate.fingerprints.sharing import is_sequential
from uops.compiler.validate.fingerprints.slices import IndependentLoops, MemoryAccess, find_independent_loops, spread_as_counters
from uops.compiler.validate.fingerprints.terms import SumLaws
from uops.compiler.validate.fingerprints.text import KernelText
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import COUNTERS, Op
from uops.spec.ir.scope import base_memory, open_ranges

#: Least extent of an independent loop that is not enumerated.
_MIN_EXTENT = 2
#: Least extent of a loop of a sum that is not enumerated.
_MIN_SUMMED = 3
#: How many of the first and of the last iterations of loops are evaluated apart from those that their counter stands for.
_EDGES = ((0, 0), (0, 1), (1, 1), (2, 2))


class Representatives:
    """A choice of iterations, which may be refined where it does not decide a condition or a position.

    Groups of loops have numbers. `edges` has the groups that are not enumerated, and the index of `_EDGES` for each. `sums` has the
    iterations of the loops of groups that only add to sums. `reduces` has those of loops of the body, with the extents of the loops
    that divide them.
    """

    def __init__(
        self,
        groups: Sequence[IndependentLoops],
        sums: Mapping[int, Mapping[UOp, SummedIterations]],
        reduces: Mapping[UOp, tuple[int, SummedIterations]],
        variables: Mapping[str, int],
    ) -> None:
        self.groups, self.sums, self.reduces, self.variables = groups, sums, reduces, variables
        self.edges = {k: 0 for k, g in enumerate(groups) if k in sums or not (g.shared or g.steps)}
        #: Numbers of which multiples are counted apart, by group: the counter is a sum of several, as 512 * c + d is.
        self.radices: dict[int, tuple[int, ...]] = {}

    @property
    def has_any(self) -> bool:
        """True if some loops are not enumerated."""
        return bool(self.edges)

    @property
    def has_sums(self) -> bool:
        """True if loops of sums are not enumerated."""
        return not self.sums.keys().isdisjoint(self.edges)

    def describe_iterations(self) -> tuple[Iterations, Iterations]:
        """Return the iterations of the body's Reduces, and those of the instructions."""
        summed = [k for k in self.edges if k in self.sums]
        extents = {self.groups[k].extent for k in summed}
        spread = [(self.groups[k], self._counter_of(k)) for k in self.edges]
        sums = {r: s for k in summed for r, s in self.sums[k].items()}
        return (
            Iterations(sums={r: s for r, (n, s) in self.reduces.items() if n in extents}, variables=self.variables),
            Iterations(spread, sums, variables=self.variables),
        )

    def refine(self, reasons: Sequence[UndecidedCondition | DependsOnCounter]) -> bool:
        """Evaluate more iterations of the loops that conditions and positions depend on; return False if there are no such loops.

        Loops of sums, and those that a position depends on, are enumerated. Counters of others are divided, or get more edges. If
        that is not enough, the smallest loop is enumerated, and the others begin without edges.
        """
        found = [(reason, self._find_groups(reason.counters)) for reason in reasons]
        enumerated = {k for reason, groups in found for k in groups if k in self.sums or isinstance(reason, DependsOnCounter)}
        refined: set[int] = set()
        for reason, groups in found:
            if isinstance(reason, DependsOnCounter) or not groups or not (enumerated | refined).isdisjoint(groups):
                continue  # a condition on loops that are refined is asked again
            refined.update(groups)
            are_divided = [self._divide_counter(k, reason.radices) for k in groups]
            if any(are_divided):
                continue
            more = [k for k in groups if self._can_evaluate_more_apart(k)]
            for k in groups:
                self.edges[k] = self.edges[k] + 1 if k in more else self.edges[k] if more else 0
            if not more:
                enumerated.add(min(groups, key=lambda k: self.groups[k].extent))
        self.edges = {k: e for k, e in self.edges.items() if k not in enumerated}
        return bool(enumerated or refined)

    def _can_evaluate_more_apart(self, k: int) -> bool:
        edges = self.edges[k] + 1
        return edges < len(_EDGES) and self.groups[k].extent > sum(_EDGES[edges]) + 1

    def _divide_counter(self, k: int, radices: Mapping[Counter, int]) -> bool:
        """Count multiples of a number apart, if that number and the others divide each other and the extent."""
        new = {radices[c] for c in self._counter_of(k).factors if radices.get(c, self.groups[k].extent) < self.groups[k].extent}
        chain = sorted({*new, *self.radices.get(k, ())}, reverse=True)
        if (
            self.edges[k]
            or not new
            or set(chain) == {*self.radices.get(k, ())}
            or any(a % b for a, b in pairwise((self.groups[k].extent, *chain)))
        ):
            return False
        self.radices[k] = tuple(chain)
        return True

    def _find_groups(self, counters: Collection[Counter]) -> list[int]:
        return [k for k in self.edges if not self._counter_of(k).factors.keys().isdisjoint(counters)]

    def _counter_of(self, k: int) -> Integer:
        if k in self.sums:
            return self.sums[k][self.groups[k].loops[0]].counter
        extent, (first, last) = self.groups[k].extent, _EDGES[self.edges[k]]
        if not self.edges[k] and k in self.radices:
            units = (*self.radices[k], 1)
            counts = [n // unit for n, unit in pairwise((extent, *units))]
            counters = [Counter(k + (j << 20), 0, n - 1) for j, n in enumerate(counts)]
            return Integer(np.zeros(1, np.int64), {c: np.array([unit], np.int64) for c, unit in zip(counters, units, strict=True)})
        numbers = [0, *range(first), *range(extent - last, extent)]
        factors = np.array([1, *[0] * (first + last)], np.int64)
        return Integer(np.array(numbers, np.int64), {Counter(k, first, extent - 1 - last): factors})


def choose_representatives(before: KernelText, after: KernelText, variables: Mapping[str, int]) -> Iterator[Representatives]:
    """Yield choices of iterations, those of fewest iterations first."""
    instructions = _LoopsAsCounters(after, variables)
    if after.root.op is Op.LINEAR and not before.tracked:
        groups = instructions.find_independent_loops(with_steps=True)
        sums, reduces = _match_sums(_LoopsAsCounters(before, variables), instructions, groups)
        if sums:
            yield Representatives(groups, sums, reduces, variables)
    yield Representatives(instructions.find_independent_loops(), {}, {}, variables)


class _LoopsAsCounters:
    """A text in which a counter stands for every loop of constant extent that no other extent depends on."""

    def __init__(self, text: KernelText, variables: Mapping[str, int]) -> None:
        self.text = text
        bounds = {r for u in text.nodes if u.op in COUNTERS for r in toposort(u.bound) if r.op in COUNTERS}
        loops = [r for r in text.loops if r.bound.op is Op.CONST and r not in bounds]
        self.extents = {r: int(r.bound.arg.value) for r in loops if r.bound.arg.value >= _MIN_EXTENT}
        self.counters, spread = spread_as_counters(self.extents)
        self.evaluation = KernelEvaluation(text, SumLaws(), Iterations(spread, variables=variables))

    def find_independent_loops(self, with_steps: bool = False) -> list[IndependentLoops]:
        """Return the groups of loops that no Reduce closes of which one iteration can stand for all."""
        reduced = {r for u in self.text.nodes if u.op is Op.REDUCE for r in u.ranges}
        private = {m: self.text.list_private_loops(m) for m in self.text.tracked}
        extents = {r: n for r, n in self.extents.items() if r not in reduced}
        return list(find_independent_loops(extents, self.counters, self._accesses, private, with_steps))

    @cached_property
    def _accesses(self) -> Mapping[UOp, Sequence[MemoryAccess]]:
        return self.evaluation.list_accesses()

    @cached_property
    def loop_strides(self) -> list[tuple[UOp, int, int]]:
        """Loops, Params that are only read, by slot, and by how many elements a Load moves from one iteration to the next."""
        return list(self._list_loop_strides())

    def _list_loop_strides(self) -> Iterator[tuple[UOp, int, int]]:
        loop_of = {c: r for r, c in self.counters.items()}
        for u in self.text.nodes:
            if u.op is not Op.LOAD or (m := base_memory(u.buffer)).op is not Op.PARAM or m in self.text.stored:
                continue
            try:
                _, position = self.evaluation.find_positions(u, None)
            except NotEvaluable:
                continue
            for c, f in position.factors.items() if isinstance(position, Integer) else ():
                if f.min() == f.max() > 0:
                    yield loop_of[c], m.arg.slot, int(f.max())


def _match_sums(
    body: _LoopsAsCounters, instructions: _LoopsAsCounters, groups: Sequence[IndependentLoops]
) -> tuple[dict[int, dict[UOp, SummedIterations]], dict[UOp, tuple[int, SummedIterations]]]:
    """Return iterations of groups that only add to sums, and of the loops of Reduces that agree with them."""
    summing = {
        k: g
        for k, g in enumerate(groups)
        if g.shared and g.extent >= _MIN_SUMMED and all(r.op is Op.RANGE and is_sequential(r) for r in g.loops)
    }
    divided = _divide_reduce_loops(body, instructions, summing.values())
    extents = {n for n, _ in divided.values()}
    summing = {k: g for k, g in summing.items() if g.extent in extents}
    level_of_reduce = _number_nested_reduces(body.text.nodes, {r: n for r, (n, _) in divided.items()})
    if level_of_reduce is None:
        return {}, {}
    level_of_loop = _number_nested_loops(instructions.text, {r: g.extent for g in summing.values() for r in g.loops})
    sums = {}
    for k, g in summing.items():
        levels = {level_of_loop[r] for r in g.loops}
        if len(levels) == 1:
            (level,) = levels
            sums[k] = {r: _build_summed_iterations(g.extent, level, g.steps.get(r, 1), instructions.extents[r]) for r in g.loops}
    reduces = {
        r: (n, _build_summed_iterations(n, level_of_reduce[r], stride, body.extents[r])) for r, (n, stride) in divided.items()
    }
    return sums, reduces


def _build_summed_iterations(extent: int, level: int, stride: int = 1, whole: int | None = None) -> SummedIterations:
    """Return (block * extent + counter) * stride + offset for all blocks and offsets: iterations of a loop of extent `whole`."""
    counter = Counter(-1 - level - (extent << 8), 0, extent - 1)
    blocks = np.arange(0, whole or extent, extent * stride, dtype=np.int64)
    numbers = (blocks[:, None] + np.arange(stride, dtype=np.int64)).reshape(-1)
    weight = fingerprint_of_words("iterations", extent, level) | np.uint64(1)
    return SummedIterations(Integer(numbers, {counter: np.full(len(numbers), stride, np.int64)}), weight)


def _divide_reduce_loops(
    body: _LoopsAsCounters, instructions: _LoopsAsCounters, summing: Iterable[IndependentLoops]
) -> dict[UOp, tuple[int, int]]:
    """Return for loops of Reduces the extent of a loop of sums that divides it, and its stride in the Reduce's loop.

    The stride is the most frequent one of Loads. A wrong one leaves the kernel undecided.
    """
    group_of = {r: g for g in summing for r in g.loops}
    extents = {g.extent for g in group_of.values()}
    divided = {}
    for r in (r for u in body.text.nodes if u.op is Op.REDUCE for r in u.ranges if r in body.extents):
        n = max((e for e in extents if body.extents[r] % e == 0), default=0)
        if n == body.extents[r]:
            divided[r] = n, 1
        elif n:
            moves = {slot: f for q, slot, f in body.loop_strides if q is r}
            ratios = Multiset(
                f // moves[slot]
                for q, slot, f in instructions.loop_strides
                if q in group_of and group_of[q].extent == n and slot in moves and f % moves[slot] == 0
            )
            stride = max(ratios, key=lambda s: ratios[s], default=0)
            if stride and body.extents[r] // n % stride == 0:
                divided[r] = n, stride
    return divided


def _number_nested_loops(text: KernelText, extents: Mapping[UOp, int]) -> dict[UOp, int]:
    """Return how many loops of the same extent enclose each loop of instructions."""
    return {p.node: sum(extents.get(r) == extents[p.node] for r in p.loops) for p in text.placed if p.node in extents}


def _number_nested_reduces(nodes: Sequence[UOp], extents: Mapping[UOp, int]) -> dict[UOp, int] | None:
    """Return for each loop of a Reduce a level above those of the loops of its extent that enclose it.

    Loops of one Reduce enclose each other in order. The result is None if a loop of two Reduces has two levels.
    """
    ranges = open_ranges(nodes)
    levels: dict[UOp, int] = {}
    for u in (u for u in reversed(nodes) if u.op is Op.REDUCE):
        around = [r for r in ranges[u.operand] if r in extents and r not in u.ranges]
        for r in (r for r in u.ranges if r in extents):
            outer = [q for q in around if extents[q] == extents[r]]
            level = max((levels[q] + 1 for q in outer if q in levels), default=0)
            if not levels.keys() >= set(outer) or levels.setdefault(r, level) != level:
                return None
            around.append(r)
    return levels
