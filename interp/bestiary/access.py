"""Memory: where it comes from, addresses, loads and stores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from uops.interp.bestiary import memory
from uops.interp.bestiary.frame import Frame
from uops.interp.bestiary.lanes import Run
from uops.interp.bestiary.machine import Machine, Step
from uops.interp.bestiary.memory import Memory, Private, Ref
from uops.interp.tensor.storage import NUMPY, Array, validated
from uops.spec.errors import SpecError
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

# ------------------------------------------------------------------------------------------------------------------ memories


def given(m: Machine, key: str, dtype: DType, shape: tuple[int, ...]) -> Memory:
    """Memory that a caller can name: filled from the inputs, where they have it."""
    found = m.memories.get(key)
    if found is None:
        contents = m.inputs.get(key)
        if contents is None:
            found = memory.fresh(key, dtype, shape, key)
        else:
            found = memory.filled(key, dtype, validated(key, contents, dtype, shape), key)
        m.memories[key] = found
    if (found.dtype, found.shape) != (dtype, shape):
        raise SpecError(f"{key} is {found.dtype} {found.shape} here and {dtype} {shape} there (R62)")
    return found


def buffer(s: Step) -> Any:
    """BUFFER: named by its UNIQUE; by an LUNIQUE nobody outside can name it (R120)."""
    u, m = s.node, s.machine
    shape = m.shape(s.frame, u)
    if u.src[0].op is Op.UNIQUE:
        return memory.whole(given(m, f"b{u.src[0].arg.id}", u.arg.dtype, shape))
    return memory.whole(_unnamed(m, u, f"buffer l{u.src[0].arg.id}", shape))


def _unnamed(m: Machine, u: UOp, name: str, shape: tuple[int, ...]) -> Memory:
    """The one memory of the run that `u` stands for, uninitialised at first."""
    found = m.memories.get(u)
    if found is None:
        found = m.memories[u] = memory.fresh(name, u.dtype, shape)
    return found


def define(s: Step) -> Any:
    """DEFINE_LOCAL and DEFINE_REG: memory of the workgroup, and of the lane."""
    u, of_lane = s.node, s.node.op is Op.DEFINE_REG
    name = f"{'register' if of_lane else 'local'} {u.arg.id}"
    return memory.whole(Private(u, name, u.arg.dtype, (u.arg.size,), of_lane))


def bufferize(s: Step) -> Run:
    """T for all values of the ranges, in memory of their extents."""
    u, m = s.node, s.machine
    t, ranges = u.src[0], u.src[1:]
    shape = m.shape(s.frame, u)
    name = "a bufferized value"
    local = u.arg.addrspace is AddrSpace.LOCAL
    target = memory.whole(Private(u, name, u.dtype, shape) if local else _unnamed(m, u, name, shape))

    def leaf(frame: Frame) -> Run:
        yield from m.evaluate(frame, t, *ranges)
        value = s.value(t, frame)
        at = [s.value(r, frame) for r in ranges]
        cell = frame.find(t)
        assert cell is not None
        before = frame.base | cell.before | cell.event
        s.before |= s.store(u, frame, memory.indexed(target, at, None), value, None, before)

    yield from s.loops((t,), ranges, leaf)
    return target


# ----------------------------------------------------------------------------------------------------------------- addresses


def index(s: Step) -> Any:
    u = s.node
    last = len(u.src) - u.arg.gated
    gate = s.value(u.src[-1]) if u.arg.gated else None
    return memory.indexed(s.reference(u.src[0]), s.values(u.src[1:last]), gate)


def pointer_index(s: Step) -> Any:
    return memory.pointed(s.reference(s.node.src[0]), s.value(s.node.src[1]))


def after(s: Step) -> Any:
    """The first source, once the others have happened (R59)."""
    found = s.cell(s.node.src[0]).value
    return found.moved(found.places) if isinstance(found, Ref) else found


# ------------------------------------------------------------------------------------------------------------------ accesses


def load(s: Step) -> Any:
    """What memory holds; alt, or 0, where the gate is false (R104)."""
    u = s.node
    address = s.cell(u.src[1]).value
    alt = s.value(u.src[2]) if len(u.src) > 2 else None
    if isinstance(address, Ref):
        return _loaded(s, address, alt)
    found, done = [], 0
    for ref in address.parts:
        n = math.prod(ref.shape)
        part = None if alt is None else alt[done : done + n].reshape(ref.shape)
        found.append(_loaded(s, ref, part).reshape(-1))
        done += n
    return np.concatenate(found)


def _loaded(s: Step, ref: Ref, alt: Array | None) -> Array:
    value = s.load(ref, ref.gate)
    return value if ref.gate is None or alt is None else np.where(ref.gate, value, alt)


def store(s: Step, frame: Frame, u: UOp, gates: Sequence[UOp] = ()) -> None:
    """Write the value of STORE `u` where `gates` and the gate of its index hold; all of them have cells in `frame`.

    It happens after these alone: the step may be that of a loop around it, with other iterations behind.
    """
    address, value = s.cell(u.src[0], frame).value, s.value(u.src[1], frame)
    wanted = s.machine.shape(frame, u.src[0])
    if value.shape != wanted or value.dtype != NUMPY[u.src[0].dtype]:
        raise SpecError(f"Store of {value.dtype} {value.shape} into {u.src[0].dtype} {wanted}", claim="B_STORE.C3")
    live = np.logical_and.reduce([s.value(g, frame) for g in gates]) if gates else None
    before = frame.base
    for x in (*u.src[:2], *gates):
        cell = frame.find(x)
        assert cell is not None
        before |= cell.before | cell.event
    parts = (address,) if isinstance(address, Ref) else address.parts
    done = 0
    for ref in parts:
        n = math.prod(ref.shape)
        part = value if len(parts) == 1 and value.shape == ref.shape else value[done : done + n].reshape(ref.shape)
        s.before |= s.store(u, frame, ref, part, _both(ref.gate, live), before)
        done += n


def _both(a: Array | None, b: Array | None) -> Array | None:
    return a if b is None else b if a is None else np.logical_and(a, b)
