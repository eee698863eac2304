"""OptOps change how a kernel is computed, never what: every SCHEDULED form gives, in the interpreter, what the program says."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scheduled_programs import PROGRAMS, inputs

from uops.compiler.passes.callify.callify import callify, outputs
from uops.compiler.passes.optimize.optimize import choose_by_heuristics
from uops.compiler.passes.optimize.schedule.optops import (
    apply,
    apply_padto_and_split,
    find_rejection_reason,
    split_whole_loop_to_change_type,
)
from uops.compiler.passes.optimize.schedule.schedule import (
    RejectedOptOp,
    Schedule,
    close_output_loops_into_sink,
    create_initial_schedule,
    set_output_loop_types_before_optops,
)
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.compiler.target import MachineModel
from uops.fuzz.generate.strategies import optop_sequences
from uops.interp import run
from uops.interp.tensor.storage import NUMPY
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, nodes_with_op, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.optops import TC, Nolocals, OptOp, Padto, Split, Swap
from uops.spec.optops import apply_legal_optop_to_axes as apply_to_axes
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

TYPES = [t for t in AxisType if t is not AxisType.PLACEHOLDER]


def kernels(graph: UOp) -> UOp:
    return rangeify(callify(graph))


def with_schedules(launch: UOp, schedules: list[Schedule]) -> UOp:
    return launch.replace(
        src=tuple(c.replace(src=(close_output_loops_into_sink(s), *c.src[1:])) for c, s in zip(launch.src, schedules, strict=True))
    )


def result(graph: UOp, launch: UOp) -> Any:
    (out,) = outputs(graph)
    verify(launch, Dialect.SCHEDULED)
    return run(launch, inputs(graph)).buffers[f"b{out.buffer.arg.unique}"].reshape(out.shape)


def started(graph: UOp) -> tuple[UOp, list[Schedule]]:
    launch = kernels(graph)
    found = [create_initial_schedule(c.src[0]) for c in launch.src]
    assert all(s is not None for s in found)
    return launch, [s for s in found if s is not None]


_NUMBER = st.integers(0, 4)
#: OptOps of any arguments; most are illegal on most kernels.
ANY_OPTOP: st.SearchStrategy[OptOp] = st.one_of(
    st.builds(Split, _NUMBER, st.sampled_from((1, 2, 3, 4, 5, 8)), st.sampled_from(TYPES), st.booleans()),
    st.builds(Padto, _NUMBER, st.sampled_from((1, 3, 4, 8))),
    st.builds(Swap, _NUMBER, _NUMBER),
    st.just(Nolocals()),
    st.just(TC(0)),
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_padto_and_split_in_one_substitution_are_the_two_in_turn(name: str) -> None:
    for s in started(PROGRAMS[name]())[1]:
        assert_padto_and_split_are_the_two_in_turn(s)


def assert_padto_and_split_are_the_two_in_turn(s: Schedule) -> list[str]:
    """Return the reasons for which Splits of padded loops are rejected."""
    reasons = []
    for k, multiple, factor, target in itertools.product(range(len(s.axes)), (4, 6), (2, 4), TYPES):
        pad, opt = Padto(k, multiple), Split(k, factor, target, target is AxisType.THREAD)
        n = s.axes[k].extent
        if not isinstance(n, int) or n % multiple == 0 or find_rejection_reason(s, pad) is not None:
            continue
        padded = apply(s, pad)
        reason = find_rejection_reason(padded, opt)
        if reason is None:
            one, two = apply_padto_and_split(s, pad, opt), apply(padded, opt)
            assert (one.effect, one.outputs, one.done, one.ordered_ids) == (two.effect, two.outputs, two.done, two.ordered_ids)
        else:
            reasons.append(reason)
            with pytest.raises(RejectedOptOp, match=re.escape(reason)):
                apply_padto_and_split(s, pad, opt)
    return reasons


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_split_of_a_whole_loop_is_the_split_once_its_loop_of_one_iteration_is_dropped(name: str) -> None:
    for s in started(PROGRAMS[name]())[1]:
        for k, target in itertools.product(range(len(s.axes)), TYPES):
            n = s.axes[k].extent
            opt = Split(k, n if isinstance(n, int) else 2, target)
            reason = find_rejection_reason(s, opt) if isinstance(n, int) else "not the whole axis"
            if reason is None:
                one, two = split_whole_loop_to_change_type(s, opt), apply(s, opt)
                assert close_output_loops_into_sink(one) is close_output_loops_into_sink(two)
                assert (one.axes, one.done, one.ordered_ids) == (two.axes, two.done, two.ordered_ids)
            else:
                with pytest.raises(RejectedOptOp, match=re.escape(reason) if isinstance(n, int) else ""):
                    split_whole_loop_to_change_type(s, opt)


def apply_unless_rejected(s: Schedule, optops: list[OptOp]) -> Schedule:
    """Apply OptOps to a kernel; one that it rejects says why."""
    for opt in optops:
        if find_rejection_reason(s, opt) is None:
            expected = tuple(apply_to_axes(opt, s.axes))
            s = apply(s, opt)
            assert s.axes == expected
        else:
            with pytest.raises(RejectedOptOp, match=r"R\d\d"):
                apply(s, opt)
    return s


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_legal_optops_keep_the_result(name: str, data: st.DataObject) -> None:
    graph = PROGRAMS[name]()
    launch, plain = started(graph)
    schedules = [apply_unless_rejected(s, data.draw(optop_sequences(s.axes, max_optops=6))) for s in plain]
    np.testing.assert_allclose(result(graph, with_schedules(launch, schedules)), run(graph, inputs(graph)).values[0], rtol=2e-6)


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(optops=st.lists(ANY_OPTOP, max_size=6))
def test_optops_of_any_arguments_are_rejected_or_keep_the_result(name: str, optops: list[OptOp]) -> None:
    graph = PROGRAMS[name]()
    launch, plain = started(graph)
    schedules = [apply_unless_rejected(s, optops) for s in plain]
    np.testing.assert_allclose(result(graph, with_schedules(launch, schedules)), run(graph, inputs(graph)).values[0], rtol=2e-6)


def test_padding_a_product_takes_its_identity() -> None:
    graph = PROGRAMS["product"]()
    launch, (s,) = started(graph)
    s = apply(s, Padto(1, 4))
    where = next(u for u in toposort(s.effect) if u.op is Op.WHERE)
    assert where.src[2].arg.value == 1.0
    zeroed = {where: where.replace(src=(*where.src[:2], b.const(0.0)))}
    broken = Schedule(s.name, substitute(s.effect, zeroed), s.outputs, s.done)
    given = {"p0": np.ones((4, 6), np.float32)}
    (out,) = outputs(graph)
    right, wrong = (run(with_schedules(launch, [x]), given).buffers[f"b{out.buffer.arg.unique}"].item() for x in (s, broken))
    assert (right, wrong) == (1.0, 0.0)


def test_kernels_of_another_form_keep_their_loops() -> None:
    body = kernels(PROGRAMS["gemm"]()).src[0].src[0]
    assert create_initial_schedule(body.replace(src=(*body.src, *body.src))) is None
    assert create_initial_schedule(body.src[0]) is None


def test_a_rejected_opt_op_says_the_ruling_and_the_op() -> None:
    _, (s,) = started(PROGRAMS["gemm"]())
    with pytest.raises(RejectedOptOp, match=r"Split\(axis=0, factor=5.*does not divide the axis.*R90"):
        apply(s, Split(0, 5, AxisType.UPCAST))


# ------------------------------------------------------------------------------------------------- what memory and machine forbid


def in_bytes() -> UOp:
    """Bytes stored into words: each reads, changes and writes a word that three others share."""
    return b.sink(b.store(b.bitcast(b.buffer(6, dt.uint32, unique=1), dt.uint8), b.param(0, (24,), dt.uint8)))


@pytest.mark.parametrize("target", [AxisType.UPCAST, AxisType.LOCAL])
def test_iterations_that_meet_in_one_element_keep_their_order(target: AxisType) -> None:
    _, (s,) = started(in_bytes())
    assert s.ordered_ids == {0}
    assert "R55, R57" in (find_rejection_reason(s, Split(0, 4, target)) or "")
    tiled = apply(s, Split(0, 4, AxisType.LOOP))
    assert tiled.ordered_ids == {0, 1}
    assert "R55, R57" in (find_rejection_reason(tiled, Split(1, 2, target)) or "")
    with pytest.raises(RejectedOptOp, match="R55, R57"):
        set_output_loop_types_before_optops(s, {s.outputs[0]: AxisType.GLOBAL})


def test_bytes_in_words_keep_the_result_in_any_tiling() -> None:
    graph = in_bytes()
    launch, (s,) = started(graph)
    given = {"p0": np.arange(24, dtype=np.uint8), "b1": np.zeros(6, np.uint32)}
    for opts in ([Split(0, 4, AxisType.LOOP)], [Split(0, 12, AxisType.LOOP), Split(1, 4, AxisType.LOOP)], [Padto(0, 7)]):
        t = s
        for opt in opts:
            t = apply(t, opt)
        got = run(with_schedules(launch, [t]), given).buffers["b1"]
        np.testing.assert_array_equal(got.view(np.uint8), np.arange(24))


def test_no_opt_op_reorders_iterations_that_may_meet() -> None:
    """R158: the last value of an element stays, so that a new loop, which is the innermost, has to count in steps of one."""
    rows = b.reshape(b.buffer(12, dt.int32, unique=1), (3, 4))
    _, (s,) = started(b.sink(b.store(b.at(rows, b.param(1, (6,), dt.int32)), b.param(0, (6, 4), dt.int32))))
    assert s.ordered_ids == {0} and len(s.outputs) == 2
    apply(s, Swap(0, 1))  # the columns are free
    tiled = apply(s, Split(0, 3, AxisType.LOOP))
    assert tiled.ordered_ids == {0, 2}
    apply(apply(tiled, Split(2, 3, AxisType.LOOP)), Split(1, 2, AxisType.UPCAST))
    assert apply(apply(tiled, Split(1, 2, AxisType.LOOP)), Swap(2, 3)).ordered_ids == {0, 3}
    top = Split(0, 3, AxisType.LOOP, top=True)
    for before, opt in ((s, top), (tiled, Split(0, 2, AxisType.LOOP)), (tiled, Swap(0, 2))):
        assert "R158" in (find_rejection_reason(before, opt) or "")
    between = Schedule(s.name, tiled.effect, tiled.outputs, (), frozenset({0, 1}))
    assert "R158" in (find_rejection_reason(between, Swap(0, 2)) or "")


def test_swapping_keeps_which_loop_is_fixed() -> None:
    graph = b.sink(b.store(b.bitcast(b.buffer(6, dt.uint32, unique=1), dt.uint16), b.param(0, (12,), dt.uint16)))
    _, (s,) = started(graph)
    half = Schedule(s.name, s.effect, s.outputs, (), frozenset({0}))
    assert apply(half, Swap(0, 1)).ordered_ids == {1}


@pytest.mark.parametrize("shape", [(4, 6), (6, 3), (3, 10)], ids=str)
def test_no_legal_optop_repeats_an_intermediate_store(shape: tuple[int, ...]) -> None:
    """FOUND 157: rows are stored, their maximum is taken, and the products overwrite them: another loop around this is wrong."""
    machine, size, last = MachineModel(vector_bytes=16), math.prod(shape), len(shape) - 1
    rows = UOp(Op.MOD, (b.param(0, shape, dt.int32), b.param(1, shape, dt.int32)))
    most = b.expand(b.reshape(b.reduce(rows, Op.MAX, (last,)), (*shape[:-1], 1)), shape)
    memory = b.reshape(b.buffer(size, dt.int32, unique=1), (shape[1], shape[0], *shape[2:]))
    launch, (start,) = started(b.sink(b.store(b.permute(memory, (1, 0, *range(2, len(shape)))), b.mul(rows, most))))
    rng = np.random.default_rng(0)
    values = {f"p{k}": rng.integers(-9, 9, shape).astype(np.int32) for k in (0, 1)} | {"b1": np.zeros(size, np.int32)}
    s = choose_by_heuristics(start, machine, itertools.count(9))
    assert len(nodes_with_op(s.effect, Op.AFTER)) == 1
    assert any("intermediate Store" in reason for reason in assert_padto_and_split_are_the_two_in_turn(s))
    axes = range(len(s.axes))
    optops = [Split(k, n, t, top) for k in axes for n in (2, 3) for t in TYPES for top in (False, True)]
    optops += itertools.starmap(Swap, itertools.permutations(axes, 2))
    reasons = {optop: find_rejection_reason(s, optop, machine) for optop in optops}
    assert any("intermediate Store" in str(reason) for reason in reasons.values())
    legal = [apply(s, optop, machine) for optop, reason in reasons.items() if reason is None]
    assert legal
    found = [run(with_schedules(launch, [x]), dict(values)).buffers["b1"].tolist() for x in (start, s, *legal)]
    assert all(x == found[0] for x in found)


def test_loops_of_distinct_elements_are_free() -> None:
    for name, make in PROGRAMS.items():
        assert all(not s.ordered_ids for s in started(make())[1]), name


def test_other_types_come_before_the_first_opt_op() -> None:
    _, (s,) = started(PROGRAMS["elementwise"]())
    assert set_output_loop_types_before_optops(s, {s.outputs[0]: AxisType.GLOBAL}).axes[-1].type is AxisType.GLOBAL
    with pytest.raises(RejectedOptOp, match="R94"):
        set_output_loop_types_before_optops(apply(s, Nolocals()), {s.outputs[0]: AxisType.GLOBAL})


def test_a_workgroup_larger_than_the_machines_is_rejected() -> None:
    _, (s,) = started(PROGRAMS["elementwise"]())
    small = MachineModel(workgroup=16)
    s = apply(s, Split(0, 4, AxisType.LOCAL), small)
    wide, local = Split(1, 6, AxisType.LOCAL), next(k for k, a in enumerate(s.axes) if a.type is AxisType.LOCAL)
    assert "R140" in (find_rejection_reason(s, wide, small) or "")
    assert "R140" in (find_rejection_reason(s, Padto(local, 17), small) or "")
    assert find_rejection_reason(s, Split(1, 4, AxisType.LOCAL), small) is None
    assert find_rejection_reason(s, wide) is None  # lanes are loops where there are no workgroups


@pytest.mark.parametrize("op", [Op.ADD, Op.MUL, Op.MAX], ids=lambda op: op.name)
@pytest.mark.parametrize("d", dt.STORABLE, ids=str)
def test_a_padded_reduce_keeps_its_value(op: Op, d: dt.DType) -> None:
    graph = b.reduce(b.param(0, (2, 5), d), op, (1,))
    launch, (s,) = started(graph)
    values = np.array([[1, 2, 1, 2, 1], [-1, -2, -1, -1, -2]]) if d.min < 0 else np.ones((2, 5))
    given = {"p0": values.astype(NUMPY[d])}
    s = apply(s, Padto(next(k for k, a in enumerate(s.axes) if a.type is AxisType.REDUCE), 4))
    (out,) = outputs(graph)
    got = run(with_schedules(launch, [s]), given).buffers[f"b{out.buffer.arg.unique}"].reshape(out.shape)
    np.testing.assert_array_equal(got, run(graph, given).values[0])


# ------------------------------------------------------------------------------------------------------------ symbolic sizes


@pytest.mark.parametrize(
    "opts",
    [[Split(0, 4, AxisType.LOOP)], [Split(0, 2, AxisType.UPCAST)], [Split(0, 4, AxisType.LOOP, top=True)], [Padto(0, 3)],
     [Padto(0, 5), Split(0, 5, AxisType.UPCAST)], [Split(1, 3, AxisType.UNROLL), Padto(0, 8)]],
    ids=["tile", "upcast", "outer", "pad", "pad and upcast", "unroll and pad"],
)  # fmt: skip
def test_symbolic_extents_are_split_and_padded(opts: list[OptOp]) -> None:
    n = b.variable("n", 1, 6)
    x = b.param(0, (b.mul(n, 4), 6), dt.float32)
    graph = b.reduce(b.mul(x, 2.0), Op.ADD, (1,))
    launch, (s,) = started(graph)
    for opt in opts:
        s = apply(s, opt)
    (out,) = outputs(graph)
    for size in (1, 3, 6):
        given = {"p0": np.arange(size * 24, dtype=np.float32).reshape(size * 4, 6), "n": size}
        found = run(with_schedules(launch, [s]), given).buffers[f"b{out.buffer.arg.unique}"][: size * 4]
        np.testing.assert_array_equal(found, run(graph, given).values[0].reshape(-1))


def test_a_symbolic_extent_may_be_padded_to_a_constant() -> None:
    n = b.variable("n", 1, 6)
    graph = b.add(b.param(0, (n,), dt.float32), 1.0)
    launch, (s,) = started(graph)
    verify(with_schedules(launch, [apply(s, Padto(0, 8))]), Dialect.SCHEDULED)


def test_a_factor_of_no_symbolic_extent_is_rejected() -> None:
    _, (s,) = started(b.add(b.param(0, (b.mul(b.variable("n", 1, 6), 4),), dt.float32), 1.0))
    assert "R90" in (find_rejection_reason(s, Split(0, 3, AxisType.UPCAST)) or "")
