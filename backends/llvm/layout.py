"""Decisions before rendering: forms of index vectors, 64-bit address arithmetic, references, and buffers in registers.

Takes: the instructions of a LINEAR kernel. Gives: sets of nodes. Spec: Load, Store, Buffer; R08 (index), R61 (fresh buffers), and
the forms of `uops.compiler.passes.select.vectors`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from uops.backends.facts import value_bounds
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ACCESSES, ADDRESSING, BLOCK_CLOSERS, BLOCK_OPENERS, KERNEL_VIEWS, MEMORY_ROOTS, Op
from uops.spec.ir.scope import base_memory


class LaneOffsets(NamedTuple):
    """An index vector: a scalar (None for 0), and the offset of each lane from it."""

    base: UOp | None
    from_base: tuple[int, ...]

    @property
    def starts_at_zero(self) -> bool:
        """True if the scalar is 0."""
        return self.base is None or (self.base.op is Op.CONST and self.base.arg.value == 0)

    @property
    def is_contiguous(self) -> bool:
        """True if each lane follows the lane before."""
        return self.from_base == tuple(range(self.from_base[0], self.from_base[0] + len(self.from_base)))


#: Dtypes of positions whose sums, where they wrap, are in no memory.
_NEVER_WRAP_IN_MEMORY = (dt.int32, dt.int64, dt.index)


def match_lane_offsets(index: UOp) -> LaneOffsets | None:
    """Match an index vector that is a scalar plus constants; return None for any other form.

    A sum that wraps in a narrow or unsigned dtype (R05) is another one in the 64 bits of an address. One of int32 or int64 that
    wraps is in no memory.
    """
    if index.op is Op.STACK:
        steps = index.constants_of_stack
        if steps is not None:
            return LaneOffsets(None, steps)
        first = index.src[0]  # the first element
        return LaneOffsets(first, (0,) * len(index.src)) if index.src.count(first) == len(index.src) else None
    if index.op is Op.ADD:
        for a, b in (index.src, index.src[::-1]):
            base, steps = (match_lane_offsets(a), b.constants_of_stack) if a.op is Op.STACK and b.op is Op.STACK else (None, None)
            if base is not None and steps is not None and index.dtype in _NEVER_WRAP_IN_MEMORY:
                return LaneOffsets(
                    base.base, tuple([x + y for x, y in zip(base.from_base, steps)]) if any(base.from_base) else steps
                )
    return None


_EXACT = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.CAST})


class AddressNodes(NamedTuple):
    """Integers for addresses: `wide` are computed in 64 bits, and `address_only` are used for nothing else.

    An address has 64 bits. A 32-bit sum that provably does not wrap is the same in 64 bits, and then the machine's addressing
    modes compute it at no cost.
    """

    wide: frozenset[UOp]
    address_only: frozenset[UOp]


def find_address_nodes(instructions: Sequence[UOp], memory_and_views: Iterable[UOp]) -> AddressNodes:
    """Return the integers that are addresses, and those of them with no other use."""
    memory = frozenset(memory_and_views)
    wide: set[UOp] = set()
    other: set[UOp] = set()  # with other uses
    only: set[UOp] = set()
    for u in reversed(instructions):  # users come first, so all uses of a node are known
        if u.op is Op.INDEX and (indexed := u.src[0]) in memory:  # operand
            _mark_wide_integers_of_index(u.positions[0], wide, other)
            other.add(indexed)
            continue
        exact = u in wide and never_wraps_in_own_dtype(u)
        if exact:
            wide.update(u.src)
        if u in wide and u not in other and (exact or u.shape != ()):
            only.add(u)
        else:
            other.update(u.src)
    return AddressNodes(frozenset(wide), frozenset(only))


def _mark_wide_integers_of_index(index: UOp, wide: set[UOp], otherwise_used: set[UOp]) -> None:
    """Mark the scalars from which an access computes its addresses."""
    at = match_lane_offsets(index) if index.shape != () else None
    if index.shape == ():
        wide.add(index)
    elif at is not None:
        wide.update((index, *index.src) if index.op is Op.ADD else (index,))
        if at.base is not None:
            wide.add(at.base)
    elif index.op is Op.STACK:
        wide.update((index, *index.src))
    else:
        otherwise_used.add(index)


def never_wraps_in_own_dtype(u: UOp) -> bool:
    """Return True if a scalar integer node has the same value in 64 bits, as nothing wraps."""
    if u.op not in _EXACT or u.shape != () or u.dtype not in (dt.int32, dt.int64):
        return False
    if u.op is Op.CAST:
        lo, hi = value_bounds(u.operand)
        return u.operand.dtype in (dt.index, dt.int32, dt.int64) and u.dtype.min <= lo and hi <= u.dtype.max
    lhs, rhs = u.src
    (a, A), (b, B) = value_bounds(lhs), value_bounds(rhs)
    if u.op is Op.MUL:
        ends = (a * b, a * B, A * b, A * B)
    else:
        ends = (a + b, A + B, a + B, A + b) if u.op is Op.ADD else (a - B, A - b, a - b, A - B)
    return u.dtype.min <= min(ends) and max(ends) <= u.dtype.max


#: Greatest number of elements of a Buffer that may become one vector.
_MAX_LANES = 64


def find_register_buffers_used_as_whole(instructions: Sequence[UOp]) -> frozenset[UOp]:
    """Return the REG Buffers that are only read and written as a whole, without a gate: they become SSA values."""
    whole = {u for u in instructions if u.op is Op.BUFFER and u.arg.addrspace is AddrSpace.REG and 0 < u.arg.size <= _MAX_LANES}
    if not whole:
        return frozenset()
    buffer_of: dict[UOp, UOp] = {u: u for u in whole}  # views
    names_none = buffer_of.keys().isdisjoint
    for u in instructions:
        if names_none(u.src):
            continue
        for k, s in enumerate(u.src):
            if s in buffer_of and not _accesses_whole_buffer(u, k, buffer_of[s]):
                whole.discard(buffer_of[s])
        if u.op in ADDRESSING and (viewed := u.src[0]) in buffer_of:  # buffer or operand
            buffer_of[u] = buffer_of[viewed]
    return frozenset(whole)


def _accesses_whole_buffer(u: UOp, source_index: int, buffer: UOp) -> bool:
    """Return True if `u`, whose source k is the buffer or a view of it, uses it as a whole."""
    if u.op is Op.INDEX and source_index == 0:
        operand, *positions = u.src
        return operand.op is not Op.INDEX and len(positions) == 1 and _index_is_whole_buffer_in_order(positions[0], buffer.arg.size)
    if u.op in ACCESSES:
        return source_index == 0 and len(u.src) == (1 if u.op is Op.LOAD else 2)
    return u.op is Op.AFTER or u.op is Op.GROUP


def _index_is_whole_buffer_in_order(index: UOp, size: int) -> bool:
    """Return True if an index is all elements of a buffer in order."""
    if index.shape == ():
        return size == 1 and index.op is Op.CONST and index.arg.value == 0
    at = match_lane_offsets(index)
    return at is not None and at.starts_at_zero and at.from_base == tuple(range(size))


def find_params_buffers_and_views(instructions: Iterable[UOp]) -> set[UOp]:
    """Return the memory of a kernel and the views of it."""
    references: set[UOp] = set()
    for u in [u for u in instructions if u.op in _REFERRING]:
        if u.src[0] in references if u.op in KERNEL_VIEWS else u.op is Op.BUFFER or u.arg.name is None:  # buffer or operand
            references.add(u)
    return references


_REFERRING = KERNEL_VIEWS | MEMORY_ROOTS


def find_registers_stored_in_blocks(instructions: Iterable[UOp], register_buffers: frozenset[UOp]) -> dict[UOp, list[UOp]]:
    """Return the registers that are stored to in each loop or If, in order."""
    if not register_buffers:
        return {}
    stores: dict[UOp, dict[UOp, None]] = {}
    open_blocks: list[UOp] = []
    for u in instructions:
        if u.op not in _BLOCKS_AND_STORES:
            continue
        if u.op in BLOCK_OPENERS:
            open_blocks.append(u)
        elif u.op in BLOCK_CLOSERS:
            closed = set(u.ranges) if u.op is Op.END else {u.if_node}
            open_blocks = [o for o in open_blocks if o not in closed]
        elif u.op is Op.STORE and (register := base_memory(u.buffer)) in register_buffers:
            for o in open_blocks:
                stores.setdefault(o, {})[register] = None
    return {o: list(rs) for o, rs in stores.items()}


_BLOCKS_AND_STORES = frozenset({Op.RANGE, Op.IF, Op.END, Op.ENDIF, Op.STORE})
