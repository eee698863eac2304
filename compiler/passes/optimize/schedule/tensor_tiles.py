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

from collections.abc import Iterator
from dataclasses import dataclass, replace

from uops.compiler.ir.affine import index_constant
from uops.compiler.log import log_transform
from uops.compiler.passes.optimize.schedule.accesses import collect_accesses
from uops.compiler.passes.optimize.schedule.schedule import (
    Schedule,
    combine_gates,
    gate_load,
    next_id,
    pad_loop_and_mask_added_iterations,
    round_up,
    tile_index,
)
from uops.compiler.passes.optimize.schedule.tensor_core import (
    TensorCoreMatch,
    build_element_row_and_column,
    match_product_factors,
)
from uops.spec.ir import build as B
from uops.spec.ir.args import AddrSpace, BufferArg, LoadArg, RangeArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import open_ranges, ranges_closed_by
from uops.spec.optops import Padto
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
    d = product.descriptor
    block_m, block_n, block_k = tile.block(d.dims)
    ids = [int(r.arg.axis_id) for r in (product.rows, product.columns, product.steps)]
    for axis, size in zip(ids, (block_m, block_n, block_k)):
        s = pad_loop_and_mask_added_iterations(s, Padto(next(j for j, r in enumerate(s.ranges) if r.arg.axis_id == axis), size))
    rows, columns, steps = (next(r for r in s.ranges if r.arg.axis_id == axis) for axis in ids)
    u = next(u for u in toposort(s.effect) if u.op is Op.REDUCE and steps in ranges_closed_by(u))
    free = next_id(s)
    blocks_m = _loop(ids[0], AxisType.GLOBAL, round_up(rows, block_m) // block_m)
    blocks_n = _loop(ids[1], AxisType.GLOBAL, round_up(columns, block_n) // block_n)
    pieces = _loop(ids[2], AxisType.REDUCE, round_up(steps, block_k) // block_k)
    warp_m, warp_n, lane = (
        _loop(free + k, t, n) for k, (t, n) in enumerate(
            ((AxisType.LOCAL, tile.warps_m), (AxisType.LOCAL, tile.warps_n), (AxisType.WARP, d.threads))
        )
    )  # fmt: skip
    lanes = _WorkgroupLanes(warp_m, warp_n, lane, tile.warps_m * tile.warps_n * d.threads)
    a, b = match_product_factors(u, product)
    outer = tuple(r for r in open_ranges(toposort(u))[u] if r not in (rows, columns))
    panels = [
        _Panel(s, value, (major, block, size), (steps, block_k), lanes, next(uniques))
        for value, major, block, size in ((a, rows, blocks_m, block_m), (b, columns, blocks_n, block_n))
    ]
    around = (*outer, blocks_m, blocks_n, warp_m, warp_n, lane)
    first = [p.fill(around, index_constant(0), free + 3 + 2 * j) for j, p in enumerate(panels)]
    ready = UOp(Op.BARRIER, (*first, pieces))
    following = UOp(Op.ADD, (pieces, index_constant(1)))
    is_piece = UOp(Op.CMPLT, (following, pieces.bound))
    next_fills = [p.fill((ready,), following, free + 7 + 2 * j, is_piece) for j, p in enumerate(panels)]
    count = d.c.elements
    register = UOp(Op.BUFFER, (), BufferArg(tile.tiles_m * tile.tiles_n * count, d.dtype_out, "CPU", AddrSpace.REG, next(uniques)))
    clearing = _loop(free + 11, AxisType.UPCAST, tile.tiles_m * tile.tiles_n * count)
    uncleared = B.after(register, *around)
    cleared = UOp(Op.END, (B.store(UOp(Op.INDEX, (uncleared, clearing)), B.const(0, d.dtype_out)), clearing))
    accumulators = B.after(register, cleared, pieces)
    left, right = panels
    n, m, k = d.dims
    added: list[UOp] = []
    for i in range(tile.tiles_m):
        for j in range(tile.tiles_n):
            base = (i * tile.tiles_n + j) * count
            place = UOp(Op.INDEX, (accumulators, UOp(Op.STACK, tuple(index_constant(base + e) for e in range(count)))))
            total = UOp(Op.LOAD, (place,), LoadArg())
            for step in range(tile.tiles_k):
                fragment_a = left.fragment(ready, pieces, d.a, lane, (warp_m, tile.tiles_m * m), i * m, step * k, major_axis=0)
                fragment_b = right.fragment(ready, pieces, d.b, lane, (warp_n, tile.tiles_n * n), j * n, step * k, major_axis=1)
                total = UOp(Op.WMMA, (fragment_a, fragment_b, total), product.arg)
            added.append(B.store(place, total))
    done = UOp(Op.END, (UOp(Op.GROUP, (*next_fills, *added)), pieces))
    tile_m, tile_n, element = (
        _loop(free + 12 + j, AxisType.UPCAST, size) for j, size in enumerate((tile.tiles_m, tile.tiles_n, count))
    )
    number = tile_index(tile_index(tile_m, tile.tiles_n, tile_n), count, element)
    result = UOp(Op.LOAD, (UOp(Op.INDEX, (B.after(register, done), number)),), LoadArg())
    row, column = build_element_row_and_column(d.c, lane, element)
    effect = substitute(s.effect, {u: result})
    effect = substitute(effect, {
        rows: tile_index(blocks_m, block_m, tile_index(warp_m, tile.tiles_m * m, tile_index(tile_m, m, row))),
        columns: tile_index(blocks_n, block_n, tile_index(warp_n, tile.tiles_n * n, tile_index(tile_n, n, column))),
    })  # fmt: skip
    log_transform("tensor core", s.effect, effect, {u: result})
    kept = [{rows: blocks_m, columns: blocks_n}.get(r, r) for r in s.outputs]
    return replace(s, effect=effect, outputs=(*kept, warp_m, warp_n, lane, tile_m, tile_n, element))


def _loop(axis: int, kind: AxisType, extent: int) -> UOp:
    return UOp(Op.RANGE, (index_constant(extent),), RangeArg(axis, kind))


@dataclass(frozen=True, slots=True)
class _WorkgroupLanes:
    """The loops over the lanes of a workgroup, and their number."""

    warp_m: UOp
    warp_n: UOp
    lane: UOp
    count: int

    def number(self) -> UOp:
        """Return this lane's number in the workgroup."""
        return tile_index(tile_index(self.warp_m, int(self.warp_n.bound.const), self.warp_n), int(self.lane.bound.const), self.lane)


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
        turn = _loop(first_axis_id, AxisType.UPCAST, -(-chunks // self.lanes.count))
        part = _loop(first_axis_id + 1, AxisType.UPCAST, self.per_chunk)
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

    def fragment(
        self, ready: UOp, piece: UOp, lane_map: LaneMap, lane: UOp, warp: tuple[UOp, int], major: int, step: int, *, major_axis: int
    ) -> UOp:  # fmt: skip
        """Return a lane's fragment of the tile at (`major`, `step`) of the warp's part of the panel, after the effect `ready`.

        `warp` is the warp's number along the operand's own axis, and the size of its part; `major_axis` is that axis: 0 for the
        rows of A, 1 for the columns of B.
        """
        number, size = warp
        memory = B.after(self.buffer, ready)
        major_stride, step_stride = (self.stride, 1) if self.along_k else (1, self.stride)
        elements = []
        for e in range(lane_map.elements):
            place = build_element_row_and_column(lane_map, lane, index_constant(e))
            across = tile_index(number, size, UOp(Op.ADD, (place[major_axis], index_constant(major))))
            along = UOp(Op.ADD, (place[1 - major_axis], index_constant(step)))
            position = UOp(Op.ADD, (
                UOp(Op.MUL, (across, index_constant(major_stride))), UOp(Op.MUL, (along, index_constant(step_stride))),
            ))  # fmt: skip
            address = UOp(Op.INDEX, (memory, UOp(Op.ADD, (self._half(piece), position))))
            elements.append(UOp(Op.LOAD, (address,), LoadArg()))
        return UOp(Op.STACK, tuple(elements))
