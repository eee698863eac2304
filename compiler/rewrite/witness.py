"""Witnesses whose value needs no proof: the constant folder computes it.

A prover may assume of an `EvaluationWitness`, and of no other witness, that its `k` is the value of a pattern. The class is
therefore final: `accepts` may withhold a value, and cannot change it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import final

from uops.compiler.rewrite.fold import fold_constant
from uops.compiler.rewrite.pattern import Binding, Pattern, instantiate
from uops.spec.ir.args import ConstArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass as record


@final
@record(frozen=True, slots=True)
class EvaluationWitness:
    """A witness that proposes `k`, the value of the pattern `evaluates` under a binding of its constants.

    It proposes nothing where the folder gives none, for a NaN, and where `accepts` refuses the constant.
    """

    evaluates: Pattern
    accepts: Callable[[UOp], bool] | None = None

    def __call__(self, binding: Binding) -> dict[str, UOp] | None:
        node = instantiate(self.evaluates, binding)
        proposed = propose_constant_unless_nan(fold_constant(node), node.dtype)
        return proposed if proposed is None or self.accepts is None or self.accepts(proposed["k"]) else None


def propose_constant_unless_nan(value: bool | int | float | None, d: DType) -> dict[str, UOp] | None:
    """Return the witness `k` for a folded value; None for a NaN, since a constant would fix its sign and payload."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return {"k": UOp(Op.CONST, (), ConstArg(value, d))}
