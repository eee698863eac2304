"""`run_kernel`: run the loops of a kernel on the memory and the values that its caller supplies.

The vector machine is tried first; it gives the whole outcome or gives up. Otherwise the lane machine runs the kernel. That is
the definition: it decides what a kernel means, and names its faults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from uops.interp.kernel.lane_machine.actions import compile_step
from uops.interp.kernel.lane_machine.machine import LaneMachine, Operand
from uops.interp.kernel.lane_machine.memory import FlatMemory, MemoryWindow
from uops.interp.kernel.structure.blocks import KernelStructure, build_kernel_structure
from uops.interp.kernel.structure.launch import select_bounds_or_reject_effects, wrap_specials_as_loops
from uops.interp.kernel.structure.shuffle import shuffle_item_order
from uops.interp.kernel.vector_machine import evaluate
from uops.interp.tensor.storage import Array
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


@np.errstate(all="ignore")
def run_kernel(
    kernel: KernelStructure,
    operands: Mapping[UOp, Operand],
    *,
    check: bool = True,
    schedule: int | None = None,
    lanes: bool = False,
) -> Array | None:
    """Run `kernel`, change the memories of `operands` in place, and return the value of its root, None where it has none.

    `schedule` is a seed that draws an order for everything unordered. `lanes` asks for the lane machine. Raises Trap, SpecError
    and Unsound.
    """
    if schedule is None and not lanes:
        outcome = evaluate.try_evaluate(kernel, operands, check)
        if outcome is not None:
            return outcome.commit()
    for operand in operands.values():
        if isinstance(operand, FlatMemory):
            operand.copy_if_borrowed()
        elif isinstance(operand, MemoryWindow):
            operand.memory.copy_if_borrowed()
    bounds = select_bounds_or_reject_effects(kernel)
    extents = {special: _eval_bound(bound, kernel.leaves, operands, check) for special, bound in bounds.items()}
    kernel = wrap_specials_as_loops(kernel)
    if schedule is not None:
        kernel = shuffle_item_order(kernel, schedule)
    return LaneMachine(kernel, operands, compile_step, check, schedule, extents).run()


def _eval_bound(bound: UOp, leaves: Sequence[UOp], operands: Mapping[UOp, Operand], check: bool) -> int:
    """Return the value of a Special's bound before the body runs."""
    if bound.op is Op.CONST:
        return int(bound.arg.value)
    value = LaneMachine(build_kernel_structure(bound, frozenset(leaves).__contains__), operands, compile_step, check).run()
    assert value is not None
    return int(value)
