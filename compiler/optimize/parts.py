"""The parts of a joined kernel, each scheduled as a kernel of its own.

A joined kernel (`passes.joined`) fills LOCAL memory in loops around which stand the loops that its parts have in common. To the one
who chooses schedules, each part is a kernel with an effect and output loops of its own, in which the common loops are just open;
what it reads of other parts is plain memory. Afterwards the parts are put together again: loops with numbers that no other part
has, and every read of LOCAL memory after the loops that fill it (R59).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from uops.compiler.log import note
from uops.compiler.loops import in_order
from uops.compiler.optimize.schedule import Schedule, replace_ranges
from uops.spec import build as B
from uops.spec.args import AddrSpace
from uops.spec.node import UOp, substitute, toposort
from uops.spec.ops import Op
from uops.spec.scope import closed_by, open_ranges


def scheduled_parts(s: Schedule, choose: Callable[[Schedule], Schedule]) -> Schedule:
    """`choose` of the kernel, or of each of its parts."""
    order = toposort(s.effect)
    filled = [u for u in order if u.op is Op.AFTER and u.src[0].op is Op.BUFFER and u.src[0].arg.addrspace is AddrSpace.LOCAL]
    if not filled:
        return choose(s)
    needs = open_ranges(order)
    common = [r for r in s.outputs if all(r in needs[u.src[1]] for u in filled)]
    alone = {u: u.src[0] for u in filled}
    axis, ready = len(common), dict[UOp, UOp]()
    for u in filled:
        effect, loops = _opened(u.src[1])
        own = choose(Schedule(s.name, substitute(effect, alone), loops))
        own = _numbered(own, common, axis)
        axis += len(own.ranges)
        ready[u.src[0]] = B.after(u.src[0], B.nested(substitute(own.effect, ready), in_order(own.outputs)))
    last = choose(Schedule(s.name, substitute(s.effect, alone), tuple(r for r in s.outputs if r not in common)))
    last = _numbered(last, common, axis)
    effect = substitute(last.effect, ready)
    note("parts", s.effect, effect)
    return Schedule(s.name, effect, (*common, *last.outputs))


def _opened(end: UOp) -> tuple[UOp, tuple[UOp, ...]]:
    """The Store inside of loops, and the loops, outermost first."""
    loops: list[UOp] = []
    while end.op is Op.END:
        loops += closed_by(end)
        end = end.src[0]
    return end, tuple(loops)


def _numbered(s: Schedule, common: Sequence[UOp], axis: int) -> Schedule:
    """The schedule with its loops numbered from `axis` on, in the order that they have."""
    ranges = sorted({u for u in toposort(s.effect, *s.outputs) if u.op is Op.RANGE} - {*common}, key=lambda r: int(r.arg.axis_id))
    new = {r: r.replace(arg=replace(r.arg, axis_id=axis + k)) for k, r in enumerate(ranges)}
    effect = replace_ranges(s.effect, {r: (n, (n,)) for r, n in new.items()})
    return replace(s, effect=effect, outputs=tuple(new[r] for r in s.outputs))
