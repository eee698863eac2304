"""Builders of the second document's nodes, beside those of `uops.spec.ir.build` for the ops that both documents have.

A builder checks nothing; `uops.spec.verify.verifier` checks a finished graph. Spec: the rows of the bestiary; R100 to R124.
"""

from __future__ import annotations

from collections.abc import Iterable

from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory

# ------------------------------------------------------------------------------------------------------ memory and devices


def device(name: A.Device) -> UOp:
    """Build a DEVICE: one device, or a tuple of them."""
    return UOp(Op.DEVICE, (), A.DeviceArg(name))


def buffer(size: int, dtype: DType, unique: int, device_name: A.Device = "CPU", *, local: bool = False) -> UOp:
    """Build a BUFFER with identity `unique`: one of the whole program (UNIQUE), or with `local` one of its scope (LUNIQUE)."""
    identity = UOp(Op.LUNIQUE if local else Op.UNIQUE, (), A.UniqueArg(unique))
    return UOp(Op.B_BUFFER, (identity, device(device_name)), A.BBufferArg(size, dtype))


def param(slot: int, size: int, dtype: DType, device_name: str | None = None) -> UOp:
    """Build a PARAM, on a device if one is named."""
    return UOp(Op.B_PARAM, () if device_name is None else (device(device_name),), A.BParamArg(slot, size, dtype))


def define_local(id: int, size: int, dtype: DType) -> UOp:
    """Build a DEFINE_LOCAL."""
    return UOp(Op.DEFINE_LOCAL, (), A.DefineArg(id, size, dtype))


def define_reg(id: int, size: int, dtype: DType) -> UOp:
    """Build a DEFINE_REG."""
    return UOp(Op.DEFINE_REG, (), A.DefineArg(id, size, dtype))


def define_var(name: str, lo: int, hi: int) -> UOp:
    """Build a DEFINE_VAR with inclusive bounds."""
    return UOp(Op.DEFINE_VAR, (), A.DefineVarArg(name, lo, hi))


def bind(variable: UOp, value: int | UOp) -> UOp:
    """Build a BIND of a DEFINE_VAR to a value."""
    return UOp(Op.BIND, (variable, b.index(value) if isinstance(value, int) else value))


def bufferize(value: UOp, *ranges: UOp, space: AddrSpace = AddrSpace.GLOBAL, removable: bool = False) -> UOp:
    """Build a BUFFERIZE of a scalar over ranges, which it closes."""
    return UOp(Op.BUFFERIZE, (value, *ranges), A.BufferizeArg(None, space, removable))


def buffer_view(buf: UOp, offset: int, size: int) -> UOp:
    """Build a BUFFER_VIEW of `size` elements from element `offset` on."""
    return UOp(Op.BUFFER_VIEW, (buf,), A.BufferViewArg(size, offset))


def copy(t: UOp, device_name: A.Device) -> UOp:
    """Build a COPY to a device, or to a tuple of them."""
    return UOp(Op.COPY, (t, device(device_name)))


def mstack(*shards: UOp) -> UOp:
    """Build an MSTACK of values on one device each."""
    return UOp(Op.MSTACK, shards)


def mselect(t: UOp, number: int) -> UOp:
    """Build an MSELECT of what device `number` holds."""
    return UOp(Op.MSELECT, (t,), A.MSelectArg(number))


def multi(t: UOp, axis: int) -> UOp:
    """Build a MULTI, which marks the sharded axis."""
    return UOp(Op.MULTI, (t,), A.MultiArg(axis))


def allreduce(t: UOp, op: Op, device_name: A.Device) -> UOp:
    """Build an ALLREDUCE of the shards of `t`, whose result is on a device or a tuple of them."""
    return UOp(Op.ALLREDUCE, (t, device(device_name)), A.ReduceArg(op))


# ------------------------------------------------------------------------------------------------------------ accesses


def at(memory: UOp, *indices: UOp | int, gate: UOp | None = None) -> UOp:
    """Build an INDEX into memory, with a gate if one is given."""
    positions = tuple(b.index(i) if isinstance(i, int) else i for i in indices)
    return UOp(Op.B_INDEX, (memory, *positions, *(() if gate is None else (gate,))), A.BIndexArg(gate is not None))


def pointer(memory: UOp, offset: UOp) -> UOp:
    """Build a POINTER_INDEX: the address `offset` bytes behind the start of memory."""
    return UOp(Op.POINTER_INDEX, (memory, offset))


def ptrcat(*addresses: UOp) -> UOp:
    """Build a PTRCAT of several addresses."""
    return UOp(Op.PTRCAT, addresses)


def load(address: UOp, *alternative: UOp) -> UOp:
    """Build a LOAD of an address, with what it gives under a false gate if that is given."""
    first = address
    while first.op is Op.PTRCAT:
        first = first.elements[0]
    return UOp(Op.B_LOAD, (base_memory(first), address, *alternative))


def store(address: UOp, value: UOp, *ranges: UOp) -> UOp:
    """Build a STORE in the loops of ranges, which it closes."""
    return UOp(Op.B_STORE, (address, value, *ranges))


# ---------------------------------------------------------------------------------------------------- loops and kernels


def range_(bound: int | UOp, axis_id: int, type: AxisType = AxisType.LOOP, *dependencies: UOp) -> UOp:
    """Build a RANGE, inside of the loops that it depends on."""
    return UOp(Op.B_RANGE, (b.index(bound) if isinstance(bound, int) else bound, *dependencies), A.RangeArg(axis_id, type))


def reduce(t: UOp, op: Op, *ranges: UOp) -> UOp:
    """Build a REDUCE of a scalar or vector over ranges, which it closes."""
    return UOp(Op.B_REDUCE, (t, *ranges), A.ReduceArg(op))


def barrier(value: UOp, *effects: UOp) -> UOp:
    """Build a BARRIER that passes a value on once all lanes are behind the effects."""
    return UOp(Op.B_BARRIER, (value, *effects))


def if_(gate: UOp, *effects: UOp) -> UOp:
    """Build an IF with its body."""
    return UOp(Op.B_IF, (gate, *effects))


def program(sink: UOp, *stages: UOp, device_name: str = "CPU") -> UOp:
    """Build a PROGRAM of a Sink and of its stages so far: a LINEAR, a Source, a PROGRAM_BINARY."""
    return UOp(Op.B_PROGRAM, (sink, device(device_name), *stages))


# ------------------------------------------------------------------------------------------------- tensors and vectors


def reduce_axis(t: UOp, op: Op, *axes: int) -> UOp:
    """Build a REDUCE_AXIS; the axes become 1."""
    return UOp(Op.REDUCE_AXIS, (t,), A.ReduceArg(op, axes))


def pad(t: UOp, *before_after: tuple[int, int]) -> UOp:
    """Build a PAD by (before, after) on each axis."""
    return UOp(Op.B_PAD, (t,), A.BPadArg(tuple(n for n, _ in before_after), tuple(n for _, n in before_after)))


def shrink(t: UOp, *intervals: tuple[int, int]) -> UOp:
    """Build a SHRINK to [begin, end) on each axis."""
    return UOp(Op.B_SHRINK, (t,), A.BShrinkArg(tuple(n for n, _ in intervals), tuple(n for _, n in intervals)))


def precast(t: UOp) -> UOp:
    """Build a PRECAST."""
    return UOp(Op.PRECAST, (t,))


def minimum(x: UOp, y: UOp) -> UOp:
    """Build a MIN."""
    return UOp(Op.MIN, (x, y))


def vectorize(*lanes: UOp) -> UOp:
    """Build a VECTORIZE of scalars."""
    return UOp(Op.VECTORIZE, lanes)


def gep(t: UOp, *lanes: int) -> UOp:
    """Build a GEP of lanes of a vector."""
    return UOp(Op.GEP, (t,), A.GepArg(lanes))


def vconst(values: Iterable[bool | int | float], dtype: DType) -> UOp:
    """Build a VCONST of numbers, each converted as a Const's."""
    return UOp(Op.VCONST, (), A.VConstArg(tuple(b.const(v, dtype).arg for v in values), dtype))


def cat(*parts: UOp) -> UOp:
    """Build a CAT of scalars and vectors."""
    return UOp(Op.CAT, parts)


def unroll(t: UOp, *axes: tuple[int, int]) -> UOp:
    """Build an UNROLL over (axis id, factor) pairs."""
    return UOp(Op.UNROLL, (t,), A.LanesArg(axes))


def contract(t: UOp, *axes: tuple[int, int]) -> UOp:
    """Build a CONTRACT over (axis id, factor) pairs."""
    return UOp(Op.CONTRACT, (t,), A.LanesArg(axes))


def customi(template: str, dtype: DType, *operands: UOp) -> UOp:
    """Build a CUSTOMI: an expression of target code."""
    return UOp(Op.CUSTOMI, operands, A.CustomArg(template, dtype))


def linear(*instructions: UOp) -> UOp:
    """Build a LINEAR: instructions in the order of execution."""
    return UOp(Op.LINEAR, instructions)
