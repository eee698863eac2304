"""`run_kernel`: run the loops of a kernel on the memory and the values that its caller supplies.

The vector machine is tried first; it gives the whole outcome or gives up. Otherwise the lane machine runs the kernel. That is
the definition: it decides what a kernel means, and names its faults.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from uops.interp.kernel.lane_machine.actions import compile_step
from uops.interp.kernel.lane_machine.machine import LaneMachine, Operand
from uops.interp.kernel.lane_machine.memory import FlatMemory, MemoryWindow
from uops.interp.kernel.structure.blocks import KernelStructure
from uops.interp.kernel.structure.launch import wrap_specials_as_loops
from uops.interp.kernel.structure.shuffle import shuffle_item_order
from uops.interp.kernel.vector_machine import evaluate
from uops.interp.tensor.storage import Array
from uops.spec.ir.node import UOp


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
    kernel = wrap_specials_as_loops(kernel)
    if schedule is not None:
        kernel = shuffle_item_order(kernel, schedule)
    return LaneMachine(kernel, operands, compile_step, check, schedule).run()
