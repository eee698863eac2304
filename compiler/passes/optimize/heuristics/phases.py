"""Products whose operands are read at quotients of an output loop, as the gradient of a convolution with a stride is.

Such a loop is split by the divisor: the address is then a step per iteration of the outer part, and the gate of the remainder
depends on the inner part and the loops of the Reduce alone. The inner iterations are the *phases* of the stride. Spec: Kernel
Optimizations (OptOps), Split.
"""

from __future__ import annotations

import math
from dataclasses import replace

from uops.compiler.ir.affine import extract_affine_sum
from uops.compiler.ir.extents import constant_extent
from uops.compiler.passes.optimize.schedule.moves import VectorizationFacts, axis_number
from uops.compiler.passes.optimize.schedule.optops import apply
from uops.compiler.passes.optimize.schedule.schedule import Schedule
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import DIVISION, Op
from uops.spec.optops import Split

#: Most phases of a loop: the strides of convolutions are small.
MOST_PHASES = 8


def split_output_loops_into_phases(s: Schedule) -> Schedule:
    """Split each output loop of a product by the divisor of the addresses that depend on it, if that divides its extent."""
    f = VectorizationFacts(s)
    if not any(len(f.direct_loads(u)) > 1 for u in f.reduces):
        return s
    before = s
    for r in s.outputs:
        phases = _count_phases(f, r)
        if 1 < phases <= MOST_PHASES and constant_extent(r) % phases == 0 and r not in f.unvectorizable:
            s = apply(s, Split(axis_number(s, r), phases, AxisType.LOOP))
    return s if s is before else replace(s, effect=Rewriter(INDEXING)(s.effect))


def _count_phases(f: VectorizationFacts, loop: UOp) -> int:
    """Return the least factor by which a loop advances each index that is divided by whole numbers; 1 if none is divided."""
    phases = 1
    for u in f.order:
        if u.op in DIVISION and u.dtype is dt.index and u.rhs.op is Op.CONST and u.rhs.arg.value > 0:
            step = extract_affine_sum(u.lhs).terms.get(loop, 0)
            phases = math.lcm(phases, u.rhs.arg.value // math.gcd(step, u.rhs.arg.value) if step else 1)
    return phases
