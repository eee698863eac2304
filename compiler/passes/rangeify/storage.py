"""Elements in memory: gated Loads, reinterpretation of bits, and Stores of an element or of its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from uops.compiler.ir.affine import index_constant
from uops.compiler.ir.views import ZERO
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import BitcastArg, LoadArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op


def as_bool(p: UOp) -> UOp:
    """Return a condition as a bool: any nonzero value is true (R14, Where condition)."""
    return p if p.dtype is dt.bool_ else UOp(Op.CMPNE, (p, B.const(0, p.dtype)))


def load_element_gated_unless_in_bounds_and_hoistable(memory: UOp, position: UOp, gate: UOp | None) -> UOp:
    """Load the element at a position of 1-D memory; its value where the gate is false is not used (R52, Load).

    A Load with the gate gives 0 there, without an access. The gate is left out if the position is always in bounds and depends on
    none of the gate's loops. Such a Load can be hoisted, and Pad chooses the value.
    """
    if gate is not None and _is_in_bounds_and_independent_of_gate_loops(memory, position, gate):
        gate = None
    extra = () if gate is None else (B.const(0, memory.dtype), gate)
    return UOp(Op.LOAD, (UOp(Op.INDEX, (memory, position)), *extra), LoadArg())


def _is_in_bounds_and_independent_of_gate_loops(memory: UOp, position: UOp, gate: UOp) -> bool:
    """Return True if a position is in bounds of the memory, and depends on no loop that the gate depends on."""
    bounds, size = position.min_max, memory.shape[0]
    if bounds is None or not isinstance(size, int) or not 0 <= bounds[0] <= bounds[1] < size:
        return False
    loops = {u for u in toposort(position) if u.op is Op.RANGE}
    return not any(u in loops for u in toposort(gate) if u.op is Op.RANGE)


def reinterpret_as(x: UOp, d: DType) -> UOp:
    """Return the bits of `x` as another dtype of the same size. The byte of a bool is 0 or 1."""
    if x.dtype is d:
        return x
    if d is dt.bool_:
        return as_bool(x)
    if x.dtype is dt.bool_:
        x = B.cast(x, dt.uint8)
    return x if x.dtype is d else UOp(Op.BITCAST, (x,), BitcastArg(d))


@dataclass
class StoreTarget:
    """An element of memory to which a Store writes.

    `byte` is the offset of one byte in the element if the value is stored byte by byte, else None.
    """

    memory: UOp
    position: UOp = ZERO
    gate: UOp | None = None
    byte: UOp | None = None
    byte_ranges: list[UOp] = field(default_factory=list)  # the loop over the bytes of one value, if there is one
    loops: list[UOp] = field(default_factory=list)  # all loops around the Store

    def build_element_or_byte_store_under_gates(self, value_and_gate: Sequence[UOp]) -> UOp:
        """Return the Store of a value, given as (value,) or as (value, gate)."""
        value, *gates = value_and_gate
        element = self._build_element_or_replace_byte(value)
        gate = self.gate
        for own_gate in map(as_bool, gates):
            gate = own_gate if gate is None else UOp(Op.AND, (gate, own_gate))
        target = UOp(Op.INDEX, (self.memory, self.position))
        return UOp(Op.STORE, (target, element) if gate is None else (target, element, gate))

    def _build_element_or_replace_byte(self, value: UOp) -> UOp:
        """Return the element to write: the value, or the element in memory with one byte replaced by that of the value."""
        d = self.memory.dtype
        if self.byte is None:
            return reinterpret_as(value, d)
        bits = reinterpret_as(value, value.dtype.word)
        part = B.cast(UOp(Op.SHR, (bits, _bit_offset(self.byte_ranges[0] if self.byte_ranges else ZERO, bits.dtype))), dt.uint8)
        if d.itemsize == 1:
            return reinterpret_as(part, d)
        whole = d.word
        now = UOp(Op.AFTER, (self.memory, *self.loops))  # read anew in every iteration, also at an unchanged address
        old = reinterpret_as(UOp(Op.LOAD, (UOp(Op.INDEX, (now, self.position)), *self._gate_operands()), LoadArg()), whole)
        mask = UOp(Op.XOR, (UOp(Op.SHL, (B.const(255, whole), _bit_offset(self.byte, whole))), B.const(-1, whole)))
        shifted = UOp(Op.SHL, (B.cast(part, whole), _bit_offset(self.byte, whole)))
        return reinterpret_as(UOp(Op.OR, (UOp(Op.AND, (old, mask)), shifted)), d)

    def _gate_operands(self) -> tuple[UOp, ...]:
        return () if self.gate is None else (B.const(0, self.memory.dtype), self.gate)


def _bit_offset(byte: UOp, d: DType) -> UOp:
    """Return the number of bits below a byte, as a shift count of dtype `d`."""
    return B.cast(UOp(Op.MUL, (byte, index_constant(8))), d)
