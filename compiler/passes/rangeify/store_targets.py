"""Where a Store writes: the view that is its target, followed to the memory below.

A target is a chain of views (R51). Index tuples go through it as they do for values (`views`). Where a Bitcast or Slice on the way
changes the element size, the value is stored byte by byte, which is right for every chain of views (little-endian, R46): each
byte is put into the element of memory that holds it, by reading, changing and writing that element.
"""

from __future__ import annotations

from uops.compiler.ir.affine import number
from uops.compiler.ir.views import STEP, VIEWS, ZERO, Index
from uops.compiler.passes.rangeify.elementwise import operand
from uops.compiler.passes.rangeify.kernels import Kernel, Place, flat_param
from uops.compiler.passes.rangeify.state import Rangeify
from uops.compiler.passes.rangeify.storage import Target
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def locate(state: Rangeify, kernel: Kernel, reference: UOp) -> Target:
    """The memory element that `reference` is at the kernel's place."""
    found = Target(reference)
    index, size = kernel.coords, reference.dtype
    if _resizes(reference):
        found.byte = kernel.loop(size.itemsize, AxisType.LOOP)
        found.ranges = [] if found.byte is ZERO else [found.byte]
        found.loops = [*kernel.ranges, *found.ranges]
    u = reference
    while u.op in VIEWS:
        index, gate = _step(state, kernel, found, u, index)
        found.gate = state.at.both(found.gate, gate)
        u = u.src[0]
    found.memory, found.flat = flat_param(u), state.at.flatten(index, u.shape)
    return found


def _resizes(u: UOp) -> bool:
    while u.op in VIEWS:
        if u.dtype.itemsize != u.src[0].dtype.itemsize:
            return True
        u = u.src[0]
    return False


def _step(state: Rangeify, kernel: Kernel, found: Target, u: UOp, index: Index) -> tuple[Index, UOp | None]:
    """The source element of a view, and the gate under which it exists."""
    if u.op in STEP:
        return STEP[u.op](state.at, u, index)
    if u.op is Op.INDEX:
        return _index(state, kernel, u, index)
    if u.op is Op.BITCAST:
        return (*index[:-1], _scale(state, found, index[-1], u.dtype, u.src[0].dtype)) if index else (), None
    inner = _scale(state, found, index[0], u.dtype, u.src[0].dtype)
    offset, gate = operand(state, u.src[1], Place(kernel, ()), u.src[0].shape[0])
    return (state.at.alu(Op.ADD, inner, offset),), gate


def _index(state: Rangeify, kernel: Kernel, u: UOp, index: Index) -> tuple[Index, UOp | None]:
    positions, gate = [], None
    for i, n in zip(u.src[1:], u.src[0].shape):
        own, index = index[: len(i.shape)], index[len(i.shape) :]
        position, inside = operand(state, i, Place(kernel, own), n)
        positions.append(position)
        gate = state.at.both(gate, inside)
    return (*positions, *index), gate


def _scale(state: Rangeify, found: Target, j: UOp, new: DType, old: DType) -> UOp:
    """Element j of the view's dtype, in elements of the source's; the byte offset inside moves along."""
    if new.itemsize == old.itemsize:
        return j
    assert found.byte is not None
    at = UOp(Op.ADD, (UOp(Op.MUL, (j, number(new.itemsize))), found.byte))
    found.byte = state.at.alu(Op.MOD, at, number(old.itemsize))
    return state.at.alu(Op.IDIV, at, number(old.itemsize))
