"""Actions of the ops that are not elementwise on a machine and a scope, and the sources that each needs first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from uops.interp.ops.elementwise import KERNELS, kernel_of
from uops.interp.ops.movement import MOVES, SHAPED, data_and_symbolic_sources
from uops.interp.ops.reduce import reduce
from uops.interp.ops.rounding import CASTS
from uops.interp.tensor import memory
from uops.interp.tensor.machine import PLANS, Action, FindSources, TensorMachine, reject_foreign_op
from uops.interp.tensor.memory import StorageAccess, StorageRef, describe
from uops.interp.tensor.scope import VOID, WAIT, Cell, TensorScope
from uops.interp.tensor.storage import (
    NUMPY,
    Array,
    check_variable_bounds,
    const_to_array,
    to_index_array,
    validate_input,
    validate_variable,
)
from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UNSET, UOp
from uops.spec.ir.ops import MARKERS, Op
from uops.spec.ir.scope import is_variable, scope_nodes
from uops.spec.verify.infer import is_kernel_or_custom_function_body

_ndarray = np.ndarray
_INDEX = dt.index
# Local names: an attribute of a class or module is slower to reach.
_TUPLE, _FUNCTION = Op.TUPLE, Op.FUNCTION
_array = np.array


def _read_values(m: TensorMachine, scope: TensorScope, sources: Sequence[UOp]) -> list[Array]:
    """Return the values of `sources`, which have cells."""
    cells = scope.cells
    return [c if (c := cells[s]).__class__ is _ndarray else m.load_if_reference(c) for s in sources]


def _eval_const(m: TensorMachine, scope: TensorScope, u: UOp, sources: Sequence[UOp]) -> Cell:
    a = u.arg
    d = a.dtype
    return to_index_array(a.value) if d is _INDEX else _array(a.value, NUMPY[d])


def _eval_binary_blob(m: TensorMachine, scope: TensorScope, u: UOp, sources: Sequence[UOp]) -> Cell:
    """Return the bytes of a Binary."""
    return np.frombuffer(u.arg.data, np.uint8)


def _eval_cast(u: UOp, x: Array) -> Any:
    operand = u.src[0]  # operand
    d = operand._dtype
    return CASTS[operand.dtype if d is UNSET else d, u.arg.dtype](x)


def _eval_shift(m: TensorMachine, scope: TensorScope, u: UOp, sources: Sequence[UOp]) -> Cell:
    """Evaluate a shift: the only ops whose kernel also depends on the dtype of the second source (R81)."""
    return kernel_of(u.op, sources)(*_read_values(m, scope, sources))


def _eval_where_or_mulacc(m: TensorMachine, scope: TensorScope, u: UOp, sources: Sequence[UOp]) -> Cell:
    """Evaluate Where and Mulacc."""
    cells, load = scope.cells, m.load_if_reference
    first, second, third = sources
    d = first._dtype
    return KERNELS[u.op][first.dtype if d is UNSET else d](load(cells[first]), load(cells[second]), load(cells[third]))


def _make_array_action(op: Op) -> Action:
    """Return the action of an op whose value depends on its only source's value."""
    make = OF_ARRAY[op]
    return lambda m, scope, u, sources: make(u, m.load_if_reference(scope.cells[sources[0]]))


def _eval_reduce(m: TensorMachine, scope: TensorScope, u: UOp, sources: Sequence[UOp]) -> Cell:
    if len(u.src) > 1:
        return _eval_loop_region(m, scope, u, sources)
    return reduce(u, m.load_if_reference(scope.cells[sources[0]]))


def _eval_first_source(m: TensorMachine, scope: TensorScope, u: UOp, sources: Sequence[UOp]) -> Cell:
    return m.load_if_reference(scope.cells[sources[0]])


def _make_movement_action(op: Op) -> Action:
    """Return the action of a movement op; an injective view of a reference stays a reference (R51)."""
    move, view = MOVES[op], memory.VIEWS.get(op)

    def eval_movement(m: TensorMachine, scope: TensorScope, u: UOp, sources: Sequence[UOp]) -> Cell:
        if not sources:
            return np.zeros(0, np.int64)  # the shape () as a value (R40)
        cell = scope.cells[sources[0]]
        operands: Sequence[Array] = _read_values(m, scope, sources[1:]) if len(sources) > 1 else ()
        if cell.__class__ is not _ndarray:
            ref = view(u, cell, operands, scope) if view is not None and cell is not VOID else None
            if ref is not None:
                return ref
            cell = m.load_if_reference(cell)
        return move(u, cell, operands)

    return eval_movement


def _eval_buffer(m: TensorMachine, scope: TensorScope, u: UOp, sources: Sequence[UOp]) -> Cell:
    return (
        StorageRef(m.get_or_bind_input_storage(u), scope, u)
        if scope.outer is None
        else _take_or_await_cell_of_root_scope(m, scope, u)
    )


def _take_or_await_cell_of_root_scope(m: TensorMachine, scope: TensorScope, u: UOp) -> Cell:
    """Return the cell that a node has in the root's scope, as it is the same in every scope."""
    if u not in m.root.cells:
        m.frames.append((m.root, [u]))
        return WAIT
    return m.root.cells[u]


def _eval_param(m: TensorMachine, scope: TensorScope, u: UOp, sources: Sequence[UOp]) -> Cell:
    """Return the cell of a Param: its argument's, a variable's value, or a reference to an input."""
    _require_global_memory(u)
    a = u.arg
    name, bounds = a.name, a.bounds
    if scope.outer is not None and a.slot is not None:
        return _take_or_await_checked_argument(m, scope, u)
    if name is not None and bounds is not None:
        if name not in m.inputs:
            raise SpecError(f"variable {name!r} is missing from the inputs")
        return validate_variable(name, m.inputs[name], bounds, a.dtype)
    if scope.outer is not None:
        return _take_or_await_cell_of_root_scope(m, scope, u)
    if a.dtype is _INDEX:
        key = f"p{a.slot}"
        if key not in m.inputs:
            raise SpecError(f"input {key!r} is missing: index of shape {u.shape}")
        return validate_input(key, m.inputs[key], a.dtype, m.shape(scope, u))
    return StorageRef(m.get_or_bind_input_storage(u), scope, u)


def _take_or_await_checked_argument(m: TensorMachine, scope: TensorScope, u: UOp) -> Cell:
    """Return the cell of a Param in a body: its argument's, under another name if a Call bound it."""
    outer, slot = scope.outer, u.arg.slot
    assert outer is not None
    if slot >= len(scope.args):
        raise SpecError(f"Param {slot} has no argument: {len(scope.args)} were given (R64)")
    argument = scope.args[slot]
    if argument not in outer.cells:
        m.frames.append((outer, [argument]))
        return WAIT
    cell = outer.cells[argument]
    if scope.call is not None:
        return _bind_call_argument(m, outer, scope, u, argument)
    _check_argument_dtype_and_evaluated_shape(m, scope, u, argument)
    if u.arg.bounds is not None:
        check_variable_bounds(u.arg.name or f"p{slot}", int(m.load_if_reference(cell)), u.arg.bounds)
    return cell


def _bind_call_argument(m: TensorMachine, outer: TensorScope, scope: TensorScope, u: UOp, argument: UOp) -> Cell:
    """Return the cell of Param `u` of a Call's body: a variable's value in its own dtype, or memory in the Param's shape.

    Raises SpecError unless a variable gets one integer, and another Param the dtype and number of elements that it has (R86).
    """
    a, cell = u.arg, outer.cells[argument]
    if is_variable(u):
        if not argument.dtype.is_integer or argument.shape != ():
            raise SpecError(f"argument {a.slot} for {a.name!r} is {argument.dtype} of shape {argument.shape} (R86)")
        number = int(m.load_if_reference(cell))
        if a.bounds is not None:
            check_variable_bounds(a.name, number, a.bounds)
        return const_to_array(number, a.dtype)
    given, expected = m.shape(outer, argument), m.shape(scope, u)
    if argument.dtype is not a.dtype or math.prod(given) != math.prod(expected):
        raise SpecError(f"argument {a.slot} is {argument.dtype} of shape {given}, its Param {a.dtype} of {expected} (R86)")
    if cell.__class__ is StorageRef:
        return memory.alias(cell, scope, u) if given == expected else memory.reshape_view(cell, scope, u, expected)
    return cell if given == expected else cell.reshape(expected)


def _bind_variables_before_body(m: TensorMachine, outer: TensorScope, scope: TensorScope, call: UOp) -> None:
    """Bind the variables of a Call's body; what they are read from happens before all that the body does."""
    for p in _list_variables_in_scope_of(call.body):
        if p.arg.slot is not None and p.arg.slot < len(call.arguments):
            argument = call.arguments[p.arg.slot]
            scope.cells[p] = _bind_call_argument(m, outer, scope, p, argument)
            cell = outer.cells[argument]
            if isinstance(cell, StorageRef) and cell.bit is not None:
                scope.base_accesses |= 1 << cell.bit


@lru_cache(256)
def _list_variables_in_scope_of(body: UOp) -> tuple[UOp, ...]:
    """Return the named variables of a body."""
    return tuple(u for u in scope_nodes(body) if is_variable(u))


def _check_argument_dtype_and_evaluated_shape(m: TensorMachine, scope: TensorScope, u: UOp, argument: UOp) -> None:
    """Raise SpecError unless a Function's argument has its Param's dtype and shape (R64)."""
    assert scope.outer is not None
    if argument.dtype is not u.arg.dtype:
        raise SpecError(f"argument {u.arg.slot} has dtype {argument.dtype}, its Param {u.arg.dtype} (R64)")
    if argument.shape != u.shape:
        argument_shape, expected = m.shape(scope.outer, argument), m.shape(scope, u)
        if argument_shape != expected:
            raise SpecError(f"argument {u.arg.slot} has shape {argument_shape}, its Param {expected} (R64)")


def _find_or_make_body_scope(m: TensorMachine, scope: TensorScope, u: UOp, accesses_before: int, call: UOp | None) -> TensorScope:
    """Return the scope of the body of Function or Call `u`, made on first use."""
    inner = scope.inner.get(u)
    if inner is None:
        inner = scope.inner[u] = TensorScope(scope, u.arguments, call, accesses_before)
        m.scopes.append(inner)
    return inner


def _take_or_await_tuple_element(m: TensorMachine, scope: TensorScope, u: UOp, sources: Sequence[UOp]) -> Cell:
    """Return the element's cell; of a Function, only that element is evaluated (R64)."""
    packed = u.packed
    if packed.op is _TUPLE:
        return scope.cells[sources[0]]
    if packed.op is not _FUNCTION:
        raise SpecError(f"GetTuple of {packed.op.name}: only a Tuple or a Function has elements")
    inner, element = _find_or_make_body_scope(m, scope, packed, scope.base_accesses, None), packed.body.src[u.arg.index]
    if element not in inner.cells:
        m.frames.append((inner, [element]))
        return WAIT
    return inner.cells[element]


def _eval_every_function_element(m: TensorMachine, scope: TensorScope, u: UOp, sources: Sequence[UOp]) -> Cell:
    """Evaluate every element of a Function's body."""
    inner = _find_or_make_body_scope(m, scope, u, scope.base_accesses, None)
    missing = [e for e in u.body.src if e not in inner.cells]
    if missing:
        m.frames.append((inner, missing))
        return WAIT
    return VOID


def _run_kernel_or_enter_or_finish_call(m: TensorMachine, scope: TensorScope, u: UOp, sources: Sequence[UOp]) -> Cell:
    """Run the body once; every access inside belongs to the Call."""
    body = u.body
    if is_kernel_or_custom_function_body(body):
        import_kernel_bridge().run_kernel_or_custom_call(m, scope, u)
        return VOID
    inner = scope.inner.get(u)
    if inner is None:
        base_accesses = scope.base_accesses
        for a in sources:
            base_accesses |= m.accesses_before_end_of(scope, a)
        inner = _find_or_make_body_scope(m, scope, u, base_accesses, u)
        _bind_variables_before_body(m, scope, inner, u)
        inner.own_accesses[u] = m.clock
        m.frames.append((inner, [body]))
        return WAIT
    first_bit = inner.own_accesses.pop(u)
    scope.own_accesses[u] = (1 << m.clock) - (1 << first_bit)
    return VOID


def _eval_after(m: TensorMachine, scope: TensorScope, u: UOp, sources: Sequence[UOp]) -> Cell:
    """Return the first source's cell, once its dependencies have happened (R59)."""
    buffer, *_ = sources
    cell = scope.cells[buffer]
    return memory.alias(cell, scope, u) if cell.__class__ is StorageRef else cell


def _eval_load(m: TensorMachine, scope: TensorScope, u: UOp, sources: Sequence[UOp]) -> Cell:
    """Return the buffer's elements; where the gate is false the alternative's, and the address is not touched (R52)."""
    _require_global_memory(u)
    if len(sources) == 1:
        return _eval_first_source(m, scope, u, sources)
    buffer, *rest = sources
    cell = scope.cells[buffer]
    alternative, gate = _read_values(m, scope, rest)
    if cell.__class__ is not StorageRef:
        return np.where(gate, cell, alternative)
    fetched = memory.load_elements_zeroing_inactive(cell, gate)
    access = StorageAccess(m.next_access_bit(), u, cell, gate)
    scope.own_accesses[u] = 1 << access.bit
    memory.check_race_and_record_read(cell.storage, access.bit, access, m.accesses_before_end_of(scope, u) & ~(1 << access.bit))
    return np.where(gate, fetched, alternative)


def _require_global_memory(u: UOp) -> None:
    """Raise SpecError if a Load or Param of a tensor graph names another address space than GLOBAL (R179)."""
    space = u.arg.addrspace
    if space is not None and space is not AddrSpace.GLOBAL:
        raise SpecError(f"{describe(u)} in a tensor graph is GLOBAL, not {space.name} (R179)")


def _eval_store(m: TensorMachine, scope: TensorScope, u: UOp, sources: Sequence[UOp]) -> Cell:
    """Write the value, which was read fully before the first write, as values never change (R54)."""
    buffer, *rest = sources
    target = scope.cells[buffer]
    if target.__class__ is not StorageRef:
        raise SpecError(f"Store to {describe(buffer)}, which is no reference: a Buffer, a Param or an injective view (R51)")
    value, *gate = _read_values(m, scope, rest)
    expected = m.shape(scope, buffer)
    if value.shape != expected or value.dtype != NUMPY[buffer.dtype]:
        raise SpecError(f"Store of {value.dtype} {value.shape} into {buffer.dtype} {expected}", claim="STORE.C1")
    memory.reject_undeclared_write(scope, target)
    live = gate[0] if gate else None
    access = StorageAccess(m.next_access_bit(), u, target, live)
    own_bit = scope.own_accesses[u] = 1 << access.bit
    storage = target.storage
    memory.check_race_and_record_write(
        storage, access, m.accesses_before_end_of(scope, u) & ~own_bit if storage.read_bits | storage.write_bits else 0
    )
    memory.store_elements_by_replacing_data(target, value, live)
    return VOID


def _eval_void(m: TensorMachine, scope: TensorScope, u: UOp, sources: Sequence[UOp]) -> Cell:
    return VOID


def _eval_loop_region(m: TensorMachine, scope: TensorScope, u: UOp, sources: Sequence[UOp]) -> Cell:
    """Run the loops that an End or Reduce closes."""
    return import_kernel_bridge().run_loop_region(m, scope, u, sources)


@cache
def import_kernel_bridge() -> Any:
    """Import the module that runs kernels; a graph without a kernel never loads it."""
    from uops.interp.kernel.call import bridge  # late: most graphs need none of it, and it imports this package

    return bridge


# fmt: off
#: op -> function of a node and the value of its only source. A Reduce over ranges has more sources and goes to its action.
OF_ARRAY: dict[Op, Any] = {**MOVES, Op.CAST: _eval_cast, Op.REDUCE: reduce}
#: op -> action, for every op of the TENSOR dialect that is not in `KERNELS` or needs more than arrays.
ACTIONS: dict[Op, Action] = {
    Op.PARAM: _eval_param, Op.BUFFER: _eval_buffer, Op.CONST: _eval_const, Op.BINARY: _eval_binary_blob,
    **{op: _make_movement_action(op) for op in MOVES},
    Op.REDUCE: _eval_reduce, Op.CAST: _make_array_action(Op.CAST), Op.SHL: _eval_shift, Op.SHR: _eval_shift,
    Op.FUNCTION: _eval_every_function_element, Op.CALL: _run_kernel_or_enter_or_finish_call, Op.TUPLE: _eval_void,
    Op.GETTUPLE: _take_or_await_tuple_element,
    Op.LOAD: _eval_load, Op.STORE: _eval_store, Op.END: _eval_loop_region,
    Op.AFTER: _eval_after, Op.GROUP: _eval_void, Op.SINK: _eval_void,
    **dict.fromkeys(MARKERS, _eval_first_source),
}
# fmt: on
#: All ops of tensor graphs: op -> its kernels per dtype, or its action.
MEANING: dict[Op, Any] = {**KERNELS, **ACTIONS}


def no_sources(u: UOp) -> tuple[UOp, ...]:
    """Return no sources: nothing is evaluated before the node."""
    return ()


def _call_arguments(u: UOp) -> tuple[UOp, ...]:
    return u.arguments


def _loop_leaves(u: UOp) -> tuple[UOp, ...]:
    """Return the nodes outside of the loops that `u` closes which these use."""
    leaves: tuple[UOp, ...] = import_kernel_bridge().region_leaves(u)
    return leaves


def _reduce_sources(u: UOp) -> tuple[UOp, ...]:
    """Return the operand of a Reduce over axes, and the leaves of one over ranges."""
    return u.src if len(u.src) == 1 else _loop_leaves(u)


def _gettuple_sources(u: UOp) -> tuple[UOp, ...]:
    """Return the element of a Tuple; those of a Function are evaluated in its scope."""
    packed = u.packed
    return (packed.src[u.arg.index],) if packed.op is _TUPLE else ()


#: The sources to evaluate before a node, where they are not all of `src`. Shape operands are read from the node; bodies and the
#: elements of a Function are evaluated in their own scopes.
SOURCES: dict[Op, FindSources] = {
    **dict.fromkeys(SHAPED, data_and_symbolic_sources),
    Op.PARAM: no_sources,
    Op.FUNCTION: no_sources,
    Op.CALL: _call_arguments,
    Op.GETTUPLE: _gettuple_sources,
    Op.END: _loop_leaves,
    Op.REDUCE: _reduce_sources,
}


def _fill_dispatch_table() -> None:
    """Fill `PLANS` of the machine, which does not import this module."""
    for op in Op:
        make, kernels = OF_ARRAY.get(op), None if op in ACTIONS else KERNELS.get(op)
        count = -1 if make is None or op in (Op.PAD, Op.SHRINK) else 2 if op in SHAPED else 1
        PLANS[op.value] = (
            count,
            make,
            kernels,
            SOURCES.get(op),
            ACTIONS.get(op, reject_foreign_op if kernels is None else _eval_where_or_mulacc),
        )


_fill_dispatch_table()
