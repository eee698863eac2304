"""Elements in memory: gated accesses, the words that hold an element, and a Store of one or of its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from uops.compiler.ir.affine import number
from uops.compiler.ir.views import ZERO
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import BitcastArg, LoadArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

UINT: dict[int, DType] = {1: dt.uint8, 2: dt.uint16, 4: dt.uint32, 8: dt.uint64}


def as_bool(p: UOp) -> UOp:
    return p if p.dtype is dt.bool_ else UOp(Op.CMPNE, (p, B.const(0, p.dtype)))


def access(memory: UOp, flat: UOp, gate: UOp | None) -> UOp:
    """The element at a flat position of 1-D memory; 0 where the gate is false, without touching the address (R52). A position that
    exists, and is the same whether the gate holds or not, needs no gate: Pad chooses, and the Load can be made once."""
    if gate is not None and _stands(memory, flat, gate):
        gate = None
    extra = () if gate is None else (B.const(0, memory.dtype), gate)
    return UOp(Op.LOAD, (UOp(Op.INDEX, (memory, flat)), *extra), LoadArg())


def _stands(memory: UOp, flat: UOp, gate: UOp) -> bool:
    """Return True if a position is inside of the memory, and does not change with what the gate depends on."""
    bounds, size = flat.min_max, memory.shape[0]
    if bounds is None or not isinstance(size, int) or not 0 <= bounds[0] <= bounds[1] < size:
        return False
    own = {u for u in toposort(flat) if u.op is Op.RANGE}
    return not any(u in own for u in toposort(gate) if u.op is Op.RANGE)


def as_dtype(x: UOp, d: DType) -> UOp:
    """The bits of `x` as another dtype of its size; a bool's byte is 0 or 1."""
    if x.dtype is d:
        return x
    if d is dt.bool_:
        return as_bool(x)
    if x.dtype is dt.bool_:
        x = B.cast(x, dt.uint8)
    return x if x.dtype is d else UOp(Op.BITCAST, (x,), BitcastArg(d))


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
