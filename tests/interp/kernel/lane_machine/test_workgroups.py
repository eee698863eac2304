"""Lanes and workgroups: Specials, LOCAL and REG memory, barriers, divergence, Wmma."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops.interp import run
from uops.spec.errors import SpecError, Trap
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, SpecialArg, WmmaArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.result import Result

I32, F32 = dt.int32, dt.float32
Agree = Callable[..., Result]
Fault = Callable[..., str]


def p(slot: int, n: int, d: dt.DType = I32) -> UOp:
    return b.param(slot, (n,), d)


def zeros(n: int) -> Any:
    return np.zeros(n, np.int32)


def special(name: str, n: int) -> UOp:
    return UOp(Op.SPECIAL, (b.index(n),), SpecialArg(name))


def local(n: int, unique: int = 1, d: dt.DType = I32) -> UOp:
    return b.buffer(n, d, addrspace=AddrSpace.LOCAL, unique=unique)


def barrier(*deps: UOp) -> UOp:
    return UOp(Op.BARRIER, deps)


def kernel(*effects: UOp) -> UOp:
    return b.sink(*effects, name="k")


def reversal(lane: UOp, group: UOp, lanes: int, fence: Callable[[UOp], UOp]) -> UOp:
    """Each lane puts its element into local memory; after `fence` it takes its opposite's."""
    at = b.add(b.mul(group, lanes), lane)
    put = b.store(b.at(local(lanes), lane), b.load(b.at(p(0, 8), at)))
    return b.store(b.at(p(1, 8), at), b.load(b.at(b.after(local(lanes), fence(put)), b.sub(lanes - 1, lane))))


INPUT = {"p0": np.arange(8, dtype=np.int32), "p1": zeros(8)}
REVERSED = [3, 2, 1, 0, 7, 6, 5, 4]


# Specials


def test_specials_number_lanes_and_workgroups(agree: Agree) -> None:
    root = kernel(reversal(special("lidx0", 4), special("gidx0", 2), 4, barrier))
    assert agree(root, INPUT, schedules=20).buffers["p1"].tolist() == REVERSED


def test_every_lane_runs_the_whole_body_once(agree: Agree) -> None:
    sizes = {"gidx0": 2, "lidx0": 2, "lidx1": 3}
    at = b.index(0)
    for name, n in sizes.items():
        at = b.add(b.mul(at, n), special(name, n))
    count = UOp(Op.ATOMICADD, (b.at(p(0, 1), 0), b.const(1, I32)))
    found = agree(kernel(b.store(b.at(p(1, 12), at), b.cast(at, I32)), count), {"p0": zeros(1), "p1": zeros(12)})
    assert found.buffers["p1"].tolist() == list(range(12))
    assert found.buffers["p0"].tolist() == [12]


def test_a_special_may_have_a_symbolic_bound(agree: Agree) -> None:
    n = b.variable("n", 1, 4)
    lane = UOp(Op.SPECIAL, (b.add(n, 1),), SpecialArg("lidx0"))
    root = kernel(b.store(b.at(p(0, 5), lane), b.const(1, I32)))
    assert agree(root, {"p0": zeros(5), "n": 2}).buffers["p0"].tolist() == [1, 1, 1, 0, 0]


def test_specials_in_a_list(agree: Agree) -> None:
    lane = special("lidx0", 4)
    place = b.at(p(0, 4), lane)
    effect = b.store(place, b.cast(lane, I32))
    root = UOp(Op.LINEAR, (p(0, 4), lane, place, effect.src[1], effect))
    assert agree(root, {"p0": zeros(4)}).buffers["p0"].tolist() == [0, 1, 2, 3]


# Barriers


def test_without_a_barrier_lanes_race(fault: Fault) -> None:
    lane, group = special("lidx0", 4), special("gidx0", 2)
    put = b.store(b.at(p(0, 8), b.add(b.mul(group, 4), lane)), b.const(1, I32))
    take = b.load(b.at(b.after(p(0, 8), put), b.add(b.mul(group, 4), b.sub(3, lane))))
    message = fault(kernel(b.store(b.at(p(1, 8), b.add(b.mul(group, 4), lane)), take)), INPUT)
    assert message == (
        "race on element 2 of p0: LOAD of lane (lidx0=1) in group (gidx0=0) and STORE of lane (lidx0=2) in group (gidx0=0)"
        " are unordered (R55)"
    )


@pytest.mark.parametrize("kind", [AxisType.LOCAL, AxisType.WARP, AxisType.GROUP_REDUCE])
def test_a_barrier_in_a_loop_of_lanes(kind: AxisType, agree: Agree) -> None:
    lane, group = b.range_(4, 2, kind), b.range_(2, 1, AxisType.GLOBAL)
    root = kernel(b.end(b.end(reversal(lane, group, 4, barrier), lane), group))
    assert agree(root, INPUT, schedules=20).buffers["p1"].tolist() == REVERSED


def test_a_barrier_orders_global_memory_of_one_workgroup_only(fault: Fault, agree: Agree) -> None:
    lane, group = special("lidx0", 4), special("gidx0", 2)
    at = b.add(b.mul(group, 4), lane)
    put = b.store(b.at(p(1, 8), at), b.cast(at, I32))
    for other, fine in ((b.add(b.mul(group, 4), b.sub(3, lane)), True), (b.sub(7, at), False)):
        root = kernel(b.store(b.at(p(2, 8), at), b.load(b.at(b.after(p(1, 8), barrier(put)), other))))
        inputs = {"p1": zeros(8), "p2": zeros(8)}
        if fine:
            assert agree(root, inputs).buffers["p2"].tolist() == REVERSED
        else:
            assert "race on element" in fault(root, inputs)


def test_a_barrier_orders_only_what_waits_for_it(fault: Fault) -> None:
    """A Load that does not come after the barrier may run before it in another schedule."""
    lane = special("lidx0", 4)
    put = b.store(b.at(p(0, 8), lane), b.const(1, I32))
    wait = barrier(put)
    take = b.load(b.at(p(0, 8), b.sub(3, lane)))
    out = b.store(b.at(b.after(p(1, 8), wait), lane), take)
    assert "race on element" in fault(kernel(out), INPUT)


def test_a_barrier_across_nested_loops_of_lanes(agree: Agree) -> None:
    x, y = b.range_(2, 1, AxisType.LOCAL), b.range_(2, 2, AxisType.LOCAL)
    lane = b.add(b.mul(x, 2), y)
    put = b.store(b.at(local(4), lane), b.load(b.at(p(0, 4), lane)))
    take = b.load(b.at(b.after(local(4), barrier(put)), b.sub(3, lane)))
    root = kernel(b.end(b.end(b.store(b.at(p(1, 4), lane), take), y), x))
    found = agree(root, {"p0": np.arange(4, dtype=np.int32), "p1": zeros(4)}, schedules=20)
    assert found.buffers["p1"].tolist() == [3, 2, 1, 0]


def tree_sum(fence: Callable[[UOp], UOp]) -> UOp:
    """In local memory; `fence` stands between a round's Stores and the next round's Loads."""
    lane = special("lidx0", 8)
    shared = local(8)
    put = b.store(b.at(shared, lane), b.load(b.at(p(0, 8), lane)))
    r = b.range_(3, 1, AxisType.REDUCE)
    half = b.shr(b.index(4), r)
    here = b.after(shared, barrier(put), r)
    value = b.add(b.load(b.at(here, lane)), b.load(b.at(here, b.add(lane, half)), b.const(0, I32), b.lt(lane, half)))
    sums = b.store(b.at(b.after(shared, barrier(value)), lane), value, b.lt(lane, half))
    done = b.end(fence(sums), r)
    return kernel(b.store(b.at(p(1, 8), 0), b.load(b.at(b.after(shared, done), 0)), b.eq(lane, 0)))


def test_barriers_in_a_loop_separate_its_rounds(agree: Agree) -> None:
    found = agree(tree_sum(barrier), INPUT, schedules=20)
    assert found.buffers["p1"].tolist() == [28, 0, 0, 0, 0, 0, 0, 0]


def test_a_missing_barrier_in_a_loop_is_a_race(fault: Fault) -> None:
    message = fault(tree_sum(lambda u: u), INPUT)
    assert "race on element" in message
    assert "of local buffer 1" in message


def test_a_reduction_by_lanes_of_group_reduce(agree: Agree) -> None:
    group, lane = b.range_(2, 1, AxisType.GLOBAL), b.range_(4, 2, AxisType.GROUP_REDUCE)
    put = b.end(b.store(b.at(local(4), lane), b.load(b.at(p(0, 8), b.add(b.mul(group, 4), lane)))), lane)
    r = b.range_(4, 3, AxisType.REDUCE)
    total = UOp(
        Op.REDUCE, (b.load(b.at(b.after(local(4), barrier(put)), r)), r), b.reduce(p(0, 8), Op.ADD, (0,)).arg.__class__(Op.ADD)
    )
    root = kernel(b.end(b.store(b.at(p(1, 8), group), total), group))
    assert agree(root, INPUT, schedules=10).buffers["p1"].tolist() == [6, 22, 0, 0, 0, 0, 0, 0]


def test_a_barrier_outside_of_all_lanes_is_passed(agree: Agree) -> None:
    put = b.store(b.at(p(0, 1), 0), b.const(1, I32))
    root = kernel(b.store(b.at(p(1, 1), 0), b.load(b.at(b.after(p(0, 1), barrier(put)), 0))))
    assert agree(root, {"p0": zeros(1), "p1": zeros(1)}).buffers["p1"].tolist() == [1]


# Divergence


def test_a_lane_that_has_left_is_named(fault: Fault, agree: Agree) -> None:
    """Lane k passes k barriers."""
    lane = special("lidx0", 3)
    for bound, fine in ((lane, False), (b.index(2), True)):
        r = b.range_(bound, 1)
        put = b.store(b.at(b.after(p(0, 3), r), lane), b.const(1, I32))
        root = kernel(b.end(barrier(put), r))
        if fine:
            assert agree(root, {"p0": zeros(3)}).buffers["p0"].tolist() == [1, 1, 1]
        else:
            message = fault(root, {"p0": zeros(3)})
            assert (
                message == "divergence: BARRIER of lane (lidx0=1) in iteration (axis 1=0) waits, but lane (lidx0=0) has left (R60)"
            )


def test_lanes_at_different_barriers_are_named(fault: Fault) -> None:
    lane = special("lidx0", 2)
    effects = []
    for k in range(2):
        condition = UOp(Op.IF, (b.eq(lane, k),))
        put = b.store(b.at(b.after(p(0, 4), condition), b.add(lane, 2 * k)), b.const(1, I32))
        effects.append(b.store(b.at(b.after(p(1, 4), barrier(put)), b.add(lane, 2 * k)), b.const(1, I32)))
    message = fault(kernel(*effects), {"p0": zeros(4), "p1": zeros(4)})
    assert message == "divergence: BARRIER of lane (lidx0=0) waits, but BARRIER of lane (lidx0=1) waits elsewhere (R60)"


def test_a_workgroup_inside_of_a_loop_of_lanes_is_refused() -> None:
    lane, group = b.range_(2, 1, AxisType.LOCAL), b.range_(2, 2, AxisType.GLOBAL)
    effect = b.end(b.end(b.store(b.at(p(0, 4), b.add(b.mul(lane, 2), group)), b.const(1, I32)), group), lane)
    with pytest.raises(SpecError, match="axis 2 numbers workgroups inside of a loop of lanes"):
        run(kernel(effect), {"p0": zeros(4)})


# Memory of workgroups and lanes


def test_local_memory_belongs_to_one_workgroup(fault: Fault) -> None:
    group, lane = special("gidx0", 2), special("lidx0", 2)
    put = b.store(b.at(local(2), lane), b.const(1, I32), b.eq(group, 0))
    take = b.load(b.at(b.after(local(2), barrier(put)), lane))
    message = fault(kernel(b.store(b.at(p(0, 4), b.add(b.mul(group, 2), lane)), take)), {"p0": zeros(4)})
    assert "in group (gidx0=1) reads element" in message
    assert "of local buffer 1, which was never written (R61)" in message


def test_registers_belong_to_one_lane(agree: Agree) -> None:
    lane = special("lidx0", 4)
    reg = b.buffer(1, I32, addrspace=AddrSpace.REG, unique=2)
    put = b.store(b.at(reg, 0), b.cast(lane, I32))
    root = kernel(b.store(b.at(p(0, 4), lane), b.load(b.at(b.after(reg, barrier(put)), 0))))
    assert agree(root, {"p0": zeros(4)}).buffers["p0"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", [AxisType.GLOBAL, AxisType.THREAD])
@pytest.mark.parametrize("space", [AddrSpace.REG, AddrSpace.LOCAL])
def test_memory_outside_of_a_loop_over_workgroups_outlives_the_loop(kind: AxisType, space: AddrSpace, agree: Agree) -> None:
    """R128: memory outside of the loop is another than memory inside, and each workgroup has its own."""
    memory = b.buffer(1, I32, addrspace=space, unique=2)
    put = b.store(b.at(memory, 0), b.const(5, I32))
    group = b.range_(3, 1, kind)
    inside = b.after(memory, put, group)
    put_inside = b.store(b.at(inside, 0), b.cast(group, I32))
    loop = b.end(b.store(b.at(p(0, 3), group), b.load(b.at(b.after(inside, put_inside), 0))), group)
    root = kernel(b.store(b.at(p(1, 1), 0), b.load(b.at(b.after(memory, put, loop), 0))))
    found = agree(root, {"p0": zeros(3), "p1": zeros(1)}).buffers
    assert found["p0"].tolist() == [0, 1, 2] and found["p1"].tolist() == [5]


@pytest.mark.parametrize("kind", [AxisType.GLOBAL, AxisType.THREAD])
def test_a_workgroup_reads_nothing_that_the_one_before_it_left(kind: AxisType, fault: Fault) -> None:
    group = b.range_(2, 1, kind)
    memory = b.after(b.buffer(1, I32, addrspace=AddrSpace.REG, unique=2), group)
    put = b.store(b.at(memory, 0), b.const(5, I32), b.eq(group, 0))
    root = kernel(b.end(b.store(b.at(p(0, 2), group), b.load(b.at(b.after(memory, put), 0))), group))
    assert "which was never written (R61)" in fault(root, {"p0": zeros(2)})


# Wmma


def wmma(threads: int = 32) -> tuple[UOp, UOp]:
    """One warp multiplies 16x8 by 8x8 for sm_75; the lane's index is its fragment's row in each operand."""
    from uops.spec import wmma as descriptors

    found = next(d for d in descriptors.DESCRIPTORS if d.threads == threads and d.dtype_in is dt.float16 and d.dtype_out is F32)
    n, m, k = found.dims
    lane = special("lidx0", threads)
    parts = []
    for slot, (size, d) in enumerate(((m * k, dt.float16), (k * n, dt.float16), (m * n, F32))):
        count = size // threads
        at = [b.add(b.mul(lane, count), j) for j in range(count)]
        parts.append(b.load(b.at(p(slot, size, d), b.stack(*at))))
    arg = WmmaArg(found.name, found.dims, found.dtype_in, found.dtype_out, "GPU", threads)
    product = UOp(Op.WMMA, tuple(parts), arg)
    count = m * n // threads
    return b.store(b.at(p(3, m * n, F32), b.stack(*(b.add(b.mul(lane, count), j) for j in range(count)))), product), product


def wmma_inputs(product: UOp) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    n, m, k = product.arg.dims
    sizes = ((m * k, np.float16), (k * n, np.float16), (m * n, np.float32))
    found = {f"p{s}": rng.integers(-4, 5, size).astype(d) for s, (size, d) in enumerate(sizes)}
    return {**found, "p3": np.zeros(m * n, np.float32)}


def test_the_lanes_of_a_warp_multiply_together(agree: Agree) -> None:
    from uops.interp.ops.wmma import multiply_fragments
    from uops.spec.wmma import find_descriptor

    effect, product = wmma()
    inputs = wmma_inputs(product)
    found = agree(kernel(effect), inputs).buffers["p3"]
    descriptor = find_descriptor(product.arg)
    assert descriptor is not None
    a, c, d = (inputs[f"p{k}"].reshape(32, -1) for k in range(3))
    assert np.array_equal(found, np.asarray(multiply_fragments(descriptor, a, c, d)).reshape(-1))
    assert found.any()


def test_a_warp_that_is_not_complete_is_a_fault() -> None:
    effect, product = wmma()
    lane = product.src[0].src[0].src[1].src[0].src[0].src[0]
    assert lane.op is Op.SPECIAL
    condition = UOp(Op.IF, (b.lt(lane, 31),))
    guarded = b.store(
        b.after(effect.src[0], condition), UOp(Op.WMMA, (b.after(product.src[0], condition), *product.src[1:]), product.arg)
    )
    with pytest.raises(Trap, match=r"divergence: WMMA of lane \(lidx0=0\) waits, but lane \(lidx0=31\) has left"):
        run(kernel(guarded), wmma_inputs(product))


def test_an_unknown_wmma_is_opaque() -> None:
    arg = WmmaArg("nobody", (1, 1, 1), I32, I32, "GPU", 1)
    values = tuple(b.stack(b.const(k, I32)) for k in (2, 3, 4))
    effect = b.store(b.at(p(0, 1), b.stack(b.index(0))), UOp(Op.WMMA, values, arg))
    with pytest.raises(Trap, match=r"Opaque\(nobody\)"):
        run(kernel(effect), {"p0": zeros(1)})


@pytest.mark.parametrize("lanes", [True, False])
def test_the_bound_of_a_special_is_computed_as_its_ops_say(lanes: bool) -> None:
    """258 as a uint8 is 2: two lanes run."""
    n = b.variable("n", 256, 300, dtype=I32)
    lane = UOp(Op.SPECIAL, (b.cast(b.cast(n, dt.uint8), dt.index),), SpecialArg("lidx0"))
    found = run(kernel(b.store(b.at(p(0, 256), lane), b.const(7, I32))), {"p0": zeros(256), "n": 258}, lanes=lanes)
    assert found.buffers["p0"].tolist() == [7, 7, *[0] * 254]


@pytest.mark.parametrize("space", [AddrSpace.REG, AddrSpace.LOCAL], ids=lambda space: space.name)
@pytest.mark.parametrize("kind", [AxisType.GLOBAL, AxisType.THREAD], ids=lambda kind: kind.name)
def test_memory_outside_of_workgroups_outlives_them(agree: Agree, kind: AxisType, space: AddrSpace) -> None:
    """It is another memory than that of each workgroup (R128)."""
    group, memory = b.range_(4, 1, kind), b.buffer(1, dt.int32, addrspace=space, unique=7)
    five = b.store(b.at(memory, 0), b.const(5, dt.int32))
    mine = b.store(b.at(b.after(memory, five, group), 0), b.cast(group, dt.int32))
    done = b.end(b.store(b.at(b.param(0, (4,), dt.int32), group), b.load(b.at(b.after(memory, mine), 0))), group)
    root = b.sink(b.store(b.at(b.param(1, (1,), dt.int32), 0), b.load(b.at(b.after(memory, done), 0))), name="k")
    found = agree(root, {"p0": zeros(4), "p1": zeros(1)}).buffers
    assert (found["p0"].tolist(), found["p1"].tolist()) == ([0, 1, 2, 3], [5])


@pytest.mark.parametrize("loads", [True, False], ids=["load", "implicit-load"])
def test_a_number_of_lanes_may_come_from_memory_R125(agree: Agree, loads: bool) -> None:
    """FOUND 232. A reference that is used as a value is loaded (R51)."""
    held = b.at(p(0, 2), 1)
    bound = b.add(b.cast(b.load(held) if loads else held, dt.index), 1)
    lane = UOp(Op.SPECIAL, (bound,), SpecialArg("lidx0"))
    counted = kernel(b.store(b.at(p(1, 4), lane), b.cast(b.add(lane, 5), I32)))
    got = agree(counted, {"p0": np.array([7, 2], np.int32), "p1": zeros(4)})
    np.testing.assert_array_equal(got.buffers["p1"], [5, 6, 7, 0])


def _count_lanes_from(memory: UOp, after: UOp | None = None) -> UOp:
    held = b.at(memory if after is None else b.after(memory, after), 0)
    return UOp(Op.SPECIAL, (b.cast(b.load(held), dt.index),), SpecialArg("lidx0"))


@pytest.mark.parametrize("groups", [1, 2])
def test_a_number_of_lanes_is_read_before_the_body_writes_it_R125(agree: Agree, groups: int) -> None:
    """The Load in the bound is unordered with no access of the body: it comes before all of them."""
    memory, group = p(0, 1), UOp(Op.SPECIAL, (b.index(groups),), SpecialArg("gidx0"))
    lane = _count_lanes_from(memory)
    filled = b.store(b.at(p(1, 6), b.add(b.mul(group, 3), lane)), b.cast(b.add(lane, 5), I32))
    changed = b.store(b.at(memory, 0), b.const(1, I32), b.lt(b.add(lane, group), 1))
    got = agree(kernel(filled, changed), {"p0": np.array([3], np.int32), "p1": zeros(6)})
    np.testing.assert_array_equal(got.buffers["p1"], [5, 6, 7, *([5, 6, 7] if groups == 2 else [0, 0, 0])])
    np.testing.assert_array_equal(got.buffers["p0"], [1])


def test_a_number_of_lanes_does_not_wait_for_an_effect_R125() -> None:
    """Nor does it depend on another lane."""
    memory = p(0, 1)
    for bound in (
        _count_lanes_from(memory, b.store(b.at(memory, 0), b.const(2, I32))),
        UOp(Op.SPECIAL, (b.add(UOp(Op.SPECIAL, (b.index(2),), SpecialArg("lidx1")), 1),), SpecialArg("lidx0")),
    ):
        body = kernel(b.store(b.at(p(1, 6), bound), b.const(5, I32)))
        with pytest.raises(SpecError, match=r"bound of special 'lidx0' depends on (STORE|SPECIAL)"):
            run(body, {"p0": np.array([3], np.int32), "p1": zeros(6)})
