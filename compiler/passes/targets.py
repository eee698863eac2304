"""Where a Store writes: the view that is its target, followed to the memory below.

A target is a chain of views (R51). Index tuples go through it as they do for values (`views`). Where a Bitcast or Slice on the way
changes the element size, the value is stored byte by byte, which is right for every chain of views (little-endian, R46): each
byte is put into the element of memory that holds it, by reading, changing and writing that element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from uops.compiler.linear import number
from uops.compiler.passes.kernels import Kernel, Place, flat_param
from uops.compiler.passes.spread import UINT, as_bool, as_dtype, operand
from uops.compiler.passes.views import STEP, VIEWS, ZERO, Index
from uops.spec import build as B
from uops.spec import dtypes as dt
from uops.spec.args import LoadArg
from uops.spec.axes import AxisType
from uops.spec.dtypes import DType
from uops.spec.node import UOp
from uops.spec.ops import Op

if TYPE_CHECKING:
    from uops.compiler.passes.rangeify import Rangeify


@dataclass
class Target:
    """An element of memory: `byte` is None where elements are stored whole, else the offset of one byte in them."""

    memory: UOp
    flat: UOp = ZERO
    gate: UOp | None = None
    byte: UOp | None = None
    ranges: list[UOp] = field(default_factory=list)  # of the bytes of one element
    loops: list[UOp] = field(default_factory=list)  # all loops around the Store

    def store(self, values: Sequence[UOp]) -> UOp:
        """The Store of values[0], gated by values[1] if there is one."""
        value = self._unit(values[0])
        gate = self.gate
        if len(values) > 1:
            own = as_bool(values[1])
            gate = own if gate is None else UOp(Op.AND, (gate, own))
        target = UOp(Op.INDEX, (self.memory, self.flat))
        return UOp(Op.STORE, (target, value) if gate is None else (target, value, gate))

    def _unit(self, value: UOp) -> UOp:
        """The element to write: the value, or what memory holds with one byte of the value put in."""
        d = self.memory.dtype
        if self.byte is None:
            return as_dtype(value, d)
        bits = as_dtype(value, UINT[value.dtype.itemsize])
        part = B.cast(UOp(Op.SHR, (bits, _bit(self.ranges[0] if self.ranges else ZERO, bits.dtype))), dt.uint8)
        if d.itemsize == 1:
            return as_dtype(part, d)
        whole = UINT[d.itemsize]
        now = UOp(Op.AFTER, (self.memory, *self.loops))  # in every iteration anew, also where the address stays the same
        old = as_dtype(UOp(Op.LOAD, (UOp(Op.INDEX, (now, self.flat)), *self._gated()), LoadArg()), whole)
        kept = UOp(Op.AND, (old, UOp(Op.XOR, (UOp(Op.SHL, (B.const(255, whole), _bit(self.byte, whole))), B.const(-1, whole)))))
        return as_dtype(UOp(Op.OR, (kept, UOp(Op.SHL, (B.cast(part, whole), _bit(self.byte, whole))))), d)

    def _gated(self) -> tuple[UOp, ...]:
        return () if self.gate is None else (B.const(0, self.memory.dtype), self.gate)


def _bit(byte: UOp, d: DType) -> UOp:
    """The number of bits below a byte, as a shift count."""
    return B.cast(UOp(Op.MUL, (byte, number(8))), d)


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
