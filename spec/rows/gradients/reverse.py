"""Reverse mode: the cotangents of nodes, from those of values that are computed from them.

`differentiate` visits the nodes of one scope, users before operands, and adds up what the rules give. A Function is differentiated
as one node. Its rule makes a Function of its arguments and cotangents, whose body is differentiated in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from uops.spec.errors import SpecValueError
from uops.spec.ir import build as b
from uops.spec.ir.args import CallArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import COMPARE, Op
from uops.spec.ir.scope import scope_nodes, scope_sources
from uops.spec.rows.gradients import elementwise, memory, movement, reduction
from uops.spec.rows.gradients.base import (
    Cotangent,
    Gradient,
    find_registered_rule,
    make_gradient_summing_broadcasts,
    sum_to_shape,
)


def differentiate(cotangents: Mapping[UOp, UOp], targets: Set[UOp]) -> dict[UOp, UOp]:
    """Return the cotangent of each of `targets` on which a key of `cotangents` depends.

    A target's own operands may be targets, too: each gets its total derivative. Raises SpecValueError where a value
    depends on a target through an op that needs a rule and has none. So do rules that refuse a symbolic extent.
    """
    order = _list_scope_nodes(cotangents)
    needed = _find_nodes_that_need_cotangents(order, targets)
    sums: dict[UOp, Cotangent] = {u: g for u, g in cotangents.items() if u in needed}
    found: dict[UOp, UOp] = {}
    for u in reversed(order):
        g = sums.pop(u, None)
        if g is None:
            continue
        if u in targets and isinstance(g, UOp):
            found[u] = g
        for operand, summand in _apply_rule(u, g, needed):
            sums[operand] = _add_cotangents(sums.get(operand), summand)
    return found


def add_cotangents_by_node(pairs: Iterable[tuple[UOp, UOp]]) -> dict[UOp, UOp]:
    """Return node -> the sum of its cotangents; a node may come several times, as in a Tuple that has it twice."""
    sums: dict[UOp, UOp] = {}
    for u, g in pairs:
        sums[u] = b.add(sums[u], g) if u in sums else g
    return sums


def _list_scope_nodes(roots: Mapping[UOp, UOp]) -> list[UOp]:
    """Return the nodes of the roots' scope, operands first."""
    return scope_nodes(b.tuple_(*roots))[:-1]


def _find_nodes_that_need_cotangents(order: Sequence[UOp], targets: Set[UOp]) -> set[UOp]:
    """Return the targets, and the nodes through which a derivative with respect to one flows."""
    needed: set[UOp] = set()
    for u in order:
        if u in targets or (_is_structure_or_differentiable_float(u) and not needed.isdisjoint(scope_sources(u))):
            needed.add(u)
    return needed


def _is_structure_or_differentiable_float(u: UOp) -> bool:
    """Return True for effects and for values of floats, unless their op stops derivatives."""
    gradient = GRADIENTS[u.op]
    if u.op in _STRUCTURES:
        return True
    return u.dtype.is_float and (gradient.rule is not None or not gradient.stops)


def _apply_rule(u: UOp, g: Cotangent, needed: Set[UOp]) -> Iterator[tuple[UOp, Cotangent]]:
    """Yield what the rule of `u` gives. Raises SpecValueError if there is none and an operand needs a cotangent."""
    if needed.isdisjoint(scope_sources(u)):
        return
    gradient = GRADIENTS[u.op]
    if gradient.rule is not None:
        yield from gradient.rule(u, g, needed)
    elif not gradient.stops:
        raise SpecValueError(f"{u.op.name} has no gradient rule: {gradient.formula}")


def _add_cotangents(a: Cotangent | None, c: Cotangent) -> Cotangent:
    """Add two cotangents of one node."""
    if a is None:
        return c
    if isinstance(a, UOp) and isinstance(c, UOp):
        return b.add(a, c)
    assert isinstance(a, tuple) and isinstance(c, tuple)
    return tuple(y if x is None else x if y is None else b.add(x, y) for x, y in zip(a, c, strict=True))


# Functions and Tuples


def _differentiate_function_by_rule_or_body(u: UOp, g: tuple[UOp | None, ...], needed: Set[UOp]) -> Iterator[tuple[UOp, Cotangent]]:
    """Yield the cotangents of the arguments, as values of one Function of the arguments and the given cotangents.

    Its parameters are those of the body that the derivative uses, then the cotangents. The Function's `precompile_backward` is the
    other's `precompile` (R177). A rule that is registered for its `grad_tag` is used instead. Raises SpecValueError for a body that
    stores, as it returns no value.
    """
    registered = find_registered_rule(u)
    if registered is not None:
        found_by_number = registered(u, {k: c for k, c in enumerate(g) if c is not None})
        yield from ((a, sum_to_shape(c, a.shape)) for k, c in found_by_number.items() if (a := u.arguments[k]) in needed)
        return
    if u.body.op is not Op.TUPLE:
        raise SpecValueError("a Function that stores has no gradient: its body returns no value")
    given = [(v, c) for v, c in zip(u.body.values, g, strict=True) if c is not None]
    seeds = add_cotangents_by_node(
        (v, b.param(k, v.shape, v.dtype, c.device, c.axis)) for k, (v, c) in enumerate(given, len(u.arguments))
    )
    arguments_by_param = {
        p: u.arguments[p.arg.slot] for p in _list_scope_nodes(seeds) if p.op is Op.PARAM and p.arg.slot is not None
    }
    found = differentiate(seeds, {p for p, a in arguments_by_param.items() if a in needed and p.dtype.is_float})
    if not found:
        return
    body, arguments = _drop_unused_params(b.tuple_(*found.values()), [*u.arguments, *(c for _, c in given)])
    arg = CallArg(precompile=True) if u.arg is not None and u.arg.precompile_backward else None
    backward = b.function(body, *arguments).replace(arg=arg)
    for position, p in enumerate(found):
        yield arguments_by_param[p], b.get(backward, position)


def _drop_unused_params(body: UOp, arguments: Sequence[UOp]) -> tuple[UOp, list[UOp]]:
    """Number the Params that a body uses from 0 on, and return the body with their arguments."""
    order = scope_nodes(body)
    slots = sorted({u.arg.slot for u in order if u.op is Op.PARAM and u.arg.slot is not None})
    numbers = {slot: k for k, slot in enumerate(slots)}
    done: dict[UOp, UOp] = {}
    for u in order:
        sources = scope_sources(u)
        src = (*u.src[: len(u.src) - len(sources)], *[done[s] for s in sources])
        is_slot = u.op is Op.PARAM and u.arg.slot is not None
        arg = replace(u.arg, slot=numbers[u.arg.slot]) if is_slot else u.arg
        done[u] = u if src == u.src and arg is u.arg else u.replace(src=src, arg=arg)
    return done[body], [arguments[slot] for slot in slots]


def _differentiate_tuple(u: UOp, g: tuple[UOp | None, ...], needed: Set[UOp]) -> Iterator[tuple[UOp, Cotangent]]:
    yield from ((v, c) for v, c in zip(u.values, g, strict=True) if c is not None and v in needed)


def _differentiate_element(u: UOp, g: UOp, needed: Set[UOp]) -> Iterator[tuple[UOp, Cotangent]]:
    packed = u.packed
    elements = packed.body.values if packed.op is Op.FUNCTION else packed.values
    yield packed, tuple(g if k == u.arg.index else None for k in range(len(elements)))


# The column

#: The ops of the second document alone, which come last.
_BESTIARY_OPS = tuple(Op)[tuple(Op).index(Op.B_RANGE) :]
_STOPS = Gradient("none: no derivative (R78)")
_EFFECT = Gradient("none: an effect or structure, no value")
_MEMORY = Gradient("none: the end of a graph")
_KERNEL = Gradient("none: it stands in kernels, and TENSOR graphs are differentiated", stops=False)
_BY_CORE_FORM = Gradient("that of its core form, which legalize makes", stops=False)

# fmt: off
#: Op -> its gradient, for every op.
GRADIENTS: dict[Op, Gradient] = {
    **dict.fromkeys(_BESTIARY_OPS, _BY_CORE_FORM),
    **dict.fromkeys((Op.B_RANGE, Op.PROGRAM_BINARY, Op.VCONST, Op.DEFINE_VAR, Op.BIND), _STOPS),
    **dict.fromkeys((Op.B_PROGRAM, Op.B_IF, Op.B_STORE, Op.CUSTOMI, Op.UNIQUE, Op.LUNIQUE, Op.DEVICE), _EFFECT),
    **dict.fromkeys((Op.BARRIER, Op.INS, Op.IF, Op.ENDIF, Op.CUSTOM, Op.ATOMICADD, Op.CUSTOM_FUNCTION, Op.PROGRAM, Op.SOURCE,
                     Op.END, Op.GROUP, Op.SINK, Op.LINEAR, Op.STORE), _EFFECT),
    **dict.fromkeys((Op.TRUNC, Op.MOD, Op.IDIV, Op.XOR, Op.OR, Op.AND, Op.SHR, Op.SHL, Op.NOT, Op.THREEFRY, Op.BITCAST, Op.RANGE,
                     Op.SPECIAL, *COMPARE), _STOPS),
    **dict.fromkeys((Op.PARAM, Op.BUFFER, Op.CONST, Op.BINARY), _MEMORY),
    Op.WMMA:     _KERNEL,
    Op.CALL:     Gradient("by the rule that is registered for its grad_tag (R187)"),
    Op.DETACH:   Gradient("none: it stops the gradient (R174)"),
    Op.CONTIGUOUS:          make_gradient_summing_broadcasts("g", lambda u, g: (g,)),
    Op.CONTIGUOUS_BACKWARD: make_gradient_summing_broadcasts("Contiguous of g (R175)", lambda u, g: (b.contiguous(g),)),
    Op.FUNCTION: Gradient("a Function of arguments and cotangents (R177)", _differentiate_function_by_rule_or_body),
    Op.TUPLE:    Gradient("the cotangent of each element", _differentiate_tuple),
    Op.GETTUPLE: Gradient("g for the element", _differentiate_element),
    **elementwise.GRADIENTS,
    **movement.GRADIENTS,
    **reduction.GRADIENTS,
    **memory.GRADIENTS,
}
# fmt: on
#: Ops without a dtype of their own through which derivatives flow.
_STRUCTURES = frozenset({Op.FUNCTION, Op.TUPLE, Op.STORE, Op.GROUP, Op.SINK, Op.CALL})
