"""Schedules for machines with vectors, chosen by hand-written heuristics.

`schedule_for_cpu_vectors` applies the OptOps that it chooses, all of them legal. On a machine without vectors it changes nothing.
In order, it decides:

1. An output loop of a product is split where addresses divide it (`phases`). Nested loops that walk through memory as one are
   flattened, so that no vector ends at an inner extent. An argmax is computed in one pass (`argmax`).
2. One output loop becomes vector lanes (UPCAST) if the kernel stores contiguous elements along it and most loads are contiguous or
   invariant there. Otherwise reduce loops become lanes (UNROLL) where their loads are contiguous, only one of several nested
   Reduces. Loads that are contiguous along another output loop get lanes of both: a square tile, transposed in registers.
3. Reduced columns that registers cannot hold are accumulated row by row (`sweep`).
4. A sum of products with an operand that another output loop does not change is computed in register tiles from packed panels; a
   deep one in blocks, one of few columns as dot products (`products`).
5. Extents that no factor divides are padded (Padto) if that adds little.
6. A value that costs more than loading it and that two inner loops compute alike is staged: in the row of the output that it
   becomes, or in LOCAL memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from uops.compiler.ir.extents import constant_extent
from uops.compiler.ir.work import estimate_work_per_element
from uops.compiler.passes.optimize.heuristics.argmax import fuse_max_and_argmax
from uops.compiler.passes.optimize.heuristics.phases import split_output_loops_into_phases
from uops.compiler.passes.optimize.heuristics.products import (
    PANEL_READS,
    REDUCE_VECTORS,
    count_reads_of_gathered_panel,
    find_loop_that_reuses_lane_loads,
    stage_strided_operand_of_narrow_product,
    tile_product_in_registers,
    vectorize_dot_products_if_contiguous,
    vectorize_reduce_if_contiguous,
)
from uops.compiler.passes.optimize.heuristics.sweep import interchange_output_and_reduce_loops
from uops.compiler.passes.optimize.heuristics.symbolic import vectorize_contiguous_loops_if_machine_masks
from uops.compiler.passes.optimize.heuristics.threads import count_executed_alu_and_memory_operations
from uops.compiler.passes.optimize.schedule.accesses import flatten_loop_nests
from uops.compiler.passes.optimize.schedule.local_memory import (
    find_uses_of_costliest_recomputed_value,
    stage_in_one_local_buffer,
    stage_in_output_row,
)
from uops.compiler.passes.optimize.schedule.moves import (
    CACHES,
    COST,
    VectorizationFacts,
    apply_and_find_changed_loop,
    axis_number,
    largest_divisor,
    newest_loop,
    split_into_vectors_or_vectorize_whole,
    split_with_padding,
)
from uops.compiler.passes.optimize.schedule.optops import apply, find_loops_around_local_memory_fill_loops
from uops.compiler.passes.optimize.schedule.schedule import Schedule
from uops.compiler.target import MachineModel
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import ALU, Op
from uops.spec.ir.scope import open_ranges, ranges_closed_by
from uops.spec.optops import Padto, Split

#: Vectors per iteration of an elementwise loop of fewer than LONG operations; longer bodies take one, as the loop costs no more.
ELEMENTWISE_VECTORS = 2
#: Operations per element from which an elementwise loop takes one vector per iteration.
LONG = 6
#: Most vectors of reduced columns side by side: they read long contiguous pieces of each row.
COLUMN_VECTORS = 16
#: Least work, in units of `estimate_work_per_element`, of a value that is staged because two loops share it.
KEPT_WORK = 14
#: Most values that are staged in one kernel.
_MOST_KEPT = 3
#: Most rows of a product whose columns, if no cache holds them, are read once in order.
FEW_ROWS = 16
#: Most rows that are added to a tile of columns together.
ROWS_TOGETHER = 8
#: Most rows added together, times the rows of a product that share the columns.
ROWS_BESIDE = 32
#: Fewest iterations of a loop whose lanes pay for a square tile, which is transposed by shuffles.
CROSSED = 4


def schedule_for_cpu_vectors(s: Schedule, machine: MachineModel, uniques: Iterator[int]) -> Schedule:
    """Return the schedule for a machine with vectors, or `s` itself for one without."""
    if not machine.vector_bytes:
        return s
    if any(r.bound.op is not Op.CONST for r in s.ranges):
        return vectorize_contiguous_loops_if_machine_masks(s, machine)
    s = flatten_loop_nests(split_output_loops_into_phases(s))
    argmax = fuse_max_and_argmax(s, machine, uniques)
    if argmax is not None:
        return argmax
    s = _stage_recomputed_values_in_output_or_local(s, machine, uniques)
    return _vectorize_outputs_reduces_and_local_fills(s, VectorizationFacts(s), machine, uniques)


def _stage_recomputed_values_in_output_or_local(s: Schedule, machine: MachineModel, uniques: Iterator[int]) -> Schedule:
    """Stage rows of values that two inner loops share: in the output if they fit the second cache, else in LOCAL memory.

    LOCAL memory must fit the first cache beside what the loops read.
    """
    first, second = (machine.caches or CACHES)[:2]
    for _ in range(_MOST_KEPT):
        uses = find_uses_of_costliest_recomputed_value(s, KEPT_WORK, estimate_work_per_element)
        if not uses:
            break
        value, (loop, *_) = uses[0]
        size = constant_extent(loop) * value.dtype.itemsize * 2
        staged = stage_in_output_row(s, uses) if size <= second else None
        if staged is None and size > first:
            break
        s = staged or stage_in_one_local_buffer(s, uses, next(uniques))
    return s


def _vectorize_outputs_reduces_and_local_fills(
    s: Schedule, f: VectorizationFacts, machine: MachineModel, uniques: Iterator[int]
) -> Schedule:
    """Turn loops into vector lanes: an output loop, reduce loops, and loops that fill LOCAL memory."""
    lanes = max(1, machine.vector_bytes // f.itemsize)
    staged = stage_strided_operand_of_narrow_product(s, f, lanes, machine, uniques)
    if staged is not None:
        return vectorize_dot_products_if_contiguous(staged, VectorizationFacts(staged), lanes)
    lane = _choose_lane_loop_unless_reduces_are_cheaper(s, f, lanes, machine)
    if lane is None and len(f.reduces) == 1 and not f.unvectorizable:
        return vectorize_dot_products_if_contiguous(s, f, lanes)
    if lane is not None:
        s = _choose_strategy_and_vectorize_output_loop(s, f, lane, lanes, machine, uniques)
    around = set[UOp]()  # loops around vectorized Reduces: lanes of these would repeat the Reduce in each lane
    for u in f.reduces:
        if (lane is None or lane not in f.enclosing_loops[u.operand]) and ranges_closed_by(u)[-1] not in around:
            before, s = s, vectorize_reduce_if_contiguous(s, f, u, lanes, REDUCE_VECTORS)
            around |= f.enclosing_loops[u] if s is not before else set()
    for u in f.ends:
        if ranges_closed_by(u)[-1] not in f.unvectorizable | around:
            s = split_into_vectors_or_vectorize_whole(s, ranges_closed_by(u)[-1], lanes, ELEMENTWISE_VECTORS, AxisType.UPCAST)
    return s


def _choose_lane_loop_unless_reduces_are_cheaper(
    s: Schedule, f: VectorizationFacts, lanes: int, machine: MachineModel
) -> UOp | None:
    """Return the output loop for vector lanes, or None if reduce loops suit better.

    The loop is contiguous in the Store, and its loads cost no more than those along the reduce loops.
    """
    lane = next((r for r in s.outputs if f.store.stride(r) == 1), None)
    if lane is None or constant_extent(lane) < 2 or lane in f.unvectorizable:
        return None
    inner = [u for u in f.reduces if lane in f.enclosing_loops[u.operand]]
    rows = find_loop_that_reuses_lane_loads(s, f, lane)
    if inner and 2 * constant_extent(lane) <= lanes:
        longer = _find_longer_lane_loop_of_product(s, f, lane, machine) or _find_loop_around_phases(s, f, lane, inner, machine)
        if longer is not None:
            return longer
    if not inner or not _are_few(rows, machine):
        return lane
    across = sum(f.gather_cost(lane, f.direct_loads(u)) for u in inner)
    last = [r for u in inner if constant_extent(r := ranges_closed_by(u)[-1]) >= lanes]
    along = [_gather_cost_along(f, u, last) for u in inner]
    return None if None not in along and sum(filter(None, along)) < across else lane


def _find_longer_lane_loop_of_product(s: Schedule, f: VectorizationFacts, short: UOp, machine: MachineModel) -> UOp | None:
    """Return an output loop that is longer than `short` and suits the lanes of a product; None if there is none.

    Its loads are contiguous, or are gathered once into a panel. The Store is contiguous along `short` alone. So the sums are
    stored one by one. Of several loops, the one is taken along which they lie closest.
    """
    longer = [r for r in reversed(s.outputs) if constant_extent(r) > 2 * constant_extent(short) and r not in f.unvectorizable]
    for r in longer:
        rows = find_loop_that_reuses_lane_loads(s, f, r)
        reused = not _are_few(rows, machine)
        loads = [a for u in f.reduces for a in f.direct_loads(u) if a.stride(r) != 0]
        if reused and all(a.stride(r) == 1 for a in loads):
            return r
    lanes = max(1, machine.vector_bytes // f.itemsize)
    reads = {r: count_reads_of_gathered_panel(s, f, r, machine) for r in longer if constant_extent(r) >= 2 * lanes}
    return min((r for r in reads if reads[r] >= PANEL_READS), key=lambda r: f.store.stride(r) or 1 << 40, default=None)


def _find_loop_around_phases(
    s: Schedule, f: VectorizationFacts, phases: UOp, summed: Sequence[UOp], machine: MachineModel
) -> UOp | None:
    """Return the output loop of which `phases` is the inner part, if loads cost less along it, and few rows reuse them.

    `summed` are the Reduces whose operands depend on the phases.
    """
    around = next((r for r in s.outputs if f.store.stride(r) == constant_extent(phases)), None)
    if around is None or around in f.unvectorizable or not _are_few(find_loop_that_reuses_lane_loads(s, f, around), machine):
        return None
    loads = [a for u in summed for a in f.direct_loads(u)]
    return around if f.gather_cost(around, loads) < f.gather_cost(phases, loads) else None


def _are_few(rows: UOp | None, machine: MachineModel) -> bool:
    """Return True if a loop that reuses loads is too short for a tile of accumulators, or there is none."""
    return rows is None or constant_extent(rows) < machine.thresholds.reused_rows


def _gather_cost_along(f: VectorizationFacts, u: UOp, last: Sequence[UOp]) -> int | None:
    """Return the cost of a Reduce's loads along its own last loop or that of a Reduce around it, if the loop is one of `last`."""
    return min((f.gather_cost(r, f.direct_loads(u)) for r in last if r in f.enclosing_loops[u.operand]), default=None)


def _choose_strategy_and_vectorize_output_loop(
    s: Schedule, f: VectorizationFacts, lane_loop: UOp, lanes: int, machine: MachineModel, uniques: Iterator[int]
) -> Schedule:
    """Turn an output loop into vector lanes by the strategy that suits the kernel's loads."""
    rows = find_loop_that_reuses_lane_loads(s, f, lane_loop)
    phases = next((r for r in s.outputs if f.store.stride(r) == 1), None)
    if phases not in (None, lane_loop) and f.store.stride(lane_loop) == constant_extent(phases) and _are_few(rows, machine):
        s = apply(s, Split(axis_number(s, phases), constant_extent(phases), AxisType.UPCAST))
        return split_into_vectors_or_vectorize_whole(s, lane_loop, lanes, 1, AxisType.UPCAST)
    if rows is None:
        summed = any(lane_loop in f.enclosing_loops[u.operand] for u in f.reduces)
        across = None if summed else _find_transposed_load_loop(s, f, lane_loop)
        if across is not None:
            return _vectorize_two_loops_as_square_tile(s, lane_loop, across, lanes)
        streams = summed and all(a.stride(lane_loop) is not None for a in f.loads)
        vectors = max(1, min(COLUMN_VECTORS, machine.registers // 2)) if streams else _elementwise_vector_count(f)
        if (
            streams
            and constant_extent(lane_loop) > lanes * vectors
            and shortest_reduce_extent(f, lane_loop) >= machine.thresholds.swept_rows
        ):
            return _accumulate_column_tiles_row_by_row(s, f, lane_loop, None, lanes, machine, uniques)
        return split_into_vectors_or_vectorize_whole(s, lane_loop, lanes, vectors, AxisType.UPCAST)
    streamed = shortest_reduce_extent(f, lane_loop) * constant_extent(lane_loop) * f.itemsize > (machine.caches or CACHES)[1]
    if constant_extent(rows) <= FEW_ROWS and streamed and len(f.reduces) == 1:
        return _accumulate_column_tiles_row_by_row(s, f, lane_loop, rows, lanes, machine, uniques)
    return tile_product_in_registers(s, f, rows, lane_loop, machine, uniques)


def _elementwise_vector_count(f: VectorizationFacts) -> int:
    """Return the number of vectors per iteration of a loop outside Reduces."""
    operations = sum([u.op in ALU and u.dtype is not dt.index for u in f.order])
    return 1 if operations >= LONG and not f.reduces else ELEMENTWISE_VECTORS


def _accumulate_column_tiles_row_by_row(
    s: Schedule,
    f: VectorizationFacts,
    lane_loop: UOp,
    unrolled_output_loop: UOp | None,
    lanes: int,
    machine: MachineModel,
    uniques: Iterator[int],
) -> Schedule:
    """Accumulate reduced columns row by row, in tiles whose accumulators fit half of the first cache.

    A tile has at least ELEMENTWISE_VECTORS vectors. Some rows are added together. `unrolled_output_loop` is another output loop;
    the columns are read once for all its iterations.
    """
    n = lanes * ELEMENTWISE_VECTORS
    unrolled = constant_extent(unrolled_output_loop) if unrolled_output_loop is not None else 1
    most = max(n, (machine.caches or CACHES)[0] // 2 // f.itemsize // unrolled // n * n)
    tiles = -(-constant_extent(lane_loop) // most)
    if (
        machine.cores > 1
        and count_executed_alu_and_memory_operations(f.order, f.enclosing_loops) >= machine.thresholds.threaded_operations
    ):  # a tile per core at least
        tiles = max(tiles, min(machine.cores, constant_extent(lane_loop) // n))
    tile = -(-constant_extent(lane_loop) // (tiles * n)) * n
    if constant_extent(lane_loop) % tile:
        s, lane_loop = apply_and_find_changed_loop(s, lane_loop, Padto(axis_number(s, lane_loop), tile))
    s = apply(s, Split(axis_number(s, lane_loop), n, AxisType.UPCAST))
    vectors = newest_loop(s)
    if tiles > 1:
        s = apply(s, Split(axis_number(s, lane_loop), tile // n, AxisType.LOOP))
    columns: tuple[UOp, ...] = (newest_loop(s) if tiles > 1 else s.ranges[axis_number(s, lane_loop)], vectors)
    if unrolled_output_loop is not None:
        s = apply(s, Split(axis_number(s, unrolled_output_loop), constant_extent(unrolled_output_loop), AxisType.UPCAST))
        columns = (newest_loop(s), *columns)
    for _ in f.reduces:
        u = _find_reduce_depending_on_columns(s, columns)
        if u is None:
            break
        most = (
            min(ROWS_TOGETHER, max(1, ROWS_BESIDE // constant_extent(unrolled_output_loop)))
            if unrolled_output_loop is not None
            else ROWS_TOGETHER
        )
        rows = ranges_closed_by(u)[-1]
        together = (
            largest_divisor(constant_extent(rows), most)
            if rows not in find_loops_around_local_memory_fill_loops(s.effect, include_register_fills=True)
            else 1
        )
        if together > 1:
            s = apply(s, Split(axis_number(s, rows), together, AxisType.UNROLL))
        u = _find_reduce_depending_on_columns(s, columns) or u
        reduce_loops = [r for r in ranges_closed_by(u) if r.arg.type is AxisType.REDUCE]
        s = interchange_output_and_reduce_loops(s, u, columns, reduce_loops, next(uniques))
    return s


def shortest_reduce_extent(f: VectorizationFacts, lane: UOp) -> int:
    """Return the trip count of the shortest Reduce whose operand depends on `lane`."""
    return min(math.prod(map(constant_extent, ranges_closed_by(u))) for u in f.reduces if lane in f.enclosing_loops[u.operand])


def _find_reduce_depending_on_columns(s: Schedule, column_loops: tuple[UOp, ...]) -> UOp | None:
    """Return the first Reduce over REDUCE loops whose operand depends on the columns, or None."""
    order = toposort(s.effect)
    needs = open_ranges(order)
    summed = (u for u in order if u.op is Op.REDUCE and not needs[u.operand].isdisjoint(column_loops))
    return next((u for u in summed if any(r.arg.type is AxisType.REDUCE for r in ranges_closed_by(u))), None)


def _find_transposed_load_loop(s: Schedule, f: VectorizationFacts, lane_loop: UOp) -> UOp | None:
    """Return the output loop along which most of the loads are contiguous that are gathered along `lane_loop`; None if there is
    none."""
    scattered = [a for a in f.loads if a.stride(lane_loop) not in COST]
    counts = {
        r: sum(a.stride(r) == 1 for a in scattered)
        for r in s.outputs
        if r not in f.unvectorizable and constant_extent(r) >= CROSSED
    }
    best = max(counts, key=lambda r: counts[r], default=None)
    return best if best is not None and counts[best] else None


def _vectorize_two_loops_as_square_tile(s: Schedule, lane_loop: UOp, other_loop: UOp, lanes: int) -> Schedule:
    """Split two loops into equally many vector lanes: loads are contiguous along one, stores along the other."""
    side = min(lanes, *(1 << constant_extent(r).bit_length() - 1 for r in (lane_loop, other_loop)))
    s = split_with_padding(s, lane_loop, side, AxisType.UPCAST)
    return split_with_padding(s, other_loop, side, AxisType.UPCAST)
