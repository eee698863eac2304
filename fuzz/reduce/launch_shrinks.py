"""Shrinks of launches: a LINEAR of Calls of SCHEDULED kernels, for `uops.fuzz.reduce.shrinks`.

All memory of a candidate is an input, so that the interpreter and machine code agree on memory that the candidate does not
write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from uops.backends.arrays import STORAGE
from uops.fuzz.generate.kinds import ProgramSample
from uops.spec.errors import UopsError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import LOOP_CLOSERS, Op

#: Maximum number of values that are tried in place of one value.
_MAX_REPLACEMENTS = 6


def _is_launch(s: ProgramSample) -> bool:
    return s.graph.op is Op.LINEAR and all(c.op is Op.CALL for c in s.graph.src)


def _replace_launch_and_zero_fill_missing_inputs(s: ProgramSample, graph: UOp) -> ProgramSample:
    """Return the sample with another launch. Memory without input holds zeros."""
    inputs = {}
    for argument in {a for call in graph.src for a in call.arguments}:
        if argument.op is Op.BUFFER:
            key = f"b{argument.arg.unique}"
            inputs[key] = s.inputs.get(key, np.zeros(argument.arg.size, STORAGE[argument.dtype]))
        else:
            inputs[argument.arg.name] = s.inputs[argument.arg.name]
    return s._replace(graph=graph, inputs=inputs)


def drop_one_call(s: ProgramSample) -> Iterator[ProgramSample]:
    """Drop one Call."""
    if _is_launch(s) and len(s.graph.src) > 1:
        for c in s.graph.src:
            yield _replace_launch_and_zero_fill_missing_inputs(s, s.graph.replace(src=tuple(x for x in s.graph.src if x is not c)))


def drop_one_kernel_effect(s: ProgramSample) -> Iterator[ProgramSample]:
    """Drop one effect of a kernel that has several."""
    for c in s.graph.src if _is_launch(s) else ():
        sink = c.body
        for e in sink.src if len(sink.src) > 1 else ():
            yield from _yield_substitution_if_it_builds(s, {sink: sink.replace(src=tuple(x for x in sink.src if x is not e))})


def replace_loops_by_first_or_two_iterations(s: ProgramSample) -> Iterator[ProgramSample]:
    """Replace a loop by its first iteration, or reduce it to two iterations."""
    for r in (u for u in toposort(s.graph) if u.op is Op.RANGE) if _is_launch(s) else ():
        try:
            yield _replace_launch_and_zero_fill_missing_inputs(s, _remove_loop(s.graph, r))
        except UopsError:
            continue
        bound, *others = r.src  # dependencies
        if bound.op is not Op.CONST or bound.arg.value > 2:
            yield from _yield_substitution_if_it_builds(s, {r: r.replace(src=(b.index(2), *others))})


def _remove_loop(root: UOp, loop_range: UOp) -> UOp:
    """Remove a loop and replace its counter by 0."""
    rebuilt: dict[UOp, UOp] = {loop_range: b.index(0)}
    for u in toposort(root):
        if u is loop_range:
            continue
        src = tuple(rebuilt[x] for x in u.src)
        if u.op in LOOP_CLOSERS and loop_range in u.ranges:
            body, *_ = src
            ranges = tuple(rebuilt[x] for x in u.ranges if x is not loop_range)
            rebuilt[u] = u.replace(src=(body, *ranges)) if ranges else body
        else:
            rebuilt[u] = u if src == u.src else u.replace(src=src)
    return rebuilt[root]


def replace_scalars_by_operands_or_constants(s: ProgramSample) -> Iterator[ProgramSample]:
    """Replace a scalar value or index by a value that it is computed from, or by a constant."""
    order = toposort(s.graph) if _is_launch(s) else ()
    for u in reversed(order):
        if u.dtype is dt.void or u.shape != () or u.op in (Op.CONST, Op.RANGE, Op.PARAM, Op.INDEX):
            continue
        operands = [x for x in reversed(toposort(u)[:-1]) if x.dtype is u.dtype and x.shape == () and x.op is not Op.INDEX]
        for x in (b.const(0, u.dtype), *operands[:_MAX_REPLACEMENTS], b.const(1, u.dtype)):
            yield from _yield_substitution_if_it_builds(s, {u: x})


def drop_arguments_kernel_does_not_read(s: ProgramSample) -> Iterator[ProgramSample]:
    """Drop the Params that a kernel does not use, with their arguments."""
    for c in s.graph.src if _is_launch(s) else ():
        used = {u.arg.slot: u for u in toposort(c.body) if u.op is Op.PARAM}
        slots_used = sorted(used)
        if len(slots_used) < len(c.src) - 1:
            slots = {used[old]: used[old].replace(arg=replace(used[old].arg, slot=new)) for new, old in enumerate(slots_used)}
            arg = replace(c.arg, written=tuple(slots_used.index(k) for k in c.arg.written if k in slots_used))
            call = UOp(Op.CALL, (substitute(c.body, slots), *(c.arguments[k] for k in slots_used)), arg)
            yield _replace_launch_and_zero_fill_missing_inputs(
                s, s.graph.replace(src=tuple(call if x is c else x for x in s.graph.src))
            )


def _yield_substitution_if_it_builds(s: ProgramSample, replacements: Mapping[UOp, UOp]) -> Iterator[ProgramSample]:
    """Yield the launch with replaced nodes, or nothing if they do not fit."""
    try:
        yield _replace_launch_and_zero_fill_missing_inputs(s, substitute(s.graph, dict(replacements)))
    except UopsError:
        return


#: In the order in which they are tried.
LAUNCH_SHRINKS = (
    drop_one_call,
    drop_one_kernel_effect,
    replace_loops_by_first_or_two_iterations,
    replace_scalars_by_operands_or_constants,
    drop_arguments_kernel_does_not_read,
)
