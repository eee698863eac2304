"""Loops and effects: RANGE, END, REDUCE, STORE with ranges, IF, BARRIER, and the tensor-core instruction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from uops.interp.bestiary.access import execute_store
from uops.interp.bestiary.frame import BestiaryFrame
from uops.interp.bestiary.lanes import BestiaryCoroutine, SyncRequest
from uops.interp.bestiary.machine import BestiaryMachine, EvalStep
from uops.interp.bestiary.values import reduce_axes_to_size_one, stack_arrays
from uops.interp.tensor.storage import NUMPY, Array, to_index_array
from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def find_dependencies_outside_loops_it_ends(
    m: BestiaryMachine, frame: BestiaryFrame, u: UOp
) -> Iterable[tuple[BestiaryFrame, UOp]]:
    """Return what a node that ends loops needs: the nodes right outside of them, or its sources if it ends none."""
    plan = frame.scope.plan
    ranges = plan.ranges_ended_by(u)
    if not ranges:
        return [(frame, s) for s in plan.sources_in_scope(u)]
    outermost = plan.loop_levels(plan.loop_body_sources(u), ranges)[0]
    return [(frame, s) for s in (outermost.range.bound, *outermost.invariant)]


def find_no_dependencies(m: BestiaryMachine, frame: BestiaryFrame, u: UOp) -> Iterable[tuple[BestiaryFrame, UOp]]:
    """Return nothing: all that the node needs is evaluated by its action."""
    return ()


def eval_range_inside_its_loop(step: EvalStep) -> Any:
    """Return the value of a Range. Raises SpecError outside of its loop (R58)."""
    value = step.frame.range_value(step.node)
    if value is None:
        raise SpecError(f"axis {step.node.arg.axis_id} is open: nothing around its use closes it (R58)")
    return to_index_array(value)


def eval_void(step: EvalStep) -> Any:
    """Return None, the value of a void node."""
    return None


def eval_end(step: EvalStep) -> BestiaryCoroutine:
    """Run the body in the loops of the ranges."""
    m, body = step.machine, step.node.body

    def run_iteration(frame: BestiaryFrame) -> BestiaryCoroutine:
        yield from m.evaluate(frame, body)
        step.depend_on_cell_of(body, frame)

    yield from step.run_loops((body,), step.node.ranges, run_iteration)


def eval_store_in_loops_it_ends(step: EvalStep) -> BestiaryCoroutine:
    """Execute a Store in the loops of its ranges, which end around it (R105)."""
    m, u = step.machine, step.node
    stored = (u.index, u.value)

    def store_iteration(frame: BestiaryFrame) -> BestiaryCoroutine:
        yield from m.evaluate(frame, *stored)
        execute_store(step, frame, u)

    yield from step.run_loops(stored, u.ranges, store_iteration)


def eval_reduce_over_ranges_and_vector_lanes(step: EvalStep) -> BestiaryCoroutine:
    """Combine all iterations and all lanes of a vector, as one multiset (R32, R105)."""
    m, u, operand = step.machine, step.node, step.node.operand
    terms: dict[tuple[int, ...], Array] = {}
    ranges = [level.range for level in step.frame.scope.plan.loop_levels((operand,), u.ranges)]

    def collect_term(frame: BestiaryFrame) -> BestiaryCoroutine:
        yield from m.evaluate(frame, operand)
        terms[tuple(frame.range_value(r) or 0 for r in ranges)] = step.value_of(operand, frame)

    yield from step.run_loops((operand,), u.ranges, collect_term)
    values = [terms[k].reshape(-1) for k in sorted(terms)]
    stacked = stack_arrays(u.dtype, values) if values else np.zeros((0, 1), NUMPY[u.dtype])
    return np.asarray(reduce_axes_to_size_one(u.arg.op, u.dtype, stacked, (0, 1))).reshape(())


# ----------------------------------------------------------------------------------------------------------------- conditions


def eval_if(step: EvalStep) -> BestiaryCoroutine:
    """Execute the effects of an IF where its condition holds."""
    yield from execute_stores_under_gates(step, step.frame, step.node.effects, (step.node.condition,))


def execute_stores_under_gates(
    step: EvalStep, frame: BestiaryFrame, effects: Iterable[UOp], gates: tuple[UOp, ...]
) -> BestiaryCoroutine:
    """Execute effects in the body of an IF: every Store of them once, and only where all of `gates` hold (R114)."""
    m = step.machine
    for u, inner_gates in _find_stores_and_ends_under_gates(effects, gates):
        body = (u.body,) if u.op is Op.END else (u.index, u.value)

        def execute_store_or_end_body(
            inner: BestiaryFrame, u: UOp = u, body: tuple[UOp, ...] = body, gates: tuple[UOp, ...] = inner_gates
        ) -> BestiaryCoroutine:
            if u.op is Op.END:
                yield from execute_stores_under_gates(step, inner, body, gates)
                return
            yield from m.evaluate(inner, *gates, *body)
            execute_store(step, inner, u, gates)

        yield from m.run_loops(frame, frame.scope.plan.loop_levels((*body, *inner_gates), u.ranges), execute_store_or_end_body)


def _find_stores_and_ends_under_gates(effects: Iterable[UOp], gates: tuple[UOp, ...]) -> list[tuple[UOp, tuple[UOp, ...]]]:
    """Return each Store and END that effects consist of, with its gates, in order; one that several paths lead to once (R27)."""
    seen: dict[tuple[UOp, tuple[UOp, ...]], None] = {}
    pending = [(u, gates) for u in effects][::-1]
    while pending:
        u, outer = effect = pending.pop()
        if effect in seen:
            continue
        seen[effect] = None
        if u.op is Op.ENDIF:
            pending.append((u.if_node, outer))
        elif u.op is Op.GROUP:
            pending += [(e, outer) for e in reversed(u.effects)]
        elif u.op is Op.B_IF:
            pending += [(e, (*outer, u.condition)) for e in reversed(u.effects)]
    return [effect for effect in seen if effect[0].op not in (Op.ENDIF, Op.GROUP, Op.B_IF)]


# ----------------------------------------------------------------------------------------------------------------- workgroup


def eval_barrier(step: EvalStep) -> BestiaryCoroutine:
    """Return the operand's value, once all lanes of the workgroup have come here (R60)."""
    reply = yield SyncRequest(step.node, step.before)
    step.before |= reply.before
    if step.node.dtype is dt.void:
        return None
    return step.depend_on_cell_of(step.node.operand).value


def find_wmma_dependencies(m: BestiaryMachine, frame: BestiaryFrame, u: UOp) -> Iterable[tuple[BestiaryFrame, UOp]]:
    """Return what a Wmma needs: its accumulator, and the nodes right outside of the loops that it ends, if any (R178)."""
    plan = frame.scope.plan
    if not u.ranges:
        return [(frame, s) for s in plan.sources_in_scope(u)]
    outermost = plan.loop_levels((u.lhs, u.rhs), plan.ranges_ended_by(u))[0]
    return [(frame, s) for s in (u.accumulator, outermost.range.bound, *outermost.invariant)]


def eval_wmma(step: EvalStep) -> BestiaryCoroutine:
    """Return this lane's part of A times B plus the accumulator, which the lanes of a warp compute together.

    In the loops that it ends, each product is added to what the one before gave (R178). `()` marks this lane's own fragments.
    """
    u = step.node
    total = step.value_of(u.accumulator)

    def add_product_to_running_total(frame: BestiaryFrame) -> BestiaryCoroutine:
        nonlocal total
        yield from step.machine.evaluate(frame, u.lhs, u.rhs)
        lhs, rhs = step.value_of(u.lhs, frame), step.value_of(u.rhs, frame)
        reply = yield SyncRequest(u, step.before, {(): (lhs, rhs, total)})
        step.before |= reply.before
        total = reply.fragments[()]

    yield from step.run_loops((u.lhs, u.rhs), step.frame.scope.plan.ranges_ended_by(u), add_product_to_running_total)
    return total
