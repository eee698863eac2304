"""Chains of assignments: one copy of a Tensor for all of them.

An assignment writes to fresh memory that holds the old contents, so that nodes made before keep their values. In a whole graph it
is known whether one does: where an old version is read by the next assignment only, that writes to the same memory instead.
`joined` takes and gives a TENSOR graph of equal values: a Store reads its value before it writes (R54), and the order of two is
that of their Afters (R59).
"""

from __future__ import annotations

from typing import NamedTuple

from uops.spec.ir.node import UOp, toposort, users
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import VIEWS


class _Copy(NamedTuple):
    """`node` is After(memory, Store(memory, old)), all of `memory`: a fresh copy of `old`."""

    node: UOp
    store: UOp
    old: UOp


def joined(root: UOp) -> UOp:
    """`root` without copies of versions that only the assignment to the copy reads."""
    order = toposort(root)
    copies = [c for c in map(_copy, order) if c is not None and c.old.op is Op.AFTER and _copied(c.old)]
    if not copies:
        return root
    used = users(order)
    put: dict[UOp, UOp] = {}
    for c in copies:
        written = _written(c, used)
        if written is not None and _only_for(c, written, used):
            put[c.node] = c.old
    return _replaced(root, put)


def _copy(u: UOp) -> _Copy | None:
    if u.op is not Op.AFTER or len(u.src) != 2 or u.src[1].op is not Op.STORE or len(u.src[1].src) != 2:
        return None
    memory, store = u.src
    whole = memory.src[0] if memory.op is Op.RESHAPE else memory
    return _Copy(u, store, store.src[1]) if store.src[0] is memory and whole.op is Op.BUFFER else None


def _copied(version: UOp) -> bool:
    """Whether a version is an assignment to a fresh copy: After(copy, Store(a view of it, value))."""
    target = version.src[1].src[0] if len(version.src) == 2 and version.src[1].op is Op.STORE else version
    while target.op in VIEWS and target is not version.src[0]:
        target = target.src[0]
    return target is version.src[0] and (_copy(target) is not None or (target.op is Op.AFTER and _copied(target)))


def _written(c: _Copy, used: dict[UOp, list[UOp]]) -> UOp | None:
    """The one Store to a view of the copy, where nothing else uses the copy but the version after that Store."""
    stores: list[UOp] = []
    pending = [(c.node, user) for user in used[c.node]]
    while pending:
        u, user = pending.pop()
        if user.op is Op.STORE and user.src[0] is u and u not in user.src[1:]:
            stores.append(user)
        elif user.op is Op.AFTER and u is c.node and user.src[0] is u and len(user.src) == 2:
            stores += user.src[1:]
        elif user.op in VIEWS and user.op is not Op.AFTER and user.src[0] is u:
            pending += [(user, x) for x in used[user]]
        else:
            return None
    return stores[0] if stores and all(s is stores[0] for s in stores) else None


def _only_for(c: _Copy, written: UOp, used: dict[UOp, list[UOp]]) -> bool:
    """Whether the old version is read by the copy and for the value of `written` only."""
    pending, seen = [c.old], {c.old}
    while pending:
        u = pending.pop()
        if not used[u]:
            return False
        for user in used[u]:
            if user not in (written, c.store) and user not in seen:
                if user.op in (Op.STORE, Op.TUPLE, Op.SINK):
                    return False
                seen.add(user)
                pending.append(user)
    return True


def _replaced(root: UOp, put: dict[UOp, UOp]) -> UOp:
    """`root` with each copy replaced; copies of copies too."""
    done: dict[UOp, UOp] = {}
    for u in toposort(root):
        if u in put:
            done[u] = done[put[u]]
        else:
            src = tuple([done[s] for s in u.src])
            done[u] = u if src == u.src else u.replace(src=src)
    return done[root]
