"""Refuted kernels, seen in the interpreter.

Takes: two bodies of one kernel, or two launches, before and after. Gives: whether the interpreter finds a difference - the one
after traps, or leaves other numbers in memory - on seeded contents; and what the index expressions of a counterexample are there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from uops.backends.arrays import STORAGE
from uops.compiler.validate.model import Counterexample
from uops.fuzz.bisect.replay import Replay
from uops.interp import run
from uops.spec.errors import Trap
from uops.spec.ir import build as b
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op


def replay_kernel(before: UOp, after: UOp, why: Counterexample | None = None, seed: int = 0) -> Replay:
    """Run two bodies on the same memory."""
    for name, graph, value in why.graphs if why is not None else ():
        found = int(np.asarray(run(graph, {}).values[0]))
        if found != value:
            return Replay(False, f"not confirmed: the {name} is {found}, expected {value}")
    return replay_launch(launch(before), launch(after), seed)


def launch(body: UOp) -> UOp:
    """A launch of one kernel on Buffers of its own."""
    params = {u.arg.slot: u for u in toposort(body) if u.op is Op.PARAM}
    memory = [b.buffer(int(p.shape[0]), p.dtype, unique=1 + k) for k, p in sorted(params.items())]
    written = {
        _base(u.src[0]).arg.slot for u in toposort(body) if u.op in (Op.STORE, Op.ATOMICADD) and _base(u.src[0]).op is Op.PARAM
    }
    return UOp(Op.LINEAR, (b.call(body, *memory, written=tuple(sorted(written))),))


def replay_launch(before: UOp, after: UOp, seed: int = 0) -> Replay:
    """Run two launches on the same memory."""
    inputs = _contents(before, seed)
    expected = run(before, inputs).buffers
    try:
        found = run(after, inputs).buffers
    except Trap as e:
        return Replay(True, f"the interpreter traps: {e}")
    for key, want in expected.items():
        if key in found and not np.array_equal(want, found[key], equal_nan=want.dtype.kind == "f"):
            k = int(np.flatnonzero(want.reshape(-1) != found[key].reshape(-1))[0])
            return Replay(True, f"element {k} of {key} is {found[key].reshape(-1)[k]}, expected {want.reshape(-1)[k]}")
    return Replay(False, "not confirmed: both leave the same memory")


def _contents(root: UOp, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    found = {}
    for u in toposort(root):
        if u.op is Op.BUFFER and u.arg.addrspace.value == "global":
            numbers = rng.integers(1, 100, u.arg.size)
            found[f"b{u.arg.unique}"] = numbers.astype(STORAGE[u.dtype])
    return found


def _base(address: UOp) -> UOp:
    while address.op in (Op.INDEX, Op.AFTER):
        address = address.src[0]
    return address
