"""Gradients of Load, and of memory that was written: After with Stores, and with Calls that have a registered rule.

After(buf, Store(view of buf, val, gate)) is memory of which the viewed part is val, where the gate is true. So val gets the
cotangent of that part, and the old contents the rest. Of several values for one element the last stays (R164), and it alone gets
the cotangent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Set

from uops.spec.errors import SpecValueError
from uops.spec.ir import build as b
from uops.spec.ir.node import Dim, UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory, scope_nodes
from uops.spec.rows.compositions import arange
from uops.spec.rows.gradients.base import (
    Cotangent,
    Gradient,
    find_registered_rule,
    make_gradient_summing_broadcasts,
    require_constant_extents,
    reshape_if_needed,
)
from uops.spec.rows.gradients.movement import scatter_back_through_one_view


def _copy_back_and_split_load_cotangent_by_gate(u: UOp, g: UOp) -> tuple[UOp, ...]:
    """Copy the cotangent back to the device of the buffer. Where the gate is false, it belongs to the alternative."""
    source = u.buffer.device
    if u.arg.device is not None and source is not None and source != u.arg.device:
        g = b.copy(g, source)
    if u.gate is None:
        return (g,)
    return b.where(u.gate, g, b.const(0, g.dtype)), b.where(u.gate, b.const(0, g.dtype), g)


def _differentiate_after(u: UOp, g: UOp, needed: Set[UOp]) -> Iterator[tuple[UOp, Cotangent]]:
    """Divide the cotangent of memory between what was stored there and what was there before."""
    base = base_memory(u.buffer)
    views = _list_views_from_base_up_to_reference(u.buffer, base)
    for view in reversed(views):  # from here on, g is the cotangent of all of the memory
        g = scatter_back_through_one_view(view, g)
    for effect in reversed(_list_effects_on_memory(u, base)):
        if effect.op is Op.STORE:
            stored, g = _divide_between_value_and_memory(effect, base, g)
            if effect.value in needed:
                yield effect.value, stored
        else:
            g, of_arguments = _differentiate_call_by_registered_rule(effect, base, g)
            yield from ((a, c) for a, c in of_arguments if a in needed)
    if u.buffer in needed:
        for view in views:
            g = _replay_view(view, g)
        yield u.buffer, g


def _list_effects_on_memory(after: UOp, base: UOp) -> list[UOp]:
    """Return the Stores to a memory, and the Calls that may write it, for which an After waits but not its buffer, in order."""
    earlier = set(scope_nodes(after.buffer))
    effects = [u for u in scope_nodes(b.group(*after.dependencies)) if u not in earlier]
    return [
        u
        for u in effects
        if (u.op is Op.STORE and base_memory(u.buffer) is base) or (u.op is Op.CALL and _list_written_positions(u, base))
    ]


def _list_written_positions(call: UOp, base: UOp) -> list[int]:
    """Return the positions of the arguments by which a Call may write a memory (R63)."""
    written = call.arg.written if call.arg is not None else None
    return [k for k, a in enumerate(call.arguments) if (written is None or k in written) and base_memory(a) is base]


def _list_views_from_base_up_to_reference(reference: UOp, base: UOp) -> list[UOp]:
    """Return the views that make `reference` of memory, the first one first. An After is the same memory later."""
    views = []
    while reference is not base:
        if reference.op is not Op.AFTER:
            views.append(reference)
        reference = reference.src[0]  # the viewed operand, or the buffer of an After
    return views[::-1]


def _divide_between_value_and_memory(store: UOp, base: UOp, g: UOp) -> tuple[UOp, UOp]:
    """Return the cotangents of the stored value and of the old contents, from that of all of the memory after the Store."""
    zero = b.const(0, g.dtype)
    views = _list_views_from_base_up_to_reference(store.buffer, base)
    part, shape = g, store.buffer.shape
    for view in views:
        part = _replay_view(view, part)
    gate = None if store.gate is None else b.expand(_align(store.gate, len(shape)), shape)
    stays = gate
    if any(view.op is Op.INDEX and any(p.shape for p in view.positions) for view in views):
        stays = _mark_last_of_each_element(views, shape, gate)
    written = gate if gate is not None else b.expand(_align(b.const(True), len(shape)), shape)
    for view in reversed(views):
        written = scatter_back_through_one_view(view, written, Op.MAX)
    return part if stays is None else b.where(stays, part, zero), b.where(written, zero, g)


def _align(u: UOp, rank: int) -> UOp:
    """Return a value with axes of extent 1 in front, up to a rank."""
    return b.reshape(u, (1,) * (rank - len(u.shape)) + u.shape) if len(u.shape) < rank else u


def _mark_last_of_each_element(views: list[UOp], shape: tuple[Dim, ...], gate: UOp | None) -> UOp:
    """Return True where a value stays: none that is stored later, in row-major order, goes to the same element (R164).

    The values are numbered from 1 on. Moved back to the memory, the greatest number stays; seen through the views again, it tells
    each value whether that is its own.
    """
    extents = require_constant_extents(shape, "a Store through an Index")
    number = b.reshape(b.add(arange(math.prod(extents)), 1), extents)
    if gate is not None:
        number = b.where(gate, number, 0)
    greatest = number
    for view in reversed(views):
        greatest = scatter_back_through_one_view(view, greatest, Op.MAX)
    for view in views:
        greatest = _replay_view(view, greatest)
    stays = b.eq(greatest, number)
    return stays if gate is None else b.and_(gate, stays)


def _replay_view(view: UOp, viewed: UOp) -> UOp:
    """Return the same view of another value."""
    return view.replace(src=(viewed, *view.src[1:]), tag=None)  # the sources after the viewed one


def _differentiate_call_by_registered_rule(call: UOp, base: UOp, g: UOp) -> tuple[UOp, list[tuple[UOp, UOp]]]:
    """Return the cotangents of the old contents and of the other arguments, by the Call's rule.

    Raises SpecValueError if none is registered for its `grad_tag`.
    """
    rule = find_registered_rule(call)
    if rule is None:
        tag = call.arg.grad_tag if call.arg is not None else None
        why = "it has no grad_tag" if tag is None else f"nothing is registered for its grad_tag {tag!r}"
        raise SpecValueError(f"a Call has no gradient of its own, and {why}; register a rule by register_gradient (R187)")
    written = _list_written_positions(call, base)
    found = rule(call, {k: reshape_if_needed(g, call.arguments[k].shape) for k in written})
    old = next(
        (reshape_if_needed(c, g.shape) for k, c in found.items() if k in written),
        b.expand(_align(b.const(0, g.dtype), len(g.shape)), g.shape),
    )
    return old, [(call.arguments[k], c) for k, c in found.items() if k not in written]


GRADIENTS: dict[Op, Gradient] = {
    Op.LOAD: make_gradient_summing_broadcasts(
        "a copy back, where the gate is true; the alternative gets the rest", _copy_back_and_split_load_cotangent_by_gate
    ),
    Op.AFTER: Gradient("g where written, for the stored value; the rest for buf", _differentiate_after),
}
