"""What a call of an instruction list runs: the loop that threads may share, and about how many instructions.

Takes: LINEAR. Whoever renders a kernel so that it can be called for some iterations of that loop, and whoever calls it so, ask
`shared`. Spec: Range, Linear; R57, R128, R129.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

_EFFECTS = frozenset({Op.STORE, Op.IF, Op.BARRIER, Op.CUSTOM, Op.INS, Op.RANGE})


def shared(instructions: Sequence[UOp]) -> UOp | None:
    """The THREAD loop that holds every effect of a LINEAR kernel and lies in no other loop; None if there is none. An AtomicAdd of
    ours is no atomic instruction, so a kernel that has one has none either."""
    loops = [u for u in instructions if u.op is Op.RANGE and u.arg.type is AxisType.THREAD]
    if len(loops) != 1 or loops[0].src[0].op is not Op.CONST or any(u.op is Op.ATOMICADD for u in instructions):
        return None
    first = next(k for k, u in enumerate(instructions) if u.op is Op.RANGE)
    last = next(k for k, u in enumerate(instructions) if u.op is Op.END and loops[0] in u.src[1:])
    if instructions[first] is not loops[0] or len(instructions[last].src) != 2:
        return None
    outside = (*instructions[:first], *instructions[last + 1 :])
    return None if {u.op for u in outside} & _EFFECTS else loops[0]


def in_order(loops: Iterable[UOp]) -> list[UOp]:
    """As they nest: by the priority of their type, then by id (R95)."""
    return sorted(loops, key=lambda r: (r.arg.type.priority, int(r.arg.axis_id)))


def instructions_run(instructions: Iterable[UOp]) -> int:
    """About how many instructions a call of a LINEAR kernel runs: every loop as often as it may, ifs always."""
    total, times, opened = 0, 1, []
    for u in instructions:
        if u.op is Op.RANGE:
            opened.append(times)
            times *= _greatest(u)
        elif u.op is Op.END:
            for _ in u.src[1:]:
                times = opened.pop() if opened else 1
        else:
            total += times
    return total


def _greatest(r: UOp) -> int:
    bound = r.src[0]
    bounds = bound.min_max
    return max(0, int(bounds[1])) if bounds is not None and bounds[1] < 1 << 40 else 1
