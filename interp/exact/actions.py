"""The evaluation of each op of the TENSOR dialect: one small function per op, and the table of them."""

from __future__ import annotations

from collections.abc import Sequence

from uops.interp.exact import layout
from uops.interp.exact.answers import AnswerSet
from uops.interp.exact.elementwise import MEANING, evaluate_op
from uops.interp.exact.evaluate import HANDLERS, Handler, NodeEvaluation, NodeResult, ResultTuple, canonical_bits, integers
from uops.interp.exact.inputs import check_and_convert_input
from uops.interp.exact.numbers.casts import cast
from uops.interp.exact.numbers.formats import FORMATS, bits_of
from uops.interp.exact.reduction import reduce_dot, reduce_elements
from uops.interp.exact.values import (
    Array,
    ByteCell,
    ExactRef,
    elements_of,
    join_cells_enumerating_few_patterns,
    make_array,
    make_scalar,
    reference_to_storage,
    split_into_cells,
)
from uops.spec.errors import SpecError, Trap, Unsupported
from uops.spec.ir.args import BitcastArg, BufferArg, ParamArg, SliceArg
from uops.spec.ir.dtypes import DType, DTypeKind, bool_, index, uint8
from uops.spec.ir.ops import MARKERS, SHIFT, Op
from uops.spec.untrusted import escape_to_one_line

# Sources


def evaluate_param_as_argument_or_input(t: NodeEvaluation) -> Array | ExactRef | NodeResult:
    """Evaluate a Param.

    A bound one is its argument (R64, R86). A free one is named storage, and a named one a bounded number (R48).
    """
    arg: ParamArg = t.u.arg
    shape = t.require_canonical_integer_vector(t.u.extents) if t.u.src else ()
    if t.frame.args is not None and arg.slot is not None:
        if arg.slot >= len(t.frame.args):
            raise SpecError(f"R64: no argument for Param {arg.slot}")
        take = _bind_call_argument if t.frame.is_call else _take_checked_function_argument
        return take(t, arg, shape, t.frame.args[arg.slot])
    t.check_size(shape)
    name = arg.name if arg.name is not None else f"p{arg.slot}"
    if name not in t.machine.inputs:
        raise SpecError(f"input {escape_to_one_line(name)} is missing: a Param needs it")
    if arg.name is not None or arg.dtype is index:
        count = layout.count(shape)
        value = make_array(arg.dtype, shape, check_and_convert_input(name, arg.dtype, count, t.machine.inputs[name]))
        _check_bounds(arg, value)
        return value
    return reference_to_storage(t.machine.get_or_create_storage_filled_if_input(name, t.u, layout.count(shape)), shape, 0)


def _take_checked_function_argument(t: NodeEvaluation, arg: ParamArg, shape: tuple[int, ...], argument: NodeResult) -> NodeResult:
    """Return the argument that a Param of a Function stands for.

    Raises SpecError if it does not fit (R64), Trap if out of bounds.
    """
    v = argument.value
    if not isinstance(v, Array | ExactRef) or v.dtype is not arg.dtype or v.shape != shape:
        raise SpecError(f"R64: Param {arg.slot} is {arg.dtype.name}{shape}, its argument {_describe_type(v)}")
    if arg.bounds is not None:
        _check_bounds(arg, t.load_if_reference(v))
    return argument


def _bind_call_argument(t: NodeEvaluation, arg: ParamArg, shape: tuple[int, ...], argument: NodeResult) -> Array | ExactRef:
    """Return the value of a Call's variable in its own dtype, or the argument's elements in the shape of its Param.

    Raises SpecError unless a variable gets one integer, and another Param the dtype and number of elements that it has (R86).
    """
    v = argument.value
    if not isinstance(v, Array | ExactRef):
        raise SpecError(f"R86: the argument of Param {arg.slot} is void")
    if arg.name is not None:
        if v.shape != () or not v.dtype.is_integer:
            raise SpecError(f"R86: variable {escape_to_one_line(arg.name)} gets {_describe_type(v)}")
        given = t.load_if_reference(v)
        _check_bounds(arg, given)
        (number,) = integers(given)
        return make_scalar(arg.dtype, bits_of(arg.dtype, number))
    if v.dtype is not arg.dtype or layout.count(v.shape) != layout.count(shape):
        raise SpecError(f"R86: Param {arg.slot} is {arg.dtype.name}{shape}, its argument {_describe_type(v)}")
    if isinstance(v, Array):
        return make_array(v.dtype, shape, elements_of(v))
    return ExactRef(v.storage, v.dtype, shape, v.places, t.happened_before)


def _describe_type(v: Array | ExactRef | ResultTuple | None) -> str:
    """Return the dtype and shape of a result for a message."""
    return f"{v.dtype.name}{v.shape}" if isinstance(v, Array | ExactRef) else "void"


def _check_bounds(arg: ParamArg, v: Array) -> None:
    if arg.bounds is not None and any(not arg.bounds[0] <= n <= arg.bounds[1] for n in integers(v)):
        raise Trap(f"R48: {escape_to_one_line(str(arg.name))} = {v.numbers} is outside {arg.bounds}")


def evaluate_buffer(t: NodeEvaluation) -> ExactRef:
    """Evaluate a Buffer; the shards of an n-tuple Buffer are one array (R73)."""
    arg: BufferArg = t.u.arg
    n = arg.size * (len(arg.device) if isinstance(arg.device, tuple) else 1)
    return reference_to_storage(t.machine.get_or_create_storage_filled_if_input(f"b{arg.unique}", t.u, n), (n,), 0)


def evaluate_const(t: NodeEvaluation) -> Array:
    """Evaluate a Const."""
    return make_scalar(t.u.arg.dtype, bits_of(t.u.arg.dtype, t.u.arg.value))


def evaluate_binary_blob(t: NodeEvaluation) -> Array:
    """Evaluate a Binary: its bytes."""
    data: bytes = t.u.arg.data
    t.check_size((len(data),))
    return make_array(uint8, (len(data),), [AnswerSet(uint8, b) for b in data])


# Movement


def _move_elements(v: Array | ExactRef, movement: layout.SourcePositions, t: NodeEvaluation) -> Array | ExactRef:
    """Return the elements at a movement's source positions; a reference stays one."""
    if isinstance(v, Array):
        return _move_array_elements(v, movement, t)
    shape, positions = movement
    t.check_size(shape)
    return ExactRef(v.storage, v.dtype, shape, [None if p < 0 else v.places[p] for p in positions], t.happened_before)


def _move_array_elements(v: Array, movement: layout.SourcePositions, t: NodeEvaluation) -> Array:
    """Return the elements of a value at a movement's source positions, 0 at a negative one."""
    shape, positions = movement
    t.check_size(shape)
    source = elements_of(v)
    return make_array(v.dtype, shape, [source[p] if p >= 0 else AnswerSet(v.dtype, 0) for p in positions])


def evaluate_permute(t: NodeEvaluation) -> Array | ExactRef:
    """Evaluate a Permute."""
    v = t.read_without_load(t.u.operand)
    return _move_elements(v, layout.permute_positions(v.shape, t.u.arg.order), t)


def evaluate_flip(t: NodeEvaluation) -> Array | ExactRef:
    """Evaluate a Flip."""
    v = t.read_without_load(t.u.operand)
    return _move_elements(v, layout.flip_positions(v.shape, t.u.arg.flags), t)


def evaluate_reshape(t: NodeEvaluation) -> Array | ExactRef:
    """Evaluate a Reshape."""
    v, new = t.read_without_load(t.u.operand), t.require_canonical_integer_vector(t.u.extents)
    movement = layout.reshape_positions(v.shape, new)
    if movement is None:
        raise t.make_rejection(f"{v.shape} cannot be reshaped to {new}", t.u.extents)
    return _move_elements(v, movement, t)


def evaluate_expand_as_value(t: NodeEvaluation) -> Array:
    """Evaluate an Expand as a value: two elements of a reference would share an address (R51)."""
    v, new = t.value_of(t.u.operand), t.require_canonical_integer_vector(t.u.extents)
    t.check_size(new)
    movement = layout.expand_positions(v.shape, new)
    if movement is None:
        raise t.make_rejection(f"{v.shape} cannot be expanded to {new}", t.u.extents)
    return _move_array_elements(v, movement, t)


def evaluate_pad(t: NodeEvaluation) -> Array:
    """Evaluate a Pad, which fills with zeros (R43)."""
    v, offset, new = (
        t.value_of(t.u.operand),
        t.require_canonical_integer_vector(t.u.offsets),
        t.require_canonical_integer_vector(t.u.extents),
    )
    t.check_size(new)
    movement = layout.pad_positions(v.shape, offset, new)
    if movement is None:
        raise t.make_rejection(f"R43: {v.shape} at {offset} does not fit in {new}", t.u.offsets, t.u.extents)
    return _move_array_elements(v, movement, t)


def evaluate_shrink(t: NodeEvaluation) -> Array | ExactRef:
    """Evaluate a Shrink (R44)."""
    v, offset, new = (
        t.read_without_load(t.u.operand),
        t.require_canonical_integer_vector(t.u.offsets),
        t.require_canonical_integer_vector(t.u.extents),
    )
    movement = layout.shrink_positions(v.shape, offset, new)
    if movement is None:
        raise t.make_rejection(f"R44: {new} at {offset} is not inside {v.shape}", t.u.offsets, t.u.extents)
    return _move_elements(v, movement, t)


def evaluate_index_deferring_trap_on_refs(t: NodeEvaluation) -> Array | ExactRef:
    """Evaluate an Index (R45).

    Of a reference the result is addresses, invalid ones included. Of a value, an index out of bounds traps at once.
    """
    v = t.read_without_load(t.u.operand)
    indices = [t.value_of(p) for p in t.u.positions]
    if len(indices) > len(v.shape) or any(len(i.shape) > 1 or not i.dtype.is_integer for i in indices):
        raise SpecError(f"R45: {v.shape} indexed by {[(i.dtype.name, i.shape) for i in indices]}")
    if isinstance(v, Array) and any(not 0 <= n < extent for i, extent in zip(indices, v.shape) for n in integers(i)):
        raise Trap(f"R45: index {[i.numbers for i in indices]} outside shape {v.shape}")
    movement = layout.outer_index_positions_minus_one_if_outside(v.shape, [(i.shape, integers(i)) for i in indices])
    return _move_elements(v, movement, t)


def evaluate_stack(t: NodeEvaluation) -> Array:
    """Evaluate a Stack, which joins along a new leading axis; of nothing it is the shape () (R40)."""
    parts = [t.value_of(e) for e in t.u.elements]
    if not parts:
        return make_array(index, (0,), [])
    if any(p.shape != parts[0].shape or p.dtype is not parts[0].dtype for p in parts):
        raise SpecError(f"a Stack needs elements of one dtype and shape, got {[(p.dtype.name, p.shape) for p in parts]}")
    shape = (len(parts), *parts[0].shape)
    t.check_size(shape)
    return make_array(parts[0].dtype, shape, [a for p in parts for a in elements_of(p)])


def collapse_replicated_or_trap_if_copies_differ(t: NodeEvaluation) -> Array:
    """Evaluate a Replicated: the copies along its axes must have the same bits (R47)."""
    v = t.value_of(t.u.operand)
    shape, groups = layout.reduction_groups(v.shape, t.u.arg.axes)
    elements = elements_of(v)
    for group in groups:
        if len({elements[p].best for p in group}) != 1:
            raise Trap(f"R47: the copies along axes {t.u.arg.axes} are not equal")
    return make_array(v.dtype, shape, [elements[group[0]] for group in groups])


def evaluate_slice(t: NodeEvaluation) -> Array | ExactRef:
    """Evaluate a Slice: elements of another dtype from the bytes of a 1-D source (R46)."""
    arg: SliceArg = t.u.arg
    v, (offset,) = t.read_without_load(t.u.operand), integers(t.value_of(t.u.offset))
    start, end = offset * v.dtype.itemsize, offset * v.dtype.itemsize + arg.size * arg.dtype.itemsize
    size = layout.count(v.shape) * v.dtype.itemsize
    if len(v.shape) != 1 or not 0 <= start <= end <= size or start % _require_storable_itemsize(arg.dtype):
        raise t.make_rejection(f"R46: bytes {start} to {end} of {size} as {arg.dtype.name}", t.u.offset)
    return _reinterpret_bytes(v, arg.dtype, (arg.size,), start, end, t)


def evaluate_bitcast(t: NodeEvaluation) -> Array | ExactRef:
    """Evaluate a Bitcast: the same bytes as another dtype; a different item size scales the last axis (R46)."""
    arg: BitcastArg = t.u.arg
    v, new = t.read_without_load(t.u.operand), arg.dtype
    old = v.dtype.itemsize
    if new is bool_ or not old:
        raise SpecError(f"R46: bitcast of {v.dtype.name} to {new.name}")
    shape = v.shape
    if old != _require_storable_itemsize(new):
        if not shape or shape[-1] * old % new.itemsize:
            raise SpecError(f"R46: bitcast of {v.dtype.name}{shape} to {new.name}")
        shape = (*shape[:-1], shape[-1] * old // new.itemsize)
    return _reinterpret_bytes(v, new, shape, 0, layout.count(v.shape) * old, t)


def _require_storable_itemsize(dtype: DType) -> int:
    """Return the item size of a dtype. Raises SpecError for index and void, which have no storage (R29)."""
    if not dtype.itemsize:
        raise SpecError(f"R29: {dtype.name} has no storage")
    return dtype.itemsize


def _reinterpret_bytes(
    v: Array | ExactRef, new_dtype: DType, shape: tuple[int, ...], start: int, end: int, t: NodeEvaluation
) -> Array | ExactRef:
    """Return the bytes from `start` to `end` of `v` as elements of another dtype and shape."""
    t.check_size(shape)
    width = new_dtype.itemsize
    if isinstance(v, ExactRef):
        old = v.dtype.itemsize
        addresses = [a for p in v.places for a in (p if p is not None else (-1,) * old)][start:end]
        runs = [tuple(addresses[k : k + width]) for k in range(0, len(addresses), width)]
        return ExactRef(v.storage, new_dtype, shape, [None if -1 in run else run for run in runs], t.happened_before)
    cells: list[ByteCell] = split_into_cells(elements_of(v))[start:end]
    return make_array(
        new_dtype,
        shape,
        [join_cells_enumerating_few_patterns(new_dtype, cells[k : k + width]) for k in range(0, len(cells), width)],
    )


# Reduce


def evaluate_reduce_as_dot_if_sum_over_mul(t: NodeEvaluation) -> Array:
    """Evaluate a Reduce, which collapses axes to size 1 (R32, R42); a float sum directly over a Mul may fuse the products."""
    if t.u.ranges:
        raise Unsupported("Reduce over ranges", "the scalar interpreter")
    v, op = t.value_of(t.u.operand), t.u.arg.op
    shape, groups = layout.reduction_groups(v.shape, t.u.arg.axes)
    bits = canonical_bits(elements_of(v))
    factors = _find_float_mul_operand_best_bits(t, v) if op is Op.ADD else None
    if factors is not None:
        fmt, (a, b) = FORMATS[v.dtype], factors
        sums = [reduce_dot(fmt, [a[p] for p in group], [b[p] for p in group]) for group in groups]
        return make_array(v.dtype, shape, sums)
    return make_array(v.dtype, shape, [reduce_elements(op, v.dtype, [bits[p] for p in group]) for group in groups])


def _find_float_mul_operand_best_bits(t: NodeEvaluation, v: Array) -> tuple[list[int], list[int]] | None:
    """Return the operands of a float Mul that a Reduce consumes, broadcast to the shape of `v`; None if there is none."""
    product = t.u.operand
    if product.op is not Op.MUL or v.dtype.kind is not DTypeKind.FLOAT:
        return None
    a, b = (_broadcast_elements(t.value_of(x), v.shape) for x in (product.lhs, product.rhs))
    return canonical_bits(a), canonical_bits(b)


# Elementwise and markers


def _broadcast_elements(v: Array, shape: tuple[int, ...]) -> list[AnswerSet]:
    """Return the elements of a value broadcast to `shape`. Raises SpecError if they do not broadcast (R41)."""
    elements = elements_of(v)
    if v.shape == shape:
        return elements
    movement = layout.expand_positions(v.shape, shape)
    if movement is None:
        raise SpecError(f"R41: {v.shape} does not broadcast to {shape}")
    return [elements[p] for p in movement.positions]


def evaluate_elementwise_on_best_operand_bits(t: NodeEvaluation) -> Array:
    """Evaluate an elementwise op, element by element."""
    u = t.u
    operands = [t.value_of(s) for s in u.src]
    shape = layout.broadcast_shape([v.shape for v in operands])
    if shape is None:
        raise SpecError(f"R41: {[v.shape for v in operands]} do not broadcast [{u.op.name}]")
    t.check_size(shape)
    dtypes = [v.dtype for v in operands]
    _check_operands_share_dtype(u.op, dtypes)
    rows = zip(*(_broadcast_elements(v, shape) for v in operands), strict=True)
    if u.op is Op.WHERE:
        return make_array(u.dtype, shape, [_select_operand(dtypes, row) for row in rows])
    return make_array(u.dtype, shape, [evaluate_op(u.op, dtypes, u.dtype, canonical_bits(row), t.machine.level) for row in rows])


def _check_operands_share_dtype(op: Op, dtypes: Sequence[DType]) -> None:
    """Raise SpecError unless the operands have one dtype (R25), but for a shift's count and a Where's condition."""
    same = dtypes[:1] if op in SHIFT else dtypes[1:] if op is Op.WHERE else dtypes
    if any(d is not same[0] for d in same):
        raise SpecError(f"R25: operands of {op.name} are {[d.name for d in dtypes]}")


def _select_operand(dtypes: Sequence[DType], row: tuple[AnswerSet, ...]) -> AnswerSet:
    """Return the answers of a Where's chosen branch, its whole set."""
    condition, if_true, if_false = row
    return if_true if cast(dtypes[0], bool_, condition.best).best else if_false


def pass_source_through(t: NodeEvaluation) -> Array:
    """Evaluate a marker, which keeps its operand."""
    return t.value_of(t.u.operand)


# Calls


def evaluate_tuple(t: NodeEvaluation) -> ResultTuple:
    """Evaluate a Tuple: the results of its values."""
    return ResultTuple(tuple(t.result_of(v) for v in t.u.values))


def take_tuple_element(t: NodeEvaluation) -> NodeResult:
    """Evaluate a GetTuple. Raises SpecError if its source has no such element."""
    packed = t.result_of(t.u.packed).value
    if not isinstance(packed, ResultTuple) or not 0 <= t.u.arg.index < len(packed.results):
        raise SpecError(f"GetTuple {t.u.arg.index} of {t.u.packed.op.name}: its source has no such element")
    element: NodeResult = packed.results[t.u.arg.index]
    return element


def take_function_body_results(t: NodeEvaluation) -> NodeResult:
    """Evaluate a Function as its substituted body (R64)."""
    body = t.frame.children[t.u].done[t.u.body]
    if not isinstance(body.value, ResultTuple):
        raise SpecError(f"the body of a Function must be a Tuple, got {t.u.body.op.name}")
    return NodeResult(body.value, body.happened_before | t.happened_before)


def take_call_body_events(t: NodeEvaluation) -> NodeResult:
    """Evaluate a Call, whose body ran for its effects; its results are seen through After (R63)."""
    body = t.frame.children[t.u].done[t.u.body]
    return NodeResult(None, body.happened_before | t.happened_before)


# Load, Store, order


def evaluate_load(t: NodeEvaluation) -> Array:
    """Evaluate a Load: copies of elements, `alternative` where the gate is false (R52).

    Device and address space do not change a value (R53).
    """
    v = t.read_without_load(t.u.buffer)
    count = layout.count(v.shape)
    if t.u.gate is None or t.u.alternative is None:
        if isinstance(v, Array):
            return v
        loaded, access = t.memory.check_race_and_load(v, t.happened_before)
    else:
        alt, gate = t.value_of(t.u.alternative), t.canonical_gate_mask(t.u.gate, count)
        if alt.shape != v.shape or alt.dtype is not v.dtype or len(gate) != count:
            raise SpecError(f"R52: Load of {v.dtype.name}{v.shape} with alt {alt.dtype.name}{alt.shape}, gate of {len(gate)}")
        if isinstance(v, Array):
            elements = zip(elements_of(v), elements_of(alt), gate, strict=True)
            return make_array(v.dtype, v.shape, [x if is_open else y for x, y, is_open in elements])
        loaded, access = t.memory.check_race_and_load(v, t.happened_before, gate, elements_of(alt))
    t.happened_before |= access
    return loaded


def evaluate_store(t: NodeEvaluation) -> None:
    """Evaluate a Store of a value, which is read fully before (R54), into a reference (R51)."""
    target = t.read_without_load(t.u.buffer)
    if not isinstance(target, ExactRef):
        raise SpecError(f"R51: Store to {t.u.buffer.op.name}, which is no reference")
    value = t.value_of(t.u.value)
    if value.shape != target.shape or value.dtype is not target.dtype:
        raise SpecError(f"Store of {value.dtype.name}{value.shape} to {target.dtype.name}{target.shape}: they must be equal")
    gate = None if t.u.gate is None else t.canonical_gate_mask(t.u.gate, layout.count(target.shape))
    t.happened_before |= t.memory.check_race_and_store(target, elements_of(value), t.happened_before, gate)


def evaluate_after_as_ordered_buffer(t: NodeEvaluation) -> Array | ExactRef | None:
    """Evaluate an After: its buffer, with all dependencies before it (R59)."""
    v = t.result_of(t.u.buffer).value
    if isinstance(v, ResultTuple):
        return None  # a Group or Sink: void, like a Store
    if isinstance(v, ExactRef):
        return ExactRef(v.storage, v.dtype, v.shape, v.places, t.happened_before)
    return v


def collect_results(t: NodeEvaluation) -> ResultTuple:
    """Evaluate a Sink or Group: the results of its effects that are not void."""
    return ResultTuple(tuple(r for r in map(t.result_of, t.u.effects) if isinstance(r.value, Array | ExactRef)))


_HANDLERS: dict[Op, Handler] = {
    Op.PARAM: evaluate_param_as_argument_or_input,
    Op.BUFFER: evaluate_buffer,
    Op.CONST: evaluate_const,
    Op.BINARY: evaluate_binary_blob,
    Op.PERMUTE: evaluate_permute,
    Op.FLIP: evaluate_flip,
    Op.RESHAPE: evaluate_reshape,
    Op.EXPAND: evaluate_expand_as_value,
    Op.PAD: evaluate_pad,
    Op.SHRINK: evaluate_shrink,
    Op.INDEX: evaluate_index_deferring_trap_on_refs,
    Op.STACK: evaluate_stack,
    Op.REPLICATED: collapse_replicated_or_trap_if_copies_differ,
    Op.SLICE: evaluate_slice,
    Op.BITCAST: evaluate_bitcast,
    Op.REDUCE: evaluate_reduce_as_dot_if_sum_over_mul,
    Op.FUNCTION: take_function_body_results,
    Op.CALL: take_call_body_events,
    Op.TUPLE: evaluate_tuple,
    Op.GETTUPLE: take_tuple_element,
    Op.LOAD: evaluate_load,
    Op.STORE: evaluate_store,
    Op.AFTER: evaluate_after_as_ordered_buffer,
    Op.GROUP: collect_results,
    Op.SINK: collect_results,
    **dict.fromkeys(MEANING, evaluate_elementwise_on_best_operand_bits),
    **dict.fromkeys(MARKERS, pass_source_through),
}
HANDLERS.update(_HANDLERS)
