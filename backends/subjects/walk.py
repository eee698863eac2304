"""Evaluation of a TENSOR graph, node by node, with the functions of one library.

A scope holds a cell per node: a value of the library, a HostValue, a Reference, the scope of a Function's body, a tuple for an
optional function, or None for an effect. Nodes are evaluated once, sources first. A Call is evaluated where it stands; what follows
it stands behind an After.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from uops.backends.answer import memory_key
from uops.backends.arrays import STORAGE
from uops.backends.subjects.host import HostValue, compute_host_value, make_index_value, wrap_host_value
from uops.backends.subjects.library import FUNCTION_OPS, Library, Value
from uops.backends.subjects.views import HOST, BitcastOrSlice, Memory, Move, Reference, load_reference, store_reference
from uops.spec.errors import Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import MARKERS, RESHAPING, SHIFT, TO_SHAPE, Op
from uops.spec.ir.scope import VIEWS, is_variable, scope_nodes
from uops.spec.rows.optional import find_optional_function
from uops.spec.verify.infer import is_kernel_or_custom_function_body

Cell = Any


class GraphRun:
    """One evaluation of a graph: its library, its inputs, and its memory."""

    def __init__(self, library: Library, variables: Mapping[str, int], inputs: Mapping[str, Value]) -> None:
        self.library, self.variables, self.inputs = library, variables, inputs
        self.references: dict[UOp, Reference] = {}

    def bind_memory_to_input_or_zeros(self, memory: UOp) -> Reference:
        """Return the reference to a Buffer or free Param; a Buffer without an input holds zeros."""
        if memory not in self.references:
            key, library = memory_key(memory), self.library
            if key in self.inputs:
                contents = self.inputs[key]
            elif memory.op is Op.BUFFER and not isinstance(memory.arg.device, tuple):
                contents = library.expand(library.reshape(library.constant(0, memory.dtype), (1,)), (memory.arg.size,))
            else:
                raise Unsupported(f"{memory.op.name} {key} without contents", library.name)
            self.references[memory] = Reference(Memory(memory, contents), dtype=memory.dtype)
        return self.references[memory]

    def list_written_memory(self) -> list[tuple[str, Memory]]:
        """Return the memory that was written, with its key."""
        return [(memory_key(u), r.memory) for u, r in self.references.items() if r.memory.is_written]


class Scope:
    """The cells of a graph, or of one body. `caller` is the Function or Call, whose arguments are in `outer`."""

    def __init__(self, run: GraphRun, outer: Scope | None = None, caller: UOp | None = None) -> None:
        self.run, self.outer, self.caller, self.library = run, outer, caller, run.library
        self.cells: dict[UOp, Cell] = {}

    def evaluate(self, root: UOp) -> Cell:
        """Return the cell of a node, after those of its sources."""
        for u in scope_nodes(root) if root not in self.cells else ():
            if u not in self.cells:
                self.cells[u] = FORMS[u.op](self, u)
        return self.cells[root]

    def value(self, u: UOp) -> Value:
        """Return the library's value of a node that has a cell. A reference is loaded once."""
        cell = self.cells[u]
        if isinstance(cell, Reference):
            if cell.loaded is None:
                cell.loaded = load_reference(self.library, cell)
            return cell.loaded
        if isinstance(cell, HostValue):
            d = dt.int64 if u.dtype is dt.index else u.dtype
            return self.library.import_array(cell.array.astype(STORAGE[d]), d)
        return cell

    def extents(self, vector: UOp) -> tuple[int, ...]:
        """Return a shape operand as ints. Raises Unsupported if one depends on data and the library compiles whole graphs."""
        if vector.constants_of_stack is not None:
            return vector.constants_of_stack
        return tuple(int(n) for n in self.library.read_index(self.cells[vector]).ravel())

    def find_free_variable(self, u: UOp) -> UOp | None:
        """Return the variable of the run that `u` is, or that is its argument in the scopes around; None if it is none."""
        scope = self
        while is_variable(u) and u.arg.slot is not None and scope.outer is not None and scope.caller is not None:
            u, scope = scope.caller.arguments[u.arg.slot], scope.outer
        return u if is_variable(u) else None


Form = Callable[[Scope, UOp], Cell]


# ---------------------------------------------------------------------------------------------------------------- sources


def _evaluate_param_as_argument_or_input(s: Scope, u: UOp) -> Cell:
    arg, outer = u.arg, s.outer
    if outer is not None and s.caller is not None and arg.slot is not None:
        argument = outer.cells[s.caller.arguments[arg.slot]]
        return argument.view(None, u.dtype) if s.caller.op is Op.CALL and isinstance(argument, Reference) else argument
    if is_variable(u):
        number = s.run.variables[arg.name]
        return make_index_value(number) if u.dtype is dt.index else s.library.constant(number, u.dtype)
    return s.run.inputs[memory_key(u)] if u.dtype is dt.index else s.run.bind_memory_to_input_or_zeros(u)


def _evaluate_const(s: Scope, u: UOp) -> Cell:
    return make_index_value(u.arg.value) if u.dtype is dt.index else s.library.constant(u.arg.value, u.dtype)


def _evaluate_binary(s: Scope, u: UOp) -> Cell:
    return s.library.import_array(np.frombuffer(u.arg.data, np.uint8), dt.uint8)


# --------------------------------------------------------------------------------------------------------------- elements


def _evaluate_elementwise(s: Scope, u: UOp) -> Cell:
    cells = [s.cells[x] for x in u.src]
    if all(isinstance(c, HostValue) for c in cells):
        return compute_host_value(u.op, cells)
    if u.src[0].dtype is dt.index and dt.int64 in s.library.dtypes:  # the index is computed from data
        s.library.require_function(u.op, dt.int64)
    values = [s.value(x) for x in u.src]
    if u.op is Op.WHERE and u.condition.dtype is not dt.bool_:
        d = u.condition.dtype
        values[0] = s.library.apply(Op.CMPNE, [values[0], s.library.constant(0, d)])
    if u.op in SHIFT and u.lhs.dtype is not u.rhs.dtype:
        raise Unsupported(f"{u.op.name} by a count of another dtype", s.library.name)
    return s.library.apply(u.op, values)


def _evaluate_cast(s: Scope, u: UOp) -> Cell:
    source, target, cell = u.operand.dtype, u.arg.dtype, s.cells[u.operand]
    if target is dt.index and (variable := s.find_free_variable(u.operand)) is not None:
        return make_index_value(s.run.variables[variable.arg.name])
    if isinstance(cell, HostValue):
        if target is dt.index:
            return HostValue(cell.array.astype(object))
        if source is dt.index and target.is_integer:
            return s.library.import_array(wrap_host_value(cell, target, STORAGE[target]), target)
    source, target = (dt.int64 if d is dt.index else d for d in (source, target))
    value = s.value(u.operand)
    return value if source is target else s.library.cast(value, source, target)


def _evaluate_marker(s: Scope, u: UOp) -> Cell:
    cell = s.cells[u.operand]
    return cell if isinstance(cell, HostValue) else s.value(u.operand)


# --------------------------------------------------------------------------------------------------- movement and Reduce


def _evaluate_move(s: Scope, u: UOp) -> Cell:
    cell, read_operands = s.cells[u.operand], _MOVE_OPERANDS.get(u.op)
    move = Move(u, read_operands(s, u) if read_operands else ())
    if isinstance(cell, Reference) and u.op in VIEWS:
        return cell.view(move, u.dtype)
    if isinstance(cell, HostValue) and not move.is_dynamic:
        return HostValue(np.asarray(move.apply(HOST, cell.array), cell.array.dtype))
    return move.apply(s.library, s.value(u.operand))


def _read_position(s: Scope, position: UOp) -> Any:
    """Return the positions of an axis: an int64 array of the host, or a value of the library."""
    cell = s.cells[position]
    return cell.array.astype(np.int64) if isinstance(cell, HostValue) else s.value(position)


def _read_window(s: Scope, u: UOp) -> tuple[Any, ...]:
    return s.extents(u.offsets), s.extents(u.extents)


#: Movement op -> how to read its operands but the first.
_MOVE_OPERANDS: dict[Op, Callable[[Scope, UOp], tuple[Any, ...]]] = {
    **dict.fromkeys(TO_SHAPE, lambda s, u: (s.extents(u.extents),)),
    Op.PAD: _read_window,
    Op.SHRINK: _read_window,
    Op.INDEX: lambda s, u: tuple(_read_position(s, p) for p in u.positions),
}


def _evaluate_stack(s: Scope, u: UOp) -> Cell:
    if u.dtype is dt.index and u.constants_of_stack is not None:
        return HostValue(np.array(u.constants_of_stack, object))
    cells = [s.cells[x] for x in u.src]
    if all(isinstance(c, HostValue) for c in cells):
        return HostValue(np.stack([c.array for c in cells]))
    return s.library.stack([s.value(x) for x in u.src])


def _evaluate_slice(s: Scope, u: UOp) -> Cell:
    if not isinstance(s.cells[u.offset], HostValue):
        raise Unsupported("a Slice at an offset that is computed from data", s.library.name)
    start = int(s.cells[u.offset].array)
    step, cell = BitcastOrSlice(u.operand.dtype, u.arg.dtype, start, u.arg.size), s.cells[u.operand]
    return cell.view(step, u.dtype) if isinstance(cell, Reference) else step.apply(s.library, s.value(u.operand))


def _evaluate_bitcast(s: Scope, u: UOp) -> Cell:
    step, cell = BitcastOrSlice(u.operand.dtype, u.arg.dtype), s.cells[u.operand]
    return cell.view(step, u.dtype) if isinstance(cell, Reference) else step.apply(s.library, s.value(u.operand))


def _evaluate_reduce(s: Scope, u: UOp) -> Cell:
    if u.ranges:
        raise Unsupported("a Reduce of loops", s.library.name)
    x, axes = s.value(u.operand), u.arg.axes
    if not axes:
        return x
    if u.arg.op is Op.MAX and not math.prod(x.shape):  # a maximum of nothing is a constant (R32)
        shape = tuple(1 if k in axes else n for k, n in enumerate(x.shape))
        least = s.library.reshape(s.library.constant(u.dtype.min, u.dtype), (1,) * len(shape))
        return s.library.expand(least, shape)
    return s.library.reduce(u.arg.op, x, axes, dt.int64 if u.dtype is dt.index else u.dtype)


# ------------------------------------------------------------------------------------------------------ calls and memory


def _open_function_or_apply_optional(s: Scope, u: UOp) -> Cell:
    """Return the scope of a body, or the one value of an optional function in a tuple."""
    function = find_optional_function(u)
    if function is None:
        return Scope(s.run, s, u)
    return (s.library.apply_optional(function, [s.value(x) for x in u.arguments], u.arguments[0].dtype),)


def _evaluate_call(s: Scope, u: UOp) -> Cell:
    if is_kernel_or_custom_function_body(u.body):
        raise Unsupported("a kernel", s.library.name)
    Scope(s.run, s, u).evaluate(u.body)


def _evaluate_tuple_element(s: Scope, u: UOp) -> Cell:
    packed = u.packed
    if packed.op is Op.FUNCTION:
        body: Scope | tuple[Cell, ...] = s.cells[packed]
        if isinstance(body, tuple):
            return body[u.arg.index]
        return body.evaluate(packed.body.src[u.arg.index])  # a value of the Tuple
    return s.cells[packed.src[u.arg.index]]  # a value of the Tuple


def _evaluate_load(s: Scope, u: UOp) -> Cell:
    if isinstance(u.arg.device, tuple):
        raise Unsupported("several devices", s.library.name)
    if u.gate is None or u.alternative is None:
        return s.value(u.buffer)
    cell = s.cells[u.buffer]
    fetched = load_reference(s.library, cell, is_gated=True) if isinstance(cell, Reference) else cell
    return s.library.select(s.value(u.gate), fetched, s.value(u.alternative))


def _evaluate_store(s: Scope, u: UOp) -> Cell:
    store_reference(s.library, s.cells[u.buffer], s.value(u.value), None if u.gate is None else s.value(u.gate))


def _evaluate_after(s: Scope, u: UOp) -> Cell:
    cell = s.cells[u.buffer]
    return cell.view(None, u.dtype) if isinstance(cell, Reference) else cell


def _evaluate_nothing(s: Scope, u: UOp) -> Cell:
    return None


#: Op -> how to evaluate it. Every other op is refused.
FORMS: dict[Op, Form] = {
    Op.PARAM: _evaluate_param_as_argument_or_input,
    Op.BUFFER: lambda s, u: s.run.bind_memory_to_input_or_zeros(u),
    Op.CONST: _evaluate_const,
    Op.BINARY: _evaluate_binary,
    **dict.fromkeys(RESHAPING | {Op.INDEX}, _evaluate_move),
    Op.STACK: _evaluate_stack,
    Op.SLICE: _evaluate_slice,
    Op.BITCAST: _evaluate_bitcast,
    Op.REDUCE: _evaluate_reduce,
    Op.FUNCTION: _open_function_or_apply_optional,
    Op.CALL: _evaluate_call,
    Op.GETTUPLE: _evaluate_tuple_element,
    Op.LOAD: _evaluate_load,
    Op.STORE: _evaluate_store,
    Op.AFTER: _evaluate_after,
    **dict.fromkeys((Op.TUPLE, Op.GROUP, Op.SINK), _evaluate_nothing),
    **dict.fromkeys(FUNCTION_OPS, _evaluate_elementwise),
    Op.CAST: _evaluate_cast,
    **dict.fromkeys(MARKERS, _evaluate_marker),
}
