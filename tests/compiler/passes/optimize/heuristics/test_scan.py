"""Prefix reductions become scans, and nothing else does."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from uops import Tensor
from uops.compiler.passes.callify.callify import callify, outputs
from uops.compiler.passes.optimize.heuristics import scan
from uops.compiler.passes.optimize.heuristics.scan import build_prefix_scan_body
from uops.compiler.passes.optimize.optimize import optimize
from uops.compiler.passes.optimize.schedule.schedule import Schedule, create_initial_schedule
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.compiler.target import PLAIN, MachineModel, Thresholds
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.rows import compositions as c
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

SHARED = Thresholds().shared_scan_elements


def first(graph: UOp) -> Schedule:
    found = create_initial_schedule(rangeify(callify(graph)).src[0].src[0])
    assert found is not None
    return found


def by_rows(x: UOp) -> UOp:
    """Prefix sums of every row, by the trick of the listing: pad, repeat, window."""
    m, n = (int(k) for k in x.shape)
    y = b.pad(x, (0, n - 1), (m, 2 * n - 1))
    y = b.expand(b.reshape(y, (m, 1, 2 * n - 1)), (m, n + 1, 2 * n - 1))
    y = b.shrink(b.reshape(y, (m, (n + 1) * (2 * n - 1))), (0, 0), (m, 2 * n * n))
    y = b.shrink(b.reshape(y, (m, n, 2 * n)), (0, 0, 0), (m, n, n))
    return b.reshape(b.reduce(y, Op.ADD, (2,)), (m, n))


def result(graph: UOp, given: dict[str, np.ndarray]) -> np.ndarray:
    launch = optimize(rangeify(callify(graph)))
    verify(launch, Dialect.SCHEDULED)
    (out,) = outputs(graph)
    found: np.ndarray = run(launch, given).buffers[f"b{out.buffer.arg.unique}"].reshape(out.shape)
    return found


def loops(graph: UOp) -> int:
    return sum(u.op is Op.RANGE for u in toposort(optimize(rangeify(callify(graph)))))


@pytest.mark.parametrize("dtype", [dt.float32, dt.int8, dt.float16], ids=lambda d: d.name)
def test_a_prefix_sum_is_one_loop_and_keeps_its_value(dtype: dt.DType) -> None:
    graph = c.prefix_sum(b.param(0, (20,), dtype))
    assert loops(graph) == 1
    given = {"p0": np.arange(20).astype(dtype.name)}
    np.testing.assert_array_equal(result(graph, given), run(graph, given).values[0])


def test_a_scan_adds_its_terms_unrounded() -> None:
    graph = c.prefix_sum(b.param(0, (20,), dt.float32))
    given = {"p0": np.arange(20, dtype=np.float32) * 1031 + 1}  # more bits than a narrow float has, and sums that float32 holds
    np.testing.assert_array_equal(result(graph, given), np.cumsum(given["p0"]))


def test_prefix_sums_of_rows_carry_nothing_from_row_to_row() -> None:
    graph = by_rows(b.param(0, (3, 9), dt.float32))
    assert loops(graph) == 2
    given = {"p0": np.arange(27, dtype=np.float32).reshape(3, 9)}
    np.testing.assert_array_equal(result(graph, given), np.cumsum(given["p0"], 1))


def running(x: Tensor, k: int, machine: MachineModel = PLAIN) -> list[UOp] | None:
    """The loops of the scan along axis `k`, outermost first; None if it is none."""
    body = build_prefix_scan_body(first(x.cumsum(k).uop), count(1), machine)
    return body and [r for r in toposort(body) if r.op is Op.RANGE]


def test_sums_of_what_is_read_backwards_are_scans() -> None:
    assert running(Tensor(np.zeros(40)).flip(0), 0) is not None
    assert running(Tensor(np.zeros((4, 40))).flip(1), 1) is not None
    x = np.arange(40, dtype=np.int32).reshape(4, 10) ** 2
    np.testing.assert_array_equal(Tensor(x).flip(1).cumsum(1).numpy(), x[:, ::-1].cumsum(1))


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((20, 4), 0), ((3, 20, 5), 1), ((20, 48), 0), ((3, 9, 16), 1), ((9, 2, 3, 16), 0), ((9, 4099), 0), ((9, 4100), 0)],
)
@pytest.mark.parametrize("lanes", [0, 64])
def test_columns_take_the_steps_together(shape: tuple[int, ...], axis: int, lanes: int) -> None:
    x = (np.arange(np.prod(shape)) * 7 % 23).reshape(shape).astype(np.float32)
    t = Tensor(x).cumsum(axis)
    loops = running(Tensor(x), axis, MachineModel(lanes))
    assert loops is not None and any(r.src[0].const == shape[axis] for r in loops)
    lane = lanes // 4
    assert any(r.arg.type is AxisType.UPCAST for r in loops) is (lane > 0 and shape[-1] % lane == 0)
    np.testing.assert_array_equal((t * 2).numpy(), x.cumsum(axis) * 2)
    np.testing.assert_array_equal(t.permute(*range(x.ndim)[::-1]).numpy(), x.cumsum(axis).T)


def test_what_no_column_changes_is_summed_once_per_step() -> None:
    x, y = np.arange(30, dtype=np.int32), np.arange(8, dtype=np.int32)
    t = Tensor(x).cumsum(0).unsqueeze(1) * Tensor(y)
    body = build_prefix_scan_body(first(t.uop), count(1))
    assert body is not None
    assert [u.arg.size for u in toposort(body) if u.op is Op.BUFFER] == [1]
    np.testing.assert_array_equal(t.numpy(), x.cumsum()[:, None] * y)


def test_cores_share_the_columns_of_one_row_of_them() -> None:
    def threads(*shape: int, order: tuple[int, ...] = (0, 1)) -> list[int]:
        loops = running(Tensor(np.zeros(shape, np.float32)).permute(*order), 0, MachineModel(64, cores=2)) or []
        return [r.src[0].const for r in loops if r.arg.type is AxisType.THREAD]

    assert threads(SHARED // 32, 32) == [2]
    assert threads(SHARED // 1024, 32, 32, order=(0, 2, 1)) == [2]
    assert threads(SHARED // 4, 4) == threads(SHARED // 32, 31) == []
    x = (np.arange(SHARED) % 5).reshape(-1, 32).astype(np.float32)
    np.testing.assert_array_equal(Tensor(x).cumsum(0).numpy(), x.cumsum(0))


def test_what_follows_the_sum_stays_in_the_loop() -> None:
    graph = b.mul(c.arange(16), 3)
    assert loops(graph) == 1
    np.testing.assert_array_equal(result(graph, {}), np.arange(16) * 3)


def test_windows_that_do_not_start_empty_are_no_scan() -> None:
    x = b.param(0, (40,), dt.float32)
    repeated = b.reshape(b.expand(b.reshape(x, (1, 40)), (20, 40)), (800,))
    windows = b.shrink(b.reshape(b.shrink(repeated, (0,), (20 * 39,)), (20, 39)), (0, 0), (20, 16))  # x[i + r], no gate
    graph = b.reduce(windows, Op.ADD, (1,))
    assert build_prefix_scan_body(first(graph), count(9)) is None
    given = {"p0": np.arange(40, dtype=np.float32)}
    np.testing.assert_array_equal(result(graph, given), run(graph, given).values[0])


@pytest.mark.parametrize("op", [Op.ADD, Op.MAX], ids=lambda op: op.name)
@pytest.mark.parametrize(("n", "window"), [(32, 8), (20, 16), (17, 16), (16, 16), (9, 20)])
def test_windows_that_are_shorter_than_the_row_lose_terms_and_are_no_scan(n: int, window: int, op: Op) -> None:
    row = b.pad(b.param(0, (n,), dt.uint32), (window - 1,), (n + window - 1,))  # 0 is the identity of both
    graph = b.reduce(_windows(row, n, window), op, (1,))
    x = np.random.default_rng(3).integers(0, 99, n).astype(np.uint32)
    found = result(graph, {"p0": x}).ravel().tolist()
    assert found == [(sum if op is Op.ADD else max)(x[max(0, i - window + 1) : i + 1]) for i in range(n)]
    assert (build_prefix_scan_body(first(graph), count(10**6)) is not None) is (n <= window)


def _windows(row: UOp, n: int, window: int) -> UOp:
    """[i, r] -> row[i + r], for i < n and r < window."""
    (length,) = (int(k) for k in row.shape)
    y = b.reshape(b.expand(b.reshape(row, (1, length)), (n + 1, length)), ((n + 1) * length,))
    return b.shrink(b.reshape(b.shrink(y, (0,), (n * (length + 1),)), (n, length + 1)), (0, 0), (n, window))


def test_a_sum_of_rows_and_a_product_with_rows_are_no_scan() -> None:
    assert build_prefix_scan_body(first(b.reduce(b.param(0, (20, 20), dt.float32), Op.ADD, (1,))), count(9)) is None
    x, y = b.param(0, (20, 20), dt.float32), b.param(1, (20, 20), dt.float32)
    assert build_prefix_scan_body(first(c.gemm(x, y)), count(9)) is None


def test_a_prefix_sum_inside_of_a_reduction_is_no_scan() -> None:
    x = np.arange(6 * 16, dtype=np.int32).reshape(6, 16)
    np.testing.assert_array_equal(Tensor(x).cumsum(1).sum(0).numpy(), x.cumsum(1).sum(0))
    np.testing.assert_array_equal(Tensor(x).reshape(2, 3, 16).cumsum(2).max(1).numpy(), x.reshape(2, 3, 16).cumsum(2).max(1))


def test_a_maximum_with_zeros_before_it_is_no_scan() -> None:
    """The listing pads by 0, which is the identity of a sum and not of a maximum."""
    n = 12
    y = b.pad(b.param(0, (n,), dt.float32), (n - 1,), (2 * n - 1,))
    y = b.shrink(
        b.reshape(b.expand(b.reshape(y, (1, 2 * n - 1)), (n + 1, 2 * n - 1)), ((n + 1) * (2 * n - 1),)), (0,), (2 * n * n,)
    )
    y = b.shrink(b.reshape(y, (n, 2 * n)), (0, 0), (n, n))
    graph = b.reduce(y, Op.MAX, (1,))
    assert build_prefix_scan_body(first(graph), count(9)) is None
    given = {"p0": -np.arange(1, n + 1, dtype=np.float32)}
    np.testing.assert_array_equal(result(graph, given), run(graph, given).values[0])


def shared(graph: UOp, cores: int = 2) -> list[UOp]:
    """The loops of the cores."""
    body = build_prefix_scan_body(first(graph), count(1), MachineModel(cores=cores))
    assert body is not None
    return [r for r in toposort(body) if r.op is Op.RANGE and r.arg.type is AxisType.THREAD]


def test_cores_share_the_rows_of_scans_and_the_parts_of_a_long_one() -> None:
    (rows,) = shared(by_rows(b.param(0, (64, SHARED // 64), dt.float32)))
    (parts,) = shared(c.prefix_sum(b.param(0, (SHARED,), dt.float32)))
    assert (rows.src[0].arg.value, parts.src[0].arg.value) == (64, 2)
    assert (
        shared(c.prefix_sum(b.param(0, (SHARED - 1,), dt.float32)))
        == shared(c.prefix_sum(b.param(0, (SHARED,), dt.float32)), 1)
        == []
    )


@pytest.mark.parametrize("n", [24, 25, 31, 130, 193])
@pytest.mark.parametrize("cores", [2, 3])
@pytest.mark.parametrize("dtype", [dt.float32, dt.float16, dt.int8], ids=lambda d: d.name)
def test_parts_of_a_row_begin_with_what_is_before_them(
    n: int, cores: int, dtype: dt.DType, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(scan, "LANES", 8)
    graph = b.mul(c.prefix_sum(b.param(0, (n,), dtype)), 2)
    given = {"p0": (np.arange(n) % 3).astype(dtype.name)}
    launch = optimize(rangeify(callify(graph)), MachineModel(cores=cores, thresholds=Thresholds(shared_scan_elements=16)))
    verify(launch, Dialect.SCHEDULED)
    assert any(r.op is Op.RANGE and r.arg.type is AxisType.THREAD for r in toposort(launch))
    (out,) = outputs(graph)
    found = run(launch, given).buffers[f"b{out.buffer.arg.unique}"].reshape(out.shape)
    np.testing.assert_array_equal(found, run(graph, given).values[0])


@pytest.mark.parametrize("shape", [(SHARED,), (SHARED + 77,), (5, SHARED // 4 + 3)])
def test_scans_on_several_cores_are_those_of_one(shape: tuple[int, ...]) -> None:
    x = (np.arange(np.prod(shape)) * 7 % 19 - 9).reshape(shape).astype(np.float32)
    np.testing.assert_array_equal(Tensor.from_numpy(x).cumsum(len(shape) - 1).numpy(), x.astype(np.float64).cumsum(-1))


def test_several_scans_are_steps_of_one_loop() -> None:
    x = np.arange(300, dtype=np.int32).reshape(100, 3)
    t = Tensor(x)
    rows, columns = t.pad(((0, 100), (0, 0))), t.pad(((100, 0), (0, 0)))
    both = rows.cumsum(0) + columns.flip(1).cumsum(0)
    body = build_prefix_scan_body(first(both.uop), count(1))
    assert body is not None
    assert not any(u.op is Op.REDUCE for u in toposort(body))
    wanted = np.pad(x, ((0, 100), (0, 0))).cumsum(0) + np.pad(x[:, ::-1], ((100, 0), (0, 0))).cumsum(0)
    np.testing.assert_array_equal(both.numpy(), wanted)


@pytest.mark.parametrize("n", [SHARED + 77])
def test_several_scans_of_long_rows_start_apart(n: int) -> None:
    x = (np.arange(n) % 5).astype(np.float32)
    t = Tensor(x)
    np.testing.assert_array_equal((t.cumsum(0) + t.flip(0).cumsum(0)).numpy(), x.cumsum() + x[::-1].cumsum())


def test_a_wide_prefix_sum_that_another_sum_takes_in_is_a_kernel_of_its_own() -> None:
    x = np.arange(2 * 100, dtype=np.int32).reshape(2, 100)
    for t, wanted, kernels in (
        (Tensor(x).cumsum(1).sum(1), x.cumsum(1).sum(1), 2),
        (Tensor(x[:, :20]).cumsum(1).sum(1), x[:, :20].cumsum(1).sum(1), 1),
        ((Tensor(x) * 2).sum(1), x.sum(1) * 2, 1),
    ):
        assert len(rangeify(callify(t.uop)).src) == kernels
        np.testing.assert_array_equal(t.numpy(), wanted)
