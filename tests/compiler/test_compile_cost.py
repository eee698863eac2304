"""What compiling a small graph may cost, in units that no other process changes: nodes made and Python functions called."""

from __future__ import annotations

import gc
import sys
from types import FrameType

import pytest

from uops.backends.llvm.render import OPS, render
from uops.backends.llvm.types import NATIVE
from uops.compiler.config import Config
from uops.compiler.pipeline import PIPELINE, LoweringState, run_pass_and_verify
from uops.compiler.target import Kernel, MachineModel, Target
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir import node
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Bounds on a chain of 12 elementwise operations, a tenth above what was seen.
NODES, CALLS = 152, 3060


class Rendered(Target):
    """A target whose native compiler costs nothing."""

    name = key = "rendered"
    ops, dtypes = OPS, frozenset(NATIVE)
    machine = MachineModel(vector_bytes=64, registers=32, caches=(32 << 10, 1 << 20), line=64, cores=1, fma=True, masks=True)

    def render(self, linear: UOp) -> str:
        return render(linear)

    def compile(self, source: str) -> bytes:
        return source.encode()

    def load(self, binary: bytes) -> Kernel:
        raise NotImplementedError


def chain(k: int) -> UOp:
    u = b.param(0, (1000,), dt.float32)
    for _ in range(2):
        u = b.neg(b.sub(b.sqrt(b.mul(b.add(u, 1.0 + k), 0.5 + k)), 2.0 + k))
        u = b.maximum(u, -3.0 - k)
    return u


def lowered(graph: UOp) -> UOp:
    """What all passes give, each kernel anew and without the verifier."""
    state = LoweringState(Rendered(), Config(reuse=False, verify=False))
    for p in PIPELINE:
        graph = run_pass_and_verify(p, graph, state)
    return graph


def test_a_chain_of_operations_makes_few_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered(chain(1))
    graph, made = chain(2), list[UOp]()
    monkeypatch.setattr(node, "created", made.append)
    lowered(graph)
    assert len(made) <= NODES


def test_a_chain_of_operations_calls_few_functions() -> None:
    for k in range(3, 6):
        lowered(chain(k))
    graph, calls = chain(6), [0]

    def count(frame: FrameType, event: str, argument: object) -> None:
        calls[0] += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        lowered(graph)
    finally:
        sys.setprofile(before)
    assert calls[0] <= CALLS


def normalised() -> UOp:
    """Rows over their sums: two Reduces, one of them of what the other gives."""
    x = b.param(0, (8, 32), dt.float32)
    e = b.exp2(b.sub(x, b.reduce(x, Op.MAX, (1,))))
    return b.div(e, b.reduce(e, Op.ADD, (1,)))


@pytest.mark.parametrize("graph", [chain(7), normalised()], ids=["chain", "rows"])
def test_a_lowering_leaves_nothing_to_the_garbage_collector(graph: UOp) -> None:
    """No object holds itself: else graphs stay until a collection, which then costs more than they did."""
    lowered(graph)
    was = gc.isenabled()
    while gc.collect():  # what other tests left may need several passes
        pass
    gc.disable()
    try:
        lowered(graph)
        assert gc.collect() == 0
    finally:
        if was:
            gc.enable()
