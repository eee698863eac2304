"""Kernels in CUDA C, on a GPU and on the shim: claims about any machine, workgroups, and what only one of the two shows.

Tests of a GPU are skipped, with the reason, where there is none.
"""

from __future__ import annotations

import numpy as np
import pytest
from alu_claims import *  # noqa: F403 - the claims are tests
from kernel_claims import *  # noqa: F403 - the claims are tests
from kernel_claims import linear
from workgroup_claims import *  # noqa: F403 - the claims are tests
from workgroup_kernels import local, reversal

from uops.backends.cuda import driver
from uops.backends.cuda.target import MEMORY, CudaTarget, ShimTarget
from uops.compiler.target import Ability
from uops.spec.errors import Crash
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

needs_gpu = pytest.mark.skipif(driver.unavailable_reason() is not None, reason=str(driver.unavailable_reason()))


@pytest.fixture(params=["cuda:shim", *([] if driver.unavailable_reason() else ["cuda"])])
def tier(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_negating_16_bits_before_they_are_extended_wraps_R05(kernels, tier: str) -> None:
    """ptxas 13.0 extends the sign first: 5301 of a campaign on an H200."""
    x, out = np.array([-32768, 5, -4], np.int16), np.zeros(3, np.int16)
    make = kernels.elementwise(3, dt.int16, (dt.int16,), lambda v: B.mod(B.neg(v), B.const(18, dt.int16)))
    kernels.execute(make, [out, x], tier=tier)
    assert out.tolist() == [-32768 % 18, -5 % 18, 4]


def test_a_nan_of_constants_is_a_nan_R12(kernels, tier: str) -> None:
    """nvrtc 13 folds 0.0 / 0.0 != 0.0 / 0.0 to false (N03): 2710 of a campaign on an H200."""
    zero, out = B.const(0.0), np.zeros(1, np.int32)
    value = B.div(zero, zero)
    chosen = B.where(B.ne(value, value), B.const(7), B.const(8))
    kernels.execute(linear(B.store(B.at(B.param(0, (1,), dt.int32), 0), chosen)), [out], tier=tier)
    assert out.tolist() == [7]


def half_of_the_lanes_meet() -> str:
    """The text of a kernel whose Barrier only some threads of a block reach, which no graph compiles to."""
    text = ShimTarget().render(reversal(2, 8))
    assert text.count("__syncthreads();") == 1
    return text.replace("__syncthreads();", "if (threadIdx.x < 4) __syncthreads();")


def test_threads_that_do_not_meet_end_the_launch_on_the_shim_R60() -> None:
    target = ShimTarget()
    x, out = np.arange(16, dtype=np.int32), np.zeros(16, np.int32)
    kernel = target.load(target.compile(half_of_the_lanes_meet()))
    with pytest.raises(Crash, match="R60"):
        kernel([out.ctypes.data, x.ctypes.data], [0, 0])


def test_a_missing_barrier_changes_results_on_the_shim_R60() -> None:
    target = ShimTarget()
    x, out = np.arange(16, dtype=np.int32), np.zeros(16, np.int32)
    text = target.render(reversal(2, 8)).replace("__syncthreads();", "")
    target.load(target.compile(text))([out.ctypes.data, x.ctypes.data], [0, 0])
    assert out.reshape(2, 8).tolist() != x.reshape(2, 8)[:, ::-1].tolist()


def test_shared_memory_is_another_one_for_each_block_on_the_shim_R61(kernels) -> None:
    """What a block has not written is a pattern, not what the last block left."""
    out, tile, g = B.param(0, (6,), dt.int32), local(2, dt.int32, 77), B.range_(3, 0, AxisType.GLOBAL)
    i = B.range_(2, 1, AxisType.LOCAL)
    at = B.add(B.mul(g, B.index(2)), i)
    first = B.and_(B.eq(g, B.index(0)), B.eq(i, B.index(0)))
    ready = B.after(tile, UOp(Op.BARRIER, (B.store(B.at(tile, 0), B.const(7), first),)))
    got = np.zeros(6, np.int32)
    kernels.execute(linear(B.end(B.end(B.store(B.at(out, at), B.load(B.at(ready, 0))), i), g)), [got], tier="cuda:shim")
    pattern = int(np.uint32(0xA5A5A5A5).astype(np.int32))
    assert got.tolist() == [7, 7, pattern, pattern, pattern, pattern]


def test_the_shim_runs_blocks_and_threads_in_both_orders() -> None:
    """The last of several threads that store to one element is not always the highest."""
    target = ShimTarget()
    text = target.render(reversal(4, 8)).replace("p0[v", "p0[0 * v")
    seen = set()
    for groups in (1, 2):
        out, x = np.zeros(32, np.int32), np.arange(32, dtype=np.int32)
        head = text.replace('"groups": [4]', f'"groups": [{groups}]')
        target.load(target.compile(head))([out.ctypes.data, x.ctypes.data], [0, 0])
        seen.add(int(out[0]) % 8)
    assert len(seen) == 2


def test_a_text_that_is_no_cuda_is_a_crash_that_shows_it() -> None:
    with pytest.raises(Crash, match=r"(?s)rejects.*oops"):
        ShimTarget().load(b'// launch {"arguments": [], "groups": [], "lanes": []}\n__global__ void entry(oops) {')


@needs_gpu
def test_memory_is_reached_by_address_while_it_is_lent_only() -> None:
    target, x = CudaTarget(), np.arange(16, dtype=np.int32)
    assert target.abilities >= {Ability.LENDING, Ability.WAITING}
    assert MEMORY.device_address(x.ctypes.data, False) == 0
    with target.lend([x, x[4:8], np.zeros(0, np.int8)]):
        base = MEMORY.device_address(x.ctypes.data, False)
        assert base and MEMORY.device_address(x.ctypes.data + 17, False) == base + 17
    assert MEMORY.device_address(x.ctypes.data, False) == 0


@needs_gpu
def test_only_what_a_kernel_may_write_is_copied_back(kernels) -> None:
    """Read-only memory is an argument, and is never written."""
    x = np.arange(8, dtype=np.int32)
    x.flags.writeable = False
    out = np.zeros(8, np.int32)
    kernels.execute(kernels.elementwise(8, dt.int32, (dt.int32,), lambda v: B.add(v, B.const(1))), [out, x], tier="cuda")
    assert out.tolist() == list(range(1, 9))


@needs_gpu
def test_an_object_is_loaded_without_its_text() -> None:
    target = CudaTarget()
    kernel = target.load(target.compile(target.render(reversal(4, 64))))
    x, out = np.arange(256, dtype=np.int32), np.zeros(256, np.int32)
    with target.lend([x, out]):
        kernel([out.ctypes.data, x.ctypes.data], [0, 0])
    assert out.reshape(4, 64).tolist() == x.reshape(4, 64)[:, ::-1].tolist()
    with pytest.raises(Crash, match="begins with its launch"):
        target.load(b"\x7fELF\n")
