"""Products by tensor cores in CUDA C: their texts, and their values on the shim and on a GPU."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from kernel_claims import linear
from workgroup_kernels import local

import uops
from uops import Tensor
from uops.backends.cuda import accesses, driver, mma, nvrtc
from uops.backends.cuda.target import MEMORY, CudaTarget, ShimTarget
from uops.compiler.config import Config
from uops.compiler.passes.optimize.schedule import tensor_tiles
from uops.compiler.runtime.program import Compiled
from uops.compiler.tensor.realize import capture
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, WmmaArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.wmma import DESCRIPTORS

needs_gpu = pytest.mark.skipif(driver.unavailable_reason() is not None, reason=str(driver.unavailable_reason()))
needs_nvrtc = pytest.mark.skipif(nvrtc.unavailable_reason() is not None, reason=str(nvrtc.unavailable_reason()))
BACKENDS = ["cuda:shim", *([] if driver.unavailable_reason() else ["cuda"])]
DTYPES = [np.float16, ml_dtypes.bfloat16, np.int8, np.float64]


def operand(rows: int, columns: int, dtype: Any, transposed: bool, seed: int) -> tuple[Any, Tensor]:
    """A matrix of small integers, whose products sum exactly, and the Tensor of it; transposed, it lies by columns in memory."""
    values = np.random.default_rng(seed).integers(-3, 4, (rows, columns)).astype(dtype)
    return values, Tensor.from_numpy(np.ascontiguousarray(values.T)).permute(1, 0) if transposed else Tensor.from_numpy(values)


def product(m: int, k: int, n: int, dtype: Any, transposed: tuple[bool, bool] = (False, False)) -> tuple[Any, Tensor]:
    x, left = operand(m, k, dtype, transposed[0], 1)
    y, right = operand(k, n, dtype, transposed[1], 2)
    return x.astype(np.float64) @ y.astype(np.float64), left @ right


def text_of(output: Tensor) -> str:
    program = uops.compile(capture(output)[0], backend="cuda:shim").program
    (text,) = [u.arg.code for u in toposort(program) if u.op is Op.SOURCE]
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_any_shape_and_layout_are_exact_where_sums_are(dtype: Any, transposed: tuple[bool, bool], backend: str) -> None:
    for m, k, n in ((64, 64, 64), (50, 40, 70), (16, 16, 8), (130, 96, 64)):
        expected, output = product(m, k, n, dtype, transposed)
        with uops.use(backend):
            got = output.numpy()
        np.testing.assert_array_equal(got.astype(np.float64), expected.astype(got.dtype).astype(np.float64), err_msg=f"{m} {k} {n}")


@pytest.mark.parametrize(("dtype", "matrices"), [(np.float16, 2), (ml_dtypes.bfloat16, 2), (np.int8, 1), (np.float64, 0)])
def test_operands_are_copied_asynchronously_and_loaded_as_matrices(dtype: Any, matrices: int) -> None:
    """Bytes are loaded as matrices only where they lie along k: `ldmatrix` transposes 16 bits."""
    text = text_of(product(256, 128, 256, dtype)[1])
    assert text.count("__syncthreads();") == 1 and "wait_for_copies(); __syncthreads();" not in text
    assert re.search(r"wait_for_copies\(\);\s+__syncthreads\(\);", text)
    assert text.count("copy_async((u8 *)") == 4 * text.count("copy_async((u8 *)") // 4 > 0
    assert len(set(re.findall(r"load_matrices_\w+", text))) == matrices
    assert '["written", "aligned", "aligned"]' in text.splitlines()[0]


@needs_nvrtc
@pytest.mark.parametrize("dtype", DTYPES)
def test_nvrtc_takes_the_texts(dtype: Any) -> None:
    ShimTarget(checked=True).compile(text_of(product(256, 128, 256, dtype)[1]))


def run_text(text: str, *arrays: Any) -> None:
    target = ShimTarget()
    target.load(target.compile(text))([a.ctypes.data for a in arrays], [0] * len(arrays))


def test_a_wait_that_is_missing_changes_results_on_the_shim() -> None:
    expected, output = product(64, 64, 64, np.float16)
    text = text_of(output)
    x, y = (operand(64, 64, np.float16, False, s)[0] for s in (1, 2))
    out = np.zeros((64, 64), np.float16)
    run_text(text, out, x, y)
    np.testing.assert_array_equal(out, expected.astype(np.float16))
    run_text(text.replace("  wait_for_copies();", ""), out, x, y)
    assert (out != expected.astype(np.float16)).any()


def test_a_row_of_a_matrix_that_is_another_one_changes_results_on_the_shim() -> None:
    expected, output = product(64, 64, 64, np.float16)
    text = text_of(output)
    x, y = (operand(64, 64, np.float16, False, s)[0] for s in (1, 2))
    out = np.zeros((64, 64), np.float16)
    run_text(text.replace("% 8 * 4) / 4)", "% 8 * 4) / 8)"), out, x, y)
    assert (out != expected.astype(np.float16)).any()


#: Block 0 copies without a wait; block 1 waits, and reads its own shared memory.
COPY_WITHOUT_WAIT = """// launch {"arguments": ["written"], "groups": [2], "lanes": [1], "local": 16, "private": 0}
typedef unsigned char u8; typedef unsigned int u32;
DEFINITION
__global__ void entry(u8 *m0) {
  extern __shared__ __align__(16) u8 shared[];
  if (blockIdx.x == 0) copy_async(shared, m0, 16);
  else { wait_for_copies(); ((u32 *)m0)[4] = *(u32 *)shared; }
}
"""


def test_a_copy_that_nobody_waits_for_ends_with_its_block_on_the_shim() -> None:
    memory = np.arange(1, 6, dtype=np.uint32)
    run_text(COPY_WITHOUT_WAIT.replace("DEFINITION", accesses.COPY_ASYNC), memory)
    assert memory.tolist() == [1, 2, 3, 4, 0xA5A5A5A5]


def overwritten_while_it_is_copied() -> UOp:
    """A lane copies p0 to LOCAL memory, sets a register, and stores it to p1. After a Barrier it stores the copy to p2."""
    x, y, out = (B.param(slot, (8,), dt.float32) for slot in range(3))
    g, t = B.range_(1, 0, AxisType.GLOBAL), B.range_(2, 1, AxisType.LOCAL)
    tile, register = local(8, dt.float32, 77), B.buffer(1, dt.float32, addrspace=AddrSpace.REG, unique=78)
    lane = B.cast(t, dt.int32)
    places = B.add(B.stack(*[B.mul(lane, B.const(4, dt.int32))] * 4), B.stack(*[B.const(k, dt.int32) for k in range(4)]))
    copied = B.store(UOp(Op.INDEX, (tile, places)), B.load(UOp(Op.INDEX, (x, places))))
    cleared = B.store(B.at(B.after(register, copied), 0), B.const(7.0, dt.float32))
    over = B.store(B.at(y, B.mul(t, B.index(4))), B.load(B.at(B.after(register, cleared), 0)))
    met = UOp(Op.BARRIER, (copied, over))
    taken = B.store(UOp(Op.INDEX, (out, places)), B.load(UOp(Op.INDEX, (B.after(tile, met), places))))
    return linear(B.end(B.end(taken, t), g))


def test_a_copy_is_waited_for_before_the_lane_stores_to_memory_that_it_may_read() -> None:
    """The caller passes one array twice: p1 is p0."""
    text = ShimTarget().render(overwritten_while_it_is_copied())
    assert text.count("copy_async((u8 *)") == 1
    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    run_text(text, x, x, out)
    assert out.tolist() == list(range(8)) and x.tolist() == [7, 1, 2, 3, 7, 5, 6, 7]


def overwritten_before_it_is_copied(barrier: bool) -> UOp:
    """A lane loads p0, stores a sum of it to p1, may meet the others at a Barrier, and then puts the Load into LOCAL memory."""
    x, y, out = (B.param(slot, (8,), dt.float32) for slot in range(3))
    g, t = B.range_(1, 0, AxisType.GLOBAL), B.range_(2, 1, AxisType.LOCAL)
    tile, lane = local(8, dt.float32, 77), B.cast(t, dt.int32)
    places = B.add(B.stack(*[B.mul(lane, B.const(4, dt.int32))] * 4), B.stack(*[B.const(k, dt.int32) for k in range(4)]))
    loaded = B.load(UOp(Op.INDEX, (x, places)))
    first = UOp(Op.INDEX, (loaded, B.const(0, dt.int32)))
    over = B.store(B.at(y, B.mul(t, B.index(4))), B.add(first, B.const(70.0, dt.float32)))
    between = UOp(Op.BARRIER, (over,)) if barrier else over
    met = UOp(Op.BARRIER, (B.store(UOp(Op.INDEX, (B.after(tile, between), places)), loaded),))
    taken = B.store(UOp(Op.INDEX, (out, places)), B.load(UOp(Op.INDEX, (B.after(tile, met), places))))
    return linear(B.end(B.end(taken, t), g))


@pytest.mark.parametrize("barrier", [False, True])
def test_a_load_that_may_be_overwritten_before_its_store_is_no_asynchronous_copy(barrier: bool) -> None:
    """The caller passes one array twice: p1 is p0."""
    text = ShimTarget().render(overwritten_before_it_is_copied(barrier))
    assert "copy_async((u8 *)" not in text
    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    run_text(text, x, x, out)
    assert out.tolist() == list(range(8)) and x.tolist() == [70, 1, 2, 3, 74, 5, 6, 7]


def test_rows_that_are_not_aligned_are_loaded_by_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """With gaps of 4 bytes, neither a copy of 16 bytes nor a row of a matrix is aligned."""
    monkeypatch.setattr(tensor_tiles, "CHUNK", 4)
    expected, output = product(64, 64, 64, np.float16)
    graph, inputs = capture(output)
    program = Compiled(graph, ShimTarget(), Config())
    (text,) = [u.arg.code for u in toposort(program.program) if u.op is Op.SOURCE]
    assert "load_matrices" not in text and "mma_" in text
    np.testing.assert_array_equal(program(inputs).values[0], expected.astype(np.float16))


@pytest.mark.parametrize("offset", range(1, 9))
def test_an_argument_at_any_address_is_read_right(offset: int) -> None:
    """On a GPU, an argument that must be aligned is copied if it is not."""
    for backend in BACKENDS:
        memory = np.random.default_rng(3).integers(-3, 4, 64 * 64 + 16).astype(np.float16)
        x = memory[offset : offset + 64 * 64].reshape(64, 64)
        with uops.use(backend):
            got = (Tensor.from_numpy(x) @ Tensor.from_numpy(x)).numpy()
        np.testing.assert_array_equal(got, (x.astype(np.float64) @ x.astype(np.float64)).astype(np.float16))


@needs_gpu
def test_a_copy_of_lent_memory_is_memory_of_its_own() -> None:
    target, x = CudaTarget(), np.arange(16, dtype=np.int32)
    with target.lend([x]):
        copy = MEMORY.duplicate_rest_of_span_on_device(x.ctypes.data + 4)
        assert copy % 16 == 0 and copy != MEMORY.device_address(x.ctypes.data + 4, False)
        driver.free(copy)


def test_schedules_use_what_sums_as_well_as_any_order_R32() -> None:
    names = {a.dtype_in: a.name for a in mma.choose_largest_accurate_tensor_cores("sm_90")}
    assert {d.name for d in names} == {"float16", "bfloat16", "int8", "float64"} and "m16n8k32" in names[dt.int8]
    assert {a.dtype_in for a in mma.choose_largest_accurate_tensor_cores("sm_80")} == {dt.int8, dt.float64}
    assert mma.choose_largest_accurate_tensor_cores("sm_70") == ()


def test_an_architecture_has_its_own_instructions_and_older_ones() -> None:
    fp8 = next(d for d in DESCRIPTORS if d.vendor == "NVIDIA" and d.dtype_in is dt.fp8e4m3)
    arg = WmmaArg(fp8.name, fp8.dims, fp8.dtype_in, fp8.dtype_out, "GPU", fp8.threads)
    assert mma.has_instruction(arg, "sm_90") and mma.has_instruction(arg, "sm_89") and not mma.has_instruction(arg, "sm_80")
    other = next(d for d in DESCRIPTORS if d.vendor == "AMD")
    foreign = WmmaArg(other.name, other.dims, other.dtype_in, other.dtype_out, "GPU", other.threads)
    assert not mma.has_instruction(foreign, "sm_90")
