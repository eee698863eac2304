"""Elements of memory after Stores to views of it.

Takes: a graph that stores to memory, and the argument of each memory. Gives: expressions of elements, which are those of the values
that were stored, or what the memory held before. Raises NotEvaluable where Stores without an order may write the same elements.
Spec: R41 (Permute), R44 (Shrink), R51 (references), R54 (Store).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from uops.compiler.validate.arrays.definitions import KernelMemory
from uops.compiler.validate.arrays.elements import (
    TRUE,
    ElementExpressions,
    Index,
    align_index,
    flatten_index,
    flip_index,
    is_index_inside,
    unflatten_position,
)
from uops.compiler.validate.arrays.versions import list_offsets, order_stores
from uops.compiler.validate.fingerprints.integers import NotEvaluable
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import MEMORY_ROOTS, Op
from uops.spec.ir.scope import is_variable


class StoredElements:
    """Elements of values and of memory after Stores.

    `memory` holds the Params of initial contents. `find_argument` maps memory of the graph to its argument.
    """

    def __init__(self, memory: KernelMemory, find_argument: Callable[[UOp], UOp]) -> None:
        self.memory, self.find_argument = memory, find_argument
        self.expressions = ElementExpressions(self.load)

    def load(self, u: UOp, stores: Collection[UOp], index: Index, gate: UOp) -> UOp | None:
        """Return an element of memory after Stores to it, of 0 where the gate is false; None for what is no memory.

        Raises NotEvaluable for Stores without an order, and what `find_index_in_view` raises.
        """
        if u.op not in MEMORY_ROOTS or is_variable(u):
            return None
        position = flatten_index(index, u.shape)
        element = self.memory.load((self.find_argument(u), 0), position, gate)
        for store in order_stores(stores):
            inside, target_index = find_index_in_view(store.buffer, position)
            gate_inside = UOp(Op.AND, (gate, inside))
            value, *store_gates = (
                self.expressions.element(s, align_index(target_index, s), gate_inside)
                for s in (store.value, store.gate)
                if s is not None
            )
            is_stored = UOp(Op.AND, (inside, *store_gates)) if store_gates else inside
            element = B.where(is_stored, B.cast(value, element.dtype), element)
        return B.cast(element, u.dtype) if u.dtype is dt.index else element


def find_index_in_view(view: UOp, position: UOp) -> tuple[UOp, Index]:
    """Return the condition under which a view has the element of its memory at a position, and its index in the view.

    Raises NotEvaluable for a view by Index, Slice or Bitcast, and for one whose offsets are not constant.
    """
    views = []
    while view.op not in MEMORY_ROOTS:
        views.append(view)
        view = view.src[0]  # operand, or buffer of an After
    index, inside = unflatten_position(position, view.shape), TRUE
    for u in reversed(views):
        if u.op is Op.RESHAPE:
            index = unflatten_position(flatten_index(index, u.operand.shape), u.shape)
        elif u.op is Op.SHRINK:
            index = tuple(B.sub(i, o) for i, o in zip(index, list_offsets(u), strict=True))
            inside = UOp(Op.AND, (inside, is_index_inside(index, u.shape)))
        elif u.op is Op.PERMUTE:
            index = tuple(index[axis] for axis in u.arg.order)
        elif u.op is Op.FLIP:
            index = flip_index(u, index)
        elif u.op is not Op.AFTER:
            raise NotEvaluable(f"a Store to a {u.op.name}")
    return inside, index
