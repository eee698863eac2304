"""Effects that stay nodes of their own, though a rewrite makes them equal.

Takes and gives the bodies of kernels written by hand, and Calls of kernels. Spec: AtomicAdd, After, Linear, Call; R27 (one node,
one value), R56 (AtomicAdd), R151 (entries of a launch), R166 (kernels written by hand).

Nodes are interned, so two effects that become equal are one effect, and the other is lost. It is an error to do so with an
AtomicAdd: each adds. A pass may make two of them equal at any time: it binds Params to one argument, follows views, or simplifies a
position. So each waits for the one before, and two nodes of which one depends on the other are never equal. Any order is right, as
the sum is free of order (R56). The same holds of Calls. In a list of instructions the order of all accesses is given already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from uops.spec.ir import build as B
from uops.spec.ir.node import UOp, nodes_with_op, toposort
from uops.spec.ir.ops import KERNEL_ACCESSES, Op
from uops.spec.ir.scope import base_memory, is_variable, open_ranges

#: No Params are one memory.
NO_NUMBERS: Mapping[int, int] = {}


def chain_atomic_adds_per_memory_and_loops(body: UOp, memory_number_by_slot: Mapping[int, int] = NO_NUMBERS) -> UOp:
    """Return a kernel in which AtomicAdds of one memory in the same loops come one after the other.

    `memory_number_by_slot` maps the slots of Params to numbers of memory; Params of one number are one memory. AtomicAdds of
    different loops need no order: they depend on different Ranges, and what closes a Range depends on all AtomicAdds in it
    (RANGE.C4).
    """
    if body.op is Op.LINEAR or len(nodes_with_op(body, Op.ATOMICADD)) < 2:
        return body
    order = toposort(body)
    loops = open_ranges(order)
    latest: dict[tuple[object, frozenset[UOp]], UOp] = {}
    adds_below: dict[UOp, int] = {}  # node -> a bit per AtomicAdd that the new node is or depends on
    done: dict[UOp, UOp] = {}
    for u in order:
        src = tuple([done[s] for s in u.src])
        done[u] = u if src == u.src else u.replace(src=src)
        adds_below[u] = 0
        for s in u.src:
            adds_below[u] |= adds_below[s]
        if u.op is Op.ATOMICADD:
            key = identify_memory(u.index, memory_number_by_slot), loops[u]
            earlier = latest.get(key)
            if earlier is not None and adds_below[earlier] & ~adds_below[u]:
                done[u] = wait_in_access(done[u], (done[earlier],))
                adds_below[u] |= adds_below[earlier]
            adds_below[u] |= 1 << len(done)
            latest[key] = u
    return done[body]


def identify_memory(reference: UOp, memory_numbers: Mapping[int, int]) -> object:
    """Return the number of the memory that a reference views, or the memory itself where it has no number.

    `memory_numbers` maps the slots of Params to numbers of memory; Params of one number are one memory.
    """
    memory = base_memory(reference)
    return memory_numbers.get(memory.arg.slot, memory) if memory.op is Op.PARAM else memory


def wait_in_access(access: UOp, dependencies: Iterable[UOp]) -> UOp:
    """Return an access that waits for values and effects."""
    address, *operands = access.src  # the buffer of a Load or Store, the index of an AtomicAdd
    return access.replace(src=(wait_in_reference(address, dependencies), *operands))


def wait_in_reference(reference: UOp, dependencies: Iterable[UOp]) -> UOp:
    """Return a reference that waits for values and effects. An Index stays an Index, as an AtomicAdd takes no other reference."""
    if reference.op is Op.INDEX:
        return reference.replace(src=(B.after(reference.operand, *dependencies), *reference.positions))
    return B.after(reference, *dependencies)


def substitute_keeping_accesses_distinct(linear: UOp, replacements: Mapping[UOp, UOp]) -> UOp:
    """Return a list of instructions on other memory, in which each access stays an instruction of its own."""
    done = dict(replacements)
    listed: dict[UOp, None] = {}
    instructions = set(linear.src)
    for u in toposort(*linear.src):
        if u not in done:
            src = tuple([done[s] for s in u.src])
            done[u] = u if src == u.src else u.replace(src=src)
        if u not in instructions:
            continue
        while u.op in KERNEL_ACCESSES and done[u] in listed:
            done[u] = wait_in_access(done[u], (done[u],))
            address = done[u].src[0]  # the buffer of a Load or Store, the index of an AtomicAdd
            listed |= dict.fromkeys([*([address.operand] if address.op is Op.INDEX else []), address])
        listed[done[u]] = None
    return linear.replace(src=tuple(listed))


def wait_for_equal_calls(call: UOp, earlier_calls: Iterable[UOp]) -> UOp:
    """Return a Call that is none of the earlier ones: it waits for one that is equal, unless it writes nothing."""
    slots = [k for k in call.arg.written if not is_variable(base_memory(call.arguments[k]))]
    while slots and call in earlier_calls:
        arguments = list(call.arguments)
        arguments[slots[0]] = B.after(arguments[slots[0]], call)
        call = call.replace(src=(call.body, *arguments))
    return call
