"""Loops inside of tensor graphs: what runs in them, and what they keep for themselves."""

import numpy as np
import pytest

import uops
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, ReduceArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


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


@pytest.mark.parametrize("m", [1, 5, 8])
def test_a_reduce_over_loops_may_give_a_vector_of_symbolic_size(m: int) -> None:
    i, size = b.range_(3, 0), b.variable("m", 1, 8)
    factor = b.expand(b.reshape(b.cast(i, dt.int32), (1, 1)), (2, size))
    product = b.mul(b.shrink(b.param(0, (2, 8), dt.int32), (0, 0), (2, size)), factor)
    graph = b.add(UOp(Op.REDUCE, (product, i), ReduceArg(Op.ADD)), 1)
    x = {"p0": np.arange(16, dtype=np.int32).reshape(2, 8), "m": m}
    assert uops.compile(graph, "llvm")(x).values[0].tolist() == (x["p0"][:, :m] * 3 + 1).tolist()


@pytest.mark.parametrize("backend", ["llvm", "c"])
def test_an_index_that_waits_is_passed_to_the_loops_as_int64(backend: str) -> None:
    """It was stored as int32, which holds it, and read as int64: the loop ran a random number of times."""
    memory = b.buffer(8, dt.int32, unique=1)
    waits = b.after(b.index(3), b.store(b.at(memory, 0), b.const(7, dt.int32)))
    i = b.range_(waits, 0)
    graph = b.contiguous(b.add(UOp(Op.REDUCE, (b.load(b.at(memory, i)), i), ReduceArg(Op.ADD)), 0))
    x = {"b1": np.arange(8, dtype=np.int32)}
    assert uops.compile(graph, backend)(x).values[0].tolist() == uops.run(graph, x).values[0].tolist()
