"""Claims about a program on several devices: a launch touches its device's memory alone, and launches that conflict are ordered.

Takes: the launch as SCHEDULED, whose bodies show which launches are copies, as PLANNED, and the schedule of its queues. Gives:
claims `devices`; none for a program on one device. What conflicts is read here from the arguments, not by the scheduler. A
kernel written by hand touches whatever its Call passes.
Spec: R59 (After), R72 (device), R76 (null axis on D), R166 (kernels written by hand), R182 (memory of callers).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import NamedTuple

from uops.compiler.runtime.queues import QueueSchedule
from uops.compiler.validate import terms as T
from uops.compiler.validate.launches.plan import list_calls_of_written_kernels
from uops.compiler.validate.model import ObligationKind, ValidationClaim
from uops.spec.ir.node import UOp, nodes_with_op
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory, is_variable


class _Touch(NamedTuple):
    """An argument of a Call as bytes of memory; `end` is None where the size is not known."""

    memory: UOp
    first: int
    end: int | None
    is_written: bool

    def meets(self, other: _Touch) -> bool:
        """Return True if both may touch a byte, and one of them writes."""
        if self.memory is not other.memory or not (self.is_written or other.is_written):
            return False
        return (other.end is None or self.first < other.end) and (self.end is None or other.first < self.end)


def generate_write_copy_and_order_claims(kernels: UOp, planned: UOp, schedule: QueueSchedule) -> Iterator[ValidationClaim]:
    """Yield the claims of a program on several devices."""
    touches = [list(_list_touches(call)) for call in planned.src]
    devices = [_device_of(call) for call in planned.src]
    if len(set(devices)) < 2:
        return
    written_by_hand = frozenset(list_calls_of_written_kernels(kernels))
    for k, (old, device) in enumerate(zip(kernels.src, devices, strict=True)):
        if k in written_by_hand:
            continue
        others = {str(t.memory.device) for t in touches[k] if t.memory.device not in (None, device)}
        if others:
            words = f"call {k} on {device} copies from {', '.join(sorted(others))} and does nothing else"
            yield _claim(words, len(others) == 1 and _is_copy(old.body))
        written = {str(t.memory.device) for t in touches[k] if t.is_written and t.memory.device is not None}
        yield _claim(f"call {k} writes memory of {device} alone", written <= {device})
    has_each_launch, is_in_order = _has_each_launch_once(schedule, devices), _runs_in_order(schedule)
    yield _claim("each call is a launch of its device once", has_each_launch)
    yield _claim("the launches of each device run in order, and each step after those that it waits for", is_in_order)
    if not (has_each_launch and is_in_order):
        return
    before = _find_steps_before(schedule)
    step_of = {k: number for number, step in enumerate(schedule.steps) for k in step.launches}
    for i, j in itertools.combinations(range(len(devices)), 2):
        if devices[i] != devices[j] and any(a.meets(b) for a in touches[i] for b in touches[j]):
            yield _claim(f"call {j} on {devices[j]} waits for call {i} on {devices[i]}", step_of[i] in before[step_of[j]])


def _list_touches(call: UOp) -> Iterator[_Touch]:
    written: Collection[int] = range(len(call.arguments)) if call.arg is None or call.arg.written is None else call.arg.written
    for k, a in enumerate(call.arguments):
        memory = base_memory(a)
        if is_variable(memory):
            continue
        first = int(a.offset.arg.value) * memory.dtype.itemsize if a.op is Op.SLICE else 0
        size = a.arg.size * a.dtype.itemsize if a.op is Op.SLICE or a.op is Op.BUFFER else None
        yield _Touch(memory, first, None if size is None else first + size, k in written)


def _device_of(call: UOp) -> str:
    """Return the device of the memory that a Call writes; the host for none."""
    return next((str(t.memory.device) for t in _list_touches(call) if t.is_written and t.memory.device is not None), "CPU")


def _is_copy(body: UOp) -> bool:
    """Return True if a kernel stores what it loads, and computes nothing."""
    stores = nodes_with_op(body, Op.STORE)
    return len(stores) == 1 and stores[0].value.op is Op.LOAD and len(nodes_with_op(body, Op.LOAD)) == 1


def _find_steps_before(schedule: QueueSchedule) -> list[set[int]]:
    """Return, for each step of a schedule in order, those that have ended when it begins."""
    before: list[set[int]] = []
    for direct in _list_direct_predecessors(schedule):
        before.append(set(direct).union(*[before[earlier] for earlier in direct]))
    return before


def _list_direct_predecessors(schedule: QueueSchedule) -> list[list[int]]:
    """Return, for each step, those that it waits for and the one before it on its device."""
    previous = {later: earlier for steps in schedule.steps_by_device.values() for earlier, later in itertools.pairwise(steps)}
    return [[*step.waits, *([previous[k]] if k in previous else [])] for k, step in enumerate(schedule.steps)]


def _runs_in_order(schedule: QueueSchedule) -> bool:
    """Return True if the launches of each device ascend, as in the program, and each step follows its predecessors."""
    per_device = [[k for s in steps for k in schedule.steps[s].launches] for steps in schedule.steps_by_device.values()]
    ascends = all(earlier < later for launches in per_device for earlier, later in itertools.pairwise(launches))
    return ascends and all(earlier < k for k, direct in enumerate(_list_direct_predecessors(schedule)) for earlier in direct)


def _has_each_launch_once(schedule: QueueSchedule, devices: list[str]) -> bool:
    listed = [(k, device) for device, steps in schedule.steps_by_device.items() for s in steps for k in schedule.steps[s].launches]
    return sorted(listed) == list(enumerate(devices))


def _claim(place: str, holds: bool) -> ValidationClaim:
    return ValidationClaim(ObligationKind.DEVICES, place, T.TRUE, T.TRUE if holds else T.FALSE)
