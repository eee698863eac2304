"""The parts of a joined kernel, each scheduled as a kernel of its own.

A joined kernel (`passes.joined`) fills LOCAL memory in loops around which stand the loops that its parts have in common. To the one
who chooses schedules, each part is a kernel with an effect and output loops of its own, in which the common loops are just open;
what it reads of other parts is plain memory. Afterwards the parts are put together again: loops with numbers that no other part
has, and every read of LOCAL memory after the loops that fill it (R59).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from uops.compiler.ir.loops import in_order
from uops.compiler.log import note, note_part
from uops.compiler.passes.optimize.schedule.schedule import Schedule, replace_ranges
from uops.spec.ir import build as B
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp, nodes_of, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import closed_by, open_ranges


def scheduled_parts(s: Schedule, choose: Callable[[Schedule], Schedule]) -> Schedule:
    """`choose` of the kernel, or of each of its parts."""
    filled = [u for u in nodes_of(s.effect, Op.AFTER) if u.src[0].op is Op.BUFFER and u.src[0].arg.addrspace is AddrSpace.LOCAL]
    if not filled:
        return choose(s)
    needs = open_ranges(toposort(s.effect))
    common = [r for r in s.outputs if all(r in needs[u.src[1]] for u in filled)]
    alone = {u: u.src[0] for u in filled}
    axis, ready, parts = len(common), dict[UOp, UOp](), list[tuple[UOp, dict[UOp, UOp], UOp, UOp]]()

    def own(effect: UOp, loops: Sequence[UOp]) -> Schedule:
        start = substitute(effect, alone)
        note("parts", s.effect, start, alone)
        return _numbered(choose(Schedule(s.name, start, tuple(loops), held=s.held)), common, axis)

    for u in filled:
        part = own(*_opened(u.src[1]))
        axis += len(part.ranges)
        inner = substitute(part.effect, ready)
        outer = B.after(u.src[0], B.nested(inner, in_order(part.outputs)))
        parts.append((part.effect, dict(ready), inner, outer))
        ready[u.src[0]] = outer
    last = own(s.effect, [r for r in s.outputs if r not in common])
    effect = substitute(last.effect, ready)
    for before, put, inner, outer in (*parts, (last.effect, ready, effect, effect)):
        note_part("parts", before, effect, put, inner, outer)
    return Schedule(s.name, effect, (*common, *last.outputs), held=s.held)


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
