"""The vectorised machine: a kernel's loops as axes of NumPy arrays.

`attempt(kernel, operands, check)` gives the outcome of a kernel, or None where it does not apply or saw something that might be a
fault; it changes nothing, and raises nothing for a fault of the program. Its caller silences NumPy's warnings. The per-lane
machine is the definition: where there is an outcome, it gives the same one and no fault. Integers, maxima and everything that is
stored as it was computed agree bit for bit; float sums and products over ranges lie both within R32, whose order of terms is free.

A node inside of axes is one array over all their iterations, as large as what it depends on; loops that run in order
(`plan`) run in Python around that. With `check`, every value's derived dtype, shape and min_max are asserted, of the whole
array. Limits: no array of more than `limits.LARGEST` elements, one bound for all iterations of a loop, no Wmma, no opaque
instruction, no AtomicAdd of floats, no reference as a value, no Slice or Bitcast of a reference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

from uops.interp.kernel.structure.blocks import Block, Kernel, Loop, structure
from uops.interp.kernel.structure.launch import launched
from uops.interp.kernel.vector_machine.actions import ACTIONS
from uops.interp.kernel.vector_machine.limits import GiveUp, TooLarge
from uops.interp.kernel.vector_machine.machine import Action, Attempt, Machine, Operands, Placed, Program, Step, Value
from uops.interp.kernel.vector_machine.plan import Level, Plan, plan
from uops.interp.kernel.vector_machine.static import Static, fold
from uops.interp.tensor.storage import NUMPY, Array
from uops.spec.errors import UopsError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

_KNOWN = frozenset(ACTIONS)
#: What an ill-formed kernel, or a fault of one, makes the evaluation raise.
FAULTS = (
    GiveUp, UopsError, KeyError, IndexError, TypeError, ValueError, AttributeError, ZeroDivisionError, OverflowError, MemoryError
)  # fmt: skip


def attempt(kernel: Kernel, operands: Operands, check: bool = True) -> Attempt | None:
    """The outcome of `kernel`, or None."""
    try:
        return evaluated(kernel, operands, check)
    except FAULTS:
        return None


def evaluated(kernel: Kernel, operands: Operands, check: bool = True) -> Attempt:
    """The outcome of `kernel`; raises GiveUp, or what a fault raises, where `attempt` gives None."""
    eager = _planned(kernel.root, kernel.leaves, Level.EAGER)
    try:
        return Machine(eager, operands, check).run()
    except TooLarge:
        raise
    except FAULTS:
        careful = _planned(kernel.root, kernel.leaves, Level.CAREFUL)
        if careful.plan.sequential == eager.plan.sequential:
            raise
        return Machine(careful, operands, check).run()


@lru_cache(maxsize=256)
def _planned(root: UOp, leaves: tuple[UOp, ...], level: Level) -> Program:
    """A kernel made ready to run, once per kernel."""
    kernel = structure(root, frozenset(leaves).__contains__)
    block = launched(kernel).block
    found = plan(kernel, block, _KNOWN, level)
    static = fold(found.layout, block, found.sequential, found.memories)
    steps: dict[Block, list[Step]] = {}
    for b in found.layout.blocks.values():
        steps[b] = [
            (None if isinstance(item, Loop) else ACTIONS[item.op], item, guards)
            for item, guards in zip(b.items, b.guards)
            if isinstance(item, Loop) or not (item in static.cells or item in found.skipped)
        ]
    lent = [(u, found.memories.get(u), NUMPY[u.dtype], static.cells.get(u)) for u in leaves if u.dtype is not dt.void]
    return Program(found, static, ACTIONS, steps, _straight(found, static, steps), lent)


def _straight(found: Plan, static: Static, steps: Mapping[Block, Sequence[Step]]) -> list[Placed] | None:
    """The steps of a kernel whose loops all become axes of known extents, without an If; None if there is another loop or an If."""
    bounds = static.bounds
    if found.layout.guards or found.sequential or any(bounds.get(r, 0) <= 0 for r in found.layout.loops):
        return None
    line: list[Placed] = []
    stack: list[tuple[list[int], Step]] = [([], step) for step in reversed(steps[found.block])]
    inside: dict[UOp, tuple[list[int], int]] = {}
    while stack:
        extents, (action, item, _) = stack.pop()
        if action is not None:
            line.append((extents, math.prod(extents), action, item))
            continue
        within_loop, closer = [*extents, bounds[item.range]], item.closer
        if closer.op is Op.REDUCE:
            base = inside[closer][1] if not item.outermost else len(extents)
            inside[closer] = within_loop, base
            if item.outermost:
                stack.append((extents, (_summed(found.fused.get(closer), inside, base), closer, ())))
        stack += [(within_loop, step) for step in reversed(steps[item.block])]
    return line


def _summed(product: UOp | None, inside: Mapping[UOp, tuple[list[int], int]], base: int) -> Action:
    """The action that gives a Reduce over axes its value, in the axes around it."""

    def action(m: Machine, closer: UOp, live: Array | None) -> Value:
        around = m.extents
        m.extents = inside[closer][0]
        part = m.part(closer, product, base)
        m.extents = around
        return part

    return action
