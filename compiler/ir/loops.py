"""Facts of loops and Ifs: what runs in which, the loop that threads may share, and about how many instructions run.

`map_nodes_of_ops_to_enclosing_loops` and `find_ifs_around` take the graph of a kernel, the others take LINEAR. Whoever renders a
kernel to be called for some iterations of a shared loop, and whoever calls it, uses `find_parallelizable_outer_thread_loop`. Spec:
Range, End, If, Linear; R57, R114 (If), R127 to R129.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from uops.compiler.ir.affine import extract_affine_sum
from uops.compiler.ir.equal_effects import NO_NUMBERS, identify_memory, wait_in_reference
from uops.compiler.ir.extents import may_be_zero_trip
from uops.compiler.log import log_transform
from uops.spec.ir import build as B
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, nodes_with_op, toposort
from uops.spec.ir.ops import EFFECT_GROUPS, KERNEL_ACCESSES, MEMORY_ROOTS, OPAQUE_INSTRUCTIONS, Op
from uops.spec.ir.scope import VIEWS, base_memory, open_ranges, ranges_closed_by

#: Instructions that must not stand outside of a shared loop.
_EFFECTS = frozenset({Op.STORE, Op.IF, Op.BARRIER, Op.CUSTOM, Op.INS, Op.RANGE})
#: Effects that consist of their sources.
_COMBINED = EFFECT_GROUPS | {Op.BARRIER}
#: Ops that stand outside of an If although they wait for nodes inside of it (R114: If).
_OUTSIDE_OF_IFS = frozenset({Op.END, Op.GROUP, Op.SINK, Op.ENDIF})
_NO_IFS: frozenset[UOp] = frozenset()


def map_nodes_of_ops_to_enclosing_loops(order: Sequence[UOp], node_ops: frozenset[Op]) -> dict[UOp, frozenset[UOp]]:
    """Return each node of `node_ops` in a kernel with the Ranges that it runs in: those it depends on and those of Ends around it.

    `order` has the nodes of the kernel in topological order.
    """
    depended = open_ranges(order)
    loops = {u: depended[u] for u in order if u.op in node_ops}
    for end in (u for u in order if u.op is Op.END):
        for effect in _walk_combined_effects(end.body):
            if effect in loops:
                loops[effect] |= frozenset(end.ranges)
    return loops


def find_ifs_around(order: Sequence[UOp]) -> dict[UOp, frozenset[UOp]]:
    """Return each node of a kernel's graph that an If guards, with the Ifs around it (R114: If).

    A node is guarded if it uses an If or a guarded value, or if it is an After that waits for the If itself. An End, Group, Sink
    or Endif is not, nor an After that waits for another effect. `order` has the nodes in topological order.
    """
    ifs: dict[UOp, frozenset[UOp]] = {}
    if Op.IF not in {u.op for u in order}:
        return ifs
    for u in order:
        if u.op in _OUTSIDE_OF_IFS:
            continue
        used = (u.buffer, *[s for s in u.dependencies if s.op is Op.IF]) if u.op is Op.AFTER else u.src
        around = _NO_IFS.union(*[ifs.get(s, _NO_IFS) for s in used], [s for s in used if s.op is Op.IF])
        if around:
            ifs[u] = around
    return ifs


def _walk_combined_effects(effect: UOp) -> Iterator[UOp]:
    """Yield an effect and the effects that it consists of."""
    pending = [effect]
    while pending:
        u = pending.pop()
        yield u
        pending += combined_effects(u)


def unwrap_nested_ends(effect: UOp) -> tuple[UOp, tuple[UOp, ...]]:
    """Return the effect inside nested Ends, and the loops that they close, outermost first."""
    loops: list[UOp] = []
    while effect.op is Op.END:
        loops += effect.ranges
        effect = effect.body
    return effect, tuple(loops)


def combined_effects(effect: UOp) -> tuple[UOp, ...]:
    """Return the effects that an effect consists of: the body of an End, the sources of a Group, Sink or Barrier."""
    return (effect.body,) if effect.op is Op.END else effect.src if effect.op in _COMBINED else ()


def bind_accesses_to_loops_and_split_ends(body: UOp, memory_number_by_slot: Mapping[int, int] = NO_NUMBERS) -> UOp:
    """Return a graph in which each access depends on all loops that it runs in, and an End closes only loops of all its effects.

    An access runs in the loops that it depends on, and in those around them. It does not run in a loop that it does not depend on,
    although an End of that loop has it in its body: it is put behind the End (R127). A list of instructions keeps its order.

    Simplification may remove a dependence: `i * 0` depends on a loop until it is folded. An After binds an access to
    such a loop if the loop may not run, or if the order of accesses matters. `memory_number_by_slot` tells which Params are one
    memory (`identify_memory`).
    """
    ranges = nodes_with_op(body, Op.RANGE) if body.op is not Op.LINEAR else []
    if not ranges or not nodes_with_op(body, Op.END):
        return body
    order = toposort(*ranges, body)  # a loop stands before the accesses that will depend on it
    depended = open_ranges(order)
    around = _find_loops_open_where_each_loop_closes(order, depended)
    references = {u: _list_references(u) for u in order if u.op in KERNEL_ACCESSES or u.op in OPAQUE_INSTRUCTIONS}
    memory = {u: [identify_memory(r, memory_number_by_slot) for r in rs] for u, rs in references.items()}
    accesses = Counter(m for ms in memory.values() for m in ms)
    ordered = {  # a Store alone may be repeated
        m for u, ms in memory.items() if u.op is not Op.LOAD for m in ms if accesses[m] > 1 or u.op is not Op.STORE
    }
    done: dict[UOp, UOp] = {}
    for u in order:
        src = tuple([done[s] for s in u.src])
        if references.get(u):
            bound = _find_bound_loops(references[u], depended)
            if ordered.isdisjoint(memory[u]):
                bound |= {r for r in depended[u] if not may_be_zero_trip(r)}
            if missing := _add_loops_around(depended[u], around) - bound:
                k, loops = u.src.index(references[u][0]), [done[r] for r in ranges if r in missing]
                src = (*src[:k], wait_in_reference(src[k], loops), *src[k + 1 :])
        done[u] = u if src == u.src else u.replace(src=src)
        if u.op is Op.END:
            done[u] = _split_end_by_loops_of_effects(u, depended, done)
    return done[body]


def _list_references(u: UOp) -> list[UOp]:
    """Return the references to memory of an access or of native text, which may write all that it gets (R168)."""
    operands = u.src if u.op in OPAQUE_INSTRUCTIONS else u.src[:1]  # its buffer, or the index of an AtomicAdd
    return [s for s in operands if base_memory(s).op in MEMORY_ROOTS]


def _find_bound_loops(references: Iterable[UOp], depended: Mapping[UOp, frozenset[UOp]]) -> frozenset[UOp]:
    """Return the loops that order what accesses memory by these references, whatever is simplified.

    These are the loops that a position counts, as in `4 * i + j`, and those that an After on the memory depends on.
    """
    bound: frozenset[UOp] = frozenset()
    for reference in references:
        while reference.op in VIEWS:
            if reference.op is Op.AFTER:
                bound = bound.union(*[depended[d] for d in reference.dependencies])
            elif reference.op is Op.INDEX:
                sums = [extract_affine_sum(p).terms for p in reference.positions]
                bound |= {r for terms in sums for r, step in terms.items() if step and r.op is Op.RANGE}
            reference = reference.src[0]  # the viewed operand, index or buffer
    return bound


def _find_loops_open_where_each_loop_closes(
    order: Sequence[UOp], depended: Mapping[UOp, frozenset[UOp]]
) -> dict[UOp, frozenset[UOp]]:
    """Return the loops directly around each closed loop: those open at its closer, and the outer ones that this closes too."""
    around: dict[UOp, frozenset[UOp]] = {}
    for u in order:
        outer = depended[u]
        for r in sort_closed_loops_outermost_first(ranges_closed_by(u)):
            around[r] = outer
            outer |= {r}
    return around


def find_loops_around(order: Sequence[UOp]) -> dict[UOp, frozenset[UOp]]:
    """Return each closed loop of a kernel with all loops around it. `order` has the nodes in topological order."""
    around = _find_loops_open_where_each_loop_closes(order, open_ranges(order))
    return {r: _add_loops_around(outer, around) for r, outer in around.items()}


def _add_loops_around(loops: frozenset[UOp], around: Mapping[UOp, frozenset[UOp]]) -> frozenset[UOp]:
    """Return some loops and all loops around them."""
    found, pending = set(loops), list(loops)
    while pending:
        outer = around.get(pending.pop(), frozenset()) - found
        found |= outer
        pending += outer
    return frozenset(found)


def _split_end_by_loops_of_effects(end: UOp, depended: Mapping[UOp, frozenset[UOp]], done: Mapping[UOp, UOp]) -> UOp:
    """Return a new End, or a Group of Ends and effects: each effect in those of the loops that it depends on."""
    effects = end.body.effects if end.body.op is Op.GROUP else (end.body,)
    loops = sort_closed_loops_outermost_first(end.ranges)
    by_loops: dict[tuple[UOp, ...], list[UOp]] = {}
    for e in effects:
        innermost = max((k for k, r in enumerate(loops) if r in depended[e]), default=-1)
        by_loops.setdefault(tuple(loops[: innermost + 1]), []).append(done[e])
    if list(by_loops) == [tuple(loops)] or not effects:
        return done[end]
    parts = [
        B.end(B.group(*members) if len(members) > 1 else members[0], *[done[r] for r in loops])
        for loops, members in by_loops.items()
    ]
    return B.group(*parts) if len(parts) > 1 else parts[0]


def retype_ranges_as_sequential(body: UOp, ranges: Collection[UOp]) -> UOp:
    """Return a kernel in which `ranges` are of a sequential type: REDUCE if a Reduce closes them, else LOOP.

    Loops nest as before: an End of one of them and of other loops becomes an End per loop, since types decide how they nest (R95).
    """
    if not ranges:
        return body
    order = toposort(body)
    reduced = {r for u in order if u.op is Op.REDUCE for r in u.ranges}
    done: dict[UOp, UOp] = {}
    for u in order:
        src = tuple([done[s] for s in u.src])
        new = u if src == u.src else u.replace(src=src)
        if u in ranges:
            new = new.replace(arg=replace(u.arg, type=AxisType.REDUCE if u in reduced else AxisType.LOOP))
        elif u.op is Op.END and len(u.ranges) > 1 and not set(u.ranges).isdisjoint(ranges):
            new = done[u.body]
            for r in reversed(sort_closed_loops_outermost_first(u.ranges)):
                new = B.end(new, done[r])
        done[u] = new
    log_transform("expand", body, done[body], done)
    return done[body]


def find_parallelizable_outer_thread_loop(instructions: Sequence[UOp]) -> UOp | None:
    """Return the THREAD loop that holds every effect of a LINEAR kernel and lies in no other loop; None if there is none.

    A kernel with an AtomicAdd has none, as no backend of ours makes it an atomic instruction.
    """
    loops = [u for u in instructions if u.op is Op.RANGE and u.arg.type is AxisType.THREAD]
    if len(loops) != 1 or Op.ATOMICADD in [u.op for u in instructions]:
        return None
    (loop,) = loops
    first = next(k for k, u in enumerate(instructions) if u.op is Op.RANGE)
    last = next(k for k in reversed(range(len(instructions))) if (u := instructions[k]).op is Op.END and loop in u.ranges)
    if loop.bound.op is not Op.CONST or instructions[first] is not loop or len(instructions[last].ranges) != 1:
        return None
    outside = (*instructions[:first], *instructions[last + 1 :])
    return None if _EFFECTS.intersection({u.op for u in outside}) else loop


def sort_by_nesting(loops: Iterable[UOp]) -> list[UOp]:
    """Sort loops as they nest, outermost first: by the priority of their type, then by id (R95)."""
    return sorted(loops, key=lambda r: (r.arg.type.priority, int(r.arg.axis_id)))


def sort_closed_loops_outermost_first(loops: Sequence[UOp]) -> list[UOp]:
    """Sort the loops that one node closes, outermost first; a loop stands inside of those that its bound depends on (R109)."""
    if len(loops) < 2:
        return list(loops)
    return list(dict.fromkeys(x for r in sort_by_nesting(loops) for x in toposort(r) if x in loops))


def estimate_executed_instruction_count(instructions: Iterable[UOp]) -> int:
    """Return about how many instructions a call of a LINEAR kernel runs: loops at their greatest trip count, ifs taken."""
    total, times, outer_times = 0, 1, []
    for u in instructions:
        if u.op is Op.RANGE:
            outer_times.append(times)
            times *= _max_trip_count(u)
        elif u.op is Op.END:
            for _ in u.ranges:
                times = outer_times.pop() if outer_times else 1
        else:
            total += times
    return total


def _max_trip_count(r: UOp) -> int:
    """Return the greatest trip count of a loop; 1 if it is unknown or 2^40 or more."""
    bounds = r.bound.min_max
    return max(0, int(bounds[1])) if bounds is not None and bounds[1] < 1 << 40 else 1
