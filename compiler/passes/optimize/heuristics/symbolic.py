"""Vector lanes for loops of symbolic extent.

A loop of n iterations is padded to whole vectors (Padto), the last of which is masked: its accesses are gated, and a Reduce takes
its identity there (R92). This needs a machine on which a masked vector access is one instruction. Spec: OptOps; R48 (symbolic
sizes), R90 (Split), R92 (Padto).
"""

from __future__ import annotations

from uops.compiler.passes.optimize.schedule.moves import (
    VectorizationFacts,
    apply_and_find_changed_loop,
    axis_number,
    split_into_vectors_or_vectorize_whole,
)
from uops.compiler.passes.optimize.schedule.optops import apply
from uops.compiler.passes.optimize.schedule.schedule import Schedule
from uops.compiler.target import MachineModel
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import ranges_closed_by
from uops.spec.optops import Padto, Split


def vectorize_contiguous_loops_if_machine_masks(s: Schedule, machine: MachineModel) -> Schedule:
    """Turn contiguous loops into vector lanes: an output loop, and the loops of Reduces that do not depend on it."""
    if not machine.masks:
        return s
    f = VectorizationFacts(s)
    lanes = max(1, machine.vector_bytes // f.itemsize)
    contiguous = (r for r in s.outputs if f.store.stride(r) == 1 and r not in f.unvectorizable)
    lane = next((r for r in contiguous if f.gather_cost(r, f.loads) <= len(f.loads)), None)
    if lane is not None:
        s = _split_into_vectors_padding_if_symbolic(s, lane, lanes, AxisType.UPCAST)
    around = set[UOp]()  # loops around vectorized Reduces
    for u in f.reduces:
        r = ranges_closed_by(u)[-1]
        if f.can_vectorize_reduce_cheaply(u) and r not in around and (lane is None or lane not in f.enclosing_loops[u.operand]):
            s = _split_into_vectors_padding_if_symbolic(s, r, lanes, AxisType.UNROLL)
            around |= f.enclosing_loops[u]
    return s


def _split_into_vectors_padding_if_symbolic(s: Schedule, r: UOp, lanes: int, target: AxisType) -> Schedule:
    """Split a loop into vector lanes; one of symbolic extent is padded first."""
    if r.bound.op is Op.CONST:
        return split_into_vectors_or_vectorize_whole(s, r, lanes, 1, target)
    s, r = apply_and_find_changed_loop(s, r, Padto(axis_number(s, r), lanes))
    return apply(s, Split(axis_number(s, r), lanes, target))
