"""Specials as loops (R125): every lane runs the whole body, so each Special is a loop around all of it.

Takes a `Kernel`; gives the same one whose block is the outermost loop: first the Specials that number workgroups, then those that
number lanes, each sorted by name, the last one innermost. Spec: Codegen/Special.
"""

from __future__ import annotations

import re
from dataclasses import replace

from uops.interp.kernel.structure.blocks import GROUP_NAMES, Block, Kernel, Loop
from uops.spec.errors import SpecError
from uops.spec.ir.node import UOp


def launched(kernel: Kernel) -> Kernel:
    """The kernel without Specials: each is the range of a loop around everything."""
    block = kernel.block
    for special in reversed(dimensions(kernel.specials)):
        block = Block((Loop(special, special, True, True, block),), ((),), (0,), ((),))
    return replace(kernel, block=block, specials=())


def dimensions(specials: tuple[UOp, ...]) -> list[UOp]:
    """In the order of the loops, outermost first; a name stands for one dimension of the launch."""
    named: dict[str, UOp] = {}
    for u in specials:
        if named.setdefault(u.arg.name, u) is not u:
            raise SpecError(f"special {u.arg.name!r} has two bounds (R125)")
    return sorted(specials, key=lambda u: (not u.arg.name.startswith(GROUP_NAMES), natural(u.arg.name)))


def natural(name: str) -> list[tuple[int, str]]:
    """The key that sorts names by the numbers in them: lidx2 before lidx10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
