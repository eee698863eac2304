"""Joined kernels: chains done block by block where the cache does not hold what lies between two kernels."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scheduled_programs import p, softmax

import uops
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.compiler.config import Config
from uops.compiler.passes.optimize.heuristics.block_fusion import fuse_kernel_chains
from uops.compiler.pipeline import lower, stages
from uops.compiler.runtime.program import Compiled
from uops.compiler.target import MachineModel, Thresholds
from uops.compiler.tensor import capture
from uops.fuzz.bisect.bisect import bisect
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory, open_ranges

LEAST_ROWS = Thresholds().block_rows
HEADS, ROWS, WIDTH = 2, 2 * LEAST_ROWS, 4


class Small(LlvmTarget):
    """A machine whose second cache holds few rows."""

    def __init__(self, second: int = 40 << 10, **more: Any) -> None:
        super().__init__(LlvmTier.FAST)
        self.machine = replace(MachineModel(vector_bytes=16, registers=16, fma=True), caches=(1 << 10, second), **more)
        self.key += repr(self.machine)


def products(x: UOp, y: UOp) -> UOp:
    """(h, n, k) times (h, k, m)."""
    (h, n, k), m = x.shape, y.shape[2]
    terms = b.mul(b.reshape(x, (h, n, k, 1)), b.reshape(y, (h, 1, k, m)))
    return b.reshape(b.reduce(terms, Op.ADD, (2,)), (h, n, m))


def attention(rows: int = ROWS) -> UOp:
    q, k, v = (p(slot, HEADS, n, WIDTH) for slot, n in enumerate((rows, ROWS, ROWS)))
    return products(softmax(products(q, b.permute(k, (0, 2, 1))), 2), v)


def data(rows: int = ROWS) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {f"p{k}": rng.standard_normal((HEADS, n, WIDTH), np.float32) for k, n in enumerate((rows, ROWS, ROWS))}


def kernels(graph: UOp, target: LlvmTarget, **config: Any) -> list[UOp]:
    return [c.src[0] for c in lower(graph, target, "optimize", Config(reuse=False, threads=1, **config)).src]


def test_attention_is_one_kernel_whose_scores_are_those_of_a_block() -> None:
    (kernel,) = kernels(attention(), Small())
    order = toposort(kernel)
    local = sorted(int(u.arg.size) for u in order if u.op is Op.BUFFER and u.arg.addrspace is AddrSpace.LOCAL)
    assert local[-2:] == [LEAST_ROWS * ROWS] * 2
    (out,) = (u for u in order if u.op is Op.STORE and u.src[0].src[0] is b.param(0, (HEADS * ROWS * WIDTH,), dt.float32))
    heads, blocks = sorted((r for r in open_ranges(order)[out] if r.arg.axis_id < 2), key=lambda r: int(r.arg.axis_id))
    assert [int(r.src[0].arg.value) for r in (heads, blocks)] == [HEADS, ROWS // LEAST_ROWS]


def test_every_stage_of_a_joined_kernel_keeps_its_values() -> None:
    graph, inputs = attention(), data()
    config = Config(reuse=False, verify=True, threads=1)
    assert bisect(graph, inputs, Small(), config=config) is None
    plain = Compiled(graph, Small(1 << 30), config)(inputs).values[0]
    np.testing.assert_allclose(Compiled(graph, Small(), config)(inputs).values[0], plain, rtol=2e-5, atol=1e-6)


def test_the_cores_share_the_loops_around_blocks() -> None:
    big = Small(cores=2)
    body = lower(attention(), big, "optimize", Config(reuse=False)).src[0].src[0]
    kinds = {r.arg.axis_id: r.arg.type for r in toposort(body) if r.op is Op.RANGE}
    assert kinds[0] in (AxisType.THREAD, AxisType.LOOP) and kinds[1] is AxisType.LOOP


def chain(between: Callable[[UOp], UOp]) -> UOp:
    """Two products of heads, with something between them."""
    return products(between(products(p(0, HEADS, ROWS, WIDTH), p(1, HEADS, WIDTH, ROWS))), p(2, HEADS, ROWS, WIDTH))


# fmt: off
ALONE: dict[str, tuple[UOp, LlvmTarget]] = {
    "the cache holds what lies between":   (attention(), Small(1 << 20)),
    "the cache holds no operands beside":  (attention(), Small(2 << 10)),
    "no block of rows divides them":       (attention(LEAST_ROWS * 2 - 1), Small()),
    "a machine has no vectors":            (attention(), Small(vector_bytes=0)),
    "a machine has workgroups":            (attention(), Small(workgroup=256)),
    "rows are read in another order":      (chain(lambda x: b.flip(x, (False, True, False))), Small()),
    "columns are read as rows":            (chain(lambda x: b.permute(x, (0, 2, 1))), Small()),
    "what lies between is a result too":   (b.tuple_(x := products(p(0, HEADS, ROWS, WIDTH), p(1, HEADS, WIDTH, ROWS)),
                                                     products(x, p(2, HEADS, ROWS, WIDTH))), Small()),
}
# fmt: on


@pytest.mark.parametrize("why", ALONE)
def test_kernels_stay_alone_where(why: str) -> None:
    graph, target = ALONE[why]
    assert len(kernels(graph, target)) > 1


@pytest.mark.parametrize("config", [{"forced": 1}, {"optimize": False}], ids=str)
def test_nothing_is_joined_where_single_kernels_are_asked_for(config: dict[str, Any]) -> None:
    assert len(kernels(attention(), Small(), **config)) == 3


def test_products_alone_are_a_chain_too() -> None:
    assert len(kernels(chain(lambda x: b.mul(x, 2.0)), Small(20 << 10))) == 1


def test_a_joined_kernel_takes_each_argument_once() -> None:
    """Keys and values are one Param, the result another."""
    q, k = p(0, HEADS, ROWS, WIDTH), p(1, HEADS, ROWS, WIDTH)
    graph = products(softmax(products(q, b.permute(k, (0, 2, 1))), 2), k)
    found = stages(graph, Small(), Config(reuse=False, threads=1))["optimize"]
    (call,) = found.src
    assert len(call.src) == 4 and len({*call.src}) == 4 and call.arg.written == (0,)
    params = {u for u in toposort(call.src[0]) if u.op is Op.PARAM}
    assert sorted(int(u.arg.slot) for u in params) == [0, 1, 2]


def test_a_chain_of_kernels_that_are_not_joined_is_looked_at_once() -> None:
    """Counted in calls of functions, which a busy machine does not change: looked at again from each kernel, 8 times the kernels
    took 64 times the calls."""

    def calls(kernels: int) -> int:
        x = y = p(0, 8, 8)
        for _ in range(kernels):
            x = b.contiguous(b.sqrt(b.add(x, y)))
        target = Small()
        launch, seen = lower(x, target, "rangeify"), 0
        assert len(launch.src) == kernels

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal seen
            seen += event == "call"

        sys.setprofile(count)
        try:
            fuse_kernel_chains(launch, (), target.machine)
        finally:
            sys.setprofile(None)
        return seen

    assert calls(96) < 12 * calls(12)


def test_a_copy_from_another_device_is_in_no_chain() -> None:
    """What is computed of it would read the other device's memory."""
    x = b.param(0, (2048, 1024), dt.float32, "D0")

    def devices_of_calls(device: str) -> list[list[str]]:
        copied = b.copy(b.contiguous(UOp(Op.EXP2, (x,))), device)
        squares = b.reduce(UOp(Op.MUL, (copied, copied)), Op.ADD, (1,))
        launch = lower(squares, Small(512 << 10), "optimize")
        return [[str(base_memory(a).device) for a in c.arguments] for c in launch.src]

    assert devices_of_calls("D1") == [["D0", "D0"], ["D1", "D0"], ["D1", "D1"]]
    assert len(devices_of_calls("D0")) < 3  # on one device they are joined


def joined_names(graph: UOp, target: LlvmTarget) -> list[str]:
    return [k.arg.name for k in kernels(graph, target) if k.arg is not None and k.arg.name.startswith("joined")]


def whole_numbers(**shapes: tuple[int, ...]) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {k: rng.integers(-4, 5, shape).astype(np.float32) for k, shape in shapes.items()}


def test_variables_of_a_chain_are_arguments_of_the_joined_kernel() -> None:
    n = b.variable("n", 1, 5)
    scores = products(b.mul(p(0, HEADS, ROWS, WIDTH), b.cast(n, dt.float32)), p(1, HEADS, WIDTH, ROWS))
    graph = products(scores, p(2, HEADS, ROWS, WIDTH))
    assert joined_names(graph, Small(20 << 10))
    inputs = whole_numbers(p0=(HEADS, ROWS, WIDTH), p1=(HEADS, WIDTH, ROWS), p2=(HEADS, ROWS, WIDTH))
    for value in (2, 5):
        wanted = value * inputs["p0"] @ inputs["p1"] @ inputs["p2"]
        program = Compiled(graph, Small(20 << 10), Config(reuse=False, verify=True, threads=1))
        np.testing.assert_array_equal(program(inputs | {"n": value}).values[0], wanted)


SMALL_BLOCKS = Thresholds(block_rows=4)


def test_a_loop_over_the_rows_of_a_block_is_none_of_the_kernel_s_own() -> None:
    """The rows of a block are as many as the columns of the first kernel: a loop over either would be the same node."""
    sums = b.reshape(b.reduce(p(0, 3, 14, 9, 14), Op.ADD, (2,)), (3, 14, 14))
    graph = products(b.contiguous(sums), p(1, 3, 14, 9))
    target = Small(2 << 10, thresholds=SMALL_BLOCKS)
    assert joined_names(graph, target)
    inputs = whole_numbers(p0=(3, 14, 9, 14), p1=(3, 14, 9))
    found = Compiled(graph, target, Config(reuse=False, verify=True, threads=1))(inputs).values[0]
    np.testing.assert_array_equal(found, inputs["p0"].sum(2) @ inputs["p1"])


def test_two_scans_in_one_kernel_are_no_part_of_a_chain() -> None:
    """Tell a kernel of two prefix sums from a part of a chain, as of one."""
    x = np.arange(256, dtype=np.float32).reshape(16, 16) % 5
    t = uops.Tensor(x)
    graph, inputs = capture((t.relu().cumsum(1) + t.cumsum(1)).transpose(0, 1) + 1)
    found = Compiled(graph, Small(), Config(reuse=False, verify=True))(inputs).values[0]
    np.testing.assert_array_equal(found, 2 * x.cumsum(1).T + 1)


def test_accumulators_of_a_part_are_cleared_for_each_block() -> None:
    """The loops of maxima and sums are interchanged. They read LOCAL memory alone, whose addresses tell no block from another."""
    x = b.reshape(b.reduce(p(0, 240, 1, 6), Op.ADD, (1,)), (5, 48, 6))
    rows = b.where(b.le(x, 0.0), 0.0, x)
    graph = b.reduce(b.sub(rows, b.reduce(rows, Op.MAX, (2,))), Op.ADD, (2,))
    thresholds = Thresholds(kernel_cost=16, swept_rows=4, block_rows=8)
    target = Small(2 << 10, vector_bytes=32, registers=2, thresholds=thresholds)
    (kernel,) = kernels(graph, target)
    order = toposort(kernel)
    needs = open_ranges(order)
    clearing = [u for u in order if u.op is Op.STORE and base_memory(u.buffer).op is Op.BUFFER and u.value.op is Op.CONST]
    assert len(clearing) == 2 and all({r.arg.axis_id for r in needs[u]} >= {0, 1} for u in clearing)
    given = np.random.default_rng(1).integers(-9, 40, (240, 1, 6)).astype(np.float32)
    positive = np.maximum(given, 0).reshape(5, 48, 6)
    expected = (positive - positive.max(2, keepdims=True)).sum(2)
    got = Compiled(graph, target, Config(reuse=False, threads=1))({"p0": given}).values[0]
    np.testing.assert_array_equal(got.reshape(5, 48), expected)
