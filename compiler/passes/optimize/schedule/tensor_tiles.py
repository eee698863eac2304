"""A product by tensor cores whose operands go through LOCAL memory: many tiles of the instruction per warp and workgroup.

`tile_product_for_workgroup` transforms the schedule of

    out[m, n] = f(Reduce(Cast(A[m, k]) * Cast(B[k, n]), k))

A workgroup computes a block of rows and columns, and each of its warps a rectangle of tiles in it. For each piece of k, the lanes
fill a panel of A and one of B, 16 bytes at a time and along the axis that is contiguous in memory. They meet, and each warp adds
the products of its fragments, which it loads from the panels, to accumulators in registers. At the end, each lane stores its
elements of f.

Rows of a panel are 16 bytes apart from a multiple of their length. So eight neighbouring rows lie in different banks.

Spec: R93 (TC), R118 and R119 (fragments and value of a Wmma), R125 (lanes of a warp), R142 (tensor cores in a schedule), R60
(Barrier), R61 (fresh buffers).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from uops.compiler.ir.affine import index_constant
from uops.compiler.ir.extents import constant_extent
from uops.compiler.log import log_transform
from uops.compiler.passes.optimize.schedule.accesses import collect_accesses
from uops.compiler.passes.optimize.schedule.schedule import (
    Schedule,
    combine_gates,
    gate_load,
    next_id,
    tile_index,
)
from uops.compiler.passes.optimize.schedule.tensor_core import (
    TensorCoreMatch,
    build_element_row_and_column,
    clear_register,
    extract_uncast_factors_zeroed_in_k_padding,
    make_loop,
    pad_product_loops,
)
from uops.spec.ir import build as B
from uops.spec.ir.args import AddrSpace, BufferArg, LoadArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import open_ranges
from uops.spec.wmma import LaneMap

#: Bytes that a lane copies at a time, by which rows of a panel are apart from their length.
CHUNK = 16


@dataclass(frozen=True, slots=True)
class WorkgroupTile:
    """The shape of a workgroup's block: warps along m and n, tiles of the instruction per warp along m and n, and along k."""

    warps_m: int
    warps_n: int
    tiles_m: int
    tiles_n: int
    tiles_k: int

    def block(self, dims: tuple[int, int, int]) -> tuple[int, int, int]:
        """Return the rows, columns and steps of a block for an instruction's (N, M, K)."""
        n, m, k = dims
        return self.warps_m * self.tiles_m * m, self.warps_n * self.tiles_n * n, self.tiles_k * k


def panel_bytes(across: int, along: int, d: DType) -> int:
    """Return the most bytes of a double panel of `across` by `along` elements, whichever of them are rows, with the gaps."""
    return 2 * (across * along * d.itemsize + max(across, along) * CHUNK)


def tile_product_for_workgroup(s: Schedule, product: TensorCoreMatch, tile: WorkgroupTile, uniques: Iterator[int]) -> Schedule:
    """Tile the matched product, whose Reduce has one loop, with padding where the axes need it."""
    d, (n, m, _) = product.descriptor, product.descriptor.dims
    block_m, block_n, block_k = tile.block(d.dims)
    s, padded = pad_product_loops(s, product, (block_m, block_n, block_k))
    u, rows, columns, steps = padded.reduce, padded.rows, padded.columns, padded.steps
    free = next_id(s)
    blocks_m, blocks_n, pieces = (
        make_loop(int(r.arg.axis_id), kind, constant_extent(r) // size)
        for r, kind, size in (
            (rows, AxisType.GLOBAL, block_m), (columns, AxisType.GLOBAL, block_n), (steps, AxisType.REDUCE, block_k)
        )
    )  # fmt: skip
    warp_m, warp_n = (make_loop(free + j, AxisType.LOCAL, size) for j, size in enumerate((tile.warps_m, tile.warps_n)))
    lanes = _WorkgroupLanes(warp_m, warp_n, make_loop(free + 2, AxisType.WARP, d.threads))
    a, b = extract_uncast_factors_zeroed_in_k_padding(u, product)
    around = (*(r for r in open_ranges(toposort(u))[u] if r not in (rows, columns)), blocks_m, blocks_n, *lanes.loops)
    left = _Panel(s, a, (rows, blocks_m, block_m), (steps, block_k), lanes, next(uniques))
    right = _Panel(s, b, (columns, blocks_n, block_n), (steps, block_k), lanes, next(uniques))
    first = [p.fill(around, index_constant(0), free + 3 + 2 * j) for j, p in enumerate((left, right))]
    ready = UOp(Op.BARRIER, (*first, pieces))
    following = UOp(Op.ADD, (pieces, index_constant(1)))
    is_piece = UOp(Op.CMPLT, (following, pieces.bound))
    next_fills = [p.fill((ready,), following, free + 7 + 2 * j, is_piece) for j, p in enumerate((left, right))]
    sizes = (tile.tiles_m, tile.tiles_n, d.c.elements)
    register = UOp(Op.BUFFER, (), BufferArg(math.prod(sizes), d.dtype_out, "CPU", AddrSpace.REG, next(uniques)))
    accumulators = B.after(register, clear_register(register, around, free + 11), pieces)
    added = _build_accumulator_store_per_tile(product, tile, accumulators, (left.view(ready, pieces), right.view(ready, pieces)))
    done = UOp(Op.END, (UOp(Op.GROUP, (*next_fills, *added)), pieces))
    tile_m, tile_n, element = (make_loop(free + 12 + j, AxisType.UPCAST, size) for j, size in enumerate(sizes))
    number = tile_index(tile_index(tile_m, tile.tiles_n, tile_n), d.c.elements, element)
    result = UOp(Op.LOAD, (UOp(Op.INDEX, (B.after(register, done), number)),), LoadArg())
    row, column = build_element_row_and_column(d.c, lanes.lane, element)
    effect = substitute(s.effect, {u: result})
    effect = substitute(effect, {
        rows: tile_index(blocks_m, block_m, tile_index(warp_m, tile.tiles_m * m, tile_index(tile_m, m, row))),
        columns: tile_index(blocks_n, block_n, tile_index(warp_n, tile.tiles_n * n, tile_index(tile_n, n, column))),
    })  # fmt: skip
    log_transform("tensor core", s.effect, effect, {u: result})
    kept = [{rows: blocks_m, columns: blocks_n}.get(r, r) for r in s.outputs]
    return replace(s, effect=effect, outputs=(*kept, *lanes.loops, tile_m, tile_n, element))


def _build_accumulator_store_per_tile(
    product: TensorCoreMatch, tile: WorkgroupTile, accumulators: UOp, panels: tuple[_PanelView, _PanelView]
) -> list[UOp]:
    """Return the effects that add the products of one piece to this warp's accumulators, one for each tile."""
    d, (n, m, k), (left, right) = product.descriptor, product.descriptor.dims, panels
    added = []
    for i, j in itertools.product(range(tile.tiles_m), range(tile.tiles_n)):
        first = (i * tile.tiles_n + j) * d.c.elements
        elements = UOp(Op.STACK, tuple(index_constant(first + e) for e in range(d.c.elements)))
        place = UOp(Op.INDEX, (accumulators, elements))
        total = UOp(Op.LOAD, (place,), LoadArg())
        for step in range(tile.tiles_k):
            fragment_a = left.load_fragment(d.a, 0, tile.tiles_m * m, i * m, step * k)
            fragment_b = right.load_fragment(d.b, 1, tile.tiles_n * n, j * n, step * k)
            total = UOp(Op.WMMA, (fragment_a, fragment_b, total), product.arg)
        added.append(B.store(place, total))
    return added


@dataclass(frozen=True, slots=True)
class _WorkgroupLanes:
    """The loops over the lanes of a workgroup, and their number."""

    warp_m: UOp
    warp_n: UOp
    lane: UOp

    @property
    def loops(self) -> tuple[UOp, ...]:
        """The loops, the slowest first."""
        return self.warp_m, self.warp_n, self.lane

    @property
    def count(self) -> int:
        """The number of lanes."""
        return math.prod(map(constant_extent, self.loops))

    def number(self) -> UOp:
        """Return this lane's number in the workgroup."""
        warp = tile_index(self.warp_m, constant_extent(self.warp_n), self.warp_n)
        return tile_index(warp, constant_extent(self.lane), self.lane)


class _Panel:
    """An operand's double panel in LOCAL memory.

    `major` is the loop of the operand's own axis with the loop over its blocks and their size; `minor` the loop of k with the size
    of a piece.
    """

    def __init__(
        self, s: Schedule, value: UOp, major: tuple[UOp, UOp, int], minor: tuple[UOp, int], lanes: _WorkgroupLanes, unique: int
    ) -> None:
        loads = set(toposort(value))
        self.along_k = any(x.node in loads and x.stride(minor[0]) == 1 for x in collect_accesses(s.effect))
        self.value, self.major, self.minor, self.lanes = value, major, minor, lanes
        self.rows, self.length = (major[2], minor[1]) if self.along_k else (minor[1], major[2])
        self.per_chunk = CHUNK // value.dtype.itemsize
        self.stride = self.length + self.per_chunk
        size = 2 * self.rows * self.stride
        self.buffer = UOp(Op.BUFFER, (), BufferArg(size, value.dtype, "CPU", AddrSpace.LOCAL, unique))

    def fill(self, after: tuple[UOp, ...], piece: UOp, first_axis_id: int, gate: UOp | None = None) -> UOp:
        """Return the loops in which each lane copies its chunks of a piece, if `gate` holds, after effects and inside loops."""
        chunks = self.rows * self.length // self.per_chunk
        turn = make_loop(first_axis_id, AxisType.UPCAST, -(-chunks // self.lanes.count))
        part = make_loop(first_axis_id + 1, AxisType.UPCAST, self.per_chunk)
        chunk = tile_index(turn, self.lanes.count, self.lanes.number())
        chunks_of_row = index_constant(self.length // self.per_chunk)
        row = UOp(Op.IDIV, (chunk, chunks_of_row))
        column = tile_index(UOp(Op.MOD, (chunk, chunks_of_row)), self.per_chunk, part)
        across, along = (row, column) if self.along_k else (column, row)
        (major, block, size), (minor, piece_size) = self.major, self.minor
        copied = substitute(self.value, {major: tile_index(block, size, across), minor: tile_index(piece, piece_size, along)})
        inside = gate
        if chunks % self.lanes.count:
            inside = combine_gates(gate, UOp(Op.CMPLT, (chunk, index_constant(chunks))))
        if inside is not None:
            copied = substitute(copied, {x: gate_load(x, inside) for x in toposort(copied) if x.op is Op.LOAD})
        address = UOp(Op.ADD, (self._half(piece), tile_index(row, self.stride, column)))
        stored = B.store(UOp(Op.INDEX, (B.after(self.buffer, *after), address)), copied, inside)
        return UOp(Op.END, (stored, turn, part))

    def _half(self, piece: UOp) -> UOp:
        """Return the offset of the half in which a piece lies."""
        return UOp(Op.MUL, (UOp(Op.MOD, (piece, index_constant(2))), index_constant(self.rows * self.stride)))

    def view(self, ready: UOp, piece: UOp) -> _PanelView:
        """Return the half of a piece as it is after the effect `ready`."""
        strides = (self.stride, 1) if self.along_k else (1, self.stride)
        return _PanelView(B.after(self.buffer, ready), self._half(piece), strides, self.lanes)


@dataclass(frozen=True, slots=True)
class _PanelView:
    """A filled half of a panel: its offset, and the strides of the operand's own axis and of k."""

    memory: UOp
    offset: UOp
    strides: tuple[int, int]
    lanes: _WorkgroupLanes

    def load_fragment(
        self, lane_map: LaneMap, own_axis: int, warp_part_size: int, offset_on_own_axis: int, offset_on_k: int
    ) -> UOp:
        """Return this lane's fragment of the tile at (`offset_on_own_axis`, `offset_on_k`) of its warp's part of the panel.

        `own_axis` is the operand's own axis: 0 for the rows of A, 1 for the columns of B. The part is `warp_part_size` elements
        long.
        """
        warp = (self.lanes.warp_m, self.lanes.warp_n)[own_axis]
        elements = []
        for e in range(lane_map.elements):
            place = build_element_row_and_column(lane_map, self.lanes.lane, index_constant(e))
            across = tile_index(warp, warp_part_size, UOp(Op.ADD, (place[own_axis], index_constant(offset_on_own_axis))))
            along = UOp(Op.ADD, (place[1 - own_axis], index_constant(offset_on_k)))
            terms = [UOp(Op.MUL, (x, index_constant(stride))) for x, stride in zip((across, along), self.strides)]
            address = UOp(Op.INDEX, (self.memory, UOp(Op.ADD, (self.offset, UOp(Op.ADD, tuple(terms))))))
            elements.append(UOp(Op.LOAD, (address,), LoadArg()))
        return UOp(Op.STACK, tuple(elements))
