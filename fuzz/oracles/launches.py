"""Scheduled launches, which enter the compiler behind its optimizer: the interpreter's answer, machine code, and what is between.

Takes: a LINEAR of Calls of SCHEDULED kernels whose results are exact, and inputs. Gives: the first `Fault`: two orders of what is
unordered that differ, or machine code that gives something else; and the pass that is to blame. Spec: Lowering Pipeline; R55, R57.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from uops.backends.worker.guard import Side
from uops.compiler import pipeline
from uops.compiler.config import Config
from uops.compiler.pipeline import Lowering, run_pass
from uops.compiler.target import Target
from uops.fuzz.oracles.native import run_program
from uops.fuzz.oracles.stages import Fault, Outputs, differs
from uops.interp import run
from uops.spec.ir.node import UOp

#: Orders of what is unordered that are tried, beside the interpreter's own.
ORDERS = 2


def orders(graph: UOp, inputs: Mapping[str, Any], seed: int) -> Fault | None:
    """Whether the interpreter's two machines, in several orders, leave the same in memory. Raises what the interpreter raises."""
    first = _contents(run(graph, inputs).buffers)
    for k in range(ORDERS):
        again = _contents(run(graph, inputs, schedule=seed + k, lanes=k == 0).buffers)
        fault = different(inputs, first, again)
        if fault is not None:
            return Fault("order", f"in the order {seed + k}: {fault.message}", fault.output, fault.element)
    return None


def machine_code(graph: UOp, inputs: Mapping[str, Any], target: Target, side: Side) -> Fault | None:
    """Whether the machine code of the launch leaves what the interpreter does. Raises what lowering and running raise."""
    wanted = _contents(run(graph, inputs).buffers)
    *_, (_, program) = _lowered(graph, target)
    return different(inputs, wanted, _contents(run_program(program, target, inputs, side=side)))


def culprit(graph: UOp, inputs: Mapping[str, Any], target: Target) -> tuple[str, str] | None:
    """Stage and pass after which the interpreter, or last the machine, finds something else."""
    wanted, program = _contents(run(graph, inputs).buffers), graph
    for name, after in _lowered(graph, target):
        program = after
        if after is not graph and different(inputs, wanted, _contents(run(after, inputs).buffers)) is not None:
            return name, name
    found = _contents(run_program(program, target, inputs))
    return ("backend", "backend") if different(inputs, wanted, found) is not None else None


def _lowered(graph: UOp, target: Target) -> Iterator[tuple[str, UOp]]:
    """The launch after each pass behind optimize."""
    state = Lowering(target, Config(reuse=False, verify=True), frozenset(a for c in graph.src for a in c.src[1:]))
    names = [p.name for p in pipeline.PIPELINE]
    for p in pipeline.PIPELINE[names.index("optimize") + 1 :]:
        graph = run_pass(p, graph, state)
        yield p.name, graph


def _contents(buffers: Mapping[str, Any]) -> Outputs:
    return {k: v.reshape(-1) for k, v in buffers.items()}


def different(inputs: Mapping[str, Any], wanted: Outputs, found: Outputs) -> Fault | None:
    """The first element of memory that is not as it should be: as `wanted` of what the launch writes, else as it was given. Memory
    that is not in `found` is as it was given; what nobody gave and nobody wants may hold anything."""
    given = _contents({k: np.asarray(v) for k, v in inputs.items()})
    for k in sorted(wanted.keys() | (found.keys() & given.keys()), key=str):
        if k not in found and k not in given:
            return Fault("value", f"{k} is never written", k)
        fault = differs(k, wanted[k] if k in wanted else given[k], found[k] if k in found else given[k])
        if fault is not None:
            return fault
    return None
