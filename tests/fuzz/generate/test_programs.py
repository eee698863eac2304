"""Programs that call kernels: what the arguments are, and in which order memory is read and written."""

from __future__ import annotations

import pytest

from uops.fuzz.generate import kinds
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.programs import ProgramMaker
from uops.interp.allowed import compute_allowed_sets
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import MEMORY_ROOTS, Op
from uops.spec.ir.scope import base_memory, scope_nodes, strip_afters


@pytest.fixture(scope="module")
def programs() -> list[UOp]:
    return [kinds.sample(3, k, ("calls",)).graph for k in range(150)]


def calls(root: UOp) -> list[UOp]:
    return [u for u in scope_nodes(root) if u.op is Op.CALL]


def written(call: UOp) -> tuple[int, ...]:
    """The slots that a Call declares; all, if it declares none."""
    slots: tuple[int, ...] | None = None if call.arg is None else call.arg.written
    return tuple(range(len(call.arguments))) if slots is None else slots


def test_arguments_are_memory_views_values_constants_and_variables(programs: list[UOp]) -> None:
    read = [a for p in programs for c in calls(p) for k, a in enumerate(c.arguments) if k not in written(c)]
    assert {Op.BUFFER, Op.PARAM, Op.AFTER, Op.RESHAPE, Op.SHRINK, Op.EXPAND, Op.CONTIGUOUS, Op.CONST} <= {a.op for a in read}
    assert any(a.op is Op.SUB and a.shape == () for a in read), "an expression of a variable"
    targets = {c.arguments[k].op for p in programs for c in calls(p) for k in written(c)}
    assert {Op.BUFFER, Op.AFTER, Op.SHRINK, Op.PERMUTE, Op.FLIP} <= targets


def test_memory_that_a_call_writes_is_an_argument_once_or_by_one_reference(programs: list[UOp]) -> None:
    twice = 0
    for c in (c for p in programs for c in calls(p)):
        for k in written(c):
            memory = base_memory(c.arguments[k])
            same = [a for a in c.arguments if base_memory(a) is memory and memory.op in MEMORY_ROOTS]
            assert set(map(strip_afters, same)) <= {strip_afters(c.arguments[k])}  # one of two may wait for less
            twice += len(same) > 1
    assert twice > 5


def test_calls_follow_each_other_on_one_memory(programs: list[UOp]) -> None:
    several = [p for p in programs if len(calls(p)) > 1]
    assert len(several) > 60
    after = sum(any(x is not c and x.op is Op.CALL for x in toposort(*c.arguments)) for p in several for c in calls(p))
    assert after > 40, "Calls that read or write what another has written"
    assert sum(any(u.op is Op.STORE for u in scope_nodes(p)) for p in programs) > 40


def test_most_elements_have_one_right_answer() -> None:
    """What may be anything judges nothing."""
    counts = {"exact": 0, "any": 0}
    for k in range(60):
        s = kinds.sample(3, k, ("calls",))
        allowed = compute_allowed_sets(s.graph, s.inputs)
        for v in (*allowed.values, *allowed.buffers.values()):
            counts = {name: n + v.kinds()[name] for name, n in counts.items()}
    assert counts["exact"] > 4 * counts["any"]


def test_parts_of_memory_often_begin_or_end_at_an_end_of_another() -> None:
    """Without that, parts of 32 elements share an end with one other in a seventh of the draws."""
    shared = 0
    for seed in range(400):
        maker = ProgramMaker(SeededDraw(seed), 32)
        ends: list[int] = []
        first, second = ({start, start + count - 1} for start, count in (draw_part(maker, ends), draw_part(maker, ends)))
        assert set(ends) == first | second and max(ends) < 32
        shared += not first.isdisjoint(second)
    assert shared > 140


def draw_part(maker: ProgramMaker, ends: list[int]) -> tuple[int, int]:
    return maker._draw_part_sharing_ends_with_others(ends, 32)
