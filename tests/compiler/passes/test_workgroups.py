"""Workgroups as loops: kernels of Specials, lanes and Barriers on c and llvm, which have no workgroups, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_judge import CONFIG, barrier, count, judge, kernel, local, register, special, target

import uops
from uops.compiler.pipeline import lower
from uops.compiler.runtime.program import Compiled
from uops.fuzz.generate.kinds import sample
from uops.interp import run
from uops.spec.errors import CompileError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, SpecialArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.verify.dialects import Dialect

I32 = dt.int32


def p(slot: int, n: int, d: dt.DType = I32) -> UOp:
    return b.param(slot, (n,), d)


def numbers(n: int) -> Any:
    return np.arange(n, dtype=np.int32) * 7 % 23


def zeros(n: int) -> Any:
    return np.zeros(n, np.int32)


def cast(x: UOp) -> UOp:
    return b.cast(x, I32)


def reversal(lane: UOp, group: UOp, lanes: int, n: int, size: UOp | None = None) -> UOp:
    """Each lane puts its element of p0 into LOCAL memory, and takes its opposite's to p1."""
    at = b.add(b.mul(group, size or lanes), lane)
    put = b.store(b.at(local(lanes), lane), b.load(b.at(p(0, n), at)))
    opposite = b.sub(b.sub(size or lanes, 1), lane)
    return b.store(b.at(p(1, n), at), b.load(b.at(b.after(local(lanes), barrier(put)), opposite)))


# Specials and loops of lanes


def test_specials_number_lanes_and_workgroups_in_the_order_of_their_names() -> None:
    """Of twelve names, lidx10 comes after lidx2."""
    names = ["gidx0", "gidx1", *[f"lidx{k}" for k in (0, 1, 2, 10)]]
    at, scale = b.index(0), 1
    for name in names:
        at, scale = b.add(at, b.mul(special(name, 2), scale)), scale * 2
    found = judge(kernel(b.store(b.at(p(0, scale), at), cast(at))), {"p0": zeros(scale)})
    assert found["p0"].tolist() == list(range(scale))


def test_lanes_of_specials_exchange_through_local_memory() -> None:
    root = kernel(reversal(special("lidx0", 4), special("gidx0", 3), 4, 12))
    found = judge(root, {"p0": np.arange(12, dtype=np.int32), "p1": zeros(12)}, targets=("c", "llvm", "opencl"))
    assert found["p1"].tolist() == [3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8]


@pytest.mark.parametrize("kind", [AxisType.LOCAL, AxisType.WARP, AxisType.GROUP_REDUCE])
def test_lanes_of_ranges_exchange_through_local_memory(kind: AxisType) -> None:
    lane, group = b.range_(4, 2, kind), b.range_(2, 1, AxisType.GLOBAL)
    judge(kernel(b.end(b.end(reversal(lane, group, 4, 8), lane), group)), {"p0": numbers(8), "p1": zeros(8)})


def test_a_barrier_in_nested_loops_of_lanes() -> None:
    """The inner lanes meet; what the outer lane computed before its inner lanes began is theirs."""
    x, y = b.range_(3, 1, AxisType.LOCAL), b.range_(2, 2, AxisType.LOCAL)
    mine = b.load(b.at(p(0, 6), x))
    lane = b.add(b.mul(x, 2), y)
    put = b.store(b.at(local(6), lane), b.add(b.load(b.at(p(0, 6), lane)), mine))
    take = b.add(b.load(b.at(b.after(local(6), barrier(put)), b.sub(5, lane))), mine)
    judge(kernel(b.end(b.end(b.store(b.at(p(1, 6), lane), take), y), x)), {"p0": numbers(6), "p1": zeros(6)})


def test_lanes_of_a_special_with_lanes_of_ranges_inside() -> None:
    outer, y = special("lidx0", 3), b.range_(2, 2, AxisType.LOCAL)
    lane = b.add(b.mul(outer, 2), y)
    put = b.store(b.at(local(6), lane), b.load(b.at(p(0, 6), lane)))
    take = b.load(b.at(b.after(local(6), barrier(put)), b.sub(5, lane)))
    judge(kernel(b.end(b.store(b.at(p(1, 6), lane), take), y)), {"p0": numbers(6), "p1": zeros(6)})


def test_what_follows_the_lanes_waits_for_all_of_them() -> None:
    """Lanes of GROUP_REDUCE fill LOCAL memory behind a Barrier of their own; one loop sums it up."""
    lane, r = b.range_(4, 1, AxisType.GROUP_REDUCE), b.range_(4, 2, AxisType.REDUCE)
    put = b.store(b.at(local(4), lane), b.load(b.at(p(0, 4), lane)))
    more = b.after(local(4), barrier(put))
    double = b.store(b.at(local(4, unique=3), lane), b.mul(b.load(b.at(more, b.sub(3, lane))), 2))
    done = barrier(b.end(double, lane))
    total = register(1)
    cleared = b.store(b.at(total, 0), b.const(0, I32))
    place = b.at(b.after(total, cleared, r), 0)
    added = b.end(b.store(place, b.add(b.load(place), b.load(b.at(b.after(local(4, unique=3), done), r)))), r)
    root = kernel(b.store(b.at(p(1, 1), 0), b.load(b.at(b.after(total, added), 0))))
    found = judge(root, {"p0": numbers(4), "p1": zeros(1)})
    assert found["p1"].tolist() == [2 * numbers(4).sum()]


# Barriers in loops and Ifs that all lanes enter together


def tree_sum(lane: UOp, rounds: UOp, scale: UOp | int = 0) -> UOp:
    """The sum of p0 in LOCAL memory, in rounds with two Barriers each."""
    shared = local(8)
    put = b.store(b.at(shared, lane), b.load(b.at(p(0, 8), lane)))
    r = b.range_(rounds, 1, AxisType.REDUCE)
    half = b.shr(b.index(4), r)
    here = b.after(shared, barrier(put), r)
    value = b.add(b.load(b.at(here, lane)), b.load(b.at(here, b.add(lane, half)), b.const(0, I32), b.lt(lane, half)))
    sums = b.store(b.at(b.after(shared, barrier(value)), lane), value, b.lt(lane, half))
    done = b.end(barrier(sums), r)
    return kernel(b.store(b.at(p(1, 8), 0), b.load(b.at(b.after(shared, done), 0)), b.eq(lane, scale)))


def test_barriers_in_a_loop_separate_its_rounds() -> None:
    found = judge(tree_sum(special("lidx0", 8), b.index(3)), {"p0": numbers(8), "p1": zeros(8)})
    assert found["p1"][0] == numbers(8).sum()


@pytest.mark.parametrize("n", [0, 1, 3])
def test_barriers_in_a_loop_of_a_variable_number_of_rounds(n: int) -> None:
    judge(tree_sum(special("lidx0", 8), b.variable("n", 0, 3)), {"p0": numbers(8), "p1": zeros(8), "n": n})


def test_the_rounds_may_be_as_many_as_memory_says() -> None:
    """Every lane loads the same bound, so they enter the loop together."""
    rounds = b.cast(b.load(b.at(p(2, 1), 0)), dt.index)
    for n in (0, 2, 3):
        judge(tree_sum(special("lidx0", 8), rounds), {"p0": numbers(8), "p1": zeros(8), "p2": np.full(1, n, np.int32)})


def listed(*roots: UOp) -> UOp:
    """A LINEAR kernel of everything below `roots`, sources first."""
    sizes = {u for u in toposort(*roots) if u.op is Op.CONST or (u.op is Op.STACK and u.constants_of_stack is not None)}
    return UOp(Op.LINEAR, tuple(u for u in toposort(*roots) if u not in sizes))


def if_with_barrier(condition: UOp) -> UOp:
    """Lanes whose condition holds reverse LOCAL memory behind a Barrier inside of an If."""
    lane = b.cast(special("lidx0", b.const(4, I32)), I32)
    c = UOp(Op.IF, (condition,))
    memory = b.after(local(4), c)
    put = b.store(b.at(memory, lane), b.load(b.at(p(0, 4), lane)))
    take = b.load(b.at(b.after(local(4), barrier(put)), b.sub(b.const(3, I32), lane)))
    stored = b.store(b.at(p(1, 4), lane), take)
    return listed(b.group(stored), UOp(Op.ENDIF, (c,)))


def launch(linear: UOp, *memory: UOp) -> UOp:
    return UOp(Op.LINEAR, (UOp(Op.CALL, (linear, *memory)),))


@pytest.mark.parametrize("flag", [0, 1])
def test_a_barrier_in_an_if_of_a_loaded_condition(flag: int) -> None:
    root = if_with_barrier(b.eq(b.load(b.at(p(2, 1), b.const(0, I32))), b.const(1, I32)))
    found = judge(root, {"p0": numbers(4), "p1": zeros(4), "p2": np.full(1, flag, np.int32)}, Dialect.LINEAR)
    assert ("p1" in found) == bool(flag)


def test_a_barrier_where_lanes_may_differ_is_refused_by_name_R60() -> None:
    lane = special("lidx0", 3)
    r = b.range_(lane, 1)
    root = kernel(b.end(barrier(b.store(b.at(b.after(p(0, 3), r), lane), b.const(1, I32))), r))
    with pytest.raises(CompileError, match=r"R60 \(Barrier\) at .*a Barrier stands in this block, so its bound must be the same"):
        Compiled(root, target("c"), CONFIG, Dialect.SCHEDULED)
    special_lane = b.cast(special("lidx0", b.const(4, I32)), I32)
    with pytest.raises(CompileError, match=r"R60 \(Barrier\).* so its condition must be the same for all lanes, but may differ"):
        Compiled(if_with_barrier(b.lt(special_lane, b.const(2, I32))), target("c"), CONFIG, Dialect.LINEAR)


def test_a_barrier_outside_of_all_lanes_is_passed() -> None:
    put = b.store(b.at(p(0, 1), 0), b.const(5, I32))
    root = kernel(b.store(b.at(p(1, 1), 0), b.load(b.at(b.after(p(0, 1), barrier(put)), 0))))
    assert judge(root, {"p0": zeros(1), "p1": zeros(1)})["p1"].tolist() == [5]


# Values and registers that cross sections


def test_arithmetic_and_loads_cross_a_barrier() -> None:
    """What is loaded before a Barrier is what it was then; arithmetic on it, and on the lane, may come later."""
    lane = special("lidx0", 4)
    before = b.load(b.at(p(0, 4), lane))
    changed = barrier(b.store(b.at(b.after(p(0, 4), before), lane), b.const(-1, I32)))
    now = b.load(b.at(b.after(p(0, 4), changed), b.sub(3, lane)))
    value = b.add(b.mul(before, 100), b.add(now, cast(b.mul(lane, lane))))
    found = judge(kernel(b.store(b.at(p(1, 4), lane), value)), {"p0": numbers(4), "p1": zeros(4)})
    assert found["p1"].tolist() == [100 * int(x) - 1 + k * k for k, x in enumerate(numbers(4))]


@pytest.mark.parametrize("size", [1, 3])
def test_registers_live_across_barriers(size: int) -> None:
    """At positions that are constants, and that a loop or memory gives."""
    lane, e = special("lidx0", 4), b.range_(size, 1)
    reg = register(size)
    stored = [b.store(b.at(reg, k), b.load(b.at(p(0, 4 * size), b.add(b.mul(lane, size), k)))) for k in range(size)]
    met = barrier(*stored, b.store(b.at(local(4), lane), cast(lane)))
    place = b.at(b.after(reg, met, e), e)
    other = b.load(b.at(b.after(local(4), met), b.sub(3, lane)))
    done = barrier(b.end(b.store(place, b.add(b.mul(b.load(place), 10), other)), e))
    last = b.cast(b.load(b.at(p(2, 4), lane)), dt.index)
    results = [b.store(b.at(p(1, 8), lane), b.load(b.at(b.after(reg, done), size - 1))),
               b.store(b.at(p(1, 8), b.add(lane, 4)), b.load(b.at(b.after(reg, done), last)))]  # fmt: skip
    given = {"p0": numbers(4 * size), "p1": zeros(8), "p2": np.arange(4, dtype=np.int32) % size}
    judge(kernel(*results), given)


def test_vectors_of_registers_live_across_a_barrier() -> None:
    """A register that is accessed as a vector, and one that is read through a Bitcast: SELECTED, as selection leaves it."""
    lane = b.cast(special("lidx0", b.const(4, I32)), I32)
    four = b.stack(*(b.const(k, I32) for k in range(4)))
    start = b.mul(lane, b.const(4, I32))
    at = b.add(b.stack(*[start] * 4), four)
    reg = register(4)
    put = b.store(b.at(reg, four), b.load(b.at(p(0, 16), at)))
    met = barrier(put, b.store(b.at(local(4), lane), lane))
    whole = b.load(b.at(b.after(reg, met), four))
    floats = b.load(b.at(b.bitcast(b.after(reg, met), dt.float32), b.const(1, I32)))
    other = b.load(b.at(b.after(local(4), met), b.sub(b.const(3, I32), lane)))
    results = [b.store(b.at(p(1, 16), at), b.add(whole, b.stack(*[other] * 4))), b.store(b.at(p(2, 4, dt.float32), lane), floats)]
    given = {"p0": numbers(16), "p1": zeros(16), "p2": np.zeros(4, np.float32)}
    judge(launch(kernel(*results), p(0, 16), p(1, 16), p(2, 4, dt.float32)), given, Dialect.SELECTED)


def test_a_register_of_two_nests_of_lanes_is_a_memory_of_each() -> None:
    """One nest after the other, of 2 lanes and of 3, each with a Barrier (R128: private memory)."""
    effects: list[UOp] = []
    waits: tuple[UOp, ...] = ()
    for k, n in enumerate((2, 3)):
        lane, reg, shared = b.range_(n, k, AxisType.LOCAL), register(1), local(n, unique=10 + k)
        start = b.after(reg, *waits) if waits else reg
        met = barrier(b.store(b.at(start, 0), b.load(b.at(p(0, 3), lane))), b.store(b.at(shared, lane), cast(lane)))
        mine, other = b.load(b.at(b.after(reg, met), 0)), b.load(b.at(b.after(shared, met), b.sub(n - 1, lane)))
        effects.append(b.end(b.store(b.at(p(1, 6), b.add(lane, 3 * k)), b.add(b.mul(mine, 10), other)), lane))
        waits = (effects[-1],)
    judge(kernel(*effects), {"p0": numbers(3), "p1": zeros(6)})


def test_atomic_sums_of_all_lanes_are_complete_behind_a_barrier() -> None:
    lane = special("lidx0", 8)
    first = b.eq(lane, 0)
    ready = b.after(local(1), barrier(b.store(b.at(local(1), 0), b.const(0, I32), first)))
    add = UOp(Op.ATOMICADD, (b.at(ready, 0), b.load(b.at(p(0, 8), lane))))
    total = b.load(b.at(b.after(local(1), barrier(add)), 0))
    found = judge(kernel(b.store(b.at(p(1, 8), lane), total)), {"p0": numbers(8), "p1": zeros(8)})
    assert found["p1"].tolist() == [numbers(8).sum()] * 8


def test_arithmetic_that_no_lane_changes_is_computed_once() -> None:
    lane, group = special("lidx0", 4), special("gidx0", 3)
    square = b.mul(group, group)
    put = b.store(b.at(local(4), lane), cast(b.add(square, lane)))
    take = b.load(b.at(b.after(local(4), barrier(put)), b.sub(3, lane)))
    root = kernel(b.store(b.at(p(1, 12), b.add(b.mul(group, 4), lane)), b.add(take, cast(square))))
    judge(root, {"p1": zeros(12)})
    linear = lower(root, target("c"), "linearize", CONFIG, dialect=Dialect.SCHEDULED)
    (call,) = linear.src
    squares = [u for u in call.body.src if u.op is Op.MUL and u.src[0] is u.src[1]]
    assert len(squares) == 1 and count(Op.BARRIER, call.body) == count(Op.SPECIAL, call.body) == 0


# Symbolic numbers of groups and lanes


@pytest.mark.parametrize("n", [0, 1, 3])
def test_the_number_of_groups_may_be_a_variable(n: int) -> None:
    root = kernel(reversal(special("lidx0", 4), special("gidx0", b.variable("n", 0, 3)), 4, 12))
    judge(root, {"p0": numbers(12), "p1": zeros(12), "n": n})


@pytest.mark.parametrize("n", [1, 3, 4])
def test_the_number_of_lanes_may_be_a_variable(n: int) -> None:
    """Memory of all lanes is for the greatest number; what is kept across the Barrier lies in it, too."""
    size = b.variable("n", 1, 4)
    lane, reg = special("lidx0", b.mul(size, 1)), register(1)
    kept = b.store(b.at(reg, 0), b.load(b.at(p(0, 4), lane)))
    met = barrier(kept, b.store(b.at(local(4), lane), cast(lane)))
    other = b.load(b.at(b.after(local(4), met), b.sub(b.sub(size, 1), lane)))
    root = kernel(b.store(b.at(p(1, 4), lane), b.add(b.mul(b.load(b.at(b.after(reg, met), 0)), 10), other)))
    judge(root, {"p0": numbers(4), "p1": zeros(4), "n": n})


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("offset", [0, 1])
def test_a_loop_with_a_barrier_has_a_bound_also_if_there_are_no_lanes(n: int, offset: int) -> None:
    """The list that is made means what the kernel means: no lane loaded the bound, and nothing happens."""
    lane = special("lidx0", b.variable("n", 0, 4))
    rounds = b.range_(b.cast(b.add(b.load(b.at(p(1, 1), 0)), offset), dt.index), 1, AxisType.LOOP)
    put = b.store(b.at(b.after(local(4), rounds), lane), cast(lane))
    take = b.store(b.at(p(0, 4), lane), b.load(b.at(b.after(local(4), barrier(put)), lane)))
    root = kernel(b.end(barrier(take), rounds))
    given = {"p0": zeros(4), "p1": np.full(1, 3, np.int32), "n": n}
    judge(root, given)
    lowered = run(lower(root, target("c"), "linearize", CONFIG, dialect=Dialect.SCHEDULED), dict(given)).buffers
    assert lowered.get("p0", zeros(4)).tolist() == [0, 1 if n else 0, 0, 0]


def test_a_range_of_lanes_may_have_a_variable_bound() -> None:
    size = b.variable("n", 1, 4)
    lane, group = b.range_(size, 2, AxisType.LOCAL), b.range_(2, 1, AxisType.GLOBAL)
    root = kernel(b.end(b.end(reversal(lane, group, 4, 8, size), lane), group))
    for n in (1, 2, 4):
        judge(root, {"p0": numbers(8), "p1": zeros(8), "n": n})


def test_the_number_of_lanes_may_be_what_memory_says() -> None:
    count_ = b.cast(b.load(b.at(p(2, 1), 0)), dt.index)
    lane = special("lidx0", count_)
    put = b.store(b.at(local(4), lane), b.load(b.at(p(0, 4), lane)))
    take = b.load(b.at(b.after(local(4), barrier(put)), b.sub(b.sub(count_, 1), lane)))
    given = {"p0": numbers(4), "p1": zeros(4), "p2": np.full(1, 3, np.int32)}
    root = kernel(b.store(b.at(p(1, 4), lane), take))
    for name in ("c", "llvm"):
        found = Compiled(root, target(name), CONFIG, Dialect.SCHEDULED)(dict(given)).buffers["p1"]
        assert found.tolist() == [*numbers(4)[2::-1], 0]


def test_values_of_more_lanes_than_memory_holds_are_refused() -> None:
    lane = special("lidx0", b.cast(b.load(b.at(p(2, 1), 0)), dt.index))
    kept = b.load(b.at(p(0, 4), lane))
    met = barrier(b.store(b.at(local(4), lane), kept))
    take = b.load(b.at(b.after(local(4), met), lane))
    with pytest.raises(CompileError, match=r"more than .* bytes of stack"):
        Compiled(kernel(b.store(b.at(p(1, 4), lane), b.add(take, kept))), target("c"), CONFIG, Dialect.SCHEDULED)


# Programs


def test_a_call_of_a_kernel_of_workgroups_in_a_program_of_tensors() -> None:
    x, out = b.param(0, (8,), I32), b.buffer(8, I32, unique=90)
    called = b.call(kernel(reversal(special("lidx0", 4), special("gidx0", 2), 4, 8)), b.add(x, 1), out, written=(1,))
    graph = b.mul(b.after(out, called), 2)
    given = {"p0": np.arange(8, dtype=np.int32)}
    expected = run(graph, {**given, "b90": zeros(8)}).values[0]
    for name in ("c", "llvm"):
        assert Compiled(graph, target(name), CONFIG)({**given, "b90": zeros(8)}).values[0].tolist() == expected.tolist()


@pytest.mark.parametrize("seed", [11, 12])
def test_drawn_kernels_give_what_the_interpreter_gives(seed: int) -> None:
    for k in range(12):
        drawn = sample(seed, k, ("kernels",))
        judge(drawn.graph, drawn.inputs)


N = 4


def _lane():
    return UOp(Op.SPECIAL, (b.index(N),), SpecialArg("lidx0"))


def _barrier(*effects):
    return UOp(Op.BARRIER, effects)


def _shared():
    return b.buffer(N, dt.int32, addrspace=AddrSpace.LOCAL, unique=1)


def _gives(body, inputs, name, expected):
    assert uops.run(body, inputs).buffers[name].tolist() == expected
    for backend in ("llvm", "c"):
        assert uops.compile(body, backend)(inputs).buffers[name].tolist() == expected


def test_a_view_of_registers_with_narrower_elements_is_of_this_lane():
    lane, out = _lane(), b.param(0, (N,), dt.int16)
    registers = b.buffer(2, dt.int32, addrspace=AddrSpace.REG, unique=1)
    at0, at1, low = b.at(registers, 0), b.at(registers, 1), b.cast(lane, dt.int32)
    high = b.add(low, 10)
    store0, store1 = b.store(at0, low), b.store(at1, high)
    wait = _barrier(store0, store1)
    after = b.after(registers, wait)
    halves = b.bitcast(after, dt.int16)
    at, to = b.at(halves, 2), b.at(out, lane)
    value = b.load(at)
    body = UOp(
        Op.LINEAR,
        (out, registers, lane, low, high, at0, store0, at1, store1, wait, after, halves, at, value, to, b.store(to, value)),
    )
    _gives(body, {"p0": np.zeros(N, np.int16)}, "p0", [10, 11, 12, 13])


def _pass_on_and_count_up(out, shared, lane, *after):
    """Return the effect that `out` gets what the next lane holds, and each lane holds one more."""
    value = b.load(b.at(b.after(shared, *after), b.mod(b.add(lane, 1), N)))
    wait = _barrier(b.store(b.at(out, lane), value))
    return _barrier(b.store(b.at(b.after(shared, wait), lane), b.add(value, 1)))


@pytest.mark.parametrize(("times", "expected"), [(2, [9, 10, 11, 8]), (0, [5, 2, 3, 4])])
def test_a_bound_of_a_block_and_of_one_behind_it_is_loaded_for_each(times, expected):
    lane, bounds, out, shared = _lane(), b.param(0, (2,), dt.int32), b.param(1, (N,), dt.int32), _shared()
    bound, repeat = (b.cast(b.load(b.at(bounds, k)), dt.index) for k in range(2))
    i, j, k = b.range_(repeat, 0), b.range_(bound, 1), b.range_(bound, 2)
    begun = _barrier(b.store(b.at(shared, lane), b.cast(lane, dt.int32)))
    nested = b.end(b.end(_pass_on_and_count_up(out, shared, lane, begun, i, j), j), i)
    body = b.sink(b.end(_pass_on_and_count_up(out, shared, lane, nested, k), k), name="k")
    _gives(body, {"p0": np.array([3, times], np.int32), "p1": np.zeros(N, np.int32)}, "p1", expected)


def test_one_element_is_loaded_again_behind_each_barrier():
    lane, out, shared = _lane(), b.param(0, (2 * N,), dt.int32), _shared()
    number = b.cast(lane, dt.int32)
    fives = _barrier(b.store(b.at(shared, lane), b.add(number, 5)))
    read = _barrier(b.store(b.at(out, lane), b.load(b.at(b.after(shared, fives), 0))))
    nines = _barrier(b.store(b.at(b.after(shared, read), lane), b.add(number, 9)))
    body = b.sink(b.store(b.at(out, b.add(lane, N)), b.load(b.at(b.after(shared, nines), 0))), name="k")
    _gives(body, {"p0": np.zeros(2 * N, np.int32)}, "p0", [5] * N + [9] * N)


def test_a_bound_may_be_computed_from_what_the_lanes_loaded_before():
    lane, bounds, out, shared = _lane(), b.param(0, (1,), dt.int32), b.param(1, (N,), dt.int32), _shared()
    loaded = b.load(b.at(bounds, 0))
    begun = _barrier(b.store(b.at(shared, lane), b.add(b.cast(lane, dt.int32), loaded)))
    i = b.range_(b.cast(b.add(loaded, 1), dt.index), 0)
    body = b.sink(b.end(_pass_on_and_count_up(out, shared, lane, begun, i), i), name="k")
    _gives(body, {"p0": np.array([3], np.int32), "p1": np.zeros(N, np.int32)}, "p1", [6, 7, 8, 9])


@pytest.mark.parametrize("name", ["lidx0", "gidx0"])
@pytest.mark.parametrize("meets", [False, True])
def test_a_number_of_lanes_that_a_kernel_loads_is_no_launch_but_loops(name: str, meets: bool) -> None:
    """R125 (Special): it is loaded before the body changes it. No host can know it."""
    counts = b.param(0, (1,), I32)
    lane = special(name, b.add(b.cast(b.load(b.at(counts, 0)), dt.index), 1))
    filled = b.store(b.at(b.param(1, (4,), I32), lane), b.cast(b.add(lane, 5), I32))
    place = b.at(b.after(counts, barrier(filled)) if meets and name == "lidx0" else counts, 0)
    root = kernel(filled, b.store(place, b.const(0, I32), b.lt(lane, 1)))
    found = judge(root, {"p0": np.array([2], np.int32), "p1": np.zeros(4, np.int32)}, targets=("c", "llvm", "opencl"))
    assert found["p1"].tolist() == [5, 6, 7, 0]
    assert found["p0"].tolist() == [0]
