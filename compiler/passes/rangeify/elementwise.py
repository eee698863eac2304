"""Elements of each op of a callified body, by elements of its sources.

`SOURCE_ELEMENTS[op](state, u, ref)` returns the elements that an element of `u` is computed from. A movement op with one source
element has an entry in `uops.compiler.ir.views.STEP` instead. `EXPRESSIONS[op](state, u, ref, parts)` builds the expression of the
element, given `parts`, the expressions of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from uops.compiler.ir.accumulators import reduction_identity
from uops.compiler.ir.affine import index_constant
from uops.compiler.ir.views import STEP, TRUE, ZERO
from uops.compiler.passes.rangeify.elements import bind_general_index
from uops.compiler.passes.rangeify.kernels import Element, ElementRef, clamp_to_placeholder_bounds, flat_param
from uops.compiler.passes.rangeify.state import RangeifyState
from uops.compiler.passes.rangeify.storage import as_bool, load_element_gated_unless_in_bounds_and_hoistable, reinterpret_as
from uops.compiler.rewrite.gates import split_conjuncts
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ReduceArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.derive.shape import dim_node
from uops.spec.ir.node import Dim, UOp, substitute, toposort
from uops.spec.ir.ops import ALU, Op

#: Expressions of the source elements of an element.
SourceExpressions = Sequence[UOp]


# Source elements


def _find_elementwise_sources(state: RangeifyState, u: UOp, ref: ElementRef) -> list[Element]:
    return [(s, state.align_ref(ref, s)) for s in u.src]


def _no_sources(state: RangeifyState, u: UOp, ref: ElementRef) -> list[Element]:
    return []


def _find_operand_source(state: RangeifyState, u: UOp, ref: ElementRef) -> list[Element]:
    return [(u.operand, ref)]


def _find_stack_sources(state: RangeifyState, u: UOp, ref: ElementRef) -> list[Element]:
    """Return every source at the inner index; only one if the outer index is constant."""
    outer, *coords = ref.coords
    inner = ref._replace(coords=tuple(coords))
    if outer.op is Op.CONST and 0 <= outer.arg.value < len(u.elements):
        return [(u.elements[outer.arg.value], inner)]
    return [(s, inner) for s in u.elements]


def _open_reduce_loops_and_find_sources(state: RangeifyState, u: UOp, ref: ElementRef) -> list[Element]:
    """Open a loop per reduced axis and return the operand's element in them; none for an empty operand."""
    if u in state.closed_reduces:
        return _open_loops_and_find_closed_form_leaves(state, u, ref)
    shape = u.operand.shape
    if 0 in shape:
        return []
    kernel = ref.kernel
    index = tuple(
        [kernel.new_loop_or_zero_index(shape[k], AxisType.REDUCE) if k in u.arg.axes else i for k, i in enumerate(ref.coords)]
    )
    kernel.record_loop_nest((index[k] for k in sorted(u.arg.axes)), frozenset(ref.enclosing_loops()))
    return [(u.operand, ref._replace(coords=index))]


def _open_loops_and_find_closed_form_leaves(state: RangeifyState, u: UOp, ref: ElementRef) -> list[Element]:
    """Open the remaining loops of a closed form and return its leaves.

    A leaf that the index or gate of another leaf depends on is replaced by a placeholder there.
    """
    form, indexing = state.closed_reduces[u], state.indexing
    loops = {r: ref.kernel.new_loop_or_zero_index(u.operand.shape[k], AxisType.REDUCE) for k, r in form.remaining_loops.items()}
    ref.kernel.record_loop_nest(
        (loops[form.remaining_loops[k]] for k in sorted(form.remaining_loops)), frozenset(ref.enclosing_loops())
    )
    bindings = state.index_bindings[u, ref] = {**bind_general_index(form, ref.coords), **loops}
    elements: dict[UOp, Element] = {}
    for leaf, (node, coords, gate) in form.leaves.items():
        used = dict.fromkeys(x for i in (*coords, gate) if i is not None for x in toposort(i))
        early = {x: state.make_placeholder(*elements[x]) for x in used if x in elements}
        replacements = {**bindings, **early}
        index = tuple(indexing.simplify(substitute(i, replacements)) for i in coords)
        own_gate = None if gate is None else indexing.drop_true_gate(indexing.simplify(substitute(gate, replacements)))
        elements[leaf] = node, ElementRef(ref.kernel, index, indexing.conjoin_gates(ref.gate, own_gate))
    return list(elements.values())


def _find_load_sources(state: RangeifyState, u: UOp, ref: ElementRef) -> list[Element]:
    """Return the buffer's element under the Load's gate, then alternative and gate if there are any (R52, Load)."""
    gate, alternative = u.gate, u.alternative
    if gate is None or alternative is None:
        return [(u.buffer, ref)]
    gate_ref = state.align_ref(ref, gate)
    both_gates = state.indexing.conjoin_gates(ref.gate, state.make_placeholder(gate, gate_ref))
    return [(u.buffer, ref._replace(gate=both_gates)), (alternative, state.align_ref(ref, alternative)), (gate, gate_ref)]


def _find_indexed_element_gated_in_range(state: RangeifyState, u: UOp, ref: ElementRef) -> list[Element]:
    """Return the operand's element at the positions. A position that is not provably in range gates the access (R45, Index)."""
    remaining, index, gate = ref.coords, [], ref.gate
    for operand, n in zip(u.positions, u.operand.shape):
        rank = len(operand.shape)
        coords, remaining = remaining[:rank], remaining[rank:]
        position, inside = build_axis_position_and_in_range_gate(state, operand, ref._replace(coords=coords), n)
        index.append(position)
        gate = state.indexing.conjoin_gates(gate, inside)
    return [(u.operand, ElementRef(ref.kernel, (*index, *remaining), gate))]


def build_axis_position_and_in_range_gate(
    state: RangeifyState, index_operand: UOp, ref: ElementRef, axis_extent: Dim
) -> tuple[UOp, UOp | None]:
    """Return the position that an element of an index operand names on an axis, and the gate under which it is in range."""
    is_wide_cast = index_operand.op is Op.CAST and index_operand.dtype is dt.index
    if is_wide_cast and (index_operand.operand.dtype is dt.uint64 or index_operand.operand.dtype.is_float):
        index_operand = index_operand.operand
    scalar = index_operand if index_operand.op is Op.CONST else state.make_placeholder(index_operand, ref)
    return state.indexing.index_on_axis_and_in_range_gate(scalar, axis_extent)


def _find_bitcast_sources(state: RangeifyState, u: UOp, ref: ElementRef) -> list[Element]:
    """Return the operand's elements that hold the bytes of an element, in little-endian order (R46, Bitcast and Slice)."""
    old_size, new_size = u.operand.dtype.itemsize, u.dtype.itemsize
    if old_size == new_size:
        return [(u.operand, ref)]
    *outer, j = ref.coords
    covering = _build_covering_operand_positions(state, j, old_size, new_size)
    return [(u.operand, ref._replace(coords=(*outer, k))) for k in covering]


def _find_elements_covering_slice_bytes(state: RangeifyState, u: UOp, ref: ElementRef) -> list[Element]:
    """Return the operand's elements that hold the bytes of an element, counted from `offset`."""
    (position,) = ref.coords
    covering = _build_covering_operand_positions(state, position, u.operand.dtype.itemsize, u.dtype.itemsize)
    n = dim_node(u.operand.shape[0])
    offset, inside = build_axis_position_and_in_range_gate(state, u.offset, ref._replace(coords=()), n)
    gate = state.indexing.conjoin_gates(ref.gate, inside)
    return [(u.operand, ref._replace(coords=(state.indexing.alu(Op.ADD, k, offset),), gate=gate)) for k in covering]


def _build_covering_operand_positions(
    state: RangeifyState, position: UOp, operand_itemsize: int, result_itemsize: int
) -> list[UOp]:
    """Return the positions of the elements of `operand_itemsize` bytes that the element of `result_itemsize` bytes at `position`
    lies in."""
    if result_itemsize <= operand_itemsize:
        return [state.indexing.alu(Op.IDIV, position, index_constant(operand_itemsize // result_itemsize))]
    ratio = index_constant(result_itemsize // operand_itemsize)
    return [
        state.indexing.alu(Op.ADD, UOp(Op.MUL, (position, ratio)), index_constant(k))
        for k in range(result_itemsize // operand_itemsize)
    ]


SOURCE_ELEMENTS: dict[Op, Callable[[RangeifyState, UOp, ElementRef], list[Element]]] = {
    **dict.fromkeys(ALU, _find_elementwise_sources),
    **dict.fromkeys((Op.CONST, Op.PARAM, Op.BINARY), _no_sources),
    Op.STACK: _find_stack_sources,
    Op.REDUCE: _open_reduce_loops_and_find_sources,
    Op.LOAD: _find_load_sources,
    Op.CONTIGUOUS: _find_operand_source,
    Op.INDEX: _find_indexed_element_gated_in_range,
    Op.BITCAST: _find_bitcast_sources,
    Op.SLICE: _find_elements_covering_slice_bytes,
}


# Expressions


def _build_op(state: RangeifyState, u: UOp, ref: ElementRef, sources: SourceExpressions) -> UOp:
    return UOp(u.op, tuple(sources), u.arg)


def _build_where(state: RangeifyState, u: UOp, ref: ElementRef, sources: SourceExpressions) -> UOp:
    condition, if_true, if_false = sources
    return UOp(Op.WHERE, (as_bool(condition), if_true, if_false))


def _pass_constant(state: RangeifyState, u: UOp, ref: ElementRef, sources: SourceExpressions) -> UOp:
    return u


def _load_param(state: RangeifyState, u: UOp, ref: ElementRef, sources: SourceExpressions) -> UOp:
    if u.arg.name is not None:
        return u
    return load_element_gated_unless_in_bounds_and_hoistable(flat_param(u), state.indexing.flatten(ref.coords, u.shape), ref.gate)


def _load_binary(state: RangeifyState, u: UOp, ref: ElementRef, sources: SourceExpressions) -> UOp:
    (position,) = ref.coords
    return load_element_gated_unless_in_bounds_and_hoistable(u, position, ref.gate)


def _select_stack_source(state: RangeifyState, u: UOp, ref: ElementRef, sources: SourceExpressions) -> UOp:
    """Choose the source that the outer index names."""
    *others, chosen = sources
    outer, *_ = ref.coords
    for k in range(len(others) - 1, -1, -1):
        chosen = UOp(Op.WHERE, (UOp(Op.CMPEQ, (outer, index_constant(k))), others[k], chosen))
    return chosen


def _select_element_or_pad_zero(state: RangeifyState, u: UOp, ref: ElementRef, sources: SourceExpressions) -> UOp:
    """Choose 0 outside of the operand, unless a gated Load gives 0 there anyway."""
    (element,) = sources
    gate = STEP[Op.PAD](state.indexing, u, ref.coords).gate or TRUE
    return element if _is_load_zero_outside_gate(element, gate) else UOp(Op.WHERE, (gate, element, B.const(0, u.dtype)))


def _is_load_zero_outside_gate(value: UOp, gate: UOp) -> bool:
    """Return True if `value` is a Load whose gate implies `gate`, so that it gives 0 wherever that is false (R52, Load)."""
    if value.op is not Op.LOAD or value.gate is None or value.alternative is not B.const(0, value.dtype):
        return False
    return set(split_conjuncts(gate)) <= set(split_conjuncts(value.gate))


def _build_reduce_or_closed_form(state: RangeifyState, u: UOp, ref: ElementRef, sources: SourceExpressions) -> UOp:
    """Reduce the operand's element over the loops of the reduced axes; a closed form over its remaining loops."""
    if u in state.closed_reduces:
        form = state.closed_reduces[u]
        bindings = state.index_bindings[u, ref]
        leaves = {leaf: clamp_to_placeholder_bounds(part, leaf) for leaf, part in zip(form.leaves, sources, strict=True)}
        value = substitute(form.value, {**bindings, **leaves})
        loops = [bindings[form.remaining_loops[k]] for k in sorted(form.remaining_loops)]
        return UOp(Op.REDUCE, (value, *loops), ReduceArg(u.arg.op)) if loops else value
    if not sources:
        return reduction_identity(u.arg.op, u.dtype)
    (element,) = sources
    ((_, operand_ref),) = state.source_elements[u, ref]
    ranges = [i for k, i in enumerate(operand_ref.coords) if k in u.arg.axes and i is not ZERO]
    return UOp(Op.REDUCE, (element, *ranges), ReduceArg(u.arg.op)) if ranges else element


def _select_loaded_or_alternative(state: RangeifyState, u: UOp, ref: ElementRef, sources: SourceExpressions) -> UOp:
    element, *operands = sources
    if not operands:
        return element
    alternative, gate = operands
    return UOp(Op.WHERE, (gate, element, alternative))


def _pass_through(state: RangeifyState, u: UOp, ref: ElementRef, sources: SourceExpressions) -> UOp:
    (element,) = sources
    return element


def _extract_or_join_bits(state: RangeifyState, u: UOp, ref: ElementRef, sources: SourceExpressions) -> UOp:
    """Build the element of a Bitcast or Slice: the bits of an operand's element, a field of them, or several joined."""
    old, new = u.operand.dtype, u.dtype
    if old.itemsize == new.itemsize:
        (element,) = sources
        return reinterpret_as(element, new)
    bits = [reinterpret_as(p, old.word) for p in sources]
    if new.itemsize < old.itemsize:
        (whole_bits,) = bits
        ratio = index_constant(old.itemsize // new.itemsize)
        count = B.cast(UOp(Op.MUL, (UOp(Op.MOD, (ref.coords[-1], ratio)), index_constant(new.bits))), whole_bits.dtype)
        return reinterpret_as(B.cast(UOp(Op.SHR, (whole_bits, count)), new.word), new)
    whole = new.word
    joined = B.cast(bits[0], whole)
    for k, b in enumerate(bits[1:], 1):
        joined = UOp(Op.OR, (joined, UOp(Op.SHL, (B.cast(b, whole), B.const(k * old.bits, whole)))))
    return reinterpret_as(joined, new)


EXPRESSIONS: dict[Op, Callable[[RangeifyState, UOp, ElementRef, SourceExpressions], UOp]] = {
    **dict.fromkeys(ALU, _build_op),
    **dict.fromkeys(STEP, _pass_through),
    **dict.fromkeys((Op.CONTIGUOUS, Op.INDEX), _pass_through),
    **dict.fromkeys((Op.BITCAST, Op.SLICE), _extract_or_join_bits),
    Op.WHERE: _build_where,
    Op.CONST: _pass_constant,
    Op.PARAM: _load_param,
    Op.BINARY: _load_binary,
    Op.STACK: _select_stack_source,
    Op.PAD: _select_element_or_pad_zero,
    Op.REDUCE: _build_reduce_or_closed_form,
    Op.LOAD: _select_loaded_or_alternative,
}
