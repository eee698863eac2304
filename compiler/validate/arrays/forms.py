"""Forms of bodies in which values are compared: counts of iterations, and memory that only hands values on.

Takes: a body. Gives: a body that stores the same. Both are done by laws stated here, and used on bodies that no kernel is made of.
Spec: R32 (value of a Reduce), R128 (private Buffers).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from uops.compiler.ir.loops import unwrap_nested_ends
from uops.compiler.log import record_transforms
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, rebuild, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory


def simplify_unrecorded(body: UOp) -> UOp:
    """Return a body simplified by the proved rules of index arithmetic. What is simplified here is no step of the lowering."""
    with record_transforms():
        return Rewriter(INDEXING)(body)


def simplify_and_count_iterations(body: UOp) -> UOp:
    """Return a simplified body, in which loops that count iterations are products."""
    return simplify_unrecorded(count_iterations_in_closed_form(simplify_unrecorded(body)))


def count_iterations_in_closed_form(body: UOp) -> UOp:
    """Return a body in which a sum over a loop of a constant where the counter is large enough is a product.

    The number of r in 0 to n - 1 with x + r >= t is max(n - max(t - x, 0), 0).
    """
    return rebuild(body, _count_in_closed_form)


def _count_in_closed_form(u: UOp) -> UOp:
    if u.op is not Op.REDUCE or u.arg.op is not Op.ADD or len(u.ranges) != 1 or not u.dtype.is_integer or u.dtype is dt.index:
        return u
    (r,), term = u.ranges, u.operand
    if term.op is not Op.WHERE or term.if_true.op is not Op.CONST or term.if_false is not B.const(0, term.dtype):
        return u
    condition = term.condition
    if condition.op is not Op.CMPGE or condition.lhs.op is not Op.ADD or r not in condition.lhs.src or r.bound.op is not Op.CONST:
        return u
    a, b = condition.lhs.src
    x, t = b if a is r else a, condition.rhs
    if r in toposort(x, t):
        return u
    zero = B.const(0, dt.index)
    count = UOp(Op.MAX, (B.sub(r.bound, UOp(Op.MAX, (B.sub(t, x), zero))), zero))
    return B.mul(B.cast(count, u.dtype), term.if_true)


def inline_private_memory(body: UOp) -> UOp:
    """Return a body in which a Load of a private Buffer is the value that one Store in loops has stored there.

    Such a Store writes each element once: its position is the row-major index of its loops. Any other memory is left as it is.
    """
    memories = [base_memory(u.buffer) for u in toposort(body) if u.op is Op.STORE]
    memories = [m for m in memories if m.op is Op.BUFFER]
    if not memories or len(set(memories)) < len(memories):
        return body
    return rebuild(body, _replace_by_stored_value)


def _replace_by_stored_value(u: UOp) -> UOp:
    if u.op is not Op.LOAD or len(u.src) != 1 or u.buffer.op is not Op.INDEX or len(u.buffer.positions) != 1:
        return u
    memory, (position,) = u.buffer.operand, u.buffer.positions
    if memory.op is not Op.AFTER or memory.buffer.op is not Op.BUFFER or len(memory.dependencies) != 1:
        return u
    (effect,) = memory.dependencies
    effect, loops = unwrap_nested_ends(effect)
    if effect.op is not Op.STORE or effect.gate is not None or effect.buffer.op is not Op.INDEX:
        return u
    if effect.buffer.operand is not memory.buffer or any(r.bound.op is not Op.CONST for r in loops):
        return u
    counters = dict(_solve_row_major(effect.buffer.positions[0], loops, position))
    return u if not loops or counters.keys() != set(loops) else rebuild(effect.value, lambda n: counters.get(n, n))


def _solve_row_major(stored: UOp, loops: Sequence[UOp], position: UOp) -> Iterator[tuple[UOp, UOp]]:
    """Yield the counter of each loop at which the row-major position `stored` is `position`; nothing if it is no such position."""
    size = 1
    expected: UOp | None = None
    for r in loops:
        expected = r if expected is None else B.add(B.mul(expected, r.bound), r)
        size *= int(r.bound.arg.value)
    bounds = position.min_max
    if expected is not stored or bounds is None or bounds[0] < 0 or bounds[1] >= size:
        return
    for k, r in enumerate(reversed(loops)):
        n = r.bound
        yield r, position if k == len(loops) - 1 else UOp(Op.MOD, (position, n))
        position = UOp(Op.IDIV, (position, n))
