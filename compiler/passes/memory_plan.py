"""Register/memory plan: where intermediate values live.

Takes: LINEAR. Gives: PLANNED (intermediate Buffers are Slices of an arena). Spec: Lowering Pipeline/Register-Memory Plan; Slice;
R61.

An intermediate is a Buffer that the caller does not see. It lives from the first Call that has it as an argument to the last; two
whose lives do not meet may share bytes. Places are chosen first fit, in order of birth. Registers need no plan: they are a
kernel's own.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from uops.compiler.log import note
from uops.compiler.passes.callify.callify import highest_unique
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import SliceArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Bytes; the alignment of every place, enough for any vector access.
ALIGNMENT = 64


@dataclass(slots=True)
class Life:
    """The Calls between which a Buffer is needed, inclusive, and where it lies."""

    buffer: UOp
    first: int
    last: int
    offset: int = 0

    @property
    def size(self) -> int:
        n = int(self.buffer.arg.size) * self.buffer.dtype.itemsize
        return -(-n // ALIGNMENT) * ALIGNMENT

    def meets(self, other: Life) -> bool:
        return self.first <= other.last and other.first <= self.last


def plan(root: UOp, external: Collection[UOp]) -> UOp:
    """`root` with its intermediates in arenas: one of bytes, and one of bools, which a view of bytes may not be (R46)."""
    lives = [life for life in lifetimes(root, external) if life.size]
    if not lives:
        return root
    unique = highest_unique(a for c in root.src for a in c.src[1:])  # a kernel's own memory is of another scope (R130)
    put: dict[UOp, UOp] = {}
    for d in (dt.uint8, dt.bool_):
        mine = [life for life in lives if (life.buffer.dtype is dt.bool_) == (d is dt.bool_)]
        if mine:
            unique += 1
            arena = B.buffer(place(mine), d, mine[0].buffer.arg.device, unique=unique)
            put.update({life.buffer: _slice(arena, life) for life in mine})
    planned = root.replace(src=tuple(c.replace(src=(c.src[0], *(put.get(a, a) for a in c.src[1:]))) for c in root.src))
    note("memory plan", root, planned, put)
    return planned


def lifetimes(root: UOp, external: Collection[UOp]) -> list[Life]:
    """The intermediates of a launch, in order of birth."""
    found: dict[UOp, Life] = {}
    for k, call in enumerate(root.src):
        for a in call.src[1:]:
            if a.op is Op.BUFFER and a not in external:
                found.setdefault(a, Life(a, k, k)).last = k
    return list(found.values())


def place(lives: list[Life]) -> int:
    """Choose every offset of `lives`, which are in order of birth; gives the size of the arena."""
    placed: list[Life] = []
    for life in lives:
        placed = [other for other in placed if other.last >= life.first]  # what has ended meets no later one either
        for other in sorted(placed, key=lambda o: o.offset):
            if life.offset + life.size <= other.offset:
                break
            life.offset = max(life.offset, other.offset + other.size)
        placed.append(life)
    return max(life.offset + life.size for life in lives)


def _slice(arena: UOp, life: Life) -> UOp:
    return UOp(Op.SLICE, (arena, B.index(life.offset)), SliceArg(life.buffer.arg.size, life.buffer.dtype))
