"""Elision of copies in chains of assignments: one copy of a Tensor for all of them.

An assignment writes to fresh memory that holds the old contents, so that older nodes keep their values. In a whole graph the
readers are known. If only the next assignment reads an old version, it writes to the same memory instead.

`elide_copies_in_assignment_chains` takes and gives a TENSOR graph with equal values: a Store reads its value before it writes
(R54: Store), and Afters order two of them (R59: After).
"""

from __future__ import annotations

from typing import NamedTuple

from uops.spec.ir.node import UOp, collect_users, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import VIEWS


class _AssignmentCopy(NamedTuple):
    """The node After(memory, Store(memory, old)), over all of `memory`: a fresh copy of `old`."""

    node: UOp
    store: UOp
    old: UOp


def elide_copies_in_assignment_chains(root: UOp) -> UOp:
    """Remove the copies of versions that only the assignment to the copy reads."""
    order = toposort(root)
    copies = [
        c
        for c in map(_match_copy_to_fresh_buffer, order)
        if c is not None and c.old.op is Op.AFTER and _is_assignment_to_copy(c.old)
    ]
    if not copies:
        return root
    users = collect_users(order)
    replacements: dict[UOp, UOp] = {}
    for c in copies:
        store = _find_store_into_copy_if_its_sole_user(c, users)
        if store is not None and _old_version_has_no_other_reader(c, store, users):
            replacements[c.node] = c.old
    return _replace_copies(root, replacements)


def _match_copy_to_fresh_buffer(u: UOp) -> _AssignmentCopy | None:
    """Return the fresh copy that `u` is, or None."""
    if u.op is not Op.AFTER or len(u.dependencies) != 1:
        return None
    memory, (store,) = u.buffer, u.dependencies
    if store.op is not Op.STORE or store.gate is not None:
        return None
    whole = memory.operand if memory.op is Op.RESHAPE else memory
    return _AssignmentCopy(u, store, store.value) if store.buffer is memory and whole.op is Op.BUFFER else None


def _is_assignment_to_copy(version: UOp) -> bool:
    """Return True if a version, an After, is an assignment to a fresh copy: After(copy, Store(a view of it, value))."""
    copy, effects = version.buffer, version.dependencies
    target = effects[0].buffer if len(effects) == 1 and effects[0].op is Op.STORE else version
    while target.op in VIEWS and target is not copy:
        target = target.src[0]  # the viewed reference
    if target is not copy:
        return False
    return _match_copy_to_fresh_buffer(copy) is not None or (copy.op is Op.AFTER and _is_assignment_to_copy(copy))


def _find_store_into_copy_if_its_sole_user(c: _AssignmentCopy, users: dict[UOp, list[UOp]]) -> UOp | None:
    """Return the only Store to a view of the copy, if nothing else uses the copy but the version after that Store."""
    stores: list[UOp] = []
    pending = [(c.node, user) for user in users[c.node]]
    while pending:
        u, user = pending.pop()
        if user.op is Op.STORE and user.buffer is u and user.value is not u and user.gate is not u:
            stores.append(user)
        elif user.op is Op.AFTER and u is c.node and user.buffer is u and len(user.dependencies) == 1:
            stores += user.dependencies
        elif user.op in VIEWS and user.op is not Op.AFTER and user.src[0] is u:  # the viewed reference
            pending += [(user, x) for x in users[user]]
        else:
            return None
    return stores[0] if stores and all(s is stores[0] for s in stores) else None


def _old_version_has_no_other_reader(c: _AssignmentCopy, store: UOp, users: dict[UOp, list[UOp]]) -> bool:
    """Return True if the old version is read only by the copy and for the value of `store`."""
    pending, seen = [c.old], {c.old}
    while pending:
        u = pending.pop()
        if not users[u]:
            return False
        for user in users[u]:
            if user not in (store, c.store) and user not in seen:
                if user.op in (Op.STORE, Op.TUPLE, Op.SINK):
                    return False
                seen.add(user)
                pending.append(user)
    return True


def _replace_copies(root: UOp, replacements: dict[UOp, UOp]) -> UOp:
    """Replace each copy, those of copies included."""
    done: dict[UOp, UOp] = {}
    for u in toposort(root):
        if u in replacements:
            done[u] = done[replacements[u]]
        else:
            src = tuple([done[s] for s in u.src])
            done[u] = u if src == u.src else u.replace(src=src)
    return done[root]
