"""Scheduled launches: what machine code leaves in memory, in all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from uops.backends.worker.guard import GuardSide
from uops.fuzz.generate import kinds
from uops.fuzz.generate.kinds import ProgramSample
from uops.fuzz.oracles import launches
from uops.fuzz.oracles.launches import Entry
from uops.fuzz.oracles.subject import Subject
from uops.interp import run
from uops.spec.ir.node import UOp, rebuild, toposort
from uops.spec.ir.ops import Op
from uops.spec.verify.dialects import Dialect

Lowered = Iterator[tuple[str, UOp]]


def _launches(fits: Callable[[ProgramSample], bool]) -> list[ProgramSample]:
    """Some drawn launches."""
    drawn = (kinds.sample(5, k, ("kernels",)) for k in range(60))
    found = [s for s in drawn if fits(s)][:4]
    assert found
    return found


def _reads(s: ProgramSample) -> set[str]:
    """Memory that a launch is given and does not write."""
    used = {f"b{a.arg.unique}" for call in s.graph.src for a in call.src[1:] if a.op is Op.BUFFER}
    return used & s.inputs.keys() - run(s.graph, s.inputs).buffers.keys()


def _fault(s: ProgramSample, target: Any) -> Any:
    return launches.check_launch_native_against_interpreter(s.graph, s.inputs, Entry(Dialect.SCHEDULED, 0), target, GuardSide.END)


def test_memory_that_a_launch_only_reads_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    target, real = Subject("llvm").target, launches.load_and_run_first_calls
    for s in _launches(lambda s: bool(_reads(s))):
        assert _fault(s, target) is None
        spoilt = min(_reads(s))

        def spoil(*arguments: Any, spoilt: str = spoilt, **named: Any) -> dict[str, Any]:
            found = real(*arguments, **named)
            found[spoilt].reshape(-1)[-1:].view(np.uint8)[...] ^= 1
            return found

        with monkeypatch.context() as m:
            m.setattr(launches, "load_and_run_first_calls", spoil)
            fault = _fault(s, target)
        assert fault is not None
        assert fault.output == spoilt


@pytest.mark.parametrize("kept", [0, 1])
def test_kernels_that_are_dropped_are_seen(monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    target, real = Subject("llvm").target, launches._lower_and_yield_after_each_pass
    for s in _launches(lambda s: len(s.graph.src) > kept):

        def drop(graph: UOp, entry: Entry, target: Any) -> Lowered:
            yield from ((name, g.replace(src=g.src[:kept])) for name, g in real(graph, entry, target))

        with monkeypatch.context() as m:
            m.setattr(launches, "_lower_and_yield_after_each_pass", drop)
            fault = _fault(s, target)
        assert fault is not None
        assert fault.kind == "value"


def test_memory_that_nobody_gave_must_be_written() -> None:
    found = launches.find_wrong_or_clobbered_memory({}, {"b7": np.arange(3)}, {})
    assert found is not None
    assert found.message == "b7 is never written"
    assert launches.find_wrong_or_clobbered_memory({}, {}, {"b7": np.arange(3)}) is None


def test_a_pass_that_drops_barriers_is_found_by_the_lanes_of_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    target, real = Subject("llvm").target, launches._lower_and_yield_after_each_pass
    entry = Entry(Dialect.SCHEDULED, 0)

    def drop_barriers(graph: UOp, entry: Entry, target: Any) -> Lowered:
        for name, after in real(graph, entry, target):
            yield name, rebuild(after, lambda u: UOp(Op.GROUP, u.src) if u.op is Op.BARRIER else u) if name == "expand" else after

    faults = []
    for s in _launches(lambda s: any(u.op is Op.BARRIER for u in toposort(s.graph))):
        assert launches.find_wrong_pass_of_launch(s.graph, s.inputs, entry, target) is None
        with monkeypatch.context() as m:
            m.setattr(launches, "_lower_and_yield_after_each_pass", drop_barriers)
            faults.append(launches.find_wrong_pass_of_launch(s.graph, s.inputs, entry, target))
    found = [f for f in faults if f is not None]
    assert found
    for wrong, fault in found:
        assert wrong.pass_ == "expand"
        assert "R55" in fault.message or "R60" in fault.message
