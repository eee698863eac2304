"""The dialect of a graph for which nothing says it is found by its forms."""

from __future__ import annotations

import pytest

from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect

X = b.param(0, (4,), dt.float32)
LOOP = b.range_(4, 0)
BODY = b.sink(b.end(b.store(b.at(X, LOOP), b.const(1.0)), LOOP), name="k")
# fmt: off
GRAPHS = {
    "a value": (b.neg(X), Dialect.TENSOR),
    "a Call of a kernel": (b.after(X, b.call(BODY, X)), Dialect.TENSOR),
    "a nameless Sink of effects": (b.sink(b.store(X, b.neg(X))), Dialect.TENSOR),
    "a Buffer of the caller": (b.buffer(4, dt.float32), Dialect.TENSOR),
    "a kernel": (BODY, Dialect.KERNEL),
    "a nameless kernel": (b.sink(*BODY.src), Dialect.KERNEL),
    "a launch": (UOp(Op.LINEAR, (b.call(BODY, X),)), Dialect.KERNEL),
    "memory of a workgroup": (b.buffer(4, dt.float32, addrspace=AddrSpace.LOCAL), Dialect.KERNEL),
    "an op of the second document": (UOp(Op.MIN, (b.const(1), b.const(2))), Dialect.BESTIARY),
    "a Call with one in its body": (b.call(b.sink(UOp(Op.MIN, (X, X))), X), Dialect.BESTIARY),
}
# fmt: on


@pytest.mark.parametrize("name", GRAPHS)
def test_the_forms_of_a_graph_decide_its_dialect(name: str) -> None:
    graph, dialect = GRAPHS[name]
    assert infer_tensor_kernel_or_bestiary_dialect(graph) is dialect
    assert infer_tensor_kernel_or_bestiary_dialect(graph) is dialect, "from memory"
