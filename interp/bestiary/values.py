"""Values: constants, elementwise ops, movement, vectors and lanes, reductions of axes, and what only renames."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from uops.interp.bestiary import memory
from uops.interp.bestiary.frame import Cell, Frame
from uops.interp.bestiary.lanes import Run
from uops.interp.bestiary.machine import Machine, Step
from uops.interp.bestiary.memory import Pointers, Ref
from uops.interp.ops import integers
from uops.interp.ops.elementwise import KERNELS, Row, kernel_of
from uops.interp.ops.movement import MOVES, operand_sources
from uops.interp.ops.reduce import FOLDS
from uops.interp.ops.rounding import CASTS
from uops.interp.tensor.storage import NUMPY, SMALL, Array, constant, settle, variable
from uops.spec.bestiary.tables import EXPANDABLE
from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

f32 = np.float32

# -------------------------------------------------------------------------------------------------------------- elementwise


def _least(d: DType) -> Any:
    """The lesser; NaN if either is (R11, R102)."""
    if d in SMALL:
        return lambda a, b: np.asarray(np.minimum(a.astype(f32), b.astype(f32))).astype(NUMPY[d])
    return integers.unwidened(np.minimum) if d is dt.index else np.minimum


MINIMUM: Row = {d: _least(d) for d in (*dt.STORABLE, dt.index)}
_ROWS: dict[Op, Row] = {**KERNELS, Op.MIN: MINIMUM}


def elementwise(s: Step) -> Any:
    u = s.node
    row = _ROWS[u.op]
    if u.src[0].dtype not in row:
        raise SpecError(f"{u.op.name} is not defined on {u.src[0].dtype} (R09, R10)")
    kernel = kernel_of(u.op, u.src) if u.op in KERNELS else row[u.src[0].dtype]
    return kernel(*s.values(u.src))


def cast(s: Step) -> Any:
    return CASTS[s.node.src[0].dtype, s.node.arg.dtype](s.value(s.node.src[0]))


def const(s: Step) -> Any:
    return constant(s.node.arg.value, s.node.arg.dtype)


def special(s: Step) -> Any:
    return np.asarray(s.frame.lane.position[s.node.arg.name]).astype(NUMPY[s.node.dtype])


def define_var(s: Step) -> Any:
    """A named input within its bounds, or what it is bound to (R48, R112)."""
    u, m = s.node, s.machine
    bounds = u.arg.min_val, u.arg.max_val
    if u in m.bound:
        return variable(u.arg.name, s.value(m.bound[u]), bounds, u.dtype)
    if u.arg.name not in m.inputs:
        raise SpecError(f"variable {u.arg.name!r} is missing from the inputs")
    return variable(u.arg.name, m.inputs[u.arg.name], bounds, u.dtype)


def first(s: Step) -> Any:
    """The value of the first source: markers, Precast, Bind, Multi, Copy."""
    return s.value(s.node.src[0])


def program_binary(s: Step) -> Any:
    return np.frombuffer(s.node.arg.data, np.uint8)


# ----------------------------------------------------------------------------------------------------------------- movement


def move(s: Step) -> Any:
    """A view of a reference stays a reference, where it is injective (R51)."""
    u = s.node
    more = s.values(operand_sources(u)[1:]) if u.op in (Op.RESHAPE, Op.EXPAND) else []
    return _moved(s, lambda x: MOVES[u.op](u, x, more), lambda r: memory.view(u, r, more))


def shrink(s: Step) -> Any:
    window = tuple(slice(b, e) for b, e in zip(s.node.arg.begins, s.node.arg.ends))
    return _moved(s, lambda x: x[window], lambda r: r.moved(r.places[window]))


def buffer_view(s: Step) -> Any:
    a = s.node.arg
    return _moved(s, lambda x: x[a.offset : a.offset + a.size], lambda r: r.moved(r.places[a.offset : a.offset + a.size]))


def _moved(s: Step, of_value: Any, of_ref: Any) -> Any:
    source = s.node.src[0]
    cell = s.cell(source)
    if isinstance(cell.value, Ref):
        ref = of_ref(cell.value)
        if ref is not None:
            return ref
    return of_value(s.value(source))


def pad(s: Step) -> Any:
    """The fill is zero (R43)."""
    a, x = s.node.arg, s.value(s.node.src[0])
    out = np.zeros([b + n + e for b, n, e in zip(a.begin, x.shape, a.end)], x.dtype)
    out[tuple(slice(b, b + n) for b, n in zip(a.begin, x.shape))] = x
    return out


def stack(s: Step) -> Any:
    """What a shape operand spells (R40)."""
    return joined(s.node.dtype, s.values(s.node.src)) if s.node.src else np.zeros(0, np.int64)


# ------------------------------------------------------------------------------------------------------------------ vectors


def joined(d: DType, parts: Iterable[Array]) -> Array:
    """Arrays of one shape, as the elements of a new first axis."""
    arrays = list(parts)
    if d is dt.index:
        return settle(np.stack([a.astype(object) for a in arrays]))
    return np.stack(arrays)


def vectorize(s: Step) -> Any:
    return joined(s.node.dtype, s.values(s.node.src))


def vconst(s: Step) -> Any:
    return joined(s.node.dtype, (constant(c.value, c.dtype) for c in s.node.arg.values))


def gep(s: Step) -> Any:
    picked = s.node.arg.indices
    return s.value(s.node.src[0])[picked[0] if len(picked) == 1 else list(picked)]


def cat(s: Step) -> Any:
    found = [np.atleast_1d(x) for x in s.values(s.node.src)]
    return settle(np.concatenate([x.astype(object) for x in found])) if s.node.dtype is dt.index else np.concatenate(found)


def ptrcat(s: Step) -> Any:
    parts: list[Ref] = []
    for u in s.node.src:
        cell = s.cell(u)
        parts += cell.value.parts if isinstance(cell.value, Pointers) else [s.reference(u)]
    return Pointers(tuple(parts))


def unroll_needs(m: Machine, frame: Frame, u: UOp) -> Iterable[tuple[Frame, UOp]]:
    """All that the lanes share; a vector is only named."""
    plan = frame.scope.plan
    ranges = plan.unrolled(u)
    if u.src[0].shape:
        return [(frame, u.src[0])]
    return [(frame, s) for s in plan.levels(u.src, ranges)[0].invariant] if ranges else [(frame, u.src[0])]


def unroll(s: Step) -> Run:
    """R111: a scalar is computed once per lane, with the lane's values for the Ranges of the axes."""
    u, t = s.node, s.node.src[0]
    if t.shape:
        return s.value(t)
    ranges = s.frame.scope.plan.unrolled(u)
    values = []
    for position in itertools.product(*(range(n) for _, n in u.arg.axes)):
        at = dict(zip((a for a, _ in u.arg.axes), position))
        frame = s.frame
        for r in ranges:
            frame = frame.lane_of(r, at[r.arg.axis_id])
        yield from s.machine.evaluate(frame, t)
        values.append(s.value(t, frame))
    return joined(u.dtype, values)


def contract(s: Step) -> Any:
    """R106, R111: a scalar is repeated; lanes are put into this node's order of axes."""
    u, axes = s.node, s.node.arg.axes
    x = s.value(u.src[0])
    if not x.ndim:
        return np.broadcast_to(x, (math.prod(n for _, n in axes),)).copy()
    below = lane_axes(u.src[0])
    if below is None:
        return x
    grid = x.reshape([n for _, n in below])
    return grid.transpose([below.index(a) for a in axes]).reshape(-1)


def lane_axes(u: UOp) -> tuple[tuple[int, int], ...] | None:
    """The axes that the lanes of a vector run through: those of the first UNROLL that spreads to it."""
    pending, seen = [u], set()
    while pending:
        x = pending.pop()
        if x.op is Op.UNROLL:
            axes: tuple[tuple[int, int], ...] = x.arg.axes
            return axes
        if x not in seen and x.op in EXPANDABLE:
            seen.add(x)
            pending += reversed([v for v in x.src if v.shape])
    return None


# --------------------------------------------------------------------------------------------------------------- reductions


def folded(op: Op, d: DType, x: Array, axes: tuple[int, ...]) -> Any:
    """R32: the elements along `axes` combined, which become 1. Min is the second document's own (R102)."""
    if op is not Op.MIN:
        return FOLDS[op][d](x, axes) if axes else x
    if d is dt.index:
        if 0 in [x.shape[a] for a in axes]:
            raise SpecError("Min over no index values has no identity (R85)")
        return settle(np.minimum.reduce(x.astype(object), axis=axes, keepdims=True))
    wide = x.astype(f32) if d in SMALL else x
    return np.minimum.reduce(wide, axis=axes, keepdims=True, initial=wide.dtype.type(d.max)).astype(NUMPY[d])


def reduce_axis(s: Step) -> Any:
    return folded(s.node.arg.op, s.node.dtype, s.value(s.node.src[0]), s.node.arg.axes)


def same_cell(s: Step, cell: Cell) -> Cell:
    """Another name for what a node has."""
    s.before |= cell.before
    return cell
