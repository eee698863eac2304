"""Ordering of a kernel's instructions.

Takes: SELECTED. Gives: LINEAR (each kernel body a Linear; every instruction after its sources; a Range opens its loop, its End
closes it; an If opens its block, its Endif closes it). Spec: Lowering Pipeline/Linearize; Range, End, If, Endif, After, Linear;
R57 (Range), R58 (End), R59 (After), R114 (If).

An instruction stands in the innermost loop that it depends on, so loop-invariant code is hoisted. Ends decide the nesting: a Range
lies inside every other loop that the body of its End depends on.

The block of an If holds what the If guards (`find_ifs_around`), and no other effect. It stands inside all loops that everything in
it runs in. Loops of a part of it stand inside of the block. A block is contiguous. Where that is impossible, the kernel is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from uops.compiler.ir.bodies import map_kernel_bodies
from uops.compiler.ir.loops import find_ifs_around
from uops.compiler.log import log_transform
from uops.compiler.passes.branches import branch_around_costly_stores
from uops.compiler.place import untranslatable_error
from uops.spec.ir.node import UOp, nodes_with_op, toposort
from uops.spec.ir.ops import ALU, BLOCK_CLOSERS, BLOCK_OPENERS, COLLECTIVE, MEMORY_ROOTS, OPAQUE_INSTRUCTIONS, WRITES, Op
from uops.spec.ir.scope import open_ranges

#: Ops that are no instructions: the root and constants, which stand where they are used, as do vectors of constants. The sizes of
#: Params are no instructions either, nor is a Group that only the root uses, which orders nothing.
_STRUCTURE = frozenset({Op.SINK, Op.CONST})
#: Instructions that may be repeated in more loops than they depend on: they read no memory and have no effect.
_REPEATABLE = ALU | {Op.BITCAST, Op.INDEX, Op.STACK, Op.AFTER, Op.IF}
#: Instructions that must be executed exactly where the Ifs around them are taken, and not less often.
_EFFECTS = WRITES | OPAQUE_INSTRUCTIONS | COLLECTIVE
_BLOCK_DELIMITERS = BLOCK_OPENERS | BLOCK_CLOSERS
_NO_BLOCKS: frozenset[UOp] = frozenset()


def linearize(root: UOp) -> UOp:
    """Replace every kernel of a launch by its instruction list."""
    return map_kernel_bodies(root, linearize_kernel)


def linearize_kernel(body: UOp) -> UOp:
    """Return the instruction list of one kernel body, which may be one already (R166, kernels written by hand).

    Raises CompileError for loops and Ifs that do not nest (R58, End), and for an unguarded effect in a loop inside of an If.
    """
    if body.op is not Op.SINK:
        return prepend_unlisted_memory(body) if body.op is Op.LINEAR else body
    instructions = order_instructions(body)
    if any(u.gate is not None for u in nodes_with_op(body, Op.STORE)):
        instructions = branch_around_costly_stores(instructions)
    linear = UOp(Op.LINEAR, instructions)
    log_transform("order", body, linear, {body: linear})
    return linear


def prepend_unlisted_memory(linear: UOp) -> UOp:
    """Return an instruction list with the Params and Buffers that it need not have, which renderers declare."""
    listed = set(linear.src)
    memory = (u for u in toposort(linear) if u.op in MEMORY_ROOTS and u not in listed)
    return linear.replace(src=(*memory, *linear.src))


def order_instructions(kernel: UOp) -> tuple[UOp, ...]:
    """Return the instructions of one kernel in execution order."""
    order = toposort(kernel)
    listed = [u for u in order if u.op not in _STRUCTURE and (u.op is not Op.STACK or u.constants_of_stack is None)]
    symbolic = [u.extents for u in nodes_with_op(kernel, Op.PARAM) if u.src and u.extents.constants_of_stack is None]
    if symbolic:
        sizes = set(toposort(*symbolic))
        used_as_value = {s for u in order if u.op is not Op.PARAM and u.op is not Op.STACK for s in u.src}
        listed = [u for u in listed if u not in sizes or u in used_as_value]
    if Op.GROUP in [s.op for s in kernel.src]:
        needed = {s for u in order if u is not kernel for s in u.src}
        listed = [u for u in listed if u.op is not Op.GROUP or u in needed]
    return tuple(_BlockTree(kernel, listed, order).emit_instructions())


class _BlockTree:
    """The tree of blocks. A block is the instructions of one loop or If, by its Range or If, or of the kernel itself (None)."""

    def __init__(self, kernel: UOp, instructions: Sequence[UOp], order: list[UOp]) -> None:
        self.instructions = instructions
        self.root = kernel
        self.open_loops = open_ranges(order)
        ifs = nodes_with_op(kernel, Op.IF)
        self.ifs = find_ifs_around(order) if ifs else {}
        self.endifs = {u.if_node: u for u in nodes_with_op(kernel, Op.ENDIF)}
        open_at_end = {r: self.open_loops[u] for u in nodes_with_op(kernel, Op.END) for r in u.ranges}
        self._nest_ifs_and_their_inner_loops(ifs, open_at_end)
        self.enclosing = _close_over_enclosing_blocks(open_at_end, self.root)
        self.parent = {b: self._innermost_block_or_raise_if_unnested(outer) for b, outer in self.enclosing.items()}

    def _nest_ifs_and_their_inner_loops(self, ifs: Sequence[UOp], outer_blocks_of_block: dict[UOp, frozenset[UOp]]) -> None:
        """Add to `outer_blocks_of_block` the blocks around each If, and each If around the loops inside of it."""
        if not ifs:
            return
        guarded: dict[UOp, list[UOp]] = {u: [] for u in ifs}
        for u in self.instructions:
            for f in self.ifs.get(u, ()):
                guarded[f].append(u)
        fixed = {f: frozenset(u for u in inside if u.op not in _REPEATABLE) for f, inside in guarded.items()}
        number = {f: k for k, f in enumerate(guarded)}
        for f, inside in guarded.items():
            common = frozenset.intersection(*map(self._loops_around, fixed[f])) if fixed[f] else self.open_loops[f]
            wider = {g for g in guarded if fixed[f] < fixed[g] or (fixed[f] == fixed[g] and number[g] < number[f])}
            outer_blocks_of_block[f] = common.union(self.ifs.get(f, ()), wider if fixed[f] else ())
            loops_inside = {r for u in inside for r in self.open_loops[u]} - common
            outer_blocks_of_block.update({r: outer_blocks_of_block[r] | {f} for r in loops_inside if r in outer_blocks_of_block})

    def _loops_around(self, u: UOp) -> frozenset[UOp]:
        return self.open_loops[u] - {u}

    def _innermost_block_or_raise_if_unnested(self, blocks: frozenset[UOp]) -> UOp | None:
        if not blocks:
            return None
        inner = max(blocks, key=lambda b: len(self.enclosing[b]))
        if not blocks <= self.enclosing[inner] | {inner}:
            raise untranslatable_error("R58 (End)", inner, f"{_describe_blocks(blocks)} do not nest", self.root)
        return inner

    def _group_by_innermost_block(self) -> dict[UOp | None, list[UOp]]:
        """Return the instructions of each block. What opens or closes a block belongs to the enclosing one; Endifs are left out."""
        blocks: dict[UOp | None, list[UOp]] = {}
        block_of: dict[frozenset[UOp], list[UOp]] = {}
        open_loops, ifs = self.open_loops, self.ifs
        for u in self.instructions:
            op = u.op
            if op not in _BLOCK_DELIMITERS:
                opened = open_loops[u] | ifs[u] if u in ifs else open_loops[u]
                members = block_of.get(opened)
                if members is None:
                    members = block_of[opened] = blocks.setdefault(self._innermost_block_or_raise_if_unnested(opened), [])
                members.append(u)
            elif op in BLOCK_OPENERS:
                blocks.setdefault(self.parent[u], []).append(u)
            elif op is Op.END:
                blocks.setdefault(self.parent[min(u.ranges, key=lambda r: len(self.enclosing[r]))], []).append(u)
        return blocks

    def _refuse_effects_in_ifs_not_guarding_them(self, blocks: dict[UOp | None, list[UOp]]) -> None:
        """Raise CompileError for an effect in the block of an If that does not guard it."""
        for opening, members in blocks.items():
            around = self.enclosing[opening] | {opening} if opening is not None else _NO_BLOCKS
            ifs = frozenset(b for b in around if b.op is Op.IF)
            stray = next((u for u in members if u.op in _EFFECTS and self.ifs.get(u, _NO_BLOCKS) != ifs), None)
            if stray is not None:
                raise untranslatable_error("R114 (If)", stray, "it is in a loop inside of an If that does not guard it", self.root)

    def emit_instructions(self) -> list[UOp]:
        """Order every block, the innermost first. The body of a block is contiguous: to its own block, it is one unit."""
        blocks = self._group_by_innermost_block()
        if self.ifs:
            self._refuse_effects_in_ifs_not_guarding_them(blocks)
        bodies: dict[UOp, list[UOp]] = {}
        for b in sorted(self.parent, key=lambda b: -len(self.enclosing[b])):
            bodies[b] = self._order_block(blocks.get(b, []), bodies)
            if b.op is Op.IF:
                bodies[b] = [*bodies[b], self.endifs.get(b) or UOp(Op.ENDIF, (b,))]
        return self._order_block(blocks.get(None, []), bodies)

    def _order_block(self, members: list[UOp], bodies: dict[UOp, list[UOp]]) -> list[UOp]:
        """Order one block and insert each inner block's body behind its Range or If.

        The members come in topological order, except that a Range or If must follow whatever its body needs.
        """
        if BLOCK_OPENERS.isdisjoint({u.op for u in members}):
            return members
        position = {u: k for k, u in enumerate(members)}
        if_around = {v: u for u in members if u.op is Op.IF for v in bodies[u]}
        ordered: dict[UOp, None] = {}
        for u in members:
            if u.op in BLOCK_OPENERS:
                _append_after_predecessors(
                    u, ordered, lambda v: _find_predecessors_with_ifs_as_units(v, bodies, position, if_around)
                )
            ordered[u] = None
        out: list[UOp] = []
        for u in ordered:
            out.append(u)
            if u.op in BLOCK_OPENERS:
                out += bodies[u]
        return out


def _find_predecessors_with_ifs_as_units(
    u: UOp, bodies: dict[UOp, list[UOp]], position: dict[UOp, int], if_around: dict[UOp, UOp]
) -> list[UOp]:
    """Return the members of the block that `u` depends on, in their order.

    A Range or If depends on whatever its body does. `if_around` maps what stands inside of an If of this block to the If.
    """
    is_opener = u.op in BLOCK_OPENERS
    sources = set(u.src).union(*[v.src for v in bodies[u]]).difference(bodies[u], (u,)) if is_opener else set(u.src)
    if if_around:
        sources = {if_around.get(s, s) for s in sources}
    return sorted(sources & position.keys(), key=position.__getitem__)


def _close_over_enclosing_blocks(open_at_end: dict[UOp, frozenset[UOp]], root: UOp) -> dict[UOp, frozenset[UOp]]:
    """Return, for each Range and If, all blocks around it: those open at its end, and transitively those around them."""
    enclosing: dict[UOp, frozenset[UOp]] = {}
    for b in open_at_end:
        around, pending = {b}, [b]
        while pending:
            outer = pending.pop()
            if outer not in open_at_end:
                raise untranslatable_error("R58 (End)", outer, "no End closes this loop", root)
            new = open_at_end[outer] - around
            around |= new
            pending += new
        enclosing[b] = frozenset(around - {b})
        crossed = next((o for o in enclosing[b] if b in enclosing.get(o, ())), None)
        if crossed is not None:
            raise untranslatable_error("R58 (End)", b, f"{_describe_blocks((b, crossed))} do not nest", root)
    return enclosing


def _describe_blocks(blocks: Iterable[UOp]) -> str:
    """Return the words for some blocks in messages: the axis ids of the loops, and the number of Ifs."""
    ids = sorted(b.arg.axis_id for b in blocks if b.op is Op.RANGE)
    ifs = sum(b.op is Op.IF for b in blocks)
    return " and ".join([*([f"loops {ids}"] if ids else []), *([f"{ifs} ifs"] if ifs else [])])


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
            words = "its block" if u.op is Op.IF else "a loop around it"
            raise untranslatable_error("R58 (End)", u, f"{words} would have to be entered twice")
        else:
            stack.extend(reversed(missing))
