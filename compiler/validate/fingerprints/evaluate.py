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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from uops.compiler.validate.budget import BudgetUnit, charge_budget_if_limited
from uops.compiler.validate.fingerprints.bounds import IntegerBounds
from uops.compiler.validate.fingerprints.integers import Integer, NotEvaluable, Numbers, add, multiply, with_rank
from uops.compiler.validate.fingerprints.memory import (
    MemoryContents,
    StoredValues,
    finished_contents,
    has_copy_per_iteration,
    initial_elements,
    list_positions_of_copies,
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
from uops.compiler.validate.fingerprints.slices import IndependentLoops, MemoryAccess
from uops.compiler.validate.fingerprints.terms import (
    AccumulatorRead,
    SumLaws,
    TermValue,
    as_addends,
    constant_term,
    fingerprint,
    fingerprint_in_own_dtype,
    reduction_of,
    wraps_of,
)
from uops.compiler.validate.fingerprints.windows import SlidingWindow, find_sliding_windows
from uops.compiler.validate.postorder import compute_sources_first
from uops.compiler.validate.reader import PlacedNode, place_nodes_in_blocks
from uops.compiler.validate.sites import address_of
from uops.spec.ir.axes import GRID, WORKGROUP
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import Dim, UOp, toposort
from uops.spec.ir.ops import ACCESSES, ALU, COUNTERS, MEMORY_ROOTS, WHOLE_MEMORY, Op
from uops.spec.ir.scope import base_memory, is_private_buffer, is_variable, strip_afters


@dataclass(frozen=True, slots=True)
class Iterations:
    """The iterations in which a kernel is evaluated: all, but for the loops named here.

    - `spread` has the values of the counter of some independent loops along their axis. Nothing may be summed over them.
    - `at` has the counters of loops at some points, all along axis 0.
    - `variables` has the values of named variables.
    """

    spread: Sequence[tuple[IndependentLoops, Integer]] = ()
    at: Mapping[UOp, Integer] = field(default_factory=dict)
    variables: Mapping[str, int] = field(default_factory=dict)


#: Greatest number of elements of accumulators that are kept as they were before their loops.
_MAX_KEPT = 1 << 12


class KernelEvaluation:
    """The state of one evaluation: values of nodes, and memory."""

    def __init__(self, root: UOp, laws: SumLaws, iterations: Iterations) -> None:
        while root.op is Op.PROGRAM:
            assert root.linear is not None
            root = root.linear
        self.laws, self.iterations = laws, iterations
        nodes = toposort(root)
        self.summed = _find_chains_below_reduces(nodes) if laws.keeps_groups else frozenset()
        if not _TAKEN.issuperset(u.op for u in nodes):
            op = next(u.op for u in nodes if u.op not in _TAKEN)
            raise NotEvaluable(f"{op.name} has no terms")
        self.placed = place_nodes_in_blocks(root)
        self.loops = [u for u in nodes if u.op in COUNTERS]
        self.spread = {r: number for group, number in iterations.spread for r in group.loops}
        first = {r: group.loops[0] for group, _ in iterations.spread for r in group.loops}
        axes = [u for u in self.loops if u not in iterations.at and first.get(u, u) is u]
        self.axis_of = {**dict.fromkeys(iterations.at, 0), **{r: k + 1 for k, r in enumerate(axes)}}
        self.axis_of |= {r: self.axis_of[f] for r, f in first.items()}
        self.rank = len(axes) + 1
        self.values: dict[UOp, TermValue] = {}
        self.sizes: dict[UOp, int] = {}
        self.bounds = IntegerBounds()
        self.windows: Mapping[UOp, SlidingWindow] = {}
        self.counters: dict[UOp, Integer] = {}
        #: Of loops whose extent depends on other loops, the iterations that there are.
        self.masks: dict[UOp, Mask] = {}
        for r in self.loops:
            self.counters[r] = self._make_counter(r)
        self.specials = tuple(u for u in self.loops if u.op is Op.SPECIAL)
        self.accesses: dict[UOp, list[PlacedNode]] = {}
        for p in self.placed:
            if p.node.op in ACCESSES:
                self.accesses.setdefault(base_memory(address_of(p.node)), []).append(p)
        loaded, stored = (
            {m for m, places in self.accesses.items() if any(p.node.op is op for p in places)} for op in (Op.LOAD, Op.STORE)
        )
        self.stored = stored
        self.only_stored = {m for m in stored - loaded if m.op is Op.PARAM}
        self.outputs: dict[int, list[StoredValues]] = {m.arg.slot: [] for m in self.only_stored}
        #: The memories that are both loaded and stored; what they hold, from `run` on.
        self.updated = stored - self.only_stored
        self.memories: dict[UOp, MemoryContents] = {}
        self.carried: dict[UOp, frozenset[UOp]] = {}
        self.owners: dict[tuple[tuple[UOp, ...], tuple[UOp, ...]], Numbers | None] = {}
        self.have_own_elements: dict[tuple[UOp, tuple[UOp, ...]], bool] = {}
        self.own_positions: dict[UOp, Numbers | None] = {}
        #: By Store: what a small accumulator held before its loops.
        self.before_sums: dict[UOp, MemoryContents] = {}
        self.windows = find_sliding_windows(nodes, self.loops, {*self.spread, *iterations.at}, self.stored)
        if root.op is not Op.LINEAR:
            self._require_loads_ordered_with_stores()

    def run(self) -> None:
        """Execute everything in order, but first what positions and conditions by loops alone need: that may not be evaluable."""
        self.memories = {m: self._make_memory(m) for m in self.updated}
        needed = {p.node for p in self.placed}
        if self.windows:  # a term of a sliding window is evaluated apart
            needed = set(toposort(self.placed[-1].node, gate=lambda u: u not in self.windows))
        for p in self.placed:
            if p.node.op in ACCESSES and p.node in needed:
                for u in (*_list_positions_and_gate(p.node), *(f.condition for f in p.ifs)):
                    if _depends_on_loops_alone(u):
                        self.evaluate(u)
        for p in self.placed:
            if p.node.op is Op.STORE:
                self._store(p)
            elif p.node in needed and p.node.op not in _WITHOUT_VALUE and not _is_address(p.node):
                self.evaluate(p.node)

    def stored_values_of_params(self) -> dict[int, list[StoredValues]]:
        """Return what Stores leave in each written Param after `run`, by slot."""
        values = dict(self.outputs)
        for m in self.memories.values():
            if m.is_stored is not None:
                values[m.node.arg.slot] = [m.list_stored_values(m.is_stored)]
        return values

    def contents_of_params(self) -> dict[int, Fingerprints]:
        """Return what each written Param holds after `run`, by slot."""
        contents = {m.node.arg.slot: finished_contents(m) for m in self.memories.values() if m.node.op is Op.PARAM}
        for m in self.only_stored:
            whole = initial_elements(m, Integer(np.arange(self._count_elements(m), dtype=np.int64)))
            for s in self.outputs[m.arg.slot]:
                store_unambiguously(whole, s.positions.require_numbers(), s.values, s.mask)
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
        return given.map_arrays(lambda x: x.reshape(shape))

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

    def _repetitions(self, loops: Sequence[UOp], shape: Sequence[int]) -> int:
        """Return how often a sum over loops takes a value of this shape again. Raises NotEvaluable for a loop not enumerated."""
        repeated = 1
        for r in loops:
            if r in self.spread or r in self.iterations.at:
                raise NotEvaluable("a sum over a loop that is not enumerated")
            if shape[self.axis_of[r]] == 1:
                repeated *= self.counters[r].numbers.size
        return repeated

    def _number_iterations(self, loops: Sequence[UOp]) -> tuple[Numbers, int]:
        """Return a number from 0 for each iteration of some loops together, and how many there are.

        Independent loops of one group have their iterations together.
        """
        number, count = np.zeros((1,) * self.rank, np.int64), 1
        for r in {self.axis_of[r]: r for r in loops}.values():
            axis = self.counters[r].numbers
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
        laws = self.laws._replace(keeps_groups=False) if u in self.summed else self.laws
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
        repeated = self._repetitions(u.ranges, addends.shape)
        axes = (*(self.axis_of[r] for r in u.ranges), *(self.rank + k for k in u.arg.axes))
        with np.errstate(over="ignore"):
            total = addends.sum(axis=axes, keepdims=True, dtype=np.uint64) * np.uint64(repeated)
        return TermValue(None, np.asarray(total), reduction)

    def _reduce_sliding_window(self, u: UOp) -> TermValue:
        """Return a Reduce of f(i + r) over r for all i: the difference of two sums of f from its first element on."""
        w = self.windows[u]
        reduction = reduction_of(u.arg.op, u.dtype)
        inner = KernelEvaluation(w.body, self.laws, Iterations(variables=self.iterations.variables))
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
        private = (*self.list_private_loops(m), *(r for _, loops in slicing for r in loops))
        size = self._count_elements(m)
        for depth, (s, _) in enumerate(slicing):
            size = s.size if s.depth == depth else size
        offset, copies = self._number_iterations(private)
        require_few_points(np.broadcast_to(np.False_, size * copies))
        charge_budget_if_limited(BudgetUnit.FINGERPRINTS, size * copies)
        first = Integer(np.zeros((1,) * self.rank, np.int64))
        for s, loops in slicing:
            first = add(first, multiply(self.counters[loops[0]], Integer(np.array(s.stride))))
        if m.op is Op.PARAM:
            contents = initial_elements(m, list_positions_of_copies(first, offset * size, size))
            return MemoryContents(m, private, offset * size, first, contents, np.zeros(contents.shape, np.bool_))
        positions = np.arange(size * copies, dtype=np.uint64)
        with np.errstate(over="ignore"):
            nothing = positions * fingerprint_of_words("stride") + fingerprint_of_words("uninitialized", m.arg.unique)
        return MemoryContents(m, private, offset * size, first, nothing)

    def list_accesses(self) -> dict[UOp, list[MemoryAccess]]:
        """Return the accesses to each memory that is both loaded and stored."""
        return {m: [self._describe_access(p) for p in self.accesses[m]] for m in self.updated}

    def _describe_access(self, p: PlacedNode) -> MemoryAccess:
        try:
            _, position = self.find_positions(p.node, np.zeros((1,) * self.rank, np.bool_))
        except NotEvaluable:
            position = None
        loops = frozenset({*self.specials, *p.loops})
        return MemoryAccess(loops, position if isinstance(position, Integer) else None, p.node.op is Op.STORE)

    def list_private_loops(self, m: UOp) -> tuple[UOp, ...]:
        """Return the loops whose iterations have a copy each: those that contain every access, unless lanes share the memory.

        If an iteration did read what another one wrote, it would find elements that are equal to nothing else.
        """
        if not is_private_buffer(m):
            return ()
        common = {*self.specials, *self.accesses[m][0].loops}
        for p in self.accesses[m]:
            common &= {*self.specials, *p.loops}
        return tuple(r for r in self.loops if r in common and has_copy_per_iteration(m, r))

    def _shared_loops(self, memory: MemoryContents, p: PlacedNode) -> list[UOp]:
        """Return the loops around an access whose iterations, one after the other, share the memory."""
        return [r for r in p.loops if _is_sequential(r) and r not in memory.private]

    def _find_carried_loads(self, m: UOp) -> frozenset[UOp]:
        """Return the Loads of a memory that may give what a Store of an earlier iteration left."""
        if m not in self.carried:
            stores = [p for p in self.accesses[m] if p.node.op is Op.STORE]
            loads = [p for p in self.accesses[m] if p.node.op is Op.LOAD]
            self.carried[m] = frozenset(p.node for p in loads if any(self._may_carry(self.memories[m], s, p) for s in stores))
        return self.carried[m]

    def _may_carry(self, memory: MemoryContents, store: PlacedNode, other: PlacedNode) -> bool:
        """Return False if no iteration of the loops around both loads or stores an element that another one stores."""
        loops = tuple(r for r in self._shared_loops(memory, store) if r in other.loops)
        if not loops or self._access_elements_of_their_own(memory, loops):
            return False
        owner = self._find_iterations_that_access(memory, (store.node,), loops)
        read = self._find_own_positions(memory, other.node)
        if owner is None or read is None:
            return True
        at, iteration = _broadcast_with_lanes(read, self._number_iterations(loops)[0])
        return not ((owner[at] == iteration) | (owner[at] < 0)).all()

    def _access_elements_of_their_own(self, memory: MemoryContents, loops: tuple[UOp, ...]) -> bool:
        """Return True if no two iterations of loops access one element, as far as that is known."""
        key = memory.node, loops
        if key not in self.have_own_elements:
            around = [p.node for p in self.accesses[memory.node] if set(loops).issubset(p.loops)]
            self.have_own_elements[key] = self._find_iterations_that_access(memory, tuple(around), loops) is not None
        return self.have_own_elements[key]

    def _find_iterations_that_access(
        self, memory: MemoryContents, accesses: tuple[UOp, ...], loops: tuple[UOp, ...]
    ) -> Numbers | None:
        """Return which iteration of the loops accesses each element, -1 for none; None if two do, or if it is not known."""
        key = accesses, loops
        if key not in self.owners:
            number, count = self._number_iterations(loops)
            owner: Numbers | None = np.full(memory.contents.size, -1, np.int64)
            for access in accesses:
                positions = self._find_own_positions(memory, access)
                if positions is None or owner is None or (count > 1 and all(positions.shape[self.axis_of[r]] == 1 for r in loops)):
                    owner = None  # perhaps because every iteration accesses the same elements
                    break
                at, iteration = _broadcast_with_lanes(positions, number)
                is_free = owner[at] < 0
                owner[at] = np.where(is_free, iteration, owner[at])
                owner = owner if (owner[at] == iteration).all() else None
            self.owners[key] = owner
        return self.owners[key]

    def _find_own_positions(self, memory: MemoryContents, access: UOp) -> Numbers | None:
        """Return the elements of an access, whether its gate holds or not; None if they are not known."""
        if access not in self.own_positions:
            self.own_positions[access] = self._compute_own_positions(memory, access)
        return self.own_positions[access]

    def _compute_own_positions(self, memory: MemoryContents, access: UOp) -> Numbers | None:
        address = strip_afters(address_of(access))
        if address.op is not Op.INDEX or any(not _depends_on_loops_alone(p) for p in address.positions):
            return None
        _, positions = self.find_positions(access, np.zeros((1,) * self.rank, np.bool_))
        return memory.find_elements(positions) if isinstance(positions, Integer) else None

    def _require_loads_ordered_with_stores(self) -> None:
        """Raise NotEvaluable unless each Load is ordered with each Store of its memory by the edges of a graph."""
        for m in self.updated:
            loads = [p.node for p in self.accesses[m] if p.node.op is Op.LOAD]
            for s in (p.node for p in self.accesses[m] if p.node.op is Op.STORE):
                before = set(toposort(s))
                if any(load not in before and s not in toposort(load) for load in loads):
                    raise NotEvaluable("a Load and a Store of one memory have no order")

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
        if loaded.reduction is not None and loaded.added_to is None and condition.integer is not None:
            # where the gate fails, the alternative becomes a sum of one addend
            alternative = TermValue(None, as_addends(alternative, loaded.reduction, self.laws), loaded.reduction)
        return choose(*align([condition, loaded, alternative]))

    def _contents_at(self, u: UOp, m: UOp, positions: Integer | Fingerprints) -> TermValue:
        """Return what a Load gives where its gate holds."""
        if m not in self.stored:
            if m.op is not Op.PARAM:
                raise NotEvaluable("a Load of memory that nothing stores")
            return TermValue(None, initial_elements(m, positions))
        if not isinstance(positions, Integer):
            raise NotEvaluable("a position in memory that the kernel writes is itself a value of memory")
        if m not in self.memories:
            raise NotEvaluable("a value that depends on memory which the kernel writes")
        memory = self.memories[m]
        at = memory.find_elements(positions)
        require_few_points(at)
        if u in self._find_carried_loads(m):
            return TermValue(None, None, None, AccumulatorRead(memory, at))
        return TermValue(None, memory.contents[at], memory.reduction, wraps=memory.wraps)

    def _store(self, p: PlacedNode) -> None:
        """Execute a Store in all its iterations."""
        u = p.node
        conditions = [f.condition for f in p.ifs] + ([] if u.gate is None else [u.gate])
        gate = self._combine_gates([self.evaluate(c) for c in conditions])
        known = gate.integer.require_numbers() != 0 if gate is not None and gate.integer is not None else None
        executed = self._find_executed_iterations(p.loops)
        if executed is not None:
            known = executed if known is None else executed & known
        for s in _value_sources(u):
            self.evaluate(s)
        m, positions = self.find_positions(u, known)
        value = self.values[u.value]
        if value.added_to is not None and value.added_to.memory.node is not m:
            value = self._finish_running_sum(p, value)
        if not isinstance(positions, Integer):
            raise NotEvaluable("the position of a Store is a value of memory")
        if m in self.only_stored:
            x = fingerprint_in_own_dtype(value)
            if gate is not None and gate.integer is None:
                x = choose_under_unknown_condition(gate, x, initial_elements(m, positions))
            self.outputs[m.arg.slot].append(StoredValues(positions, x, known))
            return
        memory = self.memories[m]
        at = memory.find_elements(positions)
        memory.mark_stored(at, known)
        if value.added_to is not None:
            self._accumulate(u, memory, at, value, gate, known, (*self.specials, *p.loops))
            return
        if any(self._may_carry(memory, p, q) for q in self.accesses[m] if q.node.op is Op.STORE and q is not p):
            raise NotEvaluable("an iteration writes again what an earlier one wrote")
        if value.reduction is not None and memory.reduction is None and is_private_buffer(m):
            self._begin_sums(memory, value.reduction)
        if memory.reduction is None:
            x = fingerprint_in_own_dtype(value)
            memory.wraps = memory.wraps or wraps_of(value)
        else:
            x = as_addends(value, memory.reduction, self.laws)
        if gate is not None and gate.integer is None:
            x = choose_under_unknown_condition(gate, x, memory.contents[at])
        store_unambiguously(memory.contents, at, x, known)

    def _accumulate(
        self,
        store: UOp,
        memory: MemoryContents,
        at: Numbers,
        value: TermValue,
        gate: TermValue | None,
        known: Mask | None,
        loops: Sequence[UOp],
    ) -> None:
        """Add what all iterations add to an accumulator."""
        assert value.added_to is not None
        if gate is not None and gate.integer is None:
            raise NotEvaluable("an accumulator is stored under a condition on memory")
        if value.added_to.memory is not memory or not same_positions(value.added_to.positions, at):
            raise NotEvaluable("an iteration moves what an earlier one computed")
        if value.reduction is None:
            return  # what was read is stored again
        if memory.reduction is None:
            self._begin_sums(memory, value.reduction)
        if memory.contents.size <= _MAX_KEPT:
            self.before_sums[store] = replace(memory, contents=memory.contents.copy())
        if memory.reduction != value.reduction:
            raise NotEvaluable("an accumulator takes reductions of two kinds")
        addends = value.fingerprints
        assert addends is not None
        if known is not None:
            addends = np.where(with_rank(known, addends.ndim), addends, np.uint64(0))
        require_few_points(at, addends)
        repeated = self._repetitions([r for r in loops if r not in memory.private], np.broadcast_shapes(at.shape, addends.shape))
        summed = tuple(k for k in range(at.ndim) if at.shape[k] == 1 and addends.shape[k] > 1)
        with np.errstate(over="ignore"):
            addends = addends.sum(axis=summed, keepdims=True, dtype=np.uint64) * np.uint64(repeated)
            np.add.at(memory.contents, *np.broadcast_arrays(at, addends))

    def _finish_running_sum(self, p: PlacedNode, value: TermValue) -> TermValue:
        """Return what an accumulator holds in each iteration, of a value that is stored in it and elsewhere.

        That is what it held before its loops, and what all iterations up to this one have added.
        """
        assert value.added_to is not None
        memory, at = value.added_to.memory, value.added_to.positions
        stores = [q for q in self.accesses[memory.node] if q.node.op is Op.STORE]
        own = [q for q in stores if q.node.value is p.node.value and q.loops == p.loops and not q.ifs and q.node.gate is None]
        loops = [] if len(own) != 1 else self._shared_loops(memory, own[0])
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
            or not {*self.specials, *p.loops}.issubset({*loops, *memory.private})
        ):
            raise NotEvaluable("an iteration uses what an earlier one computed, other than in a sum")
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


def _find_chains_below_reduces(nodes: Sequence[UOp]) -> frozenset[UOp]:
    """Return the operations, chains of one op, whose operands a Reduce by that op sums."""
    found: set[UOp] = set()
    stack = [(u.arg.op, u.operand) for u in nodes if u.op is Op.REDUCE]
    while stack:
        op, u = stack.pop()
        if u.op is op and u not in found:
            found.add(u)
            stack += [(op, s) for s in u.src]
        elif u.op is Op.CAST:
            stack.append((op, u.operand))
    return frozenset(found)


def _broadcast_with_lanes(positions: Numbers, iterations: Numbers) -> Sequence[Numbers]:
    """Return positions, and the number of the iteration of each of them."""
    return np.broadcast_arrays(positions, with_rank(iterations, positions.ndim))


def _depends_on_loops_alone(u: UOp) -> bool:
    return all(v.op is not Op.LOAD for v in toposort(u))


def _list_positions_and_gate(access: UOp) -> tuple[UOp, ...]:
    address = strip_afters(address_of(access))
    positions = address.positions if address.op is Op.INDEX else ()
    return (*positions, *(() if access.gate is None else (access.gate,)))


def _is_address(u: UOp) -> bool:
    return u.op is Op.INDEX and base_memory(u.operand).op in MEMORY_ROOTS


def _is_sequential(loop: UOp) -> bool:
    """Return False for lanes and workgroups: what they exchange is ordered by Barriers, or refuted as a race (R55)."""
    return loop.arg.type not in GRID | WORKGROUP


def _value_sources(u: UOp) -> Sequence[UOp]:
    """Return the sources whose values a node needs."""
    if u.op in COUNTERS or u.op in WHOLE_MEMORY or u.op is Op.CONST:
        return ()
    if u.op in ACCESSES:
        value = u.value if u.op is Op.STORE else u.alternative
        return (*_list_positions_and_gate(u), *(() if value is None else (value,)))
    if u.op is Op.REDUCE:
        return (u.operand,)
    return u.src


#: Nodes without a value of their own, in a body or a list.
_WITHOUT_VALUE = MEMORY_ROOTS | {Op.STORE, Op.AFTER, Op.END, Op.GROUP, Op.SINK, Op.IF, Op.ENDIF, Op.BARRIER, Op.LINEAR}
_TAKEN = ALU | _WITHOUT_VALUE | COUNTERS | {Op.CONST, Op.LOAD, Op.STACK, Op.INDEX, Op.REDUCE, Op.BITCAST}
