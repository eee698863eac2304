"""Values on several devices: held whole, all shards at once (R110, R116)."""

from __future__ import annotations

from typing import Any

import numpy as np

from uops.interp.bestiary.machine import EvalStep
from uops.interp.bestiary.values import reduce_axes_to_size_one, stack_arrays
from uops.interp.tensor.storage import Array
from uops.spec.ir.node import UOp


def _split_shards(u: UOp, x: Array) -> list[Array]:
    """Return the part of the value of `u` that each device holds."""
    devices = u.device if isinstance(u.device, tuple) else (u.device,)
    return [x] * len(devices) if u.axis is None else np.split(x, len(devices), axis=u.axis)


def eval_allreduce(step: EvalStep) -> Any:
    """Combine the shards, element by element."""
    u, operand = step.node, step.node.operand
    shards = stack_arrays(u.dtype, _split_shards(operand, step.value_of(operand)))
    return np.asarray(reduce_axes_to_size_one(u.arg.op, u.dtype, shards, (0,)))[0]


def eval_mstack_by_concatenating_shards(step: EvalStep) -> Any:
    """Join the values of the devices as shards of one value along axis 0."""
    shards = stack_arrays(step.node.dtype, step.values_of(step.node.elements))
    count, length, *rest = shards.shape
    return shards.reshape((count * length, *rest))


def eval_mselect(step: EvalStep) -> Any:
    """Return the shard of one device."""
    operand = step.node.operand
    return _split_shards(operand, step.value_of(operand))[step.node.arg.index]
