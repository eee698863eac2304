"""Lanes and workgroups of a kernel: what a Special numbers, and the order of the lanes. Spec: Special; AxisType table; R125."""

from __future__ import annotations

import re
from collections.abc import Iterable

from uops.compiler.place import untranslatable_error
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import WORKGROUP, AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import OPAQUE_INSTRUCTIONS, Op
from uops.spec.ir.scope import numbers_workgroups


def sort_specials_by_name(specials: Iterable[UOp]) -> list[UOp]:
    """Return Specials in the order of their loops, outermost first; numbers in a name are compared as numbers."""
    return sorted(specials, key=lambda u: _natural_sort_key(str(u.arg.name)))


def _natural_sort_key(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def is_lane_loop(u: UOp) -> bool:
    """Return True for a Range whose iterations are lanes of one workgroup."""
    return u.op is Op.RANGE and u.arg.type in WORKGROUP


def sort_lanes_fastest_first(specials: Iterable[UOp], loops: Iterable[UOp]) -> list[UOp]:
    """Return the Specials and the loops that number lanes, the one that varies fastest first.

    WARP loops come first, then the innermost of the others, then the Specials by name. `loops` are given outermost first.
    """
    innermost_first = list(loops)[::-1]
    by_type = sorted(innermost_first, key=lambda r: r.arg.type is not AxisType.WARP)
    return by_type + sort_specials_by_name(u for u in specials if not numbers_workgroups(u))


def find_values_that_lanes_may_differ_in(linear: UOp) -> set[UOp]:
    """Return the instructions of a kernel whose value may depend on the lane that executes them.

    A Load gives all lanes the same where they load the same element of GLOBAL or LOCAL memory at the same time.
    """
    differing: set[UOp] = set()
    for u in linear.src:
        sources = (u.buffer,) if u.op is Op.AFTER else u.src
        numbers_lanes = is_lane_loop(u) or (u.op is Op.SPECIAL and not numbers_workgroups(u))
        if numbers_lanes or is_register(u) or u.op in OPAQUE_INSTRUCTIONS or not differing.isdisjoint(sources):
            differing.add(u)
    return differing


def is_register(u: UOp) -> bool:
    """Return True for a REG Buffer, which each lane has its own of."""
    return u.op is Op.BUFFER and u.arg.addrspace is AddrSpace.REG


def require_same_for_all_lanes(opening: UOp, differing: set[UOp], what: str, ruling_and_topic: str, linear: UOp) -> None:
    """Raise CompileError if lanes may differ in the bound of a Range, or the condition of an If, in which they meet at `what`."""
    source = next((s for s in opening.src if s in differing), None)
    if source is not None:
        operand = "bound" if opening.op is Op.RANGE else "condition"
        detail = f"{what} stands in this block, so its {operand} must be the same for all lanes, but may differ in its"
        raise untranslatable_error(ruling_and_topic, opening, f"{detail} {source.op.name.lower()}", linear)
