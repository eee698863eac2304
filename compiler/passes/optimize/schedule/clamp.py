"""Padding of output loops without gated Loads: added iterations repeat the loads of the last one and store nothing.

Padto gates every Load of an added iteration (R92), which costs a test per element where the loop is no vector lane. An output loop
needs the gate only on its Store. `pad_loop_clamping_loads_and_gating_store` clamps the addresses of the Loads to the last real
iteration instead, so that all are in bounds and the values computed from them are dropped. Spec: Kernel Optimizations (OptOps),
Padto; R52 (Load), R92 (Padto), R145 (rows that Padto adds).
"""

from __future__ import annotations

from dataclasses import replace

from uops.compiler.ir.affine import index_constant
from uops.compiler.ir.extents import constant_extent
from uops.compiler.log import log_decisions, log_transform
from uops.compiler.passes.optimize.schedule.schedule import Schedule, combine_gates, replace_ranges
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.optops import Padto


def pad_loop_clamping_loads_and_gating_store(s: Schedule, r: UOp, multiple: int) -> tuple[Schedule, UOp]:
    """Round the constant extent of output loop `r` up to a multiple.

    Returns the schedule and the longer loop.
    """
    n = constant_extent(r)
    longer = UOp(Op.RANGE, (index_constant(-(-n // multiple) * multiple),), r.arg)
    inside = UOp(Op.CMPLT, (longer, index_constant(n)))
    clamped = {longer: UOp(Op.WHERE, (inside, longer, index_constant(n - 1)))}
    effect = replace_ranges(s.effect, {r: (longer, (longer,))})
    done: dict[UOp, UOp] = {}
    for u in toposort(effect):
        src = tuple([done[x] for x in u.src])
        if u.op is Op.LOAD:
            done[u] = substitute(u, clamped)
        elif u is effect:
            buffer, value, *gate = src
            done[u] = UOp(Op.STORE, (buffer, value, combine_gates(gate[0] if gate else None, inside)))
        else:
            done[u] = u if src == u.src else u.replace(src=src)
    log_transform("clamp", effect, done[effect], done)
    log_decisions((f"clamp {r.arg.axis_id} to {multiple}",), s.effect, done[effect])
    axis = [x.arg.axis_id for x in s.ranges].index(r.arg.axis_id)
    outputs = tuple(longer if x is r else x for x in s.outputs)
    return replace(s, effect=done[effect], outputs=outputs, done=(*s.done, Padto(axis, multiple))), longer
