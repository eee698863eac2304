"""Pieces of shaped values: the elements that a native vector holds, and index vectors as sums.

A piece of a value is a tuple of flat, row-major positions, one per lane. Lanes that all hold one element are one lane. Reshape
keeps flat positions; any other movement op is a table from positions of the result to positions of the operand.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from operator import add, mul
from typing import NamedTuple

import numpy as np

from uops.compiler.ir.affine import extract_affine_sum
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ConstArg
from uops.spec.ir.derive.shape import shape_operand_dims
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import RESHAPING, Op
from uops.spec.ir.scope import strip_afters

#: Flat positions, one per lane; a scalar has the piece (0,).
LanePositions = tuple[int, ...]
SCALAR: LanePositions = (0,)
#: Position of an element that Pad adds, which the operand does not have.
NOTHING = -1
#: Movement ops that change flat positions.
MOVEMENT = RESHAPING - {Op.RESHAPE}


def size(u: UOp) -> int:
    """Return the number of elements of a value."""
    return math.prod(u.shape)


def merge_equal_lanes(lane_positions: LanePositions) -> LanePositions:
    """Return a piece whose lanes all hold one element as a piece of one lane."""
    first = lane_positions[0]
    return lane_positions if len(lane_positions) == 1 or lane_positions.count(first) < len(lane_positions) else (first,)


def index_of(access: UOp) -> UOp:
    """Return the positions operand of a Load or Store."""
    buffer = access.src[0]  # buffer
    index = buffer if buffer.op is Op.INDEX else strip_afters(buffer)
    return index.src[1]  # the one position


def is_splat(u: UOp) -> bool:
    """Return True if `u` is a Stack of one scalar in every lane."""
    return u.op is Op.STACK and u.src.count(u.src[0]) == len(u.src)  # elements


def map_to_operand_positions(movement: UOp) -> list[int]:
    """Return, for each position of a movement op, the position in its operand."""
    shape = movement.operand.shape
    at = np.arange(math.prod(shape)).reshape(shape)
    if movement.op is Op.EXPAND:
        at = np.broadcast_to(at, movement.shape)
    elif movement.op is Op.PERMUTE:
        at = at.transpose(movement.arg.order)
    elif movement.op is Op.FLIP:
        at = at[tuple(slice(None, None, -1 if f else 1) for f in movement.arg.flags)]
    elif movement.op is Op.SHRINK:
        at = at[tuple(slice(o, o + n) for o, n in zip(shape_operand_dims(movement.offsets), movement.shape, strict=True))]
    else:
        padded = np.full(movement.shape, NOTHING)
        padded[tuple(slice(o, o + n) for o, n in zip(shape_operand_dims(movement.offsets), shape, strict=True))] = at
        at = padded
    positions: list[int] = at.reshape(-1).tolist()
    return positions


def group_reduced_positions(reduce: UOp) -> list[list[int]]:
    """Return, for each position of a Reduce over axes, the positions that it combines, in row-major order."""
    shape, axes = reduce.operand.shape, reduce.arg.axes
    kept = [k for k in range(len(shape)) if k not in axes]
    at = np.arange(math.prod(shape)).reshape(shape).transpose((*kept, *axes))
    groups: list[list[int]] = at.reshape(math.prod(shape[k] for k in kept), -1).tolist()
    return groups


@functools.lru_cache(maxsize=512)
def constant_vector(values: tuple[int, ...], d: DType = dt.int32) -> UOp:
    """Return a vector of constants; the scalar for one value."""
    scalars = [UOp(Op.CONST, (), ConstArg(k, d)) for k in values]
    return scalars[0] if len(scalars) == 1 else UOp(Op.STACK, tuple(scalars))


@functools.lru_cache(maxsize=128)
def whole_buffer_index(w: int) -> UOp:
    """Return the index of all elements of a Buffer of `w`, in the form of a contiguous access."""
    return constant_vector((0,)) if w == 1 else UOp(Op.ADD, (constant_vector((0,) * w), constant_vector(tuple(range(w)))))


#: A scalar in an index sum: (value, position of the element).
Term = tuple[UOp, int]


class IndexLanes(NamedTuple):
    """The lanes of an index vector, as constant + sum of coefficient * term.

    There is one constant per lane, or one for all lanes. A coefficient is a tuple only where the lanes differ.
    """

    terms: dict[Term, int | tuple[int, ...]]
    constant: tuple[int, ...]

    @property
    def constant_lane_offsets(self) -> tuple[int, ...] | None:
        """Distance of each lane from the first; None if it is not constant."""
        if tuple in map(type, self.terms.values()):
            return None
        return _offsets_from_first(self.constant)


@functools.lru_cache(maxsize=512)
def _offsets_from_first(lanes: tuple[int, ...]) -> tuple[int, ...]:
    first = lanes[0]
    return tuple([c - first for c in lanes])


def _broadcast_lanes(k: int | tuple[int, ...], n: int) -> tuple[int, ...]:
    return (k,) * n if isinstance(k, int) else k if len(k) == n else k * n


def _add_broadcast_coefficients(a: int | tuple[int, ...], b: int | tuple[int, ...]) -> int | tuple[int, ...]:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    n = max(1 if isinstance(x, int) else len(x) for x in (a, b))
    return tuple(map(add, _broadcast_lanes(a, n), _broadcast_lanes(b, n)))


def _add_constants(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    if len(a) == 1 == len(b):
        return (a[0] + b[0],)
    n = max(len(a), len(b))
    return tuple(map(add, _broadcast_lanes(a, n), _broadcast_lanes(b, n)))


def _scale_coefficient(k: int | tuple[int, ...], factors: tuple[int, ...]) -> int | tuple[int, ...]:
    if len(factors) == 1:
        return k * factors[0] if isinstance(k, int) else tuple([x * factors[0] for x in k])
    return tuple(map(mul, _broadcast_lanes(k, len(factors)), factors))


class IndexSums:
    """The index values of one kernel as sums, piece by piece, memoized.

    A sum is used only if `integer_dtype` holds all that computes it (R08, index dtype). Multiplied out, a sum may need wider
    integers than the value that spells it: (n - 70000) * 70000 has the constant -4900000000. Such a value is computed as it stands.
    """

    def __init__(self, integer_dtype: DType) -> None:
        self.least, self.most = integer_dtype.min, integer_dtype.max
        self.position_tables: dict[UOp, list[int]] = {}
        self.lanes: dict[tuple[UOp, LanePositions], IndexLanes | None] = {}
        self.scalars: dict[UOp, IndexLanes] = {}

    def map_positions_to_operand(self, movement: UOp, lane_positions: LanePositions) -> LanePositions:
        """Return the piece of the operand that a piece of a movement op is; it may contain NOTHING."""
        at = self.position_tables.get(movement)
        if at is None:
            at = self.position_tables[movement] = (
                [] if movement.op is Op.EXPAND and size(movement.operand) == 1 else map_to_operand_positions(movement)
            )
        if not at:  # every element is the operand's only one
            return SCALAR
        return merge_equal_lanes(tuple(map(at.__getitem__, lane_positions)))

    def trace_below_movement_except_pad(self, u: UOp, lane_positions: LanePositions) -> tuple[UOp, LanePositions]:
        """Return the value and piece below a chain of movement ops, as far as the first Pad."""
        while u.op is Op.RESHAPE or (u.op in MOVEMENT and u.op is not Op.PAD):
            lane_positions = lane_positions if u.op is Op.RESHAPE else self.map_positions_to_operand(u, lane_positions)
            u = u.src[0]  # operand
        return u, lane_positions

    def derive_index_lanes_if_affine(self, index_value: UOp, lane_positions: LanePositions) -> IndexLanes | None:
        """Return the lanes of a piece of an index value; None if they are no sums of scalars that the machine integer holds.

        One lane always is a sum, and so is a value of shape (), if only of one term.
        """
        index_value, lane_positions = self.trace_below_movement_except_pad(
            index_value, lane_positions if index_value.shape else SCALAR
        )
        key = (index_value, lane_positions)
        if key not in self.lanes:
            lanes = (
                self._derive_scalar_lane(index_value)
                if index_value.shape == ()
                else self._derive_stack_or_combined_lanes(index_value, lane_positions)
            )
            if lanes is not None and lanes.terms and not self._fits_machine_integer(lanes):
                lanes = None
            self.lanes[key] = (
                IndexLanes({(index_value, lane_positions[0]): 1}, (0,)) if lanes is None and len(lane_positions) == 1 else lanes
            )
        return self.lanes[key]

    def _fits_machine_integer(self, lanes: IndexLanes) -> bool:
        """Return True if the machine integer holds every number that computes the lanes.

        These are coefficients, products, sums of the first terms, constants, and offsets of lanes from the first. The bounds are
        those of all lanes together.
        """
        if self._is_within_half_of_machine_integer(lanes):
            return True
        low: float = 0  # bounds of the sum of the first terms
        high: float = 0
        for (u, _), k in lanes.terms.items():
            factors = (k,) if isinstance(k, int) else (min(k), max(k))
            least, most = u.min_max or (dt.index.min, dt.index.max)
            products = [f * bound for f in factors for bound in (least, most)]
            smallest, greatest = min(products), max(products)
            low, high = low + smallest, high + greatest
            if self.least > min(low, smallest, factors[0]) or max(high, greatest, factors[-1]) > self.most:
                return False
        first, least, most = lanes.constant[0], min(lanes.constant), max(lanes.constant)
        return self.least <= min(least, least - first, low + least) and max(most, most - first, high + most) <= self.most

    def _is_within_half_of_machine_integer(self, lanes: IndexLanes) -> bool:
        """Return True if all these numbers are, by their absolute values: a test that is quick, and mostly enough."""
        constant = lanes.constant
        total: float = max(constant[0], -constant[0]) if len(constant) == 1 else max(max(constant), -min(constant))
        for (u, _), k in lanes.terms.items():
            least, most = u.min_max or (dt.index.min, dt.index.max)
            largest = abs(k) if isinstance(k, int) else max(max(k), -min(k))
            total += largest * max(most, -least, 1)
        return 2 * total <= self.most

    def _derive_scalar_lane(self, u: UOp) -> IndexLanes:
        if u not in self.scalars:
            s = extract_affine_sum(u)
            self.scalars[u] = IndexLanes({(t, 0): k for t, k in s.terms.items()}, (s.constant,))
        return self.scalars[u]

    def _derive_stack_or_combined_lanes(self, u: UOp, lane_positions: LanePositions) -> IndexLanes | None:
        if u.op is Op.STACK:
            return self._derive_stack_lanes(u, lane_positions)
        if u.op in _COMBINE:
            parts = [self.derive_index_lanes_if_affine(s, lane_positions) for s in u.src]
            sums = [p for p in parts if p is not None]
            return _COMBINE[u.op](*sums) if len(sums) == len(parts) else None
        return None

    def _derive_stack_lanes(self, stack: UOp, lane_positions: LanePositions) -> IndexLanes | None:
        constants = stack.constants_of_stack
        if constants is not None:
            return IndexLanes({}, tuple(map(constants.__getitem__, lane_positions)))
        elements = stack.elements
        if elements[0].shape != () or stack.dtype is not dt.index:
            return None
        lanes = [self._derive_scalar_lane(elements[p]) for p in lane_positions]
        terms = dict.fromkeys(t for lane in lanes for t in lane.terms)
        sums = {t: tuple([int(lane.terms.get(t, 0)) for lane in lanes]) for t in terms}  # type: ignore[arg-type]
        constant = tuple([lane.constant[0] for lane in lanes])
        return IndexLanes(_normalize_coefficients(sums), constant)


def _normalize_coefficients(terms: Mapping[Term, int | tuple[int, ...]]) -> dict[Term, int | tuple[int, ...]]:
    """Return the terms with one coefficient where all lanes have the same, and without those whose coefficients are 0."""
    merged = {t: k[0] if isinstance(k, tuple) and k.count(k[0]) == len(k) else k for t, k in terms.items()}
    return {t: k for t, k in merged.items() if k != 0}


def _add_lanes(a: IndexLanes, b: IndexLanes) -> IndexLanes:
    terms = dict(a.terms)
    for t, k in b.terms.items():
        terms[t] = _add_broadcast_coefficients(terms[t], k) if t in terms else k
    return IndexLanes(_normalize_coefficients(terms), _add_constants(a.constant, b.constant))


def _multiply_lanes_by_constants(a: IndexLanes, factors: tuple[int, ...]) -> IndexLanes:
    terms = {t: _scale_coefficient(k, factors) for t, k in a.terms.items()}
    constant = _scale_coefficient(a.constant, factors)
    assert isinstance(constant, tuple)
    return IndexLanes(_normalize_coefficients(terms), constant)


def _multiply_lanes_if_one_is_constant(a: IndexLanes, b: IndexLanes) -> IndexLanes | None:
    return (
        _multiply_lanes_by_constants(a, b.constant)
        if not b.terms
        else _multiply_lanes_by_constants(b, a.constant)
        if not a.terms
        else None
    )


_COMBINE: dict[Op, Callable[..., IndexLanes | None]] = {
    Op.ADD: _add_lanes,
    Op.SUB: lambda a, b: _add_lanes(a, _multiply_lanes_by_constants(b, (-1,))),
    Op.NEG: lambda a: _multiply_lanes_by_constants(a, (-1,)),
    Op.MUL: _multiply_lanes_if_one_is_constant,
}
