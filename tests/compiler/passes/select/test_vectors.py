"""Vector axes become native vectors, and every stage on the way gives the same bits as the schedule they came from."""

from typing import Any

import numpy as np
import pytest
from schedules import FAST, LOOP, NUMPY, REDUCE, UNROLL, UNVERIFIED, UPCAST, agree, later_stages, nested, padded, scheduled, split

from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.compiler import lower
from uops.compiler.target import PLAIN
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.rows import compositions as c

F32 = dt.float32


def floats(*shape: int, dtype: Any = np.float32) -> Any:
    """Small multiples of 1/4: sums and products of them are exact."""
    n = int(np.prod(shape))
    return (np.arange(n, dtype=np.float64) * 7 % 23 / 4 - 2).astype(dtype).reshape(shape)


def p(slot: int, *shape: int, dtype: DType = F32) -> UOp:
    return b.param(slot, shape, dtype)


def count(root: UOp, op: Op, shape: tuple[int, ...] | None = None) -> int:
    return sum(u.op is op and (shape is None or u.shape == shape) for u in toposort(root))


def test_an_elementwise_kernel_is_vector_accesses_and_vector_arithmetic() -> None:
    root = scheduled(b.add(p(0, 64), p(1, 64)), split(0, 16, UPCAST))
    stages = agree(root, {"p0": floats(64), "p1": floats(64) * 3})
    selected = stages["selected"]
    w = FAST.machine.lanes(F32)
    assert count(selected, Op.LOAD, (w,)) == 2 * 16 // w and count(selected, Op.LOAD, ()) == 0


@pytest.mark.parametrize("factor", [1, 2, 3, 4, 6, 12, 20, 24, 48])
def test_a_vector_axis_of_any_extent_is_cut_into_powers_of_two(factor: int) -> None:
    root = scheduled(b.mul(b.add(p(0, 240), 1.0), p(1, 240)), split(0, factor, UPCAST))
    agree(root, {"p0": floats(240), "p1": floats(240)})


@pytest.mark.parametrize("tile", [(2, 32, 1), (6, 16, 1), (4, 4, 2), (3, 8, 4)])
def test_a_register_tile_of_a_gemm(tile: tuple[int, int, int]) -> None:
    mi, nj, uk = tile
    graph = c.gemm(p(0, 12, 8), p(1, 8, 32))
    loops = nested(1, 0) if nj < 32 else nested(0)
    root = scheduled(graph, split(2, uk, UNROLL), split(0, mi, UPCAST), split(1, nj, UPCAST), loops)
    agree(root, {"p0": floats(12, 8), "p1": floats(8, 32)})


@pytest.mark.parametrize("d", dt.STORABLE, ids=lambda d: d.name)
def test_products_of_every_dtype_are_summed_in_a_tile(d: DType) -> None:
    """Small floats are summed in float32, their products exact (R32): the numbers here are exact however they are rounded."""
    x = (np.arange(12 * 8) % 3 - 1).reshape(12, 8).astype(NUMPY[d.name])
    y = (np.arange(8 * 32) % 5 % 2).reshape(8, 32).astype(NUMPY[d.name])
    graph = c.gemm(p(0, 12, 8, dtype=d), p(1, 8, 32, dtype=d))
    agree(scheduled(graph, split(2, 2, UNROLL), split(0, 3, UPCAST), split(1, 32, UPCAST), nested(0)), {"p0": x, "p1": y})


@pytest.mark.parametrize("factor", [2, 4, 8, 16, 32, 64, 6])
@pytest.mark.parametrize("op", [Op.ADD, Op.MAX, Op.MUL])
def test_a_row_reduction_folds_the_lanes_of_its_accumulators(factor: int, op: Op) -> None:
    x = p(0, 3, 192)
    value = b.maximum(x, -2.0) if op is Op.MUL else x
    root = scheduled(b.reduce(value, op, (1,)), split(1, factor, UNROLL))
    data = np.where(floats(3, 192) > 3, 2, 1).astype(np.float32) if op is Op.MUL else floats(3, 192)
    agree(root, {"p0": data})


def test_rows_and_lanes_together() -> None:
    """A product of a matrix and a vector: lanes go along the reduced axis, rows are accumulators side by side."""
    graph = b.reduce(b.mul(p(0, 8, 64), b.expand(b.reshape(p(1, 64), (1, 64)), (8, 64))), Op.ADD, (1,))
    root = scheduled(graph, split(0, 4, UPCAST), split(1, 16, UNROLL))
    stages = agree(root, {"p0": floats(8, 64), "p1": floats(64)})
    w = FAST.machine.lanes(F32)
    assert count(stages["selected"], Op.LOAD, (w,)) > 0


@pytest.mark.parametrize("changes", [(split(0, 8, UPCAST),), (split(1, 8, UPCAST),), (split(0, 4, UPCAST), split(1, 16, UPCAST))])
def test_a_transpose_gathers_or_scatters(changes: Any) -> None:
    root = scheduled(b.contiguous(b.permute(p(0, 16, 32), (1, 0))), *changes)
    agree(root, {"p0": floats(16, 32)})


def test_reversed_lanes() -> None:
    agree(scheduled(b.contiguous(b.flip(p(0, 64), (True,))), split(0, 16, UPCAST)), {"p0": floats(64)})


@pytest.mark.parametrize("d", [dt.bool_, dt.int8, dt.bfloat16, dt.float32, dt.uint64], ids=lambda d: d.name)
@pytest.mark.parametrize("side", [4, 8, 16])
def test_a_square_of_lanes_is_loaded_along_memory_and_transposed(side: int, d: DType) -> None:
    x = (np.arange(32 * 48) % 97 % 2 if d is dt.bool_ else np.arange(32 * 48) % 97).astype(NUMPY[d.name]).reshape(32, 48)
    root = scheduled(b.permute(p(0, 32, 48, dtype=d), (1, 0)), split(0, side, UPCAST), split(1, side, UPCAST))
    selected = agree(root, {"p0": x})["selected"]
    w = min(side, FAST.machine.vector_bytes // d.itemsize)
    if w == side:
        assert count(selected, Op.LOAD, (side,)) == side and count(selected, Op.LOAD, ()) == 0
        assert count(selected, Op.WHERE, (side,)) == side * (side.bit_length() - 1)


def test_squares_of_gated_loads_and_of_expressions() -> None:
    """Padded on both sides, and beside a load that is contiguous as it is."""
    graph = b.mul(b.add(b.permute(p(0, 13, 29), (1, 0)), 1.0), p(1, 29, 13))
    root = scheduled(graph, padded(0, 8), padded(1, 8), split(0, 8, UPCAST), split(1, 8, UPCAST))
    selected = agree(root, {"p0": floats(13, 29), "p1": floats(29, 13)})["selected"]
    assert count(selected, Op.LOAD, (8,)) == 16 and count(selected, Op.LOAD, ()) == 0


@pytest.mark.parametrize("d", [dt.bool_, dt.bfloat16, dt.float32, dt.uint64], ids=lambda d: d.name)
@pytest.mark.parametrize("extent", [16, 13])
def test_every_second_element_is_loaded_in_two_contiguous_halves(extent: int, d: DType) -> None:
    """Its odd lanes are gated off, so that none is read; the lanes' own gates, of padded loops, hold beside that."""
    x = (np.arange(3 * 2 * extent) % 97 % (2 if d is dt.bool_ else 97)).astype(NUMPY[d.name]).reshape(3, extent, 2)
    graph = b.contiguous(b.reshape(b.shrink(p(0, 3, extent, 2, dtype=d), (0, 0, 1), (3, extent, 1)), (3, extent)))
    root = scheduled(graph, padded(1, 16), split(1, 16, UPCAST))
    selected = agree(root, {"p0": x})["selected"]
    w = min(16, FAST.machine.lanes(d))
    if FAST.machine.masks:
        loads = [u for u in toposort(selected) if u.op is Op.LOAD]
        assert [u.shape for u in loads] == [(w,)] * (2 * 16 // w) and all(u.src[2].shape == (w,) for u in loads)


def test_every_second_element_with_an_alternative_of_its_own() -> None:
    """Pad before the stride: gate and alternative change from lane to lane."""
    graph = b.contiguous(b.reshape(b.shrink(b.reshape(b.pad(p(0, 29), (2,), (32,)), (16, 2)), (0, 1), (16, 1)), (16,)))
    agree(scheduled(graph, split(0, 16, UPCAST)), {"p0": floats(29) + 50})


def test_padded_rows_are_stored_in_whole_vectors() -> None:
    """The last lanes of a row, gated off, have the addresses of the next row's first."""
    root = scheduled(b.add(p(0, 6, 13), 1.0), padded(1, 16), split(1, 16, UPCAST), split(0, 3, UPCAST))
    selected = agree(root, {"p0": floats(6, 13)})["selected"]
    assert count(selected, Op.STORE) == 3 * 16 // min(16, FAST.machine.lanes(F32))


def test_columns_that_form_no_square_are_loaded_lane_by_lane() -> None:
    agree(scheduled(b.permute(p(0, 32, 3), (1, 0)), split(1, 16, UPCAST), split(0, 3, UPCAST)), {"p0": floats(32, 3)})
    diagonal = b.shrink(b.reshape(p(0, 16 * 17), (16, 17)), (0, 0), (16, 1))
    agree(scheduled(b.expand(diagonal, (16, 16)), split(0, 16, UPCAST), split(1, 16, UPCAST)), {"p0": floats(16 * 17)})


@pytest.mark.parametrize("n", [5, 16, 21, 37])
def test_a_padded_axis_is_masked(n: int) -> None:
    root = scheduled(b.add(p(0, n), 1.0), padded(0, 16), split(0, 16, UPCAST))
    agree(root, {"p0": floats(n)})
    root = scheduled(b.reduce(b.add(p(0, 3, n), 1.0), Op.ADD, (1,)), padded(1, 32), split(1, 32, UNROLL))
    agree(root, {"p0": floats(3, n)})


def test_a_gate_that_all_lanes_share_stays_a_branch() -> None:
    root = scheduled(b.add(p(0, 5, 16), 1.0), padded(0, 4), split(1, 16, UPCAST))
    stages = agree(root, {"p0": floats(5, 16)})
    assert all(u.src[2].shape == () for u in toposort(stages["selected"]) if u.op is Op.LOAD and len(u.src) == 3)


@pytest.mark.parametrize("d", dt.STORABLE, ids=lambda d: d.name)
def test_every_dtype_in_lanes(d: DType) -> None:
    x, y = p(0, 64, dtype=d), p(1, 64, dtype=d)
    sums = b.or_(x, y) if d is dt.bool_ else b.add(b.mul(x, y), x)
    data = {"p0": floats(64).astype(NUMPY[d.name]), "p1": floats(64)[::-1].astype(NUMPY[d.name])}
    agree(scheduled(b.where(b.lt(x, y), sums, b.maximum(x, y)), split(0, 32, UPCAST)), data)


@pytest.mark.parametrize("d", dt.STORABLE, ids=lambda d: d.name)
def test_every_dtype_is_reduced_in_lanes(d: DType) -> None:
    op = Op.MAX if d.is_float and d.bits == 8 else Op.ADD
    root = scheduled(b.reduce(p(0, 2, 64, dtype=d), op, (1,)), split(1, 32, UNROLL))
    agree(root, {"p0": floats(2, 64).astype(NUMPY[d.name])})


EDGES = np.array([0.0, -0.0, 1.5, -1.5, 127.9, -128.9, 255.9, 3e9, -3e9, 1e20, -1e20, np.inf, -np.inf, np.nan, 0.5, 65504.0])


@pytest.mark.parametrize("to", dt.STORABLE, ids=lambda d: d.name)
@pytest.mark.parametrize("of", dt.STORABLE, ids=lambda d: d.name)
def test_conversions_between_widths(of: DType, to: DType) -> None:
    with np.errstate(all="ignore"):
        data = EDGES.astype(NUMPY[of.name]) if of.is_float else np.arange(-8, 8).astype(NUMPY[of.name])
    agree(scheduled(b.cast(p(0, 16, dtype=of), to), split(0, 16, UPCAST)), {"p0": data}, tiers=(FAST,))


def test_elementary_functions_and_random_words_in_lanes() -> None:
    data = np.linspace(0.1, 9, 32).astype(np.float32)
    for f in (b.exp2, b.log2, b.sin, b.sqrt, b.recip, b.trunc, lambda x: b.pow_(x, x)):
        later_stages(scheduled(f(p(0, 32)), split(0, 32, UPCAST)))
    words = np.arange(32, dtype=np.uint64) * 0x123456789
    root = scheduled(b.threefry(p(0, 32, dtype=dt.uint64), p(1, 32, dtype=dt.uint64)), split(0, 16, UPCAST))
    agree(root, {"p0": words, "p1": words[::-1].copy()})
    agree(scheduled(b.mulacc(b.sqrt(p(0, 32)), b.trunc(p(0, 32)), b.recip(p(0, 32))), split(0, 16, UPCAST)), {"p0": data})


def test_integer_division_and_shifts_in_lanes() -> None:
    i, j = p(0, 64, dtype=dt.int32), p(1, 64, dtype=dt.int32)
    data = {
        "p0": np.array([-7, 7, -(2**31), 2**31 - 1, 0, -1, 5, 100] * 8, np.int32),
        "p1": np.repeat(np.array([2, -2, -1, 0, 3, 33, 31, 7], np.int32), 8),
    }
    for op in (Op.IDIV, Op.MOD, Op.SHL, Op.SHR):
        agree(scheduled(b.build_alu_with_promotion(op, i, j), split(0, 16, UPCAST)), data)


def test_lane_numbers_are_values_too() -> None:
    agree(scheduled(b.add(b.cast(c.arange(64), F32), p(0, 64)), split(0, 16, UPCAST)), {"p0": floats(64)})


def test_a_gather_by_loaded_positions() -> None:
    graph = b.at(p(0, 50), b.cast(p(1, 64, dtype=dt.int32), dt.index))
    at = (np.arange(64) * 37 % 50).astype(np.int32)
    agree(scheduled(graph, split(0, 16, UPCAST)), {"p0": floats(50), "p1": at})


def test_lanes_at_an_offset_that_would_wrap_when_multiplied_out_are_one_vector_R08() -> None:
    """(n - 70000) * 70000 fits int32, but its constant of the form 70000 * n - 4900000000 does not."""
    n, lane, size = b.variable("n", 70_000, 70_010, 1), b.range_(8, 0, UPCAST), 700_008
    place = b.at(p(0, size, dtype=dt.int8), b.add(b.mul(b.sub(n, 70_000), 70_000), lane))
    body = b.sink(b.end(b.store(place, b.const(1, dt.int8)), lane), name="k")
    root = UOp(Op.LINEAR, (b.call(body, b.buffer(size, dt.int8, unique=0), n, written=(0,)),))
    selected = agree(root, {"b0": np.zeros(size, np.int8), "n": 70_005})["selected"]
    assert [u.value.shape for u in toposort(selected) if u.op is Op.STORE] == [(8,)]
    assert dt.int64 not in {u.dtype for u in toposort(selected)}


def test_lanes_that_are_further_apart_than_the_integer_holds_R08() -> None:
    """The lanes are n - 2e9 and n + 2e9, which fit int32; their distance does not."""
    n, lane = b.variable("n", -(10**8), 10**8, 1), b.range_(2, 0, UPCAST)
    step = b.mul(lane, 2 * 10**9)
    value = b.cast(b.add(b.add(b.sub(step, 2 * 10**9), step), n), dt.int64)
    body = b.sink(b.end(b.store(b.at(p(0, 2, dtype=dt.int64), lane), value), lane), name="k")
    root = UOp(Op.LINEAR, (b.call(body, b.buffer(2, dt.int64, unique=0), n, written=(0,)),))
    agree(root, {"b0": np.zeros(2, np.int64), "n": -7})


class Plain(LlvmTarget):
    """The same target without a description."""

    def __init__(self) -> None:
        super().__init__(LlvmTier.FAST)
        self.machine = PLAIN


def test_a_store_of_lane_numbers_alone_is_a_vector_kernel_too() -> None:
    root = scheduled(b.contiguous(c.arange(16)), split(0, 16, UPCAST))
    for target in (FAST, Plain()):
        stages = agree(root, {}, target=target)
        wide = [u for u in toposort(stages["selected"]) if u.op is Op.STORE and u.src[0].shape != ()]
        assert bool(wide) == (target is FAST)


def test_stores_in_lanes_that_a_load_waits_for_are_one_effect() -> None:
    """A Group that both the Sink and an After hold: three vectors are written, then read reversed."""
    u, v = b.range_(24, 0, UPCAST), b.range_(24, 1, UPCAST)
    local = b.buffer(24, F32, addrspace=AddrSpace.LOCAL, unique=9)
    filled = b.end(b.store(b.at(local, u), b.mul(b.load(b.at(p(1, 24), u)), 2.0)), u)
    value = b.load(b.at(b.after(local, filled), b.sub(23, v)))
    body = b.sink(filled, b.end(b.store(b.at(p(0, 24), v), value), v), name="k")
    call = b.call(body, b.buffer(24, F32, unique=1), b.param(0, (24,), F32), written=(0,))
    agree(UOp(Op.LINEAR, (call,)), {"p0": floats(24), "b1": np.zeros(24, np.float32)})


@pytest.mark.parametrize("kinds", [(UPCAST, UPCAST), (UPCAST, LOOP), (LOOP, UPCAST)], ids=str)
def test_an_element_may_be_ordered_in_the_place_of_its_memory(kinds: tuple[AxisType, AxisType]) -> None:
    """After of an Index: what is read in lanes, or one by one, beside what lanes write."""
    u, v = (b.range_(8, k, kind) for k, kind in enumerate(kinds))
    local = b.buffer(8, F32, addrspace=AddrSpace.LOCAL, unique=9)
    filled = b.end(b.store(b.at(local, u), b.mul(b.load(b.at(p(1, 8), u)), 2.0)), u)
    ordered = b.after(b.after(b.at(local, b.sub(7, v)), filled), filled)
    body = b.sink(b.end(b.store(b.at(p(0, 8), v), b.load(ordered)), v), name="k")
    call = b.call(body, b.buffer(8, F32, unique=1), b.param(0, (8,), F32), written=(0,))
    agree(UOp(Op.LINEAR, (call,)), {"p0": floats(8), "b1": np.zeros(8, np.float32)})


def test_short_rows_of_a_panel_share_accumulators() -> None:
    """Rows of 7, of 8 lanes each: an accumulator is a whole vector, and pieces of it are stored."""
    pixels, filters = b.reshape(p(0, 32, 7, 7), (1, 32, 7, 7)), b.reshape(p(1, 60, 32), (60, 32, 1, 1))
    root = lower(b.reduce(b.mul(filters, pixels), Op.ADD, (1,)), FAST, "optimize", UNVERIFIED)
    selected = agree(root, {"p0": floats(32, 7, 7), "p1": floats(60, 32)})["selected"]
    w = FAST.machine.lanes(F32)
    if w > 8:
        assert count(selected, Op.MULACC, (w,)) >= 2 * count(selected, Op.MULACC, (8,))


def test_a_machine_without_vectors_unrolls() -> None:
    assert Plain().machine is PLAIN
    root = scheduled(c.gemm(p(0, 4, 8), p(1, 8, 4)), split(0, 2, UPCAST), split(1, 4, UPCAST), split(2, 2, UNROLL))
    stages = agree(root, {"p0": floats(4, 8), "p1": floats(8, 4)}, target=Plain())
    assert all(u.shape == () for u in toposort(stages["selected"]) if u.op in (Op.LOAD, Op.ADD, Op.MUL))


def test_loops_stay_where_they_are() -> None:
    root = scheduled(c.gemm(p(0, 8, 16), p(1, 16, 32)), split(0, 2, LOOP), split(1, 16, UPCAST), split(2, 4, REDUCE))
    agree(root, {"p0": floats(8, 16), "p1": floats(16, 32)})


def test_a_store_that_is_contiguous_along_no_axis_has_lanes_along_the_longer_one() -> None:
    """A tile of 16 x 2 elements, none beside another: lanes are the 16."""
    x = b.expand(p(0, 32, 1, 1), (32, 4, 5))
    root = scheduled(b.mul(x, b.add(x, 1.0)), split(0, 16, UPCAST), split(1, 2, UPCAST))
    selected = agree(root, {"p0": floats(32, 1, 1)})["selected"]
    assert count(selected, Op.MUL, (FAST.machine.lanes(F32),)) and not count(selected, Op.MUL, (2,))


@pytest.mark.parametrize(
    ("phases", "depth", "loads", "crossed", "apart"),
    [
        (2, 3, 2, True, True), (4, 3, 2, True, True), (3, 1, 2, True, True),
        (4, 1, 2, True, False),  # without a Reduce, squares of 4 x 4 elements are transposed
        (9, 3, 2, True, False),  # too far apart
        (2, 3, 1, True, False),  # a vector that is loaded costs no more than one that is stored
        (2, 3, 2, False, False),  # the memory that is read is contiguous across phases, too
    ],
)  # fmt: skip
def test_interleaved_lanes_of_a_store_are_those_that_read_contiguous_memory(
    phases: int, depth: int, loads: int, crossed: bool, apart: bool
) -> None:
    """Phase q reads rows of its own. The Store is contiguous across phases, which lie at most 8 apart."""
    w = FAST.machine.lanes(F32)
    shape = (depth, phases, 4 * w) if crossed else (depth, 4 * w, phases)
    x, *more = (b.permute(p(k, *shape), (2, 1, 0) if crossed else (1, 2, 0)) for k in range(loads))
    terms = b.mul(x, *more) if more else x
    value = b.reduce(terms, Op.ADD, (2,))
    root = scheduled(b.reshape(value, (4 * w, phases)), split(1, phases, UPCAST), split(0, w, UPCAST))
    selected = agree(root, {f"p{k}": floats(*shape) for k in range(loads)})["selected"]
    stores = [u for u in toposort(selected) if u.op is Op.STORE and u.value.shape == (w,) and u.src[0].operand.op is Op.PARAM]
    offsets = {tuple(u.arg.value for u in store.src[0].positions[0].rhs.src) for store in stores}
    assert offsets == {tuple(range(0, phases * w, phases)) if apart else tuple(range(w))}
