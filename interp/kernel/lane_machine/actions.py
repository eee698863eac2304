"""Steps of the nodes of a kernel: what each does in one lane.

`compile_step(machine, node)` gives a function of the lane and the stamp of the event. Its result is the node's value: an array,
an `Address` for a reference, None for a void node. Ops mean what they mean in a tensor graph, by the same tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from uops.interp.kernel.lane_machine.access import CheckedMemory
from uops.interp.kernel.lane_machine.lane import LaneState, LaneStep
from uops.interp.kernel.lane_machine.machine import LaneMachine
from uops.interp.kernel.lane_machine.memory import VIEWS, Address
from uops.interp.kernel.structure.order import Stamp
from uops.interp.opaque import require_meaning
from uops.interp.ops.elementwise import KERNELS, kernel_of
from uops.interp.ops.movement import MOVES, SHAPED, data_and_symbolic_sources
from uops.interp.ops.reduce import reduce
from uops.interp.ops.rounding import CASTS
from uops.interp.tensor.memory import describe
from uops.interp.tensor.storage import NUMPY, Array, const_to_array
from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import MARKERS, Op


def compile_step(m: LaneMachine, u: UOp) -> LaneStep:
    """Return the function that evaluates `u` in a lane. Raises SpecError for an op that no kernel has."""
    row = KERNELS.get(u.op)
    if row is not None:
        return _compile_alu(m, u, row)
    compile_op = _COMPILERS.get(u.op)
    if compile_op is None:
        raise SpecError(f"{u.op.name} has no meaning in a kernel")
    return compile_op(m, u)


def _compile_alu(m: LaneMachine, u: UOp, row: dict[Any, Any]) -> LaneStep:
    d = u.src[0].dtype  # operand, lhs or condition
    if d not in row:
        raise SpecError(f"{describe(u)} is not defined on {d} (R09, R10)")
    kernel = kernel_of(u.op, u.src)
    slots = [m.get_or_make_slot(s) for s in u.src]
    read_or_load_value, to_checked_array = m.read_or_load_value, m.to_checked_array

    def execute_alu(lane: LaneState, stamp: Stamp) -> Array:
        return to_checked_array(u, kernel(*[read_or_load_value(lane, s, stamp) for s in slots]), lane)

    return execute_alu


def _compile_cast(m: LaneMachine, u: UOp) -> LaneStep:
    convert, slot = CASTS[u.operand.dtype, u.arg.dtype], m.get_or_make_slot(u.operand)
    return lambda lane, stamp: m.to_checked_array(u, convert(m.read_or_load_value(lane, slot, stamp)), lane)


def _compile_const(m: LaneMachine, u: UOp) -> LaneStep:
    value = const_to_array(u.arg.value, u.arg.dtype)
    return lambda lane, stamp: value


def _compile_first_source(m: LaneMachine, u: UOp) -> LaneStep:
    slot = m.get_or_make_slot(u.operand)
    return lambda lane, stamp: m.read_or_load_value(lane, slot, stamp)


def _compile_after(m: LaneMachine, u: UOp) -> LaneStep:
    """Return the step of After: the buffer's value, a reference too (R59)."""
    slot = m.get_or_make_slot(u.buffer)
    return lambda lane, stamp: lane.values[slot]


def _compile_void(m: LaneMachine, u: UOp) -> LaneStep:
    return lambda lane, stamp: None


def _compile_if(m: LaneMachine, u: UOp) -> LaneStep:
    slot = m.get_or_make_slot(u.condition)
    return lambda lane, stamp: bool(m.read_or_load_value(lane, slot, stamp))


def _compile_buffer(m: LaneMachine, u: UOp) -> LaneStep:
    address = Address(u, None, (u.arg.size,), u.dtype.itemsize)
    return lambda lane, stamp: address


def _compile_movement(m: LaneMachine, u: UOp) -> LaneStep:
    """Return the step of a movement op; an injective view of a reference stays a reference (R51)."""
    if not u.src:
        empty = np.zeros(0, np.int64)  # the shape () as a value (R40)
        return lambda lane, stamp: empty
    first, *rest = [m.get_or_make_slot(s) for s in (data_and_symbolic_sources(u) if u.op in SHAPED else u.src)]
    view, move = VIEWS.get(u.op), MOVES[u.op]

    def execute_movement(lane: LaneState, stamp: Stamp) -> Any:
        operands = [m.read_or_load_value(lane, s, stamp) for s in rest]
        x = lane.values[first]
        if x.__class__ is Address and view is not None:
            address = view(u, x, operands)
            if address is not None:
                return address
        return m.to_checked_array(u, move(u, m.read_or_load_value(lane, first, stamp), operands), lane)

    return execute_movement


def _compile_axis_reduce(m: LaneMachine, u: UOp) -> LaneStep:
    """Return the step of a Reduce over axes; one over ranges is a loop."""
    slot = m.get_or_make_slot(u.operand)
    return lambda lane, stamp: m.to_checked_array(u, reduce(u, m.read_or_load_value(lane, slot, stamp)), lane)


# Memory


def _compile_load(m: LaneMachine, u: UOp) -> LaneStep:
    slots = [m.get_or_make_slot(s) for s in u.src]
    dtype = NUMPY[u.dtype]

    def execute_load(lane: LaneState, stamp: Stamp) -> Array:
        a = lane.values[slots[0]]
        if a.__class__ is not Address:
            a = m.read_or_load_value(lane, slots[0], stamp)
        if len(slots) == 1:
            return m.to_checked_array(u, m.load_elements(a, dtype, lane, stamp) if a.__class__ is Address else a, lane)
        alternative, gate = m.read_or_load_value(lane, slots[1], stamp), m.read_or_load_value(lane, slots[2], stamp)
        if a.__class__ is not Address:
            return m.to_checked_array(u, np.where(gate, a, alternative), lane)
        if not gate.ndim:
            return m.to_checked_array(u, m.load_elements(a, dtype, lane, stamp) if gate else alternative, lane)
        out = alternative.copy()
        for k in np.argwhere(np.broadcast_to(gate, a.shape)):
            at = tuple(k)
            out[at] = m.load_elements(a.with_positions(a.byte_positions()[at]), dtype, lane, stamp)
        return m.to_checked_array(u, out, lane)

    return execute_load


def _compile_store(m: LaneMachine, u: UOp) -> LaneStep:
    slots = [m.get_or_make_slot(s) for s in u.src]
    d = u.buffer.dtype

    def execute_store(lane: LaneState, stamp: Stamp) -> None:
        a, value = _require_target_address(m, u, lane, slots[0]), m.read_or_load_value(lane, slots[1], stamp)
        gate = m.read_or_load_value(lane, slots[2], stamp) if len(slots) > 2 else None
        if value.shape != a.shape or value.dtype != NUMPY[d]:
            raise SpecError(f"Store of {value.dtype} {value.shape} into {d} {a.shape}", claim="STORE.C1")
        for memory, position, element in _check_bounds_and_pair_positions_with_values(m, a, value, gate, lane, stamp):
            memory.store(position, element, stamp)

    return execute_store


def _compile_atomic_add(m: LaneMachine, u: UOp) -> LaneStep:
    slots = [m.get_or_make_slot(s) for s in u.src]
    d = u.index.dtype
    add = KERNELS[Op.ADD][d]

    def execute_atomic_add(lane: LaneState, stamp: Stamp) -> None:
        a, value = _require_target_address(m, u, lane, slots[0]), m.read_or_load_value(lane, slots[1], stamp)
        if value.shape != a.shape or value.dtype != NUMPY[d]:
            raise SpecError(f"AtomicAdd of {value.dtype} {value.shape} to {d} {a.shape}", claim="ATOMICADD.C2")
        for memory, position, element in _check_bounds_and_pair_positions_with_values(m, a, value, None, lane, stamp):
            memory.atomic_add(position, element, d, add, stamp)

    return execute_atomic_add


def _require_target_address(m: LaneMachine, u: UOp, lane: LaneState, slot: int) -> Address:
    a = lane.values[slot]
    if a.__class__ is not Address:
        target = u.src[0]  # buffer or index
        raise SpecError(f"{u.op.name} to {describe(target)}, which is no reference (R51)")
    return a


def _check_bounds_and_pair_positions_with_values(
    m: LaneMachine, a: Address, value: Array, gate: Array | None, lane: LaneState, stamp: Stamp
) -> list[tuple[CheckedMemory, int, Array]]:
    """Return the memory, the byte position and the element of `value` for each element that an access touches."""
    memory = m.get_or_make_memory(a, lane)
    positions = a.byte_positions().ravel().tolist()
    flat = value.reshape(-1)
    live = None if gate is None else np.broadcast_to(gate, a.shape).ravel().tolist()
    pairs = []
    for k, position in enumerate(positions):
        if live is None or live[k]:
            m.trap_if_marked_outside(a, memory, position, stamp)
            pairs.append((memory, position, flat[k, ...]))
    return pairs


# Tensor cores and opaque instructions


def _compile_wmma(m: LaneMachine, u: UOp) -> LaneStep:
    """Return the step that gives the lane's fragments; the machine brings the lanes of the warp together."""
    slots = [m.get_or_make_slot(s) for s in (u.lhs, u.rhs, u.accumulator)]
    return lambda lane, stamp: tuple(m.read_or_load_value(lane, s, stamp) for s in slots)


class OpaqueMemoryOperand:
    """A reference as an opaque instruction sees it."""

    def __init__(self, m: LaneMachine, a: Address, d: Any, lane: LaneState, stamp: Stamp) -> None:
        self._machine, self._address, self._dtype, self._lane, self._stamp = m, a, d, lane, stamp

    def load(self) -> Array:
        """Return the elements."""
        return self._machine.load_elements(self._address, NUMPY[self._dtype], self._lane, self._stamp)

    def store(self, value: Any) -> None:
        """Write the elements."""
        value = np.broadcast_to(np.asarray(value, NUMPY[self._dtype]), self._address.shape)
        for memory, position, element in _check_bounds_and_pair_positions_with_values(
            self._machine, self._address, value, None, self._lane, self._stamp
        ):
            memory.store(position, element, self._stamp)


def _compile_instruction_by_registered_meaning(m: LaneMachine, u: UOp) -> LaneStep:
    """Return the step of an instruction that only a registered meaning explains."""
    name = u.arg.name if u.op is Op.INS else u.arg.fmt
    slots = [(m.get_or_make_slot(s), s) for s in u.src]

    def execute_opaque(lane: LaneState, stamp: Stamp) -> Any:
        meaning = require_meaning(u.op, name)
        operands = [
            OpaqueMemoryOperand(m, v, s.dtype, lane, stamp) if (v := lane.values[k]).__class__ is Address else v for k, s in slots
        ]
        value = meaning(*operands)
        return None if u.dtype is dt.void else m.to_checked_array(u, value, lane)

    return execute_opaque


# fmt: off
#: op -> function that compiles its step, for ops without a kernel of arrays.
_COMPILERS: dict[Op, Callable[[LaneMachine, UOp], LaneStep]] = {
    Op.CONST: _compile_const, Op.CAST: _compile_cast, Op.REDUCE: _compile_axis_reduce,
    **dict.fromkeys(MOVES, _compile_movement), **dict.fromkeys(MARKERS, _compile_first_source),
    Op.BUFFER: _compile_buffer, Op.AFTER: _compile_after, Op.LOAD: _compile_load, Op.STORE: _compile_store,
    Op.ATOMICADD: _compile_atomic_add, Op.IF: _compile_if, Op.BARRIER: _compile_void, Op.WMMA: _compile_wmma,
    **dict.fromkeys((Op.INS, Op.CUSTOM, Op.CUSTOMI), _compile_instruction_by_registered_meaning),
}
# fmt: on
#: The ops that a kernel may have, beside loops and the ops that hold items together.
MEANING = frozenset(KERNELS) | frozenset(_COMPILERS)
