"""Loops of kernels written by hand that run in order, because no other form of code computes what they say, or none of useful size.

Takes: SCHEDULED. Gives: SCHEDULED. Spec: Range, AtomicAdd; AxisType table; R56 (AtomicAdd), R57 (Range), R166 (kernels written by
hand). The order of LOOP and REDUCE is one of the orders that an unordered loop may have, so the meaning stays. Loops nest as
before, and the memory of a lane or workgroup stays its own (`serialized_memory`).

- An UPCAST or UNROLL loop becomes sequential if its bound is no positive constant, or if an instruction stands in it that has no
  vectors: an AtomicAdd, an If, or an opaque one.
- UNROLL loops, and then UPCAST loops, become sequential where one instruction would otherwise be copied more than 4,096 times: a
  target's compiler takes minutes for code of that length. Kernels with Wmmas keep them, since their fragments lie along them.
- The loops around an AtomicAdd of less than 32 bits become sequential, as no target has an atomic sum of such words. A kernel in
  which lanes meet keeps them.
- Workgroups and lanes become sequential around an access of written memory if another access stands outside of them, in fewer of
  the same loops. What stands outside happens once (R127), but concurrent lanes would each do it. Loops side by side stay, and so do
  the loops of a kernel in which lanes meet. Private memory counts only if it is the same outside of them (R128).
- In sequential loops alone, an AtomicAdd of a small float becomes a Load, a sum and a Store. Several of them in a loop take turns.
  In a list of instructions they keep their order (`lower_small_float_atomics_in_sequential_list`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from uops.compiler.decompose import SMALL
from uops.compiler.ir.loops import map_nodes_of_ops_to_enclosing_loops, retype_ranges_as_sequential
from uops.compiler.log import log_transform
from uops.compiler.passes.serialized_memory import give_memory_per_iteration_of_serialized_loops
from uops.compiler.place import untranslatable_error
from uops.spec.ir import build as B
from uops.spec.ir.axes import GRID, SEQUENTIAL, UNROLLED, WORKGROUP, AxisType
from uops.spec.ir.node import UOp, ops_below, toposort
from uops.spec.ir.ops import ALU, BLOCK_CLOSERS, BLOCK_OPENERS, KERNEL_ACCESSES, WRITES, Op
from uops.spec.ir.scope import base_memory, has_memory_per_iteration, is_private_buffer

#: Instructions that have no vectors, and happen once per iteration of every loop around them.
_ONE_BY_ONE = frozenset({Op.ATOMICADD, Op.IF, Op.CUSTOM, Op.INS})
#: Instructions for which lanes and workgroups stay concurrent.
_CONCURRENT = frozenset({Op.BARRIER, Op.SPECIAL, Op.WMMA})
#: Instructions of a list that a Load behind them may have to wait for.
_ORDERING = WRITES | BLOCK_OPENERS | BLOCK_CLOSERS | {Op.CUSTOM, Op.INS}
#: Least size of an atomic sum, in bytes.
_LEAST_ATOMIC = 4
#: Largest number of copies of one instruction that vector loops may make.
_MOST_COPIES = 4096


def serialize_axes_and_atomics_that_targets_lack(body: UOp) -> UOp:
    """Return a kernel in which the loops that the module describes are sequential.

    Raises CompileError for AtomicAdds of small floats that cannot take turns.
    """
    order = toposort(body)
    ops = ops_below(body)
    unrolled = [u for u in order if u.op is Op.RANGE and u.arg.type in UNROLLED]
    shared = set[UOp]()
    if body.arg is not None and body.arg.scheduled and ops.isdisjoint(_CONCURRENT):
        shared = _find_parallel_loops_conflicting_with_outside(order)
    unbounded = {r for r in unrolled if not _is_positive_constant(r.bound)}
    chosen = shared | unbounded
    if Op.WMMA not in ops:
        chosen |= _choose_loops_to_serialize_under_copy_limit(order, [r for r in unrolled if r not in unbounded])
    if not chosen and ops.isdisjoint(_ONE_BY_ONE):
        return body
    loops = map_nodes_of_ops_to_enclosing_loops(order, _ONE_BY_ONE)
    chosen |= {r for around in loops.values() for r in around if r.arg.type in UNROLLED}
    if ops.isdisjoint(_CONCURRENT):
        narrow = [u for u in loops if u.op is Op.ATOMICADD and _is_narrow(u)]
        chosen |= {r for u in narrow for r in loops[u] if r.arg.type not in SEQUENTIAL}
    in_order = retype_ranges_as_sequential(*give_memory_per_iteration_of_serialized_loops(body, chosen))
    return _lower_small_float_atomics_to_stores(in_order) if ops.isdisjoint(_CONCURRENT) else in_order


def _find_parallel_loops_conflicting_with_outside(order: list[UOp]) -> set[UOp]:
    """Return the workgroups and lanes around an access of memory, and not around another access in fewer of the same loops.

    Memory that nothing writes is left out. Loops side by side are not returned: neither access stands in the loops of the other.
    """
    parallel = {u for u in order if u.op is Op.RANGE and u.arg.type in GRID | WORKGROUP}
    if not parallel:
        return set()
    by_memory: dict[UOp, dict[UOp, frozenset[UOp]]] = {}
    for u, loops in map_nodes_of_ops_to_enclosing_loops(order, KERNEL_ACCESSES).items():
        memory = base_memory(u.src[0])  # of the buffer, or of the index of an AtomicAdd
        sharing = {r for r in loops & parallel if not (is_private_buffer(memory) and has_memory_per_iteration(memory, r))}
        by_memory.setdefault(memory, {})[u] = frozenset(sharing)
    return {
        r
        for accesses in by_memory.values()
        if any(u.op in WRITES for u in accesses)
        for outside in set(accesses.values())
        for inside in set(accesses.values())
        if outside < inside
        for r in inside - outside
    }


def _choose_loops_to_serialize_under_copy_limit(order: list[UOp], vector_loops: list[UOp]) -> set[UOp]:
    """Return loops of `vector_loops`, without which no instruction has more than `_MOST_COPIES` copies."""
    chosen: set[UOp] = set()
    if _count_copies(vector_loops) <= _MOST_COPIES:
        return chosen
    by_cost = sorted(vector_loops, key=lambda r: (r.arg.type is not AxisType.UNROLL, -r.bound.const, r.arg.axis_id))
    for around in dict.fromkeys(map_nodes_of_ops_to_enclosing_loops(order, ALU | KERNEL_ACCESSES).values()):
        kept = [r for r in by_cost if r in around and r not in chosen]
        while _count_copies(kept) > _MOST_COPIES:
            chosen.add(kept.pop(0))
    return chosen


def _count_copies(vector_loops: list[UOp]) -> int:
    """Return the number of copies of an instruction that stands in `vector_loops`."""
    return math.prod([r.bound.const for r in vector_loops])


def _is_positive_constant(bound: UOp) -> bool:
    return bound.op is Op.CONST and bound.arg.value >= 1


def _is_narrow(u: UOp) -> bool:
    return u.value.dtype in SMALL or u.value.dtype.itemsize < _LEAST_ATOMIC


def _lower_small_float_atomics_to_stores(body: UOp) -> UOp:
    """Return a kernel without AtomicAdds of small floats. In one loop, each waits for the one before."""
    order = toposort(body)
    if not any(u.op is Op.ATOMICADD and u.value.dtype in SMALL for u in order):
        return body
    loops = map_nodes_of_ops_to_enclosing_loops(order, _ONE_BY_ONE)
    done: dict[UOp, UOp] = {}
    sums: dict[UOp, list[UOp]] = {}  # memory -> its AtomicAdds of before
    ranges = [u for u in order if u.op is Op.RANGE]
    for u in toposort(*ranges, body):  # a sum waits for Ranges that it does not use
        src = tuple([done[s] for s in u.src])
        new = u if src == u.src else u.replace(src=src)
        if u.op is Op.ATOMICADD and u.value.dtype in SMALL:
            earlier = sums.setdefault(base_memory(u.index), [])
            if any(loops[x] != loops[u] for x in earlier):
                detail = f"several sums of {u.value.dtype} to one memory stand in different loops"
                raise untranslatable_error("R56 (AtomicAdd)", u, detail, body)
            waits = (*(done[r] for r in ranges if r in loops[u]), *(done[x] for x in earlier[-1:]))
            *_, new = _store_sums_in_turn(new, waits)
            earlier.append(u)
        done[u] = new
    log_transform("expand", body, done[body], done)
    return done[body]


def _store_sums_in_turn(atomic: UOp, waits: tuple[UOp, ...]) -> Iterator[UOp]:
    """Yield a Store per element of an AtomicAdd: what memory holds after `waits` and the Stores before, plus the element.

    A vector may name an element several times, and then counts each time.
    """
    operand, *positions = atomic.index.src
    for k in range(math.prod(atomic.value.shape)):
        at = [_lane(p, k) for p in positions]
        place = UOp(Op.INDEX, (B.after(operand, *waits) if waits else operand, *at))
        store = B.store(place, UOp(Op.ADD, (B.load(place), _lane(atomic.value, k))))
        waits = (store,)
        yield store


def _lane(u: UOp, k: int) -> UOp:
    """Return element `k` of a vector; a scalar is all of its elements."""
    if not u.shape:
        return u
    return u.elements[k] if u.op is Op.STACK and not u.elements[k].shape else B.at(u, k)


def lower_small_float_atomics_in_sequential_list(linear: UOp) -> UOp:
    """Return a list of instructions without AtomicAdds of small floats, if nothing in it is concurrent; else the list itself.

    Each becomes a Store in its place, or one per element. Its Load is not listed, and waits for the effect, loop or If that is
    listed before it.
    """
    is_concurrent = any(u.op in _CONCURRENT or (u.op is Op.RANGE and u.arg.type not in SEQUENTIAL) for u in linear.instructions)
    if is_concurrent or not any(u.op is Op.ATOMICADD and u.value.dtype in SMALL for u in linear.instructions):
        return linear
    done: dict[UOp, UOp] = {}
    waits: tuple[UOp, ...] = ()
    listed = []
    for u in linear.instructions:
        src = tuple([done.get(s, s) for s in u.src])
        new = u if src == u.src else u.replace(src=src)
        is_small_sum = u.op is Op.ATOMICADD and u.value.dtype in SMALL
        stores = [*_store_sums_in_turn(new, waits)] if is_small_sum else [new]
        done[u] = stores[-1]
        if u.op in _ORDERING:
            waits = (done[u],)
        listed += stores
    return linear.replace(src=tuple(listed))
