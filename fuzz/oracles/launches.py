"""Oracles of launches, which enter the compiler as kernels written by hand (R166).

Takes: a LINEAR of Calls of kernels whose results are exact, in KERNEL or SCHEDULED, and inputs. Gives: the first `Fault`:
different results in two orders of unordered work, after a pass, or of machine code; and the pass that causes it. Spec: Lowering
Pipeline; R55 (races), R57 (order of ranges).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from uops.backends.conformance.stage_judge import Fault, Outputs, find_bit_difference_except_nan_payload
from uops.backends.worker.guard import GuardSide
from uops.compiler import pipeline
from uops.compiler.config import Config
from uops.compiler.entry import convert_to_launch_or_tensor_graph, describe_launch
from uops.compiler.pipeline import LoweringState, run_pass_and_verify
from uops.compiler.target import Target
from uops.fuzz.oracles.native import load_and_run_first_calls
from uops.fuzz.oracles.subject import describe_exception_as_fault
from uops.interp import run
from uops.spec.errors import UopsError
from uops.spec.ir.node import UOp
from uops.spec.verify.dialects import Dialect

#: Number of orders of unordered work in which a launch is interpreted, in addition to the default one.
ORDERS = 2


class WrongPass(NamedTuple):
    """The first wrong pass, and its stage."""

    stage: str
    pass_: str


class Entry(NamedTuple):
    """The dialect in which a launch enters the compiler, and the seed of what is drawn about it.

    Half of those in KERNEL have drawn schedules, since heuristics leave loops as small as theirs alone.
    """

    dialect: Dialect
    seed: int

    def draw_config(self) -> Config:
        """Return the settings of the compilation."""
        forced = self.seed % 1000 if self.dialect is Dialect.KERNEL and self.seed % 2 else None
        return Config(reuse=False, verify=True, forced=forced)


def check_same_memory_in_orders_and_machines(graph: UOp, inputs: Mapping[str, Any], seed: int) -> Fault | None:
    """Check that both machines of the interpreter leave the same memory in several orders. Raises what the interpreter raises."""
    first = _flatten_buffers(run(graph, inputs).buffers)
    for k in range(ORDERS):
        reordered = _flatten_buffers(run(graph, inputs, schedule=seed + k, lanes=k == 0).buffers)
        fault = find_wrong_or_clobbered_memory(inputs, first, reordered)
        if fault is not None:
            return Fault("order", f"in the order {seed + k}: {fault.message}", fault.output, fault.element)
    return None


def check_launch_native_against_interpreter(
    graph: UOp, inputs: Mapping[str, Any], entry: Entry, target: Target, side: GuardSide
) -> Fault | None:
    """Check that the launch's machine code leaves the memory that the interpreter does. Raises what lowering and running
    raise.
    """
    expected = _flatten_buffers(run(graph, inputs).buffers)
    *_, (_, program) = _lower_and_yield_after_each_pass(graph, entry, target)
    return find_wrong_or_clobbered_memory(
        inputs, expected, _flatten_buffers(load_and_run_first_calls(program, target, inputs, guard_side=side))
    )


def find_wrong_pass_of_launch(
    graph: UOp, inputs: Mapping[str, Any], entry: Entry, target: Target
) -> tuple[WrongPass, Fault] | None:
    """Return the first pass after which the interpreter leaves other memory or refuses the launch, and its fault, or None.

    It refuses lanes that race (R55), which machine code hides if it runs lanes one after another. Raises what the interpreter
    raises for the launch itself, and what lowering raises.
    """
    expected = _flatten_buffers(run(graph, inputs).buffers)
    before = graph
    for name, after in _lower_and_yield_after_each_pass(graph, entry, target):
        if after is before:
            continue
        before = after
        try:
            fault = find_wrong_or_clobbered_memory(inputs, expected, _flatten_buffers(run(after, inputs).buffers))
        except UopsError as e:
            fault = describe_exception_as_fault(e)
        if fault is not None:
            return WrongPass(name, name), fault._replace(message=f"after {name}: {fault.message}")
    return None


def find_wrong_pass_or_backend_of_launch(graph: UOp, inputs: Mapping[str, Any], entry: Entry, target: Target) -> WrongPass | None:
    """Return stage and pass after which the interpreter, or finally the machine code, leaves other memory; None if there is
    none.
    """
    wrong = find_wrong_pass_of_launch(graph, inputs, entry, target)
    if wrong is not None:
        return wrong[0]
    expected = _flatten_buffers(run(graph, inputs).buffers)
    *_, (_, program) = _lower_and_yield_after_each_pass(graph, entry, target)
    actual = _flatten_buffers(load_and_run_first_calls(program, target, inputs))
    return WrongPass("backend", "backend") if find_wrong_or_clobbered_memory(inputs, expected, actual) is not None else None


def _lower_and_yield_after_each_pass(graph: UOp, entry: Entry, target: Target) -> Iterator[tuple[str, UOp]]:
    """Yield the name of each pass that a launch goes through, and the launch after it."""
    launch, dialect, private = convert_to_launch_or_tensor_graph(graph, entry.dialect)
    external = frozenset(describe_launch(launch, private).arguments)
    state = LoweringState(target, entry.draw_config(), external, entry=dialect)
    for p in pipeline.passes_from(dialect):
        launch = run_pass_and_verify(p, launch, state)
        yield p.name, launch


def _flatten_buffers(buffers: Mapping[str, Any]) -> Outputs:
    return {k: v.reshape(-1) for k, v in buffers.items()}


def find_wrong_or_clobbered_memory(initial_memory: Mapping[str, Any], expected_writes: Outputs, actual: Outputs) -> Fault | None:
    """Return a Fault for the first element of memory that differs, or None.

    Memory that the launch writes must be as `expected_writes`, all other inputs must be unchanged. Memory missing in `actual`
    counts as unchanged. Memory that is neither an input nor expected may hold anything.
    """
    unchanged = _flatten_buffers({k: np.asarray(v) for k, v in initial_memory.items()})
    for k in sorted(expected_writes.keys() | (actual.keys() & unchanged.keys()), key=str):
        if k not in actual and k not in unchanged:
            return Fault("value", f"{k} is never written", k)
        fault = find_bit_difference_except_nan_payload(
            k, expected_writes[k] if k in expected_writes else unchanged[k], actual[k] if k in actual else unchanged[k]
        )
        if fault is not None:
            return fault
    return None
