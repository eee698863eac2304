"""Positions and counters in narrow and unsigned dtypes wrap and are compared as their dtype says (R05)."""

from __future__ import annotations

import numpy as np
import pytest

import uops
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import RangeArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op


def linear(effect: UOp) -> UOp:
    return UOp(Op.LINEAR, tuple(toposort(effect, gate=lambda u: u.op is not Op.PARAM)))


@pytest.mark.parametrize(("d", "first"), [(dt.uint8, 254), (dt.uint16, 65534), (dt.uint32, 2**32 - 2)], ids=str)
def test_a_vector_of_positions_wraps_in_its_dtype(d: DType, first: int) -> None:
    at, x, out = b.param(0, (1,), d), b.param(1, (4,), dt.float32), b.param(2, (4,), dt.float32)
    positions = b.add(b.stack(*[b.load(b.at(at, 0))] * 4), b.stack(*[b.const(k, d) for k in range(2, 6)]))
    lanes = b.stack(*[b.const(k, dt.int32) for k in range(4)])
    kernel = linear(b.store(UOp(Op.INDEX, (out, lanes)), b.load(UOp(Op.INDEX, (x, positions)))))
    memory = b.buffer(4, dt.float32, unique=5)
    call = b.call(kernel, b.param(0, (1,), d), b.param(1, (4,), dt.float32), memory, written=(2,))
    inputs = {"p0": np.array([first], d.name), "p1": np.arange(4, dtype=np.float32), "b5": np.zeros(4, np.float32)}
    assert uops.compile(b.after(memory, call), backend="llvm")(inputs).values[0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("d", "bound"), [(dt.uint8, 200), (dt.uint16, 40000), (dt.int16, -3)], ids=str)
def test_a_loop_counts_to_its_bound_in_its_dtype(d: DType, bound: int) -> None:
    r = UOp(Op.RANGE, (b.const(bound, d),), RangeArg(0, AxisType.LOOP))
    size = max(bound, 8)
    kernel = linear(b.end(b.store(UOp(Op.INDEX, (b.param(0, (size,), dt.float32), r)), b.const(1.0, dt.float32)), r))
    memory = b.buffer(size, dt.float32, unique=6)
    program = uops.compile(b.after(memory, b.call(kernel, memory, written=(0,))), backend="llvm")
    assert program({"b6": np.zeros(size, np.float32)}).values[0].sum() == max(bound, 0)
