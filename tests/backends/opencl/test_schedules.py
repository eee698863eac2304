"""Schedules for workgroups on PoCL: panels in local memory, reductions by all lanes, tiles; and the machine that asks for them.

Skipped, with the reason, where there is no PoCL. A kernel takes PoCL about half a second.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from uops.backends.cstyle.language import MAX_LANES
from uops.backends.cstyle.launch import parse_launch_comment
from uops.backends.opencl.choice import unavailable_reason
from uops.backends.opencl.target import OpenClTarget
from uops.compiler import Config, compile, lower
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

pytestmark = pytest.mark.skipif(unavailable_reason("pocl") is not None, reason=str(unavailable_reason("pocl")))


@pytest.fixture(scope="module")
def target() -> OpenClTarget:
    return OpenClTarget("pocl")


def gemm(m: int, k: int, n: int) -> UOp:
    x, y = b.param(0, (m, k), dt.float32), b.param(1, (k, n), dt.float32)
    return b.reshape(b.reduce(b.mul(b.reshape(x, (m, k, 1)), b.reshape(y, (1, k, n))), Op.ADD, (1,)), (m, n))


def values(*shape: int) -> Any:
    """Small multiples of 1/4: sums of their products are exact."""
    return (np.arange(int(np.prod(shape)), dtype=np.float32) * 7 % 23 / 4 - 2).reshape(shape)


def sources(graph: UOp, target: OpenClTarget, config: Config = Config(reuse=False)) -> list[str]:  # noqa: B008 - frozen
    return [str(c.src[0].src[1].arg.code) for c in lower(graph, target, config=config).src]


def test_the_machine_is_the_device_s(target: OpenClTarget) -> None:
    m = target.machine
    assert 1 < m.workgroup <= MAX_LANES and m.local_memory >= 16 << 10 and m.vector_bytes >= 16
    assert m.cores == 1  # they are behind the workgroups


def test_a_product_goes_through_local_memory_in_workgroups(target: OpenClTarget) -> None:
    graph, given = gemm(62, 40, 64), {"p0": values(62, 40), "p1": values(40, 64)}
    (source,) = sources(graph, target)
    assert source.count("__local f32") == 2 and source.count("barrier(") == 3
    assert len(parse_launch_comment(source).lanes) == 2
    found = compile(graph, target, Config(reuse=False))(given).values[0]
    np.testing.assert_array_equal(found, given["p0"] @ given["p1"])


def test_a_row_is_summed_by_the_lanes_of_a_workgroup(target: OpenClTarget) -> None:
    graph, given = b.reduce(b.param(0, (3, 1030), dt.float32), Op.ADD, (1,)), {"p0": values(3, 1030)}
    (source,) = sources(graph, target)
    assert source.count("__local f32") == 1 and "barrier(" in source
    assert parse_launch_comment(source).lanes == (256,)
    found = compile(graph, target, Config(reuse=False))(given).values[0]
    np.testing.assert_array_equal(found, given["p0"].sum(1, keepdims=True))


def test_reductions_one_after_the_other_share_their_lanes(target: OpenClTarget) -> None:
    x = b.param(0, (2, 600), dt.float32)
    e = b.exp2(b.sub(x, b.reduce(x, Op.MAX, (1,))))
    graph, given = b.div(e, b.reduce(e, Op.ADD, (1,))), {"p0": values(2, 600)}
    found = compile(graph, target, Config(reuse=False))(given).values[0]
    np.testing.assert_allclose(found, run(graph, given).values[0], rtol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_drawn_schedules_keep_the_value(seed: int, target: OpenClTarget) -> None:
    graph, given = gemm(12, 10, 18), {"p0": values(12, 10), "p1": values(10, 18)}
    found = compile(graph, target, Config(reuse=False, forced=seed))(given).values[0]
    np.testing.assert_array_equal(found, given["p0"] @ given["p1"])
