"""Branches around costly Stores: what only a gated Store needs is computed where the gate is true.

Takes: the instructions of a kernel, in order. Gives: the same with an If around each Store under a gate of one element whose value
is costly. Arithmetic that nothing else needs moves into the If. Loads stay where they are, since other accesses may follow them.
The Store keeps its gate. Spec: If, Endif, Store; R54 (Store), R127 (loops of a node).

A gate of a vector's lanes is a mask, and stays one.
"""

from __future__ import annotations

from collections.abc import Sequence

from uops.compiler.rewrite.costs import COSTS
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ALU, BLOCK_CLOSERS, BLOCK_OPENERS, Op

#: Work that pays for a branch, in simple operations: more than that of a wrongly predicted one.
LEAST_WORK = 24
#: Instructions without an effect that read no memory.
_MOVED = ALU | {Op.BITCAST, Op.INDEX}


def branch_around_costly_stores(instructions: Sequence[UOp]) -> tuple[UOp, ...]:
    """Return the instructions of a kernel with an If around each gated Store that is costly to compute.

    Of several Stores under one gate the first gets the If, unless there is an If of this gate already: an instruction stands once.
    """
    gated = [u for u in instructions if u.op is Op.STORE and len(u.src) > 2 and _has_scalar_gate(u)]
    if not gated:
        return tuple(instructions)
    block_of, users, place = (
        _map_to_enclosing_block_number(instructions),
        _map_users(instructions),
        {u: k for k, u in enumerate(instructions)},
    )
    blocks: dict[UOp, list[UOp]] = {}  # Store -> the instructions of its If
    gates: set[UOp | None] = {u.condition for u in instructions if u.op is Op.IF}
    for store in gated:
        moved = _list_instructions_needed_by_store_alone(store, place, block_of, users)
        if store.gate not in gates and sum(COSTS[u.op].work for u in moved if u.op in COSTS) >= LEAST_WORK:
            gates.add(store.gate)
            blocks[store] = [*moved, store]
    behind = {u for block in blocks.values() for u in block}
    listed: list[UOp] = []
    for u in instructions:
        if u in blocks:
            opening = UOp(Op.IF, (u.gate,))  # type: ignore[arg-type]  # a gated Store
            listed += [opening, *blocks[u], UOp(Op.ENDIF, (opening,))]
        elif u not in behind:
            listed.append(u)
    return tuple(listed)


def _has_scalar_gate(store: UOp) -> bool:
    gate = store.gate
    return gate is not None and gate.op is not Op.CONST and not gate.shape and not store.value.shape


def _map_to_enclosing_block_number(instructions: Sequence[UOp]) -> dict[UOp, int]:
    """Return the number of the loop or If around each instruction; one that opens or closes a block stands outside of it."""
    numbers: dict[UOp, int] = {}
    around, count = [0], 0
    for u in instructions:
        if u.op in BLOCK_CLOSERS:
            around.pop()
        numbers[u] = around[-1]
        if u.op in BLOCK_OPENERS:
            count += 1
            around.append(count)
    return numbers


def _map_users(instructions: Sequence[UOp]) -> dict[UOp, list[UOp]]:
    users: dict[UOp, list[UOp]] = {}
    for u in instructions:
        for s in u.src:
            users.setdefault(s, []).append(u)
    return users


def _list_instructions_needed_by_store_alone(
    store: UOp, place: dict[UOp, int], block_of: dict[UOp, int], users: dict[UOp, list[UOp]]
) -> list[UOp]:
    """List the instructions of the Store's block that only it needs, in order; its gate is none of them."""
    alone, pending = {store}, list(store.src)
    while pending:
        u = pending.pop()
        is_movable = u in place and u.op in _MOVED and block_of[u] == block_of[store] and u is not store.gate
        if is_movable and u not in alone and alone.issuperset(users[u]):  # asked again for each of its users
            alone.add(u)
            pending += u.src
    return sorted(alone - {store}, key=place.__getitem__)
