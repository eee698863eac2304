"""A small float works end to end: interpreter, exact interpreter, allowed sets and compiled code agree on it."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import uops
from uops.backends.arrays import STORAGE
from uops.compiler.decompose import SMALL
from uops.interp import exact
from uops.interp.allowed import compute_allowed_sets
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

#: Elements of an operand: all bit patterns of a float8, a sample of 16 bits. The exact interpreter takes 64 at a time.
N, FEW = 256, 64
Graph = Callable[[UOp, UOp, DType], UOp]


def store_and_load(x: UOp, y: UOp, d: DType) -> UOp:
    memory = b.buffer(int(x.shape[0]), d, unique=1)
    return b.load(b.after(memory, b.store(memory, x)))


GRAPHS: dict[str, Graph] = {
    "widen": lambda x, y, d: b.cast(x, dt.float32),
    "narrow": lambda x, y, d: b.cast(b.mul(b.cast(x, dt.float64), b.cast(y, dt.float64)), d),
    "to-integer": lambda x, y, d: b.cast(x, dt.int32),
    "from-integer": lambda x, y, d: b.cast(b.cast(x, dt.int64), d),
    "add": lambda x, y, d: b.add(x, y),
    "mulacc": lambda x, y, d: b.build_alu_with_promotion(Op.MULACC, x, y, x),
    "less": lambda x, y, d: b.build_alu_with_promotion(Op.CMPLT, x, y),
    "exp2": lambda x, y, d: b.exp2(x),
    "sum": lambda x, y, d: b.reduce(b.stack(x, y), Op.ADD, (0,)),
    "max": lambda x, y, d: b.reduce(b.stack(x, y), Op.MAX, (0,)),
    "store-and-load": store_and_load,
}


@functools.cache
def operands(d: DType) -> dict[str, Any]:
    bits = (np.arange(N) * ((1 << d.bits) // N + (d.bits > 8))).astype(d.word.name)
    return {"p0": bits.view(STORAGE[d]), "p1": np.roll(bits, 37).view(STORAGE[d])}


def build(name: str, d: DType, n: int) -> tuple[UOp, list[str]]:
    """The graph of n elements, and the keys of the inputs that it reads."""
    graph = GRAPHS[name](b.param(0, (n,), d), b.param(1, (n,), d), d)
    return graph, [f"p{u.arg.slot}" for u in toposort(graph) if u.op is Op.PARAM]


def bits_of(a: Any) -> list[int]:
    array = np.asarray(a)
    return [int(v) for v in array.view(f"u{array.dtype.itemsize}").ravel()]


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("d", SMALL, ids=str)
def test_a_small_float_agrees(d: DType, name: str) -> None:
    graph, keys = build(name, d, N)
    inputs = {key: operands(d)[key] for key in keys}
    (interpreted,), (compiled,) = uops.run(graph, inputs).values, uops.compile(graph)(inputs).values
    (allowed,) = compute_allowed_sets(graph, inputs).values
    assert allowed.contains(interpreted).all() and allowed.contains(compiled).all()
    assert not allowed.contains(np.roll(compiled, 1)).all()  # the sets are not those of anything
    if name == "store-and-load":
        assert bits_of(interpreted) == bits_of(compiled) == bits_of(inputs["p0"])


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("d", SMALL, ids=str)
def test_the_exact_interpreter_agrees_on_a_small_float(d: DType, name: str) -> None:
    graph, keys = build(name, d, FEW)
    for at in range(0, N, FEW):
        inputs = {key: operands(d)[key][at : at + FEW] for key in keys}
        (got,) = uops.run(graph, inputs).values
        (want,) = exact.run(graph, {key: exact.Bits(bits_of(v)) for key, v in inputs.items()}, 2 * FEW).values
        wrong = [(k, v) for k, (v, answer) in enumerate(zip(bits_of(got), want.elements, strict=True)) if not answer.contains(v)]
        assert not wrong, f"{name} of {d} at {at}: element and bits {wrong[:3]}"
