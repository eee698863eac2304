"""Targets of Stores: the views of a target, followed to the memory below.

A target is a chain of views (R51, references and values). Index tuples are mapped through it as they are for values
(`uops.compiler.ir.views`). Where a Bitcast or Slice changes the element size, the value is stored byte by byte (little-endian; R46,
Bitcast and Slice). That is right for every chain of views. Each byte is merged into the element of memory that holds it: the
element is read, changed and written.
"""

from __future__ import annotations

from uops.compiler.ir.affine import index_constant
from uops.compiler.ir.views import STEP, ZERO, Index, SourceElement
from uops.compiler.passes.rangeify.elementwise import build_axis_position_and_in_range_gate
from uops.compiler.passes.rangeify.kernels import ElementRef, KernelDraft, flat_param
from uops.compiler.passes.rangeify.state import RangeifyState
from uops.compiler.passes.rangeify.storage import StoreTarget
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import VIEWS


def locate_store_target(state: RangeifyState, kernel: KernelDraft, reference: UOp) -> StoreTarget:
    """Return the element of memory that the kernel's element of `reference` is."""
    target = StoreTarget(reference)
    index, dtype = kernel.coords, reference.dtype
    if _has_view_that_changes_item_size(reference):
        target.byte = kernel.new_loop_or_zero_index(dtype.itemsize, AxisType.LOOP)
        target.byte_ranges = [] if target.byte is ZERO else [target.byte]
        target.loops = [*kernel.ranges, *target.byte_ranges]
    u = reference
    while u.op in VIEWS:
        index, gate = _map_view_index_to_operand_index_and_gate(state, kernel, target, u, index)
        target.gate = state.indexing.conjoin_gates(target.gate, gate)
        u = u.src[0]  # operand, or buffer of an After
    target.memory, target.position = flat_param(u), state.indexing.flatten(index, u.shape)
    return target


def _has_view_that_changes_item_size(u: UOp) -> bool:
    """Return True if some view of a reference has elements of another size than its operand."""
    while u.op in VIEWS:
        viewed = u.src[0]  # operand, or buffer of an After
        if u.dtype.itemsize != viewed.dtype.itemsize:
            return True
        u = viewed
    return False


def _map_view_index_to_operand_index_and_gate(
    state: RangeifyState, kernel: KernelDraft, target: StoreTarget, view: UOp, index: Index
) -> SourceElement:
    """Map an index of a view to one of its operand, with the gate under which the element exists."""
    if view.op in STEP:
        return STEP[view.op](state.indexing, view, index)
    if view.op is Op.INDEX:
        return _map_index_through_index_node(state, kernel, view, index)
    if view.op is Op.BITCAST:
        if not index:
            return SourceElement(())
        *outer, last = index
        return SourceElement(
            (*outer, _rescale_position_and_update_target_byte(state, target, last, view.dtype, view.operand.dtype))
        )
    (position,) = index  # of a Slice
    inner = _rescale_position_and_update_target_byte(state, target, position, view.dtype, view.operand.dtype)
    offset, gate = build_axis_position_and_in_range_gate(state, view.offset, ElementRef(kernel, ()), view.operand.shape[0])
    return SourceElement((state.indexing.alu(Op.ADD, inner, offset),), gate)


def _map_index_through_index_node(state: RangeifyState, kernel: KernelDraft, u: UOp, index: Index) -> SourceElement:
    """Map an index of an Index to one of its operand."""
    positions, gate = [], None
    for operand, n in zip(u.positions, u.operand.shape):
        rank = len(operand.shape)
        coords, index = index[:rank], index[rank:]
        position, inside = build_axis_position_and_in_range_gate(state, operand, ElementRef(kernel, coords), n)
        positions.append(position)
        gate = state.indexing.conjoin_gates(gate, inside)
    return SourceElement((*positions, *index), gate)


def _rescale_position_and_update_target_byte(
    state: RangeifyState, target: StoreTarget, position: UOp, view_dtype: DType, source_dtype: DType
) -> UOp:
    """Return the position in elements of the operand of an element of a view, and move the target's byte offset along."""
    if view_dtype.itemsize == source_dtype.itemsize:
        return position
    assert target.byte is not None
    byte = UOp(Op.ADD, (UOp(Op.MUL, (position, index_constant(view_dtype.itemsize))), target.byte))
    target.byte = state.indexing.alu(Op.MOD, byte, index_constant(source_dtype.itemsize))
    return state.indexing.alu(Op.IDIV, byte, index_constant(source_dtype.itemsize))
