"""Schedules for machines with workgroups, chosen by hand-written heuristics.

`schedule_for_gpu` applies the OptOps that it chooses, all of them legal. Output loops become GLOBAL, so that iterations run in
parallel. In order, it decides:

0. A product that fits a tensor core of the machine uses it. Its operands go through LOCAL memory (`tensor_tiles`). If no block of
   that schedule fits, they come from GLOBAL memory (TC), with two by two tiles per workgroup.
1. A sum over two loads, each of which depends on an output loop that the other does not, is tiled: a product of matrices, or
   another function of the two. A workgroup has a tile of both loops, and a lane a register tile in it (UPCAST). The loads of a
   piece of the reduction go through LOCAL memory, from which all lanes of a row or column load them.
2. Without a reduction, loads that are contiguous along another loop than the store go through LOCAL memory, in squares.
3. A reduction with contiguous loads, or with too few outputs to keep the machine busy, is shared by the lanes of a workgroup
   (GROUP_REDUCE).
4. Otherwise the contiguous loop becomes vectors of a lane (UPCAST), then lanes (LOCAL).

A loop that no factor divides is padded if that adds little. A kernel whose output loops keep their order is not changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from uops.compiler.ir.extents import loop_extent
from uops.compiler.passes.optimize.schedule.accesses import StridedAccess, collect_accesses, flatten_loop_nests
from uops.compiler.passes.optimize.schedule.optops import apply, find_rejection_reason, max_trip_count
from uops.compiler.passes.optimize.schedule.schedule import Schedule, set_output_loop_types_before_optops
from uops.compiler.passes.optimize.schedule.shared_memory import accumulate_in_registers, load_through_shared_memory
from uops.compiler.passes.optimize.schedule.tensor_core import TensorCoreMatch, match_tensor_core_or_explain_mismatch
from uops.compiler.passes.optimize.schedule.tensor_tiles import WorkgroupTile, panel_bytes, tile_product_for_workgroup
from uops.compiler.target import MachineModel
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, nodes_with_op, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import open_ranges, ranges_closed_by
from uops.spec.optops import TC, Padto, Split

#: Tiles of a product, the first that fits: (lanes of rows, lanes of columns, register rows and register columns of a lane).
TILES = ((8, 16, 4, 4), (8, 8, 4, 4), (4, 8, 4, 4), (4, 4, 2, 2))
#: Tiles for lanes with many registers, tried first: the largest of which a product has enough to fill the machine, or the last.
LARGE_TILES = ((16, 16, 8, 8), (16, 16, 4, 4), (8, 16, 4, 4), (8, 16, 2, 2))
#: Blocks of a product by tensor cores: the largest of which there are enough to fill the machine, or the last.
CORE_TILES = (
    WorkgroupTile(2, 4, 4, 8, 2), WorkgroupTile(2, 4, 4, 4, 2), WorkgroupTile(2, 2, 4, 4, 2), WorkgroupTile(2, 2, 2, 4, 2),
    WorkgroupTile(2, 2, 1, 2, 2),
)  # fmt: skip
#: Registers of a lane that count as many, and tiles that fill the machine.
MANY_REGISTERS, FILLING = 128, 128
#: Steps of a reduction whose operands are in LOCAL memory at a time, and how many of them are unrolled.
PIECE, UNROLLED = 16, 4
#: Side, in elements, of a square that is loaded along one loop and stored along another.
SQUARE = 16
#: Lanes of a workgroup where nothing else decides, and lanes of a reduction.
LANES, REDUCING = 64, 64
#: Outputs from which a reduction needs no further lanes to keep the machine busy, and from which it does on a machine of lanes with
#: many registers.
BUSY, BUSY_LARGE = 4096, 1 << 16
#: Lanes of neighbouring outputs, and lanes of the reduction, where loads are contiguous across outputs.
ACROSS = (32, 16)
#: Most elements of a row that a lane of a reduction stores.
MOST_UPCAST = 16
#: Share of added iterations up to which an axis is padded.
MOST_ADDED = 0.34
#: Bytes of LOCAL memory of a machine that states none.
_LOCAL = 16 << 10


def schedule_for_gpu(s: Schedule, machine: MachineModel, uniques: Iterator[int]) -> Schedule:
    """Return the schedule for a machine with workgroups."""
    if s.ordered_ids:
        return s
    if all(r.bound.op is Op.CONST for r in s.ranges):
        s = flatten_loop_nests(s)
    if s.outputs:
        s = set_output_loop_types_before_optops(s, dict.fromkeys(s.outputs, AxisType.GLOBAL))
    f = _GpuKernelFacts(s)
    if machine.tensor_cores:
        tiled = _tile_matmul_for_tensor_cores_of_workgroup(s, machine, uniques)
        if tiled is not None:
            return tiled
        for opt in (TC(0, -1, level) for level in range(3)):
            if find_rejection_reason(s, opt, machine) is None:
                return _put_2x2_tiles_into_workgroup(apply(s, opt, machine), machine)
    sum_of_two = f.match_sole_sum_of_two_loads()
    if sum_of_two is not None:
        tiled = _tile_sum_of_two_loads_if_padding_is_cheap(s, sum_of_two, machine, uniques)
        if tiled is not None:
            return tiled
    transposed = _stage_transposed_load_in_local_memory(s, f, machine, uniques)
    if transposed is not None:
        return transposed
    grouped = _split_long_reduces_across_lanes(s, f, machine)
    if grouped is not s:
        return _pad_and_vectorize_row_for_reduce_lanes(grouped, f, machine)
    return _split_output_loop_into_vectors_and_workgroup_lanes(s, f, machine)


@dataclass(frozen=True, slots=True)
class _SumOfTwoLoads:
    """A sum over the loop `steps` whose operand has two loads, as that of a product of matrices.

    Both depend on `steps`. Only `left` depends on the output loop `rows`, and only `right` on the output loop `columns`.
    """

    rows: UOp
    columns: UOp
    steps: UOp
    left: UOp
    right: UOp


class _GpuKernelFacts:
    """Facts on which the choices rest, computed once per schedule."""

    def __init__(self, s: Schedule) -> None:
        self.outputs = s.outputs
        self.order = toposort(s.effect)
        self.enclosing_loops = open_ranges(self.order)
        self.accesses = collect_accesses(s.effect)
        self.reduces = [u for u in self.order if u.op is Op.REDUCE]
        self.store = next((a for a in self.accesses if a.node is s.effect), None)

    def find_loop_along_store(self, loops: Sequence[UOp]) -> UOp | None:
        """Return the loop along which the kernel's Store is contiguous, or None."""
        return next((r for r in loops if self.store is not None and self.store.stride(r) == 1), None)

    def direct_loads(self, u: UOp) -> list[StridedAccess]:
        """Return the loads of a Reduce's operand, without those of nested Reduces and of what fills LOCAL memory."""
        nodes = set(toposort(u.operand, gate=lambda n: n.op is not Op.REDUCE and n.dtype is not dt.void))
        return [a for a in self.accesses if a.node.op is Op.LOAD and a.node in nodes]

    def direct_loads_over_most_loops(self, reduce: UOp) -> list[StridedAccess]:
        """Return those of the direct loads of a Reduce that depend on the most loops, and so move the most memory."""
        loads = self.direct_loads(reduce)
        most = max((len(self.enclosing_loops[a.node]) for a in loads), default=0)
        return [a for a in loads if len(self.enclosing_loops[a.node]) == most]

    def match_sole_sum_of_two_loads(self) -> _SumOfTwoLoads | None:
        """Return the kernel's only Reduce as a sum over one loop of a value with two loads, multiplied or not; None for others."""
        if len(self.reduces) != 1 or len(ranges_closed_by(self.reduces[0])) != 1:
            return None
        u, (steps,) = self.reduces[0], ranges_closed_by(self.reduces[0])
        loads = self.direct_loads(u)
        if u.arg.op is not Op.ADD or len(loads) != 2 or any(steps not in self.enclosing_loops[a.node] for a in loads):
            return None
        for left, right in (loads, loads[::-1]):
            loops_left, loops_right = self.enclosing_loops[left.node], self.enclosing_loops[right.node]
            rows = [r for r in self.outputs if r in loops_left and r not in loops_right]
            columns = [r for r in self.outputs if r in loops_right and r not in loops_left]
            if rows and columns and self.store is not None and self.store.stride(columns[-1]) == 1:
                return _SumOfTwoLoads(rows[-1], columns[-1], steps, left.node, right.node)
        return None


def _tile_matmul_for_tensor_cores_of_workgroup(s: Schedule, machine: MachineModel, uniques: Iterator[int]) -> Schedule | None:
    """Tile a product for the tensor cores of a workgroup; None if there is none, or if it is too small for every tile."""
    product = match_tensor_core_or_explain_mismatch(s, TC(0, -1, 2), machine.tensor_cores)
    reduces = nodes_with_op(s.effect, Op.REDUCE)
    if not isinstance(product, TensorCoreMatch) or len(reduces) != 1 or len(ranges_closed_by(product.u)) != 1:
        return None
    d, loops = product.descriptor, (product.rows, product.columns, product.steps)
    others = math.prod(max_loop_extent(r) for r in s.outputs if r not in loops)
    for tile in CORE_TILES:
        rows, columns, steps = block = tile.block(d.dims)
        fits = tile.warps_m * tile.warps_n * d.threads <= machine.workgroup and all(map(_is_padding_cheap, loops, block))
        count = others * -(-max_loop_extent(product.rows) // rows) * -(-max_loop_extent(product.columns) // columns)
        panels = (panel_bytes(rows, steps, d.dtype_in), panel_bytes(columns, steps, d.dtype_in))
        if fits and (count >= FILLING or tile is CORE_TILES[-1]) and sum(panels) <= (machine.local_memory or _LOCAL):
            return tile_product_for_workgroup(s, product, tile, uniques)
    return None


def _put_2x2_tiles_into_workgroup(s: Schedule, machine: MachineModel) -> Schedule:
    """Put two by two neighbouring tiles of a tensor core's product into one workgroup."""
    for r in [r for r in s.outputs if r.arg.type is AxisType.GLOBAL][-2:]:
        split = Split(_axis_number(s, int(r.arg.axis_id)), 2, AxisType.LOCAL)
        if find_rejection_reason(s, split, machine) is None:
            s = apply(s, split, machine)
    return s


# ----------------------------------------------------------------------------------------------------------------- tiles


def _tile_sum_of_two_loads_if_padding_is_cheap(
    s: Schedule, p: _SumOfTwoLoads, machine: MachineModel, uniques: Iterator[int]
) -> Schedule | None:
    """Tile a sum of two loads for the workgroup, or return None if it is too small for every tile."""
    tiles = (*LARGE_TILES, *TILES) if machine.registers >= MANY_REGISTERS else TILES
    unless_idle = tiles[: tiles.index(LARGE_TILES[-1])] if machine.registers >= MANY_REGISTERS else ()
    for lanes_r, lanes_c, regs_r, regs_c in tiles:
        rows, columns = lanes_r * regs_r, lanes_c * regs_c
        outputs = math.prod(max_loop_extent(r) for r in s.outputs)
        if (lanes_r, lanes_c, regs_r, regs_c) in unless_idle and outputs < FILLING * rows * columns:
            continue
        panels = (rows + columns) * PIECE * max(p.left.dtype.itemsize, p.right.dtype.itemsize)
        if lanes_r * lanes_c > machine.workgroup or panels > (machine.local_memory or _LOCAL):
            continue
        if not (_is_padding_cheap(p.rows, rows) and _is_padding_cheap(p.columns, columns) and _is_padding_cheap(p.steps, PIECE)):
            continue
        ids = [int(r.arg.axis_id) for r in (p.rows, p.columns, p.steps)]
        for axis, factor, target in (
            (ids[0], rows, None), (ids[1], columns, None), (ids[2], PIECE, None),
            (ids[0], regs_r, AxisType.UPCAST), (ids[1], regs_c, AxisType.UPCAST),
            (ids[0], lanes_r, AxisType.LOCAL), (ids[1], lanes_c, AxisType.LOCAL),
            (ids[2], PIECE, AxisType.REDUCE),
        ):  # fmt: skip
            number = _axis_number(s, axis)
            s = apply(s, Padto(number, factor) if target is None else Split(number, factor, target), machine)
        return _stage_operands_unroll_and_accumulate(s, machine, uniques)
    return None


def _stage_operands_unroll_and_accumulate(s: Schedule, machine: MachineModel, uniques: Iterator[int]) -> Schedule:
    """Stage both operands in LOCAL memory, a piece of the reduction at a time, and unroll some of its steps."""
    u = next(u for u in toposort(s.effect) if u.op is Op.REDUCE)
    steps = ranges_closed_by(u)[-1]
    for _ in range(2):
        f = _GpuKernelFacts(s)
        load = next(a for a in f.direct_loads(f.reduces[0]) if a.node.buffer.operand.op is Op.PARAM)
        over = [r for r in f.enclosing_loops[load.node] if r is steps or r.arg.type in (AxisType.LOCAL, AxisType.UPCAST)]
        s = load_through_shared_memory(s, load.node, sorted(over, key=lambda r: _stride_sort_key(load, r)), next(uniques))
    if machine.registers < MANY_REGISTERS:  # else the compiler of the text unrolls, and each product is added to the sum by itself
        number = next(k for k, r in enumerate(s.ranges) if r is steps)
        s = apply(s, Split(number, UNROLLED, AxisType.UNROLL), machine)
    return accumulate_in_registers(s, next(uniques))


def _stage_transposed_load_in_local_memory(
    s: Schedule, f: _GpuKernelFacts, machine: MachineModel, uniques: Iterator[int]
) -> Schedule | None:
    """Stage squares of a Load that is contiguous along another loop than the Store; None if there is no such Load."""
    lane = f.find_loop_along_store(s.outputs)
    loads = [a for a in f.accesses if a.node.op is Op.LOAD]
    if lane is None or f.reduces or SQUARE * SQUARE > machine.workgroup or not _is_padding_cheap(lane, SQUARE):
        return None
    for a in loads:
        along = _find_loop_along_transposed_load(a, lane, s.outputs)
        fits = SQUARE * SQUARE * a.node.dtype.itemsize <= (machine.local_memory or _LOCAL)
        if along is None or not fits or not _is_padding_cheap(along, SQUARE):
            continue
        for r in (along, lane):
            axis = int(r.arg.axis_id)
            s = apply(s, Padto(_axis_number(s, axis), SQUARE), machine)
            s = apply(s, Split(_axis_number(s, axis), SQUARE, AxisType.LOCAL), machine)
        after, lanes = _GpuKernelFacts(s), [r for r in s.outputs if r.arg.type is AxisType.LOCAL]
        lane, memory = after.find_loop_along_store(lanes), a.node.buffer.operand
        same_memory = [x for x in after.accesses if x.node.op is Op.LOAD and x.node.buffer.operand is memory]
        load = next(x for x in same_memory if _find_loop_along_transposed_load(x, lane, lanes) is not None)
        over = [r for r in after.enclosing_loops[load.node] if r.arg.type is AxisType.LOCAL]
        return load_through_shared_memory(s, load.node, sorted(over, key=lambda r: _stride_sort_key(load, r)), next(uniques))
    return None


def _find_loop_along_transposed_load(load: StridedAccess, lane: UOp | None, loops: Sequence[UOp]) -> UOp | None:
    """Return the loop along which a Load is contiguous, if it strides along the loop `lane`; else None."""
    if lane is None or load.stride(lane) in (0, 1, None):
        return None
    return next((r for r in loops if r is not lane and load.stride(r) == 1), None)


def _stride_sort_key(load: StridedAccess, r: UOp) -> tuple[int, int]:
    """Return a sort key by falling stride, so that neighbours in memory are neighbours in the panel."""
    return -abs(load.stride(r) or 0), int(r.arg.axis_id)


def _is_padding_cheap(r: UOp, multiple: int) -> bool:
    """Return True if padding a loop to a multiple adds few iterations."""
    n = max_loop_extent(r)
    return n >= multiple // 2 and -(-n // multiple) * multiple <= (1 + MOST_ADDED) * n


def max_loop_extent(r: UOp) -> int:
    """Return the maximum trip count of a loop."""
    return max_trip_count(loop_extent(r))


# ------------------------------------------------------------------------------------------------------------ reductions


def _split_long_reduces_across_lanes(s: Schedule, f: _GpuKernelFacts, machine: MachineModel) -> Schedule:
    """Share each reduction that is long enough between the lanes of a workgroup."""
    outputs = math.prod(max_loop_extent(r) for r in s.outputs)
    for u in f.reduces:
        r = ranges_closed_by(u)[-1]
        n = max_loop_extent(r)
        loads = f.direct_loads_over_most_loops(u)
        contiguous = any(a.stride(r) == 1 for a in loads)
        across = s.outputs and any(a.stride(s.outputs[-1]) == 1 for a in loads)
        outer = any(x.arg.type is AxisType.REDUCE for x in f.enclosing_loops[u])  # nested in another reduction
        busy = BUSY_LARGE if machine.registers >= MANY_REGISTERS else BUSY
        if n < machine.thresholds.workgroup_reduce_steps or outer or (outputs >= busy and (across or not contiguous)):
            continue
        if across and not contiguous and machine.registers >= MANY_REGISTERS and len(f.reduces) == 1:
            return _split_reduce_and_neighbouring_outputs(s, r, machine)
        lanes = next((k for k in (REDUCING * 4, REDUCING * 2, REDUCING, 32) if k <= machine.workgroup and k * 4 <= n), 0)
        if not lanes:
            continue
        axis = int(r.arg.axis_id)
        padded = apply(s, Padto(_axis_number(s, axis), lanes), machine)
        split = Split(_axis_number(padded, axis), lanes, AxisType.GROUP_REDUCE)
        if find_rejection_reason(padded, split, machine) is None:
            s = apply(padded, split, machine)
    return s


def _split_reduce_and_neighbouring_outputs(s: Schedule, r: UOp, machine: MachineModel) -> Schedule:
    """Share the reduction over `r` between lanes that each stand in a row of lanes for neighbouring outputs; or return `s`."""
    done = s
    for axis, lanes, target in (
        (int(s.outputs[-1].arg.axis_id), ACROSS[0], AxisType.LOCAL), (int(r.arg.axis_id), ACROSS[1], AxisType.GROUP_REDUCE),
    ):  # fmt: skip
        if max_loop_extent(done.ranges[_axis_number(done, axis)]) < lanes:
            return s
        done = apply(done, Padto(_axis_number(done, axis), lanes), machine)
        split = Split(_axis_number(done, axis), lanes, target)
        if find_rejection_reason(done, split, machine) is not None:
            return s
        done = apply(done, split, machine)
    return done


def _pad_and_vectorize_row_for_reduce_lanes(s: Schedule, f: _GpuKernelFacts, machine: MachineModel) -> Schedule:
    """Pad and split the contiguous output loop so that the lanes of the reductions can share it, if no reduction depends on it.

    A lane takes neighbouring elements (UPCAST), so that few workgroups repeat the same reductions.
    """
    lanes = max((max_loop_extent(r) for r in s.ranges if r.arg.type is AxisType.GROUP_REDUCE), default=0)
    column = next((r for r in reversed(f.outputs) if f.store is not None and f.store.stride(r) == 1), None)
    if not lanes or column is None or any(column in f.enclosing_loops[u.operand] for u in f.reduces):
        return s
    axis = int(column.arg.axis_id)
    width = next((k for k in (MOST_UPCAST, 8, 4, 2, 1) if _is_padding_cheap(column, lanes * k)), 0)
    if not width or not isinstance(s.axes[_axis_number(s, axis)].extent, int):
        return s
    s = apply(s, Padto(_axis_number(s, axis), lanes * width), machine)
    split = Split(_axis_number(s, axis), width, AxisType.UPCAST)
    return apply(s, split, machine) if width > 1 and find_rejection_reason(s, split, machine) is None else s


# ----------------------------------------------------------------------------------------------------------------- lanes


def _split_output_loop_into_vectors_and_workgroup_lanes(s: Schedule, f: _GpuKernelFacts, machine: MachineModel) -> Schedule:
    """Split the contiguous output loop, or else the last one, into vectors and lanes."""
    if f.store is None or not s.outputs:
        return s
    lane = next((r for r in s.outputs if f.store.stride(r) == 1), s.outputs[-1])
    axis, n = int(lane.arg.axis_id), max_loop_extent(lane)
    width = max(1, machine.vector_bytes // max((a.node.dtype.itemsize for a in f.accesses if a.node.op is Op.LOAD), default=4))
    straight = all(a.stride(lane) in (0, 1) for a in f.accesses) and not f.reduces
    if straight and n >= width * LANES and n % width == 0 and lane.bound.op is Op.CONST:
        s = apply(s, Split(_axis_number(s, axis), width, AxisType.UPCAST), machine)
        n //= width
    return _split_into_lanes_padding_if_needed(s, axis, n, min(LANES, machine.workgroup), machine) if n > 1 else s


def _split_into_lanes_padding_if_needed(
    s: Schedule, axis_id: int, loop_extent: int, max_lanes: int, machine: MachineModel
) -> Schedule:
    """Split a loop into up to `max_lanes` lanes: as many as divide it, or all of them after padding."""
    is_constant = isinstance(s.axes[_axis_number(s, axis_id)].extent, int)
    factor = next((k for k in range(min(loop_extent, max_lanes), 0, -1) if loop_extent % k == 0), 1) if is_constant else 0
    if not is_constant or (factor < max_lanes // 2 and loop_extent > max_lanes):
        s, factor = apply(s, Padto(_axis_number(s, axis_id), max_lanes), machine), max_lanes
    split = Split(_axis_number(s, axis_id), factor, AxisType.LOCAL)
    return apply(s, split, machine) if factor > 1 and find_rejection_reason(s, split, machine) is None else s


def _axis_number(s: Schedule, axis: int) -> int:
    """Return the number of the axis with an id (R95: position by priority, then id)."""
    return next(k for k, r in enumerate(s.ranges) if r.arg.axis_id == axis)
