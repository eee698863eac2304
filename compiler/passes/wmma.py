"""Wmma as loops, for targets without the tensor core that it names.

Takes: LINEAR, a kernel with Wmmas. Gives: LINEAR without those that the target lacks. Spec: Wmma, Barrier, Linear; R60 (Barrier),
R93 (TC), R118 (Wmma's fragments), R119 (Wmma's value), R125 (the lanes of a warp).

The lanes of a warp exchange their fragments through matrices in LOCAL memory, in which each warp has a part. With the lane maps A,
B and C of the descriptor, and this lane's number t in its warp,

    d = Wmma(a, b, c)   becomes

    left[A(t, e)] = a[e] for all e; right[B(t, e)] = b[e] for all e; sums[e] = c[e] for all e; Barrier
    for e, for k: sums[e] += left[row of C(t, e), k] * right[k, column of C(t, e)]; Barrier
    d[e] = sums[e] for all e

Floats are multiplied and summed in float64, where the products of all smaller floats are exact, and are rounded at the end.
Integers wrap in the dtype of the result. Of an element that several lanes hold, the first of them stores its copy. A Wmma of a
single lane needs no Barrier, and its matrices are registers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from uops.compiler.decompose.casts import lower_cast
from uops.compiler.decompose.narrow import SMALL
from uops.compiler.ir.buffers import fresh_uniques
from uops.compiler.ir.extents import loop_extent, max_extent
from uops.compiler.ir.instructions import InstructionList
from uops.compiler.ir.lanes import (
    find_values_that_lanes_may_differ_in,
    is_lane_loop,
    require_same_for_all_lanes,
    sort_lanes_fastest_first,
)
from uops.compiler.place import untranslatable_error
from uops.compiler.target import Target
from uops.spec.errors import CompileError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, BufferArg, RangeArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import BLOCK_CLOSERS, BLOCK_OPENERS, Op
from uops.spec.ir.scope import numbers_workgroups
from uops.spec.wmma import AffineLaneMap, Descriptor, LaneMap, MapDigit, Place, find_descriptor, lane_elements

#: Dtype of lane numbers and of positions in the matrices.
_POSITION = dt.int32


def lower_all_wmmas_to_loops_unless_supported(linear: UOp, target: Target) -> UOp:
    """Return an instruction list without the Wmmas that the target has no instruction for.

    Raises CompileError for a Wmma without a descriptor, for one of a grid of tiles, and for lanes that form no whole warps.
    """
    products = [u for u in linear.src if u.op is Op.WMMA]
    if not products:
        return linear
    has_instructions = all(target.has_tensor_core(u.arg) for u in products)
    if has_instructions and target.can_lanes_meet_at_barriers(linear) and _has_single_tiles_on_whole_warps(linear, products):
        return linear
    return linear.replace(src=tuple(_WmmaLowering(linear).lower_kernel()))


def _has_single_tiles_on_whole_warps(linear: UOp, products: Sequence[UOp]) -> bool:
    """Return True if the lanes of the kernel are known to fill warps, in which each product is one of single tiles."""
    specials = [u for u in linear.src if u.op is Op.SPECIAL and not numbers_workgroups(u)]
    lanes = [*specials, *(u for u in linear.src if is_lane_loop(u))]
    count = math.prod(max(1, max_extent(loop_extent(x))) for x in lanes if x.bound.op is Op.CONST)
    constant = all(x.bound.op is Op.CONST for x in lanes)
    return constant and all(u.arg.tile_grid == (1, 1) and len(u.src) == 3 and count % u.arg.threads == 0 for u in products)


@dataclass(frozen=True, slots=True)
class _Warp:
    """This lane's place: its number in its warp, its warp's number in the workgroup, and the greatest number of warps."""

    lane: UOp
    warp: UOp
    warps: int


class _WmmaLowering:
    """The lowering of one kernel."""

    def __init__(self, linear: UOp) -> None:
        self.linear = linear
        self.out = InstructionList()
        self.new: dict[UOp, UOp] = {}  # instruction -> what stands for it
        self.open_blocks: list[UOp] = []  # Ranges and Ifs, outermost first
        self.differing = find_values_that_lanes_may_differ_in(linear)
        self.specials = [u for u in linear.src if u.op is Op.SPECIAL]
        self.uniques = fresh_uniques(linear)
        self.next_axis_id = 1 + max((int(u.arg.axis_id) for u in linear.src if u.op is Op.RANGE), default=-1)

    def lower_kernel(self) -> Iterator[UOp]:
        """Yield the new instruction list."""
        for u in self.linear.src:
            if u.op in BLOCK_OPENERS:
                self.open_blocks.append(u)
            elif u.op in BLOCK_CLOSERS:
                self.open_blocks.pop()
            if u.op is Op.WMMA:
                self.new[u] = B.stack(*self._append_wmma_loops_and_return_fragment(u))
            else:
                new = self.new[u] = self._rebuild_and_fold_stacks_and_bitcasts(u)
                if new.op not in _PLACED_WHERE_USED:
                    self.out.append(new)
        return iter(self.out)

    def _error(self, u: UOp, ruling_and_topic: str, detail: str) -> CompileError:
        return untranslatable_error(ruling_and_topic, u, detail, self.linear)

    # Instructions.

    def _rebuild_and_fold_stacks_and_bitcasts(self, u: UOp) -> UOp:
        """Return what stands for an instruction; of the elements of a Stack, and their bits, the elements themselves."""
        src = tuple([self.new.get(s, s) for s in u.src])
        if u.op is Op.INDEX and src[0].op is Op.STACK and len(src) == 2:
            (position,) = u.positions
            if position.op is Op.CONST:
                return src[0].elements[int(position.const)]
            if position.constants_of_stack is not None:
                return B.stack(*[src[0].elements[k] for k in position.constants_of_stack])
        if u.op is Op.BITCAST and src[0].dtype.itemsize == u.dtype.itemsize:
            return _bitcast_elements(src[0], u.dtype)
        return u if src == u.src else u.replace(src=src)

    def _allocate(self, size: int, dtype: DType, space: AddrSpace) -> UOp:
        memory = UOp(Op.BUFFER, (), BufferArg(size, dtype, "CPU", space, next(self.uniques)))
        return self.out.prepend(memory)

    def _open_loop(self, extent: int, kind: AxisType) -> UOp:
        self.next_axis_id += 1
        return self.out.append(UOp(Op.RANGE, (B.index(extent),), RangeArg(self.next_axis_id - 1, kind)))

    # One Wmma.

    def _append_wmma_loops_and_return_fragment(self, u: UOp) -> list[UOp]:
        """Append the product, and return the elements of this lane's fragment."""
        d = self._require_single_tile_and_find_descriptor(u)
        n, m, k = d.dims
        wide = dt.float64 if d.dtype_out.is_float else d.dtype_out
        lanes = self._locate_lane_and_warp(u, d.threads)
        space = AddrSpace.REG if d.threads == 1 else AddrSpace.LOCAL
        left, right = (self._allocate(lanes.warps * size, wide, space) for size in (m * k, k * n))
        sums = self._allocate(d.c.elements, wide, AddrSpace.REG)
        a, b, c = (self._widen_fragment(self.new.get(s, s), wide) for s in (u.lhs, u.rhs, u.accumulator))
        stored = [*self._store_fragment(d, "A", left, a, lanes), *self._store_fragment(d, "B", right, b, lanes)]
        begun = [self.out.append(B.store(self.out.append(B.at(sums, B.const(e, _POSITION))), x)) for e, x in enumerate(c)]
        if d.threads > 1:
            stored = [self.out.append(UOp(Op.BARRIER, tuple(stored)))]
        done = self._emit_loops_that_sum_products(
            d, [self.out.append(B.after(x, *stored)) for x in (left, right)], B.after(sums, *begun), lanes
        )
        if d.threads > 1:
            done = self.out.append(UOp(Op.BARRIER, (done,)))
        result = self.out.append(B.after(sums, done))
        elements = [self.out.append(B.load(self.out.append(B.at(result, B.const(e, _POSITION))))) for e in range(d.c.elements)]
        return [_bitcast_elements(lower_cast(x, wide, d.dtype_out), d.dtype_out) for x in elements]

    def _require_single_tile_and_find_descriptor(self, u: UOp) -> Descriptor:
        d = find_descriptor(u.arg)
        if d is None:
            raise self._error(u, "R118 (Wmma's fragments)", "no descriptor says what the lanes hold; register one")
        if u.arg.tile_grid != (1, 1) or len(u.src) > 3:
            got = f"a grid of {u.arg.tile_grid}" if len(u.src) == 3 else "Ranges that it closes"
            raise self._error(u, "R118 (Wmma's fragments)", f"expected the fragments of one tile, got {got}")
        return d

    def _locate_lane_and_warp(self, u: UOp, warp_size: int) -> _Warp:
        """Return this lane's place in the workgroup (R125). Raises CompileError for a known number of lanes that fills no warps."""
        number: UOp = B.const(0, _POSITION)
        if warp_size == 1:
            return _Warp(number, number, 1)
        loops = [r for r in self.open_blocks if is_lane_loop(r)]
        dimensions = sort_lanes_fastest_first(self.specials, loops)
        for block in self.open_blocks:
            if block not in loops:
                require_same_for_all_lanes(block, self.differing, "a Wmma", "R93 (TC)", self.linear)
        most = 1
        stride: UOp = B.const(1, _POSITION)
        for x in dimensions:
            number = _add(number, _multiply(_as_position(self.new.get(x, x)), stride))
            stride = _multiply(stride, _as_position(self.new.get(x.bound, x.bound)))
            most *= max_extent(loop_extent(x))
        if stride.op is Op.CONST and most % warp_size:
            raise self._error(u, "R93 (TC)", f"expected warps of {warp_size} lanes, got {most} lanes")
        warps = max(1, -(-most // warp_size))
        if warps == 1:
            return _Warp(number, B.const(0, _POSITION), 1)
        whole = B.const(warp_size, _POSITION)
        return _Warp(UOp(Op.MOD, (number, whole)), UOp(Op.IDIV, (number, whole)), warps)

    def _widen_fragment(self, fragment: UOp, wide: DType) -> list[UOp]:
        """Return the elements of a fragment in the dtype in which they are multiplied."""
        d, (count,) = fragment.dtype, fragment.shape
        assert isinstance(count, int)
        x = _bitcast_elements(fragment, d.word) if d in SMALL else fragment
        elements = x.elements if x.op is Op.STACK else [UOp(Op.INDEX, (x, B.const(e, _POSITION))) for e in range(count)]
        return [lower_cast(element, d, wide) for element in elements]

    def _store_fragment(self, d: Descriptor, operand: str, matrix: UOp, fragment: Sequence[UOp], lanes: _Warp) -> list[UOp]:
        """Store this lane's elements to the warp's part of the matrix, each by its first holder."""
        rows, columns = d.shape(operand)
        lane_map, first_holders = d.map(operand), _find_first_holders(d, operand)
        part = _multiply(lanes.warp, B.const(rows * columns, _POSITION))
        stores = []
        for e, x in enumerate(fragment):
            holds = first_holders[e]
            if not any(holds):
                continue
            position = _locate_element(lane_map, lanes.lane, e, lambda place: place[0] * columns + place[1])
            address = self.out.append(UOp(Op.INDEX, (matrix, _add(part, position))))
            gate = None if all(holds) else _select_by_comparisons(lanes.lane, holds, dt.bool_)
            stores.append(self.out.append(B.store(address, x, gate)))
        return stores

    def _emit_loops_that_sum_products(self, d: Descriptor, matrices: Sequence[UOp], sums: UOp, lanes: _Warp) -> UOp:
        """Add the products of each of this lane's elements to `sums`, and return what ends that."""
        n, m, k = d.dims
        element = self._open_loop(d.c.elements, AxisType.LOOP)
        e = _as_position(element)
        row = _locate(d.c, lanes.lane, e, lambda place: place[0] * k)
        column = _locate(d.c, lanes.lane, e, lambda place: place[1])
        starts = [_add(_multiply(lanes.warp, B.const(m * k, _POSITION)), row),
                  _add(_multiply(lanes.warp, B.const(k * n, _POSITION)), column)]  # fmt: skip
        step = self._open_loop(k, AxisType.REDUCE)
        place = self.out.append(B.at(self.out.append(B.after(sums, element, step)), e))
        factors = []
        for matrix, start, stride in zip(matrices, starts, (1, n)):
            position = _add(start, _multiply(_as_position(step), B.const(stride, _POSITION)))
            factors.append(self.out.append(B.load(self.out.append(B.at(matrix, position)))))
        x, y = factors
        total = self.out.append(B.load(place))
        if d.dtype_in is dt.float64:
            total = B.mulacc(x, y, total)
        else:  # the product is exact
            total = B.add(B.mul(x, y), total)
        inner = self.out.append(UOp(Op.END, (self.out.append(B.store(place, total)), step)))
        return self.out.append(UOp(Op.END, (inner, element)))


#: Instructions that are placed where they are used first: the fragments of a Wmma disappear with it.
_PLACED_WHERE_USED = frozenset({Op.STACK, Op.BITCAST})


def _bitcast_elements(x: UOp, dtype: DType) -> UOp:
    """Return the Bitcast of a value to a dtype of the same size: of a Stack the Stack of Bitcasts, of a Bitcast its source."""
    if x.op is Op.STACK:
        return B.stack(*[_bitcast_elements(e, dtype) for e in x.elements])
    if x.op is Op.BITCAST and x.operand.dtype.itemsize == dtype.itemsize:
        x = x.operand
    return x if x.dtype is dtype else B.bitcast(x, dtype)


# ---------------------------------------------------------------------------------------------------------- index arithmetic


def _as_position(x: UOp) -> UOp:
    if x.op is Op.CONST:
        return B.const(int(x.const), _POSITION)
    return x if x.dtype is _POSITION else B.cast(x, _POSITION)


def _add(x: UOp, y: UOp) -> UOp:
    """Return the sum of two positions, without a term 0."""
    if x.op is Op.CONST and y.op is Op.CONST:
        return B.const(int(x.const) + int(y.const), _POSITION)
    for a, b in ((x, y), (y, x)):
        if a.op is Op.CONST and a.const == 0:
            return b
    return UOp(Op.ADD, (x, y))


def _multiply(x: UOp, y: UOp) -> UOp:
    """Return the product of two positions, without a factor 1 or 0."""
    if x.op is Op.CONST and y.op is Op.CONST:
        return B.const(int(x.const) * int(y.const), _POSITION)
    for a, b in ((x, y), (y, x)):
        if a.op is Op.CONST and a.const in (0, 1):
            return a if a.const == 0 else b
    return UOp(Op.MUL, (x, y))


def _locate(lane_map: LaneMap, lane: UOp, element: UOp, offset_of_place: Callable[[Place], int]) -> UOp:
    """Return `offset_of_place` of the place of a lane's element, where `offset_of_place` is linear in the row and the column."""
    if isinstance(lane_map, AffineLaneMap):
        return _add(_sum_digits(lane, lane_map.lane, offset_of_place), _sum_digits(element, lane_map.element, offset_of_place))
    number = _add(_multiply(lane, B.const(lane_map.elements, _POSITION)), element)
    return _select_by_comparisons(number, [offset_of_place(place) for _, place in lane_elements(lane_map)], _POSITION)


def _sum_digits(number: UOp, digits: Sequence[MapDigit], scale: Callable[[Place], int]) -> UOp:
    """Return the sum over the digits of a number, each times `scale` of its step."""
    total: UOp = B.const(0, _POSITION)
    weight, count = 1, math.prod(d.size for d in digits)
    for d in digits:
        step = scale((d.row, d.col))
        if step and d.size > 1:
            digit = number if weight == 1 else UOp(Op.IDIV, (number, B.const(weight, _POSITION)))
            if weight * d.size < count:
                digit = UOp(Op.MOD, (digit, B.const(d.size, _POSITION)))
            total = _add(total, _multiply(digit, B.const(step, _POSITION)))
        weight *= d.size
    return total


def _locate_element(lane_map: LaneMap, lane: UOp, element: int, scale: Callable[[Place], int]) -> UOp:
    """Return `scale` of the place of a lane's element whose number is known."""
    if isinstance(lane_map, AffineLaneMap):
        return _add(_sum_digits(lane, lane_map.lane, scale), B.const(scale(lane_map.place(0, element)), _POSITION))
    return _select_by_comparisons(lane, [scale(lane_map.place(t, element)) for t in range(lane_map.lanes)], _POSITION)


def _select_by_comparisons(number: UOp, values: Sequence[int], dtype: DType) -> UOp:
    """Return `values[number]`, by as few comparisons as equal neighbours allow."""

    def select_from(begin: int, end: int) -> UOp:
        if all(v == values[begin] for v in values[begin:end]):
            return B.const(values[begin], dtype)
        middle = (begin + end) // 2
        condition = UOp(Op.CMPLT, (number, B.const(middle, _POSITION)))
        return UOp(Op.WHERE, (condition, select_from(begin, middle), select_from(middle, end)))

    return select_from(0, len(values))


@functools.lru_cache(maxsize=64)
def _find_first_holders(d: Descriptor, operand: str) -> tuple[tuple[bool, ...], ...]:
    """Return a table by element and lane. An entry is True if no earlier lane element holds the same matrix place."""
    m = d.map(operand)
    seen: set[Place] = set()
    first = [[False] * m.lanes for _ in range(m.elements)]
    for (lane, element), place in lane_elements(m):
        first[element][lane] = place not in seen
        seen.add(place)
    return tuple(map(tuple, first))
