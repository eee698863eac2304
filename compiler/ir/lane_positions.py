"""Positions in memory that holds some elements for each iteration of some loops. Spec: Index; R128 (private memory)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from uops.compiler.ir.extents import loop_extent, max_extent
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Dtype of the positions in the memory of all iterations.
POSITION = dt.int32


def count_iterations(loops: Iterable[UOp]) -> int:
    """Return the greatest number of iterations of nested loops. Raises CompileError for a bound without a maximum."""
    return math.prod(max_extent(loop_extent(r)) for r in loops)


def number_iteration(counters: Iterable[tuple[UOp, UOp]], dtype: dt.DType = POSITION) -> UOp:
    """Return the number of an iteration of nested loops, which are given outermost first, each with the value of its counter."""
    number: UOp = B.const(0, dtype)
    for r, value in counters:
        counter = cast_to(value, dtype)
        extent = B.const(max_extent(loop_extent(r)), dtype)
        number = counter if number.op is Op.CONST else B.add(B.mul(number, extent), counter)
    return number


def offset_position(number: UOp, size: int, position: UOp) -> UOp:
    """Return a position, or a vector of them, among the elements of an iteration, of which each has `size`."""
    d = position.dtype if position.dtype is dt.int64 else number.dtype
    first = number if size == 1 else B.mul(number, B.const(size, number.dtype))
    first, position = cast_to(first, d), cast_to(position, d)
    if position.op is Op.CONST and position.const == 0:
        return first
    return B.add(B.stack(*[first] * math.prod(position.shape)) if position.shape else first, position)


def cast_to(x: UOp, dtype: dt.DType) -> UOp:
    """Return a value in a dtype, cast unless it has it."""
    return x if x.dtype is dtype else B.cast(x, dtype)
