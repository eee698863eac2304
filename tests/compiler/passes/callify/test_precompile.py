"""A Function with `precompile` has kernels of its own, one set for all its uses (R177, precompile)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from uops import Tensor, function
from uops.compiler.passes.callify.callify import callify
from uops.compiler.pipeline import lower
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CallArg
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

P0, P1 = b.param(0, (6,), dt.float32), b.param(1, (6,), dt.float32)
A, B, C = (b.buffer(6, dt.float32, unique=k) for k in (1, 2, 3))


def use(precompile: bool, x: UOp, y: UOp) -> UOp:
    body = b.add(b.mul(P0, P0), P1)
    return b.get(b.function(b.tuple_(body), x, y).replace(arg=CallArg(precompile=precompile)), 0)


def uses(precompile: bool) -> UOp:
    """Build two uses of a body in unlike surroundings: computed arguments, and values that go on."""
    first = use(precompile, b.neg(A), b.mul(A, B))
    second = use(precompile, b.add(b.flip(B, (True,)), C), b.flip(A, (True,)))
    return b.tuple_(b.mul(first, C), b.sqrt(second))


def kernels(graph: UOp, target: Any) -> list[UOp]:
    return [call.body for call in lower(graph, target, "rangeify").src]


def test_all_uses_of_the_body_have_the_same_kernel(pyref: Any) -> None:
    opaque, inlined = kernels(uses(True), pyref), kernels(uses(False), pyref)
    assert len(inlined) == 2
    assert len(set(inlined)) == 2
    own = {body for body in opaque if {u.op for u in toposort(body) if u.dtype is dt.float32} >= {Op.ADD, Op.MUL}}
    assert len(own) == 1
    assert opaque.count(next(iter(own))) == 2
    assert not any(u.op in (Op.NEG, Op.SQRT) for u in toposort(next(iter(own))))


def test_values_are_those_of_the_substituted_body(pyref: Any) -> None:
    rng = np.random.default_rng(1)
    inputs = {f"b{k}": rng.random(6).astype(np.float32) for k in (1, 2, 3)}
    wanted = run(uses(False), inputs).values
    for graph in (uses(True), lower(uses(True), pyref, "rangeify")):
        found = run(graph, inputs)
        values = found.values or [found.buffers[k] for k in sorted(found.buffers, key=lambda k: int(k[1:]))][:2]
        assert all(np.array_equal(x, y) for x, y in zip(values, wanted, strict=True))


def test_whole_memory_is_passed_as_it_is() -> None:
    body = callify(use(True, b.after(A), b.reshape(B, (6,)))).body
    assert not any(u.op is Op.CONTIGUOUS for u in toposort(body))


def test_a_body_that_stores_is_substituted() -> None:
    stored = b.after(P0, b.store(P0, b.neg(P1)))
    graph = b.get(b.function(b.tuple_(b.add(stored, P1)), A, b.neg(B)).replace(arg=CallArg(precompile=True)), 0)
    assert callify(graph).body is callify(graph.replace(src=(graph.packed.replace(arg=None),))).body


@pytest.mark.parametrize("precompile", [False, True])
def test_the_decorator_passes_it_on(precompile: bool) -> None:
    @function(precompile=precompile)
    def square(x: Tensor) -> Tensor:
        return x * x

    out = square(Tensor(np.arange(3, dtype=np.float32)) + 1)
    arg = out.uop.packed.arg
    assert (arg is not None and arg.precompile) is precompile
    assert out.numpy().tolist() == [1, 4, 9]
