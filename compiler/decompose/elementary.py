"""Exp2, Log2, Sin and Pow of float32 and float64: which graph replaces which node."""

from __future__ import annotations

import math
from collections.abc import Callable

from uops.compiler.decompose.build import E
from uops.compiler.decompose.exp2 import exp2
from uops.compiler.decompose.log2 import log2
from uops.compiler.decompose.pow import pow_
from uops.compiler.decompose.sin import sin
from uops.spec import dtypes as dt
from uops.spec.node import UOp
from uops.spec.ops import Op


def _bound(x: UOp) -> float:
    """A limit of |x| for every x that is not NaN."""
    interval = x.min_max
    return math.inf if interval is None else max(-float(interval[0]), float(interval[1]))


#: op -> the graph of its primitive ops.
WIDE_RULES: dict[Op, Callable[[UOp], E]] = {
    Op.EXP2: lambda u: exp2(E.of(u.src[0])),
    Op.LOG2: lambda u: log2(E.of(u.src[0])),
    Op.SIN: lambda u: sin(E.of(u.src[0]), _bound(u.src[0])),
    Op.POW: lambda u: pow_(E.of(u.src[0]), E.of(u.src[1])),
}


def decompose_wide(u: UOp) -> UOp:
    """`u` as a graph of primitive ops if it is one of `WIDE_RULES` in float32 or float64, else `u` itself."""
    rule = WIDE_RULES.get(u.op)
    return rule(u).u if rule and u.src[0].dtype in (dt.float32, dt.float64) else u
