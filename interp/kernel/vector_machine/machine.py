"""The vector machine: a kernel's loops as axes of NumPy arrays, with one step of Python per node.

A node inside of axes is one array over all their iterations, as large as what it depends on. Loops that run in order (`plan`)
run in Python around that. Raises GiveUp where order might matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from uops.interp.kernel.lane_machine.memory import FlatMemory, MemoryWindow
from uops.interp.kernel.structure.blocks import Loop, ScheduledBlock
from uops.interp.kernel.vector_machine.affine import AffineValue, affine_constant
from uops.interp.kernel.vector_machine.axes import (
    align_to_loop_depth_and_own_rank,
    fold_loop_axes,
    plan_matrix_product_if_worthwhile,
    to_matrix,
)
from uops.interp.kernel.vector_machine.limits import GiveUp, check_array_size
from uops.interp.kernel.vector_machine.memory import (
    AccessEvent,
    ScatteredRef,
    StridedRef,
    StridedSpan,
    VectorMemory,
    VectorRef,
    compute_in_bounds_span_or_give_up,
    expand_loop_axes,
    give_up_on_conflicts,
    whole_memory_ref,
)
from uops.interp.kernel.vector_machine.plan import MemoryPlan, VectorPlan
from uops.interp.kernel.vector_machine.static import StaticValues
from uops.interp.ops.elementwise import KERNELS
from uops.interp.ops.reduce import FOLDS
from uops.interp.ops.rounding import NARROW
from uops.interp.tensor.checks import check_min_max, raise_unsound
from uops.interp.tensor.storage import NUMPY, Array
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.derive.minmax import WHOLE
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

_ndarray = np.ndarray


#: An `AffineValue`, an array, a `VectorRef`, or None of a void node.
VectorValue = Any
#: A leaf -> its value or its memory.
Operands = Mapping[UOp, Array | FlatMemory | MemoryWindow]


@dataclass(eq=False, slots=True)
class VectorOutcome:
    """The outcome of a run: the value of the kernel's root, None where it has none, and the new contents of each memory."""

    value: Array | None
    changes: tuple[tuple[FlatMemory, VectorMemory], ...]

    def commit(self) -> Array | None:
        """Make the memories hold the outcome, and return the value."""
        installed: set[int] = set()
        for flat, memory in self.changes:
            _merge_marks(flat.read_mask, memory.read_mask)
            if memory.written_mask is not False:
                _merge_marks(flat.written_mask, memory.written_mask)
                _commit_contents_and_ready_marks(flat, memory, installed)
        return self.value


def _commit_contents_and_ready_marks(flat: FlatMemory, computed: VectorMemory, adopted_arrays: set[int]) -> None:
    """Give `flat` the contents of `computed`, in its own arrays unless they are borrowed.

    An array that was computed becomes that of one memory. `adopted_arrays` has the ids of those that did.
    """
    data, new, written = flat.data, computed.data, computed.written_mask
    if not flat.borrowed:
        np.copyto(data if data.dtype is new.dtype else data.view(new.dtype), new)
        if flat.ready is not None:
            _merge_marks(flat.ready, written)
        return
    if not computed.is_owned and id(new.base) in adopted_arrays:
        new = new.copy()
    adopted_arrays.add(id(new.base))
    flat.data = new if data.dtype is new.dtype else new.view(data.dtype)
    flat.ready = None if flat.ready is None or written is True else flat.ready | written
    flat.borrowed = False


def _merge_marks(marks: Array, added: Array | bool) -> None:
    """Set the marks of `added`, which is a mask, or True for all and False for none."""
    if added is True:
        marks.fill(True)
    elif added is not False:
        marks |= added


#: (machine, node, mask of the Ifs around it) -> the node's value.
Action = Callable[["VectorMachine", UOp, "Array | None"], VectorValue]
#: A step of a block: an action and its node, or None and a loop; and the Ifs around it.
BlockStep = tuple[Action | None, Any, tuple[UOp, ...]]


#: A step of a straight line: the extents of the axes around it, their product, the action, and the node.
PlacedStep = tuple[list[int], int, Action, UOp]
#: NumPy's dtype of a node, its shape, and its bounds, None where the dtype implies them.
ExpectedForm = tuple[np.dtype[Any], tuple[Any, ...], tuple[Any, Any] | None]


def _expected_dtype_shape_and_bounds(u: UOp) -> ExpectedForm:
    """Return the derived properties of `u` that its values are checked against."""
    d, bounds, unknown = u.dtype, u.min_max, WHOLE[u.dtype]
    if bounds is None:
        raise_unsound(u, "min_max", "bounds", None)
    return NUMPY[d], u.shape, None if bounds is unknown or bounds == unknown else bounds


@dataclass(eq=False, slots=True)
class VectorProgram:
    """A kernel ready to run.

    `straight_line` has all steps in one list, if nothing about the loops is left to a run. `leaf_operands` has, per leaf, the
    plan of its memory if it is one, and NumPy's dtype. If the shape is known, it also has the reference to all of the leaf.
    `forms` memoizes the expected forms of nodes.
    """

    plan: VectorPlan
    static: StaticValues
    actions: Mapping[Op, Action]
    steps: dict[ScheduledBlock, list[BlockStep]]
    straight_line: list[PlacedStep] | None
    leaf_operands: list[tuple[UOp, MemoryPlan | None, np.dtype[Any], StridedRef | None]]
    forms: dict[UOp, ExpectedForm] = field(default_factory=dict)


class VectorMachine:
    """One run of a program.

    `cells` holds the value of every evaluated node. `extents` are those of the axes around the present block, and `volume` is
    their product. `phase` counts the barriers passed.
    """

    def __init__(self, program: VectorProgram, operands: Operands, check: bool) -> None:
        self.program = program
        self.plan = program.plan
        self.steps = program.steps
        self.spans = program.static.spans
        self.bounds = program.static.bounds
        self.forms = program.forms
        self.check = check
        self.cells: dict[UOp, VectorValue] = dict(program.static.cells)
        self.extents: list[int] = []
        self.volume = 1
        self.iterations: dict[UOp, int] = {}
        self.phase = 0
        self.memories: dict[UOp, VectorMemory] = {}
        self.events: dict[UOp, list[AccessEvent]] = {}
        self.collected: dict[UOp, list[Array]] = {}
        self.bases: dict[UOp, int] = {}
        self.flat_memories: list[tuple[FlatMemory, VectorMemory]] = []
        self.values: set[UOp] = set()
        self._bind_operands_or_give_up(operands)

    def _bind_operands_or_give_up(self, operands: Operands) -> None:
        """Set the values and memories of the leaves. Raises GiveUp for memories that share bytes, one of them written."""
        cells, flat_memories, written = self.cells, self.flat_memories, []
        for u, plan, dtype, ref in self.program.leaf_operands:
            operand = operands[u]
            if operand.__class__ is not FlatMemory:
                self._bind_value_as_cell_or_constant_memory(u, operand)
                continue
            if ref is None:
                if len(u.shape) > 1 and any(n.__class__ is not int for n in u.shape):
                    raise GiveUp("memory of several axes, one of them of a size that is known at run time")
                ref = whole_memory_ref(u, u.shape if all(n.__class__ is int for n in u.shape) else operand.data.shape)
                cells[u] = ref
            if math.prod(ref.shape) != operand.data.size:
                raise GiveUp("a memory of another size than its Param")
            if plan is not None:
                memory = self.memories[u] = VectorMemory.from_flat_memory_viewed_as_dtype(plan, operand, dtype)
                flat_memories.append((operand, memory))
                if plan.written:
                    written.append(operand)
        for target in written:
            for other, _ in flat_memories:
                if other is not target and not target.borrowed and np.may_share_memory(target.data, other.data):
                    raise GiveUp("arguments that share memory")
        if written and len({id(other) for other, _ in flat_memories}) < len(flat_memories):
            raise GiveUp("arguments that share memory")

    def _bind_value_as_cell_or_constant_memory(self, u: UOp, value: Array | FlatMemory | MemoryWindow) -> None:
        """Set the value of a leaf that is no memory; its elements are read like those of a memory that nobody writes."""
        if not isinstance(value, _ndarray) or value.dtype.kind == "O":
            raise GiveUp("a window of a shared memory, or an index value beyond 64 bits")
        plan = self.plan.memories.get(u)
        if plan is None:
            self.cells[u] = affine_constant(int(value)) if value.ndim == 0 and value.dtype.kind in "iu" else value.view()
            return
        if plan.written or value.shape != u.shape or value.dtype != NUMPY[u.dtype]:
            raise GiveUp("a value where a memory is used")
        self.cells[u] = whole_memory_ref(u, value.shape)
        self.memories[u] = VectorMemory(plan, "a value", value.size, np.ascontiguousarray(value).reshape(-1), None, None)
        self.values.add(u)

    def is_value(self, u: UOp) -> bool:
        """Return True if a reference leads to a leaf that is no memory."""
        return u in self.values

    def run(self) -> VectorOutcome:
        """Run the kernel and return the outcome. Raises GiveUp."""
        if self.program.straight_line is None:
            self._run_block(self.plan.block, None)
        else:
            self._run_straight_line(self.program.straight_line)
        self._give_up_on_logged_conflicts()
        root = self.plan.kernel.root
        value = None if root.dtype is dt.void else np.array(self.align_value_to_own_rank(root, len(root.shape)))
        return VectorOutcome(value, tuple(self.flat_memories))

    def _give_up_on_logged_conflicts(self) -> None:
        """Check the logged accesses for races. Raises GiveUp."""
        for memory_node, events in self.events.items():
            for check in self.plan.memories[memory_node].checks:
                give_up_on_conflicts(self.memories[memory_node].data.size, check, events)

    # Blocks

    def _run_block(self, block: ScheduledBlock, active_mask: Array | None) -> None:
        """Run the steps of a block where the mask `active_mask` holds."""
        cells = self.cells
        for action, item, guards in self.steps[block]:
            mask = self._combine_if_masks(guards, active_mask) if guards else active_mask
            if action is None:
                self._run_loop_in_order_or_as_axis(item, mask)
            else:
                value = action(self, item, mask)
                if value is not None:
                    cells[item] = self.to_checked_value(item, value)

    def _run_straight_line(self, steps: Sequence[PlacedStep]) -> None:
        """Run the steps of a kernel without loops in order and without Ifs."""
        cells = self.cells
        for extents, volume, action, item in steps:
            self.extents, self.volume = extents, volume
            value = action(self, item, None)
            if value is not None:
                cells[item] = self.to_checked_value(item, value)
        self.extents, self.volume = [], 1

    def _combine_if_masks(self, guards: Sequence[UOp], active_mask: Array | None) -> Array | None:
        """Return the mask of these Ifs and `active_mask`."""
        depth = len(self.extents)
        for g in guards:
            mask = align_to_loop_depth_and_own_rank(self.cells[g], 0, 0, depth)
            active_mask = (
                mask if active_mask is None else np.logical_and(align_to_loop_depth_and_own_rank(active_mask, 0, 0, depth), mask)
            )
        return active_mask

    def _run_loop_in_order_or_as_axis(self, loop: Loop, active_mask: Array | None) -> None:
        """Run a loop in order, or as an axis."""
        r, closer = loop.range, loop.closer
        n = self.bounds.get(r)
        if n is None:
            n = self._eval_uniform_bound_or_give_up(r.bound)
        reduces = closer.op is Op.REDUCE
        if reduces and loop.outermost:
            self.collected[closer] = []
            self.bases[closer] = len(self.extents)
        if n > 0:
            if r in self.plan.sequential:
                for i in range(n):
                    self.iterations[r] = i
                    self.cells[r] = self.to_checked_value(r, affine_constant(i))
                    self._reset_memories_run_block_and_collect_reduce(loop, active_mask)
            else:
                self.extents.append(n)
                self.volume *= n
                if r not in self.bounds:
                    counter = AffineValue(0, (0,) * (len(self.extents) - 1) + (1,), self.extents)
                    self.cells[r] = self.to_checked_value(r, counter)
                self._reset_memories_run_block_and_collect_reduce(loop, active_mask)
                self.extents.pop()
                self.volume //= n
        if reduces and loop.outermost:
            self.cells[closer] = self.to_checked_value(closer, self._fold_partial_results(closer))

    def _reset_memories_run_block_and_collect_reduce(self, loop: Loop, active_mask: Array | None) -> None:
        """Run the block of a loop once, with new memories where the plan says so."""
        for memory_plan in self.plan.resets.get(loop.range, ()):
            self.memories.pop(memory_plan.node, None)
        self._run_block(loop.block, active_mask)
        if loop.innermost and loop.closer.op is Op.REDUCE:
            self._collect_partial_reduce(loop.closer)

    def _eval_uniform_bound_or_give_up(self, bound: UOp) -> int:
        """Return the trip count. Raises GiveUp if it varies."""
        if bound not in self.cells:  # a Special's bound, whose loop is around everything
            for s in bound.src:
                self._eval_uniform_bound_or_give_up(s)
            self.cells[bound] = self.program.actions[bound.op](self, bound, None)
        c = self.cells[bound]
        if c.__class__ is AffineValue and c.lo == c.hi:
            return int(c.lo)
        if c.__class__ is _ndarray and c.size == 1 and not c.ndim:
            return int(c)
        raise GiveUp("a bound that varies")

    def _collect_partial_reduce(self, closer: UOp) -> None:
        """Add the Reduce over the present axes to the partial results."""
        self.collected[closer].append(self.reduce_inner_axes(closer, self.plan.fused_products.get(closer), self.bases[closer]))

    def reduce_inner_axes(self, closer: UOp, product: UOp | None, first_axis: int) -> Array:
        """Return a Reduce over the axes from `first_axis` on."""
        if product is not None:
            return self._sum_products_by_matmul_if_worthwhile(closer, product, first_axis)
        operand = closer.src[0]  # operand
        return fold_loop_axes(closer, self.align_value_to_own_rank(operand, len(closer.shape)), self.extents, first_axis)

    def _sum_products_by_matmul_if_worthwhile(self, u: UOp, product: UOp, first_axis: int) -> Array:
        """Return the sum `u` of a product over the axes from `first_axis` on, in float64 and rounded once (R32).

        Where the factors vary along different axes this is a matrix product, and the products are not made.
        """
        depth = len(self.extents)
        lhs, rhs = product.src
        a = expand_loop_axes(self.align_value_to_own_rank(lhs, 0), 0, depth)
        b = expand_loop_axes(self.align_value_to_own_rank(rhs, 0), 0, depth)
        recipe = plan_matrix_product_if_worthwhile(a.shape, b.shape, tuple(self.extents), first_axis)
        if recipe is None:
            check_array_size(math.prod([max(p, q) for p, q in zip(a.shape, b.shape)]))
            x = np.asarray(KERNELS[Op.MUL][product.dtype](a, b))
            self.to_checked_value(product, x)
            return fold_loop_axes(u, x, self.extents, first_axis)
        factors = to_matrix(a, *recipe.lhs_form), to_matrix(b, *recipe.rhs_form)
        out = NARROW[product.dtype](np.matmul(*factors)).reshape(recipe.product_shape)
        return out if recipe.transposed_axes is None else out.transpose(recipe.transposed_axes)

    def _fold_partial_results(self, closer: UOp) -> Array:
        """Return a Reduce over a loop that ran in order: its partial results folded (R32)."""
        parts = self.collected.pop(closer)
        if len(parts) == 1:
            return parts[0]
        fold = FOLDS[closer.arg.op][closer.dtype]
        if not parts:
            return np.asarray(fold(np.empty((0, *closer.shape), NUMPY[closer.dtype]), (0,))[0])
        return np.asarray(fold(np.stack(np.broadcast_arrays(*parts)), (0,))[0])

    # Values

    def align_value_to_own_rank(self, u: UOp, target_own_rank: int) -> Array:
        """Return the value of `u` as an array that broadcasts with values of `target_own_rank` own axes here."""
        c, depth = self.cells[u], len(self.extents)
        if c.__class__ is _ndarray:
            own_rank = len(u.shape)
            lead = c.ndim - own_rank
            if not lead or (lead == depth and own_rank == target_own_rank):
                return c
            return align_to_loop_depth_and_own_rank(c, own_rank, target_own_rank, depth)
        if c.__class__ is not AffineValue:
            raise GiveUp("a reference, or nothing, that is used as a value")
        if u.dtype is dt.index:
            a = c.get_or_compute_broadcastable_values(self.extents)
        else:
            d = NUMPY[u.dtype]
            a = np.array(c.lo, d) if c.lo == c.hi else c.get_or_compute_broadcastable_values(self.extents).astype(d)
        return align_to_loop_depth_and_own_rank(a, 0, target_own_rank, depth)

    def check_operand_sizes(self, sources: Sequence[UOp]) -> None:
        """Raise GiveUp where an elementwise op on these would make too large an array."""
        rank = max(len(s.shape) for s in sources)
        check_array_size(math.prod(np.broadcast_shapes(*[self.align_value_to_own_rank(s, rank).shape for s in sources])))

    def to_checked_value(self, u: UOp, v: VectorValue) -> VectorValue:
        """Return `v` as a value, once its derived properties are asserted."""
        kind = v.__class__
        if kind is StridedRef or kind is ScatteredRef:
            return v
        if kind is AffineValue:
            if self.check:
                bounds = u.min_max
                if bounds is None or v.lo < bounds[0] or v.hi > bounds[1]:
                    raise_unsound(u, "min_max", bounds, (v.lo, v.hi))
            return v
        if kind is not _ndarray:
            v = np.asarray(v, NUMPY[u.dtype])
        if self.check and u.op is not Op.IF:
            form = self.forms.get(u)
            if form is None:
                form = self.forms[u] = _expected_dtype_shape_and_bounds(u)
            self._check_array_or_raise_unsound(u, v, form)
        return v

    def _check_array_or_raise_unsound(self, u: UOp, v: Array, form: ExpectedForm) -> None:
        """Assert the expected form of an array. Raises Unsound."""
        expected_dtype, shape, bounds = form
        dtype, full_shape = v.dtype, v.shape
        if dtype is not expected_dtype and dtype != expected_dtype:
            raise_unsound(u, "dtype", expected_dtype, dtype)
        lead = len(full_shape) - len(shape)
        if full_shape[lead:] != shape or (lead and lead != len(self.extents)):
            raise_unsound(u, "shape", shape, full_shape)
        if bounds is not None:
            check_min_max(u, v)

    # Memory

    def _get_or_allocate_memory(self, ref: VectorRef) -> VectorMemory:
        """Return the memory of a reference; a LOCAL or REG memory is made on first use."""
        memory = self.memories.get(ref.home)
        if memory is None:
            u = ref.home
            plan = self.plan.memories[u]
            if u.op is not Op.BUFFER or plan.space is AddrSpace.GLOBAL:
                raise GiveUp("memory that nobody supplies")
            memory = self.memories[u] = VectorMemory.allocate(plan, NUMPY[u.dtype], u.arg.size, self.extents)
        return memory

    def load(self, u: UOp, ref: VectorRef, mask: Array | None) -> Array:
        """Return the elements of `ref` where the mask holds, anything elsewhere."""
        memory = self.memories.get(ref.home) or self._get_or_allocate_memory(ref)
        if mask is None and ref.__class__ is StridedRef:
            span = self.spans.get(u) or compute_in_bounds_span_or_give_up(ref, memory.size, memory.copy_offset, self.extents)
            if memory.plan.checks:
                self._log_access_if_conflict_check_needs_it(memory, u, span, None, None)
            return memory.load_span_or_give_up_if_unwritten(span)
        positions = memory.in_bounds_positions_or_give_up(self._as_scattered(ref), mask, self.extents)
        self._log_access_if_conflict_check_needs_it(memory, u, None, positions, mask)
        return memory.gather_or_give_up_if_unwritten(positions, mask)

    def store(self, u: UOp, ref: VectorRef, value: Array, mask: Array | None) -> None:
        """Write the elements of `ref` where the mask holds."""
        memory = self.memories.get(ref.home) or self._get_or_allocate_memory(ref)
        if mask is None and ref.__class__ is StridedRef:
            span = self.spans.get(u) or compute_in_bounds_span_or_give_up(ref, memory.size, memory.copy_offset, self.extents)
            if span.is_injective:
                self._log_access_if_conflict_check_needs_it(memory, u, span, None, None)
                memory.store_span_or_adopt_value(span, value)
                return
        positions = memory.in_bounds_positions_or_give_up(self._as_scattered(ref), mask, self.extents)
        self._log_access_if_conflict_check_needs_it(memory, u, None, positions, mask)
        memory.scatter_distinct_or_give_up(positions, mask, value, self.extents)

    def atomic_add(self, u: UOp, ref: VectorRef, value: Array, mask: Array | None) -> None:
        """Add to the elements of `ref` where the mask holds."""
        memory = self._get_or_allocate_memory(ref)
        positions = memory.in_bounds_positions_or_give_up(self._as_scattered(ref), mask, self.extents)
        self._log_access_if_conflict_check_needs_it(memory, u, None, positions, mask)
        memory.scatter_add_or_give_up_if_unwritten(positions, mask, value, self.extents)

    def _as_scattered(self, ref: VectorRef) -> ScatteredRef:
        return ref.to_scattered(self.extents) if isinstance(ref, StridedRef) else ref

    def _log_access_if_conflict_check_needs_it(
        self, memory: VectorMemory, u: UOp, span: StridedSpan | None, positions: Array | None, mask: Array | None
    ) -> None:
        """Log an access, if a check may ask about it."""
        plan = memory.plan
        if plan.checks and not plan.is_single_write:
            event = AccessEvent(u, span, positions, mask, (dict(self.iterations), self.phase), tuple(self.extents))
            self.events.setdefault(plan.node, []).append(event)
