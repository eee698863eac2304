"""Replay of refuted kernels in the interpreter.

Takes: two bodies of one kernel, or two launches, before and after a pass. Gives: whether the one after traps or leaves other
numbers in memory, on seeded contents. Index expressions of a counterexample are evaluated, too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from uops.backends.arrays import STORAGE
from uops.compiler.validate.model import ClaimCounterexample
from uops.fuzz.bisect.replay import ReplayOutcome, mask_differing_elements
from uops.interp import run
from uops.spec.errors import Trap
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory


def replay_bodies_if_counterexample_holds(
    before: UOp, after: UOp, counterexample_to_check: ClaimCounterexample | None = None, seed: int = 0
) -> ReplayOutcome:
    """Check the values of a counterexample by the interpreter; if they hold, run both bodies of the kernel on the same memory."""
    for name, graph, value in counterexample_to_check.graphs if counterexample_to_check is not None else ():
        actual = int(np.asarray(run(graph, {}).values[0]))
        if actual != value:
            return ReplayOutcome(False, f"not confirmed: the {name} is {actual}, expected {value}")
    first, second = make_single_kernel_launch(before, after), make_single_kernel_launch(after, before)
    return replay_launches_on_random_memory(first, second, seed)


def make_single_kernel_launch(body: UOp, other: UOp) -> UOp:
    """Build a launch of one kernel, in which slot k is Buffer 1 + k. Slots that only the `other` body has get a Buffer, too."""
    params = {u.arg.slot: u for root in (other, body) for u in toposort(root) if u.op is Op.PARAM}
    unused = b.param(0, (1,), dt.uint8)
    arguments = [params.get(k, unused) for k in range(max(params, default=-1) + 1)]
    memory = [b.buffer(math.prod(map(int, p.shape)), p.dtype, unique=1 + k) for k, p in enumerate(arguments)]
    stored = {base_memory(u.buffer) for u in toposort(body) if u.op is Op.STORE}
    added_to = {base_memory(u.index) for u in toposort(body) if u.op is Op.ATOMICADD}
    written = {m.arg.slot for m in stored | added_to if m.op is Op.PARAM}
    return UOp(Op.LINEAR, (b.call(body, *memory, written=tuple(sorted(written))),))


def replay_launches_on_random_memory(before: UOp, after: UOp, seed: int = 0) -> ReplayOutcome:
    """Run two launches on the same memory, and compare the Buffers that both have. A Buffer that a launch does not write keeps
    its contents.
    """
    inputs = _random_contents_of_global_buffers(before, seed)
    try:
        expected = inputs | run(before, inputs).buffers
    except Trap as e:
        return ReplayOutcome(False, f"not confirmed: the kernel before traps: {e}")
    try:
        actual = inputs | run(after, inputs).buffers
    except Trap as e:
        return ReplayOutcome(True, f"the interpreter traps: {e}")
    for key in sorted(inputs.keys() & {f"b{u.arg.unique}" for u in _list_global_buffers(after)}):
        for k in np.flatnonzero(mask_differing_elements(expected[key], actual[key])).tolist():
            return ReplayOutcome(
                True, f"element {k} of {key} is {actual[key].reshape(-1)[k]}, expected {expected[key].reshape(-1)[k]}"
            )
    return ReplayOutcome(False, "not confirmed: both leave the same memory")


def _list_global_buffers(root: UOp) -> list[UOp]:
    return [u for u in toposort(root) if u.op is Op.BUFFER and u.arg.addrspace.value == "global"]


def _random_contents_of_global_buffers(root: UOp, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    contents = {}
    for u in _list_global_buffers(root):
        numbers = rng.integers(0, 2, u.arg.size) if u.dtype is dt.bool_ else rng.integers(1, 100, u.arg.size)
        contents[f"b{u.arg.unique}"] = numbers.astype(STORAGE[u.dtype])
    return contents
