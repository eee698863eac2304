"""Private memory of lanes and workgroups that run in order, against the interpreter (R128)."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_judge import CONFIG, judge, kernel, register, target

from uops.compiler.pipeline import lower
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.verify.dialects import Dialect

I32 = dt.int32
N = 4
LANE_TYPES = [AxisType.LOCAL, AxisType.WARP, AxisType.GROUP_REDUCE]
TARGETS = ("c", "llvm", "opencl")


def out(n: int = N, slot: int = 0, dtype: dt.DType = I32) -> UOp:
    return b.param(slot, (n,), dtype)


def given(n: int = N) -> np.ndarray:
    return np.zeros(n, np.int32)


def shared_outside(done: UOp) -> UOp:
    """Return a Store outside of all loops to the memory that lanes write, which makes them run in order."""
    return b.store(b.at(b.after(out(), done), 0), b.const(77, I32))


def sum_of_rounds(rounds: UOp, lane: UOp) -> UOp:
    """Return the effect that each lane sums its number up in its register, from the first round on, and puts the sum out."""
    memory, element = register(2), b.index(1)
    cleared = b.store(b.at(b.after(memory, rounds, lane), element), b.const(0, I32), b.eq(rounds, 0))
    place = b.at(b.after(memory, cleared), element)
    added = b.store(place, b.add(b.load(place), b.cast(lane, I32)))
    return b.store(b.at(out(), lane), b.load(b.at(b.after(memory, added), element)))


@pytest.mark.parametrize("ids", [(1, 2), (2, 1)])
@pytest.mark.parametrize("is_one_end", [False, True])
@pytest.mark.parametrize("kind", [*LANE_TYPES, AxisType.GLOBAL, AxisType.THREAD])
def test_lanes_that_run_in_order_carry_a_register_each(kind: AxisType, is_one_end: bool, ids: tuple[int, int]) -> None:
    rounds, lane = b.range_(3, ids[0], AxisType.LOOP), b.range_(N, ids[1], kind)
    effect = sum_of_rounds(rounds, lane)
    done = b.end(effect, rounds, lane) if is_one_end else b.end(b.end(effect, lane), rounds)
    found = judge(kernel(shared_outside(done)), {"p0": given()}, targets=TARGETS)
    assert found["p0"].tolist() == [77, 3, 6, 9]


@pytest.mark.parametrize("kind", [AxisType.LOCAL, AxisType.GLOBAL])
def test_lanes_around_a_narrow_sum_carry_a_register_each(kind: AxisType) -> None:
    rounds, lane = b.range_(3, 1, AxisType.LOOP), b.range_(N, 2, kind)
    counted = UOp(Op.ATOMICADD, (b.at(b.after(out(1, 1, dt.int8), rounds, lane), 0), b.const(1, dt.int8)))
    root = kernel(b.end(b.end(b.group(sum_of_rounds(rounds, lane), counted), lane), rounds))
    found = judge(root, {"p0": given(), "p1": np.zeros(1, np.int8)}, targets=TARGETS)
    assert found["p0"].tolist() == [0, 3, 6, 9]


@pytest.mark.parametrize("kind", [*LANE_TYPES, AxisType.GLOBAL, AxisType.THREAD])
def test_a_register_inside_of_lanes_that_run_in_order_is_another_than_outside(kind: AxisType) -> None:
    lane, memory = b.range_(N, 1, kind), register(1)
    five = b.store(b.at(memory, 0), b.const(5, I32))
    mine = b.store(b.at(b.after(memory, five, lane), 0), b.cast(lane, I32))
    done = b.end(b.store(b.at(out(), lane), b.load(b.at(b.after(memory, mine), 0))), lane)
    root = kernel(b.store(b.at(out(1, 1), 0), b.load(b.at(b.after(memory, done), 0))), shared_outside(done))
    found = judge(root, {"p0": given(), "p1": given(1)}, targets=TARGETS)
    assert found["p1"].tolist() == [5]


def test_lanes_that_run_in_order_inside_of_workgroups_carry_a_register_each() -> None:
    rounds, group, lane = b.range_(3, 1, AxisType.LOOP), b.range_(2, 2, AxisType.GLOBAL), b.range_(N, 3, AxisType.LOCAL)
    number, memory = b.add(b.mul(group, N), lane), register(1)
    cleared = b.store(b.at(b.after(memory, rounds, group, lane), 0), b.const(0, I32), b.eq(rounds, 0))
    place = b.at(b.after(memory, cleared), 0)
    added = b.store(place, b.add(b.load(place), b.cast(number, I32)))
    shown = b.store(b.at(out(2 * N), number), b.load(b.at(b.after(memory, added), 0)))
    first = b.store(b.at(b.after(out(2 * N), b.end(shown, lane)), b.mul(group, N)), b.const(77, I32))  # in order: the lanes alone
    root = kernel(b.end(b.end(first, group), rounds))
    found = judge(root, {"p0": given(2 * N)}, targets=TARGETS)
    assert found["p0"].tolist() == [77, 3, 6, 9, 77, 15, 18, 21]


@pytest.mark.parametrize("n", [0, 1, 3])
def test_the_lanes_that_run_in_order_may_be_a_variable_number(n: int) -> None:
    rounds, lane = b.range_(3, 1, AxisType.LOOP), b.range_(b.variable("n", 0, N), 2, AxisType.LOCAL)
    done = b.end(b.end(sum_of_rounds(rounds, lane), lane), rounds)
    judge(kernel(shared_outside(done)), {"p0": given(), "n": n}, targets=TARGETS)


def lower_dot(is_cleared_inside: bool) -> UOp:
    """Return the list of a kernel whose lanes each sum up in a register that they clear in each round, or before a loop."""
    rounds, lane, k = b.range_(3, 1, AxisType.LOOP), b.range_(N, 2, AxisType.GLOBAL), b.range_(5, 3, AxisType.LOOP)
    memory = register(1)
    again = (b.range_(b.variable("n", 0, 1), 4, AxisType.LOOP),) if is_cleared_inside else ()
    cleared = b.store(b.at(b.after(memory, rounds, lane, *again), 0), b.cast(lane, I32))
    place = b.at(b.after(memory, b.end(cleared, *again) if again else cleared, k), 0)
    added = b.end(b.store(place, b.add(b.load(place), 1)), k)
    shown = b.store(b.at(out(), lane), b.load(b.at(b.after(memory, added), 0)))
    root = kernel(shared_outside(b.end(b.end(shown, lane), rounds)))
    if not is_cleared_inside:
        judge(root, {"p0": given()}, targets=TARGETS)
    (call,) = lower(root, target("c"), "linearize", CONFIG, dialect=Dialect.SCHEDULED).src
    return call.body


def test_a_register_that_each_lane_writes_first_is_one_for_all() -> None:
    (buffer,) = (u for u in lower_dot(False).src if u.op is Op.BUFFER)
    assert buffer.arg.size == 1


def test_a_register_that_a_loop_of_perhaps_no_iterations_writes_is_one_per_lane() -> None:
    (buffer,) = (u for u in lower_dot(True).src if u.op is Op.BUFFER)
    assert buffer.arg.size == N
