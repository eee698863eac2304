"""TC: products by tensor cores, judged by the interpreter at every stage with the lane maps of real instructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count as count_from
from typing import Any

import numpy as np
import pytest
from scheduled_programs import p
from schedules import DescribedTarget

from uops.compiler.passes.callify.callify import callify, outputs
from uops.compiler.passes.expand import expand
from uops.compiler.passes.linearize import linearize
from uops.compiler.passes.optimize.heuristics.gpu import schedule_for_gpu
from uops.compiler.passes.optimize.optimize import optimize
from uops.compiler.passes.optimize.schedule.optops import apply, find_rejection_reason
from uops.compiler.passes.optimize.schedule.schedule import (
    RejectedOptOp,
    Schedule,
    close_output_loops_into_sink,
    create_initial_schedule,
    set_output_loop_types_before_optops,
)
from uops.compiler.passes.optimize.schedule.tensor_core import TensorCoreMatch, match_tensor_core_or_explain_mismatch
from uops.compiler.passes.optimize.schedule.tensor_tiles import WorkgroupTile, tile_product_for_workgroup
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.compiler.passes.select.select import select
from uops.compiler.target import PLAIN_DTYPES, PLAIN_OPS, MachineModel, Thresholds
from uops.interp import run
from uops.interp.tensor.storage import NUMPY
from uops.spec.errors import SpecError, Trap
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import WmmaArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.optops import TC, Padto, Split
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify
from uops.spec.wmma import DESCRIPTORS, Descriptor

#: Casts stay in the product's kernel: the cost model thinks of machines that convert element by element.
ONE_KERNEL = Thresholds(kernel_cost=1 << 40)
FLOAT32 = (dt.float32, dt.float64, dt.int32)
USABLE = [d for d in DESCRIPTORS if d.dtype_out in FLOAT32]


def arg(d: Descriptor) -> WmmaArg:
    return WmmaArg(d.name, d.dims, d.dtype_in, d.dtype_out, "GPU", d.threads)


def machine(*descriptors: Descriptor) -> MachineModel:
    return MachineModel(
        vector_bytes=16, workgroup=256, local_memory=48 << 10, tensor_cores=tuple(map(arg, descriptors)), thresholds=ONE_KERNEL
    )


def named(name: str, dtype_in: dt.DType | None = None) -> Descriptor:
    return next(d for d in DESCRIPTORS if name in d.name and (dtype_in is None or d.dtype_in is dtype_in))


BF16 = named("m16n8k16.row.col.f32.bf16")
AMX = named("tdpbf16ps")


class Selected(DescribedTarget):
    """A target for selection: nothing is rendered."""

    name, key = "tensor cores", "tensor cores"
    dtypes = PLAIN_DTYPES | {dt.float16, dt.bfloat16, dt.fp8e4m3, dt.fp8e5m2}
    ops = PLAIN_OPS | {Op.BARRIER, Op.WMMA, Op.BITCAST}

    def __init__(self, m: MachineModel) -> None:
        self.machine = m


def gemm(m: int, k: int, n: int, d: Descriptor, transposed: bool = False) -> UOp:
    """A (m, k) times B (k, n), in the descriptor's dtypes; transposed: B is (n, k) and comes first."""
    x, y = p(0, m, k, dtype=d.dtype_in), p(1, *((n, k) if transposed else (k, n)), dtype=d.dtype_in)
    left = b.reshape(b.cast(x, d.dtype_out), (m, k, 1))
    right = b.cast(b.permute(y, (1, 0)) if transposed else y, d.dtype_out)
    right = b.reshape(right, (1, k, n))
    product = b.mul(right, left) if transposed else b.mul(left, right)
    return b.reshape(b.reduce(product, Op.ADD, (1,)), (m, n))


def started(graph: UOp, parallel: bool = True) -> tuple[UOp, Schedule]:
    launch = rangeify(callify(graph), MachineModel(thresholds=ONE_KERNEL))
    (call,) = launch.src
    s = create_initial_schedule(call.src[0])
    assert s is not None
    return launch, set_output_loop_types_before_optops(s, dict.fromkeys(s.outputs, AxisType.GLOBAL)) if parallel else s


def given(graph: UOp) -> dict[str, Any]:
    """Small integers, whose sums are exact in any order and rounding."""
    rng = np.random.default_rng(7)
    params = [u for u in toposort(graph) if u.op is Op.PARAM]
    lo = 0 if any(u.dtype.name.startswith("u") for u in params) else -2
    return {f"p{u.arg.slot}": rng.integers(lo, 3, u.shape).astype(NUMPY[u.dtype]) for u in params}


def stages(launch: UOp, m: MachineModel) -> dict[str, UOp]:
    found = {"scheduled": launch, "expanded": expand(launch)}
    found["selected"] = select(found["expanded"], Selected(m))
    found["linear"] = linearize(found["selected"])
    return found


def agrees(graph: UOp, launch: UOp, s: Schedule, m: MachineModel, only: Sequence[str] = ()) -> dict[str, UOp]:
    """Every stage is well-formed and gives what the program says; gives the stages."""
    (call,) = launch.src
    launch = launch.replace(src=(call.replace(src=(close_output_loops_into_sink(s), *call.src[1:])),))
    values, (out,) = given(graph), outputs(graph)
    expected = run(graph, values).values[0]
    found = stages(launch, m)
    for name, root in found.items():
        verify(root, Dialect[name.upper()], target=Selected(m) if name in ("selected", "linear") else None)
        if not only or name in only:
            got = run(root, values).buffers[f"b{out.buffer.arg.unique}"].reshape(out.shape)
            np.testing.assert_array_equal(got.view(expected.dtype), expected, err_msg=name)
    return found


def count(op: Op, root: UOp) -> int:
    """Nodes of an op in all bodies."""
    return sum(u.op is op for c in root.src for u in toposort(c.src[0]))


@pytest.mark.parametrize("d", [BF16, named("m16n8k8", dt.float16), AMX, named("v_wmma_f32", dt.float16)], ids=lambda d: d.name)
def test_a_product_by_a_tensor_core_gives_the_program_s_value_at_every_stage(d: Descriptor) -> None:
    n, m, k = d.dims
    graph, on = gemm(m, 2 * k, n if d.threads == 1 else 2 * n, d), machine(d)
    launch, s = started(graph)
    s = apply(s, TC(0, -1, 0, 1), on)
    assert any(a.type is AxisType.WARP and a.extent == d.threads for a in s.axes) is (d.threads > 1)
    found = agrees(graph, launch, s, on)
    assert all(count(Op.WMMA, root) == 1 for root in found.values())


@pytest.mark.parametrize("d", USABLE, ids=lambda d: f"{d.name}-{d.dtype_in}")
def test_the_fragments_of_every_descriptor_are_right(d: Descriptor) -> None:
    n, m, k = d.dims
    graph, on = gemm(m, k, n, d), machine(d)
    launch, s = started(graph)
    agrees(graph, launch, apply(s, TC(0, -1, 0, 1), on), on, only=("scheduled",))


@pytest.mark.parametrize("d", [BF16, AMX], ids=lambda d: d.name)
def test_mode_2_has_the_same_axes_and_no_wmma(d: Descriptor) -> None:
    n, m, k = d.dims
    graph, on = gemm(m, k, n, d), machine(d)
    launch, s = started(graph)
    with_, without = (apply(s, TC(0, -1, 0, mode), on) for mode in (1, 2))
    kinds = (AxisType.GLOBAL, AxisType.WARP)
    assert [a for a in with_.axes if a.type in kinds] == [a for a in without.axes if a.type in kinds]
    assert any(a.type is AxisType.UNROLL and a.extent == k for a in without.axes)
    found = agrees(graph, launch, without, on, only=("scheduled", "linear") if d is BF16 else ("scheduled",))
    assert count(Op.WMMA, found["linear"]) == 0


def test_axes_that_no_tile_divides_are_padded_with_opt_2() -> None:
    graph, on = gemm(19, 21, 11, BF16), machine(BF16)
    launch, s = started(graph)
    assert "R97" in (find_rejection_reason(s, TC(0, -1, 1, 1), on) or "")
    agrees(graph, launch, apply(s, TC(0, -1, 2, 1), on), on, only=("scheduled", "linear"))


def test_padding_multiplies_nothing_into_the_sum() -> None:
    """What lies beyond k is 0 in both fragments, whatever the factors would be there: 2^x of nothing is 1."""
    x, y = p(0, 16, 9, dtype=dt.float32), p(1, 9, 8, dtype=dt.float32)
    left, right = (b.cast(b.cast(b.exp2(v), dt.bfloat16), dt.float32) for v in (x, y))
    graph = b.reshape(b.reduce(b.mul(b.reshape(left, (16, 9, 1)), b.reshape(right, (1, 9, 8))), Op.ADD, (1,)), (16, 8))
    launch, s = started(graph)
    on = machine(BF16)
    agrees(graph, launch, apply(s, TC(0, -1, 2, 1), on), on, only=("scheduled", "linear"))


def test_the_factors_may_come_in_either_order() -> None:
    graph, on = gemm(16, 16, 8, BF16, transposed=True), machine(BF16)
    launch, s = started(graph)
    agrees(graph, launch, apply(s, TC(0, -1, 0, 1), on), on, only=("scheduled", "linear"))


def test_what_follows_the_product_is_done_on_its_elements() -> None:
    bias = p(2, 8, dtype=dt.float32)
    graph, on = b.maximum(b.add(gemm(16, 16, 8, BF16), b.reshape(bias, (1, 8))), b.const(0.0)), machine(BF16)
    launch, s = started(graph)
    agrees(graph, launch, apply(s, TC(0, -1, 0, 1), on), on, only=("scheduled", "linear"))


def test_several_warps_work_side_by_side() -> None:
    graph, on = gemm(32, 16, 16, BF16), machine(BF16)
    launch, s = started(graph)
    s = apply(s, TC(0, -1, 0, 1), on)
    for axis in (0, 1):
        s = apply(s, Split(axis, 2, AxisType.LOCAL), on)
    s = apply(s, Split(next(k for k, a in enumerate(s.axes) if a.type is AxisType.REDUCE), 1, AxisType.REDUCE), on)
    agrees(graph, launch, s, on, only=("scheduled", "linear"))


def test_several_reduce_axes_need_opt_1() -> None:
    d = BF16
    x, y = p(0, 16, 3, 16, dtype=d.dtype_in), p(1, 3, 16, 8, dtype=d.dtype_in)
    product = b.mul(b.reshape(b.cast(x, dt.float32), (16, 3, 16, 1)), b.reshape(b.cast(y, dt.float32), (1, 3, 16, 8)))
    graph, on = b.reshape(b.reduce(product, Op.ADD, (1, 2)), (16, 8)), machine(d)
    launch, s = started(graph)
    axes = [a for a in s.axes if a.type is AxisType.REDUCE]
    at = next(k for k, a in enumerate(axes) if a.extent == 16)
    assert "opt 0 takes one reduce axis" in (find_rejection_reason(s, TC(at, -1, 0, 1), on) or "")
    agrees(graph, launch, apply(s, TC(at, -1, 1, 1), on), on, only=("scheduled", "linear"))


def test_the_first_descriptor_that_fits_is_taken() -> None:
    other = named("m16n8k16", dt.float16)
    _, s = started(gemm(16, 16, 8, BF16))
    on = machine(other, BF16)
    found = apply(s, TC(0, -1, 0, 1), on)
    (wmma,) = (u for u in toposort(found.effect) if u.op is Op.WMMA)
    assert wmma.arg == arg(BF16)
    assert "multiplies float16" in (find_rejection_reason(s, TC(0, 0, 0, 1), on) or "")
    assert "no tensor core 2" in (find_rejection_reason(s, TC(0, 2, 0, 1), on) or "")


@pytest.mark.parametrize(
    ("graph", "why"),
    [(lambda: b.reduce(p(0, 16, 16), Op.ADD, (1,)), "two output axes"),
     (lambda: b.reshape(b.reduce(b.mul(b.reshape(p(0, 16, 16), (16, 16, 1)), b.reshape(p(1, 16, 8), (1, 16, 8))), Op.ADD, (1,)),
                        (16, 8)), "multiplies bfloat16 into float32"),
     (lambda: b.reshape(b.reduce(b.cast(b.mul(b.reshape(p(0, 16, 16, dtype=dt.bfloat16), (16, 16, 1)),
                                              b.reshape(p(1, 16, 8, dtype=dt.bfloat16), (1, 16, 8))), dt.float32), Op.ADD, (1,)),
                        (16, 8)), "no Mul"),
     (lambda: b.reshape(b.reduce(b.mul(b.cast(b.reshape(p(0, 16, 16, dtype=dt.bfloat16), (16, 16, 1)), dt.float32),
                                       b.cast(b.reshape(p(1, 16, 8, dtype=dt.bfloat16), (1, 16, 8)), dt.float32)), Op.MAX, (1,)),
                        (16, 8)), "no Mul")],
    ids=["one output", "float32", "cast of the product", "maximum"],
)  # fmt: skip
def test_what_is_no_product_of_the_descriptor_is_rejected_R93(graph: Any, why: str) -> None:
    _, s = started(graph())
    reason = find_rejection_reason(s, TC(0, -1, 0, 1), machine(BF16))
    assert reason is not None and why in reason and ("R93" in reason or "R97" in reason)
    with pytest.raises(RejectedOptOp, match="R9"):
        apply(s, TC(0, -1, 0, 1), machine(BF16))


@pytest.mark.parametrize("opt", [TC(0, -1, level, mode) for level in (0, 2) for mode in (1, 2)], ids=str)
def test_a_symbolic_reduce_axis_is_rejected_R97(opt: TC) -> None:
    steps, on = b.variable("k", 1, 32), machine(BF16)
    left = b.shrink(p(0, 32, 32, dtype=BF16.dtype_in), (0, 0), (32, steps))
    right = b.shrink(p(1, 32, 16, dtype=BF16.dtype_in), (0, 0), (steps, 16))
    left, right = b.cast(left, BF16.dtype_out), b.cast(right, BF16.dtype_out)
    product = b.mul(b.reshape(left, (32, steps, 1)), b.reshape(right, (1, steps, 16)))
    _, s = started(b.reshape(b.reduce(product, Op.ADD, (1,)), (32, 16)))
    assert "R97" in (find_rejection_reason(s, opt, on) or "")
    with pytest.raises(RejectedOptOp, match="R97"):
        apply(s, opt, on)
    assert not any(u.op is Op.WMMA for u in toposort(schedule_for_gpu(s, on, count_from(900)).effect))


def test_tc_comes_first_and_what_it_made_is_left_whole() -> None:
    on = machine(BF16)
    _, s = started(gemm(32, 32, 16, BF16))
    assert "R93" in (find_rejection_reason(apply(s, Split(0, 2, AxisType.GLOBAL), on), TC(0), on) or "")
    s = apply(s, TC(0, -1, 0, 1), on)
    kinds = [a.type for a in s.axes]
    reduce = kinds.index(AxisType.REDUCE)
    assert "R142" in (find_rejection_reason(s, Split(0, 2, AxisType.UPCAST), on) or "")
    assert "R142" in (find_rejection_reason(s, Padto(0, 3), on) or "")
    assert "R142" in (find_rejection_reason(s, Split(reduce, 2, AxisType.UNROLL), on) or "")
    assert "R142" in (find_rejection_reason(s, Split(reduce, 2, AxisType.GROUP_REDUCE), on) or "")
    assert find_rejection_reason(s, Split(reduce, 2, AxisType.REDUCE), on) is None
    assert find_rejection_reason(s, Split(0, 2, AxisType.LOCAL), on) is None


def test_the_hand_written_choice_uses_a_tensor_core() -> None:
    graph, on = gemm(32, 32, 16, BF16), machine(BF16)
    launch = optimize(rangeify(callify(graph), on), on)
    assert count(Op.WMMA, launch) == 1
    (out,) = outputs(graph)
    got = run(launch, given(graph)).buffers[f"b{out.buffer.arg.unique}"].reshape(out.shape)
    np.testing.assert_array_equal(got, run(graph, given(graph)).values[0])


# ------------------------------------------------------------------------------------- tiles of a workgroup, in LOCAL memory

WHOLE = [named("m16n8k16.row.col.f32.bf16"), named("m16n8k16.row.col.s32.s8"), named("m8n8k4", dt.float64)]


def tiled(graph: UOp, on: MachineModel, tile: WorkgroupTile) -> tuple[UOp, Schedule]:
    launch, s = started(graph)
    match = match_tensor_core_or_explain_mismatch(s, TC(0, -1, 2), on.tensor_cores)
    assert isinstance(match, TensorCoreMatch), match
    return launch, tile_product_for_workgroup(s, match, tile, count_from(900))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("d", WHOLE, ids=lambda d: f"{d.name}-{d.dtype_in}")
def test_tiles_of_a_workgroup_give_the_program_s_value_at_every_stage(d: Descriptor, transposed: bool) -> None:
    """Three pieces of k: both halves of the panels are filled while the other is read, and one is filled again."""
    tile, (n, m, k) = WorkgroupTile(1, 2, 2, 1, 1), d.dims
    graph, on = gemm(2 * m, 3 * k, 2 * n, d, transposed), machine(d)
    launch, s = tiled(graph, on, tile)
    found = agrees(graph, launch, s, on, only=("scheduled", "linear"))
    assert count(Op.WMMA, found["linear"]) == tile.tiles_m * tile.tiles_n * tile.tiles_k
    assert count(Op.BARRIER, found["linear"]) == 1


def test_tiles_of_a_workgroup_pad_all_axes() -> None:
    graph, on = gemm(19, 21, 11, BF16), machine(BF16)
    launch, s = tiled(graph, on, WorkgroupTile(2, 1, 1, 2, 2))
    agrees(graph, launch, s, on, only=("scheduled",))


def test_a_barrier_that_is_missing_in_a_panel_is_a_trap_R55() -> None:
    graph, on = gemm(16, 32, 16, BF16), machine(BF16)
    launch, s = tiled(graph, on, WorkgroupTile(1, 2, 1, 1, 1))
    (met,) = [u for u in toposort(s.effect) if u.op is Op.BARRIER]
    without = replace(s, effect=substitute(s.effect, {met: UOp(Op.GROUP, met.src)}))
    with pytest.raises((Trap, SpecError)):
        agrees(graph, launch, without, on, only=("scheduled",))


def test_a_cast_that_a_tensor_core_takes_stays_in_the_product_s_kernel() -> None:
    graph = callify(gemm(256, 256, 256, BF16))
    assert len(rangeify(graph).src) == 3
    assert len(rangeify(graph, replace(machine(BF16), thresholds=Thresholds())).src) == 1


@pytest.mark.parametrize(("size", "blocks"), [(2048, (128, 128)), (1024, (128, 64)), (32, (32, 32))])
def test_blocks_of_a_product_fill_the_machine_if_they_can(size: int, blocks: tuple[int, int]) -> None:
    """The largest block of which there are enough, and the least where none has."""
    _, s = started(gemm(size, size, size, BF16))
    scheduled = schedule_for_gpu(s, machine(BF16), count_from(900))
    grid = [r for r in scheduled.outputs if r.arg.type is AxisType.GLOBAL]
    assert [size // int(r.bound.const) for r in grid] == list(blocks)
