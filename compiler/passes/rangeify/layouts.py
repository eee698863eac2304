"""Layouts: in which order of elements a realised value lies in memory.

A value that is used through movement ops only is stored as the last of them has it, so that whoever reads it reads along memory:
the heads of an attention, for example, become rows. `layouts(order, users)` names for each such value the view in whose row-major
order it is stored, and the view over whose axes its kernel loops: that with the most axes, as every other index is a sum of those.
The views pass on every element once: Reshape, Permute and Flip. The last axis stays the last one, because a kernel's lanes are its.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from uops.compiler.ir.views import STEP, Index, Indexing, reshaped
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ALU, Op

#: Views that have every element of their source once.
BIJECTIVE = frozenset({Op.RESHAPE, Op.PERMUTE, Op.FLIP})


class Layout(NamedTuple):
    """`value` is stored in the order of the elements of `chain[-1]`; each node of `chain` is a view of the one before, the first
    one of `value`; `loops` is the node of (value, *chain) whose axes are the kernel's loops."""

    value: UOp
    chain: tuple[UOp, ...]
    loops: UOp

    def below(self, at: Indexing, index: Index) -> Index:
        """The element of `value` that is the element `index` of `loops`."""
        if self.loops is not self.value:
            for v in reversed(self.chain[: self.chain.index(self.loops) + 1]):
                index = STEP[v.op](at, v, index).coords
        return index

    def above(self, at: Indexing, index: Index) -> Index:
        """The element of the last view that is the element `index` of `loops`."""
        start = 0 if self.loops is self.value else self.chain.index(self.loops) + 1
        for v in self.chain[start:]:
            index = _forward(at, v, index)
        return index


def _forward(at: Indexing, v: UOp, index: Index) -> Index:
    """The element of a view that is the element `index` of its source."""
    if v.op is Op.PERMUTE:
        return tuple(index[k] for k in v.arg.order)
    if v.op is Op.FLIP:
        return STEP[Op.FLIP](at, v, index).coords
    return reshaped(at, v.src[0].shape, v.shape, index)


def layouts(order: Sequence[UOp], users: Mapping[UOp, int], cheap: set[UOp]) -> dict[UOp, Layout]:
    """The layouts by the view that they store; only values of fixed extents that a single view uses have one."""
    chains: dict[UOp, tuple[UOp, tuple[UOp, ...]]] = {}
    found: dict[UOp, Layout] = {}
    for v in order:
        if v.op not in BIJECTIVE or users.get(v.src[0], 0) != 1 or any(isinstance(n, UOp) for n in v.shape):
            continue
        s = v.src[0]
        value, before = chains.get(s, (s, ()))
        if not before and (s in cheap or (s.op not in ALU and s.op is not Op.REDUCE)):
            continue
        chain = (*before, v)
        if not keeps_last(value, chain):
            continue
        chains[v] = value, chain
        if before:
            found.pop(before[-1], None)
        if any(x.op is not Op.RESHAPE for x in chain):
            found[v] = Layout(value, chain, max((value, *chain), key=lambda x: sum(n != 1 for n in x.shape)))
    return found


def keeps_last(value: UOp, chain: Sequence[UOp]) -> bool:
    """Whether consecutive elements along the last axis of `value` are consecutive in the last view; by strides of its axes."""
    shape: list[int] = [n for n in value.shape if n != 1]
    if not shape:
        return False
    last = shape[-1]
    axes: list[tuple[int, bool]] = [(n, False) for n in shape[:-1]] + [(last, True)]
    for v in chain:
        moved = _axes_of(axes, v)
        if moved is None:
            return False
        axes = moved
    return bool(axes) and axes[-1][1]


def _axes_of(axes: list[tuple[int, bool]], v: UOp) -> list[tuple[int, bool]] | None:
    """Axes of more than one element of a view, and whether each walks along the value's last axis; None for a flip of it."""
    old = v.src[0].shape
    if v.op is Op.RESHAPE:
        return _reshaped(axes, [n for n in v.shape if n != 1])
    own = iter(axes)
    full = [(1, False) if n == 1 else next(own) for n in old]
    if v.op is Op.FLIP:
        return None if any(f and full[k][1] for k, f in enumerate(v.arg.flags)) else axes
    return [full[k] for k in v.arg.order if old[k] != 1]


def _reshaped(axes: list[tuple[int, bool]], shape: Sequence[int]) -> list[tuple[int, bool]]:
    """An axis of a Reshape walks along the last axis if its steps do: it ends where an axis of the source with that mark ends."""
    ends: dict[int, bool] = {}
    size = 1
    for n, mark in reversed(axes):
        ends[size] = mark
        size *= n
    found: list[tuple[int, bool]] = []
    size = 1
    for n in reversed(shape):
        found.append((n, ends.get(size, False)))
        size *= n
    return found[::-1]


def elements(u: UOp) -> int:
    """The number of elements of a value of fixed extents."""
    return math.prod(int(n) for n in u.shape)
