"""The nodes of a kernel: what each does in one lane.

`action(machine, node)` gives a function of the lane and the stamp of the event, whose result is the node's value: an array, an
`Address` for a reference, None for what has none. Ops mean what they mean in a tensor graph, by the same tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from uops.interp.kernel.lane_machine.access import Memory
from uops.interp.kernel.lane_machine.lane import Lane, Step
from uops.interp.kernel.lane_machine.machine import Machine
from uops.interp.kernel.lane_machine.memory import VIEWS, Address
from uops.interp.kernel.structure.order import Stamp
from uops.interp.opaque import known
from uops.interp.ops.elementwise import KERNELS, kernel_of
from uops.interp.ops.movement import MOVES, SHAPED, operand_sources
from uops.interp.ops.reduce import reduce
from uops.interp.ops.rounding import CASTS
from uops.interp.tensor.memory import describe
from uops.interp.tensor.storage import NUMPY, Array, constant
from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import MARKERS, Op


def action(m: Machine, u: UOp) -> Step:
    """How to evaluate `u` in a lane."""
    row = KERNELS.get(u.op)
    if row is not None:
        return _alu(m, u, row)
    make = _MAKERS.get(u.op)
    if make is None:
        raise SpecError(f"{u.op.name} has no meaning in a kernel")
    return make(m, u)


def _alu(m: Machine, u: UOp, row: dict[Any, Any]) -> Step:
    if u.src[0].dtype not in row:
        raise SpecError(f"{describe(u)} is not defined on {u.src[0].dtype} (R09, R10)")
    kernel = kernel_of(u.op, u.src)
    slots = [m.slot(s) for s in u.src]
    value, finished = m.value, m.finished

    def step(lane: Lane, stamp: Stamp) -> Array:
        return finished(u, kernel(*[value(lane, s, stamp) for s in slots]), lane)

    return step


def _cast(m: Machine, u: UOp) -> Step:
    convert, slot = CASTS[u.src[0].dtype, u.arg.dtype], m.slot(u.src[0])
    return lambda lane, stamp: m.finished(u, convert(m.value(lane, slot, stamp)), lane)


def _const(m: Machine, u: UOp) -> Step:
    value = constant(u.arg.value, u.arg.dtype)
    return lambda lane, stamp: value


def _same(m: Machine, u: UOp) -> Step:
    slot = m.slot(u.src[0])
    return lambda lane, stamp: m.value(lane, slot, stamp)


def _after(m: Machine, u: UOp) -> Step:
    """Passes its first source on, a reference too (R59)."""
    slot = m.slot(u.src[0])
    return lambda lane, stamp: lane.values[slot]


def _void(m: Machine, u: UOp) -> Step:
    return lambda lane, stamp: None


def _if(m: Machine, u: UOp) -> Step:
    slot = m.slot(u.src[0])
    return lambda lane, stamp: bool(m.value(lane, slot, stamp))


def _buffer(m: Machine, u: UOp) -> Step:
    address = Address(u, None, (u.arg.size,), u.dtype.itemsize)
    return lambda lane, stamp: address


def _move(m: Machine, u: UOp) -> Step:
    """A view of a reference stays a reference, where it is injective (R51)."""
    if not u.src:
        nothing = np.zeros(0, np.int64)  # the shape () as a value (R40)
        return lambda lane, stamp: nothing
    first = m.slot(u.src[0])
    sources = operand_sources(u) if u.op in SHAPED else u.src
    more = [m.slot(s) for s in sources[1:]]
    view, move = VIEWS.get(u.op), MOVES[u.op]

    def step(lane: Lane, stamp: Stamp) -> Any:
        rest = [m.value(lane, s, stamp) for s in more]
        x = lane.values[first]
        if x.__class__ is Address and view is not None:
            found = view(u, x, rest)
            if found is not None:
                return found
        return m.finished(u, move(u, m.value(lane, first, stamp), rest), lane)

    return step


def _reduce(m: Machine, u: UOp) -> Step:
    """Over axes; a Reduce over ranges is a loop."""
    slot = m.slot(u.src[0])
    return lambda lane, stamp: m.finished(u, reduce(u, m.value(lane, slot, stamp)), lane)


# Memory


def _load(m: Machine, u: UOp) -> Step:
    slots = [m.slot(s) for s in u.src]
    kind = NUMPY[u.dtype]

    def step(lane: Lane, stamp: Stamp) -> Array:
        a = lane.values[slots[0]]
        if a.__class__ is not Address:
            a = m.value(lane, slots[0], stamp)
        if len(slots) == 1:
            return m.finished(u, m.load(a, kind, lane, stamp) if a.__class__ is Address else a, lane)
        alt, gate = m.value(lane, slots[1], stamp), m.value(lane, slots[2], stamp)
        if a.__class__ is not Address:
            return m.finished(u, np.where(gate, a, alt), lane)
        if not gate.ndim:
            return m.finished(u, m.load(a, kind, lane, stamp) if gate else alt, lane)
        out = alt.copy()
        for k in np.argwhere(np.broadcast_to(gate, a.shape)):
            at = tuple(k)
            out[at] = m.load(a.moved(a.positions()[at]), kind, lane, stamp)
        return m.finished(u, out, lane)

    return step


def _store(m: Machine, u: UOp) -> Step:
    slots = [m.slot(s) for s in u.src]
    d = u.src[0].dtype

    def step(lane: Lane, stamp: Stamp) -> None:
        a, value = _target(m, u, lane, slots[0]), m.value(lane, slots[1], stamp)
        gate = m.value(lane, slots[2], stamp) if len(slots) > 2 else None
        if value.shape != a.shape or value.dtype != NUMPY[d]:
            raise SpecError(f"Store of {value.dtype} {value.shape} into {d} {a.shape}", claim="STORE.C1")
        for memory, at, v in _elements(m, a, value, gate, lane, stamp):
            memory.store(at, v, stamp)

    return step


def _atomic(m: Machine, u: UOp) -> Step:
    slots = [m.slot(s) for s in u.src]
    d = u.src[0].dtype
    add = KERNELS[Op.ADD][d]

    def step(lane: Lane, stamp: Stamp) -> None:
        a, value = _target(m, u, lane, slots[0]), m.value(lane, slots[1], stamp)
        if value.shape != a.shape or value.dtype != NUMPY[d]:
            raise SpecError(f"AtomicAdd of {value.dtype} {value.shape} to {d} {a.shape}", claim="ATOMICADD.C2")
        for memory, at, v in _elements(m, a, value, None, lane, stamp):
            memory.add(at, v, d, add, stamp)

    return step


def _target(m: Machine, u: UOp, lane: Lane, slot: int) -> Address:
    a = lane.values[slot]
    if a.__class__ is not Address:
        raise SpecError(f"{u.op.name} to {describe(u.src[0])}, which is no reference (R51)")
    return a


def _elements(
    m: Machine, a: Address, value: Array, gate: Array | None, lane: Lane, stamp: Stamp
) -> list[tuple[Memory, int, Array]]:
    """The positions that an access touches, each with its element of `value`."""
    memory = m.memory(a, lane)
    at = a.positions().ravel().tolist()
    flat = value.reshape(-1)
    live = None if gate is None else np.broadcast_to(gate, a.shape).ravel().tolist()
    found = []
    for k, p in enumerate(at):
        if live is None or live[k]:
            m.inside(a, memory, p, stamp)
            found.append((memory, p, flat[k, ...]))
    return found


# What a lane does not do alone, and what only a backend knows


def _wmma(m: Machine, u: UOp) -> Step:
    """The lane's fragments; the machine brings the lanes of the warp together."""
    slots = [m.slot(s) for s in u.src[:3]]
    return lambda lane, stamp: tuple(m.value(lane, s, stamp) for s in slots)


class Place:
    """A reference as an opaque instruction sees it."""

    def __init__(self, m: Machine, a: Address, d: Any, lane: Lane, stamp: Stamp) -> None:
        self._machine, self._address, self._dtype, self._lane, self._stamp = m, a, d, lane, stamp

    def load(self) -> Array:
        return self._machine.load(self._address, NUMPY[self._dtype], self._lane, self._stamp)

    def store(self, value: Any) -> None:
        value = np.broadcast_to(np.asarray(value, NUMPY[self._dtype]), self._address.shape)
        for memory, at, v in _elements(self._machine, self._address, value, None, self._lane, self._stamp):
            memory.store(at, v, self._stamp)


def _opaque(m: Machine, u: UOp) -> Step:
    """An instruction by its name, which only a registered meaning explains."""
    name = u.arg.name if u.op is Op.INS else u.arg.fmt
    slots = [(m.slot(s), s) for s in u.src]

    def step(lane: Lane, stamp: Stamp) -> Any:
        function = known(u.op, name)
        given = [Place(m, v, s.dtype, lane, stamp) if (v := lane.values[k]).__class__ is Address else v for k, s in slots]
        found = function(*given)
        return None if u.dtype is dt.void else m.finished(u, found, lane)

    return step


# fmt: off
_MAKERS: dict[Op, Callable[[Machine, UOp], Step]] = {
    Op.CONST: _const, Op.CAST: _cast, Op.REDUCE: _reduce,
    **dict.fromkeys(MOVES, _move), **dict.fromkeys(MARKERS, _same),
    Op.BUFFER: _buffer, Op.AFTER: _after, Op.LOAD: _load, Op.STORE: _store, Op.ATOMICADD: _atomic,
    Op.IF: _if, Op.BARRIER: _void, Op.WMMA: _wmma, **dict.fromkeys((Op.INS, Op.CUSTOM, Op.CUSTOMI), _opaque),
}
# fmt: on
#: The ops that a kernel may have, beside loops and what holds items together.
MEANING = frozenset(KERNELS) | frozenset(_MAKERS)
