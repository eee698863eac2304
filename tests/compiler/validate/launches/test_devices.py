"""Programs on several devices: a launch that touches two devices, and a copy that does not wait, are refused."""

from __future__ import annotations

import numpy as np
import pytest

import uops
from uops.backends.registry import create_backend
from uops.compiler.pipeline import lower
from uops.compiler.runtime.queues import QueueSchedule, QueueStep, describe_launch_access, schedule_launches
from uops.compiler.validate.launches.devices import generate_write_copy_and_order_claims
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.scope import base_memory
from uops.spec.rows.collectives import allreduce

PAIR = ("D0", "D1")


def stages(graph: UOp) -> tuple[UOp, UOp, QueueSchedule]:
    """Return the launch as SCHEDULED and as PLANNED, and its schedule."""
    target = create_backend("c").target
    scheduled, planned = (lower(graph, target, stage) for stage in ("optimize", "plan"))
    return scheduled, planned, schedule_launches([describe_launch_access(c) for c in planned.src])


REDUCED = stages(b.copy(allreduce(b.buffer(4, dt.int32, PAIR, unique=1), PAIR), "D1"))


def failing(scheduled: UOp, planned: UOp, schedule: QueueSchedule) -> list[str]:
    return [c.place for c in generate_write_copy_and_order_claims(scheduled, planned, schedule) if c.given is not c.goal]


def test_a_program_on_several_devices_is_validated() -> None:
    claims = list(generate_write_copy_and_order_claims(*REDUCED))
    assert not failing(*REDUCED)
    assert any("copies from" in c.place for c in claims) and any("waits for" in c.place for c in claims)


def test_a_program_on_one_device_has_no_such_claims() -> None:
    assert not list(generate_write_copy_and_order_claims(*stages(b.add(b.param(0, (4,), dt.int32, "D1"), 1))))


@pytest.mark.parametrize("step", range(1, len(REDUCED[2].steps)))
def test_a_launch_that_does_not_wait_is_refused(step: int) -> None:
    scheduled, planned, schedule = REDUCED
    steps = list(schedule.steps)
    if not steps[step].waits:
        pytest.skip("this step waits for none")
    steps[step] = steps[step]._replace(waits=())
    assert any("waits for" in place for place in failing(scheduled, planned, schedule._replace(steps=tuple(steps))))


def test_a_launch_that_is_left_out_or_on_another_device_is_refused() -> None:
    scheduled, planned, schedule = REDUCED
    steps = (*schedule.steps[:-1], QueueStep((*schedule.steps[-1].launches, 0), schedule.steps[-1].waits))
    assert "each call is a launch of its device once" in failing(scheduled, planned, schedule._replace(steps=steps))
    (first, of_first), *others = schedule.steps_by_device.items()
    swapped = {first: others[0][1], others[0][0]: of_first, **dict(others[1:])}
    assert "each call is a launch of its device once" in failing(scheduled, planned, schedule._replace(steps_by_device=swapped))


def test_launches_of_a_device_in_another_order_are_refused() -> None:
    x = b.param(0, (8,), dt.int32, "D0")
    scheduled, planned, schedule = stages(b.copy(b.contiguous(b.mul(b.contiguous(b.add(x, 1)), x)), "D1"))
    assert not failing(scheduled, planned, schedule) and schedule.steps[0].launches == (0, 1)
    steps = tuple(s._replace(launches=s.launches[::-1]) for s in schedule.steps)
    in_order = "the launches of each device run in order, and each step after those that it waits for"
    assert failing(scheduled, planned, schedule._replace(steps=steps)) == [in_order]
    scheduled, planned, schedule = REDUCED
    of_device = schedule.steps_by_device["D0"]
    assert len(of_device) > 1
    reversed_steps = {**schedule.steps_by_device, "D0": of_device[::-1]}
    assert failing(scheduled, planned, schedule._replace(steps_by_device=reversed_steps)) == [in_order]
    first, *others = schedule.steps
    cyclic = schedule._replace(steps=(first._replace(waits=(len(others),)), *others))
    assert failing(scheduled, planned, cyclic) == [in_order]


def test_a_kernel_that_computes_on_memory_of_another_device_is_refused() -> None:
    x = b.param(0, (8,), dt.int32, "D0")
    right = stages(b.tuple_(b.copy(b.contiguous(b.add(x, 1)), "D1"), b.add(x, 2)))
    assert not failing(*right)
    scheduled, planned, schedule = right
    copy = next(k for k, c in enumerate(planned.src) if {base_memory(a).device for a in c.arguments} == {"D0", "D1"})
    adds = next(c.body for c in scheduled.src if c.body is not scheduled.src[copy].body)
    calls = [c if k != copy else c.replace(src=(adds, *c.arguments)) for k, c in enumerate(scheduled.src)]
    assert any("does nothing else" in place for place in failing(scheduled.replace(src=tuple(calls)), planned, schedule))


def test_a_kernel_that_writes_to_two_devices_is_refused() -> None:
    scheduled, planned, schedule = REDUCED
    k, call = next((k, c) for k, c in enumerate(planned.src) if len({base_memory(a).device for a in c.arguments}) == 2)
    both = call.replace(arg=call.arg.__class__(written=tuple(range(len(call.arguments)))))
    calls = tuple(both if n == k else c for n, c in enumerate(planned.src))
    assert any("writes memory of" in place for place in failing(scheduled, planned.replace(src=calls), schedule))


def test_conflicts_are_read_apart_from_the_scheduler() -> None:
    """A scheduler that takes no accesses for conflicts is refused."""
    scheduled, planned, _ = REDUCED
    accesses = [describe_launch_access(c)._replace(reads=(), writes=()) for c in planned.src]
    assert any("waits for" in place for place in failing(scheduled, planned, schedule_launches(accesses)))


def written_on_both_devices() -> UOp:
    """A kernel written by hand reads and writes memory of two devices; one more launch on each of them reads it."""
    first, second = (b.buffer(4, dt.int32, device, unique=k) for k, device in enumerate(PAIR, 1))
    i = b.range_(4, 1)
    p0, p1 = (b.at(b.param(slot, (4,), dt.int32), i) for slot in range(2))
    value = b.add(b.load(p0), b.load(p1))
    call = b.call(b.sink(b.end(b.group(b.store(p0, value), b.store(p1, b.mul(value, 2))), i), name="k"), first, second)
    return b.sink(b.add(b.after(first, call), 1), b.add(b.after(second, call), 1))


def test_a_kernel_written_by_hand_may_touch_memory_of_several_devices() -> None:
    graph = written_on_both_devices()
    scheduled, planned, schedule = stages(graph)
    assert not failing(scheduled, planned, schedule)
    steps = tuple(s._replace(waits=()) for s in schedule.steps)
    assert any("waits for" in place for place in failing(scheduled, planned, schedule._replace(steps=steps)))
    inputs = {"b1": np.arange(4, dtype=np.int32), "b2": np.arange(4, dtype=np.int32)}
    program = uops.compile(graph, "c", validate=True)
    for got, want in zip(program(inputs).values, uops.run(graph, inputs).values, strict=True):
        assert np.array_equal(got, want)
