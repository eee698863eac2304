"""Actions of ops on values that have axes: arrays with one axis per loop around them, then the node's own shape.

A value is an `AffineValue`, an array, or a reference to elements of a memory. The leading axes of an array are those around the
place where it was computed, each of size 1 where nothing varies; or there are none, where nothing varies at all. `ACTIONS[op]`
takes the machine, a node and the mask of the Ifs around it (None: no If), and gives the node's value. Ops mean what they mean
in a tensor graph, by the same tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from uops.interp.kernel.vector_machine.affine import INTEGERS, RULES, AffineValue, affine_constant, fits_dtype
from uops.interp.kernel.vector_machine.axes import align_to_loop_depth_and_own_rank
from uops.interp.kernel.vector_machine.limits import GiveUp, check_array_size, is_too_large
from uops.interp.kernel.vector_machine.machine import Action, VectorMachine, VectorValue
from uops.interp.kernel.vector_machine.memory import (
    ScatteredRef,
    StridedRef,
    VectorRef,
    expand_loop_axes,
    index_strided_if_affine_in_bounds,
    mark_outside,
    whole_memory_ref,
)
from uops.interp.ops.elementwise import KERNELS, kernel_of
from uops.interp.ops.movement import make_outer_index
from uops.interp.ops.reduce import FOLDS
from uops.interp.ops.rounding import CASTS
from uops.interp.tensor.storage import NUMPY, Array, const_to_array
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import MARKERS, RESHAPING, Op

_ndarray = np.ndarray


def static_shape_or_give_up(u: UOp) -> tuple[int, ...]:
    """Return the shape of `u`. Raises GiveUp if it is symbolic."""
    shape: tuple[int, ...] = u.shape
    if any(n.__class__ is not int for n in shape):
        raise GiveUp("a symbolic shape")
    return shape


# Values


def _eval_const(m: VectorMachine, u: UOp, active_mask: Array | None) -> VectorValue:
    d = u.arg.dtype
    return affine_constant(u.arg.value) if d in INTEGERS else const_to_array(u.arg.value, d)


def _eval_alu_as_affine_or_elementwise(m: VectorMachine, u: UOp, active_mask: Array | None) -> VectorValue:
    cells, src = m.cells, u.src
    rule = RULES.get(u.op)
    if rule is not None:
        operands = [cells[s] for s in src]
        if all(c.__class__ is AffineValue for c in operands):
            result = rule(operands, m.extents)
            if isinstance(result, bool):
                return np.array(result)
            if result is not None and fits_dtype(result, u.dtype):
                return result
    rank = len(u.shape)
    if is_too_large(m.volume):
        m.check_operand_sizes(src)
    return kernel_of(u.op, src)(*[m.align_value_to_own_rank(s, rank) for s in src])


def _eval_where_folding_uniform_condition(m: VectorMachine, u: UOp, active_mask: Array | None) -> VectorValue:
    """Evaluate Where; a condition that is the same everywhere chooses one of two values as it is.

    Raises GiveUp for a reference among the operands: its implicit Load may trap, chosen or not (R51).
    """
    condition, if_true, if_false = u.src
    p = m.cells[condition]
    if p.__class__ is _ndarray and not p.ndim and condition.dtype is dt.bool_ and if_true.shape == if_false.shape:
        cells = m.cells[if_true], m.cells[if_false]
        if all(c.__class__ is AffineValue or c.__class__ is _ndarray for c in cells):
            return cells[0 if p else 1]
    return _eval_alu_as_affine_or_elementwise(m, u, active_mask)


def _eval_cast(m: VectorMachine, u: UOp, active_mask: Array | None) -> VectorValue:
    operand, d = u.src[0], u.arg.dtype  # operand
    c = m.cells[operand]
    if c.__class__ is AffineValue and fits_dtype(c, d):
        return c
    return CASTS[operand.dtype, d](m.align_value_to_own_rank(operand, len(u.shape)))


def _eval_axis_reduce(m: VectorMachine, u: UOp, active_mask: Array | None) -> VectorValue:
    """Evaluate a Reduce over axes of the own shape."""
    own_rank = len(u.shape)
    x = m.align_value_to_own_rank(u.operand, own_rank)
    axes = tuple(a + x.ndim - own_rank for a in u.arg.axes)
    return FOLDS[u.arg.op][u.dtype](x, axes) if axes else x


def _eval_marker(m: VectorMachine, u: UOp, active_mask: Array | None) -> VectorValue:
    return m.cells[u.src[0]]  # operand


def _eval_after(m: VectorMachine, u: UOp, active_mask: Array | None) -> VectorValue:
    return m.cells[u.src[0]]  # buffer


def _eval_void(m: VectorMachine, u: UOp, active_mask: Array | None) -> VectorValue:
    return None


# Movement


def _static_extents_or_give_up(vector: UOp) -> tuple[int, ...]:
    """Return the integers of a shape operand. Raises GiveUp if it is symbolic."""
    sizes = vector.constants_of_stack
    if sizes is None:
        raise GiveUp("a symbolic shape")
    return sizes


def _own_axes_index(lead: int, slices: Sequence[slice]) -> tuple[slice, ...]:
    """Return an index of these slices of the own axes and all of the leading axes."""
    return (slice(None),) * lead + tuple(slices)


def _apply_movement_to_own_axes(u: UOp, x: Array, own_rank: int) -> Array:
    """Return a movement op of `x` on its own shape, the last `own_rank` axes."""
    lead = x.ndim - own_rank
    shape = static_shape_or_give_up(u)
    match u.op:
        case Op.RESHAPE:
            return x.reshape(x.shape[:lead] + shape)
        case Op.EXPAND:
            return np.broadcast_to(x, x.shape[:lead] + shape)
        case Op.PERMUTE:
            return x.transpose((*range(lead), *[lead + k for k in u.arg.order]))
        case Op.FLIP:
            return x[_own_axes_index(lead, [slice(None, None, -1 if f else None) for f in u.arg.flags])]
        case Op.SHRINK:
            return x[_own_axes_index(lead, [slice(o, o + n) for o, n in zip(_static_extents_or_give_up(u.offsets), shape)])]
        case Op.PAD:
            out: Array = np.zeros(x.shape[:lead] + shape, x.dtype)
            out[_own_axes_index(lead, [slice(o, o + n) for o, n in zip(_static_extents_or_give_up(u.offsets), x.shape[lead:])])] = x
            return out
    raise GiveUp(f"{u.op.name} is not vectorised")


def _eval_movement(m: VectorMachine, u: UOp, active_mask: Array | None) -> VectorValue:
    operand = u.src[0]  # operand
    c = m.cells[operand]
    if c.__class__ is StridedRef or c.__class__ is ScatteredRef:
        if u.op in (Op.EXPAND, Op.PAD):
            raise GiveUp("a reference that is used as a value")
        return _apply_movement_to_reference(m, u, c)
    own_rank = len(operand.shape)
    return _apply_movement_to_own_axes(u, m.align_value_to_own_rank(operand, own_rank), own_rank)


def _apply_movement_to_reference(m: VectorMachine, u: UOp, ref: VectorRef) -> VectorRef:
    """Return the view that a movement op makes of a reference."""
    shape = static_shape_or_give_up(u)
    if isinstance(ref, StridedRef):
        is_contiguous = ref.strides == whole_memory_ref(ref.home, ref.shape).strides
        if u.op is Op.RESHAPE and is_contiguous and math.prod(shape) == math.prod(ref.shape):
            return StridedRef(ref.home, ref.offset, shape, whole_memory_ref(ref.home, shape).strides)
        ref = ref.to_scattered(m.extents)
    at = _apply_movement_to_own_axes(u, ref.positions, len(ref.shape))
    if at.shape[at.ndim - len(shape) :] != shape:
        raise GiveUp("a movement to another shape than the derived one")
    return ScatteredRef(ref.home, at, shape)


def _eval_stack(m: VectorMachine, u: UOp, active_mask: Array | None) -> VectorValue:
    if not u.src:
        return np.zeros(0, np.int64)
    own_rank = len(u.shape) - 1
    values = np.broadcast_arrays(
        *[expand_loop_axes(m.align_value_to_own_rank(s, own_rank), own_rank, len(m.extents)) for s in u.src]
    )
    check_array_size(values[0].size * len(values))
    return np.stack(values, values[0].ndim - own_rank)


def _eval_bitcast_of_value(m: VectorMachine, u: UOp, active_mask: Array | None) -> VectorValue:
    operand, d = u.operand, u.arg.dtype
    x = m.align_value_to_own_rank(operand, len(operand.shape))  # gives up for a reference
    target = NUMPY[d]
    if d is dt.bool_ or operand.dtype is dt.index:
        raise GiveUp("a Bitcast to bool")
    if x.dtype.itemsize == target.itemsize:
        return x.view(target)
    lead = x.ndim - len(operand.shape)
    return np.ascontiguousarray(x).view(target).reshape(x.shape[:lead] + static_shape_or_give_up(u))


def _eval_index(m: VectorMachine, u: UOp, active_mask: Array | None) -> VectorValue:
    c = m.cells[u.src[0]]  # operand
    if c.__class__ is StridedRef:
        return _index_reference_deferring_bounds_check(m, u, c)
    if c.__class__ is ScatteredRef:
        raise GiveUp("an Index of gathered addresses")
    return _index_at_uniform_positions_or_give_up(m, u)


def _index_at_uniform_positions_or_give_up(m: VectorMachine, u: UOp) -> Array:
    """Return the elements of a value, at positions that are the same everywhere."""
    operand, *positions = u.src
    own_rank = len(operand.shape)
    x = m.align_value_to_own_rank(operand, own_rank)
    indices = [m.align_value_to_own_rank(s, len(s.shape)) for s in positions]
    lead = x.ndim - own_rank
    for k, (i, s) in enumerate(zip(indices, positions)):
        if i.ndim != len(s.shape) or ((i < 0) | (i >= x.shape[lead + k])).any():
            raise GiveUp("an Index of a value that varies, or is out of bounds")
    return np.asarray(x[(*(slice(None),) * lead, *make_outer_index(indices))])


def _index_reference_deferring_bounds_check(m: VectorMachine, u: UOp, ref: StridedRef) -> VectorRef:
    """Return the elements of a memory that an Index names; out of bounds is a fault only where they are accessed (R45)."""
    cells = m.cells
    strided = index_strided_if_affine_in_bounds(ref, [cells[s] for s in u.src[1:]], m.extents)  # positions
    return _index_reference_at_scattered_positions(m, u, ref) if strided is None else strided


def _index_reference_at_scattered_positions(m: VectorMachine, u: UOp, ref: StridedRef) -> ScatteredRef:
    """Return the elements of a memory at positions that are no affine values."""
    positions = u.positions
    k = len(positions)
    rest = StridedRef(ref.home, ref.offset, ref.shape[k:], ref.strides[k:]).to_scattered(m.extents)
    shape = static_shape_or_give_up(u)
    at = align_to_loop_depth_and_own_rank(rest.positions, len(rest.shape), len(shape), len(m.extents))
    out_of_bounds: Array = np.zeros((), bool)
    axes_before = 0
    for s, n, stride in zip(positions, ref.shape, ref.strides):
        own_rank = len(s.shape)
        i = m.align_value_to_own_rank(s, own_rank)
        if i.ndim == own_rank:
            i = i.reshape(i.shape + (1,) * (len(shape) - axes_before - own_rank))
        else:
            i = _align_index_axes(i, own_rank, axes_before, len(shape))
        axes_before += own_rank
        out_of_bounds = out_of_bounds | (i < 0) | (i >= n)
        at = at + i.astype(np.int64, copy=False) * stride
    if out_of_bounds.any():
        if m.is_value(ref.home):  # an Index of a value is a fault at once (R45)
            raise GiveUp("an Index of a value that is out of bounds")
        at = mark_outside(at, out_of_bounds)
    check_array_size(at.size)
    return ScatteredRef(ref.home, at, shape)


def _align_index_axes(indices: Array, own_rank: int, before: int, rank: int) -> Array:
    """Return index values with their own axes from `before` on among `rank`, behind the axes around them."""
    lead = indices.ndim - own_rank
    return indices.reshape(indices.shape[:lead] + (1,) * before + indices.shape[lead:] + (1,) * (rank - before - own_rank))


# Memory


def _eval_buffer(m: VectorMachine, u: UOp, active_mask: Array | None) -> VectorValue:
    return whole_memory_ref(u, static_shape_or_give_up(u))


def _access_mask(m: VectorMachine, gate: UOp | None, active_mask: Array | None, rank: int) -> Array | bool:
    """Return where an access happens; a bool where that is the same everywhere."""
    mask = None if active_mask is None else align_to_loop_depth_and_own_rank(active_mask, 0, rank, len(m.extents))
    if gate is not None:
        value = m.align_value_to_own_rank(gate, rank)
        mask = value if mask is None else np.logical_and(mask, value)
    if mask is None:
        return True
    return mask if mask.ndim else bool(mask)


def _eval_load(m: VectorMachine, u: UOp, active_mask: Array | None) -> VectorValue:
    """Load the elements; where the gate is false the result is the alternative's, and the address is not touched (R52)."""
    src = u.src
    ref = m.cells[src[0]]  # buffer
    is_strided = ref.__class__ is StridedRef
    if len(src) == 1:
        if active_mask is None and is_strided:
            return m.load(u, ref, None)
        if not is_strided and ref.__class__ is not ScatteredRef:
            return ref
        mask = True if active_mask is None else _access_mask(m, None, active_mask, len(u.shape))
        return (
            np.zeros(static_shape_or_give_up(u), NUMPY[u.dtype])
            if mask is False
            else m.load(u, ref, None if mask is True else mask)
        )
    rank = len(u.shape)
    buffer, alternative, gate = src
    if not is_strided and ref.__class__ is not ScatteredRef:
        return np.where(
            m.align_value_to_own_rank(gate, rank),
            m.align_value_to_own_rank(buffer, rank),
            m.align_value_to_own_rank(alternative, rank),
        )
    other = m.align_value_to_own_rank(alternative, rank)  # gives up on a reference, which is loaded whatever the gate is (R51)
    mask = _access_mask(m, gate, active_mask, rank)
    if mask is True:
        return m.load(u, ref, None)
    if mask is False:
        return other
    return np.where(m.align_value_to_own_rank(gate, rank), m.load(u, ref, mask), other)


def _store_target_ref_or_give_up(m: VectorMachine, target: UOp) -> VectorRef:
    """Return the reference that a Store or AtomicAdd writes to."""
    ref = m.cells[target]
    if ref.__class__ is not StridedRef and ref.__class__ is not ScatteredRef:
        raise GiveUp("a write to what is no reference")
    return ref


def _eval_store(m: VectorMachine, u: UOp, active_mask: Array | None) -> VectorValue:
    buffer, value, *gate = u.src
    ref, rank = _store_target_ref_or_give_up(m, buffer), len(buffer.shape)
    array = _value_to_store_or_give_up(m, value, buffer, ref)
    mask = True if active_mask is None and not gate else _access_mask(m, gate[0] if gate else None, active_mask, rank)
    if mask is not False:
        m.store(u, ref, array, None if mask is True else mask)


def _value_to_store_or_give_up(m: VectorMachine, value: UOp, target: UOp, ref: VectorRef) -> Array:
    """Return the array of `value`. Raises GiveUp unless it has the rank, shape and dtype of its target."""
    rank, own_rank = len(target.shape), len(value.shape)
    array = m.align_value_to_own_rank(value, rank)
    if own_rank != rank or array.shape[array.ndim - own_rank :] != ref.shape or array.dtype != NUMPY[target.dtype]:
        raise GiveUp("a value of another form than its target")
    return array


def _eval_atomic_add_of_integers(m: VectorMachine, u: UOp, active_mask: Array | None) -> VectorValue:
    index, value = u.src
    ref = _store_target_ref_or_give_up(m, index)
    if index.dtype not in dt.INTS:
        raise GiveUp("AtomicAdd of floats")
    array = _value_to_store_or_give_up(m, value, index, ref)
    mask = _access_mask(m, None, active_mask, len(index.shape))
    if mask is not False:
        m.atomic_add(u, ref, array, None if mask is True else mask)


def _eval_if(m: VectorMachine, u: UOp, active_mask: Array | None) -> VectorValue:
    """Return the mask inside of the If."""
    condition = m.align_value_to_own_rank(u.condition, 0)
    return (
        condition
        if active_mask is None
        else np.logical_and(align_to_loop_depth_and_own_rank(active_mask, 0, 0, len(m.extents)), condition)
    )


def _eval_barrier(m: VectorMachine, u: UOp, active_mask: Array | None) -> VectorValue:
    m.phase += 1


# fmt: off
#: op -> action, for the ops that the vector machine knows.
ACTIONS: dict[Op, Action] = {
    **dict.fromkeys(KERNELS, _eval_alu_as_affine_or_elementwise), **dict.fromkeys(MARKERS, _eval_marker),
    Op.WHERE: _eval_where_folding_uniform_condition, Op.CONST: _eval_const, Op.CAST: _eval_cast,
    Op.REDUCE: _eval_axis_reduce, Op.AFTER: _eval_after,
    **dict.fromkeys(RESHAPING, _eval_movement),
    Op.STACK: _eval_stack, Op.BITCAST: _eval_bitcast_of_value, Op.INDEX: _eval_index,
    Op.BUFFER: _eval_buffer, Op.LOAD: _eval_load, Op.STORE: _eval_store, Op.ATOMICADD: _eval_atomic_add_of_integers,
    Op.IF: _eval_if, Op.BARRIER: _eval_barrier,
}
# fmt: on
