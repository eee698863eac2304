"""Specials as loops (R125): every lane runs the whole body, so each Special is a loop around all of it.

Takes a `KernelStructure` and gives one whose block is the outermost loop. The Specials that number workgroups come first, then
those that number lanes, each sorted by name, the last one innermost. Spec: Codegen/Special.
"""

from __future__ import annotations

import re
from dataclasses import replace

from uops.interp.kernel.structure.blocks import GROUP_NAMES, KernelStructure, Loop, ScheduledBlock
from uops.spec.errors import SpecError
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import WRITES, Op


def wrap_specials_as_loops(kernel: KernelStructure) -> KernelStructure:
    """Return the kernel without Specials: each becomes the range of a loop around everything."""
    block = kernel.block
    for special in reversed(sort_launch_dimensions_or_reject_duplicates(kernel.specials)):
        block = ScheduledBlock((Loop(special, special, True, True, block),), ((),), (0,), ((),))
    return replace(kernel, block=block, specials=())


def select_bounds_or_reject_effects(kernel: KernelStructure) -> dict[UOp, UOp]:
    """Return the bound of each Special. A bound is a kernel of its own, which runs before any lane (R125).

    Raises SpecError for a bound with an effect, and for one that depends on a lane.
    """
    bounds = {u: u.bound for u in kernel.specials}
    for special, bound in bounds.items():
        for u in toposort(bound, gate=lambda u: u not in kernel.leaves):
            if u.op in WRITES or u.op is Op.SPECIAL:
                raise SpecError(f"the bound of special {special.arg.name!r} depends on {u.op.name}, but is computed first (R125)")
    return bounds


def sort_launch_dimensions_or_reject_duplicates(specials: tuple[UOp, ...]) -> list[UOp]:
    """Return the Specials in the order of their loops, outermost first. Raises SpecError for two of one name (R125)."""
    named: dict[str, UOp] = {}
    for u in specials:
        if named.setdefault(u.arg.name, u) is not u:
            raise SpecError(f"special {u.arg.name!r} has two bounds (R125)")
    return sorted(specials, key=lambda u: (not u.arg.name.startswith(GROUP_NAMES), natural_sort_key(u.arg.name)))


def natural_sort_key(name: str) -> list[tuple[int, str]]:
    """Return a sort key that orders names by the numbers in them: lidx2 before lidx10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
