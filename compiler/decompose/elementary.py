"""Exp2, Log2, Sin and Pow of float32 and float64: the graph that replaces each node."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from uops.compiler.decompose.build import Expr
from uops.compiler.decompose.exp2 import exp2
from uops.compiler.decompose.log2 import log2
from uops.compiler.decompose.narrow import WIDE
from uops.compiler.decompose.pow import pow_
from uops.compiler.decompose.sin import sin
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def _bound_finite_magnitude(x: UOp) -> float:
    """Return a bound of |x| for every finite x: of its interval, or of the small float that was cast to it."""
    interval = x.min_max
    bound = math.inf if interval is None else max(-float(interval[0]), float(interval[1]))
    dtype = x.operand.dtype if x.op is Op.CAST else x.dtype
    return min(bound, dtype.max_finite) if dtype.is_float else bound


#: op -> its graph of primitive ops, from lowered operands (float32 or float64) and the node's own sources, which give bounds
WIDE_RULES: dict[Op, Callable[[Sequence[Expr], Sequence[UOp]], Expr]] = {
    Op.EXP2: lambda x, _: exp2(x[0]),
    Op.LOG2: lambda x, _: log2(x[0]),
    Op.SIN: lambda x, src: sin(x[0], _bound_finite_magnitude(src[0])),
    Op.POW: lambda x, _: pow_(x[0], x[1]),
}


def is_elementary(u: UOp) -> bool:
    """Return True if `u` is one of `WIDE_RULES` in a wide float."""
    return u.op in WIDE_RULES and u.dtype in WIDE
