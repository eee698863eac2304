"""The ops that are not elementwise: what each does to a machine and a scope, and which sources it needs first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from uops.interp.ops.elementwise import KERNELS, kernel_of
from uops.interp.ops.movement import MOVES, SHAPED, operand_sources
from uops.interp.ops.reduce import reduce
from uops.interp.ops.rounding import CASTS
from uops.interp.tensor import memory
from uops.interp.tensor.machine import PLANS, Action, Find, Machine, refuse_foreign
from uops.interp.tensor.memory import Access, Ref, describe
from uops.interp.tensor.scope import VOID, WAIT, Cell, Scope
from uops.interp.tensor.storage import NUMPY, Array, check_variable, settle, validated, variable
from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UNSET, UOp
from uops.spec.ir.ops import MARKERS, Op

_ndarray = np.ndarray
_INDEX = dt.index
# What is slow to reach through its class or module.
_TUPLE, _FUNCTION = Op.TUPLE, Op.FUNCTION
_array = np.array


def _values(m: Machine, scope: Scope, sources: Sequence[UOp]) -> list[Array]:
    cells = scope.cells
    return [c if (c := cells[s]).__class__ is _ndarray else m.read(c) for s in sources]


def _const(m: Machine, scope: Scope, u: UOp, sources: Sequence[UOp]) -> Cell:
    a = u.arg
    d = a.dtype
    return settle(a.value) if d is _INDEX else _array(a.value, NUMPY[d])


def _binary(m: Machine, scope: Scope, u: UOp, sources: Sequence[UOp]) -> Cell:
    return np.frombuffer(u.arg.data, np.uint8)


def _cast(u: UOp, x: Array) -> Any:
    d = u.src[0]._dtype
    return CASTS[u.src[0].dtype if d is UNSET else d, u.arg.dtype](x)


def _shift(m: Machine, scope: Scope, u: UOp, sources: Sequence[UOp]) -> Cell:
    """The only ops whose meaning also depends on the dtype of the second source (R81)."""
    return kernel_of(u.op, sources)(*_values(m, scope, sources))


def _ternary(m: Machine, scope: Scope, u: UOp, sources: Sequence[UOp]) -> Cell:
    """Where and Mulacc."""
    cells, read = scope.cells, m.read
    a, b, c = sources
    d = a._dtype
    return KERNELS[u.op][a.dtype if d is UNSET else d](read(cells[a]), read(cells[b]), read(cells[c]))


def _of_array(op: Op) -> Action:
    make = OF_ARRAY[op]
    return lambda m, scope, u, sources: make(u, m.read(scope.cells[sources[0]]))


def _reduce(m: Machine, scope: Scope, u: UOp, sources: Sequence[UOp]) -> Cell:
    if len(u.src) > 1:
        return _loops(m, scope, u, sources)
    return reduce(u, m.read(scope.cells[sources[0]]))


def _same(m: Machine, scope: Scope, u: UOp, sources: Sequence[UOp]) -> Cell:
    return m.read(scope.cells[sources[0]])


def _mover(op: Op) -> Action:
    """A view of a reference stays a reference, where it is injective (R51)."""
    move, view = MOVES[op], memory.VIEWS.get(op)

    def action(m: Machine, scope: Scope, u: UOp, sources: Sequence[UOp]) -> Cell:
        if not sources:
            return np.zeros(0, np.int64)  # the shape () as a value (R40)
        cell = scope.cells[sources[0]]
        more: Sequence[Array] = _values(m, scope, sources[1:]) if len(sources) > 1 else ()
        if cell.__class__ is not _ndarray:
            ref = view(u, cell, more, scope) if view is not None and cell is not VOID else None
            if ref is not None:
                return ref
            cell = m.read(cell)
        return move(u, cell, more)

    return action


def _buffer(m: Machine, scope: Scope, u: UOp, sources: Sequence[UOp]) -> Cell:
    return Ref(m.storage(u), scope, u) if scope.outer is None else _in_outer(m, scope, u)


def _in_outer(m: Machine, scope: Scope, u: UOp) -> Cell:
    """A node that is the same in every scope: its cell is the root's."""
    if u not in m.root.cells:
        m.frames.append((m.root, [u]))
        return WAIT
    return m.root.cells[u]


def _param(m: Machine, scope: Scope, u: UOp, sources: Sequence[UOp]) -> Cell:
    a = u.arg
    name, bounds = a.name, a.bounds
    if scope.outer is not None and a.slot is not None:
        return _bound_param(m, scope, u)
    if name is not None and bounds is not None:
        if name not in m.inputs:
            raise SpecError(f"variable {name!r} is missing from the inputs")
        return variable(name, m.inputs[name], bounds, a.dtype)
    if scope.outer is not None:
        return _in_outer(m, scope, u)
    if a.dtype is _INDEX:
        key = f"p{a.slot}"
        if key not in m.inputs:
            raise SpecError(f"input {key!r} is missing: index of shape {u.shape}")
        return validated(key, m.inputs[key], a.dtype, m.shape(scope, u))
    return Ref(m.storage(u), scope, u)


def _bound_param(m: Machine, scope: Scope, u: UOp) -> Cell:
    outer, slot = scope.outer, u.arg.slot
    assert outer is not None
    if slot >= len(scope.args):
        raise SpecError(f"Param {slot} has no argument: {len(scope.args)} were given (R64)")
    argument = scope.args[slot]
    if argument not in outer.cells:
        m.frames.append((outer, [argument]))
        return WAIT
    cell = outer.cells[argument]
    _check_binding(m, scope, u, argument)
    if u.arg.bounds is not None:
        check_variable(u.arg.name or f"p{slot}", int(m.read(cell)), u.arg.bounds)
    return memory.alias(cell, scope, u) if scope.call is not None and cell.__class__ is Ref else cell


def _check_binding(m: Machine, scope: Scope, u: UOp, argument: UOp) -> None:
    """R64: an argument has its Param's dtype and shape."""
    assert scope.outer is not None
    if argument.dtype is not u.arg.dtype:
        raise SpecError(f"argument {u.arg.slot} has dtype {argument.dtype}, its Param {u.arg.dtype} (R64)")
    if argument.shape != u.shape:
        given, wanted = m.shape(scope.outer, argument), m.shape(scope, u)
        if given != wanted:
            raise SpecError(f"argument {u.arg.slot} has shape {given}, its Param {wanted} (R64)")


def _enter(m: Machine, scope: Scope, u: UOp, base: int, call: UOp | None) -> Scope:
    inner = scope.inner.get(u)
    if inner is None:
        inner = scope.inner[u] = Scope(scope, u.src[1:], call, base)
        m.scopes.append(inner)
    return inner


def _gettuple(m: Machine, scope: Scope, u: UOp, sources: Sequence[UOp]) -> Cell:
    packed = u.src[0]
    if packed.op is _TUPLE:
        return scope.cells[sources[0]]
    if packed.op is not _FUNCTION:
        raise SpecError(f"GetTuple of {packed.op.name}: only a Tuple or a Function has elements")
    inner, element = _enter(m, scope, packed, scope.base, None), packed.src[0].src[u.arg.index]
    if element not in inner.cells:
        m.frames.append((inner, [element]))
        return WAIT
    return inner.cells[element]


def _function(m: Machine, scope: Scope, u: UOp, sources: Sequence[UOp]) -> Cell:
    inner = _enter(m, scope, u, scope.base, None)
    missing = [e for e in u.src[0].src if e not in inner.cells]
    if missing:
        m.frames.append((inner, missing))
        return WAIT
    return VOID


def _call(m: Machine, scope: Scope, u: UOp, sources: Sequence[UOp]) -> Cell:
    """Run the body once; every access inside belongs to the Call."""
    body = u.src[0]
    if body.op is Op.CUSTOM_FUNCTION or bridge().is_kernel(body):
        return bridge().run_call(m, scope, u)
    inner = scope.inner.get(u)
    if inner is None:
        base = scope.base
        for a in sources:
            base |= m.mask_of(scope, a)
        inner = _enter(m, scope, u, base, u)
        inner.own[u] = m.clock
        m.frames.append((inner, [body]))
        return WAIT
    first = inner.own.pop(u)
    scope.own[u] = (1 << m.clock) - (1 << first)
    return VOID


def _after(m: Machine, scope: Scope, u: UOp, sources: Sequence[UOp]) -> Cell:
    """Passes its first source on, once the others have happened (R59)."""
    cell = scope.cells[sources[0]]
    return memory.alias(cell, scope, u) if cell.__class__ is Ref else cell


def _load(m: Machine, scope: Scope, u: UOp, sources: Sequence[UOp]) -> Cell:
    """The buffer's elements; where the gate is false alt's, and the address is not touched (R52)."""
    if len(sources) == 1:
        return _same(m, scope, u, sources)
    cell = scope.cells[sources[0]]
    alt, gate = _values(m, scope, sources[1:])
    if cell.__class__ is not Ref:
        return np.where(gate, cell, alt)
    fetched = memory.fetch(cell, gate)
    access = Access(m.tick(), u, cell, gate)
    scope.own[u] = 1 << access.bit
    memory.record_read(cell.storage, access.bit, access, m.mask_of(scope, u) & ~(1 << access.bit))
    return np.where(gate, fetched, alt)


def _store(m: Machine, scope: Scope, u: UOp, sources: Sequence[UOp]) -> Cell:
    """R54: `val` is read fully before the first write, since values never change."""
    target = scope.cells[sources[0]]
    if target.__class__ is not Ref:
        raise SpecError(f"Store to {describe(sources[0])}, which is no reference: a Buffer, a Param or an injective view (R51)")
    value, *gate = _values(m, scope, sources[1:])
    wanted = m.shape(scope, sources[0])
    if value.shape != wanted or value.dtype != NUMPY[sources[0].dtype]:
        raise SpecError(f"Store of {value.dtype} {value.shape} into {sources[0].dtype} {wanted}", claim="STORE.C1")
    _check_written(scope, target)
    live = gate[0] if gate else None
    access = Access(m.tick(), u, target, live)
    own = scope.own[u] = 1 << access.bit
    storage = target.storage
    memory.record_write(storage, access, m.mask_of(scope, u) & ~own if storage.read_bits | storage.write_bits else 0)
    memory.write(target, value, live)
    return VOID


def _check_written(scope: Scope, target: Ref) -> None:
    """R63: a Call that declares what it writes writes nothing else."""
    declared = scope.call.arg.written if scope.call is not None and scope.call.arg is not None else None
    if declared is None:
        return
    ref: Ref | None = target
    while ref is not None and not (ref.scope is scope and ref.node.op is Op.PARAM):
        ref = ref.parent
    if ref is not None and ref.node.arg.slot not in declared:
        raise SpecError(f"the Call writes argument {ref.node.arg.slot}, but declares {declared} (R63)")


def _void(m: Machine, scope: Scope, u: UOp, sources: Sequence[UOp]) -> Cell:
    return VOID


def _loops(m: Machine, scope: Scope, u: UOp, sources: Sequence[UOp]) -> Cell:
    """The loops that an End or Reduce closes."""
    return bridge().run_region(m, scope, u, sources)


@cache
def bridge() -> Any:
    """What runs kernels, which a graph without one never loads."""
    from uops.interp.kernel.call import bridge

    return bridge


# fmt: off
#: (node, value of its only source) -> value; of Reduce where it has no ranges, which are sources too.
OF_ARRAY: dict[Op, Any] = {**MOVES, Op.CAST: _cast, Op.REDUCE: reduce}
#: Every op of the TENSOR dialect that is not in `KERNELS`, and those that are but need more than arrays.
ACTIONS: dict[Op, Action] = {
    Op.PARAM: _param, Op.BUFFER: _buffer, Op.CONST: _const, Op.BINARY: _binary,
    **{op: _mover(op) for op in MOVES},
    Op.REDUCE: _reduce, Op.CAST: _of_array(Op.CAST), Op.SHL: _shift, Op.SHR: _shift,
    Op.FUNCTION: _function, Op.CALL: _call, Op.TUPLE: _void, Op.GETTUPLE: _gettuple,
    Op.LOAD: _load, Op.STORE: _store, Op.END: _loops,
    Op.AFTER: _after, Op.GROUP: _void, Op.SINK: _void,
    **dict.fromkeys(MARKERS, _same),
}
# fmt: on
#: What has a meaning here: op -> its kernels per dtype, or its action.
MEANING: dict[Op, Any] = {**KERNELS, **ACTIONS}


def no_sources(u: UOp) -> tuple[UOp, ...]:
    return ()


def _arguments(u: UOp) -> tuple[UOp, ...]:
    return u.src[1:]


def _loop_leaves(u: UOp) -> tuple[UOp, ...]:
    """What stands outside of the loops that `u` closes."""
    leaves: tuple[UOp, ...] = bridge().region_leaves(u)
    return leaves


def _reduced(u: UOp) -> tuple[UOp, ...]:
    return u.src if len(u.src) == 1 else _loop_leaves(u)


def _element(u: UOp) -> tuple[UOp, ...]:
    packed = u.src[0]
    return (packed.src[u.arg.index],) if packed.op is _TUPLE else ()


#: The sources to evaluate before a node, where they are not all of `src`: shape operands are read, bodies and the elements of a
#: Function are evaluated in their own scopes.
SOURCES: dict[Op, Find] = {
    **dict.fromkeys(SHAPED, operand_sources),
    Op.PARAM: no_sources,
    Op.FUNCTION: no_sources,
    Op.CALL: _arguments,
    Op.GETTUPLE: _element,
    Op.END: _loop_leaves,
    Op.REDUCE: _reduced,
}


def _fill_plans() -> None:
    for op in Op:
        make, kernels = OF_ARRAY.get(op), None if op in ACTIONS else KERNELS.get(op)
        count = -1 if make is None or op in (Op.PAD, Op.SHRINK) else 2 if op in SHAPED else 1
        PLANS[op.value] = (count, make, kernels, SOURCES.get(op), ACTIONS.get(op, refuse_foreign if kernels is None else _ternary))


_fill_plans()
