"""Memory ops of the bestiary: where memory comes from, addresses, loads and stores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from uops.interp.bestiary import memory
from uops.interp.bestiary.frame import BestiaryFrame
from uops.interp.bestiary.lanes import BestiaryCoroutine
from uops.interp.bestiary.machine import BestiaryMachine, EvalStep
from uops.interp.bestiary.memory import BestiaryMemory, BestiaryRef, PrivateMemory
from uops.interp.tensor.storage import NUMPY, Array, validate_input
from uops.spec.errors import SpecError
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

# ------------------------------------------------------------------------------------------------------------------ memories


def get_or_make_named_memory_filled_if_input(
    m: BestiaryMachine, input_key: str, dtype: DType, shape: tuple[int, ...]
) -> BestiaryMemory:
    """Return the memory that a caller can name by `input_key`, filled from the inputs where they have it.

    Raises SpecError if the graph has it in two dtypes or shapes (R62).
    """
    named = m.memories.get(input_key)
    if named is None:
        contents = m.inputs.get(input_key)
        if contents is None:
            named = memory.allocate_memory(input_key, dtype, shape, input_key)
        else:
            named = memory.memory_from_contents(input_key, dtype, validate_input(input_key, contents, dtype, shape), input_key)
        m.memories[input_key] = named
    if (named.dtype, named.shape) != (dtype, shape):
        raise SpecError(f"{input_key} is {named.dtype} {named.shape} here and {dtype} {shape} there (R62)")
    return named


def eval_buffer(step: EvalStep) -> Any:
    """Return the memory of a BUFFER, named by its UNIQUE; an LUNIQUE has no name outside of the graph (R120)."""
    u, m = step.node, step.machine
    shape = m.shape(step.frame, u)
    unique = u.unique
    if unique.op is Op.UNIQUE:
        return memory.whole_memory_ref(get_or_make_named_memory_filled_if_input(m, f"b{unique.arg.id}", u.arg.dtype, shape))
    return memory.whole_memory_ref(_get_or_make_unnamed_memory(m, u, f"buffer l{unique.arg.id}", shape))


def _get_or_make_unnamed_memory(m: BestiaryMachine, u: UOp, name: str, shape: tuple[int, ...]) -> BestiaryMemory:
    """Return the one memory of the run that `u` stands for, uninitialised at first."""
    unnamed = m.memories.get(u)
    if unnamed is None:
        unnamed = m.memories[u] = memory.allocate_memory(name, u.dtype, shape)
    return unnamed


def eval_define_local_or_reg(step: EvalStep) -> Any:
    """Return the memory of a DEFINE_LOCAL, which is the workgroup's, or of a DEFINE_REG, which is the lane's."""
    u, of_lane = step.node, step.node.op is Op.DEFINE_REG
    name = f"{'register' if of_lane else 'local'} {u.arg.id}"
    return memory.whole_memory_ref(PrivateMemory(u, name, u.arg.dtype, (u.arg.size,), of_lane))


def eval_bufferize(step: EvalStep) -> BestiaryCoroutine:
    """Store the operand for all values of the ranges, in memory of their extents, and return that memory."""
    u, m = step.node, step.machine
    operand, ranges = u.operand, u.ranges
    shape = m.shape(step.frame, u)
    name = "a bufferized value"
    is_local = u.arg.addrspace is AddrSpace.LOCAL
    target = memory.whole_memory_ref(
        PrivateMemory(u, name, u.dtype, shape) if is_local else _get_or_make_unnamed_memory(m, u, name, shape)
    )

    def store_iteration(frame: BestiaryFrame) -> BestiaryCoroutine:
        yield from m.evaluate(frame, operand, *ranges)
        value = step.value_of(operand, frame)
        indices = [step.value_of(r, frame) for r in ranges]
        cell = frame.find_cell(operand)
        assert cell is not None
        before = frame.events_before | cell.before | cell.event
        step.before |= step.store_and_return_event_bit(
            u, frame, memory.index_ref_deferring_bounds_trap(target, indices, None), value, None, before
        )

    yield from step.run_loops((operand,), ranges, store_iteration)
    return target


# ----------------------------------------------------------------------------------------------------------------- addresses


def eval_index_as_reference(step: EvalStep) -> Any:
    """Return the elements at the positions; with `gated`, the last one is the gate."""
    u = step.node
    positions = list(u.positions)
    gate = step.value_of(positions.pop()) if u.arg.gated else None
    return memory.index_ref_deferring_bounds_trap(step.reference_of(u.buffer), step.values_of(positions), gate)


def eval_pointer_index(step: EvalStep) -> Any:
    """Return the element at a byte offset."""
    return memory.pick_element_ref_at_byte_offset(step.reference_of(step.node.pointer), step.value_of(step.node.offset))


def eval_after(step: EvalStep) -> Any:
    """Return the buffer, once the dependencies have happened (R59)."""
    value = step.depend_on_cell_of(step.node.buffer).value
    return value.with_positions(value.positions) if isinstance(value, BestiaryRef) else value


# ------------------------------------------------------------------------------------------------------------------ accesses


def eval_load(step: EvalStep) -> Any:
    """Return the contents of memory; where the gate is false, the alternative or 0 (R104)."""
    u = step.node
    address = step.depend_on_cell_of(u.index).value
    alternative = None if u.alternative is None else step.value_of(u.alternative)
    if isinstance(address, BestiaryRef):
        return _load_gated(step, address, alternative)
    loaded, done = [], 0
    for ref in address.parts:
        n = math.prod(ref.shape)
        part = None if alternative is None else alternative[done : done + n].reshape(ref.shape)
        loaded.append(_load_gated(step, ref, part).reshape(-1))
        done += n
    return np.concatenate(loaded)


def _load_gated(step: EvalStep, ref: BestiaryRef, alternative: Array | None) -> Array:
    value = step.load_and_log_event(ref, ref.gate)
    return value if ref.gate is None or alternative is None else np.where(ref.gate, value, alternative)


def execute_store(step: EvalStep, frame: BestiaryFrame, u: UOp, gates: Sequence[UOp] = ()) -> None:
    """Write the value of STORE `u` where `gates` and the gate of its index hold; all of them have cells in `frame`.

    The write happens after these alone: the step may be that of a loop around it, with other iterations behind.
    """
    index = u.index
    address, value = step.depend_on_cell_of(index, frame).value, step.value_of(u.value, frame)
    expected = step.machine.shape(frame, index)
    if value.shape != expected or value.dtype != NUMPY[index.dtype]:
        raise SpecError(f"Store of {value.dtype} {value.shape} into {index.dtype} {expected}", claim="B_STORE.C3")
    live = np.logical_and.reduce([step.value_of(g, frame) for g in gates]) if gates else None
    before = frame.events_before
    for source in (index, u.value, *gates):
        cell = frame.find_cell(source)
        assert cell is not None
        before |= cell.before | cell.event
    parts = (address,) if isinstance(address, BestiaryRef) else address.parts
    done = 0
    for ref in parts:
        n = math.prod(ref.shape)
        part = value if len(parts) == 1 and value.shape == ref.shape else value[done : done + n].reshape(ref.shape)
        step.before |= step.store_and_return_event_bit(u, frame, ref, part, _and_masks(ref.gate, live), before)
        done += n


def _and_masks(a: Array | None, b: Array | None) -> Array | None:
    """Return the conjunction of two masks, None meaning everywhere."""
    return a if b is None else b if a is None else np.logical_and(a, b)
