"""LINEAR: instructions in the order of execution, with loops from a RANGE to the END that closes it.

Every instruction is executed at its place, also where its value is the same in each iteration. Nodes that are not listed
(constants, memory) are evaluated where they are used, and so is everything in a loop that another node than an END closes. An
IF executes its body itself, wherever the Stores stand (R124). Lanes execute the list side by side and wait for each other at
its barriers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uops.interp.bestiary.frame import BestiaryFrame
from uops.interp.bestiary.lanes import BestiaryCoroutine
from uops.interp.bestiary.machine import BestiaryMachine, EvalStep
from uops.interp.bestiary.plan import LoopLevel, nested_effects_of_if
from uops.spec.errors import SpecError
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


@dataclass(frozen=True, slots=True)
class LinearLoop:
    """A loop of a Linear: the range, and the instructions up to the END that closes it."""

    range: UOp
    items: tuple[UOp | LinearLoop, ...]


def eval_linear(step: EvalStep) -> BestiaryCoroutine:
    """Execute the instructions."""
    yield from _run_instructions_and_loops(step, step.frame, _nest_instructions(step.node.instructions))


def _nest_instructions(instructions: Sequence[UOp]) -> tuple[UOp | LinearLoop, ...]:
    """Return the instructions with the loops between RANGE and END as nested items.

    Raises SpecError where they do not nest (R58).
    """
    closed = {r for u in instructions if u.op is Op.END for r in u.ranges}
    in_ifs = {e for u in instructions if u.op is Op.B_IF for e in nested_effects_of_if(u)}
    opened: list[tuple[UOp | None, list[UOp | LinearLoop]]] = [(None, [])]
    for u in instructions:
        if u.op is Op.B_RANGE and u in closed:
            opened.append((u, []))
        elif u.op is Op.END:
            for _ in u.ranges:
                r, items = opened.pop()
                if r is None or r not in u.ranges:
                    raise SpecError("END does not close the innermost block (R58)")
                opened[-1][1].append(LinearLoop(r, tuple(items)))
        elif u not in in_ifs:  # an IF executes its body itself (R124)
            opened[-1][1].append(u)
    if len(opened) > 1:
        raise SpecError(f"{len(opened) - 1} blocks are left open (R58)")
    return tuple(opened[0][1])


def _run_instructions_and_loops(step: EvalStep, frame: BestiaryFrame, items: Sequence[UOp | LinearLoop]) -> BestiaryCoroutine:
    """Execute instructions and loops in order."""
    m = step.machine
    for item in items:
        if isinstance(item, LinearLoop):
            items_of_loop = item.items

            def run_iteration(inner: BestiaryFrame, items_of_loop: Sequence[UOp | LinearLoop] = items_of_loop) -> BestiaryCoroutine:
                yield from _run_instructions_and_loops(step, inner, items_of_loop)

            yield from m.run_loops(frame, (LoopLevel(item.range, ()),), run_iteration)
        elif all(frame.range_value(r) is not None for r in frame.scope.plan.loops_of(item)):  # else its loop is not listed
            yield from _execute_even_if_cell_exists(m, frame, item)
        frame.events_before |= frame.events
    step.before |= frame.events


def _execute_even_if_cell_exists(m: BestiaryMachine, frame: BestiaryFrame, u: UOp) -> BestiaryCoroutine:
    """Execute an instruction in this iteration, whatever an outer one has found."""
    for f, source in m.sources_to_evaluate(frame, u):
        if f.find_cell(source) is None:
            yield from m.evaluate(f, source)
    yield from m.evaluate_node_with_ready_sources(frame, u)
