"""LINEAR: instructions in the order of execution, with loops from a RANGE to the END that closes it.

Every instruction is executed at its place, also where its value is the same in each iteration. What is not listed (constants,
memory) is evaluated where it is used, and so is what stands in a loop that another node than an END closes. An IF executes its
body itself, wherever the Stores stand (R124). Lanes execute the list side by side and meet at its barriers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from uops.interp.bestiary.frame import Frame
from uops.interp.bestiary.lanes import Run
from uops.interp.bestiary.machine import Machine, Step
from uops.interp.bestiary.plan import Level, effects_of
from uops.spec.errors import SpecError
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


@dataclass(frozen=True, slots=True)
class Block:
    """The instructions of a loop, and the END that closes it."""

    range: UOp
    items: tuple[UOp | Block, ...]


def linear_needs(m: Machine, frame: Frame, u: UOp) -> Iterable[tuple[Frame, UOp]]:
    return ()


def linear(s: Step) -> Run:
    yield from _run(s, s.frame, _blocks(s.node.src))


def _blocks(instructions: Sequence[UOp]) -> tuple[UOp | Block, ...]:
    """Positions of RANGE and END as nested blocks."""
    closed = {r for u in instructions if u.op is Op.END for r in u.src[1:]}
    within = {e for u in instructions if u.op is Op.B_IF for e in effects_of(u)}
    opened: list[tuple[UOp | None, list[UOp | Block]]] = [(None, [])]
    for u in instructions:
        if u.op is Op.B_RANGE and u in closed:
            opened.append((u, []))
        elif u.op is Op.END:
            for _ in u.src[1:]:
                r, items = opened.pop()
                if r is None or r not in u.src[1:]:
                    raise SpecError("END does not close the innermost block (R58)")
                opened[-1][1].append(Block(r, tuple(items)))
        elif u not in within:  # an IF executes its body itself (R124)
            opened[-1][1].append(u)
    if len(opened) > 1:
        raise SpecError(f"{len(opened) - 1} blocks are left open (R58)")
    return tuple(opened[0][1])


def _run(s: Step, frame: Frame, items: Sequence[UOp | Block]) -> Run:
    m = s.machine
    for item in items:
        if isinstance(item, Block):
            block = item.items

            def leaf(inner: Frame, block: Sequence[UOp | Block] = block) -> Run:
                yield from _run(s, inner, block)

            yield from m.loops(frame, (Level(item.range, ()),), leaf)
        elif all(frame.at(r) is not None for r in frame.scope.plan.loops_of(item)):  # else its loop is no block of the list
            yield from _execute(m, frame, item)
        frame.base |= frame.events
    s.before |= frame.events


def _execute(m: Machine, frame: Frame, u: UOp) -> Run:
    """One instruction in this iteration, whatever an outer one has found."""
    for f, source in m.sources(frame, u):
        if f.find(source) is None:
            yield from m.evaluate(f, source)
    yield from m.compute(frame, u)
