"""Run a PROGRAM graph on a target, or only its first kernels, and look at all memory afterwards.

Takes: the graph, a target, inputs by key. Gives: the final contents of every memory that its Calls name, by key. The runtime of
`uops.compiler` lowers graphs itself; this runs what somebody else lowered, wrong code included: memory that nobody gave holds a
pattern. Spec: Program; Slice; R61.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends.arrays import STORAGE
from uops.backends.worker.guard import Guarded, Side
from uops.compiler.target import Target, lender, load
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

Array = npt.NDArray[Any]
_PATTERN = 0xA5


def run_program(
    program: UOp, target: Target, inputs: Mapping[str, Any], count: int | None = None, side: Side | None = None
) -> dict[str, Array]:  # fmt: skip
    """Memory after the first `count` Calls (all, without it). Arrays given are not changed; all arrays are flat. With `side` every
    memory lies between guard pages: an access outside of it ends the process, or raises Unsound afterwards."""
    calls = program.src[:count]
    memory = {m: _array(m, inputs) for c in program.src for a in c.src[1:] if not is_variable(m := base(a))}
    guards = {} if side is None else {m: Guarded(a.nbytes, side) for m, a in memory.items()}
    for m, g in guards.items():
        g.data[:] = memory[m].view(np.uint8)
        memory[m] = g.data.view(memory[m].dtype)
    kernels = {c.src[0]: load(target, c.src[0].src[1].arg.code, c.src[0].src[2].arg.data) for c in calls}
    with lender(target)(list(memory.values())):
        for c in calls:
            kernels[c.src[0]]([_address(a, memory) for a in c.src[1:]], [_scalar(a, inputs) for a in c.src[1:]])
    for g in guards.values():
        g.check()
    return {key(m): a.copy() if guards else a for m, a in memory.items() if m.op is not Op.BINARY}


def key(m: UOp) -> str:
    """The name of a memory: `b<unique>` or `p<slot>`."""
    return f"b{m.arg.unique}" if m.op is Op.BUFFER else f"p{m.arg.slot}"


def base(a: UOp) -> UOp:
    """The memory behind a Call's argument: an arena, or the argument itself."""
    return a.src[0] if a.op is Op.SLICE else a


def is_variable(u: UOp) -> bool:
    return u.op is Op.PARAM and u.arg.name is not None


def view(a: UOp, memory: Mapping[str, Array]) -> Array:
    """The part of a memory that an argument is."""
    whole = memory[key(base(a))].reshape(-1)
    if a.op is not Op.SLICE:
        return whole
    offset, d = int(a.src[1].arg.value), _storage(a.dtype)
    return whole.view(np.uint8)[offset : offset + a.arg.size * d.itemsize].view(d)


def _array(m: UOp, inputs: Mapping[str, Any]) -> Array:
    if m.op is Op.BINARY:
        return np.frombuffer(m.arg.data, np.uint8)
    if key(m) in inputs:
        given = np.array(inputs[key(m)])
        return np.ascontiguousarray(given.astype(_storage(m.dtype), copy=False)).reshape(-1)
    found = np.zeros(m.arg.size, _storage(m.dtype))
    found.view(np.uint8)[...] = 1 if m.dtype is dt.bool_ else _PATTERN
    return found


def _storage(d: DType) -> np.dtype[Any]:
    return STORAGE[d]


def _address(a: UOp, memory: Mapping[UOp, Array]) -> int:
    if is_variable(a):
        return 0
    offset = int(a.src[1].arg.value) if a.op is Op.SLICE else 0
    return int(memory[base(a)].ctypes.data) + offset


def _scalar(a: UOp, inputs: Mapping[str, Any]) -> int:
    return int(inputs[str(a.arg.name)]) if is_variable(a) else 0
