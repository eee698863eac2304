"""Ordering of a kernel's instructions.

Takes: SELECTED. Gives: LINEAR (each kernel body a Linear; every instruction after its sources, a Range opens its loop, its End
closes it). Spec: Lowering Pipeline/Linearize; Range, End, After, Linear; R57 (Range), R58 (End), R59 (After).

An instruction stands in the innermost loop that it depends on, so loop-invariant code is hoisted. Ends decide the nesting: a Range
lies inside every other loop that the body of its End depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from uops.compiler.ir.bodies import map_kernel_bodies
from uops.compiler.log import log_transform
from uops.compiler.passes.branches import branch_around_costly_stores
from uops.compiler.place import untranslatable_error
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import MEMORY_ROOTS, Op
from uops.spec.ir.scope import open_ranges

#: Ops that are no instructions: the root and constants, which stand where they are used, as do vectors of constants. The sizes of
#: Params are no instructions either, nor is a Group that only the root uses, which orders nothing.
_STRUCTURE = frozenset({Op.SINK, Op.CONST})


def linearize(root: UOp) -> UOp:
    """Replace every kernel of a launch by its instruction list."""
    return map_kernel_bodies(root, linearize_kernel)


def linearize_kernel(body: UOp) -> UOp:
    """Return the instruction list of one kernel body, which may be one already (R166, kernels written by hand).

    Raises CompileError for loops that do not nest (R58, End).
    """
    if body.op is not Op.SINK:
        return list_memory_first(body) if body.op is Op.LINEAR else body
    linear = UOp(Op.LINEAR, branch_around_costly_stores(order_instructions(body)))
    log_transform("order", body, linear, {body: linear})
    return linear


def list_memory_first(linear: UOp) -> UOp:
    """Return an instruction list with the Params and Buffers that it need not have, which renderers declare."""
    listed = set(linear.src)
    memory = (u for u in toposort(linear) if u.op in MEMORY_ROOTS and u not in listed)
    return linear.replace(src=(*memory, *linear.src))


def order_instructions(kernel: UOp) -> tuple[UOp, ...]:
    """Return the instructions of one kernel in execution order."""
    order = toposort(kernel)
    listed = [u for u in order if u.op not in _STRUCTURE and (u.op is not Op.STACK or u.constant_elements is None)]
    symbolic = [u.extents for u in listed if u.op is Op.PARAM and u.src and u.extents.constant_elements is None]
    if symbolic:
        sizes = set(toposort(*symbolic))
        used_as_value = {s for u in order if u.op is not Op.PARAM and u.op is not Op.STACK for s in u.src}
        listed = [u for u in listed if u not in sizes or u in used_as_value]
    if any(s.op is Op.GROUP for s in kernel.src):
        needed = {s for u in order if u is not kernel for s in u.src}
        listed = [u for u in listed if u.op is not Op.GROUP or u in needed]
    return tuple(_LoopTree(listed, order).emit_instructions())


class _LoopTree:
    """The tree of loops. A block is the instructions of one loop, or of the kernel itself (None)."""

    def __init__(self, instructions: Sequence[UOp], order: list[UOp]) -> None:
        self.instructions = instructions
        self.root = order[-1]
        self.open_loops = open_ranges(order)
        open_at_end = {r: self.open_loops[u] for u in instructions if u.op is Op.END for r in u.ranges}
        self.enclosing = _find_loops_around_ranges(open_at_end, self.root)
        self.parent = {r: self._innermost_loop_or_raise_if_unnested(outer) for r, outer in self.enclosing.items()}

    def _innermost_loop_or_raise_if_unnested(self, ranges: frozenset[UOp]) -> UOp | None:
        if not ranges:
            return None
        inner = max(ranges, key=lambda r: len(self.enclosing[r]))
        if not ranges <= self.enclosing[inner] | {inner}:
            raise untranslatable_error("R58 (End)", inner, f"loops {sorted(r.arg.axis_id for r in ranges)} do not nest", self.root)
        return inner

    def _group_by_innermost_loop(self) -> dict[UOp | None, list[UOp]]:
        """Return the instructions of each block, by its loop. A Range and its End belong to the enclosing block."""
        blocks: dict[UOp | None, list[UOp]] = {}
        block_of: dict[frozenset[UOp], list[UOp]] = {}
        for u in self.instructions:
            if u.op is Op.RANGE:
                blocks.setdefault(self.parent[u], []).append(u)
                continue
            loops = self.open_loops[u]
            block = block_of.get(loops)
            if block is None:
                block = block_of[loops] = blocks.setdefault(self._innermost_loop_or_raise_if_unnested(loops), [])
            block.append(u)
        return blocks

    def emit_instructions(self) -> list[UOp]:
        """Order every block, the innermost first. A loop body is contiguous: to its block, a loop is one unit."""
        blocks = self._group_by_innermost_loop()
        bodies: dict[UOp, list[UOp]] = {}
        for r in sorted(self.parent, key=lambda r: -len(self.enclosing[r])):
            bodies[r] = self._order_block(blocks.get(r, []), bodies)
        return self._order_block(blocks.get(None, []), bodies)

    def _order_block(self, members: list[UOp], bodies: dict[UOp, list[UOp]]) -> list[UOp]:
        """Order one block and insert each loop's body behind its Range.

        The members come in topological order, except that a Range must follow whatever its body needs.
        """
        if Op.RANGE not in {u.op for u in members}:
            return members
        position = {u: k for k, u in enumerate(members)}
        ordered: dict[UOp, None] = {}
        for u in members:
            if u.op is Op.RANGE:
                _append_after_predecessors(u, ordered, lambda v: _find_predecessors_in_block(v, bodies, position))
            ordered[u] = None
        out: list[UOp] = []
        for u in ordered:
            out.append(u)
            if u.op is Op.RANGE:
                out += bodies[u]
        return out


def _find_predecessors_in_block(u: UOp, bodies: dict[UOp, list[UOp]], position: dict[UOp, int]) -> list[UOp]:
    """Return the members of the block that `u` depends on, in their order. A Range depends on whatever its loop's body does."""
    sources = set(u.src).union(*[v.src for v in bodies[u]]).difference(bodies[u], (u,)) if u.op is Op.RANGE else set(u.src)
    return sorted(sources & position.keys(), key=position.__getitem__)


def _find_loops_around_ranges(open_at_end: dict[UOp, frozenset[UOp]], root: UOp) -> dict[UOp, frozenset[UOp]]:
    """Return, for each Range, all loops around it: those open at its End, and transitively those around them."""
    enclosing: dict[UOp, frozenset[UOp]] = {}
    for r in open_at_end:
        around, pending = {r}, [r]
        while pending:
            outer = pending.pop()
            if outer not in open_at_end:
                raise untranslatable_error("R58 (End)", outer, "no End closes this loop", root)
            new = open_at_end[outer] - around
            around |= new
            pending += new
        enclosing[r] = frozenset(around - {r})
        crossed = next((o for o in enclosing[r] if r in enclosing.get(o, ())), None)
        if crossed is not None:
            pair = sorted((r.arg.axis_id, crossed.arg.axis_id))
            raise untranslatable_error("R58 (End)", r, f"loops {pair} do not nest", root)
    return enclosing


def _append_after_predecessors(start: UOp, ordered: dict[UOp, None], predecessors: Callable[[UOp], list[UOp]]) -> None:
    """Append a member to `ordered`, preceded by the predecessors that are not yet in it."""
    entered: dict[UOp, list[UOp]] = {}
    stack = [start]
    while stack:
        u = stack[-1]
        again = u in entered
        if not again and u not in ordered:
            entered[u] = predecessors(u)
        missing = [v for v in entered[u] if v not in ordered] if u not in ordered else ()
        if not missing:
            ordered[u] = None
            stack.pop()
        elif again:
            raise untranslatable_error("R58 (End)", u, "a loop around it would have to be entered twice")
        else:
            stack.extend(reversed(missing))
