"""What the loops of a tensor graph take from the graph around them."""

import numpy as np
import pytest

import uops
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ReduceArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


@pytest.mark.parametrize("fewer", [0, 1])
@pytest.mark.parametrize("loops_store", [False, True])
def test_loops_over_a_vector_of_symbolic_size_take_its_size(loops_store: bool, fewer: int) -> None:
    i, m, memory = b.range_(3, 0), b.variable("m", 1, 8), b.buffer(8, dt.int32, unique=1)
    size = b.sub(m, fewer) if fewer else m
    factor = b.expand(b.reshape(b.cast(i, dt.int32), (1,)), (size,))
    product = b.mul(b.shrink(b.param(0, (8,), dt.int32), (0,), (size,)), factor)
    inputs = {"p0": np.arange(8, dtype=np.int32), "b1": np.zeros(8, np.int32), "m": 5}
    if loops_store:
        graph = b.after(memory, b.end(b.store(b.shrink(memory, (0,), (size,)), product), i))
        expected = [0, 2, 4, 6, 0 if fewer else 8, 0, 0, 0]
    else:
        graph = b.add(UOp(Op.REDUCE, (product, i), ReduceArg(Op.ADD)), 1)
        expected = [1, 4, 7, 10, 13][: 5 - fewer]
        del inputs["b1"]
    assert uops.run(graph, inputs).values[0].tolist() == expected
