"""The strict level: one rule per op, from the sets of its operands to the set of its result.

A rule takes the overlay, the scope, the node and its cell. It gives the node's set, or None where the cell is the only result.
`apply_op_at_strict_level` is a function of the operands' sets alone, so that the core level can build decompositions from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uops.interp.allowed import index
from uops.interp.allowed.elementwise import branch
from uops.interp.allowed.elementwise.arithmetic import RULES as ARITHMETIC
from uops.interp.allowed.elementwise.arithmetic import allow_either_zero_in_exact_max, apply_float_arithmetic_to_sets
from uops.interp.allowed.elementwise.discrete import apply_to_point_combinations_or_allow_any
from uops.interp.allowed.elementwise.power import apply_pow
from uops.interp.allowed.elementwise.transcendental import APPROXIMATIONS, apply_transcendental_with_ulp_error
from uops.interp.allowed.layout import LAYOUT, LAYOUT_BY_NUMPY, Array, DTypeLayout, same_bits_or_both_nan
from uops.interp.allowed.move import MOVES, apply_movement, stack_values
from uops.interp.allowed.overlay import LevelRules, Overlay, Rule
from uops.interp.allowed.reduce import (
    reduce_add_floats,
    reduce_bools_or_integers_any_if_several_inexact,
    reduce_max_floats,
    reduce_mul_floats,
)
from uops.interp.allowed.value import (
    ArrayOrSets,
    SetArray,
    allow_anything,
    as_set_array,
    best_of,
    broadcast_and_take_flat_elements,
    broadcast_value,
    from_points_widening_to_hull_or_any,
    negate_float_set,
    writable_copy,
)
from uops.interp.ops.elementwise import KERNELS
from uops.interp.ops.reduce import FOLDS
from uops.interp.ops.rounding import CASTS
from uops.interp.tensor.memory import StorageRef, shape_of
from uops.interp.tensor.scope import TensorScope
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ALU as ALU_OPS
from uops.spec.ir.ops import BITWISE, COMPARE, DIVISION, MARKERS, SHIFT, Op
from uops.spec.rows.accuracy import SEVERAL_RESULTS

_ndarray = np.ndarray
BOOL = LAYOUT[dt.bool_]
#: (op, layout of the operands, operands) -> the set of an elementwise op at some level
ApplyOp = Callable[[Op, DTypeLayout, Sequence[ArrayOrSets]], ArrayOrSets]


# Elementwise, of operands


def all_exact(values: Sequence[ArrayOrSets]) -> bool:
    """Return True if every value is an array: one result per element."""
    return all(v.__class__ is _ndarray for v in values)


def _evaluate_exact(op: Op, f: DTypeLayout, values: Sequence[ArrayOrSets]) -> Array:
    """Evaluate an op on operands that have one value each."""
    return np.asarray(KERNELS[op][f.dtype](*values))


def apply_op_at_strict_level(op: Op, f: DTypeLayout, values: Sequence[ArrayOrSets]) -> ArrayOrSets:
    """Return the strict set of an elementwise op other than Cast, on operands of layout `f` (for Where, of its branches)."""
    if op is Op.WHERE:
        return branch.select_or_unite_branches(f, condition_to_bool(values[0]), values[1], values[2])
    if not f.is_float:
        return _evaluate_exact(op, f, values) if all_exact(values) else _apply_to_integer_sets(op, f, values)
    if op in APPROXIMATIONS:
        return apply_transcendental_with_ulp_error(op, f, KERNELS[op][f.dtype], values[0])
    if op is Op.POW:
        return apply_pow(f, KERNELS[op][f.dtype], values)
    if all_exact(values):
        best = _evaluate_exact(op, f, values)
        return allow_either_zero_in_exact_max(f, values[0], values[1], best) if op is Op.MAX else best  # type: ignore[arg-type]
    if op in COMPARE:
        return branch.compare_floats(op, f, BOOL, KERNELS[op][f.dtype], values)
    if op is Op.TRUNC:
        return branch.apply_trunc_listing_few_integers(f, KERNELS[op][f.dtype], as_set_array(f, values[0]))
    return apply_float_arithmetic_to_sets(op, f, KERNELS[op][f.dtype], values)


def _apply_to_integer_sets(op: Op, f: DTypeLayout, values: Sequence[ArrayOrSets]) -> ArrayOrSets:
    """Return the set of an op on integers or bools of which some are sets."""
    return apply_to_point_combinations_or_allow_any(BOOL if op in COMPARE else f, KERNELS[op][f.dtype], values)


def condition_to_bool(p: ArrayOrSets) -> ArrayOrSets:
    """Return a Where's condition as bools: a condition means CmpNe(P, 0) (R14)."""
    f = p.layout if isinstance(p, SetArray) else LAYOUT_BY_NUMPY[p.dtype]
    if f is BOOL:
        return p
    zero = np.zeros((), f.np)
    if isinstance(p, SetArray) and not f.is_float:
        return apply_to_point_combinations_or_allow_any(BOOL, KERNELS[Op.CMPNE][f.dtype], (p, zero))
    return branch.compare_floats(Op.CMPNE, f, BOOL, KERNELS[Op.CMPNE][f.dtype], (p, zero))


def apply_strict_cast(f: DTypeLayout, r: DTypeLayout, value: ArrayOrSets) -> ArrayOrSets:
    """Return the strict set of a Cast from layout `f` to layout `r`."""
    fn = CASTS[f.dtype, r.dtype]
    return branch.cast_set_by_layouts(f, r, fn, value) if isinstance(value, SetArray) else np.asarray(fn(value))


def unite_sets(f: DTypeLayout, set_with_best: ArrayOrSets, added: ArrayOrSets) -> ArrayOrSets:
    """Return the union of two values of one shape, with the best values of `set_with_best`."""
    if not isinstance(set_with_best, SetArray) and not isinstance(added, SetArray):
        same = same_bits_or_both_nan(f, set_with_best, added).all() if f.is_float else np.array_equal(set_with_best, added)
        return set_with_best if same else from_points_widening_to_hull_or_any(f, np.stack([set_with_best, added]))
    every = np.arange(int(np.prod(set_with_best.shape)))
    x, y = (
        broadcast_and_take_flat_elements(f, set_with_best, set_with_best.shape, every),
        broadcast_and_take_flat_elements(f, added, set_with_best.shape, every),
    )
    shape = set_with_best.shape
    return branch.unite_1d_sets_with_best(f, x, y, x.best).map_components(lambda c, lead: c.reshape(c.shape[:lead] + shape))


# Rules of elementwise nodes


def operand_layout(u: UOp) -> DTypeLayout:
    """Return the layout of an elementwise node's operands, for Where of its branches."""
    return LAYOUT[u.if_true.dtype if u.op is Op.WHERE else u.src[0].dtype]  # operand, lhs


def _evaluate_alu(overlay: Overlay, scope: TensorScope, u: UOp, cell: Any) -> ArrayOrSets:
    op, f = u.op, operand_layout(u)
    values = [overlay.set_of_node_loading_reference(scope, s) for s in u.src]
    if op in COMPARE and u.lhs is u.rhs and f.is_float and isinstance(values[0], SetArray):
        return branch.compare_with_itself(KERNELS[op][f.dtype], values[0], BOOL)
    return apply_op_at_strict_level(op, f, values)


def _evaluate_max_unless_surely_exact(overlay: Overlay, scope: TensorScope, u: UOp, cell: Any) -> ArrayOrSets | None:
    """Evaluate a Max node; exact operands need no work unless some result is a float zero (R11: either zero is allowed)."""
    if overlay.has_exact_sources(scope, u) and (not u.dtype.is_float or cell.all()):
        return None
    return _evaluate_alu(overlay, scope, u, cell)


def _evaluate_add_sub_with_contraction(overlay: Overlay, scope: TensorScope, u: UOp, cell: Any) -> ArrayOrSets | None:
    """Evaluate an Add or Sub node.

    A sum with a product may be rounded once (R16: contraction). So where an operand is a Mul, seen through movement, both
    roundings are in the set.
    """
    unfused = None if overlay.has_exact_sources(scope, u) else _evaluate_alu(overlay, scope, u, cell)
    if not u.dtype.is_float:
        return unfused
    return unite_with_fused_sums(overlay, scope, u, cell if unfused is None else unfused, apply_op_at_strict_level)


def unite_with_fused_sums(overlay: Overlay, scope: TensorScope, u: UOp, unfused: ArrayOrSets, apply_op: ApplyOp) -> ArrayOrSets:
    """Return the union of an Add's or Sub's `unfused` sums with those that `apply_op` fuses from an operand that is a Mul."""
    f, united = LAYOUT[u.dtype], unfused
    for k, s in enumerate(u.src):
        for a, b in overlay.list_factors_if_moved_or_negated_mul(scope, s):
            addend = overlay.set_of_node_loading_reference(scope, u.rhs if k == 0 else u.lhs)
            if u.op is Op.SUB:
                a, addend = (a, negate_float_set(addend)) if k == 0 else (negate_float_set(a), addend)
            fused = apply_op(Op.MULACC, f, (a, b, addend))
            united = unite_sets(f, united, broadcast_value(fused, united.shape))
    return united


def _evaluate_cast(overlay: Overlay, scope: TensorScope, u: UOp, cell: Any) -> ArrayOrSets:
    return apply_strict_cast(LAYOUT[u.operand.dtype], LAYOUT[u.dtype], overlay.set_of_node_loading_reference(scope, u.operand))


# Rules of all other nodes


def _evaluate_reduce(overlay: Overlay, scope: TensorScope, u: UOp, cell: Any) -> ArrayOrSets | None:
    f, axes, op = LAYOUT[u.dtype], u.arg.axes, u.arg.op
    if not f.is_float and overlay.has_exact_sources(scope, u):
        return None
    v = overlay.set_of_node_loading_reference(scope, u.operand)
    if not axes or 0 in v.shape:
        return v if not axes else None
    if not f.is_float:
        assert isinstance(v, SetArray)
        fold = FOLDS[op][u.dtype]
        return reduce_bools_or_integers_any_if_several_inexact(op, f, lambda x: np.asarray(fold(x, axes)), v, axes)
    if op is Op.ADD:
        return reduce_add_floats(f, v, axes, cell, overlay.list_factors_if_moved_or_negated_mul(scope, u.operand))
    return reduce_mul_floats(f, v, axes, cell) if op is Op.MUL else reduce_max_floats(f, v, axes, cell)


def _is_view(overlay: Overlay, scope: TensorScope, viewed: UOp, cell: Any) -> bool:
    """Return True if a node's cell is a view of known elements of `viewed`: it has no set of its own."""
    return cell.__class__ is StorageRef and viewed not in overlay.inexact[scope]


def _cell_array_or_zeros_if_unread(u: UOp, cell: Any) -> Array:
    """Return the array of a cell, or zeros of its shape for a view that was never read as a value."""
    if cell.__class__ is not StorageRef:
        return cell  # type: ignore[no-any-return]
    return cell.value if cell.value is not None else np.zeros(shape_of(cell), LAYOUT[u.dtype].np)


def _evaluate_movement_unless_view(overlay: Overlay, scope: TensorScope, u: UOp, cell: Any) -> ArrayOrSets | None:
    if _is_view(overlay, scope, u.operand, cell):
        return None
    cell = _cell_array_or_zeros_if_unread(u, cell)
    return apply_movement(
        u, overlay.set_of_node_loading_reference(scope, u.operand), cell.shape, overlay.read_movement_operands_after_data(scope, u)
    )


def _evaluate_index_uniting_possible_positions(overlay: Overlay, scope: TensorScope, u: UOp, cell: Any) -> ArrayOrSets | None:
    positions = [overlay.set_of_node_loading_reference(scope, s) for s in u.positions]
    exact_positions = all_exact(positions)
    if exact_positions and _is_view(overlay, scope, u.operand, cell):
        return None
    f = LAYOUT[u.dtype]
    if cell.__class__ is StorageRef:
        cell = _cell_array_or_zeros_if_unread(u, cell)
        storage = scope.cells[u.operand].storage
        if storage.writes or storage.ready is not None:  # other elements had contents that the machine does not keep, or none
            return allow_anything(f, cell)
    v = overlay.set_of_node_loading_reference(scope, u.operand)
    if exact_positions:
        return apply_movement(u, v, cell.shape, positions)  # type: ignore[arg-type]
    return index.gather_elements_at_all_possible_positions(f, u, v, positions, cell.shape)


def _evaluate_stack(overlay: Overlay, scope: TensorScope, u: UOp, cell: Any) -> ArrayOrSets:
    return stack_values(LAYOUT[u.dtype], [overlay.set_of_node_loading_reference(scope, s) for s in u.src])


def _pass_source_through(overlay: Overlay, scope: TensorScope, u: UOp, cell: Any) -> ArrayOrSets | None:
    """Return the set of the first source, which an After or a marker keeps."""
    source = u.buffer if u.op is Op.AFTER else u.operand
    return None if _is_view(overlay, scope, source, cell) else overlay.set_of_node_loading_reference(scope, source)


def _evaluate_load_any_if_memory_gate_inexact(overlay: Overlay, scope: TensorScope, u: UOp, cell: Any) -> ArrayOrSets:
    if u.gate is None or u.alternative is None:
        return overlay.set_of_node_loading_reference(scope, u.buffer)
    f = LAYOUT[u.dtype]
    alternative, gate = (
        overlay.set_of_node_loading_reference(scope, u.alternative),
        overlay.set_of_node_loading_reference(scope, u.gate),
    )
    source = scope.cells[u.buffer]
    if source.__class__ is not StorageRef:
        return branch.select_or_unite_branches(f, gate, overlay.set_of_node_loading_reference(scope, u.buffer), alternative)
    loaded = overlay.inexact[scope].get(u.buffer)  # a view through an inexact index
    if loaded is None:
        contents = overlay.memory_sets_before(source.storage, overlay.access_number(scope, u))
        loaded = None if contents is None else contents.read_sets(source, cell)
    chosen = branch.select_by_exact_condition(f, best_of(gate), cell if loaded is None else loaded, alternative)
    if not isinstance(gate, SetArray):
        return chosen
    return branch.select_by_exact_condition(f, np.broadcast_to(gate.exact_mask(), cell.shape), chosen, allow_anything(f, cell))


def _evaluate_bitcast_with_free_nan_bits(overlay: Overlay, scope: TensorScope, u: UOp, cell: Any) -> ArrayOrSets | None:
    """Evaluate a Bitcast node: the bits of a NaN made by arithmetic are free (R20)."""
    if _is_view(overlay, scope, u.operand, cell):
        return None
    cell = _cell_array_or_zeros_if_unread(u, cell)
    f, r = LAYOUT[u.operand.dtype], LAYOUT[u.dtype]
    v = overlay.set_of_node_loading_reference(scope, u.operand)
    if not isinstance(v, SetArray):
        if not f.is_float or not np.isnan(v).any() or overlay.nan_bits_come_only_from_inputs(scope, u.operand):
            return None
        v = as_set_array(f, v)
    return branch.apply_bitcast_regrouping_last_axis(f, r, writable_copy(v)).map_components(
        lambda x, lead: x.reshape(x.shape[:lead] + cell.shape)
    )


def _evaluate_slice_unless_exact_or_view(overlay: Overlay, scope: TensorScope, u: UOp, cell: Any) -> ArrayOrSets | None:
    if _is_view(overlay, scope, u.operand, cell):
        return None
    cell = _cell_array_or_zeros_if_unread(u, cell)
    v = overlay.set_of_node_loading_reference(scope, u.operand)
    f, r = LAYOUT[u.operand.dtype], LAYOUT[u.dtype]
    first = int(overlay.read_movement_operands_after_data(scope, u)[0])
    size = u.arg.size
    if not isinstance(v, SetArray):
        return None
    if f is r:
        return v.map_components(lambda x, lead: x[..., first : first + size])
    return _allow_anything_where_slice_has_inexact_bytes(f, r, v, first, size, cell)


def _allow_anything_where_slice_has_inexact_bytes(
    f: DTypeLayout, r: DTypeLayout, v: SetArray, first: int, size: int, cell: Array
) -> ArrayOrSets | None:
    """Return the set of a Slice through another item size: any value where a byte belongs to an element with several."""
    old, new = f.np.itemsize, r.np.itemsize
    inexact_bytes = np.repeat(~v.exact_mask(), old)[first * old : first * old + size * new]
    anything = np.asarray(inexact_bytes.reshape(size, new).any(1))
    return allow_anything(r, cell, anything) if anything.any() else None


def _evaluate_store(overlay: Overlay, scope: TensorScope, u: UOp, cell: Any) -> None:
    overlay.replay_store(scope, u)


# fmt: off
#: op -> its strict rule
STRICT_RULES: dict[Op, Rule] = {
    **dict.fromkeys(ALU_OPS, _evaluate_alu),
    Op.ADD: _evaluate_add_sub_with_contraction, Op.SUB: _evaluate_add_sub_with_contraction,
    Op.MAX: _evaluate_max_unless_surely_exact, Op.CAST: _evaluate_cast,
    Op.REDUCE: _evaluate_reduce,
    **dict.fromkeys(MOVES, _evaluate_movement_unless_view),
    Op.INDEX: _evaluate_index_uniting_possible_positions, Op.STACK: _evaluate_stack, Op.SLICE: _evaluate_slice_unless_exact_or_view,
    Op.BITCAST: _evaluate_bitcast_with_free_nan_bits,
    Op.LOAD: _evaluate_load_any_if_memory_gate_inexact, Op.AFTER: _pass_source_through,
    **dict.fromkeys(MARKERS, _pass_source_through),
    Op.STORE: _evaluate_store,
}
# fmt: on
#: Ops whose results may be sets although every operand is exact.
EVALUATED_WHEN_EXACT = SEVERAL_RESULTS | {Op.ADD, Op.SUB, Op.REDUCE, Op.BITCAST, Op.STORE}
STRICT = LevelRules(STRICT_RULES, EVALUATED_WHEN_EXACT)
#: Elementwise ops with a rule of their own in `apply_op_at_strict_level`, or beside it, and those that take no floats.
_OTHER_RULES = COMPARE | {Op.WHERE, Op.CAST, Op.TRUNC, Op.POW} | BITWISE | SHIFT | DIVISION | {Op.NOT, Op.THREEFRY, Op.MIN}
assert ARITHMETIC.keys() | APPROXIMATIONS.keys() | _OTHER_RULES == ALU_OPS, (
    "interp/allowed/elementwise/arithmetic.py or interp/allowed/elementwise/transcendental.py: "
    f"add a rule for {ALU_OPS - ARITHMETIC.keys() - APPROXIMATIONS.keys() - _OTHER_RULES}"
)
