"""Argmax loops, rewritten as Reduces.

Takes: the body of a kernel before it is linearized. Gives: a body that stores the same, without such loops.

    for r: if x(r) > m: m, p = x(r), v(r)          m starts at the identity of Max, p at v(0)

After the loop, m is the maximum of x. If v does not increase with r, p is the greatest v(r) among those with x(r) = m: that of the
first one. A NaN counts as greater than any number, and stays. So, for M that is at least m and for z that is at most every v,

    (m = M ? p : z)   is   max of (x(r) = M ? v(r) : z) over r.

Each lane of a vector is such a loop of its own. Spec: R11 (Max on floats), R32 (value of a Reduce).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, ReduceArg
from uops.spec.ir.axes import SEQUENTIAL
from uops.spec.ir.node import UOp, collect_users, rebuild, substitute, toposort
from uops.spec.ir.ops import COLLECTIVE, MEMORY_ROOTS, OPAQUE_INSTRUCTIONS, WRITES, Op
from uops.spec.ir.scope import base_memory, open_ranges

#: Effects beside those of Stores in loops. The law says nothing of bodies that have them.
_OTHER_EFFECTS = frozenset({Op.IF, Op.ENDIF, Op.BARRIER}) | (WRITES - {Op.STORE}) | OPAQUE_INSTRUCTIONS | COLLECTIVE
#: Greatest number of iterations of such a loop.
_MAX_ITERATIONS = 1 << 16
Integers = NDArray[np.object_]


class _ArgmaxLoop(NamedTuple):
    """The Stores by which a loop updates m, the maximum of x so far, and p, the v of its first occurrence."""

    update_of_max: UOp
    update_of_index: UOp
    x: UOp
    v: UOp
    loop: UOp


def rewrite_argmax_loops_as_reduces(body: UOp) -> UOp:
    """Return a body in which argmax loops are Reduces; the body itself if it has none, or uses one in another way."""
    nodes = toposort(body)
    conditions = Counter(u.value.condition for u in nodes if u.op is Op.STORE and u.value.op is Op.WHERE)
    if body.op is not Op.SINK or max(conditions.values(), default=0) < 2 or not _OTHER_EFFECTS.isdisjoint(u.op for u in nodes):
        return body
    loops = _BodyWithLoops(nodes)
    found = [s for u in loops.stores if (s := loops.match_argmax_loop(u)) is not None]
    rewritten = [loops.rewrite_choices(s) for s in found]
    if not found or any(choices is None for choices in rewritten):
        return body
    indices = {base_memory(s.update_of_index.buffer) for s in found}
    maxima = {base_memory(s.update_of_max.buffer) for s in found}

    def rewrite(u: UOp) -> UOp:
        if u.op is Op.GROUP:
            return B.group(*[s for s in u.src if s.op is not Op.STORE or base_memory(s.buffer) not in indices])
        if u.op is Op.STORE and base_memory(u.buffer) in maxima and u.value.op is Op.WHERE:
            return u.replace(src=(u.buffer, UOp(Op.MAX, (u.value.if_false, u.value.if_true))))
        return u

    return rebuild(substitute(body, {u: new for choices in rewritten if choices for u, new in choices.items()}), rewrite)


class _BodyWithLoops:
    """The Stores and loops of a body."""

    def __init__(self, nodes: Sequence[UOp]) -> None:
        self.nodes = nodes
        self.users = collect_users(self.nodes)
        self.loops_around = open_ranges(self.nodes)
        self.stores = [u for u in self.nodes if u.op is Op.STORE]
        self.stores_to: dict[UOp, list[UOp]] = {}
        for u in self.stores:
            self.stores_to.setdefault(base_memory(u.buffer), []).append(u)
        self.next_axis_id = 1 + max((u.arg.axis_id for u in self.nodes if u.op is Op.RANGE), default=0)

    # The loop

    def match_argmax_loop(self, update: UOp) -> _ArgmaxLoop | None:
        """Return the argmax loop in which a Store updates p, or None."""
        choice = update.value
        if choice.op is not Op.WHERE:
            return None
        loops = self._find_loops_after_initialization(update)
        if len(loops) != 1:
            return None
        for other in self.stores:
            kept = other.value
            if other is update or kept.op is not Op.WHERE or kept.condition is not choice.condition:
                continue
            is_same = loops == self._find_loops_after_initialization(other)
            if is_same and _is_exceeded(kept.condition, kept.if_true, kept.if_false):
                s = _ArgmaxLoop(other, update, kept.if_true, choice.if_true, *loops)
                return s if self._keeps_first_maximum(s) else None
        return None

    def _find_loops_after_initialization(self, update: UOp) -> frozenset[UOp]:
        """Return the loops between the start of REG memory and a Store that updates all of it; none for any other Store."""
        address, stores = update.buffer, self.stores_to[base_memory(update.buffer)]
        if len(stores) != 2 or not all(map(_is_store_to_whole_register, stores)):
            return frozenset()
        (start,) = (u for u in stores if u is not update)
        own = update.value.if_false
        if own.op is not Op.LOAD or own.src != (address,) or start not in toposort(*address.operand.dependencies):
            return frozenset()
        loops = self.loops_around[update] - self.loops_around[start]
        is_inside = self.loops_around[start] < self.loops_around[update] and all(r.arg.type in SEQUENTIAL for r in loops)
        return loops if is_inside and loops.issubset(address.operand.dependencies) else frozenset()

    def _keeps_first_maximum(self, s: _ArgmaxLoop) -> bool:
        """Return True if m starts below all x and p at the first v, v does not increase, and neither reads what is stored."""
        stored = {_identify_memory(memory) for memory in self.stores_to}
        if any(u.op is Op.LOAD and _identify_memory(base_memory(u.buffer)) in stored for u in toposort(s.x, s.v)):
            return False
        initial_max, initial_index = (
            next(u.value for u in self.stores_to[base_memory(update.buffer)] if u is not update)
            for update in (s.update_of_max, s.update_of_index)
        )
        first, indices = (_evaluate_integers(u, s.loop) for u in (initial_index, s.v))
        lowest = -math.inf if s.x.dtype.is_float else s.x.dtype.min
        if set(_constants_of(initial_max)) != {lowest} or first is None or indices is None:
            return False
        return bool((indices[0] == first[0]).all() and (indices[1:] <= indices[:-1]).all())

    # Choices after it

    def rewrite_choices(self, s: _ArgmaxLoop) -> dict[UOp, UOp] | None:
        """Return each choice of p by the maximum of all as a Reduce; None if p is used in another way."""
        memory, rewritten = base_memory(s.update_of_index.buffer), {}
        if any(user.op is not Op.GROUP for store in self.stores_to[memory] for user in self.users[store]):
            return None
        for load in [u for u in self.nodes if u.op is Op.LOAD and base_memory(u.buffer) is memory]:
            own = s.update_of_index.value
            if load is own.if_false and self.users[load] == [own] and self.users[own] == [s.update_of_index]:
                continue
            for choice in self.users[load]:
                new = self._rewrite_choice(s, load, choice)
                if new is None:
                    return None
                rewritten[choice] = new
        return rewritten

    def _rewrite_choice(self, s: _ArgmaxLoop, load: UOp, choice: UOp) -> UOp | None:
        """Return (m = M ? p : z) as a Reduce, where `load` is p after the loop; None for anything else."""
        if choice.op is not Op.WHERE or choice.if_true is not load or len(load.src) != 1:
            return None
        address, missing = load.buffer, _constants_of(choice.if_false)
        positions = s.update_of_index.buffer.positions
        if address.op is not Op.INDEX or address.positions != positions or address.operand.op is not Op.AFTER:
            return None
        after = address.operand
        memory = after.replace(src=(base_memory(s.update_of_max.buffer), *after.dependencies))
        m = UOp(Op.LOAD, (UOp(Op.INDEX, (memory, *positions)),), load.arg)
        total = _find_maximum_compared_with(choice.condition, m)
        values = _evaluate_integers(s.v, s.loop)
        if total is None or values is None or not missing or max(missing) > values.min() or s.loop in self.loops_around[choice]:
            return None
        ends = [u for u in after.dependencies if u.op is Op.END]
        done = toposort(*ends)
        if not all(s.loop in u.ranges for u in ends) or s.update_of_index not in done or s.update_of_max not in done:
            return None
        if not (self.loops_around[s.x] | self.loops_around[s.v]) - {s.loop} <= self.loops_around[choice]:
            return None
        lanes = range(int(math.prod(m.shape)))
        if not all((m, lane) in _list_leaves_of_max_tree(total, lane) for lane in lanes):
            return None
        loop = s.loop.replace(arg=replace(s.loop.arg, axis_id=self.next_axis_id))
        self.next_axis_id += 1
        x, v = (substitute(u, {s.loop: loop}) for u in (s.x, s.v))
        equal = UOp(Op.CMPEQ, (x, total))
        is_greatest = UOp(Op.OR, (equal, UOp(Op.CMPNE, (x, x)))) if x.dtype.is_float else equal
        return UOp(Op.REDUCE, (UOp(Op.WHERE, (is_greatest, v, choice.if_false)), loop), ReduceArg(Op.MAX, ()))


def _identify_memory(memory: UOp) -> object:
    """Return what all Params of one slot, or one Buffer, have in common."""
    return memory.arg.slot if memory.op is Op.PARAM else memory


def _is_store_to_whole_register(store: UOp) -> bool:
    """Return True for an ungated Store to all elements of a REG Buffer, in order."""
    address, memory = store.buffer, base_memory(store.buffer)
    if store.gate is not None or memory.op is not Op.BUFFER or address.op is not Op.INDEX or len(address.positions) != 1:
        return False
    if memory.arg.addrspace is not AddrSpace.REG:
        return False
    is_whole = address.operand.op is Op.AFTER and address.operand.buffer is memory
    return is_whole and memory.dtype is store.value.dtype and _constants_of(address.positions[0]) == [*range(memory.arg.size)]


def _constants_of(u: UOp) -> list[int | float]:
    """Return the constants of a vector, or the one of a scalar; none if they are not constant."""
    values = _evaluate_integers(u, None) if u.dtype.is_integer else None
    if values is not None:
        return [int(x) for x in values[0]]
    sources = u.src if u.op is Op.STACK else (u,)
    return [s.arg.value for s in sources] if all(s.op is Op.CONST for s in sources) else []


def _is_exceeded(condition: UOp, x: UOp, m: UOp) -> bool:
    """Return True for the condition that x is greater than m, or is the first NaN."""
    if not x.dtype.is_float:
        return condition.op is Op.CMPLT and condition.src == (m, x)
    if condition.op is not Op.AND:
        return False
    terms = {UOp(Op.NOT, (UOp(Op.CMPLE, (x, m)),)), UOp(Op.CMPEQ, (m, m))}
    return set(condition.src) == terms


def _find_maximum_compared_with(condition: UOp, m: UOp) -> UOp | None:
    """Return M of the condition that m is M, or a NaN; None for any other one."""
    equal = condition
    if m.dtype.is_float:
        is_nan = UOp(Op.CMPNE, (m, m))
        if condition.op is not Op.OR or is_nan not in condition.src:
            return None
        equal = next((t for t in condition.src if t is not is_nan), condition)
    if equal.op is not Op.CMPEQ or m not in equal.src:
        return None
    return equal.rhs if equal.lhs is m else equal.lhs


def _list_leaves_of_max_tree(u: UOp, lane: int) -> set[tuple[UOp, int]]:
    """Return the leaves, as nodes and lanes, of the tree of Max ops at one lane of `u`."""
    leaves, stack, seen = set[tuple[UOp, int]](), [(u, lane)], set[tuple[UOp, int]]()
    while stack:
        at = stack.pop()
        if at in seen:
            continue
        seen.add(at)
        u, lane = at
        positions = _constants_of(u.positions[0]) if u.op is Op.INDEX and len(u.positions) == 1 else []
        if u.op is Op.MAX:
            stack += [(s, lane if s.shape else 0) for s in u.src]
        elif u.op is Op.STACK and len(u.shape) == 1:
            stack.append((u.src[lane], 0))
        elif positions and u.operand.op not in MEMORY_ROOTS and len(u.operand.shape) == 1:
            stack.append((u.operand, int(positions[lane])))
        else:
            leaves.add(at)
    return leaves


def _evaluate_integers(u: UOp, loop: UOp | None) -> Integers | None:
    """Return an integer vector or scalar in each iteration of a loop, as (iterations, lanes).

    Returns None if it depends on anything else, needs other ops than `_INTEGER_OPS`, or leaves the range of its dtype; and for a
    loop of no iterations, or of more than `_MAX_ITERATIONS`.
    """
    count = 1 if loop is None else int(loop.bound.arg.value) if loop.bound.op is Op.CONST else 0
    if not 0 < count <= _MAX_ITERATIONS:
        return None
    known: dict[UOp, Integers] = {}
    for node in toposort(u, gate=lambda n: n.op is not Op.RANGE):
        sources = [known.get(s) for s in node.src]
        if node is loop:
            value = np.arange(count).astype(object).reshape(-1, 1)
        elif node.op is Op.CONST and (node.dtype.is_integer or node.dtype is dt.index):
            value = np.full((1, 1), int(node.arg.value), object)
        elif any(s is None for s in sources) or node.op not in _INTEGER_OPS:
            return None
        else:
            value = _INTEGER_OPS[node.op](*sources)
        if node.dtype is not dt.index:
            least, greatest = (node.dtype.min, node.dtype.max) if node.dtype.is_integer else (0, -1)
            if value.min() < least or value.max() > greatest:
                return None
        known[node] = value
    return known[u]


_INTEGER_OPS: dict[Op, Callable[..., Integers]] = {
    Op.ADD: np.add,
    Op.SUB: np.subtract,
    Op.MUL: np.multiply,
    Op.CAST: lambda x: x,
    Op.STACK: lambda *xs: np.concatenate(np.broadcast_arrays(*xs), axis=1),
}
