"""Schedules for sums of products: register tiles with packed panels, blocks of deep products, dot products.

A tile is `rows` times `vectors` accumulators. Each row's operand is broadcast to the vectors of a panel, which all tiles of rows
share and which is copied to LOCAL memory. A product of few columns is computed as dot products, with lanes along the Reduce. Spec:
Kernel Optimizations (OptOps); Lowering Pipeline/Optimize; R91 (cache tiling).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from uops.compiler.ir.accumulators import accumulator_dtype
from uops.compiler.ir.extents import constant_extent
from uops.compiler.passes.optimize.heuristics.sweep import (
    accumulate_in_output_memory_if_allowed,
    interchange_output_and_reduce_loops,
)
from uops.compiler.passes.optimize.heuristics.threads import count_executed_alu_and_memory_operations
from uops.compiler.passes.optimize.schedule.accesses import flatten_loop_nests
from uops.compiler.passes.optimize.schedule.clamp import pad_loop_clamping_loads_and_gating_store
from uops.compiler.passes.optimize.schedule.local_memory import stage_in_one_local_buffer
from uops.compiler.passes.optimize.schedule.moves import (
    CACHES,
    COST,
    VectorizationFacts,
    apply_and_find_changed_loop,
    axis_number,
    largest_divisor,
    newest_loop,
    padding_efficiency,
    split_into_vectors_or_vectorize_whole,
    split_with_padding,
)
from uops.compiler.passes.optimize.schedule.optops import apply
from uops.compiler.passes.optimize.schedule.schedule import Schedule
from uops.compiler.target import STACK_LIMIT, MachineModel
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.scope import ranges_closed_by
from uops.spec.optops import Padto, Split, Swap

#: Most vector accumulators of a reduction: enough to hide the latency of an addition.
REDUCE_VECTORS = 4
#: Panels may take 1/PANEL_SHARE of the second cache, in bytes; larger ones are cut into blocks.
PANEL_SHARE = 2
#: Block accumulators may take 1/SUMS_SHARE of min(second cache, STACK_LIMIT), in bytes.
SUMS_SHARE = 4
#: Most panels that are filled together, so that rows which no cache holds are read once for all of them.
PANELS = 4
#: Pieces of a product that each core gets at least. Reading the rows for two panels at once gains more than better balance.
PIECES = 2
#: Blocks of a deep Reduce may be 1/DEPTH_SLACK as long as the cache allows if that avoids padding.
DEPTH_SLACK = 4
#: Most vectors of a register tile along its columns.
MOST_VECTORS = 4
#: Bytes per cycle that are loaded from the second cache.
PANEL_BYTES = 24
#: Bytes between the operands of a row in two steps of a Reduce from which they are copied: each step then reads another page, and
#: many pages share a set of each cache.
ROW_STEP_BYTES = 3072
#: Fewest and most tiles of rows whose operands are copied together, about as whole cache lines.
SLAB_TILES = (6, 10)
#: Cost of loading the operand of a row, in vector loads from a panel.
ROW_LOADS = 2
#: Fewest reads of an element of a panel that pay for gathering it.
PANEL_READS = 128
#: Most dot products that are computed side by side.
DOTS = 12
#: Most dot products side by side of one output loop.
DOT_ROWS = 4


@dataclass(frozen=True, slots=True)
class _RegisterTile:
    """A register tile of `rows` times `vectors` vectors, for `second_columns` iterations of a second column loop."""

    rows: int
    vectors: int
    second_columns: int = 1
    score: float = 0.0


class _RowSlab(NamedTuple):
    """A loop over the rows of several tiles, by its id; the rows of a tile; the bytes of a copy of the operands, 0 for no copy."""

    axis_id: int
    rows: int
    bytes: int


def tile_product_in_registers(
    s: Schedule, f: VectorizationFacts, row_loop: UOp, lane_loop: UOp, machine: MachineModel, uniques: Iterator[int]
) -> Schedule:
    """Compute a product in register tiles, with a packed panel of the operand that the rows share."""
    full = max(1, machine.vector_bytes // f.itemsize)
    lanes = min(full, 1 << (constant_extent(lane_loop) - 1).bit_length())
    beside = _find_second_column_loop(s, f, row_loop, lane_loop) if constant_extent(lane_loop) <= 2 * lanes else None
    tile = _choose_register_tile(
        constant_extent(row_loop),
        constant_extent(beside) if beside is not None else 1,
        constant_extent(lane_loop),
        lanes,
        full,
        _most_vectors_for_a_panel_per_core(s, f, row_loop, lane_loop, lanes, machine),
        machine,
    )
    s, slab = _split_distant_rows_into_slabs(s, f, row_loop, tile.rows, machine) if beside is None else (s, None)
    s = split_with_padding(s, lane_loop, tile.vectors * lanes, AxisType.UPCAST)
    for loop, factor in ((row_loop, tile.rows if slab is None else 1), (beside, tile.second_columns)):
        if loop is not None and factor > 1:
            r = s.ranges[axis_number(s, loop)]
            s, r = pad_loop_clamping_loads_and_gating_store(s, r, factor) if constant_extent(r) % factor else (s, r)
            s = apply(s, Split(axis_number(s, r), factor, AxisType.UPCAST))
    return _pack_reused_panel_or_block_deep_reduce(s, row_loop, lane_loop, slab, machine, uniques)


def _split_distant_rows_into_slabs(
    s: Schedule, f: VectorizationFacts, row_loop: UOp, rows: int, machine: MachineModel
) -> tuple[Schedule, _RowSlab | None]:
    """Split the rows of a product into slabs of tiles of `rows` rows, if their operands are to be copied.

    That pays where they are neighbours in memory, but far from those of the next step, and there are enough of them.
    """
    n = constant_extent(row_loop)
    if n < machine.thresholds.packed_row_tiles * SLAB_TILES[1] * rows or not _has_distant_row_operands(s, f, row_loop):
        return s, None
    sizes = [k * rows for k in range(SLAB_TILES[1], SLAB_TILES[0] - 1, -1)]
    size = max(sizes, key=lambda k: padding_efficiency(n, k))
    depth = math.prod(map(constant_extent, ranges_closed_by(f.reduces[0])))
    s = split_with_padding(s, row_loop, size, AxisType.LOOP)
    return s, _RowSlab(newest_loop(s).arg.axis_id, rows, size * depth * f.itemsize)


def _has_distant_row_operands(s: Schedule, f: VectorizationFacts, row_loop: UOp) -> bool:
    """Return True if the rows of a product load neighbours in memory, far from those of the next step.

    A deep product must also be able to accumulate in its output (`_compute_deep_reduce_in_blocks`).
    """
    if len(f.reduces) != 1:
        return False
    of_rows = [a for a in f.direct_loads(f.reduces[0]) if row_loop in f.enclosing_loops[a.node]]
    if len(of_rows) != 1 or of_rows[0].stride(row_loop) != 1 or of_rows[0].node.gate is not None:
        return False
    step = of_rows[0].stride(ranges_closed_by(f.reduces[0])[-1])
    return step is not None and abs(step) * f.itemsize >= ROW_STEP_BYTES and _can_accumulate_in_output(s)


def _stage_slab_and_tile_rows(
    s: Schedule, slab: _RowSlab | None, machine: MachineModel, uniques: Iterator[int], around: Sequence[UOp] = ()
) -> Schedule:
    """Copy the operands of a slab's rows, step by step, if they may be copied, and turn the rows of each tile into vector lanes.

    `around` are loops of the Reduce that stay around the copying.
    """
    if slab is None:
        return s
    f = VectorizationFacts(s)
    (rows,) = (r for r in s.outputs if r.arg.axis_id == slab.axis_id)
    loads = [a.node for a in f.direct_loads(f.reduces[0]) if rows in f.enclosing_loops[a.node]]
    if slab.bytes and len(loads) == 1:
        over = (*(r for r in ranges_closed_by(f.reduces[0]) if r not in around), rows)
        s = stage_in_one_local_buffer(s, [(loads[0], over)], next(uniques))
        s = split_into_vectors_or_vectorize_whole(s, newest_loop(s), machine.lanes(loads[0].dtype), REDUCE_VECTORS, AxisType.UPCAST)
    return apply(s, Split(axis_number(s, rows), slab.rows, AxisType.UPCAST))


def find_loop_that_reuses_lane_loads(s: Schedule, f: VectorizationFacts, lane_loop: UOp) -> UOp | None:
    """Return the output loop that reuses what the lanes load in a Reduce: a load changes with the lanes but not with it.

    Of several it is the innermost, or the longest if the lanes gather: a gathered operand pays if many rows share its panel.
    """
    rows = [r for r in reversed(s.outputs) if r is not lane_loop and r not in f.unvectorizable and constant_extent(r) > 1]
    for u in f.reduces:
        loads = f.direct_loads(u)
        if len(loads) < 2 or lane_loop not in f.enclosing_loops[u.operand]:
            continue
        reusing = [
            r for r in rows if r in f.enclosing_loops[u.operand] and any(a.stride(lane_loop) and a.stride(r) == 0 for a in loads)
        ]
        if reusing:
            gathers = any(a.stride(lane_loop) not in COST for a in loads)
            return max(reusing, key=constant_extent) if gathers else reusing[0]
    return None


def count_reads_of_gathered_panel(s: Schedule, f: VectorizationFacts, lane_loop: UOp, machine: MachineModel) -> int:
    """Count how often a product reads each element of the panel that lanes along `lane_loop` need.

    Returns 0 if the lanes gather several operands, or if the panel would not be packed: too few rows read it, or each tile of rows
    would fill it anew.
    """
    rows = find_loop_that_reuses_lane_loads(s, f, lane_loop)
    if rows is None or constant_extent(rows) < machine.thresholds.packed_row_tiles * machine.registers // 2:
        return 0
    panel = _find_panel_load_and_loops(s, f, rows, lane_loop)
    if panel is None:
        return 0
    along = [a for a in f.direct_loads(f.reduces[0]) if a.stride(lane_loop) != 0]
    if [a.node for a in along] != [panel[0]] or along[0].stride(lane_loop) is None:
        return 0
    inner = _find_panel_loops_inside_tiles(s, f, panel[0], rows, lane_loop)
    filled = [MOST_VECTORS * machine.vector_bytes, *map(constant_extent, (*panel[1], *inner))]
    if inner and math.prod(filled) > _panel_byte_budget(machine):
        return 0
    return math.prod(constant_extent(r) for r in s.outputs if r not in f.enclosing_loops[panel[0]])


def _find_second_column_loop(s: Schedule, f: VectorizationFacts, row_loop: UOp, lane_loop: UOp) -> UOp | None:
    """Return another output loop of columns: loads that depend on the rows are invariant along it, as filters are along image
    rows."""
    (*_, u) = (u for u in f.reduces if lane_loop in f.enclosing_loops[u.operand])
    row_loads = [a.node for a in f.direct_loads(u) if row_loop in f.enclosing_loops[a.node]]
    scattered = {r for r in s.outputs for a in f.direct_loads(u) if a.stride(r) is None}
    excluded = f.unvectorizable | scattered | {row_loop, lane_loop}
    others = (r for r in reversed(s.outputs) if r not in excluded and r in f.enclosing_loops[u.operand])
    return next((r for r in others if not any(r in f.enclosing_loops[a] for a in row_loads)), None)


def _most_vectors_for_a_panel_per_core(
    s: Schedule, f: VectorizationFacts, row_loop: UOp, lane_loop: UOp, lanes: int, machine: MachineModel
) -> int:
    """Return how many vectors along the columns a tile may have: so few that each core has a panel, if nothing else divides them.

    A THREAD loop encloses the filling of a panel, so it is a loop of the panel's operand.
    """
    panel = _find_panel_load_and_loops(s, f, row_loop, lane_loop) if machine.cores > 1 else None
    if panel is None:
        return MOST_VECTORS
    others = [r for r in s.outputs if r in f.enclosing_loops[panel[0]] and r is not lane_loop]
    if any(constant_extent(r) >= machine.cores for r in others):
        return MOST_VECTORS
    if count_executed_alu_and_memory_operations(f.order, f.enclosing_loops) < machine.thresholds.threaded_operations:
        return MOST_VECTORS
    return max(1, min(MOST_VECTORS, constant_extent(lane_loop) // (lanes * machine.cores)))


def _choose_register_tile(
    row_count: int,
    second_column_count: int,
    column_count: int,
    column_lanes: int,
    lanes_per_vector: int,
    most_vectors: int,
    machine: MachineModel,
) -> _RegisterTile:
    """Return the tile with the best score, of at most `most_vectors` vectors along the columns.

    A vector has `column_lanes` columns; iterations of the second column loop fill it up to `lanes_per_vector` lanes.
    """
    best = _RegisterTile(1, 1)
    for along, b in itertools.product(
        range(1, 1 + most_vectors), range(1, 1 + min(second_column_count, 4 * lanes_per_vector // column_lanes))
    ):
        vectors = -(-along * b * column_lanes // lanes_per_vector)
        efficiency = padding_efficiency(column_count, along * column_lanes) * padding_efficiency(second_column_count, b)
        efficiency *= padding_efficiency(along * b * column_lanes, lanes_per_vector)
        tile = _choose_tile_with_best_row_count(row_count, _RegisterTile(1, along, b), vectors, efficiency, machine)
        best = max(best, tile, key=lambda t: t.score)
    return best


def _choose_tile_with_best_row_count(
    row_count: int, tile_without_rows: _RegisterTile, vectors_per_row: int, column_efficiency: float, machine: MachineModel
) -> _RegisterTile:
    """Return the tile with the number of rows that keeps the arithmetic units busiest with useful iterations.

    Ties go to more products per load. The model: two products, two loads and PANEL_BYTES of the panel per cycle. Operands of rows
    lie apart in memory and stall more often (ROW_LOADS).
    """
    best = tile_without_rows
    most = max(1, (machine.registers - 1 - vectors_per_row) // vectors_per_row)
    for r in range(1, min(most, row_count) + 1):
        products = r * vectors_per_row / 2
        cycles = max(products, (ROW_LOADS * r + vectors_per_row) / 2, vectors_per_row * machine.vector_bytes / PANEL_BYTES)
        score = (
            column_efficiency
            * padding_efficiency(row_count, r)
            * products
            / cycles
            * (1 + 0.02 * r * vectors_per_row / (r + vectors_per_row))
        )
        if score > best.score:
            best = replace(tile_without_rows, rows=r, score=score)
    return best


def _pack_reused_panel_or_block_deep_reduce(
    s: Schedule, row_loop: UOp, lane_loop: UOp, slab: _RowSlab | None, machine: MachineModel, uniques: Iterator[int]
) -> Schedule:
    """Copy the operand that depends on the lanes but not on the rows into a panel, which all tiles of rows read.

    If the panel exceeds the second cache, a deep Reduce is computed block by block. With a slab, `row_loop` is the loop over slabs.
    """
    loops = {r.arg.axis_id: r for r in s.ranges}
    tiles, columns = loops[row_loop.arg.axis_id], loops[lane_loop.arg.axis_id]
    if (
        tiles not in s.outputs
        or columns not in s.outputs
        or constant_extent(tiles) < machine.thresholds.packed_row_tiles
        or _find_panel_load_and_loops(s, VectorizationFacts(s), tiles, columns) is None
    ):
        return _stage_slab_and_tile_rows(s, slab and slab._replace(bytes=0), machine, uniques)
    if s.outputs.index(tiles) < s.outputs.index(columns) and tiles.arg.axis_id < columns.arg.axis_id:
        s = apply(s, Swap(axis_number(s, tiles), axis_number(s, columns)))
        tiles, columns = s.ranges[axis_number(s, columns)], s.ranges[axis_number(s, tiles)]
    panel = _find_panel_load_and_loops(s, VectorizationFacts(s), tiles, columns)
    assert panel is not None
    load, over = panel
    size, cache = math.prod(map(constant_extent, over)) * load.dtype.itemsize, _panel_byte_budget(machine)
    cache -= slab.bytes if slab is not None and 2 * slab.bytes <= cache else 0
    rereads = _estimate_row_operand_bytes_read_per_panel(s, tiles, load) >= cache * PANEL_SHARE
    beside = _choose_panel_count_to_fill_together(columns, PANELS, machine) if rereads else 1
    k = ranges_closed_by(VectorizationFacts(s).reduces[0])[0]
    divides = _has_large_divisor(constant_extent(k), _max_block_iterations(k, size, cache // beside))
    too_large = size > min(cache * PANEL_SHARE, STACK_LIMIT)
    if too_large or (size * beside > cache and divides and (size > cache or _can_accumulate_in_output(s))):
        return _compute_deep_reduce_in_blocks(s, tiles, columns, slab, size, machine, uniques)
    beside = _choose_panel_count_to_fill_together(columns, cache // size, machine) if beside > 1 else 1
    if slab is not None and size * beside + slab.bytes > STACK_LIMIT:
        slab = slab._replace(bytes=0)
    s, load, over = _split_columns_and_find_panel_load(s, tiles, columns, beside)
    inner = [r for r in _find_panel_loops_inside_tiles(s, VectorizationFacts(s), load, tiles, columns) if r not in over]
    if math.prod(map(constant_extent, (*inner, *over))) * load.dtype.itemsize <= cache:
        over = (*inner, *over)
    s = stage_in_one_local_buffer(s, [(load, over)], next(uniques), machine.lanes(load.dtype))
    return flatten_loop_nests(_stage_slab_and_tile_rows(s, slab, machine, uniques), only_reduces=True)


def _estimate_row_operand_bytes_read_per_panel(s: Schedule, row_tiles: UOp, panel_load: UOp) -> int:
    """Estimate the bytes of the operand that depends on the rows, all of which every panel of `panel_load` reads."""
    f = VectorizationFacts(s)
    common = f.enclosing_loops[panel_load] - set(ranges_closed_by(f.reduces[0]))
    rows = (a.node for a in f.direct_loads(f.reduces[0]) if row_tiles in f.enclosing_loops[a.node])
    return max((math.prod(map(constant_extent, f.enclosing_loops[u] - common)) * u.dtype.itemsize for u in rows), default=0)


def _choose_panel_count_to_fill_together(panel_loop: UOp, max_count: int, machine: MachineModel) -> int:
    """Return how many panels to fill together, so that rows are read once for all of them.

    The count is at most `max_count`, divides the number of panels, and leaves enough pieces for the cores.
    """
    per_piece = constant_extent(panel_loop) // (PIECES * machine.cores) if machine.cores > 1 else max_count
    return largest_divisor(constant_extent(panel_loop), max(1, min(max_count, per_piece, PANELS)))


def _split_columns_and_find_panel_load(
    s: Schedule, row_tiles: UOp, column_loop: UOp, panels_side_by_side: int
) -> tuple[Schedule, UOp, tuple[UOp, ...]]:
    """Split the columns into `panels_side_by_side` panels side by side.

    Returns the schedule, the Load to stage, and the loops over the staged panels.
    """
    if panels_side_by_side > 1:
        s = apply(s, Split(axis_number(s, column_loop), panels_side_by_side, AxisType.LOOP))
        column_loop = newest_loop(s)
    panel = _find_panel_load_and_loops(s, VectorizationFacts(s), row_tiles, column_loop)
    assert panel is not None
    load, over = panel
    return s, load, (column_loop, *over) if panels_side_by_side > 1 else over


def _can_accumulate_in_output(s: Schedule) -> bool:
    """Return True if the sums of the Reduce can be accumulated in the output memory."""
    (u,) = VectorizationFacts(s).reduces
    return accumulate_in_output_memory_if_allowed(s, u, (), ranges_closed_by(u)[0]) is not None


def _compute_deep_reduce_in_blocks(
    s: Schedule,
    row_tiles: UOp,
    column_loop: UOp,
    slab: _RowSlab | None,
    whole_panel_bytes: int,
    machine: MachineModel,
    uniques: Iterator[int],
) -> Schedule:
    """Compute a deep product in blocks: split the outermost loop of its Reduce, and run each part for many tiles of rows.

    A panel of all iterations takes `whole_panel_bytes` bytes.
    """
    k, *inner = ranges_closed_by(VectorizationFacts(s).reduces[0])
    in_output = _can_accumulate_in_output(s)
    beside = _choose_panel_count_to_fill_together(column_loop, PANELS, machine) if in_output else 1
    budget = _panel_byte_budget(machine)
    budget = budget if in_output else min(budget, STACK_LIMIT - _accumulator_byte_budget(machine))
    slab_bytes = 0 if slab is None else slab.bytes
    most = _max_block_iterations(k, whole_panel_bytes * beside + slab_bytes, budget)
    part = largest_divisor(constant_extent(k), most)
    if not _has_large_divisor(constant_extent(k), most):
        part = -(-constant_extent(k) // -(-constant_extent(k) // most))
        s, k = apply_and_find_changed_loop(s, k, Padto(axis_number(s, k), part)) if constant_extent(k) % part else (s, k)
    s = apply(s, Split(axis_number(s, k), part, AxisType.REDUCE))
    depth, innermost = s.ranges[axis_number(s, k)], newest_loop(s)
    for r in inner:  # the part becomes the outermost of these loops, whose order stays
        s = apply(s, Swap(axis_number(s, innermost), axis_number(s, r)))
    s, load, over = _split_columns_and_find_panel_load(s, row_tiles, column_loop, beside)
    lanes = machine.lanes(load.dtype)
    s = stage_in_one_local_buffer(s, [(load, tuple(r for r in over if r is not depth))], next(uniques), lanes)
    s = _stage_slab_and_tile_rows(s, slab, machine, uniques, (depth,))
    tiles_of_slab = [r for r in s.outputs if slab is not None and r.arg.axis_id == slab.axis_id]
    inside = (row_tiles, *tiles_of_slab, *over[: beside > 1])
    blocked = accumulate_in_output_memory_if_allowed(s, VectorizationFacts(s).reduces[0], inside, depth)
    if blocked is None:
        return _accumulate_reduce_blocks_for_tiles_that_fit(s, row_tiles, depth, machine, uniques)
    return flatten_loop_nests(blocked, only_reduces=True)


def _panel_byte_budget(machine: MachineModel) -> int:
    """Return the bytes of cache and stack that panels may take."""
    return min((machine.caches or CACHES)[1] // PANEL_SHARE, STACK_LIMIT)


def _accumulator_byte_budget(machine: MachineModel) -> int:
    """Return the bytes that accumulators may take beside a panel."""
    return min((machine.caches or CACHES)[1], STACK_LIMIT) // SUMS_SHARE


def _max_block_iterations(k: UOp, panel_bytes: int, budget: int) -> int:
    """Return the most iterations of reduce loop `k` whose panel fits `budget` bytes; a panel of all iterations takes
    `panel_bytes`."""
    return max(1, constant_extent(k) * budget // panel_bytes)


def _has_large_divisor(n: int, most: int) -> bool:
    """Return True if blocks of a good size need no padding, which would gate Loads in the innermost loop."""
    return largest_divisor(n, most) * DEPTH_SLACK >= most


def _accumulate_reduce_blocks_for_tiles_that_fit(
    s: Schedule, row_tiles: UOp, block_loop: UOp, machine: MachineModel, uniques: Iterator[int]
) -> Schedule:
    """Accumulate the blocks of as many tiles of rows at a time as their memory allows (`_accumulator_byte_budget`)."""
    vectors = [r for r in s.outputs if r.arg.type is AxisType.UPCAST]
    size = math.prod(map(constant_extent, vectors)) * accumulator_dtype(VectorizationFacts(s).reduces[0].dtype).itemsize
    most, n = max(1, _accumulator_byte_budget(machine) // size), constant_extent(row_tiles)
    if n > most:
        together = -(-n // -(-n // most))
        s, row_tiles = pad_loop_clamping_loads_and_gating_store(s, row_tiles, together) if n % together else (s, row_tiles)
        s = apply(s, Split(axis_number(s, row_tiles), together, AxisType.LOOP))
        row_tiles = newest_loop(s)
    f = VectorizationFacts(s)
    vectors.sort(key=lambda r: -(f.store.stride(r) or 0))
    return interchange_output_and_reduce_loops(s, f.reduces[0], (row_tiles, *vectors), [block_loop], next(uniques))


def _find_panel_load_and_loops(
    s: Schedule, f: VectorizationFacts, row_loop: UOp, column_loop: UOp
) -> tuple[UOp, tuple[UOp, ...]] | None:
    """Return the only Load of the kernel's Reduce that depends on `column_loop` but not on `row_loop`, and the loops over its
    panel.

    Returns None if there is no such Load, or several, or if it is the same for all products of a sum.
    """
    if len(f.reduces) != 1:
        return None
    loads = [a.node for a in f.direct_loads(f.reduces[0])]
    loads = [u for u in loads if column_loop in f.enclosing_loops[u] and row_loop not in f.enclosing_loops[u]]
    if len(loads) != 1:
        return None
    (load,), reduced = loads, ranges_closed_by(f.reduces[0])
    stores = {r: f.store.stride(r) or 0 for r in s.ranges}
    loops = [r for r in s.ranges if r in f.enclosing_loops[load]]
    if f.enclosing_loops[load].isdisjoint(reduced):
        return None
    vectors = sorted((r for r in loops if r.arg.type is AxisType.UPCAST), key=lambda r: -stores[r])
    return load, (*(r for r in loops if r in reduced), *vectors)


def _find_panel_loops_inside_tiles(s: Schedule, f: VectorizationFacts, load: UOp, row_loop: UOp, column_loop: UOp) -> list[UOp]:
    """Return the output loops inside of a tile on which the Load of its panel depends, as it does on the taps of a filter.

    Unless the panel has the elements of all their iterations, it is filled for each tile of rows.
    """
    outside = max(row_loop.arg.axis_id, column_loop.arg.axis_id)
    inside = (r for r in s.outputs if r.arg.type is AxisType.LOOP and r.arg.axis_id > outside)
    return [r for r in inside if r in f.enclosing_loops[load]]


def vectorize_reduce_if_contiguous(s: Schedule, f: VectorizationFacts, reduce: UOp, lanes: int, max_vectors: int) -> Schedule:
    """Turn the last loop of a Reduce into vector lanes if its loads are contiguous."""
    if not _can_vectorize_reduce(f, reduce, lanes):
        return s
    return split_into_vectors_or_vectorize_whole(s, ranges_closed_by(reduce)[-1], lanes, max_vectors, AxisType.UNROLL)


def _can_vectorize_reduce(f: VectorizationFacts, u: UOp, lanes: int) -> bool:
    """Return True if the loads of a Reduce are as cheap as contiguous ones and its last loop fills a vector."""
    return f.can_vectorize_reduce_cheaply(u) and constant_extent(ranges_closed_by(u)[-1]) >= lanes


def vectorize_dot_products_if_contiguous(s: Schedule, f: VectorizationFacts, lanes: int) -> Schedule:
    """Compute one Reduce in vector lanes, for several results side by side.

    These share loads, and the time it takes to fold the lanes.
    """
    (u,) = f.reduces
    if not _can_vectorize_reduce(f, u, lanes):
        return s
    beside = 1
    for r in reversed([r for r in s.outputs if r in f.enclosing_loops[u.operand]]):
        k = next(k for k in range(min(constant_extent(r), DOT_ROWS), 0, -1) if k * beside <= DOTS)
        s, r = pad_loop_clamping_loads_and_gating_store(s, r, k) if constant_extent(r) % k else (s, r)
        s, beside = split_with_padding(s, r, k, AxisType.UPCAST), beside * k
    f, vectors = VectorizationFacts(s), max(1, min(REDUCE_VECTORS, 2 * REDUCE_VECTORS // beside))
    return vectorize_reduce_if_contiguous(s, f, f.reduces[0], lanes, vectors)


def stage_strided_operand_of_narrow_product(
    s: Schedule, f: VectorizationFacts, lanes: int, machine: MachineModel, uniques: Iterator[int]
) -> Schedule | None:
    """Stage the operand of a product with fewer columns than a vector has lanes, so that it is contiguous along the Reduce.

    Returns None for any other kernel, or if the operand is too large or reused too little.
    """
    lane = next((r for r in s.outputs if f.store.stride(r) == 1), None)
    if lane is None or constant_extent(lane) >= lanes or len(f.reduces) != 1 or f.unvectorizable:
        return None
    (u,) = f.reduces
    if lane not in f.enclosing_loops[u.operand]:
        return None
    rows = find_loop_that_reuses_lane_loads(s, f, lane)
    beside = _find_second_column_loop(s, f, rows, lane) if rows is not None else None
    if beside is not None and constant_extent(lane) * constant_extent(beside) >= lanes:
        return None
    k, loads = ranges_closed_by(u)[-1], f.direct_loads(u)
    strided = [a.node for a in loads if a.stride(k) not in COST]
    invariant = any(a.stride(k) == 1 and lane not in f.enclosing_loops[a.node] for a in loads)
    if len(strided) != 1 or constant_extent(k) < lanes or not invariant:
        return None
    (load,) = strided
    loops = f.enclosing_loops[load]
    over = (*(r for r in s.outputs if r in loops), *(r for r in ranges_closed_by(u) if r in loops))
    size = math.prod(map(constant_extent, over)) * load.dtype.itemsize
    reuses = math.prod(constant_extent(r) for r in s.outputs if r not in loops)
    if reuses < machine.thresholds.reused_rows or size * 2 > (machine.caches or CACHES)[1] or not loops <= set(over):
        return None
    return stage_in_one_local_buffer(s, [(load, over)], next(uniques))
