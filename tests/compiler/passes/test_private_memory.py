"""Reuse of LOCAL and REG memory: what is shared, what is kept apart, and that the interpreter and validation agree (R176)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from uops.compiler.passes.linearize import linearize_kernel
from uops.compiler.passes.private_memory import reuse_private_memory
from uops.compiler.validate.private import generate_private_plan_claims
from uops.compiler.validate.terms import TRUE
from uops.interp import run
from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
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
