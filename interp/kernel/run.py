"""`run_kernel`: run the loops of a kernel on the memory and the values that its caller supplies.

It asks the vectorised machine first, which either gives the whole outcome or gives up, and then the per-lane machine, which is the
definition: it decides what a kernel means, and names its faults.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from uops.interp.kernel.lane_machine.actions import action
from uops.interp.kernel.lane_machine.machine import Machine, Operand
from uops.interp.kernel.lane_machine.memory import Space, Window
from uops.interp.kernel.structure.blocks import Kernel
from uops.interp.kernel.structure.launch import launched
from uops.interp.kernel.structure.shuffle import shuffled
from uops.interp.kernel.vector_machine import evaluate
from uops.interp.tensor.storage import Array
from uops.spec.ir.node import UOp


@np.errstate(all="ignore")
def run_kernel(
    kernel: Kernel,
    operands: Mapping[UOp, Operand],
    *,
    check: bool = True,
    schedule: int | None = None,
    lanes: bool = False,
) -> Array | None:
    """Run `kernel`; gives the value of its root, if it has one, and changes the Spaces of `operands` in place.

    `schedule` is a seed that draws an order for all that is unordered; `lanes` asks for the per-lane machine. Raises Trap,
    SpecError and Unsound.
    """
    if schedule is None and not lanes:
        attempt = evaluate.attempt(kernel, operands, check)
        if attempt is not None:
            return attempt.commit()
    for x in operands.values():
        if isinstance(x, Space):
            x.own()
        elif isinstance(x, Window):
            x.space.own()
    ready = launched(kernel)
    if schedule is not None:
        ready = shuffled(ready, schedule)
    return Machine(ready, operands, action, check, schedule).run()
