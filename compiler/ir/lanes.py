"""Lanes and workgroups of a kernel: what a Special numbers, and the order of the lanes. Spec: Special; AxisType table; R125."""

from __future__ import annotations

import re
from collections.abc import Iterable

from uops.spec.ir.axes import WORKGROUP, AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Names of Specials that number workgroups; all others number lanes (R125, Special).
_GROUP_NAMES = ("gidx", "blockIdx", "tidx", "threadpool")


def numbers_workgroups(special: UOp) -> bool:
    """Return True if a Special numbers workgroups, False if it numbers lanes."""
    return str(special.arg.name).startswith(_GROUP_NAMES)


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
