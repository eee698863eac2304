"""Queues of devices: a schedule orders all that conflicts, devices run side by side, and an error ends all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uops.backends.registry import create_backend
from uops.compiler.config import Config
from uops.compiler.runtime import queues
from uops.compiler.runtime.program import Compiled
from uops.compiler.runtime.queues import LaunchAccess, MemoryRange, QueueRunner, QueueSchedule, QueueStep, schedule_launches
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.rows.collectives import allreduce

A, B = MemoryRange(0, 0, 8), MemoryRange(1, 0, 8)


def launch(device: str, reads: Sequence[MemoryRange] = (), writes: Sequence[MemoryRange] = ()) -> LaunchAccess:
    return LaunchAccess(device, tuple(reads), tuple(writes))


def waits_of(*launches: LaunchAccess) -> list[tuple[int, ...]]:
    return [step.waits for step in schedule_launches(launches).steps]


def test_devices_wait_only_for_what_conflicts() -> None:
    assert waits_of(launch("D0", [A], [A]), launch("D1", [B], [B])) == [(), ()]
    assert waits_of(launch("D0", [A]), launch("D1", [A])) == [(), ()]
    assert waits_of(launch("D0", (), [MemoryRange(0, 0, 4)]), launch("D1", [MemoryRange(0, 4, 8)])) == [(), ()]
    for first, second in (((), [A]), ([A], ())), (([A], ()), ((), [A])), (((), [A]), ((), [A])):
        assert waits_of(launch("D0", *first), launch("D1", *second)) == [(), (0,)]


def test_launches_of_one_device_are_one_step_until_another_one_waits() -> None:
    schedule = schedule_launches([launch("D0", (), [A]), launch("D0", [A], [B]), launch("D1", [B]), launch("D0", (), [A])])
    assert schedule.steps == (QueueStep((0, 1), ()), QueueStep((2,), (0,)), QueueStep((3,), ()))
    assert schedule.steps_by_device == {"D0": (0, 2), "D1": (1,)}


ranges = st.builds(
    lambda base, first, size: MemoryRange(base, first, first + size), st.integers(0, 2), st.integers(0, 3), st.integers(1, 3)
)
accesses = st.lists(
    st.builds(launch, st.sampled_from(["D0", "D1", "D2"]), st.lists(ranges, max_size=2), st.lists(ranges, max_size=2)), max_size=9
)


@given(accesses)
def test_every_conflict_is_ordered_as_in_the_program(launches: list[LaunchAccess]) -> None:
    schedule = schedule_launches(launches)
    step_of = {k: number for number, step in enumerate(schedule.steps) for k in step.launches}
    assert sorted(step_of) == list(range(len(launches)))
    before: list[set[int]] = []  # the steps that must have ended before each step begins
    for number, step in enumerate(schedule.steps):
        own = next(steps for steps in schedule.steps_by_device.values() if number in steps)
        direct = {*step.waits, *own[: own.index(number)]}
        assert all(earlier < number for earlier in direct)
        before.append(direct.union(*[before[earlier] for earlier in direct]))
    for later, access in enumerate(launches):
        for earlier in range(later):
            if access.conflicts_with(launches[earlier]):
                assert step_of[earlier] == step_of[later] or step_of[earlier] in before[step_of[later]]


def test_devices_run_at_the_same_time() -> None:
    meeting = threading.Barrier(3, timeout=20)  # which three threads pass only together
    schedule = schedule_launches([launch(f"D{k}") for k in range(3)])
    QueueRunner(schedule, [lambda addresses, values: meeting.wait()] * 3).run([], [])


def test_the_first_error_ends_all_devices_and_is_raised() -> None:
    done: list[str] = []

    def fail(addresses: Sequence[int], values: Sequence[int]) -> None:
        raise ValueError("planted")

    def record(name: str):
        return lambda addresses, values: done.append(name)

    steps = (QueueStep((0,), ()), QueueStep((1,), (0,)), QueueStep((2,), (1,)), QueueStep((3,), ()))
    schedule = QueueSchedule(steps, {"D0": (0,), "D1": (1, 3), "D2": (2,)})
    runner = QueueRunner(schedule, [fail, record("after"), record("later"), record("behind")])
    for _ in range(3):  # threads are used again
        with pytest.raises(ValueError, match="planted"):
            runner.run([], [])
    assert not done


def exchange(n: int) -> UOp:
    """Each device adds what the others have, three times; the sums come back."""
    devices = tuple(f"D{k}" for k in range(n))
    x = b.param(0, (n * n * 4,), dt.int32, devices, 0)
    for _ in range(3):
        total = allreduce(x, devices)
        x = UOp(Op.ADD, (x, b.reshape(b.expand(b.reshape(total, (1, n * 4)), (n, n * 4)), x.shape)))
    return b.tuple_(x, total)


@pytest.mark.parametrize("backend", ["c", "llvm"])
@pytest.mark.parametrize("n", [2, 3])
def test_a_program_gives_the_same_in_one_thread_or_in_several(backend: str, n: int) -> None:
    target = create_backend(backend).target
    always, never = (Compiled(exchange(n), target, Config(reuse=False, queues=q)) for q in ("always", "never"))
    assert always._queues is not None and never._queues is None
    assert len(always._queues.schedule.steps_by_device) == n + 1  # the host's copies, too
    inputs = [{"p0": np.arange(n * n * 4, dtype=np.int32) * k} for k in range(8)]
    want = [never(i) for i in inputs]
    with ThreadPoolExecutor(4) as pool:
        for found, expected in zip(pool.map(always, inputs * 4), want * 4, strict=True):
            assert all(np.array_equal(v, w) for v, w in zip(found.values, expected.values, strict=True))


def test_little_work_stays_in_one_thread() -> None:
    target = create_backend("c").target
    assert Compiled(exchange(2), target, Config(reuse=False))._queues is None
    big = b.param(0, (1 << 20,), dt.float32, ("D0", "D1"), 0)
    assert Compiled(UOp(Op.EXP2, (big,)), target, Config(reuse=False))._queues is not None


def test_an_interrupted_run_leaves_no_launch_behind() -> None:
    """What the caller's thread raises stops the others, which end before `run` does."""
    running = threading.Event()

    def interrupt(addresses: Sequence[int], values: Sequence[int]) -> None:
        running.wait(20)
        raise KeyboardInterrupt

    def work(addresses: Sequence[int], values: Sequence[int]) -> None:
        running.set()
        time.sleep(0.2)
        ended.append(True)

    ended: list[bool] = []
    schedule = QueueSchedule((QueueStep((0,), ()), QueueStep((1,), ()), QueueStep((2,), ())), {"D0": (0,), "D1": (1, 2)})
    with pytest.raises(KeyboardInterrupt):
        QueueRunner(schedule, [interrupt, work, lambda addresses, values: ended.append(False)]).run([], [])
    assert ended == [True]


def test_an_interrupt_outside_of_a_step_ends_the_other_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """It strikes before the first device has begun, whose step the second one waits for."""
    run_queue = queues._Run.run_queue

    def interrupt_first_device(run: queues._Run, steps: Sequence[int]) -> None:
        if 0 in steps:
            raise KeyboardInterrupt
        run_queue(run, steps)

    monkeypatch.setattr(queues._Run, "run_queue", interrupt_first_device)
    executed: list[int] = []
    runner = QueueRunner(
        QueueSchedule((QueueStep((0,), ()), QueueStep((1,), (0,))), {"D0": (0,), "D1": (1,)}),
        [lambda addresses, values, k=k: executed.append(k) for k in range(2)],
    )
    seen: list[BaseException] = []

    def run_and_catch() -> None:
        try:
            runner.run([], [])
        except KeyboardInterrupt as e:
            seen.append(e)

    thread = threading.Thread(target=run_and_catch, daemon=True)
    thread.start()
    thread.join(30)
    assert seen and not executed
