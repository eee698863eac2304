"""Lists of instructions written by hand get the memory that they leave out."""

from __future__ import annotations

from uops.compiler.passes.linearize import linearize_kernel
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def test_params_and_buffers_that_are_not_listed_come_first() -> None:
    out, register = b.param(0, (1,), dt.int32), b.buffer(1, dt.int32, addrspace=AddrSpace.REG, unique=1)
    zero = b.const(0, dt.int32)
    at, inner = b.at(out, zero), b.at(register, zero)
    first = b.store(inner, zero)
    value = b.load(b.at(b.after(register, first), zero))
    effect = b.store(at, value)
    listed = (at, inner, first, value.buffer.operand, value.buffer, value, effect)
    linear = linearize_kernel(UOp(Op.LINEAR, listed))
    assert linear.src == (out, register, *listed)
    assert linearize_kernel(linear) is linear
