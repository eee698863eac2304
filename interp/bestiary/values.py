"""Values: constants, elementwise ops, movement, vectors and lanes, reductions of axes, and markers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from uops.interp.bestiary import memory
from uops.interp.bestiary.frame import BestiaryFrame
from uops.interp.bestiary.lanes import BestiaryCoroutine
from uops.interp.bestiary.machine import BestiaryMachine, EvalStep
from uops.interp.bestiary.memory import BestiaryRef, PointerVector
from uops.interp.ops import integers
from uops.interp.ops.elementwise import KERNELS, Row, kernel_of
from uops.interp.ops.movement import MOVES, data_and_symbolic_sources
from uops.interp.ops.reduce import FOLDS
from uops.interp.ops.rounding import CASTS
from uops.interp.tensor.storage import NUMPY, SMALL, Array, const_to_array, to_index_array, validate_variable
from uops.spec.bestiary.tables import EXPANDABLE
from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import TO_SHAPE, Op

f32 = np.float32

# -------------------------------------------------------------------------------------------------------------- elementwise


def _min_kernel_propagating_nan(dtype: DType) -> Any:
    """Return the kernel of Min on `dtype`; NaN if either operand is NaN (R11, R102)."""
    if dtype in SMALL:
        return lambda a, b: np.asarray(np.minimum(a.astype(f32), b.astype(f32))).astype(NUMPY[dtype])
    return integers.make_same_width_index_kernel(np.minimum) if dtype is dt.index else np.minimum


#: The kernels of Min, which KERNELS lacks.
MINIMUM: Row = {d: _min_kernel_propagating_nan(d) for d in (*dt.STORABLE, dt.index)}
_ROWS: dict[Op, Row] = {**KERNELS, Op.MIN: MINIMUM}


def eval_elementwise(step: EvalStep) -> Any:
    """Evaluate an elementwise op."""
    u = step.node
    row = _ROWS[u.op]
    d = u.src[0].dtype  # operand, lhs or condition
    if d not in row:
        raise SpecError(f"{u.op.name} is not defined on {d} (R09, R10)")
    kernel = kernel_of(u.op, u.src) if u.op in KERNELS else row[d]
    return kernel(*step.values_of(u.src))


def eval_cast(step: EvalStep) -> Any:
    """Convert the operand."""
    operand = step.node.operand
    return CASTS[operand.dtype, step.node.arg.dtype](step.value_of(operand))


def eval_const(step: EvalStep) -> Any:
    """Return the constant."""
    return const_to_array(step.node.arg.value, step.node.arg.dtype)


def eval_special(step: EvalStep) -> Any:
    """Return the index of this lane or workgroup."""
    return np.asarray(step.frame.lane.position[step.node.arg.name]).astype(NUMPY[step.node.dtype])


def eval_define_var(step: EvalStep) -> Any:
    """Return the value of a variable: a named input within its bounds, or what it is bound to (R48, R112)."""
    u, m = step.node, step.machine
    bounds = u.arg.min_val, u.arg.max_val
    if u in m.bound_values:
        return validate_variable(u.arg.name, step.value_of(m.bound_values[u]), bounds, u.dtype)
    if u.arg.name not in m.inputs:
        raise SpecError(f"variable {u.arg.name!r} is missing from the inputs")
    return validate_variable(u.arg.name, m.inputs[u.arg.name], bounds, u.dtype)


def eval_identity(step: EvalStep) -> Any:
    """Return the operand's value: markers, Precast, Multi, Copy."""
    return step.value_of(step.node.operand)


def eval_bind(step: EvalStep) -> Any:
    """Return the value of the variable, which is the one bound to it (R112)."""
    return step.value_of(step.node.variable)


def eval_program_binary(step: EvalStep) -> Any:
    """Return the bytes."""
    return np.frombuffer(step.node.arg.data, np.uint8)


# ----------------------------------------------------------------------------------------------------------------- movement


def eval_movement(step: EvalStep) -> Any:
    """Evaluate a movement op; an injective view of a reference stays a reference (R51)."""
    u = step.node
    extents = step.values_of(data_and_symbolic_sources(u)[1:]) if u.op in TO_SHAPE else []
    return _move_value_or_ref(step, lambda x: MOVES[u.op](u, x, extents), lambda r: memory.move_ref_if_view(u, r, extents))


def eval_shrink(step: EvalStep) -> Any:
    """Return the window between begins and ends."""
    window = tuple(slice(b, e) for b, e in zip(step.node.arg.begins, step.node.arg.ends))
    return _move_value_or_ref(step, lambda x: x[window], lambda r: r.with_positions(r.positions[window]))


def eval_buffer_view_as_element_window(step: EvalStep) -> Any:
    """Return the window of `size` elements at the offset."""
    a = step.node.arg
    window = slice(a.offset, a.offset + a.size)
    return _move_value_or_ref(step, lambda x: x[window], lambda r: r.with_positions(r.positions[window]))


def _move_value_or_ref(step: EvalStep, move_value: Any, move_ref: Any) -> Any:
    """Return the moved reference if the source is one and the result an injective view, else the moved value."""
    source = step.node.src[0]  # operand, of a BUFFER_VIEW buffer
    cell = step.depend_on_cell_of(source)
    if isinstance(cell.value, BestiaryRef):
        ref = move_ref(cell.value)
        if ref is not None:
            return ref
    return move_value(step.value_of(source))


def eval_pad(step: EvalStep) -> Any:
    """Place the operand in an array of zeros (R43)."""
    a, x = step.node.arg, step.value_of(step.node.operand)
    out = np.zeros([b + n + e for b, n, e in zip(a.begin, x.shape, a.end)], x.dtype)
    out[tuple(slice(b, b + n) for b, n in zip(a.begin, x.shape))] = x
    return out


def eval_stack(step: EvalStep) -> Any:
    """Return the elements of a shape operand (R40)."""
    elements = step.values_of(step.node.elements)
    return stack_arrays(step.node.dtype, elements) if elements else np.zeros(0, np.int64)


# ------------------------------------------------------------------------------------------------------------------ vectors


def stack_arrays(d: DType, parts: Iterable[Array]) -> Array:
    """Stack arrays of one shape along a new first axis."""
    arrays = list(parts)
    if d is dt.index:
        return to_index_array(np.stack([a.astype(object) for a in arrays]))
    return np.stack(arrays)


def eval_vectorize(step: EvalStep) -> Any:
    """Return the scalars as one vector."""
    return stack_arrays(step.node.dtype, step.values_of(step.node.elements))


def eval_vconst(step: EvalStep) -> Any:
    """Return the vector of constants."""
    return stack_arrays(step.node.dtype, (const_to_array(c.value, c.dtype) for c in step.node.arg.values))


def eval_gep(step: EvalStep) -> Any:
    """Return the picked lanes of a vector."""
    picked = step.node.arg.indices
    return step.value_of(step.node.operand)[picked[0] if len(picked) == 1 else list(picked)]


def eval_cat(step: EvalStep) -> Any:
    """Concatenate vectors."""
    vectors = [np.atleast_1d(x) for x in step.values_of(step.node.elements)]
    if step.node.dtype is dt.index:
        return to_index_array(np.concatenate([x.astype(object) for x in vectors]))
    return np.concatenate(vectors)


def eval_ptrcat(step: EvalStep) -> Any:
    """Collect addresses, which are accessed in this order (R117)."""
    parts: list[BestiaryRef] = []
    for u in step.node.elements:
        cell = step.depend_on_cell_of(u)
        parts += cell.value.parts if isinstance(cell.value, PointerVector) else [step.reference_of(u)]
    return PointerVector(tuple(parts))


def find_sources_shared_by_unrolled_lanes(m: BestiaryMachine, frame: BestiaryFrame, u: UOp) -> Iterable[tuple[BestiaryFrame, UOp]]:
    """Return what all lanes of an UNROLL share, or its operand if that is a vector already."""
    plan = frame.scope.plan
    ranges = plan.ranges_replaced_by_unroll(u)
    if u.operand.shape or not ranges:
        return [(frame, u.operand)]
    return [(frame, s) for s in plan.loop_levels(u.src, ranges)[0].invariant]


def eval_unroll(step: EvalStep) -> BestiaryCoroutine:
    """Return a vector with one lane per combination of values of the axes' Ranges; a scalar is computed once per lane (R111)."""
    u, operand = step.node, step.node.operand
    if operand.shape:
        return step.value_of(operand)
    ranges = step.frame.scope.plan.ranges_replaced_by_unroll(u)
    values = []
    for position in itertools.product(*(range(n) for _, n in u.arg.axes)):
        axis_values = dict(zip((a for a, _ in u.arg.axes), position))
        frame = step.frame
        for r in ranges:
            frame = frame.get_or_make_unrolled_lane_frame(r, axis_values[r.arg.axis_id])
        yield from step.machine.evaluate(frame, operand)
        values.append(step.value_of(operand, frame))
    return stack_arrays(u.dtype, values)


def eval_contract_by_reordering_lanes(step: EvalStep) -> Any:
    """Return the lanes in this node's order of axes; a scalar is repeated (R106, R111)."""
    u, axes = step.node, step.node.arg.axes
    x = step.value_of(u.operand)
    if not x.ndim:
        return np.broadcast_to(x, (math.prod(n for _, n in axes),)).copy()
    lane_axes = find_axes_of_vector_lanes(u.operand)
    if lane_axes is None:
        return x
    grid = x.reshape([n for _, n in lane_axes])
    return grid.transpose([lane_axes.index(a) for a in axes]).reshape(-1)


def find_axes_of_vector_lanes(u: UOp) -> tuple[tuple[int, int], ...] | None:
    """Return the axes that the lanes of a vector run through: those of the first UNROLL that spreads to it."""
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


def reduce_axes_to_size_one(op: Op, d: DType, x: Array, axes: tuple[int, ...]) -> Any:
    """Return the elements along `axes` combined, which become size 1 (R32); Min is the bestiary's own (R102)."""
    if op is not Op.MIN:
        return FOLDS[op][d](x, axes) if axes else x
    if d is dt.index:
        if 0 in [x.shape[a] for a in axes]:
            raise SpecError("Min of index has no identity: it must cover at least one element (R85)")
        return to_index_array(np.minimum.reduce(x.astype(object), axis=axes, keepdims=True))
    wide = x.astype(f32) if d in SMALL else x
    return np.minimum.reduce(wide, axis=axes, keepdims=True, initial=wide.dtype.type(d.max)).astype(NUMPY[d])


def eval_reduce_axis(step: EvalStep) -> Any:
    """Reduce over the axes."""
    return reduce_axes_to_size_one(step.node.arg.op, step.node.dtype, step.value_of(step.node.operand), step.node.arg.axes)
