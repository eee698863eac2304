"""Extents of loops and shapes: constant, symbolic, and the greatest value of a symbolic one. Spec: Range; R48 (symbolic sizes)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from uops.compiler.place import untranslatable_error
from uops.spec.ir.node import Dim, UOp
from uops.spec.ir.ops import Op


def loop_extent(r: UOp) -> Dim:
    """Return the trip count of a Range; of a symbolic one the node of its bound."""
    bound = r.src[0]  # bound
    return int(bound.arg.value) if bound.op is Op.CONST else bound


def may_be_zero_trip(r: UOp) -> bool:
    """Return True if a loop may run no iteration."""
    bounds = r.src[0].min_max  # bound
    return bounds is None or bounds[0] < 1


def constant_extent(r: UOp) -> int:
    """Return the trip count of a Range whose bound is a constant."""
    return int(r.src[0].arg.value)  # bound


def max_extent(d: Dim) -> int:
    """Return a dimension, or the greatest value of a symbolic one. Raises CompileError for one without an upper bound."""
    if not isinstance(d, UOp):
        return int(d)
    bounds = d.min_max
    if bounds is None or math.isinf(bounds[1]):
        raise untranslatable_error("R48 (symbolic sizes)", d, f"an extent needs an upper bound, got {bounds}")
    return max(0, int(bounds[1]))


def finite_bounds(u: UOp) -> tuple[int, int] | None:
    """Return the bounds of an integer node, or None unless min_max has two: those of a float cast to index may be infinite."""
    bounds = u.min_max
    if bounds is None or bounds[0] == -math.inf or bounds[1] == math.inf:
        return None
    return int(bounds[0]), int(bounds[1])


def max_elements(shape: Iterable[Dim]) -> int:
    """Return the greatest number of elements of a value of this shape."""
    return math.prod(map(max_extent, shape))
