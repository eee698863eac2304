"""Reuse of LOCAL and REG memory: what is shared, what is kept apart, and that the interpreter and validation agree (R176)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import uops
from uops.compiler.passes.linearize import linearize_kernel
from uops.compiler.passes.private_memory import reuse_private_memory
from uops.compiler.validate.launches.private import generate_private_plan_claims
from uops.compiler.validate.terms import TRUE
from uops.interp import run
from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, CustomArg, RangeArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

N = 4
OUT, IN = b.param(0, (N,), dt.int32), b.param(1, (N,), dt.int32)
LOCAL, REG = AddrSpace.LOCAL, AddrSpace.REG


def loop(axis: int, kind: AxisType = AxisType.LOOP, bound: int = N) -> UOp:
    return UOp(Op.RANGE, (b.const(bound, dt.int32),), A.RangeArg(axis, kind))


def memory(unique: int, size: int = 1, space: AddrSpace = REG, d: dt.DType = dt.int32) -> UOp:
    return b.buffer(size, d, "CPU", space, unique)


def c(k: int) -> UOp:
    return b.const(k, dt.int32)


def at(x: UOp, k: UOp) -> UOp:
    return UOp(Op.INDEX, (x, k))


def kernel(*effects: UOp) -> UOp:
    return linearize_kernel(UOp(Op.SINK, effects, A.SinkArg("k", True)))


def buffers(linear: UOp) -> list[UOp]:
    return [u for u in linear.src if u.op is Op.BUFFER]


def holds(before: UOp, after: UOp) -> bool:
    return all(claim.goal == TRUE for claim in generate_private_plan_claims("k", before, after))


def outputs(linear: UOp, schedule: int | None = None) -> list[int]:
    memories = [b.buffer(N, dt.int32, unique=100 + k) for k in range(2)]
    inputs = {"b100": np.zeros(N, np.int32), "b101": np.array([3, 1, 4, 1], np.int32)}
    call = b.call(linear, *memories)
    found: list[int] = run(b.after(memories[0], call), inputs, schedule=schedule).values[0].tolist()
    return found


def accumulate(register: UOp, x: UOp, axis: int, *outer: UOp, start: int = 0) -> UOp:
    """Build the register after it was cleared and the elements of `x` were added."""
    k = loop(axis, AxisType.REDUCE)
    cleared = b.store(at(b.after(register, *outer) if outer else register, c(0)), c(start))
    place = at(b.after(register, cleared, k), c(0))
    return b.after(register, b.end(b.store(place, b.add(b.load(place), b.load(at(x, k)))), k))


def one_after_the_other(i: UOp) -> UOp:
    """Build two sums, the second of which begins when the first was stored."""
    first = b.store(at(OUT, i), b.load(at(accumulate(memory(1), IN, 5, i), c(0))))
    second = b.load(at(accumulate(memory(2), IN, 6, b.after(i, first), start=7), c(0)))
    return b.end(b.store(at(b.after(OUT, first), i), b.add(second, b.load(at(b.after(OUT, first), i)))), i)


def read_together(i: UOp) -> UOp:
    """Build two sums, the first of which is read when the second is there."""
    first = accumulate(memory(1), IN, 5, i)
    second = accumulate(memory(2), IN, 6, b.after(i, first), start=7)
    total = b.add(b.load(at(b.after(first, second), c(0))), b.load(at(second, c(0))))
    return b.end(b.store(at(OUT, i), total), i)


@pytest.mark.parametrize("kind", [AxisType.LOOP, AxisType.GLOBAL, AxisType.THREAD, AxisType.LOCAL], ids=lambda k: k.name)
def test_registers_with_disjoint_lifetimes_are_one(kind: AxisType) -> None:
    before = kernel(one_after_the_other(loop(0, kind)))
    after = reuse_private_memory(before)
    assert len(buffers(before)) == 2
    assert len(buffers(after)) == 1
    assert holds(before, after)
    assert outputs(after) == outputs(before) == [25] * N


def test_registers_that_are_read_together_stay_apart() -> None:
    before = kernel(read_together(loop(0)))
    assert reuse_private_memory(before) is before
    assert outputs(before) == [25] * N


def test_contents_that_a_loop_carries_stay() -> None:
    """A register that keeps a running sum over an outer loop lives in all of it."""
    i = loop(0)
    running = memory(1)
    cleared = b.store(at(running, c(0)), c(0))
    place = at(b.after(running, cleared, i), c(0))
    added = b.store(place, b.add(b.load(place), b.load(at(IN, i))))
    inner = accumulate(memory(2), IN, 5, b.after(i, added))
    value = b.load(at(inner, c(0)))
    before = kernel(b.end(b.store(at(OUT, i), b.add(value, b.load(at(b.after(running, added), c(0))))), i))
    after = reuse_private_memory(before)
    assert len(buffers(after)) == 2
    assert outputs(after) == [12, 13, 17, 18]


@pytest.mark.parametrize(
    ("one", "other"),
    [(memory(1), memory(2, 1, REG, dt.float32)), (memory(1), memory(2, 1, LOCAL)), (memory(1), memory(2, 2))],
    ids=["dtype", "space", "size"],
)
def test_unlike_memory_stays_apart(one: UOp, other: UOp) -> None:
    i = loop(0)
    first = b.store(at(OUT, i), b.load(at(b.after(one, b.store(at(b.after(one, i), c(0)), c(5))), c(0))))
    there = b.after(other, b.after(i, first))
    value = b.cast(b.load(at(b.after(other, b.store(at(there, c(0)), b.const(1, other.dtype))), c(0))), dt.int32)
    before = kernel(b.end(b.store(at(b.after(OUT, first), i), value), i))
    assert len(buffers(reuse_private_memory(before))) == 2


def exchange(lane: UOp, local: UOp, ready: Sequence[UOp], value: UOp) -> tuple[UOp, UOp]:
    """Build a lane's read of its neighbour's value, and the Barrier before it."""
    place = b.after(local, *ready) if ready else local
    barrier = UOp(Op.BARRIER, (b.store(at(place, lane), value),))
    turned = b.mod(b.add(lane, c(1)), c(N))
    return b.load(at(b.after(local, barrier), turned)), barrier


@pytest.mark.parametrize("barrier_between", [False, True])
def test_lanes_share_local_memory_only_across_a_barrier(barrier_between: bool) -> None:
    lane = UOp(Op.SPECIAL, (c(N),), A.SpecialArg("lidx0"))
    one, other = memory(1, N, LOCAL), memory(2, N + 2, LOCAL)
    first, _ = exchange(lane, one, (), b.load(at(IN, lane)))
    stored = b.store(at(OUT, lane), first)
    ready = UOp(Op.BARRIER, (stored,)) if barrier_between else stored
    second, _ = exchange(lane, other, (ready,), first)
    before = kernel(b.store(at(b.after(OUT, stored), lane), b.add(second, b.load(at(b.after(OUT, stored), lane)))))
    after = reuse_private_memory(before)
    assert [u.arg.size for u in buffers(after)] == ([N + 2] if barrier_between else [N, N + 2])
    assert after is before or holds(before, after)
    assert {tuple(outputs(after, seed)) for seed in (None, 1, 2, 3)} == {(5, 5, 4, 4)}


# Validation sees a wrong plan


def merge(linear: UOp, keep: int, drop: int) -> UOp:
    """Merge two Buffers without looking, the later one after nothing but the first's clearing."""
    one, other = ({u.arg.unique: u for u in buffers(linear)}[k] for k in (keep, drop))
    done: dict[UOp, UOp] = {}
    listed: list[UOp] = []
    for u in linear.src:
        if u is other:
            done[u] = UOp(Op.AFTER, (done[one], done[next(s for s in linear.src if s.op is Op.PARAM and s in done)]))
            listed.append(done[u])
            continue
        done[u] = u.replace(src=tuple(done.get(s, s) for s in u.src))
        listed.append(done[u])
    return linear.replace(src=tuple(listed))


def test_validation_refutes_overlapping_lifetimes() -> None:
    before = kernel(read_together(loop(0)))
    first, second = (u.arg.unique for u in buffers(before))
    assert not holds(before, merge(before, first, second))


def test_validation_refutes_a_missing_barrier() -> None:
    lane = UOp(Op.SPECIAL, (c(N),), A.SpecialArg("lidx0"))
    one, other = memory(1, N, LOCAL), memory(2, N, LOCAL)
    first, _ = exchange(lane, one, (), b.load(at(IN, lane)))
    second, _ = exchange(lane, other, (b.store(at(OUT, lane), first),), first)
    before = kernel(b.store(at(OUT, lane), second))
    assert not holds(before, merge(before, *(u.arg.unique for u in buffers(before))))


def test_validation_refutes_a_list_that_lost_an_instruction() -> None:
    before = kernel(one_after_the_other(loop(0)))
    after = reuse_private_memory(before)
    stores = [u for u in after.src if u.op is Op.STORE]
    assert not holds(before, after.replace(src=tuple(u for u in after.src if u is not stores[0])))


def _private(size, unique, space=AddrSpace.REG):
    return b.buffer(size, dt.int32, addrspace=space, unique=unique)


def _contents_of_an_iteration_before(make_store):
    """Return a kernel whose register `kept` keeps what an earlier iteration stored, beside one that each iteration fills."""
    out, values, i = b.param(0, (4,), dt.int32), b.param(1, (4,), dt.int32), b.range_(4, 0)
    kept, own = _private(4, 1), _private(4, 2)
    stored = make_store(kept, b.load(b.at(values, i)), i)
    value = b.load(b.at(b.after(kept, stored), 2))
    squares = [b.store(b.at(b.after(own, i), k), b.mul(value, b.add(value, k))) for k in range(4)]
    total = b.add(b.load(b.at(b.after(own, *squares), i)), value)
    return b.sink(b.end(b.store(b.at(out, i), total), i), name="k")


def _behind_a_loop_over_some_elements(kept, value, i):
    k = b.range_(2, 2)
    some = b.end(b.store(b.at(b.after(kept, i, k), k), b.add(value, b.cast(k, dt.int32))), k)
    return b.store(b.at(b.after(kept, some), 2), b.add(value, 10), b.gt(value, 0))


def _one(make_store):
    out, values, i = b.param(0, (4,), dt.int32), b.param(1, (4,), dt.int32), b.range_(4, 0)
    kept, own = _private(1, 1), _private(1, 2)
    stored = make_store(kept, b.load(b.at(values, i)), i)
    value = b.load(b.at(b.after(kept, stored), 0))
    square = b.store(b.at(b.after(own, i), 0), b.mul(value, value))
    total = b.add(b.load(b.at(b.after(own, square), 0)), value)
    return b.sink(b.end(b.store(b.at(out, i), total), i), name="k")


def _agrees(body):
    x = {"p0": np.zeros(4, np.int32), "p1": np.array([1, 0, 2, 0], np.int32)}
    want = uops.run(body, x).buffers["p0"].tolist()
    assert uops.compile(body, "llvm")(x).buffers["p0"].tolist() == want


def _listed(*effects):
    return UOp(Op.LINEAR, tuple(u for u in toposort(*effects) if u.op is not Op.CONST and (u.op is not Op.STACK)))


def _buffers(linear):
    return [u for u in reuse_private_memory(linear).src if u.op is Op.BUFFER]


def test_a_gated_store_leaves_the_contents_of_an_earlier_iteration():
    _agrees(_one(lambda kept, value, i: b.store(b.at(b.after(kept, i), 0), b.add(value, 10), b.gt(value, 0))))


def test_a_store_in_a_loop_that_may_not_run_leaves_them():
    def make(kept, value, i):
        j = UOp(Op.RANGE, (b.cast(value, dt.index),), RangeArg(1, AxisType.LOOP))
        return b.end(b.store(b.at(b.after(kept, i, j), 0), b.add(value, 10)), j)

    _agrees(_one(make))


def test_a_loop_over_some_elements_leaves_the_others():
    (loops,) = _contents_of_an_iteration_before(_behind_a_loop_over_some_elements).src
    assert len(_buffers(_listed(loops))) == 2


def test_memory_per_iteration_and_memory_of_the_kernel_stay_apart_R128():
    out, g = b.param(0, (4,), dt.int32), b.range_(4, 0, AxisType.GLOBAL)
    one, each = _private(1, 1), _private(1, 2)
    first = b.store(b.at(one, 0), b.const(3, dt.int32))
    x = b.load(b.at(b.after(one, first), 0))
    before = b.store(b.at(out, 0), x)
    second = b.store(b.at(b.after(each, before, g), 0), b.cast(g, dt.int32))
    last = b.end(b.store(b.at(b.after(out, before), g), b.load(b.at(b.after(each, second), 0))), g)
    assert len(_buffers(_listed(last))) == 2


def test_memory_that_native_text_holds_is_not_shared():
    out = b.param(0, (1,), dt.int32)
    one, other = _private(1, 1), _private(1, 2)
    first = b.store(b.at(one, 0), b.const(3, dt.int32))
    keep = b.store(b.at(out, 0), b.load(b.at(b.after(one, first), 0)))
    second = b.store(b.at(b.after(other, keep), 0), b.const(4, dt.int32))
    y = b.store(b.at(b.after(out, keep), 0), b.load(b.at(b.after(other, second), 0)))
    text = UOp(Op.CUSTOM, (b.after(one, y),), CustomArg("use({0});", dt.void))
    assert len(_buffers(_listed(text))) == 2


@pytest.mark.parametrize("kind", [AxisType.LOCAL, AxisType.WARP], ids=lambda kind: kind.name)
def test_a_loop_of_lanes_writes_one_element_of_each_lane_s_register(kind: AxisType) -> None:
    """What an iteration writes, the next one reads, so nothing else may use that memory between."""
    i, m = loop(0), loop(1, kind)
    kept, passing = memory(1, N), memory(2, N)
    beside = b.mod(b.add(m, c(1)), c(N))
    clear = b.store(at(b.after(kept, i, m), m), c(0))
    carried = b.load(at(b.after(kept, clear), beside), c(0), b.lt(c(0), i))
    shown = b.store(at(OUT, m), carried)
    keep = b.store(at(b.after(kept, clear, shown), beside), b.add(i, c(1)))
    first = b.store(at(b.after(passing, b.after(i, keep), m), m), c(7))
    second = b.store(at(b.after(passing, first), beside), c(100))
    read = b.mul(b.load(at(b.after(passing, second), beside)), c(1000))
    total = b.store(at(b.after(OUT, shown), m), b.add(b.load(at(b.after(OUT, shown), m)), read))
    before = kernel(b.end(b.end(total, m), i))
    after = reuse_private_memory(before)
    assert outputs(after) == outputs(before) == [100_003] * N
