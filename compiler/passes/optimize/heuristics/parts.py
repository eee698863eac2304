"""Scheduling of fused kernels: each part by itself.

A fused kernel (`block_fusion`) fills LOCAL memory inside the loops that its parts share. The scheduler sees each part as a kernel
with an effect and output loops of its own. The shared loops are open in it, and LOCAL memory of other parts is ordinary memory.
Afterwards the parts are joined again, with distinct axis ids, and every Load from LOCAL memory comes after the loops that fill it
(R59: After).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from uops.compiler.ir.loops import sort_by_nesting, unwrap_nested_ends
from uops.compiler.log import log_one_graphs_part_in_fusion, log_transform
from uops.compiler.passes.optimize.schedule.schedule import Schedule, replace_ranges
from uops.spec.ir import build as B
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp, nodes_with_op, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import open_ranges


def schedule_kernel_or_fused_parts(s: Schedule, scheduler: Callable[[Schedule], Schedule]) -> Schedule:
    """Apply a scheduler to a kernel, or to each part of a fused kernel."""
    afters = nodes_with_op(s.effect, Op.AFTER)
    filled = [u for u in afters if u.buffer.op is Op.BUFFER and u.buffer.arg.addrspace is AddrSpace.LOCAL]
    if not filled:
        return scheduler(s)
    needs = open_ranges(toposort(s.effect))
    common = [r for r in s.outputs if all(r in needs[u.dependencies[0]] for u in filled)]
    unordered = {u: u.buffer for u in filled}
    axis, ready, parts = len(common), dict[UOp, UOp](), list[tuple[UOp, dict[UOp, UOp], UOp, UOp]]()

    def schedule_part(effect: UOp, loops: Sequence[UOp]) -> Schedule:
        start = substitute(effect, unordered)
        log_transform("parts", s.effect, start, unordered)
        part = Schedule(s.name, start, tuple(loops), initialized_sizes=s.initialized_sizes, shared=tuple(common))
        return _renumber_unshared_loops(scheduler(part), common, axis)

    for u in filled:
        part = schedule_part(*unwrap_nested_ends(u.dependencies[0]))
        axis += len(part.ranges)
        inner = substitute(part.effect, ready)
        outer = B.after(u.buffer, B.wrap_in_one_end_per_loop(inner, sort_by_nesting(part.outputs)))
        parts.append((part.effect, dict(ready), inner, outer))
        ready[u.buffer] = outer
    last = schedule_part(s.effect, [r for r in s.outputs if r not in common])
    effect = substitute(last.effect, ready)
    for before, replacements, inner, outer in (*parts, (last.effect, ready, effect, effect)):
        log_one_graphs_part_in_fusion("parts", before, effect, replacements, inner, outer)
    return Schedule(s.name, effect, (*common, *last.outputs), initialized_sizes=s.initialized_sizes)


def _renumber_unshared_loops(s: Schedule, shared_loops: Sequence[UOp], first_axis_id: int) -> Schedule:
    """Number all loops but `shared_loops` from `first_axis_id` on. Their order stays."""
    ranges = sorted(
        {u for u in toposort(s.effect, *s.outputs) if u.op is Op.RANGE} - {*shared_loops}, key=lambda r: int(r.arg.axis_id)
    )
    new = {r: r.replace(arg=replace(r.arg, axis_id=first_axis_id + k)) for k, r in enumerate(ranges)}
    effect = replace_ranges(s.effect, {r: (n, (n,)) for r, n in new.items()})
    return replace(s, effect=effect, outputs=tuple(new[r] for r in s.outputs))
