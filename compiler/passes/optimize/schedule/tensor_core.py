"""The TC OptOp: a sum of products by a tensor core's instruction (R93, R97: TC and its argument; R118, R119: fragments and value
of a Wmma; R142: tensor cores in a schedule).

`match_tensor_core_or_explain_mismatch` says how the Reduce over the OptOp's axis fits one of the machine's descriptors, or why it
does not. `tile_for_wmma_or_unrolled_reduce` transforms the schedule. The axes m, n and k of the product are split into M, N and K
of the descriptor and the rest. Outside the Reduce, m and n of a tile become what the lane map of C gives for lane t, a WARP loop,
and its element e, an UPCAST loop:

    out[m, n] = f(Reduce(Cast(A[m, k]) * Cast(B[k, n]), k))   becomes, with mode 1,

    acc[e] = 0 for all e; for each step of k: acc = Wmma(fragment of A, fragment of B, acc); out[m(t, e), n(t, e)] = f(acc[e])

A fragment is the Stack of the values that a lane holds by the lane maps of A and B; where the axes were padded, values beyond k
are 0. With mode 2 the axes are the same and the Reduce stays, over the steps and over K as an UNROLL loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from uops.compiler.ir.affine import index_constant
from uops.compiler.ir.buffers import highest_unique
from uops.compiler.ir.extents import constant_extent
from uops.compiler.ir.loops import sort_by_nesting
from uops.compiler.log import log_transform
from uops.compiler.passes.optimize.schedule.schedule import (
    Schedule,
    axis_of,
    next_id,
    pad_loop_and_mask_added_iterations,
    tile_index,
)
from uops.spec.ir import build as B
from uops.spec.ir.args import AddrSpace, BufferArg, LoadArg, RangeArg, WmmaArg
from uops.spec.ir.axes import OUTPUT_LOOPS, AxisType
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import open_ranges, ranges_closed_by
from uops.spec.optops import TC, Padto
from uops.spec.wmma import AffineLaneMap, Descriptor, LaneMap, MapDigit, find_descriptor


@dataclass(frozen=True, slots=True)
class TensorCoreMatch:
    """The Reduce `u` as a product for the instruction `arg`: `left` of rows m and `right` of columns n, without their Casts."""

    u: UOp
    arg: WmmaArg
    descriptor: Descriptor
    rows: UOp
    columns: UOp
    steps: UOp
    left: UOp
    right: UOp


def match_tensor_core_or_explain_mismatch(s: Schedule, opt: TC, descriptors: Sequence[WmmaArg]) -> TensorCoreMatch | str:
    """Return how the Reduce over an axis fits a descriptor, or the reason why it does not."""
    reduces = [r for r in s.ranges if r.arg.type is AxisType.REDUCE]
    if not 0 <= opt.axis < len(reduces):
        return f"expected one of {len(reduces)} reduce axes, got {opt.axis} (R97)"
    r = reduces[opt.axis]
    if r.bound.op is not Op.CONST:
        return "the extent of the reduce axis is symbolic, expected a constant (R97)"
    order = toposort(s.effect)
    needs = open_ranges(order)
    u = next(u for u in order if r in ranges_closed_by(u))
    product = _match_sum_of_products(u)
    if product is None:
        return "the kernel reduces no Mul(Cast(a), Cast(b)) (R93)"
    chosen = descriptors if opt.tc == -1 else descriptors[opt.tc : opt.tc + 1]
    attempts = [_match_descriptor_or_explain_mismatch(s, needs, u, r, product, arg, opt) for arg in chosen]
    match = next((m for m in attempts if isinstance(m, TensorCoreMatch)), None)
    return match or (str(attempts[0]) if attempts else "the target has no tensor core (R97)")


def _match_sum_of_products(u: UOp) -> tuple[UOp, UOp] | None:
    """Return the factors of a sum of products, or None for any other node."""
    if u.op is not Op.REDUCE or u.arg.op is not Op.ADD or u.operand.op is not Op.MUL:
        return None
    return u.operand.lhs, u.operand.rhs


def _match_descriptor_or_explain_mismatch(
    s: Schedule, open_loops: Mapping[UOp, frozenset[UOp]], reduce: UOp, reduce_loop: UOp, product_factors: tuple[UOp, UOp], arg:
    WmmaArg, opt: TC
) -> TensorCoreMatch | str:  # fmt: skip
    """Return how Reduce `reduce` over `reduce_loop` fits one descriptor, or the reason why it does not."""
    d = find_descriptor(arg)
    if d is None or not all(isinstance(m, AffineLaneMap) for m in (d.a, d.b, d.c)):
        return f"nothing is known of the fragments of {arg.name} (R118)"
    factors = [_strip_cast_from_input_dtype(f, d) for f in product_factors]
    if reduce.dtype is not d.dtype_out or any(f is None for f in factors):
        return f"{d.name} multiplies {d.dtype_in} into {d.dtype_out} (R93)"
    n, m, k = d.dims
    for left, right in (factors, factors[::-1]):
        assert left is not None and right is not None
        if reduce_loop not in open_loops[left] or reduce_loop not in open_loops[right]:
            return "one factor does not change with the reduce axis (R93)"
        rows = [x for x in _tileable_output_loops(s, open_loops[left] - open_loops[right]) if opt.opt == 2 or _divides(m, x)]
        columns = [x for x in _tileable_output_loops(s, open_loops[right] - open_loops[left]) if opt.opt == 2 or _divides(n, x)]
        if rows and columns and (opt.opt == 2 or _divides(k, reduce_loop)):
            return TensorCoreMatch(reduce, arg, d, rows[-1], columns[-1], reduce_loop, left, right)
    return f"N = {n}, M = {m} and K = {k} fit no axes of which each factor has its own (R93, R97)"


def _strip_cast_from_input_dtype(factor: UOp, d: Descriptor) -> UOp | None:
    """Return the factor in the descriptor's input dtype, before its Cast; None if it has another dtype."""
    if d.dtype_in is d.dtype_out:
        return factor if factor.dtype is d.dtype_in else None
    if factor.op is Op.CAST and factor.operand.dtype is d.dtype_in and factor.dtype is d.dtype_out:
        return factor.operand
    return None


def _tileable_output_loops(s: Schedule, ranges: frozenset[UOp]) -> list[UOp]:
    """Return the output loops among `ranges` that are parallel and have a constant extent."""
    parallel = [r for r in s.outputs if r in ranges and r.arg.type in OUTPUT_LOOPS and r.arg.axis_id not in s.ordered_ids]
    return [r for r in parallel if isinstance(axis_of(r).extent, int)]


def _divides(n: int, r: UOp) -> bool:
    """Return True if `n` divides the extent of `r`, which must be a constant."""
    extent = axis_of(r).extent
    return isinstance(extent, int) and extent % n == 0


# ------------------------------------------------------------------------------------------------------------------ transform


@dataclass(frozen=True, slots=True)
class _TensorCoreTile:
    """The loops of a tiled product: over the tiles of m, n and k, the lane, and the lane's element."""

    rows: UOp
    columns: UOp
    steps: UOp
    lane: UOp | None
    element: UOp


def tile_for_wmma_or_unrolled_reduce(s: Schedule, opt: TC, core_match: TensorCoreMatch) -> Schedule:
    """Tile the matched product for its tensor core, with padding where the axes need it."""
    d, (n, m, k) = core_match.descriptor, core_match.descriptor.dims
    s, padded = pad_product_loops(s, core_match, (m, n, k))
    u, rows, columns, steps = padded.reduce, padded.rows, padded.columns, padded.steps
    free = next_id(s)
    lane = make_loop(free, AxisType.WARP, d.threads) if d.threads > 1 else None
    element = make_loop(free + 1, AxisType.UPCAST, d.c.elements)
    tile = _TensorCoreTile(_make_tile_loop(rows, m), _make_tile_loop(columns, n), _make_tile_loop(steps, k), lane, element)
    if opt.mode == 1:
        result = _build_lane_element_of_wmma_sum(core_match, padded, tile, free + 2)
    else:
        inner = make_loop(free + 2, AxisType.UNROLL, k)
        loops = tuple(x for r in ranges_closed_by(u) for x in ((tile.steps, inner) if r is steps else (r,)))
        result = u.replace(src=(substitute(u.operand, {steps: tile_index(tile.steps, k, inner)}), *loops))
    row, column = build_element_row_and_column(d.c, lane, element)
    effect = substitute(s.effect, {u: result})
    effect = substitute(effect, {rows: tile_index(tile.rows, m, row), columns: tile_index(tile.columns, n, column)})
    tile_loops = {rows: tile.rows, columns: tile.columns}
    outputs = (*(tile_loops.get(r, r) for r in s.outputs), *((lane,) if lane is not None else ()), element)
    log_transform("tensor core", s.effect, effect, {u: result})
    return replace(s, effect=effect, outputs=outputs)


@dataclass(frozen=True, slots=True)
class PaddedProduct:
    """A matched Reduce after its loops were padded, and its loops of m, n and k."""

    reduce: UOp
    rows: UOp
    columns: UOp
    steps: UOp


def pad_product_loops(s: Schedule, core_match: TensorCoreMatch, sizes: tuple[int, int, int]) -> tuple[Schedule, PaddedProduct]:
    """Pad the loops of m, n and k to multiples of `sizes`, and return the schedule with the product in it."""
    ids = [int(r.arg.axis_id) for r in (core_match.rows, core_match.columns, core_match.steps)]
    for axis, size in zip(ids, sizes):
        s = pad_loop_and_mask_added_iterations(s, Padto(next(j for j, r in enumerate(s.ranges) if r.arg.axis_id == axis), size))
    rows, columns, steps = (next(r for r in s.ranges if r.arg.axis_id == axis) for axis in ids)
    u = next(u for u in toposort(s.effect) if u.op is Op.REDUCE and steps in ranges_closed_by(u))
    return s, PaddedProduct(u, rows, columns, steps)


def extract_uncast_factors_zeroed_in_k_padding(padded_reduce: UOp, core_match: TensorCoreMatch) -> tuple[UOp, UOp]:
    """Return A and B in the input dtype, with zeros where k was padded, of the matched Reduce after its loops were padded."""
    d, first = core_match.descriptor, core_match.u.operand.lhs
    swapped = first is not core_match.left and _strip_cast_from_input_dtype(first, d) is not core_match.left
    inside, product = None, padded_reduce.operand
    if product.op is Op.WHERE:  # k was padded
        inside, product = product.condition, product.if_true
    factors = product.src
    left, right = (_strip_cast_from_input_dtype(f, d) for f in (factors[::-1] if swapped else factors))
    assert left is not None and right is not None
    return _mask_padding(left, inside), _mask_padding(right, inside)


def _build_lane_element_of_wmma_sum(
    core_match: TensorCoreMatch, padded: PaddedProduct, tile: _TensorCoreTile, first_free_axis_id: int
) -> UOp:  # fmt: skip
    """Return the lane's element of the accumulator after all steps of Wmma. `first_free_axis_id` is the first free axis id."""
    reduce, d, (n, m, k) = padded.reduce, core_match.descriptor, core_match.descriptor.dims
    a, b = extract_uncast_factors_zeroed_in_k_padding(reduce, core_match)
    fragment_a, fragment_b = (
        UOp(Op.STACK, tuple(
            substitute(x, {axis_loop: tile_index(rest, size, at[major]), padded.steps: tile_index(tile.steps, k, at[1 - major])})
            for at in _lane_element_coordinates(lanes, tile.lane)
        ))
        for x, lanes, axis_loop, rest, size, major in (
            (a, d.a, padded.rows, tile.rows, m, 0), (b, d.b, padded.columns, tile.columns, n, 1),
        )
    )  # fmt: skip
    count = d.c.elements
    register = UOp(Op.BUFFER, (), BufferArg(count, d.dtype_out, "CPU", AddrSpace.REG, _FAR + highest_unique([reduce])))
    outer = open_ranges(toposort(reduce))[reduce] - {padded.rows, padded.columns} | {tile.rows, tile.columns}
    outer |= {tile.lane} if tile.lane else set()
    cleared = clear_register(register, sort_by_nesting(outer), first_free_axis_id)
    loops = tuple(tile.steps if r is padded.steps else r for r in ranges_closed_by(reduce))
    all_elements = UOp(Op.STACK, tuple(index_constant(e) for e in range(count)))
    accumulator = UOp(Op.INDEX, (B.after(register, cleared, *loops), all_elements))
    wmma = UOp(Op.WMMA, (fragment_a, fragment_b, UOp(Op.LOAD, (accumulator,), LoadArg())), core_match.arg)
    step = B.store(accumulator, wmma)
    return UOp(Op.LOAD, (UOp(Op.INDEX, (B.after(register, B.wrap_in_one_end_per_loop(step, loops)), tile.element)),), LoadArg())


def clear_register(register: UOp, loops: Sequence[UOp], axis_id: int) -> UOp:
    """Return the effect that stores 0 to each element of a REG Buffer, in every iteration of `loops`."""
    element = make_loop(axis_id, AxisType.UPCAST, int(register.arg.size))
    return UOp(Op.END, (B.store(UOp(Op.INDEX, (B.after(register, *loops), element)), B.const(0, register.dtype)), element))


#: Offset of the accumulator's number, beyond the numbers that are handed out one by one (R130: ids of memory inside a body).
_FAR = 1 << 16


def make_loop(axis: int, kind: AxisType, extent: int) -> UOp:
    """Return a loop of a constant extent."""
    return UOp(Op.RANGE, (index_constant(extent),), RangeArg(axis, kind))


def _make_tile_loop(r: UOp, size: int) -> UOp:
    """Return the loop over the tiles of a loop."""
    return UOp(Op.RANGE, (index_constant(constant_extent(r) // size),), r.arg)


def _mask_padding(x: UOp, inside: UOp | None) -> UOp:
    """Return `x`, or 0 where a padded k is out of bounds."""
    return x if inside is None else UOp(Op.WHERE, (inside, x, B.const(0, x.dtype)))


def build_element_row_and_column(lane_map: LaneMap, lane: UOp | None, element: UOp) -> tuple[UOp, UOp]:
    """Return the row and column that a lane holds as an element, as index expressions."""
    assert isinstance(lane_map, AffineLaneMap)
    row, column = index_constant(0), index_constant(0)
    for source, digits in ((lane, lane_map.lane), (element, lane_map.element)):
        weight = 1
        for digit in digits:
            if source is not None and digit.size > 1:
                part = _extract_digit(source, weight, digit)
                row, column = _add_scaled(row, part, digit.row), _add_scaled(column, part, digit.col)
            weight *= digit.size
    return row, column


def _extract_digit(source: UOp, weight: int, digit: MapDigit) -> UOp:
    """Return the mixed-radix digit of this weight."""
    quotient = source if weight == 1 else UOp(Op.IDIV, (source, index_constant(weight)))
    return UOp(Op.MOD, (quotient, index_constant(digit.size)))


def _add_scaled(total: UOp, part: UOp, step: int) -> UOp:
    """Return `total + part * step`, without zero terms."""
    if not step:
        return total
    term = part if step == 1 else UOp(Op.MUL, (part, index_constant(step)))
    return term if total is index_constant(0) else UOp(Op.ADD, (total, term))


def _lane_element_coordinates(m: LaneMap, lane: UOp | None) -> Iterator[tuple[UOp, UOp]]:
    """Yield the row and column of each element that a lane holds."""
    return (build_element_row_and_column(m, lane, index_constant(e)) for e in range(m.elements))
