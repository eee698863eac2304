"""Longer loops without gates: added iterations read what the last one reads, and write nothing.

Padto gates every Load of an added iteration (R92), which costs a test per element where the loop is no lane of vectors. An output
loop needs that only of its Store: `clamped` lets the added iterations read the elements of the last real one, so that all addresses
are inside and what is computed of them is dropped. Spec: Kernel Optimizations (OptOps), Padto; R52, R92, R145.
"""

from __future__ import annotations

from dataclasses import replace

from uops.compiler.ir.affine import number
from uops.compiler.log import decided, note
from uops.compiler.passes.optimize.schedule.schedule import Schedule, both, replace_ranges
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.optops import Padto


def clamped(s: Schedule, r: UOp, multiple: int) -> tuple[Schedule, UOp]:
    """The schedule with the output loop `r`, of constant extent, up to a multiple of iterations, and the loop there."""
    n = int(r.src[0].arg.value)
    longer = UOp(Op.RANGE, (number(-(-n // multiple) * multiple),), r.arg)
    inside = UOp(Op.CMPLT, (longer, number(n)))
    last = {longer: UOp(Op.WHERE, (inside, longer, number(n - 1)))}
    effect = replace_ranges(s.effect, {r: (longer, (longer,))})
    done: dict[UOp, UOp] = {}
    for u in toposort(effect):
        src = tuple([done[x] for x in u.src])
        if u.op is Op.LOAD:
            done[u] = substitute(u, last)
        elif u is effect:
            done[u] = UOp(Op.STORE, (*src[:2], both(src[2] if len(src) > 2 else None, inside)))
        else:
            done[u] = u if src == u.src else u.replace(src=src)
    note("clamp", effect, done[effect], done)
    decided((f"clamp {r.arg.axis_id} to {multiple}",), s.effect, done[effect])
    axis = [x.arg.axis_id for x in s.ranges].index(r.arg.axis_id)
    outputs = tuple(longer if x is r else x for x in s.outputs)
    return replace(s, effect=done[effect], outputs=outputs, done=(*s.done, Padto(axis, multiple))), longer
