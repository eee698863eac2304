"""Expansion of UPCAST and UNROLL ranges into axes of shape.

Takes: SCHEDULED. Gives: EXPANDED (no UPCAST or UNROLL range left). Spec: Lowering Pipeline/Expand; AxisType table; R41 (operand
shapes), R42 (Reduce shape), R95 (axis number).

The vector axes of a kernel are ordered by (priority of the type, axis id). A value has one axis per expanded range that it depends
on, in that order, and no other axis. A Range becomes the Stack of its values. Operands are brought to the union of their axes by
Reshape and Expand. An elementwise op takes an operand of shape () as it is (R162, scalar operands in EXPANDED). Memory is
one-dimensional: the positions of an access of several axes are flattened, and a loaded value is reshaped back. A Reduce over an
expanded range reduces the range's axis. Other ranges beside it are reduced outside of that. An End closes one loop, and the last
of its ranges is the innermost (R58, End).

A schedule may contain any number of UPCAST and UNROLL ranges, closed by an End or a Reduce like other ranges. Those without a
constant, positive extent become sequential loops (`sequential_axes`). They may be used in values, positions, gates and the
positions of LOCAL and REG Buffers, but not in the bound of a loop. All combinations of their values are computed side by side, in
the loops of all other ranges. A Store before a Load that is ordered after it stays before it in every combination. Instruction
selection decides from addresses which elements form a vector: it cuts a Store into vectors along the axis that is contiguous in
memory, and all other axes are separate instructions. A register tile therefore has prod(UPCAST extents) / lanes accumulators, which
should fit `MachineModel.registers`. A Reduce over an UNROLL range and loops has one set of accumulators. Their lanes lie along the
UNROLL range if loads along it are contiguous, and loads along the output are not. Gates that depend on lanes mask accesses; other
gates stay branches.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from uops.compiler.ir.bodies import map_kernel_bodies
from uops.compiler.ir.iterations import make_accesses_depend_on_loops_and_retype_unrolled_ranges
from uops.compiler.ir.loops import retype_ranges_as_sequential, sort_by_nesting, sort_closed_loops_outermost_first
from uops.compiler.log import log_transform
from uops.compiler.passes.sequential_axes import serialize_axes_and_atomics_that_targets_lack
from uops.compiler.place import untranslatable_error
from uops.spec.ir import build as B
from uops.spec.ir.args import ReduceArg
from uops.spec.ir.axes import UNROLLED
from uops.spec.ir.node import UOp, nodes_with_op, ops_below, toposort
from uops.spec.ir.ops import ADDRESSING, ALU, OPAQUE_INSTRUCTIONS, Op


def expand(root: UOp) -> UOp:
    """Replace the vector axes of every kernel by axes of shape. Raises CompileError for an axis that cannot be a shape."""
    return map_kernel_bodies(root, expand_vector_axes_and_split_ends)


def expand_vector_axes_and_split_ends(body: UOp) -> UOp:
    """Replace the vector axes of one kernel body by axes of shape, and split Ends of several ranges."""
    if body.op is not Op.SINK:  # a list of instructions has none (R166, kernels written by hand)
        return body
    body = _turn_vector_axes_of_native_kernel_into_loops(body)
    body = serialize_axes_and_atomics_that_targets_lack(body)
    if body.arg is not None and body.arg.scheduled:
        body = make_accesses_depend_on_loops_and_retype_unrolled_ranges(body)
    ranges = [u for u in nodes_with_op(body, Op.RANGE) if u.arg.type in UNROLLED]
    unchanged = not ranges and not any(len(u.ranges) > 1 for u in nodes_with_op(body, Op.END))
    return body if unchanged else _AxisExpander(toposort(body), ranges).expand_nodes()


def _turn_vector_axes_of_native_kernel_into_loops(body: UOp) -> UOp:
    """Return the body with loops for its vector axes, if it holds native text, which is written for scalars (R168)."""
    if OPAQUE_INSTRUCTIONS.isdisjoint(ops_below(body)):
        return body
    return retype_ranges_as_sequential(body, {u for u in toposort(body) if u.op is Op.RANGE and u.arg.type in UNROLLED})


class _AxisExpander:
    """The expansion of one kernel. A set of axes is a bit mask over `axes`, the expanded ranges in nesting order."""

    def __init__(self, order: list[UOp], ranges: list[UOp]) -> None:
        self.order = order
        self.axes = sort_by_nesting(ranges)
        self.extents = [int(r.bound.const) for r in self.axes]
        self.axis_bit = {r: 1 << k for k, r in enumerate(self.axes)}
        self.axis_masks: dict[UOp, int] = {}  # the axes of a value; for a reference, the axes of its positions
        self.done: dict[UOp, UOp] = {}  # node -> expanded node
        self.broadcasts: dict[tuple[UOp, int], UOp] = {}
        self.shape_operands: dict[tuple[int, ...], UOp] = {}

    def expand_nodes(self) -> UOp:
        """Expand every node, sources first, and return the new root."""
        for u in self.order:
            _RULES[u.op](self, u)
        log_transform("expand", self.order[-1], self.done[self.order[-1]], self.done)
        return self.done[self.order[-1]]

    # Shapes.

    def shape(self, axis_mask: int) -> tuple[int, ...]:
        """Return the shape of a value that has the axes `axis_mask`."""
        return tuple([n for k, n in enumerate(self.extents) if axis_mask >> k & 1])

    def build_extents_operand(self, shape: tuple[int, ...]) -> UOp:
        """Return the `extents` operand of a movement op to `shape`, memoized."""
        if shape not in self.shape_operands:
            self.shape_operands[shape] = B.shape_vector(shape)
        return self.shape_operands[shape]

    def reshape(self, u: UOp, shape: tuple[int, ...]) -> UOp:
        """Reshape `u` unless it has that shape."""
        return u if u.shape == shape else UOp(Op.RESHAPE, (u, self.build_extents_operand(shape)))

    def broadcast_to_axes(self, original: UOp, axis_mask: int) -> UOp:
        """Broadcast the expanded value of `original`, which has some of the axes `axis_mask`, to all of them."""
        u_mask = self.axis_masks[original]
        if u_mask == axis_mask:
            return self.done[original]
        broadcast = self.broadcasts.get((original, axis_mask))
        if broadcast is None:
            ones = tuple([n if u_mask >> k & 1 else 1 for k, n in enumerate(self.extents) if axis_mask >> k & 1])
            broadcast = UOp(Op.EXPAND, (self.reshape(self.done[original], ones), self.build_extents_operand(self.shape(axis_mask))))
            self.broadcasts[original, axis_mask] = broadcast
        return broadcast

    def broadcast_flat(self, u: UOp, axis_mask: int) -> UOp:
        """Broadcast `u` to the axes `axis_mask` and flatten them into one."""
        value = self.broadcast_to_axes(u, axis_mask)
        return self.reshape(value, (math.prod(self.shape(axis_mask)),)) if axis_mask & (axis_mask - 1) else value

    # Nodes.

    def rebuild_without_expanded_ranges(self, u: UOp) -> None:
        """Rebuild memory, an effect or a loop, none of which has axes. An expanded range needs no loop to close."""
        src = tuple([self.done[s] for s in u.src if s not in self.axis_bit])
        self.axis_masks[u] = 0
        self.done[u] = u if src == u.src else UOp(u.op, src, u.arg, u.tag)

    def split_end_per_loop(self, u: UOp) -> None:
        """Build one End per loop, in the order in which they nest; an expanded range needs none."""
        self.axis_masks[u] = 0
        body = self.done[u.body]
        for r in reversed(sort_closed_loops_outermost_first(u.ranges)):
            body = body if r in self.axis_bit else UOp(Op.END, (body, self.done[r]))
        self.done[u] = body

    def expand_elementwise(self, u: UOp) -> None:
        """Rebuild an elementwise op on operands of equal axes; one of shape () stays as it is."""
        axis_masks, done, mask = self.axis_masks, self.done, 0
        for s in u.src:
            mask |= axis_masks[s]
        axis_masks[u] = mask
        fits = (0, mask)  # the masks of operands that need no broadcast
        src = tuple([done[s] if axis_masks[s] in fits else self.broadcast_to_axes(s, mask) for s in u.src])
        done[u] = u if src == u.src else UOp(u.op, src, u.arg, u.tag)

    def _union_axis_masks(self, src: tuple[UOp, ...]) -> int:
        mask, axis_masks = 0, self.axis_masks
        for s in src:
            mask |= axis_masks[s]
        return mask

    def replace_range_if_expanded(self, u: UOp) -> None:
        """Replace an expanded range by the Stack of its values. Raises CompileError for a bound that depends on one."""
        if u in self.axis_bit:
            self.axis_masks[u] = self.axis_bit[u]
            self.done[u] = UOp(Op.STACK, tuple([B.index_of_int(k) for k in range(int(u.bound.const))]))
        elif self.axis_masks[u.bound]:
            raise untranslatable_error("Lowering Pipeline/Expand", u, "its bound depends on a vector axis", self.order[-1])
        else:
            self.rebuild_without_expanded_ranges(u)

    def expand_after(self, u: UOp) -> None:
        """Rebuild an After, which has the axes of the value that it passes on."""
        self.rebuild_without_expanded_ranges(u)
        self.axis_masks[u] = self.axis_masks[u.buffer]

    def defer_index(self, u: UOp) -> None:
        """Record the axes of a reference. Each access builds it anew, for the axes of the access."""
        self.axis_masks[u] = self._union_axis_masks(u.src)
        self.done[u] = u

    def rebuild_reference(self, reference: UOp, axis_mask: int) -> UOp:
        """Build the reference of an access that has the axes `axis_mask`."""
        if reference.op is Op.AFTER and reference.buffer.op in ADDRESSING:
            dependencies = [self.done[s] for s in reference.dependencies if s not in self.axis_bit]
            return UOp(Op.AFTER, (self.rebuild_reference(reference.buffer, axis_mask), *dependencies))
        if reference.op is not Op.INDEX:
            return self.done[reference]
        operand, *positions = reference.src
        return reference.replace(
            src=(self.rebuild_reference(operand, axis_mask), *[self.broadcast_flat(s, axis_mask) for s in positions])
        )

    def expand_load(self, u: UOp) -> None:
        """Load flat positions and give the value its axes."""
        mask = self._union_axis_masks(u.src)
        self.axis_masks[u] = mask
        loaded = u.replace(src=(self.rebuild_reference(u.buffer, mask), *self._flatten_operands(u, mask)))
        self.done[u] = self.reshape(loaded, self.shape(mask)) if mask & (mask - 1) else loaded

    def expand_store(self, u: UOp) -> None:
        """Store a flat value at flat positions."""
        mask = self._union_axis_masks(u.src)
        self.axis_masks[u] = 0
        self.done[u] = u.replace(src=(self.rebuild_reference(u.buffer, mask), *self._flatten_operands(u, mask)))

    def _flatten_operands(self, u: UOp, mask: int) -> list[UOp]:
        """Return the value or alternative of an access, flat, and its gate, which stays () where it has no axis."""
        _, *operands = u.src  # value or alternative, then the gate
        return [self.done[s] if k == 1 and not self.axis_masks[s] else self.broadcast_flat(s, mask) for k, s in enumerate(operands)]

    def reduce_expanded_axes_then_loops(self, u: UOp) -> None:
        """Reduce the axes of expanded ranges first, then the other ranges."""
        closed = 0
        for r in u.ranges:
            closed |= self.axis_bit.get(r, 0)
        ranges = tuple(self.done[r] for r in u.ranges if r not in self.axis_bit)
        mask = self.axis_masks[u.operand] | closed
        value = self.broadcast_to_axes(u.operand, mask)
        if closed:
            within = [k for k in range(len(self.axes)) if mask >> k & 1]
            axes = tuple(i for i, k in enumerate(within) if closed >> k & 1)
            mask &= ~closed
            value = self.reshape(UOp(Op.REDUCE, (value,), ReduceArg(u.arg.op, axes)), self.shape(mask))
        self.axis_masks[u] = mask
        self.done[u] = u.replace(src=(value, *ranges)) if ranges or not closed else value


_RULES: dict[Op, Callable[[_AxisExpander, UOp], None]] = {
    **dict.fromkeys(Op, _AxisExpander.rebuild_without_expanded_ranges),
    **dict.fromkeys(ALU, _AxisExpander.expand_elementwise),
    Op.RANGE: _AxisExpander.replace_range_if_expanded,
    Op.END: _AxisExpander.split_end_per_loop,
    Op.INDEX: _AxisExpander.defer_index,
    Op.AFTER: _AxisExpander.expand_after,
    Op.LOAD: _AxisExpander.expand_load,
    Op.STORE: _AxisExpander.expand_store,
    Op.REDUCE: _AxisExpander.reduce_expanded_axes_then_loops,
    Op.BITCAST: _AxisExpander.expand_elementwise,
}
