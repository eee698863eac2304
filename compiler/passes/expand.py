"""Expand: UPCAST and UNROLL ranges become shape.

Takes: SCHEDULED. Gives: EXPANDED (no UPCAST or UNROLL range left). Spec: Lowering Pipeline/Expand; AxisType table.
"""

from __future__ import annotations

from uops.spec.axes import AxisType
from uops.spec.errors import CompileError
from uops.spec.node import UOp, toposort
from uops.spec.ops import Op

_EXPANDED = frozenset({AxisType.UPCAST, AxisType.UNROLL})


def expand(root: UOp) -> UOp:
    """`root`, whose schedule has no axis to expand yet; raises CompileError for one that has."""
    for u in toposort(root):
        if u.op is Op.RANGE and u.arg.type in _EXPANDED:
            raise CompileError(f"axis {u.arg.axis_id} is {u.arg.type.name}: vector axes are not lowered")
    return root
