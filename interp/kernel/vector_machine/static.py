"""What a kernel computes from its loop counters alone: addresses, and the accesses that are views of a memory.

Counters of axes whose bounds are constant, and what is affine in them, depend on no argument and on no memory. They belong to the
plan: `fold` evaluates them once, with what is asserted of every value, and finds for each access without a condition the `Span` of
elements that it touches, if all of it is in bounds. Everything else is left to each run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from uops.interp.kernel.structure.blocks import Block, Loop
from uops.interp.kernel.vector_machine.affine import RULES, Affine, constant, fits
from uops.interp.kernel.vector_machine.layout import ACCESSES, Layout
from uops.interp.kernel.vector_machine.limits import GiveUp
from uops.interp.kernel.vector_machine.memory import Span, Strided, element, lanes, spanned, whole
from uops.interp.kernel.vector_machine.plan import MemoryPlan
from uops.interp.tensor.storage import constant as constant_array
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

_INTEGERS = frozenset({dt.index, *dt.INTS})


@dataclass(eq=False, slots=True)
class Static:
    """`cells`: values that no run computes. `bounds`: the iterations of loops. `spans`: of accesses."""

    cells: dict[UOp, Any] = field(default_factory=dict)
    bounds: dict[UOp, int] = field(default_factory=dict)
    spans: dict[UOp, Span] = field(default_factory=dict)


def fold(layout: Layout, block: Block, sequential: frozenset[UOp], memories: dict[UOp, MemoryPlan]) -> Static:
    found = Static()
    for u in memories:
        if u in layout.leaves and all(n.__class__ is int for n in u.shape):
            found.cells[u] = whole(u, u.shape)
    _fold(found, layout, block, [], sequential, memories)
    return found


def _fold(
    found: Static, layout: Layout, block: Block, extents: list[int], sequential: frozenset[UOp], memories: dict[UOp, MemoryPlan]
) -> None:
    for item in block.items:
        if isinstance(item, Loop):
            r = item.range
            bound = _value(found, r.src[0])
            if bound.__class__ is not Affine or bound.lo != bound.hi:
                continue
            n = found.bounds[r] = bound.lo
            if n > 0 and r in sequential:
                _fold(found, layout, item.block, extents, sequential, memories)
            elif n > 0:
                inner = [*extents, n]
                found.cells[r] = _asserted(r, Affine(0, (0,) * len(extents) + (1,), inner))
                _fold(found, layout, item.block, inner, sequential, memories)
        else:
            value = _evaluated(found, item, extents)
            if value is not None:
                found.cells[item] = _asserted(item, value)
            elif item.op in ACCESSES and item not in layout.guards:
                _access(found, layout, item, extents, memories)


def _value(found: Static, u: UOp) -> Any:
    """A bound, which for a Special stands inside of its own loop."""
    if u not in found.cells and u.op is Op.CONST:
        found.cells[u] = constant(u.arg.value)
    return found.cells.get(u)


def _evaluated(found: Static, u: UOp, extents: Sequence[int]) -> Any:
    """The value of a node, None where it is not known before the run."""
    if u.op is Op.CONST:
        return constant(u.arg.value) if u.arg.dtype in _INTEGERS else constant_array(u.arg.value, u.arg.dtype)
    if u.op is Op.BUFFER:
        return whole(u, (u.arg.size,))
    if not u.src:
        return None
    cells = found.cells
    first = cells.get(u.src[0])
    if u.op is Op.AFTER:
        return first
    operands = [cells.get(s) for s in u.src]
    if u.op is Op.INDEX:
        return element(first, operands[1:], extents) if first.__class__ is Strided else None
    if not all(c.__class__ is Affine for c in operands):
        return None
    if u.op is Op.CAST:
        value: Any = first
    else:
        rule = RULES.get(u.op)
        value = None if rule is None else rule(operands, extents)  # type: ignore[arg-type]
    if value.__class__ is bool:
        return constant_array(value, dt.bool_)
    return value if value is not None and fits(value, u.dtype) else None


def _asserted(u: UOp, value: Any) -> Any:
    if value.__class__ is Affine:
        bounds = u.min_max
        if bounds is None or value.lo < bounds[0] or value.hi > bounds[1]:
            raise GiveUp(f"{u.op.name} leaves its derived bounds")
    return value


def _access(found: Static, layout: Layout, u: UOp, extents: list[int], memories: dict[UOp, MemoryPlan]) -> None:
    ref = found.cells.get(u.src[0])
    gated = len(u.src) > (1 if u.op is Op.LOAD else 2)
    if ref.__class__ is not Strided or gated:
        return
    planned = memories[ref.home]
    size = math.prod(ref.home.shape) if planned.space is AddrSpace.GLOBAL else ref.home.arg.size
    try:
        span = spanned(ref, size, lanes(planned, size, extents), extents)
    except GiveUp:  # the run finds out whether it comes here
        return
    found.spans[u] = span
