"""The entry to the vector machine: a kernel's loops as axes of NumPy arrays.

`try_evaluate(kernel, operands, check)` gives the outcome of a kernel, or None where the machine does not apply or saw something
that might be a fault. It changes nothing, and raises nothing for a fault of the program. Its caller silences NumPy's warnings.
The lane machine is the definition: where there is an outcome, it gives the same one and no fault. Integers, maxima and
everything that is stored as it was computed agree bit for bit. Float sums and products over ranges lie both within R32, whose
order of terms is free.

A node inside of axes is one array over all their iterations, as large as what it depends on. Loops that run in order (`plan`)
run in Python around that. With `check`, every value's derived dtype, shape and min_max are asserted, of the whole array.

Limits: no array has more than `limits.LARGEST` elements, and a loop has one trip count for all its iterations. There is no
Wmma, no opaque instruction, no AtomicAdd of floats, no reference as a value, and no Slice or Bitcast of a reference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

from uops.interp.kernel.structure.blocks import KernelStructure, Loop, ScheduledBlock, build_kernel_structure
from uops.interp.kernel.structure.launch import select_bounds_or_reject_effects, wrap_specials_as_loops
from uops.interp.kernel.vector_machine.actions import ACTIONS
from uops.interp.kernel.vector_machine.limits import GiveUp, TooLarge
from uops.interp.kernel.vector_machine.machine import (
    Action,
    BlockStep,
    Operands,
    PlacedStep,
    VectorMachine,
    VectorOutcome,
    VectorProgram,
    VectorValue,
)
from uops.interp.kernel.vector_machine.plan import VectorizationLevel, VectorPlan, plan_vectorization_or_give_up
from uops.interp.kernel.vector_machine.static import StaticValues, fold_static_values_or_give_up
from uops.interp.tensor.storage import NUMPY, Array
from uops.spec.errors import UopsError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

_SUPPORTED_OPS = frozenset(ACTIONS)
#: Ops that read memory, or name an element that an implicit Load reads (R51).
_READS = frozenset({Op.LOAD, Op.INDEX})
#: The errors of evaluating an ill-formed kernel, or one with a fault.
FAULTS = (
    GiveUp, UopsError, KeyError, IndexError, TypeError, ValueError, AttributeError, ZeroDivisionError, OverflowError, MemoryError
)  # fmt: skip


def try_evaluate(kernel: KernelStructure, operands: Operands, check: bool = True) -> VectorOutcome | None:
    """Return the outcome of `kernel`, or None."""
    try:
        return evaluate_or_give_up(kernel, operands, check)
    except FAULTS:
        return None


def evaluate_or_give_up(kernel: KernelStructure, operands: Operands, check: bool = True) -> VectorOutcome:
    """Return the outcome of `kernel`. Raises GiveUp, or another of `FAULTS`, where `try_evaluate` returns None."""
    eager = _prepare_program(kernel.root, kernel.leaves, VectorizationLevel.EAGER)
    try:
        return VectorMachine(eager, operands, check).run()
    except TooLarge:
        raise
    except FAULTS:
        careful = _prepare_program(kernel.root, kernel.leaves, VectorizationLevel.CAREFUL)
        if careful.plan.sequential == eager.plan.sequential:
            raise
        return VectorMachine(careful, operands, check).run()


@lru_cache(maxsize=256)
def _prepare_program(root: UOp, leaves: tuple[UOp, ...], level: VectorizationLevel) -> VectorProgram:
    """Return a kernel made ready to run; memoized."""
    kernel = build_kernel_structure(root, frozenset(leaves).__contains__)
    if any(u.op in _READS for u in toposort(*select_bounds_or_reject_effects(kernel).values())):
        raise GiveUp("a number of lanes that is loaded")
    block = wrap_specials_as_loops(kernel).block
    plan = plan_vectorization_or_give_up(kernel, block, _SUPPORTED_OPS, level)
    static = fold_static_values_or_give_up(plan.loop_nest, block, plan.sequential, plan.memories)
    steps: dict[ScheduledBlock, list[BlockStep]] = {}
    for b in plan.loop_nest.blocks.values():
        steps[b] = [
            (None if isinstance(item, Loop) else ACTIONS[item.op], item, guards)
            for item, guards in zip(b.items, b.guards)
            if isinstance(item, Loop) or not (item in static.cells or item in plan.skipped_nodes)
        ]
    leaf_operands = [(u, plan.memories.get(u), NUMPY[u.dtype], static.cells.get(u)) for u in leaves if u.dtype is not dt.void]
    return VectorProgram(plan, static, ACTIONS, steps, _flatten_to_straight_line(plan, static, steps), leaf_operands)


def _flatten_to_straight_line(
    plan: VectorPlan, static: StaticValues, steps: Mapping[ScheduledBlock, Sequence[BlockStep]]
) -> list[PlacedStep] | None:
    """Return the steps of a kernel in one list, None if not every step runs, or if that needs a run to decide.

    All its loops must become axes of known extents, at least 1, and there must be no If.
    """
    bounds = static.bounds
    if plan.loop_nest.guards or plan.sequential or any(bounds.get(r, 0) <= 0 for r in plan.loop_nest.loops):
        return None
    line: list[PlacedStep] = []
    stack: list[tuple[list[int], BlockStep]] = [([], step) for step in reversed(steps[plan.block])]
    axes_of_reduce: dict[UOp, tuple[list[int], int]] = {}
    while stack:
        extents, (action, item, _) = stack.pop()
        if action is not None:
            line.append((extents, math.prod(extents), action, item))
            continue
        inner_extents, closer = [*extents, bounds[item.range]], item.closer
        if closer.op is Op.REDUCE:
            base = axes_of_reduce[closer][1] if not item.outermost else len(extents)
            axes_of_reduce[closer] = inner_extents, base
            if item.outermost:
                stack.append(
                    (extents, (_make_loop_reduce_action(plan.fused_products.get(closer), axes_of_reduce, base), closer, ()))
                )
        stack += [(inner_extents, step) for step in reversed(steps[item.block])]
    return line


def _make_loop_reduce_action(product: UOp | None, axes_of_reduce: Mapping[UOp, tuple[list[int], int]], first_axis: int) -> Action:
    """Return the action that gives a Reduce over axes its value, in the axes around it."""

    def reduce_over_axes(m: VectorMachine, closer: UOp, active_mask: Array | None) -> VectorValue:
        outer_extents = m.extents
        m.extents = axes_of_reduce[closer][0]
        part = m.reduce_inner_axes(closer, product, first_axis)
        m.extents = outer_extents
        return part

    return reduce_over_axes
