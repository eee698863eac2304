"""Which Tensors a derivative may be asked for later: those with `requires_grad`.

A realized Tensor is data: its node is replaced by a leaf, so that what it was computed from can be freed. A Tensor that depends
on a tracked one keeps its node instead, and its array is found by that node.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from uops.compiler.tensor.settings import change_settings, current_settings
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import scope_sources


class HasNode(Protocol):
    """A Tensor, as far as its history is concerned."""

    uop: UOp


#: id of a tracked Tensor -> the Tensor while it is in use, as Tensors cannot be compared.
tracked_by_id: dict[int, weakref.ref[HasNode]] = {}


def differentiate_function() -> AbstractContextManager[None]:
    """Mark the block in which a function is called that is differentiated afterwards."""
    return change_settings(differentiating=True)


def is_differentiating() -> bool:
    """Return True in such a block."""
    return current_settings().differentiating


def may_differentiate() -> bool:
    """Return True if there are nodes by which a derivative may be asked for later."""
    return bool(tracked_by_id) or is_differentiating()


def is_stand_in(u: UOp) -> bool:
    """Return True if a node stands for an argument of a function that is differentiated."""
    return u.op is Op.DETACH and u.tag is not None


def collect_tracked_nodes() -> set[UOp]:
    """Return the nodes of the tracked Tensors, below their Reshapes."""
    return {skip_reshapes(t.uop) for t in list_tracked_tensors()}


def track_or_untrack_tensor(t: HasNode, is_tracked: bool) -> None:
    """Track a Tensor, or stop tracking it."""
    key = id(t)
    if is_tracked:
        tracked_by_id[key] = weakref.ref(t, lambda reference: tracked_by_id.pop(key, None))
    else:
        tracked_by_id.pop(key, None)


def is_tracked(t: HasNode) -> bool:
    """Return True if a Tensor is tracked."""
    return id(t) in tracked_by_id


def any_needs_history(tensors: Iterable[HasNode]) -> bool:
    """Return True if a derivative may be asked for with respect to one of these Tensors, or to what it was computed from."""
    return any(has_gradient_path_to_tracked_tensor(t.uop) for t in tensors)


def list_tracked_tensors() -> list[HasNode]:
    """Return the tracked Tensors in use, in the order in which they were tracked."""
    return [t for reference in list(tracked_by_id.values()) if (t := reference()) is not None]


def has_gradient_path_to_tracked_tensor(u: UOp) -> bool:
    """Return True if a derivative may flow from `u` to the node of a tracked Tensor, or if `u` is such a node."""
    if not tracked_by_id:
        return False
    nodes = collect_tracked_nodes()
    return any(s in nodes for s in walk_from_root_stopping_at_detach(u))


def walk_from_root_stopping_at_detach(root: UOp) -> Iterable[UOp]:
    """Yield `root` and the nodes that it depends on, but none behind a Detach."""
    seen, stack = {root}, [root]
    while stack:
        u = stack.pop()
        yield u
        if u.op is not Op.DETACH:
            for s in scope_sources(u):
                if s not in seen:
                    seen.add(s)
                    stack.append(s)


def skip_reshapes(u: UOp) -> UOp:
    """Return the node below Reshapes: a Tensor and its reshapes are one value to a derivative."""
    while u.op is Op.RESHAPE:
        u = u.operand
    return u
