"""Tracing of an axis through a whole program, from outputs to inputs.

A permutation of the inputs along such an axis permutes the output alike and changes nothing else. Takes: values of a TENSOR
program, and an axis of theirs of at least two elements. Gives: the axis of each input along which it must be permuted. The
result is None if some op works across the axis, or if an input would have to be permuted in two ways at once. Spec: the rows of
Movement, Reduce and Elementwise; R41 (broadcast), R46 (Bitcast).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from uops.spec.ir.node import UOp
from uops.spec.ir.ops import MARKERS, MEMORY_ROOTS, Op
from uops.spec.verify.dialects import ELEMENTWISE

#: The sources of a node with the axes along which they must be permuted, None for a source that must not be.
SourceAxes = list[tuple[UOp, int | None]]


def trace_output_axis_to_input_axes(values: Iterable[UOp], axis: int) -> dict[UOp, int] | None:
    """Return the Params and Buffers that must be permuted, with their axes; None if there are none, or if the axis cannot
    be traced.
    """
    seen: dict[UOp, int | None] = {}
    worklist: list[tuple[UOp, int | None]] = [(u, axis) for u in values]
    while worklist:
        u, k = worklist.pop()
        if u.op is Op.CONST:
            continue
        if u in seen:
            if seen[u] != k:
                return None
            continue
        seen[u] = k
        if u.op in MEMORY_ROOTS:
            continue
        sources = [(s, None) for s in u.src] if k is None else _trace_axis_to_sources(u, k)
        if sources is None:
            return None
        worklist += sources
    return {u: k for u, k in seen.items() if u.op in MEMORY_ROOTS and k is not None} or None


def _trace_axis_to_sources(u: UOp, axis: int) -> SourceAxes | None:
    """Return the sources that must be permuted so that `u` is permuted along axis `axis`; None if no permutation of sources
    does it.
    """
    through = THROUGH.get(u.op)
    return None if through is None else through(u, axis)


def _trace_axis_through_elementwise(u: UOp, axis: int) -> SourceAxes | None:
    """Trace an axis to operands that broadcast (R41): each has the axis, or one element for all of it."""
    sources: SourceAxes = []
    for source in u.src:
        source_axis = axis - (len(u.shape) - len(source.shape))
        extent = 1 if source_axis < 0 else source.shape[source_axis]
        sources.append((source, None if extent == 1 else source_axis))
    return sources


def _trace_axis_through_bitcast(u: UOp, k: int) -> SourceAxes | None:
    """Trace an axis through a Bitcast. Another item size scales the last axis (R46), which is then not traced."""
    same_size = u.operand.dtype.itemsize == u.dtype.itemsize
    return [(u.operand, k)] if same_size or k < len(u.shape) - 1 else None


def _trace_axis_through_reduce(u: UOp, k: int) -> SourceAxes | None:
    return [(u.operand, k)] if not u.ranges and k not in u.arg.axes else None


def _trace_axis_through_permute(u: UOp, k: int) -> SourceAxes | None:
    return [(u.operand, int(u.arg.order[k]))]


def _trace_axis_through_reshape(u: UOp, axis: int) -> SourceAxes | None:
    """Trace an axis to one of the same extent that has as many elements before it."""
    before, after = u.operand.shape, u.shape
    if not all(isinstance(n, int) and n > 0 for n in (*before, *after)):
        return None
    outer = math.prod(after[:axis])
    source_axis = next((j for j, n in enumerate(before) if n == after[axis] and math.prod(before[:j]) == outer), None)
    return None if source_axis is None else [(u.operand, source_axis)]


def _trace_axis_through_resize(u: UOp, k: int) -> SourceAxes | None:
    """Trace an axis whose extent a Pad or Shrink leaves as it is."""
    return [(u.operand, k)] if u.operand.shape[k] == u.shape[k] else None


def _trace_axis_through_flip(u: UOp, k: int) -> SourceAxes | None:
    return None if u.arg.flags[k] else [(u.operand, k)]


def _trace_axis_through_expand(u: UOp, k: int) -> SourceAxes | None:
    """Trace an axis to the operand; an axis of one element there needs no permutation."""
    extent = u.operand.shape[k]
    return [(u.operand, None if extent == 1 else k)] if extent in (1, u.shape[k]) else None


#: Op -> the function that traces an axis through it.
THROUGH: dict[Op, Callable[[UOp, int], SourceAxes | None]] = {
    **dict.fromkeys(ELEMENTWISE | MARKERS, _trace_axis_through_elementwise),
    Op.PERMUTE: _trace_axis_through_permute,
    Op.FLIP: _trace_axis_through_flip,
    Op.RESHAPE: _trace_axis_through_reshape,
    Op.EXPAND: _trace_axis_through_expand,
    Op.PAD: _trace_axis_through_resize,
    Op.SHRINK: _trace_axis_through_resize,
    Op.BITCAST: _trace_axis_through_bitcast,
    Op.REDUCE: _trace_axis_through_reduce,
}
#: Ops of the TENSOR dialect through which no axis is traced, since they may change the order of elements: they choose or join
#: elements (Index, Stack, Slice), move them between devices (Load, Replicated), or concern memory and bodies.
ACROSS = frozenset(
    {Op.BINARY, Op.INDEX, Op.STACK, Op.SLICE, Op.REPLICATED, Op.LOAD, Op.STORE, Op.AFTER, Op.GROUP, Op.SINK}
    | {Op.FUNCTION, Op.CALL, Op.TUPLE, Op.GETTUPLE}
)
