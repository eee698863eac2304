"""Sweeps and blocks: memory is read row after row, or block after block, and results are those of plain sums."""

from dataclasses import replace
from itertools import count
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scheduled_programs import matmul, p

import uops
from uops import Tensor
from uops.backends.arrays import STORAGE
from uops.compiler.passes.callify.callify import callify
from uops.compiler.passes.optimize.heuristics.cpu import schedule_for_cpu_vectors
from uops.compiler.passes.optimize.heuristics.threads import assign_thread_loop_if_worthwhile
from uops.compiler.passes.optimize.schedule.optops import apply
from uops.compiler.passes.optimize.schedule.schedule import RejectedOptOp, close_output_loops_into_sink, create_initial_schedule
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.compiler.target import STACK_LIMIT, MachineModel, Thresholds
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, BufferArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import open_ranges
from uops.spec.optops import Split

SWEPT_ROWS = Thresholds().swept_rows

WIDE = MachineModel(vector_bytes=64, registers=32, caches=(32 << 10, 1 << 20), fma=True)


def chosen(graph: UOp, machine: MachineModel = WIDE) -> UOp:
    s = create_initial_schedule(rangeify(callify(graph)).src[0].src[0])
    assert s is not None
    return close_output_loops_into_sink(schedule_for_cpu_vectors(s, machine, count(100)))


def test_rows_are_outside_of_columns() -> None:
    order = toposort(chosen(b.reduce(p(0, 64, 9000), Op.ADD, (0,))))
    (memory,) = (u for u in order if u.op is Op.BUFFER)
    assert memory.arg.addrspace is AddrSpace.REG and memory.arg.size * 4 <= WIDE.caches[0] // 2
    ends = [u for u in order if u.op is Op.END]
    live = open_ranges(order)
    rows = next(u for u in ends if u.src[1].arg.type is AxisType.REDUCE)
    assert not any(r.arg.type is AxisType.REDUCE for u in ends if u.src[1].arg.type is AxisType.UPCAST for r in live[rows])
    (load,) = (u for u in order if u.op is Op.LOAD and u.src[0].src[0].op is Op.PARAM)
    assert {r.arg.type for r in live[load]} == {AxisType.REDUCE, AxisType.UNROLL, AxisType.LOOP, AxisType.UPCAST}


@pytest.mark.parametrize("shape", [(SWEPT_ROWS - 1, 4096), (64, 256)])
def test_few_rows_or_columns_are_summed_in_registers(shape: tuple[int, int]) -> None:
    assert not any(u.op is Op.BUFFER for u in toposort(chosen(b.reduce(p(0, *shape), Op.ADD, (0,)))))


def data(*shape: int, dtype: Any = np.float32) -> Any:
    return (np.arange(np.prod(shape)) * 7 % 5 % 3 - 1).reshape(shape).astype(dtype)


@pytest.mark.parametrize("d", [dt.bfloat16, dt.float32, dt.float64, dt.int32, dt.uint8], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(17, 1031), (40, 4999)])
def test_sums_of_columns_of_any_shape(shape: tuple[int, int], d: dt.DType) -> None:
    """Integers from -1 to 1: every partial sum is exact, in bfloat16 too."""
    x = np.abs(data(*shape)).astype(ml_dtypes.bfloat16 if d is dt.bfloat16 else d.name)
    (got,) = uops.compile(b.reduce(p(0, *shape, dtype=d), Op.ADD, (0,)), backend="llvm")({"p0": x}).values
    np.testing.assert_array_equal(got.reshape(-1).astype(np.float64), x.astype(np.float64).sum(0))


@pytest.mark.parametrize("d", [dt.bfloat16, dt.float32], ids=lambda d: d.name)
def test_a_vector_times_a_matrix(d: dt.DType) -> None:
    numpy = ml_dtypes.bfloat16 if d is dt.bfloat16 else np.float32
    x, y = data(1, 96, dtype=numpy), data(96, 611, dtype=numpy)
    (got,) = uops.compile(matmul(p(0, 1, 96, dtype=d), p(1, 96, 611, dtype=d)), backend="llvm")({"p0": x, "p1": y}).values
    np.testing.assert_array_equal(got.astype(np.float64), x.astype(np.float64) @ y.astype(np.float64))


@pytest.mark.parametrize("shape", [(16, 16, 300), (33, 17, 300), (64, 20, 130)])
def test_sums_of_columns_inside_of_a_reduction_of_columns(shape: tuple[int, int, int]) -> None:
    """The inner sum is in registers, of which iterations of the outer one that run side by side would have one set."""
    x = np.random.default_rng(0).integers(-5, 6, shape).astype(np.int32)
    np.testing.assert_array_equal(Tensor(x).max(1).sum(0).numpy(), x.max(1).sum(0))
    np.testing.assert_array_equal(Tensor(x).sum(1).max(0).numpy(), x.sum(1).max(0))


def test_a_loop_around_a_fill_of_registers_does_not_become_lanes() -> None:
    s = create_initial_schedule(rangeify(callify(b.reduce(p(0, 6, 32, 300, dtype=dt.int32), Op.ADD, (1,)))).src[0].src[0])
    assert s is not None
    s = schedule_for_cpu_vectors(s, WIDE, count(100))
    (rows,) = (k for k, r in enumerate(s.ranges) if r in s.outputs and r.src[0].arg.value == 6)
    with pytest.raises(RejectedOptOp, match="registers are filled once per iteration of axis"):
        apply(s, Split(rows, 2, AxisType.UPCAST))
    apply(s, Split(rows, 2, AxisType.LOOP))


@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16], ids=lambda d: d.name)
def test_a_deep_product_of_small_floats_whose_output_is_wide(dtype: dt.DType) -> None:
    """Sums are those of the small dtype, whatever they are cast to (R27)."""
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-2, 3, shape).astype(STORAGE[dtype]) for shape in ((64, 8192), (8192, 64)))
    graph = b.cast(matmul(p(0, 64, 8192, dtype=dtype), p(1, 8192, 64, dtype=dtype)), dt.float32)
    (got,) = uops.compile(graph, backend="llvm")({"p0": x, "p1": y}).values
    want = (x.astype(np.float64) @ y.astype(np.float64)).astype(STORAGE[dtype])
    np.testing.assert_array_equal(got, want.astype(np.float32))


def test_maxima_keep_nans_and_empty_columns_of_masked_rows() -> None:
    x = data(33, 700)
    x[5, 3], x[:, 9] = np.nan, -np.inf
    (got,) = uops.compile(b.reduce(p(0, 33, 700), Op.MAX, (0,)), backend="llvm")({"p0": x}).values
    np.testing.assert_array_equal(got.reshape(-1), x.max(0))


def deep(m: int, k: int, n: int) -> UOp:
    return chosen(matmul(p(0, m, k), p(1, k, n)))


def depths(body: UOp) -> list[int]:
    """The extents of the loops of a product's Reduce, the outer one first, wherever it has come to stand."""
    (u,) = (u for u in toposort(body) if u.op is Op.REDUCE)
    return [int(r.src[0].arg.value) for r in u.src[1:]]


def test_a_deep_product_is_done_in_blocks_that_the_caches_hold() -> None:
    """Of small floats the sums are wider than the output, and have memory of their own."""
    body = chosen(matmul(p(0, 1000, 9000, dtype=dt.bfloat16), p(1, 9000, 128, dtype=dt.bfloat16)))
    panel, totals = sorted((u for u in toposort(body) if u.op is Op.BUFFER), key=lambda u: u.arg.addrspace is AddrSpace.REG)
    assert panel.arg.addrspace is AddrSpace.LOCAL and panel.arg.size * 2 <= WIDE.caches[1] // 2
    assert totals.arg.size * 4 <= WIDE.caches[1] // 4
    loops = [int(r.src[0].arg.value) for r in toposort(body) if r.op is Op.RANGE and r.arg.type is AxisType.REDUCE]
    assert len(loops) == 2 and np.prod(loops) == 9000
    assert not any(u.op is Op.BUFFER and u.arg.addrspace is AddrSpace.REG for u in toposort(deep(100, 1000, 128)))


def test_sums_that_are_stored_as_they_are_stay_in_the_output() -> None:
    """What is there before is not read; all of the block's tiles come between two visits of one."""
    body = deep(600, 2048, 512)
    (panels,) = (u for u in toposort(body) if u.op is Op.BUFFER)
    assert panels.arg.addrspace is AddrSpace.LOCAL and panels.arg.size * 4 <= WIDE.caches[1] // 2
    store = next(u for u in toposort(body) if u.op is Op.STORE and u.src[0].src[0].op is Op.PARAM)
    running, term = store.src[1].src
    assert running.op is Op.LOAD and running.src[0] is store.src[0] and term.op is Op.REDUCE
    block = next(r for r in toposort(running.src[2]) if r.op is Op.RANGE and r not in toposort(store.src[0]))
    assert block.arg.type is AxisType.LOOP and int(block.src[0].arg.value) * depths(body)[0] == 2048
    ids = [r.arg.axis_id for r in toposort(store.src[0]) if r.op is Op.RANGE and r.arg.type is AxisType.LOOP]
    assert sum(i > block.arg.axis_id for i in ids) == 2


def test_what_is_made_of_the_sums_is_stored_with_the_last_block() -> None:
    body = chosen(b.maximum(matmul(p(0, 600, 2048), p(1, 2048, 512)), 0.0))
    store = next(u for u in toposort(body) if u.op is Op.STORE and u.src[0].src[0].op is Op.PARAM)
    last, made, total = store.src[1].src
    assert store.src[1].op is Op.WHERE and last.op is Op.CMPEQ and made.op is Op.MAX and made.src[0] is total


def test_a_loop_of_blocks_is_not_shared_by_threads() -> None:
    """Its iterations add to the same elements, in order."""
    two = replace(WIDE, cores=2)
    s = create_initial_schedule(rangeify(callify(matmul(p(0, 600, 1 << 15), p(1, 1 << 15, 128)))).src[0].src[0])
    assert s is not None
    loops = [
        r
        for r in toposort(
            close_output_loops_into_sink(assign_thread_loop_if_worthwhile(schedule_for_cpu_vectors(s, two, count(100)), two))
        )
        if r.op is Op.RANGE
    ]
    assert [int(r.src[0].arg.value) for r in loops if r.arg.type is AxisType.THREAD] == [2]


@pytest.mark.parametrize("shape", [(301, 1031, 300), (300, 600, 259), (700, 3000, 257)])
def test_panels_side_by_side_of_any_shape(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    x, y = data(m, k), data(k, n)
    graph = b.add(b.maximum(matmul(p(0, m, k), p(1, k, n)), 0.0), p(2, m, n))  # what is made of the sums comes once, at the end
    z = data(m, n)
    (got,) = uops.compile(graph, backend="llvm")({"p0": x, "p1": y, "p2": z}).values
    np.testing.assert_array_equal(got, np.maximum(x.astype(np.float64) @ y.astype(np.float64), 0) + z)


def test_rows_that_no_cache_holds_are_read_once_for_several_panels() -> None:
    (panels,) = (u for u in toposort(deep(600, 512, 512)) if u.op is Op.BUFFER)
    (alone,) = (u for u in toposort(deep(100, 512, 512)) if u.op is Op.BUFFER)
    x, y = b.reshape(p(0, 8, 100, 512), (8, 100, 512, 1)), b.reshape(p(1, 8, 512, 512), (8, 1, 512, 512))
    heads = chosen(b.reduce(b.mul(x, y), Op.ADD, (2,)))  # rows of one do not come again in another
    (own,) = (u for u in toposort(heads) if u.op is Op.BUFFER)
    assert own.arg.size == alone.arg.size
    assert panels.arg.size == 4 * alone.arg.size and panels.arg.size * 4 <= WIDE.caches[1] // 2


@pytest.mark.parametrize(("cores", "panels"), [(1, 4), (2, 2), (4, 1)])
def test_panels_side_by_side_leave_two_pieces_for_every_core(cores: int, panels: int) -> None:
    body = chosen(matmul(p(0, 600, 512), p(1, 512, 512)), replace(WIDE, cores=cores))
    (memory,) = (u for u in toposort(body) if u.op is Op.BUFFER)
    assert memory.arg.size == panels * 512 * 64


@pytest.mark.parametrize("shape", [(60, 5000, 70), (1300, 2503, 33), (31, 4099, 48)])
def test_products_in_blocks_of_any_shape(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    x, y = data(m, k), data(k, n)
    (got,) = uops.compile(matmul(p(0, m, k), p(1, k, n)), backend="llvm")({"p0": x, "p1": y}).values
    np.testing.assert_array_equal(got, x.astype(np.float64) @ y.astype(np.float64))


def test_a_deep_convolution_is_done_in_blocks() -> None:
    """The loop that is split is the outermost of three."""
    x, w = data(1, 300, 9, 20), data(40, 300, 3, 3)
    graph = Tensor.from_numpy(x).conv2d(Tensor.from_numpy(w), padding=1)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]), (3, 3), (2, 3))
    np.testing.assert_array_equal(graph.numpy(), np.einsum("nchwij,ocij->nohw", windows, w))


def test_a_deep_product_is_added_to_what_its_output_holds() -> None:
    """Sums of blocks are not kept there: it is read when they are complete (R146)."""
    m, k, n = 600, 8192, 512
    out = UOp(Op.BUFFER, (), BufferArg(m * n, dt.float32, "CPU", AddrSpace.GLOBAL, 7))
    view = b.reshape(out, (m, n))
    graph = b.after(out, b.store(view, b.add(matmul(p(0, m, k), p(1, k, n)), view)))
    (panel, sums) = sorted(
        (u for u in toposort(chosen(graph)) if u.op is Op.BUFFER), key=lambda u: u.arg.addrspace is AddrSpace.REG
    )
    assert panel.arg.addrspace is AddrSpace.LOCAL and sums.arg.addrspace is AddrSpace.REG
    x, y, z = data(m, k), data(k, n), data(m, n)
    (got,) = uops.compile(graph, backend="llvm")({"p0": x, "p1": y, "b7": z.reshape(-1)}).values
    np.testing.assert_array_equal(got.reshape(m, n), x @ y + z)


@pytest.mark.parametrize("second", [1 << 20, 2 << 20, 8 << 20])
@pytest.mark.parametrize("d", [dt.bfloat16, dt.float32], ids=lambda d: d.name)
@pytest.mark.parametrize("k", [4099, 9000])
def test_panels_and_sums_fit_the_stack(k: int, d: dt.DType, second: int) -> None:
    machine = replace(WIDE, caches=(48 << 10, second))
    body = chosen(matmul(p(0, 600, k, dtype=d), p(1, k, 512, dtype=d)), machine)
    assert sum(int(u.arg.size) * u.dtype.itemsize for u in toposort(body) if u.op is Op.BUFFER) <= STACK_LIMIT
