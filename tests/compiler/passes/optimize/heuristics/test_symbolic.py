"""Loops of n iterations in vectors: whole ones, and a last one with masks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scheduled_programs import softmax

from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.compiler.config import Config
from uops.compiler.pipeline import lower
from uops.compiler.runtime.program import compile
from uops.compiler.target import MachineModel
from uops.fuzz.bisect.bisect import bisect
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

N = b.variable("n", 1, 100)
LANES = 8


class Masked(LlvmTarget):
    """A machine of vectors with masks, or without."""

    def __init__(self, masks: bool = True) -> None:
        super().__init__(LlvmTier.FAST)
        self.machine = replace(MachineModel(vector_bytes=4 * LANES, registers=32, fma=True), masks=masks)
        self.key += repr(self.machine)


def x(*shape: Any) -> UOp:
    return b.param(0, shape, dt.float32)


def axes(graph: UOp, target: LlvmTarget) -> set[tuple[AxisType, int]]:
    """Types and extents of the vector axes of all kernels."""
    order = toposort(lower(graph, target, "optimize", Config(reuse=False)))
    kinds = (AxisType.UPCAST, AxisType.UNROLL)
    return {(u.arg.type, int(u.src[0].arg.value)) for u in order if u.op is Op.RANGE and u.arg.type in kinds}


# fmt: off
PROGRAMS: dict[str, tuple[UOp, set[tuple[AxisType, int]]]] = {
    "elements":     (b.mul(x(N), 2.0),               {(AxisType.UPCAST, LANES)}),
    "rows":         (b.exp2(x(5, N)),                {(AxisType.UPCAST, LANES)}),
    "row sums":     (b.reduce(x(5, N), Op.ADD, (1,)), {(AxisType.UNROLL, LANES)}),
    "row maxima":   (b.reduce(x(5, N), Op.MAX, (1,)), {(AxisType.UNROLL, LANES)}),
    "column sums":  (b.reduce(x(N, 24), Op.ADD, (0,)), {(AxisType.UPCAST, LANES)}),
    "sum of maxima": (b.reduce(b.reduce(x(N, 12), Op.MAX, (1,)), Op.ADD, (0,)), {(AxisType.UNROLL, 6)}),
    "softmax":      (softmax(x(5, N)),               {(AxisType.UPCAST, LANES), (AxisType.UNROLL, LANES)}),
    "transposed":   (b.exp2(b.permute(x(N, 5), (1, 0))), set()),
}
# fmt: on


@pytest.mark.parametrize("name", PROGRAMS)
def test_lanes_run_along_memory(name: str) -> None:
    graph, wanted = PROGRAMS[name]
    assert axes(graph, Masked()) == wanted
    assert axes(graph, Masked(masks=False)) == set()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("n", [1, LANES - 1, LANES, 2 * LANES + 3])
def test_every_stage_gives_the_values_of_n_elements(name: str, n: int) -> None:
    graph, _ = PROGRAMS[name]
    shape = tuple(n if d is N else d for d in next(u for u in toposort(graph) if u.op is Op.PARAM and u.arg.name is None).shape)
    inputs = {"p0": np.random.default_rng(n).standard_normal(shape).astype(np.float32), "n": n}
    assert bisect(graph, inputs, Masked(), config=Config(reuse=False, verify=True)) is None


def test_what_lies_behind_n_elements_is_left_alone() -> None:
    """The last vector writes through a mask: n elements of a longer Tensor are assigned."""
    memory = b.buffer(100, dt.float32, unique=1)
    part = b.shrink(memory, (0,), (N,))
    graph = b.after(memory, b.store(part, b.mul(b.load(part), 2.0)))
    before = np.arange(100, dtype=np.float32)
    for n in (1, LANES + 1, 100):
        (found,) = compile(graph, Masked(), Config(reuse=False))({"b1": before, "n": n}).values
        np.testing.assert_array_equal(found, np.where(np.arange(100) < n, 2 * before, before))
