"""Private memory of each iteration of a loop, where a backend has one memory for all of them, against the interpreter (R128)."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_judge import CONFIG, barrier, judge, kernel, local, register, special, target

from uops.compiler.passes.carried_memory import give_carried_memory_per_iteration, may_share_private_memory_of_iterations
from uops.compiler.passes.linearize import linearize_kernel
from uops.compiler.pipeline import lower
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import RangeArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.verify.dialects import Dialect

I32 = dt.int32
N = 4
GRID = [AxisType.GLOBAL, AxisType.THREAD]
LANE_TYPES = [AxisType.LOCAL, AxisType.WARP, AxisType.GROUP_REDUCE]


def out(n: int = N, slot: int = 0, dtype: dt.DType = I32) -> UOp:
    return b.param(slot, (n,), dtype)


def zeros(n: int = N) -> np.ndarray:
    return np.zeros(n, np.int32)


def sum_of_rounds(memory: UOp, number: UOp, n: int, rounds: UOp, *inside: UOp) -> UOp:
    """Return the effect that each lane sums its number up in its memory, from the first round on, and puts the sum out."""
    cleared = b.store(b.at(b.after(memory, rounds, *inside), 0), b.const(0, I32), b.eq(rounds, 0))
    place = b.at(b.after(memory, cleared), 0)
    added = b.store(place, b.add(b.load(place), b.cast(number, I32)))
    return b.store(b.at(out(n), number), b.load(b.at(b.after(memory, added), 0)))


@pytest.mark.parametrize(
    ("kind", "memory"),
    [(kind, register(1)) for kind in (*LANE_TYPES, *GRID)] + [(kind, local(1)) for kind in GRID],
)
def test_a_loop_carries_the_memory_of_each_iteration_of_a_loop_inside(kind: AxisType, memory: UOp) -> None:
    rounds, lane = b.range_(3, 1, AxisType.LOOP), b.range_(N, 2, kind)
    root = kernel(b.end(b.end(sum_of_rounds(memory, lane, N, rounds, lane), lane), rounds))
    found = judge(root, {"p0": zeros()}, targets=("c", "llvm", "opencl"))
    assert found["p0"].tolist() == [0, 3, 6, 9]


def test_a_loop_with_a_barrier_carries_a_register_of_one_section() -> None:
    lane, rounds = special("lidx0", N), b.range_(3, 1, AxisType.LOOP)
    root = kernel(b.end(barrier(sum_of_rounds(register(1), lane, N, rounds)), rounds))
    assert judge(root, {"p0": zeros()}, targets=("c", "llvm", "opencl"))["p0"].tolist() == [0, 3, 6, 9]


@pytest.mark.parametrize("meet", [False, True])
def test_loops_of_lanes_inside_of_lanes_of_a_special_carry_registers(meet: bool) -> None:
    outer, rounds, lane = special("lidx0", 2), b.range_(3, 1, AxisType.LOOP), b.range_(N, 2, AxisType.LOCAL)
    number = b.add(b.mul(outer, N), lane)
    summed = b.end(sum_of_rounds(register(1), number, 2 * N, rounds, lane), lane)
    root = kernel(b.end(barrier(summed) if meet else summed, rounds))
    found = judge(root, {"p0": zeros(2 * N)}, targets=("c", "llvm", "opencl"))
    assert found["p0"].tolist() == [3 * k for k in range(2 * N)]


@pytest.mark.parametrize("n", [0, 1, 3])
def test_the_lanes_that_a_loop_carries_registers_of_may_be_a_variable_number(n: int) -> None:
    rounds, lane = b.range_(3, 1, AxisType.LOOP), b.range_(b.variable("n", 0, N), 2, AxisType.LOCAL)
    root = kernel(b.end(b.end(sum_of_rounds(register(1), lane, N, rounds, lane), lane), rounds))
    judge(root, {"p0": zeros(), "n": n})


@pytest.mark.parametrize("trips", [0, 1])
def test_a_loop_that_may_have_no_iterations_does_not_certainly_write_a_register(trips: int) -> None:
    rounds, lane = b.range_(3, 1, AxisType.LOOP), b.range_(N, 2, AxisType.LOCAL)
    again, reg = b.range_(b.variable("trips", 0, 1), 3, AxisType.LOOP), register(1)
    first = b.store(b.at(b.after(reg, rounds, lane), 0), b.cast(lane, I32), b.eq(rounds, 0))
    other = b.end(b.store(b.at(b.after(reg, first, again), 0), b.cast(b.add(lane, 100), I32)), again)
    shown = b.store(b.at(out(), lane), b.load(b.at(b.after(reg, other), 0)))
    root = kernel(b.end(b.end(shown, lane), rounds))
    found = judge(root, {"p0": zeros(), "trips": trips}, targets=("c", "llvm", "opencl"))
    assert found["p0"].tolist() == [k + 100 * trips for k in range(N)]


@pytest.mark.parametrize("kind", LANE_TYPES)
def test_a_register_inside_of_lanes_is_another_than_outside(kind: AxisType) -> None:
    lane, reg = b.range_(N, 1, kind), register(1)
    five = b.store(b.at(reg, 0), b.const(5, I32))
    mine = b.store(b.at(b.after(reg, five, lane), 0), b.cast(lane, I32))
    done = b.end(b.store(b.at(out(), lane), b.load(b.at(b.after(reg, mine), 0))), lane)
    root = kernel(b.store(b.at(out(1, 1), 0), b.load(b.at(b.after(reg, done), 0))))
    found = judge(root, {"p0": zeros(), "p1": zeros(1)}, targets=("c", "llvm", "opencl"))
    assert found["p1"].tolist() == [5]


def test_a_register_inside_of_lanes_is_another_than_that_of_the_sections_around_them() -> None:
    outer, lane, reg = special("lidx0", 2), b.range_(N, 1, AxisType.LOCAL), register(1)
    five = barrier(b.store(b.at(reg, 0), b.cast(b.add(outer, 5), I32)))
    mine = b.store(b.at(b.after(reg, five, lane), 0), b.cast(lane, I32))
    place = b.at(out(2 * N), b.add(b.mul(outer, N), lane))
    done = b.end(b.store(place, b.load(b.at(b.after(reg, mine), 0))), lane)
    root = kernel(b.store(b.at(out(2, 1), outer), b.load(b.at(b.after(reg, barrier(done)), 0))))
    found = judge(root, {"p0": zeros(2 * N), "p1": zeros(2)}, targets=("c", "llvm", "opencl"))
    assert found["p1"].tolist() == [5, 6]


def test_a_carried_register_may_be_viewed_with_narrower_elements() -> None:
    """A list, as a kernel that is no list has no such view."""
    rounds, lane = (UOp(Op.RANGE, (b.const(n, I32),), RangeArg(n, kind)) for n, kind in ((3, AxisType.LOOP), (N, AxisType.LOCAL)))
    reg, zero, one = register(2), b.const(0, I32), b.const(1, I32)
    cleared = b.store(b.at(b.after(reg, rounds, lane), one), zero, b.eq(rounds, zero))
    place = b.at(b.after(reg, cleared), one)
    added = b.store(place, b.add(b.load(place), lane))
    low = b.load(b.at(b.bitcast(b.after(reg, added), dt.int16), b.const(2, I32)))
    effect = b.end(b.end(b.store(b.at(out(dtype=dt.int16), lane), low), lane), rounds)
    linear = UOp(Op.LINEAR, tuple(u for u in toposort(rounds, effect) if u.op is not Op.CONST))
    assert judge(linear, {"p0": np.zeros(N, np.int16)}, Dialect.LINEAR)["p0"].tolist() == [0, 3, 6, 9]


def _lower_rounds(*first: UOp, size: int, fill: UOp | None = None) -> UOp:
    """Return the list of a kernel that writes a register in each round, at `first` or in a loop `fill`, and then reads it."""
    rounds, lane, k = b.range_(3, 1, AxisType.LOOP), b.range_(N, 2, AxisType.LOCAL), b.range_(size, 4, AxisType.LOOP)
    here = b.after(register(size), rounds, lane)
    if fill is None:
        written: tuple[UOp, ...] = tuple(b.store(b.at(here, at), b.cast(lane, I32)) for at in first)
    else:
        written = (b.end(b.store(b.at(b.after(here, fill), fill), b.cast(lane, I32)), fill),)
    last = b.load(b.at(b.after(register(size), *written, k), b.sub(size - 1, k)))
    total = b.end(b.store(b.at(b.after(out(), k), lane), last), k)
    root = kernel(b.end(b.end(total, lane), rounds))
    (call,) = lower(root, target("c"), "linearize", CONFIG, dialect=Dialect.SCHEDULED).src
    return call.body


def test_a_register_that_each_iteration_writes_first_is_one_for_all() -> None:
    for body in (_lower_rounds(b.index(0), b.index(1), size=2), _lower_rounds(size=3, fill=b.range_(3, 3))):
        (buffer,) = (u for u in body.src if u.op is Op.BUFFER)
        assert buffer.arg.size in (2, 3)
        assert give_carried_memory_per_iteration(body) is body


def test_a_register_that_is_not_wholly_written_first_is_one_per_lane() -> None:
    (buffer,) = (u for u in _lower_rounds(b.index(0), size=2).src if u.op is Op.BUFFER)
    assert buffer.arg.size == 2 * N


def _fill_and_copy(memory: UOp, at: UOp, *inside: UOp) -> UOp:
    """Return the effect that fills one element of private memory and copies it out."""
    filled = b.store(b.at(b.after(memory, *inside), 0), b.const(3, I32))
    return b.store(b.at(out(), at), b.load(b.at(b.after(memory, filled), 0)))


def test_loops_around_all_uses_of_private_memory_need_no_search_for_other_uses() -> None:
    group, lane, rounds = b.range_(2, 1, AxisType.GLOBAL), b.range_(2, 2, AxisType.LOCAL), b.range_(3, 3, AxisType.LOOP)
    both = b.add(b.mul(group, 2), lane)
    around = b.end(b.end(b.end(_fill_and_copy(register(1), both, group, lane, rounds), rounds), lane), group)
    inside = b.end(b.end(_fill_and_copy(register(1), lane, rounds, lane), lane), rounds)
    before = b.store(b.at(register(1), 0), b.const(1, I32))
    second = b.range_(2, 4, AxisType.GLOBAL)
    twice = [b.end(_fill_and_copy(register(1, u), r, r), r) for u, r in ((8, group), (9, second))]
    found = {
        name: may_share_private_memory_of_iterations(linearize_kernel(kernel(*effects)))
        for name, effects in {
            "around": [around],
            "inside": [inside],
            "behind a use": [b.end(_fill_and_copy(register(1), group, before, group), group)],
            "one after the other": twice,
        }.items()
    }
    assert found == {"around": False, "inside": True, "behind a use": True, "one after the other": True}


def test_groups_inside_of_lanes_may_share_local_memory() -> None:
    """The lanes share it, and the groups inside of each lane do not: the loop of lanes carries it."""
    lane, group = b.range_(2, 1, AxisType.LOCAL), b.range_(2, 2, AxisType.GLOBAL)
    for memory, shares in ((local(1), True), (register(1), False)):
        nested = b.end(b.end(_fill_and_copy(memory, b.add(b.mul(group, 2), lane), lane, group), group), lane)
        assert may_share_private_memory_of_iterations(linearize_kernel(kernel(nested))) is shares
