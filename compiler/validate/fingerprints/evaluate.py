"""The evaluation of a kernel on terms, all iterations at once.

Takes: a body, as a graph of KERNEL or SCHEDULED or as a LINEAR, and the counters of the loops that are not enumerated. Gives: what
each written Param holds afterwards, or the values that are stored and where. Raises NotEvaluable with the reason for a text that
it does not take.

Axis 0 of all arrays is that of `at`, the loops whose counters are given at some points. Every other loop has an axis of its own.
Spec: R51 (references), R52 (Load), R57 (Range), R61 (fresh buffers), R114 (If), R128 (private memory).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from uops.compiler.validate.budget import BudgetUnit, charge_budget_if_limited
from uops.compiler.validate.fingerprints.bounds import IntegerBounds
from uops.compiler.validate.fingerprints.integers import (
    DependsOnCounter,
    Integer,
    NeedsIterations,
    NotEvaluable,
    Numbers,
    UndecidedCondition,
    add,
    multiply,
    with_rank,
)
from uops.compiler.validate.fingerprints.memory import (
    MemoryContents,
    StoredValues,
    finished_contents,
    fresh_elements,
    initial_elements,
    list_positions_of_copies,
    may_be_fresh,
    select_executed,
    store_unambiguously,
)
from uops.compiler.validate.fingerprints.mixing import Fingerprints, combine_unordered, fingerprint_of_words
from uops.compiler.validate.fingerprints.operations import (
    Mask,
    align,
    apply_operation,
    choose,
    choose_under_unknown_condition,
    combine_with_known_truth,
    require_few_points,
    same_positions,
    stack_elements,
    take_elements,
)
from uops.compiler.validate.fingerprints.sharing import ElementSharing
from uops.compiler.validate.fingerprints.slices import IndependentLoops, MemoryAccess
from uops.compiler.validate.fingerprints.terms import (
    AccumulatorRead,
    SumLaws,
    TermValue,
    as_addends,
    constant_term,
    fingerprint,
    fingerprint_in_own_dtype,
    finish_group,
    reduction_of,
    wraps_of,
)
from uops.compiler.validate.fingerprints.text import WITHOUT_VALUE, KernelText, list_gates, list_positions
from uops.compiler.validate.fingerprints.windows import SlidingWindow, find_sliding_windows
from uops.compiler.validate.postorder import compute_sources_first
from uops.compiler.validate.reader import PlacedNode
from uops.compiler.validate.sites import address_of
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import Dim, UOp, toposort
from uops.spec.ir.ops import ACCESSES, COUNTERS, MEMORY_ROOTS, WHOLE_MEMORY, Op
from uops.spec.ir.scope import base_memory, is_private_buffer, is_variable, strip_afters


class SummedIterations(NamedTuple):
    """Some iterations of a loop that stand for all of them in sums: what one adds has `weight`, a random number.

    `counter` has these iterations along one axis.
    """

    counter: Integer
    weight: np.uint64


@dataclass(frozen=True, slots=True)
class Iterations:
    """The iterations in which a kernel is evaluated: all, but for the loops named here.

    - `spread` has the values of the counter of some independent loops along their axis. Nothing may be summed over them.
    - `sums` has the iterations of loops that are not enumerated and only add to sums. These may be in `spread`, too.
    - `at` has the counters of loops at some points, all along axis 0.
    - `variables` has the values of named variables.
    """

    spread: Sequence[tuple[IndependentLoops, Integer]] = ()
    sums: Mapping[UOp, SummedIterations] = field(default_factory=dict)
    at: Mapping[UOp, Integer] = field(default_factory=dict)
    variables: Mapping[str, int] = field(default_factory=dict)


#: Greatest number of elements of accumulators that are kept as they were before their loops.
_MAX_KEPT = 1 << 12


#: Greatest power of two in the number of times that a sum takes a value: each doubling costs a bit of its fingerprint.
_MAX_EVEN_REPETITIONS = 1 << 16


class KernelEvaluation:
    """The state of one evaluation: values of nodes, and memory.

    `load_own_memory` gives what Loads of memory that the kernel stores give, if it does not `run`.
    """

    def __init__(
        self,
        text: KernelText,
        laws: SumLaws,
        iterations: Iterations,
        load_own_memory: Callable[[KernelEvaluation, UOp, UOp, Integer], TermValue] | None = None,
    ) -> None:
        self.text, self.laws, self.iterations, self.load_own_memory = text, laws, iterations, load_own_memory
        self.summed = text.chains_of_sums if laws.keeps_groups or laws.fuses_sums_alone else frozenset()
        self.spread = {r: number for group, number in iterations.spread for r in group.loops}
        self.spread |= {r: s.counter for r, s in iterations.sums.items()}
        self.sums: Collection[UOp] = iterations.sums.keys()
        self.stepped = {r for group, _ in iterations.spread for r in group.steps}
        first = {r: g.loops[0] for g, _ in iterations.spread for r in g.loops if r not in self.stepped}
        axes = [u for u in text.loops if u not in iterations.at and first.get(u, u) is u]
        self.axis_of: Mapping[UOp, int] = {**dict.fromkeys(iterations.at, 0), **{r: k + 1 for k, r in enumerate(axes)}}
        self.axis_of = {**self.axis_of, **{r: self.axis_of[f] for r, f in first.items()}}
        self.rank = len(axes) + 1
        self.values: dict[UOp, TermValue] = {}
        self.sizes: dict[UOp, int] = {}
        self.bounds = IntegerBounds()
        self.windows: Mapping[UOp, SlidingWindow] = {}
        self.counters: dict[UOp, Integer] = {}
        #: Of loops without iterations, and of those whose extent depends on other loops, the iterations that there are.
        self.masks: dict[UOp, Mask] = {}
        for r in text.loops:
            self.counters[r] = self._make_counter(r)
        self.outputs: dict[int, list[StoredValues]] = {m.arg.slot: [] for m in text.write_only_params}
        #: What the memories that are loaded and stored hold, from `run` on.
        self.memories: Mapping[UOp, MemoryContents] = {}
        self.sharing = ElementSharing(self)
        #: False once a Load may have given an element that was never stored, a Store is under a condition on memory, or iterations
        #: store one element: equal kernels may then have other terms.
        self.may_be_refuted = True
        #: Loops in which sums take one value again and again, and how often.
        self.repetitions: dict[UOp, int] = {}
        #: By Store: what a small accumulator held before its loops.
        self.before_sums: dict[UOp, MemoryContents] = {}
        self.windows = find_sliding_windows(text.nodes, text.loops, {*self.spread, *iterations.at}, text.stored)

    def run(self) -> None:
        """Evaluate positions and conditions that depend on loops alone, and then execute everything in order.

        Raises NeedsIterations with all that the first step leaves undecided.
        """
        needed = {p.node for p in self.text.placed}
        if self.windows:  # a term of a sliding window is evaluated apart
            needed = set(toposort(self.text.placed[-1].node, gate=lambda u: u not in self.windows))
        reasons: list[UndecidedCondition | DependsOnCounter] = []
        for by_access in (self.text.positions_by_loops_alone, self.text.conditions_by_loops_alone):
            for u in (u for access, nodes in by_access.items() if access in needed for u in nodes):
                try:
                    self.evaluate(u)
                except (UndecidedCondition, DependsOnCounter) as e:
                    reasons.append(e)
        if reasons:
            raise NeedsIterations(reasons)
        self.memories = {m: self._make_memory(m) for m in self.text.tracked}
        for p in self.text.placed:
            if p.node.op is Op.STORE:
                self._store(p)
            elif p.node in needed and p.node.op not in WITHOUT_VALUE and not _is_address(p.node):
                self.evaluate(p.node)

    def list_writes_by_param(self) -> dict[int, list[StoredValues]]:
        """Return what Stores leave in each written Param after `run`, by slot."""
        values = dict(self.outputs)
        for m in self.memories.values():
            if m.is_stored is not None:
                values[m.node.arg.slot] = [m.list_stored_values(m.is_stored)]
        return values

    def compute_final_contents(self) -> dict[int, Fingerprints]:
        """Return what each written Param holds after `run`, by slot."""
        contents = {m.node.arg.slot: finished_contents(m) for m in self.memories.values() if m.node.op is Op.PARAM}
        for m in self.text.write_only_params:
            whole = initial_elements(m, Integer(np.arange(self._count_elements(m), dtype=np.int64)))
            last_writer = np.full(whole.size, -1, np.int64)
            stores = self.outputs[m.arg.slot]
            for k, s in enumerate(stores):
                store_unambiguously(whole, s.positions.require_numbers(), s.values, s.mask)
                written = select_executed(s.positions.require_numbers(), s.mask)
                earlier = [stores[e] for e in np.unique(last_writer[written]) if e >= 0]
                if any(s.is_conditional or not s.loops.isdisjoint(e.loops) for e in earlier):
                    raise NotEvaluable("two Stores of one loop, or one under a condition on memory, write one element")
                last_writer[written] = k
            contents[m.arg.slot] = whole
        return contents

    # Loops and sizes

    def _make_counter(self, loop: UOp) -> Integer:
        below = toposort(loop.bound)
        if any(u.op is Op.LOAD for u in below):
            raise NotEvaluable("the extent of a loop depends on memory")
        shape = [1] * self.rank
        shape[self.axis_of[loop]] = -1
        given = self.iterations.at.get(loop) or self.spread.get(loop)
        if any(u.op in COUNTERS for u in below):
            if given is not None:
                raise NotEvaluable("the extent of a loop that is not enumerated depends on another loop")
            extent = self.evaluate(loop.bound).integer
            assert extent is not None
            numbers = extent.require_numbers()
            counter = np.arange(max(0, int(numbers.max(initial=0))), dtype=np.int64).reshape(shape)
            self.masks[loop] = counter < numbers
            return Integer(counter)
        if given is None:
            given = Integer(np.arange(max(0, self.evaluate_size(loop.bound)), dtype=np.int64))
        if not given.numbers.size:  # the loop has no iterations
            self.masks[loop] = np.zeros((0,), np.bool_).reshape([0 if n == -1 else n for n in shape])
        return given.map_arrays(lambda x: x.reshape([x.size if n == -1 else n for n in shape]))

    def _find_executed_iterations(self, loops: Sequence[UOp]) -> Mask | None:
        """Return the iterations of some loops that there are; None for all."""
        masks = [self.masks[r] for r in loops if r in self.masks]
        return functools.reduce(np.logical_and, masks) if masks else None

    def evaluate_size(self, dim: Dim) -> int:
        """Return an extent, which may depend on named variables."""
        if isinstance(dim, int):
            return dim
        if dim not in self.sizes:
            integer = self.evaluate(dim).integer
            if integer is None or integer.numbers.size != 1:
                raise NotEvaluable("a size is a value of memory")
            self.sizes[dim] = int(integer.require_numbers().item())
        return self.sizes[dim]

    def _count_elements(self, m: UOp) -> int:
        return int(m.arg.size) if m.op is Op.BUFFER else math.prod(self.evaluate_size(d) for d in m.shape)

    def _weight_of_addends(self, loops: Sequence[UOp], shape: Sequence[int], reduction: tuple[Op, DType]) -> np.uint64:
        """Return how often each addend counts: the iterations that it does not depend on, times the weights of counters of sums.

        Raises NotEvaluable for a loop that is not enumerated, unless its iterations are summed. Sums of integers are polynomials,
        in which a weight would be another factor.
        """
        weight = 1
        for r in loops:
            summed = self.iterations.sums.get(r)
            if summed is None and (r in self.spread or r in self.iterations.at):
                raise NotEvaluable("a sum over a loop that is not enumerated")
            if summed is not None and reduction[0] is Op.ADD and reduction[1].is_integer:
                raise NotEvaluable("a sum of integers over a loop that is not enumerated")
            if shape[self.axis_of[r]] == 1:
                self.repetitions[r] = self.counters[r].numbers.size
                weight *= self.counters[r].numbers.size
            weight *= 1 if summed is None else int(summed.weight)
        repetitions = math.prod(self.repetitions.values())  # sums of sums are one sum
        if repetitions & -repetitions > _MAX_EVEN_REPETITIONS:
            raise NotEvaluable("a sum takes one value too often")
        return np.uint64(weight % (1 << 64))

    def number_iterations(self, loops: Sequence[UOp]) -> tuple[Numbers, int]:
        """Return a number from 0 for each iteration of some loops together, and how many there are.

        Independent loops of one group have their iterations together.
        """
        number, count = np.zeros((1,) * self.rank, np.int64), 1
        for r in {self.axis_of[r]: r for r in loops}.values():
            axis = self.counters[r].numbers
            require_few_points(number, axis)
            number = number + np.arange(axis.size, dtype=np.int64).reshape(axis.shape) * count
            count *= axis.size
        return number, count

    # Values

    def evaluate(self, u: UOp) -> TermValue:
        """Return the value of a node, and of what it needs first."""
        return compute_sources_first(u, self.values, self._list_value_sources, self._compute_and_charge)

    def _list_value_sources(self, u: UOp) -> Sequence[UOp]:
        return () if u in self.windows else _value_sources(u)

    def _compute_and_charge(self, u: UOp) -> TermValue:
        t = self._compute(u)
        charge_budget_if_limited(BudgetUnit.FINGERPRINTS, math.prod(t.shape))
        return t

    def _compute(self, u: UOp) -> TermValue:
        op = u.op
        if op is Op.CONST:
            return constant_term(u.arg.value, u.dtype).with_trailing_axes(self.rank)
        if op in COUNTERS:
            return TermValue(self.counters[u])
        if op is Op.LOAD:
            return self._load(u)
        if op is Op.STACK:
            return stack_elements([self.values[s] for s in u.src], self.rank)
        if op is Op.INDEX:
            return take_elements(u, self.values[u.operand], [self.values[p] for p in u.positions], self.rank)
        if op is Op.REDUCE:
            return self._reduce(u)
        if op in WHOLE_MEMORY and not is_variable(u):
            raise NotEvaluable("a value that is memory, or waits for effects")
        if op is Op.PARAM:
            if u.arg.name not in self.iterations.variables:
                raise NotEvaluable(f"variable {u.arg.name} has too many values")
            return constant_term(self.iterations.variables[u.arg.name], u.dtype).with_trailing_axes(self.rank)
        laws = self.laws._replace(keeps_groups=False, fuses_sums_alone=False) if u in self.summed else self.laws
        return apply_operation(u, align([self.values[s] for s in u.src]), laws, self.bounds)

    def _reduce(self, u: UOp) -> TermValue:
        """Return a Reduce over axes and loops as one multiset."""
        reduction = reduction_of(u.arg.op, u.dtype)
        if u in self.windows:
            return self._reduce_sliding_window(u)
        addends = as_addends(self.values[u.operand], reduction, self.laws)
        executed = self._find_executed_iterations(u.ranges)
        if executed is not None:
            require_few_points(addends, with_rank(executed, addends.ndim))
            addends = np.where(with_rank(executed, addends.ndim), addends, np.uint64(0))
        weight = self._weight_of_addends(u.ranges, addends.shape, reduction)
        axes = (*(self.axis_of[r] for r in u.ranges), *(self.rank + k for k in u.arg.axes))
        with np.errstate(over="ignore"):
            total = addends.sum(axis=axes, keepdims=True, dtype=np.uint64) * weight
        return TermValue(None, np.asarray(total), reduction)

    def _reduce_sliding_window(self, u: UOp) -> TermValue:
        """Return a Reduce of f(i + r) over r for all i: the difference of two sums of f from its first element on."""
        w = self.windows[u]
        reduction = reduction_of(u.arg.op, u.dtype)
        inner = KernelEvaluation(KernelText(w.body), self.laws, Iterations(variables=self.iterations.variables))
        addends = as_addends(inner.evaluate(w.term), reduction, self.laws).reshape(-1)
        charge_budget_if_limited(BudgetUnit.FINGERPRINTS, w.outer_extent + w.extent)
        sums = np.zeros(w.outer_extent + w.extent, np.uint64)
        with np.errstate(over="ignore"):
            np.cumsum(np.broadcast_to(addends, len(sums) - 1), out=sums[1:])
            total = sums[w.extent :] - sums[: w.outer_extent]
        return TermValue(None, total.reshape(self.counters[w.outer].shape), reduction)

    # Memory

    def _make_memory(self, m: UOp) -> MemoryContents:
        if m.op not in MEMORY_ROOTS:
            raise NotEvaluable(f"{m.op.name} is no memory of one kernel")
        slicing = sorted(((g.slicings[m], g.loops) for g, _ in self.iterations.spread if m in g.slicings), key=lambda x: x[0].depth)
        private = (*self.text.list_private_loops(m), *(r for _, loops in slicing for r in loops))
        size = self._count_elements(m)
        for depth, (s, _) in enumerate(slicing):
            size = s.size if s.depth == depth else size
        offset, copies = self.number_iterations([r for r in private if r not in self.stepped])
        require_few_points(np.broadcast_to(np.False_, size * copies))
        charge_budget_if_limited(BudgetUnit.FINGERPRINTS, size * copies)
        first = Integer(np.zeros((1,) * self.rank, np.int64))
        for s, loops in slicing:
            first = add(first, multiply(self.counters[loops[0]], Integer(np.array(s.stride))))
        if m.op is Op.PARAM:
            contents = initial_elements(m, list_positions_of_copies(first, offset * size, size))
            return MemoryContents(m, private, offset * size, first, contents, np.zeros(contents.shape, np.bool_))
        return MemoryContents(m, private, offset * size, first, fresh_elements(m, self.text.name, size * copies))

    def list_accesses(self) -> dict[UOp, list[MemoryAccess]]:
        """Return the accesses to each memory that is both loaded and stored."""
        return {m: [self._describe_access(p) for p in self.text.accesses[m]] for m in self.text.tracked}

    def _describe_access(self, p: PlacedNode) -> MemoryAccess:
        try:
            _, position = self.find_positions(p.node, np.zeros((1,) * self.rank, np.bool_))
        except NotEvaluable:
            position = None
        loops = frozenset(self.text.loops_around(p))
        return MemoryAccess(loops, position if isinstance(position, Integer) else None, p.node.op is Op.STORE)

    def find_positions(self, access: UOp, gate: Mask | None) -> tuple[UOp, Integer | Fingerprints]:
        """Return the memory of an access, and its positions: integers, or fingerprints of values of memory."""
        address = strip_afters(address_of(access))
        m = base_memory(address)
        if address.op in MEMORY_ROOTS:
            shape = tuple(map(self.evaluate_size, address.shape))
            if len(shape) > 1:
                raise NotEvaluable("an access of several axes")
            return m, Integer(np.arange(math.prod(shape), dtype=np.int64).reshape((*(1,) * self.rank, *shape)))
        if address.op is not Op.INDEX or len(address.positions) != 1 or address.operand.op not in WHOLE_MEMORY:
            raise NotEvaluable("an access of another form than one position")
        position = self.evaluate(address.positions[0])
        if position.integer is None:
            return m, fingerprint(position)
        if not position.integer.factors:
            size, numbers = self._count_elements(m), position.integer.numbers
            outside = (numbers < 0) | (numbers >= size)
            if (outside if gate is None else outside & with_rank(gate, outside.ndim)).any():
                raise NotEvaluable("a position is out of bounds")
            return m, Integer(np.clip(numbers, 0, max(0, size - 1)))
        return m, position.integer

    def _load(self, u: UOp) -> TermValue:
        gating = [self.values[s] for s in (u.alternative, u.gate) if s is not None]
        gate = gating[1].integer.require_numbers() != 0 if len(gating) == 2 and gating[1].integer is not None else None
        m, positions = self.find_positions(u, gate)
        loaded = self._contents_at(u, m, positions)
        if not gating:
            return loaded
        alternative, condition = gating
        if loaded.added_to is not None and gate is not None:
            return replace(loaded, added_to=replace(loaded.added_to, is_cleared=~gate, cleared=alternative))
        if loaded.reduction is not None and loaded.added_to is None and condition.integer is not None:
            # where the gate fails, the alternative becomes a sum of one addend
            alternative = TermValue(None, as_addends(alternative, loaded.reduction, self.laws), loaded.reduction)
        return choose(*align([condition, loaded, alternative]))

    def _contents_at(self, u: UOp, m: UOp, positions: Integer | Fingerprints) -> TermValue:
        """Return what a Load gives where its gate holds."""
        if m not in self.text.stored:
            if m.op is not Op.PARAM:
                raise NotEvaluable("a Load of memory that nothing stores")
            return TermValue(None, initial_elements(m, positions))
        if not isinstance(positions, Integer):
            raise NotEvaluable("a position in memory that the kernel writes is itself a value of memory")
        if m not in self.memories and self.load_own_memory is not None:
            return self.load_own_memory(self, u, m, positions)
        if m not in self.memories:
            raise NotEvaluable("a value that depends on memory which the kernel writes")
        memory = self.memories[m]
        at = memory.find_elements(positions)
        require_few_points(at)
        if u in self.sharing.find_carried_loads(m):
            return TermValue(None, None, None, AccumulatorRead(memory, at, frozenset([u])))
        contents = memory.contents[at]
        self.may_be_refuted &= memory.reduction is not None or not may_be_fresh(contents)
        return TermValue(None, contents, memory.reduction, wraps=memory.wraps)

    def _store(self, p: PlacedNode) -> None:
        """Execute a Store in all its iterations."""
        u = p.node
        conditions = [f.condition for f in p.ifs] + ([] if u.gate is None else [u.gate])
        gate = self._combine_gates([self.evaluate(c) for c in conditions])
        known = gate.integer.require_numbers() != 0 if gate is not None and gate.integer is not None else None
        unknown = gate if gate is not None and gate.integer is None else None
        self.may_be_refuted &= unknown is None
        executed = self._find_executed_iterations(p.loops)
        if executed is not None:
            known = executed if known is None else with_rank(executed, known.ndim) & known
        for s in _value_sources(u):
            self.evaluate(s)
        m, positions = self.find_positions(u, known)
        value = self.values[u.value]
        if value.added_to is not None and value.added_to.memory.node is not m:
            value = self._compute_prefix_sums(p, value)
        if not isinstance(positions, Integer):
            raise NotEvaluable("the position of a Store is a value of memory")
        self._require_sums_or_own_memory_in_summed_loops(p, m, value)
        value = finish_group(value)
        if m in self.text.write_only_params:
            x = fingerprint_in_own_dtype(value)
            if unknown is not None:
                x = choose_under_unknown_condition(unknown, x, initial_elements(m, positions))
            loops = frozenset(self.text.loops_around(p))
            spread = (self.counters[r].factors.keys() for r in loops if r in self.spread)
            self.may_be_refuted &= all(counters <= positions.factors.keys() for counters in spread)
            self.outputs[m.arg.slot].append(StoredValues(positions, x, known, loops, unknown is not None))
            return
        memory = self.memories[m]
        at = memory.find_elements(positions)
        memory.mark_stored(at, known)
        if value.added_to is not None:
            if unknown is not None:
                raise NotEvaluable("an accumulator is stored under a condition on memory")
            self._accumulate(p, memory, at, value, known)
            return
        if any(self.sharing.may_carry(memory, p, q) for q in self.text.list_stores(m) if q is not p):
            raise NotEvaluable("an iteration writes again what an earlier one wrote")
        if value.reduction is not None and memory.reduction is None and is_private_buffer(m):
            self._begin_sums(memory, value.reduction)
        if memory.reduction is None:
            x = fingerprint_in_own_dtype(value)
            memory.wraps = memory.wraps or wraps_of(value)
        else:
            x = as_addends(value, memory.reduction, self.laws)
        if unknown is not None:
            x = choose_under_unknown_condition(unknown, x, memory.contents[at])
        store_unambiguously(memory.contents, at, x, known)

    def _require_sums_or_own_memory_in_summed_loops(self, p: PlacedNode, m: UOp, value: TermValue) -> None:
        """Raise NotEvaluable if the last iteration of a loop that is not enumerated leaves a value, other than in a sum."""
        for r in (r for r in self.text.loops_around(p) if r in self.sums):
            has_own_elements = m in self.memories and r in self.memories[m].private
            if m.op is Op.PARAM if has_own_elements else value.added_to is None:
                raise NotEvaluable("a loop of a sum that is not enumerated leaves other values")

    def _accumulate(self, p: PlacedNode, memory: MemoryContents, at: Numbers, value: TermValue, known: Mask | None) -> None:
        """Add what all iterations add to an accumulator."""
        loops = self.text.loops_around(p)
        assert value.added_to is not None
        if value.added_to.memory is not memory or not same_positions(value.added_to.positions, at):
            raise NotEvaluable("an iteration moves what an earlier one computed")
        self.sharing.require_update(memory, value.added_to.loads, p, at)
        if at.ndim > self.rank and _has_equal_lanes(at, self.rank):
            raise NotEvaluable("two lanes add to one element")
        if value.reduction is None:
            if value.added_to.is_cleared is not None:
                raise NotEvaluable("an accumulator is cleared and not added to")
            return  # what was read is stored again
        if memory.reduction is None:
            self._begin_sums(memory, value.reduction)
        if value.added_to.is_cleared is not None:
            self._clear_elements(memory, at, value.added_to, value.reduction, known, loops)
        if memory.contents.size <= _MAX_KEPT:
            self.before_sums[p.node] = replace(memory, contents=memory.contents.copy())
        if memory.reduction != value.reduction:
            raise NotEvaluable("an accumulator takes reductions of two kinds")
        addends = value.fingerprints
        assert addends is not None
        if known is not None:
            addends = np.where(with_rank(known, addends.ndim), addends, np.uint64(0))
        require_few_points(at, addends)
        shared = [r for r in loops if r not in memory.private]
        weight = self._weight_of_addends(shared, np.broadcast_shapes(at.shape, addends.shape), value.reduction)
        summed = tuple(k for k in range(at.ndim) if at.shape[k] == 1 and addends.shape[k] > 1)
        with np.errstate(over="ignore"):
            addends = addends.sum(axis=summed, keepdims=True, dtype=np.uint64) * weight
            np.add.at(memory.contents, *np.broadcast_arrays(at, addends))

    def _clear_elements(
        self,
        memory: MemoryContents,
        at: Numbers,
        read: AccumulatorRead,
        reduction: tuple[Op, DType],
        executed: Mask | None,
        loops: Sequence[UOp],
    ) -> None:
        """Clear the elements of an accumulator that the first iteration of its loops clears.

        Raises NotEvaluable if later ones do, or if another Store adds to them.
        """
        shared = [r for r in loops if r not in memory.private]
        if read.cleared is None or as_addends(read.cleared, reduction, self.laws).any() or any(r in self.spread for r in shared):
            raise NotEvaluable("an iteration chooses between what an earlier one computed and something else")
        number, _ = self.number_iterations(shared)
        is_first = with_rank(number == 0, at.ndim)
        assert read.is_cleared is not None
        is_executed = np.ones((1,) * at.ndim, np.bool_) if executed is None else with_rank(executed, at.ndim)
        at, is_executed, is_cleared, is_first = np.broadcast_arrays(at, is_executed, with_rank(read.is_cleared, at.ndim), is_first)
        if (is_executed & (is_cleared != is_first)).any():
            raise NotEvaluable("a later iteration clears an accumulator")
        if (self.sharing.count_stores_by_element(memory)[at] > 1).any():
            raise NotEvaluable("an accumulator that is cleared has several Stores")
        memory.contents[at[is_executed & is_first]] = 0

    def _compute_prefix_sums(self, p: PlacedNode, value: TermValue) -> TermValue:
        """Return what an accumulator holds in each iteration, of a value that is stored in it and elsewhere.

        That is what it held before its loops, and what all iterations up to this one have added.
        """
        assert value.added_to is not None
        if value.added_to.is_cleared is not None:
            raise NotEvaluable("an iteration uses a sum that is cleared")
        memory, at = value.added_to.memory, value.added_to.positions
        stores = self.text.list_stores(memory.node)
        own = [q for q in stores if q.node.value is p.node.value and q.loops == p.loops and not q.ifs and q.node.gate is None]
        loops = [] if len(own) != 1 else self.sharing.list_sequential_shared_loops(memory, own[0])
        others = [q for q in stores if q not in own]
        before = self.before_sums.get(own[0].node, memory) if own else memory
        axes = tuple(self.axis_of[r] for r in loops)
        if (
            not loops
            or value.reduction is None
            or memory.contents.size > _MAX_KEPT
            or any(not set(loops).isdisjoint(q.loops) for q in others)
            or any(r in self.masks or r in self.spread or r in self.iterations.at for r in loops)
            or any(at.shape[k] != 1 for k in axes)
            or not {*self.text.loops_around(p)}.issubset({*loops, *memory.private})
        ):
            raise NotEvaluable("an iteration uses what an earlier one computed, other than in a sum")
        self.sharing.require_update(memory, value.added_to.loads, own[0], at)
        first = as_addends(TermValue(None, before.contents[at], before.reduction, wraps=before.wraps), value.reduction, self.laws)
        assert value.fingerprints is not None
        shape = list(np.broadcast_shapes(value.fingerprints.shape, at.shape))
        for r in loops:
            shape[self.axis_of[r]] = self.counters[r].numbers.size
        require_few_points(np.broadcast_to(np.False_, shape))
        added = np.moveaxis(np.broadcast_to(value.fingerprints, shape), axes, range(-len(axes), 0))
        with np.errstate(over="ignore"):
            sums = added.reshape((*added.shape[: -len(axes)], -1)).cumsum(axis=-1, dtype=np.uint64).reshape(added.shape)
            return TermValue(None, first + np.moveaxis(sums, range(-len(axes), 0), axes), value.reduction)

    def _begin_sums(self, memory: MemoryContents, reduction: tuple[Op, DType]) -> None:
        """Turn the contents of a memory into multisets."""
        self.may_be_refuted &= not may_be_fresh(memory.contents)
        contents = TermValue(None, memory.contents, wraps=memory.wraps)
        memory.contents, memory.reduction, memory.wraps = np.array(as_addends(contents, reduction, self.laws)), reduction, None

    def _combine_gates(self, conditions: Sequence[TermValue]) -> TermValue | None:
        """Return the conjunction of conditions; None for no condition."""
        result: TermValue | None = None
        for c in conditions:
            if result is None:
                result = c
                continue
            result, c = align([result, c])
            if result.integer is not None and c.integer is not None:
                both = (result.integer.require_numbers() != 0) & (c.integer.require_numbers() != 0)
                result = TermValue(Integer(both.astype(np.int64)))
            else:
                x, y = fingerprint(result), fingerprint(c)
                both = np.where(x == y, x, combine_unordered(fingerprint_of_words("conjunction"), x, y))
                result = combine_with_known_truth(True, result, c) or TermValue(None, both)
        return result


def _has_equal_lanes(at: Numbers, rank: int) -> bool:
    """Return True if some lanes have equal positions in one iteration."""
    lanes = np.sort(at.reshape((*at.shape[:rank], -1)), axis=-1)
    return bool((np.diff(lanes, axis=-1) == 0).any())


def _is_address(u: UOp) -> bool:
    return u.op is Op.INDEX and base_memory(u.operand).op in MEMORY_ROOTS


def _value_sources(u: UOp) -> Sequence[UOp]:
    """Return the sources whose values a node needs."""
    if u.op in COUNTERS or u.op in WHOLE_MEMORY or u.op is Op.CONST:
        return ()
    if u.op in ACCESSES:
        value = u.value if u.op is Op.STORE else u.alternative
        return (*list_positions(u), *list_gates(u), *(() if value is None else (value,)))
    if u.op is Op.REDUCE:
        return (u.operand,)
    return u.src
