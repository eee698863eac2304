"""Zero-trip loops: gates that keep their loads from reading memory where the loop runs no iteration.

Takes and gives: a KERNEL or SCHEDULED body whose addresses are in normal form. Spec: rows Range, Reduce, End, Load; R52, R57,
R70.

An address may be loop-invariant although it was made in a loop: r // 3 is 0 where r < 3 * n and n <= 1. Then its Load may be
hoisted out of the loop. It would run even if the loop has no iteration and the memory has no such element, or none that was ever
written (R61). Such a Load is gated by the loop's bound, unless the element is there whatever the bound is. An extent of a Tensor
is never the constant 0 here: a value without elements has no kernel, and a Reduce over none is its identity.

`ValidElementCountByParam` says how many elements of a kernel's Params, from the first on, hold a value. Memory has room for the
greatest extents, and a value of symbolic shape fills a part of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from uops.compiler.ir.affine import AffineSum, build_affine_sum, extract_affine_sum, index_constant
from uops.compiler.ir.extents import constant_extent, may_be_zero_trip
from uops.compiler.ir.views import TRUE, ZERO
from uops.compiler.log import log_transform
from uops.spec.ir import build as B
from uops.spec.ir.axes import UNROLLED
from uops.spec.ir.derive.shape import dim_node
from uops.spec.ir.node import Dim, UOp, nodes_with_op, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory, open_ranges, ranges_closed_by, strip_afters

#: Params with the number of their elements that hold a value.
ValidElementCountByParam = Mapping[UOp, Dim]


def gate_loads_of_zero_trip_loops(
    body: UOp, simplify: Callable[[UOp], UOp], valid_elements_by_param: ValidElementCountByParam
) -> UOp:
    """Gate each Load in `body` that a loop with no iteration would not have run."""
    if not any(map(may_be_zero_trip, nodes_with_op(body, Op.RANGE))):
        return body
    done: dict[UOp, UOp] = {}
    for u in toposort(body):
        src = tuple([done.get(s, s) for s in u.src])
        new = u if src == u.src else UOp(u.op, src, u.arg, u.tag)
        for r in [r for r in ranges_closed_by(new) if may_be_zero_trip(r)]:
            operand, *ranges = new.src
            gated = _gate_loop_invariant_loads(operand, r, simplify, valid_elements_by_param)
            new = new if gated is operand else UOp(new.op, (gated, *ranges), new.arg, new.tag)
        if new is not u:
            done[u] = new
    log_transform("loops that do not run", body, done.get(body, body), done)
    return done.get(body, body)


def infer_valid_element_count_by_param(gated_body: UOp) -> ValidElementCountByParam:
    """Return how many elements of each Param are valid in a body that `gate_loads_of_zero_trip_loops` gave.

    All elements of an input of symbolic size are valid. So is an element that is read without a gate although some loop may run
    no iteration.
    """
    counts: dict[UOp, Dim] = {
        m: m.shape[0] for m in nodes_with_op(gated_body, Op.PARAM) if m.shape and not isinstance(m.shape[0], int)
    }
    ranges = [r for r in nodes_with_op(gated_body, Op.RANGE) if may_be_zero_trip(r)]
    if not ranges:
        return counts
    order = toposort(gated_body)
    opened = open_ranges(order)
    for r in ranges:
        inside = {u for c in order if r in ranges_closed_by(c) for u in toposort(c.src[0])}  # operand, body
        for u in inside:
            if u.op is Op.LOAD and u.gate is None and r not in opened[u]:
                index = strip_afters(u.buffer)
                (position,) = index.positions
                memory, least = base_memory(index), _lower_bound_of_affine_sum(_substitute_extreme_loop_indices(position, 1))
                count = counts.get(memory, 0)
                if isinstance(count, int) and count <= least < math.inf:
                    counts[memory] = int(least) + 1
    return counts


def _gate_loop_invariant_loads(
    loop_operand: UOp, zero_trip_loop: UOp, simplify: Callable[[UOp], UOp], valid_elements_by_param: ValidElementCountByParam
) -> UOp:
    """Return the value of the loop `zero_trip_loop` with its loop-invariant Loads gated by the loop's bound."""
    runs = simplify(UOp(Op.CMPLT, (ZERO, zero_trip_loop.bound)))
    opened = open_ranges(toposort(loop_operand))
    done: dict[UOp, UOp] = {}
    for u in toposort(loop_operand):
        src = tuple([done.get(s, s) for s in u.src])
        if (
            u.op is Op.LOAD
            and _is_loop_invariant_in_some_lane(u, zero_trip_loop, opened[u], simplify)
            and not _is_element_valid_whenever_loops_run(u.buffer, valid_elements_by_param)
        ):
            buffer, *optional = src
            alternative, gate = optional or (B.const(0, u.dtype), TRUE)
            src = (buffer, alternative, simplify(UOp(Op.AND, (gate, runs))))
        if src != u.src:
            done[u] = UOp(u.op, src, u.arg, u.tag)
    return done.get(loop_operand, loop_operand)


def _is_loop_invariant_in_some_lane(load: UOp, loop: UOp, open_at_load: frozenset[UOp], simplify: Callable[[UOp], UOp]) -> bool:
    """Return True if neither the address nor the gate of a Load depends on the loop, for one of its lanes at least."""
    if loop not in open_at_load:
        return True
    used = (*strip_afters(load.buffer).positions, *(() if load.gate is None else (load.gate,)))
    lanes = [x for x in open_at_load if x.arg.type in UNROLLED]
    values = _enumerate_lane_substitutions(lanes)
    return any(loop not in toposort(*[simplify(substitute(s, value)) for s in used]) for value in values)


def _enumerate_lane_substitutions(lane_ranges: Sequence[UOp]) -> Iterator[dict[UOp, UOp]]:
    """Yield every combination of values of some lanes; nothing if there are none."""
    extents = [range(constant_extent(x)) for x in lane_ranges]
    for ks in itertools.product(*extents) if lane_ranges else ():
        yield {x: index_constant(k) for x, k in zip(lane_ranges, ks, strict=True)}


def _is_element_valid_whenever_loops_run(address: UOp, valid_elements_by_param: ValidElementCountByParam) -> bool:
    """Return True if the element at an address holds a value whenever the loops around it run.

    An element of the kernel's own memory always does.
    """
    index = strip_afters(address)
    memory = base_memory(index)
    if memory.op is not Op.PARAM:
        return True
    (position,) = index.positions
    first, last = (_substitute_extreme_loop_indices(position, sign) for sign in (-1, 1))
    count = dim_node(valid_elements_by_param.get(memory, 0))
    return _lower_bound_of_affine_sum(first) >= 0 and _lower_bound_of_affine_sum(UOp(Op.SUB, (count, last))) > 0


def _substitute_extreme_loop_indices(position: UOp, sign: int) -> UOp:
    """Return the greatest value of a position in its loops (sign 1), or the least (-1).

    Each loop is replaced by one of its ends. A position that is no sum over its loops stays as it is.
    """
    terms, constant = extract_affine_sum(position)
    ends = {r: UOp(Op.SUB, (r.bound, index_constant(1))) if k * sign > 0 else ZERO for r, k in terms.items() if r.op is Op.RANGE}
    if ends.keys() != set(nodes_with_op(position, Op.RANGE)):
        return position
    return substitute(build_affine_sum(AffineSum(terms, constant)), ends)


def _lower_bound_of_affine_sum(affine_sum: UOp) -> float:
    """Return a lower bound of a sum, from the bounds of its terms."""
    terms, constant = extract_affine_sum(affine_sum)
    bounds = [(t.min_max or (-math.inf, math.inf), k) for t, k in terms.items()]
    return constant + sum(k * (lo if k > 0 else hi) for (lo, hi), k in bounds)
