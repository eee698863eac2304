"""Lanes of loops whose extents only a call knows.

A loop of n iterations is padded to whole vectors (Padto), of which the last one has masks: its accesses are gated, and a Reduce
takes its identity there (R92). That needs a machine on which an access to some lanes of a vector is one instruction. Spec: OptOps;
R48, R90, R92.
"""

from __future__ import annotations

from uops.compiler.passes.optimize.schedule.moves import Facts, number_of, split_lanes, then
from uops.compiler.passes.optimize.schedule.optops import apply
from uops.compiler.passes.optimize.schedule.schedule import Schedule
from uops.compiler.target import Machine
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import closed_by
from uops.spec.optops import Padto, Split


def vectorised(s: Schedule, machine: Machine) -> Schedule:
    """The schedule with lanes along memory: of an output loop, and of Reduces that do not change with it."""
    if not machine.masks:
        return s
    f = Facts(s)
    lanes = max(1, machine.vector_bytes // f.itemsize)
    along = (r for r in s.outputs if f.store.stride(r) == 1 and r not in f.held)
    lane = next((r for r in along if f.gather_cost(r, f.loads) <= len(f.loads)), None)
    if lane is not None:
        s = _lanes(s, lane, lanes, AxisType.UPCAST)
    around = set[UOp]()  # of Reduces in lanes
    for u in f.reduces:
        r = closed_by(u)[-1]
        if f.walks(u) and r not in around and (lane is None or lane not in f.needs[u.src[0]]):
            s = _lanes(s, r, lanes, AxisType.UNROLL)
            around |= f.needs[u]
    return s


def _lanes(s: Schedule, r: UOp, lanes: int, target: AxisType) -> Schedule:
    if r.src[0].op is Op.CONST:
        return split_lanes(s, r, lanes, 1, target)
    s, r = then(s, r, Padto(number_of(s, r), lanes))
    return apply(s, Split(number_of(s, r), lanes, target))
