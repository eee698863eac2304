"""Placement of intermediate Buffers in arenas.

Takes: LINEAR. Gives: PLANNED (intermediate Buffers are Slices of an arena). Spec: Lowering Pipeline/Register-Memory Plan; Slice;
R61 (fresh buffers).

An intermediate is a Buffer that the caller does not see. It is live from the first Call that has it as an argument to the last.
Intermediates whose live ranges do not overlap may share bytes. Offsets are chosen first fit, in order of first use. Registers need
no plan: they belong to a kernel.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from uops.compiler.ir.buffers import highest_unique
from uops.compiler.log import log_transform
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import Device, SliceArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Alignment of every intermediate in bytes, enough for any vector access.
ALIGNMENT = 64


@dataclass(slots=True)
class LiveRange:
    """An intermediate, the positions of the first and the last Call that uses it, and its offset in the arena in bytes."""

    buffer: UOp
    first: int
    last: int
    offset: int = 0

    @property
    def aligned_size(self) -> int:
        """Size in bytes, rounded up to the alignment."""
        n = int(self.buffer.arg.size) * self.buffer.dtype.itemsize
        return -(-n // ALIGNMENT) * ALIGNMENT


def place_intermediates_in_arenas_per_device(launch: UOp, caller_buffers: Collection[UOp]) -> UOp:
    """Replace the intermediates of a launch by Slices of arenas, one per device. `caller_buffers` are those that the caller sees.

    Bools have arenas of their own, because a Bitcast to bool is ill-formed (R46, Bitcast and Slice).
    """
    lives = [life for life in find_live_ranges(launch, caller_buffers) if life.aligned_size]
    if not lives:
        return launch
    # Memory inside of a kernel body has ids of its own (R130, ids of memory inside of a body).
    unique = highest_unique(a for c in launch.src for a in c.arguments)
    replacements: dict[UOp, UOp] = {}
    arenas: dict[tuple[DType, Device], list[LiveRange]] = {}
    for life in lives:
        arenas.setdefault((dt.bool_ if life.buffer.dtype is dt.bool_ else dt.uint8, life.buffer.arg.device), []).append(life)
    for (d, device), members in sorted(arenas.items(), key=lambda item: item[0][0] is dt.bool_):
        unique += 1
        arena = B.buffer(assign_offsets_and_get_arena_bytes(members), d, device, unique=unique)
        replacements.update({life.buffer: _slice_arena(arena, life) for life in members})
    calls = [c.replace(src=(c.body, *(replacements.get(a, a) for a in c.arguments))) for c in launch.src]
    planned = launch.replace(src=tuple(calls))
    log_transform("memory plan", launch, planned, replacements)
    return planned


def find_live_ranges(launch: UOp, caller_buffers: Collection[UOp]) -> list[LiveRange]:
    """Return the live ranges of the intermediates of a launch, in order of first use."""
    lives: dict[UOp, LiveRange] = {}
    for k, call in enumerate(launch.src):
        for a in call.arguments:
            if a.op is Op.BUFFER and a not in caller_buffers:
                lives.setdefault(a, LiveRange(a, k, k)).last = k
    return list(lives.values())


def assign_offsets_and_get_arena_bytes(live_ranges: list[LiveRange]) -> int:
    """Set the offset of every live range, given in order of first use, and return the size of the arena in bytes."""
    placed: list[LiveRange] = []
    for life in live_ranges:
        placed = [other for other in placed if other.last >= life.first]  # an ended range overlaps no later one either
        for other in sorted(placed, key=lambda o: o.offset):
            if life.offset + life.aligned_size <= other.offset:
                break
            life.offset = max(life.offset, other.offset + other.aligned_size)
        placed.append(life)
    return max(life.offset + life.aligned_size for life in live_ranges)


def _slice_arena(arena: UOp, life: LiveRange) -> UOp:
    return UOp(Op.SLICE, (arena, B.index(life.offset)), SliceArg(life.buffer.arg.size, life.buffer.dtype))
