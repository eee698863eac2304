"""The hand-written choices are legal, keep results, and choose what they say."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from scheduled_programs import PROGRAMS, across, inputs, layernorm, matmul, p, softmax

from uops import Tensor
from uops.backends.cache import ObjectCache
from uops.backends.llvm.target import LlvmTarget
from uops.compiler import compile
from uops.compiler.config import Config
from uops.compiler.passes.callify.callify import callify, outputs
from uops.compiler.passes.optimize.heuristics.cpu import LONG, schedule_for_cpu_vectors
from uops.compiler.passes.optimize.optimize import optimize
from uops.compiler.passes.optimize.schedule.accesses import collect_accesses, flatten_loop_nests
from uops.compiler.passes.optimize.schedule.optops import find_loops_around_local_memory_fill_loops, find_rejection_reason
from uops.compiler.passes.optimize.schedule.schedule import Schedule, close_output_loops_into_sink, create_initial_schedule
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.compiler.target import PLAIN, MachineModel, Thresholds
from uops.compiler.tensor.realize import capture
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, BufferArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import open_ranges, ranges_closed_by
from uops.spec.optops import Padto, Split
from uops.spec.rows import compositions as c
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

WIDE, NARROW = MachineModel(vector_bytes=64, registers=32), MachineModel(vector_bytes=16, registers=16)


def first(graph: UOp) -> Schedule:
    found = create_initial_schedule(rangeify(callify(graph)).src[0].src[0])
    assert found is not None
    return found


def shape(s: Schedule) -> list[tuple[str, int]]:
    return [(a.type.letter, int(a.extent)) for a in s.axes if a.extent != 1]


@pytest.mark.parametrize("machine", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_chosen_schedules_keep_the_result(name: str, machine: MachineModel) -> None:
    graph = PROGRAMS[name]()
    launch = rangeify(callify(graph))
    calls = []
    for call in launch.src:
        s = create_initial_schedule(call.src[0])
        assert s is not None
        calls.append(
            call.replace(src=(close_output_loops_into_sink(schedule_for_cpu_vectors(s, machine, count(100))), *call.src[1:]))
        )
    scheduled = launch.replace(src=tuple(calls))
    verify(scheduled, Dialect.SCHEDULED)
    (out,) = outputs(graph)
    got = run(scheduled, inputs(graph)).buffers[f"b{out.buffer.arg.unique}"].reshape(out.shape)
    np.testing.assert_allclose(got, run(graph, inputs(graph)).values[0], rtol=2e-6)


def test_a_machine_without_vectors_changes_nothing() -> None:
    s = first(PROGRAMS["gemm"]())
    assert schedule_for_cpu_vectors(s, PLAIN, count(100)) is s


NARROWER_THAN_AN_ELEMENT = MachineModel(vector_bytes=4)
#: Machines that no target describes, each with a program whose schedule depends on what is small.
EXTREMES = {
    "gemm of wide elements": (
        NARROWER_THAN_AN_ELEMENT,
        lambda: matmul(p(0, 12, 40, dtype=dt.float64), p(1, 40, 24, dtype=dt.float64)),
    ),
    "panel of wide elements": (
        NARROWER_THAN_AN_ELEMENT,
        lambda: matmul(p(0, 60, 16, dtype=dt.float64), b.permute(p(1, 64, 16, dtype=dt.float64), (1, 0))),
    ),
    "argmax of wide elements": (
        NARROWER_THAN_AN_ELEMENT,
        lambda: Tensor.of(p(0, 5, 96, dtype=dt.float64)).argmax(1).uop,
    ),
    "columns and one register": (MachineModel(vector_bytes=8, registers=1), PROGRAMS["column sums"]),
    "few rows and a small cache": (
        MachineModel(vector_bytes=64, registers=32, caches=(1024, 8192)),
        lambda: matmul(p(0, 8, 200), p(1, 200, 256)),
    ),
}


@pytest.mark.parametrize("name", EXTREMES)
def test_schedules_for_extreme_machines_keep_the_result(name: str) -> None:
    machine, make_graph = EXTREMES[name]
    graph = make_graph()
    scheduled = optimize(rangeify(callify(graph)), machine)
    (out,) = outputs(graph)
    got = run(scheduled, inputs(graph)).buffers[f"b{out.buffer.arg.unique}"].reshape(out.shape)
    np.testing.assert_allclose(got, run(graph, inputs(graph)).values[0], rtol=2e-5)


def test_a_gemm_is_a_tile_of_registers() -> None:

    axes = schedule_for_cpu_vectors(first(matmul(p(0, 96, 64), p(1, 64, 128))), WIDE, count(100)).axes
    upcast = [int(a.extent) for a in axes if a.type is AxisType.UPCAST]
    lanes, rows = max(upcast), min(upcast)
    assert lanes % 16 == 0 and rows > 1
    assert rows * (lanes // 16) + lanes // 16 + 1 <= WIDE.registers


@pytest.mark.parametrize(("columns", "depth", "squares"), [(64, 32, True), (64, 30, False), (60, 32, False)])
def test_a_panel_that_lies_across_its_lanes_is_filled_in_squares(columns: int, depth: int, squares: bool) -> None:
    """As many rows of memory as a vector has lanes are read, and turned in registers; where no square divides it, one by one."""
    s = schedule_for_cpu_vectors(first(matmul(p(0, 60, depth), b.permute(p(1, columns, depth), (1, 0)))), WIDE, count(100))
    order = toposort(s.effect)
    needs = open_ranges(order)
    (fill,) = (u for u in order if u.op is Op.STORE and u.src[0].src[0].op is Op.BUFFER)
    lanes = sorted(int(r.src[0].arg.value) for r in needs[fill] if r.arg.type is AxisType.UPCAST)
    assert (lanes == [16, 64]) == squares and len(lanes) == 1 + squares


def test_rows_that_a_tile_adds_read_what_the_last_row_reads() -> None:
    """No gate on a Load, whose test would stand in the loop of the products; the Store has one."""
    s = schedule_for_cpu_vectors(first(matmul(p(0, 97, 20), p(1, 20, 128))), WIDE, count(100))
    assert all(len(u.src) == 1 for u in toposort(s.effect) if u.op is Op.LOAD)
    assert len(s.effect.src) == 3 and any(isinstance(o, Padto) for o in s.done)


def test_rows_are_summed_in_lanes_and_columns_side_by_side() -> None:
    assert shape(schedule_for_cpu_vectors(first(b.reduce(p(0, 8, 128), Op.ADD, (1,))), WIDE, count(100))) == [
        ("L", 2),
        ("u", 4),
        ("R", 4),
        ("r", 32),
    ]
    assert shape(schedule_for_cpu_vectors(first(b.reduce(p(0, 8, 512), Op.ADD, (0,))), WIDE, count(100))) == [
        ("L", 2),
        ("u", 256),
        ("R", 8),
    ]


@pytest.mark.parametrize(
    ("dims", "inner", "loops"),
    [
        ((16, 64, 40), 2, [("L", 16), ("R", 64), ("r", 48)]),
        ((16, 40, 64), 1, [("L", 16), ("R", 40), ("r", 64)]),
        ((16, 40, 100), 1, [("L", 16), ("R", 2), ("R", 40), ("r", 64)]),
    ],
)
def test_of_a_reduction_of_a_reduction_the_one_that_walks_through_memory_has_the_lanes(
    dims: tuple[int, ...], inner: int, loops: list[tuple[str, int]]
) -> None:
    x = np.random.default_rng(0).random(dims, np.float32)
    t = Tensor(x).max(inner).sum(1)
    assert shape(schedule_for_cpu_vectors(first(capture(t).graph), WIDE, count(100))) == loops
    np.testing.assert_allclose(t.numpy(), x.max(inner).sum(1), rtol=1e-6)


def test_a_reduction_of_sums_of_a_short_row_is_no_kernel_without_loops() -> None:
    """Seen: three loops of 16, 64 and 17, all of them unrolled."""
    x = np.random.default_rng(0).random((16, 64, 17), np.float32)
    t = Tensor(x).sum(2).max(0).max(0)
    s = schedule_for_cpu_vectors(first(capture(t).graph), WIDE, count(100))
    assert [n for letter, n in shape(s) if letter in "ur"] == [17]
    np.testing.assert_allclose(t.numpy(), x.sum(2).max(), rtol=1e-6)


def test_lanes_of_a_reduction_are_not_done_side_by_side_in_those_of_another() -> None:
    """What the outer one changes is no load."""
    t = (Tensor(np.ones(64, np.float32)) * Tensor.arange(48).reshape(48, 1).cast(dt.float32)).max(1).sum(0)
    s = schedule_for_cpu_vectors(first(capture(t).graph), WIDE, count(100))
    assert [n for letter, n in shape(s) if letter in "ur"] == [64]


def test_columns_that_are_gathered_lie_in_few_vectors() -> None:
    """What they load does not stream, and their bodies are long."""
    i = Tensor(np.zeros((40, 640), np.int32))
    assert shape(schedule_for_cpu_vectors(first(capture(Tensor(np.zeros(90, np.float32))[i].sum(0)).graph), WIDE, count(100)))[
        1
    ] == (
        "u",
        32,
    )
    swept = schedule_for_cpu_vectors(first(capture(i.sum(0)).graph), WIDE, count(100))
    assert any(u.op is Op.BUFFER for u in toposort(swept.effect))


def test_a_product_of_few_columns_turns_them_and_sums_lanes() -> None:
    s = schedule_for_cpu_vectors(first(matmul(p(0, 90, 64), p(1, 64, 3))), WIDE, count(100))
    assert shape(s) == [("L", 23), ("L", 3), ("L", 64), ("u", 3), ("u", 4), ("R", 4), ("r", 16)] and local_sizes(s) == [192]


def test_a_product_of_few_rows_reads_its_columns_once_in_order() -> None:
    axes = shape(schedule_for_cpu_vectors(first(matmul(p(0, 3, 512), p(1, 512, 2048))), WIDE, count(100)))
    assert ("u", 3) in axes and ("r", 8) in axes
    held = shape(schedule_for_cpu_vectors(first(matmul(p(0, 3, 64), p(1, 64, 128))), WIDE, count(100)))  # a cache holds them
    assert not any(letter == "r" for letter, _ in held)


def test_rows_of_a_small_image_lie_beside_each_other_in_a_tile() -> None:
    """Products of filters (rows) with pixels: an image row of 14 is one vector, so that a tile takes two or more of them."""
    pixels, filters = b.reshape(p(0, 20, 14 * 14), (1, 20, 14, 14)), b.reshape(p(1, 32, 20), (32, 20, 1, 1))
    s = schedule_for_cpu_vectors(first(b.reduce(b.mul(filters, pixels), Op.ADD, (1,))), WIDE, count(100))
    assert sum(letter == "u" for letter, _ in shape(s)) >= 2


def test_pixels_of_small_images_are_columns_together() -> None:
    """Fewer in a row than a vector has lanes, but not in all: a tile of registers, and nothing is turned."""
    corners = b.shrink(b.reshape(p(0, 32, 28 * 28), (32, 14, 2, 14, 2)), (0,) * 5, (32, 14, 1, 14, 1))
    pixels, filters = b.reshape(corners, (1, 32, 14, 14)), b.reshape(p(1, 64, 32), (64, 32, 1, 1))
    found = shape(schedule_for_cpu_vectors(first(b.reduce(b.mul(filters, pixels), Op.ADD, (1,))), WIDE, count(100)))
    assert not any(letter == "r" for letter, _ in found) and sum(letter == "u" for letter, _ in found) >= 3


def test_a_transposed_copy_is_a_square_of_lanes_of_two_loops() -> None:
    across = b.permute(p(0, 64, 96), (1, 0))
    assert shape(schedule_for_cpu_vectors(first(across), WIDE, count(100))) == [("L", 6), ("L", 4), ("u", 16), ("u", 16)]
    assert shape(schedule_for_cpu_vectors(first(b.add(across, p(1, 96, 64))), WIDE, count(100))) == [
        ("L", 6),
        ("L", 4),
        ("u", 16),
        ("u", 16),
    ]
    small = schedule_for_cpu_vectors(first(b.permute(p(0, 5, 96), (1, 0))), WIDE, count(100))
    assert [n for letter, n in shape(small) if letter == "u"] == [4, 4]


def test_loops_that_are_one_walk_are_joined() -> None:
    assert shape(flatten_loop_nests(first(b.add(p(0, 20, 36), p(1, 20, 36))))) == [("L", 720)]
    assert shape(flatten_loop_nests(first(b.add(p(0, 20, 36), b.permute(p(1, 36, 20), (1, 0)))))) == [("L", 20), ("L", 36)]
    assert shape(flatten_loop_nests(first(b.reduce(p(0, 6, 64), Op.ADD, (0, 1))))) == [("R", 384)]
    numbered = b.add(b.reshape(c.arange(720, dt.float32), (20, 36)), p(0, 20, 36))  # an address that is a value too
    assert shape(flatten_loop_nests(first(numbered))) == [("L", 720)]
    padded = first(b.pad(p(0, 4, 4), (0, 0), (4, 6)))  # a gate needs the inner loop alone
    assert shape(flatten_loop_nests(padded)) == [("L", 4), ("L", 6)]


def test_pixels_are_joined_beside_what_each_channel_has() -> None:
    """The loop that addresses a bias alone is not one of those joined."""
    bias = b.expand(b.reshape(p(1, 3), (3, 1, 1)), (3, 4, 5))
    graph = b.add(b.mul(b.permute(p(0, 4, 5, 3), (2, 0, 1)), p(2, 3, 4, 5)), bias)
    assert shape(flatten_loop_nests(first(graph))) == [("L", 3), ("L", 20)]


def test_the_steps_of_a_convolution_are_one_loop_of_its_panel() -> None:
    image, taps = (Tensor.from_numpy(np.zeros(n, np.float32)) for n in ((1, 20, 30, 30), (40, 20, 3, 3)))
    graph, _ = capture(image.conv2d(taps, padding=1))
    s = schedule_for_cpu_vectors(first(graph), WIDE, count(100))
    assert [n for letter, n in shape(s) if letter == "R"] == [180] and len(local_sizes(s)) == 1


def filter_gradient(side: int, channels: int = 64) -> UOp:
    """Return the gradient of a convolution by its filters of 3 x 3, `channels` of `channels`, for an image of `side` x `side`."""
    shapes = (1, channels, side, side), (channels, channels, 3, 3)
    image, filters = (Tensor.from_numpy(np.zeros(n, np.float32)) for n in shapes)
    value = image.conv2d(filters, padding=1)
    graph, _ = capture(*value.gradient(filters, gradient=Tensor.from_numpy(np.zeros(value.shape, np.float32))))
    return graph


def test_lanes_of_a_filter_gradient_are_output_channels_whose_panel_is_filled_in_squares() -> None:
    """Three taps would fill a fifth of a vector, so each sum of many products is stored by itself."""
    s = schedule_for_cpu_vectors(first(filter_gradient(12)), WIDE, count(100))
    assert [int(r.src[0].arg.value) for r in s.outputs if r.arg.type is AxisType.UPCAST] == [64, 6]
    order = toposort(s.effect)
    (fill,) = (u for u in order if u.op is Op.STORE and u.src[0].src[0].op is Op.BUFFER)
    lanes = sorted(int(r.src[0].arg.value) for r in open_ranges(order)[fill] if r.arg.type is AxisType.UPCAST)
    assert lanes == [16, 64]  # 12 pixels of a row are no square, those of all rows are


@pytest.mark.parametrize(("side", "channels", "stride", "panel"), [(7, 256, 9, 9 * 49), (7, 64, 576, 49), (32, 256, 2304, 32 * 32)])
def test_a_panel_has_all_taps_of_a_filter_if_the_cache_holds_them(side: int, channels: int, stride: int, panel: int) -> None:
    """Lanes are input channels then, 9 elements apart. They are output channels if few of these read it, or if it is large."""
    s = schedule_for_cpu_vectors(first(filter_gradient(side, channels)), WIDE, count(100))
    (lanes,) = (r for r in s.outputs if r.arg.type is AxisType.UPCAST and int(r.src[0].arg.value) >= 32)
    assert collect_accesses(s.effect)[-1].stride(lanes) == stride
    assert local_sizes(s) == [panel * int(lanes.src[0].arg.value)]


@pytest.mark.parametrize("vector_bytes", [8, 16, 64])
def test_a_factor_that_all_products_of_a_sum_share_is_in_no_panel(vector_bytes: int) -> None:
    """There is nothing to pack: the second operand does not depend on the loop of the sum."""
    thresholds = Thresholds(reused_rows=8, packed_row_tiles=2)
    machine = replace(WIDE, vector_bytes=vector_bytes, registers=2, thresholds=thresholds)
    graph = b.reduce(b.mul(p(0, 16, 7, 1, dtype=dt.float64), p(1, 1, 3, dtype=dt.float64)), Op.ADD, (1,))
    assert not local_sizes(schedule_for_cpu_vectors(first(graph), machine, count(100)))


@pytest.mark.parametrize(("rows", "columns", "gathered"), [(100, 64, 0), (200, 64, 1), (100, 40, None), (130, 64, 1)])
def test_an_operand_is_gathered_if_it_is_read_often(rows: int, columns: int, gathered: int | None) -> None:
    """The panel of the rows' operand is read 3 times per column, that of the columns' operand once per row.

    If both are read often, the columns are lanes, since their sums lie closer.
    """
    s = schedule_for_cpu_vectors(first(across(rows, columns)), WIDE, count(100))
    lanes = [r for r in s.outputs if r.arg.type is AxisType.UPCAST and int(r.src[0].arg.value) >= 32]
    assert len(lanes) == (gathered is not None)
    stores = collect_accesses(s.effect)[-1]
    assert all(stores.stride(r) == (columns * 3, 3)[gathered or 0] for r in lanes)


@pytest.mark.parametrize(
    ("rows", "depth", "sizes"), [(1024, 300, [300 * 54, 300 * 64]), (640, 300, [300 * 64]), (1024, 40000, [500 * 54, 500 * 64])]
)
def test_rows_whose_operands_are_a_page_apart_from_step_to_step_are_copied(rows: int, depth: int, sizes: list[int]) -> None:
    """A transposed left operand: the rows of nine tiles of six are copied step by step, for each block of a deep product."""
    s = schedule_for_cpu_vectors(first(matmul(b.permute(p(0, depth, rows), (1, 0)), p(1, depth, 64))), WIDE, count(100))
    assert local_sizes(s) == sizes
    assert sorted(int(r.src[0].arg.value) for r in s.outputs if r.arg.type is AxisType.UPCAST) == [6, 64]


@pytest.mark.parametrize(("second_cache", "steps"), [(1 << 21, 100), (1 << 14, 25)], ids=["at once", "in blocks"])
def test_products_of_copied_rows_are_right(second_cache: int, steps: int) -> None:
    """No tile divides the rows, and a small cache holds the operands of some steps alone."""
    target = LlvmTarget(store=ObjectCache(None))
    target.machine = replace(NARROW, caches=(1 << 12, second_cache))
    graph = matmul(b.permute(p(0, 100, 1031), (1, 0)), p(1, 100, 70))
    s = schedule_for_cpu_vectors(first(graph), target.machine, count(100))
    assert len(local_sizes(s)) == 2 and ("R", steps) in shape(s)
    loops = sorted((r for r in s.outputs if r.arg.type is AxisType.LOOP), key=lambda r: int(r.arg.axis_id))
    extents = [int(r.src[0].arg.value) for r in loops]
    assert extents == ([6, 43, 6] if steps == 100 else [2, 4, 43, 6, 3])  # of blocks, then slabs, then tiles and panels
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-4, 5, n).astype(np.float32) for n in ((100, 1031), (100, 70)))
    got = compile(graph, target, Config(verify=True, reuse=False)).function(x, y)
    assert np.array_equal(got, x.T @ y)


def test_each_core_has_a_panel_of_a_product_of_few_columns() -> None:
    """No other loop is around the filling of the panel, which a loop for threads must enclose."""
    graph = matmul(p(0, 4096, 512), p(1, 512, 64))
    for cores, vectors in ((1, 4), (2, 2), (4, 1)):
        s = schedule_for_cpu_vectors(first(graph), MachineModel(vector_bytes=64, registers=32, cores=cores), count(100))
        assert ("u", 16 * vectors) in shape(s)
    small = schedule_for_cpu_vectors(
        first(matmul(p(0, 96, 8), p(1, 8, 64))), MachineModel(vector_bytes=64, registers=32, cores=4), count(100)
    )
    assert ("u", 64) in shape(small)  # not worth threads


def test_an_access_has_its_stride_in_every_loop() -> None:
    s = first(b.add(p(0, 4, 8), b.permute(p(1, 8, 4), (1, 0))))
    i, j = s.outputs
    assert sorted((a.stride(i), a.stride(j)) for a in collect_accesses(s.effect)) == [(1, 4), (8, 1), (8, 1)]


def local_sizes(s: Schedule) -> list[int]:
    return [int(u.arg.size) for u in toposort(s.effect) if u.op is Op.BUFFER]


def rows_in_output(s: Schedule) -> list[int]:
    """Elements that are written to the kernel's own memory before each last Store, in loops that end before it."""
    rows = []
    for u in toposort(s.effect):
        if u.op is Op.AFTER and u.src[0].op is Op.PARAM:
            loops = (x for x in toposort(u.src[1]) if x.op is Op.END)
            rows.append(int(np.prod([r.src[0].arg.value for x in loops for r in ranges_closed_by(x)])))
    return rows


def test_a_row_that_two_loops_share_is_kept_in_the_output() -> None:
    assert rows_in_output(schedule_for_cpu_vectors(first(softmax(p(0, 6, 40))), NARROW, count(100))) == [40]
    assert rows_in_output(schedule_for_cpu_vectors(first(softmax(p(0, 4, 6, 40), 2)), NARROW, count(100))) == [40]
    assert local_sizes(schedule_for_cpu_vectors(first(softmax(p(0, 6, 40))), NARROW, count(100))) == []
    plain = schedule_for_cpu_vectors(first(layernorm(p(0, 4, 36))), NARROW, count(100))  # a difference is cheap to compute again
    assert local_sizes(plain) == rows_in_output(plain) == []
    long = schedule_for_cpu_vectors(first(softmax(p(0, 2, 1 << 20))), NARROW, count(100))  # longer than the second cache
    assert local_sizes(long) == rows_in_output(long) == []


def test_a_row_is_not_kept_in_the_output_where_that_is_read() -> None:
    """Not even where only the element that is stored next is read (R146)."""
    out = UOp(Op.BUFFER, (), BufferArg(240, dt.float32, "CPU", AddrSpace.GLOBAL, 7))
    view = b.reshape(out, (6, 40))
    s = schedule_for_cpu_vectors(first(b.after(out, b.store(view, b.add(softmax(p(0, 6, 40)), view)))), NARROW, count(100))
    assert rows_in_output(s) == [] and local_sizes(s) == [40]


def test_a_row_of_another_dtype_than_the_output_is_kept_in_local_memory() -> None:
    s = schedule_for_cpu_vectors(first(b.cast(softmax(p(0, 6, 40)), dt.float16)), NARROW, count(100))
    assert rows_in_output(s) == [] and local_sizes(s) == [40]


def test_the_rows_of_a_product_share_a_packed_panel() -> None:
    many, few = matmul(p(0, 96, 20), p(1, 20, 128)), matmul(p(0, 12, 20), p(1, 20, 128))
    (size,) = local_sizes(schedule_for_cpu_vectors(first(many), WIDE, count(100)))
    assert size % 20 == 0
    assert local_sizes(schedule_for_cpu_vectors(first(few), WIDE, count(100))) == []
    across = matmul(p(0, 96, 20), b.permute(p(1, 128, 20), (1, 0)))
    assert len(local_sizes(schedule_for_cpu_vectors(first(across), WIDE, count(100)))) == 1


def test_a_loop_around_the_filling_of_local_memory_is_not_split_into_lanes() -> None:
    """Heads of attention: the weights of a row are kept, then multiplied with the rows of another operand."""
    x, y = p(0, 4, 24, 20), p(1, 4, 20, 12)
    e = b.exp2(b.sub(x, b.reduce(x, Op.MAX, (2,))))
    weights = b.div(e, b.reduce(e, Op.ADD, (2,)))
    product = b.mul(b.reshape(weights, (4, 24, 20, 1)), b.reshape(y, (4, 1, 20, 12)))
    for graph in (b.reduce(product, Op.ADD, (2,)), b.reduce(b.mul(e, b.reduce(e, Op.ADD, (2,))), Op.ADD, (2,))):
        launch = rangeify(callify(graph))
        scheduled = optimize(launch, WIDE)
        verify(scheduled, Dialect.SCHEDULED)
        (out,) = outputs(graph)
        given = {k: v / 4 for k, v in inputs(graph).items()}
        got = run(scheduled, given).buffers[f"b{out.buffer.arg.unique}"].reshape(out.shape)
        np.testing.assert_allclose(got, run(graph, given).values[0], rtol=1e-5)
    for columns, inner_split in ((16, None), (40, "another loop around an intermediate Store")):  # 16: no loop over columns
        kept = schedule_for_cpu_vectors(first(softmax(p(0, 64, columns))), WIDE, count(100))
        outer = next(k for k, r in enumerate(kept.ranges) if r in find_loops_around_local_memory_fill_loops(kept.effect))
        assert "LOCAL memory is filled" in (find_rejection_reason(kept, Split(outer, 2, AxisType.UPCAST)) or "")
        reason = find_rejection_reason(kept, Split(outer, 2, AxisType.LOOP))
        assert reason is None if inner_split is None else inner_split in str(reason)


@pytest.mark.parametrize(("operations", "vectors"), [(2, 2), (LONG - 1, 2), (LONG, 1), (12, 1)])
def test_a_long_elementwise_body_has_one_vector_per_iteration(operations: int, vectors: int) -> None:
    u = p(0, 1024)
    for k in range(operations):
        u = b.add(u, 1.5 + k)
    assert shape(schedule_for_cpu_vectors(first(u), WIDE, count(100)))[-1] == ("u", 16 * vectors)


@pytest.mark.parametrize("d", [dt.int32, dt.int64])
def test_places_in_memory_are_computed_again_for_a_second_loop(d: dt.DType) -> None:
    """FOUND 059: read back from memory, a remainder would be any number, outside of what is indexed, or of no word's negative."""
    chosen = UOp(Op.INDEX, (b.flip(p(0, 8, dtype=d), (True,)), p(1, 8, dtype=dt.int64)))
    graph = b.sub(chosen, b.reduce(chosen, Op.MAX, (0,)))
    kernel = close_output_loops_into_sink(schedule_for_cpu_vectors(first(graph), WIDE, count(100)))
    places = [u.src[1] for u in toposort(kernel) if u.op is Op.INDEX and any(i.op is Op.LOAD for i in toposort(u.src[1]))]
    assert len(places) > 1 and all(u.min_max == (0, 7) for u in places)
    given = {"p0": np.arange(10, 18).astype(d.name), "p1": np.array([3, 0, 7, 7, 1, 2, 0, 6])}
    np.testing.assert_array_equal(compile(graph, LlvmTarget())(given).values[0], run(graph, given).values[0])


@pytest.mark.parametrize("n", [10, 64, 100])
def test_a_value_that_two_reductions_of_a_whole_vector_read(n: int) -> None:
    """There is no row of the output that could hold it."""
    x = np.random.default_rng(n).permutation(n).astype(np.int32)
    assert int((Tensor(x) % 7).argmin(0).numpy()) == (x % 7).argmin()
    assert int(Tensor(x.astype(np.float32)).sqrt().argmax(0).numpy()) == x.argmax()
