"""Schedules for workgroups: reductions by all lanes, shared panels, tiles; the interpreter judges them, races and barriers too."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest
from scheduled_programs import PROGRAMS, inputs, matmul, p, softmax
from schedules import DescribedTarget

from uops.compiler.passes.callify.callify import callify, outputs
from uops.compiler.passes.expand import expand
from uops.compiler.passes.linearize import linearize
from uops.compiler.passes.optimize.heuristics.gpu import schedule_for_gpu
from uops.compiler.passes.optimize.optimize import optimize
from uops.compiler.passes.optimize.schedule.accesses import collect_accesses
from uops.compiler.passes.optimize.schedule.group import lower_or_serialize_group_reduces
from uops.compiler.passes.optimize.schedule.optops import apply
from uops.compiler.passes.optimize.schedule.schedule import (
    Schedule,
    close_output_loops_into_sink,
    create_initial_schedule,
    set_output_loop_types_before_optops,
)
from uops.compiler.passes.optimize.schedule.shared_memory import load_through_shared_memory
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.compiler.passes.select.select import select
from uops.compiler.target import PLAIN_DTYPES, PLAIN_OPS, MachineModel
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory
from uops.spec.optops import Padto, Split
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

MACHINE = MachineModel(vector_bytes=16, workgroup=256, local_memory=48 << 10)
TINY = MachineModel(vector_bytes=16, workgroup=256, local_memory=64)
G, R, L = AxisType.GROUP_REDUCE, AxisType.REDUCE, AxisType.LOCAL


class Gpu(DescribedTarget):
    """A target for selection: nothing is rendered."""

    name, key, machine, dtypes = "gpu", "gpu", MACHINE, PLAIN_DTYPES
    ops = PLAIN_OPS | {Op.BARRIER}


def first(graph: UOp) -> Schedule:
    found = create_initial_schedule(rangeify(callify(graph)).src[0].src[0])
    assert found is not None
    return found


def stages(launch: UOp) -> dict[str, UOp]:
    """What the stages after the schedule make of it, each judged against its dialect."""
    verify(launch, Dialect.SCHEDULED)
    found = {"scheduled": launch, "expanded": expand(launch)}
    found["selected"] = select(found["expanded"], Gpu())  # type: ignore[arg-type]
    found["linear"] = linearize(found["selected"])
    for name, root in found.items():
        verify(root, Dialect[name.upper()])
    return found


def agrees(graph: UOp, launch: UOp, given: dict[str, Any] | None = None, later: bool = True, schedule: int | None = 1) -> None:
    """Every stage gives what the program says."""
    given = inputs(graph) if given is None else given
    (out,) = outputs(graph)
    expected = run(graph, given).values[0]
    for name, root in (stages(launch) if later else {"scheduled": launch}).items():
        got = run(root, given, schedule=schedule).buffers[f"b{out.buffer.arg.unique}"].reshape(out.shape)
        np.testing.assert_allclose(got.view(expected.dtype), expected, rtol=2e-6, err_msg=name)


def launched(graph: UOp, s: Schedule) -> UOp:
    launch = rangeify(callify(graph))
    (call,) = launch.src
    return launch.replace(src=(call.replace(src=(close_output_loops_into_sink(s), *call.src[1:])),))


def parallel(s: Schedule) -> Schedule:
    return set_output_loop_types_before_optops(s, dict.fromkeys(s.outputs, AxisType.GLOBAL)) if s.outputs else s


def group(graph: UOp, *opts: Split | Padto, machine: MachineModel = MACHINE) -> Schedule:
    s = parallel(first(graph))
    for opt in opts:
        s = apply(s, opt, machine)
    return lower_or_serialize_group_reduces(s, machine, count(100))


def reduced(s: Schedule, extent: int) -> int:
    """The number of the reduce axis of an extent."""
    return next(k for k, a in enumerate(s.axes) if a.type is R and a.extent == extent)


def number(op: Op, s: Schedule) -> int:
    return sum(u.op is op for u in toposort(s.effect))


def sizes(s: Schedule) -> list[int]:
    return [int(u.arg.size) for u in toposort(s.effect) if u.op is Op.BUFFER]


# --------------------------------------------------------------------------------------------------------- two stages


@pytest.mark.parametrize("top", [False, True], ids=["inner", "outer"])
@pytest.mark.parametrize("op", [Op.ADD, Op.MUL, Op.MAX], ids=lambda op: op.name)
def test_a_group_reduction_has_two_stages(op: Op, top: bool) -> None:
    graph = b.reduce(p(0, 3, 24), op, (1,))
    s = group(graph, Split(1, 8, G, top))
    assert sizes(s) == [8] and number(Op.REDUCE, s) == 1 and number(Op.BARRIER, s) == 4  # parts, and three halves
    agrees(graph, launched(graph, s))


def test_a_few_parts_are_read_by_every_lane() -> None:
    graph = b.reduce(p(0, 3, 24), Op.ADD, (1,))
    s = group(graph, Split(1, 4, G))
    assert sizes(s) == [4] and number(Op.REDUCE, s) == 2 and number(Op.BARRIER, s) == 1
    assert [a.type for a in s.axes if a.extent == 4] == [G, R]
    agrees(graph, launched(graph, s))


@pytest.mark.parametrize("lanes", [5, 7, 12, 24])
def test_parts_of_any_number_are_halved(lanes: int) -> None:
    graph = b.reduce(p(0, 2, lanes * 2), Op.ADD, (1,))
    for seed in range(2):
        agrees(graph, launched(graph, group(graph, Split(1, lanes, G))), schedule=seed)


def test_all_of_the_reduction_may_be_lanes() -> None:
    graph = b.reduce(p(0, 3, 8), Op.ADD, (1,))
    agrees(graph, launched(graph, group(graph, Split(1, 8, G))))


@pytest.mark.parametrize("d", [dt.float16, dt.bfloat16, dt.fp8e4m3, dt.int8, dt.bool_], ids=str)
@pytest.mark.parametrize("op", [Op.ADD, Op.MAX], ids=lambda op: op.name)
def test_parts_of_small_floats_are_kept_in_float32(op: Op, d: dt.DType) -> None:
    graph = b.reduce(b.param(0, (2, 16), d), op, (1,))
    s = group(graph, Split(1, 4, G))
    (buffer,) = (u for u in toposort(s.effect) if u.op is Op.BUFFER)
    assert buffer.dtype is (dt.float32 if d.is_float and op is Op.ADD else d)
    from uops.interp.tensor.storage import NUMPY

    given = {"p0": np.tile([1, 0, 1, 1], (2, 4)).astype(NUMPY[d])}
    (out,) = outputs(graph)
    got = run(launched(graph, s), given).buffers[f"b{out.buffer.arg.unique}"].reshape(out.shape)
    np.testing.assert_array_equal(got, run(graph, given).values[0])


def test_reductions_one_after_the_other_share_their_lanes() -> None:
    graph = softmax(p(0, 3, 24))
    s = parallel(first(graph))
    for _ in range(2):
        s = apply(s, Split(reduced(s, 24), 8, G), MACHINE)
    s = lower_or_serialize_group_reduces(s, MACHINE, count(100))
    assert sum(a.type is G for a in s.axes) == 1 and sizes(s) == [8, 8]
    agrees(graph, launched(graph, s), {k: v / 4 for k, v in inputs(graph).items()})


def test_lanes_of_different_numbers_do_not_share() -> None:
    graph = softmax(p(0, 2, 6))
    s = parallel(first(graph))
    for factor in (3, 2):
        s = apply(s, Split(reduced(s, 6), factor, G), MACHINE)
    s = lower_or_serialize_group_reduces(s, MACHINE, count(100))
    assert sorted(int(a.extent) for a in s.axes if a.type is G) == [2, 3]
    agrees(graph, launched(graph, s), {k: v / 4 for k, v in inputs(graph).items()})


def test_two_group_axes_of_one_reduction() -> None:
    graph = b.reduce(p(0, 3, 32), Op.ADD, (1,))
    s = group(graph, Split(1, 4, G), Split(2, 2, G, top=True))
    assert sizes(s) == [8]
    agrees(graph, launched(graph, s))


def test_vector_axes_have_parts_of_their_own() -> None:
    graph = b.reduce(p(0, 8, 24), Op.ADD, (1,))
    s = group(graph, Split(1, 8, G), Split(0, 4, AxisType.UPCAST))
    assert sizes(s) == [32]
    agrees(graph, launched(graph, s))


def test_lanes_of_outputs_beside_those_of_the_reduction() -> None:
    graph = b.reduce(p(0, 8, 24), Op.ADD, (1,))
    s = group(graph, Split(1, 8, G), Split(0, 4, L))
    assert sizes(s) == [32]
    agrees(graph, launched(graph, s))


def test_lanes_that_do_not_share_a_reduction_leave_it_to_the_first() -> None:
    """The sum does not depend on the columns, whose lanes compute it as well."""
    x, y = p(0, 3, 24), p(1, 3, 8)
    graph = b.mul(b.reduce(x, Op.MAX, (1,)), y)
    s = parallel(first(graph))
    reduce = next(k for k, a in enumerate(s.axes) if a.type is R)
    s = apply(apply(s, Split(reduce, 4, G), MACHINE), Split(1, 4, L), MACHINE)
    s = lower_or_serialize_group_reduces(s, MACHINE, count(100))
    assert sizes(s) == [4]
    agrees(graph, launched(graph, s))


def test_padding_and_unrolling_of_a_group_reduction() -> None:
    graph = b.reduce(p(0, 3, 29), Op.ADD, (1,))
    s = group(graph, Padto(1, 32), Split(1, 16, G), Split(1, 4, AxisType.UNROLL))
    agrees(graph, launched(graph, s))


def test_a_reduction_in_a_loop_waits_before_it_writes_again() -> None:
    """Sums of rows, and of those the maximum: the outer loop runs the inner reduction again and again."""
    graph = b.reduce(b.mul(b.reduce(p(0, 2, 6, 16), Op.ADD, (2,)), 1.0), Op.MAX, (1,))
    s = parallel(first(graph))
    k = next(k for k, a in enumerate(s.axes) if a.extent == 16)
    s = lower_or_serialize_group_reduces(apply(s, Split(k, 8, G), MACHINE), MACHINE, count(100))
    assert number(Op.BARRIER, s) == 5
    for seed in range(3):
        agrees(graph, launched(graph, s), schedule=seed)


def test_where_lanes_cannot_meet_a_group_reduction_is_a_loop() -> None:
    graph = b.reduce(p(0, 3, 24), Op.ADD, (1,))
    in_order = apply(first(graph), Split(1, 8, G), MACHINE)  # the output is a LOOP
    split = apply(parallel(first(graph)), Split(1, 8, G), MACHINE)
    little, none = MachineModel(workgroup=64, local_memory=16), MachineModel()
    for s, machine in ((in_order, MACHINE), (split, little), (split, none)):
        s = lower_or_serialize_group_reduces(s, machine, count(100))
        assert not sizes(s) and not any(a.type is G for a in s.axes) and [a.extent for a in s.axes if a.type is R] == [3, 8]
        agrees(graph, launched(graph, s))


# ----------------------------------------------------------------------------------------------------- hand-written choices


#: Small enough for the interpreter to run lane by lane.
SMALL = [
    "gemm", "gemm of primes", "softmax", "layernorm", "row sums", "column sums", "sum of all", "product", "maximum, reversed",
    "maximum of integers", "padded", "transposed", "elementwise", "one element",
]  # fmt: skip


@pytest.mark.parametrize("machine", [MACHINE, TINY], ids=["usual", "little memory"])
@pytest.mark.parametrize("name", SMALL)
def test_chosen_schedules_keep_the_result(name: str, machine: MachineModel) -> None:
    graph = PROGRAMS[name]()
    launch = optimize(rangeify(callify(graph)), machine)
    agrees(graph, launch, {k: v / 4 if v.dtype.kind == "f" else v for k, v in inputs(graph).items()}, later=machine is MACHINE)


def test_a_product_is_tiled_and_its_operands_are_shared() -> None:
    graph = matmul(p(0, 32, 16), p(1, 16, 30))
    s = schedule_for_gpu(first(graph), MACHINE, count(100))
    kinds = [a.type for a in s.axes]
    assert kinds.count(AxisType.GLOBAL) == 2 and kinds.count(L) == 2
    assert kinds.count(AxisType.UPCAST) == 6  # two are cleared, added to, and stored
    spaces = [u.arg.addrspace for u in toposort(s.effect) if u.op is Op.BUFFER]
    assert sorted(a.name for a in spaces) == ["LOCAL", "LOCAL", "REG"] and number(Op.BARRIER, s) == 3
    loaded = [
        base_memory(u.buffer).arg.slot for u in toposort(s.effect) if u.op is Op.LOAD and base_memory(u.buffer).op is Op.PARAM
    ]
    assert sorted(loaded) == [1, 2]  # each operand goes to LOCAL memory, and no other load is left
    agrees(graph, launched(graph, s), schedule=None)


LARGE = MachineModel(vector_bytes=16, workgroup=1024, local_memory=48 << 10, registers=255)


@pytest.mark.parametrize("combine", [b.add, b.maximum, lambda x, y: b.add(b.mul(x, y), 1.0)], ids=["add", "max", "mul_add"])
def test_a_sum_of_two_loads_that_are_not_multiplied_is_tiled(combine: Callable[[UOp, UOp], UOp]) -> None:
    x, y = b.reshape(p(0, 32, 16), (32, 16, 1)), b.reshape(p(1, 16, 30), (1, 16, 30))
    graph = b.reshape(b.reduce(combine(x, y), Op.ADD, (1,)), (32, 30))
    s = schedule_for_gpu(first(graph), MACHINE, count(100))
    assert len([a for a in s.axes if a.type is AxisType.LOCAL]) == 2
    agrees(graph, launched(graph, s))


def row_softmax(rows: int, columns: int) -> UOp:
    x = p(0, rows, columns)
    e = b.exp2(b.sub(x, b.reduce(x, Op.MAX, (1,))))
    return b.div(e, b.reduce(e, Op.ADD, (1,)))


@pytest.mark.parametrize(("columns", "blocks"), [(512, 1), (600, 3), (1000, 1)])
def test_lanes_of_reductions_share_the_output_loop_that_no_reduction_needs(columns: int, blocks: int) -> None:
    """Else each element of a row would reduce the whole row again."""
    graph = row_softmax(2, columns)
    s = lower_or_serialize_group_reduces(schedule_for_gpu(first(graph), MACHINE, count(100)), MACHINE, count(200))
    assert [a.extent for a in s.axes if a.type is AxisType.GLOBAL] == [2, blocks]
    agrees(graph, launched(graph, s), schedule=None)


def test_lanes_share_no_output_loop_that_a_reduction_needs() -> None:
    graph = b.add(b.reduce(p(0, 256, 512), Op.ADD, (0,)), p(1, 1, 512))
    s = group(graph, Split(1, 256, G))
    assert [a.extent for a in s.axes if a.type is AxisType.GLOBAL] == [512]
    agrees(graph, launched(graph, s), schedule=None)


def test_columns_are_summed_by_lanes_in_rows_where_loads_are_contiguous_across_outputs() -> None:
    graph = b.reduce(p(0, 256, 64), Op.ADD, (0,))
    s = schedule_for_gpu(first(graph), LARGE, count(100))
    assert sorted((a.type.name, a.extent) for a in s.axes if a.type in (G, L)) == [("GROUP_REDUCE", 16), ("LOCAL", 32)]
    s = lower_or_serialize_group_reduces(s, LARGE, count(200))
    agrees(graph, launched(graph, s), schedule=None)


@pytest.mark.parametrize(("n", "lanes"), [(64, [8, 16]), (2048, [16, 16])])
def test_a_product_has_the_largest_tiles_that_fill_the_machine(n: int, lanes: list[int]) -> None:
    s = schedule_for_gpu(first(matmul(p(0, n, 32), p(1, 32, n))), LARGE, count(100))
    assert [a.extent for a in s.axes if a.type is L] == lanes


@pytest.mark.parametrize("shape", [(30, 13), (32, 16)])
def test_what_is_read_across_goes_through_local_memory_in_squares(shape: tuple[int, int]) -> None:
    graph = b.add(b.permute(p(0, *shape), (1, 0)), 1.0)
    s = schedule_for_gpu(first(graph), MACHINE, count(100))
    assert sizes(s) == [256] and number(Op.BARRIER, s) == 1
    agrees(graph, launched(graph, s))


@pytest.mark.parametrize("n", [30, 32])
@pytest.mark.parametrize("is_first", [True, False])
def test_of_one_memory_the_load_across_goes_through_local_memory(n: int, is_first: bool) -> None:
    straight, across = p(0, n, n), b.permute(p(0, n, n), (1, 0))
    graph = b.add(across, straight) if is_first else b.add(straight, across)
    s = schedule_for_gpu(first(graph), MACHINE, count(100))
    *accesses, store = collect_accesses(s.effect)
    (lane,) = (r for r in s.outputs if r.arg.type is L and store.stride(r) == 1)
    kept = [a for a in accesses if base_memory(a.node.buffer).op is Op.PARAM and None not in a.strides.values()]
    assert [a.stride(lane) for a in kept] == [1]
    agrees(graph, launched(graph, s))


@pytest.mark.parametrize(("lanes", "piece"), [(4, 5), (4, 2), (3, 5), (6, 1)])
def test_lanes_fill_a_panel_whether_they_divide_it_or_not(lanes: int, piece: int) -> None:
    graph = b.reduce(b.mul(p(0, 12, 10), 1.0), Op.ADD, (1,))
    s = apply(parallel(first(graph)), Split(0, lanes, L), MACHINE)
    s = apply(s, Split(reduced(s, 10), piece, R), MACHINE)
    u = next(u for u in toposort(s.effect) if u.op is Op.REDUCE)
    load = next(x for x in toposort(u) if x.op is Op.LOAD)
    s = load_through_shared_memory(s, load, [next(r for r in s.outputs if r.arg.type is L), u.src[-1]], 100)
    assert sizes(s) == [lanes * piece] and number(Op.BARRIER, s) == 2
    for seed in range(2):
        agrees(graph, launched(graph, s), schedule=seed)


def test_a_panel_with_more_lanes_than_elements() -> None:
    """Lanes of columns do not read the panel and help to fill it: 8 lanes, 4 elements of a row."""
    graph = b.mul(b.reduce(p(0, 4, 6), Op.ADD, (1,)), p(1, 4, 3))
    s = parallel(first(graph))
    s = apply(apply(s, Split(0, 2, L), MACHINE), Split(1, 3, L), MACHINE)
    u = next(u for u in toposort(s.effect) if u.op is Op.REDUCE)
    load = next(x for x in toposort(u) if x.op is Op.LOAD)
    s = load_through_shared_memory(s, load, [next(r for r in s.outputs if r.arg.type is L)], 100)
    assert sizes(s) == [2]
    agrees(graph, launched(graph, s))


def test_a_long_row_is_summed_by_lanes_and_a_short_one_is_not() -> None:
    long, short = (schedule_for_gpu(first(b.reduce(p(0, 4, n), Op.ADD, (1,))), MACHINE, count(100)) for n in (1024, 16))
    assert [int(a.extent) for a in long.axes if a.type is G] == [256]
    assert not any(a.type is G for a in short.axes)


def test_elements_in_a_row_are_vectors_and_lanes() -> None:
    s = schedule_for_gpu(first(b.add(p(0, 64, 64), p(1, 64, 64))), MACHINE, count(100))
    assert [(a.type, a.extent) for a in s.axes] == [(AxisType.GLOBAL, 16), (L, 64), (AxisType.UPCAST, 4)]


def test_loops_that_keep_their_order_stay() -> None:
    graph = b.sink(b.store(b.bitcast(b.buffer(6, dt.uint32, unique=1), dt.uint8), b.param(0, (24,), dt.uint8)))
    s = first(graph)
    assert schedule_for_gpu(s, MACHINE, count(100)) is s


def test_symbolic_sizes_have_lanes_too() -> None:
    n = b.variable("n", 1, 300)
    graph = b.add(b.param(0, (n,), dt.float32), 1.0)
    s = schedule_for_gpu(first(graph), MACHINE, count(100))
    assert any(a.type is L for a in s.axes)
    launch = launched(graph, s)
    (out,) = outputs(graph)
    for size in (1, 64, 299):
        given = {"p0": np.arange(size, dtype=np.float32), "n": size}
        got = run(launch, given).buffers[f"b{out.buffer.arg.unique}"][:size]
        np.testing.assert_array_equal(got, given["p0"] + 1)
