"""Contents of private memory that an iteration of a loop may find of an earlier one. Spec: Buffer, Index; R61 (fresh buffers)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from uops.compiler.ir.extents import constant_extent, may_be_zero_trip
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import KERNEL_ACCESSES, Op
from uops.spec.ir.scope import has_memory_per_iteration, strip_afters


def may_read_before_writing(buffer: UOp, accesses: Iterable[tuple[UOp, Sequence[UOp]]]) -> bool:
    """Return True unless each iteration of a loop certainly writes what it reads of a Buffer, before it reads it.

    `accesses` are the instructions in the loop that access the Buffer, in order. Each comes with the blocks around it inside of the
    loop, outermost first.
    """
    everything = frozenset(range(int(buffer.arg.size)))
    written = frozenset[int]()
    before: list[tuple[UOp, frozenset[int]]] = []  # the open blocks, and what was written before each of them
    filling: set[UOp] = set()  # loops that write all elements, one per iteration
    for u, blocks in accesses:
        while before and before[-1][0] not in blocks:
            block, earlier = before.pop()
            if block in filling:
                written = everything
            elif block.op is not Op.RANGE or may_be_zero_trip(block):
                written = earlier
        before += [(block, written) for block in blocks[len(before) :]]
        elements = find_accessed_elements(u, buffer)
        if u.op is not Op.STORE:
            if not (everything if elements is None else elements) <= written:
                return True
        elif u.gate is None:
            written |= elements or frozenset()
            if blocks and _is_filled_by_loop(u, buffer, blocks[-1]):
                filling.add(blocks[-1])
    return False


def find_accessed_elements(access: UOp, buffer: UOp) -> frozenset[int] | None:
    """Return the elements of a Buffer that an instruction accesses; None if they are not known."""
    if access.op in KERNEL_ACCESSES and strip_afters(access.src[0]) is buffer:  # its buffer, or the index of an AtomicAdd
        return frozenset(range(int(buffer.arg.size)))
    position = _find_position(access, buffer)
    if position is None:
        return None
    if position.op is Op.CONST:
        return frozenset({int(position.arg.value)})
    elements = position.constants_of_stack
    return None if elements is None else frozenset(map(int, elements))


def _find_position(access: UOp, buffer: UOp) -> UOp | None:
    """Return the position, or the vector of them, at which an instruction accesses a Buffer; None if it is no plain access."""
    if access.op not in KERNEL_ACCESSES:
        return None
    target = strip_afters(access.src[0])  # its buffer, or the index of an AtomicAdd
    if target.op is not Op.INDEX or strip_afters(target.operand) is not buffer or len(target.positions) != 1:
        return None
    position: UOp = target.positions[0]
    return position


def _is_filled_by_loop(store: UOp, buffer: UOp, loop: UOp) -> bool:
    """Return True if the innermost block around a Store is a loop that writes each element of a Buffer in its own iteration.

    Each lane of a loop of lanes writes one element, of memory of its own (R128).
    """
    position = _find_position(store, buffer)
    if position is not None and position.op is Op.CAST and position.dtype in (dt.int32, dt.int64):
        position = position.operand
    if position is not loop or has_memory_per_iteration(buffer, loop):
        return False
    return loop.bound.op is Op.CONST and constant_extent(loop) == int(buffer.arg.size)
