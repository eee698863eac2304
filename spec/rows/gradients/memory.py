"""Gradients of Load, and of memory that was written: After with Stores, and with Calls that have a registered rule.

After(buf, Store(view of buf, val, gate)) is memory of which the viewed part is val, where the gate is true. So val gets the
cotangent of that part, and the old contents the rest. Of several values for one element the last stays (R164), and it alone gets
the cotangent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set

from uops.spec.errors import SpecValueError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import EFFECT_GROUPS, Op
from uops.spec.ir.scope import BASES, VIEWS
from uops.spec.rows.compositions import arange
from uops.spec.rows.gradients.base import Cotangent, Gradient, make_operand_rule, require_constant_extents, reshape_if_needed
from uops.spec.rows.gradients.movement import move_back

#: (Call, argument number -> cotangent of what the Call left there) -> argument number -> cotangent of what it got there.
CallRule = Callable[[UOp, Mapping[int, UOp]], Mapping[int, UOp]]
_call_rules: dict[str, CallRule] = {}


def register_call_gradient(grad_tag: str, rule: CallRule) -> None:
    """Make `rule` the gradient of each Call whose `grad_tag` is this one. The last registration counts."""
    _call_rules[grad_tag] = rule


def _differentiate_load(u: UOp, g: UOp) -> tuple[UOp, ...]:
    """Return the cotangent to the device it came from, the gated part of it to the alternative."""
    source = u.buffer.device
    if u.arg.device is not None and source is not None and source != u.arg.device:
        g = b.copy(g, source)
    if u.gate is None:
        return (g,)
    return b.where(u.gate, g, b.const(0, g.dtype)), b.where(u.gate, b.const(0, g.dtype), g)


def _differentiate_after(u: UOp, g: UOp, needed: Set[UOp]) -> Iterator[tuple[UOp, Cotangent]]:
    """Divide the cotangent of memory between what was stored there and what was there before."""
    for effect in _walk_effects(u):
        if effect.op is Op.STORE and _find_base(effect.buffer) is _find_base(u.buffer):
            stored, g = _divide_between_value_and_memory(effect, u.buffer, g)
            if effect.value in needed:
                yield effect.value, stored
        elif effect.op is Op.CALL:
            g, of_arguments = _differentiate_call(effect, u, g)
            yield from ((a, c) for a, c in of_arguments if a in needed)
    if u.buffer in needed:
        yield u.buffer, g


def _walk_effects(after: UOp) -> list[UOp]:
    """Return the Stores and Calls that an After waits for, the last one first."""
    effects, stack = list[UOp](), list(after.dependencies)
    while stack:
        u = stack.pop()
        if u.op in EFFECT_GROUPS:
            stack.extend(u.effects)
        else:
            effects.append(u)
    return effects


def _find_base(u: UOp) -> UOp:
    """Return the Buffer, the Param or the value below views."""
    while u.op in VIEWS and u.op not in BASES:
        u = u.src[0]  # the viewed operand
    return u


def _divide_between_value_and_memory(store: UOp, memory: UOp, g: UOp) -> tuple[UOp, UOp]:
    """Return the cotangents of the stored value and of the old contents."""
    views = _list_views_up_to(store.buffer, memory)
    zero = b.const(0, g.dtype)
    part = g if views is not None else reshape_if_needed(g, _find_base(memory).shape)
    chain = views if views is not None else _list_views_up_to(store.buffer, _find_base(memory))
    if chain is None:
        raise SpecValueError("a Store has no gradient whose memory is another view than the one that is read")
    is_last = None
    for view in chain:
        part = _replay_view(view, part)
        if view.op is Op.INDEX:
            is_last = _both(is_last and _replay_view(view, is_last), _mark_last_of_equal_positions(view))
        elif is_last is not None:
            is_last = _replay_view(view, is_last)
    written = b.expand(b.reshape(b.const(True), (1,) * len(part.shape)), part.shape) if part.shape else b.const(True)
    if store.gate is not None:
        written = b.and_(written, store.gate)
        part = b.where(store.gate, part, zero)
    if is_last is not None:
        part = b.where(is_last, part, zero)
    for view in reversed(chain):
        written = move_back(view, written)
    return part, b.where(reshape_if_needed(written, g.shape), zero, g)


def _replay_view(view: UOp, viewed: UOp) -> UOp:
    """Return the same view of another value."""
    return view.replace(src=(viewed, *view.src[1:]), tag=None)  # the sources after the viewed one


def _both(a: UOp | None, c: UOp) -> UOp:
    return c if a is None else b.and_(a, c)


def _list_views_up_to(reference: UOp, root: UOp) -> list[UOp] | None:
    """Return the views that make `reference` of `root`, the first one first, or None if it is no view of `root`."""
    views = []
    while reference is not root:
        if reference.op not in VIEWS or reference.op is Op.AFTER:
            return None
        views.append(reference)
        reference = reference.src[0]  # the viewed operand
    return views[::-1]


def _mark_last_of_equal_positions(index: UOp) -> UOp:
    """Return, in the shape of an Index, True where no later element has the same position."""
    mark, axis = b.const(True), 0
    for position in index.positions:
        if not position.shape:
            continue
        (d,) = require_constant_extents(position.shape, "a Store through an Index")
        equal = b.eq(b.reshape(position, (d, 1)), b.reshape(position, (1, d)))
        later = b.lt(b.reshape(arange(d), (d, 1)), b.reshape(arange(d), (1, d)))
        repeated = b.reduce(b.cast(b.and_(equal, later), dt.int32), Op.ADD, (1,))
        rank = len(index.shape)
        mark = b.and_(mark, b.reshape(b.eq(repeated, 0), [d if k == axis else 1 for k in range(rank)]))
        axis += 1
    return b.expand(mark if mark.shape else b.reshape(mark, (1,) * len(index.shape)), index.shape)


def _differentiate_call(call: UOp, after: UOp, g: UOp) -> tuple[UOp, list[tuple[UOp, UOp]]]:
    """Return the cotangents of the old contents and of the other arguments, by the Call's rule.

    Raises SpecValueError if none is registered for its `grad_tag`.
    """
    tag = call.arg.grad_tag if call.arg is not None else None
    rule = _call_rules.get(tag) if tag is not None else None
    if rule is None:
        why = "it has no grad_tag" if tag is None else f"nothing is registered for its grad_tag {tag!r}"
        raise SpecValueError(f"a Call has no gradient of its own, and {why}; register a rule by register_call_gradient (R187)")
    base = _find_base(after.buffer)
    written = [k for k, a in enumerate(call.arguments) if _find_base(a) is base]
    found = rule(call, {k: reshape_if_needed(g, call.arguments[k].shape) for k in written})
    old = next((reshape_if_needed(c, g.shape) for k, c in found.items() if k in written), b.expand(_zero_of(g), g.shape))
    return old, [(call.arguments[k], c) for k, c in found.items() if k not in written]


def _zero_of(g: UOp) -> UOp:
    """Return a zero of the dtype of `g`, with as many axes."""
    return b.reshape(b.const(0, g.dtype), (1,) * len(g.shape))


GRADIENTS: dict[Op, Gradient] = {
    Op.LOAD: make_operand_rule("a copy back, where the gate is true; the alternative gets the rest", _differentiate_load),
    Op.AFTER: Gradient("g where written, for the stored value; the rest for buf", _differentiate_after),
}
