"""Versions of memory: which Stores a read waits for, and which are ordered.

Takes: nodes of a graph, sources first. Gives: the order of Stores. Raises NotEvaluable where a read has no one version.
Spec: R51 (references), R54 (Store), R55 (races).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from uops.compiler.ir.bodies import order_outside_kernels
from uops.compiler.validate.fingerprints.integers import NotEvaluable
from uops.spec.ir import build as B
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import RESULT_ROOTS, Op
from uops.spec.ir.scope import VIEWS, base_memory


def require_consistent_reads(items: Sequence[UOp], are_ordered: bool = False) -> None:
    """Raise NotEvaluable if a read depends on other Stores to its memory than its After does.

    `items` are values and effects, and a reference among them is read, too. Kernels that they call are not looked into. With
    `are_ordered`, raise it also for a read and a Store, or two Stores, of one memory that no edge of the graph orders.
    """
    nodes = order_outside_kernels(B.sink(*items))
    stores: dict[UOp, set[UOp]] = {}
    below: dict[UOp, frozenset[UOp]] = {}  # node -> the Stores that it is or waits for
    for u in nodes:
        below[u] = frozenset().union(*(below[s] for s in u.src if s in below), (u,) if u.op is Op.STORE else ())
        if u.op is Op.STORE:
            stores.setdefault(base_memory(u.buffer), set()).add(u)
    before = {t: set(order_outside_kernels(t)) for written in stores.values() for t in written} if are_ordered else {}
    for user, reference in _list_reads(nodes) if stores else ():
        written = stores.get(base_memory(reference))
        if written is None:
            continue
        version = _find_version(reference, below) & written
        waits_for = below[reference] if user.op in RESULT_ROOTS else frozenset().union(*(below.get(s, ()) for s in user.src))
        if waits_for & written != version:
            raise NotEvaluable("a read of memory that waits for other Stores than its After")
        if are_ordered and any(user not in before[t] for t in written - version):
            raise NotEvaluable("a read and a Store of memory have no order")
    for written in stores.values() if are_ordered else ():
        order_stores(written)


def _list_reads(nodes: Sequence[UOp]) -> Iterator[tuple[UOp, UOp]]:
    """Yield each node that reads a reference, with that reference."""
    for user in nodes:
        for k, s in enumerate(user.src):
            is_view = k == 0 and (user.op in VIEWS or user.op is Op.STORE)
            if not is_view and user.op is not Op.AFTER:
                yield user, s


def _find_version(reference: UOp, below: Mapping[UOp, frozenset[UOp]]) -> frozenset[UOp]:
    """Return the Stores after which a reference is read: those below its outermost After."""
    while reference.op in VIEWS and reference.op is not Op.AFTER:
        reference = reference.src[0]  # operand
    return below[reference] if reference.op is Op.AFTER else frozenset()


def order_stores(stores: Collection[UOp]) -> list[UOp]:
    """Return Stores in dependency order. Raises NotEvaluable if two unordered ones may write one element."""
    order = [u for u in order_outside_kernels(B.sink(*stores)) if u in stores] if len(stores) > 1 else list(stores)
    for k, later in enumerate(order):
        earlier = set(order_outside_kernels(later)) if k else set()
        for u in order[:k]:
            if u not in earlier and not _write_disjoint_boxes(u, later):
                raise NotEvaluable("Stores without an order may write the same elements")
    return order


def _write_disjoint_boxes(a: UOp, b: UOp) -> bool:
    """Return True if two Stores write boxes of one view that are disjoint on some axis."""
    views, boxes = set(), []
    for target in (a.buffer, b.buffer):
        is_cut = target.op is Op.SHRINK
        views.add(target.operand if is_cut else target)
        offsets = list_offsets(target) if is_cut else [0] * len(target.shape)
        if not all(isinstance(n, int) for n in target.shape):
            return False
        boxes.append([(o, o + n) for o, n in zip(offsets, target.shape, strict=True)])
    return len(views) == 1 and any(x[1] <= y[0] or y[1] <= x[0] for x, y in zip(*boxes, strict=True))


def list_offsets(shrink: UOp) -> list[int]:
    """Return the offsets of a Shrink. Raises NotEvaluable unless they, and its extents, are constants."""
    offsets = shrink.offsets.constants_of_stack
    if offsets is None or not all(isinstance(n, int) for n in shrink.shape):
        raise NotEvaluable("a Store to a part of memory that depends on variables")
    return [int(o) for o in offsets]
