"""Loops inside of tensor graphs: what runs in them, and what they keep for themselves."""

import numpy as np
import pytest

import uops
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace


@pytest.mark.parametrize(("iterations", "expected"), [(0, [7]), (2, [7])])
def test_an_effect_in_a_group_that_uses_no_loop_runs_once_R127(iterations, expected):
    memory, out, r = b.buffer(1, dt.int32, unique=1), b.buffer(3, dt.int32, unique=2), b.range_(b.variable("n", 0, 3), 0)
    effects = b.group(b.store(b.at(memory, 0), b.const(7, dt.int32)), b.store(b.at(out, r), b.cast(r, dt.int32)))
    graph = b.contiguous(b.add(b.after(memory, b.end(effects, r)), 0))
    x = {"b1": np.array([10], np.int32), "b2": np.zeros(3, np.int32), "n": iterations}
    assert uops.compile(graph, "llvm")(x).values[0].tolist() == uops.run(graph, x).values[0].tolist() == expected


def test_loops_with_registers_beside_tensor_ops_are_kernels():
    out, r = b.buffer(3, dt.int32, unique=2), b.range_(3, 0)
    register = b.buffer(1, dt.int32, addrspace=AddrSpace.REG, unique=3)
    first = b.store(b.at(register, 0), b.cast(r, dt.int32))
    each = b.store(b.at(out, r), b.mul(b.load(b.at(b.after(register, first), 0)), 5))
    graph = b.contiguous(b.add(b.after(out, b.end(each, r)), b.param(0, (3,), dt.int32)))
    x = {"b2": np.zeros(3, np.int32), "p0": np.ones(3, np.int32)}
    assert uops.compile(graph, "llvm")(x).values[0].tolist() == uops.run(graph, x).values[0].tolist() == [1, 6, 11]
